"""Read playbooks from TOML and write them as TOML. `player/format.py` defines which steps there are."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...errors import NotFound, UsageError
from .player import format

Step = dict[str, Any]

KEYS = ("version", "wait_for_message", "step")
HINT = "the format is described in docs/playbooks.md"


def document(text: str, where: str = "playbook") -> dict[str, Any]:
    """Return a playbook as the player reads it from `session/playbook.json`.

    Raise UsageError that names `where`, the step and the nearest valid word.
    """
    import tomllib

    try:
        given = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{where}: {error}", HINT) from None
    for key in given:
        if key not in KEYS:
            raise UsageError(f"{where}: there is no key '{key}'; {format.nearest(key, KEYS)}", HINT)
    whole = {"version": 1, **given, "steps": given.get("step", [])}
    whole.pop("step", None)
    _refuse(whole, where)
    return whole


def read(path: Path) -> dict[str, Any]:
    """Return the `document` in a file. Raise NotFound if it cannot be read."""
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise NotFound(f"no playbook {path}: {error.strerror}", HINT) from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is no text in UTF-8", HINT) from None
    return document(text, str(path))


def check(steps: Sequence[Step], where: str = "playbook") -> None:
    """Raise UsageError if the player would refuse these steps."""
    _refuse({"version": 1, "steps": list(steps)}, where)


def _refuse(whole: dict[str, Any], where: str) -> None:
    if flaw := format.flaw(whole):
        raise UsageError(f"{where}: {flaw}", HINT)


def dump(steps: Sequence[Step], wait_for_message: bool = False) -> str:
    """Return a playbook as TOML: `document(dump(steps))["steps"] == steps`. Raise UsageError if they cannot be played."""
    check(steps)
    parts = ["wait_for_message = true\n"] if wait_for_message else []
    for step in steps:
        kind = format.kind_of(step)
        keys = [kind, *(key for key in step if key != kind)]
        parts.append("[[step]]\n" + "".join(f"{key} = {_value(step[key])}\n" for key in keys))
    text = "\n".join(parts)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"no playbook can hold half a character: {text[: error.end][-40:]!r}") from None
    return text


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, list):
        return "[" + ", ".join(_quoted(item) for item in value) + "]"
    return repr(value)


#: what no TOML string may hold as it is; CR too, since CRLF would come back as LF
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


def _text(text: str) -> str:
    """The most readable form that comes back exactly."""
    lines = "\n" in text
    if "\\" in text and not CONTROL.search(text) and "''" not in text and not text.endswith("'"):
        if lines:
            return f"'''\n{text}'''"
        if "'" not in text:
            return f"'{text}'"
    return '"""\n' + _escaped(text, r'"(?="|\Z)') + '"""' if lines else _quoted(text)


def _quoted(text: str) -> str:
    return '"' + _escaped(text, '["\n]') + '"'


def _escaped(text: str, also: str) -> str:
    def escape(match: re.Match[str]) -> str:
        char = match.group()
        return {"\n": "\\n", "\r": "\\r", "\\": "\\\\", '"': '\\"'}.get(char) or f"\\u{ord(char):04x}"

    return re.sub(rf"{CONTROL.pattern}|\\|{also}", escape, text)
