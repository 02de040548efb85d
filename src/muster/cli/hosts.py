from __future__ import annotations

import argparse
import time

from .. import hosts as memory
from ..errors import NotFound, UsageError
from ..fleet import Fleet
from . import render

EXAMPLES = """
muster hosts
muster hosts forget box
"""
TEXT = """
Shows the hosts that were used, whether they answer now and when they last did. `forget` drops one from the list;
nothing on the host changes.
"""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action", nargs="?", choices=("list", "forget"), default="list", help="list (default) or forget"
    )
    parser.add_argument("host", nargs="?", metavar="HOST", help="the host to forget")


def run(args: argparse.Namespace, fleet: Fleet) -> int:
    if args.action == "forget":
        if not args.host:
            raise UsageError("which host?", "muster hosts forget HOST")
        if not memory.forget(fleet.home, args.host):
            raise NotFound(f"no host {args.host} is remembered", "muster hosts")
        if args.json:
            render.document({"forgot": args.host})
        else:
            render.note(f"forgot {args.host}; its agents are still there and show again when it is used")
        return 0
    if args.host:
        raise UsageError("list shows all hosts", "muster hosts")
    listing = fleet.survey()
    counts: dict[str, int] = {}
    for status in listing.statuses:
        counts[status.address.place] = counts.get(status.address.place, 0) + 1
    if args.json:
        render.document(
            {
                "hosts": [
                    {
                        "name": row.name or None,
                        "provider": row.provider,
                        "reachable": row.reachable,
                        "seen": row.seen or None,
                        "agents": counts.get(row.name, 0) if row.reachable else None,
                        "error": row.error or None,
                    }
                    for row in listing.hosts
                ]
            }
        )
        return 0
    rows = [
        [
            row.name or "local",
            row.provider,
            "yes" if row.reachable else "no",
            "now" if row.reachable else f"{render.age(time.time() - row.seen)} ago",
            str(counts.get(row.name, 0)) if row.reachable else "?",
            row.error,
        ]
        for row in listing.hosts
    ]
    render.table(["HOST", "PROVIDER", "ANSWERS", "SEEN", "AGENTS", "ERROR"], rows, drop=["PROVIDER"], text=["ERROR"])
    return 0
