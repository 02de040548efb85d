"""Prompts: the Markdown files beside this module, and of others that use it, with `{{slots}}`."""

from __future__ import annotations

import os
import re

HERE = os.path.dirname(__file__)


def prompt(name: str, folder: str = HERE, **slots: str) -> str:
    """Return a template with its slots filled. Raises ValueError for a slot without a value, and for a value without a slot."""
    return filled(template(name, folder), name, **slots)


def template(name: str, folder: str = HERE) -> str:
    with open(os.path.join(folder, f"{name}.md"), encoding="utf-8") as file:
        return file.read()


def filled(text: str, name: str, **slots: str) -> str:
    wanted = set(re.findall(r"\{\{(.*?)\}\}", text))
    if wanted != slots.keys():
        raise ValueError(
            f"prompt {name}: unfilled {sorted(wanted - slots.keys())}, unknown {sorted(slots.keys() - wanted)}"
        )
    # In one pass: what stands in a value is not looked at again.
    return re.sub(r"\{\{(.*?)\}\}", lambda slot: slots[slot[1]], text)
