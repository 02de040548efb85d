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
Shows what an agent changed since it began: its commits, and what it has not committed, new files included. On a terminal it has
the colours and the pager of your git configuration (color.diff, pager.diff, core.pager); GIT_PAGER=cat does without.
"""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the agent")
    parser.add_argument("--stat", action="store_true", help="only how much changed in which file")
    parser.add_argument("--name-only", action="store_true", help="only the names of changed files")
    parser.add_argument("--committed", action="store_true", help="leave out what is not committed")


def run(args: argparse.Namespace, fleet: Fleet) -> int:
    one = fleet.get(args.name)
    # The text of a diff is the agent's: a terminal gets it without escape sequences of its own.
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
