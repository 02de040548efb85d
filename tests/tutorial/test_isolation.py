"""A place of its own for each test, and what is found when a test leaves something behind."""

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
from muster.tutorial.isolation import Place, Territory, listing, strays, sweep
from muster.tutorial.terminal import exists

from ..conftest import eventually
from .conftest import Maker, Session


def test_nothing_of_the_outer_environment_comes_in_but_what_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TMUX", "CLAUDECODE", "MUSTER_HOME", "MUSTER_AGENT", "GIT_DIR", "PYTEST_CURRENT_TEST", "PS1"):
        monkeypatch.setenv(name, "outer")
    monkeypatch.setenv("API_KEY", "wanted")
    place = Place(os.environ, ["API_KEY", "NOT_SET"])
    try:
        assert "outer" not in place.env.values()
        assert place.env["API_KEY"] == "wanted" and "NOT_SET" not in place.env
        assert {name for name in place.env if name.startswith("XDG_")} == {
            *("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR")
        }
        inside = ("HOME", "TMPDIR", "TMUX_TMPDIR", "GIT_CONFIG_GLOBAL", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR")
        assert all(place.env[name].startswith(str(place.root)) for name in inside)
    finally:
        place.remove()
    assert not place.root.exists()


def test_home_git_and_tmux_are_the_tests_own(session: Session) -> None:
    e2e = session.e2e
    result = e2e.run(
        "cd && pwd && git init -q r && cd r && git commit -q --allow-empty -m x && git log --format='%an <%ae> %D' "
        "&& mktemp && tmux new-session -d -s mine && tmux list-sessions -F '#S'"
    )
    home, log, temporary, tmux_session = result.stdout.splitlines()
    assert (home, log) == (str(e2e.home), "Test User <test@example.invalid> HEAD -> main")
    assert temporary.startswith(str(session.place.root)) and tmux_session == "mine"


def test_two_tests_share_nothing(make: object) -> None:
    assert callable(make)
    one, two = make("a::b"), make("a::c")
    one.e2e.run("touch ~/x x; tmux new-session -d -s one")
    assert two.e2e.run("ls ~ .; tmux list-sessions").stdout == ".:\n\n" + f"{two.e2e.home}:\n"


def test_a_deep_temporary_folder_does_not_break_tmux(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    place = Place(os.environ)
    try:
        done = subprocess.run(["tmux", "new-session", "-d", "-s", "x", "true"], env=place.env, check=False)
        assert done.returncode == 0
    finally:
        place.end()
        place.remove()


def test_processes_are_found_however_they_detached_and_ended_by_their_id(session: Session) -> None:
    command = "sleep 1001 & setsid sleep 1002 & (setsid sh -c 'sleep 1003 & sleep 1004' &) ; trap '' TERM; "
    session.e2e.run(f"{command} setsid sh -c 'trap \"\" TERM; while :; do sleep 0.1; done' & echo on")
    found = eventually(lambda: _sleepers(session) if len(_sleepers(session)) == 4 else None)
    assert sorted(found) == ["sleep 1001", "sleep 1002", "sleep 1003", "sleep 1004"]
    session.place.end()
    assert session.place.processes() == []


def _sleepers(session: Session) -> list[str]:
    return [one.command for one in session.place.processes() or [] if one.command.startswith("sleep 100")]


def test_sessions_are_named_and_what_runs_in_them_is_not_named_again(session: Session) -> None:
    session.e2e.run("tmux new-session -d -s left sleep 1000; tmux -S other.sock new-session -d -s odd sleep 1000")
    leaks = session.place.leaks()
    assert sorted(leak.split(" on ")[0] for leak in leaks) == ["tmux session left", "tmux session odd"]
    session.place.end()
    assert session.place.leaks() == []


def test_files_that_appear_elsewhere_are_found(tmp_path: Path) -> None:
    (tmp_path / "old").touch()
    before = listing([str(tmp_path), "/no/such/folder"])
    (tmp_path / "new file").touch()
    (tmp_path / "__pycache__").mkdir()
    assert strays(before, listing([str(tmp_path)])) == [f"file {tmp_path}/new file"]


def test_a_folder_that_a_test_made_unreadable_is_removed_all_the_same(session: Session) -> None:
    session.e2e.run("mkdir -p a/b; touch a/b/c; chmod 500 a/b; chmod 0 a; ln -s / root")
    session.end()
    assert not session.place.root.exists() and Path("/etc").is_dir()


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


def test_the_connect_command_outside_of_a_test_says_what_is_missing(tmp_path: Path) -> None:
    from muster.tutorial import connect

    done = subprocess.run(
        [*("python3", connect.__file__)], env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1 and "MUSTER_E2E is not set" in done.stderr


def test_an_agent_that_cannot_be_attached_to_is_an_error_of_the_connect_command(session: Session) -> None:
    env = {"MUSTER_WATCH": "sh -c 'exit 3'", "MUSTER_AGENT": "gone"}
    result = session.e2e.run("muster-e2e-connect", env=env)
    assert result.exit_code == 1 and "muster-e2e-connect: " in result.stderr


def test_a_daemon_without_the_environment_and_session_of_its_test_is_found(session: Session) -> None:
    session.e2e.run("env -i setsid -f sleep 1005; cd /; env -i setsid -f sh -c 'env -i setsid -f sleep 1006'")
    # The shell stays: what has not left its session yet when a terminal closes ends with it.
    terminal = session.e2e.terminal("env -i setsid -f sleep 1007; echo started; read line")
    expect(terminal.screen).to_show("started")
    found = eventually(lambda: _sleepers(session) if len(_sleepers(session)) == 3 else None)
    assert sorted(found) == ["sleep 1005", "sleep 1006", "sleep 1007"]
    session.finish()
    assert sorted(leak.split(": ")[1] for leak in session.place.leaks()) == ["sleep 1005", "sleep 1006", "sleep 1007"]
    session.place.end()
    assert session.place.processes() == []


def test_processes_of_another_test_are_left_alone(make: Maker) -> None:
    one, two = make("a::b"), make("a::c")
    two.e2e.run("setsid -f sleep 1008; env -i setsid -f sleep 1009")
    eventually(lambda: len(_sleepers(two)) == 2)
    assert one.place.leaks() == []
    one.end()
    assert len(_sleepers(two)) == 2


KILLED = """
import os, signal, sys
from pathlib import Path
from muster.tutorial import E2eSession, artifacts
from muster.tutorial.isolation import Place

place = Place(os.environ, keep=sys.argv[2] == "keep")
record = artifacts.Record(Path(sys.argv[1]) / "t", "t::t", "t", 1)
e2e = E2eSession(record, place)
e2e.run("setsid -f sleep 1010; env -i setsid -f sleep 1011; tmux new-session -d -s left sleep 1012; chmod 0 . ~")
e2e.terminal("sleep 1013")
child = os.fork()  # as multiprocessing does: it has all that is open here, and no mark
if not child:
    os.close(1)
    os.close(2)
    signal.pause()
print(place.root, child, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("keep", ["keep", "remove"])
def test_what_a_killed_test_left_is_swept_by_the_next_run(
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
        left = Territory(root, tag)
        assert {"sleep 1010", "sleep 1011", "sleep 1012"} <= {one.command for one in left.processes() or []}
        # Folders that are not proven to be such a test's stay: no owner file, one that is locked, a link.
        (base / "e2e-unproven" / "control").mkdir(parents=True, mode=0o700)
        (base / "e2e-link").symlink_to(root)
        monkeypatch.setattr("tempfile.tempdir", str(base))
        running = Place(os.environ)
        (line,) = sweep()
        assert line.startswith(str(root)) and "ended" in line
        assert left.processes() == []
        assert root.exists() == (keep == "keep")
        assert sweep() == []
        assert running.home.is_dir() and (base / "e2e-unproven").is_dir() and (base / "e2e-link").is_symlink()
        running.remove()
        assert exists(child), "no process of the test, only one that was forked by the test runner"
    finally:
        if child:
            os.kill(int(child), signal.SIGKILL)
        subprocess.run(["chmod", "-R", "u+rwX", base], check=False)
        shutil.rmtree(base)
