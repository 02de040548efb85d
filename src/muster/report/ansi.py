"""Convert lines of terminal output into runs of text with numeric styles. Other escape sequences are dropped.

A style is (flags, foreground, background). A colour is -1 for the default, 0 to 255 for the palette, 256 + 0xRRGGBB for a
true colour, and -2 for the default colour of the other side (used for inverse text without a colour).
"""

from __future__ import annotations

import re
from typing import NamedTuple

BOLD, DIM, ITALIC, UNDERLINE, STRIKE, INVERSE = 1, 2, 4, 8, 16, 32
MAX_LINE = 1 << 16


class Style(NamedTuple):
    flags: int = 0
    front: int = -1
    back: int = -1


PLAIN = Style()
Run = tuple[str, Style]

_ESCAPE = re.compile(
    r"""
    (?:\x1b\[|\x9b) (?P<args>[0-?]*) [ -/]* (?P<final>[@-~])?
    | (?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f]) [^\x07\x1b\x9c]* (?:\x07|\x1b\\|\x9c)?
    | \x1b [ -/]* [0-~]?
    """,
    re.VERBOSE,
)
#: Control characters, and characters that change the direction of text.
_INVISIBLE = re.compile("[\x00-\x07\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
#: Everything that `clean` removes begins with one of these characters.
NEEDS_CLEANING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
#: Characters that move the cursor or begin an escape sequence.
HAS_CONTROLS = re.compile("[\x08\r\x1b\x90\x98\x9b\x9d-\x9f]")
_FLAGS = {1: BOLD, 2: DIM, 3: ITALIC, 4: UNDERLINE, 7: INVERSE, 9: STRIKE, 21: UNDERLINE}
_ENDS = {22: BOLD | DIM, 23: ITALIC, 24: UNDERLINE, 27: INVERSE, 29: STRIKE}


def clean(text: str) -> str:
    """Return the text without escape sequences and invisible characters; newlines and tabs stay."""
    if not NEEDS_CLEANING.search(text):  # the common case
        return text
    return _INVISIBLE.sub("", _ESCAPE.sub("", text)).replace("\b", "")


def line(text: str, style: Style = PLAIN) -> tuple[list[Run], Style]:
    """Return the runs of one line (including its newline, if any), and the style at the start of the next line.

    Text overwritten after a carriage return or backspace is dropped. A line longer than MAX_LINE is cut, with a note.
    """
    body = text.rstrip("\r\n")
    end = "\n" if len(body) < len(text) else ""
    more = len(body) - MAX_LINE
    if more > 0:
        body = body[:MAX_LINE]
    cells = _Cells() if "\r" in body or "\b" in body else None
    runs: list[Run] = []
    at = 0
    for escape in _ESCAPE.finditer(body):
        _append(runs, cells, body[at : escape.start()], style)
        at = escape.end()
        if escape["final"] == "m":
            style = _apply_codes(style, escape["args"])
        elif cells is not None and escape["final"] == "K":
            cells.erase(escape["args"])
    _append(runs, cells, body[at:], style)
    if cells is not None:
        runs = cells.runs()
    if more > 0:
        runs.append((f" … {more} more characters", Style(DIM | ITALIC)))
    if end:
        runs.append((end, runs[-1][1] if runs else PLAIN))
    return join(runs), style


def join(runs: list[Run]) -> list[Run]:
    """Merge adjacent runs of the same style."""
    joined: list[Run] = []
    texts: list[str] = []
    for text, style in runs:
        if joined and joined[-1][1] == style:
            texts.append(text)
            continue
        if joined:
            joined[-1] = ("".join(texts), joined[-1][1])
        joined.append((text, style))
        texts = [text]
    if joined:
        joined[-1] = ("".join(texts), joined[-1][1])
    return joined


def as_drawn(style: Style) -> Style:
    """Return the style with inverse replaced by swapped colours."""
    if not style.flags & INVERSE:
        return style
    swap = {-1: -2}
    return Style(style.flags & ~INVERSE, swap.get(style.back, style.back), swap.get(style.front, style.front))


def _append(runs: list[Run], cells: _Cells | None, text: str, style: Style) -> None:
    if cells is not None:
        cells.write(text, style)
    elif text := _INVISIBLE.sub("", text):
        runs.append((text, style))


class _Cells:
    """The cells of a line in which the cursor moves back."""

    def __init__(self) -> None:
        self._cells: list[Run] = []
        self._at = 0

    def write(self, text: str, style: Style) -> None:
        for char in text:
            if char == "\r":
                self._at = 0
            elif char == "\b":
                self._at = max(0, self._at - 1)
            elif char == "\t" or not _INVISIBLE.match(char):
                self._cells[self._at : self._at + 1] = [(char, style)]
                self._at += 1

    def erase(self, mode: str) -> None:
        if mode in ("", "0"):
            del self._cells[self._at :]
        elif mode == "2":
            self._cells = [(" ", PLAIN)] * self._at
        elif mode == "1":
            self._cells[: self._at] = [(" ", PLAIN)] * self._at

    def runs(self) -> list[Run]:
        return join(self._cells)


def _apply_codes(style: Style, args: str) -> Style:
    flags, front, back = style
    words = args.split(";")
    while words:
        word = words.pop(0)
        code, *rest = [_number(part) for part in word.split(":")]
        if code == 0:
            flags, front, back = PLAIN
        elif code == 4 and rest == [0]:
            flags &= ~UNDERLINE
        elif code in _FLAGS:
            flags |= _FLAGS[code]
        elif code in _ENDS:
            flags &= ~_ENDS[code]
        elif code in (38, 48):
            colour = _colour(rest) if rest else _take(words)
            front, back = (colour, back) if code == 38 else (front, colour)
        elif code == 39:
            front = -1
        elif code == 49:
            back = -1
        elif 30 <= code <= 37 or 90 <= code <= 97:
            front = code - 30 if code < 90 else code - 82
        elif 40 <= code <= 47 or 100 <= code <= 107:
            back = code - 40 if code < 100 else code - 92
    return Style(flags, front, back)


def _take(words: list[str]) -> int:
    """Remove the parameters of a colour from `words` and return the colour."""
    kind = _number(words.pop(0)) if words else 0
    count = {5: 1, 2: 3}.get(kind, 0)
    numbers = [_number(word) for word in words[:count]]
    del words[:count]
    return _colour([kind, *numbers])


def _colour(numbers: list[int]) -> int:
    """Return the colour for the parameters `5, N` or `2, R, G, B`, or with a colour space as in 2::R:G:B."""
    kind, *rest = numbers
    if kind == 5 and rest and rest[0] < 256:
        return rest[0]
    if kind == 2 and len(rest) >= 3:
        red, green, blue = (min(number, 255) for number in rest[-3:] if number >= 0)
        return 256 + (red << 16 | green << 8 | blue)
    return -1


def _number(word: str) -> int:
    return int(word) if word.isascii() and word.isdigit() and len(word) < 5 else 0
