"""The rows with real clients: three Claude Code agents against the scripted model server of the tests, without a network."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support import clients
from tests.support.model_server import ModelServer

AGENTS = 3


class Clients:
    """A user with some agents that are ready."""

    def __init__(self, muster: str, folder: Path, repo: Path, rounds: int) -> None:
        self.muster, self.folder, self.repo, self.rounds = muster, folder / "clients", repo, rounds
        self.offline = clients.Offline()
        self.server = ModelServer(netns=self.offline.path)
        self.target = ""
        home = self.folder / "home"
        clients.claude_home(home, self.folder, bypass=False)
        self.env = {
            **clients.claude_env(self.server.url, home),
            "PATH": f"{clients.find('claude').parent}:{os.environ['PATH']}",
            "MUSTER_HOME": str(self.folder / "state"),
        }

    @contextmanager
    def ready(self) -> Iterator[None]:
        with self.offline, self.server:
            try:
                for number in range(AGENTS):
                    self.run(self.muster, "create", f"c{number}", "claude", "--no-connect", "-m", "hello")
                self.run(self.muster, "wait", "--all", "--until", "ready", "--timeout", "120s")
                agents = json.loads(self.run(self.muster, "list", "--json"))["agents"]
                self.target = next(f"={agent['id']}:" for agent in agents if agent["name"] == "c1")
                yield
            finally:
                self.run(self.muster, "stop", "--all", "--grace", "0", check=False)
                self.run("tmux", "-S", str(self.folder / "state" / "tmux.sock"), "kill-server", check=False)

    def run(self, *argv: str, input: bytes = b"", check: bool = True) -> bytes:
        done = subprocess.run(
            self.offline.argv(*argv), cwd=self.repo, env=self.env, input=input, capture_output=True, check=False
        )
        if check and done.returncode:
            raise SystemExit(f"bench: {' '.join(argv)[:200]}: {done.stderr.decode()[-800:]}")
        return done.stdout

    def rows(self) -> list[tuple[str, float, float]]:
        """What was measured, muster's median and the floor's."""
        with self.ready():
            return [
                ("message to receipt, Claude Code", *self.taken(self.message, self.paste)),
                ("end of turn to `wait` returning (floor: its hook)", *self.turns()),
                (f"list, {AGENTS} Claude Code agents", *self.taken(self.list, self.panes)),
            ]

    def taken(self, *sides: Callable[[int], object]) -> tuple[float, float]:
        times: tuple[list[float], list[float]] = ([], [])
        for number in range(self.rounds):
            for side, found in zip(sides, times, strict=True):
                self.run(self.muster, "wait", "--all", "--until", "ready", "--timeout", "60s")
                began = time.perf_counter()
                side(number)
                found.append(time.perf_counter() - began)
        return statistics.median(times[0]), statistics.median(times[1])

    def message(self, number: int) -> None:
        self.run(self.muster, "message", "c0", "-m", f"message {number}")

    def paste(self, number: int) -> None:
        """The bare programs: a python, a paste and an Enter. Nobody looks whether it was taken."""
        began = ["tmux", "-S", str(self.folder / "state" / "tmux.sock")]
        self.run(sys.executable, "-c", "pass")
        self.run(*began, "load-buffer", "-b", "bench", "-", input=f"message {number}".encode())
        self.run(*began, "paste-buffer", "-p", "-d", "-b", "bench", "-t", self.target)
        self.run(*began, "send-keys", "-t", self.target, "Enter")

    def list(self, number: int) -> None:
        self.run(self.muster, "list")

    def panes(self, number: int) -> None:
        self.run(sys.executable, "-c", "pass")
        self.run("tmux", "-S", str(self.folder / "state" / "tmux.sock"), "list-panes", "-a")

    def turns(self) -> tuple[float, float]:
        """From the last byte of the model's answer to the return of a `wait` that was begun before, and to the client's hook."""
        waits, hooks = [], []
        for number in range(self.rounds):
            self.run(self.muster, "wait", "--all", "--until", "ready", "--timeout", "60s")
            self.server.register(f"slow{number}", {"text": "done", "hold": f"go{number}"})
            self.run(self.muster, "message", "c0", "-m", f"#scn:slow{number} please")
            waiting = subprocess.Popen(
                self.offline.argv(self.muster, "wait", "c0", "--until", "ready", "--timeout", "60s"),
                cwd=self.repo,
                env=self.env,
                stderr=subprocess.DEVNULL,
            )
            while not any(request.scenario == f"slow{number}" for request in self.server.turns()):
                time.sleep(0.01)
            time.sleep(1)  # the wait is well under way
            self.server.release(f"go{number}")
            waiting.wait()
            returned = time.time()
            answered = max(r.ended for r in self.server.turns() if r.scenario == f"slow{number}")
            events = json.loads(self.run(self.muster, "events", "c0", "--json"))["events"]
            ended = max(event["t"] for event in events if event["kind"] == "turn-end")
            waits.append(returned - answered)
            hooks.append(ended - answered)
        return statistics.median(waits), statistics.median(hooks)
