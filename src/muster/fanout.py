"""Do one thing to many items at once: the only threads in muster."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable
from typing import Generic, NamedTuple, TypeVar

from .errors import MusterError

A = TypeVar("A")
B = TypeVar("B")


class Outcome(NamedTuple, Generic[A, B]):
    """What became of one item: a value, or the error that stands in its place."""

    item: A
    value: B | None = None
    error: MusterError | None = None

    def get(self) -> B:
        """The value; raises the error."""
        if self.error is not None:
            raise self.error
        return self.value  # type: ignore[return-value]  # None is a value when B allows it


def each(work: Callable[[A], B], items: Iterable[A], limit: int = 16) -> list[Outcome[A, B]]:
    """`work` on every item, at most `limit` at once; results in the order of the items.

    A `MusterError` becomes a value; anything else is a bug and is raised after the rest ended.
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


#: How many of a crew do what must not wait.
APART = 32


class Crew(Generic[A]):
    """Work that goes on beside the caller's own, under keys; `done` hands over what has ended.

    Nothing waits for a thread: what is still under way when the process ends is left to be found out by the next one.
    """

    def __init__(self, limit: int = 16) -> None:
        self.busy: set[A] = set()
        self._ended: queue.SimpleQueue[Outcome[A, object]] = queue.SimpleQueue()
        self._gangs = (_Gang(limit, self._ended), _Gang(APART, self._ended))

    def start(self, key: A, work: Callable[[], object], apart: bool = False) -> None:
        """`apart`: it does not wait for what takes long; that has threads of its own."""
        assert key not in self.busy, f"{key} is under way"
        self.busy.add(key)
        self._gangs[apart].start(key, work)

    def done(self, timeout: float) -> list[Outcome[A, object]]:
        """What has ended; waits for the first of it, at most so long. An error that is no `MusterError` is a bug, and is raised."""
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


class _Gang(Generic[A]):
    """Up to `limit` threads, each made when there is none to spare."""

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
