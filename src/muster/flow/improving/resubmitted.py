"""Taking in what an agent of a run submitted after its task had come to its end, because a person talked to it."""

from __future__ import annotations

import json
import time

from ... import Fleet
from ...errors import MusterError, Unreachable
from ..mapping import start
from ..mapping.fleet_backend import FleetField
from ..run import results
from ..run.directory import Run
from . import stages


def take(fleet: Fleet, wish: stages.Wish, run: Run, say: start.Say) -> list[str]:
    """The tasks whose agents are still there and say something else than they did; what they have is harvested as one more attempt."""
    kind = fleet.type(wish.map.spec.type)
    field = FleetField(fleet, run, wish.map.spec, speaks=kind.speaks, keep=True)
    open_ones = {}
    for task in run.tasks():
        tries = run.attempts(task.id)
        if tries and tries[-1].final and (tries[-1].outcome or {}).get("outcome") != "ok":
            open_ones[str(tries[-1].agent.get("name"))] = task, tries[-1]
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
            claimed = (last.outcome or {}).get("claimed")
            if not isinstance(found, results.Result) or json.loads(json.dumps(found._asdict())) == claimed:
                continue
            attempt = run.begin(task.id, last.number + 1, last.agent, task.prompt)
            try:
                told = field.harvest(task, attempt)
            except MusterError as error:
                told = {"harvest_errors": [error.message], "kept": True}
            for key in ("tokens", "cost_usd"):  # an agent counts from its birth
                if told.get(key) is not None:
                    told[key] = max(
                        0, told[key] - sum((one.outcome or {}).get(key) or 0 for one in run.attempts(task.id))
                    )
            run.end(
                attempt, {"outcome": found.outcome, "reason": found.reason, **told, "final": True, "t": time.time()}
            )
            words = f"it has submitted again: {found.outcome}"
            say(
                run.event(
                    "again", time.time(), task=task.id, attempt=attempt.number, outcome=found.outcome, reason=words
                )
            )
            taken.append(task.id)
    return taken
