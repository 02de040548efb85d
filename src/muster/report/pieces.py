"""What the pages show of terminals and transcripts, of which there may be too much and nothing is to be trusted: the two ends of many
rows, text with its colours, recordings made sound.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from typing import Any

from . import ansi
from .folder import Folder, number, whole, words

#: What a row and a run of one style weigh beside their text, so that a million empty lines are as heavy as they are.
WEIGHT = 48
RECORDING = 8_000_000
TEXT = 1 << 16


class Ends:
    """The first and the last of many rows, up to so many characters each."""

    def __init__(self, head: int, tail: int) -> None:
        self._limits = (head, tail)
        self._head: list[dict[str, Any]] = []
        self._tail: deque[tuple[dict[str, Any], int]] = deque()
        self._weights = [0, 0]
        self._left = [0, 0]

    def add(self, row: dict[str, Any], weight: int) -> None:
        weight += WEIGHT
        if not self._tail and self._weights[0] + weight <= self._limits[0]:
            self._weights[0] += weight
            self._head.append(row)
            return
        self._tail.append((row, weight))
        self._weights[1] += weight
        while self._weights[1] > self._limits[1]:
            _, gone = self._tail.popleft()
            self._weights[1] -= gone
            self._left[0] += 1
            self._left[1] += gone

    def rows(self) -> tuple[list[dict[str, Any]], dict[str, int] | None]:
        """All rows, and what was left out of their middle: how many, how many characters, and before which one."""
        tail = [row for row, _ in self._tail]
        if not self._left[0]:
            return self._head + tail, None
        cut = {"rows": self._left[0], "chars": self._left[1], "at": len(self._head)}
        return self._head + tail, cut


def short(text: object) -> str:
    """One text without escape sequences, cut where it is too long."""
    full = ansi.clean(words(text, TEXT + 1))
    return full if len(full) <= TEXT else f"{full[:TEXT]} …"


def coloured(text: str) -> list[Any]:
    """Text of several lines, with its colours."""
    if len(text) <= ansi.LONGEST and not ansi.MOVES.search(text):  # as most texts are
        return [plain] if (plain := ansi.clean(text)) else []
    runs: list[ansi.Run] = []
    style = ansi.PLAIN
    for line in text.splitlines(keepends=True):
        more, style = ansi.line(line, style)
        runs += more
    return styled(ansi.join(runs))


def styled(runs: Iterable[ansi.Run]) -> list[Any]:
    """Runs for the page: a text, or a text with three numbers."""
    return [text if style == ansi.PLAIN else [text, *ansi.seen(style)] for text, style in runs]


def cast(source: Folder, *names: str) -> dict[str, Any] | None:
    """An asciicast made sound: a header of ours, times that only grow, sizes that a terminal can have, and a limit. None when it is none."""
    header: dict[str, Any] | None = None
    started: float | None = None
    events: list[list[Any]] = []
    last = 0.0
    weight = 0
    for found in source.values(*names, longest=1 << 24):
        if header is None:
            if not isinstance(found, dict) or found.get("version") != 2:
                return None
            started = number(found.get("timestamp"))
            header = {
                "version": 2,
                "width": _side(found.get("width"), 80, 400),
                "height": _side(found.get("height"), 24, 150),
            }
            continue
        if not isinstance(found, list) or len(found) != 3 or not isinstance(found[2], str):
            continue
        at, code, data = number(found[0]), found[1], words(found[2], 1 << 24)
        if at is None or code not in ("o", "r", "m"):
            continue
        last = max(last, at)
        if code == "r":
            cols, _, rows = data.partition("x")
            data = f"{_side(_digits(cols), 80, 400)}x{_side(_digits(rows), 24, 150)}"
        weight += len(data) + WEIGHT
        if weight > RECORDING:
            events.append([last, "m", "the page has the recording up to here"])
            break
        events.append([last, code, data])
    return None if header is None else {"cast": [header, *_open_ended(events)], "length": last, "started": started}


#: Text on a screen is gone with these: the other screen is closed, or this one is cleared.
_BLANKS = re.compile(r"\x1b\[\?(?:1049|1047|47)l|\x1b\[[23]?J|\x1bc")
#: The last characters of a recording in which its end is looked for.
_END = 1 << 16


def _open_ended(events: list[list[Any]]) -> list[list[Any]]:
    """The events without the clearing of the screen that they end with.

    A full-screen program clears as it leaves, and a player that has come to the end would show an empty screen.
    """
    shown = [at for at, event in enumerate(events) if event[1] == "o"]
    text, first = "", len(shown)
    while first and len(text) < _END:
        first -= 1
        text = events[shown[first]][2] + text
    keep = len(text)
    for found in reversed(list(_BLANKS.finditer(text))):
        if ansi.clean(text[found.start() : keep]).strip():
            break
        keep = found.start()
    if keep == len(text) or not ansi.clean(text[:keep]).strip():
        return events
    made = list(events)
    for at in shown[first:]:
        size = len(made[at][2])
        made[at] = [made[at][0], "o", made[at][2][: max(0, keep)]]
        keep -= size
    return [event for event in made if event[1] != "o" or event[2]]


def _side(thing: object, default: int, most: int) -> int:
    size = whole(thing)
    return default if size is None or size < 1 else min(size, most)


def _digits(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 6 else None
