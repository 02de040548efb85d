"""Suggestions for words that are not known: the right one, or none."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from muster.cli.main import FAMILIAR, VERBS, first_words
from muster.errors import close, nearest


def muster(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "muster", *words], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("attach", "connect"),
        ("logs", "transcript"),
        ("ps", "list"),
        ("rm", "destroy"),
        ("delete", "destroy"),
        ("kill", "stop"),
        ("status", "list"),
        ("send", "message"),
        ("top", "list --watch"),
        ("web", "list --watch"),
        ("atach", "connect"),
        ("lsit", "list"),
        ("trans", "transcript"),
    ],
)
def test_a_familiar_or_misspelt_word_leads_to_the_right_verb(word: str, meant: str) -> None:
    done = muster(word, "fix")
    assert done.returncode == 2
    assert f"there is no verb {word!r}" in done.stderr
    assert f"did you mean {meant!r}" in done.stderr


@pytest.mark.parametrize("word", ["xyzzy", "banana", "q", "", "-x", "--foo"])
def test_a_word_that_is_like_no_verb_gets_no_suggestion(word: str) -> None:
    done = muster(word)
    assert done.returncode == 2
    assert "did you mean" not in done.stderr
    assert "`muster --help` lists all" in done.stderr


def test_familiar_words_are_no_verbs_and_lead_to_verbs_and_options_that_exist() -> None:
    assert not set(FAMILIAR) & set(first_words())
    for word, commands in FAMILIAR.items():
        for command in commands:
            verb, _, rest = command.partition(" ")
            assert verb in VERBS, word
            if rest:
                assert rest.split()[0] in muster(verb, "--help").stdout, command


@pytest.mark.parametrize("word", ["--version", "-V", "version"])
def test_version_is_printed_however_it_is_asked_for(word: str) -> None:
    done = muster(word)
    assert done.returncode == 0
    assert re.fullmatch(r"muster \d+\.\d+\S*\n", done.stdout)


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("fix-logn", ["fix-login"]),
        ("Fix-Login", ["fix-login"]),
        ("fix-lo", ["fix-login"]),
        ("docs", ["docs-2"]),
        ("zebra", []),
        ("x", []),
        ("", []),
    ],
)
def test_close_finds_misspellings_and_beginnings_and_nothing_else(word: str, found: list[str]) -> None:
    assert close(word, ["fix-login", "docs-2", "a", "release-notes"]) == found


def test_nearest_lists_all_words_when_none_is_close() -> None:
    assert nearest("moed", ["mode", "label"]) == "did you mean 'mode'?"
    assert nearest("zebra", ["mode", "label"]) == "known: label, mode"


def test_a_misspelt_option_gets_the_nearest_one_and_a_strange_one_none() -> None:
    assert "did you mean '--watch'?" in muster("list", "--wach").stderr
    strange = muster("list", "--zebra").stderr
    assert "takes no option '--zebra'" in strange and "did you mean" not in strange
