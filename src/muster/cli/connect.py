from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys

from .. import tmux
from ..errors import MusterError, UsageError
from ..fleet import Fleet
from ..host import Found
from ..model import LIVE
from . import render
from .parse import terminal

EXAMPLES = """
muster connect fix-login
muster connect fix-login --watch
muster connect fix-login --connect-command 'xterm -e sh -c "$MUSTER_ATTACH"'
"""
TEXT = """
Attaches your terminal to the agent's session; Ctrl-b d detaches. Inside tmux, your client switches to the session and
returns when you detach. --connect-command (or connect_command in the configuration of create) runs a command instead,
with these variables: MUSTER_AGENT, MUSTER_ADDRESS, MUSTER_ATTACH (the command that attaches), MUSTER_WATCH (the same,
read-only) and MUSTER_SIZE_COMMAND (prints columns and rows).
"""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the agent")
    parser.add_argument("--watch", action="store_true", help="read-only: send no keys, do not resize")
    parser.add_argument("--connect-command", default="", metavar="COMMAND", help="run this instead of attaching")


def run(args: argparse.Namespace, fleet: Fleet) -> int:
    if args.json:
        raise UsageError("connect shows a terminal and has no JSON", "muster capture NAME --json shows the screen")
    configured = fleet.env.get("MUSTER_CREATE_CONNECT_COMMAND") or fleet.config.command("create").get("connect_command")
    command = args.connect_command or str(configured or "")
    return go(fleet, fleet.get(args.name), command, watch=args.watch)


def go(fleet: Fleet, one: Found, command: str = "", watch: bool = False) -> int:
    """Attach, or run the connect command, and return its exit code."""
    attach = tmux.attach(one.host, one.agent.id, watch=watch)
    if command:
        env = {
            **fleet.env,
            "MUSTER_AGENT": one.agent.name,
            "MUSTER_ADDRESS": str(one.status.address),
            "MUSTER_ATTACH": shlex.join(attach),
            "MUSTER_WATCH": shlex.join(tmux.attach(one.host, one.agent.id, watch=True)),
            "MUSTER_SIZE_COMMAND": shlex.join(tmux.asks_size(one.host, one.agent.id)),
        }
        sys.stdout.flush()  # what was said so far comes before what the command says
        return subprocess.run(["sh", "-c", command], env=env, check=False).returncode
    if not terminal():
        raise UsageError("connect needs a terminal", f"muster capture {one.status.address} prints the screen")
    if one.status.state not in LIVE:
        address = one.status.address
        raise MusterError(f"{address} is {one.status.state}", f"muster start {address}, or muster capture {address}")
    again = [sys.executable, "-m", "muster", "connect", str(one.status.address), *(["--watch"] if watch else [])]
    if fleet.env.get("TMUX") and (switch := tmux.switch(one.host, one.agent.id, fleet.env["TMUX"], again)):
        return subprocess.run(switch, check=False).returncode
    env = {key: value for key, value in os.environ.items() if key not in ("TMUX", "TMUX_PANE")}
    code = subprocess.run(attach, env=env, check=False).returncode
    _say(fleet, one)
    return code


def _say(fleet: Fleet, one: Found) -> None:
    """Print the state of the agent that the user just detached from."""
    address = one.status.address
    try:
        status = fleet.look(one)
    except MusterError as error:
        render.error(error)
        return
    if status.state in LIVE:
        render.note(f"detached from {address}, which is {status.state}; muster connect {address} attaches again")
        return
    ended = "" if status.exit_code is None else f" (exit code {status.exit_code})"
    reason = f": {status.reason}" if status.reason and not ended else ""
    render.note(
        f"{address} has ended: {status.state}{ended}{reason}\n  muster capture {address}, or muster start {address}"
    )
