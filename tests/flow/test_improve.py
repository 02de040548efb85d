"""improve and reduce, end to end with replay agents: a small project with known bugs, and playbooks that fix, weaken, block and collide."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from muster import Address, Fleet, Spec
from muster.cli import improve as cli
from muster.cli import map as map_cli
from muster.cli import parse
from muster.errors import UsageError
from muster.flow import api
from muster.flow.improving import plan, setup, verify
from muster.flow.improving.request import ImproveRequest
from muster.flow.mapping import start
from muster.flow.reducing import testers
from muster.flow.review import paths
from muster.flow.run import directory as runs
from muster.flow.run.directory import Run
from muster.flow.run.records import AttemptAgent, Outcome, RunInfo
from muster.flow.run.tasks import Task
from muster.flow.suite import execute
from muster.flow.suite.baseline import Baseline, FunctionResult, Group
from muster.flow.suite.collect import Cited, Function
from muster.flow.suite.report import Case, Report

from ..conftest import World, eventually
from . import installs

pytestmark = pytest.mark.timeout(300)

SHOP = """
def total(prices):
    return sum(prices) + 1


def cheapest(prices):
    return max(prices)


def label(name):
    return name.uper()


def tax(price):
    rate = 10
    return price * rate


def names(items):
    return [item for item in items]
"""
TESTS = """
import shop


def test_total():
    assert shop.total([1, 2]) == 3


def test_total_of_one():
    assert shop.total([5]) == 5


def test_cheapest():
    assert shop.cheapest([3, 1, 2]) == 1


def test_label():
    assert shop.label("a") == "A"


def test_label_twice():
    assert shop.label("ab") == "AB"


def test_label_empty():
    assert shop.label("") == ""


def test_tax():
    assert shop.tax(100) == 19


def test_tax_of_nothing():
    assert shop.tax(0) == 0


def test_names():
    assert shop.names(["b", "a"]) == ["b", "a"]


def test_strict():
    assert shop.names([]) == []


def test_fine():
    assert shop.names(["x"]) == ["x"]
"""


def play(*steps: str, outcome: str = "ok", summary: str = "Done", more: str = "") -> str:
    said = '[[step]]\nsay = "I look."\ninput_tokens = 100\noutput_tokens = 10\ncost_usd = 0.5\n'
    end = f'[[step]]\nsubmit = "{outcome}"\nsummary = "{summary}"\n{more}[[step]]\nturn = "Done."\n'
    return said + "".join(steps) + end


def edit(file: str, old: str, new: str) -> str:
    code = f"import pathlib; p = pathlib.Path({file!r}); t = p.read_text(); assert {old!r} in t; p.write_text(t.replace({old!r}, {new!r}))"
    return f"[[step]]\nrun = '''python3 -c \"{code}\"'''\nexpect_exit = 0\n[[step]]\ncommit = \"Change {file}\"\n"


#: One that is at work for so long is missing where nobody waited for it.
SLOW = "[[step]]\nwait = 3\n"

PLAYS = {
    "scout.test_label": play(edit("shop.py", "uper", "upper"), summary="Call upper by its name"),
    "test_total": play(edit("shop.py", "sum(prices) + 1", "sum(prices)"), summary="Sum up prices only"),
    "test_total_of_one": play(edit("shop.py", "sum(prices) + 1", "sum(prices)"), summary="Do not add one"),
    "test_cheapest": play(edit("shop.py", "max(prices)", "min(prices)"), summary="Take the smallest price"),
    # Two that collide in the same line; both hold together.
    "test_tax": play(edit("shop.py", "rate = 10", "rate = 0.19"), summary="Use the rate of 19 percent"),
    "test_tax_of_nothing": play(edit("shop.py", "rate = 10", "rate = 10 if price else 0"), summary="No tax on nothing"),
    "test_names": play(
        outcome="blocked", summary="Unclear", more='reason = "which order?"\nescalate = ["Decide on the order"]\n'
    ),
    "test_strict": play(edit("test_shop.py", "shop.names([]) == []", "True"), summary="Make it robust"),
    "test_fine": play(summary="unchanged"),
    "integrator": play(edit("shop.py", "rate = 0.19", "rate = 0.19 if price else 0"), summary="Both"),
}


@pytest.fixture
def shop(world: World, tmp_path: Path) -> World:
    world.activate()
    (world.repo / "shop.py").write_text(SHOP.lstrip())
    (world.repo / "test_shop.py").write_text(TESTS.lstrip())
    (world.repo / ".gitignore").write_text("__pycache__\n.pytest_cache\n")
    world.git("config", "user.name", "Ann")
    world.git("config", "user.email", "ann@example.invalid")
    world.git("add", "-A")
    world.git("commit", "-q", "-m", "a shop")
    write(tmp_path / "plays", PLAYS)
    return world


def write(folder: Path, plays: dict[str, str]) -> None:
    folder.mkdir(exist_ok=True)
    for name, text in plays.items():
        (folder / f"{name}.toml").write_text(text)


def improved(world: World, tmp_path: Path, *words: str, code: int = 0) -> dict[str, Any]:
    """`improve` to its end; what it says of the delivery."""
    command = ("improve", "-a", "replay", "--playbooks", str(tmp_path / "plays"), "--json", "--times", "2", *words)
    result = world.run(*command, timeout=280)
    assert result.code == code, result
    last: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return last


def subjects(world: World, branch: str) -> list[str]:
    return world.git("log", "--reverse", "--format=%s", f"main..{branch}").splitlines()


def failing(world: World, tmp_path: Path, commit: str) -> set[str]:
    """The tests that fail in a checkout of a commit."""
    tree = tmp_path / "look" / commit
    world.git("worktree", "add", "-q", "--detach", str(tree), commit)
    done = subprocess.run(
        ["python3", "-m", "pytest", "-q", "-rf", "--tb=no", "-p", "no:cacheprovider"],
        cwd=tree,
        env=world.env,
        capture_output=True,
        check=False,
    )
    world.git("worktree", "remove", "--force", str(tree))
    return {
        line.split("::")[1].split(" ")[0] for line in done.stdout.decode().splitlines() if line.startswith("FAILED")
    }


BROKEN = {
    "test_total",
    "test_total_of_one",
    "test_cheapest",
    "test_label",
    "test_label_twice",
    "test_label_empty",
    "test_tax",
}


def test_a_suite_goes_in_and_a_verified_branch_comes_out(shop: World, tmp_path: Path) -> None:
    before = shop.git("status", "--porcelain"), shop.git("rev-parse", "HEAD")
    told = improved(shop, tmp_path, "--run", "fix")
    counts = told["funnel"]
    assert counts | {
        "tests": 11, "failing": 7, "groups": 1, "launched": 9, "valid": 9, "verified": 7, "fixed": 5, "improved": 1,
        "unchanged": 1, "integrated": 6, "left_out": 0, "refused": 1, "blocked": 1,
    } == counts  # fmt: skip
    assert counts["cost_usd"] == pytest.approx(0.5 * 10), "nine of them and the integrator"
    days = [json.loads(path.read_text())["spent"][0] for path in (shop.muster_home / "spent").glob("*/fix@*")]
    assert sum(days) == pytest.approx(counts["cost_usd"]), "the day's budget knows all of it"
    assert subjects(shop, "muster-run/fix") == [
        "Call upper by its name",
        "Sum up prices only",
        "Take the smallest price",
        "Use the rate of 19 percent",
        "No tax on nothing",
    ]
    assert [name[5:] for name in told["resolved"]] == ["test-tax-of-nothing"]
    body = shop.git("log", "--format=%B", "main..muster-run/fix")
    assert "Muster-Test: test_shop.py::test_total_of_one" in body, "equal patches are one commit that names both"
    assert Counter(line.partition(":")[0] for line in body.splitlines())["Muster-Task"] == 6
    # Between the commits exactly the tests whose fix is still to come fail.
    to_come = [
        {"test_label", "test_label_twice", "test_label_empty"},
        {"test_total", "test_total_of_one"},
        {"test_cheapest"},
        {"test_tax"},
        set(),
    ]
    commits = shop.git("rev-list", "--reverse", "main..muster-run/fix").split()
    left = set(BROKEN)
    for commit, mended in zip(commits, to_come, strict=True):
        left -= mended
        assert failing(shop, tmp_path, commit) == left
    # The one that weakened its test is kept out, and said so.
    refused = json.loads(
        (next((shop.muster_home / "runs/fix/tasks").glob("*-test-strict")) / "verified.json").read_text()
    )
    assert not refused["ok"] and refused["kept_out"][0]["path"] == "test_shop.py"
    assert (shop.git("status", "--porcelain"), shop.git("rev-parse", "HEAD")) == before
    assert all(row["state"] == "stopped" for row in shop.agents().values())
    shown = shop.ok("runs", "show", "fix")
    assert "verified    7" in shown.stdout and "Decide on the order" in shown.stdout
    shop.ok("runs", "rm", "fix")
    assert not shop.git("for-each-ref", "refs/muster/runs") and subjects(shop, "muster-run/fix")


@pytest.mark.parametrize("style", ["finder", "plain", pytest.param("path", marks=pytest.mark.slow)])
def test_agents_run_their_tests_on_their_own_work_dir_however_the_project_is_installed(
    world: World, tmp_path: Path, style: str
) -> None:
    """The agent runs the very command of its prompt: before its fix it fails, after it it passes."""
    world.activate()
    commit(
        world,
        {
            "src/shop/__init__.py": "def total(prices):\n    return sum(prices) + 1\n",
            "tests/test_shop.py": "import shop\n\n\ndef test_total():\n    assert shop.total([1, 2]) == 3\n",
            "pyproject.toml": '[project]\nname = "the-shop"\n',
        },
    )
    python = installs.environment(tmp_path / "env", world.repo, style, {"shop": "src/shop"})
    command = f"{python} -m pytest tests/test_shop.py::test_total"
    fixed = edit("src/shop/__init__.py", "sum(prices) + 1", "sum(prices)")
    fails, passes = (f"[[step]]\nrun = '''{command}'''\nexpect_exit = {code}\n" for code in (1, 0))
    write(tmp_path / "plays", {"test_total": play(fails, fixed, passes, summary="Sum up prices only")})
    (world.home / ".config" / "muster").mkdir(parents=True)
    (world.home / ".config" / "muster" / "config.toml").write_text(
        f'[improve]\npytest = ["{python}", "-m", "pytest"]\n'
    )
    told = improved(world, tmp_path, "--run", "fix", "--times", "1")
    assert told["funnel"]["fixed"] == told["funnel"]["integrated"] == 1, told
    prompt = next((world.muster_home / "runs/fix/tasks").glob("*/attempt-1/prompt.txt")).read_text()
    assert f"`{command}`" in prompt
    assert subjects(world, "muster-run/fix") == ["Sum up prices only"]


def test_a_pull_request_that_could_not_be_opened_is_refused_before_anything_is_paid_for(
    shop: World, tmp_path: Path
) -> None:
    result = shop.run("improve", "-a", "replay", "--playbooks", str(tmp_path / "plays"), "--pr")
    assert result.code == 3 and "leave out --pr" in result.stderr, result
    assert shop.ok("runs", "--json").json == {"runs": []}


@pytest.mark.slow
def test_an_integrator_that_weakens_a_test_is_not_believed(shop: World, tmp_path: Path) -> None:
    """The second of two that collide has a test of its own to bring; the integrator brings a weaker one."""
    own = ("assert shop.tax(0) == 0", "assert shop.tax(0) == 0\n    assert shop.tax(100) == 19")
    rate = edit("shop.py", "rate = 10", "rate = 0.19")
    write(
        tmp_path / "plays",
        {
            "test_tax": play(edit("test_shop.py", "tax(100) == 19", "tax(100) == 19.0"), rate, summary="First"),
            "test_tax_of_nothing": play(
                edit("test_shop.py", *own),
                edit("shop.py", "rate = 10", "rate = 0.19 if price else 0"),
                summary="Second",
            ),
            "integrator": play(
                edit("shop.py", "rate = 0.19", "rate = 0.19 if price else 0"),
                edit("test_shop.py", "assert shop.tax(0) == 0", "pass"),
                summary="Both",
            ),
        },
    )
    told = improved(shop, tmp_path, "--run", "fix", "--times", "1")
    ((name, left),) = told["left_out"].items()
    assert name.endswith("test-tax-of-nothing") and not told["resolved"]
    assert "the resolution is kept out for test_shop.py" in left["reason"]
    assert "assert shop.tax(0) == 0" in shop.git("show", "muster-run/fix:test_shop.py")


@pytest.mark.slow
def test_what_is_done_in_an_open_branch_or_good_as_it_is_is_not_done_again(shop: World, tmp_path: Path) -> None:
    scouts = {"test_label_twice": play(summary="unchanged"), "test_label_empty": play(summary="unchanged")}
    write(tmp_path / "plays", {**scouts, **{f"scout.{name}": text for name, text in scouts.items()}})
    improved(shop, tmp_path, "--run", "fix", "--times", "1")
    again = improved(shop, tmp_path, "--run", "second", "--times", "1", code=1)
    assert again["funnel"]["launched"] == 2, "only the refused and the blocked one"
    plan = json.loads((shop.muster_home / "runs/second/plan.json").read_text())["skipped"]
    done = ("test_cheapest", "test_total_of_one", "test_label_twice", "test_label_empty")
    assert {plan[f"test_shop.py::{name}"] for name in done} == {"it is done in the open branch muster-run/fix"}
    assert plan["test_shop.py::test_fine"] == "it needed nothing before, and nothing it depends on has changed since"
    shown = [line.split() for line in shop.ok("runs", "show", "second").stdout.splitlines()]
    assert ["launched", "2", "-7"] in shown and ["spent", "$1.00", "-$4.00"] in shown


@pytest.mark.slow
def test_what_was_taken_stays_done_and_all_does_it_again(shop: World, tmp_path: Path) -> None:
    improved(shop, tmp_path, "--run", "fix", "--times", "1")
    shop.git("merge", "-q", "--ff-only", "muster-run/fix")
    second = improved(shop, tmp_path, "--run", "second", "--times", "1", code=1)
    assert second["funnel"]["failing"] == 0 and second["funnel"]["launched"] == 2
    words = ("improve", "-a", "replay", "--playbooks", str(tmp_path / "plays"), "--json", "--dry-run", "--all")
    planned = json.loads(shop.ok(*words, timeout=100).stdout.splitlines()[-1])
    assert len(planned["workers"]) == 8, "all that have a playbook"


@pytest.mark.slow
def test_without_one_fix_the_branch_and_the_funnel_are_others(shop: World, tmp_path: Path) -> None:
    (tmp_path / "plays" / "test_cheapest.toml").write_text(play(summary="It is fixed, believe me"))
    told = improved(shop, tmp_path, "--run", "fix", "--integrator", "none")
    assert "Take the smallest price" not in subjects(shop, "muster-run/fix")
    assert (told["funnel"]["fixed"], told["funnel"]["refused"], told["funnel"]["left_out"]) == (4, 2, 1)
    ((name, left),) = told["left_out"].items()
    assert name.endswith("test-tax-of-nothing") and "conflict" in left["reason"]
    assert failing(shop, tmp_path, "muster-run/fix") == {"test_cheapest"}


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["reduce", "improve"])
def test_an_agent_that_a_person_talked_to_is_taken_in(shop: World, tmp_path: Path, verb: str) -> None:
    waits = play(outcome="blocked", summary="Stuck", more='reason = "help"\n') + edit(
        "shop.py", "max(prices)", "min(prices)"
    )
    (tmp_path / "plays" / "test_cheapest.toml").write_text(
        waits + '[[step]]\nsubmit = "ok"\nsummary = "Take the smallest price"\n[[step]]\nturn = "Thanks."\n'
    )
    improved(shop, tmp_path, "--run", "fix")
    assert "Take the smallest price" not in subjects(shop, "muster-run/fix")
    name = next(row["name"] for row in shop.agents().values() if row["labels"]["task"].endswith("test-cheapest"))
    shop.ok("start", name)
    shop.wait_state(name, "ready", "waiting")
    shop.ok("message", name, "-m", "Take min instead of max.")
    shop.wait_state(name, "ready")
    launched = (shop.muster_home / "runs/fix/events.jsonl").read_text().count('"launch"')
    words = ("reduce", "fix") if verb == "reduce" else ("improve", "-a", "replay", "--run", "fix")
    result = shop.ok(*words, "--playbooks", str(tmp_path / "plays"), timeout=200)
    assert "-test-cheapest: it has submitted again: ok" in result.stderr
    assert "Take the smallest price" in subjects(shop, "muster-run/fix")
    assert (shop.muster_home / "runs/fix/events.jsonl").read_text().count('"launch"') == launched, (
        "nothing else is repeated"
    )
    task = next(one for one in shop.ok("runs", "show", "fix", "--json").json["tasks"] if "cheapest" in one["id"])
    assert task["attempts"] == 2 and task["cost_usd"] == shop.agents()[name]["cost_usd"], "what it cost counts once"


@pytest.mark.slow
def test_of_a_file_only_the_tests_that_were_named_count(shop: World, tmp_path: Path) -> None:
    told = improved(shop, tmp_path, "test_shop.py::test_cheapest", "--run", "fix", "--times", "1")
    assert (told["funnel"]["tests"], told["funnel"]["fixed"], told["funnel"]["integrated"]) == (1, 1, 1)
    assert "test_total" in failing(shop, tmp_path, "muster-run/fix"), "one that nobody asked for fails as before"
    before = shop.git("rev-parse", "muster-run/fix^{tree}")
    next((shop.muster_home / "runs/fix/tasks").glob("*/verified.json")).unlink()  # killed before it was written
    again = shop.ok("reduce", "fix", "--json", timeout=100).stdout.splitlines()
    assert json.loads(again[-1])["funnel"]["fixed"] == 1
    assert shop.git("rev-parse", "muster-run/fix^{tree}") == before


#: muster, which dies by SIGKILL as soon as an event of a kind is written, about a task with a word in its name.
MORTAL = """
import os, signal, sys
from muster.cli.main import main
from muster.flow.run.directory import Run
kind, word = sys.argv[1:3]
write = Run.event
def event(self, told, t, **fields):
    written = write(self, told, t, **fields)
    if told == kind and word in str(fields.get("task") or ""):
        os.kill(os.getpid(), signal.SIGKILL)
    return written
Run.event = event
sys.exit(main(sys.argv[3:]))
"""


def killed(world: World, tmp_path: Path, name: str, kind: str, word: str = "", *more: str) -> None:
    """Begin it or go on with it, to where it is killed; that it came there is told by the last event."""
    plays = str(tmp_path / "plays")
    words = ("improve", "-a", "replay", "--playbooks", plays, "--json", "--times", "1", "--all", "--run", name, *more)
    done = subprocess.run(
        [sys.executable, "-c", MORTAL, kind, word, *words],
        cwd=world.repo,
        env=world.env,
        capture_output=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == -signal.SIGKILL, (kind, word, done)
    written = [
        json.loads(line) for line in (world.muster_home / "runs" / name / "events.jsonl").read_text().splitlines()
    ]
    assert written[-1]["kind"] == kind and word in written[-1].get("task", ""), (kind, word, written[-1])


@pytest.mark.slow
def test_a_run_that_was_interrupted_is_reduced_as_far_as_it_is_and_goes_on(shop: World, tmp_path: Path) -> None:
    killed(shop, tmp_path, "fix", "scouted")
    launched = (shop.muster_home / "runs/fix/events.jsonl").read_text().count('"launch"')
    result = shop.fails(1, "reduce", "fix", "--playbooks", str(tmp_path / "plays"), timeout=200)
    assert "fix is not finished: 8 of its tests have no outcome; muster improve -a replay --run fix" in result.stderr
    assert subjects(shop, "muster-run/fix") == ["Call upper by its name"]
    assert (shop.muster_home / "runs/fix/events.jsonl").read_text().count('"launch"') == launched
    assert shop.ok("runs", "show", "fix", "--json").json["state"] == "interrupted"
    told = improved(shop, tmp_path, "--run", "fix", "--times", "1", "--all")
    assert (told["funnel"]["launched"], told["funnel"]["integrated"], told["unfinished"]) == (9, 6, [])
    assert shop.ok("runs", "show", "fix", "--json").json["state"] == "finished"


@pytest.mark.slow
def test_a_fix_by_which_another_file_cannot_be_collected_is_found_with_its_batch(shop: World, tmp_path: Path) -> None:
    """Its own file passes with it, so it is verified."""
    with open(shop.repo / "shop.py", "a", encoding="utf-8") as file:
        file.write("\n\nEXTRA = 1\n")
    (shop.repo / "test_extra.py").write_text("from shop import EXTRA\n\n\ndef test_extra():\n    assert EXTRA\n")
    shop.git("add", "-A")
    shop.git("commit", "-q", "-m", "more")
    cheapest = play(edit("shop.py", "max(prices)", "min(prices)"), edit("shop.py", "EXTRA = 1", ""), summary="Clean up")
    write(tmp_path / "plays", {"test_cheapest": cheapest})
    told = improved(shop, tmp_path, "--run", "fix", "--times", "1")
    ((name, left),) = told["left_out"].items()
    assert name.endswith("test-cheapest") and left["reason"] == "red in the gate: test_extra.py cannot be collected"
    events = [json.loads(line) for line in (shop.muster_home / "runs/fix/events.jsonl").read_text().splitlines()]
    assert all(event["ok"] for event in events if event["kind"] == "reduce-full"), "before the whole suite is run"


def looks(world: World, name: str) -> tuple[str, str]:
    """The trees of a delivered branch, commit by commit, and their messages without the names of the run and its agents."""
    body = world.git("log", "--reverse", "--format=%B", f"main..muster-run/{name}").replace(name, "RUN")
    return world.git("log", "--reverse", "--format=%T", f"main..muster-run/{name}"), body


#: In the order in which they are come to: the scout, the workers, the branch with its integrator. Of several tasks that end at the same time
#: one is named only: the others may be over by then.
MOMENTS = (
    ("baseline", ""), ("plan", ""), ("launch", "scout"), ("outcome", "scout"), ("verified", "scout"), ("scouted", ""),
    ("launch", "test-total"), ("launch", "test-fine"), ("outcome", "test-tax"),
    ("verified", "test-cheapest"), ("reduce-ranked", ""), ("reduce-conflict", ""),
    ("launch", "integrate"), ("outcome", "integrate"), ("reduce-check", ""), ("reduce-full", ""), ("reduce-delivered", ""),
    ("finished", ""),
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_killed_in_every_stage_it_comes_to_the_same_branch(shop: World, tmp_path: Path) -> None:
    improved(shop, tmp_path, "--run", "calm", "--times", "1")
    for kind, word in MOMENTS:
        killed(shop, tmp_path, "wild", kind, word)
    told = improved(shop, tmp_path, "--run", "wild", "--times", "1", "--all")
    assert looks(shop, "wild") == looks(shop, "calm")
    assert told["funnel"]["launched"] == 9 and [name[5:] for name in told["resolved"]] == ["test-tax-of-nothing"]
    assert not [name for name in shop.agents() if "-tests-" in name]


def test_killed_while_a_worker_is_verified_and_when_the_branch_is_there_it_comes_to_the_same(
    shop: World, tmp_path: Path
) -> None:
    test = "test_shop.py::test_cheapest"
    for kind, word in (("verified", "test-cheapest"), ("reduce-delivered", "")):
        killed(shop, tmp_path, "wild", kind, word, test)
    assert not (shop.muster_home / "runs/wild/delivery.json").exists()
    improved(shop, tmp_path, test, "--run", "wild", "--times", "1", "--all")
    assert subjects(shop, "muster-run/wild") == ["Take the smallest price"]
    assert shop.git("show", "muster-run/wild:shop.py") == SHOP.strip().replace("max(prices)", "min(prices)")


@pytest.mark.parametrize("held", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_run_that_was_stopped_goes_on_by_the_same_command(shop: World, tmp_path: Path, held: bool) -> None:
    """By `runs stop`, while it runs and after its process was killed: tests that have no agent yet get one."""
    test = "test_shop.py::test_cheapest"
    plays = str(tmp_path / "plays")
    if held:
        (tmp_path / "plays" / "test_cheapest.toml").write_text(play("[[step]]\nwait = 60\n", summary="Slow"))
        words = ("improve", test, "-a", "replay", "--playbooks", plays, "--times", "1", "--run", "fix")
        process = subprocess.Popen([str(shop.bin / "muster"), *words], cwd=shop.repo, env=shop.env)
        eventually(lambda: any("cheapest" in name and row["state"] == "working" for name, row in shop.agents().items()))
        shop.ok("runs", "stop", "fix")
        assert process.wait(60) == 130
    else:
        killed(shop, tmp_path, "fix", "plan", "", test)
        shop.ok("runs", "stop", "fix", timeout=60)
        assert shop.ok("runs", "show", "fix", "--json").json["state"] == "finished"
    (tmp_path / "plays" / "test_cheapest.toml").write_text(PLAYS["test_cheapest"])
    told = improved(shop, tmp_path, test, "--run", "fix", "--times", "1", "--all")
    assert told["funnel"]["fixed"] == 1 and subjects(shop, "muster-run/fix") == ["Take the smallest price"]
    again = improved(shop, tmp_path, test, "--run", "fix", "--times", "1", "--all")
    assert again["commit"] == told["commit"], "it is over now"


@pytest.mark.slow
def test_a_suite_that_hangs_is_cut_off_and_mended(shop: World, tmp_path: Path) -> None:
    """A test that hangs is one to be fixed; where nothing ends in time it is said what gives more of it."""
    (shop.repo / "shop.py").write_text("import time\n\n\ndef slow():\n    time.sleep(1000)\n")
    (shop.repo / "test_shop.py").write_text(
        "import shop\n\n\ndef test_slow():\n    shop.slow()\n\n\ndef test_b():\n    pass\n"
    )
    shop.git("commit", "-q", "-a", "-m", "it hangs")
    write(tmp_path / "plays", {"test_slow": play(edit("shop.py", "time.sleep(1000)", "pass"), summary="Do not sleep")})
    config = shop.home / ".config" / "muster" / "config.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text('[improve]\ntest_timeout = "2s"\n')
    told = improved(shop, tmp_path, "--run", "fix", "--times", "1")
    assert told["funnel"]["failing"] == 1 and subjects(shop, "muster-run/fix") == ["Do not sleep"]
    config.write_text('[improve]\nsuite_timeout = "3s"\n')
    (shop.repo / "conftest.py").write_text("import time\ntime.sleep(1000)\n")
    shop.git("add", "-A")
    shop.git("commit", "-q", "-m", "it does not even begin")
    result = shop.fails(4, "improve", "-a", "replay", "--playbooks", str(tmp_path / "plays"), timeout=100)
    assert "before pytest started the tests" in result.stderr and "[improve] suite_timeout" in result.stderr
    assert not shop.agents() or all("-tests-" not in name for name in shop.agents())


ROWS = """
import uuid
import pytest
import shop


@pytest.mark.parametrize("price", [1, 2], ids=[uuid.uuid4().hex, uuid.uuid4().hex])
def test_anew(price):
    assert shop.cheapest([price, 9]) == price


@pytest.mark.parametrize("price", [0, pytest.param(1, marks=pytest.mark.skip), *shop.PRICES])
def test_rows(price):
    assert shop.total([price]) == price
"""


@pytest.mark.slow
def test_rows_that_are_named_anew_or_skipped_can_be_fixed_and_none_may_vanish(shop: World, tmp_path: Path) -> None:
    (shop.repo / "shop.py").write_text(SHOP.lstrip() + "\n\nPRICES = [3, 4]\n")
    (shop.repo / "test_shop.py").write_text(ROWS.lstrip())
    (shop.repo / "test_label.py").write_text("import shop\n\n\ndef test_label():\n    assert shop.label('a') == 'A'\n")
    shop.git("add", "-A")
    shop.git("commit", "-q", "-m", "rows")
    cheapest = edit("shop.py", "max(prices)", "min(prices)")
    total = edit("shop.py", "sum(prices) + 1", "sum(prices)")
    fewer = edit("shop.py", "PRICES = [3, 4]", "PRICES = [3]")
    write(
        tmp_path / "plays",
        {
            "test_anew": play(cheapest, summary="Take the smallest price"),
            "test_rows": play(total, summary="Sum up prices only"),
            "test_label": play(
                edit("shop.py", "uper", "upper"), fewer, summary="Call upper, with fewer rows elsewhere"
            ),
        },
    )
    told = improved(shop, tmp_path, "--run", "fix", "--times", "2")
    assert (told["funnel"]["fixed"], told["funnel"]["integrated"]) == (3, 2), "its own file is well but for the rows"
    assert set(subjects(shop, "muster-run/fix")) == {"Take the smallest price", "Sum up prices only"}
    ((_, left),) = told["left_out"].items()
    assert "test_shop.py::test_rows[4] is gone" in left["reason"]


@pytest.mark.slow
def test_a_base_that_moves_during_the_run_changes_nothing_of_it(shop: World, tmp_path: Path) -> None:
    base = shop.git("rev-parse", "main")
    tests = ("test_shop.py::test_cheapest", "test_shop.py::test_total")
    killed(shop, tmp_path, "fix", "launch", "test-cheapest", *tests)
    (shop.repo / "shop.py").write_text(SHOP.lstrip().replace("max(prices)", "sorted(prices)[0]"))
    shop.git("commit", "-q", "-a", "-m", "meanwhile")
    moved, status = shop.git("rev-parse", "main"), shop.git("status", "--porcelain")
    words = ("improve", *tests, "-a", "replay", "--playbooks", str(tmp_path / "plays"), "--times", "1", "--all")
    result = shop.ok(*words, "--run", "fix", timeout=200)
    assert "your branch has moved since the run began; it goes on from where it began" in result.stderr
    assert shop.git("merge-base", "main", "muster-run/fix") == base
    assert set(subjects(shop, "muster-run/fix")) == {"Sum up prices only", "Take the smallest price"}
    assert (shop.git("rev-parse", "main"), shop.git("status", "--porcelain")) == (moved, status)
    again = shop.ok("improve", *tests, "-a", "replay", "--playbooks", str(tmp_path / "plays"), "--dry-run", timeout=100)
    assert "it is done in the open branch muster-run/fix" in again.stdout


@pytest.mark.parametrize(
    ("prepare", "words", "hint"),
    [
        ("rm test_shop.py", "there are no tests", "name files or folders"),
        ("echo 'import nothing_there' > test_b.py", "cannot collect all tests", "--ignore=test_b.py"),
    ],
)
def test_a_suite_that_cannot_be_run_is_said(shop: World, tmp_path: Path, prepare: str, words: str, hint: str) -> None:
    subprocess.run(["sh", "-c", prepare], cwd=shop.repo, check=True)
    shop.git("add", "-A")
    shop.git("commit", "-q", "-m", "worse")
    result = shop.fails(2, "improve", "-a", "replay", "--playbooks", str(tmp_path / "plays"), timeout=100)
    assert words in result.stderr and hint in result.stderr
    assert not shop.ok("runs", "--json").json["runs"], "nothing was begun, so nothing is left"


@pytest.fixture
def python_without_pytest(shop: World) -> World:
    """The `python3` on PATH has no installed packages, as on a fresh machine, and no environment is active."""
    del shop.env["VIRTUAL_ENV"]
    program = shop.bin / "python3"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -S -I "$@"\n')
    program.chmod(0o755)
    return shop


def test_an_interpreter_without_pytest_is_named_with_what_to_do(python_without_pytest: World, tmp_path: Path) -> None:
    world, words = python_without_pytest, ("improve", "-a", "replay", "--playbooks", str(tmp_path / "plays"))
    result = world.fails(3, *words, timeout=100)
    assert "python3 has no pytest here" in result.stderr
    assert "activate the environment that has it, or name the command: [improve] pytest" in result.stderr
    assert not world.ok("list", "--json").json["agents"] and not world.ok("runs", "--json").json["runs"]
    world.ok("config", "set", "improve.pytest", '["no-such-program"]')
    assert "no-such-program is not installed here" in world.fails(3, *words, timeout=100).stderr


def test_the_environment_of_the_project_is_used_when_none_is_active(
    python_without_pytest: World, tmp_path: Path
) -> None:
    world = python_without_pytest
    environment(world.repo / ".venv")
    words = ("improve", "test_shop.py::test_total", "-a", "replay", "--playbooks", str(tmp_path / "plays"))
    assert "test_total" in world.ok(*words, "--dry-run", "--all", timeout=100).stdout


def environment(folder: Path, *, pytest: bool = True) -> str:
    """A virtual environment as far as it matters here; returns its interpreter."""
    for name in ("bin", "lib/python3.11/site-packages/pytest" if pytest else "lib/python3.11/site-packages"):
        (folder / name).mkdir(parents=True)
    program = folder / "bin" / "python"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    program.chmod(0o755)
    return str(program)


def test_which_interpreter_runs_the_tests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    top, project = tmp_path / "top", tmp_path / "top" / "project"
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(name, raising=False)
    environment(project / ".venv", pytest=False)
    assert execute.usual_pytest(str(project), str(top)) == ("python3", "-m", "pytest")
    shared = environment(top / "venv")
    assert execute.usual_pytest(str(project), str(top)) == (shared, "-m", "pytest")
    own = environment(project / "venv")
    assert execute.usual_pytest(str(project), str(top)) == (own, "-m", "pytest")
    assert execute.usual_pytest("", str(top)) == ("python3", "-m", "pytest"), "another host has no such folder"
    monkeypatch.setenv("VIRTUAL_ENV", "/elsewhere")
    assert execute.usual_pytest(str(project), str(top)) == ("python3", "-m", "pytest")


def test_ctrl_c_in_the_baseline_leaves_no_test_running(shop: World, tmp_path: Path) -> None:
    (shop.repo / "test_shop.py").write_text("import time\ndef test_long(): time.sleep(1000)\n")
    shop.git("commit", "-qam", "a long test")
    process = subprocess.Popen(
        [shop.bin / "muster", "improve", "-a", "replay", "--playbooks", str(tmp_path / "plays"), "--run", "fix"],
        cwd=shop.repo,
        env=shop.env,
        stderr=subprocess.PIPE,
        text=True,
    )
    eventually(lambda: any("test_shop.py" in str(row["last_line"]) for row in shop.agents().values()), 60)
    process.send_signal(signal.SIGINT)
    assert "fix is not finished; the same command goes on with it" in process.communicate(timeout=60)[1]
    assert process.returncode == 130 and not shop.agents()


def test_outside_of_a_repository_it_is_said(world: World, tmp_path: Path) -> None:
    result = world.fails(2, "improve", "-a", "replay", "--playbooks", str(tmp_path), cwd=tmp_path)
    assert "in no git repository" in result.stderr
    assert "there is no folder" in world.fails(2, "improve", "-a", "replay", "--playbooks", "nowhere").stderr
    assert "takes no task" in world.fails(2, "improve", "-a", "command").stderr


def test_a_playbook_is_found_by_file_and_name_and_a_scouts_comes_first(tmp_path: Path) -> None:
    write(tmp_path, {"test_a.test_x": "", "test_x": "", "scout.test_x": "", "test_y": ""})
    assert plan.playbook(str(tmp_path), "t/test_a.py::test_x").endswith("/test_a.test_x.toml")
    assert plan.playbook(str(tmp_path), "t/test_b.py::test_x").endswith("/test_x.toml")
    assert plan.playbook(str(tmp_path), "t/test_a.py::test_x", "scout").endswith("/scout.test_x.toml")
    assert plan.playbook(str(tmp_path), "t/test_b.py::test_y", "scout").endswith("/test_y.toml")
    assert plan.playbook(str(tmp_path), "t/test_b.py::test_z") == ""


# Without agents


def begun(world: World, tests: dict[str, str], base: str = "") -> tuple[Fleet, ImproveRequest, Run, Baseline]:
    """A run of which the baseline is known: test functions by their status."""
    base = base or world.git("rev-parse", "HEAD")
    spec = Spec(Address(""), "replay")
    repo = str(world.repo)
    info = RunInfo(kind="improve", repo=repo, source=repo, base=base, type="replay")
    made = [Task(f"000{n}-t", n, id, {"role": "worker"}, "", (), base) for n, id in enumerate(tests)]
    run = runs.make(str(world.muster_home), "fix", info, made)
    found = [Function(id, id.split("::")[0], 1, 2, "", (id,)) for id in tests]
    outcome = {"passing": "passed", "failing": "failed"}
    standings = [FunctionResult(one, tests[one.id], {one.id: [outcome[tests[one.id]]]}) for one in found]
    fleet = Fleet(world.env, str(world.repo))
    return fleet, ImproveRequest(start.MapRequest(spec, "", (), [])), run, Baseline(base, tuple(standings), (), 1)


def commit(world: World, files: dict[str, str | None]) -> str:
    for name, text in files.items():
        path = world.repo / name
        if text is None:
            path.unlink()
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
    world.git("add", "-A")
    world.git("commit", "-q", "-m", "change")
    return world.git("rev-parse", "HEAD")


def test_one_branch_that_comes_to_no_tree_does_not_keep_the_others_from_being_verified(world: World) -> None:
    base = commit(world, {"tox.ini": "[tox]\n"})
    odd = commit(world, {"tox.ini": None})
    odd = commit(world, {"tox.ini/x.py": "x = 1\n"})
    fleet, wish, run, before = begun(world, {"test_a.py::test_x": "passing", "test_a.py::test_y": "passing"}, base)
    said: list[dict[str, Any]] = []
    for task, tip in zip(run.tasks(), (odd, ""), strict=True):
        run.end(run.begin(task.id, 1, AttemptAgent(name="a"), ""), Outcome(outcome="ok", final=True, tip=tip))
    verify.verify(fleet, wish, run, before, said.append)
    assert {event["task"]: event["outcome"] for event in said} == {"0000-t": "refused", "0001-t": "unchanged"}
    assert "there is no valid tree" in next(event["reason"] for event in said if event["task"] == "0000-t")


CLASSES = "class TestA:\n    def test_x(self): pass\nclass TestB(TestA):\n    pass\ndef test_y(): pass\n"


@pytest.mark.parametrize(
    ("files", "gone"),
    [
        ({"cases.py": "CASES = []\n"}, set()),
        ({"test_a.py": CLASSES + "def test_new(): pass\n"}, set()),
        ({"test_a.py": CLASSES.replace("test_y", "test_better")}, {"test_a.py::test_y"}),
        ({"test_a.py": CLASSES.partition("class TestB")[0]}, {"test_a.py::TestB::test_x", "test_a.py::test_y"}),
        ({"test_a.py": CLASSES.replace("test_x", "test_z")}, {"test_a.py::TestA::test_x", "test_a.py::TestB::test_x"}),
        ({"test_a.py": None}, {"test_a.py::TestA::test_x", "test_a.py::TestB::test_x", "test_a.py::test_y"}),
        ({"checks.py": None}, set()),
    ],
)
def test_a_test_was_removed_when_its_file_has_it_no_more(
    world: World, files: dict[str, str | None], gone: set[str]
) -> None:
    """What is in a file that is not judged as one of tests vanished all the same."""
    base = commit(world, {"test_a.py": CLASSES, "cases.py": "CASES = [1]\n", "checks.py": "def test_y(): pass\n"})
    names = ["test_a.py::TestA::test_x", "test_a.py::TestB::test_x", "test_a.py::test_y", "checks.py::test_y"]
    fleet, wish, run, before = begun(world, dict.fromkeys(names, "passing"), base)
    removed = verify.removed_from_file(fleet, wish, run, before, commit(world, files))
    assert {name for name in names if removed(name)} == gone


def test_the_whole_suite_is_red_when_a_test_of_it_vanished(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    base = commit(world, {"test_a.py": "def test_x(): pass\ndef test_y(): pass\ndef test_z(): pass\n"})
    names = {"test_a.py::test_x": "passing", "test_a.py::test_y": "passing", "test_a.py::test_z": "failing"}
    fleet, wish, run, before = begun(world, names, base)

    def full(commit: str, **outcomes: str) -> tuple[bool, str]:
        cases = {f"test_a.py::{name}": Case(f"test_a.py::{name}", one, text="why") for name, one in outcomes.items()}
        monkeypatch.setattr(execute, "run_in_parts", lambda *args, **more: Report(cases=cases, status=0))
        verdict = testers.PytestTester(fleet, wish, run, before).full(commit, ())
        return verdict.ok, verdict.words

    assert full(base, test_x="passed", test_y="passed", test_z="failed")[0]
    assert full(base, test_x="passed", test_z="failed") == (False, "test_a.py::test_y is gone, or did not run")
    assert full(base, test_x="passed", test_y="skipped", test_z="failed") == (
        False,
        "test_a.py::test_y is skipped now: why",
    )
    assert full(base, test_x="passed", test_y="passed") == (False, "test_a.py::test_z is gone, or did not run")
    renamed = commit(world, {"test_a.py": "def test_x(): pass\ndef test_better(): pass\ndef test_z(): pass\n"})
    assert full(renamed, test_x="passed", test_better="passed", test_z="failed")[0]


def request_of(world: World, config: str, *words: str) -> ImproveRequest:
    (world.home / ".config" / "muster").mkdir(parents=True, exist_ok=True)
    (world.home / ".config" / "muster" / "config.toml").write_text(config)
    args = parse.build("improve")[0].parse_args(["-a", "replay", *words])
    args.rest = []
    fleet = Fleet(world.env, str(world.repo))
    return api._improve_request(fleet, (), cli._options(args, fleet, map_cli.Display(False, "")))


def test_how_long_tests_may_take_is_configured(world: World) -> None:
    run = begun(world, {})[2]
    for config, seconds in (("", (300, 3600)), ('[improve]\ntest_timeout = 7\nsuite_timeout = "2h"\n', (7, 7200))):
        suite = setup.suite_of(run, request_of(world, config))
        assert (suite.test_seconds, suite.timeout) == seconds
    for value in ('"soon"', "0", "-1", "true"):
        with pytest.raises(UsageError, match=r"\[improve\] test_timeout must be more than 0"):
            request_of(world, f"[improve]\ntest_timeout = {value}\n")


@pytest.mark.parametrize("path", ["guide/tour.sh", "./guide/tour.sh", "tour[1].sh"])
def test_a_tutorial_that_is_named_is_protected(world: World, path: str) -> None:
    plain = os.path.normpath(path)
    assert paths.kind(plain, paths.Rules()) != "protected"
    for words, config in (([f"--tutorial={path}"], ""), ([], f"[improve]\ntutorial = '{path}'\n")):
        rules = request_of(world, config, *words).rules
        assert paths.kind(plain, rules) == "protected" and paths.kind(f"x/{plain}", rules) != "protected"
        assert rules.protected[0] == f"/{plain.replace('[', '[[]')}", "agents are told of it first"


def test_the_same_from_bare_verbs(shop: World, tmp_path: Path) -> None:
    """examples/pipeline.sh: two are put together, one that does not hold and one that conflicts are left to the integrator."""
    kept = {"test_total", "test_cheapest", "test_tax", "test_label"}
    text = "import shop\n" + "".join(
        f"\n\ndef {one.strip()}\n" for one in TESTS.split("def ")[1:] if one[: one.index("(")] in kept
    )
    (shop.repo / "test_shop.py").write_text(text)
    shop.git("commit", "-q", "-a", "-m", "fewer tests")
    write(
        tmp_path / "plays",
        {
            "test_label": play(edit("shop.py", "uper", "lower"), summary="Believe me"),
            "test_tax": play(
                SLOW,
                edit("shop.py", "sum(prices) + 1", "sum(prices) + 0"),
                edit("shop.py", "rate = 10", "rate = 0.19"),
            ),
            "integrator": play(SLOW, edit("shop.py", "uper", "upper"), edit("shop.py", "rate = 10", "rate = 0.19")),
        },
    )
    script = Path(__file__).parents[2] / "examples" / "pipeline.sh"
    done = subprocess.run(
        ["sh", script, "replay", f"{tmp_path}/plays/{{test}}.toml"],
        cwd=shop.repo,
        env={**shop.env, "PATH": f"{shop.bin}:{shop.env['PATH']}"},
        capture_output=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done
    assert shop.git("log", "--format=%s", "main..pipeline").splitlines() == ["Change shop.py"] * 4, done.stdout.decode()
    assert "left for the integrator: muster/fix-test_label muster/fix-test_tax" in done.stdout.decode()
    assert failing(shop, tmp_path, "pipeline~2") == {"test_label", "test_tax"}
    assert not failing(shop, tmp_path, "pipeline"), "what the integrator did is in it"
    assert shop.git("rev-parse", "pipeline") == shop.git("rev-parse", "muster/integrator")
    told = shop.agents()
    assert len(told) == 5 and {row["state"] for row in told.values()} == {"stopped"}
    assert "muster/fix-test_label muster/fix-test_tax" in shop.ok("transcript", "integrator").stdout


def shell(script: str) -> str:
    return f"[[step]]\nrun = '''{script}'''\nexpect_exit = 0\n"


ODD = {
    "test_merged": "git checkout -q -b side && sed -i s/0/1/ a.txt && {a} && git commit -qam a && git checkout -q - && git commit -q --allow-empty -m b && git merge -q --no-edit side",
    "test_rewritten": "{b} && git add -A && git reset -q --soft $(git rev-list --max-parents=0 HEAD) && git commit -qm all",
    "test_elsewhere": "git checkout -q -b other && {c} && git commit -qam c && git checkout -q -",
    "test_submodule": "git init -q sub && git -C sub -c user.name=x -c user.email=x@example.invalid commit -q --allow-empty -m x && git add sub 2>/dev/null && {d} && git commit -qam d",
    "test_binary": "printf '\\0\\1' > blob.bin && git add blob.bin && {e} && git commit -qam e",
    "test_mode": "chmod +x run.sh && git commit -qam f",
    "test_moved": "git mv g.py h.py && sed -i s/from.g/from\\ h/ shop.py && {g} && git commit -qam g",
    "test_edited": "echo 'MORE = 1' >> g.py && {h} && git commit -qam h",
    "test_empty": "git commit -q --allow-empty -m nothing",
}


@pytest.mark.slow
def test_whatever_agents_do_with_git_has_a_clear_outcome(world: World, tmp_path: Path) -> None:
    """Each mends its own function, and does something odd beside it."""
    letters = dict(zip(ODD, "abcdefghi", strict=True))
    shop = "from g import G\n\n\n" + "\n\n\n".join(
        f"def {letter}():\n    return '{letter}-bad'" for letter in "abcdeghi"
    )
    tests = "import os\nimport shop\n\n\n" + "\n\n\n".join(
        f"def {name}():\n    assert "
        + ("os.access('run.sh', os.X_OK)" if name == "test_mode" else f"shop.{letter}() == '{letter}'")
        for name, letter in letters.items()
    )
    files = {"shop.py": shop, "test_shop.py": tests, "a.txt": "0", "g.py": "G = 0\n\nA = 1\n", "run.sh": "#!/bin/sh"}
    for name, text in files.items():
        (world.repo / name).write_text(text + "\n")
    (world.repo / ".gitignore").write_text("__pycache__\n.pytest_cache\n")
    world.git("add", "-A")
    world.git("commit", "-q", "-m", "odd")
    fixes = {letter: f"sed -i s/{letter}-bad/{letter}/ shop.py" for letter in "abcdeghi"}
    plays = {name: play(shell(script.format(**fixes)), summary=f"Mend {name}") for name, script in ODD.items()}
    # All of them fail alike by what they say, so one of them is the scout.
    write(tmp_path / "plays", plays)
    told = improved(world, tmp_path, "--run", "odd", "--times", "1", "--integrator", "none")
    shown = world.ok("runs", "show", "odd", "--json").json
    nothing = ("refused", "it claims a fix, but it changed nothing")
    results = {task["item"].partition("::")[2]: (task["verified"], task["reason"]) for task in shown["tasks"]}
    assert results == dict.fromkeys(ODD, ("fixed", None)) | {"test_elsewhere": nothing, "test_empty": nothing}
    assert told["left_out"] == {} and set(subjects(world, "muster-run/odd")) == {
        f"Mend {name}" for name, (result, _) in results.items() if result == "fixed"
    }
    assert failing(world, tmp_path, "muster-run/odd") == {"test_elsewhere", "test_empty"}
    files = world.git("ls-tree", "-r", "--format=%(objectmode) %(path)", "muster-run/odd").splitlines()
    assert {"100755 run.sh", "100644 blob.bin", "100644 h.py"} <= {*files}, "modes, binary files and renames are taken"
    assert not [file for file in files if file.startswith("160000") or file.endswith(" g.py")]
    assert "MORE = 1" in world.git("show", "muster-run/odd:h.py"), "what another wrote into the file went with it"
    checked = next((world.muster_home / "runs/odd/tasks").glob("*-test-submodule")) / "verified.json"
    (kept,) = json.loads(checked.read_text())["kept_out"]
    assert kept["path"] == "sub" and not world.git("log", "--merges", "--format=%h", "main..muster-run/odd")


def report(world: World, name: str, test: str) -> dict[str, Any]:
    """What was found of the task for a test."""
    found = next((world.muster_home / "runs" / name / "tasks").glob(f"*-{test.replace('_', '-')}")) / "verified.json"
    told: dict[str, Any] = json.loads(found.read_text())
    return told


@pytest.mark.parametrize(
    ("script", "result"),
    [
        ("git reset -q --hard HEAD~2 && {fix} && git commit -qam fix", "fixed"),
        ("git reset -q --soft HEAD~1 && {fix} && git commit -qam fix", "fixed"),
        pytest.param("{fix} && git commit -qa --amend -m fix", "fixed", marks=pytest.mark.slow),
        pytest.param(
            "{fix} && b=$(git symbolic-ref --short HEAD) && git checkout -q --orphan new && git commit -qam fix && git branch -M $b",
            "fixed",
            marks=pytest.mark.slow,
        ),
        ("git reset -q --hard HEAD~2 && echo mine > notes.txt && {fix} && git add -A && git commit -qm fix", "refused"),
    ],
    ids=["hard", "soft", "amend", "orphan", "conflict"],
)
def test_a_branch_that_does_not_begin_at_its_base_takes_no_commit_of_the_users_back(
    world: World, tmp_path: Path, script: str, result: str
) -> None:
    world.activate()
    code = "def total(prices):\n    return sum(prices) + 1\n\n\ndef one():\n    return 1\n"
    test = "import shop\n\n\ndef test_total():\n    assert shop.total([1, 2]) == 3\n"
    commit(world, {"shop.py": code, "test_shop.py": test, ".gitignore": "__pycache__\n.pytest_cache\n"})
    commit(world, {"notes.txt": "first\n", "shop.py": code + "\n\ndef two():\n    return 2\n"})
    commit(world, {"notes.txt": "first\nsecond\n", "more.txt": "more\n"})
    fix = "sed -i s/sum.prices..+.1/sum\\(prices\\)/ shop.py"
    play_text = play(shell(script.format(fix=fix)), summary="Sum up prices only")
    write(tmp_path / "plays", {"test_total": play_text})
    told = improved(world, tmp_path, "--run", "fix", "--times", "1", code=0 if result == "fixed" else 1)
    found = report(world, "fix", "test_total")
    assert found["result"] == result, found
    if result == "refused":
        assert "conflicts with commits of yours in notes.txt" in found["reason"] and not told["commit"]
        return
    assert "only its own changes are taken" in found["reason"]
    assert world.git("diff", "--name-only", "main", "muster-run/fix") == "shop.py"
    assert world.git("diff", "--shortstat", "main", "muster-run/fix").endswith("1 insertion(+), 1 deletion(-)")


def test_a_change_without_an_effect_on_its_test_is_no_fix(world: World, tmp_path: Path) -> None:
    """The scout's fix mends a test of another kind too; the agent of that test commits only what it found lying around."""
    world.activate()
    code = "def name(text):\n    return text.uper()\n\n\ndef size(text):\n    return len(getattr(text, 'uper', str)() or ' ')\n"
    tests = "import shop\n\n\n" + "\n\n\n".join(
        (
            "def test_a():\n    assert shop.name('a') == 'A'",
            "def test_b():\n    assert shop.name('b') == 'B'",
            "def test_c():\n    import pathlib\n    assert 'uper' not in pathlib.Path(shop.__file__).read_text()",
        )
    )
    commit(world, {"shop.py": code, "test_shop.py": tests + "\n"})
    junk = "mkdir -p node_modules/x && echo 1 > node_modules/x/i.js && echo KEY=1 > .env && echo x > notes.txt && git add -A -f && git commit -qm junk"
    write(
        tmp_path / "plays",
        {
            "scout.test_a": play(shell("sed -i s/uper/upper/g shop.py && git commit -qam fix"), summary="Call upper"),
            "test_c": play(shell(junk), summary="Fix case folding of choices"),
        },
    )
    told = improved(world, tmp_path, "--run", "fix", "--times", "1")
    found = report(world, "fix", "test_c")
    assert (found["result"], found["reason"]) == ("refused", "test_shop.py::test_c also passes without the change")
    assert {one["path"] for one in found["kept_out"]} >= {".env", "node_modules/x/i.js"}
    assert subjects(world, "muster-run/fix") == ["Call upper"] and told["funnel"]["refused"] == 1


def test_of_two_scouts_that_fix_one_bug_only_one_is_delivered_though_others_build_on_them(
    world: World, tmp_path: Path
) -> None:
    """One scout mends a function, the other one a caller of it: they merge cleanly, and a worker starts from what they made."""
    world.activate()
    caller = "from raw import raw\n\n\ndef text(a):\n    return raw(a).strip()\n"
    number = "from raw import raw\n\n\ndef number(a):\n    return raw(a) + 1\n"
    tests = "from number import number\nfrom other import other\nfrom text import text\n\n\n" + "\n\n\n".join(
        (
            "def test_number():\n    assert number(1) == 2",
            "def test_number_again():\n    assert number(2) == 3",
            "def test_text():\n    assert text(' a') == 'a'",
            "def test_text_again():\n    assert text(' b') == 'b'",
            "def test_other():\n    assert other() == 1",
        )
    )
    raw, other = "def raw(a):\n    return None\n", "def other():\n    return 0\n"
    files = {"raw.py": raw, "number.py": number, "text.py": caller, "other.py": other, "test_all.py": tests + "\n"}
    commit(world, {**files, ".gitignore": "__pycache__\n.pytest_cache\n"})
    write(
        tmp_path / "plays",
        {
            "scout.test_number": play(edit("raw.py", "return None", "return a"), summary="Return the value"),
            "scout.test_text": play(edit("text.py", "raw(a)", "(raw(a) or a)"), summary="Fall back to the text"),
            "test_other": play(edit("other.py", "return 0", "return 1"), summary="Return one"),
        },
    )
    told = improved(world, tmp_path, "--run", "fix", "--times", "1", "--integrator", "none")
    assert sorted(subjects(world, "muster-run/fix")) == ["Return one", "Return the value"]
    assert {name[5:]: left["reason"] for name, left in told["left_out"].items()} == {
        "scout-test-text": "already fixed by 0001-scout-test-number"
    }
    assert not failing(world, tmp_path, "muster-run/fix")


def test_what_is_kept_out_of_an_accepted_change_is_listed_beside_it(world: World, tmp_path: Path) -> None:
    """The fix is delivered without it; stdout, runs show, the pull request and the page say so."""
    world.activate()
    test = "import shop\n\n\ndef test_total():\n    assert shop.total([1, 2]) == 3\n"
    commit(world, {"shop.py": "def total(prices):\n    return sum(prices) + 1\n", "test_shop.py": test})
    script = "sed -i s/.+.1// shop.py && python3 -c 'import shop' && echo KEY=1 > .env && git add -A -f && git commit -qm fix"
    write(tmp_path / "plays", {"test_total": play(shell(script), summary="Sum up prices only")})
    command = ("improve", "-a", "replay", "--playbooks", str(tmp_path / "plays"), "--times", "1", "--run", "fix")
    told = world.ok(*command, timeout=200)
    assert world.git("diff", "--name-only", "main", "muster-run/fix") == "shop.py"
    line = next(line for line in told.stdout.splitlines() if line.startswith("kept out of 0001-test-total: "))
    assert ".env (it holds local settings and secrets)" in line and ".pyc (a tool left it behind)" in line
    assert line in world.ok("runs", "show", "fix").stdout.splitlines()
    text = (world.muster_home / "runs/fix/pull-request.md").read_text()
    assert "## Kept out of these changes\n\n- `0001-test-total`: .env (it holds local settings and secrets)" in text
    world.ok("report", "fix", "--out", str(tmp_path / "page"))
    page = "".join(
        file.read_text() for file in (tmp_path / "page").rglob("*.*") if file.suffix in (".html", ".js", ".json")
    )
    assert "it holds local settings and secrets" in page


@pytest.mark.slow
def test_a_dirty_or_detached_repository_and_a_base_that_moved_are_said(shop: World, tmp_path: Path) -> None:
    words = ("improve", "-a", "replay", "--playbooks", str(tmp_path / "plays"), "--run", "fix", "--dry-run")
    shop.git("checkout", "-q", "--detach")
    (shop.repo / "shop.py").write_text("broken(")
    first = shop.ok(*words, timeout=100)
    assert "it starts from your last commit: 1 changed files of yours are not in it" in first.stderr
    assert "failing  test_shop.py::test_total" in first.stdout
    shop.git("commit", "-q", "-a", "-m", "broken")
    moved = shop.ok(*words, timeout=100)
    assert "your branch has moved since the run began; it goes on from where it began" in moved.stderr
    assert moved.stdout == first.stdout and (shop.repo / "shop.py").read_text() == "broken("


def test_the_prompt_equals_the_golden_file() -> None:
    """Prompts change on purpose only: MUSTER_GOLDEN=1 writes the file again."""
    wish = ImproveRequest(start.MapRequest(Spec(Address(""), "claude"), "", (), []), args=("-q",))
    block = Cited("total-1", "# What was sold in a month.\ntill total --month 2026-12")
    name = "tests/test_totals.py::test_total_of_a_month"
    function = Function(name, "tests/test_totals.py", 10, 18, "", (name,), (), (block,))
    case = Case(name, "failed", 0.1, "ValueError: month must be in 1..12\n```\nforged fence\n```")
    group = Group("f", "ValueError in ledger.py", (name, "tests/test_files.py::test_export"), "ValueError")
    bad, good = FunctionResult(function, "failing", {}, 0.1, case), FunctionResult(function, "passing", {})
    texts = [
        plan.prompt(wish, bad, "scout", group, ()),
        plan.prompt(wish, bad, "worker", None, ["2 of 2 that failed alike: Mend the month"]),
        plan.prompt(wish, good, "worker", None, ()),
    ]
    golden = Path(__file__).parent / "golden" / "improve.md"
    text = "\n=====\n".join(texts)
    if os.environ.get("MUSTER_GOLDEN"):
        golden.write_text(text)
    assert text == golden.read_text()
    assert all("submit" in one and name in one and "till total" in one and "{{" not in one for one in texts)
    assert "````\nValueError" in texts[0], "no text can end the block that it stands in"
