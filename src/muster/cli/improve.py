from __future__ import annotations

import argparse
import shlex
from typing import TYPE_CHECKING, Any

from ..fleet import Fleet
from . import common, map, render

if TYPE_CHECKING:
    from ..flow import ImproveOptions, Preview
    from ..flow.reducing.delivery import Reduced
    from ..flow.run.directory import Run

EXAMPLES = """
muster improve -a claude --permissions bypass
muster improve tests/e2e -a codex --permissions bypass --budget 20 @box1 @box2
muster improve --dry-run
muster improve -a replay --playbooks plays -- -m 'not slow'
"""
TEXT = """
First runs the tests of this repository without agents. Like failures get one agent, and the others start from its fix; then every
other test function gets its own agent, to fix it or to improve it. Each change is verified in a clean checkout, and those that hold
become the branch muster-run/RUN. Your own work tree is never touched. You can kill it at any moment; the same command goes on.
"""
REST = "PYTEST ARGS"


def options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("places", nargs="*", default=[], metavar="PATH|@HOST", help="tests (default: all), and hosts for the agents")
    add(
        "-a",
        "--agent",
        dest="type",
        default="",
        metavar="TYPE",
        help="the type of the agents (default: that of create)",
    )
    add("--playbooks", default="", metavar="DIR", help="for replay: a playbook for each test, test_name.toml")
    add("--tutorial", default="", metavar="FILE", help="the tutorial that tests cite (default: that of tutorial list)")
    add(
        "--all",
        action="store_true",
        dest="everything",
        help="also tests that need nothing, or that an open branch has fixed",
    )
    map.agents(parser)
    ending(parser)
    add("--run", default="", dest="name", metavar="NAME", help="the name of the run (default: improve-1, improve-2 …)")
    add("--new", action="store_true", help="start a new run, even if a run of the same request is not finished")
    add("--keep", action="store_true", help="keep all agents and their work dirs; they are only stopped")
    add("--dry-run", action="store_true", help="run the tests without agents, and print what would be done")


def ending(parser: argparse.ArgumentParser) -> None:
    """Add the options of verification and of the branch."""
    add = parser.add_argument
    add(
        "--times",
        type=common.count,
        default=0,
        metavar="N",
        help="passing runs required to verify a fix (default: 3)",
    )
    add(
        "--integrator",
        default="",
        metavar="TYPE",
        help="type of the agent that resolves conflicts, or none (default: the type of the run's agents)",
    )
    add("--rank", choices=("code", "agent"), default="code", help="who orders the fixes (default: code)")
    add("--pr", action="store_true", help="push the branch and open a pull request with your gh")


def run(args: argparse.Namespace, fleet: Fleet) -> int:
    from .. import flow

    display = map.Display(args.json, "")
    options = _options(args, fleet, display)
    tests = [word for word in args.places if not word.startswith("@")]
    try:
        if args.dry_run:
            _print_preview(args, flow.preview(fleet, tests, **options))
            return 0
        done = flow.improve(fleet, tests, **options)
    except KeyboardInterrupt:
        display.end()
        if display.run:
            render.note(f"{display.run} is not finished; the same command goes on with it")
        raise
    display.end()
    return tell(args, done)


def _options(args: argparse.Namespace, fleet: Fleet, display: map.Display) -> ImproveOptions:
    from ..flow.improving import setup

    def begin(run: Run, new: bool) -> None:
        display.follow(run.folder)
        if args.json:
            return
        head = setup.head(fleet)
        word = "run" if new else "going on with run"
        render.note(f"{word} {run.name} (muster runs show {run.name})")
        if head.changed_files and new:
            render.note(f"it starts from your last commit: {head.changed_files} changed files of yours are not in it")
        if head.commit != run.info.base and not new:
            render.note("your branch has moved since the run began; it goes on from where it began (--new begins anew)")

    return {
        "type": common.client(args, fleet, "improve"),
        "args": args.rest,
        "hosts": [word.removeprefix("@") for word in args.places if word.startswith("@")],
        "name": args.name,
        "new": args.new,
        "keep": args.keep,
        "tutorial": args.tutorial,
        "everything": args.everything,
        "playbooks": args.playbooks,
        "times": args.times,
        "integrator": args.integrator,
        "rank": args.rank,
        "pull_request": args.pr,
        "max_agents": args.max_agents,
        "budget": args.budget,
        "budget_tokens": args.budget_tokens,
        "timeout": args.timeout,
        "stall": args.stall,
        "retries": args.retries,
        "questions": args.questions,
        "permissions": args.permissions,
        "on_begin": begin,
        "on_event": display.say,
        "on_wait": display.shown,
    }


def _print_preview(args: argparse.Namespace, preview: Preview) -> None:
    baseline, assignments, estimate = preview
    if args.json:
        render.line(
            {
                "kind": "plan",
                "tests": {row.function.id: row.status for row in baseline.tests},
                "scouts": [
                    {"test": row.function.id, "tests": list(group.functions)} for row, group in assignments.scouts
                ],
                "workers": [row.function.id for row in assignments.workers],
                "skipped": assignments.skipped,
                "estimate": estimate._asdict(),
            }
        )
        return
    for row, group in assignments.scouts:
        render.out(f"scout    {row.function.id}  for {len(group.functions)} tests that fail alike: {group.why}")
    for row in assignments.workers:
        render.out(f"{row.status:<8} {row.function.id}")
    for test, reason in assignments.skipped.items():
        render.out(f"skipped  {test}  {reason}")
    render.note(estimate.words)


def tell(args: argparse.Namespace, done: Reduced) -> int:
    """Print what a reduction came to, and return the exit code."""
    from ..flow.mapping import start
    from ..flow.reducing import delivery, funnel

    run, delivered, counts = done.run, done.delivery, funnel.funnel(done.run)
    _print(args, done, counts)
    # How the agents of a map ended was the exit code of the map.
    bad = start.exit_code(delivery.outcomes(run)) if run.info.kind == "improve" else 0
    lacking = not delivered.commit and (delivered.left_out or counts["refused"])
    return bad or (1 if done.unfinished or lacking else 0)


def _print(args: argparse.Namespace, done: Reduced, counts: dict[str, Any]) -> None:
    from ..flow.reducing import funnel as funnels

    run, delivered = done.run, done.delivery
    if args.json:
        render.line(
            {
                "kind": "delivery",
                "run": run.name,
                "funnel": counts,
                "pull_request": done.pull_request or None,
                **delivered.to_json(),
                "unfinished": list(done.unfinished),
                "kept_out": funnels.kept_out(run),
            }
        )
        return
    if done.unfinished:
        count = len(done.unfinished)
        what = "tests" if run.info.kind == "improve" else "tasks"
        render.note(f"{run.name} is not finished: {count} of its {what} have no outcome; {_again(run)}")
    funnel(run.name, counts)
    kept_out(run)
    for name, left in delivered.left_out.items():
        render.out(f"left out {name}: {render.plain(left.reason)}")
    if delivered.commit:
        render.out(f"branch   {delivered.branch}  ({render.plain(delivered.proof)})")
        render.note(f"git log --oneline --reverse HEAD..{delivered.branch}; muster report {run.name}")
    else:
        render.out(f"nothing is delivered: {render.plain(delivered.why)}")
    if done.pull_request:
        render.out(done.pull_request)


def kept_out(run: Run) -> None:
    """Print what is kept out of the changes that are in the branch."""
    from ..flow.reducing import funnel

    for name, paths in funnel.kept_out(run).items():
        render.out(f"kept out of {name}: {render.plain(funnel.kept_out_line(paths))}")


def _again(run: Run) -> str:
    """Return the command that goes on with a run."""
    info = run.info
    if info.kind != "improve":
        return "the same muster map goes on with it"
    places = [f"@{place}" for place in info.places if place]
    words = ["muster", "improve", *info.paths, *places, "-a", info.type, "--run", run.name]
    words += ["--permissions", info.permissions] if info.permissions != "ask" else []
    return shlex.join([*words, *(["--", *info.args] if info.args else [])])


def funnel(name: str, counts: dict[str, Any], since: dict[str, Any] | None = None) -> None:
    """Print how many tests and changes reached each stage, with the difference to the run before."""
    first = ("tests", "failing", "skipped", "launched", "valid", "verified", "fixed", "improved", "unchanged")
    last = ("integrated", "left_out", "refused", "blocked")
    words = (*first, *last) if counts["tests"] else ("launched", *last)
    rows = []
    for word in words:
        rows.append([word.replace("_", " "), str(counts[word]), "" if since is None else f"{since[word]:+d}"])
    cost = "unknown" if counts["cost_usd"] is None else f"${counts['cost_usd']:.2f}"
    more = since["cost_usd"] if since else None
    rows.append(
        ["spent", cost if counts["tokens"] else "-", "" if more is None else f"{'-+'[more >= 0]}${abs(more):.2f}"]
    )
    render.table(["RUN", name, "SINCE" if since else ""], rows)
