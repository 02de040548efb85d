from __future__ import annotations

import argparse
from pathlib import Path

from ..fleet import Fleet
from . import render

EXAMPLES = """
muster report
muster report --open
muster report build/e2e --out public/e2e
"""
TEXT = """
Makes the page of a test run from the artifact folder of `pytest --e2e-artifacts DIR`: the tutorial's blocks beside the tests
that cite them, transcripts, and recordings to play. It opens from a file, without a network, and can be put on any web server.
A report made before is replaced; a folder that holds anything else is left as it is.
"""


def options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("folder", nargs="?", default=".muster/e2e", metavar="DIR", help="the artifact folder (default: .muster/e2e)")
    add("--out", metavar="DIR", help="where to make the page (default: report in the artifact folder)")
    add("--open", action="store_true", help="show it in the browser")


def run(args: argparse.Namespace, fleet: Fleet) -> int:
    from ..report import page, player

    del fleet
    made = page.make(Path(args.folder), Path(args.out) if args.out else None)
    if args.json:
        render.document({"report": str(made.path), "tests": made.tests, "outcomes": made.outcomes})
    else:
        told = ", ".join(f"{count} {name}" for name, count in made.outcomes.items())
        render.note(f"{made.tests} {'test' if made.tests == 1 else 'tests'}{': ' if told else ''}{told}")
        if not player.find():
            render.note(f"recordings show their last screen only; to play them: {player.INSTALL}")
        render.out(str(made.path))
    if args.open:
        import webbrowser

        if not webbrowser.open(made.path.resolve().as_uri()):
            render.note(f"no browser could be started; open {made.path.resolve().as_uri()}")
    return 0
