"""The true *before*: how every test function stands when no agent has done anything, and which failures are alike.

Taking it runs tests; judging and grouping are pure, and what comes of it is kept as JSON.
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
from . import collect, execute
from .collect import Cited, Function
from .execute import BAD, Case, Crash, Where

VERSION = 1
#: The worst first: what one of its tests is, the function is.
STATUSES = ("hanging", "failing", "flaky", "passing", "skipped")
#: What a function of which the tests count as one was.
OUTCOME = {"hanging": "hung", "failing": "failed", "flaky": "flaky", "passing": "passed", "skipped": "skipped"}
#: A whole suite is run by so many agents at once.
SHARDS = 2
#: Of the text of one failure.
TEXT_MOST = 2000

Say = Callable[[str], None]


class Standing(NamedTuple):
    """How a function stands."""

    function: Function
    status: str
    outcomes: dict[str, list[str]]
    """Of each of its tests, one for each time it ran."""
    seconds: float = 0.0
    """All of its tests, the first time."""
    case: Case | None = None
    """The first that went wrong."""


class Group(NamedTuple):
    """Functions that fail alike."""

    fingerprint: str
    why: str
    functions: tuple[str, ...]
    sample: str
    """What one of them said."""


class Baseline(NamedTuple):
    commit: str
    tests: tuple[Standing, ...]
    groups: tuple[Group, ...]
    runs: int
    """How often tests ran that did not pass at once."""
    seconds: float = 0.0
    roots: tuple[str, ...] = ()
    """Folders of a checkout that have to come first on sys.path, see `trial.Report`."""

    def before(self) -> dict[str, str]:
        """The outcome of each test by id, or of a function that is `varying`; `flaky` where there are several."""
        varying, found = self.varying(), dict[str, set[str]]()
        for one in self.tests:
            if one.function.id in varying:
                found[one.function.id] = {OUTCOME[one.status]}
            else:
                found |= {id: set(seen) for id, seen in one.outcomes.items() if seen}
        return {id: "flaky" if len(seen) > 1 else next(iter(seen)) for id, seen in found.items()}

    def varying(self) -> frozenset[str]:
        """The functions whose parameters are made anew each time: a test of theirs ran that had not been collected."""
        return frozenset(one.function.id for one in self.tests if not one.outcomes.keys() <= set(one.function.ids))

    def to_json(self) -> dict[str, Any]:
        return {
            "version": VERSION,
            "commit": self.commit,
            "runs": self.runs,
            "seconds": self.seconds,
            "roots": list(self.roots),
            "tests": [_to_json(one) for one in self.tests],
            "groups": [{**group._asdict(), "functions": list(group.functions)} for group in self.groups],
        }

    @classmethod
    def from_json(cls, data: Any) -> Baseline:
        """ValueError when it is none, or one of another version."""
        if not isinstance(data, dict) or data.get("version") != VERSION:
            raise ValueError("not a baseline of this version")
        try:
            groups = tuple(Group(**{**group, "functions": tuple(group["functions"])}) for group in data["groups"])
            tests, roots = tuple(map(_from_json, data["tests"])), tuple(data.get("roots", ()))
            return cls(data["commit"], tests, groups, data["runs"], float(data["seconds"]), roots)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a baseline: {error}") from error


# Taking it


def take(
    fleet: Fleet,
    where: Where,
    commit: str,
    *,
    repeat: int = 2,
    shards: int = SHARDS,
    timeout: float = 0.0,
    tutorial: str = "",
    say: Say = lambda words: None,
) -> Baseline:
    """Run all tests, and `repeat` times those that fail or differ, in up to `shards` agents at once.

    UsageError for a project whose tests cannot be collected, TimedOut when one agent had not enough time.
    """
    timeout = timeout or where.timeout
    collected = execute.run(fleet, where, commit, timeout=timeout, collect=True)
    commit = collected.commit
    found = collect.functions(collected)
    found = collect.cite(fleet.local, os.path.join(fleet.cwd, where.source), commit, found, tutorial)
    files = parts(found, shards)
    say(f"{counted(len(found), 'test function')}, run once, in {counted(len(files), 'part')}")
    check = partial(collect.check, ran=True)
    runs = [execute.spread(fleet, where, commit, files, timeout=timeout, check=check)]
    left = [one for one in found if not any(id in runs[0].cases for id in one.ids)]
    if runs[0].late and left:
        told = f"the time was up ({timeout:g} s) before {len(left)} of {len(found)} test functions ran"
        raise TimedOut(told, collect.MORE_TIME)
    for number in range(2, repeat + 1):
        again = suspects([run.cases for run in runs])
        if not again:
            break
        say(f"{counted(len(again), 'test')} once more, to find the flaky ones ({number} of {repeat})")
        runs.append(execute.run(fleet, where, commit, again, timeout=timeout))
    tested = judge(found, [run.cases for run in runs])
    seconds = round(collected.seconds + sum(run.seconds for run in runs), 3)
    roots = tuple(dict.fromkeys((*collected.roots, *(root for run in runs for root in run.roots))))
    return Baseline(commit, tuple(tested), tuple(groups(tested)), len(runs), seconds, roots)


def parts(found: Sequence[Function], count: int) -> list[list[str]]:
    """The files of the tests in up to `count` parts with about as many tests each; a file is never torn."""
    sizes: dict[str, int] = {}
    for one in found:
        file = one.id.split("::")[0]
        sizes[file] = sizes.get(file, 0) + len(one.ids)
    made: list[list[str]] = [[] for _ in range(max(1, min(count, len(sizes))))]
    for file in sorted(sizes, key=lambda file: (-sizes[file], file)):
        min(made, key=lambda part: sum(sizes[one] for one in part)).append(file)
    return made


def suspects(runs: Sequence[Mapping[str, Case]]) -> list[str]:
    """The tests that are worth another run: those that failed, and those that were not the same each time. One that hangs does."""
    seen: dict[str, set[str]] = {}
    for run in runs:
        for id, case in run.items():
            seen.setdefault(id, set()).add(case.outcome)
    return [id for id, outcomes in seen.items() if "hung" not in outcomes and (outcomes & BAD or len(outcomes) > 1)]


# Judging it


def judge(found: Sequence[Function], runs: Sequence[Mapping[str, Case]]) -> list[Standing]:
    """How each function stands, by all that its tests did. What has parameters made anew each time is known by its name."""
    by_function: dict[str, list[str]] = {one.id: list(one.ids) for one in found}
    known = {id for ids in by_function.values() for id in ids}
    for run in runs:
        for id in run:
            if id not in known and id.partition("[")[0] in by_function:
                by_function[id.partition("[")[0]].append(id)
                known.add(id)
    return [_tested(one, [{id: run[id] for id in by_function[one.id] if id in run} for run in runs]) for one in found]


def _tested(function: Function, runs: Sequence[Mapping[str, Case]]) -> Standing:
    outcomes: dict[str, list[str]] = {}
    for run in runs:
        for id, case in run.items():
            outcomes.setdefault(id, []).append(case.outcome)
    statuses = {_status(seen) for seen in outcomes.values()} or {"failing"}
    wrong = next((case for run in runs for case in run.values() if case.outcome in BAD), None)
    if not outcomes:
        wrong = Case(function.id, "missing", text="it was collected, and then not run")
    if wrong is not None:
        wrong = wrong._replace(text=cut(wrong.text))
    seconds = round(sum(case.seconds for case in runs[0].values()), 3) if runs else 0.0
    return Standing(function, min(statuses, key=STATUSES.index), outcomes, seconds, wrong)


def _status(outcomes: Sequence[str]) -> str:
    seen = set(outcomes)
    if "hung" in seen:
        return "hanging"
    if seen <= {"failed", "error"}:
        return "failing"
    if len(seen) > 1:
        return "flaky"
    return "passing" if seen == {"passed"} else "skipped"


# Grouping it


def groups(tested: Sequence[Standing]) -> list[Group]:
    """The functions that did not pass, by what they said; the largest group first. A function is in one only."""
    made: dict[str, Group] = {}
    for one in tested:
        if one.status in ("hanging", "failing", "flaky") and one.case is not None:
            key, why = fingerprint(one.function, one.case)
            group = made.get(key, Group(key, why, (), cut(one.case.text)))
            made[key] = group._replace(functions=(*group.functions, one.function.id))
    return sorted(made.values(), key=lambda group: -len(group.functions))


def fingerprint(function: Function, case: Case) -> tuple[str, str]:
    """What makes a failure the same as others, and that in words.

    An error is known by what it says, wherever it was raised. An assertion and a hang say little: they are also known by the
    file they were in, and where that is the function's own body they are like no other. But where what they say has the
    traceback of a program that was run, it is that program's error that counts.
    """
    crash = case.crash or Crash("", 0, _last(case.text))
    said = _raised(crash.message) or (crash.message.strip().splitlines() or [case.outcome])[0]
    placed = case.outcome == "hung" or said.startswith(("assert", "AssertionError"))
    own_body = placed and crash.file == function.file and function.line <= crash.line <= function.end
    line = f"{said} ({crash.file})" if placed and not own_body else said
    # As the failure of a command: what a test says of limits and hosts is its subject, and not its cause.
    failure = failures.classify("work", line, reason="exit", own=(function.name, *function.ids[:4]))
    print = failures.fingerprint(failure)
    shown = print.why.partition(" with the line ")[2] or print.why
    if own_body:
        digest = hashlib.sha256(function.id.encode("utf-8", "replace")).hexdigest()[:8]
        return f"{print.key}:{digest}", f"in the body of {function.id}: {shown}"
    return print.key, f"the same line: {shown}"


def _raised(message: str) -> str:
    """The error of the last traceback that is quoted in a message, with the function that raised it; empty when there is none."""
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


def cut(text: str) -> str:
    """The beginning and, three times as much, the end."""
    head = TEXT_MOST // 4
    return text if len(text) <= TEXT_MOST else f"{text[:head]}\n…\n{text[-(TEXT_MOST - head - 3) :]}"


def _last(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


# Keeping it


def _to_json(one: Standing) -> dict[str, Any]:
    function = one.function._asdict() | {"blocks": [block._asdict() for block in one.function.blocks]}
    case = one.case
    told = None
    if case is not None:
        crash = list(case.crash) if case.crash else None
        told = {"id": case.id, "outcome": case.outcome, "seconds": case.seconds, "text": case.text, "crash": crash}
    return {**function, "status": one.status, "outcomes": one.outcomes, "seconds": one.seconds, "case": told}


def _from_json(data: dict[str, Any]) -> Standing:
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
    told = data["case"]
    case = Case(**{**told, "crash": Crash(*told["crash"]) if told["crash"] else None}) if told else None
    return Standing(function, data["status"], data["outcomes"], data["seconds"], case)
