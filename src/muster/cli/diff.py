from __future__ import annotations

import argparse

from ..fleet import Fleet
from . import pager, render

EXAMPLES = """
muster diff fix-login
muster diff fix-login --stat
muster diff fix-login --committed
"""
TEXT = """
Shows what an agent has changed since it was created: its commits and its uncommitted work, new files included. On a
terminal it uses the colours and the pager of your git configuration (color.diff, pager.diff, core.pager);
GIT_PAGER=cat turns the pager off.
"""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the agent")
    parser.add_argument("--stat", action="store_true", help="only the number of changed lines per file")
    parser.add_argument("--name-only", action="store_true", help="only the names of changed files")
    parser.add_argument("--committed", action="store_true", help="leave uncommitted work out")


def run(args: argparse.Namespace, fleet: Fleet) -> int:
    one = fleet.get(args.name)
    # The agent wrote the text of the diff, so a terminal gets it without escape sequences.
    data = fleet.diff(one, stat=args.stat, name_only=args.name_only, committed=args.committed)
    text = data.decode("utf-8", "replace")
    if args.json:
        names = fleet.diff(one, name_only=True, committed=args.committed).decode("utf-8", "replace").splitlines()
        render.document({"name": one.agent.name, "base": one.agent.base or None, "files": names, "diff": text})
    elif render.width():
        pager.show(fleet, render.plain(text, keep="\n\t").rstrip("\n")) if text else render.note("no changes")
    else:
        render.raw(data)
    return 0
