"""The functions of the flow for programs. The command line calls these."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypedDict, Unpack

from .. import Address, Fleet, Spec
from ..errors import NotFound, UsageError
from .improving import setup, stages
from .improving.request import ImproveRequest, check_integrator, integrator_type, protect_tutorial
from .improving.stages import Preview
from .limits import settings
from .limits.limits import Limits
from .mapping import start
from .mapping.scheduler import Scheduler
from .reducing import delivery, pull_request, sources
from .reducing.delivery import Reduced
from .reducing.gate import Gate, Pytest, parse
from .review import paths
from .run import directory as runs
from .run.directory import Run

Item = str | Mapping[str, str]


class AgentOptions(TypedDict, total=False):
    """How agents are made and limited. Each option has the name, the meaning and the default of the command line's."""

    hosts: Sequence[str]
    """Hosts that run the agents, without the `@`; this machine by default."""
    name: str
    """The name of the run; the next free one by default."""
    max_agents: int
    budget: float
    """Dollars of the run."""
    budget_tokens: int
    timeout: float
    """Seconds for each agent."""
    stall: float | None
    """Seconds without a sign of work after which an agent has stalled; 0: never; None: as is usual for the type."""
    retries: int
    questions: Literal["answer", "escalate", "stop"]
    permissions: Literal["ask", "policy", "bypass"]
    on_begin: Callable[[Run, bool], None]
    """Called with the run and whether it is new, before anything is launched."""
    on_warning: Callable[[str], None]
    """Called with a sentence for each thing that a person should know before the run begins."""
    on_event: Callable[[dict[str, Any]], None]
    """Called with each event of the run, see `schemas/event.json`."""
    on_wait: Callable[[Scheduler], None]
    """Called while there is nothing to do but wait, for a display."""


class MapOptions(AgentOptions, total=False):
    prompt: str
    """The first message; `{item}` and the fields of the item are filled in."""
    type: str
    """The type of the agents: the first client that is installed by default."""
    args: Sequence[str]
    """Arguments for each agent, in which the slots are filled in too."""
    mode: Literal["", "worktree", "mirror", "copy", "in-place"]
    branch: str
    clean: bool
    labels: Mapping[str, str]
    new: bool
    """A new run, even if one of the same input is not finished."""
    keep: bool
    """Keep the agents; they are only stopped."""


def map(fleet: Fleet, items: Iterable[Item], **options: Unpack[MapOptions]) -> Run:
    """Run one agent for each item, and return the run when every task has an outcome.

    An item is a text, or a mapping whose fields can be used in `prompt` and `args`. The same call goes on with a run that was interrupted.
    Raises UsageError before anything is made if an option is wrong, and KeyboardInterrupt if a person ended the run (Ctrl-C, `runs stop`).
    """
    request = map_request(fleet, items, **options)
    start.validate(fleet, request)
    warn: Callable[[str], None] = options.get("on_warning", lambda words: None)
    for reason in start.unusable(fleet, request.places):
        warn(f"{reason}; nothing is launched there until that changes")
    run, new = start.open_run(fleet, request)
    if not start.is_over(run):
        with run.holding():
            pass  # another process that runs it is named before anything else is said
    if on_begin := options.get("on_begin"):
        on_begin(run, new)
    if not start.run_map(fleet, request, run, *_callbacks(options)):
        raise KeyboardInterrupt
    return run


def map_request(fleet: Fleet, items: Iterable[Item], **options: Unpack[MapOptions]) -> start.MapRequest:
    """Return what `map` does with these options as one value."""
    kind = options.get("type") or fleet.default_type("give a type; muster doctor shows what is installed")
    name = options.get("name", "")
    if name and not runs.NAME.match(name):
        raise UsageError(f"{name!r} is not a name for a run", "use letters, digits, - and _, at most 40")
    spec = Spec(
        Address(""),
        kind,
        branch=options.get("branch", ""),
        mode=options.get("mode", ""),
        clean=options.get("clean", False),
        labels=dict(options.get("labels", {})),
        timeout=options.get("timeout", 0.0),
        permissions=options.get("permissions", "ask"),
    )
    return start.MapRequest(
        spec,
        options.get("prompt", ""),
        tuple(options.get("args", ())),
        [_fields(item) for item in items],
        places(options),
        name,
        options.get("new", False),
        options.get("keep", False),
        options.get("retries", 1),
        options.get("stall"),
        limits(fleet, kind, options),
        options.get("questions", "answer"),
    )


def _fields(item: Item) -> dict[str, str]:
    if isinstance(item, str):
        return {"item": item}
    if isinstance(item, dict) and "item" in item:
        return item  # as it is: it may know the line that it was read from
    return {"item": json.dumps(dict(item)), **item}


def places(options: AgentOptions) -> tuple[str, ...]:
    return tuple(Address.parse(f"@{host}").place for host in options.get("hosts", ())) or ("",)


def limits(fleet: Fleet, kind: str, options: AgentOptions) -> Limits:
    """Return the options, then `[budget]` and `[limits]` of the configuration, then what one agent of this type needs."""
    machine = {"memory": fleet.type(kind).memory << 20, **fleet.config.amounts("limits")}
    given = {
        "max_agents": options.get("max_agents", 20),
        "dollars": options.get("budget") or None,
        "tokens": options.get("budget_tokens") or None,
    }
    return settings.limits(fleet.config.amounts("budget"), machine, **given)


class ReduceOptions(AgentOptions, total=False):
    """`name` names the run of agents and branches; the other options about agents are for those that resolve conflicts."""

    integrator: str
    """The type that resolves conflicts, or `none`; by default the type of the run's agents."""
    rank: Literal["code", "agent"]
    """Who puts the changes in order."""
    times: int
    """How often a fixed test must pass; 3 or `[improve] times` by default."""
    playbooks: str
    """The directory of playbooks for agents of type replay."""
    pull_request: bool
    """Push the branch and open a pull request with the user's `gh`."""


def reduce(
    fleet: Fleet, what: Run | str | Sequence[str], *, gate: Gate | None = None, **options: Unpack[ReduceOptions]
) -> Reduced:
    """Bring changes together in the branch `muster-run/RUN`, and return what came of it.

    `what` is a run, the name of one, or names of agents and branches. Without a `gate` it is the configured one, else pytest. The same call
    goes on with a reduction that was killed. Raises UsageError before anything is made if an option is wrong, and `Refused` if the branch
    is checked out or has commits that are not the run's.
    """
    names = [what.name] if isinstance(what, Run) else [what] if isinstance(what, str) else list(what)
    gate = configured_gate(fleet) if gate is None else gate
    run, request, new = _reduction(fleet, names, gate, options)
    if on_begin := options.get("on_begin"):
        on_begin(run, new)
    with setup.holding(fleet, run, new):
        delivery.check(fleet, run)
        if options.get("pull_request"):
            pull_request.check(fleet, run.info.repo)
        callbacks = _callbacks(options)
        return delivery.deliver(fleet, request, run, gate, *callbacks, open_request=options.get("pull_request", False))


class ImproveOptions(ReduceOptions, total=False):
    type: str
    """The type of the agents: the first client that is installed by default."""
    args: Sequence[str]
    """Arguments for pytest."""
    tutorial: str
    """The tutorial that tests cite; `[improve] tutorial`, else the usual places, by default."""
    everything: bool
    """Also give agents to tests that need nothing or are done in an open branch."""
    new: bool
    """A new run, even if one of the same request is not finished."""
    keep: bool
    """Keep the agents; they are only stopped."""


def improve(fleet: Fleet, tests: Sequence[str] = (), **options: Unpack[ImproveOptions]) -> Reduced:
    """Let agents improve these tests (files or folders; all tests by default), and return the branch that came of it.

    The same call goes on with a run that was interrupted. Raises UsageError before anything is made if an option is wrong, and
    KeyboardInterrupt if a person ended the run (Ctrl-C, `runs stop`).
    """
    request, (say, shown) = _improve_request(fleet, tests, options), _callbacks(options)
    open_request = options.get("pull_request", False)
    return stages.improve(fleet, request, say, shown, on_begin=_on_begin(options), open_request=open_request)


def preview(fleet: Fleet, tests: Sequence[str] = (), **options: Unpack[ImproveOptions]) -> Preview:
    """Run the tests as `improve` does first, and return what it would do. No agent gets a task."""
    say, _ = _callbacks(options)
    return stages.preview(fleet, _improve_request(fleet, tests, options), say, on_begin=_on_begin(options))


def _improve_request(fleet: Fleet, tests: Sequence[str], options: ImproveOptions) -> ImproveRequest:
    agents: MapOptions = {"clean": True}
    for key in (*AgentOptions.__annotations__, "type", "new", "keep"):
        if key in options:
            agents[key] = options[key]  # type: ignore[literal-required]  # MapOptions has these keys too
    request = _request(fleet, map_request(fleet, (), **agents), options, options.get("tutorial", ""))
    return request._replace(
        paths=tuple(tests), args=tuple(options.get("args", ())), everything=options.get("everything", False)
    )


def configured_gate(fleet: Fleet, args: Sequence[str] = ()) -> Gate:
    """Return the gate of `[reduce] gate`, pytest if there is none; `args` are more arguments for pytest."""
    word = fleet.config.section("reduce").get("gate", "pytest")
    if not isinstance(word, str):
        raise UsageError("[reduce] gate must be text", 'gate = "make test"')
    return parse(word, args)


def _reduction(
    fleet: Fleet, names: Sequence[str], gate: Gate, options: ReduceOptions
) -> tuple[Run, ImproveRequest, bool]:
    """Return the run that is meant, or a new one of these agents and branches (True), with the request for it."""
    try:
        run = runs.find(fleet.home, names[0]) if len(names) == 1 else None
    except NotFound:
        run = None
    args = gate.args if isinstance(gate, Pytest) else ()
    if run is None:
        # Nobody knows who made these changes, so conflicts are only resolved by a type that is named.
        chosen = options.get("integrator", "")
        kind = chosen if chosen not in ("", "none") else "command"
        request = _reduce_request(fleet, kind, options)._replace(args=args)
        check_integrator(fleet, request)
        run, new = sources.collect(fleet, request, names)
        return run, setup.bound_to(request, run), new
    info = run.info
    if info.kind != "improve":
        sources.check_commits(run)
    request = _reduce_request(fleet, info.type, options, info.tutorial)
    asked = options.get("permissions", "ask")
    spec = request.map.spec._replace(permissions=info.permissions if asked == "ask" else asked)
    request = request._replace(
        map=request.map._replace(spec=spec, places=info.places, name=""),
        paths=info.paths,
        args=info.args if info.kind == "improve" else args,
    )
    check_integrator(fleet, request)
    return run, setup.bound_to(request, run), False


def _reduce_request(fleet: Fleet, kind: str, options: ReduceOptions, tutorial: str = "") -> ImproveRequest:
    agents: MapOptions = {"type": kind, "clean": True}
    for key in AgentOptions.__annotations__:
        if key in options:
            agents[key] = options[key]  # type: ignore[literal-required]  # the keys of AgentOptions are in both
    return _request(fleet, map_request(fleet, (), **agents), options, tutorial)


def _request(fleet: Fleet, agents: start.MapRequest, options: ReduceOptions, tutorial: str = "") -> ImproveRequest:
    """Return the options, then `[improve]` of the configuration, as one value."""
    section = fleet.config.section("improve")
    tutorial = tutorial or str(section.get("tutorial", ""))
    integrator = options.get("integrator", "")
    request = ImproveRequest(
        agents._replace(limits=agents.limits._replace(reserve=0.0 if integrator == "none" else 0.1)),
        pytest=configured_words(section, "pytest"),
        lint=configured_words(section, "lint"),
        keep_env=configured_words(section, "env"),
        playbooks=options.get("playbooks", ""),
        tutorial=tutorial,
        times=options.get("times") or int(section.get("times", 3)),
        test_seconds=fleet.config.seconds("improve", "test_timeout", 300),
        suite_seconds=fleet.config.seconds("improve", "suite_timeout", 3600),
        rules=protect_tutorial(paths.Rules.from_config(section), tutorial),
        integrator=integrator,
        rank=options.get("rank", "code"),
    )
    if request.rank == "agent" and integrator_type(fleet, request) == "none":
        raise UsageError("--rank agent needs an agent to ask, and there is none", "--integrator TYPE, or: --rank code")
    return request


def configured_words(section: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """Return a list of words of `[improve]`; UsageError if it is something else."""
    found = section.get(key, [])
    if not isinstance(found, list) or not all(isinstance(word, str) for word in found):
        raise UsageError(f"[improve] {key} must be a list of words", f'{key} = ["uv", "run", "pytest"]')
    return tuple(found)


def _on_begin(options: AgentOptions) -> Callable[[Run, bool], None]:
    return options.get("on_begin", lambda run, new: None)


def _callbacks(options: AgentOptions) -> tuple[start.Say, start.Shown]:
    return options.get("on_event", lambda event: None), options.get("on_wait", lambda scheduler: None)
