"""What is remembered from run to run, on runs whose directories are written here."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from muster import Fleet
from muster.flow.improving import converged
from muster.flow.run import directory as runs
from muster.flow.run.directory import Run
from muster.flow.run.records import Ahead, AttemptAgent, Outcome, RunInfo, Verified
from muster.flow.run.results import Result
from muster.flow.run.tasks import Task
from muster.flow.suite.baseline import Baseline

from ..conftest import World


def begun(world: World, name: str, items: Sequence[str] = (), base: str = "") -> Run:
    tasks = [
        Task(f"000{number}-t", number, item, {"role": "worker"}, "", (), base) for number, item in enumerate(items)
    ]
    info = RunInfo(kind="improve", repo=str(world.repo), base=base or world.git("rev-parse", "HEAD"))
    return runs.make(str(world.muster_home), name, info, tasks)


def told(run: Run, number: int, *texts: str, attempt: int = 1, t: float = 1.0) -> None:
    """An agent of the run has escalated something."""
    begun = run.begin(run.tasks()[number].id, attempt, AttemptAgent(name="a"), "")
    run.end(begun, Outcome(outcome="ok", final=True, t=t, claimed=Result("ok", "", escalate=texts)))


# Work in open branches


@pytest.fixture
def delivered(world: World) -> World:
    """A run `fix` whose branch has one commit of a scout, by which two tests pass, and one of a branch from elsewhere."""
    (world.repo / "shop.py").write_text("a = 1\n\n\n\nb = 1\n")
    world.git("add", "-A")
    world.git("commit", "-q", "-m", "shop")
    run = begun(world, "fix", ["t.py::one", "topic", "t.py::refused"])
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


def open_ones(world: World) -> set[str]:
    run = begun(world, runs.free_name(str(world.muster_home), "later"))
    before = Baseline(world.git("rev-parse", "HEAD"), (), (), 1)
    found = converged.skipped(Fleet(world.env, str(world.repo)), run, before, "claude")
    assert set(found.values()) <= {"it is done in the open branch muster-run/fix"}
    return set(found)


DONE = {"t.py::one", "t.py::two", "t.py::three"}


def test_all_tests_of_what_is_in_an_open_branch_are_done_there(delivered: World) -> None:
    """Those that pass by a scout, which are no tasks, and those that a branch from elsewhere fixes."""
    assert open_ones(delivered) == DONE


def test_a_branch_is_open_when_a_person_has_added_to_it(delivered: World) -> None:
    delivered.git("checkout", "-q", "muster-run/fix")
    delivered.git("commit", "-q", "--allow-empty", "-m", "review")
    delivered.git("checkout", "-q", "main")
    assert open_ones(delivered) == DONE
    delivered.git("branch", "-q", "-f", "muster-run/fix", "main")
    assert open_ones(delivered) == set(), "it is another branch of that name"
    delivered.git("branch", "-q", "-D", "muster-run/fix")
    assert open_ones(delivered) == set()


@pytest.mark.parametrize("how", ["--ff-only", "--no-ff", "--squash", "pick"])
def test_a_branch_that_was_taken_is_not_open_however_it_was_taken(delivered: World, how: str) -> None:
    def commit(name: str, text: str = "x\n") -> None:
        (delivered.repo / name).write_text(text)
        delivered.git("add", "-A")
        delivered.git("commit", "-q", "-m", name)

    if how != "--ff-only":
        commit("other.py")
        assert open_ones(delivered) == DONE, "the base moved, and that is all"
    if how == "pick":
        delivered.git("cherry-pick", "main..muster-run/fix")
    else:
        delivered.git("merge", "-q", how, *(["-m", "merged"] if how == "--no-ff" else []), "muster-run/fix")
    if how == "--squash":
        delivered.git("commit", "-q", "-m", "squashed")
    assert open_ones(delivered) == set()
    commit("shop.py", "a = 1\n\n\n\nb = 1\n")
    assert open_ones(delivered) == set(), "what broke again is to be done again"


def test_a_branch_of_which_only_a_part_was_taken_is_open(delivered: World) -> None:
    (delivered.repo / "other.py").write_text("")
    delivered.git("add", "-A")
    delivered.git("commit", "-q", "-m", "other")
    delivered.git("cherry-pick", "muster-run/fix~1")
    assert open_ones(delivered) == DONE


# Escalations


def test_what_agents_escalate_is_counted_and_what_is_closed_stays_so_until_it_is_said_again(world: World) -> None:
    home = str(world.muster_home)
    first, second = begun(world, "one", ["a", "b"]), begun(world, "two", ["c"])
    told(first, 0, "the disk of box7 is full", t=100.0)
    told(first, 1, "the disk of box8 is full", "something else", t=101.0)
    converged.escalate(home, first)
    converged.escalate(home, first)  # nothing is counted twice
    told(second, 0, "the disk of box9 is full", t=102.0)
    converged.escalate(home, second)
    found = {one["text"]: (key, one["by"]) for key, one in converged.escalations(home).items()}
    key, by = found["the disk of box7 is full"]
    assert by == ["one/0000-t", "one/0001-t", "two/0000-t"] and len(found) == 2
    shown = world.ok("runs", "escalations", "--json").json["escalations"]
    assert {one["text"]: one["count"] for one in shown} == {"the disk of box7 is full": 3, "something else": 1}
    world.ok("runs", "close", key)
    converged.escalate(home, first)
    converged.escalate(home, second)
    assert [one["text"] for one in world.ok("runs", "escalations", "--json").json["escalations"]] == ["something else"]
    closed = converged.escalations(home)[key]["closed"]
    told(second, 0, "the disk of box9 is full", attempt=2, t=closed + 1)
    converged.escalate(home, second)
    again = {one["text"]: one["count"] for one in world.ok("runs", "escalations", "--json").json["escalations"]}
    assert again == {"the disk of box7 is full": 3, "something else": 1}, "the same task, after it was closed"


def test_a_run_of_map_escalates_too(world: World, tmp_path: Path) -> None:
    play = '[[step]]\nsubmit = "ok"\nsummary = "Done"\nescalate = ["Decide on the order"]\n[[step]]\nturn = "Done."\n'
    (tmp_path / "play.toml").write_text(play)
    world.ok("map", "-a", "replay", "-p", "Look at {item}", "--", str(tmp_path / "play.toml"), input=b"a\nb\n")
    (one,) = world.ok("runs", "escalations", "--json").json["escalations"]
    assert (one["text"], one["count"]) == ("Decide on the order", 2)
    assert "Decide on the order" in world.ok("runs", "show", "map-1").stdout


WRITER = """
import sys, time
from muster.flow.improving import converged as memory
from muster.flow.run import directory as runs
from muster.flow.run.records import AttemptAgent, Outcome
from muster.flow.run.results import Result
from muster import Fleet
from muster.flow.suite.baseline import Baseline, Standing
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
    memory.escalate(home, run)
    tests = [Standing(Function(f"{who}.py::{'t' * number}", "a.py", 1, 1, "", ()), "passing", {})]
    memory.converge(fleet, run, Baseline("HEAD", tuple(tests), (), 1), "claude", "", {"HEAD": [tests[0].function.id]})
"""


def test_two_processes_lose_nothing_of_what_the_other_wrote(world: World) -> None:
    names = ["one", "two"]
    for name in names:
        begun(world, name, ["a"])
    started = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(world.muster_home), name], cwd=world.repo, env=world.env)
        for name in names
    ]
    assert [process.wait(60) for process in started] == [0, 0]
    ledger: dict[str, Any] = converged.escalations(str(world.muster_home))
    assert len(ledger) == 40
    known = converged._converged(str(world.muster_home), str(world.repo))
    assert len(known) == 40


# The funnel


def test_a_run_is_shown_with_the_difference_to_the_one_before(world: World) -> None:
    one, two = begun(world, "one", ["a", "b"]), begun(world, "two", ["a", "b"])
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
