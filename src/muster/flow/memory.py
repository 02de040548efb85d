"""What is remembered from run to run: tests that need nothing more, work in branches that are still open, and what agents escalated."""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Iterable, Mapping
from typing import Any

from .. import Fleet
from ..errors import MusterError, NotFound
from ..tutorial import blocks
from . import author, patterns
from . import run as runs
from . import task as tasks
from .baseline import Baseline
from .run import Run

#: Who makes commits that no person made.
IDENTITY = {"NAME": "muster", "EMAIL": "muster@localhost"}
#: Of each test so many states are remembered.
KEYS = 20
TEST_FILE = re.compile(r"(^|/)(test_[^/]*|[^/]*_test)\.py\Z")


# Tests


def skipped(fleet: Fleet, run: Run, before: Baseline, kind: str, tutorial: str = "") -> dict[str, str]:
    """The tests that get no agent, with the reason."""
    repo = str(run.about()["repo"])
    known = _converged(fleet.home, repo)
    keys = inputs(fleet, repo, before.commit, before, kind, tutorial)
    words = "it was good as it is, and nothing that it depends on has changed since"
    passing = [one.function.id for one in before.tests if one.status == "passing"]
    return {test: words for test in passing if keys[test] in known.get(test, [])} | _open(fleet, run, before)


def _open(fleet: Fleet, run: Run, before: Baseline) -> dict[str, str]:
    """Tests that a run before has mended, in a branch that nobody has taken or thrown away yet."""
    repo, found = str(run.about()["repo"]), {}
    for other in runs.all_runs(fleet.home):
        delivered = runs.read(other.path("delivery.json"))
        if not delivered or not delivered.get("commit") or other.name == run.name or other.about().get("repo") != repo:
            continue
        branch = f"refs/heads/{delivered['branch']}"
        if git(fleet, repo, "rev-parse", "-q", "--verify", branch) != delivered["commit"]:
            continue
        if git(fleet, repo, "merge-base", before.commit, branch) == delivered["commit"]:
            continue  # it was taken
        items = {task.id: task.item for task in other.tasks()}
        for one in delivered.get("accepted", []):
            for name in (one["name"], *one["collapsed"]):
                if name in items:
                    found[items[name]] = f"it is done in the open branch {delivered['branch']}"
    return found


def converge(
    fleet: Fleet, run: Run, before: Baseline, kind: str, tutorial: str, good: Mapping[str, Iterable[str]]
) -> None:
    """Remember tests, by the commit at which they need nothing more."""
    repo = str(run.about()["repo"])
    known = _converged(fleet.home, repo)
    for commit, tests in good.items():
        keys = inputs(fleet, repo, commit, before, kind, tutorial)
        for test in tests:
            if key := keys.get(test):
                known[test] = [*(one for one in known.get(test, []) if one != key), key][-KEYS:]
    path = _file(fleet.home, repo)
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
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
    own = {one.function.file for one in before.tests} | {tutorial or place for place in blocks.PLACES}
    rest = [(path, entry) for path, entry in blobs.items() if path not in own and not TEST_FILE.search(path)]
    common = tasks.digest([author.template("improve"), kind, rest])
    return {
        one.function.id: tasks.digest(
            [common, blobs.get(one.function.file), [block.text for block in one.function.blocks]]
        )
        for one in before.tests
    }


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


def escalate(home: str, run: Run) -> None:
    """Take what the agents of a run escalated into the ledger: alike ones once, with the tasks that said it."""
    ledger = escalations(home)
    for task in run.tasks():
        for attempt in run.attempts(task.id):
            told = (attempt.outcome or {}).get("claimed")
            for text in told.get("escalate", []) if isinstance(told, dict) else []:
                _enter(ledger, str(text), f"{run.name}/{task.id}")
    runs.write(os.path.join(home, "escalations.json"), {"escalations": ledger})


def _enter(ledger: dict[str, dict[str, Any]], text: str, who: str) -> None:
    key = hashlib.sha256(patterns.mask(text).encode("utf-8", "replace")).hexdigest()[:8]
    one = ledger.setdefault(key, {"text": text[:4096], "by": [], "first": time.time(), "closed": None})
    if who not in one["by"]:
        one["by"].append(who)
        one["last"], one["closed"] = time.time(), None  # said again, so it is not closed


def escalations(home: str) -> dict[str, dict[str, Any]]:
    told = (runs.read(os.path.join(home, "escalations.json")) or {}).get("escalations")
    return dict(told) if isinstance(told, dict) else {}


def close(home: str, key: str) -> str:
    """Shown no more until somebody says it again; returns its text."""
    ledger = escalations(home)
    if key not in ledger:
        raise NotFound(f"there is no escalation {key!r}", "muster runs escalations shows them")
    ledger[key]["closed"] = time.time()
    runs.write(os.path.join(home, "escalations.json"), {"escalations": ledger})
    return str(ledger[key]["text"])
