"""Lines of terminal output as runs of text with a style made of numbers. Whatever else a line wants of a terminal is left out.

A style is (flags, foreground, background). A colour is -1 for none, 0 to 255 of the palette, 256 + 0xRRGGBB for a true
colour, and -2 for the other side's default, which is what inverse text without a colour has.
"""

from __future__ import annotations

import re
from typing import NamedTuple

BOLD, DIM, ITALIC, UNDERLINE, STRIKE, INVERSE = 1, 2, 4, 8, 16, 32
LONGEST = 1 << 16


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
#: Control characters, and the characters that turn the direction of text around.
_UNSEEN = re.compile("[\x00-\x07\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
#: Whatever `clean` would take out of a text begins with one of these.
ODD = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
#: What makes more of a text than its characters.
MOVES = re.compile("[\x08\r\x1b\x90\x98\x9b\x9d-\x9f]")
_FLAGS = {1: BOLD, 2: DIM, 3: ITALIC, 4: UNDERLINE, 7: INVERSE, 9: STRIKE, 21: UNDERLINE}
_ENDS = {22: BOLD | DIM, 23: ITALIC, 24: UNDERLINE, 27: INVERSE, 29: STRIKE}


def clean(text: str) -> str:
    """The text without escape sequences and unseen characters; newlines and tabs stay."""
    if not ODD.search(text):  # as most texts are
        return text
    return _UNSEEN.sub("", _ESCAPE.sub("", text)).replace("\b", "")


def line(text: str, style: Style = PLAIN) -> tuple[list[Run], Style]:
    """One line (with its newline, if it has one) as runs, and the style in which the next one begins.

    What a carriage return or a backspace wrote over is gone; a line longer than `LONGEST` is cut, and says so.
    """
    body = text.rstrip("\r\n")
    end = "\n" if len(body) < len(text) else ""
    more = len(body) - LONGEST
    if more > 0:
        body = body[:LONGEST]
    cells = _Cells() if "\r" in body or "\b" in body else None
    runs: list[Run] = []
    at = 0
    for found in _ESCAPE.finditer(body):
        _put(runs, cells, body[at : found.start()], style)
        at = found.end()
        if found["final"] == "m":
            style = _shade(style, found["args"])
        elif cells is not None and found["final"] == "K":
            cells.erase(found["args"])
    _put(runs, cells, body[at:], style)
    if cells is not None:
        runs = cells.runs()
    if more > 0:
        runs.append((f" … {more} more characters", Style(DIM | ITALIC)))
    if end:
        runs.append((end, runs[-1][1] if runs else PLAIN))
    return join(runs), style


def join(runs: list[Run]) -> list[Run]:
    """The same with neighbours of one style put together."""
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


def seen(style: Style) -> Style:
    """The style as it is drawn: inverse is carried out."""
    if not style.flags & INVERSE:
        return style
    swap = {-1: -2}
    return Style(style.flags & ~INVERSE, swap.get(style.back, style.back), swap.get(style.front, style.front))


def _put(runs: list[Run], cells: _Cells | None, text: str, style: Style) -> None:
    if cells is not None:
        cells.write(text, style)
    elif text := _UNSEEN.sub("", text):
        runs.append((text, style))


class _Cells:
    """A line on which the cursor goes back."""

    def __init__(self) -> None:
        self._cells: list[Run] = []
        self._at = 0

    def write(self, text: str, style: Style) -> None:
        for char in text:
            if char == "\r":
                self._at = 0
            elif char == "\b":
                self._at = max(0, self._at - 1)
            elif char == "\t" or not _UNSEEN.match(char):
                self._cells[self._at : self._at + 1] = [(char, style)]
                self._at += 1

    def erase(self, what: str) -> None:
        if what in ("", "0"):
            del self._cells[self._at :]
        elif what == "2":
            self._cells = [(" ", PLAIN)] * self._at
        elif what == "1":
            self._cells[: self._at] = [(" ", PLAIN)] * self._at

    def runs(self) -> list[Run]:
        return join(self._cells)


def _shade(style: Style, args: str) -> Style:
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
    """The colour that the next words say, which are taken off."""
    kind = _number(words.pop(0)) if words else 0
    count = {5: 1, 2: 3}.get(kind, 0)
    numbers = [_number(word) for word in words[:count]]
    del words[:count]
    return _colour([kind, *numbers])


def _colour(numbers: list[int]) -> int:
    """Of `5, N` or `2, R, G, B` (or with a colour space between, as 2::R:G:B has)."""
    kind, *rest = numbers
    if kind == 5 and rest and rest[0] < 256:
        return rest[0]
    if kind == 2 and len(rest) >= 3:
        red, green, blue = (min(number, 255) for number in rest[-3:] if number >= 0)
        return 256 + (red << 16 | green << 8 | blue)
    return -1


def _number(word: str) -> int:
    return int(word) if word.isascii() and word.isdigit() and len(word) < 5 else 0
