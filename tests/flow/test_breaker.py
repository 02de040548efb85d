"""The breaker, with a clock of its own: what pauses launching, where, and what ends it."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from muster.flow.limits import failures
from muster.flow.limits.breaker import Breaker, Pause
from muster.flow.limits.failures import Failure, classify

from .test_failures import EXAMPLES, broke, full, limit, several

HOSTS = ["box2", "other"]


def everywhere(breaker: Breaker) -> Pause:
    assert list(breaker.pauses) == [None]
    return breaker.pauses[None]


def test_n_of_a_kind_within_the_time_pause_launching() -> None:
    breaker = Breaker(n=3, within=100.0)
    assert breaker.failed(full(), 0.0) is None and breaker.failed(full(), 50.0) is None
    assert breaker.failed(full(), 120.0) is None  # the first is too old
    assert breaker.allows("box2")
    alert = breaker.failed(full(), 121.0)
    assert alert and alert.state == everywhere(breaker).state == "open" and everywhere(breaker).since == 121.0
    assert "3 of 3 failed at launch on host box2: no space left" in alert.text and "the environment" in alert.text
    assert not breaker.allows("box2") and not breaker.allows("other")


def test_launches_that_fail_on_one_host_are_a_kind_whatever_they_say() -> None:
    words = ["error: a", "error: b", "error: c"]
    near, far = Breaker(n=3), Breaker(n=3)
    assert [bool(near.failed(classify("launch", text, host="a"), 1.0)) for text in words] == [False, False, True]
    assert not any(far.failed(broke(host, text=text), 1.0) for host, text in zip("abc", words, strict=True))


def test_work_that_fails_in_different_ways_is_one_host_s_fault_only_where_others_do_well() -> None:
    """Half of a test suite may be red, each test in its own way: that is what the agents are for."""
    alone, among = Breaker(n=3), Breaker(n=3)
    for number in range(20):
        alone.succeeded("a", 1.0)
        assert alone.failed(broke("a", text=f"error: {chr(97 + number)}"), 1.0) is None
    for _ in range(3):
        among.succeeded("b", 1.0)
    told = [among.failed(broke("a", text=f"error: {word}"), 1.0) for word in "abc"]
    assert told[-1] and not among.allows("a") and among.allows("b")


def test_limits_never_open_it() -> None:
    breaker = Breaker(n=2)
    for t in range(50):
        assert breaker.failed(limit(t=t), float(t)) is None
        assert breaker.failed(classify("work", "API Error: 529 Overloaded"), float(t)) is None
    assert not breaker.pauses


def test_a_few_failures_among_many_successes_are_no_pattern() -> None:
    breaker = Breaker(n=3)
    for t in range(100):
        breaker.succeeded("a", float(t))
        breaker.succeeded("a", float(t))
        assert breaker.failed(broke(), float(t)) is None
    # Successes of an earlier stage, of other hosts and of long ago say nothing of it.
    breaker = Breaker(n=3, within=10.0)
    for _ in range(20):
        breaker.succeeded("a", 99.0, stage="launch")
        breaker.succeeded("b", 99.0)
        breaker.succeeded("a", 1.0)
    assert [bool(breaker.failed(broke(), 100.0)) for _ in range(3)] == [False, False, True]


def test_as_many_as_went_well_are_too_many_and_so_are_a_few_in_a_row() -> None:
    breaker = Breaker(n=5)
    for t in range(4):
        breaker.succeeded("a", float(t))
    assert [bool(breaker.failed(broke(), 10.0)) for _ in range(5)] == [False] * 4 + [True]
    assert everywhere(breaker).diagnosis.startswith("5 of 9 failed")
    breaker = Breaker(n=5)
    for t in range(500):
        breaker.succeeded("a", float(t) / 10)
    assert [bool(breaker.failed(broke(), 60.0)) for _ in range(10)] == [False] * 9 + [True]
    assert everywhere(breaker).diagnosis.startswith("10 of 10 failed"), "whatever went well before"


def test_what_fails_here_and_there_is_measured_by_all_that_went_well_anywhere() -> None:
    breaker = Breaker(n=10)
    for number in range(20):
        breaker.succeeded(f"good{number}", 1.0)
    assert not any(breaker.failed(full(f"bad{number}"), 2.0) for number in range(19))
    alert = breaker.failed(full("bad19"), 2.0)
    assert alert and alert.text.startswith("20 of 40 failed at launch on 20 hosts: no space left"), alert


def opened(**how: Any) -> Breaker:
    breaker = Breaker(n=2, pause=60.0, **how)
    breaker.failed(full(), 0.0)
    assert breaker.failed(full(), 0.0)
    return breaker


def test_after_a_pause_exactly_one_canary_goes_and_its_success_closes() -> None:
    breaker = opened()
    assert not breaker.canary(59.0, "t1", HOSTS) and not breaker.canary(60.0, "t1", [])
    assert breaker.canary(60.0, "t1", HOSTS) == HOSTS and everywhere(breaker).state == "canary"
    assert not breaker.canary(61.0, "t2", HOSTS) and not breaker.canary(9999.0, "t1", HOSTS) and not breaker.allows()
    # The others are still under way, and say nothing.
    assert breaker.succeeded("box2", 62.0, "t0") is None and breaker.failed(full(), 62.0, "t9") is None
    assert breaker.succeeded("box2", 63.0, "t1", stage="create") is None and everywhere(breaker).state == "canary"
    alert = breaker.succeeded("box2", 64.0, "t1", stage="launch")
    assert alert and alert.state == "closed" and "goes on" in alert.text and "no space left" in alert.text
    assert breaker.allows() and breaker.failed(full(), 65.0) is None  # it counts from nothing again


def test_its_failure_opens_again_for_longer_and_then_stops_with_the_diagnosis() -> None:
    breaker = opened(max_canaries=2)
    assert breaker.canary(60.0, "t1", HOSTS)
    alert = breaker.failed(full(), 70.0, "t1")
    assert alert and alert.state == everywhere(breaker).state == "open" and "canary failed" in alert.text
    assert not breaker.canary(189.0, "t2", HOSTS) and breaker.canary(190.0, "t2", HOSTS)
    assert not breaker.hopeless(HOSTS)
    alert = breaker.failed(full(), 200.0, "t2")
    assert alert and alert.state == everywhere(breaker).state == "stopped"
    assert "2 of 2 failed at launch on host box2: no space left" in alert.text and "2 canaries failed" in alert.text
    assert not breaker.canary(1e9, "t3", HOSTS) and not breaker.allows()
    assert breaker.hopeless(HOSTS).startswith("2 of 2 failed at launch")


def test_a_canary_that_fails_at_something_further_on_has_shown_that_this_is_over() -> None:
    breaker = opened()
    assert breaker.canary(60.0, "t1", HOSTS)
    alert = breaker.failed(broke("box2"), 99.0, "t1")
    assert alert and alert.state == "closed"
    assert breaker.failed(broke("box2"), 99.0)  # and its failure counts


def test_a_canary_that_meets_a_limit_or_is_withdrawn_has_shown_nothing() -> None:
    breaker = opened(max_canaries=1)
    assert breaker.withdrawn(1.0, "t1") is None
    for t in (60.0, 200.0):
        assert breaker.canary(t, "t1", HOSTS)
        alert = breaker.failed(limit(), t + 1, "t1") if t == 60.0 else breaker.withdrawn(t + 1, "t1")
        assert alert and everywhere(breaker).state == "open" and everywhere(breaker).canaries == 0
    assert not breaker.canary(202.0, "t1", HOSTS)


def test_a_clock_that_is_set_back_does_not_keep_it_open() -> None:
    breaker = opened()
    everywhere(breaker).since = 1e9
    assert not breaker.canary(100.0, "t1", HOSTS)
    assert breaker.canary(160.0, "t1", HOSTS)


def test_it_says_which_it_is_the_code_the_environment_or_the_limits() -> None:
    def cause(*failures: Failure, well: str = "") -> str:
        breaker = Breaker(n=len(failures))
        if well:
            breaker.succeeded(well, 0.0)
        alert = [breaker.failed(failure, 1.0) for failure in failures][-1]
        assert alert and f"look at the {alert.cause}" in alert.text
        return alert.cause

    assert cause(broke("a"), broke("b"), broke("c")) == "code"
    assert cause(broke("a"), broke("a"), broke("a")) == "code"  # there is only this host
    assert cause(broke("a"), broke("a"), broke("a"), well="b") == "environment"
    assert cause(full("a"), full("b"), full("c")) == "environment"
    early = classify("start", "it ended", exit_code=1)
    assert cause(early, early) == "environment"
    assert cause(classify("work", "Invalid API key · Please run /login")) == "environment"
    credit = classify("work", "Credit balance is too low")
    assert cause(credit, credit) == "limits"


def test_where_others_go_well_only_the_bad_hosts_are_paused_each_on_its_own() -> None:
    hosts = ["good", "bad", "worse"]
    breaker = Breaker(n=2, max_canaries=1)
    breaker.succeeded("good", 0.0)
    breaker.failed(full("bad"), 1.0)
    alert = breaker.failed(full("bad"), 1.0)
    assert alert and alert.text.endswith("launching pauses on bad") and breaker.allowed(hosts) == ["good", "worse"]
    assert breaker.failed(full("worse"), 2.0) is None and breaker.failed(full("worse"), 2.0)
    assert breaker.allowed(hosts) == ["good"]
    # Each has canaries of its own, and what one finds out says nothing of the other.
    assert not breaker.canary(60.0, "t1", hosts)
    assert breaker.canary(61.0, "t1", hosts) == ["bad"] and not breaker.canary(61.0, "t2", hosts)
    assert breaker.canary(62.0, "t2", hosts) == ["worse"]
    assert breaker.succeeded("bad", 63.0, "t1", "launch") and breaker.allowed(hosts) == ["good", "bad"]
    assert breaker.failed(full("worse"), 63.0, "t2") and breaker.pauses["worse"].state == "stopped"
    assert breaker.allowed(hosts) == ["good", "bad"] and not breaker.hopeless(hosts) and breaker.hopeless(["worse"])


def test_hosts_on_which_nothing_goes_well_are_paused_together_where_more_do() -> None:
    breaker = Breaker(n=4)
    for host in ("one", "two", "three"):
        breaker.succeeded(host, 0.0)
    assert not any(breaker.failed(full(host), 1.0) for host in ("bad", "worse", "bad"))
    alert = breaker.failed(full("worse"), 1.0)
    assert alert and alert.text.endswith("launching pauses on bad, worse")
    assert breaker.allowed(["one", "two", "bad", "worse", "new"]) == ["one", "two", "new"]
    # Where one of them goes well too, it is not the hosts.
    breaker = Breaker(n=4)
    for host in ("one", "two", "bad"):
        breaker.succeeded(host, 0.0)
    assert [bool(breaker.failed(full(host), 1.0)) for host in ("bad", "worse", "bad", "worse")][-1]
    everywhere(breaker)


def test_what_happens_everywhere_pauses_all_though_a_host_is_paused_already() -> None:
    breaker = Breaker(n=2)
    breaker.succeeded("a", 0.0)
    assert [bool(breaker.failed(full("bad"), 1.0)) for _ in range(2)] == [False, True]
    breaker.succeeded("b", 2.0)
    for host in "ab":
        breaker.failed(broke(host), 3.0)
    assert set(breaker.pauses) == {"bad", None} and breaker.allowed(["a", "b", "bad"]) == []
    assert breaker.canary(61.0, "t1", ["a", "bad"]) == [], "that of all comes first"
    assert breaker.canary(63.0, "t1", ["a", "bad"]) == ["a"]
    assert breaker.succeeded("a", 64.0, "t1") and breaker.allowed(["a", "b", "bad"]) == ["a", "b"]


def test_a_breaker_goes_on_where_it_was_saved() -> None:
    breaker = opened()
    assert breaker.canary(60.0, "t1", HOSTS)
    other = Breaker(n=2)
    other.restore(json.loads(json.dumps(breaker.to_json())))
    assert other.to_json() == breaker.to_json()
    assert not other.canary(9999.0, "t2", HOSTS)
    alert = other.succeeded("box2", 70.0, "t1")
    assert alert and not other.pauses
    fresh, again = Breaker(n=2), Breaker(n=2)
    fresh.failed(full(), 1.0)
    again.restore(json.loads(json.dumps(fresh.to_json())))
    assert again.failed(full(), 2.0)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(failures.STAGES),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=4,
)
KEYS = ["since", "diagnosis", "cause", "stage", "flying", "canaries", "key"]
ODD_FAILURE = st.fixed_dictionaries(
    {"stage": st.just("work") | JSON, "text": st.text(max_size=5)}, optional=dict.fromkeys(Failure._fields[6:], JSON)
)
ODD_PAUSE = st.fixed_dictionaries(
    {"state": st.sampled_from(["open", "canary", "stopped"]) | JSON}, optional=dict.fromkeys(KEYS, JSON)
)
ODD = st.fixed_dictionaries(
    {"pauses": st.lists(st.tuples(st.sampled_from([None, *HOSTS]) | JSON, ODD_PAUSE).map(list), max_size=2) | JSON},
    optional={"failures": st.lists(ODD_FAILURE, max_size=2) | JSON, "successes": JSON},
)


@several
@given(ODD | JSON)
def test_garbage_is_restored_to_something_that_works_and_is_never_wedged(data: Any) -> None:
    breaker = Breaker(n=1)
    breaker.restore(data)
    json.dumps(breaker.to_json())
    hosts = [*HOSTS, *(host for host in breaker.pauses if host)]
    assert all(pause.state != "canary" or pause.flying for pause in breaker.pauses.values())
    if not breaker.allowed(hosts) and any(one.state == "open" for one in breaker.pauses.values()):
        flying = any(one.state == "canary" for one in breaker.pauses.values())
        blocked = None in breaker.pauses and breaker.pauses[None].state == "stopped"
        assert breaker.canary(0.0, "t1", hosts) or breaker.canary(1e6, "t1", hosts) or flying or blocked
    breaker.failed(full(), 1e6, "t1")
    breaker.succeeded("box2", 1e6, "t1")


class Canaries(RuleBasedStateMachine):
    """Whatever happens in whatever order, and whenever it is saved: of each pause at most one canary is under way."""

    def __init__(self) -> None:
        super().__init__()
        self.breaker = Breaker(n=2, within=50.0, pause=5.0)
        self.now = 0.0
        self.under_way: set[str] = set()
        self.count = 0

    @rule(seconds=st.floats(-3, 40))
    def passes(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def asks(self) -> None:
        self.count += 1
        where = self.breaker.canary(self.now, f"t{self.count}", ["a", "b"])
        if where:
            self.under_way.add(f"t{self.count}")
            assert len(where) == 1 or None in self.breaker.pauses

    @rule(failure=st.sampled_from([full("a"), full("b"), broke("a"), broke("b"), limit("a")]), mine=st.booleans())
    def fails(self, failure: Failure, mine: bool) -> None:
        task = next(iter(self.under_way), "") if mine else "another"
        self.breaker.failed(failure, self.now, task)
        self.under_way.discard(task)

    @rule(host=st.sampled_from("ab"))
    def another_succeeds(self, host: str) -> None:
        before = self.breaker.to_json()["pauses"]
        self.breaker.succeeded(host, self.now, "another")
        assert self.breaker.to_json()["pauses"] == before

    @precondition(lambda self: self.under_way)
    @rule()
    def canary_succeeds(self) -> None:
        task, before = self.under_way.pop(), len(self.breaker.pauses)
        alert = self.breaker.succeeded("a", self.now, task)
        assert alert and alert.state == "closed" and len(self.breaker.pauses) == before - 1

    @rule()
    def is_saved(self) -> None:
        data = json.loads(json.dumps(self.breaker.to_json()))
        self.breaker = Breaker(n=2, within=50.0, pause=5.0)
        self.breaker.restore(data)

    @invariant()
    def those_that_fly_are_known(self) -> None:
        pauses = self.breaker.pauses.values()
        assert sorted(self.under_way) == sorted(pause.flying for pause in pauses if pause.state == "canary")
        assert all(bool(pause.flying) == (pause.state == "canary") for pause in pauses)
        assert bool(self.breaker.allowed(["a", "b"])) == (
            not self.breaker.pauses.keys() >= {"a", "b"} and None not in self.breaker.pauses
        )


TestCanaries = Canaries.TestCase
TestCanaries.settings = settings(max_examples=max(30, EXAMPLES // 5), deadline=None)
