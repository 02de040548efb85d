"""Tutorial section 18, One agent for each item: map and runs."""

from __future__ import annotations

import json
from typing import Any

from muster.tutorial import E2eSession, expect

from ..conftest import Sshd, eventually
from .conftest import agents, outside

FIRST = """printf 'alpha\\nbeta\\n' | muster map --run first -a command -- sh -c 'echo "hello {item}" > {item}.txt; git add .; git commit -q -m "Add {item}"'"""
HELD = "seq 2 | muster map --run held -a replay --prompt-file ../prompt.md --max-agents 2 --budget 5 --budget-tokens 100000 --timeout 5m --stall 10m --retries 2 --permissions ask --mode worktree --branch HEAD --clean --label kind=look --keep -- ../submits.toml"
SUBMITS = """
[[step]]
say = "I looked."
cost_usd = 0.01
[[step]]
submit = "ok"
summary = "It is a file."
[[step]]
turn = "Done."
"""


def shown(e2e: E2eSession, name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(outside(e2e, "muster", "runs", "show", name, "--json"))
    return document


def first(e2e: E2eSession) -> None:
    expect(e2e.run(FIRST, comment="One agent for each line of the input.")).to_succeed()


def test_each_line_has_an_agent_and_each_agent_a_branch(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # One agent for each line of the input, as many at once as the machine allows. {item} is the line. A plain command's exit is its result.
    printf 'alpha\\nbeta\\n' | muster map --run first -a command -- sh -c 'echo "hello {item}" > {item}.txt; git add .; git commit -q -m "Add {item}"'
    """)
    result = e2e.run(FIRST, comment="One agent for each line of the input.")
    expect(result).to_succeed()
    expect(result.stdout).to_equal("2 ok\n")
    expect(result.stderr).to_contain("0001-alpha ok")
    for number, word in ((1, "alpha"), (2, "beta")):
        expect(e2e.run(f"git show muster/first-000{number}:{word}.txt").stdout).to_equal(f"hello {word}\n")
    assert agents(e2e) == {}, "work dirs go when their work is harvested"


def test_a_terminal_shows_how_far_it_is_and_who_is_slow(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # One agent for each line of the input, as many at once as the machine allows. {item} is the line. A plain command's exit is its result.
    printf 'alpha\\nbeta\\n' | muster map --run first -a command -- sh -c 'echo "hello {item}" > {item}.txt; git add .; git commit -q -m "Add {item}"'
    """)
    go = e2e.work / "go"
    command = f"printf 'now\\nlater\\n' | muster map --run first -a command -- sh -c 'until test {{item}} = now || test -e {go}; do sleep 0.1; done'"
    with e2e.terminal(command, size=(120, 20), timeout=60) as screen:
        expect(screen).to_show("0001-now ok")
        expect(screen).to_show("first 1 ok, 1 running | ")
        expect(screen).to_show("longest: first-0002 ")
        go.touch()
        expect(screen).to_show("2 ok")
        expect(screen).not_to_show("longest")


def test_a_task_that_fails_is_tried_again_and_told(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # One agent for each line of the input, as many at once as the machine allows. {item} is the line. A plain command's exit is its result.
    printf 'alpha\\nbeta\\n' | muster map --run first -a command -- sh -c 'echo "hello {item}" > {item}.txt; git add .; git commit -q -m "Add {item}"'
    """)
    result = e2e.run(
        "printf 'good\\nbad\\n' | muster map --run first -a command -- sh -c 'echo trying; test {item} = good'",
        comment="One of them fails.",
    )
    expect(result).to_exit_with(1)
    expect(result.stdout).to_equal("1 ok, 1 failed\n")
    good, bad = shown(e2e, "first")["tasks"]
    assert (good["outcome"], good["attempts"]) == ("ok", 1)
    assert (bad["outcome"], bad["attempts"], bad["reason"]) == ("failed", 2, "exit 1: trying")


def test_what_became_of_each_task_is_shown(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # What became of each task: its outcome, its branch, and why. A run is a directory, and all that is known of it is a file there.
    muster runs
    muster runs show first
    git log --oneline -1 muster/first-0001
    """)
    first(e2e)
    expect(e2e.run("muster runs", comment="What became of each task.").stdout).to_match(
        r"^first +finished +2/2 +2 ok +command"
    )
    result = e2e.run("muster runs show first")
    expect(result.stdout).to_match(r"^0001-alpha +ok +- +1 +- +muster/first-0001")
    expect(e2e.run("git log --oneline -1 muster/first-0001").stdout).to_contain("Add alpha")
    folder = e2e.home / ".local" / "state" / "muster" / "runs" / "first" / "tasks" / "0001-alpha" / "attempt-1"
    there = {path.name for path in folder.iterdir()}
    assert there >= {"prompt.txt", "agent.json", "outcome.json", "diff.patch", "recording.cast", "events.jsonl"}
    assert "+hello alpha" in (folder / "diff.patch").read_text()


def test_one_task_is_shown_with_all_that_is_known_of_it(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # One task, by its id or its number: why it came out so, its attempts, what its agent said last, and what to type next.
    printf 'good\\nbad\\n' | muster map --run two -a command --retries 1 -- sh -c 'echo "it was {item}"; test {item} = good'
    muster runs show two 2
    """)
    command = """printf 'good\\nbad\\n' | muster map --run two -a command --retries 1 -- sh -c 'echo "it was {item}"; test {item} = good'"""
    expect(e2e.run(command, comment="One of them fails.")).to_exit_with(1)
    result = e2e.run("muster runs show two 2", comment="Why?")
    expect(result).to_succeed()
    expect(result.stdout).to_match(r"^0002-bad of two: failed$")
    expect(result.stdout).to_match(r"^reason: exit 1: it was bad$")
    expect(result.stdout).to_match(r"^1 +failed .* two-0002 +exit 1: it was bad$")
    expect(result.stdout).to_match(r"^2 +failed .* two-0002-2 +exit 1: it was bad$")
    expect(result.stdout).to_match(r"^Last lines:\n  it was bad$")
    expect(result.stdout).to_match(r"^Next:\n  muster start two-0002-2$")
    expect(e2e.run("muster runs show two 0002-bda").stderr).to_contain("did you mean 0002-bad?")


def test_a_finished_run_is_not_done_again(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # The same command again goes on with a run that is not finished. This one is: it says so, and does nothing twice.
    seq 2 | muster map --run twice --agent command --prompt 'Look at {item}.' -- sh -c 'echo "$MUSTER_PROMPT"'
    seq 2 | muster map --run twice --agent command --prompt 'Look at {item}.' -- sh -c 'echo "$MUSTER_PROMPT"'
    """)
    run = (
        """seq 2 | muster map --run twice --agent command --prompt 'Look at {item}.' -- sh -c 'echo "$MUSTER_PROMPT"'"""
    )
    expect(e2e.run(run, comment="A run, to its end.")).to_succeed()
    before = shown(e2e, "twice")
    result = e2e.run(run, comment="The same command again.")
    expect(result).to_succeed()
    expect(result.stderr).to_contain("this is all done: run twice")
    assert shown(e2e, "twice") == before
    folder = e2e.home / ".local" / "state" / "muster" / "runs" / "twice" / "tasks" / "0002-2" / "attempt-1"
    assert "Look at 2." in (folder / "recording.cast").read_text()
    other = e2e.run(run.replace("seq 2", "seq 3"), comment="Other input under the same name.")
    expect(other).to_exit_with(2)
    expect(other.stderr).to_contain("run twice was made for other input")


def test_a_dry_run_makes_nothing(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # See what would be done, and do nothing.
    seq 5 | muster map -a command --dry-run -- echo '{item}'
    """)
    result = e2e.run("seq 5 | muster map -a command --dry-run -- echo '{item}'", comment="See what would be done.")
    expect(result).to_succeed()
    expect(result.stdout).to_contain("0003-3  echo 3\n")
    expect(result.stderr).to_contain("5 tasks, up to 5 at once: cost unknown")
    assert json.loads(outside(e2e, "muster", "runs", "--json")) == {"runs": []}
    slip = e2e.run("seq 5 | muster map -a command --dry-run -- echo '{itm}'", comment="A slot that no item has.")
    expect(slip).to_exit_with(2)
    expect(slip.stderr).to_contain("this item has: item")


def test_fields_of_json_lines_are_slots(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Items as JSON Lines from a file: the fields of each object are slots too.
    printf '%s\\n' '{"file": "a.txt", "word": "one"}' '{"file": "b.txt", "word": "two"}' > ../words.jsonl
    muster map --run words -a command --items ../words.jsonl -- sh -c 'echo {word} > {file}'
    """)
    e2e.run("""printf '%s\\n' '{"file": "a.txt", "word": "one"}' '{"file": "b.txt", "word": "two"}' > ../words.jsonl""")
    result = e2e.run("muster map --run words -a command --items ../words.jsonl -- sh -c 'echo {word} > {file}'")
    expect(result).to_succeed()
    expect(e2e.run("git show muster/words-0002-wip:b.txt", comment="Not committed, and kept.").stdout).to_equal("two\n")


def test_an_agent_submits_a_result(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # A client gets a prompt, and submits a result. No person is there to ask, so it needs --permissions bypass or policy.
    ls README | muster map --run talk -a replay -p 'Look at {item}.' -- ../submits.toml
    """)
    (e2e.work.parent / "submits.toml").write_text(SUBMITS)
    result = e2e.run("ls README | muster map --run talk -a replay -p 'Look at {item}.' -- ../submits.toml")
    expect(result).to_succeed()
    (task,) = shown(e2e, "talk")["tasks"]
    assert (task["outcome"], task["summary"]) == ("ok", "It is a file.")
    folder = e2e.home / ".local" / "state" / "muster" / "runs" / "talk" / "tasks" / task["id"] / "attempt-1"
    assert (folder / "prompt.txt").read_text() == "Look at README."
    said = [json.loads(line)["text"] for line in (folder / "transcript.jsonl").read_text().splitlines()]
    assert "I looked." in said and said[0].startswith("Look at README.") and "submit --outcome" in said[0]


def test_one_that_submits_nothing_is_reminded_once(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # A client gets a prompt, and submits a result. No person is there to ask, so it needs --permissions bypass or policy.
    ls README | muster map --run talk -a replay -p 'Look at {item}.' -- ../submits.toml
    """)
    (e2e.work.parent / "submits.toml").write_text('[[step]]\nturn = "I am done."\n' + SUBMITS)
    result = e2e.run(
        "ls README | muster map --run talk -a replay -p 'Look at {item}.' -- ../submits.toml",
        comment="It needs a reminder.",
    )
    expect(result).to_succeed()
    (e2e.work.parent / "silent.toml").write_text('[[step]]\nturn = "I am done."\n[[step]]\nturn = "As I said."\n')
    silent = e2e.run(
        "ls README | muster map --retries 0 -a replay -p 'Look at {item}.' -- ../silent.toml",
        comment="It does not help.",
    )
    expect(silent).to_exit_with(1)
    expect(silent.stderr).to_contain("failed: it ended its turn without a result")


def test_all_that_holds_a_run_back(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # The prompt from a file, other agents at other work, and all that may hold a run back.
    echo 'Look at {item}.' > ../prompt.md
    seq 2 | muster map --run held -a replay --prompt-file ../prompt.md --max-agents 2 --budget 5 --budget-tokens 100000 --timeout 5m --stall 10m --retries 2 --permissions ask --mode worktree --branch HEAD --clean --label kind=look --keep -- ../submits.toml
    muster destroy -l kind=look
    """)
    (e2e.work.parent / "submits.toml").write_text(SUBMITS)
    (e2e.work / "README").write_text("not committed\n")
    e2e.run("echo 'Look at {item}.' > ../prompt.md")
    expect(e2e.run(HELD, comment="All that may hold a run back.")).to_succeed()
    kept = agents(e2e)
    assert {name: agent["state"] for name, agent in kept.items()} == {"held-0001": "stopped", "held-0002": "stopped"}
    assert kept["held-0001"]["labels"] == {"kind": "look", "run": "held", "task": "0001-1"}
    expect(e2e.run("muster diff held-0001", comment="--clean: without what is not committed.").stdout).to_be_empty()
    expect(e2e.run("muster destroy -l kind=look")).to_succeed()


def test_a_budget_that_is_spent_ends_the_run(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # The prompt from a file, other agents at other work, and all that may hold a run back.
    echo 'Look at {item}.' > ../prompt.md
    seq 2 | muster map --run held -a replay --prompt-file ../prompt.md --max-agents 2 --budget 5 --budget-tokens 100000 --timeout 5m --stall 10m --retries 2 --permissions ask --mode worktree --branch HEAD --clean --label kind=look --keep -- ../submits.toml
    muster destroy -l kind=look
    """)
    dear = '[[step]]\nsay = "Thinking."\ninput_tokens = 2000\ncost_usd = 9.0\n[[step]]\nwait = 600\n'
    (e2e.work.parent / "submits.toml").write_text(dear)
    (e2e.work.parent / "prompt.md").write_text("Look at {item}.")
    result = e2e.run(HELD.replace("--keep ", ""), comment="They spend more than there is.")
    expect(result).to_exit_with(4)
    expect(result.stdout).to_equal("2 over-budget\n")
    tasks = shown(e2e, "held")["tasks"]
    assert {task["outcome"] for task in tasks} == {"over-budget"} and sum(task["cost_usd"] or 0 for task in tasks) >= 9
    assert {row["state"] for row in agents(e2e).values()} == {"stopped"}, "they are there for a person to look at"


def test_a_budget_of_the_configuration_holds_for_every_run(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Budgets for every run are configured, for one run, one agent or all runs of a day. Over one of them means stopped and harvested.
    muster config set budget.day_dollars 20
    muster config set budget.agent_dollars 2
    muster config set budget.time 2h
    ls README | muster map --run frugal -a replay -p 'Look at {item}.' -- ../submits.toml
    """)
    dear = '[[step]]\nsay = "Thinking."\ninput_tokens = 2000\ncost_usd = 9.0\n[[step]]\nwait = 600\n'
    (e2e.work.parent / "submits.toml").write_text(dear)
    for words in ("day_dollars 20", "agent_dollars 2", "time 2h"):
        expect(e2e.run(f"muster config set budget.{words}")).to_succeed()
    run = "ls README | muster map --run frugal -a replay -p 'Look at {item}.' -- ../submits.toml"
    result = e2e.run(run, comment="An agent may spend two dollars, and this one spends nine.")
    expect(result).to_exit_with(4)
    expect(result.stderr).to_contain("budget of task 0001-readme $2.00: $9.00 used")
    second = e2e.run(run.replace("frugal", "second"), comment="Nine of the day's twenty are gone.")
    expect(second).to_exit_with(4)
    expect(second.stderr).to_contain("1 task, up to 1 at once: about $9.00")
    third = e2e.run(run.replace("frugal", "third"), comment="Eighteen are: what is left does not pay for one more.")
    expect(third).to_exit_with(4)
    expect(third.stderr).to_contain("budget of the day $20.00: $2.00 left, and an agent takes about $9.00")
    assert [task["attempts"] for task in shown(e2e, "third")["tasks"]] == [0], "it never had an agent"
    assert {row["state"] for row in agents(e2e).values()} == {"stopped"}


def test_an_agent_that_asks_waits_for_a_person(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # What an agent that asks is told, when nobody is there: answer tells it so, once; escalate tells you, and it waits; stop ends it.
    ls README | muster map --run asking -a replay --questions escalate -p 'Look at {item}.' -- ../asks.toml &
    until muster list 2>&1 | grep -q waiting; do sleep 0.2; done
    muster answer asking-0001 'The first one.'
    wait
    """)
    asks = '[[step]]\nask = "Which one?"\n[[step]]\nexpect = "The first one."\n[[step]]\nsubmit = "ok"\nsummary = "Done."\n'
    (e2e.work.parent / "asks.toml").write_text(asks)
    told = e2e.home / "told"
    outside(
        e2e, "muster", "config", "set", "notify.command", f'echo "$MUSTER_NOTIFY_STATE $MUSTER_NOTIFY_TEXT" >> {told}'
    )
    outside(e2e, "muster", "config", "set", "notify.on", '["alert"]')
    run = e2e.start(
        "ls README | muster map --run asking -a replay --questions escalate -p 'Look at {item}.' -- ../asks.toml",
        comment="It asks, and waits.",
    )
    e2e.run("until muster list 2>&1 | grep -q waiting; do sleep 0.2; done")
    eventually(lambda: told.exists() and told.read_text() == "alert asking-0001 asks: Which one?\n")
    expect(e2e.run("muster answer asking-0001 'The first one.'")).to_succeed()
    expect(run.wait()).to_succeed()
    assert shown(e2e, "asking")["outcomes"] == {"ok": 1}


def test_agents_on_other_machines_bring_their_branches_home(e2e: E2eSession, box: Sshd) -> None:
    run = """seq 2 | muster map --run far -a command @box -- sh -c 'echo {item} > f; git add f; git commit -q -m "{item}"'"""
    e2e.write_tutorial_block("""
    # On other machines: the agents are spread over them, and their branches come home.
    seq 2 | muster map --run far -a command @box -- sh -c 'echo {item} > f; git add f; git commit -q -m "{item}"'
    git log --oneline -1 muster/far-0002
    """)
    expect(e2e.run(run, comment="On other machines.")).to_succeed()
    expect(e2e.run("git log --oneline -1 muster/far-0002").stdout).to_match(r"^[0-9a-f]+ 2$")
    assert [task["agent"] for task in shown(e2e, "far")["tasks"]] == ["far-0001@box", "far-0002@box"]


def test_agents_are_spread_over_several_machines(e2e: E2eSession, box: Sshd) -> None:
    e2e.write_tutorial_block("""
    # On other machines: the agents are spread over them, and their branches come home.
    seq 2 | muster map --run far -a command @box -- sh -c 'echo {item} > f; git add f; git commit -q -m "{item}"'
    git log --oneline -1 muster/far-0002
    """)
    there = box.config.read_text().partition("Host nobody")[0]
    box.config.write_text(f"{there.replace('Host box', 'Host other')}{box.config.read_text()}")
    expect(e2e.run(f"muster config set hosts.other.home {box.home}/second")).to_succeed()
    # Where the machine is busy with other tests they would be launched one after the other, wherever it is least so.
    expect(e2e.run("muster config set limits.load 1000")).to_succeed()
    run = """seq 4 | muster map --run far -a command @box @other -- sh -c 'echo {item} > f; git add f; git commit -q -m "{item}"'"""
    expect(e2e.run(run, comment="Two machines this time.")).to_succeed()
    assert {task["agent"].partition("@")[2] for task in shown(e2e, "far")["tasks"]} == {"box", "other"}
    for number in range(1, 5):
        expect(e2e.run(f"git log --format=%s -1 muster/far-000{number}").stdout).to_equal(f"{number}\n")


def test_events_come_as_json_lines(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Once more from the start, although a run of this input is not finished. Events as JSON Lines, for programs.
    seq 2 | muster map -a command --new --json --verbose -- true
    """)
    result = e2e.run("seq 2 | muster map -a command --new --json --verbose -- true", comment="Events as JSON Lines.")
    expect(result).to_succeed()
    events = [json.loads(line) for line in result.stdout.splitlines()]
    assert {event["version"] for event in events} == {1}
    assert [event["kind"] for event in events].count("outcome") == 2 and events[-1]["kind"] == "finished"
    assert events[-1]["outcomes"] == {"ok": 2}


def test_runs_are_documents_for_programs(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # All runs, or one of them, for programs.
    muster runs --json --verbose
    muster runs show first --json --verbose
    """)
    first(e2e)
    (row,) = json.loads(e2e.run("muster runs --json --verbose", comment="All runs.").stdout)["runs"]
    assert (row["name"], row["state"], row["outcomes"], row["total"]) == ("first", "finished", {"ok": 2}, 2)
    whole = json.loads(e2e.run("muster runs show first --json --verbose").stdout)
    assert [task["commits"] for task in whole["tasks"]] == [1, 1]


def test_a_run_that_is_under_way_is_asked_to_stop(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Ask something of a run that is under way: launch no more for now, go on, with fewer at once, or stop. Its agents are harvested first.
    seq 3 | muster map --run long -a command --max-agents 1 -- sh -c 'sleep 600' &
    until muster runs show long 2>&1 | grep -q running; do sleep 0.2; done
    muster runs pause long
    muster runs resume long
    muster runs set long max_agents=2
    muster runs stop long
    wait
    """)
    run = e2e.start(
        "seq 3 | muster map --run long -a command --max-agents 1 -- sh -c 'sleep 600'", comment="A long run."
    )
    e2e.run("until muster runs show long 2>&1 | grep -q running; do sleep 0.2; done")
    eventually(lambda: len(agents(e2e)) == 1)
    expect(e2e.run("muster runs pause long")).to_succeed()
    eventually(lambda: shown(e2e, "long")["state"] == "paused")
    expect(e2e.run("muster runs resume long")).to_succeed()
    eventually(lambda: shown(e2e, "long")["state"] == "running")
    expect(e2e.run("muster runs set long max_agents=2")).to_succeed()
    expect(e2e.run("muster runs stop long")).to_succeed()
    expect(run.wait()).to_exit_with(1)
    assert shown(e2e, "long")["outcomes"] == {"cancelled": 3}
    assert {row["state"] for row in agents(e2e).values()} == {"stopped"}


def test_what_there_was_no_budget_for_is_taken_up_by_the_same_command(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # What there was no budget for is taken up by the same command when there is: nothing is done twice. What was stopped is, too.
    muster config set budget.agents 1
    seq 2 | muster map --run poor -a command -- sh -c 'echo {item} > f; git add f; git commit -q -m "{item}"' || echo "one is left"
    muster config set budget.agents 100
    seq 2 | muster map --run poor -a command -- sh -c 'echo {item} > f; git add f; git commit -q -m "{item}"'
    """)
    again = (
        "seq 2 | muster map --run poor -a command -- sh -c 'echo {item} > f; git add f; git commit -q -m \"{item}\"'"
    )
    expect(e2e.run("muster config set budget.agents 1")).to_succeed()
    poor = e2e.run(again + ' || echo "one is left"', comment="Only one agent may be launched.")
    expect(poor.stdout).to_contain("one is left")
    before = shown(e2e, "poor")
    assert before["outcomes"] == {"ok": 1, "over-budget": 1} and before["state"] == "finished"
    expect(e2e.run("muster config set budget.agents 100")).to_succeed()
    rich = e2e.run(again, comment="And now a hundred in all.")
    expect(rich).to_succeed()
    expect(rich.stderr).to_contain("going on with run poor")
    told = shown(e2e, "poor")
    assert told["outcomes"] == {"ok": 2} and [task["attempts"] for task in told["tasks"]] == [1, 1]
    done = e2e.run(again, comment="Once more: there is nothing left.")
    expect(done).to_succeed()
    expect(done.stderr).to_contain("this is all done: run poor")


def test_a_run_is_removed_and_its_branches_stay(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Remove the directory of a run. Branches stay.
    muster runs rm long
    """)
    fails = FIRST.replace("--run first", "--run long --retries 0").replace(
        "git commit", "test {item} = alpha && git commit"
    )
    expect(e2e.run(fails)).to_exit_with(1)
    assert set(agents(e2e)) == {"long-0002"}, "one that did not do its task is only stopped"
    expect(e2e.run("muster runs rm long", comment="Remove the directory of a run.")).to_succeed()
    expect(e2e.run("muster runs show long")).to_exit_with(3)
    assert agents(e2e) == {}
    expect(e2e.run("git log --oneline -1 muster/long-0001").stdout).to_contain("Add alpha")


def test_branches_of_agents_that_were_only_stopped_stay_too(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Remove the directory of a run. Branches stay.
    muster runs rm long
    """)
    fails = """seq 2 | muster map --run long --retries 0 -a command -- sh -c 'echo {item} > f; test {item} = 2 || { git add f; git commit -qm "Add {item}"; }; echo more > g; exit 1'"""
    expect(e2e.run(fails, comment="Both fail; the first has committed something before.")).to_exit_with(1)
    expect(e2e.run("git commit --allow-empty -qm later", cwd=agents(e2e)["long-0001"]["workdir"])).to_succeed()
    expect(e2e.run("muster runs rm long", comment="Remove the directory of a run.")).to_succeed()
    assert agents(e2e) == {}
    branches = e2e.run("git for-each-ref --format='%(refname:short) %(subject)' refs/heads/muster refs/muster/runs")
    expect(branches.stdout).to_match(r"^muster/long-0001 later$")
    expect(branches.stdout).to_match(r"^muster/long-0001-wip ")
    expect(branches.stdout).to_match(r"^muster/long-0002-wip ")
    expect(branches.stdout).not_to_match(r"^muster/long-0002 |^refs/muster/runs")


def test_a_run_whose_host_does_not_answer_is_not_removed(e2e: E2eSession, box: Sshd) -> None:
    e2e.write_tutorial_block("""
    # Remove the directory of a run. Branches stay.
    muster runs rm long
    """)
    expect(e2e.run("seq 1 | muster map --run long --retries 0 -a command @box -- false")).to_exit_with(1)
    shim = e2e.home / "bin" / "ssh"
    before = shim.read_text()
    shim.write_text("#!/bin/sh\nexit 255\n")
    result = e2e.run("muster runs rm long", comment="Its agent is on a host that does not answer now.")
    expect(result).to_exit_with(6)
    expect(result.stderr).to_contain("host box does not answer, and agents of long may be there")
    expect(result.stderr).to_contain("muster hosts forget box")
    assert shown(e2e, "long")["outcomes"] == {"failed": 1}
    shim.write_text(before)
    expect(e2e.run("muster runs rm long", comment="It answers again.")).to_succeed()
    assert agents(e2e) == {}


def test_a_removal_brings_commits_home_before_the_agents_go(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Remove the directory of a run. Branches stay.
    muster runs rm long
    """)
    fails = "seq 1 | muster map --run long --retries 0 -a command -- sh -c 'git commit --allow-empty -qm some; exit 1'"
    expect(e2e.run(fails)).to_exit_with(1)
    outside(e2e, "git", "branch", "-D", "muster/long-0001")
    expect(e2e.run("muster runs rm long")).to_succeed()
    expect(e2e.run("git log --format=%s -1 muster/long-0001").stdout).to_equal("some\n")
