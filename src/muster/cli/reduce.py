from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ..fleet import Fleet
from . import improve, map, render

if TYPE_CHECKING:
    from ..flow.api import ReduceOptions
    from ..flow.run.directory import Run

REST = "PYTEST ARGS"
EXAMPLES = """
muster reduce improve-1
muster reduce map-1 --gate 'make test'
muster reduce improve-1 --integrator none --pr
muster reduce 'fix-*' topic --run mine
"""
TEXT = """
Makes the branch muster-run/RUN of the changes of a run: equal changes once, conflicts resolved by an agent or left out, batches
tested by the gate and bisected, and the gate once more on the very commit that is delivered. An agent that has submitted again since,
because somebody talked to it, is taken in first.

The gate is pytest, a command that exits with 0 in a clean checkout of the branch, or none. With pytest every change is tested alone, too:
one that makes a test fail is kept out, and the tests that it fixes are its own.

Names of agents (or globs) and of branches make a new run of what these have committed. Conflicts between those are left out unless
--integrator names a type.

What was red or unresolved is tried again when it is called again. A run that was interrupted stays unfinished: exit code 1.
"""


def options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("names", nargs="+", metavar="RUN|AGENT|BRANCH", help="one run, or agents and branches")
    add(
        "--gate",
        default="",
        metavar="GATE",
        help="pytest, none, or a command that must exit with 0 (default: [reduce] gate, or else pytest)",
    )
    add(
        "--run",
        default="",
        dest="name",
        metavar="NAME",
        help="the name of the run of agents and branches (default: reduce-1 …)",
    )
    add("--playbooks", default="", metavar="DIR", help="for an integrator of type replay")
    map.agents(parser)
    improve.ending(parser)


def run(args: argparse.Namespace, fleet: Fleet) -> int:
    from .. import flow
    from ..flow import api
    from ..flow.reducing import gate

    display = map.Display(args.json, "")

    def begin(run: Run, new: bool) -> None:
        display.follow(run.folder)
        if run.info.sources and not args.json:
            word = "run" if new else "going on with run"
            render.note(f"{word} {run.name} (muster runs show {run.name})")

    chosen = gate.parse(args.gate, args.rest) if args.gate else api.configured_gate(fleet, args.rest)
    options: ReduceOptions = {
        "name": args.name,
        "integrator": args.integrator,
        "rank": args.rank,
        "times": args.times,
        "playbooks": args.playbooks,
        "pull_request": args.pr,
        **map.agent_options(args),
        "on_begin": begin,
        "on_event": display.say,
        "on_wait": display.shown,
    }
    try:
        done = flow.reduce(fleet, args.names, gate=chosen, **options)
    except KeyboardInterrupt:
        display.end()
        if display.run:
            render.note(f"{display.run} is not finished; muster reduce {display.run} goes on with it")
        raise
    display.end()
    return improve.tell(args, done)
