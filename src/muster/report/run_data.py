"""Read a run's directory (docs/runs.md) for the page: its tasks, their attempts and outcomes, and its totals.

The files are not trusted: what is malformed counts as missing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from ..errors import NotFound
from ..flow.run import records
from ..flow.run.records import Ahead, AttemptAgent, Finished, Outcome, Plan, RunInfo, Verified
from .untrusted import UntrustedFolder, as_dict, as_int, as_list, as_number, as_text, is_plain_name, parse_json

#: The states of a task on the page: its outcome, or its state before that.
OUTCOMES = (*records.OUTCOMES, "running", "todo")
BAD = ("failing", "hanging", "flaky")
#: Maximum size of the large files, in bytes.
MAX_FILE = 1 << 28

Object = dict[str, object]


class Attempt(NamedTuple):
    number: int
    agent: AttemptAgent
    outcome: Outcome | None


class Task(NamedTuple):
    id: str
    item: str
    fields: Object
    base: str
    attempts: list[Attempt]
    verified: Verified | None
    """The verification of the newest attempt; None if it was not verified."""

    @property
    def ended(self) -> Outcome:
        """The outcome of the newest attempt; an empty one if it has none."""
        return (self.attempts[-1].outcome if self.attempts else None) or Outcome()

    @property
    def outcome(self) -> str:
        if not self.attempts:
            return "todo"
        return self.ended.outcome if self.ended.final else "running"

    @property
    def result(self) -> str:
        return self.verified.result if self.verified else ""

    @property
    def is_work(self) -> bool:
        """Whether the task is about a test, as opposed to integrating the work of other tasks."""
        return self.fields.get("role") in ("scout", "worker")

    def total(self, key: str) -> float | None:
        """Return the sum of a field over all attempts; None if no attempt has it."""
        return total(as_number(getattr(attempt.outcome, key)) for attempt in self.attempts if attempt.outcome)


class Run(NamedTuple):
    source: UntrustedFolder
    name: str
    info: RunInfo
    baseline: Object
    plan: Plan
    ahead: Ahead
    delivery: Object
    finished: Finished | None
    tasks: list[Task]

    @property
    def improves(self) -> bool:
        return self.info.kind == "improve"

    def accepted(self) -> list[Object]:
        return [as_dict(accepted) for accepted in as_list(self.delivery.get("accepted"), 100_000)]

    def tests(self) -> list[Object]:
        return [as_dict(test) for test in as_list(self.baseline.get("tests"), 100_000)]

    def groups(self) -> list[Object]:
        """Return the groups of tests whose failures are similar."""
        return [as_dict(group) for group in as_list(self.baseline.get("groups"), 100_000)]


def is_run(folder: Path) -> bool:
    return (folder / "tasks.jsonl").is_file() and not (folder / "format.json").exists()


def read(folder: Path) -> Run:
    """Read everything but the files that agents left. Raises NotFound if the folder is not the directory of a run."""
    if not is_run(folder):
        raise NotFound(f"{folder} is not the directory of a run", "muster runs shows them")
    source = UntrustedFolder(folder)

    def file(name: str) -> object:
        return source.json(name, limit=MAX_FILE)

    info = RunInfo.from_json(file("run.json"))
    return Run(
        source=source,
        name=as_text(info.name, 100) or folder.resolve().name,
        info=info,
        baseline=as_dict(file("baseline.json")),
        plan=Plan.from_json(file("plan.json")) or Plan(),
        ahead=Ahead.from_json(file("ahead.json")) or Ahead(),
        delivery=as_dict(file("delivery.json")),
        finished=Finished.from_json(file("finished.json")),
        tasks=_tasks(source),
    )


def _tasks(source: UntrustedFolder) -> list[Task]:
    tasks: dict[str, Task] = {}
    for line in source.lines("tasks.jsonl", most=MAX_FILE):
        record = as_dict(parse_json(line))
        id = record.get("id")
        if isinstance(id, str) and is_plain_name(id):
            item, base = as_text(record.get("item"), 2000), as_text(record.get("base"), 100)
            attempts = _attempts(source, id)
            verified = Verified.from_json(source.json("tasks", id, "verified.json", limit=MAX_FILE))
            current = verified if attempts and verified and verified.attempt == attempts[-1].number else None
            tasks[id] = Task(id, item, as_dict(record.get("fields")), base, attempts, current)
    return list(tasks.values())


def _attempts(source: UntrustedFolder, task: str) -> list[Attempt]:
    names = source.names("tasks", task)
    numbers = sorted(int(name[8:]) for name in names if re.fullmatch(r"attempt-[0-9]{1,6}", name, re.ASCII))
    return [
        Attempt(number, agent, Outcome.from_json(source.json("tasks", task, f"attempt-{number}", "outcome.json")))
        for number in numbers
        if (agent := AttemptAgent.from_json(source.json("tasks", task, f"attempt-{number}", "agent.json")))
    ]


# Counts


def funnel(run: Run) -> dict[str, float | None]:
    """Return how many tasks reached each stage, counted as `muster improve` does. A `map` run has fewer stages."""
    counted = [task for task in run.tasks if task.is_work or task.fields.get("role") == "branch" or not run.improves]
    tried = [task for task in counted if task.attempts]
    blocked = sum(task.ended.outcome == "blocked" for task in tried)
    spent = {key: total(task.total(key) for task in run.tasks) for key in ("cost_usd", "tokens")}
    if not run.improves:
        ended = Counter(task.outcome for task in tried)
        failed = sum(count for outcome, count in ended.items() if outcome not in ("ok", "blocked", "running"))
        counts = {"tasks": len(run.tasks), "launched": len(tried), "ok": ended["ok"], "failed": failed}
        return {**counts, "blocked": blocked, **spent}
    tests = run.tests()
    return {
        "tests": len(tests),
        "failing": sum(test.get("status") in BAD for test in tests),
        "groups": sum(len(as_list(group.get("functions"), 2)) > 1 for group in run.groups()),
        "skipped": len(run.plan.skipped),
        "launched": sum(bool(task.attempts[-1].agent.name) for task in tried),
        "valid": sum(task.ended.claimed is not None for task in tried),
        "verified": sum(bool(task.verified and task.verified.ok) for task in tried),
        "integrated": len({name for accepted in run.accepted() for name in task_names(accepted)}),
        "left_out": len(as_dict(run.delivery.get("left_out"))),
        "refused": sum(bool(task.verified and not task.verified.ok) for task in tried),
        "blocked": blocked,
        **spent,
    }


def task_names(accepted: Object) -> list[str]:
    """Return the task whose change was accepted, followed by tasks that made the same change."""
    return [as_text(name, 200) for name in (accepted.get("name"), *as_list(accepted.get("collapsed"), 100_000))]


def total(numbers: Iterable[float | None]) -> float | None:
    """Return the sum of the known numbers; None if none is known."""
    known = [number for number in numbers if number is not None]
    return round(sum(known), 6) if known else None


def busy_curve(events: Sequence[Object], most: int = 300) -> list[tuple[float, int]]:
    """Return (time, number of working agents) for each change of the number.

    If there are more than `most` changes, return only the busiest moment of each interval.
    """
    working: set[tuple[str, int | None]] = set()
    steps: list[tuple[float, int]] = []
    for event in events:
        t, key = as_number(event.get("t")), (as_text(event.get("task"), 200), as_int(event.get("attempt")))
        kind = event.get("kind")
        if t is None or kind not in ("launch", "adopted", "outcome"):
            continue
        (working.discard if kind == "outcome" else working.add)(key)
        steps.append((max(t, steps[-1][0]) if steps else t, len(working)))
    if len(steps) <= most:
        return steps
    stretch = (steps[-1][0] - steps[0][0]) / (most - 1) or 1.0
    busiest: dict[int, tuple[float, int]] = {}
    for step in steps:
        place = int((step[0] - steps[0][0]) / stretch)
        if place not in busiest or step[1] > busiest[place][1]:
            busiest[place] = step
    return [*list(busiest.values())[:-1], steps[-1]]
