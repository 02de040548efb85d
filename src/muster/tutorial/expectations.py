"""Expectations that say, when they fail, which command it was, what was expected, and what the test has seen so far."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Any, overload

from ..cast import strip

if TYPE_CHECKING:
    from .session import Background, Result
    from .terminal import Screen, Terminal

#: How much of a text a failure shows.
SHOWN = 4000


@overload
def expect(value: Result) -> ResultExpectation: ...
@overload
def expect(value: str) -> TextExpectation: ...
@overload
def expect(value: Screen | Terminal) -> ScreenExpectation: ...
@overload
def expect(value: Background) -> BackgroundExpectation: ...
def expect(value: Any) -> Any:
    """What is to be said about a result, a text, a background program or a screen."""
    if isinstance(value, str):
        return TextExpectation(value)
    kind = {
        "Result": ResultExpectation,
        "Screen": ScreenExpectation,
        "Terminal": ScreenExpectation,
        "Background": BackgroundExpectation,
    }
    for base in type(value).__mro__:
        if base.__name__ in kind and base.__module__.startswith("muster.tutorial."):
            return kind[base.__name__](value)
    raise TypeError(f"expect takes a result, its stdout or stderr, a screen or a terminal, not {type(value).__name__}")


def fail(what: str, source: Any) -> None:
    """Raise with what was expected, and the transcript as it stands."""
    __tracebackhide__ = True
    transcript = getattr(source, "transcript", None)
    seen = transcript() if callable(transcript) else ""
    text = what + (f"\n\ntranscript:\n{_indented(seen)}" if seen else "")
    note = getattr(source, "note", None)
    if callable(note):
        note(f"failed: {what.splitlines()[0]}")
    raise AssertionError(text)


class ResultExpectation:
    def __init__(self, result: Result) -> None:
        self._result = result

    def to_succeed(self) -> None:
        __tracebackhide__ = True
        if self._result.exit_code != 0 or self._result.timed_out is not None:
            self._fail("to succeed")

    def to_fail(self) -> None:
        """With an exit code of its own; a command that had to be ended did not fail, it hung."""
        __tracebackhide__ = True
        if self._result.exit_code == 0 or self._result.timed_out is not None:
            self._fail("to fail")

    def to_exit_with(self, code: int) -> None:
        __tracebackhide__ = True
        if self._result.exit_code != code or self._result.timed_out is not None:
            self._fail(f"to exit with {code}")

    def to_time_out(self) -> None:
        __tracebackhide__ = True
        if self._result.timed_out is None:
            self._fail("to go on until its time-out")

    def _fail(self, what: str) -> None:
        __tracebackhide__ = True
        one = self._result
        ended = f"exited with {one.exit_code}"
        if one.timed_out is not None:
            ended = f"did not end within {one.timed_out:g} s and was ended"
        fail(f"expected the command {what}, but it {ended}\n{_command(one.command)}", one)


class TextExpectation:
    """Also for `result.stdout` and `result.stderr`, which know the command that they came from."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._source = getattr(text, "result", None)

    def to_contain(self, text: str) -> None:
        __tracebackhide__ = True
        if text not in self._text:
            near = (
                difflib.get_close_matches(text, self._text[:100_000].splitlines(), 1, 0.5) if "\n" not in text else []
            )
            hint = f"\nnearest line: {_quoted(near[0])}" if near else ""
            self._fail(f"to contain {_quoted(text)}", hint)

    def not_to_contain(self, text: str) -> None:
        __tracebackhide__ = True
        if text in self._text:
            self._fail(f"not to contain {_quoted(text)}")

    def to_match(self, pattern: str, flags: int = re.MULTILINE) -> None:
        """Somewhere; `^` and `$` are the ends of a line."""
        __tracebackhide__ = True
        if not re.search(pattern, self._text, flags):
            self._fail(f"to match /{pattern}/")

    def not_to_match(self, pattern: str, flags: int = re.MULTILINE) -> None:
        __tracebackhide__ = True
        if re.search(pattern, self._text, flags):
            self._fail(f"not to match /{pattern}/")

    def to_equal(self, text: str) -> None:
        __tracebackhide__ = True
        if self._text != text:
            lines = difflib.unified_diff(text.splitlines(), self._text.splitlines(), "expected", "got", lineterm="")
            shown = "\n".join(list(lines)[:200])
            if not shown:
                shown = f"expected {text[-80:]!r} at the end, got {self._text[-80:]!r}"
            self._fail("to equal what was expected", f"\n{shown}")

    def to_be_empty(self) -> None:
        __tracebackhide__ = True
        if self._text:
            self._fail("to be empty")

    def _fail(self, what: str, more: str = "") -> None:
        __tracebackhide__ = True
        name = getattr(self._text, "stream", "") or "the text"
        command = _command(self._source.command) if self._source is not None else ""
        cut = "\n(the output was too long to be kept whole)" if getattr(self._source, "left_out", 0) else ""
        got = f"{name} was empty" if not self._text else f"{name} was:\n{_indented(_short(strip(self._text)))}"
        fail(f"expected {name} {what}{more}{cut}\n{command}{got}", self._source)


class ScreenExpectation:
    """Waits: a terminal program draws when it likes."""

    def __init__(self, screen: Screen | Terminal) -> None:
        self._screen: Screen = screen.screen

    def to_show(self, text: str, timeout: float | None = None) -> None:
        __tracebackhide__ = True
        if not self._screen.wait(lambda shown: text in shown, timeout):
            self._fail(f"to show {_quoted(text)}", timeout)

    def not_to_show(self, text: str, timeout: float | None = None) -> None:
        __tracebackhide__ = True
        if not self._screen.wait(lambda shown: text not in shown, timeout):
            self._fail(f"not to show {_quoted(text)}", timeout)

    def to_match(self, pattern: str, timeout: float | None = None) -> None:
        __tracebackhide__ = True
        if not self._screen.wait(lambda shown: re.search(pattern, shown, re.MULTILINE) is not None, timeout):
            self._fail(f"to match /{pattern}/", timeout)

    def to_exit_with(self, code: int, timeout: float | None = None) -> None:
        __tracebackhide__ = True
        ended = self._screen.terminal.wait(timeout)
        if ended != code:
            state = "still runs" if ended is None else f"exited with {ended}"
            self._fail(f"of a program that exits with {code}; it {state}", timeout)

    def _fail(self, what: str, timeout: float | None) -> None:
        __tracebackhide__ = True
        terminal = self._screen.terminal
        code = terminal.exit_code
        ended = f"\nthe program has ended with {code}" if code is not None else ""
        seconds = terminal.patience if timeout is None else timeout
        fail(
            f"expected the screen {what} within {seconds:g} s{ended}\n{_command(terminal.command)}"
            f"the screen was:\n{_indented(self._screen.text)}",
            terminal,
        )


class BackgroundExpectation:
    def __init__(self, background: Background) -> None:
        self._background = background

    def to_print(self, text: str, timeout: float | None = None) -> None:
        """Waits until its output holds the text."""
        __tracebackhide__ = True
        one = self._background
        if not one.wait_for(text, timeout):
            fail(f"expected the background program to print {_quoted(text)}\n{_command(one.command)}", one)


def _command(text: str) -> str:
    return "".join(f"  {'> ' if number else '$ '}{line}\n" for number, line in enumerate(text.splitlines()))


def _quoted(text: str) -> str:
    return repr(text if len(text) <= SHOWN else text[:SHOWN] + "…")


def _short(text: str) -> str:
    half = SHOWN // 2
    return text if len(text) <= SHOWN else f"{text[:half]}\n[…]\n{text[-half:]}"


def _indented(text: str) -> str:
    return "\n".join(f"  {line}".rstrip() for line in text.rstrip("\n").split("\n"))
