"""All output of muster. Text that agents wrote is hostile, so control characters are removed from it."""

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
    """Ignore output that cannot be written from now on, instead of ending with an error."""
    global _outlives
    _outlives = True


def out(text: str = "", end: str = "\n") -> None:
    _write(sys.stdout, text + end, at_once=_outlives)


def _write(stream: TextIO, text: str, at_once: bool = False) -> None:
    try:
        try:
            stream.write(text)
        except UnicodeEncodeError:  # the terminal's encoding lacks the character, or an agent wrote half of one
            stream.write(text.encode(stream.encoding or "ascii", "backslashreplace").decode(stream.encoding or "ascii"))
        if at_once:
            stream.flush()
    except OSError as error:
        _lost(stream, error)


def _lost(stream: TextIO, error: OSError) -> None:
    """Handle output that cannot be written. Losing progress on stderr is ignored; losing the answer on stdout is an error."""
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
    """Print progress or a message, on stderr."""
    _write(sys.stderr, plain(text, keep="\n") + "\n", at_once=True)


def paragraph(text: str) -> None:
    """Print a text, which may have several lines, wrapped at the width of the terminal."""
    limit = width()
    for line in text.splitlines():
        for part in wrap(plain(line), limit) if limit and columns(plain(line)) > limit else [plain(line)]:
            out(part)


def live(text: str = "") -> None:
    """Replace the last line of the terminal."""
    _write(sys.stderr, f"\r\x1b[K{plain(text)}", at_once=True)


def document(value: Any) -> None:
    """Print the JSON document of a verb."""
    out(_json(value, 2 if sys.stdout.isatty() else None))


def line(value: Any) -> None:
    """Print one line of JSON Lines."""
    out(_json(value))
    flush()


def _json(value: Any, indent: int | None = None) -> str:
    """Return JSON in which every character that could affect a terminal is escaped."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    if text.replace("\n", "").isprintable():
        return text
    return "".join(char if char == "\n" or char.isprintable() else json.dumps(char)[1:-1] for char in text)


#: Hints by exit code, for errors without one.
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
            silence(sys.stdout)  # the exit code still reports the error
    note(f"muster: {problem.message}\n  {_hint(problem)}")


def problem_json(problem: MusterError) -> dict[str, Any]:
    return {"message": problem.message, "hint": _hint(problem), "code": problem.exit_code}


def _hint(problem: MusterError) -> str:
    return problem.hint or HINTS.get(problem.exit_code, "muster doctor shows what is missing")


def plain(text: str, keep: str = "") -> str:
    """Return the text without control characters, including those that reorder text."""
    if text.isascii() and text.isprintable():
        return text
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
    """Return the width of the terminal; 0 without one, and then lines are not cut."""
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns if sys.stdout.isatty() else 0
    except OSError:
        return 0


class Clip(str):
    """A cell of a table that may be cut at the edge of the terminal. Any other cell is wrapped instead."""

    __slots__ = ()


class Command(str):
    """A cell that holds a command to type. It is wrapped so that the copied lines still are that command."""

    __slots__ = ()


#: A column of text gets at least this width before other columns are dropped for it.
TEXT_WIDTH = 24


def table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    states: Sequence[str] = (),
    *,
    drop: Sequence[str] = (),
    text: Sequence[str] = (),
) -> None:
    """Print columns as wide as they need.

    On a terminal that is too narrow the columns in `drop` are left out, the least useful one being first, until the
    rest fits. Columns in `text` hold sentences: they get the space that is left, and their cells are wrapped, or cut
    if they are `Clip`. If even that does not fit, each text cell goes below its row. Nothing else is ever cut.
    """
    titles, cells = list(head), [[_cell(cell) for cell in row] for row in rows]
    widths = [max([columns(title), *(columns(row[i]) for row in cells)]) for i, title in enumerate(titles)]
    limit = width()
    if limit:
        kept = _fitting(titles, widths, limit, drop, text)
        titles, widths = [titles[i] for i in kept], [widths[i] for i in kept]
        cells = [[row[i] for i in kept] for row in cells]
        if _total(widths) > limit:
            widths = _shrunk(titles, widths, limit, text)
    below = [i for i, size in enumerate(widths) if size == 0 and titles[i]]
    beside = [i for i in range(len(titles)) if i not in below]
    for index, row in enumerate([titles, *cells]):
        painted = states[index - 1] if index and states else ""
        _row([row[i] for i in beside], [widths[i] for i in beside], [titles[i] for i in beside], painted, not index)
        for i in below if index else ():
            for line in _wrapped(row[i], limit - 2) if row[i].strip("- ") else ():
                out(f"  {line}")


def _cell(cell: str) -> str:
    return cell.__class__(plain(cell))


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + 2 * (len(widths) - 1)


def _fitting(titles: list[str], widths: list[int], limit: int, drop: Sequence[str], text: Sequence[str]) -> list[int]:
    """Return the columns to show: all that fit beside text columns of a readable width."""
    kept = list(range(len(titles)))
    for title in ("", *drop):
        least = [min(widths[i], TEXT_WIDTH) if titles[i] in text else widths[i] for i in kept]
        if _total(least) <= limit:
            break
        kept = [i for i in kept if titles[i] != title]
    return kept


def _shrunk(titles: list[str], widths: list[int], limit: int, text: Sequence[str]) -> list[int]:
    """Return widths that fit; 0 for a text column that goes below its row."""
    flexible = [i for i, title in enumerate(titles) if title in text]
    least = [min(size, TEXT_WIDTH) if i in flexible else size for i, size in enumerate(widths)]
    if _total(least) > limit:
        return [0 if i in flexible else size for i, size in enumerate(widths)]
    spare = limit - _total(least)
    for i in flexible:
        more = min(spare, widths[i] - least[i])
        least[i] += more
        spare -= more
    return least


def _row(row: list[str], widths: list[int], titles: list[str], state: str, is_head: bool) -> None:
    split = [_wrapped(cell, size) if columns(cell) > size else [cell] for cell, size in zip(row, widths, strict=True)]
    for number in range(max(map(len, split), default=0)):
        parts = []
        for lines, size, title in zip(split, widths, titles, strict=True):
            line = lines[number] if number < len(lines) else ""
            padding = " " * (size - columns(line))
            parts.append((colour(line, state) if state and title == "STATE" and line else line) + padding)
        text = "  ".join(parts).rstrip()
        out(f"\x1b[2m{text}\x1b[0m" if is_head and coloured() else text)


def _wrapped(cell: str, size: int) -> list[str]:
    """Return the lines of a cell, none wider than `size` unless one word of a command is."""
    if isinstance(cell, Clip):
        return [clipped(cell, size)]
    if isinstance(cell, Command):
        return wrap_command(cell, size)
    return wrap(cell, size)


def columns(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(char) else 2 if east_asian_width(char) in "WF" else 1 for char in text)


def clipped(text: str, size: int) -> str:
    """Return the text, cut to `size` columns with an ellipsis."""
    if columns(text) <= size:
        return text
    kept = text[: size - 1]
    while columns(kept) > size - 1:
        kept = kept[:-1]
    return f"{kept}…"


def wrap(text: str, size: int) -> list[str]:
    """Return a text in lines of at most `size` columns; a longer word is split."""
    lines, line = [], ""
    for word in text.split():
        if line and columns(line) + 1 + columns(word) > size:
            lines.append(line)
            line = ""
        line = f"{line} {word}" if line else word
        while columns(line) > size:
            cut = size
            while columns(line[:cut]) > size:
                cut -= 1
            cut = max(cut, 1)
            lines.append(line[:cut])
            line = line[cut:]
    return [*lines, line] if line or not lines else lines


def wrap_command(command: str, size: int) -> list[str]:
    """Return a command in lines that a shell reads as that one command: split at spaces outside of quotes, with ` \\`."""
    words, word, quote = [], "", ""
    for char in command:
        if char == " " and not quote:
            words.append(word)
            word = ""
            continue
        if char in "'\"" and quote in ("", char):
            quote = "" if quote else char
        word += char
    first, *others = [*words, word]
    lines = [first]
    for other in others:
        if columns(lines[-1]) + 1 + columns(other) > size - 2:
            lines[-1] += " \\"
            lines.append(other)
        else:
            lines[-1] += f" {other}"
    return lines


def bill_json(bill: Bill) -> dict[str, Any]:
    models = [{**row._asdict(), "model": plain(row.model)} for row in bill.models]
    return {"tokens": bill.tokens, "cost_usd": bill.cost_usd, "models": models}


def dollars(cost: float | None) -> str:
    """Format dollars for people: `-` if unknown, and never $0.00 for a small amount."""
    if cost is None:
        return "-"
    return "<$0.01" if 0 < cost < 0.01 else f"${cost:.2f}"


def age(seconds: float) -> str:
    """Format a duration as `12s`, `5m`, `3h` or `2d`."""
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
