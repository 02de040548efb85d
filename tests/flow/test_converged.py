"""Which tests need no agent, from run directories that are written here; and the summary that compares two runs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from muster import Fleet
from muster.flow.improving import converged
from muster.flow.run import directory as runs
from muster.flow.run import escalations
from muster.flow.run.directory import Run
from muster.flow.run.records import Ahead, AttemptAgent, Outcome, RunInfo, Verified
from muster.flow.run.results import Result
from muster.flow.run.tasks import Task
from muster.flow.suite.baseline import Baseline

from ..conftest import World


def make_run(world: World, name: str, items: Sequence[str] = (), base: str = "") -> Run:
    tasks = [
        Task(f"000{number}-t", number, item, {"role": "worker"}, "", (), base) for number, item in enumerate(items)
    ]
    info = RunInfo(kind="improve", repo=str(world.repo), base=base or world.git("rev-parse", "HEAD"))
    return runs.make(str(world.muster_home), name, info, tasks)


# Work in open branches


@pytest.fixture
def delivered(world: World) -> World:
    """A run `fix`. Its branch has a scout's commit, which makes two tests pass, and a commit of somebody's own branch."""
    (world.repo / "shop.py").write_text("a = 1\n\n\n\nb = 1\n")
    world.git("add", "-A")
    world.git("commit", "-q", "-m", "shop")
    run = make_run(world, "fix", ["t.py::one", "topic", "t.py::refused"])
    world.git("checkout", "-q", "-b", "muster-run/fix")
    for line in ("a = 1", "b = 1"):
        path = world.repo / "shop.py"
        path.write_text(path.read_text().replace(line, line.replace("1", "2")))
        world.git("commit", "-q", "-a", "-m", line)
    commit = world.git("rev-parse", "HEAD")
    world.git("checkout", "-q", "main")
    accepted = [{"name": "0000-t", "collapsed": ["0001-t"]}]
    runs.write(run.path("delivery.json"), {"commit": commit, "branch": "muster-run/fix", "accepted": accepted})
    run.save(Ahead(fixed={"t.py::one": "0000-t", "t.py::two": "0000-t", "t.py::x": "0009-t"}))
    (Path(run.folder) / "tasks" / "0001-t").mkdir()
    run.save_verified("0001-t", Verified(result="fixed", tests=("t.py::three",)))
    return world


def done_in_branches(world: World) -> set[str]:
    """Return the tests that a new run skips because an open branch has fixed them."""
    run = make_run(world, runs.free_name(str(world.muster_home), "later"))
    baseline = Baseline(world.git("rev-parse", "HEAD"), (), (), 1)
    reasons = converged.reasons_to_skip(Fleet(world.env, str(world.repo)), run, baseline, "claude")
    assert set(reasons.values()) <= {"it is done in the open branch muster-run/fix"}
    return set(reasons)


DONE = {"t.py::one", "t.py::two", "t.py::three"}


def test_tests_fixed_in_an_open_branch_are_skipped(delivered: World) -> None:
    """Also tests without a task that pass because of a scout, and tests that somebody's own branch fixes."""
    assert done_in_branches(delivered) == DONE


def test_a_branch_stays_open_when_a_person_adds_commits(delivered: World) -> None:
    delivered.git("checkout", "-q", "muster-run/fix")
    delivered.git("commit", "-q", "--allow-empty", "-m", "review")
    delivered.git("checkout", "-q", "main")
    assert done_in_branches(delivered) == DONE
    delivered.git("branch", "-q", "-f", "muster-run/fix", "main")
    assert done_in_branches(delivered) == set(), "another branch of the same name"
    delivered.git("branch", "-q", "-D", "muster-run/fix")
    assert done_in_branches(delivered) == set()


@pytest.mark.parametrize("how", ["--ff-only", "--no-ff", "--squash", "pick"])
def test_a_merged_branch_is_not_open_however_it_was_merged(delivered: World, how: str) -> None:
    def commit(name: str, text: str = "x\n") -> None:
        (delivered.repo / name).write_text(text)
        delivered.git("add", "-A")
        delivered.git("commit", "-q", "-m", name)

    if how != "--ff-only":
        commit("other.py")
        assert done_in_branches(delivered) == DONE, "only the base moved"
    if how == "pick":
        delivered.git("cherry-pick", "main..muster-run/fix")
    else:
        delivered.git("merge", "-q", how, *(["-m", "merged"] if how == "--no-ff" else []), "muster-run/fix")
    if how == "--squash":
        delivered.git("commit", "-q", "-m", "squashed")
    assert done_in_branches(delivered) == set()
    commit("shop.py", "a = 1\n\n\n\nb = 1\n")
    assert done_in_branches(delivered) == set(), "a test that broke again is done again"


def test_a_partly_merged_branch_is_open(delivered: World) -> None:
    (delivered.repo / "other.py").write_text("")
    delivered.git("add", "-A")
    delivered.git("commit", "-q", "-m", "other")
    delivered.git("cherry-pick", "muster-run/fix~1")
    assert done_in_branches(delivered) == DONE


WRITER = """
import sys, time
from muster.flow.improving import converged
from muster.flow.run import directory as runs
from muster.flow.run import escalations
from muster.flow.run.records import AttemptAgent, Outcome
from muster.flow.run.results import Result
from muster import Fleet
from muster.flow.suite.baseline import Baseline, FunctionResult
from muster.flow.suite.collect import Function
home, who = sys.argv[1:]
run = runs.find(home, who)
read = runs.read
def slow(path):
    found = read(path)
    if "escalations" in path or "converged" in path:
        time.sleep(0.01)
    return found
runs.read = slow
fleet = Fleet()
for number in range(20):
    for task in run.tasks():
        attempt = run.begin(task.id, 1, AttemptAgent("a"), "")
        run.end(attempt, Outcome("ok", t=1, claimed=Result("ok", "", escalate=("x" * number + who,))))
    escalations.record(home, run)
    tests = [FunctionResult(Function(f"{who}.py::{'t' * number}", "a.py", 1, 1, "", ()), "passing", {})]
    converged.remember(fleet, run, Baseline("HEAD", tuple(tests), (), 1), "claude", "", {"HEAD": [tests[0].function.id]})
"""


def test_two_processes_do_not_overwrite_each_others_entries(world: World) -> None:
    names = ["one", "two"]
    for name in names:
        make_run(world, name, ["a"])
    started = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(world.muster_home), name], cwd=world.repo, env=world.env)
        for name in names
    ]
    assert [process.wait(60) for process in started] == [0, 0]
    assert len(escalations.load(str(world.muster_home))) == 40
    assert len(converged._load(str(world.muster_home), str(world.repo))) == 40


# The summary


def test_runs_show_compares_a_run_with_the_one_before(world: World) -> None:
    one, two = make_run(world, "one", ["a", "b"]), make_run(world, "two", ["a", "b"])
    for run, number, outcome, cost in ((one, 0, "blocked", 1.5), (two, 0, "ok", 0.25), (two, 1, "ok", 0.5)):
        attempt = run.begin(run.tasks()[number].id, 1, AttemptAgent(name="a"), "")
        run.end(
            attempt, Outcome(outcome=outcome, final=True, t=1, claimed=Result(outcome, ""), cost_usd=cost, tokens=10)
        )
    shown = [line.split() for line in world.ok("runs", "show", "two").stdout.splitlines()]
    assert ["RUN", "two", "SINCE"] in shown and ["launched", "2", "+1"] in shown and ["blocked", "0", "-1"] in shown
    assert ["spent", "$0.75", "-$0.75"] in shown
    told = world.ok("runs", "show", "two", "--json").json
    assert told["before"] == "one" and told["funnel"]["cost_usd"] == 0.75
    assert (told["since"]["cost_usd"], told["since"]["tokens"], told["since"]["blocked"]) == (-0.75, 10, -1)
    first = world.ok("runs", "show", "one", "--json").json
    assert (first["before"], first["since"]) == (None, None)
