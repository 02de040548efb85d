"""A test suite in, verified changes out: collect, baseline, one scout per group of like failures, one agent per test that is left, verify.

Each stage writes files into the run's directory, and a stage whose file is there is not done again. Bringing the changes
together is `reduce`.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shlex
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ... import Address, Fleet
from ...errors import MusterError, Refused, UsageError
from ..mapping import start
from ..reducing import rebase
from ..reducing import trees as merging
from ..review import paths as classify
from ..run import directory as runs
from ..run import prompts, tasks
from ..run.directory import Attempt, Run
from ..run.records import Ahead, KeptOut, Outcome, Plan, RunInfo, Verified
from ..run.tasks import Task
from ..suite import baseline, collect, execute
from ..suite.baseline import Baseline, Group, Standing
from . import converged

BAD = frozenset({"failing", "hanging", "flaky"})
FAILURE_MOST = 3000
#: Said of a branch that did not begin at its base.
AGAIN = "; its branch did not begin at the commit that it was given, so only its own changes are taken"
#: A group of like failures has at least so many tests; one alone needs no scout.
SCOUTED = 2


class Wish(NamedTuple):
    """What `improve` is asked for."""

    map: start.Wish
    """The agents; it has no items."""
    paths: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    """For pytest."""
    pytest: tuple[str, ...] = execute.PYTEST
    """The command; if it is empty, `within` fills in the usual one."""
    lint: tuple[str, ...] = ()
    keep_env: tuple[str, ...] = ()
    playbooks: str = ""
    tutorial: str = ""
    everything: bool = False
    times: int = 3
    """So often a test must pass to be believed."""
    repeat: int = 2
    test_seconds: float = 300.0
    """After so long a phase of a test hangs."""
    suite_seconds: float = 3600.0
    """One agent runs tests no longer."""
    rules: classify.Rules = classify.Rules()
    integrator: str = ""
    """A type, `none`, or empty: the workers'."""
    rank: str = "code"


class Planned(NamedTuple):
    """What is to be done about the tests, and which are left alone, with the reason."""

    scouts: list[tuple[Standing, Group]]
    workers: list[Standing]
    skipped: dict[str, str]


# The directory


def base_of(fleet: Fleet, source: str) -> tuple[str, str, int]:
    """The repository, its commit, and how many files of it are changed and not committed. UsageError where there is none."""
    git = [
        "git",
        "--no-optional-locks",
        "-C",
        source or fleet.cwd,
        "-c",
        "core.hooksPath=/dev/null",
        "-c",
        "core.fsmonitor=",
    ]
    top = fleet.local.run([*git, "rev-parse", "--show-toplevel"])
    if top.returncode:
        raise UsageError(f"{source or fleet.cwd} is in no git repository", "git init, and commit what there is")
    head = fleet.local.run([*git, "rev-parse", "--verify", "-q", "HEAD^{commit}"])
    if head.returncode:
        raise UsageError("the repository has no commit yet", "git add -A; git commit -m first")
    dirty = fleet.local.run([*git, "status", "--porcelain", "-z", "--untracked-files=no"]).stdout.count(b"\0")
    return os.fsdecode(top.stdout.rstrip(b"\n")), head.stdout.decode().strip(), dirty


def directory(fleet: Fleet, wish: Wish) -> tuple[Run, bool]:
    """The run for this wish: an unfinished one like it, or the one that was named, else a new one (True)."""
    repo, commit, _ = base_of(fleet, wish.map.spec.source)
    source = os.path.realpath(wish.map.spec.source or fleet.cwd)
    same = ["improve", wish.map.spec.type, wish.paths, wish.args, wish.map.places, source]
    digest = tasks.digest(same)
    if wish.map.name:
        known = [run for run in runs.all_runs(fleet.home) if run.name == wish.map.name]
        if known and known[0].info.digest != digest:
            raise UsageError(f"run {wish.map.name} was made for something else", "--run ANOTHER-NAME")
        if known and not wish.map.new:
            return known[0], False
    elif not wish.map.new and (found := next(filter(_open, runs.of(fleet.home, digest)), None)):
        return found, False
    info = RunInfo(
        kind="improve",
        digest=digest,
        repo=repo,
        source=source,
        base=commit,
        type=wish.map.spec.type,
        places=wish.map.places,
        permissions=wish.map.spec.permissions,
        paths=tuple(wish.paths),
        args=wish.map.args,
        tutorial=wish.tutorial,
    )
    name = wish.map.name or runs.free_name(fleet.home, "improve", converged.branches(fleet, repo))
    return runs.make(fleet.home, name, info, []), True


def _open(run: Run) -> bool:
    return not run.finished() or stopped(run)


def stopped(run: Run) -> bool:
    """Whether somebody ended a run before all of it was done; the same command goes on with it."""
    finished = run.finished()
    return finished is not None and (finished.commit is None or bool(finished.outcomes.get("cancelled")))


def resume(run: Run) -> None:
    """Open a run again that was stopped, or that lacked budget, by the process that holds it."""
    if run.finished() and (stopped(run) or not start.over(run)):
        os.unlink(run.path("finished.json"))


@contextlib.contextmanager
def holding(fleet: Fleet, run: Run, new: bool) -> Iterator[None]:
    """The right to write. Ctrl-C leaves no test running, and a new run whose tests cannot be run leaves nothing at all."""
    try:
        with run.holding():
            yield
    except KeyboardInterrupt:
        execute.sweep(fleet, run.name)
        raise
    except MusterError:
        if new and not os.path.exists(run.path("baseline.json")):
            converged.forget(fleet, run.name, run.info.repo)
            run.remove()
        raise


def within(wish: Wish, run: Run) -> Wish:
    """Return the request bound to the folder that the run was started in, even if it is resumed from another one.

    Where pytest is not configured, that folder also decides how it is called.
    """
    source = run.info.source
    spec = wish.map.spec._replace(source=source)
    pytest = wish.pytest or execute.usual_pytest("" if any(wish.map.places) else source, run.info.repo)
    return wish._replace(map=wish.map._replace(spec=spec), pytest=pytest)


def where(run: Run, wish: Wish, before: Baseline | None = None, place: str | None = None) -> execute.Where:
    """How the tests of this run are run, at one of its places (None: the first), once it is known how they stand."""
    return execute.Where(
        run.name,
        wish.map.places[0] if place is None else place,
        run.info.source,
        wish.pytest,
        (*wish.args, *wish.paths),
        wish.keep_env,
        seconds=wish.test_seconds,
        timeout=wish.suite_seconds,
        varying=before.varying() if before else frozenset(),
        roots=before.roots if before else (),
    )


def equipped(wish: Wish, before: Baseline) -> Wish:
    """Return the request with agents whose Python programs import the code of their work dir, as the tests of the baseline did."""
    if not before.roots:
        return wish
    spec = wish.map.spec._replace(paths={**wish.map.spec.paths, "PYTHONPATH": before.roots})
    return wish._replace(map=wish.map._replace(spec=spec))


def protecting(rules: classify.Rules, tutorial: str) -> classify.Rules:
    """The rules with the tutorial that was named, whatever its name has in it."""
    literal = re.sub(r"([*?[])", r"[\1]", os.path.normpath(tutorial))
    return rules._replace(protected=(f"/{literal}", *rules.protected)) if tutorial else rules


# The stages


def go(fleet: Fleet, wish: Wish, run: Run, say: start.Say, shown: start.Shown) -> bool:
    """All stages up to verified changes, by the process that holds the run; False when somebody asked for an end."""
    execute.sweep(fleet, run.name)
    if run.control():
        run.ask(state="")  # asked of an earlier process
    before = standing(fleet, wish, run, say)
    wish = equipped(wish, before)
    planned = plan(fleet, wish, run, before)
    if not run.tasks():
        tell_plan(fleet, wish, run, before, planned, say)
    if planned.scouts:
        base = run.info.base
        run.add(
            [_task(wish, number, one, "scout", base, group) for number, (one, group) in enumerate(planned.scouts, 1)]
        )
        if not _work(fleet, wish, run, say, shown):
            return False
        verify(fleet, wish, run, before, say)
    ahead = _ahead(fleet, wish, run, before, planned, say)
    workers = _workers(wish, run, before, planned, ahead)
    if workers:
        run.add(workers)
        if not _work(fleet, wish, run, say, shown):
            return False
        verify(fleet, wish, run, before, say)
    return True


def _work(fleet: Fleet, wish: Wish, run: Run, say: start.Say, shown: start.Shown) -> bool:
    """A wave of agents; what they say that people should know is known at once."""
    # What an integrator was asked before a kill is for `reduce` to go on with: it may be of another type.
    if _asked_to_stop(run):
        return False
    own = [task.id for task in run.tasks() if is_work(task)]
    done = start.work(fleet, wish.map, run, say, shown, only=own, reopen=True)
    converged.escalate(fleet.home, run)
    return done and not _asked_to_stop(run)


def _asked_to_stop(run: Run) -> bool:
    """Whether `runs stop` was called since this process began; what is asked of one wave holds for the next one too."""
    return run.control().state == "stopped"


def standing(fleet: Fleet, wish: Wish, run: Run, say: start.Say) -> Baseline:
    """The true before; taken once."""
    if told := runs.read(run.path("baseline.json")):
        return Baseline.from_json(told)
    say(run.event("baseline", time.time(), reason="every test, without agents"))
    found = baseline.take(
        fleet,
        where(run, wish),
        run.info.base,
        repeat=wish.repeat,
        tutorial=wish.tutorial,
        say=lambda words: say(run.event("baseline", time.time(), reason=words)),
    )
    runs.write(run.path("baseline.json"), found.to_json())
    return found


def plan(fleet: Fleet, wish: Wish, run: Run, before: Baseline, keep: bool = True) -> Planned:
    """Who gets an agent: one test of each group of like failures first, then all that are left. What is kept stays the plan of the run."""
    plan = run.plan()
    if plan is None:
        skipped = {} if wish.everything else converged.skipped(fleet, run, before, wish.map.spec.type, wish.tutorial)
        skipped |= {one.function.id: "it is skipped" for one in before.tests if one.status == "skipped"}
        scouts = [id for group in before.groups if (id := _scout(wish, group, skipped))]
        if wish.playbooks:
            without = [one.function.id for one in before.tests if not playbook(wish.playbooks, one.function.id)]
            words = f"there is no playbook for it in {wish.playbooks}"
            skipped |= {test: words for test in without if test not in scouts}
        plan = Plan(skipped, tuple(scouts))
        if keep:
            run.save(plan)
    tests = {one.function.id: one for one in before.tests}
    first = [(tests[id], group) for id in plan.scouts for group in before.groups if id in group.functions]
    taken = {*plan.skipped, *plan.scouts}
    return Planned(first, [one for id, one in tests.items() if id not in taken], dict(plan.skipped))


def _scout(wish: Wish, group: Group, skipped: Mapping[str, str]) -> str:
    """The test by which the cause of a group is sought; empty when it needs no scout."""
    left = [id for id in group.functions if id not in skipped]
    able = [id for id in left if not wish.playbooks or playbook(wish.playbooks, id, "scout")]
    return able[0] if able and len(left) >= SCOUTED else ""


def tell_plan(fleet: Fleet, wish: Wish, run: Run, before: Baseline, planned: Planned, say: start.Say) -> None:
    """Said out loud before the first launch."""
    count = len(planned.scouts) + len(planned.workers)
    told = start.estimate(fleet, wish.map._replace(items=[{}] * count))[0]
    counts = {status: sum(one.status == status for one in before.tests) for status in baseline.STATUSES}
    words = ", ".join(f"{number} {status}" for status, number in counts.items() if number)
    lines = [f"{tasks.counted(len(before.tests), 'test')}: {words}"]
    lines += [f"{len(group.functions)} fail alike, so one agent goes first: {group.why}" for _, group in planned.scouts]
    lines += [f"{number} get no agent: {why}" for why, number in Counter(planned.skipped.values()).most_common(10)]
    lines += [told.words.replace("\n", "; ")] if count else []
    say(run.event("plan", time.time(), reason="\n  ".join(lines)))


def _workers(wish: Wish, run: Run, before: Baseline, planned: Planned, ahead: Ahead) -> list[Task]:
    fixed = ahead.fixed
    first = len(planned.scouts) + 1
    left = [one for one in planned.workers if one.function.id not in fixed]
    return [
        _task(wish, number, one, "worker", ahead.base, _group(before, one), ahead.siblings)
        for number, one in enumerate(left, first)
    ]


def _group(before: Baseline, one: Standing) -> Group | None:
    return next((group for group in before.groups if one.function.id in group.functions), None)


def _task(
    wish: Wish, number: int, one: Standing, role: str, base: str, group: Group | None, siblings: Sequence[str] = ()
) -> Task:
    function = one.function
    args = wish.map.args
    if wish.playbooks:
        args = (playbook(wish.playbooks, function.id, role),)
    fields = {
        "item": function.id,
        "role": role,
        "status": one.status,
        "group": str(len(group.functions) if group else 1),
    }
    name = tasks.name(number, f"{role} {function.name}" if role == "scout" else function.name)
    text = prompt(wish, one, role, group, siblings)
    return Task(name, number, function.id, fields, text, args, base)


def playbook(folder: str, test: str, role: str = "") -> str:
    """The playbook of a test: `test_file.test_name.toml` or `test_name.toml`, of a scout with `scout.` in front; empty when there is none."""
    file, _, name = test.partition("::")
    name = name.replace("::", ".")
    stem = os.path.splitext(os.path.basename(file))[0]
    names = [f"{stem}.{name}.toml", f"{name}.toml"]
    names = [f"scout.{one}" for one in names] + names if role == "scout" else names
    return next((path for one in names if os.path.isfile(path := os.path.join(folder, one))), "")


# The prompt


def prompt(wish: Wish, one: Standing, role: str, group: Group | None, siblings: Sequence[str]) -> str:
    """What an agent is asked: one base with slots, all of whose values are text and nothing else."""
    function, case = one.function, one.case
    failure = ""
    if case is not None and one.status in BAD:
        failure = f"\nWhat was seen of `{case.id}`, which is {case.outcome}:\n\n{_fenced(case.text[-FAILURE_MOST:])}\n"
    if group is not None and len(group.functions) > 1:
        others = "".join(f"\n- {id}" for id in group.functions[:20] if id != function.id)
        failure += f"\n{len(group.functions)} tests fail alike ({group.why}). The others:{others}\n"
    block = "".join(f"\nIt cites this block of the tutorial:\n\n{_fenced(cited.text)}\n" for cited in function.blocks)
    done = "".join(f"\n- {line}" for line in siblings[:20])
    return prompts.prompt(
        "improve",
        test=function.id,
        file=f"{function.file}, lines {function.line} to {function.end}",
        situation=_SITUATION[one.status],
        failure=failure,
        block=block,
        siblings=f"\nFixed already, in the commit you start from:{done}\n" if done else "",
        todo=_TODO["scout" if role == "scout" else "bad" if one.status in BAD else "good"],
        command=shlex.join((*wish.pytest, *wish.args, function.id)),
        protected="".join(f", {path}" for path in wish.rules.protected[:12]),
    )


_SITUATION = {
    "failing": "It fails.",
    "hanging": "It hangs.",
    "flaky": "It passes at times and fails at others.",
    "passing": "It passes.",
    "skipped": "It is skipped.",
}
_TODO = {
    "scout": "Find the cause that these tests share, and fix it where it is, so that all of them can pass. Nothing else.",
    "bad": "Find out why, and fix the program or the test, whichever is wrong.",
    "good": "Compare it with what it stands for. Make it more faithful, its assertions more real, or add a test for a part that none covers; "
    "if it is good as it is, change nothing and submit `ok` with the summary `unchanged`.",
}


def _fenced(text: str) -> str:
    """As a block of Markdown that nothing in it can end."""
    marks = "```"
    while marks in text:
        marks += "`"
    return f"{marks}\n{text.rstrip()}\n{marks}"


# Verifying


def verify(fleet: Fleet, wish: Wish, run: Run, before: Baseline, say: start.Say) -> None:
    """Whether what each agent claims is so, in a clean checkout at the place where it worked; once for each attempt."""
    todo = [
        (task._replace(base=task.base or run.info.base), attempt)
        for task in run.tasks()
        if is_work(task) and (attempt := claimed(run, task)) and not verified(run, task)
    ]
    standings = {one.function.id: one for one in before.tests}

    def one(task: Task, attempt: Attempt) -> Verified:
        verified = _verify(fleet, wish, run, before, standings.get(task.item), task, attempt)
        run.save_verified(task.id, verified)
        return verified

    work = {task.id: functools.partial(one, task, attempt) for task, attempt in todo}
    for id, told in execute.each(fleet, work, execute.AT_ONCE * len(wish.map.places)):
        say(run.event("verified", time.time(), task=id, outcome=told.result, reason=told.reason))


#: The roles of tasks whose work is verified and integrated: those of agents for a test, and branches from elsewhere.
WORK = ("scout", "worker", "branch")


def is_work(task: Task) -> bool:
    """Return whether the work of a task is verified and integrated: of all that `map` made, and of an `improve` all but questions."""
    return not task.base or task.fields.get("role") in WORK


def claimed(run: Run, task: Task) -> Attempt | None:
    """The attempt at a task that claims to have done it."""
    tries = run.attempts(task.id)
    last = tries[-1] if tries else None
    return last if last and last.outcome and last.final and last.outcome.outcome == "ok" else None


def verified(run: Run, task: Task) -> Verified | None:
    """Return what was found of the newest attempt at a task."""
    found = run.verified(task.id)
    tries = run.attempts(task.id)
    return found if found and tries and found.attempt == tries[-1].number else None


def _verify(
    fleet: Fleet, wish: Wish, run: Run, before: Baseline, one: Standing | None, task: Task, attempt: Attempt
) -> Verified:
    """`one` is the test that the task is about; without it, what the change does to all tests decides."""
    outcome = attempt.outcome or Outcome()
    told = Verified(attempt.number, claimed=outcome.outcome, base=task.base, result="refused")
    bad = one is not None and one.status in BAD
    tip, repo = outcome.tip, run.info.repo
    if tip:
        placed = rebase.onto(fleet, run, task.base, tip, task.id)
        if not placed.commit:
            return told._replace(
                reason=f"its branch does not begin at the commit that it was given, and {placed.reason}"
            )
        tip, told = placed.commit, told._replace(moved=placed.moved)
    judged = classify.judge(fleet.local, repo, task.base, tip, wish.rules.knowing(before)) if tip else None
    if judged is None or not (judged.implementation or judged.other or judged.kept_out):
        if bad:
            return told._replace(reason="it claims to have fixed it, and changed nothing")
        return told._replace(result="unchanged", ok=True, reason="nothing was to be changed")
    told = told._replace(
        kept_out=tuple(KeptOut(*finding) for finding in judged.kept_out),
        implementation=tuple(change.path for change in judged.implementation),
        other=tuple(change.path for change in judged.other),
    )
    paths = [*told.implementation, *told.other]
    if not paths:
        return told._replace(reason=f"all of it is kept out: {judged.kept_out[0].words}")
    try:
        tree = classify.tree(fleet.local, repo, task.base, tip, paths)
    except Refused as error:  # without what is kept out
        return told._replace(reason=error.message)
    unit = commit(fleet, run, task.id, task.base, tree)
    here = where(run, wish, before, attempt.agent.place)
    if one is None:
        found = execute.check_change(
            fleet,
            here,
            unit,
            before.before(),
            times=wish.times,
            base=task.base,
            removed=removed(fleet, wish, run, before, unit),
        )
        good = "fixed" if found.fixed else "improved"
        told = told._replace(tests=tuple(found.fixed))
    else:
        found = execute.check_fix(
            fleet,
            here,
            unit,
            one.function.id,
            before.before(),
            times=wish.times,
            fix=bad,
            base=task.base,
        )
        good = "fixed" if bad else "improved"
    return told._replace(
        result=good if found.ok else "refused",
        ok=found.ok,
        reason=f"{found.words}{AGAIN}" if found.ok and told.moved else found.words,
        unit=unit,
        evidence=tuple(found.evidence),
    )


def removed(fleet: Fleet, wish: Wish, run: Run, before: Baseline, commit: str) -> Callable[[str], bool]:
    """Says of a test function whether a commit has it no more in the file that it was in: `classify.judge` has seen that, and let it be."""
    repo, base = run.info.repo, run.info.base
    files = {one.function.id: one.function.file for one in before.tests}

    @functools.cache
    def names(commit: str, file: str) -> frozenset[str]:
        return collect.names(collect.files(fleet.local, repo, commit, [file]).get(file, b""))

    def gone(function: str) -> bool:
        id, *parts = function.split("::")
        chain = {"::".join(parts[:count]) for count in range(1, len(parts) + 1)}
        for file in {files.get(function, id), id}:
            if file.endswith(".py") and classify.kind(file, wish.rules) == "other":  # else nobody looks for tests there
                old, new = names(base, file), names(commit, file)
                inherited = {name for name in old if name.split("::")[-1] == parts[-1]} if not chain <= old else set()
                if (chain | inherited) & old - new:
                    return True
        return False

    return gone


def commit(fleet: Fleet, run: Run, task: str, base: str, tree: str) -> str:
    """What counts of a task's work as one commit on `base`, held by a ref of the run."""
    git = ["git", "-C", run.info.repo, "-c", "core.hooksPath=/dev/null", "-c", "commit.gpgsign=false"]
    who = {f"GIT_{role}_{key}": value for role in ("AUTHOR", "COMMITTER") for key, value in converged.IDENTITY.items()}
    env = ["env", *(f"{key}={value}" for key, value in who.items())]
    done = fleet.local.run([*env, *git, "commit-tree", tree, "-p", base, "-m", f"muster: {task}"])
    made = done.stdout.decode().strip()
    ref = f"refs/muster/runs/{run.name}/unit/{task}"
    if done.returncode or fleet.local.run([*git, "update-ref", ref, made]).returncode:
        raise MusterError(f"git cannot keep {task}: {done.stderr.decode('utf-8', 'replace').strip()}")
    return made


# What the scouts found becomes what the others start from


def _ahead(fleet: Fleet, wish: Wish, run: Run, before: Baseline, planned: Planned, say: start.Say) -> Ahead:
    """The commit for the second wave, the scouts whose fixes it has, and the tests that pass by them."""
    if ahead := run.ahead():
        return ahead
    base = run.info.base
    scouts = {task.id: task for task in run.tasks() if task.fields.get("role") == "scout"}
    good = {id: found for id, task in scouts.items() if (found := verified(run, task)) and found.ok and found.unit}
    commit, included, needless = base, list[str](), dict[str, str]()
    if good:
        own = {id: [scouts[id].item] if one.tests is None else list(one.tests) for id, one in good.items()}
        commit, included, needless = _merged(
            fleet,
            run,
            base,
            {id: one.unit for id, one in good.items()},
            lambda id, tip: _passes(fleet, where(run, wish, before), before, tip, own[id]),
        )
    fixed: dict[str, str] = {}
    siblings = []
    for id, by in needless.items():
        group = next(group for one, group in planned.scouts if one.function.id == scouts[id].item)
        report = execute.run(fleet, where(run, wish, before), commit, list(group.functions))
        passing = [name for name in group.functions if not execute.unfixed(report, name, before.before())]
        fixed |= dict.fromkeys(passing, by)
        say(run.event("scouted", time.time(), task=id, reason=f"its tests pass by {by} already"))
    for id in included:
        task = scouts[id]
        group = next(group for one, group in planned.scouts if one.function.id == task.item)
        report = execute.run(fleet, where(run, wish, before), commit, list(group.functions))
        passing = [name for name in group.functions if not execute.unfixed(report, name, before.before())]
        fixed |= dict.fromkeys(passing, id)
        summary = (run.attempts(id)[-1].outcome or Outcome()).summary.partition("\n")[0][:200]
        siblings.append(f"{len(passing)} of {len(group.functions)} that failed alike ({group.why}): {summary}")
        say(
            run.event(
                "scouted", time.time(), task=id, reason=f"{len(passing)} of {len(group.functions)} tests pass by it"
            )
        )
    ahead = Ahead(commit, tuple(included), fixed, tuple(siblings))
    run.save(ahead)
    return ahead


def _passes(fleet: Fleet, place: execute.Where, before: Baseline, commit: str, tests: Sequence[str]) -> bool:
    """Whether all of these tests pass at a commit; False if one of them is flaky or hangs, as one run proves nothing then."""
    known = before.before()
    if {"flaky", "hung"} & {was for id, was in known.items() if any(execute.is_of(id, test) for test in tests)}:
        return False
    report = execute.run(fleet, place, commit, tests)
    return not report.errors and not report.outside and not any(execute.unfixed(report, test, known) for test in tests)


def _merged(
    fleet: Fleet, run: Run, base: str, tips: dict[str, str], passes: Callable[[str, str], bool]
) -> tuple[str, list[str], dict[str, str]]:
    """Return a commit with the scouts' fixes that fit together, which those are, and the needless ones with the fix that replaces each.

    A fix is needless if `passes` says that its tests pass without it at the commit made so far. It must not become part of what the
    second wave starts from: `integrate` keeps every change that others build on, so both fixes of one bug would be delivered.
    """
    common = converged.git(fleet, run.info.repo, "rev-parse", "--path-format=absolute", "--git-common-dir")
    git = merging.Repository(fleet.local, common, run.path("git"))
    ref = f"refs/muster/runs/{run.name}/ahead"
    trees = git.trees([base, *tips.values()])
    tree, commit, made, needless = trees[base], base, dict[str, str](), dict[str, str]()
    for id, tip in tips.items():
        if made and passes(id, commit):
            needless[id] = next((one for one, at in made.items() if at == commit or passes(id, at)), "")
            continue
        merge = git.merge(*git.siblings([(trees[base], tree), (trees[base], trees[tip])]))
        if not merge.conflicts:
            tree = merge.tree
            (commit,) = git.commits([(tree, base)])
            made[id] = commit
            git.move((ref, commit, None))
    git.close()
    return commit, list(made), needless


def check(fleet: Fleet, wish: Wish) -> None:
    """What is wrong with the words is found before anything is made."""
    if wish.playbooks and not os.path.isdir(wish.playbooks):
        raise UsageError(f"there is no folder {wish.playbooks}", "--playbooks DIR has one TOML file for each test")
    _check_type(fleet, wish.map.spec.type, wish.map.spec.permissions, "-a")
    check_integrator(fleet, wish)
    if not wish.playbooks:
        name = Address.parse(f"check-{os.urandom(4).hex()}")
        try:
            fleet.check(wish.map.spec._replace(address=name, message="x", args=wish.map.args))
        except UsageError as error:
            raise UsageError(error.message, "--playbooks DIR has one TOML file for each test; or -a claude") from None


def check_integrator(fleet: Fleet, wish: Wish) -> None:
    if (kind := integrator(fleet, wish)) != "none":
        _check_type(fleet, kind, wish.map.spec.permissions, "--integrator")


def integrator(fleet: Fleet, wish: Wish) -> str:
    """The type that resolves conflicts, or `none`: that is also what an unnamed one comes to where the run's own takes no tasks."""
    kind = wish.integrator or wish.map.spec.type
    return "none" if kind == "none" or not (wish.integrator or fleet.type(kind).speaks) else kind


def _check_type(fleet: Fleet, name: str, permissions: str, option: str) -> None:
    kind = fleet.type(name)
    start.unattended(kind, permissions)
    if not kind.speaks:
        hint = f"{option} claude, or another client; {option} replay with --playbooks"
        raise UsageError(f"type {kind.name} takes no task", hint)
