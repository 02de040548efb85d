"""The one seam: a host runs an argv with bytes in and bytes out.

All transport goes through `run`: files by tar, code by git packs, questions by the shell
files in `sh/`. Nothing above this module knows where a host is.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from typing import IO, NamedTuple, Protocol

from .errors import MusterError, TimedOut, Unreachable
from .model import Agent, Status, place_name

#: Exit code of a stream whose host was cut off; no command of muster itself uses it.
CUT_OFF = 255
SH = os.path.join(os.path.dirname(__file__), "sh")


class Host(Protocol):
    """A place that runs commands. A command that fails is a value, never an exception.

    Raises `Unreachable` when the host does not answer and `TimedOut` when `timeout` passes.
    """

    name: str
    """Its name at its provider; empty for the user's own machine."""
    provider: str
    local: bool
    """Whether it is the user's own machine."""
    home: str
    """The folder that holds muster's state there; empty lets the host take its default."""

    def run(
        self, argv: Sequence[str], *, input: bytes | IO[bytes] | None = None, timeout: float | None = None
    ) -> subprocess.CompletedProcess[bytes]: ...

    def attach(self, argv: Sequence[str]) -> list[str]:
        """Return a local argv that runs `argv` there on the caller's terminal."""
        ...

    def stream(
        self, argv: Sequence[str], *, stdin: int | IO[bytes] | None = None, stdout: int | IO[bytes] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start `argv` there. Streams that are not given are those of the caller."""
        ...


def place_of(host: Host) -> str:
    """Return the unique name of a host in addresses; empty for the user's own machine."""
    return "" if host.local else place_name(host.name, host.provider)


#: Tells by a word of its own that the command begins, and which process runs it. That process outlives the command: ssh, for
#: one, ends with 255 if a signal ended what it ran, as if the connection had broken.
_BEGIN = 'echo "$0 $$"; "$@"; exit "$?"'
#: Ends what a command left behind after a time-out: first its process group, which it usually leads, else the process.
_END = """
kill -s TERM -- "-$1" 2>/dev/null || kill -TERM "$1" 2>/dev/null || exit 0
for _ in 1 2 3 4 5 6 7 8 9 10; do
	kill -s 0 -- "-$1" 2>/dev/null || exit 0
	sleep 0.2
done
kill -s KILL -- "-$1" 2>/dev/null
"""


class CommandHost:
    """A host that is reached by a command of this machine in front of what is to run there, such as `docker exec -i box`.

    `terminal` is that command where the caller's terminal goes with it (`docker exec -it box`). Both end with the exit code of
    what ran. A command that never began, and one that ended with 255, mean that the host cannot be reached.
    """

    local = False

    def __init__(
        self, name: str, provider: str, command: Sequence[str], terminal: Sequence[str] = (), *, home: str = ""
    ) -> None:
        self.name, self.provider, self.home = name, provider, home
        self.command, self.terminal = tuple(command), tuple(terminal or command)

    def words(self, argv: Sequence[str], *, terminal: bool = False) -> list[str]:
        """Return the local argv that runs `argv` there."""
        return [*(self.terminal if terminal else self.command), *argv]

    def run(
        self, argv: Sequence[str], *, input: bytes | IO[bytes] | None = None, timeout: float | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        # A login shell may print something first, so output counts from the mark on.
        mark = os.urandom(8).hex()
        try:
            done = call(self.words(["sh", "-c", _BEGIN, mark, *argv]), input, timeout)
        except TimedOut as error:
            if isinstance(late := error.__cause__, subprocess.TimeoutExpired):
                self._end(_behind(late.output or b"", mark)[0])
            raise TimedOut(f"{argv[0]} did not end within {timeout:g} s on host {place_of(self)}") from error
        began, out = _behind(done.stdout, mark)
        if not began or done.returncode == CUT_OFF:
            raise self.unreachable(done.stderr)
        return subprocess.CompletedProcess(list(argv), done.returncode, out, done.stderr)

    def attach(self, argv: Sequence[str]) -> list[str]:
        return self.words(argv, terminal=True)

    def stream(
        self, argv: Sequence[str], *, stdin: int | IO[bytes] | None = None, stdout: int | IO[bytes] | None = None
    ) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self.words(argv), stdin=stdin, stdout=stdout)

    def unreachable(self, stderr: bytes) -> Unreachable:
        """Return the error for a host that did not run a command; `stderr` is what was printed instead."""
        lines = [line for line in stderr.decode("utf-8", "replace").splitlines() if line.strip()]
        return Unreachable(
            f"host {place_of(self)} cannot be reached: {lines[-1].strip() if lines else 'no answer'}", self.hint()
        )

    def hint(self) -> str:
        """Return a hint: the command that shows why the host cannot be reached."""
        return "muster hosts"

    def _end(self, pid: str) -> None:
        """End a command that ran for too long. On the host it does not end with the local program that started it."""
        if pid.isdigit():
            with contextlib.suppress(MusterError):
                call(self.words(["sh", "-c", _END, "muster", pid]), b"", 10)


def _behind(said: bytes, mark: str) -> tuple[str, bytes]:
    """Return the process id of a command and its output; the id is empty if the command did not start."""
    _, _, rest = said.partition(mark.encode() + b" ")
    pid, newline, out = rest.partition(b"\n")
    return (pid.decode("ascii", "replace"), out) if newline else ("", b"")


class Found(NamedTuple):
    """A selected agent and the host it lives on."""

    host: Host
    status: Status
    left_out: tuple[str, ...] = ()
    """For a new agent: untracked repositories inside the user's tree, which were not copied."""
    version: str = ""
    """For a new agent: the version of its client, if the type states which versions were tested."""

    @property
    def agent(self) -> Agent:
        return self.status.agent

    @property
    def key(self) -> tuple[str, str]:
        """Its place and id, which identify it."""
        return place_of(self.host), self.agent.id


class CommandFailed(MusterError):
    """A command failed that had to succeed; see `code` and `stderr`."""

    def __init__(self, what: str, code: int, stderr: bytes, hint: str = "") -> None:
        text = stderr.decode("utf-8", "replace").strip()
        super().__init__(f"{what}: {text or f'exit code {code}'}", hint)
        self.code = code
        self.stderr = text


def call(
    argv: Sequence[str], input: bytes | IO[bytes] | None, timeout: float | None
) -> subprocess.CompletedProcess[bytes]:
    """Run a local program with bytes or a file as its input. Every host's `run` ends up here."""
    given = isinstance(input, bytes)
    stdin = subprocess.PIPE if given else subprocess.DEVNULL if input is None else input
    pipe = subprocess.PIPE
    try:
        process = subprocess.Popen(argv, stdin=stdin, stdout=pipe, stderr=pipe, process_group=0)  # type: ignore[arg-type]  # never bytes
    except FileNotFoundError as error:
        raise MusterError(f"{argv[0]} is not installed", "muster doctor shows what is missing") from error
    try:
        out, err = process.communicate(input if given else None, timeout)  # type: ignore[arg-type]  # bytes, if given
    except BaseException as error:
        # End its children too, because one that holds a pipe open would keep us waiting.
        _end_group(process)
        if isinstance(error, subprocess.TimeoutExpired):
            raise TimedOut(f"{argv[0]} did not end within {timeout:g} s") from error
        raise
    return subprocess.CompletedProcess(list(argv), process.returncode, out, err)


def _end_group(process: subprocess.Popen[bytes]) -> None:
    # TERM first, so that git and the scripts can remove their lock files.
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            pass
        try:
            process.communicate(timeout=2)
            return
        except (subprocess.TimeoutExpired, ValueError):
            continue
    # A process in another group may hold a pipe open; do not wait for it.
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe:
            pipe.close()


_texts: dict[str, str] = {}


def _text(file: str) -> str:
    if file not in _texts:
        with open(os.path.join(SH, f"{file}.sh"), encoding="utf-8") as opened:
            _texts[file] = opened.read() + "\n"
    return _texts[file]


def _body(name: str) -> str:
    """Return the text of `sh/NAME.sh`, preceded by git.sh if it is a file of git verbs."""
    return (_text("git") if name.startswith("git-") else "") + _text(name)


def shell_file(name: str) -> str:
    """Return the text of `sh/NAME.sh`, preceded by the functions of lib.sh."""
    return _text("lib") + _body(name)


def script(
    host: Host,
    name: str,
    *args: str,
    input: bytes | IO[bytes] | None = None,
    timeout: float | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """Run `sh/NAME.sh` on the host with its state folder as $1 and `args` after it."""
    argv = ["sh", "-c", shell_file(name), f"muster-{name}", host.home, *args]
    return host.run(argv, input=input if input is not None else b"", timeout=timeout)


def checked(
    host: Host,
    name: str,
    *args: str,
    input: bytes | IO[bytes] | None = None,
    timeout: float | None = None,
    what: str = "",
) -> bytes:
    """Do what `script` does and return stdout. A failure raises `CommandFailed`."""
    done = script(host, name, *args, input=input, timeout=timeout)
    if done.returncode:
        raise CommandFailed(what or name, done.returncode, done.stderr)
    return done.stdout


class Step(NamedTuple):
    """One shell file of a chain."""

    name: str
    words: Sequence[str] = ()
    reads: bool = False
    """Whether it gets the input of the chain; at most one does."""


def chain(host: Host, steps: Sequence[Step], *, input: bytes = b"") -> list[subprocess.CompletedProcess[bytes]]:
    """Run several files of sh/ in one round trip, up to the first that fails. Return the result of each that ran."""
    mark = os.urandom(8).hex()
    words = [word for step in steps for word in _chained(step)]
    done = host.run(["sh", "-c", _text("chain"), "muster-chain", host.home, mark, _text("lib"), *words], input=input)
    found: list[subprocess.CompletedProcess[bytes]] = []
    out, errors = done.stdout, done.stderr
    for step in steps:
        said, end, out = out.partition(f"\n{mark} ".encode())
        code, _, out = out.partition(b"\n")
        complaints, _, errors = errors.partition(f"\n{mark}\n".encode())
        if not end or not code.isdigit() or len(code) > 3:
            raise CommandFailed(step.name, done.returncode or 1, complaints or b"the answer of the host was cut off")
        found.append(subprocess.CompletedProcess([step.name], int(code), said, complaints))
        if found[-1].returncode:
            break
    return found


def _chained(step: Step) -> list[str]:
    return ["1" if step.reads else "", f"muster-{step.name}", str(len(step.words)), _body(step.name), *step.words]


@contextlib.contextmanager
def output(host: Host, argv: Sequence[str], what: str) -> Iterator[IO[bytes]]:
    """Stream what a command prints there, which may be larger than memory. Callers may stop reading early.

    Raises `Unreachable`, or `CommandFailed` where it did not come to a good end by itself.
    """
    quiet = ["sh", "-c", 'exec "$@" 2>/dev/null', "muster", *argv]  # keep its errors off the caller's terminal
    process = host.stream(quiet, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    assert process.stdout
    try:
        yield process.stdout
        more = bool(process.stdout.read(1))
    finally:
        process.stdout.close()  # this ends a command that still writes
        process.wait()
    if process.returncode and not more:
        host.run(["true"])
        if not host.local and process.returncode == CUT_OFF:
            raise Unreachable(f"the connection to host {place_of(host)} broke")
        raise CommandFailed(what, process.returncode, b"")
