"""Decide which tests get an agent, and write the tasks: scouts for groups of like failures first, then one worker for each test."""

from __future__ import annotations

import os
import shlex
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ... import Fleet
from ..limits.budget import Estimate
from ..mapping import start
from ..run import prompts, tasks
from ..run.directory import Run
from ..run.records import Ahead, Plan
from ..run.tasks import Task
from ..suite.baseline import BAD, STATUSES, Baseline, FunctionResult, Group
from . import converged
from .request import ImproveRequest

#: Characters of a failure that an agent is shown.
FAILURE_MOST = 3000
#: Tests that must fail alike before a scout goes first.
GROUP_LEAST = 2
#: Lines of a list in a prompt.
LINES_MOST = 20
#: Protected paths that a prompt names.
PROTECTED_MOST = 12


class Assignments(NamedTuple):
    """The tests that get an agent, and the others, each with the reason."""

    scouts: list[tuple[FunctionResult, Group]]
    workers: list[FunctionResult]
    skipped: Mapping[str, str]

    @property
    def agents(self) -> int:
        return len(self.scouts) + len(self.workers)


def assign(fleet: Fleet, request: ImproveRequest, run: Run, baseline: Baseline, save: bool = True) -> Assignments:
    """Return who gets an agent: one test of each group of like failures first, then all that are left.

    The plan of the run is used if there is one. Otherwise it is made, and saved unless `save` is False.
    """
    plan = run.plan()
    if plan is None:
        plan = _make_plan(fleet, request, run, baseline)
        if save:
            run.save(plan)
    rows = {row.function.id: row for row in baseline.tests}
    scouts = [(rows[id], group) for id in plan.scouts for group in baseline.groups if id in group.functions]
    taken = {*plan.skipped, *plan.scouts}
    return Assignments(scouts, [row for id, row in rows.items() if id not in taken], plan.skipped)


def _make_plan(fleet: Fleet, request: ImproveRequest, run: Run, baseline: Baseline) -> Plan:
    skipped: dict[str, str] = {}
    if not request.everything:
        skipped = converged.reasons_to_skip(fleet, run, baseline, request.map.spec.type, request.tutorial)
    skipped |= {row.function.id: "it is skipped" for row in baseline.tests if row.status == "skipped"}
    scouts = [id for group in baseline.groups if (id := _scout(request, group, skipped))]
    if request.playbooks:
        tests = [row.function.id for row in baseline.tests]
        without = [test for test in tests if test not in scouts and not playbook(request.playbooks, test)]
        skipped |= dict.fromkeys(without, f"there is no playbook for it in {request.playbooks}")
    return Plan(skipped, tuple(scouts))


def _scout(request: ImproveRequest, group: Group, skipped: Mapping[str, str]) -> str:
    """Return the test whose agent looks for the cause of a group; empty if the group needs no scout."""
    left = [id for id in group.functions if id not in skipped]
    able = [id for id in left if not request.playbooks or playbook(request.playbooks, id, "scout")]
    return able[0] if able and len(left) >= GROUP_LEAST else ""


def estimate(fleet: Fleet, request: ImproveRequest, assignments: Assignments) -> Estimate:
    """Return what these agents will cost, judged by former runs."""
    return start.estimate(fleet, request.map._replace(items=[{}] * assignments.agents))[0]


def announce(
    fleet: Fleet, request: ImproveRequest, run: Run, baseline: Baseline, assignments: Assignments, say: start.Say
) -> None:
    """Record and say the plan, before the first launch."""
    counts = Counter(row.status for row in baseline.tests)
    statuses = ", ".join(f"{counts[status]} {status}" for status in STATUSES if counts[status])
    lines = [f"{tasks.counted(len(baseline.tests), 'test')}: {statuses}"]
    for _, group in assignments.scouts:
        lines.append(f"{len(group.functions)} fail alike, so one agent goes first: {group.why}")
    for reason, number in Counter(assignments.skipped.values()).most_common(10):
        lines.append(f"{number} get no agent: {reason}")
    if assignments.agents:
        lines.append(estimate(fleet, request, assignments).words.replace("\n", "; "))
    say(run.event("plan", time.time(), reason="\n  ".join(lines)))


# Tasks


def scout_tasks(request: ImproveRequest, run: Run, assignments: Assignments) -> list[Task]:
    return [
        _task(request, number, row, "scout", run.info.base, group)
        for number, (row, group) in enumerate(assignments.scouts, 1)
    ]


def worker_tasks(request: ImproveRequest, baseline: Baseline, assignments: Assignments, ahead: Ahead) -> list[Task]:
    """Return a task for each test that is left and does not pass because of a scout."""
    left = [row for row in assignments.workers if row.function.id not in ahead.fixed]
    return [
        _task(request, number, row, "worker", ahead.base, _group_of(baseline, row), ahead.siblings)
        for number, row in enumerate(left, len(assignments.scouts) + 1)
    ]


def _group_of(baseline: Baseline, row: FunctionResult) -> Group | None:
    return next((group for group in baseline.groups if row.function.id in group.functions), None)


def _task(
    request: ImproveRequest,
    number: int,
    row: FunctionResult,
    role: str,
    base: str,
    group: Group | None,
    siblings: Sequence[str] = (),
) -> Task:
    function = row.function
    args = (playbook(request.playbooks, function.id, role),) if request.playbooks else request.map.args
    fields = {
        "item": function.id,
        "role": role,
        "status": row.status,
        "group": str(len(group.functions) if group else 1),
    }
    name = tasks.name(number, f"{role} {function.name}" if role == "scout" else function.name)
    text = prompt(request, row, role, group, siblings)
    return Task(name, number, function.id, fields, text, args, base)


def playbook(folder: str, test: str, role: str = "") -> str:
    """Return the path of a test's playbook: `test_file.test_name.toml` or `test_name.toml`; empty if there is none.

    A scout's playbook may have `scout.` in front.
    """
    file, _, name = test.partition("::")
    name = name.replace("::", ".")
    stem = os.path.splitext(os.path.basename(file))[0]
    names = [f"{stem}.{name}.toml", f"{name}.toml"]
    names = [f"scout.{candidate}" for candidate in names] + names if role == "scout" else names
    return next((path for candidate in names if os.path.isfile(path := os.path.join(folder, candidate))), "")


# The prompt


def prompt(
    request: ImproveRequest, row: FunctionResult, role: str, group: Group | None, siblings: Sequence[str]
) -> str:
    """Return the first message of an agent. All values are inserted as text; slots in them are not filled in."""
    function, case = row.function, row.case
    failure = ""
    if case is not None and row.status in BAD:
        failure = f"\nThe outcome of `{case.id}` was {case.outcome}:\n\n{_fenced(case.text[-FAILURE_MOST:])}\n"
    if group is not None and len(group.functions) > 1:
        others = "".join(f"\n- {id}" for id in group.functions[:LINES_MOST] if id != function.id)
        failure += f"\n{len(group.functions)} tests fail alike ({group.why}). The others:{others}\n"
    block = "".join(f"\nIt cites this block of the tutorial:\n\n{_fenced(cited.text)}\n" for cited in function.blocks)
    done = "".join(f"\n- {line}" for line in siblings[:LINES_MOST])
    return prompts.prompt(
        "improve",
        test=function.id,
        file=f"{function.file}, lines {function.line} to {function.end}",
        situation=_SITUATION[row.status],
        failure=failure,
        block=block,
        siblings=f"\nAlready fixed in the commit that you start from:{done}\n" if done else "",
        todo=_TODO["scout" if role == "scout" else "bad" if row.status in BAD else "good"],
        command=shlex.join((*request.pytest, *request.args, function.id)),
        protected="".join(f", {path}" for path in request.rules.protected[:PROTECTED_MOST]),
    )


_SITUATION = {
    "failing": "It fails.",
    "hanging": "It hangs.",
    "flaky": "It is flaky: it sometimes passes and sometimes fails.",
    "passing": "It passes.",
    "skipped": "It is skipped.",
}
_TODO = {
    "scout": "Find the cause that these tests share, and fix it at its source so that all of them can pass. Change nothing else.",
    "bad": "Find out why, and fix the program or the test, whichever is wrong.",
    "good": "Compare it with what it is meant to test. Make it more faithful, make its assertions stronger, or add a test for a part that "
    "none covers. If it is good as it is, change nothing and submit `ok` with the summary `unchanged`.",
}


def _fenced(text: str) -> str:
    """Return text as a block of Markdown that nothing in it can end."""
    marks = "```"
    while marks in text:
        marks += "`"
    return f"{marks}\n{text.rstrip()}\n{marks}"
