"""What stands around tests and decides how they end: hooks of pytest, decorators, context managers, classes that run their tests themselves.

Read from the syntax tree of one file. What comes from another one cannot be judged and counts as the worst.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

Function = ast.FunctionDef | ast.AsyncFunctionDef
Dotted = Callable[[ast.AST], str]
"""`pytest.mark.skip`, by whatever names it was imported."""
HOOK = re.compile(r"pytest_(?!addoption|configure|report_header|terminal_summary|assertrepr)|collect_ignore")
#: Decorators and marks that run the test, or are judged as skips and retries.
KNOWN = re.compile(
    r"pytest\.mark\.\w+|pytest\.param|(unittest\.)?mock\.\w+(\.\w+)?|unittest\.(skip\w*|expectedFailure)"
    r"|staticmethod|classmethod|functools\.(wraps|cache|lru_cache)|typing\.(override|no_type_check)"
    r"|(hypothesis|freezegun|time_machine|responses|respx|moto|parameterized|django\.test)\.[\w.]+"
)
BASES = re.compile(r"object|Protocol|typing\.\w+|abc\.ABC|(unittest|django\.test|twisted\.trial\.unittest)\.[\w.]+")
#: Modules whose context managers let errors through.
OPEN = re.compile(r"pytest|warnings|(unittest\.)?mock|freezegun|time_machine|responses|respx|moto|django\.test")
ASKED = frozenset("has_plugin hasplugin get_plugin getplugin list_name_plugin".split())
#: A class that has one of these runs its tests in its own way.
OWN_WAY = frozenset("run __call__ __getattribute__ __getattr__ __init_subclass__ __new__".split())
SET = re.compile(r"setUp\w*|setup_(method|class)|asyncSetUp|run|__call__|__unittest_\w+__|__(a?exit|eq|bool|new)__")
#: Runs before all the tests of its file or class.
EVERY_TEST = re.compile(r"setUp(Class|Module)?|setup_(module|function|class|method)|asyncSetUp")


class Loud(NamedTuple):
    """Something in a file that can change how tests anywhere in it, or beside it, end."""

    rule: str
    text: str
    """The same text says the same."""
    line: int
    words: str


def as_text(node: ast.AST, most: int = 200) -> str:
    """A long one ends in its digest."""
    try:
        text = ast.unparse(node)
    except ValueError:  # an f-string that cannot be written like this
        text = ast.dump(node)
    if len(text) <= most:
        return text
    return f"{text[:100]}…{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def loud(tree: ast.Module) -> Iterator[Loud]:
    """Hooks however they are given, what is imported unseen, and classes that run their tests themselves."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom | ast.Import):
            yield from _imported(node)
        elif isinstance(node, Function) and (HOOK.match(node.name) or _specname(node)):
            text = "\n".join(map(as_text, node.body[_told(node.body) :]))
            yield Loud("uncollected", text, node.lineno, f"{node.name} can leave tests out or change how they end")
        elif isinstance(node, ast.ClassDef):
            yield from _own_way(node)
    asked = [one.value for one in ast.walk(tree) if isinstance(one, ast.Attribute) and one.attr in ASKED]
    for node in ast.walk(tree):
        name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
        if name == "pluginmanager" and not any(node is one for one in asked):
            yield Loud("uncollected", name, node.lineno, "plugins can change how tests end")  # type: ignore[attr-defined]
    for statement in outside(tree.body):
        names = [one.id for one in ast.walk(statement) if isinstance(one, ast.Name)]
        if not isinstance(statement, Function | ast.ClassDef) and any(map(HOOK.match, names)):
            text = as_text(statement)
            yield Loud("uncollected", text, statement.lineno, f"`{text}` can leave tests out or change how they end")


def outside(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a module or class, those under conditions too; of compound ones only their heads are left."""
    for node in body:
        blocks = [getattr(node, name, []) for name in ("body", "orelse", "finalbody")]
        blocks += [one.body for one in (*getattr(node, "handlers", []), *getattr(node, "cases", []))]
        if isinstance(node, Function | ast.ClassDef) or not any(blocks):
            yield node
        else:
            targets = [getattr(node, "target", None), *(one.optional_vars for one in getattr(node, "items", []))]
            yield from (ast.copy_location(ast.Expr(one), node) for one in targets if one)
            for block in blocks:
                yield from outside(block)


def _imported(node: ast.Import | ast.ImportFrom) -> Iterator[Loud]:
    for one in node.names:
        name, text = one.asname or one.name, f"{getattr(node, 'module', '')} {one.name} {one.asname}"
        if one.name == "*":
            yield Loud("unjudged", text, node.lineno, f"`{as_text(node)}` brings what cannot be judged")
        elif name.startswith(("pytest_", "collect_ignore")):
            yield Loud("uncollected", text, node.lineno, f"{name}, from elsewhere, can change how tests end")
        elif name in ("pytest", "unittest") and text.split()[-2] != name:
            yield Loud("unjudged", text, node.lineno, f"{name} is another one")


def _specname(node: Function) -> bool:
    given = [word for one in node.decorator_list if isinstance(one, ast.Call) for word in one.keywords]
    return any(word.arg == "specname" for word in given)


def _told(body: Sequence[ast.stmt]) -> bool:
    """Whether it begins with a docstring."""
    return isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)


def _own_way(node: ast.ClassDef) -> Iterator[Loud]:
    functions = [one for one in node.body if isinstance(one, Function)]
    tests = any(one.name.startswith("test") for one in functions)
    own = OWN_WAY - (set() if node.bases else {"run"}) if tests else {"__init_subclass__"}
    found: list[tuple[str, ast.AST, int]] = [(one.name, one, one.lineno) for one in functions if one.name in own]
    for one in outside(node.body) if tests else ():
        for name in ast.walk(one) if not isinstance(one, Function | ast.ClassDef) else ():
            if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store) and SET.fullmatch(name.id):
                found.append((name.id, one, one.lineno))
    found += [(f"{word.arg}=", word.value, node.lineno) for word in node.keywords if tests]
    for what, inside, line in found:
        text = f"{node.name} {what} {as_text(inside)}"
        yield Loud("unjudged", text, line, f"{what} of {node.name} can change how its tests end")


# Decorators


def runs(function: Function, dotted: Dotted, called: bool = False) -> bool:
    """Whether a decorator (`called`: what makes one) gives back the test, or a function that calls it and lets its errors through."""
    inner = {one.name: one for one in function.body if isinstance(one, Function)}
    given = [one.value for one in outside(function.body) if isinstance(one, ast.Return) and one.value]
    own = [one.arg for one in (*function.args.posonlyargs, *function.args.args)][:1]
    if stored(function) & {*own, *inner}:
        return False

    def good(node: ast.expr) -> bool:
        match node:
            case ast.IfExp():
                return good(node.body) and good(node.orelse)
            case ast.Name() if called:
                return node.id in inner and runs(inner[node.id], dotted)
            case ast.Name():
                return node.id in own or (node.id in inner and _calls(inner[node.id].body, own[0], dotted) is True)
            case ast.Call(func=ast.Call() as mark, args=[one]):
                return not called and is_known(mark, dotted) and good(one)
            case ast.Call():
                return called and is_known(node, dotted)
        return False

    return bool(given) and (bool(own) or called) and all(map(good, given))


def is_known(node: ast.expr, dotted: Dotted) -> bool:
    return bool(KNOWN.fullmatch(dotted(node.func if isinstance(node, ast.Call) else node)))


def _calls(body: Sequence[ast.stmt], name: str, dotted: Dotted) -> bool | None:
    """Whether a call of `name` is reached and its errors are let through; False when it ends before, None when it goes on."""
    for node in body:
        found: bool | None
        if isinstance(node, ast.With | ast.AsyncWith):
            if any(dotted(part).endswith("suppress") for one in node.items for part in ast.walk(one.context_expr)):
                continue
            found = _calls(node.body, name, dotted)
        elif isinstance(node, ast.Try):
            found = None if swallowing(node) else _calls(node.body, name, dotted)
        elif isinstance(node, ast.If):
            both = [_calls(one, name, dotted) for one in (node.body, node.orelse)]
            found = False if False in both else both[0] and both[1]
        elif isinstance(node, ast.For | ast.While | Function | ast.ClassDef):
            continue
        else:
            value = node.value if isinstance(node, ast.Expr | ast.Return | ast.Assign) else None
            found = True if _direct(value, name) else False if isinstance(node, ast.Return) else None
        if found is not None:
            return found
    return None


def _direct(node: ast.expr | None, name: str) -> bool:
    """Whether its value cannot be had without a call of `name`."""
    if isinstance(node, ast.Await):
        return _direct(node.value, name)
    called = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name
    return called or (isinstance(node, ast.Call) and any(_direct(one, name) for one in node.args))


def stored(node: ast.AST) -> set[str]:
    """The names that are assigned or deleted in it, and those whose `__test__` is."""
    found = [one for one in ast.walk(node) if isinstance(getattr(one, "ctx", None), ast.Store | ast.Del)]
    found = [one.value if isinstance(one, ast.Attribute) and one.attr == "__test__" else one for one in found]
    return {one.id for one in found if isinstance(one, ast.Name)}


# Context managers


def lets_go(function: Function, name: str) -> bool:
    """Whether a function calls what it is given by this name, and swallows its errors."""
    tries = [one for one in ast.walk(function) if isinstance(one, ast.Try) and swallowing(one)]
    calls = [part for one in tries for node in one.body for part in ast.walk(node) if isinstance(part, ast.Call)]
    return any(isinstance(one.func, ast.Name) and one.func.id == name for one in calls)


def swallowing(node: ast.Try) -> bool:
    """Whether what is in it may fail and nobody sees it."""
    return any(map(quiet, node.handlers)) or any(isinstance(one, ast.Return) for one in node.finalbody)


def swallows(
    node: Function | ast.ClassDef, dotted: Dotted, classes: Mapping[str, ast.ClassDef], depth: int = 3
) -> bool:
    """Whether a context manager may swallow the errors of what stands in it."""
    if isinstance(node, Function):
        for one in ast.walk(node):
            body = one.body if isinstance(one, ast.Try | ast.With | ast.AsyncWith) else []
            if any(isinstance(part, ast.Yield) for inner in body for part in ast.walk(inner)):
                tried = isinstance(one, ast.Try) and swallowing(one)
                items = [] if isinstance(one, ast.Try) else one.items  # type: ignore[attr-defined]
                if tried or any(dotted(part).endswith("suppress") for item in items for part in ast.walk(item)):
                    return True
        return False
    bases = [classes[one.id] for one in node.bases if isinstance(one, ast.Name) and one.id in classes]
    if any(dotted(one).endswith("suppress") for one in node.bases):
        return True
    for one in outside(node.body):
        if isinstance(one, Function) and one.name in ("__exit__", "__aexit__"):
            return any(isinstance(part, ast.Return) and not _passes(part.value) for part in ast.walk(one))
        if any(isinstance(part, ast.Name) and part.id in ("__exit__", "__aexit__") for part in ast.walk(one)):
            return True
    return depth > 0 and any(swallows(one, dotted, classes, depth - 1) for one in bases)


def _passes(value: ast.expr | None) -> bool:
    """Whether `__exit__` with this result lets an error through, or leaves it to another one."""
    if isinstance(value, ast.Await):
        value = value.value
    left = isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and "exit" in value.func.attr
    return value is None or left or (isinstance(value, ast.Constant) and not value.value)


def fails(body: Sequence[ast.stmt]) -> bool:
    """Whether it fails the test wherever it is reached."""
    return any(
        (isinstance(node, ast.Raise) and not re.search("SkipTest|Skipped", as_text(node)))
        or (isinstance(node, ast.Expr | ast.Assert) and as_text(node).startswith(FAILS))
        for node in body
    )


FAILS = ("pytest.fail(", "self.fail(", "fail(", "assert False")


def quiet(handler: ast.ExceptHandler) -> bool:
    """Whether the test goes on after it."""
    empty = (ast.Constant, ast.Name)  # the error itself is always true
    claims = any(isinstance(one, ast.Assert) and not isinstance(one.test, empty) for one in handler.body)
    return not fails(handler.body) and not claims
