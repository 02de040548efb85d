"""Run work on many items in parallel. All threads of muster are started here."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable
from typing import Generic, NamedTuple, TypeVar

from .errors import MusterError

A = TypeVar("A")
B = TypeVar("B")


class Outcome(NamedTuple, Generic[A, B]):
    """The result for one item: a value or an error."""

    item: A
    value: B | None = None
    error: MusterError | None = None

    def get(self) -> B:
        """Return the value, or raise the error."""
        if self.error is not None:
            raise self.error
        return self.value  # type: ignore[return-value]  # None is a value when B allows it


def each(work: Callable[[A], B], items: Iterable[A], limit: int = 16) -> list[Outcome[A, B]]:
    """Call `work` on every item, at most `limit` at once, and return the outcomes in the order of the items.

    A `MusterError` becomes part of the outcome. Any other exception is a bug and is raised after all threads have ended.
    """
    todo = list(items)
    results: list[Outcome[A, B] | None] = [None] * len(todo)
    bugs: list[BaseException] = []
    cursor = iter(range(len(todo)))
    lock = threading.Lock()

    def worker() -> None:
        while True:
            with lock:
                index = next(cursor, None)
            if index is None:
                return
            try:
                results[index] = Outcome(todo[index], work(todo[index]))
            except MusterError as error:
                results[index] = Outcome(todo[index], None, error)
            except BaseException as error:
                bugs.append(error)
                return

    if len(todo) == 1:
        worker()
    else:
        threads = [threading.Thread(target=worker, daemon=True) for _ in range(min(limit, len(todo)))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if bugs:
        raise bugs[0]
    return [result for result in results if result is not None]


#: Threads of a crew that are reserved for urgent work.
URGENT_THREADS = 32


class Crew(Generic[A]):
    """Background work under keys; `done` returns what has finished.

    Nothing waits for the threads at exit: the next process finds out what became of unfinished work.
    """

    def __init__(self, limit: int = 16) -> None:
        self.busy: set[A] = set()
        self._ended: queue.SimpleQueue[Outcome[A, object]] = queue.SimpleQueue()
        self._pools = (_Pool(limit, self._ended), _Pool(URGENT_THREADS, self._ended))

    def start(self, key: A, work: Callable[[], object], urgent: bool = False) -> None:
        """Start `work` in the background. Urgent work has threads of its own, so it never waits for slow work."""
        assert key not in self.busy, f"{key} is under way"
        self.busy.add(key)
        self._pools[urgent].start(key, work)

    def done(self, timeout: float) -> list[Outcome[A, object]]:
        """Return what has finished, after waiting up to `timeout` seconds for the first. Other errors than `MusterError` are raised."""
        found: list[Outcome[A, object]] = []
        try:
            found.append(self._ended.get(timeout=max(timeout, 0.0)))
            while True:
                found.append(self._ended.get_nowait())
        except queue.Empty:
            pass
        for outcome in found:
            self.busy.discard(outcome.item)
            if isinstance(outcome.value, _Bug):
                raise outcome.value.error
        return found


class _Pool(Generic[A]):
    """Up to `limit` threads; one is started when work arrives and none is idle."""

    def __init__(self, limit: int, ended: queue.SimpleQueue[Outcome[A, object]]) -> None:
        self._ended = ended
        self._todo: queue.SimpleQueue[tuple[A, Callable[[], object]]] = queue.SimpleQueue()
        self._limit, self._threads, self._idle = limit, 0, threading.Semaphore(0)

    def start(self, key: A, work: Callable[[], object]) -> None:
        self._todo.put((key, work))
        if not self._idle.acquire(blocking=False) and self._threads < self._limit:
            self._threads += 1
            threading.Thread(target=self._work, daemon=True).start()

    def _work(self) -> None:
        while True:
            key, work = self._todo.get()
            try:
                self._ended.put(Outcome(key, work()))
            except MusterError as error:
                self._ended.put(Outcome(key, None, error))
            except BaseException as error:
                self._ended.put(Outcome(key, _Bug(error)))
            self._idle.release()


class _Bug(NamedTuple):
    error: BaseException
