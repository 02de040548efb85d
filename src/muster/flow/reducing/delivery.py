"""The verified changes of a run become one branch: units for `integrate`, a gate that runs tests as agents do, an integrator for what
conflicts, and what is told about it all.
"""

from __future__ import annotations

import shlex
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from ... import Fleet
from ...errors import MusterError, NotFound
from ..improving import converged, stages
from ..improving.stages import BAD, Wish
from ..mapping import start
from ..review import paths as classify
from ..run import directory as runs
from ..run import git, prompts, tasks
from ..run import results as result
from ..run.directory import Attempt, Run
from ..run.records import Ahead, Outcome, Plan
from ..run.tasks import Task
from ..suite import baseline, execute
from ..suite.baseline import Baseline
from . import integrate, rebase, trees
from .conflicts import Conflict
from .gate import Verdict
from .integrate import Delivery
from .units import Unit

SEVERITY = {"hanging": 3, "failing": 2, "flaky": 1}
DIFF_MOST = 20_000


#: GitHub refuses a text of more than 65,536 characters. Each of its lists ends after so many.
ACCEPTED_MOST, LEFT_MOST, REFUSED_MOST, KEPT_OUT_MOST = 28_000, 13_000, 10_000, 8_000
#: Paths of one change that are named where there are many.
KEPT_OUT_SHOWN = 5


class Reduction(NamedTuple):
    """One process's work on a run, with all that it needs."""

    fleet: Fleet
    wish: Wish
    run: Run
    before: Baseline
    say: start.Say
    shown: start.Shown


# Units


def units(work: Reduction) -> list[Unit]:
    """What each verified task came to."""
    ahead = work.run.ahead() or Ahead()
    standing = {one.function.id: one.status for one in work.before.tests}
    found = []
    for task in work.run.tasks():
        told = stages.verified(work.run, task)
        if not told or not told.ok or not told.unit:
            continue
        attempt = work.run.attempts(task.id)[-1]
        outcome = attempt.outcome or Outcome()
        title, _, body = outcome.summary.strip().partition("\n")
        fixes = told.result == "fixed"
        own = (task.item,) if told.tests is None else told.tests
        tests = (*own, *(test for test, by in ahead.fixed.items() if by == task.id))
        cost = outcome.cost_usd
        found.append(
            Unit(
                task.id,
                task.base,
                told.unit,
                tuple(dict.fromkeys(tests)) if fixes else (),
                int(task.fields.get("group") or 1),
                max((SEVERITY.get(standing.get(test, ""), 0) for test in tests), default=0),
                title or f"{told.result.capitalize()} {task.item}",
                body,
                {
                    **({} if fixes or not own else {"Muster-Test": own[0]}),
                    **({"Muster-Agent": attempt.agent.name} if attempt.agent.name else {"Muster-Branch": task.item}),
                    "Muster-Cost": "unknown" if cost is None else f"${cost:.2f}",
                    "Muster-Evidence": told.reason,
                },
                ahead.included if task.base == ahead.base else (),
            )
        )
    return found


# The gate


class Trials:
    """Runs the project's tests as agents do, at the first place of the run."""

    def __init__(self, work: Reduction) -> None:
        self.work, self.where = work, stages.where(work.run, work.wish, work.before)
        self.before = work.before.before()

    def check(self, commit: str, tests: Sequence[str]) -> Verdict:
        if self.work.wish.lint:
            code, screen = execute.command(self.work.fleet, self.where, commit, self.work.wish.lint)
            if code:
                return Verdict(False, f"{shlex.join(self.work.wish.lint)} exits with {code}", screen)
        run = partial(execute.run, self.work.fleet, self.where, commit)
        asked = {"all": partial(run, collect=True)} | ({"own": partial(run, list(tests))} if tests else {})
        reports: dict[str, execute.Report] = dict(execute.each(self.work.fleet, asked, len(asked)))
        for report in reports.values():
            if report.errors:
                file, text = next(iter(report.errors.items()))
                return Verdict(False, f"{file} cannot be collected", text[-4000:])
        if not reports["all"].items:
            return Verdict(False, "no test can be collected", reports["all"].screen)
        if tests and (red := _unfixed(reports["own"], tests, self.before)):
            return red
        return Verdict(True, "all tests can be collected" + (f", {len(tests)} pass" if tests else ""))

    def full(self, commit: str, tests: Sequence[str]) -> Verdict:
        files = baseline.parts([one.function for one in self.work.before.tests], baseline.SHARDS)
        report = execute.spread(self.work.fleet, self.where, commit, files)
        if words := execute.unusable(report):
            return Verdict(False, words, report.screen)
        removed = stages.removed(self.work.fleet, self.work.wish, self.work.run, self.work.before, commit)
        for id, words in execute.worse(report, self.before, removed):
            return Verdict(False, words, report.cases[id].text[-4000:] if id in report.cases else report.screen)
        for id, case in report.cases.items():
            if id not in self.before and case.outcome in execute.BAD:
                return Verdict(False, f"{id} is new, and {case.outcome}", case.text[-4000:])
        if red := _unfixed(report, tests, self.before):
            return red
        passed = sum(case.outcome == "passed" for case in report.cases.values())
        return Verdict(True, f"{passed} of {len(report.cases)} tests pass on this very commit")

    def passing(self, asked: Sequence[tuple[str, Sequence[str]]]) -> list[list[str]]:
        sure = [[test for test in tests if self._sure(test)] for _, tests in asked]
        work = {
            str(number): partial(execute.run, self.work.fleet, self.where, commit, tests)
            for number, ((commit, _), tests) in enumerate(zip(asked, sure, strict=True))
            if tests
        }
        reports: dict[str, execute.Report] = dict(execute.each(self.work.fleet, work, execute.AT_ONCE))
        found: list[list[str]] = [[] for _ in asked]
        for number, report in reports.items():
            if not report.errors and not report.outside:
                tests = sure[int(number)]
                found[int(number)] = [test for test in tests if not execute.unfixed(report, test, self.before)]
        return found

    def _sure(self, test: str) -> bool:
        """Whether one run of a test says something: one that is flaky may pass at any time, and one that hangs takes long."""
        return not {"flaky", "hung"} & {was for id, was in self.before.items() if execute.is_of(id, test)}


def _unfixed(report: execute.Report, tests: Sequence[str], before: Mapping[str, str]) -> Verdict | None:
    """The first of these functions of which not every test passed that has to."""
    for test in tests:
        if bad := execute.unfixed(report, test, before):
            text = report.cases[bad].text[-4000:] if bad in report.cases else report.screen
            return Verdict(False, f"{bad} is {report.outcome(bad) if bad in report.cases else 'gone'}", text)
    return None


# The integrator


def resolver(work: Reduction, kind: str, known: Mapping[str, Unit], since: float) -> Any:
    """Asks an agent, one conflict at a time; it is a task of the run like every other."""

    def resolve(conflict: Conflict) -> str | None:
        if kind == "none":
            return None
        repo = work.run.info.repo
        text = prompts.prompt(
            "resolve",
            unit=conflict.unit.name,
            title=conflict.unit.title,
            theirs=_diff(work, repo, conflict.unit.base, conflict.unit.tip),
            paths=", ".join(conflict.paths),
            collides=", ".join(conflict.collides) or "several of the others",
            ours="\n".join(
                _diff(work, repo, known[name].base, known[name].tip) for name in conflict.collides if name in known
            ),
            tests=", ".join(
                [
                    *conflict.unit.tests,
                    *(test for name in conflict.collides if name in known for test in known[name].tests),
                ]
            )
            or "those that cover it",
        )
        attempt = _ask(work, kind, f"integrate {conflict.unit.name}", "integrator", text, conflict.onto, since)
        outcome = attempt.outcome if attempt else None
        if attempt is None or outcome is None or outcome.outcome != "ok" or not outcome.commits:
            return None
        return _resolution(work, attempt.task, conflict.onto, outcome.tip)

    return resolve


def _resolution(work: Reduction, task: str, base: str, tip: str) -> str | None:
    """What an integrator did, on top of the commit that it was given, and without what tools left; None when that cannot be had."""
    local, repo = work.fleet.local, work.run.info.repo
    found = rebase.onto(work.fleet, work.run, base, tip, task)
    if not found.commit:
        return None
    judged = classify.judge(local, repo, base, found.commit, work.wish.rules)
    junk = {one.path for one in judged.kept_out if one.rule == "junk" and not one.allowed}
    if not junk:
        return found.commit
    paths = {change.path for change in classify.changes(local, repo, base, found.commit)}
    tree = classify.tree(local, repo, base, found.commit, paths - junk)
    return stages.commit(work.fleet, work.run, task, base, tree)


def doubt(work: Reduction, conflict: Conflict, commit: str) -> str:
    """What of a resolution would be kept out of a worker's branch: an integrator is believed no more than they are. It may take away neither
    what is accepted nor what the unit brings."""
    local, repo, unit = work.fleet.local, work.run.info.repo, conflict.unit
    judge = partial(classify.judge, local, repo, rules=work.wish.rules.knowing(work.before))
    brought = {one.path for one in classify.changes(local, repo, unit.base, unit.tip)}
    found = [one for one in judge(conflict.onto, commit).kept_out if not one.allowed]
    found += [one for one in judge(unit.tip, commit).kept_out if not one.allowed and one.path in brought]
    return f"is kept out for {result.shown(found[0].path)}: {found[0].words}" if found else ""


def ranking(work: Reduction, kind: str, found: Sequence[Unit], since: float) -> list[str]:
    """The order that an agent gives; empty when it gives none."""
    lines = [
        f"- {unit.name}: {unit.title} ({len(unit.tests)} tests fixed, {unit.group} failed alike)" for unit in found
    ]
    text = prompts.prompt("rank", units="\n".join(lines))
    attempt = _ask(work, kind, "rank", "ranker", text, work.run.info.base, since)
    path = Path(attempt.folder) / "artifacts" / "order.txt" if attempt else Path()
    names = {unit.name for unit in found}
    try:
        words = [line.strip() for line in path.read_text("utf-8", "replace").splitlines()[:10_000]]
    except OSError:
        words = []
    order = list(dict.fromkeys(word for word in words if word in names))
    if not order:
        work.say(work.run.event("alert", time.time(), reason="the agent that was to rank gave no order; code ranks"))
    return order


def _ask(work: Reduction, kind: str, what: str, role: str, text: str, base: str, since: float) -> Attempt | None:
    """One more task of the run, to its end; the same question is not put twice to the same type, unless the last reduce, which came to its
    end `since`, had no good answer."""
    known = work.run.tasks()
    same = (what, base, text, kind)
    task = next((one for one in known if (one.item, one.base, one.prompt, one.fields.get("type")) == same), None)
    if task is not None:
        reopen(work.run, task, since)
    else:
        number = max((one.number for one in known), default=0) + 1
        args = work.wish.map.args
        if work.wish.playbooks:
            found = [Path(work.wish.playbooks) / name for name in (f"{what.replace(' ', '.')}.toml", f"{role}.toml")]
            args = (next((str(path) for path in found if path.is_file()), str(found[-1])),)
        task = Task(
            tasks.name(number, what), number, what, {"item": what, "role": role, "type": kind}, text, args, base
        )
        work.run.add([task])
    spec = work.wish.map.spec._replace(type=kind)
    wish = work.wish.map._replace(spec=spec, limits=work.wish.map.limits._replace(reserve=0.0))
    if not start.work(work.fleet, wish, work.run, work.say, work.shown, only=[task.id]):
        raise KeyboardInterrupt
    tries = work.run.attempts(task.id)
    return tries[-1] if tries else None


def reopen(run: Run, task: Task, since: float) -> None:
    """Let a task be tried once more that the last reduce came to its end without. An order can be used again; a resolution that could
    would not be asked for."""
    tries = run.attempts(task.id)
    ended = tries[-1].outcome if tries else None
    if ended is None:
        return
    used = ended.outcome == "ok" and task.fields.get("role") == "ranker"
    if ended.final and ended.t < since and not used:
        run.end(tries[-1], ended._replace(final=False))


def _diff(work: Reduction, repo: str, base: str, tip: str) -> str:
    done = git.run(work.fleet.local, repo, "diff", "--no-ext-diff", "--no-textconv", base, tip)
    return done.stdout.decode("utf-8", "replace")[:DIFF_MOST]


# All of it


def check(fleet: Fleet, run: Run) -> None:
    """`Refused` when the branch of the run could not be moved at the end: before anything is paid for it."""
    scratch = trees.Repository(fleet.local, _common(fleet, run), run.path("git"))
    try:
        integrate.movable(scratch, run.name)
    finally:
        scratch.close()


def unfinished(work: Reduction) -> list[str]:
    """The tests of a run that have no outcome yet, because it was interrupted; an agent may be at work on them."""
    run, plan, ahead = work.run, work.run.plan() or Plan(), work.run.ahead() or Ahead()
    known = {task.item: run.attempts(task.id) for task in run.tasks() if task.fields.get("role") in stages.WORK}
    over = {item for item, tries in known.items() if tries and tries[-1].final}
    if run.info.sources:
        return [item for item in known if item not in over]
    every = [one.function.id for one in work.before.tests]
    return [test for test in every if test not in over | {*plan.skipped, *ahead.fixed}]


def outcomes(run: Run) -> dict[str, int]:
    """How the tasks of a run ended. A question that was put again, to another type or about another commit, counts as it was answered last."""
    last = {task.id if task.fields.get("role") in stages.WORK else task.item: task.id for task in run.tasks()}
    rows = {row["id"]: row["outcome"] for row in run.picture()["tasks"]}
    return Counter(rows[id] for id in last.values() if rows[id])


def go(work: Reduction) -> Delivery:
    """The branch `muster-run/RUN` and what is known of it, in the run's directory."""
    run, wish, fleet = work.run, work.wish, work.fleet
    rules = wish.rules.knowing(work.before)
    kind = stages.integrator(fleet, wish)
    found = units(work)
    folder = run.path(f"reduce-{_gate(wish)}")
    since = integrate.ended(folder)
    order = ranking(work, kind, found, since) if wish.rank == "agent" and kind != "none" and found else []
    delivery = integrate.integrate(
        fleet.local,
        _common(fleet, run),
        run.info.base,
        found,
        run=run.name,
        folder=folder,
        kind=lambda path: "implementation" if classify.kind(path, rules) == "implementation" else "other",
        tester=Trials(work),
        resolve=resolver(work, kind, {unit.name: unit for unit in found}, since),
        say=lambda event: work.say(_event(run, event)),
        doubt=partial(doubt, work),
        order=order,
        asked=kind,
    )
    runs.write(run.path("delivery.json"), delivery.to_json())
    runs.write(run.path("pull-request.md"), text(work, delivery).encode("utf-8", "replace"))
    _remember(work, delivery)
    return delivery


def _common(fleet: Fleet, run: Run) -> str:
    return git.common_dir(fleet.local, run.info.repo)


def _gate(wish: Wish) -> str:
    """What a gate is known by: verdicts that were written down are those of the same one."""
    told = [wish.pytest, wish.lint, wish.args, wish.keep_env, wish.test_seconds, wish.suite_seconds]
    return tasks.digest(told)[:8]


def _event(run: Run, event: dict[str, Any]) -> dict[str, Any]:
    """What the integration tells, as an event of the run; `reason` is for people."""
    fields = {key: value for key, value in event.items() if key != "kind"}
    words = {
        "ranked": lambda: (
            f"{tasks.counted(event['units'], 'change')}, {tasks.counted(event['conflicts'], 'pair')} in conflict"
        ),
        "conflict": lambda: f"{event['unit']} in {', '.join(event['paths'])}",
        "ejected": lambda: f"{event['unit']}: {event['words']}",
        "redundant": lambda: f"{event['unit']} is already fixed by {event['by']}",
    }.get(event["kind"])
    return run.event(f"reduce-{event['kind']}", time.time(), **fields, **({"reason": words()} if words else {}))


def _remember(work: Reduction, delivery: Delivery) -> None:
    taken = {name for one in delivery.accepted for name in (one.name, *one.collapsed)}
    base, good = work.run.info.base, defaultdict[str, list[str]](list)
    for task in work.run.tasks():
        told = stages.verified(work.run, task)
        if told and told.ok and told.result == "unchanged":
            good[base].append(task.item)
        elif task.id not in taken:
            continue
        if delivery.commit:
            good[delivery.commit].append(task.item)
    converged.converge(work.fleet, work.run, work.before, work.run.info.type, work.wish.tutorial, good)
    converged.escalate(work.fleet.home, work.run)


# Told


def funnel(run: Run, records: Sequence[runs.Record] | None = None) -> dict[str, Any]:
    """Return how many tasks came how far; `records` saves reading them again."""
    records = run.records() if records is None else records
    before = runs.read(run.path("baseline.json")) or {}
    delivery = runs.read(run.path("delivery.json")) or {}
    work = [record for record in records if record.task.fields.get("role") in stages.WORK and record.attempts]
    last = {record.task.id: record.attempts[-1] for record in work}
    outcomes = {id: (attempt.outcome or Outcome()) for id, attempt in last.items()}
    found = {record.task.id: record.verified for record in work}
    checked = {id: told for id, told in found.items() if told and told.attempt == last[id].number}
    taken = {name for one in delivery.get("accepted", []) for name in (one["name"], *one["collapsed"])}
    results = [told.result for told in checked.values() if told.ok]
    picture = run.picture_of(records)
    return {
        "tests": len(before.get("tests", [])),
        "failing": sum(one.get("status") in BAD for one in before.get("tests", [])),
        "groups": sum(len(one["functions"]) > 1 for one in before.get("groups", [])),
        "skipped": len((run.plan() or Plan()).skipped),
        "launched": sum(bool(attempt.agent.name) for attempt in last.values()),
        "valid": sum(outcome.claimed is not None for outcome in outcomes.values()),
        "claimed": sum(outcome.outcome == "ok" for outcome in outcomes.values()),
        "verified": len(results),
        **{name: results.count(name) for name in ("fixed", "improved", "unchanged")},
        "integrated": len(taken),
        "left_out": len(delivery.get("left_out", {})),
        "refused": sum(not told.ok for told in checked.values()),
        "blocked": sum(outcome.outcome == "blocked" for outcome in outcomes.values()),
        "cost_usd": picture["cost_usd"],
        "tokens": picture["tokens"],
    }


def kept_out(run: Run) -> dict[str, list[dict[str, str]]]:
    """What is not in the branch of a change that is, by its task: each path once, with the reason."""
    delivery = runs.read(run.path("delivery.json")) or {}
    taken = {name for one in delivery.get("accepted", []) for name in (one["name"], *one["collapsed"])}
    found: dict[str, list[dict[str, str]]] = {}
    for task in run.tasks() if taken else ():
        told = stages.verified(run, task) if task.id in taken else None
        why = {one.path: one.reason for one in reversed(told.kept_out if told else ()) if not one.allowed}
        if why:
            found[task.id] = [{"path": path, "reason": why[path]} for path in sorted(why)]
    return found


def kept_out_words(paths: Sequence[Mapping[str, str]]) -> str:
    """What is kept out of one change as one line, however much it is."""
    shown = [f"{result.shown(one['path'])} ({one['reason']})" for one in paths[:KEPT_OUT_SHOWN]]
    more = len(paths) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def text(work: Reduction, delivery: Delivery) -> str:
    """The words for a pull request: what it is, what is in it, what was left out and why."""
    counts = funnel(work.run)
    lines = [f"# {counts['fixed']} tests fixed, {counts['improved']} improved", ""]
    lines += [f"Run `{work.run.name}`: {_counts(counts)}.", "", f"Proof: {delivery.proof or delivery.why}.", ""]
    titles = {unit.name: unit.title for unit in units(work)}
    accepted = [
        f"- {_safe(titles[one.name])} (`{one.name}`"
        + (f", and {len(one.collapsed)} equal" if one.collapsed else "")
        + f"; {one.reason})"
        for one in delivery.accepted
    ]
    left_out = [f"- `{name}`: {_safe(left.reason)}" for name, left in delivery.left_out.items()]
    kept = [f"- `{name}`: {_safe(kept_out_words(paths), 1000)}" for name, paths in kept_out(work.run).items()]
    refused = [
        f"- `{task.id}`: {_safe(told.reason)}"
        for task in work.run.tasks()
        if (told := stages.verified(work.run, task)) and not told.ok
    ]
    lines += listed("In this branch", accepted, ACCEPTED_MOST)
    lines += listed("Kept out of these changes", kept, KEPT_OUT_MOST)
    lines += listed("Left out", left_out, LEFT_MOST)
    lines += listed("Claimed and not verified", refused, REFUSED_MOST)
    return "\n".join(lines).rstrip() + "\n"


def listed(title: str, lines: Sequence[str], most: int) -> list[str]:
    """A part of the text, of so many characters at most, that says how many lines are missing."""
    kept, size = 0, 0
    while kept < len(lines) and (size := size + len(lines[kept]) + 1) <= most:
        kept += 1
    more = [f"- and {len(lines) - kept} more"] if kept < len(lines) else []
    return [f"## {title}", "", *lines[:kept], *more, ""] if lines else []


def _counts(counts: Mapping[str, Any]) -> str:
    shown = ("tests", "failing", "launched", "valid", "verified", "integrated", "left_out", "blocked")
    cost = "cost unknown" if counts["cost_usd"] is None else f"${counts['cost_usd']:.2f}"
    return ", ".join(f"{counts[name]} {name.replace('_', ' ')}" for name in shown) + f", {cost}"


def _safe(words: str, most: int = 300) -> str:
    """An agent's words as one line of Markdown, without links, images, HTML or mentions."""
    plain = "".join(char for char in words if char.isprintable())[:most]
    return "".join(f"\\{char}" if char in "\\`*_[]<>#@|!" else char for char in plain)


def check_request(fleet: Fleet, repo: str) -> None:
    """What `open_request` needs and has not, found before anything is paid for."""
    if fleet.local.run(["sh", "-c", "command -v gh"]).returncode:
        raise NotFound("gh, which opens pull requests, is not on your PATH", "install it, or leave out --pr")
    if not git.text(fleet.local, repo, "remote", "get-url", "origin"):
        raise NotFound(
            "the repository has no remote called origin to push to", "git remote add origin URL, or leave out --pr"
        )


def open_request(work: Reduction, delivery: Delivery) -> str:
    """Push the branch and open a pull request with the user's own gh; returns its address."""
    repo = work.run.info.repo
    for argv in (
        ["git", "-C", repo, "push", "-u", "origin", f"refs/heads/{delivery.branch}"],
        [
            "gh",
            "pr",
            "create",
            "--head",
            delivery.branch,
            "--title",
            _title(work),
            "--body-file",
            work.run.path("pull-request.md"),
        ],
    ):
        done = work.fleet.local.run(["env", "-C", repo, *argv] if argv[0] == "gh" else argv)
        if done.returncode:
            said = done.stderr.decode("utf-8", "replace").strip().splitlines()
            words = next(
                (line for line in said if line.startswith(("fatal:", "error:", "! "))), said[-1] if said else ""
            )
            pushed = " and was pushed" if argv[0] == "gh" else ""
            hint = f"the branch is {delivery.branch}{pushed}; muster reduce {work.run.name} --pr tries it again"
            raise MusterError(f"{argv[0]} failed: {words or done.returncode}", hint)
    return done.stdout.decode("utf-8", "replace").strip()


def _title(work: Reduction) -> str:
    counts = funnel(work.run)
    return f"Fix {counts['fixed']} tests, improve {counts['improved']} ({work.run.name})"
