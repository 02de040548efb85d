"""Find the files of the recording player in a package that is never imported, because that would load mkdocs."""

from __future__ import annotations

import importlib.util
from pathlib import Path

INSTALL = "pip install 'muster-agents[report]'"
PACKAGE = "mkdocs_asciinema_player"
FILES = ("asciinema-player.min.js", "asciinema-player.css")


def find() -> dict[str, Path]:
    """Return the player's files by name; empty if the package is not installed or does not contain them."""
    try:
        spec = importlib.util.find_spec(PACKAGE)
    except (ImportError, ValueError):
        return {}
    for location in (spec.submodule_search_locations or []) if spec else []:
        paths = {name: Path(location, "assets", name) for name in FILES}
        if all(path.is_file() for path in paths.values()):
            return paths
    return {}
