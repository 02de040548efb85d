"""Take in what an agent submitted after its task had ended, because a person talked to it."""

from __future__ import annotations

import time

from ... import Fleet
from ...errors import MusterError, Unreachable
from ..mapping import start
from ..mapping.fleet_backend import FleetBackend
from ..run import results
from ..run.directory import Run
from ..run.records import Outcome
from .request import ImproveRequest


def take(fleet: Fleet, request: ImproveRequest, run: Run, say: start.Say) -> list[str]:
    """Harvest each new submission as one more attempt; return the tasks.

    Only agents that still exist, and whose task did not end as ok, are looked at.
    """
    agent_type = fleet.type(request.map.spec.type)
    backend = FleetBackend(fleet, run, request.map.spec, speaks=agent_type.speaks, keep=True)
    ended = {}
    for task in run.tasks():
        attempts = run.attempts(task.id)
        if attempts and (outcome := attempts[-1].outcome) and outcome.final and outcome.outcome != "ok":
            ended[attempts[-1].agent.name] = task, attempts[-1]
    taken = []
    for place in request.map.places if ended else ():
        try:
            view = backend.poll(place)
        except Unreachable:
            continue
        for name, status in view.agents.items():
            if name not in ended or not status.result:
                continue
            task, last = ended[name]
            result = results.of(status)
            if not isinstance(result, results.Result) or (last.outcome and result == last.outcome.claimed):
                continue
            attempt = run.begin(task.id, last.number + 1, last.agent, task.prompt)
            try:
                outcome = backend.harvest(task, attempt).outcome
            except MusterError as error:
                outcome = Outcome(harvest_errors=(error.message,), keep_agent=True)
            outcome = _without_earlier_usage(run, task.id, outcome)
            run.end(attempt, outcome._replace(outcome=result.outcome, reason=result.reason, final=True, t=time.time()))
            event = {"task": task.id, "attempt": attempt.number, "outcome": result.outcome}
            say(run.event("again", time.time(), **event, reason=f"it has submitted again: {result.outcome}"))
            taken.append(task.id)
    return taken


def _without_earlier_usage(run: Run, task: str, outcome: Outcome) -> Outcome:
    """Subtract what earlier attempts used. An agent's usage counts from its creation."""
    before = [attempt.outcome for attempt in run.attempts(task) if attempt.outcome]
    if outcome.tokens is not None:
        used = sum(earlier.tokens or 0 for earlier in before)
        outcome = outcome._replace(tokens=max(0, outcome.tokens - used))
    if outcome.cost_usd is not None:
        spent = sum(earlier.cost_usd or 0 for earlier in before)
        outcome = outcome._replace(cost_usd=max(0, outcome.cost_usd - spent))
    return outcome
