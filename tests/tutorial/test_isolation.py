"""Tests of the sandbox that each test runs in, and of finding what a test leaves behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from muster.tutorial import E2eSession, expect
from muster.tutorial.isolation import Sandbox, SandboxProcesses, listing, new_files, sweep
from muster.tutorial.terminal import exists

from ..conftest import eventually
from .conftest import Maker, Session


def test_only_named_variables_are_inherited(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TMUX", "CLAUDECODE", "MUSTER_HOME", "MUSTER_AGENT", "GIT_DIR", "PYTEST_CURRENT_TEST", "PS1"):
        monkeypatch.setenv(name, "outer")
    monkeypatch.setenv("API_KEY", "wanted")
    sandbox = Sandbox(os.environ, ["API_KEY", "NOT_SET"])
    try:
        assert "outer" not in sandbox.env.values()
        assert sandbox.env["API_KEY"] == "wanted" and "NOT_SET" not in sandbox.env
        assert {name for name in sandbox.env if name.startswith("XDG_")} == {
            *("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR")
        }
        inside = ("HOME", "TMPDIR", "TMUX_TMPDIR", "GIT_CONFIG_GLOBAL", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR")
        assert all(sandbox.env[name].startswith(str(sandbox.root)) for name in inside)
    finally:
        sandbox.remove()
    assert not sandbox.root.exists()


def test_each_test_has_its_own_home_git_identity_and_tmux(session: Session) -> None:
    e2e = session.e2e
    result = e2e.run(
        "cd && pwd && git init -q r && cd r && git commit -q --allow-empty -m x && git log --format='%an <%ae> %D' "
        "&& mktemp && tmux new-session -d -s mine && tmux list-sessions -F '#S'"
    )
    home, log, temporary, tmux_session = result.stdout.splitlines()
    assert (home, log) == (str(e2e.home), "Test User <test@example.invalid> HEAD -> main")
    assert temporary.startswith(str(session.sandbox.root)) and tmux_session == "mine"


def test_two_tests_do_not_share_files_or_tmux_sessions(make: object) -> None:
    assert callable(make)
    one, two = make("a::b"), make("a::c")
    one.e2e.run("touch ~/x x; tmux new-session -d -s one")
    assert two.e2e.run("ls ~ .; tmux list-sessions").stdout == ".:\n\n" + f"{two.e2e.home}:\n"


def test_a_deep_temporary_folder_does_not_break_tmux(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    sandbox = Sandbox(os.environ)
    try:
        done = subprocess.run(["tmux", "new-session", "-d", "-s", "x", "true"], env=sandbox.env, check=False)
        assert done.returncode == 0
    finally:
        sandbox.end()
        sandbox.remove()


def test_detached_processes_are_found_and_ended(session: Session) -> None:
    command = "sleep 1001 & setsid sleep 1002 & (setsid sh -c 'sleep 1003 & sleep 1004' &) ; trap '' TERM; "
    session.e2e.run(f"{command} setsid sh -c 'trap \"\" TERM; while :; do sleep 0.1; done' & echo on")
    found = eventually(lambda: _sleepers(session) if len(_sleepers(session)) == 4 else None)
    assert sorted(found) == ["sleep 1001", "sleep 1002", "sleep 1003", "sleep 1004"]
    session.sandbox.end()
    assert session.sandbox.processes() == []


def _sleepers(session: Session) -> list[str]:
    return [process.command for process in session.sandbox.processes() or [] if process.command.startswith("sleep 100")]


def test_leaked_tmux_sessions_are_listed_once_without_their_processes(session: Session) -> None:
    session.e2e.run("tmux new-session -d -s left sleep 1000; tmux -S other.sock new-session -d -s odd sleep 1000")
    leaks = session.sandbox.leaks()
    assert sorted(leak.split(" on ")[0] for leak in leaks) == ["tmux session left", "tmux session odd"]
    session.sandbox.end()
    assert session.sandbox.leaks() == []


def test_new_files_in_watched_folders_are_found(tmp_path: Path) -> None:
    (tmp_path / "old").touch()
    before = listing([str(tmp_path), "/no/such/folder"])
    (tmp_path / "new file").touch()
    (tmp_path / "__pycache__").mkdir()
    assert new_files(before, listing([str(tmp_path)])) == [f"file {tmp_path}/new file"]


def test_folders_that_a_test_made_unreadable_are_removed(session: Session) -> None:
    session.e2e.run("mkdir -p a/b; touch a/b/c; chmod 500 a/b; chmod 0 a; ln -s / root")
    session.end()
    assert not session.sandbox.root.exists() and Path("/etc").is_dir()


def test_muster_records_agents_that_a_test_connects_to(session: Session) -> None:
    e2e: E2eSession = session.e2e
    e2e.run("git init -q . && git commit -q --allow-empty -m x")
    result = e2e.run("muster create one command -- sh -c 'echo hello from one; sleep 1000'")
    assert result.exit_code == 0 and "recording one to connect-one.cast" in result.stderr
    assert e2e.run("muster connect one").exit_code == 0
    sizes = e2e.run(
        'muster exec one -- sh -c \'tmux -S "$HOME/.local/state/muster/tmux.sock" list-panes -aF "#{pane_width}x#{pane_height}"\''
    )
    e2e.run("muster destroy one")
    e2e.run("muster create two command -- sh -c 'echo hello from two; sleep 1000'")
    assert session.finish() == []
    recordings = session.record.folder / "recordings"
    assert session.record.facts["recordings"] == ["connect-one", "connect-one-2", "connect-two"]
    for name in ("one", "one-2", "two"):
        assert f"hello from {name[:3]}" in (recordings / f"connect-{name}.txt").read_text(), name
    header, _ = session.cast("connect-one")
    assert (
        f"{header['width']}x{header['height'] - 1}" in sizes.stdout
        or f"{header['width']}x{header['height']}" in sizes.stdout
    )
    assert "~ recording connect-one\n" in session.text()
    assert "muster connect one" in {event["text"] for event in session.events("recording")}


def test_the_recording_of_an_agent_follows_the_size_of_its_terminal(session: Session) -> None:
    e2e = session.e2e
    e2e.run("git init -q . && git commit -q --allow-empty -m x")
    e2e.run("muster create one command -- sh -c 'echo hello; sleep 1000'")
    socket = e2e.home / ".local/state/muster/tmux.sock"
    e2e.run(f"tmux -S {socket} resize-window -x 77 -y 20")
    eventually(lambda: "r" in [event[1] for event in session.cast("connect-one")[1]])
    assert e2e.run(f"tmux -S {socket} list-windows -F '#{{window_width}}x#{{window_height}}'").stdout == "77x20\n"
    assert session.finish() == []
    header, events = session.cast("connect-one")
    assert (header["width"], header["height"]) == (200, 50), "the agent's own size, which the recorder left as it was"
    assert [event[2] for event in events if event[1] == "r"] == ["77x20"]


def test_the_connect_command_fails_with_a_reason_outside_of_a_test(tmp_path: Path) -> None:
    from muster.tutorial import connect

    done = subprocess.run(
        [*("python3", connect.__file__)], env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1 and "MUSTER_E2E is not set" in done.stderr


def test_the_connect_command_fails_if_it_cannot_attach_to_the_agent(session: Session) -> None:
    env = {"MUSTER_WATCH": "sh -c 'exit 3'", "MUSTER_AGENT": "gone"}
    result = session.e2e.run("muster-e2e-connect", env=env)
    assert result.exit_code == 1 and "muster-e2e-connect: " in result.stderr


def test_a_daemon_without_the_environment_and_session_of_its_test_is_found(session: Session) -> None:
    session.e2e.run("env -i setsid -f sleep 1005; cd /; env -i setsid -f sh -c 'env -i setsid -f sleep 1006'")
    # The shell must stay: when a terminal closes, processes that have not left its session yet end with it.
    terminal = session.e2e.terminal("env -i setsid -f sleep 1007; echo started; read line")
    expect(terminal.screen).to_show("started")
    found = eventually(lambda: _sleepers(session) if len(_sleepers(session)) == 3 else None)
    assert sorted(found) == ["sleep 1005", "sleep 1006", "sleep 1007"]
    session.finish()
    assert sorted(leak.split(": ")[1] for leak in session.sandbox.leaks()) == ["sleep 1005", "sleep 1006", "sleep 1007"]
    session.sandbox.end()
    assert session.sandbox.processes() == []


def test_processes_of_another_test_are_not_touched(make: Maker) -> None:
    one, two = make("a::b"), make("a::c")
    two.e2e.run("setsid -f sleep 1008; env -i setsid -f sleep 1009")
    eventually(lambda: len(_sleepers(two)) == 2)
    assert one.sandbox.leaks() == []
    one.end()
    assert len(_sleepers(two)) == 2


KILLED = """
import os, signal, sys
from pathlib import Path
from muster.tutorial import E2eSession, artifacts
from muster.tutorial.isolation import Sandbox

sandbox = Sandbox(os.environ, keep=sys.argv[2] == "keep")
record = artifacts.Record(Path(sys.argv[1]) / "t", "t::t", "t", 1)
e2e = E2eSession(record, sandbox)
e2e.run("setsid -f sleep 1010; env -i setsid -f sleep 1011; tmux new-session -d -s left sleep 1012; chmod 0 . ~")
e2e.terminal("sleep 1013")
child = os.fork()  # as multiprocessing does: the child inherits all open files, but no tag
if not child:
    os.close(1)
    os.close(2)
    signal.pause()
print(sandbox.root, child, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("keep", ["keep", "remove"])
def test_the_next_run_sweeps_the_sandbox_of_a_killed_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, session: Session, keep: str
) -> None:
    base = Path(tempfile.mkdtemp(prefix="sweep-", dir="/tmp"))
    child = ""
    try:
        env = {**os.environ, "TMPDIR": str(base)}
        argv = [sys.executable, "-c", KILLED, str(tmp_path), keep]
        done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == -signal.SIGKILL, done.stderr
        path, child = done.stdout.split()
        root = Path(path)
        tag = json.loads((root / "control" / "owner").read_text())["tag"]
        left = SandboxProcesses(root, tag)
        assert {"sleep 1010", "sleep 1011", "sleep 1012"} <= {one.command for one in left.processes() or []}
        # Folders that may belong to something else stay: no owner file, a locked owner file, a symlink.
        (base / "e2e-unproven" / "control").mkdir(parents=True, mode=0o700)
        (base / "e2e-link").symlink_to(root)
        monkeypatch.setattr("tempfile.tempdir", str(base))
        running = Sandbox(os.environ)
        (line,) = sweep()
        assert line.startswith(str(root)) and "ended" in line
        assert left.processes() == []
        assert root.exists() == (keep == "keep")
        assert sweep() == []
        assert running.home.is_dir() and (base / "e2e-unproven").is_dir() and (base / "e2e-link").is_symlink()
        running.remove()
        assert exists(child), "the child belongs to the test runner, not to the test"
    finally:
        if child:
            os.kill(int(child), signal.SIGKILL)
        subprocess.run(["chmod", "-R", "u+rwX", base], check=False)
        shutil.rmtree(base)
