"""Uncommitted work, whatever it is, arrives as it was, and the user's side does not notice."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from muster import git
from muster.providers.local import LocalHost

EXAMPLES = int(os.environ.get("MUSTER_EXAMPLES", "100"))
NAMES = [
    "a",
    "b.txt",
    "d/x",
    "d/y z",
    "d/e/f",
    "-dash",
    "new\nline",
    "quo\"te'",
    "ünï",
    "tab\there",
    "back\\slash",
    "\x01",
    "x*[?",
    "u 1",
]
TEXTS = ["", "one\n", "two\n", "no newline", "one\ntwo\nthree\nfour\nfive\n", "\x00binary\r\n"]

names = st.sampled_from(NAMES)
texts = st.sampled_from(TEXTS)
steps = st.one_of(
    st.tuples(st.just("write"), names, texts),
    st.tuples(st.just("write"), names, texts),
    st.tuples(st.just("link"), names, st.sampled_from(["a", "nowhere", "d"])),
    st.tuples(st.just("remove"), names, st.just("")),
    st.tuples(st.just("exec"), names, st.just("")),
    st.tuples(st.just("rename"), names, names),
    st.tuples(st.just("swap"), names, texts),  # a file becomes a folder, a folder a file
    st.tuples(st.just("add"), names, st.just("")),
    st.tuples(st.just("add"), st.just("."), st.just("")),
    st.tuples(st.just("intend"), names, st.just("")),
    st.tuples(st.just("unadd"), names, st.just("")),
    st.tuples(st.just("ignore"), names, st.just("")),
)


def run(where: Path, *argv: str, check: bool = True) -> bytes:
    done = subprocess.run(["git", *argv], cwd=where, capture_output=True)
    assert not check or done.returncode == 0, done.stderr
    return done.stdout


def step(root: Path, kind: str, name: str, value: str) -> None:
    path = root / name
    try:
        if kind in ("write", "link"):
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.is_symlink() or path.exists():
                path.unlink()
            if kind == "write":
                path.write_bytes(value.encode())
            else:
                path.symlink_to(value)
        elif kind == "remove":
            path.unlink()
        elif kind == "exec":
            path.chmod(path.lstat().st_mode ^ 0o111) if path.is_file() and not path.is_symlink() else None
        elif kind == "rename":
            (root / value).parent.mkdir(parents=True, exist_ok=True)
            path.rename(root / value)
        elif kind == "swap":
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
            if "/" in name:
                shutil.rmtree(path.parent)
                path.parent.write_text(value)
            else:
                path.mkdir()
                (path / "inner").write_text(value)
        elif kind == "ignore":
            with (root / ".gitignore").open("a") as file:
                file.write(f"{name}\n")
    except OSError:
        pass  # a step that does not fit the tree as it is
    else:
        if kind in ("add", "intend", "unadd"):
            argv = {"add": ["add", "-A"], "intend": ["add", "-N"], "unadd": ["rm", "-q", "--cached", "-r"]}[kind]
            run(root, *argv, "--", name, check=False)


def seen(root: Path) -> dict[str, bytes]:
    return {
        "status": run(root, "status", "--porcelain=v2", "-z", "--untracked-files=all"),
        "diff": run(root, "diff", "--binary"),
        "staged": run(root, "diff", "--cached", "--binary"),
    }


def all_of(root: Path) -> dict[str, object]:
    """Every byte of the tree, the index, the refs and the stash."""
    tree: dict[str, object] = {}
    for folder, dirs, files in os.walk(root):
        for name in dirs + files:
            path = Path(folder, name)
            if ".git" in path.relative_to(root).parts:
                continue
            link = os.readlink(path) if path.is_symlink() else None
            content = path.read_bytes() if path.is_file() and not path.is_symlink() else None
            tree[str(path)] = (path.lstat().st_mode, path.lstat().st_mtime_ns, link, content)
    tree["index"] = (root / ".git/index").read_bytes()
    tree["refs"] = run(root, "for-each-ref")
    tree["head"] = (root / ".git/HEAD").read_bytes()
    tree["config"] = (root / ".git/config").read_bytes()
    tree["stash"] = run(root, "stash", "list")
    return tree


@pytest.fixture(scope="module")
def seedling() -> Iterator[Path]:
    """A repository with one commit, to be copied for each example."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "seed")
        root.mkdir()
        run(root, "-c", "init.defaultBranch=main", "init", "-q", "--template=")
        run(root, "config", "user.name", "Ann")
        run(root, "config", "user.email", "ann@example.com")
        for name in ("a", "b.txt", "d/x", "d/e/f", "-dash", "new\nline", "ünï"):
            step(root, "write", name, "one\ntwo\nthree\nfour\nfive\n")
        step(root, "link", "tab\there", "a")
        run(root, "add", "-A")
        run(root, "commit", "-qm", "first")
        yield root


numbers = itertools.count()


@pytest.mark.timeout(30 + 3 * EXAMPLES)
@given(st.lists(steps, min_size=1, max_size=9))
@example([("write", "back\\slash", ""), ("intend", "back\\slash", ""), ("remove", "back\\slash", "")])
@example([("link", "back\\slash", "a"), ("intend", "back\\slash", ""), ("remove", "back\\slash", "")])
@example([("write", "x", ""), ("remove", "a", ""), ("intend", "x", ""), ("remove", "x", "")])
@settings(max_examples=EXAMPLES, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_uncommitted_work_arrives_exactly_and_leaves_the_user_untouched(
    seedling: Path, changes: list[tuple[str, str, str]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        root = base / "repo"
        shutil.copytree(seedling, root, symlinks=True)
        for change in changes:
            step(root, *change)
        host = LocalHost(str(base / "home"))
        before, expected = all_of(root), seen(root)
        before["index"] = (root / ".git/index").read_bytes()  # `git status` itself refreshes it

        state = git.capture(host, str(root))
        assert all_of(root) == before
        assert (state.state == state.head) == (expected["status"] == b"")

        repo = git.find(host, str(root))
        assert repo
        places = str(base / "wt"), str(base / "s1"), str(base / "wt.own")
        tree = git.seed_worktree(host, repo, *places, "wt", "muster/wt", state.head, state.state)
        assert seen(base / "wt") == expected
        git.seed_mirror(
            host, repo, host, "key", str(base / "mi"), str(base / "s2"), "muster/mi", state.head, state.state
        )
        assert seen(base / "mi") == expected

        if next(numbers) % 4 == 0:  # what is carried once can be carried on
            again = git.harvest(host, tree)
            wanted = run(root, "rev-parse", f"{state.state}^{{tree}}")
            assert run(base / "s1", "rev-parse", f"{again.state}^{{tree}}") == wanted
        run(root, "update-ref", "-d", git.held("wt"))
        assert all_of(root) == before
