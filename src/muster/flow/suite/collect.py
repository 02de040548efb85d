"""The test functions of a project: what pytest collected, with parameters put together, and the tutorial blocks that each one cites."""

from __future__ import annotations

import ast
import os
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ... import Host
from ...errors import NotFound, TimedOut, UsageError
from ...tutorial import blocks
from ...tutorial import check as citations
from ..run import git
from ..run.results import name_flaw
from .report import Item, Report

#: Files with errors that are shown.
SHOWN = 5
#: Bytes. Larger test files are not read.
FILE_MOST = 4 << 20
MORE_TIME = 'give it more time: [improve] suite_timeout = "2h"'
NO_PYTEST = 'activate the environment that has it, or name the command: [improve] pytest = ["/path/to/venv/bin/python", "-m", "pytest"]'
SETUP = (
    'install the project anew for each checkout: [workdir] setup = "python3 -m venv .venv && .venv/bin/pip install -e . pytest" '
    'and [improve] pytest = [".venv/bin/python", "-m", "pytest"] in .muster/config.toml, then muster trust'
)
COPY = '[workdir] copy = ["PATH"] brings them from your folder, [workdir] setup = "COMMAND" builds them'


class Cited(NamedTuple):
    """A block of the tutorial, as it is in the commit."""

    id: str
    text: str


class Function(NamedTuple):
    """A test function. Its file is relative to the top of the repository, its ids to pytest's root folder."""

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
    """Return the collected functions in their order. Raises UsageError if pytest collected no test, or not all."""
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
    """Raise an error that says what to do if tests could not be collected (with `ran`: run) on the code of their own checkout."""
    where = f"on {report.place}" if report.place else "here"
    if report.outside:
        files = ", ".join(report.outside)
        raise UsageError(
            f"the tests import code of the project from elsewhere, not from their checkout: {files}", SETUP
        )
    if report.errors:
        lines = [f"{file}: {_error_line(text)}" for file, text in report.errors.items()]
        more = [f"and {len(lines) - SHOWN} more"] if len(lines) > SHOWN else []
        listing = "".join(f"\n  {line}" for line in (*lines[:SHOWN], *more))
        hint = f"fix them, or leave them out: -- --ignore={shlex.quote(next(iter(report.errors)))}"
        if report.unbuilt:
            files = ", ".join(report.unbuilt)
            hint = f"the checkout lacks files that are installed: {files}. If the tests need them: {COPY}; or {hint}"
        raise UsageError(f"pytest cannot collect all tests:{listing}", hint)
    if report.cases if ran else report.items:
        return
    if report.timed_out:
        raise TimedOut(f"the time was up ({report.seconds:.0f} s) before pytest started the tests", MORE_TIME)
    if report.status == 5:
        raise UsageError("there are no tests", "name files or folders that have some; pytest --collect-only shows them")
    if report.exit_code == 127 or "No module named pytest" in report.screen:
        program = shlex.split(report.command)[0] if report.command else "pytest"
        problem = "is not installed" if report.exit_code == 127 else "has no pytest"
        raise NotFound(f"{program} {problem} {where}", NO_PYTEST)
    screen = "".join(f"\n  {line}" for line in report.screen.splitlines()[-10:])
    raise UsageError(
        f"pytest did not run {where} (exit code {report.exit_code}):{screen}", f"try it by hand: {report.command}"
    )


def _error_line(text: str) -> str:
    """Return the line of an error that names the problem. pytest marks such lines with an E."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    marked = [line[1:].strip() for line in lines if line.startswith("E ")]
    return (marked or lines or ["no reason is given"])[-1][:200]


# The tutorial


def cite(host: Host, repo: str, commit: str, functions: Sequence[Function], tutorial: str = "") -> list[Function]:
    """Return the functions with the blocks that they cite in this commit; with none if the commit has no tutorial.

    Files are parsed, never run. The path of a named `tutorial` starts at the top of the repository.
    """
    places = [os.path.normpath(tutorial)] if tutorial else list(blocks.DEFAULT_PATHS)
    test_files = list(dict.fromkeys(function.file for function in functions))
    texts = files(host, repo, commit, [*places, *test_files])
    script = next((texts[place] for place in places if place in texts), None)
    if script is None or not _is_text(script):
        return list(functions)
    cited: dict[str, list[Cited]] = {}
    with tempfile.TemporaryDirectory(prefix="muster-collect-") as folder:
        # The copies get names of our own, because the original names are not trusted.
        originals = {os.path.join(folder, f"{n}.py"): file for n, file in enumerate(test_files) if file in texts}
        for path, file in originals.items():
            _write(path, texts[file])
        _write(os.path.join(folder, "tutorial.sh"), script)
        report = citations.check(os.path.join(folder, "tutorial.sh"), list(originals))
        for block in report.blocks:
            for test in report.tests.get(block.id, []):
                path, _, name = test.partition("::")
                cited.setdefault(f"{originals[path]}::{name}", []).append(Cited(block.id, block.text))
    return [
        function._replace(blocks=tuple(cited.get(f"{function.file}::{function.id.partition('::')[2]}", [])))
        for function in functions
    ]


def files(host: Host, repo: str, commit: str, paths: Sequence[str]) -> Mapping[str, bytes]:
    """Return the content that a commit has at these paths, without those that are missing or too large."""
    safe = [path for path in paths if not name_flaw(path)]
    request = "".join(f"{commit}:{path}\n" for path in safe).encode()
    data = git.output(host, repo, "cat-file", "--batch", input=request)
    contents, at = {}, 0
    for path in safe:
        head, _, _ = data[at:].partition(b"\n")
        at += len(head) + 1
        fields = head.rsplit(b" ", 2)
        if len(fields) == 3 and fields[2].isdigit():
            size = int(fields[2])
            if fields[1] == b"blob" and size <= FILE_MOST:
                contents[path] = data[at : at + size]
            at += size + 1
    return contents


def names(text: bytes) -> frozenset[str]:
    """Return the classes and functions of a Python file, nested ones as `Class::name`; none if it cannot be parsed."""
    found = set()

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            inner = prefix
            if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                found.add(f"{prefix}{child.name}")
                inner = f"{prefix}{child.name}::"
            visit(child, inner)

    try:
        visit(ast.parse(text), "")
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
