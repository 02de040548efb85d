"""A run is a directory: all that is known of it is a file there, written whole or appended in one piece.

Whoever reads may do so at any time; one process at a time writes. What cannot be had again without paying for it once more is on
the disk before the scheduler goes on (docs/runs.md). Nothing here knows agents or decides anything.
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
from .tasks import Task

VERSION = 1
#: Every task ends in one of these.
OUTCOMES = ("ok", "blocked", "failed", "invalid", "timeout", "stalled", "over-budget", "cancelled", "lost")
GOOD = frozenset({"ok", "blocked"})
HOLD_TRIES, HOLD_SECONDS = 20, 0.02
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}\Z")
#: A file of a run that is larger than this counts as unreadable.
READ_MAX = 1 << 28
_TRY = re.compile(r"attempt-([0-9]{1,6})")


class Attempt(NamedTuple):
    """One try at a task: its folder, the agent that has it, and how it ended (None while it has not)."""

    task: str
    number: int
    folder: str
    agent: dict[str, Any]
    outcome: dict[str, Any] | None

    @property
    def final(self) -> bool:
        return bool(self.outcome and self.outcome.get("final"))

    @property
    def cleared(self) -> bool:
        """Its agent was ended and cleared away: what has become of it since is not the run's affair."""
        return os.path.exists(os.path.join(self.folder, "cleared"))


class Record(NamedTuple):
    """A task with everything that its files say: read once, for whoever needs several views of a run."""

    task: Task
    attempts: list[Attempt]
    verified: dict[str, Any]
    """The whole of verified.json, of whichever attempt; empty without one."""


class Run:
    def __init__(self, folder: str, about: dict[str, Any] | None = None) -> None:
        """`about` is what run.json holds, if the caller has read it."""
        self.folder = folder
        self.name = os.path.basename(folder)
        self._about = about

    def path(self, *parts: str) -> str:
        return os.path.join(self.folder, *parts)

    # Reading

    def about(self) -> dict[str, Any]:
        """What was asked for; written once, when the run is made."""
        if not self._about:
            self._about = read(self.path("run.json")) or {}
        return self._about

    def tasks(self) -> list[Task]:
        with open(self.path("tasks.jsonl"), encoding="utf-8") as file:
            return [Task.from_json(json.loads(line)) for line in file]

    def attempts(self, task: str) -> list[Attempt]:
        """All tries at it, oldest first."""
        try:
            names = os.listdir(self.path("tasks", task))
        except OSError:
            return []
        numbers = sorted(int(match[1]) for name in names if (match := _TRY.fullmatch(name)))
        found = []
        for number in numbers:
            folder = self.path("tasks", task, f"attempt-{number}")
            agent = read(os.path.join(folder, "agent.json"))
            if agent:
                found.append(Attempt(task, number, folder, agent, read(os.path.join(folder, "outcome.json"))))
        return found

    def records(self) -> list[Record]:
        """Read all tasks with their attempts and what was verified, each file once."""
        return [
            Record(task, self.attempts(task.id), read(self.path("tasks", task.id, "verified.json")) or {})
            for task in self.tasks()
        ]

    def finished(self) -> dict[str, Any] | None:
        return read(self.path("finished.json"))

    def control(self) -> dict[str, Any]:
        """What others ask of the process that runs it."""
        return read(self.path("control.json")) or {}

    def events(self) -> list[dict[str, Any]]:
        with contextlib.suppress(OSError), open(self.path("events.jsonl"), encoding="utf-8", errors="replace") as file:
            return [event for line in file if (event := _object(line))]
        return []

    def picture(self, records: Callable[[], Sequence[Record]] | None = None) -> dict[str, Any]:
        """Return the run as it is now, for people and programs. `records` is called instead of reading the tasks, if they are needed:
        the picture of a run that is over is computed once and kept.
        """
        return {
            **self._head(),
            **self.kept("picture", lambda: self.picture_of((records or self.records)()), "picture.json"),
        }

    def picture_of(self, records: Sequence[Record]) -> dict[str, Any]:
        """Return totals and rows of these tasks."""
        rows = []
        for task, tries, checked in records:
            last = tries[-1] if tries else None
            told = (last.outcome or {}) if last else {}
            words = checked.get("words") if checked.get("ok") is False else None
            rows.append(
                {
                    "id": task.id,
                    "item": task.item[:500],
                    "outcome": told.get("outcome") if last and last.final else None,
                    "state": "done" if last and last.final else "running" if last and not told else "todo",
                    "verified": checked.get("result"),
                    "reason": told.get("reason") or words or None,
                    "summary": told.get("summary") or None,
                    "attempts": sum(bool(one.agent.get("name") or one.agent.get("branch")) for one in tries),
                    "agent": last.agent.get("address") if last else None,
                    "branch": told.get("branch"),
                    "commits": told.get("commits"),
                    "uncommitted": told.get("uncommitted"),
                    "harvest_errors": _texts(told.get("harvest_errors")),
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
        return Record(task, self.attempts(task.id), read(self.path("tasks", task.id, "verified.json")) or {})

    def overview(self) -> dict[str, Any]:
        """Return `picture` without its tasks. The totals of a run that is over are computed once and kept."""
        return {**self._head(), **self.kept("totals", self._totals)}

    def _head(self) -> dict[str, Any]:
        about = self.about()
        told = {key: about.get(key) for key in ("created", "repo", "type")}
        return {"name": self.name, "folder": self.folder, **told, "state": self.state()}

    def _totals(self) -> dict[str, Any]:
        picture = self.picture()
        return {key: picture[key] for key in ("outcomes", "total", "cost_usd", "tokens")}

    def kept(self, name: str, compute: Callable[[], dict[str, Any]], file: str = "summary.json") -> dict[str, Any]:
        """Return what `compute` finds in the files of the tasks; of a run that is over it is kept in a file.

        Whoever changes a task of a run appends an event, so a summary holds as long as the files that it names stay the same.
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
            with contextlib.suppress(OSError):  # a full disk, or a directory that may only be read
                write(self.path(file), {**summary, name: found}, sync=False)
        return found

    def _stamp(self) -> list[list[int]] | None:
        """Return size and time of the files that change with the run; None while it is not over."""
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
        return "paused" if self.control().get("state") == "paused" else "running"

    # Writing

    def event(self, kind: str, t: float, **fields: Any) -> dict[str, Any]:
        """One line, in one write: a reader sees all of it or nothing."""
        event = {"version": VERSION, "t": t, "kind": kind, **fields}
        line = json.dumps(event, ensure_ascii=True).encode() + b"\n"
        fd = os.open(self.path("events.jsonl"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            written = os.write(fd, line)
            if written < len(line):
                os.ftruncate(fd, os.fstat(fd).st_size - written)  # half a line would spoil the next
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path("events.jsonl"))
        finally:
            os.close(fd)
        return event

    def begin(self, task: str, number: int, agent: dict[str, Any], prompt: str) -> Attempt:
        """Write down who gets the task, before there is anybody."""
        folder = self.path("tasks", task, f"attempt-{number}")
        os.makedirs(folder, mode=0o700, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, "cleared"))  # of an agent that was only half made, in the same attempt
        write(os.path.join(folder, "prompt.txt"), prompt.encode("utf-8", "surrogateescape"), sync=False)
        write(os.path.join(folder, "agent.json"), agent)
        sync_folders(self.path("tasks", task), self.path("tasks"))
        return Attempt(task, number, folder, agent, None)

    def add(self, tasks: Sequence[Task]) -> None:
        """More tasks; those that it has already, by their ids, are left as they are."""
        known = self.tasks()
        ids = {task.id for task in known}
        lines = [task.to_json() for task in (*known, *(task for task in tasks if task.id not in ids))]
        write(self.path("tasks.jsonl"), "".join(json.dumps(line, ensure_ascii=True) + "\n" for line in lines).encode())

    def end(self, attempt: Attempt, outcome: dict[str, Any]) -> Attempt:
        write(os.path.join(attempt.folder, "outcome.json"), {"version": VERSION, **outcome})
        return attempt._replace(outcome=outcome)

    def reopen(self, attempt: Attempt) -> Attempt:
        """It has no outcome yet after all."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(attempt.folder, "outcome.json"))
        return attempt._replace(outcome=None)

    def clear(self, attempt: Attempt) -> None:
        write(os.path.join(attempt.folder, "cleared"), b"", sync=False)

    def ask(self, **wishes: Any) -> None:
        with open(self.path("control.lock"), "a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            write(self.path("control.json"), {**self.control(), **wishes})

    # One at a time

    @contextlib.contextmanager
    def holding(self) -> Iterator[None]:
        """The right to write; `Refused` when another process has it. It ends with the process, however that ends."""
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


def _locked(file: IO[str]) -> bool:
    """Whether the lock could be had. Who only looks whether it is held has it for a moment: one refusal says nothing."""
    for _ in range(HOLD_TRIES):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError:
            time.sleep(HOLD_SECONDS)
    return False


def make(home: str, name: str, about: dict[str, Any], tasks: Sequence[Task]) -> Run:
    """A new run; it is there whole or not at all. `Refused` when there is one of that name."""
    if not NAME.match(name):
        raise UsageError(f"{name!r} is not a name for a run", "use letters, digits, - and _, at most 40")
    runs = os.path.join(home, "runs")
    os.makedirs(runs, mode=0o700, exist_ok=True)
    folder, fresh = os.path.join(runs, name), os.path.join(runs, f".{name}.{os.getpid()}")
    os.mkdir(fresh, 0o700)
    try:
        os.mkdir(os.path.join(fresh, "tasks"))
        write(os.path.join(fresh, "run.json"), {"version": VERSION, "name": name, "created": time.time(), **about})
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
    """Newest first."""
    try:
        names = sorted(os.listdir(os.path.join(home, "runs")))
    except OSError:
        return []
    found = [Run(os.path.join(home, "runs", name)) for name in names if not name.startswith(".")]
    found = [run for run in found if run.about().get("version")]  # read once: a run remembers it
    return sorted(found, key=lambda run: -_number(run.about().get("created")))


def find(home: str, name: str) -> Run:
    run = Run(os.path.join(home, "runs", name))
    if not NAME.match(name) or not run.about():
        known = [run.name for run in all_runs(home)]
        if near := close(name, known):
            raise NotFound(f"there is no run {name!r}", f"did you mean {' or '.join(near)}?")
        raise NotFound(f"there is no run {name!r}", f"runs: {', '.join(known[:10])}" if known else "there is none yet")
    return run


def before(home: str, run: Run) -> Run | None:
    """The run before it that did the same in the same repository: what it can be compared with."""

    def work(one: Run) -> list[Any]:
        about = one.about()
        same = [about.get(word) for word in ("kind", "repo", "type", "prompt", "args", "paths")]
        return [*same, bool(about.get("gathered")), _number(about.get("created")) < _number(run.about().get("created"))]

    mine = [*work(run)[:-1], True]
    return next((one for one in all_runs(home) if one.name != run.name and work(one) == mine), None)


def of(home: str, digest: str) -> list[Run]:
    """The runs of the same input, the newest first."""
    return [run for run in all_runs(home) if run.about().get("digest") == digest]


def unfinished(home: str, digest: str) -> Run | None:
    """The newest of them that has not come to its end."""
    return next((run for run in of(home, digest) if not run.finished()), None)


def free_name(home: str, stem: str, taken: Iterable[str] = ()) -> str:
    """`map-1`, `map-2` …, that no run has and that is not among the taken ones."""
    taken = {*taken, *(run.name for run in all_runs(home))}
    return next(name for number in range(1, 10**6) if (name := f"{stem}-{number}") not in taken)


def write(path: str, content: bytes | dict[str, Any], sync: bool = True) -> None:
    """Write the whole file or none, under another name first. With `sync` it is on the disk when this returns."""
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
    """Wait until the names in these folders are on the disk."""
    for folder in folders:
        fd = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


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


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _sum(tries: Sequence[Attempt], key: str) -> float | None:
    known = [value for one in tries if isinstance(value := (one.outcome or {}).get(key), int | float)]
    return sum(known) if known else None


def _texts(value: object) -> list[str]:
    return [str(one) for one in value] if isinstance(value, list) else []


def _total(rows: Sequence[dict[str, Any]], key: str) -> float | None:
    known = [row[key] for row in rows if row[key] is not None]
    return sum(known) if known else None
