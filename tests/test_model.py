"""Addresses, names, records, times and sizes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.errors import UsageError
from muster.model import Address, Agent, parse_bytes, parse_labels, parse_seconds

NAMES = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,62}", fullmatch=True)
HOSTS = st.from_regex(r"[a-z0-9][a-z0-9.@_-]{0,20}", fullmatch=True)


@given(NAMES, st.one_of(st.just(""), HOSTS))
def test_an_address_reads_back_as_it_was_written(name: str, host: str) -> None:
    text = f"{name}@{host}" if host else name
    assert str(Address.parse(text)) == text


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("foo", ("foo", "", "")),
        ("foo@box", ("foo", "box", "")),
        ("foo@box.docker", ("foo", "box.docker", "")),
        ("foo@.modal", ("foo", ".modal", "modal")),
        ("foo@box.example.com", ("foo", "box.example.com", "")),
        ("foo@127.0.0.1", ("foo", "127.0.0.1", "")),
        ("foo@me@box", ("foo", "me@box", "")),
        ("@box", ("", "box", "")),
    ],
)
def test_the_parts_of_an_address(text: str, parts: tuple[str, str, str]) -> None:
    address = Address.parse(text)
    assert (address.name, address.place, address.maker) == parts


@pytest.mark.parametrize(
    "text", ["-rf", "../x", "a b", "ü", "a/b", "x" * 64, "foo@", "foo@.", "foo@-oProxyCommand=x", "foo@a b", "a.b"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        Address.parse(text)


def test_a_record_reads_back_as_it_was_written() -> None:
    import json

    agent = Agent("foo-1", "foo", "command", argv=("sh", "-c", "x"), labels={"a": "b"}, created=1.5, base="0" * 40)
    assert Agent.from_json(json.loads(json.dumps(agent.to_json()))) == agent


def test_a_record_of_another_version_is_read_without_what_is_not_known() -> None:
    assert Agent.from_json({"id": "a", "name": "a", "type": "x", "version": 9, "new": [1]}).version == 9


@pytest.mark.parametrize(
    "data", [None, [], {}, {"id": "a"}, {"id": "a", "name": 3}, {"id": "a", "name": "a", "labels": 1}]
)
def test_what_is_no_record_is_an_error(data: object) -> None:
    with pytest.raises(ValueError):
        Agent.from_json(data)


def test_times_and_sizes() -> None:
    assert [parse_seconds(text) for text in ("90", "90s", "1.5m", "2h", "1d")] == [90, 90, 90, 7200, 86400]
    assert [parse_bytes(text) for text in ("5000k", "512m", "2GiB")] == [5000 << 10, 512 << 20, 2 << 30]
    for bad in ("", "x", "-1", "1w", "1"):
        if bad == "1":
            with pytest.raises(UsageError, match="nothing can run"):
                parse_bytes(bad)
            continue
        with pytest.raises(UsageError):
            parse_seconds(bad)
        with pytest.raises(UsageError):
            parse_bytes(bad or "x")


def test_labels() -> None:
    assert parse_labels(["a=b=c", "d"]) == {"a": "b=c", "d": ""}
    with pytest.raises(UsageError):
        parse_labels(["=x"])
