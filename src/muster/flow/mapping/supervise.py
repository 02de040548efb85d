"""Decides what to do about one agent of a run, from what its status shows. Pure: the clock comes in, and nothing is done here."""

from __future__ import annotations

from typing import NamedTuple

from ... import Status
from ..run import results

NUDGE = (
    "Your turn is over, and you have not submitted a result. If you are done or cannot go on, run: submit --outcome ok|blocked|failed "
    "--summary '…'. Else go on."
)
NOBODY = (
    "Nobody is here to answer. Decide as you think best, or run: submit --outcome blocked --summary '…' --reason '…'."
)
GO_ON = "The limit is over. Go on where you were."
#: Seconds that a client may go on talking after it has submitted.
LAST_WORDS = 20.0
#: Seconds that a client may take to write down what its last turn cost.
COUNTED = 3.0
#: A limit without a known end: the agent is told to go on after this many seconds, then after twice as long each time up to the
#: maximum, and this many times in all.
LIMIT_SECONDS, LIMIT_MAX, GO_ON_MAX = 300.0, 4800.0, 8
#: Seconds that an agent has to start on a message: until then its status is still that of before.
MESSAGE_SECONDS = 5.0
#: A limit that claims to last longer than this is not believed, and a model that refuses for longer than this is not waited for.
LIMIT_LONGEST, REFUSED_LONGEST = 8 * 86400.0, 6 * 3600.0
#: An agent that is missing from its host for this many seconds is lost.
MISSING = 20.0
ENDED = frozenset({"done", "failed", "stopped", "lost"})


class Policy(NamedTuple):
    """What is done about an agent that does not get on by itself."""

    speaks: bool
    """The agent is a client: it reports its turns and must submit a result. Otherwise its exit code is its result."""
    stall: float = 0.0
    """Seconds without a sign of work after which the agent has stalled; 0 means never."""
    questions: str = "answer"
    """What an agent that asks gets: `answer` (once, that nobody is there), `escalate` (a person is notified) or `stop`."""


class Observed(NamedTuple):
    """What was seen of an agent so far, and what was done about it. A time of 0 means that it has not happened."""

    since: float
    mark: tuple[object, ...] = ()
    """The part of the status that changes while an agent works."""
    active: float = 0.0
    """When that last changed."""
    missing: float = 0.0
    """Since when its host does not list it."""
    nudged: bool = False
    answered: bool = False
    escalated: float = -1.0
    """When the question began that a person was notified of."""
    rejected: str = ""
    """The invalid result that was sent back to the agent."""
    submitted: float = 0.0
    limit_reported: float = -1.0
    """When the limit began that was last reported."""
    limited_since: float = 0.0
    refused_since: float = 0.0
    """Since when the agent's model refuses it."""
    go_ons: int = 0
    """How often it was told that a limit without a known end may be over."""
    last_go_on: float = 0.0


class Action(NamedTuple):
    kind: str = "wait"
    """`wait`, `message`, `answer` (its question), `escalate` (to a person), or `end` (harvest it)."""
    text: str = ""
    outcome: str = ""
    reason: str = ""
    claimed: bool = False
    """The outcome and the reason are the agent's own."""
    limited: str = ""
    """It meets a limit: `quota`, or `overload` if its client tries again by itself."""
    until: float | None = None
    """When the limit ends, if the client says so."""


WAIT = Action()


def decide(status: Status | None, seen: Observed, now: float, policy: Policy) -> tuple[Action, Observed]:
    """Return what to do now and what to remember. Called again with the same status a moment later, it does nothing twice.

    `status` is None if the agent's host does not list it.
    """
    if status is None:
        seen = seen._replace(missing=seen.missing or now)
        if now - seen.missing > MISSING:
            return Action("end", outcome="lost", reason="it is gone"), seen
        return WAIT, seen
    mark = (status.state, status.reason, status.since, status.last_line, str(status.usage), status.result)
    if mark != seen.mark:
        seen = seen._replace(mark=mark, active=now)
    if seen.missing:
        seen = seen._replace(missing=0.0)
    newly_refused = status.refused is not None and not seen.refused_since
    if (status.refused is None) != (not seen.refused_since):
        seen = seen._replace(refused_since=now if newly_refused else 0.0)
    if seen.refused_since and now - seen.refused_since < REFUSED_LONGEST:
        seen = seen._replace(active=now)  # waiting for its model is no stall
    submitted = status.result and status.result != seen.rejected
    if submitted and (policy.speaks or status.state in ENDED or _has_valid_result(status)):
        return _submitted(status, seen, now)
    if status.state in ENDED:
        return _without_result(_ended(status, policy), seen), seen
    if status.state == "waiting":
        return _waiting(status, seen, now, policy)
    if status.state == "ready" and policy.speaks and status.reason != "background task":
        return _turn_over(status, seen, now)
    if policy.stall and now - seen.active > policy.stall:
        return Action("end", outcome="stalled", reason=f"no sign of work for {now - seen.active:.0f} s"), seen
    return Action(limited="overload") if newly_refused else WAIT, seen


def how_it_ended(status: Status, seen: Observed, policy: Policy) -> Action | None:
    """Return how an agent ended, or what it submitted; None if it was still at work."""
    result = results.of(status) if status.result else None
    if isinstance(result, results.Result):
        return Action("end", outcome=result.outcome, reason=result.reason, claimed=True)
    if status.state in ("done", "failed"):
        return _without_result(_ended(status, policy), seen)
    return None


def _has_valid_result(status: Status) -> bool:
    return isinstance(results.of(status), results.Result)


def _turn_over(status: Status, seen: Observed, now: float) -> tuple[Action, Observed]:
    if (seen.nudged or seen.answered) and now - seen.active < MESSAGE_SECONDS:
        return WAIT, seen
    if status.reason == "limit is over" and not seen.answered:
        return Action("message", GO_ON), seen._replace(answered=True)
    if not seen.nudged:
        return Action("message", NUDGE), seen._replace(nudged=True)
    failed = status.reason == "failed turn"
    reason = f"failed turn: {status.last_line}" if failed else "it ended its turn without a result"
    return _without_result(Action("end", outcome="failed", reason=reason), seen), seen


def _submitted(status: Status, seen: Observed, now: float) -> tuple[Action, Observed]:
    result = results.of(status)
    live = status.state not in ENDED
    if isinstance(result, results.Result):
        seen = seen._replace(submitted=seen.submitted or now)
        if live and status.state in ("working", "starting") and now - seen.submitted < LAST_WORDS:
            return WAIT, seen
        if status.state == "ready" and 0 <= status.now - status.since < COUNTED:
            return WAIT, seen
        return Action("end", outcome=result.outcome, reason=result.reason, claimed=True), seen
    if live and not seen.rejected:
        return Action("message", results.words_back(result)), seen._replace(rejected=status.result, nudged=True)
    return Action("end", outcome="invalid", reason=str(result)), seen


def _without_result(action: Action, seen: Observed) -> Action:
    """Return how an agent without a result ended. If an invalid result was sent back and none followed, that one counts."""
    if not seen.rejected or action.outcome not in ("failed", "ok"):
        return action
    flaw = results.read(seen.rejected.encode("utf-8", "surrogateescape"))
    return action._replace(outcome="invalid", reason=str(flaw if isinstance(flaw, results.Flaw) else results.FOREIGN))


def _ended(status: Status, policy: Policy) -> Action:
    if status.state == "lost":
        return Action("end", outcome="lost", reason=status.reason or "its session is gone")
    if status.state == "stopped":
        return Action("end", outcome="cancelled", reason="somebody stopped it")
    if status.state == "failed" and status.reason == "timeout":
        return Action("end", outcome="timeout", reason="its time was up")
    if status.state == "failed":
        return Action("end", outcome="failed", reason=f"{status.reason}: {status.last_line}".rstrip(": "))
    if policy.speaks:
        return Action("end", outcome="failed", reason="it ended without a result")
    return Action("end", outcome="ok")


def _waiting(status: Status, seen: Observed, now: float, policy: Policy) -> tuple[Action, Observed]:
    if status.reason == "limit":
        return _limited(status, seen._replace(active=now), now)
    if status.reason == "question" and policy.questions == "answer" and not seen.answered:
        return Action("answer", NOBODY), seen._replace(answered=True)
    if status.reason == "question" and policy.questions == "escalate":
        if seen.escalated == status.since:
            return WAIT, seen._replace(active=now)  # a person has been notified; only --timeout ends the wait
        return Action("escalate", status.last_line), seen._replace(escalated=status.since)
    if status.reason == "question" and seen.answered and now - seen.active < MESSAGE_SECONDS:
        return WAIT, seen
    asked = f": {status.last_line}" if status.last_line else ""
    return Action("end", outcome="blocked", reason=f"it waits for a {status.reason}{asked}"), seen


def _limited(status: Status, seen: Observed, now: float) -> tuple[Action, Observed]:
    """Wait for a limit whose end is known. Otherwise tell the agent from time to time to try again."""
    seen = seen._replace(limited_since=seen.limited_since or now)
    endless = Action("end", outcome="stalled", reason=f"it meets a limit that does not end: {status.last_line}")
    if status.until is not None:
        latest = seen.limited_since + LIMIT_LONGEST
        if now > latest:
            return endless, seen
        return Action(limited="quota", until=min(status.until, latest)), seen
    if now - max(status.since, seen.last_go_on) > min(LIMIT_MAX, LIMIT_SECONDS * 2.0**seen.go_ons):
        if seen.go_ons == GO_ON_MAX:
            return endless, seen
        return Action("message", GO_ON), seen._replace(go_ons=seen.go_ons + 1, last_go_on=now)
    if seen.limit_reported != status.since:
        return Action(limited="quota"), seen._replace(limit_reported=status.since)
    return WAIT, seen
