"""Run the user's `[notify] command` when an agent needs a person.

An agent on the user's machine runs it itself (notifier.py). The program is not on other hosts, and must not run there:
of their agents it is told by whoever watches them. Agents of a run tell nothing by themselves: a run has alerts.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from . import config, notifier
from .host import SH, Host
from .model import Agent, Status


class User(NamedTuple):
    """What it takes to tell the user something."""

    settings: dict[str, Any]
    """`[notify]`."""
    home: str
    """Muster's state folder on the user's machine."""
    env: Mapping[str, str]


def files(settings: dict[str, Any], host: Host, agent: Agent) -> dict[str, bytes]:
    """What an agent's folder holds of it. Empty files take back what was configured when the agent was last started."""
    if not host.local:
        return {}
    command, states = ("", []) if _of_run(agent) else _wanted(settings)
    files = {"notify/command": command.encode("utf-8", "surrogateescape"), "notify/on": " ".join(states).encode()}
    if command:
        files["notify/python"] = os.fsencode(sys.executable or "python3") + b"\n"
        for name, source in (("notify", f"{SH}/agent/notify.sh"), ("notify.py", notifier.__file__)):
            with open(source, "rb") as file:
                files[f"bin/{name}"] = file.read()
    return files


class Watch:
    """Tells of agents on other hosts, from the statuses that somebody who watches them sees one after the other."""

    def __init__(self, user: User, beside: bool = False) -> None:
        self.user, self.beside = user, beside
        self.command, self.states = _wanted(user.settings)
        self.last: dict[tuple[str, str], str] = {}

    def see(self, statuses: Iterable[Status]) -> None:
        known = {place for place, _ in list(self.last)}
        for status in statuses:
            if not self.command or not status.place or status.state == "unreachable":
                continue
            key = status.place, status.agent.id
            was = self.last.get(key, "starting" if status.place in known else status.state)
            self.last[key] = status.state
            if was != status.state and self._is_news(was, status) and self._is_first(status):
                self._tell(status)

    def _is_news(self, was: str, status: Status) -> bool:
        if _of_run(status.agent) or (was, status.state, status.reason) == ("starting", "ready", ""):
            return False  # the run tells; it has done nothing yet
        failed = status.reason == "failed turn" and "failed" in self.states
        return status.state in self.states or failed

    def _is_first(self, status: Status) -> bool:
        """Return whether no other process has notified the user of this. Several processes may watch the same agent."""
        import fcntl

        told = f"{status.agent.id} {status.state} {status.since}"
        try:
            with open(os.path.join(self.user.home, "notified"), "a+", encoding="utf-8") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                file.seek(0)
                before = file.read().splitlines()
                if told in before:
                    return False
                file.truncate(0)
                file.write("\n".join([*before[-999:], told]) + "\n")
        except OSError:
            pass  # twice is better than never
        return True

    def _tell(self, status: Status) -> None:
        told = {
            "MUSTER_AGENT": status.agent.name,
            "MUSTER_NOTIFY_ADDRESS": str(status.address),
            "MUSTER_NOTIFY_STATE": status.state,
            "MUSTER_NOTIFY_REASON": status.reason,
            "MUSTER_NOTIFY_TEXT": _plain(status.last_line)[:200],
            "MUSTER_NOTIFY_WORKDIR": _plain(status.agent.cwd)[:4096],
        }
        _run(self.user, self.command, told, self.beside)


def alert(user: User, run: str, cause: str, text: str) -> None:
    """Tell of a whole run: what goes wrong in it, or that it was ended."""
    command, states = _wanted(user.settings)
    if command and "alert" in states:
        told = {"STATE": "alert", "REASON": cause, "TEXT": _plain(text)[:200], "ADDRESS": "", "WORKDIR": ""}
        _run(
            user,
            command,
            {"MUSTER_AGENT": run, **{f"MUSTER_NOTIFY_{key}": value for key, value in told.items()}},
            True,
        )


def _run(user: User, command: str, told: dict[str, str], beside: bool) -> None:
    """Until it has ended, or `beside` all that goes on here."""
    log = os.path.join(user.home, "notify.log")
    argv = [sys.executable or "python3", "-I", "-S", notifier.__file__, "-run", log, str(notifier.SECONDS), command]
    child = subprocess.Popen(argv, env={**user.env, **told}, stdin=subprocess.DEVNULL, start_new_session=True)
    if not beside:
        child.wait()


def _wanted(settings: dict[str, Any]) -> tuple[str, list[str]]:
    return settings.get("command", ""), settings.get("on", list(config.NOTIFY_ON))


def _of_run(agent: Agent) -> bool:
    return "run" in agent.labels


def _plain(text: str) -> str:
    """Hostile text as a variable can hold it: nothing that a terminal would obey, no half characters."""
    return "".join(char for char in text.replace("\t", " ") if char.isprintable()).strip()
