"""A backend without machines: hosts, agents, latencies, failures, limits and quota windows, on a clock that jumps to what happens next.

The scheduler, the governor and the run's directory are the real ones; only time and the agents are made up. `simhosts` makes up less.
"""

from __future__ import annotations

import heapq
import itertools
import json
import os
import random
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple

from muster import Agent, Status
from muster.errors import MusterError, Unreachable
from muster.flow.limits.governor import HostLoad, Spend
from muster.flow.limits.settings import Today
from muster.flow.mapping.backend import Harvest, HostView, Key
from muster.flow.run.directory import Attempt
from muster.flow.run.records import Outcome
from muster.flow.run.tasks import Task

GB = 1 << 30
#: Where the directories of large simulated runs are made: what they take is the scheduler's time and not the disk's.
IN_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
RESULT = json.dumps(
    {"version": 1, "outcome": "ok", "summary": "done", "reason": "", "escalate": [], "artifacts": [], "t": 1}
)


class Completed(NamedTuple):
    item: Any
    value: Any = None
    error: MusterError | None = None


class One:
    """An agent: how long it works, how it ends, what it costs by then."""

    def __init__(self, begun: float, works: float, end: str, dollars: float) -> None:
        self.begun, self.works, self.end, self.dollars = begun, works, end, dollars
        self.agent: Agent | None = None
        self.limited = 0.0
        self.told = 0
        self.heard = float("inf")


class World(NamedTuple):
    """What is made up, and how often."""

    hosts: int = 1
    seed: int = 1
    works: tuple[float, float] = (60.0, 600.0)
    dollars: tuple[float, float] = (0.1, 1.0)
    priced: bool = True
    spent_today: float = 0.0
    """By other runs."""
    dead: tuple[tuple[str, float], ...] = ()
    """Hosts that answer no more after so many seconds."""
    full: tuple[str, ...] = ()
    """Hosts on which nothing can be launched."""
    cut: float = 0.0
    """How many of the launches go well there and are not heard of here."""
    stuck: int = 0
    """So often nothing can be cleared away."""
    ends: tuple[tuple[str, float], ...] = (("ok", 1.0),)
    """`ok`, `failed`, `hang`, `silent` (its turn ends without a result), `forgets` (the same, until it is told), `launch` (it
    cannot be launched), `says` (it submits that it failed, in words of its own)."""
    words: str = ""
    """Those words."""
    memory: float = 16 * GB
    per_agent: float = 0.3 * GB
    launch: tuple[float, float] = (0.1, 3.0)
    send: tuple[float, float] = (0.01, 0.5)
    """Seconds until an agent has a message."""
    unreachable: float = 0.0
    """How many of the looks go unanswered."""
    crowd: int = 0
    """More at once than so many meet refusals of their provider, and try again by themselves."""
    quota: tuple[float, float] = (0.0, 0.0)
    """So many agent-seconds may be worked in a window of so many seconds, over all hosts; else they wait for its end."""


#: Everything at once: failures, hangs, hosts that do not always answer, refusals, a quota, little memory.
TROUBLED = World(
    hosts=200,
    ends=(("ok", 0.9), ("failed", 0.04), ("hang", 0.02), ("silent", 0.02), ("launch", 0.02)),
    unreachable=0.02,
    quota=(110_000.0, 300.0),
    works=(20.0, 120.0),
    memory=2 * GB,
    per_agent=0.4 * GB,
    crowd=700,
)


class Truth:
    """All agents there are, what they do and what becomes of them; a scheduler knows of it what it is shown."""

    def __init__(self, world: World, t: float) -> None:
        self.world, self.chance = world, random.Random(world.seed)
        self.t = self.began_at = t
        self.agents: dict[str, dict[str, One]] = defaultdict(dict)
        self.many = self.most = self.fullest = 0
        """Agents there are, the most there were at once, and the most that one host had."""
        self.billed = 0.0
        """What the agents cost that are gone."""
        self.began: list[float] = []
        self.limits: dict[float, float] = {}
        """The reset times that were told, and when that was first."""
        self.early = 0
        """Launches while a known reset time was still to come."""
        self.worked: list[tuple[float, float]] = []
        self.crowded = self.looks = 0
        """Looks in which there were too many for the provider, and all of them."""
        self._reckoned = self._reset = 0.0

    def reach(self, place: str) -> None:
        if any(place == host and self.t > self.began_at + after for host, after in self.world.dead):
            raise Unreachable(f"host {place} cannot be reached")

    def begins(self, place: str, name: str) -> One | None:
        """One more agent; None where it cannot be launched."""
        self.began.append(self.t)
        self.early += any(seen < self.t - 5 and self.t < until - 1 for until, seen in self.limits.items())
        names, shares = zip(*self.world.ends, strict=True)
        (end,) = self.chance.choices(names, shares)
        if end == "launch" or place in self.world.full:
            return None
        works = self.chance.uniform(*self.world.works)
        self.many += name not in self.agents[place]
        one = self.agents[place][name] = One(self.t, works, end, self.chance.uniform(*self.world.dollars))
        self.most = max(self.most, self.many)
        self.fullest = max(self.fullest, len(self.agents[place]))
        return one

    def ends(self, place: str, name: str) -> None:
        if one := self.agents[place].pop(name, None):
            self.many -= 1
            self.billed += self.used(one)[0] or 0.0
            self.worked.append((self.t, min(one.works, self.t - one.begun)))

    def seen(self) -> tuple[float, bool]:
        """A host is looked at: when the quota is there again (0: it is), and whether the provider refuses some of them."""
        reset, crowded = self._quota(), 0 < self.world.crowd < self.many
        self.looks, self.crowded = self.looks + 1, self.crowded + crowded
        return reset, crowded

    def used(self, one: One) -> tuple[float | None, int]:
        share = max(0.0, min(1.0, (self.t - one.begun) / one.works))
        return one.dollars * share if self.world.priced else None, int(share * 10_000)

    def _quota(self) -> float:
        """When the quota that is spent now is there again; 0 when it is not spent. Reckoned every three seconds."""
        quota, window = self.world.quota
        if not quota or self.t < self._reckoned + 3:
            return self._reset
        start = self.t - self.t % window
        used = sum(self.t - max(start, one.begun) for ones in self.agents.values() for one in ones.values())
        for ended, seconds in reversed(self.worked):
            if ended <= start:
                break
            used += seconds
        self._reckoned, self._reset = self.t, start + window if used > quota else 0.0
        if self._reset:
            self.limits.setdefault(self._reset, self.t)
        return self._reset


class SimBackend(Truth):
    workers = 1_000_000

    def __init__(self, world: World) -> None:
        super().__init__(world, 1_000_000.0)
        self.lands = self.t
        self.queue: list[tuple[float, int, Completed]] = []
        self.order = itertools.count()
        self.runs: Counter[str] = Counter()
        self.steps = 0
        self.alerts: list[tuple[str, str]] = []
        self.booked = Spend()
        """What the run told last that it has spent."""
        self.unclear = 0

    def now(self) -> float:
        return self.t

    def interrupts(self) -> int:
        return 0

    def sleep(self, seconds: float) -> None:
        self.t += seconds

    def spent_today(self, total: Spend) -> Today:
        self.booked = total
        return Today("day", total._replace(dollars=(total.dollars or 0.0) + self.world.spent_today))

    def alert(self, cause: str, text: str) -> None:
        self.alerts.append((cause, text))

    def start(self, key: Key, work: Callable[[], object]) -> None:
        low, high = getattr(self.world, str(key[0])) if key[0] in ("launch", "send") else (0.01, 0.5)
        at = self.lands = self.t + low + (high - low) * self.chance.random()
        try:
            ended = Completed(key, work())
        except MusterError as error:
            ended = Completed(key, None, error)
        heapq.heappush(self.queue, (at, next(self.order), ended))

    def completed(self, timeout: float) -> list[Completed]:
        self.steps += 1
        until = self.t + timeout
        if self.queue and self.queue[0][0] <= until:
            self.t = max(self.t, self.queue[0][0])
        else:
            self.t = until
        found = []
        while self.queue and self.queue[0][0] <= self.t:
            found.append(heapq.heappop(self.queue)[2])
        return found

    # Agents

    def launch(self, task: Task, attempt: Attempt) -> None:
        place = attempt.agent.place
        self.reach(place)
        if self.begins(place, attempt.agent.name) is None:
            raise MusterError("no space left for the agent: /x", "muster gc shows what can be removed")
        self.runs[task.id] += 1
        if self.chance.random() < self.world.cut:
            raise Unreachable(f"host {place} did not answer within 5 s")

    def poll(self, place: str) -> HostView:
        self.reach(place)
        if self.world.unreachable and self.chance.random() < self.world.unreachable:
            raise Unreachable(f"host {place} did not answer within 5 s")
        reset, crowded = self.seen()
        seen, bills = {}, {}
        for name, one in self.agents[place].items():
            seen[name] = self._status(name, one, reset)
            if crowded and seen[name].state == "working" and one.end != "hang":
                seen[name] = seen[name]._replace(reason="retry", refused=self.t)
            bills[name] = self.used(one)
        free = self.world.memory - len(self.agents[place]) * self.world.per_agent
        return HostView(seen, bills, HostLoad(place, 8, 0.1 * len(self.agents[place]), free, 100 * GB))

    def _status(self, name: str, one: One, reset: float) -> Status:
        agent = one.agent = one.agent or Agent(name, name, "sim", created=one.begun)
        spent = self.t - one.begun
        if reset and spent < one.works:
            return Status(agent, "", "local", "waiting", "limit", since=self.t, now=self.t, until=reset)
        if spent < one.works or one.end == "hang":
            line = "" if one.end == "hang" else str(int(spent / 10))
            return Status(agent, "", "local", "working", since=one.begun, now=self.t, last_line=line)
        if one.end == "failed":
            return Status(
                agent, "", "local", "failed", "exit 1", since=self.t, now=self.t, last_line="AssertionError: no"
            )
        if one.end == "silent":
            return Status(agent, "", "local", "ready", since=one.begun + one.told, now=self.t)
        if one.end == "forgets" and self.t < one.heard + 1:
            return Status(agent, "", "local", "ready" if self.t < one.heard else "working", since=one.begun, now=self.t)
        result = RESULT
        if one.end == "says":
            result = json.dumps({**json.loads(RESULT), "outcome": "failed", "reason": self.world.words})
        return Status(agent, "", "local", "ready", since=one.begun, now=self.t, result=result)

    def send(self, attempt: Attempt, text: str, answer: bool) -> None:
        if one := self.agents[attempt.agent.place].get(attempt.agent.name):
            one.told, one.heard = one.told + 1, self.lands

    def harvest(self, task: Task, attempt: Attempt) -> Harvest:
        self.reach(attempt.agent.place)
        one = self.agents[attempt.agent.place].get(attempt.agent.name)
        if one is None:
            return Harvest(Outcome(harvest_errors=("gone",)))
        cost, tokens = self.used(one)
        return Harvest(Outcome(cost_usd=cost, tokens=tokens))

    def clear(self, attempt: Attempt) -> None:
        self.reach(attempt.agent.place)
        if self.unclear < self.world.stuck:
            self.unclear += 1
            raise MusterError("it does not go away")
        self.ends(attempt.agent.place, attempt.agent.name)
