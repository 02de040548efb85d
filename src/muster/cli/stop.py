from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from .. import fanout, tmux
from ..fleet import Fleet
from ..host import Found
from ..model import LIVE, parse_seconds
from . import common

EXAMPLES = """
muster stop fix-login
muster stop 'fix-*' --grace 30s
muster stop --all
"""
TEXT = """
Ends every process of the agent, including what it forked. Work dir, branch and conversation stay; `start` resumes it.
"""


def options(parser: argparse.ArgumentParser) -> None:
    common.selector(parser)
    parser.add_argument(
        "--grace",
        type=parse_seconds,
        default=5.0,
        metavar="TIME",
        help="time to end by itself before it is killed (default: 5s)",
    )


def run(args: argparse.Namespace, fleet: Fleet) -> int:
    def stop(chosen: Sequence[Found]) -> list[fanout.Outcome[Found, dict[str, Any]]]:
        return [_told(outcome) for outcome in fleet.stop_all(chosen, args.grace)]

    def say(row: dict[str, Any]) -> str:
        if row["was"] in LIVE:
            return f"stopped {row['address']}"
        if not row["processes"]:
            return f"{row['address']} had ended already ({row['was']})"
        count = f"{row['processes']} process" + ("" if row["processes"] == 1 else "es")
        return f"stopped {row['address']}, which was {row['was']}; {count} of it still ran"

    return common.for_all(args, fleet, stop, say)


def _told(outcome: fanout.Outcome[Found, tmux.Stopped]) -> fanout.Outcome[Found, dict[str, Any]]:
    if outcome.value is None:
        return fanout.Outcome(outcome.item, None, outcome.error)
    was = outcome.item.status.state
    # It may have started or ended since its state was read.
    if was not in LIVE and outcome.value.live:
        was = "working"
    row = {"was": was, "state": "stopped" if was in LIVE else was, "processes": outcome.value.processes}
    return fanout.Outcome(outcome.item, row)
