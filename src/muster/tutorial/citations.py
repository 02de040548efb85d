"""Citations: match the text of a citation, or the lines of a docstring, against the blocks of a tutorial."""

from __future__ import annotations

import ast
import difflib
import re
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from . import blocks
from .blocks import Block


class Citation(NamedTuple):
    line: int
    """In the test file, or for `documented` the row of the docstring, counted from 0."""
    text: str


class Known:
    """The blocks of a tutorial, indexed by their text and by what they have in common with other texts."""

    COMMON = 40
    """A word that occurs in more blocks than this is looked up only if a text has no rarer one."""

    def __init__(self, tutorial: str, found: Sequence[Block]) -> None:
        self.tutorial = tutorial
        self.by_text: dict[str, Block] = {}
        for block in found:
            self.by_text.setdefault(block.text, block)
        self._blocks = [block for block in self.by_text.values() if block.kind == "commands"]
        self._features = [_features(block.text) for block in self._blocks]
        self._having: dict[str, list[int]] = {}
        for index, features in enumerate(self._features):
            for feature in features:
                self._having.setdefault(feature, []).append(index)
        self._sums = [sum(map(self._weight, features)) for features in self._features]
        self._told: dict[str, tuple[str, str, str]] = {}
        self._by_first_line: dict[str, list[Block]] = {}
        self._unescaped: dict[str, Block] = {}
        for block in self._blocks:
            self._by_first_line.setdefault(block.text.partition("\n")[0], []).append(block)
            if (text := _unescape(block.text)) is not None:
                self._unescaped.setdefault(_words(text), block)
                self._by_first_line.setdefault(_words(text.partition("\n")[0]), []).append(block)
        for some in self._by_first_line.values():
            some.sort(key=lambda block: -len(block.text))
        self.programs = {word for block in self._blocks for command in block.commands for word in command.split()[:1]}

    def starting_at(self, rows: Sequence[str], at: int) -> tuple[str, int] | None:
        """Return the longest block whose lines stand in `rows` from `at` on, as they are cited, and the index behind it.

        A block whose backslashes Python has read as escapes counts too: its text is then not that of any block.
        """
        first = rows[at].strip()
        for block in [*self._by_first_line.get(first, ()), *self._by_first_line.get(_words(first), ())]:
            for wanted in (block.text, _unescape(block.text)):
                if wanted is None:
                    continue
                end = at + wanted.count("\n") + 1
                text = blocks.normal("\n".join(rows[at:end]))
                if at == 0 and _below_first(text) == _below_first(block.text):
                    text = block.text  # the row behind the quotes does not show how far the others are indented
                if text == block.text or (wanted != block.text and _words(text) == _words(wanted)):
                    return text, end
        return None

    def stale(self, text: str) -> tuple[str, str, str]:
        """For a text that is no block: return the message, the id of the nearest block, and the difference."""
        if text not in self._told:
            self._told[text] = self._compare(text)
        return self._told[text]

    def nearest(self, text: str) -> Block | None:
        """Return the block that shares most lines and words with the text; rare ones count more."""
        features = _features(text)
        rare = [one for one in features if 0 < len(self._having.get(one, ())) <= self.COMMON]
        shared: dict[int, float] = {}
        for feature in rare or [one for one in features if one in self._having]:
            for index in self._having[feature]:
                shared[index] = shared.get(index, 0.0) + self._weight(feature)
        if not shared:
            return None
        mine = sum(map(self._weight, features))
        return self._blocks[max(shared, key=lambda index: (shared[index] / (mine + self._sums[index]), -index))]

    def _weight(self, feature: str) -> float:
        return 1 / len(self._having.get(feature, (0,)))

    def _compare(self, text: str) -> tuple[str, str, str]:
        if unescaped := self._unescaped.get(_words(text)):
            diff = _diff(text, unescaped.text, f"{self.tutorial}:{unescaped.line}")
            message = f"Python has read the backslashes of {unescaped.id} (line {unescaped.line} of {self.tutorial})"
            return f'{message} as escapes: cite it in a raw string, r"""…"""', unescaped.id, diff
        near = self.nearest(text)
        if near is None:
            return f"this is no block of {self.tutorial}, and none is like it", "", ""
        told = f"this is no block of {self.tutorial}; the nearest is {near.id} at line {near.line}"
        if text.split() == near.text.split():
            told += ", which differs only in white space"
        return told, near.id, _diff(text, near.text, f"{self.tutorial}:{near.line}")


def documented(doc: str, known: Known) -> Iterator[Citation]:
    """Yield the citations in a docstring: blocks of the tutorial wherever their lines stand, and stale ones.

    A text counts as a stale citation if it begins with a comment and has commands. Everything else is prose.
    """
    if "\n" not in doc and doc.strip() not in known.by_text:
        return
    first, _, rest = doc.replace("\r\n", "\n").partition("\n")
    rows = [first.strip(), *textwrap.dedent(rest).split("\n")]
    at = taken = 0
    while at < len(rows):
        start, end, text = at, at + 1, ""
        if found := known.starting_at(rows, at):
            text, end = found
            while start > taken and _belongs(rows[start - 1], rows[at], known):
                start -= 1
            while end < len(rows) and _belongs(rows[end], rows[at], known) and not known.starting_at(rows, end):
                end += 1
            if end - start > text.count("\n") + 1:
                text = blocks.normal("\n".join(rows[start:end]))
        elif rows[at].lstrip().startswith("#"):
            end = _end(rows, at, known)
            text = blocks.normal("\n".join(rows[at:end]))
        if blocks.commands(text):
            yield Citation(start, text)
            taken = end
        at = end


def _end(rows: Sequence[str], start: int, known: Known) -> int:
    """Return the index behind the last row of what begins with a comment at `start` and is no block.

    It ends at an empty row outside quotes and heredocs, where the indentation gets less, at the end of a fenced
    listing, and where a block begins that is indented differently: then the comment was a remark above it.
    """
    stop = blocks.span(rows, start)
    for index in range(start + 1, stop):
        row = rows[index]
        if not row.strip():
            continue
        if _indent(row) < _indent(rows[start]) or row.lstrip().startswith(("```", "~~~")):
            return index
        if _indent(row) != _indent(rows[start]) and known.starting_at(rows, index):
            return index
    return stop


def _belongs(row: str, first: str, known: Known) -> bool:
    """Whether a row beside a cited block reads as one more line of it, which the tutorial does not have.

    Prose may stand there. A row is part of the citation if it is a comment, goes on with an option or an operator, or
    begins with a program that the tutorial calls and does not end as a sentence does.
    """
    words = row.split()
    if not words or _indent(row) < _indent(first):
        return False
    sentence = re.search(r"\w[`'\")]*[.:!?]$", words[-1]) is not None
    return words[0].startswith(("#", "-", "|", "&&")) or (words[0] in known.programs and not sentence)


def _indent(row: str) -> int:
    return len(row) - len(row.lstrip())


def _unescape(text: str) -> str | None:
    """Return the text as Python reads it between triple quotes that are not raw; None if that changes nothing."""
    if "\\" not in text:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = ast.literal_eval('"""' + text.replace('"""', '\\"\\"\\"') + '\n"""')
    except (SyntaxError, ValueError):
        return None
    text = text + "\n"
    return found.rstrip("\n") if isinstance(found, str) and found != text else None


def _below_first(text: str) -> tuple[str, str]:
    first, _, rest = text.partition("\n")
    return first, blocks.normal(rest)


def _words(text: str) -> str:
    return " ".join(text.split())


def _features(text: str) -> set[str]:
    rows = {f"\n{' '.join(row.split())}" for row in text.split("\n") if row.strip()}
    return rows | set(re.findall(r"[\w-]+", text.lower()))


def _diff(cited: str, block: str, where: str) -> str:
    rows = difflib.unified_diff(cited.split("\n"), block.split("\n"), "cited", where, n=2, lineterm="")
    return "\n".join(rows)
