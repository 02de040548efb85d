"""What doubles of a host have to know of a chain: several shell files in one command (`muster.host.chain`)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple


class Part(NamedTuple):
    """One shell file of a chain."""

    reads: bool
    argv: list[str]
    """The command that would run it alone."""


def mark(argv: Sequence[str]) -> str:
    """Return the word that stands behind what each shell file prints; empty if the command is not a chain."""
    return argv[5] if len(argv) > 5 and argv[3] == "muster-chain" else ""


def parts(argv: Sequence[str]) -> list[Part]:
    """Return the shell files of a chain."""
    home, lib, rest, found = argv[4], argv[6], list(argv[7:]), []
    while rest:
        reads, name, count, text = rest[:4]
        words = rest[4 : 4 + int(count)]
        found.append(Part(bool(reads), ["sh", "-c", lib + text, name, home, *words]))
        rest = rest[4 + int(count) :]
    return found


def joined(mark: str, answers: Sequence[tuple[int, bytes]]) -> bytes:
    """Return what a chain prints, from the exit code and the output of each shell file."""
    return b"".join(said + f"\n{mark} {code}\n".encode() for code, said in answers)


def changed(argv: Sequence[str], out: bytes, change: Callable[[Sequence[str], bytes], bytes]) -> bytes:
    """Return what a chain printed, with what each shell file printed changed."""
    answers = []
    for part in parts(argv):
        found = re.search(rb"\n%s (\d+)\n" % mark(argv).encode(), out)
        if found is None:
            break
        code, said = int(found[1]), out[: found.start()]
        answers.append((code, said if code else change(part.argv, said)))
        out = out[found.end() :]
    return joined(mark(argv), answers)
