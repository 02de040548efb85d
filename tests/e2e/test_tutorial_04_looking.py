"""Tutorial section 4, Looking at agents: lists, reasons, screens, recordings, conversations, events."""

from __future__ import annotations

import json
import re
from pathlib import Path

from muster.tutorial import E2eSession, expect

from ..conftest import eventually
from .conftest import agents, outside

GREET = """[[step]]
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


def make_greet(e2e: E2eSession) -> None:
    """The agent of section 2, which has committed a file and asks a question."""
    (e2e.work.parent / "greet.toml").write_text(GREET)
    outside(e2e, "muster", "create", "greet", "replay", "--no-connect", "--", "../greet.toml")
    outside(e2e, "muster", "wait", "greet", "--until", "waiting", "--timeout", "30s")


def make_command(e2e: E2eSession, name: str, script: str, *options: str, cwd: Path | None = None) -> None:
    words = ("muster", "create", name, "command", *options, "--no-connect", "--", "sh", "-c", script)
    outside(e2e, *words, cwd=cwd)


def end(e2e: E2eSession, *names: str) -> None:
    outside(e2e, "muster", "wait", *names, "--timeout", "30s")


def names(listed: str) -> list[str]:
    """Of the table of `list`, the names in alphabetical order."""
    return sorted(line.split()[0] for line in listed.splitlines()[1:])


def seconds_apart(cast: Path, one: str, other: str) -> float:
    """In a recording, between the first time that one text shows and that another does."""
    events = [json.loads(line) for line in cast.read_text().splitlines()[1:]]
    return next(t for t, _, text in events if other in text) - next(t for t, _, text in events if one in text)


# list


def test_list_by_state_shows_who_needs_you_and_who_failed(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Who needs you? Who failed?
    muster list --state waiting --state failed
    """)
    make_greet(e2e)
    make_command(e2e, "broken", "exit 3")
    make_command(e2e, "well", "true")
    make_command(e2e, "busy", "sleep 600")
    end(e2e, "broken", "well")
    result = e2e.run("muster list --state waiting --state failed", comment="Who needs you? Who failed?")
    expect(result).to_succeed()
    assert names(result.stdout) == ["broken", "greet"]
    expect(result.stdout).to_match("^greet +waiting +question .* Shall I also say goodbye\\?$")
    expect(result.stdout).to_match("^broken +failed +exit 3 ")


def test_list_takes_names_and_globs_as_every_verb_does(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Only some agents: names and globs work as with every verb, and so do names on stdin. Without a name, or with --all, it shows all.
    muster list greet 'try-*'
    muster list --all
    """)
    for name in ("greet", "try-1", "try-2", "other"):
        make_command(e2e, name, "true")
    end(e2e, "greet", "try-*", "other")
    result = e2e.run("muster list greet 'try-*'", comment="Only some agents.")
    expect(result).to_succeed()
    assert names(result.stdout) == ["greet", "try-1", "try-2"]
    assert names(e2e.run("echo other | muster list -", comment="Names on stdin.").stdout) == ["other"]
    assert names(e2e.run("muster list --all", comment="All of them.").stdout) == ["greet", "other", "try-1", "try-2"]
    nobody = e2e.run("muster list - < /dev/null", comment="No name on stdin is no agent.")
    expect(nobody).to_succeed()
    expect(nobody.stdout).to_be_empty()


def test_list_of_a_name_that_there_is_not_shows_the_others_and_fails(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Only some agents: names and globs work as with every verb, and so do names on stdin. Without a name, or with --all, it shows all.
    muster list greet 'try-*'
    muster list --all
    """)
    make_command(e2e, "greet", "true")
    end(e2e, "greet")
    result = e2e.run("muster list greet 'try-*' graet", comment="One of them is there.")
    expect(result).to_exit_with(3)
    assert names(result.stdout) == ["greet"]
    expect(result.stderr).to_contain("no agent matches 'try-*'")
    expect(result.stderr).to_contain("there is no agent graet\n  did you mean greet?")
    found = json.loads(e2e.run("muster list greet graet --json").stdout)
    assert [row["name"] for row in found["agents"]] == ["greet"]
    assert [row["code"] for row in found["errors"]] == [3]
    filtered = e2e.run("muster list greet --state failed", comment="It is there, in another state.")
    expect(filtered).to_succeed()
    expect(filtered.stderr).to_equal("no agent matches\n")


def test_a_state_that_there_is_not_is_answered_with_the_nearest(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Who needs you? Who failed?
    muster list --state waiting --state failed
    """)
    result = e2e.run("muster list --state wating", comment="A misspelt state.")
    expect(result).to_exit_with(2)
    expect(result.stderr).to_contain("invalid choice: 'wating'")
    expect(result.stderr).to_contain("did you mean 'waiting'?")
    result = e2e.run("muster list --state waiting,failed", comment="Two in one word.")
    expect(result).to_exit_with(2)
    expect(result.stderr).to_contain("one at a time: --state waiting --state failed")
    result = e2e.run("muster create x --mode copy,in-place", comment="An option that is given once.")
    expect(result).to_exit_with(2)
    expect(result.stderr).not_to_contain("one at a time")


def test_list_by_label_shows_only_agents_that_have_it(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Only agents with a label.
    muster list --label run=42
    """)
    make_command(e2e, "mine", "true", "--label", "run=42")
    make_command(e2e, "older", "true", "--label", "run=4")
    make_command(e2e, "plain", "true")
    result = e2e.run("muster list --label run=42", comment="Only agents with a label.")
    expect(result).to_succeed()
    assert names(result.stdout) == ["mine"]


def test_a_label_that_nobody_has_gives_no_row_and_says_so(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Only agents with a label.
    muster list --label run=42
    """)
    make_command(e2e, "older", "true", "--label", "run=41")
    result = e2e.run("muster list --label run=42", comment="Nobody has it.")
    expect(result).to_succeed()
    expect(result.stdout).to_be_empty()
    expect(result.stderr).to_equal("no agent matches\n")


def test_here_shows_only_agents_of_this_repository_and_without_it_all(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Only agents of this repository. Without it, list shows all agents wherever you are.
    muster list --here
    """)
    other = e2e.work.parent / "other"
    outside(e2e, "git", "clone", "-q", ".", str(other))
    make_command(e2e, "mine", "true")
    make_command(e2e, "theirs", "true", cwd=other)
    here = e2e.run("muster list --here", comment="Only agents of this repository.")
    below = e2e.run("muster list --here", comment="A sub-folder is the same repository.", cwd="src")
    there = e2e.run("muster list --here", comment="In the other repository.", cwd=other)
    everywhere = e2e.run("muster list", comment="Without it, all.", cwd=e2e.home)
    assert names(here.stdout) == names(below.stdout) == ["mine"]
    assert names(there.stdout) == ["theirs"]
    assert names(everywhere.stdout) == ["mine", "theirs"]


def test_list_by_type_and_host(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Only agents of one type, on one host. This machine is called local.
    muster list --type replay --host local
    """)
    make_greet(e2e)
    make_command(e2e, "busy", "sleep 600")
    result = e2e.run("muster list --type replay --host local", comment="Only agents of one type, on one host.")
    expect(result).to_succeed()
    assert names(result.stdout) == ["greet"]


def test_a_host_that_does_not_answer_is_a_row_and_no_agent_of_another_is_shown(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Only agents of one type, on one host. This machine is called local.
    muster list --type replay --host local
    """)
    make_greet(e2e)
    result = e2e.run("muster list --type replay --host nobody.invalid", comment="A host that does not answer.")
    expect(result).to_succeed()
    assert names(result.stdout) == ["-"]
    expect(result.stdout).to_match("^- +unreachable +never answered .*nobody.invalid cannot be reached")


def test_git_counts_commits_ahead_and_changed_files(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # How many commits is each one ahead, and how many files has it changed?
    muster list --git
    """)
    make_greet(e2e)
    make_command(e2e, "drafts", "echo more >> README; echo new > new.txt")
    end(e2e, "drafts")
    result = e2e.run("muster list --git", comment="How many commits ahead, how many files changed?")
    expect(result).to_succeed()
    head, *rows = result.stdout.splitlines()
    ahead, dirty = head.index("AHEAD"), head.index("DIRTY")
    assert {row.split()[0]: (row[ahead:].split()[0], row[dirty:].split()[0]) for row in rows} == {
        "greet": ("1", "0"),
        "drafts": ("0", "2"),
    }


def test_format_fills_the_text_with_keys_of_each_agent(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Choose the columns: every key of --json can stand in the text.
    muster list --format '{name} {state} {branch}'
    """)
    make_greet(e2e)
    make_command(e2e, "well", "true")
    end(e2e, "well")
    result = e2e.run("muster list --format '{name} {state} {branch}'", comment="Choose the columns.")
    expect(result).to_succeed()
    assert sorted(result.stdout.splitlines()) == ["greet waiting muster/greet", "well done muster/well"]


def test_every_key_of_json_can_stand_in_a_format(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Choose the columns: every key of --json can stand in the text.
    muster list --format '{name} {state} {branch}'
    """)
    make_greet(e2e)
    greet = agents(e2e)["greet"]
    result = e2e.run(f"muster list --format '{'|'.join(f'{{{key}}}' for key in greet)}'", comment="Every key.")
    expect(result).to_succeed()
    wanted = "|".join("" if value is None else str(value) for value in greet.values())
    expect(result.stdout).to_equal(f"{wanted}\n")


def test_a_key_that_there_is_not_is_answered_with_those_that_there_are(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Choose the columns: every key of --json can stand in the text.
    muster list --format '{name} {state} {branch}'
    """)
    make_greet(e2e)
    result = e2e.run("muster list --format '{name} {status}'", comment="No such key.")
    expect(result).to_exit_with(2)
    expect(result.stdout).to_be_empty()
    expect(result.stderr).to_contain("--format: 'status' is not a key")
    expect(result.stderr).to_contain("known: name, address, host")


def test_watch_keeps_the_list_on_the_screen_until_ctrl_c(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Keep the list on the screen and see every change. Ctrl-C ends it.
    muster list --watch
    """)
    make_greet(e2e)
    terminal = e2e.terminal("muster list --watch", size=(120, 20), comment="Keep the list on the screen.")
    expect(terminal).to_match(r"\ANAME +STATE .*\ngreet +waiting +question")
    outside(e2e, "muster", "answer", "greet", "no")
    expect(terminal).to_match(r"\ANAME +STATE .*\ngreet +ready +- ")
    terminal.press("Ctrl-C")
    expect(terminal).to_exit_with(130)
    expect(terminal).not_to_show("Traceback")


def test_watch_without_a_terminal_prints_the_list_anew_at_every_change(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Keep the list on the screen and see every change. Ctrl-C ends it.
    muster list --watch
    """)
    make_greet(e2e)
    watch = e2e.start("muster list --watch", comment="Into a log.", ready_when=re.compile("greet +waiting"))
    outside(e2e, "muster", "stop", "greet", "--grace", "0")
    expect(watch).to_print("stopped")
    assert watch.running
    assert watch.stop().stdout.count("NAME ") >= 2


# What it cost

USED = """[[step]]
say = "Done."
model = "claude-sonnet-4-5"
input_tokens = 1000000
output_tokens = 100000
[[step]]
say = "And more."
model = "{model}"
input_tokens = 1000000
output_tokens = 0
"""


def make_used(e2e: E2eSession, name: str, model: str) -> None:
    """An agent that has used Claude Sonnet 4.5 for 4.50 dollars, and a million tokens of another model."""
    (e2e.work.parent / f"{name}.toml").write_text(USED.replace("{model}", model))
    outside(e2e, "muster", "create", name, "replay", "--no-connect", "--", f"../{name}.toml")
    outside(e2e, "muster", "wait", name, "--until", "ready", "--timeout", "30s")


def test_list_has_what_each_agent_used_and_cost(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # What did each one use, and what did that cost? What is not known is empty, never 0; list --json has it for each model.
    muster list --format '{name} {tokens} {cost_usd}'
    """)
    make_used(e2e, "known", "gpt-5")
    make_command(e2e, "plain", "sleep 600")
    result = e2e.run("muster list --format '{name} {tokens} {cost_usd}'", comment="What did each one use and cost?")
    expect(result).to_succeed()
    expect(result.stdout).to_equal("known 2100000 5.75\nplain  \n")
    expect(e2e.run("muster list", comment="At a glance.").stdout).to_match(r"^known .* \$5\.75 ")


def test_a_cost_of_which_one_part_is_not_known_is_empty_and_each_model_has_its_own(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # What did each one use, and what did that cost? What is not known is empty, never 0; list --json has it for each model.
    muster list --format '{name} {tokens} {cost_usd}'
    """)
    make_used(e2e, "mixed", "our-own")
    result = e2e.run(
        "muster list --format '{name} {tokens} {cost_usd}'", comment="Nobody knows what our own model costs."
    )
    expect(result.stdout).to_equal("mixed 2100000 \n")
    expect(e2e.run("muster list", comment="At a glance.").stdout).to_match(r"^mixed .* 2100000 tok ")
    (row,) = e2e.run("muster list --json", comment="For each model.").json()["agents"]
    assert row["models"] == [
        {"model": "claude-sonnet-4-5", "tokens": 1100000, "cost_usd": 4.5},
        {"model": "our-own", "tokens": 1000000, "cost_usd": None},
    ]


# explain and capture


def test_explain_gives_every_piece_of_evidence_with_its_age(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Why is this agent in its state? Every piece of evidence, with its age.
    muster explain greet
    """)
    make_greet(e2e)
    result = e2e.run("muster explain greet", comment="Why is this agent in its state?")
    expect(result).to_succeed()
    expect(result.stdout).to_match(r"\Agreet is waiting \(question\): ")
    expect(result.stdout).to_match(r"^AGE +EVIDENCE +SAYS +FACT$")
    expect(result.stdout).to_match(r"^\d+s +tmux +- +process \d+ runs")
    expect(result.stdout).to_match(r"^\d+s +event ask +waiting +text='Shall I also say goodbye\?'$")
    expect(result.stdout).to_match(r"^\d+s +event started +starting ")


def test_explain_says_how_a_failed_agent_ended(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Why is this agent in its state? Every piece of evidence, with its age.
    muster explain greet
    """)
    make_command(e2e, "greet", "exit 3")
    end(e2e, "greet")
    result = e2e.run("muster explain greet", comment="This one failed.")
    expect(result).to_succeed()
    expect(result.stdout).to_match(r"\Agreet is failed \(exit 3\): its process ended otherwise than with 0$")
    expect(result.stdout).to_match(r"event exit .*code='3'")


def test_capture_has_colours_only_with_ansi(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # See the screen with its colours.
    muster capture greet --ansi
    """)
    make_command(e2e, "greet", r"printf '\033[31mred\033[0m and plain\n'; sleep 600")
    eventually(lambda: "plain" in outside(e2e, "muster", "capture", "greet"))
    coloured = e2e.run("muster capture greet --ansi", comment="See the screen with its colours.")
    plain = e2e.run("muster capture greet", comment="Without them.")
    expect(coloured).to_succeed()
    expect(coloured.stdout).to_match("^\x1b\\[31mred\x1b\\[(0|39)m and plain$")
    expect(plain.stdout).to_equal("red and plain\n")


def test_capture_with_ansi_shows_the_same_text(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # See the screen with its colours.
    muster capture greet --ansi
    """)
    make_greet(e2e)
    result = e2e.run("muster capture greet --ansi", comment="The agent of the tutorial.")
    expect(result).to_succeed()
    text = re.sub("\x1b\\[[0-9;]*m", "", result.stdout)
    assert "* commit Add a greeting\nShall I also say goodbye?\n" in text


def test_scrollback_has_what_has_scrolled_away(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Also what has scrolled away.
    muster capture greet --scrollback
    """)
    make_command(e2e, "greet", "seq 200; sleep 600")
    eventually(lambda: "200" in outside(e2e, "muster", "capture", "greet"))
    screen = e2e.run("muster capture greet", comment="Only the screen.")
    whole = e2e.run("muster capture greet --scrollback", comment="Also what has scrolled away.")
    expect(whole).to_succeed()
    expect(whole.stdout).to_equal("".join(f"{n}\n" for n in range(1, 201)))
    expect(screen.stdout).to_match(r"^200$")
    expect(screen.stdout).not_to_match(r"^1$")


def test_capture_still_shows_the_last_screen_of_an_agent_that_has_ended(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Also what has scrolled away.
    muster capture greet --scrollback
    """)
    make_command(e2e, "greet", "seq 200")
    end(e2e, "greet")
    result = e2e.run("muster capture greet --scrollback", comment="It has ended.")
    expect(result).to_succeed()
    expect(result.stdout).to_equal("".join(f"{n}\n" for n in range(1, 201)))


def test_the_session_is_saved_as_an_asciicast(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Save the whole session as a recording that asciinema plays, with pauses cut to two seconds.
    muster capture greet --cast ../greet.cast --idle 2
    """)
    make_greet(e2e)
    result = e2e.run("muster capture greet --cast ../greet.cast --idle 2", comment="Save the whole session.")
    expect(result).to_succeed()
    expect(result.stderr).to_match(r"^wrote \.\./greet\.cast \(\d+ events\); play it with: asciinema play \.\./greet")
    head, *events = [json.loads(line) for line in (e2e.work.parent / "greet.cast").read_text().splitlines()]
    assert head["version"] == 2 and head["width"] > 0 and head["height"] > 0
    times = [t for t, _, _ in events]
    assert times == sorted(times)
    shown = "".join(text for _, kind, text in events if kind == "o")
    assert shown.index("I will add a greeting.") < shown.index("Shall I also say goodbye?")


def test_idle_cuts_the_pauses_of_a_recording(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Save the whole session as a recording that asciinema plays, with pauses cut to two seconds.
    muster capture greet --cast ../greet.cast --idle 2
    """)
    make_command(e2e, "greet", "echo one; sleep 1; echo two")
    end(e2e, "greet")
    e2e.run("muster capture greet --cast ../real.cast", comment="As it was.")
    e2e.run("muster capture greet --cast ../cut.cast --idle 0.2", comment="Pauses cut to a fifth of a second.")
    assert seconds_apart(e2e.work.parent / "real.cast", "one", "two") > 0.9
    assert seconds_apart(e2e.work.parent / "cut.cast", "one", "two") <= 0.21


# transcript and events


def test_transcript_is_the_conversation(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Read the conversation.
    muster transcript greet
    """)
    make_greet(e2e)
    outside(e2e, "muster", "answer", "greet", "no, thank you")
    outside(e2e, "muster", "wait", "greet", "--until", "ready", "--timeout", "30s")
    result = e2e.run("muster transcript greet", comment="Read the conversation.")
    expect(result).to_succeed()
    assert re.findall("^## (.*)$", result.stdout, re.MULTILINE) == [
        "assistant",
        "tool write",
        "tool commit",
        "assistant",
        "user",
        "assistant",
    ]
    expect(result.stdout).to_contain("## user\nno, thank you\n\n## assistant\nYou said: no, thank you\n")


def test_a_plain_command_has_no_conversation_and_the_hint_is_its_screen(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Read the conversation.
    muster transcript greet
    """)
    make_command(e2e, "greet", "sleep 600")
    result = e2e.run("muster transcript greet", comment="A plain command.")
    expect(result).to_exit_with(1)
    expect(result.stderr).to_contain("greet is a command, which keeps no transcript")
    expect(result.stderr).to_contain("muster capture greet --scrollback")


def test_last_shows_only_the_end_of_the_conversation(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Only the end of it.
    muster transcript greet --last 3
    """)
    make_greet(e2e)
    result = e2e.run("muster transcript greet --last 3", comment="Only the end of it.")
    expect(result).to_succeed()
    assert re.findall("^## (.*)$", result.stdout, re.MULTILINE) == ["tool write", "tool commit", "assistant"]
    expect(result.stdout).to_contain("## assistant\nShall I also say goodbye?\n")
    expect(result.stdout).not_to_contain("I will add a greeting.")


def test_follow_reads_along_until_ctrl_c(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Read along while the agent works. Ctrl-C ends it.
    muster transcript greet --follow
    """)
    make_greet(e2e)
    terminal = e2e.terminal("muster transcript greet --follow", size=(100, 40), comment="Read along.")
    expect(terminal).to_show("Shall I also say goodbye?")
    assert "You said" not in terminal.screen
    outside(e2e, "muster", "answer", "greet", "no, that is all")
    expect(terminal).to_show("You said: no, that is all")
    terminal.press("Ctrl-C")
    expect(terminal).to_exit_with(130)
    expect(terminal).not_to_show("Traceback")


def test_events_say_what_happened_and_when(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # What happened to the agent, and when?
    muster events greet
    """)
    make_greet(e2e)
    result = e2e.run("muster events greet", comment="What happened to the agent, and when?")
    expect(result).to_succeed()
    found = [line.split(maxsplit=3) for line in result.stdout.splitlines()]
    assert [kind for _, _, kind, _ in found] == ["started", "tool", "tool", "ask"]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", f"{day} {time}") for day, time, _, _ in found)
    assert found[-1][3] == "text=Shall I also say goodbye?"


def test_events_of_an_unknown_agent_list_those_that_there_are(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # What happened to the agent, and when?
    muster events greet
    """)
    make_greet(e2e)
    result = e2e.run("muster events gret", comment="A misspelt name.")
    expect(result).to_exit_with(3)
    expect(result.stderr).to_contain("there is no agent gret")
    expect(result.stderr).to_match(r"^ +.*\bgreet\b")


def test_last_shows_only_so_many_events(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # The last ten events.
    muster events greet --last 10
    """)
    make_greet(e2e)
    for number in range(4):
        outside(e2e, "muster", "message", "greet", "-m", f"message {number}")
    whole = e2e.run("muster events greet", comment="All of them.").stdout.splitlines()
    result = e2e.run("muster events greet --last 10", comment="The last ten events.")
    expect(result).to_succeed()
    assert len(whole) > 10
    assert result.stdout.splitlines() == whole[-10:]


def test_events_are_followed_until_the_agent_is_destroyed(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Each event as it comes. It ends when the agent is destroyed.
    muster events greet --follow
    """)
    make_greet(e2e)
    follow = e2e.start("muster events greet --follow", comment="Each event as it comes.", ready_when="goodbye?")
    outside(e2e, "muster", "answer", "greet", "no")
    expect(follow).to_print("text=You said: no")
    assert follow.running
    outside(e2e, "muster", "stop", "greet", "--grace", "0")
    expect(follow).to_print("stopped")
    assert follow.running
    outside(e2e, "muster", "destroy", "greet")
    result = follow.wait(timeout=20)
    expect(result).to_succeed()
