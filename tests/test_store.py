"""store: what is read of the agents' folders, and who has a lock."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from muster import store
from muster.model import Agent
from muster.providers.local import LocalHost

USAGE = b'{"input_tokens": 7}\n'
OTHER = "another-machine:1:1:1"


@pytest.fixture
def host(tmp_path: Path) -> LocalHost:
    return LocalHost(str(tmp_path))


@pytest.fixture
def folder(host: LocalHost) -> Path:
    """The folder of an agent that was never started."""
    agent = Agent("one-12345678", "one", "command")
    store.claim(host, agent)
    store.write(host, agent)
    return Path(host.home) / "agents" / agent.id


@pytest.mark.parametrize(("size", "usage"), [(1_000_000, {"input_tokens": 7}), (5_000_000, {})])
def test_the_survey_passes_over_files_that_are_far_too_large(
    host: LocalHost, folder: Path, size: int, usage: dict[str, int]
) -> None:
    (folder / "usage.json").write_bytes(USAGE)
    os.truncate(folder / "usage.json", size)
    (seen,) = store.survey(host).agents
    assert seen.agent.name == "one" and seen.usage == usage


def test_a_lock_of_another_machine_is_taken_over_once_it_is_old(host: LocalHost, folder: Path) -> None:
    lock = folder / "lock"
    lock.symlink_to(OTHER)
    assert store.lock(host, folder.name, "lock", 1) == ""
    assert os.readlink(lock) == OTHER
    # `find -mmin +1` counts whole minutes, rounded up.
    old = time.time() - 130
    os.utime(lock, (old, old), follow_symlinks=False)
    owner = store.lock(host, folder.name, "lock", 1)
    assert owner and os.readlink(lock) == owner
    store.unlock(host, folder.name, "lock", owner)
    assert not lock.is_symlink()
