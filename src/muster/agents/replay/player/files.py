"""Write what the player leaves in the agent's folder and in its work dir."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time

TYPE_CHECKING = False  # `typing` itself is not loaded on the host
if TYPE_CHECKING:
    from typing import Any


def append(path: str, record: dict[str, Any]) -> None:
    """Append one JSON line in a single write, so that lines of several writers never mix."""
    line = (json.dumps(record) + "\n").encode()
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        if os.write(fd, line) != len(line):
            raise OSError(f"{path}: only a part of the line could be written")
    finally:
        os.close(fd)


def mend(path: str) -> None:
    """End the last line if a killed writer left it open."""
    try:
        with open(path, "rb+") as file:
            if not file.seek(0, os.SEEK_END):
                return
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.write(b"\n")
    except FileNotFoundError:
        pass


def replace(path: str, data: bytes) -> None:
    """Write a file atomically."""
    folder, name = os.path.split(path)
    temp = os.path.join(folder, f".{name}.{os.getpid()}")
    with open(temp, "wb") as file:
        file.write(data)
    os.replace(temp, path)


def inside(path: str, make: bool) -> tuple[int, str]:
    """Open the folder of `path` below the work dir (the cwd) without following a symlink; return it and the last name.

    Raise OSError if the path leaves the work dir.
    """
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if path.startswith("/") or ".." in parts or not parts or "\0" in path or path.endswith("/"):
        raise OSError(f"{path}: not a path inside the work dir")
    folder = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        for part in parts[:-1]:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, dir_fd=folder)
            try:
                below = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
            except FileNotFoundError:
                raise
            except OSError:
                raise OSError(f"{path}: {part} is a symlink or no folder") from None
            os.close(folder)
            folder = below
    except BaseException:
        os.close(folder)
        raise
    return folder, parts[-1]


def emit(folder: str, kind: str, **fields: Any) -> None:
    """Append an event to `events.jsonl` and write it to `ev/KIND`."""
    record = {"t": time.time(), "kind": kind, **fields}
    append(os.path.join(folder, "events.jsonl"), record)
    os.makedirs(os.path.join(folder, "ev"), exist_ok=True)
    replace(os.path.join(folder, "ev", kind), (json.dumps(record) + "\n").encode())
    with contextlib.suppress(OSError):
        if os.path.getsize(os.path.join(folder, "notify", "command")):  # a command is configured
            os.spawnv(os.P_WAIT, "/bin/sh", ["sh", os.path.join(folder, "bin", "notify"), kind])


def sealed(body: str, key: str) -> str:
    """Return a result (given without its last brace) with the seal of its agent, as sh/agent/submit.sh makes it."""
    data = f"{key}\n{body}".encode("utf-8", "replace")
    seal = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
    return f'{body},"seal":"{seal}"}}\n'
