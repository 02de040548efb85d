"""Agents that write for the authors of a tutorial: what `fill` and `sync` share, and the instructions as a slash command.

Prompts are files in `prompts/` with `{{slots}}`. An agent is made, spoken to and waited for by the fleet's verbs only;
what it wrote is text to be shown, parsed and, in its own work dir, run. It is never believed.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from .. import Address, Fleet, Spec
from ..errors import MusterError, Refused, TimedOut, UsageError
from ..tutorial import blocks

if TYPE_CHECKING:
    from ..host import Found
    from ..model import Status

HERE = os.path.dirname(__file__)
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


# Prompts


def prompt(name: str, **slots: str) -> str:
    """A template with its slots filled. ValueError for a slot that has no value, and for a value that has no slot."""
    return filled(template(name), name, **slots)


def template(name: str) -> str:
    with open(os.path.join(HERE, "prompts", f"{name}.md"), encoding="utf-8") as file:
        return file.read()


def filled(text: str, name: str, **slots: str) -> str:
    wanted = set(re.findall(r"\{\{(.*?)\}\}", text))
    if wanted != slots.keys():
        raise ValueError(
            f"prompt {name}: unfilled {sorted(wanted - slots.keys())}, unknown {sorted(slots.keys() - wanted)}"
        )
    # In one pass: what stands in a value is not looked at again.
    return re.sub(r"\{\{(.*?)\}\}", lambda slot: slots[slot[1]], text)


def harmless(text: str) -> str:
    """Text of an agent as it may be sent to one: no control characters, which a terminal would obey."""
    return "".join(char if char in "\n\t" or char.isprintable() else " " for char in text)


# Where a tutorial is


def place(path: str, cwd: str) -> Place:
    """The tutorial at `path`, else the project's own. NotFound when there is none, UsageError outside of a repository."""
    shown = path or os.path.relpath(blocks.find(cwd), cwd)
    file = os.path.realpath(os.path.join(cwd, shown))
    blocks.read(os.path.relpath(os.path.join(cwd, shown)))  # named as it was, when it is not there
    top = blocks.roots(os.path.dirname(file))[-1]
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


# The slash command

COMMAND = "sync-tutorial-to-e2e-tests"
ABOUT = "Bring the end-to-end tests in step with the tutorial: every block cited, every citation current."
BEGIN, END = f"<!-- muster: {COMMAND} -->", f"<!-- /muster: {COMMAND} -->"
#: Which file each client reads; AGENTS.md is for codex and all others.
CLIENTS = {
    "claude": os.path.join(".claude", "commands", f"{COMMAND}.md"),
    "codex": "AGENTS.md",
    "opencode": os.path.join(".opencode", "command", f"{COMMAND}.md"),
    "agents": "AGENTS.md",
}


class Skill(NamedTuple):
    path: str
    """Below the project's folder."""
    text: str
    """What is put there: the file, or the section of it."""
    action: str
    """`written` (it is new), `updated` or `unchanged`."""


def skill(path: str) -> str:
    """The instructions for the client that reads this file."""
    check = "muster tutorial check"
    with open(os.path.join(HERE, "prompts", "sync.md"), encoding="utf-8") as file:
        rules = file.read().partition("## Rules\n")[2].strip("\n")
    if path == CLIENTS["agents"]:
        asked = f"When you are asked for `{COMMAND}`, do it for the files that are named, else for all."
        body = prompt("skill", check=check, rules=rules, arguments=asked).strip("\n").replace("\n## ", "\n### ")
        return f"{BEGIN}\n## {COMMAND}\n{body}\n{END}\n"
    body = prompt(
        "skill", check=check, rules=rules, arguments="More about what to do this time, if anything: $ARGUMENTS"
    )
    # A text of JSON is one of YAML too; a plain one must not have a colon in it.
    return f"---\ndescription: {json.dumps(ABOUT)}\n---\n{body}"


def install(folder: str, clients: Sequence[str], force: bool, dry: bool = False) -> list[Skill]:
    """Put the instructions where these clients find them. Refused, before anything is written, when something else is there."""
    planned: list[tuple[Skill, str, bytes]] = []
    for path in dict.fromkeys(CLIENTS[client] for client in clients):
        file = os.path.realpath(os.path.join(folder, path))
        before = _bytes(file)
        text = skill(path)
        after, same = (
            _merged(before, text, path) if path == CLIENTS["agents"] else (text.encode(), before == text.encode())
        )
        fresh = before is None or (path == CLIENTS["agents"] and BEGIN.encode() not in before)
        if not fresh and not same and not force and not dry:
            raise Refused(
                f"{path} has other instructions for {COMMAND}", "--force replaces them; --print shows the new ones"
            )
        action = "written" if fresh else "unchanged" if same else "updated"
        planned.append((Skill(path, text, action), file, after))
    for one, file, after in planned:
        if one.action != "unchanged" and not dry:
            _write(file, after)
    return [one for one, _, _ in planned]


def _merged(before: bytes | None, section: str, path: str) -> tuple[bytes, bool]:
    """The file with the section in its place, or at its end; and whether it was there already. All else stays, byte for byte."""
    data, begin, end = before or b"", BEGIN.encode(), END.encode()
    if begin not in data and end not in data:
        gap = b"" if not data or data.endswith(b"\n\n") else b"\n" if data.endswith(b"\n") else b"\n\n"
        return data + gap + section.encode(), False
    start, stop = data.find(begin), data.find(end)
    if data.count(begin) != 1 or data.count(end) != 1 or stop < start:
        hint = f"leave one line {BEGIN} and one line {END} behind it, or none of them"
        raise Refused(f"in {path} it is not clear where the section of {COMMAND} begins and ends", hint)
    old, new = data[start : stop + len(end)], section.encode().rstrip(b"\n")
    return data[:start] + new + data[stop + len(end) :], old.replace(b"\r\n", b"\n") == new


def _bytes(file: str) -> bytes | None:
    try:
        with open(file, "rb") as stream:
            return stream.read()
    except FileNotFoundError:
        return None
    except IsADirectoryError:
        raise Refused(f"{file} is a folder", "move it out of the way") from None


def _write(file: str, data: bytes) -> None:
    os.makedirs(os.path.dirname(file), exist_ok=True)
    mode = os.stat(file).st_mode & 0o7777 if os.path.exists(file) else None
    temporary = f"{file}.{os.getpid()}.part"
    with open(temporary, "wb") as stream:
        stream.write(data)
    if mode is not None:
        os.chmod(temporary, mode)
    os.replace(temporary, file)
