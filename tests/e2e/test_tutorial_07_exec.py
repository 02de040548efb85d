"""Tutorial section 7, Running things in a work dir."""

from __future__ import annotations

import json
from typing import Any

import pytest

from muster.tutorial import E2eSession, expect

from .conftest import outside

PLAYBOOK = """
[[step]]
write = "greet.txt"
text = "hello\\n"
[[step]]
commit = "Add a greeting"
[[step]]
ask = "Shall I also say goodbye?"
"""


@pytest.fixture(autouse=True)
def greet(e2e: E2eSession) -> dict[str, Any]:
    """The agent of this section has one commit and asks something."""
    (e2e.work.parent / "greet.toml").write_text(PLAYBOOK)
    outside(e2e, "muster", "create", "greet", "replay", "--no-connect", "--", "../greet.toml")
    outside(e2e, "muster", "wait", "greet", "--until", "waiting", "--timeout", "60s")
    made: dict[str, Any] = json.loads(outside(e2e, "muster", "list", "--json"))["agents"][0]
    return made


def test_exec_sees_what_the_agent_has_now(e2e: E2eSession, greet: dict[str, Any]) -> None:
    e2e.write_tutorial_block("""
    # Run the tests on what the agent has now. It works on agents that have ended, too.
    muster exec greet -- sh -c 'git diff --check && echo clean'
    """)
    result = e2e.run(
        "muster exec greet -- sh -c 'git diff --check && echo clean'",
        comment="Run the tests on what the agent has now.",
    )
    expect(result).to_succeed()
    expect(result.stdout).to_equal("clean\n")
    expect(result.stderr).to_be_empty()
    where = e2e.run("muster exec greet -- sh -c 'pwd; git branch --show-current; cat greet.txt'")
    expect(where.stdout).to_equal(f"{greet['workdir']}\nmuster/greet\nhello\n")


def test_the_exit_code_and_the_errors_are_the_commands_own(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Run the tests on what the agent has now. It works on agents that have ended, too.
    muster exec greet -- sh -c 'git diff --check && echo clean'
    """)
    e2e.run(
        "muster exec greet -- sh -c 'echo \"a line with a space at its end \" >> greet.txt'", comment="An untidy agent."
    )
    result = e2e.run("muster exec greet -- sh -c 'git diff --check && echo clean'")
    expect(result).to_exit_with(2)
    expect(result.stdout).to_contain("greet.txt:2: trailing whitespace.")
    expect(result.stdout).not_to_contain("clean")
    failed = e2e.run("muster exec greet -- sh -c 'echo tests failed >&2; exit 42'")
    expect(failed).to_exit_with(42)
    expect(failed.stderr).to_equal("tests failed\n")


def test_exec_works_in_a_stopped_agent(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Run the tests on what the agent has now. It works on agents that have ended, too.
    muster exec greet -- sh -c 'git diff --check && echo clean'
    """)
    outside(e2e, "muster", "stop", "greet", "--grace", "0")
    expect(e2e.run("muster list --format '{name} {state}'").stdout).to_equal("greet stopped\n")
    result = e2e.run("muster exec greet -- sh -c 'git diff --check && echo clean'")
    expect(result).to_succeed()
    expect(result.stdout).to_equal("clean\n")


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ("muster exec greet", 2, "muster exec greet -- COMMAND"),
        ("muster exec great -- ls", 3, "did you mean greet?"),
        ("muster exec greet -- no-such-program", 127, "no-such-program: not found"),
    ],
)
def test_exec_says_what_it_lacks(e2e: E2eSession, command: str, code: int, said: str) -> None:
    e2e.write_tutorial_block("""
    # Run the tests on what the agent has now. It works on agents that have ended, too.
    muster exec greet -- sh -c 'git diff --check && echo clean'
    """)
    result = e2e.run(command)
    expect(result).to_exit_with(code)
    expect(result.stdout).to_be_empty()
    expect(result.stderr).to_contain(said)


def test_a_file_goes_in_and_the_output_is_kept(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Feed it a file and keep its output.
    muster exec greet -- tr a-z A-Z < ../task.md > ../shouted.txt
    """)
    (e2e.work.parent / "task.md").write_text("Make the tests faster.\nMeasure.\n")
    expect(
        e2e.run(
            "muster exec greet -- tr a-z A-Z < ../task.md > ../shouted.txt",
            comment="Feed it a file and keep its output.",
        )
    ).to_succeed()
    assert (e2e.work.parent / "shouted.txt").read_text() == "MAKE THE TESTS FASTER.\nMEASURE.\n"


def test_bytes_come_through_as_they_are(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Feed it a file and keep its output.
    muster exec greet -- tr a-z A-Z < ../task.md > ../shouted.txt
    """)
    data = bytes(range(256)) * 500
    result = e2e.run("muster exec greet -- tee copy.bin", input=data, comment="A file that is no text.")
    expect(result).to_succeed()
    assert result.stdout_bytes == data
    expect(e2e.run("muster exec greet -- wc -c copy.bin").stdout).to_contain("128000")


def test_on_a_terminal_exec_is_a_shell_in_the_work_dir(e2e: E2eSession, greet: dict[str, Any]) -> None:
    e2e.write_tutorial_block("""
    # On a terminal this is a shell in the work dir.
    muster exec greet -- bash
    """)
    with e2e.terminal("muster exec greet -- bash", size=(160, 24), comment="A shell in the work dir.") as shell:
        shell.type("PS1='greet> '; tty -s && echo on a terminal in $PWD\n")
        expect(shell).to_show(f"on a terminal in {greet['workdir']}")
        shell.type("echo by hand > by-hand.txt; exit 3\n")
        expect(shell).to_exit_with(3)
    expect(e2e.run("muster exec greet -- cat by-hand.txt").stdout).to_equal("by hand\n")


def test_without_a_terminal_the_shell_reads_its_commands(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # On a terminal this is a shell in the work dir.
    muster exec greet -- bash
    """)
    result = e2e.run("muster exec greet -- bash", input="git branch --show-current\nexit 4\n")
    expect(result).to_exit_with(4)
    expect(result.stdout).to_equal("muster/greet\n")
