"""`muster tutorial sync`: an agent writes the tests that a tutorial lacks, and muster checks what it committed.

The agent's test files are read from git and parsed; they are never checked out into the user's tree. Tests without findings are then
run on the agent's host, in a clean checkout of the agent's commit and without the user's variables.
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
from ..errors import NotFound, UsageError
from ..flow.run import git, prompts
from ..flow.suite import execute
from ..flow.suite.report import function_of
from ..tutorial import check
from ..tutorial.check import Finding
from . import agent
from .agent import FILE_MOST, PROMPTS, AgentRequest, Say, TutorialFile

if TYPE_CHECKING:
    from ..host import Found

#: Characters. A prompt is passed as an argument or a variable, which holds about 100 KB. The check names what does not fit.
PROMPT_MOST = 60_000
#: Test files of the user that are read.
FILES_MOST = 5000
NO_UNHAPPY = re.compile(r"#\s*no unhappy path:\s*\S")
_TEST_FILE = re.compile(r"test_.*\.py|.*_test\.py")


class Synced(NamedTuple):
    tutorial: TutorialFile
    tests: tuple[str, ...]
    """Files and folders, relative to the top of the repository."""
    before: list[Finding]
    findings: list[Finding]
    """The findings that are left."""
    author: Found | None = None
    """The agent; None if none was needed."""
    rounds: int = 0

    @property
    def ok(self) -> bool:
        return not self.findings


# What is to be done


def tests(named: Sequence[str], tutorial: TutorialFile, cwd: str) -> tuple[str, ...]:
    """Return the folders and files of the tests, relative to the top of the repository.

    Without a name these are the ones that `muster tutorial check` reads, or tests/e2e if there is no test yet.
    """
    if not named:
        if (found := check.default_tests(cwd)) != "." or check.files([cwd]):
            return (_below(os.path.join(cwd, found), found, tutorial),)
        return (os.path.join("tests", "e2e"),)
    for path in named:
        if not os.path.exists(os.path.join(cwd, path)):
            raise NotFound(f"there are no tests at {path}", f"mkdir {shlex.quote(path)} makes a folder for them")
    return tuple(_below(os.path.join(cwd, path), path, tutorial) for path in named)


def _below(path: str, shown: str, tutorial: TutorialFile) -> str:
    found = os.path.relpath(os.path.realpath(path), tutorial.top)
    if found.split(os.sep)[0] == "..":
        raise UsageError(
            f"{shown} is not in {tutorial.top}, where the tutorial is", "name tests in the same repository"
        )
    return found


def command(tutorial: TutorialFile, wanted: Sequence[str]) -> str:
    """Return the command with which the agent checks its own work, at the top of the repository."""
    return shlex.join(["muster", "tutorial", "check", "--tutorial", tutorial.path, *wanted])


def check_tests(tutorial: TutorialFile, wanted: Sequence[str], top: str) -> check.Report:
    """Check the tests below `top`; all names in the report are relative to it."""
    present = [path for one in wanted if os.path.exists(path := os.path.join(top, one))]
    report = check.check(os.path.join(top, tutorial.path), present)
    lead = top.rstrip(os.sep) + os.sep

    def named(text: str) -> str:
        return text.replace(lead, "")

    findings = [
        one._replace(file=named(one.file), test=named(one.test), message=named(one.message), diff=named(one.diff))
        for one in report.findings
    ]
    citing = {block: [named(test) for test in some] for block, some in report.tests.items()}
    return report._replace(findings=findings, tests=citing)


def for_the_user(tutorial: TutorialFile, findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings that only a change of the tutorial can fix, which no agent may make."""
    return [one for one in findings if one.file == tutorial.path and one.kind == "duplicate"]


def first_message(tutorial: TutorialFile, wanted: Sequence[str], report: check.Report) -> str:
    """Return the agent's first message: stale citations first, then missing blocks."""
    by_id = {block.id: block for block in report.blocks}
    missing = [by_id[one.block] for one in report.findings if one.kind == "missing"]
    others = [
        one for one in report.findings if one.kind != "missing" and one not in for_the_user(tutorial, report.findings)
    ]
    others.sort(key=lambda one: one.kind != "stale")
    return prompts.prompt(
        "sync",
        PROMPTS,
        tutorial=tutorial.path,
        tests=", ".join(wanted),
        check=command(tutorial, wanted),
        stale=_capped([_described(one) for one in others], tutorial, wanted),
        missing=_capped(
            [f"{tutorial.path}, line {block.line}, {block.id}:\n\n{_indented(block.text)}" for block in missing],
            tutorial,
            wanted,
        ),
    )


def _capped(parts: Sequence[str], tutorial: TutorialFile, wanted: Sequence[str]) -> str:
    """Return as many parts as fit into a prompt."""
    size, kept = 0, []
    for part in parts:
        size += len(part)
        if size > PROMPT_MOST // 2:
            break
        kept.append(part)
    left = len(parts) - len(kept)
    more = (
        [f"And {left} more: `{command(tutorial, wanted)}` names them; the text of each is in {tutorial.path}."]
        if left
        else []
    )
    return "\n\n".join([*kept, *more]) or "There are none."


def _described(one: Finding) -> str:
    head = f"{one.file}:{one.line}: {one.kind}: {one.message}"
    return f"{head}\n\n{_indented(one.diff)}" if one.diff else head


def _indented(text: str) -> str:
    return "\n".join(f"    {line}".rstrip() for line in text.split("\n"))


# Judging


class _Blob(NamedTuple):
    mode: str
    sha: str
    size: int


class Checked(NamedTuple):
    findings: list[Finding]
    commit: str
    changed: tuple[str, ...]
    """The test files to run: those the agent changed, or all of its tests if it changed another file beside them."""
    tests: dict[str, list[str]]
    """The tests that cite each block that had no test before, by the text of the block."""


def check_commit(
    fleet: Fleet, author: Found, tutorial: TutorialFile, wanted: Sequence[str], missing: set[str], *, force: bool
) -> Checked:
    """Return what is wrong with the agent's commits, as they would be in the user's tree.

    The commits are fetched. The files that the agent changed are written to a temporary folder, next to copies of the user's other tests
    and the user's tutorial, and parsed. `missing` has the texts of the blocks that had no test at the beginning.
    """
    tip = str(fleet.pull(author, force=force)["tip"])
    base = author.agent.base
    theirs, ours = _tree(fleet, tutorial, tip), _tree(fleet, tutorial, base)
    with tempfile.TemporaryDirectory(prefix="muster-sync-") as folder:
        with open(tutorial.file, "rb") as file:
            text = file.read()
        _put(folder, tutorial.path, text)
        findings = _tutorial_edits(fleet, tutorial, theirs.get(tutorial.path), ours.get(tutorial.path), text)
        for path in _files(tutorial, wanted):
            if path not in ours or path in theirs:
                with open(os.path.join(tutorial.top, path), "rb") as file:
                    _put(folder, path, file.read())
        for path, blob in theirs.items():
            if _is_test(path, wanted) and blob != ours.get(path):
                _put(folder, path, _blob(fleet, tutorial, blob))
        top = os.path.realpath(folder)
        report = check_tests(tutorial, wanted, top)
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
    return Checked(findings, tip, tuple(run), citing)


def _tutorial_edits(
    fleet: Fleet, tutorial: TutorialFile, theirs: _Blob | None, ours: _Blob | None, text: bytes
) -> list[Finding]:
    """Return a finding if the agent changed or removed the tutorial. The user's own current text is no change."""
    if theirs is not None and ours is not None and theirs.sha == ours.sha:
        return []
    if theirs is None and ours is None:
        return []  # it is not committed in the user's repository either
    if theirs is not None and theirs.size <= FILE_MOST and _blob(fleet, tutorial, theirs) == text:
        return []
    what = "removed" if theirs is None else "changed"
    message = f"the tutorial was {what}, and you may not change it: restore it as it was when you began"
    return [Finding("edited", tutorial.path, 1, message)]


def _tree(fleet: Fleet, tutorial: TutorialFile, commit: str) -> dict[str, _Blob]:
    """Return the regular files of a commit by path."""
    listing = git.output(fleet.local, tutorial.top, "ls-tree", "-r", "-l", "-z", "--full-tree", commit)
    found = {}
    for row in listing.decode("utf-8", "surrogateescape").split("\0"):
        head, _, path = row.partition("\t")
        fields = head.split()
        if len(fields) == 4 and fields[0] in ("100644", "100755") and fields[3].isdigit() and _safe(path):
            found[path] = _Blob(fields[0], fields[2], int(fields[3]))
    return found


def _safe(path: str) -> bool:
    return not path.startswith("/") and not {"..", ".", "", ".git"} & set(path.split("/"))


def _blob(fleet: Fleet, tutorial: TutorialFile, blob: _Blob) -> bytes:
    """Return the content of a blob; no filter runs."""
    if blob.size > FILE_MOST:
        return b"\0"  # not text, so the check reports that it cannot be read
    return git.run(fleet.local, tutorial.top, "cat-file", "blob", blob.sha).stdout


def _inside(path: str, wanted: Sequence[str]) -> bool:
    return any(one in (".", path) or path.startswith(f"{one}/") for one in wanted)


def _is_test(path: str, wanted: Sequence[str]) -> bool:
    return path in wanted or (_inside(path, wanted) and _TEST_FILE.fullmatch(path.rpartition("/")[2]) is not None)


def _files(tutorial: TutorialFile, wanted: Sequence[str]) -> list[str]:
    """Return the user's test files, relative to the top."""
    present = [path for one in wanted if os.path.exists(path := os.path.join(tutorial.top, one))]
    found = [os.path.relpath(os.path.join(tutorial.top, path), tutorial.top) for path in check.files(present)]
    return [path for path in found[:FILES_MOST] if os.path.isfile(os.path.join(tutorial.top, path))]


def _put(folder: str, path: str, data: bytes) -> None:
    file = os.path.join(folder, path)
    try:
        os.makedirs(os.path.dirname(file), exist_ok=True)
        with open(file, "wb") as stream:
            stream.write(data)
    except (NotADirectoryError, FileExistsError, IsADirectoryError):
        pass  # no valid git tree has such paths; such a file cites nothing


def _unhappy(top: str, test: str) -> bool:
    """Return whether a test (`file::Class::name`) expects a failure, or says why there is no unhappy path."""
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
    """Return the lines of a function with the comments after its last statement, which the syntax tree does not have."""
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


def pytest_command(local: bool) -> tuple[str, ...]:
    """Return the default command for pytest: this interpreter, if it has pytest and the agent works on this machine."""
    from importlib.util import find_spec

    return (sys.executable if local and find_spec("pytest") else "python3", "-m", "pytest")


def run(
    fleet: Fleet, author: Found, tutorial: TutorialFile, checked: Checked, pytest: Sequence[str], timeout: float
) -> list[Finding]:
    """Run the tests that the agent wrote. Return a finding for each that fails, and for each block of which no test passed.

    Tests that failed before the agent began do not count.
    """
    if not checked.changed:
        return []
    address = author.status.address
    command = tuple(pytest) or pytest_command(not address.place)
    suite = execute.Suite(address.name, address.place, tutorial.top, command, timeout=timeout)
    report = execute.run(fleet, suite, checked.commit, checked.changed)
    shown = shlex.join((*command, *checked.changed))
    if not report.cases and not report.errors:
        last = report.screen.strip().split("\n")[-15:]
        return [
            Finding(
                "not-run",
                checked.changed[0],
                1,
                f"no test could be run by: {shown} (--pytest COMMAND names another)",
                diff="\n".join(last),
            )
        ]
    bad = [case for case in report.cases.values() if case.outcome not in PASSED and case.outcome not in IDLE]
    known = [case.id for case in bad if case.id.partition("::")[0] in _tree(fleet, tutorial, author.agent.base)]
    if known:
        before = execute.run(fleet, suite, author.agent.base, known)
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
    for text, tests in checked.tests.items():
        ran = [case for case in report.cases.values() if function_of(case.id) in tests]
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
    asked: Callable[[], AgentRequest],
    tutorial: TutorialFile,
    wanted: Sequence[str],
    rounds: int,
    say: Say,
    pytest: Sequence[str] = (),
) -> Synced:
    """Check the tests, and have an agent fix the findings in at most `rounds` turns. `asked` is called only if an agent is needed."""
    report = check_tests(tutorial, wanted, tutorial.top)
    before = report.findings
    own = for_the_user(tutorial, before)
    tests = tuple(wanted)
    if len(before) == len(own):
        return Synced(tutorial, tests, before, own)
    request = asked()
    deadline = time.monotonic() + request.timeout
    missing = {
        block.text for block in report.blocks for one in before if one.kind == "missing" and one.block == block.id
    }
    author = agent.create(fleet, request, tutorial, first_message(tutorial, wanted, report))
    address = author.status.address
    count = len(before) - len(own)
    say(f"{address} ({request.type}) is working on {count} finding{'' if count == 1 else 's'}")
    again = f"muster diff {address}; muster pull {address} --merge brings what it has"
    for number in range(1, rounds + 1):
        author = agent.wait_for_turn(fleet, author, deadline, say, again)
        checked = check_commit(fleet, author, tutorial, wanted, missing, force=number > 1)
        left = [finding for finding in checked.findings if finding not in own]
        if not left and checked.changed:
            say(f"round {number}: running the tests in {', '.join(checked.changed)}")
            left = run(fleet, author, tutorial, checked, pytest, max(60.0, deadline - time.monotonic()))
        if not left:
            say(f"round {number}: every block is cited, and the tests that {address} committed pass")
            return Synced(tutorial, tests, before, own, author, number)
        say(f"round {number}: {len(left)} finding{'' if len(left) == 1 else 's'} left")
        if number == rounds or all(finding.kind == "not-run" and not finding.test for finding in left):
            break  # the agent cannot fix an environment in which no test runs
        if author.status.state == "done":
            say(f"{address} has exited and takes no more messages")
            break
        author = author._replace(status=fleet.look(author))
        fleet.message(author, _message(fleet, author, tutorial, wanted, left))
    return Synced(tutorial, tests, before, [*left, *own], author, number)


def _message(
    fleet: Fleet, author: Found, tutorial: TutorialFile, wanted: Sequence[str], left: Sequence[Finding]
) -> str:
    dirty = next((count[1] for count in fleet.git_counts([author.status]).values()), 0)
    lines = [f"muster checked your commits. Findings left: {len(left)}", ""]
    lines += [_capped([_described(finding) for finding in left], tutorial, wanted), ""]
    if dirty:
        lines += [f"{dirty} files in your work dir are not committed; only commits count.", ""]
    lines += [f"Fix them by the same rules, run `{command(tutorial, wanted)}`, and commit."]
    return agent.harmless("\n".join(lines)).strip()


def to_json(synced: Synced) -> dict[str, Any]:
    def rows(findings: Sequence[Finding]) -> list[dict[str, Any]]:
        return [{key: None if value == "" else value for key, value in one._asdict().items()} for one in findings]

    return {
        "agent": str(synced.author.status.address) if synced.author else None,
        "tutorial": synced.tutorial.shown,
        "tests": list(synced.tests),
        "ok": synced.ok,
        "rounds": synced.rounds,
        "before": rows(synced.before),
        "findings": rows(synced.findings),
        "branch": synced.author.agent.branch if synced.author else None,
    }
