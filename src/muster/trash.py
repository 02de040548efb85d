"""How agents leave, and come back: `destroy`, `restore`, `gc`. Every move is a rename; nothing is lost on the way."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from . import bindings, evidence, fanout, git, hosts, store, tmux
from .errors import MusterError, NotFound, Refused, UsageError
from .host import CommandFailed, Found, Host, checked, script
from .model import Address, Agent, Status, check_name, is_id, whole
from .workdirs import tree, unregister

if TYPE_CHECKING:
    from .fleet import Fleet

T = TypeVar("T")
DAYS = 30
#: Kinds of left-overs that no record explains: what each is, and what `gc` does with it.
LEFT = {
    "work": ("unique", "to the trash"),
    "folder": ("empty", "removed"),
    "name": ("empty", "removed"),
    "session": ("without a record", "removed"),
    "process": ("without a record", "ended"),
    "scratch": ("of a killed muster", "removed"),
}


class Gone(NamedTuple):
    """A destroyed agent in the trash of its host."""

    host: Host
    agent: Agent

    @property
    def destroyed(self) -> float:
        value = self.agent.trash.get("destroyed", 0.0)
        return float(value) if isinstance(value, int | float) and 0 <= value < 1e11 else 0.0

    @property
    def kept(self) -> list[str]:
        value = self.agent.trash.get("kept", [])
        return [str(item) for item in value] if isinstance(value, list) else []

    @property
    def address(self) -> Address:
        return Address(
            self.agent.name, self.host.name, "" if self.host.provider in ("local", "ssh") else self.host.provider
        )


class _Marked(NamedTuple):
    """An agent whose destroy has begun: it is recorded, and nobody else can destroy it."""

    one: Found
    agent: Agent
    owner: str


def destroy(fleet: Fleet, one: Found) -> dict[str, Any]:
    """Mark, stop, park, forget. Killed in between, the agent is still listed, and `destroy` again goes on."""
    return destroy_all(fleet, [one])[0].get()


def destroy_all(fleet: Fleet, chosen: Sequence[Found]) -> list[fanout.Outcome[Found, dict[str, Any]]]:
    """The same for many agents; those of one host are stopped in one round trip. Results in the given order."""
    held: dict[tuple[str, str], _Marked] = {}

    def mark(one: Found) -> _Marked:
        if _key(one) not in held:
            owner = store.lock(one.host, one.agent.id, "destroy.lock", 60)
            if not owner:
                raise Refused(f"{one.status.address} is being destroyed by another muster", "muster list")
            held[_key(one)] = _Marked(one, one.agent, owner)
        held[_key(one)] = held[_key(one)]._replace(agent=_mark(fleet, one))
        return held[_key(one)]

    def finish(stopped: fanout.Outcome[Found, tmux.Stopped]) -> dict[str, Any]:
        stopped.get()
        marked = held[_key(stopped.item)]
        fleet.step("destroy", "stop", marked.agent.name)
        done = _with_room(stopped.item, lambda: _put_away(fleet, stopped.item.host, marked.agent))
        del held[_key(stopped.item)]  # its lock is in the trash with the rest
        return done

    results: dict[tuple[str, str], fanout.Outcome[Found, dict[str, Any]]] = {}
    try:
        marks = fanout.each(lambda one: _with_room(one, lambda: mark(one)), chosen, 4)
        for outcome in marks:
            results[_key(outcome.item)] = fanout.Outcome(outcome.item, None, outcome.error)
        stopped = fleet.stop_all([outcome.item for outcome in marks if outcome.error is None])
        for ended in fanout.each(finish, stopped, 4):
            results[_key(ended.item.item)] = fanout.Outcome(ended.item.item, ended.value, ended.error)
    finally:
        for marked in held.values():
            store.unlock(marked.one.host, marked.one.agent.id, "destroy.lock", marked.owner)
    return [results[_key(one)] for one in chosen]


def _key(one: Found) -> tuple[str, str]:
    return one.host.name, one.agent.id


def _with_room(one: Found, act: Callable[[], T]) -> T:
    """Do it; if the disk is full, stop the agent, give up the space that is kept for this, and do it again."""
    try:
        return act()
    except MusterError as error:
        if not isinstance(store.plainly(error), store.NoSpace):
            raise
    tmux.stop(one.host, [one.agent.id])
    checked(one.host, "trash", "room")
    return act()


def _mark(fleet: Fleet, one: Found) -> Agent:
    """Record that the agent is being destroyed, and what it has."""
    host, agent = one.host, one.agent
    known = agent.phase == "destroying"
    worth = {key: agent.trash.get(key) for key in ("kept", "head")} if known else _worth(host, agent)
    with fleet.changing(one):
        agent = agent._replace(phase="destroying", trash={"destroyed": time.time(), **worth}, creator=store.me())
        store.write(host, agent)
    fleet.step("destroy", "mark", agent.name)
    return agent


def _put_away(fleet: Fleet, host: Host, agent: Agent) -> dict[str, Any]:
    """Move the work dir of a stopped agent, and then its folder and name, to the trash."""
    if agent.mode != "in-place":
        checked(host, "trash", "work", agent.id, what=f"cannot put {agent.name} away")
    fleet.step("destroy", "park", agent.name)
    checked(host, "trash", "forget", agent.id, agent.name, what=f"cannot put {agent.name} away")
    fleet.step("destroy", "forget", agent.name)
    return {"kept": agent.trash.get("kept") or [], "days": days(fleet), "id": agent.id}


def listing(fleet: Fleet) -> list[Gone]:
    """Everything in the trash, here and on every host that answers; newest first."""
    reachable = [
        fleet.host(Address.parse(f"@{row.name}")) if row.name else fleet.local
        for row in fleet.survey().hosts
        if row.reachable
    ]
    found: list[Gone] = []
    for outcome in fanout.each(partial(_read, fleet), reachable):
        if outcome.error is None:
            found += outcome.get()
    return sorted(found, key=lambda gone: -gone.destroyed)


def find(fleet: Fleet, address: Address) -> Gone | None:
    """The one destroyed last under that name, or the one with that id."""
    gone = [item for item in _read(fleet, fleet.host(address)) if address.name in (item.agent.name, item.agent.id)]
    return max(gone, key=lambda item: item.destroyed, default=None)


def restore(fleet: Fleet, name: str, new: str) -> Found:
    """Bring one back: work dir, branch and index first, the record last."""
    address = Address.parse(name)
    gone = find(fleet, address)
    if gone is None:
        raise NotFound(f"there is no {name} in the trash", "muster restore --list shows what is")
    host, agent = gone.host, gone.agent._replace(name=check_name(new) if new else gone.agent.name)
    if any(seen.agent.name == agent.name for seen in store.survey(host).agents):
        raise Refused(f"there is an agent {agent.name} now", f"muster restore {name} --as ANOTHER-NAME")
    done = script(host, "trash", "back", agent.id, agent.name)
    if done.returncode == 17:
        raise Refused(
            f"cannot bring {name} back: {done.stderr.decode('utf-8', 'replace').strip()}",
            f"muster restore {name} --as ANOTHER-NAME",
        )
    if done.returncode:
        raise CommandFailed(f"cannot bring {name} back", done.returncode, done.stderr)
    if agent.branch == f"muster/{gone.agent.name}" != f"muster/{agent.name}" and agent.gitdir:
        # The old name may be another agent's by now.
        agent = agent._replace(branch=git.rename(host, tree(agent), f"muster/{agent.name}").branch)
    agent = agent._replace(phase="", trash={}, creator={})
    if bindings.read(fleet.home, hosts.place_of(host), agent.id):
        fleet.bind(host, agent)
    store.write(host, agent)
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
        try:
            rows += _left_over(fleet, host, limit, yes)
            rows += _stale_records(fleet, host, {status.agent.id for status in mine}, yes)
        except MusterError as error:
            rows.append(_row("host", host, row.name or "local", "cannot be read", 0, f"failed: {error.message}"))
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
        elif status.reason == evidence.WITHOUT_SESSION:
            action = _done(partial(tmux.stop, host, [status.agent.id]), yes, "stopped")
            rows.append(_row("processes", host, status.agent.name, status.reason, 0, action))
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


def _stale_records(fleet: Fleet, host: Host, live: set[str], yes: bool) -> list[dict[str, Any]]:
    """This machine's records of agents that are neither on their host nor in its trash any more."""
    place, known, rows = hosts.place_of(host), {*live, *(item.agent.id for item in _read(fleet, host))}, []
    for agent_id in bindings.ids(fleet.home, place):
        binding = bindings.read(fleet.home, place, agent_id)
        # A younger one may belong to a create under way.
        if agent_id in known or binding is None or time.time() - binding.agent.created < 86400:
            continue

        def forget(agent: Agent = binding.agent) -> None:
            unregister(fleet.local, agent)
            fleet.unbind(host, agent.id)

        rows.append(_row("record", host, agent_id, "its agent is gone", 0, _done(forget, yes, "removed")))
    return rows


def _left_over(fleet: Fleet, host: Host, limit: float, yes: bool) -> list[dict[str, Any]]:
    gone = {item.agent.id: item for item in _read(fleet, host)}
    rows = []
    minutes = str(int(limit // 60))
    for line in checked(host, "trash", "left", minutes).decode("utf-8", "replace").splitlines():
        kind, name, kilobytes, old = [*line.split("\t"), "", "", ""][:4]
        size = (whole(kilobytes) or 0) * 1024
        if kind in LEFT:
            verdict, action = LEFT[kind]
            action = _done(
                partial(checked, host, "trash", "clean", kind, name, input=tmux.bin_files()["bin/reap"]), yes, action
            )
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
            rows.append(_row("trash", host, name, _verdict(fleet, item), size, f"kept until {until}"))
        else:
            verdict = _verdict(fleet, item)
            rows.append(_row("trash", host, name, verdict, size, _done(partial(drop, fleet, item), yes, "removed")))
    return rows


def drop(fleet: Fleet, gone: Gone) -> None:
    """Remove a destroyed agent for good."""
    checked(gone.host, "trash", "drop", gone.agent.id)
    unregister(gone.host, gone.agent)
    fleet.unbind(gone.host, gone.agent.id)


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
        try:
            alone = git.unique(fleet.local, repo.common, f"refs/heads/{branch}", branch)
        except MusterError as error:
            if _exists(fleet, repo.common, branch):
                rows.append(_row("branch", fleet.local, branch, "cannot be read", 0, f"failed: {error.message}"))
            continue  # else it was removed since it was listed
        if alone:
            rows.append(
                _row("branch", fleet.local, branch, f"unique ({alone} commit{'s' if alone != 1 else ''})", 0, "kept")
            )
            continue
        action = _done(partial(_remove_branch, fleet, repo.common, branch), yes, "removed")
        rows.append(_row("branch", fleet.local, branch, "merged", 0, action))
    return rows


def _exists(fleet: Fleet, common: str, branch: str) -> bool:
    asked = ["git", f"--git-dir={common}", "show-ref", "--quiet", "--verify", f"refs/heads/{branch}"]
    return fleet.local.run(asked).returncode == 0


def _remove_branch(fleet: Fleet, common: str, branch: str) -> None:
    done = fleet.local.run(["git", f"--git-dir={common}", "branch", "-D", "--", branch])
    if done.returncode and _exists(fleet, common, branch):
        raise CommandFailed(f"cannot remove {branch}", done.returncode, done.stderr)


def _verdict(fleet: Fleet, gone: Gone) -> str:
    if not gone.kept:
        return "merged" if gone.agent.common else "kept in trash"
    head, repo = gone.agent.trash.get("head"), gone.agent.repo
    if isinstance(head, str) and repo and not any("file" in item for item in gone.kept):
        try:
            found = git.find(fleet.local, repo)
            if found and not git.unique(fleet.local, found.common, head):
                return "merged"
        except MusterError:
            pass  # the repository has no such commit: it was never pulled
    return "unique, kept in trash"


def _row(what: str, host: Host, name: str, verdict: str, size: int, action: str) -> dict[str, Any]:
    return {"what": what, "host": host.name or None, "name": name, "verdict": verdict, "bytes": size, "action": action}


def _read(fleet: Fleet, host: Host) -> list[Gone]:
    done = script(host, "trash", "list", timeout=store.ANSWER_SECONDS)
    if done.returncode == NotFound.exit_code:
        return []
    if done.returncode:
        raise CommandFailed("trash", done.returncode, done.stderr)
    home, _, records = done.stdout.decode("utf-8", "replace").partition("\n")
    found = []
    for line in records.splitlines():
        name, _, text = line.partition("\t")
        try:
            told = Agent.from_json(json.loads(text))
            check_name(told.name)
        except (ValueError, RecursionError, UsageError):
            continue
        if told.id == name and is_id(name):
            found.append(Gone(host, fleet.bound(host, told, home)[0]))
    return found


def _worth(host: Host, agent: Agent) -> dict[str, Any]:
    """What the agent has that its base has not, in words, and the commit it is at."""
    if agent.phase == "unreadable":
        return {"kept": ["a record that cannot be read", "its work dir"], "head": None}
    if not agent.base or not agent.workdir or agent.mode == "in-place":
        return {"kept": [], "head": None}
    try:
        info = git.info(host, {0: tree(agent)})[0]
    except MusterError:
        return {"kept": ["a work dir that git cannot read"], "head": None}
    gone = info.dirty is None and host.run(["test", "-d", agent.workdir]).returncode != 0
    if info.ahead is None and not gone:
        return {"kept": ["a work dir that git cannot read"], "head": None}
    kept = ["no work dir (it was gone)"] if gone else []
    if info.ahead:
        kept.append(f"{info.ahead} commit{'' if info.ahead == 1 else 's'}")
    if info.dirty:
        kept.append(f"{info.dirty} uncommitted file{'' if info.dirty == 1 else 's'}")
    return {"kept": kept, "head": info.head or None}
