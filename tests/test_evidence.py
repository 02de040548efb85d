"""The table of states: what is known of an agent, and what follows."""

from __future__ import annotations

from typing import Any

import pytest

from muster.evidence import client_status, judge
from muster.model import Agent

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
