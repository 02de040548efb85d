"""Codex. Its own hooks say what it does; what they leave out, its rollout and the title of its terminal do (watch.sh).

Everything comes by `-c`, for this launch alone: the user's configuration, hooks and login are used in place and stay as they are.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from typing import Any

from ...plugins import AgentType, Launch, Prepared, beside
from ..lines import moment, plain, renamed

#: What each of its hooks tells: the event, and which of its words go along (see sh/agent/hook.sh).
HOOKS = {
    "SessionStart": ("session", "where=transcript_path", "source=source"),
    "UserPromptSubmit": ("prompt", "text=prompt", "where=transcript_path"),
    "PreToolUse": ("tool", "name=tool_name", "detail=~command"),
    "PostToolUse": ("answered", "name=tool_name"),
    "PermissionRequest": ("permission", "tool=tool_name", "detail=~command", "text=~description"),
    "Stop": ("turn-end", "text=last_assistant_message", "where=transcript_path"),
    "Interrupt": ("interrupted", "where=transcript_path"),
}
SECONDS = 20
#: It gives no more time to this one.
INTERRUPT_SECONDS = 3
#: What it would ask or write down at its start, and its own word for its state, as the title of the terminal.
SETTINGS = {
    "check_for_update_on_startup": False,
    "tui.show_tooltips": False,
    "tui.terminal_title": ["activity", "status"],
}
#: With rules, commands run in its sandbox, and the hook refuses what no rule allows until the model asks for it (hook.sh).
RULED = {"approval_policy": "on-request", "sandbox_mode": "workspace-write"}
#: What its empty input box suggests: one sentence since 0.160, before that one of several.
BOX = (
    "^› (Ask Codex to do anything|Explain this codebase|Summarize recent commits|Implement \\{feature\\}|Find and fix a bug in @filename"
    "|Write tests for @filename|Improve documentation in @filename|Run /review on my current changes|Use /skills to list available skills)$"
)
#: Its input box is the last thing on the screen, above at most two lines of hints, and has the cursor. The selected entry of its menus
#: begins with the same sign, and its menus, questions and dialogs have no cursor in the first column.
INPUT = r"^›(?: (.*?(?:\n(?:  .*)?)*?))?(?:\n\s*(?:\n(?!› ).*){0,2})?\Z"
DIALOG = r"(?:^[^ \n].*|\A)(?:\n(?: .*)?)*?\n[› ] 1\. Yes.*(?:\n(?:[ ›].*)?)*\n  Press enter to confirm.*\s*\Z"
#: Its programs in the agent's `bin`, and the files that they are here.
PROGRAMS = {"run": "run.sh", "codex": "hook.sh", "watch": "watch.sh", "tally": "tally.sh", "rule": "../rule.sh"}


def prepare(launch: Launch) -> Prepared:
    settings = {
        "hooks": _hooks(f"{launch.folder}/bin/codex"),
        **SETTINGS,
        **(RULED if launch.rules else {}),
    }
    if not launch.agent.origin:  # it comes from a folder of the user's, in which the agent was asked for
        places = (launch.agent.workdir, launch.agent.cwd)
        settings["projects"] = {folder: {"trust_level": "trusted"} for folder in places}
    own: list[str] = []
    for key, value in settings.items():
        own += ["-c", f"{key}={_toml(value)}"]
    run, words = f"{launch.folder}/bin/run", (*own, *launch.args)
    files = {f"bin/{name}": beside(__file__, file) for name, file in PROGRAMS.items()}
    files |= {"client/key": launch.key.encode(), **renamed(launch.session, launch.key)}
    if launch.rules:
        lines = [f"{verdict} {rule}\n" for verdict, rules in launch.rules.items() for rule in rules]
        files["client/rules"] = "".join(lines).encode()
    return Prepared((run, "told" if launch.message else "new", *words), (run, "resume", *words), files)


def _hooks(program: str) -> dict[str, Any]:
    """The hooks, and the mark that says of each that it was reviewed: a hash of what it is, in the client's own form."""
    hooks: dict[str, Any] = {"state": {}}
    for name, words in HOOKS.items():
        seconds = INTERRUPT_SECONDS if name == "Interrupt" else SECONDS
        hook = {"type": "command", "command": f"{shlex.quote(program)} {shlex.join(words)}", "timeout": seconds}
        label = re.sub("(?<=.)([A-Z])", r"_\1", name).lower()
        identity = {"event_name": label, "hooks": [{**hook, "async": False}]}
        text = json.dumps(identity, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        digest = hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
        hooks[name] = [{"hooks": [hook]}]
        hooks["state"][f"/<session-flags>/config.toml:{label}:0:0"] = {"trusted_hash": f"sha256:{digest}"}
    return hooks


def _toml(value: Any) -> str:
    """One value of TOML on one line; its strings are written like those of JSON."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{_toml(key)}={_toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def translate(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The lines of a rollout in muster's schema; the usage of each answer is with its last entry."""
    entries: list[dict[str, Any]] = []
    calls: dict[str, dict[str, Any]] = {}
    model = None
    for line in lines:
        payload = line.get("payload")
        if not isinstance(payload, dict):
            continue
        t, kind = moment(line.get("timestamp")), payload.get("type")
        if line.get("type") == "turn_context":
            model = payload.get("model")
        elif line.get("type") == "token_usage_record":
            if entries and entries[-1]["role"] in ("assistant", "tool"):
                entries[-1].setdefault("usage", _usage(payload.get("usage")))
        elif line.get("type") == "event_msg" and kind == "item_completed":
            entries += _message(t, payload.get("item"), model)
        elif line.get("type") == "event_msg" and kind == "task_complete" and isinstance(payload.get("error"), dict):
            entries.append({"t": t, "role": "error", "text": str(payload["error"].get("message", ""))})
        elif kind in ("function_call", "custom_tool_call"):
            entries.append(_tool(t, payload, model))
            calls[str(payload.get("call_id"))] = entries[-1]["tool"]
        elif str(kind).endswith("_call_output") and (call := calls.get(str(payload.get("call_id")))):
            call["output"] = plain(payload.get("output"))[:10_000]
    return entries


def _message(t: float, item: Any, model: Any) -> list[dict[str, Any]]:
    """What the user or the model said; neither what the client adds to it nor how it tells of tools."""
    if not isinstance(item, dict) or item.get("type") not in ("UserMessage", "AgentMessage"):
        return []
    text = plain(item.get("content"))
    if item["type"] == "UserMessage":
        return [{"t": t, "role": "user", "text": text}]
    return [{"t": t, "role": "assistant", "text": text, "model": model}]


def _tool(t: float, payload: dict[str, Any], model: Any) -> dict[str, Any]:
    given = payload.get("arguments", payload.get("input"))
    try:
        given = json.loads(given) if isinstance(given, str) else given
    except (ValueError, RecursionError):
        pass  # a patch is plain text
    shown = given.get("cmd") if isinstance(given, dict) else given
    name = payload.get("name")
    text = f"{name}: {shown if isinstance(shown, str) else json.dumps(given, ensure_ascii=False)}"
    tool = {"name": name, "input": given, "output": None}
    return {"t": t, "role": "tool", "text": text, "tool": tool, "model": model}


def _usage(told: Any) -> dict[str, int]:
    known = {key: value for key, value in (told if isinstance(told, dict) else {}).items() if isinstance(value, int)}
    read, written = known.get("cached_input_tokens", 0), known.get("cache_write_input_tokens", 0)
    return {
        "input_tokens": known.get("input_tokens", 0) - read - written,
        "output_tokens": known.get("output_tokens", 0),
        "cache_read_tokens": read,
        "cache_write_tokens": written,
    }


TYPE = AgentType(
    "codex",
    argv=("codex",),
    prompt="argument",
    speaks=True,
    retries=r"^[•◦] (Reconnecting\.\.\.|Server is busy, reconnecting) [0-9]+/[0-9]+ \([^)]* esc to interrupt\)$",
    receipt="prompt",
    translate=translate,
    guard="/!",
    clear=("C-u",) * 12,
    box=BOX,
    pasted=("[PastedContent",),
    input=INPUT,
    cursor=True,
    choice="^ *› ",
    dialog=DIALOG,
    bypass=("--dangerously-bypass-approvals-and-sandbox",),
    policy=True,
    yes=("y",),
    no=("Escape",),
    # To choose its last entry sends it at once; in its notes there is room for an answer of one's own.
    menu=("None of the above", ""),
    own=("Up", "Tab"),
    versions={
        "oldest": "0.160.0",
        "newest": "0.169.0",
        "install": "0.166.0",
        "by": "npm install -g @openai/codex@{version}",
    },
    prepare=prepare,
)
