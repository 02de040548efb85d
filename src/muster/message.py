"""Putting text into an agent's terminal, once, with proof that the agent took it.

Typing is not proof and neither is what the screen shows: only an event that the agent's own client
fired for this very text is. A type that leaves no receipt can be typed to, and is told so.
"""

from __future__ import annotations

import json
import re
import time
import unicodedata
from collections.abc import Callable
from typing import Any, NamedTuple

from . import evidence, store, tmux
from .errors import MusterError, Stuck, TimedOut, UsageError
from .host import Host
from .model import ENDED, Status
from .plugins import AgentType

#: Stands before text that a client would take for a command of its own.
HARMLESS = "Message: "
#: Words that end a client when they are all of a message.
ENDING = frozenset({"exit", "quit", ":q", ":q!", ":wq", ":wq!", ":qa", ":qa!", ":x"})
RECEIPT_SECONDS = 30.0
#: How often it is looked whether the text is still in the box, where an Enter was lost.
ENTER_AGAIN_SECONDS = 2.0
QUEUE_SECONDS = 0.5
TAKE_SECONDS = 1.5
READY_SECONDS = 60.0
#: How long the input box may take to be drawn after the client said that it is ready.
OPEN_SECONDS = 20.0
SETTLE_SECONDS = 3.0
CLEAR_SECONDS = 1.0
CLEARED_TIMES = 5
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
        before = _proof(host, agent_id, kind, text)
        keyboard = Keyboard(host, status, look, kind)
        keyboard.type(text)
        if not kind.receipt:
            return "typed"
        return _await_receipt(keyboard, before, text)
    finally:
        store.unlock(host, agent_id, "lock", owner)


class Seen(NamedTuple):
    """A screen on which the input box takes what is typed."""

    look: tmux.Look
    end: str
    """The screen from the box on; empty for a type that does not say what its box looks like."""
    holds: str
    """What is in the box, a placeholder included."""
    empty: bool


class Keyboard:
    """Types into the input box of one agent. Every key goes through here or through `answer`.

    A client opens its dialogs whenever it likes, and Enter is Yes to most of them. So a key is pressed only if the screen is proven
    to be the input box, by the host, at the moment of the key (`tmux.press`).
    """

    def __init__(self, host: Host, status: Status, look: Callable[[], Status], kind: AgentType) -> None:
        self.host, self.status, self.look, self.kind = host, status, look, kind
        self.name, self.agent_id = status.agent.name, status.agent.id

    def type(self, text: str) -> None:
        """Replace what the input box holds with `text`, and press Enter once; or give it to the client's extension."""
        kind = self.kind
        if kind.sends:
            store.hand(self.host, self.agent_id, "message", text.encode())
            return
        self._dismiss_limit()
        if kind.own and self.status.reason == "question":
            self._press(self._see, *kind.own)
        # To a client with a box of its own an Enter behind `\\` is a new line, and behind `@word` the choice of a file.
        taken = kind.box and text[:1] not in tuple(kind.guard) and re.search(r"(?:\\|(?:^|\s)[@/#]\S*)\Z", text)
        deadline = time.monotonic() + READY_SECONDS
        while True:
            seen = self._emptied()
            if tmux.paste(self.host, self.agent_id, seen.look, seen.end, f"{text} " if taken else text):
                break
            self._give_up_after(deadline, "kept changing its screen, the text was not sent")
        if kind.input:
            self._press(lambda: self._holding(text), "Enter")
            return
        if kind.translate:
            self._settle(text)
        self._press(self._see, "Enter")

    def again(self, text: str) -> None:
        """Press Enter once more if the box still holds the text, as a client that was busy may not have taken it the first time."""
        seen = self._see() if self.kind.input else None
        if seen and not seen.empty and shows(text, seen.holds):
            tmux.press(self.host, self.agent_id, seen.look, seen.end, "Enter")

    def asks(self) -> bool:
        """Whether something other than the input box takes the keys now."""
        status = self.look()
        if status.state in ENDED:
            raise MusterError(
                f"{self.name} is {status.state}; the text was typed, and it gave no sign that it took it",
                f"muster transcript {self.name} shows what it took",
            )
        if self.status.state == "waiting" and status.since == self.status.since:
            return False  # the question that is being answered
        return status.state == "waiting" and not status.reason.startswith("limit")

    def _see(self) -> Seen | None:
        """The input box as it is now; None if that is not what the screen shows."""
        look = tmux.look(self.host, self.agent_id)
        if look is None:
            raise MusterError(
                f"{self.name} has no terminal any more, the text was not sent", f"muster list {self.name}"
            )
        if not self.kind.input:
            empty = bool(self.kind.box and re.search(self.kind.box, look.screen, re.MULTILINE))
            return Seen(look, "", "", empty)
        found = evidence.input_box(look.screen, look.cursor, self.kind.input, self.kind.cursor)
        if not found:
            return None
        return Seen(look, found[0], found[1] or "", bool(re.search(self.kind.box, found[0], re.MULTILINE)))

    def _open(self) -> Seen:
        """The input box, as soon as it is there. Raises `Stuck` if a dialog is."""
        deadline = time.monotonic() + OPEN_SECONDS
        while not (seen := self._see()):
            _when_open(self.look(), self.look, self.kind)
            self._give_up_after(deadline, "does not show its input box, the text was not sent")
            time.sleep(POLL_SECONDS)
        return seen

    def _holding(self, text: str) -> Seen | None:
        """The box with our text in it. A client may show a long text in few words of its own, or signs that no terminal can
        show in another form: a box that was empty before the paste, and is not any more, counts too after a while.
        """
        deadline = time.monotonic() + SETTLE_SECONDS
        while seen := self._see():
            if not seen.empty and (shows(text, seen.holds) or time.monotonic() > deadline):
                return seen
            if time.monotonic() > deadline + SETTLE_SECONDS:
                raise TimedOut(
                    f"{self.name} does not show the text in its input box; Enter was not pressed",
                    f"muster capture {self.name} shows its screen",
                )
            time.sleep(POLL_SECONDS)
        return None

    def _emptied(self) -> Seen:
        """The input box without what somebody left in it."""
        seen = self._open()
        for _ in range(CLEARED_TIMES):
            if seen.empty or not self.kind.clear:
                return seen
            before, cleared = seen, False
            self._press(self._see, *self.kind.clear)
            deadline = time.monotonic() + CLEAR_SECONDS
            while not cleared and time.monotonic() < deadline:
                seen = self._open()
                cleared = seen.empty or (bool(self.kind.input) and seen.holds != before.holds)
                if not (self.kind.box or self.kind.input):
                    return seen
                time.sleep(0 if cleared else POLL_SECONDS)
            if not cleared:
                return seen  # the client shows words of its own in an empty box
        return seen

    def _press(self, see: Callable[[], Seen | None], *keys: str) -> None:
        """Press keys as soon as the screen is proven to be the input box that `see` wants; `Stuck` if a dialog is there instead."""
        deadline = time.monotonic() + RECEIPT_SECONDS
        while True:
            seen = see()
            if seen and tmux.press(self.host, self.agent_id, seen.look, seen.end, *keys):
                return
            if not seen and self.asks():
                raise Stuck(f"{self.name} opened a dialog before the text was sent", f"muster explain {self.name}")
            self._give_up_after(deadline, "does not show its input box, the text was not sent")
            time.sleep(POLL_SECONDS)

    def _dismiss_limit(self) -> None:
        """Close the dialog that tells of a limit; any other is for a person."""
        shown = self.kind.shows.get("waiting", "") if self.kind.speaks else ""

        def dialog() -> tmux.Look | None:
            look = tmux.look(self.host, self.agent_id)
            return look if look and re.search(shown, look.screen.rpartition("\n")[2]) else None

        if not shown or not (look := dialog()):
            return
        if not self.status.reason.startswith("limit"):
            raise Stuck(f"{self.name} shows a dialog, the text was not sent", f"muster connect {self.name}")
        tmux.press(self.host, self.agent_id, look, look.screen, *self.kind.no, dialog=True)
        _until(lambda: not dialog(), SETTLE_SECONDS, f"{self.name} still shows its dialog", self.name)

    def _settle(self, text: str) -> None:
        """Wait until a client that does not say what its box looks like shows the text: an Enter that overtakes the paste is lost."""
        wanted = "".join(text.split())[-12:]
        deadline = time.monotonic() + SETTLE_SECONDS
        while time.monotonic() < deadline:
            shown = "".join((tmux.screen(self.host, self.agent_id) or "").split())
            if wanted in shown or any(mark in shown for mark in PASTED):
                return
            time.sleep(POLL_SECONDS)

    def _give_up_after(self, deadline: float, otherwise: str) -> None:
        if time.monotonic() > deadline:
            raise Stuck(f"{self.name} {otherwise}", f"muster capture {self.name} shows its screen")


#: How clients show a long paste, without white space.
PASTED = ("[Pastedtext", "[PastedContent", "[Pasted~", "[paste#")


def shows(text: str, box: str) -> bool:
    """Whether an input box that shows `box` holds `text`: whole, the part that fits into it, or as a mark for a long paste."""
    wanted, shown = (re.sub(r"\W", "", unicodedata.normalize("NFC", one)) for one in (text, box))
    if any(mark in "".join(box.split()) for mark in PASTED):
        return True
    return shown == wanted or (len(shown) >= 12 and shown in wanted)


def same(one: object, other: str) -> bool:
    """Whether a client took the one text for the other: clients compose accents, expand tabs and drop white space."""
    first, second = (" ".join(unicodedata.normalize("NFC", str(text)).split()) for text in (one, other))
    return first == second


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
    """The text behind a harmless word, where the client (or, with `more`, its command line) would obey it."""
    obeyed = text[:1] in tuple(kind.guard + more) or (kind.guard and text.strip().casefold() in ENDING)
    return f"{HARMLESS}{text}" if obeyed else text


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
    if kind.hands and (status.reason == "question" or (status.reason == "permission" and not kind.dialog)):
        return _hand(host, look, status, text)
    if status.reason == "permission":
        keys = kind.yes if text == "yes" else kind.no
        _press_when(host, look, status, lambda seen: (keys, _permission(seen, kind, status)))
        _until(lambda: look().since > status.since, RECEIPT_SECONDS, f"{name} still shows its dialog", name)
        return "answered"
    if status.reason == "question" and kind.menu:
        return _choose(host, look, kind, status, text)
    if status.reason == "question":
        return deliver(host, status, look, kind, text)
    if status.reason == "dialog":
        raise Stuck(f"{name} shows a dialog that only a person can answer", f"muster connect {name}")
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


def _permission(seen: tmux.Look, kind: AgentType, status: Status) -> str | None:
    """The end of a screen that shows the permission dialog of `status`; None if it shows something else."""
    if not kind.dialog:
        return ""
    found = re.search(kind.dialog, seen.screen, re.MULTILINE)
    if not found or not _tells(found[0], status.question):
        return None
    return found[0]


def _tells(dialog: str, question: str) -> bool:
    """Whether a dialog shows what the client said that it asks: the first or the last line of it, as a long one does not fit."""
    lines = [words for line in question.split("\n") if (words := re.sub(r"\W", "", line))]
    shown = re.sub(r"\W", "", dialog)
    # What stands before the first `: ` is the name of the tool, for which a dialog has other words.
    first = re.sub(r"\W", "", question.strip().partition("\n")[0].partition(": ")[2])
    return not first or first[:60] in shown or lines[-1][:60] in shown


def _press_when(
    host: Host,
    look: Callable[[], Status],
    status: Status,
    wanted: Callable[[tmux.Look], tuple[tuple[str, ...], str | None]],
) -> None:
    """Press keys on the dialog of `status`. `wanted` says which, and the end of the screen that proves that it is this dialog.

    Raises `Stuck`, with nothing pressed, if the dialog is gone or another one is there.
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
    """Answer a menu: with one of its entries, by its words or its number, else in words of one's own."""
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
        """The screen, if it has the same menu; what was typed into the field for one's own words does not count."""
        now = _entries(seen.screen)
        if free and kind.own and now:
            return seen.screen  # it rearranges the menu to make room for them
        rest = [{key: label for key, label in one.items() if key != free} for one in (now, entries)]
        return seen.screen if rest[0] == rest[1] and now.keys() == entries.keys() else None

    keys = kind.own if free and kind.own else (digit,)
    _press_when(host, look, status, lambda seen: (keys, menu(seen)))
    if free:
        _type_answer(host, look, status, text, free, menu)

    def over() -> bool:
        if look().since > status.since:
            return True
        seen = tmux.look(host, agent_id)
        now = _entries(seen.screen) if seen else {}
        digit = next((digit for digit, label in now.items() if send and label.startswith(send)), "")
        if seen and digit:
            tmux.press(host, agent_id, seen, seen.screen, digit, dialog=True)
            return False
        return bool(now) and now != entries  # there is another question

    _until(over, RECEIPT_SECONDS, f"{name} still shows its question", name)
    return "answered"


def _type_answer(
    host: Host,
    look: Callable[[], Status],
    status: Status,
    text: str,
    free: str,
    menu: Callable[[tmux.Look], str | None],
) -> None:
    """Type an answer of one's own into the entry `free` of a menu and send it, each only while the menu is there."""
    name, agent_id = status.agent.name, status.agent.id

    def pasted() -> bool:
        seen = tmux.look(host, agent_id)
        end = menu(seen) if seen else None
        return bool(seen and end) and tmux.paste(host, agent_id, seen, end, text, dialog=True)  # type: ignore[arg-type]  # both are there

    _until(pasted, SETTLE_SECONDS, f"{name} shows another question, the answer was not typed", name)
    deadline = time.monotonic() + SETTLE_SECONDS

    def typed(seen: tmux.Look) -> tuple[tuple[str, ...], str | None]:
        there = "".join(text.split())[-12:] in "".join(seen.screen.split())
        shown = there or shows(text, _entries(seen.screen).get(free, "")) or time.monotonic() > deadline - 0.5
        return ("Enter",), menu(seen) if shown else None

    _press_when(host, look, status, typed)


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


class Proof(NamedTuple):
    """What proves, of one text, that the client has it."""

    events: dict[str, Any]
    """The newest `prompt` and `queued`."""
    taken: int
    """How often the transcript has it as a message of the user."""
    kept: int
    """How often the transcript says that it is kept for later. A client that looks idle may have begun a moment ago."""


def _proof(host: Host, agent_id: str, kind: AgentType, text: str, *, transcript: bool = True) -> Proof:
    taken = kept = 0
    if transcript and kind.receipt and kind.translate:
        entries = kind.translate(store.conversation(host, agent_id, len(text.encode()) * 4 + 400_000))
        taken = sum(entry["role"] == "user" and same(entry.get("text"), text) for entry in entries)
        kept = sum(entry["role"] == "queued" and same(entry.get("text"), text) for entry in entries)
    return Proof(_receipts(host, agent_id), taken, kept)


def _await_receipt(keyboard: Keyboard, before: Proof, text: str) -> str:
    host, status, kind, name = keyboard.host, keyboard.status, keyboard.kind, keyboard.name
    began = enter = looked = time.monotonic()
    told = kept = asked = 0.0
    while True:
        now = time.monotonic()
        reads = now - looked > QUEUE_SECONDS or (told > 0 and kind.queues)
        proof = _proof(host, status.agent.id, kind, text, transcript=reads)
        got = {
            receipt
            for receipt in ("prompt", "queued")
            if (event := proof.events.get(receipt, {})) != before.events.get(receipt) and same(event.get("text"), text)
        }
        if reads:
            looked = now
            if proof.kept > before.kept:
                got.add("queued")
            # A text that is kept and then taken is in the transcript twice.
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
            # One that was not at work may have kept it for a moment only.
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
                if not keyboard.asks():
                    asked = 0.0
                    keyboard.again(text)
                elif asked:
                    raise Stuck(
                        f"{name} shows a dialog, and gave no sign that it took the text",
                        f"muster explain {name} shows the dialog, muster capture {name} the screen",
                    )
                else:
                    asked = now
                enter = now
        time.sleep(POLL_SECONDS)


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
