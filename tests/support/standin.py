"""A stand-in for a coding client: an input box like that of a real one, and dialogs that open at random moments.

standin.py LOOK SEED FOLDER: with the seed `calm` no dialog opens by itself and no key is lost. Enter is Yes to a dialog, and so are `1` and `y`, as with most clients. Like them it tells of a tool by a
hook and opens the dialog for it once the hook has returned. It writes to FOLDER: `heard` (a JSON line for each message), `approved`
(a line for each dialog that a key approved) and `opened` (a line for each dialog). It closes its dialogs by itself.
"""

from __future__ import annotations

import json
import os
import random
import select
import subprocess
import sys
import termios
import time
import tty
from pathlib import Path

RULE = "─" * 60


def _claude(holds: str) -> list[str]:
    first, *more = holds.split("\n")
    return [RULE, f"❯ {first}", *(f"  {line}" for line in more), RULE, "  ? for shortcuts"]


def _codex(holds: str) -> list[str]:
    first, *more = (holds or "Ask Codex to do anything").split("\n")
    return [
        f"› {first}",
        *(f"  {line}" for line in more),
        "",
        "  scripted-1 default · /work · Scripted",
        "  ? for shortcuts",
    ]


#: How each client draws its input box, and its dialog.
LOOKS = {
    "claude": (
        _claude,
        [
            RULE,
            " Bash command",
            "",
            "   rm -rf /",
            "",
            " Do you want to proceed?",
            " ❯ 1. Yes",
            "   2. No",
            "",
            " Esc to cancel",
        ],
    ),
    "codex": (
        _codex,
        [
            "  Would you like to run the following command?",
            "",
            "  $ rm -rf /",
            "",
            "› 1. Yes, proceed (y)",
            "  2. No (esc)",
            "",
            "  Press enter to confirm or esc to cancel",
        ],
    ),
}


class Standin:
    def __init__(self, look: str, seed: str, folder: Path) -> None:
        self.box, self.question = LOOKS[look]
        self.chance, self.folder = random.Random(seed), folder
        self.holds, self.pasting, self.said = "", False, [f"stand-in of {look}"]
        self.dialog = 0.0  # until when it is open
        self.calm = seed == "calm"
        self.next = float("inf") if self.calm else time.monotonic() + 1.0

    def hook(self, kind: str, fields: str = "") -> subprocess.Popen[bytes]:
        return subprocess.Popen(["sh", f"{os.environ['MUSTER_AGENT_DIR']}/bin/event", kind, fields])

    def tell(self, kind: str, fields: str = "") -> None:
        self.hook(kind, fields).wait()

    def note(self, name: str, line: str) -> None:
        with open(self.folder / name, "a", encoding="utf-8") as file:
            file.write(line + "\n")

    def draw(self) -> None:
        below = self.question if self.dialog else self.box(self.holds)
        lines = [*self.said[-10:], "", *below]
        # The cursor, which some clients show in their box only, is left in its last line.
        sys.stdout.write("\x1b[H\x1b[2J" + "\r\n".join(lines) + ("\x1b[?25l" if self.dialog else "\x1b[?25h"))
        sys.stdout.flush()

    def key(self, text: str) -> None:
        if self.dialog:
            if text in ("\r", "1", "y"):
                self.note("approved", text)
                self.dialog = 0.0
        elif text == "\r":
            self.send()
        elif text in ("\x15", "\x0b"):
            self.holds = ""
        elif text.isprintable():
            self.holds += text

    def send(self) -> None:
        if not self.holds.strip():
            return
        if not self.calm and self.chance.random() < 0.15:
            return  # it was busy, and this Enter is lost
        text, self.holds = self.holds, ""
        self.said.append(f"› {text}".split("\n")[0])
        self.note("heard", json.dumps(text))
        if not self.calm and self.chance.random() < 0.4:
            self.open()  # the receipt comes late, or after the dialog that this message leads to
        self.tell("prompt", f'"text":{json.dumps(text)}')

    def open(self) -> None:
        hook = self.hook("tool", '"name":"Bash","detail":"rm -rf /"')
        # What is typed meanwhile belongs to the box: the real ones read their keys while a hook runs.
        while hook.poll() is None:
            select.select([0], [], [], 0.01)
            self.read()
            self.draw()
        self.read()
        self.dialog = time.monotonic() + 60
        # The dialog takes the keys before it is drawn; the longest time is that of a client that gets no processor.
        time.sleep(self.chance.choice([0, 0, 0.02, 0.2, 1.2]))
        self.dialog = time.monotonic() + self.chance.choice([0.1, 0.3, 0.8, 2.5])
        self.note("opened", "")
        self.draw()
        if self.chance.random() < 0.7:
            self.tell("permission", '"tool":"Bash","detail":"rm -rf /"')

    def read(self) -> None:
        """Take all keys that are there."""
        while select.select([0], [], [], 0)[0]:
            text = os.read(0, 65536).decode("utf-8", "replace")
            while text:
                if text.startswith("\x1b[200~"):
                    self.pasting, text = True, text[6:]
                elif self.pasting:
                    pasted, end, text = text.partition("\x1b[201~")
                    self.pasting = not end
                    if not self.dialog:
                        self.holds += pasted
                elif text.startswith("\x1b"):
                    text = ""
                else:
                    self.key(text[0])
                    text = text[1:]

    def run(self) -> None:
        sys.stdout.write("\x1b[?2004h")
        self.draw()
        self.tell("ready")
        while True:
            select.select([0], [], [], 0.01)
            before = (self.holds, self.dialog, len(self.said))
            self.read()
            now = time.monotonic()
            if self.dialog and now > self.dialog:
                self.dialog = 0.0
                self.tell("answered")
                self.tell("ready")
            if not self.dialog and now > self.next:
                self.open()
                self.next = time.monotonic() + self.chance.choice([0.3, 0.8, 1.5, 2.5])
            if before != (self.holds, self.dialog, len(self.said)):
                self.draw()


if __name__ == "__main__":
    kept = termios.tcgetattr(0)
    tty.setraw(0)
    try:
        Standin(sys.argv[1], sys.argv[2], Path(sys.argv[3])).run()
    finally:
        termios.tcsetattr(0, termios.TCSANOW, kept)
