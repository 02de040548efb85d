"""Ask agents what code cannot decide: how to resolve a conflict, and in which order the changes come.

Each question is a task of the run like every other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ..improving import verify
from ..mapping import start
from ..review import paths
from ..review.weakening import Finding
from ..run import git, prompts, tasks
from ..run.directory import Attempt, Run
from ..run.results import shown
from ..run.tasks import Task
from . import rebase
from .conflicts import Conflict
from .gate import Pytest
from .reduction import Reduction
from .units import Unit

#: Characters of a diff in a prompt.
DIFF_MOST = 20_000


def resolver(work: Reduction, kind: str, units: Mapping[str, Unit], since: float) -> Callable[[Conflict], str | None]:
    """Return a function that asks an agent of this type to resolve a conflict; None is its answer if there is no resolution.

    The last reduce came to its end at `since`. Where it had no good answer, the agent is asked again.
    """

    def resolve(conflict: Conflict) -> str | None:
        if kind == "none":
            return None
        unit, repo = conflict.unit, work.run.info.repo
        others = [units[name] for name in conflict.collides if name in units]
        tests = [*unit.tests, *(test for other in others for test in other.tests)]
        text = prompts.prompt(
            "resolve",
            unit=unit.name,
            title=unit.title,
            theirs=_diff(work, repo, unit.base, unit.tip),
            paths=", ".join(conflict.paths),
            collides=", ".join(conflict.collides) or "several of the others",
            ours="\n".join(_diff(work, repo, other.base, other.tip) for other in others),
            tests=", ".join(tests) or "those that cover it",
        )
        attempt = _ask(work, kind, f"integrate {unit.name}", "integrator", text, conflict.onto, since)
        outcome = attempt.outcome if attempt else None
        if attempt is None or outcome is None or outcome.outcome != "ok" or not outcome.commits:
            return None
        return _resolution(work, attempt.task, conflict.onto, outcome.tip)

    return resolve


def _resolution(work: Reduction, task: str, base: str, tip: str) -> str | None:
    """Return what an integrator did as a commit on `base`, without files that tools left; None if that cannot be made."""
    local, repo = work.fleet.local, work.run.info.repo
    placed = rebase.onto(work.fleet, work.run, base, tip, task)
    if not placed.commit:
        return None
    changes, findings = paths.barred(local, repo, base, placed.commit, work.wish.rules)
    junk = {finding.path for finding in findings if finding.rule == "junk" and not finding.allowed}
    if not junk:
        return placed.commit
    kept = {change.path for change in changes} - junk
    return verify.keep_commit(work.fleet, work.run, task, base, paths.tree(local, repo, base, placed.commit, kept))


def doubt(work: Reduction, conflict: Conflict, commit: str) -> str:
    """Return what is wrong with a resolution, as a phrase that begins with a verb; empty if nothing is.

    What is kept out of the change of a worker is kept out of a resolution too. It must neither weaken what is accepted nor what the unit
    brings.
    """
    local, repo, unit = work.fleet.local, work.run.info.repo, conflict.unit
    rules = work.wish.rules.knowing(work.before)

    def findings(base: str) -> list[Finding]:
        if isinstance(work.gate, Pytest):
            return [one for one in paths.judge(local, repo, base, commit, rules).kept_out if not one.allowed]
        return [one for one in paths.barred(local, repo, base, commit, rules)[1] if not one.allowed]

    brought = {change.path for change in paths.changes(local, repo, unit.base, unit.tip)}
    found = findings(conflict.onto) + [one for one in findings(unit.tip) if one.path in brought]
    return f"is kept out for {shown(found[0].path)}: {found[0].words}" if found else ""


def ranking(work: Reduction, kind: str, units: Sequence[Unit], since: float) -> list[str]:
    """Return the order that an agent of this type gives; empty if it gives none."""
    lines = [
        f"- {unit.name}: {unit.title} ({len(unit.tests)} tests fixed, {unit.group} failed alike)" for unit in units
    ]
    text = prompts.prompt("rank", units="\n".join(lines))
    attempt = _ask(work, kind, "rank", "ranker", text, work.run.info.base, since)
    path = Path(attempt.folder) / "artifacts" / "order.txt" if attempt else Path()
    names = {unit.name for unit in units}
    try:
        lines = [line.strip() for line in path.read_text("utf-8", "replace").splitlines()[:10_000]]
    except OSError:
        lines = []
    order = list(dict.fromkeys(line for line in lines if line in names))
    if not order:
        work.say(work.run.event("alert", time.time(), reason="the agent that was to rank gave no order; code ranks"))
    return order


def _ask(work: Reduction, kind: str, item: str, role: str, text: str, base: str, since: float) -> Attempt | None:
    """Run a task with this question to its end, and return its last attempt.

    The same question is not asked twice of the same type, unless the last reduce, which ended at `since`, had no good answer.
    """
    known = work.run.tasks()
    asked = (item, base, text, kind)
    task = next((task for task in known if (task.item, task.base, task.prompt, task.fields.get("type")) == asked), None)
    if task is not None:
        reopen(work.run, task, since)
    else:
        number = max((task.number for task in known), default=0) + 1
        args = work.wish.map.args
        if work.wish.playbooks:
            playbooks = [Path(work.wish.playbooks) / f"{name}.toml" for name in (item.replace(" ", "."), role)]
            args = (next((str(path) for path in playbooks if path.is_file()), str(playbooks[-1])),)
        task = Task(
            tasks.name(number, item), number, item, {"item": item, "role": role, "type": kind}, text, args, base
        )
        work.run.add([task])
    spec = work.wish.map.spec._replace(type=kind)
    wish = work.wish.map._replace(spec=spec, limits=work.wish.map.limits._replace(reserve=0.0))
    if not start.run_tasks(work.fleet, wish, work.run, work.say, work.shown, only=[task.id]):
        raise KeyboardInterrupt
    attempts = work.run.attempts(task.id)
    return attempts[-1] if attempts else None


def reopen(run: Run, task: Task, since: float) -> None:
    """Let a question be asked again that had no good answer when the last reduce ended.

    An order can be used again. A resolution that could be used again would not be asked for.
    """
    attempts = run.attempts(task.id)
    outcome = attempts[-1].outcome if attempts else None
    if outcome is None:
        return
    used = outcome.outcome == "ok" and task.fields.get("role") == "ranker"
    if outcome.final and outcome.t < since and not used:
        run.end(attempts[-1], outcome._replace(final=False))


def _diff(work: Reduction, repo: str, base: str, tip: str) -> str:
    done = git.run(work.fleet.local, repo, "diff", "--no-ext-diff", "--no-textconv", base, tip)
    return done.stdout.decode("utf-8", "replace")[:DIFF_MOST]
