"""What the scheduler needs of the world: a clock, threads for slow work, and hosts that run agents."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple, Protocol

from ... import Status
from ...errors import MusterError
from ..limits import settings
from ..limits.governor import HostLoad, Spend
from ..run.directory import Attempt
from ..run.records import Outcome
from ..run.tasks import Task

Key = tuple[str, Hashable]
"""The kind of work (`poll`, `launch`, `send`, `harvest`, `clear`), and the host or attempt that it is for."""


class Completed(Protocol):
    """Work that has ended: its key, and either a value or an error (`fanout.Outcome` is one)."""

    @property
    def item(self) -> Any: ...
    @property
    def value(self) -> Any: ...
    @property
    def error(self) -> MusterError | None: ...


class HostView(NamedTuple):
    """What one poll of a host shows: its agents by name, what each of them used, and the host's load."""

    agents: dict[str, Status]
    bills: dict[str, tuple[float | None, int | None]]
    """Dollars and tokens; None is unknown."""
    load: HostLoad


class Harvest(NamedTuple):
    """What was brought home of an attempt."""

    outcome: Outcome
    """Without the outcome itself, the reason and the time, which the scheduler fills in."""
    status: Status | None = None
    """The agent's status right before the harvest; None if the agent was gone."""


class Backend(Protocol):
    """Where agents live: the fleet, or a simulation. `launch` and the methods after it may take long and raise `MusterError`."""

    workers: int
    """How much slow work is done at once, besides polls; the rest queues."""

    def now(self) -> float: ...
    def start(self, key: Key, work: Callable[[], object]) -> None:
        """Run the work on another thread."""
        ...

    def completed(self, timeout: float) -> list[Any]:
        """Return the work that has ended, as `Completed`; wait up to `timeout` seconds for some."""
        ...

    def interrupts(self) -> int:
        """Return how often a person has pressed Ctrl-C."""
        ...

    def sleep(self, seconds: float) -> None: ...

    def spent_today(self, total: Spend) -> settings.Today:
        """Return what all runs spent today, given the total of this one."""
        ...

    def alert(self, cause: str, text: str) -> None:
        """Notify a person without waiting for it."""
        ...

    def launch(self, task: Task, attempt: Attempt) -> None: ...
    def poll(self, place: str) -> HostView: ...
    def send(self, attempt: Attempt, text: str, answer: bool) -> None:
        """Send the agent a message, or the answer to its question."""
        ...

    def harvest(self, task: Task, attempt: Attempt) -> Harvest:
        """Copy all that the agent left into the attempt's folder."""
        ...

    def clear(self, attempt: Attempt) -> None:
        """End the agent and remove its work dir. What was harvested stays."""
        ...
