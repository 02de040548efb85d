"""Tests of terminals: third-party programs driven by keys and read from the screen, and their recordings."""

from __future__ import annotations

import json
import os
import pty
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from muster.tutorial import E2eSession, expect
from muster.tutorial.connect import new_recording, recorder_argv, recording_facts
from muster.tutorial.keys import arguments
from muster.tutorial.terminal import exists

from ..conftest import eventually
from .conftest import Maker, Session


def test_less_shows_a_file_searches_it_and_quits(session: Session) -> None:
    (session.e2e.work / "numbers").write_text("".join(f"number {n}\n" for n in range(1, 501)))
    less = session.e2e.terminal("less numbers", size=(60, 12))
    expect(less.screen).to_show("number 11")
    expect(less.screen).not_to_show("number 12")
    less.press("PageDown")
    expect(less.screen).to_show("number 22")
    less.type("/number 321\n")
    expect(less.screen).to_match(r"\Anumber 321$")
    less.press("q")
    expect(less).to_exit_with(0)
    assert session.finish() == []
    last = (session.record.folder / "recordings" / "less.txt").read_text()
    assert last.startswith("number 321\n"), "the screen before less cleared it"


@pytest.mark.skipif(not shutil.which("vim"), reason="no vim: apt-get install vim-tiny or vim")
def test_vim_edits_and_writes_a_file(session: Session) -> None:
    e2e = session.e2e
    vim = e2e.terminal("vim -u NONE -N note.txt", size=(70, 15))
    expect(vim.screen).to_show("~")
    vim.press("i")
    expect(vim.screen).to_show("-- INSERT --")
    vim.type("Grüße, $HOME `x`\nsecond line")
    vim.press("Esc")
    expect(vim.screen).not_to_show("-- INSERT --")
    vim.type(":wq\n")
    expect(vim).to_exit_with(0)
    assert (e2e.work / "note.txt").read_text() == "Grüße, $HOME `x`\nsecond line\n"


def test_a_repl_answers_can_be_interrupted_and_quits(session: Session) -> None:
    repl = session.e2e.terminal(f"{sys.executable} -q", name="repl")
    expect(repl.screen).to_show(">>>")
    repl.type("6 * 7\n")
    expect(repl.screen).to_match(r"^42$")
    repl.type("import time; print('a' + 'b'); time.sleep(1000)\n")
    expect(repl.screen).to_match(r"^ab$")
    repl.press("Ctrl-C")
    expect(repl.screen).to_show("KeyboardInterrupt")
    repl.press("Up")
    expect(repl.screen).to_match(r">>> import time.*sleep\(1000\)\Z")
    repl.press("Ctrl-U")
    repl.type("raise SystemExit(4)\n")
    expect(repl).to_exit_with(4)
    assert "~ keys: Ctrl-C\n" in session.text()


def test_a_terminal_is_recorded_with_its_resizes(session: Session) -> None:
    terminal = session.e2e.terminal(
        "stty size; trap 'stty size' WINCH; while :; do sleep 0.05; done", size=(50, 10), name="size"
    )
    expect(terminal.screen).to_show("10 50")
    terminal.resize(90, 30)
    expect(terminal.screen).to_show("30 90")
    assert session.finish() == []
    header, events = session.cast("size")
    assert (header["version"], header["width"], header["height"]) == (2, 50, 10)
    assert [event[2] for event in events if event[1] == "r"] == ["90x30"]
    shown = "".join(event[2] for event in events if event[1] == "o")
    assert "10 50\r\n" in shown and "30 90\r\n" in shown
    assert [event[0] for event in events] == sorted(event[0] for event in events)
    assert session.events("terminal")[0]["recording"] == "size"


def test_a_terminal_uses_the_environment_and_folder_of_the_test(e2e: E2eSession) -> None:
    (e2e.work / "sub").mkdir()
    command = 'echo "$HOME|$PWD|$A|${TMUX:-no tmux}|$MUSTER_E2E"; sleep 1000'
    e2e.env["LATER"] = "set later"
    command = command.replace("$A", "$A $LATER ${LANG:-no lang}")
    terminal = e2e.terminal(command, size=(200, 5), env={"A": "b c", "LANG": None}, cwd="sub")
    expect(terminal.screen).to_show(f"{e2e.home}|{e2e.work}/sub|b c set later no lang|no tmux|{e2e.env['MUSTER_E2E']}")


def test_two_terminals_of_the_same_name_have_two_recordings(session: Session) -> None:
    one = session.e2e.terminal("echo first; sleep 1000", name="same")
    two = session.e2e.terminal("echo second; sleep 1000", name="same")
    expect(one.screen).to_show("first")
    expect(two.screen).to_show("second")
    assert session.finish() == []
    folder = session.record.folder / "recordings"
    assert (folder / "same.txt").read_text() == "first\n" and (folder / "same-2.txt").read_text() == "second\n"
    assert session.record.facts["recordings"] == ["same", "same-2"]


def test_each_recording_name_is_reserved_once(tmp_path: Path) -> None:
    bases = [new_recording(str(tmp_path), name) for name in ("a", "a", "a/../b c", "", "-")]
    assert [os.path.basename(base) for base in bases] == ["a", "a-2", "a-..-b-c", "recording", "recording-2"]
    assert {os.path.dirname(base) for base in bases} == {str(tmp_path)}


def test_a_failed_screen_expectation_shows_the_screen(session: Session) -> None:
    terminal = session.e2e.terminal("echo something else; sleep 1000", timeout=0.5)
    expect(terminal.screen).to_show("something")
    with pytest.raises(AssertionError) as raised:
        expect(terminal.screen).to_show("nothing")
    assert "expected the screen to show 'nothing' within 0.5 s\n  $ echo something else; sleep 1000" in str(
        raised.value
    )
    assert "the screen was:\n  something else" in str(raised.value)


def test_expectations_do_not_wait_for_a_program_that_has_exited(session: Session) -> None:
    terminal = session.e2e.terminal("echo bye; exit 3", timeout=600)
    expect(terminal).to_exit_with(3)
    with pytest.raises(AssertionError, match="the program exited with 3"):
        expect(terminal.screen).to_show("nothing")
    with pytest.raises(AssertionError, match="expected the program to exit with 0 within 600 s\nit exited with 3"):
        expect(terminal).to_exit_with(0)


def test_a_running_program_gets_sighup_at_the_end_of_the_test(session: Session) -> None:
    stubborn = session.e2e.terminal("trap '' HUP TERM; echo up; while :; do sleep 0.05; done")
    expect(stubborn.screen).to_show("up")
    polite = session.e2e.terminal("trap 'echo hung up > why; exit' HUP; echo up; while :; do sleep 0.05; done")
    expect(polite.screen).to_show("up")
    assert session.finish() == []
    assert (session.e2e.work / "why").read_text() == "hung up\n"
    assert not session.sandbox.leaks()


def test_a_command_that_does_not_exist_exits_with_127(e2e: E2eSession) -> None:
    terminal = e2e.terminal("no-such-program-here")
    expect(terminal).to_exit_with(127)
    expect(terminal.screen).to_show("command not found")


def test_a_recording_whose_recorder_was_killed_is_a_problem(session: Session) -> None:
    terminal = session.e2e.terminal("echo up; sleep 1000", name="killed")
    expect(terminal.screen).to_show("up")
    facts = json.loads((session.record.folder / "recordings" / "killed.json").read_text())
    os.kill(facts["pid"], signal.SIGKILL)
    eventually(lambda: not exists(facts["pid"]))
    problems = session.finish()
    assert problems and "killed" in problems[0]


def test_a_recording_that_cannot_be_written_is_a_problem(session: Session) -> None:
    recordings = session.record.folder / "recordings"
    (recordings / "full.cast").mkdir()
    terminal = session.e2e.terminal("echo up; sleep 1000", name="full")
    expect(terminal.screen).to_show("up")
    assert any("cannot record" in problem for problem in session.finish())


def test_the_program_is_ended_when_the_test_process_is_gone(make: Maker) -> None:
    session = make()
    (session.sandbox.control / "pid").write_text("999999999")
    terminal = session.e2e.terminal("echo up; sleep 1000")
    assert terminal.wait(20) is not None


#: Prints the bytes of each key that it reads in hex, one key per line.
READER = """
import os, select, tty
tty.setraw(0)
os.write(1, b"reading\\r\\n")
while True:
    data = os.read(0, 4096)
    while select.select([0], [], [], 0.02)[0]:
        data += os.read(0, 4096)
    os.write(1, f"{data.hex()}.\\r\\n".encode())
"""
ARROWS = {"Up": "A", "Down": "B", "Right": "C", "Left": "D"}
#: Names of keys, and the bytes that a program in a terminal reads for them.
KEYS = {
    "Enter": "\r",
    "Return": "\r",
    "Esc": "\x1b",
    "escape": "\x1b",
    "Tab": "\t",
    "Shift-Tab": "\x1b[Z",
    "S-Tab": "\x1b[Z",
    "BackTab": "\x1b[Z",
    "Space": " ",
    "Backspace": "\x7f",
    "Delete": "\x1b[3~",
    "Del": "\x1b[3~",
    "Insert": "\x1b[2~",
    "Ins": "\x1b[2~",
    "Home": "\x1b[1~",
    "End": "\x1b[4~",
    "PageUp": "\x1b[5~",
    "PgUp": "\x1b[5~",
    "Page_Up": "\x1b[5~",
    "Page-Up": "\x1b[5~",
    "PageDown": "\x1b[6~",
    "PgDn": "\x1b[6~",
    "PgDown": "\x1b[6~",
    **{key: f"\x1b[{code}" for key, code in ARROWS.items()},
    **{f"Arrow{key}": f"\x1b[{code}" for key, code in ARROWS.items()},
    **{f"{key}Arrow": f"\x1b[{code}" for key, code in ARROWS.items()},
    **{f"Shift-{key}": f"\x1b[1;2{code}" for key, code in ARROWS.items()},
    **{f"Ctrl-{key}": f"\x1b[1;5{code}" for key, code in ARROWS.items()},
    **{f"Alt+{key}": f"\x1b[1;3{code}" for key, code in ARROWS.items()},
    "Ctrl-Shift-Right": "\x1b[1;6C",
    "Ctrl-Delete": "\x1b[3;5~",
    "Ctrl-Home": "\x1b[1;5H",
    "Shift-End": "\x1b[1;2F",
    **{f"F{number}": f"\x1bO{code}" for number, code in zip(range(1, 5), "PQRS", strict=True)},
    **{
        f"F{number}": f"\x1b[{code}~"
        for number, code in zip(range(5, 13), (15, 17, 18, 19, 20, 21, 23, 24), strict=True)
    },
    "Shift-F5": "\x1b[15;2~",
    "F13": "\x1b[1;2P",
    "F17": "\x1b[15;2~",
    **{f"Ctrl-{letter}": chr(ord(letter) - 64) for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"},
    "ctrl+c": "\x03",
    "C-c": "\x03",
    "Control-c": "\x03",
    "Ctrl-Space": "\0",
    "Ctrl-@": "\0",
    "Ctrl-[": "\x1b",
    "Ctrl-\\": "\x1c",
    "Ctrl-]": "\x1d",
    "Ctrl-^": "\x1e",
    "Ctrl-_": "\x1f",
    "Ctrl-/": "\x1f",
    "Ctrl--": "\x1f",
    "Ctrl-Backspace": "\x08",
    "Alt-x": "\x1bx",
    "Alt-X": "\x1bX",
    "Alt-Shift-x": "\x1bX",
    "M-x": "\x1bx",
    "Meta-;": "\x1b;",
    "Alt-Enter": "\x1b\r",
    "Alt-Backspace": "\x1b\x7f",
    "Ctrl-Alt-x": "\x1b\x18",
    "Shift-a": "A",
    **{char: char for char in "aZ0;:'\"\\-+#$~`é雪{ "},
}


def test_every_key_sends_the_bytes_of_a_real_terminal(e2e: E2eSession) -> None:
    (e2e.work / "reader.py").write_text(READER)
    terminal = e2e.terminal(f"{sys.executable} reader.py", size=(40, 4 + len(KEYS)))
    expect(terminal.screen).to_show("reading")
    read = {}
    for number, key in enumerate(KEYS, 2):
        terminal.press(key)
        assert terminal.screen.wait(lambda shown, count=number: shown.count("\n") + 1 >= count, 10), key
        read[key] = bytes.fromhex(terminal.screen.lines[number - 1].rstrip(".")).decode()
    assert read == KEYS


@pytest.mark.parametrize(
    "key", ["Shift-Enter", "Ctrl-Enter", "Ctrl-Tab", "Ctrl-1", "Ctrl-;", "Ctrl-Shift-a", "Shift-1"]
)
def test_a_key_that_terminals_cannot_send_is_rejected(key: str) -> None:
    with pytest.raises(ValueError, match="terminals have no code for"):
        arguments(key)


@pytest.mark.parametrize("text", [";", "echo a;", "a\\;", ";;", "x" * 999 + ";" + "y", "-l;", "~;"])
def test_text_is_typed_with_its_semicolons(e2e: E2eSession, text: str) -> None:
    terminal = e2e.terminal("cat > typed", size=(80, 30))
    terminal.type(f"{text}\n")
    terminal.press("Ctrl-D")
    expect(terminal).to_exit_with(0)
    assert (e2e.work / "typed").read_text() == f"{text}\n"


def test_keys_pressed_before_the_recorder_started_are_not_lost(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    os.write(ours, b"early\n")
    try:
        argv = [
            *recorder_argv(str(tmp_path / "r"), "read"),
            "--",
            "sh",
            "-c",
            f"read line; echo $line > {tmp_path}/said",
        ]
        with subprocess.Popen(argv, stdin=theirs, stdout=theirs, stderr=subprocess.PIPE) as recorder:
            os.close(theirs)
            try:
                eventually(lambda: recording_facts(str(tmp_path / "r")).get("ready"))
                assert recorder.wait(20) == 0
            finally:
                recorder.kill()
    finally:
        os.close(ours)
    assert (tmp_path / "said").read_text() == "early\n"


@pytest.mark.parametrize("key", ["Entr", "hello", "Ctrl-", "Foo-x", ""])
def test_an_unknown_key_is_an_error_that_names_valid_ones(key: str) -> None:
    with pytest.raises(ValueError, match="type\\(\\) sends text"):
        arguments(key)


def test_text_matches_across_wrapped_rows(e2e: E2eSession) -> None:
    text = "a sentence that is longer than the rows of this narrow terminal"
    terminal = e2e.terminal(f"echo '{text}'; echo; sleep 1000", size=(20, 10))
    expect(terminal.screen).to_show(text)
    expect(terminal.screen).to_match(r"^a sentence .* terminal$")
    assert text in terminal.screen
    expect(terminal.screen).to_show("a sentence that is l\nonger"), "as the rows are, too"
    with pytest.raises(AssertionError, match="not to show"):
        expect(terminal.screen).not_to_show(text, timeout=0.1)


@pytest.mark.parametrize("columns", [80, 12])
def test_typed_text_before_a_mark_does_not_count_as_output(e2e: E2eSession, columns: int) -> None:
    shell = e2e.terminal("PS1='雪 > ' bash --norc --noprofile", size=(columns, 10))
    expect(shell.screen).to_show("雪 >")
    for _ in range(12):  # more rows than the screen has
        mark = shell.enter("printf 'do%s\\n' ne")
        expect(shell.since(mark)).to_match(r"^done$")
        expect(shell.since(mark)).not_to_show("printf")
        expect(shell.since(mark)).to_match(r"^雪 >$")
    mark = shell.mark()
    expect(shell.since(mark)).to_be_empty()
    with pytest.raises(AssertionError, match="expected the output since the mark to show 'done' within 0.2 s"):
        expect(shell.since(mark)).to_show("done", timeout=0.2)
    assert "done" in shell.screen
    shell.resize(60, 10)
    with pytest.raises(ValueError, match="resized"):
        expect(shell.since(mark)).to_show("x", timeout=0)


#: Reads a line as prompt_toolkit does: the rest of a line that is too long continues in the next row, indented.
WRAPS = """
import os, tty
tty.setraw(0)
os.write(1, b"name: ")
line = ""
while not line.endswith("\\r"):
    line += os.read(0, 1).decode()
    os.write(1, (line[-1] + ("\\r\\n      " if len(line) % 10 == 0 else "")).encode())
os.write(1, f"\\r\\nhello {line[:-1]}\\r\\n".encode())
"""


def test_enter_recognises_the_echo_of_a_program_that_wraps_its_input(e2e: E2eSession) -> None:
    (e2e.work / "wraps.py").write_text(WRAPS)
    terminal = e2e.terminal(f"{sys.executable} wraps.py", size=(40, 10))
    expect(terminal).to_contain("name:")
    mark = terminal.enter("somebody with a long name")
    expect(terminal.since(mark)).to_equal("\nhello somebody with a long name")
    expect(terminal).to_exit_with(0)


def test_enter_fails_if_the_line_is_not_echoed(e2e: E2eSession) -> None:
    terminal = e2e.terminal("stty -echo; echo ready; read x; echo got $x", timeout=1)
    expect(terminal).to_contain("ready")
    with pytest.raises(AssertionError, match="expected the output since the mark to show 'quiet'"):
        terminal.enter("quiet")


def test_the_alternate_screen_counts_as_output_since_the_mark(e2e: E2eSession) -> None:
    (e2e.work / "numbers").write_text("".join(f"number {n}\n" for n in range(1, 100)))
    shell = e2e.terminal("PS1='> ' bash --norc --noprofile", size=(40, 8))
    expect(shell.screen).to_show(">")
    shell.type("seq 30\n")
    expect(shell.screen).to_match("^30$")
    mark = shell.mark()
    shell.type("less numbers\n")
    expect(shell.since(mark)).to_show("number 3")
    shell.press("q")
    expect(shell.since(mark)).to_match(r"^> ?\Z")


def test_rows_that_scrolled_off_are_in_the_scrollback(e2e: E2eSession) -> None:
    terminal = e2e.terminal("seq 5000; sleep 1000", size=(40, 10))
    expect(terminal.screen).to_match("^5000$")
    expect(terminal.screen).not_to_match("^4000$")
    expect(terminal.scrollback).to_match("^4000$")
    assert terminal.scrollback.lines[:3] == ["1", "2", "3"]


def test_the_cursor_position_can_be_read_and_waited_for(e2e: E2eSession) -> None:
    terminal = e2e.terminal(r"printf 'one\ntwo: '; read x; printf '\033[?25l\033[2;3H'; sleep 1000")
    expect(terminal).to_have_cursor_at(5, 1)
    assert terminal.screen.cursor == (5, 1, True)
    terminal.press("Enter")
    expect(terminal).to_have_cursor_at(2, 1)
    assert not terminal.screen.cursor.visible
    with pytest.raises(AssertionError, match="cursor at column 7, row 7 within 0.1 s\nit is at column 2, row 1"):
        expect(terminal).to_have_cursor_at(7, 7, timeout=0.1)


def test_styles_can_be_expected_by_name(e2e: E2eSession) -> None:
    printed = (
        r"\033[1;31m3 failed\033[0m, \033[32m5 passed\033[0m\n\033[4;7munder\033[24;27m plain\n"
        r"\033[38;5;208mamber\033[48;2;1;2;255m deep\033[39;49m\033[91;44mloud\033[0m 3 failed\n"
    )
    terminal = e2e.terminal(f"printf '{printed}'; sleep 1000")
    screen = terminal.screen
    expect(screen).to_show("3 failed", style="bold red")
    expect(screen).to_show("5 passed", style="green")
    expect(screen).to_show("under", style="underline reverse")
    expect(screen).to_show("deep", style="color208 on #0102ff")
    expect(screen).to_show("loud", style="bright-red on blue")
    assert screen.style_of("3 failed") == {"bold", "red"} and screen.style_of("plain") == frozenset()
    assert screen.style_of("failed, 5") == frozenset(), "the characters have no style in common"
    assert (", ", frozenset()) in screen.styles[0]
    with pytest.raises(AssertionError, match="to show '5 passed' as bold red within 0.1 s\nit is green"):
        expect(screen).to_show("5 passed", style="bold red", timeout=0.1)
    with pytest.raises(AssertionError, match="it is not shown"):
        expect(screen).to_show("nothing", style="red", timeout=0.1)
    with pytest.raises(ValueError, match="unknown style 'rad'"):
        expect(screen).to_show("5 passed", style="rad")


@pytest.mark.parametrize("echo", ["echo", "-echo"])
@pytest.mark.parametrize("secret", ["hunter2-quite-long", 'q"\\;x', "12"])
def test_a_secret_that_was_typed_is_in_no_artifact(session: Session, secret: str, echo: str) -> None:
    e2e = session.e2e
    script = f"stty {echo}; printf 'PIN: '; IFS= read -r pin; printf '%s' \"$pin\" > got; echo \"got $pin\"; sleep 1000"
    terminal = e2e.terminal(script, size=(11, 8), name="login")
    expect(terminal.screen).to_show("PIN:")
    terminal.type(f"{secret}\n", secret=True)
    expect(terminal.screen).to_show(f"got {secret}")
    assert (e2e.work / "got").read_text() == secret
    e2e.run(f"echo {secret}x")
    with pytest.raises(AssertionError) as raised:
        expect(terminal.screen).to_show("nothing", timeout=0)
    session.record.save(message=session.record.hide(str(raised.value)))
    assert session.finish() == []
    assert "~ keys: ****\n" in session.text()
    files = [path for path in session.record.folder.rglob("*") if path.is_file()]
    assert len(files) >= 6
    for path in files:
        text = path.read_text()
        if path.suffix == ".cast":
            header, *events = map(json.loads, text.splitlines())
            text = header["env"]["TERM"] + "".join(event[2] for event in events)
            assert "got ****" in text
        elif path.name == "login.json":
            text = json.loads(text)["command"]
        elif path.suffix == ".jsonl":
            text = "".join(str(json.loads(line).get("text")) for line in text.splitlines())
        elif path.name == "test.json":
            text = json.loads(text)["message"]
        assert secret not in text.replace("\n", ""), path.name


def test_a_secret_that_was_typed_is_on_no_command_line(e2e: E2eSession, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = e2e.terminal("cat > got")
    seen: list[str] = []
    run = subprocess.run

    def spy(argv: list[str], *more: object, **options: object) -> object:
        seen.extend(argv)
        return run(argv, *more, **options)  # type: ignore[call-overload]

    monkeypatch.setattr("muster.tutorial.terminal.subprocess.run", spy)
    terminal.type("hunter2\n", secret=True)
    terminal.press("Ctrl-D")
    expect(terminal).to_exit_with(0)
    assert (e2e.work / "got").read_text() == "hunter2\n"
    assert seen and not any("hunter2" in word for word in seen)


def test_an_exit_is_reported_after_the_terminal_has_drawn_all_earlier_output(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    base = str(tmp_path / "r")
    try:
        argv = [*recorder_argv(base, "echo"), "--", "echo", "last words"]
        with subprocess.Popen(argv, stdin=theirs, stdout=theirs, stderr=subprocess.PIPE) as recorder:
            os.close(theirs)
            try:
                shown = b""
                while b"\x1b[6n" not in shown:  # the request for the cursor position
                    shown += os.read(ours, 1024)
                assert b"last words" in shown and recording_facts(base)["ended"] is None
                os.write(ours, b"\x1b[2;1R")
                assert recorder.wait(20) == 0
                assert recording_facts(base)["ended"] is not None
            finally:
                recorder.kill()
    finally:
        os.close(ours)
    assert "6n" not in (tmp_path / "r.cast").read_text()


def test_a_hundred_terminals_receive_keys_sent_right_after_their_start(e2e: E2eSession) -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        try:
            terminals = []
            for number in range(100):
                terminal = e2e.terminal(f"read line; echo $line > said-{number}")
                terminal.type(f"hello {number};\n")
                terminals.append(terminal)
            for number, terminal in enumerate(terminals):
                expect(terminal).to_exit_with(0)
                assert (e2e.work / f"said-{number}").read_text() == f"hello {number};\n"
        finally:
            busy.kill()
