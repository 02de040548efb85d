"""Terminal programs in a test: keys in, screen out, everything recorded. tmux, in a server of its own, is the terminal."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .connect import claim, facts_of, recorder_argv
from .keys import arguments as key_arguments

PATIENCE = 30.0
#: Nothing of tmux itself shows, and no key waits for another one.
OPTIONS = (
    ("-g", "status", "off"),
    ("-g", "default-terminal", "screen-256color"),
    ("-g", "history-limit", "10000"),
    ("-s", "escape-time", "0"),
    ("-s", "exit-empty", "off"),
)
CLEARS = re.compile(rb"(?:\x1b\[H)?\x1b\[2?J|\x1b\[\?1049l|\x1bc")


class Server:
    """The tmux server of one test's terminals."""

    def __init__(
        self, control: Path, env: Mapping[str, str], marked: Callable[[Sequence[str]], list[str]] = list
    ) -> None:
        self._argv = ["tmux", "-S", str(control / "terminals.sock"), "-f", "/dev/null", "-u"]
        self._env = {key: value for key, value in env.items() if key not in ("TMUX", "TMUX_PANE")}
        self._marked = marked
        self._up = False

    def run(self, *argv: str) -> str:
        """Run one command of tmux; returns its output. RuntimeError if it fails."""
        return self.run_all(argv)

    def run_all(self, *commands: Sequence[str]) -> str:
        """Run several commands of tmux in one call."""
        words = [word for command in commands for word in (*map(_escaped, command), ";")][:-1]
        argv = [*self._argv, *words]
        try:
            # The mark is for the server, which the first command starts.
            argv = self._marked(argv) if commands[0][0] == "start-server" else argv
            done = subprocess.run(argv, env=self._env, capture_output=True, timeout=20, check=False)
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


class Screen:
    """What a terminal shows: looked at anew each time."""

    def __init__(self, terminal: Terminal) -> None:
        self.terminal = terminal

    @property
    def screen(self) -> Screen:
        return self

    @property
    def text(self) -> str:
        """The lines of the screen without the white space at their ends."""
        return self.terminal.look()

    @property
    def lines(self) -> list[str]:
        return self.text.split("\n")

    def __contains__(self, text: str) -> bool:
        return text in self.text

    def __str__(self) -> str:
        return self.text

    def wait(self, true: Callable[[str], bool], timeout: float | None = None) -> bool:
        """Until the screen is so; False when it was not within the time, or the program ended otherwise."""
        deadline = time.monotonic() + (self.terminal.patience if timeout is None else timeout)
        while True:
            ended = self.terminal.exit_code is not None
            if true(self.text):
                return True
            if ended or time.monotonic() >= deadline:
                return False
            time.sleep(0.02)


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
        tell: Callable[..., Any],
        transcript: Callable[[], str],
        patience: float = PATIENCE,
    ) -> None:
        self._server = server
        self.command = command
        self.patience = patience
        self.transcript = transcript
        self._tell = tell
        self._base = claim(str(recordings), name)
        self.name = os.path.basename(self._base)
        self.screen = Screen(self)
        self._last = ""
        self._closed = False
        options = ["--hold", "--env-file", str(env_file)]
        recorder = [*recorder_argv(self._base, command), *options, "--", "bash", "-c", command]
        self._tell("terminal", text=command, recording=self.name, cols=size[0], rows=size[1])
        self._pane = server.window(shlex.join(["exec", *recorder]), size, cwd)
        self._wait_for("ready")

    def _wait_for(self, fact: str, timeout: float = 20.0) -> Any:
        deadline = time.monotonic() + timeout
        while (found := facts_of(self._base)).get(fact) is None:
            if "pid" in found and not exists(found["pid"]) and facts_of(self._base).get(fact) is None:
                raise RuntimeError(f"the recorder of {self.name} was killed")
            if time.monotonic() > deadline:
                raise RuntimeError(f"the recording {self.name} says no {fact!r} after {timeout:g} s: {found}")
            time.sleep(0.02)
        return found[fact]

    def note(self, text: str) -> None:
        self._tell("note", text=text)

    def look(self) -> str:
        if self._closed:
            return self._last
        try:
            shown = self._server.run("capture-pane", "-p", "-t", self._pane)
        except RuntimeError:  # the window is gone: the recorder was killed, and its problem is told at the end
            return self._last
        text = "\n".join(line.rstrip() for line in shown.split("\n")).rstrip("\n")
        if text.strip():
            self._last = text
        return text

    def type(self, text: str) -> None:
        """Text as it is, key by key; a newline is Enter."""
        self._tell("keys", text=json.dumps(text, ensure_ascii=False))
        for number, line in enumerate(text.split("\n")):
            if number:
                self._send(("--", "Enter"))
            for start in range(0, len(line), 1000):
                self._send(("-l", "--", line[start : start + 1000]))

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
    return "\n".join(line.rstrip() for line in shown.split("\n")).rstrip("\n")
