"""Snapshots: texts that a test compares with a file beside it, and writes there with `--e2e-update`."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

FOLDER = "snapshots"


class Snapshots:
    """The snapshots of one test: `snapshots/FILE/TEST[.NAME].txt` beside its file."""

    def __init__(self, file: Path, test: str, update: bool = False) -> None:
        self.update = update
        self.written: list[Path] = []
        self._folder = file.parent / FOLDER / file.stem
        self._test = test
        self._unnamed = 0

    def path(self, name: str) -> Path:
        """Where a snapshot is. Each call without a name is for the next one of the test."""
        if not name:
            self._unnamed += 1
            name = str(self._unnamed) if self._unnamed > 1 else ""
        full = self._test.replace("::", ".") + (f".{name}" if name else "")
        plain = re.sub(r"[^A-Za-z0-9_.-]+", "-", full)[:120].strip("-.")
        if plain != full:
            plain += f"-{hashlib.sha256(full.encode('utf-8', 'replace')).hexdigest()[:8]}"
        return self._folder / f"{plain}.txt"

    def read(self, path: Path) -> str | None:
        """The text of a snapshot; None if there is none yet."""
        try:
            return path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None

    def write(self, path: Path, text: str) -> None:
        """Replace a snapshot, or make it."""
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.{os.getpid()}")
        part.write_text(normal(text), encoding="utf-8")
        os.replace(part, path)
        self.written.append(path)


def normal(text: str) -> str:
    """The text with one newline at its end, as files have it."""
    return text.rstrip("\n") + "\n"
