"""Fleet: verbs whose answer depends on what changes while they run."""

from __future__ import annotations

import pytest

from muster import Fleet
from muster.model import Status

from .conftest import World

READY = frozenset({"ready"})


@pytest.fixture
def fleet(world: World) -> Fleet:
    return Fleet(world.env, str(world.repo))


def test_labels_that_another_process_set_meanwhile_are_kept(world: World, fleet: Fleet) -> None:
    world.ok("create", "one", "command", "--no-connect", "--", "true")
    before = fleet.get("one")
    world.ok("label", "one", "--set", "theirs=1", "--set", "gone=1")
    fleet.label(before, {"ours": "2"}, ["gone"])
    assert fleet.get("one").agent.labels == {"theirs": "1", "ours": "2"}


def test_wait_does_not_count_an_agent_that_has_left_the_state_again(world: World, fleet: Fleet) -> None:
    first, second = world.folder / "first", world.folder / "second"
    busy = '[[step]]\nrun = "while [ ! -e {} ]; do sleep 0.05; done"\n[[step]]\nturn = "Done."\n'
    book = world.playbook('[[step]]\nturn = "Hello."\n' + busy.format(first), "first.toml")
    world.ok("create", "first", "replay", "--no-connect", "--", book)
    world.ok("create", "second", "replay", "--no-connect", "--", world.playbook(busy.format(second), "second.toml"))
    world.wait_state("first", "ready")
    world.wait_state("second", "working")

    def seen(status: Status) -> None:
        """Take each agent's readiness as the sign for the other one."""
        if status.agent.name == "second":
            first.touch()
        elif not second.exists():
            world.ok("message", "first", "-m", "go on")
            world.wait_state("first", "working")
            second.touch()

    latest = fleet.wait([fleet.get("first"), fleet.get("second")], READY, timeout=60, seen=seen)
    assert [status.state for status in latest] == ["ready", "ready"]
