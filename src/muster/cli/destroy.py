from __future__ import annotations

import argparse
from typing import Any

from ..fleet import Fleet
from . import common

EXAMPLES = """
muster destroy fix-login
muster destroy 'fix-*'
muster destroy -l run=42
"""
TEXT = """
Ends and removes agents. Nothing is lost: commits, index, changed, new and ignored files, transcript and recording stay in
the trash for 30 days, and `restore` brings them back. Work that exists nowhere else is listed.
"""


def options(parser: argparse.ArgumentParser) -> None:
    common.selector(parser)


def run(args: argparse.Namespace, fleet: Fleet) -> int:
    def say(row: dict[str, Any]) -> str:
        kept = ", ".join(row["kept"])
        return f"destroyed {row['address']}; " + (
            f"kept for {row['days']} days: {kept} (muster restore {row['address']})"
            if kept
            else "it had changed nothing"
        )

    return common.for_all(args, fleet, fleet.destroy_all, say)
