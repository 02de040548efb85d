"""Build artifact folders (docs/artifacts.md) with the content that a test needs."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

START = 1_800_000_000.0

TUTORIAL = """#!/bin/bash
# A program, by example.

# =====================================================================
# 1. First steps
# =====================================================================

# See who is there.
muster list

# Look at an agent's screen without touching it.
muster capture hello

# =====================================================================
# 2. Making agents
# =====================================================================

# Make an agent from a file.
cat > ../greet.toml <<'END'
[[step]]
say = "hello"

# not a comment of the block
END
muster create greet replay --no-connect -- ../greet.toml

# Nobody tests this one.
muster create lonely command -- sleep 600
"""
LIST = "# See who is there.\nmuster list"
CAPTURE = "# Look at an agent's screen without touching it.\nmuster capture hello"


class Run:
    """An artifact folder."""

    def __init__(self, folder: Path, tutorial: str | None = TUTORIAL, **run: Any) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        (folder / "format.json").write_text('{"format": "muster-e2e", "version": 1}')
        (folder / ".gitignore").write_text("*\n")
        known = {
            "started": START,
            "ended": START + 75,
            "args": ["tests/e2e"],
            "tutorial": "docs/tutorial.sh",
            "exit_code": 0,
        }
        (folder / "run.json").write_text(json.dumps(known | run))
        if tutorial is not None:
            (folder / "tutorial.sh").write_text(tutorial)
        (folder / "tests").mkdir()

    def test(
        self, name: str, outcome: str = "passed", rows: list[dict[str, Any]] | None = None, file: str = "", **more: Any
    ) -> Path:
        """Add a test and return its folder."""
        file = file or "tests/e2e/test_sample.py"
        nodeid = f"{file}::{name}"
        readable = re.sub(r"[^A-Za-z0-9_.-]+", "-", name)[:60]
        folder = self.folder / "tests" / f"{readable}-{hashlib.sha256(nodeid.encode()).hexdigest()[:8]}"
        (folder / "recordings").mkdir(parents=True)
        known = {
            "version": 1,
            "nodeid": nodeid,
            "file": file,
            "line": 12,
            "name": name,
            "outcome": outcome,
            "started": START + 1,
            "duration": 1.25,
            "blocks": [],
            "message": None,
            "leaks": [],
            "recordings": [],
            "kept_folder": None,
        }
        (folder / "test.json").write_text(json.dumps(known | more))
        with open(folder / "transcript.jsonl", "w", encoding="utf-8") as file_:
            for row in [{"t": 0, "kind": "begin", "time": START + 1}, *(rows or [])]:
                file_.write(json.dumps(row) + "\n")
        return folder


def record(
    folder: Path,
    name: str,
    events: list[list[Any]],
    screen: str = "",
    error: str | None = None,
    cols: int = 60,
    rows: int = 10,
    **more: Any,
) -> None:
    """Add a recording to a test."""
    place = folder / "recordings"
    lines: list[Any] = [{"version": 2, "width": cols, "height": rows, "timestamp": int(START)}, *events]
    (place / f"{name}.cast").write_text("".join(json.dumps(line) + "\n" for line in lines))
    about = {
        "command": f"muster connect {name}",
        "started": START + 2,
        "ended": START + 12,
        "exit_code": 0,
        "error": error,
        "cols": cols,
        "rows": rows,
    }
    (place / f"{name}.json").write_text(json.dumps(about | more))
    (place / f"{name}.txt").write_text(screen)


def command(
    n: int, at: float, text: str, out: str = "", err: str = "", code: int = 0, comment: str = "", **more: Any
) -> list[dict[str, Any]]:
    """Return the transcript rows of one command."""
    rows: list[dict[str, Any]] = [{"t": at, "kind": "comment", "n": n, "text": comment}] if comment else []
    rows.append({"t": at, "kind": "command", "n": n, "text": text, "background": False})
    rows += [{"t": at + 0.1, "kind": "out", "n": n, "text": line} for line in out.splitlines(keepends=True)]
    rows += [{"t": at + 0.1, "kind": "err", "n": n, "text": line} for line in err.splitlines(keepends=True)]
    return [*rows, {"t": at + 0.2, "kind": "exit", "n": n, "code": code, "duration": 0.2, "timeout": None, **more}]
