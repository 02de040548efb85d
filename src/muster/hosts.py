"""Which hosts were used, and when each last answered. One small file a host; nothing else is remembered."""

from __future__ import annotations

import json
import os
import time
from typing import Any

from .host import Host
from .model import Address
from .plugins import provider

FRESH_SECONDS = 10.0
_noted: dict[str, float] = {}
"""When this process last saw that the note of a host is fresh."""


def find(address: Address, settings: dict[str, Any]) -> Host:
    """The host that an address names, by its provider (`ssh` unless another is named)."""
    own: dict[str, Any] = settings.get(address.host, {})
    return provider(address.provider or str(own.get("provider", "ssh"))).host(address.host, own)


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


def place_of(host: Host) -> str:
    """The word that names a host in an address; empty for the user's own machine."""
    return host.name if host.provider in ("local", "ssh") else f"{host.name}.{host.provider}"


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
