"""The packages and the program of docs/plugins.md, taken from the page, installed, and used through their entry points."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from .conftest import SRC, World, end_agents, eventually

PAGE = Path(__file__).parent.parent / "docs" / "plugins.md"
#: Each file on the page by its name, which stands behind the language of its block.
FILES = dict(re.findall(r"^```\w+ (\S+)\n(.*?)^```$", PAGE.read_text(), re.M | re.S))


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package of the page as an installer unpacks it: its modules, and dist-info with the entry points."""
    project = tmp_path_factory.mktemp("project")
    for name in ("pyproject.toml", "muster_folder.py", "muster_echo.py"):
        (project / name).write_text(FILES[name])
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel"]
    subprocess.run(build, cwd=project, check=True, capture_output=True)
    (wheel,) = (project / "dist").glob("*.whl")
    site = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    return site


@pytest.fixture
def plugged(world: World, package: Path) -> Iterator[World]:
    """A user who has the package and the program installed."""
    world.env["PYTHONPATH"] = f"{SRC}{os.pathsep}{package}"
    program = world.bin / "muster-provider-sub"
    program.write_text(FILES["muster-provider-sub"])
    program.chmod(0o755)
    yield world
    for state in world.home.glob(".*/*/up/.local/state/muster"):
        end_agents(state)


def configure(world: World, text: str) -> None:
    file = world.home / ".config/muster/config.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def make(world: World, provider: str, *argv: str) -> str:
    """Create an agent on a new host; return the place of the host."""
    address = world.ok("create", f"foo@.{provider}", "command", "--no-connect", "--", *argv).stdout.strip()
    return address.removeprefix("foo@")


def rows(world: World) -> dict[str, dict[str, object]]:
    return {row["name"]: row for row in world.ok("hosts", "--json").json["hosts"]}


def age(world: World, seconds: float) -> None:
    """Let the hosts that were made be so much older."""
    for note in (world.muster_home / "hosts").iterdir():
        data = json.loads(note.read_text())
        note.write_text(json.dumps({**data, "made": data["made"] - seconds}))


def test_the_examples_are_short() -> None:
    assert len(FILES["muster_folder.py"].splitlines()) < 60
    assert len(FILES["muster_echo.py"].splitlines()) < 20


@pytest.mark.parametrize("provider", ["folder", "sub"])
def test_a_provider_of_the_page_keeps_the_contract(plugged: World, provider: str) -> None:
    text = FILES["test_folder.py"]
    test = plugged.folder / "test_contract.py"
    test.write_text(text.replace('"folder"', f'"{provider}"'))
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "--strict-markers",
            "-m",
            "not slow",
            "-p",
            "no:cacheprovider",
            str(test),
        ],
        cwd=plugged.folder,
        env=plugged.env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert re.search(r"^\d\d passed, \d deselected in", done.stdout, re.M), done.stdout


@pytest.mark.parametrize("provider", ["folder", "sub"])
def test_create_makes_a_host_that_every_verb_shows(plugged: World, provider: str) -> None:
    place = make(plugged, provider, "sleep", "1000")
    assert re.fullmatch(rf"[a-z]+-[a-z]+\.{provider}", place)
    row = plugged.wait_state(f"foo@{place}", "working")
    assert (row["host"], row["provider"]) == (place.partition(".")[0], provider)
    assert plugged.ok("exec", f"foo@{place}", "--", "cat", "README").stdout == "hello\n"
    assert (rows(plugged)[place]["made"], rows(plugged)[place]["agents"]) == (True, 1)
    # Another agent of that name is on another host.
    other = make(plugged, provider, "sleep", "1000")
    assert other != place
    assert {f"foo@{place}", f"foo@{other}"} <= set(plugged.agents())


def test_a_host_is_destroyed_only_once_nothing_is_lost(plugged: World) -> None:
    place = make(plugged, "folder", "sleep", "1000")
    assert "1 agent" in plugged.fails(5, "hosts", "destroy", place).stderr
    plugged.ok("hosts", "stop", place)
    assert rows(plugged)[place]["reachable"] is False
    assert "cannot be reached" in plugged.fails(6, "hosts", "destroy", place).stderr
    plugged.ok("hosts", "start", place)
    plugged.ok("destroy", f"foo@{place}")
    assert "1 in its trash" in plugged.fails(5, "hosts", "destroy", place).stderr
    plugged.ok("hosts", "destroy", place, "--force")
    assert place not in rows(plugged)
    assert not list((plugged.home / ".folders").iterdir())


def test_gc_shows_hosts_on_which_nothing_is_left(plugged: World) -> None:
    place = make(plugged, "folder", "true")

    def left() -> dict[str, tuple[str, str]]:
        found = plugged.ok("gc", "--json").json["leftovers"]
        return {row["name"]: (row["verdict"], row["action"]) for row in found if row["what"] == "host"}

    assert left() == {}
    plugged.ok("destroy", f"foo@{place}")
    age(plugged, 7200)
    assert left()[place][0] == "has only trash"
    plugged.ok("gc", "--older", "0", "--yes")
    assert place not in rows(plugged)
    # A host that another machine made, or that was made before this one lost its state.
    (plugged.home / ".folders" / "lost" / "up").mkdir(parents=True)
    configure(plugged, '[providers.folder]\nroot = "~/.folders"\n')
    assert left() == {"lost.folder": ("not known here", "kept: muster list --host lost.folder")}
    plugged.ok("create", "foo@lost.folder", "command", "--no-connect", "--", "true")
    assert "not made by muster" in plugged.fails(5, "hosts", "destroy", "lost.folder").stderr


def test_a_host_on_which_no_agent_could_be_made_is_removed_again(plugged: World) -> None:
    plugged.fails(2, "create", "foo@.folder", "command", "--mode", "worktree", "--no-connect", "--", "true")
    assert not (plugged.home / ".folders").exists()
    shim = plugged.bin / "tmux"
    shim.write_text("#!/bin/sh\nexit 1\n")
    shim.chmod(0o755)
    plugged.fails(1, "create", "foo@.folder", "command", "--no-connect", "--", "true")
    shim.unlink()
    assert not list((plugged.home / ".folders").iterdir())
    assert set(rows(plugged)) == {None}


def test_a_provider_that_makes_no_hosts_refuses_in_one_line(world: World) -> None:
    error = world.fails(5, "create", "foo@.ssh", "command", "--no-connect", "--", "true").stderr
    assert error.splitlines() == ["muster: provider ssh does not make hosts", "  name one that exists: NAME@HOST.ssh"]


def test_a_provider_that_is_not_installed_is_named(world: World) -> None:
    error = world.fails(2, "create", "foo@.frob", "command", "--no-connect", "--", "true").stderr
    assert error.startswith("muster: there is no provider 'frob'\n")


@pytest.mark.parametrize("provider", ["folder", "sub"])
def test_a_wrong_key_is_an_error_with_file_line_and_the_nearest_key(plugged: World, provider: str) -> None:
    for text, line, message, hint in (
        (f'[providers.{provider}]\nrot = "/x"\n', 2, f"[providers.{provider}] has no key 'rot'", "'root'"),
        (f'\n[hosts.box]\nprovider = "{provider}"\nroot = 3\n', 4, "[hosts.box] root must be text", ""),
        (f'[hosts."box.{provider}"]\nprovider = "{provider}"\nhom = "x"\n', 3, "has no key 'hom'", "'home'"),
    ):
        configure(plugged, text)
        error = plugged.fails(2, "exec", f"foo@box.{provider}", "--", "true").stderr
        assert f"config.toml:{line}: " in error and message in error and hint in error
    configure(plugged, "")
    assert "'root'" in plugged.fails(2, "config", "set", f"providers.{provider}.rooot", "/x").stderr


def test_settings_of_a_host_come_before_those_of_its_provider(plugged: World) -> None:
    for provider in ("folder", "sub"):
        configure(
            plugged,
            f'[providers.{provider}]\nroot = "{plugged.home}/.a/{provider}"\n'
            f'[hosts.box]\nprovider = "{provider}"\nroot = "{plugged.home}/.b/{provider}"\nhome = "{plugged.home}/.c/{provider}"\n',
        )
        for folder in (f".a/{provider}/tub/up", f".b/{provider}/box/up"):
            (plugged.home / folder).mkdir(parents=True, exist_ok=True)
        for name in ("box", f"tub.{provider}"):
            plugged.ok("create", f"foo@{name}", "command", "--no-connect", "--", "sleep", "1000")
        home = plugged.ok("exec", "foo@box", "--", "sh", "-c", "pwd; echo $HOME").stdout.split()
        assert (
            home[0].startswith(f"{plugged.home}/.c/{provider}/") and home[1] == f"{plugged.home}/.b/{provider}/box/up"
        )
        shown = plugged.ok("exec", f"foo@tub.{provider}", "--", "sh", "-c", "echo $HOME").stdout
        assert shown == f"{plugged.home}/.a/{provider}/tub/up\n"
        assert {f"foo@box.{provider}", f"foo@tub.{provider}"} <= set(plugged.agents())
        end_agents(plugged.home / ".c" / provider)
        end_agents(plugged.home / ".a" / provider / "tub/up/.local/state/muster")


def test_a_program_that_describes_itself_wrongly_is_named(world: World) -> None:
    program = world.bin / "muster-provider-odd"
    program.write_text("#!/bin/sh\necho what\n")
    program.chmod(0o755)
    error = world.fails(1, "create", "foo@.odd", "command", "--no-connect", "--", "true").stderr
    assert "muster-provider-odd describe did not print its description" in error


def test_an_agent_type_of_the_page_takes_messages(plugged: World) -> None:
    plugged.ok("create", "foo", "echo", "--no-connect")
    plugged.wait_state("foo", "ready")
    plugged.ok("message", "foo", "-m", "good morning")
    eventually(lambda: "you said: good morning" in plugged.ok("capture", "foo").stdout)


def test_the_agent_type_and_the_provider_go_together(plugged: World) -> None:
    started = time.time()
    plugged.ok("create", "foo@.folder", "echo", "--no-connect")
    (address,) = plugged.agents()
    plugged.wait_state(address, "ready")
    assert rows(plugged)[address.removeprefix("foo@")]["seen"] >= started
