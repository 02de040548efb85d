"""GitHub Copilot CLI. An extension of ours says what it does; it has a configuration folder of the agent's own, in which the user's
settings, login, instructions and extensions are in effect and to which it writes (run.sh). Its conversation is there too.

Messages go through the extension, and questions are answered by their id. Permission dialogs are answered with keys on a proven screen: the
right to answer them by id is one that the client asks a person for, and muster does not grant it to itself.
"""

from __future__ import annotations

import json
import re
from typing import Any

from ...plugins import AgentType, Launch, Prepared, beside
from ..lines import moment, renamed

#: A dialog that asks for a permission: the frame at the end of the screen, with its first answer.
DIALOG = r"(?:^╭─{10,}╮|\A)(?:(?!^╭)[^\n]*\n)*?│ [❯ ] 1\. Yes(?:(?!^╭)[^\n]*\n)*?│ ↑/↓ to navigate .*│\n╰─{10,}╯\s*\Z"
#: Rules are written with the names that Claude Code has for its tools; these are the client's own words for what they do.
KINDS = {
    "bash": "shell",
    "edit": "write",
    "write": "write",
    "multiedit": "write",
    "notebookedit": "write",
    "webfetch": "url",
}


def prepare(launch: Launch) -> Prepared:
    """Return the command and the files of an agent; a conversation to go on with becomes one of its own."""
    files = {
        "bin/copilot": beside(__file__, "run.sh"),
        "client/muster.mjs": beside(__file__, "extension.mjs"),
        **renamed(launch.session, launch.key),
    }
    own: list[str] = []
    if launch.rules:
        files["client/manual"] = b""
        own = permission(launch.rules)
    if not launch.agent.origin:
        folders = list(dict.fromkeys([launch.agent.workdir, launch.agent.cwd]))
        files["client/trusted"] = json.dumps(folders).encode()
    run, words = ("sh", f"{launch.folder}/bin/copilot"), (launch.key, *own, *launch.args)
    return Prepared((*run, "start", *words), (*run, "resume", *words), files, launch.key)


def permission(rules: dict[str, list[str]]) -> list[str]:
    """Return the rules of `[permissions]` as options. The client lets a denial win, and asks for what it has no rule for."""
    return [
        f"--{verdict}-tool={pattern}"
        for verdict in ("allow", "deny")
        for rule in rules.get(verdict, [])
        if (pattern := _pattern(rule))
    ]


def _pattern(rule: str) -> str:
    tool, _, words = rule.removesuffix(")").partition("(")
    if found := re.fullmatch(r"mcp__(.+?)__(.+)", tool):
        return f"{found[1]}({found[2]})"
    kind = KINDS.get(tool.lower(), tool)
    words = re.sub(r"(?: |:)\*$", ":*", words)
    return f"{kind}({words})" if words and words != "*" else kind


def translate(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the lines of a session in muster's schema; the usage of each answer is with its first entry."""
    entries: list[dict[str, Any]] = []
    calls: dict[str, dict[str, Any]] = {}
    usage: dict[str, Any] = {}
    for line in lines:
        data = line.get("data")
        if not isinstance(data, dict) or line.get("agentId"):
            continue
        t, kind = moment(line.get("timestamp")), line.get("type")
        if kind == "user.message" and data.get("source") in (None, "user"):
            entries.append({"t": t, "role": "user", "text": str(data.get("content", ""))})
        elif kind == "session.usage_record":
            used = data.get("usage")
            usage = _usage(used if isinstance(used, dict) else {})
        elif kind == "assistant.message":
            entries += _answer(t, data, usage, calls)
            usage = {}
        elif kind == "tool.execution_complete" and (call := calls.get(str(data.get("toolCallId")))):
            result = data.get("result") if isinstance(data.get("result"), dict) else data.get("error")
            said = result if isinstance(result, dict) else {}
            call["output"] = str(said.get("content", said.get("message", "")))[:10_000]
        elif kind == "session.error":
            entries.append({"t": t, "role": "error", "text": str(data.get("message", ""))})
    return entries


def _answer(
    t: float, data: dict[str, Any], usage: dict[str, Any], calls: dict[str, dict[str, Any]]
) -> list[dict[str, Any]]:
    """What one answer of the model says, calls and used."""
    found: list[dict[str, Any]] = []
    if data.get("content"):
        found.append({"t": t, "role": "assistant", "text": str(data["content"])})
    requests = data.get("toolRequests")
    for request in requests if isinstance(requests, list) else []:
        if not isinstance(request, dict):
            continue
        given = request.get("arguments")
        words = given if isinstance(given, dict) else {}
        shown = next((words[key] for key in ("command", "path", "pattern") if isinstance(words.get(key), str)), "")
        tool = {"name": request.get("name"), "input": given, "output": None}
        text = f"{request.get('name')}: {shown or json.dumps(given, ensure_ascii=False)}"
        found.append({"t": t, "role": "tool", "text": text, "tool": tool})
        calls[str(request.get("toolCallId"))] = tool
    for entry in found:
        entry["model"] = data.get("model")
    if found and usage:
        found[0]["usage"] = usage
    return found


def _usage(told: dict[str, Any]) -> dict[str, int]:
    """The tokens of one answer; the client counts what was cached as input too."""
    known = {key: value for key, value in told.items() if isinstance(value, int)}
    read, written = known.get("cacheReadTokens", 0), known.get("cacheWriteTokens", 0)
    return {
        "input_tokens": max(0, known.get("inputTokens", 0) - read - written),
        "output_tokens": known.get("outputTokens", 0),
        "cache_read_tokens": read,
        "cache_write_tokens": written,
    }


TYPE = AgentType(
    "copilot",
    argv=("copilot",),
    prompt="environment",
    speaks=True,
    receipt="prompt",
    translate=translate,
    guard="/!",
    dialog=DIALOG,
    yes=("1",),
    no=("Escape",),
    bypass=("--allow-all",),
    policy=True,
    hands=True,
    sends=True,
    versions={
        "oldest": "1.0.102",
        "newest": "1.0.102",
        "install": "1.0.102",
        "by": "npm install -g @github/copilot@{version}",
    },
    prepare=prepare,
)
