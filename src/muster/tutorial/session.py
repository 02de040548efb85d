"""`E2eSession`: what a test does with the program under test, in a place of its own, all of it written down."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from . import blocks
from .artifacts import Record
from .connect import facts_of
from .isolation import Place
from .masks import Masks, Secrets
from .process import Command, Line, Pump
from .snapshots import Snapshots
from .terminal import Server, Terminal, exists, last_screen
from .transcript import Transcript

TIMEOUT = 60.0
#: How many lines of the transcript a failure shows.
SHOWN = 60


class Output(str):
    """The text of a stream that knows where it came from, so that a failed expectation can say it."""

    source: Result | Background | E2eSession
    stream: str

    @classmethod
    def of(cls, text: str, source: Result | Background | E2eSession, stream: str) -> Output:
        made = cls(text)
        made.source, made.stream = source, stream
        return made


class Result:
    """What a command gave: `stdout`, `stderr`, `exit_code`, `duration`, and `lines`, both streams as they came.

    `timed_out` is None or the seconds after which it was ended; `left_out` counts the bytes that were too many to be kept.
    """

    def __init__(self, session: E2eSession, command: Command) -> None:
        self.session = session
        self.command = command.text
        self.exit_code = command.code if command.code is not None else 0
        self.duration = command.duration
        self.lines: tuple[Line, ...] = tuple(command.lines)
        self.timed_out = command.timeout
        self.left_out = command.stdout.left_out + command.stderr.left_out
        self._more = command.full
        self.stdout_bytes, self.stderr_bytes = command.stdout.bytes(), command.stderr.bytes()
        self.stdout = Output.of(self.stdout_bytes.decode("utf-8", "replace"), self, "stdout")
        self.stderr = Output.of(self.stderr_bytes.decode("utf-8", "replace"), self, "stderr")

    @property
    def output(self) -> Output:
        """Both streams as they came."""
        return Output.of(self._shown(""), self, "output")

    def _shown(self, before_errors: str) -> str:
        shown = "".join((before_errors if line.stream == "err" else "") + line.text for line in self.lines)
        # In the words by which an expectation knows that a text is not whole.
        return f"{shown}\n[… more bytes left out …]\n" if self._more else shown

    @property
    def masked(self) -> Masked:
        """The same with times, ids and paths masked."""
        return Masked(self, self.session.mask)

    def json(self) -> Any:
        """stdout read as one JSON document. AssertionError, with the command and what it printed, if it is none."""
        __tracebackhide__ = True
        try:
            return json.loads(self.stdout)
        except ValueError as error:
            from .expectations import fail_with_output

            fail_with_output(f"expected stdout to be JSON, but {error}", self)

    def readings(self) -> tuple[str, ...]:
        return self.stdout, self.stderr, self._shown("")

    def transcript(self) -> str:
        return self.session.transcript()

    def note(self, text: str) -> None:
        self.session.note(text)

    def __repr__(self) -> str:
        return f"<$ {self.command} ? {self.exit_code}>"


class Masked:
    """`stdout`, `stderr` and `output` (both, as they came) of a result, with what differs from run to run masked."""

    def __init__(self, result: Result, mask: Callable[[str], str]) -> None:
        self.stdout = Output.of(mask(result.stdout), result, "stdout (masked)")
        self.stderr = Output.of(mask(result.stderr), result, "stderr (masked)")
        self.output = Output.of(mask(result._shown("! ")), result, "output (masked)")


class Printed:
    """What a background program has printed behind a mark."""

    def __init__(self, background: Background, mark: tuple[int, int]) -> None:
        self.background = background
        self._mark = mark

    @property
    def stdout(self) -> Output:
        return self.background._text(0, self._mark[0])

    @property
    def stderr(self) -> Output:
        return self.background._text(1, self._mark[1])

    def readings(self) -> tuple[str, ...]:
        return self.stdout, self.stderr


class Background:
    """A program that runs while the test goes on. Ended with the test at the latest."""

    def __init__(self, session: E2eSession, command: Command, pump: Pump) -> None:
        self.session = session
        self._command = command
        self._pump = pump
        self.command = command.text
        self.pid = command.process.pid
        self._told = False

    @property
    def stdout(self) -> Output:
        return self._text(0, 0)

    @property
    def stderr(self) -> Output:
        return self._text(1, 0)

    def _text(self, stream: int, since: int) -> Output:
        data = (self._command.stdout, self._command.stderr)[stream].bytes(since)
        return Output.of(data.decode("utf-8", "replace"), self, ("stdout", "stderr")[stream])

    @property
    def lines(self) -> tuple[Line, ...]:
        return tuple(self._command.lines)

    @property
    def running(self) -> bool:
        return self._command.process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        self._command.process.poll()
        return self._command.code

    def mark(self) -> tuple[int, int]:
        """How much it has printed so far. What comes behind it, `since(mark)` has."""
        return self._command.stdout.total, self._command.stderr.total

    def since(self, mark: tuple[int, int]) -> Printed:
        """What it has printed behind a mark, for `expect`: what was there before does not count."""
        return Printed(self, mark)

    def readings(self) -> tuple[str, ...]:
        return self.stdout, self.stderr

    def wait_for(self, text: str, timeout: float | None = None) -> bool:
        """Whether it prints the text (on either stream) in time."""
        return self.until(lambda: any(text in reading for reading in self.readings()), timeout)

    def until(self, true: Callable[[], Any], timeout: float | None = None) -> bool:
        """Whether something becomes true while it runs; looked at whenever it printed something."""
        seconds = self.session.timeout if timeout is None else timeout
        self._pump.until(lambda: true() or not self.running, seconds)
        return bool(self._pump.until(true, 0.5))

    def wait(self, timeout: float | None = None) -> Result:
        """Until it ends by itself; after the time it is ended."""
        self._pump.wait(self._command, self.session.timeout if timeout is None else timeout)
        return self._over()

    def stop(self) -> Result:
        """End it with all it forked; the exit code says how it took that."""
        if self.running:
            self._command.end()
        self._pump.wait(self._command, 5)
        return self._over()

    def _over(self) -> Result:
        if not self._told:
            self._told = True
            self.session.ended(self._command)
        return Result(self.session, self._command)

    def transcript(self) -> str:
        return self.session.transcript()

    def note(self, text: str) -> None:
        self.session.note(text)


class E2eSession:
    """Made by the pytest fixture `e2e`; `work`, `home` and `env` are the test's own."""

    def __init__(
        self,
        record: Record,
        place: Place,
        *,
        secrets: Iterable[str] = (),
        masks: Iterable[tuple[str, str]] = (),
        timeout: float = TIMEOUT,
        snapshots: Snapshots | None = None,
    ) -> None:
        self._record = record
        self._place = place
        self.timeout = timeout
        self.snapshots = snapshots
        self.home, self.work, self.env = place.home, place.work, place.env
        self.artifacts = record.folder
        self._secrets = Secrets(secrets)
        record.hide = self._secrets.hide
        self._masks = Masks(
            [(str(place.work), "<work>"), (str(place.home), "<home>"), (str(place.root), "<test>")], masks
        )
        (place.control / "pid").write_text(str(os.getpid()))
        (place.control / "recordings").write_text(str(record.folder / "recordings"))
        self._write_secrets()
        self._transcript = Transcript(record.folder, self._secrets)
        self._pump = Pump(self._transcript, place.marked)
        self._server = Server(place.control, place.env, place.marked)
        self._terminals: list[Terminal] = []
        self._backgrounds: list[Background] = []
        self._recordings: set[str] = set()

    def __repr__(self) -> str:
        return f"<e2e in {self.work}>"

    def write_tutorial_block(self, text: str) -> None:
        """Say which block of the tutorial this test is for, by citing it."""
        block = blocks.normal(text)
        self._transcript.add("block", text=block)
        if block not in self._record.facts["blocks"]:
            self._record.save(blocks=[*self._record.facts["blocks"], self._secrets.hide(block)])

    def run(
        self,
        command: str,
        comment: str | None = None,
        timeout: float | None = None,
        input: str | bytes | None = None,
        env: Mapping[str, str | None] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        check: bool = False,
    ) -> Result:
        """`bash -c COMMAND` in the work folder, until it ends or `timeout` seconds are over (then `timed_out` says so).

        Each call is a shell of its own. In `env`, None takes a variable away; `cwd` counts from the work folder.
        With `check` a command that does not succeed fails the test, with what it printed.
        """
        __tracebackhide__ = True
        started = self._start(command, comment, input, env, cwd)
        try:
            self._pump.wait(started, self.timeout if timeout is None else timeout)
        except BaseException:  # Ctrl-C or a time-out of the whole test: the command goes with it
            started.end(0.2)
            raise
        self.ended(started)
        self._see_recordings()
        result = Result(self, started)
        if check:
            from .expectations import expect

            expect(result).to_succeed()
        return result

    def start(
        self,
        command: str,
        comment: str | None = None,
        ready_when: str | re.Pattern[str] | Callable[[], Any] | None = None,
        timeout: float | None = None,
        input: str | bytes | None = None,
        env: Mapping[str, str | None] | None = None,
        cwd: str | os.PathLike[str] | None = None,
    ) -> Background:
        """Run a command in the background. With `ready_when` (a text or pattern in its output, or a function) this waits for it.

        AssertionError when it is not ready in time, or ends before that.
        """
        __tracebackhide__ = True
        background = Background(self, self._start(command, comment, input, env, cwd, background=True), self._pump)
        self._backgrounds.append(background)
        if ready_when is None:
            return background
        if callable(ready_when):
            ready = ready_when
        else:
            pattern = re.compile(re.escape(ready_when) if isinstance(ready_when, str) else ready_when.pattern)

            def ready() -> bool:
                return bool(pattern.search(background.stdout) or pattern.search(background.stderr))

        if not background.until(ready, timeout):
            from .expectations import fail

            seconds = self.timeout if timeout is None else timeout
            how = f"was not ready within {seconds:g} s" if background.running else "ended before it was ready"
            background.stop()
            fail(f"the background program {how}\n  $ {command}", self)
        return background

    def terminal(
        self,
        command: str,
        size: tuple[int, int] = (80, 24),
        name: str | None = None,
        comment: str | None = None,
        env: Mapping[str, str | None] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        timeout: float | None = None,
    ) -> Terminal:
        """Run a command in a terminal of (columns, rows). It is recorded from its first byte; `timeout` is for its expectations."""
        __tracebackhide__ = True
        folder = self._folder(cwd, command)
        if comment:
            self._transcript.add("comment", text=comment)
        # By a file: a value on a command line is for everybody to read.
        env_file = self._place.control / f"terminal-{len(self._terminals)}.json"
        env_file.touch(0o600)
        env_file.write_text(json.dumps(self._merged(env)))
        made = Terminal(
            self._server,
            command,
            size=size,
            cwd=folder,
            env_file=env_file,
            recordings=self._record.folder / "recordings",
            name=name or _program(command),
            session=self,
            **({"patience": timeout} if timeout is not None else {}),
        )
        self._terminals.append(made)
        self._recordings.add(made.name)
        return made

    def mask(self, text: str) -> Output:
        """The text with times, ids, the test's own paths and what `add_mask` named masked."""
        return Output.of(self._masks.apply(text), self, "the text")

    def hide(self, text: str) -> str:
        """The text as it goes into artifacts: without secrets."""
        return self._secrets.hide(text)

    def add_secret(self, text: str) -> None:
        """Show this text as `****` in everything that is written from now on."""
        self._secrets.add([text], shortest=1)
        self._write_secrets()

    def _write_secrets(self) -> None:
        """For recorders, which look for a new file before they write. Replaced whole, and only for this user to read."""
        path = self._place.control / "secrets.json"
        part = path.with_name("secrets.json.part")
        part.unlink(missing_ok=True)
        part.touch(0o600)
        part.write_text(json.dumps(self._secrets.values))
        os.replace(part, path)

    def add_mask(self, pattern: str, name: str) -> None:
        self._masks.add(pattern, name)

    def note(self, text: str) -> None:
        """A remark in the transcript."""
        self._transcript.add("note", text=text)

    def tell(self, kind: str, **fields: Any) -> None:
        """A piece of the transcript."""
        self._transcript.add(kind, **fields)

    def transcript(self, lines: int = SHOWN) -> str:
        """The last lines of what happened so far, as text."""
        return self._transcript.tail(lines)

    def _start(
        self,
        command: str,
        comment: str | None,
        input: str | bytes | None,
        env: Mapping[str, str | None] | None,
        cwd: str | os.PathLike[str] | None,
        background: bool = False,
    ) -> Command:
        __tracebackhide__ = True
        folder = self._folder(cwd, command)
        if comment:
            self._transcript.add("comment", text=comment)
        merged = self._merged(env)
        data = input.encode("utf-8", "surrogateescape") if isinstance(input, str) else input
        return self._pump.start(command, env=merged, cwd=folder, input=data, background=background)

    def _folder(self, cwd: str | os.PathLike[str] | None, command: str) -> str:
        """The folder of a command. AssertionError if it cannot run there."""
        __tracebackhide__ = True
        folder = self.work / (cwd or "")
        if not os.path.isdir(folder):
            from .expectations import fail, quoted_command

            why = "is not a folder" if os.path.lexists(folder) else "does not exist"
            fail(f"cannot run this in {cwd}: {folder} {why}\n{quoted_command(command)}", self)
        return str(folder)

    def _merged(self, env: Mapping[str, str | None] | None) -> dict[str, str]:
        return {key: value for key, value in {**self.env, **(env or {})}.items() if value is not None}

    def ended(self, command: Command) -> None:
        """Write the end of a command down."""
        left_out = command.stdout.left_out + command.stderr.left_out
        if left_out:
            self.note(f"{left_out:,} bytes of output were left out")
        self._transcript.add(
            "exit", n=command.number, code=command.code, duration=round(command.duration, 4), timeout=command.timeout
        )

    def _see_recordings(self) -> None:
        """Recordings that `muster-e2e-connect` began."""
        for path in sorted((self._record.folder / "recordings").glob("*.json")):
            if path.stem not in self._recordings:
                self._recordings.add(path.stem)
                command = str(facts_of(str(path.with_suffix(""))).get("command", ""))
                self._transcript.add("recording", recording=path.stem, text=command)

    def finish(self) -> list[str]:
        """End what the session itself started and complete the recordings; returns what is wrong with them."""
        problems: list[str] = []
        for background in self._backgrounds:
            background.stop()
        for terminal in self._terminals:
            try:
                terminal.close()
            except (RuntimeError, OSError) as error:
                problems.append(str(error))
        self._see_recordings()
        recordings = self._record.folder / "recordings"
        for name in sorted(self._recordings):
            problems += self._complete(recordings / name)
        self._server.end()
        self._pump.close()
        self._record.save(recordings=sorted(self._recordings))
        return problems

    def _complete(self, base: Path) -> list[str]:
        """End the recorder, write the last screen; a recording that failed is a problem."""
        facts = facts_of(str(base))
        if facts.get("ended") is None and isinstance(facts.get("pid"), int):
            _end_recorder(int(str(facts["pid"])), str(self._place.control))
            deadline = time.monotonic() + 10
            while (facts := facts_of(str(base))).get("ended") is None and time.monotonic() < deadline:
                if not exists(facts.get("pid")) and facts_of(str(base)).get("ended") is None:
                    return [f"recording {base.name} has no end: its recorder was killed"]
                time.sleep(0.02)
        cast = Path(f"{base}.cast")
        if facts.get("error"):
            return [f"recording {base.name}: {facts['error']}"]
        if facts.get("ended") is None or not cast.is_file():
            return [f"recording {base.name} has no end"]
        try:
            Path(f"{base}.txt").write_text(last_screen(cast, self._server) + "\n", encoding="utf-8", errors="replace")
        except (OSError, RuntimeError, ValueError) as error:
            return [f"recording {base.name}: its last screen cannot be drawn: {error}"]
        return []

    def leave(self, leaks: list[str]) -> None:
        for leak in leaks:
            self.note(f"left behind: {leak}")
        self._record.save(leaks=leaks)
        self._transcript.close()


def _program(command: str) -> str:
    """What a terminal is called when nobody says: the program, without its folder and without variables before it."""
    words = [word for word in command.split() if not re.match(r"\w+=", word)]
    return os.path.basename(words[0]) if words else "terminal"


def _end_recorder(pid: int, control: str) -> None:
    """Signal the recorder, when this pid still is one of this test."""
    import signal

    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            if f"MUSTER_E2E={control}".encode() not in file.read().split(b"\0"):
                return
    except FileNotFoundError:
        if os.path.isdir("/proc/self"):
            return
    except OSError:
        return
    try:
        os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:
        pass
