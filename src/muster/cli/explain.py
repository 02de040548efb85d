from __future__ import annotations

import argparse

from ..fleet import Fleet
from ..model import ModelBill
from . import render

EXAMPLES = """
muster explain fix-login
"""
TEXT = """
Prints each piece of evidence about an agent with its age, why its state follows from it, and what the agent used of
each model, with the cost.
"""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the agent")


def run(args: argparse.Namespace, fleet: Fleet) -> int:
    status = fleet.explain(fleet.get(args.name))
    (bill,) = fleet.bills([status])
    if args.json:
        render.document(
            {
                "name": status.agent.name,
                "address": str(status.address),
                "state": status.state,
                "reason": status.reason or None,
                "since": status.since,
                "why": status.why,
                "question": status.question or None,
                "evidence": [
                    {"source": item.source, "t": item.t, "fact": render.plain(item.fact), "state": item.state or None}
                    for item in status.evidence
                ],
                "alarms": [alarm._asdict() for alarm in status.alarms],
                **render.bill_json(bill),
            }
        )
        return 0
    reason = f" ({status.reason})" if status.reason else ""
    state = render.colour(status.state, status.state)
    render.out(f"{status.address} is {state}{reason}: {render.plain(status.why)}")
    if status.question:
        render.paragraph(f"It asks: {status.question}")
        render.out(f"To answer: muster answer {status.address} {'yes' if status.reason == 'permission' else 'TEXT'}")
    rows = [
        [render.age(status.now - item.t), item.source, item.state or "-", item.fact]
        for item in sorted(status.evidence, key=lambda item: -item.t)
    ]
    render.table(["AGE", "EVIDENCE", "SAYS", "FACT"], rows, text=["FACT"])
    if bill.models:
        used = [*bill.models, ModelBill("all", bill.tokens, bill.cost_usd)]
        cells = [
            [row.model, "-" if row.tokens is None else str(row.tokens), render.dollars(row.cost_usd)] for row in used
        ]
        render.out()
        render.table(["MODEL", "TOKENS", "COST"], cells, text=["MODEL"])
    return 0
