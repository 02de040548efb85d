"""Read files in a folder whose content is not trusted.

Symlinks are not followed, reads never block, and all sizes are limited. What cannot be read is None or empty; nothing
raises an exception.
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


class UntrustedFolder:
    def __init__(self, path: Path) -> None:
        self.path = path
        #: Names and descriptors of the folders on the path to the last file, kept open because most files are read
        #: together with their neighbours. The first is `path` itself.
        self._open_path: list[tuple[str, int]] = []

    def __del__(self) -> None:
        self._close_below(0)

    def open(self, *names: str) -> IO[bytes] | None:
        """Open the regular file at this path, given as one name per level; None if it is not a regular file."""
        opened = self._file(names)
        return None if opened is None else os.fdopen(opened[0], "rb", buffering=1 << 16)

    def _file(self, names: tuple[str, ...]) -> tuple[int, int] | None:
        """Return the descriptor and the size of a regular file; None if it is not one."""
        descriptor = self._open(names, os.O_RDONLY)
        if descriptor is None:
            return None
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            os.close(descriptor)
            return None
        return descriptor, status.st_size

    def names(self, *names: str) -> list[str]:
        """Return the sorted names in a folder. Names that are not valid text contain surrogates."""
        descriptor = self._open(names, os.O_DIRECTORY)
        if descriptor is None:
            return []
        try:
            return sorted(os.listdir(descriptor))
        except OSError:
            return []
        finally:
            os.close(descriptor)

    def entries(self, *names: str) -> list[tuple[str, int, int]]:
        """Return the sorted entries of a folder: name, size, modification time in ns."""
        descriptor = self._open(names, os.O_DIRECTORY)
        if descriptor is None:
            return []
        try:
            with os.scandir(descriptor) as scanned:
                stats = [(entry.name, entry.stat(follow_symlinks=False)) for entry in scanned]
            return sorted((name, stat.st_size, stat.st_mtime_ns) for name, stat in stats)
        except OSError:
            return []
        finally:
            os.close(descriptor)

    def size(self, *names: str) -> int:
        """Return the size of a file in bytes; 0 if it is not a regular file."""
        opened = self._file(names)
        if opened is None:
            return 0
        os.close(opened[0])
        return opened[1]

    def text(self, *names: str, limit: int) -> str | None:
        """Return the text of a file, up to `limit` bytes; None if it cannot be read."""
        opened = self._file(names)
        if opened is None:
            return None
        file, size = opened
        data = b""
        try:
            # One call reads most files completely. Asking for one more byte detects files that have grown.
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
        """Return the value of a JSON file; None if it cannot be parsed."""
        text = self.text(*names, limit=limit)
        return None if text is None else parse_json(text)

    def lines(self, *names: str, longest: int = 1 << 26, most: int = 1 << 26) -> Iterator[str]:
        """Yield the lines of a file up to `most` bytes. A line longer than `longest` is yielded in pieces."""
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
        """Yield the JSON value of each non-blank line; None for a line that cannot be parsed."""
        batch: list[str] = []
        size = 0
        for line in self.lines(*names, longest=longest, most=most):
            if line.isspace():
                continue
            batch.append(line)
            size += len(line)
            if size >= _BATCH:
                yield from _parse_lines(batch)
                batch, size = [], 0
        yield from _parse_lines(batch)

    def _open(self, names: tuple[str, ...], last: int) -> int | None:
        if not names or not all(is_plain_name(name) for name in names):
            return None
        try:
            return os.open(names[-1], _FLAGS | last, dir_fd=self._open_parent(names[:-1]))
        except (OSError, ValueError):
            return None

    def _open_parent(self, names: tuple[str, ...]) -> int:
        """Return a descriptor of the folder at this path. It stays open until a file in another folder is opened."""
        if not self._open_path:
            self._open_path.append(("", os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)))
        same = 1
        while same < len(self._open_path) and same <= len(names) and self._open_path[same][0] == names[same - 1]:
            same += 1
        self._close_below(same)
        for name in names[same - 1 :]:
            self._open_path.append((name, os.open(name, _FLAGS | os.O_DIRECTORY, dir_fd=self._open_path[-1][1])))
        return self._open_path[-1][1]

    def _close_below(self, steps: int) -> None:
        while len(self._open_path) > steps:
            os.close(self._open_path.pop()[1])


def is_plain_name(name: str) -> bool:
    """Return whether the name denotes an entry of a folder and not a path elsewhere."""
    return bool(name) and name not in (".", "..") and "/" not in name and "\0" not in name


def parse_json(text: str) -> object:
    """Return the JSON value of the text; None if it cannot be parsed."""
    try:
        return _DECODER.decode(text)
    except (ValueError, RecursionError):
        return None


def _parse_lines(lines: list[str]) -> list[object]:
    # Parsing many lines as one array is faster than parsing each.
    together = parse_json(f"[{','.join(lines)}]")
    if isinstance(together, list) and len(together) == len(lines):
        return together
    return [parse_json(line) for line in lines]


def as_text(thing: object, limit: int, otherwise: str = "") -> str:
    """Return the value if it is a string, cut to `limit` and without lone surrogates; else `otherwise`."""
    if not isinstance(thing, str):
        return otherwise
    text = thing[:limit]
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def as_number(thing: object) -> float | None:
    """Return the value if it is a finite number of sensible size, rounded to 6 digits; else None."""
    if type(thing) is float and -1e12 < thing < 1e12:
        return round(thing, 6)
    if isinstance(thing, bool) or not isinstance(thing, int | float):
        return None
    try:
        real = float(thing)
    except OverflowError:
        return None
    return round(real, 6) if math.isfinite(real) and abs(real) < 1e12 else None


def as_int(thing: object) -> int | None:
    """Return the value as an integer; None if it is not a number."""
    real = as_number(thing)
    return None if real is None else int(real)


def as_list(thing: object, most: int) -> list[object]:
    """Return the first `most` elements if the value is a list; else an empty list."""
    return thing[:most] if isinstance(thing, list) else []


def as_dict(thing: object) -> dict[str, object]:
    """Return the value if it is a JSON object; else an empty dictionary."""
    return thing if isinstance(thing, dict) else {}
