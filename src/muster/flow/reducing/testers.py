"""How each gate tests a commit: in a clean checkout, by an agent of type `command`, at the first place of the run.

Code that agents wrote runs only where agents run, never in the process of muster.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from functools import partial

from ... import Fleet
from ..improving import setup, verify
from ..improving.request import ImproveRequest
from ..run import git
from ..run.directory import Run
from ..suite import baseline, execute, verdict
from ..suite.baseline import Baseline
from ..suite.report import BAD, Report, is_of
from .gate import Command, Gate, NoGate, Tester, Verdict

#: Characters kept of the output of one failure.
FAILURE_MOST = 4000


def tester(gate: Gate, fleet: Fleet, wish: ImproveRequest, run: Run, before: Baseline) -> Tester:
    """Return what tests commits for a gate."""
    if isinstance(gate, Command):
        return CommandTester(fleet, setup.suite_of(run, wish, before), run.info.repo, gate.line)
    return NoTester() if isinstance(gate, NoGate) else PytestTester(fleet, wish, run, before)


class NoTester:
    """Accepts every commit."""

    def check(self, commit: str, tests: Sequence[str]) -> Verdict:
        return Verdict(True, "not tested")

    def full(self, commit: str, tests: Sequence[str]) -> Verdict:
        return Verdict(True, "not tested")

    def passing(self, asked: Sequence[tuple[str, Sequence[str]]]) -> list[list[str]]:
        return [[] for _ in asked]


class CommandTester:
    """Runs one command line. Its exit code is the verdict."""

    def __init__(self, fleet: Fleet, suite: execute.Suite, repo: str, line: str) -> None:
        self.fleet, self.suite, self.repo, self.line = fleet, suite, repo, line
        self.green: set[str] = set()
        """Trees that have passed: the last batch and the branch often have the same one."""

    def check(self, commit: str, tests: Sequence[str]) -> Verdict:
        tree = git.text(self.fleet.local, self.repo, "rev-parse", f"{commit}^{{tree}}")
        if tree not in self.green:
            code, screen = execute.command(self.fleet, self.suite, commit, ("sh", "-c", self.line))
            if code:
                return Verdict(False, f"{self.line} exits with {code}", screen)
            self.green.add(tree)
        return Verdict(True, f"{self.line} exits with 0")

    def full(self, commit: str, tests: Sequence[str]) -> Verdict:
        return self.check(commit, tests)

    def passing(self, asked: Sequence[tuple[str, Sequence[str]]]) -> list[list[str]]:
        return [[] for _ in asked]  # a command does not say which tests pass


class PytestTester:
    """Runs the project's tests and compares the outcomes with those before the changes."""

    def __init__(self, fleet: Fleet, wish: ImproveRequest, run: Run, before: Baseline) -> None:
        self.fleet, self.wish, self.run, self.baseline = fleet, wish, run, before
        self.suite = setup.suite_of(run, wish, before)
        self.before = before.outcomes()

    def check(self, commit: str, tests: Sequence[str]) -> Verdict:
        if self.wish.lint:
            code, screen = execute.command(self.fleet, self.suite, commit, self.wish.lint)
            if code:
                return Verdict(False, f"{shlex.join(self.wish.lint)} exits with {code}", screen)
        run = partial(execute.run, self.fleet, self.suite, commit)
        work = {"all": partial(run, collect=True)} | ({"own": partial(run, list(tests))} if tests else {})
        reports: dict[str, Report] = dict(execute.concurrently(self.fleet, work, len(work)))
        for report in reports.values():
            if report.errors:
                file, text = next(iter(report.errors.items()))
                return Verdict(False, f"{file} cannot be collected", text[-FAILURE_MOST:])
        if not reports["all"].items:
            return Verdict(False, "no test can be collected", reports["all"].screen)
        if tests and (red := _first_unfixed(reports["own"], tests, self.before)):
            return red
        return Verdict(True, "all tests can be collected" + (f", {len(tests)} pass" if tests else ""))

    def full(self, commit: str, tests: Sequence[str]) -> Verdict:
        files = baseline.split_files([standing.function for standing in self.baseline.tests], baseline.SHARDS)
        report = execute.run_in_parts(self.fleet, self.suite, commit, files)
        if words := verdict.unusable(report):
            return Verdict(False, words, report.screen)
        removed = verify.removed_from_file(self.fleet, self.wish, self.run, self.baseline, commit)
        for id, words in verdict.worse(report, self.before, removed):
            return Verdict(False, words, report.cases[id].text[-FAILURE_MOST:] if id in report.cases else report.screen)
        for id, case in report.cases.items():
            if id not in self.before and case.outcome in BAD:
                return Verdict(False, f"{id} is new, and {case.outcome}", case.text[-FAILURE_MOST:])
        if red := _first_unfixed(report, tests, self.before):
            return red
        passed = sum(case.outcome == "passed" for case in report.cases.values())
        return Verdict(True, f"{passed} of {len(report.cases)} tests pass on this very commit")

    def passing(self, asked: Sequence[tuple[str, Sequence[str]]]) -> list[list[str]]:
        reliable = [[test for test in tests if self._is_reliable(test)] for _, tests in asked]
        work = {
            str(number): partial(execute.run, self.fleet, self.suite, commit, tests)
            for number, ((commit, _), tests) in enumerate(zip(asked, reliable, strict=True))
            if tests
        }
        reports: dict[str, Report] = dict(execute.concurrently(self.fleet, work, execute.CONCURRENCY))
        found: list[list[str]] = [[] for _ in asked]
        for number, report in reports.items():
            if not report.errors and not report.outside:
                tests = reliable[int(number)]
                found[int(number)] = [test for test in tests if not verdict.first_unfixed(report, test, self.before)]
        return found

    def _is_reliable(self, test: str) -> bool:
        """Return whether one run of a test is evidence: a flaky one may pass at any time, and one that hangs takes long."""
        return not {"flaky", "hung"} & {was for id, was in self.before.items() if is_of(id, test)}


def _first_unfixed(report: Report, tests: Sequence[str], before: Mapping[str, str]) -> Verdict | None:
    """Return a red verdict for the first of these functions that has a test which should pass and does not."""
    for test in tests:
        if bad := verdict.first_unfixed(report, test, before):
            text = report.cases[bad].text[-FAILURE_MOST:] if bad in report.cases else report.screen
            return Verdict(False, f"{bad} is {report.outcome(bad) if bad in report.cases else 'gone'}", text)
    return None
