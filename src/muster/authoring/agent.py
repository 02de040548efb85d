"""Agents that write for the authors of a tutorial: what `fill` and `sync` share.

Only the fleet's verbs create an agent, talk to it and wait for it. What it wrote is not trusted: it is shown, parsed and, in the
agent's own work dir, run.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from .. import Address, Fleet, Spec
from ..errors import MusterError, TimedOut, UsageError
from ..tutorial import blocks

if TYPE_CHECKING:
    from ..host import Found
    from ..model import Status

HERE = os.path.dirname(__file__)
PROMPTS = os.path.join(HERE, "prompts")
#: The states in which a turn is over, and those in which the agent may have done what it was asked for.
TURN_OVER = frozenset({"ready", "done", "failed", "stopped", "lost"})
SUCCEEDED = frozenset({"ready", "done"})
NOT_WAITING = TURN_OVER | {"starting", "working"}
#: Seconds that a client may need to accept its first message. It reports that it is ready before that.
ACCEPT_SECONDS = 20.0
#: Bytes that are read of a tutorial, a test file and the output of an example.
FILE_MOST = 4 << 20

Say = Callable[[str], None]


class AgentRequest(NamedTuple):
    """The agent to create."""

    verb: str
    """`fill` or `sync`: the agent's label, and the first part of a generated name."""
    type: str
    args: tuple[str, ...] = ()
    name: str = ""
    timeout: float = 1800.0


class TutorialFile(NamedTuple):
    """A tutorial in its repository."""

    top: str
    path: str
    """Relative to `top`."""
    shown: str
    """As the user named it."""

    @property
    def file(self) -> str:
        return os.path.join(self.top, self.path)


def harmless(text: str) -> str:
    """Return text without control characters, which a terminal would obey."""
    return "".join(char if char in "\n\t" or char.isprintable() else " " for char in text)


def locate(path: str, cwd: str) -> TutorialFile:
    """Return the tutorial at `path`, or the project's own if it is empty.

    Raises NotFound if there is none, UsageError if it is in no repository.
    """
    shown = path or os.path.relpath(blocks.find(cwd), cwd)
    file = os.path.realpath(os.path.join(cwd, shown))
    blocks.read(os.path.relpath(os.path.join(cwd, shown)))  # an error names it as the user did
    top = blocks.search_folders(os.path.dirname(file))[-1]
    if not os.path.exists(os.path.join(top, ".git")):
        hint = f"an agent works on a branch: git init {os.path.dirname(shown) or '.'}, then commit"
        raise UsageError(f"{shown} is not in a git repository", hint)
    return TutorialFile(top, os.path.relpath(file, top), shown)


# The agent


def create(fleet: Fleet, request: AgentRequest, tutorial: TutorialFile, text: str) -> Found:
    """Create an agent with its own branch of the tutorial's repository, and send it its first message."""
    address = Address.parse(request.name or f"{request.verb}-{os.urandom(3).hex()}")
    if not address.name:
        address = address._replace(name=f"{request.verb}-{os.urandom(3).hex()}")
    labels = {"tutorial": request.verb}
    spec = Spec(address, request.type, request.args, text.strip(), source=tutorial.top, labels=labels)
    return fleet.create(spec)


def wait_for_turn(fleet: Fleet, agent: Found, deadline: float, say: Say, again: str) -> Found:
    """Wait until the agent's turn is over, and return it as it is then: `ready` or `done`.

    A question does not end the wait; `say` is told how to answer it. Raises TimedOut after the deadline and MusterError if the agent
    failed, both with `again`, the command to type when the agent has gone on.
    """
    address = agent.status.address
    began = time.monotonic()
    try:
        while True:
            # Checked before the state: a `ready` from before the message was accepted does not end the turn.
            accepted = _accepted(fleet, agent) or time.monotonic() - began > ACCEPT_SECONDS
            agent = agent._replace(status=fleet.look(agent))
            status = fleet.wait([agent], TURN_OVER | {"waiting"}, timeout=_left(deadline))[0]
            if status.state == "waiting":
                say(_question(status))
                fleet.wait([agent._replace(status=status)], NOT_WAITING, timeout=_left(deadline))
                say(f"{address} continues")
            elif status.state == "ready" and not accepted:
                time.sleep(0.1)
            else:
                break
    except TimedOut as error:
        raise TimedOut(
            f"{address} is not done yet, and the time is up", f"muster connect {address}; then: {again}"
        ) from error
    if status.state not in SUCCEEDED:
        why = f" ({status.reason})" if status.reason else f" (exit code {status.exit_code})" if status.exit_code else ""
        raise MusterError(
            f"{address} is {status.state}{why}",
            f"muster capture {address} shows its screen; muster start {address}, then: {again}",
        )
    return agent._replace(status=status)


def _left(deadline: float) -> float:
    return max(0.0, deadline - time.monotonic())


def _accepted(fleet: Fleet, agent: Found) -> bool:
    return any(event.get("kind") in ("prompt", "queued") for event in fleet.events(agent))


def _question(status: Status) -> str:
    address = status.address
    answer = {"permission": f"muster answer {address} yes, or no", "question": f"muster answer {address} TEXT"}
    how = answer.get(status.reason, f"muster explain {address}")
    return f"{address} waits for a person ({status.reason}): muster connect {address}, or {how}"


def on_host(
    fleet: Fleet, agent: Found, name: str, *args: str, input: bytes = b"", timeout: float | None = None
) -> bytes:
    """Run `sh/NAME.sh` in the agent's work dir and return its stdout. Raises MusterError if it fails."""
    with open(os.path.join(HERE, "sh", f"{name}.sh"), encoding="utf-8") as file:
        argv = ["sh", "-c", file.read(), f"muster-{name}", *args]
    process = fleet.exec(agent, argv, terminal=False, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        stdout, _ = process.communicate(input, timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise TimedOut(f"{agent.status.address} did not answer within {timeout:g} s", "muster hosts") from None
    if process.returncode:
        hint = f"muster exec {agent.status.address} -- git status"
        raise MusterError(f"{agent.status.address}: cannot use its work dir (exit code {process.returncode})", hint)
    return stdout
