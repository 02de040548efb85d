"""The test functions of a project: what pytest collected, with parameters put together, and the blocks of a tutorial that each one cites."""

from __future__ import annotations

import ast
import os
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ... import Host
from ...errors import MusterError, NotFound, TimedOut, UsageError
from ...tutorial import blocks
from ...tutorial import check as citations
from ..run.results import name_flaw
from .execute import Item, Report

SHOWN = 5
MORE_TIME = 'give it more time: [improve] suite_timeout = "2h"'
NO_PYTEST = 'activate the environment that has it, or name the command: [improve] pytest = ["/path/to/venv/bin/python", "-m", "pytest"]'

SETUP = (
    'install the project anew for each checkout: [workdir] setup = "python3 -m venv .venv && .venv/bin/pip install -e . pytest" '
    'and [improve] pytest = [".venv/bin/python", "-m", "pytest"] in .muster/config.toml, then muster trust'
)
COPY = '[workdir] copy = ["PATH"] brings them from your folder, [workdir] setup = "COMMAND" builds them'

#: Larger files of tests are not read.
FILE_CAP = 4 << 20


class Cited(NamedTuple):
    """A block of the tutorial, as it was in that commit."""

    id: str
    text: str


class Function(NamedTuple):
    """A test function; the path begins at the top of the repository, ids where pytest begins."""

    id: str
    file: str
    line: int
    end: int
    cls: str
    ids: tuple[str, ...]
    """Its tests: one, or one for each set of parameters."""
    marks: tuple[str, ...] = ()
    blocks: tuple[Cited, ...] = ()

    @property
    def name(self) -> str:
        return self.id.split("::")[-1]


def functions(report: Report) -> list[Function]:
    """What was collected, in its order. UsageError, with what to do, when there is nothing or not all of it."""
    check(report, ran=False)
    grouped: dict[str, list[Item]] = {}
    for item in report.items.values():
        grouped.setdefault(item.function, []).append(item)
    return [
        Function(
            id,
            items[0].file,
            items[0].line,
            items[0].end,
            items[0].cls,
            tuple(item.id for item in items),
            tuple(sorted({mark for item in items for mark in item.marks})),
        )
        for id, items in grouped.items()
    ]


def check(report: Report, *, ran: bool) -> None:
    """UsageError, with what to do, when tests were not all collected (or `ran`: not run), or not on the code of their checkout."""
    where = f"on {report.place}" if report.place else "here"
    if report.outside:
        files = ", ".join(report.outside)
        raise UsageError(
            f"the tests import code of the project from elsewhere, not from their checkout: {files}", SETUP
        )
    if report.errors:
        lines = [f"{file}: {_reason(text)}" for file, text in report.errors.items()]
        more = [f"and {len(lines) - SHOWN} more"] if len(lines) > SHOWN else []
        told = "".join(f"\n  {line}" for line in (*lines[:SHOWN], *more))
        some = shlex.quote(next(iter(report.errors)))
        hint = f"mend them, or leave them out: -- --ignore={some}"
        if report.unbuilt:
            files = ", ".join(report.unbuilt)
            hint = f"the checkout lacks files that are installed: {files}. If the tests need them: {COPY}; or {hint}"
        raise UsageError(f"pytest cannot collect all tests:{told}", hint)
    if report.cases if ran else report.items:
        return
    if report.late:
        raise TimedOut(f"the time was up ({report.seconds:.0f} s) before pytest came to the tests", MORE_TIME)
    if report.status == 5:
        raise UsageError("there are no tests", "name files or folders that have some; pytest --collect-only shows them")
    if report.exit_code == 127 or "No module named pytest" in report.screen:
        program = shlex.split(report.command)[0] if report.command else "pytest"
        problem = "is not installed" if report.exit_code == 127 else "has no pytest"
        raise NotFound(f"{program} {problem} {where}", NO_PYTEST)
    shown = "".join(f"\n  {line}" for line in report.screen.splitlines()[-10:])
    raise UsageError(
        f"pytest did not run {where} (exit code {report.exit_code}):{shown}", f"try it by hand: {report.command}"
    )


def _reason(text: str) -> str:
    """The line of an error that says what is wrong: pytest marks those with an E."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    marked = [line[1:].strip() for line in lines if line.startswith("E ")]
    return (marked or lines or ["no reason is told"])[-1][:200]


# The tutorial


def cite(host: Host, repo: str, commit: str, found: Sequence[Function], tutorial: str = "") -> list[Function]:
    """The functions with the blocks they cite, by the files of that commit. They cite nothing where there is no tutorial.

    Files are parsed, never run. A `tutorial` that is named begins at the top of the repository.
    """
    places = [os.path.normpath(tutorial)] if tutorial else list(blocks.DEFAULT_PATHS)
    names = list(dict.fromkeys(one.file for one in found))
    texts = files(host, repo, commit, [*places, *names])
    script = next((texts[place] for place in places if place in texts), None)
    if script is None or not _is_text(script):
        return list(found)
    citing: dict[str, list[Cited]] = {}
    with tempfile.TemporaryDirectory(prefix="muster-collect-") as folder:
        # Under names of our own: theirs may be any.
        named = {os.path.join(folder, f"{number}.py"): file for number, file in enumerate(names) if file in texts}
        for path, file in named.items():
            _write(path, texts[file])
        _write(os.path.join(folder, "tutorial.sh"), script)
        seen = citations.check(os.path.join(folder, "tutorial.sh"), list(named))
        for block in seen.blocks:
            for test in seen.tests.get(block.id, []):
                path, _, name = test.partition("::")
                citing.setdefault(f"{named[path]}::{name}", []).append(Cited(block.id, block.text))
    return [one._replace(blocks=tuple(citing.get(f"{one.file}::{one.id.partition('::')[2]}", []))) for one in found]


def files(host: Host, repo: str, commit: str, paths: Sequence[str]) -> Mapping[str, bytes]:
    """What a commit has at these paths; those that are not there, or too large, are left out."""
    plain = [path for path in paths if not name_flaw(path)]
    asked = "".join(f"{commit}:{path}\n" for path in plain).encode()
    git = ["git", "-C", repo, "-c", "core.hooksPath=/dev/null", "cat-file", "--batch"]
    done = host.run(git, input=asked)
    if done.returncode:
        told = done.stderr.decode("utf-8", "replace").strip()
        raise MusterError(f"git cannot read {commit[:10]}: {told}", f"git -C {shlex.quote(repo)} fsck")
    found, at = {}, 0
    for path in plain:
        head, _, _ = done.stdout[at:].partition(b"\n")
        at += len(head) + 1
        words = head.rsplit(b" ", 2)
        if len(words) == 3 and words[2].isdigit():
            size = int(words[2])
            if words[1] == b"blob" and size <= FILE_CAP:
                found[path] = done.stdout[at : at + size]
            at += size + 1
    return found


def names(text: bytes) -> frozenset[str]:
    """The functions, with their classes in front, and the classes of a Python file; none when it cannot be read."""
    found = set()

    def look(node: ast.AST, inside: str) -> None:
        for child in ast.iter_child_nodes(node):
            here = inside
            if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                found.add(f"{inside}{child.name}")
                here = f"{inside}{child.name}::"
            look(child, here)

    try:
        look(ast.parse(text), "")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return frozenset()
    return frozenset(found)


def _is_text(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _write(path: str, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)
