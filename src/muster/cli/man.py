from __future__ import annotations

import argparse
import os
import subprocess
import tempfile

from ..errors import NotFound
from ..fleet import Fleet
from . import pages, render
from .main import VERBS, dashed

EXAMPLES = """
muster man
muster man create
muster man tutorial check
muster man create --roff | man -l -
muster man --all /usr/local/share/man/man1
"""
TEXT = """
Shows a verb's manual page; without a verb, the overview of all of them. --all writes every page as muster-VERB.1 into a folder.
"""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("verb", nargs="*", metavar="VERB", help="the verb; it may be two words")
    parser.add_argument("--roff", action="store_true", help="print the source of the page")
    parser.add_argument("--all", metavar="DIR", help="write all pages into this folder")


def run(args: argparse.Namespace, fleet: Fleet) -> int:
    if args.all:
        os.makedirs(args.all, exist_ok=True)
        written = []
        for verb in ("", *VERBS):
            path = os.path.join(args.all, f"{pages.name(verb)}.1")
            with open(path, "w", encoding="utf-8") as file:
                file.write(pages.roff(verb))
            written.append(path)
        render.note(f"wrote {len(written)} pages to {args.all}")
        if args.json:
            render.document({"files": written})
        return 0
    wanted = " ".join(args.verb)
    verb = next((verb for verb in VERBS if dashed(verb) == dashed(wanted)), "")
    if wanted and not verb:
        raise NotFound(f"there is no verb {wanted!r}", "muster --help lists all")
    if args.json:
        render.document({"verb": verb or None, "text": pages.markdown(verb)})
    elif args.roff or not (os.isatty(1) and _has_man()):
        render.out(pages.roff(verb) if args.roff else pages.plain(verb), end="")
    else:
        with tempfile.NamedTemporaryFile("w", suffix=".1", encoding="utf-8") as file:
            file.write(pages.roff(verb))
            file.flush()
            return subprocess.run(["man", "-l", file.name], check=False).returncode
    return 0


def _has_man() -> bool:
    import shutil

    return shutil.which("man") is not None
