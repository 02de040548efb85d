"""Recordings: what `sh/agent/recorder.sh` wrote, as asciicast v2, and the last line of a screen.

Everything here is bytes and text that an agent wrote, so it may be anything: cut in the middle, forged, huge. Nothing
raises on its content, and a recording is never held in memory as a whole. It does not know where files are.
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
#: No single pause is longer than this; script's own log cannot say more without being broken.
LONGEST = 10 * 365 * 86400.0

_DONE = re.compile(rb"Script done on [^\n\[]*\[[^\n]*\]\n\Z")
_STARTED = b"Script started on "


def meta(line: str | bytes) -> dict[str, Any]:
    """What a `.meta` file says; empty when it cannot be read."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def convert(
    raw: IO[bytes], timing: IO[bytes] | None, meta: Mapping[str, Any], *, idle_limit: float | None = None
) -> Iterator[str]:
    """The recording of one launch as lines of an asciicast v2 file, each with its newline.

    Output not covered by the timing log comes as one burst at the end. A marker says so where the recording was cut.
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
    """Several launches as one recording: `gap` seconds between them at most, each on a clear screen after a marker."""
    size = ""
    shown = 0.0
    ended: float | None = None
    for number, lines in enumerate(casts, 1):
        last = 0.0
        opened = False
        for line in lines:
            found = _parse(line)
            if isinstance(found, dict) and not opened:
                opened = True
                started = _real(found.get("timestamp"))
                found = _clean(found)
                this = f"{found['width']}x{found['height']}"
                if not size:
                    size = this
                    yield _line(found)
                else:
                    pause = started - ended if ended is not None and started is not None else gap
                    shown += min(max(pause, 0.0), gap)
                    yield _event(shown, "o", "\x1bc")
                    if this != size:
                        size = this
                        yield _event(shown, "r", this)
                yield _event(shown, "m", f"{name} {number}")
                ended = started
            elif opened and isinstance(found, list) and len(found) == 3 and isinstance(found[1], str):
                at = _real(found[0])
                if at is None or not isinstance(found[2], str):
                    continue
                step = min(max(at - last, 0.0), LONGEST)
                last = max(at, last)
                shown += min(step, idle_limit) if idle_limit is not None else step
                if found[1] == "r":
                    size = found[2]
                yield _event(shown, _sound(found[1]), _sound(found[2]))
        if ended is not None:
            ended += last


_ESCAPES = re.compile(
    r"""
    (?:\x1b\[|\x9b) [0-?]* [ -/]* (?P<final>[@-~])?        # CSI, also one that ends too early
    | (?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f]) [^\x07\x1b\x9c\n]* (?:\x07|\x1b\\|\x9c)?   # OSC, DCS, SOS, PM, APC
    | \x1b [ -/]* [0-~]?                                   # every other escape
    """,
    re.VERBOSE,
)
_RETURN = re.compile(r"\r+\n?")
#: What a survey takes of a terminal's last bytes: then its beginning may be the rest of a sequence.
SURVEYED = 600
_TORN = re.compile(rb"^\x1b?\[?[0-?]*[ -/]*[@-~]")


def strip(text: str) -> str:
    """The text without escape sequences and control characters, except newline and tab; a return is a newline."""
    return "".join(c for c in _RETURN.sub("\n", _ESCAPES.sub("", text)) if c.isprintable() or c in "\n\t")


def last_line(tail: bytes, limit: int = 1000) -> str:
    """The last line with something on it, of the last bytes a terminal got; safe to print, at most `limit` characters.

    A sequence that moves the cursor to another row ends a line; what a carriage return overwrote is not shown.
    """
    if len(tail) >= SURVEYED:
        tail = _TORN.sub(b"", tail, 1)
    tail = _undone(tail[-(1 << 20) :])
    if tail.startswith(_STARTED):
        tail = tail.partition(b"\n")[2]
    while tail and tail[0] & 0xC0 == 0x80:
        tail = tail[1:]
    text = _ESCAPES.sub(_moved, tail.decode("utf-8", "ignore"))
    for line in reversed(re.split(r"[\n\v\f\x85\u2028\u2029]", text)):
        for part in reversed(line.split("\r")):
            if "\b" in part:
                part = _erase(part)
            clean = " ".join("".join(c for c in part if c.isprintable() or c == "\t").split())
            if clean:
                return clean[:limit]
    return ""


def _moved(found: re.Match[str]) -> str:
    final = found["final"]
    if final is None:
        return "\n" if found[0] in ("\x1bD", "\x1bE", "\x1bM", "\x1bc") else ""
    return "\n" if final in "ABEFHJdf" else " " if final in "CG" else ""


def _erase(line: str) -> str:
    kept: list[str] = []
    for char in line:
        if char != "\b":
            kept.append(char)
        elif kept:
            kept.pop()
    return "".join(kept)


class _Output:
    """The raw stream without the two lines script itself adds. Holds back what might be the last of them."""

    def __init__(self, raw: IO[bytes]) -> None:
        self._raw = raw
        self._ahead = b""

    def skip_header(self) -> None:
        first = self._raw.readline(LINE)
        if not first.startswith(_STARTED):
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
        if held := _undone(held):
            yield held


def _undone(data: bytes) -> bytes:
    """The data without the line that script adds at the end of its log."""
    at = data.rfind(b"Script done on ", -400)
    return data[:at].removesuffix(b"\n") if at >= 0 and _DONE.match(data, at) else data


def _entries(timing: IO[bytes] | None) -> Iterator[tuple[str, float, str]]:
    """Kind, pause and the rest of each whole line of script's advanced timing log; what makes no sense is skipped."""
    while timing is not None and (line := timing.readline(LINE)):
        words = line.decode("ascii", "replace").split(None, 2)
        if not line.endswith(b"\n") or len(words) != 3 or words[0] not in ("O", "S"):
            continue
        delta = _real(words[1])
        yield words[0], min(max(delta, 0.0), LONGEST) if delta is not None else 0.0, words[2]


def _header(meta: Mapping[str, Any]) -> dict[str, Any]:
    header: dict[str, Any] = {"version": 2, "width": _side(meta.get("cols"), 80), "height": _side(meta.get("rows"), 24)}
    start = _real(meta.get("start"))
    if start is not None:
        header["timestamp"] = int(start)
    term = meta.get("term")
    header["env"] = {"TERM": _sound(term) if isinstance(term, str) and term else "xterm-256color"}
    return header


def _clean(header: Mapping[str, Any]) -> dict[str, Any]:
    env = header.get("env")
    term = env.get("TERM") if isinstance(env, dict) else None
    told = {"cols": header.get("width"), "rows": header.get("height"), "start": header.get("timestamp")}
    return _header({**told, "term": term})


def _sound(text: str) -> str:
    """The text without lone surrogates, which no file could take."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _size(rest: str) -> str:
    """`COLSxROWS` of a SIGWINCH entry, or nothing."""
    found = re.match(r"SIGWINCH ROWS=(\d{1,5}) COLS=(\d{1,5})\s*\Z", rest)
    return f"{_side(found[2], 80)}x{_side(found[1], 24)}" if found else ""


def _side(value: object, default: int) -> int:
    count = _number(value, 10000)
    return count if count > 0 else default


def _number(value: object, most: int) -> int:
    """A whole number from 0 to `most`; 0 for anything else."""
    if isinstance(value, str):
        value = value.strip()
        value = int(value) if re.fullmatch(r"[0-9]{1,18}", value) else 0
    return min(max(value, 0), most) if isinstance(value, int) and not isinstance(value, bool) else 0


def _real(value: object) -> float | None:
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
