"""How a host is found by its place, and what is kept apart because its place differs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster import Address, Fleet, Spec, hosts
from muster.errors import UsageError
from muster.host import Found, place_of
from muster.providers.local import LocalHost

from .conftest import World, end_agents

DONE = frozenset({"done"})


class Box(LocalHost):
    """Another host, as far as muster can see: its state folder lies elsewhere on this machine."""

    local = False
    name = "box"

    def __init__(self, home: Path, provider: str) -> None:
        super().__init__(str(home))
        self.provider = provider


@pytest.fixture
def fleet(world: World) -> Iterator[Fleet]:
    """A fleet with two hosts called box, of different providers."""
    fleet = Fleet(world.env, str(world.repo))
    for provider in ("docker", "slurm"):
        fleet._hosts[f"box.{provider}"] = Box(world.folder / provider, provider)
    yield fleet
    for provider in ("docker", "slurm"):
        end_agents(world.folder / provider)


@pytest.fixture
def twins(fleet: Fleet) -> list[Found]:
    return [
        fleet.create(Spec(Address("one", f"box.{kind}"), "command", ("true",), mode="copy"))
        for kind in ("docker", "slurm")
    ]


def test_agents_of_two_hosts_of_the_same_name_are_waited_for_together(fleet: Fleet, twins: list[Found]) -> None:
    seen = fleet.wait(twins, DONE, timeout=60)
    assert [str(status.address) for status in seen] == ["one@box.docker", "one@box.slurm"]


def test_agents_of_two_hosts_of_the_same_name_are_selected_stopped_and_destroyed_apart(
    fleet: Fleet, twins: list[Found]
) -> None:
    names = [str(one.status.address) for one in twins]
    assert [str(one.status.address) for one in fleet.select(names)[0]] == names
    assert {str(one.status.address) for one in fleet.select(["one@box.*"])[0]} == set(names)
    assert [outcome.get() is not None for outcome in fleet.stop_all(twins)] == [True, True]
    fleet.destroy(fleet.get("one@box.docker"))
    assert [str(one.status.address) for one in fleet.select([], everything=True)[0]] == ["one@box.slurm"]
    assert [gone["address"] for gone in fleet.trash()] == ["one@box.docker"]


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("box", ("box", "ssh")),
        ("box.ssh", ("box", "ssh")),
        ("box.docker", ("box", "docker")),
        ("box.example.com", ("box.example.com", "ssh")),
        ("mac.local", ("mac.local", "ssh")),
        ("me@box", ("me@box", "ssh")),
        (".docker", ("", "docker")),
        (".frob", ("", "frob")),
        ("tank", ("tank", "slurm")),
        ("old.frob", ("old", "frob")),
        ("named.docker", ("named.docker", "ssh")),
    ],
)
def test_the_last_part_of_a_place_is_its_provider_if_there_is_one(
    tmp_path: Path, place: str, expected: tuple[str, str]
) -> None:
    (tmp_path / "hosts").mkdir()
    for used, provider in (("old.frob", "frob"), ("named.docker", "ssh")):
        note = {"place": used, "provider": provider, "seen": 1.0}
        (tmp_path / "hosts" / used.replace(".", "%2e")).write_text(json.dumps(note))
    assert hosts.split(place, {"tank": {"provider": "slurm"}}, str(tmp_path)) == expected


def test_a_host_is_the_same_under_every_name_for_it(world: World) -> None:
    fleet = Fleet(world.env, str(world.repo))
    assert fleet.host(Address("", "box.ssh")) is fleet.host(Address("", "box"))
    assert place_of(fleet.host(Address("", "box.ssh"))) == "box"
    assert fleet.canonical("foo@box.ssh") == "foo@box"
    assert fleet.host(Address("foo")).local


def test_only_create_makes_a_new_host(world: World) -> None:
    with pytest.raises(UsageError, match="makes a new host"):
        Fleet(world.env, str(world.repo)).host(Address.parse("foo@.ssh"))
