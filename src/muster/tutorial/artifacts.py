"""Write the artifact folder of a test run (docs/artifacts.md): one folder per test with its test.json."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

FORMAT = {"format": "muster-e2e", "version": 1}
DEFAULT_FOLDER = ".muster/e2e"


def open_folder(folder: Path, run: dict[str, Any], tutorial: Path | None) -> None:
    """Create the artifact folder if it does not exist, and write its run-level files. Safe for concurrent workers."""
    (folder / "tests").mkdir(parents=True, exist_ok=True)
    write_json(folder / "format.json", FORMAT)
    (folder / ".gitignore").write_text("*\n")
    write_json(folder / "run.json", run)
    if tutorial is not None and tutorial.is_file():
        part = folder / f"tutorial.sh.{os.getpid()}"
        shutil.copyfile(tutorial, part)
        os.replace(part, folder / "tutorial.sh")


def folder_of_test(folder: Path, nodeid: str) -> Path:
    """Return the folder of a test: a readable name plus a hash of the node id, so that no two tests share one."""
    path, _, name = nodeid.partition("::")
    readable = f"{Path(path).stem}.{name.replace('::', '.')}"
    readable = re.sub(r"[^A-Za-z0-9_.]+", "-", readable)[:80].strip("-.")
    return folder / "tests" / f"{readable}-{hashlib.sha256(nodeid.encode('utf-8', 'replace')).hexdigest()[:8]}"


class Record:
    """The test.json of one test, rewritten on each `save`. Creating a record deletes what an earlier run left."""

    def __init__(self, folder: Path, nodeid: str, file: str, line: int) -> None:
        self.folder = folder
        self.hide: Callable[[str], str] = str
        if folder.exists():
            shutil.rmtree(folder)
        (folder / "recordings").mkdir(parents=True)
        self.facts: dict[str, Any] = {
            "version": 1,
            "nodeid": nodeid,
            "file": file,
            "line": line,
            "name": nodeid.partition("::")[2],
            "outcome": "running",
            "started": round(time.time(), 3),
            "duration": None,
            "blocks": [],
            "message": None,
            "leaks": [],
            "recordings": [],
            "kept_folder": None,
        }
        self.save()

    def save(self, **facts: Any) -> None:
        self.facts |= facts
        write_json(self.folder / "test.json", self.facts)


def write_json(path: Path, value: Any) -> None:
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    os.replace(part, path)


def concurrent_tests(folder: Path, record: Record, since: float) -> list[Path]:
    """Return the folders of tests that ran at the same time as this one, in the run that started at `since`."""
    concurrent = []
    for path in sorted((folder / "tests").glob("*/test.json")):
        if path.parent == record.folder:
            continue
        try:
            facts = json.loads(path.read_text(encoding="utf-8"))
            running = facts["outcome"] == "running" or facts["duration"] is None
            overlaps = running or facts["started"] + facts["duration"] >= record.facts["started"]
            if facts["started"] >= since and overlaps:
                concurrent.append(path.parent)
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return concurrent


def mentions(folder: Path, name: str) -> bool:
    """Return whether the test's commands or output mention a file name. Notes written by the plugin do not count."""
    try:
        with open(folder / "transcript.jsonl", encoding="utf-8", errors="replace") as file:
            return any(json.dumps(name)[1:-1] in row and '"kind": "note"' not in row for row in file)
    except OSError:
        return False
