"""A real host that counts what is asked of it."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Sequence
from typing import IO

from muster.providers.local import LocalHost

from . import chains


class CountingHost(LocalHost):
    """Another machine as far as muster can see: each command is one round trip, and `asked` has the scripts that ran."""

    name = "box"
    provider = "ssh"
    local = False

    def __init__(self, home: str, name: str = "box") -> None:
        super().__init__(home)
        self.name = name
        self.asked: list[str] = []
        self.received = 0
        """Bytes that came back."""
        self.before: Callable[[], object] = lambda: None
        """Called before each command, on the thread that waits for it."""
        self._lock = threading.Lock()

    def run(
        self, argv: Sequence[str], *, input: bytes | IO[bytes] | None = None, timeout: float | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        with self._lock:
            parts = [part.argv for part in chains.parts(argv)] if chains.mark(argv) else [argv]
            self.asked.append(" + ".join(map(_script, parts)))
        self.before()
        done = super().run(argv, input=input, timeout=timeout)
        with self._lock:
            self.received += len(done.stdout)
        return done

    def stream(
        self, argv: Sequence[str], *, stdin: int | IO[bytes] | None = None, stdout: int | IO[bytes] | None = None
    ) -> subprocess.Popen[bytes]:
        with self._lock:
            self.asked.append(_script(argv))
        self.before()
        return super().stream(argv, stdin=stdin, stdout=stdout)

    def trips(self) -> list[str]:
        """Return what was asked since the last call."""
        with self._lock:
            asked, self.asked = self.asked, []
        return asked


def _script(argv: Sequence[str]) -> str:
    """Return the name of the shell file that a command runs, with its verb, or else its first words."""
    for number, word in enumerate(argv):
        if word.startswith("muster-"):
            return " ".join([word.removeprefix("muster-"), *argv[number + 2 : number + 3]])[:60]
    return " ".join(argv)[:60]
