"""Write the transcript of a test while it runs: as text, and as JSON Lines with times (docs/artifacts.md).

Each entry is one write to each file, so a killed test loses at most its last line.
"""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

from ..cast import strip
from .masks import Secrets

#: Most lines of output that a transcript keeps of one command, and most characters of one line.
MAX_LINES, MAX_LINE = 50_000, 64 * 1024


class Transcript:
    def __init__(self, folder: Path, secrets: Secrets) -> None:
        self.text_path = folder / "transcript.txt"
        self._secrets = secrets
        self._lock = threading.Lock()
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._text = os.open(self.text_path, flags, 0o644)
        self._json = os.open(folder / "transcript.jsonl", flags, 0o644)
        self._began = time.monotonic()
        self._open = True
        self.add("begin", time=round(time.time(), 3))

    def now(self) -> float:
        """Return the seconds since the test began."""
        return time.monotonic() - self._began

    def add(self, kind: str, **fields: Any) -> None:
        """Append one entry."""
        self.write([(kind, fields)])

    def write(self, entries: list[tuple[str, dict[str, Any]]]) -> None:
        """Append several entries with the same time, in one write."""
        at = round(self.now(), 4)
        rows, texts = [], []
        for kind, fields in entries:
            clean = {
                key: self._secrets.hide(value) if isinstance(value, str) else value for key, value in fields.items()
            }
            rows.append(json.dumps({"t": at, "kind": kind, **clean}, ensure_ascii=True))
            texts.append(_as_text(kind, clean))
        with self._lock:
            if self._open:
                _write_all(self._json, ("\n".join(rows) + "\n").encode())
                _write_all(self._text, "".join(texts).encode("utf-8", "backslashreplace"))

    def tail(self, lines: int) -> str:
        """Return the last lines of the text, with a reference to the file if it has more."""
        with open(self.text_path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 200 * lines - 1000))
            last = file.read().decode("utf-8", "replace").splitlines()
            whole = size <= 200 * lines + 1000
        if len(last) <= lines and whole:
            return "\n".join(last)
        return "\n".join([f"… (the rest is in {self.text_path})", *(last if whole else last[1:])[-lines:]])

    def close(self) -> None:
        with self._lock:
            if self._open:
                self._open = False
                os.close(self._text)
                os.close(self._json)


def _as_text(kind: str, fields: dict[str, Any]) -> str:
    text = str(fields.get("text", ""))
    if kind == "comment":
        return _prefixed("# ", "# ", text)
    if kind == "command":
        return _prefixed("$ ", "> ", text + (" &" if fields.get("background") else ""))
    if kind == "out":
        return _prefixed("", "", strip(text))
    if kind == "err":
        return _prefixed("! ", "! ", strip(text))
    if kind == "exit":
        timeout = fields.get("timeout")
        return f"? {fields.get('code')}{f' (timed out after {timeout:g} s)' if timeout is not None else ''}\n"
    if kind == "terminal":
        size = f"{fields.get('cols')}x{fields.get('rows')}"
        return _prefixed("$ ", "> ", text) + f"~ terminal {fields.get('recording')}, {size}\n"
    if kind == "keys":
        return f"~ keys: {strip(text)}\n"
    if kind == "recording":
        return f"~ recording {fields.get('recording')}\n"
    if kind == "note":
        return _prefixed("~ ", "~ ", strip(text))
    return ""


def _prefixed(first: str, others: str, text: str) -> str:
    """Return the lines of the text with a prefix for the first line and one for the others."""
    lines = text.removesuffix("\n").split("\n")
    return "".join(f"{others if number else first}{line}".rstrip(" ") + "\n" for number, line in enumerate(lines))


def _write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]
