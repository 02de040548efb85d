"""What is remembered from run to run: tests that need nothing more, work in branches that are still open, and what agents escalated."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ... import Fleet
from ...errors import MusterError, NotFound
from ...tutorial import blocks
from ..limits import failures
from ..reducing import trees as merging
from ..run import directory as runs
from ..run import prompts, tasks
from ..run.directory import Run
from ..suite.baseline import Baseline

#: Who makes commits that no person made.
IDENTITY = {"NAME": "muster", "EMAIL": "muster@localhost"}
#: Of each test so many states are remembered.
KEYS = 20
#: Of the commits since a branch began, the newest: in one of them it may have been taken.
LOOKED_AT = 500
TEST_FILE = re.compile(r"(^|/)(test_[^/]*|[^/]*_test)\.py\Z")


# Tests


def skipped(fleet: Fleet, run: Run, before: Baseline, kind: str, tutorial: str = "") -> dict[str, str]:
    """The tests that get no agent, with the reason."""
    repo = run.info.repo
    known = _converged(fleet.home, repo)
    keys = inputs(fleet, repo, before.commit, before, kind, tutorial)
    words = "it was good as it is, and nothing that it depends on has changed since"
    passing = [one.function.id for one in before.tests if one.status == "passing"]
    return {test: words for test in passing if keys[test] in known.get(test, [])} | _open(fleet, run, before)


def _open(fleet: Fleet, run: Run, before: Baseline) -> dict[str, str]:
    """Tests that a run before has mended, in a branch that nobody has taken or thrown away yet."""
    repo, found = run.info.repo, dict[str, str]()
    for other in runs.all_runs(fleet.home):
        delivered = runs.read(other.path("delivery.json"))
        if not delivered or not delivered.get("commit") or other.name == run.name or other.info.repo != repo:
            continue
        branch = git(fleet, repo, "rev-parse", "-q", "--verify", f"refs/heads/{delivered['branch']}")
        # People may have added to it.
        if not branch or git(fleet, repo, "merge-base", branch, delivered["commit"]) != delivered["commit"]:
            continue
        if not _taken(fleet, run, repo, before.commit, branch):
            found |= dict.fromkeys(_tests(other, delivered), f"it is done in the open branch {delivered['branch']}")
    return found


def _tests(run: Run, delivered: dict[str, Any]) -> list[str]:
    """What the accepted changes of a run are about: the tests of their tasks, and those that pass by a scout's."""
    ahead = run.ahead()
    fixed = ahead.fixed if ahead else {}
    taken = {name for one in delivered.get("accepted", []) for name in (one["name"], *one["collapsed"])}
    found = []
    for task in run.tasks():
        if task.id in taken:
            verified = run.verified(task.id)
            own = verified.tests if verified and verified.tests is not None else (task.item,)
            found += [*own, *(test for test, by in fixed.items() if by == task.id)]
    return found


def _taken(fleet: Fleet, run: Run, repo: str, base: str, branch: str) -> bool:
    """Whether a commit at or before `base` has all that the branch changes, however it came there: merged, rebased or squashed."""
    common = git(fleet, repo, "merge-base", base, branch)
    if common == branch:
        return True
    if not common:
        return False
    since = git(fleet, repo, "rev-list", f"--max-count={LOOKED_AT}", f"{common}..{base}").split()
    place = git(fleet, repo, "rev-parse", "--path-format=absolute", "--git-common-dir")
    known = merging.Repository(fleet.local, place, run.path("git"))
    try:
        trees = known.trees([common, branch, *since])
        theirs, *ours = known.siblings([(trees[common], trees[one]) for one in (branch, *since)])
        # One has all of it when the branch brings nothing more. Later ones may have changed that again.
        merged = known.tried([(one, theirs) for one in ours])
    finally:
        known.close()
    return any(one.tree == trees[commit] for commit, one in zip(since, merged, strict=True) if not one.conflicts)


def converge(
    fleet: Fleet, run: Run, before: Baseline, kind: str, tutorial: str, good: Mapping[str, Iterable[str]]
) -> None:
    """Remember tests, by the commit at which they need nothing more."""
    repo = run.info.repo
    found = {commit: inputs(fleet, repo, commit, before, kind, tutorial) for commit in good}
    with _alone(path := _file(fleet.home, repo)):
        known = _converged(fleet.home, repo)
        for commit, tests in good.items():
            for test in tests:
                if key := found[commit].get(test):
                    known[test] = [*(one for one in known.get(test, []) if one != key), key][-KEYS:]
        runs.write(path, {"repo": repo, "tests": known})


def _converged(home: str, repo: str) -> dict[str, list[str]]:
    told = (runs.read(_file(home, repo)) or {}).get("tests")
    return {str(test): [str(one) for one in keys] for test, keys in told.items()} if isinstance(told, dict) else {}


def _file(home: str, repo: str) -> str:
    return os.path.join(home, "converged", hashlib.sha256(repo.encode("utf-8", "surrogateescape")).hexdigest()[:16])


def inputs(fleet: Fleet, repo: str, commit: str, before: Baseline, kind: str, tutorial: str = "") -> dict[str, str]:
    """Of each test a digest of all that the outcome of its task depends on: the prompt, the type of its agent, its own file, the
    blocks it cites, and every file that is neither another file of tests nor the tutorial. While it is the same the task need
    not be done again."""
    words = ["git", "-C", repo, "-c", "core.hooksPath=/dev/null", "ls-tree", "-r", "-z", "--full-tree", commit]
    listed = fleet.local.run(words)
    if listed.returncode:
        raise MusterError(f"git cannot list {commit}: {listed.stderr.decode('utf-8', 'replace').strip()}")
    entries = (os.fsdecode(line).partition("\t") for line in listed.stdout.split(b"\0") if line)
    blobs = {path: entry for entry, _, path in entries}
    own = {one.function.file for one in before.tests} | {tutorial or place for place in blocks.DEFAULT_PATHS}
    rest = [(path, entry) for path, entry in blobs.items() if path not in own and not TEST_FILE.search(path)]
    common = tasks.digest([prompts.template("improve"), kind, rest])
    return {
        one.function.id: tasks.digest(
            [common, blobs.get(one.function.file), [block.text for block in one.function.blocks]]
        )
        for one in before.tests
    }


@contextlib.contextmanager
def _alone(path: str) -> Iterator[None]:
    """The right to change a file that several runs share, until it is given back or this process is gone."""
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    with open(f"{path}.lock", "a", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def git(fleet: Fleet, repo: str, *words: str) -> str:
    done = fleet.local.run(["git", "-C", repo, "-c", "core.hooksPath=/dev/null", *words])
    return done.stdout.decode("utf-8", "replace").strip()


def branches(fleet: Fleet, repo: str) -> list[str]:
    """The names of runs, there or gone, whose branch is still in the repository."""
    return git(fleet, repo, "for-each-ref", "--format=%(refname:lstrip=3)", "refs/heads/muster-run/").split()


def forget(fleet: Fleet, name: str, repo: str) -> None:
    """Take away what a run held beside branches in the user's repository, if that is still there."""
    listed = git(fleet, repo, "for-each-ref", "--format=delete %(refname)", f"refs/muster/runs/{name}") if repo else ""
    if listed:
        words = ["git", "-C", repo, "-c", "core.hooksPath=/dev/null", "update-ref", "--stdin"]
        fleet.local.run(words, input=f"{listed}\n".encode())


# Escalations


def escalate(home: str, run: Run, task: str = "") -> None:
    """Take what the agents of a run, or of one task, escalated into the ledger: alike ones once, with the tasks that said it."""
    said = [
        (text, f"{run.name}/{id}", attempt.outcome.t)
        for id in ([task] if task else [one.id for one in run.tasks()])
        for attempt in run.attempts(id)
        if attempt.outcome and attempt.outcome.claimed
        for text in attempt.outcome.claimed.escalate
    ]
    if not said:
        return
    with _alone(path := _ledger(home)):
        ledger = escalations(home)
        for text, who, when in said:
            _enter(ledger, text, who, when)
        runs.write(path, {"escalations": ledger})


def _enter(ledger: dict[str, dict[str, Any]], text: str, who: str, when: float) -> None:
    key = hashlib.sha256(failures.mask(text).encode("utf-8", "replace")).hexdigest()[:8]
    one = ledger.setdefault(key, {"text": text[:4096], "by": [], "first": when, "last": when, "closed": None})
    one["last"] = max(one["last"], when)
    if who not in one["by"]:
        one["by"].append(who)
    if one["closed"] and when > one["closed"]:
        one["closed"] = None  # said again, so it is not closed


def _ledger(home: str) -> str:
    return os.path.join(home, "escalations.json")


def escalations(home: str) -> dict[str, dict[str, Any]]:
    told = (runs.read(_ledger(home)) or {}).get("escalations")
    return dict(told) if isinstance(told, dict) else {}


def close(home: str, key: str) -> str:
    """Shown no more until somebody says it again; returns its text."""
    with _alone(path := _ledger(home)):
        ledger = escalations(home)
        if key not in ledger:
            raise NotFound(f"there is no escalation {key!r}", "muster runs escalations shows them")
        ledger[key]["closed"] = time.time()
        runs.write(path, {"escalations": ledger})
    return str(ledger[key]["text"])
