"""`muster tutorial sync`: an agent writes the tests that a tutorial lacks, and muster itself judges what it committed.

The agent's test files are taken out of git and parsed; they are never checked out into the user's tree. Tests that read well
are then run on the agent's host, in a clean checkout of the agent's commit and with none of the user's variables.
"""

from __future__ import annotations

import ast
import os
import re
import shlex
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import Fleet
from ..errors import MusterError, NotFound, UsageError
from ..flow.run import prompts
from ..flow.suite import execute
from ..tutorial import check
from ..tutorial.check import Finding
from . import agent
from .agent import FILE_CAP, PROMPTS, Place, Say, Wish

if TYPE_CHECKING:
    from ..host import Found

#: A prompt travels as an argument or a variable, which hold some 100 KB. What does not fit in is named by the check.
PROMPT_CAP = 60_000
#: More than this of an agent's is not looked at.
FILES_CAP = 5000
NO_UNHAPPY = re.compile(r"#\s*no unhappy path:\s*\S")
_TEST_FILE = re.compile(r"test_.*\.py|.*_test\.py")


class Synced(NamedTuple):
    place: Place
    tests: tuple[str, ...]
    """Below the top of the repository."""
    before: list[Finding]
    findings: list[Finding]
    """What is left."""
    one: Found | None = None
    """None when nothing was to be done."""
    rounds: int = 0

    @property
    def ok(self) -> bool:
        return not self.findings


# What is to be done


def tests(named: Sequence[str], at: Place, cwd: str) -> tuple[str, ...]:
    """Return the folders and files of the tests, below the top of the repository.

    Without a name these are the ones that `muster tutorial check` reads, or tests/e2e if there is no test yet.
    """
    if not named:
        if (found := check.default_tests(cwd)) != "." or check.files([cwd]):
            return (_below(os.path.join(cwd, found), found, at),)
        return (os.path.join("tests", "e2e"),)
    for path in named:
        if not os.path.exists(os.path.join(cwd, path)):
            raise NotFound(f"there are no tests at {path}", f"mkdir {shlex.quote(path)} makes a folder for them")
    return tuple(_below(os.path.join(cwd, path), path, at) for path in named)


def _below(path: str, shown: str, at: Place) -> str:
    found = os.path.relpath(os.path.realpath(path), at.top)
    if found.split(os.sep)[0] == "..":
        raise UsageError(f"{shown} is not in {at.top}, where the tutorial is", "name tests of the same repository")
    return found


def command(at: Place, wanted: Sequence[str]) -> str:
    """What the agent types to check its own work, at the top of the repository."""
    return shlex.join(["muster", "tutorial", "check", "--tutorial", at.path, *wanted])


def look(at: Place, wanted: Sequence[str], top: str) -> check.Report:
    """The check of the tests below `top`, with all names as seen from there."""
    present = [path for one in wanted if os.path.exists(path := os.path.join(top, one))]
    report = check.check(os.path.join(top, at.path), present)
    lead = top.rstrip(os.sep) + os.sep

    def named(text: str) -> str:
        return text.replace(lead, "")

    findings = [
        one._replace(file=named(one.file), test=named(one.test), message=named(one.message), diff=named(one.diff))
        for one in report.findings
    ]
    citing = {block: [named(test) for test in some] for block, some in report.tests.items()}
    return report._replace(findings=findings, tests=citing)


def of_user(at: Place, findings: Sequence[Finding]) -> list[Finding]:
    """Those that only a change of the tutorial mends, which no agent may make."""
    return [one for one in findings if one.file == at.path and one.kind == "duplicate"]


def ask(at: Place, wanted: Sequence[str], report: check.Report) -> str:
    """The first prompt: stale citations before missing blocks."""
    by_id = {block.id: block for block in report.blocks}
    missing = [by_id[one.block] for one in report.findings if one.kind == "missing"]
    others = [one for one in report.findings if one.kind != "missing" and one not in of_user(at, report.findings)]
    others.sort(key=lambda one: one.kind != "stale")
    return prompts.prompt(
        "sync",
        PROMPTS,
        tutorial=at.path,
        tests=", ".join(wanted),
        check=command(at, wanted),
        stale=_capped([_told(one) for one in others], at, wanted),
        missing=_capped(
            [f"{at.path}, line {block.line}, {block.id}:\n\n{_inset(block.text)}" for block in missing], at, wanted
        ),
    )


def _capped(parts: Sequence[str], at: Place, wanted: Sequence[str]) -> str:
    """As many of them as a prompt holds."""
    size, kept = 0, []
    for part in parts:
        size += len(part)
        if size > PROMPT_CAP // 2:
            break
        kept.append(part)
    left = len(parts) - len(kept)
    more = [f"And {left} more: `{command(at, wanted)}` names them; the text of each is in {at.path}."] if left else []
    return "\n\n".join([*kept, *more]) or "There are none."


def _told(one: Finding) -> str:
    head = f"{one.file}:{one.line}: {one.kind}: {one.message}"
    return f"{head}\n\n{_inset(one.diff)}" if one.diff else head


def _inset(text: str) -> str:
    return "\n".join(f"    {line}".rstrip() for line in text.split("\n"))


# Judging


class _Blob(NamedTuple):
    mode: str
    sha: str
    size: int


class Judged(NamedTuple):
    findings: list[Finding]
    commit: str
    changed: tuple[str, ...]
    """The test files that the agent wrote or changed, and those that its other changes below the tests may affect."""
    tests: dict[str, list[str]]
    """The texts of the blocks that had no test before, each with the tests that cite it now."""


def judge(fleet: Fleet, one: Found, at: Place, wanted: Sequence[str], missing: set[str], *, force: bool) -> Judged:
    """Read what the agent has committed and say what is wrong with it, as it would be in the user's tree.

    The commits are fetched, the files that it changed are written to a temporary folder beside copies of the others, and that is
    parsed. `missing` are the texts of the blocks that had no test when it began. The tutorial is the user's, whatever it did to it.
    """
    tip = str(fleet.pull(one, force=force)["tip"])
    base = one.agent.base
    theirs, ours = _tree(fleet, at, tip), _tree(fleet, at, base)
    with tempfile.TemporaryDirectory(prefix="muster-sync-") as folder:
        with open(at.file, "rb") as file:
            text = file.read()
        _put(folder, at.path, text)
        findings = _protected(fleet, at, theirs.get(at.path), ours.get(at.path), text)
        for path in _files(at, wanted):
            if path not in ours or path in theirs:
                with open(os.path.join(at.top, path), "rb") as file:
                    _put(folder, path, file.read())
        for path, blob in theirs.items():
            if _is_test(path, wanted) and blob != ours.get(path):
                _put(folder, path, _blob(fleet, at, blob))
        top = os.path.realpath(folder)
        report = look(at, wanted, top)
        findings += report.findings
        citing = {block.text: report.tests.get(block.id, []) for block in report.blocks if block.text in missing}
        for block in report.blocks:
            tests = citing.get(block.text, [])
            if tests and not any(_unhappy(top, test) for test in tests):
                findings.append(
                    Finding(
                        "happy-only",
                        tests[0].partition("::")[0],
                        1,
                        f"no test of {block.id} takes an unhappy path (to_fail, to_exit_with, to_time_out), "
                        "and none says `# no unhappy path: REASON`",
                        block.id,
                        tests[0],
                    )
                )
    changed = {path for path in (theirs.keys() | ours.keys()) if theirs.get(path) != ours.get(path)}
    helpers = any(_inside(path, wanted) and not _is_test(path, wanted) for path in changed)
    run = sorted(path for path in theirs if _is_test(path, wanted) and (helpers or path in changed))
    return Judged(findings, tip, tuple(run), citing)


def _protected(fleet: Fleet, at: Place, theirs: _Blob | None, ours: _Blob | None, text: bytes) -> list[Finding]:
    """The tutorial there is what it was, or what the user has."""
    if theirs is not None and ours is not None and theirs.sha == ours.sha:
        return []
    if theirs is None and ours is None:
        return []  # the user has not committed it either
    if theirs is not None and theirs.size <= FILE_CAP and _blob(fleet, at, theirs) == text:
        return []
    what = "removed" if theirs is None else "changed"
    told = f"the tutorial was {what}, and it is not yours to change: bring it back as it was when you began"
    return [Finding("edited", at.path, 1, told)]


def _tree(fleet: Fleet, at: Place, commit: str) -> dict[str, _Blob]:
    """The plain files of a commit by their paths."""
    done = fleet.local.run(["git", "-C", at.top, "ls-tree", "-r", "-l", "-z", "--full-tree", commit])
    if done.returncode:
        raise MusterError(
            f"git cannot list {commit[:10]}: {done.stderr.decode('utf-8', 'replace').strip()}", "git fsck"
        )
    found = {}
    for row in done.stdout.decode("utf-8", "surrogateescape").split("\0"):
        head, _, path = row.partition("\t")
        fields = head.split()
        if len(fields) == 4 and fields[0] in ("100644", "100755") and fields[3].isdigit() and _safe(path):
            found[path] = _Blob(fields[0], fields[2], int(fields[3]))
    return found


def _safe(path: str) -> bool:
    return not path.startswith("/") and not {"..", ".", "", ".git"} & set(path.split("/"))


def _blob(fleet: Fleet, at: Place, blob: _Blob) -> bytes:
    """The content as git has it: no filter of anybody's runs."""
    if blob.size > FILE_CAP:
        return b"\0"  # no text: the check says that it cannot be read
    return fleet.local.run(["git", "-C", at.top, "cat-file", "blob", blob.sha]).stdout


def _inside(path: str, wanted: Sequence[str]) -> bool:
    return any(one in (".", path) or path.startswith(f"{one}/") for one in wanted)


def _is_test(path: str, wanted: Sequence[str]) -> bool:
    return path in wanted or (_inside(path, wanted) and _TEST_FILE.fullmatch(path.rpartition("/")[2]) is not None)


def _files(at: Place, wanted: Sequence[str]) -> list[str]:
    """The user's test files, below the top."""
    present = [path for one in wanted if os.path.exists(path := os.path.join(at.top, one))]
    found = [os.path.relpath(os.path.join(at.top, path), at.top) for path in check.files(present)]
    return [path for path in found[:FILES_CAP] if os.path.isfile(os.path.join(at.top, path))]


def _put(folder: str, path: str, data: bytes) -> None:
    file = os.path.join(folder, path)
    try:
        os.makedirs(os.path.dirname(file), exist_ok=True)
        with open(file, "wb") as stream:
            stream.write(data)
    except (NotADirectoryError, FileExistsError, IsADirectoryError):
        pass  # a tree that no git would have made: what cannot be there cites nothing


def _unhappy(top: str, test: str) -> bool:
    """Whether the test (`file::Class::name`) expects a failure, or says why there is none."""
    file, _, name = test.partition("::")
    with open(os.path.join(top, file), "rb") as stream:
        data = stream.read()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = ast.parse(data)
    rows = data.decode("utf-8", "replace").splitlines()
    for node in _functions(tree.body, name.split("::")):
        if NO_UNHAPPY.search("\n".join(_rows(rows, node))) or any(_expects(call) for call in ast.walk(node)):
            return True
    return False


def _functions(body: Sequence[ast.stmt], parts: Sequence[str]) -> Iterator[ast.stmt]:
    for node in body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            if node.name == parts[0] and len(parts) == 1:
                yield node
            elif node.name == parts[0] and isinstance(node, ast.ClassDef):
                yield from _functions(node.body, parts[1:])
        elif isinstance(node, (ast.If, ast.Try, ast.With)):
            yield from _functions(node.body, parts)
            yield from _functions(getattr(node, "orelse", []), parts)


def _rows(rows: Sequence[str], node: ast.stmt) -> list[str]:
    """The lines of a function, with the comments at its end, which the tree does not have."""
    end = node.end_lineno or node.lineno
    while end < len(rows) and re.match(rf"\s{{{node.col_offset + 1},}}#|\s*$", rows[end]):
        end += 1
    return list(rows[node.lineno - 1 : end])


def _expects(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    if node.func.attr == "to_exit_with":
        given = [*node.args, *(word.value for word in node.keywords if word.arg == "code")]
        return bool(given) and not (isinstance(given[0], ast.Constant) and given[0].value == 0)
    return node.func.attr in ("to_fail", "to_time_out")


# Running


def pytest_command(at_home: bool) -> tuple[str, ...]:
    """How tests are run if nobody says: by this interpreter, if it has pytest and the agent works on this machine."""
    from importlib.util import find_spec

    return (sys.executable if at_home and find_spec("pytest") else "python3", "-m", "pytest")


def run(fleet: Fleet, one: Found, at: Place, judged: Judged, pytest: Sequence[str], timeout: float) -> list[Finding]:
    """Run the tests that the agent wrote; return those that fail, and the blocks of which no test passed.

    A test that failed before the agent began is not the agent's to mend.
    """
    if not judged.changed:
        return []
    address = one.status.address
    command = tuple(pytest) or pytest_command(not address.place)
    where = execute.Where(address.name, address.place, at.top, command, timeout=timeout)
    report = execute.run(fleet, where, judged.commit, judged.changed)
    shown = shlex.join((*command, *judged.changed))
    if not report.cases and not report.errors:
        last = report.screen.strip().split("\n")[-15:]
        return [
            Finding(
                "not-run",
                judged.changed[0],
                1,
                f"no test could be run by: {shown} (--pytest COMMAND names another)",
                diff="\n".join(last),
            )
        ]
    bad = [case for case in report.cases.values() if case.outcome not in PASSED and case.outcome not in IDLE]
    known = [case.id for case in bad if case.id.partition("::")[0] in _tree(fleet, at, one.agent.base)]
    if known:
        before = execute.run(fleet, where, one.agent.base, known)
        bad = [case for case in bad if before.outcome(case.id) in ("missing", *PASSED, *IDLE)]
    findings = [
        Finding("failing", file, 1, "pytest cannot collect its tests", diff=_last(text))
        for file, text in report.errors.items()
    ]
    for case in bad:
        item = report.items.get(case.id)
        findings.append(
            Finding(
                "failing",
                case.id.partition("::")[0],
                item.line if item else 1,
                f"{case.id} {'failed' if case.outcome == 'failed' else f'ended with: {case.outcome}'}",
                test=case.id,
                diff=_last(case.text),
            )
        )
    for text, tests in judged.tests.items():
        ran = [case for case in report.cases.values() if execute.function_of(case.id) in tests]
        if not any(case.outcome in PASSED for case in ran) and not any(case in bad for case in ran) and not findings:
            file, _, name = tests[0].partition("::")
            message = (
                f"no test of this block passed ({text.partition(chr(10))[0]}): {name} was skipped or not collected"
            )
            findings.append(Finding("not-run", file, 1, message, test=tests[0]))
    return findings


PASSED, IDLE = ("passed", "xpassed"), ("skipped", "xfailed")


def _last(text: str) -> str:
    return "\n".join(agent.harmless(text).strip().split("\n")[-40:])


# The verb


def sync(
    fleet: Fleet,
    asked: Callable[[], Wish],
    at: Place,
    wanted: Sequence[str],
    rounds: int,
    say: Say,
    pytest: Sequence[str] = (),
) -> Synced:
    """Check; and while something is found, have an agent (the one asked for then) mend it, at most `rounds` times."""
    report = look(at, wanted, at.top)
    before = report.findings
    own = of_user(at, before)
    tests = tuple(wanted)
    if len(before) == len(own):
        return Synced(at, tests, before, own)
    wish = asked()
    deadline = time.monotonic() + wish.timeout
    missing = {
        block.text for block in report.blocks for one in before if one.kind == "missing" and one.block == block.id
    }
    one = agent.hire(fleet, wish, at, ask(at, wanted, report))
    address = one.status.address
    count = len(before) - len(own)
    say(f"{address} ({wish.type}) works on {count} finding{'' if count == 1 else 's'}")
    again = f"muster diff {address}; muster pull {address} --merge brings what it has"
    for number in range(1, rounds + 1):
        one = agent.turn(fleet, one, deadline, say, again)
        judged = judge(fleet, one, at, wanted, missing, force=number > 1)
        left = [finding for finding in judged.findings if finding not in own]
        if not left and judged.changed:
            say(f"round {number}: running the tests in {', '.join(judged.changed)}")
            left = run(fleet, one, at, judged, pytest, max(60.0, deadline - time.monotonic()))
        if not left:
            say(f"round {number}: every block is cited, and the tests that {address} committed pass")
            return Synced(at, tests, before, own, one, number)
        say(f"round {number}: {len(left)} finding{'' if len(left) == 1 else 's'} left")
        if number == rounds or all(finding.kind == "not-run" and not finding.test for finding in left):
            break  # where no test can be run, the agent cannot help it
        if one.status.state == "done":
            say(f"{address} has ended and takes no message")
            break
        one = one._replace(status=fleet.look(one))
        fleet.message(one, _message(fleet, one, at, wanted, left))
    return Synced(at, tests, before, [*left, *own], one, number)


def _message(fleet: Fleet, one: Found, at: Place, wanted: Sequence[str], left: Sequence[Finding]) -> str:
    dirty = next((count[1] for count in fleet.git_counts([one.status]).values()), 0)
    lines = [f"muster has looked at what you committed. {len(left)} left to mend:", ""]
    lines += [_capped([_told(finding) for finding in left], at, wanted), ""]
    if dirty:
        lines += [f"{dirty} files in your work dir are not committed; only what is committed counts.", ""]
    lines += [f"Mend them by the same rules, run `{command(at, wanted)}`, and commit."]
    return agent.harmless("\n".join(lines)).strip()


def to_json(synced: Synced) -> dict[str, Any]:
    def rows(findings: Sequence[Finding]) -> list[dict[str, Any]]:
        return [{key: None if value == "" else value for key, value in one._asdict().items()} for one in findings]

    return {
        "agent": str(synced.one.status.address) if synced.one else None,
        "tutorial": synced.place.shown,
        "tests": list(synced.tests),
        "ok": synced.ok,
        "rounds": synced.rounds,
        "before": rows(synced.before),
        "findings": rows(synced.findings),
        "branch": synced.one.agent.branch if synced.one else None,
    }
