"""pi itself, in its real terminal, against a scripted model; what is read of its files, without it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from muster.agents import pi as pi_type
from muster.dialogs import chosen
from muster.message import guarded
from muster.model import Agent
from muster.plugins import Launch

from ..conftest import eventually
from .conftest import Pi

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


@pytest.mark.slow
def test_a_conversation_that_goes_on_after_a_stop(pi: Pi) -> None:
    settings = {path: path.read_bytes() for path in (pi.home / ".pi" / "agent").glob("*.json")}
    first = '--version of @"this"\nin two lines, $HOME and `ticks`'
    pi.server.register("dear", {"text": "words", "usage": {"input": 100, "output": 20, "cache_read": 5}})
    pi.made(first)
    assert pi.until("ready")["last_line"] == '--version of @"this"'
    for text in [*SHAPES, "#scn:dear please"]:
        assert "delivered: one" in pi.ok("message", "one", "-m", text).stderr
        row = pi.until("ready")
    heard = [first, *(guarded(pi_type.TYPE, text) for text in SHAPES), "#scn:dear please"]
    tokens = 10 * (len(heard) - 1) + sum(len(text.split()) for text in heard[:-1]) + 125
    assert (row["last_line"], row["tokens"]) == ("words", tokens)
    assert row["cost_usd"] == pytest.approx(tokens / 1e6)

    pi.ok("stop", "one")
    pi.ok("start", "one")
    pi.until("ready")
    pi.ok("message", "one", "-m", "and this")
    assert pi.until("ready")["tokens"] == tokens + 12
    heard.append("and this")
    assert [text.rstrip() for text in pi.heard()] == heard
    pi.ok("destroy", "one")
    entries = pi.ok("transcript", "one", "--json").json["entries"]
    assert [entry["text"].rstrip() for entry in entries if entry["role"] == "user"] == heard
    assert (entries[-1]["role"], entries[-1]["text"]) == ("assistant", "and this")
    assert {path: path.read_bytes() for path in settings} == settings


@pytest.mark.slow
def test_messages_during_a_turn_and_turns_that_do_not_end_well(pi: Pi) -> None:
    pi.server.register("tool", {"shell": "echo made > made.txt"}, {"text": "made it", "hold": "go"})
    pi.made("#scn:tool please")
    row = pi.until("working")
    made = Path(str(row["workdir"])) / "made.txt"
    eventually(made.exists)
    assert "queued: one" in pi.ok("message", "one", "-m", "and then this").stderr
    pi.server.release("go")
    assert pi.until("ready")["last_line"] == "and then this"
    assert pi.heard()[-1] == "and then this"

    pi.server.register("long", {"text": "word " * 500, "word_delay": 0.1})
    pi.ok("message", "one", "-m", "#scn:long please")
    eventually(lambda: "word word" in pi.ok("capture", "one").stdout)
    pi.tmux("send-keys", "-t", f"={row['id']}:", "Escape")
    assert pi.until("ready")["reason"] == "interrupted"

    pi.server.register("bad", {"error": 400, "message": "no good"})
    pi.ok("message", "one", "-m", "#scn:bad please")
    row = pi.until("ready")
    assert (row["reason"], row["last_line"]) == ("failed turn", "400 no good")

    quota = "You have hit your usage limit. Try again in ~7 min."
    pi.server.register("quota", {"error": 400, "message": quota})
    pi.ok("message", "one", "-m", "#scn:quota please")
    row = pi.until("waiting")
    assert row["reason"] == "limit"
    assert row["until"] - row["since"] == pytest.approx(7 * 60, abs=5)
    pi.ok("message", "one", "-m", "again")
    assert pi.until("ready")["last_line"] == "again"


@pytest.mark.slow
def test_a_model_that_refuses_is_tried_again(pi: Pi) -> None:
    path = pi.home / ".pi" / "agent" / "settings.json"
    once = {"retry": {"maxRetries": 1, "baseDelayMs": 500, "provider": {"maxRetries": 0}}}
    path.write_text(json.dumps({**json.loads(path.read_text()), **once}))
    pi.server.register("busy", {"error": 503, "times": 1, "text": "here"})
    pi.server.register("dead", {"error": 503, "message": "out of order"})
    pi.made("#scn:busy please")
    assert pi.until("ready")["last_line"] == "here"
    pi.ok("message", "one", "-m", "#scn:dead please")
    row = pi.until("ready")
    assert (row["reason"], row["last_line"]) == ("failed turn", "503 out of order")
    kinds = [event["kind"] for event in pi.ok("events", "one", "--json").json["events"]]
    assert kinds.count("retry") == 2


@pytest.mark.slow
def test_rules_allow_and_deny_and_the_rest_is_asked(pi: Pi) -> None:
    path = pi.home / ".config" / "muster" / "config.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('[permissions]\nallow = ["Bash(touch *)"]\ndeny = ["Bash(rm *)"]\n')
    commands = ["touch allowed", "rm allowed", "touch x; mkdir chained", "mkdir asked", "mkdir refused"]
    pi.server.register("tools", *({"shell": command} for command in commands), {"text": "done so"})
    pi.made("#scn:tools please", "--permissions", "policy")
    row = pi.until("waiting")
    for command, answer in zip(commands[2:], ["no", "yes", "no"], strict=True):
        row = pi.until("waiting")
        assert (row["reason"], row["last_line"]) == ("permission", f"bash: {command}")
        assert "muster answer one yes" in pi.fails(7, "message", "one", "-m", "hello?").stderr
        pi.fails(7, "answer", "one", "perhaps")
        pi.ok("answer", "one", answer)
    assert pi.until("ready")["last_line"] == "done so"
    made = [name for name in ("allowed", "chained", "asked", "refused") if (Path(str(row["workdir"])) / name).exists()]
    assert made == ["allowed", "asked"]
    assert "hello?" not in pi.heard()


EXTENSION = """export default function (pi) {
	pi.on("input", async ({ text }, ctx) => {
		if (!text.startsWith("ask me")) return
		const way = await ctx.ui.select("Which way?", ["left", "right"])
		const far = await ctx.ui.input("How far?")
		const sure = await ctx.ui.confirm("Sure?", "There is no way back.")
		return { action: "transform", text: `${way} ${far} ${sure}` }
	})
}
"""


@pytest.mark.slow
def test_dialogs_of_the_users_extensions_are_questions(pi: Pi) -> None:
    path = pi.home / ".pi" / "agent" / "extensions" / "asks.js"
    path.parent.mkdir()
    path.write_text(EXTENSION)
    pi.made("ask me")
    assert (pi.until("waiting")["reason"], pi.agents()["one"]["last_line"]) == ("question", "Which way?")
    assert "left, right" in pi.fails(7, "answer", "one", "3").stderr
    pi.ok("answer", "one", "2")
    eventually(lambda: pi.agents()["one"]["last_line"] == "How far?")
    pi.ok("answer", "one", "two miles")
    eventually(lambda: pi.agents()["one"]["last_line"].startswith("Sure?"))
    pi.ok("answer", "one", "no")
    assert pi.until("ready")["last_line"] == "right two miles false"


@pytest.mark.slow
def test_a_clone_goes_on_with_the_conversation_in_its_own_work_dir(pi: Pi) -> None:
    pi.made("remember the tree")
    pi.until("ready")
    pi.server.register("where", {"shell": "pwd > where.txt"}, {"text": "there"})
    pi.ok("clone", "one", "two", "-m", "#scn:where are you?")
    pi.ok("wait", "two", "--until", "ready", "--timeout", "60s")
    assert pi.server.turns()[-1].user_texts == ["remember the tree", "#scn:where are you?"]
    workdirs = [Path(pi.agents()[name]["workdir"]) for name in ("one", "two")]
    assert (workdirs[1] / "where.txt").read_text().strip() == str(workdirs[1])
    assert not (workdirs[0] / "where.txt").exists()
    pi.ok("message", "one", "-m", "and you?")
    pi.until("ready")
    assert pi.server.turns()[-1].user_texts == ["remember the tree", "and you?"]


def test_a_conversation_of_another_agent_begins_with_a_line_of_this_one() -> None:
    said = b'{"type":"session","id":"old","cwd":"/old"}\n{"type":"message","id":"a"}\n{"type":"mess'
    agent = Agent("two-1", "two", "pi", cwd="/new")
    ready = pi_type.prepare(Launch(agent, "/folder", (), "", {"session/client.jsonl": said}, "key"))
    first, second, *rest = ready.files["session/client.jsonl"].split(b"\n")
    assert (json.loads(first)["cwd"], json.loads(first)["id"]) == ("/new", "key")
    assert second == b'{"type":"message","id":"a"}'
    assert rest == [b""]


def test_its_lines_are_read_and_those_that_are_none_passed_over() -> None:
    usage = {"input": 3, "output": 4, "cacheRead": 5, "cacheWrite": 6}
    call = {"type": "toolCall", "id": "c", "name": "bash", "arguments": {"command": "ls"}}
    lines = [
        {"type": "session", "cwd": "/"},
        {"type": "message", "timestamp": "2026-01-01T00:00:00Z", "message": {"role": "user", "content": "hello"}},
        {"type": "message", "message": {"role": "assistant", "model": "m", "content": [call], "usage": usage}},
        {"type": "message", "message": {"role": "toolResult", "toolCallId": "c", "content": [{"text": "a.txt"}]}},
        {"type": "message", "message": {"role": "assistant", "content": 5, "stopReason": "error", "usage": 1}},
        {"type": "message", "message": None},
        {"type": "message", "message": {"role": "assistant", "content": [None, {"type": "toolCall", "arguments": 1}]}},
    ]
    user, tool, error, odd = pi_type.translate(lines)
    assert (user["role"], user["text"]) == ("user", "hello")
    assert (tool["text"], tool["tool"]["output"], tool["usage"]["cache_write_tokens"]) == ("bash: ls", "a.txt", 6)
    assert (error["role"], error["text"]) == ("error", "failed")
    assert odd["text"] == "None: 1"


@pytest.mark.parametrize(
    ("asked", "text", "answer"),
    [
        ({"choices": "red\nblue"}, "2", ["blue"]),
        ({"choices": "red\nblue"}, " Red ", ["red"]),
        ({"choices": "red\nblue"}, "3", []),
        ({"choices": "red\nblue"}, "", []),
        ({"choices": "red\nblue", "own": "yes"}, "green", ["green"]),
        ({"choices": "red\nblue", "own": "yes"}, " ", []),
        ({"choices": "red\nblue", "many": "yes"}, "1, blue", ["red", "blue"]),
        ({"choices": "red\nblue", "many": "yes"}, "1, green", []),
        ({"own": "yes"}, "7", ["7"]),
        ({"choices": None}, "none", []),
    ],
)
def test_an_answer_is_one_of_the_choices_or_ones_own_words(
    asked: dict[str, object], text: str, answer: list[str]
) -> None:
    assert chosen(asked, text) == answer
