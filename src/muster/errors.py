"""Every error muster raises on purpose: what happened, what to type next, and the exit code.

    MusterError                 1  failed
    ├── UsageError              2  the words of the call are off            (ValueError)
    ├── NotFound                3  no such agent, host, snapshot            (LookupError)
    ├── TimedOut                4  a time-out or a budget ran out           (TimeoutError)
    ├── Refused                 5  refused, to protect work
    ├── Unreachable             6  the host does not answer                 (ConnectionError)
    └── Stuck                   7  delivered, but a dialog is open

They become exit codes in `cli.main`, and values beside their item in `fanout`; nowhere else.
"""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` is slow to load
if TYPE_CHECKING:
    from collections.abc import Iterable


class MusterError(Exception):
    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  {self.hint}" if self.hint else self.message


class UsageError(MusterError, ValueError):
    exit_code = 2


class NotFound(MusterError, LookupError):
    exit_code = 3


class TimedOut(MusterError, TimeoutError):
    exit_code = 4


class Refused(MusterError):
    exit_code = 5


class Unreachable(MusterError, ConnectionError):
    exit_code = 6


class Stuck(MusterError):
    exit_code = 7


#: When a verb acts on many agents, the exit code is the worst one, in this order.
WORST_FIRST = (6, 5, 7, 4, 3, 2, 1, 0)


def worst(codes: list[int]) -> int:
    """The one exit code for many results."""
    known = [code for code in WORST_FIRST if code in codes]
    return known[0] if known else (max(codes) if codes else 0)


def close(word: str, known: Iterable[str], count: int = 3) -> list[str]:
    """Return the known words that `word` is probably a misspelling or the beginning of, best first; often none.

    Case and leading dashes are ignored. A wrong suggestion is worse than none, so distant matches are left out.
    """
    import difflib

    by_key: dict[str, str] = {}
    for name in known:
        by_key.setdefault(name.lstrip("-").lower(), name)
    key = word.lstrip("-").lower()
    if key in by_key:
        return [by_key[key]]
    begun = [name for name in by_key if name.startswith(key)] if len(key) > 2 else []
    matches = difflib.get_close_matches(key, by_key, count, 0.7) if key else []
    if len(begun) == 1:
        matches = [*begun, *(match for match in matches if match != begun[0])]
    return [by_key[match] for match in matches[:count]]


def nearest(word: str, known: Iterable[str]) -> str:
    """Return a hint: the known word that `word` probably stands for, or all of them."""
    words = list(known)
    found = close(word, words, 1)
    return f"did you mean {found[0]!r}?" if found else f"known: {', '.join(sorted(words))}"
