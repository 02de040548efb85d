"""Tutorial section 8, Bringing work home: diff, pull and push between the user's repository and the agents'."""

from __future__ import annotations

import json

from muster.tutorial import E2eSession, expect

from .conftest import outside

PLAYBOOK = """
[[step]]
write = "greet.txt"
text = "hello\\n"
[[step]]
commit = "Add a greeting"
[[step]]
ask = "Shall I also say goodbye?"
"""


def replay(e2e: E2eSession, name: str, *options: str) -> None:
    """An agent with one commit that asks something. In a clone of its own nothing is here before it is pulled."""
    (e2e.work.parent / "greet.toml").write_text(PLAYBOOK)
    make = ("muster", "create", name, "replay", "--mode", "mirror", "--no-connect", *options, "--", "../greet.toml")
    outside(e2e, *make)
    outside(e2e, "muster", "wait", f"{name}*", "--until", "waiting", "--timeout", "60s")


def command(e2e: E2eSession, name: str, script: str, *options: str) -> None:
    """An agent that has done what the script says."""
    outside(e2e, "muster", "create", name, "command", "--no-connect", *options, "--", "sh", "-ec", script)
    outside(e2e, "muster", "wait", name, "--until", "done", "--timeout", "60s")


def commit(e2e: E2eSession, path: str, subject: str) -> str:
    """A commit of the user's; returns its id."""
    (e2e.work / path).write_text(f"{subject}\n")
    outside(e2e, "git", "add", path)
    outside(e2e, "git", "commit", "-q", "-m", subject)
    return tip(e2e, "HEAD")


def tip(e2e: E2eSession, ref: str) -> str:
    return outside(e2e, "git", "rev-parse", "--verify", "-q", ref).strip()


def tip_of(e2e: E2eSession, name: str) -> str:
    return outside(e2e, "muster", "exec", name, "--", "git", "rev-parse", "HEAD").strip()


def subjects(e2e: E2eSession, ref: str = "HEAD") -> list[str]:
    return outside(e2e, "git", "log", "--format=%s", ref).splitlines()


def files(e2e: E2eSession, ref: str) -> list[str]:
    return outside(e2e, "git", "ls-tree", "-r", "--name-only", ref).splitlines()


# diff


def draft(e2e: E2eSession) -> None:
    """greet has a commit, a change and a new file."""
    replay(e2e, "greet")
    outside(e2e, "muster", "exec", "greet", "--", "sh", "-c", "echo draft > draft.txt; echo more >> README")


def test_diff_shows_commits_and_what_is_not_committed(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # What did the agent change? Commits, and what it has not committed.
    muster diff greet
    """)
    draft(e2e)
    result = e2e.run("muster diff greet", comment="What did the agent change?")
    expect(result).to_succeed()
    expect(result.stdout).to_match(r"^\+\+\+ b/greet.txt\n@@ .*\n\+hello$")
    expect(result.stdout).to_match(r"^\+\+\+ b/draft.txt\n@@ .*\n\+draft$")
    expect(result.stdout).to_match(r"^ hello\n\+more$")


def test_diff_is_a_patch_that_git_applies(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # What did the agent change? Commits, and what it has not committed.
    muster diff greet
    """)
    draft(e2e)
    expect(e2e.run("muster diff greet | git apply")).to_succeed()
    assert (e2e.work / "greet.txt").read_text() == "hello\n"
    assert (e2e.work / "README").read_text() == "hello\nmore\n"


def test_diff_of_an_agent_that_changed_nothing_is_empty(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # What did the agent change? Commits, and what it has not committed.
    muster diff greet
    """)
    command(e2e, "idle", "true")
    result = e2e.run("muster diff idle")
    expect(result).to_succeed()
    expect(result.stdout).to_be_empty()


def test_diff_of_an_unknown_agent_lists_those_there_are(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # What did the agent change? Commits, and what it has not committed.
    muster diff greet
    """)
    command(e2e, "idle", "true")
    result = e2e.run("muster diff greet")
    expect(result).to_exit_with(3)
    expect(result.stderr).to_contain("there is no agent greet")
    expect(result.stderr).to_contain("agents: idle")


def test_diff_stat_says_how_much_file_by_file(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Only how much, file by file.
    muster diff greet --stat
    """)
    draft(e2e)
    result = e2e.run("muster diff greet --stat", comment="Only how much, file by file.")
    expect(result).to_succeed()
    for name in ("README", "draft.txt", "greet.txt"):
        expect(result.stdout).to_match(rf"^ {name} +\| 1 \+$")
    expect(result.stdout).to_contain("3 files changed, 3 insertions(+)")


def test_diff_can_leave_out_what_is_not_committed(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Only the names of the files, and only of what is committed.
    muster diff greet --name-only --committed
    """)
    draft(e2e)
    result = e2e.run("muster diff greet --name-only --committed", comment="Only the names of committed files.")
    expect(result).to_succeed()
    expect(result.stdout).to_equal("greet.txt\n")
    expect(e2e.run("muster diff greet --name-only").stdout).to_equal("README\ndraft.txt\ngreet.txt\n")


# pull: commits to a branch


def test_pull_brings_the_branch_and_leaves_the_checkout_alone(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Bring its commits to branch muster/greet of your repository. What you have checked out stays as it is.
    muster pull greet
    git log --oneline -1 muster/greet
    """)
    replay(e2e, "greet")
    head = tip(e2e, "HEAD")
    assert not tip(e2e, "muster/greet")
    result = e2e.run("muster pull greet", comment="Bring its commits to branch muster/greet of your repository.")
    expect(result).to_succeed()
    expect(result.stderr).to_contain("1 commit ahead of where it began")
    expect(e2e.run("git log --oneline -1 muster/greet").stdout).to_match(r"^\w+ Add a greeting$")
    assert tip(e2e, "muster/greet") == tip_of(e2e, "greet")
    assert tip(e2e, "HEAD") == head
    assert not (e2e.work / "greet.txt").exists()


def test_pull_says_what_it_did_not_bring(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Bring its commits to branch muster/greet of your repository. What you have checked out stays as it is.
    muster pull greet
    git log --oneline -1 muster/greet
    """)
    draft(e2e)
    expect(e2e.run("muster pull greet").stderr).to_contain(
        "2 files not committed and not brought: README, draft.txt\n  muster pull greet --uncommitted brings them too"
    )


def test_pull_goes_to_the_repository_the_agent_came_from(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Bring its commits to branch muster/greet of your repository. What you have checked out stays as it is.
    muster pull greet
    git log --oneline -1 muster/greet
    """)
    replay(e2e, "greet")
    expect(e2e.run("muster pull greet", cwd="..", comment="From anywhere.")).to_succeed()
    assert subjects(e2e, "muster/greet") == ["Add a greeting", "first"]


def test_pull_without_a_name_says_how_agents_are_chosen(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Bring its commits to branch muster/greet of your repository. What you have checked out stays as it is.
    muster pull greet
    git log --oneline -1 muster/greet
    """)
    result = e2e.run("muster pull")
    expect(result).to_exit_with(2)
    expect(result.stderr).to_contain("no agent was named")
    expect(result.stderr).to_contain("--all")


# pull: into the checkout


def test_pull_merge_merges_into_the_checkout(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Bring them and merge them into what you have checked out.
    muster pull greet --merge
    """)
    replay(e2e, "greet")
    mine = commit(e2e, "mine.txt", "A change of mine")
    result = e2e.run("muster pull greet --merge", comment="Bring them and merge them.")
    expect(result).to_succeed()
    assert (e2e.work / "greet.txt").read_text() == "hello\n"
    parents = outside(e2e, "git", "log", "-1", "--format=%P").split()
    assert parents == [mine, tip_of(e2e, "greet")]
    moved = f"HEAD moved from {mine[:10]} to {tip(e2e, 'HEAD')[:10]}"
    expect(result.stderr).to_contain(f"greet: merged muster/greet into {e2e.work}: {moved}\n")


def test_a_second_pull_merge_says_that_nothing_was_merged(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Bring them and merge them into what you have checked out.
    muster pull greet --merge
    """)
    replay(e2e, "greet")
    expect(e2e.run("muster pull greet --merge")).to_succeed()
    head = tip(e2e, "HEAD")
    result = e2e.run("muster pull greet --merge", comment="All of it is here already.")
    expect(result).to_succeed()
    expect(result.stderr).to_contain("nothing to merge: everything on muster/greet is already in")
    expect(result.stderr).not_to_contain("merged")
    row = json.loads(e2e.run("muster pull greet --merge --json").stdout)["results"][0]
    assert (row["merged"], row["from"], row["to"], row["uncommitted"]) == (False, head, head, [])


def test_pull_merge_of_uncommitted_work_says_that_nothing_was_merged(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Bring them and merge them into what you have checked out.
    muster pull greet --merge
    """)
    command(e2e, "greet", "echo hello > greet.txt; echo more >> README")
    head = tip(e2e, "HEAD")
    result = e2e.run("muster pull greet --merge", comment="It has not committed anything.")
    expect(result).to_succeed()
    expect(result.stderr).to_contain("nothing to merge: muster/greet has no commit of its own\n")
    expect(result.stderr).to_contain("2 files not committed and not brought: README, greet.txt\n")
    expect(result.stderr).to_contain("muster pull greet --merge --uncommitted brings them too")
    row = json.loads(e2e.run("muster pull greet --merge --json").stdout)["results"][0]
    assert (row["merged"], row["from"], row["uncommitted"]) == (False, head, ["README", "greet.txt"])
    expect(e2e.run("muster pull greet --merge --uncommitted").stderr).to_contain("merged muster/greet-wip into")
    assert (e2e.work / "greet.txt").read_text() == "hello\n"


def test_a_merge_that_conflicts_leaves_the_checkout_as_it_was(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Bring them and merge them into what you have checked out.
    muster pull greet --merge
    """)
    replay(e2e, "greet")
    mine = commit(e2e, "greet.txt", "Good morning")
    result = e2e.run("muster pull greet --merge", comment="Both have a greet.txt.")
    expect(result).to_fail()
    expect(result.stderr).to_contain("greet.txt")
    assert tip(e2e, "HEAD") == mine
    assert outside(e2e, "git", "status", "--porcelain") == ""
    assert tip(e2e, "muster/greet") == tip_of(e2e, "greet"), "the commits are here all the same"


def test_pull_rebase_puts_the_commits_on_top_of_mine(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Bring them and put them on top of your own commits.
    muster pull try-1 --rebase
    """)
    replay(e2e, "try-1")
    commit(e2e, "mine.txt", "A change of mine")
    expect(e2e.run("muster pull try-1 --rebase", comment="Bring them and put them on top.")).to_succeed()
    assert subjects(e2e) == ["Add a greeting", "A change of mine", "first"]
    assert (e2e.work / "greet.txt").read_text() == "hello\n"
    assert outside(e2e, "git", "branch", "--show-current") == "main\n"


def test_pull_squash_brings_all_commits_as_one(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Bring them as one commit.
    muster pull try-2 --squash
    """)
    replay(e2e, "try-2")
    outside(e2e, "muster", "exec", "try-2", "--", "sh", "-c", "echo bye >> greet.txt; git commit -qam 'Say goodbye'")
    mine = commit(e2e, "mine.txt", "A change of mine")
    expect(e2e.run("muster pull try-2 --squash", comment="Bring them as one commit.")).to_succeed()
    assert outside(e2e, "git", "log", "-1", "--format=%P").strip() == mine
    assert (e2e.work / "greet.txt").read_text() == "hello\nbye\n"
    assert "try-2" in outside(e2e, "git", "log", "-1", "--format=%s"), "it says whose work it is"
    assert outside(e2e, "git", "status", "--porcelain") == ""


def test_ways_to_pull_exclude_each_other(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Bring them as one commit.
    muster pull try-2 --squash
    """)
    result = e2e.run("muster pull try-2 --squash --rebase")
    expect(result).to_exit_with(2)
    expect(result.stderr).to_contain("not allowed with")


def test_pull_uncommitted_makes_one_commit_on_a_branch_of_its_own(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Also bring what the agent has not committed. It becomes one commit on branch muster/NAME-wip.
    muster exec try-3 -- sh -c 'echo draft > draft.txt'
    muster pull try-3 --uncommitted
    """)
    replay(e2e, "try-3")
    expect(e2e.run("muster exec try-3 -- sh -c 'echo draft > draft.txt'")).to_succeed()
    result = e2e.run("muster pull try-3 --uncommitted", comment="Also bring what the agent has not committed.")
    expect(result).to_succeed()
    expect(result.stderr).to_contain("muster/try-3-wip")
    assert tip(e2e, "muster/try-3-wip^") == tip_of(e2e, "try-3")
    assert outside(e2e, "git", "diff", "--name-only", "muster/try-3-wip^", "muster/try-3-wip") == "draft.txt\n"
    assert outside(e2e, "git", "show", "muster/try-3-wip:draft.txt") == "draft\n"
    status = outside(e2e, "muster", "exec", "try-3", "--", "git", "status", "--porcelain")
    assert status == "?? draft.txt\n", "the agent's own work dir stays as it was"


# pull: refused, forced


def diverged(e2e: E2eSession) -> str:
    """own-clone was pulled; then a commit was made here on its branch. Returns that commit."""
    command(e2e, "own-clone", "echo theirs > a; git add a; git commit -qm theirs", "--mode", "mirror")
    outside(e2e, "muster", "pull", "own-clone")
    outside(e2e, "git", "switch", "-q", "muster/own-clone")
    made = commit(e2e, "mine.txt", "Only here")
    outside(e2e, "git", "switch", "-q", "main")
    outside(e2e, "muster", "exec", "own-clone", "--", "git", "commit", "-q", "--allow-empty", "-m", "and on")
    return made


def test_pull_force_replaces_a_branch_with_other_commits(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # The branch here has commits that the agent does not have: replace it.
    muster pull own-clone --force
    """)
    diverged(e2e)
    expect(e2e.run("muster pull own-clone --force", comment="Replace it.")).to_succeed()
    assert subjects(e2e, "muster/own-clone") == ["and on", "theirs", "first"]


def test_pull_refuses_to_replace_commits_without_force(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # The branch here has commits that the agent does not have: replace it.
    muster pull own-clone --force
    """)
    only_here = diverged(e2e)
    result = e2e.run("muster pull own-clone", comment="Not by accident.")
    expect(result).to_exit_with(5)
    expect(result.stderr).to_contain("muster/own-clone")
    expect(result.stderr).to_contain("--force")
    assert tip(e2e, "muster/own-clone") == only_here


# pull: files, another repository


def test_pull_files_brings_files_instead_of_commits(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Bring files instead of commits: reports, logs, pictures.
    muster exec greet -- sh -c 'mkdir -p reports && echo "<p>ok" > reports/index.html'
    muster pull greet --files 'reports/*.html' --to ../out
    """)
    replay(e2e, "greet")
    e2e.run("""muster exec greet -- sh -c 'mkdir -p reports && echo "<p>ok" > reports/index.html'""")
    e2e.run("muster exec greet -- touch reports/notes.txt", comment="It does not match, and stays there.")
    result = e2e.run("muster pull greet --files 'reports/*.html' --to ../out", comment="Bring files instead.")
    expect(result).to_succeed()
    out = e2e.work.parent / "out"
    assert [str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()] == ["reports/index.html"]
    assert (out / "reports" / "index.html").read_text() == "<p>ok\n"
    assert not tip(e2e, "muster/greet"), "commits were not asked for"


def test_files_that_are_not_there_are_told(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Bring files instead of commits: reports, logs, pictures.
    muster exec greet -- sh -c 'mkdir -p reports && echo "<p>ok" > reports/index.html'
    muster pull greet --files 'reports/*.html' --to ../out
    """)
    replay(e2e, "greet")
    result = e2e.run("muster pull greet --files 'reports/*.html' --to ../out")
    expect(result).to_exit_with(3)
    expect(result.stderr).to_contain("greet has no file that matches reports/*.html")
    assert not (e2e.work.parent / "out").exists()


def test_pull_into_another_clone(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Pull into another clone of the repository.
    git clone --quiet . ../second-clone
    muster pull greet --to ../second-clone
    """)
    replay(e2e, "greet")
    expect(e2e.run("git clone --quiet . ../second-clone")).to_succeed()
    expect(e2e.run("muster pull greet --to ../second-clone", comment="Pull into another clone.")).to_succeed()
    there = e2e.work.parent / "second-clone"
    assert outside(e2e, "git", "rev-parse", "muster/greet", cwd=there).strip() == tip_of(e2e, "greet")
    assert not tip(e2e, "muster/greet"), "nothing was brought to the first one"


def test_pull_into_a_folder_without_a_repository_is_refused(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Pull into another clone of the repository.
    git clone --quiet . ../second-clone
    muster pull greet --to ../second-clone
    """)
    replay(e2e, "greet")
    (e2e.work.parent / "empty").mkdir()
    result = e2e.run("muster pull greet --to ../empty")
    expect(result).to_exit_with(3)
    expect(result.stderr).to_match(r"there is no repository at .*/empty$")


# pull: many


def test_pull_many_by_name_and_by_label(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Bring the work of many agents, chosen by name or by label.
    muster pull 'try-*'
    muster pull --label run=42
    """)
    replay(e2e, "try", "--count", "2")
    command(e2e, "counted", "git commit -q --allow-empty -m counted", "--mode", "mirror", "--label", "run=42")
    expect(e2e.run("muster pull 'try-*'", comment="Chosen by name.")).to_succeed()
    assert tip(e2e, "muster/try-1") == tip_of(e2e, "try-1")
    assert tip(e2e, "muster/try-2") == tip_of(e2e, "try-2")
    assert not tip(e2e, "muster/counted")
    expect(e2e.run("muster pull --label run=42", comment="Chosen by label.")).to_succeed()
    assert subjects(e2e, "muster/counted") == ["counted", "first"]


def test_a_label_that_nobody_has_is_an_error(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Bring the work of many agents, chosen by name or by label.
    muster pull 'try-*'
    muster pull --label run=42
    """)
    command(e2e, "idle", "true")
    pattern, label = e2e.run("muster pull 'try-*'"), e2e.run("muster pull --label run=42")
    expect(pattern).to_exit_with(3)
    expect(pattern.stderr).to_contain("no agent matches 'try-*'")
    expect(label).to_exit_with(3)
    expect(label.stderr).to_contain("no agent has these labels")


def test_pull_all_goes_on_past_one_that_fails(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Bring everybody's work. One that fails does not keep the others back.
    muster pull --all
    """)
    only_here = diverged(e2e)
    replay(e2e, "greet")
    result = e2e.run("muster pull --all", comment="Bring everybody's work.")
    expect(result).to_exit_with(5)
    expect(result.stderr).to_contain("own-clone")
    expect(result.stderr).to_match(r"^greet: muster/greet is at")
    assert tip(e2e, "muster/greet") == tip_of(e2e, "greet")
    assert tip(e2e, "muster/own-clone") == only_here


# push


def test_push_brings_my_commits_to_the_agent(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # The other way: your new commits for the agent.
    git commit --quiet --allow-empty -m "A change of mine"
    muster push from-commit
    """)
    command(e2e, "from-commit", "git status", "--clean")
    expect(e2e.run('git commit --quiet --allow-empty -m "A change of mine"')).to_succeed()
    result = e2e.run("muster push from-commit", comment="The other way: your new commits for the agent.")
    expect(result).to_succeed()
    assert tip_of(e2e, "from-commit") == tip(e2e, "HEAD")
    branch = e2e.run("muster exec from-commit -- git status --short --branch")
    expect(branch.stdout).to_equal("## muster/from-commit\n")


def test_push_changes_the_files_of_the_agent(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # The other way: your new commits for the agent.
    git commit --quiet --allow-empty -m "A change of mine"
    muster push from-commit
    """)
    command(e2e, "from-commit", "git status", "--clean")
    commit(e2e, "mine.txt", "A change of mine")
    expect(e2e.run("muster push from-commit")).to_succeed()
    expect(e2e.run("muster exec from-commit -- cat mine.txt").stdout).to_equal("A change of mine\n")


def test_push_does_not_overwrite_what_the_agent_has_not_committed(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # The other way: your new commits for the agent.
    git commit --quiet --allow-empty -m "A change of mine"
    muster push from-commit
    """)
    command(e2e, "from-commit", "echo theirs > README", "--clean")
    commit(e2e, "README", "mine")
    result = e2e.run("muster push from-commit", comment="Both changed README.")
    expect(result).to_exit_with(5)
    expect(result.stderr).to_contain("README")
    expect(result.stderr).to_contain("let the agent commit first")
    expect(e2e.run("muster exec from-commit -- cat README").stdout).to_equal("theirs\n")


def test_push_merge_merges_mine_into_the_agents_branch(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # The agent has commits too: merge yours into its branch.
    muster push greet --merge
    """)
    replay(e2e, "greet")
    theirs, mine = tip_of(e2e, "greet"), commit(e2e, "mine.txt", "A change of mine")
    expect(e2e.run("muster push greet --merge", comment="Merge yours into its branch.")).to_succeed()
    parents = e2e.run("muster exec greet -- git log -1 --format=%P")
    expect(parents.stdout).to_equal(f"{theirs} {mine}\n")
    expect(e2e.run("muster exec greet -- cat greet.txt mine.txt").stdout).to_equal("hello\nA change of mine\n")


def test_push_without_merge_is_refused_when_the_agent_has_commits(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # The agent has commits too: merge yours into its branch.
    muster push greet --merge
    """)
    replay(e2e, "greet")
    theirs = tip_of(e2e, "greet")
    commit(e2e, "mine.txt", "A change of mine")
    result = e2e.run("muster push greet")
    expect(result).to_exit_with(5)
    expect(result.stderr).to_contain("--merge")
    assert tip_of(e2e, "greet") == theirs


def test_a_push_that_conflicts_leaves_the_agent_as_it_was(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # The agent has commits too: merge yours into its branch.
    muster push greet --merge
    """)
    replay(e2e, "greet")
    theirs = tip_of(e2e, "greet")
    commit(e2e, "greet.txt", "Good morning")
    result = e2e.run("muster push greet --merge", comment="Both have a greet.txt.")
    expect(result).to_fail()
    expect(result.stderr).to_contain("greet.txt")
    assert tip_of(e2e, "greet") == theirs
    expect(e2e.run("muster exec greet -- git status --porcelain").stdout).to_be_empty()


def test_push_ref_gives_another_branch_than_the_one_checked_out(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Give it another branch than the one you have checked out.
    muster push in-worktree --ref main
    """)
    command(e2e, "in-worktree", "git status", "--mode", "worktree")
    on_main = commit(e2e, "mine.txt", "A change of mine")
    outside(e2e, "git", "switch", "-q", "-c", "topic")
    commit(e2e, "topic.txt", "Not for it")
    expect(e2e.run("muster push in-worktree --ref main", comment="Give it another branch.")).to_succeed()
    assert tip_of(e2e, "in-worktree") == on_main
    assert outside(e2e, "git", "branch", "--show-current") == "topic\n"


def test_push_of_an_unknown_ref_is_told(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Give it another branch than the one you have checked out.
    muster push in-worktree --ref main
    """)
    command(e2e, "in-worktree", "git status", "--mode", "worktree")
    result = e2e.run("muster push in-worktree --ref mian")
    expect(result).to_exit_with(3)
    expect(result.stderr).to_contain("there is no branch or commit 'mian'")


def test_push_gives_my_commits_to_all_agents_of_a_run(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Give your commits to all agents of a run.
    muster push --label run=42
    """)
    for name, run in (("one", "42"), ("two", "42"), ("other", "41")):
        command(e2e, name, "true", "--label", f"run={run}")
    before = tip(e2e, "HEAD")
    mine = commit(e2e, "mine.txt", "A change of mine")
    expect(e2e.run("muster push --label run=42", comment="Give your commits to all agents of a run.")).to_succeed()
    assert [tip_of(e2e, name) for name in ("one", "two", "other")] == [mine, mine, before]


def test_push_all_reports_those_without_a_branch_and_serves_the_others(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # To all agents. Those without a branch, such as copies, are reported; the others get them.
    muster push --all --merge
    """)
    (e2e.work.parent / "plain").mkdir()
    command(e2e, "copied", "echo one > list.txt", "--mode", "copy", "--from", "../plain")
    command(e2e, "idle", "true")
    replay(e2e, "greet")
    mine = commit(e2e, "mine.txt", "A change of mine")
    result = e2e.run("muster push --all --merge", comment="To all agents.")
    expect(result).to_exit_with(5)
    expect(result.stderr).to_match(r"copied: a copy has no branch to push to$")
    assert tip_of(e2e, "idle") == mine
    expect(e2e.run("muster exec greet -- cat greet.txt mine.txt").stdout).to_equal("hello\nA change of mine\n")
