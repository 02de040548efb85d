"""One task of a run in the terminal: `muster runs show RUN TASK`."""

from __future__ import annotations

import argparse
import json
import os
from typing import TYPE_CHECKING, Any

from .. import cast
from ..errors import MusterError
from ..fleet import Fleet
from ..model import LIVE
from . import render

if TYPE_CHECKING:
    from ..flow.run.directory import Attempt, Record, Run

#: How much of the end of a file is read for the last lines, and how many of them are shown.
TAIL, LINES = 1 << 16, 8


def show(args: argparse.Namespace, fleet: Fleet, run: Run, word: str) -> int:
    record = run.task(word)
    picture = _picture(fleet, run, record)
    if args.json:
        render.document(picture)
    else:
        _print(picture)
    return 0


def _picture(fleet: Fleet, run: Run, record: Record) -> dict[str, Any]:
    (row,) = run.picture_of([record])["tasks"]
    last = record.attempts[-1] if record.attempts else None
    attempts = [_attempt(one) for one in record.attempts]
    verified = record.verified
    return {
        "run": run.name,
        **row,
        "attempts": attempts,
        "verdict": verified.reason or None if verified else None,
        "kept_out": [
            {"path": one.path, "rule": one.rule, "reason": one.reason}
            for one in (verified.kept_out if verified else ())
        ],
        "last_lines": _last_lines(last.folder) if last else [],
        "folder": last.folder if last else run.path("tasks", record.task.id),
        "next": _next(fleet, run, row, last),
    }


def _attempt(attempt: Attempt) -> dict[str, Any]:
    ended = attempt.outcome
    return {
        "number": attempt.number,
        "agent": attempt.agent.address or None,
        "outcome": ended.outcome if ended else None,
        "reason": ended.reason or None if ended else None,
        "cost_usd": ended.cost_usd if ended else None,
        "tokens": ended.tokens if ended else None,
        "seconds": ended.seconds if ended else None,
    }


def _last_lines(folder: str) -> list[str]:
    """Return what the agent said last: the end of its transcript, or else of its recording."""
    said = [
        str(entry.get("text") or "")
        for line in _tail(os.path.join(folder, "transcript.jsonl"))
        if (entry := _object(line)) and entry.get("role") == "assistant"
    ]
    text = next((one for one in reversed(said) if one.strip()), "")
    if not text:
        events = [_list(line) for line in _tail(os.path.join(folder, "recording.cast"))]
        text = cast.strip("".join(str(event[2]) for event in events if len(event) == 3 and event[1] == "o"))
    lines = [render.plain(line).rstrip() for line in text.replace("\r", "\n").split("\n")]
    return [line[:1000] for line in lines if line.strip()][-LINES:]


def _tail(path: str) -> list[str]:
    """Return the whole lines at the end of a file."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL))
            lines = file.read().decode("utf-8", "replace").split("\n")
    except OSError:
        return []
    return lines[1:] if size > TAIL else lines


def _object(line: str) -> dict[str, Any]:
    value = _parsed(line)
    return value if isinstance(value, dict) else {}


def _list(line: str) -> list[Any]:
    value = _parsed(line)
    return value if isinstance(value, list) else []


def _parsed(line: str) -> Any:
    try:
        return json.loads(line) if line else None
    except (ValueError, RecursionError):
        return None


def _next(fleet: Fleet, run: Run, row: dict[str, Any], last: Attempt | None) -> list[str]:
    """Return the commands that one would type now."""
    commands = []
    if row["branch"] and row["commits"]:
        commands.append(f"git diff HEAD...{row['branch']}")
    if row["uncommitted"]:
        commands.append(f"git diff HEAD...{row['uncommitted']}")
    address = str(row["agent"] or "") if last else ""
    try:
        found = fleet.seek(address) if address else None
    except MusterError:
        found = None  # its host does not answer
    if found and found.agent.labels.get("run") == run.name:
        commands.append(f"muster connect {address}" if found.status.state in LIVE else f"muster start {address}")
        commands.append(f"muster capture {address} --scrollback")
    return [*commands, f"muster report {run.name}"]


def _print(task: dict[str, Any]) -> None:
    render.paragraph(f"{task['id']} of {task['run']}: {task['outcome'] or task['state']}")
    facts = [
        ("item", task["item"]),
        ("reason", task["reason"]),
        ("summary", task["summary"]),
        ("verified", _joined(task["verified"], task["verdict"])),
        ("cost", _cost(task).strip("-")),
        (
            "branch",
            f"{task['branch']} ({task['commits']} commit{'s' if task['commits'] != 1 else ''})"
            if task["commits"]
            else "",
        ),
        ("not committed", task["uncommitted"]),
        ("files", task["folder"]),
    ]
    for name, value in facts:
        if value:
            render.paragraph(f"{name}: {' '.join(str(value).split())}")
    for words in task["harvest_errors"]:
        render.paragraph(f"not harvested: {words}")
    for one in task["kept_out"]:
        render.paragraph(f"kept out: {one['path']}: {one['reason']}")
    if task["attempts"]:
        render.out("")
        rows = [
            [
                str(one["number"]),
                str(one["outcome"] or "-"),
                _cost(one),
                "-" if one["seconds"] is None else render.age(one["seconds"]),
                str(one["agent"] or "-"),
                " ".join(str(one["reason"] or "-").split()),
            ]
            for one in task["attempts"]
        ]
        head = ["TRY", "OUTCOME", "COST", "TIME", "AGENT", "REASON"]
        render.table(head, rows, drop=["TIME", "COST"], text=["REASON"])
    if task["last_lines"]:
        render.out("")
        render.out("Last lines:")
        for line in task["last_lines"]:
            render.paragraph(f"  {line}")
    render.out("")
    render.out("Next:")
    for command in task["next"]:
        render.out(f"  {command}")


def _joined(first: object, second: object) -> str:
    return f"{first} ({second})" if first and second else str(first or "")


def _cost(one: dict[str, Any]) -> str:
    if one["cost_usd"] is not None:
        return render.dollars(one["cost_usd"])
    return f"{one['tokens']:.0f} tok" if one["tokens"] is not None else "-"
