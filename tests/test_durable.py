"""What survives a power failure, seen in the order in which files are written, brought to the disk and given their names."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from muster.flow.limits.budget import Spend
from muster.flow.limits.settings import SYNC_SECONDS, Ledger
from muster.flow.run import directory as runs
from muster.flow.run import tasks
from muster.flow.run.records import AttemptAgent, Outcome, RunInfo


class Disk:
    """Knows which names are on the disk: those of a folder that was synced after they came into it, with a content that was synced before."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.contents: set[int] = set()
        self.calls = 0
        self.names: dict[str, tuple[str, bool]] = {}
        real = {name: getattr(os, name) for name in ("fsync", "replace", "rename", "mkdir")}

        def fsync(fd: int) -> None:
            where = os.readlink(f"/proc/self/fd/{fd}")
            self.calls += 1
            self.contents.add(os.fstat(fd).st_ino)
            if os.path.isdir(where):
                for name, (folder, _) in self.names.items():
                    if folder == where:
                        self.names[name] = folder, os.path.isdir(name) or os.stat(name).st_ino in self.contents

        def moved(name: str) -> Any:
            def move(old: str, new: str) -> None:
                real[name](old, new)
                self.names = {
                    (new + path[len(old) :] if path.startswith(f"{old}/") else path): (
                        new if folder == old else folder,
                        kept,
                    )
                    for path, (folder, kept) in self.names.items()
                    if path != old
                }
                self.names[new] = os.path.dirname(new), False

            return move

        def mkdir(path: str, *mode: Any, **more: Any) -> None:
            real["mkdir"](path, *mode, **more)
            path = os.fspath(path)
            self.names[path] = os.path.dirname(path), False

        monkeypatch.setattr(os, "fsync", fsync)
        monkeypatch.setattr(os, "mkdir", mkdir)
        for name in ("replace", "rename"):
            monkeypatch.setattr(os, name, moved(name))

    def has(self, path: str) -> bool:
        """Whether the file and every folder above it that was made meanwhile is there after a power failure."""
        known = [name for name in self.names if path == name or path.startswith(f"{name}/")]
        return path in known and all(self.names[name][1] for name in known)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch, no_waiting_for_the_disk: None) -> Disk:
    return Disk(monkeypatch)


@pytest.fixture
def run(tmp_path: Path, disk: Disk) -> runs.Run:
    found = tasks.tasks(tasks.items("a\nb\n"), "Do {item}.", ())
    return runs.make(str(tmp_path), "map-1", RunInfo(created=1.0), found)


def test_what_was_asked_for_is_on_the_disk_when_a_run_begins(run: runs.Run, disk: Disk) -> None:
    assert disk.has(run.path("run.json")) and disk.has(run.path("tasks.jsonl"))


def test_who_has_a_task_and_what_came_of_it_is_on_the_disk_before_the_run_goes_on(run: runs.Run, disk: Disk) -> None:
    one = run.tasks()[0]
    attempt = run.begin(one.id, 1, AttemptAgent("map-1-1"), one.prompt)
    assert disk.has(os.path.join(attempt.folder, "agent.json"))
    run.end(attempt, Outcome(outcome="ok", final=True, cost_usd=1.0))
    assert disk.has(os.path.join(attempt.folder, "outcome.json"))
    for name in ("verified.json", "../../plan.json", "../../finished.json"):
        path = os.path.normpath(run.path("tasks", one.id, name))
        runs.write(path, {"version": 1})
        assert disk.has(path), name


def test_what_can_be_made_again_does_not_wait_for_the_disk(run: runs.Run, disk: Disk) -> None:
    one = run.tasks()[0]
    attempt = run.begin(one.id, 1, AttemptAgent("map-1-1"), one.prompt)
    run.end(attempt, Outcome(outcome="ok", final=True))
    before = disk.calls
    run.clear(attempt)
    run.event("outcome", 1.0, task=one.id)
    runs.write(run.path("finished.json"), {"t": 2.0}, sync=False)
    run.overview()
    assert os.path.exists(run.path("summary.json")) and disk.calls == before


def test_the_ledger_is_on_the_disk_but_not_for_each_look(run: runs.Run, disk: Disk, tmp_path: Path) -> None:
    ledger = Ledger(str(tmp_path), run)
    synced = []
    for second in range(0, int(SYNC_SECONDS) + 1, 3):
        before = disk.calls
        ledger.today(1e9 + second, Spend(second / 10, second, second, 1))
        synced.append(disk.calls > before)
    assert synced[0] and sum(synced) == 2
    assert disk.has(str(next((tmp_path / "spent").glob("*/*"))))
