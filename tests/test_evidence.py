"""The table of states: what is known of an agent, and what follows."""

from __future__ import annotations

from typing import Any

import pytest

from muster.evidence import (
    NO_HOOKS,
    changed,
    client_status,
    input_box,
    judge,
    last_word,
    question,
    repository,
    screened,
)
from muster.model import Agent, Alarm, Evidence, Status

ALIVE = {"dead": False, "status": 0, "signal": 0, "pid": 7, "command": "sh"}
DEAD_0 = {**ALIVE, "dead": True}
DEAD_3 = {**DEAD_0, "status": 3}
DEAD_KILLED = {**DEAD_0, "signal": 9}
RETRIES = {**ALIVE, "retries": True}
NOW = 1000.0


def events(**times: float | tuple[float, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """`started=1.0, exit_=(2.0, {"code": 3})` as the newest event of each kind."""
    made = {}
    for key, value in times.items():
        t, more = value if isinstance(value, tuple) else (value, {})
        kind = key.rstrip("_").replace("_", "-")
        made[kind] = {"t": t, "kind": kind, **more}
    return made


CASES = [
    # what, speaks, events, pane, record, state, reason
    ("a plain command that runs is working", False, events(started=1), ALIVE, {}, "working", ""),
    ("and stays so for ever", False, events(started=1), ALIVE, {}, "working", ""),
    ("a client that has said nothing is starting", True, {}, ALIVE, {}, "starting", ""),
    ("a client that has only started is starting", True, events(started=1), ALIVE, {}, "starting", ""),
    ("an open input box is ready", True, events(started=1, ready=2), ALIVE, {}, "ready", ""),
    ("a prompt begins work", True, events(started=1, ready=2, prompt=3), ALIVE, {}, "working", ""),
    ("a tool goes on with it", True, events(started=1, turn_end=2, prompt=3, tool=4), ALIVE, {}, "working", ""),
    ("the end of a turn is ready", True, events(started=1, prompt=3, tool=4, turn_end=5), ALIVE, {}, "ready", ""),
    ("a question is waiting", True, events(started=1, prompt=3, ask=4), ALIVE, {}, "waiting", "question"),
    ("a permission is waiting", True, events(started=1, prompt=3, permission=4), ALIVE, {}, "waiting", "permission"),
    ("an answer goes on with it", True, events(started=1, permission=4, answered=5), ALIVE, {}, "working", ""),
    ("a limit is waiting", True, events(started=1, limit=(4, {"until": 2000})), ALIVE, {}, "waiting", "limit"),
    ("events of an earlier launch do not count", True, events(turn_end=5, started=6), ALIVE, {}, "starting", ""),
    ("a refusal that it tells of is work", True, events(started=1, prompt=3, retry=4), ALIVE, {}, "working", "retry"),
    ("and so is one that its screen shows", True, events(started=1, prompt=3), RETRIES, {}, "working", "retry"),
    ("a screen from before its turn ended says nothing", True, events(started=1, turn_end=5), RETRIES, {}, "ready", ""),
    ("a queued message does not end the work", True, events(started=1, prompt=3, queued=4), ALIVE, {}, "working", ""),
    ("exit 0 is done", False, events(started=1, exit_=(2, {"code": 0})), DEAD_0, {}, "done", ""),
    ("another exit is failed", False, events(started=1, exit_=(2, {"code": 3})), DEAD_3, {}, "failed", "exit 3"),
    (
        "the wrapper's word counts more than tmux's",
        False,
        events(started=1, exit_=(2, {"code": 3})),
        DEAD_0,
        {},
        "failed",
        "exit 3",
    ),
    ("a signal is failed", False, events(started=1, exit_=(2, {"code": 137})), DEAD_0, {}, "failed", "signal 9"),
    ("without the wrapper's word tmux's counts", False, events(started=1), DEAD_3, {}, "failed", "exit 3"),
    (
        "where tmux does not say how, nobody guesses",
        False,
        events(started=1),
        {**DEAD_0, "status": None},
        {},
        "failed",
        "exit code not known",
    ),
    ("and its signal", False, events(started=1), DEAD_KILLED, {}, "failed", "signal 9"),
    (
        "a time-out says so",
        False,
        events(started=1, exit_=(2, {"code": 143, "why": "timeout"})),
        None,
        {},
        "failed",
        "timeout",
    ),
    ("stop is stopped", False, events(started=1, stopped=2), None, {}, "stopped", ""),
    (
        "also when the process said how it ended",
        False,
        events(started=1, stopped=2, exit_=(3, {"code": 143})),
        None,
        {},
        "stopped",
        "",
    ),
    ("a stop of an earlier launch does not count", False, events(stopped=1, started=2), ALIVE, {}, "working", ""),
    ("an end and no session is the end", False, events(started=1, exit_=(2, {"code": 0})), None, {}, "done", ""),
    ("no end and no session is lost", False, events(started=1), None, {}, "lost", "its session is gone"),
    ("started after tmux was asked is not lost", False, events(started=10_000), None, {}, "starting", ""),
    ("recorded and never started is lost", False, {}, None, {}, "lost", "never started"),
    ("being created is starting", True, {}, None, {"phase": "creating"}, "starting", ""),
    (
        "a destroy under way is told",
        True,
        events(started=1),
        None,
        {"phase": "destroying"},
        "lost",
        "destroy was interrupted",
    ),
    (
        "a broken event is no evidence",
        True,
        {"prompt": {"kind": "prompt", "t": "soon"}, **events(started=1)},
        ALIVE,
        {},
        "starting",
        "",
    ),
]


@pytest.mark.parametrize(
    ("what", "speaks", "seen", "pane", "record", "state", "reason"), CASES, ids=[case[0] for case in CASES]
)
def test_what_follows(
    what: str,
    speaks: bool,
    seen: dict[str, Any],
    pane: dict[str, Any] | None,
    record: dict[str, Any],
    state: str,
    reason: str,
) -> None:
    agent = Agent("a-1", "a", "x", created=990.0, **record)
    status = judge(agent, seen, pane, NOW, speaks=speaks, creator_alive=agent.phase == "creating")
    assert (status.state, status.reason) == (state, reason)
    assert status.why, "every state has a reason why it follows"
    assert {item.source for item in status.evidence} >= {"tmux", *(f"event {kind}" for kind in seen)}


def test_a_refusal_is_as_old_as_what_shows_it() -> None:
    agent = Agent("a-1", "a", "x", created=990.0)

    def refused(pane: dict[str, Any], **times: float) -> float | None:
        return judge(agent, events(started=1, **times), pane, NOW, speaks=True).refused

    assert refused(ALIVE, prompt=3, retry=4) == 4 and refused(RETRIES, prompt=3) == NOW
    assert refused(ALIVE, retry=4, answered=5) is None and refused(RETRIES, turn_end=5) is None


def test_a_create_whose_process_is_gone_was_interrupted() -> None:
    agent = Agent("a-1", "a", "x", created=990.0, phase="creating", creator={"machine": "elsewhere"})
    assert judge(agent, {}, None, NOW, speaks=True, creator_alive=False).reason == "create was interrupted"
    # On another machine nobody can tell; time does.
    assert judge(agent, {}, None, NOW, speaks=True, creator_alive=None).state == "starting"
    assert judge(agent, {}, None, NOW + 1000, speaks=True, creator_alive=None).state == "lost"


def test_what_is_under_way_is_told_from_what_was_interrupted() -> None:
    recorded = Agent("a-1", "a", "x", created=990.0)
    assert judge(recorded, {}, None, NOW, speaks=True, creator_alive=True).state == "starting"
    leaving = Agent("a-1", "a", "x", created=990.0, phase="destroying")
    status = judge(leaving, events(started=1), None, NOW, speaks=True, creator_alive=True)
    assert (status.state, status.reason) == ("stopped", "is being destroyed")
    damaged = Agent("a-1", "a", "x", created=990.0, phase="unreadable")
    assert judge(damaged, {}, ALIVE, NOW, speaks=True).reason == "its record cannot be read"


def test_a_limit_says_when_it_ends() -> None:
    agent = Agent("a-1", "a", "x", created=990.0)
    assert judge(agent, events(started=1, limit=(4, {"until": 2000})), ALIVE, NOW, speaks=True).until == 2000


@pytest.mark.parametrize(
    ("what", "seen", "status", "at", "state", "reason"),
    [
        ("an interrupted turn", {"started": 900, "prompt": 950}, "idle", 960, "ready", "interrupted"),
        ("interrupted in a dialog", {"started": 900, "permission": 950}, "idle", 960, "ready", "interrupted"),
        ("its hook for the end is still to come", {"started": 900, "prompt": 950}, "idle", 999.7, "working", ""),
        ("older than the hooks", {"started": 900, "prompt": 950}, "idle", 940, "working", ""),
        ("as old as the hooks", {"started": 900, "prompt": 950}, "idle", 950, "working", ""),
        ("a tool that was allowed runs", {"started": 900, "permission": 950}, "busy", 960, "working", ""),
        ("a dialog that no hook told of", {"started": 900, "tool": 950}, "waiting", 960, "waiting", "permission"),
        ("a menu after its turn", {"started": 900, "turn_end": 950}, "waiting", 960, "waiting", "dialog"),
        ("a menu that it was in before", {"started": 900, "turn_end": 950}, "waiting", 940, "ready", ""),
        ("no hook ever fired", {"started": 900}, "idle", 960, "ready", ""),
        ("it has just started", {"started": 900}, "idle", 999, "starting", ""),
        ("at work, and no hook ever fired", {"started": 900}, "busy", 960, "working", ""),
        ("a dialog, and no hook ever fired", {"started": 900}, "waiting", 960, "waiting", "permission"),
        (
            "a command behind the turn",
            {"started": 900, "turn_end": 950},
            "background",
            949.9,
            "ready",
            "background task",
        ),
        ("a new turn beside that command", {"started": 900, "prompt": 970}, "background", 960, "working", ""),
        ("interrupted beside that command", {"started": 900, "prompt": 950}, "background", 960, "ready", "interrupted"),
        ("a turn that ended stays so", {"started": 900, "turn_end": 950}, "idle", 960, "ready", ""),
        ("a word that nobody knows", {"started": 900, "prompt": 950}, "dreaming", 960, "working", ""),
        ("a time that is none", {"started": 900, "prompt": 950}, "idle", "x", "working", ""),
    ],
)
def test_the_client_s_own_status_tells_what_no_hook_does(
    what: str, seen: dict[str, float], status: str, at: Any, state: str, reason: str
) -> None:
    files = [{"status": "idle", "t": 1}, {"status": status, "t": at}, {"status": "busy"}]
    agent = Agent("a-1", "a", "x", created=890.0)
    found = judge(agent, events(**seen), ALIVE, NOW, speaks=True, client=client_status(files))
    assert (found.state, found.reason) == (state, reason), found.why


@pytest.mark.parametrize(
    ("seen", "screen", "cursor", "state"),
    [
        ({"started": 900, "ready": 910}, "words\n  * one\n    two", None, "waiting"),
        ({"started": 900, "turn_end": 910}, "words\n  * one\n    two", None, "waiting"),
        ({"started": 900}, "words\n  * one\n    two", None, "waiting"),
        ({"started": 900, "ready": 910}, "words\n  * one\n> text", 2, "ready"),
        ({"started": 900, "ready": 910}, "words\n  * one\n> text", None, "waiting"),
        ({"started": 900, "ready": 910}, "words\n  * one\n> text", 1, "waiting"),
        ({"started": 900, "ready": 910}, "words\n    one\n    two", None, "ready"),
        ({"started": 900, "ready": 910}, "", None, "ready"),
        ({"started": 900, "tool": 910}, "words\n  * one\n    two", None, "working"),
        ({"started": 900, "permission": 910}, "words\n  * one\n    two", None, "waiting"),
    ],
)
def test_a_menu_in_place_of_the_input_box_is_waited_on(
    seen: dict[str, float], screen: str, cursor: int | None, state: str
) -> None:
    pane = {**ALIVE, "screen": screen, "cursor": cursor}
    agent = Agent("a-1", "a", "x", created=890.0)
    found = judge(agent, events(**seen), pane, NOW, speaks=True, choice=r"^ +\* ", box=r"^> .*\Z", cursor=True)
    assert found.state == state, found.why
    assert found.reason in ("", "dialog", "permission")


@pytest.mark.parametrize(
    ("speaks", "seen", "line", "state", "reason"),
    [
        (True, {"started": 900}, "Enter to confirm", "waiting", "dialog"),
        (True, {"started": 900, "ready": 910}, "Enter to confirm", "ready", ""),
        (True, {"started": 900, "prompt": 910}, "> ", "working", ""),
        (True, {"started": 900}, "something nobody knows", "starting", ""),
        (False, {"started": 900}, "Enter to confirm", "waiting", "question"),
        (False, {"started": 900}, "> ", "ready", ""),
        (False, {"started": 900}, "something nobody knows", "working", ""),
    ],
)
def test_the_last_line_counts_where_the_client_says_nothing(
    speaks: bool, seen: dict[str, float], line: str, state: str, reason: str
) -> None:
    shows = {"waiting": "Enter to confirm", "ready": "^> $"}
    agent = Agent("a-1", "a", "x", created=890.0)
    found = judge(agent, events(**seen), ALIVE, NOW, speaks=speaks, last_line=line, shows=shows)
    assert (found.state, found.reason) == (state, reason), found.why


def test_a_limit_that_is_over_needs_nobody() -> None:
    agent = Agent("a-1", "a", "x", created=890.0)
    for until, state, reason in (
        (NOW + 60, "waiting", "limit"),
        (NOW - 2, "waiting", "limit"),
        (NOW - 60, "ready", "limit is over"),
    ):
        found = judge(agent, events(started=900, limit=(950, {"until": until})), ALIVE, NOW, speaks=True)
        assert (found.state, found.reason) == (state, reason)


def test_the_type_reads_the_end_of_a_limit_from_the_words_of_its_client() -> None:
    agent = Agent("a-1", "a", "x", created=890.0)
    limit = events(started=900, limit=(950, {"text": "wait 70 s"}))

    def resets(text: str, t: float) -> float:
        return t + float(text.split()[1])

    assert judge(agent, limit, ALIVE, NOW, speaks=True, resets=resets).until == 1020
    assert judge(agent, limit, ALIVE, NOW, speaks=True).until is None


def test_a_dialog_in_a_client_s_status_is_told_from_a_permission() -> None:
    agent = Agent("a-1", "a", "x", created=890.0)
    for dialog, reason in ((True, "dialog"), (False, "permission"), ("yes", "permission")):
        client = client_status([{"status": "waiting", "t": 960, "dialog": dialog}])
        assert judge(agent, events(started=900, tool=950), ALIVE, NOW, speaks=True, client=client).reason == reason


def test_a_last_line_that_looks_like_several_states_is_the_one_that_needs_a_person() -> None:
    def state(*shown: str) -> str:
        shows = dict.fromkeys(shown, "x")
        agent = Agent("i", "n", "t")
        return judge(agent, events(started=1), ALIVE, NOW, speaks=False, last_line="x", shows=shows).state

    assert state("working", "ready", "waiting") == "waiting"
    assert state("working", "ready") == "ready"
    assert state("working") == "working"
    plain = judge(
        Agent("i", "n", "t"), events(started=1), ALIVE, NOW, speaks=False, last_line="?", shows={"ready": "x"}
    )
    assert plain.state == "working"


AGENT = Agent("a-1", "a", "x", created=890.0)
MENU = {"screen": "words\n  * one\n  * two \n    three", "cursor": None}
GONE = {"dead": True, "status": None, "signal": 0, "pid": 7, "command": "sh"}
EXPLAINED: list[tuple[dict[str, dict[str, Any]], dict[str, Any] | None, dict[str, Any], tuple[Any, ...]]] = [
    # events, pane, what else is known; since, exit code, why
    ({}, None, {"phase": "unreadable"}, (NOW, None, "agent.json is damaged; destroy keeps all it has")),
    ({}, None, {"phase": "creating", "creator_alive": True}, (890, None, "it is being created")),
    ({}, None, {"phase": "creating", "creator_alive": False}, (890, None, "it was never started")),
    ({}, None, {"phase": "destroying", "creator_alive": True}, (NOW, None, "a destroy of it is under way")),
    ({}, None, {"phase": "destroying"}, (890, None, "run destroy again, it goes on")),
    (events(started=1001), None, {}, (1001, None, "it was started after tmux was asked")),
    (events(started=900, stopped=900), None, {}, (900, None, "stop ended it")),
    (events(started=900, exit_=(900, {"code": 0})), GONE, {}, (900, 0, "its process ended with 0")),
    (
        events(started=900, exit_=(910, {"code": 127})),
        None,
        {},
        (910, 127, "its process ended otherwise than with 0"),
    ),
    (events(started=900, exit_=(910, {"code": "x"})), None, {}, (910, 1, "its process ended otherwise than with 0")),
    (events(started=900, exit_=(910, {"code": 143, "why": "timeout"})), None, {}, (910, 143, "its time was up")),
    (
        events(started=900, exit_=(910, {"code": 129, "why": "hangup"})),
        None,
        {},
        (900, None, "tmux has no session of it, and neither stop nor the program ended it"),
    ),
    (
        events(started=900, exit_=(910, {"code": 129, "why": "hangup"})),
        GONE,
        {},
        (910, 129, "its process ended otherwise than with 0"),
    ),
    (events(started=900), {**GONE, "signal": 9}, {}, (900, 137, "its process ended otherwise than with 0")),
    (events(started=900), GONE, {}, (900, None, "its process ended, and its exit code was not recorded")),
    ({}, None, {"creator_alive": True}, (890, None, "it is being created")),
    ({}, None, {}, (890, None, "there is a record and no session")),
    (events(started=900), None, {"processes": 2}, (900, None, "its session is gone, 2 of its processes run")),
    (
        events(started=900),
        ALIVE,
        {"speaks": False},
        (900, None, "a plain command is at work while its process runs"),
    ),
    (
        events(started=900),
        ALIVE,
        {"speaks": False, "last_line": "sure? ", "shows": {"waiting": "sure"}},
        (900, None, "the last line of its terminal is what it shows when waiting"),
    ),
    (
        events(started=900),
        ALIVE,
        {"last_line": "sure? ", "shows": {"waiting": "sure"}},
        (900, None, "its terminal shows it, its client said nothing"),
    ),
    (
        events(started=900, ready=910),
        {**ALIVE, **MENU},
        {"choice": r"^ +\* ", "box": r"^> .*\Z"},
        (910, None, "its screen shows a menu in place of its input box, and no hook told of one"),
    ),
    ({}, ALIVE, {}, (890, None, "its process is up, it has said nothing yet")),
    (events(started=900, turn_end=910), ALIVE, {}, (910, None, "the newest thing its client said is 'turn-end'")),
    (
        events(started=900, prompt=910),
        RETRIES,
        {},
        (910, None, "the newest thing its client said is 'prompt', and its screen shows that it tries again"),
    ),
    (
        events(started=900, limit=(910, {"until": 994.9})),
        ALIVE,
        {},
        (994.9, None, "the time that its client named for the end of the limit is past"),
    ),
    (
        events(started=900, limit=(910, {"until": 995})),
        ALIVE,
        {},
        (910, None, "the newest thing its client said is 'limit'"),
    ),
    (
        events(started=900, turn_end=910),
        ALIVE,
        {"client": "background"},
        (910, None, "its turn is over, and its client says that a command of it still runs"),
    ),
    (
        events(started=900, tool=910),
        ALIVE,
        {"client": "idle"},
        (960, None, "its client says that it is idle, and told no end of the turn after 'tool'"),
    ),
    (
        events(started=900),
        ALIVE,
        {"client": "idle"},
        (960, None, "its client says that it is idle, and its hooks have told nothing"),
    ),
    (
        events(started=900, ask=910),
        ALIVE,
        {"client": "busy"},
        (960, None, "its client says that it is busy again after 'ask'"),
    ),
    (
        events(started=900, ready=910),
        ALIVE,
        {"client": "busy"},
        (960, None, "its client says that it is busy, and its hooks have told nothing"),
    ),
    (
        events(started=900, answered=910),
        ALIVE,
        {"client": "waiting"},
        (960, None, "its client says that it waits, and no hook told for what"),
    ),
]


def judged(
    seen: dict[str, dict[str, Any]], pane: dict[str, Any] | None, speaks: bool = True, client: str = "", **more: Any
) -> Status:
    record = {"phase": more.pop("phase")} if "phase" in more else {}
    files = [{"status": client, "t": 960}] if client else []
    return judge(AGENT._replace(**record), seen, pane, NOW, speaks=speaks, client=client_status(files), **more)


@pytest.mark.parametrize(("seen", "pane", "more", "then"), EXPLAINED, ids=[case[3][2] for case in EXPLAINED])
def test_a_state_has_its_time_its_exit_code_and_why_it_follows(
    seen: dict[str, dict[str, Any]], pane: dict[str, Any] | None, more: dict[str, Any], then: tuple[Any, ...]
) -> None:
    status = judged(seen, pane, **more)
    assert (status.since, status.exit_code, status.why, status.now) == (*then, NOW)


@pytest.mark.parametrize(("code", "reason"), [(127, "exit 127"), (128, "exit 128"), (129, "signal 1")])
def test_a_code_above_128_is_a_signal(code: int, reason: str) -> None:
    assert judged(events(started=900, exit_=(910, {"code": code})), GONE).reason == reason


def test_evidence_is_listed_with_the_oldest_first() -> None:
    seen = events(started=(900, {"pid": 3, "text": "x" * 400}), prompt=950)
    status = judged(seen, ALIVE, client="busy", last_line="y" * 300, shows={"working": "y"})
    assert status.evidence == (
        Evidence("event started", 900, f"pid='3', text={'x' * 300!r}", "starting"),
        Evidence("event prompt", 950, "", "working"),
        Evidence("client's status", 960, "busy"),
        Evidence("tmux", NOW, "process 7 runs (sh)"),
        Evidence("last line", NOW, "y" * 200, "working"),
    )
    menu = judged(events(started=900, ready=910), {**ALIVE, **MENU}, choice=r"^ +\* ", box=r"^> .*\Z")
    assert menu.evidence[-1] == Evidence("screen", NOW, "* two", "waiting")
    assert menu.reason == "dialog"


@pytest.mark.parametrize(
    ("pane", "processes", "facts"),
    [
        (None, 0, ["no session"]),
        (None, 2, ["no session", "processes of the agent: 2"]),
        (DEAD_3, 0, ["the process ended (exit 3)"]),
        (DEAD_KILLED, 0, ["the process ended (signal 9)"]),
        (GONE, 0, ["the process ended (tmux does not say how)"]),
    ],
)
def test_tmux_and_the_process_table_are_evidence(pane: dict[str, Any] | None, processes: int, facts: list[str]) -> None:
    found = judged(events(started=900), pane, processes=processes).evidence
    assert [(item.source, item.t, item.fact) for item in found[1:]] == [
        (source, NOW, fact) for source, fact in zip(("tmux", "process table"), facts, strict=False)
    ]


@pytest.mark.parametrize(
    ("seen", "now", "noted"),
    [
        (events(started=900), NOW, True),
        (events(started=900, ready=(950, {"by": "title"})), NOW, True),
        (events(started=900, ready=950), NOW, False),
        (events(started=957), 960.1, False),
    ],
)
def test_a_client_whose_hooks_do_not_run_is_told(seen: dict[str, dict[str, Any]], now: float, noted: bool) -> None:
    client = client_status([{"status": "idle", "t": 960}])
    found = judge(AGENT, seen, ALIVE, now, speaks=True, client=client).evidence
    assert (Evidence("hooks", now, NO_HOOKS) in found) == noted


def test_the_newest_status_file_of_a_client_counts() -> None:
    found = client_status([{"status": "idle", "t": 5}, {"status": "busy", "t": 7}, {"status": "idle", "t": 6}])
    assert found and (found.t, found.status, found.dialog) == (7, "busy", False)
    assert client_status([{"status": "busy"}, {"status": "busy", "t": -1}, {"t": 10**400}]) is None


@pytest.mark.parametrize(
    ("t", "taken"), [(0, 0.0), (1e11 - 1, 1e11 - 1), (1e11, 0.0), (-1, 0.0), (10**400, 0.0), ("7", 0.0), (7, 7.0)]
)
def test_a_time_that_no_clock_shows_is_none(t: Any, taken: float) -> None:
    found = judged({"started": {"kind": "started", "t": t}}, ALIVE).evidence
    assert [item.t for item in found if item.source == "event started"] == [taken]


def test_an_input_box_needs_the_cursor_where_its_client_shows_it() -> None:
    screen = "one\n> two"
    assert input_box(screen, None, "^> ", False) and input_box(screen, 1, "^> ", True)
    assert not input_box(screen, 0, "^> ", True) and not input_box(screen, None, "^> ", True)
    assert not input_box("one", 0, "^> ", False)
    assert input_box("one\n> two\nhints", 1, "^> .*\n.*", True) and not input_box("\n> two", 0, "^> ", True)


def test_a_changed_record_and_repository_are_explained() -> None:
    alarms = (Alarm("cwd", "/a", "/b"), Alarm("result", "", "x"))
    assert changed(alarms, 5.0) == [
        Evidence("record", 5.0, "cwd is '/b' on its host, muster wrote '/a'; ignored"),
        Evidence("result", 5.0, "result.json was not written by this agent's own submit; it does not count"),
    ]
    assert repository((Alarm("hook", "a", "b"), Alarm("filter", "", "b")), 5.0) == [
        Evidence("repository", 5.0, "hook changed since the agent was created"),
        Evidence("repository", 5.0, "filter is new since the agent was created"),
    ]


def test_the_last_line_that_looks_so_is_added_to_the_evidence() -> None:
    status = judged(events(started=900, prompt=950), ALIVE)
    added = screened(status, " retrying 1\n retrying 2 \nother", "retry")
    assert added.evidence == (*status.evidence, Evidence("screen", NOW, "retrying 2"))
    assert added._replace(evidence=status.evidence) == status
    assert screened(status, "other", "retry") == status == screened(status, "retrying", "")
    assert screened(status, "x" * 999 + "y", "y") != status == screened(status, "x" * 1000 + "y", "y")
    assert screened(status, "retry" + "x" * 300, "retry").evidence[-1].fact == "retry" + "x" * 195


def test_the_last_word_is_the_first_line_of_the_newest_thing_said() -> None:
    said = events(prompt=(9, {"text": "no"}), tool=(3, {"name": "Bash", "detail": "ls"}), error=(2, {"text": "old"}))
    assert last_word(said) == "Bash: ls"
    assert last_word({**said, **events(turn_end=(4, {"text": " one\ntwo"}))}) == "one"
    assert last_word(events(limit=(1, {"tool": "T", "text": "full"}), ask=(0, {"text": "x"}))) == "T: full"
    assert last_word(events(permission=(5, {"tool": "T"}), error=(6, {"text": "bad"}))) == "bad"
    assert last_word(events(prompt=(9, {"text": "no"}))) == ""
    for kind in ("turn-end", "ask", "permission", "tool", "error", "limit"):
        assert last_word({kind: {"kind": kind, "t": 1.0, "text": "word"}}) == "word"


def test_the_question_of_a_waiting_agent_is_whole() -> None:
    asked = events(started=900, ask=(910, {"text": "one\ntwo "}), permission=(905, {"tool": "T", "detail": "ls"}))
    status = judged(asked, ALIVE)
    assert question(status, asked) == "one\ntwo"
    asked = {**asked, **events(permission=(920, {"name": "N", "tool": "T", "text": "x", "detail": "ls"}))}
    assert question(status, asked) == "N: T: x: ls"
    assert question(status, events(limit=(1, {"text": "full"}))) == "full"
    assert question(status, {}) == ""
    assert question(status._replace(state="ready"), asked) == ""
