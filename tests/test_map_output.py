"""Who watches a run may go away at any time: nothing is lost but what was said. Other verbs say that their output is."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
from pathlib import Path
from typing import IO, Any, NamedTuple

import pytest

from muster.cli.main import main
from muster.cli.map import Display
from muster.flow.limits.breaker import Breaker, Pause
from muster.flow.limits.governor import Spend
from muster.flow.run.directory import Run

from .conftest import TIMEOUT, World, eventually
from .test_json import fits

HELD = 'until test -e "$1"; do sleep 0.1; done'
CLOSED = {"stdin": "<&-", "stdout": ">&-", "stderr": "2>&-"}


def held(world: World, *more: str) -> list[str]:
    """A run of three tasks that end when `go` is there."""
    (world.folder / "items").write_text("1\n2\n3\n")
    words = ["map", "-a", "command", "--run", "seen", "--items", str(world.folder / "items"), *more]
    return [str(world.bin / "muster"), *words, "--", "sh", "-c", HELD, "sh", str(world.folder / "go")]


def start(world: World, argv: list[str], **streams: Any) -> subprocess.Popen[bytes]:
    given = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
    return subprocess.Popen(argv, cwd=world.repo, env=world.env, start_new_session=True, **given)


def redirected(world: World, words: str, *argv: str) -> subprocess.CompletedProcess[bytes]:
    """muster with its streams as the shell makes them."""
    call = ["sh", "-c", f'exec "$0" "$@" {words}', str(world.bin / "muster"), *argv]
    return subprocess.run(
        call, cwd=world.repo, env=world.env, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=TIMEOUT
    )


def outcomes(world: World) -> dict[str, int]:
    found: dict[str, int] = world.ok("runs", "show", "seen", "--json").json["outcomes"]
    return found


def lose(stream: IO[bytes] | None) -> None:
    """Read a line, so that it is under way, and go away."""
    assert stream and stream.readline()
    stream.close()


@pytest.mark.parametrize("lost", ["stdout", "stderr"])
def test_a_run_goes_on_when_its_reader_goes_away(world: World, lost: str) -> None:
    other = "stderr" if lost == "stdout" else "stdout"
    argv = held(world, *(("--json",) if lost == "stdout" else ()))
    process = start(world, argv, **{other: subprocess.DEVNULL})
    lose(getattr(process, lost))
    (world.folder / "go").touch()
    assert process.wait(TIMEOUT) == 0
    assert outcomes(world) == {"ok": 3}


def test_a_run_goes_on_when_its_terminal_is_gone(world: World) -> None:
    master, slave = pty.openpty()
    process = start(world, held(world), stdin=slave, stdout=slave, stderr=slave)
    os.close(slave)
    assert os.read(master, 1)
    os.close(master)
    (world.folder / "go").touch()
    assert process.wait(TIMEOUT) == 0
    assert outcomes(world) == {"ok": 3}


def test_the_exit_code_tells_how_a_run_ended_that_nobody_saw(world: World) -> None:
    (world.folder / "items").write_text("1\n")
    argv = [str(world.bin / "muster"), "map", "-a", "command", "--run", "seen", "--retries", "0", "--json"]
    process = start(world, [*argv, "--items", str(world.folder / "items"), "--", "false"], stderr=subprocess.DEVNULL)
    lose(process.stdout)
    assert process.wait(TIMEOUT) == 1
    assert outcomes(world) == {"failed": 1}


@pytest.mark.parametrize("more", [(), ("--json",)], ids=["", "json"])
@pytest.mark.parametrize("streams", [">/dev/full", "2>/dev/full", "<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_run_needs_no_stream(world: World, streams: str, more: tuple[str, ...]) -> None:
    (world.folder / "go").touch()
    done = redirected(world, streams, *held(world, *more)[1:])
    assert done.returncode == 0
    assert b"Traceback" not in done.stderr and b"muster:" not in done.stderr
    assert outcomes(world) == {"ok": 3}


def test_the_run_of_improve_goes_on_too(world: World) -> None:
    world.activate()
    (world.repo / "test_it.py").write_text("def test_it():\n    pass\n")
    world.git("add", "-A")
    world.git("commit", "-q", "-m", "a test")
    plays = world.folder / "plays"
    plays.mkdir()
    (plays / "test_it.toml").write_text('[[step]]\nsubmit = "ok"\nsummary = "unchanged"\n[[step]]\nturn = "Done."\n')
    words = ["improve", "-a", "replay", "--playbooks", str(plays), "--run", "seen", "--json"]
    process = start(world, [str(world.bin / "muster"), *words], stderr=subprocess.DEVNULL)
    lose(process.stdout)
    assert process.wait(2 * TIMEOUT) == 0
    assert outcomes(world) == {"ok": 1}


def test_items_from_a_closed_stdin_are_none(world: World) -> None:
    done = redirected(world, "<&-", "map", "-a", "command", "--", "true")
    assert done.returncode == 2 and b"there are no items" in done.stderr


@pytest.mark.parametrize(
    "words", [("--help",), ("list",), ("list", "--json"), ("completion", "bash"), ("map", "--help")]
)
def test_an_output_that_is_full_is_an_error_and_one_that_is_closed_is_none(
    world: World, words: tuple[str, ...]
) -> None:
    world.ok("create", "x", "command", "--no-connect", "--", "true")
    full = redirected(world, ">/dev/full", *words)
    told = full.stderr.decode()
    assert (full.returncode, told.count("\n")) == (1, 2), told
    assert "muster: cannot write the output: No space left on device\n  " in told
    for stream, closed in CLOSED.items():
        done = redirected(world, closed, *words)
        assert (done.returncode, done.stderr) == (0, b""), stream
    assert redirected(world, ">/dev/full 2>&1", *words).returncode == 1


def test_a_recording_into_a_full_output_is_an_error(world: World) -> None:
    world.ok("create", "x", "command", "--no-connect", "--", "true")
    world.wait_state("x", "done")
    done = redirected(world, ">/dev/full", "capture", "x", "--cast", "-")
    assert done.returncode == 1 and b"Traceback" not in done.stderr and b"No space left" in done.stderr


@pytest.mark.parametrize(("code", "words"), [(0, ("list",)), (0, ("--help",)), (3, ("explain", "nobody", "--json"))])
def test_a_reader_that_goes_away_changes_no_exit_code(world: World, code: int, words: tuple[str, ...]) -> None:
    read, write = os.pipe()
    os.close(read)
    process = start(world, [str(world.bin / "muster"), *words], stdout=write)
    os.close(write)
    assert process.wait(TIMEOUT) == code
    assert process.stderr and (b"there is no agent" in process.stderr.read()) == bool(code)
    process = start(world, [str(world.bin / "muster"), *words], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    assert process.stderr
    process.stderr.close()
    assert process.wait(TIMEOUT) == code


def test_what_a_verb_starts_has_streams_also_when_its_own_are_closed(world: World) -> None:
    world.ok("create", "x", "command", "--no-connect", "--", "sleep", "1000")
    script = f"cat; echo said; echo told >&2; ls /proc/$$/fd > {world.folder}/fds"
    done = redirected(world, "<&- >&- 2>&-", "exec", "x", "--", "sh", "-c", script)
    assert done.returncode == 0
    assert set((world.folder / "fds").read_text().split()) >= {"0", "1", "2"}


# What people read


class Held(NamedTuple):
    """A scheduler, as far as the line of a terminal looks at it."""

    paused: bool = False
    stopping: str = ""
    pauses: tuple[str, ...] = ()
    why_not: str = ""

    total = Spend(0.5, 100)
    unfinished = 3

    def counts(self) -> dict[str, int]:
        return {"ok": 1, "running": 1, "todo": 2}

    def pace(self, now: float) -> tuple[float, list[tuple[str, float]]]:
        return 0.1, [("seen-0002", 90.0)]

    @property
    def governor(self) -> Held:
        return self

    def why(self, now: float) -> str:
        return self.why_not

    @property
    def breaker(self) -> Breaker:
        made = Breaker()
        made.pauses = {str(n): Pause(0.0, "work", "", "code", words) for n, words in enumerate(self.pauses)}
        return made


@pytest.mark.parametrize(
    ("held", "words"),
    [
        (Held(), ""),
        (Held(why_not="memory is short"), "memory is short | "),
        (Held(paused=True, why_not="memory is short"), "paused (muster runs resume seen) | "),
        (Held(paused=True, stopping="drain"), "draining | "),
        (Held(stopping="cancelled"), "stopping | "),
        (Held(pauses=("5 of 5 failed", "5 of 5 failed")), "launching pauses: 5 of 5 failed | "),
        (Held(pauses=("5 failed",), why_not="load is high"), "launching pauses: 5 failed | load is high | "),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_line_of_a_terminal_tells_first_what_holds_the_run_back(held: Held, words: str, tmp_path: Path) -> None:
    line = Display(True, str(tmp_path / "seen")).line(held, 100.0)  # type: ignore[arg-type]  # a stand-in
    assert line == f"seen 1 ok, 1 running, 2 todo | {words}longest: seen-0002 90 s | $0.50 | 6 a minute, 30 s left"


@pytest.mark.parametrize(
    ("event", "words"),
    [
        ({"kind": "canary", "task": "0007-7"}, "canary: 0007-7"),
        ({"kind": "question", "task": "0007-7", "reason": "Which?"}, "question: 0007-7: Which?"),
        ({"kind": "paused"}, "paused"),
        ({"kind": "draining", "reason": "interrupted"}, "draining: interrupted"),
        (
            {"kind": "outcome", "task": "0001-1", "outcome": "failed", "reason": "exit 1", "final": False},
            "0001-1 failed: exit 1, it is tried again",
        ),
        (
            {"kind": "outcome", "task": "0001-1", "outcome": "cancelled", "reason": "it was", "final": False},
            "0001-1 cancelled: it was, the same command takes it up again",
        ),
        ({"kind": "outcome", "task": "0001-1", "outcome": "cancelled", "final": True}, "0001-1 cancelled"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_event_is_told_in_words(
    event: dict[str, Any], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Display(False, str(tmp_path / "seen")).say(event)
    assert capsys.readouterr().err == f"{words}\n"


def test_after_an_interrupt_it_is_told_how_far_it_came(world: World) -> None:
    argv = held(world, "--max-agents", "1")
    argv[-3] = f'test "$MUSTER_ITEM" = 1 || {HELD}'
    process = start(world, argv)
    eventually(lambda: len([row for row in world.agents().values() if row["labels"]["task"] == "0002-2"]))
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 130
    assert out.decode() == "1 of 3 tasks with an outcome (1 ok), 2 left\n"
    assert b"0002-2 cancelled: the run was interrupted, the same command takes it up again\n" in err
    (world.folder / "go").touch()
    assert subprocess.run(argv, cwd=world.repo, env=world.env, capture_output=True, check=False).stdout == b"3 ok\n"


def test_a_run_shows_work_that_was_not_committed_and_what_could_not_be_harvested(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = held(world)[1:]
    (world.folder / "go").touch()
    world.ok(*argv)
    before = Run.picture

    def picture(run: Run, records: Any = None) -> dict[str, Any]:
        told = before(run, records)
        first, second, third = told["tasks"]
        first |= {"branch": "muster/a", "commits": 1, "uncommitted": "muster/a-wip", "harvest_errors": []}
        second |= {"uncommitted": "muster/b-wip", "harvest_errors": ["commits: no\x1b[31m room", "diff: it is cut"]}
        third |= {"uncommitted": None, "harvest_errors": []}
        return told

    monkeypatch.setattr(Run, "picture", picture)
    monkeypatch.setattr(os, "environ", world.env)
    assert main(["runs", "show", "seen"]) == 0
    _, _, *rows = capsys.readouterr().out.splitlines()
    assert [row.split()[5] for row in rows[:3]] == ["muster/a", "muster/b-wip", "-"]
    assert rows[3:] == ["0002-2: not harvested: commits: no [31m room", "0002-2: not harvested: diff: it is cut"]
    assert main(["runs", "show", "seen", "--json"]) == 0
    fits(json.loads(capsys.readouterr().out), "runs")


def test_a_run_shows_its_own_escalations_and_all_are_shown_when_asked_for(world: World) -> None:
    for number, name in enumerate(("one", "two")):
        play = f'[[step]]\nsubmit = "blocked"\nsummary = "No."\nescalate = ["Somebody must see to {name}."]\n'
        path = world.playbook(play + '[[step]]\nturn = "Done."\n', f"{number}.toml")
        (world.folder / "items").write_text("1\n")
        words = ("map", "-a", "replay", "--run", name, "--items", str(world.folder / "items"), "-p", "Look.")
        world.ok(*words, "--", path)
    assert "see to one" in (told := world.ok("runs", "show", "one").stdout) and "see to two" not in told
    assert "see to one" in (told := world.ok("runs", "escalations").stdout) and "see to two" in told
