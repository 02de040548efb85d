from __future__ import annotations

import argparse

from ..errors import worst
from ..fleet import Fleet
from ..model import ENDED, STATES, Status, parse_seconds
from . import common, render

EXAMPLES = """
muster wait fix-login
muster wait 'fix-*' --timeout 30m
muster wait a b c --any --until waiting
muster wait -l run=42 --until done --until failed
"""
TEXT = """
Waits until agents reach a state; without --until, until they are ready, waiting or ended. The exit code is 4 after the
timeout, and 1 if an agent ended in another state than the requested ones.

While it waits, muster also runs the command of [notify] for agents on other hosts (docs/notify.md).
"""


def options(parser: argparse.ArgumentParser) -> None:
    common.selector(parser)
    known = f"wait for one of: {', '.join(STATES)}"
    parser.add_argument("--until", action="append", default=[], choices=STATES, metavar="STATE", help=known)
    parser.add_argument("--any", action="store_true", help="return when one of the agents does")
    parser.add_argument("--timeout", type=parse_seconds, metavar="TIME", help="give up after this time: 30s, 15m")


def run(args: argparse.Namespace, fleet: Fleet) -> int:
    # With names, --all is the opposite of --any; without names, it selects every agent.
    args.all = args.all and not args.names
    chosen, errors = common.choose(args, fleet)
    if errors and not chosen:
        raise errors[0]
    for error in errors:
        render.error(error)
    until = frozenset(args.until) or ENDED | {"ready", "waiting"}

    def seen(status: Status) -> None:
        if not args.json:
            render.note(f"{status.address} is {status.state}" + (f" ({status.reason})" if status.reason else ""))

    statuses = fleet.wait(chosen, until, any_one=args.any, timeout=args.timeout, seen=seen)
    if args.json:
        render.document({"agents": common.agents_json(fleet, statuses)})
    return worst([error.exit_code for error in errors]) if errors else 0
