from __future__ import annotations

import argparse

from ..fleet import Fleet
from . import render

EXAMPLES = """
muster answer fix-login yes
muster answer fix-login "Use the second design"
"""
TEXT = """
Answers what an agent waits for: yes or no to a permission dialog, any text to a question.
"""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the agent")
    parser.add_argument("answer", metavar="yes|no|TEXT", help="the answer")


def run(args: argparse.Namespace, fleet: Fleet) -> int:
    one = fleet.get(args.name)
    result = fleet.answer(one, args.answer)
    if args.json:
        render.document({"name": one.agent.name, "address": str(one.status.address), "result": result})
    else:
        render.note(f"{result}: {one.status.address}")
    return 0
