"""muster approves nothing by itself: no key of `message` reaches a dialog, whenever the client opens one.

Every client has its line in `CLIENTS`: a stand-in that draws as it does (tests/support/standin.py), judged by what the built-in type
says of the client's screen. The real clients are tried below.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from muster.plugins import agent_type

from ..conftest import World
from ..support import standin

#: Types of which it is known what their input box looks like, each with its look in the stand-in.
CLIENTS = ["claude", "codex"]
DELIVERIES = 200
STANDINS = 8
#: One process for all messages: it is the keys that are tried, and not the start of Python.
SENDER = """
import json, random, sys, threading, time
from muster import Fleet, tmux
from muster.errors import MusterError, Stuck

# The way to a host takes a while, and a dialog may open meanwhile: without the check on the host its Yes would be pressed.
def late(*words, press=tmux.press_then, **more):
    time.sleep(random.choice([0, 0, 0.2]))
    return press(*words, **more)

tmux.press_then = late

def send(one):
    for n in range(int(sys.argv[1])):
        while (status := fleet.look(one)).state == "waiting":
            time.sleep(0.02)
        text = f"message {n}" + ("\\nof two lines" if n % 3 == 0 else "")
        try:
            result = fleet.message(one._replace(status=status), text)
        except Stuck:
            result = "stuck"
        except MusterError as error:
            result = repr(error)
        print(json.dumps([one.agent.name, text, result]) + chr(10), end="", flush=True)

fleet = Fleet()
agents, _ = fleet.select(everything=True)
threads = [threading.Thread(target=send, args=(one,)) for one in agents]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""


def configured(name: str, folder: Path) -> str:
    kind = agent_type(name, {})
    argv = [sys.executable, standin.__file__, name, "{name}", f"{folder}/{{name}}"]
    words = {"argv": argv, "speaks": True, "receipt": "prompt", "clear": list(kind.clear), "box": kind.box}
    words |= {
        "input": kind.input,
        "cursor": kind.cursor,
        "dialog": kind.dialog,
        "yes": list(kind.yes),
        "no": list(kind.no),
    }
    lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in words.items()]
    return "\n".join(["[types.standin]", *lines, ""])


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


@pytest.mark.timeout(900)  # on a busy machine messages wait longer between two dialogs
@pytest.mark.parametrize("client", CLIENTS)
def test_no_dialog_is_approved_by_200_messages(world: World, client: str, record_property: Any) -> None:
    path = world.home / ".config" / "muster" / "config.toml"
    path.parent.mkdir(parents=True)
    path.write_text(configured(client, world.folder), encoding="utf-8")
    names = [f"s{n}" for n in range(STANDINS)]
    for name in names:
        (world.folder / name).mkdir()
        world.ok("create", name, "standin", "--no-connect")
    program = [sys.executable, "-c", SENDER, str(DELIVERIES // STANDINS)]
    done = subprocess.run(program, env=world.env, cwd=world.repo, capture_output=True, text=True, check=False)
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(results) == DELIVERIES, done.stderr
    approved = {name: lines(world.folder / name / "approved") for name in names}
    assert approved == {name: [] for name in names}
    heard = {name: [json.loads(line) for line in lines(world.folder / name / "heard")] for name in names}
    counts = Counter(result for _, _, result in results)
    for name, text, result in results:
        times = heard[name].count(text)
        assert times == 1 if result == "delivered" else times <= 1, (name, text, result, times)
    opened = sum(len(lines(world.folder / name / "opened")) for name in names)
    record_property("figure", f"{client}: {DELIVERIES} messages, {dict(counts)}, {opened} dialogs, none approved")
    # On a busy machine a message seldom finds a moment between two dialogs that is long enough.
    assert opened > DELIVERIES / 4 and counts["delivered"] > DELIVERIES / 20
    assert counts.keys() <= {"delivered", "stuck"}, counts
