"""What only others can say, asked once and written down: the gate's verdicts on commits, and resolved conflicts.

How a commit is tested and who resolves is not known here. Nobody is believed: a red verdict is asked for again before it costs anything, and a
resolution may change only what the two sides changed and leave no markers. A no is final only for the work that it was given to: the cause
may have lain elsewhere and be gone when all of it is begun anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple, Protocol

from ..run.directory import read, write
from ..run.results import shown
from .patches import SUBMODULE
from .trees import Merge, Repository
from .units import Piece, Unit

#: Of what a gate says, the last so many characters are kept.
OUTPUT_MOST = 64 << 10


class Verdict(NamedTuple):
    ok: bool
    words: str = ""
    """What is wrong, in a phrase."""
    output: str = ""


class Gate(Protocol):
    """The only thing that runs the project's code."""

    def check(self, commit: str, tests: Sequence[str]) -> Verdict:
        """Whether all tests of the commit can be collected, lint is content, and these tests pass."""
        ...

    def full(self, commit: str, tests: Sequence[str]) -> Verdict:
        """Whether the whole suite is at least as good as it was on the base, and these tests, which were fixed, pass in it."""
        ...

    def passing(self, asked: Sequence[tuple[str, Sequence[str]]]) -> Sequence[Collection[str]]:
        """Which of the tests that are named with each commit pass there; never one that is known to pass at times without any change."""
        ...


class Conflict(NamedTuple):
    unit: Unit
    onto: str
    """The commit that the unit is to be applied on."""
    paths: tuple[str, ...]
    collides: tuple[str, ...]
    """The accepted units that it seems to collide with."""


class Journal:
    """Answers that are not asked for again, each in a file of its own that is there whole or not at all."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        os.makedirs(folder, mode=0o700, exist_ok=True)

    def begin(self) -> None:
        """For work that was killed and goes on all answers count; for work that begins anew what was denied before is forgotten."""
        if not os.path.exists(self._open):
            for name in os.listdir(self.folder):
                path = os.path.join(self.folder, name)
                if _denied(read(path) or {}):
                    os.unlink(path)
            os.close(os.open(self._open, os.O_CREAT | os.O_WRONLY, 0o600))

    def end(self) -> None:
        """The work has come to its end."""
        now = time.time()
        os.utime(self._open, (now, now))
        os.replace(self._open, self._ended)

    def ended(self) -> float:
        """When work last came to its end; 0 when none has."""
        return os.path.getmtime(self._ended) if os.path.exists(self._ended) else 0.0

    @property
    def _open(self) -> str:
        return os.path.join(self.folder, "open")

    @property
    def _ended(self) -> str:
        return os.path.join(self.folder, "ended")

    def get(self, kind: str, key: object) -> dict[str, Any] | None:
        return read(self._path(kind, key))

    def put(self, kind: str, key: object, answer: dict[str, Any]) -> None:
        write(self._path(kind, key), answer)

    def all(self, kind: str) -> list[dict[str, Any]]:
        names = [name for name in os.listdir(self.folder) if name.startswith(f"{kind}-") and name.endswith(".json")]
        return [found for name in names if (found := read(os.path.join(self.folder, name)))]

    def _path(self, kind: str, key: object) -> str:
        return os.path.join(self.folder, f"{kind}-{hashlib.sha256(json.dumps(key).encode()).hexdigest()[:40]}.json")


def _denied(answer: dict[str, Any]) -> bool:
    return answer.get("ok") is False or answer.get("tree") == "" or answer.get("red") is True


class Jury:
    """The gate, whose answers are written down. It is heard again before it costs a unit: one that is red only once is flaky."""

    def __init__(
        self,
        git: Repository,
        gate: Gate,
        journal: Journal,
        refs: str,
        base: str,
        say: Callable[[dict[str, Any]], None],
    ) -> None:
        self.git, self.gate, self.journal, self.refs, self.base, self.say = git, gate, journal, refs, base, say
        self.flaky: dict[str, None] = {}

    def check(self, commit: str, tests: Sequence[str], again: bool = False) -> Verdict:
        return self._heard(
            commit, ["check", commit, sorted(tests), again], lambda: self.gate.check(commit, tests), again
        )

    def full(self, commit: str, tests: Sequence[str], again: bool = False) -> Verdict:
        return self._heard(commit, ["full", commit, sorted(tests), again], lambda: self.gate.full(commit, tests), again)

    def passing(self, asked: Sequence[tuple[str, Sequence[str]]]) -> list[frozenset[str]]:
        """Which of the tests that are named with each commit pass there. That one passes is asked again by whoever begins anew."""
        keys = [["passing", commit, sorted(tests)] for commit, tests in asked]
        open_ = [number for number, key in enumerate(keys) if not self.journal.get("passing", key)]
        if open_:
            self.git.move(*((f"{self.refs}/without/{place}", asked[n][0], None) for place, n in enumerate(open_)))
            for number, found in zip(open_, self.gate.passing([asked[n] for n in open_]), strict=True):
                self.journal.put("passing", keys[number], {"passing": sorted(found), "ok": not found})
        return [frozenset((self.journal.get("passing", key) or {})["passing"]) for key in keys]

    def _heard(self, commit: str, key: list[Any], ask: Callable[[], Verdict], again: bool) -> Verdict:
        known = self.journal.get("verdict", key)
        if known:
            verdict = Verdict(bool(known["ok"]), str(known["words"]), str(known["output"]))
        else:
            self.git.move((f"{self.refs}/tested", commit, None))
            verdict = ask()
            verdict = verdict._replace(output=verdict.output[-OUTPUT_MOST:])
            # That the base is red speaks of something outside of the repository, which somebody mends.
            if verdict.ok or commit != self.base:
                self.journal.put("verdict", key, verdict._asdict())
        self.say({"kind": key[0], "commit": commit, "ok": verdict.ok, "words": verdict.words, "known": bool(known)})
        if again and verdict.ok:
            self.flaky[commit] = None
        return verdict


class Resolver:
    """Answers for conflicts, from before or from `ask`; `refs` is where they are held on to. That `who` is asked had no answer is not held
    against another."""

    def __init__(
        self,
        git: Repository,
        journal: Journal,
        refs: str,
        base: str,
        ask: Callable[[Conflict], str | None],
        doubt: Callable[[Conflict, str], str],
        who: str,
    ) -> None:
        self.git, self.journal, self.refs, self.base, self.ask, self.doubt = git, journal, refs, base, ask, doubt
        self.who = who
        there = filter(self._counts, journal.all("resolution"))
        self.known = sorted(there, key=lambda answer: int(answer["number"]))

    def settle(self, piece: Piece, tree: str, merge: Merge, collides: Sequence[str]) -> tuple[str, str]:
        """The tree that applying the piece on `tree` comes to, or empty and why not. `merge` is how far git came."""
        unit = [piece.name, piece.before, piece.after]
        answer = self.journal.get("resolution", [unit, tree])
        if not answer or not self._counts(answer):
            found, why = self._recalled(unit, piece, tree, merge) or self._asked(piece, tree, merge, collides)
            number = 1 + max((int(one["number"]) for one in self.known), default=-1)
            answer = {"number": number, "unit": unit, "merged": merge.tree, "tree": found, "why": why, "who": self.who}
            answer |= {"conflicts": merge.conflicts, "onto": tree}
            if found:
                held = self.git.siblings([(merge.tree, found)])[0]
                self.git.move((f"{self.refs}/resolved/{answer['number']}", held, None))
            self.journal.put("resolution", [unit, tree], answer)
            self.known.append(answer)
        return answer["tree"], answer["why"]

    def failed(self, piece: Piece) -> None:
        """The gate was red with the resolution: whoever begins anew asks for another."""
        for answer in self.known:
            if answer["unit"] == [piece.name, piece.before, piece.after] and answer["tree"]:
                answer["red"] = True
                self.journal.put("resolution", [answer["unit"], answer["onto"]], answer)

    def _counts(self, answer: dict[str, Any]) -> bool:
        return bool(answer["tree"]) or answer.get("who") == self.who

    def _recalled(self, unit: list[str], piece: Piece, tree: str, merge: Merge) -> tuple[str, str] | None:
        """An answer from before, when the rest of the tree was another.

        What the answer did to the conflict is merged into the conflict as it is now: where that is not the same, it does not fit.
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
            # A conflict without markers (a binary file, say) that is not the very same would pass unseen.
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
        """What is wrong with a resolution, as a phrase that begins with a verb."""
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
