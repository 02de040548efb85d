"""The records of a run's files: what is written is read again, and nothing in a file can make a reader raise."""

from __future__ import annotations

import json
from typing import Any

import pytest

from muster.flow.run.records import (
    Ahead,
    AttemptAgent,
    Control,
    Finished,
    KeptOut,
    Outcome,
    Plan,
    RunInfo,
    Verified,
)
from muster.flow.run.results import Result

RECORDS: list[Any] = [
    RunInfo(1, "map-1", 2.0, "improve", "d", "/r", "/r/a", "b" * 40, "claude", "p", ("x",), ("", "box"), ("t",), "ask")
    ._replace(tutorial="t.sh", sources=(("a", "a@box", ""), ("topic", "", "c" * 40))),
    AttemptAgent("map-1-0001", "box", "map-1-0001@box", 1.5, "topic"),
    Outcome("failed", "why", True, 3.0, 4.0, 5.0, 6, 0.5, "sum", Result("ok", "s", "r", ("e",), ("a",), 1.0), "b", "t")
    ._replace(commits=2, uncommitted="b-wip", repo="/r", harvest_errors=("x",), keep_agent=True, host_silent=True)
    ._replace(failure={"kind": "exit"}, uses_retry=False),
    Verified(2, True, "fixed", "it passes", "ok", "b", True, ("a.py",), ("b.md",), (KeptOut("c", 3, "junk", "r", True),))
    ._replace(tests=("t",), unit="u", evidence=({"t": 1.0},)),
    Plan({"t": "why"}, ("s",)),
    Ahead("b", ("0001-a",), {"t": "0001-a"}, ("line",)),
    Finished(1.0, {"ok": 2}, "c", "muster-run/x"),
]  # fmt: skip
HOSTILE = [
    *(None, [], "x", 7, True, float("nan"), [[]], {"a": []}, {"version": "x"}, 10**400),
    {"outcome": "ok", "reason": 3, "final": "yes", "cost_usd": "1", "claimed": {"escalate": [1, {}]}, "t": True},
    {"outcome": ["ok"], "result": {}, "tests": 5, "kept_out": [7, {"line": "x"}], "evidence": "y"},
    {"result": "fixed", "kept_out": {"path": 1}, "skipped": [], "fixed": {"a": 3}, "outcomes": {"ok": 10**400}},
    {"sources": [1, ["a"], ["a", 2, None]], "places": [None], "name": "a\ud800", "created": float("inf")},
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_a_record_is_read_as_it_was_written(record: Any) -> None:
    assert type(record).from_json(json.loads(json.dumps(record.to_json()))) == record
    assert {*record.to_json()} - {"version"} == {*record._fields} - {"version"}


@pytest.mark.parametrize("data", HOSTILE, ids=range(len(HOSTILE)))
@pytest.mark.parametrize("kind", [*map(type, RECORDS), Control], ids=lambda kind: kind.__name__)
def test_a_reader_takes_whatever_a_file_holds(kind: Any, data: object) -> None:
    record = kind.from_json(data)
    assert record is None or type(record) is kind


def test_a_value_of_the_wrong_type_counts_as_missing() -> None:
    outcome = Outcome.from_json({"outcome": "ok", "reason": 3, "final": "yes", "cost_usd": True, "commits": "2"})
    assert outcome == Outcome("ok")
    assert Outcome.from_json({"outcome": "nonsense", "final": True}) is None
    assert AttemptAgent.from_json({}) is None and RunInfo.from_json([]) == RunInfo()


def test_a_lean_outcome_has_none_of_the_long_texts() -> None:
    lean = RECORDS[2].lean()
    assert (lean.outcome, lean.cost_usd, lean.tip) == ("failed", 0.5, "t")
    assert not (lean.reason or lean.summary or lean.claimed or lean.harvest_errors or lean.failure)
