"""Taking in what an agent of a run submitted after its task had come to its end, because a person talked to it."""

from __future__ import annotations

import time

from ... import Fleet
from ...errors import MusterError, Unreachable
from ..mapping import start
from ..mapping.fleet_backend import FleetField
from ..run import results
from ..run.directory import Run
from ..run.records import Outcome
from . import stages


def take(fleet: Fleet, wish: stages.Wish, run: Run, say: start.Say) -> list[str]:
    """The tasks whose agents are still there and say something else than they did; what they have is harvested as one more attempt."""
    kind = fleet.type(wish.map.spec.type)
    field = FleetField(fleet, run, wish.map.spec, speaks=kind.speaks, keep=True)
    open_ones = {}
    for task in run.tasks():
        tries = run.attempts(task.id)
        if tries and (ended := tries[-1].outcome) and ended.final and ended.outcome != "ok":
            open_ones[tries[-1].agent.name] = task, tries[-1]
    taken = []
    for place in wish.map.places if open_ones else ():
        try:
            sight = field.look(place)
        except Unreachable:
            continue
        for name, status in sight.agents.items():
            if name not in open_ones or not status.result:
                continue
            task, last = open_ones[name]
            found = results.of(status)
            if not isinstance(found, results.Result) or (last.outcome and found == last.outcome.claimed):
                continue
            attempt = run.begin(task.id, last.number + 1, last.agent, task.prompt)
            try:
                outcome = field.harvest(task, attempt).outcome
            except MusterError as error:
                outcome = Outcome(harvest_errors=(error.message,), keep_agent=True)
            before = [one.outcome for one in run.attempts(task.id) if one.outcome]
            # The agent's usage counts from its creation, so the earlier attempts have a share in it.
            if outcome.tokens is not None:
                outcome = outcome._replace(tokens=max(0, outcome.tokens - sum(one.tokens or 0 for one in before)))
            if outcome.cost_usd is not None:
                outcome = outcome._replace(cost_usd=max(0, outcome.cost_usd - sum(one.cost_usd or 0 for one in before)))
            run.end(attempt, outcome._replace(outcome=found.outcome, reason=found.reason, final=True, t=time.time()))
            words = f"it has submitted again: {found.outcome}"
            say(
                run.event(
                    "again", time.time(), task=task.id, attempt=attempt.number, outcome=found.outcome, reason=words
                )
            )
            taken.append(task.id)
    return taken
