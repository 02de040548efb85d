"""When each host is polled next."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator


class PollSchedule:
    def __init__(self, batch_seconds: float) -> None:
        """`batch_seconds`: polls that fall due within this time are taken together."""
        self.batch_seconds = batch_seconds
        self.polled: dict[str, float] = {}
        """When each host was last polled."""
        self.next_at = math.inf
        """When the next poll is due."""
        self._heap: list[tuple[float, str]] = []
        self._due: dict[str, float] = {}
        """When each host's next poll is due. Other entries of the heap are void."""

    def add(self, place: str, seconds: float) -> None:
        """Poll a host this many seconds after its last poll, unless an earlier poll is scheduled."""
        at = self.polled.get(place, 0.0) + seconds
        if at < self._due.get(place, math.inf):
            self._due[place] = at
            heapq.heappush(self._heap, (at, place))
            self.next_at = min(self.next_at, at)

    def take(self, now: float) -> Iterator[str]:
        """Yield the hosts whose poll is due. Each is polled again only once it is added again."""
        while self._heap and self._heap[0][0] <= now:
            at, place = heapq.heappop(self._heap)
            if self._due.get(place) == at:
                del self._due[place]
                yield place
        self.next_at = max(now + self.batch_seconds, self._heap[0][0]) if self._heap else math.inf
