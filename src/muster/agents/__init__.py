"""The built-in agent types, one module or package each. Everything that is specific to a client is in its package.

Adding a client takes its package, and its name here.
"""

from __future__ import annotations

import os

TYPES = ("claude", "codex", "opencode", "pi", "copilot", "mini", "command", "replay")
#: Types that `create` chooses from if none is named: the first one whose program is on PATH.
DEFAULTS = ("claude", "codex", "opencode")


def unset_files() -> dict[str, bytes]:
    """Return the files `unset/TYPE` of an agent's folder.

    A client may be running muster. These files name the variables that it sets for the programs it starts, one extended regular
    expression a line; no agent gets them. Each is the file `unset` of that client's package.
    """
    files = {}
    for name in TYPES:
        try:
            with open(os.path.join(os.path.dirname(__file__), name, "unset"), "rb") as file:
                files[f"unset/{name}"] = file.read()
        except OSError:
            pass  # most have none
    return files
