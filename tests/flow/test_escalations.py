"""The ledger of escalations, over several runs."""

from __future__ import annotations

from pathlib import Path

from muster.flow.run import escalations
from muster.flow.run.directory import Run
from muster.flow.run.records import AttemptAgent, Outcome
from muster.flow.run.results import Result

from ..conftest import World
from .test_converged import make_run


def escalate(run: Run, number: int, *texts: str, attempt: int = 1, t: float = 1.0) -> None:
    """Write the outcome of an agent of the run that escalated these texts."""
    begun = run.begin(run.tasks()[number].id, attempt, AttemptAgent(name="a"), "")
    run.end(begun, Outcome(outcome="ok", final=True, t=t, claimed=Result("ok", "", escalate=texts)))


def test_equal_escalations_are_counted_and_stay_closed_until_said_again(world: World) -> None:
    home = str(world.muster_home)

    def shown() -> dict[str, int]:
        return {row["text"]: row["count"] for row in world.ok("runs", "escalations", "--json").json["escalations"]}

    first, second = make_run(world, "one", ["a", "b"]), make_run(world, "two", ["c"])
    escalate(first, 0, "the disk of box7 is full", t=100.0)
    escalate(first, 1, "the disk of box8 is full", "something else", t=101.0)
    escalations.record(home, first)
    escalations.record(home, first)  # nothing is counted twice
    escalate(second, 0, "the disk of box9 is full", t=102.0)
    escalations.record(home, second)
    entries = {entry.text: (key, entry.by) for key, entry in escalations.load(home).items()}
    key, by = entries["the disk of box7 is full"]
    assert by == ("one/0000-t", "one/0001-t", "two/0000-t") and len(entries) == 2
    assert shown() == {"the disk of box7 is full": 3, "something else": 1}
    world.ok("runs", "close", key)
    escalations.record(home, first)
    escalations.record(home, second)
    assert shown() == {"something else": 1}
    closed = escalations.load(home)[key].closed
    assert closed
    escalate(second, 0, "the disk of box9 is full", attempt=2, t=closed + 1)
    escalations.record(home, second)
    assert shown() == {"the disk of box7 is full": 3, "something else": 1}, "the same task said it again"


def test_agents_of_map_can_escalate(world: World, tmp_path: Path) -> None:
    play = '[[step]]\nsubmit = "ok"\nsummary = "Done"\nescalate = ["Decide on the order"]\n[[step]]\nturn = "Done."\n'
    (tmp_path / "play.toml").write_text(play)
    world.ok("map", "-a", "replay", "-p", "Look at {item}", "--", str(tmp_path / "play.toml"), input=b"a\nb\n")
    (one,) = world.ok("runs", "escalations", "--json").json["escalations"]
    assert (one["text"], one["count"]) == ("Decide on the order", 2)
    assert "Decide on the order" in world.ok("runs", "show", "map-1").stdout
