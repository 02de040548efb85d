"""Decide from test runs whether a change is kept: it fixes the test that it is for, and makes no other test worse.

`before` is always the outcome of each test in the baseline, by id, with `flaky` for tests that had several outcomes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ... import Fleet
from ...cast import strip
from .execute import Suite, run
from .report import BAD, Report, function_of, is_of

#: Tests of one run that are kept as evidence; no test file has as many.
EVIDENCE_MOST = 2000
#: Runs without the change that a failing neighbour gets before the change is blamed for it.
RUNS_WITHOUT = 6


class Verdict(NamedTuple):
    ok: bool
    reason: str
    evidence: list[dict[str, Any]]
    """Every test run that was made, for JSON."""
    fixed: tuple[str, ...] = ()
    """From `check_change`: the tests that failed before and pass now."""


def check_fix(
    fleet: Fleet,
    suite: Suite,
    commit: str,
    function: str,
    before: Mapping[str, str],
    *,
    times: int = 3,
    timeout: float = 0.0,
    must_fix: bool = True,
    base: str = "",
) -> Verdict:
    """Decide whether a change fixes a test function and its file is no worse than on `base`.

    All tests of the function must pass in each of `times` runs. With `must_fix` they must have failed before, and must still fail on `base`
    unless they hang or are flaky: a change that makes no difference to its test is no fix. Stops at the first run that speaks against it.
    """
    own = [id for id in before if is_of(id, function)]
    if must_fix and not any(before[id] in BAD or before[id] == "flaky" for id in own):
        return Verdict(False, f"{function} did not fail before", [])
    evidence: list[dict[str, Any]] = []
    for number in range(max(1, times)):
        # The other tests of the file run once only: the change is not about them.
        report = run(fleet, suite, commit, [function if number else function.split("::")[0]], timeout=timeout)
        evidence.append(_evidence(report))
        reason, id = objection(report, function, before if not number else {id: before[id] for id in own})
        neighbour = bool(reason and id and not is_of(id, function) and id in before)
        if neighbour and _fails_without(fleet, suite, base, id, timeout, evidence):
            reason, id = objection(report, function, {**before, id: "flaky"})
        if reason:
            return Verdict(False, strip(reason), evidence)
    reason = f"passed {len(evidence)} of {len(evidence)} times"
    was = {before[id] for id in own}
    if must_fix and base and "hung" not in was and was & BAD:
        report = run(fleet, suite, base, [function], timeout=timeout)
        evidence.append(_evidence(report))
        if not report.errors and not first_unfixed(report, function, before):
            return Verdict(False, f"{strip(function)} also passes without the change", evidence)
    return Verdict(True, reason, evidence)


def check_change(
    fleet: Fleet,
    suite: Suite,
    commit: str,
    before: Mapping[str, str],
    *,
    times: int = 3,
    timeout: float = 0.0,
    base: str = "",
    removed: Callable[[str], bool] = lambda function: False,
) -> Verdict:
    """Decide whether a change makes no test worse, and the tests that it fixes pass each time. See `worse` for `removed`."""
    report = run(fleet, suite, commit, timeout=timeout)
    evidence = [_evidence(report)]
    if reason := unusable(report):
        return Verdict(False, strip(reason), evidence)
    for id, reason in worse(report, before, removed):
        if not _fails_without(fleet, suite, base, id, timeout, evidence):
            return Verdict(False, strip(reason), evidence)
    if reason := _new_and_bad(report, before)[0]:
        return Verdict(False, strip(reason), evidence)
    fixed = tuple(id for id, was in before.items() if was in BAD and report.outcome(id) == "passed")
    for _ in range(times - 1 if fixed else 0):
        again = run(fleet, suite, commit, list(fixed), timeout=timeout)
        evidence.append(_evidence(again))
        if bad := next((id for id in fixed if again.outcome(id) != "passed"), ""):
            return Verdict(False, strip(f"{bad} passed once, then it was {again.outcome(bad)}"), evidence)
    if not fixed:
        return Verdict(True, "no test fails because of it", evidence)
    tests = "1 test that failed passes" if len(fixed) == 1 else f"{len(fixed)} tests that failed pass"
    often = "once" if times <= 1 else f"{times} times"
    return Verdict(True, f"{tests} {often}", evidence, fixed)


def unusable(report: Report) -> str:
    """Return why a run of all tests decides nothing; empty if it does."""
    if report.outside:
        return _outside(report)
    if report.errors:
        return f"{next(iter(report.errors))} cannot be collected"
    if report.timed_out:
        return "the time was up"
    return "" if report.status in (0, 1, 5) and report.cases else "pytest did not finish"


def worse(
    report: Report, before: Mapping[str, str], removed: Callable[[str], bool] = lambda function: False
) -> Iterator[tuple[str, str]]:
    """Yield the tests that passed before and do not in this run of all tests, and those that are gone, each with the reason.

    A whole function may be gone if `removed` says that it was taken out of its file, which the review of the change has seen. A single
    set of parameters may not, because parameters can be written in any file.
    """
    present = {item.function for item in report.items.values()} | set(map(function_of, report.cases))
    for id, was in before.items():
        now, function = report.outcome(id), function_of(id)
        if now == "missing" and was not in ("skipped", "xfailed"):
            if function in present or not removed(function):
                yield id, f"{id} is gone, or did not run"
        elif was == "passed" != now:
            yield id, f"{id} is {now} now{_because(report, id)}"


def first_unfixed(report: Report, function: str, before: Mapping[str, str]) -> str:
    """Return the first test of a function that does not pass, the function itself if none passes, or an empty string.

    A test that was skipped before may still be skipped.
    """
    own = [id for id in (*before, *report.cases) if is_of(id, function)]
    bad = (id for id in own if (now := report.outcome(id)) != "passed" and (now in BAD or now != before.get(id)))
    return next(bad, "" if any(report.outcome(id) == "passed" for id in own) else function)


def objection(report: Report, function: str, before: Mapping[str, str]) -> tuple[str, str]:
    """Return what a run of a function's file says against the change, and the test that says it; empty if nothing does."""
    if report.errors:
        file, text = next(iter(report.errors.items()))
        return f"{file} cannot be collected: {_last_line(text)}", ""
    if report.outside:
        return _outside(report), ""
    if not any(is_of(id, function) for id in report.cases):
        return f"{function} is gone, or did not run", ""
    file = f"{function.split('::')[0]}::"
    neighbours = {id: was for id, was in before.items() if id.startswith(file) and not is_of(id, function)}
    # A neighbour that failed may be removed, but not a set of parameters of one that stays.
    present = set(map(function_of, report.cases))
    lost = (
        id
        for id, was in neighbours.items()
        if (now := report.outcome(id)) != "passed"
        and (was == "passed" or (now == "missing" and was != "skipped" and function_of(id) in present))
    )
    if id := first_unfixed(report, function, before) or next(lost, ""):
        now = report.outcome(id)
        state = "is gone, or did not run" if now == "missing" else f"is {now} now"
        return f"{id} {state}{_because(report, id)}", id
    return _new_and_bad(report, before)


def _new_and_bad(report: Report, before: Mapping[str, str]) -> tuple[str, str]:
    """Return why the first new test that fails speaks against the change, and that test; empty if there is none."""
    for id, case in report.cases.items():
        if id not in before and case.outcome in BAD:
            return f"{id} is new, and {case.outcome}{_because(report, id)}", id
    return "", ""


def _fails_without(
    fleet: Fleet, suite: Suite, base: str, id: str, timeout: float, evidence: list[dict[str, Any]]
) -> bool:
    """Return whether a test that passed before sometimes fails without the change too. Then its failure is no evidence against it."""
    for _ in range(RUNS_WITHOUT if base else 0):
        report = run(fleet, suite, base, [id], timeout=timeout)
        evidence.append(_evidence(report))
        if report.outcome(id) != "passed":
            return True
    return False


def _outside(report: Report) -> str:
    return f"it did not run on its own checkout: {report.outside[0]} was imported"


def _because(report: Report, id: str) -> str:
    case = report.cases.get(id)
    text = (case.crash.message if case.crash else _last_line(case.text)) if case else ""
    return f": {text.splitlines()[0][:200]}" if text.strip() else ""


def _last_line(text: str) -> str:
    return next((line.strip()[:200] for line in reversed(text.splitlines()) if line.strip()), "no reason is given")


def _evidence(report: Report) -> dict[str, Any]:
    ids: Sequence[str] = list({**report.items, **report.cases})[:EVIDENCE_MOST]
    return {
        "commit": report.commit,
        "agent": report.agent,
        "t": report.began,
        "seconds": report.seconds,
        "timed_out": report.timed_out,
        "outcomes": {id: report.outcome(id) for id in ids},
        "texts": {id: report.cases[id].text[-4000:] for id in ids if report.outcome(id) in BAD},
        "errors": {file: text[-4000:] for file, text in report.errors.items()},
    }
