"""Install the instructions of `tutorial sync` as a slash command of a client."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import NamedTuple

from ..errors import Refused
from ..flow.run import prompts
from .agent import PROMPTS

COMMAND = "sync-tutorial-to-e2e-tests"
ABOUT = "Bring the end-to-end tests in step with the tutorial: every block cited, every citation current."
BEGIN, END = f"<!-- muster: {COMMAND} -->", f"<!-- /muster: {COMMAND} -->"
#: The file that each client reads. AGENTS.md is for codex and all others.
CLIENTS = {
    "claude": os.path.join(".claude", "commands", f"{COMMAND}.md"),
    "codex": "AGENTS.md",
    "opencode": os.path.join(".opencode", "command", f"{COMMAND}.md"),
    "agents": "AGENTS.md",
}


class Skill(NamedTuple):
    path: str
    """Relative to the project's folder."""
    text: str
    """The text of the file, or of its section."""
    action: str
    """`written` if it is new, else `updated` or `unchanged`."""


def skill(path: str) -> str:
    """Return the instructions for the client that reads this file."""
    check = "muster tutorial check"
    rules = prompts.template("sync", PROMPTS).partition("## Rules\n")[2].strip("\n")
    if path == CLIENTS["agents"]:
        asked = f"When you are asked for `{COMMAND}`, do it for the files that are named, else for all."
        body = (
            prompts.prompt("skill", PROMPTS, check=check, rules=rules, arguments=asked)
            .strip("\n")
            .replace("\n## ", "\n### ")
        )
        return f"{BEGIN}\n## {COMMAND}\n{body}\n{END}\n"
    body = prompts.prompt(
        "skill", PROMPTS, check=check, rules=rules, arguments="More about what to do this time, if anything: $ARGUMENTS"
    )
    # A JSON string is valid YAML; a plain YAML scalar could not contain a colon.
    return f"---\ndescription: {json.dumps(ABOUT)}\n---\n{body}"


def install(folder: str, clients: Sequence[str], force: bool, dry: bool = False) -> list[Skill]:
    """Write the instructions where these clients find them.

    Raises Refused, before anything is written, if other instructions are there and `force` is False. With `dry`, nothing is written.
    """
    planned: list[tuple[Skill, str, bytes]] = []
    for path in dict.fromkeys(CLIENTS[client] for client in clients):
        file = os.path.realpath(os.path.join(folder, path))
        before = _bytes(file)
        text = skill(path)
        after, same = (
            _merged(before, text, path) if path == CLIENTS["agents"] else (text.encode(), before == text.encode())
        )
        fresh = before is None or (path == CLIENTS["agents"] and BEGIN.encode() not in before)
        if not fresh and not same and not force and not dry:
            raise Refused(
                f"{path} has other instructions for {COMMAND}", "--force replaces them; --print shows the new ones"
            )
        action = "written" if fresh else "unchanged" if same else "updated"
        planned.append((Skill(path, text, action), file, after))
    for one, file, after in planned:
        if one.action != "unchanged" and not dry:
            _write(file, after)
    return [one for one, _, _ in planned]


def _merged(before: bytes | None, section: str, path: str) -> tuple[bytes, bool]:
    """Return the file with the section replaced or appended, and whether it was the same already. Everything else stays byte for byte."""
    data, begin, end = before or b"", BEGIN.encode(), END.encode()
    if begin not in data and end not in data:
        gap = b"" if not data or data.endswith(b"\n\n") else b"\n" if data.endswith(b"\n") else b"\n\n"
        return data + gap + section.encode(), False
    start, stop = data.find(begin), data.find(end)
    if data.count(begin) != 1 or data.count(end) != 1 or stop < start:
        hint = f"leave one line {BEGIN} followed by one line {END}, or neither"
        raise Refused(f"in {path} the start and end of the section {COMMAND} are ambiguous", hint)
    old, new = data[start : stop + len(end)], section.encode().rstrip(b"\n")
    return data[:start] + new + data[stop + len(end) :], old.replace(b"\r\n", b"\n") == new


def _bytes(file: str) -> bytes | None:
    try:
        with open(file, "rb") as stream:
            return stream.read()
    except FileNotFoundError:
        return None
    except IsADirectoryError:
        raise Refused(f"{file} is a folder", "move it out of the way") from None


def _write(file: str, data: bytes) -> None:
    os.makedirs(os.path.dirname(file), exist_ok=True)
    mode = os.stat(file).st_mode & 0o7777 if os.path.exists(file) else None
    temporary = f"{file}.{os.getpid()}.part"
    with open(temporary, "wb") as stream:
        stream.write(data)
    if mode is not None:
        os.chmod(temporary, mode)
    os.replace(temporary, file)
