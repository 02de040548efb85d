"""Combine the verified fixes of the scouts into the commit that all other agents start from."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ... import Fleet
from ..mapping import start
from ..reducing.trees import Repository
from ..run import git
from ..run.directory import Run
from ..run.records import Ahead, Outcome
from ..suite import execute
from ..suite.baseline import Baseline
from ..suite.execute import Suite
from ..suite.report import is_of
from ..suite.verdict import first_unfixed
from .plan import Assignments
from .request import ImproveRequest
from .setup import suite_of
from .verify import verified


class _Combined(NamedTuple):
    commit: str
    included: list[str]
    """The scouts whose fixes are in the commit."""
    redundant: dict[str, str]
    """The scouts whose tests pass without their fix, each with the scout whose fix replaces it."""


def combine(
    fleet: Fleet, request: ImproveRequest, run: Run, baseline: Baseline, assignments: Assignments, say: start.Say
) -> Ahead:
    """Return the commit with the scouts' fixes, whose fixes these are, and the tests that pass because of them; computed once."""
    if ahead := run.ahead():
        return ahead
    scouts = {task.id: task for task in run.tasks() if task.fields.get("role") == "scout"}
    records = {
        id: record for id, task in scouts.items() if (record := verified(run, task)) and record.ok and record.unit
    }
    suite, before = suite_of(run, request, baseline), baseline.outcomes()
    combined = _Combined(run.info.base, [], {})
    if records:
        own = {id: [scouts[id].item] if record.tests is None else list(record.tests) for id, record in records.items()}
        units = {id: record.unit for id, record in records.items()}
        combined = _combine(fleet, run, units, lambda id, commit: _all_pass(fleet, suite, before, commit, own[id]))
    groups = {row.function.id: group for row, group in assignments.scouts}
    fixed: dict[str, str] = {}
    siblings = []
    for id, by in [*combined.redundant.items(), *((id, id) for id in combined.included)]:
        group = groups[scouts[id].item]
        report = execute.run(fleet, suite, combined.commit, list(group.functions))
        passing = [name for name in group.functions if not first_unfixed(report, name, before)]
        fixed |= dict.fromkeys(passing, by)
        if id in combined.redundant:
            reason = f"its tests already pass because of {by}"
        else:
            of_all = f"{len(passing)} of {len(group.functions)}"
            summary = (run.attempts(id)[-1].outcome or Outcome()).summary.partition("\n")[0][:200]
            siblings.append(f"{of_all} that failed alike ({group.why}): {summary}")
            reason = f"{of_all} tests pass because of it"
        say(run.event("scouted", time.time(), task=id, reason=reason))
    ahead = Ahead(combined.commit, tuple(combined.included), fixed, tuple(siblings))
    run.save(ahead)
    return ahead


def _all_pass(fleet: Fleet, suite: Suite, before: dict[str, str], commit: str, tests: Sequence[str]) -> bool:
    """Return whether all of these tests pass at a commit; False if one is flaky or hangs, because one run proves nothing then."""
    if {"flaky", "hung"} & {was for id, was in before.items() if any(is_of(id, test) for test in tests)}:
        return False
    report = execute.run(fleet, suite, commit, tests)
    return not report.errors and not report.outside and not any(first_unfixed(report, test, before) for test in tests)


def _combine(fleet: Fleet, run: Run, units: dict[str, str], passes: Callable[[str, str], bool]) -> _Combined:
    """Merge the scouts' fixes that fit together, in order.

    A fix is redundant if `passes` says that its tests pass without it at the commit made so far. It must not become part of what the
    other agents start from: `integrate` keeps every change that others build on, so two fixes of one bug would be delivered.
    """
    base = run.info.base
    repository = Repository(fleet.local, git.common_dir(fleet.local, run.info.repo), run.path("git"))
    trees = repository.trees([base, *units.values()])
    tree, commit, included, redundant = trees[base], base, dict[str, str](), dict[str, str]()
    for id, unit in units.items():
        if included and passes(id, commit):
            redundant[id] = next((other for other, at in included.items() if at == commit or passes(id, at)), "")
            continue
        merge = repository.merge(*repository.siblings([(trees[base], tree), (trees[base], trees[unit])]))
        if not merge.conflicts:
            tree = merge.tree
            (commit,) = repository.commits([(tree, base)])
            included[id] = commit
            repository.move((f"refs/muster/runs/{run.name}/ahead", commit, None))
    repository.close()
    return _Combined(commit, list(included), redundant)
