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
muster hosts stop calm-otter.docker
muster hosts destroy calm-otter.docker
"""
TEXT = """
Shows the hosts that were used, whether they answer now and when they last did. `forget` drops one from the list;
nothing on the host changes.

A host that create made (muster create NAME@.PROVIDER) can be stopped, which keeps its files, started again, and destroyed.
destroy refuses while there are agents on it, also destroyed ones in its trash, or if muster did not make it; --force does
it all the same.
"""

ACTIONS = ("list", "forget", "start", "stop", "destroy")
DONE = {
    "forget": "forgot {host}; its agents are still there and show again when it is used",
    "start": "started {host}",
    "stop": "stopped {host}; its files stay",
    "destroy": "destroyed {host}",
}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action", nargs="?", choices=ACTIONS, default="list", help="list (default), forget, start, stop or destroy"
    )
    parser.add_argument("host", nargs="?", metavar="HOST", help="the host, such as box or calm-otter.docker")
    parser.add_argument("--force", action="store_true", help="destroy a host with all that is on it")


def run(args: argparse.Namespace, fleet: Fleet) -> int:
    if args.action != "list":
        if not args.host:
            raise UsageError("which host?", f"muster hosts {args.action} HOST")
        _act(args, fleet)
        if args.json:
            render.document({"action": args.action, "host": args.host})
        else:
            render.note(DONE[args.action].format(host=args.host))
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
                        "made": row.made,
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


def _act(args: argparse.Namespace, fleet: Fleet) -> None:
    if args.action == "start":
        fleet.start_host(args.host)
    elif args.action == "stop":
        fleet.stop_host(args.host)
    elif args.action == "destroy":
        fleet.destroy_host(args.host, force=args.force)
    elif not memory.forget(fleet.home, args.host):
        raise NotFound(f"no host {args.host} is remembered", "muster hosts")
