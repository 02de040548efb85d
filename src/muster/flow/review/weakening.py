"""Do changed test files check less than before? Old and new are compared by what their tests claim (claims.py), not by their text.

A rewrite that keeps the claims is silent, and so is a mock, unless it is for every test or for the very thing that a claim is about.
What is not in the text of test files (data, a module of the program that is there only for them) is not seen here.
"""

from __future__ import annotations

import builtins
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ..run.results import shown
from .claims import Check, Seen, TooMuch, Unit, made_in, read, units, yields

#: Seconds that an e2e test waits by itself: a longer time-out that is added is there to wait longer.
LONG = 60.0
TEST_FILE = re.compile(r"(.*/)?(test_[^/]*|[^/]*_test)\.py", re.DOTALL)
SHELL = re.compile(r"\|\|\s*(true|:|exit 0|echo\b.*)|;\s*(true|:|exit 0)\s*$|set \+e;?", re.MULTILINE)
Key = tuple[Any, ...]
Told = tuple[str, int, int, str]
"""Rule, line, line of the cause, words."""


class Finding(NamedTuple):
    """Why the change of a path does not count, or would not if it were not `allowed`."""

    path: str
    line: int
    """In the new file; in the old one for what is not in the new; 0 for the whole file."""
    rule: str
    words: str
    allowed: bool = False


class Compared(NamedTuple):
    findings: list[Finding]
    moved: list[tuple[str, str]]
    """From which file to which tests went: without the change of the second, that of the first loses them."""


def weakened(before: str | None, after: str | None, path: str) -> list[Finding]:
    """What the new text of one test file (None: there is no file) checks less than the old one."""
    return compare({path: (before, after)}).findings


def compare(files: Mapping[str, tuple[str | None, str | None]]) -> Compared:
    """The same for all test files of one change, so that a test that moved is found where it is now."""
    found: dict[tuple[str, str, int], Finding] = {}
    old: dict[str, list[Unit]] = {}
    new: dict[str, list[Unit]] = {}
    for path, (before, after) in files.items():
        try:
            new[path] = units(path, after or "", before is not None or bool(TEST_FILE.fullmatch(path)))
        except (SyntaxError, ValueError, RecursionError, MemoryError, TooMuch) as error:
            line = getattr(error, "lineno", None) or 0
            found[path, "unreadable", 0] = Finding(path, line, "unreadable", "it cannot be read as Python")
            continue
        try:
            old[path] = units(path, before, True) if before is not None else []
        except (SyntaxError, ValueError, RecursionError, MemoryError, TooMuch):
            old[path] = []  # nobody can say what it checked
    while True:
        try:
            told, moved = _compared(old, new)
            break
        except TooMuch as error:
            path = str(error)
            del old[path], new[path]
            found[path, "unreadable", 0] = Finding(path, 0, "unreadable", "there is too much in it to be judged")
    for path, (rule, line, cause, words) in told:
        # One cause, such as a helper, may show in many tests.
        found.setdefault((path, rule, cause), Finding(path, line, rule, words))
    return Compared(sorted(found.values()), sorted(moved))


def _compared(
    old: dict[str, list[Unit]], new: dict[str, list[Unit]]
) -> tuple[list[tuple[str, Told]], set[tuple[str, str]]]:
    pairs, gone, added = _paired(old, new)
    runs = [unit for unit in added if unit.test and not read(unit).marks]
    pool = Counter(check.key for unit in runs for check in read(unit, True).checks if not check.guards)
    moved: set[tuple[str, str]] = set()
    for unit in list(gone):
        claims = Counter(check.key for check in read(unit, True).checks if check.level)
        if unit.test and claims and claims <= pool:
            pool -= claims
            gone.remove(unit)
            moved |= {(unit.file.path, one.file.path) for one in runs}
    pairs += _renamed(gone, added)
    moved |= {(before.file.path, after.file.path) for before, after in pairs}
    away = {(one.file.path, one.node.name) for one, to in pairs if one.file.path != to.file.path and not one.test}
    # A file is large, a change is small: where no helper changed, a test that did not says what it said.
    restless = {one.file.path for one, to in pairs if not one.test and one.whole != to.whole}
    restless |= {unit.file.path for unit in (*gone, *added) if not unit.test}
    restless |= {to.file.path for one, to in pairs if not to.name and one.file.imports != to.file.imports}
    told: list[tuple[str, Told]] = []
    for before, after in pairs:
        path, left = after.file.path, pool.total()
        if path in restless or path != before.file.path or before.whole != after.whole:
            told += [(path, one) for one in _weaker(before, after, pool, away)]
            moved |= {(path, one.file.path) for one in runs if pool.total() < left}
    for unit in gone:
        helps = not TEST_FILE.fullmatch(unit.file.path) and read(unit).checks
        if unit.node.name.startswith("test") or helps:
            line, words = unit.node.lineno, f"{shown(unit.name)} is gone, or pytest does not collect it any more"
            told.append((unit.file.path, ("test-removed", line, line, words)))
    told += [(unit.file.path, one) for unit in added for one in _added(unit)]
    told += [*_louder(old, new), *_patched(old, pairs, added), *_skipping(pairs, added)]
    return told, {(here, there) for here, there in moved if here != there}


def _paired(
    old: dict[str, list[Unit]], new: dict[str, list[Unit]]
) -> tuple[list[tuple[Unit, Unit]], list[Unit], list[Unit]]:
    """Old and new of each function; those that are only old; those that are only new."""
    pairs = []
    gone = [unit for path in old for unit in old[path]]
    added = [unit for path in new for unit in new[path]]
    whole = {unit.whole for unit in added if unit.test}
    for same in (
        lambda unit: (unit.file.path, unit.name),
        lambda unit: unit.body if unit.name else unit.file.path,
        lambda unit: unit.node.name if unit.test else id(unit),
    ):
        places: dict[Any, list[Unit]] = {}
        for unit in added:
            places.setdefault(same(unit), []).append(unit)
        for before in list(gone):
            after = next((one for one in places.get(same(before), []) if _runs(one) >= _runs(before)), None)
            if after is not None:
                places[same(before)].remove(after)
                pairs.append((before, after))
                gone.remove(before)
                added.remove(after)
    # What is there twice may go once.
    return pairs, [unit for unit in gone if not unit.test or unit.whole not in whole], added


def _runs(unit: Unit) -> tuple[bool, bool]:
    """Whether it is collected, and whether it would be in another class."""
    return unit.test, unit.node.name.startswith("test")


def _renamed(gone: list[Unit], added: list[Unit]) -> list[tuple[Unit, Unit]]:
    """Tests that are alike and lost nothing but their name; they are taken out of both lists."""
    pairs = []
    for before in [unit for unit in gone if unit.test]:
        near = [unit for unit in added if unit.test and _alike(before.body, unit.body)][:5]
        after = next((unit for unit in near if not any(_weaker(before, unit, Counter(), set()))), None)
        if after is not None:
            pairs.append((before, after))
            gone.remove(before)
            added.remove(after)
    return pairs


def _alike(one: str, other: str) -> bool:
    left, right = (Counter(re.findall(r"\w+", text)) for text in (one, other))
    return (left & right).total() > 0.6 * max(left.total(), right.total(), 1)


def _added(unit: Unit) -> Iterator[Told]:
    """A new function that takes other tests out of the run, or (without a name) what is new outside of all functions."""
    helps = not TEST_FILE.fullmatch(unit.file.path)
    marks = read(unit).marks if unit.every or (helps and not unit.name) else []
    for rule, what, at in marks:
        yield rule, at, at, f"`{shown(what)}` for every test, by {shown(unit.name) or 'the module'}"


def _louder(old: dict[str, list[Unit]], new: dict[str, list[Unit]]) -> Iterator[tuple[str, Told]]:
    """What can change how other tests end and was in no file before."""
    known = Counter(one.text for some in old.values() for unit in some[:1] for one in unit.file.loud)
    for path, some in new.items():
        for rule, text, line, words in (one for unit in some[:1] for one in unit.file.loud):
            known[text] -= 1
            if known[text] < 0:
                yield path, (rule, line, line, shown(words))


def _patched(
    old: dict[str, list[Unit]], pairs: list[tuple[Unit, Unit]], added: list[Unit]
) -> Iterator[tuple[str, Told]]:
    """What is put in the place of something else for tests that were there before, and was not before for any of them."""
    known = {text for some in old.values() for unit in some for text, _ in read(unit).patches}
    housed = {(to.file.path, scope) for _, to in pairs if to.test for scope in _scopes(to.name)}
    for unit in (*(to for _, to in pairs), *added):
        alone = TEST_FILE.fullmatch(unit.file.path) and (unit.file.path, _scopes(unit.name)[-1]) not in housed
        for text, line in read(unit).patches if unit.every or not unit.name else []:
            if text not in known and not (alone and unit.name):
                yield unit.file.path, ("patched", line, line, f"`{shown(text)}` for every test")


def _skipping(pairs: list[tuple[Unit, Unit]], added: list[Unit]) -> Iterator[tuple[str, Told]]:
    """A test asks for a new fixture, which skips it or replaces what it is about."""
    made = {unit.node.name: unit for unit in added if "fixture" in "".join(unit.whole[2:])}
    for before, after in pairs:
        line = after.node.lineno
        for name in sorted((_asked(after) - _asked(before)) & made.keys()) if after.test else ():
            found = read(made[name])
            if found.marks:
                yield after.file.path, ("skip", line, line, f"{shown(after.name)}: {shown(name)} can skip it")
            for text in (text for text, _ in found.patches if _is_about(before, text)):
                words = f"{shown(after.name)}: `{shown(text)}` in {shown(name)} replaces what it is about"
                yield after.file.path, ("patched", line, line, words)


def _asked(unit: Unit) -> set[str]:
    """The names of fixtures, among others."""
    return {*re.findall(r"\w+", " ".join((unit.whole[1], *(one for one in unit.whole[2:] if "usefixtures" in one))))}


def _replaced(before: Unit, after: Unit) -> Iterator[Told]:
    """What the test is about is no longer what was imported for it."""
    line, was = after.node.lineno, before.file.imports
    about = {check.path[0] for check in read(before).checks if check.path}
    for name in sorted(about & was.keys() & made_in(after) - made_in(before)):
        yield "replaced", line, line, f"{shown(name)} is not {shown(was[name])} any more, but made in this file"
    for name in sorted(about & was.keys() & after.file.imports.keys()):
        now = after.file.imports[name]
        if now.rpartition(".")[2] != was[name].rpartition(".")[2] and now.rpartition(".")[0]:
            yield "replaced", line, line, f"{shown(name)} is not {shown(was[name])} any more, but {shown(now)}"
    known = {text for text, _ in read(before).patches}
    for text, at in read(after).patches:
        if text not in known and _is_about(before, text):
            yield "patched", at, at, f"{shown(after.name)}: `{shown(text)}` replaces what it is about"


def _is_about(unit: Unit, patch: str) -> bool:
    """Whether a patch is of what the claims of a test are about."""
    names = {one.rpartition(".")[2] for one in re.findall(r"'([\w.]+)'", patch)[:1]}
    return any(step.strip(".") in names for check in read(unit).checks for step in check.path[: _call(check.path)])


def _call(path: tuple[str, ...]) -> int:
    """The steps to the first call of a subject."""
    return next((number for number, step in enumerate(path) if step[0] == "("), 0)


def _scopes(name: str) -> list[str]:
    """The module and the classes that a function stands in."""
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(len(parts))]


def _weaker(before: Unit, after: Unit, pool: Counter[Key], away: set[tuple[str, str]]) -> Iterator[Told]:
    """What the new one says less. What another test claims now is taken out of `pool`; what a helper in `away` claims is claimed there."""
    plain = bool(read(before).rows) == bool(read(after).rows)  # else the rows are written out on one side
    was, seen = read(before, not plain), read(after, not plain)
    here, name = after.node.lineno, shown(after.name) or "the module"
    if before.test and after.test:
        yield from _replaced(before, after)
        if yields(after) and not yields(before):
            yield "test-removed", here, here, f"{name} yields, so that its body does not run"
    if plain and (fewer := sum(was.rows) - sum(seen.rows)) > 0:
        yield "rows-removed", here, here, f"{name} has {fewer} parameter rows less"
    if after.guards > before.guards:
        yield "assertion-guarded", here, here, f"{name} is defined under a condition"
    if was.bare and not (seen.bare or seen.checks or seen.swallowed):
        yield "test-removed", here, here, f"{name} does nothing any more"
    checks = [check for check in was.checks if (before.file.path, check.home) not in away]
    for rule, line, cause, words in (
        *_less_claimed(checks, seen.checks, before.node.name, pool),
        *_less_seen(was, seen),
    ):
        yield rule, line or here, cause or here, f"{name}: {words}"


# Claims


def _less_claimed(before: list[Check], after: list[Check], own: str, pool: Counter[Key]) -> Iterator[Told]:
    fresh = sorted(after, key=lambda check: check.guards)
    lost, guarded = [], []
    for check in sorted(before, key=lambda check: check.guards):
        equal = next((one for one in fresh if one.key == check.key and one.level >= check.level), None)
        if equal is not None:
            fresh.remove(equal)
            guarded += [equal] if equal.guards > check.guards else []
        elif not check.level or any(_implies(one, check) or _again(one, check, own) for one in after):
            pass  # it said nothing, or another one says it too, or the helper says it of other calls
        elif pool[check.key] > 0:
            pool[check.key] -= 1
        else:
            lost.append(check)
    ranked = sorted(
        ((near, check.value == one.value, check.sign == one.sign, not _less(check, one)), -i, -j)
        for i, check in enumerate(lost)
        for j, one in enumerate(fresh)
        if (near := _near(check, one))
    )
    found: dict[int, Check] = {}
    used: set[int] = set()
    for (near, *_), i, j in reversed(ranked):
        if -i not in found and -j not in used:
            found[-i] = fresh[-j]
            whole = near == 4 and fresh[-j].sign == "==" and len(fresh[-j].path) < len(lost[-i].path)
            used |= set() if whole else {-j}  # the whole of a thing answers for many parts
    for i, check in enumerate(lost):
        one = found.get(i)
        parts = [part for part in fresh if _near(check, part) == 1 and part.level >= check.level]
        if one is None:
            yield "assertion-removed", 0, check.line, f"without `{shown(check.text)}`"
        elif (less := _less(check, one)) and not (len(parts) > 1 and _near(check, one) == 1):
            yield "assertion-loosened", one.line, one.line, f"`{shown(check.text)}`: {less}"
        elif one.guards > check.guards:
            guarded.append(one)
    for check in guarded:
        yield "assertion-guarded", check.line, check.line, f"`{shown(check.text)}` may not be reached any more"


def _near(check: Check, one: Check) -> int:
    """How far `one` is about the same: 4 just that or the whole of it, 3 with other arguments, 2 by another name, 1 a part."""
    if (check.sign == "raises") != (one.sign == "raises"):
        return 0
    if one.path and check.path[: len(one.path)] == one.path:
        return 4
    was, now = _loose(check.path), _loose(one.path)
    turned = (one.path and one.path == check.other) or (check.path and check.path == one.other)
    if turned or (now and was[: len(now)] == now):
        return 3
    if set(was) & set(now) - {"()", "~"} and (one.sign, one.value) == (check.sign, check.value):
        return 2
    return 1 if was and now[: len(was)] == was else 0


def _implies(one: Check, check: Check) -> bool:
    """Whether what `check` said follows from a stronger one."""
    says = check.sign in ("true", "is not", "isinstance") or _bare(check.value) in _bare(one.value)
    whole = one.path == check.path or (one.sign == "==" and _near(check, one) == 4)
    return one.level > check.level and says and whole


def _again(one: Check, check: Check, own: str) -> bool:
    """Whether a helper, which is not `own`, says both: a step less in a test is no claim less."""
    return own != check.home == one.home and one.sign == check.sign and _loose(one.path) == _loose(check.path)


def _loose(path: tuple[str, ...]) -> tuple[str, ...]:
    return tuple("()" if step[0] == "(" else "~" if step[0] == "~" else step for step in path)


def _less(check: Check, one: Check) -> str:
    """Why `one` says less than `check`; empty when it does not."""
    if not one.level:
        return "it is always true now"
    if check.sign == one.sign == "raises":
        wide = sorted(name for name in one.value - check.value if _wider(name, check.value, one.value))
        return f"{shown(', '.join(wide))} will do now" if wide else ""
    if one.level < check.level:
        return f"only `{one.sign}` is left of it"
    if one.slack > check.slack:
        return "the tolerance is larger"
    bounds = isinstance(check.value, float) and isinstance(one.value, float) and check.sign[0] == one.sign[0] in "<>"
    if bounds and one.value != check.value and (one.value > check.value) == (one.sign[0] == "<"):
        return "the bound moved"
    if check.sign == one.sign == "in" and check.value != one.value and _bare(one.value) in _bare(check.value):
        return "less text is looked for"
    return "only a part of it is compared" if _near(check, one) == 1 and one.level <= check.level else ""


def _bare(value: Any) -> str:
    return str(value).replace("\\", "").strip("'\"")


def _wider(name: str, before: frozenset[str], after: frozenset[str]) -> bool:
    """Whether an exception that is expected now lets more through."""
    kind: Any = getattr(builtins, name, None)
    known: list[Any] = [getattr(builtins, one, None) for one in before]
    if name in ("Exception", "BaseException") or before < after:
        return True
    return isinstance(kind, type) and any(isinstance(one, type) and issubclass(one, kind) for one in known)


def _less_seen(was: Seen, seen: Seen) -> Iterator[Told]:
    """Skips, retries and time-outs, and errors that nobody sees any more."""
    known = Counter((rule, what) for rule, what, _ in was.marks)
    fresh = []
    for rule, what, line in seen.marks:
        known[rule, what] -= 1
        fresh += [(rule, what, line)] if known[rule, what] < 0 else []
    if not any(count > 0 and what == "pytest.mark.skip" for (_, what), count in known.items()):
        for rule, what, line in fresh:
            yield rule, line, line, f"`{shown(what)}` is new"
    covered = (was.bare - seen.bare).keys()
    for calls, line in seen.swallowed:
        if some := sorted(calls & covered):
            yield "error-swallowed", line, line, f"the errors of `{shown(some[0])}` are swallowed"
    lost = [text for text in was.texts if text not in seen.texts]
    for text, line in seen.texts.items():
        plain = SHELL.sub("", text).strip()
        if SHELL.search(text) and text not in was.texts and any(plain in one or _alike(plain, one) for one in lost):
            yield "error-swallowed", line, line, f"`{shown(text)}` cannot fail any more"
    for name in seen.calls:
        added = seen.calls[name] - was.calls[name]
        bare = seen.unchecked[name] - was.unchecked[name] > max(added, 0)
        if bare or (was.checked[name] - seen.checked[name] > max(-added, 0) and not _codes(was, seen)):
            yield "error-swallowed", 0, 0, f"the exit code of {shown(name)} is not looked at any more"
    now, then = (Counter(one[:2] for one in each.timeouts) for each in (seen, was))
    now, then = now - then, then - now
    for site, seconds, line in seen.timeouts:
        before = [number for name, number in then if name == site]
        added = not before and seconds > LONG and site.partition(" ")[0] in ("mark", "e2e", "expect")
        if now[site, seconds] and (added or (before and seconds > max(before))):
            yield "timeout-raised", line, line, f"the time-out of {shown(site.strip())} is {seconds:g} s"
    for site, seconds in then:
        name = site.rpartition(" ")[2]
        if not any(one == site for one, _ in now) and (name == "timeout" or seen.calls[name] >= was.calls[name]):
            yield "timeout-raised", 0, 0, f"{shown(site.strip())} has no time-out of {seconds:g} s any more"


def _codes(was: Seen, seen: Seen) -> bool:
    """Whether more exit codes are compared than before."""
    ends = ((".returncode",), (".exit_code",))
    then, now = (sum(check.path[-1:] in ends for check in one.checks) for one in (was, seen))
    return now > then
