"""Show a diff on a terminal with the colours and the pager of the user's git configuration.

Only the user's and the system's configuration are read. The current folder may belong to an agent, whose configuration
could name a program.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator

from ..fleet import Fleet
from . import render

#: The parts of a diff, and git's own colours for them.
PARTS = {"meta": "bold", "frag": "cyan", "old": "red", "new": "green"}
HEADER = re.compile(
    r"(diff --git|index|---|\+\+\+|new file|deleted file|old mode|new mode|similarity|rename|copy|Binary files) "
)
RESET = "\x1b[m"


def show(fleet: Fleet, text: str) -> None:
    """Print a diff without control characters, coloured and paged as the user configured git."""
    colours = _colours(fleet)
    shown = "\n".join(_coloured(text.split("\n"), colours) if colours else [text]) + "\n"
    command = _pager(fleet)
    if not command:
        render.out(shown, end="")
        return
    render.flush()
    env = {"LESS": "FRX", "LV": "-c", **os.environ}
    process = subprocess.Popen(["sh", "-c", command], stdin=subprocess.PIPE, env=env)
    try:
        process.communicate(shown.encode("utf-8", "replace"))
    except KeyboardInterrupt:
        process.wait()  # the pager has the terminal, and decides what that key means
    if process.returncode == 127:
        render.note(f"the pager cannot be started: {command} (git config core.pager)")
        render.out(shown, end="")


def _git(fleet: Fleet, *words: str) -> str:
    done = fleet.local.run(["git", "-C", "/", *words])
    return done.stdout.decode("utf-8", "replace").rstrip("\n") if done.returncode == 0 else ""


def _pager(fleet: Fleet) -> str:
    """Return the command line of the pager; empty for none."""
    wanted = _git(fleet, "config", "--get", "pager.diff")
    if wanted.lower() in ("false", "no", "off", "0"):
        return ""
    given = fleet.env.get("GIT_PAGER") is None and wanted.lower() not in ("", "true", "yes", "on", "1")
    command = wanted if given else _git(fleet, "var", "GIT_PAGER")
    return "" if command == "cat" else command


def _colours(fleet: Fleet) -> dict[str, str]:
    """Return the escape sequence for each part of a diff; empty without colours."""
    if not render.coloured() or _git(fleet, "config", "--get-colorbool", "color.diff", "true") != "true":
        return {}
    return {part: _git(fleet, "config", "--get-color", f"color.diff.{part}", usual) for part, usual in PARTS.items()}


def _coloured(lines: list[str], colours: dict[str, str]) -> Iterator[str]:
    old = new = 0
    for line in lines:
        hunk = re.match(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@", line)
        part = ""
        if line.startswith("\\"):  # "No newline at end of file" counts on neither side
            pass
        elif hunk:
            old, new = (1 if count is None else int(count) for count in hunk.groups())
            part = "frag"
        elif old > 0 or new > 0:  # inside a hunk, so this is not a header even if it looks like one
            part = {"+": "new", "-": "old"}.get(line[:1], "")
            old -= line[:1] != "+"
            new -= line[:1] != "-"
        elif HEADER.match(line):
            part = "meta"
        elif stat := re.match(r"( .* \|\s+\d+ )(\+*)(-*)$", line):
            yield stat[1] + "".join(
                f"{colours[key]}{signs}{RESET}" for key, signs in (("new", stat[2]), ("old", stat[3])) if signs
            )
            continue
        yield f"{colours[part]}{line}{RESET}" if part and line else line
