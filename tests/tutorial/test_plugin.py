"""Tests of the pytest plugin in separate pytest runs: options, artifacts, outcomes, leaks, the check, pytest-xdist."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from muster.tutorial.artifacts import folder_of_test
from muster.tutorial.terminal import exists

HEAD = "import pytest\nfrom muster.tutorial import E2eSession, expect\n"
#: The test of the case study, with the two changes that product.md names.
SAMPLE = '''
def test_help_succeeds(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # or see the other commands--list, destroy, message, connect, push, pull, clone, and more! These other commands are covered in their own sections below.
    muster --help
    """)
    result = e2e.run(
        "muster --help",
        comment="or see the other commands--list, destroy, message, connect, push, pull, clone, and more!",
    )
    expect(result).to_succeed()
    expect(result.stdout).to_contain("Usage")
    expect(result.stdout).to_contain("create")
    expect(result.stdout).to_contain("list")
'''


class Project:
    """A folder with tests, and methods to run pytest on them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "pytest.ini").write_text("[pytest]\n")

    def test(self, text: str, name: str = "tests/test_a.py") -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(HEAD + textwrap.dedent(text))

    def ini(self, **options: str) -> None:
        lines = "".join(f"{key} = {value}\n" for key, value in options.items())
        (self.folder / "pytest.ini").write_text(f"[pytest]\n{lines}")

    def run(self, *argv: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", *argv],
            cwd=self.folder,
            env={**os.environ, **(env or {})},
            capture_output=True,
            text=True,
            check=False,
        )

    def facts(self, nodeid: str, folder: str = ".muster/e2e") -> dict[str, Any]:
        path = folder_of_test(self.folder / folder, nodeid) / "test.json"
        found: dict[str, Any] = json.loads(path.read_text())
        return found

    def text(self, nodeid: str) -> str:
        return (folder_of_test(self.folder / ".muster/e2e", nodeid) / "transcript.txt").read_text()


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_the_sample_of_the_case_study_passes(project: Project) -> None:
    project.test(SAMPLE)
    done = project.run()
    assert done.returncode == 0, done.stdout
    transcript = project.text("tests/test_a.py::test_help_succeeds").splitlines()
    assert transcript[:2] == [
        "# or see the other commands--list, destroy, message, connect, push, pull, clone, and more!",
        "$ muster --help",
    ]
    assert transcript[2].startswith("Usage: ") and transcript[-1] == "? 0"


def test_every_outcome_is_recorded_with_its_message(project: Project) -> None:
    project.test("""
        @pytest.fixture
        def broken(): raise RuntimeError("no set-up")
        @pytest.fixture
        def breaks(e2e):
            yield
            raise RuntimeError("no tear-down")
        def test_passes(e2e): expect(e2e.run("true")).to_succeed()
        def test_fails(e2e): expect(e2e.run("echo hello; exit 3")).to_succeed()
        def test_set_up(e2e, broken): pass
        def test_tear_down(breaks): pass
        def test_skips(e2e): pytest.skip("not today")
        @pytest.mark.xfail(reason="known")
        def test_known(e2e): assert False
        @pytest.mark.parametrize("text", ["a b", "a/b", "ü"])
        def test_many(e2e, text): expect(e2e.run(f"echo {text}").stdout).to_equal(text + "\\n")
        class TestGroup:
            def test_passes(self, e2e): pass
        def test_without(): pass
    """)
    done = project.run()
    assert done.returncode == 1
    outcomes = {
        facts["name"]: facts["outcome"]
        for path in (project.folder / ".muster/e2e/tests").glob("*/test.json")
        for facts in [json.loads(path.read_text())]
    }
    assert outcomes == {
        "test_passes": "passed",
        "test_fails": "failed",
        "test_set_up": "error",
        "test_tear_down": "error",
        "test_skips": "skipped",
        "test_known": "xfailed",
        "test_many[a b]": "passed",
        "test_many[a/b]": "passed",
        "test_many[\\xfc]": "passed",
        "TestGroup::test_passes": "passed",
    }
    failed = project.facts("tests/test_a.py::test_fails")
    assert "expected the command to succeed, but it exited with 3" in failed["message"] and failed["duration"] > 0
    assert "not today" in project.facts("tests/test_a.py::test_skips")["message"]
    assert "expected the command to succeed, but it exited with 3" in done.stdout and "! " not in done.stdout
    run = json.loads((project.folder / ".muster/e2e/run.json").read_text())
    assert run["exit_code"] == 1 and run["ended"] >= run["started"]


def test_a_suite_without_the_fixture_imports_and_writes_nothing(project: Project) -> None:
    project.test(
        """
        import sys
        def test_it():
            assert sorted(name for name in sys.modules if name.split(".")[0] == "muster") == [
                "muster", "muster.tutorial", "muster.tutorial.pytest_plugin"]
    """.replace("import sys", "import sys", 1)
    )
    path = project.folder / "tests/test_a.py"
    path.write_text(path.read_text().replace("from muster.tutorial import E2eSession, expect\n", ""))
    done = project.run()
    assert done.returncode == 0, done.stdout
    assert not (project.folder / ".muster").exists()


def test_importing_the_plugin_takes_less_than_5_ms() -> None:
    """Measured in CPU time with compiled files, as installed. The best of several attempts excludes other load."""
    program = (
        "import pytest, time\n"
        "before = time.process_time()\n"
        "import muster.tutorial.pytest_plugin\n"
        "print((time.process_time() - before) * 1000)\n"
    )
    env = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    argv = [sys.executable, "-c", program]
    times = [float(subprocess.run(argv, env=env, capture_output=True, text=True, check=True).stdout) for _ in range(7)]
    assert min(times) < 5, times


def test_artifacts_go_to_the_given_folder_and_a_test_replaces_its_own(project: Project) -> None:
    project.test("""
        def test_a(e2e): e2e.run("echo first")
        def test_b(e2e): e2e.run("echo b")
    """)
    assert project.run("--e2e-artifacts", "out").returncode == 0
    first = project.facts("tests/test_a.py::test_b", "out")
    project.test("""
        def test_a(e2e): e2e.run("echo second")
        def test_b(e2e): e2e.run("echo b")
    """)
    assert project.run("--e2e-artifacts", "out", "tests/test_a.py::test_a").returncode == 0
    text = (folder_of_test(project.folder / "out", "tests/test_a.py::test_a") / "transcript.txt").read_text()
    assert text == "$ echo second\nsecond\n? 0\n"
    assert project.facts("tests/test_a.py::test_b", "out") == first
    assert (project.folder / "out" / ".gitignore").read_text() == "*\n" and not (project.folder / ".muster").exists()


def test_a_killed_test_stays_running_in_test_json_and_keeps_its_transcript(project: Project) -> None:
    project.test("""
        import os
        def test_it(e2e):
            e2e.run("echo so far")
            os.kill(os.getpid(), 9)
    """)
    assert project.run().returncode == -9
    assert project.facts("tests/test_a.py::test_it")["outcome"] == "running"
    assert project.text("tests/test_a.py::test_it") == "$ echo so far\nso far\n? 0\n"


LEAKY = """
    def test_leaks(e2e):
        e2e.run("setsid sleep 1000 & tmux new-session -d -s mine; touch $OUTSIDE/stray")
    def test_clean(e2e):
        e2e.run("true")
        e2e.start("sleep 1000")
        e2e.terminal("cat")
    def test_ends(e2e):
        e2e.run("setsid sleep 0.6 >/dev/null 2>&1 &")
"""


def test_leaks_of_a_test_are_reported_and_ended(project: Project) -> None:
    outside = project.folder / "outside"
    outside.mkdir()
    project.test(LEAKY)
    project.ini(e2e_watch="outside", e2e_pass_env="OUTSIDE")
    done = project.run(env={"OUTSIDE": str(outside)})
    assert done.returncode == 0, done.stdout
    leaks = project.facts("tests/test_a.py::test_leaks")["leaks"]
    assert [leak.split(" ")[0] for leak in leaks] == ["tmux", "process", "file"]
    assert leaks[1].endswith(": sleep 1000") and leaks[2] == f"file {outside}/stray"
    assert project.facts("tests/test_a.py::test_clean")["leaks"] == []
    assert project.facts("tests/test_a.py::test_ends")["leaks"] == [], "a process that exits by itself is not a leak"
    assert (
        "left behind by e2e tests" in done.stdout and "tests/test_a.py::test_leaks\n  tmux session mine" in done.stdout
    )
    assert not exists(leaks[1].split()[1].rstrip(":"))
    assert "~ left behind: file" in project.text("tests/test_a.py::test_leaks")


def test_leaks_can_be_errors_or_ignored(project: Project) -> None:
    project.test(LEAKY)
    env = {"OUTSIDE": str(project.folder)}
    project.ini(e2e_pass_env="OUTSIDE", e2e_leaks="error", e2e_watch="/no/such")
    done = project.run(env=env)
    assert done.returncode == 1 and "the test left behind:" in done.stdout and "1 error" in done.stdout
    assert project.facts("tests/test_a.py::test_leaks")["outcome"] == "error"
    done = project.run("--e2e-leaks", "ignore", env=env)
    assert done.returncode == 0 and "left behind" not in done.stdout


def test_sandbox_folders_are_kept_on_request(project: Project) -> None:
    project.test("""
        def test_good(e2e): e2e.run("touch here")
        def test_bad(e2e):
            e2e.run("touch here")
            assert False
    """)
    kept = {}
    for policy in ("never", "failed", "always"):
        project.run("--e2e-keep", policy)
        kept[policy] = [project.facts(f"tests/test_a.py::test_{name}")["kept_folder"] for name in ("good", "bad")]
    assert kept["never"] == [None, None] and kept["failed"][0] is None
    for folder in (kept["failed"][1], *kept["always"]):
        assert Path(folder, "work", "here").exists()
        subprocess.run(["rm", "-rf", folder], check=True)


def test_a_failed_recording_is_an_error_of_the_test(project: Project) -> None:
    project.test("""
        import json, os
        def test_it(e2e):
            terminal = e2e.terminal("echo up; sleep 1000")
            expect(terminal.screen).to_show("up")
            os.kill(json.loads((e2e.artifacts / "recordings" / "echo.json").read_text())["pid"], 9)
    """)
    done = project.run()
    assert done.returncode == 1 and "1 passed, 1 error" in done.stdout and "its recorder was killed" in done.stdout


def test_configured_secrets_are_inherited_and_hidden(project: Project) -> None:
    project.test("""
        def test_it(e2e):
            e2e.write_tutorial_block("# call it with hunter2-token\\necho hi")
            expect(e2e.run('echo "token $TOKEN"').stdout).to_equal("nothing like it")
    """)
    project.ini(e2e_secrets="TOKEN")
    project.run(env={"TOKEN": "hunter2-token"})
    assert "token ****\n" in project.text("tests/test_a.py::test_it")
    for path in (project.folder / ".muster").rglob("*"):
        assert not path.is_file() or "hunter2-token" not in path.read_text(), path


def test_configured_masks_are_applied(project: Project) -> None:
    project.test("""
        def test_it(e2e): expect(e2e.run("echo build-123 took 5s").masked.stdout).to_equal("<build> took <duration>\\n")
    """)
    project.ini(e2e_masks=r"build=build-\d+")
    assert project.run().returncode == 0


CITES = '''
    def test_list(e2e):
        e2e.write_tutorial_block("""
            # List.
            ls
        """)
        e2e.run("ls")
'''


def test_the_check_fails_a_run_if_a_block_is_not_cited(project: Project) -> None:
    tutorial = project.folder / "tutorial.sh"
    tutorial.write_text("# List.\nls\n")
    project.test(CITES)
    done = project.run("--tutorial-check")
    assert done.returncode == 0, done.stdout
    tutorial.write_text("# List.\nls\n\n# Where am I?\npwd\n")
    done = project.run("--tutorial-check")
    assert done.returncode == 1 and "tutorial.sh:4: missing:" in done.stdout
    assert project.run().returncode == 0, "only on request"
    project.ini(tutorial_check="true")
    assert project.run().returncode == 1
    done = project.run("--tutorial", "no-such.sh")
    assert done.returncode == 1 and "no-such.sh" in done.stdout
    assert (project.folder / ".muster/e2e/tutorial.sh").read_text() == "# List.\nls\n\n# Where am I?\npwd\n"


def test_the_plugin_works_under_xdist(project: Project) -> None:
    (project.folder / "tutorial.sh").write_text("# List.\nls\n\n# Where am I?\npwd\n")
    project.test(CITES + "    def test_more(e2e): e2e.run('setsid sleep 1000 &')\n")
    project.test("    def test_list(e2e): e2e.run('ls')\n", "tests/test_b.py")
    done = project.run("-n", "2", "--tutorial-check")
    assert done.returncode == 1
    assert "missing:" in done.stdout and "orphaned:" in done.stdout and ": sleep 1000" in done.stdout
    names = ["tests/test_a.py::test_list", "tests/test_b.py::test_list", "tests/test_a.py::test_more"]
    assert [project.facts(name)["outcome"] for name in names] == ["passed"] * 3
    run = json.loads((project.folder / ".muster/e2e/run.json").read_text())
    assert run["ended"] and run["tutorial"] == "tutorial.sh" and run["exit_code"] == 0


def test_pytest_help_lists_the_options(project: Project) -> None:
    text = project.run("--help").stdout
    for word in ("--tutorial-check", "--e2e-artifacts", "--e2e-keep", "--e2e-leaks", "e2e_secrets", "e2e_pass_env"):
        assert word in text


@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_blocks_cited_in_docstrings_are_in_test_json_and_the_transcript(
    project: Project, workers: tuple[str, ...]
) -> None:
    (project.folder / "tutorial.sh").write_text("# Say it.\necho \\\n  hello\n\n# Say more.\necho more\n")
    project.test(r'''
    def test_it(e2e: E2eSession) -> None:
        r"""Tutorial block:
            # Say it.
            echo \
              hello

        Scope: only this, and not what is stale:

            # Say less.
            echo more
        """
        e2e.run("echo hello")

    def test_both(e2e: E2eSession) -> None:
        """Cites one here.

        # Say more.
        echo more
        """
        e2e.write_tutorial_block("# Say it.\necho \\\n  hello")
    ''')
    done = project.run("-p", "xdist", *workers)
    assert done.returncode == 0, done.stdout
    assert project.facts("tests/test_a.py::test_it")["blocks"] == ["# Say it.\necho \\\n  hello"]
    both = project.facts("tests/test_a.py::test_both")["blocks"]
    assert both == ["# Say more.\necho more", "# Say it.\necho \\\n  hello"]
    rows = (folder_of_test(project.folder / ".muster/e2e", "tests/test_a.py::test_it") / "transcript.jsonl").read_text()
    assert [row["text"] for row in map(json.loads, rows.splitlines()) if row["kind"] == "block"] == [
        "# Say it.\necho \\\n  hello"
    ]


SIDE_BY_SIDE = """
    import os, time
    from pathlib import Path

    def wait_for(path):
        deadline = time.monotonic() + 60
        while not path.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert path.exists(), path

    @pytest.mark.xdist_group("one")
    def test_leaves(e2e):
        sign = Path(os.environ["SIGNS"])
        (sign / "one").touch()
        wait_for(sign / "two")
        e2e.run("touch {made}")
        (sign / "made").touch()
        wait_for(sign / "over")

    @pytest.fixture
    def over():
        yield
        (Path(os.environ["SIGNS"]) / "over").touch()

    @pytest.mark.xdist_group("two")
    def test_innocent(over, e2e):
        sign = Path(os.environ["SIGNS"])
        (sign / "two").touch()
        wait_for(sign / "made")
        e2e.run("true")
"""


@pytest.mark.parametrize("named", [True, False])
def test_a_leaked_file_is_attributed_to_the_right_one_of_several_concurrent_tests(
    project: Project, tmp_path_factory: pytest.TempPathFactory, named: bool
) -> None:
    watched, signs = tmp_path_factory.mktemp("watched"), tmp_path_factory.mktemp("signs")
    project.ini(e2e_leaks="error", e2e_watch=str(watched))
    made = f"{watched}/stray" if named else f"{watched}/st''ray"
    project.test(SIDE_BY_SIDE.format(made=made))
    done = project.run("-n", "2", "--dist", "loadgroup", env={"SIGNS": str(signs)})
    leaves, innocent = (project.facts(f"tests/test_a.py::test_{name}") for name in ("leaves", "innocent"))
    assert done.returncode == 1, done.stdout
    if named:
        assert (leaves["outcome"], leaves["leaks"]) == ("error", [f"file {watched}/stray"])
        assert (innocent["outcome"], innocent["leaks"]) == ("passed", [])
    else:
        assert (leaves["outcome"], innocent["outcome"]) == ("passed", "passed")
        assert "left by this test or by one that ran at the same time" in leaves["leaks"][0]


def test_the_next_run_sweeps_a_killed_run_and_reports_it(project: Project) -> None:
    project.test("""
    import os, signal
    def test_it(e2e):
        e2e.run("env -i setsid -f sleep 1014")
        if not os.path.exists("second"):
            open("second", "w").write(str(e2e.work.parent))
            os.kill(os.getpid(), signal.SIGKILL)
    """)
    assert project.run().returncode < 0
    root = (project.folder / "second").read_text()
    assert os.path.isdir(root)
    done = project.run()
    assert done.returncode == 0 and "removed: left by an earlier run that was killed" in done.stdout
    assert f"{root}, 1 process ended" in done.stdout and not os.path.exists(root)


def test_checking_a_named_file_only_checks_the_citations_of_that_file(project: Project) -> None:
    (project.folder / "tutorial.sh").write_text("# One.\necho one\n\n# Two.\necho two\n\n# Three.\necho three\n")
    cites = 'def test_{0}(e2e):\n    """\n    # {1}.\n    echo {0}\n    """\n    e2e.run("echo {0}")\n'
    project.test(cites.format("one", "One"), "tests/test_one.py")
    project.test(cites.format("two", "Too"), "tests/test_two.py")
    project.ini(testpaths="tests")
    whole = project.run("--tutorial-check")
    assert whole.returncode == 1 and "no test cites" in whole.stdout and "stale" in whole.stdout
    one = project.run("--tutorial-check", "tests/test_one.py")
    assert one.returncode == 0 and "no test cites" not in one.stdout and "stale" not in one.stdout
    assert project.run("--tutorial-check", "tests/test_one.py::test_one").returncode == 0
    two = project.run("--tutorial-check", "tests/test_two.py")
    assert two.returncode == 1 and "stale: this is not a block" in two.stdout and "missing" not in two.stdout
    assert project.run("--tutorial-check", "tests").returncode == 1, "a folder is checked completely"


def test_snapshots_are_compared_and_written_with_update(project: Project) -> None:
    project.test("""
        @pytest.mark.parametrize("word", ["a b", "c"])
        def test_it(e2e, word):
            result = e2e.run(f"echo {word}; date +%F; pwd; exit 3")
            expect(result.stdout).to_match_snapshot()
            expect(result.stdout).to_match_snapshot()
            terminal = e2e.terminal(f"printf '\\033[1m{word}\\033[0m'; sleep 1000")
            expect(terminal).to_contain(word)
            expect(terminal).to_match_snapshot("screen")
            expect(e2e.mask("at 12:00:00")).to_match_snapshot("time")
    """)
    missing = project.run()
    assert missing.returncode == 1 and "which does not exist" in missing.stdout and "--e2e-update" in missing.stdout
    made = project.run("--e2e-update")
    assert made.returncode == 0, made.stdout
    folder = project.folder / "tests" / "snapshots" / "test_a"
    found = {path.name: path.read_text() for path in folder.iterdir()}
    assert len(found) == 8 and all(f"snapshots/test_a/{name}" in made.stdout for name in found)
    assert sorted(found.values()) == sorted(
        ["a b\n<date>\n<work>\n"] * 2 + ["c\n<date>\n<work>\n"] * 2 + ["a b\n", "c\n"] + ["at <time>\n"] * 2
    )
    again = project.run("-n", "2")
    assert again.returncode == 0, again.stdout
    changed = next(path for path in folder.iterdir() if path.read_text().startswith("c\n<date>"))
    changed.write_text("d\n<date>\n<work>\n")
    differs = project.run()
    assert differs.returncode == 1 and "-d\n" in differs.stdout and "+c\n" in differs.stdout
    assert "--e2e-update accepts the new text" in differs.stdout and changed.read_text().startswith("d\n")
    unchanged = project.run("--e2e-update")
    assert unchanged.stdout.count("snapshots/test_a/") == 1 and changed.read_text().startswith("c\n")
    assert project.run().returncode == 0


@pytest.mark.parametrize("how", ["SIGTERM", "pytest-timeout"])
def test_the_next_run_sweeps_a_run_that_was_ended_from_outside(project: Project, how: str) -> None:
    project.test(
        """
        import os, signal
        def test_it(e2e):
            e2e.run("setsid -f sleep 1021; env -i setsid -f sleep 1022; tmux new-session -d -s left sleep 1023")
            e2e.terminal("sleep 1024")
            e2e.start("sleep 1025")
            print(e2e.work.parent, flush=True)
            if HOW == "SIGTERM":
                os.kill(os.getpid(), signal.SIGTERM)
            e2e.run("sleep 1026")
    """.replace("HOW", repr(how))
    )
    argv = ["-s", *(["--timeout=3", "--timeout-method=thread"] if how == "pytest-timeout" else [])]
    ended = project.run(*argv)
    assert ended.returncode != 0
    root = Path(next(line for line in ended.stdout.splitlines() if "/e2e-" in line).strip().lstrip("."))
    assert root.is_dir()
    project.test("def test_it(e2e): e2e.run('true')")
    swept = project.run()
    assert swept.returncode == 0 and str(root) in swept.stdout and "ended" in swept.stdout
    assert not root.exists()
    left = subprocess.run(["ps", "-eo", "args="], capture_output=True, text=True, check=True).stdout
    assert not {f"sleep {number}" for number in range(1021, 1027)} & set(left.splitlines())
