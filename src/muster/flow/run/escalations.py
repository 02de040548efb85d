"""The ledger of escalations: what agents of all runs say that a person should look at.

It is one file in the muster home. Equal texts (numbers, paths and times aside) are one entry with all tasks that said it.
"""

from __future__ import annotations

import hashlib
import os
import time
from typing import Any, NamedTuple

from ...errors import NotFound
from ..limits import failures
from . import directory
from .directory import Run

TEXT_MOST = 4096


class Escalation(NamedTuple):
    text: str
    by: tuple[str, ...]
    """Each `RUN/TASK` whose agent said it."""
    first: float
    last: float
    """When it was said first and last, in seconds since the epoch."""
    closed: float | None = None
    """When a person closed it; None while it is open."""

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Escalation:
        return cls(str(data["text"]), tuple(data["by"]), float(data["first"]), float(data["last"]), data.get("closed"))


def record(home: str, run: Run, task: str = "") -> None:
    """Add what the agents of a run (or of one of its tasks) escalated to the ledger. Adding the same again changes nothing."""
    said = [
        (text, f"{run.name}/{id}", outcome.t)
        for id in ([task] if task else [known.id for known in run.tasks()])
        for attempt in run.attempts(id)
        if (outcome := attempt.outcome) and outcome.claimed
        for text in outcome.claimed.escalate
    ]
    if not said:
        return
    with directory.locked(_path(home)):
        ledger = load(home)
        for text, task_name, t in said:
            key = hashlib.sha256(failures.mask(text).encode("utf-8", "replace")).hexdigest()[:8]
            known = ledger.get(key, Escalation(text[:TEXT_MOST], (), t, t))
            reopened = known.closed is not None and t > known.closed
            ledger[key] = known._replace(
                by=known.by if task_name in known.by else (*known.by, task_name),
                last=max(known.last, t),
                closed=None if reopened else known.closed,
            )
        _save(home, ledger)


def load(home: str) -> dict[str, Escalation]:
    """Return all escalations by their ids, closed ones too."""
    entries = (directory.read(_path(home)) or {}).get("escalations")
    return {key: Escalation.from_json(entry) for key, entry in entries.items()} if isinstance(entries, dict) else {}


def close(home: str, key: str) -> str:
    """Hide an escalation until an agent says it again, and return its text. Raises `NotFound` if there is none of this id."""
    with directory.locked(_path(home)):
        ledger = load(home)
        if key not in ledger:
            raise NotFound(f"there is no escalation {key!r}", "muster runs escalations shows them")
        ledger[key] = ledger[key]._replace(closed=time.time())
        _save(home, ledger)
    return ledger[key].text


def _save(home: str, ledger: dict[str, Escalation]) -> None:
    directory.write(_path(home), {"escalations": {key: entry._asdict() for key, entry in ledger.items()}})


def _path(home: str) -> str:
    return os.path.join(home, "escalations.json")
