"""The kinds of host the contract holds for. A new provider adds its own here and nothing in the tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ..conftest import World


class Place:
    """Somewhere agents can live."""

    def __init__(self, world: World, suffix: str, state: Path) -> None:
        self.world = world
        self.suffix = suffix
        self.state = state

    def at(self, name: str) -> str:
        return f"{name}{self.suffix}"


@pytest.fixture(params=["local", "ssh"])
def place(request: pytest.FixtureRequest, world: World) -> Iterator[Place]:
    if request.param == "local":
        yield Place(world, "", world.muster_home)
    else:
        server = request.getfixturevalue("sshd")
        yield Place(world, "@box", server.home / ".local" / "state" / "muster")
