"""What one run of pytest reported: the lines that the probe wrote, as values.

The lines were written next to code of agents, so they are hostile input: every field is checked and cut, and nothing raises.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from ...cast import strip

OUTCOMES = ("passed", "failed", "error", "skipped", "xfailed", "hung", "missing")
BAD = frozenset({"failed", "error", "hung"})
#: From worst to best, for tests that count as one.
SEVERITY = ("hung", "error", "failed", "passed", "xfailed", "skipped", "missing")
ID_MOST = 4096
TEXT_MOST = 21_000
#: Folders of a checkout that are put first on sys.path.
ROOTS_MOST = 50


class Item(NamedTuple):
    """A collected test. Its file is relative to the top of the repository, its id to pytest's root folder."""

    id: str
    function: str
    """The id without parameters."""
    file: str
    line: int
    end: int
    cls: str = ""
    marks: tuple[str, ...] = ()


class Crash(NamedTuple):
    """Where a failure was raised, and its message."""

    file: str
    line: int
    message: str


class Case(NamedTuple):
    """How one test ended."""

    id: str
    outcome: str
    seconds: float = 0.0
    text: str = ""
    """Why it failed or did not run."""
    crash: Crash | None = None


class Report(NamedTuple):
    items: dict[str, Item] = {}
    """The collected tests, by id."""
    cases: dict[str, Case] = {}
    """The tests that were started, by id."""
    errors: dict[str, str] = {}
    """The files that could not be collected, with the reason."""
    status: int | None = None
    """pytest's exit status; None if pytest did not finish. 5 means that no test was selected."""
    outside: tuple[str, ...] = ()
    """Files of the project's modules that were imported from somewhere else than the checkout."""
    roots: tuple[str, ...] = ()
    """Folders of the checkout that must come first on sys.path, because packages in them are also installed elsewhere."""
    unbuilt: tuple[str, ...] = ()
    """Some files that the installed packages have and the checkout lacks."""
    commit: str = ""
    command: str = ""
    """The command line, as one would type it."""
    agent: str = ""
    place: str = ""
    exit_code: int | None = None
    timed_out: bool = False
    """The time for all tests was up."""
    screen: str = ""
    """The end of the terminal's output, if pytest did not run as it should."""
    began: float = 0.0
    seconds: float = 0.0

    def outcome(self, id: str) -> str:
        return self.cases[id].outcome if id in self.cases else "missing"

    def merge_parameters(self, functions: frozenset[str]) -> Report:
        """Return the same report with all tests of each of these functions as one test, as bad as the worst of them."""
        if not functions:
            return self
        cases: dict[str, Case] = {}
        for case in self.cases.values():
            id = name if (name := function_of(case.id)) in functions else case.id
            if id not in cases or SEVERITY.index(case.outcome) < SEVERITY.index(cases[id].outcome):
                cases[id] = case._replace(id=id)
        items = {item.function if item.function in functions else id: item for id, item in self.items.items()}
        return self._replace(items=items, cases=cases)


def is_of(id: str, function: str) -> bool:
    """Return whether a test is the function itself or the function with parameters."""
    return id == function or id.startswith(f"{function}[")


def function_of(id: str) -> str:
    """Return a test's id without parameters."""
    file, colons, name = id.partition("::")
    return f"{file}{colons}{name.partition('[')[0]}"


def read(raw: bytes, timed_out: bool = False) -> Report:
    """Return the report in these bytes, which may end anywhere. With `timed_out`, the tests that were running then count as hung."""
    reader = _Reader()
    for line in raw.split(b"\n"):
        reader.line(line)
    reader.interpreter_ended(timed_out)
    return reader.report()


class _Reader:
    def __init__(self) -> None:
        self.items: dict[str, Item] = {}
        self.cases: dict[str, Case] = {}
        self.errors: dict[str, str] = {}
        self.phases: dict[str, list[dict[str, Any]]] = {}
        self.running: dict[str, None] = {}
        self.dump: list[str] = []
        self.top = ""
        self.status: int | None = None
        self.outside: tuple[str, ...] = ()
        self.roots: tuple[str, ...] = ()
        self.unbuilt: tuple[str, ...] = ()

    def line(self, line: bytes) -> None:
        try:
            entry = json.loads(line) if line.startswith(b"{") else None
        except (ValueError, RecursionError):
            return
        if not isinstance(entry, dict):
            if self.dump or line.startswith(b"Timeout ("):
                self.dump.append(line[:1000].decode("utf-8", "replace"))
            return
        kind, id = entry.get("k"), _text(entry, "id", ID_MOST)
        if kind == "session":
            self.interpreter_ended(False)
            self.top = _text(entry, "top", ID_MOST)
            self.roots = tuple(root for root in _list(entry, "roots")[:ROOTS_MOST] if _is_root(root))
            self.unbuilt = tuple(strip(str(file))[:ID_MOST] for file in _list(entry, "unbuilt")[:5])
        elif kind == "item" and id:
            self.items[id] = _item(entry, id)
        elif kind == "error":
            self.errors[strip(id)] = strip(_text(entry, "text"))
        elif kind == "start" and id:
            self.running[id] = None
        elif kind == "report" and id:
            self.phases.setdefault(id, []).append(entry)
        elif kind == "finish" and id in self.running:
            del self.running[id]
            self.cases[id] = _case(id, self.phases.pop(id, []), entry)
        elif kind == "end":
            self.status = int(_number(entry, "status"))
            self.outside = tuple(strip(str(file)) for file in _list(entry, "outside")[:5])

    def interpreter_ended(self, timed_out: bool) -> None:
        """Settle the tests that were running: they hang, or they ended the interpreter."""
        dump = "\n".join(self.dump[:100])
        # With several processes other tests were running too; the stack dump names the one that hangs.
        named = [id for id in self.running if f" in {id.split('::')[-1].partition('[')[0]}\n" in f"{dump}\n"]
        for id in self.running:
            if timed_out or (dump and id in (named or self.running)):
                text = dump or "the time for all tests was up while this one ran"
                self.cases[id] = Case(id, "hung", text=text[:TEXT_MOST], crash=_hang(self.dump, self.top))
            else:
                self.cases[id] = Case(id, "error", text="pytest ended while this test ran")
        self.running, self.dump, self.status = {}, [], None if self.running else self.status

    def report(self) -> Report:
        return Report(self.items, self.cases, self.errors, self.status, self.outside, self.roots, self.unbuilt)


def _case(id: str, phases: Sequence[dict[str, Any]], finish: dict[str, Any]) -> Case:
    """Return how a test ended, from the reports of its phases. A subtest that failed makes the whole test fail."""
    failed = [phase for phase in phases if phase.get("outcome") == "failed"]
    called = [phase for phase in phases if phase.get("outcome") == "passed" and phase.get("when") == "call"]
    skipped = [phase for phase in phases if phase.get("outcome") == "skipped"]
    decisive = failed or called or skipped
    if failed:
        outcome = "failed" if failed[0].get("when") == "call" else "error"
    elif called:
        outcome = "passed"
    elif skipped:
        outcome = "xfailed" if skipped[0].get("xfail") is True else "skipped"
    else:
        outcome = "missing"
    text = strip(_text(decisive[0], "text")) if decisive else ""
    return Case(id, outcome, _number(finish, "seconds"), text, _crash(failed[0]) if failed else None)


def _crash(entry: dict[str, Any]) -> Crash | None:
    fields = _list(entry, "crash")
    if len(fields) != 3 or not isinstance(fields[0], str) or not isinstance(fields[2], str):
        return None
    return Crash(strip(fields[0])[:ID_MOST], _whole(fields[1]), strip(fields[2])[:4000])


def _hang(dump: Sequence[str], top: str) -> Crash | None:
    """Return where a test hangs: the innermost frame of the main thread that is in the project, or the innermost of all.

    faulthandler writes the main thread last.
    """
    frames: list[Crash] = []
    for line in dump:
        if line.startswith(("Thread ", "Current thread ")):
            frames = []
        elif line.startswith('  File "') and '", line ' in line:
            file, _, rest = line[8:].rpartition('", line ')
            number, _, name = rest.partition(" in ")
            frames.append(Crash(file, _whole(int(number) if number.isdigit() and len(number) < 9 else 0), name))
    own = [frame for frame in frames if top and frame.file.startswith(f"{top}/")]
    if not frames:
        return None
    frame = (own or frames)[0]
    return Crash(frame.file.removeprefix(f"{top}/"), frame.line, f"it hangs in {strip(frame.message)[:200]}")


def _is_root(value: object) -> bool:
    """Return whether a value can be a folder below the top. Agents get it on their PYTHONPATH."""
    return (
        isinstance(value, str)
        and 0 < len(value) <= ID_MOST
        and value.isprintable()
        and not value.startswith("/")
        and ":" not in value
        and ".." not in value.split("/")
    )


def _item(entry: dict[str, Any], id: str) -> Item:
    marks = tuple(str(mark)[:20] for mark in _list(entry, "marks")[:3])
    function, file = _text(entry, "function", ID_MOST), _text(entry, "file", ID_MOST)
    lines = _whole(entry.get("line")), _whole(entry.get("end"))
    return Item(id, function or id, file, *lines, _text(entry, "class", 255), marks)


def _text(entry: dict[str, Any], key: str, most: int = TEXT_MOST) -> str:
    value = entry.get(key)
    return value[:most] if isinstance(value, str) else ""


def _list(entry: dict[str, Any], key: str) -> list[Any]:
    value = entry.get(key)
    return value if isinstance(value, list) else []


def _number(entry: dict[str, Any], key: str) -> float:
    value = entry.get(key)
    return float(value) if isinstance(value, int | float) and 0 <= value < 1e9 else 0.0


def _whole(value: object) -> int:
    return value if isinstance(value, int) and 0 <= value < 10**9 else 0
