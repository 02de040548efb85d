"""Convert recordings of `sh/agent/recorder.sh` to asciicast v2, and find the last line of a terminal.

The input is output of agents and not trusted: it may be truncated, forged or huge. No content raises an exception, and a
recording is never loaded into memory completely.
"""

from __future__ import annotations

import codecs
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import IO, Any

CHUNK = 1 << 16
LINE = 4096
#: Longest plausible pause in seconds; a longer one means that the timing log is broken.
MAX_PAUSE = 10 * 365 * 86400.0

_LAST_LINE = re.compile(rb"Script done on [^\n\[]*\[[^\n]*\]\n\Z")
_FIRST_LINE = b"Script started on "


def meta(line: str | bytes) -> dict[str, Any]:
    """Return the content of a `.meta` file; empty if it cannot be parsed."""
    try:
        loaded = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return loaded if isinstance(loaded, dict) else {}


def convert(
    raw: IO[bytes], timing: IO[bytes] | None, meta: Mapping[str, Any], *, idle_limit: float | None = None
) -> Iterator[str]:
    """Yield the recording of one launch as lines of an asciicast v2 file, each with its newline.

    Output that the timing log does not cover follows at the end without pauses. A marker shows where a recording was cut.
    """
    yield _line(_header(meta))
    output = _Output(raw)
    output.skip_header()
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    now = 0.0
    cut = bool(meta.get("cut"))
    for kind, delta, rest in _entries(timing):
        now += min(delta, idle_limit) if idle_limit is not None else delta
        if kind == "O":
            wanted = _number(rest, 1 << 62)
            while wanted > 0:
                data = output.read(min(wanted, CHUNK))
                if not data:
                    break
                wanted -= len(data)
                if text := decode(data):
                    yield _event(now, "o", text)
            if wanted > 0:
                cut = cut or meta.get("end") is not None
                break
        elif kind == "S":
            size = _size(rest)
            if size:
                yield _event(now, "r", size)
    for data in output.rest():
        if text := decode(data):
            yield _event(now, "o", text)
    if text := decode(b"", True):
        yield _event(now, "o", text)
    if cut:
        yield _event(now, "m", "the recording was cut here: it reached its size limit, or the disk was full")


def join(
    casts: Iterable[Iterable[str]], *, gap: float = 2.0, idle_limit: float | None = None, name: str = "launch"
) -> Iterator[str]:
    """Join the recordings of several launches. Each begins with a marker and a clear screen, at most `gap` seconds after
    the previous one."""
    size = ""
    elapsed = 0.0
    ended: float | None = None
    for number, lines in enumerate(casts, 1):
        last = 0.0
        opened = False
        for line in lines:
            entry = _parse(line)
            if isinstance(entry, dict) and not opened:
                opened = True
                started = _finite(entry.get("timestamp"))
                header = _valid_header(entry)
                this = f"{header['width']}x{header['height']}"
                if not size:
                    size = this
                    yield _line(header)
                else:
                    pause = started - ended if ended is not None and started is not None else gap
                    elapsed += min(max(pause, 0.0), gap)
                    yield _event(elapsed, "o", "\x1bc")
                    if this != size:
                        size = this
                        yield _event(elapsed, "r", this)
                yield _event(elapsed, "m", f"{name} {number}")
                ended = started
            elif opened and isinstance(entry, list) and len(entry) == 3 and isinstance(entry[1], str):
                at = _finite(entry[0])
                if at is None or not isinstance(entry[2], str):
                    continue
                step = min(max(at - last, 0.0), MAX_PAUSE)
                last = max(at, last)
                elapsed += min(step, idle_limit) if idle_limit is not None else step
                if entry[1] == "r":
                    size = entry[2]
                yield _event(elapsed, _valid_text(entry[1]), _valid_text(entry[2]))
        if ended is not None:
            ended += last


_ESCAPES = re.compile(
    r"""
    (?:\x1b\[|\x9b) [0-?]* [ -/]* (?P<final>[@-~])?        # CSI, even if incomplete
    | (?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f]) [^\x07\x1b\x9c\n]* (?:\x07|\x1b\\|\x9c)?   # OSC, DCS, SOS, PM, APC
    | \x1b [ -/]* [0-~]?                                   # any other escape sequence
    """,
    re.VERBOSE,
)
_RETURN = re.compile(r"\r+\n?")
#: Number of bytes that a survey reads from the end of a terminal's output. They may begin within an escape sequence.
SURVEY_BYTES = 600
_PARTIAL = re.compile(rb"^\x1b?\[?[0-?]*[ -/]*[@-~]")


def strip(text: str) -> str:
    """Return the text without escape sequences and control characters. Newlines and tabs stay; returns become newlines."""
    return "".join(c for c in _RETURN.sub("\n", _ESCAPES.sub("", text)) if c.isprintable() or c in "\n\t")


def last_line(tail: bytes, limit: int = 1000) -> str:
    """Return the last non-empty line of a terminal's last bytes, safe to print and cut to `limit` characters.

    A sequence that moves the cursor to another row ends a line. Text overwritten after a carriage return is dropped.
    """
    if len(tail) >= SURVEY_BYTES:
        tail = _PARTIAL.sub(b"", tail, 1)
    tail = _without_last_line(tail[-(1 << 20) :])
    if tail.startswith(_FIRST_LINE):
        tail = tail.partition(b"\n")[2]
    while tail and tail[0] & 0xC0 == 0x80:
        tail = tail[1:]
    text = _ESCAPES.sub(_replace_escape, tail.decode("utf-8", "ignore"))
    for line in reversed(re.split(r"[\n\v\f\x85\u2028\u2029]", text)):
        for part in reversed(line.split("\r")):
            if "\b" in part:
                part = _apply_backspaces(part)
            clean = " ".join("".join(c for c in part if c.isprintable() or c == "\t").split())
            if clean:
                return clean[:limit]
    return ""


def _replace_escape(escape: re.Match[str]) -> str:
    """Return a newline for a sequence that moves to another row, a space for one that moves in the row, else nothing."""
    final = escape["final"]
    if final is None:
        return "\n" if escape[0] in ("\x1bD", "\x1bE", "\x1bM", "\x1bc") else ""
    return "\n" if final in "ABEFHJdf" else " " if final in "CG" else ""


def _apply_backspaces(line: str) -> str:
    kept: list[str] = []
    for char in line:
        if char != "\b":
            kept.append(char)
        elif kept:
            kept.pop()
    return "".join(kept)


class _Output:
    """The raw output without the first and the last line, which `script` adds."""

    def __init__(self, raw: IO[bytes]) -> None:
        self._raw = raw
        self._ahead = b""

    def skip_header(self) -> None:
        first = self._raw.readline(LINE)
        if not first.startswith(_FIRST_LINE):
            self._ahead = first

    def read(self, count: int) -> bytes:
        if self._ahead:
            data, self._ahead = self._ahead[:count], self._ahead[count:]
            return data
        return self._raw.read(count) or b""

    def rest(self) -> Iterator[bytes]:
        held = b""
        while data := self.read(CHUNK):
            held += data
            if len(held) > 2 * CHUNK:
                yield held[:CHUNK]
                held = held[CHUNK:]
        if held := _without_last_line(held):
            yield held


def _without_last_line(data: bytes) -> bytes:
    """Return the data without the line that `script` adds at its end."""
    at = data.rfind(b"Script done on ", -400)
    return data[:at].removesuffix(b"\n") if at >= 0 and _LAST_LINE.match(data, at) else data


def _entries(timing: IO[bytes] | None) -> Iterator[tuple[str, float, str]]:
    """Yield kind, pause and remainder of each line of `script`'s advanced timing log. Malformed lines are skipped."""
    while timing is not None and (line := timing.readline(LINE)):
        words = line.decode("ascii", "replace").split(None, 2)
        if not line.endswith(b"\n") or len(words) != 3 or words[0] not in ("O", "S"):
            continue
        delta = _finite(words[1])
        yield words[0], min(max(delta, 0.0), MAX_PAUSE) if delta is not None else 0.0, words[2]


def _header(meta: Mapping[str, Any]) -> dict[str, Any]:
    header: dict[str, Any] = {
        "version": 2,
        "width": _dimension(meta.get("cols"), 80),
        "height": _dimension(meta.get("rows"), 24),
    }
    start = _finite(meta.get("start"))
    if start is not None:
        header["timestamp"] = int(start)
    term = meta.get("term")
    header["env"] = {"TERM": _valid_text(term) if isinstance(term, str) and term else "xterm-256color"}
    return header


def _valid_header(header: Mapping[str, Any]) -> dict[str, Any]:
    env = header.get("env")
    term = env.get("TERM") if isinstance(env, dict) else None
    meta = {"cols": header.get("width"), "rows": header.get("height"), "start": header.get("timestamp")}
    return _header({**meta, "term": term})


def _valid_text(text: str) -> str:
    """Return the text with lone surrogates replaced, since they cannot be encoded as UTF-8."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _size(rest: str) -> str:
    """Return the COLSxROWS of a SIGWINCH entry; empty if it has none."""
    match = re.match(r"SIGWINCH ROWS=(\d{1,5}) COLS=(\d{1,5})\s*\Z", rest)
    return f"{_dimension(match[2], 80)}x{_dimension(match[1], 24)}" if match else ""


def _dimension(value: object, default: int) -> int:
    count = _number(value, 10000)
    return count if count > 0 else default


def _number(value: object, most: int) -> int:
    """Return the value as an integer from 0 to `most`; 0 if it is not one."""
    if isinstance(value, str):
        value = value.strip()
        value = int(value) if re.fullmatch(r"[0-9]{1,18}", value) else 0
    return min(max(value, 0), most) if isinstance(value, int) and not isinstance(value, bool) else 0


def _finite(value: object) -> float | None:
    """Return the value as a finite number of sensible size; None if it is not one."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) and abs(number) < 1e12 else None


def _parse(line: str) -> object:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _event(at: float, code: str, data: str) -> str:
    return _line([round(at, 6), code, data])


def _line(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(", ", ": ")) + "\n"
