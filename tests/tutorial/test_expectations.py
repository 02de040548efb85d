"""Tests of `expect`: expectations pass when they hold, and failures show what a reader needs."""

from __future__ import annotations

import pytest

from muster.tutorial import E2eSession, expect

from .conftest import Session


def failure_message(expectation: object, name: str, *args: object) -> str:
    with pytest.raises(AssertionError) as raised:
        getattr(expectation, name)(*args)
    return str(raised.value)


def test_expectations_that_hold_raise_nothing(e2e: E2eSession) -> None:
    result = e2e.run("echo hello; echo oops >&2; exit 3")
    expect(result).to_fail()
    expect(result).to_exit_with(3)
    expect(result.stdout).to_contain("hell")
    expect(result.stdout).not_to_contain("oops")
    expect(result.stdout).to_match(r"^h.*o$")
    expect(result.stdout).not_to_match(r"^ello")
    expect(result.stderr).to_equal("oops\n")
    expect(e2e.run("true")).to_succeed()
    expect(e2e.run("true").stdout).to_be_empty()
    expect("plain text").to_contain("text")


@pytest.mark.parametrize(
    ("name", "argv", "expected_start"),
    [
        ("to_succeed", (), "expected the command to succeed, but it exited with 3"),
        ("to_exit_with", (4,), "expected the command to exit with 4, but it exited with 3"),
        ("to_time_out", (), "expected the command to run until its timeout, but it exited with 3"),
    ],
)
def test_a_failed_result_shows_the_command_and_the_transcript(
    e2e: E2eSession, name: str, argv: tuple[int, ...], expected_start: str
) -> None:
    text = failure_message(
        expect(e2e.run("echo hello; sleep 0.1; echo oops >&2; exit 3", comment="greet")), name, *argv
    )
    assert text.startswith(f"{expected_start}\n  $ echo hello")
    assert "transcript:\n  # greet\n  $ echo hello; sleep 0.1; echo oops >&2; exit 3\n  hello\n  ! oops\n  ? 3" in text


def test_to_fail_fails_for_a_command_that_succeeds(e2e: E2eSession) -> None:
    assert "expected the command to fail, but it exited with 0" in failure_message(expect(e2e.run("true")), "to_fail")


@pytest.mark.parametrize(
    ("name", "argv", "expected_start"),
    [
        ("to_contain", ("hello wurld",), "expected stdout to contain 'hello wurld'\nnearest line: 'hello world'"),
        ("not_to_contain", ("world",), "expected stdout not to contain 'world'"),
        ("to_match", (r"^\d+$",), r"expected stdout to match /^\d+$/"),
        ("not_to_match", ("wor",), "expected stdout not to match /wor/"),
        ("to_equal", ("hello\n",), "expected stdout to equal the expected text\n--- expected\n+++ got"),
        ("to_be_empty", (), "expected stdout to be empty"),
    ],
)
def test_a_failed_text_expectation_shows_the_expected_and_the_actual_text(
    e2e: E2eSession, name: str, argv: tuple[str, ...], expected_start: str
) -> None:
    text = failure_message(expect(e2e.run("echo hello world").stdout), name, *argv)
    assert text.startswith(expected_start)
    assert "$ echo hello world" in text and "stdout was:\n  hello world" in text and "transcript:" in text


def test_a_failed_expectation_is_noted_in_the_transcript(session: Session) -> None:
    failure_message(expect(session.e2e.run("false")), "to_succeed")
    assert session.text().endswith("~ failed: expected the command to succeed, but it exited with 1\n")


def test_a_difference_in_the_last_newline_is_shown(e2e: E2eSession) -> None:
    assert r"got 'hello\n'" in failure_message(expect(e2e.run("echo hello").stdout), "to_equal", "hello")


def test_a_failure_shows_no_escape_sequences_and_shortens_long_output(e2e: E2eSession) -> None:
    text = failure_message(
        expect(e2e.run(r"printf '\033]0;title\007'; seq 100000").stdout), "to_contain", "no such thing"
    )
    assert "\x1b" not in text and len(text) < 20_000
    assert "the rest is in" in text


def test_expect_of_a_number_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="not int"):
        expect(3)  # type: ignore[call-overload]  # a likely mistake: expect(result.exit_code)


def test_results_background_programs_and_screens_have_the_same_expectations(e2e: E2eSession) -> None:
    command = "echo one; echo two >&2; exit 3"
    for subject in (e2e.run(command), e2e.start(command), e2e.terminal(command), e2e.terminal(command).scrollback):
        expect(subject).to_contain("one")
        expect(subject).to_contain("two")
        expect(subject).to_match(r"^t.o$")
        expect(subject).not_to_contain("three")
        expect(subject).not_to_match(r"^wo$")
        expect(subject).to_exit_with(3)
        expect(subject).to_fail()
        assert "two" in failure_message(expect(subject), "to_contain", "three")
        failure_message(expect(subject), "not_to_contain", "one")
        failure_message(expect(subject), "not_to_match", "^one$")
        failure_message(expect(subject), "to_be_empty")
        failure_message(expect(subject), "to_succeed")


def test_run_with_check_fails_with_the_output_of_the_command(e2e: E2eSession) -> None:
    assert e2e.run("echo fine", check=True).stdout == "fine\n"
    with pytest.raises(AssertionError) as raised:
        e2e.run("echo out; sleep 0.1; echo err >&2; exit 4", check=True)
    assert "expected the command to succeed, but it exited with 4" in str(raised.value)
    assert "  out\n  ! err\n  ? 4" in str(raised.value)
    with pytest.raises(AssertionError, match="did not exit within 0.2 s"):
        e2e.run("sleep 1000", check=True, timeout=0.2)


def test_invalid_json_output_is_shown_with_its_command(e2e: E2eSession) -> None:
    assert e2e.run("echo '[1]'").json() == [1]
    with pytest.raises(AssertionError) as raised:
        e2e.run("echo '{\"a\": 1,}'; echo warning: old >&2; exit 2").json()
    text = str(raised.value)
    assert text.startswith("expected stdout to be JSON, but ") and "line 1 column" in text
    assert "  $ echo '{\"a\": 1,}'" in text and "the command exited with 2" in text
    assert 'stdout was:\n  {"a": 1,}' in text and "stderr was:\n  warning: old" in text
    with pytest.raises(AssertionError, match="it printed nothing"):
        e2e.run("true").json()


@pytest.mark.parametrize("verb", ["run", "start", "terminal"])
def test_a_missing_working_directory_is_reported_with_the_command(e2e: E2eSession, verb: str) -> None:
    (e2e.work / "file").touch()
    for folder, why in (("no/where", "does not exist"), ("file", "is not a folder")):
        with pytest.raises(AssertionError) as raised:
            getattr(e2e, verb)("echo hello", cwd=folder)
        assert f"cannot run this in {folder}: {e2e.work}/{folder} {why}\n  $ echo hello" in str(raised.value)


@pytest.mark.parametrize(("name", "argument"), [("not_to_contain", "nowhere"), ("not_to_match", "no.*where")])
def test_negative_expectations_fail_for_output_that_was_not_kept_completely(
    e2e: E2eSession, monkeypatch: pytest.MonkeyPatch, name: str, argument: str
) -> None:
    monkeypatch.setattr("muster.tutorial.process.HEAD", 2000)
    monkeypatch.setattr("muster.tutorial.process.TAIL", 1000)
    result = e2e.run("seq 5000; echo error >&2")
    background = e2e.start("seq 5000; sleep 1000", ready_when="5000")
    for subject in (result, result.stdout, result.stdout.upper(), result.masked.stdout, background, background.stdout):
        text = failure_message(expect(subject), name, argument)
        assert "this cannot be known: " in text and "bytes left out" in text.lower()
    getattr(expect(result.stderr), name)(argument)
    expect(result.stdout).to_contain("4999")


def test_negative_expectations_fail_for_output_with_dropped_lines(
    e2e: E2eSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("muster.tutorial.transcript.MAX_LINES", 100)
    result = e2e.run("seq 1000")
    assert "this cannot be known" in failure_message(expect(result.masked.output), "not_to_contain", "nowhere")
    assert "this cannot be known" in failure_message(expect(result.output), "not_to_contain", "nowhere")
    expect(result.stdout).not_to_contain("nowhere")


def test_output_of_a_background_program_since_a_mark(e2e: E2eSession) -> None:
    (e2e.work / "in").touch()
    program = e2e.start("tail -n +1 -f in", ready_when=lambda: True)
    for number in range(3):
        mark = program.mark()
        e2e.run("echo again >> in")
        expect(program.since(mark)).to_contain("again")
        assert program.since(mark).stdout == "again\n", number
    assert program.stdout == "again\n" * 3
    mark = program.mark()
    failure_message(expect(program.since(mark)), "to_contain", "again", 0.1)


def test_output_since_a_mark_shows_where_bytes_were_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("muster.tutorial.process.HEAD", 10)
    monkeypatch.setattr("muster.tutorial.process.TAIL", 10)
    from muster.tutorial.process import Stream

    stream = Stream.__new__(Stream)
    stream.head, stream.tail, stream.total = bytearray(b"0123456789"), bytearray(b"uvwxyzUVWXYZ"), 112
    assert stream.left_out == 92
    assert stream.bytes(5) == b"56789\n[\xe2\x80\xa6 92 bytes left out \xe2\x80\xa6]\nwxyzUVWXYZ"
    assert stream.bytes(50) == b"\n[\xe2\x80\xa6 52 bytes left out \xe2\x80\xa6]\nwxyzUVWXYZ"
    assert stream.bytes(102) == b"wxyzUVWXYZ" and stream.bytes(110) == b"YZ" and stream.bytes(112) == b""
    stream.tail, stream.total = bytearray(b"abcdef"), 16
    assert stream.bytes(4) == b"456789abcdef" and stream.bytes(12) == b"cdef"
