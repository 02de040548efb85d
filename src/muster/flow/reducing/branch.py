"""Make the commits of the branch: first everything that is no implementation, then each implementation in a commit of its own.

The last tree is the tree that was tested. The messages contain text of agents, which is quoted so that none of it passes for a trailer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, pairwise
from typing import NamedTuple

from ..run.tasks import counted
from . import patches
from .trees import Repository, Step
from .units import IMPLEMENTATION, Piece, Unit

SUBJECT_MOST = 72
BODY_MOST = 4000
VALUE_MOST = 500
_KEY = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,40}\Z")
#: Lines that git, or a program that reads patches from mail, takes for a trailer or for the end of the message.
_SPECIAL = re.compile(r"\s*[A-Za-z0-9-]+\s*:|---|diff -|From |\(cherry picked")


class Applied(NamedTuple):
    """A piece, and the tree after it was applied."""

    piece: Piece
    place: int
    """Its place in the order of importance."""
    tree: str
    resolved: bool


def build(
    git: Repository, base: str, tree: str, applied: Sequence[Applied], kind: Callable[[str], str], run: str
) -> tuple[str, dict[str, str]]:
    """Make the commits on `base`, whose tree is `tree`. Return the last one, and the commit that has each piece (empty: nothing was left of it).

    The same input gives the same commits. No ref points to them yet.
    """
    trees = [tree, *(one.tree for one in applied)]
    *deltas, whole = git.changes([*pairwise(trees), (tree, trees[-1])])
    others = [change for change in whole if kind(change.path) != IMPLEMENTATION]
    own = [[change for change in delta if kind(change.path) == IMPLEMENTATION] for delta in deltas]
    heads = [number for number, changes in enumerate(own) if changes]
    homes = _homes(applied, heads, bool(others))
    needs = patches.dependencies([own[number] for number in heads], [applied[n].piece.implementation for n in heads])
    steps, date = [], git.date(base) + 1
    if others:
        there = [one.piece for one in applied if len(one.piece.implementation) < len(one.piece.changes)]
        steps.append(
            Step(others, _rest(there, [one.piece for one in applied if homes[one.piece.name] == -1], run), date)
        )
    for number, depends in zip(heads, needs, strict=True):
        members = [one.piece for one in applied if homes[one.piece.name] == number]
        names = [applied[heads[one]].piece.name for one in depends]
        steps.append(Step(own[number], _fix(applied[number], members, names, run), date + len(steps)))
    if not steps:
        return "", dict.fromkeys(homes, "")
    # If a path of one kind replaced a path of the other, the parts alone do not add up to the whole.
    steps[-1] = steps[-1]._replace(tree=trees[-1])
    commits = git.chain(base, steps)
    where = dict(zip([*([-1] if others else []), *heads], commits, strict=True))
    return commits[-1], {name: where.get(number, "") if number is not None else "" for name, number in homes.items()}


def _homes(applied: Sequence[Applied], heads: Sequence[int], others: bool) -> dict[str, int | None]:
    """Return the number of the commit that has each piece; -1 is the first commit, with what is no implementation."""
    homes: dict[str, int | None] = {}
    for number, one in enumerate(applied):
        piece = one.piece
        if number in heads:
            homes[piece.name] = number
        elif piece.implementation:  # others had brought it: an equal one, or a larger one
            before = [head for head in heads if head < number]
            same = (head for head in before if applied[head].piece.part == piece.part)
            near = (head for head in before if applied[head].piece.paths & piece.paths)
            homes[piece.name] = next(chain(same, near), None)
        else:
            homes[piece.name] = -1 if others else None
    return homes


def proofs(git: Repository, applied: Sequence[Applied]) -> dict[str, str]:
    """Return the proof that each piece is in the branch.

    `present`: merging it into the last tree changes nothing. `resolved`: its conflict was resolved. `changed by NAME`: a later piece that
    required it, or whose conflict was resolved, changed the same paths. Else `not shown`.
    """
    last = applied[-1].tree
    sides = [(one.piece.before, one.piece.after) for one in applied]
    ours = git.siblings([(before, last) for before, _ in sides])
    merges = git.tried(list(zip(ours, git.siblings(sides), strict=True)))
    found = {}
    for number, (one, merge) in enumerate(zip(applied, merges, strict=True)):
        later = (
            other.piece.name
            for other in applied[number + 1 :]
            if other.piece.paths & one.piece.paths
            and (other.resolved or set(one.piece.names) & set(other.piece.unit.requires))
        )
        if one.resolved:
            found[one.piece.name] = "resolved"
        elif not merge.conflicts and merge.tree == last:
            found[one.piece.name] = "present"
        else:
            found[one.piece.name] = next((f"changed by {name}" for name in later), "not shown")
    return found


# Messages


def _rest(pieces: Sequence[Piece], here: Sequence[Piece], run: str) -> bytes:
    names = [name for piece in pieces for name in piece.names]
    listed = "\n".join(f"- {_line(piece.name)} {_line(piece.unit.title)[:SUBJECT_MOST]}".rstrip() for piece in pieces)
    trailers = [pair for piece in here for unit in (piece.unit, *piece.twins) for pair in _trailers(unit)]
    title = f"Update tests and other files for {counted(len(names), 'task')}"
    return message(title, "", [listed], [*trailers, ("Muster-Run", run)])


def _fix(first: Applied, members: Sequence[Piece], depends: Sequence[str], run: str) -> bytes:
    head = first.piece
    units = [unit for piece in members for unit in (piece.unit, *piece.twins)]
    same = f"{len(units)} tasks came to this change." if len(units) > 1 else ""
    trailers = [pair for unit in units for pair in _trailers(unit)]
    settled = [("Muster-Conflict", "resolved by an integrator")] if first.resolved else []
    more = [*settled, *(("Depends-on", name) for name in depends), ("Muster-Run", run)]
    return message(head.unit.title, head.name, [paragraphs(head.unit.body), same], [*trailers, *more])


def _trailers(unit: Unit) -> Iterable[tuple[str, str]]:
    return [("Muster-Task", unit.name), *(("Muster-Test", test) for test in unit.tests), *unit.trailers.items()]


def message(title: str, name: str, middle: Iterable[str], trailers: Iterable[tuple[str, str]]) -> bytes:
    """Return a commit message. A trailer with an invalid key or without a value is left out."""
    subject = _line(title) or _line(name)
    if len(subject) > SUBJECT_MOST:
        subject = subject[: SUBJECT_MOST - 1].rstrip() + "…"
    last = [f"{key}: {_line(value)[:VALUE_MOST]}" for key, value in trailers if _KEY.match(key) and _line(value)]
    return ("\n\n".join([subject, *filter(None, middle), "\n".join(last)]).rstrip() + "\n").encode()


def paragraphs(text: str) -> str:
    """Return text of an agent for the body of a message, without lines that pass for something else."""
    cut = text if len(text) <= BODY_MOST else text[:BODY_MOST] + "…"
    lines = [_clean(line).rstrip() for line in re.split("\r?\n|[\r\v\f\x85\u2028\u2029]", cut)]
    quoted = "\n".join(f"> {line}" if _SPECIAL.match(line) else line for line in lines)
    return re.sub("\n{3,}", "\n\n", quoted).strip()


def _line(text: str) -> str:
    return " ".join(_clean(text).split())


def _clean(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)
