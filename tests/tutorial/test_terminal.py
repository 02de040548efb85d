"""Terminal programs that nobody here wrote, driven by keys and looked at on a screen, and their recordings."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from pathlib import Path

import pytest

from muster.tutorial import E2eSession, expect
from muster.tutorial.connect import claim
from muster.tutorial.terminal import exists, key_name

from ..conftest import eventually
from .conftest import Maker, Session


def test_less_shows_a_file_searches_it_and_is_left(session: Session) -> None:
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
    assert last.startswith("number 321\n"), "what it showed before it cleared its screen"


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


def test_a_repl_answers_is_interrupted_and_left(session: Session) -> None:
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


def test_the_environment_and_folder_of_a_terminal_are_the_tests(e2e: E2eSession) -> None:
    (e2e.work / "sub").mkdir()
    command = 'echo "$HOME|$PWD|$A|${TMUX:-no tmux}|$MUSTER_E2E"; sleep 1000'
    e2e.env["LATER"] = "set later"
    command = command.replace("$A", "$A $LATER ${LANG:-no lang}")
    terminal = e2e.terminal(command, size=(200, 5), env={"A": "b c", "LANG": None}, cwd="sub")
    expect(terminal.screen).to_show(f"{e2e.home}|{e2e.work}/sub|b c set later no lang|no tmux|{e2e.env['MUSTER_E2E']}")


def test_two_terminals_of_one_name_have_two_recordings(session: Session) -> None:
    one = session.e2e.terminal("echo first; sleep 1000", name="same")
    two = session.e2e.terminal("echo second; sleep 1000", name="same")
    expect(one.screen).to_show("first")
    expect(two.screen).to_show("second")
    assert session.finish() == []
    folder = session.record.folder / "recordings"
    assert (folder / "same.txt").read_text() == "first\n" and (folder / "same-2.txt").read_text() == "second\n"
    assert session.record.facts["recordings"] == ["same", "same-2"]


def test_names_of_recordings_are_claimed_once_each(tmp_path: Path) -> None:
    bases = [claim(str(tmp_path), name) for name in ("a", "a", "a/../b c", "", "-")]
    assert [os.path.basename(base) for base in bases] == ["a", "a-2", "a-..-b-c", "recording", "recording-2"]
    assert {os.path.dirname(base) for base in bases} == {str(tmp_path)}


def test_a_screen_that_never_shows_it_fails_with_what_it_showed(session: Session) -> None:
    terminal = session.e2e.terminal("echo something else; sleep 1000", timeout=0.5)
    expect(terminal.screen).to_show("something")
    with pytest.raises(AssertionError) as raised:
        expect(terminal.screen).to_show("nothing")
    assert "expected the screen to show 'nothing' within 0.5 s\n  $ echo something else; sleep 1000" in str(
        raised.value
    )
    assert "the screen was:\n  something else" in str(raised.value)


def test_a_program_that_ended_is_not_waited_for(session: Session) -> None:
    terminal = session.e2e.terminal("echo bye; exit 3", timeout=600)
    expect(terminal).to_exit_with(3)
    with pytest.raises(AssertionError, match="the program has ended with 3"):
        expect(terminal.screen).to_show("nothing")
    with pytest.raises(AssertionError, match="a program that exits with 0; it exited with 3"):
        expect(terminal).to_exit_with(0)


def test_the_end_of_the_test_hangs_up_on_the_program(session: Session) -> None:
    stubborn = session.e2e.terminal("trap '' HUP TERM; echo up; while :; do sleep 0.05; done")
    expect(stubborn.screen).to_show("up")
    polite = session.e2e.terminal("trap 'echo hung up > why; exit' HUP; echo up; while :; do sleep 0.05; done")
    expect(polite.screen).to_show("up")
    assert session.finish() == []
    assert (session.e2e.work / "why").read_text() == "hung up\n"
    assert not session.place.leaks()


def test_a_command_that_does_not_exist_is_seen(e2e: E2eSession) -> None:
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


def test_the_program_goes_when_the_test_process_is_gone(make: Maker) -> None:
    session = make()
    (session.place.control / "pid").write_text("999999999")
    terminal = session.e2e.terminal("echo up; sleep 1000")
    assert terminal.wait(20) is not None


@pytest.mark.parametrize(
    ("key", "name"),
    [
        *(
            ("Enter", "Enter"),
            ("esc", "Escape"),
            ("Ctrl-C", "C-c"),
            ("Alt-x", "M-x"),
            ("PageDown", "NPage"),
            ("F5", "F5"),
        ),
        *(("é", "é"), ("-", "-"), ("Ctrl-Alt-Delete", "C-M-DC"), ("C-x", "C-x"), ("Backspace", "BSpace")),
        ("Shift-Tab", "S-Tab"),
    ],
)
def test_keys_have_the_names_that_people_use(key: str, name: str) -> None:
    assert key_name(key) == name


@pytest.mark.parametrize("key", ["Entr", "hello", "Ctrl-", "Foo-x", ""])
def test_a_key_that_there_is_not_is_an_error_that_names_some(key: str) -> None:
    with pytest.raises(ValueError, match="type\\(\\) takes text"):
        key_name(key)
