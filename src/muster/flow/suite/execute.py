"""Tests of the project, run in a clean checkout of a commit by an agent of type `command`, and what became of each of them.

Code that agents wrote runs only there, with the isolation that an agent has at that place. An agent inherits all that the user has exported
(on another host: what a login has); of that tests see only what sh/execute.sh names. The home folder is the user's: where there is no
isolation that keeps secrets from tests that look for them, and not from code that hunts for them.
What comes back was written beside that code, and is hostile input like all that agents write.
"""

from __future__ import annotations

import base64
import json
import os
import shlex
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ... import Address, Fleet, Spec
from ...cast import strip
from ...errors import MusterError, TimedOut, Unreachable, UsageError
from ..run import artifacts

if TYPE_CHECKING:
    from ...host import Found
    from ...model import Status

HERE = os.path.dirname(__file__)
PYTEST = ("python3", "-m", "pytest")
OUTCOMES = ("passed", "failed", "error", "skipped", "xfailed", "hung", "missing")
BAD = frozenset({"failed", "error", "hung"})
OVER = frozenset({"done", "failed", "stopped", "lost"})
#: What tests that count as one are together.
WORST = ("hung", "error", "failed", "passed", "xfailed", "skipped", "missing")
ROLE = "trial"
#: No report is read further. The probe keeps below, whatever the tests say.
REPORT_MOST = 128 << 20
#: The message of an agent holds 100 KB, of which the plugin takes a part.
TESTS_MOST = 70_000
ID_MOST = 4096
#: Tests of one run that are kept as evidence; no file of tests has as many.
EVIDENCE_MOST = 2000
TEXT_MOST = 21_000
#: Folders of a checkout that come first on sys.path.
ROOTS_MOST = 50
#: A host that does not answer may come back; after so long it is believed to be gone.
PATIENCE = 600.0
#: The agent's own wrapper keeps the time. It has so long to end what was running.
GRACE = 120.0
#: Trials at one place. Tests wait more than they compute.
AT_ONCE = 4
#: So often a test that stands beside a change is run without it, before the change is blamed.
WAVERS = 6


class Where(NamedTuple):
    """The tests of a project, and the place where they are run."""

    run: str
    """Its name is the label by which left-overs are found."""
    place: str = ""
    """A host, as behind `@`; empty is this machine."""
    source: str = ""
    """The user's folder; pytest is run in its counterpart. Empty is the fleet's own."""
    pytest: tuple[str, ...] = PYTEST
    args: tuple[str, ...] = ()
    """More words for pytest, the user's."""
    keep: tuple[str, ...] = ()
    """Names of variables that the tests see beyond the usual ones."""
    mode: str = "mirror"
    """Of the work dir: a clone of its own leaves nothing in the user's repository."""
    seconds: float = 300.0
    """After so long the setup, the call or the teardown of one test hangs."""
    timeout: float = 3600.0
    """After so long one agent has run tests for long enough."""
    varying: frozenset[str] = frozenset()
    """Functions whose parameters are made anew each time: their tests count as one, by the name of the function."""
    roots: tuple[str, ...] = ()
    """Folders of a checkout that come first on the PYTHONPATH of `command`; the probe finds them itself."""


class Item(NamedTuple):
    """A test as it was collected; the paths begin at the top of the repository, ids where pytest begins."""

    id: str
    function: str
    """The id without parameters."""
    file: str
    line: int
    end: int
    cls: str = ""
    marks: tuple[str, ...] = ()


class Crash(NamedTuple):
    """Where a failure was raised, and what it said."""

    file: str
    line: int
    message: str


class Case(NamedTuple):
    """What became of one test."""

    id: str
    outcome: str
    seconds: float = 0.0
    text: str = ""
    """Why it failed or did not run."""
    crash: Crash | None = None


class Report(NamedTuple):
    items: dict[str, Item] = {}
    """What was to be run, by id."""
    cases: dict[str, Case] = {}
    """What was begun, by id."""
    errors: dict[str, str] = {}
    """What could not be collected, with the reason."""
    status: int | None = None
    """pytest's own; None when it did not come to its end. 5 is that no test was left."""
    outside: tuple[str, ...] = ()
    """Modules of the project that were imported from elsewhere and not from the checkout."""
    roots: tuple[str, ...] = ()
    """Folders of the checkout, from its top, that come first on sys.path: packages in them are installed elsewhere too."""
    unbuilt: tuple[str, ...] = ()
    """Some files that the installed packages have and the checkout lacks."""
    commit: str = ""
    command: str = ""
    """As one would type it."""
    agent: str = ""
    place: str = ""
    exit_code: int | None = None
    late: bool = False
    """The time was up."""
    screen: str = ""
    """What the terminal showed last, where pytest did not run as it should."""
    began: float = 0.0
    seconds: float = 0.0

    def outcome(self, id: str) -> str:
        return self.cases[id].outcome if id in self.cases else "missing"

    def settled(self, varying: frozenset[str]) -> Report:
        """The same, with the tests of each of these functions as one: as bad as the worst of them."""
        if not varying:
            return self
        cases: dict[str, Case] = {}
        for case in self.cases.values():
            id = name if (name := function_of(case.id)) in varying else case.id
            if id not in cases or WORST.index(case.outcome) < WORST.index(cases[id].outcome):
                cases[id] = case._replace(id=id)
        items = {item.function if item.function in varying else id: item for id, item in self.items.items()}
        return self._replace(items=items, cases=cases)


class Verified(NamedTuple):
    ok: bool
    words: str
    """Why, or why not."""
    evidence: list[dict[str, Any]]
    """Every run that was made for it, for JSON."""
    fixed: tuple[str, ...] = ()
    """With `check_change`, the tests that failed before and pass now."""


# Running


def usual_pytest(*folders: str) -> tuple[str, ...]:
    """Return the command for pytest where none is configured.

    In an activated environment that is its `python3`. Otherwise it is the `.venv` or `venv` of the first of these folders (the project, the
    top of its repository; empty if the tests run on another host) that has pytest, and without one the system's `python3`.
    """
    if not (os.environ.get("VIRTUAL_ENV") or os.environ.get("CONDA_PREFIX")):
        for folder in folders if all(folders) else ():
            for name in (".venv", "venv"):
                program = Path(folder, name, "bin", "python")
                if os.access(program, os.X_OK) and any(program.parents[1].glob("lib/python3*/site-packages/pytest")):
                    return (str(program), *PYTEST[1:])
    return PYTEST


def run(
    fleet: Fleet,
    where: Where,
    commit: str,
    tests: Sequence[str] = (),
    *,
    without: Sequence[str] = (),
    timeout: float = 0.0,
    collect: bool = False,
) -> Report:
    """Run tests (ids, or functions, classes and files by theirs; none is all but the files `without`) once; with `collect` find them only.

    MusterError when the agent cannot be made or is ended by somebody else, Unreachable when its host is gone. Whatever happens, the agent
    is gone afterwards, unless its host or this process is. Without a `timeout` it is that of the place.
    """
    if where.mode not in ("mirror", "worktree"):
        raise UsageError(f"mode {where.mode!r} is no clean checkout", "tests are run in mode mirror or worktree")
    began, timeout = time.time(), timeout or where.timeout
    one = fleet.create(_spec(fleet, where, commit, tests, without, timeout, collect))
    address = str(one.status.address)
    try:
        status = _wait(fleet, one, timeout)
        if status.state in ("stopped", "lost"):
            raise MusterError(f"{address} was {status.state} before its tests ended", "try again")
        seen = read(_fetch(fleet, one), late=status.reason == "timeout")
        well = seen.status in (0, 1, 2) and (seen.items or seen.errors)
        screen = "" if well else _screen(fleet, address)
    finally:
        _clear(fleet, one)
    return seen.settled(where.varying)._replace(
        commit=one.agent.base,
        command=shlex.join((*where.pytest, *where.args)),
        agent=address,
        place=where.place,
        exit_code=status.exit_code,
        late=status.reason == "timeout",
        screen=screen,
        began=began,
        seconds=round(time.time() - began, 3),
    )


def spread(
    fleet: Fleet,
    where: Where,
    commit: str,
    parts: Sequence[Sequence[str]],
    *,
    timeout: float = 0.0,
    check: Callable[[Report], None] = lambda report: None,
) -> Report:
    """All tests once, as one report: each part (files) by an agent of its own at the same time, and the last also what is in no part."""

    def one(part: Sequence[str], without: Sequence[str]) -> Report:
        report = run(fleet, where, commit, part, without=without, timeout=timeout)
        check(report)
        return report

    work = {str(number): partial(one, part, ()) for number, part in enumerate(parts[:-1])}
    work["rest"] = partial(one, (), [file for part in parts[:-1] for file in part])
    reports: list[Report] = [report for _, report in each(fleet, work, len(work))]
    # A part whose files are gone has no tests; where the last test ended the interpreter, the next one found nothing left.
    ran = [report for report in reports if report.status != 5 or report.cases] or reports
    return ran[0]._replace(
        items={id: item for report in ran for id, item in report.items.items()},
        cases={id: case for report in ran for id, case in report.cases.items()},
        errors={file: text for report in ran for file, text in report.errors.items()},
        status=None if any(report.status is None for report in ran) else max(report.status or 0 for report in ran),
        outside=tuple(dict.fromkeys(file for report in ran for file in report.outside)),
        roots=tuple(dict.fromkeys(root for report in ran for root in report.roots)),
        late=any(report.late for report in ran),
        screen=next((report.screen for report in ran if report.screen), ""),
        seconds=max(report.seconds for report in ran),
    )


def command(fleet: Fleet, where: Where, commit: str, words: Sequence[str], timeout: float = 0.0) -> tuple[int, str]:
    """Another command of the project's in a clean checkout, such as its linter: its exit code, and what it said last.

    It sees no more of the environment than tests do, and imports the code of the checkout as they do.
    """
    timeout = timeout or where.timeout
    paths = {"PYTHONPATH": where.roots} if where.roots else {}
    one = fleet.create(_checkout(where, commit, _shell("plain", where, words), timeout)._replace(paths=paths))
    try:
        status = _wait(fleet, one, timeout)
        return status.exit_code or (0 if status.state == "done" else 1), _screen(fleet, str(one.status.address))
    finally:
        _clear(fleet, one)


def each(fleet: Fleet, work: Mapping[str, Callable[[], Any]], limit: int) -> Iterator[tuple[str, Any]]:
    """All of it, some at once; what each came to, as it comes. MusterError when one could not be done, after the others."""
    crew = fleet.crew(limit)
    for key, call in work.items():
        crew.start(key, call)
    errors = []
    while crew.busy:
        for ended in crew.done(1.0):
            if ended.error is not None:
                errors.append(ended.error)
            else:
                yield ended.item, ended.value
    if errors:
        raise errors[0]


def sweep(fleet: Fleet, run: str) -> list[str]:
    """Remove the trials that a killed process left, on every host that answers; returns their addresses."""
    swept = []
    for status in fleet.survey().statuses:
        if (status.agent.labels.get("run"), status.agent.labels.get("role")) == (run, ROLE):
            try:
                fleet.destroy(fleet.get(str(status.address)))
            except MusterError:
                continue
            swept.append(str(status.address))
    return swept


def _spec(
    fleet: Fleet,
    where: Where,
    commit: str,
    tests: Sequence[str],
    without: Sequence[str],
    timeout: float,
    collect: bool,
) -> Spec:
    words = (*where.pytest, *where.args, *(("--collect-only", "-q") if collect else ()))
    message = _plugin(where, os.path.join(fleet.cwd, where.source), tests, without)
    return _checkout(where, commit, _shell("probe", where, words), timeout)._replace(message=message)


def _shell(how: str, where: Where, words: Sequence[str]) -> tuple[str, ...]:
    """The command in the environment that tests get."""
    with open(os.path.join(HERE, "sh", "execute.sh"), encoding="utf-8") as file:
        return ("sh", "-c", file.read(), "muster-trial", how, " ".join(where.keep), *words)


def _checkout(where: Where, commit: str, argv: tuple[str, ...], timeout: float) -> Spec:
    """An agent that runs a command in a clean checkout of a commit."""
    name = f"{where.run}-{ROLE}-{os.urandom(4).hex()}"
    return Spec(
        Address.parse(f"{name}@{where.place}" if where.place else name),
        "command",
        argv,
        source=where.source,
        branch=commit,
        mode=where.mode,
        clean=True,
        labels={"run": where.run, "role": ROLE},
        timeout=timeout,
    )


def _plugin(where: Where, source: str, tests: Sequence[str], without: Sequence[str]) -> str:
    """The probe with what it is told. Where the tests are too many to be named their files are, and else nothing: more is run then."""
    with open(os.path.join(HERE, "probe.py"), encoding="utf-8") as file:
        text = file.read()
    told = {"seconds": where.seconds, "source": "" if where.place else source}
    files = sorted({test.split("::")[0] for test in tests})
    for some, but in ((list(tests), list(without)), (files, list(without)), ([], [])):
        packed = base64.b64encode(zlib.compress(json.dumps({**told, "tests": some, "without": but}).encode())).decode()
        if len(packed) < TESTS_MOST:
            break
    return f'{text}\n\nbegin("{packed}")\n'


def _wait(fleet: Fleet, one: Found, timeout: float) -> Status:
    began = heard = time.monotonic()
    while True:
        now = time.monotonic()
        try:
            status = fleet.look(one)
            heard = now
            if status.state in OVER:
                return status
            if now - began > timeout + GRACE:
                address = one.status.address
                raise TimedOut(f"{address} goes on after its time was up", f"muster explain {address}")
        except Unreachable:
            if now - heard > PATIENCE:
                raise
        time.sleep(min(max((now - began) / 10, 0.05), 1.0))


def _fetch(fleet: Fleet, one: Found) -> bytes:
    with tempfile.TemporaryDirectory(prefix="muster-trial-") as folder:
        with fleet.artifacts(one, REPORT_MOST) as archive:
            artifacts.unpack(archive, Path(folder), REPORT_MOST)
        try:
            return (Path(folder) / "report.jsonl").read_bytes()
        except FileNotFoundError:
            return b""


def _screen(fleet: Fleet, address: str) -> str:
    try:
        return strip(fleet.screen(address, scrollback=True)[0]).strip()[-4000:]
    except MusterError:
        return ""


def _clear(fleet: Fleet, one: Found) -> None:
    """Remove the agent. Its work dir was a copy: it is emptied first, or the trash would keep it for a month."""
    assert one.agent.workdir.endswith(f"/work/{one.agent.id}"), "not a folder of ours"
    try:
        one.host.run(["find", one.agent.workdir, "-mindepth", "1", "-delete"], timeout=GRACE)
        fleet.destroy(one)
    except MusterError:
        pass  # it has its labels: `sweep` finds it


# Reading what the probe wrote


def read(raw: bytes, late: bool = False) -> Report:
    """The report in these bytes, up to where they were cut off. `late`: the time was up, so what was running then hangs."""
    reading = _Reading()
    for line in raw.split(b"\n"):
        reading.line(line)
    reading.ended(late)
    return reading.report()


class _Reading:
    def __init__(self) -> None:
        self.items: dict[str, Item] = {}
        self.cases: dict[str, Case] = {}
        self.errors: dict[str, str] = {}
        self.heard: dict[str, list[dict[str, Any]]] = {}
        self.running: dict[str, None] = {}
        self.dump: list[str] = []
        self.top = ""
        self.status: int | None = None
        self.outside: tuple[str, ...] = ()
        self.roots: tuple[str, ...] = ()
        self.unbuilt: tuple[str, ...] = ()

    def line(self, line: bytes) -> None:
        try:
            told = json.loads(line) if line.startswith(b"{") else None
        except (ValueError, RecursionError):
            return
        if not isinstance(told, dict):
            if self.dump or line.startswith(b"Timeout ("):
                self.dump.append(line[:1000].decode("utf-8", "replace"))
            return
        kind, id = told.get("k"), _word(told, "id", ID_MOST)
        if kind == "session":
            self.ended(False)
            self.top = _word(told, "top", ID_MOST)
            self.roots = tuple(root for root in _list(told, "roots")[:ROOTS_MOST] if _is_root(root))
            self.unbuilt = tuple(strip(str(file))[:ID_MOST] for file in _list(told, "unbuilt")[:5])
        elif kind == "item" and id:
            self.items[id] = _item(told, id)
        elif kind == "error":
            self.errors[strip(id)] = strip(_word(told, "text"))
        elif kind == "start" and id:
            self.running[id] = None
        elif kind == "report" and id:
            self.heard.setdefault(id, []).append(told)
        elif kind == "finish" and id in self.running:
            del self.running[id]
            self.cases[id] = _case(id, self.heard.pop(id, []), told)
        elif kind == "end":
            self.status = int(_number(told, "status"))
            self.outside = tuple(strip(str(file)) for file in _list(told, "outside")[:5])

    def ended(self, late: bool) -> None:
        """The interpreter is gone: what was running then did that, or hangs."""
        dump = "\n".join(self.dump[:100])
        # With several processes others were running too: the one that hangs is named in it.
        named = [id for id in self.running if f" in {id.split('::')[-1].partition('[')[0]}\n" in f"{dump}\n"]
        for id in self.running:
            if late or (dump and id in (named or self.running)):
                text = dump or "the time for all tests was up while it ran"
                self.cases[id] = Case(id, "hung", text=text[:TEXT_MOST], crash=_stuck(self.dump, self.top))
            else:
                self.cases[id] = Case(id, "error", text="pytest ended while it ran")
        self.running, self.dump, self.status = {}, [], None if self.running else self.status

    def report(self) -> Report:
        return Report(self.items, self.cases, self.errors, self.status, self.outside, self.roots, self.unbuilt)


def _case(id: str, heard: Sequence[dict[str, Any]], told: dict[str, Any]) -> Case:
    """From what was heard of its phases. A part of a test (a subtest) that failed makes it fail."""
    failed = [one for one in heard if one.get("outcome") == "failed"]
    called = [one for one in heard if one.get("outcome") == "passed" and one.get("when") == "call"]
    skipped = [one for one in heard if one.get("outcome") == "skipped"]
    counts = failed or called or skipped
    if failed:
        outcome = "failed" if counts[0].get("when") == "call" else "error"
    elif called:
        outcome = "passed"
    else:
        outcome = "missing" if not skipped else "xfailed" if skipped[0].get("xfail") is True else "skipped"
    text = strip(_word(counts[0], "text")) if counts else ""
    return Case(id, outcome, _number(told, "seconds"), text, _crash(counts[0]) if failed else None)


def _crash(told: dict[str, Any]) -> Crash | None:
    place = _list(told, "crash")
    if len(place) != 3 or not isinstance(place[0], str) or not isinstance(place[2], str):
        return None
    return Crash(strip(place[0])[:ID_MOST], _whole(place[1]), strip(place[2])[:4000])


def _stuck(dump: Sequence[str], top: str) -> Crash | None:
    """The innermost line of the project in what faulthandler wrote of the main thread, which comes last; else the innermost."""
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
    found = (own or frames)[0]
    return Crash(found.file.removeprefix(f"{top}/"), found.line, f"it hangs in {strip(found.message)[:200]}")


def _is_root(value: object) -> bool:
    """Whether it can be a folder below the top: agents get it on their PYTHONPATH."""
    return (
        isinstance(value, str)
        and 0 < len(value) <= ID_MOST
        and value.isprintable()
        and not value.startswith("/")
        and ":" not in value
        and ".." not in value.split("/")
    )


def _item(told: dict[str, Any], id: str) -> Item:
    marks = tuple(str(mark)[:20] for mark in _list(told, "marks")[:3])
    function, file = _word(told, "function", ID_MOST), _word(told, "file", ID_MOST)
    lines = _whole(told.get("line")), _whole(told.get("end"))
    return Item(id, function or id, file, *lines, _word(told, "class", 255), marks)


def _word(told: dict[str, Any], key: str, most: int = TEXT_MOST) -> str:
    value = told.get(key)
    return value[:most] if isinstance(value, str) else ""


def _list(told: dict[str, Any], key: str) -> list[Any]:
    value = told.get(key)
    return value if isinstance(value, list) else []


def _number(told: dict[str, Any], key: str) -> float:
    value = told.get(key)
    return float(value) if isinstance(value, int | float) and 0 <= value < 1e9 else 0.0


def _whole(value: object) -> int:
    return value if isinstance(value, int) and 0 <= value < 10**9 else 0


# Judging


def check_fix(
    fleet: Fleet,
    where: Where,
    commit: str,
    function: str,
    before: Mapping[str, str],
    *,
    times: int = 3,
    timeout: float = 0.0,
    fix: bool = True,
    base: str = "",
) -> Verified:
    """Whether all tests of a function that failed before pass now, each time, and its file is no worse than it was on `base`.

    They have to fail on `base` still, unless they hang or are flaky: a change without an effect on its test is no fix.
    `before` is the outcome of each test by id, `flaky` for those that have several. With `fix` False it is one that was only changed, and need
    not have failed. The first run that speaks against it is the last.
    """
    own = [id for id in before if is_of(id, function)]
    if fix and not any(before[id] in BAD or before[id] == "flaky" for id in own):
        return Verified(False, f"{function} did not fail before", [])
    evidence: list[dict[str, Any]] = []
    for number in range(max(1, times)):
        # Its neighbours once: they are not what was changed.
        report = run(fleet, where, commit, [function if number else function.split("::")[0]], timeout=timeout)
        evidence.append(_evidence(report))
        flaw, id = objection(report, function, before if not number else {id: before[id] for id in own})
        if (
            flaw
            and id
            and not is_of(id, function)
            and id in before
            and _wavers(fleet, where, base, id, timeout, evidence)
        ):
            flaw, id = objection(report, function, {**before, id: "flaky"})
        if flaw:
            return Verified(False, strip(flaw), evidence)
    words = f"passed {len(evidence)} of {len(evidence)} times"
    if fix and base and not _hangs(before, own) and any(before[id] in BAD for id in own):
        report = run(fleet, where, base, [function], timeout=timeout)
        evidence.append(_evidence(report))
        if not report.errors and not unfixed(report, function, before):
            return Verified(False, f"{strip(function)} passes without the change, too", evidence)
    return Verified(True, words, evidence)


def _hangs(before: Mapping[str, str], ids: Sequence[str]) -> bool:
    return any(before[id] == "hung" for id in ids)


def check_change(
    fleet: Fleet,
    where: Where,
    commit: str,
    before: Mapping[str, str],
    *,
    times: int = 3,
    timeout: float = 0.0,
    base: str = "",
    removed: Callable[[str], bool] = lambda function: False,
) -> Verified:
    """Whether all tests are no worse than before, and those that it fixes pass each time. See `worse` for `removed`."""
    report = run(fleet, where, commit, timeout=timeout)
    evidence = [_evidence(report)]
    if words := unusable(report):
        return Verified(False, strip(words), evidence)
    for id, words in worse(report, before, removed):
        if not _wavers(fleet, where, base, id, timeout, evidence):
            return Verified(False, strip(words), evidence)
    for id, case in report.cases.items():
        if id not in before and case.outcome in BAD:
            return Verified(False, strip(f"{id} is new, and {case.outcome}{_why(report, id)}"), evidence)
    fixed = tuple(id for id, was in before.items() if was in BAD and report.outcome(id) == "passed")
    for _ in range(times - 1 if fixed else 0):
        again = run(fleet, where, commit, list(fixed), timeout=timeout)
        evidence.append(_evidence(again))
        if bad := next((id for id in fixed if again.outcome(id) != "passed"), ""):
            return Verified(False, strip(f"{bad} passed, and then it was {again.outcome(bad)}"), evidence)
    some = "1 test that failed passes" if len(fixed) == 1 else f"{len(fixed)} tests that failed pass"
    often = "once" if times <= 1 else f"{times} times"
    words = f"{some} {often}" if fixed else "no test fails by it"
    return Verified(True, words, evidence, fixed)


def unusable(report: Report) -> str:
    """Why a run of all tests says nothing of those that it does not name; empty when it does."""
    if report.outside:
        return f"it did not run on its own checkout: {report.outside[0]} was imported"
    if report.errors:
        return f"{next(iter(report.errors))} cannot be collected"
    if report.late:
        return "the time was up"
    return "" if report.status in (0, 1, 5) and report.cases else "pytest did not come to its end"


def worse(
    report: Report, before: Mapping[str, str], removed: Callable[[str], bool] = lambda function: False
) -> Iterator[tuple[str, str]]:
    """Of a run of all tests those that passed before and do not now, and those that ran before and are gone, with that in words.

    A whole function may go, if it was `removed` from its file: who judged that change has seen it. One set of its parameters may not: these
    can be in any file.
    """
    there = {item.function for item in report.items.values()} | set(map(function_of, report.cases))
    for id, was in before.items():
        now, function = report.outcome(id), function_of(id)
        if now == "missing" and was not in ("skipped", "xfailed"):
            if function in there or not removed(function):
                yield id, f"{id} is gone, or did not run"
        elif was == "passed" != now:
            yield id, f"{id} is {now} now{_why(report, id)}"


def _wavers(fleet: Fleet, where: Where, base: str, id: str, timeout: float, evidence: list[dict[str, Any]]) -> bool:
    """Whether a test that passed before fails at times without the change, too: then that it fails now says nothing."""
    for _ in range(WAVERS if base else 0):
        report = run(fleet, where, base, [id], timeout=timeout)
        evidence.append(_evidence(report))
        if report.outcome(id) != "passed":
            return True
    return False


def is_of(id: str, function: str) -> bool:
    return id == function or id.startswith(f"{function}[")


def function_of(id: str) -> str:
    """The id without parameters."""
    file, colons, name = id.partition("::")
    return f"{file}{colons}{name.partition('[')[0]}"


def unfixed(report: Report, function: str, before: Mapping[str, str]) -> str:
    """The first test of a function that does not pass, the function when none of them does, else nothing. One that is skipped as it was
    before need not pass.
    """
    own = [id for id in (*before, *report.cases) if is_of(id, function)]
    bad = (id for id in own if (now := report.outcome(id)) != "passed" and (now in BAD or now != before.get(id)))
    return next(bad, "" if any(report.outcome(id) == "passed" for id in own) else function)


def objection(report: Report, function: str, before: Mapping[str, str]) -> tuple[str, str]:
    """What in a run of its file speaks against the function, or against what else was changed there, and the test that does; empty when
    nothing does.
    """
    if report.errors:
        file, text = next(iter(report.errors.items()))
        return f"{file} cannot be collected: {_last(text)}", ""
    if report.outside:
        return f"it did not run on its own checkout: {report.outside[0]} was imported", ""
    if not any(is_of(id, function) for id in report.cases):
        return f"{function} is gone, or did not run", ""
    same = f"{function.split('::')[0]}::"
    near = {id: was for id, was in before.items() if id.startswith(same) and not is_of(id, function)}
    # Of its neighbours one that failed may go, but not a row of one that stays.
    there = set(map(function_of, report.cases))
    lost = (
        id
        for id, was in near.items()
        if (now := report.outcome(id)) != "passed"
        and (was == "passed" or (now == "missing" and was != "skipped" and function_of(id) in there))
    )
    if id := unfixed(report, function, before) or next(lost, ""):
        now = report.outcome(id)
        what = "is gone, or did not run" if now == "missing" else f"is {now} now"
        return f"{id} {what}{_why(report, id)}", id
    for id, case in report.cases.items():
        if id not in before and case.outcome in BAD:
            return f"{id} is new, and {case.outcome}{_why(report, id)}", id
    return "", ""


def _why(report: Report, id: str) -> str:
    case = report.cases.get(id)
    words = (case.crash.message if case.crash else _last(case.text)) if case else ""
    return f": {words.splitlines()[0][:200]}" if words.strip() else ""


def _last(text: str) -> str:
    return next((line.strip()[:200] for line in reversed(text.splitlines()) if line.strip()), "no reason is told")


def _evidence(report: Report) -> dict[str, Any]:
    ids = list({**report.items, **report.cases})[:EVIDENCE_MOST]
    return {
        "commit": report.commit,
        "agent": report.agent,
        "t": report.began,
        "seconds": report.seconds,
        "late": report.late,
        "outcomes": {id: report.outcome(id) for id in ids},
        "texts": {id: report.cases[id].text[-4000:] for id in ids if report.outcome(id) in BAD},
        "errors": {file: text[-4000:] for file, text in report.errors.items()},
    }
