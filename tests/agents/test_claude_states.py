"""What Claude Code is doing, told right: each state is one that the real client was brought to."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

from ..conftest import eventually
from .conftest import Claude
from .test_claude import login, made, until


def question(text: str, *options: str, many: bool = False) -> dict[str, Any]:
    entries = [{"label": option, "description": f"so {option}"} for option in options]
    return {"question": text, "header": "Asked", "multiSelect": many, "options": entries}


def asks(claude: Claude, *questions: dict[str, Any]) -> None:
    call = {"name": "AskUserQuestion", "input": {"questions": list(questions)}}
    claude.server.register("ask", {"tools": [call]}, {"text": "thanks"})
    made(claude, "#scn:ask please")
    row = until(claude, "waiting")
    assert row["reason"] == "question" and str(row["last_line"]).endswith(questions[0]["question"])


def answers(claude: Claude) -> str:
    return claude.server.turns()[-1].tool_results[-1]


def test_a_question_is_answered_by_one_of_its_entries(claude: Claude) -> None:
    asks(claude, question("Which colour?", "Red", "Blue"))
    refused = claude.fails(7, "message", "one", "-m", "hello?")
    assert "muster answer one TEXT" in refused.stderr
    assert "answered: one" in claude.ok("answer", "one", "blue").stderr
    until(claude, "ready")
    assert '"Which colour?"="Blue"' in answers(claude)


def test_a_question_is_answered_in_words_of_one_s_own(claude: Claude) -> None:
    asks(claude, question("Which colour?", "Red", "Blue"))
    claude.ok("answer", "one", "green, with $dots")
    until(claude, "ready")
    assert '"Which colour?"="green, with $dots"' in answers(claude)


def test_several_questions_are_answered_one_after_the_other(claude: Claude) -> None:
    asks(claude, question("Which colour?", "Red", "Blue"), question("Which size?", "Big", "Small"))
    claude.ok("answer", "one", "Red")
    assert claude.agents()["one"]["state"] == "waiting"
    claude.ok("answer", "one", "2")
    until(claude, "ready")
    assert '"Which colour?"="Red"' in answers(claude) and '"Which size?"="Small"' in answers(claude)


def test_a_question_with_boxes_is_for_a_person(claude: Claude) -> None:
    asks(claude, question("Which fruits?", "Fig", "Lime", many=True))
    assert "muster connect one" in claude.fails(7, "answer", "one", "Fig").stderr


def test_a_limit_is_waited_for_until_its_reset_time(claude: Claude) -> None:
    del claude.env["ANTHROPIC_API_KEY"]  # with a key the client takes it for a busy server
    (claude.home / ".claude" / ".credentials.json").write_text(login("token"))
    claude.server.register("limit", {"error": 429, "reset": 7200})
    claude.server.register("fine", {"text": "here I am"})
    made(claude, "#scn:limit please")
    row = until(claude, "waiting")
    assert row["reason"] == "limit" and "resets" in str(row["last_line"])
    assert isinstance(row["until"], float)
    assert abs(row["until"] - time.time() - 7200) < 120, "the client names the minute"
    assert "'limit'" in claude.ok("explain", "one").stdout
    assert "delivered: one" in claude.ok("message", "one", "-m", "#scn:fine and now?").stderr, "its dialog was closed"
    assert until(claude, "ready")["last_line"] == "here I am"


def test_an_api_error_that_is_tried_again_is_work(claude: Claude) -> None:
    claude.server.register("busy", {"error": 529, "times": 2, "text": "at last"})
    made(claude, "#scn:busy please")
    eventually(lambda: len(claude.server.turns()) >= 2)
    eventually(lambda: (claude.agents()["one"]["state"], claude.agents()["one"]["reason"]) == ("working", "retry"))
    assert until(claude, "ready")["last_line"] == "at last"
    assert claude.agents()["one"]["reason"] is None


def test_words_of_its_model_do_not_pass_for_a_refusal(claude: Claude) -> None:
    said = "✻ API error · Retrying in 2s · attempt 2/10"
    call = {"name": "Bash", "input": {"command": f"printf '%s\\n' '{said}'; while [ ! -e go ]; do sleep 0.1; done"}}
    claude.server.register("claims", {"text": f"{said}\n{said}", "tools": [call]}, {"text": "done"})
    made(claude, "#scn:claims please", "--permissions", "bypass")
    eventually(lambda: claude.ok("capture", "one").stdout.count("Retrying in 2s") >= 3)
    row = claude.agents()["one"]
    assert (row["state"], row["reason"]) == ("working", None)
    (Path(str(row["workdir"])) / "go").touch()
    until(claude, "ready")


def test_explain_tells_that_it_tries_again(claude: Claude) -> None:
    claude.server.register("busy", {"error": 529})
    made(claude, "#scn:busy please")
    eventually(lambda: "API error" in claude.ok("explain", "one").stdout)
    told = claude.ok("explain", "one", "--json").json
    screen = [item for item in told["evidence"] if item["source"] == "screen"]
    assert told["state"] == "working" and len(screen) == 1 and "Retrying" in screen[0]["fact"]


def test_a_command_in_the_background_outlives_the_turn(claude: Claude) -> None:
    call = {"name": "Bash", "input": {"command": "while [ ! -e go ]; do sleep 0.1; done", "run_in_background": True}}
    claude.server.register("behind", {"tools": [call]}, {"text": "it runs behind"})
    made(claude, "#scn:behind please", "--permissions", "bypass")
    row = until(claude, "ready")
    eventually(lambda: claude.agents()["one"]["reason"] == "background task")
    assert "still runs" in claude.ok("explain", "one").stdout
    (Path(str(row["workdir"])) / "go").touch()
    eventually(lambda: claude.agents()["one"]["reason"] is None and claude.agents()["one"]["state"] == "ready")


def client(claude: Claude) -> int:
    """The process of the client itself, as the client says."""
    folder = claude.muster_home / "agents" / str(claude.agents()["one"]["id"]) / "client" / "status"
    newest = max(folder.glob("*.json"), key=lambda path: path.stat().st_mtime)
    return int(json.loads(newest.read_text())["pid"])


def test_a_client_that_was_killed_failed_and_goes_on_with_its_conversation(claude: Claude) -> None:
    made(claude, "remember this")
    until(claude, "ready")
    os.kill(client(claude), signal.SIGKILL)
    row = until(claude, "failed")
    assert row["reason"] == "signal 9"
    claude.ok("start", "one")
    until(claude, "ready")
    claude.ok("message", "one", "-m", "and this")
    until(claude, "ready")
    assert claude.each_heard() == [["remember this", "and this"]]


def test_the_conversation_goes_on_after_the_death_of_tmux(claude: Claude) -> None:
    made(claude, "remember this")
    until(claude, "ready")
    claude.tmux("kill-server")
    until(claude, "lost")
    claude.ok("start", "one")
    until(claude, "ready")
    claude.ok("message", "one", "-m", "and this")
    until(claude, "ready")
    assert claude.each_heard() == [["remember this", "and this"]]


def test_a_client_that_was_left_is_done(claude: Claude) -> None:
    made(claude, "hello")
    row = until(claude, "ready")
    claude.tmux("send-keys", "-t", f"={row['id']}:", "-l", "/exit")
    eventually(lambda: "/exit" in claude.ok("capture", "one").stdout)
    claude.tmux("send-keys", "-t", f"={row['id']}:", "Enter")
    assert until(claude, "done")["reason"] is None


def test_without_any_hook_the_client_s_own_status_counts(claude: Claude) -> None:
    (claude.home / ".claude" / "settings.json").write_text('{"disableAllHooks": true}')
    claude.server.register("slow", {"text": "done", "hold": "go"})
    made(claude, "#scn:slow please")
    until(claude, "working")
    claude.server.release("go")
    until(claude, "ready")
    assert [event["kind"] for event in claude.ok("events", "one", "--json").json["events"]] == ["started"]
    told = claude.ok("explain", "one").stdout
    assert "its hooks have told nothing" in told
    assert "none seen for this launch; state taken from session file and screen" in told


def test_a_dialog_at_the_start_is_waited_on_and_trust_is_only_for_folders_of_the_user(claude: Claude) -> None:
    state = json.loads((claude.home / ".claude.json").read_text())
    (claude.home / ".claude.json").write_text(json.dumps({**state, "projects": {}}))
    claude.ok("create", "one", "claude", "--no-connect", "--from", f"file://{claude.repo}", "-m", "hello")
    row = until(claude, "waiting")
    assert row["reason"] == "dialog"
    assert "muster connect one" in claude.fails(7, "message", "one", "-m", "hello?").stderr
    claude.tmux("send-keys", "-t", f"={row['id']}:", "Enter")
    until(claude, "ready")
    assert claude.heard() == ["hello"]


def test_servers_of_the_project_that_the_user_allowed_need_no_dialog(claude: Claude) -> None:
    server = {"command": "sh", "args": ["-c", f"echo began >>{claude.home}/mcp; cat >/dev/null"]}
    (claude.repo / ".mcp.json").write_text(json.dumps({"mcpServers": {"theirs": server}}))
    state = json.loads((claude.home / ".claude.json").read_text())
    state["projects"] = {str(claude.repo): {"hasTrustDialogAccepted": True, "enabledMcpjsonServers": ["theirs"]}}
    (claude.home / ".claude.json").write_text(json.dumps(state))
    made(claude, "hello")
    until(claude, "ready")
    eventually(lambda: (claude.home / "mcp").exists())
