"""Snapshots: files next to a test with the text it expects, written with `--e2e-update`."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

FOLDER = "snapshots"


class Snapshots:
    """The snapshots of one test: `snapshots/FILE/TEST[.NAME].txt` next to the test file."""

    def __init__(self, file: Path, test: str, update: bool = False) -> None:
        self.update = update
        self.written: list[Path] = []
        self._folder = file.parent / FOLDER / file.stem
        self._test = test
        self._unnamed = 0

    def path(self, name: str) -> Path:
        """Return the path of a snapshot. Each call without a name returns that of the test's next unnamed snapshot."""
        if not name:
            self._unnamed += 1
            name = str(self._unnamed) if self._unnamed > 1 else ""
        full = self._test.replace("::", ".") + (f".{name}" if name else "")
        plain = re.sub(r"[^A-Za-z0-9_.-]+", "-", full)[:120].strip("-.")
        if plain != full:
            plain += f"-{hashlib.sha256(full.encode('utf-8', 'replace')).hexdigest()[:8]}"
        return self._folder / f"{plain}.txt"

    def read(self, path: Path) -> str | None:
        """Return the text of a snapshot; None if it does not exist."""
        try:
            return path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None

    def write(self, path: Path, text: str) -> None:
        """Create or replace a snapshot."""
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.{os.getpid()}")
        part.write_text(with_final_newline(text), encoding="utf-8")
        os.replace(part, path)
        self.written.append(path)


def with_final_newline(text: str) -> str:
    """Return the text with exactly one newline at its end."""
    return text.rstrip("\n") + "\n"
