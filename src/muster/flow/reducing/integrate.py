"""Many agents' work becomes one linear, tested branch: equal patches once, the most important first, nothing that is red.

All of it is computed on trees, without a checkout. What is slow or cannot be repeated (the gate's verdicts, resolved conflicts) is written
down first, so what was killed comes to the same commits when it is begun again. How a commit is tested and who resolves a conflict
is not known here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from ... import Host
from ...errors import NotFound, Refused, UsageError
from ..run.directory import NAME
from ..run.results import shown
from .branch import Applied, build, proofs
from .gate import Conflict, Gate, Journal, Jury, Resolver, Verdict
from .patches import touch
from .trees import Repository
from .units import UNCHANGED, LeftOut, Pair, Piece, Unit, collapsed, foreseen, pieces, ranked

__all__ = ["Accepted", "Conflict", "Delivery", "Gate", "LeftOut", "Pair", "Unit", "Verdict", "integrate"]

BATCH_FIRST = 8
BATCH_MOST = 64
#: So many units are sought and ejected because the whole suite is red; then what comes before the next of them is delivered.
ROUNDS = 20


class Accepted(NamedTuple):
    name: str
    reason: str
    """What its place is for."""
    commit: str
    """Where its implementation is or, if it has none, the rest of it; empty when others had brought all of it."""
    collapsed: tuple[str, ...]
    """Units that are equal to it."""
    proof: str
    """See `branch.proofs`."""


class Delivery(NamedTuple):
    commit: str
    """Empty when nothing is delivered; then `why` tells why."""
    branch: str
    why: str
    accepted: tuple[Accepted, ...]
    """The most important first."""
    left_out: dict[str, LeftOut]
    graph: tuple[Pair, ...]
    resolved: tuple[str, ...]
    flaky: tuple[str, ...]
    """Commits that the gate called red, and green when it was asked again."""
    proof: str
    """What the gate said of the whole suite on this very commit."""
    git_calls: dict[str, int]

    def to_json(self) -> dict[str, Any]:
        return {
            **self._asdict(),
            "accepted": [one._asdict() for one in self.accepted],
            "left_out": {name: left._asdict() for name, left in self.left_out.items()},
            "graph": [pair._asdict() for pair in self.graph],
        }


def integrate(
    host: Host,
    gitdir: str,
    base: str,
    units: Sequence[Unit],
    *,
    run: str,
    folder: str,
    kind: Callable[[str], str],
    gate: Gate,
    resolve: Callable[[Conflict], str | None],
    say: Callable[[dict[str, Any]], None],
    doubt: Callable[[Conflict, str], str] = lambda conflict, commit: "",
    order: Sequence[str] = (),
    who: str = "",
) -> Delivery:
    """Make the branch `muster-run/RUN` of the units on top of the commit `base`; what is written down goes to `folder`.

    `kind` says of a path whether it is `implementation`; `resolve` gives a commit whose tree is a resolved conflict, or None;
    `doubt` says what is wrong with it, as a phrase that begins with a verb; `who` is a name for all that `resolve` asks; `order` names the
    units that come first. Every unit is accepted, equal to an accepted one, or left out with a reason; one whose tests pass already by what
    is accepted before it is left out.
    Raises `Refused` when the branch is checked out or holds work that was not delivered by this run, `GitFailed`
    when the repository is damaged or the disk full. May be killed anywhere and called again: it goes on. Called again after it has come to
    its end it asks only for what was denied then.
    """
    if not NAME.match(run):
        raise UsageError(f"{run!r} is not a name for a run", "use letters, digits, - and _, at most 40")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    git = Repository(host, gitdir, os.path.join(folder, "git"))
    tree = git.trees([base]).get(base)
    if not tree:
        raise NotFound(f"there is no commit {shown(base)} in the repository")
    movable(git, run)
    found, left = pieces(git, units, kind)
    reasons = ranked(found := collapsed(git, found), order)
    by_name = {piece.name: piece for piece in found}
    queue = [by_name[name] for name in reasons]
    graph = foreseen(git, queue)
    say({"kind": "ranked", "units": len(units), "order": list(reasons), "conflicts": len(graph)})
    journal = Journal(os.path.join(folder, "journal"))
    journal.begin()
    refs = f"refs/muster/runs/{run}/reduce"
    jury = Jury(git, gate, journal, refs, base, say)
    resolver = Resolver(git, journal, refs, base, resolve, doubt, who)
    work = Integration(git, base, tree, queue, left, jury, resolver, say)
    commit, homes, proof, words, why = "", dict[str, str](), dict[str, str](), "", ""
    try:
        commit, homes, words = work.go(kind, run)
        proof = proofs(git, work.applied)
        _deliver(git, run, commit)
    except Nothing as nothing:
        why = str(nothing)
        work.give_up(why)
    git.close()
    journal.end()
    say({"kind": "delivered", "commit": commit} if commit else {"kind": "nothing", "why": why})
    return Delivery(
        commit=commit,
        branch=f"muster-run/{run}" if commit else "",
        why=why,
        accepted=tuple(
            Accepted(piece.name, reasons[piece.name], homes[piece.name], piece.names[1:], proof[piece.name])
            for piece, *_ in work.applied
        ),
        left_out=work.all_left(),
        graph=graph,
        resolved=tuple(one.piece.name for one in work.applied if one.resolved),
        flaky=tuple(jury.flaky),
        proof=words,
        git_calls=dict(git.calls),
    )


def ended(folder: str) -> float:
    """When an integration with this folder last came to its end; 0 when none has."""
    return Journal(os.path.join(folder, "journal")).ended()


class Nothing(Exception):
    """There is nothing to deliver; says why."""


class Integration:
    """The queue of pieces, and how far it has been applied."""

    def __init__(
        self,
        git: Repository,
        base: str,
        tree: str,
        queue: Sequence[Piece],
        left: dict[str, LeftOut],
        jury: Jury,
        resolver: Resolver,
        say: Callable[[dict[str, Any]], None],
    ) -> None:
        self.git, self.base, self.tree, self.queue, self.jury, self.resolver = git, base, tree, queue, jury, resolver
        self.say = say
        self.never = left
        """Left out before anything was applied."""
        self.ejected: dict[str, LeftOut] = {}
        self.left: dict[str, LeftOut] = {}
        """Left out for what was applied before them."""
        self.applied: list[Applied] = []
        self.green = 0
        """With so many of the applied ones the whole suite is known to be green."""
        self.rounds = ROUNDS
        self.required = {name for piece in queue for name in piece.unit.requires}
        self.screened: set[str] = set()
        """Pieces that were looked at by `screen` on top of what is applied before them."""
        self.suspects: set[str] = set()
        """Pieces whose tests pass with some of the others and without them."""

    def go(self, kind: Callable[[str], str], run: str) -> tuple[str, dict[str, str], str]:
        """The commit to be delivered, where each piece is, and what the gate said of it. Raises `Nothing`."""
        place = 0
        while True:
            self.fill(place)
            commit, homes = build(self.git, self.base, self.tree, self.applied, kind, run)
            if not commit:
                raise Nothing("no unit was left that changes anything")
            verdict = self.twice(self.jury.full, commit, self.fixed(len(self.applied)))
            if verdict.ok:
                return commit, homes, verdict.words or "green"
            place = self.eject_for_suite(verdict)

    def fill(self, place: int) -> None:
        """Apply the queue from this place on, in batches that grow while they are green; a red one loses its first culprit."""
        size = BATCH_FIRST
        while place < len(self.queue):
            start = len(self.applied)
            for number in range(place, min(place + size, len(self.queue))):
                self.apply(number)
            if len(self.applied) == start or self.check(start, len(self.applied)).ok:
                if self.screen(start):
                    del self.applied[start:]
                    self.retry(place)
                    continue
                place, size = place + size, min(2 * size, BATCH_MOST)
                continue
            count = first_red(start, len(self.applied), partial(self.red, start))
            verdict = self.check(start, count, again=True)
            if verdict.ok:
                place = self.cut(count)
            elif count > 1 or (found := self.twice(self.jury.check, self.base, ())).ok:
                place = self.eject(count, verdict)
            else:
                raise Nothing(f"the base itself is red: {found.words}")
            size = BATCH_FIRST

    def eject_for_suite(self, verdict: Verdict) -> int:
        """The first piece that makes the whole suite red goes; returns the place to go on from. `verdict` is that on all of them."""

        def full(count: int, again: bool = False) -> Verdict:
            return self.jury.full(self.commit(count), self.fixed(count), again)

        last = len(self.applied)
        while True:
            count = first_red(self.green, last, lambda count: not full(count).ok)
            found = full(count, again=True) if count < last else verdict
            if not found.ok:
                break
            self.green = count
        if count == 1 and not (base := self.twice(self.jury.full, self.base, ())).ok:
            raise Nothing(f"the whole suite is red on the base itself: {base.words}")
        self.green = count - 1
        place = self.eject(count, found)
        self.rounds -= 1
        if self.rounds >= 0:
            return place
        # What is applied is green; to look for all that make the rest red would take too long.
        words = f"not tried: the whole suite is red with it or one before it, after {ROUNDS} others were ejected"
        for piece in self.queue[place:]:
            if piece.name not in self.ejected:
                self.left[piece.name] = LeftOut(words)
        return len(self.queue)

    def twice(self, hear: Callable[..., Verdict], commit: str, tests: Sequence[str]) -> Verdict:
        """What the gate says of a commit, heard once more if that is nothing good."""
        first = hear(commit, tests)
        return first if first.ok else hear(commit, tests, again=True)

    def eject(self, count: int, verdict: Verdict) -> int:
        """Leave out for good what was applied as number `count`; returns the place to go on from."""
        piece, resolved = self.applied[count - 1].piece, self.applied[count - 1].resolved
        place = self.cut(count)
        self.applied.pop()
        if resolved:
            self.resolver.failed(piece)
        self.ejected[piece.name] = LeftOut(f"red in the gate: {verdict.words}", verdict.output)
        self.say({"kind": "ejected", "unit": piece.name, "words": verdict.words})
        return place

    def cut(self, count: int) -> int:
        """Go back to where `count` pieces were applied; what came after them has another chance, from the place that is returned."""
        del self.applied[count:]
        place = self.applied[-1].place + 1
        self.retry(place)
        self.screened -= {piece.name for piece in self.queue[place:]}
        return place

    def retry(self, place: int) -> None:
        """Give another chance to what was left out from this place on."""
        for piece in self.queue[place:]:
            self.left.pop(piece.name, None)

    def screen(self, start: int) -> bool:
        """Whether the batch that was applied from `start` on has a piece whose tests pass without it: it may fix what others have fixed.

        The pieces are numbered, and for each binary digit the tests of those that have a 1 there are run without them and with those that
        have a 0. So each piece is run with every one before it, and a batch of 63 takes six runs. `apply` then looks at each suspect alone.
        A piece that others build on is not suspected.
        """
        # The first number is 0 on the base, where the tests of every unit are known to fail.
        batch = dict(enumerate(self.applied[start:], 1 if start else 0))
        asked, sets = [], []
        for digit in range(max(batch, default=0).bit_length()):
            open_ = [
                one.piece for number, one in batch.items() if number >> digit & 1 and self.can_be_dropped(one.piece)
            ]
            if tests := tuple(dict.fromkeys(test for piece in open_ for test in piece.tests)):
                there = [one for number, one in batch.items() if not number >> digit & 1 and not one.resolved]
                asked.append((open_, tests))
                sets.append([(one.piece.before, one.piece.after) for one in there])
        trees = self.git.combined(self.applied[start - 1].tree if start else self.tree, sets)
        commits = self.git.commits([(tree, self.base) for tree in trees])
        found = self.jury.passing([(commit, tests) for commit, (_, tests) in zip(commits, asked, strict=True)])
        new = {
            piece.name
            for (pieces, _), passing in zip(asked, found, strict=True)
            for piece in pieces
            if passing.issuperset(piece.tests)
        }
        self.screened |= {one.piece.name for one in batch.values()}
        self.suspects |= new
        return bool(new)

    def can_be_dropped(self, piece: Piece) -> bool:
        return bool(piece.tests) and piece.name not in self.screened and self.required.isdisjoint(piece.names)

    def fixed_by(self, piece: Piece) -> str:
        """The applied piece by which the tests of this one pass already; empty when they do not."""

        def passes(count: int) -> bool:
            return self.jury.passing([(self.commit(count), piece.tests)])[0].issuperset(piece.tests)

        if not self.applied or not passes(len(self.applied)):
            return ""
        same = (one.piece.name for one in self.applied if set(one.piece.tests).issuperset(piece.tests))
        return next(same, "") or self.applied[first_red(0, len(self.applied), passes) - 1].piece.name

    def commit(self, count: int) -> str:
        return self.git.commits([(self.applied[count - 1].tree, self.base)])[0]

    def fixed(self, count: int) -> tuple[str, ...]:
        """The tests that the first `count` pieces fix."""
        return tuple(dict.fromkeys(test for one in self.applied[:count] for test in one.piece.tests))

    def red(self, start: int, end: int) -> bool:
        return not self.check(start, end).ok

    def check(self, start: int, end: int, again: bool = False) -> Verdict:
        """Hear the gate on all that is applied up to `end`, with the tests of what is new and of what has paths in common with it."""
        new = [one.piece for one in self.applied[start:end]]
        paths = set().union(*(piece.paths for piece in new))
        old = [one.piece for one in self.applied[:start] if one.piece.paths & paths]
        tests = dict.fromkeys(test for piece in new + old for test in piece.tests)
        return self.jury.check(self.commit(end), tuple(tests), again)

    def apply(self, place: int) -> None:
        piece = self.queue[place]
        if piece.name in self.ejected:
            return
        if missing := self.missing(piece):
            self.left[piece.name] = LeftOut(f"it builds on {missing}, which is left out")
            return
        if piece.name in self.suspects and (other := self.fixed_by(piece)):
            self.left[piece.name] = LeftOut(f"already fixed by {other}")
            self.say({"kind": "redundant", "unit": piece.name, "by": other})
            return
        tree = self.applied[-1].tree if self.applied else self.tree
        ours, theirs = self.git.siblings([(piece.before, tree), (piece.before, piece.after)])
        merge = self.git.merge(ours, theirs)
        if not merge.conflicts:
            self.applied.append(Applied(piece, place, merge.tree, False))
            return
        collides = self.collides(piece, set(merge.paths))
        self.say({"kind": "conflict", "unit": piece.name, "paths": merge.paths, "collides": collides})
        settled, why = self.resolver.settle(piece, tree, merge, collides)
        if settled:
            self.applied.append(Applied(piece, place, settled, True))
            return
        names = ", ".join(collides[:3]) + (" and others" if len(collides) > 3 else "") or "what is accepted"
        paths = ", ".join(map(shown, merge.paths[:3])) + (" and others" if len(merge.paths) > 3 else "")
        self.left[piece.name] = LeftOut(f"conflicts with {names} in {paths}" + (f"; {why}" if why else ""))

    def missing(self, piece: Piece) -> str:
        """A unit that the piece requires, and that is not there."""
        wanted = set(piece.unit.requires) - {name for name, left in self.never.items() if left.reason == UNCHANGED}
        if wanted:
            wanted -= {name for one in self.applied for name in one.piece.names}
        return min(wanted, default="")

    def collides(self, piece: Piece, paths: set[str]) -> list[str]:
        """The applied pieces whose lines the piece gets in the way of; if that cannot be told, those that changed the same paths."""
        mine = {change.path: change for change in piece.changes if change.path in paths}
        sharing = [one.piece for one in self.applied if one.piece.paths & paths]
        close = [
            other.name
            for other in sharing
            if any(change.path in mine and touch(change, mine[change.path]) for change in other.changes)
        ]
        return close or [other.name for other in sharing]

    def give_up(self, why: str) -> None:
        self.applied.clear()
        for piece in self.queue:
            self.left.setdefault(piece.name, LeftOut(f"nothing is delivered: {why}"))

    def all_left(self) -> dict[str, LeftOut]:
        found = dict(self.never)
        for piece in self.queue:
            if left := self.ejected.get(piece.name) or self.left.get(piece.name):
                found[piece.name] = left
                found |= {twin: LeftOut(f"equal to {piece.name}: {left.reason}") for twin in piece.names[1:]}
        return found


def first_red(green: int, end: int, red: Callable[[int], bool]) -> int:
    """The first number after `green` for which `red` holds, given that it does for `end`."""
    while end - green > 1:
        middle = (green + end) // 2
        green, end = (green, middle) if red(middle) else (middle, end)
    return end


def movable(git: Repository, run: str) -> str:
    """Where the branch of a run is, which may be moved from there; else `Refused`."""
    name = f"muster-run/{run}"
    branch = f"refs/heads/{name}"
    if where := git.checked_out(branch):
        raise Refused(f"{name} is checked out in {where}", "git switch to another branch there")
    at = git.ref(branch)
    if at and not git.ref(f"refs/muster/runs/{run}/reduce/delivered/{at}"):
        raise Refused(
            f"{name} has commits that this run did not make",
            f"--run ANOTHER-NAME, or: git branch -m {name} ANOTHER-NAME",
        )
    return at


def _deliver(git: Repository, run: str, commit: str) -> None:
    # First that it is ours: killed in between, the branch can still be moved the next time.
    git.move((f"refs/muster/runs/{run}/reduce/delivered/{commit}", commit, None))
    git.move((f"refs/heads/muster-run/{run}", commit, movable(git, run)))
