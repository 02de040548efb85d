"""Claude Code. Its own hooks say what it does, its session id is fixed at launch, and the user's configuration stays as it is.

The hooks come by `--settings`, a file in the agent's own folder, and are merged by the client with the user's own; what else the
client would write into the user's folder, or ask at a first start, is the business of layer.sh.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from typing import Any

from ...model import ClientStatus
from ...plugins import AgentType, Launch, Prepared, beside
from ..lines import moment, plain, renamed

#: The arguments of `bin/hook` for each of its hooks: the kind of event, and the fields (see sh/agent/hook.sh).
HOOKS = {
    "UserPromptSubmit": ("prompt", "text=prompt", "where=transcript_path"),
    "PreToolUse": ("tool", "name=tool_name", "detail=~command", "where=transcript_path"),
    "PostToolUse": ("answered", "name=tool_name"),
    "PostToolUseFailure": ("answered", "name=tool_name"),
    "PermissionRequest": (
        "permission",
        "ask?tool=AskUserQuestion",
        "tool=tool_name",
        "detail=~command",
        "text=~question",
    ),
    "PermissionDenied": ("answered", "name=tool_name"),
    "Stop": ("turn-end", "text=last_assistant_message", "where=transcript_path"),
    # A turn that used up the quota waits until a time that the client names; a server that is only busy is not a limit.
    "StopFailure": (
        "error",
        "limit?error=rate_limit&text=*hit your*",
        "text=last_assistant_message",
        "error=error",
        "where=transcript_path",
    ),
}
SESSION = ("session", "where=transcript_path", "source=source")
SECONDS = 20
#: Its words for what it does, where muster has others. `shell`: a command of its own runs in the background.
STATUSES = {"shell": "background"}
#: Minutes by which the end of a limit may lie in the past when the client names it, since the client leaves out the seconds.
RESET_SLACK = 10
#: Newer versions decide by themselves what to ask ("auto mode") unless the mode is set, and offer that mode in a dialog.
#: layer.sh takes these out again, as they are written here, for a user whose own settings name a mode.
MODE = {"disableAutoMode": "disable", "defaultMode": "default"}


def prepare(launch: Launch) -> Prepared:
    def call(words: tuple[str, ...], matcher: str = "", program: str = "hook") -> dict[str, Any]:
        line = shlex.join((f"{launch.folder}/bin/{program}", *words))
        command = {"type": "command", "command": line, "timeout": SECONDS}
        return {"matcher": matcher, "hooks": [command]}

    hooks = {name: [call(words)] for name, words in HOOKS.items()}
    # With a first message it is not ready before that is done. A session also starts when one is compacted, in a turn.
    hooks["SessionStart"] = [call(SESSION), call(("again",) if launch.message else (), "startup|resume", "ready")]
    # The client's own rules: it knows what a command line does, which no pattern of ours would.
    settings: dict[str, Any] = {"hooks": hooks, "permissions": {**MODE, **launch.rules}}
    if launch.agent.permissions == "bypass":
        settings["permissions"] = launch.rules
        # Whoever wrote bypass has been asked: no dialog of the client asks again.
        settings |= {"skipDangerousModePermissionPrompt": True, "enableAllProjectMcpServers": True}
    files = {
        "client/settings.json": json.dumps(settings).encode(),
        "client/key": launch.key.encode(),
        **{f"bin/{name}": beside(__file__, f"{name}.sh") for name in ("layer", "ready", "tally")},
        **renamed(launch.session, launch.key),
    }
    if not launch.agent.origin:
        files["client/trusted"] = b""
    if launch.agent.mode == "worktree":  # the client would know a worktree of git's own by its repository
        files["client/project"] = os.fsencode(launch.agent.repo)
    own = ("--settings", f"{launch.folder}/client/settings.json", *launch.args)
    start, resume = ("claude", "--session-id", launch.key, *own), ("claude", "--resume", launch.key, *own)
    return Prepared(resume if launch.session else start, resume, files, launch.key)


def translate(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The client's own lines in muster's schema, in the order in which things happened; each message's usage counts once."""
    entries: list[dict[str, Any]] = []
    calls: dict[str, dict[str, Any]] = {}
    counted: set[str] = set()
    for line in sorted(lines, key=lambda line: str(line.get("timestamp", ""))):
        t, message = moment(line.get("timestamp")), line.get("message")
        if line.get("type") == "queue-operation" and line.get("operation") == "enqueue":
            entries.append({"t": t, "role": "queued", "text": str(line.get("content", ""))})
        # Newer versions write down more than what was said, such as requests (`api-request-blob`).
        if not isinstance(message, dict) or line.get("isMeta") or line.get("type") not in ("user", "assistant"):
            continue
        content = message.get("content")
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        for part in parts if isinstance(parts, list) else []:
            if not isinstance(part, dict):
                continue
            if part.get("type") == "tool_result":
                if call := calls.get(str(part.get("tool_use_id"))):
                    call["output"] = plain(part.get("content"))[:10_000]
                continue
            entry = _entry(t, line, part)
            if entry is None:
                continue
            if entry["role"] == "tool":
                calls[str(part.get("id"))] = entry["tool"]
            if line.get("type") == "assistant":
                entry["model"] = message.get("model")
                if str(message.get("id")) not in counted:
                    counted.add(str(message.get("id")))
                    entry["usage"] = _usage(message.get("usage"))
            entries.append(entry)
    return entries


def _entry(t: float, line: dict[str, Any], part: dict[str, Any]) -> dict[str, Any] | None:
    if part.get("type") == "text" and part.get("text"):
        role = "error" if line.get("isApiErrorMessage") else str(line.get("type"))
        return {"t": t, "role": role, "text": str(part["text"])}
    if part.get("type") == "tool_use":
        given = part.get("input")
        shown = given.get("command") if isinstance(given, dict) else None
        text = f"{part.get('name')}: {shown or json.dumps(given, ensure_ascii=False)}"
        return {
            "t": t,
            "role": "tool",
            "text": text,
            "tool": {"name": part.get("name"), "input": given, "output": None},
        }
    return None


def _usage(told: Any) -> dict[str, int]:
    names = {
        "input_tokens": "input_tokens",
        "output_tokens": "output_tokens",
        "cache_read_input_tokens": "cache_read_tokens",
        "cache_creation_input_tokens": "cache_write_tokens",
    }
    known = told if isinstance(told, dict) else {}
    return {ours: known[theirs] for theirs, ours in names.items() if isinstance(known.get(theirs), int)}


def status(files: list[dict[str, Any]], session: str) -> ClientStatus | None:
    """Return what the status file of this session says. Other clients that the agent started have their files beside it."""
    own = [file for file in files if file.get("sessionId") == session] or files
    newest = max(own, key=lambda file: moment(file.get("statusUpdatedAt")), default=None)
    if newest is None:
        return None
    word = str(newest.get("status"))
    dialog = "dialog" in str(newest.get("waitingFor"))
    return ClientStatus(moment(newest.get("statusUpdatedAt")), STATUSES.get(word, word), dialog)


def resets(text: str, t: float) -> float | None:
    """Return the time that the words of a limit name, which were said at `t`; None if they name none.

    Known forms are "resets 3:30pm (Europe/Berlin)" and "resets Nov 20, 3pm (UTC)".
    """
    named = r"resets (?:([A-Z][a-z]{2}) (\d{1,2}),? (?:at )?)?(\d{1,2})(?::(\d\d))? ?(am|pm)(?: \(([^)]*)\))?"
    found = re.search(named, text[:1000])
    if not found or not 1 <= int(found[3]) <= 12:
        return None
    from datetime import datetime, timedelta
    from zoneinfo import ZoneInfo

    month, day, hour, minute, half, zone = found.groups()
    try:
        said = datetime.fromtimestamp(t, ZoneInfo(zone) if zone else None)
        at = said.replace(hour=int(hour) % 12 + 12 * (half == "pm"), minute=int(minute or 0), second=0, microsecond=0)
        if month:
            at = at.replace(month=datetime.strptime(month, "%b").month, day=int(day))
            at = at if said - at < timedelta(minutes=RESET_SLACK) else at.replace(year=at.year + 1)
            # No limit lasts longer than a week, so this one was over when the client reported it.
            return at.timestamp() if at - said < timedelta(days=9) else None
        # A reset time that has just passed does not mean the same time tomorrow.
        return (at if said - at < timedelta(minutes=RESET_SLACK) else at + timedelta(days=1)).timestamp()
    except (ValueError, OSError, KeyError):
        return None


#: Its input box, between two lines across the screen, and below it the hints. Its dialogs begin with one such line, and neither their
#: first line nor that of anything its model or a tool printed begins with its sign.
INPUT = r"^─{10,}.*\n[❯>](?:[ \u00a0](.*(?:\n(?!─{10}).*)*))?\n─{10,}.*(?:\n(?!─{10}| ?[❯>] ?| *[0-9]\. ).*){0,40}\Z"
#: What it shows in an empty box.
EMPTY = r"\A.*\n[❯>]\s*(?:Press up to edit queued messages|Try \".*\")?\n─"
#: A dialog that asks for a permission: all below the last line across the screen, or the screen if it is longer than that.
DIALOG = r"(?:^─{10,}|\A)(?:(?!\n─{10})[\s\S])*?^ [❯ ] 1\. Yes(?:(?!\n─{10})[\s\S])*\Z"

TYPE = AgentType(
    "claude",
    argv=("claude",),
    prompt="argument",
    speaks=True,
    shows={"waiting": "Enter to confirm"},
    # Its own lines alone begin in the first column, behind one sign; what its model or a tool says is indented, or behind another.
    retries="^[^ ●❯>]+ .*[Rr]etrying in [0-9]+s .* attempt [0-9]+/[0-9]+",
    receipt="prompt",
    translate=translate,
    status=status,
    resets=resets,
    guard="/!",
    clear=("C-u",) * 30 + ("C-k",) * 30,
    box=EMPTY,
    pasted=("[Pastedtext",),
    input=INPUT,
    choice="^ +❯ ",
    dialog=DIALOG,
    queues=True,
    bypass=("--dangerously-skip-permissions",),
    policy=True,
    menu=("Type something", "Submit answers"),
    yes=("1",),
    no=("Escape",),
    versions={
        "oldest": "2.1.197",
        "newest": "2.1.327",
        "install": "2.1.197",
        "by": "npm install -g @anthropic-ai/claude-code@{version}",
    },
    prepare=prepare,
)
