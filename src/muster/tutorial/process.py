"""Commands of a test: started, read while they run, ended with all they forked.

One thread per test reads every pipe (`Pump`), so a program that prints a lot never waits for the test, and the transcript grows
while the test does something else. Nothing is held beyond a limit, whatever a program prints.
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

#: What is kept of each of stdout and stderr: the beginning and the end.
HEAD, TAIL = 6 << 20, 2 << 20
CHUNK = 1 << 16
#: How long a command that ended may leave its output open (a daemon it forked has it) before the test goes on.
LINGER = 0.3
GRACE = 2.0


class Line(NamedTuple):
    """One line of output: `stream` is "out" or "err", `t` the seconds since the test began."""

    stream: str
    text: str
    t: float


class Stream:
    """One of the two streams of a command: its bytes up to the limit, and its lines for the transcript."""

    def __init__(self, name: str, pipe: IO[bytes], command: Command) -> None:
        self.name = name
        self.pipe = pipe
        self.command = command
        self.over = False
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
        if len(self._partial) >= transcript.LINE and b"\n" not in data:
            self._skipped += len(data)  # the middle of an endless line
            return
        *whole, self._partial = (self._partial + self._decode(data)).split("\n")
        self.command.tell(self, [self._cut(line) + "\n" for line in whole])
        if len(self._partial) > transcript.LINE:
            self._skipped += len(self._partial) - transcript.LINE
            self._partial = self._partial[: transcript.LINE]

    def end(self) -> None:
        """No more will come, or nobody waits for more: what stands without a newline is a line too."""
        if not self.command.full and (rest := self._partial + self._decode(b"", True)):
            self._partial = ""
            self.command.tell(self, [self._cut(rest)])

    def _cut(self, line: str) -> str:
        skipped, self._skipped = self._skipped + max(0, len(line) - transcript.LINE), 0
        return f"{line[: transcript.LINE]} [… {skipped:,} more characters in this line]" if skipped else line

    @property
    def left_out(self) -> int:
        return max(0, self.total - len(self.head) - min(len(self.tail), TAIL))

    def bytes(self, since: int = 0) -> bytes:
        """What is kept of the output behind its first `since` bytes."""
        tail = bytes(self.tail[-TAIL:])
        head = bytes(self.head[since:])
        if not self.left_out:
            return head + tail[max(0, since - len(self.head)) :]
        if since >= self.total - len(tail):
            return tail[since - (self.total - len(tail)) :]
        missing = self.total - len(tail) - max(since, len(self.head))
        return head + f"\n[… {missing:,} bytes left out …]\n".encode() + tail


class Command:
    """A program that was started, with its output so far."""

    def __init__(self, number: int, text: str, process: subprocess.Popen[bytes], notes: Transcript) -> None:
        self.number = number
        self.text = text
        self.process = process
        self.lines: list[Line] = []
        self.full = False
        self._notes = notes
        self._started = time.monotonic()
        self.timeout: float | None = None
        assert process.stdout and process.stderr
        self.stdout = Stream("out", process.stdout, self)
        self.stderr = Stream("err", process.stderr, self)

    def tell(self, output: Stream, lines: list[str]) -> None:
        """To the transcript, up to its limit."""
        lines = lines[: transcript.LINES - len(self.lines)]
        if not lines:
            return
        at = self._notes.now()
        self.lines += [Line(output.name, line, at) for line in lines]
        pieces: list[tuple[str, dict[str, Any]]] = [(output.name, {"n": self.number, "text": line}) for line in lines]
        if len(self.lines) >= transcript.LINES:
            self.full = True
            pieces.append(
                ("note", {"text": f"more than {transcript.LINES:,} lines: the rest of this output is not shown"})
            )
        self._notes.write(pieces)

    @property
    def code(self) -> int | None:
        code = self.process.returncode
        return code if code is None or code >= 0 else 128 - code

    @property
    def duration(self) -> float:
        return time.monotonic() - self._started

    def end(self, grace: float = GRACE) -> None:
        """End the whole process group, politely first."""
        for sign, patience in ((signal.SIGTERM, grace), (signal.SIGKILL, 10.0)):
            if not alive(self.process.pid):
                break
            try:
                os.killpg(self.process.pid, sign)
            except ProcessLookupError:
                break
            deadline = time.monotonic() + patience
            while time.monotonic() < deadline:
                self.process.poll()
                if not alive(self.process.pid):
                    break
                time.sleep(0.01)
        self.process.wait()


def alive(group: int) -> bool:
    """Whether the process group has a member."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


class Pump:
    """Reads the output of all commands of a test, in one thread."""

    def __init__(self, notes: Transcript, marked: Callable[[Sequence[str]], list[str]] = list) -> None:
        self._notes = notes
        self._marked = marked
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
        """Run `bash -c TEXT` in a process group of its own."""
        self._count += 1
        self._notes.add("command", n=self._count, text=text, background=background)
        # A file, not a pipe: a program that never reads its input cannot hold up the test.
        given: IO[bytes] | int = subprocess.DEVNULL
        if input is not None:
            given = tempfile.TemporaryFile()  # noqa: SIM115  # closed below, when the program has it
            given.write(input)
            given.seek(0)
        try:
            process = subprocess.Popen(
                self._marked(["bash", "-c", text]),
                env=dict(env),
                cwd=cwd,
                stdin=given,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                bufsize=0,
            )
        finally:
            if not isinstance(given, int):
                given.close()
        command = Command(self._count, text, process, self._notes)
        with self._changed:
            self._new += [command.stdout, command.stderr]
        os.write(self._waker, b"x")
        return command

    def wait(self, command: Command, timeout: float) -> None:
        """Until it has ended and all it printed is read; after `timeout` its process group is ended."""
        deadline = time.monotonic() + timeout
        exited: float | None = None
        with self._changed:
            while True:
                if command.stdout.over and command.stderr.over:
                    break  # the usual end: both pipes are closed, and the exit is only moments away
                if exited is None and command.process.poll() is not None:
                    exited = time.monotonic()
                now = time.monotonic()
                if exited is not None and now > exited + LINGER and now > self._last_read + LINGER / 2:
                    break  # a program it forked has the pipes
                if now >= deadline:
                    break
                self._changed.wait(min(0.02, deadline - now) if exited is None else 0.02)
        try:
            command.process.wait(max(0.0, deadline - time.monotonic()) if exited is None else None)
        except subprocess.TimeoutExpired:
            command.timeout = timeout
            command.end()
            self._settle(command)
        with self._changed:
            command.stdout.end()
            command.stderr.end()

    def _settle(self, command: Command) -> None:
        """What was printed before the end is in the pipes still; read it, unless somebody holds them open."""
        until = time.monotonic() + LINGER
        with self._changed:
            while not (command.stdout.over and command.stderr.over) and time.monotonic() < until:
                self._changed.wait(0.02)

    def until(self, true: Callable[[], Any], timeout: float) -> Any:
        """What `true` returns as soon as it is true, looked at whenever something was printed; None after `timeout`."""
        deadline = time.monotonic() + timeout
        with self._changed:
            while True:
                if found := true():
                    return found
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
        for held in list(self._selector.get_map().values()):
            if isinstance(held.data, Stream):
                held.data.pipe.close()
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
                output.over = True
                self._selector.unregister(output.pipe)
                output.pipe.close()
            self._changed.notify_all()
