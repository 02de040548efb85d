"""reduce of branches, of agents and of runs that map made: what was refused is not refused for ever, and nothing is paid for in vain."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from muster.flow.reducing import delivery, integrator, pull_request
from muster.flow.run import directory as runs
from muster.flow.run.records import AttemptAgent, Outcome, RunInfo
from muster.flow.run.tasks import Task

from ..conftest import World
from .test_improve import MORTAL, edit, play, subjects, write

pytestmark = pytest.mark.timeout(300)

CALC = "def tax(price):\n    rate = 10\n    return price * rate\n\n\ndef double(a):\n    return a\n\n\ndef half(a):\n    return a\n"
TESTS = """
import calc


def test_tax():
    assert calc.tax(100) == 19


def test_double():
    assert calc.double(2) == 4


def test_half():
    assert calc.half(2) == 1
"""
NEW = "import calc\n\n\ndef test_nothing():\n    assert calc.tax(0) == 0\n"


@pytest.fixture
def calc(world: World, tmp_path: Path) -> World:
    """Three tests that fail, and four branches: `one` and `two` collide, and `two` brings a test of its own."""
    world.activate()
    world.git("config", "user.name", "Ann")
    world.git("config", "user.email", "ann@example.invalid")
    base = {"calc.py": CALC, "test_calc.py": TESTS.lstrip(), ".gitignore": "__pycache__\n.pytest_cache\n"}
    commit(world, "A calculator", base)
    branches = {
        "one": {"calc.py": CALC.replace("rate = 10", "rate = 0.19")},
        "two": {"calc.py": CALC.replace("rate = 10", "rate = 10 if price else 0"), "test_new.py": NEW},
        "double": {"calc.py": CALC.replace("(a):\n    return a\n\n", "(a):\n    return 2 * a\n\n")},
        "half": {"calc.py": CALC.removesuffix("return a\n") + "return a // 2\n"},
    }
    for name, files in branches.items():
        world.git("checkout", "-q", "-b", name, "main")
        commit(world, f"Mend {name}", files)
    world.git("checkout", "-q", "main")
    return world


def commit(world: World, words: str, files: dict[str, str]) -> None:
    for name, text in files.items():
        (world.repo / name).write_text(text)
    world.git("add", "-A")
    world.git("commit", "-q", "-m", words)


def reduced(world: World, *words: str, code: int = 0) -> dict[str, Any]:
    result = world.run("reduce", *words, "--json", "--times", "1", timeout=200)
    assert result.code == code, result
    last: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return last


BOTH = edit("calc.py", "rate = 0.19", "rate = 0.19 if price else 0")
BRING = "[[step]]\nrun = '''git show two:test_new.py > test_new.py && git add test_new.py && git commit -qm new'''\nexpect_exit = 0\n"


@pytest.mark.slow
def test_a_conflict_is_put_to_an_integrator_again_until_one_resolves_it(calc: World, tmp_path: Path) -> None:
    left = reduced(calc, "one", "two", "--run", "r", "--integrator", "none")["left_out"]
    assert [words["reason"] for words in left.values()] == ["conflicts with 0001-one in calc.py"]
    words = ("r", "--integrator", "replay", "--playbooks", str(tmp_path / "plays"), "--retries", "0")
    write(tmp_path / "plays", {"integrator": play(outcome="failed", summary="No", more='reason = "too hard"\n')})
    assert reduced(calc, *words, code=1)["left_out"], "another type is asked, and gives up"
    write(tmp_path / "plays", {"integrator": play(BOTH, summary="Both")})
    (left,) = reduced(calc, *words)["left_out"].values()
    assert "the resolution is kept out for test_new.py" in left["reason"], "what the second brings may not get lost"
    write(tmp_path / "plays", {"integrator": play(BOTH, BRING, summary="Both")})
    done = reduced(calc, *words)
    assert done["resolved"] == ["0002-two"] and not done["left_out"]
    assert calc.git("show", "muster-run/r:test_new.py") == NEW.strip()
    tasks = calc.ok("runs", "show", "r", "--json").json["tasks"]
    assert [(task["item"], task["attempts"]) for task in tasks[2:]] == [("integrate 0002-two", 3)]


@pytest.mark.slow
def test_a_linter_that_was_broken_is_asked_again(calc: World, tmp_path: Path) -> None:
    config = calc.home / ".config" / "muster" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(f'[improve]\nlint = ["test", "-e", "{tmp_path}/installed"]\n')
    assert reduced(calc, "double", "--run", "r", code=1)["why"].startswith("the base itself is red: test -e")
    (tmp_path / "installed").touch()
    assert reduced(calc, "r")["branch"] == "muster-run/r"


def test_a_reduce_that_was_killed_goes_on_by_the_same_command(calc: World) -> None:
    words = ("reduce", "double", "half", "--run", "r", "--times", "1", "--json")
    killed = subprocess.run(
        [sys.executable, "-c", MORTAL, "gathered", "double", *words], cwd=calc.repo, env=calc.env, capture_output=True
    )
    assert killed.returncode == -signal.SIGKILL, killed
    done = reduced(calc, *words[1:5])
    assert done["run"] == "r" and done["funnel"]["fixed"] == 2 and not done["left_out"]
    other = calc.fails(2, "reduce", "one", "--run", "r").stderr
    assert "run r was made of something else" in other and "muster reduce r" in other


def test_a_branch_that_could_not_be_moved_is_refused_before_anything_is_done(calc: World, tmp_path: Path) -> None:
    for name in ("reduce-1", "improve-1"):
        calc.git("branch", f"muster-run/{name}", "one")
    words = ("reduce", "one", "--run", "reduce-1")
    refused = calc.fails(5, *words).stderr
    assert "muster-run/reduce-1 has commits that this run did not make" in refused and "--run ANOTHER-NAME" in refused
    write(tmp_path / "plays", {"test_tax": play(BOTH)})
    improve = ("improve", "-a", "replay", "--playbooks", str(tmp_path / "plays"))
    assert "muster-run/improve-1 has commits" in calc.fails(5, *improve, "--run", "improve-1").stderr
    assert not calc.ok("runs", "--json").json["runs"], "no test was run for it"


@pytest.mark.slow
def test_a_run_without_a_name_gets_one_whose_branch_is_not_there(calc: World, tmp_path: Path) -> None:
    for name in ("reduce-1", "improve-1"):
        calc.git("branch", f"muster-run/{name}", "one")
    write(tmp_path / "plays", {"test_tax": play(BOTH)})
    improve = ("improve", "-a", "replay", "--playbooks", str(tmp_path / "plays"))
    assert "run improve-2 (" in calc.ok(*improve, "--dry-run", timeout=100).stderr
    assert reduced(calc, "half")["branch"] == "muster-run/reduce-2"


@pytest.mark.slow
def test_a_run_of_map_is_reduced_in_its_own_directory(calc: World) -> None:
    script = 'case $1 in bad) exit 1;; none) exit 0;; esac; git checkout -q $1 -- . && git commit -qm "Mend $1"'
    words = ("map", "-a", "command", "--run", "m", "--retries", "0", "--", "sh", "-c", script, "sh", "{item}")
    calc.run(*words, input=b"double\nhalf\nbad\nnone\n", timeout=100)
    done = reduced(calc, "m")
    assert done["run"] == "m" and set(subjects(calc, "muster-run/m")) == {"Mend double", "Mend half"}
    assert done["funnel"]["fixed"] == 2
    assert {"Muster-Agent: m-0001", "Muster-Agent: m-0002"} <= set(
        calc.git("log", "--format=%B", "muster-run/m").split("\n")
    )
    assert [run["name"] for run in calc.ok("runs", "--json").json["runs"]] == ["m"]
    nothing = ("map", "-a", "command", "--run", "n", "--", "true")
    calc.ok(*nothing, input=b"x\n", timeout=100)
    assert "no task of run n is ok and has commits" in calc.fails(2, "reduce", "n").stderr


@pytest.mark.slow
def test_the_order_that_an_agent_gives_is_the_order_of_the_branch(calc: World, tmp_path: Path) -> None:
    usual = reduced(calc, "one", "double", "half", "--run", "usual")
    order = [one["name"] for one in usual["accepted"]][::-1]
    script = f"printf '%s\\n' {' '.join(order)} > order.txt; submit --outcome ok --summary ranked --artifact order.txt"
    write(
        tmp_path / "plays", {"ranker": f"[[step]]\nrun = '''{script}'''\nexpect_exit = 0\n[[step]]\nturn = 'Done.'\n"}
    )
    words = ("--rank", "agent", "--integrator", "replay", "--playbooks", str(tmp_path / "plays"))
    asked = reduced(calc, "one", "double", "half", "--run", "asked", *words)
    assert [one["name"] for one in asked["accepted"]] == order
    assert [one["reason"].partition(",")[0] for one in asked["accepted"]] == [
        f"requested as number {n}" for n in (1, 2, 3)
    ]
    assert subjects(calc, "muster-run/asked") == subjects(calc, "muster-run/usual")[::-1]


def test_an_agent_that_is_to_rank_must_be_there(calc: World) -> None:
    for words in (("one", "--rank", "agent"), ("one", "--rank", "agent", "--integrator", "none")):
        assert "--rank agent needs an agent to ask" in calc.fails(2, "reduce", *words).stderr


@pytest.mark.parametrize(
    ("role", "outcome", "t", "again"),
    [
        ("integrator", "failed", 5.0, True),
        ("integrator", "ok", 5.0, True),  # its resolution was refused, or it would not be asked for
        ("integrator", "ok", 15.0, False),  # a person has talked to it since
        ("integrator", "failed", 15.0, False),  # of a reduce that was killed, and goes on
        ("ranker", "ok", 5.0, False),
        ("ranker", "timeout", 5.0, True),
    ],
)
def test_what_the_last_reduce_had_no_good_answer_to_is_asked_again(
    tmp_path: Path, role: str, outcome: str, t: float, again: bool
) -> None:
    task = Task("0001-x", 1, "x", {"item": "x", "role": role}, "Do it", (), "")
    run = runs.make(str(tmp_path), "r", RunInfo(), [task])
    run.end(run.begin(task.id, 1, AttemptAgent(name="a"), ""), Outcome(outcome=outcome, final=True, t=t))
    integrator.reopen(run, task, 10.0)
    assert run.attempts(task.id)[-1].final is not again


def test_a_question_that_was_put_again_counts_as_it_was_answered_last(tmp_path: Path) -> None:
    roles = {"0001-a": "worker", "0002-a": "integrator", "0003-a": "integrator"}
    made = [
        Task(id, n, "a", {"item": "a", "role": role}, "", (), "1" * 40) for n, (id, role) in enumerate(roles.items(), 1)
    ]
    run = runs.make(str(tmp_path), "r", RunInfo(), made)
    for task, outcome in zip(made, ("blocked", "failed", "ok"), strict=True):
        run.end(run.begin(task.id, 1, AttemptAgent(name="a"), ""), Outcome(outcome=outcome, final=True))
    assert delivery.outcomes(run) == {"blocked": 1, "ok": 1}


def test_a_list_in_a_pull_request_says_how_much_is_missing() -> None:
    lines = [f"- {number:04}" for number in range(1000)]
    assert pull_request.listed("Left out", lines, 70) == ["## Left out", "", *lines[:10], "- and 990 more", ""]
    assert pull_request.listed("Left out", lines, 7000)[2:-1] == lines and pull_request.listed("Left out", [], 10) == []
    assert pull_request.ACCEPTED_MOST + pull_request.LEFT_MOST + pull_request.REFUSED_MOST < 60_000, (
        "GitHub takes 65,536 characters"
    )


def test_a_branch_whose_test_is_fixed_already_is_not_delivered_as_a_fix(calc: World, tmp_path: Path) -> None:
    """One branch mends a function, the other one its caller: they merge cleanly, and one of them is enough."""
    raw, value = "def raw(a):\n    return a\n", "from raw import raw\n\n\ndef value(a):\n    return raw(a)\n"
    test = "from value import value\n\n\ndef test_value():\n    assert value(1) == 2\n"
    commit(calc, "A value", {"raw.py": raw, "value.py": value, "test_value.py": test})
    for name, files in {
        "inner": {"raw.py": raw.replace("return a", "return a + 1")},
        "outer": {"value.py": value.replace("return raw(a)", "return max(raw(a), 2)")},
    }.items():
        calc.git("checkout", "-q", "-b", name, "main")
        commit(calc, f"Mend {name}", files)
    calc.git("checkout", "-q", "main")
    told = calc.ok("reduce", "inner", "outer", "half", "--run", "r", "--times", "1", timeout=200)
    assert subjects(calc, "muster-run/r") == ["Mend inner", "Mend half"]
    line = "left out 0002-outer: already fixed by 0001-inner"
    assert line in told.stdout.splitlines() and line in calc.ok("runs", "show", "r").stdout.splitlines()
    text = (calc.muster_home / "runs/r/pull-request.md").read_text()
    assert "## Left out\n\n- `0002-outer`: already fixed by 0001-inner\n" in text
    calc.ok("report", "r", "--out", str(tmp_path / "page"))
    pages = [file.read_text() for file in (tmp_path / "page").rglob("*.*") if file.suffix in (".html", ".js", ".json")]
    assert any("already fixed by 0001-inner" in page for page in pages)
