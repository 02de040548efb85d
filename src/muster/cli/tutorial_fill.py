from __future__ import annotations

import argparse
import shlex
import sys
from typing import Any

from ..authoring import agent, fill
from ..errors import UsageError
from ..fleet import Fleet
from ..model import parse_seconds
from . import render
from .parse import terminal

EXAMPLES = """
muster tutorial fill
muster tutorial fill docs/tutorial.sh -a claude --heading "Managing snapshots"
muster tutorial fill --from fill-3f2a91 --accept passing
muster tutorial fill --from fill-3f2a91 --accept say-hello-1c9a0e,count-4d7b12
"""
TEXT = """
Has an agent write examples for the headings of a tutorial (comments with nothing under them), on a branch of its own. Every example
is run in the agent's work dir. Those that fail, or use flags that the program's help does not name, are listed as interface findings:
the program or its documentation is confusing. You keep the ones you like, with --accept or, on a terminal, one by one. They are
committed on the agent's branch; your own tree stays as it is until you pull. The default FILE is tutorial.sh or docs/tutorial.sh.
"""
REST = "ARGS"
SHOWN_LINES = 12


def options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("file", nargs="?", default="", metavar="FILE", help="the script")
    add("-a", "--agent", default="", metavar="TYPE", help="the type of the agent; default: as for create")
    add(
        "--heading",
        action="append",
        default=[],
        metavar="TEXT",
        help="only headings that contain TEXT; may be repeated",
    )
    add("--name", default="", metavar="NAME", help="the agent's name or address; default: fill-…")
    add("--timeout", type=parse_seconds, default=1800.0, metavar="TIME", help="how long to wait for it (default: 30m)")
    add("--accept", default="", metavar="IDS", help="keep these: ID,ID, or passing, or all")
    add("--from", dest="source", default="", metavar="AGENT", help="choose from what an earlier fill proposed")


def run(args: argparse.Namespace, fleet: Fleet) -> int:
    if args.source and (args.agent or args.name or args.rest):
        raise UsageError(
            "-a, --name and ARGS are for a new agent, and --from creates none", "leave out --from or the others"
        )
    at = agent.locate(args.file, fleet.cwd)
    wanted = fill.headings(at, args.heading)
    say = render.note
    if args.source:
        filled = fill.resume(fleet, args.source, at, wanted, args.timeout, say)
    elif not wanted:
        if args.json:
            nothing: dict[str, Any] = {key: [] for key in ("proposals", "findings", "changed", "accepted")}
            render.document({"agent": None, "tutorial": at.shown, **nothing, "branch": None})
        else:
            render.note(f"{at.shown} has no heading to fill: write a comment with an empty line above and below it")
        return 0
    else:
        request = agent.AgentRequest("fill", type_of(args, fleet), tuple(args.rest), args.name, args.timeout)
        filled = fill.fill(fleet, request, at, wanted, say)
    address = filled.author.status.address
    picked: list[str] = []
    if args.accept:
        _show(args, filled)
        picked = fill.chosen(filled, args.accept)
    elif terminal() and not args.json:
        picked = _pick(filled)
    else:
        _show(args, filled)
    accepted = fill.accept(fleet, filled, picked) if picked else []
    if args.json:
        render.document(fill.to_json(filled, accepted))
    if not filled.proposals:
        render.note(f"{address} proposed nothing: muster connect {address} shows what it did")
        return 1
    if accepted:
        render.note(
            f"{len(accepted)} kept on {filled.author.agent.branch}; muster pull {address} --merge brings them to your branch"
        )
    else:
        again = f"muster tutorial fill {shlex.quote(at.shown)} --from {address} --accept"
        passing = [proposal.id for proposal in filled.proposals if proposal.ok]
        render.note(f"nothing was kept; {again} {','.join(passing[:2]) or filled.proposals[0].id} (or passing, or all)")
    return 0


def type_of(args: argparse.Namespace, fleet: Fleet) -> str:
    """Return the named type, the type configured for create, or the first client that is installed."""
    return str(args.agent or fleet.config.command("create").get("type") or fleet.default_type("name one with -a TYPE"))


def _show(args: argparse.Namespace, filled: fill.Filled) -> None:
    if args.json:
        return
    for proposal in filled.proposals:
        _proposal(proposal)
    _findings(filled)


def _proposal(proposal: fill.Proposal) -> None:
    render.out(render.plain(f"{proposal.id}  ({'ok' if proposal.ok else proposal.findings[0].message})"))
    render.out(render.plain(f"  under: {proposal.heading}"))
    for line in proposal.text.split("\n"):
        render.out(render.plain(f"    {line}", keep="\t"))
    if not proposal.ok:
        for line in proposal.output.strip().split("\n")[-SHOWN_LINES:] if proposal.output.strip() else []:
            render.out(render.plain(f"  | {line}", keep="\t"))
    render.out()


def _findings(filled: fill.Filled) -> None:
    found = [(proposal, finding) for proposal in filled.proposals for finding in proposal.findings]
    if found:
        render.out("Interface findings (the program or its documentation is confusing):")
    for proposal, finding in found:
        render.out(render.plain(f"  {proposal.id}: {finding.message}"))
    if filled.changed:
        render.out("Other edits, not taken:")
    for change in filled.changed:
        first = change.text.split("\n")[0]
        render.out(render.plain(f"  {change.kind}, line {change.line}: {first}"))


def _pick(filled: fill.Filled) -> list[str]:
    """Ask for each example: y keeps it, n skips it, q ends."""
    kept: list[str] = []
    for number, proposal in enumerate(filled.proposals, 1):
        _proposal(proposal)
        word = ""
        while word not in ("y", "n", "q"):
            render.out(f"[{number}/{len(filled.proposals)}] keep it? y/n/q ", end="")
            render.flush()
            line = sys.stdin.readline()
            word = line.strip().lower()[:1] if line else "q"
        if word == "q":
            break
        kept += [proposal.id] if word == "y" else []
    _findings(filled)
    return kept
