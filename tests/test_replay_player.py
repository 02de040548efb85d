"""The player as it is shipped to hosts, in real terminals (a pty, a private tmux server)."""

from __future__ import annotations

import ast
import contextlib
import fcntl
import json
import os
import pty
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from muster.agents import replay
from muster.agents.replay.player import actions, format
from muster.agents.replay.player.player import Player
from muster.flow.run import results

NASTY = "".join(f"{i}\té ü 漢字 😀 \"quoted\" 'single' `tick` $HOME \\n %s {{}} !! ~ \u00a0|\n" for i in range(2000))

Event = dict[str, Any]


def shipped(folder: Path) -> Path:
    """Write the player into an agent's folder, as `create` does."""
    for name, content in replay.program_files().items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder / "bin/replay"


def flood(size: int) -> dict[str, Any]:
    """Return a step that prints so many bytes with all kinds of escape sequences."""
    line = "\x1b[3%dm\x1b7flood\x1b8\x1b[K %07d \x1b]0;flood %07d\x07\u00e9\u6f22\U0001f600\t\x1b[1mbold\x1b[0m\n"
    text = "".join(line % (number % 8, number, number) for number in range(size // len((line % (0, 0, 0)).encode())))
    return {"print": text + "." * (size - len(text.encode()) - 1) + "\n"}


class Session:
    """A player in a pty of its own, and what it left behind."""

    def __init__(self, base: Path) -> None:
        self.folder = base / "agent"
        self.work = base / "work"
        self.home = base / "home"
        for folder in (self.folder / "session", self.work, self.home):
            folder.mkdir(parents=True)
        self.result = base / "result.json"
        self.player = shipped(self.folder)
        self.screen = bytearray()
        self.process: subprocess.Popen[bytes] | None = None
        self.master = -1

    def playbook(self, *steps: dict[str, Any], **top: Any) -> None:
        document = {"version": 1, "steps": list(steps), **top}
        (self.folder / "session/playbook.json").write_text(json.dumps(document))

    def environment(self, **more: str) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "TERM": "xterm-256color",
            "GIT_CONFIG_NOSYSTEM": "1",
            "MUSTER_AGENT": "probe",
            "MUSTER_AGENT_DIR": str(self.folder),
            "MUSTER_RESULT": str(self.result),
            **more,
        }

    def start(self, *arguments: str, prompt: str = "") -> Session:
        self.close()
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.cooked = termios.tcgetattr(slave)
        self.slave = slave  # kept open, to read the mode of the terminal after the player's end
        os.set_blocking(self.master, False)
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-B", self.player, *arguments],
            cwd=self.work,
            env=self.environment(MUSTER_PROMPT=prompt),
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        return self

    def play(self, *steps: dict[str, Any], prompt: str = "go", **top: Any) -> Session:
        self.playbook(*steps, **top)
        return self.start(prompt=prompt)

    def _listen(self, wait: float) -> None:
        if select.select([self.master], [], [], wait)[0]:
            with contextlib.suppress(OSError):
                self.screen += os.read(self.master, 1 << 16)

    def until(self, there: Callable[[], Any], seconds: float = 60) -> None:
        end = time.monotonic() + seconds
        while not there():
            assert time.monotonic() < end, f"not seen; events {self.events()[-5:]}; screen {self.screen[-800:]!r}"
            self._listen(0.01)

    def seen(self, kind: str, count: int = 1) -> Event:
        self.until(lambda: len(self.events(kind)) >= count)
        return self.events(kind)[count - 1]

    def shown(self, text: str) -> None:
        self.until(lambda: text.encode() in self.screen)

    def send(self, data: bytes) -> None:
        while data:
            if select.select([], [self.master], [], 0.01)[1]:
                with contextlib.suppress(BlockingIOError):
                    data = data[os.write(self.master, data) :]
            self._listen(0)

    def paste(self, text: str) -> None:
        self.send(b"\x1b[200~" + text.encode() + b"\x1b[201~\r")

    def code(self) -> int:
        assert self.process
        process = self.process
        self.until(lambda: process.poll() is not None)
        while select.select([self.master], [], [], 0)[0]:
            self._listen(0)
        return int(process.returncode)

    def kill(self) -> None:
        assert self.process
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        if self.process:
            if self.process.poll() is None:
                self.process.terminate()
                self.process.wait(5)
            os.close(self.master)
            os.close(self.slave)
            self.process = None

    def _lines(self, path: Path) -> list[dict[str, Any]]:
        whole = path.read_bytes().rpartition(b"\n")[0] if path.exists() else b""
        return [json.loads(line) for line in whole.split(b"\n") if line]

    def events(self, kind: str = "") -> list[Event]:
        return [event for event in self._lines(self.folder / "events.jsonl") if kind in ("", event["kind"])]

    def kinds(self) -> list[str]:
        return [event["kind"] for event in self.events()]

    def transcript(self, role: str = "") -> list[dict[str, Any]]:
        lines = self._lines(self.folder / "session/transcript.jsonl")
        return [line for line in lines if role in ("", line["role"])]

    def texts(self, role: str) -> list[str]:
        return [line["text"] for line in self.transcript(role)]

    def state(self) -> dict[str, Any]:
        path = self.folder / "session/state.json"
        return dict(json.loads(path.read_text())) if path.exists() else {"phase": None}

    def git(self, *arguments: str) -> str:
        argv = ["git", "-C", str(self.work), *arguments]
        return subprocess.run(argv, env=self.environment(), check=True, capture_output=True, text=True).stdout


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    made = Session(tmp_path)
    yield made
    made.close()


# ---- a turn ---------------------------------------------------------------------------------------------


def test_a_prompt_begins_a_turn_and_used_up_steps_end_it(session: Session) -> None:
    session.play({"say": "you said {message}"}, prompt="hello\tthere ").seen("turn-end")
    assert session.kinds() == ["prompt", "turn-end"]
    assert session.events("prompt")[0]["text"] == "hello\tthere "
    assert session.events("prompt")[0]["n"] == 1
    assert session.events("turn-end")[0]["text"] == "you said hello\tthere "
    assert json.loads((session.folder / "ev/prompt").read_text()) == session.events("prompt")[0]
    session.shown("you said hello")


def test_later_messages_are_echoed_each_in_a_turn_of_its_own(session: Session) -> None:
    session.play().seen("turn-end")
    session.send(b"second\r")
    session.seen("turn-end", 2)
    session.paste("third\nline")
    session.seen("turn-end", 3)
    assert session.texts("assistant") == ["ok: second", "ok: third"]
    assert [event["n"] for event in session.events("prompt")] == [1, 2, 3]


def test_without_a_prompt_steps_begin_at_once_and_no_prompt_is_told(session: Session) -> None:
    session.play({"run": "echo hi"}, prompt="").seen("turn-end")
    assert session.kinds() == ["tool", "turn-end"]


def test_wait_for_message_starts_ready(session: Session) -> None:
    session.play({"say": "got {message}"}, prompt="", wait_for_message=True).seen("ready")
    assert session.kinds() == ["ready"]
    session.send(b"now\r")
    session.seen("turn-end")
    assert session.texts("assistant") == ["got now"]


def test_usage_is_given_or_estimated_and_totalled(session: Session) -> None:
    session.play(
        {"say": "x" * 40},
        {"say": "y", "input_tokens": 100, "output_tokens": 7, "cost_usd": 0.5, "model": "big"},
        prompt="12345678",
    ).seen("turn-end")
    first, second = session.transcript("assistant")
    assert first["model"] == "replay"
    assert first["usage"] == {
        "input_tokens": 2,
        "output_tokens": 10,
        "cache_read_tokens": 0,
        "cache_write_tokens": 0,
    }
    total = json.loads((session.folder / "usage.json").read_text())
    assert (total["input_tokens"], total["output_tokens"], total["cost_usd"]) == (102, 17, 0.5)
    assert total["models"]["big"] == second["usage"]


def test_cost_nobody_gave_is_unknown(session: Session) -> None:
    session.play({"say": "x"}).seen("turn-end")
    assert json.loads((session.folder / "usage.json").read_text())["cost_usd"] is None


def test_turn_waits_for_the_next_message(session: Session) -> None:
    session.play({"turn": "what next?"}, {"say": "then {message}"}, {"exit": 0}).seen("turn-end")
    assert session.events("turn-end")[0]["text"] == "what next?"
    session.send(b"this\r")
    assert session.code() == 0
    assert session.texts("assistant") == ["what next?", "then this"]
    assert session.kinds() == ["prompt", "turn-end", "prompt"]


def test_a_turn_before_any_work_is_ready(session: Session) -> None:
    session.play({"turn": ""}, prompt="").seen("ready")
    assert session.kinds() == ["ready"]


def test_ask_waits_for_an_answer(session: Session) -> None:
    session.play({"ask": "which one?"}, {"say": "so {message}"}, {"exit": 0}).seen("ask")
    assert session.events("ask")[0]["text"] == "which one?"
    session.send(b"red\r")
    assert session.code() == 0
    assert session.kinds() == ["prompt", "ask", "answered", "prompt"]
    assert session.texts("assistant") == ["which one?", "so red"]


# ---- commands and files ---------------------------------------------------------------------------------


def test_run_shows_and_records_what_the_command_did(session: Session) -> None:
    session.play({"run": 'echo "$MESSAGE"; pwd; exit 3'}, {"exit": 0}, prompt="$(touch bad)").code()
    (tool,) = session.transcript("tool")
    assert tool["tool"]["name"] == "run"
    assert tool["tool"]["output"] == f"$(touch bad)\n{session.work}\n"
    assert tool["tool"]["exit_code"] == 3
    assert session.events("tool")[0]["detail"].startswith("echo")
    assert not (session.work / "bad").exists()
    session.shown(str(session.work))


def test_run_ends_with_its_command_not_with_background_children(session: Session) -> None:
    session.play({"run": "sleep 60 & echo $!"}, {"exit": 0})
    assert session.code() == 0
    os.kill(int(session.transcript("tool")[0]["tool"]["output"]), signal.SIGTERM)


def test_run_is_killed_when_its_time_is_up(session: Session) -> None:
    session.play({"run": "yes", "timeout": 0.2}, {"exit": 0})
    assert session.code() == 0
    tool = session.transcript("tool")[0]["tool"]
    assert tool["exit_code"] == 124
    assert "bytes cut" in tool["output"]
    assert len(tool["output"]) < 70_000


def test_an_unexpected_exit_code_ends_the_session_with_9(session: Session) -> None:
    assert session.play({"run": "exit 4", "expect_exit": 0}).code() == 9
    assert "ended with 4, not 0" in session.events("error")[0]["text"]


def test_escape_sequences_of_a_command_do_not_reach_the_terminal(session: Session) -> None:
    session.play({"run": r"printf 'a\033[?2004lb\033]0;evil\007c\n'"}, {"exit": 0}).code()
    assert b"abc" in session.screen
    assert b"evil\x07" not in session.screen


def test_write_delete_patch_commit(session: Session) -> None:
    session.git("init", "-q")
    diff = "--- a/sub/one.txt\n+++ b/sub/one.txt\n@@ -1,2 +1,2 @@\n first\n-go\n+patched\n"
    session.play(
        {"write": "sub/one.txt", "text": "first\n{message}\n"},
        {"write": "tool.sh", "text": "#!/bin/sh\n", "mode": "755"},
        {"write": "gone.txt", "text": "x"},
        {"commit": "begin"},
        {"patch": diff},
        {"delete": "gone.txt"},
        {"commit": "only the patch", "paths": ["sub"]},
        {"commit": "the rest"},
        {"commit": "nothing left"},
        {"exit": 0},
    )
    assert session.code() == 0
    assert (session.work / "sub/one.txt").read_text() == "first\npatched\n"
    assert (session.work / "tool.sh").stat().st_mode & 0o777 == 0o755
    assert session.git("log", "--format=%s|%an", "--reverse").splitlines() == [
        "begin|probe",
        "only the patch|probe",
        "the rest|probe",
    ]
    assert session.git("show", "--name-only", "--format=", "HEAD~1").split() == ["sub/one.txt"]
    assert session.git("status", "--porcelain") == ""
    assert session.transcript("tool")[-1]["tool"]["output"] == "nothing to commit"


def test_a_configured_identity_is_kept(session: Session) -> None:
    session.git("init", "-q")
    session.git("config", "user.name", "Ada")
    session.git("config", "user.email", "ada@example.org")
    session.play({"write": "a", "text": "a"}, {"commit": "c"}, {"exit": 0}).code()
    assert session.git("log", "--format=%an %ae").strip() == "Ada ada@example.org"


@pytest.mark.parametrize("header", ["", "diff --git a/f b/f\n"])
def test_a_patch_applies_in_a_folder_below_the_top(session: Session, header: str) -> None:
    subprocess.run(["git", "init", "-q", str(session.work.parent)], check=True)
    (session.work / "f").write_text("a\n")
    session.play({"patch": header + "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n"}, {"exit": 0}).code()
    assert (session.work / "f").read_text() == "b\n"


@pytest.mark.parametrize(
    "step",
    [
        {"write": "../out", "text": "x"},
        {"write": "a/../../out", "text": "x"},
        {"write": "{outside}/out", "text": "x"},
        {"write": "link/out", "text": "x"},
        {"write": "filelink", "text": "x"},
        {"write": "", "text": "x"},
        {"delete": "link/victim"},
        {"delete": "../outside/victim"},
        {"patch": "--- a/link/victim\n+++ b/link/victim\n@@ -1 +1 @@\n-v\n+x\n"},
        {"patch": "--- a/../outside/victim\n+++ b/../outside/victim\n@@ -1 +1 @@\n-v\n+x\n"},
    ],
    ids=lambda step: repr(next(iter(step.values())))[:24],
)
def test_paths_that_leave_the_work_dir_are_refused(session: Session, tmp_path: Path, step: dict[str, str]) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "victim").write_text("v\n")
    (session.work / "link").symlink_to(outside)
    (session.work / "filelink").symlink_to(outside / "victim")
    step = {key: value.replace("{outside}", str(outside)) for key, value in step.items()}
    assert session.play(step).code() == 9
    assert len(session.events("error")) == len(session.transcript("error")) == 1
    assert [path.name for path in outside.iterdir()] == ["victim"]
    assert (outside / "victim").read_text() == "v\n"


# ---- results, limits, ends ------------------------------------------------------------------------------


def test_submit_writes_the_result(session: Session) -> None:
    session.play(
        {"submit": "ok", "summary": "did it", "escalate": ["look"], "artifacts": ["a.txt"]}, {"exit": 0}
    ).code()
    (line,) = session.result.read_text().splitlines()
    assert abs(json.loads(line)["t"] - time.time()) < 100
    assert results.read(line.encode()) == results.Result(
        "ok", "did it", escalate=("look",), artifacts=("a.txt",), t=json.loads(line)["t"]
    )


def test_submit_raw_writes_exactly_that(session: Session) -> None:
    session.play({"submit_raw": '{"outcome": '}, {"exit": 0}).code()
    assert session.result.read_text() == '{"outcome": '


def test_limit_tells_until_when_and_goes_on(session: Session) -> None:
    session.play({"limit": "You have hit your limit", "seconds": 0.3}, {"exit": 0})
    assert session.code() == 0
    (limit,) = session.events("limit")
    assert 0 < limit["until"] - limit["t"] <= 0.3
    assert session.kinds()[-1] == "tool"
    assert session.texts("error") == ["You have hit your limit"]


def test_limit_without_a_time_waits_for_a_message(session: Session) -> None:
    session.play({"limit": "no quota"}, {"say": "back: {message}"}, {"exit": 0}).seen("limit")
    assert session.events("limit")[0]["until"] is None
    session.send(b"go on\r")
    assert session.code() == 0
    assert session.texts("assistant") == ["back: go on"]


def test_exit_ends_with_its_code_and_gives_the_terminal_back(session: Session) -> None:
    assert session.play({"exit": 17}).code() == 17
    assert b"\x1b[?2004h" in session.screen
    assert session.screen.rstrip().endswith(b"\x1b[?2004l")
    assert termios.tcgetattr(session.slave) == session.cooked


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("step", [{"hang": True}, {"run": "echo $$ >pid; exec sleep 60"}, {"turn": ""}])
def test_signals_end_it_at_once_and_give_the_terminal_back(session: Session, number: int, step: dict[str, Any]) -> None:
    session.play(step)
    session.until(lambda: "run" not in step or ((session.work / "pid").exists() and (session.work / "pid").read_text()))
    session.until(lambda: b"> go" in session.screen)
    assert session.process
    session.process.send_signal(number)
    assert session.code() == -number
    assert termios.tcgetattr(session.slave) == session.cooked
    if "run" in step:
        child = Path(f"/proc/{(session.work / 'pid').read_text().strip()}/cmdline")
        session.until(lambda: not child.exists() or b"sleep" not in child.read_bytes())


def test_hang_ignores_everything_typed(session: Session) -> None:
    session.play({"hang": True}).seen("tool")
    session.send(b"hello\r\x03\x03")
    session._listen(0.2)
    assert session.process and session.process.poll() is None
    assert session.kinds() == ["prompt", "tool"]


@pytest.mark.parametrize("name", ["SEGV", "SIGKILL", "ABRT", "TERM"])
def test_crash_dies_by_that_signal_and_resume_goes_on_after_it(session: Session, name: str) -> None:
    session.play({"crash": name}, {"say": "again here"}, {"exit": 0})
    assert session.code() == -format.signal_number(name)
    session.start("--resume", prompt="go")
    assert session.code() == 0
    assert session.texts("assistant") == ["again here"]
    assert not list(session.work.iterdir())


def test_flood_writes_exactly_so_much_and_does_not_hang(session: Session) -> None:
    session.play(flood(5_000_000), {"exit": 0})
    assert session.code() == 0
    assert len(session.screen.replace(b"\r\n", b"\n")) == pytest.approx(5_000_000, abs=200)


def test_a_message_typed_into_a_flood_is_not_lost(session: Session) -> None:
    session.play(flood(3_000_000), {"turn": ""}, {"expect": "", "equals": NASTY[:50_000]}, {"exit": 0})
    session.shown("flood")
    session.paste(NASTY[:50_000])
    assert session.code() == 0


def test_print_is_raw_and_title_sets_the_title(session: Session) -> None:
    session.play({"print": "\\e[31mred\u001b[0m"}, {"print": " and more"}, {"title": "my title"}, {"exit": 0}).code()
    assert b"\x1b[31mred\x1b[0m and more" in session.screen
    assert b"\x1b]0;my title\x07" in session.screen


def test_typing_takes_its_time_and_wait_waits(session: Session) -> None:
    before = time.monotonic()
    session.play({"say": "slowly typed", "typing": 0.2}, {"wait": 0.2}, {"exit": 0}).code()
    assert time.monotonic() - before >= 0.4
    assert b"slowly typed" in session.screen


# ---- permissions and expectations -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "allowed"),
    [(b"1", True), (b"y", True), (b"\r", True), (b"x1", True), (b"2", False), (b"n", False), (b"\x1b", False)],
)
def test_a_permission_is_answered_by_key(session: Session, keys: bytes, allowed: bool) -> None:
    session.play(
        {"permission": "rm -rf build", "tool": "Bash", "guards": 2},
        {"say": "a"},
        {"say": "b"},
        {"say": "c"},
        {"exit": 0},
    )
    event = session.seen("permission")
    assert (event["tool"], event["detail"]) == ("Bash", "rm -rf build")
    session.shown("1. Yes  2. No")
    session.send(keys)
    assert session.code() == 0
    assert session.events("answered")[0]["allowed"] is allowed
    assert session.texts("assistant") == (["a", "b", "c"] if allowed else ["c"])


def test_on_deny_exit_ends_the_session(session: Session) -> None:
    session.play({"permission": "x", "tool": "T", "on_deny": "exit"}, {"say": "never"}).seen("permission")
    session.send(b"2")
    assert session.code() == 1
    assert session.texts("assistant") == []


def test_a_paste_is_no_answer_and_what_follows_the_answer_is_typed(session: Session) -> None:
    session.play({"permission": "x", "tool": "T"}, {"turn": ""}, {"exit": 0}).seen("permission")
    session.send(b"\x1b[200~yes 1\x1b[201~" + b"2hello\r")
    assert session.code() == 0
    assert session.events("answered")[0]["allowed"] is False
    assert session.texts("user") == ["go", "hello"]


@pytest.mark.parametrize(
    ("step", "code"),
    [
        ({"expect": "ell"}, 0),
        ({"expect": "", "matches": "^h.*o$"}, 0),
        ({"expect": "", "equals": "hello"}, 0),
        ({"expect": "bye"}, 9),
        ({"expect": "", "matches": "^e"}, 9),
        ({"expect": "", "equals": "hell"}, 9),
    ],
)
def test_expect_asserts_on_the_last_message(session: Session, step: dict[str, str], code: int) -> None:
    assert session.play(step, {"exit": 0}, prompt="hello").code() == code
    assert len(session.events("error")) == len(session.transcript("error")) == (code == 9)


# ---- typing ---------------------------------------------------------------------------------------------


def test_a_long_paste_arrives_whole_and_exact(session: Session) -> None:
    assert len(NASTY.encode()) > 128 * 1024
    session.play(prompt="", wait_for_message=True).seen("ready")
    session.paste(NASTY)
    assert session.seen("prompt")["text"] == NASTY
    assert session.texts("user") == [NASTY]


def test_a_paste_while_working_is_queued_whole_and_taken_at_the_next_turn(session: Session) -> None:
    session.play({"run": "while ! test -e go; do sleep 0.02; done"}, {"turn": ""}, {"turn": ""}, {"exit": 0})
    session.seen("tool")
    session.paste(NASTY)
    session.seen("queued")
    session.send(b"another\r")
    session.seen("queued", 2)
    assert len(session.events("prompt")) == 1
    (session.work / "go").touch()
    assert session.code() == 0
    assert session.texts("user") == ["go", NASTY, "another"]
    assert session.kinds() == ["prompt", "tool", "queued", "queued", "turn-end", "prompt", "turn-end", "prompt"]


def test_a_message_that_comes_while_the_input_line_is_drawn_is_not_left_lying(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    player = Player(str(tmp_path), {"version": 1, "steps": []})
    player.state = {"queue": []}
    (tmp_path / "session").mkdir()
    late = [b"two\r"]

    def draw() -> None:
        if late and (tmp_path / "events.jsonl").exists():  # the first was told already
            player.term.give_back(late.pop())

    monkeypatch.setattr(player.term, "draw", draw)
    monkeypatch.setattr(player.term, "put", lambda data: None)
    player.term.give_back(b"one\r")
    player._keys()
    assert player.state["queue"] == ["one", "two"]


def test_messages_queued_at_the_end_are_all_answered(session: Session) -> None:
    session.play({"run": "while ! test -e go; do sleep 0.02; done"}).seen("tool")
    session.send(b"one\rtwo\r")
    session.seen("queued", 2)
    (session.work / "go").touch()
    session.seen("turn-end", 3)
    assert session.texts("assistant") == ["ok: one", "ok: two"]


@pytest.mark.parametrize(
    ("typed", "text"),
    [
        (b"junk\x15kept\r", "kept"),
        (b"junk\x1b\x15kept\r", "kept"),
        (b"ab\xc3\xa9\x7fc\r", "abc"),
        (b"\r\r  spaces kept\t \n", "  spaces kept\t "),
        (b"a\x1b[A\x1b[1;5Cb\x1bOPc\r", "abc"),
        (b"left \x1b[200~a\r\nb\rc\nd\x1b[201~ right\r", "left a\nb\nc\nd right"),
        (b"junk\x1b\x1b[200~pasted\x1b[201~\r", "pasted"),
        (b"bad \xff byte\r", "bad \ufffd byte"),
    ],
)
def test_the_input_line(session: Session, typed: bytes, text: str) -> None:
    session.play(prompt="", wait_for_message=True).seen("ready")
    session.send(typed)
    assert session.seen("prompt")["text"] == text


def test_a_sequence_cut_in_two_is_still_a_paste(session: Session) -> None:
    session.play(prompt="", wait_for_message=True).seen("ready")
    session.send(b"shown\x1b[20")
    session.shown("> shown")
    session.send(b"0~one\ntwo\x1b[20")
    session._listen(0.15)
    session.send(b"1~\r")
    assert session.seen("prompt")["text"] == "shownone\ntwo"


def test_escape_alone_clears_the_line(session: Session) -> None:
    session.play(prompt="", wait_for_message=True).seen("ready")
    session.send(b"junk")
    session.shown("> junk")
    session.send(b"\x1b")
    session.until(lambda: session.screen.endswith(b"\r\x1b[K> "))
    session.send(b"[x\r")
    assert session.seen("prompt")["text"] == "[x"


def test_control_c_twice_exits_130_and_once_only_clears(session: Session) -> None:
    session.play(prompt="", wait_for_message=True).seen("ready")
    session.send(b"junk\x03kept\r")
    assert session.seen("prompt")["text"] == "kept"
    session.send(b"\x03\x03")
    assert session.code() == 130
    assert termios.tcgetattr(session.slave) == session.cooked


def test_without_a_terminal_lines_are_messages_and_the_end_of_input_ends_it(session: Session) -> None:
    session.playbook({"turn": "yes?"}, {"say": "got {message}"})
    done = subprocess.run(
        [sys.executable, "-I", "-B", session.player],
        cwd=session.work,
        env=session.environment(),
        input=b"one\ntwo\n",
        capture_output=True,
        timeout=10,
        check=True,
    )
    assert session.texts("assistant") == ["yes?", "got one", "ok: two"]
    assert b"\x1b" not in done.stdout


def test_it_takes_a_long_paste_in_tmux(session: Session, tmp_path: Path) -> None:
    tmux = ["tmux", "-S", str(tmp_path / "s"), "-f", "/dev/null"]
    session.playbook({"say": "hello from tmux"}, {"turn": ""}, {"exit": 0}, wait_for_message=True)
    environment = {**session.environment(), "LC_ALL": "C.UTF-8"}

    def call(*arguments: str, data: bytes = b"") -> str:
        done = subprocess.run([*tmux, *arguments], env=environment, input=data, check=True, capture_output=True)
        return done.stdout.decode()

    def seen(there: Callable[[], Any]) -> None:
        end = time.monotonic() + 10
        while not there():
            assert time.monotonic() < end, session.kinds()
            time.sleep(0.01)

    # tmux 3.3a sometimes knows no #{pane_dead_status} of a dead pane, so the shell writes it down.
    script = '"$@"; echo $? >code.tmp; mv code.tmp code'
    call(
        "new-session",
        "-d",
        "-s",
        "x",
        "-c",
        str(session.work),
        "sh",
        "-c",
        script,
        "-",
        sys.executable,
        str(session.player),
    )
    try:
        seen(lambda: session.events("ready"))
        for count, text in enumerate(("short\twith tab", NASTY), 1):
            call("load-buffer", "-b", "m", "-", data=text.encode())
            call("paste-buffer", "-p", "-d", "-b", "m", "-t", "=x:")
            call("send-keys", "-t", "=x:", "Enter")
            seen(lambda: session.events("prompt")[-1:] and session.events("prompt")[-1]["text"] == text)  # noqa: B023  called here
            if count == 1:
                seen(lambda: session.events("turn-end"))
                assert "hello from tmux" in call("capture-pane", "-p", "-t", "=x:")
        seen((session.work / "code").exists)
        assert (session.work / "code").read_text() == "0\n"
    finally:
        subprocess.run([*tmux, "kill-server"], check=False, capture_output=True)


# ---- resume ---------------------------------------------------------------------------------------------


def test_resume_after_kill_goes_on_where_it_was(session: Session) -> None:
    session.play(
        {"say": "one"},
        {"run": "echo ran >>log"},
        {"run": "while ! test -e go; do sleep 0.02; done"},
        {"say": "two, {message}"},
        {"exit": 0},
    )
    session.seen("tool", 2)
    session.send(b"later\r")
    session.seen("queued")
    session.kill()
    (session.work / "go").touch()
    session.start("--resume", prompt="go")
    assert session.code() == 0
    assert session.texts("assistant") == ["one", "two, go"]
    assert (session.work / "log").read_text() == "ran\n"
    assert len(session.events("prompt")) == 1
    assert session.state()["queue"] == ["later"]


@pytest.mark.parametrize(("step", "event"), [({"ask": "which?"}, "ask"), ({"turn": "your turn"}, "ready")])
def test_resume_waits_again_where_it_waited(session: Session, step: dict[str, str], event: str) -> None:
    session.play(step, {"say": "{message}"}, {"exit": 0})
    session.until(lambda: session.state()["phase"] == "asked")
    session.kill()
    before = len(session.events(event))
    session.start("--resume", prompt="go").seen(event, before + 1)
    session.send(b"answer\r")
    assert session.code() == 0
    assert session.texts("assistant") == [*step.values(), "answer"]
    assert [prompt["n"] for prompt in session.events("prompt")][-1] == 2


def test_resume_of_a_finished_playbook_is_ready(session: Session) -> None:
    session.play({"say": "done"}).seen("turn-end")
    session.until(lambda: session.state()["phase"] == "idle")
    session.kill()
    session.start("--resume", prompt="go").seen("ready")
    session.send(b"more\r")
    session.seen("turn-end", 2)
    assert session.texts("assistant") == ["done", "ok: more"]
    assert session.events("prompt")[-1]["n"] == 2


def test_kills_at_many_moments_repeat_and_lose_nothing(session: Session) -> None:
    steps: list[dict[str, Any]] = []
    for i in range(30):
        steps += [{"say": f"say {i}"}, {"write": f"f{i}", "text": str(i)}]
    session.play(*steps)
    for lines in range(4, 60, 8):
        session.until(lambda: len(session.transcript()) >= lines)  # noqa: B023  called here
        session.kill()
        session.start("--resume", prompt="go")
    session.seen("turn-end")
    assert session.texts("assistant") == [f"say {i}" for i in range(30)]
    assert len(session.transcript("tool")) == 30
    assert session.texts("user") == ["go"]
    usage = json.loads((session.folder / "usage.json").read_text())
    assert usage["output_tokens"] == sum(line["usage"]["output_tokens"] for line in session.transcript("assistant"))


@pytest.mark.parametrize("torn", [b"", b'{"t": 1, "role": "assis'])
def test_a_step_in_the_transcript_is_done_though_the_state_was_not_saved(session: Session, torn: bytes) -> None:
    session.play({"say": "one"}, {"turn": "two"}, {"say": "{message}"}, {"exit": 0})
    session.until(lambda: session.state()["phase"] == "asked")
    session.kill()
    state = session.state()
    path = session.folder / "session/transcript.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    state.update(next=1, phase="", transcript=len(lines[0] + lines[1]))
    (session.folder / "session/state.json").write_text(json.dumps(state))
    path.write_bytes(b"".join([*lines, b'{"t": 1, "role": "user", "text": "hi"}\n', torn]))
    session.start("--resume", prompt="go")
    assert session.code() == 0
    said = [json.loads(line) for line in path.read_bytes().splitlines() if line != torn]
    assert [line["text"] for line in said] == ["go", "one", "two", "hi", "hi"]
    assert session.state()["messages"] == 2
    assert [event["text"] for event in session.events("prompt")] == ["go", "hi"]


def test_a_copied_session_resumes_elsewhere(session: Session, tmp_path: Path) -> None:
    session.play({"say": "one"}, {"turn": ""}, {"say": "{message}"}, {"exit": 0}).seen("turn-end")
    clone = Session(tmp_path / "clone")
    shutil.rmtree(clone.folder / "session")
    shutil.copytree(session.folder / "session", clone.folder / "session")
    assert str(tmp_path) not in "".join(path.read_text() for path in (clone.folder / "session").iterdir())
    try:
        clone.start("--resume").seen("ready")
        clone.send(b"cloned\r")
        assert clone.code() == 0
        assert clone.texts("assistant") == ["one", "cloned"]
    finally:
        clone.close()


# ---- the file itself ------------------------------------------------------------------------------------


def test_the_player_is_lean_alone_and_python_3_7(tmp_path: Path) -> None:
    folder = shipped(tmp_path)
    for file in folder.rglob("*.py"):
        ast.parse(file.read_text(), feature_version=(3, 7))
    code = f"import sys; sys.path.insert(0, {str(folder)!r}); import player.player; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-I", "-S", "-B", "-c", code], capture_output=True, text=True, check=True)
    assert not {"muster", "subprocess", "threading", "typing", "tempfile", "difflib"} & set(done.stdout.split())


def test_every_kind_of_step_can_be_played() -> None:
    assert set(actions.ACTIONS) == set(format.KINDS)


@pytest.mark.parametrize(
    "content", ["{", "[]", '{"version": 2, "steps": []}', '{"version": 1, "steps": [{"sya": "x"}]}']
)
def test_a_playbook_it_cannot_play_is_exit_2(session: Session, content: str) -> None:
    (session.folder / "session/playbook.json").write_text(content)
    assert session.start().code() == 2
    assert "cannot play this playbook" in session.events("error")[0]["text"]
    assert b"Traceback" not in session.screen
