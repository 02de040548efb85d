from __future__ import annotations

import argparse
import os

from ..errors import Refused
from ..fleet import Fleet
from . import render

EXAMPLES = """
muster record fix-login
muster record fix-login -o fix-login.toml
"""
TEXT = """
Writes a playbook of what an agent did: what it said, its commits, its uncommitted work and the result it submitted.
`muster create NAME replay -- FILE` plays it again without a model.
"""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the agent")
    parser.add_argument("-o", "--output", default="", metavar="FILE", help="the file to write (default: stdout)")
    parser.add_argument("--force", action="store_true", help="overwrite the file")


def run(args: argparse.Namespace, fleet: Fleet) -> int:
    from ..agents.replay import playbook

    if args.output and os.path.exists(args.output) and not args.force:
        raise Refused(f"{args.output} exists", "--force overwrites it")
    steps = fleet.playbook(fleet.get(args.name))
    text = playbook.dump(steps)
    if args.output:
        with open(args.output, "w", encoding="utf-8") as file:
            file.write(text)
        render.note(f"wrote {args.output} ({len(steps)} steps)")
        if args.json:
            render.document({"name": args.name, "file": args.output, "steps": len(steps)})
    elif args.json:
        render.document({"name": args.name, "steps": steps})
    else:
        render.out(text, end="")
    return 0
