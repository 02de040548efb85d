"""How often a host is asked: every command that muster runs on another machine costs the time of a round trip."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from muster import fleet as fleets
from muster.errors import MusterError, NotFound
from muster.fleet import Fleet
from muster.host import Found
from muster.model import Address, Spec

from .agents.test_approvals import CLIENTS, configured
from .conftest import World, eventually
from .support.counting import CountingHost

IDLE = ("sleep", "1000")


class Lab:
    """A fleet whose other hosts count what they are asked."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world, self.hosts = world, dict[str, CountingHost]()
        monkeypatch.setattr(fleets.hosts, "find", lambda place, settings, home: self.host(place))
        # Tests use threads of their own: nothing here may depend on the folder that the process is in.
        for name, value in world.env.items():
            monkeypatch.setenv(name, value)
        self.fleet = Fleet(world.env, str(world.repo))

    def host(self, name: str = "box") -> CountingHost:
        if name not in self.hosts:
            self.hosts[name] = CountingHost(str(self.world.folder / name), name)
        return self.hosts[name]

    def make(self, address: str, *command: str, type: str = "command", **more: Any) -> Found:
        return self.fleet.create(
            Spec(Address.parse(address), type, command or (IDLE if type == "command" else ()), **more)
        )

    def configure(self, text: str) -> None:
        path = self.world.home / ".config/muster/config.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def trips(self, call: Callable[[], object]) -> list[str]:
        """Return what all other hosts were asked for one call."""
        for host in self.hosts.values():
            host.trips()
        call()
        return [asked for host in self.hosts.values() for asked in host.trips()]


@pytest.fixture
def lab(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    lab = Lab(world, monkeypatch)
    yield lab
    for host in lab.hosts.values():
        host.before = lambda: None
        for one in lab.fleet.survey([host.name]).statuses:
            lab.fleet.stop(Found(host, one), 0)


# Names


def test_a_name_is_looked_up_on_its_own_host_only(lab: Lab) -> None:
    lab.make("one@box")
    lab.make("two@other")
    assert lab.trips(lambda: lab.fleet.get("one@box")) == ["survey one"]
    lab.host("other").before = lambda: pytest.fail("the other host was asked")
    assert lab.trips(lambda: lab.fleet.select(["one@box", "one@box"])) == ["survey"]


def test_a_miss_asks_one_host_once_and_suggests_what_is_known(lab: Lab) -> None:
    lab.make("one@box")
    lab.make("deploy@other")
    lab.make("here")
    lab.host("other").before = lambda: pytest.fail("the other host was asked")

    def miss(name: str) -> MusterError:
        with pytest.raises(NotFound) as raised:
            lab.fleet.get(name)
        return raised.value

    assert lab.trips(lambda: miss("on@box")) == ["survey one"]
    assert miss("on@box").hint == "did you mean one@box?"
    assert miss("deploy@box").hint == miss("deploy").hint == miss("deplo").hint == "did you mean deploy@other?"
    assert miss("nothing-like-it").hint == "agents: here, one@box, deploy@other"


def test_an_agent_that_was_destroyed_is_not_suggested_on_another_host(lab: Lab) -> None:
    lab.fleet.destroy(lab.make("deploy@box"))
    with pytest.raises(NotFound) as raised:
        lab.fleet.get("deploy")
    assert raised.value.hint == "there are no agents; muster create makes one"
    lab.fleet.restore("deploy@box")
    with pytest.raises(NotFound) as raised:
        lab.fleet.get("deploy")
    assert raised.value.hint == "did you mean deploy@box?"


def test_an_agent_is_found_by_its_record_where_its_name_was_lost(lab: Lab) -> None:
    one = lab.make("one@box")
    os.unlink(f"{lab.host().home}/names/one")
    assert lab.fleet.get("one@box").agent.id == one.agent.id


# Waiting


def test_a_host_that_hangs_does_not_delay_the_others(lab: Lab) -> None:
    """The agent on `box` ends while `other` hangs, and `wait` tells of it before `other` answers again."""
    quick = lab.make("quick@box", "sh", "-c", f"until [ -e {lab.world.folder}/go ]; do sleep 0.05; done")
    slow = lab.make("slow@other")
    hangs, over = threading.Event(), threading.Event()

    def hang() -> None:
        hangs.set()
        (lab.world.folder / "go").touch()
        assert over.wait(60), "wait did not return while this host hung"

    lab.host("other").before = hang
    try:
        found = lab.fleet.wait([slow, quick], frozenset({"done"}), any_one=True, timeout=50)
        assert hangs.is_set() and [status.state for status in found][1] == "done"
    finally:
        over.set()


# Talking


def replay(lab: Lab) -> Found:
    playbook = lab.world.folder / "playbook.toml"
    playbook.write_text('[[step]]\nask = "more?"\n[[step]]\nsay = "thanks"\n')
    one = lab.make("one@box", str(playbook), type="replay", message="hi")
    lab.fleet.wait([one], frozenset({"waiting"}))
    return one


def test_a_message_to_a_command_takes_five_round_trips(lab: Lab) -> None:
    lab.make("one@box", "sh", "-c", f"read -r line; echo $line >{lab.world.folder}/read; sleep 1000")
    trips = lab.trips(lambda: lab.fleet.message(lab.fleet.get("one@box"), "hello"))
    assert len(trips) <= 5, trips
    eventually(lambda: (lab.world.folder / "read").exists() and (lab.world.folder / "read").read_text() == "hello\n")


@pytest.mark.parametrize("verb", ["message", "answer"])
def test_a_message_with_a_receipt_takes_five_round_trips(lab: Lab, verb: str) -> None:
    replay(lab)
    call = lab.fleet.message if verb == "message" else lab.fleet.answer
    results: list[str] = []
    trips = lab.trips(lambda: results.append(call(lab.fleet.get("one@box"), "hello")))
    assert results == ["delivered"] and len(trips) <= 5, trips


@pytest.mark.parametrize("look", CLIENTS)
def test_a_message_into_an_input_box_takes_five_round_trips(lab: Lab, look: str) -> None:
    folder = lab.world.folder / "standins"
    (folder / "calm").mkdir(parents=True)
    lab.configure(configured(look, folder))
    one = lab.make("calm@box", type="standin")
    lab.fleet.wait([one], frozenset({"ready"}))
    results: list[str] = []
    trips = lab.trips(lambda: results.append(lab.fleet.message(lab.fleet.get("calm@box"), "hello\nworld")))
    assert results == ["delivered"] and len(trips) <= 5, trips
    assert json.loads((folder / "calm" / "heard").read_text()) == "hello\nworld"


# Following


@pytest.mark.parametrize(("what", "file"), [("transcript", "session/transcript.jsonl"), ("events", "events.jsonl")])
def test_follow_reads_only_what_is_new(lab: Lab, what: str, file: str) -> None:
    one = replay(lab)
    path = Path(lab.host().home, "agents", one.agent.id, file)
    before = path.read_bytes().count(b"\n")
    with path.open("a") as log:
        log.writelines(f'{{"role": "user", "kind": "note", "text": "{"x" * 1000}", "n": {n}}}\n' for n in range(1000))
    following = lab.fleet.follow("one@box", what, before)
    assert [next(following)["n"] for _ in range(1000)] == list(range(1000))
    lab.host().trips()
    lab.host().received = 0
    for number in range(3):
        with path.open("a") as log:
            log.write(f'{{"role": "user", "kind": "note", "n": "new {number}"')
            log.flush()
            log.write("}\n")
        assert next(following)["n"] == f"new {number}"
    trips = lab.host().trips()
    assert set(trips) == {f"since {one.agent.id}"} and lab.host().received < 1000 + 100 * len(trips)


def test_follow_goes_on_where_the_log_of_events_starts_over_and_ends_with_the_agent(lab: Lab) -> None:
    one = lab.make("one@box")
    folder = Path(lab.host().home, "agents", one.agent.id)
    lab.fleet.stop(one)
    (folder / "events.jsonl").write_text('{"n": 0}\n')
    following = lab.fleet.follow("one@box", "events", 0)
    assert next(following) == {"n": 0}
    with (folder / "events.jsonl").open("a") as log:
        log.write('{"n": 1}\n')
    (folder / "events.jsonl").rename(folder / "events.1.jsonl")
    (folder / "events.jsonl").write_text('{"n": 2}\n')
    assert [next(following), next(following)] == [{"n": 1}, {"n": 2}]
    lab.fleet.destroy(one)
    assert [event.get("n") for event in following] == []


# Leaving


def test_destroy_takes_four_round_trips(lab: Lab) -> None:
    lab.make("one@box")
    trips = lab.trips(lambda: lab.fleet.destroy(lab.fleet.get("one@box")))
    assert len(trips) <= 4, trips


def test_destroy_of_many_agents_takes_no_more_round_trips(lab: Lab) -> None:
    for number in range(3):
        lab.make(f"a{number}@box")
    chosen, _ = lab.fleet.select(["a*@box"])
    trips = lab.trips(lambda: lab.fleet.destroy_all(chosen))
    assert len(chosen) == 3 and len(trips) <= 3, trips


def test_destroy_leaves_an_agent_alone_whose_record_it_cannot_write(lab: Lab) -> None:
    """Stopping goes along with the record, so it must not be done where the record was not written."""
    one, other = lab.make("one@box"), lab.make("other@box")
    folder = f"{lab.host().home}/agents/{one.agent.id}"
    lab.host().before = lambda: (
        os.path.isdir(folder) and lab.host().asked[-1].startswith("records") and _in_the_way(folder)
    )
    failed, done = lab.fleet.destroy_all([one, other])
    assert failed.error is not None and done.error is None
    os.unlink(folder)
    os.rename(f"{folder}.away", folder)
    assert lab.fleet.get("one@box").status.state in ("starting", "working")


def _in_the_way(folder: str) -> None:
    os.rename(folder, f"{folder}.away")
    os.symlink(f"{folder}.away", folder)


# Making


def test_create_with_a_message_takes_five_round_trips(lab: Lab) -> None:
    trips = lab.trips(lambda: lab.make("one@box", "sleep", "1000", message="hi"))
    assert len(trips) <= 5, trips
