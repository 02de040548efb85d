"""The directory of a run: whole or not there, one writer, readable at any time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from muster.errors import NotFound, Refused, UsageError
from muster.flow.run import directory as runs
from muster.flow.run.records import AttemptAgent, Control, Finished, Outcome, RunInfo
from muster.flow.run.tasks import items, tasks

TASKS = tasks(items("one\ntwo"), "Look at {item}", [])


def made(home: Path, name: str = "map-1", **info: Any) -> runs.Run:
    return runs.make(str(home), name, RunInfo(digest="d", type="command")._replace(**info), TASKS)


def test_a_run_is_made_whole_and_only_once(tmp_path: Path) -> None:
    run = made(tmp_path)
    assert run.tasks() == TASKS and run.info.digest == "d"
    with pytest.raises(Refused, match="there is a run map-1 already"):
        made(tmp_path)
    assert os.listdir(tmp_path / "runs") == ["map-1"]
    assert runs.free_name(str(tmp_path), "map") == "map-2"


@pytest.mark.parametrize("name", ["", "../x", "a/b", "-x", "a b", "x" * 41, ".x"])
def test_a_name_that_is_none_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError):
        made(tmp_path, name)
    with pytest.raises(NotFound):
        runs.find(str(tmp_path), name)


def test_attempts_are_what_the_files_say(tmp_path: Path) -> None:
    run = made(tmp_path)
    one = run.begin(TASKS[0].id, 1, AttemptAgent(name="a", place=""), "Look at one")
    assert [attempt.outcome for attempt in run.attempts(TASKS[0].id)] == [None]
    run.end(one, Outcome(outcome="failed", final=False, cost_usd=1.0))
    run.end(
        run.begin(TASKS[0].id, 2, AttemptAgent(name="a-2", place=""), "again"),
        Outcome(outcome="ok", final=True, cost_usd=0.5),
    )
    (Path(run.folder) / "tasks" / TASKS[0].id / "attempt-3").mkdir()  # killed before it wrote who gets it
    (Path(run.folder) / "tasks" / TASKS[0].id / "attempt-x").mkdir()
    tries = run.attempts(TASKS[0].id)
    assert [(attempt.number, attempt.final) for attempt in tries] == [(1, False), (2, True)]
    picture = run.picture()
    assert picture["outcomes"] == {"ok": 1} and picture["total"] == 2
    assert [(row["state"], row["outcome"], row["attempts"], row["cost_usd"]) for row in picture["tasks"]] == [
        ("done", "ok", 2, 1.5),
        ("todo", None, 0, None),
    ]


def test_a_damaged_file_is_as_none(tmp_path: Path) -> None:
    run = made(tmp_path)
    run.end(run.begin(TASKS[0].id, 1, AttemptAgent(name="a"), "x"), Outcome(outcome="ok", final=True))
    (Path(run.folder) / "tasks" / TASKS[0].id / "attempt-1" / "outcome.json").write_text("{half")
    (Path(run.folder) / "control.json").write_text("[]")
    assert run.attempts(TASKS[0].id)[0].outcome is None and run.control() == Control()


def test_events_are_lines_that_a_reader_sees_whole(tmp_path: Path) -> None:
    run = made(tmp_path)
    run.event("launch", 1.0, task="x", text='a "b"\n\x1b')
    run.event("outcome", 2.0, outcome="ok")
    with open(run.path("events.jsonl"), "a") as file:
        file.write('{"half')
    assert [event["kind"] for event in run.events()] == ["launch", "outcome"]


def test_one_process_at_a_time_runs_it(tmp_path: Path) -> None:
    run = made(tmp_path)
    assert not run.held() and run.state() == "interrupted"
    code = f"from muster.flow.run.directory import Run\nr = Run({run.folder!r})\nwith r.holding(): print('has it', flush=True); input()"
    other = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert other.stdout and other.stdout.readline() == "has it\n"
    assert run.held() and run.state() == "running"
    with pytest.raises(Refused, match=f"is being run by process {other.pid}"), run.holding():
        pass
    with pytest.raises(Refused, match="under way"):
        run.remove()
    other.kill()
    other.wait()
    with run.holding():
        assert run.held()
    run.remove()
    assert not os.path.exists(run.folder)


def test_readers_do_not_keep_anybody_from_running_it(tmp_path: Path) -> None:
    run = made(tmp_path)
    with run.holding():
        pass
    code = f"from muster.flow.run.directory import Run\nr = Run({run.folder!r})\nprint(1, flush=True)\nwhile True: r.held()"
    others = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) for _ in range(2)]
    try:
        assert all(other.stdout and other.stdout.readline() for other in others)
        for _ in range(300):
            with run.holding():
                pass
    finally:
        for other in others:
            other.kill()
            other.communicate()


def test_wishes_of_several_people_at_once_are_all_kept(tmp_path: Path) -> None:
    run = made(tmp_path)
    codes = [
        f"from muster.flow.run.directory import Run\nr = Run({run.folder!r})\nfor n in range(200): r.ask(**{{f'{who}{{n}}': n}})"
        for who in "ab"
    ]
    for process in [subprocess.Popen([sys.executable, "-c", code]) for code in codes]:
        assert process.wait() == 0
    assert len(json.loads(Path(run.path("control.json")).read_text())) == 400


def test_an_event_for_which_there_is_no_room_spoils_no_other(tmp_path: Path) -> None:
    run = made(tmp_path)
    run.event("launch", 1.0)
    size = os.path.getsize(run.path("events.jsonl"))
    code = f"""
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, ({size + 10}, {size + 10}))
from muster.flow.run.directory import Run
try: Run({run.folder!r}).event("outcome", 2.0)
except OSError as error: print(error.errno)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout == "28\n"
    run.event("finished", 3.0)
    assert [event["kind"] for event in run.events()] == ["launch", "finished"]


def test_an_unfinished_run_of_the_same_input_is_found(tmp_path: Path) -> None:
    assert runs.unfinished(str(tmp_path), "d") is None
    run = made(tmp_path)
    other = made(tmp_path, "other", digest="e")
    found = runs.unfinished(str(tmp_path), "d")
    assert found and found.name == run.name
    run.save(Finished(1.0))
    assert runs.unfinished(str(tmp_path), "d") is None and runs.unfinished(str(tmp_path), "e")
    assert {one.name for one in runs.all_runs(str(tmp_path))} == {"map-1", other.name}
    assert run.finished() == Finished(1.0)


def test_a_run_is_compared_with_the_one_before_that_did_the_same(tmp_path: Path) -> None:
    first = made(tmp_path, "first", repo="/r", created=1.0)
    made(tmp_path, "other", repo="/r", created=2.0, prompt="something else")
    made(tmp_path, "gathered", repo="/r", created=3.0, sources=(("x", "", ""),))
    last = made(tmp_path, "last", repo="/r", created=4.0)
    made(tmp_path, "later", repo="/r", created=5.0)
    found = runs.before(str(tmp_path), last)
    assert found and found.name == "first" and runs.before(str(tmp_path), first) is None


def test_a_run_of_which_nothing_was_begun_is_planned(tmp_path: Path) -> None:
    assert runs.make(str(tmp_path), "dry", RunInfo(digest="d"), []).state() == "planned"
    assert made(tmp_path).state() == "interrupted"
