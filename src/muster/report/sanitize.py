"""Prepare untrusted terminal output for the pages: limit its size, convert its colours, and repair recordings."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from typing import Any

from . import ansi
from .untrusted import UntrustedFolder, as_int, as_number, as_text

#: Number of characters added to the size of each row and each run, so that empty lines count too.
ROW_OVERHEAD = 48
MAX_RECORDING = 8_000_000
MAX_TEXT = 1 << 16


class HeadAndTail:
    """Keeps the first and the last of many rows, up to a number of characters each."""

    def __init__(self, head: int, tail: int) -> None:
        self._limits = (head, tail)
        self._head: list[dict[str, Any]] = []
        self._tail: deque[tuple[dict[str, Any], int]] = deque()
        self._weights = [0, 0]
        self._left = [0, 0]

    def add(self, row: dict[str, Any], weight: int) -> None:
        weight += ROW_OVERHEAD
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
        """Return the kept rows, and None or the gap in their middle.

        The gap has the number of missing `rows` and `chars`, and the index `at` which it is.
        """
        tail = [row for row, _ in self._tail]
        if not self._left[0]:
            return self._head + tail, None
        cut = {"rows": self._left[0], "chars": self._left[1], "at": len(self._head)}
        return self._head + tail, cut


def truncated(text: object) -> str:
    """Return the text without escape sequences, cut if it is longer than MAX_TEXT."""
    full = ansi.clean(as_text(text, MAX_TEXT + 1))
    return full if len(full) <= MAX_TEXT else f"{full[:MAX_TEXT]} …"


def coloured_runs(text: str) -> list[Any]:
    """Convert text with escape sequences, of any number of lines, into coloured runs for the page."""
    if len(text) <= ansi.MAX_LINE and not ansi.HAS_CONTROLS.search(text):  # the common case
        return [plain] if (plain := ansi.clean(text)) else []
    runs: list[ansi.Run] = []
    style = ansi.PLAIN
    for line in text.splitlines(keepends=True):
        more, style = ansi.line(line, style)
        runs += more
    return as_json_runs(ansi.join(runs))


def as_json_runs(runs: Iterable[ansi.Run]) -> list[Any]:
    """Return the runs in the form that the page expects: a text, or [text, flags, foreground, background]."""
    return [text if style == ansi.PLAIN else [text, *ansi.as_drawn(style)] for text, style in runs]


def recording(source: UntrustedFolder, *names: str) -> dict[str, Any] | None:
    """Read an asciicast and return it in valid form; None if the file is not one.

    The result has a new header, increasing times, plausible terminal sizes, and at most MAX_RECORDING characters.
    """
    header: dict[str, Any] | None = None
    started: float | None = None
    events: list[list[Any]] = []
    last = 0.0
    weight = 0
    for row in source.values(*names, longest=1 << 24):
        if header is None:
            if not isinstance(row, dict) or row.get("version") != 2:
                return None
            started = as_number(row.get("timestamp"))
            header = {
                "version": 2,
                "width": _dimension(row.get("width"), 80, 400),
                "height": _dimension(row.get("height"), 24, 150),
            }
            continue
        if not isinstance(row, list) or len(row) != 3 or not isinstance(row[2], str):
            continue
        at, code, data = as_number(row[0]), row[1], as_text(row[2], 1 << 24)
        if at is None or code not in ("o", "r", "m"):
            continue
        last = max(last, at)
        if code == "r":
            cols, _, rows = data.partition("x")
            data = f"{_dimension(_parse_int(cols), 80, 400)}x{_dimension(_parse_int(rows), 24, 150)}"
        weight += len(data) + ROW_OVERHEAD
        if weight > MAX_RECORDING:
            events.append([last, "m", "the recording was cut here because it is too long for the page"])
            break
        events.append([last, code, data])
    return (
        None
        if header is None
        else {"cast": [header, *_without_final_clear(events)], "length": last, "started": started}
    )


#: Sequences that leave the alternate screen or clear the screen.
_CLEARS = re.compile(r"\x1b\[\?(?:1049|1047|47)l|\x1b\[[23]?J|\x1bc")
#: Number of characters at the end of a recording that are searched for a final clearing of the screen.
_END = 1 << 16


def _without_final_clear(events: list[list[Any]]) -> list[list[Any]]:
    """Return the events without a final clearing of the screen.

    A full-screen program clears the screen when it exits, so a player at the end would show an empty screen.
    """
    shown = [at for at, event in enumerate(events) if event[1] == "o"]
    text, first = "", len(shown)
    while first and len(text) < _END:
        first -= 1
        text = events[shown[first]][2] + text
    keep = len(text)
    for clear in reversed(list(_CLEARS.finditer(text))):
        if ansi.clean(text[clear.start() : keep]).strip():
            break
        keep = clear.start()
    if keep == len(text) or not ansi.clean(text[:keep]).strip():
        return events
    trimmed = list(events)
    for at in shown[first:]:
        size = len(trimmed[at][2])
        trimmed[at] = [trimmed[at][0], "o", trimmed[at][2][: max(0, keep)]]
        keep -= size
    return [event for event in trimmed if event[1] != "o" or event[2]]


def _dimension(thing: object, default: int, most: int) -> int:
    size = as_int(thing)
    return default if size is None or size < 1 else min(size, most)


def _parse_int(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 6 else None
