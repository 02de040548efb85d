from __future__ import annotations

import argparse

from ..fleet import Fleet
from ..model import Address
from . import common, render

EXAMPLES = """
muster clone fix-login fix-login-b
muster clone fix-login other@box -m "Try it the other way"
"""
TEXT = """
Creates an agent from another one, with its commits, its uncommitted work and its conversation (which mini does not
keep). The original is not changed.
"""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the agent to copy")
    parser.add_argument(
        "new", nargs="?", default="", metavar="NEW", help="the address of the copy (default: a generated name)"
    )
    parser.add_argument("-m", "--message", default="", help="the first message to the copy")
    parser.add_argument("--label", action="append", default=[], metavar="K=V", help="a label for the copy")


def run(args: argparse.Namespace, fleet: Fleet) -> int:
    from ..model import parse_labels

    one = fleet.get(args.name)
    made = fleet.clone(
        one, Address.parse(args.new) if args.new else Address(""), args.message, parse_labels(args.label)
    )
    common.note_versions(fleet, [made])
    if args.json:
        render.document({"agents": common.agents_json(fleet, [made.status])})
    else:
        render.out(str(made.status.address))
        render.note(f"cloned {one.status.address} as {made.status.address}")
        kind = fleet.type(one.agent.type)
        carried = kind.carries or kind.transcript.startswith("session/") or (kind.translate and kind.prepare)
        if kind.speaks and not carried:
            render.note(f"  the conversation was not copied: type {kind.name} cannot continue another agent's")
    return 0
