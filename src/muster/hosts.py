"""Hosts by the place that addresses name: how each is found, made and removed, and which were used and when each last answered.

One small file a host is all that is remembered; what exists is known to the providers.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Mapping
from typing import Any

from . import config
from .config import Config
from .errors import MusterError, UsageError, nearest
from .host import Host, place_of
from .model import DEFAULT_PROVIDER, place_name
from .plugins import BUILTIN_PROVIDERS, Provider, is_provider, provider

FRESH_SECONDS = 10.0
_noted: dict[str, float] = {}
"""When this process last saw that the note of a host is fresh."""
#: Keys that every section of a kind takes, beside those of the provider.
COMMON = {"hosts": ("provider", "home"), "providers": ("home",)}
TYPES = {str: "text", int: "a whole number", float: "a number", bool: "true or false", list: "a list"}


def find(place: str, settings: Config, home: str) -> Host:
    """Return the host at a place: `HOST`, `HOST.PROVIDER`, or a name with dots. It is not asked anything."""
    name, kind, own = _resolve(place, settings, home)
    if not name:
        raise UsageError(f"@{place} makes a new host", "only create takes it; muster hosts shows the hosts there are")
    return _at_home(kind.find(name, _provider_keys(own)), own)


def make(place: str, settings: Config, home: str) -> Host:
    """Make the host at a place. It is remembered first: `gc` knows of it even if this process is killed meanwhile."""
    name, kind, own = _resolve(place, settings, home)
    if kind.makes:
        _note(home, {"place": place, "provider": kind.name, "seen": time.time(), "made": time.time()})
    try:
        return _at_home(kind.create(name, _provider_keys(own)), own)
    except BaseException:
        if kind.makes:
            with contextlib.suppress(MusterError):
                remove(place, settings, home)
        raise


def start(place: str, settings: Config, home: str) -> None:
    """Let a stopped host run again."""
    name, kind, own = _resolve(place, settings, home)
    kind.start(name, _provider_keys(own))


def stop(place: str, settings: Config, home: str) -> None:
    """End all that runs on a host; its files stay."""
    name, kind, own = _resolve(place, settings, home)
    kind.stop(name, _provider_keys(own))


def remove(place: str, settings: Config, home: str) -> None:
    """Remove a host with everything on it, and forget it."""
    name, kind, own = _resolve(place, settings, home)
    kind.destroy(name, _provider_keys(own))
    forget(home, place)


def unknown(settings: Config, home: str) -> list[str]:
    """Return the places of hosts that providers have made and that this machine does not remember.

    Only providers that are configured, or whose hosts were used, are asked; one that does not answer is passed over.
    """
    used = remembered(home)
    found = []
    for name in dict.fromkeys([*settings.section("providers"), *(str(note.get("provider")) for note in used.values())]):
        with contextlib.suppress(MusterError):
            kind = provider(name)
            names = kind.names(_provider_keys(_section(settings, "providers", name, kind)))
            found += [place for one in names if (place := place_name(one, name)) not in used]
    return found


def check(settings: Config, *, plugins: bool = False) -> None:
    """Raise `UsageError` for a wrong key in `[hosts.NAME]` or `[providers.NAME]`. Those of plugins are checked on request, and else
    when they are used: no verb loads a plugin that it does not need.
    """
    for section in COMMON:
        for name, own in settings.section(section).items():
            kind = name if section == "providers" else str(own.get("provider", DEFAULT_PROVIDER))
            if plugins or kind in BUILTIN_PROVIDERS:
                _section(settings, section, name, provider(kind))


def split(place: str, sections: Mapping[str, Any], home: str) -> tuple[str, str]:
    """Return the name and the provider of the host at a place; the name is empty for a new host (`.docker`). `sections` are
    `[hosts.NAME]`.

    A name may have dots of its own, so its last part counts as a provider only if there is one of that name, or if the host
    was used by it before.
    """
    name, dot, last = place.rpartition(".")
    if dot and (not name or last == (_used_by(home, place) or (last if is_provider(last) else ""))):
        return name, last
    return place, str(sections.get(place, {}).get("provider", DEFAULT_PROVIDER))


def _resolve(place: str, settings: Config, home: str) -> tuple[str, Provider, dict[str, Any]]:
    """Return the name of a host, its provider, and the settings for it."""
    sections = settings.section("hosts")
    name, provider_name = split(place, sections, home)
    kind = provider(provider_name)
    own = _section(settings, "providers", provider_name, kind)
    # [hosts.box] is about the one host whose provider it names; of others called box there is ["box.docker"].
    for section in (name, place_name(name, provider_name)):
        if section in sections and sections[section].get("provider", DEFAULT_PROVIDER) == provider_name:
            own.update(_section(settings, "hosts", section, kind))
    return name, kind, own


def _section(settings: Config, section: str, name: str, kind: Provider) -> dict[str, Any]:
    """Return `[hosts.NAME]` or `[providers.NAME]`. Raises `UsageError` with file and line for a key that is not the provider's."""
    own = settings.section(section).get(name, {})
    for key, value in own.items():
        where = config.where(settings, section, name, key)
        what = f"{where}: [{section}.{config.quoted(name)}]" if where else f"[{section}.{config.quoted(name)}]"
        common = key in COMMON[section]
        if not common and key not in kind.keys:
            raise UsageError(f"{what} has no key {key!r}", nearest(key, [*COMMON[section], *kind.keys]))
        expected = str if common else kind.keys[key]
        if type(value) is not expected and not (expected is float and type(value) is int):
            raise UsageError(f"{what} {key} must be {TYPES.get(expected, expected.__name__)}")
    return dict(own)


def _provider_keys(own: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in own.items() if key not in COMMON["hosts"]}


def _at_home(host: Host, own: Mapping[str, Any]) -> Host:
    if own.get("home"):
        host.home = own["home"]
    return host


def _used_by(home: str, place: str) -> str:
    """Return the provider by which a host was used; empty if it never was."""
    return str(_read(_path(home, place)).get("provider", ""))


def remembered(home: str) -> dict[str, dict[str, Any]]:
    """Return the notes of hosts once used, by place."""
    try:
        names = sorted(os.listdir(os.path.join(home, "hosts")))
    except OSError:
        return {}
    notes = (_read(os.path.join(home, "hosts", name)) for name in names)
    return {note["place"]: note for note in notes if isinstance(note.get("place"), str)}


def remember(home: str, host: Host) -> None:
    """Note that a host has just answered."""
    place = place_of(host)
    path = _path(home, place)
    if 0 <= time.monotonic() - _noted.get(path, -FRESH_SECONDS) < FRESH_SECONDS:
        return
    try:
        if not _is_fresh(path):
            made = {key: value for key, value in _read(path).items() if key == "made"}
            _note(home, {"place": place, "provider": host.provider, "seen": time.time(), **made})
    except OSError:
        pass  # a note that cannot be made must not keep a verb from its work
    _noted[path] = time.monotonic()


def _is_fresh(path: str) -> bool:
    try:
        return time.time() - os.stat(path).st_mtime < FRESH_SECONDS
    except FileNotFoundError:
        return False


def _note(home: str, note: dict[str, Any]) -> None:
    path = _path(home, note["place"])
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    temporary = f"{path}.{os.getpid()}"
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(note, file)
    os.replace(temporary, path)


def _read(path: str) -> dict[str, Any]:
    """Return the note of a host; empty if there is none that can be read."""
    try:
        with open(path, encoding="utf-8") as file:
            note = json.load(file)
    except (OSError, ValueError):
        return {}
    return note if isinstance(note, dict) else {}


def forget(home: str, place: str) -> bool:
    """Remove the note of a host; False if there is none."""
    path = _path(home, place)
    _noted.pop(path, None)
    try:
        os.unlink(path)
    except FileNotFoundError:
        return False
    return True


def _path(home: str, place: str) -> str:
    name = "".join(char if char.isalnum() or char in "-_" else f"%{ord(char):x}" for char in place)
    return os.path.join(home, "hosts", name)
