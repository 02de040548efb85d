"""Pauses launching when many attempts fail alike, on one host or on all, and lets one task (the canary) find out whether that is over."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from .failures import CAUSES, LAUNCHING, STAGES, Failure, cause, diagnose, fingerprint, moment, telling

#: ROW * `n` failures in a row, with at least ROW_SHARE of failures among them, are too many, whatever went well before.
ROW, ROW_SHARE = 2, 0.8
ORDER = {stage: place for place, stage in enumerate(STAGES)}


class Alert(NamedTuple):
    """A change of a pause, for people."""

    state: str
    cause: str
    """Where to look: `code`, `environment` or `limits`."""
    text: str
    """The diagnosis, and what follows from it."""


class Pause:
    """A pause of launching. Its state is `open` (nothing is launched until a canary may be), `canary` (the task `flying` is finding out)
    or `stopped` (too many canaries failed). A canary must pass `stage`.
    """

    def __init__(self, since: float, stage: str, key: str, cause: str, diagnosis: str) -> None:
        self.state = "open"
        self.since, self.stage, self.key, self.cause, self.diagnosis = since, stage, key, cause, diagnosis
        self.flying = ""
        self.canaries = 0

    def canary(self, now: float, task: str, seconds: float) -> bool:
        """Return whether this task may be the canary: one task may, after the pause, and the next only when that one has ended."""
        if self.state != "open" or not task:
            return False
        self.since = min(self.since, now)  # a clock that was set back must not extend the pause
        if now - self.since < seconds * 2 ** min(self.canaries, 6):
            return False
        self.state, self.flying = "canary", task
        return True

    def landed(self, now: float, failed: bool, most: int, host: str | None) -> Alert:
        """The canary has ended without showing that the trouble is over."""
        self.state, self.since, self.flying = "open", now, ""
        what, then = "the canary found nothing out", "launching still pauses"
        if failed:
            self.canaries += 1
            many = "the canary" if self.canaries == 1 else f"{self.canaries} canaries"
            what = f"{many} failed too"
            if self.canaries >= most:
                self.state, then = "stopped", "nothing more is launched"
        return Alert(self.state, self.cause, f"{self.diagnosis}; {what}, {then}{_on([host])}")

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))

    @classmethod
    def from_json(cls, data: object) -> Pause | None:
        if not isinstance(data, dict) or data.get("state") not in ("open", "canary", "stopped"):
            return None
        words = {name: text for name, text in data.items() if isinstance(text, str) and len(text) < 4096}
        stage = words["stage"] if words.get("stage") in STAGES else STAGES[0]
        blame = words["cause"] if words.get("cause") in CAUSES else "environment"
        diagnosis = words.get("diagnosis", "many attempts failed")
        pause = cls(moment(data.get("since")), stage, words.get("key", ""), blame, diagnosis)
        pause.state = words["state"]
        pause.flying = words.get("flying", "") if pause.state == "canary" else ""
        if pause.state == "canary" and not pause.flying:
            pause.state = "open"  # without the task, its end would never be known
        canaries = data.get("canaries")
        pause.canaries = min(max(canaries, 0), 100) if isinstance(canaries, int) else 0
        return pause


class Breaker:
    """The breaker of one run. While other hosts do well, only the hosts at fault are paused, each with its own canaries."""

    def __init__(
        self, n: int = 5, within: float = 600.0, pause: float = 60.0, max_canaries: int = 3, share: float = 0.5
    ) -> None:
        self.n, self.within, self.seconds, self.max_canaries = max(1, n), within, pause, max(1, max_canaries)
        #: The share of attempts that must have failed: a few failures among many successes are no pattern.
        self.share = share
        self.pauses: dict[str | None, Pause] = {}
        """By host; the pause of None concerns all hosts."""
        self._failures: deque[tuple[Failure, str]] = deque(maxlen=max(200, 4 * self.n))
        self._successes: deque[tuple[float, str, str]] = deque(maxlen=max(1000, 8 * self.n))

    def allows(self, host: str = "") -> bool:
        """Return whether agents may be launched on a host, apart from canaries."""
        return bool(self.allowed((host,)))

    def allowed(self, hosts: Sequence[str]) -> Sequence[str]:
        """Return the hosts on which agents may be launched."""
        if not self.pauses:
            return hosts
        return [] if None in self.pauses else [host for host in hosts if host not in self.pauses]

    def hopeless(self, hosts: Sequence[str]) -> str:
        """Say why nothing will ever be launched on any of the hosts; empty if something may."""
        if not self.pauses:
            return ""
        found = [self.pauses.get(None) or self.pauses.get(host) for host in hosts]
        return found[0].diagnosis if found and found[0] and all(one and one.state == "stopped" for one in found) else ""

    def canary(self, now: float, task: str, hosts: Sequence[str]) -> Sequence[str]:
        """Return the hosts on which this task may be launched as a canary; usually none."""
        for host in [None] if None in self.pauses else list(self.pauses):
            if host is None:
                where: Sequence[str] = [one for one in hosts if one not in self.pauses] or hosts
            else:
                where = [host] if host in hosts else []
            if where and self.pauses[host].canary(now, task, self.seconds):
                return where
        return []

    def failed(self, failure: Failure, now: float, task: str = "") -> Alert | None:
        """Take in a failed attempt, and return the change that follows, if any. A failure that does not count never begins a pause."""
        if not failure.counts:
            # A canary that met a limit has found nothing out.
            return self.withdrawn(now, task)
        # Only the telling line is used from here on, so only that is saved.
        kept = failure._replace(text=telling(failure), t=now)
        key = fingerprint(kept).key
        closed = None
        host, pause = self._flown(task)
        if pause and _after(kept.stage, pause.stage) and key != pause.key:
            closed = self._close(host, pause, "the canary came further")
        self._failures.append((kept, key))
        if closed:
            return closed
        if pause:
            return pause.landed(now, True, self.max_canaries, host)
        return self._tripped(now) if self.allows(failure.host) else None

    def succeeded(self, host: str, now: float, task: str = "", stage: str = STAGES[-1]) -> Alert | None:
        """An attempt has passed `stage`. A canary ends its pause when it has passed the stage at fault."""
        where, pause = self._flown(task)
        if pause:
            return None if _after(pause.stage, stage) else self._close(where, pause, "the canary went well")
        self._successes.append((now, host, stage))
        return None

    def withdrawn(self, now: float, task: str) -> Alert | None:
        """A canary has found nothing out: it was not launched, was cancelled, or met a limit. Other tasks are ignored."""
        host, pause = self._flown(task)
        return pause.landed(now, False, self.max_canaries, host) if pause else None

    def lift(self) -> None:
        """Resume launching at a person's request."""
        self.pauses.clear()
        self._forget(None)

    def _flown(self, task: str) -> tuple[str | None, Pause | None]:
        return next(((host, one) for host, one in self.pauses.items() if task and one.flying == task), (None, None))

    def _close(self, host: str | None, pause: Pause, why: str) -> Alert:
        del self.pauses[host]
        self._forget(host)
        return Alert(
            "closed", pause.cause, f"{why}, launching goes on{_on([host])} (it paused because {pause.diagnosis})"
        )

    def _forget(self, host: str | None) -> None:
        """Start counting anew."""
        if host is None:
            self._failures.clear()
            self._successes.clear()
            return
        kept = [one for one in self._failures if one[0].host != host]
        self._failures.clear()
        self._failures.extend(kept)

    def _tripped(self, now: float) -> Alert | None:
        """Begin a pause if the newest failure makes too many of one kind: of the same fingerprint, or of the same stage and host."""
        newest, key = self._failures[-1]
        # A paused host tells nothing new.
        recent = [
            one for one in self._failures if 0 <= now - one[0].t <= self.within and one[0].host not in self.pauses
        ]
        well = [one for one in self._successes if 0 <= now - one[0] <= self.within]
        alike = [one for one, its in recent if its == key]
        near = [one for one, _ in recent if (one.stage, one.host) == (newest.stage, newest.host)]
        for found, found_key in ((alike, key), (near, "")):
            row = found[-ROW * self.n :]
            alert = self._judge(found, self.share, well, found_key, now) if len(found) >= self.n else None
            if not alert and len(row) == ROW * self.n:
                alert = self._judge(row, ROW_SHARE, [one for one in well if one[0] >= row[0].t], found_key, now)
            if alert:
                return alert
        return None

    def _judge(
        self, failures: list[Failure], share: float, well: list[tuple[float, str, str]], key: str, now: float
    ) -> Alert | None:
        """Begin a pause of the hosts at fault if these failures are too many compared with what went well at the same time."""
        hosts = dict.fromkeys(one.host for one in failures)
        stage = max((one.stage for one in failures), key=STAGES.index)
        came = [host for _, host, passed in well if not _after(stage, passed)]
        # What fails on several hosts may fail on any, so all hosts count: else every chosen host would look bad.
        came_there = sum(host in hosts or len(hosts) > 1 for host in came)
        if len(failures) < share * (len(failures) + came_there):
            return None
        good = {host for _, host, _ in well} - hosts.keys()
        theirs = bool(good) if len(hosts) == 1 else len(good) >= len(hosts) and not hosts.keys() & set(came)
        blame = cause(failures, bool(good))
        diagnosis = diagnose(failures, len(failures) + came_there)
        if not key and not theirs and stage not in LAUNCHING:
            return None  # each failed differently, and nothing shows that this host is at fault
        at_fault: list[str | None] = [*hosts] if theirs else [None]
        for host in at_fault:
            self.pauses[host] = Pause(now, stage, key, blame, diagnosis)
        return Alert("open", blame, f"{diagnosis}; look at the {blame}, launching pauses{_on(at_fault)}")

    def to_json(self) -> dict[str, Any]:
        return {
            "pauses": [[host, pause.to_json()] for host, pause in self.pauses.items()],
            "failures": [one.to_json() for one, _ in self._failures],
            "successes": [list(one) for one in self._successes],
        }

    def restore(self, data: object) -> None:
        """Restore from `to_json`. Invalid parts are ignored."""
        self.lift()
        if not isinstance(data, dict):
            return
        for one in _list(data.get("failures")):
            try:
                failure = Failure.from_json(one)
            except ValueError:
                continue
            self._failures.append((failure, fingerprint(failure).key))
        for one in _list(data.get("successes")):
            if isinstance(one, list) and len(one) == 3 and isinstance(one[1], str) and one[2] in STAGES:
                self._successes.append((moment(one[0]), one[1], one[2]))
        for one in _list(data.get("pauses")):
            host, told = one if isinstance(one, list) and len(one) == 2 else ("", None)
            if isinstance(host, str | None) and (pause := Pause.from_json(told)):
                self.pauses[host] = pause


def _on(hosts: Sequence[str | None]) -> str:
    """Return " on HOSTS" for a message; empty if all hosts are meant."""
    names = [host or "this machine" for host in hosts if host is not None]
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f" on {', '.join(names[:5])}{more}" if names else ""


def _after(stage: str, other: str) -> bool:
    return ORDER.get(stage, -1) > ORDER.get(other, -1)


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
