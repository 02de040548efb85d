"""What must not show: secrets, hidden everywhere; and what differs from run to run, masked where a test asks for it."""

from __future__ import annotations

import re
from collections.abc import Iterable

HIDDEN = "****"
#: A shorter value is no secret: hiding every "1" would hide the transcript.
SHORTEST = 4

#: What changes from run to run, in the order in which it is looked for.
MASKS: tuple[tuple[str, str], ...] = (
    (r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b", "<uuid>"),
    (r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?", "<time>"),
    (r"\b\d{4}-\d\d-\d\d\b", "<date>"),
    (r"\b\d\d:\d\d:\d\d(?:[.,]\d+)?\b", "<time>"),
    (r"\b\d+(?:\.\d+)? ?(?:ms|µs|us|ns|s|sec|seconds?|minutes?|min|hours?|h)\b", "<duration>"),
    (r"\b(?=[0-9a-f]*[0-9])(?=[0-9a-f]*[a-f])[0-9a-f]{7,64}\b", "<id>"),
    (r"\b[pP][iI][dD][ =:]+\d+\b", "<pid>"),
)


class Masks:
    """The built-in masks, those of the project, and the folders of one test."""

    def __init__(self, paths: Iterable[tuple[str, str]] = (), more: Iterable[tuple[str, str]] = ()) -> None:
        # The longest path first, so that a folder inside another keeps its own name.
        self._paths = sorted(paths, key=lambda pair: -len(pair[0]))
        self._patterns = [(re.compile(pattern), name) for pattern, name in (*more, *MASKS)]

    def add(self, pattern: str, name: str) -> None:
        """Show what matches as `name`; looked for before the built-in ones."""
        self._patterns.insert(0, (re.compile(pattern), name))

    def apply(self, text: str) -> str:
        for path, name in self._paths:
            text = text.replace(path, name)
        for pattern, name in self._patterns:
            text = pattern.sub(name, text)
        return text


class Secrets:
    """Values that never reach a file. A value of several lines is hidden line by line too."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        parts = {part.strip() for value in values for part in (value, *value.splitlines())}
        self.values = sorted((part for part in parts if len(part) >= SHORTEST), key=len, reverse=True)
        self._bytes = [value.encode("utf-8", "surrogateescape") for value in self.values]

    def hide(self, text: str) -> str:
        for value in self.values:
            text = text.replace(value, HIDDEN)
        return text

    def hide_bytes(self, data: bytes) -> bytes:
        for value in self._bytes:
            data = data.replace(value, HIDDEN.encode())
        return data

    def held(self, data: bytes) -> int:
        """How many bytes at the end of `data` could be the beginning of a secret whose rest is still to come."""
        for count in range(min(len(data), max(map(len, self._bytes), default=1) - 1), 0, -1):
            if any(value.startswith(data[-count:]) for value in self._bytes):
                return count
        return 0


class Hider:
    """`Secrets` for a stream of bytes: one that comes in two pieces is hidden as well."""

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        data = self._secrets.hide_bytes(self._held + data)
        cut = len(data) - self._secrets.held(data)
        data, self._held = data[:cut], data[cut:]
        return data

    def rest(self) -> bytes:
        data, self._held = self._held, b""
        return data
