"""Agents that write for the authors of a tutorial: what `fill` and `sync` share.

An agent is made, spoken to and waited for by the fleet's verbs only;
what it wrote is text to be shown, parsed and, in its own work dir, run. It is never believed.
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
#: An agent's turn is over in these states; in the first two it may have done what it was asked for.
OVER = frozenset({"ready", "done", "failed", "stopped", "lost"})
WELL = frozenset({"ready", "done"})
NOT_WAITING = OVER | {"starting", "working"}
#: A client says that it is ready before it takes its first message. So long that one may take.
TAKEN_SECONDS = 20.0
#: No tutorial and no output of an example is read further.
FILE_CAP = 4 << 20

Say = Callable[[str], None]


class Wish(NamedTuple):
    """The agent that is asked for."""

    verb: str
    """`fill` or `sync`: its label, and the first part of a name that is made up."""
    type: str
    args: tuple[str, ...] = ()
    name: str = ""
    timeout: float = 1800.0


class Place(NamedTuple):
    """A tutorial inside its repository."""

    top: str
    path: str
    """Below `top`."""
    shown: str
    """As the user named it."""

    @property
    def file(self) -> str:
        return os.path.join(self.top, self.path)


def harmless(text: str) -> str:
    """Text of an agent as it may be sent to one: no control characters, which a terminal would obey."""
    return "".join(char if char in "\n\t" or char.isprintable() else " " for char in text)


# Where a tutorial is


def place(path: str, cwd: str) -> Place:
    """The tutorial at `path`, else the project's own. NotFound when there is none, UsageError outside of a repository."""
    shown = path or os.path.relpath(blocks.find(cwd), cwd)
    file = os.path.realpath(os.path.join(cwd, shown))
    blocks.read(os.path.relpath(os.path.join(cwd, shown)))  # named as it was, when it is not there
    top = blocks.search_folders(os.path.dirname(file))[-1]
    if not os.path.exists(os.path.join(top, ".git")):
        hint = f"an agent works on a branch: git init {os.path.dirname(shown) or '.'}, then commit"
        raise UsageError(f"{shown} is not in a git repository", hint)
    return Place(top, os.path.relpath(file, top), shown)


# The agent


def hire(fleet: Fleet, wish: Wish, at: Place, text: str) -> Found:
    """An agent on a branch of its own of the tutorial's repository, with its first message."""
    address = Address.parse(wish.name or f"{wish.verb}-{os.urandom(3).hex()}")
    if not address.name:
        address = address._replace(name=f"{wish.verb}-{os.urandom(3).hex()}")
    labels = {"tutorial": wish.verb}
    spec = Spec(address, wish.type, wish.args, text.strip(), source=at.top, labels=labels)
    return fleet.create(spec)


def turn(fleet: Fleet, one: Found, deadline: float, say: Say, again: str) -> Found:
    """Wait until the agent's turn is over; returns it as it is then, `ready` or `done`.

    A question does not end the wait: `say` is told who can answer it. TimedOut after the deadline, MusterError when it failed,
    each with `again`, what to type when the agent has gone on.
    """
    address = one.status.address
    began = time.monotonic()
    try:
        while True:
            # Asked before the state is: a `ready` that was seen before the message was taken says nothing of its turn.
            taken = _taken(fleet, one) or time.monotonic() - began > TAKEN_SECONDS
            one = one._replace(status=fleet.look(one))
            status = fleet.wait([one], OVER | {"waiting"}, timeout=_left(deadline))[0]
            if status.state == "waiting":
                say(_waits(status))
                fleet.wait([one._replace(status=status)], NOT_WAITING, timeout=_left(deadline))
                say(f"{address} goes on")
            elif status.state == "ready" and not taken:
                time.sleep(0.1)
            else:
                break
    except TimedOut as error:
        raise TimedOut(
            f"{address} is not done yet, the time is up", f"muster connect {address}; then: {again}"
        ) from error
    if status.state not in WELL:
        why = f" ({status.reason})" if status.reason else f" (exit code {status.exit_code})" if status.exit_code else ""
        raise MusterError(
            f"{address} is {status.state}{why}",
            f"muster capture {address} shows its screen; muster start {address}, then: {again}",
        )
    return one._replace(status=status)


def _left(deadline: float) -> float:
    return max(0.0, deadline - time.monotonic())


def _taken(fleet: Fleet, one: Found) -> bool:
    return any(event.get("kind") in ("prompt", "queued") for event in fleet.events(one))


def _waits(status: Status) -> str:
    address = status.address
    answer = {"permission": f"muster answer {address} yes, or no", "question": f"muster answer {address} TEXT"}
    how = answer.get(status.reason, f"muster explain {address}")
    return f"{address} waits for a person ({status.reason}): muster connect {address}, or {how}"


def on_host(fleet: Fleet, one: Found, name: str, *args: str, input: bytes = b"", timeout: float | None = None) -> bytes:
    """Run `sh/NAME.sh` in the agent's work dir, by the fleet's exec; returns its stdout. MusterError when it fails."""
    with open(os.path.join(HERE, "sh", f"{name}.sh"), encoding="utf-8") as file:
        argv = ["sh", "-c", file.read(), f"muster-{name}", *args]
    process = fleet.exec(one, argv, terminal=False, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        stdout, _ = process.communicate(input, timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise TimedOut(f"{one.status.address} did not answer within {timeout:g} s", "muster hosts") from None
    if process.returncode:
        hint = f"muster exec {one.status.address} -- git status"
        raise MusterError(f"{one.status.address}: its work dir cannot be used (exit code {process.returncode})", hint)
    return stdout
