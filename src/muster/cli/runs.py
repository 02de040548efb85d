from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..errors import Unreachable, UsageError, close
from ..fleet import Fleet
from ..model import Address
from . import improve, render

if TYPE_CHECKING:
    from ..flow.run.directory import Record, Run
    from ..host import Found

EXAMPLES = """
muster runs
muster runs show map-1
muster runs show map-1 3
muster runs pause map-1
muster runs set map-1 max_agents=4 dollars=20
muster runs stop map-1
muster runs rm map-1
muster runs escalations
"""
TEXT = """
Shows the runs of map and improve, one of them with all its tasks, or one task by its id or number with all that is known of it. Some actions ask something of the process that runs it: pause (no more is
launched) and resume, stop (its agents are harvested and ended, the rest is cancelled; also when that process was killed), set (another limit). rm removes a run's
directory and its agents; branches stay. escalations shows what agents want somebody to know, close ID hides one of them.
"""
ACTIONS = ("show", "pause", "resume", "stop", "set", "rm", "escalations", "close")
#: Words of other programs, and what does that here.
FAMILIAR = {
    "cancel": "runs stop",
    "delete": "runs rm",
    "kill": "runs stop",
    "list": "runs",
    "ls": "runs",
    "remove": "runs rm",
    "status": "runs show",
}
KEYS = ("max_agents", "dollars", "tokens", "launch_rate")
#: Those that are counts, and such a count.
WHOLE = {"max_agents": 4, "tokens": 100000}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", nargs="?", default="", metavar="ACTION", help=f"what to do: {', '.join(ACTIONS)}")
    parser.add_argument("name", nargs="?", default="", metavar="RUN", help="the run")
    parser.add_argument(
        "values",
        nargs="*",
        default=[],
        metavar="WORD",
        help=f"for show: a task; for set: KEY=VALUE of {', '.join(KEYS)}",
    )


def run(args: argparse.Namespace, fleet: Fleet) -> int:
    from ..flow.run import directory as runs

    if not args.action:
        return _all(args, [one.overview() for one in runs.all_runs(fleet.home)])
    if args.action not in ACTIONS:
        a_run = any(one.name == args.action for one in runs.all_runs(fleet.home))
        meant = FAMILIAR.get(args.action) or next(iter(close(args.action, ACTIONS, 1)), "")
        hint = f"did you mean {meant!r}?" if meant else f"use one of: {', '.join(ACTIONS)}"
        hint = f"muster runs show {args.action}" if a_run else hint
        raise UsageError(f"runs has no action {args.action!r}", hint)
    if args.action == "escalations":
        if args.name:
            raise UsageError("runs escalations takes no name", "muster runs escalations")
        return _escalations(args, fleet)
    if not args.name:
        which, hint = ("escalation", "muster runs escalations") if args.action == "close" else ("run", "muster runs")
        raise UsageError(f"which {which} to {args.action}?", f"{hint} shows them")
    if args.action == "show" and len(args.values) > 1:
        raise UsageError("runs show takes one task", f"muster runs show {args.name} {args.values[0]}")
    if args.values and args.action not in ("set", "show"):
        raise UsageError(f"runs {args.action} takes no values", f"muster runs set {args.name} KEY=VALUE")
    if args.action == "close":
        return _close(args, fleet)
    one = runs.find(fleet.home, args.name)
    if args.action == "show" and args.values:
        from . import task

        return task.show(args, fleet, one, args.values[0])
    if args.action == "show":
        return _show(args, fleet, one)
    if args.action == "rm":
        _remove(fleet, one)
        told = f"removed {one.name}; its branches stay"
    elif args.action == "set":
        if one.finished():
            raise UsageError(f"{one.name} is finished, there is nothing to set", f"muster runs show {one.name}")
        one.ask(**_values(args.values))
        told = f"{one.name}: {' '.join(args.values)}"
    else:
        if not one.held() and args.action == "stop" and not one.finished():
            return _end(args, fleet, one)
        if not one.held():
            goes_on = f"the same command goes on with it; muster runs stop {one.name} ends it"
            hint = f"muster runs show {one.name}" if one.finished() else goes_on
            raise UsageError(f"no process is running {one.name} ({one.state()})", hint)
        wish: dict[str, Any] = {"state": {"pause": "paused", "resume": "", "stop": "stopped"}[args.action]}
        one.ask(**wish, **({"resumed": time.time()} if args.action == "resume" else {}))
        told = f"asked {one.name} to {args.action}"
    if args.json:
        render.document({"name": one.name, "action": args.action})
    else:
        render.note(told)
    return 0


def _remove(fleet: Fleet, one: Run) -> None:
    """Its agents and its directory go, its branches stay. Unreachable where agents may be that cannot be asked."""
    from ..flow.run import git

    repo = one.info.repo
    if not one.held():
        for agent in _agents(fleet, one):
            if "task" in agent.agent.labels and agent.agent.common:
                fleet.pull(agent, force=True, empty=False)
            fleet.destroy(agent)
    one.remove()
    if repo:
        git.forget_run(fleet.local, repo, one.name)


def _agents(fleet: Fleet, one: Run) -> list[Found]:
    """The agents of a run, wherever they are."""
    from ..host import place_of

    tries = (attempt for task in one.tasks() for attempt in one.attempts(task.id))
    places = {*(attempt.agent.place for attempt in tries), *one.info.places}
    hosts = {place_of(fleet.host(Address("", place))) for place in places if place}
    listing = fleet.survey()
    for row in listing.unreachable:
        if row.name in hosts:
            raise Unreachable(
                f"host {row.name} does not answer, and agents of {one.name} may be there",
                f"try again when it does; muster hosts forget {row.name} if it never will",
            )
    mine = [str(status.address) for status in listing.statuses if status.agent.labels.get("run") == one.name]
    return [fleet.get(address) for address in mine]


def _end(args: argparse.Namespace, fleet: Fleet, one: Run) -> int:
    """Nobody is there to be asked: its agents may still be at work, and are ended from here."""
    from ..flow.mapping import start
    from ..flow.suite import execute

    start.stop(fleet, one, lambda event: None)
    execute.remove_leftovers(fleet, one.name)
    if args.json:
        render.document({"name": one.name, "action": "stop"})
    else:
        render.note(f"stopped {one.name}: what its agents did is kept (muster runs show {one.name})")
    return 0


def _values(pairs: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if key not in KEYS or not equals:
            raise UsageError(f"{pair!r} cannot be set", f"KEY=VALUE with one of: {', '.join(KEYS)}")
        try:
            found[key] = float(value)
        except ValueError:
            raise UsageError(f"{pair!r} is no number", "muster runs set RUN max_agents=4") from None
        if not 0 < found[key] < 1e12:
            raise UsageError(f"{pair!r} must be more than 0", "muster runs set RUN max_agents=4")
        if key in WHOLE:
            if not found[key].is_integer():
                raise UsageError(f"{pair!r} is no whole number", f"muster runs set RUN {key}={WHOLE[key]}")
            found[key] = int(found[key])
    if not found:
        raise UsageError("nothing to set", f"KEY=VALUE with one of: {', '.join(KEYS)}")
    return found


def _all(args: argparse.Namespace, pictures: list[dict[str, Any]]) -> int:
    if args.json:
        render.document({"runs": pictures})
    elif not pictures:
        render.note("there is no run yet: seq 3 | muster map -a command -- echo {item}")
    else:
        rows = [
            [
                one["name"],
                one["state"],
                f"{sum(one['outcomes'].values())}/{one['total']}",
                ", ".join(f"{count} {name}" for name, count in one["outcomes"].items()) or "-",
                one["type"],
                _cost(one),
                render.when(one["created"]),
            ]
            for one in pictures
        ]
        render.table(
            ["RUN", "STATE", "DONE", "OUTCOMES", "TYPE", "COST", "BEGAN"],
            rows,
            drop=["TYPE", "BEGAN", "COST"],
            text=["OUTCOMES"],
        )
    return 0


def _show(args: argparse.Namespace, fleet: Fleet, one: Run) -> int:
    from ..flow.run import directory as runs

    records = functools.cache(one.records)
    picture = one.picture(records)
    counts, before, since = _funnels(fleet, one, records)
    if args.json:
        render.document({**picture, "funnel": counts, "before": before, "since": since})
        return 0
    render.out(f"{picture['name']} is {picture['state']}: {picture['folder']}")
    rows = [
        [
            task["id"],
            task["outcome"] or task["state"],
            task["verified"] or "-",
            str(task["attempts"]),
            _cost(task),
            (task["branch"] if task["commits"] else task.get("uncommitted")) or "-",
            _why(task),
        ]
        for task in picture["tasks"]
    ]
    head = ["TASK", "OUTCOME", "VERIFIED", "TRIES", "COST", "BRANCH", "WHY"]
    render.table(head, rows, drop=["TRIES", "BRANCH", "COST", "VERIFIED"], text=["WHY"])
    for task in picture["tasks"]:
        for words in task.get("harvest_errors") or ():
            render.out(f"{task['id']}: not harvested: {render.plain(words)}")
    if counts:
        render.out("")
        improve.funnel(one.name, counts, since)
        improve.kept_out(one)
        for name, left in ((runs.read(one.path("delivery.json")) or {}).get("left_out") or {}).items():
            render.out(f"left out {name}: {render.plain(left['reason'])}")
    _escalations(args, fleet, one.name)
    return 0


def _funnels(
    fleet: Fleet, one: Run, records: Callable[[], list[Record]]
) -> tuple[dict[str, Any] | None, str | None, dict[str, Any] | None]:
    """How far the tasks of a run came, the run before it in the same repository, and the difference to that, as far as both are known."""
    from ..flow.reducing.funnel import funnel
    from ..flow.run import directory as runs

    if one.info.kind != "improve" and runs.read(one.path("delivery.json")) is None:
        return None, None, None
    older, counts = runs.before(fleet.home, one), one.kept("funnel", lambda: funnel(one, records()))
    if older is None:
        return counts, None, None
    before = older.kept("funnel", lambda: funnel(older))
    known = {key: (value, before[key]) for key, value in counts.items()}
    since = {key: None if None in pair else round(pair[0] - pair[1], 6) for key, pair in known.items()}
    return counts, older.name, since


def _escalations(args: argparse.Namespace, fleet: Fleet, run: str = "") -> int:
    """Those that are open; of one run, as often as its tasks said them."""
    from ..flow.run import escalations

    known = {}
    for key, entry in escalations.load(fleet.home).items():
        by = tuple(task for task in entry.by if not run or task.partition("/")[0] == run)
        if by and not entry.closed:
            known[key] = entry._replace(by=by)
    if args.json:
        rows = [
            {"id": key, "text": entry.text, "count": len(entry.by), "by": list(entry.by)}
            for key, entry in known.items()
        ]
        render.document({"escalations": rows})
    elif known:
        ranked = sorted(known.items(), key=lambda pair: -len(pair[1].by))
        cells = [[key, str(len(entry.by)), entry.text] for key, entry in ranked]
        render.table(["ESCALATION", "COUNT", "TEXT"], cells, text=["TEXT"])
    elif args.action == "escalations":
        render.note("there are no open escalations")
    return 0


def _close(args: argparse.Namespace, fleet: Fleet) -> int:
    from ..flow.run import escalations

    text = escalations.close(fleet.home, args.name)
    if args.json:
        render.document({"name": args.name, "action": "close"})
    else:
        render.note(f"closed: {render.plain(text)[:100]}")
    return 0


def _why(task: dict[str, Any]) -> str:
    """Return the reason of a task's outcome, whole; or the beginning of its agent's summary."""
    if task["reason"]:
        return " ".join(str(task["reason"]).split())
    return render.Clip(str(task["summary"] or "").partition("\n")[0][:200])


def _cost(one: dict[str, Any]) -> str:
    if one["cost_usd"] is not None:
        return f"${one['cost_usd']:.2f}"
    return f"{one['tokens']:.0f} tok" if one["tokens"] is not None else "-"
