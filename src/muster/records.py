"""Reading what an agent left: its screen, recording, transcript and events; and a playbook made from them.

All of it works on live agents and on destroyed ones, whose folder is in the trash.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from . import cast, store, tmux
from .errors import MusterError
from .host import Found, Host
from .model import Agent, whole
from .plugins import AgentType

FOLLOW_SECONDS = 0.2
META_MAX = 1 << 20


class Left(NamedTuple):
    """An agent, live or destroyed. Its id locates the folder."""

    host: Host
    agent: Agent


def screen(local: Host, left: Left, *, ansi: bool, scrollback: bool) -> tuple[str, str]:
    """Return what the terminal shows or showed last, and where that was read: `live`, `kept` or `recording`."""
    live = tmux.screen(left.host, left.agent.id, ansi=ansi, scrollback=scrollback)
    if live is not None:
        return live, "live"
    kept = store.read(left.host, left.agent.id, "screen").get("screen")
    if kept is not None:
        text = kept.decode("utf-8", "replace")
        return text if ansi else cast.strip(text), "kept"
    # The session disappeared without saving its screen, so use the end of the recording.
    raw, meta = _newest(store.read(left.host, left.agent.id, "rec/*"))
    if raw is None:
        raise MusterError(f"{left.agent.name} has shown nothing yet", f"muster explain {left.agent.name}")
    return tmux.render(local, raw, meta.get("cols"), meta.get("rows"), ansi=ansi), "recording"


def recording(home: str, left: Left, idle: float | None) -> Iterator[str]:
    """Yield the lines of an asciicast of all launches of an agent. `home` is the state folder of this machine."""
    wanted = ("rec/*.raw", "rec/*.timing", "rec/*.meta")
    files = store.opened(left.host, left.agent.id, os.path.join(home, "tmp"), *wanted)
    numbers = _launches(files)
    casts = []
    for number in numbers:
        told = files.get(f"rec/{number}.meta")
        meta = cast.meta(told.read(META_MAX) if told else b"")
        raw, timing = files[f"rec/{number}.raw"], files.get(f"rec/{number}.timing")
        casts.append(cast.convert(raw, timing, meta, idle_limit=idle))
    if not casts:
        return iter(())
    return casts[0] if len(casts) == 1 else cast.join(casts)


def transcript(left: Left, kind: AgentType) -> list[dict[str, Any]]:
    if kind.translate and not kind.transcript:
        return kind.translate(store.conversation(left.host, left.agent.id))
    if kind.translate:
        return kind.translate(_lines(store.read(left.host, left.agent.id, kind.transcript)))
    return _lines(store.read(left.host, left.agent.id, _transcript_file(left.agent, kind)))


def events(left: Left) -> list[dict[str, Any]]:
    files = store.read(left.host, left.agent.id, "events.1.jsonl", "events.jsonl")
    return _lines({key: files[key] for key in ("events.1.jsonl", "events.jsonl") if key in files})


def follow_transcript(left: Left, kind: AgentType, skip: int) -> Iterator[dict[str, Any]]:
    """Yield the entries of the transcript behind the first `skip`, as they are added; ends when the agent is destroyed."""
    file = kind.transcript if kind.translate else _transcript_file(left.agent, kind)
    return _follow(left, file, kind.translate or (lambda lines: lines), skip)


def follow_events(left: Left, skip: int) -> Iterator[dict[str, Any]]:
    """Yield the events behind the first `skip`, as they are added; ends when the agent is destroyed."""
    return _follow(left, "events.jsonl", lambda lines: lines, skip)


def _follow(
    left: Left, file: str, translate: Callable[[list[dict[str, Any]]], list[dict[str, Any]]], skip: int
) -> Iterator[dict[str, Any]]:
    """Yield what the lines of a file say. Each part of it is read once, so a long one costs no more than a short one."""
    lines: list[dict[str, Any]] = []
    last, half = store.Added(), b""
    while True:
        last = store.added(left.host, left.agent.id, file, last)
        if last.fresh:
            lines, half = [], b""
        if last.content:
            whole_lines, newline, half = (half + last.content).rpartition(b"\n")
            lines += store.objects(whole_lines + newline)
            now = translate(lines)
            yield from now[skip:]
            skip = len(now)
        if last.gone:
            return
        time.sleep(FOLLOW_SECONDS)


def playbook(local: Host, one: Found, kind: AgentType) -> list[dict[str, Any]]:
    """Return the playbook steps that repeat what this agent did."""
    from . import work

    left = Left(one.host, one.agent)
    steps: list[dict[str, Any]] = []
    timed: list[tuple[float, dict[str, Any]]] = []
    committed: list[float] = []
    if kind.transcript or kind.translate:
        asked = {event.get("text") for event in events(left) if event.get("kind") == "ask"}
        for entry in transcript(left, kind):
            if entry.get("role") == "tool" and "commit" in str(entry.get("text")):
                committed.append(float(entry.get("t", 0)))
            if entry.get("role") == "assistant" and entry.get("text") in asked:
                timed.append((float(entry.get("t", 0)), {"ask": entry["text"]}))
            elif entry.get("role") == "assistant" and entry.get("text"):
                step: dict[str, Any] = {"say": entry["text"]}
                usage = entry.get("usage") or {}
                step |= {
                    key: usage[key] for key in ("input_tokens", "output_tokens") if isinstance(usage.get(key), int)
                }
                timed.append((float(entry.get("t", 0)), step))
    else:
        text, _ = screen(local, left, ansi=False, scrollback=True)
        if text.strip():
            timed.append((0.0, {"say": text.strip()}))
    timed += _exactly(work.steps(one), committed)
    steps = [step for _, step in sorted(timed, key=lambda item: item[0])]
    result = store.read(one.host, one.agent.id, "result.json").get("result.json")
    if result is not None:
        steps.append({"submit_raw": result.decode("utf-8", "replace")})
    if one.status.exit_code is not None:
        steps.append({"exit": one.status.exit_code})
    return steps


def _exactly(steps: list[tuple[float, dict[str, Any]]], tools: list[float]) -> list[tuple[float, dict[str, Any]]]:
    """Refine the times of commits, which git keeps in seconds, by the tool calls that made them."""
    left, at, found = sorted(tools), {}, []
    for number, (t, step) in enumerate(steps):
        if "commit" in step:
            while left and left[0] < t:
                left.pop(0)
            exact = left.pop(0) if left and left[0] < t + 60 else t
            at[number] = exact
            if number and "patch" in steps[number - 1][1]:
                at[number - 1] = exact  # the change belongs to its commit
    for number, (t, step) in enumerate(steps):
        found.append((at.get(number, t), step))
    return found


def _transcript_file(agent: Agent, kind: AgentType) -> str:
    name = kind.transcript
    if not name:
        raise MusterError(
            f"{agent.name} is a {agent.type}, which keeps no transcript", f"muster capture {agent.name} --scrollback"
        )
    return name


def _lines(files: dict[str, bytes]) -> list[dict[str, Any]]:
    """Return the JSON objects of some files; other lines are skipped."""
    return [value for content in files.values() for value in store.objects(content)]


def _newest(files: dict[str, bytes]) -> tuple[bytes | None, dict[str, Any]]:
    numbers = _launches(files)
    if not numbers:
        return None, {}
    return files[f"rec/{max(numbers)}.raw"], cast.meta(files.get(f"rec/{max(numbers)}.meta", b""))


def _launches(files: Mapping[str, object]) -> list[int]:
    """Return the numbers of the launches that these files record."""
    numbers = (whole(path[4:-4]) for path in files if path.startswith("rec/") and path.endswith(".raw"))
    return sorted({number for number in numbers if number is not None and f"rec/{number}.raw" in files})
