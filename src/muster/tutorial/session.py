"""`E2eSession`: run the program under test in a sandbox and record everything it prints."""

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
from .connect import recording_facts
from .isolation import Sandbox
from .masks import Masks, Secrets
from .process import Command, Line, OutputReader
from .snapshots import Snapshots
from .terminal import Server, Terminal, exists, last_screen
from .transcript import Transcript

#: Default timeout of a command, in seconds.
TIMEOUT = 60.0
#: Number of transcript lines that a failure shows.
SHOWN = 60


class Output(str):
    """A text with a reference to the command or session that it came from, for the messages of failed expectations."""

    source: Result | Background | E2eSession
    stream: str

    @classmethod
    def of(cls, text: str, source: Result | Background | E2eSession, stream: str) -> Output:
        output = cls(text)
        output.source, output.stream = source, stream
        return output


class Result:
    """The result of a command: `stdout`, `stderr`, `exit_code`, `duration`, and `lines` of both streams in order of arrival.

    `timed_out` is the seconds after which the command was ended, or None. `left_out` is the number of output bytes that
    were not kept because there were too many.
    """

    def __init__(self, session: E2eSession, command: Command) -> None:
        self.session = session
        self.command = command.text
        self.exit_code = command.code if command.code is not None else 0
        self.duration = command.duration
        self.lines: tuple[Line, ...] = tuple(command.lines)
        self.timed_out = command.timeout
        self.left_out = command.stdout.left_out + command.stderr.left_out
        self._incomplete = command.full
        self.stdout_bytes, self.stderr_bytes = command.stdout.bytes(), command.stderr.bytes()
        self.stdout = Output.of(self.stdout_bytes.decode("utf-8", "replace"), self, "stdout")
        self.stderr = Output.of(self.stderr_bytes.decode("utf-8", "replace"), self, "stderr")

    @property
    def output(self) -> Output:
        """Both streams, in the order in which the lines arrived."""
        return Output.of(self._both_streams(""), self, "output")

    def _both_streams(self, stderr_prefix: str) -> str:
        text = "".join((stderr_prefix if line.stream == "err" else "") + line.text for line in self.lines)
        # Expectations recognise this marker (expectations.OMITTED): the text does not prove that something is absent.
        return f"{text}\n[… more bytes left out …]\n" if self._incomplete else text

    @property
    def masked(self) -> Masked:
        """The output with times, ids and paths masked."""
        return Masked(self, self.session.mask)

    def json(self) -> Any:
        """Parse stdout as a JSON document. If it is not JSON, raises AssertionError with the command and its output."""
        __tracebackhide__ = True
        try:
            return json.loads(self.stdout)
        except ValueError as error:
            from .expectations import fail_with_output

            fail_with_output(f"expected stdout to be JSON, but {error}", self)

    def variants(self) -> tuple[str, ...]:
        return self.stdout, self.stderr, self._both_streams("")

    def transcript(self) -> str:
        return self.session.transcript()

    def note(self, text: str) -> None:
        self.session.note(text)

    def __repr__(self) -> str:
        return f"<$ {self.command} ? {self.exit_code}>"


class Masked:
    """`stdout`, `stderr` and `output` of a result, with values that differ from run to run masked."""

    def __init__(self, result: Result, mask: Callable[[str], str]) -> None:
        self.stdout = Output.of(mask(result.stdout), result, "stdout (masked)")
        self.stderr = Output.of(mask(result.stderr), result, "stderr (masked)")
        self.output = Output.of(mask(result._both_streams("! ")), result, "output (masked)")


class OutputSince:
    """The output of a background program since a mark."""

    def __init__(self, background: Background, mark: tuple[int, int]) -> None:
        self.background = background
        self._mark = mark

    @property
    def stdout(self) -> Output:
        return self.background._text(0, self._mark[0])

    @property
    def stderr(self) -> Output:
        return self.background._text(1, self._mark[1])

    def variants(self) -> tuple[str, ...]:
        return self.stdout, self.stderr


class Background:
    """A program that runs in the background. It is ended with the test at the latest."""

    def __init__(self, session: E2eSession, command: Command, reader: OutputReader) -> None:
        self.session = session
        self._command = command
        self._reader = reader
        self.command = command.text
        self.pid = command.process.pid
        self._logged_exit = False

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
        """The exit code; None while the program runs."""
        self._command.process.poll()
        return self._command.code

    def mark(self) -> tuple[int, int]:
        """Return the current end of the output, for `since`."""
        return self._command.stdout.total, self._command.stderr.total

    def since(self, mark: tuple[int, int]) -> OutputSince:
        """Return the output since a mark, for `expect`: earlier output does not count."""
        return OutputSince(self, mark)

    def variants(self) -> tuple[str, ...]:
        return self.stdout, self.stderr

    def wait_for(self, text: str, timeout: float | None = None) -> bool:
        """Wait until the program prints the text on either stream; return whether it did within the timeout."""
        return self.until(lambda: any(text in variant for variant in self.variants()), timeout)

    def until(self, condition: Callable[[], Any], timeout: float | None = None) -> bool:
        """Wait until the condition is true, or the program exits; return whether the condition is true.

        The condition is evaluated whenever the program prints something.
        """
        seconds = self.session.timeout if timeout is None else timeout
        self._reader.until(lambda: condition() or not self.running, seconds)
        return bool(self._reader.until(condition, 0.5))

    def wait(self, timeout: float | None = None) -> Result:
        """Wait until the program exits. After the timeout, end it."""
        self._reader.wait(self._command, self.session.timeout if timeout is None else timeout)
        return self._finish()

    def stop(self) -> Result:
        """End the program with everything it forked; the result has its exit code."""
        if self.running:
            self._command.end()
        self._reader.wait(self._command, 5)
        return self._finish()

    def _finish(self) -> Result:
        if not self._logged_exit:
            self._logged_exit = True
            self.session.log_exit(self._command)
        return Result(self.session, self._command)

    def transcript(self) -> str:
        return self.session.transcript()

    def note(self, text: str) -> None:
        self.session.note(text)


class E2eSession:
    """The value of the pytest fixture `e2e`. `work` and `home` are the test's folders, `env` its environment."""

    def __init__(
        self,
        record: Record,
        sandbox: Sandbox,
        *,
        secrets: Iterable[str] = (),
        masks: Iterable[tuple[str, str]] = (),
        timeout: float = TIMEOUT,
        snapshots: Snapshots | None = None,
    ) -> None:
        self._record = record
        self._sandbox = sandbox
        self.timeout = timeout
        self.snapshots = snapshots
        self.home, self.work, self.env = sandbox.home, sandbox.work, sandbox.env
        self.artifacts = record.folder
        self._secrets = Secrets(secrets)
        record.hide = self._secrets.hide
        self._masks = Masks(
            [(str(sandbox.work), "<work>"), (str(sandbox.home), "<home>"), (str(sandbox.root), "<test>")], masks
        )
        (sandbox.control / "pid").write_text(str(os.getpid()))
        (sandbox.control / "recordings").write_text(str(record.folder / "recordings"))
        self._write_secrets()
        self._transcript = Transcript(record.folder, self._secrets)
        self._reader = OutputReader(self._transcript, sandbox.tagged)
        self._server = Server(sandbox.control, sandbox.env, sandbox.tagged)
        self._terminals: list[Terminal] = []
        self._backgrounds: list[Background] = []
        self._recordings: set[str] = set()

    def __repr__(self) -> str:
        return f"<e2e in {self.work}>"

    def write_tutorial_block(self, text: str) -> None:
        """Cite the block of the tutorial that this test covers."""
        block = blocks.normalize(text)
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
        """Run `bash -c COMMAND` in the work folder until it exits; after `timeout` seconds end it and set `timed_out`.

        Each call starts a new shell. In `env`, None removes a variable. `cwd` is relative to the work folder.
        With `check=True`, a command that does not succeed fails the test and shows its output.
        """
        __tracebackhide__ = True
        started = self._start(command, comment, input, env, cwd)
        try:
            self._reader.wait(started, self.timeout if timeout is None else timeout)
        except BaseException:  # Ctrl-C, or a timeout of the whole test: end the command too
            started.end(0.2)
            raise
        self.log_exit(started)
        self._add_recordings()
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
        """Start a command in the background.

        With `ready_when` (a text, a pattern, or a function that returns true) wait until the output contains it or the
        function returns true. Raises AssertionError if that does not happen in time, or the program exits before.
        """
        __tracebackhide__ = True
        background = Background(self, self._start(command, comment, input, env, cwd, background=True), self._reader)
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
        """Run a command in a terminal of `size` (columns, rows) and record it. `timeout` applies to its expectations."""
        __tracebackhide__ = True
        folder = self._folder(cwd, command)
        if comment:
            self._transcript.add("comment", text=comment)
        # Passed in a file, because every user of the machine can read command lines.
        env_file = self._sandbox.control / f"terminal-{len(self._terminals)}.json"
        env_file.touch(0o600)
        env_file.write_text(json.dumps(self._command_env(env)))
        terminal = Terminal(
            self._server,
            command,
            size=size,
            cwd=folder,
            env_file=env_file,
            recordings=self._record.folder / "recordings",
            name=name or _program(command),
            session=self,
            **({} if timeout is None else {"timeout": timeout}),
        )
        self._terminals.append(terminal)
        self._recordings.add(terminal.name)
        return terminal

    def mask(self, text: str) -> Output:
        """Return the text with times, ids, the test's own paths and the patterns of `add_mask` masked."""
        return Output.of(self._masks.apply(text), self, "the text")

    def hide(self, text: str) -> str:
        """Return the text with secrets replaced, as it is written to artifacts."""
        return self._secrets.hide(text)

    def add_secret(self, text: str) -> None:
        """Replace this text by `****` in everything that is written from now on."""
        self._secrets.add([text], shortest=1)
        self._write_secrets()

    def _write_secrets(self) -> None:
        """Write the secrets for the recorders, which check for a new file before they write. Only this user can read it."""
        path = self._sandbox.control / "secrets.json"
        part = path.with_name("secrets.json.part")
        part.unlink(missing_ok=True)
        part.touch(0o600)
        part.write_text(json.dumps(self._secrets.values))
        os.replace(part, path)

    def add_mask(self, pattern: str, name: str) -> None:
        """Replace matches of the pattern by `name` in masked output."""
        self._masks.add(pattern, name)

    def note(self, text: str) -> None:
        """Add a note to the transcript."""
        self._transcript.add("note", text=text)

    def log(self, kind: str, **fields: Any) -> None:
        """Add an entry to the transcript."""
        self._transcript.add(kind, **fields)

    def transcript(self, lines: int = SHOWN) -> str:
        """Return the last lines of the transcript so far."""
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
        merged = self._command_env(env)
        data = input.encode("utf-8", "surrogateescape") if isinstance(input, str) else input
        return self._reader.start(command, env=merged, cwd=folder, input=data, background=background)

    def _folder(self, cwd: str | os.PathLike[str] | None, command: str) -> str:
        """Return the folder in which to run a command. Raises AssertionError if it is not a folder."""
        __tracebackhide__ = True
        folder = self.work / (cwd or "")
        if not os.path.isdir(folder):
            from .expectations import fail, quoted_command

            why = "is not a folder" if os.path.lexists(folder) else "does not exist"
            fail(f"cannot run this in {cwd}: {folder} {why}\n{quoted_command(command)}", self)
        return str(folder)

    def _command_env(self, env: Mapping[str, str | None] | None) -> dict[str, str]:
        return {key: value for key, value in {**self.env, **(env or {})}.items() if value is not None}

    def log_exit(self, command: Command) -> None:
        """Add the exit of a command to the transcript."""
        left_out = command.stdout.left_out + command.stderr.left_out
        if left_out:
            self.note(f"{left_out:,} bytes of output were left out")
        self._transcript.add(
            "exit", n=command.number, code=command.code, duration=round(command.duration, 4), timeout=command.timeout
        )

    def _add_recordings(self) -> None:
        """Add recordings that `muster-e2e-connect` started."""
        for path in sorted((self._record.folder / "recordings").glob("*.json")):
            if path.stem not in self._recordings:
                self._recordings.add(path.stem)
                command = str(recording_facts(str(path.with_suffix(""))).get("command", ""))
                self._transcript.add("recording", recording=path.stem, text=command)

    def finish(self) -> list[str]:
        """End what the session started and finish its recordings; return the problems of the recordings."""
        problems: list[str] = []
        for background in self._backgrounds:
            background.stop()
        for terminal in self._terminals:
            try:
                terminal.close()
            except (RuntimeError, OSError) as error:
                problems.append(str(error))
        self._add_recordings()
        recordings = self._record.folder / "recordings"
        for name in sorted(self._recordings):
            problems += self._finish_recording(recordings / name)
        self._server.end()
        self._reader.close()
        self._record.save(recordings=sorted(self._recordings))
        return problems

    def _finish_recording(self, base: Path) -> list[str]:
        """End the recorder of a recording and write its last screen; return its problems."""
        facts = recording_facts(str(base))
        if facts.get("ended") is None and isinstance(facts.get("pid"), int):
            _end_recorder(int(str(facts["pid"])), str(self._sandbox.control))
            deadline = time.monotonic() + 10
            while (facts := recording_facts(str(base))).get("ended") is None and time.monotonic() < deadline:
                if not exists(facts.get("pid")) and recording_facts(str(base)).get("ended") is None:
                    return [f"recording {base.name} was not finished: its recorder was killed"]
                time.sleep(0.02)
        cast = Path(f"{base}.cast")
        if facts.get("error"):
            return [f"recording {base.name}: {facts['error']}"]
        if facts.get("ended") is None or not cast.is_file():
            return [f"recording {base.name} was not finished"]
        try:
            Path(f"{base}.txt").write_text(last_screen(cast, self._server) + "\n", encoding="utf-8", errors="replace")
        except (OSError, RuntimeError, ValueError) as error:
            return [f"recording {base.name}: cannot draw its last screen: {error}"]
        return []

    def close(self, leaks: list[str]) -> None:
        """Record what the test left behind and close the transcript."""
        for leak in leaks:
            self.note(f"left behind: {leak}")
        self._record.save(leaks=leaks)
        self._transcript.close()


def _program(command: str) -> str:
    """Return the default name of a terminal: the program, without its folder and without variables before it."""
    words = [word for word in command.split() if not re.match(r"\w+=", word)]
    return os.path.basename(words[0]) if words else "terminal"


def _end_recorder(pid: int, control: str) -> None:
    """Send SIGTERM to the recorder, if the pid still belongs to this test."""
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
