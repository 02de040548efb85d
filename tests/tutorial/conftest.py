"""Sessions made by hand, so that a test can look at what is left when one is over."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from muster.tutorial import E2eSession, artifacts
from muster.tutorial.isolation import Place

Maker = Callable[..., "Session"]


class Session:
    """One session with its place and its artifacts."""

    def __init__(self, folder: Path, nodeid: str = "tests/test_a.py::test_it", **more: Any) -> None:
        self.place = Place(os.environ)
        self.record = artifacts.Record(artifacts.of_test(folder, nodeid), nodeid, "tests/test_a.py", 1)
        self.e2e = E2eSession(self.record, self.place, **more)
        self.over = False

    def finish(self) -> list[str]:
        self.over = True
        return self.e2e.finish()

    def text(self) -> str:
        return (self.record.folder / "transcript.txt").read_text(encoding="utf-8")

    def events(self, *kinds: str) -> list[dict[str, Any]]:
        lines = (self.record.folder / "transcript.jsonl").read_text(encoding="utf-8").splitlines()
        return [event for event in map(json.loads, lines) if not kinds or event["kind"] in kinds]

    def cast(self, name: str) -> tuple[dict[str, Any], list[list[Any]]]:
        path = self.record.folder / "recordings" / f"{name}.cast"
        header, *events = map(json.loads, path.read_text(encoding="utf-8").rpartition("\n")[0].splitlines())
        return header, events

    def end(self) -> None:
        if not self.over:
            self.finish()
        self.place.end()
        self.e2e.leave([])
        self.place.remove()


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Maker]:
    made: list[Session] = []

    def one(*argv: Any, **more: Any) -> Session:
        made.append(Session(tmp_path / "artifacts", *argv, **more))
        return made[-1]

    yield one
    for session in made:
        session.end()


@pytest.fixture
def session(make: Maker) -> Session:
    return make()


@pytest.fixture
def e2e(session: Session) -> E2eSession:
    return session.e2e
