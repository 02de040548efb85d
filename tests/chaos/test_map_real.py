"""Runs of real agents whose process is killed, whose terminal is closed, and whose agents are renamed or somebody else's."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ..conftest import World, eventually

WAITS = "while [ ! -e {folder}/go ]; do sleep 0.1; done"


def begun(world: World, name: str, *words: str, items: str = "one\n") -> subprocess.Popen[bytes]:
    listed = world.folder / f"{name}.items"
    listed.write_text(items)
    return subprocess.Popen(
        [str(world.bin / "muster"), "map", "-a", "command", "--run", name, "--items", str(listed), *words],
        cwd=world.repo,
        env=world.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def events(world: World, name: str) -> list[dict[str, Any]]:
    path = world.muster_home / "runs" / name / "events.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def happened(world: World, name: str, kind: str) -> bool:
    return any(event["kind"] == kind for event in events(world, name))


def shown(world: World, name: str) -> dict[str, Any]:
    found: dict[str, Any] = world.ok("runs", "show", name, "--json").json
    return found


def waits(world: World) -> str:
    return WAITS.format(folder=world.folder)


def test_runs_stop_ends_a_run_whose_process_was_killed_while_it_launched(world: World) -> None:
    process = begun(world, "cut", "--", "sh", "-c", waits(world), items="one\ntwo\nthree\n")
    eventually(lambda: happened(world, "cut", "launch"))
    process.kill()
    process.wait()
    world.ok("runs", "stop", "cut")
    told = shown(world, "cut")
    assert told["state"] == "finished" and told["outcomes"] == {"cancelled": 3}
    assert not any(row["state"] in ("working", "starting") for row in world.agents().values())


def test_an_agent_that_is_renamed_goes_on_as_the_one_of_its_task(world: World) -> None:
    process = begun(world, "ren", "--", "sh", "-c", f"echo x >>{world.folder}/began; {waits(world)}")
    eventually(lambda: "ren-0001" in world.agents() and (world.folder / "began").exists())
    world.ok("rename", "ren-0001", "mine")
    looks = len(events(world, "ren"))
    (world.folder / "go").touch()
    assert process.wait(timeout=60) == 0
    told = shown(world, "ren")["tasks"][0]
    assert (told["outcome"], told["attempts"]) == ("ok", 1) and len(events(world, "ren")) >= looks
    assert (world.folder / "began").read_text() == "x\n" and not world.agents()


def test_an_agent_of_a_run_that_was_removed_is_nobody_s_though_it_has_the_name(world: World) -> None:
    label = ("--label", "run=old", "--label", "task=0001-1")
    world.ok("create", "old-0001", "command", "--no-connect", *label, "--", "sh", "-c", "echo OLD")
    world.ok("wait", "old-0001", "--until", "done")
    world.fails(1, "map", "-a", "command", "--run", "old", "--retries", "0", "--", "true", input=b"1\n")
    told = shown(world, "old")["tasks"][0]
    assert told["id"] == "0001-1" and told["outcome"] == "failed" and "already" in told["reason"]
    assert world.agents()["old-0001"]["state"] == "done", "it is still there"


def test_the_same_command_takes_up_what_there_was_no_budget_for(world: World) -> None:
    config = world.home / ".config" / "muster" / "config.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    words = ("map", "-a", "command", "--", "sh", "-c", f"echo {{item}} >>{world.folder}/did")
    config.write_text("[budget]\nagents = 1\n")
    world.fails(4, *words, input=b"one\ntwo\n")
    assert shown(world, "map-1")["outcomes"] == {"ok": 1, "over-budget": 1}
    config.write_text("[budget]\nagents = 5\n")
    assert "going on with run map-1" in world.ok(*words, input=b"one\ntwo\n").stderr
    assert shown(world, "map-1")["outcomes"] == {"ok": 2}
    assert sorted((world.folder / "did").read_text().split()) == ["one", "two"]
    assert "run map-2" in world.ok(*words, input=b"one\ntwo\n").stderr, "all is done, so it is another run"


def test_a_run_goes_on_when_its_terminal_is_closed(world: World) -> None:
    process = begun(world, "hup", "--", "sh", "-c", waits(world))
    eventually(lambda: happened(world, "hup", "launch") and "hup-0001" in world.agents())
    process.send_signal(signal.SIGHUP)
    world.ok("runs", "set", "hup", "max_agents=2")
    assert process.poll() is None
    (world.folder / "go").touch()
    assert process.wait(timeout=60) == 0 and shown(world, "hup")["outcomes"] == {"ok": 1}


@pytest.mark.skipif(os.getuid() != 0, reason="only root can mount a small file system")
def test_a_full_home_is_waited_for_and_nothing_is_lost(world: World) -> None:
    """A quota of the file system: nothing more can be written, until an agent has ended and taken its files along."""
    place = world.folder / "small"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=250m", "tmpfs", str(place)], check=True)
    try:
        world.env["MUSTER_HOME"] = str(place / "state")
        config = world.home / ".config" / "muster" / "config.toml"
        config.parent.mkdir(parents=True, exist_ok=True)
        config.write_text("[limits]\ndisk = 1\n")
        script = "head -c 300000000 /dev/zero >big 2>/dev/null; sleep 3; rm -f big; echo done >out; git add out; git commit -qm out"
        done = world.run(
            "map", "-a", "command", "--run", "full", "--", "sh", "-c", script, input=b"1\n2\n", timeout=120
        )
        assert done.code == 0, done
        told = json.loads(world.ok("runs", "show", "full", "--json").stdout)
        assert told["outcomes"] == {"ok": 2} and [task["commits"] for task in told["tasks"]] == [1, 1]
    finally:
        world.run("stop", "--all", "--grace", "0")
        socket = next(Path(place).rglob("tmux.sock"), None)
        if socket:
            subprocess.run(["tmux", "-S", str(socket), "kill-server"], capture_output=True, check=False)
        subprocess.run(["umount", "-l", str(place)], check=True)


def test_what_an_agent_escalates_is_told_while_others_are_at_work(world: World) -> None:
    says = "submit --outcome ok --summary done --escalate 'Somebody should look'"
    script = f"case $MUSTER_ITEM in one) {says} ;; *) {waits(world)} ;; esac"
    process = begun(world, "esc", "--", "sh", "-c", script, items="one\ntwo\n")
    eventually(lambda: happened(world, "esc", "outcome"))
    assert "Somebody should look" in world.ok("runs", "escalations").stdout and process.poll() is None
    (world.folder / "go").touch()
    assert process.wait(timeout=60) == 0


def test_people_are_told_that_a_budget_is_spent_and_not_of_each_agent(world: World) -> None:
    config = world.home / ".config" / "muster" / "config.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    told = world.folder / "told"
    command = f'echo "$MUSTER_AGENT $MUSTER_NOTIFY_STATE $MUSTER_NOTIFY_REASON" >>{told}'
    config.write_text(f'[budget]\nagents = 1\n[notify]\ncommand = \'{command}\'\non = ["alert", "done", "failed"]\n')
    world.fails(4, "map", "-a", "command", "--run", "poor", "--", "true", input=b"one\ntwo\n")
    eventually(told.exists)
    assert told.read_text() == "poor alert over-budget\n"


def test_only_what_an_agent_itself_did_not_commit_is_brought_home_on_the_side(world: World) -> None:
    """The user's own uncommitted work goes along with each of them, and does not come back from each."""
    (world.repo / "README").write_text("mine, not committed\n")
    (world.repo / "notes").write_text("neither\n")
    scripts = {
        "nothing": "true",
        "commits": "echo x >f; git add f; git commit -qm f",
        "leaves": "echo x >f; git add f; git commit -qm f; echo y >g",
        "edits": "echo more >>README",
    }
    for name, script in scripts.items():
        (world.repo / f"{name}.sh").write_text(script + "\n")
    world.git("add", "*.sh")
    world.git("commit", "-qm", "scripts")
    items = "".join(f"{name}\n" for name in scripts).encode()
    world.ok("map", "-a", "command", "--run", "dirty", "--", "sh", "{item}.sh", input=items)
    told = {task["item"]: (task["commits"], task["uncommitted"]) for task in shown(world, "dirty")["tasks"]}
    assert told == {
        "nothing": (0, None),
        "commits": (1, None),
        "leaves": (1, "muster/dirty-0003-wip"),
        "edits": (0, "muster/dirty-0004-wip"),
    }
    assert world.git("show", "muster/dirty-0004-wip:README") == "mine, not committed\nmore"
    assert "dirty-0001" not in world.git("branch") and "dirty-0002-wip" not in world.git("branch")


def test_what_was_set_counts_for_the_process_that_was_running(world: World) -> None:
    """The next begins with the flags that it was given: an old wish must not beat a newer budget."""
    wishes = world.muster_home / "runs" / "set" / "control.json"
    process = begun(world, "set", "--", "sh", "-c", waits(world))
    eventually(lambda: happened(world, "set", "launch"))
    world.ok("runs", "set", "set", "dollars=20")
    assert json.loads(wishes.read_text())["dollars"] == 20
    process.kill()
    process.wait()
    again = begun(world, "set", "--budget", "1", "--", "sh", "-c", waits(world))
    eventually(lambda: json.loads(wishes.read_text())["dollars"] is None)
    (world.folder / "go").touch()
    assert again.wait(timeout=60) == 0
