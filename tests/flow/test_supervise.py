"""The table of one agent of a run: what its state asks for, and what is done about it once."""

from __future__ import annotations

from typing import Any

import pytest

from muster import Address, Agent, AgentType, Spec, Status
from muster.flow.mapping import start
from muster.flow.mapping.supervise import (
    COUNTED,
    GO_ON_MAX,
    LAST_WORDS,
    LIMIT_SECONDS,
    MESSAGE_SECONDS,
    MISSING,
    Action,
    Observed,
    Policy,
    decide,
)

NOW = 1000.0
GOOD = '{"version":1,"outcome":"ok","summary":"done","reason":"","escalate":[],"artifacts":[],"t":1}'
BAD = '{"version":1,"outcome":"splendid","summary":"done"}'
CLIENT, COMMAND = Policy(True, stall=60.0), Policy(False)


def seen(state: str, reason: str = "", **more: Any) -> Status:
    return Status(Agent("a-1", "a", "x"), "", "local", state, reason, **{"now": NOW, **more})


@pytest.mark.parametrize(
    ("what", "status", "policy", "action", "outcome", "reason"),
    [
        ("at work", seen("working"), CLIENT, "wait", "", ""),
        ("a command that ended well", seen("done"), COMMAND, "end", "ok", ""),
        ("a client that ended without a word", seen("done"), CLIENT, "end", "failed", "it ended without a result"),
        ("a command that failed", seen("failed", "exit 3", last_line="no"), COMMAND, "end", "failed", "exit 3: no"),
        ("its time was up", seen("failed", "timeout"), COMMAND, "end", "timeout", "its time was up"),
        ("somebody stopped it", seen("stopped"), CLIENT, "end", "cancelled", "somebody stopped it"),
        ("its session is gone", seen("lost", "its session is gone"), CLIENT, "end", "lost", "its session is gone"),
        ("it submitted and rests", seen("ready", result=GOOD), CLIENT, "end", "ok", ""),
        ("it submitted and ended", seen("done", result=GOOD), CLIENT, "end", "ok", ""),
        ("it submitted and may say more", seen("working", result=GOOD), CLIENT, "wait", "", ""),
        ("it submitted nonsense and lives", seen("ready", result=BAD), CLIENT, "message", "", ""),
        ("it submitted nonsense and is gone", seen("done", result=BAD), CLIENT, "end", "invalid", None),
        ("its turn is over without a result", seen("ready"), CLIENT, "message", "", ""),
        ("a command of its own still runs", seen("ready", "background task"), CLIENT, "wait", "", ""),
        ("a question", seen("waiting", "question"), CLIENT, "answer", "", ""),
        ("a permission", seen("waiting", "permission"), CLIENT, "end", "blocked", "it waits for a permission"),
        ("a dialog", seen("waiting", "dialog"), CLIENT, "end", "blocked", "it waits for a dialog"),
        ("a limit", seen("waiting", "limit", until=2000.0), CLIENT, "wait", "", ""),
        ("the limit is over", seen("ready", "limit is over"), CLIENT, "message", "", ""),
        ("a command that wrote nonsense and runs", seen("working", result=BAD), COMMAND, "wait", "", ""),
        ("a command that wrote nonsense and ended well", seen("done", result=BAD), COMMAND, "end", "invalid", None),
        ("a command that submitted and runs", seen("working", result=GOOD), COMMAND, "wait", "", ""),
    ],
)
def test_what_is_done(what: str, status: Status, policy: Policy, action: str, outcome: str, reason: str | None) -> None:
    found, _ = decide(status, Observed(NOW, active=NOW), NOW, policy)
    assert (found.kind, found.outcome) == (action, outcome), what
    assert reason is None or found.reason == reason


def twice(status: Status, policy: Policy, later: float = 5.0) -> tuple[Action, Action]:
    first, observed = decide(status, Observed(NOW, active=NOW), NOW, policy)
    return first, decide(status, observed, NOW + later, policy)[0]


def test_a_nudge_comes_once_and_then_it_is_harvested() -> None:
    first, second = twice(seen("ready"), CLIENT)
    assert first.kind == "message" and second == Action(
        "end", outcome="failed", reason="it ended its turn without a result"
    )


def test_what_it_was_told_may_not_be_in_its_turn_yet() -> None:
    for status in (seen("ready"), seen("ready", result=BAD), seen("waiting", "question")):
        assert twice(status, CLIENT, MESSAGE_SECONDS - 1)[1] == Action()
        assert twice(status, CLIENT, MESSAGE_SECONDS)[1].kind == "end"
    _, observed = decide(seen("working", result=BAD), Observed(NOW, active=NOW), NOW, CLIENT)
    turned = seen("ready", result=BAD)
    action, observed = decide(turned, observed, NOW + 60, CLIENT)
    assert action == Action(), "its turn has just ended, and what it was told in it is next"
    assert decide(turned, observed, NOW + 60 + MESSAGE_SECONDS, CLIENT)[0].outcome == "invalid"


def test_a_question_can_be_one_for_a_person() -> None:
    policy = CLIENT._replace(questions="escalate")
    asks = seen("waiting", "question", last_line="Which?", since=7.0)
    first, second = twice(asks, policy, later=10_000.0)
    assert (first.kind, first.text, second.kind) == ("escalate", "Which?", "wait"), "it is told once, and is no stall"
    _, observed = decide(asks, Observed(NOW, active=NOW), NOW, policy)
    assert decide(asks._replace(since=9.0), observed, NOW, policy)[0].kind == "escalate", "another question is told too"
    stops = CLIENT._replace(questions="stop")
    assert decide(asks, Observed(NOW, active=NOW), NOW, stops)[0].outcome == "blocked"


def test_a_result_that_was_sent_back_and_not_mended_is_invalid() -> None:
    first, second = twice(seen("ready", result=BAD), CLIENT)
    assert first.kind == "message" and (second.kind, second.outcome) == ("end", "invalid")
    assert "splendid" in second.reason


def test_a_question_is_answered_once_and_then_it_is_blocked() -> None:
    first, second = twice(seen("waiting", "question", last_line="Which?"), CLIENT)
    assert first.kind == "answer" and (second.outcome, second.reason) == ("blocked", "it waits for a question: Which?")
    assert twice(seen("waiting", "question"), CLIENT._replace(questions="stop"))[0].outcome == "blocked"


def test_a_flawed_result_goes_back_once_and_a_good_one_counts_then() -> None:
    status = seen("ready", result=BAD)
    first, observed = decide(status, Observed(NOW), NOW, CLIENT)
    assert first.kind == "message" and "splendid" in first.text
    assert decide(seen("ready", result=GOOD), observed, NOW, CLIENT)[0].outcome == "ok"
    other = BAD.replace("splendid", "great")
    assert decide(seen("ready", result=other), observed, NOW, CLIENT)[0].outcome == "invalid"


def test_one_that_goes_on_after_its_result_is_harvested_in_the_end() -> None:
    assert [action.kind for action in twice(seen("working", result=GOOD), CLIENT, LAST_WORDS + 1)] == ["wait", "end"]


def test_its_last_words_are_counted_before_it_is_harvested() -> None:
    """By the clock of its host, as both moments are."""
    just = seen("ready", result=GOOD, since=NOW)
    assert decide(just, Observed(NOW), NOW + 500, CLIENT)[0].kind == "wait"
    assert decide(just._replace(now=NOW + COUNTED), Observed(NOW), NOW + 500, CLIENT)[0].outcome == "ok"


def test_without_a_sign_of_work_it_has_stalled_and_a_limit_is_no_stall() -> None:
    assert [action.outcome for action in twice(seen("working"), CLIENT, 61)] == ["", "stalled"]
    assert [action.outcome for action in twice(seen("working"), COMMAND, 10**6)] == ["", ""]
    limit = seen("waiting", "limit", until=NOW + 10**6)
    assert [(action.kind, action.limited) for action in twice(limit, CLIENT, 10**5)] == [("wait", "quota")] * 2


def test_a_client_may_not_hang_for_ever_and_a_command_may_be_silent() -> None:
    wish = start.MapRequest(Spec(Address("")), "", (), [])
    client, command = AgentType("x", ("x",), speaks=True), AgentType("y", ("y",))
    assert (start.policy(client, wish).stall, start.policy(command, wish).stall) == (start.STALL, 0)
    assert [start.policy(kind, wish._replace(stall=5.0)).stall for kind in (client, command)] == [5.0, 5.0]
    assert start.policy(client, wish._replace(stall=0.0)).stall == 0, "who says so"


def test_any_change_is_a_sign_of_work() -> None:
    _, observed = decide(seen("working", last_line="a"), Observed(NOW), NOW, CLIENT)
    _act, observed = decide(seen("working", last_line="b"), observed, NOW + 50, CLIENT)
    assert decide(seen("working", last_line="b"), observed, NOW + 100, CLIENT)[0].kind == "wait"
    assert decide(seen("working", last_line="b"), observed, NOW + 111, CLIENT)[0].outcome == "stalled"


def test_one_that_is_not_there_is_waited_for_before_it_is_lost() -> None:
    action, observed = decide(None, Observed(NOW), NOW, CLIENT)
    assert action.kind == "wait"
    assert decide(None, observed, NOW + MISSING - 1, CLIENT)[0].kind == "wait"
    back = decide(seen("working"), observed, NOW + MISSING, CLIENT)[1]
    assert decide(None, back, NOW + MISSING + 1, CLIENT)[0].kind == "wait"
    assert decide(None, observed, NOW + MISSING + 1, CLIENT)[0].outcome == "lost"


def test_a_result_that_was_sent_back_makes_no_good_end_of_a_client_that_leaves() -> None:
    _, observed = decide(seen("ready", result=BAD), Observed(NOW), NOW, CLIENT)
    assert decide(seen("done", result=BAD), observed, NOW + 60, CLIENT)[0].outcome == "invalid"


def test_a_limit_without_an_end_is_told_once_tried_more_and_more_seldom_and_then_given_up() -> None:
    observed, now, told, actions = Observed(NOW, active=NOW), NOW, 0, []
    status = seen("waiting", "limit", since=NOW, last_line="no more")
    while not actions or actions[-1].kind != "end":
        action, observed = decide(status, observed, now, CLIENT)
        told += bool(action.limited)
        actions += [action] if action.kind != "wait" else []
        now += LIMIT_SECONDS / 10
        assert now - NOW < 24 * 3600, "a run may not wait for it for ever"
    assert told == 1, "one agent that waits must not hold back all others again and again"
    assert [action.kind for action in actions] == ["message"] * GO_ON_MAX + ["end"] and actions[-1].outcome == "stalled"
    assert now - NOW > 5 * 3600, "the longest of the short windows is waited for"
    _, observed = decide(status, Observed(NOW), NOW, CLIENT)
    assert decide(status._replace(since=NOW + 9), observed, NOW + 9, CLIENT)[0].limited == "quota", (
        "it met it once more"
    )


def test_a_client_that_is_refused_and_tries_again_is_one_sign_of_overload_each_time_it_begins() -> None:
    first, observed = decide(seen("working", "retry", refused=1.0), Observed(NOW), NOW, CLIENT)
    assert (first.kind, first.limited) == ("wait", "overload")
    again, observed = decide(seen("working", "retry", refused=2.0), observed, NOW + 1, CLIENT)
    assert not again.limited, "one that is refused for an hour must not hold back all others all the time"
    _, observed = decide(seen("working"), observed, NOW + 2, CLIENT)
    assert decide(seen("working", "retry", refused=3.0), observed, NOW + 3, CLIENT)[0].limited == "overload"


def test_a_client_that_is_refused_has_not_stalled_for_some_hours() -> None:
    observed, refused = Observed(NOW, active=NOW), seen("working", "retry", refused=1.0)
    for minute in range(6 * 60):
        action, observed = decide(refused, observed, NOW + 60 * minute, CLIENT)
        assert action.kind == "wait"
    assert decide(refused, observed, NOW + 6 * 3600 + 120, CLIENT)[0].outcome == "stalled"


def test_a_limit_that_claims_to_end_in_years_holds_nobody_for_more_than_a_week() -> None:
    observed, told = Observed(NOW), []
    for day in range(30):
        now = NOW + 86400 * day
        # The event is written anew each time, as whoever wants to hold up a run would do.
        action, observed = decide(seen("waiting", "limit", since=now, until=now + 1e9, now=now), observed, now, CLIENT)
        told.append(action)
    assert all(action.until and action.until <= NOW + 8 * 86400 for action in told if action.limited)
    assert [action.kind for action in told].index("end") == 9 and told[9].outcome == "stalled"


def test_a_result_is_taken_also_where_a_clock_is_ahead() -> None:
    assert decide(seen("ready", since=NOW + 500, result=GOOD), Observed(NOW), NOW, CLIENT)[0].outcome == "ok"


def test_what_an_agent_says_of_its_end_is_known_as_its_own_words() -> None:
    failed = GOOD.replace('"ok"', '"failed"').replace('"reason":""', '"reason":"429 too many requests"')
    assert decide(seen("done", result=failed), Observed(NOW), NOW, CLIENT)[0].claimed
    assert not decide(seen("failed", "exit 1", last_line="429"), Observed(NOW), NOW, COMMAND)[0].claimed
