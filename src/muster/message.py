"""Putting text into an agent's terminal, once, with proof that the agent took it.

Typing is not proof and neither is what the screen shows: only an event that the agent's own client
fired for this very text is. A type that leaves no receipt can be typed to, and is told so.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from typing import Any

from . import store, tmux
from .errors import MusterError, Stuck, TimedOut, UsageError
from .host import Host
from .model import ENDED, Status
from .plugins import AgentType

#: Stands before text that a client would take for a command of its own.
HARMLESS = "Message: "
RECEIPT_SECONDS = 30.0
ENTER_AGAIN_SECONDS = 2.0
QUEUE_SECONDS = 0.5
TAKE_SECONDS = 1.5
READY_SECONDS = 60.0
SETTLE_SECONDS = 3.0
POLL_SECONDS = 0.05


def deliver(host: Host, status: Status, look: Callable[[], Status], kind: AgentType, text: str) -> str:
    """`delivered`, `queued` (it is at work and has it) or `typed` (no receipt is possible). `status` is the latest that is known.

    Raises `Stuck` with a dialog open, `TimedOut` without a receipt, `MusterError` when it does not run.
    """
    text = typable(text)
    if not kind.takes:
        raise MusterError(
            f"{status.agent.name} is a {kind.name}, which takes no messages after the first",
            f'muster create NAME {kind.name} -m "…" makes another',
        )
    status = _when_open(status, look, kind)
    agent_id = status.agent.id
    owner = _lock(host, status)
    try:
        status = _when_open(look(), look, kind)  # another sender may have had it in between
        before, queued = _receipts(host, agent_id), _queued(host, agent_id, kind, text)
        if kind.own and status.reason == "question":
            tmux.keys(host, agent_id, *kind.own)
        _open_box(host, status, kind)
        # To a client with a box of its own an Enter behind `\\` is a new line, and behind `@word` the choice of a file.
        taken = kind.box and text[:1] not in tuple(kind.guard) and re.search(r"(?:\\|(?:^|\s)[@/#]\S*)\Z", text)
        tmux.paste(host, agent_id, f"{text} " if taken else text)
        if kind.translate:
            _settle(host, agent_id, text)
        tmux.keys(host, agent_id, "Enter")
        if not kind.receipt:
            return "typed"
        return _await_receipt(host, status, kind, before, queued, text)
    finally:
        store.unlock(host, agent_id, "lock", owner)


def _open_box(host: Host, status: Status, kind: AgentType) -> None:
    """Empty the input box of what somebody left there. A dialog in front of it would eat the text: the one that tells of a limit is
    closed, any other is for a person.
    """
    name, agent_id = status.agent.name, status.agent.id
    dialog, empty = kind.shows.get("waiting", "") if kind.speaks else "", kind.box

    def shows(look: str, last: bool = False) -> bool:
        shown = (tmux.screen(host, agent_id) or "").rstrip()
        return bool(re.search(look, shown.rpartition("\n")[2] if last else shown, re.MULTILINE))

    if dialog and shows(dialog, last=True):
        if not status.reason.startswith("limit"):
            raise Stuck(f"{name} shows a dialog, the text was not sent", f"muster connect {name}")
        tmux.keys(host, agent_id, *kind.no)
        _until(lambda: not shows(dialog, last=True), SETTLE_SECONDS, f"{name} still shows its dialog", name)
    if not kind.clear or (empty and shows(empty)):
        return
    tmux.keys(host, agent_id, *kind.clear)
    deadline = time.monotonic() + SETTLE_SECONDS
    while empty and not shows(empty) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)


def normal(text: str) -> str:
    """The text as clients take it: their input boxes make four spaces of a tab and drop white space at both ends."""
    return text.replace("\t", "    ").strip()


def typable(text: str) -> str:
    """The text with plain newlines; `UsageError` when it holds what a terminal would obey, such as the end of a paste."""
    encoded(text)
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if found := re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", text):
        raise UsageError(f"the text holds the control character {found[0]!r}", "tr -d '[:cntrl:]' takes them out")
    return text


def guarded(kind: AgentType, text: str, more: str = "") -> str:
    """The text behind a harmless word, where the client (or, with `more`, its command line) would obey its first character."""
    return f"{HARMLESS}{text}" if text[:1] in tuple(kind.guard + more) else text


def encoded(text: str) -> bytes:
    """The text as it travels; `UsageError` when it is no text."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise UsageError("the text is not UTF-8", "iconv -t utf-8 makes it so") from error


def answer(host: Host, look: Callable[[], Status], kind: AgentType, text: str) -> str:
    """Answer an open dialog: `yes` or `no` to a permission, any text to a question."""
    status = look()
    name = status.agent.name
    if status.state in ENDED:
        raise MusterError(f"{name} is {status.state}, it asks nothing", f"muster start {name}")
    if status.state != "waiting":
        raise MusterError(f"{name} is {status.state}, it asks nothing", f"muster message {name} -m '…' sends it text")
    if status.reason == "permission" and text not in ("yes", "no"):
        raise Stuck(f"{name} waits for a permission", f"muster answer {name} yes, or no")
    if kind.hands and status.reason in ("permission", "question"):
        return _hand(host, look, status, text)
    if status.reason == "permission":
        tmux.keys(host, status.agent.id, *(kind.yes if text == "yes" else kind.no))
        _until(lambda: look().since > status.since, RECEIPT_SECONDS, f"{name} still shows its dialog", name)
        return "answered"
    if status.reason == "question" and kind.menu:
        return _choose(host, look, kind, status, text)
    if status.reason == "question":
        return deliver(host, status, look, kind, text)
    raise Stuck(f"{name} waits for {status.reason}, which nobody can answer", f"muster explain {name}")


def _hand(host: Host, look: Callable[[], Status], status: Status, text: str) -> str:
    """Give the answer to the client's extension, which knows the dialog by its id: a key could meet another one."""
    name, agent_id = status.agent.name, status.agent.id
    permission = status.reason == "permission"
    path = "ev/permission" if permission else "ev/ask"
    try:
        asked = json.loads(store.read(host, agent_id, path).get(path, b""))
    except (ValueError, RecursionError):
        asked = None
    if not isinstance(asked, dict) or asked.get("t") != status.since or not asked.get("dialog"):
        raise Stuck(f"{name} shows a dialog that only a person can answer", f"muster connect {name}")
    said = [text] if permission else chosen(asked, text)
    if not said:
        choices = ", ".join(str(asked.get("choices", "")).split("\n"))
        raise Stuck(f"{name} takes only what it names: {choices}", f"muster answer {name} NUMBER")
    store.hand(host, agent_id, "answer", json.dumps({"dialog": asked["dialog"], "answer": said}).encode())
    _until(lambda: look().since > status.since, RECEIPT_SECONDS, f"{name} still shows its dialog", name)
    return "answered"


def chosen(asked: dict[str, Any], text: str) -> list[str]:
    """Return the answer to a question as the words of its entries, which may be given by number; empty if it does not take it."""
    named = [entry for entry in str(asked.get("choices") or "").split("\n") if entry]
    entries = {str(number): entry for number, entry in enumerate(named, 1)}
    entries |= {entry.casefold(): entry for entry in named}
    parts = [part.strip() for part in text.split(",")] if asked.get("many") else [text.strip()]
    found = [entries.get(part.casefold(), "") for part in parts]
    if not all(found):
        return [text.strip()] if asked.get("own") and text.strip() else []
    return found


def _choose(host: Host, look: Callable[[], Status], kind: AgentType, status: Status, text: str) -> str:
    """Answer a menu: with one of its entries, by its words or its number, else in words of one's own."""
    agent_id, name = status.agent.id, status.agent.name
    own, send = kind.menu
    shown = tmux.screen(host, agent_id) or ""
    entries = _entries(shown)
    if not entries:
        raise Stuck(f"{name} shows no menu that can be answered from here", f"muster connect {name}")
    wanted = {label.casefold(): digit for digit, label in entries.items()} | {digit: digit for digit in entries}
    if digit := wanted.get(text.strip().casefold()):
        tmux.keys(host, agent_id, digit)
    elif digit := next((digit for digit, label in entries.items() if label.startswith(own)), ""):
        tmux.keys(host, agent_id, *(kind.own or (digit,)))
        tmux.paste(host, agent_id, text)
        _settle(host, agent_id, text)
        tmux.keys(host, agent_id, "Enter")
    else:
        raise Stuck(f"{name} takes only what it names: {', '.join(entries.values())}", f"muster connect {name}")

    def over() -> bool:
        if look().since > status.since:
            return True
        now = _entries(tmux.screen(host, agent_id) or "")
        if send and (digit := next((digit for digit, label in now.items() if label.startswith(send)), "")):
            tmux.keys(host, agent_id, digit)
            return False
        return bool(now) and now != entries  # there is another question

    _until(over, RECEIPT_SECONDS, f"{name} still shows its question", name)
    return "answered"


def _entries(screen: str) -> dict[str, str]:
    """The menu at the end of a screen: its numbers and the words beside them, without what a second column says of each. One with
    boxes to tick is none.
    """
    entries: dict[str, str] = {}
    for digit, label in re.findall(r"^\W*(\d)\. (.*?\S)(?=[ \t]*$|[ \t]{2,}\S)", screen, re.MULTILINE):
        if digit == "1":
            entries = {}
        entries[digit] = label
    return {} if any(label.startswith("[") for label in entries.values()) else entries


def _when_open(status: Status, look: Callable[[], Status], kind: AgentType) -> Status:
    """The agent once its input is open, or the reason why it will not be."""
    deadline = time.monotonic() + READY_SECONDS
    name = status.agent.name
    while True:
        if status.state in ENDED:
            raise MusterError(f"{name} is {status.state}, nobody would read it", f"muster start {name}")
        if status.state == "waiting" and status.reason == "permission":
            raise Stuck(f"{name} waits for a permission, the text was not sent", f"muster answer {name} yes, or no")
        if status.state == "waiting" and status.reason == "dialog":
            raise Stuck(f"{name} shows a dialog, the text was not sent", f"muster connect {name}")
        if status.state == "waiting" and status.reason == "question" and (kind.menu or kind.hands):
            raise Stuck(f"{name} asks a question, the text was not sent", f"muster answer {name} TEXT")
        if status.state != "starting":
            return status
        if time.monotonic() > deadline:
            raise TimedOut(f"{name} is still starting", f"muster capture {name} shows its screen")
        time.sleep(POLL_SECONDS)
        status = look()


def _await_receipt(host: Host, status: Status, kind: AgentType, before: dict[str, Any], queued: int, text: str) -> str:
    name = status.agent.name
    began = enter = looked = time.monotonic()
    kept = 0.0
    while True:
        events = _receipts(host, status.agent.id)
        got = {
            receipt
            for receipt in ("prompt", "queued")
            if (event := events.get(receipt, {})) != before.get(receipt)
            and normal(str(event.get("text"))) == normal(text)
        }
        if "prompt" in got:
            return "delivered"
        if not kept and "queued" not in got and time.monotonic() - looked > QUEUE_SECONDS:
            looked = time.monotonic()
            if _queued(host, status.agent.id, kind, text) > queued:
                got.add("queued")
        if "queued" in got:
            kept = kept or time.monotonic()
        if kept:
            # One that was not at work may have kept it for a moment only.
            if status.state == "working" or time.monotonic() - kept > TAKE_SECONDS:
                return "queued"
            time.sleep(POLL_SECONDS)
            continue
        if time.monotonic() - began > RECEIPT_SECONDS:
            raise TimedOut(
                f"the text was typed, but {name} gave no sign that it took it",
                f"muster capture {name} shows its screen",
            )
        if time.monotonic() - enter > ENTER_AGAIN_SECONDS:
            tmux.keys(host, status.agent.id, "Enter")
            enter = time.monotonic()
        time.sleep(POLL_SECONDS)


def _settle(host: Host, agent_id: str, text: str) -> None:
    """Until the client shows the text: one that is busy draws late, and an Enter that overtakes the paste is lost.

    That it shows proves nothing; it only is the moment to press Enter. A client may show a long text in few words of its own.
    """
    wanted = "".join(text.split())[-12:]
    deadline = time.monotonic() + SETTLE_SECONDS
    while time.monotonic() < deadline:
        shown = "".join((tmux.screen(host, agent_id) or "").split())
        if wanted in shown or "[Pastedtext" in shown or "[PastedContent" in shown:
            return
        time.sleep(POLL_SECONDS)


def _queued(host: Host, agent_id: str, kind: AgentType, text: str) -> int:
    """How often the client has written down that it keeps this text for later. One that looks idle may have begun a moment ago."""
    if kind.translate is None:
        return 0
    entries = kind.translate(store.conversation(host, agent_id, len(text.encode()) * 4 + 400_000))
    return sum(entry["role"] == "queued" and normal(str(entry.get("text"))) == normal(text) for entry in entries)


def _receipts(host: Host, agent_id: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    whole = None
    files = store.read(host, agent_id, "ev/prompt", "ev/queued", "heard.json")
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
        found["prompt"]["text"] = whole  # in the event itself a long one is cut
    return found


def _lock(host: Host, status: Status) -> str:
    """One sender at a time. Returns whose it is now: ours."""
    name, taken = status.agent.name, ""

    def take() -> bool:
        nonlocal taken
        taken = store.lock(host, status.agent.id, "lock", 1)
        return bool(taken)

    _until(take, RECEIPT_SECONDS * 3, f"another sender holds {name}", name)
    return taken


def _until(true: Callable[[], bool], seconds: float, otherwise: str, name: str) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            raise TimedOut(otherwise, f"muster capture {name} shows its screen")
        time.sleep(POLL_SECONDS)
