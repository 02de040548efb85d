"""Do one thing to many items at once: the only threads in muster."""

from __future__ import annotations

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
