"""Git as the flow calls it: nothing of the repository's runs, and errors say which command failed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from muster.flow.run import git
from muster.providers.local import LocalHost


def make(folder: Path) -> tuple[LocalHost, Path]:
    repo = folder / "repo"
    plain("init", "-q", str(repo), cwd=folder)
    plain("-c", "user.name=Ann", "-c", "user.email=ann@x", "commit", "-q", "--allow-empty", "-m", "first", cwd=repo)
    return LocalHost(str(folder / "home")), repo


def plain(*args: str, cwd: Path) -> str:
    return subprocess.run(["git", *args], cwd=cwd, check=True, capture_output=True, text=True).stdout.strip()


def test_no_program_that_the_repository_names_is_run(tmp_path: Path) -> None:
    host, repo = make(tmp_path)
    trap = tmp_path / "trap"
    trap.write_text(f"#!/bin/sh\necho \"$0\" >> '{tmp_path}/ran'\nexit 1\n")
    trap.chmod(0o755)
    for hook in ("reference-transaction", "post-index-change"):
        (repo / ".git/hooks" / hook).symlink_to(trap)
    for key, value in {"core.fsmonitor": trap, "gpg.program": trap, "commit.gpgSign": "true"}.items():
        plain("config", key, str(value), cwd=repo)
    (repo / "new").write_text("x")
    head = git.text(host, str(repo), "rev-parse", "HEAD")
    made = git.commit_tree(host, str(repo), git.text(host, str(repo), "rev-parse", "HEAD^{tree}"), head, "by muster")
    git.update_ref(host, str(repo), "refs/muster/kept", made)
    assert git.output(host, str(repo), "status", "--porcelain") == b"?? new\n"
    assert not (tmp_path / "ran").exists()
    assert plain("log", "-1", "--format=%an %ae %cn %s", made, cwd=repo) == "muster muster@localhost muster by muster"


def test_looking_at_a_repository_writes_no_index(tmp_path: Path) -> None:
    host, repo = make(tmp_path)
    (repo / "file").write_text("x")
    plain("add", "file", cwd=repo)
    (repo / "file").touch()
    before = (repo / ".git/index").stat()
    git.output(host, str(repo), "status", "--porcelain")
    assert (repo / ".git/index").stat().st_mtime_ns == before.st_mtime_ns


def test_a_repository_on_this_machine_is_not_fetched_from(tmp_path: Path) -> None:
    host, repo = make(tmp_path)
    other = tmp_path / "other"
    plain("init", "-q", str(other), cwd=tmp_path)
    with pytest.raises(git.GitFailed, match=r"git fetch in .*other: .*transport 'file' not allowed"):
        git.output(host, str(other), "fetch", f"file://{repo}")


def test_an_error_names_the_command_and_the_repository(tmp_path: Path) -> None:
    host, repo = make(tmp_path)
    with pytest.raises(git.GitFailed, match=r"git cat-file in .*/repo: .*Not a valid object name"):
        git.output(host, str(repo), "-c", "core.abbrev=40", "cat-file", "blob", "nothing")
    assert git.text(host, str(repo), "rev-parse", "-q", "--verify", "nothing") == ""
    assert git.common_dir(host, str(repo)) == str(repo / ".git")
