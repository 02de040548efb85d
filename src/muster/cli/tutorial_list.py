from __future__ import annotations

import argparse
import os
from typing import Any

from ..fleet import Fleet
from ..tutorial import blocks
from . import render

EXAMPLES = """
muster tutorial list
muster tutorial list docs/tutorial.sh --section "First steps"
muster tutorial list --kind heading
"""
TEXT = """
Lists the blocks of a tutorial script with line, id, comment and commands. A block is a run of non-empty lines. A block of only comments is
a heading that is to be filled with examples. FILE defaults to tutorial.sh or docs/tutorial.sh, here or at the top of the repository.
"""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", nargs="?", default="", metavar="FILE", help="the script")
    parser.add_argument(
        "--section", default="", metavar="TEXT", help="only blocks of sections whose title contains this"
    )
    parser.add_argument("--kind", choices=blocks.KINDS, help="only blocks of this kind")


def run(args: argparse.Namespace, fleet: Fleet) -> int:
    path = args.file or os.path.relpath(blocks.find(fleet.cwd), fleet.cwd)
    found = [
        block
        for block in blocks.read(path)
        if args.section.lower() in (block.comment if block.kind == "banner" else block.section).lower()
        and args.kind in (None, block.kind)
    ]
    if args.json:
        render.document({"tutorial": path, "blocks": [_row(block) for block in found]})
        return 0
    for block in found:
        filled = " (to be filled)" if block.kind == "heading" else f" ({block.kind})" if not block.commands else ""
        render.out(render.plain(f"{block.line:>5}  {block.id}{filled}"))
        if block.comment:
            render.out(render.plain(f"       # {block.comment}"))
        for line in (line for command in block.commands for line in command.split("\n")):
            render.out(render.plain(f"       {line}", keep="\t"))
    many = f"{len(found)} block{'s' if len(found) > 1 else ''} of {path}"
    render.note(many if found else f"no such block in {path}")
    return 0


def _row(block: blocks.Block) -> dict[str, Any]:
    return {**block._asdict(), "commands": list(block.commands), "section": block.section or None}
