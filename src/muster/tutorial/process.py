"""Run the commands of a test: start them, read their output while they run, end them with everything they forked.

One thread per test reads every pipe (`OutputReader`). So a program that prints a lot never blocks on the test, and the
transcript grows while the test does something else. The memory used for output is limited.
"""

from __future__ import annotations

import codecs
import os
import selectors
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any, NamedTuple

from . import transcript
from .transcript import Transcript

#: Bytes kept of the beginning and of the end of each of stdout and stderr.
HEAD, TAIL = 6 << 20, 2 << 20
CHUNK = 1 << 16
#: Seconds to wait for more output after a command exited while a daemon that it forked still holds its pipes.
LINGER = 0.3
#: Seconds between SIGTERM and SIGKILL.
GRACE = 2.0


class Line(NamedTuple):
    """One line of output. `stream` is "out" or "err"; `t` is in seconds since the test began."""

    stream: str
    text: str
    t: float


class Stream:
    """stdout or stderr of a command: keeps the bytes up to the limit, and writes lines to the transcript."""

    def __init__(self, name: str, pipe: IO[bytes], command: Command) -> None:
        self.name = name
        self.pipe = pipe
        self.command = command
        self.closed = False
        self.head, self.tail = bytearray(), bytearray()
        self.total = 0
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._partial = ""
        self._skipped = 0

    def feed(self, data: bytes) -> None:
        self.total += len(data)
        room = HEAD - len(self.head)
        self.head += data[:room]
        if len(data) > room:
            self.tail += data[max(0, room) :]
            if len(self.tail) > 2 * TAIL:
                del self.tail[:-TAIL]
        if self.command.full:
            return
        if len(self._partial) >= transcript.MAX_LINE and b"\n" not in data:
            self._skipped += len(data)  # the middle of a line that is too long for the transcript
            return
        *complete, self._partial = (self._partial + self._decode(data)).split("\n")
        self.command.write_lines(self, [self._cut(line) + "\n" for line in complete])
        if len(self._partial) > transcript.MAX_LINE:
            self._skipped += len(self._partial) - transcript.MAX_LINE
            self._partial = self._partial[: transcript.MAX_LINE]

    def end(self) -> None:
        """Write an unfinished last line to the transcript, because no more output is expected."""
        if not self.command.full and (rest := self._partial + self._decode(b"", True)):
            self._partial = ""
            self.command.write_lines(self, [self._cut(rest)])

    def _cut(self, line: str) -> str:
        skipped, self._skipped = self._skipped + max(0, len(line) - transcript.MAX_LINE), 0
        return f"{line[: transcript.MAX_LINE]} [… {skipped:,} more characters in this line]" if skipped else line

    @property
    def left_out(self) -> int:
        """Number of bytes that were not kept."""
        return max(0, self.total - len(self.head) - min(len(self.tail), TAIL))

    def bytes(self, since: int = 0) -> bytes:
        """Return the output after its first `since` bytes, with a marker in place of bytes that were not kept."""
        tail = bytes(self.tail[-TAIL:])
        head = bytes(self.head[since:])
        if not self.left_out:
            return head + tail[max(0, since - len(self.head)) :]
        if since >= self.total - len(tail):
            return tail[since - (self.total - len(tail)) :]
        missing = self.total - len(tail) - max(since, len(self.head))
        return head + f"\n[… {missing:,} bytes left out …]\n".encode() + tail


class Command:
    """A running or finished command with its output so far."""

    def __init__(self, number: int, text: str, process: subprocess.Popen[bytes], log: Transcript) -> None:
        self.number = number
        self.text = text
        self.process = process
        self.lines: list[Line] = []
        self.full = False
        self._transcript = log
        self._started = time.monotonic()
        self.timeout: float | None = None
        assert process.stdout and process.stderr
        self.stdout = Stream("out", process.stdout, self)
        self.stderr = Stream("err", process.stderr, self)

    def write_lines(self, output: Stream, lines: list[str]) -> None:
        """Write lines to the transcript, up to its limit per command."""
        lines = lines[: transcript.MAX_LINES - len(self.lines)]
        if not lines:
            return
        at = self._transcript.now()
        self.lines += [Line(output.name, line, at) for line in lines]
        entries: list[tuple[str, dict[str, Any]]] = [(output.name, {"n": self.number, "text": line}) for line in lines]
        if len(self.lines) >= transcript.MAX_LINES:
            self.full = True
            entries.append(
                ("note", {"text": f"more than {transcript.MAX_LINES:,} lines: the rest of this output is not shown"})
            )
        self._transcript.write(entries)

    @property
    def code(self) -> int | None:
        """The exit code, 128 + N for a signal; None while the command runs."""
        code = self.process.returncode
        return code if code is None or code >= 0 else 128 - code

    @property
    def duration(self) -> float:
        return time.monotonic() - self._started

    def end(self, grace: float = GRACE) -> None:
        """End the whole process group: SIGTERM, and SIGKILL after `grace` seconds."""
        for sign, seconds in ((signal.SIGTERM, grace), (signal.SIGKILL, 10.0)):
            if not alive(self.process.pid):
                break
            try:
                os.killpg(self.process.pid, sign)
            except ProcessLookupError:
                break
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline:
                self.process.poll()
                if not alive(self.process.pid):
                    break
                time.sleep(0.01)
        self.process.wait()


def alive(group: int) -> bool:
    """Return whether the process group has a live member."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


class OutputReader:
    """Starts the commands of a test and reads the output of all of them in one thread."""

    def __init__(self, log: Transcript, tagged: Callable[[Sequence[str]], list[str]] = list) -> None:
        self._transcript = log
        self._marked = tagged
        self._selector = selectors.DefaultSelector()
        self._wake, self._waker = os.pipe()
        os.set_blocking(self._wake, False)
        self._selector.register(self._wake, selectors.EVENT_READ)
        self._changed = threading.Condition()
        self._new: list[Stream] = []
        self._closing = False
        self._last_read = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="e2e output", daemon=True)
        self._thread.start()
        self._count = 0

    def start(
        self, text: str, *, env: Mapping[str, str], cwd: str, input: bytes | None, background: bool = False
    ) -> Command:
        """Start `bash -c TEXT` in a new process group."""
        self._count += 1
        self._transcript.add("command", n=self._count, text=text, background=background)
        # A file instead of a pipe, because a program that never reads its input would block the test.
        stdin: IO[bytes] | int = subprocess.DEVNULL
        if input is not None:
            stdin = tempfile.TemporaryFile()  # noqa: SIM115  # closed below, after the program inherited it
            stdin.write(input)
            stdin.seek(0)
        try:
            process = subprocess.Popen(
                self._marked(["bash", "-c", text]),
                env=dict(env),
                cwd=cwd,
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                bufsize=0,
            )
        finally:
            if not isinstance(stdin, int):
                stdin.close()
        command = Command(self._count, text, process, self._transcript)
        with self._changed:
            self._new += [command.stdout, command.stderr]
        os.write(self._waker, b"x")
        return command

    def wait(self, command: Command, timeout: float) -> None:
        """Wait until the command has exited and its output is read. After `timeout` seconds, end its process group."""
        deadline = time.monotonic() + timeout
        exited: float | None = None
        with self._changed:
            while True:
                if command.stdout.closed and command.stderr.closed:
                    break  # the usual case: both pipes are closed, so the exit follows at once
                if exited is None and command.process.poll() is not None:
                    exited = time.monotonic()
                now = time.monotonic()
                if exited is not None and now > exited + LINGER and now > self._last_read + LINGER / 2:
                    break  # a program that the command forked still holds the pipes
                if now >= deadline:
                    break
                self._changed.wait(min(0.02, deadline - now) if exited is None else 0.02)
        try:
            command.process.wait(max(0.0, deadline - time.monotonic()) if exited is None else None)
        except subprocess.TimeoutExpired:
            command.timeout = timeout
            command.end()
            self._read_rest(command)
        with self._changed:
            command.stdout.end()
            command.stderr.end()

    def _read_rest(self, command: Command) -> None:
        """Wait until the output that is still in the pipes is read, at most LINGER seconds."""
        until = time.monotonic() + LINGER
        with self._changed:
            while not (command.stdout.closed and command.stderr.closed) and time.monotonic() < until:
                self._changed.wait(0.02)

    def until(self, condition: Callable[[], Any], timeout: float) -> Any:
        """Wait until `condition` returns a true value and return it; None after `timeout` seconds.

        The condition is evaluated whenever a command prints something, and at least every 0.05 s.
        """
        deadline = time.monotonic() + timeout
        with self._changed:
            while True:
                if value := condition():
                    return value
                if time.monotonic() >= deadline:
                    return None
                self._changed.wait(0.05)

    def close(self) -> None:
        self._closing = True
        os.write(self._waker, b"x")
        self._thread.join(5)

    def _run(self) -> None:
        while not self._closing:
            for key, _ in self._selector.select():
                if key.fd == self._wake:
                    os.read(self._wake, 4096)
                    with self._changed:
                        new, self._new = self._new, []
                    for output in new:
                        self._selector.register(output.pipe, selectors.EVENT_READ, output)
                    continue
                self._read(key.data)
        for entry in list(self._selector.get_map().values()):
            if isinstance(entry.data, Stream):
                entry.data.pipe.close()
        self._selector.close()
        os.close(self._wake)
        os.close(self._waker)

    def _read(self, output: Stream) -> None:
        data = os.read(output.pipe.fileno(), CHUNK)
        with self._changed:
            self._last_read = time.monotonic()
            if data:
                output.feed(data)
            else:
                output.end()
                output.closed = True
                self._selector.unregister(output.pipe)
                output.pipe.close()
            self._changed.notify_all()
