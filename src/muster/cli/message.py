from __future__ import annotations

import argparse
from typing import Any

from ..errors import UsageError
from ..fleet import Fleet
from ..host import Found
from . import common

EXAMPLES = """
muster message fix-login -m "Also run the linter"
muster message 'fix-*' -m "Stop where you are and commit"
muster message fix-login --message-file notes.md
git diff | muster message review --message-file -
"""
TEXT = """
Sends text to agents. `delivered` means that the agent's client confirmed the text, `queued` that a working agent has it
for its next turn, `typed` that this type (a plain command) cannot confirm it. If a dialog is open, nothing is sent
(exit code 7).
"""


def options(parser: argparse.ArgumentParser) -> None:
    common.selector(parser)
    parser.add_argument("-m", "--message", default=None, help="the text")
    parser.add_argument("--message-file", metavar="FILE", help="the text, from a file; - is stdin")
    parser.add_argument("--raw", action="store_true", help="send a leading / or ! as it is, as a command of the client")


def run(args: argparse.Namespace, fleet: Fleet) -> int:
    if args.message is not None and args.message_file is not None:
        raise UsageError("--message and --message-file were both given", "use one of them")
    if args.message is None and args.message_file is None:
        raise UsageError("one of --message and --message-file is needed", "muster message NAME -m 'text'")
    text = args.message if args.message is not None else common.read_text(args.message_file)
    if not text:
        raise UsageError("the message is empty")

    def send(one: Found) -> dict[str, Any]:
        return {"result": fleet.message(one, text, raw=args.raw)}

    return common.for_each(args, fleet, send, lambda row: f"{row['result']}: {row['address']}")
