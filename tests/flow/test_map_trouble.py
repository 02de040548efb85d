"""What went wrong with runs once: each of these held one up, let it spend too much or left an agent behind."""

from __future__ import annotations

import errno
import heapq
import math
import random
import tracemalloc
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import pytest

from muster import Agent, Status
from muster.errors import MusterError, Unreachable
from muster.fanout import Crew
from muster.flow.limits.breaker import Breaker, Pause
from muster.flow.limits.governor import Governor, Limits
from muster.flow.mapping.backend import Harvest, Key, Sight
from muster.flow.mapping.fleet_backend import FleetField
from muster.flow.mapping.scheduler import Plan, Scheduler
from muster.flow.mapping.supervise import Rules
from muster.flow.run import directory as runs
from muster.flow.run.directory import Attempt, Run
from muster.flow.run.records import AttemptAgent, Outcome, RunInfo
from muster.flow.run.results import Result
from muster.flow.run.tasks import Task, items, tasks

from .sim import GB, Ended, One, SimField, World


class Bounded(SimField):
    """It fails where a run does not come to its end within so many seconds."""

    lasts = 36_000.0

    def done(self, timeout: float) -> list[Ended]:
        assert self.t - self.began_at < self.lasts, "it does not end"
        return super().done(timeout)


def scheduled(
    folder: Path,
    field: SimField,
    count: int = 1,
    *,
    run: Run | None = None,
    retries: int = 1,
    breaker: Breaker | None = None,
    reopen: bool = False,
    **limits: Any,
) -> Scheduler:
    if run is None:
        made = tasks(items("".join(f"t{n}\n" for n in range(count))), "Look at {item}", [])
        run = runs.make(str(folder), "sim-1", RunInfo(digest="d", type="sim"), made)
    plan = Plan(tuple(f"h{n}" for n in range(field.world.hosts)), Rules(True, 1800.0), retries, reopen=reopen)
    governor = Governor(Limits(**{"max_agents": 50, **limits}), field.now())
    return Scheduler(run, plan, governor, breaker or Breaker(), field, lambda event: None, random.Random(2).random)


def kinds(run: Run) -> Counter[str]:
    return Counter(event["kind"] for event in run.events())


def test_a_run_ends_also_when_what_is_left_of_an_agent_cannot_be_cleared_away(tmp_path: Path) -> None:
    class Field(Bounded):
        def clear(self, attempt: Attempt) -> None:
            super().clear(attempt)
            raise MusterError("cannot keep refs/heads/x: unable to lock ref")

    run = scheduled(tmp_path, field := Field(World(works=(5, 5))))
    assert run.go() and kinds(run.run)["left"] == 1 and not any(field.agents.values())


def test_a_host_that_had_no_room_at_first_is_used_when_it_has(tmp_path: Path) -> None:
    class Field(Bounded):
        def look(self, place: str) -> Sight:
            seen = super().look(place)
            if place == "h1" and self.t - self.began_at < 5:
                return seen._replace(load=seen.load._replace(memory_free=0.1 * GB))
            return seen

    run = scheduled(tmp_path, Field(World(hosts=2, works=(20, 200), memory=3 * GB, per_agent=0.4 * GB)), 100)
    assert run.go()
    where = Counter(event["agent"].partition("@")[2] for event in run.run.events() if event["kind"] == "launch")
    assert where["h1"] > 30


def test_a_canary_counts_among_those_at_once(tmp_path: Path) -> None:
    class Field(Bounded):
        def launch(self, task: Task, attempt: Attempt) -> None:
            self.world = self.world._replace(full=("h3",) if self.t - self.began_at < 60 else ())
            super().launch(task, attempt)

    canaries = 0
    for seed in range(4):
        field = Field(World(hosts=4, works=(20, 60), seed=seed))
        run = scheduled(tmp_path / str(seed), field, 300, max_agents=8, start=8)
        assert run.go() and field.most <= 8
        canaries += kinds(run.run)["canary"]
    assert canaries


def test_what_an_agent_spent_that_vanishes_is_not_forgotten(tmp_path: Path) -> None:
    class Field(Bounded):
        really = 0.0

        def look(self, place: str) -> Sight:
            for name, one in list(self.agents[place].items()):
                if self.t - one.begun > 50:
                    self.really += one.dollars * min(1, (self.t - one.begun) / one.works)
                    self.agents[place].pop(name)
            return super().look(place)

    field = Field(World(works=(60, 60), dollars=(1, 1)))
    run = scheduled(tmp_path, field, 60, retries=0, breaker=Breaker(n=10**6), max_agents=1, dollars=5.0)
    run.governor.limits = run.governor.limits._replace(breaker=0.0)
    assert run.go() and field.really < 5.2 and run.total.dollars == pytest.approx(field.really, abs=0.2)


def test_launches_that_hang_on_one_host_hold_nobody_up_elsewhere(tmp_path: Path) -> None:
    class Field(Bounded):
        jobs: dict[str, Any]

        def begin(self, key: Key, work: Any) -> None:
            if key[0] == "launch" and self.jobs[str(key[1])].place == "h0" and self.t > self.began_at + 8:
                late = Ended(key, None, Unreachable("h0 cannot be reached"))
                heapq.heappush(self.queue, (self.t + 120, next(self.order), late))
            else:
                super().begin(key, work)

        def reach(self, place: str) -> None:
            if place == "h0" and self.t > self.began_at + 14:
                raise Unreachable("h0 cannot be reached")

    field = Field(World(hosts=2, works=(5, 10), launch=(0.1, 0.5)))
    run = scheduled(tmp_path, field, 400, max_agents=40, start=12)
    field.jobs = run.jobs
    assert run.go()
    well = [event["t"] for event in run.run.events() if event["kind"] == "launch" and event["agent"].endswith("@h1")]
    assert sum(20 < at - field.began_at < 100 for at in well) > 100


class Away(Bounded):
    """Its host h1 does not answer for a time."""

    since, until = 50.0, 1000.0

    def reach(self, place: str) -> None:
        if place == "h1" and self.since < self.t - self.began_at < self.until:
            raise Unreachable("h1 cannot be reached")


@pytest.mark.parametrize("works", [(200, 300), (1500, 1600)], ids=["done meanwhile", "still at work"])
def test_agents_of_a_host_that_was_given_up_are_taken_up_when_it_is_back(
    tmp_path: Path, works: tuple[float, float]
) -> None:
    field = Away(World(hosts=2, works=works))
    long = scheduled(tmp_path, field, 40, retries=0, max_agents=20, start=20)
    # Something is left to do when it is back.
    long.governor.limits = long.governor.limits._replace(launch_rate=0.02, burst=20)
    assert long.go() and long.run.picture()["outcomes"] == {"ok": 40} and len(field.began) == 40
    assert kinds(long.run)["returned"] == kinds(long.run)["left"] > 3
    cost = long.run.picture()["cost_usd"]
    assert cost == pytest.approx(field.billed, rel=0.01) and long.total.dollars == pytest.approx(cost)


def test_those_whose_tasks_others_have_by_then_are_ended_and_counted(tmp_path: Path) -> None:
    class Field(Away):
        jobs: dict[str, Any]

        def done(self, timeout: float) -> list[Ended]:
            if self.t - self.began_at > self.until + 100:
                assert self.agents["h1"].keys() <= {job.name for job in self.jobs.values()}, "nobody waits for it"
            return super().done(timeout)

    field = Field(World(hosts=2, works=(500, 1600)))
    run = scheduled(tmp_path, field, 20, retries=3, breaker=Breaker(n=1000), max_agents=20, start=20)
    field.jobs = run.jobs
    assert run.go() and run.run.picture()["outcomes"] == {"ok": 20} and len(field.began) > 23
    told = [event for event in run.run.events() if event["kind"] == "returned"]
    assert {event["attempt"] for event in told} == {1} and all(event["agent"].endswith("@h1") for event in told)
    cost = run.run.picture()["cost_usd"]
    assert cost == pytest.approx(field.billed, rel=0.01) and run.total.dollars == pytest.approx(cost)


def test_a_run_that_is_taken_up_when_the_host_is_back_counts_what_its_agents_spent(tmp_path: Path) -> None:
    class Field(Away):
        gone = False

        def asked(self) -> int:
            return 3 * (not self.gone and self.t - self.began_at > 800)

    field = Field(World(hosts=2, works=(900, 1600)))
    first = scheduled(tmp_path, field, 20, retries=0, max_agents=20, start=20)
    assert not first.go() and kinds(first.run)["left"] > 3
    field.queue.clear()  # what was under way went with the process
    field.gone, field.t = True, field.began_at + 1100
    second = scheduled(tmp_path, field, run=first.run, retries=0)
    assert second.go() and first.run.picture()["outcomes"] == {"ok": 20} and len(field.began) == 20
    assert (
        first.run.picture()["cost_usd"] == pytest.approx(field.billed, rel=0.01) == pytest.approx(second.total.dollars)
    )


def test_a_host_that_is_given_up_keeps_no_hand_busy(tmp_path: Path) -> None:
    class Field(Away):
        until, jobs = 36_000.0, dict[str, Any]()
        begun: ClassVar[list[Key]] = []

        def begin(self, key: Key, work: Any) -> None:
            super().begin(key, work)
            if key[0] in ("harvest", "clear") and self.t > self.began_at + 100:
                self.begun += [key] * (self.jobs[str(key[1]).partition("#")[0]].place == "h1")

    field = Field(World(hosts=2, works=(800, 900)))
    run = scheduled(tmp_path, field, 20, max_agents=20, start=20)
    field.jobs = run.jobs
    assert run.go() and run.run.picture()["outcomes"] == {"ok": 20} and not field.begun


def test_a_run_ends_though_each_look_at_a_host_that_is_gone_takes_longer_than_it_is_to_the_next(tmp_path: Path) -> None:
    class Field(Away):
        until, looks_there = math.inf, 0

        def begin(self, key: Key, work: Any) -> None:
            if key == ("look", "h1") and self.t > self.began_at + self.since:
                self.looks_there += 1
                late = Ended(key, None, Unreachable("h1 cannot be reached"))
                heapq.heappush(self.queue, (self.t + 8, next(self.order), late))
            else:
                super().begin(key, work)

    field = Field(World(hosts=2, works=(300, 400)))
    run = scheduled(tmp_path, field, 40, max_agents=20, start=20)
    assert run.go() and run.run.picture()["outcomes"] == {"ok": 40}
    assert field.looks_there < 50 and field.t - field.began_at < 2500


def test_an_agent_whose_work_cannot_be_had_and_that_cannot_be_ended_is_left_at_last(tmp_path: Path) -> None:
    """Its host answers all the time: nothing is hoped for from its return."""

    class Field(Bounded):
        def harvest(self, task: Task, attempt: Attempt) -> Harvest:
            raise MusterError("the folder cannot be written")

    run = scheduled(tmp_path, Field(World(works=(10, 20), stuck=1_000_000)), 2, retries=0)
    assert run.go() and run.run.picture()["outcomes"] == {"ok": 2}
    assert (kinds(run.run)["left"], kinds(run.run)["returned"]) == (2, 0)


def test_work_that_waits_for_its_host_is_not_given_up_because_the_machine_slept(tmp_path: Path) -> None:
    class Field(Away):
        slept, until = False, 7400.0

        def done(self, timeout: float) -> list[Ended]:
            if not self.slept and self.t - self.began_at > 160:
                self.slept, self.t = True, self.t + 7200
            return super().done(timeout)

    field = Field(World(hosts=2, works=(9000, 9000)))
    run = scheduled(tmp_path, field, 20, retries=0, max_agents=20, start=20, task_seconds=100.0)
    assert run.go() and run.run.picture()["outcomes"] == {"over-budget": 20} and kinds(run.run)["outcome"] == 20
    assert not any((run.run.attempts(task.id)[-1].outcome or Outcome()).harvest_errors for task in run.run.tasks())


def test_a_host_that_does_not_answer_is_not_asked_for_the_work_of_each_agent_again_and_again(tmp_path: Path) -> None:
    class Field(Away):
        until = 500.0

    field = Field(World(hosts=2, works=(1000, 1000)))
    run = scheduled(tmp_path, field, 20, retries=0, max_agents=20, start=20, task_seconds=100.0)
    assert run.go() and run.run.picture()["outcomes"] == {"over-budget": 20}
    ended = [(run.run.attempts(task.id)[-1].outcome or Outcome()) for task in run.run.tasks()]
    late = [one for one in ended if one.t > field.began_at + 500]
    assert len(late) > 3 and not any(one.harvest_errors for one in ended), "their work is brought home when it is back"
    assert kinds(run.run)["unharvested"] <= 2 * len(late)


def test_nothing_is_launched_that_would_have_to_wait_for_a_free_hand(tmp_path: Path) -> None:
    """By the time that one is free, a limit may be known that forbids it."""

    class Field(Bounded):
        hands, held, piled = 4, 0, 0

        def begin(self, key: Key, work: Any) -> None:
            self.held += key[0] != "look"
            self.piled = max(self.piled, self.held if key[0] == "launch" else 0)
            super().begin(key, work)

        def done(self, timeout: float) -> list[Ended]:
            found = super().done(timeout)
            self.held -= sum(ended.item[0] != "look" for ended in found)
            return found

    field = Field(World(hosts=5, works=(5, 10), launch=(1.0, 2.0)))
    run = scheduled(tmp_path, field, 60, max_agents=40, start=40)
    assert run.go() and run.run.picture()["outcomes"] == {"ok": 60} and field.piled == 4


def test_what_is_to_be_tried_again_still_is_when_the_process_was_asked_to_end(tmp_path: Path) -> None:
    class Field(Bounded):
        def asked(self) -> int:
            return int(self.t - self.began_at > 10)

        def _status(self, name: str, one: One, reset: float) -> Status:
            status = super()._status(name, one, reset)
            return status._replace(last_line="API Error: 429 too many requests") if status.state == "failed" else status

    field = Field(World(works=(30, 30), ends=(("failed", 1.0),)))
    run = scheduled(tmp_path, field)
    assert not run.go() and run.run.picture()["outcomes"] == {}
    again = SimField(World(works=(30, 30)))
    again.t = again.began_at = field.t
    assert scheduled(tmp_path, again, run=run.run).go() and run.run.picture()["outcomes"] == {"ok": 1}
    assert again.began[0] - field.t > 10, "and not before it was to be"


def test_one_look_that_a_good_host_misses_ends_nothing(tmp_path: Path) -> None:
    class Field(Bounded):
        missed = False

        def look(self, place: str) -> Sight:
            if place == "h1" and self.t - self.began_at > 30 and not self.missed:
                self.missed = True
                raise Unreachable("host h1 did not answer within 5 s")
            return super().look(place)

    field, breaker = Field(World(hosts=2, works=(20, 40), memory=2 * GB, per_agent=0.4 * GB)), Breaker()
    pause = breaker.pauses["h0"] = Pause(field.now(), "launch", "", "environment", "5 of 5 failed")
    pause.state = "stopped"
    run = scheduled(tmp_path, field, 100, breaker=breaker, max_agents=20)
    assert run.go() and field.missed and run.run.picture()["outcomes"] == {"ok": 100}


def test_money_without_a_result_is_told_once(tmp_path: Path) -> None:
    field = Bounded(World(hosts=2, works=(300, 300), dollars=(40, 40)))
    run = scheduled(tmp_path, field, 20, max_agents=20, start=20, expected_dollars=1.0)
    assert run.go() and [cause for cause, _ in field.alerts].count("money") == 1


def test_two_kills_leave_no_agent_behind(tmp_path: Path) -> None:
    """Killed while it is made, and again between its outcome and its clearing."""

    class Killed(BaseException):
        pass

    class Field(Bounded):
        half = True

        def _status(self, name: str, one: One, reset: float) -> Status:
            status = super()._status(name, one, reset)
            return status._replace(state="lost", reason="create was interrupted") if self.half else status

        def clear(self, attempt: Attempt) -> None:
            if not self.half:
                raise Killed
            super().clear(attempt)
            self.half = False

    made = tasks(items("one\n"), "x {item}", [])
    run = runs.make(str(tmp_path), "sim-1", RunInfo(digest="d", type="sim"), made)
    agent = AttemptAgent("sim-1-0001", "h0", "sim-1-0001@h0")
    field = Field(World(works=(5, 5)))
    field.launch(made[0], run.begin(made[0].id, 1, agent, "x"))
    with pytest.raises(Killed):
        scheduled(tmp_path, field, run=run).go()
    assert any(field.agents.values())
    again = SimField(World(works=(5, 5)))
    again.agents, again.t = field.agents, field.t
    assert scheduled(tmp_path, again, run=run).go() and not any(again.agents.values())


def test_one_client_that_is_refused_for_an_hour_does_not_hold_back_the_others(tmp_path: Path) -> None:
    class Field(Bounded):
        def _status(self, name: str, one: One, reset: float) -> Status:
            if name == "sim-1-0003" and self.t - one.begun < 3600:
                agent = Agent(name, name, "sim", created=one.begun)
                return Status(agent, "", "local", "working", "retry", since=one.begun, now=self.t, refused=self.t)
            return super()._status(name, one, reset)

    run = scheduled(tmp_path, field := Field(World(hosts=2, works=(60, 60))), 300, max_agents=20)
    assert run.go() and run.run.picture()["outcomes"] == {"ok": 300}
    assert kinds(run.run)["slowed"] == 1
    assert sum(at - field.began_at < 1800 for at in field.began) == 300


def test_nobody_has_stalled_because_the_machine_slept(tmp_path: Path) -> None:
    class Field(Bounded):
        slept = False

        def done(self, timeout: float) -> list[Ended]:
            if not self.slept and self.t - self.began_at > 100:
                self.slept = True
                self.t += 3600
                for one in (one for ones in self.agents.values() for one in ones.values()):
                    one.begun += 3600
            return super().done(timeout)

        def _status(self, name: str, one: One, reset: float) -> Status:
            status = super()._status(name, one, reset)
            return status._replace(last_line="thinking", since=1.0) if status.state == "working" else status

    field = Field(World(works=(300, 300)))
    run = scheduled(tmp_path, field, 8, retries=0, max_agents=8, start=8)
    assert run.go() and field.slept and run.run.picture()["outcomes"] == {"ok": 8}


def test_a_quota_that_shows_in_how_commands_end_holds_the_rest_back(tmp_path: Path) -> None:
    class Field(Bounded):
        def _status(self, name: str, one: One, reset: float) -> Status:
            status = super()._status(name, one, reset)
            words = "You've hit your usage limit; try again in 20m"
            return (
                status._replace(last_line=words)
                if status.state == "failed" and self.t < self.began_at + 1200
                else status
            )

        def launch(self, task: Task, attempt: Attempt) -> None:
            if self.t > self.began_at + 1200:
                self.world = self.world._replace(ends=(("ok", 1.0),))
            super().launch(task, attempt)

    run = scheduled(tmp_path, field := Field(World(works=(3, 5), ends=(("failed", 1.0),))), 100)
    assert run.go() and run.run.picture()["outcomes"] == {"ok": 100}
    assert sum(at - field.began_at < 1000 for at in field.began) < 30 and kinds(run.run)["slowed"] >= 1


def test_words_of_a_command_make_nobody_wait_for_days_in_silence(tmp_path: Path) -> None:
    class Field(Bounded):
        lasts = 86_400.0

        def _status(self, name: str, one: One, reset: float) -> Status:
            status = super()._status(name, one, reset)
            words = "429 too many requests, resets_at: 99999999999"
            return status._replace(last_line=words) if status.state == "failed" else status

    run = scheduled(tmp_path, Field(World(works=(3, 5), ends=(("failed", 1.0),))), retries=0)
    run.governor.limits = run.governor.limits._replace(breaker=0.0)
    assert run.go() and run.run.picture()["outcomes"] == {"failed": 1} and kinds(run.run)["held"]


def test_a_harvest_that_never_goes_well_is_given_up(tmp_path: Path) -> None:
    class Field(Bounded):
        lasts = 3600.0

        def harvest(self, task: Task, attempt: Attempt) -> Harvest:
            raise MusterError("survey failed")

    run = scheduled(tmp_path, Field(World(works=(5, 5))))
    assert run.go() and run.run.picture()["tasks"][0]["harvest_errors"] == ["survey failed"]


def test_what_agents_said_is_not_kept_in_memory(tmp_path: Path) -> None:
    class Field(Bounded):
        def harvest(self, task: Task, attempt: Attempt) -> Harvest:
            words, harvest = str(task.number).ljust(65_000, "s"), super().harvest(task, attempt)
            return harvest._replace(outcome=harvest.outcome._replace(claimed=Result("ok", words + "!"), summary=words))

    run = scheduled(tmp_path, Field(World(works=(1, 2))), 100)
    tracemalloc.start()
    try:
        assert run.go() and tracemalloc.get_traced_memory()[0] < 3_000_000
    finally:
        tracemalloc.stop()


def test_usage_is_never_older_than_five_seconds_on_many_hosts(tmp_path: Path) -> None:
    class Field(Bounded):
        def __init__(self, world: World) -> None:
            super().__init__(world)
            self.made: dict[str, list[float]] = {}
            self.known: list[tuple[str, float]] = []

        def look(self, place: str) -> Sight:
            seen = super().look(place)
            if seen.agents:
                self.made.setdefault(place, []).append(self.t)
            return seen

        def done(self, timeout: float) -> list[Ended]:
            found = super().done(timeout)
            for ended in found:
                if ended.item[0] == "look" and ended.error is None and ended.value.agents:
                    self.known.append((str(ended.item[1]), self.t))
            return found

    field = Field(World(hosts=150, works=(60, 60)))
    run = scheduled(tmp_path, field, 300, max_agents=300, start=300, launch_rate=100.0, burst=100)
    assert run.go()
    oldest = 0.0
    for place, made in field.made.items():
        came = [at for where, at in field.known if where == place]
        # Until the next look is known, what is known is as old as when it was made.
        oldest = max([oldest, *(later - at for at, later in zip(made, came[1:], strict=False) if later - at < 30)])
    assert oldest < 5


def test_stopped_tasks_are_taken_up_again_by_the_same_command(tmp_path: Path) -> None:
    field = SimField(World(works=(5, 5), dollars=(1, 1)))
    run = scheduled(tmp_path, field, 5, agents=3)
    assert run.go() and run.run.picture()["outcomes"] == {"ok": 3, "over-budget": 2}
    again = SimField(World(works=(5, 5)))
    assert scheduled(tmp_path, again, run=run.run).go() and not again.began, "they are over, unless somebody wants them"
    assert scheduled(tmp_path, again, run=run.run, reopen=True).go()
    assert run.run.picture()["outcomes"] == {"ok": 5} and len(again.began) == 2


def test_a_run_that_is_given_up_says_of_each_task_what_is_true(tmp_path: Path) -> None:
    """Those that failed have their own reason; nobody has tried the others, and the same command can."""
    field = Bounded(World(works=(1.0, 40.0), ends=(("failed", 1.0),)))
    run = scheduled(tmp_path, field, 60, retries=5)
    assert run.go()
    tried = {task: len(run.run.attempts(task)) for task in run.jobs}
    for row in run.run.picture()["tasks"]:
        if row["attempts"]:
            assert row["outcome"] == "failed" and row["reason"] == "exit 1: AssertionError: no"
        else:
            assert row["outcome"] == "cancelled" and "failed at work" in row["reason"]
    assert 0 < sum(row["attempts"] > 0 for row in run.run.picture()["tasks"]) < 60 and max(tried.values()) <= 6


def test_a_full_disk_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    field = Bounded(World(works=(5, 5)))
    run, fails = scheduled(tmp_path, field, 10), iter(range(200))
    end = run.run.end

    def full(attempt: Attempt, outcome: dict[str, Any]) -> Attempt:
        if next(fails, 200) < 100:
            raise OSError(errno.ENOSPC, "No space left on device")
        return end(attempt, outcome)

    monkeypatch.setattr(run.run, "end", full)
    assert run.go() and run.run.picture()["outcomes"] == {"ok": 10}
    assert [cause for cause, _ in field.alerts] == ["disk"]
    monkeypatch.setattr(run.run, "event", lambda *_, **__: (_ for _ in ()).throw(OSError(errno.EROFS, "read-only")))
    with pytest.raises(OSError, match="read-only"):
        run._note("alert", None)


def test_time_never_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    field = FleetField.__new__(FleetField)
    field._told = (1000.0, 10.0)
    seen = []
    for wall, ticks in ((1001.0, 11.0), (400.0, 12.0), (401.0, 13.5), (5000.0, 14.0), (5001.0, 15.0)):
        monkeypatch.setattr("muster.flow.mapping.fleet_backend.time.time", lambda wall=wall: wall)
        monkeypatch.setattr("muster.flow.mapping.fleet_backend.time.monotonic", lambda ticks=ticks: ticks)
        seen.append(field.now())
    assert seen == [1001.0, 1002.0, 1003.5, 5000.0, 5001.0] and all(later > sooner for sooner, later in pairwise(seen))


def test_what_must_not_wait_has_threads_of_its_own() -> None:
    import threading

    crew: Crew[str] = Crew(2)
    go = threading.Event()
    for number in range(6):
        crew.start(f"slow {number}", lambda: go.wait(60))
    crew.start("look", lambda: "seen", urgent=True)
    assert [ended.item for ended in crew.done(30)] == ["look"]
    go.set()
    ended: list[str] = []
    while crew.busy:
        ended += [one.item for one in crew.done(30)]
    assert len(ended) == 6


def test_a_paused_run_launches_nothing_and_what_is_set_counts_at_once(tmp_path: Path) -> None:
    class Field(Bounded):
        run: Run
        asked_for: ClassVar[set[float]] = set()

        def done(self, timeout: float) -> list[Ended]:
            wishes = {50.0: {"state": "paused"}, 300.0: {"state": "", "max_agents": 2.0}}
            for at, wish in wishes.items():
                if self.t - self.began_at > at and at not in self.asked_for:
                    self.asked_for.add(at)
                    self.run.ask(**wish)
            return super().done(timeout)

    field = Field(World(works=(20, 40)))
    run = scheduled(tmp_path, field, 60, max_agents=10)
    field.run = run.run
    assert run.go() and run.run.picture()["outcomes"] == {"ok": 60}
    begun = [at - field.began_at for at in field.began]
    assert any(at < 50 for at in begun) and not any(62 < at < 300 for at in begun) and any(at > 312 for at in begun)
    ends = {event["agent"]: event["t"] for event in run.run.events() if event["kind"] == "outcome"}
    begins = {event["agent"]: event["t"] for event in run.run.events() if event["kind"] == "launch"}
    late = [name for name, at in begins.items() if at - field.began_at > 312]
    most = max(sum(begins[other] <= begins[name] < ends[other] for other in late) for name in late)
    assert len(late) > 10 and most == 2
    told = kinds(run.run)
    assert told["paused"] == told["resumed"] == 1


def test_who_asks_a_third_time_does_not_wait_for_a_host_that_is_gone(tmp_path: Path) -> None:
    class Field(Bounded):
        lasts = 120.0

        def asked(self) -> int:
            since = self.t - self.began_at
            return 0 if since < 20 else 2 if since < 60 else 3

    field = Field(World(works=(300, 300), dead=(("h0", 10.0),)))
    run = scheduled(tmp_path, field, 3)
    assert not run.go() and 60 <= field.t - field.began_at < 70
    assert run.run.picture()["outcomes"] == {}, "they may still be there, and the same command looks"
