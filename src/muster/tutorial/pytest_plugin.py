"""The pytest plugin: the fixture `e2e`, its options and artifacts, and the check of the tutorial.

pytest loads it into every run of the environment, so it imports and does nothing until a test uses it.
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
HAS_AMBIGUOUS = pytest.StashKey[bool]()
SWEPT = pytest.StashKey[list[str]]()
WRITTEN = pytest.StashKey[list[str]]()
BLOCK_INDEX = pytest.StashKey[Any]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("muster e2e", "end-to-end tests from a tutorial")
    add = group.addoption
    add("--tutorial", metavar="FILE", help="tutorial script (default: the ini option, tutorial.sh or docs/tutorial.sh)")
    add("--tutorial-check", action="store_true", help="fail if a block has no test or a citation is stale")
    add("--e2e-artifacts", metavar="DIR", help="folder for transcripts and recordings (default: .muster/e2e)")
    add(
        "--e2e-keep",
        choices=("never", "failed", "always"),
        help="keep the sandbox folders of tests for debugging (default: never)",
    )
    add(
        "--e2e-leaks",
        choices=("ignore", "report", "error"),
        help="ignore or report processes, tmux sessions and files that a test leaves behind, or fail (default: report)",
    )
    add("--e2e-update", action="store_true", help="write snapshots that differ or do not exist, instead of failing")
    add("--e2e-timeout", type=float, metavar="SECONDS", help="timeout of each command (default: 60)")
    parser.addini("tutorial", "tutorial script that the tests cite")
    parser.addini("tutorial_check", "check the tutorial on every run", type="bool", default=False)
    parser.addini("e2e_artifacts", "folder for transcripts and recordings")
    parser.addini("e2e_keep", "which tests' sandbox folders to keep: never, failed or always", default="never")
    parser.addini(
        "e2e_leaks", "what to do about things a test leaves behind: ignore, report or error", default="report"
    )
    parser.addini("e2e_timeout", "timeout of each command, in seconds", default="60")
    parser.addini("e2e_pass_env", "environment variables that tests inherit", type="args")
    parser.addini(
        "e2e_secrets", "environment variables that tests inherit and whose values are hidden in artifacts", type="args"
    )
    parser.addini("e2e_masks", "NAME=PATTERN per line: matches become <NAME> in masked output", type="linelist")
    parser.addini("e2e_watch", "folders in which tests must not leave files (default: rootdir, home)", type="args")


def _setting(config: pytest.Config, name: str) -> Any:
    """Return a setting from the command line or else the ini file."""
    option = config.getoption(f"--e2e-{name}", default=None)
    return option if option is not None else config.getini(f"e2e_{name}")


def artifacts_folder(config: pytest.Config) -> Path:
    from .artifacts import DEFAULT_FOLDER

    return config.rootpath / (_setting(config, "artifacts") or DEFAULT_FOLDER)


def tutorial_file(config: pytest.Config) -> Path | None:
    """Return the tutorial: from the option, the ini file, or the default locations; None if there is none."""
    if option := config.getoption("--tutorial", default=None):
        return config.invocation_params.dir / str(option)
    if setting := config.getini("tutorial"):
        return config.rootpath / str(setting)
    default = (config.rootpath / name for name in ("tutorial.sh", "docs/tutorial.sh"))
    return next((path for path in default if path.is_file()), None)


def _run(config: pytest.Config) -> dict[str, Any]:
    """Return the content of run.json; the same in every pytest-xdist worker."""
    if RUN not in config.stash:
        run = getattr(config, "workerinput", {}).get("muster_e2e")
        if run is None:
            import time

            tutorial = tutorial_file(config)
            if tutorial is not None and tutorial.is_relative_to(config.rootpath):
                tutorial = tutorial.relative_to(config.rootpath)
            args = list(map(str, config.invocation_params.args))
            run = {"started": round(time.time(), 3), "ended": None, "exit_code": None, "args": args}
            run["tutorial"] = str(tutorial) if tutorial else None
        config.stash[RUN] = run
    return config.stash[RUN]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: takes long; of muster.testing, too")


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a pytest-xdist worker which run it belongs to."""
    node.workerinput["muster_e2e"] = _run(node.config)


@pytest.fixture
def e2e(request: pytest.FixtureRequest) -> Iterator[E2eSession]:
    """Run the program under test in a sandbox and record it: `e2e.run(…)`, `e2e.terminal(…)`, `e2e.start(…)`."""
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
    record = artifacts.Record(artifacts.folder_of_test(folder, item.nodeid), item.nodeid, str(file), (line or 0) + 1)
    item.stash[RECORD] = record
    secrets = config.getini("e2e_secrets")
    keep = _setting(config, "keep")
    sandbox = isolation.Sandbox(os.environ, [*config.getini("e2e_pass_env"), *secrets], keep != "never")
    masks = [
        (pattern, f"<{name.strip()}>")
        for name, _, pattern in (mask.partition("=") for mask in config.getini("e2e_masks"))
    ]
    snapshots = Snapshots(
        item.path, item.nodeid.partition("::")[2], bool(config.getoption("--e2e-update", default=False))
    )
    session = E2eSession(
        record,
        sandbox,
        snapshots=snapshots,
        secrets=[os.environ[name] for name in secrets if name in os.environ],
        masks=masks,
        timeout=float(_setting(config, "timeout")),
    )
    for text in _cited_blocks(config, item):
        session.write_tutorial_block(text)
    policy = _setting(config, "leaks")
    watched = [] if policy == "ignore" else _watched(config)
    before = isolation.listing(watched)
    try:
        yield session
    finally:
        problems = session.finish()
        leaks = [] if policy == "ignore" else sandbox.leaks()
        files, ambiguous = _attribute(config, record, isolation.new_files(before, isolation.listing(watched)))
        leaks += files
        sandbox.end()
        session.close([*leaks, *ambiguous])
        item.stash[WRITTEN] = [os.path.relpath(path, config.rootpath) for path in snapshots.written]
        item.stash[HAS_AMBIGUOUS] = bool(ambiguous) and policy == "error"
        if keep == "always" or (keep == "failed" and record.facts["outcome"] not in ("running", "passed")):
            sandbox.keep_folder()
            record.save(kept_folder=str(sandbox.root))
        else:
            sandbox.remove()
    if problems:
        pytest.fail("\n".join(problems), pytrace=False)
    if leaks and policy == "error":
        pytest.fail("the test left behind:\n" + "\n".join(f"  {leak}" for leak in leaks), pytrace=False)


def _cited_blocks(config: pytest.Config, item: pytest.Item) -> list[str]:
    """Return the blocks of the tutorial that the docstring of a test cites."""
    from ..errors import MusterError
    from . import blocks, citations

    doc, tutorial = getattr(getattr(item, "function", None), "__doc__", None), tutorial_file(config)
    if not isinstance(doc, str) or tutorial is None:
        return []
    if BLOCK_INDEX not in config.stash:
        try:
            config.stash[BLOCK_INDEX] = citations.BlockIndex(str(tutorial), blocks.read(tutorial))
        except MusterError:  # a tutorial that cannot be read is reported by the check
            config.stash[BLOCK_INDEX] = citations.BlockIndex(str(tutorial), [])
    index = config.stash[BLOCK_INDEX]
    return [cited.text for cited in citations.in_docstring(doc, index) if cited.text in index.by_text]


def _attribute(config: pytest.Config, record: Any, new_files: list[str]) -> tuple[list[str], list[str]]:
    """Split files that appeared during a test into those it left, and those that another worker's test may have left.

    Nothing records which process created a file. If other tests ran at the same time, a file is attributed to the test
    whose transcript mentions it; if none or several do, it is ambiguous.
    """
    if not new_files or not hasattr(config, "workerinput"):
        return new_files, []
    from . import artifacts

    others = artifacts.concurrent_tests(artifacts_folder(config), record, _run(config)["started"])
    certain, ambiguous = [], []
    for file in new_files:
        name = os.path.basename(file)
        mine = artifacts.mentions(record.folder, name)
        theirs = any(artifacts.mentions(other, name) for other in others)
        if not others or (mine and not theirs):
            certain.append(file)
        elif mine or not theirs:
            ambiguous.append(f"{file} (left by this test or by one that ran at the same time)")
    return certain, ambiguous


def _watched(config: pytest.Config) -> list[str]:
    """Return the folders in which tests must not leave files."""
    folders = [str(config.rootpath / os.path.expanduser(name)) for name in config.getini("e2e_watch")]
    # The temporary folder is not watched, because any program on the machine may create files there.
    return folders or sorted({str(config.rootpath), os.path.expanduser("~")})


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    record = item.stash.get(RECORD, None)
    if record is not None:
        _record_outcome(record, report)
        if report.when == "teardown":
            if record.facts["leaks"]:
                report.user_properties.append(("e2e_leaks", [item.nodeid, *record.facts["leaks"]]))
            if written := item.stash.get(WRITTEN, []):
                report.user_properties.append(("e2e_snapshots", written))
            if item.stash.get(HAS_AMBIGUOUS, False):
                report.user_properties.append(("e2e_ambiguous", True))
            if swept := item.config.stash.get(SWEPT, []):
                report.user_properties.append(("e2e_swept", swept))
                item.config.stash[SWEPT] = []
            del item.stash[RECORD]
    return report


def _record_outcome(record: Any, report: pytest.TestReport) -> None:
    """Update test.json with the outcome of a phase: setup, call or teardown."""
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
    """Collect data for the summary. Under pytest-xdist this runs in the controller, which prints the summary."""
    if report.when == "teardown":
        for name, value in report.user_properties:
            if name == "e2e_leaks" and isinstance(value, list):
                LEAKED.append([str(line) for line in value])
            if name == "e2e_ambiguous":
                AMBIGUOUS.append(report.nodeid)
            if name == "e2e_swept" and isinstance(value, list):
                SWEPT_FOLDERS.extend(map(str, value))
            if name == "e2e_snapshots" and isinstance(value, list):
                SNAPSHOTS.extend(map(str, value))


#: Node id of each test that left something behind, followed by one line for each leak.
LEAKED: list[list[str]] = []
#: With --e2e-leaks=error, tests during which files appeared that cannot be attributed. They fail the run but no test.
AMBIGUOUS: list[str] = []
#: Sandbox folders of an earlier, killed run that this run removed.
SWEPT_FOLDERS: list[str] = []
#: Snapshots that were written.
SNAPSHOTS: list[str] = []


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    config = session.config
    if hasattr(config, "workerinput"):
        return
    if RUN in config.stash:
        _close_run(config, int(exitstatus))
    if AMBIGUOUS and int(exitstatus) == 0:
        session.exitstatus = exitstatus = pytest.ExitCode.TESTS_FAILED
    AMBIGUOUS.clear()
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
        pass  # no test of this run used the fixture, so run.json is missing or from another run


def _check(config: pytest.Config) -> tuple[list[str], bool]:
    """Check the tutorial; return the lines to print and whether the check failed."""
    from ..errors import MusterError
    from . import check

    tutorial = tutorial_file(config)
    if tutorial is None:
        return ["no tutorial found: set --tutorial FILE or the ini option `tutorial`"], True
    paths = [config.invocation_params.dir / word.partition("::")[0] for word in config.args]
    files = [path for path in paths if path.is_file()]
    tests = files or [config.rootpath / name for name in config.getini("testpaths")] or paths
    try:
        # If files are named, only their own citations are checked: tests of the other blocks may be in other files.
        report = check.check(tutorial, tests, artifacts_folder(config), whole=not files)
    except MusterError as error:
        return [str(error)], True
    return check.lines(report), bool(report.findings)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if SWEPT_FOLDERS:
        terminalreporter.section("removed: left by an earlier run that was killed", sep="-")
        for line in SWEPT_FOLDERS:
            terminalreporter.line(line)
        SWEPT_FOLDERS.clear()
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
