"""mini-swe-agent itself, in its real terminal, against a scripted model: one task, then it ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Mini

pytestmark = pytest.mark.slow
MODEL = ("--", "-m", "openai/scripted-1")
SUBMIT = {"shell": "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; echo all good"}


def ended(mini: Mini) -> dict[str, object]:
    mini.ok("wait", "one", "--until", "done", "--until", "failed", "--timeout", "100s")
    return mini.agents()["one"]


def test_a_task_is_done_and_can_be_run_again(mini: Mini) -> None:
    step = {"shell": "echo made >> made.txt && cat made.txt", "text": "on it"}
    mini.server.register("task", {**step, "usage": {"input": 100, "output": 20, "cache_read": 5}}, SUBMIT)
    task = "--please do\n#scn:task"
    mini.ok("create", "one", "mini", "--permissions", "bypass", "--no-connect", "-m", task, *MODEL)
    row = ended(mini)
    assert (row["state"], row["last_line"], row["tokens"]) == ("done", "Submitted: all good", 125 + 11)
    entries = mini.ok("transcript", "one", "--json").json["entries"]
    assert [(entry["role"], entry["text"]) for entry in entries] == [
        ("user", task),
        ("assistant", "on it"),
        ("tool", f"bash: {step['shell']}"),
        ("tool", f"bash: {SUBMIT['shell']}"),
    ]
    assert entries[2]["tool"]["output"] == "made\n"
    assert entries[1]["usage"] == {
        "input_tokens": 100,
        "output_tokens": 20,
        "cache_read_tokens": 5,
        "cache_write_tokens": 0,
    }
    refused = mini.fails(1, "message", "one", "-m", "and more")
    assert "takes no messages after the first" in refused.stderr and "muster create NAME mini" in refused.stderr

    mini.ok("start", "one")
    row = ended(mini)
    assert (row["state"], row["tokens"]) == ("done", 2 * (125 + 11))
    assert (Path(str(row["workdir"])) / "made.txt").read_text() == "made\nmade\n"
    mini.ok("destroy", "one")
    assert len(mini.ok("transcript", "one", "--json").json["entries"]) == 8
    assert not (mini.home / ".config" / "mini-swe-agent" / "last_mini_run.traj.json").exists()


def test_it_asks_before_each_command_unless_told_otherwise(mini: Mini) -> None:
    mini.server.register("task", {"shell": "echo made > made.txt"}, SUBMIT)
    mini.ok("create", "one", "mini", "--no-connect", "-m", "#scn:task", *MODEL)
    for command in ("echo made > made.txt", SUBMIT["shell"]):
        mini.ok("wait", "one", "--until", "waiting", "--timeout", "100s")
        row = mini.agents()["one"]
        assert (row["reason"], row["last_line"]) == ("permission", f"bash: {command}")
        mini.ok("answer", "one", "yes")
    row = ended(mini)
    assert row["state"] == "done" and (Path(str(row["workdir"])) / "made.txt").exists()


def test_a_command_can_be_denied_and_a_task_that_was_not_submitted_has_failed(mini: Mini) -> None:
    mini.server.register("task", {"shell": "echo made > made.txt"})
    mini.ok("create", "one", "mini", "--no-connect", "-m", "#scn:task", *MODEL)
    mini.ok("wait", "one", "--until", "waiting", "--timeout", "100s")
    mini.ok("answer", "one", "no")
    row = ended(mini)  # the script has no more commands for it, so it gives up
    assert (row["state"], row["last_line"]) == ("failed", "RepeatedFormatError")
    assert not (Path(str(row["workdir"])) / "made.txt").exists()
    texts = [entry["text"] for entry in mini.ok("transcript", "one", "--json").json["entries"]]
    assert any("rejected your commands with the following message: no" in text for text in texts)


def test_without_a_task_nothing_is_made(mini: Mini) -> None:
    assert "needs a task" in mini.fails(2, "create", "one", "mini", "--no-connect").stderr
    assert mini.agents() == {}
