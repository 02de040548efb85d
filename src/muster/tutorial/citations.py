"""Match cited texts and the docstrings of tests against the blocks of a tutorial."""

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
    """Line in the test file, counted from 1; from `in_docstring`, the row of the docstring, counted from 0."""
    text: str


class BlockIndex:
    """The blocks of a tutorial, indexed by their text and by their words and lines."""

    COMMON = 40
    """Words that occur in more blocks than this are only looked up for texts that have no rarer word."""

    def __init__(self, tutorial: str, tutorial_blocks: Sequence[Block]) -> None:
        self.tutorial = tutorial
        self.by_text: dict[str, Block] = {}
        for block in tutorial_blocks:
            self.by_text.setdefault(block.text, block)
        self._blocks = [block for block in self.by_text.values() if block.kind == "commands"]
        self._features = [_features(block.text) for block in self._blocks]
        self._having: dict[str, list[int]] = {}
        for index, features in enumerate(self._features):
            for feature in features:
                self._having.setdefault(feature, []).append(index)
        self._sums = [sum(map(self._weight, features)) for features in self._features]
        self._explained: dict[str, tuple[str, str, str]] = {}
        self._by_first_line: dict[str, list[Block]] = {}
        self._unescaped: dict[str, Block] = {}
        for block in self._blocks:
            self._by_first_line.setdefault(block.text.partition("\n")[0], []).append(block)
            if (text := _unescape(block.text)) is not None:
                self._unescaped.setdefault(_words(text), block)
                self._by_first_line.setdefault(_words(text.partition("\n")[0]), []).append(block)
        for candidates in self._by_first_line.values():
            candidates.sort(key=lambda block: -len(block.text))
        self.programs = {word for block in self._blocks for command in block.commands for word in command.split()[:1]}

    def starting_at(self, rows: Sequence[str], at: int) -> tuple[str, int] | None:
        """Return the text of the longest block that begins at `rows[at]`, and the index after its last row.

        A block whose backslashes Python read as escapes matches too; the returned text then differs from the block's text.
        """
        first = rows[at].strip()
        for block in [*self._by_first_line.get(first, ()), *self._by_first_line.get(_words(first), ())]:
            for expected in (block.text, _unescape(block.text)):
                if expected is None:
                    continue
                end = at + expected.count("\n") + 1
                text = blocks.normalize("\n".join(rows[at:end]))
                if at == 0 and _below_first(text) == _below_first(block.text):
                    text = (
                        block.text
                    )  # the first row follows the quotes without indentation, so only compare the others
                if text == block.text or (expected != block.text and _words(text) == _words(expected)):
                    return text, end
        return None

    def explain_stale(self, text: str) -> tuple[str, str, str]:
        """Return, for a text that equals no block: a message, the id of the nearest block, and the difference to it."""
        if text not in self._explained:
            self._explained[text] = self._compare(text)
        return self._explained[text]

    def nearest(self, text: str) -> Block | None:
        """Return the block that shares most lines and words with the text, where rare ones count more."""
        features = _features(text)
        rare = [feature for feature in features if 0 < len(self._having.get(feature, ())) <= self.COMMON]
        shared: dict[int, float] = {}
        for feature in rare or [feature for feature in features if feature in self._having]:
            for index in self._having[feature]:
                shared[index] = shared.get(index, 0.0) + self._weight(feature)
        if not shared:
            return None
        total = sum(map(self._weight, features))
        return self._blocks[max(shared, key=lambda index: (shared[index] / (total + self._sums[index]), -index))]

    def _weight(self, feature: str) -> float:
        return 1 / len(self._having.get(feature, (0,)))

    def _compare(self, text: str) -> tuple[str, str, str]:
        if unescaped := self._unescaped.get(_words(text)):
            diff = _diff(text, unescaped.text, f"{self.tutorial}:{unescaped.line}")
            message = f"Python read the backslashes of {unescaped.id} (line {unescaped.line} of {self.tutorial})"
            return f'{message} as escapes: cite it in a raw string, r"""…"""', unescaped.id, diff
        near = self.nearest(text)
        if near is None:
            return f"this is not a block of {self.tutorial}, and no block is similar", "", ""
        message = f"this is not a block of {self.tutorial}; the nearest is {near.id} at line {near.line}"
        if text.split() == near.text.split():
            message += ", which differs only in white space"
        return message, near.id, _diff(text, near.text, f"{self.tutorial}:{near.line}")


def in_docstring(doc: str, index: BlockIndex) -> Iterator[Citation]:
    """Yield the citations in a docstring: every block of the tutorial that it contains, and stale citations.

    A text that equals no block is a stale citation if it begins with a comment and has commands. The rest is prose.
    """
    if "\n" not in doc and doc.strip() not in index.by_text:
        return
    first, _, rest = doc.replace("\r\n", "\n").partition("\n")
    rows = [first.strip(), *textwrap.dedent(rest).split("\n")]
    at = taken = 0
    while at < len(rows):
        start, end, text = at, at + 1, ""
        if match := index.starting_at(rows, at):
            text, end = match
            while start > taken and _belongs(rows[start - 1], rows[at], index):
                start -= 1
            while end < len(rows) and _belongs(rows[end], rows[at], index) and not index.starting_at(rows, end):
                end += 1
            if end - start > text.count("\n") + 1:
                text = blocks.normalize("\n".join(rows[start:end]))
        elif rows[at].lstrip().startswith("#"):
            end = _end(rows, at, index)
            text = blocks.normalize("\n".join(rows[at:end]))
        if blocks.commands(text):
            yield Citation(start, text)
            taken = end
        at = end


def _end(rows: Sequence[str], start: int, index: BlockIndex) -> int:
    """Return the index after the last row of a text that begins with a comment at `start` and matches no block.

    The text ends at an empty row outside quotes and heredocs, at a smaller indentation, at the end of a fenced code
    listing, and at a block with another indentation, because then the comment was a remark above that block.
    """
    stop = blocks.block_end(rows, start)
    for at in range(start + 1, stop):
        row = rows[at]
        if not row.strip():
            continue
        if _indent(row) < _indent(rows[start]) or row.lstrip().startswith(("```", "~~~")):
            return at
        if _indent(row) != _indent(rows[start]) and index.starting_at(rows, at):
            return at
    return stop


def _belongs(row: str, first: str, index: BlockIndex) -> bool:
    """Return whether a row next to a cited block reads as an extra line of the block rather than as prose.

    It does if it is a comment, starts with an option or an operator, or starts with a program that the tutorial calls
    and does not end like a sentence.
    """
    words = row.split()
    if not words or _indent(row) < _indent(first):
        return False
    sentence = re.search(r"\w[`'\")]*[.:!?]$", words[-1]) is not None
    return words[0].startswith(("#", "-", "|", "&&")) or (words[0] in index.programs and not sentence)


def _indent(row: str) -> int:
    return len(row) - len(row.lstrip())


def _unescape(text: str) -> str | None:
    """Return the text as Python reads it in a triple-quoted string that is not raw; None if that changes nothing."""
    if "\\" not in text:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value = ast.literal_eval('"""' + text.replace('"""', '\\"\\"\\"') + '\n"""')
    except (SyntaxError, ValueError):
        return None
    text = text + "\n"
    return value.rstrip("\n") if isinstance(value, str) and value != text else None


def _below_first(text: str) -> tuple[str, str]:
    first, _, rest = text.partition("\n")
    return first, blocks.normalize(rest)


def _words(text: str) -> str:
    return " ".join(text.split())


def _features(text: str) -> set[str]:
    rows = {f"\n{' '.join(row.split())}" for row in text.split("\n") if row.strip()}
    return rows | set(re.findall(r"[\w-]+", text.lower()))


def _diff(cited: str, block: str, where: str) -> str:
    rows = difflib.unified_diff(cited.split("\n"), block.split("\n"), "cited", where, n=2, lineterm="")
    return "\n".join(rows)
