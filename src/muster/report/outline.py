"""Arrange a tutorial for the page: its sections, its blocks in order, and the position of each cited text. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ..tutorial import blocks as shell

BEGINNING = "Beginning"
ELSEWHERE = "Not in the tutorial"
CITED = "Cited blocks"


class Block(NamedTuple):
    section: int
    text: str
    line: int | None
    kind: str
    """Empty: can be tested. `prose`: only text. `fill`: a heading without blocks. `stale`: cited, but not in the tutorial."""


class Outline(NamedTuple):
    sections: list[str]
    blocks: list[Block]
    places: dict[str, int]
    """The index in `blocks` of each text."""


def read(tutorial: str, cited: Iterable[str]) -> Outline:
    """Return the blocks of the tutorial in order, followed by cited texts that are not blocks of it."""
    parsed = shell.parse(tutorial)
    sections: list[str] = []
    blocks: list[Block] = []
    places: dict[str, int] = {}
    banner = ""
    for at, block in enumerate(parsed):
        if block.kind in ("banner", "heading"):
            title, more = shell.headline(block.text)
            title = title or "…"
            banner = title if block.kind == "banner" else banner
            sections.append(title if block.kind == "banner" or not banner else f"{banner} › {title}")
            last = at + 1 == len(parsed) or parsed[at + 1].kind in ("banner", "heading")
            if block.kind == "banner" or not last:
                if more:  # the explanation after the title of a banner or heading
                    blocks.append(Block(len(sections) - 1, more, block.line, "prose"))
                continue
        if not sections:
            sections.append(BEGINNING)
        kind = {"preamble": "prose", "heading": "fill"}.get(block.kind, "")
        places.setdefault(block.text, len(blocks))
        blocks.append(Block(len(sections) - 1, block.text, block.line, kind))
    rest = [text for text in dict.fromkeys(cited) if text not in places]
    if rest:
        sections.append(ELSEWHERE if parsed else CITED)
    for text in rest:
        places[text] = len(blocks)
        blocks.append(Block(len(sections) - 1, text, None, "stale" if parsed else ""))
    return Outline(sections, blocks, places)
