"""How many agents may be launched now, and on which hosts: decided from evidence alone. It starts nothing and has no clock: moments
(seconds since the epoch), measurements and totals come in; names of hosts, spent budgets and words for people go out.

More at once while all goes well, half as many on a sign of a limit or of overload, none before a reset that is known, and never
more than the hosts have room for and the budgets pay for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from .budget import UNKNOWN, Breach, Estimate, Purse, Spend, estimate
from .capacity import HostLoad, Places
from .limits import NUMBER_MAX, Limits, a_dict, is_number, number, span, word

__all__ = ["UNKNOWN", "Breach", "Estimate", "Governor", "HostLoad", "Limits", "Spend", "estimate"]

#: One burst of refusals is one sign, however many agents meet it and however late each of them is seen.
CUT_SECONDS = 10.0
#: The pause after a sign of overload without a known end, as long as its echoes; it doubles, up to the most, with each further sign.
PAUSE_SECONDS, PAUSE_MAX = CUT_SECONDS, 600.0
#: So long after a sign of a limit there may be as many at once as there were when it came; see `_recover`.
RECOVER_SECONDS = 300.0
#: A window counts as used when so much of it is. More time than this between two looks at the clock was not all spent at work.
USED, STEP_SECONDS = 0.9, 10.0
#: The longest quota window is a week: a reset that is told to be later is an error, and must not hold a run for ever.
RESET_MAX = 8 * 86400.0
CLOCKS_MAX = 32


class Governor:
    """One run's. Its `limits` may be replaced at any time. `now` is meant never to go back."""

    def __init__(self, limits: Limits, now: float) -> None:
        self._limits = limits
        self._purse = Purse(limits, now)
        self._places = Places(limits)
        # How many at once, and by what it was learned
        self._window = float(max(1, min(limits.start, limits.max_agents)))
        self._knee = 0.0
        """How many there were at once when the last sign of a limit came; 0 before the first."""
        self._well = 0.0
        """The seconds since then in which all went well."""
        self._cut: float | None = None
        self._strikes = 0
        self._pause = 0.0
        self._clocks: dict[str, float] = {}
        self._busy = 0
        # Launches that the rate allows at once, as of a moment
        self._bucket = float(max(1, limits.burst))
        self._filled = now
        self._held = ""

    @property
    def limits(self) -> Limits:
        return self._limits

    @limits.setter
    def limits(self, limits: Limits) -> None:
        self._limits = self._purse.limits = self._places.limits = limits

    # What happened

    def went_well(self, now: float) -> None:
        """A launch or a turn went well."""
        if now < self._blocked():
            return  # begun before the pause, so it says nothing about what comes after it
        self._strikes = 0
        # Each success adds one until the first sign of a limit. A window that is not used proves nothing, so it stays within reach of
        # what is.
        if not self._knee and self.window < 2 * max(1, self._busy):
            self._window = min(self._window + 1, self._ceiling)

    def _recover(self, now: float, running: int) -> None:
        """After a sign of a limit: from half of what was too much to all of it in some minutes, most of that soon, and then beyond,
        more and more. By time, and not by how many have ended since: agents take an hour each, and the limits of providers count
        minutes. Those that are too many and still at work show that all goes well, too; beyond all of it only those do that use it.
        """
        if now < self._blocked() or not self._knee:
            return
        if self._well < RECOVER_SECONDS or running >= USED * self.window:
            self._well += min(max(0.0, now - self._filled), STEP_SECONDS)
        times = self._well / RECOVER_SECONDS
        self._window = max(self._window, min(self._knee + max(1.0, self._knee / 2) * (times - 1) ** 3, self._ceiling))

    def pressure(self, now: float, kind: str, until: float | None = None) -> bool:
        """A rate limit, a spent quota or overload was seen; `until` is when that limit ends, where it is known. True when it is
        news: from now on there are fewer at once, or there is one more thing to wait for.

        The moments of several kinds all count, and of one kind the latest.
        """
        if is_number(until) and until <= now:
            return False  # over, by its own word: it is only still to be read
        # Whoever meets a limit while nothing is launched was at work before: the same sign, seen later. So it is while more are at
        # work than there may be since then: that they are too many is known.
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
            # Too many kinds are one: what counts is the latest.
            kind = kind if kind in self._clocks or len(self._clocks) < CLOCKS_MAX else next(iter(self._clocks))
            self._clocks[kind] = max(self._clocks.get(kind, 0.0), reset)
        if not echo:
            # Half of what was really at once: a wide window that nobody used was not what was too much.
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
        """Fresh totals: of the run with its attempts, of the day by that name, and of each task that has an agent now.

        No total ever goes down, but another day begins anew, and a task that is not named is forgotten. The run's seconds are
        counted here and not taken from `run`.
        """
        self._purse.spent(now, run, day, today, tasks or {})
        self._purse.launched = max(self._purse.launched, agents)

    def ended(self, now: float, cost: Spend, *, progress: bool) -> None:
        """An attempt is over, at this cost; `progress` when it brought its task a result."""
        self._purse.ended(cost, progress)
        if progress:
            self.progress(now)

    def progress(self, now: float) -> None:
        """What was spent until now was not in vain."""
        self._purse.progress(self._busy)

    def lift(self, now: float) -> None:
        """A person says to go on: clocks, pauses and the breaker are forgotten. Budgets are not."""
        self._clocks, self._pause, self._strikes = {}, 0.0, 0
        self.progress(now)

    # What follows

    @property
    def window(self) -> int:
        """How many agents may be at work at once, by what was learned so far; from 1 to `max_agents`."""
        return max(1, min(int(self._window), self._ceiling))

    @property
    def launched(self) -> int:
        return self._purse.launched

    def may(self, now: float, wanted: int, running: int) -> bool:
        """Whether there may be `room` at all, whatever the hosts say."""
        return self._count(now, wanted, running) > 0

    def room(self, now: float, wanted: int, running: int, hosts: Sequence[HostLoad]) -> list[str]:
        """The host of each agent that may be launched now, `wanted` at most. Each name counts as launched.

        `running` is every agent of the run that was launched and is not gone, also those that are starting or being stopped.
        """
        count = self._count(now, wanted, running)
        names = self._places.take(now, count, hosts, idle=running == 0) if count else []
        if len(names) < count:
            self._held = "hosts"
        self._bucket = max(0.0, self._bucket - len(names))
        self._busy += len(names)
        self._purse.took(len(names), self._busy)
        return names

    def _count(self, now: float, wanted: int, running: int) -> int:
        self._busy = running
        self._recover(now, running)
        self._fill(now)
        count, self._held = self._allowed(now, wanted, running)
        return count

    def over(self, now: float) -> list[Breach]:
        """Budgets that are exceeded: what they name is to be stopped and harvested now.

        With the scope `progress` it is the breaker: nothing is launched until an agent in flight brings a result, or `lift`.
        """
        return self._purse.over(now)

    def closed(self, now: float) -> list[Breach]:
        """Budgets that let no agent start any more, even when none is in flight: what waits then would wait for ever."""
        return self._purse.closed(now)

    def next(self, now: float) -> float | None:
        """When something may change by time alone; None when only by what happens."""
        launch = self._blocked()
        if self._held == "rate" and self.limits.launch_rate > 0:
            # A bit later than the very moment: sums of floats may fall short of it.
            launch = max(launch, self._filled + (1 - self._bucket) / self.limits.launch_rate + 0.001)
        moments = [launch, self._purse.next(now), self._places.next(now) if self._held == "hosts" else None]
        return min((moment for moment in moments if moment is not None and moment > now), default=None)

    def why(self, now: float) -> str:
        """One line: what holds back the next agent, as of the last `room`; empty when nothing does."""
        if breaches := [breach for breach in self.over(now) if breach.scope != "task"]:
            return breaches[0].words
        if now < self._blocked():
            kind = max(self._clocks, key=lambda kind: self._clocks[kind], default="")
            if self._clocks.get(kind, 0.0) >= self._pause:
                return f"limit {word(kind)}: resets in {span(self._clocks[kind] - now)}"
            return f"overload: next try in {span(self._pause - now)}"
        if self._held == "budget":
            return self._purse.why(now, self._busy)
        if self._held == "hosts":
            return self._places.why()
        return {
            "agents": next((breach.words for breach in self.closed(now) if breach.unit == "agents"), ""),
            "ceiling": f"{self._ceiling} at once (--max-agents)",
            "window": f"{self.window} at once so far, more as it goes well",
            "rate": f"{self.limits.launch_rate:g} launches a second",
        }.get(self._held, "")

    def seconds(self, now: float) -> float:
        """How long the run has been run, by whichever process."""
        return self._purse.seconds(now)

    def expected(self, unit: str) -> float | None:
        """What one attempt comes to, in dollars or tokens; None is not known."""
        return self._purse.expected(unit)

    @property
    def _ceiling(self) -> int:
        return max(1, self.limits.max_agents)

    def _blocked(self) -> float:
        """Nothing is launched before this moment."""
        return max(self._pause, *self._clocks.values(), 0.0)

    def _fill(self, now: float) -> None:
        most = float(max(1, self.limits.burst))
        self._bucket = min(most, self._bucket + max(0.0, now - self._filled) * max(0.0, self.limits.launch_rate))
        self._filled = now

    def _allowed(self, now: float, wanted: int, running: int) -> tuple[int, str]:
        """How many, whatever the hosts say, and what it is that allows no more."""
        if wanted <= 0 or now < self._blocked():
            return 0, ""
        if running >= self.window:
            return 0, "ceiling" if self.window == self._ceiling else "window"
        if self._purse.tripped():
            return 0, ""
        allowed: list[tuple[float, str]] = [
            (wanted, ""),
            (self._ceiling - running, "ceiling"),
            (self.window - running, "window"),
            (self._purse.slots(now, running), "budget"),
            (self._purse.attempts_left(), "agents"),
            (math.floor(self._bucket) if self.limits.launch_rate else math.inf, "rate"),
        ]
        count, held = min(allowed, key=lambda pair: pair[0])
        return max(0, int(count)), held

    # What is kept when the orchestrator is not

    def to_json(self, now: float) -> dict[str, Any]:
        """Everything that was learned; the limits are the user's, and not in it."""
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
            "purse": self._purse.to_json(now),
            "young": self._places.to_json(),
        }

    @classmethod
    def from_json(cls, limits: Limits, data: Any, now: float) -> Governor:
        """As it was; what is missing, or is not what `to_json` writes, is as in a new one."""
        new, told = cls(limits, now), a_dict(data)
        new._window = max(1.0, min(number(told.get("window"), new._window), float(new._ceiling)))
        # Until it is counted: as many as there may be, for a sign of overload to halve.
        new._busy = new.window if "window" in told else 0
        new._knee = min(number(told.get("knee"), 0.0), NUMBER_MAX)
        new._well = min(number(told.get("well"), 0.0), NUMBER_MAX)
        new._cut = cut if is_number(cut := told.get("cut")) and cut <= now else None
        new._strikes = int(min(number(told.get("strikes"), 0), 20))
        new._pause = min(number(told.get("pause"), 0.0), now + PAUSE_MAX)
        clocks = list(a_dict(told.get("clocks")).items())[:CLOCKS_MAX]
        new._clocks = {str(kind): min(until, now + RESET_MAX) for kind, until in clocks if is_number(until)}
        new._bucket = min(number(told.get("bucket"), new._bucket), new._bucket)
        new._filled = min(number(told.get("filled"), now), now)
        new._purse.restore(told.get("purse"), now)
        new._places.restore(told.get("young"), now)
        return new
