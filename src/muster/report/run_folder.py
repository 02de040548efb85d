"""What a run's directory (docs/runs.md) tells: its tasks and how far each of them came. All of it may be damaged or made up, and what
cannot be read is as if it were not there.
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
from .folder import Folder, items, number, table, usable, value, whole, words

#: What is shown of a task: how it ended, or where it is before that.
OUTCOMES = (*records.OUTCOMES, "running", "todo")
BAD = ("failing", "hanging", "flaky")
#: Of one of the large files, in bytes.
MOST = 1 << 28

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
    """Of the newest attempt; None if that is not verified."""

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
    def works(self) -> bool:
        """Whether it is about a test, and not about putting the work of others together."""
        return self.fields.get("role") in ("scout", "worker")

    def total(self, key: str) -> float | None:
        """Over all attempts; None when nothing is known."""
        return total(number(getattr(attempt.outcome, key)) for attempt in self.attempts if attempt.outcome)


class Run(NamedTuple):
    source: Folder
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
        return [table(one) for one in items(self.delivery.get("accepted"), 100_000)]

    def tests(self) -> list[Object]:
        return [table(one) for one in items(self.baseline.get("tests"), 100_000)]

    def groups(self) -> list[Object]:
        """The tests that fail alike, in lists."""
        return [table(one) for one in items(self.baseline.get("groups"), 100_000)]


def is_run(folder: Path) -> bool:
    return (folder / "tasks.jsonl").is_file() and not (folder / "format.json").exists()


def read(folder: Path) -> Run:
    """All but what attempts left. NotFound when it is no directory of a run."""
    if not is_run(folder):
        raise NotFound(f"{folder} is not the directory of a run", "muster runs shows them")
    source = Folder(folder)

    def file(name: str) -> object:
        return source.json(name, limit=MOST)

    info = RunInfo.from_json(file("run.json"))
    return Run(
        source=source,
        name=words(info.name, 100) or folder.resolve().name,
        info=info,
        baseline=table(file("baseline.json")),
        plan=Plan.from_json(file("plan.json")) or Plan(),
        ahead=Ahead.from_json(file("ahead.json")) or Ahead(),
        delivery=table(file("delivery.json")),
        finished=Finished.from_json(file("finished.json")),
        tasks=_tasks(source),
    )


def _tasks(source: Folder) -> list[Task]:
    found: dict[str, Task] = {}
    for line in source.lines("tasks.jsonl", most=MOST):
        said = table(value(line))
        id = said.get("id")
        if isinstance(id, str) and usable(id):
            item, base = words(said.get("item"), 2000), words(said.get("base"), 100)
            attempts = _attempts(source, id)
            verified = Verified.from_json(source.json("tasks", id, "verified.json", limit=MOST))
            current = verified if attempts and verified and verified.attempt == attempts[-1].number else None
            found[id] = Task(id, item, table(said.get("fields")), base, attempts, current)
    return list(found.values())


def _attempts(source: Folder, task: str) -> list[Attempt]:
    names = source.names("tasks", task)
    numbers = sorted(int(name[8:]) for name in names if re.fullmatch(r"attempt-[0-9]{1,6}", name, re.ASCII))
    return [
        Attempt(number, agent, Outcome.from_json(source.json("tasks", task, f"attempt-{number}", "outcome.json")))
        for number in numbers
        if (agent := AttemptAgent.from_json(source.json("tasks", task, f"attempt-{number}", "agent.json")))
    ]


# Counts


def funnel(run: Run) -> dict[str, float | None]:
    """How many came how far, as `muster improve` counts; of a run of `map` there is less to tell."""
    told = [task for task in run.tasks if task.works or task.fields.get("role") == "branch" or not run.improves]
    tried = [task for task in told if task.attempts]
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
        "failing": sum(one.get("status") in BAD for one in tests),
        "groups": sum(len(items(one.get("functions"), 2)) > 1 for one in run.groups()),
        "skipped": len(run.plan.skipped),
        "launched": sum(bool(task.attempts[-1].agent.name) for task in tried),
        "valid": sum(task.ended.claimed is not None for task in tried),
        "verified": sum(bool(task.verified and task.verified.ok) for task in tried),
        "integrated": len({name for one in run.accepted() for name in names_of(one)}),
        "left_out": len(table(run.delivery.get("left_out"))),
        "refused": sum(bool(task.verified and not task.verified.ok) for task in tried),
        "blocked": blocked,
        **spent,
    }


def names_of(accepted: Object) -> list[str]:
    """The task whose change was taken, and those whose change is the same."""
    return [words(name, 200) for name in (accepted.get("name"), *items(accepted.get("collapsed"), 100_000))]


def total(numbers: Iterable[float | None]) -> float | None:
    known = [one for one in numbers if one is not None]
    return round(sum(known), 6) if known else None


def curve(events: Sequence[Object], most: int = 300) -> list[tuple[float, int]]:
    """How many agents worked from each moment on; of many moments only the busiest of each stretch."""
    working: set[tuple[str, int | None]] = set()
    steps: list[tuple[float, int]] = []
    for event in events:
        t, key = number(event.get("t")), (words(event.get("task"), 200), whole(event.get("attempt")))
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
