from __future__ import annotations

import argparse

from ..fleet import Fleet
from . import render

EXAMPLES = """
muster explain fix-login
"""
TEXT = """
Prints each piece of evidence about an agent with its age, and why its state follows from them.
"""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the agent")


def run(args: argparse.Namespace, fleet: Fleet) -> int:
    status = fleet.explain(fleet.get(args.name))
    if args.json:
        render.document(
            {
                "name": status.agent.name,
                "address": str(status.address),
                "state": status.state,
                "reason": status.reason or None,
                "since": status.since,
                "why": status.why,
                "evidence": [
                    {"source": item.source, "t": item.t, "fact": render.plain(item.fact), "state": item.state or None}
                    for item in status.evidence
                ],
            }
        )
        return 0
    reason = f" ({status.reason})" if status.reason else ""
    render.out(f"{status.address} is {render.colour(status.state, status.state)}{reason}: {render.plain(status.why)}")
    rows = [
        [render.age(status.now - item.t), item.source, item.state or "-", item.fact[:100]]
        for item in sorted(status.evidence, key=lambda item: -item.t)
    ]
    render.table(["AGE", "EVIDENCE", "SAYS", "FACT"], rows)
    return 0
