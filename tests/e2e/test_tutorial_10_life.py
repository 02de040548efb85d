"""Tutorial section 10, Names, labels, stopping and going on."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from muster.tutorial import E2eSession, expect

from ..conftest import eventually
from .conftest import agents, outside

PLAYBOOK = """
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


def replay(e2e: E2eSession, name: str, *options: str) -> dict[str, Any]:
    """An agent with one commit that asks something."""
    (e2e.work.parent / "greet.toml").write_text(PLAYBOOK)
    outside(e2e, "muster", "create", name, "replay", "--no-connect", *options, "--", "../greet.toml")
    return until(e2e, name, "waiting")


def command(e2e: E2eSession, name: str, script: str, *options: str) -> dict[str, Any]:
    outside(e2e, "muster", "create", name, "command", "--no-connect", *options, "--", "sh", "-c", script)
    return agents(e2e)[name]


def states(e2e: E2eSession) -> dict[str, str]:
    return {name: one["state"] for name, one in agents(e2e).items()}


def labels(e2e: E2eSession) -> dict[str, dict[str, str]]:
    return {name: one["labels"] for name, one in agents(e2e).items()}


def until(e2e: E2eSession, name: str, state: str) -> dict[str, Any]:
    outside(e2e, "muster", "wait", name, "--until", state, "--timeout", "60s")
    return agents(e2e)[name]


# Names


def test_an_agent_is_renamed_while_it_works(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Give an agent another name. It may be at work meanwhile.
    muster rename greet-b hello-b
    """)
    before = command(e2e, "greet-b", "sleep 600")
    result = e2e.run("muster rename greet-b hello-b", comment="Give an agent another name.")
    expect(result).to_succeed()
    after = agents(e2e)
    assert list(after) == ["hello-b"]
    assert after["hello-b"]["state"] == "working"
    assert after["hello-b"]["branch"] == "muster/hello-b"
    assert after["hello-b"]["workdir"] == before["workdir"]
    expect(e2e.run("muster exec hello-b -- git branch --show-current").stdout).to_equal("muster/hello-b\n")
    assert "muster/greet-b" not in outside(e2e, "git", "branch", "--format=%(refname:short)")


def test_a_renamed_agent_still_takes_answers(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Give an agent another name. It may be at work meanwhile.
    muster rename greet-b hello-b
    """)
    replay(e2e, "greet-b")
    expect(e2e.run("muster rename greet-b hello-b")).to_succeed()
    expect(e2e.run("muster answer hello-b 'yes'")).to_succeed()
    until(e2e, "hello-b", "ready")
    expect(e2e.run("muster transcript hello-b --last 1").stdout).to_contain("You said: yes")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ("greet-c hello-b", 3, "did you mean greet-b?"),
        ("greet-b other", 5, "there is an agent other already"),
        ("greet-b 'hello b'", 2, "use letters, digits, - and _"),
        ("greet-b", 2, "NEW"),
    ],
)
def test_a_rename_that_cannot_be_done_changes_nothing(e2e: E2eSession, arguments: str, code: int, said: str) -> None:
    e2e.write_tutorial_block("""
    # Give an agent another name. It may be at work meanwhile.
    muster rename greet-b hello-b
    """)
    command(e2e, "greet-b", "sleep 600")
    command(e2e, "other", "sleep 600")
    result = e2e.run(f"muster rename {arguments}")
    expect(result).to_exit_with(code)
    expect(result.stderr).to_contain(said)
    assert {name: one["branch"] for name, one in agents(e2e).items()} == {
        "greet-b": "muster/greet-b",
        "other": "muster/other",
    }


# Labels


def test_labels_are_set_beside_those_that_are_there(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Set labels.
    muster label hello-b --set owner=me --set run=43
    """)
    command(e2e, "hello-b", "sleep 600", "--label", "run=42", "--label", "kind=check")
    expect(e2e.run("muster label hello-b --set owner=me --set run=43", comment="Set labels.")).to_succeed()
    assert labels(e2e) == {"hello-b": {"run": "43", "kind": "check", "owner": "me"}}


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ("--set owner=me", 2, "no agent was named"),
        ("hello-c --set owner=me", 3, "there is no agent hello-c"),
        ("hello-b --set run=43 --remove run", 2, "the same label is set and removed"),
        ("hello-b --set =43", 2, "=43"),
    ],
)
def test_labels_that_cannot_be_set_change_nothing(e2e: E2eSession, arguments: str, code: int, said: str) -> None:
    e2e.write_tutorial_block("""
    # Set labels.
    muster label hello-b --set owner=me --set run=43
    """)
    command(e2e, "hello-b", "sleep 600", "--label", "run=42")
    result = e2e.run(f"muster label {arguments}")
    expect(result).to_exit_with(code)
    expect(result.stderr).to_contain(said)
    assert labels(e2e) == {"hello-b": {"run": "42"}}


def two_labelled(e2e: E2eSession) -> None:
    command(e2e, "hello-b", "sleep 600", "--label", "owner=me", "--label", "run=43")
    command(e2e, "plain", "sleep 600")


def test_the_labels_of_all_agents_are_shown(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # See the labels of all agents.
    muster label --all
    """)
    two_labelled(e2e)
    result = e2e.run("muster label --all", comment="See the labels of all agents.")
    expect(result).to_succeed()
    expect(result.stdout).to_match(r"^hello-b: owner=me, run=43$")
    expect(result.stdout).to_match(r"^plain: no labels$")
    assert labels(e2e) == {"hello-b": {"owner": "me", "run": "43"}, "plain": {}}


def test_labels_of_all_that_have_one_are_changed(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Change the labels of all agents that have one.
    muster label --label run=43 --set run=44 --remove owner
    """)
    command(e2e, "hello-b", "sleep 600", "--label", "owner=me", "--label", "run=43")
    command(e2e, "second", "sleep 600", "--label", "run=43")
    command(e2e, "other", "sleep 600", "--label", "owner=me", "--label", "run=42")
    result = e2e.run("muster label --label run=43 --set run=44 --remove owner", comment="Of all that have one.")
    expect(result).to_succeed()
    assert labels(e2e) == {"hello-b": {"run": "44"}, "second": {"run": "44"}, "other": {"owner": "me", "run": "42"}}


def test_a_label_that_nobody_has_selects_nothing(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Change the labels of all agents that have one.
    muster label --label run=43 --set run=44 --remove owner
    """)
    command(e2e, "other", "sleep 600", "--label", "owner=me")
    result = e2e.run("muster label --label run=43 --set run=44 --remove owner")
    expect(result).to_exit_with(3)
    expect(result.stderr).to_contain("no agent has these labels")
    assert labels(e2e) == {"other": {"owner": "me"}}


# Stopping and going on


def test_a_stopped_agent_may_end_by_itself_first(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Stop an agent; it has 30 seconds to end by itself.
    muster stop hello-b --grace 30s
    """)
    script = 'trap "echo saved > saved.txt; exit 0" TERM; echo up; while :; do sleep 0.05; done'
    command(e2e, "hello-b", script)
    eventually(lambda: "up" in outside(e2e, "muster", "capture", "hello-b"))
    result = e2e.run("muster stop hello-b --grace 30s", comment="It has 30 seconds to end by itself.")
    expect(result).to_succeed()
    assert result.duration < 25, "it is not waited for longer than it needs"
    assert states(e2e) == {"hello-b": "stopped"}
    expect(e2e.run("muster exec hello-b -- cat saved.txt").stdout).to_equal("saved\n")


def test_an_agent_that_does_not_end_by_itself_is_ended(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Stop an agent; it has 30 seconds to end by itself.
    muster stop hello-b --grace 30s
    """)
    command(e2e, "hello-b", 'trap "" TERM HUP INT; echo $$ > pid; echo up; while :; do sleep 0.05; done')
    eventually(lambda: "up" in outside(e2e, "muster", "capture", "hello-b"))
    pid = int(outside(e2e, "muster", "exec", "hello-b", "--", "cat", "pid"))
    expect(e2e.run("muster stop hello-b --grace 0.2s", comment="With less patience.")).to_succeed()
    assert states(e2e) == {"hello-b": "stopped"}
    eventually(lambda: not os.path.exists(f"/proc/{pid}"))


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ("hello-c --grace 30s", 3, "there is no agent hello-c"),
        ("hello-b --grace soon", 2, "write 90, 90s, 15m, 2h or 1d"),
        ("", 2, "no agent was named"),
    ],
)
def test_a_stop_that_is_not_understood_stops_nobody(e2e: E2eSession, arguments: str, code: int, said: str) -> None:
    e2e.write_tutorial_block("""
    # Stop an agent; it has 30 seconds to end by itself.
    muster stop hello-b --grace 30s
    """)
    command(e2e, "hello-b", "sleep 600")
    result = e2e.run(f"muster stop {arguments}")
    expect(result).to_exit_with(code)
    expect(result.stderr).to_contain(said)
    assert states(e2e) == {"hello-b": "working"}


def test_a_stopped_agent_goes_on_with_its_work_and_its_conversation(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Go on with it: same work dir, same conversation.
    muster start hello-b
    """)
    before = replay(e2e, "hello-b")
    outside(e2e, "muster", "exec", "hello-b", "--", "sh", "-c", "echo draft > draft.txt")
    outside(e2e, "muster", "stop", "hello-b", "--grace", "0")
    assert states(e2e) == {"hello-b": "stopped"}
    expect(e2e.run("muster start hello-b", comment="Go on with it.")).to_succeed()
    after = until(e2e, "hello-b", "waiting")
    assert (after["reason"], after["workdir"], after["id"]) == ("question", before["workdir"], before["id"])
    expect(e2e.run("muster exec hello-b -- git status --porcelain").stdout).to_equal("?? draft.txt\n")
    expect(e2e.run("muster answer hello-b 'no, thank you'")).to_succeed()
    until(e2e, "hello-b", "ready")
    talk = e2e.run("muster transcript hello-b").stdout
    expect(talk).to_match(r"(?s)Shall I also say goodbye\?.*no, thank you.*You said: no, thank you")
    assert talk.count("Shall I also say goodbye?") == 1, "nothing is repeated"


def test_starting_one_that_runs_is_no_error(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Go on with it: same work dir, same conversation.
    muster start hello-b
    """)
    command(e2e, "hello-b", "sleep 600")
    pid = tmux_pids(e2e)
    result = e2e.run("muster start hello-b")
    expect(result).to_succeed()
    expect(result.stderr).to_contain("hello-b is already running")
    assert tmux_pids(e2e) == pid


def test_starting_an_unknown_agent_is_an_error(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Go on with it: same work dir, same conversation.
    muster start hello-b
    """)
    result = e2e.run("muster start hello-b")
    expect(result).to_exit_with(3)
    expect(result.stderr).to_contain("there is no agent hello-b")


def run_44(e2e: E2eSession) -> None:
    """Two agents of run 44, of which one has ended, and one that is not of it."""
    replay(e2e, "hello-b", "--label", "run=44")
    command(e2e, "ended", "true", "--label", "run=44")
    command(e2e, "other", "sleep 600", "--label", "run=43")
    until(e2e, "ended", "done")


def test_all_agents_of_a_run_are_stopped(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Stop all agents of a run. An agent that has ended already is no error.
    muster stop --label run=44
    """)
    run_44(e2e)
    result = e2e.run("muster stop --label run=44", comment="Stop all agents of a run.")
    expect(result).to_succeed()
    expect(result.stderr).to_contain("stopped hello-b")
    expect(result.stderr).to_contain("ended had ended already (done)")
    assert states(e2e) == {"hello-b": "stopped", "ended": "done", "other": "working"}


def test_all_agents_of_a_run_are_started_again(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Start them again.
    muster start --label run=44
    """)
    run_44(e2e)
    outside(e2e, "muster", "stop", "--all", "--grace", "0")
    result = e2e.run("muster start --label run=44", comment="Start them again.")
    expect(result).to_succeed()
    expect(result.stderr).to_contain("started hello-b")
    expect(result.stderr).to_contain("started ended")
    until(e2e, "hello-b", "waiting")
    until(e2e, "ended", "done")
    assert states(e2e) == {"hello-b": "waiting", "ended": "done", "other": "stopped"}


def test_everything_is_stopped_in_the_evening_and_goes_on_in_the_morning(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # The evening: stop everything. The morning: go on with everything.
    muster stop --all --grace 2s
    muster start --all
    """)
    replay(e2e, "hello-b")
    command(e2e, "sleeper", "sleep 600")
    expect(e2e.run("muster stop --all --grace 2s", comment="The evening.")).to_succeed()
    assert states(e2e) == {"hello-b": "stopped", "sleeper": "stopped"}
    expect(e2e.run("muster start --all", comment="The morning.")).to_succeed()
    assert until(e2e, "hello-b", "waiting")["reason"] == "question"
    assert until(e2e, "sleeper", "working")["exit_code"] is None


def test_without_agents_there_is_nothing_to_stop(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # The evening: stop everything. The morning: go on with everything.
    muster stop --all --grace 2s
    muster start --all
    """)
    expect(e2e.run("muster stop --all --grace 2s")).to_succeed()
    expect(e2e.run("muster start --all")).to_succeed()
    assert states(e2e) == {}


# Names from another program


def tmux_pids(e2e: E2eSession) -> list[int]:
    """The pid of muster's tmux server, and those of the panes in it."""
    ask = (
        "tmux",
        "-S",
        str(e2e.home / ".local/state/muster/tmux.sock"),
        "list-panes",
        "-a",
        "-F",
        "#{pid} #{pane_pid}",
    )
    return [int(word) for word in outside(e2e, *ask).split()]


def test_those_that_a_crash_took_go_on(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Names from another program: - reads them from stdin.
    muster list --state lost --format '{address}' | muster start -
    """)
    replay(e2e, "hello-b")
    command(e2e, "sleeper", "sleep 600")
    command(e2e, "stays", "true")
    until(e2e, "stays", "done")
    os.kill(tmux_pids(e2e)[0], signal.SIGKILL)
    # Their programs end a moment after their terminals.
    eventually(lambda: states(e2e) == {"hello-b": "lost", "sleeper": "lost", "stays": "done"})
    result = e2e.run(
        "muster list --state lost --format '{address}' | muster start -", comment="Names from another program."
    )
    expect(result).to_succeed()
    until(e2e, "hello-b", "waiting")
    until(e2e, "sleeper", "working")
    assert states(e2e) == {"hello-b": "waiting", "sleeper": "working", "stays": "done"}


def test_when_nobody_is_lost_nothing_is_started(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Names from another program: - reads them from stdin.
    muster list --state lost --format '{address}' | muster start -
    """)
    command(e2e, "ended", "true")
    until(e2e, "ended", "done")
    expect(e2e.run("muster list --state lost --format '{address}' | muster start -")).to_succeed()
    assert states(e2e) == {"ended": "done"}


def test_a_name_on_stdin_that_there_is_not_is_told_and_the_others_start(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Names from another program: - reads them from stdin.
    muster list --state lost --format '{address}' | muster start -
    """)
    command(e2e, "sleeper", "sleep 600")
    outside(e2e, "muster", "stop", "sleeper", "--grace", "0")
    result = e2e.run("printf '%s\\n' sleeper nobody | muster start -")
    expect(result).to_exit_with(3)
    expect(result.stderr).to_contain("there is no agent nobody")
    assert until(e2e, "sleeper", "working")["state"] == "working"
