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
A project's .muster/config.toml may run commands only after you trusted it, as it is now: when the file changes, it has to be
trusted again.
"""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--show", action="store_true", help="only say whether it is trusted, and what that would allow")
    parser.add_argument("--remove", action="store_true", help="trust it no longer")


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
