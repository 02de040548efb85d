"""Trials: real pytest in a clean checkout, run by a real agent; and what is read of its report, whatever stands in it."""

from __future__ import annotations

import ast
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from muster import Fleet
from muster.errors import MusterError, TimedOut, Unreachable, UsageError
from muster.flow.suite import collect, execute
from muster.flow.suite.execute import Case, Item, Report, Where
from muster.host import Found
from muster.model import Agent, Status

from ..conftest import Sshd, World, eventually
from . import installs

ZOO = r"""
import os, subprocess, sys, time
import pytest

@pytest.fixture
def broken():
    raise ValueError("no database")

@pytest.fixture
def untidy():
    yield
    raise ValueError("left open")

def test_passes(): pass
def test_fails():
    assert 1 == 2
def test_error(broken): pass
def test_untidy(untidy): pass
@pytest.mark.skip(reason="not today")
def test_skipped(): pass
@pytest.mark.xfail(reason="known")
def test_xfailed(): assert 0
@pytest.mark.xfail
def test_xpassed(): pass
@pytest.mark.parametrize("x", ["a b", "it's \"q\" $(x)", "\u00e9\u4e2d", "new\nline", "::", "[x]", ""])
def test_odd(x):
    assert x != "::"
class TestClass:
    def test_inside(self): pass
def test_hangs():
    time.sleep(1000)
def test_dies(): os._exit(3)
def test_interrupts(): raise KeyboardInterrupt
def test_floods():
    for _ in range(3000):
        print("x" * 1000)
    assert False, "y" * 1_000_000
def test_sees_no_secret(): assert "MY_TOKEN" not in os.environ
def test_sees_what_is_kept(): assert os.environ["MY_SETTING"] == "a 'b'\nc"
def test_is_in_a_clean_checkout(): assert not os.path.exists("untracked") and "dirty" not in open(__file__).read()[:20]
def test_last(): pass
"""
OUTCOMES = {
    "test_passes": "passed",
    "test_fails": "failed",
    "test_error": "error",
    "test_untidy": "error",
    "test_skipped": "skipped",
    "test_xfailed": "xfailed",
    "test_xpassed": "passed",
    "test_odd[a b]": "passed",
    'test_odd[it\'s "q" $(x)]': "passed",
    "test_odd[\\xe9\\u4e2d]": "passed",
    "test_odd[new\\nline]": "passed",
    "test_odd[::]": "failed",
    "test_odd[[x]]": "passed",
    "test_odd[]": "passed",
    "TestClass::test_inside": "passed",
    "test_hangs": "hung",
    "test_dies": "error",
    "test_interrupts": "error",
    "test_floods": "failed",
    "test_sees_no_secret": "passed",
    "test_sees_what_is_kept": "passed",
    "test_is_in_a_clean_checkout": "passed",
    "test_last": "passed",
}
FILE = "tests/test_zoo.py"


def where(**more: Any) -> Where:
    keep = ("MY_SETTING", "PYTEST_DISABLE_PLUGIN_AUTOLOAD")
    return Where(**{"run": "r", "pytest": (sys.executable, "-m", "pytest"), "keep": keep, "seconds": 2.0, **more})


def project(world: World, files: dict[str, str], message: str = "tests") -> str:
    """The commit that has these files too."""
    for name, text in files.items():
        path = world.repo / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    world.git("add", "-A")
    world.git("commit", "-q", "-m", message)
    return world.git("rev-parse", "HEAD")


def fleet_of(world: World) -> Fleet:
    return Fleet(world.env, str(world.repo))


def state(world: World) -> tuple[str, str, str]:
    """All that must not change in the user's repository."""
    return (
        world.git("for-each-ref"),
        world.git("worktree", "list"),
        world.git("--no-optional-locks", "status", "--porcelain"),
    )


@pytest.fixture(autouse=True, scope="module")
def environment() -> Iterator[None]:
    """What the user has exported. Plugins of this environment are not part of the projects here, and slow to load."""
    patch = pytest.MonkeyPatch()
    patch.setenv("MY_TOKEN", "s3cret")
    patch.setenv("MY_SETTING", "a 'b'\nc")
    patch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    yield
    patch.undo()


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    world = World(tmp_path_factory.mktemp("zoo") / "w")
    project(world, {FILE: ZOO})
    (world.repo / "untracked").write_text("x")
    (world.repo / FILE).write_text("# dirty\n" + ZOO)
    yield world
    world.end()


@pytest.fixture(scope="module")
def report(zoo: World) -> Report:
    before = state(zoo)
    report = execute.run(fleet_of(zoo), where(), "HEAD", timeout=120)
    assert state(zoo) == before
    return report


def test_every_test_has_its_outcome_whatever_the_others_do(report: Report) -> None:
    assert {id.removeprefix(f"{FILE}::"): case.outcome for id, case in report.cases.items()} == OUTCOMES
    assert list(report.items) == list(report.cases)
    assert not report.late and not report.errors and not report.outside


def test_a_failure_says_where_and_why(report: Report) -> None:
    fails, error, hangs = (report.cases[f"{FILE}::{name}"] for name in ("test_fails", "test_error", "test_hangs"))
    line = ZOO.splitlines().index("    assert 1 == 2") + 1
    assert fails.crash == (FILE, line, "assert 1 == 2") and "E       assert 1 == 2" in fails.text
    assert error.crash and error.crash.message == "ValueError: no database"
    assert hangs.crash and hangs.crash.message == "it hangs in test_hangs" and hangs.crash.file == FILE
    assert report.cases[f"{FILE}::test_skipped"].text == "Skipped: not today"
    assert report.cases[f"{FILE}::test_xfailed"].text == "known"
    assert len(report.cases[f"{FILE}::test_floods"].text) <= 21_000


def test_an_item_knows_its_function_and_its_lines(report: Report) -> None:
    odd = [item for item in report.items.values() if item.function == f"{FILE}::test_odd"]
    assert len(odd) == 7
    rows = ZOO.splitlines()
    assert (
        rows[odd[0].line - 1].startswith("@pytest.mark.parametrize") and rows[odd[0].end - 1] == '    assert x != "::"'
    )
    inside = report.items[f"{FILE}::TestClass::test_inside"]
    assert (inside.cls, inside.file) == ("TestClass", FILE)
    assert report.items[f"{FILE}::test_xfailed"].marks == ("xfail",)


def test_nothing_is_left_of_a_trial_but_its_record(zoo: World, report: Report) -> None:
    assert zoo.agents() == {}
    work = list((zoo.muster_home / "trash").glob("*/work/*"))
    assert (zoo.muster_home / "trash").exists() and work == []


def test_only_what_is_asked_for_runs(zoo: World) -> None:
    odd = [f"{FILE}::{name}" for name in OUTCOMES if name.startswith("test_odd")]
    asked = [*odd[1:6], f"{FILE}::TestClass", f"{FILE}::test_none", "tests/test_gone.py::test_x"]
    report = execute.run(fleet_of(zoo), where(), "HEAD", asked)
    assert list(report.cases) == [*odd[1:6], f"{FILE}::TestClass::test_inside"]
    assert report.outcome(f"{FILE}::test_none") == "missing"


def test_parts_of_a_suite_are_one_report_and_what_is_in_no_part_runs_too(world: World) -> None:
    test = "def test_{0}(): assert {1}\n"
    commit = project(world, {f"test_{name}.py": test.format(name, int(name != "b")) for name in "abc"})
    report = execute.spread(fleet_of(world), where(), commit, [["test_a.py", "test_gone.py"], ["test_b.py"]])
    outcomes = {id.partition("::")[0]: case.outcome for id, case in report.cases.items()}
    assert outcomes == {"test_a.py": "passed", "test_b.py": "failed", "test_c.py": "passed"}
    assert (report.status, report.commit, set(report.items)) == (1, commit, set(report.cases))
    rest = execute.spread(fleet_of(world), where(), commit, [["test_gone.py"], ["test_b.py"]])
    assert len(rest.cases) == 3 and rest.status == 1, "a part without tests says nothing"
    last = project(world, {"test_b.py": "import os\ndef test_b(): os._exit(3)\n"})
    died = execute.spread(fleet_of(world), where(), last, [["test_a.py", "test_c.py"], ["test_b.py"]])
    assert len(died.cases) == 3 and died.outcome("test_b.py::test_b") == "error", (
        "also of one that ends the interpreter"
    )
    dead = project(world, {"conftest.py": "def pytest_runtestloop(): raise SystemExit(0)\n"})
    assert execute.spread(fleet_of(world), where(), dead, [["test_a.py"], ["test_b.py"]]).status not in (0, 1)


@pytest.mark.slow
def test_a_trial_whose_time_is_up_names_the_test_that_ran(zoo: World) -> None:
    report = execute.run(
        fleet_of(zoo), where(seconds=0.0), "HEAD", [f"{FILE}::test_passes", f"{FILE}::test_hangs"], timeout=2
    )
    assert report.late and report.status is None
    assert [case.outcome for case in report.cases.values()] == ["passed", "hung"]
    assert zoo.agents() == {}


@pytest.mark.slow
def test_a_trial_that_somebody_stops_is_an_error_and_leaves_nothing(zoo: World) -> None:
    fleet, stopped = fleet_of(zoo), []

    def look(one: Any) -> Any:
        status = Fleet.look(fleet, one)
        if status.state == "working" and not stopped:
            stopped.append(fleet.stop(one, 0))
        return status

    fleet.look = look  # type: ignore[method-assign]
    with pytest.raises(MusterError, match="was stopped before its tests ended"):
        execute.run(fleet, where(seconds=0.0), "HEAD", [f"{FILE}::test_hangs"], timeout=60)
    assert zoo.agents() == {}


@pytest.mark.slow
def test_a_test_that_failed_and_then_hangs_does_both(world: World) -> None:
    """pytest takes away the clock that was set before a failure."""
    text = "import time\ndef test_it(request):\n    request.addfinalizer(lambda: time.sleep(1000))\n    assert 0\ndef test_b(): pass\n"
    project(world, {"test_a.py": text})
    report = execute.run(fleet_of(world), where(seconds=1.0), "HEAD", timeout=120)
    assert [case.outcome for case in report.cases.values()] == ["hung", "passed"] and not report.late


@pytest.mark.slow
def test_an_interrupted_session_may_take_its_time_to_end(world: World) -> None:
    """The clock that was set for a test is not for what comes after it."""
    test = "def test_a(): raise KeyboardInterrupt\ndef test_b(): pass\n"
    project(world, {"test_a.py": test, "conftest.py": "import time\ndef pytest_sessionfinish(): time.sleep(2)\n"})
    report = execute.run(fleet_of(world), where(seconds=1.0), "HEAD", timeout=120)
    assert [case.outcome for case in report.cases.values()] == ["error", "passed"]


def test_a_host_that_is_silent_for_a_while_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    class Cut:
        """A fleet that answers now and then."""

        def __init__(self, *answers: str) -> None:
            self.answers = iter(answers)

        def look(self, one: Found) -> Status:
            if (state := next(self.answers)) == "unreachable":
                raise Unreachable("host box cannot be reached")
            return one.status._replace(state=state)

    one = Found(cast(Any, None), Status(Agent("id", "t", "command"), "box", "ssh", "starting"))
    late = Cut("working", "unreachable", "unreachable", "done")
    assert execute._wait(cast(Any, late), one, 60.0).state == "done"
    monkeypatch.setattr(execute, "PATIENCE", -1.0)
    with pytest.raises(Unreachable):
        execute._wait(cast(Any, Cut("working", "unreachable", "done")), one, 60.0)
    monkeypatch.setattr(execute, "GRACE", -100.0)
    with pytest.raises(TimedOut, match="goes on after its time was up"):
        execute._wait(cast(Any, Cut("working", "done")), one, 60.0)


# Where they run


@pytest.mark.slow
def test_an_installation_that_links_to_the_users_folder_does_not_hide_the_checkout(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `pip install -e` makes it; also for the programs that tests start, and from a folder below the top."""
    test = (
        "import subprocess, sys, shop\n"
        "def test_it():\n"
        "    assert shop.VALUE == 'committed'\n"
        "    out = subprocess.run([sys.executable, '-c', 'import shop; print(shop.VALUE)'], stdout=-1).stdout\n"
        "    assert out == b'committed\\n'\n"
    )
    project(
        world,
        {"part/src/shop.py": "VALUE = 'committed'\n", "part/tests/test_it.py": test, "part/pytest.ini": "[pytest]\n"},
    )
    (world.repo / "part/src/shop.py").write_text("VALUE = 'not committed'\n")
    monkeypatch.setenv("PYTHONPATH", f"{world.repo}/part/src")
    at = where(source=str(world.repo / "part"))
    report = execute.run(fleet_of(world), at, "HEAD")
    assert report.outcome("tests/test_it.py::test_it") == "passed", report
    assert report.items["tests/test_it.py::test_it"].file == "part/tests/test_it.py"
    # One that no path shows is found out.
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "shop.py").write_text(
        f"exec(open({str(world.repo / 'part/src/shop.py')!r}).read())\n__file__ = {str(world.repo / 'part/src/shop.py')!r}\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}/site")
    report = execute.run(fleet_of(world), at, "HEAD", collect=True)
    assert report.outside == (str(world.repo / "part/src/shop.py"),)


@pytest.mark.slow
def test_with_xdist_it_is_the_same(zoo: World) -> None:
    """One that interrupts would end both workers, and whatever the other one runs."""
    words = ("-p", "xdist", "-n", "2", "--deselect", f"{FILE}::test_interrupts")
    report = execute.run(fleet_of(zoo), where(args=words), "HEAD", timeout=120)
    found = {id.removeprefix(f"{FILE}::"): case.outcome for id, case in report.cases.items()}
    expected = {name: outcome for name, outcome in OUTCOMES.items() if name != "test_interrupts"}
    assert found == expected
    assert set(report.items) == set(report.cases)


@pytest.mark.slow
def test_on_a_host_it_is_the_same(world: World, sshd: Sshd, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of muster is there; of the user's environment only what the login has."""
    monkeypatch.setenv("PATH", world.env["PATH"])
    project(world, {FILE: ZOO})
    before = state(world)
    fleet = fleet_of(world)
    report = execute.run(fleet, where(place="box"), "HEAD", timeout=120)
    found = {id.removeprefix(f"{FILE}::"): case.outcome for id, case in report.cases.items()}
    assert found == {**OUTCOMES, "test_sees_what_is_kept": "failed"}
    assert state(world) == before and world.agents() == {}
    assert report.agent.endswith("@box")


@pytest.mark.slow
def test_a_work_tree_of_the_users_repository_leaves_no_branch_either(zoo: World) -> None:
    before = [line for line in state(zoo)[0].splitlines() if "refs/muster/trash/" not in line]
    report = execute.run(fleet_of(zoo), where(mode="worktree"), "HEAD", [f"{FILE}::test_passes"])
    assert report.outcome(f"{FILE}::test_passes") == "passed"
    assert [line for line in state(zoo)[0].splitlines() if "refs/muster/trash/" not in line] == before
    assert len(zoo.git("worktree", "list").splitlines()) == 1


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["start", "working"])
def test_what_a_killed_process_left_is_swept(world: World, moment: str) -> None:
    project(world, {FILE: "import time\ndef test_hangs(): time.sleep(1000)\n"})
    world.ok("create", "mine", "command", "--label", "run=r", "--", "sleep", "1000")
    world.ok("create", "other", "command", "--label", "run=q", "--label", "role=trial", "--", "sleep", "1000")
    program = (
        "import os, signal, sys\nfrom muster import Fleet\nfrom muster.flow.suite import execute\n"
        "def told(event):\n    if event.step == 'seed' and sys.argv[1] == 'start': os.kill(os.getpid(), signal.SIGKILL)\n"
        "execute.run(Fleet(on_event=told), execute.Where('r', pytest=(sys.executable, '-m', 'pytest')), 'HEAD')\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program, moment], cwd=world.repo, env=world.env)

    def mine() -> list[str]:
        return [name for name in world.agents() if name.startswith("r-trial-")]

    if moment == "working":
        eventually(lambda: mine() and world.state(mine()[0]) == "working")
        process.send_signal(signal.SIGKILL)
    process.wait()
    (left,) = mine()
    assert execute.sweep(fleet_of(world), "r") == [left]
    assert sorted(world.agents()) == ["mine", "other"]
    assert "r-trial" not in world.git("for-each-ref", "refs/heads") + world.git("worktree", "list")
    assert execute.sweep(fleet_of(world), "r") == []


@pytest.mark.parametrize("mode", ["in-place", "copy", ""])
def test_what_is_no_clean_checkout_is_refused(zoo: World, mode: str) -> None:
    with pytest.raises(UsageError, match="is no clean checkout"):
        execute.run(fleet_of(zoo), where(mode=mode), "HEAD")
    assert (zoo.repo / "untracked").exists()


# What goes there


def test_more_tests_than_can_be_named_are_named_by_their_files() -> None:
    few = execute._plugin(where(), "/x", ["a.py::test_a"], ())
    tests = [f"tests/test_{number % 50}.py::test_{os.urandom(20).hex()}" for number in range(20_000)]
    many = execute._plugin(where(), "/x", tests, ())
    all_of_them = execute._plugin(where(), "/x", [os.urandom(20).hex() for _ in range(20_000)], ())
    assert told(few)["tests"] == ["a.py::test_a"]
    assert told(many)["tests"] == sorted({test.split("::")[0] for test in tests})
    assert told(all_of_them)["tests"] == []
    assert all(len(text.encode()) < 100_000 for text in (few, many, all_of_them))


def told(plugin: str) -> Any:
    import base64
    import zlib

    return json.loads(zlib.decompress(base64.b64decode(plugin.rpartition('begin("')[2].rpartition('")')[0])))


def test_the_probe_needs_nothing_but_pytest_and_python_3_8() -> None:
    text = (Path(execute.HERE) / "probe.py").read_text()
    tree = ast.parse(text, feature_version=(3, 8))
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.split(".")[0] for name in names} - set(sys.stdlib_module_names) == {"pytest"}
    assert len(text) < 24_000


# What is read


def lines(*told: dict[str, Any] | str) -> bytes:
    return b"".join((one if isinstance(one, str) else json.dumps(one)).encode() + b"\n" for one in told)


def one_test(*reports: tuple[str, str]) -> Case:
    heard = [{"k": "report", "id": "t", "when": when, "outcome": outcome} for when, outcome in reports]
    return execute.read(lines({"k": "start", "id": "t"}, *heard, {"k": "finish", "id": "t", "seconds": 2})).cases["t"]


@pytest.mark.parametrize(
    ("reports", "outcome"),
    [
        ([("call", "passed")], "passed"),
        ([("call", "failed")], "failed"),
        ([("setup", "failed")], "error"),
        ([("call", "passed"), ("teardown", "failed")], "error"),
        ([("call", "failed"), ("teardown", "failed")], "failed"),
        ([("setup", "skipped")], "skipped"),
        ([("call", "failed"), ("call", "passed")], "failed"),
        ([("call", "skipped"), ("call", "passed")], "passed"),
        ([("call", "rerun"), ("call", "passed")], "passed"),
        ([], "missing"),
    ],
)
def test_one_outcome_follows_from_the_phases(reports: list[tuple[str, str]], outcome: str) -> None:
    case = one_test(*reports)
    assert (case.outcome, case.seconds) == (outcome, 2.0)


RAW = lines(
    {"k": "session", "version": 1, "top": "/w"},
    {"k": "item", "id": "a.py::t[1]", "function": "a.py::t", "file": "a.py", "line": 1, "end": 3, "class": "", "marks": []},
    {"k": "start", "id": "a.py::t[1]"},
    {"k": "report", "id": "a.py::t[1]", "when": "call", "outcome": "failed", "xfail": False, "crash": ["a.py", 2, "no"], "text": "é\u001b[31mno"},
    {"k": "finish", "id": "a.py::t[1]", "seconds": 0.5},
    {"k": "start", "id": "a.py::u"},
    "Timeout (0:00:01)!",
    "Thread 0x1 (most recent call first):",
    '  File "/usr/lib/x.py", line 7 in other',
    "Thread 0x2 (most recent call first):",
    '  File "/usr/lib/python3.11/socket.py", line 700 in read',
    '  File "/w/a.py", line 9 in u',
    {"k": "session", "version": 1, "top": "/w"},
    {"k": "start", "id": "a.py::v"},
    {"k": "report", "id": "a.py::v", "when": "call", "outcome": "passed"},
    {"k": "finish", "id": "a.py::v", "seconds": 0.5},
    {"k": "end", "status": 1, "outside": []},
)  # fmt: skip


def test_a_report_says_what_happened() -> None:
    seen = execute.read(RAW)
    assert seen.items == {"a.py::t[1]": Item("a.py::t[1]", "a.py::t", "a.py", 1, 3)}
    assert {id: case.outcome for id, case in seen.cases.items()} == {
        "a.py::t[1]": "failed",
        "a.py::u": "hung",
        "a.py::v": "passed",
    }
    assert seen.cases["a.py::t[1]"].text == "éno"
    assert seen.cases["a.py::u"].crash == ("a.py", 9, "it hangs in u")
    assert seen.status == 1


def test_a_report_that_is_cut_off_is_read_up_to_there() -> None:
    whole = execute.read(RAW).cases
    known = 0
    for end in range(len(RAW)):
        seen = execute.read(RAW[:end]).cases
        finished = {
            id: case for id, case in seen.items() if case.text != "pytest ended while it ran" and id != "a.py::u"
        }
        assert finished.items() <= whole.items()
        assert len(finished) >= known
        known = len(finished)
    assert known == 2


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"null",
        b'{"k":["item"],"id":"x"}',
        b'{"k":"item","id":5}',
        b'{"k":"item","id":"x","line":-1,"end":"9","file":7,"marks":"skip","class":null}',
        b'{"k":"report","id":"x","outcome":["failed"],"when":{},"crash":[1,2,3],"text":{}}',
        b'{"k":"report","id":"x","outcome":"failed","when":"call","crash":"here","text":9}',
        b'{"k":"finish","id":"x","seconds":NaN}',
        b'{"k":"finish","id":"x","seconds":1e999}',
        b'{"k":"finish","id":"never begun","seconds":1}',
        b'{"k":"end","status":"9","outside":{}}',
        b'{"k":"end","status":' + b"9" * 5000 + b"}",
        b'{"k":"x","y":' + b"[" * 100_000,
        b'{"k":"start","id":"\\ud800"}',
        b"Timeout (\xff\xfe",
        b'  File "/w/a.py", line 99999999999999999999 in u',
        b"\0" * 1000,
    ],
)
def test_no_line_of_a_report_does_any_harm(line: bytes) -> None:
    raw = RAW + lines({"k": "start", "id": "x"}) + line + b"\n" + lines({"k": "finish", "id": "x", "seconds": 1})
    seen = execute.read(raw)
    assert {"a.py::t[1]", "a.py::u", "a.py::v", "x"} <= seen.cases.keys()
    assert all(case.outcome in execute.OUTCOMES and 0 <= case.seconds < 1e9 for case in seen.cases.values())
    json.dumps([seen.items, seen.cases, seen.errors, seen.status, seen.outside], allow_nan=False)


# Whether something is mended

BEFORE = {"a.py::t[1]": "failed", "a.py::t[2]": "passed", "a.py::u": "passed", "a.py::v": "failed", "a.py::w": "flaky"}
NOW = {"a.py::t[1]": "passed", "a.py::t[2]": "passed", "a.py::u": "passed", "a.py::v": "failed", "a.py::w": "failed"}
#: A row that is skipped as it was before says nothing.
BEFORE["a.py::t[s]"] = NOW["a.py::t[s]"] = "skipped"


@pytest.mark.parametrize(
    ("now", "words"),
    [
        ({}, ""),
        ({"a.py::t[1]": "failed"}, "a.py::t[1] is failed now: no"),
        ({"a.py::t[1]": "skipped"}, "a.py::t[1] is skipped now: no"),
        ({"a.py::t[1]": "xfailed"}, "a.py::t[1] is xfailed now: no"),
        ({"a.py::t[2]": "missing"}, "a.py::t[2] is gone, or did not run"),
        (dict.fromkeys(["a.py::t[1]", "a.py::t[2]", "a.py::t[s]"], "missing"), "a.py::t is gone, or did not run"),
        ({"a.py::t[3]": "skipped"}, "a.py::t[3] is skipped now: no"),
        ({"a.py::u": "hung"}, "a.py::u is hung now: no"),
        ({"a.py::u": "missing"}, "a.py::u is gone, or did not run"),
        ({"a.py::v": "missing", "a.py::w": "missing"}, ""),
        ({"a.py::new": "error"}, "a.py::new is new, and error: no"),
        ({"a.py::new": "skipped"}, ""),
        ({"a.py::t[s]": "xfailed"}, "a.py::t[s] is xfailed now: no"),
        ({"a.py::t[s]": "missing"}, "a.py::t[s] is gone, or did not run"),
    ],
)
def test_what_speaks_against_a_fix_is_said(now: dict[str, str], words: str) -> None:
    outcomes = {**NOW, **now}
    cases = {id: Case(id, one, text="why\nno\n") for id, one in outcomes.items() if one != "missing"}
    assert execute.objection(Report(cases=cases), "a.py::t", BEFORE)[0] == words


def test_a_row_that_vanished_from_a_neighbour_speaks_against_a_fix() -> None:
    before = {"a.py::t": "failed", "a.py::u[1]": "failed", "a.py::u[2]": "failed", "a.py::v[1]": "failed"}
    cases = {id: Case(id, "passed") for id in ("a.py::t", "a.py::u[1]")}
    assert execute.objection(Report(cases=cases), "a.py::t", before)[0] == "a.py::u[2] is gone, or did not run"
    del before["a.py::u[2]"]
    assert execute.objection(Report(cases=cases), "a.py::t", before)[0] == "", "one that failed may go as a whole"


def test_one_test_of_a_function_must_pass() -> None:
    cases = {"a.py::t[s]": Case("a.py::t[s]", "skipped")}
    words = execute.objection(Report(cases=cases), "a.py::t", {"a.py::t[s]": "skipped"})[0]
    assert words == "a.py::t is gone, or did not run"
    assert execute.unfixed(Report(cases=cases), "a.py::t", {"a.py::t[s]": "skipped"}) == "a.py::t"
    assert execute.unfixed(Report(cases=cases), "a.py::t", {}) == "a.py::t[s]"
    well = {**cases, "a.py::t[1]": Case("a.py::t[1]", "passed")}
    assert execute.unfixed(Report(cases=well), "a.py::t", {"a.py::t[s]": "skipped"}) == ""
    assert (
        execute.unfixed(Report(cases=well), "a.py::t", {"a.py::t[s]": "skipped", "a.py::t[2]": "failed"})
        == "a.py::t[2]"
    )


@pytest.mark.parametrize(
    ("id", "was", "now", "words"),
    [
        ("a.py::t[1]", "passed", "failed", "a.py::t[1] is failed now: no"),
        ("a.py::t[1]", "passed", "skipped", "a.py::t[1] is skipped now: no"),
        ("a.py::t[1]", "passed", "missing", "a.py::t[1] is gone, or did not run"),
        ("a.py::t[1]", "failed", "missing", "a.py::t[1] is gone, or did not run"),
        ("a.py::t[1]", "skipped", "missing", ""),
        ("a.py::t[1]", "failed", "skipped", ""),
        ("a.py::kept", "passed", "missing", "a.py::kept is gone, or did not run"),
        ("a.py::taken", "passed", "missing", ""),
        ("a.py::taken[1]", "passed", "missing", ""),
    ],
)
def test_what_got_worse_in_a_run_of_all_tests_is_said(id: str, was: str, now: str, words: str) -> None:
    outcomes = {"a.py::t[2]": "passed", id: now}
    cases = {id: Case(id, one, text="why\nno\n") for id, one in outcomes.items() if one != "missing"}
    found = list(
        execute.worse(Report(cases=cases), {id: was, "a.py::t[2]": "passed"}, lambda one: one == "a.py::taken")
    )
    assert found == ([(id, words)] if words else [])


def test_what_is_named_anew_each_time_counts_as_one_test() -> None:
    names = {"a.py::t[9]": "passed", "a.py::t[8]": "failed", "a.py::t[7]": "hung", "a.py::u[1]": "passed"}
    items = {id: Item(id, id.partition("[")[0], "a.py", 1, 2) for id in names}
    seen = Report(items=items, cases={id: Case(id, outcome) for id, outcome in names.items()})
    settled = seen.settled(frozenset({"a.py::t"}))
    assert {id: case.outcome for id, case in settled.cases.items()} == {"a.py::t": "hung", "a.py::u[1]": "passed"}
    assert set(settled.items) == {"a.py::t", "a.py::u[1]"}


def test_code_that_is_not_the_checkouts_speaks_against_a_fix() -> None:
    seen = Report(cases={id: Case(id, one) for id, one in NOW.items()}, outside=("/home/u/shop.py",))
    assert "/home/u/shop.py was imported" in execute.objection(seen, "a.py::t", BEFORE)[0]


def test_a_file_that_cannot_be_collected_speaks_against_a_fix() -> None:
    seen = Report(errors={"a.py": "E   SyntaxError: invalid syntax\n"})
    assert execute.objection(seen, "a.py::t", BEFORE)[0] == "a.py cannot be collected: E   SyntaxError: invalid syntax"


def test_a_run_that_did_not_come_to_its_end_says_nothing() -> None:
    cases = {"a.py::t": Case("a.py::t", "passed")}
    whole = Report(cases=cases, status=0)
    assert [execute.unusable(whole._replace(status=status)) for status in (0, 1, 5)] == ["", "", ""]
    ended = [whole._replace(status=status) for status in (None, 2, 3, 4)] + [whole._replace(cases={})]
    assert {execute.unusable(one) for one in ended} == {"pytest did not come to its end"}
    assert execute.unusable(whole._replace(late=True)) == "the time was up"
    assert execute.unusable(whole._replace(errors={"a.py": "E"})) == "a.py cannot be collected"
    assert "its own checkout" in execute.unusable(whole._replace(outside=("/home/u/shop.py",)))


def test_a_change_by_which_no_test_runs_any_more_is_refused(world: World) -> None:
    project(world, {"test_a.py": "def test_x(): pass\n"})
    change = project(world, {"conftest.py": "def pytest_runtestloop(): raise SystemExit(0)\n"})
    found = execute.check_change(fleet_of(world), where(), change, {"test_a.py::test_x": "passed"}, times=1)
    assert (found.ok, found.words) == (False, "pytest did not come to its end")


def test_a_change_by_which_tests_vanish_is_refused(world: World) -> None:
    """Which rows a test has can be written anywhere."""
    test = "import pytest, cases\n@pytest.mark.parametrize('x', cases.CASES)\ndef test_x(x): assert x\ndef test_y(): pass\n"
    base = project(world, {"test_a.py": test, "cases.py": "CASES = [1, 2, 3]\n"})
    change = project(world, {"cases.py": "CASES = [1, 2]\n"})
    before = {f"test_a.py::test_x[{row}]": "passed" for row in (1, 2, 3)} | {"test_a.py::test_y": "passed"}
    found = execute.check_change(fleet_of(world), where(), change, before, times=1)
    assert (found.ok, found.words) == (False, "test_a.py::test_x[3] is gone, or did not run")
    taken = project(world, {"cases.py": "CASES = [1, 2, 3]\n", "test_a.py": test.partition("def test_y")[0]})
    refused = execute.check_change(fleet_of(world), where(), taken, before, times=1)
    assert (refused.ok, refused.words) == (False, "test_a.py::test_y is gone, or did not run")
    judged = execute.check_change(
        fleet_of(world), where(), taken, before, times=1, removed=lambda function: function == "test_a.py::test_y"
    )
    assert judged.ok and base != taken


def test_another_command_sees_no_more_of_the_environment_than_tests_do(world: World) -> None:
    commit = project(world, {"a.py": ""})
    code, screen = execute.command(fleet_of(world), where(), commit, ("sh", "-c", "env; exit 3"))
    assert code == 3 and "MY_SETTING=a 'b'" in screen and "PATH=" in screen
    assert "s3cret" not in screen and "MY_TOKEN" not in screen


def test_a_fix_counts_when_it_passes_each_time_in_a_checkout_of_its_own(world: World) -> None:
    """The second commit passes only where nothing was left by a run before it."""
    base = project(world, {"test_a.py": "import os\ndef test_x():\n    assert 0\ndef test_y(): pass\n"})
    good = project(world, {"test_a.py": "import os\ndef test_x():\n    os.mkdir('made')\ndef test_y(): pass\n"})
    bad = project(world, {"test_a.py": "def test_x(): pass\n"})
    fleet, before = fleet_of(world), {"test_a.py::test_x": "failed", "test_a.py::test_y": "passed"}
    verified = execute.check_fix(fleet, where(), good, "test_a.py::test_x", before, times=2)
    assert verified.ok and verified.words == "passed 2 of 2 times"
    seen = [dict.fromkeys(before, "passed"), {"test_a.py::test_x": "passed"}]
    assert [run["outcomes"] for run in verified.evidence] == seen, "its neighbours once"
    assert {run["commit"] for run in verified.evidence} == {good}
    refused = execute.check_fix(fleet, where(), bad, "test_a.py::test_x", before, times=2)
    assert (
        not refused.ok and refused.words == "test_a.py::test_y is gone, or did not run" and len(refused.evidence) == 1
    )
    unfair = execute.check_fix(fleet, where(), base, "test_a.py::test_y", before)
    assert (unfair.ok, unfair.evidence) == (False, [])
    changed = execute.check_fix(fleet, where(), base, "test_a.py::test_y", before, times=1, fix=False)
    assert changed.ok and changed.evidence[0]["outcomes"]["test_a.py::test_x"] == "failed"
    json.dumps(verified.evidence)


def test_a_neighbour_that_wavers_without_the_change_says_nothing_against_it(world: World, tmp_path: Path) -> None:
    count = f"import pathlib\nfile = pathlib.Path({str(tmp_path / 'count')!r})\n"
    wavers = (
        count + "def test_n():\n    file.write_text((file.read_text() if file.exists() else '') + 'x')\n"
        "    assert len(file.read_text()) % 3 != 1\n"
    )
    base = project(world, {"test_a.py": wavers + "def test_x():\n    assert 0\n"})
    good = project(world, {"test_a.py": wavers + "def test_x():\n    assert 1\n"})
    before = {"test_a.py::test_x": "failed", "test_a.py::test_n": "passed"}
    fleet = fleet_of(world)
    verified = execute.check_fix(fleet, where(), good, "test_a.py::test_x", before, times=2, base=base)
    assert verified.ok, verified.words
    (tmp_path / "count").unlink()
    refused = execute.check_fix(fleet, where(), good, "test_a.py::test_x", before, times=2)
    assert not refused.ok and "test_n is failed now" in refused.words, "where nobody knows better it counts"


# Which code they import

VALUE = "VALUE = {!r}\n"
IMPORTS = """
import subprocess, sys
import {module}

def test_it(tmp_path):
    assert {module}.VALUE == "committed"
    script = "import {module}; print({module}.VALUE)"
    assert subprocess.run([sys.executable, "-c", script], cwd=tmp_path, stdout=-1).stdout == b"committed\\n"
"""
#: The packages of a project by their paths, what has to come first on sys.path, and the module that the test imports.
LAYOUTS = {
    "src": ({"shop": "src/shop"}, ("src",), "shop"),
    "flat": ({"shop": "shop"}, (".",), "shop"),
    "module": ({"shop": "lib/shop"}, ("lib",), "shop"),
    "several": ({"shop": "packages/a-shop/src/shop", "till": "packages/till/src/till"}, ("packages/a-shop/src", "packages/till/src"), "till"),
    "namespace": ({"acme/shop": "src/acme/shop"}, ("src",), "acme.shop"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("layout", "style"),
    [
        pytest.param(layout, style, marks=() if layout == "src" or style == "plain" else pytest.mark.slow)
        for layout in LAYOUTS
        for style in installs.STYLES
        if (layout, style) != ("namespace", "finder")  # setuptools maps a namespace by a path hook of its own
    ],
)
def test_tests_import_their_checkout_however_the_project_is_installed(
    world: World, tmp_path: Path, layout: str, style: str
) -> None:
    """The user's folder and the installed copy have other values; the program that a test starts imports the checkout too."""
    packages, roots, module = LAYOUTS[layout]
    files = {path + (".py" if layout == "module" else "/__init__.py") for path in packages.values()}
    project(
        world,
        {
            **dict.fromkeys(files, VALUE.format("committed")),
            "pyproject.toml": '[project]\nname = "the-shop"\n',
            "tests/test_it.py": IMPORTS.format(module=module),
            ".gitignore": "build\n",
        },
    )
    for file in files:
        (world.repo / file).write_text(VALUE.format("not committed"))
    python = installs.environment(tmp_path / "env", world.repo, style, packages)
    if layout == "namespace" and style == "path":
        (next((tmp_path / "env").rglob("__editable__.the_shop.pth"))).write_text(f"{world.repo}/src\n")
    report = execute.run(fleet_of(world), where(pytest=(python, "-m", "pytest")), "HEAD")
    assert report.outcome("tests/test_it.py::test_it") == "passed", report
    assert set(report.roots) == set(roots) and not report.outside
    lint = (python, "-c", f"import {module}; print({module}.VALUE)")
    assert execute.command(fleet_of(world), where(roots=report.roots), "HEAD", lint) == (0, "committed")


def test_an_installed_package_of_somebody_else_is_left_where_it_is(world: World, tmp_path: Path) -> None:
    """A vendored copy of a library, and a folder that happens to be called like one, hide nothing that is installed."""
    project(
        world,
        {
            "vendor/shop/__init__.py": VALUE.format("vendored"),
            "pyproject.toml": '[project]\nname = "something-else"\n',
            "tests/test_it.py": "import shop\n\ndef test_it():\n    assert shop.VALUE == 'installed'\n",
        },
    )
    (tmp_path / "library" / "shop").mkdir(parents=True)
    (tmp_path / "library" / "shop" / "__init__.py").write_text(VALUE.format("installed"))
    python = installs.environment(tmp_path / "env", tmp_path / "library", "plain", {"shop": "shop"})
    report = execute.run(fleet_of(world), where(pytest=(python, "-m", "pytest")), "HEAD")
    assert report.outcome("tests/test_it.py::test_it") == "passed" and report.roots == (), report


def test_files_that_only_the_installed_package_has_are_named(world: World, tmp_path: Path) -> None:
    test = "import shop\n\ndef test_it():\n    assert shop.VALUE\n"
    init = "from shop._version import VALUE\n"
    project(world, {"src/shop/__init__.py": init, "tests/test_it.py": test, ".gitignore": "_version.py\n"})
    (world.repo / "src/shop/_version.py").write_text(VALUE.format("1.0"))
    python = installs.environment(tmp_path / "env", world.repo, "finder", {"shop": "src/shop"})
    report = execute.run(fleet_of(world), where(pytest=(python, "-m", "pytest")), "HEAD", collect=True)
    assert report.errors and report.unbuilt == ("src/shop/_version.py",)
    with pytest.raises(UsageError, match="cannot collect") as raised:
        collect.check(report, ran=False)
    assert "src/shop/_version.py" in raised.value.hint and "[workdir] copy" in raised.value.hint


@pytest.mark.parametrize("root", ["/etc", "../x", "a/../../x", "a:b", "", "a\nb", 7, None])
def test_a_root_that_leads_out_of_the_checkout_is_none(root: object) -> None:
    told = json.dumps({"k": "session", "roots": [root, "src"]})
    assert execute.read(told.encode()).roots == ("src",)
