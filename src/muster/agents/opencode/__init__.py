"""opencode. A plugin in its own terminal interface says what it does and writes its transcript down; the user's configuration
stays as it is. Its conversations are in a database of its own, by the folder it works in; the plugin keeps a copy of the newest
one, which a clone imports as its own.
"""

from __future__ import annotations

import json
import re
from typing import Any

from ...plugins import AgentType, Launch, Prepared, beside

#: A copy of a conversation, in the form of `opencode export`.
EXPORT = "session/export.json"
#: Its permissions that ask with `--permissions policy`, but for what a rule says. `*_*` has the tools of MCP servers.
ASKED = ("*_*", "edit", "webfetch", "websearch", "codesearch", "external_directory", "doom_loop")
#: Those that take no patterns: a rule for a part of one leaves it asked.
WHOLE = ("webfetch", "websearch", "codesearch", "doom_loop", "question", "todowrite")
#: Rules are written with the names that Claude Code has for its tools.
NAMES = {"write": "edit", "multiedit": "edit", "notebookedit": "edit", "ls": "list"}
#: The last line in its input box and what is below; dialogs stand in its place. The words on the right are those of the side bar.
INPUT = (
    r"^ *┃(?:  (\S.*?))?(?: {8,}\S.*)? *\n *┃(?: {8,}\S.*)? *\n *┃  \S.*\n *╹▀.*"
    r"(?:\n(?!.*┃).*){0,60}\Z"
)
EMPTY = r"^ *┃(?: {8,}\S.*|  Ask anything.*)? *\n *┃(?: {8,}\S.*)? *\n *┃  \S.*\n *╹▀"


def prepare(launch: Launch) -> Prepared:
    plugin = f"{launch.folder}/client/muster.js"
    files = {
        "bin/opencode": beside(__file__, "run.sh"),
        "client/muster.js": beside(__file__, "plugin.js"),
        "client/tui.json": json.dumps({"plugin": [plugin]}).encode(),
    }
    if launch.rules:
        files["client/permission.json"] = json.dumps(permission(launch.rules)).encode()
    session, said = renamed(launch.session.get(EXPORT, b""), launch.key)
    if session:
        files |= {EXPORT: said, "client/sessions": f"{session}\n".encode()}
    else:
        files["session/.keep"] = b""
    run = ("sh", f"{launch.folder}/bin/opencode")
    return Prepared((*run, "clone" if session else "start", *launch.args), (*run, "resume", *launch.args), files)


def permission(rules: dict[str, list[str]]) -> dict[str, Any]:
    """Return the rules of `[permissions]` in opencode's form, where the last matching rule wins."""
    asked: dict[str, Any] = {name: {"*": "ask"} for name in (*ASKED, "bash")}
    for verdict in ("allow", "deny"):
        for rule in rules.get(verdict, []):
            tool, _, words = rule.removesuffix(")").partition("(")
            name = NAMES.get(tool.lower(), tool.lower())
            words = re.sub(r":\*$", " *", words) or "*"
            if words == "*" or name not in WHOLE:
                patterns = asked.setdefault(name, {})
                patterns.pop(words, None)
                patterns[words] = verdict
    return {name: patterns["*"] if [*patterns] == ["*"] else patterns for name, patterns in asked.items()}


def renamed(said: bytes, key: str) -> tuple[str, bytes]:
    """Return a new session id and the conversation with new ids in the same order; both empty if it cannot be parsed."""
    try:
        session = json.loads(said)["info"]["id"]
    except (ValueError, RecursionError, KeyError, TypeError):
        return "", b""
    if not isinstance(session, str) or not re.fullmatch(r"ses_[0-9A-Za-z]{26}", session):
        return "", b""
    fresh = re.sub(r"[^0-9a-z]", "", key)[:10].encode()
    changed = re.sub(
        rb'(?<=")((?:ses|msg|prt)_[0-9A-Za-z]{12})[0-9A-Za-z]{10}([0-9A-Za-z]{4})(?=")', rb"\g<1>%s\g<2>" % fresh, said
    )
    return f"{session[:16]}{fresh.decode()}{session[-4:]}", changed


TYPE = AgentType(
    "opencode",
    argv=("opencode",),
    prompt="environment",
    speaks=True,
    receipt="prompt",
    transcript="client/transcript.jsonl",
    guard="/!",
    clear=("C-e", *("C-u",) * 12),
    box=EMPTY,
    pasted=("[Pasted~",),
    input=INPUT,
    bypass=("--auto",),
    policy=True,
    hands=True,
    carries=True,
    versions={
        "oldest": "1.18.33",
        "newest": "1.18.33",
        "install": "1.18.33",
        "by": "npm install -g opencode-ai@{version}",
    },
    prepare=prepare,
)
