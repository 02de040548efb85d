"""Is every block of a tutorial cited by a test, and is every citation current?

Tests are read from their syntax tree and never imported. What they ran is read from the artifact folder
(docs/artifacts.md), which is not trusted: nothing in it can make a check fail.
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
from .citations import Citation, Known

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
    """The id of the block it is about; of the nearest one when the citation is stale."""
    test: str = ""
    """`file::test`, when it is about one."""
    diff: str = ""


class Report(NamedTuple):
    tutorial: str
    blocks: list[Block]
    tests: dict[str, list[str]]
    """For each block that can be tested its id, and the tests that cite it as `file::test`."""
    test_count: int
    """How many tests were read."""
    findings: list[Finding]
    warnings: list[Finding]
    notes: list[str]


def check(tutorial: Path, tests: Sequence[Path], artifacts: Path | None = None, whole: bool = True) -> Report:
    """Compare a tutorial with the tests in these files and folders. NotFound when one of the paths does not exist.

    Unless `whole`, these are only some of the tests: what is wrong with their citations is found, not what others lack.
    """
    name = os.fspath(tutorial)
    found = blocks.read(tutorial)
    known = Known(name, found)
    findings: list[Finding] = []
    read: list[_Test] = []
    for file in files(tests):
        some, problems = _read(file)
        read += some
        findings += problems
    citing: dict[str, list[_Test]] = {}
    for test in read:
        cited, problems = _judge(test, known)
        findings += problems
        for block in cited:
            citing.setdefault(block.text, []).append(test)
    testable = [block for block in found if block.kind == "commands" and (whole or block.text in citing)]
    first: dict[str, Block] = {}
    for block in testable:
        equal = first.setdefault(block.text, block)
        if equal is not block and whole:
            told = f"equals the block at line {equal.line}: keep one of them"
            findings.append(Finding("duplicate", name, block.line, told, block.id))
        elif block.text not in citing and whole:
            findings.append(Finding("missing", name, block.line, f"no test cites {_called(block)}", block.id))
    warnings, notes = _unrun(name, list(first.values()), citing, artifacts)
    headings = sum(block.kind == "heading" for block in found)
    if headings and whole:
        notes.append(f"{_many(headings, 'heading')} to be filled: {name}")
    if not read:
        notes.append(f"no test function was found in {', '.join(os.fspath(path) for path in tests) or 'nothing'}")
    named = {block.id: list(dict.fromkeys(test.id for test in citing.get(block.text, ()))) for block in testable}
    return Report(name, found, named, len(read), sorted(findings, key=_place), sorted(warnings, key=_place), notes)


def failed(report: Report, strict: bool = False) -> bool:
    return bool(report.findings or (strict and report.warnings))


def lines(report: Report) -> list[str]:
    """Each finding and warning as `file:line: kind: message`, a diff indented under it."""
    told = []
    for finding in (*report.findings, *report.warnings):
        told.append(f"{finding.file}:{finding.line}: {finding.kind}: {finding.message}")
        told += [f"    {line}" for line in finding.diff.splitlines()]
    return told


def summary(report: Report) -> str:
    testable = sum(block.kind == "commands" for block in report.blocks)
    parts = [_many(testable, "block"), _many(report.test_count, "test"), _many(len(report.findings), "finding")]
    return ", ".join([*parts, *([_many(len(report.warnings), "warning")] if report.warnings else [])])


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _place(finding: Finding) -> tuple[str, int, int]:
    return finding.file, finding.line, KINDS.index(finding.kind) if finding.kind in KINDS else len(KINDS)


def _called(block: Block) -> str:
    return f"{block.id} ({_short(block.comment or block.commands[0])})"


def _short(text: str) -> str:
    first = " ".join(text.split("\n", 1)[0].split())
    return first if len(first) <= 72 else f"{first[:71]}…"


# Tests, from the syntax tree


class _Test(NamedTuple):
    file: str
    name: str
    """`test_x`, or `TestThis::test_x`."""
    line: int
    fixture: bool
    """It asks for the fixture."""
    calls: list[Citation]
    unreadable: list[tuple[int, str]]
    doc: str
    doc_line: int

    @property
    def id(self) -> str:
        return f"{self.file}::{self.name}"


def files(paths: Sequence[Path]) -> list[str]:
    """The test files under these paths, each once. A file that is named itself is one whatever its name."""
    found: dict[str, str] = {}
    for path in [os.fspath(path) for path in paths]:
        if os.path.isdir(path):
            for folder, below, names in os.walk(path):
                below[:] = sorted(
                    n for n in below if not n.startswith(".") and n not in ("__pycache__", "node_modules")
                )
                for name in sorted(names):
                    if re.fullmatch(r"test_.*\.py|.*_test\.py", name):
                        file = os.path.normpath(os.path.join(folder, name))
                        found.setdefault(os.path.realpath(file), file)
        elif os.path.exists(path):
            found.setdefault(os.path.realpath(path), os.path.normpath(path))
        else:
            raise NotFound(f"there are no tests at {path}", "name files or folders that exist")
    return list(found.values())


def default(folder: str) -> str:
    """Return where the tests of the project around `folder` are, as seen from there: tests/e2e, else tests, else `.`."""
    for root in blocks.roots(folder):
        for place in (os.path.join("tests", "e2e"), "tests"):
            if os.path.isdir(path := os.path.join(root, place)):
                return os.path.relpath(path, folder)
    return "."


def _read(file: str) -> tuple[list[_Test], list[Finding]]:
    """The tests of one file; a file that cannot be read is a finding."""
    try:
        if not os.path.isfile(file):
            return [], [Finding("unreadable", file, 1, "this is no plain file")]
        with open(file, "rb") as stream:
            data = stream.read()
        with python_warnings.catch_warnings():
            python_warnings.simplefilter("ignore")  # of its escapes: that is its authors' affair
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
        fixture = fixture or any(_is_mark(node) and _uses(node) for node in body)
        for node in body:
            if isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
                marked = fixture or any(_uses(mark) for mark in node.decorator_list)
                yield from inside(node.body, f"{prefix}{node.name}::", marked)
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test"):
                yield _test(node, file, prefix, fixture, constants)

    yield from inside(tree.body, "", False)


def _flat(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements, also those under `if`, `try` and `with`."""
    for node in body:
        yield node
        for part in ("body", "orelse", "finalbody", "handlers"):
            if isinstance(node, (ast.If, ast.Try, ast.With)):
                inner: list[Any] = getattr(node, part, [])
                for one in inner:
                    yield from _flat(one.body if isinstance(one, ast.ExceptHandler) else [one])


def _is_mark(node: ast.stmt) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return any(isinstance(target, ast.Name) and target.id == "pytestmark" for target in targets)


def _uses(node: ast.AST) -> bool:
    """`usefixtures("e2e")` is in it."""
    return any(
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr == "usefixtures"
        and any(isinstance(word, ast.Constant) and word.value == FIXTURE for word in call.args)
        for call in ast.walk(node)
    )


def _constants(tree: ast.Module) -> dict[str, str]:
    """The names that a module binds once, to a text."""
    found: dict[str, str] = {}
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
            text = None if isinstance(node, ast.AugAssign) else _text(getattr(node, "value", None), found)
            if text is None or target.id in bound:
                found.pop(target.id, None)
            else:
                found[target.id] = text
            bound.add(target.id)
    return found


def _text(node: ast.expr | None, constants: dict[str, str]) -> str | None:
    """The text an expression stands for, when the tree says it."""
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
        # dedent(x) and x.strip() change nothing that counts.
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name == "dedent" and len(node.args) == 1:
            return _text(node.args[0], constants)
        if name == "strip" and not node.args and isinstance(node.func, ast.Attribute):
            return _text(node.func.value, constants)
    return None


def _test(
    node: ast.FunctionDef | ast.AsyncFunctionDef, file: str, prefix: str, fixture: bool, constants: dict[str, str]
) -> _Test:
    arguments = [one.arg for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    fixture = fixture or FIXTURE in arguments or any(_uses(mark) for mark in node.decorator_list)
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
                unreadable.append((call.lineno, _why(given[0] if given else None)))
            else:
                calls.append(Citation(call.lineno, text))
    first = node.body[0]
    doc = ast.get_docstring(node, clean=False) or ""
    return _Test(file, prefix + node.name, node.lineno, fixture, calls, unreadable, doc, first.lineno)


def _why(node: ast.expr | None) -> str:
    if node is None:
        return "no text is given"
    if isinstance(node, ast.JoinedStr):
        return "an f-string with values in it"
    if isinstance(node, ast.Name):
        return f"{node.id} is no constant of the module"
    return "an expression"


# Citations


def _judge(test: _Test, known: Known) -> tuple[list[Block], list[Finding]]:
    """The blocks a test cites, and what is wrong with its citations."""
    cited: dict[str, int] = {}
    findings = []
    for line, why in test.unreadable:
        told = f"the block cannot be read from the source: {why}; cite it as a plain text"
        findings.append(Finding("unreadable", test.file, line, told, test=test.id))
    for citation in (*test.calls, *_documented(test, known)):
        text = blocks.normal(citation.text)
        block = known.by_text.get(text)
        if block is None:
            told, near, diff = known.stale(text)
            findings.append(Finding("stale", test.file, citation.line, told, near, test.id, diff))
        elif text in cited:
            told = f"{test.name} cites {_called(block)} twice, first at line {cited[text]}"
            findings.append(Finding("duplicate", test.file, citation.line, told, block.id, test.id))
        else:
            cited[text] = citation.line
    if test.fixture and not findings and not cited:
        told = f"{test.name} uses {FIXTURE} and cites no block"
        findings.append(Finding("orphaned", test.file, test.line, told, test=test.id))
    return [known.by_text[text] for text in cited], findings


def _documented(test: _Test, known: Known) -> list[Citation]:
    return [found._replace(line=test.doc_line + found.line) for found in citations.documented(test.doc, known)]


# What was run


def _unrun(
    tutorial: str, testable: Sequence[Block], citing: dict[str, list[_Test]], artifacts: Path | None
) -> tuple[list[Finding], list[str]]:
    ran = _Ran(os.fspath(artifacts)) if artifacts is not None else None
    warnings: list[Finding] = []
    unknown = 0
    for block in testable:
        if block.text not in citing:
            continue
        texts = [text for test in citing[block.text] for text in (ran.of(test) if ran else None) or ()]
        if not ran or all(ran.of(test) is None for test in citing[block.text]):
            unknown += 1
            continue
        for command in block.commands:
            if not any(_holds(text, _spaced(command)) for text in texts):
                told = f"no test that cites {block.id} ran: {_short(command)}"
                warnings.append(Finding("not-run", tutorial, block.line, told, block.id))
    if not unknown:
        return warnings, []
    where = f"in {os.fspath(artifacts)}" if artifacts is not None else "with artifacts kept"
    return warnings, [f"for {_many(unknown, 'block')} it is not known whether their commands ran: no test ran {where}"]


class _Ran:
    """What tests ran, by an artifact folder. Whatever is missing, broken or foreign in it counts as not there."""

    LINE = 1 << 20
    COMMAND = 1 << 16
    """A longer one is not read as shell."""

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

    def of(self, test: _Test) -> list[str] | None:
        """The commands that all runs of a test ran, white space normalised; None when it never ran."""
        parts = tuple(os.path.abspath(test.file).split(os.sep))
        places = [place for file, place in self._by_name.get(test.name, ()) if parts[-len(file) :] == file]
        return [text for place in places for text in self._commands(place)] if places else None

    def _add(self, place: str) -> None:
        path = os.path.join(place, "test.json")
        known = _json(_head(path, 1 << 22))
        node = known.get("nodeid") if isinstance(known, dict) else None
        if not isinstance(node, str) or known.get("outcome") == "skipped":
            return
        file, _, name = node.partition("::")
        parts = tuple(part for part in file.replace("\\", "/").split("/") if part not in ("", ".", ".."))
        if parts and name:
            self._by_name.setdefault(name.partition("[")[0], []).append((parts, place))

    def _commands(self, place: str) -> list[str]:
        if place not in self._texts:
            self._texts[place] = list(dict.fromkeys(self._transcript(os.path.join(place, "transcript.jsonl"))))
        return self._texts[place]

    def _transcript(self, path: str) -> Iterator[str]:
        try:
            if not os.path.isfile(path):
                return
            with open(path, "rb") as file:
                while line := file.readline(self.LINE):
                    if b'"command"' not in line and b'"terminal"' not in line:
                        continue
                    entry = _json(line)
                    if not isinstance(entry, dict) or entry.get("kind") not in ("command", "terminal"):
                        continue
                    text = entry.get("text")
                    if isinstance(text, str):
                        yield _spaced(text)
                        if len(text) <= self.COMMAND:
                            yield _spaced("\n".join(blocks.commands(text)))
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


def _spaced(text: str) -> str:
    return " ".join(text.replace("\\\n", "").split())


def _holds(text: str, command: str) -> bool:
    """The command stands in the text, and not as a part of longer words."""
    at = text.find(command)
    while at >= 0:
        before, after = text[at - 1 : at], text[at + len(command) : at + len(command) + 1]
        if not (_wordy(before) and _wordy(command[:1])) and not (_wordy(after) and _wordy(command[-1:])):
            return True
        at = text.find(command, at + 1)
    return False


def _wordy(char: str) -> bool:
    return char.isalnum() or char in ("_", "-")
