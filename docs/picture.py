"""Makes docs/first-session.svg: a real first session, typed into a real terminal, and drawn as it looked.

.venv/bin/python docs/picture.py
"""

from __future__ import annotations

import html
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
COLS, ROWS = 118, 30
COLOURS = {"31": "#e06c75", "32": "#98c379", "33": "#e5c07b", "36": "#56b6c2", "2": "#7f848e"}
TYPED = (
    "muster create empty-name replay --no-connect -- ../plays/empty-name.toml",
    "muster create docs replay --no-connect -m 'Write a README' -- ../plays/docs.toml",
    "muster create tests command --no-connect -- sh -c 'sh test.sh; sleep 100'",
    "muster list",
    "muster explain docs",
    "muster answer docs 'Yes, with an example'",
    "muster wait docs && muster list --git",
    "muster diff docs --stat",
)


def session(folder: Path) -> str:
    """Types the session and returns the screen with its colours."""
    repo = folder / "greeter"
    shutil.copytree(HERE.parent / "examples" / "greeter", repo)
    shutil.copytree(HERE.parent / "examples" / "plays", folder / "plays")
    env = {
        "MUSTER_HOME": str(folder / "state"),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PS1": "$ ",
    }
    env |= {"HOME": str(folder), "LANG": "C.UTF-8", "TERM": "xterm-256color"}
    for words in (
        ("init", "-qb", "main"),
        ("add", "-A"),
        ("-c", "user.name=Ada", "-c", "user.email=ada@example.invalid", "commit", "-qm", "one"),
    ):
        subprocess.run(["git", *words], cwd=repo, env=env, check=True)
    tmux = ["tmux", "-S", str(folder / "s"), "-f", "/dev/null", "-u"]
    subprocess.run(
        [*tmux, "new-session", "-d", "-x", str(COLS), "-y", str(ROWS), "-c", str(repo), "sh"], env=env, check=True
    )

    def screen(*flags: str) -> str:
        return subprocess.run(
            [*tmux, "capture-pane", "-p", *flags], env=env, capture_output=True, text=True, check=True
        ).stdout

    def prompt_again() -> None:
        while not screen().rstrip().endswith("$"):
            time.sleep(0.05)

    def enter(command: str) -> None:
        subprocess.run([*tmux, "send-keys", "-l", command], env=env, check=True)
        subprocess.run([*tmux, "send-keys", "Enter"], env=env, check=True)
        time.sleep(1.0)
        prompt_again()

    try:
        enter("PS1='$ '; clear")
        for command in TYPED:
            enter(command)
        return screen("-e")
    finally:
        subprocess.run([*tmux, "kill-server"], env=env, check=False)
        subprocess.run(["muster", "stop", "--all", "--grace", "0"], env=env, cwd=repo, check=False, capture_output=True)


def draw(text: str) -> str:
    """The screen as an SVG: one line of text a row, one span a colour."""
    rows = []
    for number, line in enumerate(text.rstrip("\n").split("\n")):
        spans, style = [], ""
        for part in re.split(r"(\x1b\[[0-9;]*m)", line):
            if part.startswith("\x1b["):
                codes = part[2:-1].split(";")
                fill = next((COLOURS[code] for code in codes if code in COLOURS), "")
                style = f' fill="{fill}"' if fill else ""
            elif part:
                spans.append(f"<tspan{style}>{html.escape(part)}</tspan>")
        rows.append(f'<text x="16" y="{30 + number * 18}" xml:space="preserve">{"".join(spans)}</text>')
    height = 40 + len(rows) * 18
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {32 + COLS * 8.43:.0f} {height}" '
        'font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,DejaVu Sans Mono,monospace" font-size="14">'
        f'<rect width="100%" height="{height}" rx="8" fill="#21252b"/><g fill="#dcdfe4">{"".join(rows)}</g></svg>\n'
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        (HERE / "first-session.svg").write_text(draw(session(Path(made))), encoding="utf-8")
