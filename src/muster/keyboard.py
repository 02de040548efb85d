"""The input box of an agent's client: what it holds, and the keys that are pressed in it.

A client may open a dialog at any time, and Enter means Yes to most dialogs. So a key is pressed only if the host sees, at the moment
of the key, that the screen still shows the input box (`tmux.press`).
"""

from __future__ import annotations

import re
import subprocess
import time
import unicodedata
from collections.abc import Callable, Sequence
from typing import NamedTuple

from . import evidence, store, tmux
from .errors import MusterError, Stuck, TimedOut
from .host import Host, Step
from .model import ENDED, Status
from .plugins import AgentType

#: How long the keyboard waits for the client: to start,
READY_SECONDS = 60.0
#: to draw its input box after it said that it is ready,
OPEN_SECONDS = 20.0
#: to show the input box again before a key,
PRESS_SECONDS = 30.0
#: to show what was pasted, or to close a dialog,
SETTLE_SECONDS = 3.0
#: and to empty the box.
CLEAR_SECONDS = 1.0
CLEARED_TIMES = 5
POLL_SECONDS = 0.05


#: What the steps of a chain gave.
Answers = list[subprocess.CompletedProcess[bytes]]


class Seen(NamedTuple):
    """A screen that shows the input box."""

    look: tmux.Look
    end: str
    """The part of the screen from the box on; empty if the type does not say what its box looks like."""
    holds: str
    """The text in the box, which may be a placeholder."""
    empty: bool


class Keyboard:
    """Types into the input box of one agent. Every key that muster presses is sent by this class or by `dialogs`."""

    def __init__(
        self, host: Host, status: Status, look: Callable[[], Status], kind: AgentType, seen: tmux.Look | None = None
    ) -> None:
        self.host, self.status, self.look, self.kind = host, status, look, kind
        self.seen = seen
        """The screen as another round trip brought it along, for the next look. The host compares it again before each key."""
        self.name, self.agent_id = status.agent.name, status.agent.id

    def type(self, text: str, then: Sequence[Step]) -> Answers:
        """Replace the content of the input box with `text` and press Enter once, or hand the text to the client's extension.

        Returns what the steps of `then` gave, which run in the last round trip.
        """
        kind = self.kind
        if kind.sends:
            return store.hand(self.host, self.agent_id, "message", text.encode(), then)
        self._dismiss_limit()
        if kind.own and self.status.reason == "question":
            self._press(self._see, *kind.own)
        # In a client's input box, Enter after `\\` starts a new line, and Enter after `@word` completes a file name. A blank prevents both.
        taken = kind.box and text[:1] not in tuple(kind.guard) and re.search(r"(?:\\|(?:^|\s)[@/#]\S*)\Z", text)
        typed = f"{text} " if taken else text
        deadline = time.monotonic() + READY_SECONDS
        if not (kind.box or kind.input or kind.translate):
            while True:
                pasted, answers = tmux.submit(self.host, self.agent_id, self._open().look, kind.clear, typed, then)
                if answers is not None:
                    return answers
                if pasted:
                    return self._press(self._see, "Enter", then=then)
                self._give_up_after(deadline, "kept changing its screen, the text was not sent")
        while True:
            seen = self._emptied()
            if kind.input:
                pasted, self.seen = tmux.paste_and_look(self.host, self.agent_id, seen.look, seen.end, typed)
            else:
                pasted = tmux.paste(self.host, self.agent_id, seen.look, seen.end, typed)
            if pasted:
                break
            self._give_up_after(deadline, "kept changing its screen, the text was not sent")
        if kind.input:
            return self._press(lambda: self._holding(text), "Enter", then=then)
        if kind.translate:
            self._settle(text)
        return self._press(self._see, "Enter", then=then)

    def press_enter_again(self, text: str) -> None:
        """Press Enter again if the box still holds the text: a busy client may have dropped the first one."""
        seen = self._see() if self.kind.input else None
        if seen and not seen.empty and shows(text, seen.holds, self.kind):
            tmux.press(self.host, self.agent_id, seen.look, seen.end, "Enter")

    def is_blocked(self) -> bool:
        """Return whether a dialog takes the keys now. Raises `MusterError` if the agent has ended."""
        status = self.look()
        if status.state in ENDED:
            raise MusterError(
                f"{self.name} is {status.state}; the text was typed, and it gave no sign that it took it",
                f"muster transcript {self.name} shows what it took",
            )
        if self.status.state == "waiting" and status.since == self.status.since:
            return False  # it is the question that this text answers
        return status.state == "waiting" and not status.reason.startswith("limit")

    def _see(self) -> Seen | None:
        """Return the input box as it is now; None if the screen does not show it."""
        look = self.seen or tmux.look(self.host, self.agent_id)
        self.seen = None
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
        """Wait for the input box and return it. Raises `Stuck` if a dialog is open."""
        deadline = time.monotonic() + OPEN_SECONDS
        while not (seen := self._see()):
            wait_until_open(self.look(), self.look, self.kind)
            self._give_up_after(deadline, "does not show its input box, the text was not sent")
            time.sleep(POLL_SECONDS)
        return seen

    def _holding(self, text: str) -> Seen | None:
        """Wait until the box holds `text` and return the box; None if the box is gone.

        A client may show a long text in an abbreviated form, and characters that no terminal can show in another form. So after
        `SETTLE_SECONDS` any text counts, as the box was empty before the paste.
        """
        deadline = time.monotonic() + SETTLE_SECONDS
        while seen := self._see():
            if not seen.empty and (shows(text, seen.holds, self.kind) or time.monotonic() > deadline):
                return seen
            if time.monotonic() > deadline + SETTLE_SECONDS:
                raise TimedOut(
                    f"{self.name} does not show the text in its input box; Enter was not pressed",
                    f"muster capture {self.name} shows its screen",
                )
            time.sleep(POLL_SECONDS)
        return None

    def _emptied(self) -> Seen:
        """Empty the input box and return it."""
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
                return seen  # what is left is the client's placeholder
        return seen

    def _press(self, see: Callable[[], Seen | None], *keys: str, then: Sequence[Step] = ()) -> Answers:
        """Press keys as soon as `see` returns the input box, and run `then`. Raises `Stuck` if a dialog is open instead."""
        deadline = time.monotonic() + PRESS_SECONDS
        while True:
            seen = see()
            if seen:
                answers = tmux.press_then(self.host, self.agent_id, seen.look, seen.end, keys, then)
                if answers is not None:
                    return answers
            if not seen and self.is_blocked():
                raise Stuck(f"{self.name} opened a dialog before the text was sent", f"muster explain {self.name}")
            self._give_up_after(deadline, "does not show its input box, the text was not sent")
            time.sleep(POLL_SECONDS)

    def _dismiss_limit(self) -> None:
        """Close the dialog of a usage limit. Raises `Stuck` for any other dialog, which only a person can answer."""
        shown = self.kind.shows.get("waiting", "") if self.kind.speaks else ""

        def dialog() -> tmux.Look | None:
            look = self.seen or tmux.look(self.host, self.agent_id)
            return look if look and re.search(shown, look.screen.rpartition("\n")[2]) else None

        if not shown or not (look := dialog()):
            return
        if not self.status.reason.startswith("limit"):
            raise Stuck(f"{self.name} shows a dialog, the text was not sent", f"muster connect {self.name}")
        self.seen = None
        tmux.press(self.host, self.agent_id, look, look.screen, *self.kind.no, dialog=True)
        wait_until(lambda: not dialog(), SETTLE_SECONDS, f"{self.name} still shows its dialog", self.name)

    def _settle(self, text: str) -> None:
        """Wait until the text is on the screen, for types that do not say what their box looks like: Enter must not overtake it."""
        wanted = "".join(text.split())[-12:]
        deadline = time.monotonic() + SETTLE_SECONDS
        while time.monotonic() < deadline:
            shown = "".join((tmux.screen(self.host, self.agent_id) or "").split())
            if wanted in shown or any(mark in shown for mark in self.kind.pasted):
                return
            time.sleep(POLL_SECONDS)

    def _give_up_after(self, deadline: float, otherwise: str) -> None:
        if time.monotonic() > deadline:
            raise Stuck(f"{self.name} {otherwise}", f"muster capture {self.name} shows its screen")


def shows(text: str, box: str, kind: AgentType) -> bool:
    """Return whether a box that shows `box` holds `text`: all of it, the part that fits, or a mark for a long paste."""
    wanted, shown = (re.sub(r"\W", "", unicodedata.normalize("NFC", one)) for one in (text, box))
    if any(mark in "".join(box.split()) for mark in kind.pasted):
        return True
    return shown == wanted or (len(shown) >= 12 and shown in wanted)


def wait_until_open(status: Status, look: Callable[[], Status], kind: AgentType) -> Status:
    """Wait until the agent takes messages and return its status.

    Raises `MusterError` if it has ended, `Stuck` if it waits in a dialog, and `TimedOut` if it does not start.
    """
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


def wait_until(true: Callable[[], bool], seconds: float, otherwise: str, name: str) -> None:
    """Poll until `true` returns True. Raises `TimedOut` with the message `otherwise` after `seconds`."""
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            raise TimedOut(otherwise, f"muster capture {name} shows its screen")
        time.sleep(POLL_SECONDS)
