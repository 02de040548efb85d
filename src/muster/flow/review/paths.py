"""Classify the paths that a branch changed (implementation, other, protected), and decide which changes are kept out.

Only paths and content in git count, whatever the agent said. Nothing is checked out, and no filter or hook runs. weakening.py decides
whether a test was weakened.
"""

from __future__ import annotations

import configparser
import io
import os
import tokenize
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ...errors import MusterError, Refused, UsageError
from ..run import git
from ..run.results import shown
from . import weakening
from .weakening import Finding

if TYPE_CHECKING:
    from subprocess import CompletedProcess

    from ... import Host
    from ..suite.baseline import Baseline

#: Bytes. Larger files are not read, nor is any file after this total.
FILE_MOST = 4 << 20
TOTAL_MOST = 64 << 20
OTHER = (
    *("**/tests/**", "**/test/**", "test_*.py", "*_test.py", "conftest.py", "docs/**", "doc/**", "examples/**"),
    *("*.md", "*.rst", "README*", "LICENSE*", "CHANGELOG*", "CHANGES*", "changelog.d/**"),
)
PROTECTED = (
    # the specification of the tests
    *("tutorial.sh", "*.tutorial.sh"),
    # what runs the tests, and which of them: one line can turn all of them off, and no fix of a test needs to change it
    *("pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", "tox.ini", "tox.toml", "noxfile.py", "/Makefile"),
    *("/GNUmakefile", ".github/**", ".gitlab-ci.yml", ".gitlab/**", ".ci/**", ".circleci/**", ".buildkite/**"),
    *(".travis.yml", "azure-pipelines.yml", "Jenkinsfile", "bitbucket-pipelines.yml", ".pre-commit-config.yaml"),
    # what Python or pytest runs before any test
    *("sitecustomize.py", "usercustomize.py", "*.pth", "**/*.egg-info/**", "**/*.dist-info/**"),
    *("/pytest.py", "/pytest/**", "/_pytest/**", "/pluggy.py", "/pluggy/**", "/unittest.py", "/unittest/**"),
    # configuration of muster, of later agents and of git
    *(".muster/**", "AGENTS.md", "CLAUDE.md", ".claude/**", ".codex/**", ".opencode/**", ".mcp.json"),
    *(".gitmodules", ".gitattributes"),
)
#: Files that tools leave behind.
CACHES = (
    *("**/__pycache__/**", "*.pyc", "*.pyo", "**/.pytest_cache/**", "**/.mypy_cache/**", "**/.ruff_cache/**"),
    *("**/.hypothesis/**", ".coverage", ".coverage.*", ".DS_Store", "Thumbs.db", "*.swp", "*~"),
)
#: Kept out if they are new. A project that has such files in its repository may change them.
LEFTOVERS = (
    *("**/node_modules/**", "**/.venv/**", "**/venv/**", "**/.tox/**", "**/.nox/**", "**/htmlcov/**", "**/.eggs/**"),
    *("core", "core.[0-9]*", "vgcore.*", "*.core", "nohup.out", "*.orig", "*.rej"),
)
#: Files with a user's own settings and secrets, and examples of such files, which are harmless.
SECRETS = (".env", ".env.*", ".netrc", ".pypirc", ".npmrc", "id_rsa", "id_ed25519")
EXAMPLES = ("*.example", "*.sample", "*.template", "*.dist")
#: Bytes of a new binary file. A larger one does not belong to the fix of a test.
BINARY_MOST = 1 << 20

Kind = Literal["implementation", "other", "protected"]


class Rules(NamedTuple):
    """Globs. One without a slash matches a name in any folder; `**` matches any number of folders; `x/` everything below x."""

    other: tuple[str, ...] = OTHER
    """Paths that are not implementation."""
    protected: tuple[str, ...] = PROTECTED
    """Matched regardless of case, because some file systems ignore it."""
    allowed: tuple[str, ...] = ()
    """May be changed although protected; tests in it may be weakened."""
    implementation: tuple[str, ...] = ()
    """Paths that are implementation although `other` matches them."""
    tests: frozenset[str] = frozenset()
    """Files with tests, whatever their names."""

    @classmethod
    def from_config(cls, section: dict[str, Any]) -> Rules:
        """Return the defaults with the globs of an `[improve]` table added. Raises UsageError for a key that is not a list of globs."""
        given: dict[str, tuple[str, ...]] = {}
        for key in ("other", "protected", "allow", "implementation"):
            globs = section.get(key, [])
            if not isinstance(globs, list) or not all(isinstance(glob, str) and glob.strip("/") for glob in globs):
                raise UsageError(f"[improve] {key} is not a list of globs", f'write {key} = ["docs/**", "*.md"]')
            given[key] = tuple(globs)
        return cls(OTHER + given["other"], PROTECTED + given["protected"], given["allow"], given["implementation"])

    def knowing(self, before: Baseline) -> Rules:
        """Return the rules with the files in which pytest found test functions, whatever their names (`python_files`).

        Items without lines of their own (doctests, linters that run as tests) do not make their file a test file.
        """
        found = [one.function for one in before.tests]
        return self._replace(tests=frozenset(one.file for one in found if one.end > one.line))


class Change(NamedTuple):
    status: str
    """A, M, D or T (type changed)."""
    path: str
    """Bytes that are not UTF-8 are surrogates."""
    old_mode: str
    new_mode: str
    old_blob: str
    new_blob: str
    binary: bool = False
    """Or too large to be read."""

    @property
    def symlink(self) -> bool:
        return self.new_mode == "120000"

    @property
    def submodule(self) -> bool:
        return "160000" in (self.old_mode, self.new_mode)

    @property
    def mode_only(self) -> bool:
        return self.old_blob == self.new_blob and self.old_mode[:3] == self.new_mode[:3]


class Judgement(NamedTuple):
    implementation: list[Change]
    other: list[Change]
    kept_out: list[Finding]
    """Why changes are in neither list. A finding that is `allowed` is only reported and keeps nothing out."""


def kind(path: str, rules: Rules) -> Kind:
    if _matches(path.lower(), (glob.lower() for glob in rules.protected)) and not _matches(path, rules.allowed):
        return "protected"
    other = path in rules.tests or _matches(path, rules.other)
    return "other" if other and not _matches(path, rules.implementation) else "implementation"


def _matches(path: str, globs: Iterable[str]) -> bool:
    return any(_match(path.split("/"), _parts(glob)) for glob in globs)


def _parts(glob: str) -> list[str]:
    name = glob.strip("/")
    parts = name.split("/") + ["**"] * glob.endswith("/")
    return parts if "/" in glob else ["**", *parts]


def _match(path: Sequence[str], glob: Sequence[str]) -> bool:
    if not glob or not path:
        return not glob and not path
    if glob[0] == "**":
        return len(glob) == 1 or any(_match(path[start:], glob[1:]) for start in range(len(path)))
    return fnmatchcase(path[0], glob[0]) and _match(path[1:], glob[1:])


# What a branch changed


def changes(host: Host, repo: str, base: str, tip: str) -> list[Change]:
    """From one commit to the other, by path; a rename is a file that went and one that came."""
    return _changes(host, repo, base, tip)[0]


def barred(host: Host, repo: str, base: str, tip: str, rules: Rules) -> tuple[list[Change], list[Finding]]:
    """Return what a branch changed and which of its paths are kept out, whatever is in tests that it changed."""
    found, blobs = _changes(host, repo, base, tip)
    return found, [finding for change in found for finding in _barred(change, rules, blobs)]


def judge(host: Host, repo: str, base: str, tip: str, rules: Rules) -> Judgement:
    """Sort the changes of a branch, and keep out those of protected paths, links out of the repository, and weakened tests.

    All test files are compared together, so a test may move. If the file that it moved to is kept out, so is the file that it left.
    """
    found, blobs = _changes(host, repo, base, tip)
    findings = [finding for change in found for finding in _barred(change, rules, blobs)]
    findings += [one for change in found for one in _shadowing(host, repo, base, change, rules)]
    sources = {
        one.path: (_source(one.old_mode, blobs.get(one.old_blob)), _source(one.new_mode, blobs.get(one.new_blob)))
        for one in found
        if _is_test(one.path, rules) and not one.mode_only
    }
    compared = weakening.compare(sources)
    findings += [one._replace(allowed=_matches(one.path, rules.allowed)) for one in compared.findings]
    out = {finding.path for finding in findings if not finding.allowed}
    while left := [pair for pair in compared.moved if pair[1] in out and pair[0] not in out]:
        here, there = left[0]
        findings.append(Finding(here, 0, "moved", f"its tests moved to {shown(there)}, which is kept out"))
        out.add(here)
    rest = [change for change in found if change.path not in out]
    kinds = {change.path: kind(change.path, rules) for change in rest}
    return Judgement(
        [change for change in rest if kinds[change.path] == "implementation"],
        [change for change in rest if kinds[change.path] == "other"],
        sorted(findings),
    )


def tree(host: Host, repo: str, base: str, tip: str, paths: Iterable[str]) -> str:
    """Return the tree of `base` with only these paths as in `tip`. No index, ref or work tree of the user is touched.

    Raises Refused if there is no such tree, because a path that stays is a file and one of these is below it.
    """
    wanted = set(paths)
    found = [change for change in _listed(host, repo, base, tip) if change.path in wanted]
    # Deletions first: a file may make room for a folder.
    rows = [
        f"{'0' if one.status == 'D' else one.new_mode} {one.new_blob}\t{one.path}\0"
        for one in sorted(found, key=lambda one: one.status != "D")
    ]
    folder = os.fsdecode(_checked(host.run(["mktemp", "-d"]), "no temporary folder")).rstrip("\n")
    index = {"GIT_INDEX_FILE": f"{folder}/index"}
    try:
        _git(host, repo, ["read-tree", "--end-of-options", base], index)
        text = "".join(rows).encode("utf-8", "surrogateescape")
        _git(host, repo, ["update-index", "-z", "--index-info"], index, input=text)
        made = _git(host, repo, ["write-tree"], index).decode().strip()
    finally:
        host.run(["rm", "-rf", "--", folder])
    if any(change.path not in wanted for change in _listed(host, repo, base, made)):
        raise Refused(
            "without what is kept out there is no valid tree: a path that stays is a file, and another path is below it"
        )
    return made


def _barred(change: Change, rules: Rules, blobs: dict[str, bytes | None]) -> list[Finding]:
    """Return why a change is kept out, except for weakened tests."""
    path, name = change.path, change.path.rpartition("/")[2]
    parts = path.lower().split("/")
    allowed = _matches(path, rules.allowed)
    found = []
    if not all(parts) or {".", "..", ".git"} & set(parts):
        return [Finding(path, 0, "path", "it is no valid path in a repository")]
    if kind(path, rules._replace(allowed=())) == "protected":
        found.append(("protected", "it is protected"))
    if words := _junk(change, blobs):
        found.append(("junk", words))
    if change.submodule:
        found.append(("submodule", "it is a submodule"))
    target = blobs.get(change.new_blob) if change.symlink else b"."
    if target is None or _leads_out(path, os.fsdecode(target)):
        found.append(("symlink", f"it links out of the repository, to {shown(os.fsdecode(target or b'?'))}"))
    if name in ("pyproject.toml", "setup.cfg"):
        old, new = (_pytest_settings(name, blobs.get(blob, b"")) for blob in (change.old_blob, change.new_blob))
        if old != new:
            found.append(("protected", "its pytest settings changed, or cannot be read"))
    return [Finding(path, 0, rule, words, allowed) for rule, words in found]


def _junk(change: Change, blobs: dict[str, bytes | None]) -> str:
    """Return why a file is kept out of every change, or an empty string if it may be part of one."""
    new, path = change.status == "A", change.path
    if _matches(path, CACHES):
        return "a tool left it behind"
    if not new:
        return ""
    if _matches(path, SECRETS) and not _matches(path, EXAMPLES):
        return "it holds local settings and secrets"
    data = blobs.get(change.new_blob, b"")
    if _matches(path, LEFTOVERS) or (data and data[:4] == b"\x7fELF" and data[16:17] == b"\4"):
        return "a tool or a crash left it behind"
    if data is None:
        return "it is new, and too large to be read"
    if change.binary and len(data) > BINARY_MOST:
        return f"it is a new binary file of more than {BINARY_MOST >> 20} MB"
    return ""


def _shadowing(host: Host, repo: str, base: str, change: Change, rules: Rules) -> list[Finding]:
    """Return a finding for a new file next to tests that they would import instead of the program: pytest puts their folder first."""
    folder, _, name = change.path.rpartition("/")
    stem = name.removesuffix(".py")
    if (
        change.status != "A"
        or stem == name
        or not stem.isidentifier()
        or not folder
        or not _is_test(change.path, rules)
    ):
        return []
    there = [f"{start}{stem}{end}" for start in ("", "src/", "lib/") for end in (".py", "/__init__.py")]
    known = _git(host, repo, ["ls-tree", "--name-only", "-z", "--end-of-options", base, *there])
    if not any(kind(os.fsdecode(one), rules) == "implementation" for one in known.split(b"\0") if one):
        return []
    words = f"tests would import it as {shown(stem)}, instead of the program"
    return [Finding(change.path, 0, "shadowing", words, _matches(change.path, rules.allowed))]


def _leads_out(path: str, target: str) -> bool:
    """Return whether a symlink may end outside the repository or in git's folder. A `..` that is not in front may lead anywhere."""
    parts = [part for part in target.split("/") if part not in ("", ".")]
    up = next((number for number, part in enumerate(parts) if part != ".."), len(parts))
    odd = ".." in parts[up:] or ".git" in (part.lower() for part in parts)
    return target.startswith("/") or odd or up > path.count("/")


def _pytest_settings(name: str, data: bytes | None) -> Any:
    """Return what pytest reads in a file; its whole content if it cannot be parsed."""
    try:
        text = (data or b"").decode("utf-8")
        if data is None:
            return "too large to be read"
        if name == "setup.cfg":
            parser = configparser.RawConfigParser()
            parser.read_string(text)
            found = {part: dict(parser[part]) for part in ("tool:pytest", "options.entry_points") if part in parser}
            return found.get("tool:pytest"), found.get("options.entry_points", {}).get("pytest11")
        table = tomllib.loads(text)
        plugins = table.get("project", {}).get("entry-points", {}).get("pytest11")
        return table.get("tool", {}).get("pytest"), plugins
    except (ValueError, RecursionError, AttributeError, configparser.Error):
        return data


def _is_test(path: str, rules: Rules) -> bool:
    name = path.rpartition("/")[2]
    own = path in rules.tests or bool(weakening.TEST_FILE.fullmatch(path)) or name == "conftest.py"
    return name.endswith(".py") and (own or _matches(path, rules.other))


def _source(mode: str, data: bytes | None) -> str | None:
    """Return the text of a Python file as Python would decode it, or NUL, which is never valid, if it could not. None if there is no file."""
    if not mode.startswith("100"):
        return None
    try:
        raw = b"\0" if data is None else data
        return raw.decode(tokenize.detect_encoding(io.BytesIO(raw).readline)[0])
    except (SyntaxError, ValueError, LookupError):
        return "\0"


# Reading from git


def _changes(host: Host, repo: str, base: str, tip: str) -> tuple[list[Change], dict[str, bytes | None]]:
    """Return the changes, and the content of all their blobs (None for one that is too large)."""
    found = _listed(host, repo, base, tip)
    # Paths that are kept out by name come last, so that they do not use up TOTAL_MOST.
    order = sorted(found, key=lambda one: _matches(one.path, (*CACHES, *LEFTOVERS)))
    sides = [side for one in order for side in ((one.old_mode, one.old_blob), (one.new_mode, one.new_blob))]
    blobs = _read(host, repo, [blob for mode, blob in sides if mode not in ("000000", "160000")])

    def binary(blob: str) -> bool:
        data = blobs.get(blob, b"")
        return data is None or b"\0" in data[:8000]

    return [one._replace(binary=binary(one.old_blob) or binary(one.new_blob)) for one in found], blobs


def _listed(host: Host, repo: str, base: str, tip: str) -> list[Change]:
    flags = ["-r", "-z", "--raw", "--no-renames", "--no-abbrev", "--ignore-submodules=none"]
    output = _git(host, repo, ["diff-tree", *flags, "--end-of-options", base, tip])
    words = output.decode("utf-8", "surrogateescape").split("\0")
    found = []
    for head, path in zip(words[::2], words[1::2], strict=False):
        old_mode, new_mode, old_blob, new_blob, status = head.removeprefix(":").split(" ")
        found.append(Change(status[0], path, old_mode, new_mode, old_blob, new_blob))
    return found


def _read(host: Host, repo: str, blobs: Iterable[str]) -> dict[str, bytes | None]:
    found: dict[str, bytes | None] = dict.fromkeys(blobs)
    sizes = _cat(host, repo, "--batch-check=%(objectsize)", found).read().decode("utf-8", "replace").splitlines()
    left, some = TOTAL_MOST, []
    for blob, size in zip(found, sizes, strict=True):
        if size.isdecimal() and int(size) <= min(FILE_MOST, left):
            left -= int(size)
            some.append(blob)
    output = _cat(host, repo, "--batch=%(objectsize)", some)
    for blob in some:
        found[blob] = output.read(int(output.readline()))
        output.read(1)
    return found


def _cat(host: Host, repo: str, how: str, blobs: Iterable[str]) -> io.BytesIO:
    return io.BytesIO(_git(host, repo, ["cat-file", how], input="".join(f"{blob}\n" for blob in blobs).encode()))


def _git(host: Host, repo: str, argv: Sequence[str], env: Mapping[str, str] | None = None, input: bytes = b"") -> bytes:
    return git.output(host, repo, *argv, env=env, input=input)


def _checked(done: CompletedProcess[bytes], what: str) -> bytes:
    if done.returncode:
        raise MusterError(f"{what}: {shown(done.stderr.decode('utf-8', 'replace').strip(), 300)}")
    return done.stdout
