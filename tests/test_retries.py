"""`retries` of a type: Python checks it, tmux looks for it."""

from __future__ import annotations

import re

import pytest

from muster.agents import claude, codex
from muster.errors import UsageError
from muster.plugins import agent_type

from .conftest import World, eventually


def taken(pattern: str) -> str:
    return agent_type("x", {"x": {"argv": ["true"], "retries": pattern}}).retries


@pytest.mark.parametrize(
    "pattern",
    [r"in \d+s", r"\w", r"a\sb", r"\bword", r"a\B", "(?i)x", "(?:a|b)", "a*?b", "a+?b", "a??", "a{2}?", r"[\d]", r"\\\d", "\\Aa", "a\\Z"],
)  # fmt: skip
def test_what_only_python_has_is_refused_in_a_pattern_for_tmux(pattern: str) -> None:
    with pytest.raises(UsageError, match="tmux does not know") as caught:
        taken(pattern)
    assert "[0-9]" in caught.value.hint


@pytest.mark.parametrize(
    "pattern", [r"\\d", r"\(?", r"[(?]", r"[+*]?", r"a\+?", r"\*?", "[]*?]", r"a\}?", "^a(b|c)?$", ""]
)
def test_what_both_take_alike_is_taken(pattern: str) -> None:
    assert taken(pattern) == pattern


@pytest.mark.parametrize("pattern", [claude.TYPE.retries, codex.TYPE.retries])
def test_the_built_in_ones_are_such(pattern: str) -> None:
    assert taken(pattern) == pattern


@pytest.mark.parametrize(
    "line",
    ["✻ Retrying in 1s · attempt 3/10", "✻ 529 overloaded · retrying in 3s · attempt 4/10"],
)
def test_the_words_of_old_and_new_versions_of_claude_are_known(line: str) -> None:
    assert re.search(claude.TYPE.retries, line) and not re.search(claude.TYPE.retries, f"  {line}")


def test_a_pattern_that_ends_in_a_semicolon_ends_no_command_of_tmux(world: World) -> None:
    path = world.home / ".config" / "muster" / "config.toml"
    path.parent.mkdir(parents=True)
    types = {"plain": r"wait \(1\);", "escaped": r"wait \(1\)\;"}
    for name, pattern in types.items():
        with open(path, "a") as file:
            file.write(
                f"[types.{name}]\nargv = ['sh', '-c', 'echo \"wait (1);\"; exec sleep 1000']\nretries = '{pattern}'\n"
            )
        world.ok("create", name, name, "--no-connect")
        eventually(lambda name=name: world.agents()[name]["reason"] == "retry")
        session = f"={world.agents()[name]['id']}:"
        assert world.tmux("show-options", "-v", "-t", session, "@retries").stdout.decode() == f"{pattern}\n"
