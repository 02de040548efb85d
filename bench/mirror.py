"""The rows of mirrors: the first agent with a clone of its own of a long history, on this machine and over ssh on loopback.

The history is of blobs that cannot be compressed, in several packs, as fetches leave them: a search for deltas among them would
take minutes. The floor copies the packs, by `cp` or through the same ssh.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from tests.conftest import Sshd, end_agents

#: Megabytes of history; 2048 is what the goal names, and takes a few minutes to make.
SIZE = int(os.environ.get("MUSTER_BENCH_HISTORY", "300"))
PACKS, BLOB = 10, 1 << 20


def history(size: int) -> Iterator[bytes]:
    """Yield a stream for `git fast-import`: a commit for each megabyte, in PACKS packs."""
    for number in range(size):
        yield b"commit refs/heads/main\ncommitter Bench <bench@example.invalid> %d +0000\ndata 4\nmore\n" % (
            10**9 + number
        )
        yield b"M 100644 inline large-%d\ndata %d\n" % (number % 20, BLOB) + os.urandom(BLOB) + b"\n"
        yield b"M 100644 inline small\ndata 8\n%08d\n" % number
        if number % max(1, size // PACKS) == 0:
            yield b"checkpoint\n"


class Mirrors:
    """A repository with a long history, and an sshd."""

    def __init__(self, muster: str, folder: Path, env: dict[str, str]) -> None:
        self.muster, self.folder, self.env = muster, folder / "mirrors", dict(env)
        self.repo = self.folder / "repo"
        self.sshd: Sshd | None = None

    def __enter__(self) -> Mirrors:
        self.repo.mkdir(parents=True)
        self.run("git", "init", "-q", "-b", "main")
        importing = subprocess.Popen(
            ["git", "fast-import", "--quiet"], cwd=self.repo, env=self.env, stdin=subprocess.PIPE
        )
        assert importing.stdin
        for piece in history(SIZE):
            importing.stdin.write(piece)
        importing.communicate()
        self.run("git", "reset", "-q", "--hard")
        if shutil.which("ssh") and (shutil.which("sshd") or os.path.exists("/usr/sbin/sshd")):
            self.sshd = Sshd(self.folder / "sshd")
            shim = self.folder / "bin" / "ssh"
            shim.parent.mkdir()
            shim.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {self.sshd.config} "$@"\n')
            shim.chmod(0o755)
            self.env["PATH"] = f"{shim.parent}:{self.env['PATH']}"
        return self

    def __exit__(self, *error: type[BaseException] | BaseException | TracebackType | None) -> None:
        subprocess.run([self.muster, "destroy", "--all"], cwd=self.repo, env=self.env, capture_output=True, check=False)
        if self.sshd:
            end_agents(self.sshd.home / ".local" / "state" / "muster")
            path = f"-oControlPath=/tmp/muster-{os.getuid()}/%C"
            subprocess.run([str(self.folder / "bin" / "ssh"), "-Oexit", path, "box"], capture_output=True, check=False)
            self.sshd.stop()
        shutil.rmtree(self.folder)

    def run(self, *argv: str) -> float:
        """Run it in the repository, and return the seconds that it took."""
        began = time.perf_counter()
        done = subprocess.run(argv, cwd=self.repo, env=self.env, capture_output=True, check=False)
        if done.returncode:
            raise SystemExit(f"bench: {' '.join(argv)[:200]}: {done.stderr.decode()[-800:]}")
        return time.perf_counter() - began

    def rows(self) -> list[tuple[str, float, float, float | None]]:
        packs = f"{self.repo}/.git/objects/pack"
        copy = str(self.folder / "copy")
        here = self.run(*self.create("near", "--mode", "mirror"))
        floor = self.run("cp", "-r", packs, copy)
        found: list[tuple[str, float, float, float | None]]
        found = [(f"create a mirror of {SIZE}m here (floor: cp)", here, max(floor, 0.5), 2)]
        if self.sshd:
            self.run("ssh", "box", "true")
            there = self.run(*self.create("far@box"))
            line = f'cat {packs}/*.pack | ssh box "cat >{copy}.far"'
            found.append((f"create a mirror of {SIZE}m over ssh (floor: cat)", there, self.run("sh", "-c", line), 4))
        return found

    def create(self, name: str, *words: str) -> list[str]:
        return [self.muster, "create", name, "command", *words, "--no-connect", "--", "sleep", "1000"]
