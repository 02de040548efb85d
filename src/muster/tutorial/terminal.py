"""Terminal programs in a test: keys in, screen out, everything recorded. tmux, in a server of its own, is the terminal."""

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
from .connect import claim, facts_of, recorder_argv
from .keys import arguments as key_arguments
from .masks import HIDDEN

if TYPE_CHECKING:
    from .session import E2eSession

PATIENCE = 30.0
#: Rows that scrolled off and are kept. tmux drops a tenth of them when it has that many.
HISTORY = 100_000
#: Nothing of tmux itself shows, and no key waits for another one.
OPTIONS = (
    ("-g", "status", "off"),
    ("-g", "default-terminal", "screen-256color"),
    ("-g", "history-limit", str(HISTORY)),
    ("-s", "escape-time", "0"),
    ("-s", "exit-empty", "off"),
)
CLEARS = re.compile(rb"(?:\x1b\[H)?\x1b\[[23]?J|\x1b\[\?(?:1049|1047|47)l|\x1bc")


class Server:
    """The tmux server of one test's terminals."""

    def __init__(
        self, control: Path, env: Mapping[str, str], marked: Callable[[Sequence[str]], list[str]] = list
    ) -> None:
        self._argv = ["tmux", "-S", str(control / "terminals.sock"), "-f", "/dev/null", "-u"]
        self._env = {key: value for key, value in env.items() if key not in ("TMUX", "TMUX_PANE")}
        self._marked = marked
        self._up = False

    def run(self, *argv: str, input: bytes | None = None) -> str:
        """Run one command of tmux; returns its output. RuntimeError if it fails."""
        return self.run_all(argv, input=input)

    def run_all(self, *commands: Sequence[str], input: bytes | None = None) -> str:
        """Run several commands of tmux in one call."""
        words = [word for command in commands for word in (*map(_escaped, command), ";")][:-1]
        argv = [*self._argv, *words]
        try:
            # The mark is for the server, which the first command starts.
            argv = self._marked(argv) if commands[0][0] == "start-server" else argv
            done = subprocess.run(argv, env=self._env, input=input, capture_output=True, timeout=20, check=False)
        except FileNotFoundError:
            raise RuntimeError("terminals of tests are drawn by tmux, which is not on the PATH: install it") from None
        if done.returncode:
            said = done.stderr.decode("utf-8", "replace").strip()
            raise RuntimeError(f"tmux {commands[-1][0]} failed: {said}")
        return done.stdout.decode("utf-8", "replace")

    def window(self, command: str, size: tuple[int, int], cwd: str) -> str:
        """Run a line of shell in a new window; returns the id of its pane."""
        set_up: list[tuple[str, ...]] = []
        if not self._up:
            self._up = True
            set_up = [("start-server",), *(("set-option", *option) for option in OPTIONS)]
        cols, rows = size
        shown = ("-x", str(cols), "-y", str(rows), "-P", "-F", "#{pane_id}")
        return self.run_all(*set_up, ("new-session", "-d", *shown, "-c", cwd, command)).strip()

    def end(self) -> None:
        if not self._up:
            return
        self._up = False
        try:
            pid = int(self.run("display-message", "-p", "#{pid}"))
            self.run("kill-server")
        except (RuntimeError, ValueError):
            return  # it is gone
        deadline = time.monotonic() + 5
        while exists(pid) and time.monotonic() < deadline:
            time.sleep(0.01)


def _escaped(word: str) -> str:
    """A word as tmux takes it: a semicolon at its end would end the command."""
    return f"{word[:-1]}\\;" if word.endswith(";") else word


def exists(pid: object) -> bool:
    """Whether the process runs; one that is dead and was not collected (tmux forgets some) does not."""
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
    """Where the cursor is, counted from 0 at the top left, and whether it is shown."""

    column: int
    row: int
    visible: bool


class Mark(NamedTuple):
    """A point in what a terminal has shown: made by `terminal.mark()`, for `terminal.since(mark)`."""

    row: int
    """Counted from the first row that the terminal ever showed."""
    column: int
    alternate: bool
    resizes: int


class View:
    """Text that a terminal shows: looked at anew each time."""

    def __init__(self, terminal: Terminal) -> None:
        self.terminal = terminal
        self._last = ("", "")

    @property
    def text(self) -> str:
        """The rows without the white space at their ends."""
        return self.readings()[0]

    @property
    def lines(self) -> list[str]:
        return self.text.split("\n")

    def __contains__(self, text: str) -> bool:
        return any(text in reading for reading in self.readings())

    def __str__(self) -> str:
        return self.text

    def readings(self) -> tuple[str, str]:
        """The text row by row, and with the rows joined that the terminal wrapped."""
        if (shown := self._look()) is not None:
            self._last = shown
        return self._last

    def _look(self) -> tuple[str, str] | None:
        return self.terminal.capture()

    def wait(self, true: Callable[[str], bool], timeout: float | None = None) -> bool:
        """Until one reading of it is so; False when it was not within the time, or the program ended otherwise."""
        return self.until(lambda readings: any(map(true, readings)), timeout)

    def until(self, true: Callable[[tuple[str, str]], bool], timeout: float | None = None) -> bool:
        deadline = time.monotonic() + (self.terminal.patience if timeout is None else timeout)
        while True:
            ended = self.terminal.exit_code is not None
            if true(self.readings()):
                return True
            if ended or time.monotonic() >= deadline:
                return False
            time.sleep(0.02)


class Screen(View):
    """What a terminal shows now."""

    def _look(self) -> tuple[str, str] | None:
        return self.terminal.look_twice()

    @property
    def cursor(self) -> Cursor:
        column, row, shown = self.terminal.ask("cursor_x", "cursor_y", "cursor_flag")
        return Cursor(int(column), int(row), shown == "1")

    @property
    def styles(self) -> list[styles.Row]:
        """The rows as pieces of text with their styles, such as ("3 failed", {"bold", "red"})."""
        return styles.rows(self.terminal.capture_styled())

    def style_of(self, text: str) -> frozenset[str]:
        """The style that all characters of the text have, where it is shown first; empty if it is plain or not shown."""
        return next(iter(styles.of(text, self.styles)), styles.PLAIN)


class Scrollback(View):
    """All that a terminal has shown, with the rows that scrolled off its screen."""

    def _look(self) -> tuple[str, str] | None:
        return self.terminal.capture("-S", "-")


class Since(View):
    """What a terminal shows behind a mark, with rows that scrolled off since."""

    def __init__(self, terminal: Terminal, mark: Mark) -> None:
        super().__init__(terminal)
        self._mark = mark

    def _look(self) -> tuple[str, str] | None:
        return self.terminal.capture_since(self._mark)


class Terminal:
    """One program in a terminal. Made by `e2e.terminal(command, size=(80, 24))`."""

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
        patience: float = PATIENCE,
    ) -> None:
        self._server = server
        self._session = session
        self.command = command
        self.patience = patience
        self._base = claim(str(recordings), name)
        self.name = os.path.basename(self._base)
        self.screen = Screen(self)
        self.scrollback = Scrollback(self)
        self._last = ""
        self._closed = False
        self._resizes = 0
        options = ["--hold", "--env-file", str(env_file)]
        recorder = [*recorder_argv(self._base, command), *options, "--", "bash", "-c", command]
        self._tell("terminal", text=command, recording=self.name, cols=size[0], rows=size[1])
        self._pane = server.window(shlex.join(["exec", *recorder]), size, cwd)
        self._wait_for("ready")

    def _tell(self, kind: str, **fields: Any) -> None:
        self._session.tell(kind, **fields)

    def _wait_for(self, fact: str, timeout: float = 20.0) -> Any:
        deadline = time.monotonic() + timeout
        while (found := facts_of(self._base)).get(fact) is None:
            if "pid" in found and not exists(found["pid"]) and facts_of(self._base).get(fact) is None:
                raise RuntimeError(f"the recorder of {self.name} was killed")
            if time.monotonic() > deadline:
                raise RuntimeError(f"the recording {self.name} says no {fact!r} after {timeout:g} s: {found}")
            time.sleep(0.02)
        return found[fact]

    @property
    def session(self) -> E2eSession:
        return self._session

    def note(self, text: str) -> None:
        self._session.note(text)

    def transcript(self) -> str:
        return self._session.transcript()

    def look(self) -> str:
        """What is on the screen; what was last on it, once the terminal is closed."""
        return (self.look_twice() or (self._last, ""))[0]

    def look_twice(self) -> tuple[str, str] | None:
        """The screen row by row, and with the rows joined that the terminal wrapped."""
        shown = self.capture()
        if shown is None:
            return (self._last, self._last) if self._closed else None
        if shown[0].strip():
            self._last = shown[0]
        return shown

    def capture(self, *options: str) -> tuple[str, str] | None:
        """Text of the terminal, row by row and with wrapped rows joined; None once there is no terminal."""
        capture = ("capture-pane", "-p", "-t", self._pane, *options)
        edge = f"[{self.name}]"
        told = self._run(capture, ("display-message", "-p", edge), (*capture, "-J"))
        if told is None:
            return None
        rows, _, joined = told.partition(f"{edge}\n")
        return _trimmed(rows), _trimmed(joined)

    def capture_styled(self) -> str:
        return self._run(("capture-pane", "-p", "-e", "-N", "-t", self._pane)) or ""

    def capture_since(self, mark: Mark) -> tuple[str, str] | None:
        if mark.resizes != self._resizes:
            raise ValueError(f"the mark is of before {self.name} was resized, which moves its rows: make a new one")
        facts = self._facts("history_size", "alternate_on")
        if facts is None:
            return None
        history, alternate = facts
        if int(history) > HISTORY * 9 // 10:
            raise ValueError(f"{self.name} has shown more than {HISTORY * 9 // 10:,} rows: marks do not reach that far")
        if (alternate == "1") != mark.alternate:
            return self.capture()  # another screen, which showed nothing of what was there before
        shown = self.capture("-S", str(mark.row - int(history)))
        return None if shown is None else (_behind(shown[0], mark.column), _behind(shown[1], mark.column))

    def ask(self, *names: str) -> list[str]:
        """Values that tmux knows of the terminal. RuntimeError once it is closed."""
        if (found := self._facts(*names)) is None:
            raise RuntimeError(f"the terminal {self.name} is closed")
        return found

    def _facts(self, *names: str) -> list[str] | None:
        told = self._run(("display-message", "-p", "-t", self._pane, " ".join(f"#{{{name}}}" for name in names)))
        return told.split() if told is not None else None

    def _run(self, *commands: Sequence[str]) -> str | None:
        if self._closed:
            return None
        try:
            return self._server.run_all(*commands)
        except RuntimeError as error:
            if re.search("can't find|no current|no server|lost server|error connecting|server exited", str(error)):
                return None  # the window is gone: the recorder was killed, and its problem is told at the end
            raise

    def mark(self) -> Mark:
        """The point at which the cursor is now. What the terminal shows behind it, `since(mark)` has."""
        column, row, history, alternate = self.ask("cursor_x", "cursor_y", "history_size", "alternate_on")
        return Mark(int(history) + int(row), int(column), alternate == "1", self._resizes)

    def since(self, mark: Mark) -> Since:
        """What the terminal shows behind a mark, for `expect`: text that was there before does not count."""
        return Since(self, mark)

    def type(self, text: str, secret: bool = False) -> None:
        """Text as it is, key by key; a newline is Enter. A secret is hidden in all artifacts, from now on."""
        if secret:
            self._session.add_secret(text)
        self._tell("keys", text=HIDDEN if secret else json.dumps(self._session.hide(text), ensure_ascii=False))
        for number, line in enumerate(text.split("\n")):
            if number:
                self._send(("--", "Enter"))
            if secret and line:
                self._paste(line)
                continue
            for start in range(0, len(line), 1000):
                self._send(("-l", "--", line[start : start + 1000]))

    def enter(self, line: str) -> Mark:
        """Type a line, wait until the program has echoed it, press Enter; returns the mark behind the echo.

        AssertionError if there is no echo, as for a password: that is for `type`.
        """
        __tracebackhide__ = True
        before = self.mark()
        self.type(line)
        echo, wanted = self.since(before), "".join(line.split())
        # Some programs wrap their input themselves, and indent what goes on in the next row.
        if not echo.wait(lambda shown: wanted in "".join(shown.split())):
            from .expectations import expect

            expect(echo).to_contain(line, timeout=0)
        mark = self.mark()
        self.press("Enter")
        return mark

    def _paste(self, text: str) -> None:
        """Send a text that must not be on a command line, which every user of the machine can read."""
        self._server.run("load-buffer", "-b", self.name, "-", input=text.encode("utf-8", "surrogateescape"))
        self._server.run("paste-buffer", "-d", "-r", "-b", self.name, "-t", self._pane)

    def press(self, *keys: str) -> None:
        """Press keys by name: `Enter`, `Esc`, `Up`, `Ctrl-C`, `Alt-x`, `Shift-Tab`, `F1`, or one character."""
        named = [key_arguments(key) for key in keys]
        self._tell("keys", text=" ".join(keys))
        for arguments in named:
            self._send(arguments)

    def _send(self, arguments: Sequence[str]) -> None:
        self._server.run("send-keys", "-t", self._pane, *arguments)

    def resize(self, cols: int, rows: int) -> None:
        self._tell("note", text=f"terminal {self.name} is {cols}x{rows} now")
        self._resizes += 1
        self._server.run("resize-window", "-t", self._pane, "-x", str(cols), "-y", str(rows))

    @property
    def exit_code(self) -> int | None:
        """None while the program runs."""
        facts = facts_of(self._base)
        code = facts.get("exit_code")
        return code if isinstance(code, int) and facts.get("ended") is not None else None

    def wait(self, timeout: float | None = None) -> int | None:
        """The exit code; None when the program still runs after the time."""
        deadline = time.monotonic() + (self.patience if timeout is None else timeout)
        while (code := self.exit_code) is None and time.monotonic() < deadline:
            time.sleep(0.02)
        return code

    def close(self) -> None:
        """Close the terminal; a program that runs gets the hang-up that a closed window gives."""
        if self._closed:
            return
        self.look()
        running = self.exit_code is None
        self._closed = True
        try:
            self._server.run("kill-session", "-t", self._pane)
        except RuntimeError:
            pass  # no window any more
        self._wait_for("ended")
        if not running:
            self._tell("note", text=f"terminal {self.name}: the program exited with {self.exit_code}")

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _trimmed(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.split("\n")).rstrip("\n")


def _behind(text: str, column: int) -> str:
    """The text without the first cells of its first row; a wide character has two."""
    first, newline, rest = text.partition("\n")
    at = 0
    while at < len(first) and column > 0:
        column -= 2 if unicodedata.east_asian_width(first[at]) in "WF" else 0 if unicodedata.combining(first[at]) else 1
        at += 1
    return first[at:] + newline + rest


def last_screen(cast: Path, server: Server) -> str:
    """The last screen with something on it of a recording, drawn by tmux."""
    cols, rows, shown = 80, 24, bytearray()
    with open(cast, encoding="utf-8", errors="replace") as file:
        for line in file:
            try:
                value = json.loads(line)
            except ValueError:
                continue
            if isinstance(value, dict):
                cols, rows = int(value.get("width", 80)), int(value.get("height", 24))
            elif isinstance(value, list) and len(value) == 3 and value[1] == "o":
                shown += str(value[2]).encode("utf-8", "replace")
                del shown[: -(1 << 20)]
            elif isinstance(value, list) and len(value) == 3 and value[1] == "r":
                cols, rows = (int(side) for side in str(value[2]).split("x"))
    data = bytes(shown)
    text = _drawn(data, cols, rows, cast, server)
    # A full-screen program clears its screen as it leaves; what it showed before that is what people look for.
    for found in reversed(list(CLEARS.finditer(data))[-4:]):
        if _says_something(text):
            break
        text = _drawn(data[: found.start()], cols, rows, cast, server)
    return text


def _says_something(text: str) -> bool:
    """Whether there is more than what tmux itself says at the end, as in [exited]."""
    return any(not re.fullmatch(r"\[[^]]*\]", line.strip()) for line in text.split("\n") if line.strip())


def _drawn(data: bytes, cols: int, rows: int, cast: Path, server: Server) -> str:
    raw = Path(f"{cast}.raw")
    done = Path(f"{cast}.drawn")
    raw.write_bytes(data)
    try:
        # The terminal answers a question for its cursor only when it has drawn all that came before.
        quoted_raw, quoted_done = shlex.quote(str(raw)), shlex.quote(str(done))
        ask = f"stty raw -echo; cat {quoted_raw}; printf '\\033[6n'; head -c 1 >/dev/null; : > {quoted_done}; exec sleep 60"
        pane = server.window(f"exec sh -c {shlex.quote(ask)}", (cols, rows), "/")
        deadline = time.monotonic() + 10
        while not done.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        shown = server.run("capture-pane", "-p", "-t", pane)
        server.run("kill-session", "-t", pane)
    finally:
        raw.unlink(missing_ok=True)
        done.unlink(missing_ok=True)
    return _trimmed(shown)
