from __future__ import annotations

import argparse

from ..fleet import Fleet
from . import render

EXAMPLES = """
muster rename fix-login fix-login-2
"""
TEXT = """
Renames an agent and its branch muster/NAME. Session and work dir stay the same; it may be working meanwhile.
"""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the agent")
    parser.add_argument("new", metavar="NEW", help="its new name")


def run(args: argparse.Namespace, fleet: Fleet) -> int:
    one = fleet.get(args.name)
    agent = fleet.rename(one, args.new)
    if args.json:
        render.document({"name": agent.name, "was": one.agent.name})
    else:
        render.note(f"renamed {one.agent.name} to {agent.name}")
    return 0
