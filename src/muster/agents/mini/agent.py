"""mini-swe-agent's own interactive agent, telling muster what it does: events, transcript and usage.

A copy of this file is in the agent's folder; it is loaded by `mini --agent-class` with mini's own Python, and imports nothing of muster.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from typing import Any

from minisweagent.agents.interactive import InteractiveAgent  # type: ignore[import-not-found]  # only where mini is

FOLDER = os.environ["MUSTER_AGENT_DIR"]
NAMES = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
Entry = dict[str, Any]


class Agent(InteractiveAgent):  # type: ignore[misc]
    def run(self, task: str = "", **more: Any) -> dict[str, Any]:
        os.environ["PYTHONPATH"] = os.environ.pop("MUSTER_PYTHONPATH", "")  # for what it starts, see run.sh
        self._said = read("client/transcript.jsonl")
        self._used = json.loads(read("usage.json") or "{}")
        self._task: Entry = {"t": time.time(), "role": "user", "text": task}
        self._commands: list[str] = []
        event("prompt", text=task)
        result: dict[str, Any] = super().run(task, **more)
        # The agent is working until it has ended, so report this as another action.
        event("tool", name=result.get("exit_status"), detail=result.get("submission"))
        if result.get("exit_status") != "Submitted":  # mini itself would end with 0
            sys.exit(1)
        return result

    def execute_actions(self, message: dict[str, Any]) -> Any:
        for action in message.get("extra", {}).get("actions", []):
            event("tool", name="bash", detail=action.get("command"))
        return super().execute_actions(message)

    def save(self, *given: Any) -> Any:
        data = super().save(*given)
        with contextlib.suppress(Exception):  # a failed report must not end the work
            lines = "".join(json.dumps(entry) + "\n" for entry in [self._task, *entries(self.messages[2:])])
            write("client/transcript.jsonl", self._said + lines)
            write("usage.json", json.dumps(tally(self._used, self.messages, self.cost)) + "\n")
        return data

    def _ask_confirmation_or_interrupt(self, commands: list[str]) -> None:
        self._commands = commands
        try:
            super()._ask_confirmation_or_interrupt(commands)
        finally:
            self._commands = []

    def _prompt_and_handle_slash_commands(self, prompt: str, **more: Any) -> Any:
        if self._commands:
            event("permission", tool="bash", detail="\n".join(self._commands))
        else:
            event("ask", text="Interrupted: what now?")
        answer = super()._prompt_and_handle_slash_commands(prompt, **more)
        event("answered")
        return answer

    @staticmethod
    def _stdin_is_interactive() -> bool:
        return False  # nobody is there to raise its limits, so it ends


def event(kind: str, **fields: object) -> None:
    told = {key: str(value)[:4000] for key, value in fields.items()}
    subprocess.run(["sh", f"{FOLDER}/bin/event", kind, json.dumps(told)[1:-1]], stdin=subprocess.DEVNULL, check=False)


def entries(messages: list[Entry]) -> list[Entry]:
    """The messages in muster's schema: what was said, and each command with what came of it."""
    found: list[Entry] = []
    calls: list[Entry] = []
    for message in messages:
        extra = message.get("extra") or {}
        t, text = extra.get("timestamp") or time.time(), plain(message.get("content"))
        role = message.get("role")
        if role == "assistant":
            said: list[Entry] = [{"t": t, "role": "assistant", "text": text}] if text else []
            calls = [call(t, action) for action in extra.get("actions") or []]
            said += calls
            if said:
                said[0] |= {"model": (extra.get("response") or {}).get("model"), "usage": counted(message)}
            found += said
        elif "returncode" in extra and calls:
            raw = extra.get("raw_output")
            calls.pop(0)["tool"]["output"] = (raw if isinstance(raw, str) else text)[:10_000]
        elif role == "exit" and extra.get("exit_status") != "Submitted":
            found.append({"t": t, "role": "error", "text": text or str(extra.get("exit_status"))})
        elif role == "user":
            found.append({"t": t, "role": "user", "text": text})
    return found


def call(t: float, action: Entry) -> Entry:
    command = action.get("command")
    return {
        "t": t,
        "role": "tool",
        "text": f"bash: {command}",
        "tool": {"name": "bash", "input": {"command": command}, "output": None},
    }


def plain(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return str(content or "")


def counted(message: Entry) -> dict[str, int]:
    """What one answer of the model used; what was cached is in `prompt_tokens` too."""
    told = ((message.get("extra") or {}).get("response") or {}).get("usage") or {}
    cached = (told.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    written = told.get("cache_creation_input_tokens") or 0
    sent = (told.get("prompt_tokens") or 0) - cached - written
    return dict(zip(NAMES, (max(0, sent), told.get("completion_tokens") or 0, cached, written), strict=True))


def tally(before: Entry, messages: list[Entry], cost: float) -> Entry:
    """What the runs before and these messages used; a cost of 0 is a price that mini does not know."""
    sums = {name: before.get(name, 0) for name in NAMES}
    models = {model: dict(used) for model, used in before.get("models", {}).items()}
    for message in messages:
        if message.get("role") != "assistant":
            continue
        model = models.setdefault(str(message["extra"]["response"].get("model")), dict.fromkeys(NAMES, 0))
        for name, count in counted(message).items():
            sums[name] += count
            model[name] += count
    known = cost > 0 and (not before or "cost_usd" in before)
    return {**sums, "models": models, **({"cost_usd": before.get("cost_usd", 0) + cost} if known else {})}


def read(name: str) -> str:
    try:
        with open(os.path.join(FOLDER, name), encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def write(name: str, text: str) -> None:
    half = os.path.join(FOLDER, "client", f".{os.getpid()}")
    with open(half, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(half, os.path.join(FOLDER, name))
