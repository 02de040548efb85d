"""A user with a real client, a scripted model, and no network but loopback."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ..conftest import Result, World
from ..support import clients
from ..support.model_server import ModelServer


class Claude(World):
    """A world in which `claude` is on the PATH and everything runs in a network namespace of its own."""

    def __init__(self, folder: Path, offline: clients.Offline, server: ModelServer) -> None:
        super().__init__(folder)
        self.offline = offline
        self.server = server
        clients.claude_home(self.home, folder, bypass=False)
        self.env |= clients.claude_env(server.url, self.home)
        self.env["PATH"] = f"{self.bin}:{clients.find('claude').parent}:{self.env['PATH']}"

    def run(self, *argv: str, cwd: Path | None = None, input: bytes | None = None, **more: Any) -> Result:
        done = subprocess.run(
            self.offline.argv(self.bin / "muster", *argv),
            cwd=cwd or self.repo,
            env={**self.env, **more.get("env", {})},
            input=input or b"",
            capture_output=True,
            timeout=120,
            check=False,
        )
        return Result(done)

    def heard(self) -> list[str]:
        """What reached the model, of the one conversation that there is."""
        return self.server.user_texts()

    def each_heard(self) -> list[list[str]]:
        """What reached the model, of each conversation in the order in which they began."""
        sessions = dict.fromkeys(request.session for request in self.server.turns())
        return [self.server.user_texts(session) for session in sessions]


@pytest.fixture
def claude(tmp_path: Path) -> Iterator[Claude]:
    try:
        clients.find("claude")
        offline = clients.Offline()
    except clients.Missing as missing:
        pytest.skip(str(missing))
    with offline, ModelServer(netns=offline.path) as server:
        world = Claude(tmp_path / "w", offline, server)
        yield world
        world.end()
