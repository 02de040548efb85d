"""The stage of each task of a run, and how many agents that makes on each host."""

from __future__ import annotations

from collections import Counter, defaultdict

from ..limits.governor import Spend
from ..run.directory import Attempt
from ..run.tasks import Task
from .supervise import Action, Observed


class Job:
    """A task and its attempts. Its stage is one of:

    `todo`; `retry` (a later attempt, after a pause); `adopting` (a former process began an attempt; the next poll shows whether it
    has an agent); `launching`; `running`; `harvesting`; `unharvested` (the harvest failed and is tried again); `clearing`; `done`.
    """

    def __init__(self, task: Task, attempts: list[Attempt]) -> None:
        self.task, self.stage = task, "todo"
        self.attempts: list[Attempt] = []
        self.name = self.place = ""
        """The agent of the last attempt, and its host."""
        for attempt in attempts:
            self.add(attempt)
        self.observed = Observed(0.0)
        self.not_before = 0.0
        """When a `retry` or a failed harvest is due."""
        self.since = 0.0
        """When the last attempt began."""
        self.harvest_failed_at = 0.0
        self.ending = Action()
        """Why the last attempt is being harvested."""
        self.spent = Spend()
        """By the attempt that has no outcome yet."""
        self.spent_before = Spend()
        """By the attempts that have one."""

    @property
    def last(self) -> Attempt:
        return self.attempts[-1]

    def add(self, attempt: Attempt) -> None:
        """Add an attempt, or replace the last one if it has the same number."""
        if self.attempts and self.last.number == attempt.number:
            self.attempts.pop()
        # Memory: what agents said in 10,000 attempts stays on the disk.
        self.attempts.append(attempt._replace(outcome=attempt.outcome and attempt.outcome.lean()))
        self.name, self.place = attempt.agent.name, attempt.agent.place


#: The stages in which the agent is watched, and those in which there is or may be an agent.
WATCHED = frozenset({"adopting", "running"})
ALIVE = frozenset({"launching", "adopting", "running", "unharvested", "harvesting", "clearing"})


class JobIndex:
    """All jobs by stage and by host, so that no step has to go through all of them."""

    def __init__(self) -> None:
        self.stages: dict[str, dict[str, Job]] = defaultdict(dict)
        self.watched: dict[str, dict[str, Job]] = defaultdict(dict)
        """The jobs whose agents are watched, by host."""
        self.alive = 0
        """How many agents there are or may be."""
        self.alive_on: Counter[str] = Counter()
        self.launching_on: Counter[str] = Counter()

    def move(self, job: Job, stage: str) -> None:
        key = job.task.id
        self.stages[job.stage].pop(key, None)
        change = (stage in ALIVE) - (job.stage in ALIVE)
        self.alive += change
        self.alive_on[job.place] += change
        self.launching_on[job.place] += (stage == "launching") - (job.stage == "launching")
        self.watched[job.place].pop(key, None)
        job.stage = stage
        self.stages[stage][key] = job
        if stage in WATCHED:
            self.watched[job.place][key] = job
