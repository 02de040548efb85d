"""Make a run of agents and branches that belong to none: each becomes a task, moved onto the commit that the run starts from."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import NamedTuple

from ... import Fleet
from ...errors import MusterError, NotFound, UsageError
from ..improving import setup
from ..improving.request import ImproveRequest
from ..mapping import start
from ..mapping.fleet_backend import FleetBackend
from ..run import directory as runs
from ..run import git, tasks
from ..run.directory import Run
from ..run.records import AttemptAgent, Outcome, RunInfo
from ..run.tasks import Task
from . import rebase

ROLE = "branch"


class Source(NamedTuple):
    """An agent with its address, or a branch with its commit."""

    name: str
    address: str = ""
    commit: str = ""


def sources(fleet: Fleet, repo: str, names: Sequence[str]) -> list[Source]:
    """Return the agents and branches with these names (globs for agents). If both have a name, the agent is meant.

    Raises NotFound if a name matches neither.
    """
    found: dict[str, Source] = {}
    for name in names:
        commit = git.text(
            fleet.local, repo, "rev-parse", "-q", "--verify", "--end-of-options", f"refs/heads/{name}^{{commit}}"
        )
        try:
            chosen, errors = fleet.select([name])
        except UsageError as error:  # agents cannot have such a name
            chosen, errors = [], [error]
        if not chosen and not commit:
            known = f"{errors[0].hint}; " if errors and errors[0].hint else ""
            if any(run.name == name for run in runs.all_runs(fleet.home)):
                raise UsageError(f"{name} is a run, which is reduced by itself", f"muster reduce {name}")
            raise NotFound(f"there is no agent, no branch and no run {name}", f"{known}muster runs lists runs")
        for one in chosen:
            address = str(one.status.address)
            found[address] = Source(one.agent.name, address)
        if not chosen:
            found[f"refs/heads/{name}"] = Source(name, commit=commit)
    return list(found.values())


def check_commits(run: Run) -> None:
    """Raise UsageError if no task of a run of `map` is ok and has commits."""
    outcomes = [attempts[-1].outcome for task in run.tasks() if (attempts := run.attempts(task.id))]
    if not any(outcome and outcome.final and outcome.outcome == "ok" and outcome.commits for outcome in outcomes):
        raise UsageError(f"no task of run {run.name} is ok and has commits", f"muster runs show {run.name}")


def collect(fleet: Fleet, wish: ImproveRequest, names: Sequence[str]) -> tuple[Run, bool]:
    """Return a run with a task for each of these agents and branches, and whether it is new.

    It is not new if a run of the same ones was interrupted or has the name that is asked for.
    """
    repo, base, _ = setup.head(fleet, wish.map.spec.source)
    found = sources(fleet, repo, names)
    source = os.path.realpath(wish.map.spec.source or fleet.cwd)
    digest = tasks.digest(["reduce", [list(one) for one in found], base, source, wish.paths, wish.args])
    if wish.map.name:
        known = [run for run in runs.all_runs(fleet.home) if run.name == wish.map.name]
        if known and known[0].info.digest != digest:
            raise UsageError(
                f"run {wish.map.name} was made of something else, or your branch or theirs have moved since",
                f"--run ANOTHER-NAME, or: muster reduce {wish.map.name}",
            )
        if known:
            return known[0], False
    elif interrupted := runs.unfinished(fleet.home, digest):
        return interrupted, False
    info = RunInfo(
        kind="improve",
        digest=digest,
        repo=repo,
        source=source,
        base=base,
        type=wish.map.spec.type,
        places=wish.map.places,
        paths=tuple(wish.paths),
        args=tuple(wish.args),
        sources=tuple((one.name, one.address, one.commit) for one in found),
    )
    made = [
        Task(tasks.name(number, one.name), number, one.name, {"item": one.name, "role": ROLE}, "", (), base)
        for number, one in enumerate(found, 1)
    ]
    name = wish.map.name or runs.free_name(fleet.home, "reduce", git.run_branches(fleet.local, repo))
    return runs.make(fleet.home, name, info, made), True


def take(fleet: Fleet, wish: ImproveRequest, run: Run, say: start.Say) -> None:
    """Harvest the commits of each source into its task, once. The agents stay as they are."""
    backend = FleetBackend(fleet, run, wish.map.spec, speaks=True, keep=True)
    for task, source in zip(run.tasks(), (Source(*fields) for fields in run.info.sources), strict=False):
        if any(attempt.final for attempt in run.attempts(task.id)):
            continue
        agent = AttemptAgent(branch=source.name)
        if source.address:
            agent = AttemptAgent(source.name, source.address.partition("@")[2], source.address)
        attempt = run.begin(task.id, 1, agent, "")
        outcome = Outcome(tip=source.commit, branch=source.name)
        try:
            outcome = backend.bring_home(fleet.get(source.address), attempt) if source.address else outcome
            outcome = _onto(fleet, run, task, outcome)
        except MusterError as error:
            outcome = outcome._replace(outcome="failed", reason=error.message)
        run.end(attempt, outcome._replace(keep_agent=True, final=True, t=time.time()))
        say(
            run.event(
                "gathered",
                time.time(),
                task=task.id,
                outcome=outcome.outcome,
                reason=outcome.reason or source.name,
            )
        )


def _onto(fleet: Fleet, run: Run, task: Task, branch: Outcome) -> Outcome:
    """Return the outcome of a task whose branch was moved onto the base of the run."""
    repo, base, tip = run.info.repo, task.base, branch.tip
    if not tip:
        return branch._replace(outcome="failed", reason="it has no commits")
    words = git.text(fleet.local, repo, "log", "-1", "--format=%B", tip).strip()
    count = git.text(fleet.local, repo, "rev-list", "--count", tip, f"^{base}")
    ended = branch._replace(outcome="ok", commits=int(count or 0), summary=words)
    placed = rebase.onto(fleet, run, base, tip, task.id, rewritten=False)
    if not placed.commit:
        advice = "" if "in common" in placed.reason else ": rebase it"
        return ended._replace(outcome="failed", reason=f"it {placed.reason.removeprefix('it ')}{advice}")
    return ended._replace(tip=placed.commit)
