from __future__ import annotations

import argparse

from .. import config
from ..errors import NotFound
from ..fleet import Fleet
from . import render

EXAMPLES = """
muster trust
muster trust --show
muster trust --remove
"""
TEXT = """
Lets this project's .muster/config.toml run commands. Trust covers the file as it is now; after a change it must be given
again.
"""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--show", action="store_true", help="only show whether it is trusted, and what is left out")
    parser.add_argument("--remove", action="store_true", help="withdraw trust")


def run(args: argparse.Namespace, fleet: Fleet) -> int:
    path = fleet.config.project
    if not path:
        raise NotFound("this project has no .muster/config.toml", "there is nothing to trust")
    if args.remove:
        config.distrust(path, fleet.home)
    elif not args.show:
        config.trust(path, fleet.home)
    trusted = config.trusted(path, fleet.home)
    if args.json:
        render.document(
            {"file": path, "trusted": trusted, "untrusted": [] if trusted else list(fleet.config.untrusted)}
        )
    else:
        render.note(f"{path} is {'trusted' if trusted else 'not trusted'}")
        if not trusted:
            for key in fleet.config.untrusted:
                render.note(f"  left out: {key}")
    return 0
