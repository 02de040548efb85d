"""Recordings, made by the real `recorder.sh` on real terminals."""

from __future__ import annotations

import fcntl
import io
import json
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyte
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster import cast

RECORDER = str(Path(cast.__file__).parent / "sh" / "agent" / "recorder.sh")
CAP = 10_000_000


class Terminal:
    """A command on a pseudo-terminal of its own."""

    def __init__(self, *argv: str, rows: int = 24, cols: int = 80, env: dict[str, str] | None = None) -> None:
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))
            os.execvpe(argv[0], argv, {**os.environ, "TERM": "xterm-256color"} if env is None else env)
        self.seen = b""

    def read(self, timeout: float = 60) -> bytes:
        ready = select.select([self.fd], [], [], timeout)[0]
        assert ready, f"nothing came within {timeout} s; seen: {self.seen[-500:]!r}"
        try:
            data = os.read(self.fd, 65536)
        except OSError:
            data = b""
        self.seen += data
        return data

    def until(self, expected: bytes) -> None:
        while expected not in self.seen:
            assert self.read(), f"ended before {expected!r}; seen: {self.seen[-500:]!r}"

    def send(self, data: bytes) -> None:
        # A terminal that takes one byte is called writable: a write that waits could wait for a reader that waits for us.
        os.set_blocking(self.fd, False)
        try:
            while data:
                readable, writable, _ = select.select([self.fd], [self.fd], [])
                if readable:
                    self.read()
                if writable:
                    try:
                        data = data[os.write(self.fd, data[:4096]) :]
                    except BlockingIOError:
                        continue
        finally:
            os.set_blocking(self.fd, True)

    def resize(self, rows: int, cols: int) -> None:
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def end(self) -> int:
        """Read to the end; the exit code, negative for a signal."""
        while self.read():
            pass
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        os.close(self.fd)
        return code


def record(folder: Path, *argv: str, cap: int = CAP, **more: Any) -> Terminal:
    return Terminal("sh", RECORDER, str(folder), str(cap), *argv, **more)


def meta(folder: Path, number: int = 1) -> dict[str, Any]:
    return cast.meta((folder / f"{number}.meta").read_text())


def lines(folder: Path, number: int = 1, **more: Any) -> list[Any]:
    with (folder / f"{number}.raw").open("rb") as raw, (folder / f"{number}.timing").open("rb") as timing:
        return [json.loads(line) for line in cast.convert(raw, timing, meta(folder, number), **more)]


def shown(events: list[Any]) -> str:
    return "".join(data for _, code, data in events if code == "o")


def replay(events: list[Any]) -> pyte.Screen:
    screen = pyte.Screen(events[0]["width"], events[0]["height"])
    stream = pyte.Stream(screen)
    for _, code, data in events[1:]:
        if code == "o":
            stream.feed(data)
        elif code == "r":
            cols, rows = data.split("x")
            screen.resize(int(rows), int(cols))
    return screen


def session(leader: int) -> list[int]:
    """The living processes of a session."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(") ")[2].split()
            except OSError:
                continue
            if fields[3] == str(leader) and fields[0] != "Z":
                found.append(int(entry.name))
    return found


def until(true: Any, timeout: float = 60) -> None:
    """Wait for the evidence."""
    end = time.monotonic() + timeout
    while not true():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.01)


# ---- the recorder


def test_arguments_arrive_exactly(tmp_path: Path) -> None:
    words = [
        "a",
        "b c",
        "it's",
        "'",
        "''",
        "",
        "*",
        "--",
        "-n",
        "$HOME`id`\\",
        "line\nline\n\n",
        "ü ⎿ 漢",
        '"',
        "x" * 100_000,
    ]
    words += ["don't " * 2000]
    program = "import sys, pathlib; pathlib.Path(sys.argv[1]).write_text(repr(sys.argv[2:]))"
    assert record(tmp_path / "r", sys.executable, "-c", program, str(tmp_path / "got"), *words).end() == 0
    assert (tmp_path / "got").read_text() == repr(words)


def test_the_command_sees_the_environment_signals_and_files_it_would_have_without(tmp_path: Path) -> None:
    program = (
        "import os, json, signal, sys; os.umask(mask := os.umask(0)); status = open('/proc/self/status').read();"
        "keep = [l for l in status.splitlines() if l.startswith(('SigBlk', 'SigIgn'))];"
        "env = {k: v for k, v in os.environ.items() if k != '_'};"
        "open(sys.argv[1], 'w').write(json.dumps([env, mask, keep, sorted(os.listdir('/proc/self/fd')), os.getcwd()]))"
    )
    env = {"PATH": os.environ["PATH"], "SHELL": "/bin/it's", "cap": "mine", "dir": "mine", "LC_ALL": "C.UTF-8"}
    env |= {"MUSTER_AGENT_ID": "a1"}
    env |= {"HOME": "/root", "TERM": "xterm", "PWD": os.getcwd()}
    for given_env in (env, {k: v for k, v in env.items() if k not in ("SHELL", "LC_ALL", "MUSTER_AGENT_ID")}):
        plain = Terminal(sys.executable, "-c", program, str(tmp_path / "plain"), env=given_env)
        assert plain.end() == 0
        assert record(tmp_path / "r", sys.executable, "-c", program, str(tmp_path / "rec"), env=given_env).end() == 0
        assert json.loads((tmp_path / "rec").read_text()) == json.loads((tmp_path / "plain").read_text())


@pytest.mark.parametrize(
    ("command", "code"),
    [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137), ("kill -TERM $$", 143), ("exec /nonexistent/x", 127)],
)
def test_the_exit_code_is_the_commands_own(tmp_path: Path, command: str, code: int) -> None:
    assert record(tmp_path, "sh", "-c", command).end() == code
    assert meta(tmp_path)["exit"] == code
    assert meta(tmp_path)["end"] >= meta(tmp_path)["start"]


def test_each_launch_gets_the_next_number_and_nothing_else_stays(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        assert record(tmp_path, "echo", f"launch {number}").end() == 0
        assert f"launch {number}" in shown(lines(tmp_path, number)[1:])
    expected = {f"{n}.{kind}" for n in (1, 2, 3) for kind in ("raw", "timing", "meta")}
    assert {entry.name for entry in tmp_path.iterdir()} == expected


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)])
def test_a_signal_ends_the_command_and_leaves_nothing(tmp_path: Path, sent: int, code: int) -> None:
    terminal = record(tmp_path, "sh", "-c", "echo $$; exec sleep 1000")
    terminal.until(b"\n")
    leader = int(terminal.seen)
    os.kill(terminal.pid, sent)
    assert terminal.end() == code
    assert meta(tmp_path)["exit"] == code
    assert session(leader) == []
    assert session(terminal.pid) == []


def test_script_and_tee_do_not_carry_the_mark_by_which_agents_are_ended(tmp_path: Path) -> None:
    env = {**os.environ, "TERM": "xterm", "MUSTER_AGENT_ID": "a1"}
    terminal = record(tmp_path, "sh", "-c", 'echo "<$MUSTER_AGENT_ID>"; read x', env=env)
    terminal.until(b"<a1>")
    parts = [pid for pid in session(terminal.pid) if pid != terminal.pid]
    assert len(parts) == 2
    assert not any(b"MUSTER_AGENT_ID" in Path(f"/proc/{pid}/environ").read_bytes() for pid in parts)
    terminal.send(b"\n")
    assert terminal.end() == 0


def test_a_term_that_hits_script_itself_is_not_called_success(tmp_path: Path) -> None:
    terminal = record(tmp_path, "sh", "-c", "echo up; exec sleep 1000")
    terminal.until(b"up")
    (script,) = (pid for pid in session(terminal.pid) if Path(f"/proc/{pid}/comm").read_text() == "script\n")
    os.kill(script, signal.SIGTERM)
    assert terminal.end() == 143
    assert meta(tmp_path)["exit"] == 143


def test_a_command_that_handles_the_signal_keeps_its_own_exit_code_and_last_words(tmp_path: Path) -> None:
    terminal = record(
        tmp_path, "sh", "-c", "trap 'sleep 0.5; echo bye; exit 3' TERM; echo up; while :; do sleep 0.1; done"
    )
    terminal.until(b"up")
    os.kill(terminal.pid, signal.SIGTERM)
    assert terminal.end() == 3
    assert "bye" in shown(lines(tmp_path)[1:])


def test_a_command_that_ignores_signals_is_ended_with_all_on_its_terminal(tmp_path: Path) -> None:
    deaf = "trap '' TERM HUP INT; (while :; do sleep 1; done) & echo $$; while :; do sleep 1; done"
    terminal = record(tmp_path, "sh", "-c", deaf)
    terminal.until(b"\n")
    leader = int(terminal.seen)
    os.kill(terminal.pid, signal.SIGTERM)
    assert terminal.end() == 137
    assert session(leader) == []


@pytest.mark.parametrize("victim", ["recorder", "script", "tee"])
def test_after_kill_9_of_any_part_nothing_hangs(tmp_path: Path, victim: str) -> None:
    terminal = record(tmp_path, "sh", "-c", "echo $$; while :; do echo tick; sleep 0.2; done")
    terminal.until(b"tick")
    until(lambda: b"tick" in (tmp_path / "1.raw").read_bytes())
    leader = int(terminal.seen.split()[0])
    parts = {Path(f"/proc/{pid}/comm").read_text().strip(): pid for pid in session(terminal.pid) if pid != terminal.pid}
    os.kill({"recorder": terminal.pid, **parts}[victim], signal.SIGKILL)
    if victim == "tee":  # the command goes on, unrecorded
        terminal.seen = b""
        terminal.until(b"tick\r\ntick\r\ntick")
        os.kill(terminal.pid, signal.SIGTERM)
        assert terminal.end() == 143
    else:
        terminal.end()
    until(lambda: session(leader) == [] and session(terminal.pid) == [])
    assert "tick" in shown(lines(tmp_path)[1:])


def test_a_background_process_of_the_command_does_not_hold_the_recorder(tmp_path: Path) -> None:
    started = time.monotonic()
    terminal = record(tmp_path, "sh", "-c", "trap '' HUP; sleep 20 & echo $!")
    assert terminal.end() == 0
    assert time.monotonic() - started < 10
    os.kill(int(terminal.seen), signal.SIGKILL)


def test_a_command_that_stops_itself_is_continued(tmp_path: Path) -> None:
    """As tmux does with a pane's process; script would stay stopped."""
    terminal = record(tmp_path, "sh", "-c", "kill -STOP $$; echo again; read x")
    terminal.until(b"again")
    terminal.send(b"\n")
    assert terminal.end() == 0


def test_the_recorder_can_be_ended_even_when_script_missed_the_end_of_the_command(tmp_path: Path) -> None:
    """script does, mostly, when a command stops itself and ends at once when continued."""
    terminal = record(tmp_path, "sh", "-c", "echo $$; kill -STOP $$")
    terminal.until(b"\n")
    leader = int(terminal.seen)
    until(lambda: session(leader) == [])
    os.kill(terminal.pid, signal.SIGTERM)
    terminal.end()
    assert session(terminal.pid) == []


def test_keys_reach_the_command_as_without_a_recorder(tmp_path: Path) -> None:
    terminal = record(
        tmp_path, "sh", "-c", "trap 'echo interrupted' INT; echo up; while ! read x; do :; done; echo \"<$x>\""
    )
    terminal.until(b"up")
    terminal.send(b"\x03")
    terminal.until(b"interrupted")
    terminal.send("\x1aü⎿\n".encode())
    assert terminal.end() == 0
    assert "<ü⎿>".encode() in terminal.seen
    assert "ü⎿\r\n".encode() in terminal.seen, "the terminal echoes"


def test_ctrl_z_works_in_a_shell_under_the_recorder(tmp_path: Path) -> None:
    terminal = record(tmp_path, "bash", "--norc", "--noediting", "-i")
    terminal.send(b"PS1='> '; sleep 1000\n")
    until(lambda: terminal_runs(terminal, "sleep"))
    terminal.send(b"\x1a")
    terminal.until(b"Stopped")
    terminal.send(b"kill -9 %1; disown -a; exit 5\n")
    assert terminal.end() == 5


def terminal_runs(terminal: Terminal, name: str) -> bool:
    """Whether a process of that name runs below the terminal's."""
    below = [terminal.pid]
    for pid in below:
        try:
            below += map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
            if Path(f"/proc/{pid}/comm").read_text().strip() == name:
                return True
        except OSError:  # it ended meanwhile
            continue
    return False


PASTE = """
import os, sys, tty
tty.setraw(0)
os.write(1, b"\\x1b[?2004hREADY")
got = b""
while not got.endswith(b"\\x1b[201~"):
    got += os.read(0, 65536)
    os.write(1, b"." * 2000)
open(sys.argv[1], "wb").write(got)
"""


def test_a_bracketed_paste_of_128_kb_arrives_whole_in_raw_mode(tmp_path: Path) -> None:
    terminal = record(tmp_path / "r", sys.executable, "-c", PASTE, str(tmp_path / "got"))
    terminal.until(b"READY")
    assert b"\x1b[?2004h" in terminal.seen
    data = b"\x1b[200~" + ("wörter\r" * 16384)[: 128 * 1024].encode() + b"\x1b[201~"
    terminal.send(data)
    assert terminal.end() == 0
    assert (tmp_path / "got").read_bytes() == data


def test_a_resize_reaches_the_command_and_the_recording(tmp_path: Path) -> None:
    terminal = record(
        tmp_path, "sh", "-c", "trap 'stty size' WINCH; stty size; while :; do sleep 0.05; done", rows=24, cols=80
    )
    terminal.until(b"24 80")
    terminal.resize(40, 120)
    terminal.until(b"40 120")
    os.kill(terminal.pid, signal.SIGTERM)
    terminal.end()
    events = lines(tmp_path)
    assert (events[0]["width"], events[0]["height"]) == (80, 24)
    assert [data for _, code, data in events[1:] if code == "r"] == ["120x40"]
    order = [code for _, code, data in events[1:] if code == "r" or "40 120" in data]
    assert order == ["r", "o"]


def test_a_flood_past_the_cap_neither_stops_the_command_nor_passes_the_cap(tmp_path: Path) -> None:
    cap = 100_000
    terminal = record(tmp_path, "sh", "-c", "yes 0123456789 | head -c 1000000; echo THE END; exit 4", cap=cap)
    assert terminal.end() == 4
    assert terminal.seen.rstrip().endswith(b"THE END")
    assert 0.9 * cap < (tmp_path / "1.raw").stat().st_size <= cap
    assert (tmp_path / "1.timing").stat().st_size <= cap
    assert meta(tmp_path)["cut"] is True
    events = lines(tmp_path)
    assert events[-1][1] == "m" and "cut" in events[-1][2]
    assert shown(events[1:]).replace("0123456789\r\n", "") in "0123456789\r\n"


def test_a_timing_log_past_the_cap_is_cut_too(tmp_path: Path) -> None:
    program = "import os, time\nfor n in range(400): os.write(1, b'x'); time.sleep(0.001)"
    assert record(tmp_path, sys.executable, "-c", program, cap=3000).end() == 0
    assert (tmp_path / "1.timing").stat().st_size <= 3000
    events = lines(tmp_path)
    assert shown(events[1:]) == "x" * 400
    assert events[-1][1] == "m"


def test_a_full_disk_does_not_stop_the_command(tmp_path: Path) -> None:
    for name in ("1.raw", "1.timing"):
        (tmp_path / name).symlink_to("/dev/full")
    terminal = record(tmp_path, "sh", "-c", 'yes 0123456789 | head -c 1000000; read x; echo "<$x>"; exit 6')
    terminal.send(b"word\n")
    assert terminal.end() == 6
    assert len(terminal.seen) > 1_000_000 and b"<word>" in terminal.seen
    assert meta(tmp_path)["exit"] == 6 and meta(tmp_path)["cut"] is True


def test_an_impossible_folder_or_no_script_means_unrecorded_not_failed(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    terminal = record(tmp_path / "file" / "r", "sh", "-c", "echo here; exit 3")
    assert terminal.end() == 3 and b"here" in terminal.seen
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in ("sh", "mkdir", "date", "stty", "env", "setpriv", "sed", "umask"):
        if where := shutil.which(tool):
            (tools / tool).symlink_to(where)
    terminal = record(tmp_path / "r", "sh", "-c", "echo here; exit 3", env={"PATH": str(tools), "TERM": "xterm"})
    assert terminal.end() == 3 and b"here" in terminal.seen
    assert not (tmp_path / "r").exists()
    done = subprocess.run(
        ["sh", RECORDER, str(tmp_path / "r"), "999", "cat"], input=b"no terminal", capture_output=True
    )
    assert done.stdout == b"no terminal"


def test_a_recorded_agent_costs_at_most_5_mb(tmp_path: Path) -> None:
    terminal = record(tmp_path, "sh", "-c", "seq 50000; echo READY; read x")
    terminal.until(b"READY")
    sums = {"Rss:": 0, "Pss:": 0}
    parts = session(terminal.pid)
    assert len(parts) == 3
    for pid in parts:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            words = line.split()
            if words[0] in sums:
                sums[words[0]] += int(words[1])
    terminal.send(b"\n")
    assert terminal.end() == 0
    # Pss is what they really take. Rss counts the pages of the C library, which all share, three times.
    assert sums["Pss:"] <= 5000, sums
    assert sums["Rss:"] <= 6000, sums


# ---- tmux


@pytest.fixture
def tmux(tmp_path: Path) -> Iterator[Any]:
    socket = tmp_path / "s"

    def run(*argv: str) -> str:
        return subprocess.run(
            ["tmux", "-S", str(socket), "-f", "/dev/null", *argv], check=True, capture_output=True, text=True
        ).stdout

    yield run
    subprocess.run(["tmux", "-S", str(socket), "kill-server"], capture_output=True)


DRAWING = r"""
printf '\033[2J\033[H\033[1;31mred\033[0m plain\n'
printf '\033[5;10Hfive ten \342\216\277 \303\274\n'
printf 'progress 10%%\rprogress 99%%\033[K\n'
i=0; while [ $i -lt 30 ]; do printf 'row %s\n' $i; i=$((i+1)); done
printf '\033[3;3H\033[2Kthird\033[10;1H\033[J'
printf '\033]0;title\007\033[7mREADY\033[0m'
read x; stty size; printf 'AGAIN'; read x
"""


def test_the_replayed_recording_is_the_screen_tmux_shows(tmp_path: Path, tmux: Any) -> None:
    folder = tmp_path / "r"
    tmux(
        "new-session",
        "-d",
        "-s",
        "a",
        "-x",
        "70",
        "-y",
        "20",
        "sh",
        RECORDER,
        str(folder),
        str(CAP),
        "sh",
        "-c",
        DRAWING,
    )
    tmux("set-option", "-t", "=a:", "window-size", "manual")
    until(lambda: "READY" in tmux("capture-pane", "-p", "-t", "=a:"))
    until(lambda: "READY" in shown(lines(folder)[1:]))

    def screen() -> str:
        return "\n".join(line.rstrip() for line in tmux("capture-pane", "-p", "-t", "=a:").splitlines()).rstrip()

    def replayed() -> str:
        return "\n".join(line.rstrip() for line in replay(lines(folder)).display).rstrip()

    assert replayed() == screen()
    assert "five" not in screen() and "third" in screen()
    tmux("resize-window", "-t", "=a:", "-x", "90", "-y", "20")
    until(lambda: tmux("display-message", "-p", "-t", "=a:", "#{pane_width}").strip() == "90")
    tmux("send-keys", "-t", "=a:", "Enter")
    until(lambda: "AGAIN" in shown(lines(folder)[1:]))
    until(lambda: "AGAIN" in screen())
    assert "20 90" in screen()
    assert [event[2] for event in lines(folder)[1:] if event[1] == "r"] == ["90x20"]
    assert replayed() == screen()


def test_a_pane_that_tmux_kills_leaves_no_process(tmp_path: Path, tmux: Any) -> None:
    folder = tmp_path / "r"
    argv = ("sh", RECORDER, str(folder), str(CAP), "sh", "-c", "echo pid=$$=; exec sleep 1000")
    tmux("new-session", "-d", "-s", "keep", "sleep", "1000")
    tmux("new-session", "-d", "-s", "a", *argv)
    until(lambda: "pid=" in tmux("capture-pane", "-p", "-t", "=a:"))
    found = re.search(r"pid=(\d+)=", tmux("capture-pane", "-p", "-t", "=a:"))
    assert found
    pane = int(tmux("display-message", "-p", "-t", "=a:", "#{pane_pid}"))
    tmux("kill-session", "-t", "=a")
    until(lambda: session(pane) == [] and session(int(found[1])) == [])
    assert meta(folder)["exit"] == 129


# ---- the conversion


def made(raw: bytes, timing: bytes | None, **told: Any) -> list[Any]:
    log = None if timing is None else io.BytesIO(timing)
    return [json.loads(line) for line in cast.convert(io.BytesIO(raw), log, told)]


HEAD = b'Script started on 2026-01-01 00:00:00+00:00 [COMMAND="x"]\n'
DONE = b'\nScript done on 2026-01-01 00:00:09+00:00 [COMMAND_EXIT_CODE="0"]\n'


def test_output_comes_with_its_time_and_characters_are_never_torn() -> None:
    text = "aü漢".encode()
    timing = b"H 0.0 TERM x\nO 1.5 2\nO 0.25 2\nO 1.0 2\nH 0.0 EXIT_CODE 0\n"
    events = made(HEAD + text + DONE, timing, cols=100, rows=30, start=1700000000, term="tmux-256color", end=1, exit=0)
    assert events[0] == {
        "version": 2,
        "width": 100,
        "height": 30,
        "timestamp": 1700000000,
        "env": {"TERM": "tmux-256color"},
    }
    assert events[1:] == [[1.5, "o", "a"], [1.75, "o", "ü"], [2.75, "o", "漢"]]


def test_without_timing_the_output_is_one_burst() -> None:
    assert made(HEAD + b"all of it" + DONE, None)[1:] == [[0.0, "o", "all of it"]]


def test_a_running_recording_is_not_called_cut_and_a_short_finished_one_is() -> None:
    assert made(HEAD + b"ab", b"O 1 2\nO 1 5\n", end=None)[1:] == [[1.0, "o", "ab"]]
    assert made(HEAD + b"ab", b"O 1 2\nO 1 5\n", end=9)[-1][1] == "m"


def test_a_torn_last_line_of_the_timing_is_tolerated() -> None:
    assert shown(made(HEAD + b"abc", b"O 1.0 2\nO 0.5 1")[1:]) == "abc"


def test_long_pauses_are_limited_on_request() -> None:
    lines = list(cast.convert(io.BytesIO(HEAD + b"ab"), io.BytesIO(b"O 500 1\nO 1 1\n"), {}, idle_limit=2))
    assert [json.loads(line)[0] for line in lines[1:]] == [2.0, 3.0]


def test_a_large_recording_is_streamed() -> None:
    class Endless(io.RawIOBase):
        left = 200 * 1024 * 1024
        most = 0

        def readable(self) -> bool:
            return True

        def readline(self, size: int | None = -1, /) -> bytes:
            return HEAD

        def read(self, size: int = -1, /) -> bytes:
            self.most = max(self.most, size)
            size = min(size, self.left)
            self.left -= size
            return b"x" * size

    import tracemalloc

    raw = Endless()
    tracemalloc.start()
    total = sum(len(line) for line in cast.convert(raw, io.BytesIO(b"O 1 100000000000\n"), {}))  # type: ignore[arg-type]
    assert tracemalloc.get_traced_memory()[1] < 5_000_000
    tracemalloc.stop()
    assert total > 200 * 1024 * 1024 and raw.left == 0


def test_joined_launches_have_a_marker_each_a_clear_screen_and_a_short_gap() -> None:
    first = cast.convert(io.BytesIO(HEAD + b"one"), io.BytesIO(b"O 3 3\n"), {"cols": 80, "rows": 24, "start": 1000})
    second = cast.convert(io.BytesIO(HEAD + b"two"), io.BytesIO(b"O 1 3\n"), {"cols": 90, "rows": 24, "start": 9000})
    joined = [json.loads(line) for line in cast.join([first, second])]
    assert joined[0]["width"] == 80 and joined[0]["timestamp"] == 1000
    assert joined[1:] == [
        [0.0, "m", "launch 1"],
        [3.0, "o", "one"],
        [5.0, "o", "\x1bc"],
        [5.0, "r", "90x24"],
        [5.0, "m", "launch 2"],
        [6.0, "o", "two"],
    ]


@given(raw=st.binary(), timing=st.binary(), told=st.binary())
def test_garbage_never_raises(raw: bytes, timing: bytes, told: bytes) -> None:
    for line in cast.convert(io.BytesIO(raw), io.BytesIO(timing), cast.meta(told)):
        json.loads(line)
        line.encode()
    cast.last_line(raw)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just("\ud800"),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["width", "height", "timestamp", "env"]), inner)
    ),
    max_leaves=8,
)


@given(
    st.lists(st.lists(json_values.map(json.dumps) | st.text(), max_size=6), max_size=3),
    st.dictionaries(st.sampled_from(["cols", "rows", "start", "end", "term", "cut"]), json_values),
)
def test_hostile_casts_and_metas_never_raise(casts: list[list[str]], told: dict[str, Any]) -> None:
    header = '{"version": 2, "width": 80, "height": 24}'
    for line in cast.join([[header, *each] for each in casts]):
        line.encode()
    for line in cast.convert(
        io.BytesIO(b"x"), io.BytesIO(b"O nan 1\nO inf 1\nO 1e999 9\nS 1 SIGWINCH ROWS=0 COLS=99999\n"), told
    ):
        json.loads(line, parse_constant=lambda name: pytest.fail(name))
        line.encode()


# ---- text


@pytest.mark.parametrize(
    ("tail", "line"),
    [
        (b"", ""),
        (b"\n \n\t\n", ""),
        (b"one\ntwo\n\n", "two"),
        (b"\x1b[1;31mred\x1b[0m\r\n", "red"),
        (b"10%\r50%\r99%", "99%"),
        (b"99%\r\x1b[K", "99%"),
        (b"tab\there", "tab here"),
        (b"spin |\b/\b-", "spin -"),
        (b"\x1b]0;title\x07text", "text"),
        (b"\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        (b"\x1b[5;1Hupper\x1b[9;1Hlower\x1b[1;1H\x1b[", "lower"),
        (b"partial \x1b[38;5;1", "partial"),
        (b"partial \x1b]0;never ends", "partial"),
        (b"\xbc\x8e tail of a character", "tail of a character"),
        ("\u202eevil\u200b\x9b31m c1\x07".encode(), "evil c1"),
        ("漢字 ⎿".encode(), "漢字 ⎿"),
        (b"\x1bPq#0;2;0;0;0\x1b\\after", "after"),
        (b"last words\r\n" + DONE, "last words"),
        (HEAD + b"first", "first"),
    ],
)
def test_the_last_line_is_what_a_person_would_read(tail: bytes, line: str) -> None:
    assert cast.last_line(tail) == line


@given(
    st.binary()
    | st.text().map(str.encode)
    | st.lists(st.sampled_from([b"\x1b", b"[", b"]", b"a", b"\r", b"\n", b"\b", b"0"])).map(b"".join)
)
def test_the_last_line_is_always_safe_in_a_table(tail: bytes) -> None:
    found = cast.last_line(tail)
    assert found.isprintable() and len(found) <= 1000
    assert all(c.isprintable() or c in "\n\t" for c in cast.strip(tail.decode("utf-8", "replace")))


def test_hostile_escapes_in_bulk_take_no_time() -> None:
    started = time.monotonic()
    for piece in (b"\x1b]", b"\x1b[", b"\x1b[1;", b"\x1bP", b"\r", b"\b", b"a\b", b"\x1b", b"Script done on ["):
        cast.last_line(piece * (200_000 // len(piece)))
    assert time.monotonic() - started < 10
