"""What the probe wrote, as values; hostile and truncated reports too."""

from __future__ import annotations

import json
from typing import Any

import pytest

from muster.flow.suite.report import OUTCOMES, Case, Item, Report, read


def lines(*told: dict[str, Any] | str) -> bytes:
    return b"".join((one if isinstance(one, str) else json.dumps(one)).encode() + b"\n" for one in told)


def one_test(*reports: tuple[str, str]) -> Case:
    heard = [{"k": "report", "id": "t", "when": when, "outcome": outcome} for when, outcome in reports]
    return read(lines({"k": "start", "id": "t"}, *heard, {"k": "finish", "id": "t", "seconds": 2})).cases["t"]


@pytest.mark.parametrize(
    ("reports", "outcome"),
    [
        ([("call", "passed")], "passed"),
        ([("call", "failed")], "failed"),
        ([("setup", "failed")], "error"),
        ([("call", "passed"), ("teardown", "failed")], "error"),
        ([("call", "failed"), ("teardown", "failed")], "failed"),
        ([("setup", "skipped")], "skipped"),
        ([("call", "failed"), ("call", "passed")], "failed"),
        ([("call", "skipped"), ("call", "passed")], "passed"),
        ([("call", "rerun"), ("call", "passed")], "passed"),
        ([], "missing"),
    ],
)
def test_the_phases_of_a_test_give_one_outcome(reports: list[tuple[str, str]], outcome: str) -> None:
    case = one_test(*reports)
    assert (case.outcome, case.seconds) == (outcome, 2.0)


RAW = lines(
    {"k": "session", "version": 1, "top": "/w"},
    {"k": "item", "id": "a.py::t[1]", "function": "a.py::t", "file": "a.py", "line": 1, "end": 3, "class": "", "marks": []},
    {"k": "start", "id": "a.py::t[1]"},
    {"k": "report", "id": "a.py::t[1]", "when": "call", "outcome": "failed", "xfail": False, "crash": ["a.py", 2, "no"], "text": "é\u001b[31mno"},
    {"k": "finish", "id": "a.py::t[1]", "seconds": 0.5},
    {"k": "start", "id": "a.py::u"},
    "Timeout (0:00:01)!",
    "Thread 0x1 (most recent call first):",
    '  File "/usr/lib/x.py", line 7 in other',
    "Thread 0x2 (most recent call first):",
    '  File "/usr/lib/python3.11/socket.py", line 700 in read',
    '  File "/w/a.py", line 9 in u',
    {"k": "session", "version": 1, "top": "/w"},
    {"k": "start", "id": "a.py::v"},
    {"k": "report", "id": "a.py::v", "when": "call", "outcome": "passed"},
    {"k": "finish", "id": "a.py::v", "seconds": 0.5},
    {"k": "end", "status": 1, "outside": []},
)  # fmt: skip


def test_a_report_has_items_cases_and_status() -> None:
    seen = read(RAW)
    assert seen.items == {"a.py::t[1]": Item("a.py::t[1]", "a.py::t", "a.py", 1, 3)}
    assert {id: case.outcome for id, case in seen.cases.items()} == {
        "a.py::t[1]": "failed",
        "a.py::u": "hung",
        "a.py::v": "passed",
    }
    assert seen.cases["a.py::t[1]"].text == "éno"
    assert seen.cases["a.py::u"].crash == ("a.py", 9, "it hangs in u")
    assert seen.status == 1


def test_a_truncated_report_is_read_to_its_end() -> None:
    whole = read(RAW).cases
    known = 0
    for end in range(len(RAW)):
        seen = read(RAW[:end]).cases
        finished = {
            id: case for id, case in seen.items() if case.text != "pytest ended while this test ran" and id != "a.py::u"
        }
        assert finished.items() <= whole.items()
        assert len(finished) >= known
        known = len(finished)
    assert known == 2


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"null",
        b'{"k":["item"],"id":"x"}',
        b'{"k":"item","id":5}',
        b'{"k":"item","id":"x","line":-1,"end":"9","file":7,"marks":"skip","class":null}',
        b'{"k":"report","id":"x","outcome":["failed"],"when":{},"crash":[1,2,3],"text":{}}',
        b'{"k":"report","id":"x","outcome":"failed","when":"call","crash":"here","text":9}',
        b'{"k":"finish","id":"x","seconds":NaN}',
        b'{"k":"finish","id":"x","seconds":1e999}',
        b'{"k":"finish","id":"never begun","seconds":1}',
        b'{"k":"end","status":"9","outside":{}}',
        b'{"k":"end","status":' + b"9" * 5000 + b"}",
        b'{"k":"x","y":' + b"[" * 100_000,
        b'{"k":"start","id":"\\ud800"}',
        b"Timeout (\xff\xfe",
        b'  File "/w/a.py", line 99999999999999999999 in u',
        b"\0" * 1000,
    ],
)
def test_hostile_lines_do_no_harm(line: bytes) -> None:
    raw = RAW + lines({"k": "start", "id": "x"}) + line + b"\n" + lines({"k": "finish", "id": "x", "seconds": 1})
    seen = read(raw)
    assert {"a.py::t[1]", "a.py::u", "a.py::v", "x"} <= seen.cases.keys()
    assert all(case.outcome in OUTCOMES and 0 <= case.seconds < 1e9 for case in seen.cases.values())
    json.dumps([seen.items, seen.cases, seen.errors, seen.status, seen.outside], allow_nan=False)


def test_varying_parameters_count_as_one_test() -> None:
    names = {"a.py::t[9]": "passed", "a.py::t[8]": "failed", "a.py::t[7]": "hung", "a.py::u[1]": "passed"}
    items = {id: Item(id, id.partition("[")[0], "a.py", 1, 2) for id in names}
    seen = Report(items=items, cases={id: Case(id, outcome) for id, outcome in names.items()})
    settled = seen.merge_parameters(frozenset({"a.py::t"}))
    assert {id: case.outcome for id, case in settled.cases.items()} == {"a.py::t": "hung", "a.py::u[1]": "passed"}
    assert set(settled.items) == {"a.py::t", "a.py::u[1]"}


@pytest.mark.parametrize("root", ["/etc", "../x", "a/../../x", "a:b", "", "a\nb", 7, None])
def test_a_root_outside_the_checkout_is_dropped(root: object) -> None:
    told = json.dumps({"k": "session", "roots": [root, "src"]})
    assert read(told.encode()).roots == ("src",)
