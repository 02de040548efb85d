"""Makes tasks from the input of `map`, one per line: parses the line, names the task and fills in the templates. Pure."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ...errors import UsageError

SLOT = re.compile(r"\{\{|\}\}|\{([A-Za-z_][A-Za-z0-9_.-]*)\}")
TASKS_MAX = 100_000
LINE_MAX = 1 << 20
#: Bytes that fit into one argument or variable of a process (128 KB on Linux), with some room to spare.
WORD_MAX = 120_000


class Task(NamedTuple):
    """One item of the input, with the prompt and the arguments made from it."""

    id: str
    """`0001-words-of-the-item`, the name of its folder. The same input gives the same id."""
    number: int
    item: str
    fields: dict[str, str]
    prompt: str
    args: tuple[str, ...] = ()
    base: str = ""
    """The commit that its agent starts from; empty means the run's."""

    def to_json(self) -> dict[str, Any]:
        fields = self._asdict()
        return fields if self.base else {key: value for key, value in fields.items() if key != "base"}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Task:
        fields = {str(key): str(value) for key, value in data["fields"].items()}
        args = tuple(str(arg) for arg in data["args"])
        words = str(data["id"]), int(data["number"]), str(data["item"])
        return cls(*words, fields, str(data["prompt"]), args, str(data.get("base", "")))


class Fields(dict[str, str]):
    """The fields of an item, and the number of its line."""

    line = 0


def items(text: str) -> list[dict[str, str]]:
    """Return the fields of each line. A line with a JSON object has the object's keys; any other has the field `item`. Blank lines are skipped."""
    found: list[dict[str, str]] = []
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        if not line.strip():
            continue
        if len(line) > LINE_MAX:
            raise UsageError(f"line {number} is longer than {LINE_MAX} characters", "put long texts into files")
        fields = Fields(_fields(line.rstrip("\r"), number))
        fields.line = number
        if any("\0" in value for value in fields.values()):
            raise UsageError(
                f"line {number} has a NUL character", "one item a line; tr '\\0' '\\n' makes lines of what NULs divide"
            )
        _check_length(fields["item"], f"the item of line {number}")
        found.append(fields)
    if len(found) > TASKS_MAX:
        raise UsageError(f"{len(found)} items are more than {TASKS_MAX}", "make several runs of them")
    return found


def _check_length(word: str, what: str) -> None:
    if (size := len(word.encode("utf-8", "surrogatepass"))) > WORD_MAX:
        raise UsageError(
            f"{what} has {size} bytes, and no more than {WORD_MAX} can be given to a process",
            "put it into a file, and name that",
        )


def _fields(line: str, number: int) -> dict[str, str]:
    if not line.lstrip().startswith("{"):
        return {"item": line}
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return {"item": line}
    if not isinstance(value, dict):
        return {"item": line}
    fields = {key: text if isinstance(text, str) else json.dumps(text) for key, text in value.items()}
    for key in fields:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.-]*", key):
            raise UsageError(f"line {number}: {key!r} is not a valid field name", "use letters, digits and _")
    return {"item": line.strip(), **fields}


def fill(template: str, fields: dict[str, str], where: str) -> str:
    """Fill `{item}` and the other fields into a template, in one pass. `{{` and `}}` stand for braces."""

    def value(slot: re.Match[str]) -> str:
        if slot[1] is None:
            return slot[0][0]
        if slot[1] not in fields:
            known = ", ".join(sorted(fields))
            line = getattr(fields, "line", 0)
            raise UsageError(
                f"{where} has the slot {slot[0]}, and {f'the item of line {line}' if line else 'an item'} has no such field",
                f"this item has: {known}; plain braces are written {{{{ and }}}}",
            )
        return fields[slot[1]]

    return SLOT.sub(value, template)


def tasks(found: Iterable[dict[str, str]], prompt: str, args: Sequence[str]) -> list[Task]:
    """Return a task for each item. UsageError if a template names a field that an item lacks."""
    made = []
    for number, fields in enumerate(found, 1):
        words = tuple(fill(arg, fields, f"the argument {arg!r}") for arg in args)
        for word in words:
            _check_length(word, f"an argument of line {getattr(fields, 'line', number)}")
        item = fields["item"]
        made.append(Task(name(number, item), number, item, fields, fill(prompt, fields, "the prompt"), words))
    return made


def name(number: int, item: str) -> str:
    """Return the id of an item's task."""
    words = re.sub(r"[^a-z0-9]+", "-", item.lower()[:200]).strip("-")[:40].strip("-")
    return f"{number:04d}-{words}".rstrip("-")


def digest(about: Sequence[object]) -> str:
    """Return a digest of a request, by which a run of the same request is found again."""
    return hashlib.sha256(json.dumps(about, sort_keys=True, default=str).encode()).hexdigest()[:32]


def counted(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"
