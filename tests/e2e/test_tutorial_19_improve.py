"""Tutorial section 19, A better test suite: improve and reduce."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from muster.tutorial import E2eSession, expect

from .conftest import agents, outside

pytestmark = pytest.mark.timeout(300)

MEND = "muster improve -a replay --playbooks ../plays --run mend"
END = '[[step]]\nturn = "Done."\n'
#: One whose cost is not known would end a run with a budget in dollars.
FREE = '[[step]]\nsay = "I look."\ncost_usd = 0.0\n'


@pytest.fixture(autouse=True)
def calc(e2e: E2eSession) -> None:
    project(e2e.work)
    outside(e2e, "git", "add", "-A")
    outside(e2e, "git", "commit", "-q", "-m", "A calculator")


def project(work: Path) -> None:
    """A project with one bug and three tests, and what agents will do about them."""
    (work / "calc.py").write_text("def add(a, b):\n    return a - b\n\n\ndef double(a):\n    return 2 * a\n")
    (work / "test_calc.py").write_text(
        "import calc\n\n\ndef test_add():\n    assert calc.add(2, 1) == 3\n\n\ndef test_double():\n    assert calc.double(2) == 4\n\n\n"
        "def test_double_of_nothing():\n    assert calc.double(0) == 0\n"
    )
    (work / ".gitignore").write_text("__pycache__\n.pytest_cache\n")
    plays = work.parent / "plays"
    plays.mkdir()
    (plays / "test_add.toml").write_text(
        '[[step]]\nsay = "It subtracts."\ncost_usd = 0.25\n[[step]]\nrun = "sed -i s/a.-.b/a+b/ calc.py"\n[[step]]\ncommit = "Add"\n'
        f'[[step]]\nsubmit = "ok"\nsummary = "Add instead of subtracting"\n{END}'
    )
    (plays / "test_double.toml").write_text(f'{FREE}[[step]]\nsubmit = "ok"\nsummary = "unchanged"\n{END}')
    (plays / "test_double_of_nothing.toml").write_text(
        f'{FREE}[[step]]\nsubmit = "blocked"\nsummary = "Unclear"\nreason = "is nothing a number?"\nescalate = ["Decide whether nothing is a number"]\n{END}'
    )
    (plays / "ranker.toml").write_text(
        f'{FREE}[[step]]\nrun = "echo 0001-test-add > order.txt; submit --outcome ok --summary ranked --artifact order.txt"\n'
        + END
    )


def shown(e2e: E2eSession, name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(outside(e2e, "muster", "runs", "show", name, "--json"))
    return document


def mend(e2e: E2eSession) -> None:
    expect(e2e.run(f"{MEND} --times 1", comment="One agent for each test.")).to_succeed()


def test_a_dry_run_says_who_would_get_an_agent(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # In a repository with pytest: run all tests without agents first, and say who would get one. The playbooks stand in for a coding client's work.
    muster improve -a replay --playbooks ../plays --dry-run
    """)
    result = e2e.run("muster improve -a replay --playbooks ../plays --dry-run", comment="Who would get an agent.")
    expect(result).to_succeed()
    expect(result.stdout).to_equal(
        "failing  test_calc.py::test_add\npassing  test_calc.py::test_double\npassing  test_calc.py::test_double_of_nothing\n"
    )
    expect(result.stderr).to_contain("3 tasks, up to 3 at once")
    assert agents(e2e) == {}


def test_what_agents_did_becomes_one_branch(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # One agent for each test; what they did is verified in a clean checkout, and what holds becomes one branch. Your own work tree stays as it is.
    muster improve -a replay --playbooks ../plays --run mend
    git log --oneline main..muster-run/mend
    """)
    before = outside(e2e, "git", "status", "--porcelain", "--branch")
    result = e2e.run(MEND, comment="One agent for each test.")
    expect(result).to_succeed()
    expect(result.stdout).to_match(r"branch   muster-run/mend  \(3 of 3 tests pass on this very commit\)")
    expect(e2e.run("git log --oneline main..muster-run/mend").stdout).to_match(r"^\w+ Add instead of subtracting\n$")
    expect(e2e.run("git show muster-run/mend:calc.py").stdout).to_contain("return a+b")
    assert outside(e2e, "git", "status", "--porcelain", "--branch") == before
    again = e2e.run(MEND, comment="The same command again repeats nothing.")
    expect(again).to_succeed()
    expect(again.stderr).not_to_contain("0001-test-add ok")


def test_what_became_of_each_test_is_shown(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # What became of each test: claimed and verified, how many came how far, and what was left out and why.
    muster runs show mend
    """)
    mend(e2e)
    result = e2e.run("muster runs show mend", comment="What became of each test.")
    expect(result.stdout).to_match(r"0001-test-add +ok +fixed +1 +\$0\.25")
    expect(result.stdout).to_match(r"0002-test-double +ok +unchanged")
    expect(result.stdout).to_match(r"0003-test-double-of-nothing +blocked +- ")
    expect(result.stdout).to_match(r"verified +2\n")
    expect(result.stdout).to_match(r"integrated +1\n")


@pytest.mark.slow
def test_the_page_of_a_run_shows_its_evidence(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # A page of the run: claims beside what was verified, every transcript, recording and diff. Made while the run goes on, it is kept up to date.
    muster report mend
    """)
    mend(e2e)
    result = e2e.run("muster report mend", comment="A page of the run.")
    expect(result).to_succeed()
    page = Path(result.stdout.strip())
    assert page.name == "index.html" and "test_calc.py::test_add" in page.read_text()


@pytest.mark.slow
def test_a_claim_that_does_not_hold_is_left_out(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # What became of each test: claimed and verified, how many came how far, and what was left out and why.
    muster runs show mend
    """)
    play = e2e.work.parent / "plays" / "test_add.toml"
    play.write_text(play.read_text().replace("s/a.-.b/a+b/", "s/a.-.b/b-a/"))
    result = e2e.run(f"{MEND} --times 1", comment="An agent says that it is fixed, and it is not.")
    expect(result.stdout).to_contain("nothing is delivered")
    shows = e2e.run("muster runs show mend")
    expect(shows.stdout).to_match(r"0001-test-add +ok +refused")
    expect(e2e.run("git rev-parse -q --verify muster-run/mend")).to_fail()


@pytest.mark.slow
def test_all_that_improve_can_be_told(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Some tests only, once more although they are done, believed after two runs; and all that may hold the agents back.
    muster improve test_calc.py --agent replay --playbooks ../plays --tutorial tutorial.sh --all --times 2 --max-agents 4 --budget 5 --budget-tokens 100000 --timeout 5m --stall 10m --retries 2 --questions stop --permissions ask --integrator none --rank code --run again --new --keep -- -q
    """)
    result = e2e.run(
        "muster improve test_calc.py --agent replay --playbooks ../plays --tutorial tutorial.sh --all --times 2 --max-agents 4 --budget 5 --budget-tokens 100000 --timeout 5m --stall 10m --retries 2 --questions stop --permissions ask --integrator none --rank code --run again --new --keep -- -q",
        comment="Some tests, once more.",
    )
    expect(result).to_succeed()
    assert shown(e2e, "again")["funnel"]["integrated"] == 1
    kept = [row for row in agents(e2e).values() if row["labels"].get("run") == "again"]
    assert {row["state"] for row in kept} == {"stopped"} and len(kept) == 3, "they are kept"


@pytest.mark.slow
def test_the_configuration_says_how_tests_are_run(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # How the tests are called, a linter that every batch must please, and paths that no agent may change.
    muster config set improve.pytest '["python3", "-m", "pytest", "-q"]'
    muster config set improve.lint '["python3", "-m", "compileall", "-q", "calc.py"]'
    muster config set improve.protected '["vendor/**"]'
    """)
    for words in (
        """improve.pytest '["python3", "-m", "pytest", "-q"]'""",
        """improve.lint '["python3", "-m", "compileall", "-q", "calc.py"]'""",
        """improve.protected '["vendor/**"]'""",
    ):
        expect(e2e.run(f"muster config set {words}")).to_succeed()
    outside(e2e, "muster", "config", "set", "improve.lint", '["grep", "-q", "a - b", "calc.py"]')
    result = e2e.run(f"{MEND} --times 1", comment="A linter that wants the bug to stay.")
    expect(result.stdout).to_contain("left out 0001-test-add: ")
    expect(result.stdout).to_contain("exits with 1")


def test_reduce_makes_the_branch_again(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Make the branch again, when somebody has talked to an agent that was stuck and it has submitted since. Without an integrator, what conflicts is left out.
    muster reduce mend --integrator none
    """)
    mend(e2e)
    tip = outside(e2e, "git", "rev-parse", "muster-run/mend")
    result = e2e.run("muster reduce mend --integrator none", comment="Make the branch again.")
    expect(result).to_succeed()
    assert outside(e2e, "git", "rev-parse", "muster-run/mend") == tip, "the same work makes the same commit"
    expect(e2e.run("muster reduce nothing")).to_exit_with(3)


@pytest.mark.slow
def test_any_agents_and_branches_become_one_branch(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Any agents and branches become one branch in the same way; with no test of their own, they are judged by what they do to all tests.
    muster create helper command --no-connect -- sh -c 'sed -i "s/a - b/a + b/" calc.py; git commit -qam "Add instead of subtracting"'
    muster wait helper
    git branch idea
    muster reduce helper idea --run mine -- -q
    git log --oneline main..muster-run/mine
    """)
    work = """sh -c 'sed -i "s/a - b/a + b/" calc.py; git commit -qam "Add instead of subtracting"'"""
    expect(e2e.run(f"muster create helper command --no-connect -- {work}", comment="An agent of no run.")).to_succeed()
    expect(e2e.run("muster wait helper")).to_succeed()
    expect(e2e.run("git branch idea")).to_succeed()
    break_it = "git checkout -q -b worse && sed -i s/2/3/ calc.py && git commit -qam Triple && git checkout -q main"
    words = (
        "git checkout -q idea && echo Words > README && git add README && git commit -qm Words && git checkout -q main"
    )
    outside(e2e, "sh", "-c", f"{break_it} && {words} && echo new > NEWS && git add NEWS && git commit -qm News")
    before = outside(e2e, "git", "status", "--porcelain")
    result = e2e.run(
        "muster reduce helper idea worse --run mine --times 1 -- -q",
        comment="What an agent did, and two branches.",
    )
    expect(result).to_succeed()
    expect(result.stderr).to_contain("0003-worse is refused: test_calc.py::test_double is failed now")
    log = e2e.run("git log --format=%s --reverse main..muster-run/mine", comment="What held.")
    expect(log.stdout).to_equal("Update tests and other files for 1 task\nAdd instead of subtracting\n")
    assert outside(e2e, "git", "show", "muster-run/mine:README") == "Words\n"
    assert outside(e2e, "git", "show", "muster-run/mine:NEWS") == "new\n", "it stands on your last commit"
    body = outside(e2e, "git", "log", "-1", "--format=%B", "muster-run/mine")
    assert "Muster-Agent: helper" in body and "Muster-Test: test_calc.py::test_add" in body
    assert outside(e2e, "git", "status", "--porcelain") == before and agents(e2e).keys() == {"helper"}
    counts = shown(e2e, "mine")["funnel"]
    assert (counts["verified"], counts["fixed"], counts["integrated"], counts["refused"]) == (2, 1, 2, 1)
    expect(e2e.run("muster reduce mine", comment="It is a run like others.")).to_succeed()
    expect(e2e.run("muster reduce helper nobody", comment="A name of nothing.")).to_exit_with(3)


SCRIPTS = """seq 0 2 | muster map --run scripts -a command -- sh -c 'echo "exit {item}" > {item}.sh; git add .; git commit -q -m "Add script {item}"'"""


def test_what_a_map_committed_becomes_one_branch_behind_a_command(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # What the agents of a map committed becomes one branch in the same way. The gate is any command: a change with which it does not exit with 0, in a clean checkout, is left out.
    seq 0 2 | muster map --run scripts -a command -- sh -c 'echo "exit {item}" > {item}.sh; git add .; git commit -q -m "Add script {item}"'
    muster reduce scripts --gate '! grep "exit 1" *.sh'
    git log --format=%s --reverse main..muster-run/scripts
    """)
    expect(e2e.run(SCRIPTS, comment="One agent for each script.")).to_succeed()
    result = e2e.run("""muster reduce scripts --gate '! grep "exit 1" *.sh'""", comment="One branch, behind a gate.")
    expect(result).to_succeed()
    expect(result.stdout).to_contain("""left out 0002-1: red in the gate: ! grep "exit 1" *.sh exits with 1""")
    expect(result.stdout).to_contain("""branch   muster-run/scripts  (! grep "exit 1" *.sh exits with 0)""")
    log = e2e.run("git log --format=%s --reverse main..muster-run/scripts", comment="What held.")
    expect(log.stdout).to_equal("Add script 0\nAdd script 2\n")
    body = outside(e2e, "git", "log", "-1", "--format=%(trailers)", "muster-run/scripts").splitlines()
    assert {"Muster-Agent: scripts-0003", "Muster-Cost: unknown", "Muster-Run: scripts"} <= set(body), body
    assert "Muster-Summary: Add script 2" in body, body
    assert shown(e2e, "scripts")["funnel"]["integrated"] == 2


def test_a_configured_gate_is_used_unless_another_one_is_given(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # The gate that a project always uses is configured. Without one, all changes that fit together are delivered.
    muster config set reduce.gate 'make test'
    muster reduce scripts --gate none
    """)
    outside(e2e, "sh", "-c", SCRIPTS)
    expect(e2e.run("muster config set reduce.gate 'make test'", comment="The project's gate.")).to_succeed()
    outside(e2e, "muster", "config", "set", "reduce.gate", "echo no; exit 3")
    red = e2e.run("muster reduce scripts")
    expect(red).to_exit_with(1)
    expect(red.stdout).to_contain("nothing is delivered: the base itself is red: echo no; exit 3 exits with 3")
    result = e2e.run("muster reduce scripts --gate none", comment="Everything that fits together.")
    expect(result).to_succeed()
    expect(result.stdout).to_contain("branch   muster-run/scripts  (not tested)")
    assert len(outside(e2e, "git", "log", "--oneline", "main..muster-run/scripts").splitlines()) == 3
    expect(e2e.run("muster reduce scripts --gate none -- -q")).to_exit_with(2)


def your_gh(e2e: E2eSession, tmp_path: Path) -> None:
    """A remote, and a gh that says what it was told."""
    outside(e2e, "git", "init", "-q", "--bare", str(tmp_path / "origin.git"))
    outside(e2e, "git", "remote", "add", "origin", str(tmp_path / "origin.git"))
    gh = e2e.home / "bin" / "gh"
    gh.parent.mkdir(exist_ok=True)
    gh.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/said\necho https://example.invalid/pr/1\n')
    gh.chmod(0o755)


@pytest.mark.slow
def test_improve_opens_a_pull_request_too(e2e: E2eSession, tmp_path: Path) -> None:
    e2e.write_tutorial_block("""
    # The same in one go: improve, push the branch, and open a pull request.
    muster improve -a replay --playbooks ../plays --run mend --pr
    """)
    your_gh(e2e, tmp_path)
    result = e2e.run(
        'PATH="$HOME/bin:$PATH" muster improve -a replay --playbooks ../plays --run mend --pr', comment="In one go."
    )
    expect(result).to_succeed()
    expect(result.stdout).to_contain("https://example.invalid/pr/1")
    assert "muster-run/mend" in outside(e2e, "git", "-C", str(tmp_path / "origin.git"), "branch")


@pytest.mark.slow
def test_a_pull_request_is_opened_by_your_own_gh(e2e: E2eSession, tmp_path: Path) -> None:
    e2e.write_tutorial_block("""
    # All that reduce can be told. --pr pushes the branch and opens a pull request with your own gh; no agent can.
    muster reduce mend --playbooks ../plays --times 1 --max-agents 2 --budget 5 --budget-tokens 100000 --timeout 5m --stall 10m --retries 1 --questions answer --permissions ask --rank agent --integrator replay --pr
    """)
    your_gh(e2e, tmp_path)
    mend(e2e)
    result = e2e.run(
        'PATH="$HOME/bin:$PATH" muster reduce mend --playbooks ../plays --times 1 --max-agents 2 --budget 5 --budget-tokens 100000 --timeout 5m --stall 10m --retries 1 --questions answer --permissions ask --rank agent --integrator replay --pr',
        comment="Push it and open a pull request.",
    )
    expect(result).to_succeed()
    expect(result.stdout).to_contain("https://example.invalid/pr/1")
    assert outside(e2e, "git", "-C", str(tmp_path / "origin.git"), "rev-parse", "muster-run/mend") == outside(
        e2e, "git", "rev-parse", "muster-run/mend"
    )
    said = (tmp_path / "said").read_text().splitlines()
    assert said[:4] == ["pr", "create", "--head", "muster-run/mend"]
    body = Path(said[said.index("--body-file") + 1]).read_text()
    assert body.startswith("# 1 tests fixed, 0 improved\n")
    assert "- Add instead of subtracting (`0001-test-add`; requested as number 1, fixes 1 " in body


@pytest.mark.slow
def test_what_agents_escalate_is_shown_until_it_is_closed(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # What agents want somebody to know, counted over all runs, until it is closed.
    muster runs escalations
    muster runs close "$(muster runs escalations --json | grep -o '"id": "[^"]*"' | cut -d '"' -f 4)"
    """)
    mend(e2e)
    result = e2e.run("muster runs escalations", comment="What agents want somebody to know.")
    expect(result.stdout).to_match(r"^\w{8} +1 +Decide whether nothing is a number")
    closed = e2e.run(
        """muster runs close "$(muster runs escalations --json | grep -o '"id": "[^"]*"' | cut -d '"' -f 4)\""""
    )
    expect(closed).to_succeed()
    expect(e2e.run("muster runs escalations").stderr).to_contain("nobody wants a person's attention")
    expect(e2e.run("muster runs close nothing")).to_exit_with(3)


@pytest.mark.slow
def test_programs_read_the_delivery_as_the_last_line(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # For programs: events as JSON Lines, and the delivery as the last of them.
    muster improve -a replay --playbooks ../plays --run mend --json --verbose
    muster reduce mend --integrator none --json --verbose
    """)
    result = e2e.run(
        "muster improve -a replay --playbooks ../plays --run mend --json --verbose", comment="For programs."
    )
    expect(result).to_succeed()
    events = [json.loads(line) for line in result.stdout.splitlines()]
    assert events[-1]["kind"] == "delivery" and events[-1]["branch"] == "muster-run/mend"
    assert {"baseline", "plan", "launch", "outcome", "verified"} <= {event["kind"] for event in events}
    again = e2e.run("muster reduce mend --integrator none --json --verbose")
    assert json.loads(again.stdout.splitlines()[-1])["commit"] == events[-1]["commit"]
