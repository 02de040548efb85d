from __future__ import annotations

import argparse
import shlex
from typing import Any

from ..errors import UsageError
from ..fleet import Fleet
from ..host import Found
from ..model import parse_labels
from . import common

EXAMPLES = """
muster label fix-login --set run=42 --set owner=me
muster label --all --remove run
muster label fix-login
"""
TEXT = """
Sets and removes labels. Without --set and --remove it shows them.
"""


def options(parser: argparse.ArgumentParser) -> None:
    common.selector(parser)
    parser.add_argument("--set", action="append", default=[], metavar="K=V", help="set this label")
    parser.add_argument("--remove", action="append", default=[], metavar="K", help="remove this label")


def run(args: argparse.Namespace, fleet: Fleet) -> int:
    if misplaced := [word for word in args.names if "=" in word]:
        words = " ".join(f"--set {shlex.quote(word)}" for word in misplaced)
        names = "".join(f" {shlex.quote(word)}" for word in args.names if word not in misplaced)
        raise UsageError(f"{misplaced[0]!r} is a label, not the name of an agent", f"muster label{names} {words}")
    labels = parse_labels(args.set)
    if set(labels) & set(args.remove):
        raise UsageError("the same label is set and removed")

    def change(one: Found) -> dict[str, Any]:
        if not labels and not args.remove:
            return {"labels": one.agent.labels}
        return {"labels": fleet.label(one, labels, args.remove).labels}

    def say(row: dict[str, Any]) -> str:
        return f"{row['address']}: " + (
            ", ".join(f"{key}={value}" for key, value in row["labels"].items()) or "no labels"
        )

    return common.for_each(args, fleet, change, say, shows=not labels and not args.remove)
