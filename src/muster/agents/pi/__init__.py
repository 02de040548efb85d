"""pi. An extension of ours, loaded by its own flag beside the user's, says what it does and what it used; the user's settings,
models and login are used in place and stay as they are. Its conversation is kept in the agent's folder.

pi has no permission dialogs: `ask` leaves it as it is, and with `policy` the extension asks for what no rule covers.
"""

from __future__ import annotations

import json
from typing import Any

from ...plugins import AgentType, Launch, Prepared, beside
from ..lines import moment, plain

SESSION = "session/client.jsonl"
#: Its input box, between two lines across the screen, and a few lines below it. Dialogs stand in its place, with hints at their end.
INPUT = (
    r"^─{3}.*\n((?:(?!─{3}| .* (?:select|submit|confirm) .* cancel).*\n){1,80}?)─{3}.*"
    r"(?:\n(?!─{3}).*){0,8}\Z"
)
EMPTY = r"\A─.*\n\s*\n─"


def prepare(launch: Launch) -> Prepared:
    """Return the command and the files of an agent; a conversation to go on with becomes one of its own."""
    files = {
        "bin/pi": beside(__file__, "run.sh"),
        "client/muster.js": beside(__file__, "extension.js"),
        **_renamed(launch),
    }
    if launch.rules:
        lines = [f"{verdict} {rule}\n" for verdict, rules in launch.rules.items() for rule in rules]
        files |= {"bin/rule": beside(__file__, "../rule.sh"), "client/rules": "".join(lines).encode()}
    run = ("sh", f"{launch.folder}/bin/pi")
    return Prepared((*run, "start", *launch.args), (*run, "resume", *launch.args), files)


def _renamed(launch: Launch) -> dict[str, bytes]:
    """The conversation of another agent, with a first line of this one's: pi works in the folder that it names."""
    lines = launch.session.get(SESSION, b"").split(b"\n")
    whole = (line for line in lines if line.startswith(b"{") and line.endswith(b"}"))
    kept = [line for line in whole if not line.startswith(b'{"type":"session",')]
    if not kept:
        return {}
    head = {"type": "session", "version": 3, "id": launch.key, "timestamp": "1970-01-01T00:00:00.000Z"}
    first = json.dumps({**head, "cwd": launch.agent.cwd}).encode()
    return {SESSION: b"\n".join([first, *kept]) + b"\n"}


def translate(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the lines of a session in muster's schema."""
    entries: list[dict[str, Any]] = []
    calls: dict[str, dict[str, Any]] = {}
    for line in lines:
        message = line.get("message")
        if line.get("type") != "message" or not isinstance(message, dict):
            continue
        t, role = moment(line.get("timestamp")), message.get("role")
        if role == "user":
            entries.append({"t": t, "role": "user", "text": plain(message.get("content"))})
        elif role == "toolResult":
            if call := calls.get(str(message.get("toolCallId"))):
                call["output"] = plain(message.get("content"))[:10_000]
        elif role == "bashExecution":
            command = str(message.get("command", ""))
            tool = {"name": "bash", "input": {"command": command}, "output": str(message.get("output", ""))[:10_000]}
            entries.append({"t": t, "role": "tool", "text": f"bash: {command}", "tool": tool})
        elif role == "assistant":
            entries += _answer(t, message, calls)
    return entries


def _answer(t: float, message: dict[str, Any], calls: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """What one answer of the model says, calls and used."""
    found: list[dict[str, Any]] = []
    content = message.get("content")
    for part in content if isinstance(content, list) else []:
        if not isinstance(part, dict):
            continue
        if part.get("type") == "text" and part.get("text"):
            found.append({"t": t, "role": "assistant", "text": str(part["text"])})
        elif part.get("type") == "toolCall":
            given = part.get("arguments")
            words = given if isinstance(given, dict) else {}
            shown = next((words[key] for key in ("command", "path", "pattern") if isinstance(words.get(key), str)), "")
            text = f"{part.get('name')}: {shown or json.dumps(given, ensure_ascii=False)}"
            found.append(
                {
                    "t": t,
                    "role": "tool",
                    "text": text,
                    "tool": {"name": part.get("name"), "input": given, "output": None},
                }
            )
            calls[str(part.get("id"))] = found[-1]["tool"]
    if message.get("stopReason") == "error":
        found.append({"t": t, "role": "error", "text": str(message.get("errorMessage") or "failed")})
    for entry in found:
        entry["model"] = message.get("model")
    if found:
        found[0]["usage"] = _usage(message.get("usage"))
    return found


def _usage(told: Any) -> dict[str, int]:
    names = {
        "input_tokens": "input",
        "output_tokens": "output",
        "cache_read_tokens": "cacheRead",
        "cache_write_tokens": "cacheWrite",
    }
    known = told if isinstance(told, dict) else {}
    return {ours: known[theirs] if isinstance(known.get(theirs), int) else 0 for ours, theirs in names.items()}


TYPE = AgentType(
    "pi",
    argv=("pi",),
    prompt="environment",
    speaks=True,
    receipt="prompt",
    translate=translate,
    guard="/!",
    box=EMPTY,
    pasted=("[paste#",),
    input=INPUT,
    clear=("C-e", *("C-u",) * 12),
    policy=True,
    hands=True,
    memory=250,
    versions={
        "oldest": "0.70.2",
        "newest": "0.73.1",
        "install": "0.73.1",
        "by": "npm install -g @mariozechner/pi-coding-agent@{version}",
    },
    prepare=prepare,
)
