"""Everything that muster prints. What an agent wrote is shown, never obeyed: control characters are taken out."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TextIO

from ..errors import MusterError
from .main import silence

if TYPE_CHECKING:
    from ..model import Bill

COLOURS = {
    "working": "32",
    "ready": "36",
    "waiting": "33;1",
    "failed": "31;1",
    "lost": "31",
    "unreachable": "31",
    "done": "32;2",
    "stopped": "2",
    "starting": "32;2",
}


_outlives = False


def outlive() -> None:
    """From now on an output that is lost ends nothing; what is said is lost with it."""
    global _outlives
    _outlives = True


def out(text: str = "", end: str = "\n") -> None:
    _write(sys.stdout, text + end, at_once=_outlives)


def _write(stream: TextIO, text: str, at_once: bool = False) -> None:
    try:
        try:
            stream.write(text)
        except UnicodeEncodeError:  # a terminal that does not have the character, or half a character of an agent's
            stream.write(text.encode(stream.encoding or "ascii", "backslashreplace").decode(stream.encoding or "ascii"))
        if at_once:
            stream.flush()
    except OSError as error:
        _lost(stream, error)


def _lost(stream: TextIO, error: OSError) -> None:
    """Of what goes to stderr nobody can be told that it is lost; of stdout it is the answer itself that is."""
    if stream is sys.stderr or _outlives:
        silence(stream)
    elif isinstance(error, BrokenPipeError):
        raise error
    else:
        silence(stream)
        raise unwritten(error) from error


def unwritten(error: OSError) -> MusterError:
    where = f": {error.filename}" if error.filename else ""
    what = os.strerror(error.errno or 0)
    return MusterError(f"cannot write the output: {what}{where}", "free that place, or write to another one")


def flush() -> None:
    _write(sys.stdout, "", at_once=True)


def raw(data: bytes) -> None:
    flush()
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except OSError as error:
        _lost(sys.stdout, error)


def note(text: str) -> None:
    """Progress and messages, which go to stderr."""
    _write(sys.stderr, plain(text, keep="\n") + "\n", at_once=True)


def live(text: str = "") -> None:
    """The last line of a terminal, written over the one before."""
    _write(sys.stderr, f"\r\x1b[K{plain(text)}", at_once=True)


def document(value: Any) -> None:
    """The one JSON document of a verb."""
    out(_json(value, 2 if sys.stdout.isatty() else None))


def line(value: Any) -> None:
    """One line of JSON Lines."""
    out(_json(value))
    flush()


def _json(value: Any, indent: int | None = None) -> str:
    """JSON in which every character that could do something to a terminal is escaped; it reads back the same."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    if text.replace("\n", "").isprintable():
        return text
    return "".join(char if char == "\n" or char.isprintable() else json.dumps(char)[1:-1] for char in text)


#: What to type, by exit code, for an error that does not say so itself.
HINTS = {
    2: "muster --help lists the verbs; muster VERB --help their options",
    3: "muster list",
    6: "muster doctor",
}


def error(problem: MusterError, as_json: bool = False) -> None:
    if as_json:
        try:
            line({"error": problem_json(problem)})
        except (BrokenPipeError, MusterError):
            silence(sys.stdout)  # the exit code tells it all the same
    note(f"muster: {problem.message}\n  {_hint(problem)}")


def problem_json(problem: MusterError) -> dict[str, Any]:
    return {"message": problem.message, "hint": _hint(problem), "code": problem.exit_code}


def _hint(problem: MusterError) -> str:
    return problem.hint or HINTS.get(problem.exit_code, "muster doctor shows what is missing")


def plain(text: str, keep: str = "") -> str:
    """The text without control characters (and without the tricks of bidirectional text)."""
    return "".join(
        char
        if char in keep
        or (char.isprintable() and not "\u202a" <= char <= "\u202e" and not "\u2066" <= char <= "\u2069")
        else " "
        for char in text
    )


def colour(text: str, state: str) -> str:
    if not coloured():
        return text
    return f"\x1b[{COLOURS.get(state, '0')}m{text}\x1b[0m"


def coloured() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def width() -> int:
    """The width of the terminal; without one, lines are not cut."""
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns if sys.stdout.isatty() else 0
    except OSError:
        return 0


def table(head: Sequence[str], rows: Sequence[Sequence[str]], states: Sequence[str] = ()) -> None:
    """Columns as wide as they need; the last one is cut at the edge of a terminal."""
    cells = [[plain(cell) for cell in row] for row in rows]
    widths = [max([len(title), *(len(row[i]) for row in cells)]) for i, title in enumerate(head)]
    limit = width()
    for index, row in enumerate([list(head), *cells]):
        text = "  ".join(cell.ljust(size) for cell, size in zip(row, widths, strict=True)).rstrip()
        if limit and len(text) > limit:
            text = text[: limit - 1] + "…"
        if index and states:
            text = _paint(text, row, head, widths, states[index - 1])
        elif index == 0 and coloured():
            text = f"\x1b[2m{text}\x1b[0m"
        out(text)


def _paint(text: str, row: Sequence[str], head: Sequence[str], widths: Sequence[int], state: str) -> str:
    if not coloured() or "STATE" not in head:
        return text
    column = list(head).index("STATE")
    start = sum(size + 2 for size in widths[:column])
    end = start + len(row[column])
    return text[:start] + colour(text[start:end], state) + text[end:]


def bill_json(bill: Bill) -> dict[str, Any]:
    models = [{**row._asdict(), "model": plain(row.model)} for row in bill.models]
    return {"tokens": bill.tokens, "cost_usd": bill.cost_usd, "models": models}


def dollars(cost: float | None) -> str:
    """An amount to be read. What is not known is no amount, and what is little is not nothing."""
    if cost is None:
        return "-"
    return "<$0.01" if 0 < cost < 0.01 else f"${cost:.2f}"


def age(seconds: float) -> str:
    """`12s`, `5m`, `3h`, `2d`."""
    seconds = max(0.0, seconds)
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:.0f}s"


def size(count: int) -> str:
    value = float(count)
    for unit in ("B", "KB", "MB", "GB"):
        if value < 1024 or unit == "GB":
            return f"{value:.0f} {unit}"
        value /= 1024
    return ""


def when(epoch: float) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(epoch))
    except (OverflowError, ValueError, OSError):  # an agent wrote it
        return "?"
