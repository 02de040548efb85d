"""Expectations: each is true when it should be, and says what a reader needs when it is not."""

from __future__ import annotations

import pytest

from muster.tutorial import E2eSession, expect

from .conftest import Session


def message(expected: object, name: str, *argv: object) -> str:
    with pytest.raises(AssertionError) as raised:
        getattr(expected, name)(*argv)
    return str(raised.value)


def test_what_holds_says_nothing(e2e: E2eSession) -> None:
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
    ("name", "argv", "said"),
    [
        ("to_succeed", (), "expected the command to succeed, but it exited with 3"),
        ("to_exit_with", (4,), "expected the command to exit with 4, but it exited with 3"),
        ("to_time_out", (), "expected the command to go on until its time-out, but it exited with 3"),
    ],
)
def test_a_failed_result_shows_the_command_and_the_transcript(
    e2e: E2eSession, name: str, argv: tuple[int, ...], said: str
) -> None:
    text = message(expect(e2e.run("echo hello; sleep 0.1; echo oops >&2; exit 3", comment="greet")), name, *argv)
    assert text.startswith(f"{said}\n  $ echo hello")
    assert "transcript:\n  # greet\n  $ echo hello; sleep 0.1; echo oops >&2; exit 3\n  hello\n  ! oops\n  ? 3" in text


def test_success_where_failure_was_expected(e2e: E2eSession) -> None:
    assert "expected the command to fail, but it exited with 0" in message(expect(e2e.run("true")), "to_fail")


@pytest.mark.parametrize(
    ("name", "argv", "said"),
    [
        ("to_contain", ("hello wurld",), "expected stdout to contain 'hello wurld'\nnearest line: 'hello world'"),
        ("not_to_contain", ("world",), "expected stdout not to contain 'world'"),
        ("to_match", (r"^\d+$",), r"expected stdout to match /^\d+$/"),
        ("not_to_match", ("wor",), "expected stdout not to match /wor/"),
        ("to_equal", ("hello\n",), "expected stdout to equal what was expected\n--- expected\n+++ got"),
        ("to_be_empty", (), "expected stdout to be empty"),
    ],
)
def test_a_failed_text_shows_what_was_expected_and_what_was_there(
    e2e: E2eSession, name: str, argv: tuple[str, ...], said: str
) -> None:
    text = message(expect(e2e.run("echo hello world").stdout), name, *argv)
    assert text.startswith(said)
    assert "$ echo hello world" in text and "stdout was:\n  hello world" in text and "transcript:" in text


def test_a_failure_is_in_the_transcript(session: Session) -> None:
    message(expect(session.e2e.run("false")), "to_succeed")
    assert session.text().endswith("~ failed: expected the command to succeed, but it exited with 1\n")


def test_a_difference_in_the_last_newline_is_shown(e2e: E2eSession) -> None:
    assert r"got 'hello\n'" in message(expect(e2e.run("echo hello").stdout), "to_equal", "hello")


def test_a_failure_shows_no_escape_sequence_and_not_too_much(e2e: E2eSession) -> None:
    text = message(expect(e2e.run(r"printf '\033]0;title\007'; seq 100000").stdout), "to_contain", "no such thing")
    assert "\x1b" not in text and len(text) < 20_000
    assert "the rest is in" in text


def test_expecting_something_of_a_number_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="not int"):
        expect(3)  # type: ignore[call-overload]  # what a typo gives
