"""Runs one agent per task, as many at once as the governor allows, until every task has an outcome.

The scheduler decides and records. Slow work (launching, polling, sending, harvesting, clearing) is started on a backend, and its
results are handled as they arrive, so nothing waits for anything else. If the process is killed, another one continues from the
run's directory: an agent is recorded before it is created, and cleared away only after its outcome is recorded.
"""

from __future__ import annotations

import errno
import itertools
import math
import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ... import Status
from ...errors import MusterError, Unreachable
from ..limits import failures, settings
from ..limits.breaker import Alert, Breaker
from ..limits.governor import Governor, HostLoad, Spend
from ..limits.limits import span
from ..run.directory import Attempt, Run, outcome_in
from ..run.records import GOOD, AttemptAgent, Control, Outcome
from .backend import Backend, Completed, Harvest, HostView, Key
from .jobs import ALIVE, WATCHED, Job, JobIndex
from .polling import PollSchedule
from .run_log import OnEvent, RunLog
from .supervise import Action, Observed, Policy, decide, how_it_ended

#: A host is polled this often, and less often the more agents it has and the more hosts there are. Budgets are checked against what
#: polls show, so the maximum keeps usage less than five seconds old.
POLL_SECONDS, POLL_MAX = 1.0, 4.2
#: A host without agents is polled this often while there are tasks to launch: its free memory may have changed.
POLL_IDLE = 15.0
#: A host that does not answer is polled less and less often, down to this.
POLL_SILENT = 60.0
AGENTS_PER_SECOND, HOSTS_PER_SECOND = 60, 25
#: What all agents spent is added up at most this often, and when one has ended.
SUM_SECONDS = 0.5
#: Seconds between two decisions on what to launch. Each decision compares all hosts, so it grows with their number up to the maximum.
TICK, TICK_MAX, TICK_HOSTS = 0.05, 0.25, 800
#: Nothing is launched for this long, or until each host was polled: else the first host that answers would get all agents.
FIRST_POLL = 5.0
#: How many agents are created at once on one host; more would slow each other down.
LAUNCHING = 6
#: State is saved this often while things happen, and this often while nothing does.
SAVE_SECONDS, SAVE_MAX = 10.0, 60.0
#: A host that does not answer for this many seconds has lost its agents.
PATIENCE = 600.0
HARVEST_RETRY = 15.0
#: How often clearing away one agent is tried.
CLEAR_ATTEMPTS = 3
#: If the loop wakes up this much later than planned, the process or the machine was suspended.
SUSPENDED_SECONDS = 30.0
#: A run in which nothing is launched says so after this many seconds, and again when the reason changes.
IDLE_SECONDS = 10.0
#: Failure kinds of outcomes that carry no reason of their own.
REASONS = {"stalled": "stall", "timeout": "timeout", "invalid": "bad-result", "lost": "lost"}
#: Outcomes that say nothing about the agent: the run ended it.
ENDED_BY_US = frozenset({"over-budget", "cancelled"})
#: Outcomes after which another attempt may help.
RETRIED = frozenset({"failed", "invalid", "timeout", "stalled", "lost"})
#: Why an agent is lost that never worked: the process that created or removed it was killed.
HALF_MADE = ("create was interrupted", "never started", "destroy was interrupted")
#: An adopted agent without proof that it got its prompt is created anew after this many seconds.
PROMPT_SECONDS = 20.0
#: The exit codes of a command that could not be run: another attempt cannot run it either.
NO_PROGRAM = re.compile("exit 12[67]\\b")
#: Limits that `muster runs set` can change while a run goes on.
SETTABLE = ("max_agents", "dollars", "tokens", "launch_rate")


class Options(NamedTuple):
    """How the tasks of a run are worked on."""

    places: tuple[str, ...] = ("",)
    policy: Policy = Policy(False)
    retries: int = 1
    only: frozenset[str] | None = None
    """The ids of the tasks to work on; None means all."""
    reopen: bool = False
    """Work again on tasks that were cancelled or had no budget."""
    proven: bool = False
    """An event proves that an agent got its prompt: an agent without that event was never told its task."""


class Scheduler:
    def __init__(
        self,
        run: Run,
        options: Options,
        governor: Governor,
        breaker: Breaker,
        backend: Backend,
        on_event: OnEvent,
        random: Callable[[], float],
    ) -> None:
        self.run, self.options, self.governor, self.breaker = run, options, governor, breaker
        self.places = frozenset(options.places)
        self.backend, self.random = backend, random
        self.log = RunLog(run, backend, on_event)
        tasks = run.tasks()
        self.jobs = {
            task.id: Job(task, run.attempts(task.id))
            for task in tasks
            if options.only is None or task.id in options.only
        }
        self.index = JobIndex()
        self.uncleared: dict[str, dict[str, tuple[Job, Attempt, int]]] = defaultdict(dict)
        """Attempts with an outcome whose agents may still exist, by host and agent name, and how often clearing each has failed. The
        next poll shows whether the agent exists."""
        self.abandoned: dict[str, dict[str, tuple[Job, Attempt]]] = defaultdict(dict)
        """Those that were given up because their host is silent; it may come back."""
        self.polls = PollSchedule(POLL_SECONDS / 10)
        self.silent: dict[str, float] = {}
        """Since when each of these hosts does not answer."""
        self.problems: dict[str, str] = {}
        """Why the last poll of each of these hosts failed."""
        self.loads: dict[str, HostLoad] = {}
        self.spent_ended = Spend()
        """By the attempts that have an outcome."""
        self.spent_running = settings.Sum()
        """By the attempts that have none, by task."""
        self.total = Spend()
        """Both together."""
        self.paused = self.interrupted = False
        self.stopping = ""
        """Empty, `drain`, or the outcome with which everything is ended."""
        self.stop_reason = ""
        self.control = Control(resumed=run.control().resumed)
        self.alerted: set[str] = set()
        self.interrupts = 0
        self.summed = self.control_read = 0.0
        self.idle: tuple[float, str] = (math.inf, "")
        """Since when nothing is launched and no agent works, and the reason that was last reported."""
        self.unsettled = True
        """What adopted agents have spent is not known yet."""
        self.launched = 0
        """Attempts that had or have an agent, of former processes too."""
        self._busy: set[Key] = set()
        self._workers_busy = 0
        """The work in `_busy` other than polls."""
        self.began, self.ended = backend.now(), 0
        for job in self.jobs.values():
            self._load_job(job)
        for task in tasks:
            if task.id not in self.jobs:  # their cost counts towards the run all the same
                for attempt in run.attempts(task.id):
                    self.launched += bool(attempt.agent.name)
                    self._count(Job(task, []), attempt.outcome or Outcome())
        for pause in breaker.pauses.values():
            if pause.flying not in self.index.stages["adopting"]:
                breaker.withdrawn(self.began, pause.flying)  # nothing else would report its end

    def _load_job(self, job: Job) -> None:
        """Find the stage of a job from its attempts. For an attempt without an outcome the first poll shows whether it has an agent."""
        self.index.stages["todo"][job.task.id] = job
        for attempt in job.attempts:
            self.launched += bool(attempt.agent.name)
            if attempt.outcome:
                self._count(job, attempt.outcome)
                if attempt.agent.name and not attempt.cleared:
                    self.uncleared[attempt.agent.place][attempt.agent.name] = job, attempt, 0
        if job.attempts and not job.last.outcome:
            self._move(job, "adopting")
        elif job.attempts and (ended := job.last.outcome):
            if ended.final and not (self.options.reopen and ended.outcome in ENDED_BY_US):
                self._move(job, "done")
            elif ended.retry_at is not None and ended.retry_at > self.began:
                job.not_before = min(ended.retry_at, self.began + failures.LONGEST_WAIT)
                self._move(job, "retry")

    def _move(self, job: Job, stage: str) -> None:
        self.index.move(job, stage)
        if stage in WATCHED:
            self._schedule_poll(job.place)

    # The loop

    def work(self) -> bool:
        """Return True when every task has an outcome, False if a person ended the work before that."""
        for place in sorted(
            {
                *(self.options.places if self.index.stages["todo"] else ()),
                *(place for place, agents in self.uncleared.items() if agents),
                *(place for place, jobs in self.index.watched.items() if jobs),
            }
        ):
            self._poll(place)
        tick = min(max(TICK, len(self.options.places) / TICK_HOSTS), TICK_MAX)
        pause, decided, woke = 0.0, -math.inf, self.backend.now()
        while not self._is_over():
            completed = self.backend.completed(pause)
            now = self.backend.now()
            if now - woke > pause + SUSPENDED_SECONDS:
                self._was_suspended(now - woke - pause)
            woke = now
            for ended in completed:
                self._handle(ended)
            if 0 < (wait := decided + tick - now) <= tick:
                pause = wait
                continue
            decided = now
            self._obey(now)
            if now >= self.polls.next_at:
                self._poll_due(now)
            self._retry(now)
            self._launch(now)
            if now - self.log.saved > (SAVE_SECONDS if self.log.changed else SAVE_MAX):
                self.log.save(now, self.governor, self.breaker)
            pause = self._pause(now)
        self._sum()  # the attempts that ended last count towards the day
        self.log.save(self.backend.now(), self.governor, self.breaker)
        return not self.unfinished

    def _was_suspended(self, seconds: float) -> None:
        """Exclude the time we were suspended from all timers: nobody polled, so nobody was silent."""
        self.silent = {place: since + seconds for place, since in self.silent.items()}
        for job in self.index.stages["running"].values():
            job.observed = job.observed._replace(active=job.observed.active + seconds)
        for job in self.index.stages["unharvested"].values():
            job.harvest_failed_at += seconds

    def _poll_due(self, now: float) -> None:
        for place in self.polls.take(now):
            if self._is_polled(place):
                self._poll(place)

    def _is_polled(self, place: str) -> bool:
        """Return whether a poll of the host could show anything of use."""
        return bool(self._has_agents(place) or (self.index.stages["todo"] and place in self.places))

    def _has_agents(self, place: str) -> bool:
        return bool(self.index.watched[place] or self.uncleared[place] or place in self.silent)

    def _schedule_poll(self, place: str) -> None:
        if ("poll", place) not in self._busy:  # else the next poll is scheduled when this one ends
            self.polls.add(place, self._interval(place))

    def _is_over(self) -> bool:
        if self.interrupts >= 3:
            return True  # a third Ctrl-C does not wait for hosts that do not answer
        if self.unfinished and not (self.stopping and not any(self.index.stages[stage] for stage in ALIVE)):
            return False
        # Clear away first what is left.
        return not any(self.uncleared.values()) and not any(kind == "clear" for kind, _ in self._busy)

    def _pause(self, now: float) -> float:
        moments = [self.polls.next_at]
        moments += [
            job.not_before for job in (*self.index.stages["retry"].values(), *self.index.stages["unharvested"].values())
        ]
        if (at := self.governor.next(now)) is not None:
            moments.append(at)
        return min(max(min(moments) - now, TICK), 1.0)

    def _interval(self, place: str) -> float:
        """Return the seconds between two polls of a host."""
        if place in self.silent:  # such a poll takes long, and many of them keep other polls waiting
            return min(max(POLL_SECONDS, (self.backend.now() - self.silent[place]) / 4), POLL_SILENT)
        if not self._has_agents(place) and (self.idle[0] == math.inf or not self.index.stages["todo"]):
            return POLL_IDLE
        interval = max(
            POLL_SECONDS, len(self.index.watched[place]) / AGENTS_PER_SECOND, len(self.polls.polled) / HOSTS_PER_SECOND
        )
        return min(interval, POLL_MAX)

    def _poll(self, place: str) -> None:
        self.polls.polled[place] = self.backend.now()
        if ("poll", place) not in self._busy:
            self._start(("poll", place), lambda: self.backend.poll(place))

    def _start(self, key: Key, work: Callable[[], object]) -> None:
        self._busy.add(key)
        self._workers_busy += key[0] != "poll"
        self.backend.start(key, work)

    def _handle(self, ended: Completed) -> None:
        kind, what = ended.item
        self._busy.discard(ended.item)
        self._workers_busy -= kind != "poll"
        if kind == "poll":
            self._polled(str(what), ended)
            if self._is_polled(what):
                self._schedule_poll(what)
            return
        name, _, number = str(what).partition("#")
        job = self.jobs[name]
        if kind == "launch":
            self._launch_ended(job, ended.error)
        elif kind == "send":
            job.observed = job.observed._replace(active=self.backend.now())  # what was seen so far is from before
            if ended.error is not None:
                self.log.event("undelivered", job, reason=ended.error.message)
        elif kind == "harvest":
            self._harvested(job, ended)
        elif kind == "clear":
            self._cleared(job, job.attempts[int(number) - 1], ended.error)

    # Polling

    def _polled(self, place: str, ended: Completed) -> None:
        now, began = self.backend.now(), self.polls.polled[place]
        jobs = list(self.index.watched[place].values())
        if ended.error is not None:
            self._poll_failed(place, jobs, ended, ended.error)
            return
        self.silent.pop(place, None)
        view: HostView = ended.value
        # A launch is load that ends as soon as the agent is there, so it must not count against more launches.
        name, cores, busy, memory, disk, *_ = view.load
        busy = None if busy is None else max(0.0, busy - self.index.launching_on[place])
        self.loads[place] = HostLoad(name, cores, busy, memory, disk, self.index.alive_on[place], True, began)
        for job in jobs:
            status = view.agents.get(job.name)
            if job.name in view.bills:
                self._set_spent(job, settings.used(*view.bills[job.name]))
            if job.stage == "adopting":
                self._adopt(job, status)
            else:
                self._supervise(job, status, now)
        for name, (job, attempt) in self.abandoned.pop(place, {}).items():
            if name in view.agents:
                self._leave(job, attempt, 0)
                if not self._still_has_task(job, attempt, view.agents[name]):
                    why = f"{place} answers again; nobody waits for {name} any more, and it is ended"
                    self.log.event("returned", job, attempt, reason=why)
        for name, (job, attempt, failed) in list(self.uncleared[place].items()):
            if ("clear", f"{job.task.id}#{attempt.number}") in self._busy:
                continue
            status = view.agents.get(name)
            if status is not None:
                self._count_late(job, attempt, settings.used(*view.bills.get(name, (None, None))))
            if status is not None and self._still_has_task(job, attempt, status):
                self._resume(job, attempt, status)
            elif failed >= CLEAR_ATTEMPTS:
                self._abandon(place, name, f"{failed} times it could not be cleared away")
            else:
                self._clear(job, attempt)
        self._check_budgets(now)

    def _poll_failed(self, place: str, jobs: Sequence[Job], ended: Completed, error: MusterError) -> None:
        now = self.backend.now()
        self.problems[place] = cannot_use(place, error)
        if now - self.silent.setdefault(place, now) > PATIENCE:
            words = self.problems[place]
            for job in jobs:
                job.ending = Action("end", outcome="lost", reason=words)
                self._harvested(job, ended)  # a harvest would fail as the poll did
        if now - self.silent[place] > PATIENCE or self.stopping == "cancelled":
            for name in list(self.uncleared[place]):
                self._abandon(place, name, error.message)

    def _still_has_task(self, job: Job, attempt: Attempt, status: Status) -> bool:
        """Return whether an agent that was given up because its host was silent is still the one that has the task."""
        return (
            attempt.outcome is not None
            and attempt.outcome.host_silent
            and status.state not in ("lost", "stopped")
            and job.last.number == attempt.number
            and job.stage in ("done", "retry", "todo")
        )

    def _resume(self, job: Job, attempt: Attempt, status: Status) -> None:
        """Go on with an agent whose host is back, as if the host had never been away."""
        now, ended = self.backend.now(), outcome_in(attempt.folder) or attempt.outcome or Outcome()
        del self.uncleared[job.place][job.name]
        job.spent = settings.used(ended.cost_usd, ended.tokens)
        less = Spend(None if job.spent.dollars is None else -job.spent.dollars, -(job.spent.tokens or 0))
        self.spent_ended = settings.add(self.spent_ended, less)
        job.spent_before = settings.add(job.spent_before, less._replace(seconds=-(ended.seconds or 0.0)))
        self.spent_running.put(job.task.id, job.spent)
        self.ended -= ended.final
        job.add(self.log.write(lambda: self.run.reopen(attempt)))
        job.observed, job.since = Observed(now, active=now), status.agent.created
        self._move(job, "running")
        self.log.event("returned", job, reason=f"{job.place} answers again, and {job.name} is taken up")

    def _abandon(self, place: str, name: str, why: str) -> None:
        """Give up an agent that may still exist; only a person can end it now."""
        job, attempt, failed = self.uncleared[place].pop(name)
        if failed < CLEAR_ATTEMPTS:
            self.abandoned[place][name] = job, attempt
        address = attempt.agent.address
        reason = f"{address} may still be there ({why}); muster destroy {address} ends it"
        self.log.event("abandoned", job, attempt, reason=reason)

    def _adopt(self, job: Job, status: Status | None) -> None:
        """Go on with an attempt of a former process, or begin it anew if it has no agent."""
        now = self.backend.now()
        unprompted = status is not None and self.options.proven and job.task.prompt and not _got_prompt(status)
        job.since = job.since or now
        if status is None:
            self.breaker.withdrawn(now, job.task.id)
            self._move(job, "todo")
            if self.stop_reason:
                self._skip(job, self.stopping, self.stop_reason)
        elif unprompted and now - job.since < PROMPT_SECONDS and not self.stopping:
            pass  # the proof may come with the next poll
        elif unprompted or (status.state == "lost" and status.reason in HALF_MADE):
            self.breaker.withdrawn(now, job.task.id)
            self._move(job, "clearing")
            self._clear(job, job.last)
        else:
            job.observed, job.since = Observed(now, active=now), status.agent.created
            self._move(job, "running")
            self.log.event("adopted", job)

    def _supervise(self, job: Job, status: Status | None, now: float) -> None:
        if ("send", f"{job.task.id}#{job.last.number}") in self._busy:
            return  # the status is from before the message
        action, job.observed = decide(status, job.observed, now, self.options.policy)
        if action.limited:
            self._slow_down(job, now, action.limited, action.until)
        if action.kind in ("message", "answer"):
            self.log.event("messaged", job, text=action.text[:200])
            attempt = job.last
            key = ("send", f"{job.task.id}#{attempt.number}")
            self._start(key, lambda: self.backend.send(attempt, action.text, action.kind == "answer"))
        elif action.kind == "escalate":
            self.log.event("question", job, reason=action.text)
            self.backend.alert("question", f"{job.last.agent.address} asks: {action.text}")
        elif action.kind == "end":
            self._end(job, action)
        elif self.stopping in ("cancelled", "over-budget", "failed"):
            self._end(job, Action("end", outcome=self.stopping, reason="the run was stopped"))

    def _slow_down(self, job: Job, now: float, kind: str, until: float | None) -> None:
        if self.governor.pressure(now, kind, until):
            at_once = self.governor.window
            self.log.event("slowed", job, reason=f"{self.governor.why(now)}; then {at_once} at once", at_once=at_once)

    # Money

    def _set_spent(self, job: Job, spend: Spend) -> None:
        """Record what a running attempt has spent. The figures never go down, whatever later polls show."""
        if spend != job.spent:
            dollars = None if spend.dollars is None else max(spend.dollars, job.spent.dollars or 0.0)
            job.spent = Spend(dollars, max(spend.tokens or 0, job.spent.tokens or 0))
            self.spent_running.put(job.task.id, job.spent)

    def _count(self, job: Job, outcome: Outcome) -> None:
        """Move what an attempt spent from the running to the ended ones."""
        self.spent_running.put(job.task.id, None)
        used = settings.used(outcome.cost_usd, outcome.tokens)
        self.spent_ended = settings.add(self.spent_ended, used)
        job.spent_before = settings.add(job.spent_before, used._replace(seconds=outcome.seconds or 0))
        self.summed = 0.0

    def _count_late(self, job: Job, attempt: Attempt, spend: Spend) -> None:
        """Add what an agent has spent since its attempt was given up to that attempt."""
        ended = outcome_in(attempt.folder)
        if ended is None:
            return
        before = settings.used(ended.cost_usd, ended.tokens)
        known = spend.dollars is not None and before.dollars is not None
        dollars = max(0.0, (spend.dollars or 0.0) - (before.dollars or 0.0)) if known else None
        tokens = max(0, (spend.tokens or 0) - (before.tokens or 0))
        if not dollars and not tokens:
            return
        cost = None if dollars is None else (before.dollars or 0.0) + dollars
        corrected = ended._replace(cost_usd=cost, tokens=(before.tokens or 0) + tokens)
        self.log.write(lambda: self.run.end(attempt, corrected))
        self.spent_ended = settings.add(self.spent_ended, Spend(dollars, tokens))
        job.spent_before = settings.add(job.spent_before, Spend(dollars, tokens))
        self.summed = 0.0

    def _check_budgets(self, now: float) -> None:
        """Add up what was spent, and end what is over its budget."""
        if 0 <= now - self.summed < SUM_SECONDS:
            return
        self.summed = now
        limits, tasks = self.governor.limits, {}
        if limits.task_dollars or limits.task_tokens or limits.task_seconds:
            tasks = {
                name: settings.add(job.spent_before, job.spent._replace(seconds=now - job.since))
                for stage in ("running", "unharvested", "harvesting")
                for name, job in self.index.stages[stage].items()
            }
        day, today = self._sum()
        self.governor.spent(now, self.total, agents=self.launched, day=day, today=today, tasks=tasks)
        if self.unsettled and not self.index.stages["adopting"]:
            self.unsettled = False
            self.governor.progress(now)  # what adopted agents spent before now is no sign of a lack of progress
        for breach in self.governor.over(now):
            if breach.scope == "task":
                if job := self.index.stages["running"].get(breach.task):
                    self._end(job, Action("end", outcome="over-budget", reason=breach.words))
            elif breach.scope == "progress":
                if not self.unsettled:
                    self._alert_once("money", breach.unit, breach.words)
            else:
                self._stop_all("over-budget", breach.words)

    def _sum(self) -> settings.Today:
        """Add up what the run has spent, and record it as part of the day's total."""
        self.total = settings.add(self.spent_ended, self.spent_running.total())
        seconds = self.governor.seconds(self.backend.now())
        total = self.total._replace(seconds=seconds, agents=self.launched)
        return self.log.write(lambda: self.backend.spent_today(total))

    def _stop_all(self, outcome: str, reason: str) -> None:
        """Launch nothing more, and end and harvest what runs."""
        if self.stopping != outcome:
            self.stopping, self.stop_reason = outcome, reason
            self.log.event("stopping", None, reason=reason)
            if outcome != "cancelled":
                self.backend.alert(outcome, reason)
        for job in list(self.index.stages["running"].values()):
            self._end(job, Action("end", outcome=outcome, reason=reason))
        for job in [*self.index.stages["todo"].values(), *self.index.stages["retry"].values()]:
            self._skip(job, outcome, reason)

    def _alert_once(self, cause: str, about: str, words: str) -> None:
        """Alert a person, once for each subject until there is progress."""
        if about not in self.alerted:
            self.alerted.add(about)
            self.log.event("alert", None, reason=words)
            self.backend.alert(cause, words)

    # Launching

    def _launch(self, now: float) -> None:
        if self.paused or self.stopping:
            return
        todo, places = self.index.stages["todo"], self.options.places
        if not todo:
            if self.index.stages["retry"] and not self.index.alive:
                soonest = min(job.not_before for job in self.index.stages["retry"].values())
                self._report_idle(now, f"all that is left waits to be tried again: in {span(soonest - now)}")
            return
        if now - self.began < FIRST_POLL and any(("poll", p) in self._busy and p not in self.loads for p in places):
            return
        self._check_budgets(now)  # attempts may have ended since the last poll
        if self.stopping:
            return
        running = self.index.alive
        if not self.governor.may(now, len(todo), running) and running:
            return
        answering = [place for place in places if place not in self.silent] if self.silent else places
        if not answering and not running:
            no_host = f"no host can be used: {'; '.join(self.problems[place] for place in places)}"
            self._report_idle(now, no_host)
            if all(now - self.silent[place] > PATIENCE for place in places):
                self._stop_all("lost", no_host)
            return
        allowed = self.breaker.allowed(answering)
        if self.breaker.pauses and (why := self.breaker.hopeless(self._not_given_up(now))):
            if not running:
                self._stop_all("failed", why)
            return
        self._launch_canary(now, answering)
        if allowed:
            self._launch_on(allowed, now)

    def _launch_on(self, places: Sequence[str], now: float) -> None:
        """Launch as many agents on these hosts as the governor allows."""
        todo, running, launching = self.index.stages["todo"], self.index.alive, self.index.launching_on
        hosts = [self._load(place) for place in places if launching[place] < LAUNCHING]
        spare = sum(max(0, LAUNCHING - launching[place]) for place in places)
        # Decide on a launch only once a worker is free for it: by then a limit may be known that forbids it.
        wanted = min(len(todo), spare, max(0, self.backend.workers - self._workers_busy))
        chosen = self.governor.room(now, wanted, running, hosts)
        self._report_idle(now, "" if chosen or running else self.governor.why(now))
        if not chosen and not running:
            # No agent is left whose end could change anything, so what prevents the next launch prevents it for ever.
            breaches = self.governor.closed(now) + [one for one in self.governor.over(now) if one.scope == "progress"]
            if breaches:
                self._stop_all("over-budget", breaches[0].words)
        for place, job in zip(chosen, list(itertools.islice(todo.values(), len(chosen))), strict=False):
            self._begin_attempt(job, place, now)

    def _not_given_up(self, now: float) -> list[str]:
        """Return the hosts that answer or have not been silent for long."""
        return [place for place in self.options.places if now - self.silent.get(place, now) <= PATIENCE]

    def _report_idle(self, now: float, why: str) -> None:
        """Report why nothing happens, and poll the hosts for changes. An empty reason: something happens."""
        since, reported = self.idle
        if not why:
            self.idle = math.inf, ""
            return
        for place in self.options.places if self.index.stages["todo"] else ():
            self._schedule_poll(place)
        if now - since < IDLE_SECONDS or (kind := why.partition(":")[0]) == reported:
            self.idle = min(since, now), reported
        else:
            self.idle = since, kind
            self.log.event("idle", None, reason=why)

    def _launch_canary(self, now: float, places: Sequence[str]) -> None:
        """Where launching pauses because too much failed, launch one task to find out whether it still fails."""
        job = next(iter(self.index.stages["todo"].values()))
        where = self.breaker.canary(now, job.task.id, places)
        if not where:
            return
        chosen = self.governor.room(now, 1, self.index.alive, [self._load(place) for place in where])
        if chosen:
            self.log.event("canary", job)
            self._begin_attempt(job, chosen[0], now)
        else:
            self.breaker.withdrawn(now, job.task.id)

    def _load(self, place: str) -> HostLoad:
        load, running = self.loads.get(place), self.index.alive_on[place]
        if load is None or load.running != running:
            load = self.loads[place] = (load or HostLoad(place))._replace(running=running)
        return load

    def _begin_attempt(self, job: Job, place: str, now: float) -> None:
        again = bool(job.attempts) and not job.last.outcome  # a former process began it, and no agent came of it
        number = job.last.number if again else len(job.attempts) + 1
        self.launched += not again
        name = f"{self.run.name}-{job.task.number:04d}" + (f"-{number}" if number > 1 else "")
        agent = AttemptAgent(name, place, f"{name}@{place}" if place else name, now)
        attempt = self.log.write(lambda: self.run.begin(job.task.id, number, agent, job.task.prompt))
        job.add(attempt)
        job.since, job.observed = now, Observed(now, active=now)
        job.spent = Spend()
        self.spent_running.put(job.task.id, None)
        self._move(job, "launching")
        self.log.event("launch", job)
        self._start(("launch", job.task.id), lambda: self.backend.launch(job.task, attempt))

    def _launch_ended(self, job: Job, error: MusterError | None) -> None:
        now = self.backend.now()
        if error is None:
            job.observed = Observed(now, active=now)
            self._move(job, "running")
            self.governor.went_well(now)
            self._report_breaker(self.breaker.succeeded(job.place, now, job.task.id, "launch"))
            return
        failure = failures.from_error("launch", error, host=job.place, t=now, own=(job.name, job.task.item))
        self._finish(job, Outcome("failed", error.message), failure, clear=False)

    # Ending

    def _end(self, job: Job, action: Action) -> None:
        job.ending = action
        self._harvest(job)

    def _harvest(self, job: Job) -> None:
        self._move(job, "harvesting")
        attempt = job.last
        self._start(("harvest", job.task.id), lambda: self.backend.harvest(job.task, attempt))

    def _harvested(self, job: Job, ended: Completed) -> None:
        now, action = self.backend.now(), job.ending
        if ended.error is not None:
            # Its host does not answer. Try again until the host does, or until the agent counts as lost.
            self.log.event("unharvested", job, reason=ended.error.message)
            job.harvest_failed_at = job.harvest_failed_at or now
            if action.outcome != "lost" and now - job.harvest_failed_at <= PATIENCE:
                job.not_before = now + HARVEST_RETRY
                self._move(job, "unharvested")
                return
            outcome = Outcome(harvest_errors=(ended.error.message,), keep_agent=True)
            outcome = outcome._replace(host_silent=job.place in self.silent)
        else:
            harvest: Harvest = ended.value
            outcome = harvest.outcome
            if harvest.status is not None and action.outcome in ENDED_BY_US:
                # It may have finished by itself before we ended it.
                action = how_it_ended(harvest.status, job.observed, self.options.policy) or action
        job.harvest_failed_at = 0.0
        # Polls may have seen more usage than the harvest did.
        if job.spent.dollars and job.spent.dollars > (outcome.cost_usd or 0):
            outcome = outcome._replace(cost_usd=job.spent.dollars)
        if job.spent.tokens and job.spent.tokens > (outcome.tokens or 0):
            outcome = outcome._replace(tokens=job.spent.tokens)
        outcome = outcome._replace(outcome=action.outcome, reason=action.reason, seconds=now - job.since)
        failure = None
        if action.outcome not in GOOD | ENDED_BY_US:
            stage = "result" if action.outcome == "invalid" else "work"
            reason = REASONS.get(action.outcome, "")
            own = (job.name, job.task.item)
            reason = "claimed" if action.claimed else "not-installed" if NO_PROGRAM.match(action.reason) else reason
            failure = failures.classify(stage, action.reason, reason=reason, host=job.place, t=now, own=own)
        self._finish(job, outcome, failure, clear=job.place not in self.silent)

    def _finish(self, job: Job, outcome: Outcome, failure: failures.Failure | None, clear: bool) -> None:
        """Record the outcome, then clear the agent away. Without `clear` it is unknown whether there is an agent: a poll shows it."""
        now = self.backend.now()
        wait = None
        if failure is not None:
            outcome = outcome._replace(failure=failure.to_json(), uses_retry=failure.counts)
            wait = self._retry_after(job, outcome, failure)
        good = outcome.good
        if good:
            self.alerted.clear()
            self.log.disk_alerted = False
        self._learn(job, failure, good, now)
        cost = Spend(outcome.cost_usd, outcome.tokens, outcome.seconds)
        self.governor.ended(now, cost, progress=good)
        # After Ctrl-C the same command goes on with the cancelled tasks.
        final = wait is None and not (self.interrupted and outcome.outcome == "cancelled")
        outcome = outcome._replace(final=final, t=now, retry_at=None if wait is None else now + wait)
        job.add(self.log.write(lambda: self.run.end(job.last, outcome)))
        self._count(job, outcome)
        self.log.event("outcome", job, outcome=outcome.outcome, reason=outcome.reason or None, final=final)
        self.ended += final
        job.not_before = now + (wait or 0.0)
        if clear:
            self._move(job, "clearing")
            self._clear(job, job.last)
        else:
            self._leave(job, job.last, 0)
            self._settle(job)

    def _retry_after(self, job: Job, outcome: Outcome, failure: failures.Failure) -> float | None:
        """Return after how many seconds the task is tried again; None if it is not."""
        before = [one.outcome for one in job.attempts[:-1] if one.outcome]
        before = [ended for ended in before if ended.outcome not in ENDED_BY_US]
        failed = failure.counts + sum(ended.uses_retry for ended in before)
        # Ctrl-C ends the process, not the run: the task is still to be tried again.
        goes_on = not self.stopping or self.interrupted
        if failed <= self.options.retries and goes_on and outcome.outcome in RETRIED:
            return failures.retry_after(failure, len(before) + 1, self.random())
        return None

    def _leave(self, job: Job, attempt: Attempt, failed: int) -> None:
        """Let the next poll show whether an attempt that has ended still has an agent; clearing it has failed this often."""
        self.uncleared[attempt.agent.place][attempt.agent.name] = job, attempt, failed
        self._schedule_poll(attempt.agent.place)

    def _learn(self, job: Job, failure: failures.Failure | None, good: bool, now: float) -> None:
        """Tell breaker and governor how an attempt ended. An attempt that the run itself ended tells them nothing."""
        if failure is None:
            alert = self.breaker.succeeded(job.place, now, job.task.id) if good else None
            self._report_breaker(alert or self.breaker.withdrawn(now, job.task.id))
            return
        if failure.kind in ("rate-limit", "overload", "quota"):
            self._slow_down(job, now, failure.kind, failure.until or None)
        self._report_breaker(self.breaker.failed(failure, now, job.task.id))

    def _report_breaker(self, alert: Alert | None) -> None:
        if alert:
            self.log.event("alert", None, reason=alert.text, cause=alert.cause, breaker=alert.state)
            self.backend.alert(alert.cause, alert.text)

    def _clear(self, job: Job, attempt: Attempt) -> None:
        def work() -> None:
            self.backend.clear(attempt)
            try:
                self.run.clear(attempt)
            except OSError as error:
                raise MusterError(f"{os.strerror(error.errno or errno.EIO)}: {attempt.folder}") from error

        self._start(("clear", f"{job.task.id}#{attempt.number}"), work)

    def _cleared(self, job: Job, attempt: Attempt, error: MusterError | None) -> None:
        place, name = attempt.agent.place, attempt.agent.name
        *_, failed = self.uncleared[place].pop(name, (None, None, 0))
        if error is not None:
            self.log.event("uncleared", job, attempt, reason=error.message)
            # A half-made agent of a former process: do not begin the same attempt beside it.
            if attempt.outcome is None:
                failure = failures.from_error("launch", error, host=place, t=self.backend.now())
                self._finish(job, Outcome("failed", error.message), failure, clear=False)
                return
            self._leave(job, attempt, failed + 1)
        if job.stage == "clearing":
            self._settle(job)

    def _settle(self, job: Job) -> None:
        if job.attempts and job.last.final:
            self._move(job, "done")
        elif self.stop_reason:
            self._skip(job, self.stopping, self.stop_reason)  # it would have been tried again
        else:
            self._move(job, "retry" if job.not_before > self.backend.now() else "todo")

    def _retry(self, now: float) -> None:
        """Go on with attempts and harvests whose time to be tried again has come."""
        for job in [job for job in self.index.stages["retry"].values() if job.not_before <= now]:
            self._move(job, "todo")
        for job in [job for job in self.index.stages["unharvested"].values() if job.not_before <= now]:
            if job.place in self.silent and now - job.harvest_failed_at <= PATIENCE:
                # A poll shows when its host is back. A harvest before that would only keep a worker busy.
                job.not_before = now + HARVEST_RETRY
            else:
                self._harvest(job)

    def _skip(self, job: Job, outcome: str, reason: str) -> None:
        """Give an outcome to a task that is not tried (again): that of its last attempt if that failed."""
        if outcome == "failed" and job.attempts and job.last.outcome:
            last = (outcome_in(job.last.folder) or job.last.outcome)._replace(final=True)
            job.add(self.log.write(lambda: self.run.end(job.last, last)))
            self._move(job, "done")
            self.log.event("outcome", job, outcome=last.outcome, reason=last.reason or None, final=True)
            return
        outcome = "cancelled" if outcome == "failed" else outcome  # it was never tried
        again = bool(job.attempts) and not job.last.outcome
        number = job.last.number if again else len(job.attempts) + 1
        skipped = Outcome(outcome, reason, True, self.backend.now(), keep_agent=True)

        def write() -> Attempt:
            return self.run.end(self.run.begin(job.task.id, number, AttemptAgent(), job.task.prompt), skipped)

        job.add(self.log.write(write))
        self._move(job, "done")
        self.log.event("outcome", job, outcome=outcome, reason=reason, final=True)

    # What people ask for

    def _obey(self, now: float) -> None:
        """Do what people ask for with Ctrl-C or `muster runs`."""
        interrupts = self.backend.interrupts()
        if interrupts == self.interrupts and 0 <= now - self.control_read < POLL_SECONDS / 2:
            return
        self.interrupts, self.control_read = interrupts, now
        control = self.run.control()
        if control.state == "paused" and not self.paused:
            self.paused = True
            self.log.event("paused", None)
        elif control.state != "paused" and self.paused:
            self.paused = False
            self.log.event("resumed", None)
        if control.state == "stopped":
            self._stop_all("cancelled", "the run was stopped")
        elif interrupts >= 2 and self.stopping != "cancelled":
            self.interrupted, self.stopping = True, "cancelled"
            self.log.event("stopping", None, reason="interrupted; what runs is stopped and harvested")
            for job in list(self.index.stages["running"].values()):
                self._end(job, Action("end", outcome="cancelled", reason="the run was interrupted"))
        elif interrupts == 1 and not self.stopping:
            self.interrupted, self.stopping = True, "drain"
            self.log.event("draining", None, reason="interrupted; once more stops and harvests")
        if control != self.control:
            if control.resumed != self.control.resumed:
                self.governor.lift(self.backend.now())
                self.breaker.lift()
            self.control = control
            limits: dict[str, Any] = {key: value for key in SETTABLE if (value := getattr(control, key))}
            if "max_agents" in limits:
                limits["max_agents"] = max(1, int(limits["max_agents"]))
            self.governor.limits = self.governor.limits._replace(**limits)

    # For the display

    def pace(self, now: float) -> tuple[float, list[tuple[str, float]]]:
        """Return how many tasks per second ended in this process, and the agent that runs longest with its seconds."""
        slowest = sorted(
            ((job.name, now - job.since) for job in self.index.stages["running"].values()), key=lambda one: -one[1]
        )
        return self.ended / max(1.0, now - self.began), slowest[:1]

    @property
    def unfinished(self) -> int:
        return len(self.jobs) - len(self.index.stages["done"])

    def counts(self) -> dict[str, int]:
        """Return how many tasks are in each stage, and how many have each outcome."""
        counts = Counter({stage: len(jobs) for stage, jobs in self.index.stages.items() if jobs and stage != "done"})
        counts.update((job.last.outcome or Outcome()).outcome for job in self.index.stages["done"].values())
        return dict(counts)


def cannot_use(place: str, error: MusterError) -> str:
    """Say why agents cannot run on a host (empty: this machine), given the error of a poll."""
    if isinstance(error, Unreachable):
        return error.message
    reason = error.message.removeprefix("survey: ")  # the script's name means nothing to the user
    return f"{f'host {place}' if place else 'this machine'} cannot be used: {reason}"


def _got_prompt(status: Status) -> bool:
    return any(one.source == "event prompt" for one in status.evidence)
