"""Writes the files of a run for the scheduler, and waits while the disk is full."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from typing import Any, TypeVar

from ..limits.breaker import Breaker
from ..limits.governor import Governor
from ..run.directory import Attempt, Run, write
from .backend import Backend
from .jobs import Job

#: A full disk is tried again after this many seconds, and waited for at most this long.
FULL_SECONDS, FULL_PATIENCE = 1.0, 600.0
FULL = frozenset({errno.ENOSPC, errno.EDQUOT})

T = TypeVar("T")
OnEvent = Callable[[dict[str, Any]], None]


class RunLog:
    def __init__(self, run: Run, backend: Backend, on_event: OnEvent) -> None:
        self.run, self.backend, self.on_event = run, backend, on_event
        self.saved = 0.0
        """When the state was saved last."""
        self.changed = False
        """Something has happened since."""
        self.disk_alerted = False
        """A person was told that the disk is full, and there was no progress since."""

    def event(self, kind: str, job: Job | None, attempt: Attempt | None = None, **fields: Any) -> None:
        """Append an event. Without `attempt` it is about the job's last one."""
        about: dict[str, Any] = {}
        if job is not None:
            attempt = attempt or (job.last if job.attempts else None)
            about = {"task": job.task.id, "attempt": attempt.number if attempt else 0}
            about["agent"] = attempt.agent.address or None if attempt else None
        self.changed = True
        self.on_event(self.write(lambda: self.run.event(kind, self.backend.now(), **about, **fields)))

    def save(self, now: float, governor: Governor, breaker: Breaker) -> None:
        """Write down what governor and breaker have learned."""
        self.saved, self.changed = now, False
        state = {"governor": governor.to_json(now), "breaker": breaker.to_json()}
        self.write(lambda: write(self.run.path("state.json"), json.dumps(state).encode(), sync=False))

    def write(self, work: Callable[[], T]) -> T:
        """Do something that writes to the disk. While the disk is full, try again: what fills it comes and goes."""
        full_since = 0.0
        while True:
            try:
                return work()
            except OSError as error:
                now = self.backend.now()
                full_since = full_since or now
                if error.errno not in FULL or now - full_since > FULL_PATIENCE or self.backend.interrupts() >= 2:
                    raise
                if not self.disk_alerted:
                    self.disk_alerted = True
                    folder = self.run.folder
                    self.backend.alert(
                        "disk", f"the disk is full: {folder} cannot be written; the run waits until there is room"
                    )
                self.backend.sleep(FULL_SECONDS)
