"""A key is pressed only on the screen that was looked at."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from muster import tmux
from muster.keyboard import shows
from muster.message import same
from muster.plugins import AgentType, agent_type
from muster.providers.local import LocalHost

from .conftest import World, eventually

#: Prints what it reads, and redraws its last lines when it is told to by a file.
PROGRAM = """
printf 'above\\n---\\n> box\\n---\\n'
while read -r line; do echo "$line" >>"$1/read"; done
"""


@pytest.fixture
def agent(world: World) -> tuple[LocalHost, str]:
    world.ok("create", "one", "command", "--no-connect", "--", "sh", "-c", PROGRAM, "sh", str(world.folder))
    agent_id = str(world.agents()["one"]["id"])
    host = LocalHost(str(world.muster_home))
    eventually(lambda: (seen := tmux.look(host, agent_id)) and seen.screen.endswith("> box\n---"))
    return host, agent_id


def looked(agent: tuple[LocalHost, str]) -> tmux.Look:
    seen = tmux.look(*agent)
    assert seen
    return seen


def test_a_key_is_pressed_while_the_screen_ends_as_it_did(world: World, agent: tuple[LocalHost, str]) -> None:
    assert tmux.paste(*agent, looked(agent), "> box\n---", "first")
    eventually(lambda: looked(agent).screen.endswith("first"))
    assert tmux.press(*agent, looked(agent), "---\nfirst", "Enter")
    eventually(lambda: (world.folder / "read").exists() and (world.folder / "read").read_text() == "first\n")


def test_keys_arrive_although_somebody_scrolls(world: World, agent: tuple[LocalHost, str]) -> None:
    world.tmux("copy-mode", "-t", f"={agent[1]}:")
    assert tmux.paste(*agent, looked(agent), "> box\n---", "first")
    eventually(lambda: looked(agent).screen.endswith("first"))
    world.tmux("copy-mode", "-t", f"={agent[1]}:")
    assert tmux.press(*agent, looked(agent), "---\nfirst", "Enter")
    eventually(lambda: (world.folder / "read").exists() and (world.folder / "read").read_text() == "first\n")


def test_the_end_of_an_agent_puts_no_pane_into_a_mode(world: World, agent: tuple[LocalHost, str]) -> None:
    world.ok("create", "other", "command", "--no-connect", "--", "sh", "-c", "exit 3")
    world.wait_state("other", "failed")
    world.ok(
        "create", "next", "command", "--no-connect", "--", "sleep", "1000"
    )  # tmux shows errors in the next session
    panes = world.tmux("list-panes", "-a", "-F", "#{pane_in_mode}").stdout.split()
    assert panes == [b"0"] * 3, "a pane in a mode takes no keys"


def test_no_key_is_pressed_on_another_screen(world: World, agent: tuple[LocalHost, str]) -> None:
    seen = looked(agent)
    world.tmux("send-keys", "-t", f"={agent[1]}:", "-l", "yes?")
    eventually(lambda: "yes?" in looked(agent).screen)
    assert not tmux.press(*agent, seen, "> box\n---", "Enter")
    assert not tmux.paste(*agent, seen, "> box\n---", "text")
    assert looked(agent).screen.endswith("---\nyes?") and not (world.folder / "read").exists()


@pytest.mark.parametrize("kind", ["permission", "ask", "tool"])
def test_no_key_is_pressed_once_the_client_told_of_something(
    world: World, agent: tuple[LocalHost, str], kind: str
) -> None:
    seen = looked(agent)
    folder = world.muster_home / "agents" / agent[1]
    subprocess.run(["sh", folder / "bin" / "event", kind], env={**world.env, "MUSTER_AGENT_DIR": folder}, check=True)
    assert not tmux.press(*agent, seen, "> box\n---", "Enter")
    assert tmux.press(*agent, looked(agent), "> box\n---", "x", dialog=True)


def told(world: World, agent_id: str, kind: str = "tool") -> subprocess.Popen[bytes]:
    """Start a hook of the client."""
    folder = world.muster_home / "agents" / agent_id
    return subprocess.Popen(
        ["sh", str(folder / "bin" / "event"), kind], env={**world.env, "MUSTER_AGENT_DIR": str(folder)}
    )


def test_a_hook_does_not_return_while_a_key_is_on_its_way(world: World, agent: tuple[LocalHost, str]) -> None:
    folder = world.muster_home / "agents" / agent[1]
    (folder / ".press").mkdir()
    for name in ("one", "two"):
        (folder / ".press" / name).touch()
    hook = told(world, agent[1])
    eventually(lambda: (folder / "ev" / "tool").exists())
    (folder / ".press" / "one").unlink()
    assert not (folder / ".returned").exists(), "another key is on its way"
    assert hook.poll() is None, "the event is there, and the hook waits"
    (folder / ".press" / "two").unlink()
    assert hook.wait(30) == 0 and (folder / ".returned").exists()


def test_no_key_is_pressed_while_a_hook_that_saw_no_key_is_about_to_return(
    world: World, agent: tuple[LocalHost, str]
) -> None:
    folder = world.muster_home / "agents" / agent[1]
    (folder / ".press").mkdir()
    (folder / ".press" / "one").touch()
    hook = told(world, agent[1])
    eventually(lambda: (folder / "ev" / "tool").exists())
    seen = looked(agent)
    hook.send_signal(signal.SIGSTOP)
    try:
        (folder / ".press" / "one").unlink()
        assert not tmux.press(*agent, seen, "> box\n---", "x")
        assert not tmux.paste(*agent, seen, "> box\n---", "x")
        assert tmux.press(*agent, seen, "> box\n---", "y", dialog=True), "a dialog that is open may be answered"
        eventually(lambda: looked(agent).screen.endswith("y"))
    finally:
        hook.send_signal(signal.SIGCONT)
    assert hook.wait(30) == 0
    eventually(lambda: tmux.press(*agent, looked(agent), "---\ny", "z"))


def test_a_hook_that_was_killed_holds_no_key_back(world: World, agent: tuple[LocalHost, str]) -> None:
    folder = world.muster_home / "agents" / agent[1]
    (folder / ".press").mkdir()
    (folder / ".press" / "one").touch()
    hook = told(world, agent[1])
    eventually(lambda: (folder / "ev" / "tool").exists())
    hook.kill()
    hook.wait(30)
    assert list((folder / ".hooks").iterdir())
    (folder / ".press" / "one").unlink()
    assert tmux.press(*agent, looked(agent), "> box\n---", "x")


def test_a_hook_goes_on_after_a_press_that_was_killed(world: World, agent: tuple[LocalHost, str]) -> None:
    folder = world.muster_home / "agents" / agent[1]
    (folder / ".press").mkdir()
    (folder / ".press" / "killed").touch()
    assert told(world, agent[1]).wait(60) == 0
    assert not (folder / ".press").exists()


def test_hooks_wait_until_the_client_has_read_the_key(world: World, agent: tuple[LocalHost, str]) -> None:
    """A client that is slow to read must not find the key in a dialog that it opened meanwhile."""
    folder = world.muster_home / "agents" / agent[1]
    reader = int(world.tmux("list-panes", "-a", "-F", "#{pane_pid}").stdout)
    assert tmux.paste(*agent, looked(agent), "> box\n---", "first")
    eventually(lambda: looked(agent).screen.endswith("first"))
    eventually(lambda: not list((folder / ".press").iterdir()))
    os.kill(reader, signal.SIGSTOP)  # the terminal echoes by itself, so what is stopped is the recorder that reads it
    try:
        assert tmux.press(*agent, looked(agent), "---\nfirst", "Enter")
        hook = told(world, agent[1])
        eventually(lambda: (folder / "ev" / "tool").exists())
        assert hook.poll() is None and list((folder / ".press").iterdir())
    finally:
        os.kill(reader, signal.SIGCONT)
    assert hook.wait(60) == 0


def test_a_key_waits_until_the_dialog_of_a_hook_would_be_drawn(world: World, agent: tuple[LocalHost, str]) -> None:
    """The dialog for a tool is drawn a moment after the hook that told of it, and the screen does not show it yet."""
    assert told(world, agent[1]).wait(30) == 0
    returned = world.muster_home / "agents" / agent[1] / ".returned"
    moment = time.time() + 0.5  # however slow this machine is, that is a moment ago
    returned.write_text(f"{moment:.9f}")
    assert tmux.press(*agent, looked(agent), "> box\n---", "x", dialog=True)
    eventually(lambda: looked(agent).screen.endswith("x"))
    # A busy machine may say that it is too busy to tell.
    eventually(lambda: tmux.press(*agent, looked(agent), "---\nx", "y"))
    assert time.time() >= moment + 2


def test_a_dialog_that_opens_during_that_wait_gets_no_key(world: World, agent: tuple[LocalHost, str]) -> None:
    folder = world.muster_home / "agents" / agent[1]
    assert told(world, agent[1]).wait(30) == 0
    (folder / ".returned").write_text(f"{time.time() + 3:.9f}")
    seen, pressed = looked(agent), []
    press = threading.Thread(target=lambda: pressed.append(tmux.press(*agent, seen, "> box\n---", "x")))
    press.start()
    eventually(lambda: (folder / ".press").exists() and list((folder / ".press").iterdir()))
    assert told(world, agent[1], "permission").wait(30) == 0
    press.join()
    assert pressed == [False]


def test_texts_are_compared_as_clients_keep_them(tmp_path: Path) -> None:
    assert same("Re\u0301sume\u0301", "R\u00e9sum\u00e9")
    assert same("a    b\nc", "a\tb  \nc\n\n") and not same("a b", "ab")
    kind, claude = AgentType("any"), agent_type("claude", {})
    assert shows("Re\u0301sume\u0301 \N{PARTY POPPER}", "R\u00e9sum\u00e9 \N{PARTY POPPER}", kind)
    assert shows("x" * 5000, "[Pasted text #1 +9 lines]", claude) and shows(
        "one two three four", "two three four", kind
    )
    assert not shows("x" * 5000, "[Pasted text #1 +9 lines]", kind)
    assert not shows("one two three", "a question of another", kind)
