from __future__ import annotations

import argparse
from typing import Any

from ..errors import UsageError
from ..fleet import Fleet
from ..host import Found
from . import common

EXAMPLES = """
muster pull fix-login
muster pull fix-login --merge
muster pull 'fix-*' --squash
muster pull fix-login --files 'reports/*.html' --to out
"""
TEXT = """
Brings an agent's commits to branch muster/NAME of the repository it came from, wherever you are. What you have checked
out is not touched unless you say --merge, --rebase or --squash. --files brings files instead.
"""


def options(parser: argparse.ArgumentParser) -> None:
    common.selector(parser)
    add = parser.add_argument
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "--merge", dest="how", action="store_const", const="merge", help="and merge it into what you have checked out"
    )
    how.add_argument(
        "--rebase", dest="how", action="store_const", const="rebase", help="and put its commits on top of yours"
    )
    how.add_argument("--squash", dest="how", action="store_const", const="squash", help="and add it all as one commit")
    add("--uncommitted", action="store_true", help="also what the agent has not committed, as one commit on top")
    add("--force", action="store_true", help="replace a muster/NAME that has other commits")
    add(
        "--files",
        action="append",
        default=[],
        metavar="GLOB",
        help="bring these files of the work dir instead of commits",
    )
    add("--to", default="", metavar="DIR", help="where to put the files, or the repository to pull into")


def run(args: argparse.Namespace, fleet: Fleet) -> int:
    if args.files and args.how:
        raise UsageError("--files brings files, there is nothing to merge", "leave --merge, --rebase or --squash out")

    def pull(one: Found) -> dict[str, Any]:
        if args.files:
            return {"files": fleet.pull_files(one, args.files, args.to)}
        return fleet.pull(one, how=args.how or "", uncommitted=args.uncommitted, force=args.force, to=args.to)

    def say(row: dict[str, Any]) -> str:
        if "files" in row:
            return f"{row['address']}: {len(row['files'])} files" + "".join(f"\n  {path}" for path in row["files"])
        return f"{row['address']}: {row['told']}"

    # One after the other: they may go to the same repository.
    return common.for_each(args, fleet, pull, say, limit=1)
