"""The machine fails, the host goes away, the agent is hostile: a clear error, nothing lost, nothing else disturbed."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from muster import Fleet
from muster.flow.run.results import RESULT_MOST, read

from ..conftest import Sshd, World, eventually


def start(world: World, name: str, *argv: str, env: dict[str, str] | None = None) -> dict[str, Any]:
    world.ok("create", name, "command", "--no-connect", "--", *argv, env=env)
    row: dict[str, Any] = world.agents()[name]
    return row


def folder(world: World, name: str) -> Path:
    return world.muster_home / "agents" / str(world.agents()[name]["id"])


def screen(world: World, name: str, text: str) -> str:
    return str(eventually(lambda: (shown := world.run("capture", name).stdout) and text in shown and shown))


# The machine


class Disk:
    """A small file system of its own."""

    def __init__(self, path: Path, size: str) -> None:
        self.path = path
        path.mkdir()
        if os.getuid() != 0 or self._mount(["-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)]):
            pytest.skip("mounting a tmpfs needs root and CAP_SYS_ADMIN")

    def _mount(self, argv: list[str]) -> int:
        return subprocess.run(["mount", *argv], capture_output=True, check=False).returncode

    def fill(self) -> None:
        with open(self.path / "filler", "wb", buffering=0) as file:
            try:
                while True:
                    file.write(b"x" * 4096)
            except OSError:
                pass

    def empty(self) -> None:
        (self.path / "filler").unlink()

    def read_only(self, yes: bool = True) -> None:
        assert self._mount(["-o", f"remount,{'ro' if yes else 'rw'}", str(self.path)]) == 0

    def end(self) -> None:
        subprocess.run(["umount", "-l", str(self.path)], check=True)


@pytest.fixture
def disk(tmp_path: Path, world: World) -> Iterator[Disk]:
    disk = Disk(tmp_path / "disk", "2m")
    world.muster_home = disk.path / "state"
    world.env["MUSTER_HOME"] = str(world.muster_home)
    yield disk
    disk.read_only(False)
    world.end()
    disk.end()


def whole(world: World) -> None:
    """Nothing but the agents that are listed is there."""
    rows = world.agents()
    ids = {row["id"] for row in rows.values()}
    assert {path.name for path in (world.muster_home / "agents").iterdir()} == ids
    assert {path.name for path in (world.muster_home / "work").iterdir()} == ids
    assert {path.name for path in (world.muster_home / "names").iterdir()} == set(rows)
    assert list((world.muster_home / "trash").iterdir()) == []
    held = world.git("for-each-ref", "--format=%(refname)", "refs/muster").split()
    borrowing = {f"refs/muster/held/{row['id']}" for row in rows.values() if row["mode"] == "worktree"}
    assert set(held) == borrowing
    assert len(world.git("worktree", "list").splitlines()) == 1
    assert world.git("branch", "--list", "muster/*") == ""


@pytest.mark.parametrize("mode", ["worktree", "mirror", "copy"])
def test_with_no_space_left_create_fails_whole_and_the_others_go_on(world: World, disk: Disk, mode: str) -> None:
    world.ok("create", "old", "command", "--mode", "worktree", "--no-connect", "--", "sleep", "1000")
    world.wait_state("old", "working")
    disk.fill()
    words = ("create", "new", "command", "--mode", mode, "--no-connect", "--", "true")
    failed = world.fails(1, *words)
    assert "space left" in failed.stderr and "muster gc" in failed.stderr
    answer = world.fails(1, "create", "new", "command", "--json", *words[3:])
    assert "space left" in answer.json["error"]["message"]
    assert world.state("old") == "working"
    whole(world)
    world.ok("stop", "old")
    assert world.processes(world.agents()["old"]["id"]) == []
    disk.empty()
    world.ok(*words)
    world.wait_state("new", "done")


def test_a_create_that_runs_out_of_space_half_way_takes_back_what_it_made(world: World, disk: Disk) -> None:
    (world.repo / "large").write_bytes(os.urandom(4 * 1024 * 1024))
    world.git("add", "-A")
    world.git("commit", "-qm", "large")
    for mode in ("worktree", "mirror", "copy"):
        failed = world.fails(1, "create", "new", "command", "--mode", mode, "--no-connect", "--", "true")
        assert "space left" in failed.stderr, mode
        whole(world)


def test_a_read_only_home_is_an_error_that_names_it_and_agents_still_list(world: World, disk: Disk) -> None:
    start(world, "old", "true")
    world.wait_state("old", "done")
    world.ok("stop", "old")  # nothing has a file there open for writing
    disk.read_only()
    failed = world.fails(1, "create", "new", "command", "--no-connect", "--", "true")
    assert "read-only" in failed.stderr.lower() and "MUSTER_HOME" in failed.stderr
    assert world.state("old") == "done"
    for words in (("label", "old", "--set", "a=b"), ("rename", "old", "new"), ("start", "old"), ("destroy", "old")):
        assert "read-only" in world.fails(1, *words).stderr.lower(), words
    disk.read_only(False)
    whole(world)


def test_a_home_that_may_not_be_written_is_an_error_that_says_so(world: World, disk: Disk) -> None:
    world.env["HOME"] = str(disk.path / "home")
    del world.env["MUSTER_HOME"]
    disk.read_only()
    failed = world.fails(1, "create", "new", "command", "--no-connect", "--", "true")
    assert "read-only" in failed.stderr.lower()
    assert world.git("branch", "--list", "muster/*") == ""
    assert world.ok("list", "--json").json["agents"] == []


def path_without(world: World, *missing: str) -> str:
    """All programs of PATH but those."""
    folder = world.folder / "programs"
    folder.mkdir()
    for place in reversed(world.env["PATH"].split(":")):
        for program in Path(place).iterdir() if os.path.isdir(place) else ():
            if program.name not in missing:
                link = folder / program.name
                link.unlink(missing_ok=True)
                link.symlink_to(program)
    return str(folder)


@pytest.mark.skipif(
    any(os.path.exists(f"/usr/local/bin/{name}") for name in ("git", "tmux")), reason="git or tmux in /usr/local/bin"
)
@pytest.mark.parametrize("program", ["tmux", "git"])
def test_a_missing_program_is_named_and_nothing_is_left_behind(world: World, program: str) -> None:
    path = path_without(world, program)
    failed = world.fails(1, "create", "one", "command", "--no-connect", "--", "true", env={"PATH": path})
    assert program in failed.stderr and "muster doctor" in failed.stderr
    assert program in world.run("doctor", env={"PATH": path}).stdout
    assert world.agents() == {}
    assert len(world.git("worktree", "list").splitlines()) == 1
    assert world.git("branch", "--list", "muster/*") == ""
    world.ok("create", "one", "command", "--no-connect", "--", "true")


TASKS = ("map", "-a", "command", "--", "echo", "{item}")


@pytest.mark.skipif(os.path.exists("/usr/local/bin/tmux"), reason="tmux in /usr/local/bin")
def test_a_run_is_refused_at_once_where_tmux_is_missing(world: World) -> None:
    failed = world.fails(1, *TASKS, input=b"a\nb\n", env={"PATH": path_without(world, "tmux")})
    assert "this machine cannot be used: tmux is not installed" in failed.stderr and "muster doctor" in failed.stderr
    assert world.ok("runs", "--json").json["runs"] == []


@pytest.mark.skipif(os.path.exists("/usr/local/bin/tmux"), reason="tmux in /usr/local/bin")
def test_a_run_is_refused_at_once_where_no_host_can_be_used(world: World, sshd: Sshd) -> None:
    settings = sshd.settings.read_text()
    sshd.settings.write_text(settings.replace("SetEnv ", f"SetEnv PATH={path_without(world, 'tmux')} "))
    sshd.stop()
    sshd.start()
    box, nobody = ("map", "@box", *TASKS[1:]), ("map", "@nobody", *TASKS[1:])
    failed = world.fails(1, *box, input=b"a\n")
    assert "host box cannot be used: tmux is not installed" in failed.stderr and "muster doctor" in failed.stderr
    failed = world.fails(6, *nobody, input=b"a\n")
    assert "host nobody cannot be reached: " in failed.stderr and "refused" in failed.stderr
    failed = world.fails(1, *box[:2], *nobody[1:], input=b"a\n")
    assert "no host can be used: host box cannot be used: tmux is not installed; host nobody cannot be" in failed.stderr
    assert world.ok("runs", "--json").json["runs"] == []


# The environment


def test_an_outer_session_reaches_neither_the_agent_nor_musters_own_git(world: World) -> None:
    nonsense = str(world.folder / "nowhere")
    outer = {
        "CLAUDECODE": "1",
        "CLAUDE_CODE_SESSION_ID": "outer",
        "CLAUDE_CODE_ENTRYPOINT": "cli",
        "CODEX_SANDBOX": "seatbelt",
        "CODEX_THREAD_ID": "outer",
        "OPENCODE": "1",
        "TMUX": "/nowhere,1,0",
        "TMUX_PANE": "%7",
        "GIT_DIR": nonsense,
        "GIT_WORK_TREE": nonsense,
        "GIT_INDEX_FILE": nonsense,
        "GIT_OBJECT_DIRECTORY": nonsense,
        "GIT_PREFIX": "sub/",
        "MUSTER_AGENT": "outer",
        "MUSTER_PROMPT": "outer",
    }
    mine = {"FOO": "bar baz\n'quoted' \"twice\" $HOME", "ANTHROPIC_API_KEY": "k", "CODEX_HOME": "/mine"}
    world.ok(
        *("create", "one", "command", "--branch", "main:muster/mine", "--no-connect", "--"),
        *("sh", "-c", "env -0 > environment; mv environment environment.done; exec sleep 1000"),
        env={**outer, **mine, "PATH": f"/mine/bin:{world.env['PATH']}"},
    )
    work = Path(world.agents()["one"]["workdir"])
    eventually((work / "environment.done").exists)
    pairs = [item.partition("=") for item in (work / "environment.done").read_text().split("\0") if item]
    seen = {key: value for key, _, value in pairs}
    assert {key: seen[key] for key in mine} == mine
    assert seen["MUSTER_AGENT"] == "one"
    assert not {key for key in outer if key != "MUSTER_AGENT"} & set(seen)
    assert f":/mine/bin:{world.env['PATH']}" in seen["PATH"]
    # The verbs that use git do not look there either.
    told = world.ok("exec", "one", "--", "git", "branch", "--show-current", env=outer)
    assert told.stdout == "muster/mine\n"
    world.ok("diff", "one", env=outer)
    world.ok("pull", "one", env=outer)
    world.ok("push", "one", env=outer)
    world.ok("destroy", "one", env=outer)
    world.ok("gc", env=outer)
    assert not os.path.exists(nonsense)
    assert world.git("branch", "--format=%(refname:short)").split() == ["main", "muster/mine"]


def test_the_umask_of_the_caller_is_the_agents(world: World) -> None:
    for mask, mode in (("027", "0o640"), ("0002", "0o664")):
        name = f"m{mask}"
        call = ["sh", "-c", 'umask "$1"; shift; exec "$@"', "sh", mask, str(world.bin / "muster")]
        argv = [*call, "create", name, "command", "--no-connect", "--", "sh", "-c", "echo x > made"]
        subprocess.run(argv, cwd=world.repo, env=world.env, check=True, stdin=subprocess.DEVNULL, capture_output=True)
        row = world.wait_state(name, "done")
        assert oct((Path(row["workdir"]) / "made").stat().st_mode & 0o777) == mode
        # What muster keeps of it is nobody else's.
        assert (world.muster_home / "agents" / row["id"]).stat().st_mode & 0o077 == 0


# Hostile agents


def test_a_damaged_record_is_a_row_and_harms_no_other_agent(world: World) -> None:
    deep = "[" * 100_000
    damages = {
        "garbage": b"\0\xff{{{ not json\n",
        "empty": b"",
        "another": json.dumps({"id": "victim", "name": "victim", "type": "command"}).encode(),
        "deep": deep.encode(),
        "numbers": b'{"id": "ID", "name": "numbers", "type": "command", "created": NaN, "timeout": 1e999}',
        "path": b'{"id": "ID", "name": "../../etc", "type": "command"}',
    }
    start(world, "victim", "sleep", "1000")
    for name in damages:
        start(world, name, "sleep", "1000")
    ids = {row["name"]: row["id"] for row in world.agents().values()}
    for name, content in damages.items():
        record = world.muster_home / "agents" / ids[name] / "agent.json"
        record.write_bytes(content.replace(b"ID", ids[name].encode()))
    rows = world.agents()
    assert set(rows) == {"victim", *damages}
    assert rows["victim"]["state"] == "working"
    for name in damages:
        assert (rows[name]["state"], rows[name]["reason"]) == ("lost", "its record cannot be read"), name
        assert name in world.ok("list").stdout and "cannot be read" in world.ok("explain", name).stdout
    left = {row["name"]: row for row in world.ok("gc", "--yes", "--json").json["leftovers"]}
    assert {left[name]["verdict"] for name in damages} == {"unique, its record cannot be read"}
    assert set(world.agents()) == {"victim", *damages}
    world.fails(1, "start", "garbage")
    world.run("exec", "garbage", "--", "sh", "-c", "echo precious > new")
    told = world.ok("destroy", "garbage").stderr
    assert "record that cannot be read" in told
    assert world.processes(ids["garbage"]) == []
    assert "garbage" not in world.git("worktree", "list") + world.git("branch")
    world.ok("restore", "garbage")
    assert world.ok("exec", "garbage", "--", "cat", "new").stdout == "precious\n"
    world.ok("destroy", *damages)
    assert set(world.agents()) == {"victim"}
    assert world.git("for-each-ref", "refs/heads/muster") == ""


def test_a_record_that_is_no_file_is_a_row_too(world: World) -> None:
    for name in ("gone", "pipe", "zero", "dir"):
        start(world, name, "sleep", "1000")
    for name in ("gone", "pipe", "zero", "dir"):
        record = folder(world, name) / "agent.json"
        record.unlink()
        if name == "pipe":
            os.mkfifo(record)
        elif name == "zero":
            record.symlink_to("/dev/zero")
        elif name == "dir":
            record.mkdir()
    rows = world.agents()
    assert {row["reason"] for row in rows.values()} == {"its record cannot be read"} and len(rows) == 4
    world.ok("gc", "--yes")
    world.ok("destroy", "--all")
    assert world.agents() == {}
    assert world.git("branch", "--format=%(refname:short)").split() == ["main"]


def test_a_record_that_claims_the_name_of_another_does_not_get_it(world: World) -> None:
    start(world, "victim", "sleep", "1000")
    start(world, "thief", "sleep", "1000")
    victim = world.agents()["victim"]["id"]
    record = folder(world, "thief") / "agent.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), "name": "victim", "created": 1.0}))
    rows = world.agents()
    assert set(rows) == {"victim", "thief"}
    assert rows["victim"]["id"] == victim


def test_events_that_are_pipes_devices_or_floods_stop_nothing(world: World) -> None:
    for name in ("one", "two"):
        world.ok(
            "create",
            name,
            "replay",
            "--no-connect",
            "--",
            world.playbook("wait_for_message = true\n[[step]]\nsay = 'got {message}'\n"),
        )
        world.wait_state(name, "ready")
    bad = folder(world, "one")
    for name, make in {
        "ask": lambda path: os.mkfifo(path),
        "tool": lambda path: path.symlink_to("/dev/zero"),
        "limit": lambda path: path.write_text('{"t":1,"kind":"limit","text":"' + "x" * 5_000_000 + '"}'),
        "retry": lambda path: path.write_text("[" * 100_000),
        "error": lambda path: path.write_text('{"t": 1e400, "until": 1e300, "text": "\\ud800"}'),
        "queued": lambda path: path.write_text('["no object"]'),
        "turn-end": lambda path: path.write_text('{"t": true, "text": {"a": 1}}'),
    }.items():
        (bad / "ev" / name).unlink(missing_ok=True)
        make(bad / "ev" / name)
    (bad / "usage.json").write_text('{"input_tokens": 1' + "0" * 400 + ', "cost_usd": NaN}')
    (bad / "rec" / "tail").unlink(missing_ok=True)
    os.mkfifo(bad / "rec" / "tail")
    rows = world.agents()
    assert rows["one"]["state"] == rows["two"]["state"] == "ready"
    assert rows["one"]["cost_usd"] is None and rows["one"]["tokens"] is None
    world.ok("list")
    world.ok("explain", "one")
    assert "delivered" in world.ok("message", "one", "-m", "hello").stderr
    (bad / "rec" / "tail").unlink()
    (bad / "rec" / "tail").symlink_to("/dev/zero")
    assert world.state("two") == "ready"
    world.ok("stop", "one")
    world.ok("destroy", "one")


def test_an_end_that_makes_no_sense_is_a_failure_and_no_crash(world: World) -> None:
    start(world, "one", "sleep", "1000")
    world.ok("stop", "one")
    agent = folder(world, "one")
    (agent / "ev" / "stopped").unlink()
    for code in ('"seven"', "null", "[1]", "1e5"):
        (agent / "ev" / "exit").write_text(f'{{"t": 9999999999, "kind": "exit", "code": {code}}}\n')
        assert world.state("one") == "failed"


NASTY = "\x1b[31mred\x1b]0;title\x07\x9b2J\u202eevil\u2066<script>\x7f\b"


def harmless(text: str) -> bool:
    return all(char in "\n\t" or char.isprintable() for char in text)


def test_nothing_an_agent_wrote_reaches_the_terminal_raw(world: World) -> None:
    quoted = json.dumps(NASTY)
    book = f"[[step]]\nsay = {quoted}\n[[step]]\nask = {quoted}\n"
    world.ok("create", "talk", "replay", "--no-connect", "--", world.playbook(book))
    world.wait_state("talk", "waiting")
    printed = 'printf "\\033[31mred\\033]0;t\\007 \\342\\200\\256evil\\n"; exec sleep 1000'
    world.ok("create", "shell", "command", "--label", f"note={NASTY}", "--no-connect", "--", "sh", "-c", printed)
    screen(world, "shell", "evil")
    log = folder(world, "shell") / "events.jsonl"
    with open(log, "a") as file:
        file.write(json.dumps({"t": 1e300, "kind": "x\x1b[2J", NASTY: NASTY}) + "\n")
        file.write(json.dumps({"t": "soon", "kind": "\ud800", "text": "\udfff half"}) + "\n")
    for words in (
        ("list",),
        ("list", "--format", "{name} {labels} {last_line}"),
        ("list", "--json"),
        ("explain", "talk"),
        ("explain", "talk", "--json"),
        ("events", "talk"),
        ("events", "shell"),
        ("events", "shell", "--json"),
        ("transcript", "talk"),
        ("transcript", "talk", "--json"),
    ):
        result = world.ok(*words)
        assert harmless(result.stdout), (words, result.stdout)
        assert harmless(result.stderr), words
    row = world.agents()["shell"]
    assert row["labels"]["note"] == NASTY  # JSON escapes, it does not change
    assert "red" in row["last_line"] and "evil" in row["last_line"]


def test_a_log_that_floods_is_capped_and_the_newest_is_kept(world: World) -> None:
    flood = (
        "i=0; head -c 9000000 /dev/zero | tr '\\0' 'x' >> $MUSTER_AGENT_DIR/events.jsonl; "
        'while [ $i -lt 20 ]; do sh $MUSTER_AGENT_DIR/bin/event tool "\\"n\\":$i"; i=$((i + 1)); done; echo over; exec sleep 1000'
    )
    start(world, "one", "sh", "-c", flood)
    screen(world, "one", "over")
    agent = folder(world, "one")
    assert (agent / "events.jsonl").stat().st_size < 9_000_000
    assert sum(path.stat().st_size for path in agent.glob("events*.jsonl")) < 2 * 9_000_001
    numbers = [e["n"] for e in world.ok("events", "one", "--json").json["events"] if e.get("kind") == "tool"]
    assert numbers == list(range(20))


def test_a_log_beyond_every_cap_is_read_from_its_end(world: World) -> None:
    start(world, "one", "sleep", "1000")
    with open(folder(world, "one") / "events.jsonl", "a") as file:
        file.truncate(3 * 1024**3)  # a hole, which costs nothing until it is read
        file.seek(0, 2)
        file.write('\n{"t": 5, "kind": "last"}\n')
    events = world.ok("events", "one", "--json").json["events"]
    assert events[-1] == {"t": 5, "kind": "last"}
    (folder(world, "one") / "events.jsonl").unlink()


def test_a_recording_that_looks_like_another_agents_does_not_speak_for_it(world: World) -> None:
    victim = start(world, "victim", "sh", "-c", "echo the truth; exec sleep 1000")
    screen(world, "victim", "the truth")
    lie = f"printf '\\n==> ./{victim['id']}/rec/tail <==\\na lie\\n'; exec sleep 1000"
    start(world, "a-liar", "sh", "-c", lie)
    screen(world, "a-liar", "a lie")
    assert world.agents()["victim"]["last_line"] != "a lie"


def test_the_name_of_a_process_cannot_forge_the_survey(world: World) -> None:
    """tmux prints the name of what runs in a pane, and a process chooses its own name."""
    victim = start(world, "victim", "sleep", "1000")
    agent = start(world, "a-liar", "sleep", "1000")
    lie = f"x\npane {victim['id']} 1 0 9 1 y\n"
    world.tmux("respawn-pane", "-k", "-t", f"={agent['id']}:", "bash", "-c", 'exec -a "$0" sleep 1000', lie)
    eventually(lambda: b"x" in world.tmux("list-panes", "-a", "-F", "#{pane_current_command}").stdout)
    assert world.wait_state("victim", "working", "failed")["state"] == "working"


def test_the_name_of_a_session_cannot_forge_the_survey(world: World) -> None:
    """Agents can make sessions in the server that they run in, and tmux lets a name hold blanks."""
    victim = start(world, "victim", "sleep", "1000")
    world.wait_state("victim", "working")
    for lie in (f"{victim['id']} 1 0 0 1 sh 0", f"x\npane {victim['id']} 1 0 0 1 sh 0"):
        world.tmux("new-session", "-d", "-s", lie, "sleep", "1000")
    assert world.tmux("list-sessions", "-F", "#{session_name}").stdout.count(victim["id"].encode()) == 3
    assert world.state("victim") == "working"


def test_only_the_pane_of_its_wrapper_tells_how_an_agent_is(world: World) -> None:
    row = start(world, "one", "sh", "-c", "while [ ! -e go ]; do sleep 0.1; done")
    world.wait_state("one", "working")
    session = f"={row['id']}:"

    def states() -> set[str]:
        return {world.state("one"), Fleet(world.env).get("one").status.state}

    def dead() -> list[str]:
        return world.tmux("list-panes", "-s", "-t", session, "-F", "#{pane_dead}").stdout.decode().split()

    world.tmux("split-window", "-t", session, "exit 3")
    world.tmux("split-window", "-b", "-t", session, "exit 3")
    world.tmux("new-window", "-t", session, "exit 3")
    eventually(lambda: sorted(dead()) == ["0", "1", "1", "1"])
    assert states() == {"working"}
    world.tmux("new-window", "-t", session, "sleep 1000")
    world.ok("exec", "one", "--", "touch", "go")
    world.wait_state("one", "done")
    assert states() == {"done"}
    world.ok("exec", "one", "--", "rm", "go")
    world.ok("start", "one")
    world.wait_state("one", "working")
    assert dead() == ["0"]


def test_of_a_result_no_more_is_read_than_shows_that_it_is_too_large(world: World) -> None:
    start(world, "one", "sleep", "1000")
    file = folder(world, "one") / "result.json"
    for text in ('"' + "x" * 4_000_000 + '"', '"' + "ü" * 2_000_000 + '"'):
        file.write_text(text + "\n")
        result = Fleet(world.env).get("one").status.result.encode()
        size = len(result)
        assert RESULT_MOST < size < RESULT_MOST + 10
        assert "larger" in str(read(result))
    file.write_text('"' + "x" * (RESULT_MOST - 2) + '"\n')
    assert len(Fleet(world.env).get("one").status.result) == RESULT_MOST


def test_an_agent_that_is_destroyed_while_it_is_surveyed_is_gone_not_lost(world: World) -> None:
    start(world, "stays", "sleep", "1000")
    goes = start(world, "goes", "sleep", "1000")
    real, state = shutil.which("find"), world.muster_home
    (world.bin / "find").write_text(
        f'#!/bin/sh\n{real} "$@"\n[ ! -e {state}/agents/{goes["id"]} ] || mv {state}/agents/{goes["id"]} {world.folder}/away\n'
    )
    (world.bin / "find").chmod(0o755)
    assert set(world.agents()) == {"stays"} and (world.folder / "away").is_dir()


def test_a_survey_of_one_agent_says_what_the_survey_of_all_says(world: World) -> None:
    start(world, "at-work", "sleep", "1000")
    start(world, "at-wor", "sleep", "1000")
    start(world, "done", "sh", "-c", "exit 3")
    start(world, "halted", "sleep", "1000")
    world.ok("stop", "halted", "--grace", "0")
    world.wait_state("done", "failed")
    fleet = Fleet(world.env)
    rows = {status.agent.name: status for status in fleet.survey().statuses}
    assert {name: status.state for name, status in rows.items()} == {
        "at-work": "working",
        "at-wor": "working",
        "done": "failed",
        "halted": "stopped",
    }
    for name, status in rows.items():
        for one in ((found := fleet.get(name)).status, fleet.look(found)):
            assert (one.state, one.reason, one.agent) == (status.state, status.reason, status.agent)


def test_an_agent_that_kills_tmux_hits_neither_musters_server_nor_the_users(world: World, users_tmux: str) -> None:
    start(world, "other", "sleep", "1000")
    kill = "tmux kill-server; tmux -L default kill-server; tmux new-session -d true; tmux kill-server; echo tried; exec sleep 1000"
    start(world, "one", "sh", "-c", kill)
    screen(world, "one", "tried")
    assert world.state("other") == world.state("one") == "working"
    assert user_says(world, users_tmux, "display-message", "-p", "#{session_name}") == "mine"


def test_an_agent_that_forks_while_it_is_stopped_does_not_get_away(world: World) -> None:
    # Each of them ignores TERM, puts children in sessions of their own, and makes new ones all the time.
    breed = "trap '' TERM HUP; echo up; while :; do setsid sh -c 'trap \"\" TERM HUP; sleep 1000' & sleep 0.02; done"
    row = start(world, "one", "sh", "-c", breed)
    screen(world, "one", "up")
    eventually(lambda: len(world.processes(row["id"])) > 15)
    world.ok("stop", "one", "--grace", "0.2")
    assert world.processes(row["id"]) == []
    assert world.state("one") == "stopped"


def test_what_a_killed_create_left_of_its_scratch_is_below_musters_own_home_and_gc_removes_it(world: World) -> None:
    users, mark = world.folder / "users-tmp", world.folder / "pid"
    users.mkdir()
    world.env["TMPDIR"] = str(users)
    shim = world.bin / "git"
    shim.write_text(
        f'#!/bin/sh\ncase "$*" in *"read-tree"*) echo $$ >{mark}.new; mv {mark}.new {mark}; exec sleep 1000 ;; esac\n'
        f'exec {shutil.which("git")} "$@"\n'
    )
    shim.chmod(0o755)
    argv = [str(world.bin / "muster"), "create", "one", "command", "--no-connect", "--", "true"]
    with subprocess.Popen(argv, cwd=world.repo, env=world.env, stderr=subprocess.DEVNULL) as process:
        eventually(mark.exists)
        process.kill()
    os.killpg(os.getpgid(int(mark.read_text())), 9)
    shim.unlink()
    assert list(users.iterdir()) == []
    (left,) = (world.muster_home / "tmp").iterdir()
    world.ok("gc", "--yes")
    assert left.is_dir()  # it may be of one that is under way
    os.utime(left, (time.time() - 90000,) * 2)
    rows = world.ok("gc", "--json", "--yes").json["leftovers"]
    assert [row["action"] for row in rows if row["what"] == "scratch"] == ["removed"]
    assert list((world.muster_home / "tmp").iterdir()) == []
    assert list(users.iterdir()) == []


def test_an_agent_with_a_time_limit_that_ends_early_leaves_no_clock_running(world: World) -> None:
    world.ok("create", "one", "command", "--timeout", "1h", "--no-connect", "--", "true")
    row = world.wait_state("one", "done")
    eventually(lambda: world.processes(row["id"]) == [])


def counts(world: World, name: str) -> tuple[int, int]:
    (row,) = (row for row in world.ok("list", "--git", "--json").json["agents"] if row["name"] == name)
    return row["ahead"], row["dirty"]


def test_an_agent_that_damages_its_index_is_seen_pulled_destroyed_and_restored(world: World) -> None:
    script = (
        'echo c > c; git add c; git commit -qm c; echo w > work.txt; echo garbage > "$(git rev-parse --git-dir)/index"'
    )
    start(world, "bad", "sh", "-c", script)
    world.wait_state("bad", "done")
    assert "+w\n" in world.ok("diff", "bad").stdout
    assert counts(world, "bad") == (1, 1)
    assert "1 commit ahead" in world.ok("pull", "bad").stderr
    assert "1 commit, 1 uncommitted file" in world.ok("destroy", "bad").stderr
    world.ok("restore", "bad")
    workdir = Path(world.agents()["bad"]["workdir"])
    assert (workdir / "work.txt").read_text() == "w\n" and (workdir / "c").exists()


def test_the_commits_of_an_agent_that_removed_its_work_dir_are_pulled_and_kept(world: World) -> None:
    script = 'echo w > w; git add w; git commit -qm w; cd /; rm -rf "$OLDPWD"'
    start(world, "one", "sh", "-c", script)
    start(world, "two", "sh", "-c", 'cd /; rm -rf "$OLDPWD"')
    world.wait_state("one", "done")
    world.wait_state("two", "done")
    assert "+w\n" in world.ok("diff", "one").stdout
    assert counts(world, "one") == (1, 0)
    assert "1 commit ahead" in world.ok("pull", "one").stderr
    told = world.ok("destroy", "one", "two").stderr
    assert "1 commit" in told and "changed nothing" not in told
    assert world.git("branch", "--list", "muster/*").split() == ["muster/one"]  # what was pulled is the user's
    world.git("branch", "-D", "muster/one")
    world.ok("restore", "one")
    world.ok("pull", "one")
    assert world.git("log", "-1", "--format=%s", "muster/one") == "w"
    world.ok("pull", "one", "--merge")
    assert (world.repo / "w").read_text() == "w\n"


# The user's own things


def user_says(world: World, tmpdir: str, *argv: str) -> str:
    env = {**world.env, "TMUX_TMPDIR": tmpdir}
    done = subprocess.run(["tmux", *argv], env=env, capture_output=True, check=False)
    return done.stdout.decode().strip()


@pytest.fixture
def users_tmux(world: World) -> Iterator[str]:
    """The user's own default tmux server, with an option of theirs; muster is called from the same environment."""
    place = world.folder / "t"
    place.mkdir()
    (world.home / ".tmux.conf").write_text("set -g status-right 'mine'\nset -g @mine yes\n")
    env = {**world.env, "TMUX_TMPDIR": str(place)}
    subprocess.run(["tmux", "new-session", "-d", "-s", "mine", "sleep", "1000"], env=env, check=True)
    world.env["TMUX_TMPDIR"] = str(place)
    yield str(place)
    subprocess.run(["tmux", "kill-server"], env=env, check=False)


def test_a_whole_life_leaves_everything_of_the_users_as_it_was(world: World, users_tmux: str) -> None:
    (world.home / ".gitconfig").write_text(
        "[user]\n\tname = Uma\n\temail = uma@example.invalid\n[alias]\n\tx = status\n"
    )
    (world.repo / "README").write_text("stashed\n")
    world.git("stash", "-q")
    (world.repo / "README").write_text("staged\n")
    world.git("add", "README")
    (world.repo / "README").write_text("staged and changed\n")
    (world.repo / "untracked").write_text("u\n")
    world.git("status")  # the index is refreshed now, not later

    def all_of_it() -> dict[str, Any]:
        files = {
            str(path): path.read_bytes()
            for path in (
                *(world.home / name for name in (".tmux.conf", ".gitconfig")),
                *(world.repo / ".git" / name for name in ("config", "index", "HEAD", "refs/stash", "logs/refs/stash")),
                *(world.repo / name for name in ("README", "untracked", "src/app.py")),
            )
        }
        return {
            **files,
            "home": sorted(str(path) for path in world.home.rglob("*")),
            "tree": sorted(path.name for path in world.repo.iterdir()),
            "hooks": sorted(path.name for path in (world.repo / ".git/hooks").iterdir()),
            "refs": world.git("for-each-ref"),
            "worktrees": world.git("worktree", "list"),
            "options": user_says(world, users_tmux, "show-options", "-g"),
            "server": user_says(world, users_tmux, "show-options", "-s"),
            "keys": user_says(world, users_tmux, "list-keys"),
            "environment": user_says(world, users_tmux, "show-environment", "-g"),
            "sessions": user_says(world, users_tmux, "list-sessions", "-F", "#{session_name} #{session_id}"),
            "buffers": user_says(world, users_tmux, "list-buffers"),
        }

    before = all_of_it()
    assert "@mine yes" in before["options"]
    book = "wait_for_message = true\n[[step]]\nwrite = 'made'\ntext = 'x'\n[[step]]\ncommit = 'made it'\n[[step]]\nsay = 'done'\n"
    world.ok("create", "one", "replay", "--no-connect", "--", world.playbook(book))
    world.ok("message", "one", "-m", "please")
    world.ok("wait", "one", "--until", "ready", "--timeout", "30s")
    world.ok("list", "--git")
    world.ok("diff", "one")
    world.ok("pull", "one")
    assert world.git("log", "-1", "--format=%s", "muster/one") == "made it"
    world.ok("snapshot", "create", "one", "s")
    world.ok("destroy", "one")
    world.ok("gc", "--yes", "--older", "0s")
    world.git("branch", "-D", "muster/one")  # what was pulled is the user's
    assert all_of_it() == before


# Hosts


def test_a_host_that_is_down_is_a_row_and_a_verb_on_it_says_6(world: World, sshd: Sshd) -> None:
    world.ok("create", "far@box", "command", "--no-connect", "--", "sleep", "1000")
    start(world, "near", "sleep", "1000")
    sshd.stop()
    forget_connection(world)
    listing = world.ok("list", "--json").json
    assert [row["address"] for row in listing["agents"]] == ["near"]
    assert {row["name"]: row["reachable"] for row in listing["hosts"]} == {None: True, "box": False}
    shown = world.ok("list").stdout
    assert "unreachable" in shown and "box" in shown and "ago" in shown
    for words in (
        ("explain", "far@box"),
        ("exec", "far@box", "--", "true"),
        ("stop", "far@box"),
        ("destroy", "far@box"),
    ):
        told = world.fails(6, *words)
        assert "box" in told.stderr and "ssh box true" in told.stderr
    world.fails(6, "create", "new@box", "command", "--no-connect", "--", "true")
    sshd.start()
    world.wait_state("far@box", "working")


def test_a_host_that_never_says_a_word_is_given_up_on(world: World, sshd: Sshd) -> None:
    """It takes the connection and is silent: only our own time-out ends that."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(8)
        with open(sshd.config, "a") as file:
            file.write(f"Host silent\n  HostName 127.0.0.1\n  Port {silent.getsockname()[1]}\n")
        began = time.monotonic()
        told = world.fails(6, "exec", "one@silent", "--", "true", timeout=25)
        assert "silent" in told.stderr
        assert time.monotonic() - began > 3  # not because the connection was refused
        start(world, "near", "sleep", "1000")
        hosts = world.muster_home / "hosts"
        hosts.mkdir(exist_ok=True)
        (hosts / "silent").write_text(json.dumps({"place": "silent", "provider": "ssh", "seen": time.time() - 100}))
        listing = world.run("list", "--json", timeout=25).json
        assert [row["address"] for row in listing["agents"]] == ["near"]
        assert [row["reachable"] for row in listing["hosts"] if row["name"] == "silent"] == [False]


def forget_connection(world: World) -> None:
    argv = [str(world.bin / "ssh"), "-Oexit", f"-oControlPath=/tmp/muster-{os.getuid()}/%C", "box"]
    subprocess.run(argv, capture_output=True, check=False)


@pytest.mark.skipif(not shutil.which("bash"), reason="the login shell has to be bash")
def test_everything_works_over_a_login_shell_that_talks(world: World, sshd: Sshd) -> None:
    (sshd.home / ".bashrc").write_text("echo Welcome to box!\nprintf 'no newline at the end'\necho and errors >&2\n")
    shown = subprocess.run([str(world.bin / "ssh"), "box", "true"], capture_output=True, check=True).stdout
    if b"Welcome" not in shown:
        pytest.skip("the login shell of this account does not read .bashrc")
    world.ok(
        "create",
        "far@box",
        "command",
        "--no-connect",
        "--",
        "sh",
        "-c",
        "echo c > made; git add .; git commit -qm made; echo over; exec sleep 1000",
    )
    screen(world, "far@box", "over")
    data = bytes(range(256)) * 400
    argv = [str(world.bin / "muster"), "exec", "far@box", "--", "cat"]
    done = subprocess.run(argv, cwd=world.repo, env=world.env, input=data, capture_output=True, check=True, timeout=60)
    assert done.stdout == data
    assert world.run("exec", "far@box", "--", "sh", "-c", "printf no-newline; exit 7").stdout == "no-newline"
    assert world.run("exec", "far@box", "--", "sh", "-c", "exit 7").code == 7
    world.ok("pull", "far@box", "--files", "made", "--to", str(world.folder / "got"))
    assert (world.folder / "got/made").read_text() == "c\n"
    world.ok("pull", "far@box")
    assert world.git("log", "-1", "--format=%s", "muster/far") == "made"
    world.ok("message", "far@box", "-m", "hello")
    world.ok("clone", "far@box", "twin")
    world.ok("destroy", "far@box")
    world.ok("restore", "far@box")
    assert world.state("far@box") == "stopped"


def test_a_connection_that_breaks_in_the_middle_is_a_host_that_does_not_answer(
    world: World, sshd: Sshd, monkeypatch: pytest.MonkeyPatch
) -> None:
    from muster.errors import Unreachable
    from muster.providers.ssh import SshHost

    for key, value in world.env.items():
        monkeypatch.setenv(key, value)
    host = SshHost("box")
    assert host.run(["echo", "there"]).stdout == b"there\n"
    with pytest.raises(Unreachable, match="box"):
        host.run(["sh", "-c", "echo half; kill -9 $PPID; exec sleep 10"])
    assert host.run(["echo", "again"]).stdout == b"again\n"


@pytest.mark.parametrize("mode", ["worktree", "mirror", "copy", "in-place"])
def test_destroy_works_on_a_full_disk_and_the_agent_can_be_restored(world: World, disk: Disk, mode: str) -> None:
    run = "echo more >>README; echo up >up; while :; do echo x >>filler 2>/dev/null; sleep 0.1; done"
    world.ok("create", "one", "command", "--mode", mode, "--no-connect", "--", "sh", "-c", run)
    row = world.wait_state("one", "working")
    eventually(lambda: (Path(row["workdir"]) / "up").exists())
    disk.fill()
    world.ok("destroy", "one")
    assert world.agents() == {}
    assert world.processes(row["id"]) == []
    disk.empty()
    world.ok("restore", "one")
    assert (Path(world.agents()["one"]["workdir"]) / "README").read_text().endswith("more\n")
