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
Fetches an agent's commits to branch muster/NAME of the repository it was created from. Your checked-out branch changes
only with --merge, --rebase or --squash. --files copies files instead.
"""
#: Limit on the uncommitted files that are named.
NAMED = 5


def options(parser: argparse.ArgumentParser) -> None:
    common.selector(parser)
    add = parser.add_argument
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "--merge", dest="how", action="store_const", const="merge", help="then merge it into your checked-out branch"
    )
    how.add_argument(
        "--rebase", dest="how", action="store_const", const="rebase", help="then replay its commits on top of yours"
    )
    how.add_argument(
        "--squash", dest="how", action="store_const", const="squash", help="then add everything as one commit"
    )
    add("--uncommitted", action="store_true", help="include uncommitted work as one more commit")
    add("--force", action="store_true", help="replace muster/NAME even if it has other commits")
    add(
        "--files",
        action="append",
        default=[],
        metavar="GLOB",
        help="copy these files of the work dir instead of commits",
    )
    add("--to", default="", metavar="DIR", help="where to copy files to, or the repository to pull into")


def run(args: argparse.Namespace, fleet: Fleet) -> int:
    if args.files and args.how:
        raise UsageError("--files brings files, there is nothing to merge", "leave --merge, --rebase or --squash out")

    def pull(one: Found) -> dict[str, Any]:
        if args.files:
            return {"files": fleet.pull_files(one, args.files, args.to)}
        row = fleet.pull(one, how=args.how or "", uncommitted=args.uncommitted, force=args.force, to=args.to)
        if row["branch"]:
            left = [] if args.uncommitted or not row["dirty"] else fleet.uncommitted_files(one)
            row["uncommitted"] = None if row["dirty"] is None else left
        return row

    def say(row: dict[str, Any]) -> str:
        if "files" in row:
            return f"{row['address']}: {len(row['files'])} files" + "".join(f"\n  {path}" for path in row["files"])
        return f"{row['address']}: {_summary(row['address'], args.how, row)}"

    # One at a time, because several may go to the same repository.
    return common.for_each(args, fleet, pull, say, limit=1)


def _summary(address: str, how: str | None, row: dict[str, Any]) -> str:
    """Return what was fetched, merged and left behind, as text."""
    if row["branch"] is None and "changed" not in row:
        return "nothing to pull, it works in your own folder"
    if row["branch"] is None:
        return _folder_summary(address, how, row)
    if not how:
        text = f"{row['branch']} is at {row['tip'][:10]}, {_number(row['commits'], 'commit')} ahead of where it began"
    elif row["merged"]:
        moved = f"{row['repo']}: HEAD moved from {row['from'][:10]} to {row['to'][:10]}"
        done = {"merge": "merged {} into", "rebase": "rebased {} onto", "squash": "squashed {} into one commit in"}
        text = f"{done[how].format(row['branch'])} {moved}"
    elif row["commits"] or row["branch"].endswith("-wip"):
        text = f"nothing to {how}: everything on {row['branch']} is already in {row['repo']}"
    else:
        text = f"nothing to {how}: {row['branch']} has no commit of its own"
    if row["planted"]:
        text += f"\n  it added hooks or settings to its own git directory; muster ran none of them: {', '.join(row['planted'])}"
    if left := row["uncommitted"]:
        names = ", ".join(left[:NAMED]) + (f" and {len(left) - NAMED} more" if len(left) > NAMED else "")
        text += (
            f"\n  {_number(len(left), 'file')} not committed and not brought: {names}"
            f"\n  muster pull {address}{f' --{how}' if how else ''} --uncommitted brings {'it' if len(left) == 1 else 'them'} too"
        )
    return text


def _folder_summary(address: str, how: str | None, row: dict[str, Any]) -> str:
    count = _number(len(row["changed"]), "file")
    if row["merged"]:
        return f"{count} written to {row['folder']}"
    if not row["changed"]:
        return "no file changed" + (", nothing was written" if how else "")
    return f"{count} changed; muster pull {address} --merge writes {'it' if len(row['changed']) == 1 else 'them'} to {row['folder']}"


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
