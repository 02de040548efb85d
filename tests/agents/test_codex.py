"""Codex itself, in its real terminal, against a scripted model: states, receipts, dialogs, transcript, usage, resuming."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from muster.agents.codex import translate

from ..conftest import World, eventually
from ..support import clients
from .conftest import Codex

#: A command for which it asks: it says that it wants out of its sandbox.
OUT = {"sandbox_permissions": "require_escalated", "justification": "may I?"}


def exec_command(command: str, **more: object) -> dict[str, Any]:
    return {"tools": [{"name": "exec_command", "input": {"cmd": command, **more}}]}


def asks(command: str) -> dict[str, Any]:
    return exec_command(command, **OUT)


def own_hook(config: Path, command: str) -> str:
    """A hook of the user, who has reviewed it."""
    hook = {"async": False, "command": command, "timeout": 20, "type": "command"}
    identity = json.dumps({"event_name": "stop", "hooks": [hook]}, separators=(",", ":"))
    return (
        f"[[hooks.Stop]]\n[[hooks.Stop.hooks]]\ntype = 'command'\ncommand = '{command}'\ntimeout = 20\n"
        f"[hooks.state.'{config}:stop:0:0']\ntrusted_hash = 'sha256:{hashlib.sha256(identity.encode()).hexdigest()}'\n"
    )


def kinds(codex: Codex) -> list[str]:
    return [event["kind"] for event in codex.ok("events", "one", "--json").json["events"]]


def keys(codex: Codex, *names: str) -> None:
    codex.tmux("send-keys", "-t", f"={codex.agents()['one']['id']}:", *names)


def test_the_first_message_is_one_turn_and_what_the_user_has_set_up_is_used_and_stays(codex: Codex) -> None:
    home, told = codex.home / ".codex", codex.folder / "told"
    config = home / "config.toml"
    notify = f"notify = {json.dumps(clients.appends(told))}\n"
    config.write_text(notify + config.read_text() + own_hook(config, f"touch {codex.folder}/hooked"))
    (home / "AGENTS.md").write_text("be brief\n")
    before = config.read_bytes()
    codex.made("hello there")
    row = codex.until("ready")
    guide, text = codex.heard()
    assert "be brief" in guide and text == "hello there"
    assert row["last_line"] == "hello there" and row["reason"] is None
    assert [kind for kind in kinds(codex) if kind in ("prompt", "turn-end")] == ["prompt", "turn-end"], (
        "a title is none"
    )
    assert config.read_bytes() == before and (home / "AGENTS.md").read_text() == "be brief\n"
    assert (codex.folder / "hooked").exists()
    eventually(lambda: "hello there" in [end["last-assistant-message"] for end in clients.appended(told)])


def test_a_user_without_any_setting_is_asked_nothing(codex: Codex) -> None:
    config = codex.home / ".codex" / "config.toml"
    config.unlink()
    provider = f'{{name="Scripted",base_url="{codex.server.url}/v1",env_key="SCRIPTED_API_KEY",wire_api="responses"}}'
    given = ["-c", "model=scripted-1", "-c", "model_provider=scripted", "-c", f"model_providers.scripted={provider}"]
    # What a repository brings along is not run because an agent works on it.
    (codex.repo / ".codex").mkdir()
    hook = {"type": "command", "command": f"touch {codex.folder}/hooked"}
    (codex.repo / ".codex" / "hooks.json").write_text(json.dumps({"hooks": {"Stop": [{"hooks": [hook]}]}}))
    codex.git("add", "-A")
    codex.git("commit", "-qm", "hooks")
    codex.ok("create", "one", "codex", "--no-connect", "-m", "hello there", "--", *given)
    assert codex.until("ready")["last_line"] == "hello there"
    assert codex.heard() == ["hello there"]
    assert not (codex.folder / "hooked").exists()
    assert config.read_text() == "[tui]\nscreen_reader_detection_done = true\n", "its own note; nobody's trust is in it"


DIALOG = """#!/bin/sh
case $* in *--version*) exit 2 ;; esac
stty -echo -icanon
printf 'Hooks need review\\n  esc skip\\n'
head -c 1 >/dev/null # and nothing comes of it
head -c 1 >/dev/null
printf '\\033c\\033]2;Ready\\007> '
exec sleep 1000
"""


def test_a_key_that_the_client_threw_away_is_pressed_again(codex: Codex) -> None:
    """At its start Codex forgets what was typed before it reads; its dialog would stay for ever."""
    (codex.bin / "codex").write_text(DIALOG)
    (codex.bin / "codex").chmod(0o755)
    codex.ok("create", "one", "codex", "--no-connect")
    codex.until("ready")


MIGRATES = """#!/bin/sh
case $* in *--version*) exec echo codex-cli {version} ;; esac
if [ ! -e "$HOME/.codex/state_{version}.sqlite" ]; then
    mkdir "$HOME/.codex/migrating" || exit 1 # another one is at it
    sleep 1
    touch "$HOME/.codex/state_{version}.sqlite"
    rmdir "$HOME/.codex/migrating"
fi
printf '\\033]2;Ready\\007> '
exec sleep 1000
"""


def test_one_of_several_first_starts_migrates_alone_and_so_does_one_of_a_new_version(codex: Codex) -> None:
    """Codex has no lock of its own around that: of six that start for the first time most would exit."""
    for version in ("1.0.0", "1.1.0"):
        (codex.bin / "codex").write_text(MIGRATES.replace("{version}", version))
        (codex.bin / "codex").chmod(0o755)
        name = f"v{version.replace('.', '')}"
        codex.ok("create", name, "codex", "--no-connect", "--count", "4")
        names = [f"{name}-{number}" for number in range(1, 5)]
        codex.run("wait", *names, "--until", "ready", "--timeout", "100s")
        assert [codex.state(one) for one in names] == ["ready"] * 4


def test_messages_are_delivered_once_and_whole(codex: Codex) -> None:
    codex.ok("create", "one", "codex", "--no-connect")
    assert codex.until("ready")["reason"] is None
    assert kinds(codex) == ["started", "ready"], "before its first prompt it has no conversation"
    texts = [
        'two lines\nwith "quotes", $HOME, `ticks` and \\n',
        "ünïcode 🎉",
        "/quit is no command here",
        "!ls neither",
        "look at @README",
        "the end is /quit",
        "the end is \\",
        "the end is (",
        "the end is 🎉",
        "exit",
        ":q",
        "quit",
        "x" * 20_000,
    ]
    for text in texts:
        result = codex.run("message", "one", "-m", text)
        assert (result.code, "delivered: one" in result.stderr) == (0, True), result.stderr
        codex.until("ready")
    wanted = [f"Message: {text}" if text[0] in "/!" or text in ("exit", ":q", "quit") else text for text in texts]
    assert [text.rstrip() for text in codex.heard()] == wanted


def test_messages_to_one_that_works_steer_it_and_each_arrives_once(codex: Codex) -> None:
    # Its model is silent: behind a tool that takes more than ten seconds Codex goes on, and takes what is queued along.
    codex.server.register("slow", {"text": "at last", "hold": "go"})
    codex.made("#scn:slow please")
    codex.until("working")
    eventually(lambda: codex.server.turns())
    long = "y" * 20_000
    assert "queued: one" in codex.ok("message", "one", "-m", 'first\n"in" line').stderr
    assert "queued: one" in codex.ok("message", "one", "-m", long).stderr
    codex.server.release("go")
    eventually(lambda: len(codex.heard()) == 3)
    codex.until("ready")
    assert codex.heard() == ["#scn:slow please", 'first\n"in" line', long]
    assert kinds(codex).count("turn-end") == 1


def test_a_dialog_is_a_reason_to_wait_and_what_was_allowed_is_work(codex: Codex) -> None:
    codex.server.register("tool", asks("echo > began; while [ ! -e go ]; do sleep 0.1; done"), {"text": "made it"})
    codex.made("#scn:tool please")
    row = codex.until("waiting")
    assert row["reason"] == "permission" and "Bash: may I?: echo > began" in row["last_line"]
    assert "muster answer one yes" in codex.fails(7, "message", "one", "-m", "hello?").stderr
    codex.ok("answer", "one", "yes")
    assert codex.until("working")["reason"] is None
    folder = Path(row["workdir"])
    eventually((folder / "began").exists)
    (folder / "go").touch()
    assert codex.until("ready")["last_line"] == "made it"
    assert codex.heard() == ["#scn:tool please"]


def test_a_question_is_a_reason_to_wait_and_is_answered_by_an_entry_or_in_one_s_own_words(codex: Codex) -> None:
    entries = [{"label": "Red", "description": "warm"}, {"label": "Blue", "description": "cold"}]
    question = {"id": "colour", "header": "Colour", "question": "Which colour?", "options": entries}
    call = {"name": "request_user_input", "input": {"questions": [question]}}
    codex.server.register("ask", {"tools": [call]}, {"text": "thanks"})
    feature = "features.default_mode_request_user_input=true"
    codex.ok("create", "one", "codex", "--no-connect", "-m", "#scn:ask please", "--", "-c", feature)
    for answer, told in (
        ("blue", '["Blue"]'),
        ("green, with $dots", '["None of the above","user_note: green, with $dots"]'),
    ):
        row = codex.until("waiting")
        assert (row["reason"], row["last_line"]) == ("question", "Which colour?")
        assert "muster answer one TEXT" in codex.fails(7, "message", "one", "-m", "hello?").stderr
        codex.ok("answer", "one", answer)
        assert codex.until("ready")["last_line"] == "thanks"
        assert f'"answers":{told}' in codex.server.turns()[-1].tool_results[-1]
        codex.ok("message", "one", "-m", "#scn:ask again please")


def test_a_permission_that_is_denied_ends_the_turn(codex: Codex) -> None:
    codex.server.register("tool", asks("echo made > made.txt"), {"text": "as you like"})
    codex.made("#scn:tool please")
    codex.until("waiting")
    codex.ok("answer", "one", "no")
    row = codex.until("ready")
    assert row["reason"] == "interrupted"
    assert not (Path(row["workdir"]) / "made.txt").exists()
    assert "delivered: one" in codex.ok("message", "one", "-m", "something else").stderr


def test_with_bypass_nothing_is_asked(codex: Codex) -> None:
    outside = codex.home / "made.txt"
    codex.server.register("tool", {"shell": f"echo made > {outside}"}, {"text": "made it"})
    codex.made("#scn:tool please", "--permissions", "bypass")
    codex.until("ready")
    assert outside.read_text() == "made\n" and "permission" not in kinds(codex)


def test_a_policy_allows_and_denies_without_a_dialog_and_leaves_the_rest_to_people(codex: Codex) -> None:
    path = codex.home / ".config" / "muster" / "config.toml"
    path.parent.mkdir(parents=True)
    path.write_text('[permissions]\nallow = ["Bash(touch *)"]\ndeny = ["Bash(rm *)"]\n')
    calls = [
        {"shell": "touch plain.txt"},
        asks("touch allowed.txt"),
        {"shell": "cd . && rm README"},
        {"shell": "echo > unasked.txt"},
        {"shell": "cat README | head -n 1"},
        exec_command("echo > nested.txt", x={"sandbox_permissions": "require_escalated"}),
        exec_command("touch other.txt", shell="/bin/bash"),
        asks("touch a.txt; echo > b.txt"),
    ]
    codex.server.register("tools", *calls, {"text": "all asked"})
    codex.made("#scn:tools please", "--permissions", "policy")
    row = codex.until("waiting")
    assert row["reason"] == "permission" and "touch a.txt; echo" in row["last_line"], "two commands are no plain one"
    folder = Path(row["workdir"])
    assert (folder / "plain.txt").exists() and (folder / "allowed.txt").exists() and (folder / "README").exists()
    assert not (folder / "unasked.txt").exists()
    assert not (folder / "nested.txt").exists(), "only the call itself can ask for its dialog"
    assert not (folder / "other.txt").exists(), "no rule is about another shell"
    assert kinds(codex).count("permission") == 1
    results = codex.server.turns()[-1].tool_results
    assert "Run it again with sandbox_permissions" in results[3] and "hello" in results[4]
    codex.ok("answer", "one", "yes")
    codex.until("ready")
    assert (folder / "b.txt").exists()


def test_an_interrupted_turn_is_over(codex: Codex) -> None:
    codex.server.register("slow", {"text": "never said", "hold": "never"})
    codex.made("#scn:slow please")
    codex.until("working")
    eventually(lambda: codex.server.turns())
    keys(codex, "Escape")
    assert codex.until("ready")["reason"] == "interrupted"
    keys(codex, "still", "Space", "there")
    assert "delivered: one" in codex.ok("message", "one", "-m", "something else").stderr
    eventually(lambda: codex.heard() == ["#scn:slow please", "something else"])
    codex.server.release("never")


def test_a_failed_turn_is_told_and_so_is_a_limit_and_one_that_is_tried_again_is_work(codex: Codex) -> None:
    codex.server.register("limit", {"error": 429, "kind": "usage_limit_reached", "message": "enough"})
    codex.server.register("bad", {"error": 400, "message": "no good"})
    codex.server.register("over", {"error": 503, "times": 10, "text": "after all"})
    codex.made("#scn:bad please")
    row = codex.until("ready")
    assert row["reason"] == "failed turn" and "no good" in row["last_line"]
    assert "'error'" in codex.ok("explain", "one").stdout
    entries = codex.ok("transcript", "one", "--json").json["entries"]
    assert [entry["role"] for entry in entries] == ["user", "error"] and "no good" in entries[1]["text"]
    codex.ok("message", "one", "-m", "#scn:limit please")
    row = codex.until("waiting")
    assert row["reason"] == "limit" and "usage limit" in row["last_line"]
    codex.ok("message", "one", "-m", "#scn:over please")
    eventually(lambda: (codex.agents()["one"]["state"], codex.agents()["one"]["reason"]) == ("working", "retry"))
    assert "Reconnecting" in codex.ok("explain", "one").stdout
    eventually(lambda: codex.agents()["one"]["last_line"] == "after all")
    assert codex.until("ready")["reason"] is None


def test_the_conversation_goes_on_after_a_stop_and_after_a_kill(codex: Codex) -> None:
    codex.made("remember this")
    codex.until("ready")
    codex.ok("stop", "one")
    # Another conversation in the same folder is newer, and not this one.
    codex.ok("create", "two", "codex", "--mode", "in-place", "--no-connect", "-m", "nothing of mine")
    codex.ok("wait", "two", "--until", "ready", "--timeout", "60s")
    codex.ok("start", "one")
    codex.until("ready")
    codex.ok("message", "one", "-m", "and this")
    row = codex.until("ready")
    pid = int((codex.muster_home / "agents" / row["id"] / "client" / "pid").read_text())
    os.kill(pid, signal.SIGKILL)
    codex.until("failed")
    codex.ok("start", "one")
    codex.until("ready")
    codex.ok("message", "one", "-m", "and that")
    codex.until("ready")
    assert codex.each_heard() == [["remember this", "and this", "and that"], ["nothing of mine"]]
    roles = [entry["role"] for entry in codex.ok("transcript", "one", "--json").json["entries"]]
    assert roles == ["user", "assistant"] * 3


def test_tokens_are_counted_once_and_the_transcript_outlives_the_agent(codex: Codex) -> None:
    usage = {"input": 100, "output": 20, "cache_read": 5, "cache_write": 7}
    codex.server.register("dear", {"shell": "echo hi", "usage": usage}, {"text": "words", "usage": usage})
    codex.made("#scn:dear please")
    row = codex.until("ready")
    eventually(lambda: codex.agents()["one"]["tokens"] == 264)
    tally = json.loads((codex.muster_home / "agents" / row["id"] / "usage.json").read_text())
    assert tally["models"] == {"scripted-1": {key: tally[key] for key in tally if key != "models"}}
    codex.ok("destroy", "one")
    entries = codex.ok("transcript", "one", "--json").json["entries"]
    assert [(entry["role"], entry["text"]) for entry in entries] == [
        ("user", "#scn:dear please"),
        ("tool", "exec_command: echo hi"),
        ("assistant", "words"),
    ]
    assert "hi" in entries[1]["tool"]["output"]
    names = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
    assert [entry["usage"] for entry in entries[1:]] == [dict(zip(names, (100, 20, 5, 7), strict=True))] * 2


def test_tokens_are_counted_in_the_middle_of_a_turn(codex: Codex) -> None:
    usage = {"input": 100, "output": 20}
    codex.server.register(
        "long", {"shell": "while [ ! -e go ]; do sleep 0.1; done", "usage": usage}, {"text": "at last"}
    )
    codex.made("#scn:long please")
    row = eventually(lambda: (row := codex.agents()["one"])["tokens"] == 120 and row)
    assert row["state"] == "working"
    Path(row["workdir"], "go").touch()
    codex.until("ready")


def test_what_a_subagent_does_is_no_turn_and_its_tokens_count(codex: Codex) -> None:
    usage = {"input": 10, "output": 1, "cache_read": 0, "cache_write": 0}
    spawn = {"tools": [{"name": "multi_agent_v1/spawn_agent", "input": {"message": "do #scn:sub"}}]}
    codex.server.register("main", {**spawn, "usage": usage}, {"text": "it has begun", "usage": usage})
    codex.server.register(
        "sub", {"shell": "while [ ! -e go ]; do sleep 0.1; done", "usage": usage}, {"text": "sub", "usage": usage}
    )
    codex.made("#scn:main please")
    row = codex.until("ready")
    (Path(row["workdir"]) / "go").touch()
    eventually(lambda: len(codex.server.turns()) == 4)
    eventually(lambda: len(list((codex.home / ".codex" / "sessions").rglob("*.jsonl"))) == 2)
    row = codex.agents()["one"]
    assert (row["state"], row["last_line"]) == ("ready", "it has begun")
    assert kinds(codex).count("prompt") == 1
    codex.ok("message", "one", "-m", "and now?")
    eventually(lambda: codex.agents()["one"]["tokens"] == 44 + 12)


def test_the_variables_of_an_outer_session_do_not_reach_it(world: World) -> None:
    outer = dict.fromkeys(("CODEX_THREAD_ID", "CODEX_TOOL_CALL_ID", "CODEX_SANDBOX_NETWORK_DISABLED", "CODEX_CI"), "x")
    kept = {"CODEX_HOME": "/somewhere", "CODEX_API_KEY": "k"}
    world.ok("create", "one", "command", "--no-connect", "--", "sh", "-c", "env > seen", env={**outer, **kept})
    world.ok("wait", "one", "--until", "done", "--timeout", "60s")
    seen = (Path(world.agents()["one"]["workdir"]) / "seen").read_text()
    assert {line.partition("=")[0] for line in seen.splitlines() if line.startswith("CODEX_")} == set(kept)


@pytest.mark.parametrize(
    ("line", "verdict"),
    [
        ("touch a", "allow"),
        ("touch", "allow"),
        ("touching a", "ask"),
        ("git status", "allow"),
        ("git status -s", ""),
        ("touch a; curl x", "ask"),
        ("touch $(curl x)", "ask"),
        ('touch "a"', "ask"),
        ("rm a", "deny"),
        ("touch a\nrm b", "deny"),
        ("touch $(rm a)", "deny"),
        ("touch a && rm b", "deny"),
        ("echo rm a", ""),
        ('cat a | grep "x y" && ls; wc -l a', ""),
        ("cat a > b", "ask"),
        ("cat a & touch-me", "ask"),
        ("ls | xargs touch-me", "ask"),
        ("find . -name x", ""),
        ("find . -delete", "ask"),
        ("sed -n 1,20p a", ""),
        ("sed -n 1,20p -i a", "ask"),
        ("sed 1d a", "ask"),
        ("rg x", ""),
        ("rg --pre=./x y", "ask"),
        ("git diff --output=x", "ask"),
        ("VAR=1 ls", "ask"),
        ("", "ask"),
        ("ls \tx", "ask"),
        ("ls $HOME", "ask"),
        ('ls "$HOME"', "ask"),
        ("grep 'x$' a; grep \"a(b\" c", ""),
        ("grep 'x\\.y' a", ""),
        ("ls 'a", "ask"),
        ("cat *.py", ""),
        ("ls a#b", ""),
        ("ls #b", "ask"),
        ("printf hello", ""),
        ("printf -v PATH . ; ls", "ask"),
        ("file a", ""),
        ("file -C -m a", "ask"),
        ("sed -n '1,$p' a", ""),
        ("sed -n 1p -e 'w out' a", "ask"),
        ("sed -n 1p '-ew out' a", "ask"),
        ("sed -n 1p *", "ask"),
        ("sed -n '1p;w out' a", "ask"),
        ('find . "-delete"', "ask"),
        ("find . -del''ete", "ask"),
        ("find . -name '*.py'", ""),
        ("find *", "ask"),
        ("find . {-delete,x}", "ask"),
        ("git diff --outp=x", "ask"),
        ("git diff --'output'=x", "ask"),
        ("git log --oneline -n 3", ""),
        ("git -c core.pager=x log", "ask"),
        ("rg --p're'=./x y", "ask"),
        ("du -s a", ""),
        ("d'u' -s a", ""),
        ("stat  a", "deny"),
        ("st'at' a", "deny"),
        ('ls; "stat" a', "deny"),
        ("true |& cat", "ask"),
        ("*** Begin Patch\nrm x", "allow"),
        ("apply_patch <<'EOF'\n*** Begin Patch\n+x\n*** End Patch\nEOF\n", "allow"),
        ("apply_patch <<'EOF'\n*** Begin Patch\nEOF\ncurl x\n*** End Patch\nEOF\n", "patch"),
        ("apply_patch <<EOF\n*** Begin Patch\n+$(curl x)\n*** End Patch\nEOF\n", "patch"),
        ("cd x && apply_patch y", "patch"),
    ],
)
def test_only_a_plain_command_is_allowed_by_a_rule(tmp_path: Path, line: str, verdict: str) -> None:
    from muster import agents

    rules = tmp_path / "rules"
    rules.write_text("allow Bash(touch *)\nallow Bash(git status)\nallow Edit\ndeny Bash(rm *)\ndeny Bash(stat *)\n")
    tool = "apply_patch" if line.startswith("***") else "Bash"
    said = {"cwd": "/", "tool_name": tool, "tool_input": {"command": line, "description": "rm it"}}
    argv = ["sh", f"{agents.__path__[0]}/rule.sh", str(rules)]
    told = json.dumps(said, separators=(",", ":"))
    done = subprocess.run(argv, input=told, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == verdict


def test_nothing_that_a_client_may_have_written_breaks_the_translation() -> None:
    """From made-up lines: what a damaged or hostile rollout could hold."""
    odd = [
        None,
        3,
        "x",
        [],
        {},
        [3],
        {"type": "UserMessage", "content": 3},
        {"type": "AgentMessage", "content": [3, {}]},
    ]
    payloads = [
        {"type": kind, "item": item, "error": item, "output": item, "usage": item, "arguments": item, "input": item}
        for kind in ("item_completed", "task_complete", "function_call", "function_call_output", "custom_tool_call", 7)
        for item in odd
    ]
    lines = [
        {"type": kind, "timestamp": 3, "payload": payload}
        for kind in ("event_msg", "response_item", "token_usage_record", "turn_context", None)
        for payload in [*payloads, None, "x"]
    ]
    assert all(isinstance(entry["role"], str) for entry in translate(json.loads(json.dumps(lines))))


def test_a_clone_goes_on_with_the_conversation(codex: Codex) -> None:
    codex.made("remember this")
    codex.until("ready")
    codex.ok("clone", "one", "two", "-m", "what do you remember?")
    codex.ok("wait", "two", "--until", "ready", "--timeout", "60s")
    assert codex.each_heard() == [["remember this"], ["remember this", "what do you remember?"]]
    codex.ok("message", "one", "-m", "only you")
    codex.until("ready")
    assert codex.each_heard()[0] == ["remember this", "only you"]
    said = [entry["text"] for entry in codex.ok("transcript", "two", "--json").json["entries"]]
    assert said == ["remember this", "remember this", "what do you remember?", "what do you remember?"]


def test_without_any_hook_its_title_counts_and_messages_are_proven_by_its_rollout(codex: Codex) -> None:
    path = codex.home / ".codex" / "config.toml"
    path.write_text(path.read_text().replace("[features]\n", "[features]\nhooks = false\n"))
    codex.server.register("slow", {"text": "done", "hold": "go"})
    codex.ok("create", "one", "codex", "--no-connect")
    codex.until("ready")
    assert "delivered: one" in codex.ok("message", "one", "-m", "#scn:slow please").stderr
    codex.until("working")
    told = codex.ok("explain", "one").stdout
    assert "none seen for this launch; state taken from session file and screen" in told
    codex.server.release("go")
    codex.until("ready")
    codex.server.register("tool", asks("echo made > made.txt"), {"text": "made it"})
    assert "delivered: one" in codex.ok("message", "one", "-m", "#scn:tool please").stderr
    assert codex.until("waiting")["reason"] in ("permission", "dialog")
    assert codex.run("message", "one", "-m", "hello?").code == 7
    assert "prompt" not in [event["kind"] for event in codex.ok("events", "one", "--json").json["events"]]
