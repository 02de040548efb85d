"""Answers that cost time or money, kept so that nobody is asked twice: verdicts of the gate and resolved conflicts.

Each answer is a file of its own, written whole or not at all. An integration that was killed goes on with all of them. A new integration
forgets the negative ones: the cause may have been something outside of the repository that was mended since.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from typing import Any

from ..run.directory import read, write


class Journal:
    """The answers in one folder, by kind and key."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        os.makedirs(folder, mode=0o700, exist_ok=True)

    def begin(self) -> None:
        """Begin a new integration without the negative answers, or go on with one that was killed."""
        if not os.path.exists(self._open):
            for name in os.listdir(self.folder):
                path = os.path.join(self.folder, name)
                if _is_negative(read(path) or {}):
                    os.unlink(path)
            os.close(os.open(self._open, os.O_CREAT | os.O_WRONLY, 0o600))

    def end(self) -> None:
        """Record that the integration has come to its end."""
        now = time.time()
        os.utime(self._open, (now, now))
        os.replace(self._open, self._ended)

    def ended(self) -> float:
        """Return when the last integration came to its end; 0 if none has."""
        return os.path.getmtime(self._ended) if os.path.exists(self._ended) else 0.0

    @property
    def _open(self) -> str:
        return os.path.join(self.folder, "open")

    @property
    def _ended(self) -> str:
        return os.path.join(self.folder, "ended")

    def get(self, kind: str, key: object) -> dict[str, Any] | None:
        """Return the answer for a key; None if there is none."""
        return read(self._path(kind, key))

    def put(self, kind: str, key: object, answer: dict[str, Any]) -> None:
        """Keep an answer."""
        write(self._path(kind, key), answer)

    def all(self, kind: str) -> list[dict[str, Any]]:
        """Return all answers of a kind, in no order."""
        names = [name for name in os.listdir(self.folder) if name.startswith(f"{kind}-") and name.endswith(".json")]
        return [answer for name in names if (answer := read(os.path.join(self.folder, name)))]

    def _path(self, kind: str, key: object) -> str:
        return os.path.join(self.folder, f"{kind}-{hashlib.sha256(json.dumps(key).encode()).hexdigest()[:40]}.json")


def _is_negative(answer: dict[str, Any]) -> bool:
    return answer.get("ok") is False or answer.get("tree") == "" or answer.get("red") is True
