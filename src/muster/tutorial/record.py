"""Run a program in a new pty and record its output as an asciicast while it runs (docs/artifacts.md).

`python -m muster.tutorial.record BASE [--label TEXT] [--size COLSxROWS] [--size-command CMD] [--env-file JSON] [--hold]
-- PROGRAM ARGS…` writes BASE.cast and BASE.json. If stdin is a terminal, keys, output and size are passed through;
otherwise the program only gets the pty. The recorder exits with the program, on a signal, or when the test process is
gone. With --hold it stays after the program exited, so that the last screen remains visible. Errors go to BASE.json.
"""

from __future__ import annotations

import codecs
import errno
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
import tty
from collections.abc import Mapping
from typing import Any

from .masks import Secrets, StreamHider

#: Size limit of a recording, in bytes.
LIMIT = 50 << 20
#: Seconds between two polls of the test process and of the terminal's size.
TICK = 0.5
#: Seconds to wait until the terminal has drawn everything. It never answers if the
#: program exits in the middle of an escape sequence.
DRAW_TIMEOUT = 5.0


class CastWriter:
    """Writes BASE.cast and BASE.json."""

    def __init__(self, base: str, command: str, cols: int, rows: int, secrets: Secrets) -> None:
        self._base = base
        self._hider = StreamHider(secrets)
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._began = time.monotonic()
        self._size = 0
        self._cut = False
        started = time.time()
        self.facts: dict[str, Any] = {
            "command": secrets.hide(command),
            "started": round(started, 3),
            "ended": None,
            "exit_code": None,
            "error": None,
            "cols": cols,
            "rows": rows,
            "pid": os.getpid(),
            "ready": None,
        }
        self._fd = -1
        self._open(cols, rows, int(started))
        self.save()

    def _open(self, cols: int, rows: int, started: int) -> None:
        try:
            self._fd = os.open(f"{self._base}.cast", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        except OSError as error:
            self.facts["error"] = f"cannot record: {error.strerror}: {self._base}.cast"
            return
        env = {"TERM": os.environ.get("TERM", "xterm-256color")}
        self._line({"version": 2, "width": cols, "height": rows, "timestamp": started, "env": env})

    def save(self) -> None:
        """Replace BASE.json atomically."""
        try:
            with open(f"{self._base}.json.tmp", "w", encoding="utf-8") as file:
                json.dump(self.facts, file)
            os.replace(f"{self._base}.json.tmp", f"{self._base}.json")
        except OSError as error:
            print(f"recording {self._base}: {error}", file=sys.stderr)

    def output(self, data: bytes) -> None:
        if self._cut or not (text := self._decode(self._hider.feed(data))):
            return
        if self._size + len(text) > LIMIT:
            self._cut = True
            self.event("m", f"the recording was cut here: it reached {LIMIT >> 20} MB")
        else:
            self.event("o", text)

    def event(self, code: str, text: str) -> None:
        self._line([round(time.monotonic() - self._began, 4), code, text])

    def close(self, exit_code: int | None) -> None:
        if rest := self._decode(self._hider.rest(), True):
            self.event("o", rest)
        self.facts |= {"ended": round(time.time(), 3), "exit_code": exit_code}
        self.save()

    def _line(self, value: Any) -> None:
        data = (json.dumps(value) + "\n").encode()
        self._size += len(data)
        try:
            while data and self._fd >= 0:
                data = data[os.write(self._fd, data) :]
        except OSError as error:
            self.facts["error"] = f"the recording stopped: {error.strerror}"
            self._fd = -1


class _SecretFile:
    """The secrets of the test, read again when the file changes: a test adds a secret before it types it."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._secrets = Secrets()
        self._seen = self._state()

    def read(self) -> Secrets:
        values = json.loads(_read(self._path) or "[]")
        self._secrets.add(values, shortest=1)
        return self._secrets

    def refresh(self) -> None:
        if (state := self._state()) != self._seen:
            self._seen = state
            self.read()

    def _state(self) -> tuple[int, int, int]:
        try:
            status = os.stat(self._path)
        except OSError:
            return (0, 0, 0)
        return status.st_ino, status.st_mtime_ns, status.st_size


class Recorder:
    def __init__(
        self,
        base: str,
        argv: list[str],
        *,
        label: str,
        size: tuple[int, int],
        size_command: str,
        env_file: str,
        hold: bool,
    ) -> None:
        self._stdin_fd = 0 if os.isatty(0) else -1
        self._size = (_size_of(0) if self._stdin_fd == 0 else None) or size
        self._size_command = size_command
        self._size_process: subprocess.Popen[bytes] | None = None
        self._hold = hold
        self._stopping = False
        self._argv = argv
        # TERM stays that of our own terminal, because the program draws on it.
        term = {"TERM": os.environ.get("TERM", "xterm-256color")}
        self._env = {**json.loads(_read(env_file)), **term} if env_file else dict(os.environ)
        control = os.environ.get("MUSTER_E2E", "")
        self._owner = _read(f"{control}/pid")
        self._secrets = _SecretFile(f"{control}/secrets.json")
        self._cast = CastWriter(base, label, *self._size, self._secrets.read())
        self._wake, waker = os.pipe()
        for end in (self._wake, waker):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        signal.signal(signal.SIGWINCH, lambda *_: None)
        for sign in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(sign, self._request_stop)

    def _request_stop(self, *_: object) -> None:
        self._stopping = True

    def run(self) -> int:
        self._child, self._master = pty.fork()
        if self._child == 0:
            _exec(self._argv, self._env)
        _set_size(self._master, self._size)
        before = termios.tcgetattr(0) if self._stdin_fd == 0 else None
        if self._stdin_fd == 0:
            # TCSANOW, because the default of setraw discards keys that were already pressed.
            tty.setraw(0, termios.TCSANOW)
        self._cast.facts["ready"] = True
        self._cast.save()
        try:
            code = self._loop()
            self._wait_until_drawn()
        finally:
            if before is not None:
                try:
                    termios.tcsetattr(0, termios.TCSANOW, before)
                except termios.error:
                    pass
        self._cast.close(code)
        while self._hold and not self._stopping and self._owner_is_alive():
            select.select([self._wake], [], [], TICK)
        return code if self._cast.facts["error"] is None else 1

    def _loop(self) -> int:
        status: int | None = None
        quiet = 0
        while True:
            ready, _, _ = select.select([self._master, self._wake, *([0] if self._stdin_fd == 0 else [])], [], [], 0.05)
            if self._wake in ready:
                os.read(self._wake, 4096)
            if self._master in ready:
                data = self._read()
                if not data:
                    break
                quiet = 0
                self._secrets.refresh()
                self._cast.output(data)
                self._show(data)
            elif status is not None:
                quiet += 1
                if quiet > 2:
                    break  # the program exited, and processes that it forked print nothing
            if 0 in ready and self._stdin_fd == 0:
                self._pass_keys()
            self._follow_size()
            if self._stopping or not self._owner_is_alive():
                return self._stop()
            if status is None:
                pid, wait_status = os.waitpid(self._child, os.WNOHANG)
                status = wait_status if pid else None
        if status is None:
            status = os.waitpid(self._child, 0)[1]
        return _code(status)

    def _wait_until_drawn(self) -> None:
        """Wait until the terminal has drawn everything: it reports its cursor position only after earlier output."""
        self._show(b"\x1b[6n")
        deadline = time.monotonic() + DRAW_TIMEOUT
        answer = b""
        while self._stdin_fd == 0 and not re.search(rb"\x1b\[\d+;\d+R", answer) and time.monotonic() < deadline:
            if self._stopping or not self._owner_is_alive():
                return
            if select.select([0], [], [], 0.05)[0]:
                try:
                    answer = (answer + os.read(0, 4096))[-4096:]
                except OSError:
                    return

    def _show(self, data: bytes) -> None:
        try:
            if self._stdin_fd == 0:
                _write(1, data)
        except OSError:  # the window was closed
            self._stdin_fd = -1

    def _pass_keys(self) -> None:
        try:
            keys = os.read(0, 65536)
        except OSError:
            keys = b""
        if keys:
            _write(self._master, keys)
        else:
            self._stdin_fd = -1

    def _read(self) -> bytes:
        try:
            return os.read(self._master, 65536)
        except OSError as error:
            if error.errno == errno.EIO:  # Linux reports this once no process has the pty open
                return b""
            raise

    def _stop(self) -> int:
        """End the program: SIGHUP, like a terminal that is closed, then SIGKILL. Return its exit code."""
        for sign, seconds in ((signal.SIGHUP, 1.0), (signal.SIGKILL, 5.0)):
            try:
                os.killpg(self._child, sign)
            except ProcessLookupError:
                pass
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline:
                if select.select([self._master], [], [], 0.02)[0] and (data := self._read()):
                    self._secrets.refresh()
                    self._cast.output(data)
                pid, status = os.waitpid(self._child, os.WNOHANG)
                if pid:
                    return _code(status)
        return 128 + signal.SIGKILL

    def _follow_size(self) -> None:
        size = _size_of(0) if self._stdin_fd == 0 else self._size_from_command()
        if size and size != self._size:
            self._size = size
            _set_size(self._master, size)
            self._cast.event("r", f"{size[0]}x{size[1]}")

    _next_poll = 0.0

    def _size_from_command(self) -> tuple[int, int] | None:
        """Poll the size command without blocking; return the size if a run of it has just finished."""
        if not self._size_command:
            return None
        if self._size_process is None:
            if time.monotonic() >= self._next_poll:
                self._next_poll = time.monotonic() + TICK
                self._size_process = subprocess.Popen(
                    ["sh", "-c", self._size_command],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                )
            return None
        if self._size_process.poll() is None:
            return None
        assert self._size_process.stdout
        words = self._size_process.stdout.read().decode("ascii", "replace").split()
        self._size_process.stdout.close()
        self._size_process = None
        numbers = [int(word) for word in words[:2] if word.isdigit() and 0 < int(word) < 10_000]
        return (numbers[0], numbers[1]) if len(numbers) == 2 else None

    def _owner_is_alive(self) -> bool:
        try:
            os.kill(int(self._owner), 0)
        except (ValueError, PermissionError):
            return True
        except ProcessLookupError:
            return False
        return True


def _exec(argv: list[str], environment: Mapping[str, str]) -> None:
    """Replace this process by the program; exit with 127 if that fails."""
    env = {key: value for key, value in environment.items() if key not in ("TMUX", "TMUX_PANE")}
    try:
        os.execvpe(argv[0], argv, env)
    except OSError as error:
        os.write(2, f"{argv[0]}: {error.strerror}\n".encode())
        os._exit(127)


def _code(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _size_of(fd: int) -> tuple[int, int] | None:
    try:
        rows, cols = struct.unpack("HHHH", fcntl.ioctl(fd, termios.TIOCGWINSZ, b"\0" * 8))[:2]
    except OSError:  # a closed window has no size
        rows, cols = 0, 0
    return (cols, rows) if cols and rows else None


def _set_size(fd: int, size: tuple[int, int]) -> None:
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))


def _write(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""


def main(argv: list[str]) -> int:
    import argparse

    parser = argparse.ArgumentParser(prog="muster.tutorial.record")
    parser.add_argument("base")
    parser.add_argument("--label", default="")
    parser.add_argument("--size", default="80x24")
    parser.add_argument("--size-command", default="")
    parser.add_argument("--env-file", default="")
    parser.add_argument("--hold", action="store_true")
    separator = argv.index("--")
    args = parser.parse_args(argv[:separator])
    cols, _, rows = args.size.partition("x")
    return Recorder(
        args.base,
        argv[separator + 1 :],
        label=args.label,
        size=(int(cols), int(rows)),
        size_command=args.size_command,
        env_file=args.env_file,
        hold=args.hold,
    ).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
