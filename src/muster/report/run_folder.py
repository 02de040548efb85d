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
from .folder import Folder, items, number, table, usable, value, whole, words

#: Every task ends in one of these; the last two are before its end.
OUTCOMES = (
    "ok",
    "blocked",
    "failed",
    "invalid",
    "timeout",
    "stalled",
    "over-budget",
    "cancelled",
    "lost",
    "running",
    "todo",
)
RESULTS = ("fixed", "improved", "unchanged", "refused")
BAD = ("failing", "hanging", "flaky")
#: Of one of the large files, in bytes.
MOST = 1 << 28

Object = dict[str, object]


class Attempt(NamedTuple):
    number: int
    agent: Object
    outcome: Object
    """Empty while it has none."""


class Task(NamedTuple):
    id: str
    item: str
    fields: Object
    base: str
    attempts: list[Attempt]
    verified: Object
    """Of the newest attempt; empty when it is not verified."""

    @property
    def told(self) -> Object:
        return self.attempts[-1].outcome if self.attempts else {}

    @property
    def outcome(self) -> str:
        if not self.attempts:
            return "todo"
        word = self.told.get("outcome")
        return str(word) if self.told.get("final") and word in OUTCOMES else "running"

    @property
    def result(self) -> str:
        return str(self.verified.get("result") or "")

    @property
    def works(self) -> bool:
        """Whether it is about a test, and not about putting the work of others together."""
        return self.fields.get("role") in ("scout", "worker")

    def total(self, key: str) -> float | None:
        """Over all attempts; None when nothing is known."""
        return total(number(attempt.outcome.get(key)) for attempt in self.attempts)


class Run(NamedTuple):
    source: Folder
    name: str
    about: Object
    baseline: Object
    plan: Object
    ahead: Object
    delivery: Object
    finished: Object
    tasks: list[Task]

    @property
    def improves(self) -> bool:
        return self.about.get("kind") == "improve"

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

    def file(name: str) -> Object:
        return table(source.json(name, limit=MOST))

    about = file("run.json")
    return Run(
        source=source,
        name=words(about.get("name"), 100) or folder.resolve().name,
        about=about,
        baseline=file("baseline.json"),
        plan=file("plan.json"),
        ahead=file("ahead.json"),
        delivery=file("delivery.json"),
        finished=file("finished.json"),
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
            verified = table(source.json("tasks", id, "verified.json", limit=MOST))
            current = attempts and verified.get("attempt") == attempts[-1].number and verified.get("result") in RESULTS
            found[id] = Task(id, item, table(said.get("fields")), base, attempts, verified if current else {})
    return list(found.values())


def _attempts(source: Folder, task: str) -> list[Attempt]:
    names = source.names("tasks", task)
    numbers = sorted(int(name[8:]) for name in names if re.fullmatch(r"attempt-[0-9]{1,6}", name, re.ASCII))
    tried = ((number, table(source.json("tasks", task, f"attempt-{number}", "agent.json"))) for number in numbers)
    return [
        Attempt(number, agent, table(source.json("tasks", task, f"attempt-{number}", "outcome.json")))
        for number, agent in tried
        if agent
    ]


# Counts


def funnel(run: Run) -> dict[str, float | None]:
    """How many came how far, as `muster improve` counts; of a run of `map` there is less to tell."""
    told = [task for task in run.tasks if task.works or task.fields.get("role") == "branch" or not run.improves]
    tried = [task for task in told if task.attempts]
    blocked = sum(task.told.get("outcome") == "blocked" for task in tried)
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
        "skipped": len(table(run.plan.get("skipped"))),
        "launched": sum("name" in task.attempts[-1].agent for task in tried),
        "valid": sum(isinstance(task.told.get("claimed"), dict) for task in tried),
        "verified": sum(bool(task.verified.get("ok")) for task in tried),
        "integrated": len({name for one in run.accepted() for name in names_of(one)}),
        "left_out": len(table(run.delivery.get("left_out"))),
        "refused": sum(bool(task.verified) and not task.verified.get("ok") for task in tried),
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
