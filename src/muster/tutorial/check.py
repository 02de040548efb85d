"""Check that every block of a tutorial is cited by a test, and that every citation is current.

Tests are parsed, never imported. The commands they ran are read from the artifact folder (docs/artifacts.md). That
folder is not trusted: whatever it contains, the check completes.
"""

from __future__ import annotations

import ast
import json
import os
import re
import warnings as python_warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from ..errors import NotFound
from . import blocks, citations
from .blocks import Block
from .citations import BlockIndex, Citation

Path = str | os.PathLike[str]
KINDS = ("missing", "stale", "orphaned", "duplicate", "unreadable", "syntax")
FIXTURE, CALL = "e2e", "write_tutorial_block"


class Finding(NamedTuple):
    kind: str
    """One of KINDS, or `not-run` for a warning."""
    file: str
    line: int
    message: str
    block: str = ""
    """The id of the block; for a stale citation, of the block nearest to it."""
    test: str = ""
    """`file::test` if the finding concerns a test."""
    diff: str = ""


class Report(NamedTuple):
    tutorial: str
    blocks: list[Block]
    tests: dict[str, list[str]]
    """Maps the id of each testable block to the tests that cite it, as `file::test`."""
    test_count: int
    """Number of tests that were read."""
    findings: list[Finding]
    warnings: list[Finding]
    notes: list[str]


def check(tutorial: Path, tests: Sequence[Path], artifacts: Path | None = None, whole: bool = True) -> Report:
    """Compare a tutorial with the tests in these files and folders. Raises NotFound if one of the paths does not exist.

    With `whole=False` only the citations of these tests are checked; blocks that no test cites are not reported.
    """
    name = os.fspath(tutorial)
    tutorial_blocks = blocks.read(tutorial)
    index = BlockIndex(name, tutorial_blocks)
    findings: list[Finding] = []
    all_tests: list[_Test] = []
    for file in files(tests):
        parsed, problems = _read(file)
        all_tests += parsed
        findings += problems
    citing: dict[str, list[_Test]] = {}
    for test in all_tests:
        cited, problems = _citations(test, index)
        findings += problems
        for block in cited:
            citing.setdefault(block.text, []).append(test)
    testable = [block for block in tutorial_blocks if block.kind == "commands" and (whole or block.text in citing)]
    first: dict[str, Block] = {}
    for block in testable:
        equal = first.setdefault(block.text, block)
        if equal is not block and whole:
            message = f"equals the block at line {equal.line}: keep one of them"
            findings.append(Finding("duplicate", name, block.line, message, block.id))
        elif block.text not in citing and whole:
            findings.append(Finding("missing", name, block.line, f"no test cites {_describe(block)}", block.id))
    warnings, notes = _commands_not_run(name, list(first.values()), citing, artifacts)
    headings = sum(block.kind == "heading" for block in tutorial_blocks)
    if headings and whole:
        notes.append(f"{_count(headings, 'heading')} to be filled: {name}")
    if not all_tests:
        notes.append(f"no test functions in {', '.join(os.fspath(path) for path in tests) or 'no files'}")
    tests_by_block = {
        block.id: list(dict.fromkeys(test.id for test in citing.get(block.text, ()))) for block in testable
    }
    findings.sort(key=_location)
    warnings.sort(key=_location)
    return Report(name, tutorial_blocks, tests_by_block, len(all_tests), findings, warnings, notes)


def failed(report: Report, strict: bool = False) -> bool:
    """Return whether there are findings or, with `strict`, warnings."""
    return bool(report.findings or (strict and report.warnings))


def lines(report: Report) -> list[str]:
    """Return each finding and warning as `file:line: kind: message`, with its diff indented below."""
    printed = []
    for finding in (*report.findings, *report.warnings):
        printed.append(f"{finding.file}:{finding.line}: {finding.kind}: {finding.message}")
        printed += [f"    {line}" for line in finding.diff.splitlines()]
    return printed


def summary(report: Report) -> str:
    """Return the counts as one line, such as `2 blocks, 2 tests, 0 findings`."""
    testable = sum(block.kind == "commands" for block in report.blocks)
    parts = [_count(testable, "block"), _count(report.test_count, "test"), _count(len(report.findings), "finding")]
    return ", ".join([*parts, *([_count(len(report.warnings), "warning")] if report.warnings else [])])


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _location(finding: Finding) -> tuple[str, int, int]:
    return finding.file, finding.line, KINDS.index(finding.kind) if finding.kind in KINDS else len(KINDS)


def _describe(block: Block) -> str:
    return f"{block.id} ({_short(block.comment or block.commands[0])})"


def _short(text: str) -> str:
    first = " ".join(text.split("\n", 1)[0].split())
    return first if len(first) <= 72 else f"{first[:71]}…"


# Tests, read from the syntax tree


class _Test(NamedTuple):
    file: str
    name: str
    """`test_x`, or `TestThis::test_x`."""
    line: int
    fixture: bool
    """Whether the test uses the fixture `e2e`."""
    calls: list[Citation]
    unreadable: list[tuple[int, str]]
    doc: str
    doc_line: int

    @property
    def id(self) -> str:
        return f"{self.file}::{self.name}"


def files(paths: Sequence[Path]) -> list[str]:
    """Return the test files in these folders, each once. A path to a file counts as a test file whatever its name."""
    by_real_path: dict[str, str] = {}
    for path in [os.fspath(path) for path in paths]:
        if os.path.isdir(path):
            for folder, below, names in os.walk(path):
                below[:] = sorted(
                    n for n in below if not n.startswith(".") and n not in ("__pycache__", "node_modules")
                )
                for name in sorted(names):
                    if re.fullmatch(r"test_.*\.py|.*_test\.py", name):
                        file = os.path.normpath(os.path.join(folder, name))
                        by_real_path.setdefault(os.path.realpath(file), file)
        elif os.path.exists(path):
            by_real_path.setdefault(os.path.realpath(path), os.path.normpath(path))
        else:
            raise NotFound(f"there are no tests at {path}", "name files or folders that exist")
    return list(by_real_path.values())


def default_tests(folder: str) -> str:
    """Return the folder of the project's tests, relative to `folder`: tests/e2e, else tests, else `.`."""
    for root in blocks.search_folders(folder):
        for place in (os.path.join("tests", "e2e"), "tests"):
            if os.path.isdir(path := os.path.join(root, place)):
                return os.path.relpath(path, folder)
    return "."


def _read(file: str) -> tuple[list[_Test], list[Finding]]:
    """Return the tests of one file and, if it cannot be read or parsed, a finding."""
    try:
        if not os.path.isfile(file):
            return [], [Finding("unreadable", file, 1, "not a regular file")]
        with open(file, "rb") as stream:
            data = stream.read()
        with python_warnings.catch_warnings():
            python_warnings.simplefilter("ignore")  # invalid escapes in other people's tests are not our concern
            tree = ast.parse(data, file)
        return list(_tests(tree, file)), []
    except OSError as error:
        return [], [Finding("unreadable", file, 1, f"cannot be read: {error.strerror}")]
    except SyntaxError as error:
        return [], [Finding("syntax", file, error.lineno or 1, f"{error.msg}: its tests are not counted")]
    except (ValueError, RecursionError, MemoryError) as error:
        return [], [Finding("syntax", file, 1, f"{error or type(error).__name__}: its tests are not counted")]


def _tests(tree: ast.Module, file: str) -> Iterator[_Test]:
    constants = _constants(tree)

    def inside(body: Iterable[ast.stmt], prefix: str, fixture: bool) -> Iterator[_Test]:
        body = list(_flat(body))
        fixture = fixture or any(_assigns_pytestmark(node) and _has_usefixtures(node) for node in body)
        for node in body:
            if isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
                marked = fixture or any(_has_usefixtures(mark) for mark in node.decorator_list)
                yield from inside(node.body, f"{prefix}{node.name}::", marked)
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test"):
                yield _test(node, file, prefix, fixture, constants)

    yield from inside(tree.body, "", False)


def _flat(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements, including those inside `if`, `try` and `with`."""
    for node in body:
        yield node
        for part in ("body", "orelse", "finalbody", "handlers"):
            if isinstance(node, (ast.If, ast.Try, ast.With)):
                inner: list[Any] = getattr(node, part, [])
                for child in inner:
                    yield from _flat(child.body if isinstance(child, ast.ExceptHandler) else [child])


def _assigns_pytestmark(node: ast.stmt) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return any(isinstance(target, ast.Name) and target.id == "pytestmark" for target in targets)


def _has_usefixtures(node: ast.AST) -> bool:
    """Return whether the node contains `usefixtures("e2e")`."""
    return any(
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr == "usefixtures"
        and any(isinstance(word, ast.Constant) and word.value == FIXTURE for word in call.args)
        for call in ast.walk(node)
    )


def _constants(tree: ast.Module) -> dict[str, str]:
    """Return the names that a module assigns exactly once, to a string."""
    constants: dict[str, str] = {}
    bound: set[str] = set()
    for node in _flat(tree.body):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, (ast.AnnAssign, ast.AugAssign)):
            targets = [node.target]
        for target in targets:
            if not isinstance(target, ast.Name):
                continue
            text = None if isinstance(node, ast.AugAssign) else _text(getattr(node, "value", None), constants)
            if text is None or target.id in bound:
                constants.pop(target.id, None)
            else:
                constants[target.id] = text
            bound.add(target.id)
    return constants


def _text(node: ast.expr | None, constants: dict[str, str]) -> str | None:
    """Return the string value of an expression; None if it is not index without running code."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.Name):
        return constants.get(node.id)
    if isinstance(node, ast.JoinedStr):
        parts = [_text(part, constants) for part in node.values]
        return "".join(part for part in parts if part) if None not in parts else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _text(node.left, constants), _text(node.right, constants)
        return left + right if left is not None and right is not None else None
    if isinstance(node, ast.Call) and not node.keywords:
        # dedent(x) and x.strip() only change what `normalize` ignores.
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name == "dedent" and len(node.args) == 1:
            return _text(node.args[0], constants)
        if name == "strip" and not node.args and isinstance(node.func, ast.Attribute):
            return _text(node.func.value, constants)
    return None


def _test(
    node: ast.FunctionDef | ast.AsyncFunctionDef, file: str, prefix: str, fixture: bool, constants: dict[str, str]
) -> _Test:
    arguments = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    fixture = fixture or FIXTURE in arguments or any(_has_usefixtures(mark) for mark in node.decorator_list)
    calls: list[Citation] = []
    unreadable: list[tuple[int, str]] = []
    inner = [part for statement in node.body for part in ast.walk(statement)]
    own = {*arguments, *(part.id for part in inner if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store))}
    outer = {name: text for name, text in constants.items() if name not in own}
    for call in inner:
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == CALL:
            given = [*call.args, *(word.value for word in call.keywords if word.arg == "text")]
            text = _text(given[0], outer) if given else None
            if text is None:
                unreadable.append((call.lineno, _why_unreadable(given[0] if given else None)))
            else:
                calls.append(Citation(call.lineno, text))
    first = node.body[0]
    doc = ast.get_docstring(node, clean=False) or ""
    return _Test(file, prefix + node.name, node.lineno, fixture, calls, unreadable, doc, first.lineno)


def _why_unreadable(node: ast.expr | None) -> str:
    if node is None:
        return "it is missing"
    if isinstance(node, ast.JoinedStr):
        return "it is an f-string with variable parts"
    if isinstance(node, ast.Name):
        return f"{node.id} is not a constant of the module"
    return "it is an expression"


# Citations


def _citations(test: _Test, index: BlockIndex) -> tuple[list[Block], list[Finding]]:
    """Return the blocks that a test cites, and a finding for each invalid citation."""
    cited: dict[str, int] = {}
    findings = []
    for line, why in test.unreadable:
        message = f"the cited text cannot be read from the source: {why}; write it as a string literal"
        findings.append(Finding("unreadable", test.file, line, message, test=test.id))
    for citation in (*test.calls, *_docstring_citations(test, index)):
        text = blocks.normalize(citation.text)
        block = index.by_text.get(text)
        if block is None:
            message, near, diff = index.explain_stale(text)
            findings.append(Finding("stale", test.file, citation.line, message, near, test.id, diff))
        elif text in cited:
            message = f"{test.name} cites {_describe(block)} twice, first at line {cited[text]}"
            findings.append(Finding("duplicate", test.file, citation.line, message, block.id, test.id))
        else:
            cited[text] = citation.line
    if test.fixture and not findings and not cited:
        message = f"{test.name} uses {FIXTURE} and cites no block"
        findings.append(Finding("orphaned", test.file, test.line, message, test=test.id))
    return [index.by_text[text] for text in cited], findings


def _docstring_citations(test: _Test, index: BlockIndex) -> list[Citation]:
    cited = citations.in_docstring(test.doc, index)
    return [citation._replace(line=test.doc_line + citation.line) for citation in cited]


# Commands that the tests ran


def _commands_not_run(
    tutorial: str, testable: Sequence[Block], citing: dict[str, list[_Test]], artifacts: Path | None
) -> tuple[list[Finding], list[str]]:
    history = _History(os.fspath(artifacts)) if artifacts is not None else None
    warnings: list[Finding] = []
    unknown = 0
    for block in testable:
        if block.text not in citing:
            continue
        texts = [text for test in citing[block.text] for text in (history.commands(test) if history else None) or ()]
        if not history or all(history.commands(test) is None for test in citing[block.text]):
            unknown += 1
            continue
        for command in block.commands:
            if not any(_contains(text, _collapse_spaces(command)) for text in texts):
                message = f"no test that cites {block.id} ran: {_short(command)}"
                warnings.append(Finding("not-run", tutorial, block.line, message, block.id))
    if not unknown:
        return warnings, []
    why = f"{os.fspath(artifacts)} has no run of their tests" if artifacts is not None else "there are no artifacts"
    return warnings, [f"unknown whether the commands of {_count(unknown, 'block')} ran: {why}"]


class _History:
    """The commands that tests ran, read from an artifact folder. Files that are missing or malformed are skipped."""

    MAX_LINE = 1 << 20
    MAX_COMMAND = 1 << 16
    """Longer commands are compared as text and not parsed as shell."""

    def __init__(self, folder: str) -> None:
        self._folder = os.path.join(folder, "tests")
        self._by_name: dict[str, list[tuple[tuple[str, ...], str]]] = {}
        self._texts: dict[str, list[str]] = {}
        try:
            names = sorted(os.listdir(self._folder))
        except (OSError, ValueError):
            names = []
        for name in names:
            self._add(os.path.join(self._folder, name))

    def commands(self, test: _Test) -> list[str] | None:
        """Return the commands that all runs of a test ran, with white space collapsed; None if it never ran."""
        parts = tuple(os.path.abspath(test.file).split(os.sep))
        folders = [folder for file, folder in self._by_name.get(test.name, ()) if parts[-len(file) :] == file]
        return [text for folder in folders for text in self._commands_in(folder)] if folders else None

    def _add(self, folder: str) -> None:
        path = os.path.join(folder, "test.json")
        record = _json(_head(path, 1 << 22))
        node = record.get("nodeid") if isinstance(record, dict) else None
        if not isinstance(node, str) or record.get("outcome") == "skipped":
            return
        file, _, name = node.partition("::")
        parts = tuple(part for part in file.replace("\\", "/").split("/") if part not in ("", ".", ".."))
        if parts and name:
            self._by_name.setdefault(name.partition("[")[0], []).append((parts, folder))

    def _commands_in(self, folder: str) -> list[str]:
        if folder not in self._texts:
            self._texts[folder] = list(dict.fromkeys(self._transcript(os.path.join(folder, "transcript.jsonl"))))
        return self._texts[folder]

    def _transcript(self, path: str) -> Iterator[str]:
        try:
            if not os.path.isfile(path):
                return
            with open(path, "rb") as file:
                while line := file.readline(self.MAX_LINE):
                    if b'"command"' not in line and b'"terminal"' not in line:
                        continue
                    entry = _json(line)
                    if not isinstance(entry, dict) or entry.get("kind") not in ("command", "terminal"):
                        continue
                    text = entry.get("text")
                    if isinstance(text, str):
                        yield _collapse_spaces(text)
                        if len(text) <= self.MAX_COMMAND:
                            yield _collapse_spaces("\n".join(blocks.commands(text)))
        except (OSError, ValueError):
            return


def _head(path: str, limit: int) -> bytes:
    try:
        if not os.path.isfile(path):
            return b""
        with open(path, "rb") as file:
            return file.read(limit)
    except (OSError, ValueError):
        return b""


def _json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _collapse_spaces(text: str) -> str:
    return " ".join(text.replace("\\\n", "").split())


def _contains(text: str, command: str) -> bool:
    """Return whether the text contains the command, and not just as part of longer words."""
    at = text.find(command)
    while at >= 0:
        before, after = text[at - 1 : at], text[at + len(command) : at + len(command) + 1]
        if not (_is_word_char(before) and _is_word_char(command[:1])) and not (
            _is_word_char(after) and _is_word_char(command[-1:])
        ):
            return True
        at = text.find(command, at + 1)
    return False


def _is_word_char(char: str) -> bool:
    return char.isalnum() or char in ("_", "-")
