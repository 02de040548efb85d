from __future__ import annotations

import argparse
from typing import Any

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
Ends every process of the agent, whatever it forked; its work dir, branch and conversation stay. `start` goes on.
"""


def options(parser: argparse.ArgumentParser) -> None:
    common.selector(parser)
    parser.add_argument(
        "--grace",
        type=parse_seconds,
        default=5.0,
        metavar="TIME",
        help="how long it may take to end by itself (default: 5s)",
    )


def run(args: argparse.Namespace, fleet: Fleet) -> int:
    def stop(one: Found) -> dict[str, Any]:
        fleet.stop(one, args.grace)
        was = one.status.state
        return {"was": was, "state": "stopped" if was in LIVE else was}

    def say(row: dict[str, Any]) -> str:
        return (
            f"stopped {row['address']}" if row["was"] in LIVE else f"{row['address']} had ended already ({row['was']})"
        )

    return common.for_each(args, fleet, stop, say)
