"""Whose turn it is: each host is looked at again and again, and with many of them it is some host's turn at any moment."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator


class Turns:
    def __init__(self, pause: float) -> None:
        """`pause`: so long hosts wait for each other, to be taken together."""
        self.pause = pause
        self.looked: dict[str, float] = {}
        """When each host was last looked at."""
        self.due = math.inf
        """When the next turn is."""
        self._turns: list[tuple[float, str]] = []
        self._next: dict[str, float] = {}
        """The next turn of each host; others among the turns are void."""

    def want(self, place: str, after: float) -> None:
        """A turn so many seconds after the last look, unless it has a sooner one."""
        at = self.looked.get(place, 0.0) + after
        if at < self._next.get(place, math.inf):
            self._next[place] = at
            heapq.heappush(self._turns, (at, place))
            self.due = min(self.due, at)

    def take(self, now: float) -> Iterator[str]:
        """The hosts whose turn it is. One that is taken has its next turn when it is wanted again."""
        while self._turns and self._turns[0][0] <= now:
            at, place = heapq.heappop(self._turns)
            if self._next.get(place) == at:
                del self._next[place]
                yield place
        self.due = max(now + self.pause, self._turns[0][0]) if self._turns else math.inf
