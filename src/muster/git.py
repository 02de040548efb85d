"""Everything muster asks of git: carry uncommitted work, make work dirs, bring commits home, put work away.

Plain functions on a host; each is one run of a shell file there, and commits travel as packs through `Host.run`.
An agent's repository is hostile input: its work tree is only looked at with a git dir of muster's own (the
*shadow*) and a copy of its index, so no hook, filter or setting of the agent runs. This module knows neither
where a host is nor what an agent is.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from typing import IO, NamedTuple, TypeVar

from .errors import MusterError, NotFound, Refused
from .host import SH, CommandFailed, Host, output, shell_file

Key = TypeVar("Key")
#: Commits that a host says it has; more do not fit into a command line.
HAVES_MAX = 400


class Repo(NamedTuple):
    """A repository as its user sees it from one folder."""

    top: str
    """The work tree; empty for a bare repository."""
    gitdir: str
    common: str
    """The git dir all its work trees share."""
    head: str
    """The commit checked out; empty before the first one."""
    branch: str
    """Empty when HEAD is detached."""
    prefix: str
    """The folder asked about, below `top`; ends in a slash unless empty."""
    bare: bool
    format: str
    """sha1 or sha256."""
    sparse: bool
    partial: bool
    shallow: str
    """The commits its history is cut off at, one a line."""
    exclude: str
    """Ignore patterns that are in no .gitignore."""
    submodules: tuple[str, ...]
    """The paths of those that are checked out."""
    name: str
    email: str


class State(NamedTuple):
    """A work tree as commits: `head`, and `state`, a commit of all that is not committed (or `head` itself)."""

    head: str
    state: str
    nested: tuple[str, ...] = ()
    """Repositories inside that git does not track, left out."""


class Tree(NamedTuple):
    """An agent's work tree, as recorded when it was made; nothing in it is asked of the agent again."""

    workdir: str
    shadow: str
    gitdir: str = ""
    """Empty for a folder that is only known to its shadow (mode `copy`)."""
    common: str = ""
    branch: str = ""


class Info(NamedTuple):
    """None is unknown: the work dir is gone, or its git is broken. A worktree that is gone has its commits still."""

    ahead: int | None
    dirty: int | None
    head: str


class Fetched(NamedTuple):
    tip: str
    old: str
    """What the ref was before; empty when it is new."""
    head: str
    """Where the agent is; not `tip` when it works on another branch."""
    planted: tuple[str, ...] = ()
    """Hooks, and settings that run programs, which the agent added to its own git directory. Nothing of them is run."""


class Snapshot(NamedTuple):
    id: str
    state: str
    time: int
    comment: str


# --- a repository, and what is not committed in it


def find(host: Host, path: str) -> Repo | None:
    """The repository `path` is in, or None."""
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
    """Commit all that is not committed in the user's work tree, beside its refs; index, tree and stash stay untouched.

    Raises `Refused` before the first commit, in the middle of a merge or rebase, and for dirty submodules.
    """
    return _state(_ask(host, "look", "capture", top, what=f"cannot read the work tree {top}"))


def harvest(host: Host, tree: Tree) -> State:
    """The same for an agent's work tree, into its shadow; unmerged files are taken as they are."""
    return _state(_ask(host, "look", "harvest", *_where(tree), what="cannot read its work"))


# --- work dirs


def seed_worktree(
    host: Host, repo: Repo, workdir: str, shadow: str, own: str, id: str, branch: str, base: str, state: str
) -> Tree:
    """A work tree on a new branch at `base`, with `state` (equal to `base` when clean) in it.

    Its git directory, `own`, belongs to the agent and borrows the objects of the user's repository, where only a ref of
    muster's own is written. Raises `Refused` when the branch cannot be brought back later or the folder is not empty;
    then nothing is left behind.
    """
    _whole(base, state)
    args = (repo.top or repo.common, repo.common, repo.gitdir, workdir, shadow, own, held(id), branch, base, state)
    _ask(host, "seed", "worktree", *args, repo.format, repo.exclude, what=f"cannot make the work tree {workdir}")
    return Tree(workdir, shadow, own, own, branch)


def held(id: str) -> str:
    """The ref in the user's repository that keeps alive what an agent's work tree borrows."""
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
    """A repository of its own on `host`, fed by packs from `source`; `key` names the cache of this origin there.

    `own` says that `repo` is the user's, not an agent's: if it lies on `host`, a new cache takes over its objects as they are.

    Raises `Refused` for a partial clone and for checked-out submodules.
    """
    _whole(base, state)
    if repo.partial:
        raise Refused(f"{repo.top} is a partial clone, which lacks objects to send", "use --mode worktree")
    if repo.submodules:
        names = ", ".join(repo.submodules)
        raise Refused(f"submodules ({names}) do not travel to a clone", "use --mode worktree")
    key = key if repo.format == "sha1" else f"{key}-{repo.format}"
    near = own and not source.name and not host.name and not repo.shallow
    haves = _haves(host, f"@{key}", f"{base} {state}", format=repo.format, common=repo.common if near else "")
    if repo.shallow:  # what a cut-off history has in common with another is not sure to be whole
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
    """Take the folder as it is now, ignored files too, as the baseline of all later diffs."""
    _ask(host, "seed", "baseline", workdir, shadow, what=f"cannot take a baseline of {workdir}")
    return Tree(workdir, shadow)


def seed_in_place(host: Host, repo: Repo, shadow: str) -> Tree:
    """A shadow for the user's own work tree, which stays as it is."""
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
    """From the base to the work tree as it is, untracked files included; `binary` makes it fit for `patch`."""
    wanted = {"--stat": stat, "--name-only": name_only, "--color=always": color}
    flags = [flag for flag, on in wanted.items() if on] + ["--binary", "--full-index", "--no-renames"] * binary
    only = "1" if committed_only else ""
    return _ask(host, "work", "diff", *_where(tree), only, *flags, what="cannot diff")


def diff_stream(host: Host, tree: Tree) -> AbstractContextManager[IO[bytes]]:
    """The same, as it comes."""
    return output(host, _argv(host, "work", "diff", [*_where(tree), ""]), "cannot diff")


def info(host: Host, trees: Mapping[Key, Tree]) -> dict[Key, Info]:
    """Commits since the base and dirty files of many agents, in one round trip."""
    lines = [part for tree in trees.values() for part in _where(tree)]
    text = "".join(line.replace("\\", "\\\\").replace("\n", "\\n") + "\n" for line in lines)
    told = dict.fromkeys(trees, Info(None, None, ""))
    keys = list(trees)
    for line in _text(_ask(host, "work", "info", input=os.fsencode(text))).splitlines():
        try:
            number, ahead, dirty, head = line.split(" ")
            told[keys[count(number)]] = Info(count(ahead), None if dirty == "-" else count(dirty), sha(head))
        except (ValueError, IndexError) as error:
            raise MusterError(f"git gave {line[:80]!r} where a count of changes was expected") from error
    return told


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
    """Bring the agent's branch into the repository at `common` on `to`, as `ref` (or only its objects).

    With `uncommitted` the tip is one more commit, of what is not committed. A ref that does not exist is not made for
    the commit `base`. Raises `Refused` when `ref` is checked
    out somewhere, or has commits the agent lacks and `force` is off.
    """
    asked = _ask(host, "work", "tip", *_where(tree), "1" if uncommitted else "")
    line, _, planted = _text(asked).partition("\n")
    tip, head = _pair(line)
    old = bring(host, tree.shadow, to, common, tip, ref, force=force, base=base)
    return Fetched(tip, old, head, tuple(name[:200] for name in planted.splitlines()[:40]))


def bring(
    host: Host, gitdir: str, to: Host, common: str, commit: str, ref: str = "", *, force: bool = False, base: str = ""
) -> str:
    """Copy `commit` and all it needs between object stores and set `ref` to it; returns what `ref` was."""
    _whole(commit)
    haves = _haves(to, common, commit)
    wants = [] if commit in haves else [commit]
    args = (common, ref, commit, "1" if force else "", base)
    return _text(_send(host, gitdir, wants, haves, to, "work", "land", *args)).strip()


def push(source: Host, common: str, commit: str, host: Host, tree: Tree, *, merge: bool = False) -> str:
    """Bring `commit` of the user's repository to the agent's branch, index and files; returns its new HEAD.

    The commit becomes the agent's base. Raises `Refused` when its work has diverged (unless `merge`), conflicts,
    or uncommitted changes would be overwritten; then nothing has moved.
    """
    _whole(commit)
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
    """Merge, squash, or rebase (replay on top) `ref` into what is checked out at `top`.

    Returns HEAD before and after; they are equal when there was nothing to integrate.

    All is computed before the tree is touched: a conflict raises `Refused` naming the files, and nothing has changed.
    """
    if how not in ("merge", "rebase", "squash"):
        raise ValueError(how)
    return _pair(_text(_ask(host, "work", "integrate", top, ref, how, message, what=f"cannot {how} {ref}")))


def rename(host: Host, tree: Tree, branch: str) -> Tree:
    """Give the agent's branch another name. Raises `Refused` when that is taken."""
    if tree.gitdir and tree.branch != branch:
        _ask(host, "work", "rename", tree.gitdir, tree.branch, branch, what=f"cannot rename {tree.branch}")
    return tree._replace(branch=branch if tree.gitdir else tree.branch)


def patch(host: Host, folder: str, changes: bytes | IO[bytes]) -> list[str]:
    """Apply a binary diff to a folder that need not be a repository, wholly or (`Refused`) not at all.

    Returns the paths that it changed, as `git apply` read them.
    """
    told = _ask(host, "work", "patch", folder, input=changes, what=f"cannot change {folder}")
    return [
        line.partition(b"\t")[2].partition(b"\t")[2].decode("utf-8", "replace") for line in told.split(b"\0") if line
    ]


# --- snapshots


def snapshot_create(host: Host, tree: Tree, id: str, comment: str = "") -> str:
    """Keep the work tree as it is, in the shadow: it outlives the work dir. Returns the commit."""
    args = (tree.workdir, tree.gitdir, tree.shadow, id, comment)
    return sha(_text(_ask(host, "snapshot", "snapshot", *args, what=f"cannot snapshot {tree.workdir}")).strip())


def snapshot_list(host: Host, tree: Tree) -> list[Snapshot]:
    """Oldest first."""
    lines = _text(_ask(host, "snapshot", "snapshots", tree.shadow)).splitlines()
    rows = ([*line.split("\0", 3), "", "", ""][:4] for line in lines)
    return [Snapshot(id, state, count(time or "0"), comment) for id, state, time, comment in rows]


def snapshot_restore(host: Host, tree: Tree, id: str, auto: str) -> None:
    """Make files, index and branch what they were; first keep what is there now as the snapshot `auto`."""
    args = (tree.workdir, tree.gitdir, tree.common, tree.shadow, id, auto)
    _ask(host, "snapshot", "restore", *args, what=f"cannot restore {id}")


def snapshot_delete(host: Host, tree: Tree, id: str) -> None:
    _ask(host, "snapshot", "forget", tree.shadow, id)


# --- what the user's repository keeps


def drop(host: Host, common: str, id: str) -> None:
    """Stop keeping alive what the work tree of an agent borrowed."""
    _ask(host, "trash", "drop", common, held(id))


def unique(host: Host, common: str, rev: str, branch: str = "") -> int:
    """How many commits of `rev` no branch other than `branch`, no tag and no remote branch has."""
    return count(_text(_ask(host, "trash", "unique", common, rev, branch)).strip())


# --- how it is asked


def _where(tree: Tree) -> tuple[str, str, str, str]:
    """What looks at an agent's work take."""
    return tree.workdir, tree.gitdir, tree.shadow, tree.branch


def _haves(host: Host, gitdir: str, want: str = "", objects: str = "", format: str = "", common: str = "") -> list[str]:
    """Commits a pack for `gitdir` may build on; `want` among them says that nothing need be sent."""
    told = _text(_ask(host, "seed", "haves", gitdir, want, objects, format, common)).split()
    return [have for have in told if _is_commit(have)][:HAVES_MAX]


_scripts: dict[str, str] = {}


def _argv(host: Host, part: str, verb: str, args: Iterable[str]) -> list[str]:
    if part not in _scripts:
        with open(os.path.join(SH, f"git-{part}.sh"), encoding="utf-8") as file:
            _scripts[part] = f"{shell_file('git')}\n{file.read()}"
    return ["sh", "-c", _scripts[part], f"muster-git-{part}", host.home, verb, *args]


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
    """Run a verb that takes a pack of `wants` on its standard input, streamed from `source`.

    With `history` it takes whole packs of the source as they are. Their indexes are not checked, so the source must be trusted.
    """
    if not wants:
        return _ask(host, part, verb, "", *args)
    sends = "history" if history else "pack"
    revs = [gitdir, *wants, *(f"^{have}" for have in haves)]
    # Nothing is written to its stdin: that it is open says that this process lives, and the packer ends when it does not.
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
    """Return a number that a host told, or raise `MusterError` if it is none."""
    if not (text.isascii() and text.isdigit()) or len(text) > 18:
        raise MusterError(f"git gave {text[:80]!r} where a number was expected")
    return int(text)


def _pair(text: str) -> tuple[str, str]:
    first, _, second = text.strip().partition(" ")
    return sha(first), sha(second)


def sha(text: str) -> str:
    """A host may answer anything: only the name of a commit is one."""
    if not _is_commit(text):
        raise MusterError(f"git gave {text[:80]!r} where a commit was expected")
    return text


def _is_commit(text: str) -> bool:
    return len(text) in (40, 64) and set(text) <= set("0123456789abcdef")


def _whole(*commits: str) -> None:
    for commit in commits:
        sha(commit)
