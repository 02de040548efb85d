"""docs/tutorial.sh is the manual: it shows every verb and every option, and nothing in it that muster does not have."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from muster.cli.main import ALIASES, VERBS, actions
from muster.cli.parse import build
from muster.errors import UsageError
from muster.tutorial import blocks

TUTORIAL = Path(__file__).parent.parent / "docs" / "tutorial.sh"
OPERATORS = frozenset("| || & && ; ;; ( )".split())
REDIRECTIONS = frozenset("< > >> << <<<".split())
KEYWORDS = frozenset("if then else elif fi while do done ! time exec".split())


class Call(NamedTuple):
    """One call of muster: the verb, its own words, and those behind `--`."""

    verb: str
    words: tuple[str, ...]
    rest: tuple[str, ...]

    @property
    def options(self) -> set[str]:
        return {word.partition("=")[0] for word in self.words if word.startswith("--")}


def commands(block: str) -> tuple[str, ...]:
    """The commands of a block without the texts of heredocs: those are for other programs."""
    return blocks.commands(block, bodies=False)


def calls(line: str) -> list[Call]:
    """Every call of muster in a line of shell, also behind pipes, variables and in `$( )`."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    found: list[Call] = []
    current: list[str] = []
    skip = False
    for word in [*lexer, ";"]:
        if skip:
            skip = False
        elif word in REDIRECTIONS:
            skip = True
        elif word in OPERATORS:
            found += _call(current)
            current = []
        else:
            current.append(word)
            for inner in re.findall(r"\$\((muster [^)]*)\)", word):
                found += calls(inner)
    return found


def _call(words: list[str]) -> list[Call]:
    while words and (words[0] in KEYWORDS or re.match(r"[A-Za-z_]\w*=", words[0])):
        words = words[1:]
    if not words or words[0] != "muster":
        return []
    two = " ".join(words[1:3])
    verb = two if two in VERBS else ALIASES.get(words[1], words[1]) if len(words) > 1 else ""
    own = words[1 + len(verb.split()) :]
    cut = own.index("--") if "--" in own else len(own)
    return [Call(verb, tuple(own[:cut]), tuple(own[cut + 1 :]))]


def flaw(call: Call) -> str:
    """What muster itself would say against these words; empty when it takes them."""
    parser, _ = build(call.verb)
    known = {word for action in parser._actions for word in action.option_strings}
    if unknown := sorted(call.options - known):
        return f"muster {call.verb} has no {', '.join(unknown)}"
    if call.rest and not parser.rest:
        return f"muster {call.verb} takes nothing behind --"
    if "--help" in call.words or "-h" in call.words:
        return ""
    try:
        parser.parse_intermixed_args(list(call.words))
    except UsageError as error:
        return f"muster {call.verb}: {error.message}"
    return ""


COMMAND_BLOCKS = [block.text for block in blocks.read(TUTORIAL) if block.kind == "commands"]
CALLS = [call for block in COMMAND_BLOCKS for line in commands(block) for call in calls(line)]


def test_it_has_at_least_120_blocks_with_commands() -> None:
    assert len(COMMAND_BLOCKS) >= 120


def test_no_two_blocks_are_equal() -> None:
    seen: dict[str, str] = {}
    for block in COMMAND_BLOCKS:
        assert block not in seen, f"twice:\n{block}"
        seen[block] = block


def test_no_two_blocks_run_the_same_commands() -> None:
    ran: dict[tuple[str, ...], str] = {}
    for block in COMMAND_BLOCKS:
        key = commands(block)
        assert key not in ran, f"these do the same:\n{ran[key]}\n\n{block}"
        ran[key] = block


def test_every_block_with_commands_says_first_what_a_user_wants() -> None:
    for block in COMMAND_BLOCKS:
        assert block.startswith("# "), f"no words before the commands:\n{block}"


def test_it_is_valid_bash() -> None:
    done = subprocess.run(["bash", "-n", str(TUTORIAL)], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and not done.stderr, done.stderr


def test_every_block_is_valid_bash_by_itself() -> None:
    for block in COMMAND_BLOCKS:
        done = subprocess.run(["bash", "-n"], input=block, capture_output=True, text=True, check=False)
        assert done.returncode == 0 and not done.stderr, f"{block}\n{done.stderr}"


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_and_each_of_its_long_options_is_shown(verb: str) -> None:
    mine = [call for call in CALLS if call.verb == verb]
    assert mine, f"the tutorial never calls muster {verb}"
    wanted = {word for action in build(verb)[0]._actions for word in action.option_strings if word.startswith("--")}
    missing = wanted - {option for call in mine for option in call.options}
    assert not missing, f"muster {verb}: never shown: {', '.join(sorted(missing))}"


@pytest.mark.parametrize("verb", VERBS)
def test_every_choice_of_a_positional_argument_is_shown(verb: str) -> None:
    shown = {word for call in CALLS if call.verb == verb for word in call.words}
    for action in build(verb)[0]._actions:
        if action.choices and not action.option_strings:
            assert set(action.choices) <= shown, f"muster {verb}: never shown: {set(action.choices) - shown}"


def test_all_that_it_shows_exists() -> None:
    wrong = []
    for block in COMMAND_BLOCKS:
        for call in (call for line in commands(block) for call in calls(line)):
            if call.verb in VERBS:
                problem = flaw(call)
            elif call.verb == "help" or call.verb.startswith("-"):
                problem = "" if call.verb in ("help", "--help", "--version") else f"muster has no {call.verb}"
            elif actions(call.verb):
                problem = "" if call.words == ("--help",) else f"muster {call.verb} has no such action: {call.words}"
            else:
                problem = "" if f"muster-{call.verb}" in block else f"there is no verb {call.verb}"
            if problem:
                wrong.append(f"{problem}\n{block}")
    assert not wrong, "\n\n".join(wrong)


def test_the_reader_of_the_tutorial_sees_what_a_shell_would() -> None:
    line = """A=1 muster list --format '{name}; x' | muster start - && if muster ls; then eval "$(muster man list)" > f; fi"""
    assert [(call.verb, call.words) for call in calls(line)] == [
        ("list", ("--format", "{name}; x")),
        ("start", ("-",)),
        ("list", ()),
        ("man", ("list",)),
    ]
    assert flaw(calls("muster list --colour red")[0]) == "muster list has no --colour"
    assert "invalid choice" in flaw(calls("muster snapshot drop x")[0])
    assert flaw(calls("muster create x command --count 3 -- make --jobs 4")[0]) == ""
    assert [call.verb for call in calls("(cd x && muster tutorial check --strict) || muster tutorial --help")] == [
        "tutorial check",
        "tutorial",
    ]
    assert commands("# a\nb <<END\n\nc\nEND\nd") == ("b <<END", "d")
