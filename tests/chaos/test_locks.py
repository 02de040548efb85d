"""A lock that many want: one has it at a time, and nobody is told of anything but that."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

from muster import store
from muster.providers.local import LocalHost

from ..conftest import World, eventually


def test_a_lock_goes_from_hand_to_hand(world: World) -> None:
    world.ok("create", "one", "command", "--no-connect", "--", "sleep", "1000")
    agent_id = str(world.agents()["one"]["id"])
    host = LocalHost(str(world.muster_home))
    held, most, taken, bugs = 0, 0, 0, []

    def worker() -> None:
        nonlocal held, most, taken
        try:
            for _ in range(25):
                while not (owner := store.lock(host, agent_id, "lock", 1)):
                    pass
                held += 1
                most, taken = max(most, held), taken + 1
                held -= 1
                store.unlock(host, agent_id, "lock", owner)
        except Exception as error:
            bugs.append(error)

    threads = [threading.Thread(target=worker) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not bugs and (most, taken) == (1, 150)


#: Takes the lock, sees whether another owner is there, and dies with it. Most of these processes find a lock whose owner is dead.
DIES = """
import os, sys, time
from muster import store
from muster.providers.local import LocalHost

home, agent, inside = sys.argv[1:]
while not store.lock(LocalHost(home), agent, "lock", 1):
    pass
try:
    os.close(os.open(inside, os.O_CREAT | os.O_EXCL))
except FileExistsError:
    print("two owners")
else:
    time.sleep(0.05)  # a second owner would come in now
    os.unlink(inside)
os._exit(0)
"""


def test_a_lock_whose_owner_died_is_taken_over_by_one_of_many(world: World) -> None:
    world.ok("create", "one", "command", "--no-connect", "--", "sleep", "1000")
    argv = [sys.executable, "-c", DIES, str(world.muster_home), str(world.agents()["one"]["id"])]
    many = [
        subprocess.Popen([*argv, str(world.folder / "inside")], env=world.env, stdout=subprocess.PIPE) for _ in range(8)
    ]
    said = [process.communicate(timeout=120)[0] for process in many]
    assert (said, [process.returncode for process in many]) == ([b""] * 8, [0] * 8)


TAKES = """
import sys
from muster import store
from muster.providers.local import LocalHost

print(store.lock(LocalHost(sys.argv[1]), sys.argv[2], "lock", 1), flush=True)
sys.stdin.read()  # the lock of a process that has ended may be taken over
"""


def test_nobody_removes_a_lock_that_changed_hands_since_it_was_looked_at(world: World) -> None:
    world.ok("create", "one", "command", "--no-connect", "--", "sleep", "1000")
    agent_id = str(world.agents()["one"]["id"])
    gone = subprocess.Popen(["true"])
    gone.wait()
    dead = f"{store.me()['machine']}:{gone.pid}:1:1"
    os.symlink(dead, world.muster_home / "agents" / agent_id / "lock")
    # The first one is held up when it is about to remove the lock; the second one tells when it has to wait for the first.
    slow, other = world.folder / "slow", world.folder / "other"
    for folder, name, text in (
        (slow, "rm", f"echo >{slow}/paused; while [ ! -e {slow}/go ]; do sleep 0.02; done"),
        (other, "flock", f"echo >{other}/waits"),
    ):
        folder.mkdir()
        (folder / name).write_text(f'#!/bin/sh\n{text}\nexec {shutil.which(name)} "$@"\n')
        (folder / name).chmod(0o755)

    def take(folder: Path) -> subprocess.Popen[bytes]:
        env = {**world.env, "PATH": f"{folder}:{world.env['PATH']}"}
        argv = [sys.executable, "-c", TAKES, str(world.muster_home), agent_id]
        return subprocess.Popen(argv, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    first = take(slow)
    eventually((slow / "paused").exists)
    second = take(other)
    eventually((other / "waits").exists)
    (slow / "go").touch()
    owners = [process.stdout.readline().strip() for process in (first, second) if process.stdout]
    for process in (first, second):
        process.communicate(timeout=60)
    assert [bool(owner) for owner in owners].count(True) == 1
    assert os.readlink(world.muster_home / "agents" / agent_id / "lock").encode() in owners
