"""What is known of an agent, fused into one state and the reason why it follows.

Pure: fed by `store.survey`, it reads no clock and asks nobody.
"""

from __future__ import annotations

import math
from typing import Any

from .model import Agent, Evidence, Status

#: Reasons that say of a lost agent that a `create` or `destroy` of it was cut off: it can be put away.
CUT_OFF = ("create was interrupted", "never started", "destroy was interrupted")
#: How long a half-made agent on another machine is still taken to be under way.
CREATING_GRACE = 120.0

#: Event kinds that tell of a turn, and the state each one leads to.
TURN = {
    "started": "starting",
    "ready": "ready",
    "prompt": "working",
    "tool": "working",
    "answered": "working",
    "retry": "working",
    "turn-end": "ready",
    "interrupted": "ready",
    "error": "ready",
    "ask": "waiting",
    "permission": "waiting",
    "limit": "waiting",
}
REASON = {"error": "failed turn", "ask": "question", "permission": "permission", "limit": "limit"}


def judge(
    agent: Agent,
    events: dict[str, dict[str, Any]],
    pane: dict[str, Any] | None,
    now: float,
    *,
    speaks: bool,
    creator_alive: bool | None = None,
) -> Status:
    """The state of one agent. `speaks`: its type fires events for its turns.

    `pane` is what tmux says of its session, or None when there is no such session.
    """
    events = dict(events)
    client = events.pop("client", {})
    millis = client.get("statusUpdatedAt")
    client_at = _finite(millis / 1000 if isinstance(millis, int | float) else None) or 0.0
    if client_at:
        client = {"t": client_at, "status": client.get("status")}
    seen = [Evidence(f"event {kind}", _time(event), _tell(event), TURN.get(kind, "")) for kind, event in events.items()]
    if client_at:
        seen.append(Evidence("client's status", client_at, str(client["status"])))
    if pane is None:
        seen.append(Evidence("tmux", now, "no session"))
    elif pane["dead"]:
        seen.append(Evidence("tmux", now, f"the process ended ({_ending(pane)})"))
    else:
        seen.append(Evidence("tmux", now, f"process {pane['pid']} runs ({pane['command']})"))
    seen.sort(key=lambda item: item.t)

    def status(state: str, reason: str, since: float, why: str, code: int | None = None, **more: Any) -> Status:
        return Status(
            agent, "", "", state, reason, since or agent.created, now, why, tuple(seen), exit_code=code, **more
        )

    started = _time(events.get("started"))
    alive = pane is not None and not pane["dead"]
    under_way = creator_alive or (
        creator_alive is None and bool(agent.creator) and now - agent.created < CREATING_GRACE
    )
    if agent.phase == "unreadable":
        return status("lost", "its record cannot be read", now, "agent.json is damaged; destroy keeps all it has")
    if agent.phase == "creating" and not started:
        if under_way:
            return status("starting", "", agent.created, "it is being created")
        return status("lost", "create was interrupted", agent.created, "it was never started")
    if agent.phase == "destroying":
        if creator_alive:
            return status("stopped", "is being destroyed", now, "a destroy of it is under way")
        return status("lost", "destroy was interrupted", agent.created, "run destroy again, it goes on")

    stopped, ended = events.get("stopped"), events.get("exit")
    if not alive:
        if stopped and _time(stopped) >= started:
            return status("stopped", "", _time(stopped), "stop ended it")
        if ended and _time(ended) >= started and (pane is not None or ended.get("why") != "hangup"):
            code = ended.get("code")
            return _ended(status, code if isinstance(code, int) else 1, str(ended.get("why", "")), _time(ended))
        if pane is not None:
            code = 128 + pane["signal"] if pane["signal"] else pane["status"]
            if code is None:
                return status("failed", "exit code not known", started, "its process ended, and nobody says how")
            return _ended(status, code, "", started)
        if not started and under_way:
            return status("starting", "", agent.created, "it is being created")
        if not started:
            return status("lost", "never started", agent.created, "there is a record and no session")
        return status("lost", "its session is gone", started, "no end was recorded and tmux has no session")

    if not speaks:
        return status("working", "", started, "a plain command is at work while its process runs")
    turns = {kind: event for kind, event in events.items() if kind in TURN and _time(event) >= started}
    kind = max(turns, key=lambda name: (_time(turns[name]), name != "started"), default="")
    if told := _client(kind, _time(turns.get(kind)), client, now):
        return status(*told)
    if not turns:
        return status("starting", "", started, "its process is up, it has said nothing yet")
    event = turns[kind]
    until = _finite(event.get("until"))
    return status(
        TURN[kind],
        REASON.get(kind, ""),
        _time(event),
        f"the newest thing its client said is {kind!r}",
        until=until,
    )


#: A client says that it is idle a moment before its hook tells of the end of the turn: so long its file is not believed.
SETTLED = 0.8


def _client(kind: str, at: float, client: dict[str, Any], now: float) -> tuple[str, str, float, str] | None:
    """What the client's own file says that no hook told: state, reason, since and why; None where the hooks stand."""
    t, status = _time(client), client.get("status")
    if t <= at or (status == "idle" and now - t < SETTLED):
        return None
    if status == "idle" and kind in ("prompt", "tool", "answered", "retry", "permission", "ask"):
        return "ready", "interrupted", t, f"its client says that it is idle, and told no end of the turn after {kind!r}"
    if status == "idle" and kind in ("", "started") and now - t > 4 * SETTLED:
        return "ready", "", t, "its client says that it is idle, and its hooks have told nothing"
    if status == "busy" and kind in ("permission", "ask"):
        return "working", "", t, f"its client says that it is busy again after {kind!r}"
    if status == "waiting" and kind in ("prompt", "tool", "answered"):
        return "waiting", "permission", t, "its client says that it waits"
    return None


def last_word(events: dict[str, dict[str, Any]]) -> str:
    """The newest thing a client said that a person can read; empty for a plain command."""
    spoken = {
        kind: event for kind, event in events.items() if kind in ("turn-end", "ask", "permission", "tool", "error")
    }
    if not spoken:
        return ""
    event = spoken[max(spoken, key=lambda kind: _time(spoken[kind]))]
    words = [str(event[key]) for key in ("name", "tool", "text", "detail") if event.get(key)]
    return ": ".join(words).strip().partition("\n")[0]


def _ended(status: Any, code: int, why: str, since: float) -> Status:
    if why == "timeout":
        result: Status = status("failed", "timeout", since, "its time was up", code)
    elif code == 0:
        result = status("done", "", since, "its process ended with 0", code)
    else:
        told = f"exit {code}" if code < 128 else f"signal {code - 128}"
        result = status("failed", told, since, "its process ended otherwise than with 0", code)
    return result


def _time(event: dict[str, Any] | None) -> float:
    return _finite((event or {}).get("t")) or 0.0


def _finite(value: object) -> float | None:
    """A moment that a clock can show: what a client wrote may be any number."""
    try:
        number = float(value) if isinstance(value, int | float) else math.nan
    except OverflowError:
        return None
    return number if 0 <= number < 1e11 else None


def _tell(event: dict[str, Any]) -> str:
    rest = {key: value for key, value in event.items() if key not in ("t", "kind")}
    return ", ".join(f"{key}={str(value)[:80]!r}" for key, value in rest.items())


def _ending(pane: dict[str, Any]) -> str:
    if pane["signal"]:
        return f"signal {pane['signal']}"
    return "tmux does not say how" if pane["status"] is None else f"exit {pane['status']}"
