"""Makes the page: an index with the list, and a part per test and per recording that is loaded when somebody looks at it.

A pure function of the artifact folder (and of whether the player is installed): the same input gives the same bytes. All that
a program under test wrote goes into the page as JSON, never as HTML. Nothing in the folder can make it fail: what is broken
is shown as broken.
"""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import MusterError, NotFound
from ..tutorial.blocks import normalize
from . import ansi, outline, pieces, site
from .folder import Folder, items, number, usable, value, whole, words
from .pieces import TEXT, WEIGHT, Ends, coloured, short, styled

VERSION = 1
OUTCOMES = ("failed", "error", "broken", "running", "xpassed", "passed", "skipped", "xfailed")

#: How much of a test is shown: from its beginning and from its end, counted in characters.
HEAD, TAIL = 1_500_000, 500_000
#: How much of a transcript, and of one event in it, is read at all.
READ, EVENT = 1 << 26, 1 << 20
#: Lines of output that belong together within this many seconds are one row.
TOGETHER = 0.5


class Test(NamedTuple):
    """What test.json says, made sound; `place` is the name of its folder, `id` the same as text."""

    place: str
    id: str
    name: str
    file: str
    line: int | None
    outcome: str
    started: float | None
    duration: float | None
    blocks: list[str]
    message: str
    leaks: list[str]
    recordings: list[str]
    kept: str

    def order(self) -> tuple[str, int, str, str]:
        return self.file, self.line or 0, self.name, self.id


class Made(NamedTuple):
    """What `build` made."""

    path: Path
    tests: int
    outcomes: dict[str, int]


def build(folder: Path, out: Path | None = None) -> Path:
    """Make the page of the artifact folder in `out`, by default its `report`; returns the path of index.html.

    Raises NotFound when there is no artifact folder, MusterError when it is of a newer version, and Refused when `out` holds
    something that is not a page of ours.
    """
    return make(folder, out).path


def make(folder: Path, out: Path | None = None) -> Made:
    """As `build`, with counts."""
    _examine(folder)
    inside = out is None
    out = folder / "report" if out is None else out
    site.claim(out, inside)
    source = Folder(folder)
    tests = sorted((_test(source, name) for name in source.names("tests")), key=Test.order)
    texts = source.text("tutorial.sh", limit=1 << 20)
    tutorial = outline.read(texts or "", [block for test in tests for block in test.blocks])
    run = _run(source.json("run.json"))
    rows = []
    keys = set()
    for number_, test in enumerate(tests, 1):
        key = f"{number_:04}"
        part, recordings, commands = _part(source, test, key, tutorial)
        for name, recording in recordings.items():
            site.part(out, "recording", name, recording)
        site.part(out, "part", key, part)
        keys |= {key, *recordings}
        rows.append(_row(test, key, part, commands, run, tutorial))
    program = site.asset("assets", "tools.js") + site.asset("assets", "page.js")
    site.publish(out, "index.html", _index(run, rows, tutorial), program, site.asset("assets", "page.css"), keys)
    counts = Counter(test.outcome for test in tests)
    return Made(out / "index.html", len(tests), {name: counts[name] for name in OUTCOMES if counts[name]})


def _examine(folder: Path) -> None:
    hint = f"pytest --e2e-artifacts {shlex.quote(str(folder))} makes one"
    if not folder.is_dir():
        raise NotFound(f"there is no folder {folder}", hint)
    said = Folder(folder).json("format.json")
    if not isinstance(said, dict) or said.get("format") != "muster-e2e":
        raise NotFound(f"{folder} is not the artifact folder of a test run", hint)
    version = said.get("version")
    if not isinstance(version, int) or version > VERSION:
        raise MusterError(
            f"{folder} was written by a newer muster (version {words(str(version), 20)})", "update muster"
        )


# ---- what the folder says ----


def _run(said: object) -> dict[str, Any]:
    said = said if isinstance(said, dict) else {}
    return {
        "started": number(said.get("started")),
        "ended": number(said.get("ended")),
        "args": [words(word, 200) for word in items(said.get("args"), 40)],
        "tutorial": words(said.get("tutorial"), 400),
        "exit": whole(said.get("exit_code")),
    }


def _test(source: Folder, name: str) -> Test:
    said = source.json("tests", name, "test.json")
    shown = words(name, 255)
    if not isinstance(said, dict):
        what = "is no JSON object" if source.text("tests", name, "test.json", limit=1) is not None else "cannot be read"
        return Test(name, shown, shown, "", None, "broken", None, None, [], f"test.json {what}", [], [], "")
    outcome = said.get("outcome")
    message = words(said.get("message"), 200_000)
    if outcome not in OUTCOMES[:2] + OUTCOMES[3:]:
        told = f"test.json has no outcome that is known: {words(json.dumps(outcome), 80)}"
        outcome, message = "broken", f"{told}\n{message}".rstrip()
    nodeid = words(said.get("nodeid"), 1000, shown)
    file, _, rest = nodeid.partition("::")
    duration = number(said.get("duration"))
    return Test(
        place=name,
        id=shown,
        name=ansi.clean(words(said.get("name"), 1000, rest or nodeid)) or shown,
        file=ansi.clean(words(said.get("file"), 1000, file if rest else "")),
        line=whole(said.get("line")),
        outcome=str(outcome),
        started=number(said.get("started")),
        duration=None if duration is None else max(duration, 0.0),
        blocks=[text for item in items(said.get("blocks"), 100) if (text := normalize(words(item, 20_000)))],
        message=message,
        leaks=[words(item, 2000) for item in items(said.get("leaks"), 200) if isinstance(item, str)],
        recordings=[words(item, 255) for item in items(said.get("recordings"), 200) if isinstance(item, str)],
        kept=words(said.get("kept_folder"), 1000),
    )


def _row(
    test: Test, key: str, part: dict[str, Any], commands: str, run: dict[str, Any], tutorial: outline.Outline
) -> dict[str, Any]:
    """A test in the index: only what the list and the search need."""
    row: dict[str, Any] = {"id": test.id, "p": key, "n": test.name[:300], "f": test.file[:200], "o": test.outcome}
    if test.line is not None:
        row["l"] = test.line
    if test.duration is not None:
        row["d"] = round(test.duration, 3)
    if test.blocks:
        row["b"] = list(dict.fromkeys(tutorial.places[text] for text in test.blocks))
    if commands:
        row["c"] = commands
    if part["recordings"]:
        row["r"] = len(part["recordings"])
    if test.started is not None and run["started"] is not None and test.started < run["started"] - 1:
        row["e"] = 1
    return row


def _index(run: dict[str, Any], rows: list[dict[str, Any]], tutorial: outline.Outline) -> dict[str, Any]:
    most = max(40, min(600, 300_000 // max(1, len(rows))))
    for row in rows:
        if "c" in row:
            row["c"] = row["c"][:most]
    longest = max(80, min(8000, 300_000 // max(1, len(tutorial.blocks))))
    blocks = [
        {
            "s": block.section,
            "x": block.text[:longest] + (" …" if len(block.text) > longest else ""),
            "l": block.line,
            **({"k": block.kind} if block.kind else {}),
        }
        for block in tutorial.blocks
    ]
    return {
        "run": run,
        "sections": [title[:200] for title in tutorial.sections],
        "blocks": blocks,
        "tests": rows,
    }


# ---- the part of a test ----


def _part(
    source: Folder, test: Test, key: str, tutorial: outline.Outline
) -> tuple[dict[str, Any], dict[str, dict[str, Any]], str]:
    """The part, the recordings that it names by their own parts, and the commands for the search."""
    place = test.place
    reader = _Reader()
    for row in _events(source, place):
        reader.take(row)
    rows, cut = reader.rows()
    if (unread := source.size("tests", place, "transcript.jsonl") - READ) > 0:
        cut = cut or {"rows": 0, "chars": 0, "at": len(rows)}
        cut["chars"] += unread
    names = list(dict.fromkeys([*test.recordings, *reader.starts, *_recorded(source, place)]))[:200]
    recordings: dict[str, dict[str, Any]] = {}
    shown = []
    for count, name in enumerate(names, 1):
        about, cast = _recording(source, place, name, reader)
        if cast:
            about["part"] = f"{key}-{count}"
            recordings[about["part"]] = cast
        shown.append(about)
    part: dict[str, Any] = {
        "nodeid": f"{test.file}::{test.name}" if test.file else test.name,
        "started": test.started,
        "blocks": [[tutorial.places[text], text] for text in dict.fromkeys(test.blocks)],
        "message": coloured(test.message),
        "leaks": [ansi.clean(leak) for leak in test.leaks],
        "kept": ansi.clean(test.kept),
        "path": f"tests/{test.id}/transcript.jsonl",
        "rows": rows,
        "recordings": shown,
    }
    if cut:
        part["cut"] = cut
    if reader.broken:
        part["broken"] = reader.broken
    return part, recordings, "\n".join(reader.commands)


def _events(source: Folder, place: str) -> Iterator[object]:
    """What the transcript has; when only that for people is there, its lines as output."""
    if source.text("tests", place, "transcript.jsonl", limit=1) is not None:
        for line in source.lines("tests", place, "transcript.jsonl", longest=READ, most=READ):
            if line.strip():
                yield value(line)
        return
    for line in source.lines("tests", place, "transcript.txt"):
        yield {"kind": "out", "text": line}


class _Reader:
    """Rows of the page from lines of the transcript: output put together and coloured, the middle of too much left out."""

    def __init__(self) -> None:
        self.starts: dict[str, float] = {}
        self.commands: list[str] = []
        self.began: float | None = None
        self.broken = 0
        self._ends = Ends(HEAD, TAIL)
        self._open: dict[str, Any] | None = None
        self._runs: list[ansi.Run] = []
        self._weight = 0
        self._styles: dict[tuple[str, int | None], ansi.Style] = {}
        self._found = 0

    def take(self, row: object) -> None:
        if not isinstance(row, dict) or not isinstance(row.get("kind"), str):
            self.broken += 1
            return
        kind, at, n = row["kind"], number(row.get("t")), whole(row.get("n"))
        if kind in ("out", "err"):
            self._output(kind, at, n, row.get("text"))
            return
        self._close()
        made: dict[str, Any] = {"k": kind, "t": at}
        if kind == "begin":
            self.began = number(row.get("time"))
            return
        if n is not None:
            made["n"] = n
        if kind == "exit":
            made["c"] = whole(row.get("code"))
            made["d"] = number(row.get("duration"))
            if (limit := number(row.get("timeout"))) is not None:
                made["w"] = limit
        elif kind in ("block", "comment", "command", "terminal", "keys", "recording", "note"):
            made["x"] = short(row.get("text"))
            if kind == "command":
                self._search(made["x"])
                if row.get("background") is True:
                    made["bg"] = 1
            if kind in ("terminal", "recording"):
                name = words(row.get("recording"), 255)
                made["rec"] = ansi.clean(name)
                self._search(made["x"] if kind == "terminal" else "")
                if name and at is not None:
                    self.starts.setdefault(name, at)
        else:
            made["k"] = "other"
            made["x"] = short(f"{words(kind, 40)}: {json.dumps(row)[:2000]}")
        self._ends.add(made, len(made.get("x", "")))

    def rows(self) -> tuple[list[dict[str, Any]], dict[str, int] | None]:
        """All rows, and what was left out of their middle: how many, how many characters, and before which one."""
        self._close()
        return self._ends.rows()

    def _output(self, kind: str, at: float | None, n: int | None, text: object) -> None:
        if not isinstance(text, str):
            self.broken += 1
            return
        same = self._open is not None and (self._open["k"], self._open.get("n")) == (kind, n)
        if not same or self._weight > TEXT or (at or 0) - (self._open or {}).get("first", 0) > TOGETHER:
            self._close()
            self._open = {"k": kind, "t": at, "n": n, "first": at or 0}
        for line in _pieces(text):
            style = self._styles.get((kind, n), ansi.PLAIN)
            runs, self._styles[kind, n] = ansi.line(line, style)
            self._runs += runs
            self._weight += sum(len(run) + WEIGHT for run, _ in runs)
            if self._weight > TEXT:
                self._close()
                self._open = {"k": kind, "t": at, "n": n, "first": at or 0}

    def _close(self) -> None:
        row, runs, weight = self._open, self._runs, self._weight
        self._open, self._runs, self._weight = None, [], 0
        if row is None or not runs:
            return
        made = {"k": row["k"], "t": row["t"], "r": styled(ansi.join(runs))}
        if row["n"] is not None:
            made["n"] = row["n"]
        self._ends.add(made, weight)

    def _search(self, text: str) -> None:
        if text and self._found < 2000:
            self.commands.append(text[:600])
            self._found += len(text)


def _pieces(text: str) -> list[str]:
    """The lines of one event, which should be one."""
    if "\n" not in text[:-1]:
        return [text]
    more = [f"… {len(text) - EVENT} more characters\n"] if len(text) > EVENT else []
    return re.split(r"(?<=\n)", text[:EVENT]) + more


# ---- recordings ----


def _recorded(source: Folder, place: str) -> list[str]:
    names = source.names("tests", place, "recordings")
    return [words(name.rpartition(".")[0], 255) for name in names if name.endswith((".cast", ".json"))]


def _recording(source: Folder, place: str, name: str, reader: _Reader) -> tuple[dict[str, Any], dict[str, Any] | None]:
    about: dict[str, Any] = {"name": ansi.clean(name)}
    if not usable(name):
        return about | {"error": "its name is not one of a file here"}, None
    said = source.json("tests", place, "recordings", f"{name}.json")
    if isinstance(said, dict):
        about["command"] = short(said.get("command"))
        about["exit"] = whole(said.get("exit_code"))
        about["running"] = said.get("ended") is None
        if error := said.get("error"):
            about["error"] = short(error if isinstance(error, str) else json.dumps(error)[:2000])
    else:
        said = {}
    begin = reader.starts.get(name)
    if begin is None and (started := number(said.get("started"))) is not None and reader.began is not None:
        begin = max(0.0, round(started - reader.began, 6))
    about["begin"] = begin
    if screen := source.text("tests", place, "recordings", f"{name}.txt", limit=TEXT):
        # Only a preview: the empty middle of a tall screen is not worth the room.
        about["screen"] = coloured(re.sub(r"\n(?:[ \t]*\n){3,}", "\n\n\n", screen.strip("\n").rstrip()))
    cast = pieces.cast(source, "tests", place, "recordings", f"{name}.cast")
    if cast is None:
        about.setdefault("error", "there is no recording that can be read")
        return about, None
    about["length"] = cast["length"]
    return about, cast
