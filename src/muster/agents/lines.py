"""A client's own transcript in muster's schema, read as a table says: for types that are described in TOML.

[types.NAME.lines]
role = "type"                  # user, assistant, tool, error; lines with another word are passed over
text = "message.content"       # a string, or parts of which each may have a text
time = "timestamp"             # seconds since 1970, or ISO 8601
id = "message.id"              # of lines with the same id the tokens count once
model = "message.model"
tool = "tool.name"
input = "tool.input"
input_tokens = "message.usage.input_tokens"    # and output_tokens, cache_read_tokens, cache_write_tokens
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from ..errors import UsageError

TOKENS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
WORDS = ("role", "text", "time", "id", "model", "tool", "input", *TOKENS)
ROLES = ("user", "assistant", "tool", "error")

Line = dict[str, Any]


def reader(table: dict[str, str], where: str) -> Callable[[list[Line]], list[Line]]:
    """The function that reads lines so. UsageError, naming `where`, for a table that says too little or too much."""
    for word in table:
        if word not in WORDS:
            raise UsageError(f"{where} has no key {word!r}", f"known keys: {', '.join(WORDS)}")
    for word in ("role", "text"):
        if word not in table:
            raise UsageError(f"{where} needs {word}", f'{word} = "dotted.path"')

    def read(lines: list[Line]) -> list[Line]:
        counted: set[str] = set()
        found = (_entry(line, table, counted) for line in lines)
        return [entry for entry in found if entry]

    return read


def _entry(line: Line, table: dict[str, str], counted: set[str]) -> Line | None:
    def at(word: str) -> Any:
        value: Any = line
        for key in table[word].split(".") if word in table else ():
            value = value.get(key) if isinstance(value, dict) else None
        return value if word in table else None

    role, text, tool = at("role"), plain(at("text")), at("tool")
    if role not in ROLES or not (text or tool):
        return None
    entry: Line = {"t": moment(at("time")), "role": role, "text": text}
    if isinstance(tool, str):
        entry |= {"role": "tool", "tool": {"name": tool, "input": at("input"), "output": None}}
        entry["text"] = text or tool
    if isinstance(model := at("model"), str):
        entry["model"] = model
    key = str(at("id") or "")
    usage = {word: count for word in TOKENS if isinstance(count := at(word), int) and 0 <= count < 1e15}
    if usage and (not key or key not in counted):
        counted.add(key)
        entry["usage"] = usage
    return entry


def plain(content: Any) -> str:
    """The text of a message, which may be in parts."""
    if isinstance(content, list):
        return "\n".join(str(part["text"]) for part in content if isinstance(part, dict) and part.get("text"))
    return content if isinstance(content, str) else ""


def moment(stamp: Any) -> float:
    """Seconds since 1970; 0 for what is no time."""
    from datetime import datetime

    if isinstance(stamp, int | float) and 0 <= stamp < 1e14:
        return stamp / 1000 if stamp > 1e11 else float(stamp)
    try:
        return datetime.fromisoformat(str(stamp)).timestamp()
    except ValueError:
        return 0.0


def renamed(session: dict[str, bytes], key: str) -> dict[str, bytes]:
    """A client's conversation as one of its own: clients find it by the id in its lines."""
    said = session.get("session/client.jsonl", b"")
    found = re.search(rb'"(?:sessionId|session_id|id)": ?"([0-9a-f]{8}-[0-9a-f-]{27})"', said[:100_000])
    return {"session/client.jsonl": said.replace(found[1], key.encode())} if found else {}
