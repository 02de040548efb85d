"""Run terminal programs in a test: send keys, read the screen, record everything. Each test has its own tmux server."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import time
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from . import styles
from .connect import new_recording, recorder_argv, recording_facts
from .keys import arguments as key_arguments
from .masks import HIDDEN

if TYPE_CHECKING:
    from .session import E2eSession

#: Default timeout of expectations, in seconds.
TIMEOUT = 30.0
#: Rows of scrollback. When this many are reached, tmux drops a tenth of them.
HISTORY = 100_000
#: Hide everything that tmux itself draws, and pass Esc on without a delay.
OPTIONS = (
    ("-g", "status", "off"),
    ("-g", "default-terminal", "screen-256color"),
    ("-g", "history-limit", str(HISTORY)),
    ("-s", "escape-time", "0"),
    ("-s", "exit-empty", "off"),
)
#: Sequences that clear the screen or leave the alternate screen.
CLEARS = re.compile(rb"(?:\x1b\[H)?\x1b\[[23]?J|\x1b\[\?(?:1049|1047|47)l|\x1bc")


class Server:
    """The tmux server of one test's terminals."""

    def __init__(
        self, control: Path, env: Mapping[str, str], tagged: Callable[[Sequence[str]], list[str]] = list
    ) -> None:
        self._argv = ["tmux", "-S", str(control / "terminals.sock"), "-f", "/dev/null", "-u"]
        self._env = {key: value for key, value in env.items() if key not in ("TMUX", "TMUX_PANE")}
        self._marked = tagged
        self._up = False

    def run(self, *argv: str, input: bytes | None = None) -> str:
        """Run a tmux command and return its output. Raises RuntimeError if it fails."""
        return self.run_all(argv, input=input)

    def run_all(self, *commands: Sequence[str], input: bytes | None = None) -> str:
        """Run several tmux commands in one call and return their output."""
        words = [word for command in commands for word in (*map(_escaped, command), ";")][:-1]
        argv = [*self._argv, *words]
        try:
            # The first command starts the server, so it must carry the tag of the test's processes.
            argv = self._marked(argv) if commands[0][0] == "start-server" else argv
            done = subprocess.run(argv, env=self._env, input=input, capture_output=True, timeout=20, check=False)
        except FileNotFoundError:
            raise RuntimeError("e2e.terminal needs tmux, which is not on the PATH: install it") from None
        if done.returncode:
            error = done.stderr.decode("utf-8", "replace").strip()
            raise RuntimeError(f"tmux {commands[-1][0]} failed: {error}")
        return done.stdout.decode("utf-8", "replace")

    def window(self, command: str, size: tuple[int, int], cwd: str) -> str:
        """Run a shell command line in a new window and return the id of its pane."""
        setup: list[tuple[str, ...]] = []
        if not self._up:
            self._up = True
            setup = [("start-server",), *(("set-option", *option) for option in OPTIONS)]
        cols, rows = size
        options = ("-x", str(cols), "-y", str(rows), "-P", "-F", "#{pane_id}")
        return self.run_all(*setup, ("new-session", "-d", *options, "-c", cwd, command)).strip()

    def end(self) -> None:
        if not self._up:
            return
        self._up = False
        try:
            pid = int(self.run("display-message", "-p", "#{pid}"))
            self.run("kill-server")
        except (RuntimeError, ValueError):
            return  # the server has already exited
        deadline = time.monotonic() + 5
        while exists(pid) and time.monotonic() < deadline:
            time.sleep(0.01)


def _escaped(word: str) -> str:
    """Escape an argument for tmux, where a semicolon at the end of a word would end the command."""
    return f"{word[:-1]}\\;" if word.endswith(";") else word


def exists(pid: object) -> bool:
    """Return whether the process is alive. Zombies, which tmux does not always reap, count as dead."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        if os.path.isdir("/proc/self"):
            return False
    try:
        os.kill(int(str(pid)), 0)
    except (ProcessLookupError, ValueError):
        return False
    except PermissionError:
        return True
    return True


class Cursor(NamedTuple):
    """The position of the cursor, counted from 0 at the top left, and whether it is visible."""

    column: int
    row: int
    visible: bool


class Mark(NamedTuple):
    """A position in a terminal's output, made by `terminal.mark()` for `terminal.since(mark)`."""

    row: int
    """Counted from the first row that the terminal ever showed."""
    column: int
    alternate: bool
    resizes: int


class View:
    """A part of a terminal's text, read anew on each access."""

    def __init__(self, terminal: Terminal) -> None:
        self.terminal = terminal
        self._last = ("", "")

    @property
    def text(self) -> str:
        """The rows without trailing white space."""
        return self.variants()[0]

    @property
    def lines(self) -> list[str]:
        return self.text.split("\n")

    def __contains__(self, text: str) -> bool:
        return any(text in reading for reading in self.variants())

    def __str__(self) -> str:
        return self.text

    def variants(self) -> tuple[str, str]:
        """Return the text twice: row by row, and with wrapped rows joined."""
        if (text := self._read()) is not None:
            self._last = text
        return self._last

    def _read(self) -> tuple[str, str] | None:
        return self.terminal.capture()

    def wait(self, condition: Callable[[str], bool], timeout: float | None = None) -> bool:
        """Wait until the condition is true for one variant of the text, the program exits, or the time is up.

        Returns whether the condition was true.
        """
        return self.until(lambda variants: any(map(condition, variants)), timeout)

    def until(self, condition: Callable[[tuple[str, str]], bool], timeout: float | None = None) -> bool:
        """Like `wait`, for a condition of both variants of the text."""
        deadline = time.monotonic() + (self.terminal.timeout if timeout is None else timeout)
        while True:
            ended = self.terminal.exit_code is not None
            if condition(self.variants()):
                return True
            if ended or time.monotonic() >= deadline:
                return False
            time.sleep(0.02)


class Screen(View):
    """The visible screen of a terminal."""

    def _read(self) -> tuple[str, str] | None:
        return self.terminal.read_screen()

    @property
    def cursor(self) -> Cursor:
        column, row, visible = self.terminal.query("cursor_x", "cursor_y", "cursor_flag")
        return Cursor(int(column), int(row), visible == "1")

    @property
    def styles(self) -> list[styles.Row]:
        """The rows as pieces of text with their styles, such as ("3 failed", {"bold", "red"})."""
        return styles.rows(self.terminal.capture_styled())

    def style_of(self, text: str) -> frozenset[str]:
        """Return the style that all characters of the first occurrence of the text share; empty if plain or not shown."""
        return next(iter(styles.styles_of(text, self.styles)), styles.PLAIN)


class Scrollback(View):
    """The screen of a terminal together with the rows that scrolled off it."""

    def _read(self) -> tuple[str, str] | None:
        return self.terminal.capture("-S", "-")


class ScreenSince(View):
    """The text of a terminal after a mark, including rows that scrolled off since."""

    def __init__(self, terminal: Terminal, mark: Mark) -> None:
        super().__init__(terminal)
        self._mark = mark

    def _read(self) -> tuple[str, str] | None:
        return self.terminal.capture_since(self._mark)


class Terminal:
    """A program in a terminal. Created by `e2e.terminal(command, size=(80, 24))`."""

    def __init__(
        self,
        server: Server,
        command: str,
        *,
        size: tuple[int, int],
        cwd: str,
        env_file: Path,
        recordings: Path,
        name: str,
        session: E2eSession,
        timeout: float = TIMEOUT,
    ) -> None:
        self._server = server
        self._session = session
        self.command = command
        self.timeout = timeout
        self._base = new_recording(str(recordings), name)
        self.name = os.path.basename(self._base)
        self.screen = Screen(self)
        self.scrollback = Scrollback(self)
        self._last = ""
        self._closed = False
        self._resizes = 0
        options = ["--hold", "--env-file", str(env_file)]
        recorder = [*recorder_argv(self._base, command), *options, "--", "bash", "-c", command]
        self._session.log("terminal", text=command, recording=self.name, cols=size[0], rows=size[1])
        self._pane = server.window(shlex.join(["exec", *recorder]), size, cwd)
        self._wait_for("ready")

    def _wait_for(self, fact: str, timeout: float = 20.0) -> Any:
        deadline = time.monotonic() + timeout
        while (state := recording_facts(self._base)).get(fact) is None:
            if "pid" in state and not exists(state["pid"]) and recording_facts(self._base).get(fact) is None:
                raise RuntimeError(f"the recorder of {self.name} was killed")
            if time.monotonic() > deadline:
                raise RuntimeError(f"recording {self.name} has no {fact!r} after {timeout:g} s: {state}")
            time.sleep(0.02)
        return state[fact]

    @property
    def session(self) -> E2eSession:
        return self._session

    def note(self, text: str) -> None:
        self._session.note(text)

    def transcript(self) -> str:
        return self._session.transcript()

    def read_screen(self) -> tuple[str, str] | None:
        """Return the screen twice: row by row, and with wrapped rows joined. Once closed, return the last screen."""
        screen = self.capture()
        if screen is None:
            return (self._last, self._last) if self._closed else None
        if screen[0].strip():
            self._last = screen[0]
        return screen

    def capture(self, *options: str) -> tuple[str, str] | None:
        """Return the text of the pane twice: row by row, and with wrapped rows joined; None if the pane is gone."""
        capture = ("capture-pane", "-p", "-t", self._pane, *options)
        separator = f"[{self.name}]"
        output = self._run(capture, ("display-message", "-p", separator), (*capture, "-J"))
        if output is None:
            return None
        rows, _, joined = output.partition(f"{separator}\n")
        return _trimmed(rows), _trimmed(joined)

    def capture_styled(self) -> str:
        return self._run(("capture-pane", "-p", "-e", "-N", "-t", self._pane)) or ""

    def capture_since(self, mark: Mark) -> tuple[str, str] | None:
        if mark.resizes != self._resizes:
            raise ValueError(f"{self.name} was resized after the mark was made, which moves its rows: make a new mark")
        values = self._query("history_size", "alternate_on")
        if values is None:
            return None
        history, alternate = values
        if int(history) > HISTORY * 9 // 10:
            raise ValueError(
                f"{self.name} printed more than {HISTORY * 9 // 10:,} rows, too many to find the mark again"
            )
        if (alternate == "1") != mark.alternate:
            return self.capture()  # main and alternate screen were switched since the mark, so all text is new
        text = self.capture("-S", str(mark.row - int(history)))
        return None if text is None else (_drop_cells(text[0], mark.column), _drop_cells(text[1], mark.column))

    def query(self, *names: str) -> list[str]:
        """Return values of tmux format variables. Raises RuntimeError if the terminal is closed."""
        if (values := self._query(*names)) is None:
            raise RuntimeError(f"the terminal {self.name} is closed")
        return values

    def _query(self, *names: str) -> list[str] | None:
        output = self._run(("display-message", "-p", "-t", self._pane, " ".join(f"#{{{name}}}" for name in names)))
        return output.split() if output is not None else None

    def _run(self, *commands: Sequence[str]) -> str | None:
        if self._closed:
            return None
        try:
            return self._server.run_all(*commands)
        except RuntimeError as error:
            if re.search("can't find|no current|no server|lost server|error connecting|server exited", str(error)):
                return None  # the window is gone because the recorder was killed; `finish` reports that
            raise

    def mark(self) -> Mark:
        """Return a mark at the current position of the cursor, for `since`."""
        column, row, history, alternate = self.query("cursor_x", "cursor_y", "history_size", "alternate_on")
        return Mark(int(history) + int(row), int(column), alternate == "1", self._resizes)

    def since(self, mark: Mark) -> ScreenSince:
        """Return the text after a mark, for `expect`: earlier text does not count."""
        return ScreenSince(self, mark)

    def type(self, text: str, secret: bool = False) -> None:
        """Type the text; a newline is Enter. With `secret`, the text is hidden in all artifacts from now on."""
        if secret:
            self._session.add_secret(text)
        self._session.log("keys", text=HIDDEN if secret else json.dumps(self._session.hide(text), ensure_ascii=False))
        for number, line in enumerate(text.split("\n")):
            if number:
                self._send(("--", "Enter"))
            if secret and line:
                self._paste(line)
                continue
            for start in range(0, len(line), 1000):
                self._send(("-l", "--", line[start : start + 1000]))

    def enter(self, line: str) -> Mark:
        """Type a line, wait until the program has echoed it, press Enter; return the mark after the echo.

        Raises AssertionError if there is no echo. For input without an echo, such as a password, use `type`.
        """
        __tracebackhide__ = True
        before = self.mark()
        self.type(line)
        echo, wanted = self.since(before), "".join(line.split())
        # Compare without white space, because some programs wrap their input themselves and indent the next row.
        if not echo.wait(lambda output: wanted in "".join(output.split())):
            from .expectations import expect

            expect(echo).to_contain(line, timeout=0)
        mark = self.mark()
        self.press("Enter")
        return mark

    def _paste(self, text: str) -> None:
        """Send a text without putting it on a command line, which every user of the machine can read."""
        self._server.run("load-buffer", "-b", self.name, "-", input=text.encode("utf-8", "surrogateescape"))
        self._server.run("paste-buffer", "-d", "-r", "-b", self.name, "-t", self._pane)

    def press(self, *keys: str) -> None:
        """Press keys by name: `Enter`, `Esc`, `Up`, `Ctrl-C`, `Alt-x`, `Shift-Tab`, `F1`, or one character."""
        arguments_of_keys = [key_arguments(key) for key in keys]
        self._session.log("keys", text=" ".join(keys))
        for arguments in arguments_of_keys:
            self._send(arguments)

    def _send(self, arguments: Sequence[str]) -> None:
        self._server.run("send-keys", "-t", self._pane, *arguments)

    def resize(self, cols: int, rows: int) -> None:
        self._session.note(f"terminal {self.name} was resized to {cols}x{rows}")
        self._resizes += 1
        self._server.run("resize-window", "-t", self._pane, "-x", str(cols), "-y", str(rows))

    @property
    def exit_code(self) -> int | None:
        """The exit code; None while the program runs."""
        state = recording_facts(self._base)
        code = state.get("exit_code")
        return code if isinstance(code, int) and state.get("ended") is not None else None

    def wait(self, timeout: float | None = None) -> int | None:
        """Wait until the program exits and return its exit code; None if it still runs after the timeout."""
        deadline = time.monotonic() + (self.timeout if timeout is None else timeout)
        while (code := self.exit_code) is None and time.monotonic() < deadline:
            time.sleep(0.02)
        return code

    def close(self) -> None:
        """Close the terminal. A program that is still running gets SIGHUP, as when a window is closed."""
        if self._closed:
            return
        self.read_screen()
        running = self.exit_code is None
        self._closed = True
        try:
            self._server.run("kill-session", "-t", self._pane)
        except RuntimeError:
            pass  # the window is already gone
        self._wait_for("ended")
        if not running:
            self._session.note(f"terminal {self.name}: the program exited with {self.exit_code}")

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _trimmed(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.split("\n")).rstrip("\n")


def _drop_cells(text: str, column: int) -> str:
    """Return the text without the first `column` cells of its first row; a wide character takes two cells."""
    first, newline, rest = text.partition("\n")
    at = 0
    while at < len(first) and column > 0:
        column -= 2 if unicodedata.east_asian_width(first[at]) in "WF" else 0 if unicodedata.combining(first[at]) else 1
        at += 1
    return first[at:] + newline + rest


def last_screen(cast: Path, server: Server) -> str:
    """Return the last screen of a recording that has any text, as drawn by tmux."""
    cols, rows, output = 80, 24, bytearray()
    with open(cast, encoding="utf-8", errors="replace") as file:
        for line in file:
            try:
                value = json.loads(line)
            except ValueError:
                continue
            if isinstance(value, dict):
                cols, rows = int(value.get("width", 80)), int(value.get("height", 24))
            elif isinstance(value, list) and len(value) == 3 and value[1] == "o":
                output += str(value[2]).encode("utf-8", "replace")
                del output[: -(1 << 20)]
            elif isinstance(value, list) and len(value) == 3 and value[1] == "r":
                cols, rows = (int(side) for side in str(value[2]).split("x"))
    data = bytes(output)
    text = _render(data, cols, rows, cast, server)
    # A full-screen program clears its screen when it exits. Its last content before that is the useful one.
    for clear in reversed(list(CLEARS.finditer(data))[-4:]):
        if _has_content(text):
            break
        text = _render(data[: clear.start()], cols, rows, cast, server)
    return text


def _has_content(text: str) -> bool:
    """Return whether the screen has more text than tmux's own messages, such as [exited]."""
    return any(not re.fullmatch(r"\[[^]]*\]", line.strip()) for line in text.split("\n") if line.strip())


def _render(data: bytes, cols: int, rows: int, cast: Path, server: Server) -> str:
    raw = Path(f"{cast}.raw")
    done = Path(f"{cast}.drawn")
    raw.write_bytes(data)
    try:
        # The terminal reports its cursor position only after it has drawn all earlier output.
        quoted_raw, quoted_done = shlex.quote(str(raw)), shlex.quote(str(done))
        script = f"stty raw -echo; cat {quoted_raw}; printf '\\033[6n'; head -c 1 >/dev/null; : > {quoted_done}; exec sleep 60"
        pane = server.window(f"exec sh -c {shlex.quote(script)}", (cols, rows), "/")
        deadline = time.monotonic() + 10
        while not done.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        screen = server.run("capture-pane", "-p", "-t", pane)
        server.run("kill-session", "-t", pane)
    finally:
        raw.unlink(missing_ok=True)
        done.unlink(missing_ok=True)
    return _trimmed(screen)
