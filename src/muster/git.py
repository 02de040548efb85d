"""Everything muster asks of git: carry uncommitted work, make work dirs, bring commits home, put work away.

These are plain functions over a host. Each runs one shell file there, and commits travel as packs through `Host.run`.
An agent's repository is hostile input: muster reads its work tree only through a git directory of its own (the
*shadow*) and a copy of the index, so no hook, filter or setting of the agent runs. This module does not know where
a host is or what an agent is.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from typing import IO, NamedTuple, TypeVar

from .errors import MusterError, NotFound, Refused
from .host import CommandFailed, Host, Step, output, script, shell_file

Key = TypeVar("Key")
#: Limit on the commits that a host says it has: more do not fit on a command line.
HAVES_MAX = 400


class Repo(NamedTuple):
    """A repository as its user sees it from one folder."""

    top: str
    """The work tree; empty for a bare repository."""
    gitdir: str
    common: str
    """The git directory that all work trees share."""
    head: str
    """The checked-out commit; empty before the first commit."""
    branch: str
    """Empty when HEAD is detached."""
    prefix: str
    """The folder asked about, relative to `top`; ends in a slash unless empty."""
    bare: bool
    format: str
    """sha1 or sha256."""
    sparse: bool
    partial: bool
    shallow: str
    """The commits at which the history is cut off, one per line."""
    exclude: str
    """Ignore patterns from outside any .gitignore."""
    submodules: tuple[str, ...]
    """Paths of the submodules that are checked out."""
    name: str
    email: str


class State(NamedTuple):
    """A work tree as two commits: `head`, and `state`, which adds everything uncommitted (`head` itself if clean)."""

    head: str
    state: str
    nested: tuple[str, ...] = ()
    """Untracked repositories inside the work tree, which are left out."""


class Tree(NamedTuple):
    """An agent's work tree as recorded at creation. The agent is never asked for these values again."""

    workdir: str
    shadow: str
    gitdir: str = ""
    """Empty in mode `copy`, where only the shadow knows the folder."""
    common: str = ""
    branch: str = ""


class Info(NamedTuple):
    """Counts are None if unknown: the work dir is gone or its git is broken. A removed worktree still has its commits."""

    ahead: int | None
    dirty: int | None
    head: str


class Fetched(NamedTuple):
    tip: str
    old: str
    """The former value of the ref; empty if it is new."""
    head: str
    """The agent's HEAD, which differs from `tip` if the agent switched to another branch."""
    planted: tuple[str, ...] = ()
    """Hooks and program-running settings that the agent added to its git directory. None of them is run."""


class Snapshot(NamedTuple):
    id: str
    state: str
    time: int
    comment: str


# --- a repository, and what is not committed in it


def find(host: Host, path: str) -> Repo | None:
    """Return the repository that contains `path`, or None."""
    done = _run(host, "look", "find", path)
    if done.returncode == 3:
        return None
    where, head, branch, exclude, shallow, modules, *config = _text(_output(done, f"git in {path}")).split("\0")
    flags, common, prefix, top = [*(part.strip("\n") for part in where.split("--:")), "", "", ""][:4]
    bare, _, format, gitdir = flags.split("\n", 3)
    settings = dict(line.split("\n", 1) for line in config if "\n" in line)
    return Repo(
        top=top,
        gitdir=gitdir,
        common=common,
        head=head.strip(),
        branch=branch.strip().removeprefix("refs/heads/"),
        prefix=prefix,
        bare=bare == "true",
        format=format,
        sparse=settings.get("core.sparsecheckout", "").lower() in ("true", "yes", "on", "1"),
        partial=any(key.endswith((".promisor", ".partialclone")) for key in settings),
        shallow=shallow.strip(),
        exclude=exclude,
        submodules=tuple(modules.splitlines()),
        name=settings.get("user.name", ""),
        email=settings.get("user.email", ""),
    )


def capture(host: Host, top: str) -> State:
    """Commit everything uncommitted in the user's work tree without moving a ref; index, tree and stash stay untouched.

    Raises `Refused` if there is no commit yet, during a merge or rebase, and for dirty submodules.
    """
    return _state(_ask(host, "look", "capture", top, what=f"cannot read the work tree {top}"))


def harvest(host: Host, tree: Tree) -> State:
    """Do what `capture` does for an agent's work tree, into its shadow. Unmerged files are taken as they are."""
    return _state(_ask(host, "look", "harvest", *_where(tree), what="cannot read its work"))


# --- work dirs


def seed_worktree(
    host: Host, repo: Repo, workdir: str, shadow: str, own: str, id: str, branch: str, base: str, state: str
) -> Tree:
    """Make a work tree on a new branch at `base` that contains `state` (equal to `base` if the user's tree is clean).

    Its git directory, `own`, belongs to the agent and borrows the objects of the user's repository, to which muster adds
    one ref and nothing else. Raises `Refused`, and leaves nothing behind, if the branch could not be brought back later
    or the folder is not empty.
    """
    _check(base, state)
    args = (repo.top or repo.common, repo.common, repo.gitdir, workdir, shadow, own, held(id), branch, base, state)
    _ask(host, "seed", "worktree", *args, repo.format, repo.exclude, what=f"cannot make the work tree {workdir}")
    return Tree(workdir, shadow, own, own, branch)


def held(id: str) -> str:
    """Return the ref that protects the objects which an agent's work tree borrows from git's garbage collection."""
    return f"refs/muster/held/{id}"


def seed_mirror(
    source: Host,
    repo: Repo,
    host: Host,
    key: str,
    workdir: str,
    shadow: str,
    branch: str,
    base: str,
    state: str,
    *,
    own: bool = False,
) -> Tree:
    """Make a repository on `host` from packs that `source` sends. `key` names the cache of this origin on the host.

    `own` means that `repo` belongs to the user, not to an agent; a new cache on the same machine then links its objects.

    Raises `Refused` for a partial clone and for checked-out submodules.
    """
    _check(base, state)
    if repo.partial:
        raise Refused(f"{repo.top} is a partial clone, which lacks objects to send", "use --mode worktree")
    if repo.submodules:
        names = ", ".join(repo.submodules)
        raise Refused(f"submodules ({names}) do not travel to a clone", "use --mode worktree")
    key = key if repo.format == "sha1" else f"{key}-{repo.format}"
    near = own and source.local and host.local and not repo.shallow
    haves = _haves(host, f"@{key}", f"{base} {state}", format=repo.format, common=repo.common if near else "")
    if repo.shallow:  # a commit that both sides have may lack its ancestors on one of them
        haves = []
    wants = [rev for rev in dict.fromkeys((base, state)) if rev not in haves]
    _send(
        *(source, repo.common, wants, haves, host, "seed", "mirror"),
        *(key, workdir, shadow, branch, base, state, repo.format, repo.exclude, repo.name, repo.email, repo.shallow),
        history=own and not haves and not repo.shallow,
    )
    gitdir = f"{workdir}/.git"
    return Tree(workdir, shadow, gitdir, gitdir, branch)


def seed_copy(host: Host, workdir: str, shadow: str) -> Tree:
    """Record the folder as it is now, ignored files included, as the baseline of later diffs."""
    _ask(host, "seed", "baseline", workdir, shadow, what=f"cannot take a baseline of {workdir}")
    return Tree(workdir, shadow)


def seed_in_place(host: Host, repo: Repo, shadow: str) -> Tree:
    """Make a shadow for the user's own work tree, which stays as it is."""
    _ask(host, "seed", "shadow", repo.top, shadow, repo.gitdir, repo.common, repo.format, repo.exclude)
    return Tree(repo.top, shadow, repo.gitdir, repo.common, repo.branch)


# --- an agent's work


def diff(
    host: Host,
    tree: Tree,
    *,
    stat: bool = False,
    name_only: bool = False,
    color: bool = False,
    committed_only: bool = False,
    binary: bool = False,
) -> bytes:
    """Return the diff from the base to the current work tree, untracked files included. `binary` makes it fit for `patch`."""
    wanted = {"--stat": stat, "--name-only": name_only, "--color=always": color}
    flags = [flag for flag, on in wanted.items() if on] + ["--binary", "--full-index", "--no-renames"] * binary
    only = "1" if committed_only else ""
    return _ask(host, "work", "diff", *_where(tree), only, *flags, what="cannot diff")


def diff_stream(host: Host, tree: Tree) -> AbstractContextManager[IO[bytes]]:
    """Stream what `diff` returns."""
    return output(host, _argv(host, "work", "diff", [*_where(tree), ""]), "cannot diff")


def info(host: Host, trees: Mapping[Key, Tree]) -> dict[Key, Info]:
    """Count the commits since the base and the changed files of many agents, in one round trip."""
    step, asked = info_step(trees)
    return infos(trees, script(host, step.name, *step.words, input=asked))


def info_step(trees: Mapping[Key, Tree]) -> tuple[Step, bytes]:
    """Return the step of a chain that `infos` reads, and its input."""
    lines = [part for tree in trees.values() for part in _where(tree)]
    text = "".join(line.replace("\\", "\\\\").replace("\n", "\\n") + "\n" for line in lines)
    return Step("git-work", ("info",), reads=True), os.fsencode(text)


def infos(trees: Mapping[Key, Tree], done: subprocess.CompletedProcess[bytes]) -> dict[Key, Info]:
    """Read what `info_step` gave."""
    result = dict.fromkeys(trees, Info(None, None, ""))
    keys = list(trees)
    for line in _text(_output(done, "git info")).splitlines():
        try:
            number, ahead, dirty, head = line.split(" ")
            result[keys[count(number)]] = Info(count(ahead), None if dirty == "-" else count(dirty), sha(head))
        except (ValueError, IndexError) as error:
            raise MusterError(f"git gave {line[:80]!r} where a count of changes was expected") from error
    return result


def fetch(
    host: Host,
    tree: Tree,
    to: Host,
    common: str,
    ref: str = "",
    *,
    uncommitted: bool = False,
    force: bool = False,
    base: str = "",
) -> Fetched:
    """Bring the agent's branch into the repository at `common` on `to`, as `ref` (without `ref`, only its objects).

    With `uncommitted` the tip is one more commit that holds the uncommitted changes. If the tip is still `base`, no new
    ref is created. Raises `Refused` if `ref` is checked out somewhere, or has commits that the agent lacks and `force`
    is off.
    """
    answer = _ask(host, "work", "tip", *_where(tree), "1" if uncommitted else "")
    line, _, planted = _text(answer).partition("\n")
    tip, head = _pair(line)
    old = bring(host, tree.shadow, to, common, tip, ref, force=force, base=base)
    return Fetched(tip, old, head, tuple(name[:200] for name in planted.splitlines()[:40]))


def bring(
    host: Host, gitdir: str, to: Host, common: str, commit: str, ref: str = "", *, force: bool = False, base: str = ""
) -> str:
    """Copy `commit` and its history between object stores and set `ref` to it. Return the former value of `ref`."""
    _check(commit)
    haves = _haves(to, common, commit)
    wants = [] if commit in haves else [commit]
    args = (common, ref, commit, "1" if force else "", base)
    return _text(_send(host, gitdir, wants, haves, to, "work", "land", *args)).strip()


def push(source: Host, common: str, commit: str, host: Host, tree: Tree, *, merge: bool = False) -> str:
    """Bring `commit` of the user's repository to the agent's branch, index and files. Return the agent's new HEAD.

    The commit becomes the agent's base. Raises `Refused`, with nothing moved, if the agent's work has diverged (unless
    `merge`), if there are conflicts, or if uncommitted changes would be overwritten.
    """
    _check(commit)
    if not tree.gitdir:
        raise Refused("a copy has no branch to push to", "use muster exec to change its files")
    haves = _haves(host, tree.shadow, commit, f"{tree.common}/objects")
    wants = [] if commit in haves else [commit]
    args = (tree.workdir, tree.gitdir, tree.common, tree.shadow, commit, "1" if merge else "")
    return sha(_text(_send(source, common, wants, haves, host, "work", "advance", *args)).strip())


def uncommitted_files(host: Host, tree: Tree) -> list[str]:
    """Return the paths that differ from the last commit, untracked ones included, ignored ones not."""
    raw = _ask(host, "work", "uncommitted", *_where(tree), what="cannot read the work dir")
    return sorted(entry[3:].decode("utf-8", "replace") for entry in raw.split(b"\0") if entry)


def integrate(host: Host, top: str, ref: str, how: str = "merge", message: str = "") -> tuple[str, str]:
    """Merge, squash or rebase `ref` into the branch that is checked out at `top`.

    Return HEAD before and after; they are equal if there was nothing to integrate.

    The result is computed before the tree is touched: on a conflict `Refused` names the files, and nothing has changed.
    """
    if how not in ("merge", "rebase", "squash"):
        raise ValueError(how)
    return _pair(_text(_ask(host, "work", "integrate", top, ref, how, message, what=f"cannot {how} {ref}")))


def rename(host: Host, tree: Tree, branch: str) -> Tree:
    """Rename the agent's branch. Raises `Refused` if the name is taken."""
    if tree.gitdir and tree.branch != branch:
        _ask(host, "work", "rename", tree.gitdir, tree.branch, branch, what=f"cannot rename {tree.branch}")
    return tree._replace(branch=branch if tree.gitdir else tree.branch)


def patch(host: Host, folder: str, changes: bytes | IO[bytes]) -> list[str]:
    """Apply a binary diff to a folder, which need not be a repository. If any part fails, `Refused` is raised and nothing changes.

    Return the changed paths as `git apply` read them.
    """
    lines = _ask(host, "work", "patch", folder, input=changes, what=f"cannot change {folder}").split(b"\0")
    return [line.partition(b"\t")[2].partition(b"\t")[2].decode("utf-8", "replace") for line in lines if line]


# --- snapshots


def snapshot_create(host: Host, tree: Tree, id: str, comment: str = "") -> str:
    """Save the work tree in the shadow, where it outlives the work dir. Return the commit."""
    args = (tree.workdir, tree.gitdir, tree.shadow, id, comment)
    return sha(_text(_ask(host, "snapshot", "snapshot", *args, what=f"cannot snapshot {tree.workdir}")).strip())


def snapshot_list(host: Host, tree: Tree) -> list[Snapshot]:
    """Return all snapshots, oldest first."""
    lines = _text(_ask(host, "snapshot", "snapshots", tree.shadow)).splitlines()
    rows = ([*line.split("\0", 3), "", "", ""][:4] for line in lines)
    return [Snapshot(id, state, count(time or "0"), comment) for id, state, time, comment in rows]


def snapshot_restore(host: Host, tree: Tree, id: str, auto: str) -> None:
    """Restore files, index and branch, after saving the present state as the snapshot `auto`."""
    args = (tree.workdir, tree.gitdir, tree.common, tree.shadow, id, auto)
    _ask(host, "snapshot", "restore", *args, what=f"cannot restore {id}")


def snapshot_delete(host: Host, tree: Tree, id: str) -> None:
    _ask(host, "snapshot", "forget", tree.shadow, id)


# --- what the user's repository keeps


def drop(host: Host, common: str, id: str) -> None:
    """Delete the ref that protects what an agent's work tree borrowed."""
    _ask(host, "trash", "drop", common, held(id))


def unique(host: Host, common: str, rev: str, branch: str = "") -> int:
    """Count the commits of `rev` that no branch except `branch`, no tag and no remote branch contains."""
    return count(_text(_ask(host, "trash", "unique", common, rev, branch)).strip())


# --- running the shell files


def _where(tree: Tree) -> tuple[str, str, str, str]:
    """Return the arguments of every verb that reads an agent's work."""
    return tree.workdir, tree.gitdir, tree.shadow, tree.branch


def _haves(host: Host, gitdir: str, want: str = "", objects: str = "", format: str = "", common: str = "") -> list[str]:
    """Return the commits that a pack for `gitdir` may build on. If `want` is among them, nothing needs to be sent."""
    commits = _text(_ask(host, "seed", "haves", gitdir, want, objects, format, common)).split()
    return [commit for commit in commits if _is_commit(commit)][:HAVES_MAX]


def _argv(host: Host, part: str, verb: str, args: Iterable[str]) -> list[str]:
    return ["sh", "-c", shell_file(f"git-{part}"), f"muster-git-{part}", host.home, verb, *args]


def _run(
    host: Host, part: str, verb: str, *args: str, input: bytes | IO[bytes] = b""
) -> subprocess.CompletedProcess[bytes]:
    return host.run(_argv(host, part, verb, args), input=input)


def _ask(host: Host, part: str, verb: str, *args: str, input: bytes | IO[bytes] = b"", what: str = "") -> bytes:
    return _output(_run(host, part, verb, *args, input=input), what or f"git {verb}")


def _send(
    source: Host,
    gitdir: str,
    wants: list[str],
    haves: list[str],
    host: Host,
    part: str,
    verb: str,
    *args: str,
    history: bool = False,
) -> bytes:
    """Run a verb that reads a pack of `wants` from standard input, streamed from `source`.

    With `history` it receives whole packs of the source as they are. Their indexes are not checked, so the source must be
    trusted.
    """
    if not wants:
        return _ask(host, part, verb, "", *args)
    sends = "history" if history else "pack"
    revs = [gitdir, *wants, *(f"^{have}" for have in haves)]
    # Nothing is written to the packer's stdin. It closes when this process dies, and then the packer ends.
    packing = source.stream(
        _argv(source, "seed", sends, ["send", *revs]), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert packing.stdin and packing.stdout
    try:
        done = _run(host, part, verb, sends, *args, input=packing.stdout)
    finally:
        packing.stdout.close()
        packing.stdin.close()
        code = packing.wait()
    if done.returncode and done.returncode != Refused.exit_code and code > 0:
        _ask(source, "seed", sends, "explain", *revs, what=f"cannot pack commits of {gitdir}")
    return _output(done, f"git {verb}")


def _output(done: subprocess.CompletedProcess[bytes], what: str) -> bytes:
    if not done.returncode:
        return done.stdout
    if done.returncode == Refused.exit_code:
        text = done.stderr.decode("utf-8", "replace").rpartition("refused: ")[2]
        why, _, hint = text.strip().partition("\nhint: ")
        raise Refused(f"{what}: {why}" if what else why, hint.strip())
    if done.returncode == NotFound.exit_code:
        raise NotFound(done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2] or what)
    raise CommandFailed(what, done.returncode, done.stderr)


def _state(output: bytes) -> State:
    line, _, nested = output.partition(b"\n")
    head, state = _pair(_text(line))
    return State(head, state, tuple(_text(nested).split("\0")[:-1]))


def _text(output: bytes) -> str:
    return os.fsdecode(output)


def count(text: str) -> int:
    """Parse a number in a host's answer. Raises `MusterError` if it is not one."""
    if not (text.isascii() and text.isdigit()) or len(text) > 18:
        raise MusterError(f"git gave {text[:80]!r} where a number was expected")
    return int(text)


def _pair(text: str) -> tuple[str, str]:
    first, _, second = text.strip().partition(" ")
    return sha(first), sha(second)


def sha(text: str) -> str:
    """Check that a host's answer is a commit id, and return it. Raises `MusterError` otherwise."""
    if not _is_commit(text):
        raise MusterError(f"git gave {text[:80]!r} where a commit was expected")
    return text


def _is_commit(text: str) -> bool:
    return len(text) in (40, 64) and set(text) <= set("0123456789abcdef")


def _check(*commits: str) -> None:
    for commit in commits:
        sha(commit)
