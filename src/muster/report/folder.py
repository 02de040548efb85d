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
_BATCH = 1 << 16
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Folder:
    def __init__(self, path: Path) -> None:
        self.path = path
        #: The way to the folder below that was entered last, with descriptors, because most files are read together with
        #: their neighbours. The first one is `path` itself.
        self._way: list[tuple[str, int]] = []

    def __del__(self) -> None:
        self._back(0)

    def open(self, *names: str) -> IO[bytes] | None:
        """The regular file of these names, each one step down."""
        found = self._file(names)
        return None if found is None else os.fdopen(found[0], "rb", buffering=1 << 16)

    def _file(self, names: tuple[str, ...]) -> tuple[int, int] | None:
        """A descriptor of the regular file of these names, and its size."""
        found = self._descend(names, os.O_RDONLY)
        if found is None:
            return None
        told = os.fstat(found)
        if not stat.S_ISREG(told.st_mode):
            os.close(found)
            return None
        return found, told.st_size

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
        found = self._file(names)
        if found is None:
            return 0
        os.close(found[0])
        return found[1]

    def text(self, *names: str, limit: int) -> str | None:
        """The file's text, as much of it as the limit allows."""
        found = self._file(names)
        if found is None:
            return None
        file, size = found
        data = b""
        try:
            # One call reads most files whole; the byte more that is asked for shows when one has grown.
            while len(data) < limit and (
                more := os.read(file, min(limit - len(data), max(size + 1 - len(data), 4096)))
            ):
                data += more
                if len(data) == size:
                    break
            return data.decode("utf-8", "replace")
        except OSError:
            return None
        finally:
            os.close(file)

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

    def values(self, *names: str, longest: int = 1 << 26, most: int = 1 << 26) -> Iterator[object]:
        """The JSON value of each line that is not blank; `None` for a line that is none. Many lines are parsed at once."""
        batch: list[str] = []
        size = 0
        for line in self.lines(*names, longest=longest, most=most):
            if line.isspace():
                continue
            batch.append(line)
            size += len(line)
            if size >= _BATCH:
                yield from _parsed(batch)
                batch, size = [], 0
        yield from _parsed(batch)

    def _descend(self, names: tuple[str, ...], last: int) -> int | None:
        if not names or not all(usable(name) for name in names):
            return None
        try:
            return os.open(names[-1], _FLAGS | last, dir_fd=self._enter(names[:-1]))
        except (OSError, ValueError):
            return None

    def _enter(self, names: tuple[str, ...]) -> int:
        """Return a descriptor of the folder of these names; it stays open while files in it are read."""
        if not self._way:
            self._way.append(("", os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)))
        same = 1
        while same < len(self._way) and same <= len(names) and self._way[same][0] == names[same - 1]:
            same += 1
        self._back(same)
        for name in names[same - 1 :]:
            self._way.append((name, os.open(name, _FLAGS | os.O_DIRECTORY, dir_fd=self._way[-1][1])))
        return self._way[-1][1]

    def _back(self, steps: int) -> None:
        while len(self._way) > steps:
            os.close(self._way.pop()[1])


def usable(name: str) -> bool:
    """Whether it names a thing in a folder, and no other place."""
    return bool(name) and name not in (".", "..") and "/" not in name and "\0" not in name


def value(text: str) -> object:
    try:
        return _DECODER.decode(text)
    except (ValueError, RecursionError):
        return None


def _parsed(lines: list[str]) -> list[object]:
    together = value(f"[{','.join(lines)}]")
    if isinstance(together, list) and len(together) == len(lines):
        return together
    return [value(line) for line in lines]


def words(thing: object, limit: int, otherwise: str = "") -> str:
    """The text that it should be, without halves of characters."""
    if not isinstance(thing, str):
        return otherwise
    text = thing[:limit]
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def number(thing: object) -> float | None:
    """The number that it should be, to the microsecond."""
    if type(thing) is float and -1e12 < thing < 1e12:
        return round(thing, 6)
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
