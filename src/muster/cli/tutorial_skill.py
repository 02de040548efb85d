from __future__ import annotations

import argparse
import os

from ..authoring import skill
from ..errors import NotFound, UsageError, nearest
from ..fleet import Fleet
from ..tutorial import blocks
from . import render

EXAMPLES = """
muster tutorial skill
muster tutorial skill claude opencode
muster tutorial skill agents --dir ../shop --force
muster tutorial skill claude --print
"""
TEXT = f"""
Installs the instructions of muster tutorial sync for a client itself, as the slash command {skill.COMMAND}:
a file of its own for claude and opencode, a section between two marks in AGENTS.md for codex and agents in general.
The rest of that file stays as it is. The default is claude and agents.
"""


def options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("clients", nargs="*", metavar="CLIENT", help="claude, codex, opencode, agents")
    add("--dir", default="", metavar="DIR", help="the project; default: the top of the repository")
    add("--print", action="store_true", help="print the instructions, write nothing")
    add("--force", action="store_true", help="replace instructions that differ")


def run(args: argparse.Namespace, fleet: Fleet) -> int:
    for client in args.clients:
        if client not in skill.CLIENTS:
            raise UsageError(f"no client {client!r} is known", nearest(client, list(skill.CLIENTS)))
    folder = os.path.join(fleet.cwd, args.dir) if args.dir else blocks.search_folders(fleet.cwd)[-1]
    if not os.path.isdir(folder):
        raise NotFound(f"there is no folder {args.dir}", "name one that exists: --dir DIR")
    done = skill.install(folder, args.clients or ["claude", "agents"], args.force, args.print)
    if args.json:
        rows = [{"path": one.path, "action": "none" if args.print else one.action, "text": one.text} for one in done]
        render.document({"dir": folder, "files": rows})
        return 0
    for one in done:
        if args.print:
            render.out(one.text, end="")
        else:
            render.note(f"{os.path.join(args.dir, one.path)}: {one.action}")
    return 0
