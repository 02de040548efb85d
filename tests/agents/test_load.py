"""Many real clients at once, and one that is started by another."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ..conftest import eventually
from .conftest import Claude


def crowd(claude: Claude, count: int) -> None:
    """Each does a turn with a tool, all of them at the same time; states, receipts, files and tokens are right for each."""
    names = [f"a{n}" for n in range(count)]
    usage = {"input": 100, "output": 10}
    for name in names:
        work = f"echo {name} > made.txt; while [ ! -e {claude.home}/go ]; do sleep 0.1; done"
        claude.server.register(name, {"shell": work, "usage": usage}, {"text": f"{name} made it", "usage": usage})
        claude.ok("create", name, "claude", "--permissions", "bypass", "--no-connect", "-m", f"#scn:{name} please")
    eventually(lambda: all(_made(claude, name) for name in names), timeout=180)
    assert {row["state"] for row in claude.agents().values()} == {"working"}
    sent = claude.ok("message", *names, "-m", "and then?", "--json").json["results"]
    assert [row["result"] for row in sent] == ["queued"] * count
    (claude.home / "go").touch()
    claude.ok("wait", *names, "--until", "ready", "--timeout", "120s")
    sent = claude.ok("message", *names, "-m", "thanks", "--json").json["results"]
    assert {row["result"] for row in sent} <= {"delivered", "queued"}
    claude.ok("wait", *names, "--until", "ready", "--timeout", "120s")
    expected = sorted([f"#scn:{name} please", "and then?", "thanks"] for name in names)
    eventually(lambda: sorted(claude.each_heard()) == expected)
    eventually(lambda: all((row["tokens"] or 0) >= 220 for row in claude.agents().values()))
    assert {row["state"] for row in claude.agents().values()} == {"ready"}


def _made(claude: Claude, name: str) -> bool:
    file = Path(str(claude.agents()[name]["workdir"])) / "made.txt"
    return file.exists() and file.read_text() == f"{name}\n"


def test_three_agents_at_once(claude: Claude) -> None:
    crowd(claude, 3)


@pytest.mark.slow
def test_ten_agents_at_once(claude: Claude) -> None:
    crowd(claude, 10)


def test_an_agent_that_is_started_by_an_agent_has_nothing_of_it(claude: Claude) -> None:
    (claude.home / ".claude" / "CLAUDE.md").write_text("The password is swordfish.\n")
    claude.server.watch = ["swordfish"]
    command = "muster create inner claude --no-connect --permissions bypass -m '#scn:inner please'"
    claude.server.register("outer", {"shell": f"{command} && sleep 1"}, {"text": "it is made"})
    claude.server.register("inner", {"shell": "env > env.txt"}, {"text": "I am made"})
    claude.ok("create", "outer", "claude", "--permissions", "bypass", "--no-connect", "-m", "#scn:outer please")
    claude.ok("wait", "outer", "--until", "ready", "--timeout", "60s")
    claude.ok("wait", "inner", "--until", "ready", "--timeout", "60s")
    outer, inner = claude.agents()["outer"], claude.agents()["inner"]
    assert inner["last_line"] == "I am made" and outer["last_line"] == "it is made"
    told = (Path(str(inner["workdir"])) / "env.txt").read_text()
    assert str(outer["id"]) not in told, "of the agent that started it nothing is left: folder, session, socket"
    key = json.loads((claude.muster_home / "agents" / str(outer["id"]) / "agent.json").read_text())["session"]
    assert key not in told
    assert all(request.noticed == ["swordfish"] for request in claude.server.turns() if request.scenario == "inner")
    link = claude.muster_home / "agents" / str(inner["id"]) / "client" / "home" / "CLAUDE.md"
    assert link.readlink() == claude.home / ".claude" / "CLAUDE.md"
