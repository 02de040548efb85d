"""Build the page of a `map` or `improve` run: an index with the list of tasks, and one file per task, loaded on demand.

The page depends only on the run's directory and can be built while the run is going on; only the files of tasks that changed
are rebuilt. Output of agents goes into the page as JSON, never as HTML. Malformed files never make the build fail.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

from ..flow.run.records import Outcome, Verified
from ..flow.run.results import Result
from . import ansi, sanitize, site
from .page import HEAD, MAX_TRANSCRIPT, TAIL, Summary
from .run_data import MAX_FILE, OUTCOMES, Attempt, Object, Run, Task, busy_curve, funnel, is_run, read, task_names
from .sanitize import MAX_TEXT, HeadAndTail, coloured_runs, truncated
from .untrusted import UntrustedFolder, as_dict, as_int, as_list, as_number, as_text, parse_json

ROLES = ("user", "assistant", "tool", "error", "queued")
#: Maximum size of a diff, in bytes, and of a line of a file, in characters.
MAX_DIFF, MAX_LINE = 400_000, 2000
#: Kinds of events that the page lists as notices.
NOTICES = ("alert", "stopping", "draining", "paused", "resumed", "question")


def make(run_folder: Path, out: Path | None = None, before: Path | None = None) -> Summary:
    """Build the page in `out`, by default `report` in the run's directory. `before` is the run to compare with.

    Raises NotFound if the folder is not the directory of a run, and Refused if `out` contains something other than a report.
    """
    run = read(run_folder)
    previous = read(before) if before is not None and is_run(before) else None
    inside = out is None
    out = run_folder / "report" if out is None else out
    old_stamps = as_dict(UntrustedFolder(out).json(site.STAMPS, limit=MAX_FILE))
    site.prepare(out, inside)
    program = site.asset("assets", "tools.js") + site.asset("assets", "run.js")
    version = hashlib.sha256(program.encode()).hexdigest()
    facts = _TaskFacts(run)
    stamps: dict[str, list[str]] = {}
    with os.scandir(out / "parts") as entries:
        existing = {entry.name.removesuffix(".js") for entry in entries if entry.is_file()}
    for count, task in enumerate(run.tasks, 1):
        key = f"{count:04}"
        summary = facts.of(task)
        stamp = _stamp(run, task, [version, task.id, summary])
        entry = [as_text(word, 100) for word in as_list(old_stamps.get(key), 1000)]
        if entry[:1] != [stamp] or not existing.issuperset((key, *entry[1:])):
            part, recordings = _part(run, task, key, summary)
            for name, recording in recordings.items():
                site.write_part(out, "recording", name, recording)
            site.write_part(out, "part", key, part)
            entry = [stamp, *recordings]
        stamps[key] = entry
    keys = set(stamps) | {name for entry in stamps.values() for name in entry[1:]}
    style = site.asset("assets", "page.css") + site.asset("assets", "run.css")
    site.publish(out, "run.html", _index(run, previous, facts), program, style, keys)
    site.write(out / site.STAMPS, json.dumps(stamps))
    counts = Counter(task.outcome for task in run.tasks)
    return Summary(out / "index.html", len(run.tasks), {name: counts[name] for name in OUTCOMES if counts[name]})


def _stamp(run: Run, task: Task, summary: object) -> str:
    """Return a fingerprint of everything that the file of a task is built from."""
    files = [run.source.entries("tasks", task.id)]
    files += [run.source.entries("tasks", task.id, f"attempt-{attempt.number}") for attempt in task.attempts]
    return hashlib.sha256(json.dumps([summary, files]).encode()).hexdigest()


def clean_text(thing: object, limit: int = 2000) -> str:
    """Return the text without escape sequences, cut to `limit` characters."""
    full = ansi.clean(as_text(thing, limit + 1))
    return full if len(full) <= limit else f"{full[:limit]} …"


def _clean_texts(thing: object, most: int, limit: int = 2000) -> list[str]:
    return [clean_text(text, limit) for text in as_list(thing, most) if isinstance(text, str)]


# ---- what the run's own files say about a task ----


class _TaskFacts:
    """Looks up what baseline, plan and delivery say about each task."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.tests = {as_text(test.get("id"), 2000): test for test in run.tests()}
        self.groups = {test: group for group in run.groups() for test in _clean_texts(group.get("functions"), 100_000)}
        self.passes: dict[str, list[str]] = {}
        for test, task in run.ahead.fixed.items():
            self.passes.setdefault(as_text(task, 200), []).append(clean_text(test))
        self.fates: dict[str, dict[str, Any]] = {}
        for accepted in run.accepted():
            fate = {
                "commit": clean_text(accepted.get("commit"), 40),
                "why": clean_text(accepted.get("reason")),
                "proof": clean_text(accepted.get("proof")),
            }
            first, *rest = task_names(accepted)
            self.fates |= {name: {**fate, "as": clean_text(first, 255)} for name in rest}
            self.fates[first] = {**fate, "same": [clean_text(name, 255) for name in rest[:50]]}
        for name, left in as_dict(run.delivery.get("left_out")).items():
            why, output = as_dict(left).get("reason"), as_text(as_dict(left).get("output"), 4000)
            self.fates[name] = {"left": clean_text(why), "output": coloured_runs(output)}

    def of(self, task: Task) -> dict[str, Any]:
        test, group = self.tests.get(task.item), self.groups.get(task.item)
        return {
            "item": clean_text(task.item),
            "fields": {
                clean_text(key, 40): clean_text(field, 500)
                for key, field in list(task.fields.items())[:30]
                if key != "item"
            },
            "base": clean_text(task.base, 40),
            "test": _test(test) if test else None,
            "group": _group(group) if group else None,
            "passes": self.passes.get(task.id, [])[:200],
            "fate": self.fates.get(task.id),
            "verified": _verified(task.verified) if task.verified else None,
        }

    def block(self, task: Task) -> str:
        cited = as_list(self.tests.get(task.item, {}).get("blocks"), 1)
        return clean_text(as_dict(cited[0]).get("text")) if cited else ""


def _test(test: Object) -> dict[str, Any]:
    case = as_dict(test.get("case"))
    return {
        "file": clean_text(test.get("file")),
        "line": as_int(test.get("line")),
        "status": clean_text(test.get("status"), 40),
        "seconds": as_number(test.get("seconds")),
        "blocks": [
            text
            for block in as_list(test.get("blocks"), 20)
            if (text := clean_text(as_dict(block).get("text"), 20_000))
        ],
        "outcomes": [
            [clean_text(id, 500), _clean_texts(seen, 20, 40)]
            for id, seen in list(as_dict(test.get("outcomes")).items())[:50]
        ],
        "failure": coloured_runs(as_text(case.get("text"), 20_000)),
    }


def _group(group: Object) -> dict[str, Any]:
    tests = as_list(group.get("functions"), 100_000)
    return {"why": clean_text(group.get("why")), "tests": _clean_texts(tests, 50, 500), "count": len(tests)}


def _verified(verified: Verified) -> dict[str, Any]:
    return {
        "result": verified.result,
        "ok": verified.ok,
        "reason": clean_text(verified.reason),
        "unit": clean_text(verified.unit, 40),
        "files": [clean_text(path, 500) for path in (*verified.implementation[:200], *verified.other[:200])],
        "kept_out": [
            [
                clean_text(change.path, 500),
                change.line,
                clean_text(change.rule, 80),
                clean_text(change.reason),
                change.allowed,
            ]
            for change in verified.kept_out[:200]
        ],
        "evidence": [_evidence(test_run) for test_run in verified.evidence[:50]],
    }


def _evidence(test_run: Object) -> dict[str, Any]:
    """Return the outcome of one run of the tests, with the failures."""
    outcomes, texts = as_dict(test_run.get("outcomes")), as_dict(test_run.get("texts"))
    bad = [id for id, outcome in outcomes.items() if outcome not in ("passed", "skipped", "xfailed")]
    broken = list(as_dict(test_run.get("errors")).items())[:5]
    return {
        "t": as_number(test_run.get("t")),
        "seconds": as_number(test_run.get("seconds")),
        "late": bool(test_run.get("timed_out")),
        "tests": len(outcomes),
        "bad": [
            [clean_text(id, 500), clean_text(outcomes[id], 40), coloured_runs(as_text(texts.get(id), 4000))]
            for id in bad[:20]
        ]
        + [[clean_text(file, 500), "cannot be collected", coloured_runs(as_text(text, 4000))] for file, text in broken],
    }


# ---- the file of one task ----


def _part(run: Run, task: Task, key: str, summary: dict[str, Any]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Return the content of a task's file, newest attempt first, and its recordings by the keys of their files."""
    recordings: dict[str, dict[str, Any]] = {}
    attempts = []
    for attempt in reversed(task.attempts):
        shown, cast = _attempt(run.source, task, attempt)
        if cast:
            shown["recording"]["part"] = f"{key}-{attempt.number}"
            recordings[f"{key}-{attempt.number}"] = cast
        attempts.append(shown)
    return {**summary, "attempts": attempts}, recordings


def _attempt(source: UntrustedFolder, task: Task, attempt: Attempt) -> tuple[dict[str, Any], dict[str, Any] | None]:
    place = ("tasks", task.id, f"attempt-{attempt.number}")
    agent, ended = attempt.agent, attempt.outcome or Outcome()
    began = as_number(agent.began)
    state = as_dict(source.json(*place, "status.json"))
    shown: dict[str, Any] = {
        "n": attempt.number,
        "agent": clean_text(agent.address or agent.name, 300),
        "began": began,
        "outcome": ended.outcome or "running",
        "reason": clean_text(ended.reason, 8000),
        "seconds": as_number(ended.seconds),
        "tokens": as_number(ended.tokens),
        "cost": as_number(ended.cost_usd),
        "branch": clean_text(ended.branch, 300),
        "tip": clean_text(ended.tip, 40),
        "commits": ended.commits if attempt.outcome else None,
        "uncommitted": clean_text(ended.uncommitted, 300),
        "errors": [clean_text(error) for error in ended.harvest_errors[:50]],
        "claimed": _claimed(ended.claimed) if ended.claimed else None,
        "result": "" if ended.claimed else clean_text(source.text(*place, "result.json", limit=4000), 4000),
        "why": clean_text(state.get("why")),
        "last": clean_text(state.get("last_line")),
        "models": _models(source.json(*place, "usage.json")),
        "prompt": _file(source, MAX_TEXT, *place, "prompt.txt"),
        "diff": _file(source, MAX_DIFF, *place, "diff.patch"),
        "path": "/".join(clean_text(name) for name in (*place, "transcript.jsonl")),
        **_transcript(source, place, began, len(task.attempts)),
    }
    cast = sanitize.recording(source, *place, "recording.cast")
    if cast is None:
        return shown, None
    started = _started(source, place, cast["started"])
    begin = None if started is None or began is None else round(started - began, 3)
    shown["recording"] = {"name": f"attempt {attempt.number}", "begin": begin, "length": cast["length"]}
    return shown, cast


def _claimed(claimed: Result) -> dict[str, Any]:
    return {
        "outcome": truncated(claimed.outcome),
        "summary": truncated(claimed.summary),
        "reason": truncated(claimed.reason),
        "escalate": [clean_text(text, 5000) for text in claimed.escalate[:20]],
        "artifacts": [clean_text(name, 500) for name in claimed.artifacts[:100]],
    }


def _models(usage: object) -> list[list[Any]]:
    """Return each model with its numbers of tokens: input, cache read, cache write, output."""
    used = [(name, as_dict(tokens)) for name, tokens in as_dict(as_dict(usage).get("models")).items()]
    kinds = ("input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens")
    return [[clean_text(name, 100), *(as_int(tokens.get(kind)) or 0 for kind in kinds)] for name, tokens in used[:20]]


def _file(source: UntrustedFolder, limit: int, *names: str) -> dict[str, Any] | None:
    """Return the text of a file as `x`, and as `cut` the number of bytes that are not shown."""
    text = source.text(*names, limit=limit)
    if text is None:
        return None
    lines = (
        line if len(line) <= MAX_LINE else f"{line[:MAX_LINE]} … {len(line) - MAX_LINE} more characters"
        for line in text.split("\n")
    )
    shown = "\n".join(lines)
    if ansi.NEEDS_CLEANING.search(shown):  # line by line, so that an unfinished escape sequence cannot hide later lines
        shown = "\n".join(ansi.clean(line) for line in shown.split("\n"))
    return {"x": shown, "cut": max(0, source.size(*names) - limit)}


def _started(source: UntrustedFolder, place: tuple[str, ...], stamp: float | None) -> float | None:
    """Return when the recording began. The `started` event is more precise than the recording's whole seconds."""
    for line in source.lines(*place, "events.jsonl", longest=1 << 20, most=1 << 20):
        event = as_dict(parse_json(line))
        t = as_number(event.get("t"))
        if event.get("kind") == "started" and t is not None and stamp is not None and 0 <= t - stamp < 1:
            return t
    return stamp


def _transcript(source: UntrustedFolder, place: tuple[str, ...], began: float | None, share: int) -> dict[str, Any]:
    ends, broken = HeadAndTail(HEAD // share, TAIL // share), 0
    for entry in source.values(*place, "transcript.jsonl", longest=MAX_TRANSCRIPT, most=MAX_TRANSCRIPT):
        if not isinstance(entry, dict) or not isinstance(entry.get("role"), str):
            broken += 1
            continue
        row = _transcript_row(entry, began)
        ends.add(row, sum(len(text) for text in row.values() if isinstance(text, str)) + len(str(row.get("r", ""))))
    rows, cut = ends.rows()
    if (unread := source.size(*place, "transcript.jsonl") - MAX_TRANSCRIPT) > 0:
        cut = cut or {"rows": 0, "chars": 0, "at": len(rows)}
        cut["chars"] += unread
    return {"rows": rows, "cut": cut, "broken": broken}


def _transcript_row(entry: Object, began: float | None) -> dict[str, Any]:
    t, role, tool = as_number(entry.get("t")), entry.get("role"), as_dict(entry.get("tool"))
    row: dict[str, Any] = {
        "k": role if role in ROLES else "other",
        "t": None if t is None or began is None else round(t - began, 3),
        "x": truncated(entry.get("text")),
    }
    if row["k"] == "tool" and tool:
        tool_input = tool.get("input")
        command = tool_input.get("command") if isinstance(tool_input, dict) else tool_input
        row["n"] = clean_text(tool.get("name"), 200)
        row["x"] = truncated(command) if isinstance(command, str) else row["x"].removeprefix(f"{row['n']}: ")
        if output := as_text(tool.get("output"), MAX_TEXT):
            row["r"] = coloured_runs(output)
        if code := as_int(tool.get("exit_code")):
            row["c"] = code
    return row


# ---- the index ----


def _index(run: Run, previous: Run | None, facts: _TaskFacts) -> dict[str, Any]:
    events = [as_dict(parse_json(line)) for line in run.source.lines("events.jsonl", longest=1 << 20)]
    times = [t for event in events if (t := as_number(event.get("t"))) is not None]
    most = max(40, min(400, 80_000 // max(1, len(run.tasks))))
    old = funnel(previous) if previous else {}
    return {
        "run": {
            "name": clean_text(run.name, 100),
            "kind": "improve" if run.improves else "map",
            "created": as_number(run.info.created),
            "ended": as_number(run.finished.t) if run.finished else None,
            "live": run.finished is None,
            "last": max(times, default=None),
            "repo": clean_text(run.info.repo, 400),
            "base": clean_text(run.info.base, 40),
            "type": clean_text(run.info.type, 100),
        },
        "before": clean_text(previous.name, 100) if previous else None,
        "funnel": [[name, count, old.get(name)] for name, count in funnel(run).items()],
        "curve": busy_curve(events),
        "checks": [
            [t, event.get("outcome") != "refused"]
            for event in events
            if event.get("kind") == "verified" and (t := as_number(event.get("t"))) is not None
        ][:400],
        "notices": [
            [as_number(event.get("t")), clean_text(event.get("kind"), 40), clean_text(event.get("reason"), 500)]
            for event in events
            if event.get("kind") in NOTICES
        ][-50:],
        "groups": _groups(run),
        "skipped": _skipped(run),
        "escalations": _escalations(run),
        "branch": _branch(run, most) if run.delivery else None,
        "tasks": [_row(task, f"{count:04}", facts, most) for count, task in enumerate(run.tasks, 1)],
    }


def _row(task: Task, key: str, facts: _TaskFacts, most: int) -> dict[str, Any]:
    """Return the entry of a task in the index, with only the fields that the list and the search need."""
    file, _, name = task.item.partition("::")
    test = bool(name) and task.is_work
    fate = facts.fates.get(task.id, {})
    row: dict[str, Any] = {
        "id": clean_text(task.id, 255),
        "p": key,
        "n": clean_text(name if test else task.item, max(160, most)) or clean_text(task.id, 255),
        "f": clean_text(file, 200) if test else "",
        "o": task.outcome,
        "v": task.result,
        "r": clean_text(task.fields.get("role"), 40),
        "s": clean_text(task.fields.get("status"), 40),
        "m": clean_text(task.ended.summary[:4000].partition("\n")[0], most),
        "w": clean_text((task.verified.reason if task.verified else "") or task.ended.reason, most),
        "b": facts.block(task)[:most],
        "i": "left" if "left" in fate else "in" if fate else "",
        "a": len(task.attempts),
        "c": task.total("cost_usd"),
        "k": task.total("tokens"),
        "d": task.total("seconds"),
    }
    return {name: field for name, field in row.items() if field not in ("", None)}


def _groups(run: Run) -> list[dict[str, Any]]:
    """Return the groups of similar failures, each with its scout task and the number of tests that the scout's fix made pass."""
    scouts = {task.item: task.id for task in run.tasks if task.fields.get("role") == "scout"}
    fixed = run.ahead.fixed
    shown = []
    for group in run.groups()[:200]:
        tests = [test for test in as_list(group.get("functions"), 100_000) if isinstance(test, str)]
        scout = next((scouts[test] for test in tests if test in scouts), "")
        shown.append({**_group(group), "scout": clean_text(scout, 255), "fixed": sum(test in fixed for test in tests)})
    return shown


def _skipped(run: Run) -> list[dict[str, Any]]:
    """Return the tests that got no agent, grouped by reason."""
    reasons: dict[str, list[str]] = {}
    for test, why in run.plan.skipped.items():
        reasons.setdefault(clean_text(why, 500), []).append(clean_text(test, 300))
    return [{"why": why, "tests": tests[:200], "count": len(tests)} for why, tests in list(reasons.items())[:50]]


def _escalations(run: Run) -> list[dict[str, Any]]:
    """Return the agents' escalations with the tasks that raised them, the most frequent first."""
    by: dict[str, list[str]] = {}
    for task in run.tasks:
        for attempt in task.attempts:
            claimed = attempt.outcome.claimed if attempt.outcome else None
            for text in [clean_text(escalation, 400) for escalation in claimed.escalate[:20]] if claimed else ():
                if task.id not in by.setdefault(text, []):
                    by[text].append(task.id)
    return [
        {"x": text, "by": [clean_text(id, 255) for id in tasks[:50]]}
        for text, tasks in sorted(by.items(), key=lambda item: -len(item[1]))[:200]
    ]


def _branch(run: Run, most: int) -> dict[str, Any]:
    """Return the delivered commits in order, each with its tasks, the reasons, and tasks that made the same change.

    The first commit has all changes other than implementations. Each implementation follows as a commit, most important
    first.
    """
    delivery = run.delivery
    commits: dict[str, list[list[Any]]] = {}
    first: list[str] = []
    changed = {task.id: bool(task.verified.implementation) for task in run.tasks if task.verified}
    for accepted in run.accepted():
        name, *same = task_names(accepted)
        commit = clean_text(accepted.get("commit"), 40)
        unit = [
            clean_text(name, 255),
            clean_text(accepted.get("reason"), most),
            [clean_text(twin, 255) for twin in same[:50]],
        ]
        commits.setdefault(commit, []).append(unit)
        if commit and changed.get(name) is False:
            first.append(commit)
    order = sorted(commits, key=lambda commit: commit not in first)
    left = as_dict(delivery.get("left_out"))
    return {
        "name": clean_text(delivery.get("branch"), 200),
        "commit": clean_text(delivery.get("commit"), 40),
        "why": clean_text(delivery.get("why")),
        "proof": clean_text(delivery.get("proof"), 500),
        "commits": [[commit, commits[commit], commit in first] for commit in order],
        "left": [
            [clean_text(name, 255), clean_text(as_dict(why).get("reason"), 2 * most)] for name, why in left.items()
        ],
    }
