"""Make the branch of a run: verify what is not verified yet, integrate the changes, and record what was delivered."""

from __future__ import annotations

import os
import time
from collections import Counter, defaultdict
from functools import partial
from typing import Any, NamedTuple

from ... import Fleet
from ..improving import converged, resubmitted, setup, verify
from ..improving.request import ImproveRequest, integrator_type
from ..mapping import start
from ..review import paths
from ..run import directory as runs
from ..run import escalations, git, tasks
from ..run.directory import Run
from ..run.records import Ahead, Plan
from ..suite.baseline import Baseline
from . import changes, integrate, integrator, pull_request, sources, trees
from .gate import Gate, Pytest
from .integrate import Delivery
from .reduction import Reduction
from .testers import tester


class Reduced(NamedTuple):
    """What a reduction came to."""

    run: Run
    delivery: Delivery
    unfinished: tuple[str, ...] = ()
    """The tests or tasks that have no outcome yet, because the run was interrupted."""
    pull_request: str = ""
    """The address of the pull request that was opened."""

    @property
    def branch(self) -> str:
        """The branch that was made; empty if nothing is delivered."""
        return self.delivery.branch

    @property
    def commit(self) -> str:
        """The last commit of the branch; empty if nothing is delivered."""
        return self.delivery.commit


def check(fleet: Fleet, run: Run) -> None:
    """Raise `Refused` if the branch of the run could not be moved at the end, before anything is paid for."""
    scratch = trees.Repository(fleet.local, git.common_dir(fleet.local, run.info.repo), run.path("git"))
    try:
        integrate.movable(scratch, run.name)
    finally:
        scratch.close()


def deliver(
    fleet: Fleet,
    wish: ImproveRequest,
    run: Run,
    gate: Gate,
    say: start.Say,
    shown: start.Shown,
    *,
    open_request: bool = False,
) -> Reduced:
    """Make the branch of a run that this process holds, and with `open_request` a pull request of it.

    A run that was interrupted before all its agents had ended stays unfinished.
    """
    if run.info.sources:
        sources.take(fleet, wish, run, say)
    # What pytest has measured once is used with every gate.
    by_pytest = isinstance(gate, Pytest) or os.path.exists(run.path("baseline.json"))
    before = setup.baseline_of(fleet, wish, run, say) if by_pytest else Baseline(run.info.base, (), (), 0)
    wish = setup.with_import_paths(wish, before)
    resubmitted.take(fleet, wish, run, say)
    work = Reduction(fleet, wish, run, gate, before, say, shown)
    if by_pytest:
        changes.forget_untested(work)
        verify.verify(fleet, wish, run, before, say)
    else:
        changes.take_untested(work)
    left = () if run.finished() else unfinished(work)
    delivery = _integrate(work)
    if not left:
        start.finish(run, say, commit=delivery.commit, branch=delivery.branch)
    address = pull_request.open(work, delivery) if open_request and delivery.commit else ""
    return Reduced(run, delivery, left, address)


def unfinished(work: Reduction) -> tuple[str, ...]:
    """Return what has no outcome yet because the run was interrupted: tests of an `improve`, else ids of tasks."""
    run, plan, ahead = work.run, work.run.plan() or Plan(), work.run.ahead() or Ahead()
    known = [(task, run.attempts(task.id)) for task in run.tasks() if verify.is_work(task)]
    over = {task.id: task.item for task, attempts in known if attempts and attempts[-1].final}
    if run.info.kind != "improve" or run.info.sources:
        return tuple(task.id for task, _ in known if task.id not in over)
    done = {*over.values(), *plan.skipped, *ahead.fixed}
    every = [standing.function.id for standing in work.before.tests]
    return tuple(test for test in every if test not in done)


def outcomes(run: Run) -> dict[str, int]:
    """Return how many tasks ended with each outcome.

    A question that was asked again, of another type or about another commit, counts as it was answered last.
    """
    last = {task.id if verify.is_work(task) else task.item: task.id for task in run.tasks()}
    rows = {row["id"]: row["outcome"] for row in run.picture()["tasks"]}
    return Counter(rows[id] for id in last.values() if rows[id])


def _integrate(work: Reduction) -> Delivery:
    """Make the branch `muster-run/RUN`, and record in the directory of the run what is known of it."""
    run, wish, fleet = work.run, work.wish, work.fleet
    rules = wish.rules.knowing(work.before)
    kind = integrator_type(fleet, wish)
    units = changes.units(work)
    folder = run.path(f"reduce-{_gate_key(work)}")
    since = integrate.ended(folder)
    order = integrator.ranking(work, kind, units, since) if wish.rank == "agent" and kind != "none" and units else []
    delivery = integrate.integrate(
        fleet.local,
        git.common_dir(fleet.local, run.info.repo),
        run.info.base,
        units,
        run=run.name,
        folder=folder,
        kind=lambda path: "implementation" if paths.kind(path, rules) == "implementation" else "other",
        tester=tester(work.gate, fleet, wish, run, work.before),
        resolve=integrator.resolver(work, kind, {unit.name: unit for unit in units}, since),
        say=lambda event: work.say(_event(run, event)),
        doubt=partial(integrator.doubt, work),
        order=order,
        asked=kind,
    )
    runs.write(run.path("delivery.json"), delivery.to_json())
    runs.write(run.path("pull-request.md"), pull_request.text(work, delivery).encode("utf-8", "replace"))
    _remember(work, delivery)
    return delivery


def _gate_key(work: Reduction) -> str:
    """Return a word for the gate: recorded verdicts are used again for the same one only."""
    wish = work.wish
    how = [wish.keep_env, wish.test_seconds, wish.suite_seconds]
    by_pytest = [wish.pytest, wish.lint, wish.args] if isinstance(work.gate, Pytest) else []
    return tasks.digest([str(work.gate), *by_pytest, *how])[:8]


def _event(run: Run, event: dict[str, Any]) -> dict[str, Any]:
    """Append an event of the integration to those of the run; its `reason` is for people."""
    fields = {key: value for key, value in event.items() if key != "kind"}
    words = {
        "ranked": lambda: (
            f"{tasks.counted(event['units'], 'change')}, {tasks.counted(event['conflicts'], 'pair')} in conflict"
        ),
        "conflict": lambda: f"{event['unit']} in {', '.join(event['paths'])}",
        "ejected": lambda: f"{event['unit']}: {event['words']}",
        "redundant": lambda: f"{event['unit']} is already fixed by {event['by']}",
    }.get(event["kind"])
    return run.event(f"reduce-{event['kind']}", time.time(), **fields, **({"reason": words()} if words else {}))


def _remember(work: Reduction, delivery: Delivery) -> None:
    """Remember the tests that need nothing more, and what the agents escalated."""
    taken = {name for one in delivery.accepted for name in (one.name, *one.collapsed)}
    base, good = work.run.info.base, defaultdict[str, list[str]](list)
    for task in work.run.tasks() if work.before.tests else ():
        verified = verify.verified(work.run, task)
        if verified and verified.ok and verified.result == "unchanged":
            good[base].append(task.item)
        elif task.id not in taken:
            continue
        if delivery.commit:
            good[delivery.commit].append(task.item)
    converged.remember(work.fleet, work.run, work.before, work.run.info.type, work.wish.tutorial, good)
    escalations.record(work.fleet.home, work.run)
