"""The help, and the pages made from it: current, complete, and true."""

from __future__ import annotations

import contextlib
import io
import os
import re
from pathlib import Path

import pytest

from muster.cli import pages
from muster.cli.main import ALIASES, GROUPS, VERBS, actions, main
from muster.cli.parse import build

from .test_tutorial import Call, calls, flaw

ROOT = Path(__file__).parent.parent
COMMANDS = ROOT / "docs" / "commands"


def printed(*words: str) -> str:
    """What muster prints on stdout; it must end well."""
    told = io.StringIO()
    with contextlib.redirect_stdout(told):
        assert main(list(words)) == 0
    return told.getvalue()


def examples(verb: str) -> list[Call]:
    return [call for line in build(verb)[0].examples.strip().splitlines() for call in calls(line)]


def test_the_command_pages_are_current() -> None:
    assert pages.main(["--check", str(COMMANDS)]) == 0, "make docs"


def test_there_is_no_page_of_a_verb_that_is_gone() -> None:
    wanted = set(pages.files())
    there = {str(path.relative_to(COMMANDS)) for path in COMMANDS.rglob("*") if path.is_file()}
    assert there == wanted


def test_a_page_that_is_not_current_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert pages.main([str(tmp_path)]) == 0
    assert pages.main(["--check", str(tmp_path)]) == 0
    (tmp_path / "list.md").write_text("old")
    os.unlink(tmp_path / "wait.md")
    assert pages.main(["--check", str(tmp_path)]) == 1
    told = capsys.readouterr().err
    assert "list.md" in told and "wait.md" in told and "make docs" in told


@pytest.mark.parametrize("words", [(), ("--help",), ("-h",), ("help",)], ids=lambda words: " ".join(words) or "nothing")
def test_help_begins_with_usage_and_names_every_verb(words: tuple[str, ...]) -> None:
    text = printed(*words)
    assert text.startswith("Usage: muster VERB")
    for verb, summary in VERBS.items():
        assert re.search(rf"^  {verb} +{re.escape(summary)}$", text, re.MULTILINE), verb
    for group in GROUPS:
        assert f"\n{group}:\n" in text
    for line in (line for line in text.splitlines() if line.startswith("  muster ")):
        for call in calls(line):
            assert call.verb in VERBS and flaw(call) == "", line


@pytest.mark.parametrize("verb", [*VERBS, *ALIASES])
def test_the_help_of_a_verb_has_examples_first_and_every_option(verb: str) -> None:
    text = printed(*verb.split(), "--help")
    verb = ALIASES.get(verb, verb)
    heads = re.findall(r"^(\w[\w ]*):", text, re.MULTILINE)
    assert heads[:2] == ["Usage", "Examples"]
    assert text.startswith(f"Usage: muster {verb} ")
    parser, module = build(verb)
    assert " ".join(module.TEXT.split()) in " ".join(text.split())
    body = text[text.index("\nOptions:") :]
    for action in parser._actions:
        for word in action.option_strings:
            assert re.search(rf"(^|[ ,]){re.escape(word)}\b", body), f"{word} is not in the help of {verb}"
        assert action.help, f"{verb}: {action.dest} has no help"
    assert "==SUPPRESS==" not in text
    assert text == printed("help", *verb.split()) == pages.plain(verb)


@pytest.mark.parametrize("verb", VERBS)
def test_the_examples_of_a_verb_are_true(verb: str) -> None:
    assert any(call.verb == verb for call in examples(verb)), f"the help of {verb} shows no call of it"
    for call in examples(verb):
        assert call.verb in VERBS, f"there is no verb {call.verb}"
        assert flaw(call) == ""


@pytest.mark.parametrize("words", [("tutorial",), ("tutorial", "--help"), ("tutorial", "-h"), ("help", "tutorial")])
def test_the_first_word_of_two_has_a_help_that_names_its_actions(words: tuple[str, ...]) -> None:
    text = printed(*words)
    assert text.startswith("Usage: muster tutorial ACTION")
    for action, summary in actions("tutorial").items():
        assert re.search(rf"^  {action} +{re.escape(summary)}$", text, re.MULTILINE), action


def test_the_help_does_not_depend_on_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    before = printed("create", "--help")
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("LINES", "10")
    assert printed("create", "--help") == before


def test_help_reaches_no_configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A broken file must not keep anyone from reading how to mend it."""
    (tmp_path / "muster").mkdir()
    (tmp_path / "muster" / "config.toml").write_text("this is not TOML")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert printed("config", "--help").startswith("Usage")
