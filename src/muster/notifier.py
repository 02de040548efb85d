"""Run the user's `[notify]` command, once, when an event changes the state of an agent.

A copy of this file, `bin/notify.py`, is in the folder of each agent on the user's machine for which `[notify]` is configured. It runs
there alone, so it imports nothing of muster. `bin/notify` (sh/agent/notify.sh) starts it, and only for events that may change the state.

    notify/command, on   what to run, and in which states; written by `create` and `start`
    notify/env           the environment in which `create` or `start` was called (`export -p`); removed when the agent ends
    notify/is.STATE      the state it is in. A rename changes it, so of several events at the same time one wins
    notify/log           what the command printed

The agent's processes call it, so whatever goes wrong here must not disturb the agent.

    notify.py DIR KIND STATE REASON [STATUS SIGNAL]     an event took the agent into this state; of an end, find out the state
    notify.py -fire DIR KIND STATE REASON               run the command in this environment; the event is on stdin
    notify.py -run LOG SECONDS COMMAND                  run the command in this environment, in the background
"""

from __future__ import annotations

import os
import signal
import stat
import sys

TYPE_CHECKING = False  # `typing` itself takes time to load
if TYPE_CHECKING:
    from collections.abc import Mapping

SECONDS = 30  # the time limit of the command
OUTPUT_CAP = 65536  # bytes of one call's output that are kept
LOG_CAP = 50_000  # a longer log is put aside before the next call
READ_CAP = 1_000_000
TEXT_CAP = 200  # characters of the agent's text that the command gets
OVER = ("done", "failed", "stopped", "lost")
STATES = ("starting", "working", "waiting", "ready", *OVER)


# ---- an event ---------------------------------------------------------------------------------------------


def changed(folder: str, kind: str, state: str, reason: str, *how: str) -> None:
    """Note the new state, and start the command if the user wants to hear of it."""
    if kind in ("exit", "died"):
        state, reason = _end(folder, *how) if kind == "died" else _exit(folder)
    if not state:
        return
    before = _move(os.path.join(folder, "notify"), state)
    if before is None:
        return
    wanted = _read(os.path.join(folder, "notify", "on"))[:1000].decode("utf-8", "replace").split()
    # A failed turn leaves the agent ready, but a user who asked for `failed` wants to know.
    wants = state in wanted or (reason == "failed turn" and "failed" in wanted)
    # An agent that has come up and waits for its first message is no news.
    if wants and before and (before, state, reason) != ("starting", "ready", ""):
        _start(folder, kind, state, reason)
    if state in OVER:
        try:
            os.unlink(os.path.join(folder, "notify", "env"))
        except OSError:
            pass


def _exit(folder: str) -> tuple[str, str]:
    """Return the state and the reason that the event `exit` of the wrapper stands for."""
    event = _parsed(_read(os.path.join(folder, "ev", "exit")))
    if event.get("why") == "timeout":
        return "failed", "timeout"
    if event.get("why") == "hangup":
        return "lost", "its session is gone"
    code = event.get("code")
    return _ended(code if isinstance(code, int) else 1)


def _end(folder: str, status: str = "", number: str = "") -> tuple[str, str]:
    """Return the state and the reason after tmux saw the process end with this status or by this signal."""
    if not (status + number).isdigit():
        return ("failed", "exit 1") if not status + number else ("", "")
    return _ended(128 + int(number) if int(number or 0) else int(status or 1))


def _ended(code: int) -> tuple[str, str]:
    if code == 0:
        return "done", ""
    return "failed", f"exit {code}" if code <= 128 else f"signal {code - 128}"


def _move(folder: str, state: str) -> str | None:
    """Change the noted state; return the one before, "" if none was noted, None if another process has done it or may not be.

    What is over is over, until the agent is started again.
    """
    new = os.path.join(folder, "is." + state)
    for _ in range(3):
        if os.path.exists(new):
            return None
        for before in STATES:
            if not os.path.exists(os.path.join(folder, "is." + before)):
                continue
            if before in OVER:
                return None
            try:
                os.rename(os.path.join(folder, "is." + before), new)
                return before
            except OSError:
                if os.path.exists(new):
                    return None
    os.close(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK, 0o600))
    return ""


def _start(folder: str, kind: str, state: str, reason: str) -> None:
    """Go on in the background, in a session of its own and in the user's environment."""
    # Both files are opened now: the next event replaces the one, and the other is removed when the agent ends.
    event = _open(os.path.join(folder, "ev", kind))
    environment = _open(os.path.join(folder, "notify", "env"))
    if os.fork():
        return
    try:
        os.setsid()
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        argv = [sys.executable, "-I", "-S", os.path.abspath(__file__), "-fire", folder, kind, state, reason]
        if event is not None:
            os.dup2(event, 0)
        if environment is not None:
            os.dup2(environment, 3)
            os.set_inheritable(3, True)
            # It is what a shell printed, so a shell reads it. No variable of ours gets into it or is replaced by it.
            argv = ["/usr/bin/env", "-i", "/bin/sh", "-c", '. /dev/fd/3; exec "$@" 3<&-', "sh", *argv]
        os.execv(argv[0], argv)
    finally:
        os._exit(1)


# ---- the command ------------------------------------------------------------------------------------------


def fire(folder: str, kind: str, state: str, reason: str) -> None:
    """Run the command with what it is to know of the agent and of the event."""
    ours = ("MUSTER_AGENT_ID", "MUSTER_AGENT_DIR", "MUSTER_RESULT", "MUSTER_RESULT_KEY", "MUSTER_PROMPT")
    environment = {key: value for key, value in os.environ.items() if key not in ours}
    # The name as it is now: the agent may have been renamed.
    name = str(_parsed(_read(os.path.join(folder, "agent.json"))).get("name"))
    name = name if name.replace("_", "").replace("-", "").isalnum() and name.isascii() else os.path.basename(folder)
    text = last_words(folder) if kind in ("exit", "died") else words(os.read(0, READ_CAP))
    environment.update(
        MUSTER_AGENT=name,
        MUSTER_NOTIFY_ADDRESS=name,
        MUSTER_NOTIFY_STATE=state,
        MUSTER_NOTIFY_REASON=reason,
        MUSTER_NOTIFY_TEXT=text,
        MUSTER_NOTIFY_WORKDIR=os.fsdecode(_read(os.path.join(folder, "cwd"))).replace("\0", ""),
    )
    command = os.fsdecode(_read(os.path.join(folder, "notify", "command")))
    run(os.path.join(folder, "notify", "log"), SECONDS, command, environment)


def run(log: str, seconds: float, command: str, environment: Mapping[str, str]) -> None:
    """Run a command line in the user's home, and append what it prints to the log.

    After `seconds` end it and all that it started.
    """
    import select
    import subprocess
    import time

    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    environment = dict(environment)
    try:
        os.chdir(environment.get("HOME") or "/")
    except OSError:
        os.chdir("/")
    # Whoever ends the processes of the agent by their mark must not find these: they have a mark of their own.
    mark = f"notify-{os.getpid()}-{int(time.time())}"
    environment.update(MUSTER_AGENT_ID=mark, PWD=os.getcwd())
    file = _log(log)
    room = OUTPUT_CAP

    def note(data: bytes) -> None:
        nonlocal room
        os.write(file, data[:room])
        room -= len(data[:room])

    state, reason = environment.get("MUSTER_NOTIFY_STATE", ""), environment.get("MUSTER_NOTIFY_REASON", "")
    heading = f"{environment.get('MUSTER_NOTIFY_ADDRESS', '')}: {state}{f' ({reason})' if reason else ''}\n"
    note(os.fsencode(time.strftime("%Y-%m-%d %H:%M:%S ") + heading))
    argv = ["/bin/sh", "-c", command]
    process = subprocess.Popen(
        argv, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert process.stdout
    pipe, end, late = process.stdout.fileno(), time.monotonic() + seconds, False
    while True:
        left = end - time.monotonic()
        if left <= 0:
            if late:
                break  # something without the mark keeps the pipe open
            os.write(file, f"it took longer than {seconds:g} s and is ended\n".encode())
            subprocess.run(["/bin/sh", _reap(), mark, "20"], check=False)
            end, late = time.monotonic() + 5, True
        elif pipe < 0:  # it goes on without its output
            try:
                process.wait(left)
                break
            except subprocess.TimeoutExpired:
                pass
        elif select.select([pipe], [], [], left)[0]:
            data = os.read(pipe, 65536)
            note(data)
            pipe = pipe if data else -1
    code = process.wait()
    if code:
        note(f"exit {code if code > 0 else 128 - code}\n".encode())


def _reap() -> str:
    """Return the script that ends processes: beside the copy in an agent's folder, or in the package."""
    here = os.path.dirname(os.path.abspath(__file__))
    beside = os.path.join(here, "reap")
    return beside if os.path.exists(beside) else os.path.join(here, "sh", "agent", "reap.sh")


def _log(path: str) -> int:
    """Open the log. Remove what is no plain file, and put a long log aside."""
    import shutil

    try:
        found = os.lstat(path)
        if stat.S_ISDIR(found.st_mode):
            shutil.rmtree(path)
        elif not stat.S_ISREG(found.st_mode):
            os.unlink(path)
        elif found.st_size > LOG_CAP:
            os.replace(path, path + ".1")
    except OSError:
        pass
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)


# ---- what the agent says ----------------------------------------------------------------------------------


def words(event: bytes) -> str:
    """Return the first line of what an event says, in characters that can be printed."""
    fields = _parsed(event)
    lines = [fields.get(key) for key in ("name", "tool", "text", "detail")]
    return ": ".join(line for line in (plain(text) for text in lines if isinstance(text, str)) if line)[:TEXT_CAP]


def plain(text: str) -> str:
    """Return the first line that is not blank, without control characters and half characters."""
    for line in text.split("\n"):
        shown = "".join(" " if char in "\t\xa0\u3000" else char if char.isprintable() else "" for char in line)
        if shown.strip():
            return shown.lstrip()[:TEXT_CAP]
    return ""


def last_words(folder: str) -> str:
    """Return what an agent that has ended last said: its client's last words, else the last line on its terminal."""
    newest = (0.0, "")
    for kind in ("turn-end", "ask", "permission", "tool", "error"):
        path = os.path.join(folder, "ev", kind)
        try:
            newest = max(newest, (os.stat(path).st_mtime, path))
        except OSError:
            pass
    if newest[1]:
        return words(_read(newest[1]))
    import re

    shown = _read(os.path.join(folder, "rec", "tail"), end=4000).decode("utf-8", "replace")
    shown = re.sub(r"\x1b\[[0-9;?>=]*[A-Za-z]|\x1b\][^\x1b\x07]*|\x1b[()].", "", shown)
    lines = (plain(line) for line in reversed(re.split(r"[\r\n]", shown)) if not re.match("Script [sd]", line))
    return next((line for line in lines if line), "")


# ---- files ------------------------------------------------------------------------------------------------


def _open(path: str) -> int | None:
    """Open a plain file. The agent may have replaced it by a pipe without a writer."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    if stat.S_ISREG(os.fstat(file).st_mode):
        return file
    os.close(file)
    return None


def _read(path: str, end: int = 0) -> bytes:
    """Return the content of a plain file (only its last `end` bytes); nothing if there is none."""
    file = _open(path)
    if file is None:
        return b""
    try:
        size = os.fstat(file).st_size
        return os.pread(file, READ_CAP, max(0, size - end) if end else 0)
    finally:
        os.close(file)


def _parsed(data: bytes) -> dict[str, object]:
    import json

    try:
        event = json.loads(data.decode("utf-8", "replace"), strict=False)
    except (ValueError, RecursionError):
        return {}
    return event if isinstance(event, dict) else {}


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["-fire"]:
        fire(*arguments[1:])
    elif arguments[:1] == ["-run"]:
        _, log, seconds, command = arguments
        if os.fork() == 0:
            nowhere = os.open(os.devnull, os.O_RDWR)
            for number in range(3):
                os.dup2(nowhere, number)
            run(log, float(seconds), command, os.environ)
    else:
        changed(*arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
