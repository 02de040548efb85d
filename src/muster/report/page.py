"""Build the page of a test run: an index with the list of tests, and one file per test and recording, loaded on demand.

The page depends only on the artifact folder and on whether the player is installed: the same input gives the same bytes.
Output of programs goes into the page as JSON, never as HTML. Malformed files never make the build fail; they are shown as
broken.
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
from . import ansi, outline, sanitize, site
from .sanitize import MAX_TEXT, ROW_OVERHEAD, HeadAndTail, as_json_runs, coloured_runs, truncated
from .untrusted import UntrustedFolder, as_int, as_list, as_number, as_text, is_plain_name, parse_json

VERSION = 1
OUTCOMES = ("failed", "error", "broken", "running", "xpassed", "passed", "skipped", "xfailed")

#: Number of characters shown from the beginning and from the end of a test's transcript.
HEAD, TAIL = 1_500_000, 500_000
#: Maximum size that is read of a transcript, in bytes, and of one event in it, in characters.
MAX_TRANSCRIPT, MAX_EVENT = 1 << 26, 1 << 20
#: Lines of output of one command within this many seconds are merged into one row.
MERGE_SECONDS = 0.5


class Test(NamedTuple):
    """The validated content of a test.json. `folder` is the name of its folder, `id` the same as valid Unicode text."""

    folder: str
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


class Summary(NamedTuple):
    """The result of a build: the path of index.html, and counts."""

    path: Path
    tests: int
    outcomes: dict[str, int]


def build(folder: Path, out: Path | None = None) -> Path:
    """Like `make`, but return only the path of index.html."""
    return make(folder, out).path


def make(folder: Path, out: Path | None = None) -> Summary:
    """Build the page of an artifact folder in `out`, by default its subfolder `report`.

    Raises NotFound if the folder is not an artifact folder, MusterError if a newer version wrote it, and Refused if
    `out` contains something other than a report.
    """
    _check_format(folder)
    inside = out is None
    out = folder / "report" if out is None else out
    site.prepare(out, inside)
    source = UntrustedFolder(folder)
    tests = sorted((_test(source, name) for name in source.names("tests")), key=Test.order)
    texts = source.text("tutorial.sh", limit=1 << 20)
    tutorial = outline.read(texts or "", [block for test in tests for block in test.blocks])
    run = _run(source.json("run.json"))
    rows = []
    keys = set()
    for position, test in enumerate(tests, 1):
        key = f"{position:04}"
        part, recordings, commands = _part(source, test, key, tutorial)
        for name, recording in recordings.items():
            site.write_part(out, "recording", name, recording)
        site.write_part(out, "part", key, part)
        keys |= {key, *recordings}
        rows.append(_row(test, key, part, commands, run, tutorial))
    program = site.asset("assets", "tools.js") + site.asset("assets", "page.js")
    site.publish(out, "index.html", _index(run, rows, tutorial), program, site.asset("assets", "page.css"), keys)
    counts = Counter(test.outcome for test in tests)
    return Summary(out / "index.html", len(tests), {name: counts[name] for name in OUTCOMES if counts[name]})


def _check_format(folder: Path) -> None:
    hint = f"pytest --e2e-artifacts {shlex.quote(str(folder))} creates one"
    if not folder.is_dir():
        raise NotFound(f"there is no folder {folder}", hint)
    record = UntrustedFolder(folder).json("format.json")
    if not isinstance(record, dict) or record.get("format") != "muster-e2e":
        raise NotFound(f"{folder} is not the artifact folder of a test run", hint)
    version = record.get("version")
    if not isinstance(version, int) or version > VERSION:
        raise MusterError(
            f"{folder} was written by a newer muster (version {as_text(str(version), 20)})", "update muster"
        )


# ---- reading the artifact folder ----


def _run(record: object) -> dict[str, Any]:
    record = record if isinstance(record, dict) else {}
    return {
        "started": as_number(record.get("started")),
        "ended": as_number(record.get("ended")),
        "args": [as_text(word, 200) for word in as_list(record.get("args"), 40)],
        "tutorial": as_text(record.get("tutorial"), 400),
        "exit": as_int(record.get("exit_code")),
    }


def _test(source: UntrustedFolder, name: str) -> Test:
    record = source.json("tests", name, "test.json")
    id = as_text(name, 255)
    if not isinstance(record, dict):
        problem = (
            "is not a JSON object" if source.text("tests", name, "test.json", limit=1) is not None else "cannot be read"
        )
        return Test(name, id, id, "", None, "broken", None, None, [], f"test.json {problem}", [], [], "")
    outcome = record.get("outcome")
    message = as_text(record.get("message"), 200_000)
    if outcome not in OUTCOMES[:2] + OUTCOMES[3:]:
        problem = f"test.json has an unknown outcome: {as_text(json.dumps(outcome), 80)}"
        outcome, message = "broken", f"{problem}\n{message}".rstrip()
    nodeid = as_text(record.get("nodeid"), 1000, id)
    file, _, rest = nodeid.partition("::")
    duration = as_number(record.get("duration"))
    return Test(
        folder=name,
        id=id,
        name=ansi.clean(as_text(record.get("name"), 1000, rest or nodeid)) or id,
        file=ansi.clean(as_text(record.get("file"), 1000, file if rest else "")),
        line=as_int(record.get("line")),
        outcome=str(outcome),
        started=as_number(record.get("started")),
        duration=None if duration is None else max(duration, 0.0),
        blocks=[text for item in as_list(record.get("blocks"), 100) if (text := normalize(as_text(item, 20_000)))],
        message=message,
        leaks=[as_text(item, 2000) for item in as_list(record.get("leaks"), 200) if isinstance(item, str)],
        recordings=[as_text(item, 255) for item in as_list(record.get("recordings"), 200) if isinstance(item, str)],
        kept=as_text(record.get("kept_folder"), 1000),
    )


def _row(
    test: Test, key: str, part: dict[str, Any], commands: str, run: dict[str, Any], tutorial: outline.Outline
) -> dict[str, Any]:
    """Return the entry of a test in the index, with only the fields that the list and the search need."""
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
    max_commands = max(40, min(600, 300_000 // max(1, len(rows))))
    for row in rows:
        if "c" in row:
            row["c"] = row["c"][:max_commands]
    max_block = max(80, min(8000, 300_000 // max(1, len(tutorial.blocks))))
    blocks = [
        {
            "s": block.section,
            "x": block.text[:max_block] + (" …" if len(block.text) > max_block else ""),
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


# ---- the file of one test ----


def _part(
    source: UntrustedFolder, test: Test, key: str, tutorial: outline.Outline
) -> tuple[dict[str, Any], dict[str, dict[str, Any]], str]:
    """Return the content of a test's file, its recordings by the keys of their files, and its commands for the search."""
    folder = test.folder
    reader = _TranscriptReader()
    for row in _events(source, folder):
        reader.add(row)
    rows, cut = reader.rows()
    if (unread := source.size("tests", folder, "transcript.jsonl") - MAX_TRANSCRIPT) > 0:
        cut = cut or {"rows": 0, "chars": 0, "at": len(rows)}
        cut["chars"] += unread
    names = list(dict.fromkeys([*test.recordings, *reader.starts, *_recorded(source, folder)]))[:200]
    recordings: dict[str, dict[str, Any]] = {}
    listed = []
    for count, name in enumerate(names, 1):
        about, cast = _recording(source, folder, name, reader)
        if cast:
            about["part"] = f"{key}-{count}"
            recordings[about["part"]] = cast
        listed.append(about)
    part: dict[str, Any] = {
        "nodeid": f"{test.file}::{test.name}" if test.file else test.name,
        "started": test.started,
        "blocks": [[tutorial.places[text], text] for text in dict.fromkeys(test.blocks)],
        "message": coloured_runs(test.message),
        "leaks": [ansi.clean(leak) for leak in test.leaks],
        "kept": ansi.clean(test.kept),
        "path": f"tests/{test.id}/transcript.jsonl",
        "rows": rows,
        "recordings": listed,
    }
    if cut:
        part["cut"] = cut
    if reader.broken:
        part["broken"] = reader.broken
    return part, recordings, "\n".join(reader.commands)


def _events(source: UntrustedFolder, folder: str) -> Iterator[object]:
    """Yield the events of the transcript. If only transcript.txt exists, yield its lines as output."""
    if source.text("tests", folder, "transcript.jsonl", limit=1) is not None:
        for line in source.lines("tests", folder, "transcript.jsonl", longest=MAX_TRANSCRIPT, most=MAX_TRANSCRIPT):
            if line.strip():
                yield parse_json(line)
        return
    for line in source.lines("tests", folder, "transcript.txt"):
        yield {"kind": "out", "text": line}


class _TranscriptReader:
    """Turns transcript events into rows: merges and colours output, and leaves out the middle of very long transcripts."""

    def __init__(self) -> None:
        self.starts: dict[str, float] = {}
        self.commands: list[str] = []
        self.began: float | None = None
        self.broken = 0
        self._ends = HeadAndTail(HEAD, TAIL)
        self._open: dict[str, Any] | None = None
        self._runs: list[ansi.Run] = []
        self._weight = 0
        self._styles: dict[tuple[str, int | None], ansi.Style] = {}
        self._found = 0

    def add(self, row: object) -> None:
        if not isinstance(row, dict) or not isinstance(row.get("kind"), str):
            self.broken += 1
            return
        kind, at, n = row["kind"], as_number(row.get("t")), as_int(row.get("n"))
        if kind in ("out", "err"):
            self._output(kind, at, n, row.get("text"))
            return
        self._close()
        new_row: dict[str, Any] = {"k": kind, "t": at}
        if kind == "begin":
            self.began = as_number(row.get("time"))
            return
        if n is not None:
            new_row["n"] = n
        if kind == "exit":
            new_row["c"] = as_int(row.get("code"))
            new_row["d"] = as_number(row.get("duration"))
            if (limit := as_number(row.get("timeout"))) is not None:
                new_row["w"] = limit
        elif kind in ("block", "comment", "command", "terminal", "keys", "recording", "note"):
            new_row["x"] = truncated(row.get("text"))
            if kind == "command":
                self._search(new_row["x"])
                if row.get("background") is True:
                    new_row["bg"] = 1
            if kind in ("terminal", "recording"):
                name = as_text(row.get("recording"), 255)
                new_row["rec"] = ansi.clean(name)
                self._search(new_row["x"] if kind == "terminal" else "")
                if name and at is not None:
                    self.starts.setdefault(name, at)
        else:
            new_row["k"] = "other"
            new_row["x"] = truncated(f"{as_text(kind, 40)}: {json.dumps(row)[:2000]}")
        self._ends.add(new_row, len(new_row.get("x", "")))

    def rows(self) -> tuple[list[dict[str, Any]], dict[str, int] | None]:
        """Return all rows, and a description of the gap in their middle, if any; see `HeadAndTail.rows`."""
        self._close()
        return self._ends.rows()

    def _output(self, kind: str, at: float | None, n: int | None, text: object) -> None:
        if not isinstance(text, str):
            self.broken += 1
            return
        same = self._open is not None and (self._open["k"], self._open.get("n")) == (kind, n)
        if not same or self._weight > MAX_TEXT or (at or 0) - (self._open or {}).get("first", 0) > MERGE_SECONDS:
            self._close()
            self._open = {"k": kind, "t": at, "n": n, "first": at or 0}
        for line in _pieces(text):
            style = self._styles.get((kind, n), ansi.PLAIN)
            runs, self._styles[kind, n] = ansi.line(line, style)
            self._runs += runs
            self._weight += sum(len(run) + ROW_OVERHEAD for run, _ in runs)
            if self._weight > MAX_TEXT:
                self._close()
                self._open = {"k": kind, "t": at, "n": n, "first": at or 0}

    def _close(self) -> None:
        row, runs, weight = self._open, self._runs, self._weight
        self._open, self._runs, self._weight = None, [], 0
        if row is None or not runs:
            return
        new_row = {"k": row["k"], "t": row["t"], "r": as_json_runs(ansi.join(runs))}
        if row["n"] is not None:
            new_row["n"] = row["n"]
        self._ends.add(new_row, weight)

    def _search(self, text: str) -> None:
        if text and self._found < 2000:
            self.commands.append(text[:600])
            self._found += len(text)


def _pieces(text: str) -> list[str]:
    """Split the text of one event into lines. There should be one, but the file may be malformed."""
    if "\n" not in text[:-1]:
        return [text]
    more = [f"… {len(text) - MAX_EVENT} more characters\n"] if len(text) > MAX_EVENT else []
    return re.split(r"(?<=\n)", text[:MAX_EVENT]) + more


# ---- recordings ----


def _recorded(source: UntrustedFolder, folder: str) -> list[str]:
    names = source.names("tests", folder, "recordings")
    return [as_text(name.rpartition(".")[0], 255) for name in names if name.endswith((".cast", ".json"))]


def _recording(
    source: UntrustedFolder, folder: str, name: str, reader: _TranscriptReader
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    about: dict[str, Any] = {"name": ansi.clean(name)}
    if not is_plain_name(name):
        return about | {"error": "the name of the recording is not a valid file name"}, None
    record = source.json("tests", folder, "recordings", f"{name}.json")
    if isinstance(record, dict):
        about["command"] = truncated(record.get("command"))
        about["exit"] = as_int(record.get("exit_code"))
        about["running"] = record.get("ended") is None
        if error := record.get("error"):
            about["error"] = truncated(error if isinstance(error, str) else json.dumps(error)[:2000])
    else:
        record = {}
    begin = reader.starts.get(name)
    if begin is None and (started := as_number(record.get("started"))) is not None and reader.began is not None:
        begin = max(0.0, round(started - reader.began, 6))
    about["begin"] = begin
    if screen := source.text("tests", folder, "recordings", f"{name}.txt", limit=MAX_TEXT):
        # Collapse the empty middle of a tall screen, since this is only a preview.
        about["screen"] = coloured_runs(re.sub(r"\n(?:[ \t]*\n){3,}", "\n\n\n", screen.strip("\n").rstrip()))
    cast = sanitize.recording(source, "tests", folder, "recordings", f"{name}.cast")
    if cast is None:
        about.setdefault("error", "the recording is missing or cannot be read")
        return about, None
    about["length"] = cast["length"]
    return about, cast
