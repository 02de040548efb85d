"""Where each task of a run is on its way, and how many agents that makes on each host."""

from __future__ import annotations

from collections import Counter, defaultdict

from ..limits.governor import Spend
from ..run.directory import Attempt
from ..run.tasks import Task
from .supervise import Act, Memo


class Job:
    """A task on its way: `found` (it may have an agent from before), `todo`, `later` (to be tried again), `launching`, `running`,
    `ending` (its harvest is to be tried again), `harvesting`, `clearing`, `over`.
    """

    def __init__(self, task: Task, tries: list[Attempt]) -> None:
        self.task, self.stage = task, "todo"
        self.tries: list[Attempt] = []
        self.name = self.place = ""
        """Of the agent that has it, or had it last."""
        for attempt in tries:
            self.tried(attempt)
        self.memo = Memo(0.0)
        self.not_before = self.since = self.unharvested = 0.0
        self.act = Act()
        self.spent = Spend()
        self.before = Spend()
        """Of its attempts that are over."""

    @property
    def last(self) -> Attempt:
        return self.tries[-1]

    def tried(self, attempt: Attempt) -> None:
        """One more attempt, or the last one again, of which no agent came."""
        if self.tries and self.last.number == attempt.number:
            self.tries.pop()
        # What the agents of ten thousand attempts said is on disk, and not kept in memory.
        self.tries.append(attempt._replace(outcome=attempt.outcome and attempt.outcome.lean()))
        self.name, self.place = attempt.agent.name, attempt.agent.place


#: Stages in which an agent is looked at, and in which there is or may be one.
WATCHED = frozenset({"found", "running"})
ALIVE = frozenset({"launching", "found", "running", "ending", "harvesting", "clearing"})


class Board:
    """All jobs, kept so that no step looks at all of them."""

    def __init__(self) -> None:
        self.stages: dict[str, dict[str, Job]] = defaultdict(dict)
        self.watched: dict[str, dict[str, Job]] = defaultdict(dict)
        """Those whose agents are looked at, by place."""
        self.living = 0
        self.alive: Counter[str] = Counter()
        """Agents that there are or may be, and those of each place."""
        self.launching: Counter[str] = Counter()

    def move(self, job: Job, stage: str) -> None:
        key = job.task.id
        self.stages[job.stage].pop(key, None)
        living = (stage in ALIVE) - (job.stage in ALIVE)
        self.living += living
        self.alive[job.place] += living
        self.launching[job.place] += (stage == "launching") - (job.stage == "launching")
        self.watched[job.place].pop(key, None)
        job.stage = stage
        self.stages[stage][key] = job
        if stage in WATCHED:
            self.watched[job.place][key] = job
