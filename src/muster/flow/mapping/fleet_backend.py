"""The fleet as the field of a run: agents are launched, looked at, told, harvested and cleared away by the fleet's own verbs."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterable
from typing import Any

from ... import Address, Fleet, Spec, Status
from ...errors import MusterError, NotFound, Refused, Unreachable
from ..limits import settings
from ..limits.governor import HostLoad, Spend
from ..run import artifacts, git, prompts, results
from ..run.directory import Attempt, Run, write
from ..run.records import Outcome
from ..run.tasks import Task
from .backend import Harvest, Key, Sight

DIFF_MAX = 64 << 20
#: Larger ones are not compared with what the user had not committed.
CARRIED_MAX = 4 << 20


#: So many threads do what takes long, for each host and in all; a thread mostly waits for its host.
HANDS, HANDS_LEAST, HANDS_MOST = 2, 12, 48
#: How long a harvest waits for the tally of the last turn.
TALLY_SECONDS = 5.0
TOKENS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")


class FleetField:
    """All that takes long is done on a crew beside; Ctrl-C is counted, not obeyed."""

    def __init__(self, fleet: Fleet, run: Run, wish: Spec, *, speaks: bool, keep: bool, hosts: int = 1) -> None:
        self.fleet, self.run, self.wish, self.speaks, self.keep = fleet, run, wish, speaks, keep
        self.hands = min(max(HANDS * hosts, HANDS_LEAST), HANDS_MOST)
        self.crew = fleet.crew(self.hands)
        self.interrupts = 0
        self.ledger = settings.Ledger(fleet.home, run)
        self.watch = fleet.watch(beside=True)
        self.waits: Callable[[], None] = lambda: None
        """Called each time nothing is left to do but wait, for a display."""
        self.created = run.info.created
        self._told = time.time(), time.monotonic()

    # Time and work

    def now(self) -> float:
        """The time of day. It never goes back: where the clock is set back, it goes on from where it was."""
        t, ticks = self._told
        elapsed = time.monotonic()
        self._told = max(time.time(), t + elapsed - ticks), elapsed
        return self._told[0]

    def rest(self, seconds: float) -> None:
        time.sleep(seconds)

    def begin(self, key: Key, work: Callable[[], object]) -> None:
        # Whoever looks waits for nobody: budgets are held to what was seen.
        self.crew.start(key, work, urgent=key[0] == "look")

    def done(self, timeout: float) -> list[Any]:
        self.waits()
        return list(self.crew.done(timeout))

    def today(self, total: Spend) -> settings.Today:
        return self.ledger.today(self.now(), total)

    def alert(self, cause: str, text: str) -> None:
        self.fleet.alert(self.run.name, cause, text)

    def asked(self) -> int:
        return self.interrupts

    def heed_interrupts(self) -> Callable[[], None]:
        """Count Ctrl-C from now on; returns how to undo it. Whoever asks for an end by SIGTERM asks once and does not wait long. A
        terminal that is closed asks for nothing: agents that nobody watches would cost the more."""

        def count(number: int, frame: object) -> None:
            self.interrupts += {int(signal.SIGINT): 1, int(signal.SIGTERM): 2}.get(number, 0)

        before = {number: signal.signal(number, count) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}

        def undo() -> None:
            for number, handler in before.items():
                signal.signal(number, handler)

        return undo

    # Agents

    def launch(self, task: Task, attempt: Attempt) -> None:
        agent = attempt.agent
        text = prompts.prompt("submit", task=task.prompt).strip() if self.speaks and task.prompt else task.prompt
        env = {"MUSTER_ITEM": task.item, "MUSTER_RUN": self.run.name, "MUSTER_TASK": task.id}
        place = Address.parse(f"{agent.name}@{agent.place}" if agent.place else agent.name)
        labels = {**self.wish.labels, "run": self.run.name, "task": task.id}
        spec = self.wish._replace(
            address=place,
            args=task.args,
            message=text,
            labels=labels,
            env={**self.wish.env, **env},
            branch=task.base or self.wish.branch,
        )
        try:
            self.fleet.create(spec)
        except Refused:
            with contextlib.suppress(NotFound):
                self._mine(attempt)
                return  # it was made already, for this very attempt
            raise

    def _mine(self, attempt: Attempt) -> Any:
        """The agent of an attempt, also one that was renamed. NotFound where there is none, or it is somebody else's that has its name."""
        one = self.fleet.seek(attempt.agent.address)
        if one is None and (seen := self._all(attempt.agent.place).get(attempt.agent.name)):
            one = self.fleet.seek(str(seen.address))
        if one is None:
            raise NotFound(f"{attempt.agent.address} is gone")
        if not self._ours(one.status, attempt.task):
            raise NotFound(f"{one.agent.name} is no agent of {self.run.name}")
        return one

    def _ours(self, status: Status, task: str = "") -> bool:
        """A name of a run is used again when that was removed: an agent older than the run is not its."""
        agent = status.agent
        return (
            status.bound
            and agent.labels.get("run") == self.run.name
            and agent.created >= self.created
            and task in ("", agent.labels.get("task"))
        )

    def _all(self, place: str) -> dict[str, Status]:
        """Its agents on a host, by the names that they were given by the run."""
        return {_born(status): status for status in self.fleet.glance(place).statuses if self._ours(status)}

    def look(self, place: str) -> Sight:
        glance = self.fleet.glance(place)
        mine = [status for status in glance.statuses if self._ours(status)]
        self.watch.see(mine)
        bills = self.fleet.bills(mine)
        load = glance.load
        host = HostLoad(place, load.cores, load.load, load.memory, load.disk)
        return Sight(
            {_born(status): status for status in mine},
            {_born(status): (bill.cost_usd, bill.tokens) for status, bill in zip(mine, bills, strict=True)},
            host,
        )

    def tell(self, attempt: Attempt, text: str, answer: bool) -> None:
        one = self._mine(attempt)
        (self.fleet.answer if answer else self.fleet.message)(one, text)

    def harvest(self, task: Task, attempt: Attempt) -> Harvest:
        try:
            one = self._mine(attempt)
            return Harvest(self.gather(one, attempt), one.status)
        except NotFound as error:
            return Harvest(Outcome(harvest_errors=(error.message,)))
        except OSError as error:
            raise MusterError(f"{os.strerror(error.errno or 0)}: {attempt.folder}") from error

    def gather(self, one: Any, attempt: Attempt) -> Outcome:
        """All that an agent left, whosever it is, into the attempt's folder."""
        status = one.status
        errors: list[str] = []
        spoken: list[int] = []
        outcome = Outcome()

        def part(name: str, work: Callable[[], object]) -> None:
            """One thing that it left. A host that does not answer is no answer; what else goes wrong is told, and the rest goes on."""
            nonlocal outcome
            try:
                work()
            except Unreachable:
                raise
            except (MusterError, OSError) as error:
                errors.append(f"{name}: {getattr(error, 'message', error)}")
                # What could not be brought home stays where it is.
                outcome = outcome._replace(keep_agent=outcome.keep_agent or not isinstance(error, NotFound))

        def put(name: str, content: bytes) -> None:
            write(os.path.join(attempt.folder, name), content)

        def commits() -> None:
            nonlocal outcome
            outcome = self._commits(one, os.path.join(attempt.folder, "diff.patch"), outcome)

        part("status", lambda: put("status.json", _json(_shown(status))))
        if status.result:
            put("result.json", status.result.encode("utf-8", "surrogateescape"))
            found = results.of(status)
            if isinstance(found, results.Result):
                outcome = outcome._replace(claimed=found, summary=found.summary)
            part("artifacts", lambda: self._artifacts(one, attempt, errors))
        part("events", lambda: put("events.jsonl", _lines(self.fleet.events(one))))
        if self.speaks:
            part("transcript", lambda: spoken.append(self._transcript(one, put)))
        part("recording", lambda: _stream(os.path.join(attempt.folder, "recording.cast"), self.fleet.cast(one)))
        status = self._tallied(one, sum(spoken))
        (bill,) = self.fleet.bills([status])
        outcome = outcome._replace(tokens=bill.tokens, cost_usd=bill.cost_usd)
        put("usage.json", _json(status.usage))
        if one.agent.base:
            part("diff", lambda: self._diff(one, os.path.join(attempt.folder, "diff.patch"), errors))
            part("commits", commits)
        return outcome._replace(harvest_errors=tuple(errors))

    def _transcript(self, one: Any, put: Callable[[str, bytes], None]) -> int:
        """Bring the transcript home, if its type keeps one, and return how many tokens it tells of."""
        kind = self.fleet.type(one.agent.type)
        if not (kind.transcript or kind.translate):
            return 0
        entries = self.fleet.transcript(one)
        put("transcript.jsonl", _lines(entries))
        return sum(_tokens(entry.get("usage")) for entry in entries)

    def _tallied(self, one: Any, spoken: int) -> Status:
        """Return the status once its usage covers the tokens of the transcript: a client is tallied a moment after its last turn."""
        status: Status = one.status
        deadline = time.monotonic() + TALLY_SECONDS
        while _tokens(status.usage) < spoken and time.monotonic() < deadline:
            self.rest(0.1)
            status = self.fleet.look(one)
        return status

    def _artifacts(self, one: Any, attempt: Attempt, errors: list[str]) -> None:
        from pathlib import Path

        into = Path(attempt.folder) / "artifacts"
        shutil.rmtree(into, ignore_errors=True)  # half of it, from a harvest that was cut off
        with self.fleet.artifacts(one, artifacts.BYTES_MOST) as archive:
            refused = artifacts.unpack(archive, into, artifacts.BYTES_MOST)
        with contextlib.suppress(OSError):
            into.rmdir()  # it submitted none
        errors += [f"artifacts: {words}" for words in refused[:20]]

    def _diff(self, one: Any, path: str, errors: list[str]) -> None:
        with self.fleet.patch(one) as patch, open(f"{path}.tmp", "wb") as file:
            left = DIFF_MAX
            while left and (piece := patch.read(min(left, 1 << 20))):
                file.write(piece)
                left -= len(piece)
            file.flush()
            os.fsync(file.fileno())
        os.replace(f"{path}.tmp", path)  # the outcome comes after it, and waits for the folder
        if not left:
            errors.append(f"diff: it is cut at {DIFF_MAX >> 20} MB")

    def _commits(self, one: Any, patch: str, outcome: Outcome) -> Outcome:
        """Its branch, and what it had not committed as a commit on the side; a ref of the run holds both, whatever becomes of the agent."""
        pulled = self.fleet.pull(one, force=True, empty=False)
        branch, tip, repo = (str(pulled.get(key) or "") for key in ("branch", "tip", "repo"))
        outcome = outcome._replace(branch=branch, tip=tip, commits=pulled.get("commits") or 0)
        if not tip:
            return outcome
        left = bool(pulled.get("dirty")) and not self._carried_only(one, patch)
        rest = self.fleet.pull(one, uncommitted=True, force=True, empty=False) if left else {}
        git.update_ref(self.fleet.local, repo, f"refs/muster/runs/{self.run.name}/{one.agent.name}", tip)
        return outcome._replace(uncommitted=str(rest.get("branch") or ""), repo=repo)

    def _carried_only(self, one: Any, patch: str) -> bool:
        """What is not committed is what the user had not either when the agent was made: all that it did is in its commits."""
        if not os.path.exists(patch) or os.path.getsize(patch) > CARRIED_MAX:
            return False
        with open(patch, "rb") as file:
            return bool(file.read() == self.fleet.diff(one, committed=True))

    def clear(self, attempt: Attempt) -> None:
        """One that has not done its task, or whose work could not be brought home, is only stopped: somebody may want to see to it."""
        ended = attempt.outcome
        # One without an outcome is half made, and made anew.
        keep = ended is not None and (self.keep or ended.keep_agent or (ended.final and ended.outcome != "ok"))
        try:
            one = self._mine(attempt)
        except NotFound:
            one = None
        if one is not None and keep:
            self.fleet.stop(one, 2.0)
        elif one is not None:
            self.fleet.destroy(one)


def _tokens(usage: object) -> int:
    counts = usage if isinstance(usage, dict) else {}
    return sum(counts[key] for key in TOKENS if isinstance(counts.get(key), int))


def _born(status: Status) -> str:
    """The name that an agent was given, whatever it is called now; of a very long one an id does not have all of it."""
    name = status.agent.id[:-9]
    return name if len(name) < 40 else status.agent.name


def _shown(status: Status) -> dict[str, Any]:
    return {
        "state": status.state,
        "reason": status.reason,
        "since": status.since,
        "why": status.why,
        "exit_code": status.exit_code,
        "last_line": status.last_line,
        "agent": status.agent.to_json(),
    }


def _stream(path: str, lines: Iterable[str]) -> None:
    """A recording can be large: it is never in memory as a whole."""
    with open(f"{path}.tmp", "w", encoding="utf-8", errors="replace") as file:
        file.writelines(lines)
    os.replace(f"{path}.tmp", path)


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=True, default=str).encode() + b"\n"


def _lines(values: list[dict[str, Any]]) -> bytes:
    return b"".join(_json(value) for value in values)
