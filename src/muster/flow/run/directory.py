"""The directory of a run, which holds all that is known about it. Files are written whole, or appended in one piece.

Any process may read at any time; one process at a time writes. Whatever would cost money to get again is synced to the disk before
the scheduler goes on (docs/runs.md). Nothing here knows agents or makes decisions.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO, Any, NamedTuple

from ...errors import NotFound, Refused, UsageError, close
from .records import OUTCOMES, VERSION, Ahead, AttemptAgent, Control, Finished, Outcome, Plan, RunInfo, Verified
from .tasks import Task

#: How often the lock of a run is tried, and the seconds between.
LOCK_ATTEMPTS, LOCK_SECONDS = 20, 0.02
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}\Z")
#: A larger file counts as unreadable.
READ_MAX = 1 << 28
_ATTEMPT = re.compile(r"attempt-([0-9]{1,6})")


class Attempt(NamedTuple):
    """One attempt at a task. Its outcome is None until it has ended."""

    task: str
    number: int
    folder: str
    agent: AttemptAgent
    outcome: Outcome | None

    @property
    def final(self) -> bool:
        return self.outcome is not None and self.outcome.final

    @property
    def cleared(self) -> bool:
        """Whether its agent was cleared away. An agent that has its name now is no business of the run."""
        return os.path.exists(os.path.join(self.folder, "cleared"))


class Record(NamedTuple):
    """A task with all that its files say, so that several views of a run need not read them again."""

    task: Task
    attempts: list[Attempt]
    verified: Verified | None
    """Of whichever attempt."""


class Run:
    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.name = os.path.basename(folder)
        self._info: RunInfo | None = None

    def path(self, *parts: str) -> str:
        return os.path.join(self.folder, *parts)

    # Reading

    @property
    def info(self) -> RunInfo:
        """What was asked for; its `version` is 0 if run.json cannot be read."""
        if self._info is None or not self._info.version:
            self._info = RunInfo.from_json(read(self.path("run.json")))
        return self._info

    def tasks(self) -> list[Task]:
        with open(self.path("tasks.jsonl"), encoding="utf-8") as file:
            return [Task.from_json(json.loads(line)) for line in file]

    def attempts(self, task: str) -> list[Attempt]:
        """Return the attempts at a task, oldest first."""
        try:
            names = os.listdir(self.path("tasks", task))
        except OSError:
            return []
        numbers = sorted(int(match[1]) for name in names if (match := _ATTEMPT.fullmatch(name)))
        found = []
        for number in numbers:
            folder = self.path("tasks", task, f"attempt-{number}")
            if agent := AttemptAgent.from_json(read(os.path.join(folder, "agent.json"))):
                found.append(Attempt(task, number, folder, agent, outcome_in(folder)))
        return found

    def records(self) -> list[Record]:
        """Read all tasks with their attempts and what was verified, each file once."""
        return [Record(task, self.attempts(task.id), self.verified(task.id)) for task in self.tasks()]

    def verified(self, task: str) -> Verified | None:
        """Return what was found of a task's change, of whichever attempt."""
        return Verified.from_json(read(self.path("tasks", task, "verified.json")))

    def plan(self) -> Plan | None:
        return Plan.from_json(read(self.path("plan.json")))

    def ahead(self) -> Ahead | None:
        return Ahead.from_json(read(self.path("ahead.json")))

    def finished(self) -> Finished | None:
        return Finished.from_json(read(self.path("finished.json")))

    def control(self) -> Control:
        """Return what other processes ask of the one that runs the run."""
        return Control.from_json(read(self.path("control.json")))

    def events(self) -> list[dict[str, Any]]:
        with contextlib.suppress(OSError), open(self.path("events.jsonl"), encoding="utf-8", errors="replace") as file:
            return [event for line in file if (event := _object(line))]
        return []

    def picture(self, records: Callable[[], Sequence[Record]] | None = None) -> dict[str, Any]:
        """Return the run as it is now, as JSON. Of a run that is over it is computed once and cached.

        `records` is called for the tasks, if they are needed; else they are read.
        """
        return {
            **self._head(),
            **self.kept("picture", lambda: self.picture_of((records or self.records)()), "picture.json"),
        }

    def picture_of(self, records: Sequence[Record]) -> dict[str, Any]:
        """Return the totals and a row for each of these tasks."""
        rows = []
        for task, tries, checked in records:
            last = tries[-1] if tries else None
            ended = last.outcome if last else None
            told = ended or Outcome()
            refused = checked.reason if checked and not checked.ok else ""
            rows.append(
                {
                    "id": task.id,
                    "item": task.item[:500],
                    "outcome": told.outcome if told.final else None,
                    "state": "done" if told.final else "running" if last and not ended else "todo",
                    "verified": checked.result if checked else None,
                    "reason": told.reason or refused or None,
                    "summary": told.summary or None,
                    "attempts": sum(bool(one.agent.name or one.agent.branch) for one in tries),
                    "agent": last.agent.address or None if last else None,
                    "branch": told.branch or None,
                    "commits": told.commits if ended else None,
                    "uncommitted": told.uncommitted or None,
                    "harvest_errors": list(told.harvest_errors),
                    "tokens": _sum(tries, "tokens"),
                    "cost_usd": _sum(tries, "cost_usd"),
                    "seconds": _sum(tries, "seconds"),
                }
            )
        counts = Counter(row["outcome"] for row in rows if row["outcome"])
        totals = {
            "outcomes": {name: counts[name] for name in OUTCOMES if counts[name]},
            "total": len(rows),
            "cost_usd": _total(rows, "cost_usd"),
            "tokens": _total(rows, "tokens"),
        }
        return {**totals, "tasks": rows}

    def task(self, word: str) -> Record:
        """Return one task by its id, or by its number."""
        tasks = self.tasks()
        ids = [task.id for task in tasks]
        found = [task for task in tasks if task.id == word or (word.isdigit() and task.number == int(word))]
        if not found:
            near = close(word, ids)
            hint = f"did you mean {' or '.join(near)}?" if near else f"muster runs show {self.name} lists its tasks"
            raise NotFound(f"{self.name} has no task {word!r}", hint)
        task = found[0]
        return Record(task, self.attempts(task.id), self.verified(task.id))

    def overview(self) -> dict[str, Any]:
        """Return `picture` without the tasks. Of a run that is over it is computed once and cached."""
        return {**self._head(), **self.kept("totals", self._totals)}

    def _head(self) -> dict[str, Any]:
        info = self.info
        asked = {"created": info.created, "repo": info.repo, "type": info.type}
        return {"name": self.name, "folder": self.folder, **asked, "state": self.state()}

    def _totals(self) -> dict[str, Any]:
        picture = self.picture()
        return {key: picture[key] for key in ("outcomes", "total", "cost_usd", "tokens")}

    def kept(self, name: str, compute: Callable[[], dict[str, Any]], file: str = "summary.json") -> dict[str, Any]:
        """Return what `compute` returns. Of a run that is over it is cached in a file.

        Every change of a task appends an event, so the cache is valid while the files of `_stamp` are unchanged.
        """
        stamp = self._stamp()
        if stamp is None:
            return compute()
        summary = read(self.path(file)) or {}
        if summary.get("version") != VERSION or summary.get("of") != stamp:
            summary = {"version": VERSION, "of": stamp}
        found = summary.get(name)
        if not isinstance(found, dict):
            found = compute()
            with contextlib.suppress(OSError):  # the disk is full, or the directory is read-only
                write(self.path(file), {**summary, name: found}, sync=False)
        return found

    def _stamp(self) -> list[list[int]] | None:
        """Return size and time of the files that change when the run does; None unless the run is over."""
        if not self.finished() or self.held():
            return None
        found = []
        for name in ("events.jsonl", "tasks.jsonl", "finished.json", "delivery.json", "baseline.json", "plan.json"):
            try:
                told = os.stat(self.path(name))
            except OSError:
                found.append([0, 0])
            else:
                found.append([told.st_size, told.st_mtime_ns])
        return found

    def state(self) -> str:
        if self.finished():
            return "finished"
        if not self.held():
            return "interrupted" if os.path.getsize(self.path("tasks.jsonl")) else "planned"
        return "paused" if self.control().state == "paused" else "running"

    # Writing

    def event(self, kind: str, t: float, **fields: Any) -> dict[str, Any]:
        """Append a line in one write, so that a reader sees all of it or nothing."""
        event = {"version": VERSION, "t": t, "kind": kind, **fields}
        line = json.dumps(event, ensure_ascii=True).encode() + b"\n"
        fd = os.open(self.path("events.jsonl"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            written = os.write(fd, line)
            if written < len(line):
                os.ftruncate(fd, os.fstat(fd).st_size - written)  # half a line would damage the next one
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path("events.jsonl"))
        finally:
            os.close(fd)
        return event

    def begin(self, task: str, number: int, agent: AttemptAgent, prompt: str) -> Attempt:
        """Record who gets the task, before the agent exists."""
        folder = self.path("tasks", task, f"attempt-{number}")
        os.makedirs(folder, mode=0o700, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, "cleared"))  # an earlier, half-made agent of this attempt was cleared away
        write(os.path.join(folder, "prompt.txt"), prompt.encode("utf-8", "surrogateescape"), sync=False)
        write(os.path.join(folder, "agent.json"), agent.to_json())
        sync_folders(self.path("tasks", task), self.path("tasks"))
        return Attempt(task, number, folder, agent, None)

    def add(self, tasks: Sequence[Task]) -> None:
        """Add tasks, except those whose ids the run has already."""
        known = self.tasks()
        ids = {task.id for task in known}
        lines = [task.to_json() for task in (*known, *(task for task in tasks if task.id not in ids))]
        write(self.path("tasks.jsonl"), "".join(json.dumps(line, ensure_ascii=True) + "\n" for line in lines).encode())

    def end(self, attempt: Attempt, outcome: Outcome) -> Attempt:
        """Record how an attempt ended."""
        write(os.path.join(attempt.folder, "outcome.json"), outcome.to_json())
        return attempt._replace(outcome=outcome)

    def reopen(self, attempt: Attempt) -> Attempt:
        """Remove the outcome of an attempt whose agent turned out to be still at work."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(attempt.folder, "outcome.json"))
        return attempt._replace(outcome=None)

    def clear(self, attempt: Attempt) -> None:
        """Record that the attempt's agent was cleared away."""
        write(os.path.join(attempt.folder, "cleared"), b"", sync=False)

    def save(self, record: Plan | Ahead | Finished) -> None:
        name = {Plan: "plan.json", Ahead: "ahead.json", Finished: "finished.json"}[type(record)]
        write(self.path(name), record.to_json())

    def save_verified(self, task: str, verified: Verified) -> None:
        write(self.path("tasks", task, "verified.json"), verified.to_json())

    def ask(self, **changes: Any) -> None:
        """Change some fields of `Control`."""
        with open(self.path("control.lock"), "a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            write(self.path("control.json"), {**(read(self.path("control.json")) or {}), **changes})

    # One at a time

    @contextlib.contextmanager
    def holding(self) -> Iterator[None]:
        """Hold the right to write. It ends with the process at the latest. `Refused` if another process holds it."""
        with open(self.path("lock"), "a+", encoding="utf-8") as file:
            if not _locked(file):
                file.seek(0)
                who = file.read(20).strip() or "another process"
                raise Refused(
                    f"run {self.name} is being run by process {who}",
                    f"muster runs show {self.name}, or: muster map --new",
                )
            file.truncate(0)
            file.write(f"{os.getpid()}\n")
            file.flush()
            yield

    def held(self) -> bool:
        """Return whether a process holds the right to write."""
        try:
            with open(self.path("lock"), encoding="utf-8") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except OSError:
            return True
        return False

    def remove(self) -> None:
        if self.held():
            raise Refused(f"run {self.name} is under way", f"muster runs stop {self.name}")
        shutil.rmtree(self.folder)


@contextlib.contextmanager
def locked(path: str) -> Iterator[None]:
    """Hold the right to change a file that several runs share. It ends with the block, or with the process."""
    with open(f"{path}.lock", "a", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _locked(file: IO[str]) -> bool:
    """Try to take the lock. `held` takes it for a moment, so one refusal does not mean that the run is held."""
    for _ in range(LOCK_ATTEMPTS):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError:
            time.sleep(LOCK_SECONDS)
    return False


def make(home: str, name: str, info: RunInfo, tasks: Sequence[Task]) -> Run:
    """Make a new run, whole or not at all; its name and version are filled in, and when it was created if that is 0.

    Raises `Refused` if there is a run of that name.
    """
    if not NAME.match(name):
        raise UsageError(f"{name!r} is not a name for a run", "use letters, digits, - and _, at most 40")
    runs = os.path.join(home, "runs")
    os.makedirs(runs, mode=0o700, exist_ok=True)
    folder, fresh = os.path.join(runs, name), os.path.join(runs, f".{name}.{os.getpid()}")
    info = info._replace(version=VERSION, name=name, created=info.created or time.time())
    os.mkdir(fresh, 0o700)
    try:
        os.mkdir(os.path.join(fresh, "tasks"))
        write(os.path.join(fresh, "run.json"), info.to_json())
        lines = "".join(json.dumps(task.to_json(), ensure_ascii=True) + "\n" for task in tasks)
        write(os.path.join(fresh, "tasks.jsonl"), lines.encode())
        try:
            os.rename(fresh, folder)
        except OSError:
            raise Refused(
                f"there is a run {name} already", "--run ANOTHER-NAME, or: muster runs show " + name
            ) from None
        sync_folders(runs, home)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    return Run(folder)


def all_runs(home: str) -> list[Run]:
    """Return the runs that can be read, newest first."""
    try:
        names = sorted(os.listdir(os.path.join(home, "runs")))
    except OSError:
        return []
    found = [Run(os.path.join(home, "runs", name)) for name in names if not name.startswith(".")]
    found = [run for run in found if run.info.version]  # read once: a run remembers it
    return sorted(found, key=lambda run: -run.info.created)


def find(home: str, name: str) -> Run:
    run = Run(os.path.join(home, "runs", name))
    if not NAME.match(name) or not run.info.version:
        known = [run.name for run in all_runs(home)]
        if near := close(name, known):
            raise NotFound(f"there is no run {name!r}", f"did you mean {' or '.join(near)}?")
        raise NotFound(f"there is no run {name!r}", f"runs: {', '.join(known[:10])}" if known else "there is none yet")
    return run


def before(home: str, run: Run) -> Run | None:
    """Return the last run before this one with the same request in the same repository, to compare it with."""

    def request(info: RunInfo) -> list[object]:
        return [info.kind, info.repo, info.type, info.prompt, info.args, info.paths, bool(info.sources)]

    mine = request(run.info)
    older = (one for one in all_runs(home) if one.name != run.name and one.info.created < run.info.created)
    return next((one for one in older if request(one.info) == mine), None)


def of(home: str, digest: str) -> list[Run]:
    """Return the runs of the same input, newest first."""
    return [run for run in all_runs(home) if run.info.digest == digest]


def unfinished(home: str, digest: str) -> Run | None:
    """Return the newest run of the same input that is not finished."""
    return next((run for run in of(home, digest) if not run.finished()), None)


def free_name(home: str, stem: str, taken: Iterable[str] = ()) -> str:
    """Return the first of STEM-1, STEM-2 … that is neither a run's name nor in `taken`."""
    taken = {*taken, *(run.name for run in all_runs(home))}
    return next(name for number in range(1, 10**6) if (name := f"{stem}-{number}") not in taken)


def write(path: str, content: bytes | dict[str, Any], sync: bool = True) -> None:
    """Write a file atomically. With `sync` it is on the disk when this returns."""
    data = content if isinstance(content, bytes) else json.dumps(content, ensure_ascii=True).encode() + b"\n"
    temporary = f"{path}.{os.getpid()}.tmp"
    with open(temporary, "wb", buffering=0) as file:
        while data:
            data = data[file.write(data) :]
        if sync:
            os.fsync(file.fileno())
    os.replace(temporary, path)
    if sync:
        sync_folders(os.path.dirname(path))


def sync_folders(*folders: str) -> None:
    """Wait until the entries of these folders are on the disk."""
    for folder in folders:
        fd = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def outcome_in(folder: str) -> Outcome | None:
    """Return the outcome of the attempt in a folder; None if it has none yet, or the file is damaged."""
    return Outcome.from_json(read(os.path.join(folder, "outcome.json")))


def read(path: str) -> dict[str, Any] | None:
    """Return the JSON object in a file, or None if it has none or is larger than READ_MAX bytes."""
    try:
        with open(path, "rb", buffering=0) as file:
            if os.fstat(file.fileno()).st_size > READ_MAX:
                return None
            return _object(file.readall().decode("utf-8", "replace"))
    except OSError:
        return None


def _object(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _sum(tries: Sequence[Attempt], key: str) -> float | None:
    known = [value for one in tries if one.outcome and (value := getattr(one.outcome, key)) is not None]
    return sum(known) if known else None


def _total(rows: Sequence[dict[str, Any]], key: str) -> float | None:
    known = [row[key] for row in rows if row[key] is not None]
    return sum(known) if known else None
