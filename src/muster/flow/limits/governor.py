"""Decides how many agents may be launched now, and on which hosts. Pure: times, measurements and totals come in.

More agents run at once while all goes well; half as many after a sign of a limit or of overload; none before a known reset; and never
more than the hosts have room for and the budgets pay for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from .budget import UNKNOWN, Breach, Budget, Estimate, Spend, estimate
from .capacity import Capacity, HostLoad
from .limits import NUMBER_MAX, Limits, a_dict, is_number, number, span, word

__all__ = ["UNKNOWN", "Breach", "Estimate", "Governor", "HostLoad", "Limits", "Spend", "estimate"]

#: Refusals within this many seconds are one sign, however many agents meet them.
CUT_SECONDS = 10.0
#: The pause after a sign of overload without a known end. It doubles with each further sign, up to the maximum.
PAUSE_SECONDS, PAUSE_MAX = CUT_SECONDS, 600.0
#: Seconds after a sign of a limit until as many agents may run at once as when it came; see `_recover`.
RECOVER_SECONDS = 300.0
#: The share of the window that must be in use for it to grow, and the most time that counts between two updates.
USED, STEP_SECONDS = 0.9, 10.0
#: The longest quota window is a week. A later reset is an error and must not block a run for ever.
RESET_MAX = 8 * 86400.0
CLOCKS_MAX = 32


class Governor:
    """The governor of one run. Its `limits` may be replaced at any time. `now` must never go back."""

    def __init__(self, limits: Limits, now: float) -> None:
        self._limits = limits
        self._budget = Budget(limits, now)
        self._capacity = Capacity(limits)
        # How many agents may run at once, and how that was learned
        self._window = float(max(1, min(limits.start, limits.max_agents)))
        self._knee = 0.0
        """How many agents ran at once when the last sign of a limit came; 0 before the first."""
        self._well = 0.0
        """Seconds since then without another sign."""
        self._cut: float | None = None
        self._strikes = 0
        self._pause = 0.0
        self._clocks: dict[str, float] = {}
        self._busy = 0
        # Token bucket of the launch rate, and when it was last filled
        self._bucket = float(max(1, limits.burst))
        self._filled = now
        self._held = ""

    @property
    def limits(self) -> Limits:
        return self._limits

    @limits.setter
    def limits(self, limits: Limits) -> None:
        self._limits = self._budget.limits = self._capacity.limits = limits

    # What happened

    def went_well(self, now: float) -> None:
        """A launch succeeded."""
        if now < self._blocked():
            return  # it began before the pause, so it does not show that the trouble is over
        self._strikes = 0
        # Each success adds one until the first sign of a limit. An unused window proves nothing, so it stays near what is in use.
        if not self._knee and self.window < 2 * max(1, self._busy):
            self._window = min(self._window + 1, self._ceiling)

    def _recover(self, now: float, running: int) -> None:
        """Widen the window after a sign of a limit, along the curve of TCP's CUBIC.

        It goes from half of what was too much back to all of it in RECOVER_SECONDS, fast at first, and then beyond, faster and faster.
        It depends on time rather than on finished agents, because an agent may take an hour while limits of providers count minutes.
        Beyond the old maximum it grows only while it is used.
        """
        if now < self._blocked() or not self._knee:
            return
        if self._well < RECOVER_SECONDS or running >= USED * self.window:
            self._well += min(max(0.0, now - self._filled), STEP_SECONDS)
        times = self._well / RECOVER_SECONDS
        self._window = max(self._window, min(self._knee + max(1.0, self._knee / 2) * (times - 1) ** 3, self._ceiling))

    def pressure(self, now: float, kind: str, until: float | None = None) -> bool:
        """Take in a rate limit, a spent quota or an overload; `until` is when it ends, if known.

        Return whether it changes anything: fewer agents at once, or one more moment to wait for. Of each kind the latest moment counts.
        """
        if is_number(until) and until <= now:
            return False  # it is over already
        # An agent that meets a limit during a pause began before it: the same sign, seen late. The same holds while more agents are
        # at work than the window allows since the last sign.
        echo = (
            self._cut is not None
            and self._knee > 0
            and (0 <= now - self._cut < CUT_SECONDS or now < self._blocked() or self._busy > self.window)
        )
        reset = min(until, now + RESET_MAX) if is_number(until) else None
        known = reset is None
        if reset is not None:
            self._clocks = {name: moment for name, moment in self._clocks.items() if moment > now}
            known = kind in self._clocks
            # Bound the number of kinds, which agents make up.
            kind = kind if kind in self._clocks or len(self._clocks) < CLOCKS_MAX else next(iter(self._clocks))
            self._clocks[kind] = max(self._clocks.get(kind, 0.0), reset)
        if not echo:
            # Halve what really ran at once: an unused window was not what was too much.
            self._cut, self._knee = now, float(min(self.window, max(1, self._busy)))
        self._window, self._well = min(self._window, max(1.0, self._knee / 2)), 0.0
        if reset is None and (not echo or now >= self._blocked()):
            known = False
            self._pause = max(self._pause, now + min(PAUSE_MAX, PAUSE_SECONDS * 2 ** min(self._strikes, 20)))
            self._strikes += 1
        return not echo or not known

    def spent(
        self,
        now: float,
        run: Spend,
        *,
        agents: int = 0,
        day: str = "",
        today: Spend | None = None,
        tasks: Mapping[str, Spend] | None = None,
    ) -> None:
        """Take in new totals: of the run, of the day, and of each task that has an agent now.

        Totals never go down; a new day begins at 0, and a task that is not named is forgotten. The seconds of the run are counted
        here and not taken from `run`.
        """
        self._budget.spent(now, run, day, today, tasks or {})
        self._budget.launched = max(self._budget.launched, agents)

    def ended(self, now: float, cost: Spend, *, progress: bool) -> None:
        """An attempt has ended at this cost; with `progress` it has a result."""
        self._budget.ended(cost, progress)
        if progress:
            self.progress(now)

    def progress(self, now: float) -> None:
        """Count money without progress from now on."""
        self._budget.progress(self._busy)

    def lift(self, now: float) -> None:
        """Resume launching at a person's request: forget resets, pauses and spending without progress, but not budgets."""
        self._clocks, self._pause, self._strikes = {}, 0.0, 0
        self.progress(now)

    # What follows

    @property
    def window(self) -> int:
        """How many agents may run at once by what was learned so far, from 1 to `max_agents`."""
        return max(1, min(int(self._window), self._ceiling))

    @property
    def launched(self) -> int:
        return self._budget.launched

    def may(self, now: float, wanted: int, running: int) -> bool:
        """Return whether `room` could allow anything, apart from the hosts."""
        return self._count(now, wanted, running) > 0

    def room(self, now: float, wanted: int, running: int, hosts: Sequence[HostLoad]) -> list[str]:
        """Return the host of each agent that may be launched now, at most `wanted`. Each counts as launched.

        `running` counts every agent of the run that exists, including those that are starting or being stopped.
        """
        count = self._count(now, wanted, running)
        names = self._capacity.take(now, count, hosts, idle=running == 0) if count else []
        if len(names) < count:
            self._held = "hosts"
        self._bucket = max(0.0, self._bucket - len(names))
        self._busy += len(names)
        self._budget.took(len(names), self._busy)
        return names

    def _count(self, now: float, wanted: int, running: int) -> int:
        self._busy = running
        self._recover(now, running)
        self._fill(now)
        count, self._held = self._allowed(now, wanted, running)
        return count

    def over(self, now: float) -> list[Breach]:
        """Return the budgets that are exceeded; the caller ends what they name.

        With the scope `progress`, nothing is launched until a running agent brings a result, or until `lift`.
        """
        return self._budget.over(now)

    def closed(self, now: float) -> list[Breach]:
        """Return the budgets that allow no agent any more, even if none is running: tasks would wait for ever."""
        return self._budget.closed(now)

    def next(self, now: float) -> float | None:
        """Return when time alone may allow another launch; None if only an event can."""
        launch = self._blocked()
        if self._held == "rate" and self.limits.launch_rate > 0:
            # Slightly later, because the sum of floats may fall short of 1.
            launch = max(launch, self._filled + (1 - self._bucket) / self.limits.launch_rate + 0.001)
        moments = [launch, self._budget.next(now), self._capacity.next(now) if self._held == "hosts" else None]
        return min((moment for moment in moments if moment is not None and moment > now), default=None)

    def why(self, now: float) -> str:
        """Say in one line what prevented the next launch in the last `room`; empty if nothing did."""
        if breaches := [breach for breach in self.over(now) if breach.scope != "task"]:
            return breaches[0].words
        if now < self._blocked():
            kind = max(self._clocks, key=lambda kind: self._clocks[kind], default="")
            if self._clocks.get(kind, 0.0) >= self._pause:
                return f"limit {word(kind)}: resets in {span(self._clocks[kind] - now)}"
            return f"overload: next try in {span(self._pause - now)}"
        if self._held == "budget":
            return self._budget.why(now, self._busy)
        if self._held == "hosts":
            return self._capacity.why()
        return {
            "agents": next((breach.words for breach in self.closed(now) if breach.unit == "agents"), ""),
            "ceiling": f"{self._ceiling} at once (--max-agents)",
            "window": f"{self.window} at once so far, more as it goes well",
            "rate": f"{self.limits.launch_rate:g} launches a second",
        }.get(self._held, "")

    def seconds(self, now: float) -> float:
        """Return for how long processes have worked on the run."""
        return self._budget.seconds(now)

    def expected(self, unit: str) -> float | None:
        """Return what one attempt costs, in dollars or tokens; None is unknown."""
        return self._budget.expected(unit)

    @property
    def _ceiling(self) -> int:
        return max(1, self.limits.max_agents)

    def _blocked(self) -> float:
        """Return the moment before which nothing is launched."""
        return max(self._pause, *self._clocks.values(), 0.0)

    def _fill(self, now: float) -> None:
        most = float(max(1, self.limits.burst))
        self._bucket = min(most, self._bucket + max(0.0, now - self._filled) * max(0.0, self.limits.launch_rate))
        self._filled = now

    def _allowed(self, now: float, wanted: int, running: int) -> tuple[int, str]:
        """Return how many agents may be launched apart from the hosts, and what prevents more."""
        if wanted <= 0 or now < self._blocked():
            return 0, ""
        if running >= self.window:
            return 0, "ceiling" if self.window == self._ceiling else "window"
        if self._budget.tripped():
            return 0, ""
        allowed: list[tuple[float, str]] = [
            (wanted, ""),
            (self._ceiling - running, "ceiling"),
            (self.window - running, "window"),
            (self._budget.slots(now, running), "budget"),
            (self._budget.attempts_left(), "agents"),
            (math.floor(self._bucket) if self.limits.launch_rate else math.inf, "rate"),
        ]
        count, held = min(allowed, key=lambda pair: pair[0])
        return max(0, int(count)), held

    # State

    def to_json(self, now: float) -> dict[str, Any]:
        """Return all that was learned, without the limits, which are the user's."""
        return {
            "version": 1,
            "window": self._window,
            "knee": self._knee,
            "well": self._well,
            "cut": self._cut,
            "strikes": self._strikes,
            "pause": self._pause,
            "clocks": dict(self._clocks),
            "bucket": self._bucket,
            "filled": self._filled,
            "budget": self._budget.to_json(now),
            "young": self._capacity.to_json(),
        }

    @classmethod
    def from_json(cls, limits: Limits, data: Any, now: float) -> Governor:
        """Restore a governor. Missing or invalid values are as in a new one."""
        new, saved = cls(limits, now), a_dict(data)
        new._window = max(1.0, min(number(saved.get("window"), new._window), float(new._ceiling)))
        # Until agents are counted, assume that the window is full, so that a sign of overload halves it.
        new._busy = new.window if "window" in saved else 0
        new._knee = min(number(saved.get("knee"), 0.0), NUMBER_MAX)
        new._well = min(number(saved.get("well"), 0.0), NUMBER_MAX)
        new._cut = cut if is_number(cut := saved.get("cut")) and cut <= now else None
        new._strikes = int(min(number(saved.get("strikes"), 0), 20))
        new._pause = min(number(saved.get("pause"), 0.0), now + PAUSE_MAX)
        clocks = list(a_dict(saved.get("clocks")).items())[:CLOCKS_MAX]
        new._clocks = {str(kind): min(until, now + RESET_MAX) for kind, until in clocks if is_number(until)}
        new._bucket = min(number(saved.get("bucket"), new._bucket), new._bucket)
        new._filled = min(number(saved.get("filled"), now), now)
        new._budget.restore(saved.get("budget"), now)
        new._capacity.restore(saved.get("young"), now)
        return new
