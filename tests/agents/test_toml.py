"""A type in TOML can say for another client all that a built-in one says: here for Claude Code itself, under another name."""

from __future__ import annotations

from pathlib import Path

from muster.agents.lines import reader

from ..conftest import eventually
from .conftest import Claude

TYPE = r"""
[permissions]
allow = ["Bash(touch *)"]

[types.mine]
argv = ["claude", "--session-id", "{session}", "--settings", "{folder}/client/settings.json"]
resume = ["claude", "--resume", "{session}", "--settings", "{folder}/client/settings.json"]
prompt = "argument"
speaks = true
receipt = "prompt"
guard = "/!"
box = '^❯\s*$'
clear = ["C-u", "C-u"]
yes = ["1"]
retries = "Retrying in "
shows = { waiting = "Enter to confirm" }

[types.mine.env]
SAID_BY = "toml"

[types.mine.lines]
role = "type"
text = "message.content"
time = "timestamp"
id = "message.id"
model = "message.model"
input_tokens = "message.usage.input_tokens"
output_tokens = "message.usage.output_tokens"

[types.mine.files]
"bin/tally" = '''
grep -o '"output_tokens":[0-9]*' "$1" | awk -F: '{ n += $2 } END { printf "{\"output_tokens\":%d}\n", n }' >"$MUSTER_AGENT_DIR/usage.json"
'''
"client/settings.json" = '''
{"permissions": {"allow": {allow}, "deny": {deny}},
 "hooks": {
  "SessionStart": [{"hooks": [{"type": "command", "command": "{folder}/bin/hook session where=transcript_path"}]},
   {"matcher": "startup|resume", "hooks": [{"type": "command", "command": "{folder}/bin/hook ready-again"}]}],
  "UserPromptSubmit": [{"hooks": [{"type": "command", "command": "{folder}/bin/hook prompt text=prompt"}]}],
  "PermissionRequest": [{"hooks": [{"type": "command", "command": "{folder}/bin/hook permission tool=tool_name"}]}],
  "Stop": [{"hooks": [{"type": "command", "command": "{folder}/bin/hook turn-end text=last_assistant_message where=transcript_path"}]}]
 }}
'''
"""


def test_a_type_in_toml_says_all_that_a_built_in_one_says(claude: Claude) -> None:
    path = claude.home / ".config" / "muster" / "config.toml"
    path.parent.mkdir(parents=True)
    path.write_text(TYPE)
    claude.server.register(
        "tools", {"shell": "touch made.txt"}, {"text": "made it", "usage": {"input": 7, "output": 5}}
    )
    claude.ok("create", "one", "mine", "--permissions", "policy", "--no-connect", "-m", "#scn:tools please")
    claude.ok("wait", "one", "--until", "ready", "--timeout", "60s")
    assert (Path(str(claude.agents()["one"]["workdir"])) / "made.txt").exists()
    claude.server.register("other", {"shell": "echo > other.txt"}, {"text": "as you like"})
    assert "delivered: one" in claude.ok("message", "one", "-m", "#scn:other please\\").stderr
    claude.ok("wait", "one", "--until", "waiting", "--timeout", "60s")
    claude.ok("answer", "one", "yes")
    claude.ok("wait", "one", "--until", "ready", "--timeout", "60s")
    claude.ok("stop", "one")
    claude.ok("start", "one")
    claude.ok("message", "one", "-m", "and now?")
    claude.ok("wait", "one", "--until", "ready", "--timeout", "60s")
    assert claude.each_heard() == [["#scn:tools please", "#scn:other please\\", "and now?"]]
    entries = claude.ok("transcript", "one", "--json").json["entries"]
    said = [(entry["role"], entry["text"]) for entry in entries if entry["role"] == "assistant"]
    assert said == [("assistant", "made it"), ("assistant", "as you like"), ("assistant", "and now?")]
    assert entries[1]["usage"] == {"input_tokens": 7, "output_tokens": 5}
    eventually(lambda: claude.agents()["one"]["tokens"])


def test_nothing_in_a_transcript_breaks_the_reading() -> None:
    read = reader({"role": "a.b", "text": "t", "time": "at", "id": "i", "input_tokens": "n"}, "x")
    odd = [
        {},
        {"a": 3},
        {"a": {"b": "user"}},
        {"a": {"b": "user"}, "t": [3, {"text": "x"}], "at": [], "n": -1, "i": {}},
    ]
    assert read(odd) == [{"t": 0.0, "role": "user", "text": "x"}]
