"""Verify what agents claim: run the tests of each change in a clean checkout, on the host where the agent worked."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable

from ... import Fleet
from ...errors import Refused
from ..mapping import start
from ..reducing import rebase
from ..review import paths
from ..run import git
from ..run.directory import Attempt, Run
from ..run.records import KeptOut, Outcome, Verified
from ..run.tasks import Task
from ..suite import collect, execute, verdict
from ..suite.baseline import BAD, Baseline, FunctionResult
from .request import ImproveRequest
from .setup import suite_of

#: Roles of tasks whose work is verified and integrated: agents for a test, and branches from elsewhere.
WORK_ROLES = ("scout", "worker", "branch")
#: Added to the reason if a change had to be moved onto its base.
MOVED = "; its branch did not start from the given commit, so only its own changes are taken"


def is_work(task: Task) -> bool:
    """Return whether a task's work is verified and integrated: every task of a `map`, and all of an `improve` but its questions."""
    return not task.base or task.fields.get("role") in WORK_ROLES


def claimed(run: Run, task: Task) -> Attempt | None:
    """Return the newest attempt at a task if it claims to have done it."""
    attempts = run.attempts(task.id)
    last = attempts[-1] if attempts else None
    return last if last and last.outcome and last.final and last.outcome.outcome == "ok" else None


def verified(run: Run, task: Task) -> Verified | None:
    """Return what was found about the newest attempt at a task; None if it is not verified."""
    record = run.verified(task.id)
    attempts = run.attempts(task.id)
    return record if record and attempts and record.attempt == attempts[-1].number else None


def verify(fleet: Fleet, request: ImproveRequest, run: Run, baseline: Baseline, say: start.Say) -> None:
    """Verify each attempt that claims to have done its task, once, and record the result."""
    todo = [
        (task._replace(base=task.base or run.info.base), attempt)
        for task in run.tasks()
        if is_work(task) and (attempt := claimed(run, task)) and not verified(run, task)
    ]
    rows = {row.function.id: row for row in baseline.tests}

    def verify_task(task: Task, attempt: Attempt) -> Verified:
        record = _verify(fleet, request, run, baseline, rows.get(task.item), task, attempt)
        run.save_verified(task.id, record)
        return record

    work = {task.id: functools.partial(verify_task, task, attempt) for task, attempt in todo}
    for id, record in execute.concurrently(fleet, work, execute.CONCURRENCY * len(request.map.places)):
        say(run.event("verified", time.time(), task=id, outcome=record.result, reason=record.reason))


def _verify(
    fleet: Fleet,
    request: ImproveRequest,
    run: Run,
    baseline: Baseline,
    row: FunctionResult | None,
    task: Task,
    attempt: Attempt,
) -> Verified:
    """Verify one attempt. `row` is the test that the task is about; without one, all tests decide."""
    outcome = attempt.outcome or Outcome()
    record = Verified(attempt.number, claimed=outcome.outcome, base=task.base, result="refused")
    must_fix = row is not None and row.status in BAD
    tip, repo = outcome.tip, run.info.repo
    if tip:
        placed = rebase.onto(fleet, run, task.base, tip, task.id)
        if not placed.commit:
            reason = f"its branch does not start from the given commit, and {placed.reason}"
            return record._replace(reason=reason)
        tip, record = placed.commit, record._replace(moved=placed.moved)
    review = paths.judge(fleet.local, repo, task.base, tip, request.rules.knowing(baseline)) if tip else None
    if review is None or not (review.implementation or review.other or review.kept_out):
        if must_fix:
            return record._replace(reason="it claims a fix, but it changed nothing")
        return record._replace(result="unchanged", ok=True, reason="nothing needed to change")
    record = record._replace(
        kept_out=tuple(KeptOut(*finding) for finding in review.kept_out),
        implementation=tuple(change.path for change in review.implementation),
        other=tuple(change.path for change in review.other),
    )
    if not (record.implementation or record.other):
        return record._replace(reason=f"all of it is kept out: {review.kept_out[0].words}")
    try:
        tree = paths.tree(fleet.local, repo, task.base, tip, [*record.implementation, *record.other])
    except Refused as error:  # what is left of the change makes no tree
        return record._replace(reason=error.message)
    unit = keep_commit(fleet, run, task.id, task.base, tree)
    suite = suite_of(run, request, baseline, attempt.agent.place)
    before = baseline.outcomes()
    if row is None:
        removed = removed_from_file(fleet, request, run, baseline, unit)
        decision = verdict.check_change(
            fleet, suite, unit, before, times=request.times, base=task.base, removed=removed
        )
        result = "fixed" if decision.fixed else "improved"
        record = record._replace(tests=decision.fixed)
    else:
        decision = verdict.check_fix(
            fleet, suite, unit, row.function.id, before, times=request.times, must_fix=must_fix, base=task.base
        )
        result = "fixed" if must_fix else "improved"
    return record._replace(
        result=result if decision.ok else "refused",
        ok=decision.ok,
        reason=f"{decision.reason}{MOVED}" if decision.ok and record.moved else decision.reason,
        unit=unit,
        evidence=tuple(decision.evidence),
    )


def removed_from_file(
    fleet: Fleet, request: ImproveRequest, run: Run, baseline: Baseline, commit: str
) -> Callable[[str], bool]:
    """Return a function that says whether a commit took a test function out of its file. The review of the change allowed that."""
    repo, base = run.info.repo, run.info.base
    files = {row.function.id: row.function.file for row in baseline.tests}

    @functools.cache
    def names(commit: str, file: str) -> frozenset[str]:
        return collect.names(collect.files(fleet.local, repo, commit, [file]).get(file, b""))

    def removed(function: str) -> bool:
        id, *parts = function.split("::")
        chain = {"::".join(parts[:count]) for count in range(1, len(parts) + 1)}
        for file in {files.get(function, id), id}:
            # The review looks for tests only in such files.
            if file.endswith(".py") and paths.kind(file, request.rules) == "other":
                old, new = names(base, file), names(commit, file)
                inherited = {name for name in old if name.split("::")[-1] == parts[-1]} if not chain <= old else set()
                if (chain | inherited) & old - new:
                    return True
        return False

    return removed


def keep_commit(fleet: Fleet, run: Run, task: str, base: str, tree: str) -> str:
    """Return a commit on `base` with the part of a task's work that is kept. A ref of the run holds it."""
    repo = run.info.repo
    commit = git.commit_tree(fleet.local, repo, tree, base, f"muster: {task}")
    git.update_ref(fleet.local, repo, f"refs/muster/runs/{run.name}/unit/{task}", commit)
    return commit
