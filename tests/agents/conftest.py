"""A user with a real client, a scripted model, and no network but loopback."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ..conftest import Result, World
from ..support import clients
from ..support.model_server import ModelServer


class ClientWorld(World):
    """A world in which one client is on the PATH and everything runs in a network namespace of its own."""

    client = ""

    def __init__(self, folder: Path, offline: clients.Offline, server: ModelServer, place: Path | None = None) -> None:
        """`place` is the folder of the client's program; without it the pinned one is used."""
        super().__init__(folder)
        self.offline = offline
        self.server = server
        self.settle()
        self.settings = {path: path.read_bytes() for path in self.home.rglob("*") if path.is_file()}
        self.env["PATH"] = f"{self.bin}:{place or clients.find(self.client).parent}:{os.environ['PATH']}"

    def settle(self) -> None:
        """The user's home and environment, as the client finds them."""
        raise NotImplementedError

    def run(self, *argv: str, cwd: Path | None = None, input: bytes | None = None, **more: Any) -> Result:
        done = subprocess.run(
            self.offline.argv(self.bin / "muster", *argv),
            cwd=cwd or self.repo,
            env={**self.env, **more.get("env", {})},
            input=input or b"",
            capture_output=True,
            timeout=more.get("timeout", 320),
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

    def made(self, text: str, *options: str) -> None:
        self.ok("create", "one", self.client, "--no-connect", *options, "-m", text)

    def until(self, state: str) -> dict[str, Any]:
        self.ok("wait", "one", "--until", state, "--timeout", "60s")
        return self.agents()["one"]


class Claude(ClientWorld):
    client = "claude"

    def settle(self) -> None:
        clients.claude_home(self.home, self.folder, bypass=False)
        self.env |= clients.claude_env(self.server.url, self.home)


class Codex(ClientWorld):
    client = "codex"

    def settle(self) -> None:
        # It ran before: at its very first start it writes this down by itself.
        ran = "[tui]\nscreen_reader_detection_done = true\n"
        clients.codex_home(self.home, server_url=self.server.url, ask=True, more=ran)
        self.env |= clients.codex_env(self.server.url, self.home)


class Opencode(ClientWorld):
    client = "opencode"

    def settle(self) -> None:
        clients.opencode_home(self.home, self.server.url, permission={"bash": "ask"})
        self.env |= clients.opencode_env(self.server.url, self.home)


class Pi(ClientWorld):
    client = "pi"

    def settle(self) -> None:
        clients.pi_home(self.home, self.server.url, cost=1.0)
        self.env |= clients.pi_env(self.server.url, self.home)


class Copilot(ClientWorld):
    client = "copilot"

    def settle(self) -> None:
        clients.copilot_home(self.home)
        self.env |= clients.copilot_env(self.server.url, self.home)


class Mini(ClientWorld):
    client = "mini"

    def settle(self) -> None:
        self.env |= clients.mini_env(self.server.url, self.home)


def _world(kind: type[ClientWorld], folder: Path) -> Iterator[ClientWorld]:
    try:
        clients.find(kind.client)
        offline = clients.Offline()
    except clients.Missing as missing:
        pytest.skip(str(missing))
    with offline, ModelServer(netns=offline.path) as server:
        world = kind(folder, offline, server)
        yield world
        world.end()


@pytest.fixture
def claude(tmp_path: Path) -> Iterator[ClientWorld]:
    yield from _world(Claude, tmp_path / "w")


@pytest.fixture
def codex(tmp_path: Path) -> Iterator[ClientWorld]:
    yield from _world(Codex, tmp_path / "w")


@pytest.fixture
def opencode(tmp_path: Path) -> Iterator[ClientWorld]:
    yield from _world(Opencode, tmp_path / "w")


@pytest.fixture
def pi(tmp_path: Path) -> Iterator[ClientWorld]:
    yield from _world(Pi, tmp_path / "w")


@pytest.fixture
def copilot(tmp_path: Path) -> Iterator[ClientWorld]:
    yield from _world(Copilot, tmp_path / "w")


@pytest.fixture
def mini(tmp_path: Path) -> Iterator[ClientWorld]:
    yield from _world(Mini, tmp_path / "w")
