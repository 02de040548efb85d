"""The user's own copy of each agent's record: the only source for what happens on the user's machine.

A host may be controlled by the agents on it, so `agent.json` is hostile input. Every record that muster writes to a host
is also kept here, under `bindings/` of the user's state folder, and this copy decides which repository, branch and
folders a verb touches. If the host reports something else, that raises an alarm and is never acted on.

An agent without a copy was created on another machine, or the copy was lost. It can be watched and messaged; its paths
are derived from its id, and a verb that needs one of the user's repositories asks for it.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from typing import NamedTuple

from .errors import MusterError
from .model import Agent, Alarm, is_id

#: Progress of a verb that may have been killed, so it is read from the host. These fields locate nothing.
HOST_FIELDS = ("phase", "creator", "trash")
#: Not compared here: `bind` compares `name` itself, and the others decide nothing on their own.
QUIET_FIELDS = (*HOST_FIELDS, "name", "labels", "version")
#: The phase in the copy of an agent that `destroy` has put away; the record in the trash does not have it.
DESTROYED = "destroyed"


class Binding(NamedTuple):
    agent: Agent
    before: dict[str, object]
    """Former values of fields that are being changed, which the host may still have."""


def write(home: str, place: str, agent: Agent, before: Agent | None = None, sync: bool = True) -> None:
    """Keep `agent` as the record that counts. `before`: the host may have the fields of this one until the next call.

    Call it before the record is written to the host. Without `sync` a power failure may bring the former copy back.
    Raises `MusterError` if the copy cannot be written.
    """
    try:
        _write(_path(home, place, agent.id), agent, before, sync)
    except OSError as error:
        raise MusterError(f"cannot keep the record of {agent.name}: {error.strerror}: {home}") from error


def _write(path: str, agent: Agent, before: Agent | None, sync: bool) -> None:
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    changed = (
        {} if before is None else {key: old for key, old in before.to_json().items() if getattr(agent, key) != old}
    )
    temporary = f"{path}.{os.getpid()}.{os.urandom(4).hex()}"
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            json.dump({"agent": agent.to_json(), "before": changed}, file)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
        if sync:
            _sync(os.path.dirname(path))
    except OSError:
        try:
            os.unlink(temporary)
        except OSError:
            pass
        raise


@contextlib.contextmanager
def changing(home: str, place: str, agent_id: str) -> Iterator[None]:
    """Lock a record on this machine while it is read, changed and written back.

    The kernel releases the lock when its process ends. If no lock file can be written (a full disk), there is no lock.
    """
    import fcntl

    path = _path(home, place, agent_id).removesuffix(".json") + ".lock"
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        file = open(path, "a", encoding="utf-8")  # noqa: SIM115  # closed below
    except OSError:
        yield
        return
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _sync(folder: str) -> None:
    """Wait until the entries of a folder are on the disk."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def read(home: str, place: str, agent_id: str) -> Binding | None:
    """Return the copy of an agent's record, or None if it is missing or unreadable."""
    if not is_id(agent_id):
        return None
    path = _path(home, place, agent_id)
    try:
        info = os.stat(path)
    except OSError:
        return None
    stamp = info.st_mtime_ns, info.st_ino, info.st_size
    cached = _cache.get(path)
    if cached is None or cached[0] != stamp:
        try:
            with open(path, encoding="utf-8") as file:
                data = json.load(file)
            agent = Agent.from_json(data["agent"])
            cached = stamp, Binding(agent, dict(data.get("before") or {})) if agent.id == agent_id else None
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None
        _cache[path] = cached
    return cached[1]


_cache: dict[str, tuple[tuple[int, int, int], Binding | None]] = {}


def remove(home: str, place: str, agent_id: str) -> None:
    path = _path(home, place, agent_id)
    others = fingerprint_path(home, place, agent_id), _key_path(home, place, agent_id)
    for name in (path, path.removesuffix(".json") + ".lock", *others):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)


def fingerprint_path(home: str, place: str, agent_id: str) -> str:
    """Return the path of the fingerprint of the user's repository, taken when the agent was created."""
    return _path(home, place, agent_id).removesuffix(".json") + ".fingerprint"


def ids(home: str, place: str) -> Iterator[str]:
    """Yield the ids of all agents of a host whose record is kept here."""
    try:
        names = os.listdir(os.path.dirname(_path(home, place, "x")))
    except OSError:
        return
    yield from (name.removesuffix(".json") for name in sorted(names) if name.endswith(".json"))


def names(home: str, place: str) -> Iterator[str]:
    """Yield the names of the agents of a host that this machine has not destroyed; the host is not asked."""
    for agent_id in ids(home, place):
        copy = read(home, place, agent_id)
        if copy is not None and copy.agent.phase != DESTROYED:
            yield copy.agent.name


def bind(reported: Agent, binding: Binding | None, host_home: str) -> tuple[Agent, tuple[Alarm, ...]]:
    """Return the agent as verbs may act on it, and the alarms: what its host reports differently."""
    if binding is None:
        return unbound(reported, host_home), ()
    ours = binding.agent
    # After an interrupted change the host still has what muster itself wrote there before.
    old = [field for field in binding.before if _text(getattr(reported, field)) == _text(binding.before[field])]
    agent = ours._replace(**{field: getattr(reported, field) for field in (*HOST_FIELDS, *old)})
    if reported.phase == "unreadable" or (reported.phase == "creating" and ours.phase == "creating"):
        return agent, ()  # the record is unreadable, which its state shows, or not written yet
    alarms = [
        Alarm(field, _text(getattr(ours, field)), _text(getattr(reported, field)))
        for field in Agent._fields
        if field not in QUIET_FIELDS
        and getattr(reported, field) != getattr(ours, field)
        and (field not in binding.before or _text(getattr(reported, field)) != _text(binding.before[field]))
    ]
    if reported.name not in (ours.name, binding.before.get("name")):
        alarms.append(Alarm("name", ours.name, reported.name))
    if reported.phase == "creating" and binding.before.get("phase") != "creating":
        alarms.append(Alarm("phase", ours.phase, reported.phase))
    return agent, tuple(alarms)


def resolve(home: str, place: str, reported: Agent, host_home: str) -> tuple[Agent, tuple[Alarm, ...], bool]:
    """Return the agent as it may be acted on, what its host tells differently, and whether this machine has a copy of its record."""
    binding = read(home, place, reported.id)
    agent, alarms = bind(reported, binding, host_home)
    return agent, alarms, binding is not None


def unbound(reported: Agent, host_home: str) -> Agent:
    """Return an agent that this machine has no record of: its paths follow from its id, and it has no repository here."""
    folder, workdir = f"{host_home}/agents/{reported.id}", f"{host_home}/work/{reported.id}"
    mode = reported.mode if reported.mode in ("worktree", "mirror", "copy", "in-place") else ""
    gitdir = {"worktree": f"{folder}/repo", "mirror": f"{workdir}/.git"}.get(mode, "")
    if mode == "in-place":
        workdir = ""
    return reported._replace(
        folder=folder,
        workdir=workdir,
        cwd=workdir,
        mode=mode,
        gitdir=gitdir,
        common=gitdir,
        source="",
        repo="",
        origin="",
        branch=f"muster/{reported.name}" if gitdir else "",
        base=reported.base if _is_commit(reported.base) else "",
    )


def _is_commit(text: str) -> bool:
    return len(text) in (40, 64) and set(text) <= set("0123456789abcdef")


def _text(value: object) -> str:
    return json.dumps(value) if isinstance(value, list | tuple | dict) else str(value)


def new_result_key(home: str, place: str, agent: Agent) -> str:
    """Make and keep the key with which the agent's `submit` seals its results, so that one that a neighbour wrote is refused."""
    path, key = _key_path(home, place, agent.id), os.urandom(32).hex()
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="ascii") as file:
            file.write(key)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise MusterError(f"cannot keep the key of {agent.name}: {error.strerror}: {home}") from error
    return key


def result_key(home: str, place: str, agent_id: str) -> str:
    """Return the key that was made for an agent; empty if this machine has none."""
    try:
        with open(_key_path(home, place, agent_id), encoding="ascii", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _key_path(home: str, place: str, agent_id: str) -> str:
    return _path(home, place, agent_id).removesuffix(".json") + ".key"


def is_sealed(result: str, key: str) -> bool:
    """Return whether the first line of a `result.json` carries a valid seal of this key, as sh/agent/submit.sh makes it."""
    import hashlib

    body, mark, seal = result.rstrip("\n").rpartition(',"seal":"')
    if not mark or not seal.endswith('"}'):
        return False
    data = f"{key}\n{body}".encode("utf-8", "surrogateescape")
    # The seal is git's id of a blob, which is SHA-256 in some repositories.
    digest = hashlib.sha256 if len(seal) == 66 else hashlib.sha1
    return digest(b"blob %d\0" % len(data) + data).hexdigest() == seal[:-2]


def _path(home: str, place: str, agent_id: str) -> str:
    if not is_id(agent_id):
        raise ValueError(f"{agent_id!r} is no id of an agent")
    folder = "at-" + "".join(char if char.isalnum() or char in "-_" else f"%{ord(char):x}" for char in place)
    return os.path.join(home, "bindings", folder if place else "here", f"{agent_id}.json")
