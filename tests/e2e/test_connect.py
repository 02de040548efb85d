"""`connect` in a real terminal: a private tmux server is the user's terminal, and a pty the one around it."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import threading
from collections.abc import Iterator
from pathlib import Path

import pyte
import pytest

from ..conftest import World, eventually

COLS, ROWS = 100, 30


class Terminal:
    """A user's own tmux server with one session, whose pane is a shell. Keys go straight to the pane."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.socket = str(world.folder / "user.sock")
        shell = "PS1='here> ' exec bash --norc --noprofile"
        self.tmux("new-session", "-d", "-s", "mine", "-x", str(COLS), "-y", str(ROWS), "-c", str(world.repo), shell)
        self.pane = self.tmux("list-panes", "-F", "#{pane_id}").strip()
        self.see("here>")

    def tmux(self, *argv: str) -> str:
        done = subprocess.run(
            ["tmux", "-S", self.socket, "-f", "/dev/null", "-u", *argv],
            env=self.world.env,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    def type(self, line: str) -> None:
        self.tmux("send-keys", "-t", self.pane, "-l", line)
        self.keys("Enter")

    def keys(self, *names: str) -> None:
        self.tmux("send-keys", "-t", self.pane, *names)

    def screen(self) -> str:
        return self.tmux("capture-pane", "-p", "-t", self.pane)

    def see(self, text: str) -> None:
        """Wait until the screen shows it."""
        try:
            eventually(lambda: text in self.screen())
        except AssertionError as error:
            raise AssertionError(f"no {text!r} on the screen:\n{self.screen()}") from error

    def options(self) -> str:
        """Everything of the server that a user could have set."""
        asked = (("show-options", "-s"), ("show-options", "-g"), ("show-options", "-gw"), ("show-environment", "-g"))
        return "\n".join(self.tmux(*argv) for argv in (*asked, ("list-keys",), ("show-hooks", "-g")))

    def clients(self) -> list[str]:
        return self.tmux("list-clients", "-F", "#{client_tty} #{session_name}").splitlines()

    def end(self) -> None:
        subprocess.run(["tmux", "-S", self.socket, "kill-server"], capture_output=True, check=False)


class Client:
    """A terminal around tmux: a pty with a client of the user's server, and what a person would see on it."""

    def __init__(self, terminal: Terminal) -> None:
        self.display = pyte.Screen(COLS, ROWS)
        self._stream = pyte.ByteStream(self.display)
        self._lock = threading.Lock()
        self._over = False
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLS, 0, 0))
        self.tty = os.ttyname(slave)
        self.process = subprocess.Popen(
            ["tmux", "-S", terminal.socket, "-u", "attach-session", "-t", "mine"],
            env=terminal.world.env,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(slave)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while not self._over:
            if not select.select([self.master], [], [], 0.1)[0]:
                continue
            try:
                data = os.read(self.master, 65536)
            except OSError:
                return
            with self._lock:
                self._stream.feed(data)

    def shows(self, text: str) -> bool:
        with self._lock:
            return any(text in line for line in self.display.display)

    def keys(self, data: bytes) -> None:
        os.write(self.master, data)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self._over = True
        self._reader.join()
        os.close(self.master)


@pytest.fixture
def terminal(world: World) -> Iterator[Terminal]:
    terminal = Terminal(world)
    yield terminal
    terminal.end()


@pytest.fixture
def client(terminal: Terminal) -> Iterator[Client]:
    client = Client(terminal)
    eventually(lambda: terminal.clients() == [f"{client.tty} mine"])
    yield client
    client.end()


def echoing(world: World, name: str = "echoing") -> str:
    """An agent that says who it is and then repeats what is typed."""
    script = 'echo "I am $MUSTER_AGENT"; while read -r line; do echo "heard <$line>"; done'
    world.ok("create", name, "command", "--no-connect", "--", "sh", "-c", script)
    eventually(lambda: f"I am {name}" in world.ok("capture", name).stdout)
    return name


def size(world: World, name: str) -> str:
    agent_id = world.agents()[name]["id"]
    return world.tmux("list-panes", "-t", f"={agent_id}:", "-F", "#{pane_width}x#{pane_height}").stdout.decode().strip()


def agent_clients(world: World) -> list[str]:
    return world.tmux("list-clients", "-F", "#{client_tty} #{session_name}").stdout.decode().splitlines()


# Outside of tmux


def test_outside_tmux_the_terminal_is_the_agents_until_it_is_left(world: World, terminal: Terminal) -> None:
    name = echoing(world)
    terminal.type(f"unset TMUX TMUX_PANE; muster connect {name}; echo back: $?")
    terminal.see("I am echoing")
    terminal.see("detach: C-b d")
    terminal.type("hello")
    terminal.see("heard <hello>")
    terminal.keys("C-b", "d")
    terminal.see("back: 0")
    assert world.state(name) == "working"
    assert agent_clients(world) == []
    assert "heard <hello>" in world.ok("capture", name).stdout
    # And in again: all is as it was.
    terminal.type(f"clear; muster connect {name}; echo back: $?")
    terminal.see("heard <hello>")
    terminal.keys("C-b", "d")
    terminal.see("back: 0")


def test_the_end_of_the_program_is_told_in_the_status_line_and_after_leaving(world: World, terminal: Terminal) -> None:
    for name, command, line, after in (
        ("fails", "exit 3", "ended with exit code 3; detach: C-b d", "fails has ended: failed (exit code 3)"),
        ("ends", "exit 0", "ended with exit code 0; detach: C-b d", "ends has ended: done (exit code 0)"),
    ):
        world.ok("create", name, "command", "--no-connect", "--", "sh", "-c", f"read -r line; {command}")
        terminal.type(f"clear; unset TMUX TMUX_PANE; muster connect {name}; echo back: $?")
        terminal.see("detach: C-b d")
        assert "ended" not in terminal.screen()
        terminal.type("go")
        terminal.see(line)
        terminal.keys("C-b", "d")
        terminal.see("back: 0")
        assert after in terminal.screen() and f"muster start {name}" in terminal.screen()


def test_after_leaving_a_live_agent_its_state_is_told(world: World, terminal: Terminal) -> None:
    name = echoing(world)
    terminal.type(f"unset TMUX TMUX_PANE; muster connect {name}; echo back: $?")
    terminal.see("I am echoing")
    terminal.keys("C-b", "d")
    terminal.see("back: 0")
    assert "detached from echoing, which is working; muster connect echoing attaches again" in terminal.screen()


def test_create_on_a_terminal_connects_and_no_connect_does_not(world: World, terminal: Terminal) -> None:
    terminal.type("unset TMUX TMUX_PANE; muster create one command -- sh -c 'echo I am one; sleep 1000'; echo back: $?")
    terminal.see("detach: C-b d")
    terminal.see("I am one")
    terminal.keys("C-b", "d")
    terminal.see("back: 0")
    terminal.type("clear; muster create two command --no-connect -- sleep 1000; echo code: $?")
    terminal.see("code: 0")
    assert agent_clients(world) == []
    assert world.state("two") == "working"


def test_an_agent_that_has_ended_is_not_connected_to(world: World, terminal: Terminal) -> None:
    world.ok("create", "ended", "command", "--no-connect", "--", "true")
    world.wait_state("ended", "done")
    terminal.type("unset TMUX TMUX_PANE; muster connect ended; echo back: $?")
    terminal.see("back: 1")
    assert "ended is done" in terminal.screen() and "muster start ended" in terminal.screen()


def test_the_terminal_comes_back_when_the_agent_is_stopped(world: World, terminal: Terminal) -> None:
    name = echoing(world)
    terminal.type(f"unset TMUX TMUX_PANE; muster connect {name}; echo back: $?")
    terminal.see("I am echoing")
    world.ok("stop", name)
    terminal.see("back: ")


# Inside tmux


def test_inside_tmux_the_client_is_switched_there_and_comes_back(
    world: World, terminal: Terminal, client: Client
) -> None:
    terminal.tmux("set-option", "-g", "status-left", "MINE ")
    terminal.tmux("set-option", "-g", "@kept", "yes")
    before = terminal.options()
    name = echoing(world)
    terminal.type(f"muster connect {name}; echo back: $?")
    eventually(lambda: client.shows("I am echoing") and client.shows("detach: C-b d"))
    assert [line.split()[0] for line in agent_clients(world)] == [client.tty]
    assert terminal.clients() == []
    client.keys(b"hi\r")
    eventually(lambda: client.shows("heard <hi>"))
    client.keys(b"\x02d")
    eventually(lambda: terminal.clients() == [f"{client.tty} mine"])
    eventually(lambda: client.shows("back: 0"))
    assert agent_clients(world) == []
    assert client.process.poll() is None
    assert terminal.options() == before
    assert world.state(name) == "working"


def test_inside_tmux_the_client_comes_back_when_the_agent_is_stopped(
    world: World, terminal: Terminal, client: Client
) -> None:
    name = echoing(world)
    terminal.type(f"muster connect {name}")
    eventually(lambda: client.shows("I am echoing"))
    world.ok("stop", name)
    eventually(lambda: terminal.clients() == [f"{client.tty} mine"])
    assert client.process.poll() is None


def test_inside_tmux_only_the_client_that_asked_is_switched(world: World, terminal: Terminal, client: Client) -> None:
    """Two people look at the same server from two sessions; one connects."""
    terminal.tmux("new-session", "-d", "-s", "other", "-x", str(COLS), "-y", str(ROWS), "sleep 1000")
    second = Client(terminal)
    try:
        eventually(lambda: len(terminal.clients()) == 2)
        terminal.tmux("switch-client", "-c", second.tty, "-t", "=other")
        name = echoing(world)
        terminal.type(f"muster connect {name}")
        eventually(lambda: client.shows("I am echoing"))
        assert terminal.clients() == [f"{second.tty} other"]
        client.keys(b"\x02d")
        eventually(lambda: sorted(terminal.clients()) == sorted([f"{client.tty} mine", f"{second.tty} other"]))
    finally:
        second.end()


# Only looking


def test_watch_sends_no_keys(world: World, terminal: Terminal) -> None:
    name = echoing(world)
    terminal.type(f"unset TMUX TMUX_PANE; muster connect {name} --watch; echo back: $?")
    terminal.see("I am echoing")
    terminal.type("forbidden")
    # tmux takes keys that follow each other within a millisecond for pasted text, in which C-b is no prefix: press again.
    eventually(lambda: terminal.keys("C-b", "d") or "back: 0" in terminal.screen())
    assert "forbidden" not in world.ok("capture", name).stdout


def test_watch_does_not_resize_the_agent(world: World, terminal: Terminal) -> None:
    name = echoing(world)
    assert size(world, name) == "200x50"
    terminal.type(f"unset TMUX TMUX_PANE; muster connect {name} --watch; echo back: $?")
    terminal.see("I am echoing")
    assert size(world, name) == "200x50"
    terminal.keys("C-b", "d")
    terminal.see("back: 0")
    assert size(world, name) == "200x50"


def test_connect_that_may_type_fits_the_agent_to_the_terminal(world: World, terminal: Terminal) -> None:
    """The difference that makes the tests of --watch mean something."""
    name = echoing(world)
    terminal.type(f"unset TMUX TMUX_PANE; muster connect {name}; echo back: $?")
    terminal.see("I am echoing")
    eventually(lambda: size(world, name) == f"{COLS}x{ROWS - 1}")
    terminal.type("allowed")
    terminal.see("heard <allowed>")
    terminal.keys("C-b", "d")
    terminal.see("back: 0")


def test_watch_inside_tmux_does_not_resize_either(world: World, terminal: Terminal, client: Client) -> None:
    name = echoing(world)
    terminal.type(f"muster connect {name} --watch")
    eventually(lambda: client.shows("I am echoing"))
    assert size(world, name) == "200x50"
    client.keys(b"\x02d")
    eventually(lambda: terminal.clients() == [f"{client.tty} mine"])
    assert size(world, name) == "200x50"


# A command instead


def configure(world: World, command: str) -> None:
    folder = world.home / ".config" / "muster"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.toml").write_text(f"[commands.create]\nconnect_command = '''{command}'''\n")


def noted(world: World) -> list[str]:
    return (world.folder / "noted").read_text().splitlines()


def test_connect_command_without_a_terminal_gets_the_agent_and_its_exit_code_counts(world: World) -> None:
    note = world.folder / "noted"
    configure(world, f'printf "%s\\n" "$MUSTER_AGENT" "$MUSTER_ADDRESS" "$MUSTER_ATTACH" > {note}; exit 7')
    result = world.fails(7, "create", "one", "command", "--", "sh", "-c", "echo I am one; sleep 1000")
    assert result.stdout == "one\n"
    assert noted(world)[:2] == ["one", "one"]
    assert noted(world)[2]
    assert world.state("one") == "working"
    # connect uses the same command; a flag beats it.
    note.unlink()
    world.fails(7, "connect", "one")
    assert noted(world)[:2] == ["one", "one"]
    world.fails(9, "connect", "one", "--connect-command", "exit 9")
    world.fails(8, "create", "two", "command", "--connect-command", "exit 8", "--", "sleep", "1000")


def test_connect_command_is_left_out_with_no_connect_json_and_count(world: World) -> None:
    configure(world, f"touch {world.folder / 'noted'}; exit 7")
    world.ok("create", "one", "command", "--no-connect", "--", "true")
    world.ok("create", "two", "command", "--json", "--", "true")
    world.ok("create", "three", "command", "--count", "2", "--", "true")
    assert not (world.folder / "noted").exists()


def test_connect_command_on_a_terminal_can_use_it_and_attach(world: World, terminal: Terminal) -> None:
    note = world.folder / "noted"
    configure(
        world,
        f'printf "%s\\n" "$MUSTER_AGENT" "$MUSTER_ADDRESS" "$(tty)" > {note}; unset TMUX; sh -c "$MUSTER_ATTACH"; exit 5',
    )
    tty = terminal.tmux("list-panes", "-t", terminal.pane, "-F", "#{pane_tty}").strip()
    terminal.type("muster create one command -- sh -c 'echo I am one; sleep 1000'; echo back: $?")
    terminal.see("detach: C-b d")
    terminal.see("I am one")
    assert noted(world) == ["one", "one", tty]
    terminal.keys("C-b", "d")
    terminal.see("back: 5")


def test_connect_command_that_does_not_exist_is_told_by_its_exit_code(world: World) -> None:
    configure(world, "no-such-program-at-all")
    result = world.fails(127, "create", "one", "command", "--", "sleep", "1000")
    assert "no-such-program-at-all" in result.stderr
    assert world.state("one") == "working"


def test_muster_attach_reaches_the_agent_from_anywhere(world: World, terminal: Terminal, tmp_path: Path) -> None:
    name = echoing(world)
    got = world.folder / "attach"
    world.ok("connect", name, "--connect-command", f'printf %s "$MUSTER_ATTACH" > {got}')
    (tmp_path / "elsewhere").mkdir()
    terminal.type(f"unset TMUX TMUX_PANE MUSTER_HOME; cd {tmp_path}/elsewhere; sh {got}; echo back: $?")
    terminal.see("I am echoing")
    terminal.keys("C-b", "d")
    terminal.see("back: 0")
