"""Write the files of a page into its folder, and remove those of an earlier page. Independent of what the page shows."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection
from importlib import resources
from pathlib import Path

from ..errors import Refused
from . import player
from .untrusted import UntrustedFolder

MARKER = {"format": "muster-report", "version": 1}
#: Fingerprints of the input of each part, so that unchanged parts are not built again. Only for the page of a run.
STAMPS = "stamps.json"
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OURS = re.compile(r"\d{4,}(-\d+)?\.js")


def prepare(out: Path, inside: bool) -> None:
    """Create the folder `out` or reuse it. Raises Refused unless it is new, empty, or an earlier report."""
    hint = "choose another folder with --out DIR"
    places = [out / "parts", out / "player", *([out] if inside else [])]
    if link := next((place for place in places if place.is_symlink()), None):
        raise Refused(f"{link} is a symlink, and reports are not written through symlinks", hint)
    if out.exists() and not out.is_dir():
        raise Refused(f"{out} is not a folder", hint)
    if out.is_dir() and any(out.iterdir()) and UntrustedFolder(out).json("report.json") != MARKER:
        raise Refused(f"{out} contains files that are not a report, so nothing was written", hint)
    for place in (out, out / "parts"):
        place.mkdir(parents=True, exist_ok=True)
    write(out / "report.json", json.dumps(MARKER) + "\n")
    # Until the build is complete, old and new parts may be mixed, so the fingerprints are invalid.
    (out / STAMPS).unlink(missing_ok=True)


def write_part(out: Path, call: str, key: str, value: object) -> None:
    """Write a file that the page loads on demand. It is a script because `fetch` does not work on file://."""
    write(out / "parts" / f"{key}.js", f"muster.{call}({as_json(key)},{as_json(value)});\n")


def publish(
    out: Path, template: str, index: dict[str, object], program: str, style: str, keys: Collection[str]
) -> None:
    """Write everything but the parts, with the index last, and remove parts other than `keys`."""
    player_files = player.find()
    for name, path in player_files.items():
        write(out / "player" / name, path.read_bytes())
    write(out / "page.js", program)
    write(out / "page.css", style)
    # Split the template instead of replacing in the result, because the index may contain the text @INDEX@.
    before, after = asset("templates", template).split("@INDEX@")
    data = as_json({**index, "player": bool(player_files), "install": player.INSTALL})
    write(out / "index.html", before + data + after)
    for name in os.listdir(out / "parts"):
        if _OURS.fullmatch(name) and name[:-3] not in keys:
            (out / "parts" / name).unlink(missing_ok=True)


def write(path: Path, text: str | bytes) -> None:
    """Replace a file atomically. A symlink is replaced, not followed. Safe for concurrent processes."""
    data = text if isinstance(text, bytes) else text.encode("utf-8", "replace")
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f".{name}.{os.getpid()}.new")
    try:
        file = os.open(temporary, _NEW, 0o666)
    except FileNotFoundError:
        os.mkdir(folder)
        file = os.open(temporary, _NEW, 0o666)
    except FileExistsError:
        os.unlink(temporary)
        file = os.open(temporary, _NEW, 0o666)
    with open(file, "wb", buffering=0) as out:
        while data:
            data = data[out.write(data) :]
    os.replace(temporary, path)


def asset(*names: str) -> str:
    """Return the text of a file of this package."""
    return resources.files(__package__).joinpath(*names).read_text(encoding="utf-8")


def as_json(thing: object) -> str:
    """Return JSON that is also valid JavaScript and safe inside an HTML script element."""
    text = json.dumps(thing, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
