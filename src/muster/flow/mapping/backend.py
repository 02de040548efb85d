"""What a scheduler needs of the world: the time, hands that do what takes long, and hosts on which agents live."""

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


class Ended(Protocol):
    """Work that has ended on a field (`fanout.Outcome` is one)."""

    @property
    def item(self) -> Any: ...
    @property
    def value(self) -> Any: ...
    @property
    def error(self) -> MusterError | None: ...


class Sight(NamedTuple):
    """One host as it was seen: its agents by name, what each of them used, and how busy it is."""

    agents: dict[str, Status]
    bills: dict[str, tuple[float | None, int | None]]
    load: HostLoad


class Harvest(NamedTuple):
    """What was brought home of an attempt."""

    outcome: Outcome
    """Without the outcome itself, the reason and the time: whoever ended the attempt knows those."""
    status: Status | None = None
    """Of the agent, right before it was harvested; None if the agent was gone."""


class Field(Protocol):
    """Where agents live: the fleet, or a simulated one. `launch` and what follows may take long, and raise `MusterError`."""

    hands: int
    """So much of what takes long is done at once, beside looks; the rest waits."""

    def now(self) -> float: ...
    def begin(self, key: Key, work: Callable[[], object]) -> None: ...
    def done(self, timeout: float) -> list[Any]: ...
    def asked(self) -> int:
        """How often a person has asked for an end."""
        ...

    def rest(self, seconds: float) -> None: ...

    def today(self, total: Spend) -> settings.Today:
        """What all runs spent today, when this one has come to `total`."""
        ...

    def alert(self, cause: str, text: str) -> None:
        """Tell a person, by whatever the user has for that; nobody waits for it."""
        ...

    def launch(self, task: Task, attempt: Attempt) -> None: ...
    def look(self, place: str) -> Sight: ...
    def tell(self, attempt: Attempt, text: str, answer: bool) -> None: ...
    def harvest(self, task: Task, attempt: Attempt) -> Harvest:
        """Bring all that the agent left into the attempt's folder."""
        ...

    def clear(self, attempt: Attempt) -> None:
        """End the agent and take its work dir away; what was harvested stays."""
        ...
