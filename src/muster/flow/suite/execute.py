"""Run the tests of a commit, or another command, in a clean checkout: an agent of type `command` does it.

Code of agents runs only there, with the isolation that agents have on that host. An agent inherits everything that the user exported (on
another host, what a login has); tests see only the variables that sh/execute.sh names. The home folder is the user's own. Without
further isolation this protects secrets from tests that happen to read them, but not from code that looks for them.
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
from .report import Report, read

if TYPE_CHECKING:
    from ...host import Found
    from ...model import Status

HERE = os.path.dirname(__file__)
PYTEST = ("python3", "-m", "pytest")
ENDED = frozenset({"done", "failed", "stopped", "lost"})
#: Label of the agents that run tests, and a part of their names.
ROLE = "tests"
#: Bytes of a report that are read. The probe writes less, whatever the tests print.
REPORT_MOST = 128 << 20
#: Bytes of packed test ids. The message of an agent holds 100 KB, part of which is the plugin itself.
TESTS_MOST = 70_000
#: Seconds after which a host that does not answer is given up.
PATIENCE = 600.0
#: Seconds that an agent has after its timeout to end what was running.
GRACE = 120.0
#: Agents that run tests on one host at a time. Tests wait more than they compute.
CONCURRENCY = 4


class Suite(NamedTuple):
    """The tests of a project: how they are run, and on which host."""

    run: str
    """The name of the run; agents carry it as a label, so that leftovers are found."""
    place: str = ""
    """A host, as after `@`; empty is this machine."""
    source: str = ""
    """The user's folder, empty for the fleet's own. pytest starts in the same folder of the checkout."""
    pytest: tuple[str, ...] = PYTEST
    args: tuple[str, ...] = ()
    """The user's own arguments for pytest."""
    keep_env: tuple[str, ...] = ()
    """Names of variables that the tests see beyond the usual ones."""
    mode: str = "mirror"
    """The mode of the work dir. A clone leaves nothing in the user's repository."""
    test_seconds: float = 300.0
    """The setup, the call or the teardown of a test that takes longer hangs."""
    timeout: float = 3600.0
    """Seconds that one agent may run tests."""
    varying: frozenset[str] = frozenset()
    """Functions whose parameters differ from run to run. All tests of such a function count as one, under its name."""
    roots: tuple[str, ...] = ()
    """Folders of the checkout that `command` puts first on PYTHONPATH. For tests, the probe finds them itself."""


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
    suite: Suite,
    commit: str,
    tests: Sequence[str] = (),
    *,
    without: Sequence[str] = (),
    timeout: float = 0.0,
    collect: bool = False,
) -> Report:
    """Run tests of a commit once, or with `collect` only find them.

    `tests` are ids of tests, functions, classes or files; if there are none, all tests run except for the files in `without`. The timeout is
    the suite's if none is given. Raises `MusterError` if the agent cannot be created or somebody else ends it, `Unreachable` if its host
    is gone. The agent is always removed afterwards, unless its host or this process is gone.
    """
    if suite.mode not in ("mirror", "worktree"):
        raise UsageError(f"mode {suite.mode!r} makes no clean checkout", "run tests in mode mirror or worktree")
    began, timeout = time.time(), timeout or suite.timeout
    agent = fleet.create(_tests_spec(fleet, suite, commit, tests, without, timeout, collect))
    address = str(agent.status.address)
    try:
        status = _wait(fleet, agent, timeout)
        if status.state in ("stopped", "lost"):
            raise MusterError(f"{address} was {status.state} before its tests ended", "try again")
        report = read(_fetch(fleet, agent), timed_out=status.reason == "timeout")
        complete = report.status in (0, 1, 2) and (report.items or report.errors)
        screen = "" if complete else _screen(fleet, address)
    finally:
        _remove(fleet, agent)
    return report.merge_parameters(suite.varying)._replace(
        commit=agent.agent.base,
        command=shlex.join((*suite.pytest, *suite.args)),
        agent=address,
        place=suite.place,
        exit_code=status.exit_code,
        timed_out=status.reason == "timeout",
        screen=screen,
        began=began,
        seconds=round(time.time() - began, 3),
    )


def run_in_parts(
    fleet: Fleet,
    suite: Suite,
    commit: str,
    parts: Sequence[Sequence[str]],
    *,
    timeout: float = 0.0,
    check: Callable[[Report], None] = lambda report: None,
) -> Report:
    """Run all tests of a commit once, each part (a list of files) by its own agent at the same time; return one report.

    The last agent also runs the files that are in no part. `check` may raise for the report of a part.
    """

    def run_part(part: Sequence[str], without: Sequence[str]) -> Report:
        report = run(fleet, suite, commit, part, without=without, timeout=timeout)
        check(report)
        return report

    work = {str(number): partial(run_part, part, ()) for number, part in enumerate(parts[:-1])}
    work["rest"] = partial(run_part, (), [file for part in parts[:-1] for file in part])
    reports: list[Report] = [report for _, report in concurrently(fleet, work, len(work))]
    # Status 5 with cases: the last test ended the interpreter, and the next one found no test left. Without cases: the files are gone.
    ran = [report for report in reports if report.status != 5 or report.cases] or reports
    return ran[0]._replace(
        items={id: item for report in ran for id, item in report.items.items()},
        cases={id: case for report in ran for id, case in report.cases.items()},
        errors={file: text for report in ran for file, text in report.errors.items()},
        status=None if any(report.status is None for report in ran) else max(report.status or 0 for report in ran),
        outside=tuple(dict.fromkeys(file for report in ran for file in report.outside)),
        roots=tuple(dict.fromkeys(root for report in ran for root in report.roots)),
        timed_out=any(report.timed_out for report in ran),
        screen=next((report.screen for report in ran if report.screen), ""),
        seconds=max(report.seconds for report in ran),
    )


def command(fleet: Fleet, suite: Suite, commit: str, words: Sequence[str], timeout: float = 0.0) -> tuple[int, str]:
    """Run another command of the project, such as its linter, in a clean checkout. Return its exit code and the end of its output.

    It sees the same environment as tests and imports the code of the checkout as they do.
    """
    timeout = timeout or suite.timeout
    paths = {"PYTHONPATH": suite.roots} if suite.roots else {}
    agent = fleet.create(_spec(suite, commit, _shell("plain", suite, words), timeout)._replace(paths=paths))
    try:
        status = _wait(fleet, agent, timeout)
        return status.exit_code or (0 if status.state == "done" else 1), _screen(fleet, str(agent.status.address))
    finally:
        _remove(fleet, agent)


def concurrently(fleet: Fleet, work: Mapping[str, Callable[[], Any]], limit: int) -> Iterator[tuple[str, Any]]:
    """Make all of these calls, at most `limit` at a time; yield key and result as they finish.

    If calls raise, the first of their errors is raised after all others have finished.
    """
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


def remove_leftovers(fleet: Fleet, run: str) -> list[str]:
    """Remove the agents that a killed process left running tests, on every host that answers. Return their addresses."""
    removed = []
    for status in fleet.survey().statuses:
        if (status.agent.labels.get("run"), status.agent.labels.get("role")) == (run, ROLE):
            try:
                fleet.destroy(fleet.get(str(status.address)))
            except MusterError:
                continue
            removed.append(str(status.address))
    return removed


# The agent


def _tests_spec(
    fleet: Fleet,
    suite: Suite,
    commit: str,
    tests: Sequence[str],
    without: Sequence[str],
    timeout: float,
    collect: bool,
) -> Spec:
    words = (*suite.pytest, *suite.args, *(("--collect-only", "-q") if collect else ()))
    message = _plugin(suite, os.path.join(fleet.cwd, suite.source), tests, without)
    return _spec(suite, commit, _shell("probe", suite, words), timeout)._replace(message=message)


def _shell(mode: str, suite: Suite, words: Sequence[str]) -> tuple[str, ...]:
    """Return the command line that runs `words` in the environment that tests get."""
    with open(os.path.join(HERE, "sh", "execute.sh"), encoding="utf-8") as file:
        return ("sh", "-c", file.read(), "muster-execute", mode, " ".join(suite.keep_env), *words)


def _spec(suite: Suite, commit: str, argv: tuple[str, ...], timeout: float) -> Spec:
    """Return an agent that runs a command in a clean checkout of a commit."""
    name = f"{suite.run}-{ROLE}-{os.urandom(4).hex()}"
    return Spec(
        Address.parse(f"{name}@{suite.place}" if suite.place else name),
        "command",
        argv,
        source=suite.source,
        branch=commit,
        mode=suite.mode,
        clean=True,
        labels={"run": suite.run, "role": ROLE},
        timeout=timeout,
    )


def _plugin(suite: Suite, source: str, tests: Sequence[str], without: Sequence[str]) -> str:
    """Return the source of the probe with its settings.

    If the tests are too many to be named, only their files are; if even these are too many, nothing is, and more tests run than asked for.
    """
    with open(os.path.join(HERE, "probe.py"), encoding="utf-8") as file:
        text = file.read()
    settings = {"seconds": suite.test_seconds, "source": "" if suite.place else source}
    files = sorted({test.split("::")[0] for test in tests})
    for names, excluded in ((list(tests), list(without)), (files, list(without)), ([], [])):
        data = json.dumps({**settings, "tests": names, "without": excluded}).encode()
        packed = base64.b64encode(zlib.compress(data)).decode()
        if len(packed) < TESTS_MOST:
            break
    return f'{text}\n\nbegin("{packed}")\n'


def _wait(fleet: Fleet, agent: Found, timeout: float) -> Status:
    began = answered = time.monotonic()
    while True:
        now = time.monotonic()
        try:
            status = fleet.look(agent)
            answered = now
            if status.state in ENDED:
                return status
            if now - began > timeout + GRACE:
                address = agent.status.address
                raise TimedOut(f"{address} is still running after its timeout", f"muster explain {address}")
        except Unreachable:
            if now - answered > PATIENCE:
                raise
        time.sleep(min(max((now - began) / 10, 0.05), 1.0))


def _fetch(fleet: Fleet, agent: Found) -> bytes:
    with tempfile.TemporaryDirectory(prefix="muster-report-") as folder:
        with fleet.artifacts(agent, REPORT_MOST) as archive:
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


def _remove(fleet: Fleet, agent: Found) -> None:
    """Destroy the agent. Its work dir is emptied first, because the trash would keep the copy for a month."""
    assert agent.agent.workdir.endswith(f"/work/{agent.agent.id}"), "not a folder of ours"
    try:
        agent.host.run(["find", agent.agent.workdir, "-mindepth", "1", "-delete"], timeout=GRACE)
        fleet.destroy(agent)
    except MusterError:
        pass  # its labels stay, so `remove_leftovers` finds it
