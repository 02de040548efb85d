"""Tests of running commands in a test: results, transcripts, and programs that misbehave."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from muster.tutorial import E2eSession, expect, process, transcript
from muster.tutorial.masks import Secrets, StreamHider

from ..conftest import eventually
from .conftest import Maker, Session


def test_a_result_has_both_streams_the_exit_code_and_the_lines_in_order(e2e: E2eSession) -> None:
    # The pauses make the order certain, because the streams are two separate pipes.
    result = e2e.run("echo one; sleep 0.1; echo two >&2; sleep 0.1; printf three; exit 7")
    assert (result.stdout, result.stderr, result.exit_code) == ("one\nthree", "two\n", 7)
    assert [(line.stream, line.text) for line in result.lines] == [("out", "one\n"), ("err", "two\n"), ("out", "three")]
    assert 0.2 <= result.duration < 30 and result.timed_out is None


def test_the_transcript_has_the_form_of_the_case_study(session: Session) -> None:
    session.e2e.run("echo out; sleep 0.1; echo err >&2; exit 3", comment="say\nsomething")
    session.e2e.run("cat <<END\nx\nEND")
    assert session.text() == (
        "# say\n# something\n$ echo out; sleep 0.1; echo err >&2; exit 3\nout\n! err\n? 3\n"
        "$ cat <<END\n> x\n> END\nx\n? 0\n"
    )


def test_the_jsonl_transcript_has_the_same_content(session: Session) -> None:
    session.e2e.write_tutorial_block("\n    # Say it.\n    echo out\n")
    session.e2e.run("echo out", comment="say it")
    events = session.events()
    assert [event["kind"] for event in events] == ["begin", "block", "comment", "command", "out", "exit"]
    assert events[1]["text"] == "# Say it.\necho out" == session.record.facts["blocks"][0]
    assert events[4]["text"] == "out\n" and events[5]["code"] == 0
    times = [event["t"] for event in events]
    assert times == sorted(times)


def test_output_is_on_disk_while_the_command_runs(session: Session) -> None:
    session.e2e.start("echo now; sleep 1000", ready_when="now")
    assert "now\n" in session.text() and session.events("out")


def test_run_passes_input_environment_and_folder(e2e: E2eSession) -> None:
    (e2e.work / "sub").mkdir()
    result = e2e.run('cat; echo "$A-${HOME:-none}"; pwd', input="in\n", env={"A": "b", "HOME": None}, cwd="sub")
    assert result.stdout == f"in\nb-none\n{e2e.work}/sub\n"
    assert e2e.run("cat").stdout == "", "without input it is empty, not a terminal"
    assert e2e.run("true", input="x" * 300_000).exit_code == 0, "a program need not read its input"


def test_each_run_starts_a_new_shell(e2e: E2eSession) -> None:
    e2e.run("cd /; X=1; export X")
    assert e2e.run('pwd; echo "${X:-}"').stdout == f"{e2e.work}\n\n"


def test_the_exit_code_of_a_signal_is_128_plus_its_number(e2e: E2eSession) -> None:
    assert e2e.run("kill -9 $$").exit_code == 137


def test_a_command_that_times_out_is_ended_with_all_it_forked_and_keeps_its_output(session: Session) -> None:
    result = session.e2e.run("echo before; sleep 1000 & echo $!; echo $$; wait", timeout=0.5)
    before, *pids = result.stdout.splitlines()
    assert before == "before" and result.timed_out == 0.5 and result.exit_code == 143
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert session.text().endswith("? 143 (timed out after 0.5 s)\n")
    with pytest.raises(AssertionError, match="did not exit within 0.5 s and was killed"):
        expect(result).to_fail()
    expect(result).to_time_out()


def test_a_command_that_ignores_sigterm_is_killed(e2e: E2eSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process.Command.end, "__defaults__", (0.3,))
    result = e2e.run("trap '' TERM; echo ready; while :; do sleep 0.05; done", timeout=0.5)
    assert result.exit_code == 137 and result.stdout == "ready\n"


def test_a_command_that_forks_a_daemon_does_not_block_the_test(session: Session) -> None:
    started = time.monotonic()
    result = session.e2e.run("(while :; do sleep 0.2; done) & echo started")
    assert result.stdout == "started\n" and result.exit_code == 0 and result.timed_out is None
    assert time.monotonic() - started < 30, "it goes on for ever; the test must not"
    assert len([leak for leak in session.sandbox.leaks() if leak.startswith("process")]) >= 1


def test_output_of_a_daemon_still_reaches_the_transcript(session: Session) -> None:
    fifo = session.e2e.work / "go"
    os.mkfifo(fifo)
    session.e2e.run("(cat go >/dev/null; echo late) & echo now")
    fifo.write_text("x")
    eventually(lambda: "late\n" in session.text())


def test_binary_output_is_kept_and_its_control_characters_are_not_shown(session: Session) -> None:
    result = session.e2e.run(r"printf '\377\000\033[2Jx\n'; printf '\033[31mred\033[0m\n'")
    assert result.stdout_bytes == b"\xff\x00\x1b[2Jx\n\x1b[31mred\x1b[0m\n"
    assert "\ufffd" in result.stdout
    assert "\x1b" not in session.text() and "\0" not in session.text() and "red\n" in session.text()
    assert session.events("out")[1]["text"] == "\x1b[31mred\x1b[0m\n", "colours are kept for the page"


def test_a_gigabyte_of_output_is_read_without_keeping_it_in_memory(session: Session) -> None:
    result = session.e2e.run("head -c 1073741824 /dev/zero | tr '\\0' x; echo; echo end", timeout=110)
    assert result.exit_code == 0
    kept = process.HEAD + process.TAIL
    assert result.left_out == 1073741824 + len("\nend\n") - kept
    assert len(result.stdout) < kept + 100 and result.stdout.endswith("x\nend\n")
    assert "bytes left out" in result.stdout
    assert session.record.folder.joinpath("transcript.txt").stat().st_size < 1 << 20
    with pytest.raises(AssertionError, match="some of the output was not kept"):
        expect(result.stdout).to_contain("nowhere")


def test_too_many_lines_are_cut_in_the_transcript_with_a_note(session: Session) -> None:
    result = session.e2e.run("yes | head -n 400000; echo end")
    assert result.stdout.count("\n") == 400001
    assert len(result.lines) == transcript.MAX_LINES
    assert "the rest of this output is not shown" in session.text()
    assert session.text().endswith("? 0\n")


def test_start_waits_until_the_program_is_ready_and_finish_ends_it(session: Session) -> None:
    server = session.e2e.start("echo starting; sleep 0.2; echo listening on 7; sleep 1000", ready_when="listening")
    assert server.running and "listening on 7" in server.stdout
    expect(server).to_print("starting")
    session.finish()
    assert not server.running and not session.sandbox.leaks()
    assert "$ echo starting; sleep 0.2; echo listening on 7; sleep 1000 &\n" in session.text()


def test_ready_when_may_be_a_pattern_or_a_function(e2e: E2eSession) -> None:
    e2e.start("echo port 4711; sleep 1000", ready_when=re.compile(r"port \d+"))
    e2e.start("sleep 0.1; touch there; sleep 1000", ready_when=(e2e.work / "there").exists)
    assert (e2e.work / "there").exists()


def test_a_background_program_that_ends_before_it_is_ready_fails_with_its_output(e2e: E2eSession) -> None:
    with pytest.raises(AssertionError, match="ended before it was ready") as raised:
        e2e.start("echo cannot listen >&2; exit 1", ready_when="listening", timeout=20)
    assert "! cannot listen" in str(raised.value)


def test_a_background_program_that_is_never_ready_is_ended(session: Session) -> None:
    with pytest.raises(AssertionError, match="not ready within 0.3 s"):
        session.e2e.start("sleep 1000", ready_when="listening", timeout=0.3)
    assert not session.sandbox.leaks()


def test_a_background_program_can_be_stopped_and_waited_for(e2e: E2eSession) -> None:
    result = e2e.start("trap 'echo bye; exit 5' TERM; echo up; while :; do sleep 0.05; done", ready_when="up").stop()
    assert result.exit_code == 5 and result.stdout == "up\nbye\n"
    assert e2e.start("echo once").wait().stdout == "once\n"


def test_a_background_program_that_prints_a_lot_does_not_block(e2e: E2eSession) -> None:
    background = e2e.start("head -c 1000000 /dev/zero | tr '\\0' x; touch done; sleep 1000")
    eventually((e2e.work / "done").exists)
    assert background.running


def test_masks_hide_times_ids_and_the_tests_own_paths(e2e: E2eSession) -> None:
    e2e.add_mask(r"build-\d+", "<build>")
    text = f"2026-01-02T03:04:05Z took 12.5ms in {e2e.work}/x of {e2e.home}, build-17, 3f2a91c at 09:08:07"
    result = e2e.run(f"echo '{text}'; echo 8f14e45f-ceea-467f-a9c3-1f2d3c4b5a69 >&2")
    assert result.masked.stdout == "<time> took <duration> in <work>/x of <home>, <build>, <id> at <time>\n"
    assert result.masked.stderr == "<uuid>\n"
    assert sorted(result.masked.output.splitlines()) == sorted([result.masked.stdout.strip(), "! <uuid>"])


def test_two_runs_of_a_command_are_equal_when_masked(e2e: E2eSession) -> None:
    command = 'date +%FT%T.%N; head -c 4 /dev/urandom | od -An -tx1 | tr -d " " | sed s/^/a1/; mktemp'
    e2e.add_mask(r"tmp\.\w+", "<tmp>")
    one, two = e2e.run(command), e2e.run(command)
    assert one.stdout != two.stdout
    assert one.masked.stdout == two.masked.stdout


def test_secrets_are_in_no_artifact(make: Maker) -> None:
    session = make(secrets=["s3cret-value", "two\nlines-of-it"])
    session.e2e.env["TOKEN"] = "s3cret-value"
    result = session.e2e.run(
        "echo $TOKEN; printf 's3cret-'; sleep 0.1; echo value; echo lines-of-it >&2; # s3cret-value"
    )
    assert "s3cret-value" in result.stdout, "the test itself sees it"
    terminal = session.e2e.terminal("printf 'a s3cr'; sleep 0.2; printf 'et-value b\\n'; echo $TOKEN; sleep 1000")
    expect(terminal.screen).to_show("value b")
    terminal.type("s3cret-value")
    assert session.finish() == []
    for path in session.record.folder.rglob("*"):
        if path.is_file():
            assert b"s3cret-value" not in path.read_bytes(), path
            assert b"lines-of-it" not in path.read_bytes(), path
    assert "****" in session.text()


def test_killing_the_test_process_loses_at_most_the_last_line(tmp_path: Path) -> None:
    program = tmp_path / "run.py"
    program.write_text(
        "import os, pathlib, sys\n"
        "from muster.tutorial import E2eSession, artifacts\n"
        "from muster.tutorial.isolation import Sandbox\n"
        "record = artifacts.Record(pathlib.Path(sys.argv[1]), 'a::b', 'a', 1)\n"
        "sandbox = Sandbox(os.environ)\n"
        "print(sandbox.root, flush=True)\n"
        "E2eSession(record, sandbox).run('for i in 1 2 3 4 5; do echo line $i; done; printf half; '\n"
        "    f'until grep -qx \"line 4\" {sys.argv[1]}/transcript.txt; do sleep 0.01; done; kill -9 $PPID; sleep 1000')\n"
    )
    done = subprocess.run([sys.executable, program, tmp_path / "a"], capture_output=True, text=True, check=False)
    assert done.returncode == -9
    text = (tmp_path / "a" / "transcript.txt").read_text()
    assert [f"line {number}" for number in (1, 2, 3, 4)] == text.splitlines()[1:5]
    sandbox = Path(done.stdout.strip())
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and str(sandbox).encode() in (entry / "environ").read_bytes():
                os.kill(int(entry.name), 9)
        except OSError:
            continue


def test_tests_of_the_same_name_in_two_files_have_two_folders(tmp_path: Path) -> None:
    from muster.tutorial.artifacts import folder_of_test

    names = ["a/test_x.py::test_it", "b/test_x.py::test_it", "a/test_x.py::test_it[1/2]", "a/test_x.py::test_it[1-2]"]
    assert len({folder_of_test(tmp_path, name) for name in names}) == len(names)
    assert all(
        folder_of_test(tmp_path, name).parent == tmp_path / "tests"
        for name in [*names, "../../x::../y", "::" + "n" * 999]
    )


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("commit 1234567", "commit <id>"),
        ("20260311", "<id>"),
        ("9f8e7d6 and 1111111111111111111111111111111111111111", "<id> and <id>"),
        ("took 1234567.25 of 3.1415926", "took 1234567.25 of 3.1415926"),
        ("1,234,567 rows, 123456 files, deadbeef", "1,234,567 rows, 123456 files, deadbeef"),
    ],
)
def test_ids_of_only_digits_are_masked_and_other_numbers_are_not(e2e: E2eSession, text: str, masked: str) -> None:
    assert e2e.mask(text) == masked


def test_a_secret_is_hidden_however_a_terminal_program_splits_it() -> None:
    hidden = b"Token: **** ok, hunt er and **** end hu"
    data = b"Token: h\x1b[1mun\x1b[0mter \r2x\r\nyz ok, hunt er and hunter2xyz end hu"
    for seed in range(200):
        chosen = random.Random(seed)
        hider, shown, at = StreamHider(Secrets(["hunter2xyz"])), b"", 0
        while at < len(data):
            size = chosen.randrange(1, 6)
            shown += hider.feed(data[at : at + size])
            at += size
        assert shown + hider.rest() == hidden, f"seed {seed}"
    assert Secrets(["hunter2xyz"]).hide("hunter\n  2xyz") == "****"
    assert Secrets(["1111"]).hide("1\n1\n1\n1\n") == "1\n1\n1\n1\n", "a column of numbers"
