"""Answering the dialogs of an agent: permissions, menus and questions.

The answer goes to the client's extension if that takes answers by the id of the dialog. Otherwise keys are pressed, and only while the
host sees that the screen still shows the dialog that the answer is for.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from typing import Any

from . import message, store, tmux
from .errors import MusterError, Stuck
from .host import Host
from .keyboard import POLL_SECONDS, SETTLE_SECONDS, shows, wait_until
from .model import ENDED, Status
from .plugins import AgentType

ANSWER_SECONDS = 30.0


def answer(target: message.Target, kind: AgentType, text: str) -> str:
    """Answer the open dialog: `yes` or `no` for a permission, any text for a question. Returns what became of it, as `deliver` does.

    Raises `Stuck` if the answer does not fit the dialog, and `MusterError` if the agent waits for nothing.
    """
    host, look = target.host, target.look
    status = look()
    name = status.agent.name
    if status.state in ENDED:
        raise MusterError(f"{name} is {status.state}, it asks nothing", f"muster start {name}")
    if status.state != "waiting":
        raise MusterError(f"{name} is {status.state}, it asks nothing", f"muster message {name} -m '…' sends it text")
    if status.reason == "permission" and text not in ("yes", "no"):
        raise Stuck(f"{name} waits for a permission", f"muster answer {name} yes, or no")
    if kind.hands and (status.reason == "question" or (status.reason == "permission" and not kind.dialog)):
        return _hand(host, look, status, text)
    if status.reason == "permission":
        keys = kind.yes if text == "yes" else kind.no
        _press_when(host, look, status, lambda seen: (keys, _permission(seen, kind, status)))
        wait_until(lambda: look().since > status.since, ANSWER_SECONDS, f"{name} still shows its dialog", name)
        return "answered"
    if status.reason == "question" and kind.menu:
        return _choose(host, look, kind, status, text)
    if status.reason == "question":
        return message.deliver(target, status, kind, text)
    if status.reason == "dialog":
        raise Stuck(f"{name} shows a dialog that only a person can answer", f"muster connect {name}")
    raise Stuck(f"{name} waits for {status.reason}, which nobody can answer", f"muster explain {name}")


def _hand(host: Host, look: Callable[[], Status], status: Status, text: str) -> str:
    """Hand the answer to the client's extension together with the id of the dialog, so that it cannot reach another one."""
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
    wait_until(lambda: look().since > status.since, ANSWER_SECONDS, f"{name} still shows its dialog", name)
    return "answered"


def chosen(asked: dict[str, Any], text: str) -> list[str]:
    """Return the answer in the words of the question's entries, which `text` may give by number; empty if it takes no such answer."""
    named = [entry for entry in str(asked.get("choices") or "").split("\n") if entry]
    entries = {str(number): entry for number, entry in enumerate(named, 1)}
    entries |= {entry.casefold(): entry for entry in named}
    parts = [part.strip() for part in text.split(",")] if asked.get("many") else [text.strip()]
    found = [entries.get(part.casefold(), "") for part in parts]
    if not all(found):
        return [text.strip()] if asked.get("own") and text.strip() else []
    return found


def _permission(seen: tmux.Look, kind: AgentType, status: Status) -> str | None:
    """Return the end of the screen that shows the permission dialog of `status`; None if the screen shows something else."""
    if not kind.dialog:
        return ""
    found = re.search(kind.dialog, seen.screen, re.MULTILINE)
    if not found or not _tells(found[0], status.question):
        return None
    return found[0]


def _tells(dialog: str, question: str) -> bool:
    """Return whether a dialog shows the question that the client reported: its first or its last line, as a long one does not fit."""
    lines = [words for line in question.split("\n") if (words := re.sub(r"\W", "", line))]
    shown = re.sub(r"\W", "", dialog)
    # The dialog has another word for the tool, whose name stands before the first `: `.
    first = re.sub(r"\W", "", question.strip().partition("\n")[0].partition(": ")[2])
    return not first or first[:60] in shown or lines[-1][:60] in shown


def _press_when(
    host: Host,
    look: Callable[[], Status],
    status: Status,
    wanted: Callable[[tmux.Look], tuple[tuple[str, ...], str | None]],
) -> None:
    """Press keys in the dialog of `status`. `wanted` returns the keys, and the end of the screen that identifies the dialog, or None.

    Raises `Stuck`, without pressing anything, if that dialog is not open any more.
    """
    name, agent_id = status.agent.name, status.agent.id
    deadline = time.monotonic() + SETTLE_SECONDS
    while True:
        seen = tmux.look(host, agent_id)
        if seen is not None:
            keys, end = wanted(seen)
            now = look()
            if (now.state, now.reason, now.since) != (status.state, status.reason, status.since):
                raise Stuck(
                    f"{name} no longer shows the dialog that it did, nothing was pressed", f"muster list {name}"
                )
            if end is not None and tmux.press(host, agent_id, seen, end, *keys, dialog=True):
                return
        if time.monotonic() > deadline:
            raise Stuck(
                f"the screen of {name} is not the dialog that it told of, nothing was pressed",
                f"muster connect {name}",
            )
        time.sleep(POLL_SECONDS)


def _choose(host: Host, look: Callable[[], Status], kind: AgentType, status: Status, text: str) -> str:
    """Answer a menu with one of its entries, given by its text or number, or else with free text."""
    agent_id, name = status.agent.id, status.agent.name
    own, send = kind.menu
    shown = tmux.screen(host, agent_id) or ""
    entries = _entries(shown)
    if not entries:
        raise Stuck(f"{name} shows no menu that can be answered from here", f"muster connect {name}")
    wanted = {label.casefold(): digit for digit, label in entries.items()} | {digit: digit for digit in entries}
    digit, free = wanted.get(text.strip().casefold(), ""), ""
    if not digit:
        digit = free = next((digit for digit, label in entries.items() if label.startswith(own)), "")
    if not digit:
        raise Stuck(f"{name} takes only what it names: {', '.join(entries.values())}", f"muster connect {name}")

    def menu(seen: tmux.Look) -> str | None:
        """Return the screen if it shows the same menu, apart from the text typed into the entry for free text; else None."""
        now = _entries(seen.screen)
        if free and kind.own and now:
            return seen.screen  # the client rearranges the menu to make room for the text
        rest = [{key: label for key, label in one.items() if key != free} for one in (now, entries)]
        return seen.screen if rest[0] == rest[1] and now.keys() == entries.keys() else None

    keys = kind.own if free and kind.own else (digit,)
    _press_when(host, look, status, lambda seen: (keys, menu(seen)))
    if free:
        _type_answer(host, look, kind, status, text, free, menu)

    def over() -> bool:
        if look().since > status.since:
            return True
        seen = tmux.look(host, agent_id)
        now = _entries(seen.screen) if seen else {}
        digit = next((digit for digit, label in now.items() if send and label.startswith(send)), "")
        if seen and digit:
            tmux.press(host, agent_id, seen, seen.screen, digit, dialog=True)
            return False
        return bool(now) and now != entries  # the client has gone on to its next question

    wait_until(over, ANSWER_SECONDS, f"{name} still shows its question", name)
    return "answered"


def _type_answer(
    host: Host,
    look: Callable[[], Status],
    kind: AgentType,
    status: Status,
    text: str,
    free: str,
    menu: Callable[[tmux.Look], str | None],
) -> None:
    """Type free text into the entry `free` of a menu and send it, both only while the menu is open."""
    name, agent_id = status.agent.name, status.agent.id

    def pasted() -> bool:
        seen = tmux.look(host, agent_id)
        end = menu(seen) if seen else None
        return bool(seen and end) and tmux.paste(host, agent_id, seen, end, text, dialog=True)  # type: ignore[arg-type]  # both are there

    wait_until(pasted, SETTLE_SECONDS, f"{name} shows another question, the answer was not typed", name)
    deadline = time.monotonic() + SETTLE_SECONDS

    def typed(seen: tmux.Look) -> tuple[tuple[str, ...], str | None]:
        there = "".join(text.split())[-12:] in "".join(seen.screen.split())
        shown = there or shows(text, _entries(seen.screen).get(free, ""), kind) or time.monotonic() > deadline - 0.5
        return ("Enter",), menu(seen) if shown else None

    _press_when(host, look, status, typed)


def _entries(screen: str) -> dict[str, str]:
    """Return the menu at the end of a screen: the text of each entry by its number, without the second column.

    Empty for a menu with check boxes, which cannot be answered from here.
    """
    entries: dict[str, str] = {}
    for digit, label in re.findall(r"^\W*(\d)\. (.*?\S)(?=[ \t]*$|[ \t]{2,}\S)", screen, re.MULTILINE):
        if digit == "1":
            entries = {}
        entries[digit] = label
    return {} if any(label.startswith("[") for label in entries.values()) else entries
