"""Styles of text on a screen (bold, colours, …): parsed from tmux's output and from the words that tests use."""

from __future__ import annotations

import re

#: The style of one character, such as {"bold", "red", "on blue"}; empty if it is plain.
Style = frozenset[str]
#: One row of a screen, as pieces of text that each have a single style.
Row = list[tuple[str, Style]]
PLAIN: Style = frozenset()

COLOURS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
WORDS = {1: "bold", 2: "dim", 3: "italic", 4: "underline", 5: "blink", 7: "reverse", 8: "hidden", 9: "strike"}
_ENDS = {22: ("bold", "dim"), 23: ("italic",), 24: ("underline",), 25: ("blink",), 27: ("reverse",), 28: ("hidden",)}
_ENDS |= {29: ("strike",)}
_TOKEN = re.compile(r"\x1b\[([0-9;:]*)m|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b\[[0-?]*[ -/]*[@-~]|[\x0e\x0f]|\x1b.")


def parse(words: str) -> Style:
    """Parse a style such as `bold red`, `underline`, `bright-green on black`, `colour208` or `#ff8000`.

    Raises ValueError for an unknown word.
    """
    style: set[str] = set()
    ground = ""
    for word in words.lower().replace("color", "colour").split():
        if word == "on":
            ground = "on "
        elif word in WORDS.values():
            style.add(word)
        elif _is_colour(word):
            style.add(ground + word)
            ground = ""
        else:
            known = ", ".join([*WORDS.values(), *COLOURS])
            raise ValueError(f"unknown style {word!r}: use {known}, bright-COLOUR, colour0-255, #rrggbb or on COLOUR")
    return frozenset(style)


def rows(text: str) -> list[Row]:
    """Parse the output of `tmux capture-pane -e` into rows with styles."""
    style: Style = PLAIN
    parsed: list[Row] = []
    for line in text.split("\n"):
        row: Row = []
        at = 0
        for token in _TOKEN.finditer(line):
            if token.start() > at:
                row.append((line[at : token.start()], style))
            at = token.end()
            if token[1] is not None:
                style = _apply_codes(style, token[1])
        if at < len(line):
            row.append((line[at:], style))
        parsed.append(row)
    return parsed


def styles_of(text: str, screen: list[Row]) -> list[Style]:
    """Return, for each place where a row contains `text`, the style that all its characters have in common."""
    styles = []
    for row in screen:
        line = "".join(piece for piece, _ in row)
        cells = [style for piece, style in row for _ in piece]
        at = line.find(text) if text else -1
        while at >= 0:
            styles.append(frozenset.intersection(*cells[at : at + len(text)]))
            at = line.find(text, at + 1)
    return styles


def describe(style: Style) -> str:
    """Return the style in words, such as `bold red on blue`."""
    return (
        " ".join(sorted(style, key=lambda word: (word.startswith("on "), word not in WORDS.values(), word))) or "plain"
    )


def _is_colour(word: str) -> bool:
    if match := re.fullmatch(r"colour(\d{1,3})", word):
        return int(match[1]) < 256
    return word.removeprefix("bright-") in COLOURS or re.fullmatch(r"#[0-9a-f]{6}", word) is not None


def _named(index: int) -> str:
    if index < 8:
        return COLOURS[index]
    return f"bright-{COLOURS[index - 8]}" if index < 16 else f"colour{index}"


def _apply_codes(style: Style, codes: str) -> Style:
    """Return the style after an SGR sequence with these codes."""
    current = set(style)
    numbers = [[int(part or 0) for part in code.split(":")] for code in codes.split(";")]
    at = 0
    while at < len(numbers):
        (code, *more), at = numbers[at], at + 1
        if code == 0:
            current.clear()
        elif code == 4 and more == [0]:
            current.discard("underline")
        elif code in WORDS:
            current.add(WORDS[code])
        elif code == 21:
            current.add("underline")
        elif code in _ENDS:
            current.difference_update(_ENDS[code])
        elif code in (38, 48):
            # `38;5;208` has the colour's numbers as further codes; `38:5:208` has them as parts of this code.
            rest = more or [code_parts[0] for code_parts in numbers[at : at + 4]]
            rgb = rest[:1] == [2]
            at += 0 if more else 4 if rgb else 2
            if rgb and len(rest) >= 4:
                _colour(current, code == 48, "#" + "".join(f"{part:02x}" for part in rest[-3:]))
            elif rest[:1] == [5] and len(rest) >= 2:
                _colour(current, code == 48, _named(rest[1]))
        elif code == 58:
            at += 0 if more else 4 if numbers[at : at + 1] == [[2]] else 2
        elif code in (39, 49):
            _colour(current, code == 49, "")
        elif code // 10 in (3, 4, 9, 10) and code % 10 < 8:
            _colour(current, code // 10 in (4, 10), _named(code % 10 + (8 if code >= 90 else 0)))
    return frozenset(current)


def _colour(style: set[str], ground: bool, name: str) -> None:
    style -= {word for word in style if (word.startswith("on ") if ground else _is_colour(word))}
    if name:
        style.add(f"on {name}" if ground else name)
