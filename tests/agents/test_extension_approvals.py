"""A real client that runs an extension of ours runs no tool that nobody allowed, whenever its dialogs open.

Messages are sent one after the other without a wait. Most of them make the model ask for a tool after a random time, so that its dialog
opens before, while and after the next message is typed. Nobody allows anything: each dialog is answered `no`.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from .conftest import ClientWorld

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

DELIVERIES = 200
AGENTS = 2
DELAYS = (0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.2)
#: One process for all messages, as in test_approvals.
SENDER = """
import json, sys, threading, time
from muster import Fleet
from muster.errors import MusterError, Stuck, TimedOut

def say(*words):
    print(json.dumps(words) + chr(10), end="", flush=True)

def send(one, texts):
    for text in texts:
        while fleet.look(one).state == "waiting":
            try:
                fleet.answer(one, "no")
            except (Stuck, TimedOut):
                pass  # it went away meanwhile
        try:
            result = fleet.message(one._replace(status=fleet.look(one)), text)
        except Stuck:
            result = "stuck"
        except MusterError as error:
            result = repr(error)
        say(one.agent.name, text, result)

fleet = Fleet()
agents, _ = fleet.select(everything=True)
plan = json.loads(sys.argv[1])
threads = [threading.Thread(target=send, args=(one, plan[one.agent.name])) for one in agents]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""


def _run(world: ClientWorld, options: tuple[str, ...], record_property: Any) -> None:
    chance = random.Random(14)
    plan: dict[str, list[str]] = {f"d{n}": [] for n in range(AGENTS)}
    for n in range(DELIVERIES):
        name = f"d{n % AGENTS}"
        word = f"say{n}"
        if chance.random() < 0.75:
            tool = {"shell": f"touch {world.folder}/ran-{n}", "delay": chance.choice(DELAYS)}
            world.server.register(word, tool, {"text": "so be it"})
        else:
            world.server.register(word, {"text": "only words", "delay": chance.choice(DELAYS)})
        plan[name].append(f"#scn:{word} number {n}")
    for name in plan:
        world.ok("create", name, world.client, "--no-connect", *options, "-m", "hello there")
        world.ok("wait", name, "--until", "ready", "--timeout", "240s")
    program = world.offline.argv(sys.executable, "-c", SENDER, json.dumps(plan))
    done = subprocess.run(program, env=world.env, cwd=world.repo, capture_output=True, text=True, check=False)
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(results) == DELIVERIES, done.stderr
    events = {name: world.ok("events", name, "--json").json["events"] for name in plan}
    opened = sum(event["kind"] == "permission" for told in events.values() for event in told)
    counts = Counter(result for _, _, result in results)
    ran = sorted(path.name for path in Path(world.folder).glob("ran-*"))
    figure = f"{world.client}: {DELIVERIES} messages, {dict(counts)}, {opened} dialogs, {len(ran)} tools ran unallowed"
    record_property("figure", figure)
    assert ran == []
    assert opened > DELIVERIES / 8, counts
    assert counts.keys() <= {"delivered", "queued", "stuck"}, counts


def test_pi_runs_no_tool_that_nobody_allowed_in_200_deliveries(pi: ClientWorld, record_property: Any) -> None:
    config = pi.home / ".config" / "muster" / "config.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text('[permissions]\nallow = ["Bash(ls *)"]\n', encoding="utf-8")
    _run(pi, ("--permissions", "policy"), record_property)


def test_opencode_runs_no_tool_that_nobody_allowed_in_200_deliveries(
    opencode: ClientWorld, record_property: Any
) -> None:
    _run(opencode, (), record_property)


def test_copilot_runs_no_tool_that_nobody_allowed_in_200_deliveries(copilot: ClientWorld, record_property: Any) -> None:
    _run(copilot, (), record_property)
