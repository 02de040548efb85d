"""How many tasks of a run came how far, and what was kept out of the changes that were delivered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..improving import verify
from ..run import directory as runs
from ..run.directory import Run
from ..run.records import Outcome, Plan
from ..run.results import shown
from ..suite.baseline import BAD
from .changes import UNTESTED

#: Paths of one change that are named where there are many.
KEPT_OUT_SHOWN = 5


def funnel(run: Run, records: Sequence[runs.Record] | None = None) -> dict[str, Any]:
    """Return how many tasks came how far; `records` saves reading them again."""
    records = run.records() if records is None else records
    before = runs.read(run.path("baseline.json")) or {}
    delivery = runs.read(run.path("delivery.json")) or {}
    work = [record for record in records if verify.is_work(record.task) and record.attempts]
    last = {record.task.id: record.attempts[-1] for record in work}
    outcomes = {id: (attempt.outcome or Outcome()) for id, attempt in last.items()}
    found = {record.task.id: record.verified for record in work}
    checked = {id: verified for id, verified in found.items() if verified and verified.attempt == last[id].number}
    taken = {name for one in delivery.get("accepted", []) for name in (one["name"], *one["collapsed"])}
    results = [verified.result for verified in checked.values() if verified.ok]
    picture = run.picture_of(records)
    return {
        "tests": len(before.get("tests", [])),
        "failing": sum(one.get("status") in BAD for one in before.get("tests", [])),
        "groups": sum(len(one["functions"]) > 1 for one in before.get("groups", [])),
        "skipped": len((run.plan() or Plan()).skipped),
        "launched": sum(bool(attempt.agent.name) for attempt in last.values()),
        "valid": sum(outcome.claimed is not None for outcome in outcomes.values()),
        "claimed": sum(outcome.outcome == "ok" for outcome in outcomes.values()),
        "verified": len(results) - results.count(UNTESTED),
        **{name: results.count(name) for name in ("fixed", "improved", "unchanged")},
        "integrated": len(taken),
        "left_out": len(delivery.get("left_out", {})),
        "refused": sum(not verified.ok for verified in checked.values()),
        "blocked": sum(outcome.outcome == "blocked" for outcome in outcomes.values()),
        "cost_usd": picture["cost_usd"],
        "tokens": picture["tokens"],
    }


def kept_out(run: Run) -> dict[str, list[dict[str, str]]]:
    """Return the paths that are kept out of each change that was delivered, by its task: each path once, with the reason."""
    delivery = runs.read(run.path("delivery.json")) or {}
    taken = {name for one in delivery.get("accepted", []) for name in (one["name"], *one["collapsed"])}
    found: dict[str, list[dict[str, str]]] = {}
    for task in run.tasks() if taken else ():
        verified = verify.verified(run, task) if task.id in taken else None
        why = {one.path: one.reason for one in reversed(verified.kept_out if verified else ()) if not one.allowed}
        if why:
            found[task.id] = [{"path": path, "reason": why[path]} for path in sorted(why)]
    return found


def kept_out_line(paths: Sequence[Mapping[str, str]]) -> str:
    """Return what is kept out of one change as one line; of many paths the first ones."""
    named = [f"{shown(one['path'])} ({one['reason']})" for one in paths[:KEPT_OUT_SHOWN]]
    more = len(paths) - len(named)
    return ", ".join(named) + (f" and {more} more" if more else "")
