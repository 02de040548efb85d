from __future__ import annotations

import argparse

from ..fleet import Fleet
from ..model import parse_seconds
from . import render

EXAMPLES = """
muster gc
muster gc --yes
muster gc --older 7d --yes
"""
TEXT = """
Shows what is left over, here and on every host: expired trash, half-made agents, folders and branches without an agent; and
for each whether it is merged, kept in the trash, or unique. Nothing is removed without --yes, and nothing unique ever is:
it goes to the trash first.
"""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--yes", action="store_true", help="do it")
    parser.add_argument("--older", type=parse_seconds, metavar="TIME", help="drop trash older than this (default: 30d)")


def run(args: argparse.Namespace, fleet: Fleet) -> int:
    rows = fleet.gc(yes=args.yes, older=args.older)
    if args.json:
        render.document({"leftovers": rows, "done": args.yes})
        return 0
    if not rows:
        render.note("nothing is left over")
        return 0
    cells = [
        [row["what"], row["host"] or "local", row["name"], row["verdict"], render.size(row["bytes"]), row["action"]]
        for row in rows
    ]
    render.table(
        ["WHAT", "HOST", "NAME", "STATUS", "SIZE", "ACTION"],
        cells,
        drop=["SIZE", *(["HOST"] if not any(row["host"] for row in rows) else [])],
        text=["NAME", "STATUS", "ACTION"],
    )
    if not args.yes:
        render.note("nothing was changed; muster gc --yes does it")
    return 0
