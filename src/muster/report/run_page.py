"""Makes the page of a run of `map` or `improve`: an index with the list, and a part per task that is loaded when somebody looks at it.

A pure function of the run's directory, which can be called at any time, also while the run goes on: a part is made again only when
its files have changed. All that agents wrote goes into the page as JSON, never as HTML, and nothing in the directory can make it fail.
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
from . import ansi, pieces, site
from .folder import Folder, items, number, table, value, whole, words
from .page import HEAD, READ, TAIL, Made
from .pieces import TEXT, Ends, coloured, short
from .run_folder import MOST, OUTCOMES, Attempt, Object, Run, Task, curve, funnel, is_run, names_of, read

ROLES = ("user", "assistant", "tool", "error", "queued")
#: Of a diff, in bytes, and of one line of it.
DIFF, LINE = 400_000, 2000
#: What people should hear of.
NOTICES = ("alert", "stopping", "draining", "paused", "resumed", "question")


def make(run_folder: Path, out: Path | None = None, before: Path | None = None) -> Made:
    """Make the page in `out`, by default `report` in the run's directory; `before` is the run that it is compared with.

    Raises NotFound when it is no directory of a run, and Refused when `out` holds something that is not a page of ours.
    """
    run = read(run_folder)
    former = read(before) if before is not None and is_run(before) else None
    inside = out is None
    out = run_folder / "report" if out is None else out
    known = table(Folder(out).json(site.STAMPS, limit=MOST))
    site.claim(out, inside)
    program = site.asset("assets", "tools.js") + site.asset("assets", "run.js")
    version = hashlib.sha256(program.encode()).hexdigest()
    facts = _Facts(run)
    stamps: dict[str, list[str]] = {}
    with os.scandir(out / "parts") as entries:
        there = {entry.name.removesuffix(".js") for entry in entries if entry.is_file()}
    for count, task in enumerate(run.tasks, 1):
        key = f"{count:04}"
        told = facts.of(task)
        stamp = _stamp(run, task, [version, task.id, told])
        made = [words(one, 100) for one in items(known.get(key), 1000)]
        if made[:1] != [stamp] or not there.issuperset((key, *made[1:])):
            part, recordings = _part(run, task, key, told)
            for name, recording in recordings.items():
                site.part(out, "recording", name, recording)
            site.part(out, "part", key, part)
            made = [stamp, *recordings]
        stamps[key] = made
    keys = set(stamps) | {name for made in stamps.values() for name in made[1:]}
    style = site.asset("assets", "page.css") + site.asset("assets", "run.css")
    site.publish(out, "run.html", _index(run, former, facts), program, style, keys)
    site.write(out / site.STAMPS, json.dumps(stamps))
    counts = Counter(task.outcome for task in run.tasks)
    return Made(out / "index.html", len(run.tasks), {name: counts[name] for name in OUTCOMES if counts[name]})


def _stamp(run: Run, task: Task, told: object) -> str:
    """The same as long as the part would be."""
    files = [run.source.entries("tasks", task.id)]
    files += [run.source.entries("tasks", task.id, f"attempt-{attempt.number}") for attempt in task.attempts]
    return hashlib.sha256(json.dumps([told, files]).encode()).hexdigest()


def said(thing: object, limit: int = 2000) -> str:
    """Text without escape sequences."""
    full = ansi.clean(words(thing, limit + 1))
    return full if len(full) <= limit else f"{full[:limit]} …"


def _texts(thing: object, most: int, limit: int = 2000) -> list[str]:
    return [said(one, limit) for one in items(thing, most) if isinstance(one, str)]


# ---- what the files of the run say of one task ----


class _Facts:
    """Looked up once for all tasks."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.tests = {words(one.get("id"), 2000): one for one in run.tests()}
        self.groups = {test: group for group in run.groups() for test in _texts(group.get("functions"), 100_000)}
        self.passes: dict[str, list[str]] = {}
        for test, task in run.ahead.fixed.items():
            self.passes.setdefault(words(task, 200), []).append(said(test))
        self.fates: dict[str, dict[str, Any]] = {}
        for one in run.accepted():
            fate = {
                "commit": said(one.get("commit"), 40),
                "why": said(one.get("reason")),
                "proof": said(one.get("proof")),
            }
            first, *rest = names_of(one)
            self.fates |= {name: {**fate, "as": said(first, 255)} for name in rest}
            self.fates[first] = {**fate, "same": [said(name, 255) for name in rest[:50]]}
        for name, left in table(run.delivery.get("left_out")).items():
            why, output = table(left).get("reason"), words(table(left).get("output"), 4000)
            self.fates[name] = {"left": said(why), "output": coloured(output)}

    def of(self, task: Task) -> dict[str, Any]:
        test, group = self.tests.get(task.item), self.groups.get(task.item)
        return {
            "item": said(task.item),
            "fields": {said(key, 40): said(told, 500) for key, told in list(task.fields.items())[:30] if key != "item"},
            "base": said(task.base, 40),
            "test": _test(test) if test else None,
            "group": _group(group) if group else None,
            "passes": self.passes.get(task.id, [])[:200],
            "fate": self.fates.get(task.id),
            "verified": _verified(task.verified) if task.verified else None,
        }

    def block(self, task: Task) -> str:
        cited = items(self.tests.get(task.item, {}).get("blocks"), 1)
        return said(table(cited[0]).get("text")) if cited else ""


def _test(one: Object) -> dict[str, Any]:
    case = table(one.get("case"))
    return {
        "file": said(one.get("file")),
        "line": whole(one.get("line")),
        "status": said(one.get("status"), 40),
        "seconds": number(one.get("seconds")),
        "blocks": [text for block in items(one.get("blocks"), 20) if (text := said(table(block).get("text"), 20_000))],
        "outcomes": [
            [said(id, 500), _texts(seen, 20, 40)] for id, seen in list(table(one.get("outcomes")).items())[:50]
        ],
        "failure": coloured(words(case.get("text"), 20_000)),
    }


def _group(one: Object) -> dict[str, Any]:
    tests = items(one.get("functions"), 100_000)
    return {"why": said(one.get("why")), "tests": _texts(tests, 50, 500), "count": len(tests)}


def _verified(verified: Verified) -> dict[str, Any]:
    return {
        "result": verified.result,
        "ok": verified.ok,
        "words": said(verified.reason),
        "unit": said(verified.unit, 40),
        "files": [said(path, 500) for path in (*verified.implementation[:200], *verified.other[:200])],
        "kept_out": [
            [said(one.path, 500), one.line, said(one.rule, 80), said(one.reason), one.allowed]
            for one in verified.kept_out[:200]
        ],
        "evidence": [_evidence(one) for one in verified.evidence[:50]],
    }


def _evidence(one: Object) -> dict[str, Any]:
    """One time that the tests ran."""
    outcomes, texts = table(one.get("outcomes")), table(one.get("texts"))
    bad = [id for id, outcome in outcomes.items() if outcome not in ("passed", "skipped", "xfailed")]
    broken = list(table(one.get("errors")).items())[:5]
    return {
        "t": number(one.get("t")),
        "seconds": number(one.get("seconds")),
        "late": bool(one.get("late")),
        "tests": len(outcomes),
        "bad": [[said(id, 500), said(outcomes[id], 40), coloured(words(texts.get(id), 4000))] for id in bad[:20]]
        + [[said(file, 500), "cannot be collected", coloured(words(text, 4000))] for file, text in broken],
    }


# ---- the part of a task ----


def _part(run: Run, task: Task, key: str, told: dict[str, Any]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """The part, and the recordings that it names by their own parts; the newest attempt first."""
    recordings: dict[str, dict[str, Any]] = {}
    attempts = []
    for attempt in reversed(task.attempts):
        shown, cast = _attempt(run.source, task, attempt)
        if cast:
            shown["recording"]["part"] = f"{key}-{attempt.number}"
            recordings[f"{key}-{attempt.number}"] = cast
        attempts.append(shown)
    return {**told, "attempts": attempts}, recordings


def _attempt(source: Folder, task: Task, attempt: Attempt) -> tuple[dict[str, Any], dict[str, Any] | None]:
    place = ("tasks", task.id, f"attempt-{attempt.number}")
    agent, ended = attempt.agent, attempt.outcome or Outcome()
    begun = number(agent.began)
    state = table(source.json(*place, "status.json"))
    shown: dict[str, Any] = {
        "n": attempt.number,
        "agent": said(agent.address or agent.name, 300),
        "begun": begun,
        "outcome": ended.outcome or "running",
        "reason": said(ended.reason, 8000),
        "seconds": number(ended.seconds),
        "tokens": number(ended.tokens),
        "cost": number(ended.cost_usd),
        "branch": said(ended.branch, 300),
        "tip": said(ended.tip, 40),
        "commits": ended.commits if attempt.outcome else None,
        "uncommitted": said(ended.uncommitted, 300),
        "errors": [said(error) for error in ended.harvest_errors[:50]],
        "claimed": _claimed(ended.claimed) if ended.claimed else None,
        "result": "" if ended.claimed else said(source.text(*place, "result.json", limit=4000), 4000),
        "why": said(state.get("why")),
        "last": said(state.get("last_line")),
        "models": _models(source.json(*place, "usage.json")),
        "prompt": _file(source, TEXT, *place, "prompt.txt"),
        "diff": _file(source, DIFF, *place, "diff.patch"),
        "path": "/".join(said(name) for name in (*place, "transcript.jsonl")),
        **_transcript(source, place, begun, len(task.attempts)),
    }
    cast = pieces.cast(source, *place, "recording.cast")
    if cast is None:
        return shown, None
    started = _started(source, place, cast["started"])
    begin = None if started is None or begun is None else round(started - begun, 3)
    shown["recording"] = {"name": f"attempt {attempt.number}", "begin": begin, "length": cast["length"]}
    return shown, cast


def _claimed(claimed: Result) -> dict[str, Any]:
    return {
        "outcome": short(claimed.outcome),
        "summary": short(claimed.summary),
        "reason": short(claimed.reason),
        "escalate": [said(text, 5000) for text in claimed.escalate[:20]],
        "artifacts": [said(name, 500) for name in claimed.artifacts[:100]],
    }


def _models(usage: object) -> list[list[Any]]:
    """Each model with its tokens, in and out."""
    used = [(name, table(tokens)) for name, tokens in table(table(usage).get("models")).items()]
    kinds = ("input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens")
    return [[said(name, 100), *(whole(tokens.get(kind)) or 0 for kind in kinds)] for name, tokens in used[:20]]


def _file(source: Folder, limit: int, *names: str) -> dict[str, Any] | None:
    """A file's text, and how many bytes of it are not shown."""
    text = source.text(*names, limit=limit)
    if text is None:
        return None
    lines = (
        line if len(line) <= LINE else f"{line[:LINE]} … {len(line) - LINE} more characters"
        for line in text.split("\n")
    )
    shown = "\n".join(lines)
    if ansi.ODD.search(shown):  # an escape sequence ends with its line
        shown = "\n".join(ansi.clean(line) for line in shown.split("\n"))
    return {"x": shown, "cut": max(0, source.size(*names) - limit)}


def _started(source: Folder, place: tuple[str, ...], stamp: float | None) -> float | None:
    """When the recording began: its own stamp has whole seconds only, the event of the launch has more."""
    for line in source.lines(*place, "events.jsonl", longest=1 << 20, most=1 << 20):
        event = table(value(line))
        t = number(event.get("t"))
        if event.get("kind") == "started" and t is not None and stamp is not None and 0 <= t - stamp < 1:
            return t
    return stamp


def _transcript(source: Folder, place: tuple[str, ...], begun: float | None, share: int) -> dict[str, Any]:
    ends, broken = Ends(HEAD // share, TAIL // share), 0
    for entry in source.values(*place, "transcript.jsonl", longest=READ, most=READ):
        if not isinstance(entry, dict) or not isinstance(entry.get("role"), str):
            broken += 1
            continue
        row = _row_of(entry, begun)
        ends.add(row, sum(len(text) for text in row.values() if isinstance(text, str)) + len(str(row.get("r", ""))))
    rows, cut = ends.rows()
    if (unread := source.size(*place, "transcript.jsonl") - READ) > 0:
        cut = cut or {"rows": 0, "chars": 0, "at": len(rows)}
        cut["chars"] += unread
    return {"rows": rows, "cut": cut, "broken": broken}


def _row_of(entry: Object, begun: float | None) -> dict[str, Any]:
    t, role, tool = number(entry.get("t")), entry.get("role"), table(entry.get("tool"))
    row: dict[str, Any] = {
        "k": role if role in ROLES else "other",
        "t": None if t is None or begun is None else round(t - begun, 3),
        "x": short(entry.get("text")),
    }
    if row["k"] == "tool" and tool:
        given = tool.get("input")
        command = given.get("command") if isinstance(given, dict) else given
        row["n"] = said(tool.get("name"), 200)
        row["x"] = short(command) if isinstance(command, str) else row["x"].removeprefix(f"{row['n']}: ")
        if output := words(tool.get("output"), TEXT):
            row["r"] = coloured(output)
        if code := whole(tool.get("exit_code")):
            row["c"] = code
    return row


# ---- the index ----


def _index(run: Run, former: Run | None, facts: _Facts) -> dict[str, Any]:
    events = [table(value(line)) for line in run.source.lines("events.jsonl", longest=1 << 20)]
    times = [t for event in events if (t := number(event.get("t"))) is not None]
    most = max(40, min(400, 80_000 // max(1, len(run.tasks))))
    old = funnel(former) if former else {}
    return {
        "run": {
            "name": said(run.name, 100),
            "kind": "improve" if run.improves else "map",
            "created": number(run.info.created),
            "ended": number(run.finished.t) if run.finished else None,
            "live": run.finished is None,
            "last": max(times, default=None),
            "repo": said(run.info.repo, 400),
            "base": said(run.info.base, 40),
            "type": said(run.info.type, 100),
        },
        "before": said(former.name, 100) if former else None,
        "funnel": [[name, count, old.get(name)] for name, count in funnel(run).items()],
        "curve": curve(events),
        "checks": [
            [t, event.get("outcome") != "refused"]
            for event in events
            if event.get("kind") == "verified" and (t := number(event.get("t"))) is not None
        ][:400],
        "notices": [
            [number(event.get("t")), said(event.get("kind"), 40), said(event.get("reason"), 500)]
            for event in events
            if event.get("kind") in NOTICES
        ][-50:],
        "groups": _groups(run),
        "skipped": _skipped(run),
        "escalations": _escalations(run),
        "branch": _branch(run, most) if run.delivery else None,
        "tasks": [_row(task, f"{count:04}", facts, most) for count, task in enumerate(run.tasks, 1)],
    }


def _row(task: Task, key: str, facts: _Facts, most: int) -> dict[str, Any]:
    """A task in the index: only what the list and the search need."""
    file, _, name = task.item.partition("::")
    test = bool(name) and task.works
    fate = facts.fates.get(task.id, {})
    row: dict[str, Any] = {
        "id": said(task.id, 255),
        "p": key,
        "n": said(name if test else task.item, max(160, most)) or said(task.id, 255),
        "f": said(file, 200) if test else "",
        "o": task.outcome,
        "v": task.result,
        "r": said(task.fields.get("role"), 40),
        "s": said(task.fields.get("status"), 40),
        "m": said(task.ended.summary[:4000].partition("\n")[0], most),
        "w": said((task.verified.reason if task.verified else "") or task.ended.reason, most),
        "b": facts.block(task)[:most],
        "i": "left" if "left" in fate else "in" if fate else "",
        "a": len(task.attempts),
        "c": task.total("cost_usd"),
        "k": task.total("tokens"),
        "d": task.total("seconds"),
    }
    return {name: told for name, told in row.items() if told not in ("", None)}


def _groups(run: Run) -> list[dict[str, Any]]:
    """The failures that are alike, with who was sent to find their cause and how many tests pass by that."""
    scouts = {task.item: task.id for task in run.tasks if task.fields.get("role") == "scout"}
    fixed = run.ahead.fixed
    shown = []
    for group in run.groups()[:200]:
        tests = [test for test in items(group.get("functions"), 100_000) if isinstance(test, str)]
        scout = next((scouts[test] for test in tests if test in scouts), "")
        shown.append({**_group(group), "scout": said(scout, 255), "fixed": sum(test in fixed for test in tests)})
    return shown


def _skipped(run: Run) -> list[dict[str, Any]]:
    """The tests that got no agent, by the reason."""
    reasons: dict[str, list[str]] = {}
    for test, why in run.plan.skipped.items():
        reasons.setdefault(said(why, 500), []).append(said(test, 300))
    return [{"why": why, "tests": tests[:200], "count": len(tests)} for why, tests in list(reasons.items())[:50]]


def _escalations(run: Run) -> list[dict[str, Any]]:
    """What agents want somebody to know, with who said it; what most of them say first."""
    by: dict[str, list[str]] = {}
    for task in run.tasks:
        for attempt in task.attempts:
            claimed = attempt.outcome.claimed if attempt.outcome else None
            for text in [said(one, 400) for one in claimed.escalate[:20]] if claimed else ():
                if task.id not in by.setdefault(text, []):
                    by[text].append(task.id)
    return [
        {"x": text, "by": [said(id, 255) for id in tasks[:50]]}
        for text, tasks in sorted(by.items(), key=lambda one: -len(one[1]))[:200]
    ]


def _branch(run: Run, most: int) -> dict[str, Any]:
    """What was delivered: its commits in their order, each with the tasks whose change it has, the reasons and the tasks that did the same.

    All that is no implementation is in the first commit; then comes one for each implementation, the most important first.
    """
    told = run.delivery
    commits: dict[str, list[list[Any]]] = {}
    first: list[str] = []
    changed = {task.id: bool(task.verified.implementation) for task in run.tasks if task.verified}
    for one in run.accepted():
        name, *same = names_of(one)
        commit = said(one.get("commit"), 40)
        unit = [said(name, 255), said(one.get("reason"), most), [said(twin, 255) for twin in same[:50]]]
        commits.setdefault(commit, []).append(unit)
        if commit and changed.get(name) is False:
            first.append(commit)
    order = sorted(commits, key=lambda commit: commit not in first)
    left = table(told.get("left_out"))
    return {
        "name": said(told.get("branch"), 200),
        "commit": said(told.get("commit"), 40),
        "why": said(told.get("why")),
        "proof": said(told.get("proof"), 500),
        "commits": [[commit, commits[commit], commit in first] for commit in order],
        "left": [[said(name, 255), said(table(why).get("reason"), 2 * most)] for name, why in left.items()],
    }
