"""The command pages, made from the verbs themselves: Markdown for docs/commands, roff for man.

`python -m muster.cli.pages DIR` writes them; `--check DIR` exits 1 when one is not current.
"""

from __future__ import annotations

import os
import sys

from .main import GROUPS, VERBS, dashed, overview
from .parse import build


def name(verb: str) -> str:
    """Return the name of a page; that of the overview, which has no verb, is `muster`."""
    return f"muster-{dashed(verb)}" if verb else "muster"


def plain(verb: str) -> str:
    return build(verb)[0].format_help() if verb else overview()


def markdown(verb: str) -> str:
    if not verb:
        return f"# muster\n\n```text\n{overview()}```\n"
    return f"# muster {verb}\n\n{VERBS[verb][0].upper()}{VERBS[verb][1:]}.\n\n```text\n{plain(verb)}```\n"


def index() -> str:
    lines = ["# Commands", "", "Made from the code by `make docs`; do not edit.", ""]
    for group, verbs in GROUPS.items():
        lines += [f"## {group}", ""]
        lines += [f"- [`muster {verb}`]({dashed(verb)}.md): {text}" for verb, text in verbs.items()]
        lines.append("")
    return "\n".join(lines)


def roff(verb: str) -> str:
    body = plain(verb).replace("\\", "\\e").replace("-", "\\-")
    # A line that begins with a dot or a quote would be taken for a request.
    safe = "\n".join(f"\\&{line}" if line[:1] in (".", "'") else line for line in body.splitlines())
    title = name(verb).upper().replace("-", "\\-")
    about = VERBS[verb] if verb else "run one or a thousand coding agents with the same verbs"
    return f""".TH {title} 1 "" muster
.SH NAME
{f"muster {verb}".rstrip()} \\- {about}
.SH SYNOPSIS
.nf
{safe}
.fi
"""


def files() -> dict[str, str]:
    pages = {"README.md": index(), "man/muster.1": roff("")}
    for verb in VERBS:
        pages[f"{dashed(verb)}.md"] = markdown(verb)
        pages[f"man/muster-{dashed(verb)}.1"] = roff(verb)
    return pages


def main(words: list[str]) -> int:
    check = "--check" in words
    folder = next((word for word in words if not word.startswith("-")), "docs/commands")
    stale = []
    for name, text in files().items():
        path = os.path.join(folder, name)
        if check:
            if not os.path.exists(path) or open(path, encoding="utf-8").read() != text:  # noqa: SIM115  # read whole
                stale.append(path)
        else:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
    for path in stale:
        print(f"not current: {path} (make docs)", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
