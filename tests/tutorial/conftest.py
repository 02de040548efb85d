"""Fixtures that create sessions without the pytest plugin, so that a test can look at the artifacts of a finished one."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from muster.tutorial import E2eSession, artifacts
from muster.tutorial.isolation import Sandbox

Maker = Callable[..., "Session"]


class Session:
    """A session with its sandbox and its artifacts."""

    def __init__(self, folder: Path, nodeid: str = "tests/test_a.py::test_it", **options: Any) -> None:
        self.sandbox = Sandbox(os.environ)
        self.record = artifacts.Record(artifacts.folder_of_test(folder, nodeid), nodeid, "tests/test_a.py", 1)
        self.e2e = E2eSession(self.record, self.sandbox, **options)
        self.finished = False

    def finish(self) -> list[str]:
        self.finished = True
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
        if not self.finished:
            self.finish()
        self.sandbox.end()
        self.e2e.close([])
        self.sandbox.remove()


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Maker]:
    sessions: list[Session] = []

    def make_session(*args: Any, **options: Any) -> Session:
        sessions.append(Session(tmp_path / "artifacts", *args, **options))
        return sessions[-1]

    yield make_session
    for session in sessions:
        session.end()


@pytest.fixture
def session(make: Maker) -> Session:
    return make()


@pytest.fixture
def e2e(session: Session) -> E2eSession:
    return session.e2e
