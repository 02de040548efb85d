"""What a branch has to pass before it is delivered: a gate, and the record of its verdicts.

A `Gate` says how the branch is tested. A `Tester` does it for one repository; see testers.py. A red verdict is asked for again before it
costs a change its place, because a test may be flaky.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from ...errors import UsageError
from .journal import Journal
from .trees import Repository

#: Characters kept of what a gate printed, from its end.
OUTPUT_MOST = 64 << 10


class Pytest(NamedTuple):
    """All tests can be collected, those that a change fixes pass, and no other test is worse than without the changes.

    How pytest is called comes from `[improve]` of the configuration. Each change is also tested alone before they are brought together.
    """

    args: tuple[str, ...] = ()
    """More arguments for pytest."""

    def __str__(self) -> str:
        return "pytest"


class Command(NamedTuple):
    """A command line for `sh` that exits with 0 in a clean checkout of the branch."""

    line: str

    def __str__(self) -> str:
        return self.line


class NoGate(NamedTuple):
    """Nothing is run: the branch has everything that merges."""

    def __bool__(self) -> bool:
        return True  # an empty tuple is false, and a gate that was given is not a missing one

    def __str__(self) -> str:
        return "none"


Gate: TypeAlias = Pytest | Command | NoGate


def parse(word: str, args: Sequence[str] = ()) -> Gate:
    """Return the gate for a word of the command line or the configuration: `pytest`, `none`, or else a command line."""
    if word == "pytest":
        return Pytest(tuple(args))
    if args:
        raise UsageError(f"arguments for pytest need the gate pytest, and it is {word!r}", "--gate pytest -- -q")
    if not word.strip():
        raise UsageError("the gate is empty", "--gate pytest, --gate none, or --gate 'make test'")
    return NoGate() if word == "none" else Command(word)


class Verdict(NamedTuple):
    ok: bool
    words: str = ""
    """What is wrong or what was shown, as a phrase."""
    output: str = ""


class Tester(Protocol):
    """Tests commits. Only a tester runs code of the project."""

    def check(self, commit: str, tests: Sequence[str]) -> Verdict:
        """Return whether a part of the branch is good so far: for pytest, whether all tests are collected and these pass."""
        ...

    def full(self, commit: str, tests: Sequence[str]) -> Verdict:
        """Return whether the commit may be delivered: for pytest, whether the whole suite is no worse than on the base and these pass."""
        ...

    def passing(self, asked: Sequence[tuple[str, Sequence[str]]]) -> Sequence[Collection[str]]:
        """Return which of the tests given with each commit pass there, without those that are known to be flaky."""
        ...


class Verdicts:
    """Asks a tester and records its verdicts in the journal. Announces each of them with `say`."""

    def __init__(
        self,
        git: Repository,
        tester: Tester,
        journal: Journal,
        refs: str,
        base: str,
        say: Callable[[dict[str, Any]], None],
    ) -> None:
        self.git, self.tester, self.journal, self.refs, self.base, self.say = git, tester, journal, refs, base, say
        self.flaky: dict[str, None] = {}
        """Commits that were red and then green."""

    def check(self, commit: str, tests: Sequence[str], again: bool = False) -> Verdict:
        return self._verdict("check", commit, tests, again, self.tester.check)

    def full(self, commit: str, tests: Sequence[str], again: bool = False) -> Verdict:
        return self._verdict("full", commit, tests, again, self.tester.full)

    def passing(self, asked: Sequence[tuple[str, Sequence[str]]]) -> list[frozenset[str]]:
        """Return which of the tests given with each commit pass there. A new integration asks again for those that do."""
        keys = [["passing", commit, sorted(tests)] for commit, tests in asked]
        missing = [number for number, key in enumerate(keys) if not self.journal.get("passing", key)]
        if missing:
            self.git.move(*((f"{self.refs}/without/{place}", asked[n][0], None) for place, n in enumerate(missing)))
            for number, found in zip(missing, self.tester.passing([asked[n] for n in missing]), strict=True):
                self.journal.put("passing", keys[number], {"passing": sorted(found), "ok": not found})
        return [frozenset((self.journal.get("passing", key) or {})["passing"]) for key in keys]

    def _verdict(
        self, kind: str, commit: str, tests: Sequence[str], again: bool, ask: Callable[[str, Sequence[str]], Verdict]
    ) -> Verdict:
        """Return the verdict on a commit. With `again` it is a second one, which is recorded beside the first."""
        key = [kind, commit, sorted(tests), again]
        known = self.journal.get("verdict", key)
        if known:
            verdict = Verdict(bool(known["ok"]), str(known["words"]), str(known["output"]))
        else:
            self.git.move((f"{self.refs}/tested", commit, None))
            verdict = ask(commit, tests)
            verdict = verdict._replace(output=verdict.output[-OUTPUT_MOST:])
            # If the base is red, the cause is outside of the changes, and somebody is going to mend it.
            if verdict.ok or commit != self.base:
                self.journal.put("verdict", key, verdict._asdict())
        self.say({"kind": kind, "commit": commit, "ok": verdict.ok, "words": verdict.words, "known": bool(known)})
        if again and verdict.ok:
            self.flaky[commit] = None
        return verdict
