"""Tutorial section 6, Connecting: a terminal at the agent's, one that only looks, and one in a window of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.tutorial import E2eSession, expect

from ..conftest import eventually
from .conftest import agents, outside

ECHOING = 'echo "I am $MUSTER_AGENT"; while read -r line; do echo "heard <$line>"; done'
XTERM = '#!/bin/sh\n# Stands in for xterm: the terminal that it is called in is the window.\n[ "$1" = -e ] || exit 64\nshift\nexec "$@"\n'


@pytest.fixture(autouse=True)
def fix_login(e2e: E2eSession) -> None:
    """The agent of this section says who it is and repeats what is typed. muster attaches as it does for a user."""
    config = e2e.home / ".config" / "muster" / "config.toml"
    config.write_text(config.read_text().replace('connect_command = "muster-e2e-connect"', ""))
    outside(e2e, "muster", "create", "fix-login", "command", "--no-connect", "--", "sh", "-c", ECHOING)
    eventually(lambda: "I am fix-login" in screen(e2e))


def screen(e2e: E2eSession) -> str:
    return outside(e2e, "muster", "capture", "fix-login")


def tmux(e2e: E2eSession, *argv: str) -> str:
    """Ask the tmux server in which muster keeps its agents."""
    return outside(e2e, "tmux", "-S", str(e2e.home / ".local/state/muster/tmux.sock"), *argv)


def size(e2e: E2eSession, name: str = "fix-login") -> str:
    return tmux(e2e, "list-panes", "-t", f"={agents(e2e)[name]['id']}:", "-F", "#{pane_width}x#{pane_height}").strip()


def program(e2e: E2eSession, name: str, text: str) -> None:
    path = Path(e2e.home, "bin", name)
    path.write_text(text)
    path.chmod(0o755)


# Taking over


def test_connect_gives_the_agents_terminal_until_it_is_left(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Take over: your terminal is the agent's. Inside tmux your client is switched there, and comes back when you leave.
    muster connect fix-login
    """)
    with e2e.terminal("muster connect fix-login", size=(100, 30), comment="Take over.") as terminal:
        expect(terminal).to_show("I am fix-login")
        terminal.type("are you there?\n")
        expect(terminal).to_show("heard <are you there?>")
        assert size(e2e) == "100x29", "the agent has the size of the terminal, less the line that says how to leave"
        terminal.press("Ctrl-b", "d")
        expect(terminal).to_exit_with(0)
    assert agents(e2e)["fix-login"]["state"] == "working"
    expect(screen(e2e)).to_contain("heard <are you there?>")


def test_inside_tmux_the_client_is_switched_and_comes_back(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Take over: your terminal is the agent's. Inside tmux your client is switched there, and comes back when you leave.
    muster connect fix-login
    """)
    mine = "tmux -f /dev/null new-session -s mine 'PS1=\"mine> \" exec bash --norc --noprofile'"
    with e2e.terminal(mine, size=(100, 30), comment="A tmux session of the user's.") as terminal:
        expect(terminal).to_show("mine>")
        terminal.type('muster connect fix-login; echo "back: $?"\n')
        expect(terminal).to_show("I am fix-login")
        eventually(lambda: outside(e2e, "tmux", "list-clients") == "")
        terminal.type("hello\n")
        expect(terminal).to_show("heard <hello>")
        terminal.press("Ctrl-b", "d")
        expect(terminal).to_show("back: 0")
        expect(terminal).not_to_show("heard <hello>")
        expect(outside(e2e, "tmux", "list-clients", "-F", "#{session_name}")).to_equal("mine\n")
        terminal.type("exit\n")
        expect(terminal).to_exit_with(0)


def test_the_terminal_comes_back_when_the_agent_ends(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Take over: your terminal is the agent's. Inside tmux your client is switched there, and comes back when you leave.
    muster connect fix-login
    """)
    with e2e.terminal("muster connect fix-login", size=(100, 30)) as terminal:
        expect(terminal).to_show("I am fix-login")
        expect(e2e.run("muster stop fix-login", comment="From another terminal.")).to_succeed()
        expect(terminal).to_exit_with(0)


def test_an_agent_that_has_ended_cannot_be_connected_to(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Take over: your terminal is the agent's. Inside tmux your client is switched there, and comes back when you leave.
    muster connect fix-login
    """)
    outside(e2e, "muster", "stop", "fix-login", "--grace", "0")
    with e2e.terminal("muster connect fix-login", size=(100, 30)) as terminal:
        expect(terminal).to_exit_with(1)
        expect(terminal).to_show("fix-login is stopped")
        expect(terminal).to_show("muster start fix-login")


def test_without_a_terminal_connect_names_what_to_use_instead(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Take over: your terminal is the agent's. Inside tmux your client is switched there, and comes back when you leave.
    muster connect fix-login
    """)
    result = e2e.run("muster connect fix-login", comment="In a script there is no terminal.")
    expect(result).to_exit_with(2)
    expect(result.stderr).to_contain("connect needs a terminal")
    expect(result.stderr).to_contain("muster capture fix-login")


def test_connecting_to_an_unknown_name_lists_the_agents(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Take over: your terminal is the agent's. Inside tmux your client is switched there, and comes back when you leave.
    muster connect fix-login
    """)
    result = e2e.run("muster connect fix-logon", comment="A typing mistake.")
    expect(result).to_exit_with(3)
    expect(result.stderr).to_contain("there is no agent fix-logon")
    expect(result.stderr).to_contain("fix-login")


# Only looking


def test_watch_lets_no_key_through_and_keeps_the_size(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Only look. No key goes through, and the agent's terminal keeps its size.
    muster connect fix-login --watch
    """)
    before = size(e2e)
    with e2e.terminal("muster connect fix-login --watch", size=(60, 12), comment="Only look.") as terminal:
        expect(terminal).to_show("I am fix-login")
        assert size(e2e) == before
        terminal.type("forbidden\n")
        terminal.press("Ctrl-b", "d")
        expect(terminal).to_exit_with(0)
    expect(screen(e2e)).not_to_contain("forbidden")
    assert size(e2e) == before != "60x11"


def test_a_watcher_sees_what_the_agent_does(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Only look. No key goes through, and the agent's terminal keeps its size.
    muster connect fix-login --watch
    """)
    with e2e.terminal("muster connect fix-login --watch", size=(100, 30)) as terminal:
        expect(terminal).to_show("I am fix-login")
        expect(e2e.run("muster message fix-login -m 'from elsewhere'")).to_succeed()
        expect(terminal).to_show("heard <from elsewhere>")


# A window of its own


def test_a_connect_command_opens_the_agent_in_a_window_of_its_own(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Open the agent in a window of its own. The command finds MUSTER_AGENT, MUSTER_ADDRESS and MUSTER_ATTACH.
    muster connect fix-login --connect-command 'xterm -e sh -c "$MUSTER_ATTACH"'
    """)
    program(e2e, "xterm", XTERM)
    command = """muster connect fix-login --connect-command 'xterm -e sh -c "$MUSTER_ATTACH"'"""
    path = {"PATH": e2e.env["PATH"]}
    with e2e.terminal(command, size=(100, 30), comment="Open the agent in a window of its own.", env=path) as window:
        expect(window).to_show("I am fix-login")
        window.type("hello\n")
        expect(window).to_show("heard <hello>")
        window.press("Ctrl-b", "d")
        expect(window).to_exit_with(0)
    assert agents(e2e)["fix-login"]["state"] == "working"


def test_a_connect_command_is_told_the_name_and_the_address(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Open the agent in a window of its own. The command finds MUSTER_AGENT, MUSTER_ADDRESS and MUSTER_ATTACH.
    muster connect fix-login --connect-command 'xterm -e sh -c "$MUSTER_ATTACH"'
    """)
    result = e2e.run("""muster connect fix-login --connect-command 'echo "$MUSTER_AGENT at $MUSTER_ADDRESS"'""")
    expect(result).to_succeed()
    expect(result.stdout).to_equal("fix-login at fix-login\n")


def test_a_connect_command_that_is_not_there_is_told_by_the_shell(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Open the agent in a window of its own. The command finds MUSTER_AGENT, MUSTER_ADDRESS and MUSTER_ATTACH.
    muster connect fix-login --connect-command 'xterm -e sh -c "$MUSTER_ATTACH"'
    """)
    result = e2e.run(
        """muster connect fix-login --connect-command 'no-such-xterm -e sh -c "$MUSTER_ATTACH"'""",
        comment="The program is not installed.",
    )
    expect(result).to_exit_with(127)
    expect(result.stderr).to_contain("no-such-xterm")
    assert agents(e2e)["fix-login"]["state"] == "working"


def test_create_runs_the_connect_command_when_the_agent_is_there(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # The same right after create.
    muster create in-window command --connect-command 'echo "to attach: $MUSTER_ATTACH"' -- sleep 60
    """)
    result = e2e.run(
        """muster create in-window command --connect-command 'echo "to attach: $MUSTER_ATTACH"' -- sleep 60""",
        comment="The same right after create.",
    )
    expect(result).to_succeed()
    expect(result.stdout).to_match(r"\Ain-window\nto attach: ")
    made = agents(e2e)["in-window"]
    assert made["state"] == "working"
    (e2e.work.parent / "attach.sh").write_text(result.stdout.partition("to attach: ")[2])
    with e2e.terminal("sh ../attach.sh", size=(100, 30), comment="What was printed attaches.") as terminal:
        eventually(lambda: made["id"] in tmux(e2e, "list-clients", "-F", "#{session_name}"))
        terminal.press("Ctrl-b", "d")
        expect(terminal).to_exit_with(0)


def test_an_agent_stays_when_its_connect_command_fails(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # The same right after create.
    muster create in-window command --connect-command 'echo "to attach: $MUSTER_ATTACH"' -- sleep 60
    """)
    result = e2e.run("muster create in-window command --connect-command 'exit 9' -- sleep 60")
    expect(result).to_exit_with(9)
    assert agents(e2e)["in-window"]["state"] == "working"
