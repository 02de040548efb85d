"""opencode itself, in its real terminal, against a scripted model. It takes its time to start, so each test asks for much."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Opencode

pytestmark = pytest.mark.slow


def made(opencode: Opencode, text: str, *options: str) -> None:
    opencode.ok("create", "one", "opencode", "--no-connect", *options, "-m", text)


def until(opencode: Opencode, state: str) -> dict[str, object]:
    opencode.ok("wait", "one", "--until", state, "--timeout", "100s")
    return opencode.agents()["one"]


def said(opencode: Opencode) -> list[tuple[str, str]]:
    return [(entry["role"], entry["text"]) for entry in opencode.ok("transcript", "one", "--json").json["entries"]]


def test_a_conversation_that_goes_on_after_a_stop(opencode: Opencode) -> None:
    settings = opencode.home / ".config" / "opencode" / "opencode.json"
    before = settings.read_bytes()
    first = '--version of "this"\nin two lines, $HOME and `ticks`'
    opencode.server.register("dear", {"text": "words", "usage": {"input": 100, "output": 20, "cache_read": 5}})
    made(opencode, first)
    assert until(opencode, "ready")["last_line"] == '--version of "this"'
    texts = ["two lines\nof ünïcode 🎉", "/help is no command here", "x" * 20_000, "#scn:dear please"]
    for text in texts:
        assert "delivered: one" in opencode.ok("message", "one", "-m", text).stderr
        row = until(opencode, "ready")
    echo = 4 * 10 + sum(len(text.split()) for text in [first, texts[0], f"Message: {texts[1]}", texts[2]])
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
    opencode.ok("answer", "one", "green")
    assert until(opencode, "ready")["last_line"] == "fine"
    assert '"Which colour?"="green"' in opencode.server.turns()[-1].tool_results[-1]

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


def test_bypass_asks_nothing(opencode: Opencode) -> None:
    opencode.server.register("tool", {"shell": "echo made > made.txt"}, {"text": "made it"})
    made(opencode, "#scn:tool please", "--permissions", "bypass")
    row = until(opencode, "ready")
    assert (Path(str(row["workdir"])) / "made.txt").exists()
    assert "permission" not in [event["kind"] for event in opencode.ok("events", "one", "--json").json["events"]]
