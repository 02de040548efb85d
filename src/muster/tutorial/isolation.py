"""Give each test a sandbox (home, XDG folders, tmux, git identity, work folder, environment) and find what it leaves behind.

Every process of a test carries two tags, so it is found however it detached itself: `MUSTER_E2E` in its environment, and a
soft limit (bytes of POSIX message queues) with a value that no other test has. `env -i setsid` removes only the first.

The test process locks a file in its sandbox. The kernel releases the lock when the process dies, so a later run recognises
sandboxes of killed runs and removes them.
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

ENV_TAG = "MUSTER_E2E"
#: Seconds that processes may take to exit by themselves after their test, before they count as left behind.
EXIT_GRACE = 3.0
#: Variables that tests inherit, besides those that the configuration names.
INHERITED = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "USER", "LOGNAME", "SHELL", "TZ")
GITCONFIG = """[user]
\tname = Test User
\temail = test@example.invalid
[init]
\tdefaultBranch = main
[commit]
\tgpgSign = false
"""
MUSTER_CONFIG = '[commands.create]\nconnect_command = "muster-e2e-connect"\n'


class Process(NamedTuple):
    pid: int
    parents: tuple[int, ...]
    command: str
    started: str  # in ticks since boot; with the pid this identifies a process even if the pid is reused


class SandboxProcesses:
    """The folder of one test and the processes and tmux servers that belong to it, even after the test was killed."""

    def __init__(self, root: Path, tag: int) -> None:
        self.root, self.control, self.tag = root, root / "control", tag
        self.env: dict[str, str] = {key: value for key, value in os.environ.items() if key not in ("TMUX", "TMUX_PANE")}

    def processes(self) -> list[Process] | None:
        """Return the live processes of this test; None if the system has no /proc."""
        if not os.path.isdir("/proc/self"):
            return None
        own_tag, prefix = f"{ENV_TAG}={self.control}".encode(), f"{ENV_TAG}=".encode()
        live = []
        for entry in os.listdir("/proc"):
            if not entry.isdigit():
                continue
            try:
                with open(f"/proc/{entry}/environ", "rb") as file:
                    env_tags = [word for word in file.read().split(b"\0") if word.startswith(prefix)]
                if own_tag not in env_tags and (env_tags or not self.tag or _tag_of(entry) != self.tag):
                    continue
                with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as text:
                    fields = text.read().rpartition(")")[2].split()
                with open(f"/proc/{entry}/cmdline", "rb") as file:
                    words = file.read().rstrip(b"\0").split(b"\0")
            except OSError:
                continue
            if fields[0] != "Z":
                command = b" ".join(words).decode("utf-8", "replace")
                live.append(Process(int(entry), _ancestors(int(fields[1])), command[:200], fields[19]))
        return live

    def sessions(self) -> list[tuple[int, str]]:
        """Return the tmux sessions whose server's socket is in this folder: the server's pid, and `NAME on SOCKET`."""
        sessions = []
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
                    sessions.append((int(pid), f"{name} on {path}"))
        return sessions

    def _tmux(self, socket: str, *words: str) -> str:
        """Return the output of a tmux command; empty if no server listens on the socket."""
        argv = ["tmux", "-S", socket, "-f", "/dev/null", *words]
        try:
            done = subprocess.run(argv, capture_output=True, text=True, timeout=5, check=False, env=self.env)
        except (OSError, subprocess.TimeoutExpired):
            return ""
        return done.stdout if done.returncode == 0 else ""

    def leaks(self) -> list[str]:
        """Return the processes and tmux sessions that are still alive, one line each.

        Processes inside a session are not listed separately. Processes get EXIT_GRACE seconds to exit by themselves.
        """
        deadline = time.monotonic() + EXIT_GRACE
        while True:
            sessions = self.sessions()
            servers = {pid for pid, _ in sessions}
            leaked = []
            for process in self.processes() or []:
                ours = str(self.control) in process.command or "muster.tutorial.record" in process.command
                if not ours and not servers.intersection((process.pid, *process.parents)):
                    leaked.append(f"process {process.pid}: {process.command}")
            if not leaked or time.monotonic() > deadline:
                return [*(f"tmux session {line}" for _, line in sessions), *leaked]
            time.sleep(0.05)

    def end(self) -> None:
        """End every process of the test, each by its pid, and its tmux servers."""
        for socket in {line.partition(" on ")[2] for _, line in self.sessions()}:
            self._tmux(socket, "kill-server")
        for sign, seconds in ((signal.SIGTERM, 1.0), (signal.SIGKILL, 5.0)):
            deadline = time.monotonic() + seconds
            signalled: set[tuple[int, str]] = set()
            while alive := self.processes():
                for process in alive:
                    if (process.pid, process.started) not in signalled:
                        signalled.add((process.pid, process.started))
                        try:
                            os.kill(process.pid, sign)
                        except (ProcessLookupError, PermissionError):
                            pass
                if time.monotonic() > deadline:
                    break
                time.sleep(0.02)

    def remove(self) -> None:
        """Remove the folder and everything in it, including files that a test made unreadable."""
        _make_accessible(str(self.root))
        for folder, names, _ in os.walk(self.root):  # top-down, so that each folder is readable before it is entered
            for name in names:
                _make_accessible(os.path.join(folder, name))
        shutil.rmtree(self.root, ignore_errors=True)


def _make_accessible(path: str) -> None:
    try:
        if not os.path.islink(path):
            os.chmod(path, 0o700)
    except OSError:
        pass


class Sandbox(SandboxProcesses):
    """The folders and the environment of a running test."""

    def __init__(self, outer: Mapping[str, str], passed: Iterable[str] = (), keep: bool = False) -> None:
        # The path of a socket is limited to 107 bytes, and tmux sockets are created in this folder.
        super().__init__(Path(tempfile.mkdtemp(prefix=PREFIX, dir=_base())), _new_tag())
        self.home, self.work, self.tmp, self.run = (self.root / name for name in ("home", "work", "tmp", "run"))
        for folder in (self.home, self.work, self.tmp, self.run, self.control):
            folder.mkdir(mode=0o700)
        self._lock = _create_locked(self.control / OWNER, {"pid": os.getpid(), "tag": self.tag, "keep": keep})
        self.env = self._environment(outer, passed)
        (self.home / ".gitconfig").write_text(GITCONFIG)
        config = self.home / ".config" / "muster"
        config.mkdir(parents=True)
        (config / "config.toml").write_text(MUSTER_CONFIG)

    def tagged(self, argv: Sequence[str]) -> list[str]:
        """Wrap a command so that it runs with the soft limit that tags the processes of this test."""
        return ["bash", "-c", 'ulimit -S -q "$0" 2>/dev/null; exec "$@"', str(self.tag), *argv] if self.tag else [*argv]

    def remove(self) -> None:
        super().remove()
        self.unlock()

    def unlock(self) -> None:
        """Unlock the folder."""
        if self._lock >= 0:
            os.close(self._lock)
            _LOCKS.remove(self._lock)
            self._lock = -1

    def keep_folder(self) -> None:
        """Leave the folder to the user: no later run removes it."""
        (self.control / OWNER).unlink(missing_ok=True)
        self.unlock()

    def _environment(self, outer: Mapping[str, str], passed: Iterable[str]) -> dict[str, str]:
        env = {name: outer[name] for name in (*INHERITED, *passed) if name in outer}
        # The environment that runs the tests comes first, because the program under test is usually installed there.
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
            ENV_TAG: str(self.control),
        }
        return env


# Sandboxes of killed runs

PREFIX, OWNER = "e2e-", "owner"


def _base() -> str:
    base = tempfile.gettempdir()
    return base if len(base) < 40 else "/tmp"


def _create_locked(path: Path, facts: dict[str, object]) -> int:
    """Create a file that is locked for the life of this process and return its descriptor.

    It is locked before it appears under its name, so no other process sees it unlocked.
    """
    part = path.with_name(f".{path.name}")
    fd = os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX)
    os.write(fd, json.dumps(facts).encode())
    os.rename(part, path)
    _LOCKS.append(fd)
    _close_locks_in_children()
    return fd


#: File descriptors of the locks that this process holds.
_LOCKS: list[int] = []


@functools.cache
def _close_locks_in_children() -> None:
    """Close the locks in forked children: a child that never calls exec would hold them after the test process died."""

    def close() -> None:
        while _LOCKS:
            os.close(_LOCKS.pop())

    os.register_at_fork(after_in_child=close)


def sweep() -> list[str]:
    """End the processes and remove the sandboxes of tests whose process was killed; return one line for each.

    Only folders that belong to this user and contain the owner file count, and only if nobody holds its lock.
    """
    swept = []
    for entry in sorted(os.listdir(_base())):
        root = Path(_base(), entry)
        if not entry.startswith(PREFIX) or (facts := _abandoned(root)) is None:
            continue
        fd, tag, keep = facts
        try:
            sandbox = SandboxProcesses(root, tag)
            count = len(sandbox.processes() or [])
            sandbox.end()
            if keep:
                (sandbox.control / OWNER).unlink(missing_ok=True)
            else:
                sandbox.remove()
            ended = f", {count} process{'' if count == 1 else 'es'} ended" if count else ""
            swept.append(f"{root}{' (kept)' if keep else ''}{ended}")
        finally:
            os.close(fd)
    return swept


def _abandoned(root: Path) -> tuple[int, int, bool] | None:
    """Return, for a sandbox whose test process is gone: its owner file, now locked by us; its tag; whether to keep it.

    None for any other folder.
    """
    try:
        for folder in (root, root / "control"):
            status = os.lstat(folder)
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
                return None
        fd = os.open(root / "control" / OWNER, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        facts = json.loads(os.read(fd, 4096))
        if os.fstat(fd).st_nlink:  # another run may have removed it after we opened it
            return fd, int(facts["tag"]), bool(facts["keep"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    os.close(fd)
    return None


def _new_tag() -> int:
    """Return a random value for the tagging soft limit; 0 if the hard limit leaves no room for one."""
    limit = getattr(resource, "RLIMIT_MSGQUEUE", None)
    if limit is None:
        return 0
    _, hard = resource.getrlimit(limit)
    most = 819_200 if hard == resource.RLIM_INFINITY else min(hard, 819_200)
    return random.SystemRandom().randrange(most // 2, most) if most >= 100_000 else 0


def _tag_of(pid: str) -> int:
    """Return the tag of a process: its soft limit of message queue bytes; 0 if it cannot be read."""
    try:
        with open(f"/proc/{pid}/limits", encoding="ascii", errors="replace") as file:
            soft = next((line.split()[3] for line in file if line.startswith("Max msgqueue size")), "")
    except OSError:
        return 0
    return int(soft) if soft.isdigit() else 0


def _ancestors(pid: int) -> tuple[int, ...]:
    """Return the process itself and its ancestors up to, but without, pid 1."""
    ancestors: list[int] = []
    while pid > 1 and pid not in ancestors:
        ancestors.append(pid)
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as text:
                pid = int(text.read().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            break
    return tuple(ancestors)


def listing(folders: Iterable[str]) -> dict[str, frozenset[str]]:
    """Return the names in each folder that can be read, for comparison by `new_files`."""
    names = {}
    for folder in folders:
        try:
            names[folder] = frozenset(os.listdir(folder))
        except OSError:
            continue
    return names


#: Prefixes of names that other tests, test runners and interpreters create in watched folders.
IGNORED_PREFIXES = (
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


def new_files(before: Mapping[str, frozenset[str]], after: Mapping[str, frozenset[str]]) -> list[str]:
    """Return the files that appeared between two listings, one line each."""
    return [
        f"file {os.path.join(folder, name)}"
        for folder, names in sorted(after.items())
        for name in sorted(names - before.get(folder, frozenset()))
        if not name.startswith(IGNORED_PREFIXES)
    ]
