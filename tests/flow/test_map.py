"""The scheduler over made-up machines: every task ends in an outcome, and no limit is overstepped."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from muster import Status
from muster.errors import MusterError, Unreachable
from muster.flow.limits.breaker import Breaker, Pause
from muster.flow.limits.governor import Governor, Limits
from muster.flow.mapping.backend import HostView
from muster.flow.mapping.scheduler import CLEAR_ATTEMPTS, FIRST_POLL, HALF_MADE, LAUNCHING, Options, Scheduler
from muster.flow.mapping.supervise import Policy
from muster.flow.run import directory as runs
from muster.flow.run.directory import Attempt
from muster.flow.run.records import AttemptAgent, Outcome, RunInfo
from muster.flow.run.tasks import Task, items, tasks

from ..support import events
from .sim import IN_MEMORY, TROUBLED, One, SimBackend, World


@pytest.fixture
def in_memory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder:
        yield Path(folder)


def simulate(
    tmp_path: Path, count: int, world: World, *, retries: int = 1, stall: float = 1800.0, **limits: Any
) -> tuple[dict[str, Any], SimBackend, Scheduler]:
    made = tasks(items("".join(f"t{n}\n" for n in range(count))), "Look at {item}", [])
    run = runs.make(str(tmp_path), "sim-1", RunInfo(digest="d", type="sim"), made)
    backend = SimBackend(world)
    governor = Governor(Limits(**{"max_agents": 50, **limits}), backend.now())
    options = Options(tuple(f"h{n}" for n in range(world.hosts)), Policy(True, stall), retries)
    scheduler = Scheduler(run, options, governor, Breaker(), backend, lambda event: None, random.Random(2).random)
    assert scheduler.work()
    events.check(tmp_path)
    picture = run.picture()
    assert sum(picture["outcomes"].values()) == count, "every task has an outcome"
    gone = {host for host, _ in world.dead}
    assert not any(ones for place, ones in backend.agents.items() if place not in gone), "no agent is left"
    return picture, backend, scheduler


def test_all_of_them_are_done_once(tmp_path: Path) -> None:
    picture, backend, _ = simulate(tmp_path, 200, World(hosts=3), max_agents=20)
    assert picture["outcomes"] == {"ok": 200} and set(backend.runs.values()) == {1}
    assert backend.booked.dollars == pytest.approx(picture["cost_usd"]), (
        "what the last ones spent is in the day's sum too"
    )
    assert backend.most <= 20


def test_a_host_launches_only_a_few_agents_at_the_same_time(tmp_path: Path) -> None:
    world = World(launch=(20.0, 30.0), works=(600.0, 900.0), memory=64 * 1024**3)
    _, backend, _ = simulate(tmp_path, 30, world, max_agents=30, start=30, launch_rate=100.0, burst=30)
    # Each launch takes 20 seconds at least, so all that begin within 20 seconds are under way at the same time.
    assert max(sum(0 <= other - begun < 20.0 for other in backend.began) for begun in backend.began) == LAUNCHING == 6


def test_one_task_is_done_and_the_others_are_left_though_what_they_cost_counts(tmp_path: Path) -> None:
    made = tasks(items("a\nb\nc\n"), "Look at {item}", [])
    run = runs.make(str(tmp_path), "sim-1", RunInfo(digest="d", type="sim"), made)
    over = run.begin(made[0].id, 1, AttemptAgent(name="", place="h0"), "")
    run.end(over, Outcome(outcome="ok", cost_usd=7.0, tokens=1, keep_agent=True, final=True))
    backend, options = SimBackend(World(hosts=1)), Options(("h0",), Policy(True), only=frozenset({made[1].id}))
    governor = Governor(Limits(max_agents=5), backend.now())
    assert Scheduler(run, options, governor, Breaker(), backend, lambda event: None, random.Random(2).random).work()
    assert [row["state"] for row in run.picture()["tasks"]] == ["done", "done", "todo"]
    assert backend.booked.dollars == pytest.approx(run.picture()["cost_usd"]) and backend.booked.dollars > 7


def test_what_goes_wrong_has_its_outcome(tmp_path: Path) -> None:
    ends = (("ok", 0.76), ("failed", 0.06), ("hang", 0.06), ("silent", 0.06), ("launch", 0.06))
    picture, backend, _ = simulate(tmp_path, 300, World(hosts=5, ends=ends), retries=2)
    assert picture["outcomes"].keys() <= {"ok", "failed", "stalled"} and picture["outcomes"]["ok"] > 200
    assert max(backend.runs.values()) <= 3


def test_hosts_that_can_launch_nothing_cost_no_task_and_little_time(tmp_path: Path) -> None:
    """They would swallow task after task: whatever fails at once leaves the most room."""
    _, undisturbed, _ = simulate(tmp_path / "good", 400, World(hosts=8, works=(20.0, 120.0)))
    world = World(hosts=10, works=(20.0, 120.0), full=("h3", "h5"))
    picture, backend, _ = simulate(tmp_path / "bad", 400, world)
    assert picture["outcomes"] == {"ok": 400}
    assert sum(task["attempts"] for task in picture["tasks"]) < 400 + 30
    assert backend.t - backend.began_at < 1.5 * (undisturbed.t - undisturbed.began_at)
    assert sum("nothing more is launched on h" in text for _, text in backend.alerts) == 2


def test_a_budget_is_hard(tmp_path: Path) -> None:
    """Over it by no more than what the agents in flight spend between two looks and while they are being stopped."""
    world = World(hosts=4, works=(100.0, 200.0), dollars=(0.5, 1.5))
    picture, backend, _ = simulate(tmp_path, 500, world, dollars=50.0)
    assert picture["outcomes"]["over-budget"] > 300
    assert picture["cost_usd"] <= 50.0 + backend.most * 1.5 * (5 / 100)


def test_the_budget_of_a_day_is_hard_too(tmp_path: Path) -> None:
    world = World(hosts=4, works=(100.0, 200.0), dollars=(0.5, 1.5), spent_today=30.0)
    picture, backend, _ = simulate(tmp_path, 500, world, day_dollars=50.0)
    assert picture["outcomes"]["over-budget"] > 300
    assert picture["cost_usd"] <= 20.0 + backend.most * 1.5 * (5 / 100)
    assert [cause for cause, _ in backend.alerts] == ["over-budget"], "somebody is told"


def test_agents_and_time_of_a_day_are_limits_too(tmp_path: Path) -> None:
    picture, backend, _ = simulate(tmp_path / "agents", 50, World(hosts=2), day_agents=12)
    assert len(backend.began) == 12 and picture["outcomes"] == {"ok": 12, "over-budget": 38}
    picture, backend, _ = simulate(tmp_path / "time", 200, World(hosts=2), day_seconds=900.0, max_agents=5)
    assert 900 <= backend.t - backend.began_at < 920 and picture["outcomes"]["over-budget"] > 100


def test_the_budget_of_a_task_is_that_of_all_its_attempts(tmp_path: Path) -> None:
    world = World(works=(100.0, 100.0), dollars=(1.0, 1.0), ends=(("failed", 1.0),))
    picture, backend, _ = simulate(tmp_path, 1, world, retries=5, task_dollars=1.5)
    assert picture["outcomes"] == {"over-budget": 1} and len(backend.began) == 2
    assert 1.5 <= picture["cost_usd"] < 1.6


def test_a_run_that_holds_itself_back_is_lifted_by_a_person(tmp_path: Path) -> None:
    """All fail until somebody has mended it and says so: the pause before the canary is not waited for."""
    ends = (("ok", 0.0), ("launch", 1.0))
    backend = SimBackend(World(ends=ends))
    made = tasks(items("".join(f"t{n}\n" for n in range(40))), "Look at {item}", [])
    run = runs.make(str(tmp_path), "sim-1", RunInfo(digest="d", type="sim"), made)
    asked: list[float] = []

    def say(event: dict[str, Any]) -> None:
        if event["kind"] == "alert" and not asked:
            asked.append(event["t"])
            backend.world = backend.world._replace(ends=(("ok", 1.0),))
            run.ask(resumed=1.0)

    scheduler = Scheduler(
        run,
        Options(("h0",), Policy(True, 0), 5),
        Governor(Limits(), backend.now()),
        Breaker(),
        backend,
        say,
        lambda: 0.0,
    )
    assert scheduler.work() and run.picture()["outcomes"] == {"ok": 40}
    assert asked and min(at for at in backend.began if at > asked[0]) < asked[0] + 30


def test_a_limit_is_waited_for_and_is_no_failure(tmp_path: Path) -> None:
    world = World(hosts=2, works=(30.0, 60.0), quota=(1200.0, 3600.0))
    picture, backend, _ = simulate(tmp_path, 100, world, max_agents=20)
    assert picture["outcomes"] == {"ok": 100} and backend.limits and backend.early == 0


def test_one_that_was_told_something_has_time_to_take_it_up(tmp_path: Path) -> None:
    """Telling takes longer than a look: what is seen in between is from before."""
    world = World(works=(5.0, 10.0), ends=(("forgets", 1.0),), send=(3.0, 20.0))
    picture, backend, _ = simulate(tmp_path, 30, world, retries=0)
    assert picture["outcomes"] == {"ok": 30} and set(backend.runs.values()) == {1}


def test_memory_of_each_host_is_respected(tmp_path: Path) -> None:
    world = World(hosts=2, memory=4 << 30, per_agent=0.5 * (1 << 30))
    _, backend, _ = simulate(tmp_path, 60, world, max_agents=50)
    assert backend.most <= 2 * 8


def test_hosts_that_do_not_always_answer_lose_nothing(tmp_path: Path) -> None:
    picture, backend, _ = simulate(tmp_path, 150, World(hosts=5, unreachable=0.3))
    assert picture["outcomes"] == {"ok": 150} and set(backend.runs.values()) == {1}


def test_a_host_that_dies_costs_its_agents_and_nothing_else(tmp_path: Path) -> None:
    picture, backend, _ = simulate(tmp_path, 100, World(hosts=3, dead=(("h1", 120.0),)), max_agents=30, retries=2)
    assert picture["outcomes"] == {"ok": 100}
    assert 2 in backend.runs.values(), "what was lost there was done again elsewhere"


def test_where_no_host_answers_any_more_the_run_ends(tmp_path: Path) -> None:
    world = World(hosts=2, dead=(("h0", 60.0), ("h1", 60.0)))
    picture, _, _ = simulate(tmp_path, 50, world, max_agents=10)
    assert picture["outcomes"].keys() <= {"ok", "lost", "failed"} and picture["outcomes"]["lost"] > 30


def test_what_nobody_can_price_is_not_paid_for_by_a_budget(tmp_path: Path) -> None:
    picture, backend, _ = simulate(tmp_path, 200, World(hosts=2, priced=False), dollars=50.0)
    assert picture["outcomes"]["over-budget"] > 100 and len(backend.began) < 60
    picture, _, _ = simulate(tmp_path / "free", 50, World(hosts=2, priced=False))
    assert picture["outcomes"] == {"ok": 50}, "without a budget it does not matter"


def test_money_without_progress_ends_the_run(tmp_path: Path) -> None:
    ends = (("ok", 0.0), ("failed", 1.0))
    picture, backend, _ = simulate(tmp_path, 300, World(hosts=2, ends=ends), retries=0, dollars=10_000.0)
    assert picture["outcomes"].keys() <= {"failed", "cancelled", "over-budget"} and len(backend.began) < 100


def test_where_all_fail_the_run_ends_also_for_those_that_were_to_be_tried_again(tmp_path: Path) -> None:
    world = World(works=(1.0, 40.0), ends=(("failed", 1.0),))
    picture, backend, _ = simulate(tmp_path, 60, world, retries=5)
    assert picture["outcomes"].keys() == {"failed", "cancelled"} and len(backend.began) < 60


def test_an_agent_that_a_killed_process_left_is_cleared_away_also_when_all_is_done(tmp_path: Path) -> None:
    made = tasks(items("one"), "Look at {item}", [])
    run = runs.make(str(tmp_path), "sim-1", RunInfo(digest="d", type="sim"), made)
    attempt = run.begin(made[0].id, 1, AttemptAgent(name="sim-1-0001", place="h0", address="x"), "x")
    backend = SimBackend(World())
    backend.launch(made[0], attempt)
    run.end(attempt, Outcome(outcome="ok", final=True))
    governor = Governor(Limits(), backend.now())
    scheduler = Scheduler(run, Options(("h0",)), governor, Breaker(), backend, lambda event: None, random.random)
    assert scheduler.work() and not any(backend.agents.values())


def test_more_than_the_provider_takes_is_found_out_and_kept_below(tmp_path: Path) -> None:
    """Clients that try again by themselves are the sign: half as many, then slowly more until the next sign."""
    world = World(hosts=4, works=(30.0, 60.0), crowd=30)
    picture, backend, _ = simulate(tmp_path, 600, world, max_agents=200)
    assert picture["outcomes"] == {"ok": 600} and 30 < backend.most < 80
    assert backend.crowded / backend.looks < 0.25
    assert backend.t - backend.began_at < 3 * 600 * 45 / 30, "and the room that there is is used"


@pytest.mark.slow
def test_ten_thousand_tasks_on_two_hundred_hosts(in_memory: Path) -> None:
    """Every limit is met."""
    world, tmp_path = TROUBLED, in_memory
    limits: dict[str, Any] = {"max_agents": 1000, "launch_rate": 50.0, "stall": 300.0}
    picture, backend, scheduler = simulate(tmp_path, 10_000, world, burst=50, **limits)
    assert picture["outcomes"]["ok"] > 9_000 and backend.most <= 1000 and backend.early == 0
    assert len(backend.limits) >= 3, "windows of the quota that it met"
    assert backend.fullest * world.per_agent <= world.memory
    begun = sorted(backend.began)
    assert all(later - sooner >= 1.0 for sooner, later in zip(begun, begun[101:], strict=False)), "rate and burst"
    assert backend.crowded / backend.looks < 0.25
    total = picture["cost_usd"]
    assert scheduler.total.dollars == pytest.approx(total)
    less, backend, _ = simulate(tmp_path / "less", 10_000, world, dollars=total / 2, **limits)
    over = less["cost_usd"] - total / 2
    assert less["outcomes"]["over-budget"] > 3_000 and over <= backend.most * 1.0 * (5 / 20)


@pytest.mark.parametrize("reason", HALF_MADE)
def test_an_agent_that_was_only_half_made_is_made_anew_in_the_same_attempt(tmp_path: Path, reason: str) -> None:
    class Backend(SimBackend):
        half = True

        def _status(self, name: str, one: One, reset: float) -> Status:
            status = super()._status(name, one, reset)
            return status._replace(state="lost", reason=reason) if self.half else status

        def clear(self, attempt: Attempt) -> None:
            super().clear(attempt)
            self.half = False

    made = tasks(items("one"), "Look at {item}", [])
    run = runs.make(str(tmp_path), "sim-1", RunInfo(digest="d", type="sim"), made)
    attempt = run.begin(made[0].id, 1, AttemptAgent(name="sim-1-0001", place="h0", address="x"), "x")
    backend = Backend(World())
    backend.launch(made[0], attempt)
    governor = Governor(Limits(), backend.now())
    rules = Options(("h0",), Policy(True))
    assert Scheduler(run, rules, governor, Breaker(), backend, lambda event: None, random.random).work()
    (task,) = run.picture()["tasks"]
    assert (task["outcome"], task["attempts"], task["agent"]) == ("ok", 1, "sim-1-0001@h0")


def test_what_was_seen_to_be_spent_by_agents_that_are_lost_is_not_forgotten(tmp_path: Path) -> None:
    """Their hosts die in the middle of it: the budget is held all the same."""
    dead = tuple((f"h{number}", 250.0) for number in range(3))
    world = World(hosts=4, works=(400.0, 600.0), dollars=(4.0, 6.0), dead=dead)
    picture, backend, _ = simulate(tmp_path, 200, world, dollars=150.0)
    assert any(backend.agents[host] for host, _ in dead), "some died with their host"
    # What agents spent on a host that does not answer any more nobody can see: 10 minutes of patience at most.
    spent = sum(one.dollars * min(1.0, 250.0 / one.works) for host, _ in dead for one in backend.agents[host].values())
    assert picture["cost_usd"] >= spent * 0.9


def test_an_agent_whose_launch_was_not_heard_of_is_not_left_behind(tmp_path: Path) -> None:
    picture, backend, _ = simulate(tmp_path, 60, World(hosts=3, cut=0.2), retries=3)
    assert picture["outcomes"]["ok"] > 55 and max(backend.runs.values()) > 1, "some were launched twice"


def test_an_agent_that_cannot_be_cleared_away_is_tried_again_and_then_named(tmp_path: Path) -> None:
    picture, _, scheduler = simulate(tmp_path / "some", 10, World(stuck=CLEAR_ATTEMPTS - 1))
    assert picture["outcomes"] == {"ok": 10}
    kinds = Counter(event["kind"] for event in scheduler.run.events())
    assert (kinds["uncleared"], kinds["abandoned"]) == (CLEAR_ATTEMPTS - 1, 0)
    made = tasks(items("one"), "Look at {item}", [])
    run = runs.make(str(tmp_path), "sim-1", RunInfo(digest="d", type="sim"), made)
    backend = SimBackend(World(stuck=100))
    options = Options(("h0",), Policy(True))
    assert Scheduler(
        run, options, Governor(Limits(), backend.now()), Breaker(), backend, lambda event: None, random.random
    ).work()
    (told,) = [event["reason"] for event in run.events() if event["kind"] == "abandoned"]
    assert "muster destroy sim-1-0001@h0" in told and backend.agents["h0"]


@pytest.mark.parametrize(
    "words",
    ["usage limit reached, try again in 7 d", "429 too many requests", "overloaded_error", "credit balance is too low"],
)
def test_the_words_of_an_agent_that_failed_steer_nothing(tmp_path: Path, words: str) -> None:
    world = World(works=(1.0, 5.0), ends=(("says", 1.0),), words=words)
    picture, backend, scheduler = simulate(tmp_path, 2, world)
    assert picture["outcomes"] == {"failed": 2} and {task["attempts"] for task in picture["tasks"]} == {2}
    assert backend.t - backend.began_at < 120 and not backend.alerts
    assert scheduler.governor.window >= 4, "nobody is held back by it"


def test_a_canary_that_a_killed_process_had_flying_holds_nobody_up(tmp_path: Path) -> None:
    made = tasks(items("".join(f"t{n}\n" for n in range(5))), "Look at {item}", [])
    for name, begun in (("gone", False), ("half", True)):
        run = runs.make(str(tmp_path), name, RunInfo(digest="d", type="sim"), made)
        if begun:  # written down, and no agent came of it
            run.begin(made[0].id, 1, AttemptAgent(f"{name}-0001", "h0", "x"), "x")
        backend, breaker = SimBackend(World()), Breaker()
        breaker.pauses[None] = Pause(backend.now(), "launch", "", "environment", "many failed")
        assert breaker.canary(backend.now() + 100, made[0].id, ("h0",)) and breaker.pauses[None].flying
        governor = Governor(Limits(), backend.now())
        scheduler = Scheduler(
            run, Options(("h0",), Policy(True)), governor, breaker, backend, lambda event: None, lambda: 0.0
        )
        assert scheduler.work() and run.picture()["outcomes"] == {"ok": 5}


def test_a_run_in_which_nothing_can_be_launched_says_why(tmp_path: Path) -> None:
    made = tasks(items("one"), "Look at {item}", [])
    run = runs.make(str(tmp_path), "sim-1", RunInfo(digest="d", type="sim"), made)
    backend = SimBackend(World(memory=1 << 20))
    said: list[str] = []

    def say(event: dict[str, Any]) -> None:
        if event["kind"] == "idle":
            said.append(event["reason"])
            backend.world = backend.world._replace(memory=1 << 34)

    governor = Governor(Limits(), backend.now())
    assert Scheduler(run, Options(("h0",), Policy(True)), governor, Breaker(), backend, say, random.random).work()
    assert said == ["no room: h0 has 1 MB of memory free ([limits] memory: 400 MB an agent)"]


def test_a_run_without_a_usable_host_says_what_is_wrong_with_each(tmp_path: Path) -> None:
    class Broken(SimBackend):
        mended = False

        def reach(self, place: str) -> None:
            if not self.mended:
                raise (
                    Unreachable("host h1 cannot be reached") if place else MusterError("survey: tmux is not installed")
                )

    made = tasks(items("one"), "Look at {item}", [])
    run = runs.make(str(tmp_path), "sim-1", RunInfo(digest="d", type="sim"), made)
    backend = Broken(World())
    said: list[str] = []

    def say(event: dict[str, Any]) -> None:
        if event["kind"] == "idle":
            said.append(event["reason"])
            backend.mended = True

    governor = Governor(Limits(), backend.now())
    assert Scheduler(run, Options(("", "h1"), Policy(True)), governor, Breaker(), backend, say, random.random).work()
    assert said == [
        "no host can be used: this machine cannot be used: tmux is not installed; host h1 cannot be reached"
    ]


def test_agents_of_a_killed_process_count_towards_the_most_that_may_be_launched(tmp_path: Path) -> None:
    made = tasks(items("".join(f"t{n}\n" for n in range(20))), "Look at {item}", [])
    run = runs.make(str(tmp_path), "sim-1", RunInfo(digest="d", type="sim"), made)
    for task in made[:4]:
        begun = run.begin(task.id, 1, AttemptAgent(f"x-{task.number}", "h0", "x"), "x")
        run.end(begun, Outcome(outcome="ok", final=True))
    backend = SimBackend(World())
    governor = Governor(Limits(agents=10), backend.now())
    assert Scheduler(
        run, Options(("h0",), Policy(True)), governor, Breaker(), backend, lambda event: None, random.random
    ).work()
    assert len(backend.began) == 6 and run.picture()["outcomes"] == {"ok": 10, "over-budget": 10}


def test_limits_and_ends_that_people_asked_for_use_up_no_retry(tmp_path: Path) -> None:
    """With one retry: two interrupts, then a failure, then it goes well. And a limit is waited for also without any."""
    (task,) = tasks(items("one"), "Look at {item}", [])
    run = runs.make(str(tmp_path), "sim-1", RunInfo(digest="d", type="sim"), [task])
    for number in (1, 2):
        begun = run.begin(task.id, number, AttemptAgent(f"x-{number}", "h0", "x"), "x")
        run.end(begun, Outcome(outcome="cancelled", final=False))

    class Backend(SimBackend):
        def launch(self, task: Task, attempt: Attempt) -> None:
            self.world = self.world._replace(ends=(("failed" if not self.began else "ok", 1.0),))
            super().launch(task, attempt)

    backend = Backend(World())
    options, governor = Options(("h0",), Policy(True), retries=1), Governor(Limits(), backend.now())
    assert Scheduler(run, options, governor, Breaker(), backend, lambda event: None, random.random).work()
    assert run.picture()["outcomes"] == {"ok": 1} and len(backend.began) == 2

    class Limited(Backend):
        def _status(self, name: str, one: One, reset: float) -> Status:
            status = super()._status(name, one, reset)
            return status._replace(last_line="API Error: 429 too many requests") if status.state == "failed" else status

    run = runs.make(str(tmp_path), "sim-2", RunInfo(digest="d", type="sim"), [task])
    backend = Limited(World())
    options, governor = Options(("h0",), Policy(True), retries=0), Governor(Limits(), backend.now())
    assert Scheduler(run, options, governor, Breaker(), backend, lambda event: None, random.random).work()
    assert run.picture()["outcomes"] == {"ok": 1} and len(backend.began) == 2


def test_a_measurement_is_as_old_as_the_look_that_made_it(tmp_path: Path) -> None:
    _, backend, scheduler = simulate(tmp_path, 3, World())
    assert all(load.at is not None and load.at < backend.t for load in scheduler.loads.values())


def test_usage_is_looked_at_every_five_seconds_and_round_trips_grow_with_hosts_only(tmp_path: Path) -> None:
    class Backend(SimBackend):
        def __init__(self, world: World) -> None:
            super().__init__(world)
            self.at: dict[str, list[float]] = {}

        def poll(self, place: str) -> HostView:
            if self.agents[place]:
                self.at.setdefault(place, []).append(self.t)
            return super().poll(place)

    seen = {}
    for count in (20, 400):
        made = tasks(items("".join(f"t{n}\n" for n in range(count))), "Look at {item}", [])
        run = runs.make(str(tmp_path), f"sim-{count}", RunInfo(digest="d", type="sim"), made)
        backend = Backend(World(hosts=2, works=(300.0, 300.0), memory=1 << 40))
        governor = Governor(Limits(max_agents=400), backend.now())
        options = Options(("h0", "h1"), Policy(True))
        assert Scheduler(run, options, governor, Breaker(), backend, lambda event: None, random.random).work()
        assert all(later - sooner <= 5.0 for at in backend.at.values() for sooner, later in pairwise(at))
        seen[count] = sum(map(len, backend.at.values()))
    assert seen[400] < seen[20], "twenty times as many agents take no more looks"


def test_nothing_is_launched_before_all_hosts_could_say_how_much_room_they_have(tmp_path: Path) -> None:
    _, backend, _ = simulate(
        tmp_path / "alike", 40, World(hosts=10), max_agents=40, start=40, launch_rate=1000.0, burst=40
    )
    assert backend.fullest == 4, "ten hosts that are alike have four each"
    _, backend, _ = simulate(tmp_path / "slow", 10, World(hosts=2, dead=(("h0", -1.0),)))
    assert backend.began[0] - backend.began_at < FIRST_POLL + 1, "and one that does not answer holds nobody up"


def test_what_agents_spent_while_nobody_looked_is_no_alarm(tmp_path: Path) -> None:
    made = tasks(items("".join(f"t{n}\n" for n in range(8))), "Look at {item}", [])
    run = runs.make(str(tmp_path), "sim-1", RunInfo(digest="d", type="sim"), made)
    backend = SimBackend(World(works=(1.0, 5.0), dollars=(1.0, 1.0)))
    for task in made:
        name = f"sim-1-{task.number:04d}"
        backend.launch(task, run.begin(task.id, 1, AttemptAgent(name=name, place="h0", address=name), "x"))
    backend.t += 1000  # all of them are done by now
    governor = Governor(Limits(expected_dollars=1.0), backend.now())
    assert Scheduler(
        run, Options(("h0",), Policy(True)), governor, Breaker(), backend, lambda event: None, random.random
    ).work()
    assert run.picture()["outcomes"] == {"ok": 8} and not backend.alerts


def test_an_agent_whose_type_keeps_no_transcript_is_cleared_away_after_its_task(world: Any) -> None:
    config = world.home / ".config" / "muster" / "config.toml"
    config.parent.mkdir(parents=True)
    script = "echo {item} > done.txt && git add -A && git commit -qm done && submit --outcome ok --summary done"
    config.write_text('[types.quiet]\nargv = ["sh", "-c"]\nprompt = "environment"\nspeaks = true\n')
    words = ("map", "-a", "quiet", "-p", "{item}", "--run", "m", "--", script)
    result = world.run(*words, input=b"a\nb\n", timeout=100)
    assert result.code == 0, result
    tasks = world.ok("runs", "show", "m", "--json").json["tasks"]
    assert [(task["outcome"], task["commits"], task["harvest_errors"]) for task in tasks] == [("ok", 1, [])] * 2
    assert world.agents() == {}
