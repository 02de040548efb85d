from __future__ import annotations

import argparse
from typing import Any

from ..fleet import Fleet
from . import common, render

EXAMPLES = """
muster events fix-login
muster events fix-login --follow
muster events fix-login --last 20 --json
"""
TEXT = """
Prints the events of an agent (process, turns, questions) with their times.
"""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the agent")
    parser.add_argument("--last", type=common.count, metavar="N", help="only the last N events")
    parser.add_argument("--follow", action="store_true", help="keep printing new events (with --json: JSON Lines)")


def run(args: argparse.Namespace, fleet: Fleet) -> int:
    events = fleet.events(args.name)
    shown = events if args.last is None else events[-args.last :] if args.last > 0 else []
    if args.json and not args.follow:
        render.document({"name": args.name, "events": shown})
        return 0
    for event in shown:
        _show(event, args.json)
    if args.follow:
        render.flush()
        for event in fleet.follow(args.name, "events", len(events)):
            _show(event, args.json)
            render.flush()
    return 0


def _show(event: dict[str, Any], as_json: bool) -> None:
    if as_json:
        render.line(event)
        return
    rest = " ".join(f"{key}={value}" for key, value in event.items() if key not in ("t", "kind"))
    t = event.get("t", 0)
    render.out(
        render.plain(
            f"{render.when(t if isinstance(t, int | float) else 0)}  {event.get('kind', '?')!s:<11} {rest}"[:400]
        )
    )
