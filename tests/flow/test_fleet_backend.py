"""The fleet as the backend of a run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from muster.flow.mapping import fleet_backend


class _Fleet:
    """A fleet whose agent is tallied late: each look shows the next usage."""

    def __init__(self, *usages: dict[str, Any]) -> None:
        self.usages = list(usages)

    def look(self, one: Any) -> Any:
        return SimpleNamespace(usage=self.usages.pop(0) if len(self.usages) > 1 else self.usages[0])


def _tallied(fleet: _Fleet, first: dict[str, Any], spoken: int) -> Any:
    made = object.__new__(fleet_backend.FleetBackend)
    made.fleet = fleet  # type: ignore[assignment]
    made.rest = lambda seconds: None  # type: ignore[method-assign]
    return made._tallied(SimpleNamespace(status=SimpleNamespace(usage=first)), spoken).usage


def test_a_harvest_waits_until_the_last_turn_is_tallied() -> None:
    early, late = {"input_tokens": 100, "output_tokens": 10}, {"input_tokens": 200, "output_tokens": 20}
    assert _tallied(_Fleet(early, early, late), early, 220) == late


def test_usage_that_covers_the_transcript_is_taken_at_once() -> None:
    usage = {"input_tokens": 200, "output_tokens": 20, "cache_read_tokens": 5}
    assert _tallied(_Fleet({}), usage, 220) == usage


def test_a_tally_that_never_comes_is_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_backend, "TALLY_SECONDS", 0.0)
    assert _tallied(_Fleet({}), {}, 220) == {}
