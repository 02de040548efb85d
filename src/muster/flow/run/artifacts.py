"""Unpacks the tar stream in which a host sends the artifacts of an agent.

The stream comes from the agent's host, so every byte of it may be hostile. Only plain files are written, below one folder. No link is
followed and no existing file replaced. The contents of the files are not inspected.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

from .results import name_flaw, shown

FILES_MOST = 1000
BYTES_MOST = 200 << 20
#: Headers in all; folders, links and long names count, too.
ENTRIES_MOST = 10_000
#: Bytes of one long name or extended header.
HEADER_MOST = 16 << 10
REFUSALS_MOST = 100
BLOCK = 512
_CHUNK = 64 << 10
_KINDS = {b"1": "a hard link", b"2": "a symlink", b"3": "a device", b"4": "a device", b"6": "a pipe"}


def unpack(archive: bytes | IO[bytes], into: Path, limit: int = BYTES_MOST) -> list[str]:
    """Write the plain files of an archive below `into`, which is created, and return what was refused, each with the reason.

    The archive is the output of `tar -cf - -C ARTIFACTS .`, uncompressed. At most `limit` bytes in `FILES_MOST` files are
    written, readable for the user only. A damaged archive is used up to the damage, which is then the last refusal.
    Raises OSError if this machine cannot write.
    """
    # Twice the limit leaves room for refused files; the rest is for headers.
    stream = _Stream(
        io.BytesIO(archive) if isinstance(archive, bytes) else archive, 2 * limit + ENTRIES_MOST * 4 * BLOCK
    )
    refused: list[str] = []
    into.mkdir(parents=True, exist_ok=True)
    top = os.open(into, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        files, left = 0, limit
        for entry in _entries(stream):
            if entry.type == b"5":
                continue  # folders are created for their files
            flaw = _flaw(entry, left)
            if not flaw and files == FILES_MOST:
                raise _Damage(f"has more than {FILES_MOST} files")
            if not flaw and not (flaw := _write(stream, entry, top)):
                files += 1
                left -= entry.size
            if flaw and len(refused) < REFUSALS_MOST:
                refused.append(f"{shown(entry.name, 200)}: {flaw}")
            elif flaw:
                raise _Damage("has too many refused entries")
    except _Damage as damage:
        refused.append(f"the archive {damage}; the rest is left out")
    finally:
        os.close(top)
    return refused


def _flaw(entry: _Entry, left: int) -> str:
    if flaw := name_flaw(entry.name):
        return f"its name {flaw}"
    if entry.type not in (b"0", b"\0"):
        return f"it is {_KINDS.get(entry.type, 'no plain file')}"
    if entry.size > left:
        return f"it is too large ({entry.size} bytes, {left} are left)"
    return ""


def _write(stream: _Stream, entry: _Entry, top: int) -> str:
    """Write a file below the open folder, and return why it could not be written. A truncated file is removed."""
    *folders, last = entry.name.split("/")
    folder = os.dup(top)
    try:
        for part in folders:
            try:
                os.mkdir(part, 0o700, dir_fd=folder)
            except FileExistsError:
                pass
            inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
            os.close(folder)
            folder = inner
        made = os.open(last, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=folder)
        try:
            with os.fdopen(made, "wb") as file:
                for chunk in stream.content(entry.size):
                    file.write(chunk)
        except (_Damage, OSError):
            os.unlink(last, dir_fd=folder)
            raise
    except (FileExistsError, NotADirectoryError):
        return "a file of that name exists already"
    finally:
        os.close(folder)
    return ""


# Reading tar. A hostile header can make the standard library's reader load hundreds of megabytes, run a regular expression in
# quadratic time, or recurse without end. This reader takes a few kilobytes for any header.


class _Entry(NamedTuple):
    name: str
    type: bytes
    size: int


class _Damage(Exception):
    """The archive cannot be read any further. The message is a phrase that begins with a verb."""


class _Stream:
    """Reads an archive forward, up to a limit."""

    def __init__(self, stream: IO[bytes], most: int) -> None:
        self._stream, self._left = stream, most
        self.empty = True
        self.pending = 0
        """Bytes of the current entry that were not read yet, with its padding."""

    def exactly(self, size: int) -> bytes:
        if size > self._left:
            raise _Damage("is too large")
        self._left -= size
        pieces, missing = [], size
        while missing:
            piece = self._stream.read(missing)  # a pipe may return less
            if not piece:
                raise _Damage("is cut off")
            self.empty = False
            pieces.append(piece)
            missing -= len(piece)
        return b"".join(pieces)

    def content(self, size: int) -> Iterator[bytes]:
        """Yield the next `size` bytes of the current entry."""
        while size:
            chunk = self.exactly(min(size, _CHUNK))
            self.pending -= len(chunk)
            size -= len(chunk)
            yield chunk

    def skip(self) -> None:
        """Skip to the next header."""
        if self.pending > self._left:
            raise _Damage("is too large")
        for _ in self.content(self.pending):
            pass


def _entries(stream: _Stream) -> Iterator[_Entry]:
    """Yield the entries in order. Read the content of one before asking for the next."""
    extended: dict[bytes, bytes] = {}
    for _ in range(ENTRIES_MOST):
        stream.skip()
        try:
            header = stream.exactly(BLOCK)
        except _Damage:
            if stream.empty:
                return
            raise
        if header == bytes(BLOCK):
            return
        if _number(header[148:156]) != sum(header) - sum(header[148:156]) + 8 * ord(" "):
            raise _Damage("is damaged")
        type, size = header[156:157], _number(header[124:136])
        stream.pending = size + -size % BLOCK
        if type in b"LKxg":
            if size > HEADER_MOST:
                raise _Damage("has a header that is too large")
            content = b"".join(stream.content(size))
            extended |= {b"path": content.rstrip(b"\0")} if type == b"L" else _records(content) if type == b"x" else {}
            continue
        name = extended.get(b"path") or _name(header)
        if b"size" in extended:
            size = int(extended[b"size"]) if extended[b"size"].isdigit() and len(extended[b"size"]) < 20 else 1 << 64
            stream.pending = size + -size % BLOCK
        if any(key.startswith(b"GNU.sparse") for key in extended):
            type = b"S"
        extended = {}
        text = name.decode("utf-8", "surrogateescape").removeprefix("./")
        # In the oldest format a folder is a name that ends with a slash.
        yield _Entry(text, b"5" if type in b"0\0" and text.endswith("/") else type, size)
    raise _Damage(f"has more than {ENTRIES_MOST} entries")


def _name(header: bytes) -> bytes:
    name, prefix = header[:100].partition(b"\0")[0], header[345:500].partition(b"\0")[0]
    return prefix + b"/" + name if prefix and header[257:263] == b"ustar\0" else name


def _number(field: bytes) -> int:
    if field[0] & 0x80:  # GNU stores large numbers in binary
        return int.from_bytes(field[1:], "big")
    digits = field.strip(b"\0 ")
    if not digits or digits.strip(b"01234567"):
        raise _Damage("is damaged")
    return int(digits, 8)


def _records(content: bytes) -> dict[bytes, bytes]:
    """Parse the `LENGTH KEY=VALUE` lines of an extended header."""
    found: dict[bytes, bytes] = {}
    at = 0
    while at < len(content):
        blank = content.find(b" ", at, at + 8)
        length = content[at : max(at, blank)]
        end = at + int(length) if length.isdigit() else 0
        if not at < end <= len(content) or content[end - 1 : end] != b"\n":
            raise _Damage("is damaged")
        key, _, value = content[blank + 1 : end - 1].partition(b"=")
        found[key] = value
        at = end
    return found
