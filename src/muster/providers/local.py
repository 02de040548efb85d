"""The machine muster runs on, as a host."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from typing import IO

from ..host import call


def home(env: Mapping[str, str]) -> str:
    """The folder of all local state: `$MUSTER_HOME`, else the XDG state folder."""
    given = env.get("MUSTER_HOME")
    if given:
        return os.path.abspath(given)
    state = env.get("XDG_STATE_HOME") or os.path.join(env.get("HOME", "/"), ".local/state")
    return os.path.join(state, "muster")


class LocalHost:
    name = ""
    provider = "local"

    def __init__(self, home: str) -> None:
        self.home = home

    def run(
        self, argv: Sequence[str], *, input: bytes | IO[bytes] | None = None, timeout: float | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        return call(argv, input, timeout)

    def attach(self, argv: Sequence[str]) -> list[str]:
        return list(argv)

    def stream(
        self, argv: Sequence[str], *, stdin: int | IO[bytes] | None = None, stdout: int | IO[bytes] | None = None
    ) -> subprocess.Popen[bytes]:
        return subprocess.Popen(argv, stdin=stdin, stdout=stdout)


class Local:
    def host(self, name: str, settings: dict[str, object]) -> LocalHost:
        return LocalHost(home(os.environ))


PROVIDER = Local()
