"""What goes on until the user leaves: the full-screen shell, and watch."""

from __future__ import annotations

import contextlib
import io
import shlex
import time
from collections.abc import Callable
from pathlib import Path

from . import report
from .ledger import Ledger, money

#: The last entries that fit on a small screen.
SHOWN = 12
ENTER, CLEAR, LEAVE = "\x1b[?1049h", "\x1b[H\x1b[2J", "\x1b[?1049l"
HELP = "type what you would type after till, such as: sell 12.50 bread; quit leaves"


def shell(path: Path, execute: Callable[[list[str]], int]) -> None:
    """Show the ledger, read a command, run it, and so on."""
    said = HELP
    print(ENTER, end="")
    try:
        while True:
            _draw(Ledger(path), said)
            words = shlex.split(input("till> "))
            if words in (["quit"], ["exit"]):
                return
            if words[:1] in (["shell"], ["watch"]):
                said = "you are in the shell already"
                continue
            said = _output(execute, words) if words else HELP
    except (EOFError, KeyboardInterrupt):
        pass
    finally:
        print(LEAVE, end="", flush=True)


def _draw(ledger: Ledger, said: str) -> None:
    print(CLEAR, end="")
    print(f"Balance {money(sum(entry.cents for entry in ledger.entries))}\n")
    print("\n".join(report.table(ledger.entries[-SHOWN:])))
    print(f"\n{said}\n")


def _output(execute: Callable[[list[str]], int], words: list[str]) -> str:
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text), contextlib.suppress(SystemExit):
        execute(words)
    return text.getvalue().rstrip()


def watch(path: Path, pause: float = 0.1) -> None:
    """Print the balance now and after each change, until Ctrl-C."""
    last = None
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            entries = Ledger(path).entries
            if entries != last:
                last = entries
                print(f"Balance {money(sum(entry.cents for entry in entries))}, entries: {len(entries)}", flush=True)
            time.sleep(pause)
