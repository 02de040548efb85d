"""The baseline: how every test function stands before any agent has changed anything, and which failures are alike.

Measuring it runs tests; judging and grouping the outcomes is pure.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from ... import Fleet
from ...errors import TimedOut
from ..limits import failures
from ..run.tasks import counted
from . import collect, execute, report
from .collect import Cited, Function
from .execute import Suite
from .report import Case, Crash

VERSION = 1
#: From worst to best. A function is as bad as the worst of its tests.
STATUSES = ("hanging", "failing", "flaky", "passing", "skipped")
BAD = frozenset({"hanging", "failing", "flaky"})
#: The outcome that stands for each status where all tests of a function count as one.
OUTCOMES = {"hanging": "hung", "failing": "failed", "flaky": "flaky", "passing": "passed", "skipped": "skipped"}
#: Agents that run a whole suite at the same time.
SHARDS = 2
#: Characters kept of one failure.
TEXT_MOST = 2000

Say = Callable[[str], None]


class FunctionResult(NamedTuple):
    """What the baseline found for one test function."""

    function: Function
    status: str
    outcomes: dict[str, list[str]]
    """For each of its tests, the outcome of each run."""
    seconds: float = 0.0
    """Time of all its tests in the first run."""
    case: Case | None = None
    """The first test that went wrong."""


class Group(NamedTuple):
    """Test functions that fail alike."""

    fingerprint: str
    why: str
    functions: tuple[str, ...]
    sample: str
    """The text of one of the failures."""


class Baseline(NamedTuple):
    commit: str
    tests: tuple[FunctionResult, ...]
    groups: tuple[Group, ...]
    runs: int
    """How often tests ran that did not pass at once."""
    seconds: float = 0.0
    roots: tuple[str, ...] = ()
    """Folders of a checkout that must come first on sys.path, see `Report.roots`."""

    def outcomes(self) -> dict[str, str]:
        """Return the outcome of each test by id (of a varying function as a whole); `flaky` if it had several."""
        varying, seen = self.varying(), dict[str, set[str]]()
        for row in self.tests:
            if row.function.id in varying:
                seen[row.function.id] = {OUTCOMES[row.status]}
            else:
                seen |= {id: set(outcomes) for id, outcomes in row.outcomes.items() if outcomes}
        return {id: "flaky" if len(outcomes) > 1 else next(iter(outcomes)) for id, outcomes in seen.items()}

    def varying(self) -> frozenset[str]:
        """Return the functions whose parameters differ from run to run: one of their tests ran that was not collected before."""
        return frozenset(row.function.id for row in self.tests if not row.outcomes.keys() <= set(row.function.ids))

    def to_json(self) -> dict[str, Any]:
        return {
            "version": VERSION,
            "commit": self.commit,
            "runs": self.runs,
            "seconds": self.seconds,
            "roots": list(self.roots),
            "tests": [_to_json(row) for row in self.tests],
            "groups": [{**group._asdict(), "functions": list(group.functions)} for group in self.groups],
        }

    @classmethod
    def from_json(cls, data: Any) -> Baseline:
        """Raises ValueError if it is no baseline, or one of another version."""
        if not isinstance(data, dict) or data.get("version") != VERSION:
            raise ValueError("not a baseline of this version")
        try:
            groups = tuple(Group(**{**group, "functions": tuple(group["functions"])}) for group in data["groups"])
            tests, roots = tuple(map(_from_json, data["tests"])), tuple(data.get("roots", ()))
            return cls(data["commit"], tests, groups, data["runs"], float(data["seconds"]), roots)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a baseline: {error}") from error


# Measuring


def measure(
    fleet: Fleet,
    suite: Suite,
    commit: str,
    *,
    repeat: int = 2,
    shards: int = SHARDS,
    timeout: float = 0.0,
    tutorial: str = "",
    say: Say = lambda text: None,
) -> Baseline:
    """Run all tests of a commit once, in up to `shards` agents at a time, and those that fail or vary up to `repeat` times.

    Raises UsageError if the project's tests cannot be collected, TimedOut if an agent did not have enough time.
    """
    timeout = timeout or suite.timeout
    collected = execute.run(fleet, suite, commit, timeout=timeout, collect=True)
    commit = collected.commit
    functions = collect.functions(collected)
    functions = collect.cite(fleet.local, os.path.join(fleet.cwd, suite.source), commit, functions, tutorial)
    files = split_files(functions, shards)
    say(f"{counted(len(functions), 'test function')}, run once, in {counted(len(files), 'part')}")
    check = partial(collect.check, ran=True)
    runs = [execute.run_in_parts(fleet, suite, commit, files, timeout=timeout, check=check)]
    left = [function for function in functions if not any(id in runs[0].cases for id in function.ids)]
    if runs[0].timed_out and left:
        message = f"the time was up ({timeout:g} s) before {len(left)} of {len(functions)} test functions ran"
        raise TimedOut(message, collect.MORE_TIME)
    for number in range(2, repeat + 1):
        again = suspects([run.cases for run in runs])
        if not again:
            break
        say(f"{counted(len(again), 'test')} once more, to find the flaky ones ({number} of {repeat})")
        runs.append(execute.run(fleet, suite, commit, again, timeout=timeout))
    rows = judge(functions, [run.cases for run in runs])
    seconds = round(collected.seconds + sum(run.seconds for run in runs), 3)
    roots = tuple(dict.fromkeys((*collected.roots, *(root for run in runs for root in run.roots))))
    return Baseline(commit, tuple(rows), tuple(groups(rows)), len(runs), seconds, roots)


def split_files(functions: Sequence[Function], count: int) -> list[list[str]]:
    """Return the test files in up to `count` parts with about the same number of tests. A file is never split."""
    sizes: dict[str, int] = {}
    for function in functions:
        file = function.id.split("::")[0]
        sizes[file] = sizes.get(file, 0) + len(function.ids)
    parts: list[list[str]] = [[] for _ in range(max(1, min(count, len(sizes))))]
    for file in sorted(sizes, key=lambda file: (-sizes[file], file)):
        min(parts, key=lambda part: sum(sizes[name] for name in part)).append(file)
    return parts


def suspects(runs: Sequence[Mapping[str, Case]]) -> list[str]:
    """Return the tests that should run again: those that failed and those that varied. One that hangs is sure to hang again."""
    seen: dict[str, set[str]] = {}
    for run in runs:
        for id, case in run.items():
            seen.setdefault(id, set()).add(case.outcome)
    return [
        id for id, outcomes in seen.items() if "hung" not in outcomes and (outcomes & report.BAD or len(outcomes) > 1)
    ]


# Judging


def judge(functions: Sequence[Function], runs: Sequence[Mapping[str, Case]]) -> list[FunctionResult]:
    """Return how each function stands after all runs. A test with parameters that were not collected belongs to the function it names."""
    by_function: dict[str, list[str]] = {function.id: list(function.ids) for function in functions}
    known = {id for ids in by_function.values() for id in ids}
    for run in runs:
        for id in run:
            if id not in known and id.partition("[")[0] in by_function:
                by_function[id.partition("[")[0]].append(id)
                known.add(id)
    return [
        _judge(function, [{id: run[id] for id in by_function[function.id] if id in run} for run in runs])
        for function in functions
    ]


def _judge(function: Function, runs: Sequence[Mapping[str, Case]]) -> FunctionResult:
    outcomes: dict[str, list[str]] = {}
    for run in runs:
        for id, case in run.items():
            outcomes.setdefault(id, []).append(case.outcome)
    statuses = {_status(seen) for seen in outcomes.values()} or {"failing"}
    wrong = next((case for run in runs for case in run.values() if case.outcome in report.BAD), None)
    if not outcomes:
        wrong = Case(function.id, "missing", text="it was collected, but did not run")
    if wrong is not None:
        wrong = wrong._replace(text=shorten(wrong.text))
    seconds = round(sum(case.seconds for case in runs[0].values()), 3) if runs else 0.0
    return FunctionResult(function, min(statuses, key=STATUSES.index), outcomes, seconds, wrong)


def _status(outcomes: Sequence[str]) -> str:
    seen = set(outcomes)
    if "hung" in seen:
        return "hanging"
    if seen <= {"failed", "error"}:
        return "failing"
    if len(seen) > 1:
        return "flaky"
    return "passing" if seen == {"passed"} else "skipped"


# Grouping


def groups(rows: Sequence[FunctionResult]) -> list[Group]:
    """Return the functions that did not pass, grouped by their failure, the largest group first. Each function is in one group."""
    made: dict[str, Group] = {}
    for row in rows:
        if row.status in BAD and row.case is not None:
            key, why = fingerprint(row.function, row.case)
            group = made.get(key, Group(key, why, (), shorten(row.case.text)))
            made[key] = group._replace(functions=(*group.functions, row.function.id))
    return sorted(made.values(), key=lambda group: -len(group.functions))


def fingerprint(function: Function, case: Case) -> tuple[str, str]:
    """Return a key that is equal for like failures, and a description of it.

    An error is identified by its message, wherever it was raised. The message of an assertion or a hang says little, so the file counts
    too; one in the function's own body is like no other failure. If the message quotes the traceback of a program that the test ran,
    the error of that program counts.
    """
    crash = case.crash or Crash("", 0, _last_line(case.text))
    message = _quoted_error(crash.message) or (crash.message.strip().splitlines() or [case.outcome])[0]
    needs_place = case.outcome == "hung" or message.startswith(("assert", "AssertionError"))
    own_body = needs_place and crash.file == function.file and function.line <= crash.line <= function.end
    line = f"{message} ({crash.file})" if needs_place and not own_body else message
    # Classified as the failure of a command: when a test mentions limits and hosts, they are its subject and not the cause.
    failure = failures.classify("work", line, reason="exit", own=(function.name, *function.ids[:4]))
    found = failures.fingerprint(failure)
    shown = found.why.partition(" with the line ")[2] or found.why
    if own_body:
        digest = hashlib.sha256(function.id.encode("utf-8", "replace")).hexdigest()[:8]
        return f"{found.key}:{digest}", f"in the body of {function.id}: {shown}"
    return found.key, f"the same line: {shown}"


def _quoted_error(message: str) -> str:
    """Return the error of the last traceback that a message quotes, with the function that raised it; empty if it quotes none."""
    inner = message.rpartition("Traceback (most recent call last):")[2]
    if inner == message:
        return ""
    place = ""
    for line in inner.splitlines()[1:]:
        plain = re.sub(r"^[\s>|!E]*(?=File |\S)", "", line)
        if frame := re.match(r'File "(.*)", line \d+, in (\S+)', plain):
            place = f" ({os.path.basename(frame[1])}, {frame[2]})"
        elif place and re.match(r"[A-Za-z_][\w.]*(Error|Exception|Interrupt|Exit|Warning)\b", plain):
            return plain + place
    return ""


def shorten(text: str) -> str:
    """Return the beginning of a long text and, three times as much, its end."""
    head = TEXT_MOST // 4
    return text if len(text) <= TEXT_MOST else f"{text[:head]}\n…\n{text[-(TEXT_MOST - head - 3) :]}"


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


# JSON


def _to_json(row: FunctionResult) -> dict[str, Any]:
    function = row.function._asdict() | {"blocks": [block._asdict() for block in row.function.blocks]}
    case = None
    if row.case is not None:
        case = row.case._asdict() | {"crash": list(row.case.crash) if row.case.crash else None}
    return {**function, "status": row.status, "outcomes": row.outcomes, "seconds": row.seconds, "case": case}


def _from_json(data: dict[str, Any]) -> FunctionResult:
    function = Function(
        data["id"],
        data["file"],
        data["line"],
        data["end"],
        data["cls"],
        tuple(data["ids"]),
        tuple(data["marks"]),
        tuple(Cited(**block) for block in data["blocks"]),
    )
    fields = data["case"]
    case = Case(**{**fields, "crash": Crash(*fields["crash"]) if fields["crash"] else None}) if fields else None
    return FunctionResult(function, data["status"], data["outcomes"], data["seconds"], case)
