"""Plays a recorded playbook in a terminal and leaves the evidence a real coding client leaves: events, a
transcript, usage, files, commits, a result. It is copied to hosts and runs there alone (python3 >= 3.7), so it
knows nothing of muster beyond `$MUSTER_AGENT_DIR`, `$MUSTER_RESULT`, `$MUSTER_RESULT_KEY` and `$MUSTER_PROMPT`. Exit codes of its own:
2 a playbook it cannot play, 9 a step that could not be done, 130 Ctrl-C twice.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import select
import signal
import sys
import termios
import time

TYPE_CHECKING = False  # `typing` itself is not loaded on the host
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, NoReturn

    Step = dict[str, Any]

ESC_WAIT = 0.1  # a lone Esc is one that nothing follows for so long
CSI_WAIT = 1.0
PASTE_BEGIN, PASTE_END = b"\x1b[200~", b"\x1b[201~"
PIPE_CAP = 1024 * 1024  # what a pipe can hold after its command ended; more comes from background children
OUTPUT_CAP = 64 * 1024  # of one command, in the transcript
ENV_CAP = 128_000  # one variable may not pass 128 KiB on Linux
TOKENS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")

# ---- the format ------------------------------------------------------------------------------------------

#: kind -> (type of its value, {option: type}); "!" marks an option that must be given
KINDS: dict[str, tuple[str, dict[str, str]]] = {
    "say": (
        "text",
        {"input_tokens": "count", "output_tokens": "count", "cost_usd": "number", "model": "text", "typing": "number"},
    ),
    "run": ("text", {"expect_exit": "code", "timeout": "number"}),
    "write": ("text", {"text": "text!", "mode": "mode"}),
    "delete": ("text", {}),
    "patch": ("text", {}),
    "commit": ("text", {"paths": "texts"}),
    "wait": ("number", {}),
    "turn": ("text", {}),
    "ask": ("text", {}),
    "permission": ("text", {"tool": "text!", "on_deny": "on_deny", "guards": "count"}),
    "expect": ("text", {"matches": "pattern", "equals": "text"}),
    "submit": ("text", {"summary": "text!", "reason": "text", "escalate": "texts", "artifacts": "texts"}),
    "submit_raw": ("text", {}),
    "limit": ("text", {"seconds": "number"}),
    "exit": ("code", {}),
    "hang": ("true", {}),
    "crash": ("signal", {}),
    "flood": ("count", {}),
    "title": ("text", {}),
    "print": ("text", {}),
}


def _sealed(body: str, key: str) -> str:
    """Return a result, given without its last brace, with the seal of its agent: as sh/agent/submit.sh."""
    data = f"{key}\n{body}".encode("utf-8", "replace")
    seal = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
    return f'{body},"seal":"{seal}"}}\n'


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _pattern(value: Any) -> bool:
    try:
        return isinstance(value, str) and bool(re.compile(value))
    except re.error:
        return False


def file_mode(value: Any) -> int:
    """Permissions from `0o755` or "755"; -1 when it is neither."""
    if isinstance(value, str) and re.fullmatch(r"[0-7]{3,4}", value):
        return int(value, 8)
    return value if _whole(value) and value <= 0o7777 else -1


def signal_number(name: str) -> int:
    """The number of "SEGV" or "SIGSEGV"; 0 when there is no such signal."""
    name = name if name.startswith("SIG") else "SIG" + name
    found = getattr(signal, name, None)
    return int(found) if isinstance(found, signal.Signals) else 0


TYPES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "text": ("a text", lambda v: isinstance(v, str)),
    "texts": ("a list of texts", lambda v: isinstance(v, list) and all(isinstance(i, str) for i in v)),
    "number": (
        "a number, 0 or more",
        lambda v: _whole(v) or (isinstance(v, float) and 0 <= v < float("inf")),
    ),
    "count": ("a whole number, 0 or more", _whole),
    "code": ("an exit code, 0 to 255", lambda v: _whole(v) and v <= 255),
    "mode": ('permissions such as "755" or 0o755', lambda v: file_mode(v) >= 0),
    "pattern": ("a regular expression", _pattern),
    "signal": ('the name of a signal such as "SEGV"', lambda v: isinstance(v, str) and signal_number(v) > 0),
    "on_deny": ('"exit" or "continue"', lambda v: v in ("exit", "continue")),
    "true": ("true", lambda v: v is True),
}


def kind_of(step: Step) -> str:
    """The kind of a step that `flaw` found nothing in."""
    return next(key for key in step if key in KINDS)


def nearest(word: str, known: Sequence[str]) -> str:
    import difflib

    close = difflib.get_close_matches(word, known, 1, 0.5)
    return f"did you mean '{close[0]}'?" if close else f"known are {', '.join(known)}"


def _step_flaw(step: Any) -> str:
    if not isinstance(step, dict):
        return " is no table"
    kinds = [key for key in step if key in KINDS]
    if not kinds:
        word = next(iter(step), None)
        return " is empty" if word is None else f": no kind of step is called '{word}'; {nearest(word, list(KINDS))}"
    if len(kinds) > 1:
        return ": it is of one kind only, not of {}".format(" and ".join(kinds))
    kind = kinds[0]
    type_, options = KINDS[kind]
    for key, value in step.items():
        if key != kind and key not in options:
            what = nearest(key, list(options)) if options else "it takes none"
            return f" ({kind}): there is no option '{key}'; {what}"
        words, fits = TYPES[type_ if key == kind else options[key].rstrip("!")]
        if not fits(value):
            return f" ({kind}): '{key}' must be {words}, not {json.dumps(value, default=str)[:80]}"
    missing = [key for key, type_ in options.items() if type_.endswith("!") and key not in step]
    return f" ({kind}): '{missing[0]}' is missing" if missing else ""


def flaw(document: Any) -> str:
    """The first thing wrong with `{"version": 1, "steps": [...], "wait_for_message": false}`, or ""."""
    if not isinstance(document, dict) or not isinstance(document.get("steps"), list):
        return "it has no list of steps"
    if document.get("version") != 1:
        return "its version is {}; this player knows 1".format(json.dumps(document.get("version"), default=str))
    for key in document:
        if key not in ("version", "steps", "wait_for_message"):
            return "there is no key '{}'; {}".format(key, nearest(key, ["version", "steps", "wait_for_message"]))
    if not isinstance(document.get("wait_for_message", False), bool):
        return "'wait_for_message' must be true or false"
    for number, step in enumerate(document["steps"], 1):
        found = _step_flaw(step)
        if found:
            return f"step {number}{found}"
    return ""


# ---- files -----------------------------------------------------------------------------------------------


def append(path: str, record: dict[str, Any]) -> None:
    """One JSON line by one write, so that lines of several writers never mix."""
    line = (json.dumps(record) + "\n").encode()
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        if os.write(fd, line) != len(line):
            raise OSError(f"{path}: only a part of the line could be written")
    finally:
        os.close(fd)


def mend(path: str) -> None:
    """End a line that a killed writer left open."""
    try:
        with open(path, "rb+") as file:
            if not file.seek(0, os.SEEK_END):
                return
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.write(b"\n")
    except FileNotFoundError:
        pass


def replace(path: str, data: bytes) -> None:
    """The file is the old one or the new one at any moment."""
    folder, name = os.path.split(path)
    temp = os.path.join(folder, f".{name}.{os.getpid()}")
    with open(temp, "wb") as file:
        file.write(data)
    os.replace(temp, path)


def inside(path: str, make: bool) -> tuple[int, str]:
    """An open folder of the work dir (the cwd) and the last name of `path` in it, no symlink followed on the way.

    Raises OSError when the path leaves the work dir.
    """
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if path.startswith("/") or ".." in parts or not parts or "\0" in path or path.endswith("/"):
        raise OSError(f"{path}: not a path inside the work dir")
    folder = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        for part in parts[:-1]:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, dir_fd=folder)
            try:
                below = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
            except FileNotFoundError:
                raise
            except OSError:
                raise OSError(f"{path}: {part} is a symlink or no folder") from None
            os.close(folder)
            folder = below
    except BaseException:
        os.close(folder)
        raise
    return folder, parts[-1]


CONTROL = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[ -/]*[0-~]?|[\x00-\x08\x0b-\x1f\x7f-\x9f]"
)


def clean(text: str) -> str:
    """Without escape sequences and control characters, newline and tab apart."""
    return CONTROL.sub("", text.replace("\r\n", "\n"))


# ---- the terminal ----------------------------------------------------------------------------------------


class Terminal:
    """Lines that scroll by, and below them an input line. Reads whatever is typed, also while it writes."""

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
            termios.tcsetattr(0, termios.TCSANOW, mode)  # NOW: what was typed already must not be flushed
        if self.tty:
            # An open file of our own: non-blocking here does not change the one we share with others.
            with contextlib.suppress(OSError):
                self.out = os.open(os.ttyname(1), os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
            self.write(b"\x1b[?2004h")

    def close(self) -> None:
        """Never blocks: it also runs in a signal handler, on a terminal nobody reads."""
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
                    return  # nobody is there to see it; SIGHUP comes by itself

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
        """Exactly these bytes, where the input line was."""
        erase = b"\r\x1b[K" if self._drawn else b""
        self._drawn = False
        self.write(erase + data)
        _, newline, tail = data.rpartition(b"\n")
        visible = bool(clean(tail.decode("utf-8", "replace")))
        self._midline = visible or (self._midline and not newline)

    def show(self, text: str) -> None:
        """Whole lines."""
        self.end_line()
        self.put((clean(text).rstrip("\n") + "\n").encode("utf-8", "replace"))

    def end_line(self) -> None:
        if self._midline:
            self.put(b"\n")

    def draw(self) -> None:
        """The input line: the end of what was typed so far. Not in the middle of an unfinished line."""
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
        """Seconds until a begun escape sequence counts as ended; None when there is none."""
        if not self._escape_since:
            return None
        wait = ESC_WAIT if len(self._raw) < 2 else CSI_WAIT
        return max(0.0, self._escape_since + wait - time.monotonic())

    def give_back(self, data: bytes) -> None:
        self._raw[:0] = data

    def key(self) -> tuple[str, bytes] | None:
        """The next ("text" | "paste" | "control" | "enter" | "escape" | "sequence", bytes), or None for now."""
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


# ---- the player ------------------------------------------------------------------------------------------


class Player:
    """One session: what was played so far is in `session/state.json`, saved after every step.

    A step counts as done when the state says so or when its line is in the transcript: `_recover` reads what was
    written after the last save, so that a kill between the two repeats nothing.
    """

    def __init__(self, folder: str, playbook: dict[str, Any]) -> None:
        self.folder = folder
        self.steps: list[Step] = playbook["steps"]
        self.wait_for_message: bool = playbook.get("wait_for_message", False)
        self.term = Terminal()
        self.busy = False  # a turn is under way
        self._open = False  # the next message is taken, not queued
        self._incoming: str | None = None
        self._answer: bool | None = None  # of the open dialog
        self._dialog = False
        self._again = False  # this very step may have been done before a kill
        self._interrupts = 0
        self._child = 0  # -1: about to be one
        self._deadly = 0  # the signal that came meanwhile
        self._wake = -1
        self.state: dict[str, Any] = {}

    # -- evidence

    def _session(self, name: str) -> str:
        return os.path.join(self.folder, "session", name)

    def emit(self, kind: str, **fields: Any) -> None:
        emit(self.folder, kind, **fields)

    def _transcribe(self, role: str, text: str, **fields: Any) -> None:
        append(self._session("transcript.jsonl"), {"t": time.time(), "role": role, "text": text, **fields})

    def _save(self, **changes: Any) -> None:
        self.state.update(changes)
        try:
            self.state["transcript"] = os.path.getsize(self._session("transcript.jsonl"))
        except FileNotFoundError:
            self.state["transcript"] = 0
        replace(self._session("state.json"), json.dumps(self.state).encode())

    def _count(self, text: str, step: Step) -> dict[str, int]:
        """Add one assistant message to the totals."""
        usage = dict.fromkeys(TOKENS, 0)
        usage["input_tokens"] = step.get("input_tokens", -(-len(self.state["last"]) // 4))
        usage["output_tokens"] = step.get("output_tokens", -(-len(text) // 4))
        total = self.state["usage"]
        model = total["models"].setdefault(step.get("model", "replay"), dict.fromkeys(TOKENS, 0))
        for name in TOKENS:
            total[name] += usage[name]
            model[name] += usage[name]
        if "cost_usd" in step:
            total["cost_usd"] = (total["cost_usd"] or 0) + step["cost_usd"]
        self.state["said"] = text[:200]
        return usage

    def _assistant(self, text: str, step: Step, shown: bool = False) -> None:
        if not shown:
            self._show(text)
        usage = self._count(text, step)
        self._transcribe("assistant", text, model=step.get("model", "replay"), usage=usage)
        self._write_usage()

    def _write_usage(self) -> None:
        replace(os.path.join(self.folder, "usage.json"), json.dumps(self.state["usage"]).encode())

    def _tool(self, name: str, detail: str, output: str, code: int) -> None:
        tool = {"name": name, "input": detail, "output": output, "exit_code": code}
        self._transcribe("tool", f"{name}: {detail}", tool=tool)

    def _fail(self, text: str) -> NoReturn:
        self._transcribe("error", text)
        self._save()
        self._show("error: " + text)
        self.emit("error", text=text)
        raise SystemExit(9)

    def _show(self, text: str) -> None:
        self.term.show(text)
        self.term.draw()

    # -- input

    def _pump(self, timeout: float | None = 0, *also: int) -> list[int]:
        """Act on input for up to `timeout` seconds (None: no limit), or until something of `also` is readable,
        or what is waited for has come."""
        self._keys()
        if self._satisfied():
            return []
        waits = [wait for wait in (timeout, self.term.patience()) if wait is not None]
        listen = [] if self.term.eof or self.term.deaf else [0]
        ready = select.select([*listen, *also], [], [], min(3600, *waits) if waits else None)[0]
        if 0 in ready:
            self.term.fill()
        self._keys()
        return ready

    def _satisfied(self) -> bool:
        return self._incoming is not None if self._open else self._dialog and self._answer is not None

    def _keys(self) -> None:
        touched = True
        while touched:  # more may have come while the input line was drawn
            touched = self._take_keys()
            if touched and not self._dialog:
                self.term.draw()

    def _take_keys(self) -> bool:
        touched = False
        while not self._satisfied():
            key = self.term.key()
            if key is None:
                break
            touched = True
            if key == ("control", b"\x03"):
                self._interrupt()
                continue
            self._interrupts = 0
            if self._dialog:
                self._dialog_key(*key)
            else:
                self._edit(*key)
        return touched

    def _interrupt(self, *_: Any) -> None:
        self._interrupts += 1
        if self._interrupts > 1:
            raise SystemExit(130)
        self.term.line.clear()
        self.term.show("(Ctrl-C again to exit)")

    def _edit(self, kind: str, data: bytes) -> None:
        line = self.term.line
        if kind in ("text", "paste"):
            line += data
        elif kind == "enter" and line:
            text = line.decode("utf-8", "replace")
            line.clear()
            self._received(text)
        elif kind == "escape" or data == b"\x15":
            line.clear()
        elif data in (b"\x7f", b"\x08"):
            line[:] = line.decode("utf-8", "replace")[:-1].encode()

    def _dialog_key(self, kind: str, data: bytes) -> None:
        if kind == "enter":
            self._answer = True
        elif kind == "escape":
            self._answer = False
        elif kind == "text":
            for place, char in enumerate(data.lower()):
                if char in b"1y2n":
                    self._answer = char in b"1y"
                    self.term.give_back(data[place + 1 :])
                    return

    def _received(self, text: str) -> None:
        if self._open:
            self._incoming = text
            return
        self.state["queue"].append(text)
        self._save_queue()
        self._show("(queued) " + head_of(text))
        self.emit("queued", text=text)

    def _save_queue(self) -> None:
        # Within a step, so the size of the transcript must stay that of the last whole step.
        replace(self._session("state.json"), json.dumps(self.state).encode())

    def _message(self) -> str:
        """The next message: the oldest queued one, else the one that comes."""
        self.term.end_line()
        self.term.draw()
        if self.state["queue"]:
            return str(self.state["queue"][0])
        self._open = True
        if not self._await_input():
            raise SystemExit(0)
        self._open = False
        text, self._incoming = self._incoming or "", None
        return text

    def _await_input(self) -> bool:
        """Until the message or the answer is there; False when input ended without it."""
        while not self._satisfied():
            last = self.term.eof
            self._pump(0 if last else None)
            if last and not self._satisfied():
                return False
        return True

    def _take(self, text: str, **changes: Any) -> None:
        """A message begins a turn."""
        queue: list[str] = self.state["queue"]
        self._transcribe("user", text)
        if queue and queue[0] == text:
            queue.pop(0)
        self.state["messages"] += 1
        self.busy = True
        self._save(last=text, **changes)
        self.emit("prompt", text=text, n=self.state["messages"])
        self._show("> " + head_of(text))

    def _end_turn(self) -> None:
        if self.busy:
            self.emit("turn-end", text=self.state["said"])
        else:
            self.emit("ready")
        self.busy = False

    # -- playing

    def play(self, resume: bool, prompt: str) -> NoReturn:
        for name in ("session", "ev"):
            os.makedirs(os.path.join(self.folder, name), exist_ok=True)
        mend(os.path.join(self.folder, "events.jsonl"))
        mend(self._session("transcript.jsonl"))
        if not (resume and self._recover()):
            usage: dict[str, Any] = {**dict.fromkeys(TOKENS, 0), "cost_usd": None, "models": {}}
            self.state = {"version": 1, "next": 0, "phase": "start", "messages": 0, "last": "", "said": ""}
            self._save(queue=[], until=None, usage=usage)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._die)
        signal.signal(signal.SIGINT, self._interrupt)
        self.term.open()
        try:
            self._begin(prompt)
            while self.state["next"] < len(self.steps):
                self._step(self.steps[self.state["next"]])
                self._pump()
            self._idle()
        finally:
            self._end_child(signal.SIGKILL)
            self.term.close()

    def _die(self, number: int, _: Any = None) -> None:
        if self._child < 0:
            self._deadly = number
            return
        self._end_child(number)
        self.term.close()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def _recover(self) -> bool:
        """Take up the saved state, and what the transcript knows beyond it. False: there is none."""
        try:
            with open(self._session("state.json"), "rb") as file:
                self.state = json.loads(file.read().decode())
        except FileNotFoundError:
            return False
        self.busy = self.state["phase"] in ("", "echo")
        self._again = True
        beyond: list[bytes] = []
        try:
            with open(self._session("transcript.jsonl"), "rb") as file:
                file.seek(self.state["transcript"])
                beyond = file.read().splitlines()
        except FileNotFoundError:
            pass
        for line in beyond:
            try:
                self._replay(json.loads(line.decode()))
            except ValueError:
                continue  # torn by the kill
        self._save()
        self._write_usage()
        self._tell_untold_prompt()
        return True

    def _tell_untold_prompt(self) -> None:
        """A kill may fall between taking a message and telling so; its sender still waits for the receipt.

        Not in a clone, which has the conversation but none of its events.
        """
        told = 0
        with contextlib.suppress(FileNotFoundError), open(os.path.join(self.folder, "events.jsonl"), "rb") as file:
            for line in file:
                with contextlib.suppress(ValueError):
                    event = json.loads(line.decode())
                    told = event["n"] if event.get("kind") == "prompt" else told
        if told and told == self.state["messages"] - 1:
            self.emit("prompt", text=self.state["last"], n=told + 1)

    def _replay(self, entry: dict[str, Any]) -> None:
        state, role = self.state, entry["role"]
        step = self.steps[state["next"]] if state["next"] < len(self.steps) else None
        self._again = False
        if role == "user":
            if state["queue"] and state["queue"][0] == entry["text"]:
                state["queue"].pop(0)
            state["messages"] += 1
            state["last"] = entry["text"]
            if state["phase"] == "start" or step is None:
                state["phase"] = "" if state["phase"] == "start" else "echo"
            else:
                state["next"] += 1
                state["phase"] = ""
            self.busy = True
            return
        if role == "assistant":
            self._count(entry["text"], step or {})
        kind = kind_of(step) if step else ""
        if step and kind in ("ask", "turn", "limit"):
            state["phase"] = "asked"
            state["until"] = entry["t"] + step["seconds"] if "seconds" in step else None
        elif step is None:
            state["phase"] = ""
        elif role != "error":
            denied = kind == "permission" and entry["tool"]["exit_code"] != 0
            state["next"] += 1 + (step.get("guards", 0) if denied else 0)

    def _begin(self, prompt: str) -> None:
        if self.state["phase"] == "start":
            if prompt:
                self._take(prompt, phase="")
            elif self.wait_for_message:
                self.emit("ready")
                self._take(self._message(), phase="")
            else:
                self._save(phase="")
        self.term.draw()

    def _idle(self) -> NoReturn:
        while True:
            if self.state["phase"] == "echo":
                self._assistant("ok: " + self.state["last"].split("\n", 1)[0], {})
                self._save(phase="")
            if self.state["phase"] == "":
                self._save(phase="idle")
                self._end_turn()
            else:
                self.emit("ready")
            self._take(self._message(), phase="echo")

    def _step(self, step: Step) -> None:
        kind, before = kind_of(step), self.state["next"]
        self.busy = self.busy or kind != "turn"
        skip = 0
        try:
            skip = getattr(self, "_do_" + kind)(step[kind], step) or 0
        except (OSError, ValueError) as error:  # ValueError: a NUL in a path or a command
            self._fail(f"{kind}: {error}")
        self._again = False
        if self.state["next"] == before:  # a step that took a message has moved on with it
            self._save(next=before + 1 + skip, phase="")

    def _filled(self, text: str) -> str:
        return text.replace("{message}", self.state["last"])

    def _sleep(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while True:
            left = end - time.monotonic()
            if left <= 0:
                return
            self._pump(left)

    def _do_say(self, text: str, step: Step) -> None:
        text = self._filled(text)
        if step.get("typing"):
            size = max(1, len(text) // 40)
            pieces = [text[at : at + size] for at in range(0, len(text), size)]
            self.term.end_line()
            for piece in pieces:
                self.term.put(clean(piece).encode("utf-8", "replace"))
                self._sleep(step["typing"] / len(pieces))
            self.term.end_line()
            self.term.draw()
        self._assistant(text, step, shown=bool(step.get("typing")))

    def _do_run(self, command: str, step: Step) -> None:
        message = self.state["last"].replace("\0", "").encode()[:ENV_CAP].decode("utf-8", "ignore")
        self.emit("tool", name="run", detail=command)
        self._show("$ " + head_of(command))
        code, output = self._execute(
            ["sh", "-c", command], timeout=step.get("timeout"), extra={"MESSAGE": message}, shown=True
        )
        self._tool("run", command, output, code)
        if code != step.get("expect_exit", code):
            self._fail(f"'{head_of(command)}' ended with {code}, not {step['expect_exit']}")

    def _do_write(self, path: str, step: Step) -> None:
        data = self._filled(step["text"]).encode("utf-8", "replace")
        self._announce("write", path)
        folder, name = inside(path, make=True)
        try:
            # NOFOLLOW: a symlink may lead out; NONBLOCK: a fifo must not hold us
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK
            with os.fdopen(os.open(name, flags, 0o666, dir_fd=folder), "wb") as file:
                file.write(data)
                if "mode" in step:
                    os.fchmod(file.fileno(), file_mode(step["mode"]))
        finally:
            os.close(folder)
        self._tool("write", path, f"{len(data)} bytes", 0)

    def _do_delete(self, path: str, step: Step) -> None:
        self._announce("delete", path)
        folder, name = inside(path, make=False)
        try:
            os.unlink(name, dir_fd=folder)
        except FileNotFoundError:
            if not self._again:
                raise
        finally:
            os.close(folder)
        self._tool("delete", path, "", 0)

    def _do_patch(self, diff: str, step: Step) -> None:
        names = re.findall(r"^\+\+\+ (?:b/)?(.*)$", diff, re.M)
        detail = ", ".join(names)
        self._announce("patch", detail)
        # Below the top of a repository git counts some paths from the top and silently leaves them out.
        top = {"GIT_CEILING_DIRECTORIES": os.path.dirname(os.getcwd())}
        code, output = self._execute(["git", "apply"], given=diff, extra=top)
        if code and self._again:
            code = self._execute(["git", "apply", "--reverse", "--check"], given=diff, extra=top)[0]
        self._tool("patch", detail, output, code)
        if code:
            self._fail("the patch does not apply: " + output.strip())

    def _do_commit(self, message: str, step: Step) -> None:
        paths: list[str] = step.get("paths", [])
        self._announce("commit", message)
        only = ["--", *paths] if paths else []
        code, output = self._execute(["git", "add", "-A", *only])
        if code == 0 and self._execute(["git", "diff", "--cached", "--quiet", *only])[0] == 0:
            self._tool("commit", message, "nothing to commit", 1)
            self._show("nothing to commit")
            return
        if code == 0:
            who = []
            for key, value in (("name", os.environ.get("MUSTER_AGENT") or "replay"), ("email", "replay@localhost")):
                if self._execute(["git", "config", "user." + key])[0]:
                    who += ["-c", f"user.{key}={value}"]
            argv = ["git", *who, "commit", "--quiet", "--no-gpg-sign", "--message=" + message, *only]
            code, output = self._execute(argv)
        self._tool("commit", message, output, code)
        if code:
            self._fail("cannot commit: " + output.strip())

    def _announce(self, name: str, detail: str) -> None:
        self.emit("tool", name=name, detail=detail)
        self._show(f"* {name} {head_of(detail)}")

    def _do_wait(self, seconds: float, step: Step) -> None:
        self.emit("tool", name="wait", detail=f"{seconds:g} s")
        self._sleep(seconds)

    def _do_turn(self, text: str, step: Step) -> None:
        if self.state["phase"] == "asked":
            self.emit("ready")
        else:
            if text:
                self._assistant(text, {})
            self._save(phase="asked")
            self._end_turn()
        self._take(self._message(), next=self.state["next"] + 1, phase="")

    def _do_ask(self, question: str, step: Step) -> None:
        if self.state["phase"] != "asked":
            self._assistant(question, {})
            self._save(phase="asked")
        self.emit("ask", text=question)
        message = self._message()
        self.emit("answered", text=message[:200])
        self._take(message, next=self.state["next"] + 1, phase="")

    def _do_permission(self, detail: str, step: Step) -> int:
        self._pump()  # what was typed before the dialog is no answer to it
        self._dialog, self._answer = True, None
        self.term.show(f"Permission for {step['tool']}\n  {detail}\nDo you want to proceed?\n  1. Yes  2. No")
        self.emit("permission", tool=step["tool"], detail=detail)
        if not self._await_input():
            self._fail("input ended while a permission was asked for")
        self._dialog = False
        allowed = bool(self._answer)
        word = "allowed" if allowed else "denied"
        self._tool("permission", f"{step['tool']}: {detail}", word, 0 if allowed else 1)
        self._show("  " + word)
        self.emit("answered", allowed=allowed)
        skip: int = 0 if allowed else step.get("guards", 0)
        if not allowed and step.get("on_deny") == "exit":
            self._save(next=self.state["next"] + 1 + skip, phase="")
            raise SystemExit(1)
        return skip

    def _do_expect(self, part: str, step: Step) -> None:
        last: str = self.state["last"]
        wanted = [("with", part)] if part not in last else []
        if "equals" in step and last != step["equals"]:
            wanted.append(("that is", step["equals"]))
        if "matches" in step and not re.search(step["matches"], last):
            wanted.append(("like", step["matches"]))
        for how, text in wanted:
            self._fail(f"expected a message {how} {json.dumps(text)[:200]}, got {json.dumps(last)[:200]}")

    def _do_submit(self, outcome: str, step: Step) -> None:
        result = {"version": 1, "outcome": outcome, "summary": step["summary"], "reason": step.get("reason", "")}
        result.update(escalate=step.get("escalate", []), artifacts=step.get("artifacts", []), t=int(time.time()))
        self._submit(outcome, json.dumps(result, separators=(",", ":")) + "\n")  # one line, as sh/agent/submit.sh

    def _do_submit_raw(self, text: str, step: Step) -> None:
        self._submit("", text)

    def _submit(self, outcome: str, text: str) -> None:
        path = os.environ.get("MUSTER_RESULT")
        if not path:
            self._fail("there is no $MUSTER_RESULT to submit to")
        self._announce("submit", outcome)
        key = os.environ.get("MUSTER_RESULT_KEY")
        if key and text.endswith(("}", "}\n")):
            text = _sealed(text.rstrip("\n")[:-1], key)
        replace(path, text.encode("utf-8", "replace"))
        self._tool("submit", outcome, "", 0)

    def _do_limit(self, text: str, step: Step) -> None:
        if self.state["phase"] != "asked":
            until = time.time() + step["seconds"] if "seconds" in step else None
            self._show(text)
            self._transcribe("error", text)
            self._save(phase="asked", until=until)
        until = self.state["until"]
        self.emit("limit", until=until, text=text)
        if until is None:
            self._take(self._message(), next=self.state["next"] + 1, phase="")
        else:
            self._sleep(until - time.time())
            self.emit("tool", name="limit", detail="over")

    def _do_exit(self, code: int, step: Step) -> None:
        self._save(next=self.state["next"] + 1)
        raise SystemExit(code)

    def _do_hang(self, _: bool, step: Step) -> None:
        self.term.deaf = True
        self.emit("tool", name="hang", detail="")
        while True:
            signal.pause()

    def _do_crash(self, name: str, step: Step) -> None:
        import resource

        self._save(next=self.state["next"] + 1)
        number = signal_number(name)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # no core file in the work dir
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def _do_flood(self, size: int, step: Step) -> None:
        line = "\x1b[3%dm\x1b7flood\x1b8\x1b[K %07d \x1b]0;flood %d\x07\u00e9\u6f22\U0001f600\t\x1b[1mbold\x1b[0m\n"
        number = 0
        while size:
            block = b"".join((line % (i % 8, i, i)).encode() for i in range(number, number + 500))
            number += 500
            if len(block) > size:  # whole lines, so that no sequence stays open
                block = block[: block.rfind(b"\n", 0, size) + 1]
                block += b"." * (size - len(block) - 1) + b"\n" * (len(block) < size)
            self.term.put(block)
            size -= len(block)
        self.term.draw()

    def _do_title(self, text: str, step: Step) -> None:
        self.term.put(b"\x1b]0;" + clean(text).encode("utf-8", "replace") + b"\x07")
        self.term.draw()

    def _do_print(self, text: str, step: Step) -> None:
        self.term.put(text.replace("\\e", "\x1b").encode("utf-8", "replace"))
        self.term.draw()

    # -- commands

    def _execute(
        self,
        argv: list[str],
        timeout: float | None = None,
        extra: dict[str, str] | None = None,
        given: str = "",
        shown: bool = False,
    ) -> tuple[int, str]:
        """Exit code (124 after a time-out, 128 + N by signal N) and output of a command; input is read meanwhile.

        It ends when the command does, whatever its background children keep open.
        """
        import subprocess

        self._watch_children()
        stdin: Any = subprocess.DEVNULL
        if given:
            replace(self._session("stdin"), given.encode("utf-8", "replace"))
            stdin = open(self._session("stdin"), "rb")  # noqa: SIM115  closed below
            os.unlink(self._session("stdin"))
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
        output = Output(self.term if shown else None)
        end = time.monotonic() + timeout if timeout is not None else None
        code: int | None = None
        try:
            closed = False
            while code is None:
                code = process.poll()
                if code is None:
                    left = None if end is None else end - time.monotonic()
                    if left is not None and left <= 0:
                        self._end_child(signal.SIGKILL)
                        process.wait()
                        code = 124
                        break
                    self._pump(left, self._wake, *([] if closed else [pipe]))
                    drain(self._wake)
                closed = closed or output.read(pipe) == 0
                if shown:
                    self.term.draw()
            left_over = PIPE_CAP
            while left_over > 0:
                left_over -= output.read(pipe) or PIPE_CAP
        finally:
            if code is None:
                self._end_child(signal.SIGKILL)
            self._child = 0
            process.stdout.close()
        output.finish()
        if shown:
            self.term.draw()
        return (128 - code if code < 0 else code), output.text()

    def _watch_children(self) -> None:
        """Have `select` wake when a child ends."""
        if self._wake < 0:
            self._wake, write = os.pipe()
            os.set_blocking(self._wake, False)
            os.set_blocking(write, False)
            signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def _end_child(self, number: int) -> None:
        if self._child > 0:
            with contextlib.suppress(OSError):
                os.killpg(self._child, number)


class Output:
    """What a command prints: shown line by line, kept up to a cap (its beginning and its end)."""

    def __init__(self, term: Terminal | None) -> None:
        self._term = term
        self._line = bytearray()
        self._head = bytearray()
        self._tail = bytearray()
        self._cut = 0

    def read(self, fd: int) -> int | None:
        """Take some of what is there and say how much: 0 at the end of the stream, None for nothing now."""
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


def head_of(text: str) -> str:
    """What the screen shows of a long text."""
    lines = text[:2000].split("\n")
    more = len(text) - sum(len(line) + 1 for line in lines[:10]) + 1
    return "\n  ".join(lines[:10]) + (f"\n  ({more} more characters)" if more > 0 else "")


def emit(folder: str, kind: str, **fields: Any) -> None:
    """One event: a line of `events.jsonl`, and the last of its kind in `ev/KIND`."""
    record = {"t": time.time(), "kind": kind, **fields}
    append(os.path.join(folder, "events.jsonl"), record)
    os.makedirs(os.path.join(folder, "ev"), exist_ok=True)
    replace(os.path.join(folder, "ev", kind), (json.dumps(record) + "\n").encode())
    with contextlib.suppress(OSError):
        if os.path.getsize(os.path.join(folder, "notify", "command")):  # somebody wants to be told
            os.spawnv(os.P_WAIT, "/bin/sh", ["sh", os.path.join(folder, "bin", "notify"), kind])


def main(arguments: list[str]) -> int:
    folder = os.environ.get("MUSTER_AGENT_DIR", "")
    if arguments not in ([], ["--resume"]) or not os.path.isdir(folder):
        sys.stderr.write("usage: MUSTER_AGENT_DIR=FOLDER python3 replay_player.py [--resume]\n")
        return 2
    try:
        try:
            with open(os.path.join(folder, "session", "playbook.json"), "rb") as file:
                playbook = json.loads(file.read().decode())
            wrong = flaw(playbook)
        except (OSError, ValueError) as error:
            wrong = str(error)
        if wrong:
            sys.stderr.write(f"replay: cannot play this playbook: {wrong}\n")
            emit(folder, "error", text="cannot play this playbook: " + wrong)
            return 2
        prompt = os.environb.get(b"MUSTER_PROMPT", b"").decode("utf-8", "replace")
        Player(folder, playbook).play(bool(arguments), prompt)
    except OSError as error:
        sys.stderr.write(f"replay: {error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
