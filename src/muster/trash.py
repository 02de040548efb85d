"""How agents leave, and come back: `destroy`, `restore`, `gc`. Every move is a rename; nothing is lost on the way."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from . import bindings, evidence, fanout, git, store, tmux
from .errors import MusterError, NotFound, Refused, Unreachable, UsageError
from .host import CommandFailed, Found, Host, Step, checked, place_of, script
from .model import Address, Agent, Status, check_name, is_id, whole
from .workdirs import tree, unregister

DAYS = 30
LOCK = "destroy.lock"
#: A younger host without agents may be about to get its first one.
MAKING_SECONDS = 3600
#: Limit on records that are changed at the same time, because each lock is an open file.
FILES_AT_ONCE = 100
#: Kinds of leftovers without a record: what each is, and what `gc` does with it.
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
        return Address(self.agent.name, place_of(self.host))


def destroy(
    home: str, chosen: Sequence[Found], days: int, step: Callable[[str, str], None]
) -> list[fanout.Outcome[Found, dict[str, Any]]]:
    """Destroy agents: mark, stop, park, forget. Each step handles all agents of a host at once. Results are in the given order.

    Killed in between, an agent is still listed, and `destroy` again goes on. `home` is the state folder of this machine,
    `days` how long the trash keeps what is put there; `step` is told the name of each step that is done, and of the agent.
    """
    by_place: dict[str, dict[str, Found]] = {}
    for one in chosen:
        by_place.setdefault(place_of(one.host), {})[one.agent.id] = one
    groups = [list(group.values()) for group in by_place.values()]
    parts = [group[at : at + tmux.AT_ONCE] for group in groups for at in range(0, len(group), tmux.AT_ONCE)]

    def work(part: list[Found]) -> dict[str, fanout.Outcome[Found, dict[str, Any]]]:
        return _Destroy(home, part, days, step).run()

    done: dict[tuple[str, str], fanout.Outcome[Found, dict[str, Any]]] = {}
    for outcome in fanout.each(work, parts):
        for one in outcome.item:
            failed = fanout.Outcome[Found, dict[str, Any]](one, None, outcome.error)
            done[one.key] = failed if outcome.value is None else outcome.value[one.agent.id]
    return [done[one.key] for one in chosen]


class _Destroy:
    """Destroys some agents of one host. An agent for which a step fails is left out of the next steps."""

    def __init__(self, home: str, group: Sequence[Found], days: int, step: Callable[[str, str], None]) -> None:
        self.home, self.host, self.days, self.step = home, group[0].host, days, step
        self.todo = {one.agent.id: one for one in group}
        self.agents = {one.agent.id: one.agent for one in group}
        self.done: dict[str, fanout.Outcome[Found, dict[str, Any]]] = {}
        self.owner = ""
        self.held: set[str] = set()
        self.infos: dict[str, git.Info] = {}
        """Answers of git about the agents that were locked in the same round trip."""
        self.stopped: dict[str, tmux.Stopped] = {}
        self.parked: dict[str, MusterError | None] = {}
        """Agents whose work dir was moved, or the reason why not."""

    def run(self) -> dict[str, fanout.Outcome[Found, dict[str, Any]]]:
        try:
            self._step("", self._lock)
            self._step("mark", self._mark)
            self._step("stop", self._stop)
            self._step("park", self._park)
            self._step("forget", self._forget)
            for agent_id, one in self.todo.items():
                self.held.discard(agent_id)  # its lock went to the trash with its folder
                agent = self.agents[agent_id]
                if one.status.bound:
                    gone = agent._replace(phase=bindings.DESTROYED)
                    with contextlib.suppress(MusterError):  # it only keeps the name from being suggested
                        bindings.write(self.home, place_of(self.host), gone, agent, sync=False)
                told = {"kept": agent.trash.get("kept") or [], "days": self.days, "id": agent_id}
                self.done[agent_id] = fanout.Outcome(one, told)
        finally:
            if self.held:
                store.unlock_all(self.host, sorted(self.held), LOCK, self.owner)
        return self.done

    def _step(self, step: str, act: Callable[[list[str]], dict[str, MusterError]]) -> None:
        """Do a step for all remaining agents. If the disk is full, stop them, free the reserved space, and try again."""
        failed = self._tried(act, list(self.todo))
        if full := [agent_id for agent_id, error in failed.items() if isinstance(error, store.NoSpace)]:
            tmux.stop(self.host, full)
            checked(self.host, "trash", "room")
            failed = {key: error for key, error in failed.items() if key not in full} | self._tried(act, full)
        for agent_id, error in failed.items():
            one = self.todo.pop(agent_id)
            if isinstance(error, store.Held):
                error = Refused(f"{one.status.address} is being destroyed by another muster", "muster list")
            self.done[agent_id] = fanout.Outcome(one, None, error)
        for agent_id in self.todo if step else ():
            self.step(step, self.agents[agent_id].name)

    def _tried(self, act: Callable[[list[str]], dict[str, MusterError]], ids: list[str]) -> dict[str, MusterError]:
        try:
            return act(ids) if ids else {}
        except MusterError as error:
            return dict.fromkeys(ids, store.plainly(error))

    def _lock(self, ids: list[str]) -> dict[str, MusterError]:
        """Lock the agents and ask git, in the same round trip, what they have."""
        trees = _trees([self.agents[agent_id] for agent_id in ids])
        step, asked = git.info_step(trees)
        self.owner, failed, answers = store.lock_all(self.host, ids, LOCK, 60, [step] if trees else [], asked)
        self.held.update(set(ids) - set(failed))
        if answers:
            with contextlib.suppress(MusterError):  # then each is asked about alone
                self.infos = git.infos(trees, answers[0])
        return failed

    def _mark(self, ids: list[str]) -> dict[str, MusterError]:
        """Record that the agents are being destroyed, and what they have, and stop and park them in the same round trip."""
        fresh = [agent for agent_id in ids if (agent := self.agents[agent_id]).phase != "destroying"]
        worth = _worth(self.host, fresh, self.infos)
        failed: dict[str, MusterError] = {}
        for at in range(0, len(ids), FILES_AT_ONCE):
            with contextlib.ExitStack() as changing:
                some = []
                for agent_id in ids[at : at + FILES_AT_ONCE]:
                    changing.enter_context(bindings.changing(self.home, place_of(self.host), agent_id))
                    agent = self.agents[agent_id]
                    kept = worth.get(agent_id) or {key: agent.trash.get(key) for key in ("kept", "head")}
                    trash = {"destroyed": time.time(), **kept}
                    some.append(agent._replace(phase="destroying", trash=trash, creator=store.me()))
                stop = [agent.id for agent in some]
                park = [agent.id for agent in some if agent.mode != "in-place"]
                then = [tmux.stop_step(stop), Step("trash", ("work", *park))]
                not_written, answers = store.write_all(self.host, some, then)
                failed |= not_written
                self.agents |= {agent.id: agent for agent in some if agent.id not in failed}
            if answers and not answers[0].returncode:
                self.stopped |= tmux.stopped(answers[0].stdout, stop)
            if len(answers) > 1 and answers[1].returncode in (0, store.SOME_FAILED):
                self.parked |= dict.fromkeys(park, None) | self._moved(park, answers[1].stdout)
        return failed

    def _stop(self, ids: list[str]) -> dict[str, MusterError]:
        self.stopped |= tmux.stop(self.host, [agent_id for agent_id in ids if agent_id not in self.stopped])
        gone = [agent_id for agent_id in ids if agent_id not in self.stopped]
        return {agent_id: NotFound(f"{self.todo[agent_id].status.address} is gone", "muster list") for agent_id in gone}

    def _park(self, ids: list[str]) -> dict[str, MusterError]:
        """Move the work dirs of stopped agents to the trash."""
        ids = [agent_id for agent_id in ids if self.agents[agent_id].mode != "in-place"]
        if left := [agent_id for agent_id in ids if agent_id not in self.parked]:
            done = script(self.host, "trash", "work", *left)
            if done.returncode not in (0, store.SOME_FAILED):
                raise CommandFailed("trash", done.returncode, done.stderr)
            self.parked |= dict.fromkeys(left, None) | self._moved(left, done.stdout)
        # One that could not be moved is tried again if there is a reason to.
        return {agent_id: error for agent_id in ids if (error := self.parked.pop(agent_id)) is not None}

    def _forget(self, ids: list[str]) -> dict[str, MusterError]:
        """Move their folders to the trash and release their names."""
        names = "".join(f"{self.agents[agent_id].name}\n" for agent_id in ids)
        return self._moved(ids, checked(self.host, "trash", "forget", *ids, input=names.encode()))

    def _moved(self, ids: list[str], said: bytes) -> dict[str, MusterError]:
        failed = store.failures(said, ids)
        for agent_id, error in failed.items():
            error.message = f"cannot put {self.agents[agent_id].name} away: {error.message}"
        return failed


def listing(home: str, places: Sequence[Host]) -> list[Gone]:
    """Return everything in the trash of these hosts, newest first. Hosts that do not answer are skipped."""
    found: list[Gone] = []
    for outcome in fanout.each(partial(_read, home), places):
        if outcome.error is None:
            found += outcome.get()
    return sorted(found, key=lambda gone: -gone.destroyed)


def find(home: str, host: Host, name: str) -> Gone | None:
    """Return the destroyed agent with that id, or the last one with that name."""
    gone = [item for item in _read(home, host) if name in (item.agent.name, item.agent.id)]
    return max(gone, key=lambda item: item.destroyed, default=None)


def restore(home: str, host: Host, name: str, new: str) -> Agent:
    """Restore an agent: work dir, branch and index first, the record last."""
    gone = find(home, host, Address.parse(name).name)
    if gone is None:
        raise NotFound(f"there is no {name} in the trash", "muster restore --list shows what is")
    agent = gone.agent._replace(name=check_name(new) if new else gone.agent.name)
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
    if bindings.read(home, place_of(host), agent.id):
        bindings.write(home, place_of(host), agent)
    store.write(host, agent)
    return agent


def gc(
    local: Host,
    cwd: str,
    places: Sequence[tuple[Host, list[Status]]],
    *,
    yes: bool,
    seconds: float,
    destroy: Callable[[Found], object],
) -> list[dict[str, Any]]:
    """Return the leftovers of some hosts; with `yes`, remove those that hold nothing unique.

    `places` are the hosts, each with its agents; `seconds` is how long the trash keeps something; `cwd` may be in a
    repository whose branches are looked at too.
    """
    rows: list[dict[str, Any]] = []
    for host, statuses in places:
        rows += _half_made(host, statuses, yes, destroy)
        try:
            rows += _left_over(local, host, seconds, yes)
            rows += _stale_records(local, host, {status.agent.id for status in statuses}, yes)
        except MusterError as error:
            name = place_of(host) or "local"
            rows.append(_row("host", host, name, "cannot be read", 0, f"failed: {error.message}"))
    every = [status for _, statuses in places for status in statuses]
    return rows + _branches(local, cwd, [status for status in every if not yes or not _cut_off(status)], yes)


def left_hosts(
    home: str,
    made: Mapping[str, float],
    places: Sequence[tuple[Host, list[Status]]],
    unknown: Sequence[str],
    *,
    yes: bool,
    remove: Callable[[str], object],
) -> list[dict[str, Any]]:
    """Return the hosts that muster made (`made`: when) and on which nothing is left; with `yes`, remove them.

    Hosts that do not answer, and those that this machine does not know (`unknown`), are only told of.
    """
    rows = []
    answering = {place_of(host): (host, statuses) for host, statuses in places}
    for place, since in made.items():
        force = f"kept: muster hosts destroy {place} --force"
        if time.time() - since < MAKING_SECONDS:
            continue  # a create may be about to use it
        if place not in answering:
            rows.append(_host_row(place, "does not answer", force))
        elif not answering[place][1]:
            if listing(home, [answering[place][0]]):
                rows.append(_host_row(place, "has only trash", force))
            else:
                rows.append(_host_row(place, "empty", _done(partial(remove, place), yes, "removed")))
    rows += [_host_row(place, "not known here", f"kept: muster list --host {place}") for place in unknown]
    return rows


def _host_row(place: str, verdict: str, action: str) -> dict[str, Any]:
    return {"what": "host", "host": place, "name": place, "verdict": verdict, "bytes": 0, "action": action}


def days(settings: dict[str, Any]) -> int:
    """Return how many days the trash keeps something, from `[trash]`."""
    value = settings.get("days", DAYS)
    return value if isinstance(value, int) else DAYS


def _half_made(
    host: Host, statuses: list[Status], yes: bool, destroy: Callable[[Found], object]
) -> list[dict[str, Any]]:
    """Move agents whose `create` or `destroy` was interrupted to the trash. Damaged records are only reported."""
    rows = []
    for status in statuses:
        if status.agent.phase == "unreadable":
            keep = f"kept: muster destroy {status.address}"
            rows.append(_row("agent", host, status.agent.name, "unique, its record cannot be read", 0, keep))
        elif status.reason == evidence.WITHOUT_SESSION:
            action = _done(partial(tmux.stop, host, [status.agent.id]), yes, "stopped")
            rows.append(_row("processes", host, status.agent.name, status.reason, 0, action))
        elif _cut_off(status):
            action = _done(partial(destroy, Found(host, status)), yes, "to the trash")
            rows.append(_row("half-made agent", host, status.agent.name, status.reason, 0, action))
    return rows


def _cut_off(status: Status) -> bool:
    return status.state == "lost" and status.reason in evidence.CUT_OFF


def _done(act: Callable[[], object], yes: bool, action: str) -> str:
    """Act on one leftover and return what became of it. A failure does not stop the rest."""
    try:
        if yes:
            act()
    except MusterError as error:
        return f"failed: {error.message}"
    return action


def _stale_records(local: Host, host: Host, live: set[str], yes: bool) -> list[dict[str, Any]]:
    """Return this machine's records of agents that are neither on their host nor in its trash."""
    home, place, rows = local.home, place_of(host), []
    known = {*live, *(item.agent.id for item in _read(home, host))}
    for agent_id in bindings.ids(home, place):
        binding = bindings.read(home, place, agent_id)
        # A younger one may belong to a create in progress.
        if agent_id in known or binding is None or time.time() - binding.agent.created < 86400:
            continue

        def forget(agent: Agent = binding.agent) -> None:
            unregister(local, agent)
            bindings.remove(home, place, agent.id)

        rows.append(_row("record", host, agent_id, "its agent is gone", 0, _done(forget, yes, "removed")))
    return rows


def _left_over(local: Host, host: Host, limit: float, yes: bool) -> list[dict[str, Any]]:
    gone = {item.agent.id: item for item in _read(local.home, host)}
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
            # Its origin is unknown, so it is kept as long as everything else, from the day it was moved here.
            gone_for_good = partial(checked, host, "trash", "drop", name)
            action = _done(gone_for_good, yes, "removed") if old else f"kept in trash/{name}: it has no record"
            rows.append(_row("trash", host, name, "unique", size, action))
        elif not expired:
            until = time.strftime("%Y-%m-%d", time.localtime(since + limit))
            rows.append(_row("trash", host, name, _verdict(local, item), size, f"kept until {until}"))
        else:
            verdict = _verdict(local, item)
            rows.append(
                _row("trash", host, name, verdict, size, _done(partial(drop, local.home, item), yes, "removed"))
            )
    return rows


def drop(home: str, gone: Gone) -> None:
    """Remove a destroyed agent for good."""
    checked(gone.host, "trash", "drop", gone.agent.id)
    unregister(gone.host, gone.agent)
    bindings.remove(home, place_of(gone.host), gone.agent.id)


def _branches(local: Host, cwd: str, statuses: list[Status], yes: bool) -> list[dict[str, Any]]:
    """Return `muster/*` branches of the current repository that no agent has."""
    repo = git.find(local, cwd)
    if repo is None:
        return []
    used = {status.agent.branch for status in statuses}
    asked = ["git", f"--git-dir={repo.common}", "for-each-ref", "--format=%(refname:short)", "refs/heads/muster/"]
    rows = []
    for branch in local.run(asked).stdout.decode("utf-8", "surrogateescape").splitlines():
        if branch in used:
            continue
        try:
            alone = git.unique(local, repo.common, f"refs/heads/{branch}", branch)
        except MusterError as error:
            if _exists(local, repo.common, branch):
                rows.append(_row("branch", local, branch, "cannot be read", 0, f"failed: {error.message}"))
            continue  # it was removed since it was listed
        if alone:
            rows.append(_row("branch", local, branch, f"unique ({alone} commit{'s' if alone != 1 else ''})", 0, "kept"))
            continue
        action = _done(partial(_remove_branch, local, repo.common, branch), yes, "removed")
        rows.append(_row("branch", local, branch, "merged", 0, action))
    return rows


def _exists(local: Host, common: str, branch: str) -> bool:
    asked = ["git", f"--git-dir={common}", "show-ref", "--quiet", "--verify", f"refs/heads/{branch}"]
    return local.run(asked).returncode == 0


def _remove_branch(local: Host, common: str, branch: str) -> None:
    done = local.run(["git", f"--git-dir={common}", "branch", "-D", "--", branch])
    if done.returncode and _exists(local, common, branch):
        raise CommandFailed(f"cannot remove {branch}", done.returncode, done.stderr)


def _verdict(local: Host, gone: Gone) -> str:
    if not gone.kept:
        return "merged" if gone.agent.common else "kept in trash"
    head, repo = gone.agent.trash.get("head"), gone.agent.repo
    if isinstance(head, str) and repo and not any("file" in item for item in gone.kept):
        try:
            found = git.find(local, repo)
            if found and not git.unique(local, found.common, head):
                return "merged"
        except MusterError:
            pass  # the repository has no such commit: it was never pulled
    return "unique, kept in trash"


def _row(what: str, host: Host, name: str, verdict: str, size: int, action: str) -> dict[str, Any]:
    return {
        "what": what,
        "host": place_of(host) or None,
        "name": name,
        "verdict": verdict,
        "bytes": size,
        "action": action,
    }


def _read(home: str, host: Host) -> list[Gone]:
    done = script(host, "trash", "list", timeout=store.ANSWER_SECONDS)
    if done.returncode == NotFound.exit_code:
        return []
    if done.returncode:
        raise CommandFailed("trash", done.returncode, done.stderr)
    host_home, _, records = done.stdout.decode("utf-8", "replace").partition("\n")
    found = []
    for line in records.splitlines():
        name, _, text = line.partition("\t")
        try:
            told = Agent.from_json(json.loads(text))
            check_name(told.name)
        except (ValueError, RecursionError, UsageError):
            continue
        if told.id == name and is_id(name):
            found.append(Gone(host, bindings.resolve(home, place_of(host), told, store.absolute(host, host_home))[0]))
    return found


def _trees(agents: Sequence[Agent]) -> dict[str, git.Tree]:
    """Return the trees of those agents that git can compare with their base."""
    return {
        agent.id: tree(agent)
        for agent in agents
        if agent.phase not in ("unreadable", "destroying") and agent.base and agent.workdir and agent.mode != "in-place"
    }


def _worth(host: Host, agents: Sequence[Agent], known: dict[str, git.Info]) -> dict[str, dict[str, Any]]:
    """Return what each agent has beyond its base, in words, and its commit. Git is not asked about those in `known`."""
    found: dict[str, dict[str, Any]] = {agent.id: {"kept": [], "head": None} for agent in agents}
    for agent in agents:
        if agent.phase == "unreadable":
            found[agent.id] = {"kept": ["a record that cannot be read", "its work dir"], "head": None}
    trees = _trees(agents)
    infos = {**known, **_infos(host, {agent_id: at for agent_id, at in trees.items() if agent_id not in known})}
    for agent_id in trees:
        info = infos[agent_id]
        gone = info.dirty is None and host.run(["test", "-d", trees[agent_id].workdir]).returncode != 0
        kept = ["no work dir (it was gone)"] if gone else []
        if info.ahead is None and not gone:
            found[agent_id] = {"kept": ["a work dir that git cannot read"], "head": None}
            continue
        if info.ahead:
            kept.append(f"{info.ahead} commit{'' if info.ahead == 1 else 's'}")
        if info.dirty:
            kept.append(f"{info.dirty} uncommitted file{'' if info.dirty == 1 else 's'}")
        found[agent_id] = {"kept": kept, "head": info.head or None}
    return found


def _infos(host: Host, trees: dict[str, git.Tree]) -> dict[str, git.Info]:
    """Return `git.info` of all trees. If the answer about one cannot be parsed, ask about each alone."""
    try:
        return git.info(host, trees) if trees else {}
    except Unreachable:
        raise
    except MusterError:
        if len(trees) == 1:
            return {agent_id: git.Info(None, None, "") for agent_id in trees}
        return {agent_id: _infos(host, {agent_id: at})[agent_id] for agent_id, at in trees.items()}
