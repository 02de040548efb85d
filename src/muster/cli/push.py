from __future__ import annotations

import argparse
from typing import Any

from ..fleet import Fleet
from ..host import Found
from . import common

EXAMPLES = """
muster push fix-login
muster push 'fix-*' --merge
muster push fix-login --ref main
"""
TEXT = """
Brings the commits of your branch to the agent's branch and work dir: a fast-forward, or a merge with --merge. It is
refused if it would overwrite uncommitted work of the agent.
"""


def options(parser: argparse.ArgumentParser) -> None:
    common.selector(parser)
    parser.add_argument("--merge", action="store_true", help="merge if it is not a fast-forward")
    parser.add_argument("--ref", default="HEAD", help="what to push (default: HEAD)")


def run(args: argparse.Namespace, fleet: Fleet) -> int:
    def push(one: Found) -> dict[str, Any]:
        return fleet.push(one, args.ref, merge=args.merge)

    def say(row: dict[str, Any]) -> str:
        if row["branch"] is None:
            return f"{row['address']}: nothing to do, it works in your own folder"
        return f"{row['address']}: {row['branch']} is at {row['head'][:10]} now"

    return common.for_each(args, fleet, push, say, limit=4)
