"""One run of ten real clients, some of which meet trouble: each comes to its outcome, and its work, words and cost are kept."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from .conftest import Claude

RULES = '[permissions]\nallow = ["Bash(touch *)", "Bash(git *)", "Bash(submit *)", "Bash(sh spoil.sh)"]\n'
USAGE = {"usage": {"input": 100, "output": 10}}
SUBMIT = {"shell": "submit --outcome ok --summary 'It is done.'", **USAGE}
END = {"text": "That is all.", **USAGE}
LIMITED = {"error": 429, "times": 2, "retry_after": 3}


def work(name: str) -> dict[str, Any]:
    return {"shell": f"touch {name}.txt && git add -A && git commit -q -m 'Add {name}'", **USAGE}


#: What the model says to each, and how many turns that is by the end.
SCRIPTS = {
    **{name: ([work(name), SUBMIT, END], 3) for name in ("one", "two", "three", "four", "five", "six")},
    "limited": ([{**LIMITED, **work("limited")}, {**LIMITED, **SUBMIT}, END], 3),
    "forbidden": ([work("forbidden"), {"shell": "rm README", **USAGE}, END], 2),
    "invalid": ([work("invalid"), {"shell": "sh spoil.sh", **USAGE}, END], 5),
    "forgetful": ([work("forgetful"), END], 4),
}


def test_a_run_launches_fewer_while_a_model_refuses_clients_that_try_again(claude: Claude) -> None:
    """Claude Code tells nobody that it is refused; its screen does."""
    config = claude.home / ".config" / "muster" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(RULES)
    claude.server.register("refused", {**LIMITED, **SUBMIT}, END)
    words = ("map", "-a", "claude", "--permissions", "policy", "--run", "refused", "--json")
    done = claude.ok(*words, "-p", "#scn:{item} please", input=b"refused\n", timeout=120)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    slowed = [event for event in events if event["kind"] == "slowed"]
    assert len(slowed) == 1 and slowed[0]["at_once"] == 1, "of one that is at work, half, but never none"
    assert slowed[0]["reason"].startswith("overload: next try in ") and slowed[0]["agent"] == "refused-0001"
    assert [event["outcome"] for event in events if event["kind"] == "outcome"] == ["ok"]
    assert [request.status for request in claude.server.turns()][:3] == [429, 429, 200]


@pytest.mark.slow
def test_ten_clients_come_to_their_outcomes(claude: Claude) -> None:
    config = claude.home / ".config" / "muster" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(RULES)
    (claude.repo / "spoil.sh").write_text('echo nonsense >"$MUSTER_RESULT"\n')
    claude.git("add", "-A")
    claude.git("commit", "-q", "-m", "Add a tool")
    before = claude.git("rev-parse", "HEAD")
    for name, (steps, _) in SCRIPTS.items():
        claude.server.register(name, *steps)
    claude.server.register("submits", SUBMIT, END)
    claude.server.cues = {"have not submitted a result": "submits", "result could not be taken": "submits"}

    words = ("map", "-a", "claude", "--permissions", "policy", "--run", "ten", "--max-agents", "10")
    items = "".join(f"{name}\n" for name in SCRIPTS).encode()
    claude.ok(*words, "-p", "#scn:{item} please", input=items, timeout=280)

    shown = claude.ok("runs", "show", "ten", "--json").json
    tasks = {task["item"]: task for task in shown["tasks"]}
    expected = {name: ("blocked" if name == "forbidden" else "ok", 1, 1) for name in SCRIPTS}
    assert {name: (task["outcome"], task["attempts"], task["commits"]) for name, task in tasks.items()} == expected
    assert tasks["forbidden"]["reason"] == "it waits for a permission: Bash: rm README"
    # In the middle of a turn tokens are counted a moment late: of the one that was stopped there, the last may be missing.
    assert tasks["forbidden"]["tokens"] in (None, 110, 220)
    counted = {name: task for name, task in tasks.items() if name != "forbidden"}
    assert {name: task["tokens"] for name, task in counted.items()} == {
        name: SCRIPTS[name][1] * 110 for name in counted
    }
    assert all(task["cost_usd"] > 0 for task in counted.values())
    assert shown["cost_usd"] == pytest.approx(sum(task["cost_usd"] or 0 for task in tasks.values()))

    refused = Counter(request.scenario for request in claude.server.turns() if request.status == 429)
    assert refused == {"limited": 4}, "of each of its two turns the first two tries"
    folder = claude.muster_home / "runs" / "ten"
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    told = Counter(event["task"] for event in events if event["kind"] == "told")
    assert told == {tasks["invalid"]["id"]: 1, tasks["forgetful"]["id"]: 1}
    assert {event["task"] for event in events if event["kind"] == "slowed"} == {tasks["limited"]["id"]}

    for name, task in tasks.items():
        assert claude.git("log", "--format=%s", f"main..{task['branch']}") == f"Add {name}"
        attempt = folder / "tasks" / task["id"] / "attempt-1"
        spoken = [json.loads(line) for line in (attempt / "transcript.jsonl").read_text().splitlines()]
        assert f"#scn:{name} please" in spoken[0]["text"]
        ran = [entry["tool"]["input"]["command"] for entry in spoken if entry["role"] == "tool"]
        assert ran[0] == work(name)["shell"] and (SUBMIT["shell"] in ran) == (name != "forbidden")
        assert f"{name}.txt" in (attempt / "diff.patch").read_text()
        assert (attempt / "recording.cast").stat().st_size > 1000
        assert claude.processes(json.loads((attempt / "status.json").read_text())["agent"]["id"]) == []
    left = {row["labels"]["task"]: row["state"] for row in claude.agents().values()}
    assert left == {tasks["forbidden"]["id"]: "stopped"}, "it did not do its task, and somebody may want to talk to it"
    assert claude.git("rev-parse", "HEAD") == before and claude.git("status", "--porcelain") == ""
