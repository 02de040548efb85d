"""Whether a change is kept, decided from reports and from real test runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from muster.flow.suite import verdict
from muster.flow.suite.report import Case, Report

from ..conftest import World
from .test_execute import environment, fleet_of, project, suite  # noqa: F401

BEFORE = {"a.py::t[1]": "failed", "a.py::t[2]": "passed", "a.py::u": "passed", "a.py::v": "failed", "a.py::w": "flaky"}
NOW = {"a.py::t[1]": "passed", "a.py::t[2]": "passed", "a.py::u": "passed", "a.py::v": "failed", "a.py::w": "failed"}
#: A row that is skipped as it was before says nothing.
BEFORE["a.py::t[s]"] = NOW["a.py::t[s]"] = "skipped"


@pytest.mark.parametrize(
    ("now", "words"),
    [
        ({}, ""),
        ({"a.py::t[1]": "failed"}, "a.py::t[1] is failed now: no"),
        ({"a.py::t[1]": "skipped"}, "a.py::t[1] is skipped now: no"),
        ({"a.py::t[1]": "xfailed"}, "a.py::t[1] is xfailed now: no"),
        ({"a.py::t[2]": "missing"}, "a.py::t[2] is gone, or did not run"),
        (dict.fromkeys(["a.py::t[1]", "a.py::t[2]", "a.py::t[s]"], "missing"), "a.py::t is gone, or did not run"),
        ({"a.py::t[3]": "skipped"}, "a.py::t[3] is skipped now: no"),
        ({"a.py::u": "hung"}, "a.py::u is hung now: no"),
        ({"a.py::u": "missing"}, "a.py::u is gone, or did not run"),
        ({"a.py::v": "missing", "a.py::w": "missing"}, ""),
        ({"a.py::new": "error"}, "a.py::new is new, and error: no"),
        ({"a.py::new": "skipped"}, ""),
        ({"a.py::t[s]": "xfailed"}, "a.py::t[s] is xfailed now: no"),
        ({"a.py::t[s]": "missing"}, "a.py::t[s] is gone, or did not run"),
    ],
)
def test_objections_to_a_fix(now: dict[str, str], words: str) -> None:
    outcomes = {**NOW, **now}
    cases = {id: Case(id, one, text="why\nno\n") for id, one in outcomes.items() if one != "missing"}
    assert verdict.objection(Report(cases=cases), "a.py::t", BEFORE)[0] == words


def test_a_missing_parameter_set_of_a_neighbour_is_an_objection() -> None:
    before = {"a.py::t": "failed", "a.py::u[1]": "failed", "a.py::u[2]": "failed", "a.py::v[1]": "failed"}
    cases = {id: Case(id, "passed") for id in ("a.py::t", "a.py::u[1]")}
    assert verdict.objection(Report(cases=cases), "a.py::t", before)[0] == "a.py::u[2] is gone, or did not run"
    del before["a.py::u[2]"]
    assert verdict.objection(Report(cases=cases), "a.py::t", before)[0] == "", "one that failed may go as a whole"


def test_at_least_one_test_of_a_function_must_pass() -> None:
    cases = {"a.py::t[s]": Case("a.py::t[s]", "skipped")}
    words = verdict.objection(Report(cases=cases), "a.py::t", {"a.py::t[s]": "skipped"})[0]
    assert words == "a.py::t is gone, or did not run"
    assert verdict.first_unfixed(Report(cases=cases), "a.py::t", {"a.py::t[s]": "skipped"}) == "a.py::t"
    assert verdict.first_unfixed(Report(cases=cases), "a.py::t", {}) == "a.py::t[s]"
    well = {**cases, "a.py::t[1]": Case("a.py::t[1]", "passed")}
    assert verdict.first_unfixed(Report(cases=well), "a.py::t", {"a.py::t[s]": "skipped"}) == ""
    assert (
        verdict.first_unfixed(Report(cases=well), "a.py::t", {"a.py::t[s]": "skipped", "a.py::t[2]": "failed"})
        == "a.py::t[2]"
    )


@pytest.mark.parametrize(
    ("id", "was", "now", "words"),
    [
        ("a.py::t[1]", "passed", "failed", "a.py::t[1] is failed now: no"),
        ("a.py::t[1]", "passed", "skipped", "a.py::t[1] is skipped now: no"),
        ("a.py::t[1]", "passed", "missing", "a.py::t[1] is gone, or did not run"),
        ("a.py::t[1]", "failed", "missing", "a.py::t[1] is gone, or did not run"),
        ("a.py::t[1]", "skipped", "missing", ""),
        ("a.py::t[1]", "failed", "skipped", ""),
        ("a.py::kept", "passed", "missing", "a.py::kept is gone, or did not run"),
        ("a.py::taken", "passed", "missing", ""),
        ("a.py::taken[1]", "passed", "missing", ""),
    ],
)
def test_worse_tests_are_named_with_the_reason(id: str, was: str, now: str, words: str) -> None:
    outcomes = {"a.py::t[2]": "passed", id: now}
    cases = {id: Case(id, one, text="why\nno\n") for id, one in outcomes.items() if one != "missing"}
    found = list(
        verdict.worse(Report(cases=cases), {id: was, "a.py::t[2]": "passed"}, lambda one: one == "a.py::taken")
    )
    assert found == ([(id, words)] if words else [])


def test_code_from_outside_the_checkout_is_an_objection() -> None:
    seen = Report(cases={id: Case(id, one) for id, one in NOW.items()}, outside=("/home/u/shop.py",))
    assert "/home/u/shop.py was imported" in verdict.objection(seen, "a.py::t", BEFORE)[0]


def test_a_file_that_cannot_be_collected_is_an_objection() -> None:
    seen = Report(errors={"a.py": "E   SyntaxError: invalid syntax\n"})
    assert verdict.objection(seen, "a.py::t", BEFORE)[0] == "a.py cannot be collected: E   SyntaxError: invalid syntax"


def test_a_run_that_did_not_finish_is_unusable() -> None:
    cases = {"a.py::t": Case("a.py::t", "passed")}
    whole = Report(cases=cases, status=0)
    assert [verdict.unusable(whole._replace(status=status)) for status in (0, 1, 5)] == ["", "", ""]
    ended = [whole._replace(status=status) for status in (None, 2, 3, 4)] + [whole._replace(cases={})]
    assert {verdict.unusable(one) for one in ended} == {"pytest did not finish"}
    assert verdict.unusable(whole._replace(timed_out=True)) == "the time was up"
    assert verdict.unusable(whole._replace(errors={"a.py": "E"})) == "a.py cannot be collected"
    assert "its own checkout" in verdict.unusable(whole._replace(outside=("/home/u/shop.py",)))


def test_a_change_that_keeps_tests_from_running_is_refused(world: World) -> None:
    project(world, {"test_a.py": "def test_x(): pass\n"})
    change = project(world, {"conftest.py": "def pytest_runtestloop(): raise SystemExit(0)\n"})
    found = verdict.check_change(fleet_of(world), suite(), change, {"test_a.py::test_x": "passed"}, times=1)
    assert (found.ok, found.reason) == (False, "pytest did not finish")


def test_a_change_that_removes_tests_is_refused(world: World) -> None:
    """Which rows a test has can be written anywhere."""
    test = "import pytest, cases\n@pytest.mark.parametrize('x', cases.CASES)\ndef test_x(x): assert x\ndef test_y(): pass\n"
    base = project(world, {"test_a.py": test, "cases.py": "CASES = [1, 2, 3]\n"})
    change = project(world, {"cases.py": "CASES = [1, 2]\n"})
    before = {f"test_a.py::test_x[{row}]": "passed" for row in (1, 2, 3)} | {"test_a.py::test_y": "passed"}
    found = verdict.check_change(fleet_of(world), suite(), change, before, times=1)
    assert (found.ok, found.reason) == (False, "test_a.py::test_x[3] is gone, or did not run")
    taken = project(world, {"cases.py": "CASES = [1, 2, 3]\n", "test_a.py": test.partition("def test_y")[0]})
    refused = verdict.check_change(fleet_of(world), suite(), taken, before, times=1)
    assert (refused.ok, refused.reason) == (False, "test_a.py::test_y is gone, or did not run")
    judged = verdict.check_change(
        fleet_of(world), suite(), taken, before, times=1, removed=lambda function: function == "test_a.py::test_y"
    )
    assert judged.ok and base != taken


def test_a_fix_must_pass_each_time_in_a_new_checkout(world: World) -> None:
    """The second commit passes only where nothing was left by a run before it."""
    base = project(world, {"test_a.py": "import os\ndef test_x():\n    assert 0\ndef test_y(): pass\n"})
    good = project(world, {"test_a.py": "import os\ndef test_x():\n    os.mkdir('made')\ndef test_y(): pass\n"})
    bad = project(world, {"test_a.py": "def test_x(): pass\n"})
    fleet, before = fleet_of(world), {"test_a.py::test_x": "failed", "test_a.py::test_y": "passed"}
    verified = verdict.check_fix(fleet, suite(), good, "test_a.py::test_x", before, times=2)
    assert verified.ok and verified.reason == "passed 2 of 2 times"
    seen = [dict.fromkeys(before, "passed"), {"test_a.py::test_x": "passed"}]
    assert [run["outcomes"] for run in verified.evidence] == seen, "its neighbours once"
    assert {run["commit"] for run in verified.evidence} == {good}
    refused = verdict.check_fix(fleet, suite(), bad, "test_a.py::test_x", before, times=2)
    assert (
        not refused.ok and refused.reason == "test_a.py::test_y is gone, or did not run" and len(refused.evidence) == 1
    )
    unfair = verdict.check_fix(fleet, suite(), base, "test_a.py::test_y", before)
    assert (unfair.ok, unfair.evidence) == (False, [])
    changed = verdict.check_fix(fleet, suite(), base, "test_a.py::test_y", before, times=1, must_fix=False)
    assert changed.ok and changed.evidence[0]["outcomes"]["test_a.py::test_x"] == "failed"
    json.dumps(verified.evidence)


def test_a_neighbour_that_is_flaky_without_the_change_is_no_objection(world: World, tmp_path: Path) -> None:
    count = f"import pathlib\nfile = pathlib.Path({str(tmp_path / 'count')!r})\n"
    wavers = (
        count + "def test_n():\n    file.write_text((file.read_text() if file.exists() else '') + 'x')\n"
        "    assert len(file.read_text()) % 3 != 1\n"
    )
    base = project(world, {"test_a.py": wavers + "def test_x():\n    assert 0\n"})
    good = project(world, {"test_a.py": wavers + "def test_x():\n    assert 1\n"})
    before = {"test_a.py::test_x": "failed", "test_a.py::test_n": "passed"}
    fleet = fleet_of(world)
    verified = verdict.check_fix(fleet, suite(), good, "test_a.py::test_x", before, times=2, base=base)
    assert verified.ok, verified.reason
    (tmp_path / "count").unlink()
    refused = verdict.check_fix(fleet, suite(), good, "test_a.py::test_x", before, times=2)
    assert not refused.ok and "test_n is failed now" in refused.reason, "where nobody knows better it counts"
