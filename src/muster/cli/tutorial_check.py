from __future__ import annotations

import argparse
import os
from typing import Any

from ..errors import NotFound
from ..fleet import Fleet
from ..tutorial import blocks, check
from . import render

EXAMPLES = """
muster tutorial check
muster tutorial check --tutorial docs/tutorial.sh tests/e2e
muster tutorial check --strict --artifacts .muster/e2e
"""
TEXT = """
Reports blocks that no test cites, citations that are stale, duplicate or unreadable, and tests that cite nothing. Tests are parsed, not
imported or run. A test cites a block with e2e.write_tutorial_block(TEXT) or in its docstring. If the tests have run, commands of a block
that no citing test ran are warnings. The exit code is 1 if there are findings.
"""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("tests", nargs="*", metavar="TESTS", help="files or folders; default: tests/e2e, else tests")
    parser.add_argument("--tutorial", default="", metavar="FILE", help="default: tutorial.sh, else docs/tutorial.sh")
    parser.add_argument(
        "--artifacts", default="", metavar="DIR", help="artifact folder of a test run; default: .muster/e2e"
    )
    parser.add_argument("--strict", action="store_true", help="exit with 1 for warnings too")


def run(args: argparse.Namespace, fleet: Fleet) -> int:
    tutorial = args.tutorial or os.path.relpath(blocks.find(fleet.cwd), fleet.cwd)
    if args.artifacts and not os.path.isdir(args.artifacts):
        raise NotFound(f"there is no folder {args.artifacts}", "pytest --e2e-artifacts DIR creates it")
    tests = args.tests or [check.default_tests(fleet.cwd)]
    artifacts = args.artifacts or _first(fleet.cwd, kept := os.path.join(".muster", "e2e")) or kept
    report = check.check(tutorial, tests, artifacts)
    bad = check.failed(report, args.strict)
    if args.json:
        render.document(_document(report, not bad))
    else:
        for line in check.lines(report):
            render.out(render.plain(line, keep="\t"))
        for note in (*report.notes, check.summary(report)):
            render.note(note)
    return 1 if bad else 0


def _first(folder: str, *places: str) -> str:
    """Return the first of these folders that exists, here or at the top of the repository; empty if there is none."""
    for root in blocks.search_folders(folder):
        for place in places:
            if os.path.isdir(path := os.path.join(root, place)):
                return os.path.relpath(path, folder)
    return ""


def _document(report: check.Report, ok: bool) -> dict[str, Any]:
    return {
        "tutorial": report.tutorial,
        "ok": ok,
        "findings": [_row(finding) for finding in report.findings],
        "warnings": [_row(finding) for finding in report.warnings],
        "notes": report.notes,
        "blocks": [
            {"id": block.id, "line": block.line, "tests": report.tests[block.id]}
            for block in report.blocks
            if block.id in report.tests
        ],
        "tests": report.test_count,
    }


def _row(finding: check.Finding) -> dict[str, Any]:
    return {key: None if value == "" else value for key, value in finding._asdict().items()}
