from __future__ import annotations

import argparse

from ..errors import MusterError
from ..fleet import Fleet
from ..model import Status
from . import render

EXAMPLES = """
muster answer fix-login yes
muster answer fix-login "Use the second design"
"""
TEXT = """
Answers a waiting agent: yes or no to a permission dialog, any text to a question. Without an answer it shows what the
agent asks.
"""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the agent")
    parser.add_argument("answer", nargs="?", metavar="yes|no|TEXT", help="the answer; omit it to see the question")


def run(args: argparse.Namespace, fleet: Fleet) -> int:
    one = fleet.get(args.name)
    if args.answer is None:
        return _question(args, one.status)
    result = fleet.answer(one, args.answer)
    if args.json:
        render.document({"name": one.agent.name, "address": str(one.status.address), "result": result})
    else:
        render.note(f"{result}: {one.status.address}")
    return 0


def _question(args: argparse.Namespace, status: Status) -> int:
    """Show what a waiting agent asks. Like an answer, this is an error for an agent that does not wait."""
    address = str(status.address)
    if status.state != "waiting":
        raise MusterError(f"{address} is {status.state} and has no open question", f"muster explain {address}")
    if args.json:
        row = {"name": status.agent.name, "address": address, "reason": status.reason or None}
        render.document({**row, "question": render.plain(status.question, keep="\n") or None})
        return 0
    if status.question:
        render.paragraph(status.question)
    else:
        render.note(f"{address} waits ({status.reason or 'reason unknown'}); muster capture {address} shows its screen")
    render.note(f"muster answer {address} {'yes' if status.reason == 'permission' else 'TEXT'}")
    return 0
