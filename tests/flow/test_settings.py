"""What a run may take: the configuration, former runs, and what all runs spent today."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.flow.limits import settings as budget
from muster.flow.limits.governor import Limits, Spend
from muster.flow.run import directory
from muster.flow.run.records import AttemptAgent, Outcome, RunInfo
from muster.flow.run.tasks import items, tasks

DAY = time.mktime((2026, 3, 1, 12, 0, 0, 0, 0, -1))


def made(tmp_path: Path, name: str, **info: Any) -> directory.Run:
    info = {"type": "claude", "repo": "/r", **info}
    return directory.make(str(tmp_path), name, RunInfo(**info), tasks(items("one\ntwo"), "x", []))


def test_what_is_given_counts_before_what_is_configured() -> None:
    found = budget.limits(
        {"dollars": 20.0, "time": 3600.0, "agents": 7.0, "agent_tokens": 5.0, "day_dollars": 50.0},
        {"launch_rate": 2.0, "memory": 1e9, "start": 3.0},
        dollars=5.0,
        tokens=None,
        max_agents=9,
    )
    assert (found.dollars, found.tokens, found.seconds, found.agents, found.task_tokens) == (5.0, None, 3600.0, 7, 5.0)
    assert (found.day_dollars, found.launch_rate, found.burst, found.min_memory) == (50.0, 2.0, 2, 1e9)
    assert (found.start, found.max_agents) == (3, 9)
    assert budget.limits({}, {}) == Limits()


def test_all_runs_of_a_day_are_one_sum(tmp_path: Path) -> None:
    one, two = (budget.Ledger(str(tmp_path), made(tmp_path, name)) for name in ("one", "two"))
    one.today(DAY, Spend(1.0, 100))
    assert two.today(DAY, Spend(2.0, 50)) == (budget.Today("2026-03-01", Spend(3.0, 150)))
    assert one.today(DAY + 60, Spend(1.5, 110)).spend == Spend(3.5, 160)


def test_agents_and_the_time_in_which_runs_are_run_are_summed_up_too(tmp_path: Path) -> None:
    one, two = (budget.Ledger(str(tmp_path), made(tmp_path, name)) for name in ("one", "two"))
    one.today(DAY, Spend(1.0, 100, 60.0, 3))
    assert two.today(DAY, Spend(2.0, 50, 30.5, 4)).spend == Spend(3.0, 150, 90, 7)
    assert two.today(DAY + 1, Spend(2.0, 50, 31.5, 5)).spend.agents == 8, "one more is known at once"
    assert two.today(DAY + 86400, Spend(2.0, 50, 100.0, 6)).spend == Spend(0.0, 0, 0, 0)
    (tmp_path / "spent" / "2026-03-02" / "old@1").write_text('{"before": [0, 0], "spent": [1.0, 5]}')
    assert two.today(DAY + 86410, Spend(2.0, 50, 110.0, 7)).spend == Spend(1.0, 5, 10, 1), "a file of an older muster"


def test_the_next_day_begins_with_nothing_spent(tmp_path: Path) -> None:
    there = made(tmp_path, "one")
    budget.Ledger(str(tmp_path), there).today(DAY, Spend(10.0, 1000))
    again = budget.Ledger(str(tmp_path), there)
    assert again.today(DAY + 86400, Spend(10.0, 1000)) == ("2026-03-02", Spend(0.0, 0))
    assert again.today(DAY + 86460, Spend(11.0, 1100)).spend == Spend(1.0, 100)
    later = budget.Ledger(str(tmp_path), there)
    assert later.today(DAY + 86500, Spend(11.0, 1100)).spend == Spend(1.0, 100), "and a new process knows it"


def test_what_a_removed_run_spent_is_spent(tmp_path: Path) -> None:
    old = made(tmp_path, "one")
    budget.Ledger(str(tmp_path), old).today(DAY, Spend(10.0, 1000))
    old.remove()
    assert budget.Ledger(str(tmp_path), made(tmp_path, "one")).today(DAY, Spend(0.0, 0)).spend == Spend(10.0, 1000)


def test_a_damaged_file_of_the_ledger_is_not_known_and_not_nothing(tmp_path: Path) -> None:
    ledger = budget.Ledger(str(tmp_path), made(tmp_path, "one"))
    (tmp_path / "spent" / "2026-03-01").mkdir(parents=True)
    (tmp_path / "spent" / "2026-03-01" / "other@1").write_text("{half")
    assert ledger.today(DAY, Spend(1.0, 5)).spend.dollars is None


def test_another_run_of_tokens_without_a_price_holds_nobody_up(tmp_path: Path) -> None:
    one, two = (budget.Ledger(str(tmp_path), made(tmp_path, name)) for name in ("one", "two"))
    assert one.today(DAY, Spend(None, 100)).spend == Spend(None, 100), "its own is not known"
    assert two.today(DAY, Spend(2.0, 50)).spend == Spend(2.0, 150)


def test_what_former_runs_came_to_is_expected_of_the_next(tmp_path: Path) -> None:
    assert budget.mean(str(tmp_path), "/r", "claude") == Spend(None, None, None)
    there = made(tmp_path, "one")
    for task, cost in zip(there.tasks(), (1.0, 3.0), strict=True):
        attempt = there.begin(task.id, 1, AttemptAgent(address="x"), "")
        there.end(attempt, Outcome(outcome="ok", final=True, cost_usd=cost, tokens=100, seconds=60.0))
    assert budget.mean(str(tmp_path), "/r", "claude") == Spend(2.0, 100, 60.0)
    assert budget.mean(str(tmp_path), "/elsewhere", "claude") == Spend(2.0, 100, 60.0), "better than nothing"
    assert budget.mean(str(tmp_path), "/r", "codex").dollars is None


SPENDS = st.builds(Spend, st.none() | st.floats(0, 1e6), st.integers(0, 10**9))


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abcd"), st.none() | SPENDS), max_size=40))
def test_a_sum_whose_parts_change_is_the_sum_of_what_they_are_now(changes: list[tuple[str, Spend | None]]) -> None:
    found = budget.Sum()
    for name, part in changes:
        found.put(name, part)
    now = {name: part for name, part in dict(changes).items() if part}
    expected, total = budget.add(*now.values()), found.total()
    assert (total.dollars is None, total.tokens) == (expected.dollars is None, expected.tokens)
    assert total.dollars == pytest.approx(expected.dollars, abs=1e-6)
    assert found.parts == now
