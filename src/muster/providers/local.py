"""The machine muster runs on, as a host."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from typing import IO

from ..host import call


def home(env: Mapping[str, str]) -> str:
    """The folder of all local state: `$MUSTER_HOME`, else the XDG state folder."""
    state = env.get("XDG_STATE_HOME") or os.path.join(env.get("HOME", "/"), ".local/state")
    return os.path.abspath(env.get("MUSTER_HOME") or os.path.join(state, "muster"))


#: Variables by which a hook or an outer session points git elsewhere; they must not affect commands on agents.
GIT_PLACES = (
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES"),
    *("GIT_COMMON_DIR", "GIT_NAMESPACE", "GIT_PREFIX", "GIT_QUARANTINE_PATH", "GIT_SHALLOW_FILE", "GIT_GRAFT_FILE"),
)


def without_git_places(argv: Sequence[str]) -> list[str]:
    found = [f"-u{name}" for name in GIT_PLACES if name in os.environ]
    return ["env", *found, *argv] if found else list(argv)


def _encoded(argv: Sequence[str]) -> list[str]:
    """The words as a process takes them, in a locale that has not all their characters too."""
    words = without_git_places(argv)
    try:
        os.fsencode("".join(words))
    except UnicodeEncodeError:
        return [word.encode("utf-8", "surrogateescape") for word in words]  # type: ignore[misc]  # subprocess takes both
    return words


class LocalHost:
    name = ""
    provider = "local"
    local = True

    def __init__(self, home: str) -> None:
        self.home = home

    def run(
        self, argv: Sequence[str], *, input: bytes | IO[bytes] | None = None, timeout: float | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        return call(_encoded(argv), input, timeout)

    def attach(self, argv: Sequence[str]) -> list[str]:
        return without_git_places(argv)

    def stream(
        self, argv: Sequence[str], *, stdin: int | IO[bytes] | None = None, stdout: int | IO[bytes] | None = None
    ) -> subprocess.Popen[bytes]:
        return subprocess.Popen(_encoded(argv), stdin=stdin, stdout=stdout)
