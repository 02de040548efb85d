"""The tutorial as the page shows it: sections, blocks in their order, and where each cited text has its place. Pure."""

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
    kind: str  # "" for one that can be tested, "prose" for words only, "fill" for a heading with nothing below, "stale"


class Outline(NamedTuple):
    sections: list[str]
    blocks: list[Block]
    places: dict[str, int]


def read(tutorial: str, cited: Iterable[str]) -> Outline:
    """The tutorial's blocks in their order, and behind them the cited texts that are none of them."""
    found = shell.parse(tutorial)
    sections: list[str] = []
    blocks: list[Block] = []
    places: dict[str, int] = {}
    banner = ""
    for at, block in enumerate(found):
        if block.kind in ("banner", "heading"):
            title, more = shell.headline(block.text)
            title = title or "…"
            banner = title if block.kind == "banner" else banner
            sections.append(title if block.kind == "banner" or not banner else f"{banner} › {title}")
            last = at + 1 == len(found) or found[at + 1].kind in ("banner", "heading")
            if block.kind == "banner" or not last:
                if more:  # what a banner or a heading explains behind its title
                    blocks.append(Block(len(sections) - 1, more, block.line, "prose"))
                continue
        if not sections:
            sections.append(BEGINNING)
        kind = {"preamble": "prose", "heading": "fill"}.get(block.kind, "")
        places.setdefault(block.text, len(blocks))
        blocks.append(Block(len(sections) - 1, block.text, block.line, kind))
    rest = [text for text in dict.fromkeys(cited) if text not in places]
    if rest:
        sections.append(ELSEWHERE if found else CITED)
    for text in rest:
        places[text] = len(blocks)
        blocks.append(Block(len(sections) - 1, text, None, "stale" if found else ""))
    return Outline(sections, blocks, places)
