"""Bring the changes of many agents together in one linear, tested branch: equal patches once, the most important first, nothing red.

Everything is computed on trees, without a checkout. Answers that are slow or cannot be repeated (the gate's verdicts, resolved conflicts)
are recorded first, so an integration that was killed makes the same commits when it is called again. How a commit is tested and
who resolves a conflict is up to the caller.
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
from .conflicts import Conflict, Resolver
from .gate import Tester, Verdict, Verdicts
from .journal import Journal
from .patches import touch
from .trees import Repository
from .units import UNCHANGED, LeftOut, Pair, Piece, Unit, collapse, predict_conflicts, rank, read_pieces

#: Units in the first batch, and at most in a later one.
BATCH_FIRST = 8
BATCH_MOST = 64
#: Units that are searched for and ejected because the full test is red. Then the units before the next one are delivered.
ROUNDS = 20


class Accepted(NamedTuple):
    name: str
    reason: str
    """Why it has its place in the order."""
    commit: str
    """The commit with its implementation or, if it has none, with the rest of it; empty if other units had brought all of it."""
    collapsed: tuple[str, ...]
    """Names of the units that are equal to it."""
    proof: str
    """See `branch.proofs`."""


class Delivery(NamedTuple):
    commit: str
    """The last commit of the branch; empty if nothing is delivered, for the reason in `why`."""
    branch: str
    why: str
    accepted: tuple[Accepted, ...]
    """The most important first."""
    left_out: dict[str, LeftOut]
    graph: tuple[Pair, ...]
    resolved: tuple[str, ...]
    flaky: tuple[str, ...]
    """Commits that were red the first time the gate tested them, and green the second time."""
    proof: str
    """What the gate said about the delivered commit."""
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
    tester: Tester,
    resolve: Callable[[Conflict], str | None],
    say: Callable[[dict[str, Any]], None],
    doubt: Callable[[Conflict, str], str] = lambda conflict, commit: "",
    order: Sequence[str] = (),
    asked: str = "",
) -> Delivery:
    """Make the branch `muster-run/RUN` of the units on top of the commit `base`. The record of answers is kept in `folder`.

    `kind` returns whether a path is `implementation`. `resolve` returns a commit whose tree resolves a conflict, or None; `doubt` returns
    what is wrong with that commit, as a phrase that begins with a verb; `asked` names who is asked by `resolve`. `order` names the units that
    come first. Every unit is accepted, equal to an accepted one, or left out with a reason. A unit whose tests pass already by the units
    that are accepted before it is left out.
    Raises `Refused` if the branch is checked out or holds commits that this run did not deliver, and `GitFailed` if the repository is
    damaged or the disk is full. If it is killed, the next call goes on. After it has come to its end, the next call asks only for what was
    negative.
    """
    if not NAME.match(run):
        raise UsageError(f"{run!r} is not a name for a run", "use letters, digits, - and _, at most 40")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    git = Repository(host, gitdir, os.path.join(folder, "git"))
    tree = git.trees([base]).get(base)
    if not tree:
        raise NotFound(f"there is no commit {shown(base)} in the repository")
    movable(git, run)
    found, left = read_pieces(git, units, kind)
    reasons = rank(found := collapse(git, found), order)
    by_name = {piece.name: piece for piece in found}
    queue = [by_name[name] for name in reasons]
    graph = predict_conflicts(git, queue)
    say({"kind": "ranked", "units": len(units), "order": list(reasons), "conflicts": len(graph)})
    journal = Journal(os.path.join(folder, "journal"))
    journal.begin()
    refs = f"refs/muster/runs/{run}/reduce"
    verdicts = Verdicts(git, tester, journal, refs, base, say)
    resolver = Resolver(git, journal, refs, base, resolve, doubt, asked)
    work = Integration(git, base, tree, queue, left, verdicts, resolver, say)
    commit, homes, proof, words, why = "", dict[str, str](), dict[str, str](), "", ""
    try:
        commit, homes, words = work.run(kind, run)
        proof = proofs(git, work.applied)
        _deliver(git, run, commit)
    except NothingToDeliver as error:
        why = str(error)
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
        flaky=tuple(verdicts.flaky),
        proof=words,
        git_calls=dict(git.calls),
    )


def ended(folder: str) -> float:
    """Return when an integration with this folder last came to its end; 0 if none has."""
    return Journal(os.path.join(folder, "journal")).ended()


class NothingToDeliver(Exception):
    """No commit passes the gate. The message is the reason."""


class Integration:
    """The pieces in their order, and how far they have been applied."""

    def __init__(
        self,
        git: Repository,
        base: str,
        tree: str,
        queue: Sequence[Piece],
        left: dict[str, LeftOut],
        verdicts: Verdicts,
        resolver: Resolver,
        say: Callable[[dict[str, Any]], None],
    ) -> None:
        self.git, self.base, self.tree, self.queue = git, base, tree, queue
        self.verdicts, self.resolver, self.say = verdicts, resolver, say
        self.never = left
        """Left out before anything was applied."""
        self.ejected: dict[str, LeftOut] = {}
        self.left: dict[str, LeftOut] = {}
        """Left out because of the pieces that are applied before them."""
        self.applied: list[Applied] = []
        self.green = 0
        """The number of applied pieces with which the full test is known to be green."""
        self.rounds = ROUNDS
        self.required = {name for piece in queue for name in piece.unit.requires}
        self.screened: set[str] = set()
        """Pieces that `screen` has looked at, on top of the pieces that are applied before them."""
        self.suspects: set[str] = set()
        """Pieces whose tests pass with some of the other pieces and without themselves."""

    def run(self, kind: Callable[[str], str], run: str) -> tuple[str, dict[str, str], str]:
        """Return the commit to deliver, the commit that has each piece, and what the gate said. Raises `NothingToDeliver`."""
        place = 0
        while True:
            self.fill(place)
            commit, homes = build(self.git, self.base, self.tree, self.applied, kind, run)
            if not commit:
                raise NothingToDeliver("no unit was left that changes anything")
            verdict = self.twice(self.verdicts.full, commit, self.fixed(len(self.applied)))
            if verdict.ok:
                return commit, homes, verdict.words or "green"
            place = self.eject_for_suite(verdict)

    def fill(self, place: int) -> None:
        """Apply the queue from this place on, in batches that grow while they are green. From a red batch the first culprit is ejected."""
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
            elif count > 1 or (found := self.twice(self.verdicts.check, self.base, ())).ok:
                place = self.eject(count, verdict)
            else:
                raise NothingToDeliver(f"the base itself is red: {found.words}")
            size = BATCH_FIRST

    def eject_for_suite(self, verdict: Verdict) -> int:
        """Eject the first piece that makes the full test red, and return the place to go on from. `verdict` is that on all pieces."""

        def full(count: int, again: bool = False) -> Verdict:
            return self.verdicts.full(self.commit(count), self.fixed(count), again)

        last = len(self.applied)
        while True:
            count = first_red(self.green, last, lambda count: not full(count).ok)
            found = full(count, again=True) if count < last else verdict
            if not found.ok:
                break
            self.green = count
        if count == 1 and not (base := self.twice(self.verdicts.full, self.base, ())).ok:
            raise NothingToDeliver(f"the gate is red on the base itself: {base.words}")
        self.green = count - 1
        place = self.eject(count, found)
        self.rounds -= 1
        if self.rounds >= 0:
            return place
        # The applied pieces are green. Searching for all that make the rest red would take too long.
        words = f"not tried: the gate is red with it or one before it, after {ROUNDS} others were ejected"
        for piece in self.queue[place:]:
            if piece.name not in self.ejected:
                self.left[piece.name] = LeftOut(words)
        return len(self.queue)

    def twice(self, ask: Callable[..., Verdict], commit: str, tests: Sequence[str]) -> Verdict:
        """Return the verdict on a commit; if the first one is red, the second one."""
        first = ask(commit, tests)
        return first if first.ok else ask(commit, tests, again=True)

    def eject(self, count: int, verdict: Verdict) -> int:
        """Leave out the piece that was applied as number `count` for good, and return the place to go on from."""
        piece, resolved = self.applied[count - 1].piece, self.applied[count - 1].resolved
        place = self.cut(count)
        self.applied.pop()
        if resolved:
            self.resolver.failed(piece)
        self.ejected[piece.name] = LeftOut(f"red in the gate: {verdict.words}", verdict.output)
        self.say({"kind": "ejected", "unit": piece.name, "words": verdict.words})
        return place

    def cut(self, count: int) -> int:
        """Go back to where `count` pieces were applied, and return the place from which the others have another chance."""
        del self.applied[count:]
        place = self.applied[-1].place + 1
        self.retry(place)
        self.screened -= {piece.name for piece in self.queue[place:]}
        return place

    def retry(self, place: int) -> None:
        """Give the pieces that were left out from this place on another chance."""
        for piece in self.queue[place:]:
            self.left.pop(piece.name, None)

    def screen(self, start: int) -> bool:
        """Return whether the batch from `start` on has new suspects: pieces whose tests pass without them.

        Such a piece may fix what another one has fixed already. The pieces are numbered. For each binary digit, the tests of the pieces that
        have a 1 there are run without these and with the pieces that have a 0. So each piece is left out while each piece before it is
        present, and a batch of 63 takes six runs. `apply` then looks at each suspect alone. A piece that others build on is never a suspect.
        """
        # On the base, the tests of every unit are known to fail, so the first piece needs no run and may have the number 0.
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
        found = self.verdicts.passing([(commit, tests) for commit, (_, tests) in zip(commits, asked, strict=True)])
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
        """Return the name of the applied piece by which the tests of this one pass already; empty if they do not."""

        def passes(count: int) -> bool:
            return self.verdicts.passing([(self.commit(count), piece.tests)])[0].issuperset(piece.tests)

        if not self.applied or not passes(len(self.applied)):
            return ""
        same = (one.piece.name for one in self.applied if set(one.piece.tests).issuperset(piece.tests))
        return next(same, "") or self.applied[first_red(0, len(self.applied), passes) - 1].piece.name

    def commit(self, count: int) -> str:
        return self.git.commits([(self.applied[count - 1].tree, self.base)])[0]

    def fixed(self, count: int) -> tuple[str, ...]:
        """Return the tests that the first `count` applied pieces fix."""
        return tuple(dict.fromkeys(test for one in self.applied[:count] for test in one.piece.tests))

    def red(self, start: int, end: int) -> bool:
        return not self.check(start, end).ok

    def check(self, start: int, end: int, again: bool = False) -> Verdict:
        """Return the verdict on the first `end` applied pieces.

        The tests are those of the pieces from `start` on, which are new, and of the older ones that changed the same files.
        """
        new = [one.piece for one in self.applied[start:end]]
        paths = set().union(*(piece.paths for piece in new))
        old = [one.piece for one in self.applied[:start] if one.piece.paths & paths]
        tests = dict.fromkeys(test for piece in new + old for test in piece.tests)
        return self.verdicts.check(self.commit(end), tuple(tests), again)

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
        resolved, why = self.resolver.resolve(piece, tree, merge, collides)
        if resolved:
            self.applied.append(Applied(piece, place, resolved, True))
            return
        names = ", ".join(collides[:3]) + (" and others" if len(collides) > 3 else "") or "what is accepted"
        paths = ", ".join(map(shown, merge.paths[:3])) + (" and others" if len(merge.paths) > 3 else "")
        self.left[piece.name] = LeftOut(f"conflicts with {names} in {paths}" + (f"; {why}" if why else ""))

    def missing(self, piece: Piece) -> str:
        """Return the name of a unit that the piece requires and that is not applied; empty if there is none."""
        wanted = set(piece.unit.requires) - {name for name, left in self.never.items() if left.reason == UNCHANGED}
        if wanted:
            wanted -= {name for one in self.applied for name in one.piece.names}
        return min(wanted, default="")

    def collides(self, piece: Piece, paths: set[str]) -> list[str]:
        """Return the applied pieces that changed the same or neighbouring lines; if none did, those that changed the same paths."""
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
    """Return the first number after `green` for which `red` holds, given that it holds for `end`."""
    while end - green > 1:
        middle = (green + end) // 2
        green, end = (green, middle) if red(middle) else (middle, end)
    return end


def movable(git: Repository, run: str) -> str:
    """Return the commit of a run's branch, empty if there is none. Raises `Refused` if the branch must not be moved."""
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
    # The ref that says that the commit is ours comes first: if we are killed in between, the branch can still be moved the next time.
    git.move((f"refs/muster/runs/{run}/reduce/delivered/{commit}", commit, None))
    git.move((f"refs/heads/muster-run/{run}", commit, movable(git, run)))
