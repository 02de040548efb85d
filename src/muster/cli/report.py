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
Builds a page for a test run from the artifact folder of `pytest --e2e-artifacts DIR`. It shows the blocks of the tutorial with the tests
that cite them, transcripts, and recordings to play. For a run of improve or map, the page shows how many tasks reached each stage, what
agents claimed and what was verified, the branch, and the transcript, recording and changes of each task. Once the page exists, the run
rebuilds it while it goes on and at its end. The page opens from a file without a network, and any web server can serve it.
An earlier report is replaced. A folder that contains anything else is not changed.
"""
FOLDER = ".muster/e2e"


def options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "folder",
        nargs="?",
        default=FOLDER,
        metavar="DIR|RUN",
        help=f"artifact folder (default: {FOLDER}), or name of a run",
    )
    add(
        "--out",
        metavar="DIR",
        help="folder for the page (default: report in the artifact folder or the run's directory)",
    )
    add("--open", action="store_true", help="open the page in a browser")


def run(args: argparse.Namespace, fleet: Fleet) -> int:
    from ..report import player

    name, summary = _make(args.folder, Path(args.out) if args.out else None, fleet)
    if args.json:
        render.document(
            {"report": str(summary.path), "run": name, "tests": summary.tests, "outcomes": summary.outcomes}
        )
    else:
        counts = ", ".join(f"{count} {outcome}" for outcome, count in summary.outcomes.items())
        word = "test" if name is None else "task"
        render.note(f"{summary.tests} {word if summary.tests == 1 else word + 's'}{': ' if counts else ''}{counts}")
        if not player.find():
            render.note(f"the page cannot play recordings without the player: {player.INSTALL}")
        render.out(str(summary.path))
    if args.open:
        import webbrowser

        if not webbrowser.open(summary.path.resolve().as_uri()):
            render.note(f"cannot start a browser; open {summary.path.resolve().as_uri()}")
    return 0


def _make(word: str, out: Path | None, fleet: Fleet) -> tuple[str | None, Summary]:
    """Build the page and return it with the name of the run, or None for a test run. A folder takes precedence over a run."""
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
