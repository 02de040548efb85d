"""Tutorial section 2, Making agents: types, messages, labels, limits, variables, permissions."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from muster.tutorial import E2eSession, expect

from ..conftest import eventually
from .conftest import CLIENT, agents, outside

#: A client that keeps what it was started with, an argument a line, and then does as the stand-in does.
CURIOUS = CLIENT.replace("\n", '\nprintf "%s\\n" "$@" > "$HOME/told-$MUSTER_AGENT.new"\n'
                               'mv "$HOME/told-$MUSTER_AGENT.new" "$HOME/told-$MUSTER_AGENT"\n', 1)  # fmt: skip


def ended(e2e: E2eSession, name: str) -> dict[str, Any]:
    """The agent after its end; `last_line` is the last that it said."""
    outside(e2e, "muster", "wait", name, "--timeout", "30s")
    return agents(e2e)[name]


def branches(e2e: E2eSession) -> str:
    return outside(e2e, "git", "branch", "--list", "muster/*")


def use_curious_client(e2e: E2eSession) -> None:
    (e2e.home / "bin" / "claude").write_text(CURIOUS)


def told(e2e: E2eSession, name: str) -> str:
    """What the curious client of this agent was started with."""
    path = e2e.home / f"told-{name}"
    eventually(path.exists)
    return path.read_text()


def settings(e2e: E2eSession) -> Path:
    return e2e.home / ".config" / "muster" / "config.toml"


def use_built_in_claude(e2e: E2eSession) -> None:
    """muster's own claude type instead of the fixture's; the program on PATH is still a stand-in."""
    settings(e2e).write_text(settings(e2e).read_text().partition("[types.claude]")[0])
    use_curious_client(e2e)


def attach_for_real(e2e: E2eSession) -> None:
    """Without the fixture's connect command, which records, muster attaches as it does for a user."""
    settings(e2e).write_text(settings(e2e).read_text().replace('connect_command = "muster-e2e-connect"', ""))


def path_without_clients(e2e: E2eSession) -> str:
    """A PATH with everything that is on the test's, except coding clients."""
    links = e2e.home / "links"
    links.mkdir()
    for folder in e2e.env["PATH"].split(os.pathsep):
        for file in Path(folder).glob("*"):
            if file.name not in ("claude", "codex", "opencode") and not (links / file.name).is_symlink():
                (links / file.name).symlink_to(file)
    return str(links)


def write_greeting(e2e: E2eSession) -> None:
    (e2e.work.parent / "greet.toml").write_text(
        '[[step]]\nwrite = "greet.txt"\ntext = "hello\\n"\n[[step]]\ncommit = "Add a greeting"\n'
        '[[step]]\nask = "Shall I also say goodbye?"\n'
    )


# A task for a coding agent


def test_a_coding_agent_is_started_on_its_task_and_the_fixture_records_it(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Start a coding agent on a task. The first word is always the name, the second the type.
    muster create fix-login claude -m "Fix the login test and commit"
    """)
    use_curious_client(e2e)
    result = e2e.run('muster create fix-login claude -m "Fix the login test and commit"', comment="Start it on a task.")
    expect(result).to_succeed()
    expect(result.stdout).to_equal("fix-login\n")
    expect(result.stderr).to_contain("created fix-login (claude, worktree, on branch muster/fix-login)")
    assert told(e2e, "fix-login") == "Fix the login test and commit\n"
    expect(e2e.run("muster wait fix-login --until ready --timeout 30s")).to_succeed()
    assert agents(e2e)["fix-login"]["type"] == "claude"
    assert (e2e.artifacts / "recordings" / "connect-fix-login.cast").is_file()


def test_on_a_terminal_create_attaches_to_the_new_agent(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Start a coding agent on a task. The first word is always the name, the second the type.
    muster create fix-login claude -m "Fix the login test and commit"
    """)
    (e2e.home / "bin" / "claude").write_text('#!/bin/sh\necho "my task: $1"\nexec cat\n')
    attach_for_real(e2e)
    terminal = e2e.terminal(
        'muster create fix-login claude -m "Fix the login test and commit"',
        size=(100, 30),
        comment="On a terminal.",
        env={"PATH": e2e.env["PATH"]},
    )
    expect(terminal).to_show("my task: Fix the login test and commit")
    terminal.type("are you there?\n")
    expect(terminal).to_match(r"are you there\?\nare you there\?")
    terminal.press("Ctrl-b", "d")
    expect(terminal).to_exit_with(0)
    assert "fix-login" in agents(e2e)


def test_a_type_that_there_is_not_is_answered_with_those_that_there_are(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Start a coding agent on a task. The first word is always the name, the second the type.
    muster create fix-login claude -m "Fix the login test and commit"
    """)
    result = e2e.run('muster create fix-login cluade -m "Fix the login test"', comment="A misspelt type.")
    expect(result).to_exit_with(2)
    expect(result.stderr).to_contain("there is no agent type 'cluade'")
    expect(result.stderr).to_contain("known types: claude, codex, command, copilot, mini, opencode, pi, replay")
    assert not branches(e2e)


def test_a_client_that_is_not_installed_leaves_no_agent_and_no_branch(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Start a coding agent on a task. The first word is always the name, the second the type.
    muster create fix-login claude -m "Fix the login test and commit"
    """)
    result = e2e.run(
        'muster create fix-login claude -m "Fix the login test and commit"',
        comment="claude is not installed.",
        env={"PATH": path_without_clients(e2e)},
    )
    expect(result).to_exit_with(3)
    expect(result.stderr).to_contain("claude is not on your PATH")
    assert agents(e2e) == {}
    assert not branches(e2e)


def test_a_name_is_made_up_and_the_type_is_the_client_that_is_there(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Without a name one is made up; without a type it is the first of claude, codex and opencode on your PATH.
    muster create --no-connect
    """)
    result = e2e.run("muster create --no-connect", comment="Without a name one is made up.")
    expect(result).to_succeed()
    expect(result.stdout).to_match(r"\A[a-z]+-[a-z]+\n\Z")
    (agent,) = agents(e2e).values()
    assert agent["name"] == result.stdout.strip()
    assert (agent["type"], agent["branch"]) == ("claude", f"muster/{agent['name']}")


def test_without_claude_the_type_is_codex(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Without a name one is made up; without a type it is the first of claude, codex and opencode on your PATH.
    muster create --no-connect
    """)
    path = path_without_clients(e2e)
    for client in ("codex", "opencode"):
        Path(path, client).write_text("#!/bin/sh\nexec cat\n")
        Path(path, client).chmod(0o755)
    expect(e2e.run("muster create --no-connect", comment="claude is not there.", env={"PATH": path})).to_succeed()
    assert [agent["type"] for agent in agents(e2e).values()] == ["codex"]


def test_without_any_client_create_says_what_to_name(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Without a name one is made up; without a type it is the first of claude, codex and opencode on your PATH.
    muster create --no-connect
    """)
    result = e2e.run("muster create --no-connect", comment="No client.", env={"PATH": path_without_clients(e2e)})
    expect(result).to_exit_with(2)
    expect(result.stderr).to_contain("none of claude, codex, opencode is on PATH")
    expect(result.stderr).to_contain("muster create NAME command -- make test")
    assert agents(e2e) == {}


def test_no_connect_stays_where_you_are_on_a_terminal_too(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # On a terminal, create attaches when it is done. Stay where you are instead.
    muster create review claude --no-connect --message "Review the last commit"
    """)
    use_curious_client(e2e)
    attach_for_real(e2e)
    terminal = e2e.terminal(
        'muster create review claude --no-connect --message "Review the last commit"',
        size=(100, 30),
        comment="Stay where you are instead.",
        env={"PATH": e2e.env["PATH"]},
    )
    expect(terminal).to_exit_with(0)
    expect(terminal).to_show("created review (claude, worktree, on branch muster/review)")
    assert told(e2e, "review") == "Review the last commit\n"
    assert "review" in agents(e2e)


def test_a_long_task_is_taken_from_a_file(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # The task is long: take it from a file.
    echo "Make the tests faster. Measure before and after." > ../task.md
    muster create faster claude --no-connect --message-file ../task.md
    """)
    use_curious_client(e2e)
    e2e.run('echo "Make the tests faster. Measure before and after." > ../task.md', comment="The task is long.")
    result = e2e.run("muster create faster claude --no-connect --message-file ../task.md", comment="From a file.")
    expect(result).to_succeed()
    assert told(e2e, "faster").strip() == "Make the tests faster. Measure before and after."


def test_a_task_file_that_is_not_there_is_named_and_nothing_is_made(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # The task is long: take it from a file.
    echo "Make the tests faster. Measure before and after." > ../task.md
    muster create faster claude --no-connect --message-file ../task.md
    """)
    result = e2e.run("muster create faster claude --no-connect --message-file ../tsk.md", comment="No such file.")
    expect(result).to_exit_with(2)
    expect(result.stderr).to_contain("cannot read ../tsk.md: No such file or directory")
    assert agents(e2e) == {}


def test_a_task_is_taken_from_a_pipe(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Or from a pipe.
    git log -3 -p | muster create notes claude --no-connect --message-file -
    """)
    use_curious_client(e2e)
    result = e2e.run("git log -3 -p | muster create notes claude --no-connect --message-file -", comment="A pipe.")
    expect(result).to_succeed()
    assert told(e2e, "notes").strip() == outside(e2e, "git", "log", "-3", "-p").strip()


def test_a_plain_command_finds_the_message_in_its_environment(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # A plain command finds the message in $MUSTER_PROMPT.
    muster create echo command --no-connect -m "from the message" -- sh -c 'echo "I was told: $MUSTER_PROMPT"'
    """)
    result = e2e.run(
        """muster create echo command --no-connect -m "from the message" -- sh -c 'echo "I was told: $MUSTER_PROMPT"'""",
        comment="A plain command finds the message in $MUSTER_PROMPT.",
    )
    expect(result).to_succeed()
    echo = ended(e2e, "echo")
    assert (echo["state"], echo["last_line"]) == ("done", "I was told: from the message")


def test_the_words_behind_the_dashes_are_the_program(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Everything behind -- goes to the program as it is. This runs your tests beside you.
    muster create tests command --no-connect -- make test
    """)
    result = e2e.run("muster create tests command --no-connect -- make test", comment="Run your tests beside you.")
    expect(result).to_succeed()
    tests = ended(e2e, "tests")
    assert (tests["state"], tests["last_line"]) == ("done", "all tests pass")


def test_words_behind_the_dashes_are_not_read_by_muster_nor_by_a_shell(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Everything behind -- goes to the program as it is. This runs your tests beside you.
    muster create tests command --no-connect -- make test
    """)
    e2e.run(
        "muster create odd command --no-connect -- printf '<%s>' --help '$HOME' 'a  b' \"it's\" '*' -- ''",
        comment="Words that a shell or muster could take for itself.",
    )
    ended(e2e, "odd")
    expect(e2e.run("muster capture odd").stdout).to_equal("<--help><$HOME><a  b><it's><*><--><>\n")


def test_tests_that_fail_are_an_agent_that_failed_with_their_exit_code(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Everything behind -- goes to the program as it is. This runs your tests beside you.
    muster create tests command --no-connect -- make test
    """)
    (e2e.work / "Makefile").write_text("test:\n\t@echo one failed; exit 1\n")
    e2e.run("muster create tests command --no-connect -- make test", comment="The tests fail.")
    tests = ended(e2e, "tests")
    assert (tests["state"], tests["reason"]) == ("failed", "exit 2")  # make's own code
    expect(e2e.run("muster capture tests").stdout).to_contain("one failed")


# A recorded agent


def test_a_playbook_is_a_session_with_a_commit_and_a_question(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Play a recorded agent: a real session with no model, no key and no cost. docs/playbooks.md has all steps.
    cat > ../greet.toml <<'END'
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
    END
    muster create greet replay --no-connect -- ../greet.toml
    """)
    result = e2e.run(
        """cat > ../greet.toml <<'END'
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
END
muster create greet replay --no-connect -- ../greet.toml""",
        comment="Play a recorded agent.",
    )
    expect(result).to_succeed()
    expect(e2e.run("muster wait greet --until waiting --timeout 30s")).to_succeed()
    greet = agents(e2e)["greet"]
    assert (greet["reason"], greet["last_line"]) == ("question", "Shall I also say goodbye?")
    work = Path(greet["workdir"])
    assert outside(e2e, "git", "log", "-1", "--format=%s", "muster/greet", cwd=work) == "Add a greeting\n"
    assert outside(e2e, "git", "show", "muster/greet:greet.txt", cwd=work) == "hello\n"


def test_a_playbook_with_an_unknown_step_is_refused_with_the_nearest_word(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Play a recorded agent: a real session with no model, no key and no cost. docs/playbooks.md has all steps.
    cat > ../greet.toml <<'END'
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
    END
    muster create greet replay --no-connect -- ../greet.toml
    """)
    (e2e.work.parent / "greet.toml").write_text('[[step]]\nsya = "hello"\n')
    result = e2e.run("muster create greet replay --no-connect -- ../greet.toml", comment="A misspelt step.")
    expect(result).to_fail()
    expect(result.stderr).to_contain("../greet.toml: step 1: no kind of step is called 'sya'; did you mean 'say'?")
    assert agents(e2e) == {}


def test_a_playbook_that_is_not_there_is_named(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Play a recorded agent: a real session with no model, no key and no cost. docs/playbooks.md has all steps.
    cat > ../greet.toml <<'END'
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
    END
    muster create greet replay --no-connect -- ../greet.toml
    """)
    result = e2e.run("muster create greet replay --no-connect -- ../greet.toml", comment="No such playbook.")
    expect(result).to_exit_with(3)
    expect(result.stderr).to_contain("no playbook ../greet.toml: No such file or directory")
    assert agents(e2e) == {}


# Many, labels, reuse


def test_count_makes_numbered_agents_that_each_do_the_task(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Three agents on the same task: try-1, try-2 and try-3.
    muster create try replay --count 3 --no-connect -- ../greet.toml
    """)
    write_greeting(e2e)
    result = e2e.run("muster create try replay --count 3 --no-connect -- ../greet.toml", comment="Three agents.")
    expect(result).to_succeed()
    expect(result.stdout).to_equal("try-1\ntry-2\ntry-3\n")
    expect(e2e.run("muster wait 'try-*' --until waiting --timeout 30s")).to_succeed()
    found = agents(e2e)
    assert len({one["workdir"] for one in found.values()}) == 3
    for name in ("try-1", "try-2", "try-3"):
        work = Path(found[name]["workdir"])
        assert outside(e2e, "git", "show", f"muster/{name}:greet.txt", cwd=work) == "hello\n"


def test_of_a_count_those_whose_name_is_free_are_made(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Three agents on the same task: try-1, try-2 and try-3.
    muster create try replay --count 3 --no-connect -- ../greet.toml
    """)
    write_greeting(e2e)
    outside(e2e, "muster", "create", "try-2", "command", "--no-connect", "--", "sleep", "600")
    result = e2e.run("muster create try replay --count 3 --no-connect -- ../greet.toml", comment="try-2 is taken.")
    expect(result).to_exit_with(5)
    expect(result.stdout).to_equal("try-1\ntry-3\n")
    expect(result.stderr).to_contain("there is an agent try-2 already")
    assert {name: one["type"] for name, one in agents(e2e).items()} == {
        "try-1": "replay",
        "try-2": "command",
        "try-3": "replay",
    }


def test_labels_find_the_agent_again(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Put labels on an agent, to find it by later.
    muster create count-lines command --label run=42 --label kind=check --no-connect -- sh -c 'git ls-files | xargs wc -l'
    """)
    outside(e2e, "muster", "create", "other", "command", "--label", "run=41", "--no-connect", "--", "true")
    result = e2e.run(
        "muster create count-lines command --label run=42 --label kind=check --no-connect"
        " -- sh -c 'git ls-files | xargs wc -l'",
        comment="Put labels on an agent.",
    )
    expect(result).to_succeed()
    assert ended(e2e, "count-lines")["labels"] == {"run": "42", "kind": "check"}
    found = e2e.run("muster list --label run=42 --label kind=check --format '{name} {last_line}'", comment="Find it.")
    expect(found.stdout).to_match(r"\Acount-lines +4 total\n\Z")


def test_a_label_without_a_key_is_refused(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Put labels on an agent, to find it by later.
    muster create count-lines command --label run=42 --label kind=check --no-connect -- sh -c 'git ls-files | xargs wc -l'
    """)
    result = e2e.run("muster create count-lines command --label =42 --no-connect -- true", comment="No key.")
    expect(result).to_exit_with(2)
    expect(result.stderr).to_contain("KEY=VALUE")
    assert agents(e2e) == {}


def test_reuse_is_safe_to_run_twice(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Make it, or go on with it when it is there already. Safe to run twice.
    muster create nightly command --reuse --no-connect -- sleep 600
    muster create nightly command --reuse --no-connect -- sleep 600
    """)
    first = e2e.run("muster create nightly command --reuse --no-connect -- sleep 600", comment="Make it.")
    before = agents(e2e)["nightly"]
    second = e2e.run("muster create nightly command --reuse --no-connect -- sleep 600", comment="Safe to run twice.")
    expect(first).to_succeed()
    expect(second).to_succeed()
    expect(second.stdout).to_equal("nightly\n")
    after = agents(e2e)
    assert list(after) == ["nightly"]
    # Its state may still go from starting to working.
    assert all(after["nightly"][key] == before[key] for key in ("id", "created", "workdir", "branch"))
    expect(e2e.run("muster events nightly").stdout).not_to_contain("launch=2")


def test_reuse_does_not_say_created_of_an_agent_that_was_there(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Make it, or go on with it when it is there already. Safe to run twice.
    muster create nightly command --reuse --no-connect -- sleep 600
    muster create nightly command --reuse --no-connect -- sleep 600
    """)
    outside(e2e, "muster", "create", "nightly", "command", "--no-connect", "--", "sleep", "600")
    result = e2e.run("muster create nightly command --reuse --no-connect -- sleep 600", comment="It is there already.")
    expect(result).to_succeed()
    expect(result.stderr).not_to_contain("created")


def test_reuse_starts_an_agent_that_has_ended_with_the_work_it_had(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Make it, or go on with it when it is there already. Safe to run twice.
    muster create nightly command --reuse --no-connect -- sleep 600
    muster create nightly command --reuse --no-connect -- sleep 600
    """)
    again = "muster create nightly command --reuse --no-connect -- sh -c 'echo ran >> log.txt; cat log.txt'"
    e2e.run(again, comment="Make it.")
    ended(e2e, "nightly")
    expect(e2e.run(again, comment="It has ended: go on with it.")).to_succeed()
    assert ended(e2e, "nightly")["state"] == "done"
    expect(e2e.run("muster exec nightly -- cat log.txt").stdout).to_equal("ran\nran\n")


def test_reuse_does_not_turn_an_agent_into_another_type(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Make it, or go on with it when it is there already. Safe to run twice.
    muster create nightly command --reuse --no-connect -- sleep 600
    muster create nightly command --reuse --no-connect -- sleep 600
    """)
    outside(e2e, "muster", "create", "nightly", "command", "--no-connect", "--", "sleep", "600")
    result = e2e.run("muster create nightly claude --reuse --no-connect", comment="The same name, another type.")
    expect(result).to_exit_with(1)
    expect(result.stderr).to_contain("nightly exists and is of type command")
    assert agents(e2e)["nightly"]["state"] == "working"


# Limits


def test_an_agent_with_a_timeout_works_until_then(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # End the agent by itself after a while. Its state is then failed, with the reason timeout.
    muster create short command --timeout 90s --no-connect -- sleep 600
    """)
    expect(e2e.run("muster create short command --timeout 90s --no-connect -- sleep 600")).to_succeed()
    assert agents(e2e)["short"]["state"] == "working"


def test_when_its_time_is_up_an_agent_has_failed_with_the_reason_timeout(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # End the agent by itself after a while. Its state is then failed, with the reason timeout.
    muster create short command --timeout 90s --no-connect -- sleep 600
    """)
    e2e.run("muster create short command --timeout 0.5s --no-connect -- sleep 600", comment="A shorter while.")
    short = ended(e2e, "short")
    assert (short["state"], short["reason"]) == ("failed", "timeout")


def test_a_timeout_that_is_no_time_is_refused(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # End the agent by itself after a while. Its state is then failed, with the reason timeout.
    muster create short command --timeout 90s --no-connect -- sleep 600
    """)
    result = e2e.run("muster create short command --timeout soon --no-connect -- sleep 600", comment="Not a time.")
    expect(result).to_exit_with(2)
    expect(result.stderr).to_contain("'soon' is not a time")
    expect(result.stderr).to_contain("90s")
    assert agents(e2e) == {}


def test_a_memory_limit_is_kept_or_refused_with_the_reason(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Set a hard limit of memory. Where the host cannot keep it, create refuses and says why.
    muster create small command --memory 512m --no-connect -- sleep 60
    """)
    result = e2e.run("muster create small command --memory 512m --no-connect -- sleep 60", comment="A hard limit.")
    if result.exit_code == 0:
        assert agents(e2e)["small"]["state"] == "working"
    else:
        expect(result).to_exit_with(5)
        expect(result.stderr).to_match("--memory cannot be kept here: .*cgroup")
        expect(result.stderr).to_contain("leave --memory out, or use a container host")
        assert agents(e2e) == {}
        assert not branches(e2e)


def test_an_agent_that_wants_more_memory_than_its_limit_is_ended(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Set a hard limit of memory. Where the host cannot keep it, create refuses and says why.
    muster create small command --memory 512m --no-connect -- sleep 60
    """)
    greedy = 'python3 -c \'print(len(bytearray(b"x") * (200 << 20)), "taken")\''
    result = e2e.run(f"muster create small command --memory 64m --no-connect -- {greedy}", comment="A greedy one.")
    if result.exit_code == 5:  # what it cannot keep it does not promise
        expect(result.stderr).to_match("--memory cannot be kept here: .*cgroup")
        assert agents(e2e) == {}
        return
    assert ended(e2e, "small")["state"] == "failed"
    expect(e2e.run("muster capture small").stdout).not_to_contain("taken")


# Variables


def test_variables_come_by_value_and_by_name(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Give the agent variables: a value, or your own variable by its name. They show on no command line.
    export API_TOKEN=secret
    muster create env command --env STAGE=test --env API_TOKEN --no-connect -- sh -c 'echo "$STAGE, ${#API_TOKEN} characters"'
    """)
    result = e2e.run(
        """export API_TOKEN=secret
muster create env command --env STAGE=test --env API_TOKEN --no-connect -- sh -c 'echo "$STAGE, ${#API_TOKEN} characters"'""",
        comment="Give the agent variables.",
    )
    expect(result).to_succeed()
    assert ended(e2e, "env")["last_line"] == "test, 6 characters"


def test_variables_show_on_no_command_line(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Give the agent variables: a value, or your own variable by its name. They show on no command line.
    export API_TOKEN=secret
    muster create env command --env STAGE=test --env API_TOKEN --no-connect -- sh -c 'echo "$STAGE, ${#API_TOKEN} characters"'
    """)
    token = "only-in-this-test-84c1"
    e2e.run(
        "muster create env command --env API_TOKEN --no-connect -- sh -c 'echo ${#API_TOKEN} characters; sleep 600'",
        comment="By its name, from the environment.",
        env={"API_TOKEN": token},
    )
    eventually(lambda: f"{len(token)} characters" in outside(e2e, "muster", "capture", "env"))
    shown = e2e.run("ps -eww -o args", comment="Every command line on this machine.")
    expect(shown.stdout).to_contain("sleep 600")
    expect(shown.stdout).not_to_contain(token)


def test_a_variable_that_you_do_not_have_is_named(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Give the agent variables: a value, or your own variable by its name. They show on no command line.
    export API_TOKEN=secret
    muster create env command --env STAGE=test --env API_TOKEN --no-connect -- sh -c 'echo "$STAGE, ${#API_TOKEN} characters"'
    """)
    result = e2e.run("muster create env command --env API_TOKEN --no-connect -- env", comment="It is not set.")
    expect(result).to_exit_with(2)
    expect(result.stderr).to_contain("--env API_TOKEN: you have no such variable")
    expect(result.stderr).to_contain("write --env API_TOKEN=VALUE")
    assert agents(e2e) == {}


def test_variables_come_from_a_file_whose_comments_are_left_out(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Take variables from a file of NAME=value lines.
    printf '%s\\n' '# for the tests' 'STAGE=test' 'DB_NAME=shop' > ../test.env
    muster create env-file command --env-file ../test.env --no-connect -- sh -c 'echo "$STAGE $DB_NAME"'
    """)
    e2e.run(r"printf '%s\n' '# for the tests' 'STAGE=test' 'DB_NAME=shop' > ../test.env")
    result = e2e.run(
        """muster create env-file command --env-file ../test.env --no-connect -- sh -c 'echo "$STAGE $DB_NAME"'""",
        comment="Take variables from a file.",
    )
    expect(result).to_succeed()
    assert ended(e2e, "env-file")["last_line"] == "test shop"


def test_a_line_of_the_file_that_is_no_variable_is_named(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Take variables from a file of NAME=value lines.
    printf '%s\\n' '# for the tests' 'STAGE=test' 'DB_NAME=shop' > ../test.env
    muster create env-file command --env-file ../test.env --no-connect -- sh -c 'echo "$STAGE $DB_NAME"'
    """)
    (e2e.work.parent / "test.env").write_text("STAGE=test\nDB NAME=shop\n")
    result = e2e.run("muster create env-file command --env-file ../test.env --no-connect -- env", comment="A slip.")
    expect(result).to_exit_with(2)
    expect(result.stderr).to_contain("'DB NAME' is not the name of a variable")
    assert agents(e2e) == {}


# Permissions


def test_ask_leaves_the_client_as_it_is_and_bypass_is_its_own_skip_mode(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Who answers the client's permission dialogs? You (ask, the default), your [permissions] (policy), or nobody is asked (bypass).
    muster config set permissions.allow '["Bash(make test)", "Edit"]'
    muster create careful claude --permissions ask --no-connect -m "Tidy the docs"
    muster create by-rules claude --permissions policy --no-connect -m "Tidy the tests"
    muster create trusted claude --permissions bypass --no-connect -m "Tidy the build"
    """)
    use_built_in_claude(e2e)
    careful = e2e.run('muster create careful claude --permissions ask --no-connect -m "Tidy the docs"')
    trusted = e2e.run('muster create trusted claude --permissions bypass --no-connect -m "Tidy the build"')
    plain = e2e.run('muster create plain claude --no-connect -m "Tidy the docs"', comment="ask is the default.")
    for result in (careful, trusted, plain):
        expect(result).to_succeed()

    def words(name: str) -> str:
        return re.sub("[0-9a-f-]{36}", "ID", re.sub(r"/\S+/client/settings.json", "FILE", told(e2e, name)))

    own = "--session-id\nID\n--settings\nFILE\n"
    assert words("careful") == words("plain") == f"{own}Tidy the docs\n"
    assert words("trusted") == f"{own}--dangerously-skip-permissions\nTidy the build\n"


def test_policy_makes_a_claude_whose_dialogs_the_configuration_answers(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Who answers the client's permission dialogs? You (ask, the default), your [permissions] (policy), or nobody is asked (bypass).
    muster config set permissions.allow '["Bash(make test)", "Edit"]'
    muster create careful claude --permissions ask --no-connect -m "Tidy the docs"
    muster create by-rules claude --permissions policy --no-connect -m "Tidy the tests"
    muster create trusted claude --permissions bypass --no-connect -m "Tidy the build"
    """)
    use_built_in_claude(e2e)
    refused = e2e.run('muster create by-rules claude --permissions policy --no-connect -m "Tidy the tests"')
    expect(refused).to_exit_with(2)
    expect(refused.stderr).to_contain("[permissions] allows and denies nothing")
    expect(e2e.run("""muster config set permissions.allow '["Bash(make test)", "Edit"]'""")).to_succeed()
    result = e2e.run('muster create by-rules claude --permissions policy --no-connect -m "Tidy the tests"')
    expect(result).to_succeed()
    folder = e2e.home / ".local/state/muster/agents" / agents(e2e)["by-rules"]["id"]
    rules = json.loads((folder / "client" / "settings.json").read_text())["permissions"]
    assert (rules["allow"], rules["deny"]) == (["Bash(make test)", "Edit"], [])
    assert "Tidy the tests" in told(e2e, "by-rules")


def test_permissions_that_a_type_does_not_have_are_refused(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Who answers the client's permission dialogs? You (ask, the default), your [permissions] (policy), or nobody is asked (bypass).
    muster config set permissions.allow '["Bash(make test)", "Edit"]'
    muster create careful claude --permissions ask --no-connect -m "Tidy the docs"
    muster create by-rules claude --permissions policy --no-connect -m "Tidy the tests"
    muster create trusted claude --permissions bypass --no-connect -m "Tidy the build"
    """)
    result = e2e.run("muster create trusted command --permissions bypass --no-connect -- true", comment="No dialogs.")
    expect(result).to_exit_with(2)
    expect(result.stderr).to_contain("type command has no --permissions bypass")
    expect(result.stderr).to_contain("leave it out")
    assert agents(e2e) == {}
