from __future__ import annotations

import argparse
import contextlib
import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ..fleet import Fleet
from ..model import Address, Spec
from . import common, map, render

if TYPE_CHECKING:
    from ..flow.improving.stages import Wish
    from ..flow.reducing.delivery import Reduced
    from ..flow.run.directory import Run

EXAMPLES = """
muster improve -a claude --permissions bypass
muster improve tests/e2e -a codex --permissions bypass --budget 20 @box1 @box2
muster improve --dry-run
muster improve -a replay --playbooks plays -- -m 'not slow'
"""
TEXT = """
Runs the tests of this repository without agents first. Failures that are alike get one agent, whose fix the others start from;
then every other test function gets its own, to fix it or to make it better. What each of them did is verified in a clean
checkout, and all that holds becomes the branch muster-run/RUN. Your own work tree is never touched. Kill it at any moment:
the same command goes on.
"""
REST = "PYTEST ARGS"


def options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("places", nargs="*", default=[], metavar="PATH|@HOST", help="tests (default: all), and hosts for the agents")
    add("-a", "--agent", dest="type", default="", metavar="TYPE", help="the agents' type (default: as create)")
    add("--playbooks", default="", metavar="DIR", help="for replay: a playbook for each test, test_name.toml")
    add("--tutorial", default="", metavar="FILE", help="the tutorial that tests cite (default: as tutorial list)")
    add(
        "--all",
        action="store_true",
        dest="everything",
        help="also tests that need nothing, or are done in an open branch",
    )
    map.agents(parser)
    ending(parser)
    add("--run", default="", dest="name", metavar="NAME", help="the name of the run (default: improve-1, improve-2 …)")
    add("--new", action="store_true", help="a new run, also when one like it is not finished")
    add("--keep", action="store_true", help="keep all agents and their work dirs; they are only stopped")
    add("--dry-run", action="store_true", help="run the tests, say what would be done, and end")


def ending(parser: argparse.ArgumentParser) -> None:
    """How it is verified, and how the branch is made."""
    add = parser.add_argument
    add(
        "--times",
        type=common.count,
        default=0,
        metavar="N",
        help="so often a test must pass to be believed (default: 3)",
    )
    add(
        "--integrator",
        default="",
        metavar="TYPE",
        help="who resolves conflicts (default: the type of the run's agents), or none",
    )
    add("--rank", choices=("code", "agent"), default="code", help="who puts the fixes into order (default: code)")
    add("--pr", action="store_true", help="push the branch and open a pull request with your gh")


def run(args: argparse.Namespace, fleet: Fleet) -> int:
    from ..flow.improving import stages
    from ..flow.reducing import delivery, pull_request

    wish = wished(args, fleet)
    stages.check(fleet, wish)
    _, commit, dirty = stages.base_of(fleet, "")
    directory, new = stages.directory(fleet, wish)
    wish = stages.within(wish, directory)
    if not args.json:
        word = "run" if new else "going on with run"
        render.note(f"{word} {directory.name} (muster runs show {directory.name})")
        if dirty and new:
            render.note(f"it starts from your last commit: {dirty} changed files of yours are not in it")
        if commit != directory.info.base and not new:
            render.note("your branch has moved since the run began; it goes on from where it began (--new begins anew)")
    display = map.Display(args.json, directory.folder)
    with holding(fleet, directory, display, new, "the same command"):
        if args.dry_run:
            return _dry(args, fleet, wish, directory, display)
        delivery.check(fleet, directory)
        if args.pr:
            pull_request.check(fleet, directory.info.repo)
        stages.resume(directory)
        done = directory.finished() or stages.go(fleet, wish, directory, display.say, display.shown)
        display.end()
        if not done:
            render.note(f"{directory.name} is not finished; the same command goes on with it")
            return 130
        return deliver(args, fleet, wish, directory, display)


@contextlib.contextmanager
def holding(fleet: Fleet, directory: Run, display: map.Display, new: bool, again: str) -> Iterator[None]:
    """Hold the run; after Ctrl-C it is said what goes on with it."""
    from ..flow.improving import stages

    try:
        with stages.holding(fleet, directory, new):
            yield
    except KeyboardInterrupt:
        display.end()
        render.note(f"{directory.name} is not finished; {again} goes on with it")
        raise


def wished(args: argparse.Namespace, fleet: Fleet) -> Wish:
    from ..flow.improving import stages
    from ..flow.mapping import start
    from ..flow.review import paths as classify

    told = fleet.config.section("improve")
    paths = tuple(word for word in args.places if not word.startswith("@"))
    places = tuple(Address.parse(word).place for word in args.places if word.startswith("@")) or ("",)
    spec = Spec(
        Address(""),
        common.client(args, fleet, "improve"),
        clean=True,
        timeout=args.timeout,
        permissions=args.permissions,
    )
    agents = start.Wish(
        spec,
        "",
        (),
        [],
        places,
        args.name,
        args.new,
        args.keep,
        args.retries,
        args.stall,
        map.limits(fleet, args)._replace(reserve=0.1 if args.integrator != "none" else 0.0),
        args.questions,
    )
    tutorial = args.tutorial or str(told.get("tutorial", ""))
    wish = stages.Wish(
        agents,
        paths,
        tuple(args.rest),
        _words(told, "pytest"),
        _words(told, "lint"),
        _words(told, "env"),
        args.playbooks,
        tutorial,
        args.everything,
        args.times or int(told.get("times", 3)),
        test_seconds=fleet.config.seconds("improve", "test_timeout", 300),
        suite_seconds=fleet.config.seconds("improve", "suite_timeout", 3600),
        rules=stages.protecting(classify.Rules.from_config(told), tutorial),
        integrator=args.integrator,
        rank=args.rank,
    )
    if args.rank == "agent" and stages.integrator(fleet, wish) == "none":
        raise UsageError("--rank agent needs an agent to ask, and there is none", "--integrator TYPE, or: --rank code")
    return wish


def _words(told: dict[str, Any], key: str) -> tuple[str, ...]:
    found = told.get(key, [])
    if not isinstance(found, list) or not all(isinstance(word, str) for word in found):
        raise UsageError(f"[improve] {key} must be a list of words", f'{key} = ["uv", "run", "pytest"]')
    return tuple(found)


def _dry(args: argparse.Namespace, fleet: Fleet, wish: Wish, directory: Run, display: map.Display) -> int:
    from ..flow.improving import stages
    from ..flow.mapping import start

    before = stages.standing(fleet, wish, directory, display.say)
    planned = stages.plan(fleet, wish, directory, before, keep=False)
    count = len(planned.scouts) + len(planned.workers)
    expected = start.estimate(fleet, wish.map._replace(items=[{}] * count))[0]
    if args.json:
        render.line(
            {
                "kind": "plan",
                "tests": {one.function.id: one.status for one in before.tests},
                "scouts": [{"test": one.function.id, "tests": list(group.functions)} for one, group in planned.scouts],
                "workers": [one.function.id for one in planned.workers],
                "skipped": planned.skipped,
                "estimate": expected._asdict(),
            }
        )
        return 0
    for one, group in planned.scouts:
        render.out(f"scout    {one.function.id}  for {len(group.functions)} tests that fail alike: {group.why}")
    for one in planned.workers:
        render.out(f"{one.status:<8} {one.function.id}")
    for test, why in planned.skipped.items():
        render.out(f"skipped  {test}  {why}")
    render.note(expected.words)
    return 0


def deliver(args: argparse.Namespace, fleet: Fleet, wish: Wish, directory: Run, display: map.Display) -> int:
    """Make the branch of a run, and say at the end what came of it."""
    from ..flow.reducing import delivery, gate

    done = delivery.deliver(fleet, wish, directory, gate.Pytest(), display.say, display.shown, open_request=args.pr)
    display.end()
    return tell(args, done)


def tell(args: argparse.Namespace, done: Reduced) -> int:
    """Print what a reduction came to, and return the exit code."""
    from ..flow.mapping import start
    from ..flow.reducing import delivery, funnel

    run, delivered, counts = done.run, done.delivery, funnel.funnel(done.run)
    _print(args, done, counts)
    # How the agents of a map ended was the exit code of the map.
    bad = start.code(delivery.outcomes(run)) if run.info.kind == "improve" else 0
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
    """The words that go on with a run."""
    info = run.info
    if info.kind != "improve":
        return "the same muster map goes on with it"
    places = [f"@{place}" for place in info.places if place]
    words = ["muster", "improve", *info.paths, *places, "-a", info.type, "--run", run.name]
    words += ["--permissions", info.permissions] if info.permissions != "ask" else []
    return shlex.join([*words, *(["--", *info.args] if info.args else [])])


def funnel(name: str, counts: dict[str, Any], since: dict[str, Any] | None = None) -> None:
    """How many came how far, with the difference to the run before."""
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
