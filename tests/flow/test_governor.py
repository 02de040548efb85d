"""The governor of a run: what lets it launch more, fewer or none, and what no sequence of events can make it do."""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.flow.limits import governor as module
from muster.flow.limits import limits as words
from muster.flow.limits.governor import UNKNOWN, Breach, Governor, HostLoad, Limits, Spend, estimate

EXAMPLES = int(os.environ.get("MUSTER_EXAMPLES", "60"))
NOW = 1_700_000_000.0
GB = 1 << 30
#: A host of which nothing is known, so nothing about it is in the way.
ANY = [HostLoad("box")]
FREE = Limits(max_agents=100, start=100, launch_rate=0, breaker=0)


def grants(one: Governor, now: float = NOW, wanted: int = 1000, running: int = 0, hosts: Any = ANY) -> int:
    return len(one.room(now, wanted, running, hosts))


def busy(limits: Limits, running: int) -> Governor:
    """One that has launched so many at once."""
    one = Governor(limits, NOW)
    assert grants(one, wanted=running) == running
    return one


def scopes(breaches: list[Breach]) -> list[tuple[str, str, str]]:
    return [(breach.scope, breach.unit, breach.task) for breach in breaches]


# How many at once


def test_it_starts_low_and_each_success_adds_one_up_to_the_ceiling() -> None:
    one = Governor(Limits(max_agents=10, start=2, launch_rate=0), NOW)
    running = grants(one)
    assert running == 2
    seen = [one.window]
    for second in range(1, 6):
        for _ in range(running):
            one.went_well(NOW + second)
        running += grants(one, NOW + second, running=running)
        seen.append(one.window)
    assert seen == [2, 4, 8, 10, 10, 10] and running == 10


def test_a_window_that_is_not_used_does_not_grow_far() -> None:
    one = busy(Limits(max_agents=1000, start=4, launch_rate=0), 3)
    for _ in range(500):
        one.went_well(NOW)
    assert one.window == 6


def test_twenty_refusals_at_once_halve_it_once_and_a_later_one_again() -> None:
    one = busy(FREE._replace(max_agents=16), 16)
    for agent in range(20):
        one.pressure(NOW + agent * 0.4, "rate-limit")
    assert one.window == 8
    one.room(NOW + 11, 0, 8, ANY)
    one.pressure(NOW + 11, "rate-limit")
    assert one.window == 4


def test_it_is_not_halved_again_while_those_that_were_too_many_are_still_at_work() -> None:
    one = busy(FREE._replace(max_agents=16), 16)
    one.pressure(NOW, "rate-limit")
    for second in range(20, 100, 20):
        one.room(NOW + second, 0, 14, ANY)
        one.pressure(NOW + second, "rate-limit")
    assert one.window == 8
    one.room(NOW + 500, 0, 8, ANY)
    one.pressure(NOW + 500, "rate-limit")
    assert one.window == 4


def test_another_limit_with_an_end_is_news_though_it_halves_nothing() -> None:
    one = busy(FREE._replace(max_agents=16), 16)
    assert one.pressure(NOW, "overload")
    assert not one.pressure(NOW + 1, "overload")
    assert one.pressure(NOW + 2, "quota", until=NOW + 600) and not one.pressure(NOW + 3, "quota", until=NOW + 700)
    assert one.window == 8 and one.next(NOW + 3) == NOW + 700


def test_what_is_halved_is_what_was_at_work_not_what_was_allowed() -> None:
    one = busy(FREE, 6)
    one.pressure(NOW, "overload")
    assert one.window == 3


def passes(one: Governor, since: float, until: float, running: Callable[[], int]) -> None:
    """All goes well, as far as a scheduler sees it: it asks each second, and what may be launched is."""
    for second in range(int(since), int(until)):
        one.room(NOW + second, 0, running(), ANY)


def test_after_a_refusal_most_of_it_is_back_soon_all_of_it_in_minutes_and_more_only_later() -> None:
    one = busy(FREE._replace(max_agents=1000), 100)
    one.pressure(NOW, "rate-limit", until=NOW + 60)
    passes(one, 0, 60, lambda: 100)
    seen = [one.window]
    for since, until in ((60, 120), (120, 240), (240, 360), (360, 420), (420, 660), (660, 780)):
        passes(one, since, until, lambda: one.window)
        seen.append(one.window)
    assert seen == [50, 74, 96, 100, 100, 150, 237]


def test_it_comes_back_while_those_that_were_too_many_are_still_at_work() -> None:
    """They take an hour each: nobody ends, so nobody is launched, and all the same it goes well."""
    one = busy(FREE._replace(max_agents=1000), 100)
    one.pressure(NOW, "rate-limit")
    passes(one, 0, 320, lambda: 99)
    assert one.window == 100 and grants(one, NOW + 320, running=99) == 1


def test_a_long_time_in_which_few_are_at_work_does_not_add_up_to_a_jump() -> None:
    one = busy(FREE._replace(max_agents=1000), 40)
    one.pressure(NOW, "rate-limit")
    passes(one, 0, 3600, lambda: 19)
    assert one.window == 40
    one.room(NOW + 36_000, 0, 40, ANY)  # the machine slept
    assert one.window <= 41


def test_after_many_refusals_it_comes_back_from_one_at_a_time() -> None:
    one = busy(FREE._replace(max_agents=100), 2)
    for again in range(3):
        one.pressure(NOW + 30 * again, "rate-limit")
        one.room(NOW + 30 * again + 20, 0, 1, ANY)
    assert one.window == 1
    passes(one, 100, 3700, lambda: one.window)
    assert one.window > 30


def test_refusals_without_an_end_pause_longer_each_time_and_success_after_one_begins_anew() -> None:
    one = busy(FREE, 8)
    now, pauses = NOW, []
    for _ in range(9):
        one.pressure(now, "overload")
        assert grants(one, now) == 0
        moment = one.next(now)
        assert moment is not None and grants(one, moment - 0.01) == 0
        pauses.append(moment - now)
        now = max(moment, now + module.CUT_SECONDS)
    assert pauses == [10, 20, 40, 80, 160, 320, 600, 600, 600]
    assert grants(one, now) == 1
    one.pressure(now, "overload")
    one.went_well(now + 1)  # begun before the pause
    now += 600
    one.pressure(now, "overload")
    assert one.next(now) == now + 600
    one.went_well(now + 600)
    one.pressure(now + 600, "overload")
    assert one.next(now + 600) == now + 610


def test_it_waits_for_the_latest_of_several_clocks() -> None:
    one = Governor(FREE, NOW)
    one.pressure(NOW, "five hours", until=NOW + 300)
    one.pressure(NOW + 1, "week", until=NOW + 7200)
    one.pressure(NOW + 2, "week", until=NOW + 200)
    assert one.next(NOW + 2) == NOW + 7200
    assert one.why(NOW + 3) == "limit week: resets in 2.0 h"
    assert grants(one, NOW + 7199) == 0
    assert grants(one, NOW + 7200) == one.window == 1


@pytest.mark.parametrize("until", [math.nan, math.inf, -5.0, "soon", True])
def test_a_reset_that_is_none_is_a_refusal_without_an_end(until: Any) -> None:
    one = Governor(FREE, NOW)
    one.pressure(NOW, "rate-limit", until=until)
    assert one.next(NOW) == NOW + 10


def test_a_limit_that_is_over_by_its_own_word_is_no_sign() -> None:
    """It still stands on the screen of an agent that waited for it."""
    one = Governor(FREE, NOW)
    for _ in range(8):
        one.went_well(NOW)
    before = one.window
    one.pressure(NOW, "quota", until=NOW - 1)
    assert one.next(NOW) is None and one.window == before


def test_what_is_seen_of_a_limit_during_the_pause_halves_once() -> None:
    one = Governor(FREE, NOW)
    for second in range(40):
        one.room(NOW, 40, second, [])
        one.went_well(NOW)
    before = one.window
    for second in range(0, 3600, 60):
        one.pressure(NOW + second, "quota", until=NOW + 3600)
    assert before > 39 and one.window == 19, "half of those that were at work"
    assert one.next(NOW + 3599) == NOW + 3600


def test_a_reset_in_a_hundred_years_does_not_hold_a_run_for_ever() -> None:
    one = Governor(FREE, NOW)
    one.pressure(NOW, "rate-limit", until=NOW + 100 * 365 * 86400)
    assert one.next(NOW) == NOW + module.RESET_MAX


def test_however_many_kinds_of_limits_there_are_the_latest_counts() -> None:
    one = Governor(FREE, NOW)
    for kind in range(1000):
        one.pressure(NOW, f"kind {kind}", until=NOW + 10 + kind)
    assert one.next(NOW) == NOW + 1009
    assert len(one.to_json(NOW)["clocks"]) <= module.CLOCKS_MAX


def test_a_refusal_after_a_short_reset_pauses_though_it_halves_nothing() -> None:
    one = busy(FREE, 8)
    one.pressure(NOW, "rate-limit", until=NOW + 2)
    one.pressure(NOW + 1, "rate-limit")
    assert one.next(NOW + 1) == NOW + 2
    one.pressure(NOW + 3, "rate-limit")
    assert one.next(NOW + 3) == NOW + 13 and one.window == 4


def test_a_person_can_lift_what_holds_it_but_no_budget() -> None:
    one = Governor(FREE._replace(dollars=1.0), NOW)
    one.pressure(NOW, "week", until=NOW + 7200)
    one.lift(NOW + 1)
    assert grants(one, NOW + 1) == 1
    one.spent(NOW + 2, Spend(1.0))
    one.lift(NOW + 2)
    assert grants(one, NOW + 2) == 0 and scopes(one.over(NOW + 2)) == [("run", "dollars", "")]


def test_launches_come_at_their_rate_and_next_says_when() -> None:
    one = Governor(FREE._replace(launch_rate=4.0, burst=3), NOW)
    running = grants(one)
    assert running == 3 and one.why(NOW) == "4 launches a second"
    now = NOW
    for _ in range(20):
        moment = one.next(now)
        assert moment is not None and moment - now == pytest.approx(0.251, abs=0.002)
        assert grants(one, now, running=running) == 0
        now = moment
        assert grants(one, now, running=running) == 1
        running += 1


def test_limits_can_be_set_while_it_runs() -> None:
    one = busy(Limits(max_agents=8, start=8, launch_rate=0), 8)
    one.limits = one.limits._replace(max_agents=3, dollars=1.0)
    assert one.window == 3 and grants(one, running=3) == 0
    one.spent(NOW, Spend(2.0))
    assert len(one.over(NOW)) == 1
    one.limits = one.limits._replace(max_agents=8, dollars=200.0)
    assert one.over(NOW) == [] and grants(one, running=3) == 5


# Where


def test_agents_go_where_most_room_is_left() -> None:
    one = Governor(FREE, NOW)
    hosts = [
        HostLoad("small", memory_free=2 * FREE.min_memory),
        HostLoad("large", memory_free=10.9 * FREE.min_memory),
        HostLoad("away", memory_free=99 * GB, reachable=False),
    ]
    first = one.room(NOW, 9, 0, hosts)
    assert first[:8] == ["large"] * 8 and Counter(first)["large"] == 8
    assert Counter(first + one.room(NOW, 99, 9, hosts)) == {"large": 10, "small": 2}


def test_hosts_of_which_nothing_is_known_share_and_hold_nothing_back() -> None:
    one = Governor(FREE, NOW)
    assert Counter(one.room(NOW, 60, 0, [HostLoad("a", running=6), HostLoad("b"), HostLoad("c")])) == {
        "a": 16,
        "b": 22,
        "c": 22,
    }
    assert one.room(NOW, 10, 60, [HostLoad("a", math.nan, math.nan, math.nan, math.nan)]) == ["a"] * 10


@pytest.mark.parametrize(
    ("host", "count", "why"),
    [
        (
            HostLoad("box", memory_free=399 << 20),
            0,
            "no room: box has 399 MB of memory free ([limits] memory: 400 MB an agent)",
        ),
        (HostLoad("box", memory_free=400 << 20), 1, "no room: box is full for now"),
        (
            HostLoad("", disk_free=2 * GB),
            0,
            "no room: this machine has 2.0 GB of disk free ([limits] disk: 2.0 GB stay free beside 100 MB for each new agent)",
        ),
        (HostLoad("box", disk_free=2 * GB + (350 << 20)), 3, "no room: box is full for now"),
        (HostLoad("box", cores=2, load=6.0), 0, "no room: box has load 6.0 on 2 cores ([limits] load: 3 a core)"),
        (HostLoad("box", cores=2, load=5.5), 5, "no room: box is full for now"),
        (HostLoad("box", load=100.0), 50, "100 at once (--max-agents)"),
        (HostLoad("box", reachable=False), 0, "no room: no host answers"),
    ],
)
def test_a_host_gets_what_fits_on_it(host: HostLoad, count: int, why: str) -> None:
    one = busy(FREE, 50)
    assert grants(one, NOW + 60, running=50, hosts=[host]) == count
    assert one.why(NOW + 60) == why


def test_what_was_just_launched_counts_until_a_measurement_shows_it() -> None:
    one = Governor(FREE, NOW)
    before = HostLoad("box", memory_free=3 * FREE.min_memory, at=NOW)
    assert grants(one, hosts=[before]) == 3
    assert grants(one, NOW + 5, running=3, hosts=[before._replace(running=3, at=NOW + 4)]) == 0
    assert one.next(NOW + 5) == NOW + 10
    assert grants(one, NOW + 60, running=3, hosts=[before._replace(running=3)]) == 0  # an old measurement
    assert grants(one, NOW + 60, running=3, hosts=[before._replace(running=3, at=NOW + 10)]) == 3


def test_one_that_is_gone_takes_no_room_however_young() -> None:
    one = Governor(FREE, NOW)
    host = HostLoad("box", memory_free=3 * FREE.min_memory, running=0)
    assert grants(one, hosts=[host]) == 3
    assert grants(one, NOW + 1, running=1, hosts=[host._replace(running=1)]) == 2


def test_load_of_others_makes_a_run_slow_but_does_not_stop_it() -> None:
    one = Governor(FREE, NOW)
    hosts = [
        HostLoad("worst", cores=2, load=90.0),
        HostLoad("bad", cores=2, load=20.0),
        HostLoad("full", cores=2, load=7.0, disk_free=0),
    ]
    assert one.room(NOW, 5, 0, hosts) == ["bad"]
    assert one.room(NOW + 60, 5, 1, hosts) == []
    assert one.room(NOW + 120, 5, 0, hosts) == ["bad"]


# Budgets


def test_totals_never_go_down_and_another_day_begins_anew() -> None:
    one = Governor(FREE._replace(dollars=10.0, day_tokens=1000), NOW)
    one.spent(NOW, Spend(10.5, 1), day="monday", today=Spend(0.0, 1500))
    one.spent(NOW + 5, Spend(0.5, 1), day="monday", today=Spend(0.0, 10))
    assert scopes(one.over(NOW + 5)) == [("run", "dollars", ""), ("day", "tokens", "")]
    assert [breach.words for breach in one.over(NOW + 5)] == [
        "budget of the run $10.00: $10.50 used",
        "budget of the day 1k tokens: 1.5k tokens used",
    ]
    one.spent(NOW + 9, Spend(), day="tuesday", today=Spend(0.0, 10))
    assert scopes(one.over(NOW + 9)) == [("run", "dollars", "")]


def test_a_task_has_budgets_of_its_own() -> None:
    one = Governor(FREE._replace(task_dollars=1.0, task_tokens=100, task_seconds=60), NOW)
    tasks = {"a": Spend(1.0, 5, 5), "b": Spend(0.9, 99, 59.9), "c": Spend(0, 100, 61), "d\x1b[31m": Spend(2.0)}
    one.spent(NOW, Spend(9.0), tasks=tasks)
    assert scopes(one.over(NOW)) == [
        ("task", "dollars", "a"),
        ("task", "tokens", "c"),
        ("task", "seconds", "c"),
        ("task", "dollars", "d\x1b[31m"),
    ]
    assert one.over(NOW)[2].words == "budget of task c 60 s: 61 s used"
    assert "\x1b" not in one.over(NOW)[3].words
    one.spent(NOW + 5, Spend(9.0), tasks={"a": Spend(0.1), "b": Spend(0.1)})
    assert scopes(one.over(NOW + 5)) == [("task", "dollars", "a")]
    assert grants(one, NOW + 5) == 100  # a task's budget is no matter of the others


def test_wall_time_counts_while_somebody_is_there() -> None:
    limits = FREE._replace(seconds=100, reserve=0.1)
    one = Governor(limits, NOW)
    assert one.next(NOW) == NOW + 90
    assert grants(one, NOW + 60, running=0) == 100
    again = Governor.from_json(limits, one.to_json(NOW + 60), NOW + 5000)
    assert again.over(NOW + 5000) == [] and again.next(NOW + 5000) == NOW + 5030
    assert [breach.words for breach in again.over(NOW + 5030)] == ["budget of the run 90 s (10% kept back): 90 s used"]
    assert grants(again, NOW + 5030) == 0


def test_what_is_kept_back_is_not_touched() -> None:
    one = Governor(FREE._replace(dollars=10.0, agents=10, reserve=0.2), NOW)
    assert grants(one) == 8
    assert one.why(NOW) == "8 agents launched, all of the budget"
    assert scopes(one.closed(NOW)) == [("run", "agents", "")] and one.over(NOW) == []
    one.spent(NOW, Spend(7.99))
    assert one.over(NOW) == []
    one.spent(NOW, Spend(8.0))
    assert one.over(NOW)[0][:4] == ("run", "dollars", 8.0, 8.0)


def test_attempts_of_a_former_orchestrator_count() -> None:
    one = Governor(FREE._replace(agents=10), NOW)
    one.spent(NOW, Spend(), agents=7)
    assert grants(one) == 3 and one.launched == 10


def test_nothing_is_launched_that_the_budget_is_not_expected_to_pay_for() -> None:
    one = Governor(FREE._replace(dollars=10.0, breaker=0), NOW)
    one.spent(NOW, Spend(4.0), agents=5)
    for _ in range(4):
        one.ended(NOW, Spend(1.0), progress=True)
    one.ended(NOW, Spend(0.0), progress=False)  # a failed launch: says nothing about what an agent costs
    assert one.expected("dollars") == 1.0 and one.expected("tokens") is None
    one.spent(NOW, Spend(4.0))
    assert grants(one, running=2) == 4
    assert one.why(NOW) == "budget of the run $10.00: $6.00 left, 6 in flight at about $1.00 each"
    assert grants(one, running=6) == 0
    one.ended(NOW, Spend(1.0), progress=True)
    assert grants(one, running=5) == 0  # what it used last is not measured yet
    one.spent(NOW, Spend(4.5))
    assert grants(one, running=4) == 1


def test_what_is_expected_is_not_less_than_what_was_used_already() -> None:
    one = Governor(FREE._replace(expected_dollars=0.1), NOW)
    assert one.expected("dollars") == 0.1
    assert grants(one, wanted=4) == 4
    one.spent(NOW, Spend(8.0))
    assert one.expected("dollars") == 2.0
    one.ended(NOW, Spend(0.2), progress=True)
    assert one.expected("dollars") == 2.0


def test_what_is_left_and_pays_for_nobody_is_told() -> None:
    one = Governor(FREE._replace(dollars=2.0, expected_dollars=0.8), NOW)
    assert grants(one) == 2 and one.closed(NOW) == []
    for _ in range(2):
        one.ended(NOW, Spend(0.8), progress=True)
    one.spent(NOW, Spend(1.6))
    assert grants(one) == 0 and one.over(NOW) == []
    assert [breach.words for breach in one.closed(NOW)] == [
        "budget of the run $2.00: $0.40 left, and an agent takes about $0.80"
    ]


def test_a_budget_that_nobody_can_measure_holds_launches_and_then_ends_the_run() -> None:
    one = Governor(FREE._replace(dollars=5.0), NOW)
    one.spent(NOW, Spend(None, 10_000))
    assert grants(one) == 0 and one.over(NOW + 59) == []
    assert one.why(NOW) == "budget of the run $5.00: not known how much is used"
    one.spent(NOW + 30, UNKNOWN)
    assert one.next(NOW + 30) == NOW + 60
    assert scopes(one.over(NOW + 60)) == [("run", "dollars", "")]
    assert "[prices]" in one.over(NOW + 60)[0].words and one.over(NOW + 60)[0].used is None
    one.spent(NOW + 61, Spend(0.2, 10_000))
    assert one.over(NOW + 61) == [] and grants(one, NOW + 61) > 0


def test_a_measure_that_is_no_number_is_not_known_and_one_without_a_budget_is_no_matter() -> None:
    for value in (math.nan, math.inf, -1.0, True, "3"):
        one = Governor(FREE._replace(tokens=100), NOW)
        one.spent(NOW, Spend(value, 5))  # type: ignore[arg-type]
        assert grants(one) == 100
        one.spent(NOW, Spend(0.0, value))  # type: ignore[arg-type]
        assert grants(one) == 0


# The breaker


def test_money_without_a_result_trips_it_and_a_result_resets_it() -> None:
    one = Governor(Limits(start=2, launch_rate=0, breaker=5.0), NOW)
    assert grants(one, wanted=2) == 2
    for cost in (0.5, 1.0, 9.0):
        one.ended(NOW, Spend(cost), progress=True)
    one.spent(NOW, Spend(10.0))  # five times the median for each of two
    assert one.over(NOW) == [] and grants(one, running=1) == 1
    one.spent(NOW, Spend(10.5))
    assert scopes(one.over(NOW)) == [("progress", "dollars", "")]
    assert one.why(NOW) == "$10.50 spent without a result; one takes about $1.00"
    assert grants(one, running=1) == 0
    one.ended(NOW, Spend(30.0), progress=False)
    assert len(one.over(NOW)) == 1
    one.ended(NOW, Spend(1.0), progress=True)
    assert one.over(NOW) == [] and grants(one, running=0) == 2


def test_without_a_single_result_it_goes_by_the_attempts_that_failed() -> None:
    one = Governor(Limits(start=1, launch_rate=0), NOW)
    for attempt in range(1, 7):
        assert grants(one, wanted=1) == 1, attempt
        one.ended(NOW, Spend(None, 1000), progress=False)
        one.spent(NOW, Spend(None, attempt * 1000))
    assert scopes(one.over(NOW)) == [("progress", "tokens", "")] and grants(one) == 0
    one.lift(NOW)
    assert grants(one) == 1


def test_it_can_be_switched_off() -> None:
    one = Governor(FREE, NOW)
    one.ended(NOW, Spend(1.0), progress=True)
    one.spent(NOW, Spend(1e6))
    assert one.over(NOW) == [] and grants(one) == 100


# Words


def test_nothing_to_tell_when_nothing_is_in_the_way() -> None:
    one = Governor(Limits(), NOW)
    assert one.why(NOW) == "" and one.next(NOW) is None
    assert grants(one, wanted=1) == 1
    assert one.why(NOW) == "" and one.next(NOW) is None


def test_it_says_that_it_feels_its_way() -> None:
    one = Governor(Limits(start=2), NOW)
    grants(one)
    assert one.why(NOW) == "2 at once so far, more as it goes well"


def test_an_estimate_says_what_is_not_known() -> None:
    told = estimate(120, Limits())
    assert told[:5] == (None, None, None, None, None)
    assert told.words == "120 tasks, up to 20 at once: cost unknown, tokens unknown, time unknown\nno budget in dollars"


def test_an_estimate_multiplies_and_says_where_it_stops() -> None:
    told = estimate(120, Limits(dollars=50.0, reserve=0.2, task_dollars=2.0), Spend(0.5, 30_000, 300))
    assert told[:5] == (60.0, 3_600_000, 1800.0, 40.0, 80)
    assert told.words.splitlines() == [
        "120 tasks, up to 20 at once: about $60.00, about 3.6M tokens, about 30 min",
        "stops at $40.00 (20% of the budget is kept back)",
        "the budget is enough for about 80 of 120 tasks",
    ]
    assert estimate(1, Limits(agents=5, task_dollars=2.0)).words.startswith("1 task, up to 1 at once: cost unknown")
    assert estimate(3, Limits(task_dollars=2.0)).most_dollars == 6.0
    assert estimate(100, Limits(agents=5)).tasks_paid == 5
    assert estimate(100, Limits(seconds=60), Spend(None, None, 30)).tasks_paid == 40
    assert estimate(0, Limits(), Spend(1.0, 1, 1)).dollars == 0


@pytest.mark.parametrize(
    ("unit", "value", "shown"),
    [
        ("dollars", 1234.5, "$1,234.50"),
        ("dollars", 0, "$0.00"),
        ("dollars", 0.00312, "$0.0031"),
        ("tokens", 999, "999 tokens"),
        ("tokens", 12_345, "12.3k tokens"),
        ("tokens", 2.5e9, "2.5G tokens"),
        ("seconds", 0.2, "1 s"),
        ("seconds", 600, "10 min"),
        ("seconds", 7200, "2.0 h"),
        ("seconds", 7 * 86400, "7.0 days"),
    ],
)
def test_amounts_read_well(unit: str, value: float, shown: str) -> None:
    assert words.amount(unit, value) == shown


# What no sequence of events can make it do


class Step(NamedTuple):
    do: str
    seconds: float = 0.0
    count: int = 0
    kind: str = ""


STEPS = st.one_of(
    st.builds(Step, st.just("wait"), st.sampled_from([0.0, 0.05, 0.3, 1.0, 4.9, 11.0, 60.0, 700.0])),
    st.builds(Step, st.just("room"), count=st.integers(0, 30)),
    st.builds(Step, st.just("room"), count=st.integers(0, 30)),
    st.builds(Step, st.just("well"), count=st.integers(1, 10)),
    st.builds(Step, st.just("pressure"), st.sampled_from([0.0, 3.0, 30.0, 5000.0]), kind=st.sampled_from("abc")),
    st.builds(Step, st.just("end"), count=st.integers(1, 5), kind=st.sampled_from(["", "result"])),
    st.builds(Step, st.just("spend"), count=st.integers(0, 200)),
    st.builds(Step, st.just("restart"), st.sampled_from([0.0, 2.0, 100.0])),
)
MEMORY = st.one_of(st.none(), st.integers(0, 12).map(lambda slots: slots * Limits().min_memory // 2))
HOSTS = st.lists(
    st.builds(
        HostLoad,
        st.sampled_from(["a", "b", "c", "d"]),
        st.sampled_from([None, 1, 8]),
        st.sampled_from([None, 0.0, 2.5, 2.95, 9.0, 30.0]),
        MEMORY,
        st.sampled_from([None, 0, 2 * GB, 2 * GB + (250 << 20), 90 * GB]),
        st.sampled_from([None, 0, 3]),
        st.booleans(),
    ),
    max_size=4,
    unique_by=lambda host: host.name,
)
LIMITS = st.builds(
    lambda **some: Limits(**some),  # the rest as it is by default, and not made up
    max_agents=st.integers(1, 25),
    start=st.integers(1, 30),
    launch_rate=st.sampled_from([0.5, 4.0, 10.0]),
    burst=st.integers(1, 6),
    dollars=st.sampled_from([None, 5.0, 40.0]),
    agents=st.sampled_from([None, 12]),
    reserve=st.sampled_from([0.0, 0.25]),
    expected_dollars=st.sampled_from([None, 0.3]),
)


class Trace:
    """A run as the scheduler has it; each step is held against what must never happen."""

    def __init__(self, limits: Limits, hosts: list[HostLoad]) -> None:
        self.limits, self.hosts = limits, hosts
        self.one = Governor(limits, NOW)
        self.now = NOW
        self.running = 0
        self.dollars = 0.0
        self.resets: list[float] = []
        self.launches: list[float] = []

    def step(self, step: Step) -> None:
        one, now = self.one, self.now
        if step.do == "wait":
            self.now += step.seconds
        elif step.do == "room":
            self.launch(one.room(now, step.count, self.running, self.hosts), step.count)
        elif step.do == "well":
            for _ in range(step.count):
                one.went_well(now)
        elif step.do == "pressure":
            before = one.window
            one.pressure(now, step.kind, now + step.seconds if step.seconds else None)
            if step.seconds:
                self.resets.append(now + step.seconds)
            assert one.window <= before and one.next(now) is not None
        elif step.do == "end":
            for _ in range(min(step.count, self.running)):
                self.running -= 1
                one.ended(now, Spend(0.5, 1000), progress=bool(step.kind))
        elif step.do == "spend":
            self.dollars += step.count / 100
            one.spent(now, Spend(self.dollars, 0))
        else:
            told = json.loads(json.dumps(one.to_json(now), allow_nan=False))
            self.now += step.seconds
            self.one = Governor.from_json(self.limits, told, self.now)
        assert 1 <= self.one.window <= self.limits.max_agents
        moment = self.one.next(self.now)
        assert moment is None or moment > self.now
        assert "\n" not in self.one.why(self.now)

    def launch(self, names: list[str], wanted: int) -> None:
        limits, count = self.limits, len(names)
        assert count <= wanted
        assert set(names) <= {host.name for host in self.hosts if host.reachable}
        self.running += count
        self.launches += [self.now] * count
        if not count:
            return
        assert self.running <= min(limits.max_agents, self.one.window)
        assert all(self.now >= reset for reset in self.resets)
        if limits.agents:
            assert len(self.launches) <= limits.agents * (1 - limits.reserve)
        if limits.dollars:
            assert self.dollars < limits.dollars * (1 - limits.reserve)
            # Who is expected to cost so much is paid for, with all that are in flight.
            expected = limits.expected_dollars or 0.0
            assert self.dollars + self.running * min(expected, 0.3) <= limits.dollars * (1 - limits.reserve) + 1e-6
        for index, first in enumerate(self.launches):
            most = limits.burst + limits.launch_rate * (self.now - first)
            assert len(self.launches) - index <= most + 1e-3


@settings(max_examples=EXAMPLES, deadline=None)
@given(LIMITS, HOSTS, st.lists(STEPS, max_size=60))
def test_limits_hold_whatever_happens(limits: Limits, hosts: list[HostLoad], steps: list[Step]) -> None:
    trace = Trace(limits, hosts)
    for step in steps:
        trace.step(step)


@settings(max_examples=EXAMPLES, deadline=None)
@given(LIMITS, HOSTS, st.lists(STEPS, max_size=30), st.data())
def test_a_host_with_less_never_gets_more(
    limits: Limits, hosts: list[HostLoad], steps: list[Step], data: st.DataObject
) -> None:
    trace = Trace(limits, hosts)
    for step in steps:
        trace.step(step)
    poorer = [
        host._replace(
            memory_free=None if host.memory_free is None else data.draw(st.floats(0, host.memory_free)),
            disk_free=None if host.disk_free is None else data.draw(st.floats(0, host.disk_free)),
            load=None if host.load is None else data.draw(st.floats(host.load, 50)),
        )
        for host in hosts
    ]
    state, now = trace.one.to_json(trace.now), trace.now + 700
    counts = []
    for given_hosts in (hosts, poorer):
        one = Governor.from_json(limits, state, now)
        counts.append(grants(one, now, running=trace.running, hosts=given_hosts))
    assert counts[1] <= counts[0]


@settings(max_examples=EXAMPLES, deadline=None)
@given(LIMITS, st.lists(STEPS, max_size=40))
def test_it_never_stands_still_without_saying_why(limits: Limits, steps: list[Step]) -> None:
    trace = Trace(limits, ANY)
    for step in steps:
        trace.step(step)
    one, now = trace.one, trace.now
    one.spent(now, Spend(trace.dollars))
    for _ in range(100):
        if one.room(now, 1, 0, ANY):
            return
        if one.over(now) or one.closed(now):
            assert one.why(now)
            return
        moment = one.next(now)
        assert moment is not None and one.why(now)
        now = moment
    raise AssertionError("next leads nowhere")


class Agent:
    def __init__(self, cents: int, speed: int) -> None:
        self.left, self.speed, self.cost = cents, speed, 0

    def work(self) -> int:
        """Cents of this second."""
        used = min(self.left, self.speed)
        self.left -= used
        self.cost += used
        return used


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 300), st.integers(1, 20)), max_size=60),
    st.integers(1, 2000),
    st.integers(1, 6),
    st.sampled_from([0.0, 0.3]),
    st.integers(1, 12),
)
def test_a_budget_is_overspent_at_most_by_what_is_in_flight_between_two_measurements(
    tasks: list[tuple[int, int]], budget: int, every: int, reserve: float, most: int
) -> None:
    limits = Limits(max_agents=most, start=most, launch_rate=0, dollars=budget / 100, reserve=reserve, breaker=0)
    one = Governor(limits, NOW)
    flying: list[Agent] = []
    waiting, cents, peak = [Agent(*task) for task in tasks], 0, 0
    for second in range(5000):
        now = NOW + second
        if second % every == 0:
            one.spent(now, Spend(cents / 100))
            if one.over(now):
                break
        for agent in [agent for agent in flying if not agent.left]:
            flying.remove(agent)
            one.ended(now, Spend(agent.cost / 100), progress=True)
        for _ in one.room(now, len(waiting), len(flying), ANY):
            flying.append(waiting.pop())
        peak = max(peak, len(flying))
        cents += sum(agent.work() for agent in flying)
        if not flying and (not waiting or one.closed(now)):
            break
    else:
        raise AssertionError("it has no end")
    assert peak <= most
    assert cents <= budget * (1 - reserve) + most * every * 20 + 1e-6
    if not one.over(now) and not one.closed(now):
        assert not waiting


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.integers(1, 300), st.integers(1, 3000), st.integers(1, 7), st.integers(1, 20), st.integers(1, 40))
def test_nothing_is_overspent_when_agents_cost_what_is_expected(
    each: int, budget: int, every: int, speed: int, most: int
) -> None:
    limits = Limits(
        max_agents=most, start=most, launch_rate=0, dollars=budget / 100, expected_dollars=each / 100, breaker=0
    )
    one = Governor(limits, NOW)
    flying: list[Agent] = []
    cents = 0
    for second in range(5000):
        now = NOW + second
        if second % every == 0:
            one.spent(now, Spend(cents / 100))
        for agent in [agent for agent in flying if not agent.left]:
            flying.remove(agent)
            one.ended(now, Spend(agent.cost / 100), progress=True)
        flying += [Agent(each, speed) for _ in one.room(now, 50, len(flying), ANY)]
        cents += sum(agent.work() for agent in flying)
        if not flying and one.closed(now):
            break
    # Nobody asked `over`, and yet: all that the budget pays for, and not a cent more.
    assert cents == budget // each * each


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=EXAMPLES, deadline=None)
@given(LIMITS, st.lists(STEPS, max_size=30), st.data())
def test_garbage_in_its_state_is_as_if_it_were_not_there(
    limits: Limits, steps: list[Step], data: st.DataObject
) -> None:
    trace = Trace(limits, ANY)
    for step in steps:
        trace.step(step)
    told: Any = trace.one.to_json(trace.now)
    for where in (told, told["budget"], told["budget"]["run"]):
        for key in data.draw(st.lists(st.sampled_from(sorted(where)), max_size=4)):
            where[key] = data.draw(JSON)
    now = trace.now
    one = Governor.from_json(limits, data.draw(st.just(told) | JSON), now)
    assert 1 <= one.window <= limits.max_agents
    moment = one.next(now)
    assert moment is None or now < moment <= now + module.RESET_MAX
    one.spent(now, Spend(), day="today", today=Spend())
    assert grants(one, now) <= min(limits.max_agents, limits.burst)
    assert "\n" not in one.why(now) and all(breach.words for breach in one.over(now) + one.closed(now))
    one.pressure(now, "rate-limit")
    one.went_well(now + 1000)
    json.dumps(one.to_json(now), allow_nan=False)


@settings(max_examples=EXAMPLES, deadline=None)
@given(LIMITS, HOSTS, st.lists(STEPS, max_size=40))
def test_one_that_was_killed_goes_on_with_what_it_learned(
    limits: Limits, hosts: list[HostLoad], steps: list[Step]
) -> None:
    trace = Trace(limits, hosts)
    for step in steps:
        trace.step(step)
    state = trace.one.to_json(trace.now)
    again = Governor.from_json(limits, json.loads(json.dumps(state)), trace.now)
    assert again.to_json(trace.now) == state
    trace.one.spent(trace.now, Spend(trace.dollars))
    again.spent(trace.now, Spend(trace.dollars))
    assert again.room(trace.now, 9, trace.running, hosts) == trace.one.room(trace.now, 9, trace.running, hosts)
    assert again.window == trace.one.window and again.launched == trace.one.launched
