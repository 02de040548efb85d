"""Expectations that say, when they fail, which command it was, what was expected, and what the test has seen so far.

The words are the same for results, background programs, terminals and texts. Of a program that still runs, what is expected is
waited for; a result and a text are judged as they are.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, overload

from ..cast import strip
from . import styles
from .snapshots import normal

if TYPE_CHECKING:
    from .session import Background, Printed, Result
    from .terminal import Terminal, View

#: How much of a text a failure shows.
SHOWN = 4000
#: What stands in a text where some of it was not kept.
CUT = re.compile(r"\[… [\d,a-z]+ bytes left out …\]", re.IGNORECASE)

True_ = Callable[[str], bool]


@overload
def expect(value: Result) -> ResultExpectation: ...
@overload
def expect(value: str) -> TextExpectation: ...
@overload
def expect(value: View | Terminal) -> ScreenExpectation: ...
@overload
def expect(value: Background | Printed) -> BackgroundExpectation: ...
def expect(value: Any) -> Any:
    """What is to be said about a result, a text, a background program or a screen."""
    if isinstance(value, str):
        return TextExpectation(value)
    kind = {
        "Result": ResultExpectation,
        "View": ScreenExpectation,
        "Terminal": ScreenExpectation,
        "Background": BackgroundExpectation,
        "Printed": BackgroundExpectation,
    }
    for base in type(value).__mro__:
        if base.__name__ in kind and base.__module__.startswith("muster.tutorial."):
            return kind[base.__name__](value)
    raise TypeError(f"expect takes a result, its stdout or stderr, a screen or a terminal, not {type(value).__name__}")


def fail(what: str, source: Any) -> NoReturn:
    """Raise with what was expected, and the transcript as it stands."""
    __tracebackhide__ = True
    transcript = getattr(source, "transcript", None)
    seen = transcript() if callable(transcript) else ""
    text = what + (f"\n\ntranscript:\n{_indented(seen)}" if seen else "")
    note = getattr(source, "note", None)
    if callable(note):
        note(f"failed: {what.splitlines()[0]}")
    raise AssertionError(text)


def fail_with_output(what: str, result: Result) -> NoReturn:
    """Raise with the command, how it ended and both of its streams."""
    __tracebackhide__ = True
    streams = [f"{name} was:\n{_indented(_short(strip(text)))}" for name, text in _streams(result) if text]
    told = "\n".join(streams) or "it printed nothing"
    fail(f"{what}\n{quoted_command(result.command)}the command {_ended(result)}\n{told}", result)


def _streams(result: Result) -> list[tuple[str, str]]:
    return [("stdout", result.stdout), ("stderr", result.stderr)]


def _ended(result: Result) -> str:
    if result.timed_out is not None:
        return f"did not end within {result.timed_out:g} s and was ended"
    return f"exited with {result.exit_code}"


class _Expectation:
    """What all have in common: several readings of a text, of which one is enough."""

    source: Any = None

    def _readings(self) -> Sequence[str]:
        raise NotImplementedError

    def _until(self, true: Callable[[], bool], timeout: float | None) -> bool:
        return true()

    def _fail(self, what: str, more: str = "", timeout: float | None = None) -> NoReturn:
        raise NotImplementedError

    def _judge(self, true: True_, what: str, timeout: float | None, hint: Callable[[], str] = str) -> None:
        __tracebackhide__ = True
        if not self._until(lambda: any(map(true, self._readings())), timeout):
            self._fail(what, hint(), timeout)

    def _judge_not(self, true: True_, what: str, timeout: float | None) -> None:
        __tracebackhide__ = True
        if not self._until(lambda: not any(map(true, self._readings())), timeout):
            self._fail(f"not {what}", "", timeout)
        if cut := next((found[0] for text in self._readings() if (found := CUT.search(text))), ""):
            told = f"\nthat is not known: {cut[1:-1].strip('… ')}; have the command print less, or write to a file and search that"
            self._fail(f"not {what}", told, timeout)

    def _nearest(self, text: str) -> str:
        if "\n" in text:
            return ""
        rows = [row for reading in self._readings() for row in reading[:100_000].splitlines()]
        near = difflib.get_close_matches(text, rows, 1, 0.5)
        return f"\nnearest line: {_quoted(near[0])}" if near else ""

    def _equal(self, text: str, timeout: float | None) -> None:
        __tracebackhide__ = True
        if not self._until(lambda: text in self._readings(), timeout):
            got = self._readings()[-1]
            shown = _diff(text, got) or f"expected {text[-80:]!r} at the end, got {got[-80:]!r}"
            self._fail("to equal what was expected", f"\n{shown}", timeout)

    def _snapshot(self, name: str, timeout: float | None) -> None:
        __tracebackhide__ = True
        session = getattr(self.source, "session", self.source)
        kept = getattr(session, "snapshots", None)
        if kept is None:
            raise TypeError("a snapshot is of something that the session gave: a result, a screen, e2e.mask(text)")
        path = kept.path(name)

        def current() -> str:
            return str(normal(session.mask(session.hide(strip(self._readings()[-1])))))

        if kept.update:
            if kept.read(path) != (text := current()):
                kept.write(path, text)
                session.note(f"wrote the snapshot {path.name}")
            return
        expected = kept.read(path)
        if expected is None:
            self._fail(
                f"to match the snapshot {path}, which does not exist", "\npytest --e2e-update writes it", timeout
            )
        if not self._until(lambda: current() == expected, timeout):
            more = f"\n{_diff(expected, current())}\npytest --e2e-update accepts it"
            self._fail(f"to match the snapshot {path}", more, timeout)


class TextExpectation(_Expectation):
    """Also for `result.stdout` and `result.stderr`, which know the command that they came from."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.source = getattr(text, "source", None)

    def _readings(self) -> Sequence[str]:
        return (self._text,)

    def to_contain(self, text: str) -> None:
        __tracebackhide__ = True
        self._judge(lambda shown: text in shown, f"to contain {_quoted(text)}", None, lambda: self._nearest(text))

    def not_to_contain(self, text: str) -> None:
        """Fails also if some of the text was not kept, because then nobody knows."""
        __tracebackhide__ = True
        self._judge_not(lambda shown: text in shown, f"to contain {_quoted(text)}", None)

    def to_match(self, pattern: str, flags: int = re.MULTILINE) -> None:
        """Somewhere; `^` and `$` are the ends of a line."""
        __tracebackhide__ = True
        self._judge(lambda shown: re.search(pattern, shown, flags) is not None, f"to match /{pattern}/", None)

    def not_to_match(self, pattern: str, flags: int = re.MULTILINE) -> None:
        """Fails also if some of the text was not kept, because then nobody knows."""
        __tracebackhide__ = True
        self._judge_not(lambda shown: re.search(pattern, shown, flags) is not None, f"to match /{pattern}/", None)

    def to_equal(self, text: str) -> None:
        __tracebackhide__ = True
        self._equal(text, None)

    def to_be_empty(self) -> None:
        __tracebackhide__ = True
        if any(self._readings()):
            self._fail("to be empty")

    def to_match_snapshot(self, name: str = "") -> None:
        """Equal, once masked, to a file beside the test, which `pytest --e2e-update` writes."""
        __tracebackhide__ = True
        self._snapshot(name, None)

    def _fail(self, what: str, more: str = "", timeout: float | None = None) -> NoReturn:
        __tracebackhide__ = True
        name = getattr(self._text, "stream", "") or "the text"
        command = getattr(self.source, "command", "")
        cut = "\n(the output was too long to be kept whole)" if CUT.search(self._text) else ""
        got = f"{name} was empty" if not self._text else f"{name} was:\n{_indented(_short(strip(self._text)))}"
        fail(f"expected {name} {what}{more}{cut}\n{quoted_command(command)}{got}", self.source)


class ResultExpectation(TextExpectation):
    """Of how a command ended, and of what it printed on either stream."""

    def __init__(self, result: Result) -> None:
        super().__init__("")
        self.source = self._result = result

    def _readings(self) -> Sequence[str]:
        return self._result.readings()

    def to_succeed(self) -> None:
        __tracebackhide__ = True
        if self._result.exit_code != 0 or self._result.timed_out is not None:
            self._fail_end("to succeed")

    def to_fail(self) -> None:
        """With an exit code of its own; a command that had to be ended did not fail, it hung."""
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
            self._fail_end("to go on until its time-out")

    def _fail_end(self, what: str) -> NoReturn:
        __tracebackhide__ = True
        one = self._result
        fail(f"expected the command {what}, but it {_ended(one)}\n{quoted_command(one.command)}", one)

    def _fail(self, what: str, more: str = "", timeout: float | None = None) -> NoReturn:
        __tracebackhide__ = True
        fail_with_output(f"expected the output {what}{more}", self._result)


class _Waiting(_Expectation):
    """For a program that may still run: waits until it is as expected, at most `timeout` seconds."""

    def to_contain(self, text: str, timeout: float | None = None) -> None:
        __tracebackhide__ = True
        self._judge(lambda shown: text in shown, f"to contain {_quoted(text)}", timeout, lambda: self._nearest(text))

    def not_to_contain(self, text: str, timeout: float | None = None) -> None:
        __tracebackhide__ = True
        self._judge_not(lambda shown: text in shown, f"to contain {_quoted(text)}", timeout)

    def to_match(self, pattern: str, timeout: float | None = None, flags: int = re.MULTILINE) -> None:
        """Somewhere; `^` and `$` are the ends of a line."""
        __tracebackhide__ = True
        self._judge(lambda shown: re.search(pattern, shown, flags) is not None, f"to match /{pattern}/", timeout)

    def not_to_match(self, pattern: str, timeout: float | None = None, flags: int = re.MULTILINE) -> None:
        __tracebackhide__ = True
        self._judge_not(lambda shown: re.search(pattern, shown, flags) is not None, f"to match /{pattern}/", timeout)

    def to_equal(self, text: str, timeout: float | None = None) -> None:
        __tracebackhide__ = True
        self._equal(text, timeout)

    def to_be_empty(self, timeout: float | None = None) -> None:
        __tracebackhide__ = True
        if not self._until(lambda: not any(self._readings()), timeout):
            self._fail("to be empty", "", timeout)

    def to_match_snapshot(self, name: str = "", timeout: float | None = None) -> None:
        """Equal, once masked, to a file beside the test, which `pytest --e2e-update` writes as it is then."""
        __tracebackhide__ = True
        self._snapshot(name, timeout)

    def to_succeed(self, timeout: float | None = None) -> None:
        """It ends, with exit code 0."""
        __tracebackhide__ = True
        self._ends(lambda code: code == 0, "0", timeout)

    def to_fail(self, timeout: float | None = None) -> None:
        """It ends, with another exit code than 0."""
        __tracebackhide__ = True
        self._ends(lambda code: code != 0, "another code than 0", timeout)

    def to_exit_with(self, code: int, timeout: float | None = None) -> None:
        __tracebackhide__ = True
        self._ends(lambda found: found == code, str(code), timeout)

    def _ends(self, true: Callable[[int], bool], what: str, timeout: float | None) -> None:
        __tracebackhide__ = True
        code = self._exit_code(timeout)
        if code is None or not true(code):
            state = "still runs" if code is None else f"exited with {code}"
            self._fail(f"of a program that exits with {what}; it {state}", "", timeout)

    def _exit_code(self, timeout: float | None) -> int | None:
        raise NotImplementedError


class ScreenExpectation(_Waiting):
    """Waits: a terminal program draws when it likes. Text counts also where the terminal wrapped it."""

    def __init__(self, screen: View | Terminal) -> None:
        view: Any = getattr(screen, "screen", screen)
        self._view: View = view
        self._terminal: Terminal = view.terminal
        self.source = self._terminal

    def _readings(self) -> Sequence[str]:
        return self._view.readings()

    def _until(self, true: Callable[[], bool], timeout: float | None) -> bool:
        return self._view.until(lambda _: true(), timeout)

    def to_contain(self, text: str, timeout: float | None = None, style: str = "") -> None:
        """With `style`, as in `bold red`, in a place where all of the text has it."""
        __tracebackhide__ = True
        if not style:
            self._judge(lambda shown: text in shown, f"to show {_quoted(text)}", timeout)
            return
        wanted, screen = styles.parse(style), self._terminal.screen
        if not self._until(lambda: any(found >= wanted for found in styles.of(text, screen.styles)), timeout):
            found = ", ".join(map(styles.shown, styles.of(text, screen.styles))) or "not shown"
            self._fail(f"to show {_quoted(text)} as {style}", f"\nit is {found}", timeout)

    def not_to_contain(self, text: str, timeout: float | None = None) -> None:
        """Waits until it is gone."""
        __tracebackhide__ = True
        self._judge_not(lambda shown: text in shown, f"to show {_quoted(text)}", timeout)

    to_show, not_to_show = to_contain, not_to_contain

    def to_have_cursor_at(self, column: int, row: int, timeout: float | None = None) -> None:
        """Counted from 0, at the top left of the screen."""
        __tracebackhide__ = True
        screen = self._terminal.screen
        if not self._until(lambda: screen.cursor[:2] == (column, row), timeout):
            more = "\nit is at column {}, row {}".format(*screen.cursor[:2])
            self._fail(f"to have its cursor at column {column}, row {row}", more, timeout)

    def _exit_code(self, timeout: float | None) -> int | None:
        return self._terminal.wait(timeout)

    def _fail(self, what: str, more: str = "", timeout: float | None = None) -> NoReturn:
        __tracebackhide__ = True
        code = self._terminal.exit_code
        ended = f"\nthe program has ended with {code}" if code is not None else ""
        seconds = self._terminal.patience if timeout is None else timeout
        name = {"Scrollback": "the scrollback", "Since": "what came since the mark"}.get(type(self._view).__name__)
        fail(
            f"expected {name or 'the screen'} {what} within {seconds:g} s{more}{ended}\n{quoted_command(self._terminal.command)}"
            f"{name or 'the screen'} was:\n{_indented(_short(self._view.text))}",
            self._terminal,
        )


class BackgroundExpectation(_Waiting):
    """Waits for what a background program prints on either stream; what it must not have printed is judged at once."""

    def __init__(self, subject: Background | Printed) -> None:
        self._subject = subject
        self._background: Background
        background: Any = getattr(subject, "background", subject)
        self.source = self._background = background

    def _readings(self) -> Sequence[str]:
        return self._subject.readings()

    def _until(self, true: Callable[[], bool], timeout: float | None) -> bool:
        return self._background.until(true, timeout)

    def _judge_not(self, true: True_, what: str, timeout: float | None) -> None:
        __tracebackhide__ = True
        # What was printed does not go away: there is nothing to wait for.
        super()._judge_not(true, what, 0.0)

    def to_print(self, text: str, timeout: float | None = None) -> None:
        __tracebackhide__ = True
        self._judge(lambda shown: text in shown, f"to print {_quoted(text)}", timeout)

    def _exit_code(self, timeout: float | None) -> int | None:
        self._until(lambda: not self._background.running, timeout)
        return self._background.exit_code

    def _fail(self, what: str, more: str = "", timeout: float | None = None) -> NoReturn:
        __tracebackhide__ = True
        one = self._background
        fail(f"expected the background program {what}{more}\n{quoted_command(one.command)}", one)


def quoted_command(text: str) -> str:
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
