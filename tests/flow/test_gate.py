"""Gates: how they are named, and how a command tests a commit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from muster.errors import UsageError
from muster.flow import Command, NoGate, Pytest
from muster.flow.reducing import testers
from muster.flow.reducing.gate import parse
from muster.flow.reducing.testers import CommandTester, NoTester
from muster.flow.suite import execute

from .lab import Lab


def test_a_word_names_a_gate() -> None:
    assert parse("pytest") == Pytest() and parse("pytest", ["-q"]) == Pytest(("-q",))
    assert parse("none") == NoGate() and NoGate(), "it is a gate, and not a missing one"
    assert parse("make test") == Command("make test") and parse("pytest -x") == Command("pytest -x")
    assert [str(gate) for gate in (Pytest(("-q",)), NoGate(), Command("make test"))] == ["pytest", "none", "make test"]


@pytest.mark.parametrize(("word", "args"), [("", ()), (" ", ()), ("none", ["-q"]), ("make test", ["-q"])])
def test_a_gate_that_makes_no_sense_is_refused(word: str, args: list[str]) -> None:
    with pytest.raises(UsageError):
        parse(word, args)


def test_no_gate_accepts_everything_and_says_so() -> None:
    assert NoTester().check("1" * 40, ()) == NoTester().full("1" * 40, ()) == (True, "not tested", "")
    assert NoTester().passing([("1" * 40, ("t::a",))]) == [[]]


def test_a_command_runs_once_for_each_tree_that_is_green(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab(tmp_path, {"file": b"1\n"})
    tree = lab.git("rev-parse", f"{lab.base}^{{tree}}").strip()
    same = lab.git("commit-tree", tree, "-p", lab.base, "-m", "the same tree").strip()
    (other,) = lab.commits([(lab.base, {"file": b"2\n"})])
    ran: list[tuple[str, tuple[str, ...]]] = []
    codes = {lab.base: 0, other: 7}

    def command(fleet: Any, where: Any, commit: str, words: tuple[str, ...]) -> tuple[int, str]:
        ran.append((commit, words))
        return codes[commit], "what it printed"

    monkeypatch.setattr(testers.execute, "command", command)
    fleet: Any = type("Fleet", (), {"local": lab.host})
    tester = CommandTester(fleet, execute.Suite("r"), str(lab.top), "make test")
    assert tester.check(lab.base, ()) == tester.full(same, ()) == (True, "make test exits with 0", "")
    assert ran == [(lab.base, ("sh", "-c", "make test"))]
    for _ in range(2):
        assert tester.check(other, ()) == (False, "make test exits with 7", "what it printed")
    assert len(ran) == 3, "a red tree is tested again: it may be flaky"
