"""Compare patches line by line: which are equal, which touch the same lines, and which build on another.

Pure functions of what `git diff-tree` printed. Paths are text with undecodable bytes as surrogates. If lines cannot be compared (binary
or huge files, modes, types), a change is *opaque*: it counts as a change of the whole file.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

ABSENT = "000000"
SUBMODULE = "160000"
#: A file with more hunks is opaque: comparing them would take too long.
HUNKS_MOST = 1000
_END = 1 << 60
_HUNK = re.compile(rb"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_MARKER = re.compile(rb"\+(?:<{7}|>{7})(?: |\r?\Z)")


class Hunk(NamedTuple):
    """Lines `start` to `end` (from 0, end excluded) became lines `at` to `until`."""

    start: int
    end: int
    at: int
    until: int
    text: str
    """A digest of the removed and the added lines."""
    marked: bool
    """True if an added line is a conflict marker."""


class Change(NamedTuple):
    path: str
    old_mode: str
    new_mode: str
    old: str
    new: str
    hunks: tuple[Hunk, ...] | None = None
    """None if the change is opaque."""

    @property
    def size(self) -> int:
        return sum(hunk.end - hunk.start + hunk.until - hunk.at for hunk in self.hunks) if self.hunks else 1


Lines = dict[tuple[str, str], tuple[Hunk, ...]]


def raw(data: bytes) -> list[list[Change]]:
    """Return the changes of each pair that `diff-tree --stdin --raw -z` was given, all of them opaque."""
    pairs: list[list[Change]] = []
    at = 0
    while at < len(data):
        if data[at : at + 1] != b":":
            pairs.append([])
            at = data.index(b"\n", at) + 1
            continue
        middle = data.index(b"\0", at)
        end = data.index(b"\0", middle + 1)
        old_mode, new_mode, old, new, _ = data[at + 1 : middle].decode().split(" ")
        path = data[middle + 1 : end].decode("utf-8", "surrogateescape")
        pairs[-1].append(Change(path, old_mode, new_mode, old, new))
        at = end + 1
    return pairs


def lines(data: bytes) -> Lines:
    """Return the hunks between each two blobs of a patch that was made with `-U0 --full-index`."""
    found: dict[tuple[str, str], list[Hunk]] = {}
    rest = data.split(b"\n")
    here: list[Hunk] = []
    at = 0
    while at < len(rest):
        line = rest[at]
        at += 1
        if line.startswith(b"index "):
            old, _, new = line.split(b" ")[1].decode().partition("..")
            here = found[old, new] = []  # the same two blobs may occur in several patches
        elif match := _HUNK.match(line):
            a, b, c, d = (int(number) if number is not None else 1 for number in match.groups())
            begin, left = at, b + d
            while left or rest[at][:1] == b"\\":  # "\ No newline at end of file" counts as no line
                left -= rest[at][:1] != b"\\"
                at += 1
            text = rest[begin:at]
            start, to = a - (b > 0), c - (d > 0)  # git counts from 1, and for an empty range names the line before it
            digest = hashlib.sha1(b"\n".join(text), usedforsecurity=False).hexdigest()
            here.append(Hunk(start, start + b, to, to + d, digest, any(map(_MARKER.match, text))))
    return {blobs: tuple(hunks) for blobs, hunks in found.items() if 0 < len(hunks) <= HUNKS_MOST}


def detailed(change: Change, known: Lines) -> Change:
    """Return the change with its hunks, if only lines changed."""
    kept = ABSENT in (change.old_mode, change.new_mode) or change.old_mode == change.new_mode
    return change._replace(hunks=known.get((change.old, change.new))) if kept else change


def key(changes: Iterable[Change]) -> str:
    """Return a digest that is equal for patches that do the same, at any place of the file and on any base; empty for an empty patch."""
    parts = sorted(
        (c.path, c.old_mode, c.new_mode, *((h.text for h in c.hunks) if c.hunks else (c.old, c.new))) for c in changes
    )
    return hashlib.sha256(repr(parts).encode("utf-8", "surrogateescape")).hexdigest() if parts else ""


def touch(one: Change, other: Change) -> bool:
    """Return whether two changes of one path touch: their lines overlap or are neighbours, and are not changed in the same way."""
    if one[1:] == other[1:]:
        return False
    if one.old != other.old or one.hunks is None or other.hunks is None:
        return True
    return any(
        a.start <= b.end and b.start <= a.end and (a.start, a.end, a.text) != (b.start, b.end, b.text)
        for a in one.hunks
        for b in other.hunks
    )


def may_conflict(patches: Mapping[str, Sequence[Change]]) -> dict[tuple[str, str], list[str]]:
    """Return the pairs of patches that may conflict, in the order of the patches, each with the paths."""
    by_path: dict[str, list[tuple[str, Change]]] = defaultdict(list)
    for name, changes in patches.items():
        for change in changes:
            by_path[change.path].append((name, change))
    place = {name: number for number, name in enumerate(patches)}
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for path, all_here in by_path.items():
        for (a, one), (b, other) in combinations(all_here, 2):
            if touch(one, other):
                found[a, b].append(path)
        for above in _above(path):
            for a, one in by_path.get(above, ()):
                for b, other in all_here:  # one makes a file where the other needs a directory
                    if a != b and ABSENT not in (one.new_mode, other.new_mode):
                        found[(a, b) if place[a] < place[b] else (b, a)].append(path)
    return dict(sorted(found.items(), key=lambda item: (place[item[0][1]], place[item[0][0]])))


def _above(path: str) -> Iterable[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def dependencies(deltas: Sequence[Sequence[Change]], wanted: Sequence[Sequence[Change]]) -> list[list[int]]:
    """Return for each step of a history the earlier steps that it depends on.

    It depends on a step if it changes lines of it or neighbours of these, or if that step did a part of what its own patch (`wanted`) does.
    """
    owned: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
    first: dict[tuple[str, str], int] = {}
    found = []
    for number, changes in enumerate(deltas):
        needs: set[int] = set()
        done = {(change.path, text) for change in changes for text in _texts(change)}
        for change in changes:
            hunks = change.hunks if change.hunks is not None else (Hunk(0, _END, 0, _END, "", False),)
            touched = [
                (start, end, who)
                for start, end, who in owned[change.path]
                if any(hunk.start <= end and start <= hunk.end for hunk in hunks)
            ]
            needs.update(who for _, _, who in touched)
            moved = [
                (_moved(start, hunks, False), _moved(end, hunks, True), who) for start, end, who in owned[change.path]
            ]
            owned[change.path] = moved + [(hunk.at, hunk.until, number) for hunk in hunks]
        for change in wanted[number]:
            for text in _texts(change):
                if (change.path, text) not in done and (change.path, text) in first:
                    needs.add(first[change.path, text])
        for one in done:
            first.setdefault(one, number)
        found.append(sorted(needs - {number}))
    return found


def _texts(change: Change) -> Iterable[str]:
    return (hunk.text for hunk in change.hunks) if change.hunks is not None else (change.new + change.new_mode,)


def _moved(line: int, hunks: Sequence[Hunk], end: bool) -> int:
    """Return where a boundary between lines is after the hunks; one inside of a hunk moves to its edge."""
    shift = 0
    for hunk in hunks:
        if hunk.end <= line and hunk.start < line:
            shift = hunk.until - hunk.end
        elif hunk.start < line:
            return hunk.until if end else hunk.at
    return line + shift
