"""A user's machine with private files around it, a host that lies, and agents on both: the laboratory of the attack tests.

Everything that reaches the host is recorded, and so is every change on the user's machine; a file of the user's that any
process reads is noticed by its access time.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import stat
import struct
import subprocess
import tempfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

import pytest

from muster import Fleet
from muster.model import Address, Spec
from muster.providers.local import LocalHost

from ..support import chains

#: Stands in every private file and in commits that no agent was given.
SECRET = b"do-not-read-7f3a9c"
#: Times of access and change of a private file: Linux moves the first at a read if it is the older one.
READ_BEFORE = (1, 2)
#: Mode, inode, size and times of a file, or the mode of a folder.
Mark = tuple[int, ...]
Lie = Callable[[str, bytes], bytes]


class Box(LocalHost):
    """Another machine, as far as muster can see. It records what it is sent and may answer anything."""

    name = "box"
    provider = "ssh"
    local = False

    def __init__(self, home: str) -> None:
        super().__init__(home)
        self.sent: list[bytes] = []
        self.lie: Lie | None = None

    def run(
        self, argv: Sequence[str], *, input: bytes | IO[bytes] | None = None, timeout: float | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        if input is not None and not isinstance(input, bytes):
            input = input.read()
        self._note(argv, input or b"")
        done = super().run(self._there(argv), input=input, timeout=timeout)
        if self.lie and chains.mark(argv):
            lie = self.lie
            done.stdout = chains.changed(argv, done.stdout, lambda part, said: lie(_verb(part), said))
        elif self.lie and done.returncode == 0:
            done.stdout = self.lie(_verb(argv), done.stdout)
        return done

    def stream(
        self, argv: Sequence[str], *, stdin: int | IO[bytes] | None = None, stdout: int | IO[bytes] | None = None
    ) -> subprocess.Popen[bytes]:
        self._note(argv, b"")
        if not self.lie or stdout != subprocess.PIPE:
            return super().stream(self._there(argv), stdin=stdin, stdout=stdout)
        real = super().stream(self._there(argv), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert real.stdin and real.stdout
        said = real.stdout.read()
        real.stdin.close()
        code = real.wait()
        with tempfile.TemporaryFile() as file:
            file.write(self.lie(_verb(argv), said))
            file.seek(0)
            number = file.fileno()
            told = ["sh", "-c", f"cat /dev/fd/{number}; exit {code if code >= 0 else 1}"]
            return subprocess.Popen(told, stdin=stdin, stdout=stdout, pass_fds=(number,))

    def attach(self, argv: Sequence[str]) -> list[str]:
        return super().attach(self._there(argv))

    def _there(self, argv: Sequence[str]) -> list[str]:
        """As on another machine, relative paths do not count from where the caller is."""
        return ["sh", "-c", 'cd "$0" && exec "$@"', os.path.join(self.home, "login"), *argv]

    def _note(self, argv: Sequence[str], input: bytes) -> None:
        # The scripts themselves are the same for everyone.
        self.sent.append("\0".join(word for word in argv if len(word) < 3000).encode("utf-8", "surrogateescape"))
        self.sent.append(input)


def _verb(argv: Sequence[str]) -> str:
    """`survey`, `get`, or for git `git-work tip`."""
    for number, word in enumerate(argv):
        if word.startswith("muster-git-"):
            return f"{word.removeprefix('muster-')} {argv[number + 2]}"
        if word.startswith("muster-"):
            return word.removeprefix("muster-")
    return argv[0]


class Lab:
    """A user's home with a project, another repository and private files; a host with agents; and a copy of it all."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.home, self.far = root, root / "home", root / "box"
        self.state = self.home / "muster"
        self.project, self.other = self.home / "project", self.home / "other"
        self.env = {
            "HOME": str(self.home),
            "MUSTER_HOME": str(self.state),
            "PATH": os.environ["PATH"],
            "GIT_CONFIG_NOSYSTEM": "1",
        }
        for name in list(os.environ):
            if name.startswith(("MUSTER_", "GIT_", "XDG_")):
                monkeypatch.delenv(name)
        for name, value in self.env.items():
            monkeypatch.setenv(name, value)
        self.plain, self.here = self.home / "plain", self.home / "here"
        for folder in (self.project, self.other, self.plain, self.here, self.far / "login"):
            folder.mkdir(parents=True)
        # Where the tests run: whatever goes to a relative path is seen.
        monkeypatch.chdir(self.here)
        (self.plain / "a.txt").write_text("one\n")
        (self.home / ".gitconfig").write_text(
            "[user]\n\tname = Ann\n\temail = ann@example.com\n[init]\n\tdefaultBranch = main\n\ttemplateDir =\n"
        )
        uuid = "01234567-89ab-4cde-8123-456789abcdef"
        for path in (".bashrc", ".ssh/id", "private/agent.json", "private/screen", f"private/projects/x/{uuid}.jsonl"):
            (self.home / path).parent.mkdir(exist_ok=True, parents=True)
            (self.home / path).write_bytes(b'{"text":"' + SECRET + b'"}\n')
        for repo in (self.project, self.other):
            self.git("init", "-q", cwd=repo)
            (repo / "a.txt").write_bytes(b"one\n" if repo == self.project else SECRET)
            self.git("add", ".", cwd=repo)
            self.git("commit", "-qm", "first", cwd=repo)
        self.foreign = self.git("rev-parse", "HEAD", cwd=self.other).strip()
        # A branch of the project that no agent was given.
        self.git("switch", "-qc", "private")
        (self.project / "a.txt").write_bytes(SECRET)
        self.git("commit", "-qam", "private")
        self.withheld = self.git("rev-parse", "HEAD").strip()
        self.git("switch", "-q", "main")
        self.box = Box(str(self.far))
        self.fleet = self.new_fleet()
        # Started again it reads what is typed: what an agent itself does is not what is tested.
        again = 'if [ -e "$MUSTER_AGENT_DIR/ran" ]; then exec cat; fi; : >"$MUSTER_AGENT_DIR/ran"'
        work = "git commit -qam theirs; echo more >b.txt; submit --outcome ok --summary fine --artifact b.txt; echo bye"
        for name, place, mode in (("far", "box", "mirror"), ("cop", "box", "copy"), ("near", "", "worktree")):
            source = str(self.plain) if mode == "copy" else ""
            argv = ("sh", "-c", f"{again}; echo two >>a.txt; {work}")
            spec = Spec(Address(name, place), "command", argv, mode=mode, source=source)
            one = self.fleet.create(spec)
            self.fleet.wait([one], frozenset({"done", "failed"}), timeout=120)
            self.fleet.snapshot(self.fleet.get(str(one.status.address)), "create", "snap")
        for place in ("box", ""):
            self.fleet.destroy(self.fleet.create(Spec(Address("old", place), "command", ("true",))))
        self.end()
        self.golden = root / "golden"
        for name in ("home", "box"):
            shutil.copytree(root / name, self.golden / name, symlinks=True)
        self._canaries = [
            path
            for folder in (self.home / ".ssh", self.home / "private", self.other)
            for path in folder.rglob("*")
            if path.is_file()
        ]
        blob = self.git("rev-parse", "private:a.txt").strip()
        self._canaries += [self.home / ".bashrc", self.project / f".git/objects/{blob[:2]}/{blob[2:]}"]
        self.marks: dict[str, Mark] = {}
        self._latest: dict[str, Mark] | None = None
        self.reset()

    def end(self) -> None:
        """End every process of an agent here: none may write any more when the next attack begins."""
        started = [state for state in (self.far, self.state) if (state / "tmux.pid").exists()]
        if not started:
            return
        for state in started:
            subprocess.run(["tmux", "-S", str(state / "tmux.sock"), "kill-server"], capture_output=True)
            (state / "tmux.sock").unlink(missing_ok=True)
            (state / "tmux.pid").unlink(missing_ok=True)
        while running := self._processes():
            for pid in running:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)

    def _processes(self) -> list[int]:
        mark, found = f"MUSTER_AGENT_DIR={self.root}/".encode(), []
        for name in os.listdir("/proc"):
            with contextlib.suppress(OSError):
                if name.isdigit() and mark in Path("/proc", name, "environ").read_bytes():
                    found.append(int(name))
        return found

    def git(self, *argv: str, cwd: Path | None = None) -> str:
        done = subprocess.run(["git", *argv], cwd=cwd or self.project, capture_output=True, check=True, env=self.env)
        return done.stdout.decode()

    def new_fleet(self) -> Fleet:
        fleet = Fleet(self.env, str(self.project))
        fleet._hosts["box"] = self.box
        return fleet

    def one_id(self, name: str) -> str:
        return (self.golden / ("home/muster" if name == "near" else "box") / "names" / name).read_text().strip()

    def folder(self, name: str) -> Path:
        """The folder of an agent, on its host."""
        return (self.state if name == "near" else self.far) / "agents" / self.one_id(name)

    # --- what changed

    def reset(self) -> None:
        """Make everything what it was, and begin to watch."""
        if not self.marks:
            for name in ("home", "box"):
                shutil.rmtree(self.root / name)
                shutil.copytree(self.golden / name, self.root / name, symlinks=True)
            os.chdir(self.here)
            for path in self._canaries:
                os.utime(path, READ_BEFORE)  # the time of access moves at the first read
            self.marks = self._marks()
        else:
            self._mend(self._latest or self._marks())
        self._latest = None
        self.box.sent.clear()
        self.box.lie = None

    def _mend(self, now: dict[str, Mark]) -> None:
        root, golden = str(self.root), str(self.golden)
        bad = {path for path, mark in now.items() if mark != self.marks.get(path)} | (self.marks.keys() - now.keys())
        for path in sorted(bad & now.keys(), key=len, reverse=True):  # what is gone may be behind a link now
            _remove(f"{root}/{path}")
        for path in sorted(bad & self.marks.keys(), key=len):
            _restore(f"{golden}/{path}", f"{root}/{path}")
        for canary in self._canaries:
            if _touched(canary):
                os.utime(canary, READ_BEFORE)
                bad.add(os.path.relpath(canary, root))
        for path in bad & self.marks.keys():
            self.marks[path] = _mark(os.lstat(f"{root}/{path}"))

    def _marks(self) -> dict[str, Mark]:
        """What every path is: a file that was written or replaced, even by the same bytes, has another mark."""
        found: dict[str, Mark] = {}
        start = len(str(self.root)) + 1
        todo = [str(self.home), str(self.far)]
        while todo:
            with os.scandir(todo.pop()) as entries:
                for entry in entries:
                    mark = _mark(entry.stat(follow_symlinks=False))
                    found[entry.path[start:]] = mark
                    if len(mark) == 1:
                        todo.append(entry.path)
        return found

    def _changes(self) -> tuple[dict[str, Mark], set[str]]:
        now = self._marks()
        return now, {path for path in now.keys() | self.marks.keys() if now.get(path) != self.marks.get(path)}

    def trespasses(self, allowed: tuple[str, ...] = (), *, over: bool = False) -> list[str]:
        """What no verb may do: writes outside of muster's own places, reads of private files, secrets that were sent.

        `over` says that nothing happens any more before the next `reset`, which then need not look again.
        """
        own = (
            *("home/project/.git/objects", "home/project/.git/refs/muster", "home/project/.git/refs/heads/muster"),
            *("home/project/.git/logs/refs/heads/muster", "home/project/.git/logs/refs/muster"),
            *("home/project/.git/logs/refs", "home/project/.git/refs"),
        )
        now, changed = self._changes()
        users = [path for path in changed if path.startswith("home/") and not path.startswith("home/muster/")]
        found = [f"changed {path}" for path in sorted(users) if not _below(path, (*own, *allowed))]
        found += [f"read {path}" for path in self._canaries if _touched(path)]
        found += [f"sent {item[:200]!r}" for item in self.box.sent if holds_secret(item)]
        for path in sorted(changed & now.keys()):
            if path.startswith(("box/", "home/muster/")) and stat.S_ISREG(now[path][0]):
                with contextlib.suppress(FileNotFoundError):
                    if holds_secret((self.root / path).read_bytes()):
                        found.append(f"copied to {path}")
        self._latest = now if over else None
        return found


def _below(path: str, places: tuple[str, ...]) -> bool:
    return any(path == place or path.startswith(place + "/") for place in places)


def _touched(path: Path) -> bool:
    try:
        return os.lstat(path).st_atime != READ_BEFORE[0]
    except OSError:
        return True


def _mark(info: os.stat_result) -> Mark:
    if stat.S_ISDIR(info.st_mode):
        return (info.st_mode,)
    return (info.st_mode, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns)


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        os.chmod(path, 0o700)
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            os.unlink(path)


def _restore(golden: str, path: str) -> None:
    if os.path.isdir(golden) and not os.path.islink(golden):
        os.makedirs(path, exist_ok=True)
        shutil.copystat(golden, path)
    elif not os.path.lexists(path):
        shutil.copy2(golden, path, follow_symlinks=False)


def holds_secret(data: bytes) -> bool:
    """Whether a private file is in it: as it is, or as an object of git, or in a pack."""
    if SECRET in data:
        return True
    if data[:4] == b"PACK":
        return any(SECRET in content for content in _pack(data))
    if data[:1] == b"\x78":
        try:
            return SECRET in zlib.decompress(data)
        except zlib.error:
            pass
    return False


def _pack(data: bytes) -> list[bytes]:
    """The objects of a pack; of a delta, what it adds."""
    (count,) = struct.unpack(">I", data[8:12])
    found, at = [], 12
    for _ in range(count):
        kind, byte = (data[at] >> 4) & 7, data[at]
        at += 1
        while byte & 0x80:
            byte = data[at]
            at += 1
        if kind == 6:
            while data[at] & 0x80:
                at += 1
            at += 1
        elif kind == 7:
            at += 20
        unzip = zlib.decompressobj()
        try:
            found.append(unzip.decompress(data[at:]))
        except zlib.error:  # the fuzzer damaged it
            break
        at = len(data) - len(unzip.unused_data)
    return found


def hostile(lab: Lab, rng: random.Random) -> Any:
    """A value that a host might return for any field."""
    places = [lab.home, lab.other, f"{lab.other}/.git", lab.home / ".bashrc", lab.home / "private", "/"]
    values: list[Any] = [
        *(str(place) for place in places),
        *("main", "HEAD", "-D", "--upload-pack=x", "refs/heads/main", "../../main", "muster/../main", "a b", ""),
        *(
            ".",
            "..",
            "../../../home/private/agent",
            "worktree",
            "mirror",
            "copy",
            "in-place",
            "frob",
            "claude",
            "codex",
        ),
        *("replay", "command", "creating", "destroying", "unreadable", "far", "near", "cop", "old"),
        *(lab.one_id("near"), f"../{lab.one_id('cop')}", f"{lab.state}/agents/{lab.one_id('near')}", "a b/c"),
        *(lab.foreign, lab.withheld, "0" * 40, "$(touch x)", "`touch x`", "x\ny", "\x1b]0;x\x07", "\ud800", "x" * 5000),
        *(0, -1, 2**70, 1e308, float("inf"), float("nan"), True, None, "9" * 5000, "\u00b2", "\u0663", "NaN"),
        *([], ["sh", "-c", "touch x"], {}, {"destroyed": "x", "kept": 7, "head": "-D"}, {"destroyed": 2**2000}),
        {"machine": os.uname().nodename, "pid": 2**70, "born": ""},
        {"machine": os.uname().nodename, "pid": 1, "born": []},
        {"run": "r", "task": "t"},
    ]
    return rng.choice(values)
