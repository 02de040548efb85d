"""Tutorial section 13, Other hosts: the same verbs on another machine. `box` is a real ssh host."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from muster.tutorial import E2eSession, expect

from ..conftest import Sshd
from .conftest import outside

REPO = Path(__file__).parents[2]

PLAYBOOK = """
[[step]]
say = "I will add a greeting."
[[step]]
write = "greet.txt"
text = "hello\\n"
[[step]]
commit = "Add a greeting"
[[step]]
ask = "Shall I also say goodbye?"
[[step]]
say = "You said: {message}"
"""


def agents(e2e: E2eSession) -> dict[str, dict[str, Any]]:
    return {one["address"]: one for one in json.loads(outside(e2e, "muster", "list", "--json"))["agents"]}


def hosts(e2e: E2eSession) -> list[str | None]:
    return [row["name"] for row in json.loads(outside(e2e, "muster", "hosts", "--json"))["hosts"]]


def command(e2e: E2eSession, address: str, script: str) -> None:
    outside(e2e, "muster", "create", address, "command", "--no-connect", "--", "sh", "-c", script)


def greet(e2e: E2eSession) -> None:
    """A local agent with a commit and a file that is not committed, which asks something."""
    (e2e.work.parent / "greet.toml").write_text(PLAYBOOK)
    outside(e2e, "muster", "create", "greet", "replay", "--no-connect", "--", "../greet.toml")
    outside(e2e, "muster", "wait", "greet", "--until", "waiting", "--timeout", "60s")
    outside(e2e, "muster", "exec", "greet", "--", "sh", "-c", "echo draft > draft.txt")


def install_client(e2e: E2eSession) -> None:
    """The stand-in is no program on the PATH of box: there it is called by its whole path."""
    config = e2e.home / ".config" / "muster" / "config.toml"
    config.write_text(config.read_text().replace('argv = ["claude"]', f'argv = ["{e2e.home}/bin/claude"]'))


def cut_off(e2e: E2eSession, box: Sshd) -> None:
    """The host goes off, and with it the connection that ssh keeps open to it."""
    box.stop()
    outside(e2e, "ssh", "-O", "exit", "-o", f"ControlPath=/tmp/muster-{os.getuid()}/%C", "box")


# Making agents there


def test_a_client_runs_on_another_machine(e2e: E2eSession, box: Sshd) -> None:
    e2e.write_tutorial_block("""
    # Run an agent on another machine: @ and its name in your ~/.ssh/config. It needs only a shell, git and tmux.
    muster create fix-login@box claude --no-connect -m "Fix it there"
    """)
    install_client(e2e)
    result = e2e.run(
        'muster create fix-login@box claude --no-connect -m "Fix it there"', comment="Run an agent on another machine."
    )
    expect(result).to_succeed()
    expect(result.stdout).to_equal("fix-login@box\n")
    expect(e2e.run("muster wait fix-login@box --until ready --timeout 60s")).to_succeed()
    made = agents(e2e)["fix-login@box"]
    assert (made["host"], made["provider"], made["mode"]) == ("box", "ssh", "mirror")
    assert made["workdir"].startswith(f"{box.home}/"), "its work dir is on that machine"
    expect(e2e.run("muster exec fix-login@box -- git log --oneline").stdout).to_match(r"\A\w+ first\n\Z")
    assert outside(e2e, "git", "branch", "--format=%(refname:short)") == "main\n", "nothing is here before it is pulled"


def test_uncommitted_work_comes_along_to_another_machine(e2e: E2eSession, box: Sshd) -> None:
    e2e.write_tutorial_block("""
    # Run an agent on another machine: @ and its name in your ~/.ssh/config. It needs only a shell, git and tmux.
    muster create fix-login@box claude --no-connect -m "Fix it there"
    """)
    install_client(e2e)
    (e2e.work / "README").write_text("changed\n")
    (e2e.work / "new.txt").write_text("new\n")
    expect(e2e.run('muster create fix-login@box claude --no-connect -m "Fix it there"')).to_succeed()
    expect(e2e.run("muster exec fix-login@box -- cat README new.txt").stdout).to_equal("changed\nnew\n")


def test_a_host_that_does_not_answer_is_exit_code_6(e2e: E2eSession, box: Sshd) -> None:
    e2e.write_tutorial_block("""
    # Run an agent on another machine: @ and its name in your ~/.ssh/config. It needs only a shell, git and tmux.
    muster create fix-login@box claude --no-connect -m "Fix it there"
    """)
    result = e2e.run('muster create fix-login@nobody claude --no-connect -m "Fix it there"')
    expect(result).to_exit_with(6)
    expect(result.stderr).to_contain("host nobody cannot be reached")
    expect(result.stderr).to_contain("ssh nobody true")
    assert agents(e2e) == {}


def test_a_client_that_the_host_lacks_is_named(e2e: E2eSession, box: Sshd) -> None:
    e2e.write_tutorial_block("""
    # Run an agent on another machine: @ and its name in your ~/.ssh/config. It needs only a shell, git and tmux.
    muster create fix-login@box claude --no-connect -m "Fix it there"
    """)
    e2e.run('muster create fix-login@box claude --no-connect -m "Fix it there"', comment="It is not installed there.")
    result = e2e.run("muster wait fix-login@box --until ready --timeout 60s")
    expect(result).to_exit_with(1)
    expect(result.stderr).to_contain("fix-login@box is failed, it will not be ready")
    expect(e2e.run("muster capture fix-login@box").stdout).to_match(r"claude.*not found")


def test_a_name_is_made_up_on_that_host(e2e: E2eSession, box: Sshd) -> None:
    e2e.write_tutorial_block("""
    # A made-up name, on that host.
    muster create @box command --no-connect -- uname -a
    """)
    result = e2e.run("muster create @box command --no-connect -- uname -a", comment="A made-up name, on that host.")
    expect(result).to_succeed()
    expect(result.stdout).to_match(r"\A[a-z]+-[a-z]+@box\n\Z")
    address = result.stdout.strip()
    expect(e2e.run(f"muster wait {address} --until done --timeout 60s")).to_succeed()
    expect(e2e.run(f"muster capture {address}").stdout).to_contain(outside(e2e, "uname", "-n").strip())


def test_every_verb_takes_the_same_address(e2e: E2eSession, box: Sshd) -> None:
    e2e.write_tutorial_block("""
    # Every verb takes the same address.
    muster create there@box command --no-connect -- sh -c 'echo "done on $(uname -n)"'
    muster wait there@box
    muster capture there@box
    """)
    expect(
        e2e.run("""muster create there@box command --no-connect -- sh -c 'echo "done on $(uname -n)"'""")
    ).to_succeed()
    waited = e2e.run("muster wait there@box", comment="Every verb takes the same address.")
    expect(waited).to_succeed()
    expect(waited.stderr).to_contain("there@box is done")
    name = outside(e2e, "uname", "-n").strip()
    expect(e2e.run("muster capture there@box").stdout).to_contain(f"done on {name}")


def test_the_name_alone_is_another_agent(e2e: E2eSession, box: Sshd) -> None:
    e2e.write_tutorial_block("""
    # Every verb takes the same address.
    muster create there@box command --no-connect -- sh -c 'echo "done on $(uname -n)"'
    muster wait there@box
    muster capture there@box
    """)
    command(e2e, "there@box", "true")
    result = e2e.run("muster wait there", comment="The host is a part of the address.")
    expect(result).to_exit_with(3)
    expect(result.stderr).to_contain("there is no agent there")
    expect(result.stderr).to_contain("there@box")


# Its work


def test_commits_come_back_from_another_machine(e2e: E2eSession, box: Sshd) -> None:
    e2e.write_tutorial_block("""
    # Commits come back as from a local agent.
    muster pull there@box
    """)
    command(e2e, "there@box", "echo far > far.txt; git add far.txt; git commit -qm 'From afar'")
    expect(e2e.run("muster wait there@box --until done --timeout 60s")).to_succeed()
    result = e2e.run("muster pull there@box", comment="Commits come back as from a local agent.")
    expect(result).to_succeed()
    expect(result.stderr).to_contain("1 commit ahead of where it began")
    expect(e2e.run("git show muster/there:far.txt").stdout).to_equal("far\n")
    assert not (e2e.work / "far.txt").exists()


def test_pull_from_a_host_that_is_cut_off_is_exit_code_6(e2e: E2eSession, box: Sshd) -> None:
    e2e.write_tutorial_block("""
    # Commits come back as from a local agent.
    muster pull there@box
    """)
    command(e2e, "there@box", "true")
    cut_off(e2e, box)
    result = e2e.run("muster pull there@box", comment="The host is off.")
    expect(result).to_exit_with(6)
    expect(result.stderr).to_contain("box")
    box.start()
    expect(e2e.run("muster pull there@box", comment="It is back.")).to_succeed()


def test_a_pattern_sees_the_whole_address(e2e: E2eSession, box: Sshd) -> None:
    e2e.write_tutorial_block("""
    # Patterns see the whole address: everybody on that host.
    muster stop '*@box'
    """)
    for address in ("one@box", "two@box", "here"):
        command(e2e, address, "sleep 600")
    result = e2e.run("muster stop '*@box'", comment="Everybody on that host.")
    expect(result).to_succeed()
    assert {address: one["state"] for address, one in agents(e2e).items()} == {
        "one@box": "stopped",
        "two@box": "stopped",
        "here": "working",
    }


def test_a_pattern_for_a_host_without_agents_is_an_error(e2e: E2eSession, box: Sshd) -> None:
    e2e.write_tutorial_block("""
    # Patterns see the whole address: everybody on that host.
    muster stop '*@box'
    """)
    command(e2e, "here", "sleep 600")
    result = e2e.run("muster stop '*@box'")
    expect(result).to_exit_with(3)
    expect(result.stderr).to_contain("no agent matches '*@box'")
    assert agents(e2e)["here"]["state"] == "working"


def test_the_work_of_a_local_agent_moves_to_a_host(e2e: E2eSession, box: Sshd) -> None:
    e2e.write_tutorial_block("""
    # Move the work of a local agent to a host, conversation included.
    muster clone greet greet-far@box
    """)
    greet(e2e)
    expect(e2e.run("muster clone greet greet-far@box", comment="Conversation included.")).to_succeed()
    expect(e2e.run("muster wait greet-far@box --until waiting --timeout 60s")).to_succeed()
    work = "git rev-parse HEAD; git status --porcelain; cat greet.txt draft.txt"
    there = outside(e2e, "muster", "exec", "greet-far@box", "--", "sh", "-c", work)
    assert there.endswith("?? draft.txt\nhello\ndraft\n")
    assert there == outside(e2e, "muster", "exec", "greet", "--", "sh", "-c", work)
    assert outside(e2e, "muster", "transcript", "greet-far@box") == outside(e2e, "muster", "transcript", "greet")
    expect(e2e.run("muster answer greet-far@box 'not here'")).to_succeed()
    expect(e2e.run("muster wait greet-far@box --until ready --timeout 60s")).to_succeed()
    expect(e2e.run("muster transcript greet-far@box --last 1").stdout).to_contain("You said: not here")
    assert agents(e2e)["greet"]["state"] == "waiting"


def test_a_clone_to_a_host_that_does_not_answer_leaves_the_first_alone(e2e: E2eSession, box: Sshd) -> None:
    e2e.write_tutorial_block("""
    # Move the work of a local agent to a host, conversation included.
    muster clone greet greet-far@box
    """)
    greet(e2e)
    result = e2e.run("muster clone greet greet-far@nobody")
    expect(result).to_exit_with(6)
    expect(result.stderr).to_contain("nobody")
    assert {address: one["state"] for address, one in agents(e2e).items()} == {"greet": "waiting"}


# Hosts


def test_the_list_of_one_host_leaves_out_the_others(e2e: E2eSession, box: Sshd) -> None:
    e2e.write_tutorial_block("""
    # Only the agents of one host.
    muster list --host box
    """)
    command(e2e, "there@box", "sleep 600")
    command(e2e, "here", "sleep 600")
    result = e2e.run("muster list --host box", comment="Only the agents of one host.")
    expect(result).to_succeed()
    expect(result.stdout).to_match(r"^there +working +.* box +")
    listed = e2e.run("muster list --host box --format '{address}'")
    expect(listed.stdout).to_equal("there@box\n")


def test_agents_of_a_host_that_is_cut_off_are_unreachable(e2e: E2eSession, box: Sshd) -> None:
    e2e.write_tutorial_block("""
    # Only the agents of one host.
    muster list --host box
    """)
    command(e2e, "there@box", "sleep 600")
    outside(e2e, "muster", "list")
    cut_off(e2e, box)
    result = e2e.run("muster list --host box", comment="The host is off.")
    expect(result.stdout).to_contain("unreachable")
    box.start()
    expect(e2e.run("muster list --host box", comment="It is back.").stdout).to_match(r"^there +working")


def test_hosts_shows_who_answers_and_how_many_agents_there_are(e2e: E2eSession, box: Sshd) -> None:
    e2e.write_tutorial_block("""
    # Which hosts were used, do they answer, and when did they last?
    muster hosts
    muster hosts list
    """)
    command(e2e, "one@box", "sleep 600")
    command(e2e, "two@box", "sleep 600")
    result = e2e.run("muster hosts", comment="Which hosts were used, do they answer, and when did they last?")
    expect(result).to_succeed()
    expect(result.stdout).to_match(r"^local +local +yes +now +0")
    expect(result.stdout).to_match(r"^box +ssh +yes +now +2")
    expect(e2e.run("muster hosts list", comment="The same.").stdout).to_match(r"^box +ssh +yes +now +2")


def test_a_host_that_is_off_is_shown_with_the_time_it_last_answered(e2e: E2eSession, box: Sshd) -> None:
    e2e.write_tutorial_block("""
    # Which hosts were used, do they answer, and when did they last?
    muster hosts
    muster hosts list
    """)
    command(e2e, "one@box", "sleep 600")
    cut_off(e2e, box)
    result = e2e.run("muster hosts", comment="The host is off.")
    expect(result.stdout).to_match(r"^box +ssh +no +\S+")
    box.start()
    expect(e2e.run("muster hosts", comment="It is back.").stdout).to_match(r"^box +ssh +yes +now +1")


def install_provider(e2e: E2eSession) -> None:
    """Put the program of docs/plugins.md on the PATH."""
    text = (REPO / "docs" / "plugins.md").read_text()
    program = e2e.home / "bin" / "muster-provider-sub"
    program.write_text(text.partition("```sh muster-provider-sub\n")[2].partition("```\n")[0])
    program.chmod(0o755)


def test_a_provider_makes_a_host_for_an_agent(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # A provider makes a new host for the agent, and a name for it. Here `sub` is a program muster-provider-sub on the PATH, see docs/plugins.md.
    muster create greet@.sub command -- sleep 600
    """)
    install_provider(e2e)
    result = e2e.run("muster create greet@.sub command --no-connect -- sleep 600", comment="Make a host with an agent.")
    expect(result).to_succeed()
    address = result.stdout.strip()
    expect(result.stdout).to_match(r"^greet@[a-z]+-[a-z]+\.sub$")
    assert agents(e2e)[address]["provider"] == "sub"
    assert hosts(e2e) == [None, address.partition("@")[2]]
    outside(e2e, "muster", "hosts", "destroy", address.partition("@")[2], "--force")


def test_a_host_that_was_made_is_stopped_started_and_destroyed(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Stop the host that was made, and start it again: its files stay. Then destroy it, with --force even if it has agents.
    muster hosts stop brave-otter.sub
    muster hosts start brave-otter.sub
    muster hosts destroy brave-otter.sub --force
    """)
    install_provider(e2e)
    made = outside(e2e, "muster", "create", "greet@.sub", "command", "--no-connect", "--", "sh", "-c", "echo hi >new")
    place = made.strip().partition("@")[2]
    outside(e2e, "muster", "wait", f"greet@{place}")
    expect(e2e.run(f"muster hosts stop {place}", comment="Stop the host.")).to_succeed()
    expect(e2e.run(f"muster exec greet@{place} -- cat new")).to_exit_with(6)
    expect(e2e.run(f"muster hosts start {place}", comment="Start it again.")).to_succeed()
    expect(e2e.run(f"muster exec greet@{place} -- cat new").stdout).to_equal("hi\n")
    refused = e2e.run(f"muster hosts destroy {place}", comment="It has an agent.")
    expect(refused).to_exit_with(5)
    expect(e2e.run(f"muster hosts destroy {place} --force", comment="Destroy it with its agent.")).to_succeed()
    assert hosts(e2e) == [None] and agents(e2e) == {}


def test_a_forgotten_host_keeps_its_agents(e2e: E2eSession, box: Sshd) -> None:
    e2e.write_tutorial_block("""
    # Leave a host out of the list. Nothing on it changes.
    muster hosts forget box
    """)
    command(e2e, "there@box", "sleep 600")
    assert hosts(e2e) == [None, "box"]
    expect(e2e.run("muster hosts forget box", comment="Leave a host out of the list.")).to_succeed()
    assert hosts(e2e) == [None]
    assert agents(e2e) == {}
    expect(e2e.run("muster exec there@box -- git branch --show-current").stdout).to_equal("muster/there\n")
    expect(e2e.run("muster list --host box --format '{address} {state}'").stdout).to_equal("there@box working\n")


def test_a_host_that_was_never_used_cannot_be_forgotten(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Leave a host out of the list. Nothing on it changes.
    muster hosts forget box
    """)
    unknown, nameless = e2e.run("muster hosts forget box"), e2e.run("muster hosts forget")
    expect(unknown).to_exit_with(3)
    expect(unknown.stderr).to_contain("no host box is remembered")
    expect(nameless).to_exit_with(2)
    expect(nameless.stderr).to_contain("muster hosts forget HOST")


def test_a_host_gets_a_short_name_and_a_folder(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Give a host a short name, and a folder for muster's files there.
    muster config set hosts.big.destination me@big.example.com
    muster config set hosts.big.home /scratch/me/muster
    """)
    expect(e2e.run("muster config set hosts.big.destination me@big.example.com", comment="A short name.")).to_succeed()
    expect(e2e.run("muster config set hosts.big.home /scratch/me/muster", comment="And a folder.")).to_succeed()
    expect(e2e.run("muster config get hosts.big.destination").stdout).to_equal("me@big.example.com\n")
    expect(e2e.run("muster config get hosts.big.home").stdout).to_equal("/scratch/me/muster\n")
    result = e2e.run("muster create @big command --no-connect -- true", comment="There is no such machine.")
    expect(result).to_exit_with(6)
    expect(result.stderr).to_contain("big.example.com")


def test_agents_of_a_short_name_are_in_its_folder(e2e: E2eSession, box: Sshd) -> None:
    e2e.write_tutorial_block("""
    # Give a host a short name, and a folder for muster's files there.
    muster config set hosts.big.destination me@big.example.com
    muster config set hosts.big.home /scratch/me/muster
    """)
    folder = box.home / "scratch" / "muster"
    expect(e2e.run("muster config set hosts.big.destination box")).to_succeed()
    expect(e2e.run(f"muster config set hosts.big.home {folder}")).to_succeed()
    expect(e2e.run("muster create one@big command --no-connect -- sh -c 'echo far > far.txt'")).to_succeed()
    expect(e2e.run("muster wait one@big --until done --timeout 60s")).to_succeed()
    made = agents(e2e)["one@big"]
    assert made["workdir"].startswith(f"{folder}/")
    assert (folder / "work" / made["id"] / "far.txt").read_text() == "far\n"
    expect(e2e.run("muster hosts").stdout).to_match(r"^big +ssh +yes")
    expect(e2e.run("muster destroy one@big")).to_succeed()


def test_a_key_that_hosts_do_not_have_is_refused(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Give a host a short name, and a folder for muster's files there.
    muster config set hosts.big.destination me@big.example.com
    muster config set hosts.big.home /scratch/me/muster
    """)
    result = e2e.run("muster config set hosts.big.hom /scratch/me/muster")
    expect(result).to_exit_with(2)
    expect(result.stderr).to_contain("did you mean 'home'?")
    assert "scratch" not in (e2e.home / ".config" / "muster" / "config.toml").read_text()
