"""The backend of real runs: launches, polls, messages, harvests and clears agents with the verbs of the fleet."""

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
from .backend import Harvest, HostView, Key

DIFF_MAX = 64 << 20
#: A larger diff is not compared with the user's own uncommitted changes.
CARRIED_MAX = 4 << 20
#: Threads per host, and the least and most in all. A thread mostly waits for its host.
WORKERS, WORKERS_MIN, WORKERS_MAX = 2, 12, 48
#: Seconds that a harvest waits until the usage includes the last turn.
TALLY_SECONDS = 5.0
TOKENS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")


class FleetBackend:
    """Does slow work on threads, and counts Ctrl-C for the scheduler to obey."""

    def __init__(self, fleet: Fleet, run: Run, spec: Spec, *, speaks: bool, keep: bool, hosts: int = 1) -> None:
        """`spec` is the agent of every task; its address, arguments, message and labels are filled in at each launch.

        `speaks`: the agents are clients, which take a prompt and have a transcript. `keep`: never destroy an agent that has ended.
        """
        self.fleet, self.run, self.spec, self.speaks, self.keep = fleet, run, spec, speaks, keep
        self.workers = min(max(WORKERS * hosts, WORKERS_MIN), WORKERS_MAX)
        self.crew = fleet.crew(self.workers)
        self.interrupted = 0
        self.ledger = settings.Ledger(fleet.home, run)
        self.watch = fleet.watch(beside=True)
        self.on_wait: Callable[[], None] = lambda: None
        """Called each time the scheduler waits; it refreshes the display."""
        self.created = run.info.created
        self._clock = time.time(), time.monotonic()

    # Time and work

    def now(self) -> float:
        """Return the time of day. It never goes back, even if the clock is set back."""
        t, ticks = self._clock
        elapsed = time.monotonic()
        self._clock = max(time.time(), t + elapsed - ticks), elapsed
        return self._clock[0]

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def start(self, key: Key, work: Callable[[], object]) -> None:
        # Budgets depend on what polls show, so a poll never queues behind other work.
        self.crew.start(key, work, urgent=key[0] == "poll")

    def completed(self, timeout: float) -> list[Any]:
        self.on_wait()
        return list(self.crew.done(timeout))

    def spent_today(self, total: Spend) -> settings.Today:
        return self.ledger.today(self.now(), total)

    def alert(self, cause: str, text: str) -> None:
        self.fleet.alert(self.run.name, cause, text)

    def interrupts(self) -> int:
        return self.interrupted

    def count_interrupts(self) -> Callable[[], None]:
        """Count Ctrl-C from now on, and return a function that stops counting.

        SIGTERM counts twice, because its sender does not wait long. SIGHUP does not count: a run goes on when its terminal is closed,
        as its agents would go on anyway and cost money unwatched.
        """

        def count(number: int, frame: object) -> None:
            self.interrupted += {int(signal.SIGINT): 1, int(signal.SIGTERM): 2}.get(number, 0)

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
        address = Address.parse(f"{agent.name}@{agent.place}" if agent.place else agent.name)
        labels = {**self.spec.labels, "run": self.run.name, "task": task.id}
        spec = self.spec._replace(
            address=address,
            args=task.args,
            message=text,
            labels=labels,
            env={**self.spec.env, **env},
            branch=task.base or self.spec.branch,
        )
        try:
            self.fleet.create(spec)
        except Refused:
            with contextlib.suppress(NotFound):
                self._agent(attempt)
                return  # an earlier try of this very attempt created it
            raise

    def _agent(self, attempt: Attempt) -> Any:
        """Return the agent of an attempt, even if it was renamed. NotFound if it is gone, or if the name is another agent's."""
        found = self.fleet.seek(attempt.agent.address)
        if found is None and (renamed := self._agents_on(attempt.agent.place).get(attempt.agent.name)):
            found = self.fleet.seek(str(renamed.address))
        if found is None:
            raise NotFound(f"{attempt.agent.address} is gone")
        if not self._is_ours(found.status, attempt.task):
            raise NotFound(f"{found.agent.name} is no agent of {self.run.name}")
        return found

    def _is_ours(self, status: Status, task: str = "") -> bool:
        """Return whether the run launched the agent. An agent older than the run belongs to a removed run of the same name."""
        agent = status.agent
        return (
            status.bound
            and agent.labels.get("run") == self.run.name
            and agent.created >= self.created
            and task in ("", agent.labels.get("task"))
        )

    def _agents_on(self, place: str) -> dict[str, Status]:
        """Return the run's agents on a host, by their original names."""
        statuses = self.fleet.glance(place).statuses
        return {_original_name(status): status for status in statuses if self._is_ours(status)}

    def poll(self, place: str) -> HostView:
        glance = self.fleet.glance(place)
        mine = [status for status in glance.statuses if self._is_ours(status)]
        self.watch.see(mine)
        bills = self.fleet.bills(mine)
        load = glance.load
        host = HostLoad(place, load.cores, load.load, load.memory, load.disk)
        return HostView(
            {_original_name(status): status for status in mine},
            {_original_name(status): (bill.cost_usd, bill.tokens) for status, bill in zip(mine, bills, strict=True)},
            host,
        )

    def send(self, attempt: Attempt, text: str, answer: bool) -> None:
        agent = self._agent(attempt)
        (self.fleet.answer if answer else self.fleet.message)(agent, text)

    def harvest(self, task: Task, attempt: Attempt) -> Harvest:
        try:
            agent = self._agent(attempt)
            return Harvest(self.bring_home(agent, attempt), agent.status)
        except NotFound as error:
            return Harvest(Outcome(harvest_errors=(error.message,)))
        except OSError as error:
            raise MusterError(f"{os.strerror(error.errno or 0)}: {attempt.folder}") from error

    def bring_home(self, one: Any, attempt: Attempt) -> Outcome:
        """Copy all that an agent left into the attempt's folder; `reduce` calls this for agents of no run, too."""
        status = one.status
        errors: list[str] = []
        spoken: list[int] = []
        outcome = Outcome()

        def part(name: str, work: Callable[[], object]) -> None:
            """Copy one part. If that fails, note the error and go on with the others, unless the host does not answer."""
            nonlocal outcome
            try:
                work()
            except Unreachable:
                raise
            except (MusterError, OSError) as error:
                errors.append(f"{name}: {getattr(error, 'message', error)}")
                # Do not destroy the only copy.
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
        """Copy the transcript, if its type keeps one, and return how many tokens it counts."""
        kind = self.fleet.type(one.agent.type)
        if not (kind.transcript or kind.translate):
            return 0
        entries = self.fleet.transcript(one)
        put("transcript.jsonl", _lines(entries))
        return sum(_tokens(entry.get("usage")) for entry in entries)

    def _tallied(self, one: Any, spoken: int) -> Status:
        """Return the status once its usage covers the tokens of the transcript. Usage is counted a moment after the last turn."""
        status: Status = one.status
        deadline = time.monotonic() + TALLY_SECONDS
        while _tokens(status.usage) < spoken and time.monotonic() < deadline:
            self.sleep(0.1)
            status = self.fleet.look(one)
        return status

    def _artifacts(self, one: Any, attempt: Attempt, errors: list[str]) -> None:
        from pathlib import Path

        into = Path(attempt.folder) / "artifacts"
        shutil.rmtree(into, ignore_errors=True)  # a harvest that was interrupted may have left a part of it
        with self.fleet.artifacts(one, artifacts.BYTES_MOST) as archive:
            refused = artifacts.unpack(archive, into, artifacts.BYTES_MOST)
        with contextlib.suppress(OSError):
            into.rmdir()  # empty: the agent submitted none
        errors += [f"artifacts: {words}" for words in refused[:20]]

    def _diff(self, one: Any, path: str, errors: list[str]) -> None:
        with self.fleet.patch(one) as patch, open(f"{path}.tmp", "wb") as file:
            left = DIFF_MAX
            while left and (piece := patch.read(min(left, 1 << 20))):
                file.write(piece)
                left -= len(piece)
            file.flush()
            os.fsync(file.fileno())
        os.replace(f"{path}.tmp", path)  # writing the outcome later syncs the folder
        if not left:
            errors.append(f"diff: it is cut at {DIFF_MAX >> 20} MB")

    def _commits(self, one: Any, patch: str, outcome: Outcome) -> Outcome:
        """Pull the agent's branch, and its uncommitted changes as a branch of their own.

        A ref of the run keeps the commits alive when the agent is destroyed.
        """
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
        """Return whether the uncommitted changes are only those that the user had, too, when the agent was created."""
        if not os.path.exists(patch) or os.path.getsize(patch) > CARRIED_MAX:
            return False
        with open(patch, "rb") as file:
            return bool(file.read() == self.fleet.diff(one, committed=True))

    def clear(self, attempt: Attempt) -> None:
        """End the agent. It is only stopped if its task failed or its work could not be copied, so that a person can look at it."""
        ended = attempt.outcome
        # An attempt without an outcome is begun anew, so its half-made agent goes.
        keep = ended is not None and (self.keep or ended.keep_agent or (ended.final and ended.outcome != "ok"))
        try:
            one = self._agent(attempt)
        except NotFound:
            one = None
        if one is not None and keep:
            self.fleet.stop(one, 2.0)
        elif one is not None:
            self.fleet.destroy(one)


def _tokens(usage: object) -> int:
    counts = usage if isinstance(usage, dict) else {}
    return sum(counts[key] for key in TOKENS if isinstance(counts.get(key), int))


def _original_name(status: Status) -> str:
    """Return the name under which an agent was created. An id does not hold all of a very long name."""
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
    """Write a recording line by line, because it may be too large for memory."""
    with open(f"{path}.tmp", "w", encoding="utf-8", errors="replace") as file:
        file.writelines(lines)
    os.replace(f"{path}.tmp", path)


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=True, default=str).encode() + b"\n"


def _lines(values: list[dict[str, Any]]) -> bytes:
    return b"".join(_json(value) for value in values)
