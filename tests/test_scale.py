"""What hundreds of agents and thousands of tasks cost, in files read, processes and ratios. No test here measures seconds."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.runs import make
from muster.cli import main as cli
from muster.flow import run as runs
from muster.report import run_page

_listeners: list[Callable[[str], None]] = []


def _heard(event: str, args: tuple[object, ...]) -> None:
    if event == "open" and isinstance(args[0], str):  # a number is a file that was opened before
        for listener in _listeners:
            listener(args[0])


sys.addaudithook(_heard)


@contextmanager
def opened(*within: Path) -> Iterator[Counter[str]]:
    """Count how often each path is opened below one of these folders; a relative name counts wherever it is."""
    found: Counter[str] = Counter()

    def listener(path: str) -> None:
        if not path.startswith("/") or any(path.startswith(f"{folder}/") for folder in within):
            found[path] += 1

    _listeners.append(listener)
    try:
        yield found
    finally:
        _listeners.remove(listener)


# Runs


def test_listing_runs_that_are_over_reads_none_of_their_tasks(tmp_path: Path) -> None:
    for number in range(3):
        make(tmp_path, f"map-{number}", 20)
    first = [run.overview() for run in runs.all_runs(str(tmp_path))]
    with opened(tmp_path) as files:
        again = [run.overview() for run in runs.all_runs(str(tmp_path))]
    assert again == first
    assert [{**run.picture(), "tasks": 0} for run in runs.all_runs(str(tmp_path))] == [
        {**one, "tasks": 0} for one in first
    ]
    assert not [path for path in files if "/tasks/" in path or path.endswith("tasks.jsonl")]
    assert sum(files.values()) <= 3 * 5


def test_a_kept_summary_is_never_older_than_the_run(tmp_path: Path) -> None:
    run = make(tmp_path, "map-1", 5)
    assert run.overview()["outcomes"] == {"ok": 3, "blocked": 1, "failed": 1}
    last = run.tasks()[-1]
    with run.holding():
        run.end(run.begin(last.id, 2, {"name": "again"}, "again"), {"outcome": "ok", "final": True, "cost_usd": 1.0})
        assert run.overview()["outcomes"] == {"ok": 4, "failed": 1}, "what is being changed is not taken from a summary"
        run.event("again", 1.0, task=last.id, attempt=2, outcome="ok")
    assert run.overview()["outcomes"] == {"ok": 4, "failed": 1}
    assert run.overview()["cost_usd"] == pytest.approx(1.25)
    Path(run.path("summary.json")).write_text('{"version": 1, "totals": [], "of": 7}')
    assert run.overview()["outcomes"] == {"ok": 4, "failed": 1}
    Path(run.path("finished.json")).unlink()
    assert run.overview()["state"] == "interrupted"


def test_a_summary_that_cannot_be_written_fails_nothing(tmp_path: Path) -> None:
    run = make(tmp_path, "map-1", 5)
    Path(run.path("summary.json")).mkdir()
    assert run.overview() == run.overview() == {key: told for key, told in run.picture().items() if key != "tasks"}


def test_showing_a_run_reads_each_file_of_its_tasks_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MUSTER_HOME", str(tmp_path))
    make(tmp_path, "old", 20, 1.0)
    make(tmp_path, "new", 20, 2.0)
    assert cli.main(["runs", "show", "new"]) == 0
    with opened(tmp_path) as files:
        assert cli.main(["runs", "show", "new"]) == 0
    capsys.readouterr()
    tasks = {path: count for path, count in files.items() if "/tasks/" in path}
    assert len(tasks) == 20 * 3, "agent.json, outcome.json and verified.json"
    assert set(tasks.values()) == {1}
    assert not [path for path in tasks if "/old/" in path], "of the run before only the summary counts"


# The page


def test_a_page_opens_little_more_than_the_files_that_it_shows(tmp_path: Path) -> None:
    run = make(tmp_path, "map-1", 30)
    there = sum(path.is_file() for path in Path(run.folder).rglob("*"))
    with opened(tmp_path) as files:
        run_page.make(Path(run.folder))
    made = sum(path.is_file() for path in Path(run.folder, "report").rglob("*"))
    # For each task: folders are entered and listed, and three files are opened once more for their size.
    assert sum(files.values()) <= there + made + 10 * 30 + 40


def test_lines_parsed_together_are_what_they_are_alone(tmp_path: Path) -> None:
    from muster.report.folder import Folder

    odd = ["[1]", "{", "1],[2", '"x"', "", "[1", "2]", "null", '{"a": "\t"}']
    (tmp_path / "some").write_text("\n".join(odd))
    (tmp_path / "good").write_text('[1]\n\n{"a": 2}\n"x"')
    assert list(Folder(tmp_path).values("some")) == [[1], None, None, "x", None, None, None, {"a": "\t"}]
    assert list(Folder(tmp_path).values("good")) == [[1], {"a": 2}, "x"]


def test_files_of_a_folder_that_is_replaced_by_a_link_are_not_read(tmp_path: Path) -> None:
    from muster.report.folder import Folder

    (tmp_path / "run" / "one").mkdir(parents=True)
    (tmp_path / "run" / "one" / "file").write_text("mine")
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "file").write_text("secret")
    (tmp_path / "run" / "two").symlink_to(tmp_path / "secret")
    folder = Folder(tmp_path / "run")
    assert [folder.text(name, "file", limit=99) for name in ("one", "two", "one")] == ["mine", None, "mine"]
    assert folder.text("one", "..", "one", "file", limit=99) is None
    assert folder.text("file", limit=99) is None
