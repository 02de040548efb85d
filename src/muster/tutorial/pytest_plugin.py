"""The pytest plugin: the fixture `e2e`, its options, its artifacts, and the check of the tutorial.

It is loaded into every pytest run of the environment it is installed in: nothing here is imported or done before a test asks for it.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .session import E2eSession

RECORD = pytest.StashKey[Any]()
RUN = pytest.StashKey[dict[str, Any]]()
OPENED = pytest.StashKey[bool]()
CHECKED = pytest.StashKey[list[str]]()
UNCLEAR = pytest.StashKey[bool]()
SWEPT = pytest.StashKey[list[str]]()
WRITTEN = pytest.StashKey[list[str]]()
KNOWN = pytest.StashKey[Any]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("muster e2e", "end-to-end tests from a tutorial")
    add = group.addoption
    add("--tutorial", metavar="FILE", help="the tutorial (default: the ini option, tutorial.sh or docs/tutorial.sh)")
    add("--tutorial-check", action="store_true", help="fail when a block has no test or a citation is not current")
    add("--e2e-artifacts", metavar="DIR", help="transcripts and recordings go here (default: .muster/e2e)")
    add(
        "--e2e-keep",
        choices=("never", "failed", "always"),
        help="keep the folders of tests for debugging (default: never)",
    )
    add(
        "--e2e-leaks",
        choices=("ignore", "report", "error"),
        help="what a test left behind: processes, tmux sessions, files (default: report)",
    )
    add("--e2e-update", action="store_true", help="write the snapshots that differ or do not exist, and accept them")
    add("--e2e-timeout", type=float, metavar="SECONDS", help="for each command (default: 60)")
    parser.addini("tutorial", "the tutorial that the tests cite")
    parser.addini("tutorial_check", "check the tutorial on every run", type="bool", default=False)
    parser.addini("e2e_artifacts", "where transcripts and recordings go")
    parser.addini("e2e_keep", "never, failed or always", default="never")
    parser.addini("e2e_leaks", "ignore, report or error", default="report")
    parser.addini("e2e_timeout", "seconds for each command", default="60")
    parser.addini("e2e_pass_env", "names of variables that tests may see", type="args")
    parser.addini("e2e_secrets", "names of variables whose values are hidden in all artifacts", type="args")
    parser.addini("e2e_masks", "NAME=PATTERN, one a line: shown as <NAME> in masked output", type="linelist")
    parser.addini("e2e_watch", "folders in which a test must leave nothing (default: rootdir, home)", type="args")


def _setting(config: pytest.Config, name: str) -> Any:
    given = config.getoption(f"--e2e-{name}", default=None)
    return given if given is not None else config.getini(f"e2e_{name}")


def artifacts_folder(config: pytest.Config) -> Path:
    from .artifacts import DEFAULT

    return config.rootpath / (_setting(config, "artifacts") or DEFAULT)


def tutorial_file(config: pytest.Config) -> Path | None:
    """The tutorial by option, by ini file, or where people put it."""
    given = config.getoption("--tutorial", default=None)
    if given:
        return config.invocation_params.dir / str(given)
    if named := config.getini("tutorial"):
        return config.rootpath / str(named)
    usual = (config.rootpath / name for name in ("tutorial.sh", "docs/tutorial.sh"))
    return next((path for path in usual if path.is_file()), None)


def _run(config: pytest.Config) -> dict[str, Any]:
    """What is known of this run; the same in every worker of pytest-xdist."""
    if RUN not in config.stash:
        given = getattr(config, "workerinput", {}).get("muster_e2e")
        if given is None:
            import time

            tutorial = tutorial_file(config)
            inside = tutorial is not None and tutorial.is_relative_to(config.rootpath)
            shown = tutorial.relative_to(config.rootpath) if inside and tutorial else tutorial
            args = list(map(str, config.invocation_params.args))
            given = {"started": round(time.time(), 3), "ended": None, "exit_code": None, "args": args}
            given["tutorial"] = str(shown) if shown else None
        config.stash[RUN] = given
    return config.stash[RUN]


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """pytest-xdist: tell the worker which run it belongs to."""
    node.workerinput["muster_e2e"] = _run(node.config)


@pytest.fixture
def e2e(request: pytest.FixtureRequest) -> Iterator[E2eSession]:
    """The program under test in a place of its own: `e2e.run(…)`, `e2e.terminal(…)`, `e2e.start(…)`, all of it recorded."""
    from . import artifacts, isolation
    from .session import E2eSession
    from .snapshots import Snapshots

    config, item = request.config, request.node
    folder = artifacts_folder(config)
    if OPENED not in config.stash:
        config.stash[OPENED] = True
        config.stash[SWEPT] = isolation.sweep()
        artifacts.open_folder(folder, _run(config), tutorial_file(config))
    file, line, _ = item.location
    record = artifacts.Record(artifacts.of_test(folder, item.nodeid), item.nodeid, str(file), (line or 0) + 1)
    item.stash[RECORD] = record
    secrets = config.getini("e2e_secrets")
    keep = _setting(config, "keep")
    place = isolation.Place(os.environ, [*config.getini("e2e_pass_env"), *secrets], keep != "never")
    masks = [
        (pattern, f"<{name.strip()}>") for name, _, pattern in (m.partition("=") for m in config.getini("e2e_masks"))
    ]
    snapshots = Snapshots(
        item.path, item.nodeid.partition("::")[2], bool(config.getoption("--e2e-update", default=False))
    )
    session = E2eSession(
        record,
        place,
        snapshots=snapshots,
        secrets=[os.environ[name] for name in secrets if name in os.environ],
        masks=masks,
        timeout=float(_setting(config, "timeout")),
    )
    for text in _documented(config, item):
        session.write_tutorial_block(text)
    policy = _setting(config, "leaks")
    watched = [] if policy == "ignore" else _watched(config)
    before = isolation.listing(watched)
    try:
        yield session
    finally:
        problems = session.finish()
        leaks = [] if policy == "ignore" else place.leaks()
        files, unclear = _blamed(config, record, isolation.strays(before, isolation.listing(watched)))
        leaks += files
        place.end()
        session.leave([*leaks, *unclear])
        item.stash[WRITTEN] = [os.path.relpath(path, config.rootpath) for path in snapshots.written]
        item.stash[UNCLEAR] = bool(unclear) and policy == "error"
        if keep == "always" or (keep == "failed" and record.facts["outcome"] not in ("running", "passed")):
            place.kept()
            record.save(kept=str(place.root))
        else:
            place.remove()
    if problems:
        pytest.fail("\n".join(problems), pytrace=False)
    if leaks and policy == "error":
        pytest.fail("the test left behind:\n" + "\n".join(f"  {leak}" for leak in leaks), pytrace=False)


def _documented(config: pytest.Config, item: pytest.Item) -> list[str]:
    """Return the blocks of the tutorial that the docstring of a test cites."""
    from ..errors import MusterError
    from . import blocks, citations

    doc, tutorial = getattr(getattr(item, "function", None), "__doc__", None), tutorial_file(config)
    if not isinstance(doc, str) or tutorial is None:
        return []
    if KNOWN not in config.stash:
        try:
            config.stash[KNOWN] = citations.Known(str(tutorial), blocks.read(tutorial))
        except MusterError:  # a tutorial that cannot be read is reported by the check
            config.stash[KNOWN] = citations.Known(str(tutorial), [])
    known = config.stash[KNOWN]
    return [found.text for found in citations.documented(doc, known) if found.text in known.by_text]


def _blamed(config: pytest.Config, record: Any, strays: list[str]) -> tuple[list[str], list[str]]:
    """Of the files that appeared while a test ran: those that it left, and those that another worker's test may have left.

    Files do not say who made them. If other tests ran at the same time, the one whose transcript names the file is blamed,
    and if that does not tell them apart, none.
    """
    if not strays or not hasattr(config, "workerinput"):
        return strays, []
    from . import artifacts

    others = artifacts.beside(artifacts_folder(config), record, _run(config)["started"])
    certain, unclear = [], []
    for stray in strays:
        name = os.path.basename(stray)
        mine, theirs = artifacts.mentions(record.folder, name), [one for one in others if artifacts.mentions(one, name)]
        if not others or (mine and not theirs):
            certain.append(stray)
        elif mine or not theirs:
            unclear.append(f"{stray} (by this test, or by one that ran at the same time)")
    return certain, unclear


def _watched(config: pytest.Config) -> list[str]:
    given = [str(config.rootpath / os.path.expanduser(name)) for name in config.getini("e2e_watch")]
    # Not the temporary folder: every program of the machine leaves things there, and a test would be blamed for them.
    return given or sorted({str(config.rootpath), os.path.expanduser("~")})


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    record = item.stash.get(RECORD, None)
    if record is not None:
        _note(record, report)
        if report.when == "teardown":
            if record.facts["leaks"]:
                report.user_properties.append(("e2e_leaks", [item.nodeid, *record.facts["leaks"]]))
            if written := item.stash.get(WRITTEN, []):
                report.user_properties.append(("e2e_snapshots", written))
            if item.stash.get(UNCLEAR, False):
                report.user_properties.append(("e2e_unclear", True))
            if swept := item.config.stash.get(SWEPT, []):
                report.user_properties.append(("e2e_swept", swept))
                item.config.stash[SWEPT] = []
            del item.stash[RECORD]
    return report


def _note(record: Any, report: pytest.TestReport) -> None:
    """Carry the outcome of one phase into test.json."""
    facts = record.facts
    outcome = facts["outcome"]
    if report.when == "call":
        expected = hasattr(report, "wasxfail")
        outcome = (
            {"passed": "xpassed", "skipped": "xfailed"}.get(report.outcome, "failed") if expected else report.outcome
        )
    elif report.failed:
        outcome = "error" if outcome in ("running", "passed") else outcome
    elif report.when == "setup" and report.skipped:
        outcome = "skipped"
    message = facts["message"]
    if report.failed or report.skipped:
        text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr or "")
        message = f"{message}\n\n{text}" if message else text
    duration = (facts["duration"] or 0.0) + report.duration
    record.save(
        outcome=outcome, duration=round(duration, 4), message=record.hide(message)[:100_000] if message else None
    )


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Here in the process that talks to the user, also under pytest-xdist."""
    if report.when == "teardown":
        for name, value in report.user_properties:
            if name == "e2e_leaks" and isinstance(value, list):
                LEAKED.append([str(one) for one in value])
            if name == "e2e_unclear":
                FAILED.append(report.nodeid)
            if name == "e2e_swept" and isinstance(value, list):
                LEFT.extend(map(str, value))
            if name == "e2e_snapshots" and isinstance(value, list):
                SNAPSHOTS.extend(map(str, value))


#: Of this run, for the summary: node id, then what the test left behind.
LEAKED: list[list[str]] = []
#: With --e2e-leaks=error, tests beside which files appeared that no test can be blamed for: the run fails, not the tests.
FAILED: list[str] = []
#: Folders of tests of an earlier run that were swept.
LEFT: list[str] = []
#: Snapshots that were written.
SNAPSHOTS: list[str] = []


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    config = session.config
    if hasattr(config, "workerinput"):
        return
    if RUN in config.stash:
        _close_run(config, int(exitstatus))
    if FAILED and int(exitstatus) == 0:
        session.exitstatus = exitstatus = pytest.ExitCode.TESTS_FAILED
    FAILED.clear()
    if config.getoption("--tutorial-check", default=False) or config.getini("tutorial_check"):
        lines, failed = _check(config)
        config.stash[CHECKED] = lines
        if failed and int(exitstatus) in (0, 5):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _close_run(config: pytest.Config, exitstatus: int) -> None:
    import json
    import time

    from .artifacts import write_json

    path = artifacts_folder(config) / "run.json"
    run = _run(config)
    try:
        if json.loads(path.read_text(encoding="utf-8")).get("started") == run["started"]:
            write_json(path, {**run, "ended": round(time.time(), 3), "exit_code": exitstatus})
    except (OSError, ValueError, AttributeError):
        pass  # no test of this run used the fixture


def _check(config: pytest.Config) -> tuple[list[str], bool]:
    from ..errors import MusterError
    from . import check

    tutorial = tutorial_file(config)
    if tutorial is None:
        return ["no tutorial found: name it with --tutorial FILE or the ini option `tutorial`"], True
    given = [config.invocation_params.dir / word.partition("::")[0] for word in config.args]
    files = [path for path in given if path.is_file()]
    tests = files or [config.rootpath / name for name in config.getini("testpaths")] or given
    try:
        # Of files that are named, only their own citations are judged: the other blocks may have their tests elsewhere.
        found = check.check(tutorial, tests, artifacts_folder(config), whole=not files)
    except MusterError as error:
        return [str(error)], True
    return check.lines(found), bool(found.findings)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if LEFT:
        terminalreporter.section("swept: left by an earlier run that was killed", sep="-")
        for line in LEFT:
            terminalreporter.line(line)
        LEFT.clear()
    if SNAPSHOTS:
        terminalreporter.section("snapshots written", sep="-")
        for line in SNAPSHOTS:
            terminalreporter.line(line)
        SNAPSHOTS.clear()
    if LEAKED:
        terminalreporter.section("left behind by e2e tests", sep="-", yellow=True)
        for nodeid, *leaks in LEAKED:
            terminalreporter.line(nodeid)
            for leak in leaks:
                terminalreporter.line(f"  {leak}")
        LEAKED.clear()
    if lines := config.stash.get(CHECKED, None):
        terminalreporter.section("tutorial", sep="-")
        for line in lines:
            terminalreporter.line(line)
