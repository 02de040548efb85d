"""Claude Code itself, in its real terminal, against a scripted model: states, receipts, transcript, usage, resuming."""

from __future__ import annotations

import json
import shutil
import time
from datetime import datetime
from pathlib import Path

import pytest

from muster.agents.claude import resets, status, translate
from muster.model import ClientStatus

from ..conftest import eventually
from ..support.login import TokenService
from .conftest import Claude


def made(claude: Claude, text: str, *options: str) -> None:
    claude.ok("create", "one", "claude", "--no-connect", *options, "-m", text)


def until(claude: Claude, state: str) -> dict[str, object]:
    claude.ok("wait", "one", "--until", state, "--timeout", "60s")
    return claude.agents()["one"]


def test_the_first_message_is_answered_and_the_user_s_own_settings_stay(claude: Claude) -> None:
    settings = claude.home / ".claude" / "settings.json"
    before = settings.read_bytes()
    made(claude, "hello there")
    row = until(claude, "ready")
    assert claude.heard() == ["hello there"]
    assert row["last_line"] == "hello there" and row["reason"] is None
    assert settings.read_bytes() == before


def test_a_message_is_delivered_once_and_whole(claude: Claude) -> None:
    made(claude, "hello")
    until(claude, "ready")
    texts = ['two lines\nwith "quotes", $HOME, `ticks` and \\n', "ünïcode 🎉", "/help is no command here", "x" * 20_000]
    for text in texts:
        result = claude.run("message", "one", "-m", text)
        assert (result.code, "delivered: one" in result.stderr) == (0, True), result.stderr
        until(claude, "ready")
    assert claude.heard() == ["hello", *texts[:2], f"Message: {texts[2]}", texts[3]]


def test_messages_to_one_that_works_are_queued_and_each_arrives_once(claude: Claude) -> None:
    claude.server.register("slow", {"text": "at last", "hold": "go"})
    made(claude, "#scn:slow please")
    until(claude, "working")
    assert "queued: one" in claude.ok("message", "one", "-m", "first in line").stderr
    assert "queued: one" in claude.ok("message", "one", "-m", "second in line").stderr
    claude.server.release("go")
    eventually(lambda: claude.heard() == ["#scn:slow please", "first in line", "second in line"])


def test_a_permission_dialog_is_a_reason_to_wait_and_can_be_answered(claude: Claude) -> None:
    claude.server.register("tool", {"shell": "echo made > made.txt"}, {"text": "made it"})
    made(claude, "#scn:tool please")
    row = until(claude, "waiting")
    assert row["reason"] == "permission" and row["last_line"] == "Bash: echo made > made.txt"
    refused = claude.fails(7, "message", "one", "-m", "hello?")
    assert "muster answer one yes" in refused.stderr
    claude.ok("answer", "one", "yes")
    until(claude, "ready")
    assert (Path(str(row["workdir"])) / "made.txt").read_text() == "made\n"
    assert claude.heard() == ["#scn:tool please"]


def test_a_permission_that_is_denied_ends_the_turn(claude: Claude) -> None:
    claude.server.register("tool", {"shell": "echo made > made.txt"}, {"text": "as you like"})
    made(claude, "#scn:tool please")
    row = until(claude, "waiting")
    claude.ok("answer", "one", "no")
    row = until(claude, "ready")
    assert row["reason"] == "interrupted"
    assert not (Path(str(row["workdir"])) / "made.txt").exists()


def test_a_tool_that_was_allowed_is_work_while_it_runs(claude: Claude) -> None:
    claude.server.register("tool", {"shell": "echo > began; while [ ! -e go ]; do sleep 0.1; done"}, {"text": "gone"})
    made(claude, "#scn:tool please")
    row = until(claude, "waiting")
    claude.ok("answer", "one", "yes")
    assert until(claude, "working")["reason"] is None
    assert "busy again" in claude.ok("explain", "one").stdout
    (Path(str(row["workdir"])) / "go").touch()
    assert until(claude, "ready")["last_line"] == "gone"


def test_a_turn_that_was_interrupted_is_over_and_what_it_left_in_the_box_is_not_sent(claude: Claude) -> None:
    claude.server.register("slow", {"text": "never said", "hold": "never"})
    made(claude, "#scn:slow please")
    row = until(claude, "working")
    eventually(lambda: claude.server.turns())
    claude.tmux("send-keys", "-t", f"={row['id']}:", "Escape")
    assert until(claude, "ready")["reason"] == "interrupted"
    assert "delivered: one" in claude.ok("message", "one", "-m", "something else").stderr
    eventually(lambda: claude.heard()[-1] == "something else")
    assert claude.heard() == ["something else"], "what was interrupted came back into the box, and was not sent again"
    claude.server.release("never")


def test_a_policy_allows_and_denies_without_a_dialog(claude: Claude) -> None:
    path = claude.home / ".config" / "muster" / "config.toml"
    path.parent.mkdir(parents=True)
    path.write_text('[permissions]\nallow = ["Bash(touch *)"]\ndeny = ["Bash(rm *)"]\n')
    claude.server.register("tools", {"shell": "touch allowed.txt"}, {"shell": "rm README"}, {"text": "both asked"})
    made(claude, "#scn:tools please", "--permissions", "policy")
    folder = Path(str(until(claude, "ready")["workdir"]))
    assert (folder / "allowed.txt").exists() and (folder / "README").exists()
    kinds = [event["kind"] for event in claude.ok("events", "one", "--json").json["events"]]
    assert "permission" not in kinds and kinds.count("tool") == 2
    claude.server.register("other", {"shell": "echo > third.txt"}, {"text": "not asked for"})
    claude.ok("message", "one", "-m", "#scn:other please")
    assert until(claude, "waiting")["reason"] == "permission", "what no rule names is asked"


def test_it_asks_unless_the_user_chose_another_mode(claude: Claude) -> None:
    """Newer versions decide by themselves where neither the user nor muster says otherwise."""

    def mode(name: str) -> dict[str, object]:
        claude.ok("create", name, "claude", "--no-connect", "-m", "hello")
        claude.ok("wait", name, "--until", "ready", "--timeout", "60s")
        folder = claude.muster_home / "agents" / str(claude.agents()[name]["id"])
        found: dict[str, object] = json.loads((folder / "client" / "settings.json").read_text())["permissions"]
        return found

    assert mode("one") == {"disableAutoMode": "disable", "defaultMode": "default"}
    (claude.home / ".claude" / "settings.json").write_text('{"permissions": {"defaultMode": "acceptEdits"}}')
    assert "defaultMode" not in mode("two")
    assert "accept edits on" in claude.ok("capture", "two").stdout


def test_a_policy_without_rules_is_refused(claude: Claude) -> None:
    refused = claude.fails(2, "create", "one", "claude", "--permissions", "policy", "--no-connect", "-m", "x")
    assert "[permissions] allows and denies nothing" in refused.stderr


def test_a_failed_turn_is_told(claude: Claude) -> None:
    claude.server.register("bad", {"error": 400, "message": "no good"})
    made(claude, "#scn:bad please")
    row = until(claude, "ready")
    assert row["reason"] == "failed turn" and "no good" in str(row["last_line"])
    assert "'error'" in claude.ok("explain", "one").stdout


def test_the_conversation_goes_on_after_a_stop(claude: Claude) -> None:
    made(claude, "remember this")
    until(claude, "ready")
    claude.ok("stop", "one")
    claude.ok("start", "one")
    until(claude, "ready")
    claude.ok("message", "one", "-m", "and this")
    until(claude, "ready")
    sessions = {request.session for request in claude.server.turns()}
    assert len(sessions) == 1 and claude.heard() == ["remember this", "and this"]
    roles = [entry["role"] for entry in claude.ok("transcript", "one", "--json").json["entries"]]
    assert roles == ["user", "assistant", "user", "assistant"]


def test_tokens_are_counted_once_and_the_transcript_outlives_the_agent(claude: Claude) -> None:
    usage = {"input": 100, "output": 20, "cache_read": 5, "cache_write": 7}
    claude.server.register("dear", {"text": "words", "usage": usage})
    made(claude, "#scn:dear please")
    until(claude, "ready")
    eventually(lambda: claude.agents()["one"]["tokens"] == 132)
    claude.ok("destroy", "one")
    entries = claude.ok("transcript", "one", "--json").json["entries"]
    assert [(entry["role"], entry["text"]) for entry in entries] == [
        ("user", "#scn:dear please"),
        ("assistant", "words"),
    ]
    assert entries[1]["usage"] == {
        "input_tokens": 100,
        "output_tokens": 20,
        "cache_read_tokens": 5,
        "cache_write_tokens": 7,
    }


def test_tokens_are_counted_in_the_middle_of_a_turn(claude: Claude) -> None:
    call = {"name": "Bash", "input": {"command": "while [ ! -e go ]; do sleep 0.1; done"}}
    claude.server.register("long", {"tools": [call], "usage": {"input": 100, "output": 20}}, {"text": "at last"})
    made(claude, "#scn:long please", "--permissions", "bypass")
    row = eventually(lambda: (row := claude.agents()["one"])["tokens"] == 120 and row)
    assert row["state"] == "working"
    Path(row["workdir"], "go").touch()
    until(claude, "ready")


def test_nothing_that_a_client_may_have_written_breaks_the_translation() -> None:
    """From made-up lines: what a damaged or hostile transcript could hold."""
    odd = [None, 3, "x", [], {}, {"type": "text"}, {"type": "tool_use"}, {"type": "tool_result", "tool_use_id": 7}]
    lines = [
        {"type": kind, "timestamp": at, "message": {"content": odd}}
        for kind in ("user", "assistant", 7)
        for at in (None, "x", 3)
    ]
    lines += [{}, {"message": 3}, {"message": {"content": 3}}, {"type": "queue-operation", "operation": "enqueue"}]
    assert all(isinstance(entry["role"], str) for entry in translate(json.loads(json.dumps(lines))))


def test_only_what_was_said_is_in_the_transcript() -> None:
    """Claude Code 2.1.326 writes down its requests too, in lines of another type."""
    kinds = ("user", "api-request-blob", "assistant")
    lines = [{"type": kind, "timestamp": f"{n}", "message": {"content": kind}} for n, kind in enumerate(kinds)]
    assert [entry["role"] for entry in translate(lines)] == ["user", "assistant"]


def test_a_first_message_is_never_an_option_or_a_command_of_the_client(claude: Claude) -> None:
    for name, text in (("one", "--version is what I want to know"), ("two", "/help me")):
        claude.ok("create", name, "claude", "--no-connect", "-m", text)
        claude.ok("wait", name, "--until", "ready", "--timeout", "60s")
    assert claude.each_heard() == [["Message: --version is what I want to know"], ["Message: /help me"]]


def test_a_clone_goes_on_with_the_conversation(claude: Claude) -> None:
    made(claude, "remember this")
    until(claude, "ready")
    claude.ok("clone", "one", "two", "-m", "what do you remember?")
    claude.ok("wait", "two", "--until", "ready", "--timeout", "60s")
    assert claude.each_heard() == [["remember this"], ["remember this", "what do you remember?"]]
    claude.ok("message", "one", "-m", "only you")
    until(claude, "ready")
    assert claude.each_heard()[0] == ["remember this", "only you"]
    said = [entry["text"] for entry in claude.ok("transcript", "two", "--json").json["entries"]]
    assert said == ["remember this", "remember this", "what do you remember?", "what do you remember?"]


# A machine on which the client was never started


def kept(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_it_starts_without_a_dialog_where_it_never_ran(claude: Claude) -> None:
    shutil.rmtree(claude.home / ".claude")
    (claude.home / ".claude.json").unlink()
    made(claude, "hello there")
    until(claude, "ready")
    assert claude.heard() == ["hello there"]
    assert not (claude.home / ".claude.json").exists() and not (claude.home / ".claude").exists()
    claude.server.register("tool", {"shell": "echo made > made.txt"}, {"text": "made it"})
    claude.ok("create", "two", "claude", "--permissions", "bypass", "--no-connect", "-m", "#scn:tool please")
    claude.ok("wait", "two", "--until", "ready", "--timeout", "60s")
    assert (Path(str(claude.agents()["two"]["workdir"])) / "made.txt").exists()


def test_what_the_user_has_is_in_effect_and_stays_as_it_is(claude: Claude) -> None:
    """Instructions, a slash command, a hook and an MCP server: of the user, and in the user's own files."""
    own = claude.home / ".claude"
    (own / "CLAUDE.md").write_text("The password is swordfish.\n")
    (own / "commands").mkdir()
    (own / "commands" / "greet.md").write_text("Say hello to $ARGUMENTS\n")
    told = claude.home / "told"
    settings = {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": f"echo stop >>{told}"}]}]}}
    (own / "settings.json").write_text(json.dumps(settings))
    state = json.loads((claude.home / ".claude.json").read_text())
    server = {"command": "sh", "args": ["-c", f"echo began >>{claude.home}/mcp; cat >/dev/null"]}
    state |= {"projects": {}, "mcpServers": {"mine": server}}
    (claude.home / ".claude.json").write_text(json.dumps(state, indent=2))
    before = {**kept(own), "state": (claude.home / ".claude.json").read_bytes()}
    claude.server.watch = ["swordfish"]
    made(claude, "hello there")
    until(claude, "ready")
    claude.ok("message", "one", "--raw", "-m", "/greet Ann")
    eventually(lambda: "Say hello to Ann" in claude.heard()[-1])
    eventually(lambda: told.exists() and told.read_text() == "stop\nstop\n")
    assert claude.server.turns()[0].noticed == ["swordfish"]
    assert (claude.home / "mcp").exists()
    after = {**kept(own), "state": (claude.home / ".claude.json").read_bytes()}
    grown = {name for name in after if name.startswith("projects/")}
    assert {name: after[name] for name in after.keys() - grown} == before


def login(token: str, lasts: float = 86400) -> str:
    """A made-up login, as the client writes it down."""
    until = int((time.time() + lasts) * 1000)
    told = {"accessToken": token, "refreshToken": f"{token}-refresh", "expiresAt": until, "subscriptionType": "max"}
    return json.dumps({"claudeAiOauth": {**told, "scopes": ["user:inference", "user:profile"]}})


def test_agents_share_one_login_in_place_and_take_up_what_another_refreshed(claude: Claude) -> None:
    """No token service can be reached here: the refreshed login is put into the file as another client would do it."""
    del claude.env["ANTHROPIC_API_KEY"]
    file = claude.home / ".claude" / ".credentials.json"
    file.write_text(login("first-token"))
    claude.server.watch = ["first-token", "second-token"]
    for name in ("one", "two"):
        claude.ok("create", name, "claude", "--no-connect", "-m", f"hello {name}")
        claude.ok("wait", name, "--until", "ready", "--timeout", "60s")
    assert {tuple(request.noticed) for request in claude.server.turns()} == {("first-token",)}
    file.write_text(login("second-token"))
    claude.server.refused = ["first-token"]
    before = file.read_bytes()
    for name in ("one", "two"):
        claude.ok("message", name, "-m", f"again {name}")
        claude.ok("wait", name, "--until", "ready", "--timeout", "60s")
    answered = [request.noticed for request in claude.server.turns() if request.status == 200][2:]
    assert answered == [["second-token"], ["second-token"]]
    assert claude.each_heard() == [["hello one", "again one"], ["hello two", "again two"]]
    assert file.read_bytes() == before
    copies = [path for path in claude.muster_home.rglob(".credentials.json") if not path.is_symlink()]
    assert copies == []


def test_agents_that_renew_one_login_at_the_same_time_do_not_log_each_other_out(claude: Claude) -> None:
    """The login has run out; its refresh token counts once, and whoever uses it again is logged out."""
    del claude.env["ANTHROPIC_API_KEY"]
    file = claude.home / ".claude" / ".credentials.json"
    file.write_text(login("old", lasts=-60))
    names = ["one", "two", "three"]
    claude.server.watch = ["Bearer old", "Bearer access-"]
    with TokenService(claude.folder, "old-refresh", claude.offline.path) as service:
        claude.env |= service.env
        for name in names:
            claude.ok("create", name, "claude", "--no-connect", "-m", f"hello {name}")
        claude.ok("wait", *names, "--until", "ready", "--timeout", "120s")
        kept = json.loads(file.read_text())["claudeAiOauth"]
        assert service.refused == [] and service.renewed
        assert (kept["accessToken"], kept["refreshToken"]) == (service.renewed[-1], service.valid)
    assert sorted(claude.each_heard()) == sorted([f"hello {name}"] for name in names)
    assert {tuple(request.noticed) for request in claude.server.turns()} == {("Bearer access-",)}


def test_a_limit_may_end_in_the_next_year() -> None:
    said, end = (datetime.fromisoformat(f"{day}+00:00").timestamp() for day in ("2026-12-30T04:20", "2027-01-02T00:00"))
    assert resets("You've hit your weekly limit · resets Jan 2, 12am (UTC)", said) == end


@pytest.mark.parametrize(
    ("text", "then"),
    [
        ("You've hit your limit · resets 6:20am (UTC)", "2026-11-16T06:20:00+00:00"),
        ("You've hit your limit · resets 3am (UTC)", "2026-11-17T03:00:00+00:00"),
        ("You've hit your weekly limit · resets Nov 20, 3pm (UTC)", "2026-11-20T15:00:00+00:00"),
        ("You've hit your weekly limit · resets Jan 2, 12am (UTC)", ""),
        ("You've hit your weekly limit · resets Nov 16, 4:20am (UTC)", "2026-11-16T04:20:00+00:00"),
        ("You've hit your limit · resets 7am (Europe/Berlin)", "2026-11-16T06:00:00+00:00"),
        ("You've hit your limit · resets 25pm (UTC)", ""),
        ("You've hit your limit · resets Feb 31, 3pm (UTC)", ""),
        ("You've hit your limit · resets 3pm (../../etc/passwd)", ""),
        ("You've hit your limit · resets 3pm (No/Where)", ""),
        ("come back later", ""),
    ],
)
def test_a_limit_names_its_end(text: str, then: str) -> None:
    """From the words of the client: its other forms cannot be brought about here."""
    said = datetime.fromisoformat("2026-11-16T04:20:17+00:00").timestamp()
    assert resets(text, said) == (datetime.fromisoformat(then).timestamp() if then else None)


@pytest.mark.parametrize("late", [0, 7, 59, 300])
def test_a_limit_that_ends_in_the_minute_in_which_it_is_told_of_does_not_last_until_tomorrow(late: int) -> None:
    end = datetime.fromisoformat("2026-11-16T23:33:00+00:00").timestamp()
    assert resets("You've hit your limit · resets 11:33pm (UTC)", end + late) == end
    assert resets("You've hit your limit · resets Nov 16, 11:33pm (UTC)", end + late) == end
    assert resets("You've hit your limit · resets 11:33pm (UTC)", end + 3600) == end + 86400


def test_the_status_file_of_the_agent_s_own_session_counts() -> None:
    told = {"sessionId": "s", "status": "shell", "statusUpdatedAt": 1_790_000_000_500, "waitingFor": "dialog open"}
    newer = {"sessionId": "other", "status": "busy", "statusUpdatedAt": 1_790_000_001_000}
    assert status([newer, told], "s") == ClientStatus(1_790_000_000.5, "background", True)
    assert status([newer, told], "of-none") == ClientStatus(1_790_000_001.0, "busy", False)
    assert status([], "s") is None
    for odd in ("x", [], None, float("nan"), 10**400, -1):
        assert status([{"status": "idle", "statusUpdatedAt": odd}], "s") == ClientStatus(0.0, "idle", False)
