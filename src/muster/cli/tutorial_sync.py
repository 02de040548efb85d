from __future__ import annotations

import argparse
import shlex

from ..authoring import agent, sync
from ..errors import UsageError
from ..fleet import Fleet
from ..model import parse_seconds
from . import render
from .tutorial_fill import type_of

EXAMPLES = """
muster tutorial sync
muster tutorial sync -a claude --tutorial docs/tutorial.sh tests/e2e
muster tutorial sync --rounds 5 --timeout 2h
"""
TEXT = """
Checks the tests against the tutorial, as muster tutorial check does, and has an agent fix the findings: stale citations first, then
tests for the missing blocks, a happy and an unhappy path each. After each of its turns muster judges what the agent
committed, runs the tests it wrote in a clean checkout on the agent's host, and sends it the findings that are left. Your own tree
stays as it is until you pull. The exit code is 1 if findings are left.
"""
REST = "ARGS"


def options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("tests", nargs="*", metavar="TESTS", help="files or folders; default: tests/e2e, else tests")
    add("--tutorial", default="", metavar="FILE", help="default: tutorial.sh, else docs/tutorial.sh")
    add("-a", "--agent", default="", metavar="TYPE", help="the type of the agent; default: as for create")
    add("--name", default="", metavar="NAME", help="the agent's name or address; default: sync-…")
    add("--rounds", type=int, default=3, metavar="N", help="the most turns it gets (default: 3)")
    add("--pytest", type=shlex.split, default=[], metavar="COMMAND", help="runs the tests (default: python3 -m pytest)")
    add("--timeout", type=parse_seconds, default=3600.0, metavar="TIME", help="how long to wait in total (default: 1h)")


def run(args: argparse.Namespace, fleet: Fleet) -> int:
    if args.rounds < 1:
        raise UsageError("--rounds must be at least 1")
    at = agent.locate(args.tutorial, fleet.cwd)
    wanted = sync.tests(args.tests, at, fleet.cwd)
    pytest = args.pytest or fleet.config.section("improve").get("pytest", [])
    if not isinstance(pytest, list) or not all(isinstance(word, str) for word in pytest):
        raise UsageError("[improve] pytest must be a list of words", 'pytest = ["uv", "run", "pytest"]')
    request = agent.AgentRequest("sync", "", tuple(args.rest), args.name, args.timeout)
    synced = sync.sync(
        fleet,
        lambda: request._replace(type=type_of(args, fleet)),
        at,
        wanted,
        args.rounds,
        render.note,
        pytest,
    )
    if args.json:
        render.document(sync.to_json(synced))
    else:
        for finding in synced.findings:
            render.out(render.plain(f"{finding.file}:{finding.line}: {finding.kind}: {finding.message}"))
            for line in finding.diff.splitlines():
                render.out(render.plain(f"    {line}", keep="\t"))
    if synced.author:
        address = synced.author.status.address
        render.note(f"muster diff {address} shows what it did; muster pull {address} --merge brings it to your branch")
    elif synced.ok:
        render.note(f"{at.shown} and {', '.join(synced.tests)} are in step; there is nothing to do")
    else:
        render.note(f"only you can fix this, in {at.shown}: no agent may change it")
    return 0 if synced.ok else 1
