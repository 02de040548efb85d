"""opencode itself, in its real terminal, against a scripted model. It takes its time to start, so each test asks for much."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from muster.agents import opencode as opencode_type

from ..conftest import eventually
from .conftest import Opencode


def made(opencode: Opencode, text: str, *options: str) -> None:
    opencode.ok("create", "one", "opencode", "--no-connect", *options, "-m", text)


def until(opencode: Opencode, state: str) -> dict[str, object]:
    opencode.ok("wait", "one", "--until", state, "--timeout", "300s")
    return opencode.agents()["one"]


def said(opencode: Opencode) -> list[tuple[str, str]]:
    return [(entry["role"], entry["text"]) for entry in opencode.ok("transcript", "one", "--json").json["entries"]]


@pytest.mark.slow
def test_a_conversation_that_goes_on_after_a_stop(opencode: Opencode) -> None:
    settings = opencode.home / ".config" / "opencode" / "opencode.json"
    before = settings.read_bytes()
    first = '--version of "this"\nin two lines, $HOME and `ticks`'
    opencode.server.register("dear", {"text": "words", "usage": {"input": 100, "output": 20, "cache_read": 5}})
    made(opencode, first)
    assert until(opencode, "ready")["last_line"] == '--version of "this"'
    shapes = ["see @a.txt", "go to /help", "a backslash \\", "a bracket [", "Message: exit"]
    texts = ["two lines\nof ünïcode 🎉", "/help is no command here", "x" * 20_000, *shapes, "#scn:dear please"]
    for text in [text.removeprefix("Message: ") for text in texts]:
        assert "delivered: one" in opencode.ok("message", "one", "-m", text).stderr
        row = until(opencode, "ready")
    echoed = [first, texts[0], f"Message: {texts[1]}", texts[2], *shapes]
    echo = len(echoed) * 10 + sum(len(text.split()) for text in echoed)
    assert (row["last_line"], row["tokens"]) == ("words", echo + 125)

    opencode.ok("stop", "one")
    opencode.ok("start", "one")
    until(opencode, "ready")
    opencode.ok("message", "one", "-m", "and this")
    assert until(opencode, "ready")["tokens"] == echo + 125 + 12
    heard = [text.rstrip() for text in opencode.heard()]  # it adds a blank to a long one
    assert heard == [first, texts[0], f"Message: {texts[1]}", *texts[2:], "and this"]
    assert settings.read_bytes() == before
    opencode.ok("destroy", "one")
    assert [text.rstrip() for role, text in said(opencode) if role == "user"] == heard
    assert said(opencode)[-1] == ("assistant", "and this")


@pytest.mark.slow
def test_dialogs_failed_turns_and_messages_during_a_turn(opencode: Opencode) -> None:
    opencode.server.register("tool", {"shell": "echo made > made.txt"}, {"text": "made it", "hold": "go"})
    made(opencode, "#scn:tool please")
    row = until(opencode, "waiting")
    assert (row["reason"], row["last_line"]) == ("permission", "bash: echo made > made.txt")
    assert "muster answer one yes" in opencode.fails(7, "message", "one", "-m", "hello?").stderr
    opencode.ok("answer", "one", "yes")
    until(opencode, "working")
    assert "queued: one" in opencode.ok("message", "one", "-m", "and then this").stderr
    opencode.server.release("go")
    assert until(opencode, "ready")["last_line"] == "and then this"
    assert (Path(str(row["workdir"])) / "made.txt").read_text() == "made\n"
    assert ("tool", "bash: echo made > made.txt") in said(opencode)

    answers = [{"label": "red", "description": "warm"}, {"label": "blue", "description": "cold"}]
    question = {"question": "Which colour?", "header": "Colour", "options": answers}
    opencode.server.register(
        "ask", {"tools": [{"name": "question", "input": {"questions": [question]}}]}, {"text": "fine"}
    )
    opencode.ok("message", "one", "-m", "#scn:ask please")
    assert until(opencode, "waiting")["reason"] == "question"
    assert "muster answer one" in opencode.fails(7, "message", "one", "-m", "hello?").stderr
    opencode.ok("answer", "one", "green")
    assert until(opencode, "ready")["last_line"] == "fine"
    assert '"Which colour?"="green"' in opencode.server.turns()[-1].tool_results[-1]

    several = {"question": "Which sizes?", "header": "Sizes", "options": answers, "multiple": True}
    opencode.server.register("two", {"tools": [{"name": "question", "input": {"questions": [question, several]}}]})
    opencode.ok("message", "one", "-m", "#scn:two please")
    assert until(opencode, "waiting")["last_line"] == "Which colour?"
    opencode.ok("answer", "one", "2")
    assert until(opencode, "waiting")["last_line"] == "Which sizes?"
    opencode.ok("answer", "one", "1, blue")
    until(opencode, "ready")
    assert '"Which colour?"="blue", "Which sizes?"="red, blue"' in opencode.server.turns()[-1].tool_results[-1]

    opencode.server.register("bad", {"error": 400, "message": "no good"})
    opencode.ok("message", "one", "-m", "#scn:bad please")
    row = until(opencode, "ready")
    assert (row["reason"], row["last_line"]) == ("failed turn", "no good")

    opencode.server.register("denied", {"shell": "echo > denied.txt"}, {"text": "as you like"})
    opencode.ok("message", "one", "-m", "#scn:denied please")
    until(opencode, "waiting")
    opencode.ok("answer", "one", "no")
    until(opencode, "ready")
    assert not (Path(str(row["workdir"])) / "denied.txt").exists()

    opencode.server.register("long", {"text": "word " * 500, "word_delay": 0.1})
    opencode.ok("message", "one", "-m", "#scn:long please")
    eventually(lambda: "word word" in opencode.ok("capture", "one").stdout)
    # It wants Escape twice, and says so after the first.
    opencode.tmux("send-keys", "-t", f"={row['id']}:", "Escape")
    eventually(lambda: "esc again to interrupt" in opencode.ok("capture", "one").stdout)
    opencode.tmux("send-keys", "-t", f"={row['id']}:", "Escape")
    assert until(opencode, "ready")["reason"] == "interrupted"

    opencode.server.register("quota", {"error": 429, "message": "You have hit your usage limit", "retry_after": 3000})
    opencode.ok("message", "one", "-m", "#scn:quota please")
    row = until(opencode, "waiting")
    assert row["reason"] == "limit"
    assert float(str(row["until"])) == pytest.approx(time.time() + 3000, abs=100)


@pytest.mark.slow
def test_bypass_asks_nothing(opencode: Opencode) -> None:
    opencode.server.register("tool", {"shell": "echo made > made.txt"}, {"text": "made it"})
    made(opencode, "#scn:tool please", "--permissions", "bypass")
    row = until(opencode, "ready")
    assert (Path(str(row["workdir"])) / "made.txt").exists()
    assert "permission" not in [event["kind"] for event in opencode.ok("events", "one", "--json").json["events"]]


@pytest.mark.slow
def test_rules_allow_and_deny_and_the_rest_is_asked_and_a_clone_goes_on(opencode: Opencode) -> None:
    path = opencode.home / ".config" / "muster" / "config.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('[permissions]\nallow = ["Bash(touch *)"]\ndeny = ["Bash(rm *)"]\n')
    commands = ["touch allowed", "rm allowed", "touch x; mkdir chained", "mkdir asked"]
    opencode.server.register("tools", *({"shell": command} for command in commands), {"text": "done so"})
    made(opencode, "#scn:tools please", "--permissions", "policy")
    row = until(opencode, "waiting")
    assert (row["reason"], row["last_line"]) == ("permission", "bash: touch x; mkdir chained")
    opencode.ok("answer", "one", "yes")
    eventually(lambda: opencode.agents()["one"]["last_line"] == "bash: mkdir asked")
    opencode.ok("answer", "one", "yes")
    assert until(opencode, "ready")["last_line"] == "done so"
    workdir = Path(str(row["workdir"]))
    assert all((workdir / name).exists() for name in ("allowed", "chained", "asked"))

    opencode.server.register("where", {"shell": "touch here.txt"}, {"text": "there"})
    opencode.ok("clone", "one", "two")
    opencode.ok("wait", "two", "--until", "ready", "--timeout", "300s")
    opencode.ok("message", "two", "-m", "#scn:where are you?")
    opencode.ok("wait", "two", "--until", "ready", "--timeout", "300s")
    assert opencode.server.turns()[-1].user_texts == ["#scn:tools please", "#scn:where are you?"]
    assert (Path(opencode.agents()["two"]["workdir"]) / "here.txt").exists()
    assert not (workdir / "here.txt").exists()
    opencode.ok("message", "one", "-m", "and you?")
    until(opencode, "ready")
    assert opencode.server.turns()[-1].user_texts == ["#scn:tools please", "and you?"]


def test_rules_in_its_own_words() -> None:
    rules = {
        "allow": ["Bash(touch *)", "Bash(git log:*)", "Write", "WebFetch(domain:a.org)"],
        "deny": ["Bash(rm *)", "WebSearch"],
    }
    found = opencode_type.permission(rules)
    assert list(found["bash"].items()) == [("*", "ask"), ("touch *", "allow"), ("git log *", "allow"), ("rm *", "deny")]
    assert (found["edit"], found["webfetch"], found["websearch"], found["*_*"]) == ("allow", "ask", "deny", "ask")


def test_a_conversation_gets_ids_of_its_own_in_the_same_order() -> None:
    session = "ses_0123456789abABCDEFGHIJKLMN"
    messages = [f"msg_0123456789a{digit}ABCDEFGHIJKLMN" for digit in "cd"]
    export = {"info": {"id": session}, "messages": [{"info": {"id": one, "sessionID": session}} for one in messages]}
    fresh, said = opencode_type.renamed(json.dumps(export).encode(), "01234567-89ab-4cde")
    told = json.loads(said)
    assert fresh == told["info"]["id"] == told["messages"][0]["info"]["sessionID"] == "ses_0123456789ab0123456789KLMN"
    ids = [one["info"]["id"] for one in told["messages"]]
    assert ids == sorted(ids)
    assert not {session, *messages} & {fresh, *ids}


@pytest.mark.parametrize(
    "said", [b"", b"{", b"[]", b'{"info": {"id": "ses_x"}}', b'{"info": {"id": 5}}', b"[" * 100_000]
)
def test_what_is_no_conversation_is_none(said: bytes) -> None:
    assert opencode_type.renamed(said, "01234567-89ab-4cde") == ("", b"")
