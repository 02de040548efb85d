"""The user's own copy of each agent's record: the only source for what happens on the user's machine.

A host may be controlled by the agents on it, so `agent.json` is hostile input. Every record that muster writes to a host
is also kept here, under `bindings/` of the user's state folder, and this copy decides which repository, branch and
folders a verb touches. Where the host tells something else, that is reported as an alarm and never acted on.

An agent without a copy was made from another machine, or the copy was lost. It can be watched and talked to; paths on its
host are derived from its id, and a verb that needs a repository of the user's asks for one.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from typing import NamedTuple

from .errors import MusterError
from .model import Agent, Alarm, is_id

#: Progress of a verb that may have been killed half-way, so it is read from the host. Nothing is located by it.
HOST_FIELDS = ("phase", "creator", "trash")
#: Not compared: `name` is compared by the caller, who knows the claimed one; the others decide nothing on their own.
QUIET_FIELDS = (*HOST_FIELDS, "name", "labels", "version")


class Binding(NamedTuple):
    agent: Agent
    before: dict[str, object]
    """Former values of fields that are being changed: the host may still have these."""


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
    """Let one process of this machine at a time read a record, change it and write it back.

    The kernel lets go of the lock when its process ends. Where no lock can be had (a full disk), there is none.
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
    """Wait until the names in a folder are on the disk."""
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
    """Return the file that says what made git run programs in the user's repository when the agent was created."""
    return _path(home, place, agent_id).removesuffix(".json") + ".fingerprint"


def ids(home: str, place: str) -> Iterator[str]:
    """Yield the ids of all agents of a host that have a copy."""
    try:
        names = os.listdir(os.path.dirname(_path(home, place, "x")))
    except OSError:
        return
    yield from (name.removesuffix(".json") for name in sorted(names) if name.endswith(".json"))


def bind(told: Agent, binding: Binding | None, host_home: str) -> tuple[Agent, tuple[Alarm, ...]]:
    """Return the agent as it may be acted on, and what its host tells differently."""
    if binding is None:
        return unbound(told, host_home), ()
    ours = binding.agent
    # A change that was cut off: the host still has what muster itself had written there before.
    old = [field for field in binding.before if _text(getattr(told, field)) == _text(binding.before[field])]
    agent = ours._replace(**{field: getattr(told, field) for field in (*HOST_FIELDS, *old)})
    if told.phase == "unreadable" or (told.phase == "creating" and ours.phase == "creating"):
        return agent, ()  # the record cannot be read, which its state says, or is not written yet
    alarms = [
        Alarm(field, _text(getattr(ours, field)), _text(getattr(told, field)))
        for field in Agent._fields
        if field not in QUIET_FIELDS
        and getattr(told, field) != getattr(ours, field)
        and (field not in binding.before or _text(getattr(told, field)) != _text(binding.before[field]))
    ]
    if told.name not in (ours.name, binding.before.get("name")):
        alarms.append(Alarm("name", ours.name, told.name))
    if told.phase == "creating" and binding.before.get("phase") != "creating":
        alarms.append(Alarm("phase", ours.phase, told.phase))
    return agent, tuple(alarms)


def resolve(home: str, place: str, told: Agent, host_home: str) -> tuple[Agent, tuple[Alarm, ...], bool]:
    """Return the agent as it may be acted on, what its host tells differently, and whether this machine has a copy of its record."""
    binding = read(home, place, told.id)
    agent, alarms = bind(told, binding, host_home)
    return agent, alarms, binding is not None


def unbound(told: Agent, host_home: str) -> Agent:
    """Return an agent that nothing is known of on this machine: its places follow from its id, it has no repository here."""
    folder, workdir = f"{host_home}/agents/{told.id}", f"{host_home}/work/{told.id}"
    mode = told.mode if told.mode in ("worktree", "mirror", "copy", "in-place") else ""
    gitdir = {"worktree": f"{folder}/repo", "mirror": f"{workdir}/.git"}.get(mode, "")
    if mode == "in-place":
        workdir = ""
    return told._replace(
        folder=folder,
        workdir=workdir,
        cwd=workdir,
        mode=mode,
        gitdir=gitdir,
        common=gitdir,
        source="",
        repo="",
        origin="",
        branch=f"muster/{told.name}" if gitdir else "",
        base=told.base if _is_commit(told.base) else "",
    )


def _is_commit(text: str) -> bool:
    return len(text) in (40, 64) and set(text) <= set("0123456789abcdef")


def _text(value: object) -> str:
    return json.dumps(value) if isinstance(value, list | tuple | dict) else str(value)


def named(home: str, place: str, name: str) -> bool:
    """Whether there is a copy of the record of an agent that has this name."""
    copies = (read(home, place, agent_id) for agent_id in ids(home, place))
    return any(copy is not None and copy.agent.name == name for copy in copies)


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
    """Whether the first line of a `result.json` was sealed with this key, as sh/agent/submit.sh does it."""
    import hashlib

    body, mark, seal = result.rstrip("\n").rpartition(',"seal":"')
    if not mark or not seal.endswith('"}'):
        return False
    data = f"{key}\n{body}".encode("utf-8", "surrogateescape")
    # git's name of a blob; a repository chooses between two kinds.
    digest = hashlib.sha256 if len(seal) == 66 else hashlib.sha1
    return digest(b"blob %d\0" % len(data) + data).hexdigest() == seal[:-2]


def _path(home: str, place: str, agent_id: str) -> str:
    if not is_id(agent_id):
        raise ValueError(f"{agent_id!r} is no id of an agent")
    folder = "at-" + "".join(char if char.isalnum() or char in "-_" else f"%{ord(char):x}" for char in place)
    return os.path.join(home, "bindings", folder if place else "here", f"{agent_id}.json")
