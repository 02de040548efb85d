"""The battery of checks with the pinned version of each client; `python -m tests.agents.battery` runs it with others."""

from __future__ import annotations

import pytest

from ..support import clients
from . import battery

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("client", ["claude", "codex"])
def test_the_pinned_version_passes_the_battery(client: str) -> None:
    try:
        _, place = battery.install(client, "pinned")
        with clients.Offline():
            pass
    except clients.Missing as missing:
        pytest.skip(str(missing))
    outcomes = battery.run(client, place, jobs=2)
    assert {outcome.name: outcome.why for outcome in outcomes if outcome.why} == {}


def test_each_check_has_a_name_of_its_own_and_there_are_enough() -> None:
    names = [name for group in battery.CHECKS.values() for name in group]
    assert len(names) == len(set(names)) >= 40
