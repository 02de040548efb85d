from __future__ import annotations

import argparse

from ..fleet import Fleet
from . import render

EXAMPLES = """
muster restore fix-login
muster restore --list
muster restore fix-login-1f2e3d4c --as fix-login-old
"""
TEXT = """
Brings a destroyed agent back from the trash: record, work dir, branch, index, transcript and recording. `start` then
resumes it. If several agents had the name, the one destroyed last is restored; an id selects another.
"""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name", nargs="?", default="", metavar="NAME", help="its name or id, with @HOST if it was on another host"
    )
    parser.add_argument("--list", action="store_true", help="show what is in the trash")
    parser.add_argument("--as", dest="new", default="", metavar="NEW", help="restore it under another name")


def run(args: argparse.Namespace, fleet: Fleet) -> int:
    from ..errors import UsageError

    if args.list or not args.name:
        if not args.list:
            raise UsageError("restore what?", "muster restore --list shows what is in the trash")
        if args.name:
            raise UsageError("--list shows all of the trash", "muster restore --list")
        rows = fleet.trash()
        if args.json:
            render.document({"trash": rows})
        elif rows:
            cells = [
                [r["address"], r["id"], render.when(r["destroyed"]), r["type"], ", ".join(r["kept"]) or "-"]
                for r in rows
            ]
            head = ["AGENT", "ID", "DESTROYED", "TYPE", "KEPT"]
            render.table(head, cells, drop=["TYPE", "DESTROYED"], text=["KEPT"])
        else:
            render.note("the trash is empty")
        return 0
    one = fleet.restore(args.name, args.new)
    if args.json:
        render.document({"name": one.agent.name, "address": str(one.status.address), "state": one.status.state})
    else:
        render.note(f"restored {one.status.address}; muster start {one.status.address} goes on with it")
    return 0
