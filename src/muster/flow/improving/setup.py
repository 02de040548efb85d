"""From a request to a run that stages can work on: its directory, the right to write, the suite, the baseline."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from typing import NamedTuple

from ... import Fleet
from ...errors import MusterError, UsageError
from ..mapping import start
from ..run import directory, git, tasks
from ..run.directory import Run
from ..run.records import RunInfo
from ..suite import execute
from ..suite.baseline import Baseline, measure
from ..suite.execute import Suite
from .request import ImproveRequest


class Head(NamedTuple):
    """The commit that a run starts from."""

    repo: str
    """The top of the user's repository."""
    commit: str
    changed_files: int
    """Tracked files with changes that are not committed."""


def head(fleet: Fleet, folder: str = "") -> Head:
    """Return the repository around a folder and its last commit. Raises UsageError if there is none."""
    folder = folder or fleet.cwd
    repo = git.top(fleet.local, folder)
    if not repo:
        raise UsageError(f"{folder} is in no git repository", "git init, and commit what there is")
    commit = git.commit(fleet.local, repo, "HEAD")
    if not commit:
        raise UsageError("the repository has no commit yet", "git add -A; git commit -m first")
    status = git.run(fleet.local, repo, "status", "--porcelain", "-z", "--untracked-files=no")
    return Head(repo, commit, status.stdout.count(b"\0"))


def find_or_make(fleet: Fleet, request: ImproveRequest) -> tuple[Run, bool]:
    """Return the run of this name or the newest unfinished run of the same request, or make one; and whether it is new."""
    repo, commit, _ = head(fleet, request.map.spec.source)
    source = os.path.realpath(request.map.spec.source or fleet.cwd)
    same = ["improve", request.map.spec.type, request.paths, request.args, request.map.places, source]
    digest = tasks.digest(same)
    if request.map.name:
        known = [run for run in directory.all_runs(fleet.home) if run.name == request.map.name]
        if known and known[0].info.digest != digest:
            raise UsageError(f"run {request.map.name} was made for something else", "--run ANOTHER-NAME")
        if known and not request.map.new:
            return known[0], False
    elif not request.map.new:
        for run in directory.of(fleet.home, digest):
            if not run.finished() or was_stopped(run):
                return run, False
    info = RunInfo(
        kind="improve",
        digest=digest,
        repo=repo,
        source=source,
        base=commit,
        type=request.map.spec.type,
        places=request.map.places,
        permissions=request.map.spec.permissions,
        paths=request.paths,
        args=request.args,
        tutorial=request.tutorial,
    )
    name = request.map.name or directory.free_name(fleet.home, "improve", git.run_branches(fleet.local, repo))
    return directory.make(fleet.home, name, info, []), True


def was_stopped(run: Run) -> bool:
    """Return whether a run was ended before everything was done. The same command goes on with it."""
    finished = run.finished()
    return finished is not None and (finished.commit is None or bool(finished.outcomes.get("cancelled")))


def reopen(run: Run) -> None:
    """Open a finished run again that was stopped, or that lacked budget. The caller holds the run."""
    if run.finished() and (was_stopped(run) or not start.is_over(run)):
        os.unlink(run.path("finished.json"))


@contextlib.contextmanager
def holding(fleet: Fleet, run: Run, new: bool) -> Iterator[None]:
    """Hold the right to write to a run.

    Ctrl-C leaves no tests running. A new run whose tests cannot be run leaves nothing at all.
    """
    try:
        with run.holding():
            yield
    except KeyboardInterrupt:
        execute.remove_leftovers(fleet, run.name)
        raise
    except MusterError:
        if new and not os.path.exists(run.path("baseline.json")):
            git.forget_run(fleet.local, run.info.repo, run.name)
            run.remove()
        raise


def bound_to(request: ImproveRequest, run: Run) -> ImproveRequest:
    """Return the request bound to the folder that the run was started in, even if it is resumed from another one.

    Where pytest is not configured, that folder also decides how it is called.
    """
    source = run.info.source
    spec = request.map.spec._replace(source=source)
    on_this_machine = not any(request.map.places)
    pytest = request.pytest or execute.usual_pytest(source if on_this_machine else "", run.info.repo)
    return request._replace(map=request.map._replace(spec=spec), pytest=pytest)


def suite_of(run: Run, request: ImproveRequest, baseline: Baseline | None = None, place: str | None = None) -> Suite:
    """Return how the tests of this run are run, on one of its hosts (None: the first). The baseline knows more about them."""
    return Suite(
        run.name,
        request.map.places[0] if place is None else place,
        run.info.source,
        request.pytest,
        (*request.args, *request.paths),
        request.keep_env,
        test_seconds=request.test_seconds,
        timeout=request.suite_seconds,
        varying=baseline.varying() if baseline else frozenset(),
        roots=baseline.roots if baseline else (),
    )


def baseline_of(fleet: Fleet, request: ImproveRequest, run: Run, say: start.Say) -> Baseline:
    """Return how the tests stand before any change; measured once in a run."""
    if data := directory.read(run.path("baseline.json")):
        return Baseline.from_json(data)
    say(run.event("baseline", time.time(), reason="every test, without agents"))
    baseline = measure(
        fleet,
        suite_of(run, request),
        run.info.base,
        repeat=request.repeat,
        tutorial=request.tutorial,
        say=lambda text: say(run.event("baseline", time.time(), reason=text)),
    )
    directory.write(run.path("baseline.json"), baseline.to_json())
    return baseline


def with_import_paths(request: ImproveRequest, baseline: Baseline) -> ImproveRequest:
    """Return the request with agents whose Python programs import the code of their work dir, as the tests of the baseline did."""
    if not baseline.roots:
        return request
    spec = request.map.spec._replace(paths={**request.map.spec.paths, "PYTHONPATH": baseline.roots})
    return request._replace(map=request.map._replace(spec=spec))
