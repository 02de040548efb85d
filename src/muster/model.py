"""The values of muster: addresses, agents and their states. Nothing here does I/O.

They are named tuples and not dataclasses because every verb loads this module, and
`dataclasses` alone would cost as much start-up time as the rest of it together.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from .errors import UsageError

#: The provider of hosts whose address does not name one.
DEFAULT_PROVIDER = "ssh"

STATES = ("starting", "working", "waiting", "ready", "done", "failed", "stopped", "lost", "unreachable")
#: States in which the process has ended, or is not known to run.
ENDED = frozenset({"done", "failed", "stopped", "lost"})
LIVE = frozenset({"starting", "working", "waiting", "ready"})

MODES = ("worktree", "mirror", "copy", "in-place")
PERMISSIONS = ("ask", "policy", "bypass")

NAME_MAX = 63
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*\Z")
_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,99}\Z")
_LABEL = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]*\Z")


def check_name(name: str) -> str:
    """Return the name, or raise `UsageError` if it is not valid."""
    if len(name) > NAME_MAX:
        raise UsageError(f"the name is {len(name)} characters long; at most {NAME_MAX} are allowed")
    if not _NAME.match(name):
        raise UsageError(
            f"{name!r} is not a name for an agent",
            "use letters, digits, - and _, and do not begin with -",
        )
    return name


def is_id(text: str) -> bool:
    """Return whether this can be the id of an agent. Ids become file names, so those from a host are checked first."""
    return bool(_ID.match(text))


def whole(text: str) -> int | None:
    """Return a whole number from a host's answer, or None if it is not one or has too many digits."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


def place_name(host: str, provider: str) -> str:
    """Return the part after the `@` in the address of an agent on this host; empty for this machine."""
    return host if not host or provider == DEFAULT_PROVIDER else f"{host}.{provider}"


class Address(NamedTuple):
    """`NAME[@HOST[.PROVIDER]]`; `str(Address.parse(s)) == s`."""

    name: str
    place: str = ""
    """The part after the `@`; empty for this machine. `hosts.find` knows which part of it is the provider."""

    @classmethod
    def parse(cls, text: str) -> Address:
        """Return the parts of `text`. The name may be empty (one is generated); a given one is checked."""
        name, at, place = text.partition("@")
        if name:
            check_name(name)
        if not at:
            return cls(name)
        if place in ("", "."):
            raise UsageError(f"{text!r} names no host", "write NAME@HOST, or only NAME for this machine")
        if re.search(r"[\s\x00-\x1f]", place) or place.startswith("-"):
            raise UsageError(f"{place!r} is not a host")
        return cls(name, place)

    @property
    def maker(self) -> str:
        """The provider that makes a new host for this address (`foo@.docker`); empty for an existing host."""
        return self.place[1:] if self.place.startswith(".") else ""

    def __str__(self) -> str:
        return f"{self.name}@{self.place}" if self.place else self.name


class Agent(NamedTuple):
    """The contents of `agent.json`. `id` never changes, `name` can."""

    id: str
    name: str
    type: str
    folder: str = ""
    args: tuple[str, ...] = ()
    argv: tuple[str, ...] = ()
    resume: tuple[str, ...] = ()
    workdir: str = ""
    cwd: str = ""
    mode: str = ""
    gitdir: str = ""
    common: str = ""
    source: str = ""
    """The git directory on the user's machine whose objects a worktree borrows."""
    repo: str = ""
    branch: str = ""
    base: str = ""
    origin: str = ""
    created: float = 0.0
    labels: dict[str, str] = {}
    permissions: str = "ask"
    timeout: float = 0.0
    memory: str = ""
    session: str = ""
    phase: str = ""
    creator: dict[str, Any] = {}
    trash: dict[str, Any] = {}
    version: int = 1

    def to_json(self) -> dict[str, Any]:
        return self._asdict()

    @classmethod
    def from_json(cls, data: Any) -> Agent:
        """Read a record of any version: unknown keys are dropped, wrong types are an error."""
        if not isinstance(data, dict):
            raise ValueError("not an agent record")
        known: dict[str, Any] = {}
        for key, default in _DEFAULTS.items():
            if key not in data:
                continue
            value = data[key]
            if isinstance(default, tuple) and isinstance(value, list):
                value = tuple(str(item) for item in value)
            elif isinstance(default, float) and isinstance(value, int):
                value = float(value)
            if not isinstance(value, type(default)):
                raise ValueError(f"{key} is not a {type(default).__name__}")
            known[key] = value
        if not known.get("id") or not known.get("name"):
            raise ValueError("no id or name")
        return cls(**known)


_DEFAULTS: dict[str, Any] = {"id": "", "name": "", "type": "", **Agent._field_defaults}


class Spec(NamedTuple):
    """The request to `create` an agent."""

    address: Address
    type: str = ""
    args: tuple[str, ...] = ()
    message: str = ""
    source: str = ""
    branch: str = ""
    mode: str = ""
    clean: bool = False
    labels: dict[str, str] = {}
    env: dict[str, str] = {}
    timeout: float = 0.0
    memory: int = 0
    permissions: str = "ask"
    paths: dict[str, tuple[str, ...]] = {}
    """Variables that list folders, such as PYTHONPATH, with folders of the work dir to prepend."""


class Evidence(NamedTuple):
    """One fact about an agent: its source, its time, and the state that follows from it."""

    source: str
    t: float
    fact: str
    state: str = ""


class ClientStatus(NamedTuple):
    """What a client's own status file reports, for clients that keep one."""

    t: float
    """When it was written."""
    status: str
    """`busy`, `idle`, `waiting` (for a person), or `background`: idle, with a command of its own still running."""
    dialog: bool = False
    """The dialog in which it waits, if that is not about a permission."""


class Alarm(NamedTuple):
    """A field of an agent's record that its host reports differently than what muster wrote.

    The field `result` stands for a `result.json` that the agent's own `submit` did not write.
    """

    field: str
    recorded: str
    reported: str


class Status(NamedTuple):
    """An agent as last seen. Never stored."""

    agent: Agent
    host: str
    provider: str
    state: str
    reason: str = ""
    since: float = 0.0
    now: float = 0.0
    why: str = ""
    evidence: tuple[Evidence, ...] = ()
    usage: dict[str, Any] = {}
    last_line: str = ""
    exit_code: int | None = None
    until: float | None = None
    refused: float | None = None
    """When the model last refused it, for clients that retry by themselves."""
    question: str = ""
    """The full question of a waiting agent; empty if it does not wait or the client does not report it."""
    result: str = ""
    """The first line of the result that it submitted, unchecked."""
    bound: bool = True
    """Whether this machine has its own copy of the agent's record. Without one, the agent has no repository here."""
    alarms: tuple[Alarm, ...] = ()

    @property
    def address(self) -> Address:
        return Address(self.agent.name, self.place)

    @property
    def place(self) -> str:
        """The part after the `@` in its address: host and provider. Empty for this machine."""
        return place_name(self.host, self.provider)


class Load(NamedTuple):
    """How busy a host is, and its free memory and disk in bytes; None if unknown."""

    load: float | None = None
    cores: float | None = None
    memory: float | None = None
    disk: float | None = None


class ModelBill(NamedTuple):
    model: str
    tokens: int | None
    cost_usd: float | None


class Bill(NamedTuple):
    """What an agent used and what that cost; None if unknown."""

    tokens: int | None = None
    cost_usd: float | None = None
    models: tuple[ModelBill, ...] = ()


def parse_labels(pairs: list[str]) -> dict[str, str]:
    """Parse `K=V` words to a dict; a bare `K` means an empty value."""
    labels: dict[str, str] = {}
    for pair in pairs:
        key, _, value = pair.partition("=")
        if not _LABEL.match(key):
            raise UsageError(f"{pair!r} is not a label", "write --label KEY=VALUE")
        labels[key] = value
    return labels


def parse_seconds(text: str | float) -> float:
    """Parse `90`, `90s`, `15m`, `2h` or `1d` to seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhd]?)", str(text).strip())
    if not match:
        raise UsageError(f"{text!r} is not a time", "write 90, 90s, 15m, 2h or 1d")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}[match[2]]


def parse_bytes(text: str) -> int:
    """Parse `512m`, `2g`, `100k` or plain bytes to bytes."""
    match = re.fullmatch(r"(\d+)\s*([kmgt]?)i?b?", text.strip().lower())
    if not match:
        raise UsageError(f"{text!r} is not a size", "write 512m or 2g")
    size = int(match[1]) << (10 * " kmgt".index(match[2] or " "))
    if size < 4 << 20:
        raise UsageError(f"{text!r} is {size} bytes, in which nothing can run", "write 512m or 2g")
    return size
