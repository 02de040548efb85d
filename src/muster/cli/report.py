from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import NotFound
from ..fleet import Fleet
from . import render

if TYPE_CHECKING:
    from ..flow.run.directory import Run
    from ..report.page import Summary

EXAMPLES = """
muster report
muster report --open
muster report build/e2e --out public/e2e
muster report improve-1 --open
"""
TEXT = """
Makes the page of a test run from the artifact folder of `pytest --e2e-artifacts DIR`: the tutorial's blocks beside the tests
that cite them, transcripts, and recordings to play. Of a run of improve or map it makes the page that shows how many tasks came how
far, what agents claimed beside what was verified, the branch, and each task with its transcript, recording and changes; once it is
there, the run makes it again as it goes on, and at its end. It opens from a file, without a network, and can be put on any web server.
A report made before is replaced; a folder that holds anything else is left as it is.
"""
FOLDER = ".muster/e2e"


def options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "folder",
        nargs="?",
        default=FOLDER,
        metavar="DIR|RUN",
        help=f"the artifact folder (default: {FOLDER}), or a run",
    )
    add(
        "--out",
        metavar="DIR",
        help="where to make the page (default: report in the artifact folder or the run's directory)",
    )
    add("--open", action="store_true", help="show it in the browser")


def run(args: argparse.Namespace, fleet: Fleet) -> int:
    from ..report import player

    name, made = _make(args.folder, Path(args.out) if args.out else None, fleet)
    if args.json:
        render.document({"report": str(made.path), "run": name, "tests": made.tests, "outcomes": made.outcomes})
    else:
        told = ", ".join(f"{count} {outcome}" for outcome, count in made.outcomes.items())
        word = "test" if name is None else "task"
        render.note(f"{made.tests} {word if made.tests == 1 else word + 's'}{': ' if told else ''}{told}")
        if not player.find():
            render.note(f"recordings cannot be played in it; to play them: {player.INSTALL}")
        render.out(str(made.path))
    if args.open:
        import webbrowser

        if not webbrowser.open(made.path.resolve().as_uri()):
            render.note(f"no browser could be started; open {made.path.resolve().as_uri()}")
    return 0


def _make(word: str, out: Path | None, fleet: Fleet) -> tuple[str | None, Summary]:
    """The name of the run, if it is one, and its page. A folder of that name comes before a run."""
    from ..flow.run import directory as runs
    from ..report import page, run_data, run_page

    folder = Path(word)
    if folder.is_dir() and run_data.is_run(folder):
        ours = folder.resolve().parent == Path(fleet.home, "runs").resolve()
        before = _before(fleet, runs.Run(str(folder.resolve()))) if ours else None
        return folder.resolve().name, run_page.make(folder, out, before)
    if folder.is_dir() or word == FOLDER:
        return None, page.make(folder, out)
    try:
        one = runs.find(fleet.home, word)
    except NotFound as error:
        hint = f"pytest --e2e-artifacts {shlex.quote(word)} makes such a folder; {error.hint}"
        raise NotFound(f"there is no folder {word}, and no run of that name", hint) from None
    return one.name, run_page.make(Path(one.folder), out, _before(fleet, one))


def _before(fleet: Fleet, one: Run) -> Path | None:
    from ..flow.run import directory as runs

    found = runs.before(fleet.home, one)
    return Path(found.folder) if found else None
