"""Call git in the user's repository: the one place where the flow builds a git command line.

The repository may hold objects and settings that an agent wrote. So no hook, file system monitor or signing program runs, nothing is
fetched, no submodule is entered, no replacement object is followed, and only a command that must takes a lock. The user's own settings
otherwise stay in effect: `safe.directory`, for example, decides whether git opens the repository at all.

`git push` for a pull request is the exception. It is the user's own command, with the user's hooks, and is not called through here.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from subprocess import CompletedProcess

from ... import Host
from ...errors import MusterError
from .results import shown

#: Variables that make git run a program or print a diff in another format.
UNSET = ("GIT_EXTERNAL_DIFF", "GIT_DIFF_OPTS")
ENVIRONMENT = {
    "LC_ALL": "C",
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
}
OPTIONS = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.splitIndex=false",
    "commit.gpgSign=false",
    "diff.ignoreSubmodules=dirty",
    "gc.auto=0",
    "maintenance.auto=false",
    "submodule.recurse=false",
)
#: Author and committer of commits that no person made.
IDENTITY = {
    f"GIT_{role}_{key}": value
    for role in ("AUTHOR", "COMMITTER")
    for key, value in (("NAME", "muster"), ("EMAIL", "muster@localhost"))
}


class GitFailed(MusterError):
    """git exited with an error: the repository is damaged, the disk is full, or an object is missing."""


def run(
    host: Host,
    repo: str,
    *args: str,
    input: bytes = b"",
    env: Mapping[str, str] | None = None,
    unset: Iterable[str] = (),
    bare: bool = False,
) -> CompletedProcess[bytes]:
    """Run git in `repo`, whatever its exit code. With `bare`, `repo` is a git directory and git does not look for a work tree."""
    variables = {**ENVIRONMENT, **(env or {})}
    return host.run(
        [
            "env",
            *(f"-u{name}" for name in (*UNSET, *unset)),
            *(f"{name}={value}" for name, value in variables.items()),
            "git",
            *((f"--git-dir={repo}",) if bare else ("-C", repo)),
            *(word for option in OPTIONS for word in ("-c", option)),
            *args,
        ],
        input=input,
    )


def output(
    host: Host,
    repo: str,
    *args: str,
    input: bytes = b"",
    env: Mapping[str, str] | None = None,
    unset: Iterable[str] = (),
    bare: bool = False,
) -> bytes:
    """Return what git printed. Raises `GitFailed` if it exits with an error."""
    done = run(host, repo, *args, input=input, env=env, unset=unset, bare=bare)
    if done.returncode:
        said = shown(done.stderr.decode("utf-8", "replace").strip() or f"exit code {done.returncode}", 300)
        where = "" if bare else f" in {repo}"
        raise GitFailed(f"git {_verb(args)}{where}: {said}")
    return done.stdout


def text(host: Host, repo: str, *args: str) -> str:
    """Return what git printed, stripped; empty if it exits with an error, as `rev-parse --verify` does for an unknown name."""
    return run(host, repo, *args).stdout.decode("utf-8", "replace").strip()


def top(host: Host, folder: str) -> str:
    """Return the top of the work tree that has this folder; empty if none has."""
    return os.fsdecode(run(host, folder, "rev-parse", "--show-toplevel").stdout.rstrip(b"\n"))


def commit(host: Host, repo: str, name: str) -> str:
    """Return the commit that a name stands for; empty if there is none."""
    return text(host, repo, "rev-parse", "-q", "--verify", "--end-of-options", f"{name}^{{commit}}")


def common_dir(host: Host, repo: str) -> str:
    """Return the git directory that all work trees of a repository share."""
    return text(host, repo, "rev-parse", "--path-format=absolute", "--git-common-dir")


def commit_tree(host: Host, repo: str, tree: str, parent: str, message: str) -> str:
    """Return a new commit of `tree` on `parent`, made by muster."""
    return output(host, repo, "commit-tree", tree, "-p", parent, "-m", message, env=IDENTITY).decode().strip()


def update_ref(host: Host, repo: str, ref: str, commit: str) -> None:
    """Point a ref at a commit, which keeps it from being collected."""
    output(host, repo, "update-ref", "--", ref, commit)


# Refs of runs


def run_branches(host: Host, repo: str) -> list[str]:
    """Return the names of the runs whose branch is still in the repository, also of runs that were removed."""
    return text(host, repo, "for-each-ref", "--format=%(refname:lstrip=3)", "refs/heads/muster-run/").split()


def forget_run(host: Host, repo: str, run_name: str) -> None:
    """Delete the refs that a run holds in the user's repository, but not its branch."""
    deletions = text(host, repo, "for-each-ref", "--format=delete %(refname)", f"refs/muster/runs/{run_name}")
    if deletions:
        output(host, repo, "update-ref", "--stdin", input=f"{deletions}\n".encode())


def _verb(args: tuple[str, ...]) -> str:
    """Return the first argument that is no `-c NAME=VALUE`."""
    words = iter(args)
    for word in words:
        if word != "-c":
            return word
        next(words, "")
    return ""
