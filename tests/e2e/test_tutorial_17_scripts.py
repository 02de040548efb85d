"""Tutorial section 17, Scripts: exit codes, and the document that every verb prints with --json.

Documents are checked against docs/schemas, and then for what the block's words promise.
"""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest

from muster.tutorial import E2eSession, expect

from ..test_json import fits
from .conftest import agents, outside

GREET = """
[[step]]
say = "I will add a greeting."
[[step]]
write = "greet.txt"
text = "hello\\n"
[[step]]
commit = "Add a greeting"
[[step]]
ask = "Shall I also say goodbye?"
[[step]]
say = "You said: {message}"
"""
ASK = '[[step]]\npermission = "rm -rf build"\ntool = "Bash"\n[[step]]\nsay = "Cleaned."\n'


def wait(e2e: E2eSession, name: str, state: str) -> None:
    outside(e2e, "muster", "wait", name, "--until", state, "--timeout", "30s")


def make_made(e2e: E2eSession, name: str = "made") -> None:
    """A command that runs."""
    outside(e2e, "muster", "create", name, "command", "--no-connect", "--", "sleep", "60")
    wait(e2e, name, "working")


def make_greet(e2e: E2eSession) -> None:
    """An agent that has committed a file and asks a question."""
    (e2e.work.parent / "greet.toml").write_text(GREET)
    outside(e2e, "muster", "create", "greet", "replay", "--no-connect", "--", "../greet.toml")
    wait(e2e, "greet", "waiting")


def document(e2e: E2eSession, command: str, verb: str, comment: str | None = None) -> Any:
    """What a command prints: one document and nothing else, as its schema says; and nothing is wrong."""
    result = e2e.run(command, comment=comment)
    expect(result).to_succeed()
    expect(result.stderr).not_to_contain("muster:")
    told = result.json()
    fits(told, verb)
    return told


def git(e2e: E2eSession, *words: str) -> str:
    return outside(e2e, "git", *words).strip()


# Exit codes


def test_an_agent_that_is_not_there_is_exit_code_3(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Exit codes: 0 ok, 1 failed, 2 usage, 3 not found, 4 time is up, 5 refused to protect work, 6 host unreachable, 7 a dialog is open.
    muster explain no-such-agent || echo "exit code $?"
    """)
    make_made(e2e)
    result = e2e.run('muster explain no-such-agent || echo "exit code $?"')
    expect(result.stdout).to_equal("exit code 3\n")
    expect(result.stderr).to_equal("muster: there is no agent no-such-agent\n  agents: made\n")


def test_each_exit_code_means_what_the_tutorial_says(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Exit codes: 0 ok, 1 failed, 2 usage, 3 not found, 4 time is up, 5 refused to protect work, 6 host unreachable, 7 a dialog is open.
    muster explain no-such-agent || echo "exit code $?"
    """)
    make_made(e2e)
    (e2e.work.parent / "ask.toml").write_text(ASK)
    outside(e2e, "muster", "create", "asker", "replay", "--no-connect", "--", "../ask.toml")
    wait(e2e, "asker", "waiting")
    (e2e.home / "bin" / "ssh").write_text("#!/bin/sh\nexit 255\n")
    (e2e.home / "bin" / "ssh").chmod(0o755)
    for command, code in (
        ("muster explain made", 0),
        ("muster answer made yes", 1),
        ("muster explain", 2),
        ("muster explain no-such-agent", 3),
        ("muster wait made --timeout 0.1s", 4),
        ("muster create made command --no-connect -- true", 5),
        ("muster create far@away command --no-connect -- true", 6),
        ("muster message asker -m hello", 7),
    ):
        expect(e2e.run(command)).to_exit_with(code)


def test_a_build_that_ends_well_is_pulled(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Make an agent, wait for it, act on how it ended.
    muster create build command --no-connect -- sh -c 'test -f README'
    if muster wait build --until done --timeout 5m; then muster pull build; else muster capture build; fi
    """)
    expect(e2e.run("muster create build command --no-connect -- sh -c 'test -f README'")).to_succeed()
    result = e2e.run(
        "if muster wait build --until done --timeout 5m; then muster pull build; else muster capture build; fi",
        comment="Wait for it, act on how it ended.",
    )
    expect(result).to_succeed()
    expect(result.stdout).to_be_empty()
    expect(result.stderr).to_match(r"^build is done\nbuild: muster/build is at \w+, 0 commits ahead")


def test_a_build_that_fails_is_looked_at(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Make an agent, wait for it, act on how it ended.
    muster create build command --no-connect -- sh -c 'test -f README'
    if muster wait build --until done --timeout 5m; then muster pull build; else muster capture build; fi
    """)
    e2e.run("muster create build command --no-connect -- sh -c 'echo no README here; test -f MISSING'")
    result = e2e.run(
        "if muster wait build --until done --timeout 5m; then muster pull build; else muster capture build; fi"
    )
    expect(result).to_succeed()
    expect(result.stdout).to_contain("no README here")
    expect(result.stderr).to_contain("build is failed")
    expect(result.stderr).not_to_contain("muster/build is at")


def test_one_name_that_is_wrong_does_not_keep_the_others_from_being_stopped(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Over many agents muster goes on past a failure, reports each, and exits with the worst code.
    muster stop greet no-such-agent || echo "one of them failed: $?"
    """)
    make_greet(e2e)
    result = e2e.run('muster stop greet no-such-agent || echo "one of them failed: $?"')
    expect(result.stdout).to_equal("one of them failed: 3\n")
    expect(result.stderr).to_contain("stopped greet\n")
    expect(result.stderr).to_contain("muster: there is no agent no-such-agent\n  agents: greet\n")
    assert agents(e2e)["greet"]["state"] == "stopped"


def test_an_order_in_which_the_wrong_name_comes_first_changes_nothing(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Over many agents muster goes on past a failure, reports each, and exits with the worst code.
    muster stop greet no-such-agent || echo "one of them failed: $?"
    """)
    make_greet(e2e)
    expect(e2e.run("muster stop no-such-agent greet")).to_exit_with(3)
    assert agents(e2e)["greet"]["state"] == "stopped"


def test_nobody_on_stdin_is_nobody_destroyed(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Nobody is named on stdin: nothing to do, and no error.
    muster list --label run=none --format '{address}' | muster destroy -
    """)
    make_made(e2e)
    result = e2e.run("muster list --label run=none --format '{address}' | muster destroy -")
    expect(result).to_succeed()
    expect(result.stdout).to_be_empty()
    assert set(agents(e2e)) == {"made"}


def test_only_those_on_stdin_are_destroyed(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Nobody is named on stdin: nothing to do, and no error.
    muster list --label run=none --format '{address}' | muster destroy -
    """)
    make_made(e2e)
    make_made(e2e, "other")
    outside(e2e, "muster", "label", "made", "--set", "run=none")
    expect(e2e.run("muster list --label run=none --format '{address}' | muster destroy -")).to_succeed()
    assert set(agents(e2e)) == {"other"}


def test_without_a_name_and_without_stdin_nobody_is_destroyed(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Nobody is named on stdin: nothing to do, and no error.
    muster list --label run=none --format '{address}' | muster destroy -
    """)
    make_made(e2e)
    result = e2e.run("muster destroy")
    expect(result).to_exit_with(2)
    expect(result.stderr).to_contain("no agent was named")
    expect(result.stderr).to_contain("name agents, or use globs, -l KEY=VALUE, --all, or - for stdin")
    assert set(agents(e2e)) == {"made"}


# list


def test_list_json_has_all_that_is_known_of_all_agents(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Every verb has --json: one document on stdout, described in docs/json.md. Here all that is known of all agents.
    muster list --json
    """)
    make_made(e2e)
    make_greet(e2e)
    told = document(e2e, "muster list --json", "list", "Here all that is known of all agents.")
    made, greet = told["agents"]
    assert (made["name"], made["state"], made["type"], made["branch"]) == ("made", "working", "command", "muster/made")
    assert (greet["name"], greet["state"], greet["reason"]) == ("greet", "waiting", "question")
    assert made["repo"] == str(e2e.work) and made["base"] == git(e2e, "rev-parse", "HEAD")
    assert made["cost_usd"] is None, "what is not known is null, never 0"


def test_list_json_of_an_empty_fleet_is_a_document_too(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Every verb has --json: one document on stdout, described in docs/json.md. Here all that is known of all agents.
    muster list --json
    """)
    assert document(e2e, "muster list --json", "list")["agents"] == []


def test_verbose_leaves_the_document_whole(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # In a log you want the inner details of errors too. --verbose puts them on stderr; the document stays whole.
    muster list --verbose --json | python3 -c 'import json, sys; print(len(json.load(sys.stdin)["agents"]), "agents")'
    """)
    make_made(e2e)
    result = e2e.run(
        """muster list --verbose --json | python3 -c 'import json, sys; print(len(json.load(sys.stdin)["agents"]), "agents")'"""
    )
    expect(result).to_succeed()
    expect(result.stdout).to_equal("1 agents\n")


def test_the_inner_details_of_an_error_are_on_stderr_and_only_with_verbose(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # In a log you want the inner details of errors too. --verbose puts them on stderr; the document stays whole.
    muster list --verbose --json | python3 -c 'import json, sys; print(len(json.load(sys.stdin)["agents"]), "agents")'
    """)
    plain = e2e.run("MUSTER_LIST_FORMT=x muster list --json")
    wordy = e2e.run("MUSTER_LIST_FORMT=x muster list --verbose --json")
    for result in (plain, wordy):
        expect(result).to_exit_with(2)
        assert result.json()["error"]["code"] == 2
    expect(plain.stderr).not_to_contain("Traceback")
    expect(wordy.stderr).to_contain("Traceback (most recent call last)")


def test_watch_prints_a_line_for_each_change(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # With --watch there is one JSON object a line, for each change.
    muster list --watch --json
    """)
    make_made(e2e)
    watch = e2e.start("muster list --watch --json", ready_when='"working"')
    e2e.run("muster stop made --grace 0", comment="Something changes.")
    expect(watch).to_print('"stopped"')
    e2e.run("muster destroy made", comment="It is gone.")
    expect(watch).to_print('"state": null')
    lines = [json.loads(line) for line in watch.stop().stdout.splitlines()]
    for line in lines:
        fits(line, "list", "#/$defs/line")
    assert {line["address"] for line in lines} == {"made"}
    # A change of the reason is a line too: "is being destroyed", when the watch sees it.
    assert [state for state, _ in itertools.groupby(line["state"] for line in lines)] == ["working", "stopped", None]


def test_watch_goes_on_when_nothing_changes(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # With --watch there is one JSON object a line, for each change.
    muster list --watch --json
    """)
    make_made(e2e)
    result = e2e.run("muster list --watch --json", timeout=2)
    expect(result).to_time_out()
    assert len(result.stdout.splitlines()) == 1


# Errors


def test_an_error_is_a_document_with_message_hint_and_code(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # An error is a document too: {"error": {"message", "hint", "code"}}.
    muster explain no-such-agent --json --verbose || true
    """)
    make_made(e2e)
    told = {"error": {"message": "there is no agent no-such-agent", "hint": "agents: made", "code": 3}}
    result = e2e.run("muster explain no-such-agent --json --verbose || true", comment="An error is a document too.")
    expect(result).to_succeed()
    assert result.json() == told

    bare = e2e.run("muster explain no-such-agent --json", comment="The exit code is the one in the document.")
    expect(bare).to_exit_with(3)
    assert bare.json() == told


def test_a_misspelt_option_is_an_error_document_too(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # An error is a document too: {"error": {"message", "hint", "code"}}.
    muster explain no-such-agent --json --verbose || true
    """)
    result = e2e.run("muster explain no-such-agent --jsn --json")
    expect(result).to_exit_with(2)
    error = result.json()["error"]
    assert error["code"] == 2 and "--jsn" in error["message"]


# Making and talking


def test_create_answers_with_the_record_of_what_was_made(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # The record of what was made: "agents".
    muster create made command --json --verbose -- sleep 60
    """)
    told = document(e2e, "muster create made command --json --verbose -- sleep 60", "create", "The record.")
    [one] = told["agents"]
    assert (one["name"], one["address"], one["type"], one["mode"]) == ("made", "made", "command", "worktree")
    assert Path(one["workdir"], "README").exists()
    assert outside(e2e, "git", "rev-parse", "muster/made", cwd=Path(one["workdir"])).strip() == one["base"]
    assert agents(e2e)["made"]["id"] == one["id"]


def test_create_of_a_name_that_is_taken_is_an_error_document(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # The record of what was made: "agents".
    muster create made command --json --verbose -- sleep 60
    """)
    make_made(e2e)
    result = e2e.run("muster create made command --json -- sleep 60")
    expect(result).to_exit_with(5)
    error = result.json()["error"]
    assert error["code"] == 5 and "there is an agent made already" in error["message"]


def test_message_answers_with_a_result_for_each(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Verbs over many agents answer with "results", one for each; "ok" says how it went.
    muster message made -m "hi" --json --verbose
    """)
    make_made(e2e)
    told = document(e2e, 'muster message made -m "hi" --json --verbose', "message", "Results, one for each.")
    assert told == {"results": [{"name": "made", "address": "made", "ok": True, "result": "typed"}]}


def test_a_name_that_is_not_there_has_a_result_that_is_not_ok(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Verbs over many agents answer with "results", one for each; "ok" says how it went.
    muster message made -m "hi" --json --verbose
    """)
    make_made(e2e)
    result = e2e.run('muster message made no-such-agent -m "hi" --json')
    expect(result).to_exit_with(3)
    told = result.json()
    fits(told, "message")
    by_ok = {one["ok"]: one for one in told["results"]}
    assert by_ok[True]["name"] == "made"
    assert by_ok[False]["name"] is None and by_ok[False]["error"]["code"] == 3


def test_answer_says_what_became_of_it(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # What became of an answer: "result" is answered, delivered or queued.
    muster create asker replay --no-connect -- ../ask.toml
    muster wait asker --until waiting --timeout 60s
    muster answer asker yes --json --verbose
    """)
    (e2e.work.parent / "ask.toml").write_text(ASK)
    expect(e2e.run("muster create asker replay --no-connect -- ../ask.toml")).to_succeed()
    expect(e2e.run("muster wait asker --until waiting --timeout 60s")).to_succeed()
    told = document(e2e, "muster answer asker yes --json --verbose", "answer")
    assert told == {"name": "asker", "address": "asker", "result": "answered"}
    expect(e2e.run("muster wait asker --until ready --until done --timeout 30s")).to_succeed()
    expect(e2e.run("muster transcript asker").stdout).to_contain("Cleaned.")


def test_an_answer_to_a_question_is_delivered(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # What became of an answer: "result" is answered, delivered or queued.
    muster create asker replay --no-connect -- ../ask.toml
    muster wait asker --until waiting --timeout 60s
    muster answer asker yes --json --verbose
    """)
    make_greet(e2e)
    told = document(e2e, "muster answer greet 'yes, please' --json --verbose", "answer")
    assert told["result"] == "delivered"


def test_an_answer_to_nobody_who_asks_is_an_error(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # What became of an answer: "result" is answered, delivered or queued.
    muster create asker replay --no-connect -- ../ask.toml
    muster wait asker --until waiting --timeout 60s
    muster answer asker yes --json --verbose
    """)
    make_made(e2e)
    result = e2e.run("muster answer made yes --json")
    expect(result).to_exit_with(1)
    assert result.json()["error"]["message"] == "made is working, it asks nothing"


def test_wait_answers_with_the_agents_as_they_were(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # The agents as they were when the wait was over.
    muster wait made --until working --timeout 30s --json --verbose
    """)
    outside(e2e, "muster", "create", "made", "command", "--no-connect", "--", "sleep", "60")
    told = document(e2e, "muster wait made --until working --timeout 30s --json --verbose", "wait")
    assert [(one["name"], one["state"]) for one in told["agents"]] == [("made", "working")]


def test_a_wait_that_was_too_long_is_exit_code_4(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # The agents as they were when the wait was over.
    muster wait made --until working --timeout 30s --json --verbose
    """)
    make_made(e2e)
    result = e2e.run("muster wait made --until done --timeout 0.2s --json")
    expect(result).to_exit_with(4)
    assert result.json()["error"] == {
        "message": "timed out waiting for made (still working)",
        "hint": "muster list",
        "code": 4,
    }


# Looking


def test_connect_has_no_document_and_says_so_in_one(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # connect shows a terminal and has no document. It says so, as a document, with exit code 2.
    muster connect made --json --verbose || true
    """)
    make_made(e2e)
    result = e2e.run("muster connect made --json --verbose || true", comment="It says so, as a document,")
    expect(result).to_succeed()
    error = result.json()["error"]
    assert error["message"] == "connect shows a terminal and has no JSON" and "muster capture" in error["hint"]
    expect(e2e.run("muster connect made --json", comment="with exit code 2.")).to_exit_with(2)


def test_capture_says_whether_the_screen_is_live_or_kept(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # The screen as text, and whether it is live, kept or from the recording.
    muster capture made --json --verbose
    """)
    outside(e2e, "muster", "create", "made", "command", "--no-connect", "--", "sh", "-c", "echo I am up; sleep 60")
    e2e.start("muster events made --follow", ready_when="started")
    live = document(e2e, "muster capture made --json --verbose", "capture", "It runs.")
    assert live["source"] == "live"
    outside(e2e, "muster", "stop", "made", "--grace", "0")
    kept = document(e2e, "muster capture made --json --verbose", "capture", "It was stopped.")
    assert kept["source"] in ("kept", "recording") and "I am up" in kept["screen"]


def test_exec_answers_with_exit_code_and_output(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # A command's exit code and output.
    muster exec made --json --verbose -- git rev-parse HEAD
    """)
    make_made(e2e)
    told = document(e2e, "muster exec made --json --verbose -- git rev-parse HEAD", "exec")
    assert told == {"name": "made", "exit_code": 0, "stdout": git(e2e, "rev-parse", "HEAD") + "\n"}


def test_exec_of_a_command_that_fails_has_its_exit_code_and_its_stderr(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # A command's exit code and output.
    muster exec made --json --verbose -- git rev-parse HEAD
    """)
    make_made(e2e)
    result = e2e.run("muster exec made --json -- sh -c 'echo out; echo wrong >&2; exit 9'")
    expect(result).to_exit_with(9)
    assert result.json() == {"name": "made", "exit_code": 9, "stdout": "out\n"}
    expect(result.stderr).to_equal("wrong\n")


def test_transcript_answers_with_entries(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # The conversation, entry by entry.
    muster transcript greet --last 1 --json --verbose
    """)
    make_greet(e2e)
    told = document(e2e, "muster transcript greet --last 1 --json --verbose", "transcript")
    [entry] = told["entries"]
    assert (entry["role"], entry["text"]) == ("assistant", "Shall I also say goodbye?")
    whole = document(e2e, "muster transcript greet --json", "transcript", "All of it.")
    assert whole["entries"][0]["text"] == "I will add a greeting."


def test_a_plain_command_has_no_transcript(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # The conversation, entry by entry.
    muster transcript greet --last 1 --json --verbose
    """)
    make_made(e2e)
    result = e2e.run("muster transcript made --last 1 --json")
    expect(result).to_exit_with(1)
    error = result.json()["error"]
    assert error["message"] == "made is a command, which keeps no transcript"
    assert error["hint"] == "muster capture made --scrollback"


def test_events_have_a_time_and_a_kind(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # The events, each with its time "t" and its "kind".
    muster events made --json --verbose
    """)
    make_made(e2e)
    told = document(e2e, "muster events made --json --verbose", "events")
    assert [event["kind"] for event in told["events"]] == ["started"]
    assert told["events"][0]["t"] >= agents(e2e)["made"]["created"]
    outside(e2e, "muster", "stop", "made", "--grace", "0")
    later = document(e2e, "muster events made --json --verbose", "events", "It was stopped.")
    times = [event["t"] for event in later["events"]]
    assert len(times) > 1 and times == sorted(times)


# Work


def test_pull_answers_with_branch_tip_and_commits(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # The branch, its tip, and how many commits it is ahead.
    muster pull made --json --verbose
    """)
    make_made(e2e)
    outside(e2e, "muster", "exec", "made", "--", "git", "commit", "-q", "--allow-empty", "-m", "one")
    [one] = document(e2e, "muster pull made --json --verbose", "pull")["results"]
    assert one["ok"] and (one["branch"], one["commits"]) == ("muster/made", 1)
    assert one["tip"] == git(e2e, "rev-parse", "muster/made")
    assert git(e2e, "rev-list", "--count", "HEAD..muster/made") == "1"


def test_push_answers_with_the_commit_the_agent_is_at(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # The commit the agent is at after a push.
    muster push made --json --verbose
    """)
    make_made(e2e)
    git(e2e, "commit", "-q", "--allow-empty", "-m", "mine")
    [one] = document(e2e, "muster push made --json --verbose", "push")["results"]
    mine = git(e2e, "rev-parse", "HEAD")
    assert one["ok"] and one["head"] == mine
    assert outside(e2e, "muster", "exec", "made", "--", "git", "rev-parse", "HEAD").strip() == mine


def test_a_push_that_is_no_fast_forward_is_refused_with_a_way_on(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # The commit the agent is at after a push.
    muster push made --json --verbose
    """)
    make_made(e2e)
    git(e2e, "commit", "-q", "--allow-empty", "-m", "mine")
    outside(e2e, "muster", "exec", "made", "--", "git", "commit", "-q", "--allow-empty", "-m", "its own")
    before = git(e2e, "rev-parse", "muster/made")
    result = e2e.run("muster push made --json")
    expect(result).to_exit_with(5)
    [one] = result.json()["results"]
    assert not one["ok"] and one["error"]["code"] == 5 and "--merge" in one["error"]["hint"]
    assert git(e2e, "rev-parse", "muster/made") == before


def test_diff_answers_with_files_and_the_diff(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # The names of the files, and the diff.
    muster diff greet --json --verbose
    """)
    make_greet(e2e)
    told = document(e2e, "muster diff greet --json --verbose", "diff")
    assert told["files"] == ["greet.txt"]
    assert "+++ b/greet.txt\n@@ -0,0 +1 @@\n+hello\n" in told["diff"]


def test_snapshot_list_answers_with_the_snapshots(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # The snapshots of an agent.
    muster snapshot list greet --json --verbose
    """)
    make_greet(e2e)
    assert document(e2e, "muster snapshot list greet --json --verbose", "snapshot")["snapshots"] == []
    outside(e2e, "muster", "snapshot", "create", "greet", "before-cleaning")
    [one] = document(e2e, "muster snapshot list greet --json --verbose", "snapshot")["snapshots"]
    assert one["snapshot"] == "before-cleaning" and re.fullmatch(r"[0-9a-f]{40}", one["head"])
    assert one["t"] >= int(agents(e2e)["greet"]["created"])


# Life


def test_stop_answers_with_the_state_before_and_after(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # The state before and after a stop.
    muster stop made --grace 0 --json --verbose
    """)
    make_made(e2e)
    [first] = document(e2e, "muster stop made --grace 0 --json --verbose", "stop")["results"]
    assert (first["was"], first["state"]) == ("working", "stopped")
    [second] = document(e2e, "muster stop made --grace 0 --json --verbose", "stop", "Once more.")["results"]
    assert (second["ok"], second["was"], second["state"]) == (True, "stopped", "stopped")


def test_start_says_whether_it_had_to_start(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # "started" is false when it was running already.
    muster start made --json --verbose
    """)
    make_made(e2e)
    [running] = document(e2e, "muster start made --json --verbose", "start", "It runs already.")["results"]
    assert running["ok"] and running["started"] is False
    outside(e2e, "muster", "stop", "made", "--grace", "0")
    [stopped] = document(e2e, "muster start made --json --verbose", "start", "It was stopped.")["results"]
    assert stopped["ok"] and stopped["started"] is True
    wait(e2e, "made", "working")
    assert agents(e2e)["made"]["state"] == "working"


def test_clone_answers_as_create_does(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # A clone answers as create does.
    muster clone made made-b --json --verbose
    """)
    make_made(e2e)
    outside(e2e, "muster", "exec", "made", "--", "sh", "-c", "echo draft > notes.txt")
    [one] = document(e2e, "muster clone made made-b --json --verbose", "clone")["agents"]
    fits({"agents": [one]}, "create")
    assert (one["name"], one["branch"]) == ("made-b", "muster/made-b")
    assert Path(one["workdir"], "notes.txt").read_text() == "draft\n"
    assert set(agents(e2e)) == {"made", "made-b"}


def test_rename_answers_with_both_names(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # The new name and the old one.
    muster rename made-b made-c --json --verbose
    """)
    make_made(e2e, "made-b")
    told = document(e2e, "muster rename made-b made-c --json --verbose", "rename")
    assert told == {"name": "made-c", "was": "made-b"}
    assert {name: one["branch"] for name, one in agents(e2e).items()} == {"made-c": "muster/made-c"}


def test_a_name_that_is_taken_cannot_be_given_again(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # The new name and the old one.
    muster rename made-b made-c --json --verbose
    """)
    make_made(e2e, "made-b")
    make_made(e2e, "made-c")
    result = e2e.run("muster rename made-b made-c --json")
    expect(result).to_exit_with(5)
    assert "made-c" in result.json()["error"]["message"]
    assert set(agents(e2e)) == {"made-b", "made-c"}


def test_label_answers_with_the_labels_an_agent_has_now(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # The labels an agent has now.
    muster label made-c --set seen=yes --json --verbose
    """)
    make_made(e2e, "made-c")
    outside(e2e, "muster", "label", "made-c", "--set", "run=1")
    [one] = document(e2e, "muster label made-c --set seen=yes --json --verbose", "label")["results"]
    assert one["labels"] == {"run": "1", "seen": "yes"} == agents(e2e)["made-c"]["labels"]


def test_destroy_says_what_was_kept_and_by_which_id_it_comes_back(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # What was kept, for how many days, and the id to restore it by.
    muster destroy made-c --json --verbose
    """)
    make_made(e2e, "made-c")
    outside(e2e, "muster", "exec", "made-c", "--", "sh", "-c", "echo draft > notes.txt")
    [one] = document(e2e, "muster destroy made-c --json --verbose", "destroy")["results"]
    assert (one["ok"], one["kept"], one["days"]) == (True, ["1 uncommitted file"], 30)
    assert agents(e2e) == {}
    expect(e2e.run(f"muster restore {one['id']}", comment="The id to restore it by.")).to_succeed()
    assert Path(agents(e2e)["made-c"]["workdir"], "notes.txt").read_text() == "draft\n"


def test_restore_answers_with_name_and_state(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # The name and the state of what came back.
    muster restore made-c --json --verbose
    """)
    make_made(e2e, "made-c")
    outside(e2e, "muster", "destroy", "made-c")
    told = document(e2e, "muster restore made-c --json --verbose", "restore")
    assert told == {"name": "made-c", "address": "made-c", "state": "stopped"}
    assert agents(e2e)["made-c"]["state"] == "stopped"


def test_what_is_not_in_the_trash_is_not_found(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # The name and the state of what came back.
    muster restore made-c --json --verbose
    """)
    result = e2e.run("muster restore made-c --json")
    expect(result).to_exit_with(3)
    assert "made-c" in result.json()["error"]["message"]


def test_gc_says_what_is_left_over_and_does_nothing(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # What is left over, and what it is.
    muster gc --json --verbose
    """)
    make_made(e2e)
    outside(e2e, "muster", "exec", "made", "--", "sh", "-c", "echo draft > notes.txt")
    outside(e2e, "muster", "destroy", "made")
    told = document(e2e, "muster gc --json --verbose", "gc")
    [one] = told["leftovers"]
    assert one["what"] == "trash" and one["name"].startswith("made-") and one["action"].startswith("kept until ")
    assert told["done"] is False
    expect(e2e.run("muster restore made", comment="It is still there.")).to_succeed()


def test_record_answers_with_the_steps_of_a_playbook(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # The steps of a playbook.
    muster record greet --json --verbose
    """)
    make_greet(e2e)
    steps = document(e2e, "muster record greet --json --verbose", "record")["steps"]
    [patch] = [step["patch"] for step in steps if "patch" in step]
    assert "+++ b/greet.txt" in patch
    assert {"commit": "Add a greeting"} in steps
    assert "I will add a greeting." in [step.get("say") for step in steps]
    assert steps[-1] == {"ask": "Shall I also say goodbye?"}


# Tutorials and muster itself


def test_the_blocks_of_a_tutorial_and_what_is_wrong_are_documents(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # The blocks of a tutorial, and what is wrong between it and its tests.
    muster tutorial list ../shop/tutorial.sh --json --verbose
    muster tutorial check --tutorial ../shop/tutorial.sh ../shop/tests --json --verbose
    """)
    tests = e2e.work.parent / "shop" / "tests"
    tests.mkdir(parents=True)
    (tests.parent / "tutorial.sh").write_text("# Say hello.\necho hello\n")
    listed = document(e2e, "muster tutorial list ../shop/tutorial.sh --json --verbose", "tutorial list")
    [block] = listed["blocks"]
    assert (block["comment"], block["commands"]) == ("Say hello.", ["echo hello"])

    check = "muster tutorial check --tutorial ../shop/tutorial.sh ../shop/tests --json --verbose"
    bad = e2e.run(check, comment="No test cites it.")
    expect(bad).to_exit_with(1)
    fits(bad.json(), "tutorial check")
    assert bad.json()["ok"] is False
    assert [(one["kind"], one["block"]) for one in bad.json()["findings"]] == [("missing", block["id"])]

    (tests / "test_hello.py").write_text('def test_hello(e2e):\n    """\n    # Say hello.\n    echo hello\n    """\n')
    good = document(e2e, check, "tutorial check", "A test cites it.")
    assert good["ok"] is True
    assert good["blocks"] == [{"id": block["id"], "line": 1, "tests": ["../shop/tests/test_hello.py::test_hello"]}]


def test_config_answers_with_all_that_is_configured(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # All that is configured.
    muster config --json --verbose
    """)
    (e2e.work / ".muster").mkdir()
    (e2e.work / ".muster" / "config.toml").write_text(
        '[commands.create]\nmode = "mirror"\n[notify]\ncommand = "true"\n'
    )
    told = document(e2e, "muster config --json --verbose", "config")
    assert told["values"]["commands"]["create"] == {"connect_command": "muster-e2e-connect", "mode": "mirror"}
    assert told["files"] == [f"{e2e.home}/.config/muster/config.toml", f"{e2e.work}/.muster/config.toml"]
    assert told["untrusted"] == ["notify"] and "notify" not in told["values"]


def test_trust_answers_with_the_file_and_what_is_left_out(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # The project's file, whether it is trusted, and what is left out.
    muster trust --show --json --verbose
    """)
    (e2e.work / ".muster").mkdir()
    path = e2e.work / ".muster" / "config.toml"
    path.write_text('[workdir]\nsetup = "make"\n')
    shown = document(e2e, "muster trust --show --json --verbose", "trust")
    assert shown == {"file": str(path), "trusted": False, "untrusted": ["workdir.setup"]}
    outside(e2e, "muster", "trust")
    trusted = document(e2e, "muster trust --show --json --verbose", "trust", "It was trusted.")
    assert trusted == {"file": str(path), "trusted": True, "untrusted": []}


def test_hosts_answers_with_who_answers_and_how_many_agents_they_have(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # The hosts, whether they answer, and how many agents they have.
    muster hosts --json --verbose
    """)
    make_made(e2e)
    make_made(e2e, "other")
    [here] = document(e2e, "muster hosts --json --verbose", "hosts")["hosts"]
    assert (here["name"], here["reachable"], here["agents"], here["error"]) == (None, True, 2, None)


def test_doctor_answers_with_what_each_host_has(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # What each host has and lacks.
    muster doctor --json --verbose
    """)
    parts = {one["part"]: one for one in document(e2e, "muster doctor --json --verbose", "doctor")["parts"]}
    assert parts["git"]["ok"] and parts["git"]["found"] == outside(e2e, "git", "--version").strip()
    assert parts["tmux"]["needed"] and not parts["ssh"]["needed"]


def test_doctor_answers_with_the_command_that_fixes_what_is_lacking(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # What each host has and lacks.
    muster doctor --json --verbose
    """)
    (e2e.home / ".gitconfig").write_text("")
    told = e2e.run("muster doctor --json --verbose", env={"EMAIL": None}).json()
    fits(told, "doctor")
    [identity] = [one for one in told["parts"] if one["part"] == "identity"]
    assert identity["ok"] is False and "git config --global user.name" in identity["fix"]


def test_a_completion_script_and_a_manual_page_come_inside_a_document(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # A completion script or a manual page, inside a document.
    muster completion bash --json --verbose
    muster man list --json --verbose
    """)
    script = document(e2e, "muster completion bash --json --verbose", "completion")
    assert script == {"shell": "bash", "script": outside(e2e, "muster", "completion", "bash")}
    page = document(e2e, "muster man list --json --verbose", "man")
    assert page["verb"] == "list" and "muster list --watch" in page["text"]


@pytest.mark.parametrize("command", ["muster completion tcsh --json", "muster man lst --json"])
def test_what_there_is_not_is_an_error_document(e2e: E2eSession, command: str) -> None:
    e2e.write_tutorial_block("""
    # A completion script or a manual page, inside a document.
    muster completion bash --json --verbose
    muster man list --json --verbose
    """)
    result = e2e.run(command)
    expect(result).to_fail()
    assert result.json()["error"]["code"] == result.exit_code
