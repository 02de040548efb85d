from __future__ import annotations

import argparse

from ..errors import UsageError
from ..fleet import Fleet
from . import render

EXAMPLES = """
muster snapshot create fix-login before-refactoring
muster snapshot list fix-login
muster snapshot restore fix-login before-refactoring
muster snapshot delete fix-login before-refactoring
"""
TEXT = """
Saves and restores the state of an agent's work dir: commits, index, changed and new files. `restore` saves the present
state as another snapshot first.
"""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("create", "list", "restore", "delete"), help="what to do")
    parser.add_argument("name", metavar="NAME", help="the agent")
    parser.add_argument("snapshot", nargs="?", default="", metavar="SNAPSHOT", help="its name; create generates one")


def run(args: argparse.Namespace, fleet: Fleet) -> int:
    one = fleet.get(args.name)
    if args.action == "list":
        if args.snapshot:
            raise UsageError("list shows all snapshots", f"muster snapshot list {args.name}")
        rows = fleet.snapshots(one)
        if args.json:
            render.document({"name": one.agent.name, "snapshots": rows})
        elif rows:
            render.table(
                ["SNAPSHOT", "TAKEN", "COMMIT"], [[r["snapshot"], render.when(r["t"]), r["head"][:12]] for r in rows]
            )
        else:
            render.note(f"{one.agent.name} has no snapshots")
        return 0
    if args.action != "create" and not args.snapshot:
        raise UsageError(f"which snapshot to {args.action}?", f"muster snapshot list {args.name}")
    name, before = fleet.snapshot(one, args.action, args.snapshot)
    if args.json:
        document = {"name": one.agent.name, "action": args.action, "snapshot": name}
        render.document({**document, "before": before} if before else document)
    else:
        sentences = {
            "create": f"saved {one.agent.name} as snapshot {name}",
            "restore": f"restored {one.agent.name} to snapshot {name}; its former state is snapshot {before}",
            "delete": f"deleted snapshot {name}",
        }
        render.note(sentences[args.action])
        if args.action == "create":
            render.out(name)
    return 0
