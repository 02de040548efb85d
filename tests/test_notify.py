"""notifier.py: an event that changes the state runs the user's command once, and never troubles the agent."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from muster import evidence, notifier
from muster.config import NOTIFY_STATES
from muster.model import Agent

from .conftest import SRC, eventually

SH = SRC / "muster" / "sh" / "agent"
NOTE = f"""#!{sys.executable}
import json, os
with open(__file__ + ".told", "a") as file:
    file.write(json.dumps(dict(os.environ)) + "\\n")
"""


class Folder:
    """An agent's folder with a `[notify]` command that notes its environment down."""

    def __init__(self, path: Path) -> None:
        self.path = path / "agents" / "x-1"
        self.home = path / "home"
        self.told_file = path / "note.told"
        for name in ("ev", "bin", "notify", "rec"):
            (self.path / name).mkdir(parents=True)
        self.home.mkdir()
        for name in ("event", "notify", "reap"):
            shutil.copy(SH / f"{name}.sh", self.path / "bin" / name)
        shutil.copy(notifier.__file__, self.path / "bin" / "notify.py")
        (self.path / "notify" / "python").write_text(sys.executable + "\n")
        (self.path / "agent.json").write_text(json.dumps({"id": "x-1", "name": "ann", "type": "t"}) + "\n")
        (self.path / "cwd").write_text("/some where")
        note = path / "note"
        note.write_text(NOTE)
        note.chmod(0o755)
        self.ask(f"exec '{note}'", *NOTIFY_STATES)
        self.env = {
            "PATH": os.environ["PATH"],
            "MUSTER_AGENT_DIR": str(self.path),
            "MUSTER_AGENT_ID": "x-1",
            "SECRET": "x",
        }
        self.count = 0

    def ask(self, command: str, *states: str) -> None:
        (self.path / "notify" / "command").write_text(command)
        (self.path / "notify" / "on").write_text(" ".join(states))

    def launch(self, **more: str) -> None:
        """A launch, as the wrapper begins it: in an environment of the user's."""
        env = {"PATH": os.environ["PATH"], "HOME": str(self.home), **more}
        done = subprocess.run(["sh", "-c", "export -p"], env=env, capture_output=True, check=True)
        (self.path / "notify" / "env").write_bytes(done.stdout)
        self.event("started", pid=1)

    def event(self, kind: str, **fields: Any) -> None:
        inside = json.dumps(fields, separators=(",", ":"))[1:-1]
        done = subprocess.run(
            ["sh", self.path / "bin" / "event", kind, inside],
            env=self.env,
            cwd="/",
            capture_output=True,
            check=False,
            timeout=30,
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")

    def told(self) -> list[dict[str, str]]:
        """The calls of the command so far, in the order in which they came."""
        if not self.told_file.exists():
            return []
        return [json.loads(line) for line in self.told_file.read_text().splitlines()]

    def next(self) -> dict[str, str]:
        """The next call, and no other came with it."""
        self.count += 1
        calls: list[dict[str, str]] = eventually(lambda: self.told() if len(self.told()) >= self.count else None)
        assert len(calls) == self.count, calls
        return calls[-1]

    def states(self) -> list[str]:
        """All that was told, when nobody is left who could tell more."""
        eventually(lambda: not self.tellers())
        return sorted(call["MUSTER_NOTIFY_STATE"] for call in self.told())

    def tellers(self) -> list[str]:
        found = []
        for file in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                words = file.read_bytes()
                found += [file.parent.name] if f"{self.path}/bin/notify".encode() in words else []
        return found

    def log(self) -> str:
        file = self.path / "notify" / "log"
        return file.read_text(errors="replace") if file.is_file() else ""


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_a_question_is_told_with_the_agent_in_the_environment(folder: Folder) -> None:
    folder.launch(MINE="1")
    folder.event("prompt", text="hi")
    folder.event("ask", text="Which one?\nA or B")
    told = folder.next()
    assert {key: value for key, value in told.items() if key.startswith("MUSTER_")} == {
        "MUSTER_AGENT": "ann",
        "MUSTER_AGENT_ID": told["MUSTER_AGENT_ID"],
        "MUSTER_NOTIFY_ADDRESS": "ann",
        "MUSTER_NOTIFY_STATE": "waiting",
        "MUSTER_NOTIFY_REASON": "question",
        "MUSTER_NOTIFY_TEXT": "Which one?",
        "MUSTER_NOTIFY_WORKDIR": "/some where",
    }
    assert "SECRET" not in told
    # Who ends the agent's processes by their mark does not find it.
    assert told["MUSTER_AGENT_ID"].startswith("notify-")
    assert (told["MINE"], told["HOME"], told["PWD"]) == ("1", str(folder.home), str(folder.home))


def test_only_a_change_is_told(folder: Folder) -> None:
    folder.launch()
    for kind in ("ready", "turn-end", "ready", "prompt", "tool", "prompt", "turn-end", "ready", "turn-end", "queued"):
        folder.event(kind)
    assert folder.next()["MUSTER_NOTIFY_STATE"] == "ready"
    for kind in ("prompt", "permission", "permission", "ask", "answered", "limit", "tool"):
        folder.event(kind)
    assert folder.states() == ["ready", "waiting", "waiting"]


def test_an_agent_that_is_up_and_waits_for_its_first_message_is_no_news(folder: Folder) -> None:
    folder.launch()
    folder.event("ready")
    assert folder.states() == []


def test_an_agent_that_has_a_question_at_once_is(folder: Folder) -> None:
    folder.launch()
    folder.event("permission", tool="Bash", detail="rm -rf build")
    told = folder.next()
    assert (told["MUSTER_NOTIFY_REASON"], told["MUSTER_NOTIFY_TEXT"]) == ("permission", "Bash: rm -rf build")


@pytest.mark.parametrize("states", [["failed"], ["ready"]])
def test_a_failed_turn_is_told_to_who_asks_for_failures_and_to_who_asks_for_ready(
    folder: Folder, states: list[str]
) -> None:
    folder.ask((folder.path / "notify" / "command").read_text(), *states)
    folder.launch()
    folder.event("prompt")
    folder.event("error", text="API Error: 400")
    told = folder.next()
    assert (told["MUSTER_NOTIFY_STATE"], told["MUSTER_NOTIFY_REASON"]) == ("ready", "failed turn")
    assert told["MUSTER_NOTIFY_TEXT"] == "API Error: 400"


def test_states_that_were_not_asked_for_are_not_told(folder: Folder) -> None:
    folder.ask((folder.path / "notify" / "command").read_text(), "failed")
    folder.launch()
    for kind in ("prompt", "ask", "answered", "turn-end", "prompt", "limit", "tool"):
        folder.event(kind)
    assert folder.states() == []


@pytest.mark.parametrize("kind", evidence.TURN)
def test_every_event_leads_to_the_state_that_list_shows(folder: Folder, kind: str) -> None:
    folder.launch()
    folder.event("ask" if evidence.TURN[kind] == "working" else "prompt")
    folder.event(kind)
    pane = {"dead": False, "status": None, "signal": 0, "pid": 1, "command": "x"}
    judged = evidence.judge(Agent("x-1", "ann", "t"), {kind: {"t": 1.0}}, pane, 2.0, speaks=True)
    (is_file,) = (folder.path / "notify").glob("is.*")
    assert is_file.name == f"is.{judged.state}"
    if judged.state in ("ready", "waiting"):
        told = folder.next()
        assert (told["MUSTER_NOTIFY_STATE"], told["MUSTER_NOTIFY_REASON"]) == (judged.state, judged.reason)


@pytest.mark.parametrize(
    "end",
    [{"code": 0}, {"code": 1}, {"code": 127}, {"code": 128}, {"code": 137}, {"code": 143, "why": "timeout"}, {"code": 129, "why": "hangup"}],
    ids=str,
)  # fmt: skip
def test_every_end_leads_to_the_state_that_list_shows(folder: Folder, end: dict[str, Any]) -> None:
    folder.launch()
    folder.event("exit", **end)
    pane = {"dead": True, "status": 1, "signal": 0, "pid": 1, "command": "x"}
    events = {"started": {"t": 1.0}, "exit": {"t": 2.0, **end}}
    gone = end.get("why") == "hangup"
    judged = evidence.judge(Agent("x-1", "ann", "t"), events, None if gone else pane, 3.0, speaks=True)
    told = folder.next()
    assert (told["MUSTER_NOTIFY_STATE"], told["MUSTER_NOTIFY_REASON"]) == (judged.state, judged.reason)
    assert not (folder.path / "notify" / "env").exists()


def test_a_wrapper_that_was_killed_is_told_by_tmux_and_one_that_was_not_is_not(folder: Folder) -> None:
    def died(*words: str) -> None:
        subprocess.run(["sh", folder.path / "bin" / "notify", "died", *words], env=folder.env, check=True)

    folder.launch()
    died("", "9")
    assert folder.next()["MUSTER_NOTIFY_REASON"] == "signal 9"
    folder.launch()
    folder.event("exit", code=3)
    assert folder.next()["MUSTER_NOTIFY_REASON"] == "exit 3"
    died("3", "")
    folder.launch()
    died("4", "0")
    assert folder.next()["MUSTER_NOTIFY_REASON"] == "exit 4"


def test_who_stops_an_agent_is_not_told_that_it_ended(folder: Folder) -> None:
    folder.launch()
    folder.event("prompt")
    folder.event("stopped")
    folder.event("exit", code=143)
    assert not (folder.path / "notify" / "env").exists()
    folder.launch()
    assert folder.states() == []


def test_what_an_ended_agent_last_said_or_showed_is_told(folder: Folder) -> None:
    raw = b'Script started on now\nfirst\r\n\x1b[31mFAILED\x1b[0m "a\\b" \xc3\xbc\x1b]0;title\x07\r\n\r\nScript done on then\n'
    (folder.path / "rec" / "1.raw").write_bytes(raw)
    (folder.path / "rec" / "tail").symlink_to("1.raw")
    folder.launch()
    folder.event("exit", code=2)
    assert folder.next()["MUSTER_NOTIFY_TEXT"] == 'FAILED "a\\b" ü'
    folder.launch()
    folder.event("turn-end", text="all done")
    folder.event("exit", code=3)
    assert folder.next()["MUSTER_NOTIFY_TEXT"] == "all done"


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(max_size=400), raw=st.booleans(), data=st.data())
def test_hostile_text_comes_bounded_and_plain(folder: Folder, text: str, raw: bool, data: st.DataObject) -> None:
    event = {"kind": "ask", "n": {"text": "no"}, "l": ["text", {"text": 1}], "text": text}
    shown = notifier.words(json.dumps(event, ensure_ascii=not raw).encode("utf-8", "replace"))
    assert len(shown) <= 200
    assert not any(ord(char) < 32 or 127 <= ord(char) < 160 for char in shown)
    # Nothing is lost of a text that can be printed.
    lines = [line.strip() for line in text.split("\n")]
    first = next((line for line in lines if line), "")
    if first and first.isprintable() and len(first) <= 200 and "\t" not in first:
        assert shown.strip() == first


@pytest.mark.parametrize(
    "text",
    ["$(touch HERE)", "`touch HERE`", "'; touch HERE; '", '"; touch HERE; "', "\\0101\\n%s%n", "-n", "\x1b]0;x\x07\x1b[2J", "\0", "🎉" * 999],
)  # fmt: skip
def test_hostile_text_is_never_part_of_a_command(folder: Folder, text: str) -> None:
    text = text.replace("HERE", str(folder.home / "here"))
    folder.launch()
    folder.event("ask", text=text)
    told = folder.next()
    assert told["MUSTER_NOTIFY_TEXT"] == "".join(char for char in text if char.isprintable())[:200]
    assert list(folder.home.iterdir()) == []


@pytest.mark.parametrize(
    ("command", "says"),
    [("no-such-program", "exit 127"), ("echo out; echo err >&2; exit 3", "out\nerr\nexit 3"), ("kill -9 $$", "exit 137"), ("if", "exit 2")],
)  # fmt: skip
def test_a_command_that_fails_is_in_the_log_and_nowhere_else(folder: Folder, command: str, says: str) -> None:
    folder.ask(command, "waiting")
    folder.launch()
    folder.event("ask")
    eventually(lambda: says in folder.log())
    assert "ann: waiting (question)\n" in folder.log()


def run(folder: Folder, seconds: int, command: str) -> Callable[[], str]:
    """The command as a verb starts it, with a time limit; returns what reads its log."""
    log = folder.path.parent / "notify.log"
    argv = [sys.executable, "-I", "-S", notifier.__file__, "-run", str(log), str(seconds), command]
    env = {**folder.env, "HOME": str(folder.home), "MUSTER_NOTIFY_ADDRESS": "a@b", "MUSTER_NOTIFY_STATE": "ready"}
    done = subprocess.run(argv, env=env, capture_output=True, check=True, timeout=20)
    assert (done.stdout, done.stderr) == (b"", b"")

    def read() -> str:
        try:
            return log.read_text(errors="replace")
        except FileNotFoundError:  # not yet there, or just put aside
            return ""

    return read


def test_a_command_that_hangs_is_ended_with_all_that_it_started(folder: Folder) -> None:
    pids = folder.home / "pids"
    log = run(
        folder, 1, "trap '' TERM; echo $$ >>pids; setsid sh -c 'trap \"\" TERM; echo $$ >>pids; sleep 1000; :' & sleep 1000"
    )  # fmt: skip
    eventually(lambda: "exit 137" in log())
    assert "it took longer than 1 s and is ended" in log()
    assert len(pids.read_text().split()) == 2
    eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids.read_text().split()))


def test_a_command_that_hangs_does_not_hold_up_the_agent(folder: Folder) -> None:
    folder.ask(f"echo $$ >'{folder.home}/pid'; exec sleep {notifier.SECONDS * 100}", "waiting")
    folder.launch()
    folder.event("ask")
    pid = int(eventually(lambda: (folder.home / "pid").exists() and (folder.home / "pid").read_text().strip()))
    folder.event("answered")
    os.kill(pid, 15)
    eventually(lambda: "exit 143" in folder.log())


def test_a_flood_of_output_is_cut(folder: Folder) -> None:
    log = run(folder, 20, "head -c 3000000 /dev/zero | tr '\\0' x; echo end >done")
    eventually((folder.home / "done").exists)
    first = eventually(log)
    assert len(first) <= 65536
    run(folder, 20, "echo again")
    eventually(lambda: "again" in log())
    assert sorted(path.name for path in folder.path.parent.iterdir()) == ["notify.log", "notify.log.1", "x-1"]


def test_of_many_events_at_once_one_is_told(folder: Folder) -> None:
    folder.launch()
    folder.event("prompt")
    argv = ["sh", folder.path / "bin" / "event", "permission", '"tool":"Bash"']
    many = [subprocess.Popen(argv, env=folder.env) for _ in range(12)]
    assert [process.wait(30) for process in many] == [0] * 12
    assert folder.states() == ["waiting"]


@pytest.mark.parametrize(
    "name", ["notify/env", "notify/on", "notify/log", "notify/is.waiting", "agent.json", "cwd", "ev/ask"]
)
def test_a_pipe_in_place_of_a_file_holds_up_nobody(folder: Folder, name: str) -> None:
    folder.launch()
    folder.event("prompt")
    (folder.path / name).unlink(missing_ok=True)
    os.mkfifo(folder.path / name)
    folder.event("ask", text="hm?")
    folder.event("exit", code=1)


def test_an_agent_that_was_renamed_is_told_by_its_new_name(folder: Folder) -> None:
    folder.launch()
    (folder.path / "agent.json").write_text(json.dumps({"id": "x-1", "name": "bea"}))
    folder.event("ask")
    assert folder.next()["MUSTER_AGENT"] == "bea"


def test_the_log_and_the_limit_are_what_the_documentation_says() -> None:
    words = (SRC.parent / "docs" / "notify.md").read_text()
    assert f" {notifier.SECONDS} seconds" in words and f"{notifier.OUTPUT_CAP // 1024} kB" in words


def test_python_starts_only_for_an_event_that_changes_the_state(folder: Folder) -> None:
    counter = folder.home / "python"
    counter.write_text(f"#!/bin/sh\necho \"$*\" >>'{folder.home}/starts'\nexec '{sys.executable}' \"$@\"\n")
    counter.chmod(0o755)
    (folder.path / "notify" / "python").write_text(f"{counter}\n")

    def starts() -> int:
        file = folder.home / "starts"
        return len(file.read_text().splitlines()) if file.exists() else 0

    folder.launch()
    assert starts() == 0
    for kind in ("prompt", "tool", "answered", "retry", "prompt", "queued", "session"):
        folder.event(kind)
    assert starts() == 1
    for kind in ("turn-end", "ready", "turn-end"):
        folder.event(kind)
    assert folder.next()["MUSTER_NOTIFY_STATE"] == "ready"
    assert starts() == 2
    folder.ask("")
    folder.event("prompt")
    assert starts() == 2


def test_a_python_that_is_gone_is_replaced_by_the_one_on_the_path(folder: Folder) -> None:
    (folder.path / "notify" / "python").write_text(f"{folder.home}/no/python\n")
    folder.launch()
    folder.event("ask", text="Shall I?")
    assert folder.next()["MUSTER_NOTIFY_TEXT"] == "Shall I?"


@pytest.mark.parametrize("content", [b"", b"{", b"[" * 100_000, b'{"text": 3}', b"[1]", b"\xff\xfe"])
def test_an_event_that_cannot_be_read_says_nothing(content: bytes) -> None:
    assert notifier.words(content) == ""
