"""The baseline: real suites run and judged; grouping and shards as pure functions."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from muster import Fleet
from muster.errors import MusterError, NotFound, TimedOut, UsageError
from muster.flow.improving import converged
from muster.flow.suite import baseline, collect, execute
from muster.flow.suite.baseline import Baseline, FunctionResult
from muster.flow.suite.collect import Cited, Function
from muster.flow.suite.report import Case, Crash, Item, Report

from ..conftest import World
from .test_execute import environment, fleet_of, project, state, suite  # noqa: F401  # the fixture counts here too

TUTORIAL = """#!/bin/bash

# Order something.
shop order

# Pay.
shop pay
"""
CITING = '''
import pytest

class TestOrder:
    @pytest.mark.parametrize("n", [1, 2])
    def test_order(self, n):
        """
        # Order something.
        shop order
        """
        assert n == 1

def test_both(e2e):
    e2e.write_tutorial_block("""
        # Order something.
        shop order
    """)
    e2e.write_tutorial_block("# Pay.\\nshop pay")

def test_none():
    pass
'''
SUITE = """
import os, time
import pytest

@pytest.fixture
def database():
    raise ConnectionError(f"no database at {os.getpid()}")

def test_passes(): pass
def test_one(database): pass
def test_two(database): pass
def test_alone():
    assert 1 == 2
def test_flaky():
    with open(COUNTER, "a") as file:
        file.write("x")
    assert os.path.getsize(COUNTER) % 2 == 0
@pytest.mark.skip
def test_skipped(): pass
@pytest.mark.parametrize("n", [0, 1])
def test_half(n):
    assert n
"""
OTHER = """
import time
def test_hangs():
    time.sleep(1000)
def test_three():
    raise ConnectionError("no database at 12345")
"""


def grouped(taken: Baseline) -> list[set[str]]:
    return [{name.split("::")[-1] for name in group.functions} for group in taken.groups]


def test_a_baseline_knows_how_every_function_stands_and_which_fail_alike(world: World, tmp_path: Path) -> None:
    counter = tmp_path / "counter"
    project(world, {"tests/test_a.py": f"COUNTER = {str(counter)!r}\n{SUITE}", "tests/test_b.py": OTHER})
    before, fleet, said = state(world), fleet_of(world), []
    at: list[int] = []
    create = fleet.create
    fleet.create = lambda spec: (at.append(len(spec.args)), create(spec))[1]  # type: ignore[method-assign]
    taken = baseline.measure(fleet, suite(test_seconds=2.0), "HEAD", repeat=3, timeout=120, say=said.append)
    assert {one.function.name: one.status for one in taken.tests} == {
        "test_passes": "passing",
        "test_one": "failing",
        "test_two": "failing",
        "test_alone": "failing",
        "test_flaky": "flaky",
        "test_skipped": "skipped",
        "test_half": "failing",
        "test_hangs": "hanging",
        "test_three": "failing",
    }
    # Collected once, two parts at once, and two times what had failed: what passed or hangs is not run again.
    assert len(at) == 5 and taken.runs == 3
    assert counter.stat().st_size == 3
    half = next(one for one in taken.tests if one.function.name == "test_half")
    assert half.outcomes == {
        "tests/test_a.py::test_half[0]": ["failed"] * 3,
        "tests/test_a.py::test_half[1]": ["passed"],
    }
    assert grouped(taken)[0] == {"test_one", "test_two", "test_three"}
    assert sorted(map(sorted, grouped(taken)[1:])) == [["test_alone"], ["test_flaky"], ["test_half"], ["test_hangs"]]
    assert "no database at #" in taken.groups[0].why and "ConnectionError" in taken.groups[0].sample
    assert taken.outcomes()["tests/test_a.py::test_flaky"] == "flaky"
    assert taken.outcomes()["tests/test_b.py::test_hangs"] == "hung"
    assert Baseline.from_json(json.loads(json.dumps(taken.to_json()))) == taken
    assert state(world) == before and world.agents() == {}


# What cannot be a baseline


def collected(world: World, **more: Any) -> Report:
    return execute.run(fleet_of(world), suite(**more), "HEAD", timeout=60, collect=True)


@pytest.mark.slow
def test_a_project_without_tests_is_told_so(world: World) -> None:
    with pytest.raises(UsageError, match="there are no tests"):
        collect.functions(collected(world))


def test_files_that_cannot_be_collected_are_named_with_the_reason(world: World) -> None:
    broken = {f"test_{number}.py": f"import gone_{number}\n" for number in range(7)}
    project(world, {**broken, "test_fine.py": "def test_it(): pass\n"})
    with pytest.raises(UsageError) as caught:
        collect.functions(collected(world))
    assert "test_0.py: ModuleNotFoundError: No module named 'gone_0'" in caught.value.message
    assert "test_4.py" in caught.value.message and "test_5.py" not in caught.value.message
    assert "and 2 more" in caught.value.message and "--ignore=test_0.py" in caught.value.hint


@pytest.mark.slow
def test_a_pytest_that_is_not_there_is_told_with_what_to_type(world: World) -> None:
    bare = world.bin / "barepython"
    bare.write_text('#!/bin/sh\nexec python3 -S -I "$@"\n')
    bare.chmod(0o755)
    for command, problem in (
        ((str(bare), "-m", "pytest"), "has no pytest here"),
        (("no-such-program",), "is not installed here"),
    ):
        with pytest.raises(NotFound, match=f"{command[0]} {problem}") as caught:
            collect.functions(collected(world, pytest=command))
        assert "[improve] pytest" in caught.value.hint


@pytest.mark.slow
def test_words_that_pytest_does_not_know_are_shown_with_its_answer(world: World) -> None:
    project(world, {"test_a.py": "def test_it(): pass\n"})
    with pytest.raises(UsageError, match="unrecognized arguments: --no-such-thing"):
        collect.functions(collected(world, args=("--no-such-thing",)))


@pytest.mark.parametrize(
    ("report", "kind", "words"),
    [
        (Report(timed_out=True, seconds=60.0), TimedOut, "the time was up \\(60 s\\) before"),
        (
            Report(exit_code=3, screen="INTERNALERROR> bad", place="box"),
            UsageError,
            "did not run on box \\(exit code 3\\)",
        ),
        (Report(outside=("/home/u/shop.py",)), UsageError, "not from their checkout: /home/u/shop.py"),
        (Report(errors={"a.py": ""}), UsageError, "a.py: no reason is given"),
    ],
)
def test_what_went_wrong_is_said(report: Report, kind: type[MusterError], words: str) -> None:
    with pytest.raises(kind, match=words):
        collect.functions(report)


def test_a_baseline_for_which_the_time_was_too_short_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    items = {id: Item(id, id, "a.py", 1, 1) for id in ("a.py::a", "a.py::b")}
    reports = iter(
        [Report(items=items, commit="c"), Report(cases={"a.py::a": Case("a.py::a", "hung")}, timed_out=True)]
    )
    monkeypatch.setattr(execute, "run", lambda *args, **more: next(reports))
    monkeypatch.setattr(collect, "cite", lambda host, repo, commit, found, tutorial: found)
    with pytest.raises(TimedOut, match="the time was up \\(7 s\\) before 1 of 2 test functions ran") as caught:
        baseline.measure(Fleet({"HOME": str(tmp_path)}, str(tmp_path)), suite(timeout=7.0), "HEAD")
    assert "[improve] suite_timeout" in caught.value.hint


# Which blocks a test cites


def function(id: str, file: str = "", line: int = 1, end: int = 9, ids: tuple[str, ...] = ()) -> Function:
    return Function(id, file or id.split("::")[0], line, end, "", ids or (id,))


@pytest.fixture
def citing(world: World) -> Iterator[tuple[World, list[Function]]]:
    """Ids begin in the folder of the tests, paths at the top."""
    project(world, {"docs/tutorial.sh": TUTORIAL, "sub/tests/test_shop.py": CITING})
    names = ["TestOrder::test_order", "test_both", "test_none"]
    yield world, [function(f"tests/test_shop.py::{name}", "sub/tests/test_shop.py") for name in names]


def test_a_function_has_the_blocks_it_cites_in_that_commit(citing: tuple[World, list[Function]]) -> None:
    world, functions = citing
    commit = world.git("rev-parse", "HEAD")
    project(world, {"docs/tutorial.sh": "# Other.\nother\n", "sub/tests/test_shop.py": ""})
    found = collect.cite(fleet_of(world).local, str(world.repo), commit, functions)
    order, pay = "# Order something.\nshop order", "# Pay.\nshop pay"
    assert [[block.text for block in one.blocks] for one in found] == [[order], [order, pay], []]
    assert re.fullmatch("order-something-[0-9a-f]{6}", found[0].blocks[0].id)
    named = collect.cite(fleet_of(world).local, str(world.repo), commit, functions, "docs/tutorial.sh")
    assert named == found


@pytest.mark.parametrize("path", ["../../etc/passwd", "/etc/passwd", "a\nb.py", "gone.py", "sub", "\udcff.py"])
def test_a_path_that_is_none_of_the_commit_cites_nothing(citing: tuple[World, list[Function]], path: str) -> None:
    world, functions = citing
    some = [function("x.py::test_x", path), *functions]
    found = collect.cite(fleet_of(world).local, str(world.repo), "HEAD", some)
    assert [len(one.blocks) for one in found] == [0, 1, 2, 0]


def test_a_repository_without_a_tutorial_has_functions_all_the_same(world: World) -> None:
    project(world, {"test_a.py": "def test_it(): pass\n"})
    some = [function("test_a.py::test_it")]
    assert collect.cite(fleet_of(world).local, str(world.repo), "HEAD", some) == some
    with pytest.raises(MusterError, match="not a git repository"):
        collect.cite(fleet_of(world).local, str(world.folder), "HEAD", some)


# Pure


def cases(**outcomes: str) -> dict[str, Case]:
    return {f"a.py::{name}": Case(f"a.py::{name}", outcome) for name, outcome in outcomes.items()}


@pytest.mark.parametrize(
    ("runs", "status"),
    [
        ([{"t": "passed"}], "passing"),
        ([{"t": "failed"}, {"t": "error"}], "failing"),
        ([{"t": "failed"}, {"t": "passed"}], "flaky"),
        ([{"t": "failed"}, {"t": "skipped"}], "flaky"),
        ([{"t": "skipped"}], "skipped"),
        ([{"t": "xfailed"}], "skipped"),
        ([{"t": "hung"}], "hanging"),
        ([{"t": "failed"}, {"t": "hung"}], "hanging"),
        ([], "failing"),
    ],
)
def test_a_status_follows_from_all_runs(runs: list[dict[str, str]], status: str) -> None:
    (tested,) = baseline.judge([function("a.py::t")], [cases(**run) for run in runs])
    assert tested.status == status


def test_parameters_that_are_made_anew_each_time_still_belong_to_their_function() -> None:
    one = function("a.py::t", ids=("a.py::t[1]",))
    ran = {"a.py::t[2]": Case("a.py::t[2]", "passed"), "a.py::other": Case("a.py::other", "failed")}
    (tested,) = baseline.judge([one], [ran])
    assert (tested.status, tested.outcomes) == ("passing", {"a.py::t[2]": ["passed"]})


def test_what_has_parameters_made_anew_is_known_as_one_test() -> None:
    some = [function("a.py::t", ids=("a.py::t[1]",)), function("a.py::u", ids=("a.py::u[1]", "a.py::u[2]"))]
    ran = {
        id: Case(id, outcome)
        for id, outcome in {"a.py::t[2]": "passed", "a.py::t[3]": "failed", "a.py::u[1]": "passed"}.items()
    }
    taken = Baseline("c", tuple(baseline.judge(some, [ran])), (), 1)
    assert taken.varying() == {"a.py::t"}, "what did not run, as the time was up, is not made anew by that"
    assert taken.outcomes() == {"a.py::t": "failed", "a.py::u[1]": "passed"}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (b"class A:\n    def t(self): pass\nif 1:\n    async def u(): pass\n", {"A", "A::t", "u"}),
        (b"def (", set()),
        (b"\0", set()),
        (b"x" + b"(" * 100_000, set()),
    ],
)
def test_the_names_in_a_file_are_read_and_not_run(text: bytes, names: set[str]) -> None:
    assert collect.names(text) == names


def test_only_what_failed_or_differed_runs_again() -> None:
    runs = [cases(a="passed", b="failed", c="hung", d="skipped", e="error", f="failed"), cases(b="failed", f="passed")]
    assert baseline.suspects(runs[:1]) == ["a.py::b", "a.py::e", "a.py::f"]
    assert baseline.suspects(runs) == ["a.py::b", "a.py::e", "a.py::f"]


def test_parts_have_every_file_once_and_are_about_as_large() -> None:
    found = [
        function(f"{name}.py::t", ids=tuple(map(str, range(size))))
        for name, size in zip("abcdef", (9, 5, 5, 4, 3, 1), strict=True)
    ]
    for count in (1, 2, 3, 6, 50):
        made = baseline.split_files(found, count)
        assert sorted(file for part in made for file in part) == [f"{name}.py" for name in "abcdef"]
        assert len(made) == min(count, 6) and all(made)
    sizes = [
        sum(len(one.ids) for one in found if one.id.split("::")[0] in part) for part in baseline.split_files(found, 3)
    ]
    assert max(sizes) - min(sizes) <= 1


#: What a test says of a program that it ran, which ended with a traceback.
QUOTED = """AssertionError: expected the command to succeed, but it exited with 1
  $ till {}
  ! Traceback (most recent call last):
  !   File "/x/{}/cli.py", line 104, in chosen
  !     since = month(args.month)
  !   File "/x/ledger.py", line 85, in month
  !     return first.replace(month=13)
  !            ^^^^^^^^^^^^^
  ! ValueError: month must be in 1..12
  ? 1"""


def failed(
    name: str, message: str, file: str = "tests/conftest.py", line: int = 5, outcome: str = "failed"
) -> FunctionResult:
    one = function(f"tests/test_a.py::{name}", line=10, end=20)
    return FunctionResult(
        one, "failing", {}, 0.0, Case(one.id, outcome, text=f"E  {message}", crash=Crash(file, line, message))
    )


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        (failed("a", "OSError: no /tmp/x1/db"), failed("b", "OSError: no /tmp/y2/db"), True),
        (failed("a", "OSError: no", "a.py"), failed("b", "OSError: no", "b.py"), True),
        (failed("a", "OSError: no"), failed("b", "KeyError: 'x'"), False),
        (failed("test_a1", "ValueError: test_a1 has no file"), failed("test_b", "ValueError: test_b has no file"), True),
        (failed("a", "assert 1 == 2"), failed("b", "assert 3 == 4"), True),
        (failed("a", "assert 1 == 2", "tests/one.py"), failed("b", "assert 1 == 2", "tests/two.py"), False),
        (failed("test_1", "assert 1 == 2", "tests/test_a.py", 15), failed("test_2", "assert 3 == 4", "tests/test_a.py", 15), False),
        (failed("a", "it hangs in read", outcome="hung"), failed("b", "it hangs in read", outcome="hung"), True),
        (failed("a", "ApiError: rate limit reached for x"), failed("b", "OSError: too many requests"), False),
        (failed("a", "OSError: no\nand another error"), failed("b", "OSError: no"), True),
        (failed("a", QUOTED.format("list", 23), "tests/test_a.py", 15), failed("b", QUOTED.format("sum", 99), "tests/test_a.py", 15), True),
        (failed("a", QUOTED.format("list", 23), "tests/test_a.py", 15), failed("b", QUOTED.replace("month", "day").format("list", 23), "tests/test_a.py", 15), False),
    ],
)  # fmt: skip
def test_failures_are_alike_or_not(one: FunctionResult, other: FunctionResult, alike: bool) -> None:
    made = baseline.groups([one, other])
    assert len(made) == (1 if alike else 2)
    assert [name for group in made for name in group.functions] == [one.function.id, other.function.id]
    assert all(group.why and group.fingerprint for group in made)


def test_the_largest_group_comes_first_with_a_bounded_sample() -> None:
    many = [failed(f"t{number}", "OSError: no") for number in range(3)]
    long = failed("x", "KeyError: y")
    assert long.case
    made = baseline.groups([long._replace(case=long.case._replace(text="z" * 100_000)), *many])
    assert [len(group.functions) for group in made] == [3, 1]
    assert len(made[1].sample) == 2000


def test_what_a_test_depends_on_is_told_from_what_it_does_not(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    files = ("test_a.py", "test_b.py", "sub/test_c.py", "shop.py", "conftest.py", "tutorial.sh")
    first = project(world, {name: f"# {name}\n" for name in files})
    known = Baseline(
        first, tuple(FunctionResult(function(f"test_{name}.py::t"), "passing", {}) for name in "ab"), (), 1
    )

    def keys(commit: str, one: Baseline = known, kind: str = "claude") -> tuple[str, ...]:
        return tuple(converged.input_digests(fleet_of(world), str(world.repo), commit, one, kind).values())

    a, b = keys(first)
    assert a != b and re.fullmatch("[0-9a-f]{32}", a)
    for file in ("sub/test_c.py", "tutorial.sh"):
        assert keys(project(world, {file: "# other\n"})) == (a, b), file
    assert keys(project(world, {"test_b.py": "# other\n"}))[0] == a != keys("HEAD")[1] != b
    cited = known.tests[0]._replace(function=known.tests[0].function._replace(blocks=(Cited("x", "# Order."),)))
    assert keys(first, known._replace(tests=(cited, known.tests[1])))[1] == b != keys(first)[0]
    assert keys(first, known._replace(tests=(cited, known.tests[1])))[0] != a
    assert not {a, b} & {*keys(first, kind="codex")}
    for file in ("shop.py", "conftest.py"):
        assert not {a, b} & {*keys(project(world, {file: "# other\n"}))}, file
    monkeypatch.setattr(converged.prompts, "template", lambda name: "another prompt")
    assert not {a, b} & {*keys(first)}


def test_a_baseline_is_the_same_after_it_was_kept() -> None:
    one = failed("a", "OSError: no")
    cited = Cited("pay-1", "# Pay.\npay")
    two = FunctionResult(
        function("b.py::t")._replace(blocks=(cited,), marks=("skip",)), "passing", {"b.py::t": ["passed"]}, 1.5
    )
    taken = Baseline("c" * 40, (one, two), tuple(baseline.groups([one])), 2, 3.5)
    assert Baseline.from_json(json.loads(json.dumps(taken.to_json()))) == taken


@pytest.mark.parametrize("data", [None, [], {}, {"version": 2}, {"version": 1}, {"version": 1, "commit": "x", "runs": 1, "seconds": 0, "tests": [{}], "groups": []}, {"version": 1, "commit": "x", "runs": 1, "seconds": 0, "tests": [3], "groups": []}, {"version": 1, "commit": "x", "runs": 1, "seconds": 0, "tests": [], "groups": [{"functions": [], "odd": 1}]}])  # fmt: skip
def test_what_is_no_baseline_is_refused(data: Any) -> None:
    with pytest.raises(ValueError, match="not a baseline"):
        Baseline.from_json(data)
