"""Tests run by real agents: real pytest in a clean checkout, on this machine and on another host."""

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
from muster.flow.suite.execute import Suite
from muster.flow.suite.report import Report
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


def suite(**more: Any) -> Suite:
    keep = ("MY_SETTING", "PYTEST_DISABLE_PLUGIN_AUTOLOAD")
    return Suite(
        **{"run": "r", "pytest": (sys.executable, "-m", "pytest"), "keep_env": keep, "test_seconds": 2.0, **more}
    )


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
    report = execute.run(fleet_of(zoo), suite(), "HEAD", timeout=120)
    assert state(zoo) == before
    return report


def test_every_test_has_its_own_outcome(report: Report) -> None:
    assert {id.removeprefix(f"{FILE}::"): case.outcome for id, case in report.cases.items()} == OUTCOMES
    assert list(report.items) == list(report.cases)
    assert not report.timed_out and not report.errors and not report.outside


def test_a_failure_has_a_place_and_a_message(report: Report) -> None:
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


def test_running_tests_leaves_nothing_behind(zoo: World, report: Report) -> None:
    assert zoo.agents() == {}
    work = list((zoo.muster_home / "trash").glob("*/work/*"))
    assert (zoo.muster_home / "trash").exists() and work == []


def test_only_the_named_tests_run(zoo: World) -> None:
    odd = [f"{FILE}::{name}" for name in OUTCOMES if name.startswith("test_odd")]
    asked = [*odd[1:6], f"{FILE}::TestClass", f"{FILE}::test_none", "tests/test_gone.py::test_x"]
    report = execute.run(fleet_of(zoo), suite(), "HEAD", asked)
    assert list(report.cases) == [*odd[1:6], f"{FILE}::TestClass::test_inside"]
    assert report.outcome(f"{FILE}::test_none") == "missing"


def test_parts_become_one_report_and_files_in_no_part_run_too(world: World) -> None:
    test = "def test_{0}(): assert {1}\n"
    commit = project(world, {f"test_{name}.py": test.format(name, int(name != "b")) for name in "abc"})
    report = execute.run_in_parts(fleet_of(world), suite(), commit, [["test_a.py", "test_gone.py"], ["test_b.py"]])
    outcomes = {id.partition("::")[0]: case.outcome for id, case in report.cases.items()}
    assert outcomes == {"test_a.py": "passed", "test_b.py": "failed", "test_c.py": "passed"}
    assert (report.status, report.commit, set(report.items)) == (1, commit, set(report.cases))
    rest = execute.run_in_parts(fleet_of(world), suite(), commit, [["test_gone.py"], ["test_b.py"]])
    assert len(rest.cases) == 3 and rest.status == 1, "a part without tests says nothing"
    last = project(world, {"test_b.py": "import os\ndef test_b(): os._exit(3)\n"})
    died = execute.run_in_parts(fleet_of(world), suite(), last, [["test_a.py", "test_c.py"], ["test_b.py"]])
    assert len(died.cases) == 3 and died.outcome("test_b.py::test_b") == "error", (
        "also of one that ends the interpreter"
    )
    dead = project(world, {"conftest.py": "def pytest_runtestloop(): raise SystemExit(0)\n"})
    assert execute.run_in_parts(fleet_of(world), suite(), dead, [["test_a.py"], ["test_b.py"]]).status not in (0, 1)


@pytest.mark.slow
def test_a_timeout_names_the_test_that_was_running(zoo: World) -> None:
    report = execute.run(
        fleet_of(zoo), suite(test_seconds=0.0), "HEAD", [f"{FILE}::test_passes", f"{FILE}::test_hangs"], timeout=2
    )
    assert report.timed_out and report.status is None
    assert [case.outcome for case in report.cases.values()] == ["passed", "hung"]
    assert zoo.agents() == {}


@pytest.mark.slow
def test_stopping_the_agent_is_an_error_and_leaves_nothing_behind(zoo: World) -> None:
    fleet, stopped = fleet_of(zoo), []

    def look(one: Any) -> Any:
        status = Fleet.look(fleet, one)
        if status.state == "working" and not stopped:
            stopped.append(fleet.stop(one, 0))
        return status

    fleet.look = look  # type: ignore[method-assign]
    with pytest.raises(MusterError, match="was stopped before its tests ended"):
        execute.run(fleet, suite(test_seconds=0.0), "HEAD", [f"{FILE}::test_hangs"], timeout=60)
    assert zoo.agents() == {}


@pytest.mark.slow
def test_a_test_that_fails_and_hangs_in_teardown_is_hung(world: World) -> None:
    """pytest takes away the clock that was set before a failure."""
    text = "import time\ndef test_it(request):\n    request.addfinalizer(lambda: time.sleep(1000))\n    assert 0\ndef test_b(): pass\n"
    project(world, {"test_a.py": text})
    report = execute.run(fleet_of(world), suite(test_seconds=1.0), "HEAD", timeout=120)
    assert [case.outcome for case in report.cases.values()] == ["hung", "passed"] and not report.timed_out


@pytest.mark.slow
def test_an_interrupted_session_may_end_slowly(world: World) -> None:
    """The clock that was set for a test is not for what comes after it."""
    test = "def test_a(): raise KeyboardInterrupt\ndef test_b(): pass\n"
    project(world, {"test_a.py": test, "conftest.py": "import time\ndef pytest_sessionfinish(): time.sleep(2)\n"})
    report = execute.run(fleet_of(world), suite(test_seconds=1.0), "HEAD", timeout=120)
    assert [case.outcome for case in report.cases.values()] == ["error", "passed"]


def test_a_host_that_does_not_answer_for_a_while_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
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
    with pytest.raises(TimedOut, match="is still running after its timeout"):
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
    at = suite(source=str(world.repo / "part"))
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
def test_xdist_gives_the_same_outcomes(zoo: World) -> None:
    """One that interrupts would end both workers, and whatever the other one runs."""
    words = ("-p", "xdist", "-n", "2", "--deselect", f"{FILE}::test_interrupts")
    report = execute.run(fleet_of(zoo), suite(args=words), "HEAD", timeout=120)
    found = {id.removeprefix(f"{FILE}::"): case.outcome for id, case in report.cases.items()}
    expected = {name: outcome for name, outcome in OUTCOMES.items() if name != "test_interrupts"}
    assert found == expected
    assert set(report.items) == set(report.cases)


@pytest.mark.slow
def test_another_host_gives_the_same_outcomes(world: World, sshd: Sshd, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of muster is there; of the user's environment only what the login has."""
    monkeypatch.setenv("PATH", world.env["PATH"])
    project(world, {FILE: ZOO})
    before = state(world)
    fleet = fleet_of(world)
    report = execute.run(fleet, suite(place="box"), "HEAD", timeout=120)
    found = {id.removeprefix(f"{FILE}::"): case.outcome for id, case in report.cases.items()}
    assert found == {**OUTCOMES, "test_sees_what_is_kept": "failed"}
    assert state(world) == before and world.agents() == {}
    assert report.agent.endswith("@box")


@pytest.mark.slow
def test_worktree_mode_leaves_no_branch(zoo: World) -> None:
    before = [line for line in state(zoo)[0].splitlines() if "refs/muster/trash/" not in line]
    report = execute.run(fleet_of(zoo), suite(mode="worktree"), "HEAD", [f"{FILE}::test_passes"])
    assert report.outcome(f"{FILE}::test_passes") == "passed"
    assert [line for line in state(zoo)[0].splitlines() if "refs/muster/trash/" not in line] == before
    assert len(zoo.git("worktree", "list").splitlines()) == 1


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["start", "working"])
def test_leftovers_of_a_killed_process_are_removed(world: World, moment: str) -> None:
    project(world, {FILE: "import time\ndef test_hangs(): time.sleep(1000)\n"})
    world.ok("create", "mine", "command", "--label", "run=r", "--", "sleep", "1000")
    world.ok("create", "other", "command", "--label", "run=q", "--label", "role=tests", "--", "sleep", "1000")
    program = (
        "import os, signal, sys\nfrom muster import Fleet\nfrom muster.flow.suite import execute\n"
        "def told(event):\n    if event.step == 'seed' and sys.argv[1] == 'start': os.kill(os.getpid(), signal.SIGKILL)\n"
        "execute.run(Fleet(on_event=told), execute.Suite('r', pytest=(sys.executable, '-m', 'pytest')), 'HEAD')\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program, moment], cwd=world.repo, env=world.env)

    def mine() -> list[str]:
        return [name for name in world.agents() if name.startswith("r-tests-")]

    if moment == "working":
        eventually(lambda: mine() and world.state(mine()[0]) == "working")
        process.send_signal(signal.SIGKILL)
    process.wait()
    (left,) = mine()
    assert execute.remove_leftovers(fleet_of(world), "r") == [left]
    assert sorted(world.agents()) == ["mine", "other"]
    assert "r-tests-" not in world.git("for-each-ref", "refs/heads") + world.git("worktree", "list")
    assert execute.remove_leftovers(fleet_of(world), "r") == []


@pytest.mark.parametrize("mode", ["in-place", "copy", ""])
def test_modes_without_a_clean_checkout_are_refused(zoo: World, mode: str) -> None:
    with pytest.raises(UsageError, match="makes no clean checkout"):
        execute.run(fleet_of(zoo), suite(mode=mode), "HEAD")
    assert (zoo.repo / "untracked").exists()


# What goes there


def test_too_many_tests_are_named_by_their_files() -> None:
    few = execute._plugin(suite(), "/x", ["a.py::test_a"], ())
    tests = [f"tests/test_{number % 50}.py::test_{os.urandom(20).hex()}" for number in range(20_000)]
    many = execute._plugin(suite(), "/x", tests, ())
    all_of_them = execute._plugin(suite(), "/x", [os.urandom(20).hex() for _ in range(20_000)], ())
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


def test_a_command_sees_the_same_environment_as_tests(world: World) -> None:
    commit = project(world, {"a.py": ""})
    code, screen = execute.command(fleet_of(world), suite(), commit, ("sh", "-c", "env; exit 3"))
    assert code == 3 and "MY_SETTING=a 'b'" in screen and "PATH=" in screen
    assert "s3cret" not in screen and "MY_TOKEN" not in screen


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
    report = execute.run(fleet_of(world), suite(pytest=(python, "-m", "pytest")), "HEAD")
    assert report.outcome("tests/test_it.py::test_it") == "passed", report
    assert set(report.roots) == set(roots) and not report.outside
    lint = (python, "-c", f"import {module}; print({module}.VALUE)")
    assert execute.command(fleet_of(world), suite(roots=report.roots), "HEAD", lint) == (0, "committed")


def test_installed_packages_of_others_are_not_redirected(world: World, tmp_path: Path) -> None:
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
    report = execute.run(fleet_of(world), suite(pytest=(python, "-m", "pytest")), "HEAD")
    assert report.outcome("tests/test_it.py::test_it") == "passed" and report.roots == (), report


def test_files_that_only_the_installed_package_has_are_named(world: World, tmp_path: Path) -> None:
    test = "import shop\n\ndef test_it():\n    assert shop.VALUE\n"
    init = "from shop._version import VALUE\n"
    project(world, {"src/shop/__init__.py": init, "tests/test_it.py": test, ".gitignore": "_version.py\n"})
    (world.repo / "src/shop/_version.py").write_text(VALUE.format("1.0"))
    python = installs.environment(tmp_path / "env", world.repo, "finder", {"shop": "src/shop"})
    report = execute.run(fleet_of(world), suite(pytest=(python, "-m", "pytest")), "HEAD", collect=True)
    assert report.errors and report.unbuilt == ("src/shop/_version.py",)
    with pytest.raises(UsageError, match="cannot collect") as raised:
        collect.check(report, ran=False)
    assert "src/shop/_version.py" in raised.value.hint and "[workdir] copy" in raised.value.hint
