"""What every test stands on: a home of its own, its own tmux server, real git, and a real sshd on loopback.

Everything a test starts is ended by its id when it is over.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from muster import prices

from .support import events

SRC = Path(__file__).parent.parent / "src"
TIMEOUT = 60.0
# A suite that was started in the background (`nohup make test &`) has these ignored, and every program it starts would too.
for _sign in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
    if signal.getsignal(_sign) is signal.SIG_IGN:
        signal.signal(_sign, signal.default_int_handler if _sign == signal.SIGINT else signal.SIG_DFL)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # Where everything can be installed, a test that is skipped is a test that was not run.
    if os.environ.get("MUSTER_NO_SKIP"):
        for item in items:
            for mark in list(item.iter_markers("skipif")):
                assert not mark.args[0], f"{item.nodeid} would be skipped: {mark.kwargs.get('reason')}"


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]  # pluggy's result
    if os.environ.get("MUSTER_NO_SKIP") and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped where skips count as failures: {report.longrepr}"


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Figures that tests have recorded are part of the result."""
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties if report.when == "call" else ():
            if name == "figure":
                terminalreporter.write_line(str(value))


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test loses power, and some write ten thousand files. What must wait for the disk is in tests/test_durable.py."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)


def eventually(true: Callable[[], Any], timeout: float = TIMEOUT) -> Any:
    """What `true` returns as soon as it is true; the last thing it said is in the failure."""
    deadline = time.monotonic() + timeout
    while True:
        value = true()
        if value:
            return value
        assert time.monotonic() < deadline, f"still {value!r} after {timeout} s"
        time.sleep(0.02)


def socket_of(state: Path) -> str:
    """The socket of the tmux server that muster keeps for a state folder; a deep one has a short socket."""
    if len(str(state / "tmux.sock")) <= 100:
        return str(state / "tmux.sock")
    done = subprocess.run(["cksum"], input=str(state).encode(), capture_output=True, check=True)
    return f"/tmp/muster-{os.getuid()}/{done.stdout.decode().replace(' ', '').strip()}.sock"


def seen_before(state: Path) -> None:
    """The model of recorded agents is one that this state folder knows, as after any first day: the library has no price of it."""
    prices.write(str(state / "prices.json"), prices.Cache(prices.installed(), time.time(), {"replay": None}))


class Result:
    """What one call of muster gave."""

    def __init__(self, done: subprocess.CompletedProcess[bytes]) -> None:
        self.code = done.returncode
        self.stdout = done.stdout.decode("utf-8", "replace")
        self.stderr = done.stderr.decode("utf-8", "replace")

    @property
    def json(self) -> Any:
        return json.loads(self.stdout)

    def __repr__(self) -> str:
        return f"exit {self.code}\n{self.stdout}\n! {self.stderr}"


class World:
    """A user with a home, a repository and muster; nothing of the real user's shows through."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.muster_home = folder / "state"
        self.bin = folder / "bin"
        for path in (self.home, self.bin):
            path.mkdir(parents=True)
        self.env = {
            "PATH": f"{self.bin}:{os.environ['PATH']}",
            "HOME": str(self.home),
            "MUSTER_HOME": str(self.muster_home),
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
            "PYTHONPATH": str(SRC),
            "PYTHONPYCACHEPREFIX": os.environ.get("PYTHONPYCACHEPREFIX", ""),
        }
        program = self.bin / "muster"
        program.write_text(
            f"#!{sys.executable}\nimport sys\nfrom muster.cli.main import main\nsys.exit(main())\n", encoding="utf-8"
        )
        program.chmod(0o755)
        self.repo = self.make_repo(folder / "project")
        seen_before(self.muster_home)

    def activate(self) -> None:
        """Activate the environment that these tests run in: the system's `python3` need not have pytest."""
        self.env["VIRTUAL_ENV"] = sys.prefix
        self.env["PATH"] = self.env["PATH"].replace(f"{self.bin}:", f"{self.bin}:{os.path.dirname(sys.executable)}:", 1)

    def make_repo(self, path: Path) -> Path:
        path.mkdir(parents=True)
        self.git("init", "-q", "-b", "main", cwd=path)
        self.git("config", "user.name", "Uma User", cwd=path)
        self.git("config", "user.email", "uma@example.invalid", cwd=path)
        (path / "README").write_text("hello\n")
        (path / "src").mkdir()
        (path / "src" / "app.py").write_text("print('one')\n")
        self.git("add", "-A", cwd=path)
        self.git("commit", "-q", "-m", "first", cwd=path)
        return path

    def run(
        self,
        *argv: str,
        cwd: Path | None = None,
        input: bytes | None = None,
        env: dict[str, str] | None = None,
        timeout: float = 60,
    ) -> Result:
        """muster, as a user would call it."""
        given: dict[str, Any] = {"input": input} if input is not None else {"stdin": subprocess.DEVNULL}
        done = subprocess.run(
            [str(self.bin / "muster"), *argv],
            cwd=cwd or self.repo,
            env={**self.env, **(env or {})},
            capture_output=True,
            timeout=timeout,
            check=False,
            **given,
        )
        return Result(done)

    def ok(self, *argv: str, **more: Any) -> Result:
        result = self.run(*argv, **more)
        assert result.code == 0, f"muster {' '.join(argv)}: {result!r}"
        assert "Traceback" not in result.stderr
        return result

    def fails(self, code: int, *argv: str, **more: Any) -> Result:
        """It exits with `code`, says what to do next, and shows no traceback."""
        result = self.run(*argv, **more)
        assert result.code == code, f"muster {' '.join(argv)}: {result!r}"
        assert "Traceback" not in result.stderr
        assert "bug in muster" not in result.stderr
        return result

    def git(self, *argv: str, cwd: Path | None = None) -> str:
        done = subprocess.run(
            ["git", *argv],
            cwd=cwd or self.repo,
            env={**self.env, "GIT_CONFIG_NOSYSTEM": "1"},
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode("utf-8", "surrogateescape").rstrip("\n")

    def agents(self) -> dict[str, dict[str, Any]]:
        return {row["address"]: row for row in self.ok("list", "--json").json["agents"]}

    def state(self, address: str) -> str:
        return str(self.agents()[address]["state"])

    def wait_state(self, address: str, *states: str) -> dict[str, Any]:
        def there() -> dict[str, Any] | None:
            row = self.agents().get(address)
            return row if row and row["state"] in states else None

        return eventually(there)  # type: ignore[no-any-return]

    def playbook(self, text: str, name: str = "play.toml") -> str:
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        return str(path)

    def tmux(self, *argv: str) -> subprocess.CompletedProcess[bytes]:
        """muster's own tmux server of this world."""
        return subprocess.run(["tmux", "-S", self.socket(), *argv], capture_output=True, check=False)

    def socket(self) -> str:
        return socket_of(self.muster_home)

    def processes(self, agent_id: str) -> list[int]:
        """Every process that carries this agent's id."""
        mark = f"MUSTER_AGENT_ID={agent_id}".encode()
        found = []
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                try:
                    if mark in Path(f"/proc/{entry}/environ").read_bytes().split(b"\0"):
                        found.append(int(entry))
                except OSError:
                    continue
        return found

    def end(self) -> None:
        self.run("stop", "--all", "--grace", "0")
        self.tmux("kill-server")
        events.check(self.muster_home)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path / "w")
    yield world
    world.end()


class Sshd:
    """A real sshd on a loopback port, with a home of its own, reached by an ssh configuration of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.home.mkdir(parents=True)
        self.config = folder / "ssh_config"
        for key in ("hostkey", "userkey"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key)], check=True)
        shutil.copy(folder / "userkey.pub", folder / "authorized_keys")
        self.port = _free_port()
        self.settings = folder / "sshd_config"
        self.settings.write_text(
            f"Port {self.port}\nListenAddress 127.0.0.1\nHostKey {folder}/hostkey\nPidFile {folder}/sshd.pid\n"
            f"AuthorizedKeysFile {folder}/authorized_keys\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n"
            "PermitRootLogin prohibit-password\nUsePAM no\nStrictModes no\nUseDNS no\nMaxSessions 100\n"
            f"MaxStartups 100:30:200\nSetEnv HOME={self.home} LANG=C.UTF-8\n"
        )
        (folder / "known_hosts").write_text(f"[127.0.0.1]:{self.port} {(folder / 'hostkey.pub').read_text()}")
        self.config.write_text(
            f"Host box\n  HostName 127.0.0.1\n  Port {self.port}\n  User {_user()}\n  IdentityFile {folder}/userkey\n"
            f"  IdentitiesOnly yes\n  UserKnownHostsFile {folder}/known_hosts\n"
            f"Host nobody\n  HostName 127.0.0.1\n  Port {_free_port()}\n"
        )
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        if os.getuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)
        program = shutil.which("sshd") or "/usr/sbin/sshd"
        log = open(self.folder / "log", "ab")  # noqa: SIM115  # sshd keeps it
        self.process = subprocess.Popen([program, "-D", "-e", "-f", str(self.settings)], stderr=log)
        eventually(self._listens)

    def stop(self) -> None:
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process = None

    def install(self, world: World) -> None:
        """The world's `ssh` reads this configuration (ssh itself looks in the account's home, not in $HOME)."""
        shim = world.bin / "ssh"
        shim.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {self.config} "$@"\n')
        shim.chmod(0o755)

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


def end_agents(state: Path) -> None:
    """End a tmux server of muster's and every process of its agents, by id; also of a host that muster was told to forget."""
    subprocess.run(["tmux", "-S", socket_of(state), "kill-server"], capture_output=True, check=False)
    marks = [f"MUSTER_AGENT_ID={path.name}".encode() for path in (state / "agents").glob("*")]
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and set(marks) & set(Path(f"/proc/{entry}/environ").read_bytes().split(b"\0")):
                os.kill(int(entry), signal.SIGKILL)
        except OSError:
            continue


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _user() -> str:
    import pwd

    return pwd.getpwuid(os.getuid()).pw_name


@pytest.fixture
def sshd(tmp_path: Path, world: World) -> Iterator[Sshd]:
    if not shutil.which("sshd") and not os.path.exists("/usr/sbin/sshd"):
        pytest.skip("no sshd: apt-get install openssh-server")
    server = Sshd(tmp_path / "sshd")
    server.install(world)
    yield server
    world.run("stop", "--all", "--grace", "0")
    end_agents(server.home / ".local" / "state" / "muster")
    subprocess.run(
        [str(world.bin / "ssh"), "-Oexit", f"-oControlPath=/tmp/muster-{os.getuid()}/%C", "box"],
        capture_output=True,
        check=False,
    )
    server.stop()
