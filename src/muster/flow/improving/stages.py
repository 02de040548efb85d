"""Improve a test suite: baseline, plan, scouts, workers, verification and reduction, in this order.

Each stage reads and writes files in the directory of the run. A stage whose file exists is not done again, so an interrupted run
resumes where it stopped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ... import Fleet
from ..limits.budget import Estimate
from ..mapping import start
from ..reducing import delivery, pull_request
from ..reducing.delivery import Reduced
from ..reducing.gate import Pytest
from ..run import escalations
from ..run.directory import Run
from ..run.records import Control
from ..suite import execute
from ..suite.baseline import Baseline
from . import plan, scouts, setup, verify
from .plan import Assignments
from .request import ImproveRequest, check

#: Called with the run and whether it is new, before anything is launched.
OnBegin = Callable[[Run, bool], None]


class Preview(NamedTuple):
    """What a run would do."""

    baseline: Baseline
    assignments: Assignments
    estimate: Estimate


def improve(
    fleet: Fleet,
    request: ImproveRequest,
    say: start.Say,
    shown: start.Shown,
    *,
    on_begin: OnBegin = lambda run, new: None,
    open_request: bool = False,
) -> Reduced:
    """Run all stages, and return what was delivered. The same call goes on with a run that was interrupted.

    With `open_request` the branch is pushed and a pull request opened. Raises UsageError before anything is made if an option is wrong,
    `Refused` if the branch of the run could not be moved at the end, and KeyboardInterrupt if a person ended the run (Ctrl-C, `runs stop`).
    """
    run, new, request = _begin(fleet, request, on_begin)
    with setup.holding(fleet, run, new):
        delivery.check(fleet, run)
        if open_request:
            pull_request.check(fleet, run.info.repo)
        setup.reopen(run)
        if not run.finished() and not _change_and_verify(fleet, request, run, say, shown):
            raise KeyboardInterrupt
        return delivery.deliver(fleet, request, run, Pytest(), say, shown, open_request=open_request)


def preview(
    fleet: Fleet, request: ImproveRequest, say: start.Say, *, on_begin: OnBegin = lambda run, new: None
) -> Preview:
    """Measure the baseline and return what `improve` would do. No agent gets a task."""
    run, new, request = _begin(fleet, request, on_begin)
    with setup.holding(fleet, run, new):
        baseline = setup.baseline_of(fleet, request, run, say)
        assignments = plan.assign(fleet, request, run, baseline, save=False)
        return Preview(baseline, assignments, plan.estimate(fleet, request, assignments))


def _begin(fleet: Fleet, request: ImproveRequest, on_begin: OnBegin) -> tuple[Run, bool, ImproveRequest]:
    check(fleet, request)
    run, new = setup.find_or_make(fleet, request)
    on_begin(run, new)
    return run, new, setup.bound_to(request, run)


def _change_and_verify(fleet: Fleet, request: ImproveRequest, run: Run, say: start.Say, shown: start.Shown) -> bool:
    """Run the stages up to verified changes; False if a person asked the run to stop."""
    execute.remove_leftovers(fleet, run.name)
    if run.control() != Control():
        run.ask(state="")  # it was asked of an earlier process
    baseline = setup.baseline_of(fleet, request, run, say)
    request = setup.with_import_paths(request, baseline)
    assignments = plan.assign(fleet, request, run, baseline)
    if not run.tasks():
        plan.announce(fleet, request, run, baseline, assignments, say)
    if assignments.scouts:
        run.add(plan.scout_tasks(request, run, assignments))
        if not _run_agents(fleet, request, run, say, shown):
            return False
        verify.verify(fleet, request, run, baseline, say)
    ahead = scouts.combine(fleet, request, run, baseline, assignments, say)
    if workers := plan.worker_tasks(request, baseline, assignments, ahead):
        run.add(workers)
        if not _run_agents(fleet, request, run, say, shown):
            return False
        verify.verify(fleet, request, run, baseline, say)
    return True


def _run_agents(fleet: Fleet, request: ImproveRequest, run: Run, say: start.Say, shown: start.Shown) -> bool:
    """Run the agents of all open tasks; False if a person asked the run to stop. Escalations are recorded at once."""
    if _is_stopped(run):
        return False
    # Questions to an integrator that a kill left open are for `reduce`, which may ask another type.
    own = [task.id for task in run.tasks() if verify.is_work(task)]
    done = start.run_tasks(fleet, request.map, run, say, shown, only=own, reopen=True)
    escalations.record(fleet.home, run)
    return done and not _is_stopped(run)


def _is_stopped(run: Run) -> bool:
    """Return whether `runs stop` was called since this process began. It also stops the agents that have not started yet."""
    return run.control().state == "stopped"
