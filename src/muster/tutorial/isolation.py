"""A place of its own for each test: home, XDG folders, tmux, git identity, work folder, environment; and what a test left behind.

Every process of a test carries two marks, so it is found however it detached itself: `MUSTER_E2E` in its environment, and a soft
limit (bytes of POSIX message queues) that no other test has. A process that was started with `env -i setsid` still has the second.

The test holds a lock on a file in its folder. The lock goes with the process, so a later run knows which folders were left by a run
that was killed, and sweeps them.
"""

from __future__ import annotations

import fcntl
import functools
import json
import os
import random
import resource
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
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


class Territory:
    """The folder of one test and the processes that belong to it, while it runs or after it was killed."""

    def __init__(self, root: Path, tag: int) -> None:
        self.root, self.control, self.tag = root, root / "control", tag
        self.env: dict[str, str] = {key: value for key, value in os.environ.items() if key not in ("TMUX", "TMUX_PANE")}

    def processes(self) -> list[Process] | None:
        """Those that are left of this test; None where this system does not tell."""
        if not os.path.isdir("/proc/self"):
            return None
        mark, name = f"{MARK}={self.control}".encode(), f"{MARK}=".encode()
        found = []
        for entry in os.listdir("/proc"):
            if not entry.isdigit():
                continue
            try:
                with open(f"/proc/{entry}/environ", "rb") as file:
                    marks = [word for word in file.read().split(b"\0") if word.startswith(name)]
                if mark not in marks and (marks or not self.tag or _tag_of(entry) != self.tag):
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
                for line in self._tmux(path, "list-sessions", "-F", "#{pid} #{session_name}").splitlines():
                    pid, _, name = line.partition(" ")
                    found.append((int(pid), f"{name} on {path}"))
        return found

    def _tmux(self, socket: str, *words: str) -> str:
        """Output of a tmux command; empty if there is no server at the socket."""
        argv = ["tmux", "-S", socket, "-f", "/dev/null", *words]
        try:
            done = subprocess.run(argv, capture_output=True, text=True, timeout=5, check=False, env=self.env)
        except (OSError, subprocess.TimeoutExpired):
            return ""
        return done.stdout if done.returncode == 0 else ""

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
        for socket in {line.partition(" on ")[2] for _, line in self.sessions()}:
            self._tmux(socket, "kill-server")
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
        """Remove the folder with everything in it, also what a test made unreadable."""
        _open_up(str(self.root))
        for folder, names, _ in os.walk(self.root):  # from the top: each folder is opened before it is entered
            for name in names:
                _open_up(os.path.join(folder, name))
        shutil.rmtree(self.root, ignore_errors=True)


def _open_up(path: str) -> None:
    try:
        if not os.path.islink(path):
            os.chmod(path, 0o700)
    except OSError:
        pass


class Place(Territory):
    """The folders and the environment of a test that runs."""

    def __init__(self, outer: Mapping[str, str], passed: Iterable[str] = (), keep: bool = False) -> None:
        # A socket's path has 107 bytes at most, and tmux sockets live in here.
        super().__init__(Path(tempfile.mkdtemp(prefix=PREFIX, dir=_base())), _new_tag())
        self.home, self.work, self.tmp, self.run = (self.root / name for name in ("home", "work", "tmp", "run"))
        for folder in (self.home, self.work, self.tmp, self.run, self.control):
            folder.mkdir(mode=0o700)
        self._lock = _claim(self.control / OWNER, {"pid": os.getpid(), "tag": self.tag, "keep": keep})
        self.env = self._environment(outer, passed)
        (self.home / ".gitconfig").write_text(GITCONFIG)
        config = self.home / ".config" / "muster"
        config.mkdir(parents=True)
        (config / "config.toml").write_text(CONNECT)

    def marked(self, argv: Sequence[str]) -> list[str]:
        """The command, run with the limit that marks the processes of this test."""
        return ["bash", "-c", 'ulimit -S -q "$0" 2>/dev/null; exec "$@"', str(self.tag), *argv] if self.tag else [*argv]

    def remove(self) -> None:
        super().remove()
        self.release()

    def release(self) -> None:
        """Let go of the folder: from now on it is nobody's."""
        if self._lock >= 0:
            os.close(self._lock)
            _HELD.remove(self._lock)
            self._lock = -1

    def kept(self) -> None:
        """Leave the folder to the user: no later run sweeps it."""
        (self.control / OWNER).unlink(missing_ok=True)
        self.release()

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


# Folders of tests that were killed

PREFIX, OWNER = "e2e-", "owner"


def _base() -> str:
    base = tempfile.gettempdir()
    return base if len(base) < 40 else "/tmp"


def _claim(path: Path, facts: dict[str, object]) -> int:
    """Write a file and lock it for the life of this process; returns its descriptor. No other process sees it unlocked."""
    part = path.with_name(f".{path.name}")
    fd = os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX)
    os.write(fd, json.dumps(facts).encode())
    os.rename(part, path)
    _HELD.append(fd)
    _leave_to_parent()
    return fd


#: The locks of this process.
_HELD: list[int] = []


@functools.cache
def _leave_to_parent() -> None:
    """Close the locks in forked children: one that runs no program would hold them when the test is gone."""

    def close() -> None:
        while _HELD:
            os.close(_HELD.pop())

    os.register_at_fork(after_in_child=close)


def sweep() -> list[str]:
    """End and remove what tests left whose process was killed; returns a line for each.

    Only folders of this user with the file that a test locks count, and only if nobody holds that lock any more.
    """
    swept = []
    for entry in sorted(os.listdir(_base())):
        root = Path(_base(), entry)
        if not entry.startswith(PREFIX) or (facts := _left(root)) is None:
            continue
        fd, tag, keep = facts
        try:
            left = Territory(root, tag)
            count = len(left.processes() or [])
            left.end()
            if keep:
                (left.control / OWNER).unlink(missing_ok=True)
            else:
                left.remove()
            ended = f", {count} process{'' if count == 1 else 'es'} ended" if count else ""
            swept.append(f"{root}{' (kept)' if keep else ''}{ended}")
        finally:
            os.close(fd)
    return swept


def _left(root: Path) -> tuple[int, int, bool] | None:
    """The locked owner file of a folder whose test is gone, its mark, and whether the folder is to be kept; None for all others."""
    try:
        for folder in (root, root / "control"):
            found = os.lstat(folder)
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
                return None
        fd = os.open(root / "control" / OWNER, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        facts = json.loads(os.read(fd, 4096))
        if os.fstat(fd).st_nlink:  # another run may have swept it while this one opened it
            return fd, int(facts["tag"]), bool(facts["keep"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    os.close(fd)
    return None


def _new_tag() -> int:
    """A soft limit that no other test has, within what is allowed; 0 where there is no room for one."""
    limit = getattr(resource, "RLIMIT_MSGQUEUE", None)
    if limit is None:
        return 0
    _, hard = resource.getrlimit(limit)
    most = 819_200 if hard == resource.RLIM_INFINITY else min(hard, 819_200)
    return random.SystemRandom().randrange(most // 2, most) if most >= 100_000 else 0


def _tag_of(pid: str) -> int:
    """The mark of a process; 0 if it has none."""
    try:
        with open(f"/proc/{pid}/limits", encoding="ascii", errors="replace") as file:
            soft = next((line.split()[3] for line in file if line.startswith("Max msgqueue size")), "")
    except OSError:
        return 0
    return int(soft) if soft.isdigit() else 0


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
