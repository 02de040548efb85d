"""Resolve conflicts by asking somebody, an agent for example, and keep the answers.

A resolution is not trusted: it may only change files that one of the two sides changed, and must leave no conflict markers. The gate
tests it like everything else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..run.results import shown
from .journal import Journal
from .patches import SUBMODULE
from .trees import Merge, Repository
from .units import Piece, Unit


class Conflict(NamedTuple):
    unit: Unit
    onto: str
    """The commit on which the unit is to be applied."""
    paths: tuple[str, ...]
    collides: tuple[str, ...]
    """Names of the accepted units that it seems to collide with."""


class Resolver:
    """Find resolutions: in the journal, or by calling `ask`.

    `refs` is the prefix of the refs that keep resolutions from being collected. `doubt` returns what is wrong with a resolution, as a phrase
    that begins with a verb. `asked` names who is asked: if one had no answer, another may still be asked.
    """

    def __init__(
        self,
        git: Repository,
        journal: Journal,
        refs: str,
        base: str,
        ask: Callable[[Conflict], str | None],
        doubt: Callable[[Conflict, str], str],
        asked: str,
    ) -> None:
        self.git, self.journal, self.refs, self.base, self.ask, self.doubt = git, journal, refs, base, ask, doubt
        self.asked = asked
        usable = filter(self._usable, journal.all("resolution"))
        self.known = sorted(usable, key=lambda answer: int(answer["number"]))

    def resolve(self, piece: Piece, tree: str, merge: Merge, collides: Sequence[str]) -> tuple[str, str]:
        """Return the tree that applying the piece to `tree` leads to, or an empty text and the reason. `merge` is how far git came."""
        unit = [piece.name, piece.before, piece.after]
        answer = self.journal.get("resolution", [unit, tree])
        if not answer or not self._usable(answer):
            found, why = self._recalled(unit, piece, tree, merge) or self._asked(piece, tree, merge, collides)
            number = 1 + max((int(known["number"]) for known in self.known), default=-1)
            answer = {"number": number, "unit": unit, "merged": merge.tree, "tree": found, "why": why}
            answer |= {"asked": self.asked, "conflicts": merge.conflicts, "onto": tree}
            if found:
                held = self.git.siblings([(merge.tree, found)])[0]
                self.git.move((f"{self.refs}/resolved/{answer['number']}", held, None))
            self.journal.put("resolution", [unit, tree], answer)
            self.known.append(answer)
        return answer["tree"], answer["why"]

    def failed(self, piece: Piece) -> None:
        """Record that the gate was red with the resolution for this piece, so that the next integration asks for another one."""
        for answer in self.known:
            if answer["unit"] == [piece.name, piece.before, piece.after] and answer["tree"]:
                answer["red"] = True
                self.journal.put("resolution", [answer["unit"], answer["onto"]], answer)

    def _usable(self, answer: dict[str, Any]) -> bool:
        return bool(answer["tree"]) or answer.get("asked") == self.asked

    def _recalled(self, unit: list[str], piece: Piece, tree: str, merge: Merge) -> tuple[str, str] | None:
        """Return an earlier resolution of the same conflict in a tree that differed elsewhere; None if none fits.

        What the resolution did to the conflict then is merged into the conflict as it is now. If that leaves a conflict, it does not fit.
        """
        for answer in reversed(self.known):
            conflicts = answer["conflicts"]
            if answer["unit"] != unit or conflicts.keys() != merge.conflicts.keys():
                continue
            if not answer["tree"]:
                if conflicts == merge.conflicts:
                    return "", answer["why"]
                continue
            now, then = self.git.siblings([(answer["merged"], merge.tree), (answer["merged"], answer["tree"])])
            found = self.git.merge(now, then)
            if found.conflicts:
                continue
            # A conflict without markers, of a binary file for example, would pass unseen if it is not exactly the same.
            done = {change.path for change in self.git.changes([(merge.tree, found.tree)])[0]}
            open_ = {path for path, stages in merge.conflicts.items() if stages != conflicts[path] and path not in done}
            if not open_ and not self._flaw(piece, tree, found.tree):
                return found.tree, ""
        return None

    def _asked(self, piece: Piece, tree: str, merge: Merge, collides: Sequence[str]) -> tuple[str, str]:
        onto = self.git.commits([(tree, self.base)])[0]
        conflict = Conflict(piece.unit, onto, tuple(merge.paths), tuple(collides))
        commit = self.ask(conflict)
        if commit is None:
            return "", ""
        found = self.git.trees([commit]).get(commit)
        flaw = (
            self._flaw(piece, tree, found) or self.doubt(conflict, commit)
            if found
            else f"has no commit {shown(commit)}"
        )
        return ("", f"the resolution {flaw}") if flaw or not found else (found, "")

    def _flaw(self, piece: Piece, tree: str, found: str) -> str:
        """Return what is wrong with a resolution, as a phrase that begins with a verb; empty if nothing is."""
        made, ours = self.git.changes([(tree, found), (piece.before, tree)])
        touched = piece.paths | {change.path for change in ours}
        marked = {change.path for change in piece.changes if any(hunk.marked for hunk in change.hunks or ())}
        for change in made:
            if change.path not in touched:
                return f"changes {shown(change.path)}, which neither side changed"
            if change.path not in marked and any(hunk.marked for hunk in change.hunks or ()):
                return f"leaves conflict markers in {shown(change.path)}"
            if SUBMODULE in (change.old_mode, change.new_mode):
                return f"changes the submodule {shown(change.path)}"
        return "" if made else "changes nothing"
