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
from muster.flow.mapping.backend import Harvest, HostView, Key
from muster.flow.mapping.fleet_backend import FleetBackend
from muster.flow.mapping.scheduler import Options, Scheduler
from muster.flow.mapping.supervise import Policy
from muster.flow.run import directory as runs
from muster.flow.run.directory import Attempt, Run
from muster.flow.run.records import AttemptAgent, Outcome, RunInfo
from muster.flow.run.results import Result
from muster.flow.run.tasks import Task, items, tasks

from .sim import GB, Completed, One, SimBackend, World


class Bounded(SimBackend):
    """It fails where a run does not come to its end within so many seconds."""

    lasts = 36_000.0

    def completed(self, timeout: float) -> list[Completed]:
        assert self.t - self.began_at < self.lasts, "it does not end"
        return super().completed(timeout)


def scheduled(
    folder: Path,
    backend: SimBackend,
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
    options = Options(tuple(f"h{n}" for n in range(backend.world.hosts)), Policy(True, 1800.0), retries, reopen=reopen)
    governor = Governor(Limits(**{"max_agents": 50, **limits}), backend.now())
    return Scheduler(run, options, governor, breaker or Breaker(), backend, lambda event: None, random.Random(2).random)


def kinds(run: Run) -> Counter[str]:
    return Counter(event["kind"] for event in run.events())


def test_a_run_ends_also_when_what_is_left_of_an_agent_cannot_be_cleared_away(tmp_path: Path) -> None:
    class Backend(Bounded):
        def clear(self, attempt: Attempt) -> None:
            super().clear(attempt)
            raise MusterError("cannot keep refs/heads/x: unable to lock ref")

    run = scheduled(tmp_path, backend := Backend(World(works=(5, 5))))
    assert run.work() and kinds(run.run)["abandoned"] == 1 and not any(backend.agents.values())


def test_a_host_that_had_no_room_at_first_is_used_when_it_has(tmp_path: Path) -> None:
    class Backend(Bounded):
        def poll(self, place: str) -> HostView:
            seen = super().poll(place)
            if place == "h1" and self.t - self.began_at < 5:
                return seen._replace(load=seen.load._replace(memory_free=0.1 * GB))
            return seen

    run = scheduled(tmp_path, Backend(World(hosts=2, works=(20, 200), memory=3 * GB, per_agent=0.4 * GB)), 100)
    assert run.work()
    where = Counter(event["agent"].partition("@")[2] for event in run.run.events() if event["kind"] == "launch")
    assert where["h1"] > 30


def test_a_canary_counts_among_those_at_once(tmp_path: Path) -> None:
    class Backend(Bounded):
        def launch(self, task: Task, attempt: Attempt) -> None:
            self.world = self.world._replace(full=("h3",) if self.t - self.began_at < 60 else ())
            super().launch(task, attempt)

    canaries = 0
    for seed in range(4):
        backend = Backend(World(hosts=4, works=(20, 60), seed=seed))
        run = scheduled(tmp_path / str(seed), backend, 300, max_agents=8, start=8)
        assert run.work() and backend.most <= 8
        canaries += kinds(run.run)["canary"]
    assert canaries


def test_what_an_agent_spent_that_vanishes_is_not_forgotten(tmp_path: Path) -> None:
    class Backend(Bounded):
        really = 0.0

        def poll(self, place: str) -> HostView:
            for name, one in list(self.agents[place].items()):
                if self.t - one.begun > 50:
                    self.really += one.dollars * min(1, (self.t - one.begun) / one.works)
                    self.agents[place].pop(name)
            return super().poll(place)

    backend = Backend(World(works=(60, 60), dollars=(1, 1)))
    run = scheduled(tmp_path, backend, 60, retries=0, breaker=Breaker(n=10**6), max_agents=1, dollars=5.0)
    run.governor.limits = run.governor.limits._replace(breaker=0.0)
    assert run.work() and backend.really < 5.2 and run.total.dollars == pytest.approx(backend.really, abs=0.2)


def test_launches_that_hang_on_one_host_hold_nobody_up_elsewhere(tmp_path: Path) -> None:
    class Backend(Bounded):
        jobs: dict[str, Any]

        def start(self, key: Key, work: Any) -> None:
            if key[0] == "launch" and self.jobs[str(key[1])].place == "h0" and self.t > self.began_at + 8:
                late = Completed(key, None, Unreachable("h0 cannot be reached"))
                heapq.heappush(self.queue, (self.t + 120, next(self.order), late))
            else:
                super().start(key, work)

        def reach(self, place: str) -> None:
            if place == "h0" and self.t > self.began_at + 14:
                raise Unreachable("h0 cannot be reached")

    backend = Backend(World(hosts=2, works=(5, 10), launch=(0.1, 0.5)))
    run = scheduled(tmp_path, backend, 400, max_agents=40, start=12)
    backend.jobs = run.jobs
    assert run.work()
    well = [event["t"] for event in run.run.events() if event["kind"] == "launch" and event["agent"].endswith("@h1")]
    assert sum(20 < at - backend.began_at < 100 for at in well) > 100


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
    backend = Away(World(hosts=2, works=works))
    long = scheduled(tmp_path, backend, 40, retries=0, max_agents=20, start=20)
    # Something is left to do when it is back.
    long.governor.limits = long.governor.limits._replace(launch_rate=0.02, burst=20)
    assert long.work() and long.run.picture()["outcomes"] == {"ok": 40} and len(backend.began) == 40
    assert kinds(long.run)["returned"] == kinds(long.run)["abandoned"] > 3
    cost = long.run.picture()["cost_usd"]
    assert cost == pytest.approx(backend.billed, rel=0.01) and long.total.dollars == pytest.approx(cost)


def test_those_whose_tasks_others_have_by_then_are_ended_and_counted(tmp_path: Path) -> None:
    class Backend(Away):
        jobs: dict[str, Any]

        def completed(self, timeout: float) -> list[Completed]:
            if self.t - self.began_at > self.until + 100:
                assert self.agents["h1"].keys() <= {job.name for job in self.jobs.values()}, "nobody waits for it"
            return super().completed(timeout)

    backend = Backend(World(hosts=2, works=(500, 1600)))
    run = scheduled(tmp_path, backend, 20, retries=3, breaker=Breaker(n=1000), max_agents=20, start=20)
    backend.jobs = run.jobs
    assert run.work() and run.run.picture()["outcomes"] == {"ok": 20} and len(backend.began) > 23
    told = [event for event in run.run.events() if event["kind"] == "returned"]
    assert {event["attempt"] for event in told} == {1} and all(event["agent"].endswith("@h1") for event in told)
    cost = run.run.picture()["cost_usd"]
    assert cost == pytest.approx(backend.billed, rel=0.01) and run.total.dollars == pytest.approx(cost)


def test_a_run_that_is_taken_up_when_the_host_is_back_counts_what_its_agents_spent(tmp_path: Path) -> None:
    class Backend(Away):
        gone = False

        def interrupts(self) -> int:
            return 3 * (not self.gone and self.t - self.began_at > 800)

    backend = Backend(World(hosts=2, works=(900, 1600)))
    first = scheduled(tmp_path, backend, 20, retries=0, max_agents=20, start=20)
    assert not first.work() and kinds(first.run)["abandoned"] > 3
    backend.queue.clear()  # what was under way went with the process
    backend.gone, backend.t = True, backend.began_at + 1100
    second = scheduled(tmp_path, backend, run=first.run, retries=0)
    assert second.work() and first.run.picture()["outcomes"] == {"ok": 20} and len(backend.began) == 20
    assert (
        first.run.picture()["cost_usd"]
        == pytest.approx(backend.billed, rel=0.01)
        == pytest.approx(second.total.dollars)
    )


def test_a_host_that_is_given_up_keeps_no_hand_busy(tmp_path: Path) -> None:
    class Backend(Away):
        until, jobs = 36_000.0, dict[str, Any]()
        begun: ClassVar[list[Key]] = []

        def start(self, key: Key, work: Any) -> None:
            super().start(key, work)
            if key[0] in ("harvest", "clear") and self.t > self.began_at + 100:
                self.begun += [key] * (self.jobs[str(key[1]).partition("#")[0]].place == "h1")

    backend = Backend(World(hosts=2, works=(800, 900)))
    run = scheduled(tmp_path, backend, 20, max_agents=20, start=20)
    backend.jobs = run.jobs
    assert run.work() and run.run.picture()["outcomes"] == {"ok": 20} and not backend.begun


def test_a_run_ends_though_each_look_at_a_host_that_is_gone_takes_longer_than_it_is_to_the_next(tmp_path: Path) -> None:
    class Backend(Away):
        until, looks_there = math.inf, 0

        def start(self, key: Key, work: Any) -> None:
            if key == ("poll", "h1") and self.t > self.began_at + self.since:
                self.looks_there += 1
                late = Completed(key, None, Unreachable("h1 cannot be reached"))
                heapq.heappush(self.queue, (self.t + 8, next(self.order), late))
            else:
                super().start(key, work)

    backend = Backend(World(hosts=2, works=(300, 400)))
    run = scheduled(tmp_path, backend, 40, max_agents=20, start=20)
    assert run.work() and run.run.picture()["outcomes"] == {"ok": 40}
    assert backend.looks_there < 50 and backend.t - backend.began_at < 2500


def test_an_agent_whose_work_cannot_be_had_and_that_cannot_be_ended_is_left_at_last(tmp_path: Path) -> None:
    """Its host answers all the time: nothing is hoped for from its return."""

    class Backend(Bounded):
        def harvest(self, task: Task, attempt: Attempt) -> Harvest:
            raise MusterError("the folder cannot be written")

    run = scheduled(tmp_path, Backend(World(works=(10, 20), stuck=1_000_000)), 2, retries=0)
    assert run.work() and run.run.picture()["outcomes"] == {"ok": 2}
    assert (kinds(run.run)["abandoned"], kinds(run.run)["returned"]) == (2, 0)


def test_work_that_waits_for_its_host_is_not_given_up_because_the_machine_slept(tmp_path: Path) -> None:
    class Backend(Away):
        slept, until = False, 7400.0

        def completed(self, timeout: float) -> list[Completed]:
            if not self.slept and self.t - self.began_at > 160:
                self.slept, self.t = True, self.t + 7200
            return super().completed(timeout)

    backend = Backend(World(hosts=2, works=(9000, 9000)))
    run = scheduled(tmp_path, backend, 20, retries=0, max_agents=20, start=20, task_seconds=100.0)
    assert run.work() and run.run.picture()["outcomes"] == {"over-budget": 20} and kinds(run.run)["outcome"] == 20
    assert not any((run.run.attempts(task.id)[-1].outcome or Outcome()).harvest_errors for task in run.run.tasks())


def test_a_host_that_does_not_answer_is_not_asked_for_the_work_of_each_agent_again_and_again(tmp_path: Path) -> None:
    class Backend(Away):
        until = 500.0

    backend = Backend(World(hosts=2, works=(1000, 1000)))
    run = scheduled(tmp_path, backend, 20, retries=0, max_agents=20, start=20, task_seconds=100.0)
    assert run.work() and run.run.picture()["outcomes"] == {"over-budget": 20}
    ended = [(run.run.attempts(task.id)[-1].outcome or Outcome()) for task in run.run.tasks()]
    late = [one for one in ended if one.t > backend.began_at + 500]
    assert len(late) > 3 and not any(one.harvest_errors for one in ended), "their work is brought home when it is back"
    assert kinds(run.run)["unharvested"] <= 2 * len(late)


def test_nothing_is_launched_that_would_have_to_wait_for_a_free_hand(tmp_path: Path) -> None:
    """By the time that one is free, a limit may be known that forbids it."""

    class Backend(Bounded):
        workers, held, piled = 4, 0, 0

        def start(self, key: Key, work: Any) -> None:
            self.held += key[0] != "poll"
            self.piled = max(self.piled, self.held if key[0] == "launch" else 0)
            super().start(key, work)

        def completed(self, timeout: float) -> list[Completed]:
            found = super().completed(timeout)
            self.held -= sum(ended.item[0] != "poll" for ended in found)
            return found

    backend = Backend(World(hosts=5, works=(5, 10), launch=(1.0, 2.0)))
    run = scheduled(tmp_path, backend, 60, max_agents=40, start=40)
    assert run.work() and run.run.picture()["outcomes"] == {"ok": 60} and backend.piled == 4


def test_what_is_to_be_tried_again_still_is_when_the_process_was_asked_to_end(tmp_path: Path) -> None:
    class Backend(Bounded):
        def interrupts(self) -> int:
            return int(self.t - self.began_at > 10)

        def _status(self, name: str, one: One, reset: float) -> Status:
            status = super()._status(name, one, reset)
            return status._replace(last_line="API Error: 429 too many requests") if status.state == "failed" else status

    backend = Backend(World(works=(30, 30), ends=(("failed", 1.0),)))
    run = scheduled(tmp_path, backend)
    assert not run.work() and run.run.picture()["outcomes"] == {}
    again = SimBackend(World(works=(30, 30)))
    again.t = again.began_at = backend.t
    assert scheduled(tmp_path, again, run=run.run).work() and run.run.picture()["outcomes"] == {"ok": 1}
    assert again.began[0] - backend.t > 10, "and not before it was to be"


def test_one_look_that_a_good_host_misses_ends_nothing(tmp_path: Path) -> None:
    class Backend(Bounded):
        missed = False

        def poll(self, place: str) -> HostView:
            if place == "h1" and self.t - self.began_at > 30 and not self.missed:
                self.missed = True
                raise Unreachable("host h1 did not answer within 5 s")
            return super().poll(place)

    backend, breaker = Backend(World(hosts=2, works=(20, 40), memory=2 * GB, per_agent=0.4 * GB)), Breaker()
    pause = breaker.pauses["h0"] = Pause(backend.now(), "launch", "", "environment", "5 of 5 failed")
    pause.state = "stopped"
    run = scheduled(tmp_path, backend, 100, breaker=breaker, max_agents=20)
    assert run.work() and backend.missed and run.run.picture()["outcomes"] == {"ok": 100}


def test_money_without_a_result_is_told_once(tmp_path: Path) -> None:
    backend = Bounded(World(hosts=2, works=(300, 300), dollars=(40, 40)))
    run = scheduled(tmp_path, backend, 20, max_agents=20, start=20, expected_dollars=1.0)
    assert run.work() and [cause for cause, _ in backend.alerts].count("money") == 1


def test_two_kills_leave_no_agent_behind(tmp_path: Path) -> None:
    """Killed while it is made, and again between its outcome and its clearing."""

    class Killed(BaseException):
        pass

    class Backend(Bounded):
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
    backend = Backend(World(works=(5, 5)))
    backend.launch(made[0], run.begin(made[0].id, 1, agent, "x"))
    with pytest.raises(Killed):
        scheduled(tmp_path, backend, run=run).work()
    assert any(backend.agents.values())
    again = SimBackend(World(works=(5, 5)))
    again.agents, again.t = backend.agents, backend.t
    assert scheduled(tmp_path, again, run=run).work() and not any(again.agents.values())


def test_one_client_that_is_refused_for_an_hour_does_not_hold_back_the_others(tmp_path: Path) -> None:
    class Backend(Bounded):
        def _status(self, name: str, one: One, reset: float) -> Status:
            if name == "sim-1-0003" and self.t - one.begun < 3600:
                agent = Agent(name, name, "sim", created=one.begun)
                return Status(agent, "", "local", "working", "retry", since=one.begun, now=self.t, refused=self.t)
            return super()._status(name, one, reset)

    run = scheduled(tmp_path, backend := Backend(World(hosts=2, works=(60, 60))), 300, max_agents=20)
    assert run.work() and run.run.picture()["outcomes"] == {"ok": 300}
    assert kinds(run.run)["slowed"] == 1
    assert sum(at - backend.began_at < 1800 for at in backend.began) == 300


def test_nobody_has_stalled_because_the_machine_slept(tmp_path: Path) -> None:
    class Backend(Bounded):
        slept = False

        def completed(self, timeout: float) -> list[Completed]:
            if not self.slept and self.t - self.began_at > 100:
                self.slept = True
                self.t += 3600
                for one in (one for ones in self.agents.values() for one in ones.values()):
                    one.begun += 3600
            return super().completed(timeout)

        def _status(self, name: str, one: One, reset: float) -> Status:
            status = super()._status(name, one, reset)
            return status._replace(last_line="thinking", since=1.0) if status.state == "working" else status

    backend = Backend(World(works=(300, 300)))
    run = scheduled(tmp_path, backend, 8, retries=0, max_agents=8, start=8)
    assert run.work() and backend.slept and run.run.picture()["outcomes"] == {"ok": 8}


def test_a_quota_that_shows_in_how_commands_end_holds_the_rest_back(tmp_path: Path) -> None:
    class Backend(Bounded):
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

    run = scheduled(tmp_path, backend := Backend(World(works=(3, 5), ends=(("failed", 1.0),))), 100)
    assert run.work() and run.run.picture()["outcomes"] == {"ok": 100}
    assert sum(at - backend.began_at < 1000 for at in backend.began) < 30 and kinds(run.run)["slowed"] >= 1


def test_words_of_a_command_make_nobody_wait_for_days_in_silence(tmp_path: Path) -> None:
    class Backend(Bounded):
        lasts = 86_400.0

        def _status(self, name: str, one: One, reset: float) -> Status:
            status = super()._status(name, one, reset)
            words = "429 too many requests, resets_at: 99999999999"
            return status._replace(last_line=words) if status.state == "failed" else status

    run = scheduled(tmp_path, Backend(World(works=(3, 5), ends=(("failed", 1.0),))), retries=0)
    run.governor.limits = run.governor.limits._replace(breaker=0.0)
    assert run.work() and run.run.picture()["outcomes"] == {"failed": 1} and kinds(run.run)["idle"]


def test_a_harvest_that_never_goes_well_is_given_up(tmp_path: Path) -> None:
    class Backend(Bounded):
        lasts = 3600.0

        def harvest(self, task: Task, attempt: Attempt) -> Harvest:
            raise MusterError("survey failed")

    run = scheduled(tmp_path, Backend(World(works=(5, 5))))
    assert run.work() and run.run.picture()["tasks"][0]["harvest_errors"] == ["survey failed"]


def test_what_agents_said_is_not_kept_in_memory(tmp_path: Path) -> None:
    class Backend(Bounded):
        def harvest(self, task: Task, attempt: Attempt) -> Harvest:
            words, harvest = str(task.number).ljust(65_000, "s"), super().harvest(task, attempt)
            return harvest._replace(outcome=harvest.outcome._replace(claimed=Result("ok", words + "!"), summary=words))

    run = scheduled(tmp_path, Backend(World(works=(1, 2))), 100)
    tracemalloc.start()
    try:
        assert run.work() and tracemalloc.get_traced_memory()[0] < 3_000_000
    finally:
        tracemalloc.stop()


def test_usage_is_never_older_than_five_seconds_on_many_hosts(tmp_path: Path) -> None:
    class Backend(Bounded):
        def __init__(self, world: World) -> None:
            super().__init__(world)
            self.made: dict[str, list[float]] = {}
            self.known: list[tuple[str, float]] = []

        def poll(self, place: str) -> HostView:
            seen = super().poll(place)
            if seen.agents:
                self.made.setdefault(place, []).append(self.t)
            return seen

        def completed(self, timeout: float) -> list[Completed]:
            found = super().completed(timeout)
            for ended in found:
                if ended.item[0] == "poll" and ended.error is None and ended.value.agents:
                    self.known.append((str(ended.item[1]), self.t))
            return found

    backend = Backend(World(hosts=150, works=(60, 60)))
    run = scheduled(tmp_path, backend, 300, max_agents=300, start=300, launch_rate=100.0, burst=100)
    assert run.work()
    oldest = 0.0
    for place, made in backend.made.items():
        came = [at for where, at in backend.known if where == place]
        # Until the next look is known, what is known is as old as when it was made.
        oldest = max([oldest, *(later - at for at, later in zip(made, came[1:], strict=False) if later - at < 30)])
    assert oldest < 5


def test_stopped_tasks_are_taken_up_again_by_the_same_command(tmp_path: Path) -> None:
    backend = SimBackend(World(works=(5, 5), dollars=(1, 1)))
    run = scheduled(tmp_path, backend, 5, agents=3)
    assert run.work() and run.run.picture()["outcomes"] == {"ok": 3, "over-budget": 2}
    again = SimBackend(World(works=(5, 5)))
    assert scheduled(tmp_path, again, run=run.run).work() and not again.began, (
        "they are over, unless somebody wants them"
    )
    assert scheduled(tmp_path, again, run=run.run, reopen=True).work()
    assert run.run.picture()["outcomes"] == {"ok": 5} and len(again.began) == 2


def test_a_run_that_is_given_up_says_of_each_task_what_is_true(tmp_path: Path) -> None:
    """Those that failed have their own reason; nobody has tried the others, and the same command can."""
    backend = Bounded(World(works=(1.0, 40.0), ends=(("failed", 1.0),)))
    run = scheduled(tmp_path, backend, 60, retries=5)
    assert run.work()
    tried = {task: len(run.run.attempts(task)) for task in run.jobs}
    for row in run.run.picture()["tasks"]:
        if row["attempts"]:
            assert row["outcome"] == "failed" and row["reason"] == "exit 1: AssertionError: no"
        else:
            assert row["outcome"] == "cancelled" and "failed at work" in row["reason"]
    assert 0 < sum(row["attempts"] > 0 for row in run.run.picture()["tasks"]) < 60 and max(tried.values()) <= 6


def test_a_full_disk_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = Bounded(World(works=(5, 5)))
    run, fails = scheduled(tmp_path, backend, 10), iter(range(200))
    end = run.run.end

    def full(attempt: Attempt, outcome: Outcome) -> Attempt:
        if next(fails, 200) < 100:
            raise OSError(errno.ENOSPC, "No space left on device")
        return end(attempt, outcome)

    monkeypatch.setattr(run.run, "end", full)
    assert run.work() and run.run.picture()["outcomes"] == {"ok": 10}
    assert [cause for cause, _ in backend.alerts] == ["disk"]
    monkeypatch.setattr(run.run, "event", lambda *_, **__: (_ for _ in ()).throw(OSError(errno.EROFS, "read-only")))
    with pytest.raises(OSError, match="read-only"):
        run.log.event("alert", None)


def test_time_never_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = FleetBackend.__new__(FleetBackend)
    backend._clock = (1000.0, 10.0)
    seen = []
    for wall, ticks in ((1001.0, 11.0), (400.0, 12.0), (401.0, 13.5), (5000.0, 14.0), (5001.0, 15.0)):
        monkeypatch.setattr("muster.flow.mapping.fleet_backend.time.time", lambda wall=wall: wall)
        monkeypatch.setattr("muster.flow.mapping.fleet_backend.time.monotonic", lambda ticks=ticks: ticks)
        seen.append(backend.now())
    assert seen == [1001.0, 1002.0, 1003.5, 5000.0, 5001.0] and all(later > sooner for sooner, later in pairwise(seen))


def test_what_must_not_wait_has_threads_of_its_own() -> None:
    import threading

    crew: Crew[str] = Crew(2)
    go = threading.Event()
    for number in range(6):
        crew.start(f"slow {number}", lambda: go.wait(60))
    crew.start("poll", lambda: "seen", urgent=True)
    assert [ended.item for ended in crew.done(30)] == ["poll"]
    go.set()
    ended: list[str] = []
    while crew.busy:
        ended += [one.item for one in crew.done(30)]
    assert len(ended) == 6


def test_a_paused_run_launches_nothing_and_what_is_set_counts_at_once(tmp_path: Path) -> None:
    class Backend(Bounded):
        run: Run
        asked_for: ClassVar[set[float]] = set()

        def completed(self, timeout: float) -> list[Completed]:
            wishes = {50.0: {"state": "paused"}, 300.0: {"state": "", "max_agents": 2.0}}
            for at, wish in wishes.items():
                if self.t - self.began_at > at and at not in self.asked_for:
                    self.asked_for.add(at)
                    self.run.ask(**wish)
            return super().completed(timeout)

    backend = Backend(World(works=(20, 40)))
    run = scheduled(tmp_path, backend, 60, max_agents=10)
    backend.run = run.run
    assert run.work() and run.run.picture()["outcomes"] == {"ok": 60}
    begun = [at - backend.began_at for at in backend.began]
    assert any(at < 50 for at in begun) and not any(62 < at < 300 for at in begun) and any(at > 312 for at in begun)
    ends = {event["agent"]: event["t"] for event in run.run.events() if event["kind"] == "outcome"}
    begins = {event["agent"]: event["t"] for event in run.run.events() if event["kind"] == "launch"}
    late = [name for name, at in begins.items() if at - backend.began_at > 312]
    most = max(sum(begins[other] <= begins[name] < ends[other] for other in late) for name in late)
    assert len(late) > 10 and most == 2
    told = kinds(run.run)
    assert told["paused"] == told["resumed"] == 1


def test_who_asks_a_third_time_does_not_wait_for_a_host_that_is_gone(tmp_path: Path) -> None:
    class Backend(Bounded):
        lasts = 120.0

        def interrupts(self) -> int:
            since = self.t - self.began_at
            return 0 if since < 20 else 2 if since < 60 else 3

    backend = Backend(World(works=(300, 300), dead=(("h0", 10.0),)))
    run = scheduled(tmp_path, backend, 3)
    assert not run.work() and 60 <= backend.t - backend.began_at < 70
    assert run.run.picture()["outcomes"] == {}, "they may still be there, and the same command looks"
