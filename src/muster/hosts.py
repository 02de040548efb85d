"""Which hosts were used, and when each last answered. One small file a host; nothing else is remembered."""

from __future__ import annotations

import json
import os
import time
from typing import Any

from .errors import UsageError
from .host import Host, place_of
from .model import DEFAULT_PROVIDER
from .plugins import is_provider, provider

FRESH_SECONDS = 10.0
_noted: dict[str, float] = {}
"""When this process last saw that the note of a host is fresh."""


def find(place: str, settings: dict[str, Any], home: str) -> Host:
    """Return the host at a place: `HOST`, `HOST.PROVIDER`, or a name with dots. `settings` are the sections `[hosts.NAME]`."""
    name, provider_name = split(place, settings, home)
    found = provider(provider_name)
    if not name:
        raise UsageError(f"@{place} makes a new host", "only create takes it; muster hosts shows the hosts there are")
    return found.host(name, settings.get(name, {}))


def split(place: str, settings: dict[str, Any], home: str) -> tuple[str, str]:
    """Return the name and the provider of the host at a place; the name is empty for a new host (`.docker`).

    A name may have dots of its own, so its last part counts as a provider only if there is one of that name, or if the host
    was used by it before.
    """
    name, dot, last = place.rpartition(".")
    if dot and (not name or last == (_used_by(home, place) or (last if is_provider(last) else ""))):
        return name, last
    return place, str(settings.get(place, {}).get("provider", DEFAULT_PROVIDER))


def _used_by(home: str, place: str) -> str:
    """Return the provider by which a host was used; empty if it never was."""
    try:
        with open(os.path.join(home, "hosts", _file(place)), encoding="utf-8") as file:
            return str(json.load(file)["provider"])
    except (OSError, ValueError, LookupError, TypeError):
        return ""


def remembered(home: str) -> dict[str, dict[str, Any]]:
    """Hosts once used, by the word that names them in an address."""
    found: dict[str, dict[str, Any]] = {}
    try:
        names = sorted(os.listdir(os.path.join(home, "hosts")))
    except OSError:
        return {}
    for name in names:
        try:
            with open(os.path.join(home, "hosts", name), encoding="utf-8") as file:
                data = json.load(file)
            found[data["place"]] = data
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return found


def remember(home: str, host: Host) -> None:
    place = place_of(host)
    path = os.path.join(home, "hosts", _file(place))
    if 0 <= time.monotonic() - _noted.get(path, -FRESH_SECONDS) < FRESH_SECONDS:
        return
    try:
        _note(path, place, host.provider)
    except OSError:
        pass  # a note that cannot be made must not keep a verb from its work
    _noted[path] = time.monotonic()


def _note(path: str, place: str, provider: str) -> None:
    try:
        if time.time() - os.stat(path).st_mtime < FRESH_SECONDS:
            return
    except OSError:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    temporary = f"{path}.{os.getpid()}"
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump({"place": place, "provider": provider, "seen": time.time()}, file)
    os.replace(temporary, path)


def forget(home: str, place: str) -> bool:
    path = os.path.join(home, "hosts", _file(place))
    _noted.pop(path, None)
    try:
        os.unlink(path)
    except FileNotFoundError:
        return False
    return True


def _file(place: str) -> str:
    return "".join(char if char.isalnum() or char in "-_" else f"%{ord(char):x}" for char in place)
