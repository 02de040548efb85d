"""A client that muster does not know: it repeats what it hears. Its own screen, keys, hooks, log and status file are like no other's.

parrot.py HOOKS LOG: HOOKS has the shell commands to run at each event, which get a JSON object on stdin.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import tty
from pathlib import Path
from typing import Any

HOOKS = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
LOG = Path(os.environ["HOME"]) / ".parrot" / "talk" / f"{sys.argv[2]}.jsonl"


def fire(event: str, **fields: Any) -> None:
    told = json.dumps({**fields, "log": str(LOG)}).encode()
    for command in HOOKS.get(event, []):
        subprocess.run(command, shell=True, input=told, check=True)


def note(who: str, words: str) -> None:
    with open(LOG, "a", encoding="utf-8") as file:
        file.write(json.dumps({"who": who, "words": words, "when": time.time()}) + "\n")


def mood(name: str) -> None:
    told = {"log": sys.argv[2], "mood": name, "when": time.time()}
    Path(os.environ["PARROT_MOOD"]).write_text(json.dumps(told), encoding="utf-8")


class Parrot:
    def __init__(self) -> None:
        self.holds, self.said, self.asks = "", "hello", ""

    def draw(self) -> None:
        shown = f"<<{len(self.holds)} seeds>>" if len(self.holds) > 100 else self.holds.replace("\n", "\r\n  ")
        box = f"?????????\r\n{self.asks}\r\n y or n" if self.asks else f"=========\r\n] {shown}\r\n========="
        sys.stdout.write(f"\x1b[H\x1b[2J{self.said[:60]}\r\n{box}")
        sys.stdout.flush()

    def key(self, char: str) -> None:
        if self.asks:
            if char in "yn":
                self.asks = ""
                fire("answered")
                self.say("I dance" if char == "y" else "I sit")
        elif char == "\x15":
            self.holds = ""
        elif char == "\r" and self.holds:
            words, self.holds = self.holds, ""
            self.hear(words)
        elif char.isprintable():
            self.holds += char

    def say(self, words: str) -> None:
        note("me", words)
        self.said = words
        fire("spoke", words=words)

    def hear(self, words: str) -> None:
        if words.startswith("!") or words == "fly away":
            sys.exit(3)
        note("you", words)
        fire("heard", words=words)
        if words == "dance":
            self.asks = "may I dance on the table"
            self.draw()
            fire("asks", kind="dance", words=self.asks)
        elif words == "riddle":
            fire("asks", kind="riddle", words="what has wings?")
        elif words == "sing":
            fire("tired", words="too tired, back in 900 s")
        elif words == "doze":
            mood("dozing")
        elif words == "environment":
            self.say(" ".join(sorted(name for name in os.environ if name.startswith("PARROT_"))))
        else:
            self.say(words)


def main() -> None:
    LOG.parent.mkdir(parents=True, exist_ok=True)
    tty.setraw(0)
    sys.stdout.write("\x1b[?2004h")
    parrot = Parrot()
    parrot.draw()
    fire("opened")
    heard = ""
    while read := os.read(0, 65536):
        heard += read.decode()
        while heard:
            paste = re.match(r"\x1b\[200~(.*?)\x1b\[201~", heard, re.DOTALL)
            if heard[0] == "\x1b" and not paste:
                break  # the rest of the paste is still to come
            if paste:
                parrot.holds += paste[1].replace("\r", "\n")
            else:
                parrot.key(heard[0])
            heard = heard[paste.end() :] if paste else heard[1:]
        parrot.draw()


main()
