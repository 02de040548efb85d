"""What a test claims, read from its syntax tree: assertions and expectations, with variables and helpers of its file written out.

Two tests that say the same in other words make the same claims. Nothing is run or imported, and hostile text costs little: what
is larger than a person would write raises `TooMuch`.
"""

from __future__ import annotations

import ast
import builtins
import itertools
import re
import sys
import warnings
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from . import around
from .around import EVERY_TEST, Function, Loud, as_text, fails, stored

#: Larger values are not written out, longer tables not read row by row; helpers are not entered deeper or more often.
NODES, ROWS, DEPTH, CALLS = 300, 64, 3, 16
#: No file takes more steps, each the look at one node; no function has more to say.
STEPS, SAID = 2_000_000, 600
SKIP = re.compile(
    r"(pytest|unittest)\b.*\.(skip|skipif|xfail|importorskip|exit|SkipTest|skipIf|skipUnless|expectedFailure)"
    r"|_pytest\.outcomes\.\w+|(.+\.)?(applymarker|add_marker)|self\.skipTest|.*\bmark\.(slow|manual|nightly|disabled|quarantine|broken|wip|integration|network)"
)
RETRY = re.compile(r"(.*\.)?\w*(flaky|retry|retries|rerun)\w*", re.IGNORECASE)
PATCH = re.compile(
    r"setattr|delattr|exec|eval|globals|locals|(.+\.)?patch(\.(object|dict|multiple))?|(?!self).+\.(setattr|setitem|delattr|delitem)"
)
TABLES = re.compile(r"sys\.modules|globals|locals|vars|.*\.__(dict|globals)__")
#: What of a class is its tests, or runs them.
RUN = re.compile(r"test\w*|set_?up\w*|run|__\w+__", re.IGNORECASE)
#: What pytest hands to hooks and fixtures.
PYTESTS = frozenset("request config item items session report call node pytest".split())
#: Above all levels.
TOP = 1000
#: Calls that run a function where nobody waits for its errors.
AWAY = re.compile(
    r"(.*\.)?(Thread|Timer|Process|submit|start_new_thread|apply_async|register|add_done_callback|call_soon|call_later)"
)
TIMEOUT = re.compile(r"time_?out|deadline|patience|max_wait|^seconds$", re.IGNORECASE)
TIMEOUT_PLACE = {"wait_for": 1, "join": 0, "wait": 0, "timeout": 0, "to_show": 1, "not_to_show": 1, "to_print": 1}
ERROR = re.compile(r"(.*\.)?(raises|warns|assert(Raises|Warns)(Regex)?)")
OPAQUE = re.compile(r"(assert|check|verify|ensure)(_|[A-Z])\w+")
KINDS = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In, ast.NotIn, ast.Lt, ast.LtE, ast.Gt, ast.GtE)
SIGNS = dict(zip(("==", "!=", "is", "is not", "in", "not in", "<", "<=", ">", ">="), KINDS, strict=True))
NAMES: dict[type[ast.cmpop], str] = {kind: sign for sign, kind in SIGNS.items()}
INVERSE = {"==": "!=", "is": "is not", "in": "not in", "<": ">=", "<=": ">"}
INVERSE |= {value: key for key, value in INVERSE.items()}
MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
#: How much a claim says of its subject: 100 is its very value, 0 is nothing.
LEVELS = {
    sign: level
    for level, signs in {
        100: ("==", "is", "raises", "assert_called_once_with"),
        90: ("false", "assert_called_with"),
        70: ("one of", "assert_has_calls"),
        60: ("fails",),
        50: ("in",),
        40: ("<", "<=", ">", ">=", "any", "assert_called"),
        30: ("!=", "is not", "not in", "isinstance"),
        20: ("true",),
    }.items()
    for sign in signs
}
#: The signs of muster's expectations and of unittest's assertions.
WORDS = {
    word: sign
    for sign, words in {
        "==": "to_equal assertEqual assertAlmostEqual assertListEqual assertDictEqual assertSetEqual assertTupleEqual",
        "!=": "assertNotEqual",
        "in": "to_contain to_match to_show to_print assertIn",
        "not in": "not_to_contain not_to_match not_to_show assertNotIn",
        "is": "assertIs assertIsNone",
        "is not": "assertIsNot assertIsNotNone",
        ">": "assertGreater",
        ">=": "assertGreaterEqual",
        "<": "assertLess",
        "<=": "assertLessEqual",
        "true": "assertTrue",
        "false": "assertFalse to_be_empty",
        "fails": "to_fail",
    }.items()
    for word in words.split()
}
#: Calls that give the same value in another shape, and those that give only a part of it.
SAME = frozenset("list tuple dict str iter".split())
PART = frozenset("len sorted set frozenset bool type repr int float round abs sum min max any next each".split())
Env = dict[str, ast.expr]
NONE = ast.Constant(None)
FILLED = ast.List | ast.Dict | ast.Set | ast.ListComp | ast.Constant
FILLS = frozenset("append add update extend insert pop remove clear setdefault".split())


class TooMuch(Exception):
    """A file, by its path, with more in it than a person would write."""


class Check(NamedTuple):
    """One claim."""

    sign: str
    path: tuple[str, ...]
    """Its subject, step by step: `run('x').stdout` is run, ('x'), .stdout."""
    value: Any
    """What it is compared with, as text; a bound as a number; the names of expected exceptions."""
    slack: float
    level: int
    other: tuple[str, ...]
    """The other side, where either could be the subject."""
    guards: int
    """How many conditions, or handlers that swallow, it stands under."""
    line: int
    text: str
    home: str
    """The function that it stands in."""

    @property
    def key(self) -> tuple[Any, ...]:
        return self[:4]


class Seen(NamedTuple):
    """All that a function says, with the helpers that it calls."""

    checks: list[Check]
    marks: list[tuple[str, str, int]]
    """Skips, retries and what may not run the test at all: the rule, what, and the line."""
    swallowed: list[tuple[set[str], int]]
    """The calls in each body whose errors are swallowed."""
    bare: Counter[str]
    """The calls that are in no such body."""
    timeouts: list[tuple[str, float, int]]
    texts: dict[str, int]
    """What is given to calls: commands, for the most part."""
    calls: Counter[str]
    checked: Counter[str]
    """Those with check=True."""
    unchecked: Counter[str]
    rows: list[int]
    """How many each `parametrize` has, if that is in the text."""
    patches: list[tuple[str, int]]
    """What is put in the place of something else."""


class File(NamedTuple):
    path: str
    imports: dict[str, str]
    env: Env
    """The constants of the module."""
    tables: Env
    """Those that are too large to be written out."""
    functions: dict[str, Function]
    classes: dict[str, ast.ClassDef]
    loud: list[Loud]
    seen: dict[tuple[str, bool], Seen]
    spent: Counter[str]


class Unit(NamedTuple):
    """A function of a test file, or (without a name) what stands outside of all functions."""

    file: File
    name: str
    """Behind the names of its classes."""
    node: Function
    body: str
    marks: tuple[ast.expr, ...]
    """Its decorators and those of its classes, and `pytestmark`."""
    whole: tuple[str, ...]
    """The text of all that."""
    test: bool
    """Whether pytest collects it."""
    guards: int
    bases: tuple[ast.expr, ...] = ()
    """Of its classes."""

    @property
    def every(self) -> bool:
        """Whether it runs, unasked, for other tests."""
        named = [self.file.env.get(one.id) if isinstance(one, ast.Name) else one for one in self.node.decorator_list]
        words = [word for one in named if isinstance(one, ast.Call) for word in one.keywords]
        asked = any(word.arg in ("autouse", None) and not _is(word.value, False) for word in words)
        return asked or bool(EVERY_TEST.fullmatch(self.node.name)) or self.node.name.startswith("pytest_")


def units(path: str, text: str, collected: bool) -> list[Unit]:
    """The functions of a file by the names they have at its end. Raises what `ast.parse` does, or `TooMuch`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = ast.parse(text)
    file = File(path, {}, {}, {}, {}, {}, list(around.loud(tree)), {}, Counter())
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, int) and node.value.bit_length() > 1000:
            raise TooMuch(path)
        if isinstance(node, ast.Import | ast.ImportFrom):
            start = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            file.imports.update({name.asname or name.name: start + name.name for name in node.names})
            roots = [name.name.partition(".")[0] for name in node.names if not start and not name.asname]
            file.imports.update({root: root for root in roots})
        elif isinstance(node, ast.ClassDef):
            file.classes[node.name] = node
    found: dict[str, Unit] = {}

    def collect(
        body: Sequence[ast.stmt],
        scope: str,
        marks: tuple[ast.expr, ...],
        test: bool,
        guards: int,
        bases: tuple[ast.expr, ...] = (),
    ) -> None:
        given = {name: node.value for node in body if isinstance(node, ast.Assign) for name in stored(node)}
        marks = (*marks, *([given["pytestmark"]] if "pytestmark" in given else []))
        test = test and not _is(given.get("__test__"), False)
        for node in body:
            if isinstance(node, Function):
                file.functions[scope + node.name] = node
                runs = test and node.name.startswith("test")
                found[scope + node.name] = _unit(file, scope, node, (*node.decorator_list, *marks), runs, guards, bases)
            elif isinstance(node, ast.ClassDef):
                plain = not any(isinstance(one, Function) and one.name == "__init__" for one in node.body)
                runs = test and (bool(node.bases) or (plain and node.name.startswith("Test")))
                given_marks = (*node.decorator_list, *marks)
                collect(node.body, f"{scope}{node.name}.", given_marks, runs, guards, (*node.bases, *bases))
            elif isinstance(node, ast.If | ast.Try | ast.With):
                under = guards + (not isinstance(node, ast.With))
                collect([*node.body, *getattr(node, "orelse", [])], scope, marks, test, under, bases)
            else:
                for name in stored(node):
                    found.pop(scope + name, None)

    collect(tree.body, "", (), collected, 0)
    module = ast.parse("def the_module(): pass").body[0]
    assert isinstance(module, ast.FunctionDef)
    apart = Function | ast.ClassDef | ast.Import | ast.ImportFrom
    module.body = [node for node in tree.body if not isinstance(node, apart)] or module.body
    reader = Reader(file)
    reader.block(module.body)
    file.env.update(reader.env)
    outside = _unit(file, "", module, (), False, 0)
    return [outside._replace(name=""), *found.values()]


def _unit(
    file: File,
    scope: str,
    node: Function,
    marks: tuple[ast.expr, ...],
    test: bool,
    guards: int,
    bases: tuple[ast.expr, ...] = (),
) -> Unit:
    told = isinstance(node.body[0], ast.Expr) and isinstance(node.body[0].value, ast.Constant)
    body = "\n".join(as_text(one, 10_000) for one in node.body[told:])
    whole = (body, as_text(node.args), *map(as_text, (*marks, *bases)))
    return Unit(file, scope + node.name, node, body, marks, whole, test, guards, bases)


def read(unit: Unit, rows: bool = False) -> Seen:
    """What it says; with `rows` once for each of its parameter rows. Raises `TooMuch`."""
    key = (unit.name, rows)
    if key not in unit.file.seen:
        try:
            unit.file.seen[key] = Reader(unit.file).read(unit, rows)
        except (RecursionError, MemoryError) as error:
            raise TooMuch(unit.file.path) from error
    return unit.file.seen[key]


def made_in(unit: Unit) -> set[str]:
    """The names that mean something of this file in a function: its own functions and parameters, and those of the module."""
    inner = [one for one in ast.walk(unit.node) if isinstance(one, Function)]
    own = {one.name for one in inner} | {name for one in inner for name in _parameters(one)}
    return own | unit.file.functions.keys() | unit.file.classes.keys()


def yields(unit: Unit) -> bool:
    inner = {id(part) for one in unit.node.body if isinstance(one, Function) for part in ast.walk(one)}
    return any(isinstance(one, ast.Yield | ast.YieldFrom) and id(one) not in inner for one in ast.walk(unit.node))


class Reader:
    """Walks through a function and notes what it says."""

    def __init__(self, file: File) -> None:
        self.file = file
        self.seen = Seen([], [], [], Counter(), [], {}, Counter(), Counter(), Counter(), [], [])
        self.env = dict(file.env)
        self.bound: dict[str, int] = {}
        self.inner: dict[str, Function] = {}
        self.locals: set[str] = set()
        self.filled: set[str] = set()
        self.scope = self.text = ""
        self.stack: list[Function] = []
        self.entered: Counter[int] = Counter()
        self.swallowing: list[set[str]] = []
        self.guards = self.line = self.clock = 0
        self.late = False
        self.raw: ast.AST = NONE

    def read(self, unit: Unit, rows: bool) -> Seen:
        self.scope, self.guards = unit.name.rpartition(".")[0], unit.guards
        for mark in unit.marks:
            self.line = mark.lineno
            self.mark(self.inline(mark), decorator=True)
            if unit.node.name.startswith("test"):
                self.decorator(mark)
            if isinstance(mark, ast.Call) and self.dotted(mark.func).endswith("mark.usefixtures"):
                for name in map(_string, mark.args):
                    if name in self.file.functions:
                        self.enter(self.file.functions[name], {})
        for base in unit.bases if unit.test else ():
            if not around.BASES.fullmatch(self.dotted(base)) and as_text(base) not in self.file.classes:
                self.seen.marks.append(("unjudged", f"class …({as_text(base)})", unit.node.lineno))
        tables = self.tables(unit)
        self.seen.rows.extend(map(len, tables))
        for row in itertools.islice(itertools.product(*(tables if rows else [])), ROWS):
            self.entered.clear()
            if len(self.seen.checks) > SAID // 2:
                break
            self.enter(unit.node, {name: value for part in row for name, value in part.items()})
        return self.seen

    def decorator(self, mark: ast.expr) -> None:
        """One that may not run the test is noted, and what one of this file does belongs to the test."""
        if isinstance(mark, ast.List | ast.Tuple):
            for one in mark.elts:
                self.decorator(one)
            return
        known = self.env.get(mark.id) or self.file.tables.get(mark.id) if isinstance(mark, ast.Name) else None
        mark = known or mark
        called = isinstance(mark, ast.Call)
        function = self.function(mark.func if isinstance(mark, ast.Call) else mark)
        if function is not None and not called:
            self.enter(function, {})
        good = around.runs(function, self.dotted, called) if function else around.is_known(mark, self.dotted)
        name = self.dotted(mark.func if isinstance(mark, ast.Call) else mark) or as_text(mark)
        if not good and not SKIP.fullmatch(name) and not RETRY.fullmatch(name):
            self.seen.marks.append(("unjudged", f"@{name}", self.line))

    def tables(self, unit: Unit) -> list[list[Env]]:
        """The rows of each `parametrize` whose rows are in the text."""
        found = []
        for mark in unit.marks:
            if isinstance(mark, ast.Call) and self.dotted(mark.func).endswith("mark.parametrize") and mark.args[1:]:
                parts = mark.args[0].elts if isinstance(mark.args[0], ast.Tuple | ast.List) else mark.args[:1]
                names = [name for part in parts for name in re.findall(r"\w+", _string(part))]
                rows = self.elements(self.inline(mark.args[1]))
                found += [[self.row(names, row) for row in rows]] if rows is not None else []
        return found

    def row(self, names: list[str], row: ast.expr) -> Env:
        given = row.args if isinstance(row, ast.Call) and as_text(row.func).endswith("param") else [row]
        return dict(zip(names, (self.elements(row) if len(names) > 1 else None) or given, strict=False))

    def enter(self, function: Function, given: Env) -> None:
        """Read a function as if its body stood here."""
        self.entered[id(function)] += 1
        if len(self.stack) > DEPTH or self.entered[id(function)] > CALLS or any(function is one for one in self.stack):
            return
        kept = self.env, self.bound, self.locals, self.line, self.text, self.raw, self.late, self.guards
        args = function.args
        names = [one.arg for one in (*args.posonlyargs, *args.args)]
        defaults = dict(zip(reversed(names), reversed(args.defaults), strict=False))
        defaults |= {one.arg: value for one, value in zip(args.kwonlyargs, args.kw_defaults, strict=True) if value}
        self.stack.append(function)
        inside = function.name in self.inner
        self.env, self.bound = dict(self.env if inside else self.file.env), dict(self.bound)
        self.locals = stored(function) | (self.locals if inside else set())
        self.filled |= _filled(function)
        for name in _parameters(function):
            self.env.pop(name, None)
            fixture = self.file.functions.get(name)
            if name in given or name in defaults:
                self.line = self.line if name in given else function.lineno
                self.env[name] = given[name] if name in given else self.inline(defaults[name])
                if TIMEOUT.search(name):
                    self.timeout(f" {function.name}", self.env[name])
            elif fixture is not None and any("fixture" in as_text(one) for one in fixture.decorator_list):
                self.enter(fixture, {})
        self.block(function.body)
        self.stack.pop()
        self.env, self.bound, self.locals, self.line, self.text, self.raw, self.late, self.guards = kept

    # Statements. Each tells how it ends: "" goes on, "leaves" the block, "fails" the test.

    def block(self, body: Sequence[ast.stmt], guards: int = 0) -> str:
        before, end = self.guards, ""
        self.guards += guards
        for node in body:
            self.line, self.text = node.lineno, ""
            if end := self.statement(node):
                break
        self.guards = before if guards else self.guards
        return end

    def statement(self, node: ast.stmt) -> str:
        if isinstance(node, ast.Assert | ast.Expr):
            self.text, self.raw = as_text(node), node
            self.late = any(self.bound.get(name, self.clock) < self.clock for name in _names(node))
            if isinstance(node, ast.Assert):
                self.claim(self.value(node.test))
            else:
                self.value(node.value)
                return "fails" if fails([node]) else ""
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value:
            value = self.value(node.value)
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                self.patch(target)
                self.bind(target, value)
        elif isinstance(node, ast.If):
            return self.either(node)
        elif isinstance(node, ast.For | ast.AsyncFor):
            over = self.value(node.iter)
            rows = self.elements(over)
            guards = self.guards
            self.forget(node)
            for row in [_each(over)] if rows is None or len(rows) > ROWS else rows:
                self.bind(node.target, row)
                self.block(node.body)
                self.guards = guards
            self.forget(node)
        elif isinstance(node, ast.Try):
            return self.attempt(node)
        elif isinstance(node, ast.With | ast.AsyncWith):
            return self.context(node)
        elif isinstance(node, Function):
            self.inner[node.name] = node
        elif not isinstance(node, ast.ClassDef):
            for part in ast.iter_child_nodes(node):
                if isinstance(part, ast.expr):
                    self.value(part)
            self.forget(node)
            for part in (node, *getattr(node, "cases", [])):
                self.block(getattr(part, "body", []), 1)
            self.forget(node)
        made = node.value if isinstance(node, ast.Return) and isinstance(node.value, ast.Name) else None
        if made and made.id in self.inner and not any(one.name.startswith("test") for one in self.stack):
            self.enter(self.inner[made.id], {})  # what a decorator makes
        leaves = isinstance(node, ast.Return | ast.Continue | ast.Break)
        return "leaves" if leaves else "fails" if isinstance(node, ast.Raise) else ""

    def either(self, node: ast.If) -> str:
        test = self.value(node.test)
        if isinstance(test, ast.Constant):
            return self.block(node.body if test.value else node.orelse)
        if fails(node.body) and not node.orelse:
            self.text = f"if {as_text(node.test)}: fail"
            self.claim(test, False)
            return ""
        ends = [self.block(node.body, 1), self.block(node.orelse, 1)]
        self.forget(node)
        self.guards += "leaves" in ends  # the rest runs only sometimes
        return ends[0] if all(ends) else ""

    def attempt(self, node: ast.Try) -> str:
        expected = bool(node.handlers) and (fails(node.body) or fails(node.orelse))
        quiet = around.swallowing(node)
        if expected:
            names = [name for handler in node.handlers for name in self.errors(handler.type)]
            self.add("raises", ("raises",), frozenset(names))
            end = self.block([one for one in node.body if not fails([one])])
        else:
            end = self.swallow(node) if quiet else self.block(node.body)
            self.block(node.orelse, int(quiet))
        for handler in node.handlers:
            self.env |= {handler.name: ast.Attribute(ast.Name("raises"), "value")} if handler.name else {}
            self.block(handler.body, 0 if expected else 1)
        return self.block(node.finalbody) or ("" if node.handlers else end)

    def swallow(self, node: ast.Try | ast.With | ast.AsyncWith) -> str:
        calls = set[str]()
        self.swallowing.append(calls)
        self.seen.swallowed.append((calls, node.lineno))
        end = self.block(node.body, 1)
        self.swallowing.pop()
        return end

    def context(self, node: ast.With | ast.AsyncWith) -> str:
        names, quiet, unknown = [], False, False
        for item in node.items:
            call = item.context_expr
            self.text = as_text(call)
            value = self.value(call)
            made = value.func if isinstance(value, ast.Call) else value
            names.append(self.dotted(made) if isinstance(value, ast.Call) else "")
            quiet = quiet or self.quiet(value) or any(map(self.quiet, _entered(call, item.optional_vars, node.body)))
            used = [one for part in node.body for one in _names(part)]
            idle = item.optional_vars is None or not {*_names(item.optional_vars)} & {*used}
            unknown = unknown or (idle and self.unknown(made))
            if item.optional_vars:
                self.bind(item.optional_vars, ast.Name("raises") if ERROR.fullmatch(names[-1]) else value)
        if quiet:
            return self.swallow(node)
        # Behind the error that is expected nothing runs.
        return self.block(node.body, int(unknown or any(map(ERROR.fullmatch, names))))

    def quiet(self, node: ast.expr) -> bool:
        """Whether this context manager swallows errors, as far as that is in this file."""
        made = node.func if isinstance(node, ast.Call) else node
        if self.dotted(made).endswith("suppress") or isinstance(node, ast.Lambda):
            return True
        if isinstance(node, ast.Name) and (fixture := self.file.functions.get(node.id)) is not None:
            given = [one.value for one in ast.walk(fixture) if isinstance(one, ast.Return | ast.Yield) and one.value]
            return any(self.quiet(one) for one in given if not isinstance(one, ast.Name))
        found = self.function(made) or self.file.classes.get(as_text(made))
        return found is not None and around.swallows(found, self.dotted, self.file.classes)

    def unknown(self, node: ast.expr) -> bool:
        """Whether it comes from a module of which nobody knows whether it swallows errors."""
        name = self.dotted(node)
        start = node
        while isinstance(start, ast.Attribute):
            start = start.value
        ours = isinstance(start, ast.Name) and start.id in self.file.imports
        return ours and name.partition(".")[0] not in sys.stdlib_module_names and not around.OPEN.match(name)

    def patch(self, target: ast.expr) -> None:
        """Something of another module, or of pytest's, that is made another one here."""
        start = target.value if isinstance(target, ast.Attribute | ast.Subscript) else None
        if isinstance(target, ast.Subscript):
            found = bool(TABLES.fullmatch(self.dotted(start.func if isinstance(start, ast.Call) else start or NONE)))
        else:
            start = self.inline(start) if start else NONE
            while isinstance(start, ast.Attribute | ast.Subscript | ast.Call):
                start = start.func if isinstance(start, ast.Call) else start.value
            name = start.id if isinstance(start, ast.Name) else ""
            outside = not self.stack or self.stack[-1].name == "the_module"
            ours = name.startswith("test") or (name in self.file.classes and RUN.fullmatch(getattr(target, "attr", "")))
            found = name in self.file.imports or name in PYTESTS or bool(outside and ours)
        if found:
            self.seen.patches.append((as_text(target), self.line))

    # Values

    def value(self, node: ast.expr) -> Any:
        self.mark(node)
        return self.inline(node)

    def bind(self, target: ast.expr, value: ast.expr) -> None:
        parts = target.elts if isinstance(target, ast.Tuple | ast.List) else []
        given = self.elements(value) or []
        for number, part in enumerate(parts):
            one = given[number] if len(given) == len(parts) else ast.Subscript(value, ast.Constant(number))
            self.bind(part, one)
        if isinstance(target, ast.Name):
            self.env.pop(target.id, None)
            if target.id in self.filled and isinstance(value, FILLED):
                pass  # by the time it is looked at it is something else
            elif sum(1 for _ in itertools.islice(ast.walk(value), NODES)) < NODES:
                self.env[target.id] = value
                self.bound[target.id] = self.clock
            elif not self.stack:
                self.file.tables[target.id] = value

    def forget(self, node: ast.AST) -> None:
        for name in stored(node):
            self.env.pop(name, None)

    def inline(self, node: Any) -> Any:
        """The expression with all that is known written out. Its calls are noted: each expression comes here once."""
        self.file.spent["steps"] += 1
        if self.file.spent["steps"] > STEPS:
            raise TooMuch(self.file.path)
        if isinstance(node, ast.Name):
            # What a local variable is called says nothing.
            return self.env.get(node.id) or (ast.Name("local") if node.id in self.locals else node)
        if isinstance(node, ast.Call):
            return self.call(node)
        if isinstance(node, list):
            return [self.inline(one) for one in node]
        if not isinstance(node, ast.AST) or not node._fields:
            return node
        env = self.env
        if isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp):
            self.env = dict(env)
            parts = []
            for part in node.generators:
                over = self.inline(part.iter)
                self.bind(part.target, _each(over))
                parts.append(ast.comprehension(ast.Name("_"), over, self.inline(part.ifs), part.is_async))
            fields = {name: self.inline(one) for name, one in ast.iter_fields(node) if name != "generators"}
            new: ast.AST = type(node)(**fields, generators=parts)
        else:
            new = type(node)(**{name: self.inline(one) for name, one in ast.iter_fields(node)})
        self.env = env
        return _folded(ast.copy_location(new, node))

    def call(self, node: ast.Call) -> ast.expr:
        new = ast.Call(self.inline(node.func), self.inline(node.args), self.inline(node.keywords))
        function = self.function(node.func)
        if function is not None:
            names = [name for name in _parameters(function) if name not in ("self", "cls")]
            values = dict(zip(names, new.args, strict=False)) | {one.arg: one.value for one in new.keywords if one.arg}
            self.enter(function, values)
        self.note(new, node, function is not None)
        names = _parameters(function) if function is not None else []
        given = [*zip([*names, *[""] * len(node.args)], node.args, strict=False)]
        for name, one in (*given, *((word.arg or "", word.value) for word in node.keywords)):
            if (handed := self.function(one)) is not None:
                # Its errors may end elsewhere.
                lost = around.lets_go(function, name) if function else bool(AWAY.fullmatch(self.dotted(node.func)))
                self.guards += lost
                self.enter(handed, {})
                self.guards -= lost
        return new

    def function(self, node: ast.expr) -> Function | None:
        """The function of this file that is meant."""
        if isinstance(node, ast.Name):
            return self.inner.get(node.id) or self.file.functions.get(node.id)
        if isinstance(node, ast.Attribute) and as_text(node.value) in ("self", "cls"):
            return self.file.functions.get(f"{self.scope}.{node.attr}")
        return None

    def dotted(self, node: ast.AST) -> str:
        """`pytest.mark.skip`, by whatever names it was imported."""
        if isinstance(node, ast.Name):
            return self.file.imports.get(node.id, node.id)
        return f"{self.dotted(node.value)}.{node.attr}" if isinstance(node, ast.Attribute) else ""

    def elements(self, node: ast.expr) -> list[ast.expr] | None:
        """Of a display that is in the text."""
        match node:
            case ast.Name():
                table = self.file.tables.get(node.id)
                return self.elements(table) if table is not None else None
            case ast.List() | ast.Tuple() | ast.Set():
                return None if any(isinstance(part, ast.Starred) for part in node.elts) else node.elts
            case ast.Call(func=ast.Attribute(value=table, attr="items" | "values" | "keys" as kind), args=[]):
                table = self.file.tables.get(table.id, table) if isinstance(table, ast.Name) else table
                if isinstance(table, ast.Dict):
                    keys = [key or NONE for key in table.keys]
                    pairs: list[ast.expr] = [ast.Tuple([*pair]) for pair in zip(keys, table.values, strict=True)]
                    return {"items": pairs, "values": table.values, "keys": keys}[kind]
            case ast.Call(func=ast.Name(id="range"), args=[ast.Constant(value=int(count))]) if count <= 0:
                return []
            case ast.Dict():
                return [key or NONE for key in node.keys]
        return None

    def errors(self, node: ast.expr | None) -> list[str]:
        parts = node.elts if isinstance(node, ast.Tuple) else [node or ast.Name("BaseException")]
        return [self.dotted(part).rpartition(".")[2] for part in parts]

    # What is noted

    def mark(self, node: ast.expr, decorator: bool = False) -> None:
        """Skips, retries and time-outs, as marks and as calls."""
        calls = {id(one.func): one for one in ast.walk(node) if isinstance(one, ast.Call)}
        for one in ast.walk(node):
            name = self.dotted(one) if isinstance(one, ast.Name | ast.Attribute) else ""
            call = calls.get(id(one), ast.Call(NONE, [], []))
            if SKIP.fullmatch(name) and not (call.args and _is(call.args[0], False)):
                told = name.endswith(("skipif", "importorskip", "skipIf", "skipUnless", "mark.xfail"))
                args = [as_text(part) for part in call.args[:told]]
                args += [as_text(word) for word in call.keywords if word.arg not in ("reason", "msg")]
                self.seen.marks.append(("skip", f"{name}({', '.join(args)})" if args else name, self.line))
            elif name and RETRY.fullmatch(name) and (decorator or ".mark." in name):
                self.seen.marks.append(("retry", name, self.line))
            elif name == "pytest.mark.timeout" and decorator:
                for word in [*call.args[:1], *(word.value for word in call.keywords if word.arg == "timeout")]:
                    self.timeout("mark timeout", word)

    def timeout(self, site: str, node: ast.expr) -> None:
        seconds = float("inf") if _is(node, None) else _number(node)
        if seconds is not None and len(self.seen.timeouts) < SAID:
            self.seen.timeouts.append((site, seconds or float("inf"), self.line))

    def note(self, call: ast.Call, node: ast.Call, inside: bool) -> None:
        """A call; `inside` when what it does was read already."""
        name = self.dotted(node.func)
        last = name.rpartition(".")[2]
        text = as_text(call)
        if PATCH.fullmatch(name) and "environ" not in text:
            self.seen.patches.append((text, self.line))
        for calls in self.swallowing:
            calls.add(text)
        self.seen.bare[text] += not self.swallowing
        self.seen.calls[last] += 1
        self.clock += not hasattr(builtins, last)
        given = call.func.value if isinstance(call.func, ast.Attribute) else None
        expects = isinstance(given, ast.Call) and self.dotted(given.func).endswith("expect")
        site = f"{'expect' if expects else 'e2e' if name.startswith('e2e.') else ''} {last}"
        for word in call.keywords:
            if word.arg and TIMEOUT.search(word.arg):
                self.timeout(site, word.value)
            elif word.arg == "check" and isinstance(word.value, ast.Constant):
                (self.seen.checked if word.value.value else self.seen.unchecked)[last] += 1
        if len(call.args) > (place := TIMEOUT_PLACE.get(last, 99)):
            self.timeout(site, call.args[place])
        if last != "write_tutorial_block" and len(self.seen.texts) < SAID:
            parts = [one for part in (*node.args, *node.keywords) for one in ast.walk(part)]
            self.seen.texts.update({text: self.line for one in parts if (text := _string(one))})
        if ERROR.fullmatch(name):
            self.add("raises", ("raises",), frozenset(self.errors(call.args[0] if call.args else None)))
            match = [one.value for one in call.keywords if one.arg == "match"]
            for one in [*match, *(call.args[1:2] if name.endswith("Regex") else [])]:
                self.add("in", ("raises", ".value"), as_text(one), level=_pattern_level(one, 50))
        elif expects and isinstance(given, ast.Call):
            named = [one.value for one in call.keywords if one.arg != "timeout"]
            self.expectation(last, [*given.args, *call.args, *named], call)
        elif not inside and (name.startswith("self.assert") or OPAQUE.fullmatch(last)):
            self.expectation(last, call.args, call)

    def expectation(self, word: str, args: list[ast.expr], call: ast.Call) -> None:
        """`expect(...).to_...`, an assertion of unittest or a mock, or a function of another file that is named like one."""
        sign, more = WORDS.get(word, ""), [*args[1:], NONE][0]
        if word in ("to_succeed", "to_exit_with") and args:
            code = more if len(args) > 1 else ast.Constant(0)
            self.claim(ast.Compare(ast.Attribute(args[0], "exit_code"), [ast.Eq()], [code]))
        elif sign in ("true", "false") and args:
            self.claim(args[0], sign == "true")
        elif sign in SIGNS and args:
            left, right = (more, args[0]) if "in" in sign and word[0] != "a" else (args[0], more)
            if word.endswith("to_match"):
                return self.add(sign, _path(right), as_text(left), level=_pattern_level(left, LEVELS[sign]))
            if word == "assertAlmostEqual":
                right = ast.Call(ast.Name("approx"), [right], call.keywords or [ast.keyword("places", ast.Constant(7))])
            self.claim(ast.Compare(left, [SIGNS[sign]()], [right]))
        else:
            mock = isinstance(call.func, ast.Attribute) and (word.startswith("assert_") or not args)
            subject = call.func.value if mock else [*args, NONE][0]  # type: ignore[attr-defined]
            values = ", ".join(map(as_text, (*args, *call.keywords)))
            self.add(sign or word, _path(subject), values, level=LEVELS.get(sign or word, 60))

    def add(
        self,
        sign: str,
        path: tuple[str, ...],
        value: Any,
        slack: float = 0.0,
        level: int | None = None,
        other: tuple[str, ...] = (),
    ) -> None:
        home = self.stack[-1].name if self.stack else ""
        level = LEVELS[sign] if level is None else level
        if len(self.seen.checks) >= SAID:
            raise TooMuch(self.file.path)
        self.seen.checks.append(Check(sign, path, value, slack, level, other, self.guards, self.line, self.text, home))

    def claim(self, node: ast.expr, truth: bool = True) -> None:
        """An expression that has to be true, or false: taken apart where its parts can stand alone."""
        match node:
            case ast.BoolOp() if isinstance(node.op, ast.And) == truth:
                for part in node.values:
                    self.claim(part, truth)
            case ast.UnaryOp(op=ast.Not()):
                self.claim(node.operand, not truth)
            case ast.Compare(ops=[_, _, *_]) if truth:
                sides = [node.left, *node.comparators]
                for left, sign, right in zip(sides, node.ops, sides[1:], strict=False):
                    self.claim(ast.Compare(left, [sign], [right]))
            case ast.Compare(
                left=ast.Tuple(elts=ours) | ast.List(elts=ours),
                ops=[ast.Eq()],
                comparators=[ast.Tuple(elts=theirs) | ast.List(elts=theirs)],
            ) if truth and len(ours) == len(theirs) and not _literal(node.left):
                for left, right in zip(ours, theirs, strict=True):
                    self.claim(ast.Compare(left, [ast.Eq()], [right]))
            case ast.Call(func=ast.Name(id="all"), args=[ast.GeneratorExp() | ast.ListComp() as each]) if truth:
                if not any(self.elements(part.iter) == [] for part in each.generators):
                    self.claim(each.elt)
            case _:
                name, subject, value, slack, level = _judged(node, truth)
                level = min(level, self.worth(node))
                if not level and self.varies(node):
                    level = LEVELS[name]
                sides = [node.left, *node.comparators] if isinstance(node, ast.Compare) and name in ("==", "!=") else []
                other = [path for path in map(_path, sides) if path and path != _path(subject)]
                self.add(name, _path(subject), value, slack, level, other[0] if other else ())

    def worth(self, node: ast.expr) -> int:
        """At most so much is said by a comparison with what is equal to anything, or with the same by another name."""
        if not isinstance(node, ast.Compare) or len(node.ops) != 1 or not isinstance(node.ops[0], ast.Eq):
            return TOP
        sides = [node.left, node.comparators[0]]
        calls = [one for one in sides if isinstance(one, ast.Call)]
        kinds = [self.file.classes.get(as_text(one.func)) for one in calls]
        if any(isinstance(one, Function) and one.name == "__eq__" for kind in kinds if kind for one in kind.body):
            return 10
        chosen = [as_text(part) for one in sides if isinstance(one, ast.IfExp) for part in (one.body, one.orelse)]
        if any(as_text(one) in chosen for one in sides):
            return 10
        same = len(calls) == 2 and self.dotted(calls[0].func) == self.dotted(calls[1].func) != ""
        rest = [as_text(ast.Call(NONE, one.args, one.keywords)) for one in calls]
        return 0 if same and rest[0] == rest[1] and as_text(calls[0]) != as_text(calls[1]) else TOP

    def varies(self, node: ast.expr) -> bool:
        """Whether a claim that looks empty has variables in it that were filled later, or at two times."""
        sides = [node.left, *node.comparators] if isinstance(node, ast.Compare) else [node]
        if all(map(_literal, sides)):
            return bool(_names(self.raw))
        inside = list(ast.walk(self.raw))
        raw = [one for one in inside if isinstance(one, ast.Compare)]
        if not isinstance(node, ast.Compare) or any(as_text(one.left) == as_text(one.comparators[0]) for one in raw):
            return False
        if any(isinstance(one, ast.Call) for one in inside):
            return self.late
        return any(self.seen.bare[as_text(one)] > 1 for one in ast.walk(sides[0]) if isinstance(one, ast.Call))


Judged = tuple[str, ast.expr, Any, float, int]
"""Sign, subject, value, slack, level."""


def _judged(node: ast.expr, truth: bool) -> Judged:
    """A claim that stands alone."""
    match node:
        case ast.BoolOp() | ast.IfExp():
            parts = node.values if isinstance(node, ast.BoolOp) else [node.body, node.orelse]
            found = [_judged(part, truth) for part in parts]
            sign, _, _, _, level = min(found, key=lambda claim: claim[4])
            subject = next((claim[1] for claim in found if _path(claim[1])), node)
            return sign, subject, as_text(node), 0.0, max(0, min(level - 5, LEVELS["one of"]))
        case ast.UnaryOp(op=ast.Not()):
            return _judged(node.operand, not truth)
        case ast.Compare(left=left, ops=[kind], comparators=[right]):
            sign = NAMES[type(kind)]
            return _compared(left, sign if truth else INVERSE[sign], right)
        case ast.Call(func=ast.Attribute(value=subject, attr="startswith" | "endswith"), args=[value, *_]):
            return _compared(value, "in" if truth else "not in", subject)
        case ast.Call(func=ast.Attribute(value=ast.Name(id="re")), args=[value, subject, *_]):
            sign = "in" if truth else "not in"
            return sign, subject, as_text(value), 0.0, _pattern_level(value, LEVELS[sign])
        case ast.Call(func=ast.Name(id="isinstance"), args=[subject, *_]) if truth:
            return "isinstance", subject, as_text(node), 0.0, LEVELS["isinstance"]
        case ast.Call(func=ast.Name(id="any"), args=[ast.GeneratorExp() | ast.ListComp() as subject]) if truth:
            return "any", subject, as_text(node), 0.0, min(LEVELS["any"], _judged(subject.elt, True)[4] - 5)
        case ast.Call(func=ast.Attribute(attr="isclose" | "allclose"), args=[subject, value, *_]) if truth:
            return _compared(subject, "==", ast.Call(ast.Name("approx"), [value], node.keywords))
    sign = "true" if truth else "false"
    says = not _literal(node) and not isinstance(node, ast.Tuple | ast.JoinedStr | ast.Lambda)
    return sign, node, "", 0.0, LEVELS[sign] if says else 0


def _compared(left: ast.expr, sign: str, right: ast.expr) -> Judged:
    if _literal(left) and not _literal(right) and "in" not in sign:
        left, right, sign = right, left, MIRRORED.get(sign, sign)
    value, level, number = as_text(right), LEVELS[sign], _number(right)
    if as_text(left) == value or (_literal(left) and _literal(right)):
        return sign, left, value, 0.0, 0
    size = left.args[0] if isinstance(left, ast.Call) and left.args and as_text(left.func) == "len" else None
    if size is not None and (sign, number) in ((">", 0), (">=", 1), ("!=", 0), ("==", 0)):
        return _judged(size, sign != "==")
    if sign == "in" and isinstance(right, ast.Tuple | ast.List | ast.Set) and _literal(right):
        return "one of", left, value, 0.0, LEVELS["one of"]
    if "in" in sign:
        return sign, right, as_text(left), 0.0, 0 if _is(left, "") else level
    if sign == "==" and isinstance(right, ast.Constant) and isinstance(right.value, bool):
        return _judged(left, right.value)
    if isinstance(right, ast.Call) and as_text(right.func).endswith("approx") and right.args:
        given = {word.arg: _number(word.value) or 0.0 for word in right.keywords}
        slack = max(
            [0.0, *(10 ** -max(-9.0, min(size, 99.0)) if name == "places" else size for name, size in given.items())]
        )
        return sign, left, as_text(right.args[0]), slack, level if slack <= 1e-6 else 80
    if sign == "==" and value.endswith("ANY"):
        level = 10
    elif sign == "is" and not isinstance(right, ast.Constant):
        level += 1
    elif sign == "==" and value in ("[]", "()", "{}", "''", "0", "None", "b''"):
        level = LEVELS["false"]
    return sign, left, number if sign[0] in "<>" and number is not None else value, 0.0, level


def _pattern_level(node: ast.expr, level: int) -> int:
    """Of a claim that a pattern matches: one that matches all says nothing, one with alternatives less."""
    text = node.value if isinstance(node, ast.Constant) else None
    if isinstance(text, str) and text.strip("^$") in ("", ".", ".*", ".+"):
        return 0
    return level - 5 * ("|" in _string(node))


def _path(node: ast.AST) -> tuple[str, ...]:
    match node:
        case ast.Name():
            return (node.id,)
        case ast.Attribute():
            return (*_path(node.value), f".{node.attr}")
        case ast.Subscript():
            return (*_path(node.value), f"[{as_text(node.slice)}]")
        case ast.Await() | ast.Starred() | ast.NamedExpr():
            return _path(node.value)
        case ast.Call(func=ast.Name(id=name), args=[first, *_]) if name in SAME:
            return _path(first)
        case ast.Call(func=ast.Name(id=name), args=[first, *_]) if name in PART:
            return (*_path(first), f"~{name}")
        case ast.Call(func=ast.Attribute(attr="loads" | "safe_load"), args=[first, *_]):
            return (*_path(first), "~loads")
        case ast.Call():
            return (*_path(node.func), f"({as_text(node).removeprefix(as_text(node.func))})")
        case ast.ListComp() | ast.GeneratorExp():
            return _path(node.elt) or _path(node.generators[0].iter)
    if not isinstance(node, ast.expr) or _literal(node):
        return ()
    start = next((path for child in ast.iter_child_nodes(node) if (path := _path(child))), ())
    return (*start, f"~{as_text(node)}")


# Small questions


def _string(node: ast.AST) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _number(node: ast.AST) -> float | None:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and (inner := _number(node.operand)) is not None:
        return -inner
    value = node.value if isinstance(node, ast.Constant) else None
    known = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e15
    return float(value) if known else None  # type: ignore[arg-type]


def _is(node: ast.AST | None, value: Any) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is type(value) and node.value == value


def _literal(node: ast.AST) -> bool:
    """A display of constants and nothing else."""
    plain = ast.Constant | ast.Tuple | ast.List | ast.Set | ast.Dict | ast.UnaryOp | ast.USub | ast.expr_context
    return all(isinstance(one, plain) for one in ast.walk(node))


def _folded(node: Any) -> Any:
    """Sums and products of numbers, and texts that are put together of constants."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mult):
        left, right = _number(node.left), _number(node.right)
        if left is not None and right is not None:
            return ast.Constant(left + right if isinstance(node.op, ast.Add) else left * right)
    if isinstance(node, ast.Compare) and isinstance(node.left, ast.Constant) and len(node.ops) == 1:
        other = node.comparators[0]
        if isinstance(node.ops[0], ast.Eq | ast.NotEq) and isinstance(other, ast.Constant):
            return ast.Constant((node.left.value == other.value) == isinstance(node.ops[0], ast.Eq))
    if isinstance(node, ast.JoinedStr):
        parts = [
            one.value if isinstance(one, ast.FormattedValue) and not one.format_spec else one for one in node.values
        ]
        if all(isinstance(one, ast.Constant) for one in parts):
            return ast.Constant("".join(str(one.value) for one in parts))  # type: ignore[attr-defined]
    return node


def _entered(call: ast.expr, stack: ast.expr | None, body: Sequence[ast.stmt]) -> list[ast.expr]:
    """What an ExitStack is given in the body of its `with`."""
    if not isinstance(stack, ast.Name) or not isinstance(call, ast.Call) or "ExitStack" not in as_text(call.func):
        return []
    calls = [one for node in body for one in ast.walk(node) if isinstance(one, ast.Call) and one.args]
    return [one.args[0] for one in calls if as_text(one.func) in (f"{stack.id}.enter_context", f"{stack.id}.push")]


def _each(node: ast.expr) -> ast.expr:
    return ast.Call(ast.Name("each"), [node], [])


def _parameters(node: Function) -> list[str]:
    given = node.args
    return [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg) if one]


def _filled(node: ast.AST) -> set[str]:
    """The names that are given their content bit by bit, or by an inner function."""
    found: set[str] = set()
    for one in ast.walk(node):
        if isinstance(one, ast.Nonlocal | ast.Global):
            found |= set(one.names)
        base = one.value if isinstance(one, ast.Attribute | ast.Subscript) else None
        bit = isinstance(one, ast.Attribute) and one.attr in FILLS
        if isinstance(base, ast.Name) and (bit or not isinstance(getattr(one, "ctx", None), ast.Load)):
            found.add(base.id)
    return found


def _names(node: ast.AST) -> list[str]:
    return [one.id for one in ast.walk(node) if isinstance(one, ast.Name)]
