from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

from ..errors import UsageError
from ..fleet import Fleet, Listing
from ..model import STATES, Status, parse_labels
from . import common, render

EXAMPLES = """
muster list
muster list --state waiting --state failed
muster list -l run=42 --git
muster list --format '{name} {state}'
muster list --watch
"""
TEXT = """
Shows every agent on this machine and on every host once used. A host that does not answer is a row. COST is in
dollars; it is in tokens where a price is not known, and - where those are not known either.
With --watch, the command of [notify] is told of agents on other hosts (docs/notify.md); those here tell it themselves.
"""
COLUMNS = ("NAME", "STATE", "REASON", "AGE", "TYPE", "HOST", "BRANCH", "COST")


def options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--state", action="append", default=[], choices=STATES, help="only agents in this state")
    add("-l", "--label", action="append", default=[], metavar="K=V", help="only agents with this label")
    add("--host", action="append", default=[], help="only agents on this host; local is this machine")
    add("--type", dest="type_filter", action="append", default=[], metavar="TYPE", help="only agents of this type")
    add("--here", action="store_true", help="only agents of the repository you are in")
    add("--git", action="store_true", help="also show commits ahead and changed files")
    add("--format", default="", metavar="TEXT", help="one line an agent, with {name}, {state} and every key of --json")
    add("--watch", action="store_true", help="go on, and show every change")


def run(args: argparse.Namespace, fleet: Fleet) -> int:
    if args.watch:
        return _watch(args, fleet)
    listing = _look(args, fleet)
    _show(args, fleet, listing)
    return 0


def _look(args: argparse.Namespace, fleet: Fleet, seen: Callable[[list[Status]], None] | None = None) -> Listing:
    places = [("" if host == "local" else host) for host in args.host] or None
    listing = fleet.survey(places)
    if seen:
        seen(listing.statuses)
    wanted = parse_labels(args.label)
    here = _here(fleet) if args.here else ""
    kept = [
        status
        for status in listing.statuses
        if (not args.state or status.state in args.state)
        and (not args.type_filter or status.agent.type in args.type_filter)
        and all(status.agent.labels.get(key) == value for key, value in wanted.items())
        and (not args.here or status.agent.repo == here)
    ]
    return Listing(kept, listing.hosts)


def _here(fleet: Fleet) -> str:
    from .. import git

    repo = git.find(fleet.local, fleet.cwd)
    return (repo.top or repo.common) if repo else fleet.cwd


def _show(args: argparse.Namespace, fleet: Fleet, listing: Listing) -> None:
    counts = fleet.git_counts(listing.statuses) if args.git else {}
    rows = common.agents_json(fleet, listing.statuses, counts)
    if args.json:
        hosts = [
            {"name": row.name or None, "provider": row.provider, "reachable": row.reachable, "seen": row.seen or None}
            for row in listing.hosts
        ]
        render.document({"agents": rows, "hosts": hosts})
        return
    if args.format:
        for row in rows:
            render.out(render.plain(_fill(args.format, row)))
        return
    _table(args, listing, rows)


def _fill(form: str, row: dict[str, object]) -> str:
    try:
        return form.format(**{key: "" if value is None else value for key, value in row.items()})
    except (KeyError, IndexError, ValueError, AttributeError, TypeError) as error:
        told = f"{error} is not a key" if isinstance(error, KeyError) else str(error)
        raise UsageError(f"--format: {told}", f"known: {', '.join(row)}; {{{{ and }}}} are braces") from error


def _table(args: argparse.Namespace, listing: Listing, rows: list[dict[str, Any]]) -> None:
    if not rows and not listing.unreachable:
        filtered = args.state or args.label or args.host or args.type_filter or args.here
        render.note("no agent matches" if filtered else "there are no agents yet; muster create makes one")
        return
    head = [*COLUMNS, *(("AHEAD", "DIRTY") if args.git else ()), "LAST LINE"]
    lines, states = [], []
    for status, row in zip(listing.statuses, rows, strict=True):
        git = [_number(row["ahead"]), _number(row["dirty"])] if args.git else []
        lines.append(
            [
                status.agent.name,
                status.state,
                _reason(status),
                render.age(status.now - status.since),
                status.agent.type,
                status.address.place or "local",
                status.agent.branch or "-",
                _cost(row),
                *git,
                str(row["last_line"] or "")[:80],
            ]
        )
        states.append(status.state)
    for host in listing.unreachable:
        ago = f"last answer {render.age(time.time() - host.seen)} ago" if host.seen else "never answered"
        lines.append(
            ["-", "unreachable", ago, "-", "-", host.name, "-", "-", *(("-", "-") if args.git else ()), host.error]
        )
        states.append("unreachable")
    render.table(head, lines, states)


def _reason(status: Status) -> str:
    if status.until:
        return f"{status.reason} until {time.strftime('%H:%M', time.localtime(status.until))}"
    return status.reason or "-"


def _number(value: object) -> str:
    return "?" if value is None else str(value)


def _cost(row: dict[str, Any]) -> str:
    """Where only the tokens are known, those."""
    if row["cost_usd"] is None and row["tokens"] is not None:
        return f"{row['tokens']} tok"
    return render.dollars(row["cost_usd"])


def _watch(args: argparse.Namespace, fleet: Fleet) -> int:
    """Every change as it is seen: a line each, or a redrawn table on a terminal."""
    last: dict[str, object] = {}
    watch = fleet.watch()
    while True:
        listing = _look(args, fleet, watch.see)
        now = {f"{s.host}/{s.agent.id}": (str(s.address), s.state, s.reason) for s in listing.statuses}
        if args.json:
            for key in [*now, *(key for key in last if key not in now)]:
                if now.get(key) != last.get(key):
                    state = now.get(key)
                    name = (state or last[key])[0]  # type: ignore[index]  # the triples made above
                    render.line(
                        {
                            "t": time.time(),
                            "address": name,
                            "state": state and state[1],
                            "reason": (state and state[2]) or None,
                        }
                    )
        elif now != last:
            if render.coloured():
                render.out("\x1b[H\x1b[2J", end="")
            _show(args, fleet, listing)
        last = dict(now)
        render.flush()
        time.sleep(0.5)
