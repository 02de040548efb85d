"""The contract that every host and every provider keeps, as tests. Our own hosts are held to it in tests/contract.

    from muster.testing import LifecycleContract

    class TestMine(LifecycleContract):
        provider_name = "mine"

`HostContract` is for a host alone, `ProviderContract` for a provider that only finds hosts, `LifecycleContract` for one that makes
them too.

Needs pytest on this machine, and `sh` and `ps` on the host. Tests that take long are marked `slow`.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import pty
import signal
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

import pytest

from . import plugins
from .errors import MusterError, Refused, TimedOut, Unreachable
from .host import Host, place_of
from .model import place_name
from .plugins import Provider

#: How long anything may take that is waited for.
SECONDS = 30.0
LARGE = 64 << 20
ODD_NAMES = (
    *("with space", " leading", "trailing ", "-rf", "--", "~", "a'b", 'a"b', "$HOME", "`id`", "*", "a\\b", "new\nline"),
    *(
        "tab\there",
        "ümläut ☃",
        b"not \xff utf-8".decode("utf-8", "surrogateescape"),
        "#x",
        "a;b",
        "a&b",
        "(x)",
        "x" * 200,
    ),
)
#: Prints its size, what becomes of it, and that it was interrupted.
AT_A_TERMINAL = """
trap 'echo "size $(stty size)"' WINCH
trap 'echo interrupted; exit 7' INT
echo "size $(stty size)"
while :; do sleep 0.1; done
"""


def eventually(condition: Callable[[], Any], what: str) -> None:
    """Wait until `condition` holds; fail with `what` was waited for if it does not in time."""
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"still not so after {SECONDS:g} s: {what}"
        time.sleep(0.05)


class HostContract:
    """What muster needs of a host. A subclass has the fixture `host`."""

    @pytest.fixture
    def host(self) -> Host:
        raise NotImplementedError("a subclass says which host is tested")

    @pytest.fixture
    def folder(self, host: Host) -> Iterator[str]:
        """An empty folder there."""
        path = _said(host, "mktemp", "-d").rstrip("\n")
        yield path
        with contextlib.suppress(MusterError):  # the host may be gone
            host.run(["rm", "-rf", path])

    # What it is

    def test_it_has_what_muster_needs(self, host: Host) -> None:
        needed = "for program in sh git tmux tar ps; do command -v $program >/dev/null || echo $program; done"
        assert _said(host, "sh", "-c", needed) == "", "these programs are missing"
        assert _said(host, "sh", "-c", '[ -w "$HOME" ] && echo yes') == "yes\n", "HOME is not a folder one can write to"

    def test_its_place_names_it(self, host: Host) -> None:
        assert (place_of(host) == "") == host.local
        assert host.local or place_of(host) == place_name(host.name, host.provider)

    # Commands

    def test_bytes_go_in_and_come_out_as_they_are(self, host: Host) -> None:
        data = bytes(range(256)) * 300
        done = host.run(["cat"], input=data)
        assert (done.returncode, done.stdout, done.stderr) == (0, data, b"")

    def test_without_input_a_command_reads_nothing(self, host: Host) -> None:
        assert host.run(["cat"], timeout=SECONDS).stdout == b""

    def test_a_file_is_input_from_where_it_is_read(self, host: Host, tmp_path: Path) -> None:
        (tmp_path / "data").write_bytes(b"first second")
        with open(tmp_path / "data", "rb", buffering=0) as file:
            file.seek(6)
            assert host.run(["cat"], input=file).stdout == b"second"

    def test_words_arrive_as_they_are(self, host: Host) -> None:
        words = [
            "",
            " ",
            "a b",
            "c'd",
            'e"f',
            "$HOME",
            "`id`",
            "new\nline",
            "ü☃",
            "*",
            "~",
            "\\",
            "a\tb",
            "-n",
            "--",
            "!x",
        ]
        assert _said(host, "printf", "<%s>", *words) == "".join(f"<{word}>" for word in words)

    def test_output_and_errors_are_kept_apart(self, host: Host) -> None:
        done = host.run(["sh", "-c", "echo out; echo err >&2; echo out"])
        assert done.stdout == b"out\nout\n"
        assert done.stderr == b"err\n"

    @pytest.mark.parametrize("code", [0, 1, 3, 17, 126, 127, 254])
    def test_an_exit_code_comes_back(self, host: Host, code: int) -> None:
        assert host.run(["sh", "-c", f"exit {code}"]).returncode == code

    @pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
    def test_the_end_by_a_signal_is_seen(self, host: Host, number: signal.Signals) -> None:
        done = host.run(["sh", "-c", f"kill -{int(number)} $$"])
        assert done.returncode in (-number, 128 + number)
        process = host.stream(["sh", "-c", f"kill -{int(number)} $$"], stdin=subprocess.DEVNULL)
        assert process.wait(SECONDS) in (-number, 128 + number)

    def test_a_command_that_takes_too_long_ends_with_its_children(self, host: Host, folder: str) -> None:
        script = 'echo $$ >"$1/pids"; sleep 1000 & echo $! >>"$1/pids"; (sleep 1001 & echo $! >>"$1/pids"; wait); wait'
        with pytest.raises(TimedOut):
            host.run(["sh", "-c", script, "sh", folder], timeout=3)
        pids = _said(host, "cat", f"{folder}/pids").split()
        assert len(pids) == 3
        # A zombie has ended and waits for its parent.
        alive = 'for pid; do case $(ps -o stat= -p "$pid") in "" | Z*) ;; *) echo "$pid" ;; esac; done'
        eventually(lambda: _said(host, "sh", "-c", alive, "sh", *pids) == "", "the processes have ended")

    def test_what_is_input_is_on_no_command_line(self, host: Host) -> None:
        secret = f"secret-{os.urandom(8).hex()}"
        script = 'IFS= read -r SECRET && export SECRET && ps -A -o args= && printf "%s" "$SECRET" | tail -c 4'
        shown = host.run(["sh", "-c", script], input=f"{secret}\n".encode())
        assert shown.stdout.endswith(secret[-4:].encode())
        assert secret.encode() not in shown.stdout

    def test_what_is_input_is_on_no_command_line_of_this_machine(self, host: Host, folder: str) -> None:
        secret = f"secret-{os.urandom(8).hex()}"
        script = 'cat >/dev/null; : >"$1/up"; until [ -e "$1/seen" ]; do sleep 0.1; done'
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(host.run, ["sh", "-c", script, "sh", folder], input=secret.encode())
            eventually(lambda: host.run(["test", "-e", f"{folder}/up"]).returncode == 0, "the command has begun")
            shown = subprocess.run(["ps", "-A", "-o", "args="], capture_output=True, check=True).stdout
            host.run(["touch", f"{folder}/seen"])
            assert running.result().returncode == 0
        assert secret.encode() not in shown

    def test_odd_file_names_arrive_as_they_are(self, host: Host, folder: str) -> None:
        for number, name in enumerate(ODD_NAMES):
            done = host.run(["sh", "-c", 'cat >"$1"', "sh", f"{folder}/{name}"], input=str(number).encode())
            assert done.returncode == 0, (name, done.stderr)
        for number, name in enumerate(ODD_NAMES):
            assert host.run(["cat", f"{folder}/{name}"]).stdout == str(number).encode(), name
        listed = host.run(["sh", "-c", 'cd "$1" && find . -type f -exec printf "%s\\0" {} +', "sh", folder]).stdout
        names = {os.fsdecode(name).removeprefix("./") for name in listed.split(b"\0") if name}
        assert names == set(ODD_NAMES)

    def test_twenty_commands_at_once_do_not_mix(self, host: Host) -> None:
        def run(number: int) -> bytes:
            script = 'for _ in 1 2 3 4 5; do echo "$1"; sleep 0.1; done; cat'
            return bytes(host.run(["sh", "-c", script, "sh", str(number)], input=b"in %d" % number).stdout)

        with ThreadPoolExecutor(20) as pool:
            assert list(pool.map(run, range(20))) == [b"%d\n" % n * 5 + b"in %d" % n for n in range(20)]

    # Streams

    def test_a_stream_ends_with_the_code_of_its_command(self, host: Host) -> None:
        process = host.stream(["sh", "-c", "cat; exit 9"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.communicate(b"through", timeout=SECONDS)[0] == b"through"
        assert process.returncode == 9

    def test_a_stream_comes_as_it_is_written(self, host: Host) -> None:
        process = host.stream(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdin and process.stdout
        for line in (b"one\n", b"two\n"):
            process.stdin.write(line)
            process.stdin.flush()
            assert process.stdout.readline() == line
        process.communicate(timeout=SECONDS)
        assert process.returncode == 0

    @pytest.mark.slow
    def test_large_streams_go_both_ways_at_once(self, host: Host) -> None:
        block = os.urandom(1 << 20)
        sent, got = hashlib.sha256(), hashlib.sha256()
        process = host.stream(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

        def send(pipe: IO[bytes]) -> None:
            with pipe:
                for _ in range(LARGE // len(block)):
                    pipe.write(block)
                    sent.update(block)

        assert process.stdin and process.stdout
        sender = threading.Thread(target=send, args=(process.stdin,))
        sender.start()
        while data := process.stdout.read(1 << 16):
            got.update(data)
        sender.join()
        process.stdout.close()
        assert process.wait(SECONDS) == 0
        assert got.hexdigest() == sent.hexdigest()

    @pytest.mark.slow
    def test_large_input_and_output_of_a_command_are_whole(self, host: Host) -> None:
        data = os.urandom(1 << 20) * (LARGE >> 22)
        assert hashlib.sha256(host.run(["cat"], input=data).stdout).digest() == hashlib.sha256(data).digest()

    # A terminal

    def test_an_attached_command_has_the_callers_terminal(self, host: Host) -> None:
        with _Terminal(host.attach(["sh", "-c", AT_A_TERMINAL]), (30, 100)) as terminal:
            terminal.expect(b"size 30 100")
            terminal.resize((40, 120))
            terminal.expect(b"size 40 120")
            terminal.type(b"\x03")
            terminal.expect(b"interrupted")
            assert terminal.process.wait(SECONDS) == 7


class ProviderContract(HostContract):
    """What muster needs of a provider. A subclass says its name, as it is installed, and has the fixtures `name`, that of a host
    which exists, and `settings`, if its hosts need any.
    """

    provider_name = ""

    @pytest.fixture
    def provider(self) -> Provider:
        return plugins.provider(self.provider_name)

    @pytest.fixture
    def settings(self) -> Mapping[str, Any]:
        return {}

    @pytest.fixture
    def name(self) -> str:
        raise NotImplementedError("a subclass says which host is tested")

    @pytest.fixture
    def host(self, provider: Provider, settings: Mapping[str, Any], name: str) -> Iterator[Host]:
        yield provider.find(name, settings)

    def test_a_host_has_the_name_that_it_is_found_by(self, provider: Provider, host: Host, name: str) -> None:
        assert (host.name, host.provider, host.local) == (name, provider.name, False)

    def test_its_keys_have_types_that_a_configuration_can_have(self, provider: Provider) -> None:
        assert set(provider.keys.values()) <= {str, int, float, bool, list}
        assert not {"provider", "home"} & set(provider.keys)

    def test_a_host_that_does_not_exist_is_unreachable_when_it_is_used(
        self, provider: Provider, settings: Mapping[str, Any]
    ) -> None:
        nobody = provider.find(f"nobody-{os.urandom(4).hex()}", settings)
        with pytest.raises(Unreachable):
            nobody.run(["true"], timeout=SECONDS)

    def test_a_host_is_found_after_local_state_was_deleted(
        self,
        provider: Provider,
        settings: Mapping[str, Any],
        host: Host,
        folder: str,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        host.run(["touch", f"{folder}/here"])
        for name in ("MUSTER_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"):
            monkeypatch.setenv(name, str(tmp_path / "empty"))
        again = provider.find(host.name, settings)
        assert again.run(["test", "-e", f"{folder}/here"]).returncode == 0

    def test_a_provider_that_makes_no_hosts_says_so(self, provider: Provider, settings: Mapping[str, Any]) -> None:
        for act in () if provider.makes else (provider.create, provider.start, provider.stop, provider.destroy):
            with pytest.raises(Refused):
                act("nobody", settings)


class LifecycleContract(ProviderContract):
    """What muster needs of a provider that makes hosts. Each test has a new one, which is destroyed afterwards."""

    @pytest.fixture
    def name(self) -> str:
        return f"contract-{os.urandom(4).hex()}"

    @pytest.fixture
    def host(self, provider: Provider, settings: Mapping[str, Any], name: str) -> Iterator[Host]:
        assert provider.makes, f"provider {provider.name} has no create"
        try:
            yield provider.create(name, settings)
        finally:
            provider.destroy(name, settings)

    def test_a_host_that_was_made_is_among_the_names(
        self, provider: Provider, settings: Mapping[str, Any], host: Host
    ) -> None:
        assert host.name in provider.names(settings)

    def test_a_stopped_host_is_unreachable_and_keeps_its_files(
        self, provider: Provider, settings: Mapping[str, Any], host: Host
    ) -> None:
        _said(host, "sh", "-c", 'echo kept >"$HOME/file"')
        provider.stop(host.name, settings)
        with pytest.raises(Unreachable):
            provider.find(host.name, settings).run(["true"], timeout=SECONDS)
        assert host.name in provider.names(settings)
        provider.start(host.name, settings)
        assert _said(provider.find(host.name, settings), "sh", "-c", 'cat "$HOME/file"') == "kept\n"

    def test_a_destroyed_host_is_gone_and_may_be_destroyed_again(
        self, provider: Provider, settings: Mapping[str, Any], host: Host
    ) -> None:
        provider.destroy(host.name, settings)
        assert host.name not in provider.names(settings)
        with pytest.raises(Unreachable):
            host.run(["true"], timeout=SECONDS)
        provider.destroy(host.name, settings)

    def test_a_name_that_is_taken_is_not_given_to_a_second_host(
        self, provider: Provider, settings: Mapping[str, Any], host: Host
    ) -> None:
        with pytest.raises(MusterError):
            provider.create(host.name, settings)
        assert host.run(["true"]).returncode == 0


def _said(host: Host, *argv: str) -> str:
    """Return what a command prints; it must succeed."""
    done = host.run(argv, timeout=SECONDS)
    assert done.returncode == 0, done.stderr.decode("utf-8", "replace")
    return done.stdout.decode()


class _Terminal:
    """A process on a terminal of its own."""

    def __init__(self, argv: list[str], size: tuple[int, int]) -> None:
        self.fd, there = pty.openpty()
        self.resize(size)
        self.process = subprocess.Popen(
            argv,
            stdin=there,
            stdout=there,
            stderr=there,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(there)
        self.said = b""

    def __enter__(self) -> _Terminal:
        return self

    def __exit__(self, *error: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.fd)

    def resize(self, size: tuple[int, int]) -> None:
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))

    def type(self, text: bytes) -> None:
        os.write(self.fd, text)

    def expect(self, text: bytes) -> None:
        import select

        deadline = time.monotonic() + SECONDS
        while text not in self.said:
            ready = select.select([self.fd], [], [], max(0.0, deadline - time.monotonic()))[0]
            data = b""
            with contextlib.suppress(OSError):  # the other end was closed
                data = os.read(self.fd, 4096) if ready else b""
            assert data, f"{text!r} is not in {self.said!r}"
            self.said += data
