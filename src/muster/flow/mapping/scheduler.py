"""One agent per task, as many at once as the governor allows, until every task has an outcome.

The scheduler decides and writes down; what takes time (launching, looking, telling, harvesting, clearing) is begun on a field and
taken up when it has ended, so nothing waits for anything else. A killed one is taken up from the run's directory: an agent is written
down before it is made and cleared away only after its outcome is.
"""

from __future__ import annotations

import errno
import itertools
import json
import math
import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from ... import Status
from ...errors import MusterError, Unreachable
from ..limits import failures, settings
from ..limits.breaker import Alert, Breaker
from ..limits.governor import Governor, HostLoad, Spend
from ..limits.limits import span
from ..run.directory import Attempt, Run, outcome_in, write
from ..run.records import GOOD, AttemptAgent, Control, Outcome
from .backend import Ended, Field, Harvest, Key, Sight
from .jobs import ALIVE, WATCHED, Board, Job
from .polling import Turns
from .supervise import Act, Memo, Rules, came_to_its_end, watch

#: A host is looked at this often, and less often where it has many agents or hosts are many: that is what looks cost. Usage is as
#: fresh as the last look, so budgets are checked at least every five seconds.
LOOK_SECONDS, LOOK_MAX = 1.0, 4.2
#: A host without agents is looked at this often while there is something to launch: it may have room by now, or none any more.
LOOK_IDLE = 15.0
#: One that does not answer is looked at less and less often, down to this.
LOOK_SILENT = 60.0
AGENTS_A_SECOND, HOSTS_A_SECOND = 60, 25
#: What all agents spent is added up this often at most, and when one has ended.
SUM_SECONDS = 0.5
#: What has ended within so long is one occasion to decide what comes next; each decision compares all hosts, so of many of them
#: (`TICK_HOSTS` a second) it is longer.
TICK, TICK_MAX, TICK_HOSTS = 0.05, 0.25, 800
#: So long nothing is launched before each host was looked at: the first that answers would get all of them.
FIRST_LOOK = 5.0
#: So many agents are made at once on one host: more of them get in each other's way.
LAUNCHING = 6
#: What governor and breaker know is written down this often while something happens, and this often while nothing does.
SAVE_SECONDS, SAVE_MAX = 10.0, 60.0
#: A host that does not answer for so long has lost its agents.
PATIENCE = 600.0
HARVEST_AGAIN = 15.0
#: So often an agent that cannot be cleared away is tried again.
CLEAR_TRIES = 3
#: A loop that was away for so long beyond what it meant to was stopped, or its machine slept: that is nobody's silence.
AWAY_SECONDS = 30.0
#: A full disk is waited for, so long.
FULL_SECONDS, FULL_PATIENCE = 1.0, 600.0
#: That nothing is launched is said when it has been so for so long, and then when the reason is another.
HELD_SECONDS = 10.0
#: What the outcomes that say nothing themselves are called among failures.
REASONS = {"stalled": "stall", "timeout": "timeout", "invalid": "bad-result", "lost": "lost"}
#: Outcomes that say nothing of the agent: it was ended from here.
ENDED_BY_US = frozenset({"over-budget", "cancelled"})
#: Outcomes after which another try may help; of the rest somebody said that it is over.
AGAIN = frozenset({"failed", "invalid", "timeout", "stalled", "lost"})

#: Why an agent is lost that never was at work: whoever made it, or took it away again for that, was killed.
HALF_MADE = ("create was interrupted", "never started", "destroy was interrupted")

#: One from before has this long to take up its task; then its first message was never sent, by whoever was killed.
TOLD_SECONDS = 20.0

#: How a command ended that could not be run at all: another try cannot either.
NO_PROGRAM = re.compile("exit 12[67]\\b")

#: Limits that another process may set while a run goes on.
SETTABLE = ("max_agents", "dollars", "tokens", "launch_rate")

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})

T = TypeVar("T")
Say = Callable[[dict[str, Any]], None]


class Plan(NamedTuple):
    """How a run is done."""

    places: tuple[str, ...] = ("",)
    rules: Rules = Rules(False)
    retries: int = 1
    only: frozenset[str] | None = None
    """The tasks that are done, by their ids; None: all."""
    reopen: bool = False
    """Tasks that were stopped, or for which there was no budget, are taken up again."""
    proven: bool = False
    """The first message is typed, and an event proves that it was taken: who has none was never told its task."""


class Scheduler:
    def __init__(
        self,
        run: Run,
        plan: Plan,
        governor: Governor,
        breaker: Breaker,
        field: Field,
        say: Say,
        chance: Callable[[], float],
    ) -> None:
        self.run, self.plan, self.governor, self.breaker = run, plan, governor, breaker
        self.places = frozenset(plan.places)
        self.field, self.say, self.chance = field, say, chance
        tasks = run.tasks()
        self.jobs = {
            task.id: Job(task, run.attempts(task.id)) for task in tasks if plan.only is None or task.id in plan.only
        }
        self.board = Board()
        self.left: dict[str, dict[str, tuple[Job, Attempt, int]]] = defaultdict(dict)
        """Agents that there may still be of attempts that have their outcome, by place and name, and how often each could not be
        cleared away: the next look tells whether there is one."""
        self.given_up: dict[str, dict[str, tuple[Job, Attempt]]] = defaultdict(dict)
        """Those of them that nobody waits for any more, on hosts that may come back."""
        self.turns = Turns(LOOK_SECONDS / 10)
        self.silent: dict[str, float] = {}
        self.problems: dict[str, str] = {}
        """Why the last look at each of these hosts failed, in words."""
        self.loads: dict[str, HostLoad] = {}
        self.used = Spend()
        """Of the attempts that are over."""
        self.flying = settings.Sum()
        """Of those that are not, by task."""
        self.total = Spend()
        """Together."""
        self.paused = self.interrupted = False
        self.stopping = ""
        """Empty, `drain`, or the outcome with which everything is ended."""
        self.why = ""
        self.wished = Control(resumed=run.control().resumed)
        self.alerted: set[str] = set()
        self.asked = 0
        self.saved = self.summed = self.heeded = 0.0
        self.noted = False
        """Something has happened since what is known was written down."""
        self.held: tuple[float, str] = (math.inf, "")
        """Since when nothing is launched and nobody is at work, and why, as it was last told."""
        self.unsettled = True
        """It is not known yet what agents from before have spent since."""
        self.begun = 0
        """Attempts that had or have an agent, whoever began them."""
        self._busy: set[Key] = set()
        self._at_hand = 0
        """Of these all but looks."""
        self.began, self.ended = field.now(), 0
        for job in self.jobs.values():
            self._adopt(job)
        for task in tasks:
            if task.id not in self.jobs:  # what the others cost counts all the same
                for attempt in run.attempts(task.id):
                    self.begun += bool(attempt.agent.name)
                    self._count(Job(task, []), attempt.outcome or Outcome())
        for pause in breaker.pauses.values():
            if pause.flying not in self.board.stages["found"]:
                breaker.withdrawn(self.began, pause.flying)  # nobody else would tell of its end

    def _adopt(self, job: Job) -> None:
        """What is known from before: whether an attempt without an outcome has an agent, the first look tells."""
        self.board.stages["todo"][job.task.id] = job
        for attempt in job.tries:
            self.begun += bool(attempt.agent.name)
            if attempt.outcome:
                self._count(job, attempt.outcome)
                if attempt.agent.name and not attempt.cleared:
                    self.left[attempt.agent.place][attempt.agent.name] = job, attempt, 0
        if job.tries and not job.last.outcome:
            self._move(job, "found")
        elif job.tries and (ended := job.last.outcome):
            if ended.final and not (self.plan.reopen and ended.outcome in ENDED_BY_US):
                self._move(job, "over")
            elif ended.retry_at is not None and ended.retry_at > self.began:
                job.not_before = min(ended.retry_at, self.began + failures.LONGEST_WAIT)
                self._move(job, "later")

    def _move(self, job: Job, stage: str) -> None:
        self.board.move(job, stage)
        if stage in WATCHED:
            self._turn(job.place)

    # The loop

    def go(self) -> bool:
        """Until all tasks have an outcome (True), or somebody asked for an end before that."""
        first = self.plan.places if self.board.stages["todo"] else ()
        for place in sorted(
            {
                *first,
                *(place for place, some in self.left.items() if some),
                *(place for place, jobs in self.board.watched.items() if jobs),
            }
        ):
            self._look(place)
        tick = min(max(TICK, len(self.plan.places) / TICK_HOSTS), TICK_MAX)
        pause, decided, woke = 0.0, -math.inf, self.field.now()
        while not self._over():
            found = self.field.done(pause)
            now = self.field.now()
            if now - woke > pause + AWAY_SECONDS:
                self._was_away(now - woke - pause)
            woke = now
            for ended in found:
                self._took(ended)
            if 0 < (wait := decided + tick - now) <= tick:
                pause = wait
                continue
            decided = now
            self._heed(now)
            if now >= self.turns.due:
                self._look_around(now)
            self._again(now)
            self._launch(now)
            if now - self.saved > (SAVE_SECONDS if self.noted else SAVE_MAX):
                self._save(now)
            pause = self._pause(now)
        self._sum()  # of those that ended last, for the day's budget
        self._save(self.field.now())
        return not self.unfinished

    def _was_away(self, seconds: float) -> None:
        """Nobody was silent for these seconds: nobody looked."""
        self.silent = {place: since + seconds for place, since in self.silent.items()}
        for job in self.board.stages["running"].values():
            job.memo = job.memo._replace(active=job.memo.active + seconds)
        for job in self.board.stages["ending"].values():
            job.unharvested += seconds

    def _look_around(self, now: float) -> None:
        for place in self.turns.take(now):
            if self._looked_at(place):
                self._look(place)

    def _looked_at(self, place: str) -> bool:
        """Whether there is anything to see."""
        return bool(self._peopled(place) or (self.board.stages["todo"] and place in self.places))

    def _peopled(self, place: str) -> bool:
        return bool(self.board.watched[place] or self.left[place] or place in self.silent)

    def _turn(self, place: str) -> None:
        """It is to be looked at; one that is being looked at has its turn again when that has ended."""
        if ("look", place) not in self._busy:
            self.turns.want(place, self._every(place))

    def _over(self) -> bool:
        if self.asked >= 3:
            return True  # whoever asks a third time does not wait for a host that does not answer
        if self.unfinished and not (self.stopping and not any(self.board.stages[stage] for stage in ALIVE)):
            return False
        # What is left is cleared away first.
        return not any(self.left.values()) and not any(kind == "clear" for kind, _ in self._busy)

    def _pause(self, now: float) -> float:
        moments = [self.turns.due]
        moments += [
            job.not_before for job in (*self.board.stages["later"].values(), *self.board.stages["ending"].values())
        ]
        if (at := self.governor.next(now)) is not None:
            moments.append(at)
        return min(max(min(moments) - now, TICK), 1.0)

    def _every(self, place: str) -> float:
        """So many seconds are between two looks at a host."""
        if place in self.silent:  # each look at it takes long, and keeps others waiting where many are silent
            return min(max(LOOK_SECONDS, (self.field.now() - self.silent[place]) / 4), LOOK_SILENT)
        if not self._peopled(place) and (self.held[0] == math.inf or not self.board.stages["todo"]):
            return LOOK_IDLE
        every = max(
            LOOK_SECONDS, len(self.board.watched[place]) / AGENTS_A_SECOND, len(self.turns.looked) / HOSTS_A_SECOND
        )
        return min(every, LOOK_MAX)

    def _look(self, place: str) -> None:
        self.turns.looked[place] = self.field.now()
        if ("look", place) not in self._busy:
            self._begin(("look", place), lambda: self.field.look(place))

    def _begin(self, key: Key, work: Callable[[], object]) -> None:
        self._busy.add(key)
        self._at_hand += key[0] != "look"
        self.field.begin(key, work)

    def _took(self, ended: Ended) -> None:
        kind, what = ended.item
        self._busy.discard(ended.item)
        self._at_hand -= kind != "look"
        if kind == "look":
            self._saw(str(what), ended)
            if self._looked_at(what):
                self._turn(what)
            return
        name, _, number = str(what).partition("#")
        job = self.jobs[name]
        if kind == "launch":
            self._launched(job, ended.error)
        elif kind == "tell":
            job.memo = job.memo._replace(active=self.field.now())  # what was seen until now is from before
            if ended.error is not None:
                self._note("untold", job, reason=ended.error.message)
        elif kind == "harvest":
            self._harvested(job, ended)
        elif kind == "clear":
            self._cleared(job, job.tries[int(number) - 1], ended.error)

    # Looking

    def _saw(self, place: str, ended: Ended) -> None:
        now, began = self.field.now(), self.turns.looked[place]
        jobs = list(self.board.watched[place].values())
        if ended.error is not None:
            self.problems[place] = cannot_use(place, ended.error)
            if now - self.silent.setdefault(place, now) > PATIENCE:
                words = self.problems[place]
                for job in jobs:
                    job.act = Act("end", outcome="lost", reason=words)
                    self._harvested(job, ended)  # it would not answer that either
            if now - self.silent[place] > PATIENCE or self.stopping == "cancelled":
                for name in list(self.left[place]):
                    self._abandon(place, name, ended.error.message)
            return
        self.silent.pop(place, None)
        sight: Sight = ended.value
        # What launching keeps busy is free again as soon as that is done.
        name, cores, busy, memory, disk, *_ = sight.load
        busy = None if busy is None else max(0.0, busy - self.board.launching[place])
        self.loads[place] = HostLoad(name, cores, busy, memory, disk, self.board.alive[place], True, began)
        for job in jobs:
            status = sight.agents.get(job.name)
            if job.name in sight.bills:
                self._spent(job, settings.used(*sight.bills[job.name]))
            if job.stage == "found":
                self._found(job, status)
            else:
                self._watch(job, status, now)
        for name, (job, attempt) in self.given_up.pop(place, {}).items():
            if name in sight.agents:
                self._leave(job, attempt, 0)
                if not self._waits_for(job, attempt, sight.agents[name]):
                    why = f"{place} answers again; nobody waits for {name} any more, and it is ended"
                    self._note("returned", job, attempt, reason=why)
        for name, (job, attempt, tries) in list(self.left[place].items()):
            if ("clear", f"{job.task.id}#{attempt.number}") in self._busy:
                continue
            status = sight.agents.get(name)
            if status is not None:
                self._late(job, attempt, settings.used(*sight.bills.get(name, (None, None))))
            if status is not None and self._waits_for(job, attempt, status):
                self._take_up(job, attempt, status)
            elif tries >= CLEAR_TRIES:
                self._abandon(place, name, f"{tries} times it could not be cleared away")
            else:
                self._clear(job, attempt)
        self._spend(now)

    def _waits_for(self, job: Job, attempt: Attempt, status: Status) -> bool:
        """Whether an agent that was given up because its host was silent is still the one that has the task."""
        return (
            attempt.outcome is not None
            and attempt.outcome.host_silent
            and status.state not in ("lost", "stopped")
            and job.last.number == attempt.number
            and job.stage in ("over", "later", "todo")
        )

    def _take_up(self, job: Job, attempt: Attempt, status: Status) -> None:
        """Its host is back: what it does, or has done meanwhile, counts as if it had never been away."""
        now, ended = self.field.now(), outcome_in(attempt.folder) or attempt.outcome or Outcome()
        del self.left[job.place][job.name]
        job.spent = settings.used(ended.cost_usd, ended.tokens)
        less = Spend(None if job.spent.dollars is None else -job.spent.dollars, -(job.spent.tokens or 0))
        self.used = settings.add(self.used, less)
        job.before = settings.add(job.before, less._replace(seconds=-(ended.seconds or 0.0)))
        self.flying.put(job.task.id, job.spent)
        self.ended -= ended.final
        job.tried(self._kept(lambda: self.run.reopen(attempt)))
        job.memo, job.since = Memo(now, active=now), status.agent.created
        self._move(job, "running")
        self._note("returned", job, reason=f"{job.place} answers again, and {job.name} is taken up")

    def _abandon(self, place: str, name: str, why: str) -> None:
        """An agent that there may still be, and that only a person can end now."""
        job, attempt, tries = self.left[place].pop(name)
        if tries < CLEAR_TRIES:
            self.given_up[place][name] = job, attempt
        address = attempt.agent.address
        self._note(
            "left", job, attempt, reason=f"{address} may still be there ({why}); muster destroy {address} ends it"
        )

    def _found(self, job: Job, status: Status | None) -> None:
        """An attempt that was begun by a process that is gone: its agent goes on, or there never was one."""
        now = self.field.now()
        untold = status is not None and self.plan.proven and job.task.prompt and not _was_told(status)
        job.since = job.since or now
        if status is None:
            self.breaker.withdrawn(now, job.task.id)
            self._move(job, "todo")
            if self.why:
                self._skip(job, self.stopping, self.why)
        elif untold and now - job.since < TOLD_SECONDS and not self.stopping:
            pass  # the next look
        elif untold or (status.state == "lost" and status.reason in HALF_MADE):
            self.breaker.withdrawn(now, job.task.id)
            self._move(job, "clearing")
            self._clear(job, job.last)
        else:
            job.memo, job.since = Memo(now, active=now), status.agent.created
            self._move(job, "running")
            self._note("adopted", job)

    def _watch(self, job: Job, status: Status | None, now: float) -> None:
        if ("tell", f"{job.task.id}#{job.last.number}") in self._busy:
            return  # it does not know yet what it is to answer for
        act, job.memo = watch(status, job.memo, now, self.plan.rules)
        if act.limited:
            self._pressed(job, now, act.limited, act.until)
        if act.what in ("tell", "answer"):
            self._note("told", job, text=act.text[:200])
            attempt = job.last
            key = ("tell", f"{job.task.id}#{attempt.number}")
            self._begin(key, lambda: self.field.tell(attempt, act.text, act.what == "answer"))
        elif act.what == "ask":
            self._note("question", job, reason=act.text)
            self.field.alert("question", f"{job.last.agent.address} asks: {act.text}")
        elif act.what == "end":
            self._end(job, act)
        elif self.stopping in ("cancelled", "over-budget", "failed"):
            self._end(job, Act("end", outcome=self.stopping, reason="the run was stopped"))

    def _pressed(self, job: Job, now: float, kind: str, until: float | None) -> None:
        if self.governor.pressure(now, kind, until):
            at_once = self.governor.window
            self._note("slowed", job, reason=f"{self.governor.why(now)}; then {at_once} at once", at_once=at_once)

    # Money

    def _spent(self, job: Job, spend: Spend) -> None:
        """What was once seen to be spent stays so, whatever is seen later."""
        if spend != job.spent:
            dollars = None if spend.dollars is None else max(spend.dollars, job.spent.dollars or 0.0)
            job.spent = Spend(dollars, max(spend.tokens or 0, job.spent.tokens or 0))
            self.flying.put(job.task.id, job.spent)

    def _count(self, job: Job, outcome: Outcome) -> None:
        self.flying.put(job.task.id, None)
        used = settings.used(outcome.cost_usd, outcome.tokens)
        self.used = settings.add(self.used, used)
        job.before = settings.add(job.before, used._replace(seconds=outcome.seconds or 0))
        self.summed = 0.0

    def _late(self, job: Job, attempt: Attempt, spend: Spend) -> None:
        """What an agent has come to since its attempt was given up counts as that attempt's."""
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
        late = ended._replace(cost_usd=cost, tokens=(before.tokens or 0) + tokens)
        self._kept(lambda: self.run.end(attempt, late))
        self.used = settings.add(self.used, Spend(dollars, tokens))
        job.before = settings.add(job.before, Spend(dollars, tokens))
        self.summed = 0.0

    def _spend(self, now: float) -> None:
        """Fresh totals, and what follows from them: over budget means stop and harvest."""
        if 0 <= now - self.summed < SUM_SECONDS:
            return
        self.summed = now
        limits, tasks = self.governor.limits, {}
        if limits.task_dollars or limits.task_tokens or limits.task_seconds:
            tasks = {
                name: settings.add(job.before, job.spent._replace(seconds=now - job.since))
                for stage in ("running", "ending", "harvesting")
                for name, job in self.board.stages[stage].items()
            }
        day, today = self._sum()
        self.governor.spent(now, self.total, agents=self.begun, day=day, today=today, tasks=tasks)
        if self.unsettled and not self.board.stages["found"]:
            self.unsettled = False
            self.governor.progress(now)  # what was spent while nobody looked brought results, or it will be seen
        for breach in self.governor.over(now):
            if breach.scope == "task":
                if job := self.board.stages["running"].get(breach.task):
                    self._end(job, Act("end", outcome="over-budget", reason=breach.words))
            elif breach.scope == "progress":
                if not self.unsettled:
                    self._alert("money", breach.unit, breach.words)
            else:
                self._stop_all("over-budget", breach.words)

    def _sum(self) -> settings.Today:
        """What the run has spent, written down as a part of what the day has."""
        self.total = settings.add(self.used, self.flying.total())
        seconds = self.governor.seconds(self.field.now())
        return self._kept(lambda: self.field.today(self.total._replace(seconds=seconds, agents=self.begun)))

    def _stop_all(self, outcome: str, reason: str) -> None:
        """Nothing more is launched, and what runs is harvested and ended."""
        if self.stopping != outcome:
            self.stopping, self.why = outcome, reason
            self._note("stopping", None, reason=reason)
            if outcome != "cancelled":
                self.field.alert(outcome, reason)
        for job in list(self.board.stages["running"].values()):
            self._end(job, Act("end", outcome=outcome, reason=reason))
        for job in [*self.board.stages["todo"].values(), *self.board.stages["later"].values()]:
            self._skip(job, outcome, reason)

    def _alert(self, cause: str, about: str, words: str) -> None:
        """Once of each thing, until there is progress."""
        if about not in self.alerted:
            self.alerted.add(about)
            self._note("alert", None, reason=words)
            self.field.alert(cause, words)

    # Beginning

    def _launch(self, now: float) -> None:
        if self.paused or self.stopping:
            return
        if not self.board.stages["todo"]:
            if self.board.stages["later"] and not self.board.living:
                soonest = min(job.not_before for job in self.board.stages["later"].values())
                self._held(now, f"all that is left waits to be tried again: in {span(soonest - now)}")
            return
        if now - self.began < FIRST_LOOK and any(
            ("look", p) in self._busy and p not in self.loads for p in self.plan.places
        ):
            return
        self._spend(now)  # also of those that have ended since the last look
        if self.stopping:
            return
        running = self.board.living
        if not self.governor.may(now, len(self.board.stages["todo"]), running) and running:
            return
        there = [place for place in self.plan.places if place not in self.silent] if self.silent else self.plan.places
        if not there and not running:
            nobody = f"no host can be used: {'; '.join(self.problems[place] for place in self.plan.places)}"
            self._held(now, nobody)
            if all(now - self.silent[place] > PATIENCE for place in self.plan.places):
                self._stop_all("lost", nobody)
            return
        good = self.breaker.allowed(there)
        if self.breaker.pauses and (why := self.breaker.hopeless(self._hoped(now))):
            if not running:
                self._stop_all("failed", why)
            return
        self._canary(now, there, running)
        if not good:
            return
        running = self.board.living
        hosts = [self._load(place) for place in good if self.board.launching[place] < LAUNCHING]
        spare = sum(max(0, LAUNCHING - self.board.launching[place]) for place in good)
        # One that would have to wait for a free hand is decided on when there is one: limits are known better by then.
        wanted = min(len(self.board.stages["todo"]), spare, max(0, self.field.hands - self._at_hand))
        rooms = self.governor.room(now, wanted, running, hosts)
        self._held(now, "" if rooms or running else self.governor.why(now))
        if not rooms and not running:
            # Nobody is left who could make a difference: what holds the next one back holds it for ever.
            stuck = self.governor.closed(now) + [one for one in self.governor.over(now) if one.scope == "progress"]
            if stuck:
                self._stop_all("over-budget", stuck[0].words)
        todo = list(itertools.islice(self.board.stages["todo"].values(), len(rooms)))
        for place, job in zip(rooms, todo, strict=False):
            self._begin_attempt(job, place, now)

    def _hoped(self, now: float) -> list[str]:
        """Hosts that are not given up: one that did not answer just now is not."""
        return [place for place in self.plan.places if now - self.silent.get(place, now) <= PATIENCE]

    def _held(self, now: float, why: str) -> None:
        """A run in which nothing happens says why, and looks whether there is room again."""
        since, told = self.held
        if not why:
            self.held = math.inf, ""
            return
        for place in self.plan.places if self.board.stages["todo"] else ():
            self._turn(place)
        if now - since < HELD_SECONDS or (kind := why.partition(":")[0]) == told:
            self.held = min(since, now), told
        else:
            self.held = since, kind
            self._note("held", None, reason=why)

    def _canary(self, now: float, places: Sequence[str], running: int) -> None:
        """Where too much failed, one task finds out whether it still does."""
        job = next(iter(self.board.stages["todo"].values()))
        where = self.breaker.canary(now, job.task.id, places)
        if not where:
            return
        rooms = self.governor.room(now, 1, running, [self._load(place) for place in where])
        if rooms:
            self._note("canary", job)
            self._begin_attempt(job, rooms[0], now)
        else:
            self.breaker.withdrawn(now, job.task.id)

    def _load(self, place: str) -> HostLoad:
        load, running = self.loads.get(place), self.board.alive[place]
        if load is None or load.running != running:
            load = self.loads[place] = (load or HostLoad(place))._replace(running=running)
        return load

    def _begin_attempt(self, job: Job, place: str, now: float) -> None:
        again = bool(job.tries) and not job.last.outcome  # begun, and no agent came of it
        number = job.last.number if again else len(job.tries) + 1
        self.begun += not again
        name = f"{self.run.name}-{job.task.number:04d}" + (f"-{number}" if number > 1 else "")
        agent = AttemptAgent(name, place, f"{name}@{place}" if place else name, now)
        attempt = self._kept(lambda: self.run.begin(job.task.id, number, agent, job.task.prompt))
        job.tried(attempt)
        job.since, job.memo = now, Memo(now, active=now)
        job.spent = Spend()
        self.flying.put(job.task.id, None)
        self._move(job, "launching")
        self._note("launch", job)
        self._begin(("launch", job.task.id), lambda: self.field.launch(job.task, attempt))

    def _launched(self, job: Job, error: MusterError | None) -> None:
        now = self.field.now()
        if error is None:
            job.memo = Memo(now, active=now)
            self._move(job, "running")
            self.governor.went_well(now)
            self._tell_people(self.breaker.succeeded(job.place, now, job.task.id, "launch"))
            return
        failure = failures.from_error("launch", error, host=job.place, t=now, own=(job.name, job.task.item))
        self._finish(job, Outcome("failed", error.message), failure, made=False)

    # Ending

    def _end(self, job: Job, act: Act) -> None:
        job.act = act
        self._harvest(job)

    def _harvest(self, job: Job) -> None:
        self._move(job, "harvesting")
        attempt = job.last
        self._begin(("harvest", job.task.id), lambda: self.field.harvest(job.task, attempt))

    def _harvested(self, job: Job, ended: Ended) -> None:
        now, act = self.field.now(), job.act
        if ended.error is not None:
            # Its host does not answer: nothing is given up before it does, or is given up itself.
            self._note("unharvested", job, reason=ended.error.message)
            job.unharvested = job.unharvested or now
            if act.outcome != "lost" and now - job.unharvested <= PATIENCE:
                job.not_before = now + HARVEST_AGAIN
                self._move(job, "ending")
                return
            outcome = Outcome(harvest_errors=(ended.error.message,), keep_agent=True)
            outcome = outcome._replace(host_silent=job.place in self.silent)
        else:
            harvest: Harvest = ended.value
            outcome = harvest.outcome
            if harvest.status is not None and act.outcome in ENDED_BY_US:
                act = came_to_its_end(harvest.status, job.memo, self.plan.rules) or act
        job.unharvested = 0.0
        # What could be seen of its usage while it was there.
        if job.spent.dollars and job.spent.dollars > (outcome.cost_usd or 0):
            outcome = outcome._replace(cost_usd=job.spent.dollars)
        if job.spent.tokens and job.spent.tokens > (outcome.tokens or 0):
            outcome = outcome._replace(tokens=job.spent.tokens)
        outcome = outcome._replace(outcome=act.outcome, reason=act.reason, seconds=now - job.since)
        failure = None
        if act.outcome not in GOOD | ENDED_BY_US:
            stage = "result" if act.outcome == "invalid" else "work"
            reason = REASONS.get(act.outcome, "")
            own = (job.name, job.task.item)
            reason = "claimed" if act.claimed else "not-installed" if NO_PROGRAM.match(act.reason) else reason
            failure = failures.classify(stage, act.reason, reason=reason, host=job.place, t=now, own=own)
        self._finish(job, outcome, failure, made=job.place not in self.silent)

    def _finish(self, job: Job, outcome: Outcome, failure: failures.Failure | None, made: bool = True) -> None:
        """The outcome is written down; only then is the agent cleared away. One that could not be `made`, or that is out of reach,
        may still be there: a look tells."""
        now = self.field.now()
        wait = None
        if failure is not None:
            outcome = outcome._replace(failure=failure.to_json(), uses_retry=failure.counts)
            before = [one.outcome for one in job.tries[:-1] if one.outcome]
            before = [ended for ended in before if ended.outcome not in ENDED_BY_US]
            counted = failure.counts + sum(ended.uses_retry for ended in before)
            # Ctrl-C ends the process, not the run: what is to be tried again still is.
            goes_on = not self.stopping or self.interrupted
            if counted <= self.plan.retries and goes_on and outcome.outcome in AGAIN:
                wait = failures.retry_after(failure, len(before) + 1, self.chance())
        good = outcome.good
        if good:
            self.alerted.clear()
        self._learn(job, failure, good, now)
        cost = Spend(outcome.cost_usd, outcome.tokens, outcome.seconds)
        self.governor.ended(now, cost, progress=good)
        # Of an end that a person asked for with Ctrl-C the same command takes up the rest.
        final = wait is None and not (self.interrupted and outcome.outcome == "cancelled")
        outcome = outcome._replace(final=final, t=now, retry_at=None if wait is None else now + wait)
        job.tried(self._kept(lambda: self.run.end(job.last, outcome)))
        self._count(job, outcome)
        self._note("outcome", job, outcome=outcome.outcome, reason=outcome.reason or None, final=final)
        self.ended += final
        job.not_before = now + (wait or 0.0)
        if made:
            self._move(job, "clearing")
            self._clear(job, job.last)
        else:
            self._leave(job, job.last, 0)
            self._settle(job)

    def _leave(self, job: Job, attempt: Attempt, tries: int) -> None:
        """Let the next look at its host find out whether there is an agent of an attempt that is over."""
        self.left[attempt.agent.place][attempt.agent.name] = job, attempt, tries
        self._turn(attempt.agent.place)

    def _learn(self, job: Job, failure: failures.Failure | None, good: bool, now: float) -> None:
        """What an end says of the host, the limits and the work as a whole; one that we made says nothing."""
        if failure is None:
            alert = self.breaker.succeeded(job.place, now, job.task.id) if good else None
            self._tell_people(alert or self.breaker.withdrawn(now, job.task.id))
            return
        if failure.kind in ("rate-limit", "overload", "quota"):
            self._pressed(job, now, failure.kind, failure.until or None)
        self._tell_people(self.breaker.failed(failure, now, job.task.id))

    def _tell_people(self, alert: Alert | None) -> None:
        if alert:
            self._note("alert", None, reason=alert.text, cause=alert.cause, breaker=alert.state)
            self.field.alert(alert.cause, alert.text)

    def _clear(self, job: Job, attempt: Attempt) -> None:
        def work() -> None:
            self.field.clear(attempt)
            try:
                self.run.clear(attempt)
            except OSError as error:
                raise MusterError(f"{os.strerror(error.errno or errno.EIO)}: {attempt.folder}") from error

        self._begin(("clear", f"{job.task.id}#{attempt.number}"), work)

    def _cleared(self, job: Job, attempt: Attempt, error: MusterError | None) -> None:
        place, name = attempt.agent.place, attempt.agent.name
        *_, tries = self.left[place].pop(name, (None, None, 0))
        if error is not None:
            self._note("uncleared", job, attempt, reason=error.message)
            # Half made by a process that is gone: the same attempt is not begun again beside it.
            if attempt.outcome is None:
                failure = failures.from_error("launch", error, host=place, t=self.field.now())
                self._finish(job, Outcome("failed", error.message), failure, made=False)
                return
            self._leave(job, attempt, tries + 1)
        if job.stage == "clearing":
            self._settle(job)

    def _settle(self, job: Job) -> None:
        if job.tries and job.last.final:
            self._move(job, "over")
        elif self.why:
            self._skip(job, self.stopping, self.why)  # it was to be tried again, and nothing more is
        else:
            self._move(job, "later" if job.not_before > self.field.now() else "todo")

    def _again(self, now: float) -> None:
        for job in [job for job in self.board.stages["later"].values() if job.not_before <= now]:
            self._move(job, "todo")
        for job in [job for job in self.board.stages["ending"].values() if job.not_before <= now]:
            if job.place in self.silent and now - job.unharvested <= PATIENCE:
                job.not_before = (
                    now + HARVEST_AGAIN
                )  # a look tells when its host is back; until then it would keep a hand busy
            else:
                self._harvest(job)

    def _skip(self, job: Job, outcome: str, reason: str) -> None:
        """A task that is not begun (again): it has its outcome all the same, which is that of its last attempt where that failed."""
        if outcome == "failed" and job.tries and job.last.outcome:
            last = (outcome_in(job.last.folder) or job.last.outcome)._replace(final=True)
            job.tried(self._kept(lambda: self.run.end(job.last, last)))
            self._move(job, "over")
            self._note("outcome", job, outcome=last.outcome, reason=last.reason or None, final=True)
            return
        outcome = "cancelled" if outcome == "failed" else outcome  # nobody has tried it
        again = bool(job.tries) and not job.last.outcome
        number = job.last.number if again else len(job.tries) + 1
        skipped = Outcome(outcome, reason, True, self.field.now(), keep_agent=True)

        def write() -> Attempt:
            return self.run.end(self.run.begin(job.task.id, number, AttemptAgent(), job.task.prompt), skipped)

        job.tried(self._kept(write))
        self._move(job, "over")
        self._note("outcome", job, outcome=outcome, reason=reason, final=True)

    # What people ask for

    def _heed(self, now: float) -> None:
        """What people want: by Ctrl-C, or with `muster runs`."""
        asked = self.field.asked()
        if asked == self.asked and 0 <= now - self.heeded < LOOK_SECONDS / 2:
            return
        self.asked, self.heeded = asked, now
        wish = self.run.control()
        state = wish.state
        if state == "paused" and not self.paused:
            self.paused = True
            self._note("paused", None)
        elif state != "paused" and self.paused:
            self.paused = False
            self._note("resumed", None)
        if state == "stopped":
            self._stop_all("cancelled", "the run was stopped")
        elif asked >= 2 and self.stopping != "cancelled":
            self.interrupted, self.stopping = True, "cancelled"
            self._note("stopping", None, reason="interrupted; what runs is stopped and harvested")
            for job in list(self.board.stages["running"].values()):
                self._end(job, Act("end", outcome="cancelled", reason="the run was interrupted"))
        elif asked == 1 and not self.stopping:
            self.interrupted, self.stopping = True, "drain"
            self._note("draining", None, reason="interrupted; once more stops and harvests")
        if wish != self.wished:
            if wish.resumed != self.wished.resumed:
                self.governor.lift(self.field.now())
                self.breaker.lift()
            self.wished = wish
            limits: dict[str, Any] = {key: value for key in SETTABLE if (value := getattr(wish, key))}
            if "max_agents" in limits:
                limits["max_agents"] = max(1, int(limits["max_agents"]))
            self.governor.limits = self.governor.limits._replace(**limits)

    # What others see

    def _note(self, kind: str, job: Job | None, attempt: Attempt | None = None, **fields: Any) -> None:
        """It is about the job's last attempt, where no other is named."""
        about: dict[str, Any] = {}
        if job is not None:
            attempt = attempt or (job.last if job.tries else None)
            about = {"task": job.task.id, "attempt": attempt.number if attempt else 0}
            about["agent"] = attempt.agent.address or None if attempt else None
        self.noted = True
        self.say(self._kept(lambda: self.run.event(kind, self.field.now(), **about, **fields)))

    def _kept(self, write: Callable[[], T]) -> T:
        """Something is written down. A disk that is full is waited for: agents come and go, and with them what fills it."""
        began = 0.0
        while True:
            try:
                return write()
            except OSError as error:
                now = self.field.now()
                began = began or now
                if error.errno not in FULL or now - began > FULL_PATIENCE or self.field.asked() >= 2:
                    raise
                if "disk" not in self.alerted:
                    self.alerted.add("disk")
                    words = f"the disk is full: {self.run.folder} cannot be written; the run waits until there is room"
                    self.field.alert("disk", words)
                self.field.rest(FULL_SECONDS)

    def _save(self, now: float) -> None:
        self.saved, self.noted = now, False
        state = {"governor": self.governor.to_json(now), "breaker": self.breaker.to_json()}
        self._kept(lambda: write(self.run.path("state.json"), json.dumps(state).encode(), sync=False))

    def pace(self, now: float) -> tuple[float, list[tuple[str, float]]]:
        """How many tasks a second came to their end in this process, and those that run longest, with their seconds."""
        slow = sorted(
            ((job.name, now - job.since) for job in self.board.stages["running"].values()), key=lambda one: -one[1]
        )
        return self.ended / max(1.0, now - self.began), slow[:1]

    @property
    def unfinished(self) -> int:
        return len(self.jobs) - len(self.board.stages["over"])

    def counts(self) -> dict[str, int]:
        """How many tasks are where, for the display."""
        found = Counter({stage: len(jobs) for stage, jobs in self.board.stages.items() if jobs and stage != "over"})
        found.update((job.last.outcome or Outcome()).outcome for job in self.board.stages["over"].values())
        return dict(found)


def cannot_use(place: str, error: MusterError) -> str:
    """Say why agents cannot run on a host (empty: this machine), given what a look at it raised."""
    if isinstance(error, Unreachable):
        return error.message
    reason = error.message.removeprefix("survey: ")  # the script's name means nothing to the user
    return f"{f'host {place}' if place else 'this machine'} cannot be used: {reason}"


def _was_told(status: Status) -> bool:
    """Whether it ever took a message."""
    return any(one.source == "event prompt" for one in status.evidence)
