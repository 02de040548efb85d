"""Detect changes to what makes git run programs in the user's repository: hooks, settings and attributes.

An agent on the user's machine has the user's rights, so it can change these, and the user's next git command runs what it
planted. muster cannot prevent that, but it can report it: a fingerprint (names with digests) is kept at `create` and
compared later. A difference does not tell who made it.
"""

from __future__ import annotations

import glob
import importlib
import json
import os
import re
import stat
from typing import Any

from .errors import MusterError
from .host import Host

#: Settings that name a program, or a file with further settings or attributes. Keys are written as git prints them.
RUNS = re.compile(
    r"core\.(fsmonitor|hookspath|sshcommand|pager|editor|askpass|alternaterefscommand|gitproxy|worktree|attributesfile)$"
    r"|(alias|filter|credential|gpg|include|includeif|url|pager|sequence|difftool|mergetool|hook|sendemail|browser|man|guitool)\."
    r"|diff\.(external|.*\.(command|textconv))$|merge\..*\.driver$|uploadpack\.packobjectshook$|init\.templatedir$"
    r"|remote\..*\.(uploadpack|receivepack|vcs|proxy)$|submodule\..*\.update$|trailer\..*\.(command|cmd)$"
    r"|interactive\.difffilter$|extensions\.worktreeconfig$|protocol\.(.*\.)?allow$"
)
#: Bytes of each file that are compared.
FILE_MAX = 1 << 20


def take(host: Host, common: str) -> dict[str, str]:
    """Return a digest for each hook, attribute file and setting of the git directory `common`, by name."""
    found: dict[str, str] = {}
    hooks = os.path.join(common, "hooks")
    for name in _names(hooks):
        if not name.endswith(".sample") and (digest := _file(os.path.join(hooks, name))):
            found[f"hooks/{name}"] = digest
    if digest := _file(os.path.join(common, "info/attributes")):
        found["info/attributes"] = digest
    trees = glob.glob(os.path.join(glob.escape(common), "worktrees/*/config.worktree"))
    for path in (os.path.join(common, "config"), os.path.join(common, "config.worktree"), *sorted(trees)):
        for key, values in _settings(host, path).items():
            place = os.path.relpath(path, common)
            found[key if place == "config" else f"{place}: {key}"] = _digest(json.dumps(values))
            for value in values if key.startswith("include") else ():
                included = os.path.join(os.path.dirname(path), os.path.expanduser(value))
                found[f"{key} {value}"] = _file(included) or "missing"
    return found


def changes(before: dict[str, str], now: dict[str, str]) -> list[tuple[str, str, str]]:
    """Return what is new or different: its name, the former digest (empty if it is new), and the present one.

    Removed entries cannot run anything, so they are left out.
    """
    return [(name, before.get(name, ""), digest) for name, digest in now.items() if before.get(name) != digest]


def keep(host: Host, common: str, path: str) -> None:
    """Take a fingerprint and write it to a file. Raises `MusterError` if that cannot be done."""
    found = take(host, common)
    temporary = f"{path}.{os.getpid()}"
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            json.dump({"common": common, "found": found}, file)
        os.replace(temporary, path)
    except OSError as error:
        raise MusterError(f"cannot keep the fingerprint of {common}: {error.strerror}: {path}") from error


def kept(path: str) -> tuple[str, dict[str, str]] | None:
    """Return the git directory and the fingerprint that `keep` wrote, or None if the file is missing or unreadable."""
    try:
        with open(path, encoding="utf-8") as file:
            data: Any = json.load(file)
        return str(data["common"]), {str(name): str(digest) for name, digest in data["found"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _file(path: str) -> str:
    """Return a digest of a file, its mode and, for a link, its target; empty if there is no readable file."""
    try:
        info = os.stat(path)
        if not stat.S_ISREG(info.st_mode):
            return ""
        target = os.readlink(path) if os.path.islink(path) else ""
        with open(path, "rb") as file:
            content = file.read(FILE_MAX)
    except OSError:
        return ""
    return _digest(f"{info.st_mode & 0o111:o} {info.st_size} {target}\n".encode("utf-8", "surrogateescape") + content)


def _settings(host: Host, path: str) -> dict[str, list[str]]:
    """Return the settings of one file that can make git run programs, as git itself reads them."""
    try:
        info = os.stat(path)
    except OSError:
        return {}
    stamp = info.st_mtime_ns, info.st_ctime_ns, info.st_ino, info.st_size
    cached = _read.get(path)
    if cached and cached[0] == stamp:
        return cached[1]
    done = host.run(["git", "config", "--file", path, "--no-includes", "--list", "-z"])
    found: dict[str, list[str]] = {}
    for entry in done.stdout.decode("utf-8", "surrogateescape").split("\0"):
        key, _, value = entry.partition("\n")
        if key and RUNS.match(key):
            found.setdefault(key, []).append(value)
    _read[path] = stamp, found
    return found


#: Settings by file, because a run creates many agents of one repository.
_read: dict[str, tuple[tuple[int, ...], dict[str, list[str]]]] = {}


def _digest(content: str | bytes) -> str:
    data = content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content
    digest: str = _sha256()(data).hexdigest()
    return digest[:16]


def _sha256() -> Any:
    """Return `hashlib.sha256` without the rest of hashlib, which would load OpenSSL in every `create`."""
    for name in ("_sha2", "_sha256", "hashlib"):  # of Python 3.12 and 3.11, as `random` does it; any other
        try:
            return importlib.import_module(name).sha256
        except ImportError:
            continue
    raise ImportError("no sha256")
