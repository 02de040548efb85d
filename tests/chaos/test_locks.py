"""A lock that many want: one has it at a time, and nobody is told of anything but that."""

from __future__ import annotations

import threading

from muster import store
from muster.providers.local import LocalHost

from ..conftest import World


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
