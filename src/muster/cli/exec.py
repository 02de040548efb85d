from __future__ import annotations

import argparse
import os

from ..errors import UsageError
from ..fleet import Fleet
from . import render

EXAMPLES = """
muster exec fix-login -- git log --oneline -3
muster exec fix-login -- sh -c 'pytest -x 2>&1 | tail'
tar c data | muster exec fix-login -- tar x
"""
TEXT = """
Runs a command in the agent's work dir, also after the agent has ended. Input, output and exit code are passed through.
"""
REST = "COMMAND"


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the agent")


def run(args: argparse.Namespace, fleet: Fleet) -> int:
    if not args.rest:
        raise UsageError("there is no command", f"muster exec {args.name} -- COMMAND")
    one = fleet.get(args.name)
    if args.json:
        import subprocess

        process = fleet.exec(one, args.rest, terminal=False, stdout=subprocess.PIPE)
        stdout, _ = process.communicate()
        code = _shell_code(process.returncode)
        render.document({"name": one.agent.name, "exit_code": code, "stdout": stdout.decode("utf-8", "replace")})
        return code
    # With a terminal here, the command gets one too: `muster exec NAME -- bash` is a shell.
    process = fleet.exec(one, args.rest, terminal=os.isatty(0) and os.isatty(1))
    try:
        code = process.wait()
    except KeyboardInterrupt:
        code = process.wait()
    return _shell_code(code)


def _shell_code(code: int) -> int:
    """Return the exit code as a shell reports it: 128 + n after signal n."""
    return 128 - code if code < 0 else code
