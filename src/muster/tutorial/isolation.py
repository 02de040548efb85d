"""A place of its own for each test: home, XDG folders, tmux, git identity, work folder, environment; and what a test left behind.

Every process of a test carries `MUSTER_E2E` in its environment, so it is found however it detached itself.
"""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

MARK = "MUSTER_E2E"
#: How long what ends by itself may take, after its test, until it counts as left behind.
ENDING = 3.0
#: All that comes in from outside, besides what the configuration names.
PASSED = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "USER", "LOGNAME", "SHELL", "TZ")
GITCONFIG = """[user]
\tname = Test User
\temail = test@example.invalid
[init]
\tdefaultBranch = main
[commit]
\tgpgSign = false
"""
CONNECT = '[commands.create]\nconnect_command = "muster-e2e-connect"\n'


class Process(NamedTuple):
    pid: int
    parents: tuple[int, ...]
    command: str
    started: str  # in ticks since boot: with the pid, a name that is never given twice


class Place:
    """The folders and the environment of one test."""

    def __init__(self, outer: Mapping[str, str], passed: Iterable[str] = ()) -> None:
        base = tempfile.gettempdir()
        # A socket's path has 107 bytes at most, and tmux sockets live in here.
        self.root = Path(tempfile.mkdtemp(prefix="e2e-", dir=base if len(base) < 40 else "/tmp"))
        self.home, self.work, self.tmp = self.root / "home", self.root / "work", self.root / "tmp"
        self.run, self.control = self.root / "run", self.root / "control"
        for folder in (self.home, self.work, self.tmp, self.run, self.control):
            folder.mkdir(mode=0o700)
        self.env = self._environment(outer, passed)
        (self.home / ".gitconfig").write_text(GITCONFIG)
        config = self.home / ".config" / "muster"
        config.mkdir(parents=True)
        (config / "config.toml").write_text(CONNECT)

    def _environment(self, outer: Mapping[str, str], passed: Iterable[str]) -> dict[str, str]:
        env = {name: outer[name] for name in (*PASSED, *passed) if name in outer}
        # The programs of the environment that runs the tests come first: the one under test is usually there.
        env["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), env.get("PATH", os.defpath)])
        if not env.get("LC_ALL") and not env.get("LANG"):
            env["LANG"] = "C.UTF-8"
        env |= {
            "HOME": str(self.home),
            "XDG_CONFIG_HOME": str(self.home / ".config"),
            "XDG_DATA_HOME": str(self.home / ".local" / "share"),
            "XDG_STATE_HOME": str(self.home / ".local" / "state"),
            "XDG_CACHE_HOME": str(self.home / ".cache"),
            "XDG_RUNTIME_DIR": str(self.run),
            "TMPDIR": str(self.tmp),
            "TMUX_TMPDIR": str(self.run),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": str(self.home / ".gitconfig"),
            "GIT_TERMINAL_PROMPT": "0",
            "TERM": "xterm-256color",
            MARK: str(self.control),
        }
        return env

    def processes(self) -> list[Process] | None:
        """Those that are left of this test; None where this system does not tell."""
        if not os.path.isdir("/proc/self"):
            return None
        mark = f"{MARK}={self.control}".encode()
        found = []
        for entry in os.listdir("/proc"):
            if not entry.isdigit():
                continue
            try:
                with open(f"/proc/{entry}/environ", "rb") as file:
                    if mark not in file.read().split(b"\0"):
                        continue
                with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as text:
                    fields = text.read().rpartition(")")[2].split()
                with open(f"/proc/{entry}/cmdline", "rb") as file:
                    words = file.read().rstrip(b"\0").split(b"\0")
            except OSError:
                continue
            if fields[0] != "Z":
                command = b" ".join(words).decode("utf-8", "replace")
                found.append(Process(int(entry), _ancestors(int(fields[1])), command[:200], fields[19]))
        return found

    def sessions(self) -> list[tuple[int, str]]:
        """tmux sessions whose server has its socket in here: the server's pid, and a name with the socket."""
        found = []
        for folder, _, names in os.walk(self.root):
            for name in names:
                path = os.path.join(folder, name)
                try:
                    if not stat.S_ISSOCK(os.lstat(path).st_mode) or path.startswith(str(self.control)):
                        continue
                except OSError:
                    continue
                asked = ["tmux", "-S", path, "-f", "/dev/null", "list-sessions", "-F", "#{pid} #{session_name}"]
                try:
                    done = subprocess.run(asked, capture_output=True, text=True, timeout=5, check=False, env=self.env)
                except (OSError, subprocess.TimeoutExpired):
                    continue
                if done.returncode == 0:
                    for line in done.stdout.splitlines():
                        pid, _, name = line.partition(" ")
                        found.append((int(pid), f"{name} on {path}"))
        return found

    def leaks(self) -> list[str]:
        """Processes and sessions that are still there, each in a line; those inside a session are not named again.

        What is about to end by itself has a moment to do so.
        """
        deadline = time.monotonic() + ENDING
        while True:
            sessions = self.sessions()
            servers = {pid for pid, _ in sessions}
            left = []
            for one in self.processes() or []:
                ours = str(self.control) in one.command or "muster.tutorial.record" in one.command
                if not ours and not servers.intersection((one.pid, *one.parents)):
                    left.append(f"process {one.pid}: {one.command}")
            if not left or time.monotonic() > deadline:
                return [*(f"tmux session {line}" for _, line in sessions), *left]
            time.sleep(0.05)

    def end(self) -> None:
        """End every process of the test, each by its id, and the tmux servers in here."""
        for pid in {pid for pid, _ in self.sessions()}:
            os.kill(pid, signal.SIGTERM)
        for sign, patience in ((signal.SIGTERM, 1.0), (signal.SIGKILL, 5.0)):
            deadline = time.monotonic() + patience
            told: set[tuple[int, str]] = set()
            while left := self.processes():
                for one in left:
                    if (one.pid, one.started) not in told:
                        told.add((one.pid, one.started))
                        try:
                            os.kill(one.pid, sign)
                        except (ProcessLookupError, PermissionError):
                            pass
                if time.monotonic() > deadline:
                    break
                time.sleep(0.02)

    def remove(self) -> None:
        def open_up(function: object, path: str, error: object) -> None:
            # A folder that a test made unreadable is in the way of its removal.
            try:
                os.chmod(os.path.dirname(path), 0o700)
                os.chmod(path, 0o700)
                os.unlink(path) if not os.path.isdir(path) or os.path.islink(path) else shutil.rmtree(path)
            except OSError:
                pass

        shutil.rmtree(self.root, onerror=open_up)


def _ancestors(pid: int) -> tuple[int, ...]:
    found: list[int] = []
    while pid > 1 and pid not in found:
        found.append(pid)
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as text:
                pid = int(text.read().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            break
    return tuple(found)


def listing(folders: Iterable[str]) -> dict[str, frozenset[str]]:
    """The names in each folder: what is compared to find files that a test left outside of its own."""
    found = {}
    for folder in folders:
        try:
            found[folder] = frozenset(os.listdir(folder))
        except OSError:
            continue
    return found


#: Names that appear by themselves in watched folders: other tests, test runners, interpreters.
EXPECTED = (
    "e2e-",
    "pytest-",
    ".pytest_cache",
    "__pycache__",
    ".muster",
    "tmux-",
    ".coverage",
    ".hypothesis",
    "muster-",
)


def strays(before: Mapping[str, frozenset[str]], after: Mapping[str, frozenset[str]]) -> list[str]:
    """Files that appeared outside the test's own folder, each in a line."""
    return [
        f"file {os.path.join(folder, name)}"
        for folder, names in sorted(after.items())
        for name in sorted(names - before.get(folder, frozenset()))
        if not name.startswith(EXPECTED)
    ]
