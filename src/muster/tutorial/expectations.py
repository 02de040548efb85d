"""Implement `expect`: assertions whose failures show the command, the expectation and the transcript so far.

The methods are the same for results, background programs, terminals and texts. Expectations of a running program wait until
they are met or time out; expectations of a result or a text are checked once.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, overload

from ..cast import strip
from . import styles
from .snapshots import with_final_newline

if TYPE_CHECKING:
    from .session import Background, OutputSince, Result
    from .terminal import Terminal, View

#: Number of characters of a text that a failure shows.
SHOWN = 4000
#: Marks a place in captured output where some of it was not kept.
OMITTED = re.compile(r"\[… [\d,a-z]+ bytes left out …\]", re.IGNORECASE)

Predicate = Callable[[str], bool]


@overload
def expect(value: Result) -> ResultExpectation: ...
@overload
def expect(value: str) -> TextExpectation: ...
@overload
def expect(value: View | Terminal) -> ScreenExpectation: ...
@overload
def expect(value: Background | OutputSince) -> BackgroundExpectation: ...
def expect(value: Any) -> Any:
    """Return the expectations for a result, a text, a background program or a screen."""
    if isinstance(value, str):
        return TextExpectation(value)
    kind = {
        "Result": ResultExpectation,
        "View": ScreenExpectation,
        "Terminal": ScreenExpectation,
        "Background": BackgroundExpectation,
        "OutputSince": BackgroundExpectation,
    }
    for base in type(value).__mro__:
        if base.__name__ in kind and base.__module__.startswith("muster.tutorial."):
            return kind[base.__name__](value)
    raise TypeError(f"expect takes a result, its stdout or stderr, a screen or a terminal, not {type(value).__name__}")


def fail(message: str, source: Any) -> NoReturn:
    """Raise AssertionError with the message and the transcript so far."""
    __tracebackhide__ = True
    transcript = getattr(source, "transcript", None)
    so_far = transcript() if callable(transcript) else ""
    text = message + (f"\n\ntranscript:\n{_indented(so_far)}" if so_far else "")
    note = getattr(source, "note", None)
    if callable(note):
        note(f"failed: {message.splitlines()[0]}")
    raise AssertionError(text)


def fail_with_output(message: str, result: Result) -> NoReturn:
    """Raise AssertionError with the command, how it ended, and its stdout and stderr."""
    __tracebackhide__ = True
    streams = (("stdout", result.stdout), ("stderr", result.stderr))
    printed = "\n".join(f"{name} was:\n{_indented(_short(strip(text)))}" for name, text in streams if text)
    how = f"the command {_ended(result)}\n{printed or 'it printed nothing'}"
    fail(f"{message}\n{quoted_command(result.command)}{how}", result)


def _ended(result: Result) -> str:
    if result.timed_out is not None:
        return f"did not exit within {result.timed_out:g} s and was killed"
    return f"exited with {result.exit_code}"


class _Expectation:
    """Base of all expectations. A subject may have several variants of its text; it is enough if one of them matches."""

    source: Any = None

    def _variants(self) -> Sequence[str]:
        raise NotImplementedError

    def _until(self, condition: Callable[[], bool], timeout: float | None) -> bool:
        """Return whether the condition holds, or starts to hold within the timeout if the subject can still change."""
        return condition()

    def _fail(self, expected: str, details: str = "", timeout: float | None = None, subject: str = "") -> NoReturn:
        """Raise AssertionError: "expected SUBJECT EXPECTED", as in "expected stdout to contain 'x'"."""
        raise NotImplementedError

    def _require(self, matches: Predicate, expected: str, timeout: float | None, hint: Callable[[], str] = str) -> None:
        __tracebackhide__ = True
        if not self._until(lambda: any(map(matches, self._variants())), timeout):
            self._fail(expected, hint(), timeout)

    def _require_not(self, matches: Predicate, expected: str, timeout: float | None) -> None:
        __tracebackhide__ = True
        if not self._until(lambda: not any(map(matches, self._variants())), timeout):
            self._fail(f"not {expected}", "", timeout)
        if omitted := next((match[0] for text in self._variants() if (match := OMITTED.search(text))), ""):
            how_much = omitted[1:-1].strip("… ")
            details = f"\nthis cannot be known: {how_much}; let the command print less, or search a file that it writes"
            self._fail(f"not {expected}", details, timeout)

    def _nearest(self, text: str) -> str:
        if "\n" in text:
            return ""
        rows = [row for variant in self._variants() for row in variant[:100_000].splitlines()]
        near = difflib.get_close_matches(text, rows, 1, 0.5)
        return f"\nnearest line: {_quoted(near[0])}" if near else ""

    def _equal(self, text: str, timeout: float | None) -> None:
        __tracebackhide__ = True
        if not self._until(lambda: text in self._variants(), timeout):
            got = self._variants()[-1]
            difference = _diff(text, got) or f"expected {text[-80:]!r} at the end, got {got[-80:]!r}"
            self._fail("to equal the expected text", f"\n{difference}", timeout)

    def _snapshot(self, name: str, timeout: float | None) -> None:
        __tracebackhide__ = True
        session = getattr(self.source, "session", self.source)
        snapshots = getattr(session, "snapshots", None)
        if snapshots is None:
            raise TypeError("to_match_snapshot needs a result, its output, a screen, or a text from e2e.mask(text)")
        path = snapshots.path(name)

        def current() -> str:
            return str(with_final_newline(session.mask(session.hide(strip(self._variants()[-1])))))

        if snapshots.update:
            if snapshots.read(path) != (text := current()):
                snapshots.write(path, text)
                session.note(f"wrote the snapshot {path.name}")
            return
        expected = snapshots.read(path)
        if expected is None:
            self._fail(
                f"to match the snapshot {path}, which does not exist", "\npytest --e2e-update writes it", timeout
            )
        if not self._until(lambda: current() == expected, timeout):
            details = f"\n{_diff(expected, current())}\npytest --e2e-update accepts the new text"
            self._fail(f"to match the snapshot {path}", details, timeout)


class TextExpectation(_Expectation):
    """Expectations of a text. For `result.stdout` and `result.stderr` a failure also shows the command."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.source = getattr(text, "source", None)

    def _variants(self) -> Sequence[str]:
        return (self._text,)

    def to_contain(self, text: str) -> None:
        __tracebackhide__ = True
        self._require(lambda output: text in output, f"to contain {_quoted(text)}", None, lambda: self._nearest(text))

    def not_to_contain(self, text: str) -> None:
        """Fails also if some of the text was not kept, because the missing part could match."""
        __tracebackhide__ = True
        self._require_not(lambda output: text in output, f"to contain {_quoted(text)}", None)

    def to_match(self, pattern: str, flags: int = re.MULTILINE) -> None:
        """The pattern matches anywhere in the text; `^` and `$` match at the ends of each line."""
        __tracebackhide__ = True
        self._require(lambda output: re.search(pattern, output, flags) is not None, f"to match /{pattern}/", None)

    def not_to_match(self, pattern: str, flags: int = re.MULTILINE) -> None:
        """Fails also if some of the text was not kept, because the missing part could match."""
        __tracebackhide__ = True
        self._require_not(lambda output: re.search(pattern, output, flags) is not None, f"to match /{pattern}/", None)

    def to_equal(self, text: str) -> None:
        __tracebackhide__ = True
        self._equal(text, None)

    def to_be_empty(self) -> None:
        __tracebackhide__ = True
        if any(self._variants()):
            self._fail("to be empty")

    def to_match_snapshot(self, name: str = "") -> None:
        """The masked text equals a file next to the test; `pytest --e2e-update` writes that file."""
        __tracebackhide__ = True
        self._snapshot(name, None)

    def _fail(self, expected: str, details: str = "", timeout: float | None = None, subject: str = "") -> NoReturn:
        __tracebackhide__ = True
        name = getattr(self._text, "stream", "") or "the text"
        command = getattr(self.source, "command", "")
        omitted = (
            "\n(some of the output was not kept, because there was too much)" if OMITTED.search(self._text) else ""
        )
        got = f"{name} was empty" if not self._text else f"{name} was:\n{_indented(_short(strip(self._text)))}"
        fail(f"expected {name} {expected}{details}{omitted}\n{quoted_command(command)}{got}", self.source)


class ResultExpectation(TextExpectation):
    """Expectations of a finished command: its exit code, and its output on either stream."""

    def __init__(self, result: Result) -> None:
        super().__init__("")
        self.source = self._result = result

    def _variants(self) -> Sequence[str]:
        return self._result.variants()

    def to_succeed(self) -> None:
        __tracebackhide__ = True
        if self._result.exit_code != 0 or self._result.timed_out is not None:
            self._fail_end("to succeed")

    def to_fail(self) -> None:
        """The command exited with a code other than 0. A command that timed out does not count as failed."""
        __tracebackhide__ = True
        if self._result.exit_code == 0 or self._result.timed_out is not None:
            self._fail_end("to fail")

    def to_exit_with(self, code: int) -> None:
        __tracebackhide__ = True
        if self._result.exit_code != code or self._result.timed_out is not None:
            self._fail_end(f"to exit with {code}")

    def to_time_out(self) -> None:
        __tracebackhide__ = True
        if self._result.timed_out is None:
            self._fail_end("to run until its timeout")

    def _fail_end(self, expected: str) -> NoReturn:
        __tracebackhide__ = True
        result = self._result
        fail(f"expected the command {expected}, but it {_ended(result)}\n{quoted_command(result.command)}", result)

    def _fail(self, expected: str, details: str = "", timeout: float | None = None, subject: str = "") -> NoReturn:
        __tracebackhide__ = True
        fail_with_output(f"expected the output {expected}{details}", self._result)


class _Waiting(_Expectation):
    """Expectations of a program that may still run; each waits up to `timeout` seconds."""

    def to_contain(self, text: str, timeout: float | None = None) -> None:
        __tracebackhide__ = True
        self._require(
            lambda output: text in output, f"to contain {_quoted(text)}", timeout, lambda: self._nearest(text)
        )

    def not_to_contain(self, text: str, timeout: float | None = None) -> None:
        __tracebackhide__ = True
        self._require_not(lambda output: text in output, f"to contain {_quoted(text)}", timeout)

    def to_match(self, pattern: str, timeout: float | None = None, flags: int = re.MULTILINE) -> None:
        """The pattern matches anywhere in the text; `^` and `$` match at the ends of each line."""
        __tracebackhide__ = True
        self._require(lambda output: re.search(pattern, output, flags) is not None, f"to match /{pattern}/", timeout)

    def not_to_match(self, pattern: str, timeout: float | None = None, flags: int = re.MULTILINE) -> None:
        __tracebackhide__ = True
        self._require_not(
            lambda output: re.search(pattern, output, flags) is not None, f"to match /{pattern}/", timeout
        )

    def to_equal(self, text: str, timeout: float | None = None) -> None:
        __tracebackhide__ = True
        self._equal(text, timeout)

    def to_be_empty(self, timeout: float | None = None) -> None:
        __tracebackhide__ = True
        if not self._until(lambda: not any(self._variants()), timeout):
            self._fail("to be empty", "", timeout)

    def to_match_snapshot(self, name: str = "", timeout: float | None = None) -> None:
        """The masked text equals a file next to the test; `pytest --e2e-update` writes it without waiting."""
        __tracebackhide__ = True
        self._snapshot(name, timeout)

    def to_succeed(self, timeout: float | None = None) -> None:
        """The program exits with code 0."""
        __tracebackhide__ = True
        self._ends(lambda code: code == 0, "0", timeout)

    def to_fail(self, timeout: float | None = None) -> None:
        """The program exits with a code other than 0."""
        __tracebackhide__ = True
        self._ends(lambda code: code != 0, "a code other than 0", timeout)

    def to_exit_with(self, code: int, timeout: float | None = None) -> None:
        __tracebackhide__ = True
        self._ends(lambda actual: actual == code, str(code), timeout)

    def _ends(self, accepts: Callable[[int], bool], expected: str, timeout: float | None) -> None:
        __tracebackhide__ = True
        code = self._exit_code(timeout)
        if code is None or not accepts(code):
            state = "is still running" if code is None else f"exited with {code}"
            self._fail(f"to exit with {expected}", f"\nit {state}", timeout, "the program")

    def _exit_code(self, timeout: float | None) -> int | None:
        raise NotImplementedError


class ScreenExpectation(_Waiting):
    """Expectations of a terminal. Each waits; text also matches across rows that the terminal wrapped."""

    def __init__(self, screen: View | Terminal) -> None:
        view: Any = getattr(screen, "screen", screen)
        self._view: View = view
        self._terminal: Terminal = view.terminal
        self.source = self._terminal

    def _variants(self) -> Sequence[str]:
        return self._view.variants()

    def _until(self, condition: Callable[[], bool], timeout: float | None) -> bool:
        return self._view.until(lambda _: condition(), timeout)

    def to_contain(self, text: str, timeout: float | None = None, style: str = "") -> None:
        """The text is shown; with `style`, such as `bold red`, in a place where every character has that style."""
        __tracebackhide__ = True
        if not style:
            self._require(lambda output: text in output, f"to show {_quoted(text)}", timeout)
            return
        wanted, screen = styles.parse(style), self._terminal.screen
        if not self._until(lambda: any(wanted <= actual for actual in styles.styles_of(text, screen.styles)), timeout):
            actual = ", ".join(map(styles.describe, styles.styles_of(text, screen.styles))) or "not shown"
            self._fail(f"to show {_quoted(text)} as {style}", f"\nit is {actual}", timeout)

    def not_to_contain(self, text: str, timeout: float | None = None) -> None:
        """The text is not shown; waits until it is gone."""
        __tracebackhide__ = True
        self._require_not(lambda output: text in output, f"to show {_quoted(text)}", timeout)

    to_show, not_to_show = to_contain, not_to_contain

    def to_have_cursor_at(self, column: int, row: int, timeout: float | None = None) -> None:
        """The cursor is at this position, counted from 0 at the top left of the screen."""
        __tracebackhide__ = True
        screen = self._terminal.screen
        if not self._until(lambda: screen.cursor[:2] == (column, row), timeout):
            details = "\nit is at column {}, row {}".format(*screen.cursor[:2])
            self._fail(f"to have its cursor at column {column}, row {row}", details, timeout)

    def _exit_code(self, timeout: float | None) -> int | None:
        return self._terminal.wait(timeout)

    def _fail(self, expected: str, details: str = "", timeout: float | None = None, subject: str = "") -> NoReturn:
        __tracebackhide__ = True
        code = self._terminal.exit_code
        ended = f"\nthe program exited with {code}" if code is not None else ""
        seconds = self._terminal.timeout if timeout is None else timeout
        names = {"Scrollback": "the scrollback", "ScreenSince": "the output since the mark"}
        name = names.get(type(self._view).__name__, "the screen")
        fail(
            f"expected {subject or name} {expected} within {seconds:g} s{details}{ended}\n{quoted_command(self._terminal.command)}"
            f"{name} was:\n{_indented(_short(self._view.text))}",
            self._terminal,
        )


class BackgroundExpectation(_Waiting):
    """Expectations of a background program, on either stream. Each waits, except those that begin with `not_`."""

    def __init__(self, subject: Background | OutputSince) -> None:
        self._subject = subject
        self._background: Background
        background: Any = getattr(subject, "background", subject)
        self.source = self._background = background

    def _variants(self) -> Sequence[str]:
        return self._subject.variants()

    def _until(self, condition: Callable[[], bool], timeout: float | None) -> bool:
        return self._background.until(condition, timeout)

    def _require_not(self, matches: Predicate, expected: str, timeout: float | None) -> None:
        __tracebackhide__ = True
        # Printed output does not go away, so there is nothing to wait for.
        super()._require_not(matches, expected, 0.0)

    def to_print(self, text: str, timeout: float | None = None) -> None:
        __tracebackhide__ = True
        self._require(lambda output: text in output, f"to print {_quoted(text)}", timeout)

    def _exit_code(self, timeout: float | None) -> int | None:
        self._until(lambda: not self._background.running, timeout)
        return self._background.exit_code

    def _fail(self, expected: str, details: str = "", timeout: float | None = None, subject: str = "") -> NoReturn:
        __tracebackhide__ = True
        program = self._background
        subject = subject or "the background program"
        fail(f"expected {subject} {expected}{details}\n{quoted_command(program.command)}", program)


def quoted_command(text: str) -> str:
    """Return the command as indented lines with shell prompts: `  $ ` and then `  > `."""
    return "".join(f"  {'> ' if number else '$ '}{line}\n" for number, line in enumerate(text.splitlines()))


def _diff(expected: str, got: str) -> str:
    lines = difflib.unified_diff(expected.splitlines(), got.splitlines(), "expected", "got", lineterm="")
    return "\n".join(list(lines)[:200])


def _quoted(text: str) -> str:
    return repr(text if len(text) <= SHOWN else text[:SHOWN] + "…")


def _short(text: str) -> str:
    half = SHOWN // 2
    return text if len(text) <= SHOWN else f"{text[:half]}\n[…]\n{text[-half:]}"


def _indented(text: str) -> str:
    return "\n".join(f"  {line}".rstrip() for line in text.rstrip("\n").split("\n"))
