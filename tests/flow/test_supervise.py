"""The table of one agent of a run: what its state asks for, and what is done about it once."""

from __future__ import annotations

from typing import Any

import pytest

from muster import Address, Agent, AgentType, Spec, Status
from muster.flow.mapping import start
from muster.flow.mapping.supervise import (
    COUNTED,
    LAST_WORDS,
    LIMIT_SECONDS,
    MISSING,
    PLEAS,
    TAKEN_UP,
    Act,
    Memo,
    Rules,
    watch,
)

NOW = 1000.0
GOOD = '{"version":1,"outcome":"ok","summary":"done","reason":"","escalate":[],"artifacts":[],"t":1}'
BAD = '{"version":1,"outcome":"splendid","summary":"done"}'
CLIENT, COMMAND = Rules(True, stall=60.0), Rules(False)


def seen(state: str, reason: str = "", **more: Any) -> Status:
    return Status(Agent("a-1", "a", "x"), "", "local", state, reason, **{"now": NOW, **more})


@pytest.mark.parametrize(
    ("what", "status", "rules", "act", "outcome", "reason"),
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
        ("it submitted nonsense and lives", seen("ready", result=BAD), CLIENT, "tell", "", ""),
        ("it submitted nonsense and is gone", seen("done", result=BAD), CLIENT, "end", "invalid", None),
        ("its turn is over without a result", seen("ready"), CLIENT, "tell", "", ""),
        ("a command of its own still runs", seen("ready", "background task"), CLIENT, "wait", "", ""),
        ("a question", seen("waiting", "question"), CLIENT, "answer", "", ""),
        ("a permission", seen("waiting", "permission"), CLIENT, "end", "blocked", "it waits for a permission"),
        ("a dialog", seen("waiting", "dialog"), CLIENT, "end", "blocked", "it waits for a dialog"),
        ("a limit", seen("waiting", "limit", until=2000.0), CLIENT, "wait", "", ""),
        ("the limit is over", seen("ready", "limit is over"), CLIENT, "tell", "", ""),
        ("a command that wrote nonsense and runs", seen("working", result=BAD), COMMAND, "wait", "", ""),
        ("a command that wrote nonsense and ended well", seen("done", result=BAD), COMMAND, "end", "invalid", None),
        ("a command that submitted and runs", seen("working", result=GOOD), COMMAND, "wait", "", ""),
    ],
)
def test_what_is_done(what: str, status: Status, rules: Rules, act: str, outcome: str, reason: str | None) -> None:
    found, _ = watch(status, Memo(NOW, active=NOW), NOW, rules)
    assert (found.what, found.outcome) == (act, outcome), what
    assert reason is None or found.reason == reason


def twice(status: Status, rules: Rules, later: float = 5.0) -> tuple[Act, Act]:
    first, memo = watch(status, Memo(NOW, active=NOW), NOW, rules)
    return first, watch(status, memo, NOW + later, rules)[0]


def test_a_nudge_comes_once_and_then_it_is_harvested() -> None:
    first, second = twice(seen("ready"), CLIENT)
    assert first.what == "tell" and second == Act("end", outcome="failed", reason="it ended its turn without a result")


def test_what_it_was_told_may_not_be_in_its_turn_yet() -> None:
    for status in (seen("ready"), seen("ready", result=BAD), seen("waiting", "question")):
        assert twice(status, CLIENT, TAKEN_UP - 1)[1] == Act()
        assert twice(status, CLIENT, TAKEN_UP)[1].what == "end"
    _, memo = watch(seen("working", result=BAD), Memo(NOW, active=NOW), NOW, CLIENT)
    turned = seen("ready", result=BAD)
    act, memo = watch(turned, memo, NOW + 60, CLIENT)
    assert act == Act(), "its turn has just ended, and what it was told in it is next"
    assert watch(turned, memo, NOW + 60 + TAKEN_UP, CLIENT)[0].outcome == "invalid"


def test_a_question_can_be_one_for_a_person() -> None:
    rules = CLIENT._replace(questions="escalate")
    asks = seen("waiting", "question", last_line="Which?", since=7.0)
    first, second = twice(asks, rules, later=10_000.0)
    assert (first.what, first.text, second.what) == ("ask", "Which?", "wait"), "it is told once, and is no stall"
    _, memo = watch(asks, Memo(NOW, active=NOW), NOW, rules)
    assert watch(asks._replace(since=9.0), memo, NOW, rules)[0].what == "ask", "another question is told too"
    stops = CLIENT._replace(questions="stop")
    assert watch(asks, Memo(NOW, active=NOW), NOW, stops)[0].outcome == "blocked"


def test_a_result_that_was_sent_back_and_not_mended_is_invalid() -> None:
    first, second = twice(seen("ready", result=BAD), CLIENT)
    assert first.what == "tell" and (second.what, second.outcome) == ("end", "invalid")
    assert "splendid" in second.reason


def test_a_question_is_answered_once_and_then_it_is_blocked() -> None:
    first, second = twice(seen("waiting", "question", last_line="Which?"), CLIENT)
    assert first.what == "answer" and (second.outcome, second.reason) == ("blocked", "it waits for a question: Which?")
    assert twice(seen("waiting", "question"), CLIENT._replace(questions="stop"))[0].outcome == "blocked"


def test_a_flawed_result_goes_back_once_and_a_good_one_counts_then() -> None:
    status = seen("ready", result=BAD)
    first, memo = watch(status, Memo(NOW), NOW, CLIENT)
    assert first.what == "tell" and "splendid" in first.text
    assert watch(seen("ready", result=GOOD), memo, NOW, CLIENT)[0].outcome == "ok"
    other = BAD.replace("splendid", "great")
    assert watch(seen("ready", result=other), memo, NOW, CLIENT)[0].outcome == "invalid"


def test_one_that_goes_on_after_its_result_is_harvested_in_the_end() -> None:
    assert [act.what for act in twice(seen("working", result=GOOD), CLIENT, LAST_WORDS + 1)] == ["wait", "end"]


def test_its_last_words_are_counted_before_it_is_harvested() -> None:
    """By the clock of its host, as both moments are."""
    just = seen("ready", result=GOOD, since=NOW)
    assert watch(just, Memo(NOW), NOW + 500, CLIENT)[0].what == "wait"
    assert watch(just._replace(now=NOW + COUNTED), Memo(NOW), NOW + 500, CLIENT)[0].outcome == "ok"


def test_without_a_sign_of_work_it_has_stalled_and_a_limit_is_no_stall() -> None:
    assert [act.outcome for act in twice(seen("working"), CLIENT, 61)] == ["", "stalled"]
    assert [act.outcome for act in twice(seen("working"), COMMAND, 10**6)] == ["", ""]
    limit = seen("waiting", "limit", until=NOW + 10**6)
    assert [(act.what, act.limited) for act in twice(limit, CLIENT, 10**5)] == [("wait", "quota")] * 2


def test_a_client_may_not_hang_for_ever_and_a_command_may_be_silent() -> None:
    wish = start.Wish(Spec(Address("")), "", (), [])
    client, command = AgentType("x", ("x",), speaks=True), AgentType("y", ("y",))
    assert (start.rules(client, wish).stall, start.rules(command, wish).stall) == (start.STALL, 0)
    assert [start.rules(kind, wish._replace(stall=5.0)).stall for kind in (client, command)] == [5.0, 5.0]
    assert start.rules(client, wish._replace(stall=0.0)).stall == 0, "who says so"


def test_any_change_is_a_sign_of_work() -> None:
    _, memo = watch(seen("working", last_line="a"), Memo(NOW), NOW, CLIENT)
    _act, memo = watch(seen("working", last_line="b"), memo, NOW + 50, CLIENT)
    assert watch(seen("working", last_line="b"), memo, NOW + 100, CLIENT)[0].what == "wait"
    assert watch(seen("working", last_line="b"), memo, NOW + 111, CLIENT)[0].outcome == "stalled"


def test_one_that_is_not_there_is_waited_for_before_it_is_lost() -> None:
    act, memo = watch(None, Memo(NOW), NOW, CLIENT)
    assert act.what == "wait"
    assert watch(None, memo, NOW + MISSING - 1, CLIENT)[0].what == "wait"
    back = watch(seen("working"), memo, NOW + MISSING, CLIENT)[1]
    assert watch(None, back, NOW + MISSING + 1, CLIENT)[0].what == "wait"
    assert watch(None, memo, NOW + MISSING + 1, CLIENT)[0].outcome == "lost"


def test_a_result_that_was_sent_back_makes_no_good_end_of_a_client_that_leaves() -> None:
    _, memo = watch(seen("ready", result=BAD), Memo(NOW), NOW, CLIENT)
    assert watch(seen("done", result=BAD), memo, NOW + 60, CLIENT)[0].outcome == "invalid"


def test_a_limit_without_an_end_is_told_once_tried_more_and_more_seldom_and_then_given_up() -> None:
    memo, now, told, acts = Memo(NOW, active=NOW), NOW, 0, []
    status = seen("waiting", "limit", since=NOW, last_line="no more")
    while not acts or acts[-1].what != "end":
        act, memo = watch(status, memo, now, CLIENT)
        told += bool(act.limited)
        acts += [act] if act.what != "wait" else []
        now += LIMIT_SECONDS / 10
        assert now - NOW < 24 * 3600, "a run may not wait for it for ever"
    assert told == 1, "one agent that waits must not hold back all others again and again"
    assert [act.what for act in acts] == ["tell"] * PLEAS + ["end"] and acts[-1].outcome == "stalled"
    assert now - NOW > 5 * 3600, "the longest of the short windows is waited for"
    _, memo = watch(status, Memo(NOW), NOW, CLIENT)
    assert watch(status._replace(since=NOW + 9), memo, NOW + 9, CLIENT)[0].limited == "quota", "it met it once more"


def test_a_client_that_is_refused_and_tries_again_is_one_sign_of_overload_each_time_it_begins() -> None:
    first, memo = watch(seen("working", "retry", refused=1.0), Memo(NOW), NOW, CLIENT)
    assert (first.what, first.limited) == ("wait", "overload")
    again, memo = watch(seen("working", "retry", refused=2.0), memo, NOW + 1, CLIENT)
    assert not again.limited, "one that is refused for an hour must not hold back all others all the time"
    _, memo = watch(seen("working"), memo, NOW + 2, CLIENT)
    assert watch(seen("working", "retry", refused=3.0), memo, NOW + 3, CLIENT)[0].limited == "overload"


def test_a_client_that_is_refused_has_not_stalled_for_some_hours() -> None:
    memo, refused = Memo(NOW, active=NOW), seen("working", "retry", refused=1.0)
    for minute in range(6 * 60):
        act, memo = watch(refused, memo, NOW + 60 * minute, CLIENT)
        assert act.what == "wait"
    assert watch(refused, memo, NOW + 6 * 3600 + 120, CLIENT)[0].outcome == "stalled"


def test_a_limit_that_claims_to_end_in_years_holds_nobody_for_more_than_a_week() -> None:
    memo, told = Memo(NOW), []
    for day in range(30):
        now = NOW + 86400 * day
        # The event is written anew each time, as whoever wants to hold up a run would do.
        act, memo = watch(seen("waiting", "limit", since=now, until=now + 1e9, now=now), memo, now, CLIENT)
        told.append(act)
    assert all(act.until and act.until <= NOW + 8 * 86400 for act in told if act.limited)
    assert [act.what for act in told].index("end") == 9 and told[9].outcome == "stalled"


def test_a_result_is_taken_also_where_a_clock_is_ahead() -> None:
    assert watch(seen("ready", since=NOW + 500, result=GOOD), Memo(NOW), NOW, CLIENT)[0].outcome == "ok"


def test_what_an_agent_says_of_its_end_is_known_as_its_own_words() -> None:
    failed = GOOD.replace('"ok"', '"failed"').replace('"reason":""', '"reason":"429 too many requests"')
    assert watch(seen("done", result=failed), Memo(NOW), NOW, CLIENT)[0].claimed
    assert not watch(seen("failed", "exit 1", last_line="429"), Memo(NOW), NOW, COMMAND)[0].claimed
