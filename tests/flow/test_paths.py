"""What a branch changed is sorted by its paths, and what may not change is kept out, with real git."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from muster.errors import MusterError, UsageError
from muster.flow.improving import verify
from muster.flow.reducing import integrator
from muster.flow.reducing.conflicts import Conflict
from muster.flow.reducing.gate import Pytest
from muster.flow.reducing.units import Unit
from muster.flow.review import paths as classify
from muster.flow.review.paths import Change, Judgement, Rules, changes, judge, kind, tree
from muster.flow.run.directory import Attempt
from muster.flow.run.records import AttemptAgent, Outcome, RunInfo
from muster.flow.suite.baseline import Baseline, FunctionResult
from muster.flow.suite.collect import Function
from muster.providers.local import LocalHost

HOST = LocalHost("/nonexistent")
TEST = "from a import f\n\n\ndef test_f():\n    assert f(1) == 2\n    assert f(2) == 3\n"
WEAK = TEST.replace("    assert f(2) == 3\n", "")
ODD = [
    "a b.py",
    "new\nline.py",
    " lead",
    "tab\t.md",
    "ümlaut.rst",
    'quo"te',
    "back\\slash",
    b"\xff\xfe.py".decode("utf-8", "surrogateescape"),
]


class Repo:
    def __init__(self, top: Path) -> None:
        self.top = top
        top.mkdir()
        self.git("init", "-q", "-b", "main")
        self.git("config", "user.name", "Ann")
        self.git("config", "user.email", "ann@example.com")
        self.write("src/app.py", "x = 1\n")
        self.base = self.commit()

    def git(self, *argv: str, input: bytes | None = None) -> str:
        done = subprocess.run(["git", *argv], cwd=self.top, capture_output=True, input=input, check=False)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode("utf-8", "surrogateescape").rstrip("\n")

    def write(self, name: str, content: str | bytes) -> Path:
        path = self.top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def commit(self) -> str:
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", "change")
        return self.git("rev-parse", "HEAD")

    def start(self) -> None:
        """The base of what follows."""
        self.base = self.commit()

    def changes(self) -> dict[str, Change]:
        return {change.path: change for change in changes(HOST, str(self.top), self.base, self.commit())}

    def judge(self, rules: Rules | None = None) -> Judgement:
        return judge(HOST, str(self.top), self.base, self.commit(), rules or Rules())

    def seen(self) -> tuple[str, ...]:
        index = (self.top / ".git" / "index").read_bytes().hex()
        files = sorted(str(path) for path in (self.top / ".git").rglob("*") if "objects" not in path.parts)
        return self.git("status", "--porcelain"), self.git("for-each-ref"), self.git("rev-parse", "HEAD"), index, *files


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repo:
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "home"))
    return Repo(tmp_path / "repo")


def paths(some: list[Change]) -> list[str]:
    return [change.path for change in some]


def kept(judgement: Judgement) -> set[tuple[str, str]]:
    return {(finding.path, finding.rule) for finding in judgement.kept_out if not finding.allowed}


# Paths


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("src/app.py", "implementation"),
        ("setup.py", "implementation"),
        ("pyproject.toml", "implementation"),
        ("attest_x.py", "implementation"),
        ("src/contests/app.py", "implementation"),
        ("src/docs/app.py", "implementation"),
        ("lib/Makefile", "implementation"),
        ("src/.github/app.py", "implementation"),
        ("tests/x/data.bin", "other"),
        ("src/pkg/tests/test_a.py", "other"),
        ("src/test_a.py", "other"),
        ("src/a_test.py", "other"),
        ("conftest.py", "other"),
        ("docs/a/b.png", "other"),
        ("src/README.md", "other"),
        ("CHANGELOG", "other"),
        ("examples/a.py", "other"),
        ("tutorial.sh", "protected"),
        ("docs/tutorial.sh", "protected"),
        ("docs/more.tutorial.sh", "protected"),
        (".github/workflows/ci.yml", "protected"),
        (".GitHub/workflows/ci.yml", "protected"),
        ("Makefile", "protected"),
        ("makefile", "protected"),
        ("pytest.ini", "protected"),
        ("tests/pytest.ini", "protected"),
        ("tox.ini", "protected"),
        ("sub/AGENTS.md", "protected"),
        (".muster/config.toml", "protected"),
        ("tests/sitecustomize.py", "protected"),
    ],
)
def test_a_path_is_of_one_kind(path: str, expected: str) -> None:
    assert kind(path, Rules()) == expected


@pytest.mark.parametrize(
    ("glob", "matched", "not_matched"),
    [
        ("*.md", ["a.md", "x/y/a.md", ".md"], ["a.mdx", "a.md/b"]),
        ("docs/*.md", ["docs/a.md"], ["docs/x/a.md", "x/docs/a.md"]),
        ("docs/**", ["docs/a", "docs/x/y"], ["docs", "x/docs/a", "docs2/a"]),
        ("docs/", ["docs/a", "docs/x/y"], ["docs", "x/docs/a"]),
        ("/Makefile", ["Makefile"], ["x/Makefile"]),
        ("**/gen/*.py", ["gen/a.py", "x/y/gen/a.py"], ["gen/x/a.py", "degen/a.py"]),
        ("a/**/b", ["a/b", "a/x/b", "a/x/y/b"], ["a/xb", "b", "a/b/c"]),
        ("a?[bc]", ["axb", "z/a\nc"], ["a/b", "axd"]),
    ],
)
def test_a_glob_knows_folders(glob: str, matched: list[str], not_matched: list[str]) -> None:
    rules = Rules(other=(glob,), protected=())
    assert [path for path in matched if kind(path, rules) != "other"] == []
    assert [path for path in not_matched if kind(path, rules) != "implementation"] == []


def test_names_that_are_hard_to_write_have_a_kind() -> None:
    rules = Rules()
    assert {kind(f"tests/{name}", rules) for name in ODD} == {"other"}
    assert {kind(f".github/{name}", rules) for name in ODD} == {"protected"}


def test_a_project_adds_to_the_rules_and_names_what_is_wrong() -> None:
    config = {"other": ["web/**"], "protected": ["api.json"], "allow": ["tox.ini"], "implementation": ["web/app/**"]}
    rules = Rules.from_config({**config, "rounds": 3})
    expected = {"web/x": "other", "web/app/x": "implementation", "a/api.json": "protected", "tox.ini": "implementation"}
    assert {path: kind(path, rules) for path in expected} == expected
    assert kind("pytest.ini", rules) == "protected"
    assert Rules.from_config({}) == Rules()
    for key in config:
        for wrong in ("docs/**", ["a", 1], [""], ["/"], {"a": 1}, None):
            with pytest.raises(UsageError, match=rf"\[improve\] {key} "):
                Rules.from_config({key: wrong})


# Tests by any name


CHECKS = "from calc import add\n\n\ndef test_add():\n    assert add(1, 2) == 3\n    assert add(2, 2) == 4\n"


def standing(file: str, line: int, end: int) -> FunctionResult:
    return FunctionResult(Function(f"{file}::test_add", file, line, end, "", (f"{file}::test_add",)), "passing", {})


def test_a_file_in_which_pytest_found_tests_is_one_whatever_it_is_called() -> None:
    found = (standing("qa/check_calc.py", 4, 6), standing("src/calc.py", 1, 1))
    rules = Rules().knowing(Baseline("c", found, (), 1))
    assert kind("qa/check_calc.py", Rules()) == "implementation"
    assert kind("qa/check_calc.py", rules) == "other"
    assert kind("src/calc.py", rules) == "implementation"  # a doctest is about it
    assert kind("qa/check_calc.py", rules._replace(implementation=("qa/",))) == "implementation"


def test_tests_by_any_name_may_not_get_weaker(repo: Repo) -> None:
    repo.write("qa/check_calc.py", CHECKS)
    repo.start()
    repo.write("qa/check_calc.py", CHECKS.replace("    assert add(2, 2) == 4\n", ""))
    rules = Rules(tests=frozenset({"qa/check_calc.py"}))
    assert kept(repo.judge(rules)) == {("qa/check_calc.py", "assertion-removed")}
    assert kept(repo.judge(rules._replace(implementation=("qa/",)))) == {("qa/check_calc.py", "assertion-removed")}
    repo.git("rm", "-q", "qa/check_calc.py")
    assert kept(repo.judge(rules)) == {("qa/check_calc.py", "test-removed")}


def test_the_work_of_agents_and_integrators_may_not_weaken_tests_that_pytest_found(repo: Repo) -> None:
    repo.write("qa/check_calc.py", CHECKS)
    repo.start()
    repo.write("qa/check_calc.py", CHECKS.replace("    assert add(2, 2) == 4\n", ""))
    tip = repo.commit()
    work: Any = SimpleNamespace(
        gate=Pytest(),
        fleet=SimpleNamespace(local=HOST),
        run=SimpleNamespace(info=RunInfo(repo=str(repo.top), base=repo.base)),
        wish=SimpleNamespace(rules=Rules()),
        before=Baseline(repo.base, (standing("qa/check_calc.py", 4, 6),), (), 1),
    )
    conflict = Conflict(Unit("u", repo.base, tip), repo.base, ("qa/check_calc.py",), ())
    assert "qa/check_calc.py" in integrator.doubt(work, conflict, tip)
    attempt = Attempt("t", 1, "", AttemptAgent(name="a"), Outcome(outcome="ok", tip=tip, final=True))
    task: Any = SimpleNamespace(id="t", base=repo.base)
    record = verify._verify(work.fleet, work.wish, work.run, work.before, None, task, attempt)
    assert record.result == "refused"
    assert [finding.rule for finding in record.kept_out] == ["assertion-removed"]


def test_what_is_imported_in_the_place_of_the_program_or_of_pytest_is_kept_out(repo: Repo) -> None:
    repo.write("calc.py", "def add(a, b):\n    return 0\n")
    repo.write("src/shop/__init__.py", "")
    repo.start()
    fake = "def add(a, b):\n    return a + b\n"
    for path in ("tests/calc.py", "tests/shop.py", "tests/helpers.py", "tests/sub/test_calc.py", "pytest.py"):
        repo.write(path, fake)
    repo.write("x.egg-info/entry_points.txt", "[pytest11]\nx = x\n")
    assert kept(repo.judge()) == {
        ("tests/calc.py", "shadowing"),
        ("tests/shop.py", "shadowing"),
        ("pytest.py", "protected"),
        ("x.egg-info/entry_points.txt", "protected"),
    }
    assert ("tests/calc.py", "shadowing") not in kept(repo.judge(Rules(allowed=("tests/calc.py",))))


# What changed


def test_every_way_to_change_a_file_is_told(repo: Repo) -> None:
    repo.write("edited.py", "a\n")
    repo.write("gone.py", "b\n")
    repo.write("script", "c\n")
    repo.write("turned", "d\n")
    repo.write("bytes", b"text\n")
    repo.start()
    repo.write("edited.py", "aa\n")
    (repo.top / "gone.py").rename(repo.top / "came.py")
    (repo.top / "script").chmod(0o755)
    (repo.top / "turned").unlink()
    (repo.top / "turned").symlink_to("edited.py")
    repo.write("bytes", b"a" * 7000 + b"\0")
    repo.write("timed_out", b"a" * 8000 + b"\0")
    Repo(repo.top / "sub")
    found = repo.changes()
    told = {path: (one.status, one.symlink, one.submodule, one.mode_only, one.binary) for path, one in found.items()}
    assert told == {
        "bytes": ("M", False, False, False, True),
        "came.py": ("A", False, False, False, False),
        "edited.py": ("M", False, False, False, False),
        "gone.py": ("D", False, False, False, False),
        "timed_out": ("A", False, False, False, False),
        "script": ("M", False, False, True, False),
        "sub": ("A", False, True, False, False),
        "turned": ("T", True, False, False, False),
    }
    assert found["edited.py"].new_blob == repo.git("rev-parse", "HEAD:edited.py")


def test_odd_names_come_as_they_are(repo: Repo) -> None:
    for name in ODD:
        repo.write(name, "x\n")
    assert set(repo.changes()) == set(ODD)
    assert paths(changes(HOST, str(repo.top), repo.base, repo.base)) == []


def test_what_is_large_is_not_read(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classify, "FILE_MOST", 1000)
    monkeypatch.setattr(classify, "TOTAL_MOST", 1500)
    for name in ("a", "b"):
        repo.write(name, name * 900)
    repo.write("large", "x" * 1001)
    repo.write("test_large.py", f"def test_x():\n    assert {'1' * 50}\n" * 30)
    repo.write("setup.cfg", "[tool:pytest]\n" + "# x\n" * 300)
    assert {path: one.binary for path, one in repo.changes().items()} == {
        "a": False,
        "b": True,
        "large": True,
        "setup.cfg": True,
        "test_large.py": True,
    }
    new = {(path, "junk") for path in ("b", "large", "setup.cfg", "test_large.py")}
    assert kept(repo.judge()) == {*new, ("test_large.py", "unreadable"), ("setup.cfg", "protected")}


JUNK = (
    *("__pycache__/app.cpython-311.pyc", "src/__pycache__/x.py", "old.pyc", ".pytest_cache/v/cache/lastfailed"),
    *("web/node_modules/left-pad/index.js", ".venv/bin/python", ".env", ".env.local", "core", "core.4711", ".DS_Store"),
    *("src/app.py.orig", "src/app.py~", ".coverage"),
)
NO_JUNK = (
    ".env.example",
    "src/core.py",
    "src/core/__init__.py",
    "src/environment.py",
    "docs/node_modules.md",
    "logo.png",
)


def test_what_tools_and_crashes_leave_is_kept_out(repo: Repo) -> None:
    for name in (*JUNK, *NO_JUNK):
        repo.write(name, "x\n")
    repo.write("dump", b"\x7fELF" + b"\0" * 12 + b"\4\0" + b"\0" * 100)
    repo.write("program", b"\x7fELF" + b"\0" * 12 + b"\2\0" + b"\0" * 100)
    repo.write("data.bin", b"\0" * (classify.BINARY_MOST + 1))
    repo.write("table.csv", b"1,2\n" * classify.BINARY_MOST)
    judged = repo.judge()
    assert kept(judged) == {(name, "junk") for name in (*JUNK, "dump", "data.bin")}
    assert {*paths(judged.implementation), *paths(judged.other)} == {*NO_JUNK, "program", "table.csv"}
    allowed = repo.judge(Rules(allowed=(".env",)))
    assert ".env" in paths(allowed.implementation) and any(one.path == ".env" for one in allowed.kept_out)


def test_a_project_that_keeps_such_files_may_change_them_but_for_caches(repo: Repo) -> None:
    for name in JUNK:
        repo.write(name, "x\n")
    repo.start()
    for name in JUNK:
        repo.write(name, "y\n")
    assert {path for path, _ in kept(repo.judge())} == {
        name for name in JUNK if classify._matches(name, classify.CACHES)
    }


def test_a_revision_is_never_an_option_and_one_that_is_not_there_is_an_error(repo: Repo) -> None:
    for odd in (f"--output={repo.top}/made", "nothing", ""):
        with pytest.raises(MusterError):
            changes(HOST, str(repo.top), odd, repo.base)
        with pytest.raises(MusterError):
            tree(HOST, str(repo.top), odd, repo.base, [])
    assert not (repo.top / "made").exists()


# What is kept out


def test_a_protected_path_is_kept_out_and_the_rest_stays(repo: Repo) -> None:
    repo.write("docs/tutorial.sh", "echo a\n")
    repo.start()
    repo.write("docs/tutorial.sh", "true\n")
    repo.write(".github/workflows/ci.yml", "on: never\n")
    repo.write("src/app.py", "x = 2\n")
    repo.write("tests/test_f.py", TEST)
    judged = repo.judge()
    assert paths(judged.implementation) == ["src/app.py"]
    assert paths(judged.other) == ["tests/test_f.py"]
    assert kept(judged) == {(".github/workflows/ci.yml", "protected"), ("docs/tutorial.sh", "protected")}


def test_what_is_allowed_stays_and_is_told(repo: Repo) -> None:
    repo.write(".github/workflows/ci.yml", "on: push\n")
    repo.write("Makefile", "all:\n")
    judged = repo.judge(Rules(allowed=(".github/**",)))
    assert paths(judged.implementation) == [".github/workflows/ci.yml"]
    assert [(one.path, one.allowed) for one in judged.kept_out] == [
        (".github/workflows/ci.yml", True),
        ("Makefile", False),
    ]


def test_a_weakened_test_is_kept_out_unless_that_is_allowed(repo: Repo) -> None:
    repo.write("tests/test_f.py", TEST)
    repo.write("tests/test_g.py", TEST)
    repo.start()
    repo.write("tests/test_f.py", WEAK)
    repo.write("tests/test_g.py", TEST + "    assert f(3) == 4\n")
    repo.write("src/app.py", "x = 2\n")
    judged = repo.judge()
    assert (paths(judged.implementation), paths(judged.other)) == (["src/app.py"], ["tests/test_g.py"])
    assert kept(judged) == {("tests/test_f.py", "assertion-removed")}
    judged = repo.judge(Rules(allowed=("tests/test_f.py",)))
    assert paths(judged.other) == ["tests/test_f.py", "tests/test_g.py"]
    assert [(one.rule, one.allowed) for one in judged.kept_out] == [("assertion-removed", True)]


def test_a_test_is_one_wherever_the_project_says_implementation_is(repo: Repo) -> None:
    repo.write("src/test_f.py", TEST)
    repo.start()
    repo.write("src/test_f.py", WEAK)
    judged = repo.judge(Rules(implementation=("src/**",)))
    assert kept(judged) == {("src/test_f.py", "assertion-removed")}
    assert judged.implementation == []


def test_a_test_that_moved_to_a_file_that_is_kept_out_stays_where_it_was(repo: Repo) -> None:
    other = TEST.replace("test_f", "test_g").replace("f(", "g(")
    repo.write("tests/test_f.py", TEST)
    repo.write("tests/test_g.py", other)
    repo.start()
    repo.write("tests/test_f.py", "")
    repo.write("tests/test_g.py", other + TEST.partition("\n\n")[2])
    judged = repo.judge()
    assert (kept(judged), paths(judged.other)) == (set(), ["tests/test_f.py", "tests/test_g.py"])
    repo.write("tests/test_g.py", other.replace("    assert g(1) == 2\n", "") + TEST.partition("\n\n")[2])
    judged = repo.judge()
    assert kept(judged) == {("tests/test_f.py", "moved"), ("tests/test_g.py", "assertion-removed")}
    assert judged.other == []


def test_a_test_file_that_became_a_link_or_went_is_a_test_that_went(repo: Repo) -> None:
    for name in ("one", "two"):
        repo.write(f"tests/test_{name}.py", TEST.replace("_f", name))
    repo.start()
    (repo.top / "tests/test_one.py").unlink()
    (repo.top / "tests/test_two.py").unlink()
    (repo.top / "tests/test_two.py").symlink_to("../src/app.py")
    assert kept(repo.judge()) == {("tests/test_one.py", "test-removed"), ("tests/test_two.py", "test-removed")}


def test_text_that_python_reads_in_its_own_encoding_is_read_so(repo: Repo) -> None:
    latin = "# coding: latin-1\n" + TEST.replace("f(1)", "f('ä')")
    repo.write("tests/test_f.py", latin.encode("latin-1"))
    repo.write("tests/test_g.py", TEST)
    repo.start()
    repo.write("tests/test_f.py", latin.replace("    assert f(2) == 3\n", "").encode("latin-1"))
    repo.write("tests/test_g.py", (TEST + "# ä\n").encode("latin-1"))
    assert kept(repo.judge()) == {("tests/test_f.py", "assertion-removed"), ("tests/test_g.py", "unreadable")}


@pytest.mark.parametrize(
    ("name", "before", "same", "changed"),
    [
        (
            "pyproject.toml",
            "[project]\nname = 'a'\n\n[tool.pytest.ini_options]\naddopts = '-x'\n",
            "[project]\nname = 'b'\n\n[tool.pytest]\nini_options = {addopts = '-x'}\n",
            "[project]\nname = 'a'\n\n[tool.pytest.ini_options]\naddopts = '-x --ignore=tests'\n",
        ),
        ("pyproject.toml", "[tool.ruff]\n", "[tool.ruff]\nfix = true\n", "[tool.pytest.ini_options]\n"),
        ("sub/pyproject.toml", "a = 1\n", "a = 2\n", "a = = 2\n"),
        ("pyproject.toml", "a = 1\n", "", "[project.entry-points.pytest11]\nx = 'y'\n"),
        ("setup.cfg", "[metadata]\nname = a\n", "[metadata]\nname = b\n", "[tool:pytest]\nnorecursedirs = tests\n"),
        ("setup.cfg", "[tool:pytest]\nx = 1\n", "[a]\n[tool:pytest]\nx = 1\n", "[tool:pytest\n"),
        (
            "setup.cfg",
            "[options.entry_points]\na = b\n",
            "[options.entry_points]\na = c\n",
            "[options.entry_points]\npytest11 = x\n",
        ),
    ],
)
def test_settings_of_pytest_are_protected_inside_their_file(
    repo: Repo, name: str, before: str, same: str, changed: str
) -> None:
    repo.write(name, before)
    repo.start()
    repo.write(name, same)
    judged = repo.judge()
    assert (kept(judged), paths(judged.implementation)) == (set(), [name])
    repo.write(name, changed)
    assert kept(repo.judge()) == {(name, "protected")}
    assert kept(repo.judge(Rules(allowed=(name,)))) == set()


def test_a_link_stays_inside(repo: Repo) -> None:
    inside = {"a": "src/app.py", "x/y/b": "../../src/./app.py", "x/c": "..", "x/d": "y//b"}
    outside = {
        "e": "/etc/passwd",
        "f": "../repo/src/app.py",
        "x/g": "../..",
        "h": "src/../../x",
        "x/y/i": "../../src/..",
        "j": ".git/config",
        "x/k": "../.GIT/hooks",
    }
    for name, target in {**inside, **outside}.items():
        repo.write(name, "").unlink()
        os.symlink(target, repo.top / name)
    judged = repo.judge()
    assert kept(judged) == {(name, "symlink") for name in outside}
    assert set(paths(judged.implementation)) == set(inside)


def test_submodules_are_kept_out(repo: Repo) -> None:
    Repo(repo.top / "sub")
    repo.write(".gitmodules", '[submodule "sub"]\n\tpath = sub\n\turl = ../x\n\tignore = all\n')
    assert kept(repo.judge()) == {("sub", "submodule"), (".gitmodules", "protected")}


def test_a_path_that_no_checkout_may_have_is_kept_out(repo: Repo) -> None:
    blob = repo.git("hash-object", "-w", "--stdin", input=b"x\n")
    inner = repo.git("mktree", input=f"100644 blob {blob}\tconfig\n".encode())
    outer = repo.git("mktree", input=f"040000 tree {inner}\t.GIT\n".encode())
    tip = repo.git("commit-tree", outer, "-p", repo.base, "-m", "odd")
    judged = judge(HOST, str(repo.top), repo.base, tip, Rules(allowed=("**",)))
    assert kept(judged) == {(".GIT/config", "path")}


# Trees


def listing(repo: Repo, commit: str) -> dict[str, str]:
    rows = (row.split("\t", 1) for row in repo.git("ls-tree", "-r", "-z", commit).split("\0") if row)
    return {path: head for head, path in rows}


def test_implementation_and_the_rest_can_be_trees_of_their_own(repo: Repo) -> None:
    for name in (*ODD, "old.py", "tests/test_old.py"):
        repo.write(name, TEST)
    repo.start()
    (repo.top / "old.py").unlink()
    for name in (*ODD, "src/app.py", "tests/test_new.py"):
        repo.write(name, f"{TEST}    assert f(4) == 5\n")
    (repo.top / "tests/test_old.py").chmod(0o755)
    os.symlink("app.py", repo.top / "src/link")
    tip = repo.commit()
    judged = judge(HOST, str(repo.top), repo.base, tip, Rules())
    before, after = listing(repo, repo.base), listing(repo, tip)
    seen = repo.seen()
    for part in (judged.implementation, judged.other):
        made = listing(repo, tree(HOST, str(repo.top), repo.base, tip, paths(part)))
        expected = {**before, **{path: after[path] for path in paths(part) if path in after}}
        assert made == {path: row for path, row in expected.items() if path in after or path not in paths(part)}
    both = paths(judged.implementation) + paths(judged.other)
    assert tree(HOST, str(repo.top), repo.base, tip, both) == repo.git("rev-parse", f"{tip}^{{tree}}")
    assert tree(HOST, str(repo.top), repo.base, tip, ["not/there"]) == repo.git("rev-parse", f"{repo.base}^{{tree}}")
    assert repo.seen() == seen


def test_a_file_may_make_room_for_a_folder_but_not_half_of_it(repo: Repo) -> None:
    repo.write("a", "x\n")
    repo.start()
    (repo.top / "a").unlink()
    repo.write("a/b", "y\n")
    tip = repo.commit()
    assert tree(HOST, str(repo.top), repo.base, tip, ["a/b", "a"]) == repo.git("rev-parse", f"{tip}^{{tree}}")
    with pytest.raises(MusterError, match="there is no valid tree"):
        tree(HOST, str(repo.top), repo.base, tip, ["a/b"])


def test_nothing_of_the_repository_runs_and_nothing_is_left(repo: Repo, tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    for name in ("post-index-change", "post-checkout", "reference-transaction", "fsmonitor"):
        hook = repo.write(f".git/hooks/{name}", f"#!/bin/sh\ntouch {marker}\n")
        hook.chmod(0o755)
    repo.git("config", "core.fsmonitor", str(repo.top / ".git/hooks/fsmonitor"))
    repo.git("config", "core.splitIndex", "true")
    repo.write(".gitattributes", "*.py filter=x diff=x\n")
    repo.git("config", "filter.x.clean", f"touch {marker}; cat")
    repo.git("config", "diff.x.textconv", f"touch {marker}; cat")
    repo.start()
    repo.write("src/app.py", "x = 3\n")
    tip = repo.commit()
    marker.unlink()  # the user's own git ran them
    left = sorted(os.listdir(tmp_path / "home"))
    judged = judge(HOST, str(repo.top), repo.base, tip, Rules())
    tree(HOST, str(repo.top), repo.base, tip, paths(judged.implementation))
    assert not marker.exists()
    assert sorted(os.listdir(tmp_path / "home")) == left


def test_an_object_that_stands_in_for_another_does_not_count(repo: Repo) -> None:
    repo.write("tests/test_f.py", TEST)
    repo.start()
    repo.write("tests/test_f.py", WEAK)
    tip = repo.commit()
    weak, strong = (repo.git("rev-parse", f"{commit}:tests/test_f.py") for commit in (tip, repo.base))
    repo.git("replace", weak, strong)
    assert kept(judge(HOST, str(repo.top), repo.base, tip, Rules())) == {("tests/test_f.py", "assertion-removed")}
