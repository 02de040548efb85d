"""When tmux goes away under its agents, nothing of them runs on unseen."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest

from ..conftest import World, eventually

#: Ignores what it can, and so does what it forks into a session of its own.
DEAF = "trap '' HUP TERM; setsid sh -c 'trap \"\" HUP; sleep 1000; :' & echo deaf; while :; do sleep 1000; done"


def server(world: World) -> int:
    return int(world.tmux("display-message", "-p", "#{pid}").stdout)


def made(world: World) -> dict[str, str]:
    """A plain program, one that ignores every hang-up, and one of them with a time limit; the id of each."""
    world.ok("create", "plain", "command", "--no-connect", "--", "sleep", "1000")
    world.ok("create", "deaf", "command", "--no-connect", "--timeout", "1h", "--", "sh", "-c", DEAF)
    eventually(lambda: "deaf" in world.run("capture", "deaf").stdout)
    ids = {name: str(row["id"]) for name, row in world.agents().items()}
    eventually(lambda: len(world.processes(ids["plain"])) >= 3)
    return ids


def test_programs_end_when_their_tmux_server_is_killed(world: World) -> None:
    ids = made(world)
    os.kill(server(world), signal.SIGKILL)
    for name in ("plain", "deaf"):
        eventually(lambda name=name: world.processes(ids[name]) == [])  # type: ignore[misc]
        row = world.wait_state(name, "lost")
        assert row["reason"] == "its session is gone"
    world.ok("start", "plain")
    world.wait_state("plain", "working")


def test_a_program_ends_when_its_session_is_killed_and_the_others_go_on(world: World) -> None:
    ids = made(world)
    world.tmux("kill-session", "-t", f"={ids['deaf']}:")
    eventually(lambda: world.processes(ids["deaf"]) == [])
    assert world.state("plain") == "working"
    assert world.run("stop", "deaf").stderr.strip() == "deaf had ended already (lost)"


def survivor(world: World) -> str:
    """An agent without a session, of which a process runs: it left its terminal, and its wrapper was killed."""
    run = "trap '' HUP; setsid sh -c 'trap \"\" HUP; echo up >up; sleep 1000; :' & sleep 1000"
    world.ok("create", "one", "command", "--no-connect", "--", "sh", "-c", run)
    row = world.wait_state("one", "working")
    agent_id = str(row["id"])
    eventually(lambda: (Path(row["workdir"]) / "up").exists())
    for pid in world.processes(agent_id):
        if b"/bin/wrap" in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGKILL)
    os.kill(server(world), signal.SIGKILL)
    eventually(lambda: len(world.processes(agent_id)) in (1, 2))
    return agent_id


def test_what_runs_without_a_session_is_shown_and_stop_ends_it(world: World) -> None:
    agent_id = survivor(world)
    row = world.agents()["one"]
    assert (row["state"], row["reason"]) == ("working", "session gone, still running")
    world.fails(4, "wait", "one", "--timeout", "1s")
    assert world.ok("stop", "one").stderr.startswith("stopped one")
    assert world.processes(agent_id) == []
    assert world.state("one") == "lost"


def test_gc_finds_what_runs_without_a_session_or_without_a_record(world: World) -> None:
    agent_id = survivor(world)
    (found,) = [row for row in world.ok("gc", "--json").json["leftovers"] if row["what"] == "processes"]
    assert (found["name"], found["action"]) == ("one", "stopped")
    assert world.processes(agent_id)
    (world.muster_home / "agents" / agent_id).rename(world.folder / "away")
    (found,) = [row for row in world.ok("gc", "--json").json["leftovers"] if row["what"] == "process"]
    assert (found["name"], found["verdict"]) == (agent_id, "without a record")
    world.ok("gc", "--yes")
    assert world.processes(agent_id) == []


def test_a_server_whose_socket_was_removed_is_reached_again(world: World) -> None:
    world.ok("create", "one", "command", "--no-connect", "--", "sleep", "1000")
    agent_id = str(world.wait_state("one", "working")["id"])
    eventually(lambda: len(world.processes(agent_id)) >= 3)
    before, pids = server(world), set(world.processes(agent_id))
    Path(world.socket()).unlink()
    assert world.state("one") == "working"
    assert server(world) == before
    assert pids <= set(world.processes(agent_id))
    assert world.ok("stop", "one").stderr.strip() == "stopped one"


@pytest.mark.parametrize(("program", "words"), [("mv", "*/ev/started"), ("env", "--default-signal*true")])
def test_a_program_whose_session_ends_while_it_starts_does_not_run(world: World, program: str, words: str) -> None:
    """The server is killed while the wrapper says that it has started, and at the last program that it starts before the recorder."""
    held, go = world.folder / "held", world.folder / "go"
    wait = f"trap '' HUP; echo >{held}; until [ -e {go} ]; do sleep 0.05; done"
    shim = world.bin / program
    shim.write_text(f'#!/bin/sh\ncase "$*" in {words}) {wait} ;; esac\nexec {shutil.which(program)} "$@"\n')
    shim.chmod(0o755)
    world.ok("create", "early", "command", "--no-connect", "--", "sleep", "54321")
    eventually(held.exists)
    agent_id = str(world.agents()["early"]["id"])
    pid = server(world)
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: not os.path.exists(f"/proc/{pid}"))
    go.touch()
    eventually(lambda: world.processes(agent_id) == [])
    assert world.state("early") in ("lost", "failed")
