"""One folder per agent on its host, which is the only place where the state of agents is kept.

`survey` reads all of them in one round trip. Names are claimed by an atomic link; a folder is
called by the agent's id, so that renaming an agent moves nothing under a process that runs.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import os
import socket
import subprocess
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from .cast import last_line
from .errors import MusterError, NotFound, Refused
from .host import CommandFailed, Host, Step, chain, checked, output, place_of, script, shell_file
from .model import Agent, Load, check_name, is_id, whole

if TYPE_CHECKING:
    import tarfile

ANSWER_SECONDS = 5.0
FULL = ("No space left", "Disk quota exceeded")
#: Messages of programs about faults of the machine, what they mean, and what to do.
TROUBLE = (
    ("No space left", "no space left for the agent", "muster gc shows what can be removed"),
    ("Disk quota exceeded", "no space left for the agent", "muster gc shows what can be removed"),
    (
        "unable to write file",
        "no space left for the agent, or no right to write",
        "muster gc shows what can be removed",
    ),
    ("Read-only file system", "the place for the agent is read-only", "MUSTER_HOME=FOLDER moves muster's state"),
    ("Permission denied", "no right to write there", "MUSTER_HOME=FOLDER moves muster's state"),
    ("not installed", "a program is missing", "muster doctor shows what is missing"),
)


class NoSpace(MusterError):
    """The disk is full or the quota is used up."""


class Seen(NamedTuple):
    """The evidence about one agent from its host, before its state is judged."""

    agent: Agent
    events: dict[str, dict[str, Any]]
    pane: dict[str, Any] | None
    usage: dict[str, Any]
    last_line: str
    creator_alive: bool | None
    result: str
    """The first line of the submitted result."""
    processes: int = 0
    """The number of its processes if its session is gone and no end was recorded."""
    client: list[dict[str, Any]] = []
    """The status files of its client, which the type knows how to read."""


class Survey(NamedTuple):
    now: float
    agents: list[Seen]
    """One per folder; `phase` is `unreadable` if agent.json cannot be parsed."""
    load: Load = Load()
    home: str = ""
    """The state folder of the host."""


def new_id(name: str) -> str:
    return f"{name[:40]}-{os.urandom(4).hex()}"


def me() -> dict[str, Any]:
    """Return who is creating an agent, so that a survey can tell an interrupted create from one in progress."""
    return {"machine": socket.gethostname(), "pid": os.getpid(), "born": _born(os.getpid())}


def survey(
    host: Host, timeout: float | None = ANSWER_SECONDS, *, load: bool = False, one: tuple[str, str] | None = None
) -> Survey:
    """Read all agents of a host in one round trip; with `load`, also how busy it is.

    `one` is a name, and an id or nothing: only that agent, or the one that has the name, or all if none has claimed it.
    """
    words = ["one", *one] if one else ["load"] if load else []
    return surveyed(host, script(host, "survey", *words, timeout=timeout))


def survey_step(name: str, agent_id: str) -> Step:
    """Return the step of a chain that surveys one agent; `surveyed` reads it."""
    return Step("survey", ("one", name, agent_id))


def surveyed(host: Host, done: subprocess.CompletedProcess[bytes]) -> Survey:
    """Read what the survey of a host gave."""
    if done.returncode:
        raise CommandFailed("survey", done.returncode, done.stderr, "muster doctor shows what is missing")
    text, _, tails = done.stdout.partition(b"\ntails\n")
    now, burden, home = 0.0, Load(), ""
    panes: dict[str, dict[str, Any]] = {}
    files: dict[str, dict[str, str]] = {}
    names: dict[str, str] = {}
    processes: dict[str, int] = {}
    screens: dict[str, list[str]] = {}
    for line in text.decode("utf-8", "replace").split("\n"):
        kind, _, rest = line.partition(" ")
        if kind == "file":
            path, _, content = rest.partition("\t")
            agent_id, _, file = path.partition("/")
            if agent_id == "..":
                names[file.removeprefix("names/")] = content
            elif agent_id in files:
                files[agent_id][file] = content
        elif kind == "dir" and is_id(rest):
            files[rest] = {}
        elif kind == "gone":
            files.pop(rest, None)
        elif kind == "pane" and rest.count(" ") >= 4:
            name, dead, code, signal, pid, command, retries, cursor = (*rest.split(" "), "", "", "")[:8]
            panes[name] = {
                "dead": dead == "1",
                "status": whole(code),
                "signal": whole(signal) or 0,
                "pid": whole(pid) or 0,
                "command": command,
                "retries": bool(whole(retries)),
                "cursor": whole(cursor),
            }
        elif kind == "screen":
            name, _, content = rest.partition("\t")
            screens.setdefault(name, []).append(content)
        elif kind == "alive":
            agent_id, _, count = rest.partition(" ")
            processes[agent_id] = whole(count) or 0
        elif kind == "now":
            now = _number(rest) or 0.0
        elif kind == "home":
            home = absolute(host, rest)
        elif kind == "load":
            burden = _load(rest)
    for name in panes.keys() & screens.keys():
        panes[name]["screen"] = "\n".join(screens[name]).rstrip("\n")
    lines = _tails(tails)
    machine = socket.gethostname()
    agents = []
    for agent_id, found in files.items():
        agent = _named(_agent(agent_id, found.get("agent.json", ""), now), names)
        events = {
            file[3:]: event for file, text in found.items() if file.startswith("ev/") and (event := _object(text))
        }
        # The creator only matters until the agent has started.
        asked = agent.creator and (agent.phase or "started" not in events)
        maker = alive(agent.creator, machine) if asked else None
        if agent.phase == "creating" and names.get(agent.name) != agent_id and maker and agent_id not in panes:
            continue  # it has not claimed its name yet, and may fail to
        client = [_object(text) for file, text in found.items() if file.startswith("client/status/")]
        usage, result = _object(found.get("usage.json", "")), found.get("result.json", "")
        agents.append(
            Seen(
                agent,
                events,
                panes.get(agent_id),
                usage,
                lines.get(agent_id, ""),
                maker,
                result,
                processes.get(agent_id, 0),
                client,
            )
        )
    agents.sort(key=lambda seen: (seen.agent.created, seen.agent.name))
    return Survey(now, agents, burden, home)


def _load(text: str) -> Load:
    words = [_number(word) for word in text.split(" ")]
    busy, cores, memory, disk = (*words, None, None, None, None)[:4]
    kb = 1024.0
    return Load(busy, cores, None if memory is None else memory * kb, None if disk is None else disk * kb)


def claim(host: Host, agent: Agent) -> str:
    """Claim the agent's name and return the state folder of the host. Raises `Refused` if the name is taken."""
    done = script(host, "claim", agent.id, agent.name, input=tar({"agent.json": record(agent)}))
    if done.returncode == 17:
        raise Refused(
            f"there is an agent {agent.name} already",
            f"use another name, --reuse to go on with it, or: muster destroy {agent.name}",
        )
    if done.returncode:
        raise plainly(CommandFailed("create", done.returncode, done.stderr))
    return absolute(host, done.stdout.decode("utf-8", "surrogateescape").strip())


def absolute(host: Host, home: str) -> str:
    """Return the state folder that a host reported. All paths of its agents start with it, so a relative one is refused."""
    if not home.startswith("/"):
        raise MusterError(
            f"host {place_of(host) or 'here'} told {home[:80]!r} where its state folder was expected",
            "do not trust this host",
        )
    return home


def write(host: Host, agent: Agent, files: dict[str, bytes] | None = None) -> None:
    """Write the record atomically, and files beside it."""
    new = f"agent.json.{os.urandom(4).hex()}"
    _put(host, agent, {**(files or {}), new: record(agent)}, new)


def put(host: Host, agent: Agent, files: dict[str, bytes]) -> None:
    """Write files beside the record."""
    _put(host, agent, files, "")


def _put(host: Host, agent: Agent, files: dict[str, bytes], new: str) -> None:
    folders = {name[:at] for name in files for at, char in enumerate(name) if char == "/"}
    done = script(host, "put", agent.id, new, *sorted(folders), input=tar(files))
    if done.returncode == NotFound.exit_code:
        raise NotFound(f"{agent.name} is gone", "muster list")
    if done.returncode:
        raise plainly(CommandFailed("put", done.returncode, done.stderr))


def take_name(host: Host, agent: Agent, new: str) -> None:
    """Claim another name for an agent. Raises `Refused` if another agent has it."""
    done = script(host, "rename", "take", agent.id, new)
    if done.returncode == 17:
        raise Refused(f"there is an agent {new} already", "use another name")
    if done.returncode:
        raise plainly(CommandFailed("rename", done.returncode, done.stderr))


def drop_name(host: Host, agent: Agent, name: str) -> None:
    """Release a name that `take_name` claimed."""
    script(host, "rename", "drop", agent.id, name)


def rename(host: Host, agent: Agent, old: str) -> None:
    """Write the record under its new name, which must be claimed, and release the old name."""
    file = f"agent.json.{os.urandom(4).hex()}"
    done = script(host, "rename", "record", agent.id, old, agent.name, file, input=tar({file: record(agent)}))
    if done.returncode:
        raise plainly(CommandFailed("rename", done.returncode, done.stderr))


#: Exit code of a script for many agents that failed for some; it has printed a line for each of these.
SOME_FAILED = 4


def lock(host: Host, agent_id: str, name: str, minutes: int) -> str:
    """Lock an agent. Return the owner for `unlock`, or an empty string if another process has the lock."""
    owner, failed, _ = lock_all(host, [agent_id], name, minutes)
    if error := failed.get(agent_id):
        if isinstance(error, Held):
            return ""
        raise error
    return owner


class Held(Refused):
    """Another process has the lock."""


def lock_all(
    host: Host, ids: Sequence[str], name: str, minutes: int, then: Sequence[Step] = (), input: bytes = b""
) -> tuple[str, dict[str, MusterError], list[subprocess.CompletedProcess[bytes]]]:
    """Lock each of these agents and run `then`, in one round trip.

    Returns what `unlock` wants, why some were not taken, and what the steps of `then` gave; these do not run if a lock was not taken.

    One whose owner died is taken over: at once when that was on this machine, else after `minutes`. Of many who want to
    take it over, one gets it.
    """
    mine = me()
    owner = f"{mine['machine']}:{mine['pid']}:{mine['born']}:{threading.get_ident()}"
    todo, failed = {"": list(ids)}, dict[str, MusterError]()
    answers: list[subprocess.CompletedProcess[bytes]] = []
    for last in (False, True):
        again: dict[str, list[str]] = {}
        for dead, some in todo.items():
            lock = Step("lock", ("on", name, owner, str(minutes), dead, *some))
            done, *answers = chain(host, [lock, *then], input=input)
            if done.returncode not in (0, SOME_FAILED):
                raise plainly(CommandFailed("cannot lock", done.returncode, done.stderr))
            for agent_id, (what, told) in not_done(done.stdout, some).items():
                if what == "held":
                    machine, pid, born, *_ = [*told.split(":"), "", "", ""]
                    dies = alive({"machine": machine, "pid": whole(pid), "born": born}, mine["machine"]) is False
                    if dies and not last:
                        again.setdefault(told, []).append(agent_id)
                    else:
                        failed[agent_id] = Held(f"another muster has {agent_id}", "muster list")
                else:
                    failed[agent_id] = failure(agent_id, what, told)
        todo = again
    return owner, failed, answers


def unlock(host: Host, agent_id: str, name: str, owner: str) -> None:
    unlock_all(host, [agent_id], name, owner)


def unlock_all(host: Host, ids: Sequence[str], name: str, owner: str) -> None:
    script(host, "lock", "off", name, owner, *ids)


def write_all(
    host: Host, agents: Sequence[Agent], then: Sequence[Step] = ()
) -> tuple[dict[str, MusterError], list[subprocess.CompletedProcess[bytes]]]:
    """Write the records of several agents and run `then`, in one round trip.

    Returns why some were not written, and what the steps of `then` gave; these do not run if a record was not written.
    """
    ids = [agent.id for agent in agents]
    records = Step("records", ids, reads=True)
    done, *answers = chain(host, [records, *then], input=tar({agent.id: record(agent) for agent in agents}))
    if done.returncode not in (0, SOME_FAILED):
        raise plainly(CommandFailed("cannot write the records", done.returncode, done.stderr))
    return failures(done.stdout, ids), answers


def failures(said: bytes, ids: Sequence[str]) -> dict[str, MusterError]:
    """Return the errors that a script for many agents printed, by id."""
    return {agent_id: failure(agent_id, *why) for agent_id, why in not_done(said, ids).items()}


def not_done(said: bytes, ids: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Parse lines `ID WHAT TEXT`. Lines of another form continue the text before."""
    found: dict[str, tuple[str, str]] = {}
    known = set(ids)
    agent_id = ""
    for line in said.decode("utf-8", "replace").splitlines():
        first, _, rest = line.partition(" ")
        if first in known and rest.partition(" ")[0] in ("missing", "held", "failed"):
            agent_id = first
            what, _, text = rest.partition(" ")
            found[agent_id] = what, text
        elif agent_id:
            found[agent_id] = found[agent_id][0], f"{found[agent_id][1]}\n{line}"
    return found


def failure(agent_id: str, what: str, text: str) -> MusterError:
    if what == "missing":
        return NotFound(f"{agent_id} is gone", "muster list")
    return plainly(CommandFailed(agent_id, 1, text.encode()))


def hand(
    host: Host, agent_id: str, name: str, content: bytes, then: Sequence[Step] = ()
) -> list[subprocess.CompletedProcess[bytes]]:
    """Put a file atomically into an agent's folder, for a process there to take. Return what the steps of `then` gave."""
    done, *answers = chain(host, [Step("hand", (agent_id, name), reads=True), *then], input=content)
    if done.returncode == NotFound.exit_code:
        raise NotFound(f"{agent_id} is gone", "muster list")
    if done.returncode:
        raise plainly(CommandFailed("hand", done.returncode, done.stderr))
    return answers


def take_back(host: Host, agent_id: str, name: str) -> bool:
    """Remove a file that `hand` put there. Return whether it was still there, which means that nobody took it."""
    return script(host, "take", agent_id, name).returncode == 0


def read_step(agent_id: str, *names: str) -> Step:
    """Return the step of a chain that reads files of an agent's folder; its output is an archive, see `untar`."""
    return Step("get", (agent_id, *names))


def conversation_step(agent_id: str, limit: int) -> Step:
    """Return the step of a chain that reads the end of the transcript that the agent's client keeps; see `objects`."""
    return Step("conversation", (agent_id, str(limit)))


def read(host: Host, agent_id: str, *names: str) -> dict[str, bytes]:
    """Return the named files of an agent's folder, also in the trash; missing ones are left out."""
    return untar(checked(host, "get", agent_id, *names))


def opened(host: Host, agent_id: str, scratch: str, *names: str) -> dict[str, IO[bytes]]:
    """Do what `read` does, but return open files, because a recording may be larger than memory. They share an unnamed file in `scratch`."""
    import shutil
    import tarfile
    import tempfile

    argv = ["sh", "-c", shell_file("get"), "muster-get", host.home, agent_id, *names]
    with contextlib.suppress(OSError):
        os.makedirs(scratch, mode=0o700, exist_ok=True)
    kept = tempfile.TemporaryFile(dir=scratch if os.access(scratch, os.W_OK) else None)  # noqa: SIM115  # it is deleted when the last of its parts is closed
    with output(host, argv, f"cannot read the files of {agent_id}") as archive:
        shutil.copyfileobj(archive, kept, 1 << 20)
    if not kept.tell():
        return {}
    kept.seek(0)
    try:
        members = members_of(kept)
        found = {member.name.removeprefix("./"): members.extractfile(member) for member in members if plain(member)}
    except (tarfile.TarError, ValueError, OverflowError, OSError) as error:
        raise MusterError("what the host sent was cut off", "try again") from error
    return {name: file for name, file in found.items() if file}


def artifacts(host: Host, agent_id: str, limit: int) -> AbstractContextManager[IO[bytes]]:
    """Stream a tar of an agent's folder `artifacts`, cut at `limit` bytes; empty if there is none."""
    argv = ["sh", "-c", shell_file("artifacts"), "muster-artifacts", host.home, agent_id, str(limit)]
    return output(host, argv, f"the artifacts of {agent_id}")


def record(agent: Agent) -> bytes:
    return json.dumps(agent.to_json(), ensure_ascii=True).encode() + b"\n"


def tar(files: dict[str, bytes]) -> bytes:
    """Return a ustar archive of plain files; those under `bin/` are executable."""
    parts = []
    for name, content in files.items():
        mode = 0o700 if name.startswith("bin/") else 0o600
        encoded = name.encode("utf-8", "surrogateescape")
        if len(encoded) > 100:
            # The name is too long for the header, so it goes into an entry before it, which GNU, BSD and busybox tar read.
            parts.append(_member(b"././@LongLink", 0o600, encoded + b"\0", b"L"))
        parts.append(_member(encoded[:100], mode, content, b"0"))
    parts.append(b"\0" * 1024)
    return b"".join(parts)


def untar(archive: bytes) -> dict[str, bytes]:
    """Return the plain files of an archive; links and devices are skipped."""
    if not archive:
        return {}
    import io
    import tarfile

    files = {}
    try:
        with members_of(io.BytesIO(archive)) as members:
            for member in members:
                content = members.extractfile(member) if plain(member) and member.size <= len(archive) else None
                if content is not None:
                    files[member.name.removeprefix("./")] = content.read()
    except (tarfile.TarError, ValueError, OverflowError, OSError) as error:
        raise MusterError("what the host sent was cut off", "try again") from error
    return files


def members_of(archive: IO[bytes], mode: str = "r:") -> tarfile.TarFile:
    """Open a tar that a host made. Compressed archives are refused, and no header can move the reader backwards."""
    import tarfile

    class Header(tarfile.TarInfo):
        def _block(self, count: int) -> int:
            if count < 0:
                raise tarfile.ReadError("a header with a negative size")
            return super()._block(count)  # type: ignore[misc, no-any-return]  # the method is not in the stubs

    return tarfile.open(fileobj=archive, mode=mode, tarinfo=Header)  # type: ignore[call-overload, no-any-return]  # a mode that varies


def plain(member: tarfile.TarInfo) -> bool:
    """Return whether it is a plain file. Sparse files are not, because they may claim any size."""
    return member.isreg() and not member.issparse() and member.size >= 0


def _member(name: bytes, mode: int, content: bytes, kind: bytes) -> bytes:
    """Return one entry of an archive: its header, and the content padded to whole blocks."""
    fields = (
        name.ljust(100, b"\0"),
        f"{mode:07o}\0".encode(),
        b"0000000\0" * 2,
        f"{len(content):011o}\0".encode(),
        b"00000000000\0",
        b" " * 8,
        kind,
        b"\0" * 100,
        b"ustar\x0000",
    )
    head = b"".join(fields).ljust(512, b"\0")
    head = head[:148] + f"{sum(head):06o}\0 ".encode() + head[156:]
    return head + content + b"\0" * (-len(content) % 512)


def _agent(agent_id: str, text: str, now: float) -> Agent:
    """Parse a record. A damaged one is still an agent with a folder, a work dir and processes."""
    try:
        agent = (_read_lately if len(text) < READ_LATELY else _read)(text)
        if agent.id == agent_id and all(map(math.isfinite, (agent.created, agent.timeout))):
            return agent
    except (ValueError, RecursionError):
        pass
    return Agent(agent_id, agent_id, "?", created=now, phase="unreadable")


def _read(text: str) -> Agent:
    agent = Agent.from_json(json.loads(text))
    check_name(agent.name)
    int(agent.memory or 0)
    return agent


#: Parsed records, because repeated surveys read the same ones.
_read_lately = functools.lru_cache(2000)(_read)
READ_LATELY = 8000


def _named(agent: Agent, names: dict[str, str]) -> Agent:
    """Return the agent under the name that it has claimed, whatever name its record contains."""
    if names.get(agent.name) == agent.id:
        return agent
    free = agent.id if agent.name in names else agent.name
    return agent._replace(name=next((name for name, owner in names.items() if owner == agent.id), free))


def _tails(text: bytes) -> dict[str, str]:
    """Return the last line of each recording, from the output of `tail` on all of them.

    A recording may hold what looks like the head of another: what comes twice is not believed.
    """
    lines: dict[str, str] = {}
    for part in text.split(b"==> ./")[1:]:
        path, _, content = part.partition(b" <==\n")
        agent_id = path.partition(b"/")[0].decode("utf-8", "replace")
        # `tail` puts an empty line before the next head; script's own last line has one newline.
        lines[agent_id] = "" if agent_id in lines else _last_line(content.rstrip(b"\r\n") + b"\n")
    return lines


#: Rendered last lines, because repeated surveys see the same ones.
_last_line = functools.lru_cache(2000)(last_line)


def alive(creator: dict[str, Any], machine: str) -> bool | None:
    """Return whether the process that made the record is alive; None if it is on another machine."""
    pid = creator.get("pid")
    if creator.get("machine") != machine or not isinstance(pid, int) or not 0 < pid < 1 << 31:
        return None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return creator.get("born", "") in ("", _born(pid))


def _born(pid: int) -> str:
    """Return when a process began, in kernel ticks. Unlike a process id, this is never used again.

    `dead` for one that has ended and that its parent has not asked about yet.
    """
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
            return "dead" if fields[0] in "ZX" else fields[19]
    except (OSError, IndexError):
        return ""


def objects(content: bytes) -> list[dict[str, Any]]:
    """Return the JSON objects, one per line; other lines are skipped."""
    found = []
    for line in content.decode("utf-8", "replace").split("\n"):
        try:
            value = json.loads(line) if line else None
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            found.append(value)
    return found


#: Limit on the bytes that are read from the end of a client's transcript.
CONVERSATION = 64 << 20


def conversation(host: Host, agent_id: str, limit: int = CONVERSATION) -> list[dict[str, Any]]:
    """Return the lines of the transcript that the agent's client keeps at the path that it reported."""
    return objects(kept(host, agent_id, limit))


def kept(host: Host, agent_id: str, limit: int = CONVERSATION) -> bytes:
    """Return the end of that transcript unparsed."""
    return checked(host, "conversation", agent_id, str(limit))


class Added(NamedTuple):
    """What was added to a file of an agent since it was last read."""

    content: bytes = b""
    inode: str = ""
    size: int = 0
    """How far the file with this inode has been read."""
    fresh: bool = False
    """It is another file than before, read from its beginning."""
    gone: bool = False
    """The agent was destroyed; its files are in the trash."""


def added(host: Host, agent_id: str, name: str, last: Added) -> Added:
    """Return what was added to a file since `last`; an empty name is the transcript that the agent's client keeps."""
    said = checked(host, "since", agent_id, last.inode, str(last.size), str(CONVERSATION), name)
    head, _, content = said.partition(b"\n")
    inode, size, life, how = (*head.decode("ascii", "replace").split(" "), "", "", "", "")[:4]
    return Added(content, str(whole(inode) or ""), whole(size) or 0, how == "fresh", life != "live")


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _number(text: str) -> float | None:
    """Return a plain decimal number, or None."""
    return float(text) if len(text) < 40 and text.isascii() and text.replace(".", "", 1).isdigit() else None


def plainly(error: MusterError) -> MusterError:
    """Return the error in words that say what to do about it."""
    if not isinstance(error, CommandFailed):
        return error
    for sign, what, hint in TROUBLE:
        if sign in error.stderr and (not error.hint or sign in FULL):
            line = next(line for line in error.stderr.splitlines() if sign in line)
            return (NoSpace if sign in FULL else MusterError)(f"{what}: {line.strip()}", hint)
    if error.code == 127 and not error.hint:
        error.hint = "muster doctor shows what is missing"
    return error


def release(host: Host, agent: Agent) -> None:
    """Release a claim: remove the folder of an agent that never started, and its name."""
    script(host, "release", agent.id, agent.name)
