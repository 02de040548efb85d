"""The limits of a run from the configuration, what former runs cost, and what all runs spent today."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Any, NamedTuple

from ..run import directory as runs
from .budget import UNKNOWN, Spend
from .limits import Limits, known

#: The field of `Limits` for each key of `[budget]` and `[limits]`.
BUDGET = {
    "dollars": "dollars",
    "tokens": "tokens",
    "agents": "agents",
    "time": "seconds",
    "agent_dollars": "task_dollars",
    "agent_tokens": "task_tokens",
    "day_dollars": "day_dollars",
    "day_tokens": "day_tokens",
    "day_time": "day_seconds",
    "day_agents": "day_agents",
}
LIMITS = {
    "start": "start",
    "launch_rate": "launch_rate",
    "memory": "min_memory",
    "disk": "min_disk",
    "load": "max_load",
}
#: How many former attempts the expected cost of a new run is computed from.
JUDGED_BY = 200
#: Seconds for which the spending of other runs is cached.
FRESH_SECONDS = 2.0
#: The ledger is synced to the disk at least this often.
SYNC_SECONDS = 30.0


def limits(budget: Mapping[str, float], machine: Mapping[str, float], **given: Any) -> Limits:
    """Return the limits of a run. `given` values that are not None override `[budget]` and `[limits]`."""
    found: dict[str, Any] = {BUDGET[key]: value for key, value in budget.items()}
    found |= {LIMITS[key]: value for key, value in machine.items()}
    found |= {key: int(found[key]) for key in ("agents", "day_agents", "start") if key in found}
    found |= {key: value for key, value in given.items() if value is not None}
    if "launch_rate" in found:
        found.setdefault("burst", max(1, int(found["launch_rate"])))
    return Limits(**found)


def add(*all: Spend) -> Spend:
    """Add up. An unknown cost makes the total cost unknown."""
    dollars: float | None = 0.0
    tokens = seconds = 0.0
    agents = 0
    for one in all:
        dollars = None if dollars is None or one.dollars is None else dollars + one.dollars
        tokens += one.tokens or 0
        seconds += one.seconds or 0
        agents += one.agents
    return Spend(dollars, tokens, seconds, agents)


class Sum:
    """A total of named parts that can change, kept without adding up all parts for each change."""

    def __init__(self) -> None:
        self.parts: dict[str, Spend] = {}
        self._dollars, self._tokens, self._unpriced = 0.0, 0.0, 0

    def put(self, name: str, part: Spend | None) -> None:
        """Set a part; None removes it."""
        before = self.parts.pop(name, None)
        for one, sign in ((before, -1), (part, 1)):
            if one is not None:
                self._unpriced += sign * (one.dollars is None)
                self._dollars += sign * (one.dollars or 0.0)
                self._tokens += sign * (one.tokens or 0)
        if part is not None:
            self.parts[name] = part
        elif not self.parts:
            self._dollars = 0.0  # subtracting floats leaves a remainder

    def total(self) -> Spend:
        return Spend(None if self._unpriced else max(0.0, self._dollars), self._tokens)


def used(dollars: object, tokens: object, seconds: float = 0.0) -> Spend:
    """Return what an agent used. Without tokens it used nothing; the cost of tokens without a price is unknown."""
    count = int(known(tokens) or 0)
    sure = dollars is not None or not count
    return Spend(known(dollars) or 0.0 if sure else None, count, seconds)


def mean(home: str, repo: str, kind: str) -> Spend:
    """Return the average cost of an attempt in the newest runs of this type, in this repository if there are any."""
    alike = [run for run in runs.all_runs(home) if run.info.type == kind]
    here = [run for run in alike if run.info.repo == repo]
    ended = [attempt.outcome for run in (here or alike)[:10] for attempt in _ended(run)][:JUDGED_BY]
    dollars, tokens, seconds = (
        _mean(getattr(one, key) for one in ended if one) for key in ("cost_usd", "tokens", "seconds")
    )
    return Spend(dollars, tokens, seconds)


def _ended(run: runs.Run) -> list[runs.Attempt]:
    return [
        one for task in run.tasks()[:JUDGED_BY] for one in run.attempts(task.id) if one.outcome and one.agent.address
    ]


def _mean(values: Iterable[object]) -> float | None:
    sure = [value for value in map(known, values) if value is not None]
    return sum(sure) / len(sure) if sure else None


class Today(NamedTuple):
    day: str
    spend: Spend


class Ledger:
    """What each run spent on each day, in one file per run and day: `spent/DAY/RUN`."""

    def __init__(self, home: str, run: runs.Run) -> None:
        # A new run may have the name of a removed one, whose spending still counts.
        self.home, self.run = home, f"{run.name}@{run.info.created}"
        self.last: tuple[float, Spend, Today] | None = None
        self.synced = -math.inf

    def today(self, now: float, total: Spend) -> Today:
        """Record this run's part of the day, given its `total` since it began, and return what all runs spent today."""
        total = total._replace(seconds=int(total.seconds or 0))
        if self.last and 0 <= now - self.last[0] < FRESH_SECONDS and self.last[1] == total._replace(seconds=0):
            return self.last[2]
        day = time.strftime("%Y-%m-%d", time.localtime(now))
        folder = os.path.join(self.home, "spent", day)
        mine = runs.read(os.path.join(folder, self.run))
        before = _spend(mine.get("before")) if mine else self._before(total)
        runs_today = Spend(
            _more(total.dollars, before.dollars),
            _more(total.tokens, before.tokens),
            _more(total.seconds, before.seconds),
            max(0, total.agents - before.agents),
        )
        os.makedirs(folder, mode=0o700, exist_ok=True)
        content = {"before": list(before), "spent": list(runs_today)}
        if content != mine:
            # Not every time: after a power failure the run that goes on records its total again.
            due = not 0 <= now - self.synced < SYNC_SECONDS
            runs.write(os.path.join(folder, self.run), content, sync=due)
            if due:
                runs.sync_folders(os.path.dirname(folder), self.home)
                self.synced = now
        names = [name for name in os.listdir(folder) if name != self.run and not name.endswith(".tmp")]
        others = [_spend((runs.read(os.path.join(folder, name)) or {}).get("spent")) for name in names]
        # Unpriced tokens of other runs count as free; else one run without prices would block all others for the day.
        others = [one if one.tokens is None else one._replace(dollars=one.dollars or 0.0) for one in others]
        found = Today(day, reduce(add, others, runs_today))
        self.last = now, total._replace(seconds=0), found
        return found

    def _before(self, total: Spend) -> Spend:
        """Return what this run had spent before today: nothing, if this is its first day."""
        return total if self._older() else Spend()

    def _older(self) -> bool:
        spent = os.path.join(self.home, "spent")
        days = os.listdir(spent) if os.path.isdir(spent) else []
        return any(os.path.exists(os.path.join(spent, day, self.run)) for day in days)


def _more(now: float | None, before: float | None) -> float | None:
    return None if now is None or before is None else max(0.0, now - before)


def _spend(pair: object) -> Spend:
    if not isinstance(pair, list) or len(pair) not in (2, 4):
        return UNKNOWN
    seconds, agents = pair[2:] or (0, 0)
    return Spend(known(pair[0]), known(pair[1]), known(seconds) or 0, int(known(agents) or 0))
