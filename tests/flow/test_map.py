"""The scheduler over made-up machines: every task ends in an outcome, and no limit is overstepped."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pytest

from muster import Status
from muster.flow import run as runs
from muster.flow.breaker import Breaker
from muster.flow.governor import Governor, Limits
from muster.flow.map import HALF_MADE, Plan, Scheduler
from muster.flow.run import Attempt
from muster.flow.task import items, tasks
from muster.flow.watch import Rules

from .sim import One, SimField, World


def simulate(
    tmp_path: Path, count: int, world: World, *, retries: int = 1, stall: float = 1800.0, **limits: Any
) -> tuple[dict[str, Any], SimField, Scheduler]:
    made = tasks(items("".join(f"t{n}\n" for n in range(count))), "Look at {item}", [])
    run = runs.make(str(tmp_path), "sim-1", {"digest": "d", "type": "sim"}, made)
    field = SimField(world)
    governor = Governor(Limits(**{"max_agents": 50, **limits}), field.now())
    plan = Plan(tuple(f"h{n}" for n in range(world.hosts)), Rules(True, stall), retries)
    scheduler = Scheduler(run, plan, governor, Breaker(), field, lambda event: None, random.Random(2).random)
    assert scheduler.go()
    picture = run.picture()
    assert sum(picture["outcomes"].values()) == count, "every task has an outcome"
    gone = {host for host, _ in world.dead}
    assert not any(ones for place, ones in field.agents.items() if place not in gone), "no agent is left"
    return picture, field, scheduler


def test_all_of_them_are_done_once(tmp_path: Path) -> None:
    picture, field, _ = simulate(tmp_path, 200, World(hosts=3), max_agents=20)
    assert picture["outcomes"] == {"ok": 200} and set(field.runs.values()) == {1}
    assert field.booked.dollars == pytest.approx(picture["cost_usd"]), (
        "what the last ones spent is in the day's sum too"
    )
    assert field.most <= 20


def test_what_goes_wrong_has_its_outcome(tmp_path: Path) -> None:
    ends = (("ok", 0.76), ("failed", 0.06), ("hang", 0.06), ("silent", 0.06), ("launch", 0.06))
    picture, field, _ = simulate(tmp_path, 300, World(hosts=5, ends=ends), retries=2)
    assert picture["outcomes"].keys() <= {"ok", "failed", "stalled"} and picture["outcomes"]["ok"] > 200
    assert max(field.runs.values()) <= 3


def test_hosts_that_can_launch_nothing_cost_no_task_and_little_time(tmp_path: Path) -> None:
    """They would swallow task after task: whatever fails at once leaves the most room."""
    _, undisturbed, _ = simulate(tmp_path / "good", 400, World(hosts=8, works=(20.0, 120.0)))
    world = World(hosts=10, works=(20.0, 120.0), full=("h3", "h5"))
    picture, field, _ = simulate(tmp_path / "bad", 400, world)
    assert picture["outcomes"] == {"ok": 400}
    assert sum(task["attempts"] for task in picture["tasks"]) < 400 + 30
    assert field.t - field.began_at < 1.5 * (undisturbed.t - undisturbed.began_at)
    assert sum("nothing more is launched on h" in text for _, text in field.alerts) == 2


def test_a_budget_is_hard(tmp_path: Path) -> None:
    """Over it by no more than what the agents in flight spend between two looks and while they are being stopped."""
    world = World(hosts=4, works=(100.0, 200.0), dollars=(0.5, 1.5))
    picture, field, _ = simulate(tmp_path, 500, world, dollars=50.0)
    assert picture["outcomes"]["over-budget"] > 300
    assert picture["cost_usd"] <= 50.0 + field.most * 1.5 * (5 / 100)


def test_the_budget_of_a_day_is_hard_too(tmp_path: Path) -> None:
    world = World(hosts=4, works=(100.0, 200.0), dollars=(0.5, 1.5), spent_today=30.0)
    picture, field, _ = simulate(tmp_path, 500, world, day_dollars=50.0)
    assert picture["outcomes"]["over-budget"] > 300
    assert picture["cost_usd"] <= 20.0 + field.most * 1.5 * (5 / 100)
    assert [cause for cause, _ in field.alerts] == ["over-budget"], "somebody is told"


def test_a_run_that_holds_itself_back_is_lifted_by_a_person(tmp_path: Path) -> None:
    """All fail until somebody has mended it and says so: the pause before the canary is not waited for."""
    ends = (("ok", 0.0), ("launch", 1.0))
    field = SimField(World(ends=ends))
    made = tasks(items("".join(f"t{n}\n" for n in range(40))), "Look at {item}", [])
    run = runs.make(str(tmp_path), "sim-1", {"digest": "d", "type": "sim"}, made)
    asked: list[float] = []

    def say(event: dict[str, Any]) -> None:
        if event["kind"] == "alert" and not asked:
            asked.append(event["t"])
            field.world = field.world._replace(ends=(("ok", 1.0),))
            run.ask(resumed=1.0)

    scheduler = Scheduler(
        run,
        Plan(("h0",), Rules(True, 0), 5),
        Governor(Limits(), field.now()),
        Breaker(),
        field,
        say,
        lambda: 0.0,
    )
    assert scheduler.go() and run.picture()["outcomes"] == {"ok": 40}
    assert asked and min(at for at in field.began if at > asked[0]) < asked[0] + 30


def test_a_limit_is_waited_for_and_is_no_failure(tmp_path: Path) -> None:
    world = World(hosts=2, works=(30.0, 60.0), quota=(1200.0, 3600.0))
    picture, field, _ = simulate(tmp_path, 100, world, max_agents=20)
    assert picture["outcomes"] == {"ok": 100} and field.limits and field.early == 0


def test_one_that_was_told_something_has_time_to_take_it_up(tmp_path: Path) -> None:
    """Telling takes longer than a look: what is seen in between is from before."""
    world = World(works=(5.0, 10.0), ends=(("forgets", 1.0),), tell=(3.0, 20.0))
    picture, field, _ = simulate(tmp_path, 30, world, retries=0)
    assert picture["outcomes"] == {"ok": 30} and set(field.runs.values()) == {1}


def test_memory_of_each_host_is_respected(tmp_path: Path) -> None:
    world = World(hosts=2, memory=4 << 30, per_agent=0.5 * (1 << 30))
    _, field, _ = simulate(tmp_path, 60, world, max_agents=50)
    assert field.most <= 2 * 8


def test_hosts_that_do_not_always_answer_lose_nothing(tmp_path: Path) -> None:
    picture, field, _ = simulate(tmp_path, 150, World(hosts=5, unreachable=0.3))
    assert picture["outcomes"] == {"ok": 150} and set(field.runs.values()) == {1}


def test_a_host_that_dies_costs_its_agents_and_nothing_else(tmp_path: Path) -> None:
    picture, field, _ = simulate(tmp_path, 100, World(hosts=3, dead=(("h1", 120.0),)), max_agents=30, retries=2)
    assert picture["outcomes"] == {"ok": 100}
    assert 2 in field.runs.values(), "what was lost there was done again elsewhere"


def test_where_no_host_answers_any_more_the_run_ends(tmp_path: Path) -> None:
    world = World(hosts=2, dead=(("h0", 60.0), ("h1", 60.0)))
    picture, _, _ = simulate(tmp_path, 50, world, max_agents=10)
    assert picture["outcomes"].keys() <= {"ok", "lost", "failed"} and picture["outcomes"]["lost"] > 30


def test_what_nobody_can_price_is_not_paid_for_by_a_budget(tmp_path: Path) -> None:
    picture, field, _ = simulate(tmp_path, 200, World(hosts=2, priced=False), dollars=50.0)
    assert picture["outcomes"]["over-budget"] > 100 and len(field.began) < 60
    picture, _, _ = simulate(tmp_path / "free", 50, World(hosts=2, priced=False))
    assert picture["outcomes"] == {"ok": 50}, "without a budget it does not matter"


def test_money_without_progress_ends_the_run(tmp_path: Path) -> None:
    ends = (("ok", 0.0), ("failed", 1.0))
    picture, field, _ = simulate(tmp_path, 300, World(hosts=2, ends=ends), retries=0, dollars=10_000.0)
    assert picture["outcomes"].keys() <= {"failed", "over-budget"} and len(field.began) < 100


def test_where_all_fail_the_run_ends_also_for_those_that_were_to_be_tried_again(tmp_path: Path) -> None:
    world = World(works=(1.0, 40.0), ends=(("failed", 1.0),))
    picture, field, _ = simulate(tmp_path, 60, world, retries=5)
    assert picture["outcomes"] == {"failed": 60} and len(field.began) < 60


def test_an_agent_that_a_killed_process_left_is_cleared_away_also_when_all_is_done(tmp_path: Path) -> None:
    made = tasks(items("one"), "Look at {item}", [])
    run = runs.make(str(tmp_path), "sim-1", {"digest": "d", "type": "sim"}, made)
    attempt = run.begin(made[0].id, 1, {"name": "sim-1-0001", "place": "h0", "address": "x"}, "x")
    field = SimField(World())
    field.launch(made[0], attempt)
    run.end(attempt, {"outcome": "ok", "final": True})
    governor = Governor(Limits(), field.now())
    scheduler = Scheduler(run, Plan(("h0",)), governor, Breaker(), field, lambda event: None, random.random)
    assert scheduler.go() and not any(field.agents.values())


@pytest.mark.slow
def test_ten_thousand_tasks_on_two_hundred_hosts(tmp_path: Path) -> None:
    ends = (("ok", 0.9), ("failed", 0.04), ("hang", 0.02), ("silent", 0.02), ("launch", 0.02))
    world = World(hosts=200, ends=ends, unreachable=0.02, quota=(200_000.0, 900.0), works=(20.0, 120.0))
    began = time.process_time()
    picture, field, _ = simulate(tmp_path, 10_000, world, max_agents=1000, launch_rate=50.0, burst=50)
    spent = time.process_time() - began
    print(f"{spent:.1f} s of CPU, {field.steps} steps, {field.most} at once, {field.t - 1_000_000:.0f} s simulated")
    assert picture["outcomes"]["ok"] > 9_000 and field.most <= 1000 and field.early == 0


@pytest.mark.parametrize("reason", HALF_MADE)
def test_an_agent_that_was_only_half_made_is_made_anew_in_the_same_attempt(tmp_path: Path, reason: str) -> None:
    class Field(SimField):
        half = True

        def _status(self, name: str, one: One, reset: float) -> Status:
            status = super()._status(name, one, reset)
            return status._replace(state="lost", reason=reason) if self.half else status

        def clear(self, attempt: Attempt) -> None:
            super().clear(attempt)
            self.half = False

    made = tasks(items("one"), "Look at {item}", [])
    run = runs.make(str(tmp_path), "sim-1", {"digest": "d", "type": "sim"}, made)
    attempt = run.begin(made[0].id, 1, {"name": "sim-1-0001", "place": "h0", "address": "x"}, "x")
    field = Field(World())
    field.launch(made[0], attempt)
    governor = Governor(Limits(), field.now())
    rules = Plan(("h0",), Rules(True))
    assert Scheduler(run, rules, governor, Breaker(), field, lambda event: None, random.random).go()
    (task,) = run.picture()["tasks"]
    assert (task["outcome"], task["attempts"], task["agent"]) == ("ok", 1, "sim-1-0001@h0")
