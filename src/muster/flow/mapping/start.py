"""How a run is begun or gone on with: the input becomes a directory, the directory a scheduler over the fleet."""

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
from ..limits import budget as purse
from ..limits import settings
from ..limits.breaker import Breaker
from ..limits.budget import Estimate
from ..limits.governor import Governor, Limits
from ..run import directory as runs
from ..run import escalations, git, tasks
from ..run.records import GOOD, Control, Finished, RunInfo
from .fleet_backend import FleetField
from .scheduler import ENDED_BY_US, SETTABLE, Plan, Scheduler, cannot_use
from .supervise import Rules

#: A client that gives no sign of work for so long hangs; a command may be silent as long as it likes.
STALL = 1800.0
#: The launches of so long share one look at the user's repository.
SOURCE_SECONDS = 2.0

Say = Callable[[dict[str, Any]], None]
Shown = Callable[[Scheduler], None]


class Wish(NamedTuple):
    """What `map` is asked for."""

    spec: Spec
    """The agent of every task; its address, arguments, message and labels are completed for each."""
    prompt: str
    args: tuple[str, ...]
    items: list[dict[str, str]]
    places: tuple[str, ...] = ("",)
    name: str = ""
    new: bool = False
    keep: bool = False
    retries: int = 1
    stall: float | None = None
    """None: as is usual for the type."""
    limits: Limits = Limits()
    questions: str = "answer"


def estimate(fleet: Fleet, wish: Wish) -> tuple[Estimate, Limits]:
    """What it will come to, by what former runs of this type came to; and the limits with that in them."""
    mean = settings.mean(fleet.home, os.path.realpath(wish.spec.source or fleet.cwd), wish.spec.type)
    limits = wish.limits._replace(expected_dollars=mean.dollars, expected_tokens=mean.tokens)
    return purse.estimate(len(wish.items), limits, mean), limits


def check(fleet: Fleet, wish: Wish) -> None:
    """What is wrong with the words is found before anything is made."""
    kind = fleet.type(wish.spec.type)
    unattended(kind, wish.spec.permissions)
    if not wish.items:
        raise UsageError("there are no items", "one a line on stdin: ls | muster map …, or --items FILE")
    if kind.speaks and kind.prompt != "environment" and not wish.prompt:
        raise UsageError(f"{kind.name} needs a prompt", "-p 'Look at {item}'")
    for place in wish.places:
        for task in tasks.tasks(wish.items[:1], wish.prompt, wish.args):
            name = f"check-{os.urandom(4).hex()}"  # nobody's, so that no branch of this name is in the way
            address = Address.parse(f"{name}@{place}" if place else name)
            fleet.check(wish.spec._replace(address=address, message=task.prompt, args=task.args))


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
    """UsageError for a client that would ask a person."""
    if kind.bypass and permissions == "ask":
        raise UsageError(
            f"{kind.name} asks a person for permissions, and there is none in a run",
            "--permissions bypass, or --permissions policy with [permissions] in the configuration",
        )


def directory(fleet: Fleet, wish: Wish) -> tuple[runs.Run, bool]:
    """The run for this input: an unfinished one of the same input, else a new one (True)."""
    made = tasks.tasks(wish.items, wish.prompt, wish.args)
    spec = wish.spec
    source = os.path.realpath(spec.source or fleet.cwd)
    same = [spec.type, wish.prompt, wish.args, wish.items, wish.places, source, spec.branch, spec.mode]
    digest = tasks.digest(same)
    if wish.name:
        known = [run for run in runs.all_runs(fleet.home) if run.name == wish.name]
        if known and known[0].info.digest != digest:
            raise UsageError(f"run {wish.name} was made for other input", "--run ANOTHER-NAME")
        if known and not wish.new:
            return known[0], False
    elif not wish.new and (found := next((run for run in runs.of(fleet.home, digest) if not over(run)), None)):
        return found, False
    info = RunInfo(
        digest=digest,
        repo=git.top(fleet.local, source) or source,
        source=source,
        base=git.commit(fleet.local, source, spec.branch or "HEAD"),
        type=spec.type,
        prompt=wish.prompt,
        args=wish.args,
        places=wish.places,
        permissions=spec.permissions,
    )
    name = wish.name or runs.free_name(fleet.home, "map")
    return runs.make(fleet.home, name, info, made), True


def go(fleet: Fleet, wish: Wish, run: runs.Run, say: Say, shown: Shown) -> bool:
    """Run it to its end (True), or to where somebody asked for one. `Refused` when another process runs it."""
    if over(run):
        return True
    with run.holding():
        if run.finished():
            os.unlink(run.path("finished.json"))
        escalations.record(fleet.home, run)  # of a process that was killed before it could
        say(run.event("begun", time.time(), run=run.name, tasks=len(run.tasks())))

        def heard(event: dict[str, Any]) -> None:
            if event["kind"] == "outcome":
                with contextlib.suppress(OSError):  # a full disk: it is done once more at the end
                    escalations.record(
                        fleet.home, run, str(event["task"])
                    )  # who it is for need not wait for the others
            say(event)

        # A question that a reduce has asked an integrator is for the next reduce to go on with.
        own = [task.id for task in run.tasks() if not task.base]
        done = work(fleet, wish, run, heard, shown, only=own, reopen=True)
        escalations.record(fleet.home, run)
        if done:
            finish(run, say)
        return done


def over(run: runs.Run) -> bool:
    """Nothing of it is left to be done: also what was stopped, or for which there was no budget, can be."""
    finished = run.finished()
    return finished is not None and not any(finished.outcomes.get(name) for name in ENDED_BY_US)


def stop(fleet: Fleet, run: runs.Run, say: Say) -> None:
    """End a run that nobody runs any more: its agents are harvested and ended, the rest is cancelled."""
    spec = Spec(Address(""), run.info.type, permissions=run.info.permissions)
    wish = Wish(spec, "", (), [], run.info.places)
    with run.holding():
        if work(fleet, wish, run, say, lambda scheduler: None, wanted="stopped"):
            finish(run, say)


def work(
    fleet: Fleet,
    wish: Wish,
    run: runs.Run,
    say: Say,
    shown: Shown,
    *,
    only: Iterable[str] | None = None,
    wanted: str = "",
    reopen: bool = False,
) -> bool:
    """All tasks that the run has now, or `only` some of them by their ids, by the process that holds it."""
    kind = fleet.type(wish.spec.type)
    limits = estimate(fleet, wish)[1]
    fleet.source_seconds = SOURCE_SECONDS
    field = FleetField(fleet, run, wish.spec, speaks=kind.speaks, keep=wish.keep, hosts=len(wish.places))
    state = runs.read(run.path("state.json")) or {}
    governor = Governor.from_json(limits, state.get("governor"), field.now())
    breaker = Breaker()
    breaker.restore(state.get("breaker"))
    if any(pause.state == "stopped" for pause in breaker.pauses.values()):
        breaker.lift()  # whoever begins again has seen to it, or finds out
    if run.control() != Control() or wanted:
        # No more what was asked of the process before: what is typed now counts.
        run.ask(state=wanted, **dict.fromkeys(SETTABLE))
    chosen = None if only is None else frozenset(only)
    proven = kind.prompt == "typed" and bool(kind.receipt)
    plan = Plan(wish.places, rules(kind, wish), wish.retries, chosen, reopen, proven)
    scheduler = Scheduler(run, plan, governor, breaker, field, say, random.random)
    field.waits = lambda: shown(scheduler)
    undo = field.heed_interrupts()
    try:
        return scheduler.go()
    finally:
        undo()


def rules(kind: AgentType, wish: Wish) -> Rules:
    usual = STALL if kind.speaks else 0.0
    return Rules(kind.speaks, usual if wish.stall is None else wish.stall, wish.questions)


def finish(run: runs.Run, say: Say, commit: str | None = None, branch: str = "") -> None:
    now, outcomes = time.time(), run.picture()["outcomes"]
    run.save(Finished(now, outcomes, commit, branch))
    say(run.event("finished", now, outcomes=outcomes))


def code(outcomes: dict[str, int]) -> int:
    """The exit code of a run that is over."""
    bad = {name for name, count in outcomes.items() if count} - GOOD
    return 0 if not bad else 4 if bad <= {"timeout", "over-budget"} else 1
