"""Which tests need no agent: they were good before and nothing they depend on changed, or an open branch has fixed them already.

Digests of what a test depends on are kept for each repository in the muster home (`converged/`).
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping

from ... import Fleet
from ...tutorial import blocks
from ..reducing.trees import Repository
from ..run import directory, git, prompts, tasks
from ..run.directory import Run
from ..run.records import Ahead
from ..suite.baseline import Baseline

#: Digests that are kept of one test, the newest ones.
DIGESTS_MOST = 20
#: Commits since a branch began in which it may have been merged; only the newest are looked at.
COMMITS_MOST = 500
TEST_FILE = re.compile(r"(^|/)(test_[^/]*|[^/]*_test)\.py\Z")


def reasons_to_skip(fleet: Fleet, run: Run, baseline: Baseline, agent_type: str, tutorial: str = "") -> dict[str, str]:
    """Return the tests that get no agent, each with the reason."""
    repo = run.info.repo
    known = _load(fleet.home, repo)
    digests = input_digests(fleet, repo, baseline.commit, baseline, agent_type, tutorial)
    reason = "it needed nothing before, and nothing it depends on has changed since"
    passing = [row.function.id for row in baseline.tests if row.status == "passing"]
    unchanged = {test: reason for test in passing if digests[test] in known.get(test, [])}
    return unchanged | _done_in_open_branches(fleet, run, baseline)


def remember(
    fleet: Fleet, run: Run, baseline: Baseline, agent_type: str, tutorial: str, converged: Mapping[str, Iterable[str]]
) -> None:
    """Remember tests that need nothing more; `converged` has them by the commit at which that was so."""
    repo = run.info.repo
    digests = {commit: input_digests(fleet, repo, commit, baseline, agent_type, tutorial) for commit in converged}
    path = _path(fleet.home, repo)
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    with directory.locked(path):
        known = _load(fleet.home, repo)
        for commit, tests in converged.items():
            for test in tests:
                if digest := digests[commit].get(test):
                    older = [other for other in known.get(test, []) if other != digest]
                    known[test] = [*older, digest][-DIGESTS_MOST:]
        directory.write(path, {"repo": repo, "tests": known})


def input_digests(
    fleet: Fleet, repo: str, commit: str, baseline: Baseline, agent_type: str, tutorial: str = ""
) -> dict[str, str]:
    """Return a digest of everything that the task of each test depends on.

    That is the prompt, the agent type, the test's own file, the blocks that it cites, and every file that is neither another test file
    nor the tutorial. While the digest stays the same, the task need not be done again.
    """
    listing = git.output(fleet.local, repo, "ls-tree", "-r", "-z", "--full-tree", commit)
    entries = (os.fsdecode(row).partition("\t") for row in listing.split(b"\0") if row)
    blobs = {path: entry for entry, _, path in entries}
    own = {row.function.file for row in baseline.tests} | {tutorial or place for place in blocks.DEFAULT_PATHS}
    others = [(path, entry) for path, entry in blobs.items() if path not in own and not TEST_FILE.search(path)]
    common = tasks.digest([prompts.template("improve"), agent_type, others])
    functions = [row.function for row in baseline.tests]
    return {
        function.id: tasks.digest([common, blobs.get(function.file), [block.text for block in function.blocks]])
        for function in functions
    }


def _load(home: str, repo: str) -> dict[str, list[str]]:
    tests = (directory.read(_path(home, repo)) or {}).get("tests")
    if not isinstance(tests, dict):
        return {}
    return {str(test): [str(digest) for digest in digests] for test, digests in tests.items()}


def _path(home: str, repo: str) -> str:
    name = hashlib.sha256(repo.encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return os.path.join(home, "converged", name)


# Open branches


def _done_in_open_branches(fleet: Fleet, run: Run, baseline: Baseline) -> dict[str, str]:
    """Return the tests that an earlier run fixed in a branch that is neither merged nor deleted yet."""
    repo, done = run.info.repo, dict[str, str]()
    for other in directory.all_runs(fleet.home):
        delivery = directory.read(other.path("delivery.json"))
        if not delivery or not delivery.get("commit") or other.name == run.name or other.info.repo != repo:
            continue
        branch = git.text(fleet.local, repo, "rev-parse", "-q", "--verify", f"refs/heads/{delivery['branch']}")
        # Commits of people on top of what was delivered change nothing.
        if not branch or git.text(fleet.local, repo, "merge-base", branch, delivery["commit"]) != delivery["commit"]:
            continue
        if not _is_merged(fleet, run, repo, baseline.commit, branch):
            accepted = {
                name for change in delivery.get("accepted", []) for name in (change["name"], *change["collapsed"])
            }
            done |= dict.fromkeys(_tests_of(other, accepted), f"it is done in the open branch {delivery['branch']}")
    return done


def _tests_of(run: Run, accepted: set[str]) -> list[str]:
    """Return the tests that accepted tasks are about, and those that pass because of a scout among them."""
    ahead = run.ahead() or Ahead()
    tests = []
    for task in run.tasks():
        if task.id in accepted:
            verified = run.verified(task.id)
            own = verified.tests if verified and verified.tests is not None else (task.item,)
            tests += [*own, *(test for test, by in ahead.fixed.items() if by == task.id)]
    return tests


def _is_merged(fleet: Fleet, run: Run, repo: str, base: str, branch: str) -> bool:
    """Return whether `base` or a commit before it has everything that the branch changes: merged, rebased or squashed."""
    common = git.text(fleet.local, repo, "merge-base", base, branch)
    if common == branch:
        return True
    if not common:
        return False
    since = git.text(fleet.local, repo, "rev-list", f"--max-count={COMMITS_MOST}", f"{common}..{base}").split()
    repository = Repository(fleet.local, git.common_dir(fleet.local, repo), run.path("git"))
    try:
        trees = repository.trees([common, branch, *since])
        theirs, *ours = repository.siblings([(trees[common], trees[commit]) for commit in (branch, *since)])
        # A commit has the branch if merging the branch into it changes nothing. Later commits may have changed it again.
        merges = repository.tried([(commit, theirs) for commit in ours])
    finally:
        repository.close()
    return any(merge.tree == trees[commit] for commit, merge in zip(since, merges, strict=True) if not merge.conflicts)
