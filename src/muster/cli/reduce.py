from __future__ import annotations

import argparse

from ..fleet import Fleet
from . import improve, map

EXAMPLES = """
muster reduce improve-1
muster reduce improve-1 --integrator none
muster reduce improve-1 --pr
"""
TEXT = """
Makes the branch muster-run/RUN of a run's verified changes: equal patches once, what conflicts resolved by an agent or left out,
batches tested and bisected, the tests on the very commit that is delivered. An agent that has submitted again since, because
somebody talked to it, is taken in first.
"""


def options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("name", metavar="RUN", help="the run")
    add("--playbooks", default="", metavar="DIR", help="for an integrator of type replay")
    add("--times", type=int, default=0, metavar="N", help="so often a test must pass to be believed (default: 3)")
    map.agents(parser)
    improve.ending(parser)


def run(args: argparse.Namespace, fleet: Fleet) -> int:
    from ..flow import improve as flow
    from ..flow import run as runs

    directory = runs.find(fleet.home, args.name)
    about = directory.about()
    args.places = [*about.get("paths", []), *(f"@{place}" for place in about.get("places", []) if place)]
    args.rest, args.type, args.new, args.keep = about.get("args", []), str(about.get("type")), False, False
    args.tutorial, args.everything = "", False
    wish = flow.within(improve.wished(args, fleet), directory)
    display = map.Display(args.json, directory.name)
    with directory.holding():
        return improve.deliver(args, fleet, wish, directory, display)
