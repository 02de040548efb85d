"""Fast by not loading: what each verb imports is a short, fixed list, and `list` does not grow with agents."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from muster.cli.main import VERBS

from .conftest import SRC, World

PROBE = """
import sys, json
sys.argv = ["muster", *{words!r}]
before = set(sys.modules)
from muster.cli.main import main
import io, contextlib
with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
    try:
        main()
    except SystemExit:
        pass
print(json.dumps(sorted(set(sys.modules) - before)))
"""
#: Modules that cost more than they are worth in a verb that does not need them.
HEAVY = {
    "asyncio",
    "tomllib",
    "dataclasses",
    "inspect",
    "importlib.metadata",
    "tarfile",
    "hashlib",
    "logging",
    "concurrent.futures",
    "difflib",
    "pathlib",
    "tempfile",
    "shutil",
    "http",
    "urllib.request",
    "email",
    "ssl",
}
CORE = {
    *("muster", "muster.errors", "muster.model", "muster.host", "muster.fanout", "muster.config", "muster.plugins"),
    *(
        "muster.store",
        "muster.bindings",
        "muster.evidence",
        "muster.tmux",
        "muster.hosts",
        "muster.cast",
        "muster.fleet",
        "muster.providers",
    ),
    *("muster.providers.local", "muster.cli", "muster.cli.main", "muster.cli.parse", "muster.cli.render"),
}
SHARED = {"muster.cli.common"}
WORK = {
    "muster.births",
    "muster.keyboard",
    "muster.message",
    "muster.notifier",
    "muster.notify",
    "muster.workdirs",
    "muster.git",
}
#: What a call of the verb may load beyond the core and its own module.
ALLOWED = {
    ("list",): SHARED,
    ("exec", "x", "--", "true"): set(),
    ("stop", "x"): SHARED,
    ("wait", "x"): SHARED,
    ("explain", "x"): {"muster.fingerprint"},
    ("message", "x", "-m", "hi"): SHARED
    | {"muster.keyboard", "muster.message", "muster.agents", "muster.agents.command"},
    ("create", "new", "command", "--no-connect", "--", "true"): SHARED
    | WORK
    | {"muster.cli.connect", "muster.agents", "muster.agents.command", "muster.fingerprint"},
    ("destroy", "x"): SHARED | {"muster.trash", "muster.git", "muster.workdirs", "muster.fingerprint"},
}


def loaded(world: World, *words: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROBE.format(words=list(words))],
        env=world.env,
        cwd=world.repo,
        capture_output=True,
        text=True,
        check=True,
    )
    return set(json.loads(done.stdout))


def test_help_loads_nothing_but_itself(world: World) -> None:
    assert {name for name in loaded(world, "--help") if name.startswith("muster")} == {
        "muster",
        "muster.cli",
        "muster.cli.main",
    }


@pytest.mark.parametrize("words", ALLOWED, ids=lambda words: words[0])
def test_a_verb_loads_only_what_it_uses(world: World, words: tuple[str, ...]) -> None:
    world.ok("create", "x", "command", "--no-connect", "--", "true")
    found = loaded(world, *words)
    assert {name for name in found if name.startswith("muster")} - CORE - {f"muster.cli.{words[0]}"} <= ALLOWED[words]
    assert sorted(found & HEAVY) == []


def test_importing_muster_loads_nothing_else() -> None:
    code = "import sys; before = set(sys.modules); import muster; print([m for m in set(sys.modules) - before if 'muster' in m])"
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(SRC)}, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "['muster']"


def test_the_public_face_is_what_it_is() -> None:
    import muster

    assert muster.__all__ == [
        "Address",
        "Agent",
        "AgentType",
        "ClientStatus",
        "CommandFailed",
        "CommandHost",
        "Fleet",
        "Found",
        "Host",
        "Launch",
        "MusterError",
        "NotFound",
        "Prepared",
        "Provider",
        "Refused",
        "Spec",
        "Status",
        "Stuck",
        "TimedOut",
        "Unreachable",
        "UsageError",
    ]
    for name in muster.__all__:
        assert getattr(muster, name).__name__ == name


def test_there_are_no_runtime_dependencies() -> None:
    import tomllib

    with open(Path(__file__).parent.parent / "pyproject.toml", "rb") as file:
        assert len(tomllib.load(file)["project"]["dependencies"]) <= 3


def test_every_verb_has_a_module_with_help(world: World) -> None:
    for verb in VERBS:
        assert "Examples:" in world.ok(*verb.split(), "--help").stdout


def count_programs(world: World) -> list[str]:
    """Every program that one `list` starts, by name: each is a shim that notes itself down first."""
    log = world.folder / "programs"
    shims = world.folder / "shims"
    if not shims.exists():
        shims.mkdir()
        for folder in ("/usr/bin", "/bin"):
            for name in os.listdir(folder):
                real = shutil.which(name, path=folder)
                shim = shims / name
                # `sh` itself cannot note itself down without starting itself; the rest can.
                if real and not shim.exists() and name not in ("sh", "dash", "bash", "env"):
                    shim.write_text(f'#!/bin/sh\nprintf "%s\\n" {name} >>"{log}"\nexec {real} "$@"\n')
                    shim.chmod(0o755)
    log.write_text("")
    world.ok("list", env={"PATH": f"{shims}:/usr/bin:/bin"})
    return sorted(log.read_text().split())


def test_list_makes_one_tmux_call_and_starts_no_process_per_agent(world: World) -> None:
    world.ok("create", "a", "command", "--no-connect", "--", "sleep", "1000")
    one = count_programs(world)
    world.ok("create", "b", "command", "--no-connect", "--count", "7", "--", "sleep", "1000")
    many = count_programs(world)
    assert one.count("tmux") == 1
    assert many == one
    assert len(many) <= 8
