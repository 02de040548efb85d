"""What a run has used, what its budgets leave, and what the next agent is expected to cost. Pure: totals and times come in.

A budget is hard. Whoever calls `over` after each measurement and stops what it names overspends at most by what the running agents use
between two measurements, and not at all if no attempt costs more than expected.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ..run.tasks import counted
from .limits import Limits, a_dict, a_list, amount, fits, is_number, known, number, span, word

#: What agents use, as their hosts report it. The seconds of the run are counted here.
UNITS = ("dollars", "tokens")
#: The totals of a day; `agents` is how many were launched.
DAY_UNITS = (*UNITS, "seconds", "agents")
#: Seconds for which usage may be unknown before a budget counts as exceeded: one damaged file must not stop a run.
UNKNOWN_SECONDS = 60.0
#: How many attempts the expected cost is computed from.
COSTS_KEPT = 100


class Spend(NamedTuple):
    """What was used. None is unknown, which is not the same as 0."""

    dollars: float | None = 0.0
    tokens: float | None = 0
    seconds: float | None = 0.0
    agents: int = 0


UNKNOWN = Spend(None, None, None)


class Breach(NamedTuple):
    """A budget that is spent. Its scope is run, day, task, or progress: money was spent without results."""

    scope: str
    unit: str
    used: float | None
    limit: float
    """Without the reserved share."""
    words: str
    task: str = ""


class _Meter:
    """A total that only grows, and since when it is unknown."""

    def __init__(self, used: float = 0.0, unknown_since: float | None = None) -> None:
        self.used = used
        self.unknown_since = unknown_since

    def read(self, now: float, value: float | None) -> None:
        if is_number(value):
            self.used, self.unknown_since = max(self.used, value), None
        elif self.unknown_since is None:
            self.unknown_since = now


class _Line(NamedTuple):
    scope: str
    unit: str
    meter: _Meter
    limit: float
    task: str = ""

    @property
    def left(self) -> float:
        return max(0.0, self.limit - self.meter.used)


class _Cost(NamedTuple):
    dollars: float | None
    tokens: float | None
    progress: bool


class Budget:
    def __init__(self, limits: Limits, now: float) -> None:
        self.limits = limits
        self.launched = 0
        self._began = now
        self._run = {unit: _Meter() for unit in UNITS}
        self._today = {unit: _Meter() for unit in DAY_UNITS}
        self._day = ""
        self._tasks: dict[tuple[str, str], _Meter] = {}
        self._costs: deque[_Cost] = deque(maxlen=COSTS_KEPT)
        # Mean and median cost by unit, cached: they are read more often than they change
        self._known: dict[str, tuple[float, float]] = {}
        self._ended_unseen = 0
        # What was spent when the last progress was made, and the most agents at once since
        self._mark = dict.fromkeys(UNITS, 0.0)
        self._peak = 1

    # What happened

    def spent(self, now: float, run: Spend, day: str, today: Spend | None, tasks: Mapping[str, Spend]) -> None:
        _read(now, self._run, run)
        if today is not None:
            if day != self._day:
                self._day, self._today = day, {unit: _Meter() for unit in DAY_UNITS}
            _read(now, self._today, today)
        units = [unit for unit in (*UNITS, "seconds") if getattr(self.limits, f"task_{unit}")]
        before, self._tasks = self._tasks, {}
        for task, used in tasks.items():
            for unit in units:
                meter = self._tasks[task, unit] = before.get((task, unit)) or _Meter()
                meter.read(now, getattr(used, unit))
        self._ended_unseen = 0

    def took(self, launched: int, running: int) -> None:
        """Count launched agents; `running` is how many are at work now, including them."""
        self.launched += launched
        self._today["agents"].used += launched
        self._peak = max(self._peak, running)

    def ended(self, cost: Spend, progress: bool) -> None:
        self._costs.append(_Cost(known(cost.dollars), known(cost.tokens), progress))
        self._known = {}
        self._ended_unseen += 1

    def progress(self, running: int) -> None:
        self._mark = {unit: meter.used for unit, meter in self._run.items()}
        self._peak = max(1, running)

    # What follows

    def seconds(self, now: float) -> float:
        return max(0.0, now - self._began)

    def expected(self, unit: str) -> float | None:
        """Return what one attempt costs, in dollars or tokens; None is unknown.

        It is the mean of the attempts that ended, or else the expectation from former runs, but at least what each launched agent has
        used so far.
        """
        if unit not in UNITS:
            return None
        mean = self._cost(unit)[0] or getattr(self.limits, f"expected_{unit}") or 0.0
        so_far = self._run[unit].used / self.launched if self.launched else 0.0
        return max(mean, so_far) or None

    def slots(self, now: float, running: int) -> float:
        """Return how many more agents the budgets pay for if each running one costs as much as expected."""
        return min((self._slots(budget, running) for budget in self._lines(now)), default=math.inf)

    def attempts_left(self) -> float:
        run, day = self.limits.attempts, self.limits.day_agents
        left = math.inf if run is None else max(0, run - self.launched)
        return min(left, max(0, day - self._today["agents"].used)) if day else left

    def over(self, now: float) -> list[Breach]:
        """Return the budgets that are exceeded, or whose usage has been unknown for too long, and the money spent without progress."""
        budgets = [*self._lines(now), *self._task_lines()]
        return [breach for budget in budgets if (breach := self._exceeded(now, budget))] + self.tripped()

    def closed(self, now: float) -> list[Breach]:
        """Return the budgets that allow no agent any more, even if none is running."""
        found = []
        for budget in self._lines(now):
            each = self.expected(budget.unit) or 0.0
            if fits(budget.left, each) < 1:
                words = f"{self._whose(budget)}: {amount(budget.unit, budget.left)} left"
                words += f", and an agent takes about {amount(budget.unit, each)}" if budget.left else ""
                found.append(Breach(budget.scope, budget.unit, budget.meter.used, budget.limit, words))
        most = self.limits.attempts
        if most is not None and self.launched >= most:
            found.append(
                Breach("run", "agents", self.launched, most, f"{counted(most, 'agent')} launched, all of the budget")
            )
        day, today = self.limits.day_agents, self._today["agents"].used
        if day and today >= day:
            words = f"{today:g} agents were launched today, of {day} of the budget of a day"
            found.append(Breach("day", "agents", today, day, words))
        return found

    def tripped(self) -> list[Breach]:
        """Return the breach for money spent without results: in dollars, or in tokens if the cost of an attempt is unknown."""
        for unit, meter in self._run.items():
            typical = self._cost(unit)[1] or getattr(self.limits, f"expected_{unit}")
            if not typical or not self.limits.breaker:
                continue
            used = meter.used - self._mark[unit]
            limit = self.limits.breaker * typical * self._peak
            if used <= limit:
                return []
            words = f"{amount(unit, used)} spent without a result; one takes about {amount(unit, typical)}"
            return [Breach("progress", unit, used, limit, words)]
        return []

    def next(self, now: float) -> float | None:
        meters = (*self._run.values(), *self._today.values(), *self._tasks.values())
        moments = [meter.unknown_since + UNKNOWN_SECONDS for meter in meters if meter.unknown_since is not None]
        if self.limits.seconds:
            moments.append(self._began + self.limits.seconds * self.limits.share)
        return min((moment for moment in moments if moment > now), default=None)

    def why(self, now: float, running: int) -> str:
        """Say which budget prevents another launch."""
        budget = min(self._lines(now), key=lambda budget: self._slots(budget, running), default=None)
        if budget is None:
            return ""
        if budget.meter.unknown_since is not None:
            return f"{self._whose(budget)}: not known how much is used"
        each = self.expected(budget.unit)
        flying = f", {running} in flight at about {amount(budget.unit, each)} each" if each and running else ""
        return f"{self._whose(budget)}: {amount(budget.unit, budget.left)} left{flying}"

    # Budgets

    def _lines(self, now: float) -> Iterator[_Line]:
        """Yield the budgets of the run and of the day."""
        limits = self.limits
        for unit, meter in self._run.items():
            if limit := getattr(limits, unit):
                yield _Line("run", unit, meter, limit * limits.share)
        if limits.seconds:
            yield _Line("run", "seconds", _Meter(self.seconds(now)), limits.seconds * limits.share)
        for unit, meter in self._today.items():
            # When all agents of a day are launched, the running ones may go on.
            if unit != "agents" and (limit := getattr(limits, f"day_{unit}")):
                yield _Line("day", unit, meter, limit)

    def _task_lines(self) -> Iterator[_Line]:
        for (task, unit), meter in self._tasks.items():
            if limit := getattr(self.limits, f"task_{unit}"):
                yield _Line("task", unit, meter, limit, task)

    def _slots(self, budget: _Line, running: int) -> float:
        if budget.meter.unknown_since is not None:
            return 0
        # An attempt that ended after the last measurement may have used more than that shows.
        return fits(budget.left, self.expected(budget.unit) or 0.0) - running - self._ended_unseen

    def _exceeded(self, now: float, budget: _Line) -> Breach | None:
        scope, unit, meter, limit, task = budget
        if meter.used >= limit:
            return Breach(
                scope, unit, meter.used, limit, f"{self._whose(budget)}: {amount(unit, meter.used)} used", task
            )
        if meter.unknown_since is not None and now - meter.unknown_since >= UNKNOWN_SECONDS:
            hint = "; state [prices], or a budget in tokens" if unit == "dollars" else ""
            return Breach(scope, unit, None, limit, f"{self._whose(budget)}: not known how much is used{hint}", task)
        return None

    def _whose(self, budget: _Line) -> str:
        whose = f"task {word(budget.task)}" if budget.scope == "task" else f"the {budget.scope}"
        kept = f" ({self.limits.reserve:.0%} kept back)" if budget.scope == "run" and self.limits.reserve else ""
        return f"budget of {whose} {amount(budget.unit, budget.limit)}{kept}"

    def _cost(self, unit: str) -> tuple[float, float]:
        """Return the mean cost of the attempts that ended, and the median of those with a result; 0 is unknown.

        Attempts that cost nothing, such as failed launches, do not count.
        """
        if unit not in self._known:
            costs = [cost for cost in self._costs if getattr(cost, unit)]
            good = [cost for cost in costs if cost.progress] or costs
            middle = sorted(getattr(cost, unit) for cost in good)[len(good) // 2] if good else 0.0
            self._known[unit] = sum(getattr(cost, unit) for cost in costs) / max(1, len(costs)), middle
        return self._known[unit]

    # State

    def to_json(self, now: float) -> dict[str, Any]:
        return {
            # Time in which no process worked on the run does not count.
            "seconds": self.seconds(now),
            "launched": self.launched,
            "run": {unit: [meter.used, meter.unknown_since] for unit, meter in self._run.items()},
            "today": {unit: [meter.used, meter.unknown_since] for unit, meter in self._today.items()},
            "day": self._day,
            "costs": [list(cost) for cost in self._costs],
            "mark": dict(self._mark),
            "peak": self._peak,
        }

    def restore(self, data: Any, now: float) -> None:
        told = a_dict(data)
        self._began = now - number(told.get("seconds"), 0.0)
        self.launched = int(number(told.get("launched"), 0))
        self._run, self._today = _meters(told.get("run"), now), _meters(told.get("today"), now, DAY_UNITS)
        self._day = day if isinstance(day := told.get("day"), str) else ""
        for cost in a_list(told.get("costs"), COSTS_KEPT):
            if isinstance(cost, list) and len(cost) == 3:
                self._costs.append(_Cost(known(cost[0]), known(cost[1]), cost[2] is True))
        self._known = {}
        mark = a_dict(told.get("mark"))
        self._mark = {unit: min(number(mark.get(unit), meter.used), meter.used) for unit, meter in self._run.items()}
        self._peak = max(1, int(min(number(told.get("peak"), 1), self.limits.max_agents)))


def _read(now: float, meters: Mapping[str, _Meter], used: Spend) -> None:
    for unit, meter in meters.items():
        meter.read(now, getattr(used, unit))


def _meters(data: Any, now: float, units: Sequence[str] = UNITS) -> dict[str, _Meter]:
    meters = {}
    for unit in units:
        pair = a_list(a_dict(data).get(unit), 2)
        used, since = pair if len(pair) == 2 else (0.0, None)
        meters[unit] = _Meter(number(used, 0.0), min(since, now) if is_number(since) else None)
    return meters


# Before the first launch


class Estimate(NamedTuple):
    """What a number of tasks costs if each takes one average attempt; None is unknown."""

    dollars: float | None
    tokens: float | None
    seconds: float | None
    most_dollars: float | None
    """The amount at which budgets stop the run; None if no budget does."""
    tasks_paid: int | None
    """How many tasks the run's budgets pay for; None if there is no budget, or the cost is unknown."""
    words: str


def estimate(tasks: int, limits: Limits, mean: Spend = UNKNOWN) -> Estimate:
    """Estimate what `tasks` tasks cost; `mean` is the average attempt."""
    at_once = max(1, min(tasks, limits.max_agents))
    dollars, tokens, seconds = (known(value) for value in mean[:3])
    stops = [limits.dollars and limits.dollars * limits.share, limits.day_dollars]
    stops.append(limits.task_dollars and limits.task_dollars * tasks)
    most = min((stop for stop in stops if stop), default=None)
    paid = [tasks if limits.attempts is None else limits.attempts]
    for limit, each, abreast in (
        (limits.dollars, dollars, 1),
        (limits.tokens, tokens, 1),
        (limits.seconds, seconds, at_once),
    ):
        if limit and each:
            paid.append(int(fits(limit * limits.share, each)) * abreast)
    bounded = limits.attempts is not None or len(paid) > 1
    tasks_paid = min(*paid, tasks) if bounded else None

    dollars, tokens = (None if each is None else each * tasks for each in (dollars, tokens))
    seconds = None if seconds is None else seconds * math.ceil(tasks / at_once)
    cost = "cost unknown" if dollars is None else f"about {amount('dollars', dollars)}"
    count = "tokens unknown" if tokens is None else f"about {amount('tokens', tokens)}"
    time = "time unknown" if seconds is None else f"about {span(seconds)}"
    kept = f" ({limits.reserve:.0%} of the budget is kept back)" if limits.reserve and limits.dollars else ""
    lines = [f"{tasks} task{'' if tasks == 1 else 's'}, up to {at_once} at once: {cost}, {count}, {time}"]
    lines.append("no budget in dollars" if most is None else f"stops at {amount('dollars', most)}{kept}")
    if tasks_paid is not None and tasks_paid < tasks:
        lines.append(f"the budget is enough for about {tasks_paid} of {tasks} tasks")
    return Estimate(dollars, tokens, seconds, most, tasks_paid, "\n".join(lines))
