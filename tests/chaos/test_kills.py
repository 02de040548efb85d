"""muster itself is killed with -9, at every step it declares and at every program it starts: nothing is lost,
nothing stays that `list` does not show or `gc` does not explain, and the name can be used again."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from muster.fleet import STEPS

from ..conftest import World, eventually

CALL = """
import os, signal, sys
from muster.fleet import Fleet
from muster.model import Address, Spec

verb, stop_at, name, mode = sys.argv[1:]

def told(event):
    print(event.step, flush=True)
    if event.step == stop_at:
        os.kill(os.getpid(), signal.SIGKILL)

fleet = Fleet(on_event=told)
if verb == "create":
    fleet.create(Spec(Address(name), "command", ("sh", "-c", "echo up; exec sleep 1000"), mode=mode))
else:
    fleet.destroy(fleet.get(name))
"""
MODES = ("worktree", "mirror", "copy")
CASES = [(verb, step, mode) for verb, steps in STEPS.items() for step in steps for mode in MODES]


def call(world: World, verb: str, name: str, mode: str = "", stop_at: str = "") -> tuple[int, list[str]]:
    """A program that uses muster's Python API; the steps it was told of, and how it ended."""
    argv = [sys.executable, "-c", CALL, verb, stop_at, name, mode]
    done = subprocess.run(argv, cwd=world.repo, env=world.env, capture_output=True, check=False, timeout=60)
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    return done.returncode, done.stdout.decode().split()


def leftovers(world: World, *more: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = world.ok("gc", "--json", *more).json["leftovers"]
    return rows


def assert_clean(world: World) -> None:
    """The user's repository is as if there had never been an agent."""
    assert len(world.git("worktree", "list").splitlines()) == 1
    assert world.git("branch", "--format=%(refname:short)") == "main"
    assert world.git("status", "--porcelain") == ""
    checked = subprocess.run(
        ["git", "fsck", "--no-dangling"], cwd=world.repo, env=world.env, capture_output=True, check=False
    )
    assert (checked.returncode, checked.stdout) == (0, b""), checked
    for folder in ("agents", "names", "work"):
        path = world.muster_home / folder
        assert not path.exists() or [item.name for item in path.iterdir() if not item.name.startswith(".")] == []


def test_every_verb_that_declares_steps_is_killed_at_them() -> None:
    assert set(STEPS) == {"create", "destroy"}, "a verb with steps of its own needs a test that kills it there"


@pytest.mark.parametrize("verb", STEPS)
def test_the_steps_told_are_those_declared_in_their_order(world: World, verb: str) -> None:
    if verb == "destroy":
        assert call(world, "create", "one")[0] == 0
    assert call(world, verb, "one") == (0, list(STEPS[verb]))


@pytest.mark.parametrize(("verb", "step", "mode"), [case for case in CASES if case[0] == "create"])
def test_a_create_killed_after_any_step_leaves_a_trace_that_can_be_removed(
    world: World, verb: str, step: str, mode: str
) -> None:
    code, told = call(world, verb, "one", mode, step)
    assert code == -9 and told[-1] == step
    row = world.agents()["one"]
    if step in ("start", "message"):
        world.wait_state("one", "working")
        assert not [left for left in leftovers(world) if left["what"] == "half-made agent"]
        world.ok("destroy", "one")
    else:
        assert row["state"] == "lost" and row["reason"] in ("create was interrupted", "never started")
        assert [left["what"] for left in leftovers(world) if left["name"] == "one"] == ["half-made agent"]
        leftovers(world, "--yes")
    assert world.agents() == {}
    assert_clean(world)
    world.ok("create", "one", "command", "--mode", mode, "--no-connect", "--", "true")
    world.wait_state("one", "done")


def test_an_agent_that_was_recorded_and_never_started_can_be_started(world: World) -> None:
    assert call(world, "create", "one", "worktree", "record")[0] == -9
    assert world.agents()["one"]["reason"] == "never started"
    world.ok("start", "one")
    world.wait_state("one", "working")
    eventually(lambda: "up" in world.run("capture", "one").stdout)


@pytest.mark.parametrize(("verb", "step", "mode"), [case for case in CASES if case[0] == "destroy"])
def test_a_destroy_killed_after_any_step_loses_nothing_and_goes_on(
    world: World, verb: str, step: str, mode: str
) -> None:
    assert call(world, "create", "one", mode)[0] == 0
    world.wait_state("one", "working")
    world.ok("exec", "one", "--", "sh", "-c", "echo precious > new; echo half >> README")
    if mode != "copy":
        world.ok("exec", "one", "--", "sh", "-c", "echo c > kept; git add kept; git commit -qm kept")
    code, told = call(world, verb, "one", mode, step)
    assert code == -9 and told[-1] == step
    if step == "forget":
        assert "one" not in world.agents()
    else:
        row = world.agents()["one"]
        assert (row["state"], row["reason"]) == ("lost", "destroy was interrupted")
        assert [left["what"] for left in leftovers(world) if left["name"] == "one"] == ["half-made agent"]
        leftovers(world, "--yes")
    assert world.agents() == {}
    assert_clean(world)
    world.ok("restore", "one")
    assert world.ok("exec", "one", "--", "cat", "new", "README").stdout == "precious\nhello\nhalf\n"
    if mode != "copy":
        assert world.ok("exec", "one", "--", "git", "log", "-1", "--format=%s").stdout == "kept\n"
    world.ok("start", "one")
    world.wait_state("one", "working")


def test_a_destroy_of_a_half_made_agent_can_itself_be_killed(world: World) -> None:
    assert call(world, "create", "one", "worktree", "seed")[0] == -9
    assert call(world, "destroy", "one", "", "mark")[0] == -9
    leftovers(world, "--yes")
    assert world.agents() == {}
    assert_clean(world)


def test_a_create_interrupted_in_the_middle_of_git_takes_back_what_it_made(world: World) -> None:
    """Ctrl-C while the files are being laid out: a filter of the user's is what the test can wait for."""
    (world.repo / ".gitattributes").write_text("README filter=slow\n")
    world.git("add", "-A")
    world.git("commit", "-qm", "attributes")
    flag = world.folder / "flag"
    world.git("config", "filter.slow.smudge", f"touch {flag}; exec sleep 1000")
    before = (world.repo / ".git/config").read_bytes()
    with subprocess.Popen(
        [str(world.bin / "muster"), "create", "one", "command", "--no-connect", "--", "sleep", "1000"],
        cwd=world.repo,
        env=world.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        eventually(flag.exists)
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(30) == 130
    assert world.agents() == {}
    world.git("config", "--remove-section", "filter.slow")
    assert_clean(world)
    assert b"slow" in before and b"worktree" not in (world.repo / ".git/config").read_bytes()
    world.ok("create", "one", "command", "--no-connect", "--", "true")


def test_gc_leaves_alone_what_a_live_process_is_making(world: World) -> None:
    """The creator waits in the middle of create until it is told to go on."""
    waits = CALL.replace("os.kill(os.getpid(), signal.SIGKILL)", "sys.stdin.readline()")
    with subprocess.Popen(
        [sys.executable, "-c", waits, "create", "seed", "one", ""],
        cwd=world.repo,
        env=world.env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as maker:
        assert maker.stdout and maker.stdin
        assert [maker.stdout.readline() for _ in range(2)] == [b"claim\n", b"seed\n"]
        assert world.state("one") == "starting"
        assert leftovers(world, "--yes") == []
        maker.stdin.write(b"go on\n")
        maker.stdin.close()
        assert maker.wait(30) == 0
    world.wait_state("one", "working")


#: Every one of them, at most; every third is enough to meet each kind of moment in one of the modes.
STRIDE = 3
PROGRAMS = ("git", "tar", "ln", "mkdir", "mv", "rm", "cat", "tmux", "find", "mktemp", "chmod")


@pytest.fixture
def killer(world: World) -> Iterator[Path]:
    """Programs that end muster and all it started when it starts the Nth of them."""
    folder = world.folder / "killers"
    folder.mkdir()
    for name in PROGRAMS:
        real = shutil.which(name)
        assert real
        # Whoever has left the session (the tmux server and what it runs) is not counted.
        (folder / name).write_text(
            "#!/bin/sh\n"
            f"session=$(/bin/cat {folder}/session)\n"
            'if [ "$(/usr/bin/cut -d\' \' -f6 /proc/$$/stat)" = "$session" ]; then\n'
            f"  echo {name} >>{folder}/count\n"
            f'  [ "$(/usr/bin/wc -l <{folder}/count)" -lt "$(/bin/cat {folder}/at)" ] || /usr/bin/pkill -KILL -s "$session"\n'
            "fi\n"
            f'exec {real} "$@"\n'
        )
        (folder / name).chmod(0o755)
    yield folder


def killed_at(world: World, killer: Path, number: int, *argv: str) -> int:
    for name in ("count", "session"):
        (killer / name).unlink(missing_ok=True)
    (killer / "at").write_text(f"{number}\n")
    env = {**world.env, "PATH": f"{killer}:{world.env['PATH']}"}
    start = f'echo $$ >{killer}/session; exec "$@"'
    process = subprocess.Popen(
        ["/bin/sh", "-c", start, "start", str(world.bin / "muster"), *argv],
        cwd=world.repo,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    return process.wait(60)


def ours_in_the_way(world: World) -> None:
    """git's own lock files, which only whoever owns the repository may remove."""
    for lock in (world.repo / ".git").rglob("*.lock"):
        lock.unlink()


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mode", MODES)
def test_a_create_killed_at_any_program_it_starts_can_be_cleaned_up(world: World, killer: Path, mode: str) -> None:
    number = 0
    while True:
        number += STRIDE
        argv = ("create", "one", "command", "--mode", mode, "--no-connect", "--", "sleep", "1000")
        code = killed_at(world, killer, number, *argv)
        assert code in (0, -9), (number, code)
        ours_in_the_way(world)
        row = world.agents().get("one")
        done = [left["what"] for left in leftovers(world, "--yes") if left["name"] == "one"]
        if row and row["state"] == "lost":
            assert done == ["half-made agent"], number
        elif row:
            world.ok("destroy", "one")
        assert_clean(world)
        if code == 0:
            break
    assert number > 10


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mode", MODES)
def test_a_destroy_killed_at_any_program_it_starts_loses_nothing(world: World, killer: Path, mode: str) -> None:
    number = 0
    while True:
        number += STRIDE
        world.ok("create", "one", "command", "--mode", mode, "--no-connect", "--", "true")
        world.wait_state("one", "done")
        world.ok("exec", "one", "--", "sh", "-c", f"echo {number} > new")
        code = killed_at(world, killer, number, "destroy", "one")
        assert code in (0, -9), (number, code)
        ours_in_the_way(world)
        leftovers(world, "--yes")
        world.run("destroy", "one")  # where it was killed before anything was done
        assert_clean(world)
        world.ok("restore", "one")
        assert world.ok("exec", "one", "--", "cat", "new").stdout == f"{number}\n"
        world.ok("destroy", "one")
        leftovers(world, "--yes", "--older", "0s")
        assert list((world.muster_home / "trash").iterdir()) == []
        assert world.git("for-each-ref", "refs/muster") == ""
        if code == 0:
            break
    assert number > 10


def test_a_create_that_is_killed_while_it_packs_leaves_no_packer_running(world: World) -> None:
    # The first mirror on this machine links objects; what is new since then comes as a pack.
    world.ok("create", "first", "command", "--mode", "mirror", "--no-connect", "--", "true")
    world.ok("destroy", "first")
    world.git("commit", "--allow-empty", "-m", "new")
    real, shim, note = shutil.which("git"), world.bin / "git", world.folder / "packer"
    shim.write_text(
        f'#!/bin/sh\ncase " $* " in *" pack-objects "*) echo $$ >{note}.new; mv {note}.new {note}; exec sleep 1000 ;; esac\n'
        f'exec {real} "$@"\n'
    )
    shim.chmod(0o755)
    argv = [str(world.bin / "muster"), "create", "one", "command", "--mode", "mirror", "--no-connect", "--", "true"]
    process = subprocess.Popen(argv, cwd=world.repo, env=world.env, stdin=-3, stdout=-3, stderr=-3)
    eventually(note.exists)
    packer = int(note.read_text())
    process.kill()
    process.wait()
    eventually(lambda: not os.path.exists(f"/proc/{packer}"))
    eventually(lambda: list((world.muster_home / "work").iterdir()) == [])


# Many at once


def test_of_two_creates_of_one_name_one_wins_and_the_other_is_told(world: World) -> None:
    argv = [str(world.bin / "muster"), "create", "one", "command", "--no-connect", "--", "sleep", "1000"]
    both = [
        subprocess.Popen(argv, cwd=world.repo, env=world.env, stdin=subprocess.DEVNULL, stdout=-1, stderr=-1)
        for _ in range(2)
    ]
    said = [process.communicate(timeout=60)[1].decode() for process in both]
    assert sorted(process.returncode for process in both) == [0, 5], said
    refused = next(text for text, process in zip(said, both, strict=True) if process.returncode == 5)
    assert "there is an agent one already" in refused and "--reuse" in refused
    assert list(world.agents()) == ["one"]
    assert len(list((world.muster_home / "agents").iterdir())) == 1
    assert len(list((world.muster_home / "work").iterdir())) == 1
    assert len(world.git("for-each-ref", "refs/muster/held").splitlines()) == 1
    world.wait_state("one", "working")


def test_a_name_left_by_an_agent_that_is_gone_is_taken_by_one_of_many(world: World) -> None:
    world.ok("list")
    (world.muster_home / "names").mkdir(parents=True)
    (world.muster_home / "agents").mkdir()
    (world.muster_home / "names" / "one").write_text("one-00000000\n")
    argv = [str(world.bin / "muster"), "create", "one", "command", "--no-connect", "--", "sleep", "1000"]
    many = [
        subprocess.Popen(argv, cwd=world.repo, env=world.env, stdin=subprocess.DEVNULL, stdout=-1, stderr=-1)
        for _ in range(6)
    ]
    said = [process.communicate(timeout=60)[1].decode() for process in many]
    assert sorted(process.returncode for process in many) == [0, 5, 5, 5, 5, 5], said
    assert list(world.agents()) == ["one"]


def test_twenty_creates_at_once_in_one_repository_all_succeed(world: World) -> None:
    many = []
    for number in range(20):
        argv = [
            *(str(world.bin / "muster"), "create", f"n-{number}", "command", "--no-connect", "--"),
            *("sh", "-c", "echo $MUSTER_AGENT > me; exec sleep 1000"),
        ]
        many.append(
            subprocess.Popen(argv, cwd=world.repo, env=world.env, stdin=subprocess.DEVNULL, stdout=-1, stderr=-1)
        )
    said = [process.communicate(timeout=110)[1].decode() for process in many]
    assert [process.returncode for process in many] == [0] * 20, said
    names = {f"n-{number}" for number in range(20)}
    assert set(world.agents()) == names
    held = {f"refs/muster/held/{row['id']}" for row in world.agents().values()}
    assert set(world.git("for-each-ref", "--format=%(refname)", "refs/muster").split()) == held
    eventually(lambda: {row["state"] for row in world.agents().values()} == {"working"})
    assert {world.ok("exec", name, "--", "cat", "me").stdout.strip() for name in ("n-0", "n-7", "n-19")} == {
        "n-0",
        "n-7",
        "n-19",
    }


# Other processes


def pane_pid(world: World, agent_id: str) -> int:
    return int(world.tmux("list-panes", "-t", f"={agent_id}:", "-F", "#{pane_pid}").stdout)


TALK = """
[[step]]
say = "Looking around."
[[step]]
ask = "Shall I go on?"
[[step]]
say = "Going on."
"""


def test_agents_whose_tmux_server_was_killed_are_lost_and_start_goes_on_with_them(world: World) -> None:
    world.ok("create", "plain", "command", "--no-connect", "--", "sleep", "1000")
    world.ok("create", "talk", "replay", "--no-connect", "--", world.playbook(TALK))
    deaf = "trap '' HUP; echo deaf; while :; do sleep 1000; done"
    world.ok("create", "deaf", "command", "--no-connect", "--", "sh", "-c", deaf)
    world.wait_state("talk", "waiting")
    eventually(lambda: "deaf" in world.run("capture", "deaf").stdout)
    before = {row["id"]: set(world.processes(row["id"])) for row in world.agents().values()}
    server = int(world.tmux("display-message", "-p", "#{pid}").stdout)
    os.kill(server, 9)
    for name in ("plain", "talk", "deaf"):
        row = world.wait_state(name, "lost")
        assert row["reason"] == "its session is gone"
    world.ok("start", "--all")
    world.wait_state("plain", "working")
    world.wait_state("deaf", "working")
    world.wait_state("talk", "waiting")
    for row in world.agents().values():
        # Never two of one agent at once.
        assert not before[row["id"]] & set(world.processes(row["id"])), row["name"]
    world.ok("answer", "talk", "yes")
    world.ok("wait", "talk", "--until", "ready", "--timeout", "30s")
    said = [
        entry["text"]
        for entry in world.ok("transcript", "talk", "--json").json["entries"]
        if entry["role"] == "assistant" and entry["text"]
    ]
    assert said.count("Looking around.") == 1 and said[-1] == "Going on."


def test_an_agent_whose_process_was_killed_has_failed_by_signal_9(world: World) -> None:
    world.ok("create", "one", "command", "--no-connect", "--", "sleep", "98765")
    row = world.wait_state("one", "working")

    def sleeper() -> list[int]:
        found = world.processes(row["id"])
        return [pid for pid in found if b"98765" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[1:2]]

    os.kill(eventually(sleeper)[0], 9)
    row = world.wait_state("one", "failed")
    assert (row["reason"], row["exit_code"]) == ("signal 9", 137)


def test_an_agent_whose_wrapper_was_killed_has_failed_and_leaves_no_process(world: World) -> None:
    world.ok("create", "one", "command", "--no-connect", "--", "sleep", "1000")
    row = world.wait_state("one", "working")
    eventually(lambda: len(world.processes(row["id"])) >= 3)
    os.kill(pane_pid(world, row["id"]), 9)
    row = world.wait_state("one", "failed")
    assert row["reason"] == "signal 9"
    eventually(lambda: world.processes(row["id"]) == [])
    world.ok("start", "one")
    world.wait_state("one", "working")


def test_an_agent_whose_recorder_was_killed_ends_and_can_be_started_again(world: World) -> None:
    world.ok("create", "one", "command", "--no-connect", "--", "sleep", "1000")
    row = world.wait_state("one", "working")

    def recorder() -> list[int]:
        wrapper = str(pane_pid(world, row["id"]))
        return [
            pid
            for pid in world.processes(row["id"])
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1] == wrapper
            and b"recorder" in Path(f"/proc/{pid}/cmdline").read_bytes()
        ]

    # The command runs once the recorder has a third process below it.
    eventually(lambda: len(world.processes(row["id"])) >= 3)
    os.kill(eventually(recorder)[0], 9)
    row = world.wait_state("one", "failed")
    assert row["reason"] == "signal 9"
    eventually(lambda: world.processes(row["id"]) == [])
    world.ok("start", "one")
    world.wait_state("one", "working")


def test_a_message_goes_through_after_another_sender_was_killed(world: World) -> None:
    world.ok(
        "create",
        "ear",
        "replay",
        "--no-connect",
        "--",
        world.playbook("wait_for_message = true\n[[step]]\nsay = 'got {message}'\n"),
    )
    row = world.wait_state("ear", "ready")
    dead = subprocess.Popen(["true"])
    dead.wait()
    import socket

    # What a sender leaves behind when it is killed between taking the lock and giving it back.
    os.symlink(f"{socket.gethostname()}:{dead.pid}:1:1", world.muster_home / "agents" / row["id"] / "lock")
    assert "delivered" in world.ok("message", "ear", "-m", "hello").stderr
    assert not os.path.lexists(world.muster_home / "agents" / row["id"] / "lock")


@pytest.mark.parametrize("mode", MODES)
def test_of_two_destroys_at_once_one_does_it_and_nothing_is_lost(world: World, mode: str) -> None:
    world.ok("create", "one", "command", "--mode", mode, "--no-connect", "--", "sleep", "1000")
    world.ok("exec", "one", "--", "sh", "-c", "echo precious > new")
    argv = [str(world.bin / "muster"), "destroy", "one"]
    both = [
        subprocess.Popen(argv, cwd=world.repo, env=world.env, stdin=subprocess.DEVNULL, stdout=-1, stderr=-1)
        for _ in range(2)
    ]
    said = [process.communicate(timeout=60)[1].decode() for process in both]
    codes = sorted(process.returncode for process in both)
    assert codes[0] == 0 and codes[1] in (0, 3, 5), said
    assert "Traceback" not in "".join(said) and "bug in muster" not in "".join(said), said
    leftovers(world, "--yes")
    assert world.agents() == {}
    assert_clean(world)
    world.ok("restore", "one")
    assert world.ok("exec", "one", "--", "cat", "new").stdout == "precious\n"
