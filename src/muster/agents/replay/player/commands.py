"""Run commands while the player goes on reading its input."""

from __future__ import annotations

import contextlib
import os
import signal
import time

from .files import replace
from .terminal import Terminal

TYPE_CHECKING = False  # `typing` itself is not loaded on the host
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

PIPE_CAP = 1024 * 1024  # bytes read from a pipe after its command ended; more comes from background children
OUTPUT_CAP = 64 * 1024  # bytes of one command's output that are kept


class Commands:
    """Run one command at a time. `pump(timeout, *fds)` handles input until one of `fds` is readable; `die(signal)` ends the player."""

    def __init__(self, term: Terminal, scratch: str, pump: Callable[..., Any], die: Callable[[int], None]) -> None:
        self._term = term
        self._scratch = scratch
        self._pump = pump
        self._die = die
        self._child = 0  # -1 while it is being started: its process id is not known yet
        self._deadly = 0  # the signal that came meanwhile
        self._wake = -1

    def run(
        self,
        argv: list[str],
        timeout: float | None = None,
        extra: dict[str, str] | None = None,
        given: str = "",
        shown: bool = False,
    ) -> tuple[int, str]:
        """Return the exit code (124 after a timeout, 128 + N after signal N) and the output of a command.

        Return when the command ends, even if its background children keep the pipe open.
        """
        import subprocess

        self._watch_children()
        stdin: Any = subprocess.DEVNULL
        if given:
            replace(self._scratch, given.encode("utf-8", "replace"))
            stdin = open(self._scratch, "rb")  # noqa: SIM115  closed below
            os.unlink(self._scratch)
        self._child = -1
        try:
            process = subprocess.Popen(
                argv,
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(extra or {})},
                start_new_session=True,
            )
            self._child = process.pid
        finally:
            self._child = max(0, self._child)
            if self._deadly:
                self._die(self._deadly)
            if given:
                stdin.close()
        assert process.stdout
        pipe = process.stdout.fileno()
        os.set_blocking(pipe, False)
        output = Output(self._term if shown else None)
        end = time.monotonic() + timeout if timeout is not None else None
        code: int | None = None
        try:
            closed = False
            while code is None:
                code = process.poll()
                if code is None:
                    left = None if end is None else end - time.monotonic()
                    if left is not None and left <= 0:
                        self.end(signal.SIGKILL)
                        process.wait()
                        code = 124
                        break
                    self._pump(left, self._wake, *([] if closed else [pipe]))
                    drain(self._wake)
                closed = closed or output.read(pipe) == 0
                if shown:
                    self._term.draw()
            left_over = PIPE_CAP
            while left_over > 0:
                left_over -= output.read(pipe) or PIPE_CAP
        finally:
            if code is None:
                self.end(signal.SIGKILL)
            self._child = 0
            process.stdout.close()
        output.finish()
        if shown:
            self._term.draw()
        return (128 - code if code < 0 else code), output.text()

    def _watch_children(self) -> None:
        """Make `select` return when a child ends."""
        if self._wake < 0:
            self._wake, write = os.pipe()
            os.set_blocking(self._wake, False)
            os.set_blocking(write, False)
            signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def end_or_defer(self, number: int) -> bool:
        """End the command by this signal. While it is being started, only note the signal, and return False."""
        if self._child < 0:
            self._deadly = number
            return False
        self.end(number)
        return True

    def end(self, number: int) -> None:
        """Send a signal to the command and its children."""
        if self._child > 0:
            with contextlib.suppress(OSError):
                os.killpg(self._child, number)


class Output:
    """The output of a command: shown line by line; its beginning and its end are kept."""

    def __init__(self, term: Terminal | None) -> None:
        self._term = term
        self._line = bytearray()
        self._head = bytearray()
        self._tail = bytearray()
        self._cut = 0

    def read(self, fd: int) -> int | None:
        """Read what is available and return its size: 0 at the end of the stream, None if nothing is available now."""
        try:
            data = os.read(fd, 65536)
        except BlockingIOError:
            return None
        self._keep(data)
        if self._term:
            self._line += data
            whole = self._line.rfind(b"\n") + 1 or (len(self._line) if len(self._line) > 4096 else 0)
            if whole:
                self._term.show(bytes(self._line[:whole]).decode("utf-8", "replace"))
                del self._line[:whole]
        return len(data)

    def _keep(self, data: bytes) -> None:
        half = OUTPUT_CAP // 2
        room = half - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        over = len(self._tail) - half
        if over > 0:
            self._cut += over
            del self._tail[:over]

    def finish(self) -> None:
        if self._term and self._line:
            self._term.show(self._line.decode("utf-8", "replace"))

    def text(self) -> str:
        cut = b"\n[... %d bytes cut ...]\n" % self._cut if self._cut else b""
        return (self._head + cut + self._tail).decode("utf-8", "replace")


def drain(fd: int) -> None:
    with contextlib.suppress(BlockingIOError):
        while os.read(fd, 512):
            pass
