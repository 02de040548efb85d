"""What the tests of muster's own tutorial stand on: the fixture `e2e` in a user's repository, with a stand-in for the claude client.

The stand-in speaks as a real client does (it has events for its turns), so that blocks with `claude` in them can be followed.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from muster.tutorial import E2eSession

from ..conftest import Sshd, end_agents, seen_before
from ..support import events

CLIENT = """#!/bin/sh
say() { "$MUSTER_AGENT_DIR/bin/event" "$@"; }
if [ $# -gt 0 ]; then say prompt '"text":"first"'; say turn-end '"text":"done"'; else say ready; fi
while IFS= read -r line; do say prompt "\\"text\\":\\"$line\\""; say turn-end '"text":"ok"'; done
"""
TYPE = '[types.claude]\nargv = ["claude"]\nprompt = "argument"\nspeaks = true\nreceipt = "prompt"\n'


@pytest.fixture
def e2e(e2e: E2eSession) -> Iterator[E2eSession]:
    """In a repository with one commit. Agents that a test leaves are no leak: ending them is not what it is about."""
    bin = e2e.home / "bin"
    bin.mkdir()
    (bin / "claude").write_text(CLIENT)
    (bin / "claude").chmod(0o755)
    e2e.env["PATH"] = f"{bin}:{e2e.env['PATH']}"
    config = e2e.home / ".config" / "muster" / "config.toml"
    config.write_text(f"{config.read_text()}\n{TYPE}")
    repository(e2e, e2e.work)
    seen_before(e2e.home / ".local" / "state" / "muster")
    yield e2e
    outside(e2e, "muster", "stop", "--all", "--grace", "0")
    events.check(e2e.home / ".local" / "state" / "muster")


def outside(e2e: E2eSession, *argv: str, cwd: Path | None = None) -> str:
    """A command in the test's environment that is no part of its transcript: arranging, cleaning."""
    done = subprocess.run(
        argv,
        env=e2e.env,
        cwd=cwd or e2e.work,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return done.stdout


def agents(e2e: E2eSession) -> dict[str, dict[str, Any]]:
    """The agents that there are, by name."""
    return {one["name"]: one for one in json.loads(outside(e2e, "muster", "list", "--json"))["agents"]}


def repository(e2e: E2eSession, path: Path) -> None:
    path.mkdir(exist_ok=True)
    (path / "README").write_text("hello\n")
    (path / "src").mkdir()
    (path / "src" / "app.py").write_text("print('one')\n")
    (path / "Makefile").write_text("test:\n\t@echo all tests pass\n")
    for argv in (("init", "-q"), ("add", "-A"), ("commit", "-q", "-m", "first")):
        subprocess.run(["git", *argv], cwd=path, env=e2e.env, check=True)


@pytest.fixture
def box(e2e: E2eSession, tmp_path: Path) -> Iterator[Sshd]:
    """`box` is a real sshd on loopback, in the ssh configuration of the test."""
    if not shutil.which("sshd") and not Path("/usr/sbin/sshd").exists():
        pytest.skip("no sshd: apt-get install openssh-server")
    server = Sshd(tmp_path / "sshd")
    shim = e2e.home / "bin" / "ssh"
    shim.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {server.config} "$@"\n')
    shim.chmod(0o755)
    yield server
    outside(e2e, "muster", "stop", "--all", "--grace", "0")
    end_agents(server.home / ".local" / "state" / "muster")
    server.stop()
