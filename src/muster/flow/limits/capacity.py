"""Chooses the hosts on which new agents fit, by memory, load and disk as last measured and by what was launched since. Asks no host.

A None measurement sets no limit.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from .limits import Limits, a_list, fits, is_number, size, word

#: Seconds after its launch until a measurement shows all that an agent takes, and until it shows the load.
SETTLE_SECONDS = 10.0
BUSY_SECONDS = 3.0
#: The room of a host without measurements when hosts are compared; it sets no limit.
SLOTS_UNKNOWN = 8
YOUNG_MAX = 10_000


class HostLoad(NamedTuple):
    """The last measurement of a host."""

    name: str
    cores: float | None = None
    load: float | None = None
    """The load of one minute, or the number of processes that are ready to run now if that is lower; of all cores together."""
    memory_free: float | None = None
    disk_free: float | None = None
    running: int | None = None
    """Agents of this run on the host."""
    reachable: bool = True
    at: float | None = None
    """When it was measured; None means now."""


class _Slots(NamedTuple):
    """How many more agents fit on a host by one measurement."""

    host: HostLoad
    limits: Limits
    room: float
    """By memory and disk, whichever is less."""
    scarce: str
    """Which of the two that is."""
    load: float
    free: float
    """By memory, disk and load together."""


class Capacity:
    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        # When the agents were launched that a measurement may not show yet, by host
        self._young: dict[str, deque[float]] = {}
        # The result for the last measurement of each host, cached: it is used a thousand times
        self._kept: dict[str, _Slots] = {}
        self._short: list[str] = []

    def take(self, now: float, count: int, hosts: Sequence[HostLoad], idle: bool) -> list[str]:
        """Return the hosts for up to `count` new agents, and count these as launched.

        Each agent goes to the host with the most room, so that the hosts fill evenly. If only load is in the way and the run is idle,
        one agent is placed all the same: the load may come from others and last, and a slow run is better than none.
        """
        self._short = []
        ranked: list[tuple[float, int, int, float]] = []
        loaded: list[tuple[float, int]] = []
        limits, kept, all_young = self.limits, self._kept, self._young
        for index, host in enumerate(hosts):
            if not host.reachable:
                continue
            name = host.name
            found = kept.get(name)
            if found is None or found[0] is not host or found[1] is not limits:
                found = kept[name] = self._slots(host)
            _, _, slots, scarce, load, free = found
            young = new = 0
            if all_young.get(name):
                young, new = self._young_since(now, host)
                free = min(slots - young, load - new)
            if free >= 1:
                running = host.running or 0
                ranked.append((-free if free < math.inf else running - SLOTS_UNKNOWN, running, index, free))
                continue
            busy = load - new < slots - young
            self._short.append(_shortage(host, "load" if busy else scarce, new if busy else young, self.limits))
            if slots - young >= 1:
                loaded.append(((host.load or 0.0) / max(1.0, host.cores or 1.0), index))
        heapq.heapify(ranked)
        names: list[str] = []
        while ranked and len(names) < count:
            rank, agents, index, free = heapq.heappop(ranked)
            names.append(hosts[index].name)
            if free >= 2:
                heapq.heappush(ranked, (rank + 1, agents + 1, index, free - 1))
            else:
                self._short.append(f"{_name(hosts[index])} is full for now")
        if not names and loaded and idle and count > 0:
            names.append(hosts[min(loaded)[1]].name)
        for name in names:
            self._young.setdefault(name, deque()).append(now)
        return names

    def next(self, now: float) -> float | None:
        """Return when a measurement will show the next of the newly launched agents."""
        grown = [moment + SETTLE_SECONDS for moments in self._young.values() for moment in moments]
        return min((moment for moment in grown if moment > now), default=None)

    def why(self) -> str:
        """Say why the last `take` placed no more agents."""
        more = len(self._short) - 3
        return f"no room: {'; '.join(self._short[:3]) or 'no host answers'}" + (f"; {more} more" if more > 0 else "")

    def to_json(self) -> list[list[Any]]:
        # All of them: how long each counts depends on when its host is measured next.
        return sorted([moment, name] for name, moments in self._young.items() for moment in moments)

    def restore(self, data: Any, now: float) -> None:
        for grant in a_list(data, YOUNG_MAX):
            if isinstance(grant, list) and len(grant) == 2 and is_number(grant[0]) and isinstance(grant[1], str):
                self._young.setdefault(grant[1], deque()).append(min(grant[0], now))

    def _slots(self, host: HostLoad) -> _Slots:
        limits = self.limits
        room, scarce, load = math.inf, "", math.inf
        if limits.min_memory and is_number(host.memory_free):
            room, scarce = fits(host.memory_free, limits.min_memory), "memory"
        if limits.min_disk and is_number(host.disk_free):
            room, scarce = min((room, scarce), (fits(host.disk_free - limits.min_disk, limits.agent_disk), "disk"))
        if limits.max_load and is_number(host.load) and is_number(host.cores):
            load = fits(limits.max_load * max(1.0, host.cores) - host.load, limits.agent_load)
        return _Slots(host, limits, room, scarce, load, min(room, load))

    def _young_since(self, now: float, host: HostLoad) -> tuple[int, int]:
        """Return how many agents the measurement does not show yet, and how many of them it does not show as load.

        Agents that are gone already do not count.
        """
        moments = self._young[host.name]
        measured = now if host.at is None else min(now, host.at)
        while moments and moments[0] <= measured - SETTLE_SECONDS:
            moments.popleft()
        new = len(moments)
        while new and moments[-new] <= measured - BUSY_SECONDS:
            new -= 1
        most = len(moments) if host.running is None else min(len(moments), host.running)
        return most, min(new, most)


def _shortage(host: HostLoad, what: str, young: int, limits: Limits) -> str:
    if what == "load":
        has, limit = f"load {host.load:.1f} on {host.cores:g} cores", f"{limits.max_load:g} a core"
    elif what == "memory":
        has, limit = f"{size(host.memory_free or 0.0)} of memory free", f"{size(limits.min_memory)} an agent"
    else:
        has, limit = (
            f"{size(host.disk_free or 0.0)} of disk free",
            f"{size(limits.min_disk)} stay free beside {size(limits.agent_disk)} for each new agent",
        )
    just = f", and {young} just launched" if young else ""
    return f"{_name(host)} has {has}{just} ([limits] {what}: {limit})"


def _name(host: HostLoad) -> str:
    return word(host.name) or "this machine"
