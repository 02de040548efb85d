from __future__ import annotations

import argparse

from ..errors import MusterError, UsageError
from ..fleet import Fleet
from . import render

EXAMPLES = """
muster capture fix-login
muster capture fix-login --scrollback
muster capture fix-login --cast fix-login.cast
"""
TEXT = """
Prints the agent's screen. For an agent that has ended or was destroyed, it prints the last screen.
--cast writes the whole recording as an asciicast, from the first byte, with every resize.
"""


def options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("name", metavar="NAME", help="the agent, running, ended or in the trash")
    add("--ansi", action="store_true", help="keep colours (escape sequences)")
    add("--scrollback", action="store_true", help="include what has scrolled off the screen")
    add("--cast", metavar="FILE", help="write the recording to this file; - is stdout")
    add("--idle", type=float, default=0.0, metavar="SECONDS", help="with --cast: shorten pauses to this")


def run(args: argparse.Namespace, fleet: Fleet) -> int:
    if args.idle < 0:
        raise UsageError("--idle is a number of seconds", "muster capture NAME --cast FILE --idle 2")
    if args.cast:
        return _cast(args, fleet)
    text, source = fleet.screen(args.name, ansi=args.ansi, scrollback=args.scrollback)
    if args.json:
        render.document({"name": args.name, "source": source, "screen": text})
    else:
        # tmux has already interpreted all escape sequences except colours.
        render.out(text.rstrip("\n") if args.ansi else render.plain(text.rstrip("\n"), keep="\n"))
    return 0


def _cast(args: argparse.Namespace, fleet: Fleet) -> int:
    import os
    import sys

    count = 0
    temporary = f"{args.cast}.{os.getpid()}"
    if args.cast != "-" and not os.path.isdir(os.path.dirname(args.cast) or "."):
        raise MusterError(f"there is no folder {os.path.dirname(args.cast)}", f"mkdir -p {os.path.dirname(args.cast)}")
    target = sys.stdout if args.cast == "-" else open(temporary, "w", encoding="utf-8")  # noqa: SIM115  # closed below
    try:
        for line in fleet.cast(args.name, idle=args.idle or None):
            target.write(line.rstrip("\n") + "\n")
            count += 1
    finally:
        if target is not sys.stdout:
            target.close()
    if count == 0:
        if args.cast != "-":
            os.unlink(temporary)
        raise MusterError(f"{args.name} has no recording", "it was made without one, or has not started yet")
    if args.cast != "-":
        os.replace(temporary, args.cast)
        render.note(f"wrote {args.cast} ({count - 1} events); play it with: asciinema play {args.cast}")
        if args.json:
            render.document({"name": args.name, "cast": args.cast, "events": count - 1})
    return 0
