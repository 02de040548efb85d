"""Work dirs, pulling, pushing, snapshots and the trash, with real git; an agent's repository is hostile input."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from muster import git
from muster.errors import NotFound, Refused
from muster.providers.local import LocalHost


def run(where: Path | str, *argv: str, check: bool = True) -> str:
    done = subprocess.run(["git", *argv], cwd=where, capture_output=True)
    assert not check or done.returncode == 0, done.stderr.decode()
    return done.stdout.decode("utf-8", "surrogateescape").strip("\n")


def commit(where: Path | str, name: str, text: str, message: str = "change") -> str:
    Path(where, name).parent.mkdir(parents=True, exist_ok=True)
    Path(where, name).write_text(text)
    run(where, "add", "-A")
    run(where, "-c", "user.name=Bob", "-c", "user.email=bob@example.com", "commit", "-qm", message)
    return run(where, "rev-parse", "HEAD")


def seen(where: Path | str) -> tuple[str, ...]:
    status = run(where, "status", "--porcelain=v2", "-z", "--untracked-files=all", "--ignored")
    return (
        status,
        run(where, "diff"),
        run(where, "diff", "--cached"),
        run(where, "rev-parse", "HEAD"),
        run(where, "branch", "-v"),
    )


def files(where: Path | str) -> dict[str, bytes]:
    root = Path(where)
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file() and ".git" not in p.parts}


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "user/.config"))
    (tmp_path / "user").mkdir()
    config = "[init]\n\tdefaultBranch = main\n[user]\n\tname = Ann\n\temail = ann@example.com\n"
    (tmp_path / "user/.gitconfig").write_text(config)


@pytest.fixture
def host(tmp_path: Path) -> LocalHost:
    return LocalHost(str(tmp_path / "home"))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "über repo"
    root.mkdir()
    run(root, "init", "-q")
    commit(root, "a.txt", "one\ntwo\nthree\n", "first")
    commit(root, "sub/b.txt", "b\n", "second")
    return root


Seed = Callable[..., git.Tree]


@pytest.fixture
def seed(host: LocalHost, root: Path, tmp_path: Path) -> Seed:
    def seed(name: str = "foo", mode: str = "worktree", clean: bool = False) -> git.Tree:
        repo = git.find(host, str(root))
        assert repo
        state = git.State(repo.head, repo.head) if clean else git.capture(host, str(root))
        workdir, shadow = str(tmp_path / "agents" / name / "work dir"), str(tmp_path / "agents" / name / "git")
        if mode == "worktree":
            own = str(tmp_path / "agents" / name / "repo")
            return git.seed_worktree(host, repo, workdir, shadow, own, name, f"muster/{name}", state.head, state.state)
        return git.seed_mirror(host, repo, host, "key", workdir, shadow, f"muster/{name}", state.head, state.state)

    return seed


both = pytest.mark.parametrize("mode", ["worktree", "mirror"])


# --- finding and capturing


def test_a_folder_outside_any_repository_is_none(host: LocalHost, tmp_path: Path) -> None:
    assert git.find(host, str(tmp_path)) is None
    assert git.find(host, str(tmp_path / "missing")) is None


def test_find_tells_all_about_a_repository_from_a_sub_directory(host: LocalHost, root: Path) -> None:
    run(root, "config", "user.name", "Änn B")
    (root / ".git/info").mkdir(exist_ok=True)
    (root / ".git/info/exclude").write_text("*.log\n")
    repo = git.find(host, str(root / "sub"))
    assert repo
    assert (repo.top, repo.gitdir, repo.common) == (str(root), f"{root}/.git", f"{root}/.git")
    assert (repo.head, repo.branch, repo.prefix) == (run(root, "rev-parse", "HEAD"), "main", "sub/")
    assert (repo.name, repo.email, repo.exclude) == ("Änn B", "ann@example.com", "*.log\n")
    assert not (repo.bare or repo.sparse or repo.partial or repo.shallow or repo.submodules)


def test_find_knows_bare_unborn_and_detached_repositories_and_odd_paths(
    host: LocalHost, root: Path, tmp_path: Path
) -> None:
    run(root, "checkout", "-q", "--detach")
    detached = git.find(host, str(root))
    assert detached and detached.branch == "" and detached.head
    run(tmp_path, "init", "-q", "--bare", "bare")
    bare = git.find(host, str(tmp_path / "bare"))
    assert bare and bare.bare and bare.top == "" and bare.head == ""
    odd = tmp_path / "-odd\nname '\""
    odd.mkdir()
    run(odd, "init", "-q")
    unborn = git.find(host, str(odd))
    assert unborn and unborn.top == str(odd) and unborn.head == "" and unborn.branch == "main"


def test_capture_of_a_clean_tree_is_head_itself(host: LocalHost, root: Path) -> None:
    head = run(root, "rev-parse", "HEAD")
    assert git.capture(host, str(root)) == git.State(head, head)


def test_capture_works_without_a_git_identity(host: LocalHost, root: Path) -> None:
    Path(os.environ["HOME"], ".gitconfig").unlink()
    (root / "a.txt").write_text("changed\n")
    state = git.capture(host, str(root))
    assert run(root, "log", "-1", "--format=%an", state.state) == "muster"


def test_capture_leaves_out_repositories_inside_and_says_so(host: LocalHost, root: Path) -> None:
    run(root, "init", "-q", "in side/nested")
    commit(root / "in side/nested", "x", "x")
    head = run(root, "rev-parse", "HEAD")
    assert git.capture(host, str(root)) == git.State(head, head, ("in side/nested/",))
    (root / "in side/new\nfile").write_text("x")
    state = git.capture(host, str(root))
    assert state.nested == ("in side/nested/",)
    assert run(root, "ls-tree", "-r", "-z", "--name-only", state.state, "in side/") == "in side/new\nfile\0"


def test_capture_from_a_sub_directory_takes_the_whole_tree(host: LocalHost, root: Path) -> None:
    (root / "new").write_text("new\n")
    assert run(root, "show", f"{git.capture(host, str(root / 'sub')).state}:new") == "new"


def test_capture_refuses_before_the_first_commit(host: LocalHost, tmp_path: Path) -> None:
    run(tmp_path, "init", "-q", "new")
    with pytest.raises(Refused, match="no commit yet"):
        git.capture(host, str(tmp_path / "new"))


def test_capture_refuses_in_the_middle_of_a_merge(host: LocalHost, root: Path) -> None:
    run(root, "checkout", "-qb", "other", "HEAD~1")
    commit(root, "a.txt", "theirs\n")
    run(root, "checkout", "-q", "main")
    commit(root, "a.txt", "ours\n")
    run(root, "merge", "other", check=False)
    with pytest.raises(Refused, match="merge is in progress") as error:
        git.capture(host, str(root))
    assert "--clean" in error.value.hint


# --- work dirs


@both
def test_an_agent_starts_on_its_branch_with_the_uncommitted_work(
    host: LocalHost, root: Path, seed: Seed, mode: str
) -> None:
    (root / "a.txt").write_text("changed\n")
    (root / "new").write_text("new\n")
    run(root, "add", "new")
    tree = seed(mode=mode)
    assert run(tree.workdir, "branch", "--show-current") == "muster/foo"
    assert seen(tree.workdir)[:4] == seen(root)[:4]
    assert stat.S_IMODE(Path(tree.workdir, "a.txt").stat().st_mode) == 0o644
    assert git.info(host, {"foo": tree}) == {"foo": git.Info(0, 2, run(root, "rev-parse", "HEAD"))}


def test_a_mirror_gets_the_identity_and_only_new_objects_are_sent_again(
    host: LocalHost, root: Path, seed: Seed, tmp_path: Path
) -> None:
    first = seed("one", "mirror")
    assert run(first.workdir, "config", "--local", "user.email") == "ann@example.com"
    packs = tmp_path / "home/repos/key.git/objects/pack"
    assert len(list(packs.glob("*.pack"))) == 1
    seed("two", "mirror")
    assert len(list(packs.glob("*.pack"))) == 1
    (root / "a.txt").write_text("one\ntwo\nthree\nfour\n")
    seed("three", "mirror")
    assert len(list(packs.glob("*.pack"))) == 2
    run(root, "checkout", "-q", "HEAD~1", "--", ".")
    run(root, "reset", "-q", "--hard", "HEAD~1")
    fourth = seed("four", "mirror")  # an ancestor of what is there: an empty pack
    assert run(fourth.workdir, "log", "--format=%s") == "first"
    run(root, "config", "user.name", "x")


def test_twenty_agents_at_once_in_one_repository_all_succeed(seed: Seed, root: Path) -> None:
    (root / "a.txt").write_text("changed\n")
    with ThreadPoolExecutor(20) as pool:
        trees = list(pool.map(lambda n: seed(f"n{n}"), range(20)))
    assert len({tree.gitdir for tree in trees}) == 20
    assert {run(tree.workdir, "status", "--porcelain") for tree in trees} == {" M a.txt"}
    assert sorted(run(root, "for-each-ref", "--format=%(refname)", "refs/muster").split()) == sorted(
        f"refs/muster/held/n{n}" for n in range(20)
    )


def test_ten_mirrors_at_once_on_a_new_host_all_succeed(seed: Seed, root: Path) -> None:
    (root / "a.txt").write_text("changed\n")
    with ThreadPoolExecutor(10) as pool:
        trees = list(pool.map(lambda n: seed(f"n{n}", "mirror"), range(10)))
    assert {run(tree.workdir, "status", "--porcelain") for tree in trees} == {" M a.txt"}


def test_a_branch_that_exists_is_refused_and_nothing_is_left_behind(seed: Seed, root: Path, tmp_path: Path) -> None:
    run(root, "checkout", "-q", "-b", "muster/foo")
    commit(root, "own.txt", "of the branch\n")
    run(root, "checkout", "-q", "main")
    with pytest.raises(Refused, match="exists already"):
        seed()
    run(root, "branch", "-m", "muster/foo", "muster")  # muster/foo could not be written beside it
    with pytest.raises(Refused, match="cannot make the branch muster/foo"):
        seed()
    assert run(root, "for-each-ref", "refs/muster") == ""
    assert not (tmp_path / "agents/foo/repo").exists()


def test_a_branch_that_was_pulled_and_merged_does_not_keep_the_name_from_being_used_again(
    seed: Seed, root: Path, host: LocalHost
) -> None:
    run(root, "branch", "muster/foo", "HEAD~1")
    tree = seed()
    tip = commit(tree.workdir, "a.txt", "agent\n")
    git.fetch(host, tree, host, f"{root}/.git", "refs/heads/muster/foo")
    assert run(root, "rev-parse", "muster/foo") == tip


def test_a_failed_seed_takes_its_branch_and_work_tree_back(host: LocalHost, root: Path, tmp_path: Path) -> None:
    repo = git.find(host, str(root))
    assert repo
    with pytest.raises(Exception, match="cannot make the work tree"):
        git.seed_worktree(
            host,
            repo,
            str(tmp_path / "w"),
            str(tmp_path / "s"),
            str(tmp_path / "o"),
            "x",
            "muster/x",
            repo.head,
            "1" * 40,
        )
    assert run(root, "branch", "--list", "muster/*") == ""
    assert run(root, "for-each-ref", "refs/muster") == ""
    assert not any((tmp_path / name).exists() for name in "wso")


def test_a_detached_head_can_be_carried(seed: Seed, root: Path) -> None:
    run(root, "checkout", "-q", "--detach", "HEAD~1")
    (root / "a.txt").write_text("changed\n")
    assert run(seed().workdir, "status", "--porcelain") == " M a.txt"


def test_seeding_from_a_linked_work_tree_works(host: LocalHost, root: Path, tmp_path: Path, seed: Seed) -> None:
    run(root, "worktree", "add", "-q", "-b", "side", str(tmp_path / "side"))
    (tmp_path / "side/a.txt").write_text("changed\n")
    repo = git.find(host, str(tmp_path / "side"))
    state = git.capture(host, str(tmp_path / "side"))
    assert repo and repo.common == f"{root}/.git"
    tree = git.seed_worktree(
        host,
        repo,
        str(tmp_path / "w"),
        str(tmp_path / "s"),
        str(tmp_path / "o"),
        "x",
        "muster/x",
        state.head,
        state.state,
    )
    assert run(tree.workdir, "status", "--porcelain") == " M a.txt"


def test_a_sparse_checkout_stays_sparse_in_a_worktree_and_is_whole_in_a_mirror(seed: Seed, root: Path) -> None:
    commit(root, "big/c.txt", "c\n")
    run(root, "sparse-checkout", "set", "sub")
    (root / "sub/b.txt").write_text("changed\n")
    (root / "sub/new").write_text("new\n")
    tree, mirror = seed(), seed("bar", "mirror")
    for workdir in (tree.workdir, mirror.workdir):
        assert run(workdir, "status", "--porcelain") == " M sub/b.txt\n?? sub/new"
    assert not Path(tree.workdir, "big").exists()
    assert Path(mirror.workdir, "big/c.txt").exists()


@pytest.fixture
def with_submodule(root: Path, tmp_path: Path) -> Path:
    run(tmp_path, "init", "-q", "lib")
    commit(tmp_path / "lib", "l.txt", "lib\n")
    run(root, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", "../lib", "libs/l")
    run(root, "commit", "-qm", "submodule")
    shutil.rmtree(tmp_path / "lib")  # only the user's own copy is left
    return root


def test_submodules_are_filled_from_the_users_own_copy(host: LocalHost, seed: Seed, with_submodule: Path) -> None:
    repo = git.find(host, str(with_submodule))
    assert repo and repo.submodules == ("libs/l",)
    moved = commit(with_submodule / "libs/l", "l.txt", "newer\n")  # a commit the superproject has not recorded
    tree = seed()
    assert run(f"{tree.workdir}/libs/l", "rev-parse", "HEAD") == moved
    assert run(tree.workdir, "status", "--porcelain") == run(with_submodule, "status", "--porcelain") == " M libs/l"
    theirs, ours = (run(Path(at, "libs/l"), "config", "remote.origin.url") for at in (tree.workdir, with_submodule))
    assert theirs == ours
    commit(f"{tree.workdir}/libs/l", "l.txt", "agent's\n")
    assert run(with_submodule / "libs/l", "rev-parse", "HEAD") == moved


def test_dirty_submodules_and_submodules_in_a_mirror_are_refused(seed: Seed, with_submodule: Path) -> None:
    with pytest.raises(Refused, match="do not travel"):
        seed(mode="mirror")
    (with_submodule / "libs/l/untracked").write_text("x")
    with pytest.raises(Refused, match="libs/l has uncommitted"):
        seed()


def test_hooks_of_the_repository_do_not_run_while_seeding(seed: Seed, root: Path, tmp_path: Path) -> None:
    for hook in ("post-checkout", "reference-transaction", "post-index-change"):
        trap(root / ".git/hooks" / hook, tmp_path / "ran")
    seed()
    assert not (tmp_path / "ran").exists()


def test_a_shallow_clone_can_be_mirrored_and_a_partial_one_is_refused(
    host: LocalHost, root: Path, tmp_path: Path, seed: Seed
) -> None:
    seed("whole", "mirror")
    run(root, "config", "uploadpack.allowFilter", "true")
    run(tmp_path, "clone", "-q", "--depth=1", f"file://{root}", "shallow")
    run(tmp_path, "clone", "-q", "--filter=blob:none", f"file://{root}", "partial")
    repo = git.find(host, str(tmp_path / "shallow"))
    assert repo and repo.shallow
    place = (str(tmp_path / "w"), str(tmp_path / "s"), "muster/x", repo.head, repo.head)
    tree = git.seed_mirror(host, repo, host, "other", *place)
    assert run(tree.workdir, "log", "--format=%s") == "second"
    tip = commit(tree.workdir, "a.txt", "changed\n")
    assert git.fetch(host, tree, host, repo.common, "refs/heads/muster/x").tip == tip
    partial = git.find(host, str(tmp_path / "partial"))
    assert partial
    with pytest.raises(Refused, match="partial clone"):
        git.seed_mirror(host, partial, host, "key", *place)


def test_a_sha256_repository_works_in_both_modes(host: LocalHost, root: Path, seed: Seed) -> None:
    shutil.rmtree(root)
    root.mkdir()
    run(root, "init", "-q", "--object-format=sha256")
    commit(root, "a.txt", "one\n")
    (root / "a.txt").write_text("two\n")
    for mode in ("worktree", "mirror"):
        tree = seed(mode, mode)
        assert run(tree.workdir, "status", "--porcelain") == " M a.txt"
        assert git.diff(host, tree) == b""
        (Path(tree.workdir) / "a.txt").write_text("three\n")
        assert b"-two\n+three\n" in git.diff(host, tree)


# --- what an agent did


@both
def test_diff_and_info_show_commits_uncommitted_and_untracked_work(host: LocalHost, seed: Seed, mode: str) -> None:
    tree = seed(mode=mode)
    tip = commit(tree.workdir, "a.txt", "one\ntwo\n3\n")
    Path(tree.workdir, "sub/b.txt").unlink()
    Path(tree.workdir, "ünï\nnew").write_text("hello\n")
    index = Path(tree.gitdir, "index").read_bytes()
    text = git.diff(host, tree)
    assert b"+3" in text and b"-b\n" in text and b"+hello" in text
    assert git.diff(host, tree, name_only=True, committed_only=True) == b"a.txt\n"
    assert b"3 files changed" in git.diff(host, tree, stat=True)
    assert b"\x1b[" in git.diff(host, tree, color=True)
    assert Path(tree.gitdir, "index").read_bytes() == index
    gone = tree._replace(workdir=tree.workdir + "\nno\\pe")
    nothing = git.Info(1, None, tip)  # its git dir is still there
    assert git.info(host, {1: gone, 2: tree, 3: tree}) == {
        1: nothing, 2: git.Info(1, 2, tip), 3: git.Info(1, 2, tip)
    }  # fmt: skip


def test_ignore_rules_that_are_in_no_gitignore_are_kept(host: LocalHost, root: Path, seed: Seed) -> None:
    (root / ".git/info").mkdir(exist_ok=True)
    (root / ".git/info/exclude").write_text("*.log\n")
    Path(os.environ["HOME"], ".config/git").mkdir(parents=True)
    Path(os.environ["HOME"], "ignored").write_text("*.tmp\n")
    run(root, "config", "--global", "core.excludesFile", "~/ignored")
    for mode in ("worktree", "mirror"):
        tree = seed(mode, mode)
        for name in ("x.log", "x.tmp"):
            Path(tree.workdir, name).write_text("x")
        assert git.info(host, {0: tree})[0].dirty == 0


@both
def test_fetch_brings_commits_and_asked_for_uncommitted_work(
    host: LocalHost, root: Path, seed: Seed, mode: str
) -> None:
    tree = seed(mode=mode)
    tip = commit(tree.workdir, "a.txt", "agent\n")
    got = git.fetch(host, tree, host, f"{root}/.git", "refs/heads/muster/foo")
    assert (got.tip, got.head, run(root, "rev-parse", "muster/foo")) == (tip, tip, tip)
    Path(tree.workdir, "new").write_text("uncommitted\n")
    got = git.fetch(host, tree, host, f"{root}/.git", "refs/muster/work/foo", uncommitted=True)
    assert run(root, "show", "refs/muster/work/foo:new") == "uncommitted"
    assert run(root, "rev-parse", f"{got.tip}^") == tip
    run(root, "fsck", "--strict")


def test_fetch_does_not_clobber_a_branch_unless_forced(host: LocalHost, root: Path, seed: Seed) -> None:
    tree = seed(mode="mirror")
    tip = commit(tree.workdir, "a.txt", "agent\n")
    ref = "refs/heads/muster/foo"
    git.fetch(host, tree, host, f"{root}/.git", ref)
    run(root, "checkout", "-q", "muster/foo")
    mine = commit(root, "mine", "mine\n")
    with pytest.raises(Refused, match="checked out"):
        git.fetch(host, tree, host, f"{root}/.git", ref)
    run(root, "checkout", "-q", "main")
    with pytest.raises(Refused, match="has commits the agent does not have"):
        git.fetch(host, tree, host, f"{root}/.git", ref)
    assert git.fetch(host, tree, host, f"{root}/.git", ref, force=True).old == mine
    assert run(root, "rev-parse", "muster/foo") == tip


def test_fetch_of_a_damaged_repository_fails_and_moves_nothing(host: LocalHost, root: Path, seed: Seed) -> None:
    tree = seed(mode="mirror")
    commit(tree.workdir, "a.txt", "agent\n")
    blob = run(tree.workdir, "rev-parse", "HEAD:a.txt")
    Path(tree.gitdir, "objects", blob[:2], blob[2:]).unlink()
    with pytest.raises(Exception, match="cannot pack"):
        git.fetch(host, tree, host, f"{root}/.git", "refs/heads/muster/foo")
    assert run(root, "branch", "--list", "muster/foo") == ""


def test_an_agent_with_uncommitted_work_can_be_cloned_in_both_modes(
    host: LocalHost, root: Path, seed: Seed, tmp_path: Path
) -> None:
    for mode in ("worktree", "mirror"):
        tree = seed(mode, mode)
        commit(tree.workdir, "c", "c\n")
        messy(tree.workdir)
        state = git.harvest(host, tree)
        places, what = (str(tmp_path / mode), str(tmp_path / f"{mode}.git")), ("muster/twin", state.head, state.state)
        if mode == "worktree":
            repo = git.find(host, str(root))
            assert repo
            git.bring(host, tree.shadow, host, repo.common, state.state)
            twin = git.seed_worktree(host, repo, *places, str(tmp_path / "twin.own"), "twin", *what)
        else:
            own = git.find(host, tree.workdir)
            assert own
            twin = git.seed_mirror(host, own._replace(common=tree.shadow), host, "twins", *places, *what)
        assert seen(twin.workdir)[:4] == seen(tree.workdir)[:4]
        assert files(twin.workdir) == files(tree.workdir)


@both
def test_the_branch_of_an_agent_can_be_renamed(host: LocalHost, root: Path, seed: Seed, mode: str) -> None:
    tree = git.rename(host, seed(mode=mode), "muster/bar")
    assert run(tree.workdir, "branch", "--show-current") == "muster/bar" == tree.branch
    run(tree.workdir, "branch", "taken")
    with pytest.raises(Refused, match="exists already"):
        git.rename(host, tree, "taken")


# --- hostile agents


def trap(path: Path, marker: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\ntouch '{marker}'\ncat\n")
    path.chmod(0o755)
    return path


HOOKS = "reference-transaction post-index-change post-checkout pre-commit fsmonitor-watchman pre-auto-gc"
RUNNERS = """
    core.fsmonitor core.sshCommand core.pager core.editor core.askPass core.alternateRefsCommand credential.helper
    filter.x.clean filter.x.smudge filter.x.process diff.x.command diff.x.textconv diff.external merge.x.driver
    gpg.program uploadpack.packObjectsHook alias.status
"""


@both
def test_nothing_of_an_agents_repository_runs(
    host: LocalHost, root: Path, seed: Seed, tmp_path: Path, mode: str
) -> None:
    tree, marker = seed(mode=mode), tmp_path / "ran"
    tip = commit(tree.workdir, "a.txt", "agent\n")
    program = trap(tmp_path / "evil", marker)
    for hook in HOOKS.split():
        trap(Path(tree.common, "hooks", hook), marker)
    for key in RUNNERS.split():
        run(tree.workdir, "config", "--file", f"{tree.common}/config", key, str(program))
    run(tree.workdir, "config", "--file", f"{tree.common}/config", "extensions.partialClone", "evil")
    run(tree.workdir, "config", "--file", f"{tree.common}/config", "remote.evil.url", f"ext::{program}")
    Path(tree.workdir, ".gitattributes").write_text("* filter=x diff=x merge=x\n")
    Path(tree.common, "info").mkdir(exist_ok=True)
    Path(tree.common, "info/attributes").write_text("* filter=x diff=x merge=x\n")
    nested = Path(tree.workdir, "nested")
    subprocess.run(["git", "init", "-q", str(nested)], check=True)
    subprocess.run(["git", "-C", str(nested), "config", "core.fsmonitor", str(program)], check=True)
    Path(tree.workdir, "new").write_text("new\n")

    assert b"+new" in git.diff(host, tree)
    assert git.info(host, {0: tree})[0][:2] == (1, 3)
    assert git.harvest(host, tree).nested == ("nested/",)
    git.snapshot_create(host, tree, "s1")
    target = tmp_path / "elsewhere.git"
    shutil.copytree(root / ".git", target)
    for name in ("config", "hooks", "info/attributes"):
        shutil.rmtree(target / name, ignore_errors=True) if name == "hooks" else (target / name).unlink(missing_ok=True)
    (target / "config").write_text("[core]\n\tbare = true\n")
    git.fetch(host, tree, host, str(target), "refs/heads/pulled", uncommitted=True)
    assert run(target, "rev-parse", "pulled^") == tip
    git.snapshot_restore(host, tree, "s1", "auto")
    git.push(host, tree.common, tip, host, tree)
    assert not marker.exists()
    # Nor does anything of it when the user goes on working.
    commit(root, "mine.txt", "mine\n")
    run(root, "status")
    run(root, "checkout", "-q", "-b", "another")
    run(root, "merge", "-q", "--no-edit", git.fetch(host, tree, host, f"{root}/.git").tip)
    run(root, "gc", "-q", "--auto")
    assert not marker.exists()


def test_a_git_dir_that_leads_elsewhere_is_not_followed(
    host: LocalHost, root: Path, seed: Seed, tmp_path: Path
) -> None:
    tree, worktree = seed("foo", "mirror"), seed("bar")
    shutil.rmtree(tree.gitdir)
    Path(tree.gitdir).symlink_to(root / ".git")
    for bad in (lambda: git.diff(host, tree), lambda: git.fetch(host, tree, host, f"{root}/.git")):
        with pytest.raises(Refused, match="not where muster put it"):
            bad()
    Path(tree.gitdir).unlink()
    Path(tree.gitdir).write_text(f"gitdir: {root}/.git\n")
    assert git.info(host, {0: tree})[0].head == ""
    tip = commit(worktree.workdir, "a.txt", "agent\n")
    Path(worktree.workdir, ".git").write_text("gitdir: /nowhere\n")
    assert git.info(host, {0: worktree})[0].head == tip


@both
def test_named_pipes_that_git_would_wait_for_are_refused(host: LocalHost, seed: Seed, mode: str) -> None:
    tree = seed(mode=mode)
    os.mkfifo(f"{tree.workdir}/just a pipe")
    assert git.info(host, {0: tree})[0].dirty == 0
    for name in (f"{tree.workdir}/sub/.gitignore", f"{tree.gitdir}/MERGE_HEAD"):
        os.mkfifo(name)
        with pytest.raises(Refused, match="named pipe"):
            git.diff(host, tree)
        assert git.info(host, {0: tree})[0].dirty is None
        os.unlink(name)


def test_a_hostile_tree_cannot_be_landed(host: LocalHost, root: Path, seed: Seed) -> None:
    tree = seed(mode="mirror")
    blob = run(tree.workdir, "rev-parse", "HEAD:a.txt")
    bad = subprocess.run(
        ["git", "mktree"],
        cwd=tree.workdir,
        input=f"100644 blob {blob}\t.git\n".encode(),
        capture_output=True,
        check=True,
    ).stdout.decode()
    evil = run(
        tree.workdir, "-c", "user.name=x", "-c", "user.email=x", "commit-tree", bad.strip(), "-p", "HEAD", "-m", "evil"
    )
    run(tree.workdir, "update-ref", "HEAD", evil)
    with pytest.raises(Exception, match="hasDotgit|git land"):
        git.fetch(host, tree, host, f"{root}/.git", "refs/heads/muster/foo")
    assert run(root, "branch", "--list", "muster/foo") == ""


# --- push and integrate


@both
def test_push_fast_forwards_keeps_other_uncommitted_work_and_becomes_the_base(
    host: LocalHost, root: Path, seed: Seed, mode: str
) -> None:
    tree = seed(mode=mode)
    Path(tree.workdir, "a.txt").write_text("mine\n")
    tip = commit(root, "sub/b.txt", "pushed\n")
    assert git.push(host, f"{root}/.git", tip, host, tree) == tip
    assert Path(tree.workdir, "sub/b.txt").read_text() == "pushed\n"
    assert run(tree.workdir, "status", "--porcelain") == " M a.txt"
    assert git.diff(host, tree, name_only=True) == b"a.txt\n"


@both
def test_push_never_overwrites_uncommitted_work(host: LocalHost, root: Path, seed: Seed, mode: str) -> None:
    tree = seed(mode=mode)
    Path(tree.workdir, "a.txt").write_text("mine\n")
    before = seen(tree.workdir)
    tip = commit(root, "a.txt", "pushed\n")
    with pytest.raises(Refused, match="overwrite uncommitted work.*a.txt"):
        git.push(host, f"{root}/.git", tip, host, tree)
    assert seen(tree.workdir)[:4] == before[:4]
    assert Path(tree.workdir, "a.txt").read_text() == "mine\n"


@both
def test_push_merges_on_request_and_names_conflicts(host: LocalHost, root: Path, seed: Seed, mode: str) -> None:
    tree = seed(mode=mode)
    mine = commit(tree.workdir, "a.txt", "agent\n")
    fits = commit(root, "sub/b.txt", "pushed\n")
    with pytest.raises(Refused, match="commits of its own"):
        git.push(host, f"{root}/.git", fits, host, tree)
    new = git.push(host, f"{root}/.git", fits, host, tree, merge=True)
    assert run(tree.workdir, "log", "-1", "--format=%P") == f"{mine} {fits}"
    assert run(tree.workdir, "status", "--porcelain") == ""
    clash = commit(root, "a.txt", "user\n")
    with pytest.raises(Refused, match="conflicts in a.txt"):
        git.push(host, f"{root}/.git", clash, host, tree, merge=True)
    assert run(tree.workdir, "rev-parse", "HEAD") == new
    run(tree.workdir, "fsck")


@pytest.fixture
def pulled(root: Path) -> str:
    run(root, "checkout", "-qb", "muster/foo")
    commit(root, "agent one", "1\n", "agent one")
    commit(root, "a.txt", "one\ntwo\n3\n", "agent two")
    run(root, "checkout", "-q", "main")
    commit(root, "mine", "mine\n", "mine")
    return "muster/foo"


@pytest.mark.parametrize(
    ("how", "log"),
    [
        ("merge", "M mine second first"),
        ("squash", "M mine second first"),
        ("rebase", "agent-two agent-one mine second first"),
    ],
)
def test_integrate_puts_the_work_into_what_is_checked_out(
    host: LocalHost, root: Path, pulled: str, how: str, log: str
) -> None:
    (root / "sub/b.txt").write_text("uncommitted\n")
    before = run(root, "rev-parse", "HEAD")
    old, new = git.integrate(host, str(root), pulled, how, "M")
    assert old == before != new
    assert run(root, "log", "--first-parent", "--format=%f").split("\n") == log.split()
    assert run(root, "log", "-1", "--format=%P").count(" ") == (how == "merge")
    assert run(root, "rev-parse", "main") == new
    assert run(root, "status", "--porcelain") == " M sub/b.txt"
    assert (root / "a.txt").read_text() == "one\ntwo\n3\n"
    if how == "rebase":
        assert run(root, "log", "-1", "--format=%an %cn") == "Bob Ann"
    again = git.integrate(host, str(root), pulled, "merge", "M")
    assert again == ((new, new) if how == "merge" else (new, run(root, "rev-parse", "HEAD")))


@pytest.mark.parametrize("how", ["merge", "squash", "rebase"])
def test_a_conflict_leaves_the_users_tree_as_it_was(host: LocalHost, root: Path, pulled: str, how: str) -> None:
    commit(root, "a.txt", "one\ntwo\nIII\n", "clash")
    (root / "sub/b.txt").write_text("uncommitted\n")
    run(root, "add", "-A")
    (root / "untracked").write_text("x")
    before = (seen(root), files(root), (root / ".git/index").read_bytes())
    with pytest.raises(Refused, match="conflicts in a.txt"):
        git.integrate(host, str(root), pulled, how)
    assert (seen(root), files(root), (root / ".git/index").read_bytes()) == before
    assert not (root / ".git/MERGE_HEAD").exists()


def test_integrate_refuses_to_overwrite_uncommitted_work(host: LocalHost, root: Path, pulled: str) -> None:
    (root / "a.txt").write_text("uncommitted\n")
    before = (seen(root), files(root))
    with pytest.raises(Refused, match="uncommitted work"):
        git.integrate(host, str(root), pulled, "merge")
    assert (seen(root), files(root)) == before


# --- copies


def test_a_copy_has_a_baseline_so_diff_and_patch_work(host: LocalHost, tmp_path: Path) -> None:
    origin, work = tmp_path / "origin", tmp_path / "work"
    (origin / "in").mkdir(parents=True)
    (origin / "in/a").write_text("one\n")
    (origin / "gone").write_text("x\n")
    run(origin / "in", "init", "-q", "nested")
    (origin / "in/nested/b").write_text("b\n")
    shutil.copytree(origin, work)
    tree = git.seed_copy(host, str(work), str(tmp_path / "shadow"))
    assert git.info(host, {0: tree})[0][:2] == (0, 0)
    (work / "in/a").write_text("two\n")
    (work / "in/nested/b").write_text("bb\n")
    (work / "gone").unlink()
    (work / "bin").write_bytes(bytes(range(256)))
    assert git.info(host, {0: tree})[0][:2] == (0, 4)
    git.patch(host, str(origin), git.diff(host, tree, binary=True))
    assert files(origin) == files(work)
    with pytest.raises(Refused, match="do not fit"):
        git.patch(host, str(origin), git.diff(host, tree, binary=True))
    git.snapshot_create(host, tree, "one")
    (work / "in/a").write_text("three\n")
    git.snapshot_restore(host, tree, "one", "auto")
    assert files(origin) == files(work)


def test_the_users_own_tree_can_be_watched_in_place(host: LocalHost, root: Path, tmp_path: Path) -> None:
    repo = git.find(host, str(root))
    assert repo
    tree = git.seed_in_place(host, repo, str(tmp_path / "shadow"))
    (root / "new").write_text("new\n")
    assert git.diff(host, tree, name_only=True) == b"new\n"


# --- an agent that damaged what git needs


def garbage(index: Path) -> None:
    index.write_text("garbage\n")


def cut(index: Path) -> None:
    index.write_bytes(index.read_bytes()[:40])


def a_folder(index: Path) -> None:
    index.unlink()
    index.mkdir()
    (index / "x").write_text("x\n")


def a_link(index: Path) -> None:
    index.rename(index.with_name("elsewhere"))
    index.symlink_to("elsewhere")


def unreadable(index: Path) -> None:
    index.chmod(0)


def without_objects(index: Path) -> None:
    run(workdir_of(index), "update-index", "--add", "--info-only", "--cacheinfo", f"100644,{'1234' * 10},staged")


def split(index: Path) -> None:
    run(workdir_of(index), "update-index", "--split-index")
    run(workdir_of(index), "add", "-N", "work.txt")
    for part in index.parent.glob("sharedindex.*"):
        part.unlink()


def workdir_of(index: Path) -> Path:
    return index.parent.parent if index.parent.name == ".git" else index.parent.with_name("work dir")


damages = pytest.mark.parametrize("damage", [garbage, cut, a_folder, a_link, unreadable, without_objects, split])


@both
@damages
def test_with_a_damaged_index_work_is_seen_and_kept_as_if_it_were_that_of_head(
    host: LocalHost, root: Path, seed: Seed, tmp_path: Path, mode: str, damage: Callable[[Path], None]
) -> None:
    tree = seed(mode=mode)
    tip = commit(tree.workdir, "c", "c\n")
    Path(tree.workdir, "a.txt").write_text("changed\n")
    Path(tree.workdir, "work.txt").write_text("w\n")
    damage(Path(tree.gitdir, "index"))
    assert git.diff(host, tree, name_only=True).split() == [b"a.txt", b"c", b"work.txt"]
    assert git.info(host, {0: tree}) == {0: git.Info(1, 3 if damage is without_objects else 2, tip)}
    assert git.harvest(host, tree).head == tip
    wip = git.fetch(host, tree, host, f"{root}/.git", "refs/heads/wip", uncommitted=True).tip
    assert run(root, "diff", "--name-only", tip, wip).split() == ["a.txt", "work.txt"]
    run(root, "gc", "-q", "--prune=now")
    run(root, "fsck")
    assert git.diff(host, tree, name_only=True).split() == [b"a.txt", b"c", b"work.txt"]
    git.snapshot_create(host, tree, "one")
    git.snapshot_restore(host, tree, "one", "auto")
    assert seen(tree.workdir)[3] == tip and Path(tree.workdir, "work.txt").read_text() == "w\n"


def test_push_to_an_agent_with_a_damaged_index_is_refused(host: LocalHost, root: Path, seed: Seed) -> None:
    tree = seed()
    garbage(Path(tree.gitdir, "index"))
    with pytest.raises(Refused, match="its index cannot be read"):
        git.push(host, f"{root}/.git", commit(root, "more", "more\n"), host, tree)


def test_a_worktree_whose_folder_is_gone_has_its_commits_still(host: LocalHost, root: Path, seed: Seed) -> None:
    Path(root, "a.txt").write_text("not committed by the user\n")
    tree = seed()
    Path(tree.workdir, "w").write_text("w\n")
    run(tree.workdir, "add", "w")
    run(tree.workdir, "commit", "-qm", "w")
    tip = run(tree.workdir, "rev-parse", "HEAD")
    shutil.rmtree(tree.workdir)
    assert git.info(host, {0: tree}) == {0: git.Info(1, None, tip)}
    assert git.diff(host, tree, name_only=True) == b"w\n"
    assert git.harvest(host, tree) == git.State(tip, tip)
    assert git.fetch(host, tree, host, f"{root}/.git").tip == tip
    assert git.fetch(host, tree, host, f"{root}/.git", "refs/heads/wip", uncommitted=True, force=True).tip == tip
    with pytest.raises(NotFound, match="is gone"):
        git.snapshot_create(host, tree, "one")


# --- the agent's own git directory


def test_an_agent_has_the_users_refs_settings_and_hooks_and_changes_only_its_own(
    host: LocalHost, root: Path, seed: Seed, tmp_path: Path
) -> None:
    run(tmp_path, "clone", "-q", "--bare", str(root), "origin.git")
    run(root, "remote", "add", "origin", str(tmp_path / "origin.git"))
    run(root, "fetch", "-q")
    run(root, "remote", "set-head", "origin", "main")
    run(root, "tag", "-a", "v1", "-m", "v1")
    run(root, "branch", "muster/other")
    run(root, "config", "alias.hi", "!echo hi there")
    run(root, "config", "core.autocrlf", "input")
    (tmp_path / "more.config").write_text("[alias]\n\tmore = !echo more\n")
    run(root, "config", "include.path", "../../more.config")
    hook = root / ".git/hooks/commit-msg"
    hook.write_text('#!/bin/sh\necho checked >>"$1"\n')
    hook.chmod(0o755)
    before = {path: path.read_bytes() for path in (root / ".git").rglob("*") if path.is_file()}

    tree = seed()
    ours = run(
        root, "for-each-ref", "--format=%(objectname) %(refname)", "refs/heads/main", "refs/tags", "refs/remotes"
    )
    assert run(tree.workdir, "for-each-ref", "--format=%(objectname) %(refname)").splitlines() == sorted(
        [*ours.splitlines(), f"{run(root, 'rev-parse', 'HEAD')} refs/heads/muster/foo"],
        key=lambda line: line.split()[1],
    )
    assert run(tree.workdir, "symbolic-ref", "refs/remotes/origin/HEAD") == "refs/remotes/origin/main"
    assert (run(tree.workdir, "hi"), run(tree.workdir, "more")) == ("hi there", "more")
    assert run(tree.workdir, "config", "core.autocrlf") == "input"
    commit(tree.workdir, "a.txt", "agent\n")
    assert run(tree.workdir, "log", "-1", "--format=%B") == "change\nchecked"
    run(tree.workdir, "push", "-q", "origin", "HEAD:refs/heads/theirs")

    run(tree.workdir, "config", "alias.hi", "!echo owned")
    run(tree.workdir, "branch", "-D", "main")
    run(tree.workdir, "tag", "-d", "v1")
    Path(run(tree.workdir, "rev-parse", "--git-path", "hooks"), "pre-commit").write_text("#!/bin/sh\nexit 1\n")
    git.drop(host, f"{root}/.git", "foo")
    assert {path: path.read_bytes() for path in (root / ".git").rglob("*") if path.is_file()} == before


def test_what_an_agent_borrows_outlives_a_prune_of_the_users_repository(
    host: LocalHost, root: Path, seed: Seed
) -> None:
    run(root, "checkout", "-q", "-b", "short-lived")
    base = commit(root, "a.txt", "short-lived\n")
    messy(str(root))
    tree = seed()
    run(root, "checkout", "-q", "-f", "main")
    run(root, "branch", "-D", "short-lived")
    run(root, "reflog", "expire", "--expire=now", "--all")
    run(root, "gc", "-q", "--prune=now")
    Path(tree.gitdir, "packed-refs").unlink()  # the user's branch as it was, which nobody promised to keep
    run(tree.workdir, "fsck", "--no-dangling")
    run(tree.workdir, "add", "-A")
    run(tree.workdir, "-c", "user.name=B", "-c", "user.email=b@example.com", "commit", "-qm", "all of it")
    git.fetch(host, tree, host, f"{root}/.git", "refs/heads/muster/foo")
    assert run(root, "rev-parse", "muster/foo^") == base
    git.drop(host, f"{root}/.git", "foo")
    git.drop(host, f"{root}/.git", "foo")
    assert run(root, "for-each-ref", "refs/muster") == ""


def test_a_git_dir_that_borrows_another_repository_is_refused(host: LocalHost, root: Path, seed: Seed) -> None:
    tree = seed()
    Path(tree.gitdir, "commondir").write_text(f"{root}/.git\n")
    Path(tree.gitdir, "HEAD").write_text("ref: refs/heads/main\n")
    before = run(root, "rev-parse", "HEAD")
    with pytest.raises(Refused, match="points to another repository"):
        git.push(host, f"{root}/.git", commit(root, "more", "more\n"), host, tree)
    assert run(root, "rev-parse", "main~1") == before


# --- snapshots


def messy(workdir: str) -> None:
    root = Path(workdir)
    (root / "a.txt").write_text("staged\n")
    run(root, "add", "a.txt")
    (root / "a.txt").write_text("unstaged\n")
    (root / "new file").write_text("untracked\n")
    run(root, "rm", "-q", "sub/b.txt")


@both
def test_a_restored_snapshot_is_what_it_was_and_what_was_there_is_kept(host: LocalHost, seed: Seed, mode: str) -> None:
    tree = seed(mode=mode)
    commit(tree.workdir, "c", "c\n")
    messy(tree.workdir)
    before = (seen(tree.workdir), files(tree.workdir))
    git.snapshot_create(host, tree, "one", "a comment")
    commit(tree.workdir, "later", "later\n")
    Path(tree.workdir, "stray").write_text("stray\n")
    after = (seen(tree.workdir), files(tree.workdir))
    git.snapshot_restore(host, tree, "one", "auto-1")
    assert (seen(tree.workdir), files(tree.workdir)) == before
    comments = {snapshot.id: snapshot.comment for snapshot in git.snapshot_list(host, tree)}
    assert comments == {"one": "a comment", "auto-1": "before restoring one"}
    git.snapshot_restore(host, tree, "auto-1", "auto-2")
    assert (seen(tree.workdir), files(tree.workdir)) == after
    git.snapshot_delete(host, tree, "one")
    with pytest.raises(NotFound):
        git.snapshot_restore(host, tree, "one", "auto-3")


@both
def test_snapshots_survive_the_work_dir(host: LocalHost, seed: Seed, mode: str) -> None:
    tree = seed(mode=mode)
    commit(tree.workdir, "c", "c\n")
    messy(tree.workdir)
    before = (seen(tree.workdir), files(tree.workdir))
    git.snapshot_create(host, tree, "one")
    shutil.rmtree(tree.workdir)
    git.snapshot_restore(host, tree, "one", "auto")
    assert (seen(tree.workdir), files(tree.workdir)) == before
    run(tree.workdir, "fsck")


def test_an_unfinished_merge_of_an_agent_can_be_harvested(host: LocalHost, seed: Seed) -> None:
    tree = seed()
    run(tree.workdir, "checkout", "-qb", "other")
    run(tree.workdir, "rm", "-q", "sub/b.txt")
    commit(tree.workdir, "a.txt", "theirs\n")
    run(tree.workdir, "checkout", "-q", "muster/foo")
    commit(tree.workdir, "a.txt", "ours\n")
    run(tree.workdir, "merge", "other", check=False)
    assert b"<<<<<<<" in git.diff(host, tree)
    git.snapshot_create(host, tree, "one")
    run(tree.workdir, "merge", "--abort")
    git.snapshot_restore(host, tree, "one", "auto")
    assert "<<<<<<<" in Path(tree.workdir, "a.txt").read_text() and not Path(tree.workdir, "sub/b.txt").exists()


def test_unique_counts_commits_nobody_else_has(host: LocalHost, root: Path, seed: Seed) -> None:
    tree = seed()
    commit(tree.workdir, "one", "1\n")
    tip = commit(tree.workdir, "two", "2\n")
    git.fetch(host, tree, host, f"{root}/.git", "refs/heads/muster/foo")
    assert git.unique(host, f"{root}/.git", tip, "muster/foo") == 2
    run(root, "tag", "kept", f"{tip}~1")
    assert git.unique(host, f"{root}/.git", tip, "muster/foo") == 1
    run(root, "merge", "-q", "muster/foo")
    assert git.unique(host, f"{root}/.git", tip, "muster/foo") == 0
