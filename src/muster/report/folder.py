"""Reads files below one folder whose content nobody vouches for: no link is followed, nothing blocks, nothing is read whole
that has no limit. What cannot be read is `None` or empty, never an exception.
"""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO

_DECODER = json.JSONDecoder(strict=False)
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Folder:
    def __init__(self, path: Path) -> None:
        self.path = path

    def open(self, *names: str) -> IO[bytes] | None:
        """The regular file of these names, each one step down."""
        found = self._descend(names, os.O_RDONLY)
        if found is None:
            return None
        if not stat.S_ISREG(os.fstat(found).st_mode):
            os.close(found)
            return None
        return os.fdopen(found, "rb")

    def names(self, *names: str) -> list[str]:
        """What is in a folder, sorted; names that are no text are left as Python has them."""
        found = self._descend(names, os.O_DIRECTORY)
        if found is None:
            return []
        try:
            return sorted(os.listdir(found))
        except OSError:
            return []
        finally:
            os.close(found)

    def entries(self, *names: str) -> list[tuple[str, int, int]]:
        """What is in a folder, sorted: name, size, and when it changed last."""
        found = self._descend(names, os.O_DIRECTORY)
        if found is None:
            return []
        try:
            with os.scandir(found) as all_of_it:
                stats = [(entry.name, entry.stat(follow_symlinks=False)) for entry in all_of_it]
            return sorted((name, stat.st_size, stat.st_mtime_ns) for name, stat in stats)
        except OSError:
            return []
        finally:
            os.close(found)

    def size(self, *names: str) -> int:
        file = self.open(*names)
        if file is None:
            return 0
        with file:
            return os.fstat(file.fileno()).st_size

    def text(self, *names: str, limit: int) -> str | None:
        """The file's text, as much of it as the limit allows."""
        file = self.open(*names)
        if file is None:
            return None
        with file:
            try:
                return file.read(limit).decode("utf-8", "replace")
            except OSError:
                return None

    def json(self, *names: str, limit: int = 1 << 22) -> object:
        """The value a JSON file has; `None` when it has none."""
        text = self.text(*names, limit=limit)
        return None if text is None else value(text)

    def lines(self, *names: str, longest: int = 1 << 26, most: int = 1 << 26) -> Iterator[str]:
        """The lines of a file; one longer than `longest` comes in pieces, and the file ends at `most`."""
        file = self.open(*names)
        if file is None:
            return
        with file:
            read = 0
            while read < most:
                try:
                    data = file.readline(longest)
                except OSError:
                    return
                if not data:
                    return
                read += len(data)
                yield data.decode("utf-8", "replace")

    def _descend(self, names: tuple[str, ...], last: int) -> int | None:
        if any(not usable(name) for name in names):
            return None
        at = -1
        try:
            at = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            for index, name in enumerate(names):
                kind = last if index == len(names) - 1 else os.O_DIRECTORY
                below = os.open(name, _FLAGS | kind, dir_fd=at)
                os.close(at)
                at = below
            return at
        except (OSError, ValueError):
            if at >= 0:
                os.close(at)
            return None


def usable(name: str) -> bool:
    """Whether it names a thing in a folder, and no other place."""
    return bool(name) and name not in (".", "..") and "/" not in name and "\0" not in name


def value(text: str) -> object:
    try:
        return _DECODER.decode(text)
    except (ValueError, RecursionError):
        return None


def words(thing: object, limit: int, otherwise: str = "") -> str:
    """The text that it should be, without halves of characters."""
    if not isinstance(thing, str):
        return otherwise
    return thing[:limit].encode("utf-8", "replace").decode("utf-8")


def number(thing: object) -> float | None:
    """The number that it should be, to the microsecond."""
    if isinstance(thing, bool) or not isinstance(thing, int | float):
        return None
    try:
        real = float(thing)
    except OverflowError:
        return None
    return round(real, 6) if math.isfinite(real) and abs(real) < 1e12 else None


def whole(thing: object) -> int | None:
    real = number(thing)
    return None if real is None else int(real)


def items(thing: object, most: int) -> list[object]:
    return thing[:most] if isinstance(thing, list) else []


def table(thing: object) -> dict[str, object]:
    """The object that it should be."""
    return thing if isinstance(thing, dict) else {}
