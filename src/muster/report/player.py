"""Where the player of recordings is: in a package of its own, which is looked at and never imported (it would load mkdocs)."""

from __future__ import annotations

import importlib.util
from pathlib import Path

INSTALL = "pip install 'muster-agents[report]'"
PACKAGE = "mkdocs_asciinema_player"
FILES = ("asciinema-player.min.js", "asciinema-player.css")


def find() -> dict[str, Path]:
    """Its files by name; empty when the package is not installed, or has another shape."""
    try:
        spec = importlib.util.find_spec(PACKAGE)
    except (ImportError, ValueError):
        return {}
    for place in (spec.submodule_search_locations or []) if spec else []:
        found = {name: Path(place, "assets", name) for name in FILES}
        if all(path.is_file() for path in found.values()):
            return found
    return {}
