"""The folder that a page is made in: claimed, filled file by file, and left with nothing of a page before. What the page is about
is not known here.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection
from importlib import resources
from pathlib import Path

from ..errors import Refused
from . import player
from .folder import Folder

MARKER = {"format": "muster-report", "version": 1}
#: Which parts of a page were made of what; only the page of a run has it.
STAMPS = "stamps.json"
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OURS = re.compile(r"\d{4,}(-\d+)?\.js")


def claim(out: Path, inside: bool) -> None:
    """Make sure that `out` is a place for a page of ours: new, empty, or one before. `Refused` when it holds anything else."""
    hint = "name another place with --out DIR"
    places = [out / "parts", out / "player", *([out] if inside else [])]
    if link := next((place for place in places if place.is_symlink()), None):
        raise Refused(f"{link} is a link; a page is not written through it", hint)
    if out.exists() and not out.is_dir():
        raise Refused(f"{out} is not a folder", hint)
    if out.is_dir() and any(out.iterdir()) and Folder(out).json("report.json") != MARKER:
        raise Refused(f"{out} holds something else than a report; it stays as it is", hint)
    for place in (out, out / "parts"):
        place.mkdir(parents=True, exist_ok=True)
    write(out / "report.json", json.dumps(MARKER) + "\n")
    # From here on the parts may be of several makings.
    (out / STAMPS).unlink(missing_ok=True)


def part(out: Path, call: str, key: str, value: object) -> None:
    """A file that is loaded when it is looked at: as a script, for `fetch` does not work on file://."""
    write(out / "parts" / f"{key}.js", f"muster.{call}({as_json(key)},{as_json(value)});\n")


def publish(
    out: Path, template: str, index: dict[str, object], program: str, style: str, keys: Collection[str]
) -> None:
    """All that is beside the parts, and last the index, which is told whether recordings can be played. Parts other than `keys` go."""
    found = player.find()
    for name, path in found.items():
        write(out / "player" / name, path.read_bytes())
    write(out / "page.js", program)
    write(out / "page.css", style)
    # The place is filled in last and once, so a text that looks like it stays what it is.
    before, after = asset("templates", template).split("@INDEX@")
    write(out / "index.html", before + as_json({**index, "player": bool(found), "install": player.INSTALL}) + after)
    for name in os.listdir(out / "parts"):
        if _OURS.fullmatch(name) and name[:-3] not in keys:
            (out / "parts" / name).unlink(missing_ok=True)


def write(path: Path, text: str | bytes) -> None:
    """Replace the file by rename; a link in its place is replaced, not followed. Two processes may do so at once."""
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
    return resources.files(__package__).joinpath(*names).read_text(encoding="utf-8")


def as_json(thing: object) -> str:
    """JSON that is JavaScript too, and that no HTML parser finds anything in."""
    text = json.dumps(thing, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
