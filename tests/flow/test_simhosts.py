"""Whole runs of the real fleet: scheduler, governor, survey, evidence, bills, harvest and destroy, on hosts and a clock that are made up."""

from __future__ import annotations

import errno
import itertools
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from muster.flow.mapping import fleet_backend
from muster.flow.run import escalations
from muster.flow.run.directory import Run
from muster.flow.run.records import Outcome

from .sim import GB, IN_MEMORY, TROUBLED, World
from .simhosts import BASE, Sim, SimHost


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder:
        yield Path(folder)


def held(sim: Sim, run: Run, count: int, most: int) -> dict[str, Any]:
    """What must be true of every run; returns its picture."""
    truth, picture = sim.truth, run.picture()
    assert sum(picture["outcomes"].values()) == count, "every task has an outcome"
    assert not any(truth.agents.values()), "no agent is left at work"
    assert truth.most <= most and truth.early == 0
    assert truth.fullest * truth.world.per_agent <= truth.world.memory
    begun = sorted(truth.began)
    assert all(later - sooner >= 1.0 for sooner, later in zip(begun, begun[101:], strict=False)), "rate and burst"
    kept = {name for host in sim.there.values() for name in host.names}
    for task in picture["tasks"]:
        tries = run.attempts(task["id"])
        told = tries[-1].outcome or Outcome()
        if told.outcome != "ok":
            continue
        assert sim.here.refs[f"refs/heads/{told.branch}"] == told.tip != BASE, "its branch is in the repository"
        assert tries[-1].agent.name not in kept, "and the agent is gone from its host"
        result = json.loads((Path(tries[-1].folder) / "result.json").read_text())
        assert result["outcome"] == "ok" and told.commits == 1 and not told.harvest_errors
    return picture


def test_a_thousand_tasks_with_all_troubles_at_once(folder: Path) -> None:
    world = TROUBLED._replace(hosts=20, crowd=70, quota=(11_000.0, 300.0))
    sim = Sim(folder / "x", world)
    picture = held(sim, sim.map(1000, max_agents=100, launch_rate=50.0, burst=50), 1000, 100)
    assert picture["outcomes"]["ok"] > 900 and picture["outcomes"].keys() <= {"ok", "failed", "stalled"}
    assert sim.truth.crowded / sim.truth.looks < 0.25 and len(sim.truth.limits) >= 2
    # One that ended without a result has not committed what it did.
    wip = [ref for ref in sim.here.refs if ref.endswith("-wip")]
    assert len(wip) > 10 and sim.asked["tmux"] > 10, "some were nudged"


def test_a_launch_that_was_not_heard_of_is_found_by_the_next_look(folder: Path) -> None:
    sim = Sim(folder / "x", World(hosts=4, works=(20.0, 60.0), cut=0.2))
    picture = held(sim, sim.map(100, retries=12), 100, 50)
    assert picture["outcomes"] == {"ok": 100}
    assert sum(task["attempts"] for task in picture["tasks"]) > 105


class Killed(BaseException):
    """What ends a process, and is caught by nobody."""


def test_an_agent_of_a_killed_process_that_was_not_told_its_task_is_made_anew(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was started, and its first message was still to be typed."""
    sim = Sim(folder / "x", World(hosts=2, works=(20.0, 60.0)), prompt="typed")
    typed, texts = SimHost._tmux, []

    def killed(host: SimHost, verb: str, key: str, *keys: str, input: bytes) -> bytes:
        if verb == "paste":
            texts.append(input.decode())
        if len(texts) == 3:
            raise Killed
        return typed(host, verb, key, *keys, input=input)

    with monkeypatch.context() as patch:
        patch.setattr(SimHost, "_tmux", killed)
        with pytest.raises(Killed):
            sim.map(10)
    assert len(sim.truth.began) == 3
    picture = held(sim, sim.map(10), 10, 50)
    assert picture["outcomes"] == {"ok": 10} and [task["attempts"] for task in picture["tasks"]] == [1] * 10
    told = [text for host in sim.there.values() for text in host.typed.values()]
    assert len(told) == 10 and all("Look at t" in text for text in told)
    assert len(sim.truth.began) == 11, "two that had their task went on with it"


def test_a_budget_is_hard(folder: Path) -> None:
    """Over it by no more than what those at work spend between two looks and while they are being stopped."""
    sim = Sim(folder / "x", World(hosts=4, works=(100.0, 200.0), dollars=(0.5, 1.5), memory=64 * GB))
    picture = held(sim, sim.map(300, dollars=30.0), 300, 50)
    assert picture["outcomes"]["over-budget"] > 200
    assert picture["cost_usd"] <= 30.0 + sim.truth.most * 1.5 * (5 / 100)


def test_round_trips_grow_with_hosts_and_not_with_agents(folder: Path) -> None:
    looks = {}
    for hosts, agents in ((2, 10), (2, 60), (8, 60)):
        sim = Sim(folder / f"{hosts}-{agents}", World(hosts=hosts, works=(300.0, 300.0), memory=64 * GB))
        held(sim, sim.map(agents, max_agents=100, start=100, launch_rate=0), agents, 100)
        looks[hosts, agents] = sim.truth.looks / (sim.truth.t - sim.truth.began_at)
    assert looks[2, 60] < 1.1 * looks[2, 10]
    assert 3 < looks[8, 60] / looks[2, 60] < 5


@pytest.mark.parametrize(("hosts", "agents"), [(1, 300), (200, 400)])
def test_usage_is_never_older_than_five_seconds(folder: Path, hosts: int, agents: int) -> None:
    """However many agents a host has, and however many hosts there are."""
    sim = Sim(folder / "x", World(hosts=hosts, works=(100.0, 150.0), memory=10_000 * GB))
    held(sim, sim.map(agents, max_agents=1000, start=1000, max_load=0, launch_rate=50, burst=50), agents, 1000)
    for host in sim.there.values():
        at_work = [t for t in host.looked if t < sim.truth.began_at + 100]
        assert max(later - sooner for sooner, later in itertools.pairwise(at_work)) < 5.0


def test_an_agent_that_is_not_there_is_asked_for_on_its_own_host_only(folder: Path) -> None:
    """Each of them was asked for on all hosts, for a hint that nobody reads."""
    world = World(hosts=20, works=(10.0, 20.0), ends=(("launch", 1.0),))
    sim = Sim(folder / "x", world)
    picture = held(sim, sim.map(20, retries=0), 20, 50)
    assert picture["outcomes"].keys() <= {"failed", "cancelled"}
    assert sim.asked["survey"] - sim.truth.looks <= 3 * len(sim.truth.began)


def test_what_could_not_be_written_down_is_harvested_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Agents of which the disk took only a part are not cleared away."""
    write, refused = fleet_backend.write, []

    def full(path: str, content: bytes) -> None:
        if path.endswith("/result.json") and len(refused) < 7:
            refused.append(path)
            raise OSError(errno.ENOSPC, "No space left on device")
        write(path, content)

    monkeypatch.setattr(fleet_backend, "write", full)
    sim = Sim(folder / "x", World(works=(20.0, 30.0)))
    run = sim.map(5)
    picture = held(sim, run, 5, 50)
    assert picture["outcomes"] == {"ok": 5} and sum(task["attempts"] for task in picture["tasks"]) == 5
    told = [event["reason"] for event in run.events() if event["kind"] == "unharvested"]
    assert len(told) == len(refused) == 7 and all(words.startswith("No space left on device: ") for words in told)


def test_a_full_disk_where_escalations_are_kept_ends_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record, asked = escalations.record, []

    def full(home: str, run: Run, task: str = "") -> None:
        asked.append(task)
        if task:
            raise OSError(errno.ENOSPC, "No space left on device")
        record(home, run)

    monkeypatch.setattr(escalations, "record", full)
    sim = Sim(folder / "x", World(works=(20.0, 30.0)))
    assert held(sim, sim.map(3), 3, 50)["outcomes"] == {"ok": 3}
    assert len(asked) == 5 and asked[0] == asked[-1] == "", "at the beginning, for each, and for all of them at the end"


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_ten_thousand_tasks_on_two_hundred_hosts(folder: Path) -> None:
    limits: dict[str, Any] = {"max_agents": 1000, "launch_rate": 50.0, "burst": 50}
    sim = Sim(folder / "all", TROUBLED)
    picture = held(sim, sim.map(10_000, **limits), 10_000, 1000)
    assert picture["outcomes"]["ok"] > 9_000 and len(sim.truth.limits) >= 3
    assert sim.truth.crowded / sim.truth.looks < 0.25
    half = picture["cost_usd"] / 2
    less = Sim(folder / "half", TROUBLED)
    picture = held(less, less.map(10_000, dollars=half, **limits), 10_000, 1000)
    assert picture["outcomes"]["over-budget"] > 3_000
    assert picture["cost_usd"] - half <= less.truth.most * 1.0 * (5 / 20)
