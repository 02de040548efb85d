"""Read keys and pastes from the terminal, and draw lines above an input line."""

from __future__ import annotations

import contextlib
import os
import re
import select
import termios
import time

TYPE_CHECKING = False  # `typing` itself is not loaded on the host
if TYPE_CHECKING:
    from typing import Any

ESC_WAIT = 0.1  # seconds after which an Esc that nothing follows is the key, not the begin of a sequence
CSI_WAIT = 1.0
PASTE_BEGIN, PASTE_END = b"\x1b[200~", b"\x1b[201~"

CONTROL = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[ -/]*[0-~]?|[\x00-\x08\x0b-\x1f\x7f-\x9f]"
)


def clean(text: str) -> str:
    """Remove escape sequences and control characters, except newline and tab."""
    return CONTROL.sub("", text.replace("\r\n", "\n"))


def head_of(text: str) -> str:
    """Return the lines of a long text that are shown on the screen."""
    lines = text[:2000].split("\n")
    more = len(text) - sum(len(line) + 1 for line in lines[:10]) + 1
    return "\n  ".join(lines[:10]) + (f"\n  ({more} more characters)" if more > 0 else "")


class Terminal:
    """Scrolling lines above an input line. It reads what is typed also while it writes."""

    def __init__(self) -> None:
        self.eof = False
        self.deaf = False
        self.line = bytearray()
        self._raw = bytearray()
        self._pasting = False
        self._seen = 0
        self._escape_since = 0.0
        self._drawn = False
        self._midline = False
        self._saved: list[Any] | None = None
        self.out = 1
        self.tty = os.isatty(1)

    def open(self) -> None:
        if os.isatty(0):
            self._saved = termios.tcgetattr(0)
            mode = termios.tcgetattr(0)
            mode[0] &= ~(termios.ICRNL | termios.INLCR | termios.IGNCR | termios.IXON | termios.ISTRIP)
            mode[3] &= ~(termios.ICANON | termios.ECHO | termios.ISIG | termios.IEXTEN)
            mode[6][termios.VMIN], mode[6][termios.VTIME] = 1, 0
            termios.tcsetattr(0, termios.TCSANOW, mode)  # NOW: keep what was typed already
        if self.tty:
            # An open file of our own: non-blocking here does not change the one we share with others.
            with contextlib.suppress(OSError):
                self.out = os.open(os.ttyname(1), os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
            self.write(b"\x1b[?2004h")

    def close(self) -> None:
        """Restore the terminal. This never blocks: it also runs in a signal handler, on a terminal that nobody reads."""
        with contextlib.suppress(OSError, termios.error):  # the terminal may be gone already
            if self._saved is not None:
                termios.tcsetattr(0, termios.TCSANOW, self._saved)
            if self.tty and select.select([], [self.out], [], 0)[1]:
                os.write(self.out, (b"\r\x1b[K" if self._drawn else b"") + b"\x1b[0m\x1b[?2004l")

    def write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            listen = [] if self.eof or self.deaf else [0]
            readable, writable, _ = select.select(listen, [self.out], [])
            if readable:
                self.fill()
            if writable:
                try:
                    view = view[os.write(self.out, view[:4096]) :]
                except BlockingIOError:
                    pass
                except OSError:
                    return  # the terminal is gone; SIGHUP will follow

    def fill(self) -> None:
        try:
            data = os.read(0, 65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self.eof = not data
        self._raw += data

    def put(self, data: bytes) -> None:
        """Write exactly these bytes in the place of the input line."""
        erase = b"\r\x1b[K" if self._drawn else b""
        self._drawn = False
        self.write(erase + data)
        _, newline, tail = data.rpartition(b"\n")
        visible = bool(clean(tail.decode("utf-8", "replace")))
        self._midline = visible or (self._midline and not newline)

    def show(self, text: str) -> None:
        """Write whole lines, without their control characters."""
        self.end_line()
        self.put((clean(text).rstrip("\n") + "\n").encode("utf-8", "replace"))

    def end_line(self) -> None:
        if self._midline:
            self.put(b"\n")

    def draw(self) -> None:
        """Draw the input line with the end of what was typed, unless the line above it is unfinished."""
        if not self.tty or self._midline:
            return
        try:
            width = os.get_terminal_size(self.out).columns or 80
        except OSError:
            width = 80
        room, shown = width - 4, ""
        text = self.line[-4 * width :].decode("utf-8", "ignore").replace("\n", "\\n").replace("\t", " ")
        for char in reversed(clean(text)):
            room -= 1 if char < "\u1100" else 2
            if room < 0:
                break
            shown = char + shown
        self._drawn = True
        self.write(b"\r\x1b[K> " + shown.encode("utf-8", "replace"))

    def patience(self) -> float | None:
        """Return the seconds until an unfinished escape sequence counts as ended; None if there is none."""
        if not self._escape_since:
            return None
        wait = ESC_WAIT if len(self._raw) < 2 else CSI_WAIT
        return max(0.0, self._escape_since + wait - time.monotonic())

    def give_back(self, data: bytes) -> None:
        self._raw[:0] = data

    def key(self) -> tuple[str, bytes] | None:
        """Return the next ("text" | "paste" | "control" | "enter" | "escape" | "sequence", bytes), or None for now."""
        if self._pasting:
            return self._paste()
        if not self._raw:
            return None
        if self._raw[0] == 0x1B:
            return self._escape()
        if self._raw[0] in b"\r\n":
            return "enter", self._take(1)
        text = re.match(rb"[\t\x20-\x7e\x80-\xff]+", self._raw)
        return ("text", self._take(text.end())) if text else ("control", self._take(1))

    def _take(self, count: int) -> bytes:
        data = bytes(self._raw[:count])
        del self._raw[:count]
        self._escape_since = 0.0
        return data

    def _paste(self) -> tuple[str, bytes] | None:
        end = self._raw.find(PASTE_END, max(0, self._seen - len(PASTE_END)))
        self._seen = len(self._raw)
        if end < 0:
            return None
        self._pasting = False
        text = self._take(end)
        self._take(len(PASTE_END))
        # Terminals and tmux send a newline within a paste as CR.
        return "paste", text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _escape(self) -> tuple[str, bytes] | None:
        if self._raw.startswith(PASTE_BEGIN):
            self._take(len(PASTE_BEGIN))
            self._pasting, self._seen = True, 0
            return self._paste()
        second = bytes(self._raw[1:2])
        if second == b"[":
            whole = re.match(rb"\x1b\[[0-?]*[ -/]*[@-~]", self._raw)
            if whole:
                return "sequence", self._take(whole.end())
            if not re.fullmatch(rb"\x1b\[[0-?]*[ -/]*", self._raw):
                return "sequence", self._take(2)
        elif second == b"O":
            if len(self._raw) > 2:
                return "sequence", self._take(3)
        elif second:
            return "escape", self._take(1)
        if not self._escape_since:
            self._escape_since = time.monotonic()
        if self.patience():
            return None
        return ("escape", self._take(1)) if not second else ("sequence", self._take(len(self._raw)))
