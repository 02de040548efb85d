"""Derive an agent's state, and the reason for it, from the evidence that `store.survey` collects.

These are pure functions: they read no clock and do no I/O.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from .model import Agent, Alarm, ClientStatus, Evidence, Status

#: Reasons of lost agents whose `create` or `destroy` was interrupted, so that `gc` may remove them.
CUT_OFF = ("create was interrupted", "never started", "destroy was interrupted")
#: Reason of an agent that has processes but no tmux session. They are ending, or `stop` ends them.
WITHOUT_SESSION = "session gone, still running"
#: Seconds for which an unfinished create on another machine counts as in progress.
CREATING_GRACE = 120.0

#: Event kinds that belong to a turn, and the state that each leads to.
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
REASON = {
    "error": "failed turn",
    "interrupted": "interrupted",
    "ask": "question",
    "permission": "permission",
    "limit": "limit",
    "retry": "retry",
}


def changed(alarms: tuple[Alarm, ...], now: float) -> list[Evidence]:
    """Return evidence for record fields that the host reports differently than muster wrote them."""
    return [
        Evidence("result", now, "result.json was not written by this agent's own submit; it does not count")
        if alarm.field == "result"
        else Evidence(
            "record", now, f"{alarm.field} is {alarm.reported!r} on its host, muster wrote {alarm.recorded!r}; ignored"
        )
        for alarm in alarms
    ]


def repository(alarms: tuple[Alarm, ...], now: float) -> list[Evidence]:
    """Return evidence for hooks and settings of the user's repository that have changed since `create`."""
    return [
        Evidence(
            "repository", now, f"{alarm.field} {'changed' if alarm.recorded else 'is new'} since the agent was created"
        )
        for alarm in alarms
    ]


def judge(
    agent: Agent,
    events: dict[str, dict[str, Any]],
    pane: dict[str, Any] | None,
    now: float,
    *,
    speaks: bool,
    creator_alive: bool | None = None,
    last_line: str = "",
    shows: dict[str, str] | None = None,
    processes: int = 0,
    choice: str = "",
    box: str = "",
    cursor: bool = False,
    client: ClientStatus | None = None,
    resets: Callable[[str, float], float | None] | None = None,
) -> Status:
    """Return the state of one agent.

    `speaks`, `shows`, `resets`, `choice`, `box` and `cursor` come from its AgentType. `shows` only matters if the client fires no
    events, or has fired none yet. `pane` is what tmux reports of its session, or None without one; it includes the screen if tmux found a
    line that matches `choice`. `client` is the client's own status, and `processes` the number of processes without a session.
    """
    client_at = (client and _finite(client.t)) or 0.0
    seen = [Evidence(f"event {kind}", _time(event), _tell(event), TURN.get(kind, "")) for kind, event in events.items()]
    if client and client_at:
        seen.append(Evidence("client's status", client_at, client.status))
    if pane is None:
        seen.append(Evidence("tmux", now, "no session"))
        if processes:
            seen.append(Evidence("process table", now, f"processes of the agent: {processes}"))
    elif pane["dead"]:
        seen.append(Evidence("tmux", now, f"the process ended ({_ending(pane)})"))
    else:
        seen.append(Evidence("tmux", now, f"process {pane['pid']} runs ({pane['command']})"))
    seen.sort(key=lambda item: item.t)

    def status(state: str, reason: str, since: float, why: str, code: int | None = None, **more: Any) -> Status:
        if state == "working" and pane and pane.get("retries"):
            reason, why, more = REASON["retry"], f"{why}, and its screen shows that it tries again", {"refused": now}
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
        if started > now:
            return status("starting", "", started, "it was started after tmux was asked")
        if stopped and _time(stopped) >= started:
            return status("stopped", "", _time(stopped), "stop ended it")
        if ended and _time(ended) >= started and (pane is not None or ended.get("why") != "hangup"):
            code = ended.get("code")
            return _ended(status, code if isinstance(code, int) else 1, str(ended.get("why", "")), _time(ended))
        if pane is not None:
            code = 128 + pane["signal"] if pane["signal"] else pane["status"]
            if code is None:
                return status(
                    "failed", "exit code not known", started, "its process ended, and its exit code was not recorded"
                )
            return _ended(status, code, "", started)
        if not started and under_way:
            return status("starting", "", agent.created, "it is being created")
        if not started:
            return status("lost", "never started", agent.created, "there is a record and no session")
        if processes:
            return status("working", WITHOUT_SESSION, started, f"its session is gone, {processes} of its processes run")
        return status(
            "lost",
            "its session is gone",
            started,
            "tmux has no session of it, and neither stop nor the program ended it",
        )

    shown = _shown(last_line, shows or {})
    if shown:
        seen.append(Evidence("last line", now, last_line[:200], shown))
    if not speaks:
        if shown:
            reason = "question" if shown == "waiting" else ""
            return status(shown, reason, started, f"the last line of its terminal is what it shows when {shown}")
        return status("working", "", started, "a plain command is at work while its process runs")
    turns = {kind: event for kind, event in events.items() if kind in TURN and _time(event) >= started}
    kind = max(turns, key=lambda name: (_time(turns[name]), name != "started"), default="")
    if kind in ("", "started", *OPEN) and (entry := _selected(pane or {}, choice, box, cursor)):
        seen.append(Evidence("screen", now, entry, "waiting"))
        why = "its screen shows a menu in place of its input box, and no hook told of one"
        return status("waiting", "dialog", _time(turns.get(kind)), why)
    told = _client(kind, _time(turns.get(kind)), client, now) if client and client_at else None
    # An event with `by` was derived from something else, such as the title of the terminal, so it does not prove that hooks run.
    unheard = all(name == "started" or event.get("by") for name, event in turns.items())
    if unheard and now - started > 4 * SETTLED and (told or client_at > started):
        seen.append(Evidence("hooks", now, NO_HOOKS))
    if not told and shown and kind in ("", "started"):
        reason = "dialog" if shown == "waiting" else ""
        told = (shown, reason, started, "its terminal shows it, its client said nothing")
    if told:
        return status(*told)
    if not turns:
        return status("starting", "", started, "its process is up, it has said nothing yet")
    event = turns[kind]
    until = _finite(event.get("until"))
    if kind == "limit" and until is None and resets:
        until = resets(str(event.get("text", "")), _time(event))
    if kind == "limit" and until is not None and now > until + LIMIT_GRACE:
        return status(
            "ready", "limit is over", until, "the time that its client named for the end of the limit is past"
        )
    return status(
        TURN[kind],
        REASON.get(kind, ""),
        _time(event),
        f"the newest thing its client said is {kind!r}",
        until=until,
        refused=_time(event) if kind == "retry" else None,
    )


#: Seconds that an agent has to resume by itself after its limit has ended.
LIMIT_GRACE = 5.0
#: Seconds for which a status file counts as unsettled: clients write `idle` a moment before their hook reports the end of the turn.
SETTLED = 0.8
BEHIND = "background task"
#: Events after which the input box is open.
OPEN = ("ready", "turn-end", "error", "interrupted")
NO_HOOKS = "none seen for this launch; state taken from session file and screen"


def client_status(files: list[dict[str, Any]]) -> ClientStatus | None:
    """Return the newest status file of a client in muster's form, or None if none is readable."""
    found = [ClientStatus(_time(file), str(file.get("status")), file.get("dialog") is True) for file in files]
    return max((status for status in found if status.t), default=None, key=lambda status: status.t)


def _client(kind: str, at: float, client: ClientStatus, now: float) -> tuple[str, str, float, str] | None:
    """Return state, reason, since and why if the client's status file knows more than its hooks; otherwise None."""
    t, status = client.t, client.status
    idle = status in ("idle", "background")
    if status == "background" and kind in OPEN:
        return "ready", BEHIND, at, "its turn is over, and its client says that a command of it still runs"
    if t <= at or (idle and now - t < SETTLED):
        return None
    if idle and kind in ("prompt", "tool", "answered", "retry", "permission", "ask"):
        return "ready", "interrupted", t, f"its client says that it is idle, and told no end of the turn after {kind!r}"
    if idle and kind in ("", "started") and now - t > 4 * SETTLED:
        return "ready", "", t, "its client says that it is idle, and its hooks have told nothing"
    if status == "busy" and kind in ("permission", "ask"):
        return "working", "", t, f"its client says that it is busy again after {kind!r}"
    if status == "busy" and kind in ("", "started", "ready") and now - t > 4 * SETTLED:
        return "working", "", t, "its client says that it is busy, and its hooks have told nothing"
    if status == "waiting" and kind in ("", "started", "prompt", "tool", "answered", *OPEN):
        reason = "dialog" if kind in OPEN or client.dialog else "permission"
        return "waiting", reason, t, "its client says that it waits, and no hook told for what"
    return None


def input_box(screen: str, row: int | None, box: str, cursor: bool) -> re.Match[str] | None:
    """Return the input box at the end of a screen whose cursor is in `row` (None: hidden). `box`, `cursor`: see AgentType."""
    found = re.search(box, screen, re.MULTILINE)
    if found and cursor and (row is None or row < screen.count("\n", 0, found.start())):
        return None
    return found


def _selected(pane: dict[str, Any], choice: str, box: str, cursor: bool) -> str:
    """Return the selected entry of the menu that a screen shows in place of the input box; empty if the box is there."""
    screen = str(pane.get("screen", ""))
    if not screen or not choice or not box or input_box(screen, pane.get("cursor"), box, cursor):
        return ""
    entries = [line.strip() for line in screen.split("\n") if re.search(choice, line)]
    return entries[-1][:200] if entries else ""


def _shown(line: str, shows: dict[str, str]) -> str:
    """Return the state that the last line matches, `waiting` first because then a person is needed."""
    for state in ("waiting", "ready", "working"):
        if state in shows and re.search(shows[state], line[:1000]):
            return state
    return ""


def screened(status: Status, screen: str, looks: str) -> Status:
    """Add the last line of the screen that matches `looks` as evidence. The state stays the same."""
    lines = [line.strip() for line in screen.split("\n") if looks and re.search(looks, line[:1000])]
    if not lines:
        return status
    return status._replace(evidence=(*status.evidence, Evidence("screen", status.now, lines[-1][:200])))


def last_word(events: dict[str, dict[str, Any]]) -> str:
    """Return the newest readable text of a client; empty for a plain command."""
    spoken = {
        kind: event
        for kind, event in events.items()
        if kind in ("turn-end", "ask", "permission", "tool", "error", "limit")
    }
    if not spoken:
        return ""
    event = spoken[max(spoken, key=lambda kind: _time(spoken[kind]))]
    words = [str(event[key]) for key in ("name", "tool", "text", "detail") if event.get(key)]
    return ": ".join(words).strip().partition("\n")[0]


def question(status: Status, events: dict[str, dict[str, Any]]) -> str:
    """Return the full question of a waiting agent; empty if it does not wait or its client does not report it."""
    if status.state != "waiting":
        return ""
    asked = [events[kind] for kind in ("ask", "permission", "limit") if kind in events]
    event = max(asked, key=_time, default={})
    return ": ".join(str(event[key]) for key in ("name", "tool", "text", "detail") if event.get(key)).strip()


def _ended(status: Any, code: int, why: str, since: float) -> Status:
    if why == "timeout":
        result: Status = status("failed", "timeout", since, "its time was up", code)
    elif code == 0:
        result = status("done", "", since, "its process ended with 0", code)
    else:
        told = f"exit {code}" if code <= 128 else f"signal {code - 128}"
        result = status("failed", told, since, "its process ended otherwise than with 0", code)
    return result


def _time(event: dict[str, Any] | None) -> float:
    return _finite((event or {}).get("t")) or 0.0


def _finite(value: object) -> float | None:
    """Return a valid time, because a client may have written any number."""
    try:
        number = float(value) if isinstance(value, int | float) else math.nan
    except OverflowError:
        return None
    return number if 0 <= number < 1e11 else None


def _tell(event: dict[str, Any]) -> str:
    rest = {key: value for key, value in event.items() if key not in ("t", "kind")}
    return ", ".join(f"{key}={str(value)[:300]!r}" for key, value in rest.items())


def _ending(pane: dict[str, Any]) -> str:
    if pane["signal"]:
        return f"signal {pane['signal']}"
    return "tmux does not say how" if pane["status"] is None else f"exit {pane['status']}"
