"""Versions of clients: which were tested, and what `create` and `doctor` say of others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from muster.agents import TYPES
from muster.plugins import VERSIONS, AgentType, agent_type, misfit, version

from .conftest import World

TYPE = """
[types.mine]
argv = ["mine"]
[types.mine.versions]
oldest = "1.9.0"
newest = "1.10.2"
install = "1.10.0"
by = "pkg install mine@{version}"
"""
OLD = "mine 1.8.7 is older than 1.9.0, the oldest version that muster was tested with"
NEW = "mine 1.11.0 is newer than 1.10.2, the newest version that muster was tested with"
FIX = "pkg install mine@1.10.0"


def install(world: World, number: str, name: str = "mine") -> None:
    """Install a client that counts how often it is asked for its version, as npm does: another file, an old time."""
    new = world.bin / ".new"
    new.write_text(
        f'#!/bin/sh\n[ "$1" != --version ] || {{ echo >>{world.folder}/asked; echo "mine v2 {number} (x)"; exit; }}\nexec sleep 1000\n'
    )
    new.chmod(0o755)

    os.utime(new, (500_000_000, 500_000_000))
    new.replace(world.bin / name)


def asked(world: World) -> int:
    path = world.folder / "asked"
    return len(path.read_text().splitlines()) if path.exists() else 0


@pytest.fixture
def configured(world: World) -> World:
    path = world.home / ".config" / "muster" / "config.toml"
    path.parent.mkdir(parents=True)
    path.write_text(TYPE)
    return world


def test_create_tells_of_an_untested_version_in_one_line_and_asks_each_installation_once(configured: World) -> None:
    install(configured, "1.8.7")
    made = configured.ok("create", "one", "mine", "--no-connect", "--count", "2")
    assert made.stderr.splitlines().count(f"{OLD}; install a tested one: {FIX}") == 1
    first = asked(configured)
    assert first <= 2, "two that start at the same time may both ask"
    assert OLD in configured.ok("create", "two", "mine", "--no-connect", "--json").stderr
    assert asked(configured) == first
    install(configured, "1.11.0")
    assert NEW in configured.ok("create", "three", "mine", "--no-connect").stderr
    assert asked(configured) == first + 1
    install(configured, "1.10.0")
    assert "tested" not in configured.ok("create", "four", "mine", "--no-connect").stderr


def test_doctor_names_the_version_of_each_client_and_what_to_install(configured: World) -> None:
    def row() -> dict[str, object]:
        return {row["part"]: row for row in configured.ok("doctor", "--json").json["parts"]}["mine"]

    assert "mine" not in {row["part"] for row in configured.ok("doctor", "--json").json["parts"]}
    install(configured, "1.8.7")
    assert (row()["ok"], row()["found"], row()["fix"]) == (False, "1.8.7 (tested: 1.9.0 to 1.10.2)", FIX)
    (line,) = [line for line in configured.ok("doctor").stdout.splitlines() if " mine " in line]
    assert "untested" in line and FIX in line
    install(configured, "1.9.0")
    assert (row()["ok"], row()["fix"]) == (True, None)


def test_a_client_that_does_not_tell_its_version_is_started_all_the_same(configured: World) -> None:
    program = configured.bin / "mine"
    program.write_text('#!/bin/sh\n[ "$1" != --version ] || exit 3\nexec sleep 1000\n')
    program.chmod(0o755)
    assert "tested" not in configured.ok("create", "one", "mine", "--no-connect").stderr
    assert "unknown version" in configured.ok("doctor").stdout


def test_a_plain_command_is_not_asked_for_its_version(world: World) -> None:
    install(world, "1.0.0")
    world.ok("create", "one", "command", "--no-connect", "--", "mine")
    assert asked(world) == 0


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("2.1.197 (Claude Code)", "2.1.197"),
        ("codex-cli 0.166.0", "0.166.0"),
        ("mine v2 1.10.0 (x)", "1.10.0"),
        ("1.2.3-beta", "1.2.3"),
        ("", ""),
        ("command not found", ""),
        ("9" * 5000 + ".1", ""),
        ("v1.2", "1.2"),
    ],
)
def test_a_version_is_read_out_of_what_a_client_says(said: str, found: str) -> None:
    assert version(said) == found


def test_versions_are_compared_as_numbers() -> None:
    kind = AgentType("mine", versions={"oldest": "1.9.0", "newest": "1.10.2"})
    assert [number for number in ("1.8.9", "1.9.0", "1.10.0", "1.10.2", "1.10.10", "2.0") if misfit(kind, number)] == [
        "1.8.9",
        "1.10.10",
        "2.0",
    ]
    assert misfit(kind, "") is None and misfit(AgentType("other"), "1.0") is None


def test_the_stated_range_of_each_built_in_client_holds_the_version_to_install() -> None:
    for name in TYPES:
        kind = agent_type(name, {})
        if kind.versions:
            assert set(kind.versions) == set(VERSIONS)
            assert misfit(kind, kind.versions["install"]) is None


def test_a_version_that_is_none_is_refused_in_the_configuration(configured: World) -> None:
    path = Path(configured.home) / ".config" / "muster" / "config.toml"
    for wrong, said in (('oldest = "new"', "must be a version"), ('eldest = "1.0"', "no key 'eldest'")):
        path.write_text(f'[types.mine]\nargv = ["mine"]\n[types.mine.versions]\n{wrong}\n')
        assert said in configured.fails(2, "create", "one", "mine", "--no-connect").stderr
