"""The verbs. Each method reads as its recipe; the crafts below know how a step is done.

A `Fleet` knows where state lives and which hosts there are. It remembers nothing between two calls,
so any number of them, in any number of processes, see the same agents.
"""

from __future__ import annotations

import contextlib
import fnmatch
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import IO, TYPE_CHECKING, Any, NamedTuple, TypeVar

from . import bindings, config, evidence, fanout, hosts, plugins, store, tmux
from .errors import MusterError, NotFound, Refused, TimedOut, Unreachable, UsageError, close
from .host import Found, Host, place_of, shell_file
from .model import ENDED, LIVE, Address, Agent, Alarm, Bill, Load, Spec, Status, place_name
from .plugins import AgentType, agent_type
from .providers import local

if TYPE_CHECKING:
    import subprocess

    from . import notify, records, workdirs
    from .message import Target

POLL_SECONDS = 0.1
#: Steps that `create` and `destroy` report as they begin. A test kills the process after each of them.
STEPS = {
    "create": ("claim", "seed", "record", "start", "message"),
    "destroy": ("mark", "stop", "park", "forget"),
}


class Event(NamedTuple):
    """Progress as a value: the CLI draws it, tests collect it."""

    verb: str
    step: str
    agent: str


class HostRow(NamedTuple):
    name: str
    provider: str
    reachable: bool
    seen: float
    error: str = ""
    made: bool = False
    """Whether muster made it on this machine, so that `destroy_host` may remove it."""


class Listing(NamedTuple):
    statuses: list[Status]
    hosts: list[HostRow]

    @property
    def unreachable(self) -> list[HostRow]:
        return [row for row in self.hosts if not row.reachable]


T = TypeVar("T")


class Glance(NamedTuple):
    """One host."""

    statuses: list[Status]
    load: Load


class Fleet:
    def __init__(
        self,
        env: Mapping[str, str] | None = None,
        cwd: str = "",
        on_event: Callable[[Event], None] | None = None,
    ) -> None:
        self.env = dict(os.environ if env is None else env)
        self.cwd = cwd or os.getcwd()
        self.home = local.home(self.env)
        self.local: Host = local.LocalHost(self.home)
        self.on_event = on_event or (lambda event: None)
        self._config: config.Config | None = None
        self._hosts: dict[str, Host] = {}
        self._kinds: dict[str, AgentType] = {}
        self.source_seconds = 0.0
        """Seconds for which the state of a repository is cached, because a run creates many agents from the same one."""
        self._sources: dict[tuple[str, str], tuple[float, Any]] = {}
        self._looking = threading.Lock()
        self.alarmed: dict[str, tuple[Alarm, ...]] = {}
        """Agents whose host reports another record than muster wrote, by address."""
        self.repositories: dict[str, dict[Alarm, str]] = {}
        """The user's git directories in which program-running settings have changed: the changes, and since which agent."""

    def lately(self, what: str, path: str, look: Callable[[Host, str], T]) -> T:
        """Return `look(path)` on this machine, cached for `source_seconds`."""
        if not self.source_seconds:
            return look(self.local, path)
        with self._looking:
            seen = self._sources.get((what, path))
            if seen is None or not 0 <= time.monotonic() - seen[0] < self.source_seconds:
                seen = self._sources[what, path] = time.monotonic(), look(self.local, path)
        found: T = seen[1]
        return found

    @property
    def config(self) -> config.Config:
        if self._config is None:
            found = config.load(self.env, self.cwd, self.home)
            if found.section("hosts") or found.section("providers"):
                hosts.check(found)
            self._config = found
        return self._config

    def step(self, verb: str, step: str, agent: str) -> None:
        assert step in STEPS[verb], f"{verb} declares no step {step}"
        self.on_event(Event(verb, step, agent))

    # Hosts

    def host(self, address: Address) -> Host:
        """Return the host that an address names, without asking it anything."""
        place = address.place
        if not place:
            return self.local
        if place not in self._hosts:
            host = hosts.find(place, self.config, self.home)
            self._hosts[place] = self._hosts.setdefault(place_of(host), host)  # `box` and `box.ssh` are one host
        return self._hosts[place]

    def start_host(self, place: str) -> None:
        """Start a stopped host."""
        hosts.start(place_of(self.host(Address("", place))), self.config, self.home)

    def stop_host(self, place: str) -> None:
        """End everything that runs on a host; its files stay."""
        hosts.stop(place_of(self.host(Address("", place))), self.config, self.home)

    def destroy_host(self, place: str, *, force: bool = False) -> None:
        """Remove a host that muster made, and this machine's records of it.

        Raises `Refused` if something can be lost: agents, also those in its trash; a host that does not answer, or that this
        machine does not know. With `force` it is removed all the same.
        """
        from . import trash

        host = self.host(Address("", place))
        place = place_of(host)
        if not force and not hosts.remembered(self.home).get(place, {}).get("made"):
            raise Refused(f"{place} was not made by muster on this machine", f"muster hosts destroy {place} --force")
        try:
            agents = [self._found(status) for status in self._survey(host)]
            kept = len(trash.listing(self.home, [host]))
        except Unreachable as error:
            if not force:
                error.hint = (
                    f"muster hosts start {place}, or remove it with what it has: muster hosts destroy {place} --force"
                )
                raise
            agents, kept = [], 0
        if not force and (agents or kept):
            has = f"{len(agents)} agent{'' if len(agents) == 1 else 's'}, and {kept} in its trash"
            raise Refused(f"{place} has {has}", f"muster hosts destroy {place} --force removes them with it")
        self.stop_all(agents, 0)
        hosts.remove(place, self.config, self.home)
        for agent_id in list(bindings.ids(self.home, place)):
            bindings.remove(self.home, place, agent_id)
        self._hosts.pop(place, None)

    def canonical(self, name: str) -> str:
        """Return an exact name as `list` shows it, with the one word for its host: `foo@box` for `foo@box.ssh`."""
        address = Address.parse(name)
        return str(address._replace(place=place_of(self.host(address))))

    def check_repository(self, one: Found) -> tuple[Alarm, ...]:
        """Return what makes git run programs in the user's repository now and did not when the agent was created.

        It is also kept in `repositories`, for whoever ends a verb with warnings.
        """
        from . import fingerprint

        kept = fingerprint.kept(bindings.fingerprint_path(self.home, place_of(one.host), one.agent.id))
        if kept is None:
            return ()
        common, before = kept
        found = tuple(Alarm(*change) for change in fingerprint.changes(before, fingerprint.take(self.local, common)))
        if found:
            self.repositories.setdefault(common, {}).update({alarm: str(one.status.address) for alarm in found})
        return found

    def _is_own(self, host: Host, agent_id: str, result: str) -> bool:
        key = bindings.result_key(self.home, place_of(host), agent_id)
        return not key or bindings.is_sealed(result, key)

    def change(self, one: Found, how: Callable[[Agent], Agent]) -> Agent:
        """Change the current record of an agent, under a lock that excludes other processes on this machine."""
        place = place_of(one.host)
        with bindings.changing(self.home, place, one.agent.id):
            status = self.look(one)
            agent = how(status.agent)
            if status.bound:
                bindings.write(self.home, place, agent, status.agent)
            store.write(one.host, agent)
            if status.bound:
                bindings.write(self.home, place, agent, sync=False)
        return agent

    def adopt(self, one: Found, repo: str) -> Agent:
        """Start keeping the record of an agent that this machine had none of, with the repository that the user named."""
        place = place_of(one.host)
        with bindings.changing(self.home, place, one.agent.id):
            agent = self.look(one).agent._replace(repo=repo)
            bindings.write(self.home, place, agent)
            store.write(one.host, agent)
        return agent

    def type(self, name: str) -> AgentType:
        try:
            return agent_type(name, self.config.section("types"))
        except UsageError as error:
            if error.message.startswith("[types.") and (file := config.where(self.config, "types", name)):
                error.message = f"{file}: {error.message}"
            raise

    def default_type(self, hint: str = "") -> str:
        """Return the type of the first client that is installed. `hint` tells the user how to name a type to this caller."""
        import shutil

        from . import agents

        for name in agents.DEFAULTS:
            if shutil.which(name, path=self.env.get("PATH")):
                return name
        raise UsageError(
            f"no agent type was named, and none of {', '.join(agents.DEFAULTS)} is on PATH",
            hint or "name one: muster create NAME TYPE, or a program: muster create NAME command -- make test",
        )

    # Looking

    def survey(self, places: Iterable[str] | None = None) -> Listing:
        """Return every agent on all hosts, or on the named ones. Hosts are asked in parallel; one that does not answer is a row."""
        remembered = hosts.remembered(self.home)
        if places is None:
            known = ["", *remembered]
        else:
            known = list(dict.fromkeys(place_of(self.host(Address("", place))) for place in places))

        def ask(place: str) -> list[Status]:
            return self._survey(self.host(Address("", place)))

        statuses: list[Status] = []
        rows: list[HostRow] = []
        for place, outcome in zip(known, fanout.each(ask, known), strict=True):
            seen = remembered.get(place, {})
            kind = hosts.split(place, self.config.section("hosts"), self.home)[1] if place else self.local.provider
            if outcome.error is not None and not place:
                raise outcome.error
            if outcome.error is not None:
                rows.append(
                    HostRow(place, kind, False, float(seen.get("seen", 0)), outcome.error.message, "made" in seen)
                )
            else:
                rows.append(HostRow(place, kind, True, time.time(), made="made" in seen))
                statuses += outcome.get()
        return Listing(statuses, rows)

    def glance(self, place: str) -> Glance:
        """Return all agents of one host and its load, in one round trip. Raises `Unreachable`."""
        return self._glance(self.host(Address("", place)), load=True)

    def crew(self, limit: int) -> fanout.Crew[Any]:
        """Return threads for background work."""
        return fanout.Crew(limit)

    def select(
        self, names: Sequence[str] = (), labels: Mapping[str, str] | None = None, everything: bool = False
    ) -> tuple[list[Found], list[MusterError]]:
        """Return the agents selected by exact names, globs, labels or all, and an error for each name without a match.

        An exact name asks its own host only. Nothing is ever guessed.
        """
        found: dict[tuple[str, str], Found] = {}
        errors: list[MusterError] = []
        exact = [name for name in names if not is_glob(name)]
        globs = [name for name in names if is_glob(name)]
        if not names and not labels and not everything:
            raise UsageError("no agent was named", "name agents, or use globs, -l KEY=VALUE, --all, or - for stdin")
        surveys: dict[str, list[Status]] = {}
        for name in exact:
            try:
                address = Address.parse(name)
                # A single name reads one agent on its host; several names read all agents of the host once.
                place = place_of(host := self.host(address))
                if len(exact) > 1 and place not in surveys:
                    surveys[place] = self._survey(host)
                one = self._named(address, surveys.get(place))
                found[one.key] = one
            except MusterError as error:
                errors.append(error)
        if globs or labels or everything:
            listing = self.survey()
            errors += [Unreachable(f"host {row.name} does not answer: {row.error}") for row in listing.unreachable]
            for glob in globs:
                matches = [s for s in listing.statuses if fnmatch.fnmatchcase(str(s.address), glob)]
                if not matches:
                    errors.append(
                        NotFound(f"no agent matches {glob!r}", _names(status.address for status in listing.statuses))
                    )
                for status in matches:
                    found[status.place, status.agent.id] = self._found(status)
            if not names:
                found = {(status.place, status.agent.id): self._found(status) for status in listing.statuses}
        # Labels narrow the selection by name.
        wanted = (labels or {}).items()
        kept = [one for one in found.values() if all(one.agent.labels.get(key) == value for key, value in wanted)]
        if found and not kept:
            which = "no agent that was named has these labels" if names else "no agent has these labels"
            errors.append(NotFound(which, _names(one.status.address for one in found.values())))
        return kept, errors

    def get(self, name: str) -> Found:
        """Return the agent with exactly that name. Raises `NotFound`."""
        if is_glob(name):
            chosen, errors = self.select([name])
            if errors:
                raise errors[0]
            if len(chosen) > 1:
                raise UsageError(f"{name!r} matches {len(chosen)} agents", _names(one.status.address for one in chosen))
            return chosen[0]
        return self._named(Address.parse(name))

    def seek(self, name: str) -> Found | None:
        """Return the agent with exactly that name, asking only its own host, or None."""
        try:
            return self._named(Address.parse(name))
        except NotFound:
            return None

    def look(self, one: Found) -> Status:
        """Return the present status of an agent."""
        return self._only(one, self._glance(one.host, one=(one.agent.name, one.agent.id)))

    def _only(self, one: Found, glance: Glance) -> Status:
        for status in glance.statuses:
            return status
        raise NotFound(f"{one.status.address} is gone", "muster list")

    def explain(self, one: Found) -> Status:
        """Return the present status with additional evidence from the screen."""
        from . import tmux

        looks = self._known(one.agent.type).retries
        shown = (tmux.screen(one.host, one.agent.id) or "") if looks and one.status.state in LIVE else ""
        status = evidence.screened(one.status, shown, looks)
        if not (alarms := self.check_repository(one)):
            return status
        more = evidence.repository(alarms, status.now)
        return status._replace(alarms=(*status.alarms, *alarms), evidence=(*status.evidence, *more))

    def bills(self, statuses: Sequence[Status]) -> list[Bill]:
        """Return what each agent used and what that cost."""
        if not any(status.usage for status in statuses):
            return [Bill() for _ in statuses]
        from . import prices

        return prices.bills([status.usage for status in statuses], self.home, self.config.section("prices"))

    def wait(
        self,
        chosen: Sequence[Found],
        until: frozenset[str],
        *,
        any_one: bool = False,
        timeout: float | None = None,
        seen: Callable[[Status], None] | None = None,
    ) -> list[Status]:
        """Wait until all agents, or any one, are in one of these states. Return their statuses in the given order.

        Raises `TimedOut`; and `MusterError` when one has ended in a state that can no longer become one of them.
        """
        watch = self.watch() if any(not one.host.local for one in chosen) else None
        deadline = None if timeout is None else time.monotonic() + timeout
        latest = {one.key: one.status for one in chosen}
        by_place = {place_of(one.host): one.host for one in chosen}
        # Each host is asked on a thread of its own, so that one that does not answer delays no other.
        asking = fanout.Crew[str](len(by_place))
        due = dict.fromkeys(by_place, 0.0)
        reached: set[tuple[str, str]] = set()
        while True:
            if watch:
                watch.see(latest.values())
            for key, status in latest.items():
                if status.state in until and key not in reached:
                    reached.add(key)
                    if seen:
                        seen(status)
                elif status.state not in until:
                    reached.discard(key)
                    if status.state in ENDED and not any_one:
                        raise MusterError(
                            f"{status.address} is {status.state}, it will not be {' or '.join(sorted(until))}",
                            f"muster explain {status.address}",
                        )
            if len(reached) == len(latest) or (any_one and reached):
                return list(latest.values())
            now = time.monotonic()
            if deadline is not None and now > deadline:
                late = [status for key, status in latest.items() if key not in reached]
                names = ", ".join(f"{status.address} (still {status.state})" for status in late)
                raise TimedOut(f"timed out waiting for {names}", "muster list")
            for place, host in by_place.items():
                if place not in asking.busy and now >= due[place]:
                    asking.start(place, partial(self._survey, host))
            for answer in asking.done(POLL_SECONDS):
                due[answer.item] = time.monotonic() + POLL_SECONDS
                mine = [key for key in latest if key[0] == answer.item]
                if isinstance(answer.error, Unreachable):
                    # A host that is cut off may come back, so keep waiting for its agents.
                    latest |= {key: latest[key]._replace(state="unreachable") for key in mine}
                    continue
                statuses: list[Status] = answer.get()  # type: ignore[assignment]  # what _survey returns
                seen_now = {status.agent.id: status for status in statuses}
                for key in mine:
                    if key[1] not in seen_now:
                        raise NotFound(f"{latest[key].address} was destroyed while waiting")
                    latest[key] = seen_now[key[1]]

    def watch(self, beside: bool = False) -> notify.Watch:
        """Run the user's `[notify]` command for agents on other hosts. With `beside`, do not wait for it."""
        from . import notify

        return notify.Watch(self._user(), beside)

    def alert(self, run: str, cause: str, text: str) -> None:
        """Run the user's `[notify]` command for an alert of a run."""
        from . import notify

        notify.alert(self._user(), run, cause, text)

    def _user(self) -> notify.User:
        from . import notify

        return notify.User(self.config.section("notify"), self.home, self.env)

    # Living

    def create(self, spec: Spec, session: dict[str, bytes] | None = None) -> Found:
        """Create an agent: claim, seed, record, start, and the first message. `births` has the details.

        `session` has the files of a conversation to go on with.
        """
        from . import births

        if spec.address.maker:
            return self._on_new_host(spec, session)
        kind, step = self._creatable(spec), partial(self.step, "create")
        host = self.host(spec.address)
        return births.create(self._here(), host, spec, kind, self.config, step, self.message, session)

    def check(self, spec: Spec) -> None:
        """Raise the errors that `create` would raise for the spec and its source, without creating anything or asking a host."""
        from . import births, workdirs

        births.check(spec, self._creatable(spec), self.config)
        place = self._new_place(spec.address.maker) if spec.address.maker else spec.address.place
        workdirs.plan(self._here(), self.host(Address("", place)), spec)

    def _on_new_host(self, spec: Spec, session: dict[str, bytes] | None) -> Found:
        """Make a host for the agent, unless its spec is wrong. If the agent cannot be made, the host is removed again."""
        self.check(spec)
        place = self._new_place(spec.address.maker)
        self._hosts[place] = hosts.make(place, self.config, self.home)
        try:
            return self.create(spec._replace(address=Address(spec.address.name, place)), session)
        except MusterError:
            with contextlib.suppress(MusterError):
                self.destroy_host(place)
            raise

    def _new_place(self, provider: str) -> str:
        """Return the place of a host that does not exist: two words that every kind of provider takes as a name."""
        from .births import free_name

        plugins.provider(provider)  # an unknown one is no part of a place but of a name with a dot
        taken = {place.rpartition(".")[0] for place in hosts.remembered(self.home)}
        return place_name(free_name(taken), provider)

    def _creatable(self, spec: Spec) -> AgentType:
        """Return the type that a spec names. Raises `NotFound` if its program is missing on this machine and would run here."""
        from . import births

        kind = self.type(spec.type)
        if not spec.address.place:
            births.check_installed(kind, self.env.get("PATH", ""))
        return kind

    def _here(self) -> workdirs.Here:
        from . import git, workdirs

        return workdirs.Here(
            self.local,
            self.cwd,
            lambda folder: self.lately("repository", folder, git.find),
            lambda top: self.lately("state", top, git.capture),
            self.get,
        )

    def start(self, one: Found) -> bool:
        """Resume an agent that has ended. Return False if it is already running."""
        from . import births

        return births.start(one, self.config.section("notify"))

    def stop(self, one: Found, grace: float = 5.0) -> tmux.Stopped:
        """End every process of the agent. Its work dir, branch and conversation stay."""
        return self.stop_all([one], grace)[0].get()

    def stop_all(self, chosen: Sequence[Found], grace: float = 5.0) -> list[fanout.Outcome[Found, tmux.Stopped]]:
        """Stop many agents, with one round trip per host. Results are in the given order."""
        by_place: dict[str, list[Found]] = {}
        for one in chosen:
            by_place.setdefault(place_of(one.host), []).append(one)

        def stop(group: list[Found]) -> dict[str, tmux.Stopped]:
            return tmux.stop(group[0].host, [one.agent.id for one in group], grace)

        done = dict(zip(by_place, fanout.each(stop, by_place.values()), strict=True))

        def of(one: Found) -> fanout.Outcome[Found, tmux.Stopped]:
            outcome = done[place_of(one.host)]
            if outcome.error is not None:
                return fanout.Outcome(one, None, outcome.error)
            stopped = outcome.get().get(one.agent.id)
            error = None if stopped else NotFound(f"{one.status.address} is gone", "muster list")
            return fanout.Outcome(one, stopped, error)

        return [of(one) for one in chosen]

    def exec(self, one: Found, argv: Sequence[str], *, terminal: bool, **streams: Any) -> subprocess.Popen[bytes]:
        """Run a command in the agent's work dir, on the caller's streams."""
        command = ["sh", "-c", shell_file("exec"), "muster-exec", one.host.home, one.agent.id, one.agent.cwd, *argv]
        if terminal:
            return self.local.stream(one.host.attach(command), **streams)
        return one.host.stream(command, **streams)

    def message(self, one: Found, text: str, *, raw: bool = False) -> str:
        from . import message

        kind = self.type(one.agent.type)
        if not raw:
            text = message.guarded(kind, text)
        return message.deliver(self._target(one), one.status, kind, text)

    def answer(self, one: Found, text: str) -> str:
        from . import dialogs

        return dialogs.answer(self._target(one), self.type(one.agent.type), text)

    def _target(self, one: Found) -> Target:
        from . import message

        def read(done: subprocess.CompletedProcess[bytes]) -> Status:
            return self._only(one, self._judge(one.host, store.surveyed(one.host, done)))

        return message.Target(one.host, lambda: self.look(one), store.survey_step(one.agent.name, one.agent.id), read)

    def rename(self, one: Found, new: str) -> Agent:
        """Rename an agent and its branch. After a kill at any moment, the same call completes the rename."""
        from . import git
        from .model import check_name
        from .workdirs import tree

        check_name(new)
        host, place = one.host, place_of(one.host)
        with bindings.changing(self.home, place, one.agent.id):
            status = self.look(one)
            agent = status.agent
            follows = agent.branch == f"muster/{agent.name}" and agent.mode in ("worktree", "mirror")
            renamed = agent._replace(name=new, branch=f"muster/{new}" if follows else agent.branch)
            if status.bound:
                bindings.write(self.home, place, renamed, agent)
            undo: list[Callable[[], object]] = []
            try:
                store.take_name(host, agent, new)
                if new != agent.name:
                    undo.append(lambda: store.drop_name(host, agent, new))
                git.rename(host, tree(agent), renamed.branch)
                undo.append(lambda: git.rename(host, tree(renamed), agent.branch))
                store.rename(host, renamed, agent.name)
            except Unreachable:
                raise  # how far the rename came is unknown
            except MusterError:
                for step in reversed(undo):
                    with contextlib.suppress(MusterError):  # report the first error
                        step()
                if status.bound:
                    bindings.write(self.home, place, agent)
                raise
            if status.bound:
                bindings.write(self.home, place, renamed)
        return renamed

    def label(self, one: Found, labels: Mapping[str, str], remove: Iterable[str] = ()) -> Agent:
        def labelled(agent: Agent) -> Agent:
            kept = {key: value for key, value in {**agent.labels, **labels}.items() if key not in remove}
            return agent._replace(labels=kept)

        remove = set(remove)
        return self.change(one, labelled)

    def clone(self, one: Found, address: Address, text: str, labels: dict[str, str]) -> Found:
        """Create another agent with the commits, the uncommitted work and the conversation of this one."""
        from . import births

        if not address.place and one.status.address.place:
            address = address._replace(place=one.status.place)
        if not one.status.bound and self.host(address) is not one.host:
            raise Refused(
                f"this machine has no record of what {one.status.address} runs, so it is not started on another host",
                f"muster create NEW TYPE --from {one.status.address}",
            )
        spec, session = births.clone(one, self.type(one.agent.type), address, text, labels)
        try:
            return self.create(spec, session)
        except Refused as error:
            error.hint = error.hint.replace("--reuse to go on with it, ", "")  # clone has no such option
            raise

    def destroy(self, one: Found) -> dict[str, Any]:
        """Remove the agent and move everything of it to the trash. Return what is kept there."""
        return self.destroy_all([one])[0].get()

    def destroy_all(self, chosen: Sequence[Found]) -> list[fanout.Outcome[Found, dict[str, Any]]]:
        """Destroy many agents. Results are in the given order."""
        from . import trash

        for one in chosen:
            self.check_repository(one)
        return trash.destroy(self.home, chosen, self._trash_days(), partial(self.step, "destroy"))

    def trash(self) -> list[dict[str, Any]]:
        from . import trash

        return [
            {
                "name": gone.agent.name,
                "address": str(gone.address),
                "id": gone.agent.id,
                "type": gone.agent.type,
                "destroyed": gone.destroyed,
                "kept": gone.kept,
            }
            for gone in trash.listing(self.home, [host for host, _ in self._answering()])
        ]

    def restore(self, name: str, new: str = "") -> Found:
        from . import trash

        address = Address.parse(name)
        agent = trash.restore(self.home, self.host(address), name, new)
        return self.get(str(address._replace(name=agent.name)))

    def gc(self, *, yes: bool = False, older: float | None = None) -> list[dict[str, Any]]:
        """Return what is left over; with `yes`, remove it unless something unique could be lost."""
        from . import trash

        seconds = self._trash_days() * 86400.0 if older is None else older
        answering = self._answering()
        rows = trash.gc(self.local, self.cwd, answering, yes=yes, seconds=seconds, destroy=self.destroy)
        notes = hosts.remembered(self.home).items()
        made = {place: note["made"] for place, note in notes if isinstance(note.get("made"), float)}
        unknown = hosts.unknown(self.config, self.home)
        return rows + trash.left_hosts(self.home, made, answering, unknown, yes=yes, remove=self.destroy_host)

    def _trash_days(self) -> int:
        from . import trash

        return trash.days(self.config.section("trash"))

    def _answering(self) -> list[tuple[Host, list[Status]]]:
        """Return the hosts that answer, each with its agents."""
        listing = self.survey()
        places = [self.host(Address("", row.name)) for row in listing.hosts if row.reachable]
        return [(host, [status for status in listing.statuses if status.place == place_of(host)]) for host in places]

    # Their work

    def git_counts(self, statuses: Iterable[Status]) -> dict[tuple[str, str], tuple[int, int]]:
        from . import work

        return work.counts(self.host, statuses)

    def diff(self, one: Found, *, stat: bool = False, name_only: bool = False, committed: bool = False) -> bytes:
        from . import work

        self.check_repository(one)
        return work.diff(one, stat=stat, name_only=name_only, committed=committed)

    def patch(self, one: Found) -> AbstractContextManager[IO[bytes]]:
        """Stream what `diff` returns, which may be larger than memory."""
        from . import work

        return work.patch(one)

    def pull(
        self,
        one: Found,
        *,
        how: str = "",
        uncommitted: bool = False,
        force: bool = False,
        to: str = "",
        empty: bool = True,
    ) -> dict[str, Any]:
        from . import work

        self.check_repository(one)
        adopt = partial(self.adopt, one)
        return work.pull(
            self.local, self.cwd, one, adopt, how=how, uncommitted=uncommitted, force=force, to=to, empty=empty
        )

    def uncommitted_files(self, one: Found) -> list[str]:
        from . import work

        return work.uncommitted_files(one)

    def pull_files(self, one: Found, patterns: list[str], to: str = "") -> list[str]:
        from . import work

        return work.pull_files(self.cwd, one, patterns, to)

    def push(self, one: Found, ref: str = "HEAD", *, merge: bool = False) -> dict[str, Any]:
        from . import work

        return work.push(self.local, self.cwd, one, ref, partial(self.change, one), merge=merge)

    def snapshots(self, one: Found) -> list[dict[str, Any]]:
        from . import work

        return work.snapshots(one)

    def snapshot(self, one: Found, action: str, name: str = "") -> tuple[str, str]:
        from . import work

        return work.snapshot(one, action, name)

    # What they left

    def screen(self, name: str, *, ansi: bool = False, scrollback: bool = False) -> tuple[str, str]:
        from . import records

        return records.screen(self.local, self._left(name), ansi=ansi, scrollback=scrollback)

    def cast(self, name: str | Found, idle: float | None = None) -> Iterator[str]:
        from . import records

        return records.recording(self.home, self._left(name), idle)

    def artifacts(self, one: Found, limit: int) -> AbstractContextManager[IO[bytes]]:
        """Stream a tar of the artifacts that the agent submitted, cut at `limit` bytes. It is hostile input."""
        return store.artifacts(one.host, one.agent.id, limit)

    def transcript(self, name: str | Found) -> list[dict[str, Any]]:
        from . import records

        left = self._left(name)
        return records.transcript(left, self.type(left.agent.type))

    def events(self, name: str | Found) -> list[dict[str, Any]]:
        from . import records

        return records.events(self._left(name))

    def follow(self, name: str, what: str, skip: int) -> Iterator[dict[str, Any]]:
        from . import records

        left = self._left(name)
        if what == "events":
            return records.follow_events(left, skip)
        return records.follow_transcript(left, self.type(left.agent.type), skip)

    def playbook(self, one: Found) -> list[dict[str, Any]]:
        from . import records

        return records.playbook(self.local, one, self.type(one.agent.type))

    def _left(self, name: str | Found) -> records.Left:
        """Return the agent of that name, or the one destroyed last that had it (or has that id)."""
        from . import records

        if isinstance(name, Found):
            return records.Left(name.host, name.agent)
        try:
            one = self.get(name)
            return records.Left(one.host, one.agent)
        except NotFound:
            from . import trash

            address = Address.parse(name)
            gone = trash.find(self.home, self.host(address), address.name)
            if gone is None:
                raise
            return records.Left(gone.host, gone.agent)

    # Inside

    def _found(self, status: Status) -> Found:
        return Found(self.host(status.address), status)

    def _named(self, address: Address, statuses: list[Status] | None = None) -> Found:
        """Return the agent of that name, which is one of `statuses` if these are given. No other host is asked about it."""
        host = self.host(address)
        place = place_of(host)
        if statuses is None:
            statuses = self._glance(host, one=(address.name, "")).statuses
            meant = any(status.bound for status in statuses if status.agent.name == address.name)
            if not meant and address.name in bindings.names(self.home, place):
                # An agent that muster made has this name, and the host handed out another one or none.
                statuses = self._survey(host)
        named = [status for status in statuses if status.agent.name == address.name]
        if not named:
            raise NotFound(f"there is no agent {address}", self._suggestion(address.name, place, statuses))
        return Found(host, max(named, key=lambda status: status.bound))

    def _suggestion(self, name: str, asked: str, statuses: Sequence[Status]) -> str:
        """Return a hint: agents of that or a similar name, or else all. Those of places that were not asked are as remembered here."""
        places = {*hosts.remembered(self.home), ""} - {asked}
        others = [Address(other, place) for place in sorted(places) for other in bindings.names(self.home, place)]
        known = [status.address for status in statuses] + others
        alike = close(name, {one.name for one in known})
        meant = [str(one) for name in alike for one in known if one.name == name]
        return f"did you mean {' or '.join(meant[:3])}?" if meant else _names(known)

    def _survey(self, host: Host) -> list[Status]:
        return self._glance(host).statuses

    def _glance(self, host: Host, load: bool = False, one: tuple[str, str] | None = None) -> Glance:
        try:
            survey = store.survey(host, load=load, one=one)
        except TimedOut as error:
            raise Unreachable(f"host {place_of(host)} did not answer within {store.ANSWER_SECONDS:.0f} s") from error
        return self._judge(host, survey)

    def _judge(self, host: Host, survey: store.Survey) -> Glance:
        """Say of each agent that a survey shows what state it is in."""
        if not host.local:
            hosts.remember(self.home, host)
        place = place_of(host)
        statuses = []
        for seen in survey.agents:
            agent, alarms, bound = bindings.resolve(self.home, place, seen.agent, survey.home)
            if bound and seen.result and not self._is_own(host, agent.id, seen.result):
                alarms = (*alarms, Alarm("result", "", seen.result[:200]))
            status = evidence.judge(
                agent,
                seen.events,
                seen.pane,
                survey.now,
                speaks=(kind := self._known(agent.type)).speaks,
                creator_alive=seen.creator_alive,
                last_line=seen.last_line,
                shows=kind.shows,
                processes=seen.processes,
                choice=kind.choice,
                box=kind.input,
                cursor=kind.cursor,
                client=kind.status(seen.client, agent.session) if kind.status else evidence.client_status(seen.client),
                resets=kind.resets,
            )
            said = evidence.last_word(seen.events)
            if alarms:
                self.alarmed[str(status._replace(host=host.name, provider=host.provider).address)] = alarms
                status = status._replace(evidence=(*status.evidence, *evidence.changed(alarms, survey.now)))
            statuses.append(
                status._replace(
                    host=host.name,
                    provider=host.provider,
                    usage=seen.usage,
                    result=seen.result,
                    question=evidence.question(status, seen.events),
                    bound=bound,
                    alarms=alarms,
                    last_line=said or ("" if kind.speaks and status.state == "working" else seen.last_line),
                )
            )
        return Glance(statuses, survey.load)

    def _known(self, name: str) -> AgentType:
        if name == "command":
            return AgentType(name)
        if name not in self._kinds:
            try:
                self._kinds[name] = self.type(name)
            except MusterError:
                # The configuration no longer has its type, but its events still count.
                self._kinds[name] = AgentType(name, speaks=True)
        return self._kinds[name]


def is_glob(name: str) -> bool:
    return any(char in name for char in "*?[")


def _names(agents: Iterable[Address]) -> str:
    names = [str(address) for address in agents]
    if not names:
        return "there are no agents; muster create makes one"
    return "agents: " + ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
