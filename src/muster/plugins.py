"""Agent types and providers, by name, loaded on first use.

Built-ins and plugins are the same kind of object: a name is looked up as a module of muster and then as an entry point
(`muster.types`, `muster.providers`). Entry points are only scanned for names that are not built in.
"""

from __future__ import annotations

import functools
import importlib
import os
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from .errors import MusterError, Refused, UsageError, nearest
from .host import Host
from .model import Agent, ClientStatus

BUILTIN_PROVIDERS = ("ssh",)
#: Provider names that are recognised even if they are not installed, so that `box.docker` never means an ssh host.
KNOWN_PROVIDERS = ("ssh", "docker", "slurm", "kubernetes", "modal")


class Launch(NamedTuple):
    """What a type gets when it prepares an agent."""

    agent: Agent
    folder: str
    """The agent's own folder on its host."""
    args: tuple[str, ...]
    message: str
    session: dict[str, bytes] = {}
    """Files of a conversation to continue; empty for a new one."""
    key: str = ""
    """A new UUID, for clients that take the id of their session at launch."""
    rules: dict[str, list[str]] = {}
    """With `--permissions policy`: the rules of `[permissions]` that apply to this client."""
    python: str = "python3"
    """A Python on its host. On this machine it is the one that runs muster, because the first on PATH may be slow or old."""


class Prepared(NamedTuple):
    """What a type returns: the argv, and files for the agent's folder."""

    argv: tuple[str, ...]
    resume: tuple[str, ...]
    files: dict[str, bytes] = {}
    session: str = ""


class AgentType(NamedTuple):
    """A kind of agent, mostly data. In `argv`, the placeholders `{folder}`, `{name}` and `{session}` are replaced."""

    name: str
    argv: tuple[str, ...] = ()
    resume: tuple[str, ...] = ()
    """The argv with which `start` resumes the conversation; if empty, `argv` is used."""
    env: dict[str, str] = {}
    files: dict[str, str] = {}
    """Files for the agent's folder. The placeholders of `argv` are replaced, and `{allow}` and `{deny}` by the rules of `[permissions]`
    as JSON; a type whose files have these supports `--permissions policy`. The wrapper reads `bin/layer` before each launch.
    `bin/tally FILE` runs after each turn whose hook reported `where` the transcript is.
    """
    prompt: str = "typed"
    """How the first message is passed: `argument`, `environment` ($MUSTER_PROMPT), `typed`, or `prepared` (by `prepare`)."""
    speaks: bool = False
    """Whether its client fires events for its turns; otherwise it is a plain command."""
    shows: dict[str, str] = {}
    """Regular expressions for the last line of its terminal when it is `ready`, `waiting` or `working`."""
    retries: str = ""
    """An extended regular expression, searched by tmux, for a line of its screen while the model refuses it and it retries by itself.
    It should match nothing that the client prints of others' text."""
    receipt: str = ""
    """The event that proves that it took a message; if empty, text can be typed without proof."""
    takes: bool = True
    """Whether it takes messages after the first."""
    transcript: str = ""
    """The transcript in the agent's folder, in muster's schema; empty if it keeps none."""
    lines: dict[str, str] = {}
    """How to read the client's own transcript (`transcript`, or the path in the event `session`): for each key of muster's schema
    (`role`, `text`, `time`, `model`, `id`, `tool`, `input`, `input_tokens`, …) the dotted path in a line. See agents/lines.py.
    """
    translate: Callable[[list[dict[str, Any]]], list[dict[str, Any]]] | None = None
    """The same as `lines`, as a Python function."""
    status: Callable[[list[dict[str, Any]], str], ClientStatus | None] | None = None
    """A function that reads the client's own status from the JSON objects in `client/status/*.json` of the agent's folder and the
    session id. Without it, such a file is `{"t": SECONDS, "status": …}` with the fields of `ClientStatus`.
    """
    resets: Callable[[str, float], float | None] | None = None
    """A function that returns when a limit ends, from the text and time of its `limit` event; needed if that has no `until`."""
    guard: str = ""
    """First characters that it would interpret as a command of its own, such as `/` and `!`."""
    quits: tuple[str, ...] = ("exit", "quit", ":q", ":q!", ":wq", ":wq!", ":qa", ":qa!", ":x")
    """Messages that would end it, in any case of letters; used if it has a `guard`."""
    clear: tuple[str, ...] = ()
    """Keys that empty its input box."""
    box: str = ""
    """A regular expression for its empty input box; without it, `clear` is pressed before each message."""
    pasted: tuple[str, ...] = ()
    """How it abbreviates a long paste in its input box: the beginning of the mark, without white space."""
    input: str = ""
    """A regular expression for the end of its screen, from the input box on, while the box takes what is typed; group 1 is the content
    of the box. Keys and pastes are then only sent while the screen matches. Without it, Enter is pressed once and never repeated.
    """
    cursor: bool = False
    """Whether it shows the cursor in its input box and hides it while a menu takes the keys. If so, a screen without the cursor never
    matches `input`."""
    choice: str = ""
    """An extended regular expression, searched by tmux, for the selected entry of a menu. While it matches and the screen does not end
    in `input`, an agent that would be `ready` is `waiting` with reason `dialog`.
    """
    dialog: str = ""
    """A regular expression for the end of its screen while it asks for a permission. `answer` then only presses keys while the screen
    matches.
    """
    queues: bool = False
    """Whether it fires `receipt` also for messages that it only queues; its transcript shows the difference."""
    bypass: tuple[str, ...] = ()
    """Arguments that make it skip its permission dialogs; empty if it has no such mode."""
    policy: bool = False
    """Whether it takes the rules of `[permissions]`."""
    menu: tuple[str, ...] = ()
    """If its questions are menus: the beginnings of the entries for a free-text answer and for sending all answers."""
    yes: tuple[str, ...] = ("Enter",)
    no: tuple[str, ...] = ("Escape",)
    own: tuple[str, ...] = ()
    """Keys that open the field for a free-text answer in a question's list of answers."""
    hands: bool = False
    """Whether its extension takes answers from the file `answer` of the agent's folder, with the id of the dialog (`dialog` of the events
    `permission` and `ask`), so that no key is pressed. In the event `ask`, `choices` are the possible answers, one per line, `own`
    allows other text, and `many` allows several answers. If the type has `dialog` too, permissions are answered by keys.
    """
    sends: bool = False
    """Whether its extension takes messages from the file `message` of the agent's folder, so that no key is pressed."""
    carries: bool = False
    """Whether `prepare` can continue a conversation from the files in the folder `session` of another agent, so that clones keep it."""
    memory: int = 400
    """Memory of one agent in MB; a run launches no more than fit on the host."""
    versions: dict[str, str] = {}
    """The tested versions of its client (`oldest`, `newest`), the one to `install`, and the command that does (`by`, with `{version}`).
    `create` and `doctor` report any other version, as printed by `argv[0] --version`.
    """
    prepare: Callable[[Launch], Prepared] | None = None


def beside(module_file: str, name: str) -> bytes:
    """Return the content of the file `name` next to a module, which passes its own `__file__`."""
    with open(os.path.join(os.path.dirname(module_file), name), "rb") as file:
        return file.read()


class Provider:
    """Finds hosts of one kind by name, and makes them if it can. A plugin overrides `find`, and any other method that it supports.

    `settings` are the provider's own keys of `[providers.PROVIDER]` and of the host's `[hosts.NAME]`, already checked. A provider
    keeps no state on this machine: everything about a host follows from its name, its settings and what the provider asks.
    """

    name = ""
    """The name under which it is installed; set when it is loaded."""
    keys: Mapping[str, type] = {}
    """Its configuration keys, each with the type of its value: str, int, float, bool or list."""

    def find(self, name: str, settings: Mapping[str, Any]) -> Host:
        """Return the host of that name without contacting it. A host that is gone raises `Unreachable` when it is used."""
        raise NotImplementedError

    def create(self, name: str, settings: Mapping[str, Any]) -> Host:
        """Make a host of that name and return it, ready to run commands."""
        raise self._cannot("make hosts", f"name one that exists: NAME@HOST.{self.name}")

    def start(self, name: str, settings: Mapping[str, Any]) -> None:
        """Start a stopped host with its files."""
        raise self._cannot("start hosts")

    def stop(self, name: str, settings: Mapping[str, Any]) -> None:
        """End everything that runs on a host; its files stay."""
        raise self._cannot("stop hosts")

    def destroy(self, name: str, settings: Mapping[str, Any]) -> None:
        """Remove a host with everything on it. It is no error if the host is already gone."""
        raise self._cannot("destroy hosts")

    def names(self, settings: Mapping[str, Any]) -> list[str]:
        """Return the names of the hosts that `create` made and that still exist, running or not."""
        return []

    @property
    def makes(self) -> bool:
        """Whether it has `create`, and so `start`, `stop`, `destroy` and `names`."""
        return type(self).create is not Provider.create

    def _cannot(self, what: str, hint: str = "") -> Refused:
        return Refused(f"provider {self.name} does not {what}", hint)


def agent_type(name: str, configured: dict[str, Any]) -> AgentType:
    """Return the type called `name`: configured in TOML, built in, or from an entry point."""
    if name in configured:
        return _from_toml(name, configured[name])
    builtin: tuple[str, ...] = importlib.import_module(".agents", __package__).TYPES
    if name in builtin:
        found: AgentType = importlib.import_module(f".agents.{name}", __package__).TYPE
        return found
    found_entry = _entry_point("muster.types", name)
    if isinstance(found_entry, AgentType):
        return found_entry
    known = sorted({*builtin, *configured})
    raise UsageError(
        f"there is no agent type {name!r}",
        f"known types: {', '.join(known)}; a program is run with: muster create NAME command -- {name} …",
    )


def is_provider(name: str) -> bool:
    """Return whether the last part of a host name such as `box.docker` is a provider."""
    return name in KNOWN_PROVIDERS or bool(_entry_points("muster.providers", name)) or bool(_executable(name))


@functools.cache
def provider(name: str) -> Provider:
    """Return the provider called `name`: built in, from an entry point, or the program `muster-provider-NAME`."""
    if name in BUILTIN_PROVIDERS:
        found = importlib.import_module(f".providers.{name}", __package__).PROVIDER
    elif entry := _entry_point("muster.providers", name):
        found = entry() if isinstance(entry, type) else entry
    elif path := _executable(name):
        found = importlib.import_module(".providers.executable", __package__).Executable(path)
    else:
        raise UsageError(
            f"there is no provider {name!r}",
            f"known providers: {', '.join(BUILTIN_PROVIDERS)}; docs/plugins.md says how one is added",
        )
    if not isinstance(found, Provider):
        raise MusterError(f"the plugin for provider {name} is a {type(found).__name__}, not a muster.Provider")
    found.name = name
    return found


def _executable(name: str) -> str:
    """Return the path of `muster-provider-NAME`; empty if there is none."""
    if not re.fullmatch(r"[A-Za-z0-9_-]+", name):
        return ""
    paths = (os.path.join(folder, f"muster-provider-{name}") for folder in os.environ.get("PATH", "").split(os.pathsep))
    return next((path for path in paths if os.path.isabs(path) and os.access(path, os.X_OK)), "")


def _entry_point(group: str, name: str) -> Any:
    for entry in _entry_points(group, name):
        return entry.load()
    return None


@functools.cache
def _entry_points(group: str, name: str) -> Any:
    from importlib.metadata import entry_points

    return entry_points(group=group, name=name)


def version(said: str) -> str:
    """Return the version in what a program answers to `--version`; empty if there is none."""
    found = re.search(r"(?<![\w.])v?(\d{1,6}(?:\.\d{1,6}){1,3})(?![\w.])", said[:200])
    return found[1] if found else ""


class Misfit(NamedTuple):
    """A version of a client that was not tested."""

    text: str
    """What is the matter, without an end of sentence."""
    fix: str
    """The command that installs a tested version; empty if the type names none."""


def misfit(kind: AgentType, found: str) -> Misfit | None:
    """Say how `found` lies outside the tested versions of a type; None if it does not, or if nothing is known of either."""
    oldest, newest = kind.versions.get("oldest", ""), kind.versions.get("newest", "")
    if found and oldest and _numbers(found) < _numbers(oldest):
        text = f"{kind.name} {found} is older than {oldest}, the oldest version that muster was tested with"
    elif found and newest and _numbers(found) > _numbers(newest):
        text = f"{kind.name} {found} is newer than {newest}, the newest version that muster was tested with"
    else:
        return None
    return Misfit(text, kind.versions.get("by", "").replace("{version}", kind.versions.get("install", newest)))


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


#: The keys of `versions`.
VERSIONS = ("oldest", "newest", "install", "by")
#: What a type in TOML says in other words.
IN_PYTHON = frozenset({"prepare", "translate", "policy", "carries", "status", "resets"})


def _from_toml(name: str, data: dict[str, Any]) -> AgentType:
    values: dict[str, Any] = {}
    defaults = AgentType._field_defaults
    for key, value in data.items():
        if key not in defaults or key in IN_PYTHON:
            raise UsageError(f"[types.{name}] has no key {key!r}", nearest(key, defaults.keys() - IN_PYTHON))
        values[key] = tuple(value) if isinstance(value, list) else value
        if not isinstance(values[key], type(defaults[key])):
            raise UsageError(f"[types.{name}] {key} must be a {type(defaults[key]).__name__}")
    if not values.get("argv"):
        raise UsageError(f"[types.{name}] needs argv", 'argv = ["program", "argument"]')
    if values.get("prompt", "typed") not in ("argument", "environment", "typed"):
        raise UsageError(f"[types.{name}] prompt must be argument, environment or typed")
    for key, text in values.get("versions", {}).items():
        if key not in VERSIONS:
            raise UsageError(f"[types.{name}.versions] has no key {key!r}", f"known keys: {', '.join(VERSIONS)}")
        if key != "by" and version(str(text)) != text:
            raise UsageError(f"[types.{name}.versions] {key} must be a version", f'{key} = "1.2.3"')
    for key in ("shows", "files", "lines", "env", "versions"):
        if not all(isinstance(value, str) for value in values.get(key, {}).values()):
            raise UsageError(f"[types.{name}.{key}] takes strings only")
    looks = (values.get(key, "") for key in ("retries", "box", "input", "choice", "dialog"))
    for pattern in (*values.get("shows", {}).values(), *looks):
        try:
            re.compile(pattern)
        except re.error as error:
            raise UsageError(f"[types.{name}] {pattern!r} is no regular expression: {error}") from error
    for key in ("retries", "choice"):
        if foreign := _foreign(values.get(key, "")):
            raise UsageError(
                f"[types.{name}] {key} has {foreign!r}, which tmux does not know",
                r"an extended regular expression: [0-9] for \d, [A-Za-z0-9_] for \w, [ ] for \s; no (?…), no *? and +?",
            )
    if any(path.startswith("/") or ".." in path.split("/") for path in values.get("files", {})):
        raise UsageError(f"[types.{name}.files] takes paths inside the agent's folder")
    if values.get("lines"):
        reader = importlib.import_module(".agents.lines", __package__).reader
        values["translate"] = reader(values["lines"], f"[types.{name}.lines]")
    values["policy"] = any("{allow}" in text or "{deny}" in text for text in values.get("files", {}).values())
    return AgentType(name, **values)


def _foreign(pattern: str) -> str:
    """The first part of an expression that only Python knows, if there is one; in brackets only escapes count."""
    for part in re.findall(r"(?s)\\.|\[\^?\]?[^]]*\]|\(\?|[*+?}]\?", pattern):
        within = part.startswith("[")
        found = re.search(r"\\[dDwWsS]" if within else r"^(\\[dDwWsSbBAZ]|\(\?|[*+?}]\?)$", part)
        if found:
            return str(found.group())
    return ""
