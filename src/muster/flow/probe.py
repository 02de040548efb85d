"""A pytest plugin that writes down what is collected and how each test ends: one JSON object a line, each written whole and at once.

It travels as text to where pytest runs, with a call of `begin` at its end, and is loaded there by `-p`. Standard library and pytest
only, Python 3.8: there is no muster there. Lines that are no JSON are what faulthandler says of a test that hangs.
"""

from __future__ import annotations

import ast
import base64
import faulthandler
import json
import os
import sys
import zlib
from typing import Any

import pytest

VERSION = 1
TEXT_MOST = 20_000
#: Of all texts together; after that they are short.
TEXTS_MOST = 16 << 20
HERE = os.path.dirname(os.path.abspath(__file__))
REPORT = os.path.join(os.path.dirname(HERE), "artifacts", "report.jsonl")
#: There when all tests were come to. An interpreter that ends before is started again, for the tests that were not begun.
ENDED = os.path.join(HERE, "ended")
TOLD: dict[str, Any] = {"tests": [], "without": [], "seconds": 0.0, "source": "", "here": ""}


def begin(packed: str) -> None:
    TOLD.update(json.loads(zlib.decompress(base64.b64decode(packed))))
    TOLD["here"] = top_of(os.getcwd())
    TOLD["source"] = top_of(TOLD["source"]) if TOLD["source"] else TOLD["here"]
    # What is installed as a link into the user's folder is to be imported from here, by programs that tests start too.
    moved = {path: counterpart(path) for path in sys.path}
    sys.path[:] = [moved[path] or path for path in sys.path]
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    paths = [counterpart(path) or path for path in given if path]
    paths += [path for path in moved.values() if path and path not in paths]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)


def top_of(folder: str) -> str:
    """The top of the repository around it, else the folder itself."""
    top = folder = os.path.realpath(folder)
    while not os.path.exists(os.path.join(top, ".git")):
        if os.path.dirname(top) == top:
            return folder
        top = os.path.dirname(top)
    return top


def below(path: str, top: str) -> str:
    """The path as seen from `top`; empty when it is not inside."""
    path = os.path.relpath(os.path.realpath(path), top)
    return "" if path.split(os.sep)[0] == ".." else path


def counterpart(path: str) -> str:
    """Of a path in the user's folder the one that is here in its place; empty when it is not there, or there is none."""
    if not path or "site-packages" in path or below(path, os.path.realpath(sys.prefix)):
        return ""
    inside = below(path, TOLD["source"])
    if not inside or below(path, TOLD["here"]):
        return ""
    found = os.path.normpath(os.path.join(TOLD["here"], inside))
    return found if os.path.exists(found) else ""


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Probe(config))


class Probe:
    def __init__(self, config: pytest.Config) -> None:
        self.root, self.top = str(config.rootpath), top_of(str(config.rootpath))
        self.fd = os.open(REPORT, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self.worker: dict[str, Any] | None = getattr(config, "workerinput", None)
        """Of pytest-xdist: it runs tests, and another process hears how they end."""
        self.begun = _begun() if self.worker is None else set(self.worker["muster_begun"])
        self.wanted = frozenset(TOLD["tests"])
        self.chosen = _chosen(config.args, os.path.realpath(self.root))
        self.room = TEXTS_MOST
        self.spent: dict[str, float] = {}
        self.ranges: dict[str, list[tuple[str, int, int]]] = {}
        if self.wanted:
            # Only now: which configuration and which conftest files count is decided as for a run of all tests.
            files = sorted({os.path.join(self.root, test.split("::")[0]) for test in self.wanted})
            config.args = [file for file in files if os.path.exists(file)]
        if self.worker is None:
            os.write(self.fd, b"\n")
            self.write("session", version=VERSION, top=self.top)

    def write(self, kind: str, **fields: Any) -> None:
        line = json.dumps({"k": kind, **fields}, ensure_ascii=True, separators=(",", ":"))
        os.write(self.fd, line.encode() + b"\n")

    def cut(self, text: str) -> str:
        most = min(TEXT_MOST, max(self.room, 400))
        if len(text) > most:
            text = text[: most // 4] + "\n…\n" + text[-(most - most // 4) :]
        self.room -= len(text)
        return text

    # What there is

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        kept = [item for item in items if item.nodeid not in self.begun and self.is_wanted(item)]
        if len(kept) < len(items):
            chosen = set(map(id, kept))
            config.hook.pytest_deselected(items=[item for item in items if id(item) not in chosen])
            items[:] = kept

    def is_wanted(self, item: pytest.Item) -> bool:
        """It, its function, its class or its file was asked for, and is not beside the tests of its file that the user named."""
        parts = function_of(item).split("::")
        names = {item.nodeid, *("::".join(parts[:count]) for count in range(1, len(parts) + 1))}
        chosen = self.chosen.get(parts[0], names)
        if parts[0] in TOLD["without"]:
            return False
        return not names.isdisjoint(self.wanted or names) and not names.isdisjoint(chosen)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        if self.worker is None or self.worker.get("workerid") == "gw0":
            for item in session.items:
                self.write("item", **self.facts(item))

    def facts(self, item: pytest.Item) -> dict[str, Any]:
        function = function_of(item)
        name = function.split("::")[-1]
        file, line, _ = item.location
        path = os.path.normpath(os.path.join(self.root, file))
        if path not in self.ranges:
            self.ranges[path] = _ranges(path)
        number = (line or 0) + 1
        first, last = next(
            ((first, last) for one, first, last in self.ranges[path] if one == name and first <= number <= last),
            (number, number),
        )
        marks = {mark.name for mark in item.iter_markers()} & {"skip", "skipif", "xfail"}
        return {
            "id": item.nodeid,
            "function": function,
            "file": below(path, self.top).replace(os.sep, "/") or path,
            "line": first,
            "end": last,
            "class": getattr(getattr(item, "cls", None), "__name__", ""),
            "marks": sorted(marks),
        }

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed and self.worker is None:
            self.write("error", id=report.nodeid, text=self.cut(_text(report)))

    # What becomes of it

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        if self.worker is None:
            self.write("start", id=nodeid)

    # Each phase has the time for itself: pytest takes a clock away that was set before a failure.

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        self.watch()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_call(self) -> None:
        self.watch()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self) -> None:
        self.watch()

    def watch(self) -> None:
        if TOLD["seconds"]:
            faulthandler.dump_traceback_later(TOLD["seconds"], exit=True, file=self.fd)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if self.worker is not None:
            return
        self.spent[report.nodeid] = self.spent.get(report.nodeid, 0.0) + report.duration
        if report.when == "call" or report.outcome != "passed":
            self.write(
                "report",
                id=report.nodeid,
                when=report.when,
                outcome=report.outcome,
                xfail=hasattr(report, "wasxfail"),
                crash=self.crash(report),
                text=self.cut(_text(report)),
            )

    def crash(self, report: pytest.TestReport) -> list[Any] | None:
        """Where it was raised and what it said, when it is a failure that says so."""
        found = getattr(report.longrepr, "reprcrash", None)
        if found is None or report.outcome != "failed":
            return None
        path = os.path.join(self.root, found.path)
        return [below(path, self.top).replace(os.sep, "/") or path, found.lineno, self.cut(str(found.message)[:2000])]

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        faulthandler.cancel_dump_traceback_later()
        if self.worker is None:
            self.write("finish", id=nodeid, seconds=round(self.spent.pop(nodeid, 0.0), 3))

    def pytest_keyboard_interrupt(self) -> None:
        faulthandler.cancel_dump_traceback_later()

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if self.worker is not None:
            return
        files = {str(getattr(module, "__file__", "")) for module in list(sys.modules.values())}
        outside = sorted(file for file in files if file.startswith(TOLD["source"] + os.sep) and counterpart(file))
        self.write("end", status=int(exitstatus), outside=outside[:5])
        if exitstatus in (0, 1, 5):
            with open(ENDED, "w"):
                pass

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput["muster_begun"] = sorted(self.begun)


def function_of(item: pytest.Item) -> str:
    """Its id without parameters."""
    given = getattr(getattr(item, "callspec", None), "id", None)
    tail = f"[{given}]"
    return item.nodeid[: -len(tail)] if given is not None and item.nodeid.endswith(tail) else item.nodeid


def _chosen(args: list[str], root: str) -> dict[str, set[str]]:
    """The tests that the user named by id, by file; without files that were named as a whole, or by a folder around them."""
    whole = [os.path.realpath(arg) for arg in args if "::" not in arg]
    found: dict[str, set[str]] = {}
    for arg in args:
        path, _, inside = arg.partition("::")
        if inside and not any(below(path, top) for top in whole):
            file = below(path, root).replace(os.sep, "/")
            found.setdefault(file, set()).add(f"{file}::{inside}")
    return found


def _text(report: Any) -> str:
    try:
        if hasattr(report, "wasxfail"):
            return str(report.wasxfail)
        if report.outcome == "skipped" and isinstance(report.longrepr, tuple):
            return str(report.longrepr[2])
        return str(report.longreprtext)
    except Exception as error:  # the repr of anything may be called for it
        return f"it cannot be shown: {type(error).__name__}"


def _ranges(path: str) -> list[tuple[str, int, int]]:
    """The functions of a file with their first line, decorators included, and their last one."""
    try:
        with open(path, "rb") as file:
            tree = ast.parse(file.read())
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return []
    return [
        (node.name, min([node.lineno, *(mark.lineno for mark in node.decorator_list)]), node.end_lineno or node.lineno)
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]


def _begun() -> set[str]:
    """The tests that an interpreter before this one began with."""
    found = set()
    try:
        with open(REPORT, encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith('{"k":"start"'):
                    try:
                        found.add(str(json.loads(line)["id"]))
                    except ValueError:
                        continue
    except OSError:
        pass
    return found
