"""What tasks came to, before any of it is put together: read, made equal where it is equal, ordered, and looked at for conflicts.

Nothing is applied here and nothing is tested.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ...errors import UsageError
from ..run.results import shown
from ..run.tasks import counted
from . import patches
from .patches import SUBMODULE, Change
from .trees import Repository

IMPLEMENTATION = "implementation"
UNCHANGED = "nothing changed"
#: When all units collide with all others, it is enough to know it of so many for each.
PAIRS_MOST = 20


class Unit(NamedTuple):
    """What one task came to: the way from the tree of `base` to the tree of `tip`. Title and body are any text at all."""

    name: str
    base: str
    tip: str
    tests: tuple[str, ...] = ()
    """The tests it is known to fix."""
    group: int = 1
    """How many failures are like the one it fixes."""
    severity: int = 0
    title: str = ""
    body: str = ""
    trailers: Mapping[str, str] = {}
    requires: tuple[str, ...] = ()
    """The units that its base contains already."""


class LeftOut(NamedTuple):
    reason: str
    output: str = ""


class Pair(NamedTuple):
    """Two units that do not fit together."""

    one: str
    other: str
    paths: tuple[str, ...]
    sure: bool
    """Merging them was tried; else they begin at different trees, and their lines only look like it."""


class Piece(NamedTuple):
    """A unit that can be applied, and those that are equal to it."""

    unit: Unit
    before: str
    after: str
    changes: tuple[Change, ...]
    implementation: tuple[Change, ...]
    whole: str
    """The same for units that do the same."""
    part: str
    """The same for units whose implementation does the same; empty without one."""
    size: int
    twins: tuple[Unit, ...] = ()

    @property
    def name(self) -> str:
        return self.unit.name

    @property
    def names(self) -> tuple[str, ...]:
        return (self.unit.name, *(unit.name for unit in self.twins))

    @property
    def tests(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(test for unit in (self.unit, *self.twins) for test in unit.tests))

    @property
    def paths(self) -> set[str]:
        return {change.path for change in self.changes}


def pieces(
    git: Repository, units: Sequence[Unit], kind: Callable[[str], str]
) -> tuple[list[Piece], dict[str, LeftOut]]:
    """The units that change something, and why the others are left out."""
    if len({unit.name for unit in units}) < len(units):
        raise UsageError("two units have the same name")
    trees = git.trees(commit for unit in units for commit in (unit.base, unit.tip))
    left = {}
    for unit in units:
        for what, commit in (("base", unit.base), ("commit", unit.tip)):
            if commit not in trees:
                left[unit.name] = LeftOut(f"its {what} {shown(commit)} is not in the repository")
    there = [unit for unit in units if unit.name not in left]
    made = []
    sides = [(trees[unit.base], trees[unit.tip]) for unit in there]
    for unit, (before, after), changes in zip(there, sides, git.readable(sides), strict=True):
        if flaw := _flaw(changes):
            left[unit.name] = LeftOut(flaw)
        else:
            whole = tuple(change for change in changes if isinstance(change, Change))
            part = tuple(change for change in whole if kind(change.path) == IMPLEMENTATION)
            size = sum(change.size for change in whole)
            made.append(Piece(unit, before, after, whole, part, patches.key(whole), patches.key(part), size))
    git.siblings([(piece.before, piece.after) for piece in made])
    return made, left


def _flaw(changes: Sequence[Change] | str) -> str:
    if isinstance(changes, str):
        return f"its changes cannot be read: {changes}"
    if not changes:
        return UNCHANGED
    for change in changes:
        if SUBMODULE in (change.old_mode, change.new_mode):
            return f"it changes the submodule {shown(change.path)}"
        # Only a tree that was made by hand has them; git would not check them out, or worse.
        for part in change.path.split("/"):
            if "".join(filter(str.isprintable, part)).lower().rstrip(". ") in ("", ".git", "git~1"):
                return f"no work tree can have its path {shown(change.path)}"
    return ""


def collapsed(git: Repository, pieces: Sequence[Piece]) -> list[Piece]:
    """Of equal pieces one remains, with the others as its twins.

    Patches that look equal may be about two like places of a file, so each has to merge into the one that remains without a trace.
    """
    alike: dict[str, list[Piece]] = defaultdict(list)
    for piece in sorted(pieces, key=lambda piece: (len(piece.unit.requires), -len(piece.tests), *_weight(piece))):
        alike[piece.whole].append(piece)
    pairs = [(first, other) for first, *others in alike.values() for other in others]
    ours = git.siblings([(other.before, first.after) for first, other in pairs])
    theirs = git.siblings([(other.before, other.after) for _, other in pairs])
    merges = git.tried(list(zip(ours, theirs, strict=True)))
    apart = {
        other.name
        for (first, other), merge in zip(pairs, merges, strict=True)
        if merge.conflicts or merge.tree != first.after
    }
    made = []
    for first, *others in alike.values():
        twins = tuple(other.unit for other in others if other.name not in apart)
        made += [first._replace(twins=twins), *(other for other in others if other.name in apart)]
    return made


def ranked(pieces: Sequence[Piece], order: Sequence[str] = ()) -> dict[str, str]:
    """The names of the pieces, the most important first but none before what it requires, each with the reason.

    Those in `order` come first, as they stand there.
    """
    fixed: dict[str, set[str]] = defaultdict(set)
    for piece in pieces:
        fixed[piece.part or piece.name].update(piece.tests)
    asked = {name: number for number, name in enumerate(dict.fromkeys(order), 1)}
    last = len(asked) + 1

    def place(piece: Piece) -> int:
        return min(asked.get(name, last) for name in piece.names)

    def importance(piece: Piece) -> tuple[Any, ...]:
        return place(piece), -len(fixed[piece.part or piece.name]), *_weight(piece)

    def words(piece: Piece) -> str:
        all_fixed, own = len(fixed[piece.part or piece.name]), len(set(piece.unit.tests))
        group, severity, size, _ = _weight(piece)
        more = f" ({all_fixed - own} by equal patches)" if all_fixed > own else ""
        return (
            (f"number {place(piece)} as asked, " if place(piece) < last else "")
            + f"fixes {counted(all_fixed, 'test')}{more}, group of {-group}, "
            + f"severity {-severity}, {counted(size, 'line')}"
        )

    home = {name: piece for piece in pieces for name in piece.names}
    reasons: dict[str, str] = {}
    for piece in sorted(pieces, key=importance):
        waiting = {piece.name: piece}
        while waiting:
            newest = next(reversed(waiting.values()))
            needed = (home[name] for name in newest.unit.requires if name in home)
            first = next((one for one in needed if one.name not in reasons and one.name not in waiting), None)
            if first:
                waiting[first.name] = first
            else:
                del waiting[newest.name]
                reasons[newest.name] = words(newest)
    return reasons


def _weight(piece: Piece) -> tuple[int, int, int, str]:
    """Less is more."""
    units = (piece.unit, *piece.twins)
    return -max(unit.group for unit in units), -max(unit.severity for unit in units), piece.size, piece.name


def foreseen(git: Repository, pieces: Sequence[Piece]) -> tuple[Pair, ...]:
    """Which of the pieces, in their order, do not fit together; not more than `PAIRS_MOST` for each of them."""
    by_name = {piece.name: piece for piece in pieces}
    found = [
        (by_name[one], by_name[other], tuple(paths))
        for (one, other), paths in patches.foresee({piece.name: piece.changes for piece in pieces}).items()
        if not set(by_name[one].names) & set(by_name[other].unit.requires)
    ][: PAIRS_MOST * len(pieces)]
    tried = [number for number, (one, other, _) in enumerate(found) if one.before == other.before]
    commits = dict(zip(by_name, git.siblings([(piece.before, piece.after) for piece in pieces]), strict=True))
    merges = git.tried([(commits[found[n][0].name], commits[found[n][1].name]) for n in tried])
    known = dict(zip(tried, merges, strict=True))
    pairs = []
    for number, (one, other, paths) in enumerate(found):
        if number not in known or known[number].conflicts:
            pairs.append(Pair(one.name, other.name, paths, number in known))
    return tuple(pairs)
