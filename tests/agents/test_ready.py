"""`ready` is told once the input box is drawn, and the first message after a launch arrives once and whole."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest

from muster.evidence import input_box
from muster.plugins import agent_type

from .conftest import ClientWorld

#: In the place of the agent's `event`: keeps the screen and the cursor at the moment at which `ready` is told.
KEEPER = """#!/bin/sh
[ "$1" != ready ] || tmux -u -S "$(cat "$MUSTER_AGENT_DIR/socket")" display-message -p -t "=$MUSTER_AGENT_ID:" \
    '#{?cursor_flag,#{cursor_y},}' \\; capture-pane -p -t "=$MUSTER_AGENT_ID:" >"$MUSTER_AGENT_DIR/at-ready"
exec sh "$MUSTER_AGENT_DIR/bin/real-event" "$@"
"""
ROUNDS = 4


def kill(client: ClientWorld, agent_id: str) -> None:
    """Kill -9 the client; the wrapper of muster stays."""
    ours = {b"sh", b"dash", b"bash", b"script", b"tmux", b"cat", b"sleep", b"tee"}
    for pid in client.processes(agent_id):
        try:
            program = os.path.basename(Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0])
            if program and program not in ours:
                os.kill(pid, signal.SIGKILL)
        except OSError:
            pass  # it ended with another one


def drawn(folder: Path, name: str) -> bool:
    row, _, screen = (folder / "at-ready").read_text(encoding="utf-8").partition("\n")
    kind = agent_type(name, {})
    return bool(input_box(screen.rstrip("\n"), int(row) if row else None, kind.input, kind.cursor))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["claude", "codex"])
def test_after_each_launch_ready_means_that_the_box_is_drawn_and_a_message_arrives_once(
    name: str, request: pytest.FixtureRequest
) -> None:
    client: ClientWorld = request.getfixturevalue(name)
    client.ok("create", "one", name, "--no-connect")
    expected = ["the first"]
    client.ok("message", "one", "-m", expected[0])
    agent_id = str(client.until("ready")["id"])
    folder = client.muster_home / "agents" / agent_id
    (folder / "keeper").write_text(KEEPER)
    for number in range(ROUNDS):
        if number % 2:
            kill(client, agent_id)
            client.until("failed")
        else:
            client.ok("stop", "one")
        client.ok("start", "one")  # it brings the programs of the agent along; the client takes longer to be ready
        shutil.copy(folder / "bin" / "event", folder / "bin" / "real-event")
        shutil.copy(folder / "keeper", folder / "bin" / "new")
        (folder / "bin" / "new").replace(folder / "bin" / "event")
        # Every other time the message is not kept back until the agent is ready.
        if number in (0, 1):
            client.until("ready")
        expected.append(f"message {number}\nof two lines")
        client.ok("message", "one", "-m", expected[-1])
        client.until("ready")
        assert drawn(folder, name), (number, (folder / "at-ready").read_text(encoding="utf-8"))
        assert client.heard() == expected
        (folder / "at-ready").unlink()
