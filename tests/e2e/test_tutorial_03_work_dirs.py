"""Tutorial section 3, Where an agent works: worktrees, branches, mirrors, copies, the folder itself, other sources."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from muster.tutorial import E2eSession, expect

from .conftest import agents, outside


def ended(e2e: E2eSession, name: str) -> dict[str, Any]:
    """The agent after its end; `last_line` is the last that it said."""
    outside(e2e, "muster", "wait", name, "--timeout", "30s")
    return agents(e2e)[name]


def git(e2e: E2eSession, *argv: str, cwd: Path | None = None) -> str:
    return outside(e2e, "git", *argv, cwd=cwd).rstrip("\n")


def leave_work_uncommitted(e2e: E2eSession) -> str:
    """Staged, unstaged, deleted and untracked; returns what git says of it."""
    (e2e.work / "README").write_text("changed\n")
    (e2e.work / "staged.txt").write_text("staged\n")
    git(e2e, "add", "staged.txt")
    (e2e.work / "src" / "app.py").unlink()
    (e2e.work / "untracked.txt").write_text("untracked\n")
    status = git(e2e, "status", "--short")
    assert status == " M README\n D src/app.py\nA  staged.txt\n?? untracked.txt"
    return status


def commit(e2e: E2eSession, message: str) -> str:
    git(e2e, "commit", "-q", "--allow-empty", "-m", message)
    return git(e2e, "rev-parse", "HEAD")


def make_plain_folder(e2e: E2eSession) -> Path:
    plain = e2e.work.parent / "plain"
    plain.mkdir()
    (plain / "list.txt").write_text("one\n")
    return plain


# Worktrees and branches


def test_a_worktree_has_your_uncommitted_work_and_your_tree_stays_as_it_is(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # In a git repository the agent gets a worktree on branch muster/NAME. Your uncommitted work comes along, your tree stays as it is.
    muster create in-worktree command --mode worktree --no-connect -- git status
    """)
    status = leave_work_uncommitted(e2e)
    result = e2e.run(
        "muster create in-worktree command --mode worktree --no-connect -- git status",
        comment="In a git repository the agent gets a worktree on branch muster/NAME.",
    )
    expect(result).to_succeed()
    agent = ended(e2e, "in-worktree")
    assert (agent["state"], agent["mode"], agent["branch"]) == ("done", "worktree", "muster/in-worktree")
    assert git(e2e, "worktree", "list").count("\n") == 0, "its git directory is its own"
    assert git(e2e, "status", "--short", cwd=Path(agent["workdir"])) == status
    assert Path(agent["workdir"], "untracked.txt").read_text() == "untracked\n"
    assert git(e2e, "status", "--short") == status
    assert git(e2e, "branch", "--show-current") == "main"


def test_what_the_agent_does_in_its_worktree_does_not_show_in_yours(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # In a git repository the agent gets a worktree on branch muster/NAME. Your uncommitted work comes along, your tree stays as it is.
    muster create in-worktree command --mode worktree --no-connect -- git status
    """)
    e2e.run(
        "muster create in-worktree command --mode worktree --no-connect"
        " -- sh -c 'echo theirs > README; git commit -qam Theirs'",
        comment="An agent that changes a file and commits.",
    )
    agent = ended(e2e, "in-worktree")
    assert agent["state"] == "done"
    assert (e2e.work / "README").read_text() == "hello\n"
    assert git(e2e, "for-each-ref", "--format=%(refname:short)", "refs/heads") == "main"
    assert git(e2e, "log", "--format=%s", "main") == "first"
    log = git(e2e, "log", "--format=%s", "muster/in-worktree", cwd=Path(agent["workdir"]))
    assert log == "Theirs\nfirst"


def test_from_a_sub_folder_the_agent_starts_in_the_same_sub_folder(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # In a git repository the agent gets a worktree on branch muster/NAME. Your uncommitted work comes along, your tree stays as it is.
    muster create in-worktree command --mode worktree --no-connect -- git status
    """)
    e2e.run("muster create in-worktree command --mode worktree --no-connect -- pwd", comment="From src.", cwd="src")
    agent = ended(e2e, "in-worktree")
    assert agent["last_line"] == f"{agent['workdir']}/src"


def test_a_worktree_of_a_folder_without_git_is_refused_with_the_mode_that_works(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # In a git repository the agent gets a worktree on branch muster/NAME. Your uncommitted work comes along, your tree stays as it is.
    muster create in-worktree command --mode worktree --no-connect -- git status
    """)
    plain = make_plain_folder(e2e)
    result = e2e.run(
        "muster create in-worktree command --mode worktree --no-connect -- git status",
        comment="Here is no git.",
        cwd=plain,
    )
    expect(result).to_fail()
    expect(result.stderr).to_contain("is not in a git repository")
    expect(result.stderr).to_contain("--mode copy works without one")
    assert agents(e2e) == {}


def test_clean_starts_from_the_commit(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Leave your uncommitted work out: start from the commit.
    muster create from-commit command --clean --no-connect -- git status
    """)
    status = leave_work_uncommitted(e2e)
    result = e2e.run("muster create from-commit command --clean --no-connect -- git status", comment="Leave it out.")
    expect(result).to_succeed()
    agent = ended(e2e, "from-commit")
    assert agent["last_line"] == "nothing to commit, working tree clean"
    assert Path(agent["workdir"], "README").read_text() == "hello\n"
    assert not Path(agent["workdir"], "untracked.txt").exists()
    assert git(e2e, "status", "--short") == status


def test_an_agent_starts_from_another_branch(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Start from another branch, tag or commit.
    muster create from-main command --branch main --no-connect -- git log -1
    """)
    git(e2e, "switch", "-q", "-c", "feature")
    commit(e2e, "of the feature")
    result = e2e.run("muster create from-main command --branch main --no-connect -- git log -1", comment="From main.")
    expect(result).to_succeed()
    agent = ended(e2e, "from-main")
    assert (agent["last_line"], agent["branch"]) == ("first", "muster/from-main")
    assert agent["base"] == git(e2e, "rev-parse", "main")


def test_an_agent_starts_from_a_tag_or_a_commit(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Start from another branch, tag or commit.
    muster create from-main command --branch main --no-connect -- git log -1
    """)
    git(e2e, "tag", "v1")
    second, _ = commit(e2e, "second"), commit(e2e, "third")
    e2e.run("muster create from-tag command --branch v1 --no-connect -- git log -1 --format=%s", comment="A tag.")
    e2e.run(f"muster create from-hash command --branch {second[:10]} --no-connect -- git log -1 --format=%s")
    assert ended(e2e, "from-tag")["last_line"] == "first"
    assert ended(e2e, "from-hash")["last_line"] == "second"


def test_a_branch_that_there_is_not_is_named_and_nothing_is_made(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Start from another branch, tag or commit.
    muster create from-main command --branch main --no-connect -- git log -1
    """)
    result = e2e.run("muster create from-main command --branch mian --no-connect -- git log -1", comment="A slip.")
    expect(result).to_exit_with(3)
    expect(result.stderr).to_contain("there is no branch or commit 'mian'")
    expect(result.stderr).to_contain("git branch --list")
    assert agents(e2e) == {}
    assert git(e2e, "branch", "--format=%(refname:short)") == "main"


def test_the_new_branch_has_the_name_that_you_choose(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Choose the name of the new branch.
    muster create named-branch command --branch :topic/login --no-connect -- git branch --show-current
    """)
    result = e2e.run(
        "muster create named-branch command --branch :topic/login --no-connect -- git branch --show-current",
        comment="Choose the name of the new branch.",
    )
    expect(result).to_succeed()
    agent = ended(e2e, "named-branch")
    assert (agent["last_line"], agent["branch"]) == ("topic/login", "topic/login")
    outside(e2e, "muster", "pull", "named-branch")
    assert git(e2e, "branch", "--format=%(refname:short)") == "main\ntopic/login"


def test_a_branch_that_exists_is_not_taken_over(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Choose the name of the new branch.
    muster create named-branch command --branch :topic/login --no-connect -- git branch --show-current
    """)
    git(e2e, "branch", "topic/login")
    result = e2e.run("muster create named-branch command --branch :topic/login --no-connect -- true", comment="Taken.")
    expect(result).to_exit_with(5)
    expect(result.stderr).to_contain("the branch topic/login exists already")
    expect(result.stderr).to_contain("choose another name")
    assert agents(e2e) == {}
    assert git(e2e, "branch", "--format=%(refname:short)") == "main\ntopic/login"


def test_both_the_start_and_the_name_can_be_chosen(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Both: start from main, work on topic/pay.
    muster create both command --branch main:topic/pay --no-connect -- git branch --show-current
    """)
    git(e2e, "switch", "-q", "-c", "feature")
    commit(e2e, "of the feature")
    result = e2e.run(
        "muster create both command --branch main:topic/pay --no-connect -- git branch --show-current", comment="Both."
    )
    expect(result).to_succeed()
    assert ended(e2e, "both")["last_line"] == "topic/pay"
    outside(e2e, "muster", "pull", "both")
    assert git(e2e, "rev-parse", "topic/pay") == git(e2e, "rev-parse", "main")


# Mirrors, copies, in place


def test_a_mirror_is_a_clone_whose_commits_come_back_only_by_pull(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # A clone of its own. Its commits come back only when you pull.
    muster create own-clone command --mode mirror --no-connect -- git log -1
    """)
    result = e2e.run("muster create own-clone command --mode mirror --no-connect -- git log -1", comment="A clone.")
    expect(result).to_succeed()
    agent = ended(e2e, "own-clone")
    assert (agent["mode"], agent["last_line"]) == ("mirror", "first")
    assert Path(agent["workdir"], ".git").is_dir()
    e2e.run("muster exec own-clone -- git commit -q --allow-empty -m there", comment="A commit in the clone.")
    assert git(e2e, "branch", "--list", "muster/*") == ""
    expect(e2e.run("muster pull own-clone", comment="Its commits come back only when you pull.")).to_succeed()
    assert git(e2e, "log", "-1", "--format=%s", "muster/own-clone") == "there"


def test_a_mirror_has_your_uncommitted_work_too(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # A clone of its own. Its commits come back only when you pull.
    muster create own-clone command --mode mirror --no-connect -- git log -1
    """)
    status = leave_work_uncommitted(e2e)
    e2e.run("muster create own-clone command --mode mirror --no-connect -- git log -1", comment="Not all committed.")
    agent = ended(e2e, "own-clone")
    assert git(e2e, "status", "--short", cwd=Path(agent["workdir"])) == status
    assert git(e2e, "status", "--short") == status


def test_a_folder_without_git_is_copied_and_diff_and_pull_work(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # A folder without git is copied. diff and pull work all the same.
    mkdir -p ../plain && echo one > ../plain/list.txt
    muster create copied command --mode copy --from ../plain --no-connect -- sh -c 'echo two >> list.txt'
    """)
    e2e.run("mkdir -p ../plain && echo one > ../plain/list.txt", comment="A folder without git.")
    result = e2e.run(
        "muster create copied command --mode copy --from ../plain --no-connect -- sh -c 'echo two >> list.txt'",
        comment="It is copied.",
    )
    expect(result).to_succeed()
    agent = ended(e2e, "copied")
    original = e2e.work.parent / "plain" / "list.txt"
    assert (agent["state"], agent["mode"], agent["branch"]) == ("done", "copy", None)
    assert original.read_text() == "one\n"
    assert Path(agent["workdir"], "list.txt").read_text() == "one\ntwo\n"
    expect(e2e.run("muster diff copied", comment="diff works all the same.").stdout).to_match(r"^ one\n\+two$")
    looked = e2e.run("muster pull copied", comment="Pull merges nothing unless you say so.")
    expect(looked).to_succeed()
    expect(looked.stderr).to_contain("muster pull copied --merge")
    assert original.read_text() == "one\n"
    expect(e2e.run("muster pull copied --merge", comment="And pull.")).to_succeed()
    assert original.read_text() == "one\ntwo\n"


def test_in_place_is_the_folder_itself_and_destroy_never_removes_it(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Work in the folder itself. destroy never removes it.
    muster create right-here command --mode in-place --no-connect -- ls
    """)
    (e2e.work / "mine.txt").write_text("mine\n")
    result = e2e.run("muster create right-here command --mode in-place --no-connect -- ls", comment="In the folder.")
    expect(result).to_succeed()
    agent = ended(e2e, "right-here")
    assert (agent["mode"], agent["workdir"]) == ("in-place", str(e2e.work))
    assert agent["branch"] == "main"
    expect(e2e.run("muster capture right-here").stdout).to_contain("mine.txt")
    expect(e2e.run("muster destroy right-here", comment="destroy never removes it.")).to_succeed()
    assert agents(e2e) == {}
    assert (e2e.work / "mine.txt").read_text() == "mine\n"
    assert git(e2e, "status", "--short") == "?? mine.txt"


def test_pull_of_an_in_place_agent_says_that_there_is_nothing_to_do(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Work in the folder itself. destroy never removes it.
    muster create right-here command --mode in-place --no-connect -- ls
    """)
    outside(e2e, "muster", "create", "right-here", "command", "--mode", "in-place", "--no-connect", "--", "ls")
    result = e2e.run("muster pull right-here", comment="Its work is here already.")
    expect(result).to_succeed()
    expect(result.stderr).to_equal("right-here: nothing to pull, it works in your own folder\n")
    assert git(e2e, "branch", "--format=%(refname:short)") == "main"


# Other sources


def test_an_agent_starts_from_another_folder(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Start from another folder than the one you are in.
    muster create elsewhere command --from ../plain --no-connect -- ls
    """)
    plain = make_plain_folder(e2e)
    result = e2e.run("muster create elsewhere command --from ../plain --no-connect -- ls", comment="Another folder.")
    expect(result).to_succeed()
    agent = ended(e2e, "elsewhere")
    assert (agent["last_line"], agent["mode"], agent["repo"]) == ("list.txt", "copy", str(plain))


def test_a_folder_that_there_is_not_is_named(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Start from another folder than the one you are in.
    muster create elsewhere command --from ../plain --no-connect -- ls
    """)
    result = e2e.run("muster create elsewhere command --from ../plain --no-connect -- ls", comment="Not there.")
    expect(result).to_exit_with(3)
    expect(result.stderr).to_contain("--from ../plain: there is no such folder and no such agent")
    assert agents(e2e) == {}


def test_an_agent_starts_from_what_another_one_has_committed_or_not(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Start from what another agent has now, committed or not.
    muster create second-look command --from greet --no-connect -- git log --oneline -2
    """)
    work = "echo hello > greet.txt; git add .; git commit -qm 'Add a greeting'; echo draft > draft.txt"
    outside(e2e, "muster", "create", "greet", "command", "--no-connect", "--", "sh", "-c", work)
    ended(e2e, "greet")
    result = e2e.run(
        "muster create second-look command --from greet --no-connect -- git log --oneline -2", comment="From greet."
    )
    expect(result).to_succeed()
    agent = ended(e2e, "second-look")
    workdir = Path(agent["workdir"])
    assert git(e2e, "log", "--format=%s", "muster/second-look", cwd=workdir) == "Add a greeting\nfirst"
    assert (workdir / "draft.txt").read_text() == "draft\n"
    assert git(e2e, "status", "--short", cwd=workdir) == "?? draft.txt"
    assert workdir != Path(agents(e2e)["greet"]["workdir"])
    shown = e2e.run("muster capture second-look").stdout
    expect(shown).to_match(r"^\w+ .*Add a greeting")
    expect(shown).to_match(r"^\w+ .*first")


def test_an_agent_that_there_is_not_cannot_be_started_from(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Start from what another agent has now, committed or not.
    muster create second-look command --from greet --no-connect -- git log --oneline -2
    """)
    result = e2e.run("muster create second-look command --from gret --no-connect -- ls", comment="A misspelt name.")
    expect(result).to_exit_with(3)
    expect(result.stderr).to_contain("--from gret: there is no such folder and no such agent")
    expect(result.stderr).to_contain("muster list")
    assert agents(e2e) == {}


def test_an_agent_starts_from_a_repository_that_you_do_not_have_here(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Start from a repository that you do not have here.
    muster create fresh command --from https://git.example.com/shop.git --no-connect -- ls
    """)
    # git itself leads the address to a folder of the test, as a company's insteadOf would.
    shop = e2e.work.parent / "shop.git"
    outside(e2e, "git", "clone", "-q", "--bare", ".", str(shop))
    config = e2e.home / ".gitconfig"
    config.write_text(f'{config.read_text()}[url "file://{shop}"]\n\tinsteadOf = https://git.example.com/shop.git\n')
    elsewhere = e2e.work.parent / "empty"
    elsewhere.mkdir()
    result = e2e.run(
        "muster create fresh command --from https://git.example.com/shop.git --no-connect -- ls",
        comment="Start from a repository that you do not have here.",
        cwd=elsewhere,
    )
    expect(result).to_succeed()
    agent = ended(e2e, "fresh")
    assert (agent["state"], agent["branch"]) == ("done", "muster/fresh")
    workdir = Path(agent["workdir"])
    assert (workdir / "src" / "app.py").is_file()
    assert git(e2e, "log", "--format=%s", cwd=workdir) == "first"
    assert list(elsewhere.iterdir()) == []


def test_a_repository_that_cannot_be_cloned_leaves_no_agent(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Start from a repository that you do not have here.
    muster create fresh command --from https://git.example.com/shop.git --no-connect -- ls
    """)
    nowhere = f"file://{e2e.work.parent}/nothing.git"
    result = e2e.run(f"muster create fresh command --from {nowhere} --no-connect -- ls", comment="No such repository.")
    expect(result).to_exit_with(1)
    expect(result.stderr).to_contain(f"cannot clone {nowhere}")
    expect(result.stderr).to_contain("git ls-remote")
    assert agents(e2e) == {}
