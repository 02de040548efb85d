"""A pytest plugin that reports what is collected and how each test ends: one JSON object a line, each in one write.

Its source is sent to the host where pytest runs, with a call of `begin` appended, and loaded there by `-p`. muster is not installed
there, so it uses only the standard library and pytest, and works with Python 3.8. Lines that are not JSON are the stack dumps of
faulthandler for tests that hang.
"""

from __future__ import annotations

import ast
import base64
import faulthandler
import importlib.machinery
import json
import os
import re
import sys
import zlib
from typing import Any
from urllib.parse import urlparse
from urllib.request import url2pathname

import pytest

VERSION = 1
TEXT_MOST = 20_000
#: Characters of all texts together. Later texts are cut short.
TEXTS_MOST = 16 << 20
HERE = os.path.dirname(os.path.abspath(__file__))
REPORT = os.path.join(os.path.dirname(HERE), "artifacts", "report.jsonl")
#: This file exists once all tests were reached. An interpreter that ends before is started again for the other tests.
ENDED = os.path.join(HERE, "ended")
SETTINGS: dict[str, Any] = {"tests": [], "without": [], "seconds": 0.0, "source": "", "here": ""}
#: Folders without packages of the project.
NO_PACKAGES = frozenset({"node_modules", "site-packages", "dist-packages", "build", "dist", "__pycache__"})
#: Depth below the top to which packages are searched, how many, and how many files of one are compared.
DEPTH, PACKAGES_MOST, FILES_MOST = 4, 1000, 5000


class Imports:
    """The folders of the checkout that must come first on sys.path, so that tests import its code and no installed copy."""

    def __init__(self) -> None:
        self.roots: list[str] = []
        self.redirected: dict[str, str] = {}
        """The project's packages that are also installed: dotted name and path in the checkout."""
        self.unbuilt: list[str] = []
        """Files that the installed packages have and the checkout lacks, because they are built or generated."""

    def find(self) -> None:
        outer = [path for path in sys.path if path and not own(path)]
        others: list[str] | None = None
        for root, name, path in packages(SETTINGS["here"]):
            origin = located(name, outer)
            if not origin or own(origin):
                continue
            if not from_source(origin):
                others = installed() if others is None else others
                if os.path.realpath(origin) not in others:
                    continue
            self.redirected[name] = path
            self.add(root)
            self.unbuilt += missing(origin, path)

    def add(self, root: str) -> None:
        if root not in self.roots:
            self.roots.append(root)

    def strays(self) -> list[str]:
        """Return files of the project's modules that were imported from outside the checkout in spite of this."""
        found = []
        for name in self.redirected:
            file = getattr(sys.modules.get(name), "__file__", None)
            if file and not own(file):
                found.append(str(file))
        return found


IMPORTS = Imports()


def begin(packed: str) -> None:
    SETTINGS.update(json.loads(zlib.decompress(base64.b64decode(packed))))
    SETTINGS["here"] = top_of(os.getcwd())
    SETTINGS["source"] = top_of(SETTINGS["source"]) if SETTINGS["source"] else SETTINGS["here"]
    # Packages installed from the user's folder must be imported from here, also by programs that tests start.
    IMPORTS.find()
    moved = {path: counterpart(path) for path in sys.path}
    sys.path[:] = [moved[path] or path for path in sys.path]
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    paths = [counterpart(path) or path for path in given if path]
    # The interpreter's own first entry and the folder of this file stay first.
    sys.path[1:1] = [root for root in IMPORTS.roots if root not in sys.path]
    for path in moved.values():
        if path:
            IMPORTS.add(path)
    paths[1:1] = [root for root in IMPORTS.roots if root not in paths]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)


def packages(top: str) -> list[tuple[str, str, str]]:
    """Return the packages and modules of a checkout: the folder for sys.path, the dotted name, and the path.

    A package in folders that are no packages may belong to a namespace, so it has several names.
    """
    found: list[tuple[str, str, str]] = []
    for folder, names, files in os.walk(top):
        inside = os.path.relpath(folder, top)
        parts = [] if inside == "." else inside.split(os.sep)
        if "__init__.py" in files and parts:
            names[:] = []
            for start in range(len(parts) - 1, max(len(parts) - 4, -1), -1):
                if all(part.isidentifier() for part in parts[start:]):
                    found.append((os.path.join(top, *parts[:start]), ".".join(parts[start:]), folder))
        else:
            modules = [name[:-3] for name in files if name.endswith(".py") and name[:-3].isidentifier()]
            found += [(folder, name, os.path.join(folder, f"{name}.py")) for name in sorted(modules)]
        names[:] = sorted(
            name
            for name in names
            if len(parts) < DEPTH
            and not name.startswith(".")
            and name not in NO_PACKAGES
            and not os.path.exists(os.path.join(folder, name, "pyvenv.cfg"))
        )
        if len(found) > PACKAGES_MOST:
            break
    return found


def located(name: str, paths: list[str]) -> str:
    """Return the file or folder that importing this name would load from these paths, or an empty string. Imports nothing."""
    spec, at, whole = None, list(paths), ""
    for part in name.split("."):
        whole = f"{whole}.{part}" if whole else part
        try:
            spec = importlib.machinery.PathFinder.find_spec(whole, at)
            for finder in () if spec or whole != part else sys.meta_path:
                kind = finder if isinstance(finder, type) else type(finder)
                if kind.__module__.split(".")[0] not in ("_frozen_importlib", "_frozen_importlib_external", "_pytest"):
                    spec = spec or finder.find_spec(whole, None)
        except Exception:  # finders of other projects may raise anything
            return ""
        if spec is None:
            return ""
        at = [path for path in spec.submodule_search_locations or () if not own(path)]
    return str(spec.origin) if spec and spec.has_location and spec.origin else ""


def own(path: str) -> bool:
    """Return whether a path is in the checkout and not an installed copy there."""
    inside = below(path, SETTINGS["here"])
    return bool(inside) and not {"site-packages", "dist-packages"} & set(inside.split(os.sep))


def from_source(path: str) -> bool:
    """Return whether a path is in the user's folder and not an installed copy there."""
    inside = below(path, SETTINGS["source"]) if SETTINGS["source"] != SETTINGS["here"] else ""
    return bool(inside) and not {"site-packages", "dist-packages"} & set(inside.split(os.sep))


def installed() -> list[str]:
    """Return the files that were installed from the user's folder, or by a distribution named like a project in the checkout."""
    try:
        from importlib import metadata
    except ImportError:
        return []
    names, found = project_names(SETTINGS["here"]), []
    for distribution in metadata.distributions():
        try:
            url = json.loads(distribution.read_text("direct_url.json") or "{}").get("url", "")
            folder = url2pathname(urlparse(url).path) if url.startswith("file:") else ""
            if plain(distribution.metadata["Name"]) in names or (folder and from_source(os.path.join(folder, "x"))):
                found += [os.path.realpath(str(distribution.locate_file(file))) for file in distribution.files or ()]
        except Exception:  # a broken installation of something else
            continue
    return found


def project_names(top: str) -> set[str]:
    """Return the names of the projects in a checkout, as far as their files can be read without running them."""
    found = set()
    for folder, names, files in os.walk(top):
        names[:] = [name for name in names if not name.startswith(".") and name not in NO_PACKAGES]
        if os.path.relpath(folder, top).count(os.sep) >= 2:
            names[:] = []
        for name in {"pyproject.toml", "setup.cfg", "setup.py"} & set(files):
            try:
                with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
                    text = file.read(1 << 20)
            except OSError:
                continue
            found |= {plain(one) for one in re.findall(r"(?m)^\s*name\s*=\s*[\"']?([A-Za-z0-9._-]+)", text)}
            found |= {plain(one) for one in re.findall(r"\(\s*name\s*=\s*[\"']([A-Za-z0-9._-]+)", text)}
    return found


def plain(name: object) -> str:
    return re.sub(r"[-_.]+", "-", str(name)).lower()


def missing(origin: str, path: str) -> list[str]:
    """Return the modules of an installed package that the checkout lacks, relative to its top."""
    found: list[str] = []
    if os.path.isdir(path):
        there, seen = os.path.dirname(origin), 0
        for folder, names, files in os.walk(there):
            names[:] = [name for name in names if name != "__pycache__"]
            seen += len(files)
            if seen > FILES_MOST:
                break
            for file in files:
                inside = os.path.relpath(os.path.join(folder, file), there)
                if file.endswith((".py", ".so", ".pyd")) and not os.path.exists(os.path.join(path, inside)):
                    found.append(os.path.relpath(os.path.join(path, inside), SETTINGS["here"]))
    return found


def top_of(folder: str) -> str:
    """Return the top of the repository around a folder, or the folder itself."""
    top = folder = os.path.realpath(folder)
    while not os.path.exists(os.path.join(top, ".git")):
        if os.path.dirname(top) == top:
            return folder
        top = os.path.dirname(top)
    return top


def below(path: str, top: str) -> str:
    """Return the path relative to `top`; empty if it is not inside."""
    path = os.path.relpath(os.path.realpath(path), top)
    return "" if path.split(os.sep)[0] == ".." else path


def counterpart(path: str) -> str:
    """Return the path in the checkout that corresponds to one in the user's folder; empty if there is none."""
    if not path or "site-packages" in path or below(path, os.path.realpath(sys.prefix)):
        return ""
    inside = below(path, SETTINGS["source"])
    if not inside or below(path, SETTINGS["here"]):
        return ""
    found = os.path.normpath(os.path.join(SETTINGS["here"], inside))
    return found if os.path.exists(found) else ""


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Probe(config))


class Probe:
    def __init__(self, config: pytest.Config) -> None:
        self.root, self.top = str(config.rootpath), top_of(str(config.rootpath))
        self.fd = os.open(REPORT, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self.worker: dict[str, Any] | None = getattr(config, "workerinput", None)
        """Set in a worker of pytest-xdist. It runs tests; the controller reports how they end."""
        self.begun = _begun() if self.worker is None else set(self.worker["muster_begun"])
        self.wanted = frozenset(SETTINGS["tests"])
        self.chosen = _chosen(config.args, os.path.realpath(self.root))
        self.room = TEXTS_MOST
        self.spent: dict[str, float] = {}
        self.ranges: dict[str, list[tuple[str, int, int]]] = {}
        if self.wanted:
            # Changed only now, so that pytest finds the same configuration and conftest files as for a run of all tests.
            files = sorted({os.path.join(self.root, test.split("::")[0]) for test in self.wanted})
            config.args = [file for file in files if os.path.exists(file)]
        if self.worker is None:
            os.write(self.fd, b"\n")
            roots = [os.path.relpath(root, SETTINGS["here"]).replace(os.sep, "/") for root in IMPORTS.roots]
            self.write("session", version=VERSION, top=self.top, roots=roots, unbuilt=IMPORTS.unbuilt[:5])

    def write(self, kind: str, **fields: Any) -> None:
        line = json.dumps({"k": kind, **fields}, ensure_ascii=True, separators=(",", ":"))
        os.write(self.fd, line.encode() + b"\n")

    def cut(self, text: str) -> str:
        most = min(TEXT_MOST, max(self.room, 400))
        if len(text) > most:
            text = text[: most // 4] + "\n…\n" + text[-(most - most // 4) :]
        self.room -= len(text)
        return text

    # Collection

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        kept = [item for item in items if item.nodeid not in self.begun and self.is_wanted(item)]
        if len(kept) < len(items):
            chosen = set(map(id, kept))
            config.hook.pytest_deselected(items=[item for item in items if id(item) not in chosen])
            items[:] = kept

    def is_wanted(self, item: pytest.Item) -> bool:
        """Return whether the test, its function, class or file was asked for, and the user's own arguments do not exclude it."""
        parts = function_of(item).split("::")
        names = {item.nodeid, *("::".join(parts[:count]) for count in range(1, len(parts) + 1))}
        chosen = self.chosen.get(parts[0], names)
        if parts[0] in SETTINGS["without"]:
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

    # Outcomes

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        if self.worker is None:
            self.write("start", id=nodeid)

    # Each phase has its own timeout. pytest cancels one that was set before a failure.

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
        if SETTINGS["seconds"]:
            faulthandler.dump_traceback_later(SETTINGS["seconds"], exit=True, file=self.fd)

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
        """Return where a failure was raised and its message, if pytest knows them."""
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
        outside = {file for file in files if file.startswith(SETTINGS["source"] + os.sep) and counterpart(file)}
        self.write("end", status=int(exitstatus), outside=sorted(outside.union(IMPORTS.strays()))[:5])
        if exitstatus in (0, 1, 5):
            with open(ENDED, "w"):
                pass

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput["muster_begun"] = sorted(self.begun)


def function_of(item: pytest.Item) -> str:
    """Return a test's id without parameters."""
    given = getattr(getattr(item, "callspec", None), "id", None)
    tail = f"[{given}]"
    return item.nodeid[: -len(tail)] if given is not None and item.nodeid.endswith(tail) else item.nodeid


def _chosen(args: list[str], root: str) -> dict[str, set[str]]:
    """Return the tests that the user named by id, for each file that was not also named as a whole or by its folder."""
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
    except Exception as error:  # it may call the repr of any object
        return f"cannot be shown: {type(error).__name__}"


def _ranges(path: str) -> list[tuple[str, int, int]]:
    """Return the functions of a file with their first line (decorators included) and last line."""
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
    """Return the tests that an earlier interpreter has started."""
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
