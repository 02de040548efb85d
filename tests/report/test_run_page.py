"""Tests of the page of a flow run: content, claimed and verified outcomes, live updates, and hostile content."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.cli import main as cli
from muster.cli import map as cli_map
from muster.errors import NotFound, Refused
from muster.flow.reducing.funnel import funnel as flow_funnel
from muster.flow.run.directory import Run as FlowRun
from muster.report import player, run_data, run_page, sanitize

from ..conftest import eventually
from .browser import CHROMIUM, Browser, Page
from .test_page import everything, index_of, part_of, plain

START = 1_800_000_000.0
BASE, TIP, UNIT = "b" * 40, "c" * 40, "d" * 40
NASTY = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\u2028\u202e\x1b]0;title\x07\x1b[2J\x1b[31mred\x1b[0m"
DIFF = """diff --git a/till/ledger.py b/till/ledger.py
index 1b278ac..b7e5270 100644
--- a/till/ledger.py
+++ b/till/ledger.py
@@ -1,2 +1,2 @@ def month():
 same
-old line
+new line
--- not a header
"""


class Directory:
    """A run's directory in the format of docs/runs.md."""

    def __init__(self, folder: Path, kind: str = "improve", **about: Any) -> None:
        self.folder = folder
        (folder / "tasks").mkdir(parents=True)
        self.tests: list[dict[str, Any]] = []
        self.events: list[dict[str, Any]] = []
        known = {
            "version": 1,
            "name": folder.name,
            "created": START,
            "repo": "/home/ann/shop",
            "base": BASE,
            "type": "replay",
        }
        self.put("run.json", {**known, **({"kind": "improve"} if kind == "improve" else {}), **about})
        (folder / "tasks.jsonl").write_text("")

    def put(self, name: str, value: Any) -> None:
        (self.folder / name).write_text(json.dumps(value))

    def task(
        self, id: str, item: str, role: str = "worker", status: str = "failing", block: str = "", **fields: str
    ) -> str:
        """Add a task and the test that it is about."""
        told = (
            {"item": item, "role": role, "status": status, "group": "1", **fields} if role else {"item": item, **fields}
        )
        line = {"id": id, "number": 1, "item": item, "fields": told, "prompt": "do it", "args": [], "base": BASE}
        with open(self.folder / "tasks.jsonl", "a") as file:
            file.write(json.dumps(line) + "\n")
        file_, _, name = item.partition("::")
        case = {"id": item, "outcome": "failed", "seconds": 1.0, "text": "E  \x1b[31mit fails\x1b[0m", "crash": None}
        one = {"id": item, "file": file_, "line": 7, "end": 9, "cls": "", "ids": [item], "marks": [], "status": status}
        blocks = [{"id": "a-block", "text": block}] if block else []
        more = {"blocks": blocks, "outcomes": {item: ["failed", "failed"]}, "seconds": 1.0, "case": case}
        if name:
            self.tests.append({**one, **more})
        return id

    def attempt(self, id: str, outcome: str | None = "ok", number: int = 1, summary: str = "", **more: Any) -> Path:
        """Add an attempt with the files it left. With outcome=None the attempt is still running."""
        folder = self.folder / "tasks" / id / f"attempt-{number}"
        folder.mkdir(parents=True)
        files = {name: more.pop(name) for name in ("transcript", "cast", "diff", "prompt") if name in more}
        agent = {"name": f"run-{id[:4]}", "place": "", "address": f"run-{id[:4]}", "began": START + 10}
        (folder / "agent.json").write_text(json.dumps(agent))
        self.events.append({"t": START + 10, "kind": "launch", "task": id, "attempt": number})
        if outcome:
            claimed = {
                "outcome": outcome,
                "summary": summary,
                "reason": "",
                "escalate": [],
                "artifacts": [],
                "version": 1,
            }
            told = {"version": 1, "outcome": outcome, "reason": "", "seconds": 5.0, "summary": summary, "tokens": 1000}
            told |= {"cost_usd": 0.5, "branch": f"muster/run-{id[:4]}", "tip": TIP, "commits": 1, "final": True}
            (folder / "outcome.json").write_text(json.dumps({**told, "claimed": claimed, **more}))
            self.events.append({"t": START + 15, "kind": "outcome", "task": id, "attempt": number, "outcome": outcome})
        (folder / "prompt.txt").write_text(files.get("prompt", "Do it."))
        (folder / "diff.patch").write_text(files.get("diff", DIFF))
        lines = files.get("transcript", [{"t": START + 11, "role": "assistant", "text": "I look at it."}])
        (folder / "transcript.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        header = {"version": 2, "width": 80, "height": 24, "timestamp": int(START) + 10}
        cast = [header, *files.get("cast", [[0.5, "o", "hello from the agent\r\n"], [4.0, "o", "the end"]])]
        (folder / "recording.cast").write_text("".join(json.dumps(line) + "\n\n" for line in cast))
        return folder

    def verify(self, id: str, result: str, words: str = "passed 3 of 3 times", attempt: int = 1, **more: Any) -> None:
        evidence = [
            {"t": START + 20, "seconds": 2.0, "timed_out": False, "outcomes": {"x::a": "passed", "x::b": "failed"}}
        ]
        known = {
            "attempt": attempt,
            "claimed": "ok",
            "base": BASE,
            "result": result,
            "ok": result != "refused",
            "reason": words,
        }
        known |= {"kept_out": [], "implementation": ["till/ledger.py"], "other": [], "unit": UNIT}
        evidence[0] |= {"texts": {"x::b": "E  no"}, "errors": {}}
        self.put(f"tasks/{id}/verified.json", {**known, "evidence": evidence, **more})
        self.events.append({"t": START + 22, "kind": "verified", "task": id, "outcome": result, "reason": words})

    def done(self, groups: list[dict[str, Any]] | None = None, finished: bool = True) -> Directory:
        """Write the files that a run writes at its end."""
        self.put(
            "baseline.json",
            {"version": 1, "commit": BASE, "runs": 2, "seconds": 3.0, "tests": self.tests, "groups": groups or []},
        )
        with open(self.folder / "events.jsonl", "w") as file:
            file.writelines(json.dumps(event) + "\n" for event in sorted(self.events, key=lambda event: event["t"]))
        if finished:
            self.put("finished.json", {"t": START + 60, "outcomes": {}})
        return self


def sample(folder: Path) -> Directory:
    """Build a run with at least one task in every kind of state."""
    run = Directory(folder)
    first, second = "tests/test_list.py::test_month", "tests/test_list.py::test_year"
    run.task("0001-scout-month", first, "scout", block="# Only one month.\ntill list --month 2025-12", group="2")
    run.attempt("0001-scout-month", summary="Find the last day of December\nIt was wrong.")
    run.verify("0001-scout-month", "fixed")
    run.task("0002-undo", "tests/test_undo.py::test_undo")
    run.attempt("0002-undo", "timeout", claimed=None, final=False, reason="its time was up", summary="")
    transcript = [
        {"t": START + 10.5, "role": "user", "text": "Do it.\n" * 30},
        {"t": START + 11, "role": "assistant", "text": "I undo it."},
        {"t": START + 12, "role": "tool", "text": "Bash: ls", "tool": {"name": "Bash", "input": {"command": "ls -l"}, "output": "\x1b[32mfine\x1b[0m", "exit_code": 2}},
        {"t": START + 13, "role": "tool", "text": 'Edit: {"file": "a"}', "tool": {"name": "Edit", "input": {"file": "a"}, "output": None}},
    ]  # fmt: skip
    run.attempt("0002-undo", number=2, summary="Go back step by step", transcript=transcript)
    finding = {
        "path": "tests/test_undo.py",
        "line": 4,
        "rule": "skip",
        "reason": "a test is skipped now",
        "allowed": False,
    }
    run.verify("0002-undo", "refused", "test_other is failed now", attempt=2, kept_out=[finding])
    run.task("0003-quote", "tests/test_live.py::test_quote", status="passing")
    claimed = {"outcome": "blocked", "summary": "Nobody says", "reason": "a decision is missing", "escalate": ["Decide it"], "artifacts": ["a.txt"]}  # fmt: skip
    run.attempt("0003-quote", "blocked", claimed=claimed, reason="a decision is missing", commits=0)
    run.task("0004-sort", "tests/test_sort.py::test_sort")
    run.attempt("0004-sort", summary="Sort it")
    run.verify("0004-sort", "improved", implementation=[], other=["tests/test_sort.py"])
    run.task("0005-twin", "tests/test_sort.py::test_twin")
    run.attempt("0005-twin", summary="Sort it too")
    run.verify("0005-twin", "fixed")
    run.task("0006-late", "tests/test_late.py::test_late")
    run.attempt("0006-late", summary="Be on time")
    run.verify("0006-late", "fixed")
    run.task("0007-gone", "tests/test_late.py::test_gone")
    run.attempt("0007-gone", "lost", claimed=None, reason="its host is gone")
    run.tests += [
        {**run.tests[0], "id": second},
        {**run.tests[0], "id": "tests/test_sort.py::test_good", "status": "passing"},
    ]
    run.put("plan.json", {"skipped": {"tests/test_sort.py::test_good": "it was good as it is"}, "scouts": [first]})
    run.put("ahead.json", {"base": TIP, "included": ["0001-scout-month"], "fixed": {first: "0001-scout-month", second: "0001-scout-month"}, "siblings": []})  # fmt: skip
    accepted = [
        {"name": "0001-scout-month", "reason": "fixes 2 tests", "commit": "1" * 40, "collapsed": ["0005-twin"], "proof": "present"},
        {"name": "0004-sort", "reason": "fixes 0 tests", "commit": "2" * 40, "collapsed": [], "proof": "present"},
    ]  # fmt: skip
    left = {"0006-late": {"reason": "conflicts with 0001-scout-month", "output": "\x1b[31mCONFLICT\x1b[0m"}}
    run.put("delivery.json", {"commit": "1" * 40, "branch": "muster-run/sample", "why": "", "accepted": accepted, "left_out": left, "proof": "all 8 tests pass on this very commit"})  # fmt: skip
    run.events.append({"t": START + 30, "kind": "alert", "reason": "five of a kind"})
    return run.done(
        groups=[{"fingerprint": "x", "why": "the same line: 'month'", "functions": [first, second], "sample": "E"}]
    )


# ---- content ----


def test_the_funnel_counts_tasks_like_the_flow(tmp_path: Path) -> None:
    run = sample(tmp_path / "sample")
    funnel = {name: count for name, count, _ in index_of(run_page.make(run.folder).path)["funnel"]}
    theirs = flow_funnel(FlowRun(str(run.folder)))
    assert funnel == {name: theirs[name] for name in funnel}
    assert (funnel["tests"], funnel["groups"], funnel["verified"], funnel["refused"]) == (9, 1, 4, 1)
    assert (funnel["integrated"], funnel["left_out"], funnel["blocked"], funnel["cost_usd"]) == (3, 1, 1, 4.0)
    assert (funnel["launched"], funnel["valid"]) == (7, 6)
    run.task("0100-topic", "topic", role="branch")
    told = run.attempt("0100-topic")
    (told / "agent.json").write_text('{"branch": "topic"}')
    (told.parent / "verified.json").write_text('{"attempt": 1, "result": "fixed", "ok": true}')
    funnel = {name: count for name, count, _ in index_of(run_page.make(run.folder).path)["funnel"]}
    theirs = flow_funnel(FlowRun(str(run.folder)))
    assert funnel == {name: theirs[name] for name in funnel} and (funnel["launched"], funnel["verified"]) == (7, 5)


def test_a_run_is_compared_with_the_previous_one(tmp_path: Path) -> None:
    run, before = sample(tmp_path / "sample"), Directory(tmp_path / "first")
    before.task("0001-a", "tests/test_a.py::test_a")
    before.attempt("0001-a", summary="x")
    before.done()
    index = index_of(run_page.make(run.folder, before=before.folder).path)
    counts = {name: (now, old) for name, now, old in index["funnel"]}
    assert index["before"] == "first" and counts["launched"] == (7, 1) and counts["cost_usd"] == (4.0, 0.5)
    index = index_of(run_page.make(run.folder, before=tmp_path / "nothing").path)
    assert index["before"] is None and all(old is None for _, _, old in index["funnel"])


def test_the_list_shows_the_claimed_and_the_verified_outcome_of_each_task(tmp_path: Path) -> None:
    tasks = index_of(run_page.make(sample(tmp_path / "sample").folder).path)["tasks"]
    rows = {task["n"]: (task["o"], task.get("v"), task.get("i"), task["a"]) for task in tasks}
    assert rows == {
        "test_month": ("ok", "fixed", "in", 1),
        "test_undo": ("ok", "refused", None, 2),
        "test_quote": ("blocked", None, None, 1),
        "test_sort": ("ok", "improved", "in", 1),
        "test_twin": ("ok", "fixed", "in", 1),
        "test_late": ("ok", "fixed", "left", 1),
        "test_gone": ("lost", None, None, 1),
    }
    assert (tasks[0]["m"], tasks[0]["b"]) == (
        "Find the last day of December",
        "# Only one month.\ntill list --month 2025-12",
    )
    assert tasks[1]["c"] == 1.0 and tasks[1]["w"] == "test_other is failed now"


def test_the_overview_shows_groups_skipped_tests_escalations_and_notices(tmp_path: Path) -> None:
    index = index_of(run_page.make(sample(tmp_path / "sample").folder).path)
    [group] = index["groups"]
    assert (group["count"], group["scout"], group["fixed"]) == (2, "0001-scout-month", 2)
    assert index["skipped"] == [{"why": "it was good as it is", "tests": ["tests/test_sort.py::test_good"], "count": 1}]
    assert index["escalations"] == [{"x": "Decide it", "by": ["0003-quote"]}]
    assert index["notices"] == [[START + 30, "alert", "five of a kind"]]
    assert index["branch"]["left"] == [["0006-late", "conflicts with 0001-scout-month"]]


def test_commits_are_in_branch_order(tmp_path: Path) -> None:
    branch = index_of(run_page.make(sample(tmp_path / "sample").folder).path)["branch"]
    # Changes other than implementations come first, although they are less important.
    assert [(commit[0], [id for id, *_ in units], rest) for commit, units, rest in branch["commits"]] == [
        ("2", ["0004-sort"], True),
        ("1", ["0001-scout-month"], False),
    ]
    assert branch["commits"][1][1] == [["0001-scout-month", "fixes 2 tests", ["0005-twin"]]]


def test_the_file_of_a_task_has_its_test_claim_evidence_and_all_attempts(tmp_path: Path) -> None:
    report = run_page.make(sample(tmp_path / "sample").folder).path
    part = part_of(report, "0002")
    assert (part["verified"]["result"], part["verified"]["reason"]) == ("refused", "test_other is failed now")
    assert part["verified"]["kept_out"] == [["tests/test_undo.py", 4, "skip", "a test is skipped now", False]]
    [evidence] = part["verified"]["evidence"]
    assert (evidence["tests"], evidence["bad"]) == (2, [["x::b", "failed", ["E  no"]]])
    assert part["test"]["status"] == "failing" and plain(part["test"]["failure"]) == "E  it fails"
    assert [attempt["n"] for attempt in part["attempts"]] == [2, 1]
    last, first = part["attempts"]
    assert (last["claimed"]["summary"], first["claimed"], first["reason"]) == (
        "Go back step by step",
        None,
        "its time was up",
    )
    assert [(row["k"], row["t"]) for row in last["rows"]] == [
        ("user", 0.5),
        ("assistant", 1.0),
        ("tool", 2.0),
        ("tool", 3.0),
    ]
    assert last["rows"][2] == {
        "k": "tool",
        "t": 2.0,
        "x": "ls -l",
        "n": "Bash",
        "r": [["fine", 0, 2, -1]],
        "c": 2,
    }
    assert (last["rows"][3]["n"], last["rows"][3]["x"]) == ("Edit", '{"file": "a"}')
    assert last["diff"] == {"x": DIFF, "cut": 0}
    assert last["recording"] == {"name": "attempt 2", "begin": 0.0, "length": 4.0, "part": "0002-2"}
    assert part_of(report, "0002-2")["cast"][1:] == [[0.5, "o", "hello from the agent\r\n"], [4.0, "o", "the end"]]
    assert part_of(report, "0005")["fate"]["as"] == "0001-scout-month"
    assert part_of(report, "0001")["passes"] == ["tests/test_list.py::test_month", "tests/test_list.py::test_year"]
    assert plain(part_of(report, "0006")["fate"]["output"]) == "CONFLICT"


def test_the_verification_of_an_older_attempt_is_ignored(tmp_path: Path) -> None:
    run = sample(tmp_path / "sample")
    run.verify("0002-undo", "fixed", attempt=1)
    report = run_page.make(run.folder).path
    assert "v" not in index_of(report)["tasks"][1] and part_of(report, "0002")["verified"] is None


def test_a_map_run_has_a_page(tmp_path: Path) -> None:
    run = Directory(tmp_path / "map-1", kind="map")
    run.task("0001-one", "one", role="", file="a.txt")
    run.attempt("0001-one", claimed=None)
    run.task("0002-two", "two", role="")
    run.attempt("0002-two", "failed", reason="exit 1")
    made = run_page.make(run.done().folder)
    assert (made.tests, made.outcomes) == (2, {"ok": 1, "failed": 1})
    index = index_of(made.path)
    assert [index["run"]["kind"], *(count for _, count, _ in index["funnel"][:5])] == ["map", 2, 2, 1, 1, 0]
    assert part_of(made.path)["fields"] == {"file": "a.txt"}


# ---- during a run ----


def test_a_page_is_live_until_the_run_is_finished(tmp_path: Path) -> None:
    run = Directory(tmp_path / "run")
    assert index_of(run_page.make(run.folder).path)["run"]["live"]
    run.task("0001-a", "tests/test_a.py::test_a")
    run.task("0002-b", "tests/test_a.py::test_b")
    run.attempt("0001-a", None)
    made = run_page.make(run.done(finished=False).folder)
    index = index_of(made.path)
    assert (index["run"]["live"], index["run"]["last"], made.outcomes) == (True, START + 10, {"running": 1, "todo": 1})
    run.put("finished.json", {"t": START + 60})
    assert not index_of(run_page.make(run.folder).path)["run"]["live"]


def test_only_the_files_of_changed_tasks_are_rebuilt(tmp_path: Path) -> None:
    run = sample(tmp_path / "sample")
    parts = run_page.make(run.folder).path.parent / "parts"

    def inodes() -> dict[str, int]:
        return {name: (parts / name).stat().st_ino for name in os.listdir(parts)}

    before = inodes()
    run_page.make(run.folder)
    assert inodes() == before
    run.verify("0004-sort", "refused", "it is not so")
    (parts / "0005-1.js").unlink()
    run_page.make(run.folder)
    changed = {name for name, inode in inodes().items() if before[name] != inode}
    assert changed == {"0004.js", "0004-1.js", "0005.js", "0005-1.js"}
    assert part_of(parts.parent / "index.html", "0004")["verified"]["reason"] == "it is not so"


def test_the_same_directory_gives_the_same_bytes_with_or_without_an_earlier_page(tmp_path: Path) -> None:
    run = sample(tmp_path / "sample")
    fresh = everything(run_page.make(run.folder, tmp_path / "one").path.parent)
    other = Directory(tmp_path / "other")
    for number in range(9):
        other.task(f"{number:04}-x", f"tests/test_x.py::test_{number}")
        other.attempt(f"{number:04}-x")
    run_page.make(other.done().folder, tmp_path / "two")
    assert everything(run_page.make(run.folder, tmp_path / "two").path.parent) == fresh


def test_pages_of_a_run_and_of_a_test_run_can_replace_each_other(tmp_path: Path) -> None:
    from muster.report import page

    from .builder import Run

    tests = Run(tmp_path / "e2e")
    tests.test("test_a")
    run = sample(tmp_path / "sample")
    (run.folder / "tasks" / "0001-scout-month" / "attempt-1" / "recording.cast").unlink()
    fresh = everything(run_page.make(run.folder, tmp_path / "out").path.parent)
    page.make(tests.folder, tmp_path / "out")
    assert everything(run_page.make(run.folder, tmp_path / "out").path.parent) == fresh


# ---- size ----


def test_the_index_of_a_thousand_tasks_is_below_a_megabyte(tmp_path: Path) -> None:
    run = Directory(tmp_path / "big")
    for number in range(1000):
        id, words = (
            f"{number:04}-test-with-a-rather-long-name-of-forty-c",
            f"{number} " + "long words of an agent " * 40,
        )
        run.task(
            id, f"tests/e2e/test_some_file_{number % 40}.py::test_with_a_rather_long_name_{number}", block=f"# {words}"
        )
        folder = run.folder / "tasks" / id / "attempt-1"
        folder.mkdir(parents=True)
        (folder / "agent.json").write_text('{"name": "x"}')
        told = {
            "outcome": "ok",
            "summary": words,
            "final": True,
            "cost_usd": 0.123456,
            "tokens": 123456,
            "seconds": 123.456789,
        }
        claimed = {"outcome": "ok", "summary": words, "escalate": [words]}
        (folder / "outcome.json").write_text(json.dumps({**told, "claimed": claimed}))
        run.verify(id, "refused", words)
    ids = [test["id"] for test in run.tests]
    run.put("plan.json", {"skipped": dict.fromkeys(ids, "no reason")})
    names = sorted(os.listdir(run.folder / "tasks"))
    accepted = [{"name": name, "reason": "fixes it " * 99, "commit": f"{at:040}"} for at, name in enumerate(names[::2])]
    left = {name: {"reason": "conflicts with it " * 99} for name in names[1::2]}
    run.put("delivery.json", {"commit": TIP, "accepted": accepted, "left_out": left})
    groups = [{"why": f"group {n}", "functions": ids[n::20]} for n in range(20)]
    report = run_page.make(run.done(groups=groups).folder).path
    assert report.stat().st_size < 1_000_000
    index = index_of(report)
    assert len(index["tasks"]) == 1000 and all(len(task["m"]) > 70 and len(task["b"]) > 70 for task in index["tasks"])


def test_long_transcripts_diffs_prompts_and_recordings_are_cut_with_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sanitize, "MAX_RECORDING", 100_000)
    run = Directory(tmp_path / "run")
    run.task("0001-a", "tests/test_a.py::test_a")
    lines = [{"t": START, "role": "assistant", "text": f"line {n} {'x' * 1000}"} for n in range(4000)]
    diff = DIFF + "+" + "y" * 5000 + "\n" + "+z\n" * 300_000
    cast = [[n / 10, "o", "y" * 1000] for n in range(1000)]
    run.attempt("0001-a", transcript=lines, diff=diff, prompt="p" * 100_000, cast=cast)
    report = run_page.make(run.done().folder).path
    [attempt] = part_of(report)["attempts"]
    texts = [row["x"][:10] for row in attempt["rows"]]
    assert texts[0].startswith("line 0 ") and texts[-1].startswith("line 3999") and len(texts) < 2500
    assert attempt["cut"]["chars"] > 1_500_000 and attempt["path"] == "tasks/0001-a/attempt-1/transcript.jsonl"
    assert attempt["diff"]["cut"] == len(diff) - run_page.MAX_DIFF and "more characters" in attempt["diff"]["x"]
    assert attempt["prompt"]["cut"] == 100_000 - 65536
    assert part_of(report, "0001-1")["cast"][-1][1:] == [
        "m",
        "the recording was cut here because it is too long for the page",
    ]


def test_the_curve_counts_working_agents() -> None:
    def event(t: float, kind: str, task: str, attempt: int = 1) -> dict[str, object]:
        return {"t": t, "kind": kind, "task": task, "attempt": attempt}

    seen = [
        event(1, "launch", "a"),
        event(2, "launch", "b"),
        event(3, "launch", "a"),
        event(4, "outcome", "a"),
        event(5, "outcome", "z"),
    ]
    seen += [event(6, "adopted", "b"), {"t": "x"}, {"kind": "launch"}, event(5, "outcome", "b")]
    assert run_data.busy_curve(seen) == [(1, 1), (2, 2), (3, 2), (4, 1), (5, 1), (6, 1), (6, 0)]
    many = [event(n, "launch", str(n)) for n in range(5000)] + [event(5000 + n, "outcome", str(n)) for n in range(5000)]
    few = run_data.busy_curve(many)
    assert len(few) <= 301 and max(number for _, number in few) == 5000 and few[-1] == (9999, 0)


@settings(max_examples=int(os.environ.get("MUSTER_EXAMPLES", "60")), deadline=None)
@given(st.text(alphabet=st.sampled_from("ab\x1b[]m;31\r\n\b\t\x07\x0b\x85\x9b\x9d\u2028\u202e\ud800"), max_size=40))
def test_the_fast_path_for_plain_text_gives_the_same_result(text: str) -> None:
    assert sanitize.coloured_runs(text) == sanitize.coloured_runs(f"\x1b[m{text}")


# ---- untrusted input ----


def nasty(folder: Path) -> Directory:
    """Build a run in which every text that an agent can influence is hostile."""
    run = Directory(folder, name=NASTY, repo=NASTY, type=NASTY, base=NASTY)
    run.task("0001-a", f"tests/{NASTY}.py::test_{NASTY}", "scout", status=NASTY, block=NASTY)
    claimed = {"outcome": NASTY, "summary": NASTY, "reason": NASTY, "escalate": [NASTY], "artifacts": [NASTY]}
    tool = {"name": NASTY, "input": NASTY, "output": NASTY, "exit_code": 1}
    transcript = [{"t": START + 11, "role": role, "text": NASTY, "tool": tool} for role in ("user", "tool", NASTY)]
    diff = f"diff --git a/{NASTY} b/x\n+++ b/{NASTY}\n@@ {NASTY}\n+{NASTY}\n"
    more = {"branch": NASTY, "harvest_errors": [NASTY], "reason": NASTY, "uncommitted": NASTY, "tip": NASTY}
    folder = run.attempt(
        "0001-a",
        summary=NASTY,
        claimed=claimed,
        transcript=transcript,
        diff=diff,
        prompt=NASTY,
        cast=[[0.1, "o", NASTY]],
        **more,
    )
    (folder / "usage.json").write_text(json.dumps({"models": {NASTY: {"input_tokens": 4}}}))
    (folder / "status.json").write_text(json.dumps({"why": NASTY, "last_line": NASTY}))
    finding = {"path": NASTY, "line": 4, "rule": NASTY, "reason": NASTY}
    evidence = [{"outcomes": {NASTY: NASTY}, "texts": {NASTY: NASTY}, "errors": {NASTY: NASTY}}]
    run.verify(
        "0001-a",
        "fixed",
        NASTY,
        kept_out=[finding],
        evidence=evidence,
        implementation=[NASTY],
        other=[NASTY],
        unit=NASTY,
    )
    run.task(f"0002-{NASTY.replace('/', '')}", NASTY, role=NASTY)
    run.put("plan.json", {"skipped": {NASTY: NASTY}})
    run.put("ahead.json", {"fixed": {NASTY: "0001-a"}})
    accepted = [
        {"name": name, "reason": NASTY, "commit": NASTY, "collapsed": [NASTY], "proof": NASTY}
        for name in ("0001-a", NASTY)
    ]
    left = {NASTY: {"reason": NASTY, "output": NASTY}}
    run.put(
        "delivery.json",
        {"commit": NASTY, "branch": NASTY, "accepted": accepted, "left_out": left, "proof": NASTY, "why": NASTY},
    )
    run.events.append({"t": START, "kind": "alert", "reason": NASTY})
    return run.done(groups=[{"why": NASTY, "functions": [NASTY, run.tests[0]["id"]]}], finished=False)


def test_no_text_of_an_agent_is_interpreted_as_html_or_escape_sequences(tmp_path: Path) -> None:
    report = run_page.make(nasty(tmp_path / "run").folder, before=tmp_path / "run").path
    for name, data in everything(report.parent).items():
        if name.startswith("player/"):
            continue
        text = data.decode("utf-8")
        assert "<script>alert" not in text and "<img" not in text, name
        assert "\u2028" not in text and "\x1b" not in text, name
        # Recordings are exempt, because the player is a terminal emulator.
        assert "0001-1" in name or ("\\u001b" not in text and "\u202e" not in text), name
    assert report.read_text(encoding="utf-8").count("<script") == 2


def test_the_page_refers_to_no_external_url(tmp_path: Path) -> None:
    for name, data in everything(run_page.make(sample(tmp_path / "run").folder).path.parent).items():
        if not name.startswith("player/"):
            assert b"://" not in data.replace(b"file://", b""), name


DAMAGE = [
    b"",
    b"[]",
    b"{",
    b"null",
    b"7\n",
    b"\xff\xfe\x00",
    b"[" * 100_000,
    b'{"outcome": ["x"], "final": true, "claimed": [], "number": 1e999, "t": NaN, "cost_usd": "much", "agent": 3, "kind": {}}',
    b'{"tests": [null, {"id": 3, "blocks": [1], "outcomes": [], "case": 4, "status": []}], "groups": [{"functions": {}}, 1]}',
    b'{"accepted": [1, {"name": {}, "collapsed": 3}], "left_out": [], "skipped": [], "fixed": 3, "name": 4, "created": "x"}',
    b'{"result": "fixed", "ok": 3, "attempt": 1, "evidence": [3, {"outcomes": []}], "kept_out": [[]], "reason": "\\ud800"}',
    b'{"role": 3}\n{"role": "tool", "tool": {"name": [], "input": {"command": {}}, "output": 3, "exit_code": "x"}, "t": 1e400}\n',
]


@pytest.mark.parametrize("content", DAMAGE)
def test_a_malformed_file_counts_as_missing_and_the_rest_is_shown(tmp_path: Path, content: bytes) -> None:
    run = sample(tmp_path / "sample")
    names = [path.relative_to(run.folder) for path in sorted(run.folder.rglob("*")) if path.is_file()]
    for name in names:
        if name.parts[:2] != ("tasks", "0001-scout-month") and str(name) != "tasks.jsonl":
            (run.folder / name).write_bytes(content)
    made = run_page.make(run.folder, before=run.folder)
    assert made.tests == 7 and index_of(made.path)["tasks"][0]["v"] == "fixed"
    with open(run.folder / "tasks.jsonl", "ab") as file:
        file.write(content)
    assert run_page.make(run.folder).tests == 7
    (run.folder / "tasks.jsonl").write_bytes(content)
    assert run_page.make(run.folder).tests == 0


def test_task_ids_that_are_paths_are_ignored(tmp_path: Path) -> None:
    run = sample(tmp_path / "sample")
    secret = tmp_path / "secret"
    shutil.copytree(run.folder / "tasks" / "0001-scout-month", secret)
    (secret / "attempt-1" / "diff.patch").write_text("SECRET")
    for id in ("../../secret", str(secret), "..", "", "a/b", "a\0b", "\ud800", 3, None, "0009-link"):
        with open(run.folder / "tasks.jsonl", "a") as file:
            file.write(json.dumps({"id": id, "item": "x", "fields": [], "base": 3}) + "\n")
    (run.folder / "tasks" / "0009-link").symlink_to(secret)
    shutil.rmtree(run.folder / "tasks" / "0004-sort")
    (run.folder / "tasks" / "0004-sort").symlink_to(secret)
    diff = run.folder / "tasks" / "0005-twin" / "attempt-1" / "diff.patch"
    diff.unlink()
    diff.symlink_to(secret / "attempt-1" / "diff.patch")
    for name in ("transcript.jsonl", "recording.cast"):
        file_ = run.folder / "tasks" / "0006-late" / "attempt-1" / name
        file_.unlink()
        os.mkfifo(file_)
    report = run_page.make(run.folder).path
    assert all(b"SECRET" not in data for data in everything(report.parent).values())
    assert [task["o"] for task in index_of(report)["tasks"][7:]] == ["todo", "todo"]
    assert part_of(report, "0006")["attempts"][0]["rows"] == []


# ---- the output folder ----


def test_a_folder_that_is_not_a_report_is_not_changed(tmp_path: Path) -> None:
    run = sample(tmp_path / "sample")
    own = tmp_path / "own"
    own.mkdir()
    (own / "index.html").write_text("mine")
    (own / "stamps.json").write_text("mine")
    with pytest.raises(Refused):
        run_page.make(run.folder, own)
    assert everything(own) == {"index.html": b"mine", "stamps.json": b"mine"}
    (run.folder / "report").symlink_to(own)
    with pytest.raises(Refused):
        run_page.make(run.folder)
    with pytest.raises(NotFound, match="not the directory of a run"):
        run_page.make(own)


def test_report_takes_the_name_of_a_run_and_compares_it_with_the_previous_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MUSTER_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    runs = tmp_path / "home" / "runs"
    old = sample(runs / "improve-1")
    shutil.copytree(old.folder, runs / "improve-2")
    old.put(
        "run.json", {**json.loads((old.folder / "run.json").read_text()), "created": START - 9, "name": "improve-1"}
    )
    Directory(runs / "elsewhere", repo="/srv/other", created=START - 1)
    assert cli.main(["report", "improve-2", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    where = runs / "improve-2" / "report" / "index.html"
    assert said == {
        "report": str(where),
        "run": "improve-2",
        "tests": 7,
        "outcomes": {"ok": 5, "blocked": 1, "lost": 1},
    }
    assert index_of(where)["before"] == "improve-1"
    assert cli.main(["report", "improve-1", "--out", "page"]) == 0
    assert index_of(tmp_path / "page" / "index.html")["before"] is None
    assert "7 tasks: 5 ok, 1 blocked, 1 lost" in capsys.readouterr().err
    assert cli.main(["report", str(runs / "improve-1")]) == 0
    (tmp_path / "improve-2").mkdir()
    assert cli.main(["report", "improve-2"]) == 3
    assert "improve-2 is not the artifact folder of a test run" in capsys.readouterr().err
    assert cli.main(["report", "nobody"]) == 3
    error = capsys.readouterr().err
    assert "there is no folder nobody, and no run of that name" in error
    assert "pytest --e2e-artifacts nobody" in error and "runs: improve-2, elsewhere, improve-1" in error


def test_a_run_rebuilds_its_existing_page_while_it_goes_on_and_at_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MUSTER_HOME", str(tmp_path / "home"))
    runs = tmp_path / "home" / "runs"
    Directory(runs / "improve-1", created=START - 9).task("0001-a", "tests/test_a.py::test_a")
    run = Directory(runs / "improve-2")
    run.task("0001-a", "tests/test_a.py::test_a")
    page = run.folder / "report" / "index.html"
    display = cli_map.Display(True, str(run.folder))
    display.say({"kind": "plan"})
    assert display.maker is None and not page.exists(), "no page was requested yet"
    assert cli.main(["report", "improve-2"]) == 0

    def shows(outcome: str, live: bool) -> bool:
        index = index_of(page)
        assert index["before"] == "improve-1"
        return (index["tasks"][0]["o"], index["run"]["live"]) == (outcome, live)

    assert shows("todo", True)
    run.attempt("0001-a", None)
    display.say({"kind": "launch"})
    first = display.maker
    eventually(lambda: shows("running", True))
    assert first and first.wait(20) == 0
    monkeypatch.setattr(cli_map, "PAGE_SECONDS", 3600.0)
    display.say({"kind": "verified"})  # the next rebuild is due in an hour
    waits = display.maker
    assert waits is not first and waits and waits.poll() is None
    run.put("finished.json", {"t": START + 60})
    display.say({"kind": "finished"})
    assert waits.poll() is not None, "no rebuild may follow the last one"
    eventually(lambda: shows("running", False))
    assert display.maker and display.maker.wait(20) == 0


# ---- in a browser ----


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    started = Browser(tmp_path_factory.mktemp("chromium"))
    yield started
    started.end()


def ready(shown: Page, task: str) -> None:
    shown.get(f"location.hash = 'task={task}'")
    shown.wait(
        f"document.querySelector('#detail .attempt') && document.querySelector('#detail h2').textContent.includes('{task[5:]}')"
    )


@pytest.mark.skipif(not os.path.exists(CHROMIUM), reason="there is no /usr/bin/chromium: apt-get install chromium")
@pytest.mark.skipif(not player.find(), reason=f"there is no player: {player.INSTALL}")
def test_the_page_can_be_read_from_file_urls(browser: Browser, tmp_path: Path) -> None:
    report = run_page.make(sample(tmp_path / "a run & #more").folder).path
    shown = browser.page()
    shown.size(1440, 900)
    shown.open(report.as_uri())
    assert "4 of 7 verified" in shown.text("#facts") and shown.text(".f-refused b") == "1"
    assert "muster-run/sample" in shown.text(".panel") and shown.count("svg .curve") == 1
    assert [line in shown.text("#list") for line in ("Left out", "Decide it", "the same line", "five of a kind")] == [
        True
    ] * 4
    ready(shown, "0002-undo")
    claimed, verified = shown.get("[...document.querySelectorAll('.box')].map((box) => box.innerText)")
    assert "Go back step by step" in claimed and "ok" in claimed and "refused" not in claimed
    assert "refused" in verified and "test_other is failed now" in verified
    assert "a test is skipped now" in shown.text("#detail .leaks")
    assert "I undo it." in shown.text("#detail .rows") and shown.text("#detail .k-tool .f2") == "fine"
    assert shown.text(".diff summary") == "till/ledger.py+1−2"
    assert [shown.text(f".diff pre .{kind}").strip() for kind in ("more", "less")] == ["+new line", "-old line"]
    assert "Attempt 1: out of time" in shown.text(".earlier summary")
    shown.click(".attempt figure .play")
    shown.wait("document.querySelector('.ap-term')?.textContent.includes('hello from the agent')")
    shown.key("Escape", "f")
    assert shown.text("#count") == "4 of 7 tasks"
    shown.key("f")
    shown.click('[data-filter="verified"][data-word="fixed"]')
    assert shown.text("#count") == "3 of 7 tasks"
    shown.key("/")
    shown.type("december")
    assert shown.get("[...document.querySelectorAll('.test')].filter((e) => e.offsetParent).length") == 1
    assert "verified=fixed" in shown.get("location.hash")
    shown.click('[data-view="overview"]')
    assert shown.text("#search") == "" and shown.count(".commits li") == 2
    shown.size(360, 740)
    assert shown.get("document.documentElement.scrollWidth") == 360
    assert shown.complaints() == [] and shown.dialogs() == []
    assert [url for url in shown.requests() if not url.startswith(report.parent.as_uri() + "/")] == []
    shown.close()


@pytest.mark.skipif(not os.path.exists(CHROMIUM), reason="there is no /usr/bin/chromium: apt-get install chromium")
def test_hostile_text_is_shown_as_text_and_a_live_page_reloads(browser: Browser, tmp_path: Path) -> None:
    run = nasty(tmp_path / "run")
    report = run_page.make(run.folder, before=run.folder).path
    shown = browser.page()
    hurry = "const real = setInterval; window.turns = 0; window.setInterval = (work, wait) => real(() => { turns += 1; work(); }, wait / 20);"
    shown.call("Page.addScriptToEvaluateOnNewDocument", source=hurry)
    shown.open(report.as_uri())
    shown.get("location.hash = 'task=0001-a'")
    shown.wait("document.querySelector('#detail .attempt')")
    assert "onerror=alert(2)" in shown.text(".box") and "onerror=alert(2)" in shown.text(".diff")
    assert shown.get("document.querySelectorAll('img, iframe, object, embed, a[href]:not([href^=\"#\"])').length") == 0
    assert shown.get("document.querySelectorAll('script').length") == 2
    # The page does not reload while a task is open; after it is closed, the page shows what is new.
    shown.get("window.before = 1")
    run.put("finished.json", {"t": START + 60})
    run_page.make(run.folder)
    shown.wait("turns > 2")
    assert shown.get("window.before") == 1 and shown.count(".live") == 1
    shown.key("Escape")
    shown.wait("window.before === undefined && document.readyState === 'complete'")
    assert shown.count(".live") == 0 and shown.complaints() == [] and shown.dialogs() == []
    shown.close()
