"""On which hosts new agents fit, by memory, load and disk as last measured, and by what was launched too lately to be measured.
What it is told is all it knows: it asks no host, and None is a thing that holds nothing back.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from .limits import Limits, a_list, fits, is_number, size, word

#: So old is a new agent before a measurement of its host shows all of it; how busy it keeps the host is seen sooner.
SETTLE_SECONDS = 10.0
BUSY_SECONDS = 3.0
#: What a host of which nothing is known is thought to have room for when hosts are compared; it is not held to it.
SLOTS_UNKNOWN = 8
YOUNG_MAX = 10_000


class HostLoad(NamedTuple):
    """A host as last measured."""

    name: str
    cores: float | None = None
    load: float | None = None
    """Of one minute, or what wants to run now, if that is less: all cores together."""
    memory_free: float | None = None
    disk_free: float | None = None
    running: int | None = None
    """Agents of this run that were launched there and are not gone."""
    reachable: bool = True
    at: float | None = None
    """When it was measured; None is now."""


class _Slots(NamedTuple):
    """How many more agents fit on a host, by one measurement."""

    host: HostLoad
    limits: Limits
    room: float
    """By memory and disk."""
    scarce: str
    """Which of them is the less."""
    load: float
    free: float
    """By all of them."""


class Places:
    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        # Of each host, when the agents were launched that a measurement may not show yet
        self._young: dict[str, deque[float]] = {}
        # Of each host what followed from its last measurement: one is asked for a thousand times
        self._kept: dict[str, _Slots] = {}
        self._short: list[str] = []

    def take(self, now: float, count: int, hosts: Sequence[HostLoad], idle: bool) -> list[str]:
        """The hosts of up to `count` new agents, which count as launched: always where most room is left, so that hosts come to have
        about as much. Where only load is in the way and the run is idle, one is placed all the same: the load may be somebody else's
        and stay, and a run may be slow but does not stand still.
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
        """When the oldest of the young ones is old enough to be measured."""
        grown = [moment + SETTLE_SECONDS for moments in self._young.values() for moment in moments]
        return min((moment for moment in grown if moment > now), default=None)

    def why(self) -> str:
        """What was in the way of more, the last time."""
        more = len(self._short) - 3
        return f"no room: {'; '.join(self._short[:3]) or 'no host answers'}" + (f"; {more} more" if more > 0 else "")

    def to_json(self) -> list[list[Any]]:
        # All of them: how long one counts as young depends on when its host was measured last.
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
        """Agents launched there that the measurement does not show yet, and those of them that it does not show as load. Those
        that are gone already take no room."""
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
