"""Prepare changes for integration: read them, collapse equal ones, rank them, and predict which of them conflict.

Nothing is applied or tested here.
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
#: Rank of the status that a test had before; units whose tests rank higher are integrated first.
SEVERITY = {"hanging": 3, "failing": 2, "flaky": 1}
UNCHANGED = "nothing changed"
#: Predicted conflicts per unit. If every unit conflicts with every other one, a longer list helps nobody.
PAIRS_MOST = 20


class Unit(NamedTuple):
    """The change of one task: what leads from the tree of `base` to the tree of `tip`. Title and body are text of an agent."""

    name: str
    base: str
    tip: str
    tests: tuple[str, ...] = ()
    """The tests it is known to fix."""
    group: int = 1
    """The size of the group of similar failures that it belongs to."""
    severity: int = 0
    title: str = ""
    body: str = ""
    trailers: Mapping[str, str] = {}
    requires: tuple[str, ...] = ()
    """The names of the units that its base contains."""


class LeftOut(NamedTuple):
    reason: str
    output: str = ""


class Pair(NamedTuple):
    """Two units that conflict."""

    one: str
    other: str
    paths: tuple[str, ...]
    sure: bool
    """True if merging them was tried. Else they have different bases, and only their lines suggest a conflict."""


class Piece(NamedTuple):
    """A unit that can be applied, and the units that are equal to it."""

    unit: Unit
    before: str
    after: str
    changes: tuple[Change, ...]
    implementation: tuple[Change, ...]
    whole: str
    """Equal for units with equal changes."""
    part: str
    """Equal for units with equal changes of the implementation; empty if there are none."""
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


def read_pieces(
    git: Repository, units: Sequence[Unit], kind: Callable[[str], str]
) -> tuple[list[Piece], dict[str, LeftOut]]:
    """Return the units that change something, and the reason why each of the others is left out."""
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
        # git itself never makes such a tree. It would refuse to check it out, or worse.
        for part in change.path.split("/"):
            if "".join(filter(str.isprintable, part)).lower().rstrip(". ") in ("", ".git", "git~1"):
                return f"no work tree can have its path {shown(change.path)}"
    return ""


def collapse(git: Repository, pieces: Sequence[Piece]) -> list[Piece]:
    """Return one piece for each set of equal ones, with the others as its twins.

    Patches that look equal may change two similar places of a file. So each twin must merge into the one that remains without changing it.
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


def rank(pieces: Sequence[Piece], order: Sequence[str] = ()) -> dict[str, str]:
    """Return the names of the pieces in their order, each with the reason for its place.

    The most important comes first, but none before a piece that it requires. Those named in `order` come first of all, in that order.
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
        status = next((f"{name} " for name, rank in SEVERITY.items() if rank == -severity), "")
        facts = [
            f"requested as number {place(piece)}" if place(piece) < last else "",
            f"fixes {counted(all_fixed, f'{status}test')}" if all_fixed else "",
            f"{all_fixed - own} of them through equal patches" if all_fixed > own else "",
            f"one of {-group} similar failures" if group < -1 else "",
            f"changes {counted(size, 'line')}",
        ]
        return ", ".join(filter(None, facts))

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
    """Return the sort key of a piece: smaller is more important."""
    units = (piece.unit, *piece.twins)
    return -max(unit.group for unit in units), -max(unit.severity for unit in units), piece.size, piece.name


def predict_conflicts(git: Repository, pieces: Sequence[Piece]) -> tuple[Pair, ...]:
    """Return pairs of pieces that conflict, in the order of the pieces and at most `PAIRS_MOST` for each on average."""
    by_name = {piece.name: piece for piece in pieces}
    found = [
        (by_name[one], by_name[other], tuple(paths))
        for (one, other), paths in patches.may_conflict({piece.name: piece.changes for piece in pieces}).items()
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
