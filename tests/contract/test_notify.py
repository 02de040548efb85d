"""`[notify] command`: fired by the agent itself on this machine, and by whoever watches for agents elsewhere."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ..conftest import World, eventually
from .conftest import Place

ASKS = """
wait_for_message = true
[[step]]
run = "true"
[[step]]
ask = "Shall I? $(touch EVIL) \\u001b[31m"
[[step]]
turn = "Done."
"""
NOTE = f"""#!{sys.executable}
import json, os
with open(os.environ["HOME"] + "/told", "a") as file:
    file.write(json.dumps(dict(os.environ)) + "\\n")
"""


def configure(world: World, command: str = "", on: list[str] | None = None) -> None:
    """A `[notify]` command that notes its environment down in the user's home, or another one."""
    note = world.bin / "note"
    note.write_text(NOTE)
    note.chmod(0o755)
    world.ok("config", "set", "notify.command", json.dumps(command or "note"))
    if on is not None:
        world.ok("config", "set", "notify.on", json.dumps(on))


def told(world: World) -> list[dict[str, str]]:
    file = world.home / "told"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def states(world: World, count: int) -> list[tuple[str, str, str]]:
    """The first `count` calls: address, state and reason of each."""
    calls: list[dict[str, str]] = eventually(lambda: told(world) if len(told(world)) >= count else None)
    names = ("MUSTER_NOTIFY_ADDRESS", "MUSTER_NOTIFY_STATE", "MUSTER_NOTIFY_REASON")
    return [(call[names[0]], call[names[1]], call[names[2]]) for call in calls]


def start(place: Place, name: str, book: str, *more: str) -> dict[str, Any]:
    world = place.world
    world.ok("create", place.at(name), "replay", "--no-connect", *more, "--", world.playbook(book, f"{name}.toml"))
    return world.wait_state(place.at(name), "ready", "waiting", "failed", "done")


@pytest.fixture
def watching(place: Place) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that are ended with the test."""
    running: list[subprocess.Popen[bytes]] = []
    yield running
    for process in running:
        process.kill()
        process.communicate()


def watch(place: Place, *argv: str) -> subprocess.Popen[bytes]:
    world = place.world
    return subprocess.Popen(
        [str(world.bin / "muster"), *argv],
        cwd=world.repo,
        env=world.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def watch_list(place: Place) -> subprocess.Popen[bytes]:
    """`list --watch`, when it has had its first look."""
    process = watch(place, "list", "--watch", "--json")
    assert process.stdout
    assert json.loads(process.stdout.readline())["state"] == "ready"
    return process


def test_a_question_and_an_end_of_turn_are_told_once(place: Place, watching: list[subprocess.Popen[bytes]]) -> None:
    world = place.world
    configure(world)
    row = start(place, "one", ASKS)
    # Two that watch, and the agent itself where it can: still once.
    watching += [watch_list(place), watch_list(place)]
    world.ok("message", place.at("one"), "-m", "go")
    world.ok("wait", place.at("one"), "--until", "waiting", "--timeout", "60s")
    assert states(world, 1) == [(place.at("one"), "waiting", "question")]
    world.ok("answer", place.at("one"), "yes")
    world.ok("wait", place.at("one"), "--until", "ready", "--timeout", "60s")
    assert states(world, 2)[1:] == [(place.at("one"), "ready", "")]
    question, _ = told(world)
    assert question["MUSTER_AGENT"] == "one"
    assert question["MUSTER_NOTIFY_TEXT"] == "Shall I? $(touch EVIL) [31m"
    assert question["MUSTER_NOTIFY_WORKDIR"] == row["workdir"]
    # It is the user's command, where the user is.
    assert (question["HOME"], question["PWD"]) == (str(world.home), str(world.home))
    assert (place.state / "agents" / row["id"] / "notify" / "command").exists() == (not place.suffix)
    assert not list(world.home.rglob("EVIL"))


def test_a_wait_tells_of_what_it_waits_for(place: Place, watching: list[subprocess.Popen[bytes]]) -> None:
    world = place.world
    configure(world)
    start(place, "one", ASKS)
    waits = watch(place, "wait", place.at("one"), "--until", "waiting", "--timeout", "60s")
    watching.append(waits)
    world.ok("message", place.at("one"), "-m", "go")
    assert waits.wait(60) == 0
    assert states(world, 1) == [(place.at("one"), "waiting", "question")]


def test_an_agent_of_a_run_does_not_tell_by_itself(place: Place, watching: list[subprocess.Popen[bytes]]) -> None:
    """A run has hundreds of them, and alerts of its own."""
    world = place.world
    configure(world)
    rows = [start(place, "one", ASKS, "--label", "run=r"), start(place, "two", ASKS)]
    watching.append(watch_list(place))
    for name in ("one", "two"):
        world.ok("message", place.at(name), "-m", "go")
        world.ok("wait", place.at(name), "--until", "waiting", "--timeout", "60s")
    if not place.suffix:
        commands = [place.state / "agents" / row["id"] / "notify" / "command" for row in rows]
        assert [command.read_text() for command in commands] == ["", "note"]
        world.ok("stop", place.at("one"))
        world.ok("start", place.at("one"))
        world.wait_state(place.at("one"), "waiting")
        assert commands[0].read_text() == ""
    assert states(world, 1) == [(place.at("two"), "waiting", "question")]


def test_a_command_that_is_missing_or_fails_troubles_nobody(place: Place) -> None:
    world = place.world
    configure(world, "echo 'not here' >&2; no-such-program")
    row = start(place, "one", ASKS)
    world.ok("message", place.at("one"), "-m", "go")
    assert world.ok("wait", place.at("one"), "--until", "waiting", "--timeout", "60s").stderr.count("\n") == 1
    world.ok("answer", place.at("one"), "yes")
    done = world.ok("wait", place.at("one"), "--until", "ready", "--timeout", "60s")
    assert "not here" not in done.stderr
    screen = world.ok("capture", place.at("one")).stdout
    assert "not here" not in screen and "no-such-program" not in screen
    log = world.muster_home / "notify.log" if place.suffix else place.state / "agents" / row["id"] / "notify" / "log"
    if not place.suffix:  # elsewhere nobody may have seen it happen
        eventually(lambda: log.exists() and log.read_text().count("not here\n") == 2)


def test_a_change_that_nobody_watches_on_another_host_is_not_told_there(place: Place) -> None:
    world = place.world
    configure(world)
    start(place, "one", ASKS)
    world.ok("message", place.at("one"), "-m", "go")
    world.wait_state(place.at("one"), "waiting")
    if place.suffix:
        assert told(world) == [] and not list(place.state.rglob("told"))
    else:
        assert len(states(world, 1)) == 1


# On this machine


@pytest.fixture
def here(world: World) -> Place:
    return Place(world, "", world.muster_home)


def test_the_command_has_the_users_environment_and_not_the_agents(here: Place) -> None:
    world = here.world
    configure(world, "note; tty >~/tty", ["done"])
    env = {"TMUX": "/my/own,1,2", "MY_OWN": "a b\n'c'", "MUSTER_AGENT": "outer", "MUSTER_AGENT_ID": "outer-1"}
    world.ok(
        *("create", "one", "command", "--no-connect", "--env", "SECRET=s3cret", "--env", "MY_OWN=theirs", "--"),
        *("sh", "-c", "echo bye"),
        env=env,
    )
    assert states(world, 1) == [("one", "done", "")]
    (call,) = told(world)
    assert (call["MY_OWN"], call["TMUX"], call["MUSTER_AGENT"]) == ("a b\n'c'", "/my/own,1,2", "one")
    assert "SECRET" not in call and "MUSTER_RESULT" not in call and "bin/path" not in call["PATH"]
    assert call["MUSTER_AGENT_ID"] != "outer-1" and call["MUSTER_NOTIFY_TEXT"] == "bye"
    eventually(lambda: (world.home / "tty").exists() and (world.home / "tty").read_text() == "not a tty\n")
    # What the user had in the environment does not lie around.
    (folder,) = (world.muster_home / "agents").iterdir()
    assert sorted(path.name for path in (folder / "notify").iterdir()) == ["command", "is.done", "log", "on", "python"]
    assert not any(b"my/own" in path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_failures_are_told_and_an_end_that_was_asked_for_is_not(here: Place) -> None:
    world = here.world
    configure(world)
    world.ok("create", "good", "command", "--no-connect", "--", "true")
    world.ok("create", "stopped", "command", "--no-connect", "--", "sleep", "1000")
    world.ok("create", "gone", "command", "--no-connect", "--", "sleep", "1000")
    world.ok("stop", "stopped")
    world.ok("destroy", "gone")
    world.ok("create", "bad", "command", "--no-connect", "--", "sh", "-c", "echo broken; exit 3")
    assert states(world, 1) == [("bad", "failed", "exit 3")]
    world.ok("create", "late", "command", "--no-connect", "--timeout", "1s", "--", "sleep", "1000")
    assert states(world, 2)[1:] == [("late", "failed", "timeout")]


def test_an_agent_whose_wrapper_was_killed_too_is_told_by_tmux(here: Place) -> None:
    world = here.world
    configure(world)
    world.ok("create", "one", "command", "--no-connect", "--", "sleep", "1000")
    row = world.wait_state("one", "working")
    wrapper = world.tmux("list-panes", "-t", f"={row['id']}:", "-F", "#{pane_pid}").stdout
    # A pane that the agent made beside its own says nothing of it.
    world.tmux("split-window", "-d", "-t", f"={row['id']}:", "exit 3")
    dead = ("list-panes", "-t", f"={row['id']}:", "-F", "#{pane_dead}")
    eventually(lambda: world.tmux(*dead).stdout.split() == [b"0", b"1"])
    os.kill(int(wrapper), signal.SIGKILL)
    assert states(world, 1) == [("one", "failed", "signal 9")]
    assert not (here.state / "agents" / row["id"] / "notify" / "env").exists()


def test_a_session_that_was_taken_away_is_lost_for_who_asks(here: Place) -> None:
    world = here.world
    configure(world, on=["lost"])
    world.ok("create", "one", "command", "--no-connect", "--", "cat")
    row = world.wait_state("one", "working")
    world.tmux("kill-session", "-t", f"={row['id']}:")
    assert states(world, 1) == [("one", "lost", "its session is gone")]
    assert world.wait_state("one", "lost")["reason"] == "its session is gone"


def test_start_takes_what_is_configured_then(here: Place) -> None:
    world = here.world
    world.ok("create", "one", "command", "--no-connect", "--", "false")
    world.wait_state("one", "failed")
    configure(world)
    world.ok("start", "one")
    assert states(world, 1) == [("one", "failed", "exit 1")]
    world.ok("config", "set", "notify.command", '""')
    world.ok("start", "one")
    world.wait_state("one", "failed")
    world.ok("config", "set", "notify.command", "note")
    world.ok("start", "one")
    assert len(states(world, 2)) == 2


def test_a_resumed_agent_that_still_has_its_question_tells_it_again(here: Place) -> None:
    world = here.world
    configure(world)
    start(here, "one", ASKS)
    world.ok("message", "one", "-m", "go")
    assert len(states(world, 1)) == 1
    world.ok("stop", "one")
    world.ok("rename", "one", "uno")
    world.ok("start", "uno")
    assert states(world, 2)[1:] == [("uno", "waiting", "question")]


def test_a_projects_file_tells_nobody_before_it_is_trusted(here: Place) -> None:
    world = here.world
    mark = world.folder / "ran"
    (world.repo / ".muster").mkdir()
    (world.repo / ".muster" / "config.toml").write_text(f'[notify]\ncommand = "touch {mark}"\non = ["failed"]\n')
    configure(world, on=["done"])
    world.ok("create", "one", "command", "--no-connect", "--", "false")
    world.ok("create", "two", "command", "--no-connect", "--", "true")
    assert states(world, 1) == [("two", "done", "")]
    assert "not in force before `muster trust`: notify" in world.ok("config").stderr
    assert not mark.exists()
    world.ok("trust")
    world.ok("create", "three", "command", "--no-connect", "--", "false")
    eventually(mark.exists)
    assert len(told(world)) == 1


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("notify.command", "[1]", "[notify] command must be text, a command line for sh"),
        ("notify.command", '"a\\u0000b"', "[notify] command must be text, a command line for sh"),
        (
            "notify.on",
            "waiting",
            '[notify] on must be a list of states\n  on = ["waiting", "ready", "failed", "alert"]',
        ),
        (
            "notify.on",
            '["asleep"]',
            "[notify] on has no state 'asleep'\n  known: waiting, ready, failed, alert, done, lost",
        ),
        ("notify.com", "x", "[notify] has no key 'com'"),
    ],
)
def test_a_slip_in_the_configuration_is_named(world: World, key: str, value: str, says: str) -> None:
    assert says in world.fails(2, "config", "set", key, value).stderr
    assert not (world.home / ".config").exists()


def test_what_a_hostile_host_says_of_an_agent_reaches_the_command_as_plain_text(world: World, tmp_path: Path) -> None:
    from muster.fleet import Fleet
    from muster.model import Agent, Status

    configure(world)
    fleet = Fleet(world.env, str(world.repo))
    os.makedirs(fleet.home, exist_ok=True)
    agent = Agent("x-1", "one", "replay", cwd="/a\0b\ud800\nc")
    seen = fleet.watch()
    for state in ("working", "waiting"):
        seen.see([Status(agent, "box", "ssh", state, since=5.0, last_line="\ud83c\0\x1b[31m $(x) " + "🎉" * 999)])
    assert states(world, 1) == [("one@box", "waiting", "")]
    (call,) = told(world)
    assert call["MUSTER_NOTIFY_TEXT"] == ("[31m $(x) " + "🎉" * 999)[:200]
    assert call["MUSTER_NOTIFY_WORKDIR"] == "/abc"
