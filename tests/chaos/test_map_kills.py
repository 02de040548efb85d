"""kill -9 of the process that runs a run, at any moment: the same command goes on, and nothing is done twice or lost."""

from __future__ import annotations

import contextlib
import json
import random
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ..conftest import World

TASKS = 40


def begin(
    world: World, items: str, name: str, marks: Path, at_once: int = 8, seconds: float = 0.2
) -> subprocess.Popen[bytes]:
    """Each task writes down that it was begun, commits something, and leaves something uncommitted."""
    work = f"echo {{item}} >>{marks}; echo {{item}} > f; git add f; git commit -qm '{{item}} is done'; echo > left; sleep {seconds}"
    words = ["map", "-a", "command", "--run", name, "--max-agents", str(at_once), "--", "sh", "-c", work]
    process = subprocess.Popen(
        [world.bin / "muster", *words],
        cwd=world.repo,
        env=world.env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert process.stdin
    process.stdin.write(items.encode())
    process.stdin.close()
    return process


def result(world: World, name: str) -> dict[str, Any]:
    """What became of it, without what differs between any two runs."""
    shown = world.ok("runs", "show", name, "--json").json
    rows = [(task["item"], task["outcome"], task["commits"]) for task in shown["tasks"]]
    return {"state": shown["state"], "outcomes": shown["outcomes"], "tasks": rows}


def finish(world: World, items: str, name: str, marks: Path) -> None:
    process = begin(world, items, name, marks)
    assert process.stdout
    said = process.stdout.read().decode()
    assert process.wait(timeout=240) == 0, said


#: When the process is killed: at any time while it takes up what there is, when an agent is about to be made, in the middle of a
#: harvest, and between an outcome and its agent's end.
MOMENTS = ("any", "launch", "harvest", "any", "clear", "any")


def await_moment(world: World, process: subprocess.Popen[bytes], moment: str, chance: random.Random) -> None:
    """Until this process has come to such a moment, or to its end."""
    tasks, began = world.muster_home / "runs" / "wild" / "tasks", time.time()
    late = time.monotonic() + (chance.uniform(0.05, 1.0) if moment == "any" else 60)
    done, missing = {"launch": ("agent.json", "status.json"), "harvest": ("status.json", "outcome.json")}.get(
        moment, ("outcome.json", "cleared")
    )

    def come() -> bool:
        for path in tasks.glob(f"*/attempt-*/{done}"):
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_mtime > began and not (path.parent / missing).exists():
                    return True
        return False

    while process.poll() is None and time.monotonic() < late and (moment == "any" or not come()):
        time.sleep(0.002)


def disturbed(world: World, tmp_path: Path, kills: int) -> None:
    world.git("config", "user.name", "Ann")
    world.git("config", "user.email", "ann@example.invalid")
    items = "".join(f"task-{number}\n" for number in range(TASKS))
    finish(world, items, "calm", tmp_path / "calm")
    chance = random.Random(9)
    for number in range(kills):
        moment = MOMENTS[number % len(MOMENTS)]
        process = begin(world, items, "wild", tmp_path / "wild", at_once=2)
        await_moment(world, process, moment, chance)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, f"kill {number} ({moment}) came too late: the run was over"
        assert process.stdout
        process.stdout.close()
    finish(world, items, "wild", tmp_path / "wild")
    assert result(world, "wild") == result(world, "calm")
    begun = Counter((tmp_path / "wild").read_text().split())
    assert set(begun) == set(items.split()) and set(begun.values()) == {1}, "no task was begun twice"
    assert world.agents() == {}, "no agent is left"
    for number in range(1, TASKS + 1):
        for branch, words in (
            (f"wild-{number:04d}", f"task-{number - 1} is done"),
            (f"wild-{number:04d}-wip", "uncommitted"),
        ):
            assert words in world.git("log", "-1", "--format=%s", f"muster/{branch}")
    folder = world.muster_home / "runs" / "wild"
    for line in (folder / "events.jsonl").read_text().splitlines():
        assert json.loads(line)["version"] == 1
    left = [path.name for path in folder.rglob("*.tmp")]
    assert len(left) <= kills, "a killed process may leave a file it was writing, each at most one"


def test_a_run_whose_process_is_killed_again_and_again_ends_as_one_that_was_not(world: World, tmp_path: Path) -> None:
    disturbed(world, tmp_path, 10)


@pytest.mark.slow
def test_fifty_kills(world: World, tmp_path: Path) -> None:
    disturbed(world, tmp_path, 50)


def test_a_second_process_on_one_run_is_refused(world: World, tmp_path: Path) -> None:
    process = begin(world, "one\ntwo\n", "mine", tmp_path / "marks")
    folder = world.muster_home / "runs" / "mine" / "lock"
    while not folder.exists() or not folder.read_text():
        time.sleep(0.02)
    again = begin(world, "one\ntwo\n", "mine", tmp_path / "marks")
    assert again.stdout
    said = again.stdout.read().decode()
    assert again.wait() == 5 and "is being run by process" in said
    process.kill()
    process.wait()
    assert process.stdout
    process.stdout.close()
