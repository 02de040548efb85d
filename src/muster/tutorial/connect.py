"""`muster-e2e-connect`: the connect_command of tests. It records the agent's terminal in the background, and returns at once.

muster runs it with MUSTER_AGENT, MUSTER_WATCH (the command that shows the agent's terminal without touching it) and MUSTER_SIZE_COMMAND
in its environment; the fixture has put MUSTER_E2E there.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time

PATIENCE = 30.0


def main() -> int:
    control = os.environ.get("MUSTER_E2E", "")
    watch, agent = os.environ.get("MUSTER_WATCH", ""), os.environ.get("MUSTER_AGENT", "")
    address = os.environ.get("MUSTER_ADDRESS", agent)
    if not control or not os.path.isdir(control):
        return _refuse("there is no test to record for: MUSTER_E2E is not set (the pytest fixture e2e sets it)")
    if not watch:
        return _refuse("nothing to attach to: MUSTER_WATCH is not set (muster sets it for a connect_command)")
    folder = _read(os.path.join(control, "recordings"))
    base = claim(folder, f"connect-{agent}")
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
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        facts = facts_of(base)
        if facts.get("error"):
            return _refuse(str(facts["error"]))
        if _shows(f"{base}.cast"):
            print(f"recording {agent} to {os.path.basename(base)}.cast", file=sys.stderr)
            return 0
        if recorder.poll() is not None:
            said = _read(log)[-500:]
            return _refuse(f"the recorder of {agent} ended at once: {said or 'there was nothing to attach to'}")
        time.sleep(0.02)
    return _refuse(f"nothing of {agent} was seen within {PATIENCE:g} s")


def recorder_argv(base: str, label: str) -> list[str]:
    """Runs the recorder; `label` is what the recording is of, in words for people."""
    return [sys.executable, "-m", "muster.tutorial.record", base, "--label", label]


def claim(folder: str, name: str) -> str:
    """BASE for a new recording: `name`, or the first of name-2, name-3 … that is free. Two at once get two."""
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


def facts_of(base: str) -> dict[str, object]:
    try:
        with open(f"{base}.json", encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _read(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def _shows(path: str) -> bool:
    """Whether the recording has an event: the attach worked."""
    try:
        with open(path, "rb") as file:
            return file.read(65536).count(b"\n") >= 2
    except OSError:
        return False


def _size(command: str) -> str:
    if command:
        done = subprocess.run(["sh", "-c", command], stdin=subprocess.DEVNULL, capture_output=True, check=False)
        words = done.stdout.decode("ascii", "replace").split()
        if len(words) >= 2 and words[0].isdigit() and words[1].isdigit():
            return f"{words[0]}x{words[1]}"
    return "80x24"


def _refuse(message: str) -> int:
    print(f"muster-e2e-connect: {message}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
