"""The changes that tasks of a run made, as units to integrate."""

from __future__ import annotations

import os
import time

from ..improving import verify
from ..review import paths
from ..run import git
from ..run.directory import Attempt
from ..run.records import Ahead, KeptOut, Outcome, Verified
from ..run.tasks import Task
from ..suite import execute
from . import rebase
from .gate import NoGate
from .reduction import Reduction
from .units import SEVERITY, Unit

#: The result of a change that was not tested alone, because the gate does not do that.
UNTESTED = "untested"
#: Changes that are looked at at the same time.
AT_ONCE = 4


def units(work: Reduction) -> list[Unit]:
    """Return a unit for each task whose change may be integrated."""
    ahead = work.run.ahead() or Ahead()
    status = {standing.function.id: standing.status for standing in work.before.tests}
    found = []
    for task in work.run.tasks():
        verified = verify.verified(work.run, task)
        if not verified or not verified.ok or not verified.unit:
            continue
        attempt = work.run.attempts(task.id)[-1]
        outcome = attempt.outcome or Outcome()
        title, _, body = _summary(work, outcome).partition("\n")
        fixes = verified.result == "fixed"
        own = (task.item,) if verified.tests is None else verified.tests
        tests = (*own, *(test for test, scout in ahead.fixed.items() if scout == task.id))
        base = task.base or work.run.info.base
        found.append(
            Unit(
                task.id,
                base,
                verified.unit,
                tuple(dict.fromkeys(tests)) if fixes else (),
                int(task.fields.get("group") or 1) if task.base else 1,
                max((SEVERITY.get(status.get(test, ""), 0) for test in tests), default=0),
                title or f"{verified.result.capitalize()} {task.item}",
                body,
                _trailers(work, task, attempt, verified, own, title),
                ahead.included if base == ahead.base else (),
            )
        )
    return found


def _summary(work: Reduction, outcome: Outcome) -> str:
    """Return what the agent said about its change: in its result, else in its last commit."""
    if outcome.summary.strip():
        return outcome.summary.strip()
    repo = work.run.info.repo
    return git.text(work.fleet.local, repo, "log", "-1", "--format=%B", outcome.tip) if outcome.tip else ""


def _trailers(
    work: Reduction, task: Task, attempt: Attempt, verified: Verified, tests: tuple[str, ...], title: str
) -> dict[str, str]:
    cost = attempt.outcome.cost_usd if attempt.outcome else None
    origin = {"Muster-Agent": attempt.agent.name} if attempt.agent.name else {"Muster-Branch": task.item}
    return {
        **({"Muster-Test": tests[0]} if tests and verified.result != "fixed" else {}),
        **origin,
        "Muster-Cost": "unknown" if cost is None else f"${cost:.2f}",
        **({"Muster-Summary": title} if title else {}),
        "Muster-Evidence": verified.reason,
    }


def forget_untested(work: Reduction) -> None:
    """Let changes be verified that an earlier reduce with another gate took as they were."""
    for task in work.run.tasks():
        if (verified := work.run.verified(task.id)) and verified.result == UNTESTED:
            os.unlink(work.run.path("tasks", task.id, "verified.json"))


def take_untested(work: Reduction) -> None:
    """Take the change of every task that is ok as it is, without testing it alone: the gate tests the branch.

    Only paths are looked at: what is protected, leads out of the repository or was left behind by a tool is kept out.
    """
    tasks = {
        task.id: (task, attempt)
        for task in work.run.tasks()
        if verify.is_work(task) and (attempt := verify.claimed(work.run, task)) and not verify.verified(work.run, task)
    }

    def take(task: Task, attempt: Attempt) -> Verified:
        verified = _untested(work, task, attempt)
        work.run.save_verified(task.id, verified)
        return verified

    calls = {id: (lambda task=task, attempt=attempt: take(task, attempt)) for id, (task, attempt) in tasks.items()}
    for id, verified in execute.concurrently(work.fleet, calls, AT_ONCE):
        if not verified.ok:
            event = work.run.event("verified", time.time(), task=id, outcome=verified.result, reason=verified.reason)
            work.say(event)


def _untested(work: Reduction, task: Task, attempt: Attempt) -> Verified:
    outcome, local, repo = attempt.outcome or Outcome(), work.fleet.local, work.run.info.repo
    base = task.base or work.run.info.base
    found = Verified(attempt=attempt.number, claimed=outcome.outcome, base=base, tests=())
    if not outcome.tip or not outcome.commits:
        return found._replace(ok=True, result="unchanged", reason="it has no commits")
    placed = rebase.onto(work.fleet, work.run, base, outcome.tip, task.id, rewritten=False)
    if not placed.commit:
        return found._replace(result="refused", reason=f"its branch {placed.reason.removeprefix('it ')}")
    changes, findings = paths.barred(local, repo, base, placed.commit, work.wish.rules)
    out = {finding.path for finding in findings if not finding.allowed}
    kept = [change.path for change in changes if change.path not in out]
    found = found._replace(
        moved=placed.moved,
        kept_out=tuple(KeptOut(one.path, one.line, one.rule, one.words, one.allowed) for one in findings),
        implementation=tuple(path for path in kept if paths.kind(path, work.wish.rules) == "implementation"),
        other=tuple(path for path in kept if paths.kind(path, work.wish.rules) != "implementation"),
    )
    if changes and not kept:
        return found._replace(result="refused", reason=f"all of it is kept out: {findings[0].words}")
    unit = placed.commit
    if out:
        unit = verify.keep_commit(work.fleet, work.run, task.id, base, paths.tree(local, repo, base, unit, kept))
    reason = "not tested" if isinstance(work.gate, NoGate) else f"not tested alone; the gate is: {work.gate}"
    return found._replace(ok=True, result=UNTESTED, reason=reason, unit=unit)
