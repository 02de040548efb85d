"""The limits of a run, and helpers for numbers and their text. Nothing here knows what was used."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, TypeGuard

NUMBER_MAX = 1e15


class Limits(NamedTuple):
    """0 or None means no limit; `max_agents`, `start` and `burst` are at least 1."""

    max_agents: int = 20
    start: int = 4
    """How many agents run at once at first."""
    launch_rate: float = 10.0
    """Launches per second; up to `burst` at once after a pause."""
    burst: int = 10
    min_memory: int = 400 << 20
    """Bytes of memory that must be free for each new agent."""
    min_disk: int = 2 << 30
    """Bytes of disk that must stay free when each new agent has taken `agent_disk`."""
    agent_disk: int = 100 << 20
    max_load: float = 3.0
    """Load per core above which nothing is launched. A new agent is expected to add `agent_load`."""
    agent_load: float = 0.1
    reserve: float = 0.0
    """The share of the run's budgets that is reserved for the integrator."""
    dollars: float | None = None
    tokens: float | None = None
    seconds: float | None = None
    agents: int | None = None
    """Attempts of the run, all tasks together."""
    task_dollars: float | None = None
    """For all attempts at a task together."""
    task_tokens: float | None = None
    task_seconds: float | None = None
    day_dollars: float | None = None
    day_tokens: float | None = None
    day_seconds: float | None = None
    """Seconds during which runs were worked on, all runs together."""
    day_agents: int | None = None
    expected_dollars: float | None = None
    """What an attempt is expected to cost until one has ended; None is unknown."""
    expected_tokens: float | None = None
    breaker: float = 5.0
    """How many times the median cost of an attempt may be spent, per agent at work, before one brings a result."""

    @property
    def share(self) -> float:
        """The share of the run's budgets that is not reserved."""
        return 1 - min(1.0, max(0.0, self.reserve))

    @property
    def attempts(self) -> int | None:
        return math.floor(self.agents * self.share + 1e-9) if self.agents else None


# Numbers


def is_number(value: Any) -> TypeGuard[float]:
    """Return whether the value is a finite number of at least 0. A bool does not count as a number."""
    return type(value) in (int, float) and 0 <= value <= NUMBER_MAX


def number(value: Any, default: float) -> float:
    return value if is_number(value) else default


def known(value: Any) -> float | None:
    return value if is_number(value) else None


def fits(free: float, each: float) -> float:
    """Return how often `each` goes into `free`, with some tolerance: 0.1 goes into 0.3 three times."""
    if not each:
        return math.inf if free > 0 else 0
    return max(0, math.floor(free / each + 1e-9))


def a_dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def a_list(value: Any, most: int) -> list[Any]:
    return value[-most:] if isinstance(value, list) else []


# Words


def amount(unit: str, value: float) -> str:
    """Format an amount of dollars, tokens or seconds."""
    if unit == "seconds":
        return span(value)
    if unit == "dollars":
        return f"${value:,.2f}" if value >= 0.1 or not value else f"${value:.2g}"
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{letter} tokens"
    return f"{value:.0f} tokens"


def span(seconds: float) -> str:
    if seconds < 100:
        return f"{math.ceil(seconds)} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 100 * 3600 else f"{seconds / 86400:.1f} days"


def size(count: float) -> str:
    return f"{count / (1 << 30):.1f} GB" if count >= 1 << 30 else f"{count / (1 << 20):.0f} MB"


def word(text: str) -> str:
    """Return a foreign name, shortened and without control characters, for a message of ours."""
    return "".join(char if char.isprintable() else "?" for char in text[:60])
