"""How agents leave, and come back: `destroy`, `restore`, `gc`. Every move is a rename; nothing is lost on the way."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from . import evidence, fanout, git, store, tmux
from .errors import MusterError, NotFound, Refused
from .host import CommandFailed, Found, Host, checked, script
from .model import Address, Agent, Status
from .workdirs import tree, unregister

if TYPE_CHECKING:
    from .fleet import Fleet

DAYS = 30
#: Kinds of left-overs that no record explains: what each is, and what `gc` does with it.
LEFT = {
    "work": ("unique", "to the trash"),
    "folder": ("empty", "removed"),
    "name": ("empty", "removed"),
    "session": ("without a record", "removed"),
    "scratch": ("of a killed muster", "removed"),
}


class Gone(NamedTuple):
    """A destroyed agent in the trash of its host."""

    host: Host
    agent: Agent

    @property
    def destroyed(self) -> float:
        value = self.agent.trash.get("destroyed", 0.0)
        return float(value) if isinstance(value, int | float) else 0.0

    @property
    def kept(self) -> list[str]:
        value = self.agent.trash.get("kept", [])
        return [str(item) for item in value] if isinstance(value, list) else []

    @property
    def address(self) -> Address:
        return Address(
            self.agent.name, self.host.name, "" if self.host.provider in ("local", "ssh") else self.host.provider
        )


def destroy(fleet: Fleet, one: Found) -> dict[str, Any]:
    """Mark, stop, park, forget. Killed in between, the agent is still listed, and `destroy` again goes on."""
    owner = store.lock(one.host, one.agent.id, "destroy.lock", 60)
    if not owner:
        raise Refused(f"{one.status.address} is being destroyed by another muster", "muster list")
    try:
        return _destroy(fleet, one)  # the lock goes to the trash with the rest
    except BaseException:
        store.unlock(one.host, one.agent.id, "destroy.lock", owner)
        raise


def _destroy(fleet: Fleet, one: Found) -> dict[str, Any]:
    host, agent = one.host, _whole(one.host, one.agent)
    at = tree(agent)
    kept = agent.trash.get("kept") if agent.phase == "destroying" else _worth(host, agent, at)
    marked = agent._replace(phase="destroying", trash={"destroyed": time.time(), "kept": kept}, creator=store.me())
    store.write(host, marked)
    fleet.step("destroy", "mark", agent.name)
    tmux.stop(host, agent.id)
    fleet.step("destroy", "stop", agent.name)
    home = _home(host, agent)
    if agent.mode == "worktree" and at.gitdir:
        git.park(host, at, f"{home}/trash/{agent.id}", agent.id)
    elif agent.mode != "in-place":
        checked(host, "trash", "work", agent.id, at.workdir, what=f"cannot put {agent.name} away")
        unregister(host, agent)
    fleet.step("destroy", "park", agent.name)
    checked(host, "trash", "forget", agent.id, agent.name, what=f"cannot put {agent.name} away")
    fleet.step("destroy", "forget", agent.name)
    return {"kept": kept or [], "days": days(fleet), "id": agent.id}


def listing(fleet: Fleet) -> list[Gone]:
    """Everything in the trash, here and on every host that answers; newest first."""
    hosts = [
        fleet.host(Address.parse(f"@{row.name}")) if row.name else fleet.local
        for row in fleet.survey().hosts
        if row.reachable
    ]
    found: list[Gone] = []
    for outcome in fanout.each(_read, hosts):
        if outcome.error is None:
            found += outcome.get()
    return sorted(found, key=lambda gone: -gone.destroyed)


def find(fleet: Fleet, address: Address) -> Gone | None:
    """The one destroyed last under that name, or the one with that id."""
    gone = [item for item in _read(fleet.host(address)) if address.name in (item.agent.name, item.agent.id)]
    return max(gone, key=lambda item: item.destroyed, default=None)


def restore(fleet: Fleet, name: str, new: str) -> Found:
    """Bring one back: work dir, branch and index first, the record last."""
    from .model import check_name

    address = Address.parse(name)
    gone = find(fleet, address)
    if gone is None:
        raise NotFound(f"there is no {name} in the trash", "muster restore --list shows what is")
    host, agent = gone.host, gone.agent._replace(name=check_name(new) if new else gone.agent.name)
    if any(seen.agent.name == agent.name for seen in store.survey(host).agents):
        raise Refused(f"there is an agent {agent.name} now", f"muster restore {name} --as ANOTHER-NAME")
    home = _home(host, agent)
    folder = f"{home}/trash/{agent.id}"
    # A branch that is called as the agent was is called as it is now: the old name may be another agent's.
    branch = f"muster/{agent.name}" if agent.branch == f"muster/{gone.agent.name}" else agent.branch
    if agent.mode == "worktree" and agent.gitdir:
        at = git.unpark(host, tree(agent), folder, agent.id, branch)
        agent = agent._replace(gitdir=at.gitdir, branch=at.branch)
    done = script(
        host, "trash", "back", agent.id, agent.name, agent.workdir if agent.mode in ("mirror", "copy") else ""
    )
    if done.returncode == 17:
        raise Refused(
            f"cannot bring {name} back: {done.stderr.decode().strip()}", f"muster restore {name} --as ANOTHER-NAME"
        )
    if done.returncode:
        raise CommandFailed(f"cannot bring {name} back", done.returncode, done.stderr)
    if agent.mode == "mirror" and agent.branch != branch:
        agent = agent._replace(branch=git.rename(host, tree(agent), branch).branch)
    store.write(host, agent._replace(phase="", trash={}, creator={}))
    script(host, "trash", "swept", agent.id)
    return fleet.get(str(Address(agent.name, address.host, address.provider)))


def gc(fleet: Fleet, *, yes: bool, older: float | None) -> list[dict[str, Any]]:
    """What is left over and what it is; with `yes`, it is removed where nothing unique can be lost."""
    limit = days(fleet) * 86400.0 if older is None else older
    rows: list[dict[str, Any]] = []
    listing_now = fleet.survey()
    for row in listing_now.hosts:
        if not row.reachable:
            continue
        host = fleet.host(Address.parse(f"@{row.name}")) if row.name else fleet.local
        mine = [status for status in listing_now.statuses if status.host == host.name]
        rows += _half_made(fleet, host, mine, yes)
        rows += _left_over(host, limit, yes)
    rows += _branches(fleet, [status for status in listing_now.statuses if not yes or not _cut_off(status)], yes)
    return rows


def days(fleet: Fleet) -> int:
    value = fleet.config.section("trash").get("days", DAYS)
    return value if isinstance(value, int) else DAYS


def _half_made(fleet: Fleet, host: Host, statuses: list[Status], yes: bool) -> list[dict[str, Any]]:
    """Agents whose `create` or `destroy` was interrupted: both end in the trash. A damaged record is only told of."""
    rows = []
    for status in statuses:
        if status.agent.phase == "unreadable":
            keep = f"kept: muster destroy {status.address}"
            rows.append(_row("agent", host, status.agent.name, "unique, its record cannot be read", 0, keep))
        elif _cut_off(status):
            action = _done(partial(destroy, fleet, Found(host, status)), yes, "to the trash")
            rows.append(_row("half-made agent", host, status.agent.name, status.reason, 0, action))
    return rows


def _cut_off(status: Status) -> bool:
    return status.state == "lost" and status.reason in evidence.CUT_OFF


def _done(act: Callable[[], object], yes: bool, action: str) -> str:
    """What became of one left-over; a failure does not keep the rest from being cleaned."""
    try:
        if yes:
            act()
    except MusterError as error:
        return f"failed: {error.message}"
    return action


def _left_over(host: Host, limit: float, yes: bool) -> list[dict[str, Any]]:
    gone = {item.agent.id: item for item in _read(host)}
    rows = []
    minutes = str(int(limit // 60))
    for line in checked(host, "trash", "left", minutes).decode("utf-8", "replace").splitlines():
        kind, name, kilobytes, old = [*line.split("\t"), "", "", ""][:4]
        size = int(kilobytes) * 1024 if kilobytes.isdigit() else 0
        if kind in LEFT:
            verdict, action = LEFT[kind]
            action = _done(partial(checked, host, "trash", "clean", kind, name), yes, action)
            rows.append(_row({"work": "work dir"}.get(kind, kind), host, name, verdict, size, action))
            continue
        item = gone.get(name)
        since = item.destroyed if item else 0.0
        expired = item is not None and time.time() - since > limit
        if item is None:
            # Nobody knows what it was: it stays as long as everything else, counted from when it came here.
            gone_for_good = partial(checked, host, "trash", "drop", name)
            action = _done(gone_for_good, yes, "removed") if old else f"kept in trash/{name}: it has no record"
            rows.append(_row("trash", host, name, "unique", size, action))
        elif not expired:
            until = time.strftime("%Y-%m-%d", time.localtime(since + limit))
            rows.append(_row("trash", host, name, _verdict(item), size, f"kept until {until}"))
        else:
            verdict = _verdict(item)
            rows.append(_row("trash", host, name, verdict, size, _done(partial(drop, item), yes, "removed")))
    return rows


def drop(gone: Gone) -> None:
    """For good."""
    if gone.agent.mode == "worktree" and gone.agent.common:
        try:
            git.drop(gone.host, gone.agent.common, gone.agent.id)
        except MusterError:
            pass  # the repository itself is gone, and with it what was kept in it
    checked(gone.host, "trash", "drop", gone.agent.id)


def _branches(fleet: Fleet, statuses: list[Status], yes: bool) -> list[dict[str, Any]]:
    """`muster/*` branches of the repository we are in that no agent has any more."""
    repo = git.find(fleet.local, fleet.cwd)
    if repo is None:
        return []
    used = {status.agent.branch for status in statuses}
    asked = ["git", f"--git-dir={repo.common}", "for-each-ref", "--format=%(refname:short)", "refs/heads/muster/"]
    rows = []
    for branch in fleet.local.run(asked).stdout.decode("utf-8", "surrogateescape").splitlines():
        if branch in used:
            continue
        alone = git.unique(fleet.local, repo.common, f"refs/heads/{branch}", branch)
        if alone:
            rows.append(_row("branch", fleet.local, branch, f"unique ({alone} commits)", 0, "kept"))
            continue
        if yes:
            fleet.local.run(["git", f"--git-dir={repo.common}", "branch", "-D", "--", branch])
        rows.append(_row("branch", fleet.local, branch, "merged", 0, "removed"))
    return rows


def _verdict(gone: Gone) -> str:
    if not gone.kept:
        return "merged" if gone.agent.common else "kept in trash"
    if gone.agent.mode == "worktree" and gone.agent.common and not any("file" in item for item in gone.kept):
        try:
            if git.unique(gone.host, gone.agent.common, f"refs/muster/trash/{gone.agent.id}") <= 1:
                return "merged"
        except MusterError:
            return "kept in trash"
    return "unique, kept in trash"


def _row(what: str, host: Host, name: str, verdict: str, size: int, action: str) -> dict[str, Any]:
    return {"what": what, "host": host.name or None, "name": name, "verdict": verdict, "bytes": size, "action": action}


def _read(host: Host) -> list[Gone]:
    done = script(host, "trash", "list", timeout=store.ANSWER_SECONDS)
    if done.returncode == NotFound.exit_code:
        return []
    if done.returncode:
        raise CommandFailed("trash", done.returncode, done.stderr)
    found = []
    for line in done.stdout.decode("utf-8", "replace").splitlines():
        try:
            found.append(Gone(host, Agent.from_json(json.loads(line.partition("\t")[2]))))
        except (ValueError, RecursionError):
            continue
    return found


def _worth(host: Host, agent: Agent, at: git.Tree) -> list[str]:
    """What the agent has that its base has not, in words."""
    if agent.phase == "unreadable":
        return ["a record that cannot be read", "its work dir"]
    if not agent.base or not at.workdir or agent.mode == "in-place":
        return []
    try:
        info = git.info(host, {0: at})[0]
    except MusterError:
        return ["a work dir that git cannot read"]
    gone = info.dirty is None and host.run(["test", "-d", at.workdir]).returncode != 0
    if info.ahead is None and not gone:
        return ["a work dir that git cannot read"]
    kept = ["no work dir (it was gone)"] if gone else []
    if info.ahead:
        kept.append(f"{info.ahead} commit{'' if info.ahead == 1 else 's'}")
    if info.dirty:
        kept.append(f"{info.dirty} uncommitted file{'' if info.dirty == 1 else 's'}")
    return kept


def _whole(host: Host, agent: Agent) -> Agent:
    """The agent with its work dir; where a create was interrupted or the record is damaged, as found on the host."""
    if agent.workdir or not agent.phase:
        return agent
    home = _home(host, agent)
    workdir = f"{home}/work/{agent.id}"
    found = git.find(host, workdir)
    agent = agent._replace(folder=f"{home}/agents/{agent.id}")
    if found is None or os.path.basename(found.top) != agent.id:
        return agent._replace(workdir="" if agent.mode == "in-place" else workdir, gitdir="", common="")
    kind = "worktree" if "/worktrees/" in found.gitdir else "mirror"
    return agent._replace(
        workdir=workdir,
        cwd=agent.cwd or workdir,
        gitdir=found.gitdir,
        common=found.common,
        mode=agent.mode or kind,
        branch=agent.branch or found.branch,
        repo=agent.repo or (os.path.dirname(found.common) if kind == "worktree" else ""),
    )


def _home(host: Host, agent: Agent) -> str:
    """muster's folder on that host."""
    if agent.folder:
        return agent.folder.rpartition("/agents/")[0]
    return checked(host, "home").decode().strip()
