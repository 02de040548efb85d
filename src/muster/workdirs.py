"""Work dirs: where an agent's files come from, and how they get to where it runs.

| mode | what it is |
|---|---|
| worktree | a work tree on a new branch; its own git directory borrows the objects of your repository |
| mirror | its own clone, fed by packs; commits come back only by `pull` |
| copy | a copy of the folder, with a private baseline outside of it |
| in-place | the folder itself |

Your uncommitted work comes along, and your own tree and index stay as they are.
"""

from __future__ import annotations

import glob
import os
import re
import subprocess
from collections.abc import Callable
from typing import Any, NamedTuple

from . import git
from .errors import MusterError, NotFound, Refused, UsageError
from .host import CommandFailed, Found, Host, checked, place_of, script, shell_file
from .model import MODES, Agent, Spec


class Here(NamedTuple):
    """The user's machine, and how to inspect the source of a work dir there."""

    local: Host
    cwd: str
    repository: Callable[[str], git.Repo | None]
    """Return the repository that a folder is in."""
    state: Callable[[str], git.State]
    """Return the state of a work tree, uncommitted work included."""
    agent: Callable[[str], Found]
    """Return the agent of that name; raises `NotFound`."""


class Plan(NamedTuple):
    """Where the work comes from, decided before anything is created."""

    mode: str
    host: Host
    """The host of the source."""
    folder: str = ""
    repo: git.Repo | None = None
    base: str = ""
    state: str = ""
    branch: str = ""
    url: str = ""
    home: str = ""
    """The repository or folder on this machine that `pull` writes to."""
    prefix: str = ""
    nested: tuple[str, ...] = ()
    own: bool = False
    """Whether `repo` belongs to the user; that of another agent is hostile input."""

    @property
    def shared(self) -> str:
        """The user's git directory that an agent on this machine can reach through its work dir; empty if there is none."""
        return self.repo.common if self.repo and (self.own or self.mode in ("worktree", "in-place")) else ""


def tree(agent: Agent) -> git.Tree:
    """Return what the git functions need to know about an agent."""
    return git.Tree(agent.workdir, f"{agent.folder}/git", agent.gitdir, agent.common, agent.branch)


def plan(here: Here, host: Host, spec: Spec) -> Plan:
    """Decide what to create, or raise. Nothing is written except objects in the source repository."""
    if spec.mode and spec.mode not in MODES:
        raise UsageError(f"there is no mode {spec.mode!r}", f"known: {', '.join(MODES)}")
    if spec.mode == "worktree" and not host.local:
        raise UsageError("a worktree shares the repository on this machine", "use --mode mirror on a host")
    source = spec.source
    if source and not os.path.isdir(os.path.join(here.cwd, source)):
        if "://" in source or (":" in source and not source.startswith("-")):
            return _from_url(host, spec)
        return _from_agent(here, host, spec, _source_agent(here, source))
    folder = os.path.realpath(os.path.join(here.cwd, source or "."))
    repo = here.repository(folder)
    mode = spec.mode or ("copy" if repo is None else "mirror" if not host.local else "worktree")
    if mode == "in-place":
        if not host.local:
            raise UsageError("in-place is for folders of this machine", "use --mode mirror or copy on a host")
        return Plan(mode, here.local, folder, repo, repo.head if repo else "", home=folder)
    if mode == "copy":
        _not_inside(here.local.home, folder)
        return Plan(mode, here.local, folder, None, home=folder)
    if repo is None:
        raise UsageError(f"{folder} is not in a git repository", f"--mode copy works without one; {mode} does not")
    if not repo.head:
        raise Refused(
            f"{repo.top or repo.common} has no commit yet, so there is nothing to branch from",
            "commit first (git commit --allow-empty -m start), or use --mode copy",
        )
    base, branch = _branch(here.local, repo, spec)
    state = base
    nested: tuple[str, ...] = ()
    if not spec.clean and base == repo.head and repo.top:
        captured = here.state(repo.top)
        state, nested = captured.state, captured.nested
    return Plan(
        mode,
        here.local,
        folder,
        repo,
        base,
        state,
        branch,
        home=repo.top or repo.common,
        prefix=repo.prefix,
        nested=nested,
        own=True,
    )


def lay(host: Host, agent: Agent, plan: Plan) -> Agent:
    """Create the work dir. On failure, nothing is left behind."""
    workdir = agent.folder.rpartition("/agents/")[0] + f"/work/{agent.id}"
    shadow = f"{agent.folder}/git"
    if plan.mode == "in-place":
        place = git.seed_in_place(host, plan.repo, shadow) if plan.repo and plan.repo.head else None
        return agent._replace(
            workdir=plan.folder,
            cwd=plan.folder,
            gitdir=place.gitdir if place else "",
            common=place.common if place else "",
            branch=place.branch if place else "",
        )
    if plan.url:
        made = _clone(host, plan, workdir, shadow, agent)
    elif plan.mode == "copy":
        _copy(plan.host, plan.folder, host, workdir)
        made = git.seed_copy(host, workdir, shadow)
    else:
        assert plan.repo
        if plan.mode == "worktree":
            own = f"{agent.folder}/repo"
            made = git.seed_worktree(
                host, plan.repo, workdir, shadow, own, agent.id, agent.branch, plan.base, plan.state
            )
        else:
            key = _key(plan)
            places = (plan.host, plan.repo, host, key, workdir, shadow)
            made = git.seed_mirror(*places, agent.branch, plan.base, plan.state, own=plan.own)
    base = agent.base or git.info(host, {0: made})[0].head
    cwd = os.path.join(workdir, plan.prefix).rstrip("/")
    return agent._replace(workdir=workdir, cwd=cwd, gitdir=made.gitdir, common=made.common, base=base)


def furnish(host: Host, agent: Agent, plan: Plan, wanted: dict[str, Any]) -> None:
    """Apply `[workdir]`: copy untracked files, link shared folders, run the set-up command once."""
    if not wanted or plan.mode == "in-place":
        return
    source = plan.repo.top if plan.repo and plan.repo.top else plan.folder
    copies = _matches(source, wanted.get("copy", []))
    if copies:
        argv = ["tar", "-cf", "-", "-C", source, "--", *copies]
        _pipe(plan.host, argv, host, agent.workdir)
    links = []
    for path in _matches(source, wanted.get("link", [])):
        if not host.local:
            raise Refused(f"[workdir] link = {path!r} cannot reach another host", "use copy, or leave it out")
        path = path.rstrip("/")
        target = os.path.join(agent.workdir, path)
        if not os.path.lexists(target):
            os.makedirs(os.path.dirname(target), exist_ok=True)
            os.symlink(os.path.join(source, path), target)
            links.append(path)
    if links:
        _exclude(agent, links)
    if wanted.get("setup"):
        done = host.run(["sh", "-c", 'cd "$1" && exec sh -c "$2"', "setup", agent.cwd, str(wanted["setup"])])
        if done.returncode:
            raise CommandFailed("[workdir] setup", done.returncode, done.stderr, "mend the command, then create again")


def _exclude(agent: Agent, links: list[str]) -> None:
    """Exclude links that muster made from the agent's changes, in the agent's git and in muster's own.

    A pattern such as `cache/` in .gitignore matches folders only, so it does not cover a link to one.
    """
    lines = "".join("/" + re.sub(r"([\\*?\[ ])", r"\\\1", path) + "\n" for path in links if "\n" not in path)
    for gitdir in filter(None, (agent.common, f"{agent.folder}/git")):
        folder = os.path.join(gitdir, "info")
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "exclude"), "a", errors="surrogateescape") as file:
            file.write("\n" + lines)


def take_back(host: Host, agent: Agent) -> None:
    """Remove the work dir of an agent that never started. Everything in it is a copy."""
    unregister(host, agent)
    checked(host, "trash", "scrap", agent.id)


def unregister(host: Host, agent: Agent) -> None:
    """Remove the ref that protects what a worktree borrowed from the user's repository."""
    if agent.mode == "worktree" and agent.source:
        try:
            git.drop(host, agent.source, agent.id)
        except MusterError:
            if host.run(["test", "-d", agent.source]).returncode == 0:
                raise  # if the repository is gone, so is the ref


def commit(local: Host, repo: git.Repo, rev: str) -> str:
    """Return the commit that a branch, tag or abbreviation of the user's repository names."""
    where = repo.top or repo.common
    name = f"{rev}^{{commit}}"
    done = local.run(["git", "-C", where, "rev-parse", "--verify", "--quiet", "--end-of-options", name])
    if done.returncode:
        raise NotFound(f"there is no branch or commit {rev!r} in {where}", "git branch --list")
    return done.stdout.decode().strip()


def _branch(local: Host, repo: git.Repo, spec: Spec) -> tuple[str, str]:
    """Parse `[BASE][:NEW]` and return the commit to start from and the branch to work on."""
    base, _, new = spec.branch.partition(":")
    if base:
        base = commit(local, repo, base)
    if new:
        named = local.run(["git", "check-ref-format", "--branch", new])
        if named.returncode:
            raise UsageError(f"{new!r} is not the name of a branch")
    return base or repo.head, new or "muster/{name}"


def _source_agent(here: Here, source: str) -> Found:
    try:
        return here.agent(source)
    except (NotFound, UsageError) as error:
        raise NotFound(f"--from {source}: there is no such folder and no such agent", "muster list") from error


def _from_agent(here: Here, host: Host, spec: Spec, one: Found) -> Plan:
    """Plan to start from the present work of another agent, committed or not."""
    agent = one.agent
    if not agent.common:
        if spec.mode not in ("", "copy"):
            raise UsageError(f"{agent.name} is a copy without git", "leave --mode out")
        return Plan("copy", one.host, agent.workdir, None, home=agent.repo)
    at = tree(agent)
    captured = git.harvest(one.host, at)
    home = git.find(here.local, agent.repo) if agent.repo and os.path.isdir(agent.repo) else None
    prefix = os.path.relpath(agent.cwd, agent.workdir)
    prefix = "" if prefix == "." else prefix
    mode = spec.mode or ("mirror" if not host.local or not home or agent.mode == "mirror" else "worktree")
    branch = spec.branch.partition(":")[2] or "muster/{name}"
    if mode == "worktree":
        if home is None:
            raise UsageError(f"{agent.name} did not come from a repository on this machine", "use --mode mirror")
        git.bring(one.host, at.shadow, here.local, home.common, captured.state)
        git.bring(one.host, at.shadow, here.local, home.common, captured.head)
        return Plan(
            mode,
            here.local,
            agent.workdir,
            home,
            captured.head,
            captured.state,
            branch,
            home=agent.repo,
            prefix=prefix,
        )
    found = git.find(one.host, at.workdir)
    if found is None:
        raise MusterError(f"the work dir of {agent.name} has no repository any more", f"muster diff {agent.name}")
    source = found._replace(common=at.shadow)
    return Plan(
        mode, one.host, agent.workdir, source, captured.head, captured.state, branch, home=agent.repo, prefix=prefix
    )


def _from_url(host: Host, spec: Spec) -> Plan:
    if spec.mode not in ("", "mirror"):
        raise UsageError("a URL is cloned, which is --mode mirror", "leave --mode out")
    base, _, new = spec.branch.partition(":")
    return Plan("mirror", host, branch=new or "muster/{name}", url=spec.source, state=base)


def _clone(host: Host, plan: Plan, workdir: str, shadow: str, agent: Agent) -> git.Tree:
    done = script(host, "clone", plan.url, workdir, agent.branch, plan.state)
    if done.returncode:
        raise CommandFailed(f"cannot clone {plan.url}", done.returncode, done.stderr, f"try: git ls-remote {plan.url}")
    repo = git.find(host, workdir)
    assert repo
    return git.seed_in_place(host, repo, shadow)


def _copy(source: Host, folder: str, host: Host, workdir: str) -> None:
    checked(host, "unpack", workdir, "--make", what="cannot make the work dir")
    argv = ["sh", "-c", shell_file("pack"), "muster-pack", source.home, folder]
    if _pipe(source, argv, host, workdir) == REPLACED:
        raise Refused(f"{folder} was replaced by a link, which is not followed", "look at it: ls -ld " + folder)


#: Exit code of sh/pack.sh if the folder has become a link.
REPLACED = 5


def _pipe(source: Host, argv: list[str], host: Host, workdir: str) -> int:
    """Unpack on one host the tar that `argv` makes on another. Return the exit code of `argv`: 0, 1 (a file changed meanwhile) or REPLACED."""
    packing = source.stream(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    assert packing.stdout
    failure: MusterError | None = None
    try:
        checked(host, "unpack", workdir, input=packing.stdout, what=f"cannot copy to {workdir}")
    except MusterError as error:
        failure = error
    finally:
        packing.stdout.close()
        code = packing.wait()
    if failure and code != REPLACED:  # nothing was sent then
        raise failure
    if code not in (0, 1, REPLACED):
        raise MusterError("the folder could not be read whole", "look at the message of tar above")
    return code


def _not_inside(home: str, folder: str) -> None:
    inner = os.path.realpath(home)
    if inner == folder or inner.startswith(folder.rstrip("/") + "/"):
        raise Refused(f"{folder} holds muster's own state, a copy would hold itself", "copy a smaller folder")


def _matches(folder: str, patterns: list[str] | str) -> list[str]:
    wanted = [patterns] if isinstance(patterns, str) else patterns
    found = {
        path for pattern in wanted for path in glob.glob(pattern, root_dir=folder, include_hidden=True, recursive=True)
    }
    outside = [path for path in found if os.path.isabs(path) or ".." in path.split("/")]
    if outside:
        raise UsageError(f"[workdir]: {outside[0]} is outside of the project")
    return sorted(found)


def _key(plan: Plan) -> str:
    import hashlib

    assert plan.repo
    return hashlib.sha256(
        f"{place_of(plan.host)}:{plan.home or plan.repo.common}".encode("utf-8", "surrogateescape")
    ).hexdigest()[:20]
