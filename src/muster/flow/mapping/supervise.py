"""Watching one agent of a run: what its state asks for now. Pure: the clock comes in, nothing is done here."""

from __future__ import annotations

from typing import NamedTuple

from ... import Status
from ..run import results

NUDGE = (
    "Your turn is over, and you have not submitted a result. If you are done or cannot go on, run: submit --outcome ok|blocked|failed "
    "--summary '…'. Else go on."
)
ALONE = (
    "Nobody is here to answer. Decide as you think best, or run: submit --outcome blocked --summary '…' --reason '…'."
)
GO_ON = "The limit is over. Go on where you were."
#: A client may say its last words after it has submitted.
LAST_WORDS = 20.0
#: Its client writes down what its last words cost after it has told that they are said.
COUNTED = 3.0
#: So long a limit that names no end is waited for, each time twice as long up to the most; and so often its agent is told to go on.
LIMIT_SECONDS, LIMIT_MAX, PLEAS = 300.0, 4800.0, 8
#: What it was told may be in its box and not yet in its turn: so long it has to take it up.
TAKEN_UP = 5.0
#: No limit is longer than a week: what claims to be is not waited for. Nor is a model that refuses for so long that it will not change its mind.
LIMIT_LONGEST, REFUSED_LONGEST = 8 * 86400.0, 6 * 3600.0
#: An agent that the survey does not have for so long is gone.
MISSING = 20.0
ENDED = frozenset({"done", "failed", "stopped", "lost"})


class Rules(NamedTuple):
    """What is done about an agent that does not get on by itself."""

    speaks: bool
    """Its client tells of its turns, and has to submit a result; else its exit is its result."""
    stall: float = 0.0
    """Without a sign of work for so long it has stalled; 0: never."""
    questions: str = "answer"
    """`answer` (once, that nobody is there), `escalate` (a person is asked, and it waits), or `stop`."""


class Memo(NamedTuple):
    """What was seen of an agent so far, and what was done about it."""

    since: float
    mark: tuple[object, ...] = ()
    active: float = 0.0
    missing: float = 0.0
    nudged: bool = False
    answered: bool = False
    asked: float = -1.0
    """When the question came up that a person was told of."""
    flawed: str = ""
    """The result that was sent back: it does not count again."""
    submitted: float = 0.0
    limited: float = -1.0
    """When the limit came up of which was told."""
    met: float = 0.0
    """When it first met a limit."""
    refused: float = 0.0
    """Since when its model refuses it, as far as is known; 0: it does not."""
    pleas: int = 0
    """How often it was told that a limit without a known end may be over, and when it was."""
    pleaded: float = 0.0


class Act(NamedTuple):
    """`wait`, `tell` (a message), `answer` (its question), `ask` (a person) or `end` (harvest it, with this outcome)."""

    what: str = "wait"
    text: str = ""
    outcome: str = ""
    reason: str = ""
    claimed: bool = False
    """The outcome and the reason are the agent's own words."""
    limited: str = ""
    """It meets a limit: `quota`, or `overload` where its client tries again by itself."""
    until: float | None = None
    """When that ends, if its client named it."""


WAIT = Act()


def watch(status: Status | None, memo: Memo, now: float, rules: Rules) -> tuple[Act, Memo]:
    """What to do now, and what to remember. The same status again, a moment later, does nothing twice."""
    if status is None:
        memo = memo._replace(missing=memo.missing or now)
        if now - memo.missing > MISSING:
            return Act("end", outcome="lost", reason="it is gone"), memo
        return WAIT, memo
    mark = (status.state, status.reason, status.since, status.last_line, str(status.usage), status.result)
    if mark != memo.mark:
        memo = memo._replace(mark=mark, active=now)
    if memo.missing:
        memo = memo._replace(missing=0.0)
    news = status.refused is not None and not memo.refused
    if (status.refused is None) != (not memo.refused):
        memo = memo._replace(refused=now if news else 0.0)
    if memo.refused and now - memo.refused < REFUSED_LONGEST:
        memo = memo._replace(active=now)  # it would work if it could
    if status.result and status.result != memo.flawed and (rules.speaks or status.state in ENDED or _valid(status)):
        return _submitted(status, memo, now)
    if status.state in ENDED:
        return _without(_ended(status, rules), memo), memo
    if status.state == "waiting":
        return _waiting(status, memo, now, rules)
    if status.state == "ready" and rules.speaks and status.reason != "background task":
        if (memo.nudged or memo.answered) and now - memo.active < TAKEN_UP:
            return WAIT, memo
        if status.reason == "limit is over" and not memo.answered:
            return Act("tell", GO_ON), memo._replace(answered=True)
        if not memo.nudged:
            return Act("tell", NUDGE), memo._replace(nudged=True)
        why = (
            "failed turn: " + status.last_line
            if status.reason == "failed turn"
            else "it ended its turn without a result"
        )
        return _without(Act("end", outcome="failed", reason=why), memo), memo
    if rules.stall and now - memo.active > rules.stall:
        return Act("end", outcome="stalled", reason=f"no sign of work for {now - memo.active:.0f} s"), memo
    return Act(limited="overload") if news else WAIT, memo


def came_to_its_end(status: Status, memo: Memo, rules: Rules) -> Act | None:
    """Return how an agent ended, or what it submitted; None if it was still at work."""
    found = results.of(status) if status.result else None
    if isinstance(found, results.Result):
        return Act("end", outcome=found.outcome, reason=found.reason, claimed=True)
    if status.state in ("done", "failed"):
        return _without(_ended(status, rules), memo)
    return None


def _valid(status: Status) -> bool:
    return isinstance(results.of(status), results.Result)


def _submitted(status: Status, memo: Memo, now: float) -> tuple[Act, Memo]:
    found = results.of(status)
    live = status.state not in ENDED
    if isinstance(found, results.Result):
        memo = memo._replace(submitted=memo.submitted or now)
        if live and status.state in ("working", "starting") and now - memo.submitted < LAST_WORDS:
            return WAIT, memo
        if status.state == "ready" and 0 <= status.now - status.since < COUNTED:
            return WAIT, memo
        return Act("end", outcome=found.outcome, reason=found.reason, claimed=True), memo
    if live and not memo.flawed:
        return Act("tell", results.words_back(found)), memo._replace(flawed=status.result, nudged=True)
    return Act("end", outcome="invalid", reason=str(found)), memo


def _without(act: Act, memo: Memo) -> Act:
    """An end without a result; where one was sent back and no other came, it is that one that counts."""
    if not memo.flawed or act.outcome not in ("failed", "ok"):
        return act
    flaw = results.read(memo.flawed.encode("utf-8", "surrogateescape"))
    return act._replace(outcome="invalid", reason=str(flaw if isinstance(flaw, results.Flaw) else results.FOREIGN))


def _ended(status: Status, rules: Rules) -> Act:
    if status.state == "lost":
        return Act("end", outcome="lost", reason=status.reason or "its session is gone")
    if status.state == "stopped":
        return Act("end", outcome="cancelled", reason="somebody stopped it")
    if status.state == "failed" and status.reason == "timeout":
        return Act("end", outcome="timeout", reason="its time was up")
    if status.state == "failed":
        return Act("end", outcome="failed", reason=f"{status.reason}: {status.last_line}".rstrip(": "))
    if rules.speaks:
        return Act("end", outcome="failed", reason="it ended without a result")
    return Act("end", outcome="ok")


def _waiting(status: Status, memo: Memo, now: float, rules: Rules) -> tuple[Act, Memo]:
    if status.reason == "limit":
        return _limited(status, memo._replace(active=now), now)
    if status.reason == "question" and rules.questions == "answer" and not memo.answered:
        return Act("answer", ALONE), memo._replace(answered=True)
    if status.reason == "question" and rules.questions == "escalate":
        if memo.asked == status.since:
            return WAIT, memo._replace(active=now)  # a person has it; --timeout is what ends that
        return Act("ask", status.last_line), memo._replace(asked=status.since)
    if status.reason == "question" and memo.answered and now - memo.active < TAKEN_UP:
        return WAIT, memo
    asked = f": {status.last_line}" if status.last_line else ""
    return Act("end", outcome="blocked", reason=f"it waits for a {status.reason}{asked}"), memo


def _limited(status: Status, memo: Memo, now: float) -> tuple[Act, Memo]:
    """A limit is no stall. One whose end is known is waited for; else it is tried from time to time whether it is over."""
    memo = memo._replace(met=memo.met or now)
    if status.until is not None:
        latest = memo.met + LIMIT_LONGEST
        if now > latest:
            return Act("end", outcome="stalled", reason=f"it meets a limit that does not end: {status.last_line}"), memo
        return Act(limited="quota", until=min(status.until, latest)), memo
    if now - max(status.since, memo.pleaded) > min(LIMIT_MAX, LIMIT_SECONDS * 2.0**memo.pleas):
        if memo.pleas == PLEAS:
            return Act("end", outcome="stalled", reason=f"it meets a limit that does not end: {status.last_line}"), memo
        return Act("tell", GO_ON), memo._replace(pleas=memo.pleas + 1, pleaded=now)
    if memo.limited != status.since:
        return Act(limited="quota"), memo._replace(limited=status.since)
    return WAIT, memo
