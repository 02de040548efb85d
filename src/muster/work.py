"""The work of agents: counts, diff, pull, push, snapshots."""

from __future__ import annotations

import contextlib
import fnmatch
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import IO, Any

from . import git
from .errors import MusterError, NotFound, Refused, UsageError
from .host import CommandFailed, Found, Host, shell_file
from .model import Address, Agent, Status
from .workdirs import commit, tree

FILES_CAP = 1024 * 1024 * 1024


def counts(host_of: Callable[[Address], Host], statuses: Iterable[Status]) -> dict[tuple[str, str], tuple[int, int]]:
    """Return the commits ahead and the changed files of many agents, by host and id, in one round trip per host."""
    by_place: dict[str, list[Status]] = {}
    for status in statuses:
        if status.agent.base and status.agent.workdir:
            by_place.setdefault(status.place, []).append(status)
    found = {}
    for group in by_place.values():
        host = host_of(group[0].address)
        for key, info in git.info(host, {status.agent.id: tree(status.agent) for status in group}).items():
            if info.ahead is not None:
                found[group[0].place, key] = (info.ahead, info.dirty or 0)
    return found


def diff(one: Found, *, stat: bool, name_only: bool, committed: bool) -> bytes:
    _comparable(one.agent)
    return git.diff(one.host, tree(one.agent), stat=stat, name_only=name_only, committed_only=committed)


def patch(one: Found) -> AbstractContextManager[IO[bytes]]:
    _comparable(one.agent)
    return git.diff_stream(one.host, tree(one.agent))


def pull(
    local: Host,
    cwd: str,
    one: Found,
    adopt: Callable[[str], Agent],
    *,
    how: str,
    uncommitted: bool,
    force: bool,
    to: str,
    empty: bool = True,
) -> dict[str, Any]:
    """Fetch an agent's commits, and integrate them into the checked-out branch if `how` says so.

    Returns values, not sentences. `merged` says whether the checkout moved, `from` and `to` where its HEAD was
    before and is now; both are None without `how`. `dirty` counts the files that were left behind uncommitted.
    Without `empty`, no branch is made for an agent that has committed nothing. `adopt` keeps a record of an agent that this
    machine has none of, with the repository that the user named for it.
    """
    agent = one.agent
    if agent.mode == "in-place":
        return {"branch": None, "commits": 0}
    if not agent.common:
        return _pull_folder(local, cwd, one, how, to)
    home = _home(local, cwd, one, to)
    if not one.status.bound:
        agent = adopt(home.top or home.common)
    at = tree(agent)
    info = git.info(one.host, {0: at})[0]
    base = "" if empty else agent.base
    fetched = git.fetch(one.host, at, local, home.common, f"refs/heads/{agent.branch}", force=force, base=base)
    branch, tip = agent.branch, fetched.tip
    if uncommitted:
        branch = f"{agent.branch}-wip"
        tip = git.fetch(one.host, at, local, home.common, f"refs/heads/{branch}", uncommitted=True, force=True).tip
    result: dict[str, Any] = {
        "branch": branch,
        "tip": tip,
        "commits": info.ahead or 0,
        "dirty": info.dirty,
        "repo": home.top or home.common,
        "head": None,
        "merged": False,
        "from": None,
        "to": None,
        "planted": list(fetched.planted),
    }
    if how:
        if not home.top:
            raise UsageError(f"{home.common} is bare, nothing is checked out", f"leave --{how} out")
        message = f"Merge the work of {agent.name}" if how == "merge" else f"{agent.name}: all changes"
        before, after = git.integrate(local, home.top, f"refs/heads/{branch}", how, message)
        result |= {"head": after, "merged": before != after, "from": before, "to": after}
    return result


def uncommitted_files(one: Found) -> list[str]:
    """Return the files of an agent's work dir that differ from its last commit, new ones included."""
    return git.uncommitted_files(one.host, tree(one.agent)) if one.agent.common else []


def pull_files(cwd: str, one: Found, patterns: list[str], to: str) -> list[str]:
    """Copy plain files of the work dir; links, devices and paths that lead outside are not followed."""
    import tarfile

    from . import store

    for pattern in patterns:
        if pattern.startswith("/") or ".." in pattern.split("/"):
            raise UsageError(f"--files {pattern}: patterns are inside the work dir")
    target = os.path.join(cwd, to or one.agent.name)
    argv = ["sh", "-c", shell_file("files"), "muster-files", one.host.home, one.agent.workdir, *patterns]
    sending = one.host.stream(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    assert sending.stdout
    written, unasked, size = [], [], 0
    try:
        with store.members_of(sending.stdout, "r|") as members:
            for member in members:
                parts = member.name.removeprefix("./").split("/")
                content = members.extractfile(member) if store.plain(member) else None
                if content is None or not any(_asked_for(parts, pattern) for pattern in patterns):
                    unasked.append(member.name)
                    continue
                size += member.size
                if size > FILES_CAP:
                    raise Refused("the files are larger than 1 GB", "name fewer of them")
                _write(os.path.join(target, *parts), content, target)
                written.append("/".join(parts))
    except (tarfile.TarError, ValueError, OverflowError):
        if written:
            raise MusterError("the transfer was cut off", "pull again") from None
    finally:
        sending.stdout.close()
        code = sending.wait()
    if not written:
        raise NotFound(
            f"{one.status.address} has no file that matches {' '.join(patterns)}",
            f"muster exec {one.status.address} -- ls",
        )
    if code:
        raise MusterError("the transfer was cut off", "pull again")
    if unasked:
        raise Refused(
            f"wrote {len(written)} files; {one.status.address} also sent what was not asked for, which was not written: "
            + ", ".join(repr(name[:80]) for name in unasked[:5]),
            f"do not trust this host; muster explain {one.status.address}",
        )
    return sorted(written)


def push(
    local: Host, cwd: str, one: Found, ref: str, change: Callable[[Callable[[Agent], Agent]], Agent], *, merge: bool
) -> dict[str, Any]:
    """Bring a commit of the user's repository to the agent's branch and files. `change` changes the agent's record."""
    agent = one.agent
    if agent.mode == "in-place":
        return {"branch": None, "head": None}
    if not agent.common:
        raise Refused("a copy has no branch to push to", f"muster exec {agent.name} -- COMMAND changes its files")
    home = _home(local, cwd, one, "")
    wanted = commit(local, home, ref)
    head = git.push(local, home.common, wanted, one.host, tree(agent), merge=merge)
    change(lambda agent: agent._replace(base=wanted))
    return {"branch": agent.branch, "head": head, "pushed": wanted}


def snapshots(one: Found) -> list[dict[str, Any]]:
    return [
        {"snapshot": item.id, "t": item.time, "head": item.state, "comment": item.comment}
        for item in git.snapshot_list(one.host, tree(one.agent))
    ]


def snapshot(one: Found, action: str, name: str) -> tuple[str, str]:
    """Create, restore or delete a snapshot. Return its name, and for `restore` the name of the snapshot of the state before."""
    _comparable(one.agent)
    at = tree(one.agent)
    now = time.time()
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now)) + f"-{int(now * 1000) % 1000:03d}"
    if name and (not all(char.isalnum() or char in "-_." for char in name) or name.startswith((".", "-"))):
        raise UsageError(f"{name!r} is not a name for a snapshot", "use letters, digits, - and _")
    if action == "create":
        name = name or stamp
        if name in [item.id for item in git.snapshot_list(one.host, at)]:
            raise Refused(f"there is a snapshot {name} already", "use another name, or delete it first")
        git.snapshot_create(one.host, at, name)
        return name, ""
    if name not in [item.id for item in git.snapshot_list(one.host, at)]:
        raise NotFound(f"{one.agent.name} has no snapshot {name!r}", f"muster snapshot list {one.agent.name}")
    if action == "delete":
        git.snapshot_delete(one.host, at, name)
        return name, ""
    before = f"before-{stamp}"
    git.snapshot_restore(one.host, at, name, before)
    return name, before


def steps(one: Found) -> list[tuple[float, dict[str, Any]]]:
    """Return the commits and the uncommitted work of an agent as playbook steps with their times."""
    if not one.agent.common:
        changed = git.diff(one.host, tree(one.agent), binary=True) if one.agent.base else b""
        return [(time.time(), {"patch": changed.decode("utf-8", "surrogateescape")})] if changed else []
    at = tree(one.agent)
    state = git.harvest(one.host, at)

    def ask(*argv: str) -> str:
        quiet = ("env", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "git", f"--git-dir={at.shadow}")
        done = one.host.run([*quiet, *argv])
        if done.returncode:
            raise CommandFailed("cannot read its commits", done.returncode, done.stderr)
        return done.stdout.decode("utf-8", "surrogateescape")

    plain = ("--binary", "--no-ext-diff", "--no-textconv", "--no-renames")
    found: list[tuple[float, dict[str, Any]]] = []
    for line in ask(
        "log", "--reverse", "--first-parent", "--format=%H %ct", f"{one.agent.base}..{state.head}"
    ).splitlines():
        name, _, seconds = line.partition(" ")
        commit, t = git.sha(name), float(git.count(seconds))
        found.append((t, {"patch": ask("diff", *plain, f"{commit}^", commit)}))
        found.append((t, {"commit": ask("log", "-1", "--format=%B", commit).strip() or "no message"}))
    # Leave out what the user had not committed at creation, because that is not the agent's work.
    began = ask("for-each-ref", "--format=%(objectname)", "refs/muster/start").strip() or one.agent.base
    touched = [path for path in ask("diff", *plain, "--name-only", "-z", began, state.state).split("\0") if path]
    rest = ask("diff", *plain, state.head, state.state, "--", *touched) if touched else ""
    if rest:
        found.append((time.time(), {"patch": rest}))
    return [(t, step) for t, step in found if step.get("patch", "x")]


def _pull_folder(local: Host, cwd: str, one: Found, how: str, to: str) -> dict[str, Any]:
    """Pull from a copy, which has no branch: its changes are a patch for the folder it was made from."""
    changed = git.diff(one.host, tree(one.agent), name_only=True).decode("utf-8", "replace").splitlines()
    _known(one, to)
    folder = os.path.join(cwd, to) if to else one.agent.repo
    result: dict[str, Any] = {"branch": None, "changed": changed, "commits": 0, "merged": False, "folder": folder}
    if how and changed:
        # Take the changed paths from the patch, because the host may have listed others.
        result["changed"] = git.patch(local, folder, git.diff(one.host, tree(one.agent), binary=True))
        result["merged"] = True
    return result


def _known(one: Found, to: str) -> None:
    """Refuse to guess the repository of an agent without a record on this machine."""
    if not to and not one.status.bound:
        raise Refused(
            f"this machine has no record of the repository that {one.status.address} came from",
            f"name it: muster pull {one.status.address} --to REPOSITORY",
        )


def _home(local: Host, cwd: str, one: Found, to: str) -> git.Repo:
    """Return the repository on this machine that receives an agent's commits."""
    _known(one, to)
    agent = one.agent
    path = os.path.join(cwd, to) if to else agent.repo or cwd
    repo = git.find(local, path) if os.path.isdir(path) else None
    if repo is None:
        raise NotFound(f"there is no repository at {path}", f"muster pull {agent.name} --to REPOSITORY")
    if not to and not agent.repo and agent.base:
        # The agent was cloned from a URL, so the current repository may be another project.
        asked = ["git", f"--git-dir={repo.common}", "cat-file", "-e", f"{agent.base}^{{commit}}"]
        if local.run(asked).returncode:
            raise Refused(
                f"{path} has not the commit that {agent.name} began with",
                f"go to a clone of {agent.origin or 'its repository'}, or: muster pull {agent.name} --to REPOSITORY",
            )
    return repo


def _comparable(agent: Agent) -> None:
    if not agent.base:
        raise MusterError(
            f"{agent.name} works in a folder without git, nothing can be compared", "use git there, or --mode copy"
        )


def _asked_for(parts: list[str], pattern: str) -> bool:
    """Return whether the pattern selects a file that a host sent, or a folder above it. Files of git never count."""
    if any(part in ("", ".", "..") or _is_git(part) for part in parts):
        return False
    wanted = [part for part in re.sub(r"\\(.)", r"[\1]", pattern).split("/") if part not in ("", ".")]
    return len(wanted) <= len(parts) and all(
        fnmatch.fnmatchcase(part, want) and (part[0] != "." or want[0] in ".[")
        for part, want in zip(parts, wanted, strict=False)
    )


def _is_git(part: str) -> bool:
    """Return whether some file system takes this name for `.git`, ignoring case, invisible characters or trailing ones."""
    visible = re.sub("[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]", "", part)
    return visible.partition(":")[0].rstrip(". ").lower() in (".git", "git~1")


def _write(path: str, content: Any, within: str) -> None:
    import shutil

    folder = os.path.dirname(path)
    real, root = os.path.realpath(folder), os.path.realpath(within)
    if real != root and not real.startswith(root + os.sep):
        raise Refused(f"{folder} leads out of {within}", "choose another folder with --to")
    temporary = f"{path}.{os.getpid()}.part"
    try:
        os.makedirs(folder, exist_ok=True)
        with open(temporary, "xb") as file:
            shutil.copyfileobj(content, file)
        os.replace(temporary, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise MusterError(f"cannot write {path}: {error.strerror}", "choose another folder with --to") from error
