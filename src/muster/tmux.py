"""Sessions in muster's own tmux server on a host. The user's server is never used."""

from __future__ import annotations

import functools
import os
import subprocess
from collections.abc import Sequence
from typing import NamedTuple

from .errors import Refused
from .host import SH, CommandFailed, Host, Step, chain, checked, script, shell_file
from .model import whole

COLS, ROWS = 200, 50


def start(
    host: Host, agent_id: str, memory: int = 0, cols: int = COLS, rows: int = ROWS, program: str = ""
) -> str | None:
    """Start a session whose pane runs the agent's wrapper. Return None if there is a live one already.

    Returns what `program`, the agent's client, says of its version, if one is named.
    """
    size = (str(cols), str(rows))
    done = script(host, "start", agent_id, str(memory), *size, *([program] if program else []))
    if done.returncode == 17:
        return None
    if done.returncode == 5:
        raise Refused(
            f"--memory cannot be kept here: {done.stderr.decode('utf-8', 'replace').strip()}",
            "leave --memory out, or use a container host",
        )
    if done.returncode:
        raise CommandFailed("start", done.returncode, done.stderr, "muster doctor shows what is missing")
    return done.stdout.decode("utf-8", "replace").strip()


class Stopped(NamedTuple):
    """What `stop` found of an agent."""

    live: bool
    """Whether its program was running in a session."""
    processes: int
    """How many processes it had without such a session."""


#: Limit on ids in one command line, also over ssh.
AT_ONCE = 500


def stop(host: Host, agent_ids: Sequence[str], grace: float = 5.0) -> dict[str, Stopped]:
    """Save the last screens, end every process of these agents and remove their sessions, in one round trip per host.

    An agent that is gone is missing from the result.
    """
    found: dict[str, Stopped] = {}
    for start in range(0, len(agent_ids), AT_ONCE):
        ids = agent_ids[start : start + AT_ONCE]
        step = stop_step(ids, grace)
        found |= stopped(checked(host, step.name, *step.words), ids)
    return found


def stop_step(agent_ids: Sequence[str], grace: float = 5.0) -> Step:
    """Return the step of a chain that `stopped` reads."""
    return Step("stop", (str(int(grace * 20)), bin_files()["bin/reap"].decode(), *agent_ids))


def stopped(said: bytes, agent_ids: Sequence[str]) -> dict[str, Stopped]:
    """Parse the result of `stop_step`; agents that no longer exist are left out."""
    found: dict[str, Stopped] = {}
    for line in said.decode("utf-8", "replace").splitlines():
        agent_id, *words = line.split(" ")
        if len(words) == 2 and agent_id in agent_ids:
            found[agent_id] = Stopped(words[0] == "1", whole(words[1]) or 0)
    return found


def screen(host: Host, agent_id: str, *, ansi: bool = False, scrollback: bool = False) -> str | None:
    """Return what the agent's terminal shows now, or None if it has no session."""
    options = [*(["-e"] if ansi else []), *(["-S", "-"] if scrollback else [])]
    done = script(host, "tmux", "screen", agent_id, *options)
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else None


class Look(NamedTuple):
    """The screen of an agent and the newest events of its client, at one moment."""

    screen: str
    """The text, without empty lines at the end."""
    marks: str
    """When the client last reported a permission, a question and a tool; opaque."""
    cursor: int | None = None
    """The row of the cursor, from 0; None while it is hidden."""


def look(host: Host, agent_id: str) -> Look | None:
    """Return the agent's screen for `press` and `paste` to compare, or None if it has no session."""
    return looked(script(host, "tmux", "look", agent_id))


def look_step(agent_id: str) -> Step:
    """Return the step of a chain that `looked` reads."""
    return Step("tmux", ("look", agent_id))


def looked(done: subprocess.CompletedProcess[bytes]) -> Look | None:
    """Read what `look_step` gave."""
    if done.returncode:
        return None
    marks, cursor, screen = (*done.stdout.decode("utf-8", "replace").split("\n", 2), "", "")[:3]
    return Look(screen.rstrip("\n"), marks, whole(cursor))


#: Exit code of the scripts if the screen has changed since it was read.
CHANGED = 75


def press(host: Host, agent_id: str, seen: Look, end: str, *names: str, dialog: bool = False) -> bool:
    """Press keys if the screen still ends in `end` and the client has reported no tool, permission or question since `seen`.

    Keys for the input box are also held back for a moment after the client told of a tool, because a dialog for it may be about to
    open; with `dialog` the keys are for an open dialog. Returns False if no key was pressed. The check and the key are one round trip.
    """
    return press_then(host, agent_id, seen, end, names, (), dialog=dialog) is not None


def press_then(
    host: Host, agent_id: str, seen: Look, end: str, names: Sequence[str], then: Sequence[Step], *, dialog: bool = False
) -> list[subprocess.CompletedProcess[bytes]] | None:
    """Press keys as `press` does, and run `then` in the same round trip. Return what its steps gave; None if no key was pressed."""
    step, given = _press_step(agent_id, seen, end, names, dialog)
    done, *answers = chain(host, [step, *then], input=given)
    return answers if _proven(done) else None


def paste(host: Host, agent_id: str, seen: Look, end: str, text: str, *, dialog: bool = False) -> bool:
    """Paste text as one piece, under the same conditions as `press`."""
    step, given = _paste_step(agent_id, seen, end, text, dialog)
    return _proven(script(host, step.name, *step.words, input=given))


def paste_and_look(host: Host, agent_id: str, seen: Look, end: str, text: str) -> tuple[bool, Look | None]:
    """Paste text as `paste` does; return whether that was done, and what the terminal shows once it has changed and rests."""
    step, given = _paste_step(agent_id, seen, end, text, dialog=False)
    done = script(host, step.name, *step.words, "look", input=given)
    return (True, looked(done)) if _proven(done) else (False, None)


def submit(
    host: Host, agent_id: str, seen: Look, clear: Sequence[str], text: str, then: Sequence[Step]
) -> tuple[bool, list[subprocess.CompletedProcess[bytes]] | None]:
    """Press `clear`, paste text, press Enter and run `then`, in one round trip, in a terminal whose input box nothing is known of.

    Each is done under the conditions of `press`. Return whether the text was pasted, and what the steps of `then` gave; None if
    Enter was not pressed.
    """
    emptied = [_press_step(agent_id, seen, "", clear, False)[0]._replace(reads=False)] if clear else []
    paste, given = _paste_step(agent_id, seen, "", text, False)
    enter = _press_step(agent_id, seen, "", ("Enter",), False)[0]._replace(reads=False)
    answers = chain(host, [*emptied, paste, enter, *then], input=given)
    typed, rest = answers[: len(emptied) + 2], answers[len(emptied) + 2 :]
    pressed = [_proven(done) for done in typed]
    if all(pressed) and len(pressed) == len(emptied) + 2:
        return True, rest
    return sum(pressed) > len(emptied), None


def _press_step(agent_id: str, seen: Look, end: str, names: Sequence[str], dialog: bool) -> tuple[Step, bytes]:
    lines, given = _expected(end)
    return Step("tmux", ("press", agent_id, seen.marks, lines, "dialog" if dialog else "box", *names), True), given


def _paste_step(agent_id: str, seen: Look, end: str, text: str, dialog: bool) -> tuple[Step, bytes]:
    lines, given = _expected(end)
    words = ("paste", agent_id, seen.marks, lines, "dialog" if dialog else "box")
    return Step("tmux", words, True), given + text.encode()


def _expected(end: str) -> tuple[str, bytes]:
    """Return how many lines the screen has to end in, and these lines."""
    lines = end.split("\n") if end else []
    return str(len(lines)), "".join(f"{line}\n" for line in lines).encode()


def _proven(done: subprocess.CompletedProcess[bytes]) -> bool:
    if done.returncode not in (0, CHANGED):
        raise CommandFailed("tmux", done.returncode, done.stderr)
    return done.returncode == 0


def resize(host: Host, agent_id: str, cols: int, rows: int) -> None:
    checked(host, "tmux", "resize", agent_id, str(cols), str(rows))


def attach(host: Host, agent_id: str, *, watch: bool = False) -> list[str]:
    """Return a local argv that shows the session on the caller's terminal."""
    verb = "watch" if watch else "attach"
    return host.attach(["sh", "-c", shell_file("tmux"), "muster-tmux", host.home, verb, agent_id])


def asks_size(host: Host, agent_id: str) -> list[str]:
    """Return a local argv that prints the columns and rows of the agent's terminal."""
    return host.attach(["sh", "-c", shell_file("tmux"), "muster-tmux", host.home, "size", agent_id])


def switch(host: Host, agent_id: str, client: str, again: list[str]) -> list[str] | None:
    """Return the argv that switches the tmux client named by `client` ($TMUX) to the agent.

    Inside muster's own server that is `switch-client`. Another server cannot switch to a session it
    does not have: its client is exchanged for one that runs `again`, and comes back when that one is left.
    """
    theirs = client.partition(",")[0]
    ours = os.fsdecode(checked(host, "tmux", "socket", agent_id)).strip()
    if _same(theirs, ours):
        return ["tmux", "-S", ours, "switch-client", "-t", f"={agent_id}:"]
    asked = ["tmux", "-S", theirs, "display-message", "-p", "#{session_id}"]
    session = subprocess.run(asked, capture_output=True, text=True, check=False)
    if session.returncode:
        return None
    attached = ["tmux", "-S", theirs, "list-clients", "-t", session.stdout.strip()]
    if not subprocess.run(attached, capture_output=True, check=False).stdout:
        return None  # no client is attached that could be switched
    import shlex

    home = ["tmux", "-S", theirs, "attach-session", "-t", session.stdout.strip()]
    return [
        *("tmux", "-S", theirs, "detach-client", "-E"),
        # Use plain words only, because the user's shell, whichever it is, reads this.
        f"env -u TMUX -u TMUX_PANE {shlex.join(again)}; exec {shlex.join(home)}",
    ]


def render(host: Host, raw: bytes, cols: object, rows: object, *, ansi: bool = False) -> str:
    """Return the screen after these bytes, as rendered by tmux in a temporary server."""
    size = [str(value) if isinstance(value, int) and 0 < value < 1000 else "80" for value in (cols, rows)]
    tail = raw[-200_000:]
    return checked(host, "render", *size, *(["-e"] if ansi else []), input=tail).decode("utf-8", "replace")


@functools.cache
def bin_files() -> dict[str, bytes]:
    """Return the programs that each agent gets a copy of, so that an upgrade of muster does not affect live agents."""
    files = {}
    # What is in bin/path is on the agent's own PATH.
    for name in ("wrap", "event", "hook", "reap", "recorder", "path/submit"):
        with open(f"{SH}/agent/{name.removeprefix('path/')}.sh", "rb") as file:
            files[f"bin/{name}"] = file.read()
    return files


def _same(one: str, other: str) -> bool:
    import os

    try:
        return os.path.samefile(one, other)
    except OSError:
        return False
