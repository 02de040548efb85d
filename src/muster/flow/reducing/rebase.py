"""Move the change of a branch onto the commit that it should start from.

An agent may reset, amend or squash commits that it was given. The difference between its base and its tip would then revert commits of the
user. So only what the branch itself changed since it diverged is taken.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from ... import Fleet
from ..review import paths
from ..run import git
from ..run.directory import Run
from ..run.results import shown
from . import trees


class Onto(NamedTuple):
    """A commit on top of the base, or the reason why it could not be made."""

    commit: str
    moved: bool = False
    """True if the branch did not descend from the base and its changes were applied again."""
    reason: str = ""


def onto(fleet: Fleet, run: Run, base: str, tip: str, ref: str, rewritten: bool = True) -> Onto:
    """Return a commit that has `base` and the changes of a branch. The ref `ref` of the run keeps a new one.

    With `rewritten`, the branch may have commits of the base in another form, as after `git commit --amend` or a squash. Where its changes
    and theirs conflict, its version counts if it keeps most of their lines. Otherwise a conflict is a reason against the branch.
    """
    repo = run.info.repo
    before = git.text(fleet.local, repo, "merge-base", base, tip)
    if before == base:
        return Onto(tip)
    if not before and not rewritten:
        return Onto("", reason="it has no commit in common with your branch")
    # Several of these run at once, each in a scratch repository of its own.
    scratch = trees.Repository(fleet.local, git.common_dir(fleet.local, repo), run.path(f"git-{ref}"))
    try:
        found = scratch.trees([commit for commit in (before, base, tip) if commit])
        old = found[before] if before else scratch.empty()
        merge = scratch.merge(*scratch.siblings([(old, found[base]), (old, found[tip])]))
        (commit,) = scratch.commits([(merge.tree, base)])
        lost = [
            path
            for path in merge.conflicts
            if not (rewritten and _keeps(*(_lines(fleet, repo, one, path) for one in (before, base, tip))))
        ]
        if lost:
            return Onto("", reason=f"conflicts with commits of yours in {', '.join(map(shown, merge.paths[:5]))}")
        if merge.conflicts:
            tree = paths.tree(fleet.local, repo, commit, tip, merge.conflicts)
            (commit,) = scratch.commits([(tree, base)])
        scratch.move((f"refs/muster/runs/{run.name}/onto/{ref}", commit, None))
    finally:
        scratch.close()
    return Onto(commit, moved=True)


def _lines(fleet: Fleet, repo: str, commit: str, path: str) -> Counter[bytes] | None:
    """Return the lines of a file that are not empty, each with how often it occurs; None if it is no text."""
    if not commit:
        return Counter()
    data = git.run(fleet.local, repo, "cat-file", "blob", f"{commit}:{path}").stdout
    if b"\0" in data:
        return None
    return Counter(line.strip() for line in data.splitlines() if line.strip())


def _keeps(before: Counter[bytes] | None, base: Counter[bytes] | None, tip: Counter[bytes] | None) -> bool:
    """Return whether a file has most of the lines that the user's commits added to it, and few of those that they removed."""
    if before is None or base is None or tip is None or not tip:
        return False
    added, removed = base - before, before - base
    kept, back = (added & tip).total(), (removed & (tip - base)).total()
    return 2 * kept >= added.total() and 2 * back <= removed.total()
