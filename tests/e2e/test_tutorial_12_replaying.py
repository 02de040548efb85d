"""Tutorial section 12, Recording and replaying: what an agent really did, once more and for free."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from muster.tutorial import E2eSession, expect

from .conftest import agents, outside

PLAYBOOK = """
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


@pytest.fixture(autouse=True)
def greet(e2e: E2eSession) -> None:
    """The agent of this section said two things, made a commit, and left a file uncommitted."""
    (e2e.work.parent / "greet.toml").write_text(PLAYBOOK)
    outside(e2e, "muster", "create", "greet", "replay", "--no-connect", "--", "../greet.toml")
    outside(e2e, "muster", "wait", "greet", "--until", "waiting", "--timeout", "60s")
    outside(e2e, "muster", "answer", "greet", "no, that is all")
    outside(e2e, "muster", "wait", "greet", "--until", "ready", "--timeout", "60s")
    outside(e2e, "muster", "exec", "greet", "--", "sh", "-c", "echo draft > draft.txt")


def said(steps: list[dict[str, Any]], kind: str) -> list[str]:
    return [step[kind] for step in steps if kind in step]


def test_record_writes_what_the_agent_really_did(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Write a playbook from what an agent really did.
    muster record greet
    """)
    result = e2e.run("muster record greet", comment="Write a playbook from what an agent really did.")
    expect(result).to_succeed()
    steps = tomllib.loads(result.stdout)["step"]
    assert said(steps, "say") == ["I will add a greeting.", "You said: no, that is all"]
    assert said(steps, "commit") == ["Add a greeting"]
    assert said(steps, "ask") == ["Shall I also say goodbye?"]
    committed, uncommitted = said(steps, "patch")
    assert "greet.txt" in committed and "draft.txt" in uncommitted
    assert "draft.txt" not in committed


def test_a_record_keeps_the_order_in_which_things_happened(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Write a playbook from what an agent really did.
    muster record greet
    """)
    pair = '[[step]]\nsay = "{n}"\n[[step]]\nrun = "echo > {n}; git add {n}; git commit -q -m {n}"\n'
    pairs = "".join(pair.format(n=n) for n in range(6))
    (e2e.work.parent / "pairs.toml").write_text(pairs)
    outside(e2e, "muster", "create", "pairs", "replay", "--no-connect", "--", "../pairs.toml")
    outside(e2e, "muster", "wait", "pairs", "--until", "ready", "--timeout", "60s")
    steps = tomllib.loads(e2e.run("muster record pairs").stdout)["step"]
    happened = [(kind, step[kind]) for step in steps for kind in ("say", "commit") if kind in step]
    assert happened == [(kind, n) for n in "012345" for kind in ("say", "commit")]


def test_record_works_on_an_agent_that_was_stopped(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Write a playbook from what an agent really did.
    muster record greet
    """)
    running = e2e.run("muster record greet").stdout
    expect(e2e.run("muster stop greet")).to_succeed()
    expect(e2e.run("muster record greet").stdout).to_equal(running)


def test_record_of_an_unknown_agent_is_told(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Write a playbook from what an agent really did.
    muster record greet
    """)
    result = e2e.run("muster record great")
    expect(result).to_exit_with(3)
    expect(result.stdout).to_be_empty()
    expect(result.stderr).to_contain("did you mean greet?")


def test_record_overwrites_a_file_only_when_forced(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Into a file. An existing one is overwritten only with --force.
    muster record greet --output ../again.toml
    muster record greet -o ../again.toml --force
    """)
    file = e2e.work.parent / "again.toml"
    result = e2e.run("muster record greet --output ../again.toml", comment="Into a file.")
    expect(result).to_succeed()
    expect(result.stdout).to_be_empty()
    written = file.read_text()
    assert said(tomllib.loads(written)["step"], "commit") == ["Add a greeting"]
    file.write_text("# mine\n")
    refused = e2e.run("muster record greet --output ../again.toml", comment="An existing one is not overwritten.")
    expect(refused).to_exit_with(5)
    expect(refused.stderr).to_contain("--force overwrites it")
    assert file.read_text() == "# mine\n"
    expect(e2e.run("muster record greet -o ../again.toml --force", comment="Only with --force.")).to_succeed()
    assert file.read_text() == written


def test_record_into_a_folder_that_is_not_there_is_told(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Into a file. An existing one is overwritten only with --force.
    muster record greet --output ../again.toml
    muster record greet -o ../again.toml --force
    """)
    result = e2e.run("muster record greet --output ../no-such-folder/again.toml")
    expect(result).to_exit_with(1)
    expect(result.stderr).to_contain("no-such-folder/again.toml")
    expect(result.stderr).not_to_contain("Traceback")


def test_what_was_recorded_is_done_again(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Do it again, for free.
    muster create again replay --no-connect -- ../again.toml
    """)
    outside(e2e, "muster", "record", "greet", "--output", "../again.toml")
    result = e2e.run("muster create again replay --no-connect -- ../again.toml", comment="Do it again, for free.")
    expect(result).to_succeed()
    expect(e2e.run("muster wait again --until waiting --timeout 60s")).to_succeed()
    expect(e2e.run("muster answer again 'no, that is all'")).to_succeed()
    expect(e2e.run("muster wait again --until ready --timeout 60s")).to_succeed()
    assert outside(e2e, "muster", "diff", "again") == outside(e2e, "muster", "diff", "greet")
    log = ("git", "log", "--format=%s %T")
    assert outside(e2e, *log, "muster/again") == outside(e2e, *log, "muster/greet")
    expect(e2e.run("muster transcript again").stdout).to_contain("You said: no, that is all")
    assert agents(e2e)["again"]["type"] == "replay"


def test_a_playbook_that_is_not_there_makes_no_agent(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Do it again, for free.
    muster create again replay --no-connect -- ../again.toml
    """)
    result = e2e.run("muster create again replay --no-connect -- ../again.toml", comment="It was not recorded.")
    expect(result).to_exit_with(3)
    expect(result.stderr).to_contain("no playbook ../again.toml")
    assert list(agents(e2e)) == ["greet"]


def test_a_playbook_with_an_unknown_step_makes_no_agent(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Do it again, for free.
    muster create again replay --no-connect -- ../again.toml
    """)
    (e2e.work.parent / "again.toml").write_text('[[step]]\nsy = "hello"\n')
    result = e2e.run("muster create again replay --no-connect -- ../again.toml")
    expect(result).to_exit_with(2)
    expect(result.stderr).to_contain("no kind of step is called 'sy'; did you mean 'say'?")
    assert list(agents(e2e)) == ["greet"]
