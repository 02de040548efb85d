"""Sending text to an agent once, with a receipt that proves that its client took it.

Typing proves nothing, and neither does the screen: only an event that the client fired for this very text does. Types without receipts
can be typed to, and the caller is told so.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
import unicodedata
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from . import store, tmux
from .errors import MusterError, Stuck, TimedOut, UsageError
from .host import CommandFailed, Host, Step, chain
from .keyboard import Answers, Keyboard, wait_until, wait_until_open
from .model import Status
from .plugins import AgentType

#: Put in front of text that a client would take for a command of its own.
HARMLESS = "Message: "
RECEIPT_SECONDS = 30.0
#: Seconds between two checks for a lost Enter: whether the text is still in the input box.
ENTER_AGAIN_SECONDS = 2.0
#: Seconds for which one round trip waits for a receipt.
WAIT_SECONDS = 1.0
#: Seconds after which a message that the client has queued counts as queued, and not as taken at once.
TAKE_SECONDS = 1.5


class Target(NamedTuple):
    """The agent that a message is for, and how to ask for its status."""

    host: Host
    look: Callable[[], Status]
    step: Step
    """Asks for the status as a step of a chain; `read` reads the answer."""
    read: Callable[[subprocess.CompletedProcess[bytes]], Status]


def deliver(target: Target, status: Status, kind: AgentType, text: str) -> str:
    """Send `text` and return `delivered`, `queued` (the client keeps it until its turn is over) or `typed` (there is no receipt).

    `status` is the latest known one. Raises `Stuck` if a dialog is open, `TimedOut` without a receipt, and `MusterError` if the agent
    does not run.
    """
    host, look = target.host, target.look
    text = typable(text)
    if not kind.takes:
        raise MusterError(
            f"{status.agent.name} is a {kind.name}, which takes no messages after the first",
            f'muster create NAME {kind.name} -m "…" makes another',
        )
    status = wait_until_open(status, look, kind)
    agent_id = status.agent.id
    asked = _receipt_steps(agent_id, kind, text) if kind.receipt else []
    then = [target.step, *asked, *([] if kind.sends else [tmux.look_step(agent_id)])]
    owner, answers = _lock(host, status, then)
    try:
        first = target.read(answers[0])
        status = wait_until_open(first, look, kind)  # another sender may have held the lock
        answers = answers[1:]
        if status is not first:
            answers = chain(host, then[1:]) if then[1:] else []
        before = _proof(answers[: len(asked)], kind, text)
        seen = tmux.looked(answers[-1]) if answers and not kind.sends else None
        keyboard = Keyboard(host, status, look, kind, seen)
        told = keyboard.type(text, _receipt_steps(agent_id, kind, text, before.stamp) if kind.receipt else [])
        if not kind.receipt:
            return "typed"
        return _await_receipt(keyboard, before, text, told)
    finally:
        store.unlock(host, agent_id, "lock", owner)


def same(one: object, other: str) -> bool:
    """Return whether two texts are the same to a client: clients compose accents, expand tabs and drop white space."""
    first, second = (" ".join(unicodedata.normalize("NFC", str(text)).split()) for text in (one, other))
    return first == second


def normal(text: str) -> str:
    """Return the text as clients receive it: their input boxes expand a tab to four spaces and strip white space at both ends."""
    return text.replace("\t", "    ").strip()


def typable(text: str) -> str:
    """Return the text with plain newlines. Raises `UsageError` for control characters, such as one that ends a paste."""
    encoded(text)
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if found := re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", text):
        raise UsageError(f"the text holds the control character {found[0]!r}", "tr -d '[:cntrl:]' takes them out")
    return text


def guarded(kind: AgentType, text: str, more: str = "") -> str:
    """Return the text, behind a harmless word if the client would take it for a command. `more`: further such first characters."""
    obeyed = text[:1] in tuple(kind.guard + more) or (kind.guard and text.strip().casefold() in kind.quits)
    return f"{HARMLESS}{text}" if obeyed else text


def encoded(text: str) -> bytes:
    """Return the text in UTF-8. Raises `UsageError` if it cannot be encoded."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise UsageError("the text is not UTF-8", "iconv -t utf-8 makes it so") from error


class Proof(NamedTuple):
    """What proves that the client has a text."""

    events: dict[str, Any]
    """The newest `prompt` and `queued`."""
    taken: int
    """How often the transcript has it as a message from the user."""
    kept: int
    """How often the transcript has it as queued: a client that looked idle may have started to work."""
    stamp: str = ""
    """The line that `receipt` printed; it waits until that line changes."""


def _receipt_steps(
    agent_id: str, kind: AgentType, text: str, stamp: str = "", seconds: float = WAIT_SECONDS
) -> list[Step]:
    """Return the steps that `_proof` reads. With a stamp, they wait for up to `seconds` until there is something new."""
    ticks = str(max(int(seconds * 20), 1)) if stamp else "0"
    words = (agent_id, stamp, ticks, *(["sized"] if kind.translate and kind.queues else []))
    steps = [Step("receipt", words), store.read_step(agent_id, "ev/prompt", "ev/queued", "heard.json")]
    if kind.translate:
        steps.append(store.conversation_step(agent_id, len(text.encode()) * 4 + 400_000))
    return steps


def _proof(answers: Answers, kind: AgentType, text: str) -> Proof:
    if not answers:
        return Proof({}, 0, 0)
    for done in answers:
        if done.returncode:
            raise store.plainly(CommandFailed(done.args[0], done.returncode, done.stderr))
    taken = kept = 0
    if kind.translate and len(answers) > 2:
        entries = kind.translate(store.objects(answers[2].stdout))
        taken = sum(entry["role"] == "user" and same(entry.get("text"), text) for entry in entries)
        kept = sum(entry["role"] == "queued" and same(entry.get("text"), text) for entry in entries)
    stamp = answers[0].stdout.decode("ascii", "replace").strip()[:200]
    return Proof(_receipts(store.untar(answers[1].stdout)), taken, kept, stamp)


def _await_receipt(keyboard: Keyboard, before: Proof, text: str, answers: Answers) -> str:
    """Wait for the proof that the client has the text; return `delivered` or `queued`.

    `answers` are those of the first look for a receipt. Raises `TimedOut` without one, and `Stuck` if a dialog is open instead.
    """
    host, status, kind, name = keyboard.host, keyboard.status, keyboard.kind, keyboard.name
    began = enter = time.monotonic()
    told = kept = asked = 0.0
    while True:
        now = time.monotonic()
        proof = _proof(answers, kind, text)
        got = {
            receipt
            for receipt in ("prompt", "queued")
            if (event := proof.events.get(receipt, {})) != before.events.get(receipt) and same(event.get("text"), text)
        }
        if proof.kept > before.kept:
            got.add("queued")
        # A text that was queued and then taken is in the transcript twice.
        if proof.taken > before.taken:
            return "delivered"
        if "prompt" in got and not kind.queues:
            return "delivered"
        if "prompt" in got:
            told = told or now
            if "queued" not in got and now - told > TAKE_SECONDS:
                return "queued" if status.state == "working" else "delivered"
        if "queued" in got:
            kept = kept or now
        if kept:
            # An idle client may queue a text only for a moment.
            if status.state == "working" or now - kept > TAKE_SECONDS:
                return "queued"
        elif not told:
            if now - began > RECEIPT_SECONDS:
                if kind.sends and store.take_back(host, status.agent.id, "message"):
                    raise TimedOut(
                        f"{name} does not take messages at the moment, the text was not sent",
                        f"muster capture {name} shows its screen",
                    )
                raise TimedOut(
                    f"the text was typed, but {name} gave no sign that it took it",
                    f"muster capture {name} shows its screen",
                )
            if not kind.sends and now - enter > ENTER_AGAIN_SECONDS:
                if not keyboard.is_blocked():
                    asked = 0.0
                    keyboard.press_enter_again(text)
                elif asked:
                    raise Stuck(
                        f"{name} shows a dialog, and gave no sign that it took the text",
                        f"muster explain {name} shows the dialog, muster capture {name} the screen",
                    )
                else:
                    asked = now
                enter = now
        # A lost Enter is not noticed later than it would be without waiting on the host.
        seconds = min(WAIT_SECONDS, ENTER_AGAIN_SECONDS - (time.monotonic() - enter))
        answers = chain(host, _receipt_steps(status.agent.id, kind, text, proof.stamp, seconds))


def _receipts(files: dict[str, bytes]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    whole = None
    for path, content in files.items():
        try:
            event = json.loads(content)
        except (ValueError, RecursionError):
            continue
        if isinstance(event, dict):
            found[path[3:]] = event
        elif isinstance(event, str):
            whole = event
    if whole is not None and "prompt" in found:
        found["prompt"]["text"] = whole  # the event itself shortens a long text
    return found


def _lock(host: Host, status: Status, then: Sequence[Step]) -> tuple[str, Answers]:
    """Take the lock of the agent's input box, which allows one sender at a time, and run `then` while it is held.

    Returns the owner of the lock, for `store.unlock`, and what the steps gave.
    """
    name, agent_id = status.agent.name, status.agent.id
    owner, answers = "", list[subprocess.CompletedProcess[bytes]]()

    def take() -> bool:
        nonlocal owner, answers
        owner, failed, answers = store.lock_all(host, [agent_id], "lock", 1, then)
        if (error := failed.get(agent_id)) and not isinstance(error, store.Held):
            raise error
        return not failed

    wait_until(take, RECEIPT_SECONDS * 3, f"another sender holds {name}", name)
    return owner, answers
