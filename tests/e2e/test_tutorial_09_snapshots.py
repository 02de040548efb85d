"""Tutorial section 9, Snapshots and clones: keeping a state, going back to it, going on from it twice."""

from __future__ import annotations

import json

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
    """The agent of this section has a commit and a file that it has not committed, and asks something."""
    (e2e.work.parent / "greet.toml").write_text(PLAYBOOK)
    outside(e2e, "muster", "create", "greet", "replay", "--no-connect", "--", "../greet.toml")
    outside(e2e, "muster", "wait", "greet", "--until", "waiting", "--timeout", "60s")
    inside(e2e, "echo draft > draft.txt")


def inside(e2e: E2eSession, script: str, name: str = "greet") -> str:
    return outside(e2e, "muster", "exec", name, "--", "sh", "-c", script)


def snapshots(e2e: E2eSession) -> list[str]:
    kept = json.loads(outside(e2e, "muster", "snapshot", "list", "greet", "--json"))["snapshots"]
    return sorted(one["snapshot"] for one in kept)


def keep(e2e: E2eSession, name: str = "before-cleaning") -> None:
    outside(e2e, "muster", "snapshot", "create", "greet", name)


# Snapshots


def test_a_snapshot_is_kept_under_its_name(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Keep the state of a work dir, under a name.
    muster snapshot create greet before-cleaning
    """)
    before = inside(e2e, "git rev-parse HEAD; git status --porcelain")
    result = e2e.run("muster snapshot create greet before-cleaning", comment="Keep the state of a work dir.")
    expect(result).to_succeed()
    expect(result.stdout).to_equal("before-cleaning\n")
    assert snapshots(e2e) == ["before-cleaning"]
    assert inside(e2e, "git rev-parse HEAD; git status --porcelain") == before, "the work dir is not touched"


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ("muster snapshot create greet before-cleaning", 5, "there is a snapshot before-cleaning already"),
        ("muster snapshot create greet 'before cleaning'", 2, "use letters, digits, - and _"),
        ("muster snapshot create great before-cleaning", 3, "did you mean greet?"),
        ("muster snapshot create", 2, "NAME"),
    ],
)
def test_a_snapshot_that_cannot_be_made_says_why(e2e: E2eSession, command: str, code: int, said: str) -> None:
    e2e.write_tutorial_block("""
    # Keep the state of a work dir, under a name.
    muster snapshot create greet before-cleaning
    """)
    keep(e2e)
    result = e2e.run(command)
    expect(result).to_exit_with(code)
    expect(result.stderr).to_contain(said)
    assert snapshots(e2e) == ["before-cleaning"]


def test_a_snapshot_without_a_name_is_called_by_the_time(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Without a name it is the time.
    muster snapshot create greet
    """)
    result = e2e.run("muster snapshot create greet", comment="Without a name it is the time.")
    expect(result).to_succeed()
    expect(result.stdout).to_match(r"\A20\d{6}-\d{6}-\d{3}\n\Z")
    assert snapshots(e2e) == [result.stdout.strip()]


def test_the_list_shows_when_each_snapshot_was_taken(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # What was kept?
    muster snapshot list greet
    """)
    keep(e2e)
    keep(e2e, "after")
    result = e2e.run("muster snapshot list greet", comment="What was kept?")
    expect(result).to_succeed()
    expect(result.stdout).to_match(r"^SNAPSHOT +TAKEN +COMMIT$")
    for name in ("before-cleaning", "after"):
        expect(result.stdout).to_match(rf"^{name} +20\d\d-\d\d-\d\d \d\d:\d\d:\d\d +[0-9a-f]{{12}}$")


def test_an_agent_without_snapshots_says_so(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # What was kept?
    muster snapshot list greet
    """)
    result = e2e.run("muster snapshot list greet")
    expect(result).to_succeed()
    expect(result.stdout).to_be_empty()
    expect(result.stderr).to_contain("greet has no snapshots")


def test_going_back_restores_commits_and_files(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Go back. What is there now is kept as a snapshot first.
    muster snapshot restore greet before-cleaning
    """)
    keep(e2e)
    head = inside(e2e, "git rev-parse HEAD")
    inside(e2e, "git rm -q greet.txt; git commit -qm 'Clean up'; rm draft.txt; echo new > later.txt")
    result = e2e.run("muster snapshot restore greet before-cleaning", comment="Go back.")
    expect(result).to_succeed()
    assert inside(e2e, "git rev-parse HEAD") == head
    assert inside(e2e, "git status --porcelain") == "?? draft.txt\n"
    assert inside(e2e, "cat greet.txt draft.txt") == "hello\ndraft\n"
    assert inside(e2e, "git branch --show-current") == "muster/greet\n"


def test_what_was_there_before_going_back_can_be_had_again(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Go back. What is there now is kept as a snapshot first.
    muster snapshot restore greet before-cleaning
    """)
    keep(e2e)
    inside(e2e, "echo precious > draft.txt")
    result = e2e.run("muster snapshot restore greet before-cleaning", comment="Go back.")
    expect(result.stderr).to_match(r"its former state is snapshot before-20\d{6}-\d{6}-\d{3}$")
    (kept,) = set(snapshots(e2e)) - {"before-cleaning"}
    expect(e2e.run(f"muster snapshot restore greet {kept}", comment="And forward again.")).to_succeed()
    assert inside(e2e, "cat draft.txt") == "precious\n"


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ("muster snapshot restore greet before-cleaning", 3, "greet has no snapshot 'before-cleaning'"),
        ("muster snapshot restore greet", 2, "which snapshot to restore?"),
    ],
)
def test_going_back_to_nothing_changes_nothing(e2e: E2eSession, command: str, code: int, said: str) -> None:
    e2e.write_tutorial_block("""
    # Go back. What is there now is kept as a snapshot first.
    muster snapshot restore greet before-cleaning
    """)
    result = e2e.run(command)
    expect(result).to_exit_with(code)
    expect(result.stderr).to_contain(said)
    expect(result.stderr).to_contain("muster snapshot list greet")
    assert inside(e2e, "cat draft.txt") == "draft\n"
    assert snapshots(e2e) == []


def test_a_snapshot_is_dropped_by_its_name(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Drop one.
    muster snapshot delete greet before-cleaning
    """)
    keep(e2e)
    keep(e2e, "other")
    expect(e2e.run("muster snapshot delete greet before-cleaning", comment="Drop one.")).to_succeed()
    assert snapshots(e2e) == ["other"]
    assert inside(e2e, "cat draft.txt") == "draft\n"
    again = e2e.run("muster snapshot delete greet before-cleaning", comment="It is gone.")
    expect(again).to_exit_with(3)
    expect(again.stderr).to_contain("muster snapshot list greet")


# Clones


def test_a_clone_has_the_same_work_and_the_same_conversation(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Try the other way: a second agent with the same work and the same conversation.
    muster clone greet greet-b
    """)
    result = e2e.run("muster clone greet greet-b", comment="Try the other way: a second agent.")
    expect(result).to_succeed()
    expect(result.stdout).to_equal("greet-b\n")
    outside(e2e, "muster", "wait", "greet-b", "--until", "waiting", "--timeout", "60s")
    first, second = agents(e2e)["greet"], agents(e2e)["greet-b"]
    assert (second["state"], second["reason"], second["type"]) == ("waiting", "question", "replay")
    assert second["branch"] == "muster/greet-b"
    assert second["workdir"] != first["workdir"]
    work = "git rev-parse HEAD; git status --porcelain; cat draft.txt"
    assert inside(e2e, work, "greet-b") == inside(e2e, work)
    assert outside(e2e, "muster", "transcript", "greet-b") == outside(e2e, "muster", "transcript", "greet")


def test_a_clone_goes_its_own_way(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Try the other way: a second agent with the same work and the same conversation.
    muster clone greet greet-b
    """)
    expect(e2e.run("muster clone greet greet-b")).to_succeed()
    outside(e2e, "muster", "wait", "greet-b", "--until", "waiting", "--timeout", "60s")
    expect(e2e.run("muster answer greet-b 'the other way'", comment="Only the second is told.")).to_succeed()
    outside(e2e, "muster", "wait", "greet-b", "--until", "ready", "--timeout", "60s")
    inside(e2e, "rm draft.txt", "greet-b")
    expect(e2e.run("muster transcript greet-b --last 1").stdout).to_contain("You said: the other way")
    assert agents(e2e)["greet"]["state"] == "waiting"
    assert inside(e2e, "cat draft.txt") == "draft\n"


def test_a_clone_under_a_name_that_is_taken_is_refused(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Try the other way: a second agent with the same work and the same conversation.
    muster clone greet greet-b
    """)
    outside(e2e, "muster", "create", "greet-b", "command", "--no-connect", "--", "sleep", "60")
    result = e2e.run("muster clone greet greet-b")
    expect(result).to_exit_with(5)
    expect(result.stderr).to_contain("there is an agent greet-b already")
    assert agents(e2e)["greet-b"]["type"] == "command"
    assert len(agents(e2e)) == 2


def test_the_hint_of_a_refused_clone_names_no_option_that_clone_lacks(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Try the other way: a second agent with the same work and the same conversation.
    muster clone greet greet-b
    """)
    outside(e2e, "muster", "create", "greet-b", "command", "--no-connect", "--", "sleep", "60")
    expect(e2e.run("muster clone greet greet-b").stderr).not_to_contain("--reuse")


def test_a_clone_of_an_unknown_agent_makes_nothing(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Try the other way: a second agent with the same work and the same conversation.
    muster clone greet greet-b
    """)
    result = e2e.run("muster clone great greet-b")
    expect(result).to_exit_with(3)
    expect(result.stderr).to_contain("did you mean greet?")
    assert list(agents(e2e)) == ["greet"]


def test_a_clone_without_a_name_gets_one_and_a_label_of_its_own(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Without a name one is made up. The copy gets a message and a label of its own.
    muster clone greet --label try=other --message "Now say it in French"
    """)
    outside(e2e, "muster", "label", "greet", "--set", "owner=me")
    result = e2e.run(
        'muster clone greet --label try=other --message "Now say it in French"',
        comment="Without a name one is made up.",
    )
    expect(result).to_succeed()
    expect(result.stdout).to_match(r"\A[a-z]+-[a-z]+\n\Z")
    made = agents(e2e)[result.stdout.strip()]
    assert made["labels"] == {"owner": "me", "try": "other"}
    assert agents(e2e)["greet"]["labels"] == {"owner": "me"}
    assert inside(e2e, "cat draft.txt", made["name"]) == "draft\n"


def test_the_message_for_a_clone_reaches_it(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Without a name one is made up. The copy gets a message and a label of its own.
    muster clone greet --label try=other --message "Now say it in French"
    """)
    made = e2e.run('muster clone greet --label try=other --message "Now say it in French"').stdout.strip()
    expect(e2e.run(f"muster wait {made} --until ready --timeout 60s")).to_succeed()
    expect(e2e.run(f"muster transcript {made}").stdout).to_contain("You said: Now say it in French")
    expect(e2e.run("muster transcript greet").stdout).not_to_contain("French")


def test_a_client_that_takes_its_message_as_an_argument_gets_the_message_for_a_clone(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Without a name one is made up. The copy gets a message and a label of its own.
    muster clone greet --label try=other --message "Now say it in French"
    """)
    outside(e2e, "muster", "create", "fix-login", "claude", "--no-connect", "-m", "Say it")
    outside(e2e, "muster", "wait", "fix-login", "--until", "ready", "--timeout", "60s")
    made = e2e.run('muster clone fix-login --label try=other --message "Now say it in French"').stdout.strip()
    expect(e2e.run(f"muster wait {made} --until ready --timeout 60s")).to_succeed()
    command = outside(e2e, "muster", "exec", made, "--", "sh", "-c", "cat ../../agents/$(basename $PWD)/argv")
    assert "Now say it in French" in command


def test_what_two_restores_in_one_second_put_aside_is_kept_by_both(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Go back. What is there now is kept as a snapshot first.
    muster snapshot restore greet before-cleaning
    """)
    outside(e2e, "muster", "snapshot", "create", "greet", "before-cleaning")
    before = snapshots(e2e)
    command = "; ".join(
        f"muster exec greet -- touch new{n}.txt; muster snapshot restore greet before-cleaning" for n in range(4)
    )
    e2e.run(command)
    kept = [name for name in snapshots(e2e) if name not in before]
    assert len(kept) == 4
