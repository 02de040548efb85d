"""A dialog of which no hook tells is seen on the screen, and nothing is typed into it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from muster.plugins import agent_type

from ..conftest import World, eventually
from .conftest import ClientWorld

#: Says that it is ready, and shows the screen that is in the file until there is another one.
PROGRAM = """
sh "$MUSTER_AGENT_DIR/bin/event" ready
while :; do
    cmp -s "$1/screen" "$1/shown.$$" || { cp "$1/screen" "$1/shown.$$" && printf '\\033[H\\033[2J' && cat "$1/shown.$$"; }
    sleep "$2"
done
"""
RULE = "─" * 60
BOX = f"● I am done\n\n{RULE}\n❯ \n{RULE}\n  ? for shortcuts"
#: What newer versions of Claude Code offer after a turn. Its entries have no numbers.
OFFER = f"""● I am done

{RULE}
 Make auto mode your default permission mode?

 Auto mode lets Claude handle permission prompts automatically.

 ❯ Yes, set auto mode as my default permission mode
   No, keep Manual mode"""
QUOTED = f"● A menu looks like this:\n   ❯ 1. Yes\n     2. No\n\n{RULE}\n❯ \n{RULE}\n  ? for shortcuts"


def standin(world: World, looks: str = "0.1") -> None:
    """An agent `one` whose screen is judged as that of Claude Code, and which looks so often for another screen."""
    kind = agent_type("claude", {})
    words: dict[str, Any] = {"argv": ["sh", "-c", PROGRAM, "sh", str(world.folder), looks], "speaks": True}
    words |= {"receipt": "prompt", "input": kind.input, "box": kind.box, "choice": kind.choice, "cursor": kind.cursor}
    lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in words.items()]
    path = world.home / ".config" / "muster" / "config.toml"
    path.parent.mkdir(parents=True)
    path.write_text("\n".join(["[types.standin]", *lines, ""]), encoding="utf-8")
    show(world.folder, BOX)
    world.ok("create", "one", "standin", "--no-connect")
    world.wait_state("one", "ready")


def show(folder: Path, screen: str) -> None:
    new = folder / "new"
    new.write_text(screen, encoding="utf-8")
    new.replace(folder / "screen")


def state(world: World) -> tuple[object, object]:
    row = world.agents()["one"]
    return row["state"], row["reason"]


def test_a_menu_in_place_of_the_input_box_is_waited_on_until_it_is_gone(world: World) -> None:
    standin(world)
    show(world.folder, OFFER)
    eventually(lambda: state(world) == ("waiting", "dialog"))
    told = world.ok("explain", "one").stdout
    assert "Yes, set auto mode as my default permission mode" in told and "no hook told of one" in told
    assert "muster connect one" in world.fails(7, "message", "one", "-m", "hello").stderr
    assert "muster connect one" in world.fails(7, "answer", "one", "yes").stderr
    show(world.folder, BOX)
    eventually(lambda: state(world) == ("ready", None))


def test_words_that_look_like_a_menu_above_the_input_box_are_none(world: World) -> None:
    standin(world)
    show(world.folder, QUOTED)
    eventually(lambda: "❯ 1. Yes" in world.ok("capture", "one").stdout)
    assert state(world) == ("ready", None)


def test_the_menus_of_more_agents_than_one_call_of_tmux_takes_are_all_seen(world: World) -> None:
    standin(world, looks="5")
    show(world.folder, OFFER)
    world.ok("create", "many", "standin", "--no-connect", "--count", "40")
    eventually(
        lambda: {(row["state"], row["reason"]) for row in world.agents().values()} == {("waiting", "dialog")}, 60
    )
    assert len(world.agents()) == 41


def opens(client: ClientWorld, command: str) -> None:
    """A person opens a menu of the client, of which it tells nobody."""
    client.made("hello")
    pane = f"={client.until('ready')['id']}:"
    client.tmux("send-keys", "-t", pane, "-l", command)
    eventually(lambda: command in client.ok("capture", "one").stdout)
    client.tmux("send-keys", "-t", pane, "Enter")
    row = client.until("waiting")
    assert row["reason"] == "dialog"
    assert "muster connect one" in client.fails(7, "message", "one", "-m", "hello?").stderr
    client.tmux("send-keys", "-t", pane, "Escape")
    client.until("ready")
    client.ok("message", "one", "-m", "and now?")
    client.until("ready")
    assert (client.heard()[0], client.heard()[-1]) == ("hello", "and now?")  # it may tell its model of the menu


@pytest.mark.parametrize("command", ["/theme", "/model"])
def test_a_menu_of_claude_code_is_waited_on(claude: ClientWorld, command: str) -> None:
    opens(claude, command)


@pytest.mark.parametrize("command", ["/theme", "/permissions"])
def test_a_menu_of_codex_is_waited_on(codex: ClientWorld, command: str) -> None:
    opens(codex, command)
