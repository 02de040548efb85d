"""Agents for authors: fill proposes examples, sync writes tests, and nothing of either touches what the user has."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, cast

import pytest

from muster.authoring import agent, fill, skill, sync
from muster.errors import MusterError
from muster.flow.run import prompts
from muster.host import Found
from muster.model import Agent, Status
from muster.tutorial import blocks

from ..conftest import Sshd, World, eventually

SHOP = """#!/bin/sh
# shop: a program for these tests.
case "$1 $2" in
*--help*) echo "Usage: shop [order|return] [--fast]  --fast: be quick" ;;
order*) echo "ordered" ;;
return*) case "$*" in *--slowly*) echo "shop: no such option --slowly" >&2; exit 2 ;; esac; echo "returned" ;;
esac
"""
TUTORIAL = """#!/bin/bash
# A shop, by example.

# ===== Orders =====

# Order something.
shop order --fast

# Sending things back
# (and getting the money)

# Looking around

"""
GOOD = "# Send it back.\nshop return"
FAILS = "# Send back what nobody ordered.\necho asked; false"
FLAG = "# Send it back slowly.\nshop return --slowly"
LOOK = "# See what there is.\nls tutorial.sh"


def quoted(text: str) -> str:
    assert "'''" not in text
    return f"'''\n{text}'''"


def project(world: World, tutorial: str = TUTORIAL) -> Path:
    (world.bin / "shop").write_text(SHOP)
    (world.bin / "shop").chmod(0o755)
    (world.repo / "tutorial.sh").write_text(tutorial)
    world.git("add", "-A")
    world.git("commit", "-q", "-m", "the tutorial")
    return world.repo


def filled(*examples: tuple[str, str]) -> str:
    """The tutorial with examples put below headings, as an agent would."""
    text = TUTORIAL
    for heading, example in reversed(examples):
        text = text.replace(f"{heading}\n\n", f"{heading}\n\n{example}\n\n", 1)
    return text


def writes(world: World, text: str, more: str = "", asked: str = "Sending things back") -> str:
    return world.playbook(
        f"""[[step]]
expect = "{asked}"
[[step]]
write = "tutorial.sh"
text = {quoted(text)}
{more}
[[step]]
commit = "Examples"
[[step]]
turn = "Done."
""",
        "fill.toml",
    )


BACK, AROUND = "# (and getting the money)", "# Looking around"
ALL = ((BACK, GOOD), (BACK, FAILS), (BACK, FLAG), (AROUND, LOOK))


def state(world: World) -> tuple[str, str, str, bytes]:
    """All that must not change: the tree, the index, the branches that are the user's."""
    index = (world.repo / ".git" / "index").read_bytes()
    files = "\n".join(
        f"{path.relative_to(world.repo)} {path.stat().st_mode:o} {path.read_bytes()!r}"
        for path in sorted(world.repo.rglob("*"))
        if path.is_file() and ".git" not in path.parts
    )
    return files, world.git("rev-parse", "HEAD"), world.git("--no-optional-locks", "status", "--porcelain"), index


def one_fill(world: World, *more: str, text: str = "", playbook: str = "", name: str = "f") -> Any:
    playbook = playbook or writes(world, text or filled(*ALL))
    return world.ok("tutorial", "fill", "-a", "replay", "--name", name, *more, "--json", "--", playbook).json


def ids(document: Any) -> dict[str, str]:
    return {proposal["text"]: proposal["id"] for proposal in document["proposals"]}


# Turns


def test_a_ready_seen_before_the_message_was_taken_does_not_end_the_wait() -> None:
    """The message is taken, and its turn fails, right after the state was read."""
    record = Agent("id", "f", "replay")

    class Late:
        states = iter(["ready", "failed"])
        heard: list[dict[str, str]] = []

        def look(self, one: Found) -> Status:
            return one.status

        def wait(self, ones: list[Found], states: object, timeout: float) -> list[Status]:
            self.heard = [{"kind": "prompt"}]
            return [ones[0].status._replace(state=next(self.states))]

        def events(self, name: str) -> list[dict[str, str]]:
            return list(self.heard)

    one = Found(cast(Any, None), Status(record, "", "local", "ready"))
    with pytest.raises(MusterError, match="f is failed"):
        agent.wait_for_turn(cast(Any, Late()), one, time.monotonic() + 60, lambda _: None, "again")


# Prompts


def test_a_prompt_with_an_unfilled_or_an_unknown_slot_is_an_error() -> None:
    with pytest.raises(ValueError, match="unfilled \\['tutorial'\\]"):
        prompts.filled("{{tutorial}} {{docs}}", "x", docs="a")
    with pytest.raises(ValueError, match="unknown \\['more'\\]"):
        prompts.filled("{{docs}}", "x", docs="a", more="b")
    assert prompts.filled("a {{one}} b", "x", one="{{two}} $HOME") == "a {{two}} $HOME b"


def test_every_prompt_file_has_its_slots_filled(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "README.md").write_text("x")
    (tmp_path / "tutorial.sh").write_text(TUTORIAL)
    at = agent.locate(str(tmp_path / "tutorial.sh"), str(tmp_path))
    asked = fill.first_message(at, fill.headings(at))
    assert "- line 9: Sending things back (and getting the money)\n- line 12: Looking around\n" in asked
    assert "- README.md\n- `shop --help`" in asked
    assert "Edit only tutorial.sh." in asked
    report = sync.check_tests(at, ["tests"], at.top)
    prompt = sync.first_message(at, ["tests"], report)
    assert "    muster tutorial check --tutorial tutorial.sh tests\n" in prompt
    assert "    # Order something.\n    shop order --fast\n" in prompt
    assert prompt.index("First: repair") < prompt.index("There are none.") < prompt.index("Then: write")
    for text in (asked, prompt, skill.skill("AGENTS.md"), skill.skill(skill.CLIENTS["claude"])):
        assert "{{" not in text and "}}" not in text


def test_the_stale_come_first_with_the_nearest_block_and_the_difference(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "tutorial.sh").write_text("# Order something.\nshop order --fast\n\n# Pay.\nshop pay\n")
    (tmp_path / "test_a.py").write_text(
        'def test_a(e2e):\n    e2e.write_tutorial_block("# Order something.\\nshop order")\n'
    )
    at = agent.locate("tutorial.sh", str(tmp_path))
    prompt = sync.first_message(at, ["test_a.py"], sync.check_tests(at, ["test_a.py"], at.top))
    assert "test_a.py:2: stale: " in prompt
    assert "    -shop order\n    +shop order --fast" in prompt
    assert prompt.index("test_a.py:2: stale") < prompt.index("## Then") < prompt.index("    # Pay.\n    shop pay")


GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("name", ["fill", "sync", "skill", "agents"])
def test_a_prompt_is_what_was_reviewed(tmp_path: Path, name: str) -> None:
    """After a change of a prompt: look at it, then MUSTER_GOLDEN=1 pytest tests/flow writes the new ones."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "docs" / "commands").mkdir(parents=True)
    (tmp_path / "README.md").write_text("x")
    (tmp_path / "docs" / "tutorial.sh").write_text(f"{TUTORIAL}\n# Pay.\nshop pay\n")
    (tmp_path / "test_a.py").write_text(
        'def test_a(e2e):\n    e2e.write_tutorial_block("# Order something.\\nshop order")\n'
    )
    at = agent.locate("", str(tmp_path))
    made = {
        "fill": lambda: fill.first_message(at, fill.headings(at)),
        "sync": lambda: sync.first_message(at, ["test_a.py"], sync.check_tests(at, ["test_a.py"], at.top)),
        "skill": lambda: skill.skill(skill.CLIENTS["claude"]),
        "agents": lambda: skill.skill("AGENTS.md"),
    }[name]()
    if os.environ.get("MUSTER_GOLDEN"):
        GOLDEN.mkdir(exist_ok=True)
        (GOLDEN / f"{name}.md").write_text(made)
    assert made == (GOLDEN / f"{name}.md").read_text()


def test_a_prompt_stays_within_what_an_argument_holds(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    many = "\n".join(f"# Step {number}, which is told at some length.\nshop order {number}\n" for number in range(5000))
    (tmp_path / "tutorial.sh").write_text(many)
    at = agent.locate("", str(tmp_path))
    prompt = sync.first_message(at, ["tests"], sync.check_tests(at, ["tests"], at.top))
    assert len(prompt) < 80_000
    assert re.search(r"And \d{4} more: `muster tutorial check --tutorial tutorial.sh tests` names them", prompt)


def test_text_of_an_agent_goes_back_to_one_without_what_a_terminal_obeys() -> None:
    assert agent.harmless("a\tb\n\x1b[201~rm\x07\u202e") == "a\tb\n [201~rm  "


# What counts as proposed


def compared(theirs: str, *targets: str) -> tuple[dict[str, str], list[tuple[str, str]]]:
    mine = blocks.parse(TUTORIAL)
    wanted = [block for block in mine if block.kind == "heading" and (not targets or block.comment in targets)]
    some, other = fill.compare(mine, blocks.parse(theirs), wanted)
    return {p.text: p.heading for p in some}, [(c.kind, c.text.split("\n")[0]) for c in other]


def test_new_blocks_belong_to_the_heading_above_them() -> None:
    found, other = compared(filled(*ALL))
    both = "Sending things back (and getting the money)"
    assert found == {GOOD: both, FAILS: both, FLAG: both, LOOK: "Looking around"}
    assert other == []


def test_a_heading_that_was_filled_without_an_empty_line_or_made_a_banner_is_still_that_heading() -> None:
    joined = TUTORIAL.replace("# Looking around\n", "# Looking around\nls tutorial.sh\n")
    assert compared(joined) == ({"# Looking around\nls tutorial.sh": "Looking around"}, [])
    banner = TUTORIAL.replace("# Looking around\n", f"# -----\n# Looking around\n# -----\n\n{LOOK}\n")
    assert compared(banner) == ({LOOK: "Looking around"}, [])


def test_what_else_was_done_to_the_tutorial_is_listed_and_not_taken() -> None:
    changed = filled((AROUND, LOOK)).replace("shop order --fast", "shop order --fast --twice")
    assert compared(changed) == ({LOOK: "Looking around"}, [("changed", "# Order something.")])
    removed = filled((AROUND, LOOK)).replace("# Order something.\nshop order --fast\n\n", "")
    assert compared(removed) == ({LOOK: "Looking around"}, [("removed", "# Order something.")])
    misplaced = TUTORIAL.replace("# Order something.", f"{GOOD}\n\n# Order something.")
    assert compared(misplaced) == ({}, [("misplaced", "# Send it back.")])
    assert compared(filled(*ALL), "Looking around")[0] == {LOOK: "Looking around"}
    no_heading = TUTORIAL.replace("# Looking around\n", "")
    assert compared(no_heading) == ({}, [("removed", "# Looking around")])


def test_ids_come_from_the_text() -> None:
    first, _ = fill.compare(blocks.parse(TUTORIAL), blocks.parse(filled(*ALL)), blocks.parse(TUTORIAL))
    later, _ = fill.compare(blocks.parse(TUTORIAL), blocks.parse(filled(ALL[3])), blocks.parse(TUTORIAL))
    assert later[0].id == first[-1].id


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_kept_examples_stand_below_a_heading_that_is_a_banner_then(newline: str) -> None:
    text = TUTORIAL.replace("\n", newline)
    keep = [fill.Proposal("a", "Looking around", 1, LOOK), fill.Proposal("b", "Looking around", 1, GOOD)]
    found = fill.placed(text, keep)
    rule = fill.RULE
    assert found == TUTORIAL.replace(
        "# Looking around\n", f"{rule}\n# Looking around\n{rule}\n\n{LOOK}\n\n{GOOD}\n"
    ).replace("\n", newline)
    kinds = {block.comment: block.kind for block in blocks.parse(found)}
    assert kinds["Looking around"] == "banner"
    assert kinds["Sending things back (and getting the money)"] == "heading"
    assert fill.placed("# Only this", [fill.Proposal("a", "Only this", 1, "ls")]).endswith(f"{rule}\n\nls\n")


def test_calls_are_read_without_running_them() -> None:
    assert fill.calls("# x\nA=1 shop order --fast | grep x && shop return > f; echo 'unclosed") == []
    assert fill.calls("# x\nA=1 shop order --fast | grep x && shop return > f\nif shop pay; then :; fi") == [
        ["shop", "order", "--fast"],
        ["grep", "x"],
        ["shop", "return"],
        ["shop", "pay"],
    ]
    assert fill.program(blocks.parse(TUTORIAL)) == "shop"
    assert fill.program([]) == ""


# fill


def test_fill_runs_what_is_proposed_and_tells_good_from_confusing(world: World) -> None:
    project(world)
    before = state(world)
    document = one_fill(world)
    by_text = {proposal["text"]: proposal for proposal in document["proposals"]}
    assert list(by_text) == [GOOD, FAILS, FLAG, LOOK]
    assert {text: proposal["ok"] for text, proposal in by_text.items()} == {
        GOOD: True,
        FAILS: False,
        FLAG: False,
        LOOK: True,
    }
    assert (by_text[GOOD]["exit_code"], by_text[GOOD]["output"]) == (0, "returned\n")
    assert (by_text[FAILS]["exit_code"], by_text[FAILS]["output"]) == (1, "asked\n")
    assert by_text[FLAG]["findings"] == [
        {"kind": "fails", "message": "it exits with 2"},
        {"kind": "unknown-flag", "message": "the help of shop return does not name --slowly"},
    ]
    assert [finding["kind"] for finding in document["findings"]] == ["fails", "fails", "unknown-flag"]
    assert (document["accepted"], document["changed"]) == ([], [])
    assert world.agents()["f"]["labels"]["tutorial"] == "fill"
    assert state(world) == before


def work(world: World) -> Path:
    return Path(world.agents()["f"]["workdir"])


def test_what_is_accepted_is_on_the_agents_branch_and_comes_by_pull(world: World) -> None:
    repo = project(world)
    before = state(world)
    document = one_fill(world)
    name = ids(document)
    told = world.ok("tutorial", "fill", "--from", "f", "--accept", f"{name[LOOK]},{name[GOOD]}")
    assert "muster pull f --merge" in told.stderr
    assert "Interface findings" in told.stdout
    assert state(world) == before
    assert world.git("diff", "--name-only", "main", "muster/f", cwd=work(world)) == "tutorial.sh"
    text = world.git("show", "muster/f:tutorial.sh", cwd=work(world))
    assert GOOD in text and LOOK in text and FAILS not in text and FLAG not in text
    assert [block.text for block in blocks.parse(text) if block.kind == "heading"] == []
    assert world.ok("exec", "f", "--", "git", "status", "--porcelain").stdout == ""
    world.ok("pull", "f", "--merge")
    merged = (repo / "tutorial.sh").read_text()
    assert merged.rstrip("\n") == text.rstrip("\n")
    assert world.git("diff", "--name-only", before[1], "HEAD") == "tutorial.sh"


def test_a_second_choice_adds_to_the_first_and_all_proposals_stay(world: World) -> None:
    project(world)
    name = ids(one_fill(world, "--accept", "passing"))
    first = world.git("show", "muster/f:tutorial.sh", cwd=work(world))
    assert GOOD in first and LOOK in first and FAILS not in first
    document = world.ok("tutorial", "fill", "--from", "f", "--accept", name[FAILS], "--json").json
    assert ids(document) == name
    assert sorted(document["accepted"]) == sorted(name[text] for text in (GOOD, LOOK, FAILS))
    text = world.git("show", "muster/f:tutorial.sh", cwd=work(world))
    assert GOOD in text and LOOK in text and FAILS in text and FLAG not in text
    world.ok("pull", "f", "--merge")
    after = world.ok("tutorial", "fill", "--from", "f", "--accept", name[FLAG], "--json").json
    assert list(ids(after)) == [FLAG]
    world.ok("pull", "f", "--merge")
    assert FLAG in (world.repo / "tutorial.sh").read_text() and GOOD in (world.repo / "tutorial.sh").read_text()


def test_other_files_that_the_agent_touched_do_not_come_along(world: World) -> None:
    project(world)
    extra = '[[step]]\nwrite = "README"\ntext = "rewritten\\n"\n[[step]]\nwrite = "left.txt"\ntext = "x\\n"'
    one_fill(world, "--accept", "all", playbook=writes(world, filled(*ALL), extra))
    assert world.git("diff", "--name-only", "main", "muster/f", cwd=work(world)) == "tutorial.sh"
    assert world.ok("exec", "f", "--", "cat", "README", "left.txt").stdout == "rewritten\nx\n"


def test_what_the_user_has_not_committed_is_filled_too_and_stays(world: World) -> None:
    repo = project(world, TUTORIAL.replace(AROUND, ""))
    (repo / "tutorial.sh").write_text(TUTORIAL)
    (repo / "README").write_text("in the middle of something\n")
    before = state(world)
    playbook = writes(world, filled(*ALL), asked="- line 12: Looking around")
    document = one_fill(world, "--heading", "looking AROUND", "--accept", "all", playbook=playbook)
    assert [proposal["text"] for proposal in document["proposals"]] == [LOOK]
    assert [change["kind"] for change in document["changed"]] == ["misplaced"] * 3
    assert state(world) == before
    assert world.git("diff", "--name-only", "main", "muster/f", cwd=work(world)) == "tutorial.sh"


def test_an_example_that_does_not_end_is_late_and_leaves_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    project(world)
    late = "# Look for ever.\n(sleep 987654 & disown) ; sleep 987653"
    world.ok("create", "f", "command", "--label", "tutorial=fill", "--no-connect", "--", "true")
    monkeypatch.setattr(fill, "EXAMPLE_SECONDS", 1.0)
    monkeypatch.chdir(world.repo)
    for key, value in world.env.items():
        monkeypatch.setenv(key, value)
    from muster import Fleet

    fleet = Fleet()
    world.wait_state("f", "done")
    (Path(world.agents()["f"]["workdir"]) / "tutorial.sh").write_text(filled((AROUND, late)))
    at = agent.locate("", str(world.repo))
    found = fill.resume(fleet, "f", at, fill.headings(at), 30, lambda text: None)
    assert [(p.exit_code, [f.kind for f in p.findings]) for p in found.proposals] == [(None, ["late"])]
    running = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert "sleep 98765" not in running


def test_examples_have_an_empty_home_and_none_of_the_users_variables(world: World) -> None:
    project(world)
    (world.home / "secret.txt").write_text("s3cret")
    spy = "# Look around.\nls -A ~\nenv | sort\npwd"
    playbook = writes(world, filled((AROUND, spy), (AROUND, "# Remember.\ncat ~/kept || echo first > ~/kept")))
    more = {"MY_TOKEN": "s3cret", "XDG_CONFIG_HOME": str(world.home)}
    told = world.ok("tutorial", "fill", "-a", "replay", "--name", "f", "--json", "--", playbook, env=more).json
    output = told["proposals"][0]["output"]
    assert "s3cret" not in output and "secret.txt" not in output and str(world.home) not in output
    assert output.rstrip().endswith(world.agents()["f"]["workdir"])
    assert not list(Path(os.environ.get("TMPDIR", "/tmp")).glob(f"muster-try.*/{'kept'}"))


def test_hostile_examples_are_shown_harmlessly_and_run_only_in_the_work_dir(world: World) -> None:
    repo = project(world)
    evil = "# Look \u001b]0;owned\u0007 here.\necho \"$(touch ../outside-x)\"; printf '\\033[2Jwiped\\033[31m'; exit 3"
    toml = (
        evil.replace("\\", "\\\\")
        .replace('"', '\\"')
        .replace("\n", "\\n")
        .replace("\u001b", "\\u001b")
        .replace("\u0007", "\\u0007")
    )
    text = filled((AROUND, "@@")).replace("\n", "\\n").replace('"', '\\"').replace("@@", toml)
    playbook = world.playbook(f'[[step]]\nwrite = "tutorial.sh"\ntext = "{text}"\n[[step]]\nturn = "Done."\n')
    shown = world.ok("tutorial", "fill", "-a", "replay", "--name", "f", "--accept", "all", "--", playbook)
    assert "\x1b" not in shown.stdout + shown.stderr and "\x07" not in shown.stdout
    assert "wiped" in shown.stdout
    assert not (repo.parent / "outside-x").exists() and not (world.folder / "outside-x").exists()
    assert (Path(world.agents()["f"]["workdir"]).parent / "outside-x").exists()
    document = world.ok("tutorial", "fill", "--from", "f", "--json")
    assert "\x1b" not in document.stdout


def test_a_tutorial_that_became_a_link_is_not_followed(world: World) -> None:
    project(world)
    playbook = world.playbook(
        '[[step]]\nrun = "mv tutorial.sh t; ln -s /etc/passwd tutorial.sh"\n[[step]]\nturn = "Done."\n'
    )
    told = world.fails(1, "tutorial", "fill", "-a", "replay", "--name", "f", "--", playbook)
    assert "tutorial.sh is no file there" in told.stderr and "muster exec f -- git status" in told.stderr


def test_without_a_heading_there_is_nothing_to_do(world: World) -> None:
    project(world, "# Order.\nshop order\n")
    assert "no heading to fill" in world.ok("tutorial", "fill", "-a", "replay").stderr
    document = world.ok("tutorial", "fill", "--json").json
    assert (document["agent"], document["proposals"]) == (None, [])
    assert world.agents() == {}


def test_an_agent_that_waits_is_told_of_and_waited_for(world: World) -> None:
    project(world)
    playbook = world.playbook(
        f"""[[step]]
ask = "Which ones?"
[[step]]
write = "tutorial.sh"
text = {quoted(filled((AROUND, LOOK)))}
[[step]]
turn = "Done."
"""
    )
    with subprocess.Popen(
        [str(world.bin / "muster"), "tutorial", "fill", "-a", "replay", "--name", "f", "--json", "--", playbook],
        cwd=world.repo,
        env=world.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        eventually(lambda: "f" in world.agents() and world.state("f") == "waiting")
        assert process.stderr
        line = ""
        while "waits for a person" not in line:
            line = process.stderr.readline()
            assert line
        assert "muster connect f" in line and "muster answer f TEXT" in line
        world.ok("answer", "f", "the good ones")
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 0 and LOOK in out.encode().decode("unicode_escape")


@pytest.mark.parametrize(
    ("code", "words", "says", "hint"),
    [
        (3, ("--heading", "nothing"), "no heading 'nothing'", "'Looking around'"),
        (2, ("--heading", "#"), "--heading is empty", "--kind heading"),
        (3, ("no.sh",), "no tutorial no.sh", "--tutorial FILE"),
        (3, ("--from", "nobody"), "there is no agent nobody", "muster create"),
        (2, ("--from", "x", "-a", "replay"), "--from creates none", "leave out --from"),
        (2, ("-a", "frob"), "no agent type 'frob'", "known types"),
        (2, ("--timeout", "soon"), "'soon' is not a time", "90s"),
    ],
)
def test_what_is_wrong_with_the_words_is_told(
    world: World, code: int, words: tuple[str, ...], says: str, hint: str
) -> None:
    project(world)
    told = world.fails(code, "tutorial", "fill", *words)
    assert says in told.stderr and hint in told.stderr
    assert world.agents() == {}


@pytest.mark.parametrize("verb", ["fill", "sync"])
def test_outside_of_a_repository_it_says_so(world: World, verb: str) -> None:
    plain = world.folder / "plain"
    plain.mkdir()
    (plain / "tutorial.sh").write_text(TUTORIAL)
    told = world.fails(2, "tutorial", verb, "-a", "replay", cwd=plain)
    assert "tutorial.sh is not in a git repository" in told.stderr and "git init" in told.stderr


def test_an_unknown_id_is_told_with_the_known_ones(world: World) -> None:
    project(world)
    name = ids(one_fill(world))
    tip = world.git("rev-parse", "muster/f", cwd=work(world))
    told = world.fails(3, "tutorial", "fill", "--from", "f", "--accept", f"{name[GOOD]},nothing-123456")
    assert "no example 'nothing-123456'" in told.stderr and name[GOOD] in told.stderr
    assert world.git("rev-parse", "muster/f", cwd=work(world)) == tip
    world.ok("create", "other", "command", "--no-connect", "--", "true")
    told = world.fails(2, "tutorial", "fill", "--from", "other")
    assert "not made by muster tutorial fill" in told.stderr and "--label tutorial=fill" in told.stderr


@pytest.mark.parametrize("verb", ["fill", "sync"])
def test_an_agent_that_fails_or_takes_too_long_is_told_with_what_to_type(world: World, verb: str) -> None:
    project(world)
    dies = world.playbook("[[step]]\nexit = 3\n", "dies.toml")
    told = world.fails(1, "tutorial", verb, "-a", "replay", "--name", "f", "--", dies)
    assert "f is failed" in told.stderr and "muster capture f" in told.stderr
    hangs = world.playbook("[[step]]\nwait = 600\n", "hangs.toml")
    told = world.fails(4, "tutorial", verb, "-a", "replay", "--name", "g", "--timeout", "1", "--", hangs)
    assert "g is not done yet" in told.stderr and "muster connect g" in told.stderr
    assert ("--from g" if verb == "fill" else "muster pull g --merge") in told.stderr
    assert world.state("g") in ("starting", "working")


def test_an_agent_that_proposes_nothing_is_told_of(world: World) -> None:
    project(world)
    told = world.fails(
        1, "tutorial", "fill", "-a", "replay", "--name", "f", "--", world.playbook('[[step]]\nturn = "No idea."\n')
    )
    assert "f proposed nothing" in told.stderr and "muster connect f" in told.stderr


def test_fill_works_on_another_host(world: World, sshd: Sshd) -> None:
    project(world)
    (sshd.home / "bin").mkdir()
    document = one_fill(world, "--accept", "all", text=filled((AROUND, LOOK)), name="f@box")
    assert [(p["ok"], p["output"]) for p in document["proposals"]] == [(True, "tutorial.sh\n")]
    world.ok("pull", "f@box", "--merge")
    assert LOOK in (world.repo / "tutorial.sh").read_text()


# sync

STEPS = "# Order something.\nshop order --fast"
PAY = "# Pay for it.\nshop pay"
TWO = f"#!/bin/bash\n\n{STEPS}\n\n{PAY}\n"


def cites(*cited: str, happy: bool = True, unhappy: bool = True, comment: bool = False) -> str:
    lines = ["from muster.tutorial import expect", "", ""]
    for number, text in enumerate(cited):
        lines += [f"def test_{number}(e2e):", f"    e2e.write_tutorial_block({text!r})"]
        lines += ['    expect(e2e.run("true")).to_succeed()'] * happy
        lines += ['    expect(e2e.run("false")).to_exit_with(1)'] * unhappy
        lines += ["    # no unhappy path: it only prints"] * comment
        lines += ["", ""]
    return "\n".join(lines)


def with_tests(world: World, *cited: str, tutorial: str = TWO) -> Path:
    repo = project(world, tutorial)
    (repo / "tests").mkdir()
    (repo / "tests" / "test_shop.py").write_text(cites(*cited))
    world.git("add", "-A")
    world.git("commit", "-q", "-m", "tests")
    return repo


def adds(text: str, file: str = "tests/test_pay.py", commit: bool = True) -> str:
    return f'[[step]]\nwrite = "{file}"\ntext = {quoted(text)}\n' + '[[step]]\ncommit = "Tests"\n' * commit


TURN = '[[step]]\nturn = "Done."\n'


def one_sync(world: World, code: int, *words: str, playbook: str) -> Any:
    path = world.playbook(playbook, "sync.toml")
    return world.fails(code, "tutorial", "sync", "-a", "replay", "--name", "s", *words, "--json", "--", path).json


CITING = 'def test_{0}(e2e):\n    """It is {0}.\n    # {1}.\n    shop {0}\n    """\n'
LAYOUTS: dict[str, tuple[list[str], str, list[str]]] = {
    # Files of tests that cite the first, the second … block; the folder in which both are called; the tests that are named.
    "tests/e2e": (["tests/e2e/test_a.py", "tests/test_b.py"], ".", []),
    "tests": (["tests/test_a.py", "tests/deep/test_b.py"], ".", []),
    "beside the program": (["test_a.py", "src/b_test.py"], ".", []),
    "no test at all": ([], ".", []),
    "called in a folder": (["tests/test_a.py", "src/test_b.py"], "src", []),
    "one file is named": (["tests/test_a.py", "tests/test_b.py"], ".", ["tests/test_b.py"]),
    "hidden and other files": (["tests/.old/test_a.py", "tests/helper.py", "tests/test_c.py"], ".", []),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_check_and_sync_agree_on_what_is_missing(tmp_path: Path, layout: str) -> None:
    files, cwd, named = LAYOUTS[layout]
    (tmp_path / ".git").mkdir()
    (tmp_path / "src").mkdir()
    names = [("order", "Order"), ("pay", "Pay"), ("return", "Return"), ("list", "List")]
    blocks = "\n\n".join(f"# {title}.\nshop {name}" for name, title in names)
    (tmp_path / "tutorial.sh").write_text(f"#!/bin/bash\n\n{blocks}\n\n# Order.\nshop order\n")
    for file, (name, title) in zip(files, names, strict=False):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(CITING.format(name, title if name != "pay" else "Paid"))
    folder = tmp_path / cwd
    run = [str(Path(sys.executable).with_name("muster")), "tutorial", "check", *named, "--json"]
    done = subprocess.run(run, cwd=folder, capture_output=True, text=True, check=False)
    checked = {(one["kind"], one["block"]) for one in json.loads(done.stdout)["findings"]}
    at = agent.locate("", str(folder))
    synced = {
        (one.kind, one.block) for one in sync.check_tests(at, sync.tests(named, at, str(folder)), at.top).findings
    }
    assert checked == synced and ("missing" in {kind for kind, _ in checked})


def test_sync_of_what_is_in_step_does_nothing(world: World) -> None:
    with_tests(world, STEPS, PAY)
    assert "nothing to do" in world.ok("tutorial", "sync").stderr
    document = world.ok("tutorial", "sync", "--json").json
    assert (document["ok"], document["agent"], document["rounds"]) == (True, None, 0)
    assert world.agents() == {}


def test_sync_gives_the_block_the_path_and_the_command_and_judges_what_is_committed(world: World) -> None:
    with_tests(world, STEPS)
    before = state(world)
    asked = "\n".join(
        f"[[step]]\nexpect = {quoted(text)}"
        for text in (
            f"    {PAY}".replace("\n", "\n    "),
            "tests in tests in",
            "muster tutorial check --tutorial tutorial.sh tests",
        )
    )
    document = one_sync(world, 0, playbook=f"{asked}\n{adds(cites(PAY))}{TURN}")
    assert (document["ok"], document["rounds"], document["findings"]) == (True, 1, [])
    assert [finding["kind"] for finding in document["before"]] == ["missing"]
    assert document["branch"] == "muster/s"
    assert state(world) == before
    assert world.agents()["s"]["labels"] == {"tutorial": "sync"}
    world.ok("pull", "s", "--merge")
    world.ok("tutorial", "check")


def test_what_is_left_goes_back_until_it_is_in_step(world: World) -> None:
    with_tests(world, STEPS)
    first = adds(cites(PAY, unhappy=False))
    back = '[[step]]\nexpect = "happy-only"\n[[step]]\nexpect = "muster tutorial check --tutorial tutorial.sh tests"\n'
    document = one_sync(world, 0, playbook=first + TURN + back + adds(cites(PAY, unhappy=False, comment=True)) + TURN)
    assert (document["ok"], document["rounds"]) == (True, 2)


def test_stale_citations_are_fixed_too(world: World) -> None:
    with_tests(world, STEPS, "# Pay for it.\nshop pay --now")
    asked = '[[step]]\nexpect = "stale"\n[[step]]\nexpect = "-shop pay --now"\n'
    fixed = adds(cites(STEPS, PAY), "tests/test_shop.py")
    document = one_sync(world, 0, playbook=asked + fixed + TURN)
    assert sorted(finding["kind"] for finding in document["before"]) == ["missing", "stale"]


def test_one_that_never_gets_there_ends_after_its_rounds_and_stays(world: World) -> None:
    with_tests(world, STEPS)
    document = one_sync(world, 1, "--rounds", "2", playbook=TURN + TURN + TURN)
    assert (document["ok"], document["rounds"]) == (False, 2)
    assert [finding["kind"] for finding in document["findings"]] == ["missing"]
    assert world.state("s") == "ready"
    told = world.fails(1, "tutorial", "sync", "-a", "replay", "--rounds", "1", "--", world.playbook(TURN, "x.toml"))
    name = next(name for name in world.agents() if name != "s")
    assert re.fullmatch(r"sync-[0-9a-f]{6}", name)
    assert f"muster diff {name}" in told.stderr and f"muster pull {name} --merge" in told.stderr
    assert "tutorial.sh:6: missing" in told.stdout


def test_a_tutorial_that_was_edited_is_found_whatever_else_is_right(world: World) -> None:
    with_tests(world, STEPS)
    edited = adds(f"#!/bin/bash\n\n{STEPS}\n", "tutorial.sh")
    document = one_sync(world, 1, "--rounds", "1", playbook=edited + TURN)
    assert sorted(finding["kind"] for finding in document["findings"]) == ["edited", "missing"]
    document = one_sync(
        world,
        0,
        "--name",
        "t",
        "--rounds",
        "2",
        playbook=edited
        + adds(cites(PAY))
        + TURN
        + '[[step]]\nexpect = "you may not change it"\n'
        + adds(TWO, "tutorial.sh")
        + TURN,
    )
    assert document["rounds"] == 2


def test_what_is_not_committed_does_not_count_and_the_agent_is_told(world: World) -> None:
    with_tests(world, STEPS)
    back = '[[step]]\nexpect = "1 files in your work dir are not committed"\n[[step]]\ncommit = "Now"\n'
    document = one_sync(world, 0, playbook=adds(cites(PAY), commit=False) + TURN + back + TURN)
    assert document["rounds"] == 2


def test_an_agent_that_has_ended_gets_no_second_round(world: World) -> None:
    with_tests(world, STEPS)
    document = one_sync(world, 1, playbook="[[step]]\nexit = 0\n")
    assert (document["rounds"], [finding["kind"] for finding in document["findings"]]) == (1, ["missing"])


def test_tests_that_the_user_has_not_committed_count(world: World) -> None:
    repo = with_tests(world, STEPS, tutorial=f"{TWO}\n# Leave.\nshop leave\n")
    (repo / "tests" / "test_leave.py").write_text(cites("# Leave.\nshop leave"))
    (repo / "tutorial.sh").write_text(f"{TWO}\n# Leave.\nshop leave\n")
    before = state(world)
    only = adds(cites(PAY), commit=False) + '[[step]]\ncommit = "Pay"\npaths = ["tests/test_pay.py"]\n'
    document = one_sync(world, 0, playbook=only + TURN)
    assert (document["ok"], len(document["before"])) == (True, 1)
    assert state(world) == before


def test_hostile_tests_are_read_and_never_run(world: World) -> None:
    repo = with_tests(world, STEPS)
    marker = world.folder / "ran"
    evil = f"open({str(marker)!r}, 'w')\n" + cites(PAY)
    hooks = (
        f"[[step]]\nrun = \"printf '#!/bin/sh\\ntouch {marker}\\n' > .git-hook; "
        "chmod +x .git-hook; printf '*.py filter=evil\\n' > .gitattributes\"\n"
    )
    world.git("config", "filter.evil.smudge", f"touch {marker}; cat")
    link = '[[step]]\nrun = "ln -s /etc/passwd tests/test_link.py"\n'
    deep = adds("x = " + "(" * 3000 + ")" * 3000, "tests/test_deep.py")
    before = state(world)
    document = one_sync(world, 1, "--rounds", "1", playbook=hooks + link + adds(evil) + deep + TURN)
    assert [finding["kind"] for finding in document["findings"]] == ["syntax"]
    assert state(world) == before and repo.exists()
    assert not marker.exists()


FAILS_TWICE = """from muster.tutorial import expect


def test_pays(e2e):
    e2e.write_tutorial_block("# Pay for it.\\nshop pay")
    expect(e2e.run("shop pay")).to_succeed()


def test_pays_twice(e2e):
    e2e.write_tutorial_block("# Pay for it.\\nshop pay")
    expect(e2e.run("echo paid once").stdout).to_contain("paid twice")


def test_does_not_pay(e2e):
    e2e.write_tutorial_block("# Pay for it.\\nshop pay")
    expect(e2e.run("true")).to_fail()
"""


def test_sync_runs_the_tests_and_sends_back_those_that_fail(world: World) -> None:
    with_tests(world, STEPS)
    before = state(world)
    back = (
        f"[[step]]\nexpect = 'test_pay.py::test_pays_twice failed'\n[[step]]\nexpect = 'paid twice'\n{adds(cites(PAY))}"
    )
    document = one_sync(world, 0, playbook=adds(FAILS_TWICE) + TURN + back + TURN)
    assert (document["ok"], document["rounds"]) == (True, 2)
    assert state(world) == before
    assert set(world.agents()) == {"s"}, "the checkout in which the tests ran is gone"


def test_sync_does_not_accept_tests_that_fail(world: World) -> None:
    with_tests(world, STEPS)
    document = one_sync(world, 1, "--rounds", "1", playbook=adds(FAILS_TWICE) + TURN)
    assert [(one["kind"], one["test"]) for one in document["findings"]] == [
        ("failing", "tests/test_pay.py::test_pays_twice"),
        ("failing", "tests/test_pay.py::test_does_not_pay"),
    ]
    assert "paid twice" in document["findings"][0]["diff"]


def test_sync_does_not_accept_a_block_whose_tests_are_all_skipped(world: World) -> None:
    with_tests(world, STEPS)
    skipped = cites(PAY).replace("def test_0", "import pytest\n\n\n@pytest.mark.skip\ndef test_0")
    document = one_sync(world, 1, "--rounds", "1", playbook=adds(skipped) + TURN)
    assert [(one["kind"], one["test"]) for one in document["findings"]] == [("not-run", "tests/test_pay.py::test_0")]


def test_sync_does_not_blame_the_agent_for_a_test_that_failed_before(world: World) -> None:
    repo = with_tests(world, STEPS)
    failing = f"{cites(STEPS)}\ndef test_never():\n    assert False\n"
    (repo / "tests" / "test_shop.py").write_text(failing)
    world.git("commit", "-qam", "a test that fails")
    more = failing + cites(PAY).replace("test_0", "test_pays")
    document = one_sync(world, 0, playbook=adds(more, "tests/test_shop.py") + TURN)
    assert document["ok"]


def test_sync_runs_all_tests_when_a_helper_of_theirs_changed(world: World) -> None:
    with_tests(world, STEPS)
    broken = adds("import no_such_module\n", "tests/conftest.py")
    document = one_sync(world, 1, "--rounds", "1", playbook=broken + adds(cites(PAY)) + TURN)
    assert "not-run" in {one["kind"] for one in document["findings"]}
    assert "no_such_module" in str(document["findings"])


def test_sync_says_so_when_no_test_can_be_run_and_does_not_ask_the_agent_again(world: World) -> None:
    with_tests(world, STEPS)
    words = ("--pytest", "no-such-pytest -q")
    document = one_sync(world, 1, *words, playbook=adds(cites(PAY)) + TURN + TURN)
    assert [one["kind"] for one in document["findings"]] == ["not-run"] and document["rounds"] == 1
    message = document["findings"][0]["message"]
    assert "no-such-pytest -q tests/test_pay.py" in message and "--pytest COMMAND" in message


@pytest.mark.parametrize("where", [".", "sub"])
def test_check_and_sync_read_the_same_tests(world: World, where: str) -> None:
    repo = project(world, TWO)
    (repo / "sub").mkdir()
    (repo / where / "test_shop.py").write_text(cites(STEPS))
    (repo / "sub" / "keep").write_text("")
    world.git("add", "-A")
    world.git("commit", "-q", "-m", "tests beside the program")
    checked = world.fails(1, "tutorial", "check", "--json", cwd=repo / where).json["findings"]
    path = world.playbook(TURN, "sync.toml")
    words = ("tutorial", "sync", "-a", "replay", "--rounds", "1", "--json", "--", path)
    synced = world.fails(1, *words, cwd=repo / where).json["before"]
    assert [(one["kind"], one["block"]) for one in synced] == [(one["kind"], one["block"]) for one in checked]
    assert [one["kind"] for one in synced] == ["missing"]


def test_only_the_user_can_fix_duplicate_blocks(world: World) -> None:
    with_tests(world, STEPS, PAY, tutorial=f"{TWO}\n{PAY}\n")
    told = world.fails(1, "tutorial", "sync")
    assert "duplicate" in told.stdout and "only you can fix this" in told.stderr
    assert world.agents() == {}


def test_sync_of_a_mirror_fetches_its_commits(world: World, sshd: Sshd) -> None:
    with_tests(world, STEPS)
    # The host's own python3 need not have pytest and muster.
    pytest = f"{sys.executable} -m pytest"
    document = one_sync(world, 0, "--name", "s@box", "--pytest", pytest, playbook=adds(cites(PAY)) + TURN)
    assert document["agent"] == "s@box"
    assert "test_pay.py" in world.git("ls-tree", "-r", "--name-only", "muster/s")


@pytest.mark.parametrize(
    ("code", "words", "says", "hint"),
    [
        (3, ("nowhere",), "no tests at nowhere", "mkdir nowhere"),
        (2, ("--rounds", "0"), "--rounds must be at least 1", "--help"),
        (3, ("--tutorial", "no.sh"), "no tutorial no.sh", "--tutorial FILE"),
        (2, ("..",), "is not in", "same repository"),
    ],
)
def test_what_is_wrong_with_the_words_of_sync_is_told(
    world: World, code: int, words: tuple[str, ...], says: str, hint: str
) -> None:
    with_tests(world, STEPS)
    told = world.fails(code, "tutorial", "sync", "-a", "replay", *words)
    assert says in told.stderr and hint in told.stderr
    assert world.agents() == {}


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("expect(x).to_fail()", True),
        ("expect(x).to_time_out()", True),
        ("expect(x).to_exit_with(2)", True),
        ("expect(x).to_exit_with(code)", True),
        ("expect(x).to_exit_with(0)", False),
        ("expect(x).to_succeed()", False),
        ("pass  # no unhappy path: it only prints", True),
        ("pass\n    # no unhappy path:", False),
        ("pass\n    # no unhappy path: at the end", True),
        ("pass\n# no unhappy path: of something else", False),
    ],
)
def test_an_unhappy_path_is_seen(tmp_path: Path, body: str, told: bool) -> None:
    (tmp_path / "t.py").write_text(f"def test_a(e2e):\n    {body}\n\n\ndef test_b(e2e):\n    expect(x).to_fail()\n")
    assert sync._unhappy(str(tmp_path), "t.py::test_a") is told
    (tmp_path / "t.py").write_text(f"class TestA:\n  def test_a(self, e2e):\n    {body.split(chr(10))[0]}\n")
    assert sync._unhappy(str(tmp_path), "t.py::TestA::test_a") is (told if "\n" not in body else False)


# skill


def test_skill_is_installed_for_each_client_and_again_without_a_change(world: World) -> None:
    agents = world.repo / "AGENTS.md"
    agents.write_bytes(b"# Mine\r\nno newline at the end")
    told = world.ok("tutorial", "skill", cwd=world.repo / "src")
    assert (
        ".claude/commands/sync-tutorial-to-e2e-tests.md: written" in told.stderr and "AGENTS.md: written" in told.stderr
    )
    command = (world.repo / ".claude/commands/sync-tutorial-to-e2e-tests.md").read_text()
    assert command.startswith("---\ndescription: ") and "$ARGUMENTS" in command and "muster tutorial check" in command
    first = agents.read_bytes()
    assert first.startswith(b"# Mine\r\nno newline at the end\n\n<!-- muster: sync-tutorial-to-e2e-tests -->\n")
    agents.write_bytes(first + b"\nmore of mine\r\n")
    assert "unchanged" in world.ok("tutorial", "skill", "codex", "agents", "claude").stderr
    assert agents.read_bytes() == first + b"\nmore of mine\r\n"
    world.ok("tutorial", "skill", "opencode")
    assert (world.repo / ".opencode/command/sync-tutorial-to-e2e-tests.md").read_text() == command


@pytest.mark.parametrize("client", ["claude", "opencode"])
def test_the_front_matter_of_the_skill_is_valid_yaml(client: str) -> None:
    import yaml

    lead, matter, body = skill.skill(skill.CLIENTS[client]).split("---\n", 2)
    assert (lead, yaml.safe_load(matter)) == ("", {"description": skill.ABOUT})
    assert body.startswith("Bring the end-to-end tests")


def test_skill_replaces_nothing_that_differs_without_force(world: World) -> None:
    world.ok("tutorial", "skill", "agents")
    agents, command = world.repo / "AGENTS.md", world.repo / ".claude/commands/sync-tutorial-to-e2e-tests.md"
    whole = agents.read_text()
    agents.write_text("before\n" + whole.replace("### Rules", "### My rules") + "after")
    told = world.fails(5, "tutorial", "skill", "claude", "agents")
    assert "AGENTS.md has other instructions" in told.stderr and "--force" in told.stderr
    assert not command.exists()
    assert world.ok("tutorial", "skill", "agents", "--force").stderr == "AGENTS.md: updated\n"
    assert agents.read_text() == "before\n" + whole + "after"
    command.parent.mkdir(parents=True)
    command.write_text("mine")
    world.fails(5, "tutorial", "skill", "claude")
    assert command.read_text() == "mine"
    agents.write_text(whole + skill.BEGIN)
    told = world.fails(5, "tutorial", "skill", "agents", "--force")
    assert "are ambiguous" in told.stderr and skill.END in told.stderr
    assert agents.read_text() == whole + skill.BEGIN


def test_skill_is_printed_and_goes_where_it_is_told(world: World) -> None:
    printed = world.ok("tutorial", "skill", "claude", "--print").stdout
    assert printed == skill.skill(skill.CLIENTS["claude"])
    assert not (world.repo / ".claude").exists()
    other = world.folder / "other"
    other.mkdir()
    (other / "CLAUDE.md").write_text("mine\n")
    (other / "AGENTS.md").symlink_to("CLAUDE.md")
    world.ok("tutorial", "skill", "codex", "--dir", str(other))
    assert (other / "AGENTS.md").is_symlink() and skill.BEGIN in (other / "CLAUDE.md").read_text()
    told = world.fails(2, "tutorial", "skill", "claud")
    assert "no client 'claud'" in told.stderr and "claude" in told.stderr
    assert "there is no folder" in world.fails(3, "tutorial", "skill", "--dir", "nowhere").stderr


def test_the_rules_of_the_slash_command_are_those_of_sync() -> None:
    rules = (Path(agent.PROMPTS) / "sync.md").read_text().partition("## Rules\n")[2]
    for path in skill.CLIENTS.values():
        assert rules.strip() in skill.skill(path)
