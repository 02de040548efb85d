"""The rows of runs: listing many of them, showing a large one, and making its page.

The runs are made here, as files, with what a small agent leaves. Their floors are in `read_floor` and `copy_floor`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from unittest import mock

from muster.flow.run import directory as runs
from muster.flow.run import tasks
from muster.flow.run.records import AttemptAgent, Finished, Outcome, RunInfo, Verified
from muster.flow.run.results import Result

#: How many runs are listed, how many tasks each of them has, and how many the large one has.
RUNS, TASKS, LARGE = 50, 60, 2000
CREATED = 1_800_000_000.0
FAILURE = "E   assert 1 == 2\n" + "shop/cart.py:7: AssertionError: the total is wrong\n" * 20
OUTCOMES = ("ok", "ok", "ok", "failed", "blocked")
DIFF = "diff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n@@ -1,40 +1,40 @@\n" + "-old line\n+new line\n" * 40


def make(home: Path, name: str, count: int, created: float = CREATED) -> runs.Run:
    """Write a finished run of `improve` with `count` tasks; each has a transcript, a recording, changes and a verdict."""
    items = [f"tests/test_{number // 20}.py::test_{number}" for number in range(count)]
    found = [one._replace(fields={**one.fields, "role": "worker", "status": "failing"}) for one in _tasks(items)]
    info = RunInfo(kind="improve", created=created, type="claude", repo="/home/ann/shop", base="b" * 40)
    run = runs.make(str(home), name, info, found)
    for number, one in enumerate(found):
        began = created + number
        agent = AttemptAgent(f"{name}-{number}", "", f"{name}-{number}", began)
        attempt = run.begin(one.id, 1, agent, one.prompt)
        run.event("launch", began, task=one.id, attempt=1)
        ended = Outcome(OUTCOMES[number % len(OUTCOMES)], seconds=60.0, summary="Changed one line.", final=True)
        claimed = Result(ended.outcome, ended.summary)
        branch = f"muster/{name}-{number}"
        run.end(attempt, ended._replace(tokens=1000, cost_usd=0.05, branch=branch, commits=1, claimed=claimed))
        run.event("outcome", began + 60, task=one.id, attempt=1, outcome=ended.outcome)
        run.clear(attempt)
        _leave(Path(attempt.folder), began)
        run.save_verified(one.id, _verified(one.item, ended.outcome))
    tests = [
        {"id": item, "file": item.partition("::")[0], "line": 7, "status": "failing", "seconds": 1.0, "blocks": []}
        | {"outcomes": {item: ["failed", "failed"]}, "case": {"id": item, "outcome": "failed", "text": FAILURE}}
        for item in items
    ]
    groups = [{"why": "assert 1 == 2", "functions": items[at : at + 20]} for at in range(0, count, 20)]
    runs.write(run.path("baseline.json"), {"version": 1, "commit": "b" * 40, "tests": tests, "groups": groups})
    run.save(Finished(created + count + 60))
    return run


def _tasks(items: list[str]) -> list[tasks.Task]:
    return tasks.tasks(tasks.items("".join(f"{item}\n" for item in items)), "Improve {item}.", ())


def _verified(item: str, outcome: str) -> Verified:
    run = {"t": CREATED, "seconds": 2.0, "late": False, "outcomes": {item: "passed"}, "texts": {item: FAILURE}}
    return Verified(
        attempt=1,
        ok=outcome == "ok",
        result="fixed" if outcome == "ok" else "refused",
        reason="passed 3 of 3 times",
        claimed=outcome,
        base="b" * 40,
        unit="d" * 40,
        implementation=("shop/cart.py",),
        evidence=({**run, "errors": {}},) * 3,
    )


def _leave(folder: Path, began: float) -> None:
    rows: list[dict[str, Any]] = [{"t": began, "role": "user", "text": "Improve it."}]
    for step in range(20):
        output = f"line {step} of the output\n" * 10
        call = {"name": "Bash", "input": {"command": f"make step-{step}"}, "output": output, "exit_code": 0}
        rows.append({"t": began + step, "role": "assistant", "text": f"Now step {step}. " * 5})
        rows.append({"t": began + step + 0.5, "role": "tool", "text": "Bash", "tool": call})
    (folder / "transcript.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    header = {"version": 2, "width": 80, "height": 24, "timestamp": int(began)}
    cast = [header, *([at / 10, "o", f"\x1b[32mstep\x1b[0m {at} of the recording\r\n"] for at in range(100))]
    (folder / "recording.cast").write_text("".join(json.dumps(line) + "\n" for line in cast))
    (folder / "diff.patch").write_text(DIFF)
    (folder / "status.json").write_text(json.dumps({"state": "done", "why": "it exited with 0", "last_line": "$"}))
    usage = {"input_tokens": 900, "output_tokens": 100, "models": {"m": {"input_tokens": 900, "output_tokens": 100}}}
    (folder / "usage.json").write_text(json.dumps(usage))


def read_floor(folder: Path, *names: str) -> list[str]:
    """Return the argv of a python that reads every file of one of these names below `folder`."""
    program = (
        "import os, sys\n"
        "for at, folders, files in os.walk(sys.argv[1]):\n"
        "    for name in files:\n"
        "        if name in sys.argv[2:]:\n"
        "            with open(os.path.join(at, name), 'rb') as file: file.read()\n"
    )
    return [sys.executable, "-c", program, str(folder), *names]


def copy_floor(folder: Path, into: Path, count: int) -> list[str]:
    """Return the argv of a python that reads every file below `folder` and writes what it read into `count` files."""
    program = (
        "import os, sys\n"
        "read = []\n"
        "for at, folders, files in os.walk(sys.argv[1]):\n"
        "    for name in files:\n"
        "        with open(os.path.join(at, name), 'rb') as file: read.append(file.read())\n"
        "count = int(sys.argv[3])\n"
        "for number in range(count):\n"
        "    with open(os.path.join(sys.argv[2], str(number)), 'wb') as file: file.write(b''.join(read[number::count]))\n"
    )
    return [sys.executable, "-c", program, str(folder), str(into), str(count)]


def fill(home: Path) -> None:
    """Make the runs that the rows are measured with; nobody waits for the disk while thousands of files are made up."""
    with mock.patch("os.fsync"):
        for number in range(RUNS - 2):
            make(home, f"map-{number + 1}", TASKS)
        make(home, "large", LARGE, CREATED + 2)
        make(home, "older", LARGE, CREATED + 1)
