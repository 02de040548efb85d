"""`muster-e2e-connect`, the connect_command of tests: start recording an agent's terminal in the background, then return.

muster sets MUSTER_AGENT, MUSTER_WATCH (a command that shows the agent's terminal read-only) and MUSTER_SIZE_COMMAND.
The e2e fixture sets MUSTER_E2E.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time

#: Seconds to wait until the agent's terminal shows something.
FIRST_OUTPUT_TIMEOUT = 30.0


def main() -> int:
    control = os.environ.get("MUSTER_E2E", "")
    watch, agent = os.environ.get("MUSTER_WATCH", ""), os.environ.get("MUSTER_AGENT", "")
    address = os.environ.get("MUSTER_ADDRESS", agent)
    if not control or not os.path.isdir(control):
        return _fail("MUSTER_E2E is not set: run this only in a test that uses the pytest fixture e2e")
    if not watch:
        return _fail("MUSTER_WATCH is not set: muster sets it when it runs a connect_command")
    folder = _read(os.path.join(control, "recordings"))
    base = new_recording(folder, f"connect-{agent}")
    size_command = os.environ.get("MUSTER_SIZE_COMMAND", "")
    size = _size(size_command)
    log = os.path.join(control, f"{os.path.basename(base)}.log")
    with open(log, "wb") as errors:
        recorder = subprocess.Popen(
            [
                *recorder_argv(base, f"muster connect {address}"),
                "--size",
                size,
                "--size-command",
                size_command,
                "--",
                *shlex.split(watch),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
        )
    deadline = time.monotonic() + FIRST_OUTPUT_TIMEOUT
    while time.monotonic() < deadline:
        facts = recording_facts(base)
        if facts.get("error"):
            return _fail(str(facts["error"]))
        if _has_event(f"{base}.cast"):
            print(f"recording {agent} to {os.path.basename(base)}.cast", file=sys.stderr)
            return 0
        if recorder.poll() is not None:
            output = _read(log)[-500:]
            return _fail(f"the recorder of {agent} exited at once: {output or 'it printed no error'}")
        time.sleep(0.02)
    return _fail(f"the terminal of {agent} showed nothing within {FIRST_OUTPUT_TIMEOUT:g} s")


def recorder_argv(base: str, label: str) -> list[str]:
    """Return the command line of the recorder. `label` names the recorded program for people who read the recording."""
    return [sys.executable, "-m", "muster.tutorial.record", base, "--label", label]


def new_recording(folder: str, name: str) -> str:
    """Reserve and return BASE for a new recording: `name`, or the first free of name-2, name-3, …

    The reservation is atomic, so two processes never get the same BASE.
    """
    name = re.sub(r"[^A-Za-z0-9_.@-]+", "-", name).strip("-.")[:80] or "recording"
    number = 1
    while True:
        base = os.path.join(folder, name if number == 1 else f"{name}-{number}")
        try:
            fd = os.open(f"{base}.json", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError:
            number += 1
            continue
        os.write(fd, b'{"error": null, "ended": null}')
        os.close(fd)
        return base


def recording_facts(base: str) -> dict[str, object]:
    """Return the content of BASE.json; empty if it does not exist yet or cannot be parsed."""
    try:
        with open(f"{base}.json", encoding="utf-8") as file:
            loaded = json.load(file)
    except (OSError, ValueError):
        return {}
    return loaded if isinstance(loaded, dict) else {}


def _read(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def _has_event(path: str) -> bool:
    """Return whether the recording has at least one event, which proves that attaching worked."""
    try:
        with open(path, "rb") as file:
            return file.read(65536).count(b"\n") >= 2
    except OSError:
        return False


def _size(command: str) -> str:
    """Return COLSxROWS as printed by the size command; 80x24 if it prints nothing usable."""
    if command:
        done = subprocess.run(["sh", "-c", command], stdin=subprocess.DEVNULL, capture_output=True, check=False)
        words = done.stdout.decode("ascii", "replace").split()
        if len(words) >= 2 and words[0].isdigit() and words[1].isdigit():
            return f"{words[0]}x{words[1]}"
    return "80x24"


def _fail(message: str) -> int:
    print(f"muster-e2e-connect: {message}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
