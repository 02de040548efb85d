"""Merge without a checkout: what an integration asks of git, on trees and commits only.

git runs in a scratch repository that shares the objects of the user's repository but none of its configuration, attributes, hooks and refs.
So the same trees always give the same merge. New objects are written to the user's repository; its refs are only changed by `move`.
"""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ... import Host
from ..run import git
from ..run.git import GitFailed
from . import patches
from .patches import Change

WHO = "muster <muster@localhost>"
#: Bytes of a file up to which it is compared line by line.
LINES_MOST = "1m"
#: No setting but ours applies, so the same trees always give the same merge.
_ISOLATED = {
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_SYSTEM": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_COMMITTER_NAME": "muster",
    "GIT_COMMITTER_EMAIL": "muster@localhost",
}
_UNSET = ("GIT_CONFIG_COUNT", "GIT_CONFIG_PARAMETERS", "GIT_SHALLOW_FILE")
# A new file stays where its author put it, even if another patch renames the folder.
_OPTIONS = ("-c", "merge.directoryRenames=false")
_DIFF = ("diff-tree", "--stdin", "-r", "--no-renames", "--full-index", "--no-ext-diff", "--no-textconv", "--no-color")
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?\Z")


class Merge(NamedTuple):
    tree: str
    """The merged tree, with conflict markers where there is a conflict."""
    conflicts: dict[str, list[str]]
    """`MODE BLOB STAGE` of each side, by path; empty if everything could be merged."""

    @property
    def paths(self) -> list[str]:
        """The paths with conflicts, without the `~SIDE` that git appends to a file where the other side has a directory."""
        return sorted({path.removesuffix("~accepted").removesuffix("~unit") for path in self.conflicts})


class Step(NamedTuple):
    """One commit of a history."""

    changes: Sequence[Change]
    message: bytes
    when: int
    tree: str = ""
    """The tree that the commit gets, whatever the changes are; empty if they decide."""


class Repository:
    """The user's repository at `gitdir`, seen from a scratch repository that is made in the directory `scratch`. `host` is this machine."""

    def __init__(self, host: Host, gitdir: str, scratch: str) -> None:
        self.host, self.gitdir, self.scratch = host, gitdir, scratch
        self.calls: Counter[str] = Counter()
        self._made: dict[tuple[str, str], str] = {}
        words = ("--path-format=absolute", "--git-common-dir", "--show-object-format")
        common, format = self._call(gitdir, "", "rev-parse", *words).decode("utf-8", "surrogateescape").splitlines()
        self.objects = os.path.join(common, "objects")
        self.close()  # a process that was killed may have left it half made
        self._call(scratch, "", "init", "-q", "--bare", "--template=", f"--object-format={format}")
        with open(os.path.join(scratch, "objects", "info", "alternates"), "wb") as file:
            file.write(_quoted(self.objects) + b"\n")

    def close(self) -> None:
        """Remove the scratch repository."""
        shutil.rmtree(self.scratch, ignore_errors=True)

    # Reading

    def trees(self, commits: Iterable[str]) -> dict[str, str]:
        """Return the tree of each commit, without names that are no commit of the repository."""
        asked = [commit for commit in dict.fromkeys(commits) if _COMMIT.match(commit)]
        text = "".join(f"{commit}^{{tree}}\n" for commit in asked)
        output = self._git("cat-file", "--batch-check=%(objectname) %(objecttype)", input=text.encode())
        rows = [line.split(b" ") for line in output.splitlines()]
        return {
            commit: row[0].decode()
            for commit, row in zip(asked, rows, strict=True)
            if len(row) == 2 and row[1] == b"tree"
        }

    def empty(self) -> str:
        """Return the empty tree."""
        return self._git("hash-object", "-t", "tree", "-w", "--stdin").decode().strip()

    def date(self, commit: str) -> int:
        """Return when it was committed, in seconds since 1970."""
        found = re.search(rb"^committer .* (\d+) [-+]\d+$", self._git("cat-file", "commit", commit), re.M)
        return int(found[1]) if found else 0

    def changes(self, pairs: Sequence[tuple[str, str]]) -> list[list[Change]]:
        """Return the changes from the first tree to the second, for each pair. Raises `GitFailed` if an object is missing."""
        if not pairs:
            return []
        text = "".join(f"{old} {new}\n" for old, new in pairs).encode()
        found = patches.raw(self._git(*_DIFF, "--raw", "-z", input=text))
        options = ("-c", f"core.bigFileThreshold={LINES_MOST}")
        # Merges compare with this algorithm, so both see the same conflicts.
        known = patches.lines(self._git(*options, *_DIFF, "-p", "-U0", "--histogram", input=text))
        return [[patches.detailed(change, known) for change in one] for one in found]

    def readable(self, pairs: Sequence[tuple[str, str]]) -> list[list[Change] | str]:
        """Return the changes of each pair as `changes` does, or what git said if it cannot read the pair."""
        try:
            return [*self.changes(pairs)]
        except GitFailed as error:
            if len(pairs) == 1:
                return [error.message]
            half = len(pairs) // 2
            return self.readable(pairs[:half]) + self.readable(pairs[half:])

    # Merging

    def commits(self, wanted: Sequence[tuple[str, str]]) -> list[str]:
        """Return a commit without a message for each tree and its parent (empty: none); always the same one."""
        missing = [pair for pair in dict.fromkeys(wanted) if pair not in self._made]
        if len(missing) == 1:
            tree, parent = missing[0]
            lines = [f"tree {tree}", *([f"parent {parent}"] if parent else []), f"author {WHO} 0 +0000"]
            text = "\n".join([*lines, f"committer {WHO} 0 +0000", "", ""])
            made = self._git("hash-object", "-t", "commit", "-w", "--stdin", input=text.encode())
            self._made[missing[0]] = made.decode().strip()
        elif missing:
            text = "".join(
                f"reset refs/made\n\ncommit refs/made\nmark :{number}\ncommitter {WHO} 0 +0000\ndata 0\n"
                + (f"from {parent}\n" if parent else "")
                + f'M 040000 {tree} ""\n\nget-mark :{number}\n'
                for number, (tree, parent) in enumerate(missing, 1)
            )
            made = self._git("fast-import", "--quiet", "--force", input=text.encode())
            self._made |= zip(missing, made.decode().split(), strict=True)
        return [self._made[pair] for pair in wanted]

    def siblings(self, pairs: Sequence[tuple[str, str]]) -> list[str]:
        """Return a commit with the second tree of each pair, on a commit with the first one, so that two with the same first tree can be merged."""
        roots = self.commits([(before, "") for before, _ in pairs])
        return self.commits([(after, root) for (_, after), root in zip(pairs, roots, strict=True)])

    def merge(self, ours: str, theirs: str) -> Merge:
        """Merge a commit with its sibling `theirs`. Conflict markers say `accepted` and `unit`."""
        for name, commit in (("accepted", ours), ("unit", theirs)):
            with open(os.path.join(self.scratch, "refs", "heads", name), "w", encoding="ascii") as file:
                file.write(f"{commit}\n")
        return self._merges([("accepted", "unit")])[0]

    def tried(self, pairs: Sequence[tuple[str, str]]) -> list[Merge]:
        """Return what many merges of siblings come to. Their trees are not kept."""
        return self._merges(pairs, kept=False) if pairs else []

    def combined(self, tree: str, sets: Sequence[Sequence[tuple[str, str]]]) -> list[str]:
        """Return the tree that `tree` becomes with each set of changes (pairs of trees), in few calls however many there are.

        A change that cannot be merged is left out, and others of its set may be left out with it.
        """
        sides = list(dict.fromkeys(side for one in sets for side in one))
        if not sides:
            return [tree for _ in sets]
        ours = self.siblings([(before, tree) for before, _ in sides])
        merges = self._merges(list(zip(ours, self.siblings(sides), strict=True)))
        alone = {side: merge.tree for side, merge in zip(sides, merges, strict=True) if not merge.conflicts}
        piles = [[alone[side] for side in one if side in alone] for one in sets]
        while pairs := list(dict.fromkeys(pair for pile in piles for pair in zip(pile[::2], pile[1::2], strict=False))):
            made = self.siblings([(tree, side) for pair in pairs for side in pair])
            merges = self._merges(list(zip(made[::2], made[1::2], strict=True)))
            both = {pair: pair[0] if merge.conflicts else merge.tree for pair, merge in zip(pairs, merges, strict=True)}
            piles = [
                [*(both[pair] for pair in zip(pile[::2], pile[1::2], strict=False)), *pile[len(pile) // 2 * 2 :]]
                for pile in piles
            ]
        return [pile[0] if pile else tree for pile in piles]

    def _merges(self, pairs: Sequence[tuple[str, str]], kept: bool = True) -> list[Merge]:
        text = "".join(f"{ours} {theirs}\n" for ours, theirs in pairs)
        output = self._git("merge-tree", "--stdin", "--no-messages", "-z", input=text.encode(), kept=kept)
        words = iter(output.decode("utf-8", "surrogateescape").split("\0"))
        merges = []
        for _ in pairs:
            clean, tree, conflicts = next(words) == "1", next(words), dict[str, list[str]]()
            while entry := next(words):
                stage, _, path = entry.partition("\t")
                conflicts.setdefault(path, []).append(stage)
            if not clean and not conflicts:
                raise GitFailed("git reports a conflict without a path")
            merges.append(Merge(tree, conflicts))
        return merges

    # Writing

    def chain(self, base: str, steps: Sequence[Step]) -> list[str]:
        """Return the commits of a history on top of `base`, first to last."""
        text = bytearray()
        for number, step in enumerate(steps, 1):
            parent = f":{number - 1}" if number > 1 else base
            text += f"commit refs/made\nmark :{number}\ncommitter {WHO} {step.when} +0000\n".encode()
            text += b"data %d\n%s\nfrom %s\n" % (len(step.message), step.message, parent.encode())
            for change in step.changes:
                if change.new_mode == patches.ABSENT:
                    text += b"D %s\n" % _quoted(change.path)
                else:
                    text += b"M %s %s %s\n" % (change.new_mode.encode(), change.new.encode(), _quoted(change.path))
            if step.tree:
                text += f'M 040000 {step.tree} ""\n'.encode()
            text += f"\nget-mark :{number}\n".encode()
        return self._git("fast-import", "--quiet", "--force", input=bytes(text)).decode().split()

    def ref(self, name: str) -> str:
        """Return the commit of a ref of the user's repository; empty if there is none."""
        output = self._call(self.gitdir, "", "for-each-ref", "--format=%(objectname) %(refname)", name).decode()
        return next((line.split(" ")[0] for line in output.splitlines() if line.split(" ")[1] == name), "")

    def move(self, *moves: tuple[str, str, str | None]) -> None:
        """Set refs of the user's repository, all or none of them: name, commit, and the old commit (empty: must not exist; None: any)."""
        text = ""
        for name, commit, old in moves:
            expected = "" if old is None else f" {old or '0' * len(commit)}"
            text += f"update {name} {commit}{expected}\n"
        self._call(self.gitdir, "", "update-ref", "--stdin", input=text.encode())

    def checked_out(self, name: str) -> str:
        """Return the work tree that has this ref checked out; empty if none has."""
        output = self._call(self.gitdir, "", "worktree", "list", "--porcelain", "-z").decode("utf-8", "surrogateescape")
        where = ""
        for line in output.split("\0"):
            where = line.removeprefix("worktree ") if line.startswith("worktree ") else where
            if line == f"branch {name}":
                return where
        return ""

    def _git(self, *words: str, input: bytes = b"", kept: bool = True) -> bytes:
        return self._call(self.scratch, self.objects if kept else "", *words, input=input)

    def _call(self, gitdir: str, objects: str, *words: str, input: bytes = b"") -> bytes:
        self.calls[next(word for word in words[words[0] == "-c" and 2 :])] += 1
        env = {**_ISOLATED, "GIT_OBJECT_DIRECTORY": objects} if objects else _ISOLATED
        return git.output(self.host, gitdir, *_OPTIONS, *words, input=input, env=env, unset=_UNSET, bare=True)


def _quoted(path: str) -> bytes:
    """Return the path quoted for git, whatever bytes are in it."""
    data = path.encode("utf-8", "surrogateescape")
    plain = (b"%c" % byte if 32 <= byte < 127 and byte not in b'"\\' else b"\\%03o" % byte for byte in data)
    return b'"' + b"".join(plain) + b'"'
