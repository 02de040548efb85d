"""sh/agent/hook.sh: what a client's hook says becomes an event, whatever is in it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .conftest import SRC, eventually

SH = SRC / "muster" / "sh" / "agent"
AGENTS = SRC / "muster" / "agents"
HOOK = Path(os.environ.get("MUSTER_HOOK", SH / "hook.sh"))


@pytest.fixture
def agent(tmp_path: Path) -> Path:
    for folder in ("ev", "bin", "client"):
        (tmp_path / folder).mkdir()
    shutil.copy(SH / "event.sh", tmp_path / "bin" / "event")
    return tmp_path


def fire(agent: Path, said: Any, kind: str, *fields: str) -> None:
    data = said if isinstance(said, bytes) else json.dumps(said, ensure_ascii=False).encode()
    env = {"PATH": os.environ["PATH"], "MUSTER_AGENT_DIR": str(agent)}
    done = subprocess.run(["sh", HOOK, kind, *fields], input=data, env=env, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def event(agent: Path, kind: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((agent / "ev" / kind).read_text(encoding="utf-8"))
    return found


def test_a_value_arrives_as_it_was_said(agent: Path) -> None:
    text = 'a "quoted" \\ line\nwith\ttab, üñ 🎉 $HOME `x` $(touch x) , : { [ "prompt":"no" \\u0041'
    said = {"cwd": '/x,"prompt":"evil"', "n": {"prompt": "inner"}, "l": ["prompt", {"prompt": 1}], "prompt": text}
    fire(agent, said, "prompt", "text=prompt", "where=cwd")
    assert event(agent, "prompt")["text"] == text and event(agent, "prompt")["where"] == '/x,"prompt":"evil"'
    assert json.loads((agent / "heard.json").read_text()) == text
    assert sorted(path.name for path in agent.iterdir()) == ["bin", "client", "ev", "events.jsonl", "heard.json"]


@pytest.mark.parametrize("text", ["\\" * 9001, '"' * 9001, "\x01" * 9001, "ü" * 9001, "a" + "\\" * 9000, "x🎉" * 5000])
def test_a_long_value_is_cut_in_the_event_and_heard_whole(agent: Path, text: str) -> None:
    for ascii in (True, False):
        fire(agent, json.dumps({"prompt": text}, ensure_ascii=ascii).encode(), "prompt", "text=prompt")
        told = event(agent, "prompt")["text"]
        assert told.endswith("…") and text.startswith(told[:-1]) and len(told) > 100
        assert json.loads((agent / "heard.json").read_text()) == text


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lead=st.integers(3900, 4000), tail=st.text(st.sampled_from('\\"\n\x02uaf0ü🎉 '), min_size=200, max_size=300))
def test_wherever_a_value_is_cut_the_event_can_be_read(agent: Path, lead: int, tail: str) -> None:
    fire(agent, {"prompt": "x" * lead + tail}, "prompt", "text=prompt")
    assert event(agent, "prompt")["text"].startswith("x" * 3900)


def test_a_key_may_be_looked_for_at_any_depth(agent: Path) -> None:
    said = {"tool_name": "Bash", "tool_input": {"command": "rm -rf x", "description": "d"}}
    fire(agent, said, "permission", "tool=tool_name", "detail=~command")
    assert (event(agent, "permission")["tool"], event(agent, "permission")["detail"]) == ("Bash", "rm -rf x")


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ({"why": "rate_limit", "text": "You've hit your limit"}, "limit"),
        ({"text": 'x","why":"rate_limit","text":"hit your', "why": "busy"}, "error"),
        ({"text": 'hit your",', "why": "rate_limit"}, "limit"),
        ({"why": "rate_limit", "text": "busy"}, "error"),
        ({"why": "rate_limited", "text": "You've hit your limit"}, "error"),
        ({"text": "You've hit your limit"}, "error"),
        ({"why": "full"}, "interrupted"),
        ({"?": "full"}, "error"),
        ({}, "error"),
    ],
)
def test_a_pattern_for_its_fields_changes_the_kind_of_an_event(agent: Path, said: Any, kind: str) -> None:
    conditions = ("limit?error=rate_limit&text=*hit your*", "interrupted?error=fu*")
    fire(agent, said, "error", "error=why", conditions[0], "text=text", conditions[1])
    assert [path.name for path in (agent / "ev").iterdir()] == [kind]
    assert event(agent, kind).get("text") == said.get("text")


def test_a_question_of_the_client_is_no_permission(agent: Path) -> None:
    said = {"tool_name": "AskUserQuestion", "tool_input": {"questions": [{"question": "Which?", "options": []}]}}
    fire(agent, said, "permission", "ask?tool=AskUserQuestion", "tool=tool_name", "text=~question")
    assert event(agent, "ask")["text"] == "Which?" and not (agent / "ev" / "permission").exists()


@pytest.mark.parametrize(
    "said", [b"", b"{", b'"', b'{"prompt":', b'{"prompt":"x', b"\xff\xfe", b"[1,2]", b'{"prompt":7}']
)
def test_what_is_no_json_is_an_event_without_a_value(agent: Path, said: bytes) -> None:
    fire(agent, said, "turn-end", "text=last")
    assert event(agent, "turn-end")["kind"] == "turn-end"


def test_in_the_middle_of_a_turn_tokens_are_counted_once_for_many_tools(agent: Path) -> None:
    shutil.copy(AGENTS / "claude" / "tally.sh", agent / "bin" / "real")
    (agent / "bin" / "tally").write_text(f'echo x >> {agent}/counted\nexec sh {agent}/bin/real "$@"\n')
    said = {
        "type": "assistant",
        "message": {"id": "m1", "model": "m", "usage": {"input_tokens": 7, "output_tokens": 5}},
    }
    (agent / "talk.jsonl").write_text(json.dumps(said, separators=(",", ":")) + "\n")
    for _ in range(5):
        fire(
            agent,
            {"tool_name": "Bash", "transcript_path": f"{agent}/talk.jsonl"},
            "tool",
            "name=tool_name",
            "where=transcript_path",
        )
    used = eventually(lambda: (agent / "usage.json").exists() and json.loads((agent / "usage.json").read_text()))
    assert (used["input_tokens"], used["output_tokens"]) == (7, 5) and not (agent / ".tally").exists()
    assert (agent / "counted").read_text() == "x\n"
    # One that was killed before it had counted does not keep others from it.
    (agent / ".tally").mkdir()
    os.utime(agent / ".tally", (0, 0))
    fire(agent, {"transcript_path": f"{agent}/talk.jsonl"}, "tool", "where=transcript_path")
    eventually(lambda: (agent / "counted").read_text() == "x\nx\n")


def test_an_agent_whose_folder_is_gone_is_not_brought_back(tmp_path: Path) -> None:
    fire(tmp_path / "gone", {"prompt": "x"}, "prompt", "text=prompt")
    assert not (tmp_path / "gone").exists()


def add(path: Path, line: dict[str, Any]) -> int:
    with path.open("a") as file:
        return file.write(json.dumps(line, separators=(",", ":")) + "\n")


def test_what_is_said_after_the_end_of_a_turn_is_not_kept_for_later(agent: Path) -> None:
    """The watcher of a turn of Codex looks from time to time: both may be there at its next look."""
    (agent / "client" / "pid").write_text(str(os.getpid()))
    (agent / "client" / "turn").write_text("t1\n")
    session = "01234567-89ab-cdef-0123-456789abcdef"
    (agent / "sessions").mkdir()
    rollout, history = agent / "sessions" / f"rollout-{session}.jsonl", agent / "history.jsonl"
    said = {"session_id": session, "ts": 1, "text": "during"}
    for path in (rollout, history):
        path.write_text("{}\n")
    env = {"PATH": os.environ["PATH"], "MUSTER_AGENT_DIR": str(agent)}
    watch = subprocess.Popen(["sh", AGENTS / "codex" / "watch.sh", "turn", str(rollout), "t1"], env=env)
    try:
        # Said again: the first time may be before it began to look.
        eventually(lambda: add(history, said) and (agent / "ev" / "queued").exists())
        assert event(agent, "queued")["text"] == "during"
        payload = {"type": "task_complete", "turn_id": "t1"}
        line = {"timestamp": "2026-01-01T00:00:00Z", "type": "event_msg", "payload": payload}
        add(rollout, line)
        add(history, {**said, "text": "after"})
        assert watch.wait(20) == 0
    finally:
        watch.kill()
        watch.wait()
    assert event(agent, "queued")["text"] == "during"
