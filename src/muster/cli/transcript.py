from __future__ import annotations

import argparse
import json
from typing import Any

from ..fleet import Fleet
from . import common, render

EXAMPLES = """
muster transcript fix-login
muster transcript fix-login --last 5
muster transcript fix-login --follow --json
"""
TEXT = """
Prints an agent's conversation in one format for all types: user, assistant, tool and error entries, with usage. Agents
that have ended or were destroyed have one too.
"""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the agent")
    parser.add_argument("--last", type=common.count, metavar="N", help="only the last N entries")
    parser.add_argument("--follow", action="store_true", help="keep printing new entries (with --json: JSON Lines)")


def run(args: argparse.Namespace, fleet: Fleet) -> int:
    everything = fleet.transcript(args.name)
    entries = everything
    if args.last is not None:
        entries = entries[-args.last :] if args.last > 0 else []
    if args.json and not args.follow:
        render.document({"name": args.name, "entries": entries})
        return 0
    for entry in entries:
        _show(entry, args.json)
    if args.follow:
        render.flush()
        for entry in fleet.follow(args.name, "transcript", len(everything)):
            _show(entry, args.json)
            render.flush()
    return 0


def _show(entry: dict[str, Any], as_json: bool) -> None:
    if as_json:
        render.line(entry)
        return
    tool = entry.get("tool")
    head = f"{entry.get('role', '?')}" + (f" {tool.get('name', '')}" if isinstance(tool, dict) else "")
    render.out(f"## {render.plain(head)}")
    if isinstance(tool, dict):
        given = tool.get("input", "")
        render.out(render.plain(f"$ {given if isinstance(given, str) else json.dumps(given)}", keep="\n\t"))
        if tool.get("output"):
            render.out(render.plain(str(tool["output"]).rstrip("\n"), keep="\n\t"))
    if entry.get("text"):
        render.out(render.plain(str(entry["text"]).rstrip("\n"), keep="\n\t"))
    render.out()
