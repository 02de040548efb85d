"""Tutorial section 20, Where to look for more: the help of every verb, and the end of everything."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.tutorial import E2eSession, expect

from .conftest import agents, outside


def expect_help(e2e: E2eSession, *verbs: str) -> None:
    """Each verb's help is complete: usage, then examples, words, options; on stdout, and nothing else."""
    for verb in verbs:
        result = e2e.run(f"muster {verb} --help")
        expect(result).to_succeed()
        expect(result.stdout).to_match(rf"\AUsage: muster {verb} ")
        expect(result.stdout).to_match(rf"^\nExamples:\n  .*\bmuster {verb}\b")
        expect(result.stdout).to_match(r"^Options:\n  -h, --help ")
        expect(result.stdout).to_match(r"^  --json +print one JSON document \(docs/json.md\)$")
        expect(result.stderr).to_be_empty()


def test_help_of_the_verbs_for_agents(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Agents: making them, looking at them, talking to them.
    muster create --help
    muster list --help
    muster message --help
    muster answer --help
    muster wait --help
    muster connect --help
    muster capture --help
    muster exec --help
    muster transcript --help
    muster events --help
    muster explain --help
    """)
    expect_help(e2e, "create", "list", "message", "answer", "wait", "connect")
    expect_help(e2e, "capture", "exec", "transcript", "events", "explain")


def test_help_of_the_verbs_for_their_work(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Their work: bringing it home, giving them yours.
    muster pull --help
    muster push --help
    muster diff --help
    muster snapshot --help
    """)
    expect_help(e2e, "pull", "push", "diff", "snapshot")


def test_help_of_the_verbs_for_runs(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Runs: one agent for each item.
    muster map --help
    muster improve --help
    muster reduce --help
    muster runs --help
    """)
    expect_help(e2e, "map", "improve", "reduce", "runs")


def test_help_of_the_verbs_for_their_life(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Their life: stopping, going on, leaving.
    muster stop --help
    muster start --help
    muster clone --help
    muster rename --help
    muster label --help
    muster destroy --help
    muster restore --help
    muster gc --help
    muster record --help
    """)
    expect_help(e2e, "stop", "start", "clone", "rename", "label", "destroy", "restore", "gc", "record")


def test_help_of_the_verbs_for_tutorials(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Tutorials: their blocks and their tests.
    muster tutorial list --help
    muster tutorial check --help
    """)
    expect_help(e2e, "tutorial list", "tutorial check")


def test_help_of_the_verbs_for_muster_itself(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # muster itself.
    muster config --help
    muster trust --help
    muster hosts --help
    muster doctor --help
    muster completion --help
    muster man --help
    """)
    expect_help(e2e, "config", "trust", "hosts", "doctor", "completion", "man")


def test_help_asks_for_nothing_else_and_does_nothing(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Their life: stopping, going on, leaving.
    muster stop --help
    muster start --help
    muster clone --help
    muster rename --help
    muster label --help
    muster destroy --help
    muster restore --help
    muster gc --help
    muster record --help
    """)
    outside(e2e, "muster", "create", "one", "command", "--no-connect", "--", "sleep", "60")
    result = e2e.run("muster destroy one --help", comment="Help wins over what stands before it.")
    expect(result).to_succeed()
    expect(result.stdout).to_match(r"\AUsage: muster destroy ")
    assert set(agents(e2e)) == {"one"}


@pytest.mark.parametrize(
    ("command", "says", "hint"),
    [
        ("muster stop --al", "--al", "muster stop --help"),
        ("muster stop --gracee 1s one", "--gracee", "muster stop --help"),
        ("muster rename one", "the following arguments are required: NEW", "muster rename --help"),
    ],
)
def test_words_that_do_not_fit_are_answered_with_where_the_help_is(
    e2e: E2eSession, command: str, says: str, hint: str
) -> None:
    e2e.write_tutorial_block("""
    # Their life: stopping, going on, leaving.
    muster stop --help
    muster start --help
    muster clone --help
    muster rename --help
    muster label --help
    muster destroy --help
    muster restore --help
    muster gc --help
    muster record --help
    """)
    outside(e2e, "muster", "create", "one", "command", "--no-connect", "--", "sleep", "60")
    result = e2e.run(command)
    expect(result).to_exit_with(2)
    expect(result.stdout).to_be_empty()
    expect(result.stderr).to_contain(says)
    expect(result.stderr).to_contain(hint)
    assert agents(e2e)["one"]["state"] in ("starting", "working")


def test_all_agents_are_removed_and_come_back_with_all_they_had(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Remove all agents. Everything is in the trash, and `muster restore` brings it back.
    muster destroy --all
    """)
    for name, mode in (("one", "worktree"), ("two", "mirror")):
        words = ("--mode", mode, "--no-connect", "--", "sleep", "600")
        outside(e2e, "muster", "create", name, "command", *words)
        script = f"echo {name} > kept.txt && git add kept.txt && git commit -q -m {name} && echo draft > notes.txt"
        outside(e2e, "muster", "exec", name, "--", "sh", "-c", script)
    result = e2e.run("muster destroy --all", comment="Remove all agents.")
    expect(result).to_succeed()
    for name in ("one", "two"):
        expect(result.stderr).to_match(
            rf"^destroyed {name}; kept for 30 days: 1 commit.* 1 uncommitted file \(muster restore {name}\)$"
        )
    assert agents(e2e) == {}
    assert outside(e2e, "git", "worktree", "list").splitlines()[1:] == []

    for name in ("one", "two"):
        expect(e2e.run(f"muster restore {name}", comment="`muster restore` brings it back.")).to_succeed()
        folder = Path(agents(e2e)[name]["workdir"])
        assert (folder / "kept.txt").read_text() == f"{name}\n"
        assert (folder / "notes.txt").read_text() == "draft\n"
        assert outside(e2e, "muster", "exec", name, "--", "git", "log", "-1", "--format=%s").strip() == name


def test_there_may_be_no_agents_to_remove(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Remove all agents. Everything is in the trash, and `muster restore` brings it back.
    muster destroy --all
    """)
    result = e2e.run("muster destroy --all")
    expect(result).to_succeed()
    expect(result.stdout).to_be_empty()
    assert outside(e2e, "muster", "restore", "--list") == ""
