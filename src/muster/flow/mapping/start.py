"""Starts or continues a run of `map`: makes its directory from the input, and runs a scheduler over it."""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

from ... import Address, AgentType, Fleet, Spec
from ...errors import MusterError, Unreachable, UsageError
from ..limits import budget, settings
from ..limits.breaker import Breaker
from ..limits.budget import Estimate
from ..limits.governor import Governor, Limits
from ..run import directory as runs
from ..run import escalations, git, tasks
from ..run.records import GOOD, Control, Finished, RunInfo
from .fleet_backend import FleetBackend
from .scheduler import ENDED_BY_US, SETTABLE, Options, Scheduler, cannot_use
from .supervise import Policy

#: Seconds without a sign of work after which a client counts as stalled. A command may be silent as long as it likes.
STALL = 1800.0
#: Seconds for which the state of the user's repository is cached between launches.
SOURCE_SECONDS = 2.0

Say = Callable[[dict[str, Any]], None]
Shown = Callable[[Scheduler], None]


class MapRequest(NamedTuple):
    """What the user asks `map` for."""

    spec: Spec
    """The agent of every task; its address, arguments, message and labels are filled in for each."""
    prompt: str
    args: tuple[str, ...]
    items: list[dict[str, str]]
    places: tuple[str, ...] = ("",)
    name: str = ""
    new: bool = False
    keep: bool = False
    retries: int = 1
    stall: float | None = None
    """Seconds; None means the default of the type."""
    limits: Limits = Limits()
    questions: str = "answer"


def estimate(fleet: Fleet, request: MapRequest) -> tuple[Estimate, Limits]:
    """Return what the run will cost, judged by former runs of this type, and the limits with that expectation."""
    mean = settings.mean(fleet.home, os.path.realpath(request.spec.source or fleet.cwd), request.spec.type)
    limits = request.limits._replace(expected_dollars=mean.dollars, expected_tokens=mean.tokens)
    return budget.estimate(len(request.items), limits, mean), limits


def validate(fleet: Fleet, request: MapRequest) -> None:
    """Raise UsageError if the request cannot work. Nothing is created."""
    kind = fleet.type(request.spec.type)
    unattended(kind, request.spec.permissions)
    if not request.items:
        raise UsageError("there are no items", "one a line on stdin: ls | muster map …, or --items FILE")
    if kind.speaks and kind.prompt != "environment" and not request.prompt:
        raise UsageError(f"{kind.name} needs a prompt", "-p 'Look at {item}'")
    for place in request.places:
        for task in tasks.tasks(request.items[:1], request.prompt, request.args):
            name = f"check-{os.urandom(4).hex()}"  # unused, so that no existing branch is in the way
            address = Address.parse(f"{name}@{place}" if place else name)
            fleet.check(request.spec._replace(address=address, message=task.prompt, args=task.args))


def unusable(fleet: Fleet, places: Sequence[str]) -> list[str]:
    """Return why agents cannot run on some of these hosts, one sentence each. Raises if they can run on none of them.

    The error is `Unreachable` if no host answers at all.
    """
    crew = fleet.crew(32)
    for place in set(places):
        crew.start(place, partial(fleet.glance, place))
    errors: dict[str, MusterError] = {}
    while crew.busy:
        errors |= {ended.item: ended.error for ended in crew.done(1.0) if ended.error is not None}
    reasons = [cannot_use(place, errors[place]) for place in dict.fromkeys(places) if place in errors]
    if len(errors) < len(set(places)):
        return reasons
    kind = Unreachable if all(isinstance(error, Unreachable) for error in errors.values()) else MusterError
    message = reasons[0] if len(reasons) == 1 else f"no host can be used: {'; '.join(reasons)}"
    raise kind(message, errors[places[0]].hint)


def unattended(kind: AgentType, permissions: str) -> None:
    """Raise UsageError if the client would ask a person for permissions."""
    if kind.bypass and permissions == "ask":
        raise UsageError(
            f"{kind.name} asks a person for permissions, and there is none in a run",
            "--permissions bypass, or --permissions policy with [permissions] in the configuration",
        )


def open_run(fleet: Fleet, request: MapRequest) -> tuple[runs.Run, bool]:
    """Return the unfinished run of the same input, or a new run and True."""
    made = tasks.tasks(request.items, request.prompt, request.args)
    spec = request.spec
    source = os.path.realpath(spec.source or fleet.cwd)
    same = [spec.type, request.prompt, request.args, request.items, request.places, source, spec.branch, spec.mode]
    digest = tasks.digest(same)
    if request.name:
        known = [run for run in runs.all_runs(fleet.home) if run.name == request.name]
        if known and known[0].info.digest != digest:
            raise UsageError(f"run {request.name} was made for other input", "--run ANOTHER-NAME")
        if known and not request.new:
            return known[0], False
    elif not request.new and (found := next((run for run in runs.of(fleet.home, digest) if not is_over(run)), None)):
        return found, False
    info = RunInfo(
        digest=digest,
        repo=git.top(fleet.local, source) or source,
        source=source,
        base=git.commit(fleet.local, source, spec.branch or "HEAD"),
        type=spec.type,
        prompt=request.prompt,
        args=request.args,
        places=request.places,
        permissions=spec.permissions,
    )
    name = request.name or runs.free_name(fleet.home, "map")
    return runs.make(fleet.home, name, info, made), True


def run_map(fleet: Fleet, request: MapRequest, run: runs.Run, say: Say, shown: Shown) -> bool:
    """Work on a run until every task has an outcome (True), or a person ends it. `Refused` if another process runs it."""
    if is_over(run):
        return True
    with run.holding():
        if run.finished():
            os.unlink(run.path("finished.json"))
        escalations.record(fleet.home, run)  # a former process may have been killed before this
        say(run.event("begun", time.time(), run=run.name, tasks=len(run.tasks())))

        def on_event(event: dict[str, Any]) -> None:
            if event["kind"] == "outcome":
                with contextlib.suppress(OSError):  # full disk: this is repeated at the end
                    escalations.record(fleet.home, run, str(event["task"]))  # people need not wait for the other tasks
            say(event)

        # A task with a base is a question that a reduce has asked an integrator. The next reduce goes on with it.
        own = [task.id for task in run.tasks() if not task.base]
        done = run_tasks(fleet, request, run, on_event, shown, only=own, reopen=True)
        escalations.record(fleet.home, run)
        if done:
            finish(run, say)
        return done


def is_over(run: runs.Run) -> bool:
    """Return whether nothing is left to do. Tasks that were cancelled or had no budget can still be done."""
    finished = run.finished()
    return finished is not None and not any(finished.outcomes.get(name) for name in ENDED_BY_US)


def stop(fleet: Fleet, run: runs.Run, say: Say) -> None:
    """End a run that no process runs any more: harvest and end its agents, and cancel the other tasks."""
    spec = Spec(Address(""), run.info.type, permissions=run.info.permissions)
    request = MapRequest(spec, "", (), [], run.info.places)
    with run.holding():
        if run_tasks(fleet, request, run, say, lambda scheduler: None, wanted="stopped"):
            finish(run, say)


def run_tasks(
    fleet: Fleet,
    request: MapRequest,
    run: runs.Run,
    say: Say,
    shown: Shown,
    *,
    only: Iterable[str] | None = None,
    wanted: str = "",
    reopen: bool = False,
) -> bool:
    """Work on the run's tasks until each has an outcome (True), or a person ends it. The caller holds the run.

    `only` limits the work to these ids. `wanted` is what control.json asks for at first. `reopen`: also work on tasks that were
    cancelled or had no budget.
    """
    kind = fleet.type(request.spec.type)
    limits = estimate(fleet, request)[1]
    fleet.source_seconds = SOURCE_SECONDS
    backend = FleetBackend(fleet, run, request.spec, speaks=kind.speaks, keep=request.keep, hosts=len(request.places))
    state = runs.read(run.path("state.json")) or {}
    governor = Governor.from_json(limits, state.get("governor"), backend.now())
    breaker = Breaker()
    breaker.restore(state.get("breaker"))
    if any(pause.state == "stopped" for pause in breaker.pauses.values()):
        breaker.lift()  # a person who starts the run again has fixed the cause, or will see it again
    if run.control() != Control() or wanted:
        # What was asked of a former process does not count any more; what is typed now does.
        run.ask(state=wanted, **dict.fromkeys(SETTABLE))
    chosen = None if only is None else frozenset(only)
    proven = kind.prompt == "typed" and bool(kind.receipt)
    options = Options(request.places, policy(kind, request), request.retries, chosen, reopen, proven)
    scheduler = Scheduler(run, options, governor, breaker, backend, say, random.random)
    backend.on_wait = lambda: shown(scheduler)
    undo = backend.count_interrupts()
    try:
        return scheduler.work()
    finally:
        undo()


def policy(kind: AgentType, request: MapRequest) -> Policy:
    default = STALL if kind.speaks else 0.0
    return Policy(kind.speaks, default if request.stall is None else request.stall, request.questions)


def finish(run: runs.Run, say: Say, commit: str | None = None, branch: str = "") -> None:
    now, outcomes = time.time(), run.picture()["outcomes"]
    run.save(Finished(now, outcomes, commit, branch))
    say(run.event("finished", now, outcomes=outcomes))


def exit_code(outcomes: dict[str, int]) -> int:
    """Return the exit code of a run that is over."""
    bad = {name for name, count in outcomes.items() if count} - GOOD
    return 0 if not bad else 4 if bad <= {"timeout", "over-budget"} else 1
