from __future__ import annotations

import argparse
from typing import Any

from ..fleet import Fleet
from ..host import Found
from . import common

EXAMPLES = """
muster start fix-login
muster start --all
muster list --state lost --format '{address}' | muster start -
"""
TEXT = """
Resumes agents that have ended (done, failed, stopped, lost) in the same work dir, with the same conversation.
"""


def options(parser: argparse.ArgumentParser) -> None:
    common.selector(parser)


def run(args: argparse.Namespace, fleet: Fleet) -> int:
    def start(one: Found) -> dict[str, Any]:
        return {"started": fleet.start(one)}

    def say(row: dict[str, Any]) -> str:
        return f"started {row['address']}" if row["started"] else f"{row['address']} is already running"

    return common.for_each(args, fleet, start, say)
