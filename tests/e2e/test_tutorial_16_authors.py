"""Tutorial section 16, its end: agents that write examples and tests for the authors of a tutorial.

The stand-in for a client is a playbook, which fails when the prompt lacks what it expects.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from muster.tutorial import E2eSession, blocks, expect

from .conftest import agents, outside

PROJECT = (
    "# Examples are tiring to write. Write headings instead, and have an agent fill them in. Here is a small project, and a playbook that stands in for a client.\n"
    "mkdir -p ../cafe/tests\n"
    "cat > ../cafe/tutorial.sh <<'END'\n"
    "#!/bin/bash\n"
    "\n"
    "# Say hello.\n"
    "echo hello\n"
    "\n"
    "# Counting things\n"
    "END\n"
    "cat > ../cafe.toml <<'END'\n"
    "[[step]]\n"
    'expect = "Counting things"\n'
    "[[step]]\n"
    'write = "tutorial.sh"\n'
    "text = '''\n"
    "#!/bin/bash\n"
    "\n"
    "# Say hello.\n"
    "echo hello\n"
    "\n"
    "# Counting things\n"
    "\n"
    "# Count three things.\n"
    "seq 3\n"
    "\n"
    "# Count backwards.\n"
    "seq --backwards 3\n"
    "'''\n"
    "[[step]]\n"
    'commit = "Examples"\n'
    "[[step]]\n"
    'turn = "Done."\n'
    "END\n"
    "git init -q ../cafe && git -C ../cafe add -A && git -C ../cafe commit -q -m first"
)
FILL = (
    "# The agent writes on a branch of its own, and every example is run there. What fails tells you where your program confuses.\n"
    "muster tutorial fill ../cafe/tutorial.sh --agent replay --name waiter --heading counting --timeout 5m -- ../cafe.toml"
)
KEEP = (
    "# Keep the ones that work: they are committed on the agent's branch, and your own tree stays as it is until you pull.\n"
    "muster tutorial fill ../cafe/tutorial.sh --from waiter --accept passing\n"
    "muster pull waiter --merge"
)
DATA = (
    "# What else was proposed, as data: the text, the exit code, the output, and what was found.\n"
    "muster tutorial fill ../cafe/tutorial.sh --from waiter --json --verbose"
)
SYNC = (
    "# The tests can be written by an agent too. muster judges what it commits, runs it, and sends back what is left: blocks without a test, stale citations, no unhappy path, tests that fail.\n"
    "cat > ../cafe-tests.toml <<'END'\n"
    "[[step]]\n"
    'expect = "muster tutorial check --tutorial tutorial.sh tests"\n'
    "[[step]]\n"
    'write = "tests/test_cafe.py"\n'
    "text = '''\n"
    "from muster.tutorial import E2eSession, expect\n"
    "\n"
    "\n"
    "def test_hello_is_said(e2e: E2eSession) -> None:\n"
    '    e2e.write_tutorial_block("""\n'
    "    # Say hello.\n"
    "    echo hello\n"
    '    """)\n'
    "    # no unhappy path: it only prints\n"
    '    expect(e2e.run("echo hello").stdout).to_contain("hello")\n'
    "\n"
    "\n"
    "def test_three_things_are_counted(e2e: E2eSession) -> None:\n"
    '    e2e.write_tutorial_block("""\n'
    "    # Count three things.\n"
    "    seq 3\n"
    '    """)\n'
    '    expect(e2e.run("seq 3").stdout).to_contain("3")\n'
    '    expect(e2e.run("seq three")).to_fail()\n'
    "'''\n"
    "[[step]]\n"
    'commit = "Tests"\n'
    "[[step]]\n"
    'turn = "Done."\n'
    "END\n"
    "muster tutorial sync --tutorial ../cafe/tutorial.sh --agent replay --name tester --rounds 2 --timeout 5m --pytest 'python -m pytest' ../cafe/tests -- ../cafe-tests.toml"
)
HOME = (
    "# Bring the tests home. Then all is in step, and another sync has nothing to do.\n"
    "muster pull tester --merge\n"
    "muster tutorial sync --tutorial ../cafe/tutorial.sh ../cafe/tests --json --verbose"
)
SKILL = (
    "# Your client can do this from inside: install it as the slash command sync-tutorial-to-e2e-tests, for claude and, in AGENTS.md, for all others.\n"
    "muster tutorial skill --dir ../cafe"
)
PRINT = "# Read the instructions first.\nmuster tutorial skill claude --print"
OTHERS = (
    "# For other clients, in place of what is there.\n"
    "muster tutorial skill opencode codex agents --dir ../cafe --force --json --verbose"
)
HELP = (
    "# All that these three can do.\n"
    "muster tutorial fill --help\n"
    "muster tutorial sync --help\n"
    "muster tutorial skill --help"
)
RUN_FILL, RUN_SYNC = FILL.split("\n", 1)[1], SYNC[SYNC.index("muster tutorial sync") :]
COUNT, BACK = "# Count three things.\nseq 3", "# Count backwards.\nseq --backwards 3"


def cafe(e2e: E2eSession) -> Path:
    return (e2e.work / ".." / "cafe").resolve()


def begin(e2e: E2eSession) -> Path:
    """The little project of these blocks."""
    outside(e2e, "bash", "-c", PROJECT)
    return cafe(e2e)


def proposed(e2e: E2eSession) -> dict[str, Any]:
    """After the first fill: what it says, as data."""
    begin(e2e)
    found: dict[str, Any] = json.loads(outside(e2e, "bash", "-c", RUN_FILL.replace("--timeout", "--json --timeout")))
    return found


def kept(e2e: E2eSession) -> Path:
    """After what works was kept and pulled."""
    proposed(e2e)
    outside(e2e, "bash", "-c", KEEP)
    return cafe(e2e)


def state(e2e: E2eSession) -> tuple[str, str, str]:
    """What must not change by itself: the commit, the tree, the index."""
    at = ("git", "-C", str(cafe(e2e)))
    return (
        outside(e2e, *at, "rev-parse", "HEAD"),
        outside(e2e, *at, "status", "--porcelain"),
        outside(e2e, *at, "ls-files", "-s"),
    )


# fill


def test_a_project_with_a_heading_to_be_filled_is_made(e2e: E2eSession) -> None:
    e2e.write_tutorial_block(PROJECT)
    expect(e2e.run(PROJECT)).to_succeed()
    assert [block.comment for block in blocks.read(cafe(e2e) / "tutorial.sh") if block.kind == "heading"] == [
        "Counting things"
    ]
    assert outside(e2e, "git", "-C", str(cafe(e2e)), "status", "--porcelain") == ""


def test_without_a_heading_there_is_nothing_to_fill(e2e: E2eSession) -> None:
    e2e.write_tutorial_block(PROJECT)
    (begin(e2e) / "tutorial.sh").write_text("# Say hello.\necho hello\n")
    result = e2e.run("muster tutorial fill ../cafe/tutorial.sh", comment="The heading is gone.")
    expect(result).to_succeed()
    expect(result.stderr).to_contain("no heading to fill")
    assert json.loads(outside(e2e, "muster", "list", "--json"))["agents"] == []


def test_outside_of_a_repository_no_agent_can_work(e2e: E2eSession) -> None:
    e2e.write_tutorial_block(PROJECT)
    begin(e2e)
    outside(e2e, "rm", "-rf", "../cafe/.git")
    result = e2e.run("muster tutorial fill ../cafe/tutorial.sh", comment="Without git init.")
    expect(result).to_exit_with(2)
    expect(result.stderr).to_contain("is not in a git repository")
    expect(result.stderr).to_contain("git init ../cafe")


def test_examples_are_proposed_and_run_and_nothing_is_kept_by_itself(e2e: E2eSession) -> None:
    e2e.write_tutorial_block(FILL)
    begin(e2e)
    before = state(e2e)
    result = e2e.run(RUN_FILL, comment="Fill the heading.")
    expect(result).to_succeed()
    expect(result.stdout).to_contain("# Count three things.")
    expect(result.stdout).to_contain("Interface findings")
    expect(result.stdout).to_contain("backwards")
    expect(result.stderr).to_contain(
        "nothing was kept; muster tutorial fill ../cafe/tutorial.sh --from waiter --accept"
    )
    assert state(e2e) == before
    agent = json.loads(outside(e2e, "muster", "list", "--json"))["agents"][0]
    assert (agent["name"], agent["labels"], agent["state"]) == ("waiter", {"tutorial": "fill"}, "ready")


def test_an_unknown_heading_is_told_with_those_there_are(e2e: E2eSession) -> None:
    e2e.write_tutorial_block(FILL)
    begin(e2e)
    result = e2e.run(
        RUN_FILL.replace("--heading counting", "--heading cooking"), comment="A heading that is not there."
    )
    expect(result).to_exit_with(3)
    expect(result.stderr).to_contain("no heading 'cooking'")
    expect(result.stderr).to_contain("'Counting things'")


def test_an_agent_that_fails_is_told_with_what_to_type(e2e: E2eSession) -> None:
    e2e.write_tutorial_block(FILL)
    begin(e2e)
    (cafe(e2e).parent / "cafe.toml").write_text('[[step]]\nexpect = "something else"\n')
    result = e2e.run(RUN_FILL, comment="An agent that gives up.")
    expect(result).to_exit_with(1)
    expect(result.stderr).to_contain("waiter is failed")
    expect(result.stderr).to_contain("muster capture waiter")


def test_an_agent_that_takes_too_long_goes_on(e2e: E2eSession) -> None:
    e2e.write_tutorial_block(FILL)
    begin(e2e)
    (cafe(e2e).parent / "cafe.toml").write_text("[[step]]\nwait = 600\n")
    result = e2e.run(RUN_FILL.replace("--timeout 5m", "--timeout 1s"), comment="Not enough time.")
    expect(result).to_exit_with(4)
    expect(result.stderr).to_contain("muster connect waiter")
    expect(result.stderr).to_contain("muster tutorial fill ../cafe/tutorial.sh --from waiter")
    assert json.loads(outside(e2e, "muster", "list", "--json"))["agents"][0]["state"] in ("starting", "working")


def test_what_works_is_kept_on_the_branch_and_comes_with_a_pull(e2e: E2eSession) -> None:
    e2e.write_tutorial_block(KEEP)
    proposed(e2e)
    before = state(e2e)
    accept, pull = KEEP.split("\n")[1:]
    result = e2e.run(accept, comment="Keep the ones that work.")
    expect(result).to_succeed()
    expect(result.stderr).to_contain("1 kept on muster/waiter; muster pull waiter --merge")
    assert state(e2e) == before
    expect(e2e.run(pull)).to_succeed()
    text = (cafe(e2e) / "tutorial.sh").read_text()
    assert COUNT in text and BACK not in text
    assert [block.kind for block in blocks.parse(text) if block.comment == "Counting things"] == ["banner"]


def test_an_unknown_id_keeps_nothing(e2e: E2eSession) -> None:
    e2e.write_tutorial_block(KEEP)
    known = [proposal["id"] for proposal in proposed(e2e)["proposals"]]
    work = Path(agents(e2e)["waiter"]["workdir"])
    before = outside(e2e, "git", "rev-parse", "--verify", "muster/waiter", cwd=work)
    result = e2e.run(f"muster tutorial fill ../cafe/tutorial.sh --from waiter --accept {known[0]},nothing-000000")
    expect(result).to_exit_with(3)
    expect(result.stderr).to_contain("no example 'nothing-000000'")
    expect(result.stderr).to_contain(known[1])
    assert before and outside(e2e, "git", "rev-parse", "--verify", "muster/waiter", cwd=work) == before


def test_on_a_terminal_they_are_picked_one_by_one(e2e: E2eSession) -> None:
    e2e.write_tutorial_block(KEEP)
    proposed(e2e)
    before = state(e2e)
    # The first is passed over, the second is kept although it fails: the choice is the user's.
    screen = e2e.terminal("muster tutorial fill ../cafe/tutorial.sh --from waiter", size=(110, 45), timeout=30)
    expect(screen).to_show("[1/2] keep it? y/n/q")
    expect(screen).to_show("# Count three things.")
    screen.type("what?\n")
    screen.type("n\n")
    expect(screen).to_show("[2/2] keep it? y/n/q")
    screen.type("y\n")
    expect(screen).to_show("muster pull waiter --merge")
    expect(screen).to_exit_with(0)
    work = Path(agents(e2e)["waiter"]["workdir"])
    text = outside(e2e, "git", "show", "muster/waiter:tutorial.sh", cwd=work)
    assert BACK in text and COUNT not in text
    assert state(e2e) == before


def test_q_ends_the_picking_and_keeps_nothing_more(e2e: E2eSession) -> None:
    e2e.write_tutorial_block(KEEP)
    proposed(e2e)
    screen = e2e.terminal("muster tutorial fill ../cafe/tutorial.sh --from waiter", size=(110, 45), timeout=30)
    expect(screen).to_show("[1/2] keep it? y/n/q")
    screen.type("q\n")
    expect(screen).to_show("nothing was kept")
    expect(screen).to_exit_with(0)
    assert "accepted" not in json.loads(outside(e2e, "muster", "list", "--json"))["agents"][0]["labels"]


def test_what_is_left_is_told_as_data(e2e: E2eSession) -> None:
    e2e.write_tutorial_block(DATA)
    kept(e2e)
    result = e2e.run(DATA.split("\n")[1], comment="As data.")
    expect(result).to_succeed()
    (left,) = result.json()["proposals"]
    assert (left["text"], left["ok"], left["heading"]) == (BACK, False, "Counting things")
    assert left["exit_code"] != 0 and "backwards" in left["output"]
    assert result.json()["findings"][0]["proposal"] == left["id"]


def test_an_agent_of_another_kind_has_proposed_nothing(e2e: E2eSession) -> None:
    e2e.write_tutorial_block(DATA)
    begin(e2e)
    outside(e2e, "muster", "create", "waiter", "command", "--no-connect", "--", "true")
    result = e2e.run(DATA.split("\n")[1], comment="This waiter was made for something else.")
    expect(result).to_exit_with(2)
    assert "not made by muster tutorial fill" in result.json()["error"]["message"]


# sync


def test_an_agent_writes_the_tests_that_are_missing(e2e: E2eSession) -> None:
    e2e.write_tutorial_block(SYNC)
    kept(e2e)
    before = state(e2e)
    result = e2e.run(SYNC, comment="Have the tests written.")
    expect(result).to_succeed()
    expect(result.stderr).to_contain("round 1: every block is cited, and the tests that tester committed pass")
    expect(result.stderr).to_contain("muster diff tester")
    expect(result.stderr).to_contain("muster pull tester --merge")
    assert state(e2e) == before
    assert not (cafe(e2e) / "tests" / "test_cafe.py").exists()


def test_what_is_left_after_all_rounds_is_told(e2e: E2eSession) -> None:
    e2e.write_tutorial_block(SYNC)
    kept(e2e)
    (cafe(e2e).parent / "cafe-tests.toml").write_text('[[step]]\nturn = "No."\n[[step]]\nturn = "Still no."\n')
    result = e2e.run(RUN_SYNC, comment="An agent that writes nothing.")
    expect(result).to_exit_with(1)
    expect(result.stderr).to_contain("round 2: 2 findings left")
    expect(result.stdout).to_contain("tutorial.sh:3: missing")
    assert json.loads(outside(e2e, "muster", "list", "--json"))["agents"]


def test_a_happy_path_alone_goes_back_to_the_agent(e2e: E2eSession) -> None:
    e2e.write_tutorial_block(SYNC)
    kept(e2e)
    outside(e2e, "bash", "-c", SYNC[: SYNC.index("muster tutorial sync")])
    play = cafe(e2e).parent / "cafe-tests.toml"
    whole = play.read_text()
    lazy = whole.replace('    expect(e2e.run("seq three")).to_fail()\n', "")
    assert lazy != whole
    again = whole.replace('"muster tutorial check', '"happy-only').replace(" --tutorial tutorial.sh tests", "", 1)
    play.write_text(lazy + again)
    result = e2e.run(RUN_SYNC, comment="No unhappy path at first.")
    expect(result).to_succeed()
    expect(result.stderr).to_contain("round 1: 1 finding left")
    expect(result.stderr).to_contain("round 2: every block is cited, and the tests that tester committed pass")


def test_after_a_pull_another_sync_has_nothing_to_do(e2e: E2eSession) -> None:
    e2e.write_tutorial_block(HOME)
    kept(e2e)
    outside(e2e, "bash", "-c", SYNC)
    pull, sync = HOME.split("\n")[1:]
    expect(e2e.run(pull, comment="Bring the tests home.")).to_succeed()
    assert (cafe(e2e) / "tests" / "test_cafe.py").exists()
    result = e2e.run(sync)
    expect(result).to_succeed()
    assert (result.json()["ok"], result.json()["agent"], result.json()["findings"]) == (True, None, [])


def test_without_tests_at_that_place_it_says_so(e2e: E2eSession) -> None:
    e2e.write_tutorial_block(HOME)
    begin(e2e)
    result = e2e.run("muster tutorial sync --tutorial ../cafe/tutorial.sh ../cafe/nowhere --json --verbose")
    expect(result).to_exit_with(3)
    assert "no tests at ../cafe/nowhere" in result.json()["error"]["message"]


# skill


def test_the_slash_command_is_installed_once(e2e: E2eSession) -> None:
    e2e.write_tutorial_block(SKILL)
    (begin(e2e) / "AGENTS.md").write_text("# Mine\n")
    command = SKILL.split("\n")[1]
    expect(e2e.run(command, comment="Install it.")).to_succeed()
    instructions = cafe(e2e) / ".claude" / "commands" / "sync-tutorial-to-e2e-tests.md"
    assert "muster tutorial check" in instructions.read_text()
    whole = (cafe(e2e) / "AGENTS.md").read_text()
    assert whole.startswith("# Mine\n\n<!-- muster: sync-tutorial-to-e2e-tests -->\n")
    again = e2e.run(command, comment="A second time nothing changes.")
    expect(again.stderr).to_contain("unchanged")
    assert (cafe(e2e) / "AGENTS.md").read_text() == whole


def test_instructions_that_differ_are_not_overwritten(e2e: E2eSession) -> None:
    e2e.write_tutorial_block(SKILL)
    mine = begin(e2e) / ".claude" / "commands" / "sync-tutorial-to-e2e-tests.md"
    mine.parent.mkdir(parents=True)
    mine.write_text("my own\n")
    result = e2e.run(SKILL.split("\n")[1], comment="There are others already.")
    expect(result).to_exit_with(5)
    expect(result.stderr).to_contain("--force replaces them")
    assert mine.read_text() == "my own\n" and not (cafe(e2e) / "AGENTS.md").exists()


def test_the_instructions_are_printed_and_not_written(e2e: E2eSession) -> None:
    e2e.write_tutorial_block(PRINT)
    result = e2e.run(PRINT.split("\n")[1], comment="Read them first.")
    expect(result).to_succeed()
    expect(result.stdout).to_contain("# no unhappy path: REASON")
    expect(result.stdout).to_contain("$ARGUMENTS")
    assert not (e2e.work / ".claude").exists()
    wrong = e2e.run("muster tutorial skill claud --print", comment="A client that nobody knows.")
    expect(wrong).to_exit_with(2)
    expect(wrong.stderr).to_contain("did you mean 'claude'?")


def test_other_clients_get_theirs_in_place_of_what_is_there(e2e: E2eSession) -> None:
    e2e.write_tutorial_block(OTHERS)
    place = begin(e2e) / ".opencode" / "command" / "sync-tutorial-to-e2e-tests.md"
    place.parent.mkdir(parents=True)
    place.write_text("old\n")
    result = e2e.run(OTHERS.split("\n")[1], comment="For other clients.")
    expect(result).to_succeed()
    assert [(file["path"], file["action"]) for file in result.json()["files"]] == [
        (".opencode/command/sync-tutorial-to-e2e-tests.md", "updated"),
        ("AGENTS.md", "written"),
    ]
    assert "muster tutorial check" in place.read_text()
    (cafe(e2e) / "AGENTS.md").write_text("<!-- muster: sync-tutorial-to-e2e-tests -->\n")
    broken = e2e.run(OTHERS.split("\n")[1], comment="A mark without its end is not guessed at.")
    expect(broken).to_exit_with(5)


def test_each_has_a_help_with_examples(e2e: E2eSession) -> None:
    e2e.write_tutorial_block(HELP)
    for line in HELP.split("\n")[1:]:
        result = e2e.run(line)
        expect(result).to_succeed()
        expect(result.stdout).to_contain(f"Usage: {line.removesuffix(' --help')}")
        expect(result.stdout).to_contain("Examples:")
    expect(e2e.run("muster tutorial fil --help", comment="A word that is off.")).to_exit_with(2)
