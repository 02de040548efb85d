"""Tutorial section 1, First steps: the first agent, from --help to destroy."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from muster import __version__
from muster.cli.main import GROUPS
from muster.tutorial import E2eSession, expect

from ..conftest import eventually
from .conftest import agents, outside

HELLO = ("sh", "-c", 'echo "hello from $MUSTER_AGENT"; sleep 600')


def make_hello(e2e: E2eSession) -> dict[str, Any]:
    """The agent of this section, after it has said its line."""
    outside(e2e, "muster", "create", "hello", "command", "--no-connect", "--", *HELLO)
    eventually(lambda: "hello from hello" in outside(e2e, "muster", "capture", "hello"))
    return agents(e2e)["hello"]


def attach_for_real(e2e: E2eSession) -> None:
    """Without the fixture's connect command, which records, muster attaches as it does for a user."""
    config = e2e.home / ".config" / "muster" / "config.toml"
    config.write_text(config.read_text().replace('connect_command = "muster-e2e-connect"', ""))


def path_without(e2e: E2eSession, program: str) -> str:
    """A PATH with everything that is on the test's, except one program."""
    links = e2e.home / "links"
    links.mkdir()
    for folder in e2e.env["PATH"].split(os.pathsep):
        for file in Path(folder).glob("*"):
            if file.name != program and not (links / file.name).is_symlink():
                (links / file.name).symlink_to(file)
    return str(links)


# Help and doctor


def test_help_shows_every_verb_in_its_group(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # See all verbs, in groups.
    muster --help
    """)
    result = e2e.run("muster --help", comment="See all verbs, in groups.")
    expect(result).to_succeed()
    expect(result.stdout).to_match(r"\AUsage: muster VERB")
    for group, verbs in GROUPS.items():
        lines = result.stdout.partition(f"\n{group}:\n")[2].partition("\n\n")[0].splitlines()
        assert len(lines) == len(verbs)
        assert all(line.startswith(f"  {verb} ") for line, verb in zip(lines, verbs, strict=True))


def test_a_misspelt_verb_is_answered_with_the_nearest_one(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # See all verbs, in groups.
    muster --help
    """)
    result = e2e.run("muster craete hello", comment="A slip of the finger.")
    expect(result).to_exit_with(2)
    expect(result.stdout).to_be_empty()
    expect(result.stderr).to_contain("there is no verb 'craete'")
    expect(result.stderr).to_contain("did you mean 'create'? `muster --help` lists all")


def test_both_forms_of_help_show_examples_first_and_then_every_option(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # See the examples and every option of one verb. Both forms do the same.
    muster create --help
    muster help create
    """)
    by_flag = e2e.run("muster create --help", comment="See the examples and every option of one verb.")
    by_verb = e2e.run("muster help create", comment="Both forms do the same.")
    expect(by_flag).to_succeed()
    expect(by_verb).to_succeed()
    expect(by_verb.stdout).to_equal(by_flag.stdout)
    expect(by_flag.stdout).to_match(
        r"(?s)\AUsage: muster create .*\nExamples:\n  muster create fix-login .*\nOptions:\n"
    )
    for option in ("--message", "--from", "--branch", "--mode", "--label", "--timeout", "--no-connect"):
        expect(by_flag.stdout).to_match(rf"^  (-\w \w+, )?{option}\b")


def test_help_on_a_verb_that_there_is_not_names_the_nearest(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # See the examples and every option of one verb. Both forms do the same.
    muster create --help
    muster help create
    """)
    result = e2e.run("muster help lisst", comment="Help on a misspelt verb.")
    expect(result).to_exit_with(2)
    expect(result.stderr).to_contain("did you mean 'list'?")


def test_version_is_the_one_of_the_package(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Which muster is this?
    muster --version
    """)
    result = e2e.run("muster --version", comment="Which muster is this?")
    expect(result).to_succeed()
    expect(result.stdout).to_equal(f"muster {__version__}\n")


def test_doctor_is_content_where_all_is_there(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Is all there that muster needs? What is missing is named, with the command that fixes it.
    muster doctor
    """)
    result = e2e.run("muster doctor", comment="Is all there that muster needs?")
    expect(result).to_succeed()
    for part in ("git", "tmux", "identity", "home"):
        expect(result.stdout).to_match(rf"^local +{part} +ok ")
    expect(result.stdout).to_contain("Test User <test@example.invalid>")


def test_doctor_names_what_is_missing_with_the_command_that_fixes_it(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Is all there that muster needs? What is missing is named, with the command that fixes it.
    muster doctor
    """)
    result = e2e.run("muster doctor", comment="On a machine without tmux.", env={"PATH": path_without(e2e, "tmux")})
    expect(result).to_exit_with(1)
    expect(result.stdout).to_match(r"^local +tmux +MISSING +- +(\S+ )?install tmux$")
    expect(result.stdout).to_match(r"^local +git +ok ")


def test_doctor_gives_the_command_for_a_missing_git_identity_which_is_no_failure(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Is all there that muster needs? What is missing is named, with the command that fixes it.
    muster doctor
    """)
    (e2e.home / ".gitconfig").write_text("")
    result = e2e.run("muster doctor", comment="git does not know who you are.")
    expect(result).to_succeed()
    expect(result.stdout).to_match(r"^local +identity +missing +- +git config --global user\.name ")


# The first agent


def test_a_command_becomes_an_agent_with_a_work_dir_a_branch_and_a_terminal(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Run a command as an agent. It gets a work dir and a branch of its own, and a terminal that goes on without yours.
    muster create hello command --no-connect -- sh -c 'echo "hello from $MUSTER_AGENT"; sleep 600'
    """)
    result = e2e.run(
        """muster create hello command --no-connect -- sh -c 'echo "hello from $MUSTER_AGENT"; sleep 600'""",
        comment="Run a command as an agent.",
    )
    expect(result).to_succeed()
    expect(result.stdout).to_equal("hello\n")
    hello = agents(e2e)["hello"]
    assert (hello["state"], hello["type"], hello["branch"]) == ("working", "command", "muster/hello")
    assert Path(hello["workdir"], "README").read_text() == "hello\n"
    assert not Path(hello["workdir"]).is_relative_to(e2e.work)
    assert outside(e2e, "git", "branch", "--show-current", cwd=Path(hello["workdir"])) == "muster/hello\n"
    assert not outside(e2e, "git", "branch", "--list", "muster/hello")  # not in your repository before you pull
    eventually(lambda: "hello from hello" in outside(e2e, "muster", "capture", "hello"))


def test_a_name_that_is_taken_is_refused_and_the_first_agent_goes_on(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Run a command as an agent. It gets a work dir and a branch of its own, and a terminal that goes on without yours.
    muster create hello command --no-connect -- sh -c 'echo "hello from $MUSTER_AGENT"; sleep 600'
    """)
    before = make_hello(e2e)
    result = e2e.run("muster create hello command --no-connect -- true", comment="The same name again.")
    expect(result).to_exit_with(5)
    expect(result.stderr).to_contain("there is an agent hello already")
    expect(result.stderr).to_contain("muster destroy hello")
    after = agents(e2e)["hello"]
    assert (after["state"], after["created"]) == ("working", before["created"])


def test_a_command_agent_without_a_command_is_told_what_to_type(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Run a command as an agent. It gets a work dir and a branch of its own, and a terminal that goes on without yours.
    muster create hello command --no-connect -- sh -c 'echo "hello from $MUSTER_AGENT"; sleep 600'
    """)
    result = e2e.run("muster create hello command --no-connect", comment="The command was forgotten.")
    expect(result).to_exit_with(2)
    expect(result.stderr).to_contain("muster create NAME command -- make test")
    assert agents(e2e) == {}
    assert not outside(e2e, "git", "branch", "--list", "muster/*")


def test_list_shows_who_is_there_and_in_which_state(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # See who is there and in which state.
    muster list
    """)
    make_hello(e2e)
    outside(e2e, "muster", "create", "broken", "command", "--no-connect", "--", "sh", "-c", "exit 3")
    outside(e2e, "muster", "wait", "broken")
    result = e2e.run("muster list", comment="See who is there and in which state.")
    expect(result).to_succeed()
    expect(result.stdout).to_match(r"^NAME +STATE +REASON +AGE +TYPE +HOST +BRANCH +COST +LAST LINE$")
    expect(result.stdout).to_match(r"^hello +working +- +\d+s +command +local +muster/hello +- +hello from hello$")
    expect(result.stdout).to_match(r"^broken +failed +exit 3 +\d+s +command +local +muster/broken ")


def test_the_last_line_in_the_list_has_no_rest_of_a_colour_in_it(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # See who is there and in which state.
    muster list
    """)
    # Two lengths that differ by one: what is cut off ends inside a sequence for at least one of them.
    for name, text in (("one", "end"), ("two", "end.")):
        colourful = f"printf '\\033[38;5;123m%.0s' $(seq 100); echo {text}"
        outside(e2e, "muster", "create", name, "command", "--no-connect", "--", "sh", "-c", colourful)
    outside(e2e, "muster", "wait", "one", "two")
    result = e2e.run("muster list --format '{last_line}'", comment="Lines with many colours.")
    assert sorted(result.stdout.splitlines()) == ["end", "end."]


def test_list_of_nobody_says_how_to_begin(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # See who is there and in which state.
    muster list
    """)
    result = e2e.run("muster list", comment="Nobody is there yet.")
    expect(result).to_succeed()
    expect(result.stdout).to_be_empty()
    expect(result.stderr).to_equal("there are no agents yet; muster create makes one\n")


def test_ls_is_list(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # The short form of list.
    muster ls
    """)
    make_hello(e2e)
    short = e2e.run("muster ls", comment="The short form of list.")
    long = e2e.run("muster list", comment="The long one.")
    expect(short).to_succeed()
    expect(short.stdout).to_match("^hello +working ")
    expect(short.stdout).to_match("^NAME +STATE ")
    # The age may have gone on by a second between the two.
    assert [line.split()[:3] for line in short.stdout.splitlines()] == [
        line.split()[:3] for line in long.stdout.splitlines()
    ]


def test_capture_prints_the_screen_and_leaves_it_as_it_is(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Look at an agent's screen without touching it.
    muster capture hello
    """)
    before = make_hello(e2e)
    for _ in range(2):
        result = e2e.run("muster capture hello", comment="Look at an agent's screen without touching it.")
        expect(result).to_succeed()
        expect(result.stdout).to_equal("hello from hello\n")
    assert agents(e2e)["hello"] == before


def test_capture_of_an_unknown_agent_lists_those_that_there_are(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Look at an agent's screen without touching it.
    muster capture hello
    """)
    make_hello(e2e)
    result = e2e.run("muster capture helo", comment="A misspelt name.")
    expect(result).to_exit_with(3)
    expect(result.stdout).to_be_empty()
    expect(result.stderr).to_contain("there is no agent helo")
    expect(result.stderr).to_match(r"^ +.*\bhello\b")


def test_exec_runs_in_the_work_dir_on_the_agents_branch(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Run something in the agent's work dir. The output and the exit code are the command's own.
    muster exec hello -- git status --short --branch
    """)
    hello = make_hello(e2e)
    Path(hello["workdir"], "new.txt").write_text("mine\n")
    result = e2e.run(
        "muster exec hello -- git status --short --branch", comment="Run something in the agent's work dir."
    )
    expect(result).to_succeed()
    expect(result.stdout).to_equal("## muster/hello\n?? new.txt\n")
    expect(result.stderr).to_be_empty()


def test_exec_gives_the_exit_code_and_the_streams_of_the_command(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Run something in the agent's work dir. The output and the exit code are the command's own.
    muster exec hello -- git status --short --branch
    """)
    make_hello(e2e)
    result = e2e.run(
        "muster exec hello -- sh -c 'echo out; echo err >&2; exit 42'",
        comment="The output and the exit code are the command's own.",
    )
    expect(result).to_exit_with(42)
    expect(result.stdout).to_equal("out\n")
    expect(result.stderr).to_equal("err\n")


def test_connect_shows_the_agents_terminal_and_ctrl_b_d_leaves_it_running(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Attach your terminal to the agent. Leave it with Ctrl-b d; the agent goes on.
    muster connect hello
    """)
    make_hello(e2e)
    attach_for_real(e2e)
    terminal = e2e.terminal("muster connect hello", size=(100, 30), comment="Attach your terminal to the agent.")
    expect(terminal).to_show("hello from hello")
    terminal.press("Ctrl-b", "d")
    expect(terminal).to_exit_with(0)
    assert agents(e2e)["hello"]["state"] == "working"


def test_connect_without_a_terminal_says_what_works_instead(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Attach your terminal to the agent. Leave it with Ctrl-b d; the agent goes on.
    muster connect hello
    """)
    make_hello(e2e)
    attach_for_real(e2e)
    result = e2e.run("muster connect hello", comment="In a script there is no terminal.")
    expect(result).to_exit_with(2)
    expect(result.stderr).to_contain("connect needs a terminal")
    expect(result.stderr).to_contain("muster capture hello prints the screen")


def test_connect_to_an_agent_that_has_ended_says_how_to_go_on(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Attach your terminal to the agent. Leave it with Ctrl-b d; the agent goes on.
    muster connect hello
    """)
    make_hello(e2e)
    outside(e2e, "muster", "stop", "hello", "--grace", "0")
    attach_for_real(e2e)
    terminal = e2e.terminal("muster connect hello", size=(100, 30), comment="It was stopped meanwhile.")
    expect(terminal).to_exit_with(1)
    expect(terminal).to_show("hello is stopped")
    expect(terminal).to_show("muster start hello")


def test_a_stopped_agent_keeps_its_files_and_its_branch(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # End the agent. Its files and its branch stay.
    muster stop hello
    """)
    hello = make_hello(e2e)
    draft = Path(hello["workdir"], "draft.txt")
    draft.write_text("not committed\n")
    result = e2e.run("muster stop hello", comment="End the agent. Its files and its branch stay.")
    expect(result).to_succeed()
    expect(result.stderr).to_equal("stopped hello\n")
    assert agents(e2e)["hello"]["state"] == "stopped"
    assert draft.read_text() == "not committed\n"
    assert outside(e2e, "git", "branch", "--show-current", cwd=Path(hello["workdir"])) == "muster/hello\n"


def test_stopping_an_agent_twice_is_no_error(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # End the agent. Its files and its branch stay.
    muster stop hello
    """)
    make_hello(e2e)
    outside(e2e, "muster", "stop", "hello")
    result = e2e.run("muster stop hello", comment="It is stopped already.")
    expect(result).to_succeed()
    assert agents(e2e)["hello"]["state"] == "stopped"


def test_a_destroyed_agent_is_gone_and_comes_back_from_the_trash_with_all_it_had(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Remove the agent. Nothing is lost: what it had is in the trash for 30 days.
    muster destroy hello
    """)
    hello = make_hello(e2e)
    Path(hello["workdir"], "draft.txt").write_text("not committed\n")
    result = e2e.run("muster destroy hello", comment="Remove the agent.")
    expect(result).to_succeed()
    expect(result.stderr).to_match(r"^destroyed hello; kept for 30 days: .*\(muster restore hello\)$")
    assert agents(e2e) == {}
    assert not Path(hello["workdir"]).exists()
    expect(e2e.run("muster restore hello", comment="Nothing is lost.")).to_succeed()
    expect(e2e.run("muster exec hello -- cat draft.txt").stdout).to_equal("not committed\n")


def test_destroy_of_an_unknown_agent_removes_nobody(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Remove the agent. Nothing is lost: what it had is in the trash for 30 days.
    muster destroy hello
    """)
    make_hello(e2e)
    result = e2e.run("muster destroy helo", comment="A misspelt name.")
    expect(result).to_exit_with(3)
    expect(result.stderr).to_contain("there is no agent helo")
    assert agents(e2e)["hello"]["state"] == "working"
