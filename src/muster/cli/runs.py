from __future__ import annotations

import argparse
import time
from typing import Any

from ..errors import UsageError
from ..fleet import Fleet
from . import render

EXAMPLES = """
muster runs
muster runs show map-1
muster runs pause map-1
muster runs set map-1 max_agents=4 dollars=20
muster runs stop map-1
muster runs rm map-1
"""
TEXT = """
Shows the runs of map, or one of them with all its tasks. The others ask something of the process that runs it: pause (no more is
launched) and resume, stop (its agents are harvested and ended, the rest is cancelled), set (another limit). rm removes a run's
directory; branches stay.
"""
ACTIONS = ("show", "pause", "resume", "stop", "set", "rm")
KEYS = ("max_agents", "dollars", "tokens", "launch_rate")


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", nargs="?", default="", metavar="ACTION", help=f"what to do: {', '.join(ACTIONS)}")
    parser.add_argument("name", nargs="?", default="", metavar="RUN", help="the run")
    parser.add_argument("values", nargs="*", default=[], metavar="KEY=VALUE", help=f"for set: {', '.join(KEYS)}")


def run(args: argparse.Namespace, fleet: Fleet) -> int:
    from ..flow import run as runs

    if not args.action:
        return _all(args, [one.picture() for one in runs.all_runs(fleet.home)])
    if args.action not in ACTIONS:
        raise UsageError(f"runs has no action {args.action!r}", f"use one of: {', '.join(ACTIONS)}")
    if not args.name:
        raise UsageError(f"which run to {args.action}?", "muster runs shows them")
    one = runs.find(fleet.home, args.name)
    if args.action == "show":
        return _show(args, one.picture())
    if args.values and args.action != "set":
        raise UsageError(f"runs {args.action} takes no values", f"muster runs set {args.name} KEY=VALUE")
    if args.action == "rm":
        one.remove()
        told = f"removed {one.name}; its branches stay"
    elif args.action == "set":
        one.ask(**_values(args.values))
        told = f"{one.name}: {' '.join(args.values)}"
    else:
        if not one.held():
            raise UsageError(f"nobody runs {one.name} now ({one.state()})", f"muster runs show {one.name}")
        wish: dict[str, Any] = {"state": {"pause": "paused", "resume": "", "stop": "stopped"}[args.action]}
        one.ask(**wish, **({"resumed": time.time()} if args.action == "resume" else {}))
        told = f"asked {one.name} to {args.action}"
    if args.json:
        render.document({"name": one.name, "action": args.action})
    else:
        render.note(told)
    return 0


def _values(pairs: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if key not in KEYS or not equals:
            raise UsageError(f"{pair!r} cannot be set", f"KEY=VALUE with one of: {', '.join(KEYS)}")
        try:
            found[key] = float(value)
        except ValueError:
            raise UsageError(f"{pair!r} is no number", "muster runs set RUN max_agents=4") from None
        if not 0 < found[key] < 1e12:
            raise UsageError(f"{pair!r} must be more than 0", "muster runs set RUN max_agents=4")
    if not found:
        raise UsageError("nothing to set", f"KEY=VALUE with one of: {', '.join(KEYS)}")
    return found


def _all(args: argparse.Namespace, pictures: list[dict[str, Any]]) -> int:
    if args.json:
        render.document({"runs": [{k: v for k, v in one.items() if k != "tasks"} for one in pictures]})
    elif not pictures:
        render.note("there is no run yet: seq 3 | muster map -a command -- echo {item}")
    else:
        rows = [
            [
                one["name"],
                one["state"],
                f"{sum(one['outcomes'].values())}/{one['total']}",
                ", ".join(f"{count} {name}" for name, count in one["outcomes"].items()) or "-",
                one["type"],
                _cost(one),
                render.when(one["created"]),
            ]
            for one in pictures
        ]
        render.table(["RUN", "STATE", "DONE", "OUTCOMES", "TYPE", "COST", "BEGAN"], rows)
    return 0


def _show(args: argparse.Namespace, picture: dict[str, Any]) -> int:
    if args.json:
        render.document(picture)
        return 0
    render.out(f"{picture['name']} is {picture['state']}: {picture['folder']}")
    rows = [
        [
            task["id"],
            task["outcome"] or task["state"],
            str(task["attempts"]),
            _cost(task),
            task["branch"] if task["commits"] else "-",
            (task["reason"] or task["summary"] or "")[:80],
        ]
        for task in picture["tasks"]
    ]
    render.table(["TASK", "OUTCOME", "TRIES", "COST", "BRANCH", "WHY"], rows)
    return 0


def _cost(one: dict[str, Any]) -> str:
    if one["cost_usd"] is not None:
        return f"${one['cost_usd']:.2f}"
    return f"{one['tokens']:.0f} tok" if one["tokens"] is not None else "-"
