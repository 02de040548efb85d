"""Define which steps a playbook may hold, and name the first thing wrong with one."""

from __future__ import annotations

import json
import re
import signal

TYPE_CHECKING = False  # `typing` itself is not loaded on the host
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    Step = dict[str, Any]

#: kind -> (type of its value, {option: type}); "!" marks an option that must be given
KINDS: dict[str, tuple[str, dict[str, str]]] = {
    "say": (
        "text",
        {"input_tokens": "count", "output_tokens": "count", "cost_usd": "number", "model": "text", "typing": "number"},
    ),
    "run": ("text", {"expect_exit": "code", "timeout": "number"}),
    "write": ("text", {"text": "text!", "mode": "mode"}),
    "delete": ("text", {}),
    "patch": ("text", {}),
    "commit": ("text", {"paths": "texts"}),
    "wait": ("number", {}),
    "turn": ("text", {}),
    "ask": ("text", {}),
    "permission": ("text", {"tool": "text!", "on_deny": "on_deny", "guards": "count"}),
    "expect": ("text", {"matches": "pattern", "equals": "text"}),
    "submit": ("text", {"summary": "text!", "reason": "text", "escalate": "texts", "artifacts": "texts"}),
    "submit_raw": ("text", {}),
    "limit": ("text", {"seconds": "number"}),
    "exit": ("code", {}),
    "hang": ("true", {}),
    "crash": ("signal", {}),
    "title": ("text", {}),
    "print": ("text", {}),
}


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _pattern(value: Any) -> bool:
    try:
        return isinstance(value, str) and bool(re.compile(value))
    except re.error:
        return False


def file_mode(value: Any) -> int:
    """Return the permissions in `0o755` or "755"; -1 if it is neither."""
    if isinstance(value, str) and re.fullmatch(r"[0-7]{3,4}", value):
        return int(value, 8)
    return value if _whole(value) and value <= 0o7777 else -1


def signal_number(name: str) -> int:
    """Return the number of "SEGV" or "SIGSEGV"; 0 if there is no such signal."""
    name = name if name.startswith("SIG") else "SIG" + name
    found = getattr(signal, name, None)
    return int(found) if isinstance(found, signal.Signals) else 0


TYPES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "text": ("a text", lambda v: isinstance(v, str)),
    "texts": ("a list of texts", lambda v: isinstance(v, list) and all(isinstance(i, str) for i in v)),
    "number": (
        "a number, 0 or more",
        lambda v: _whole(v) or (isinstance(v, float) and 0 <= v < float("inf")),
    ),
    "count": ("a whole number, 0 or more", _whole),
    "code": ("an exit code, 0 to 255", lambda v: _whole(v) and v <= 255),
    "mode": ('permissions such as "755" or 0o755', lambda v: file_mode(v) >= 0),
    "pattern": ("a regular expression", _pattern),
    "signal": ('the name of a signal such as "SEGV"', lambda v: isinstance(v, str) and signal_number(v) > 0),
    "on_deny": ('"exit" or "continue"', lambda v: v in ("exit", "continue")),
    "true": ("true", lambda v: v is True),
}


def kind_of(step: Step) -> str:
    """Return the kind of a valid step."""
    return next(key for key in step if key in KINDS)


def nearest(word: str, known: Sequence[str]) -> str:
    import difflib

    close = difflib.get_close_matches(word, known, 1, 0.5)
    return f"did you mean '{close[0]}'?" if close else f"known are {', '.join(known)}"


def _step_flaw(step: Any) -> str:
    if not isinstance(step, dict):
        return " is no table"
    kinds = [key for key in step if key in KINDS]
    if not kinds:
        word = next(iter(step), None)
        return " is empty" if word is None else f": no kind of step is called '{word}'; {nearest(word, list(KINDS))}"
    if len(kinds) > 1:
        return ": it is of one kind only, not of {}".format(" and ".join(kinds))
    kind = kinds[0]
    type_, options = KINDS[kind]
    for key, value in step.items():
        if key != kind and key not in options:
            what = nearest(key, list(options)) if options else "it takes none"
            return f" ({kind}): there is no option '{key}'; {what}"
        words, fits = TYPES[type_ if key == kind else options[key].rstrip("!")]
        if not fits(value):
            return f" ({kind}): '{key}' must be {words}, not {json.dumps(value, default=str)[:80]}"
    missing = [key for key, type_ in options.items() if type_.endswith("!") and key not in step]
    return f" ({kind}): '{missing[0]}' is missing" if missing else ""


def flaw(document: Any) -> str:
    """Return the first thing wrong with `{"version": 1, "steps": [...], "wait_for_message": false}`, or ""."""
    if not isinstance(document, dict) or not isinstance(document.get("steps"), list):
        return "it has no list of steps"
    if document.get("version") != 1:
        return "its version is {}; this player knows 1".format(json.dumps(document.get("version"), default=str))
    for key in document:
        if key not in ("version", "steps", "wait_for_message"):
            return "there is no key '{}'; {}".format(key, nearest(key, ["version", "steps", "wait_for_message"]))
    if not isinstance(document.get("wait_for_message", False), bool):
        return "'wait_for_message' must be true or false"
    for number, step in enumerate(document["steps"], 1):
        found = _step_flaw(step)
        if found:
            return f"step {number}{found}"
    return ""
