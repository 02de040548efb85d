from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ..errors import NotFound
from ..fleet import Fleet
from . import improve, map, render

if TYPE_CHECKING:
    from ..flow.improving.stages import Wish
    from ..flow.run.directory import Run

REST = "PYTEST ARGS"
EXAMPLES = """
muster reduce improve-1
muster reduce improve-1 --integrator none
muster reduce improve-1 --pr
muster reduce 'fix-*' topic --run mine
"""
TEXT = """
Makes the branch muster-run/RUN of a run's verified changes: equal patches once, what conflicts resolved by an agent or left out,
batches tested and bisected, the tests on the very commit that is delivered. An agent that has submitted again since, because
somebody talked to it, is taken in first.

Names of agents (or globs) and of branches make a new run of what these have committed; so does a run of map, of its tasks that are ok.
All tests run without them and with each of them: one that makes a test fail is kept out, and those that it fixes are its own. What
conflicts is left out, unless --integrator names a type.

What was red or unresolved is tried again when it is called again. A run that was interrupted stays unfinished: exit code 1.
"""


def options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("names", nargs="+", metavar="RUN|AGENT|BRANCH", help="one run, or agents and branches")
    add(
        "--run",
        default="",
        dest="name",
        metavar="NAME",
        help="of agents and branches: the name of the run (default: reduce-1 …)",
    )
    add("--playbooks", default="", metavar="DIR", help="for an integrator of type replay")
    map.agents(parser)
    improve.ending(parser)


def run(args: argparse.Namespace, fleet: Fleet) -> int:
    from ..flow.reducing import delivery

    args.new, args.keep, args.tutorial, args.everything = False, False, "", False
    directory, wish, new = _directory(args, fleet)
    display = map.Display(args.json, directory.folder)
    with improve.holding(fleet, directory, display, new, f"muster reduce {directory.name}"):
        delivery.check(fleet, directory)
        if args.pr:
            delivery.check_request(fleet, directory.info.repo)
        if directory.info.sources:
            from ..flow.reducing import sources

            sources.take(fleet, wish, directory, display.say)
        return improve.deliver(args, fleet, wish, directory, display)


def _directory(args: argparse.Namespace, fleet: Fleet) -> tuple[Run, Wish, bool]:
    """The run that is meant, or a new one of what is meant (True)."""
    from ..flow.improving import stages as flow
    from ..flow.reducing import sources
    from ..flow.run import directory as runs

    try:
        directory = runs.find(fleet.home, args.names[0]) if len(args.names) == 1 else None
    except NotFound:
        directory = None
    mapped = directory if directory is not None and directory.info.kind != "improve" else None
    new = directory is None or mapped is not None
    if directory is None or mapped is not None:
        # Whoever made these is not known here, so no type resolves what conflicts unless one is named.
        args.places, args.type = [], "command" if args.integrator in ("", "none") else args.integrator
        wish = improve.wished(args, fleet)
        flow.check_integrator(fleet, wish)
        if mapped is not None:
            spec = wish.map.spec._replace(source=mapped.info.repo)
            wish = wish._replace(map=wish.map._replace(spec=spec))
        directory, new = sources.gather(fleet, wish, args.names, mapped)
        if not args.json:
            word = "run" if new else "going on with run"
            render.note(f"{word} {directory.name} (muster runs show {directory.name})")
    else:
        info = directory.info
        args.places = [*info.paths, *(f"@{place}" for place in info.places if place)]
        args.rest, args.type, args.name = list(info.args), info.type, ""
        args.tutorial = info.tutorial
        if args.permissions == "ask":
            args.permissions = info.permissions
        wish = improve.wished(args, fleet)
        flow.check_integrator(fleet, wish)
    return directory, flow.within(wish, directory), new
