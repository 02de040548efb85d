from __future__ import annotations

import argparse
import fnmatch
import time
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import MusterError, Unreachable, UsageError, worst
from ..fleet import Fleet, Listing, is_glob
from ..model import STATES, Address, Status, parse_labels
from . import common, render

EXAMPLES = """
muster list
muster list fix-login 'docs-*'
muster list --state waiting --state failed
muster list -l run=42 --git
muster list --format '{name} {state}'
muster list --watch
"""
TEXT = """
Shows every agent on this machine and on all known hosts, or only those that you name. A host that does not answer gets
a row of its own. COST is in dollars, in tokens if the price is unknown, and - if the tokens are unknown too. A narrow
terminal shows fewer columns; --json and --format always have all.

With --watch, muster also runs the command of [notify] for agents on other hosts (docs/notify.md).
"""
COLUMNS = ("NAME", "STATE", "REASON", "AGE", "TYPE", "HOST", "BRANCH", "COST")


def options(parser: argparse.ArgumentParser) -> None:
    common.selector(parser)
    add = parser.add_argument
    known = ", ".join(STATES)
    add("--state", action="append", default=[], choices=STATES, metavar="STATE", help=f"only agents in one of: {known}")
    add("--host", action="append", default=[], help="only agents on this host; local is this machine")
    add("--type", dest="type_filter", action="append", default=[], metavar="TYPE", help="only agents of this type")
    add("--here", action="store_true", help="only agents of the repository you are in")
    add("--git", action="store_true", help="also show commits and changed files")
    add(
        "--format",
        default="",
        metavar="TEXT",
        help="print a line per agent: {name}, {state} and any other key of --json",
    )
    add("--watch", action="store_true", help="keep running and show every change")


def run(args: argparse.Namespace, fleet: Fleet) -> int:
    if args.watch:
        return _watch(args, fleet)
    names = _names(args, fleet)
    listing = _look(args, fleet, names)
    errors = _missing(fleet, names, listing)
    _show(args, fleet, listing, errors)
    return worst([error.exit_code for error in errors])


def _names(args: argparse.Namespace, fleet: Fleet) -> list[str] | None:
    """Return what was named, exact names as agents show them; None if nothing was."""
    words = common.names(args)
    return None if words is None else [word if is_glob(word) else fleet.canonical(word) for word in words]


def _look(
    args: argparse.Namespace,
    fleet: Fleet,
    names: list[str] | None,
    seen: Callable[[list[Status]], None] | None = None,
) -> Listing:
    places: list[str] | None = [("" if host == "local" else host) for host in args.host] or None
    if names is not None and places is None and not any(map(is_glob, names)):
        places = [Address.parse(name).place for name in names]  # an exact name asks its host only
    listing = fleet.survey(places)
    if seen:
        seen(listing.statuses)
    wanted = parse_labels(args.label)
    here = _here(fleet) if args.here else ""
    kept = [
        status
        for status in listing.statuses
        if (names is None or any(_matches(status, name) for name in names))
        and (not args.state or status.state in args.state)
        and (not args.type_filter or status.agent.type in args.type_filter)
        and all(status.agent.labels.get(key) == value for key, value in wanted.items())
        and (not args.here or status.agent.repo == here)
    ]
    return Listing(kept, listing.hosts)


def _matches(status: Status, name: str) -> bool:
    if is_glob(name):
        return fnmatch.fnmatchcase(str(status.address), name)
    return str(status.address) == name


def _missing(fleet: Fleet, names: list[str] | None, listing: Listing) -> list[MusterError]:
    """Return an error for each name that no agent has. An agent that other options filter out is not missing."""
    errors: list[MusterError] = []
    silent = {row.name: row.error for row in listing.unreachable}
    for name in names or ():
        place = "" if is_glob(name) else Address.parse(name).place
        if place in silent:
            errors.append(Unreachable(f"host {place} does not answer: {silent[place]}"))
        elif not any(_matches(status, name) for status in listing.statuses):
            errors += fleet.select([name])[1]
    return errors


def _here(fleet: Fleet) -> str:
    from .. import git

    repo = git.find(fleet.local, fleet.cwd)
    return (repo.top or repo.common) if repo else fleet.cwd


def _show(args: argparse.Namespace, fleet: Fleet, listing: Listing, errors: Sequence[MusterError] = ()) -> None:
    for error in errors if not args.json else ():
        render.error(error)
    counts = fleet.git_counts(listing.statuses) if args.git else {}
    rows = common.agents_json(fleet, listing.statuses, counts)
    if args.json:
        hosts = [
            {"name": row.name or None, "provider": row.provider, "reachable": row.reachable, "seen": row.seen or None}
            for row in listing.hosts
        ]
        render.document({"agents": rows, "hosts": hosts, "errors": [render.problem_json(error) for error in errors]})
        return
    if args.format:
        for row in rows:
            render.out(render.plain(_fill(args.format, row)))
        return
    if rows or listing.unreachable or not errors:
        _table(args, listing, rows)


def _fill(form: str, row: dict[str, object]) -> str:
    try:
        return form.format(**{key: "" if value is None else value for key, value in row.items()})
    except (KeyError, IndexError, ValueError, AttributeError, TypeError) as error:
        why = f"{error} is not a key" if isinstance(error, KeyError) else str(error)
        raise UsageError(f"--format: {why}", f"known: {', '.join(row)}; {{{{ and }}}} are braces") from error


def _table(args: argparse.Namespace, listing: Listing, rows: list[dict[str, Any]]) -> None:
    if not rows and not listing.unreachable:
        filtered = args.names or args.state or args.label or args.host or args.type_filter or args.here
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
                _last(status, row),
            ]
        )
        states.append(status.state)
    for host in listing.unreachable:
        ago = f"last answer {render.age(time.time() - host.seen)} ago" if host.seen else "never answered"
        lines.append(
            ["-", "unreachable", ago, "-", "-", host.name, "-", "-", *(("-", "-") if args.git else ()), host.error]
        )
        states.append("unreachable")
    local = not any(line[head.index("HOST")] != "local" for line in lines)
    drop = [*(["HOST"] if local else []), "BRANCH", "TYPE", "COST", "AGE", "HOST", "DIRTY", "AHEAD"]
    render.table(head, lines, states, drop=drop, text=["REASON", "LAST LINE"])


def _last(status: Status, row: dict[str, Any]) -> str:
    """Return the question of a waiting agent, whole; the last line of any other may be cut."""
    if status.state == "waiting" and row["question"]:
        return " ".join(str(row["question"]).split())
    return render.Clip(str(row["last_line"] or "")[:80])


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
    names = _names(args, fleet)
    while True:
        listing = _look(args, fleet, names, watch.see)
        if names and not last and (errors := _missing(fleet, names, listing)):
            raise errors[0]
        now = {f"{s.place}/{s.agent.id}": (str(s.address), s.state, s.reason) for s in listing.statuses}
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
