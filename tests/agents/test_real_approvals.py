"""200 messages to real clients whose model asks for tools at random moments: no tool runs, as nobody allows any."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from .battery import SUBJECTS
from .conftest import ClientWorld

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

DELIVERIES = 200
AGENTS = 5
#: Seconds that the model takes to ask for its tool: a dialog opens before, while or after the next message is typed.
DELAYS = (0, 0.2, 0.5, 0.8, 1.1, 1.5, 2, 3)
#: One process sends all messages. Each agent has a sender, which does not wait for it, and a person, who says no to each dialog.
SENDER = """
import json, random, sys, threading, time
from muster import Fleet
from muster.errors import MusterError, Stuck

def send(one, texts):
    chance = random.Random(one.agent.name)
    for text in texts:
        time.sleep(chance.choice([0, 0, 0.3, 0.9]))
        try:
            result = fleet.message(one._replace(status=fleet.look(one)), text)
        except Stuck:
            result = "stuck"
        except MusterError as error:
            result = repr(error)
        print(json.dumps([one.agent.name, text, result]) + chr(10), end="", flush=True)
        # The person: a dialog is open for a while before it is denied.
        deadline = time.monotonic() + chance.choice([0, 0.5, 2])
        while (status := fleet.look(one)).state == "waiting" or time.monotonic() < deadline:
            if status.state == "waiting" and time.monotonic() > deadline - 0.5:
                try:
                    fleet.answer(one._replace(status=status), "no")
                    print(json.dumps([one.agent.name, "", "denied"]) + chr(10), end="", flush=True)
                except MusterError:
                    pass  # it is gone, or another one is there
            time.sleep(0.05)

fleet = Fleet()
agents, _ = fleet.select(everything=True)
given = json.loads(sys.argv[1])
threads = [threading.Thread(target=send, args=(one, given[one.agent.name])) for one in agents]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""


@pytest.mark.parametrize("name", ["claude", "codex"])
def test_no_tool_runs_that_nobody_allowed(name: str, request: pytest.FixtureRequest, record_property: Any) -> None:
    client: ClientWorld = request.getfixturevalue(name)
    for number, delay in enumerate(DELAYS):
        call = SUBJECTS[name].asks("echo ran >> ran.txt")
        client.server.register(f"tool{number}", {**call, "delay": delay}, {"text": "no more"})
    names = [f"a{number}" for number in range(AGENTS)]
    for agent in names:
        client.ok("create", agent, name, "--no-connect", "--permissions", "ask", "-m", f"I am {agent}")
    client.ok("wait", *names, "--until", "ready", "--timeout", "300s")
    chance = random.Random(name)
    texts = {
        agent: [
            f"#scn:tool{chance.randrange(len(DELAYS))} message {number}"
            if chance.random() < 0.7
            else f"message {number}"
            for number in range(DELIVERIES // AGENTS)
        ]
        for agent in names
    }
    argv = client.offline.argv(sys.executable, "-c", SENDER, json.dumps(texts))
    done = subprocess.run(argv, env=client.env, cwd=client.repo, capture_output=True, text=True, check=False)
    results = [json.loads(line) for line in done.stdout.splitlines()]
    rows = client.agents()
    ran = {agent: Path(str(rows[agent]["workdir"])) / "ran.txt" for agent in names}
    assert [agent for agent in names if ran[agent].exists()] == []
    counts = Counter(result for _, _, result in results)
    record_property("figure", f"{name}: {DELIVERIES} messages, {dict(counts)}, no tool ran")
    print(f"{name}: {DELIVERIES} messages, {dict(counts)}, no tool ran")
    assert sum(counts.values()) - counts["denied"] == DELIVERIES, done.stderr
    assert counts["denied"] > DELIVERIES / 10 and counts["delivered"] + counts["queued"] > DELIVERIES / 4
    assert counts.keys() <= {"delivered", "queued", "stuck", "denied"}, counts
    assert [text for told in client.each_heard() for text, times in Counter(told).items() if times > 1] == []
