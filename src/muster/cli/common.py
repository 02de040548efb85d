"""Shared by the verbs: selecting agents, acting on many of them, and the JSON of an agent."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .. import fanout, plugins
from ..errors import MusterError, worst
from ..fleet import Fleet
from ..host import Found
from ..model import Bill, Status, parse_labels
from . import render
from .parse import stdin_words


def selector(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that select agents, which are the same for every verb that takes several."""
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="a name, NAME@HOST, a glob in quotes, or - for names on stdin"
    )
    parser.add_argument("-l", "--label", action="append", default=[], metavar="K=V", help="all agents with this label")
    parser.add_argument("--all", action="store_true", help="every agent")


def names(args: argparse.Namespace) -> list[str] | None:
    """Return the names that were given, those on stdin included; None if none were asked for."""
    words = [word for name in args.names for word in (stdin_words() if name == "-" else [name])]
    return words if args.names else None


def choose(args: argparse.Namespace, fleet: Fleet) -> tuple[list[Found], list[MusterError]]:
    words = names(args)
    if words == []:
        return [], []
    return fleet.select(words or [], parse_labels(args.label), args.all)


def for_each(
    args: argparse.Namespace,
    fleet: Fleet,
    work: Callable[[Found], dict[str, Any]],
    say: Callable[[dict[str, Any]], str],
    limit: int = 16,
    shows: bool = False,
) -> int:
    """Call `work` for every chosen agent and return the worst exit code; a failure does not stop the rest.

    `say` turns a result into a line, which goes to stdout if the verb `shows` something, and to stderr otherwise.
    """
    return for_all(args, fleet, lambda chosen: fanout.each(work, chosen, limit), say, shows)


def for_all(
    args: argparse.Namespace,
    fleet: Fleet,
    work: Callable[[Sequence[Found]], Sequence[fanout.Outcome[Found, dict[str, Any]]]],
    say: Callable[[dict[str, Any]], str],
    shows: bool = False,
) -> int:
    """Do what `for_each` does, for work that handles all chosen agents at once."""
    chosen, errors = choose(args, fleet)
    results = [{"name": None, "ok": False, "error": render.problem_json(error)} for error in errors]
    for error in errors:
        if not args.json:
            render.error(error)
    codes = [error.exit_code for error in errors]
    for outcome in work(chosen):
        one = outcome.item
        row: dict[str, Any] = {"name": one.agent.name, "address": str(one.status.address)}
        if outcome.error is not None:
            codes.append(outcome.error.exit_code)
            results.append({**row, "ok": False, "error": render.problem_json(outcome.error)})
            if not args.json:
                render.error(_named(outcome.error, row["name"], row["address"]))
            continue
        codes.append(0)
        row.update({"ok": True, **outcome.get()})
        results.append(row)
        if not args.json and (text := say(row)):
            (render.out if shows else render.note)(text)
    if args.json:
        render.document({"results": results})
    return worst(codes) if codes else 0


def _named(error: MusterError, name: str, address: str) -> MusterError:
    """Name the agent in an error that does not, because the error is shown among those of others."""
    if name not in error.message:
        error.message = f"{address}: {error.message}"
    return error


def agents_json(
    fleet: Fleet, statuses: Sequence[Status], git: Mapping[tuple[str, str], tuple[int, int]] | None = None
) -> list[dict[str, Any]]:
    """Return agents as `list --json` shows them; unknown values are null."""
    counts = git or {}
    return [
        _agent_json(status, bill, counts.get((status.place, status.agent.id)))
        for status, bill in zip(statuses, fleet.bills(statuses), strict=True)
    ]


def _agent_json(status: Status, bill: Bill, git: tuple[int, int] | None) -> dict[str, Any]:
    agent = status.agent
    return {
        "name": agent.name,
        "address": str(status.address),
        "host": status.host or None,
        "provider": status.provider,
        "type": agent.type,
        "state": status.state,
        "reason": status.reason or None,
        "since": status.since,
        "repo": agent.repo or None,
        "branch": agent.branch or None,
        "base": agent.base or None,
        "workdir": agent.workdir or None,
        "mode": agent.mode or None,
        "labels": agent.labels,
        "created": agent.created,
        "ahead": git[0] if git else None,
        "dirty": git[1] if git else None,
        **render.bill_json(bill),
        "last_line": render.plain(status.last_line)[:500] or None,
        "question": render.plain(status.question, keep="\n") or None,
        "id": agent.id,
        "exit_code": status.exit_code,
        "until": status.until,
        "alarms": [alarm._asdict() for alarm in status.alarms],
    }


def note_versions(fleet: Fleet, made: Sequence[Found]) -> None:
    """Print one line for each untested client version among these agents."""
    misfits = {plugins.misfit(fleet.type(one.agent.type), one.version): None for one in made if one.version}
    for found in filter(None, misfits):
        render.note(f"{found.text}; install a tested one: {found.fix}" if found.fix else found.text)


def client(args: argparse.Namespace, fleet: Fleet, verb: str) -> str:
    """Return the type that `-a` names, or else the first client that is installed."""
    return str(
        args.type or fleet.default_type(f"name one: muster {verb} -a TYPE …; muster doctor shows what is installed")
    )


def count(word: str) -> int:
    """Parse a whole number that is not negative."""
    from ..errors import UsageError

    if not word.isascii() or not word.isdigit():
        raise UsageError(f"{word!r} is not a number", "such as 5")
    return int(word)


def read_text(path: str) -> str:
    """Return the text of a file, or of stdin for `-`."""
    import sys

    from ..errors import UsageError

    try:
        data = sys.stdin.buffer.read() if path == "-" else open(path, "rb").read()  # noqa: SIM115  # read whole, at once
        return data.decode()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text") from error
