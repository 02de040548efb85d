"""Tutorial section 11, Removing, and bringing back: nothing that an agent had is lost."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

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
"""


def replay(e2e: E2eSession, name: str, *options: str) -> dict[str, Any]:
    """An agent with one commit and one file that is not committed, which asks something."""
    (e2e.work.parent / "greet.toml").write_text(PLAYBOOK)
    outside(e2e, "muster", "create", name, "replay", "--no-connect", *options, "--", "../greet.toml")
    outside(e2e, "muster", "wait", name, "--until", "waiting", "--timeout", "60s")
    outside(e2e, "muster", "exec", name, "--", "sh", "-c", "echo draft > draft.txt")
    return agents(e2e)[name]


def command(e2e: E2eSession, name: str, script: str, *options: str) -> None:
    outside(e2e, "muster", "create", name, "command", "--no-connect", *options, "--", "sh", "-c", script)


def in_trash(e2e: E2eSession) -> list[str]:
    return sorted(one["name"] for one in json.loads(outside(e2e, "muster", "restore", "--list", "--json"))["trash"])


def branches(e2e: E2eSession) -> list[str]:
    return outside(e2e, "git", "branch", "--format=%(refname:short)").split()


def state_folder(e2e: E2eSession) -> Path:
    return e2e.home / ".local" / "state" / "muster"


# destroy and restore


def test_destroy_tells_what_the_agent_had_that_is_nowhere_else(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Remove one agent. You are told what it had that is nowhere else.
    muster destroy hello-b
    """)
    workdir = replay(e2e, "hello-b")["workdir"]
    result = e2e.run("muster destroy hello-b", comment="Remove one agent.")
    expect(result).to_succeed()
    expect(result.stderr).to_contain("kept for 30 days: 1 commit, 1 uncommitted file")
    expect(result.stderr).to_contain("muster restore hello-b")
    assert agents(e2e) == {}
    assert not Path(workdir).exists()
    assert branches(e2e) == ["main"]


def test_destroy_of_one_that_changed_nothing_says_so(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Remove one agent. You are told what it had that is nowhere else.
    muster destroy hello-b
    """)
    command(e2e, "hello-b", "sleep 600")
    result = e2e.run("muster destroy hello-b", comment="One that is at work.")
    expect(result).to_succeed()
    expect(result.stderr).to_contain("it had changed nothing")
    assert agents(e2e) == {}


def test_destroy_of_an_unknown_name_removes_nobody(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Remove one agent. You are told what it had that is nowhere else.
    muster destroy hello-b
    """)
    command(e2e, "hello-b", "sleep 600")
    unknown, nobody = e2e.run("muster destroy hello"), e2e.run("muster destroy")
    expect(unknown).to_exit_with(3)
    expect(unknown.stderr).to_contain("did you mean hello-b?")
    expect(nobody).to_exit_with(2)
    expect(nobody.stderr).to_contain("no agent was named")
    assert list(agents(e2e)) == ["hello-b"]


def test_restore_brings_everything_back_but_does_not_run_it(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Bring it back: record, work dir, branch, transcript and recording. It does not run then.
    muster restore hello-b
    """)
    before = replay(e2e, "hello-b", "--label", "run=43")
    talk = outside(e2e, "muster", "transcript", "hello-b")
    head = outside(e2e, "git", "rev-parse", "muster/hello-b")
    outside(e2e, "muster", "destroy", "hello-b")
    expect(e2e.run("muster restore hello-b", comment="Bring it back.")).to_succeed()
    after = agents(e2e)["hello-b"]
    assert after["state"] == "stopped"
    for key in ("id", "type", "branch", "base", "workdir", "labels", "created"):
        assert after[key] == before[key], key
    assert outside(e2e, "git", "rev-parse", "muster/hello-b") == head
    expect(e2e.run("muster exec hello-b -- git status --porcelain").stdout).to_equal("?? draft.txt\n")
    assert outside(e2e, "muster", "transcript", "hello-b") == talk
    expect(e2e.run("muster capture hello-b --cast ../hello.cast")).to_succeed()
    assert "I will add a greeting." in (e2e.work.parent / "hello.cast").read_text()
    assert in_trash(e2e) == []


def test_a_restored_agent_goes_on_with_start(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Bring it back: record, work dir, branch, transcript and recording. It does not run then.
    muster restore hello-b
    """)
    replay(e2e, "hello-b")
    outside(e2e, "muster", "destroy", "hello-b")
    expect(e2e.run("muster restore hello-b").stderr).to_contain("muster start hello-b")
    expect(e2e.run("muster start hello-b")).to_succeed()
    expect(e2e.run("muster wait hello-b --until waiting --timeout 60s")).to_succeed()


def test_restore_of_what_is_not_in_the_trash_is_told(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Bring it back: record, work dir, branch, transcript and recording. It does not run then.
    muster restore hello-b
    """)
    result = e2e.run("muster restore hello-b")
    expect(result).to_exit_with(3)
    expect(result.stderr).to_contain("there is no hello-b in the trash")
    expect(result.stderr).to_contain("muster restore --list")


def test_the_trash_is_listed_with_what_was_kept(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # What is in the trash?
    muster destroy hello-b
    muster restore --list
    """)
    made = replay(e2e, "hello-b")
    expect(e2e.run("muster destroy hello-b")).to_succeed()
    result = e2e.run("muster restore --list", comment="What is in the trash?")
    expect(result).to_succeed()
    expect(result.stdout).to_match(rf"^hello-b +{made['id']} +20\S+ \S+ +replay +1 commit, 1 uncommitted file$")


def test_an_empty_trash_is_said_to_be_empty(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # What is in the trash?
    muster destroy hello-b
    muster restore --list
    """)
    result = e2e.run("muster restore --list")
    expect(result).to_succeed()
    expect(result.stderr).to_contain("the trash is empty")


def test_the_one_destroyed_last_is_restored_and_an_id_names_an_older_one(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # What is in the trash?
    muster destroy hello-b
    muster restore --list
    """)
    older = replay(e2e, "hello-b")["id"]
    expect(e2e.run("muster destroy hello-b")).to_succeed()
    command(e2e, "hello-b", "sleep 600")
    newer = agents(e2e)["hello-b"]["id"]
    expect(e2e.run("muster destroy hello-b")).to_succeed()
    expect(e2e.run("muster restore --list").stdout).to_match(rf"(?s)hello-b +{newer}.*hello-b +{older}")
    expect(e2e.run("muster restore hello-b")).to_succeed()
    assert agents(e2e)["hello-b"]["id"] == newer
    expect(e2e.run("muster destroy hello-b")).to_succeed()
    expect(e2e.run(f"muster restore {older}")).to_succeed()
    assert agents(e2e)["hello-b"]["id"] == older


# A name that is in use again


def test_restore_under_another_name_leaves_the_new_one_alone(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # The name is in use again: bring it back under another one.
    muster create hello-b command --no-connect -- sleep 60
    muster restore hello-b --as hello-old
    """)
    command(e2e, "hello-b", "echo draft > draft.txt")
    outside(e2e, "muster", "wait", "hello-b", "--until", "done", "--timeout", "60s")
    outside(e2e, "muster", "destroy", "hello-b")
    expect(e2e.run("muster create hello-b command --no-connect -- sleep 60")).to_succeed()
    new = agents(e2e)["hello-b"]
    expect(e2e.run("muster restore hello-b --as hello-old", comment="Under another name.")).to_succeed()
    now = agents(e2e)
    assert (now["hello-b"]["id"], now["hello-b"]["state"]) == (new["id"], "working")
    assert now["hello-old"]["state"] == "done"
    expect(e2e.run("muster exec hello-old -- cat draft.txt").stdout).to_equal("draft\n")
    expect(e2e.run("muster exec hello-b -- ls draft.txt")).to_fail()


def test_commits_come_back_under_another_name(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # The name is in use again: bring it back under another one.
    muster create hello-b command --no-connect -- sleep 60
    muster restore hello-b --as hello-old
    """)
    replay(e2e, "hello-b")
    outside(e2e, "muster", "destroy", "hello-b")
    expect(e2e.run("muster create hello-b command --no-connect -- sleep 60")).to_succeed()
    expect(e2e.run("muster restore hello-b --as hello-old", comment="It had a commit.")).to_succeed()
    expect(e2e.run("muster exec hello-old -- cat greet.txt draft.txt").stdout).to_equal("hello\ndraft\n")
    expect(e2e.run("muster exec hello-old -- git branch --show-current").stdout).to_equal("muster/hello-old\n")
    assert {name: one["branch"] for name, one in agents(e2e).items()} == {
        "hello-b": "muster/hello-b",
        "hello-old": "muster/hello-old",
    }


def test_an_agent_keeps_its_commits_when_its_namesake_is_destroyed(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # The name is in use again: bring it back under another one.
    muster create hello-b command --no-connect -- sleep 60
    muster restore hello-b --as hello-old
    """)
    command(e2e, "hello-b", "true")
    outside(e2e, "muster", "destroy", "hello-b")
    expect(e2e.run("muster create hello-b command --no-connect -- sleep 60")).to_succeed()
    expect(e2e.run("muster restore hello-b --as hello-old")).to_succeed()
    expect(e2e.run("muster exec hello-b -- git commit -q --allow-empty -m precious")).to_succeed()
    expect(e2e.run("muster destroy hello-old", comment="The other one.")).to_succeed()
    expect(e2e.run("muster exec hello-b -- git log -1 --format=%s").stdout).to_equal("precious\n")


def test_restore_under_a_name_that_is_taken_is_refused(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # The name is in use again: bring it back under another one.
    muster create hello-b command --no-connect -- sleep 60
    muster restore hello-b --as hello-old
    """)
    replay(e2e, "hello-b")
    outside(e2e, "muster", "destroy", "hello-b")
    expect(e2e.run("muster create hello-b command --no-connect -- sleep 60")).to_succeed()
    result = e2e.run("muster restore hello-b", comment="Without another name.")
    expect(result).to_exit_with(5)
    expect(result.stderr).to_contain("there is an agent hello-b now")
    expect(result.stderr).to_contain("muster restore hello-b --as")
    assert in_trash(e2e) == ["hello-b"]


def test_the_screen_of_a_destroyed_agent_can_be_read(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # The screen of a destroyed agent can still be read.
    muster destroy hello-old
    muster capture hello-old
    """)
    replay(e2e, "hello-old")
    expect(e2e.run("muster destroy hello-old")).to_succeed()
    result = e2e.run("muster capture hello-old", comment="The screen can still be read.")
    expect(result).to_succeed()
    expect(result.stdout).to_match(r"(?s)\AI will add a greeting\..*Shall I also say goodbye\?")


def test_a_screen_that_was_never_there_cannot_be_read(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # The screen of a destroyed agent can still be read.
    muster destroy hello-old
    muster capture hello-old
    """)
    result = e2e.run("muster capture hello-old")
    expect(result).to_exit_with(3)
    expect(result.stderr).to_contain("there is no agent hello-old")


# Many


def test_a_pattern_removes_many(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Remove many by a pattern.
    muster destroy 'try-*'
    """)
    for name in ("try-1", "try-2", "entry-3"):
        command(e2e, name, "sleep 600")
    expect(e2e.run("muster destroy 'try-*'", comment="Remove many by a pattern.")).to_succeed()
    assert list(agents(e2e)) == ["entry-3"]
    assert in_trash(e2e) == ["try-1", "try-2"]


def test_a_pattern_that_matches_nothing_is_an_error(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Remove many by a pattern.
    muster destroy 'try-*'
    """)
    command(e2e, "entry-3", "sleep 600")
    result = e2e.run("muster destroy 'try-*'")
    expect(result).to_exit_with(3)
    expect(result.stderr).to_contain("no agent matches 'try-*'")
    assert list(agents(e2e)) == ["entry-3"]


def test_all_agents_of_a_run_are_removed(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Remove all agents of a run.
    muster destroy --label run=42
    """)
    for name, run in (("one", "42"), ("two", "42"), ("other", "43")):
        command(e2e, name, "sleep 600", "--label", f"run={run}")
    expect(e2e.run("muster destroy --label run=42", comment="Remove all agents of a run.")).to_succeed()
    assert list(agents(e2e)) == ["other"]
    again = e2e.run("muster destroy --label run=42", comment="They are gone.")
    expect(again).to_exit_with(3)
    expect(again.stderr).to_contain("no agent has these labels")


# gc


def left_overs(e2e: E2eSession) -> Path:
    """A branch that is merged, one that is not, and a work dir, all without an agent. Returns the work dir."""
    outside(e2e, "git", "branch", "muster/merged")
    tree = outside(e2e, "git", "commit-tree", "-p", "HEAD", "-m", "only here", "HEAD^{tree}").strip()
    outside(e2e, "git", "branch", "muster/unique", tree)
    command(e2e, "living", "sleep 600")
    stray = state_folder(e2e) / "work" / "stray-12345678"
    stray.mkdir()
    (stray / "notes.txt").write_text("precious\n")
    return stray


def test_gc_says_what_is_left_over_and_removes_nothing(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # What is left over, and is any of it unique? Nothing is removed yet.
    muster gc
    """)
    stray = left_overs(e2e)
    result = e2e.run("muster gc", comment="What is left over, and is any of it unique?")
    expect(result).to_succeed()
    expect(result.stdout).to_match(r"^work dir +local +stray-12345678 +unique .* to the trash$")
    expect(result.stdout).to_match(r"^branch +local +muster/merged +merged .* removed$")
    expect(result.stdout).to_match(r"^branch +local +muster/unique +unique .* kept$")
    expect(result.stdout).not_to_contain("living")
    assert (stray / "notes.txt").exists()
    assert branches(e2e) == ["main", "muster/merged", "muster/unique"]


def test_gc_of_a_tidy_place_has_nothing_to_say(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # What is left over, and is any of it unique? Nothing is removed yet.
    muster gc
    """)
    command(e2e, "living", "sleep 600")
    result = e2e.run("muster gc")
    expect(result).to_succeed()
    expect(result.stdout).to_be_empty()
    assert list(agents(e2e)) == ["living"]


def test_gc_yes_removes_and_what_is_unique_stays_to_be_had(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Remove it. What is unique goes to the trash first.
    muster gc --yes
    """)
    stray = left_overs(e2e)
    expect(e2e.run("muster gc --yes", comment="Remove it.")).to_succeed()
    assert not stray.exists()
    kept = [path.read_text() for path in (state_folder(e2e) / "trash").rglob("notes.txt")]
    assert kept == ["precious\n"]
    assert branches(e2e) == ["main", "muster/unique"]
    assert agents(e2e)["living"]["state"] == "working"


def test_gc_yes_keeps_what_was_destroyed_today(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Remove it. What is unique goes to the trash first.
    muster gc --yes
    """)
    replay(e2e, "hello-b")
    outside(e2e, "muster", "destroy", "hello-b")
    expect(e2e.run("muster gc --yes").stdout).to_match(r"^trash .* unique, kept in trash .* kept until 20")
    expect(e2e.run("muster restore hello-b")).to_succeed()
    expect(e2e.run("muster exec hello-b -- cat greet.txt draft.txt").stdout).to_equal("hello\ndraft\n")


def destroyed(e2e: E2eSession, name: str, days: float) -> None:
    """An agent that was destroyed some days ago."""
    command(e2e, name, "sleep 600")
    outside(e2e, "muster", "destroy", name)
    (record,) = (state_folder(e2e) / "trash").glob(f"{name}-*/agent/agent.json")
    facts = json.loads(record.read_text())
    facts["trash"]["destroyed"] = time.time() - days * 86400
    record.write_text(json.dumps(facts) + "\n")


def test_gc_older_drops_old_trash_only(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Free space: also drop trash that is older than a week.
    muster gc --older 7d --yes
    """)
    destroyed(e2e, "last-month", 20)
    destroyed(e2e, "yesterday", 1)
    expect(e2e.run("muster gc --yes", comment="Twenty days are less than thirty.")).to_succeed()
    assert in_trash(e2e) == ["last-month", "yesterday"]
    result = e2e.run("muster gc --older 7d --yes", comment="Also drop trash that is older than a week.")
    expect(result).to_succeed()
    expect(result.stdout).to_match(r"^trash +local +last-month-\w+ .* removed$")
    assert in_trash(e2e) == ["yesterday"]
    expect(e2e.run("muster restore last-month")).to_exit_with(3)


def test_gc_older_needs_a_time_and_without_yes_only_tells(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Free space: also drop trash that is older than a week.
    muster gc --older 7d --yes
    """)
    destroyed(e2e, "last-month", 20)
    wrong = e2e.run("muster gc --older week --yes")
    expect(wrong).to_exit_with(2)
    expect(wrong.stderr).to_contain("'week' is not a time")
    expect(e2e.run("muster gc --older 7d").stdout).to_match(r"last-month-\w+ .* removed$")
    assert in_trash(e2e) == ["last-month"]
