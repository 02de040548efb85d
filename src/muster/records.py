"""Reading what an agent left: its screen, recording, transcript and events; and a playbook made from them.

All of it works on live agents and on destroyed ones, whose folder is in the trash.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from . import cast, store, tmux
from .errors import MusterError, NotFound
from .host import Found, Host
from .model import Address, Agent, whole

if TYPE_CHECKING:
    from .fleet import Fleet

FOLLOW_SECONDS = 0.2
META_MAX = 1 << 20


class Left(NamedTuple):
    """An agent's folder, wherever it is now."""

    host: Host
    agent: Agent


def find(fleet: Fleet, name: str | Found) -> Left:
    """The agent of that name, or the one destroyed last that had it (or has that id); one that is known is not asked for."""
    if isinstance(name, Found):
        return Left(name.host, name.agent)
    try:
        one = fleet.get(name)
        return Left(one.host, one.agent)
    except NotFound:
        from . import trash

        gone = trash.find(fleet, Address.parse(name))
        if gone is None:
            raise
        return Left(gone.host, gone.agent)


def screen(fleet: Fleet, name: str, *, ansi: bool, scrollback: bool) -> tuple[str, str]:
    """What the terminal shows or showed last, and where that was read: `live`, `kept` or `recording`."""
    left = find(fleet, name)
    live = tmux.screen(left.host, left.agent.id, ansi=ansi, scrollback=scrollback)
    if live is not None:
        return live, "live"
    kept = store.read(left.host, left.agent.id, "screen").get("screen")
    if kept is not None:
        text = kept.decode("utf-8", "replace")
        return text if ansi else cast.strip(text), "kept"
    # Its session went away without a word: what the recording ends with is the best there is.
    raw, meta = _newest(store.read(left.host, left.agent.id, "rec/*"))
    if raw is None:
        raise MusterError(f"{name} has shown nothing yet", f"muster explain {name}")
    return tmux.render(fleet.local, raw, meta.get("cols"), meta.get("rows"), ansi=ansi), "recording"


def recording(fleet: Fleet, name: str | Found, idle: float | None) -> Iterator[str]:
    """The lines of an asciicast of all launches of an agent."""
    left = find(fleet, name)
    wanted = ("rec/*.raw", "rec/*.timing", "rec/*.meta")
    files = store.opened(left.host, left.agent.id, os.path.join(fleet.home, "tmp"), *wanted)
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


def transcript(fleet: Fleet, name: str | Found) -> list[dict[str, Any]]:
    left = find(fleet, name)
    kind = fleet.type(left.agent.type)
    if kind.translate and not kind.transcript:
        return kind.translate(store.conversation(left.host, left.agent.id))
    if kind.translate:
        return kind.translate(_lines(store.read(left.host, left.agent.id, kind.transcript)))
    return _lines(store.read(left.host, left.agent.id, _transcript_file(fleet, left.agent)))


def events(fleet: Fleet, name: str | Found) -> list[dict[str, Any]]:
    left = find(fleet, name)
    files = store.read(left.host, left.agent.id, "events.1.jsonl", "events.jsonl")
    return _lines({key: files[key] for key in ("events.1.jsonl", "events.jsonl") if key in files})


def follow(fleet: Fleet, name: str, what: str, skip: int) -> Iterator[dict[str, Any]]:
    """What is added from now on; ends when the agent is destroyed."""
    read = transcript if what == "transcript" else events
    while True:
        try:
            now = read(fleet, name)
            gone = False
            fleet.get(name)
        except NotFound:
            gone = True
        yield from now[skip:]
        skip = max(skip, len(now)) if len(now) >= skip else len(now)
        if gone:
            return
        time.sleep(FOLLOW_SECONDS)


def playbook(fleet: Fleet, one: Found) -> list[dict[str, Any]]:
    """The steps that would do again what this agent did."""
    from . import work

    steps: list[dict[str, Any]] = []
    timed: list[tuple[float, dict[str, Any]]] = []
    committed: list[float] = []
    if (kind := fleet.type(one.agent.type)).transcript or kind.translate:
        asked = {event.get("text") for event in events(fleet, str(one.status.address)) if event.get("kind") == "ask"}
        for entry in transcript(fleet, str(one.status.address)):
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
        text, _ = screen(fleet, str(one.status.address), ansi=False, scrollback=True)
        if text.strip():
            timed.append((0.0, {"say": text.strip()}))
    timed += _exactly(work.steps(fleet, one), committed)
    steps = [step for _, step in sorted(timed, key=lambda item: item[0])]
    result = store.read(one.host, one.agent.id, "result.json").get("result.json")
    if result is not None:
        steps.append({"submit_raw": result.decode("utf-8", "replace")})
    if one.status.exit_code is not None:
        steps.append({"exit": one.status.exit_code})
    return steps


def _exactly(steps: list[tuple[float, dict[str, Any]]], tools: list[float]) -> list[tuple[float, dict[str, Any]]]:
    """Commits know only the second they were made in; the call that made one, when there is such a call, knows better."""
    left, at, found = sorted(tools), {}, []
    for number, (t, step) in enumerate(steps):
        if "commit" in step:
            while left and left[0] < t:
                left.pop(0)
            exact = left.pop(0) if left and left[0] < t + 60 else t
            at[number] = exact
            if number and "patch" in steps[number - 1][1]:
                at[number - 1] = exact  # the change and its commit are one
    for number, (t, step) in enumerate(steps):
        found.append((at.get(number, t), step))
    return found


def _transcript_file(fleet: Fleet, agent: Agent) -> str:
    name = fleet.type(agent.type).transcript
    if not name:
        raise MusterError(
            f"{agent.name} is a {agent.type}, which keeps no transcript", f"muster capture {agent.name} --scrollback"
        )
    return name


def _lines(files: dict[str, bytes]) -> list[dict[str, Any]]:
    """The JSON objects of some files; lines that are none are passed over."""
    return [value for content in files.values() for value in store.objects(content)]


def _newest(files: dict[str, bytes]) -> tuple[bytes | None, dict[str, Any]]:
    numbers = _launches(files)
    if not numbers:
        return None, {}
    return files[f"rec/{max(numbers)}.raw"], cast.meta(files.get(f"rec/{max(numbers)}.meta", b""))


def _launches(files: Mapping[str, object]) -> list[int]:
    """The numbers of the launches that these files record."""
    numbers = (whole(path[4:-4]) for path in files if path.startswith("rec/") and path.endswith(".raw"))
    return sorted({number for number in numbers if number is not None and f"rec/{number}.raw" in files})
