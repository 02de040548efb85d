"""Hide secrets in everything that is written, and mask values that differ from run to run where a test asks for it."""

from __future__ import annotations

import re
from collections.abc import Iterable

HIDDEN = "****"
#: Shorter values are not treated as secrets: hiding every "1" would make the transcript useless.
SHORTEST = 4

#: Patterns of values that change from run to run and their replacements, applied in this order.
MASKS: tuple[tuple[str, str], ...] = (
    (r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b", "<uuid>"),
    (r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?", "<time>"),
    (r"\b\d{4}-\d\d-\d\d\b", "<date>"),
    (r"\b\d\d:\d\d:\d\d(?:[.,]\d+)?\b", "<time>"),
    (r"\b\d+(?:\.\d+)? ?(?:ms|µs|us|ns|s|sec|seconds?|minutes?|min|hours?|h)\b", "<duration>"),
    # One in thirty short git hashes has only digits, so digits alone are an id unless they are part of a decimal number.
    (r"(?<![\d.,])\b(?=[0-9a-f]*[0-9])[0-9a-f]{7,64}\b(?![.,]\d)", "<id>"),
    (r"\b[pP][iI][dD][ =:]+\d+\b", "<pid>"),
)


class Masks:
    """The masks of one test: built-in patterns, patterns of the project, and the folders of the test."""

    def __init__(self, paths: Iterable[tuple[str, str]] = (), more: Iterable[tuple[str, str]] = ()) -> None:
        # The longest path first, so that a folder is not masked as a part of its parent.
        self._paths = sorted(paths, key=lambda pair: -len(pair[0]))
        self._patterns = [(re.compile(pattern), name) for pattern, name in (*more, *MASKS)]

    def add(self, pattern: str, name: str) -> None:
        """Replace matches of the pattern by `name`, before the built-in masks are applied."""
        self._patterns.insert(0, (re.compile(pattern), name))

    def apply(self, text: str) -> str:
        for path, name in self._paths:
            text = text.replace(path, name)
        for pattern, name in self._patterns:
            text = pattern.sub(name, text)
        return text


#: What a program may send between two characters of a text on the screen: colours, cursor movements, row ends.
_SEQUENCE = r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[()][0-9A-Z]| \r|[\r\x08]"
_ROW_END = r"|\n {0,4}"
#: An incomplete sequence of this kind at the end of the data.
_BEGUN = re.compile(rb"(?:\x1b(?:\[[0-?]*[ -/]*|\][^\x07\x1b]*\x1b?|[()])?| )\Z")


class Secrets:
    """Values to hide in every file. Each line of a multi-line value is hidden as well.

    A value is found even if a terminal program colours it, moves the cursor inside it, or wraps it.
    """

    def __init__(self, values: Iterable[str] = ()) -> None:
        self.values: list[str] = []
        self._found: list[re.Pattern[str]] = []
        self._found_bytes: list[tuple[bytes, re.Pattern[bytes], re.Pattern[bytes]]] = []
        self.add(values)

    def add(self, values: Iterable[str], shortest: int = SHORTEST) -> None:
        """Hide these values too, from now on."""
        parts = {part.strip() for value in values for part in (value, *value.splitlines())}
        known = {*self.values, *(part for part in parts if len(part) >= shortest)}
        self.values = sorted(known, key=lambda value: (-len(value), value))
        self._found = [re.compile(_with_gaps(value, _gap(value))) for value in self.values]
        self._found_bytes = []
        for value in self.values:
            # latin-1 maps each byte to one character, so the pattern can be built as text.
            data, gap = value.encode("utf-8", "surrogateescape"), _gap(value).encode()
            self._found_bytes.append(
                (data, re.compile(_with_gaps(data.decode("latin-1"), _gap(value)).encode("latin-1")), re.compile(gap))
            )

    def hide(self, text: str) -> str:
        for pattern in self._found:
            text = pattern.sub(HIDDEN, text)
        return text

    def hide_bytes(self, data: bytes) -> bytes:
        for _, pattern, _ in self._found_bytes:
            data = pattern.sub(HIDDEN.encode(), data)
        return data

    def pending_bytes(self, data: bytes) -> int:
        """Return how many bytes at the end of `data` could be the start of a secret whose rest has not arrived yet."""
        most = 0
        for value, _, gap in self._found_bytes:
            at = data.find(value[:1], max(0, len(data) - 8 * len(value) - 256))
            while 0 <= at < len(data) - most:
                if _ends_inside(data, at, value, gap):
                    most = len(data) - at
                    break
                at = data.find(value[:1], at + 1)
        return most


def _gap(value: str) -> str:
    # A short value spread over several rows is more likely a column of numbers than a wrapped secret.
    return f"(?:{_SEQUENCE}{_ROW_END if len(value) >= 2 * SHORTEST else ''})*"


def _with_gaps(value: str, gap: str) -> str:
    return gap.join(map(re.escape, value))


def _ends_inside(data: bytes, at: int, value: bytes, gap: re.Pattern[bytes]) -> bool:
    """Return whether the value begins at `at` and `data` ends before it is complete."""
    for number in range(len(value)):
        if number and (skipped := gap.match(data, at)):
            at = skipped.end()
        if at >= len(data) or (number and _BEGUN.match(data, at)):
            return True
        if data[at] != value[number]:
            return False
        at += 1
    return False


class StreamHider:
    """Hides secrets in a stream of bytes, including those that arrive in two pieces."""

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        data = self._secrets.hide_bytes(self._held + data)
        cut = len(data) - self._secrets.pending_bytes(data)
        data, self._held = data[:cut], data[cut:]
        return data

    def rest(self) -> bytes:
        data, self._held = self._held, b""
        return data
