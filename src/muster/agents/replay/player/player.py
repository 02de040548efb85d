"""Play a playbook: keep what was done so far, read messages and keys meanwhile, and go on after a kill."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time

from .actions import ACTIONS
from .commands import Commands
from .files import append, emit, mend, replace
from .format import flaw, kind_of
from .terminal import Terminal, head_of

TYPE_CHECKING = False  # `typing` itself is not loaded on the host
if TYPE_CHECKING:
    from typing import Any, NoReturn

    from .format import Step

TOKENS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")


class Player:
    """Play one session. Its progress is in `session/state.json`, saved after every step.

    A step counts as done when the state says so or when its line is in the transcript: `_recover` reads the lines
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
        self.answer: bool | None = None  # of the open dialog
        self.dialog = False
        self.again = False  # the current step may have been done before a kill
        self._interrupts = 0
        self.state: dict[str, Any] = {}
        self.commands = Commands(self.term, self._session("stdin"), self.pump, self._die)

    # -- evidence

    def _session(self, name: str) -> str:
        return os.path.join(self.folder, "session", name)

    def emit(self, kind: str, **fields: Any) -> None:
        emit(self.folder, kind, **fields)

    def transcribe(self, role: str, text: str, **fields: Any) -> None:
        append(self._session("transcript.jsonl"), {"t": time.time(), "role": role, "text": text, **fields})

    def save(self, **changes: Any) -> None:
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

    def assistant(self, text: str, step: Step, shown: bool = False) -> None:
        if not shown:
            self.show(text)
        usage = self._count(text, step)
        self.transcribe("assistant", text, model=step.get("model", "replay"), usage=usage)
        self._write_usage()

    def _write_usage(self) -> None:
        replace(os.path.join(self.folder, "usage.json"), json.dumps(self.state["usage"]).encode())

    def record_tool(self, name: str, detail: str, output: str, code: int) -> None:
        tool = {"name": name, "input": detail, "output": output, "exit_code": code}
        self.transcribe("tool", f"{name}: {detail}", tool=tool)

    def fail(self, text: str) -> NoReturn:
        self.transcribe("error", text)
        self.save()
        self.show("error: " + text)
        self.emit("error", text=text)
        raise SystemExit(9)

    def show(self, text: str) -> None:
        self.term.show(text)
        self.term.draw()

    # -- input

    def pump(self, timeout: float | None = 0, *also: int) -> list[int]:
        """Handle input for up to `timeout` seconds (None: no limit), or until one of `also` is readable or the
        expected message or answer has come. Return the readable files."""
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
        return self._incoming is not None if self._open else self.dialog and self.answer is not None

    def _keys(self) -> None:
        touched = True
        while touched:  # more may have come while the input line was drawn
            touched = self._take_keys()
            if touched and not self.dialog:
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
            if self.dialog:
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
            self.answer = True
        elif kind == "escape":
            self.answer = False
        elif kind == "text":
            for place, char in enumerate(data.lower()):
                if char in b"1y2n":
                    self.answer = char in b"1y"
                    self.term.give_back(data[place + 1 :])
                    return

    def _received(self, text: str) -> None:
        if self._open:
            self._incoming = text
            return
        self.state["queue"].append(text)
        self._save_queue()
        self.show("(queued) " + head_of(text))
        self.emit("queued", text=text)

    def _save_queue(self) -> None:
        # A step is under way: the saved size of the transcript must stay that of the last finished step.
        replace(self._session("state.json"), json.dumps(self.state).encode())

    def next_message(self) -> str:
        """Return the oldest queued message, or wait for one."""
        self.term.end_line()
        self.term.draw()
        if self.state["queue"]:
            return str(self.state["queue"][0])
        self._open = True
        if not self.await_input():
            raise SystemExit(0)
        self._open = False
        text, self._incoming = self._incoming or "", None
        return text

    def await_input(self) -> bool:
        """Wait for the message or the answer; return False when input ended without it."""
        while not self._satisfied():
            last = self.term.eof
            self.pump(0 if last else None)
            if last and not self._satisfied():
                return False
        return True

    def begin_turn(self, text: str, **changes: Any) -> None:
        """Begin a turn with this message."""
        queue: list[str] = self.state["queue"]
        self.transcribe("user", text)
        if queue and queue[0] == text:
            queue.pop(0)
        self.state["messages"] += 1
        self.busy = True
        self.save(last=text, **changes)
        self.emit("prompt", text=text, n=self.state["messages"])
        self.show("> " + head_of(text))

    def end_turn(self) -> None:
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
            self.save(queue=[], until=None, usage=usage)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._die)
        signal.signal(signal.SIGINT, self._interrupt)
        self.term.open()
        try:
            self._begin(prompt)
            while self.state["next"] < len(self.steps):
                self._step(self.steps[self.state["next"]])
                self.pump()
            self._idle()
        finally:
            self.commands.end(signal.SIGKILL)
            self.term.close()

    def _die(self, number: int, _: Any = None) -> None:
        if not self.commands.end_or_defer(number):
            return
        self.term.close()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def _recover(self) -> bool:
        """Load the saved state and apply newer transcript lines to it. Return False if no state was saved."""
        try:
            with open(self._session("state.json"), "rb") as file:
                self.state = json.loads(file.read().decode())
        except FileNotFoundError:
            return False
        self.busy = self.state["phase"] in ("", "echo")
        self.again = True
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
                continue  # the kill cut this line short
        self.save()
        self._write_usage()
        self._emit_missing_prompt()
        return True

    def _emit_missing_prompt(self) -> None:
        """Emit the `prompt` event of a message that was taken right before a kill: its sender waits for the receipt.

        A clone has the conversation but no events, so nothing is emitted there.
        """
        emitted = 0
        with contextlib.suppress(FileNotFoundError), open(os.path.join(self.folder, "events.jsonl"), "rb") as file:
            for line in file:
                with contextlib.suppress(ValueError):
                    event = json.loads(line.decode())
                    emitted = event["n"] if event.get("kind") == "prompt" else emitted
        if emitted and emitted == self.state["messages"] - 1:
            self.emit("prompt", text=self.state["last"], n=emitted + 1)

    def _replay(self, entry: dict[str, Any]) -> None:
        state, role = self.state, entry["role"]
        step = self.steps[state["next"]] if state["next"] < len(self.steps) else None
        self.again = False
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
                self.begin_turn(prompt, phase="")
            elif self.wait_for_message:
                self.emit("ready")
                self.begin_turn(self.next_message(), phase="")
            else:
                self.save(phase="")
        self.term.draw()

    def _idle(self) -> NoReturn:
        while True:
            if self.state["phase"] == "echo":
                self.assistant("ok: " + self.state["last"].split("\n", 1)[0], {})
                self.save(phase="")
            if self.state["phase"] == "":
                self.save(phase="idle")
                self.end_turn()
            else:
                self.emit("ready")
            self.begin_turn(self.next_message(), phase="echo")

    def _step(self, step: Step) -> None:
        kind, before = kind_of(step), self.state["next"]
        self.busy = self.busy or kind != "turn"
        skip = 0
        try:
            skip = ACTIONS[kind](self, step[kind], step) or 0
        except (OSError, ValueError) as error:  # ValueError: a NUL in a path or a command
            self.fail(f"{kind}: {error}")
        self.again = False
        if self.state["next"] == before:  # a step that took a message has advanced already
            self.save(next=before + 1 + skip, phase="")

    def fill_in(self, text: str) -> str:
        return text.replace("{message}", self.state["last"])

    def sleep(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while True:
            left = end - time.monotonic()
            if left <= 0:
                return
            self.pump(left)

    def announce(self, name: str, detail: str) -> None:
        self.emit("tool", name=name, detail=detail)
        self.show(f"* {name} {head_of(detail)}")


def main(arguments: list[str]) -> int:
    folder = os.environ.get("MUSTER_AGENT_DIR", "")
    if arguments not in ([], ["--resume"]) or not os.path.isdir(folder):
        sys.stderr.write("usage: MUSTER_AGENT_DIR=FOLDER python3 replay [--resume]\n")
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
