"""GitHub Copilot CLI itself, in its real terminal, against a scripted model; what is read of its files, without it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from muster.agents import copilot as copilot_type
from muster.message import guarded
from muster.model import Agent
from muster.plugins import Launch

from ..conftest import eventually
from .conftest import Copilot

SHAPES = [
    "two lines\nof ünïcode 🎉",
    "/help is no command here",
    "!ls is none either",
    "see @a.txt",
    "see docs/a.md and /quit",
    "a backslash \\",
    "a bracket [",
    "x" * 20_000,
    "\n".join(f"line {number}" for number in range(40)),
    "exit",
]
FORM = {"type": "object", "properties": {"colour": {"type": "string", "enum": ["Red", "Blue"]}}, "required": ["colour"]}


@pytest.mark.slow
def test_a_conversation_that_goes_on_after_a_stop(copilot: Copilot) -> None:
    first = '--version of @"this"\nin two lines, $HOME and `ticks`'
    copilot.server.register("dear", {"text": "words", "usage": {"input": 100, "output": 20, "cache_read": 5}})
    copilot.made(first)
    assert copilot.until("ready")["last_line"] == '--version of @"this"'
    for text in [*SHAPES, "#scn:dear please"]:
        assert "delivered: one" in copilot.ok("message", "one", "-m", text).stderr
        row = copilot.until("ready")
    heard = [first, *(guarded(copilot_type.TYPE, text) for text in SHAPES), "#scn:dear please"]
    tokens = 10 * (len(heard) - 1) + sum(len(text.split()) for text in heard[:-1]) + 125
    assert (row["last_line"], row["tokens"]) == ("words", tokens)

    copilot.ok("stop", "one")
    copilot.ok("start", "one")
    copilot.until("ready")
    copilot.ok("message", "one", "-m", "and this")
    assert copilot.until("ready")["tokens"] == tokens + 12
    heard.append("and this")
    assert [text.rstrip() for text in copilot.heard()] == heard
    copilot.ok("destroy", "one")
    entries = copilot.ok("transcript", "one", "--json").json["entries"]
    assert [entry["text"].rstrip() for entry in entries if entry["role"] == "user"] == heard
    assert (entries[-1]["role"], entries[-1]["text"]) == ("assistant", "and this")
    assert {path: path.read_bytes() for path in copilot.settings} == copilot.settings
    own = {path.relative_to(copilot.home / ".copilot") for path in (copilot.home / ".copilot").rglob("*")}
    assert own == {Path("config.json"), Path("settings.json")}


@pytest.mark.slow
def test_dialogs_are_answered_on_a_proven_screen_and_questions_by_their_id(copilot: Copilot) -> None:
    copilot.server.register("tool", {"shell": "echo made > made.txt"}, {"text": "made it"})
    copilot.made("#scn:tool please", "--permissions", "ask")
    row = copilot.until("waiting")
    made = Path(str(row["workdir"])) / "made.txt"
    assert (row["reason"], row["last_line"]) == ("permission", "shell: echo made > made.txt")
    assert copilot.run("message", "one", "-m", "hello?").code == 7
    assert not made.exists()
    copilot.ok("answer", "one", "yes")
    assert copilot.until("ready")["last_line"] == "made it"
    eventually(made.exists)

    question = {"name": "ask_user", "input": {"message": "Which colour?", "requestedSchema": FORM}}
    copilot.server.register("ask", {"tools": [question]}, {"text": "thanks"})
    copilot.ok("message", "one", "-m", "#scn:ask please")
    row = copilot.until("waiting")
    assert (row["reason"], row["last_line"]) == ("question", "Which colour?")
    copilot.ok("answer", "one", "2")
    assert copilot.until("ready")["last_line"] == "thanks"
    assert "Blue" in copilot.server.turns()[-1].tool_results[-1]


def test_a_conversation_to_go_on_with_gets_an_id_of_its_own() -> None:
    old, new = "0cb916db-26aa-40f2-86b5-1ba81b225fd2", "11111111-2222-3333-4444-555555555555"
    said = json.dumps({"type": "session.start", "data": {"sessionId": old}, "id": "x"}).encode()
    agent = Agent(id="a-1", name="a", type="copilot", workdir="/work", cwd="/work/sub")
    prepared = copilot_type.prepare(Launch(agent, "/agent", ("-x",), "hi", {"session/client.jsonl": said}, new))
    assert new.encode() in prepared.files["session/client.jsonl"]
    assert json.loads(prepared.files["client/trusted"]) == ["/work", "/work/sub"]
    assert prepared.argv == ("sh", "/agent/bin/copilot", "start", new, "-x")
    assert prepared.resume == ("sh", "/agent/bin/copilot", "resume", new, "-x")


def test_rules_become_the_client_s_own() -> None:
    rules = {
        "allow": ["Bash(git status)", "Bash(npm test:*)", "Edit", "mcp__box__open"],
        "deny": ["Bash(rm *)", "Bash"],
    }
    assert copilot_type.permission(rules) == [
        "--allow-tool=shell(git status)",
        "--allow-tool=shell(npm test:*)",
        "--allow-tool=write",
        "--allow-tool=box(open)",
        "--deny-tool=shell(rm:*)",
        "--deny-tool=shell",
    ]


def test_a_session_is_read_as_a_transcript() -> None:
    call = {"toolCallId": "t1", "name": "bash", "arguments": {"command": "ls"}}
    used = {"model": "m", "inputTokens": 12, "outputTokens": 3, "cacheReadTokens": 2, "cacheWriteTokens": 0}
    lines = [
        {"type": "user.message", "data": {"content": "hello"}},
        {"type": "user.message", "data": {"content": "read out", "source": "skill-x"}},
        {"type": "session.usage_record", "data": {"usage": used}},
        {"type": "assistant.message", "data": {"content": "I look", "model": "m", "toolRequests": [call]}},
        {"type": "tool.execution_complete", "data": {"toolCallId": "t1", "result": {"content": "a.txt"}}},
        {"type": "assistant.message", "agentId": "sub", "data": {"content": "not the agent's own"}},
        {"type": "session.error", "data": {"message": "no good"}},
        {"type": "assistant.message", "data": "torn"},
    ]
    entries = copilot_type.translate(lines)
    assert [(entry["role"], entry["text"]) for entry in entries] == [
        ("user", "hello"),
        ("assistant", "I look"),
        ("tool", "bash: ls"),
        ("error", "no good"),
    ]
    assert entries[2]["tool"]["output"] == "a.txt"
    assert entries[1]["usage"] == {
        "input_tokens": 10,
        "output_tokens": 3,
        "cache_read_tokens": 2,
        "cache_write_tokens": 0,
    }


RULE = "─" * 60
BOX = f" ● made it\n\n /repo [⎇ main]\n{RULE}\n❯{{}}\n{RULE}\n ← open sidebar · Interactive · Manual Approval"
FRAME = f"""╭{RULE}╮
│ run a command │
│ ╭{RULE}╮ │
│ │ echo made > made.txt │ │
│ ╰{RULE}╯ │
│ Do you want to run this command? │
│ ❯ 1. Yes │
│   2. No, and tell Copilot what to do differently (Esc to stop) │
│ ↑/↓ to navigate · enter to select · esc to cancel │
╰{RULE}╯"""
ASKS = f"{RULE}\n Copilot needs information.\n Which colour?\n ❯ Red\n   Blue\n ↑/↓ select · enter accept\n{RULE}"


def test_only_its_permission_dialog_is_one() -> None:
    found = re.search(copilot_type.DIALOG, f" words\n{FRAME}", re.MULTILINE)
    assert found and "echo made > made.txt" in found[0]
    assert not re.search(copilot_type.DIALOG, ASKS, re.MULTILINE)
    assert not re.search(copilot_type.DIALOG, f"{FRAME}\n{BOX.format('')}", re.MULTILINE)
