"""Tutorial section 5, Talking to agents: waiting, answering, messages to one and to many."""

from __future__ import annotations

import json
import re

import pytest

from muster.tutorial import E2eSession, expect

from ..conftest import eventually
from .conftest import agents, outside

GREET = """[[step]]
say = "I will add a greeting."
[[step]]
ask = "Shall I also say goodbye?"
[[step]]
say = "You said: {message}"
"""
ASK = '[[step]]\npermission = "rm -rf build"\ntool = "Bash"\n[[step]]\nsay = "Cleaned."\n'


def make_replay(e2e: E2eSession, name: str, playbook: str = GREET, *options: str) -> None:
    """A recorded agent (with --count, several) that plays this; by default it asks a question."""
    (e2e.work.parent / "arranged.toml").write_text(playbook)
    outside(e2e, "muster", "create", name, "replay", *options, "--no-connect", "--", "../arranged.toml")


def make_waiting(e2e: E2eSession, name: str = "greet", playbook: str = GREET, *options: str) -> None:
    make_replay(e2e, name, playbook, *options)
    outside(e2e, "muster", "wait", f"{name}*", "--until", "waiting", "--timeout", "30s")


def make_ready(e2e: E2eSession, name: str = "greet") -> None:
    make_replay(e2e, name, '[[step]]\nsay = "Here I am."\n')
    outside(e2e, "muster", "wait", name, "--until", "ready", "--timeout", "30s")


def make_command(e2e: E2eSession, name: str, script: str, *options: str) -> None:
    outside(e2e, "muster", "create", name, "command", *options, "--no-connect", "--", "sh", "-c", script)


def heard(e2e: E2eSession, name: str = "greet") -> list[str]:
    """The messages that the agent has in its conversation."""
    entries = json.loads(outside(e2e, "muster", "transcript", name, "--json"))["entries"]
    return [entry["text"] for entry in entries if entry["role"] == "user"]


def prompts(e2e: E2eSession, name: str) -> list[str]:
    """The messages that a client without a conversation of its own says it took."""
    events = json.loads(outside(e2e, "muster", "events", name, "--json"))["events"]
    return [event["text"] for event in events if event["kind"] == "prompt"]


# Waiting for one, answering


def test_wait_ends_when_the_agent_asks_something(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Wait until an agent has finished its turn, asks something, or has ended.
    muster wait greet
    """)
    make_replay(e2e, "greet")
    result = e2e.run("muster wait greet", comment="Wait until it asks something.")
    expect(result).to_succeed()
    expect(result.stderr).to_equal("greet is waiting (question)\n")
    assert agents(e2e)["greet"]["state"] == "waiting"


def test_wait_goes_on_while_the_agent_works_and_ends_with_its_turn(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Wait until an agent has finished its turn, asks something, or has ended.
    muster wait greet
    """)
    make_replay(e2e, "greet", '[[step]]\nrun = "while [ ! -e go ]; do sleep 0.05; done"\n[[step]]\nsay = "Done."\n')
    expect(e2e.run("muster wait greet", comment="It is at work.", timeout=1)).to_time_out()
    wait = e2e.start("muster wait greet", comment="Wait again.")
    e2e.run("muster exec greet -- touch go", comment="What it worked for is there.")
    result = wait.wait(timeout=20)
    expect(result).to_succeed()
    expect(result.stderr).to_equal("greet is ready\n")


def test_wait_ends_when_the_agent_has_ended(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Wait until an agent has finished its turn, asks something, or has ended.
    muster wait greet
    """)
    make_command(e2e, "greet", "exit 3")
    result = e2e.run("muster wait greet", comment="It ends by itself.")
    expect(result).to_succeed()
    expect(result.stderr).to_equal("greet is failed (exit 3)\n")


def test_wait_for_an_unknown_agent_does_not_wait(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Wait until an agent has finished its turn, asks something, or has ended.
    muster wait greet
    """)
    make_ready(e2e)
    result = e2e.run("muster wait gret", comment="A misspelt name.", timeout=20)
    expect(result).to_exit_with(3)
    expect(result.stderr).to_contain("there is no agent gret")
    expect(result.stderr).to_match(r"^ +.*\bgreet\b")


def test_answer_without_an_answer_shows_the_question(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # The agent asks a question: read all of it.
    muster answer greet
    """)
    make_waiting(e2e)
    result = e2e.run("muster answer greet", comment="The agent asks a question: read all of it.")
    expect(result).to_succeed()
    expect(result.stdout).to_equal("Shall I also say goodbye?\n")
    expect(result.stderr).to_equal("muster answer greet TEXT\n")
    assert json.loads(e2e.run("muster answer greet --json").stdout)["question"] == "Shall I also say goodbye?"
    assert agents(e2e)["greet"]["state"] == "waiting", "it still asks"


def test_the_question_of_an_agent_that_asks_nothing_is_an_error(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # The agent asks a question: read all of it.
    muster answer greet
    """)
    make_command(e2e, "greet", "true")
    outside(e2e, "muster", "wait", "greet")
    result = e2e.run("muster answer greet")
    expect(result).to_exit_with(1)
    expect(result.stderr).to_contain("greet is done and has no open question\n  muster explain greet")


def test_an_answer_reaches_the_agent_that_asked(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Answer it.
    muster answer greet "no, that is all"
    """)
    make_waiting(e2e)
    result = e2e.run('muster answer greet "no, that is all"', comment="The agent asks a question: answer it.")
    expect(result).to_succeed()
    expect(result.stderr).to_equal("delivered: greet\n")
    expect(e2e.run("muster wait greet --until ready --timeout 30s")).to_succeed()
    assert heard(e2e) == ["no, that is all"]
    assert agents(e2e)["greet"]["last_line"] == "You said: no, that is all"


def test_an_agent_that_asks_nothing_cannot_be_answered(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Answer it.
    muster answer greet "no, that is all"
    """)
    make_ready(e2e)
    result = e2e.run('muster answer greet "no, that is all"', comment="It asks nothing.")
    expect(result).to_exit_with(1)
    expect(result.stderr).to_contain("greet is ready, it asks nothing")
    expect(result.stderr).to_contain("muster message greet -m")
    assert heard(e2e) == []


def test_an_agent_that_has_ended_is_not_answered_with_a_hint_that_does_not_work(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Answer it.
    muster answer greet "no, that is all"
    """)
    make_command(e2e, "greet", "true")
    outside(e2e, "muster", "wait", "greet")
    result = e2e.run('muster answer greet "no, that is all"', comment="It has ended.")
    expect(result).to_exit_with(1)
    expect(result.stderr).to_contain("muster start greet")


# Messages


def test_a_message_is_delivered_when_the_agent_took_it(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Send a message. `delivered` means there is proof that the agent took it.
    muster wait greet --until ready --timeout 60s
    muster message greet -m "Thank you"
    """)
    make_replay(e2e, "greet", '[[step]]\nsay = "Here I am."\n')
    expect(e2e.run("muster wait greet --until ready --timeout 60s", comment="Send a message.")).to_succeed()
    result = e2e.run('muster message greet -m "Thank you"', comment="There is proof that the agent took it.")
    expect(result).to_succeed()
    expect(result.stderr).to_equal("delivered: greet\n")
    assert heard(e2e) == ["Thank you"]


def test_a_message_to_an_agent_at_work_is_queued_and_taken_later(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Send a message. `delivered` means there is proof that the agent took it.
    muster wait greet --until ready --timeout 60s
    muster message greet -m "Thank you"
    """)
    make_replay(e2e, "greet", '[[step]]\nrun = "while [ ! -e go ]; do sleep 0.05; done"\n[[step]]\nsay = "Done."\n')
    eventually(lambda: agents(e2e)["greet"]["state"] == "working")
    result = e2e.run('muster message greet -m "Thank you"', comment="It is at work.")
    expect(result).to_succeed()
    expect(result.stderr).to_equal("queued: greet\n")
    outside(e2e, "muster", "exec", "greet", "--", "touch", "go")
    eventually(lambda: heard(e2e) == ["Thank you"])


def test_a_message_without_a_text_says_what_is_needed(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Send a message. `delivered` means there is proof that the agent took it.
    muster wait greet --until ready --timeout 60s
    muster message greet -m "Thank you"
    """)
    make_ready(e2e)
    result = e2e.run("muster message greet", comment="The text was forgotten.")
    expect(result).to_exit_with(2)
    expect(result.stderr).to_contain("muster message NAME -m 'text'")
    assert heard(e2e) == []


def test_a_state_that_will_not_come_ends_the_wait(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Send a message. `delivered` means there is proof that the agent took it.
    muster wait greet --until ready --timeout 60s
    muster message greet -m "Thank you"
    """)
    make_command(e2e, "greet", "true")
    outside(e2e, "muster", "wait", "greet")
    result = e2e.run("muster wait greet --until ready --timeout 60s", comment="It has ended.", timeout=20)
    expect(result).to_exit_with(1)
    expect(result.stderr).to_contain("greet is done, it will not be ready")
    expect(result.stderr).to_contain("muster explain greet")


def test_a_pattern_sends_the_same_to_several_agents(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Send the same to several agents at once. Quote the pattern, so that your shell leaves it alone.
    muster message 'try-*' --message "no, commit what you have"
    """)
    make_waiting(e2e, "try", GREET, "--count", "3")
    make_ready(e2e, "other")
    result = e2e.run("""muster message 'try-*' --message "no, commit what you have\"""", comment="Several at once.")
    expect(result).to_succeed()
    assert sorted(result.stderr.splitlines()) == ["delivered: try-1", "delivered: try-2", "delivered: try-3"]
    for name in ("try-1", "try-2", "try-3"):
        assert heard(e2e, name) == ["no, commit what you have"]
    assert heard(e2e, "other") == []


def test_a_pattern_that_matches_nobody_lists_those_that_there_are(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Send the same to several agents at once. Quote the pattern, so that your shell leaves it alone.
    muster message 'try-*' --message "no, commit what you have"
    """)
    make_ready(e2e)
    result = e2e.run("muster message 'try-*' --message hello", comment="Nobody is called so.")
    expect(result).to_exit_with(3)
    expect(result.stderr).to_contain("no agent matches 'try-*'")
    expect(result.stderr).to_contain("agents: greet")
    assert heard(e2e) == []


def test_a_plain_command_is_typed_to_and_the_answer_says_so(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # To all agents with a label. A plain command is typed to: there is no proof, and the answer says `typed`.
    muster create console command --label kind=console --no-connect -- cat
    muster message --label kind=console -m "hello"
    """)
    made = e2e.run("muster create console command --label kind=console --no-connect -- cat", comment="A plain command.")
    expect(made).to_succeed()
    result = e2e.run('muster message --label kind=console -m "hello"', comment="To all agents with a label.")
    expect(result).to_succeed()
    expect(result.stderr).to_equal("typed: console\n")
    # Once as it was typed, once as cat repeats it.
    eventually(lambda: outside(e2e, "muster", "capture", "console") == "hello\nhello\n")


def test_a_label_that_nobody_has_is_an_error(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # To all agents with a label. A plain command is typed to: there is no proof, and the answer says `typed`.
    muster create console command --label kind=console --no-connect -- cat
    muster message --label kind=console -m "hello"
    """)
    make_ready(e2e)
    result = e2e.run('muster message --label kind=console -m "hello"', comment="Nobody has it.")
    expect(result).to_exit_with(3)
    expect(result.stderr).to_contain("no agent has these labels")
    assert heard(e2e) == []


def test_a_long_message_comes_whole_from_a_file_and_from_a_pipe(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # A long message from a file, or from a pipe.
    muster message greet --message-file ../task.md
    git log -1 -p | muster message greet --message-file -
    """)
    make_ready(e2e)
    task = "".join(f"{number}. Make this test faster.\n" for number in range(1, 101))
    (e2e.work.parent / "task.md").write_text(task)
    by_file = e2e.run("muster message greet --message-file ../task.md", comment="A long message from a file.")
    expect(by_file).to_succeed()
    outside(e2e, "muster", "wait", "greet", "--until", "ready", "--timeout", "30s")
    by_pipe = e2e.run("git log -1 -p | muster message greet --message-file -", comment="Or from a pipe.")
    expect(by_pipe).to_succeed()
    eventually(lambda: len(heard(e2e)) == 2)
    assert [text.rstrip() for text in heard(e2e)] == [task.rstrip(), outside(e2e, "git", "log", "-1", "-p").rstrip()]


def test_an_empty_pipe_is_no_message(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # A long message from a file, or from a pipe.
    muster message greet --message-file ../task.md
    git log -1 -p | muster message greet --message-file -
    """)
    make_ready(e2e)
    result = e2e.run("git diff | muster message greet --message-file -", comment="Nothing comes from the pipe.")
    expect(result).to_exit_with(2)
    expect(result.stderr).to_contain("the message is empty")
    assert heard(e2e) == []


def test_raw_sends_a_command_of_the_client_itself(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # A leading / is sent as text. With --raw it is a command of the client itself.
    muster message fix-login --raw -m "/compact"
    """)
    outside(e2e, "muster", "create", "fix-login", "claude", "--no-connect")
    outside(e2e, "muster", "wait", "fix-login", "--until", "ready", "--timeout", "30s")
    result = e2e.run('muster message fix-login --raw -m "/compact"', comment="A command of the client itself.")
    expect(result).to_succeed()
    assert prompts(e2e, "fix-login") == ["/compact"]


def test_a_leading_slash_is_kept_from_the_client_behind_a_harmless_prefix(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # A leading / is sent as text. With --raw it is a command of the client itself.
    muster message fix-login --raw -m "/compact"
    """)
    config = e2e.home / ".config" / "muster" / "config.toml"
    config.write_text(config.read_text() + 'guard = "/!"\n')  # as muster's own claude type has it
    outside(e2e, "muster", "create", "fix-login", "claude", "--no-connect")
    outside(e2e, "muster", "wait", "fix-login", "--until", "ready", "--timeout", "30s")
    result = e2e.run('muster message fix-login -m "/compact is a word here"', comment="Without --raw it is text.")
    expect(result).to_succeed()
    assert prompts(e2e, "fix-login") == ["Message: /compact is a word here"]


def test_everyone_is_told_and_those_that_have_ended_are_reported(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Tell everyone. Agents that have ended are reported as failures; the others get the message.
    muster message --all -m "Please commit within five minutes"
    """)
    make_ready(e2e)
    make_command(e2e, "ended", "true")
    make_command(e2e, "console", "cat")
    outside(e2e, "muster", "wait", "ended")
    result = e2e.run('muster message --all -m "Please commit within five minutes"', comment="Tell everyone.")
    expect(result).to_exit_with(1)
    expect(result.stderr).to_match("^delivered: greet$")
    expect(result.stderr).to_match("^typed: console$")
    expect(result.stderr).to_match("^muster: ended is done, nobody would read it\n  muster start ended$")
    assert heard(e2e) == ["Please commit within five minutes"]
    assert agents(e2e)["ended"]["state"] == "done"


# Permissions


def test_a_permission_is_allowed_with_yes(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # An agent asks for a permission: allow it, or deny it with no.
    cat > ../ask.toml <<'END'
    [[step]]
    permission = "rm -rf build"
    tool = "Bash"
    [[step]]
    say = "Cleaned."
    END
    muster create clean-up replay --no-connect -- ../ask.toml
    muster wait clean-up --until waiting --timeout 60s
    muster answer clean-up yes
    """)
    e2e.run(
        """cat > ../ask.toml <<'END'
[[step]]
permission = "rm -rf build"
tool = "Bash"
[[step]]
say = "Cleaned."
END""",
        comment="An agent asks for a permission.",
    )
    expect(e2e.run("muster create clean-up replay --no-connect -- ../ask.toml")).to_succeed()
    waited = e2e.run("muster wait clean-up --until waiting --timeout 60s")
    expect(waited).to_succeed()
    expect(waited.stderr).to_equal("clean-up is waiting (permission)\n")
    result = e2e.run("muster answer clean-up yes", comment="Allow it.")
    expect(result).to_succeed()
    expect(result.stderr).to_equal("answered: clean-up\n")
    expect(e2e.run("muster wait clean-up --until ready --timeout 30s")).to_succeed()
    expect(e2e.run("muster transcript clean-up").stdout).to_match(r"\$ Bash: rm -rf build\nallowed\n(.*\n)*Cleaned\.")


def test_a_permission_is_denied_with_no(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # An agent asks for a permission: allow it, or deny it with no.
    cat > ../ask.toml <<'END'
    [[step]]
    permission = "rm -rf build"
    tool = "Bash"
    [[step]]
    say = "Cleaned."
    END
    muster create clean-up replay --no-connect -- ../ask.toml
    muster wait clean-up --until waiting --timeout 60s
    muster answer clean-up yes
    """)
    make_waiting(e2e, "clean-up", ASK.replace("[[step]]\nsay", "guards = 1\n[[step]]\nsay"))
    expect(e2e.run("muster answer clean-up no", comment="Deny it.")).to_succeed()
    expect(e2e.run("muster wait clean-up --until ready --timeout 30s")).to_succeed()
    shown = e2e.run("muster transcript clean-up").stdout
    expect(shown).to_match(r"\$ Bash: rm -rf build\ndenied$")
    expect(shown).not_to_contain("Cleaned.")


@pytest.mark.parametrize(
    "command", ["muster message clean-up -m 'hello'", "muster answer clean-up maybe"], ids=["message", "other-words"]
)
def test_nothing_but_yes_or_no_goes_through_an_open_dialog(e2e: E2eSession, command: str) -> None:
    e2e.write_tutorial_block("""
    # An agent asks for a permission: allow it, or deny it with no.
    cat > ../ask.toml <<'END'
    [[step]]
    permission = "rm -rf build"
    tool = "Bash"
    [[step]]
    say = "Cleaned."
    END
    muster create clean-up replay --no-connect -- ../ask.toml
    muster wait clean-up --until waiting --timeout 60s
    muster answer clean-up yes
    """)
    make_waiting(e2e, "clean-up", ASK)
    result = e2e.run(command, comment="The dialog is open.")
    expect(result).to_exit_with(7)
    expect(result.stderr).to_contain("clean-up waits for a permission")
    expect(result.stderr).to_contain("muster answer clean-up yes, or no")
    assert agents(e2e)["clean-up"]["reason"] == "permission"


# Waiting for several


def test_wait_for_several_ends_when_all_are_there(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Wait for several agents, but not for ever. Exit code 4 means the time was up.
    muster wait try-1 try-2 --timeout 10m
    """)
    make_replay(e2e, "try", GREET, "--count", "2")
    result = e2e.run("muster wait try-1 try-2 --timeout 10m", comment="Wait for several agents.")
    expect(result).to_succeed()
    assert sorted(result.stderr.splitlines()) == ["try-1 is waiting (question)", "try-2 is waiting (question)"]


def test_when_the_time_is_up_the_exit_code_is_4_and_those_at_work_are_named(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Wait for several agents, but not for ever. Exit code 4 means the time was up.
    muster wait try-1 try-2 --timeout 10m
    """)
    make_waiting(e2e, "try-1")
    make_command(e2e, "try-2", "sleep 600")
    result = e2e.run("muster wait try-1 try-2 --timeout 0.5s", comment="But not for ever.")
    expect(result).to_exit_with(4)
    expect(result.stderr).to_match("^try-1 is waiting")
    expect(result.stderr).to_match("^muster: timed out waiting for try-2 \\(still working\\)$")
    assert agents(e2e)["try-2"]["state"] == "working"


def test_any_ends_with_the_first_that_needs_you(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Wait for the first one that needs you.
    muster wait 'try-*' --any --until waiting --until ready
    """)
    make_command(e2e, "try-1", "sleep 600")
    make_command(e2e, "try-2", "sleep 600")
    make_replay(e2e, "try-3")
    result = e2e.run(
        "muster wait 'try-*' --any --until waiting --until ready",
        comment="Wait for the first one that needs you.",
        timeout=30,
    )
    expect(result).to_succeed()
    expect(result.stderr).to_equal("try-3 is waiting (question)\n")


def test_wait_until_done_ends_when_a_whole_run_has_ended_well(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Wait for all agents of a run to end well. An agent that fails ends the wait with exit code 1.
    muster wait --label run=42 --until done
    """)
    make_command(e2e, "one", "true", "--label", "run=42")
    make_command(e2e, "two", "sleep 0.3", "--label", "run=42")
    make_command(e2e, "of-another-run", "sleep 600", "--label", "run=41")
    result = e2e.run("muster wait --label run=42 --until done", comment="All agents of a run.", timeout=30)
    expect(result).to_succeed()
    assert sorted(result.stderr.splitlines()) == ["one is done", "two is done"]


def test_an_agent_that_fails_ends_the_wait_though_another_is_at_work(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Wait for all agents of a run to end well. An agent that fails ends the wait with exit code 1.
    muster wait --label run=42 --until done
    """)
    make_command(e2e, "busy", "sleep 600", "--label", "run=42")
    make_command(e2e, "broken", "exit 3", "--label", "run=42")
    result = e2e.run("muster wait --label run=42 --until done", comment="One of them fails.", timeout=30)
    expect(result).to_exit_with(1)
    expect(result.stderr).to_contain("broken is failed, it will not be done")
    expect(result.stderr).to_contain("muster explain broken")
    assert agents(e2e)["busy"]["state"] == "working"


def test_somebody_is_still_at_work_when_waiting_for_all_times_out(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Is anybody still at work? Wait two seconds to see; exit code 4 means yes.
    muster wait --all --timeout 2s
    """)
    make_waiting(e2e)
    make_command(e2e, "busy", "sleep 600")
    result = e2e.run("muster wait --all --timeout 2s", comment="Is anybody still at work?")
    expect(result).to_exit_with(4)
    expect(result.stderr).to_match("^muster: timed out waiting for busy \\(still working\\)$")


def test_nobody_is_at_work_when_waiting_for_all_ends_at_once(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Is anybody still at work? Wait two seconds to see; exit code 4 means yes.
    muster wait --all --timeout 2s
    """)
    make_waiting(e2e)
    make_command(e2e, "well", "true")
    outside(e2e, "muster", "wait", "well")
    result = e2e.run("muster wait --all --timeout 2s", comment="One asks, one has ended.")
    expect(result).to_succeed()
    assert sorted(re.findall(r"^(\S+) is (\S+)", result.stderr, re.MULTILINE)) == [
        ("greet", "waiting"),
        ("well", "done"),
    ]
