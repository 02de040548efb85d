"""Settings: flag > `MUSTER_*` variable > project file > user file > default.

A project's file comes with somebody's repository: what in it could run a command counts only after
`muster trust`. Which flags a verb has is known to the verbs, so `[commands.VERB]` is checked there.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .errors import MusterError, UsageError, nearest

SECTIONS: dict[str, tuple[str, ...] | None] = {
    "commands": None,
    "templates": None,
    "types": None,
    "hosts": None,
    "providers": None,
    "workdir": ("copy", "link", "setup"),
    "notify": ("command", "on"),
    "permissions": ("allow", "deny"),
    "budget": (
        *("dollars", "tokens", "agents", "time", "agent_dollars", "agent_tokens"),
        *("day_dollars", "day_tokens", "day_agents", "day_time"),
    ),
    "improve": (
        *("pytest", "lint", "env", "tutorial", "times", "test_timeout", "suite_timeout"),
        *("implementation", "other", "protected", "allow"),
    ),
    "reduce": ("gate",),
    "limits": ("start", "launch_rate", "memory", "disk", "load"),
    "trash": ("days",),
    "prices": None,
}
#: Dollars for a million tokens.
PRICE_KEYS = ("input", "output", "cache_read", "cache_write", "cache_write_1h")
PRICE_MAX = 1e6
AMOUNT_MAX = 1e15
#: Keys whose value is a time.
TIMES = ("time", "day_time", "test_timeout", "suite_timeout")
#: States that `[notify] on` can name (`alert` belongs to runs); the first four are the default.
NOTIFY_STATES = ("waiting", "ready", "failed", "alert", "done", "lost")
NOTIFY_ON = NOTIFY_STATES[:4]
#: Flags a project may set without being trusted: none of them can run a command.
HARMLESS = frozenset(
    (
        "label mode branch clean timeout memory count no_connect format here git json state type_filter "
        "tutorial artifacts strict section kind"
    ).split()
)


class Config(NamedTuple):
    values: dict[str, Any]
    files: tuple[str, ...]
    untrusted: tuple[str, ...]
    """Keys of the project's file that do not count, because it is not trusted."""
    project: str

    def section(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.values.get(name, {})
        return found

    def amounts(self, section: str) -> dict[str, float]:
        """`[budget]` or `[limits]`, in dollars, tokens, seconds and bytes."""
        return {key: _amount(section, key, value, "") for key, value in self.section(section).items()}

    def seconds(self, section: str, key: str, default: float) -> float:
        return _amount(section, key, self.section(section).get(key, default), "")

    def command(self, verb: str) -> dict[str, Any]:
        found: dict[str, Any] = self.section("commands").get(verb, {})
        return found


def user_file(env: Mapping[str, str]) -> str:
    base = env.get("XDG_CONFIG_HOME") or os.path.join(env.get("HOME", os.path.expanduser("~")), ".config")
    return os.path.join(base, "muster", "config.toml")


def project_file(start: str) -> str:
    """The nearest `.muster/config.toml` at or above `start`, within one repository; empty when there is none."""
    folder = os.path.abspath(start)
    while True:
        path = os.path.join(folder, ".muster", "config.toml")
        if os.path.isfile(path):
            return path
        parent = os.path.dirname(folder)
        if parent == folder or os.path.exists(os.path.join(folder, ".git")):
            return ""
        folder = parent


def load(env: Mapping[str, str], cwd: str, home: str) -> Config:
    user, project = user_file(env), project_file(cwd)
    values: dict[str, Any] = {}
    files, untrusted = [], []
    if os.path.isfile(user):
        values = _read(user)
        files.append(user)
    if project:
        found = _read(project)
        files.append(project)
        if not trusted(project, home):
            untrusted = _drop_unsafe(found, values.get("budget", {}))
        _merge(values, found)
    return Config(values, tuple(files), tuple(untrusted), project)


def trust(path: str, home: str) -> None:
    """Remember that this very content of the project's file may run commands."""
    known = _trusted_files(home)
    known[path] = _digest(path)
    os.makedirs(home, mode=0o700, exist_ok=True)
    _store_trust(home, known)


def distrust(path: str, home: str) -> bool:
    known = _trusted_files(home)
    found = known.pop(path, None) is not None
    if found:
        _store_trust(home, known)
    return found


def trusted(path: str, home: str) -> bool:
    return _trusted_files(home).get(path) == _digest(path)


def set_value(path: str, key: str, value: str) -> None:
    """Set one `section.name.key` in a TOML file, leaving every other line as it is."""
    section, _, option = key.rpartition(".")
    if not section:
        raise UsageError(f"{key!r} is in no section", "write SECTION.KEY, such as commands.create.mode")
    _check(_nest(parts(section), {option: literal(value)}), path)
    lines: list[str] = []
    if os.path.isfile(path):
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
    entry = f"{option} = {value if _is_literal(value) else json.dumps(value)}"
    place = _place(lines, section, option)
    if place is None:
        starts = [index for index, line in enumerate(lines) if line.strip() == f"[{section}]"]
        if starts:
            lines.insert(starts[0] + 1, entry)
        else:
            lines += [*([""] if lines else []), f"[{section}]", entry]
    else:
        first, last, name = place
        lines[first:last] = [entry.replace(option, name, 1)]
    if _value(lines, key) != literal(value):
        raise UsageError(f"{path} is written in a way that {key} cannot be set in", "set it there with an editor")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    temporary = f"{path}.{os.getpid()}"
    with open(temporary, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    os.replace(temporary, path)


def _place(lines: list[str], section: str, option: str) -> tuple[int, int, str] | None:
    """The lines that hold a key, behind its section's header or dotted above all headers, and how it is called there."""
    table = ""
    for index, line in enumerate(lines):
        if header := re.match(r"\s*\[([^\[\]]+)\]\s*(#.*)?$", line):
            table = header[1].strip()
        name = option if table == section else f"{section}.{option}" if not table else ""
        if name and re.match(rf"\s*{re.escape(name)}\s*=", line):
            end = index + 1
            while end < len(lines) and not _parses("\n".join(lines[index:end])):
                end += 1  # a value over several lines
            return index, end, name
    return None


def _parses(text: str) -> bool:
    import tomllib

    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return False
    return True


def _value(lines: list[str], key: str) -> Any:
    """What the key has in these lines; None where they are no TOML."""
    import tomllib

    try:
        found: Any = tomllib.loads("\n".join(lines) + "\n")
        for part in parts(key):
            found = found[part]
    except (tomllib.TOMLDecodeError, LookupError, TypeError):
        return None
    return found


def parts(key: str) -> list[str]:
    """The names in a dotted key. As in TOML, one that has a dot itself is in quotes: `prices."gpt-4.1".input`."""
    if '"' not in key and "'" not in key:
        return key.split(".")
    import tomllib

    try:
        found: Any = tomllib.loads(f"{key} = 0")
        names = []
        while isinstance(found, dict):
            ((name, found),) = found.items()
            names.append(name)
    except ValueError as error:
        raise UsageError(f"{key!r} is not a key", 'such as prices."gpt-4.1".input') from error
    return names


def quoted(name: str) -> str:
    """A name as it stands in a dotted key."""
    bare = name and all(char.isascii() and (char.isalnum() or char in "-_") for char in name)
    return name if bare else json.dumps(name, ensure_ascii=False)


def _nest(parts: list[str], leaf: dict[str, Any]) -> dict[str, Any]:
    return {parts[0]: _nest(parts[1:], leaf)} if parts and parts[0] else leaf


def _is_literal(value: str) -> bool:
    return _parses(f"x = {value}")


def literal(value: str) -> Any:
    import tomllib

    return tomllib.loads(f"x = {value}")["x"] if _is_literal(value) else value


def _read(path: str) -> dict[str, Any]:
    import tomllib

    try:
        with open(path, "rb") as file:
            text = file.read().decode()
        data = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        at = re.search(r"\(at line (\d+), column \d+\)", str(error))
        where = f"{path}:{at[1]}" if at else path
        raise UsageError(f"{where} is not valid TOML: {error}", "mend it with an editor") from error
    except OSError as error:
        raise MusterError(f"cannot read {path}: {error.strerror}") from error
    _check(data, path, text.splitlines())
    return data


def where(config: Config, *keys: str) -> str:
    """Return `FILE:LINE` of a setting that is in force; empty where no file has it."""
    for path in reversed(config.files):
        with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
            if number := _number_of(file.read().splitlines(), keys):
                return f"{path}:{number}"
    return ""


def _number_of(lines: Sequence[str], keys: Sequence[str]) -> int:
    """Return the number of the first line that a key, or something below it, stands in; 0 where it is not found."""
    table: list[str] = []
    for number, line in enumerate(lines, 1):
        if header := re.match(r"\s*\[\[?([^\[\]]+)\]\]?\s*(#.*)?$", line):
            names = table = _names(header[1].strip())
        elif entry := re.match(
            r"""\s*((?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*'))*)\s*=""", line
        ):
            names = [*table, *_names(entry[1])]
        else:
            continue
        if names[: len(keys)] == list(keys):
            return number
    return 0


def _names(key: str) -> list[str]:
    try:
        return [name.strip() for name in parts(key)]
    except UsageError:
        return []


def _check(data: dict[str, Any], file: str, lines: Sequence[str] = ()) -> None:
    def at(*keys: str) -> str:
        number = _number_of(lines, keys)
        return f"{file}:{number}" if number else file

    for section, content in data.items():
        if section not in SECTIONS:
            raise UsageError(f"{at(section)}: there is no section [{section}]", nearest(section, list(SECTIONS)))
        if not isinstance(content, dict):
            raise UsageError(f"{at(section)}: {section} must be a section, [{section}]")
        keys = SECTIONS[section]
        for key, value in content.items():
            path = at(section, key)
            if keys is not None and key not in keys:
                raise UsageError(f"{path}: [{section}] has no key {key!r}", nearest(key, list(keys)))
            if keys is None and not isinstance(value, dict):
                raise UsageError(f"{path}: [{section}] {key} must be a section, [{section}.{key}]")
            if section == "notify":
                _check_notify(key, value, path)
            if section in ("budget", "limits") or (section == "improve" and key in TIMES):
                _amount(section, key, value, path)
            if section == "prices":
                for name in value:
                    _check_price(key, name, value[name], at(section, key, name))


def _check_price(model: str, key: str, value: Any, path: str) -> None:
    where = f"[prices.{quoted(model)}]"
    if isinstance(value, dict):
        raise UsageError(f"{path}: {where} has a section {key!r}", 'a name with a dot has quotes: [prices."gpt-4.1"]')
    if key not in PRICE_KEYS:
        raise UsageError(f"{path}: {where} has no key {key!r}", nearest(key, list(PRICE_KEYS)))
    if type(value) not in (int, float) or not 0 <= value < PRICE_MAX:
        raise UsageError(f"{path}: {where} {key} must be dollars for a million tokens", f"{key} = 3.0")


def _amount(section: str, key: str, value: Any, path: str) -> float:
    """A number of `[budget]`, `[limits]` or `[improve]`; a time and a size may have a unit."""
    from .model import parse_bytes, parse_seconds

    number: Any = value
    with contextlib.suppress(UsageError):
        if isinstance(value, str) and key in (*TIMES, "memory", "disk"):
            number = parse_seconds(value) if key in TIMES else parse_bytes(value)
    if type(number) not in (int, float) or not 0 < number < AMOUNT_MAX:
        example = {**dict.fromkeys(TIMES, '"2h"'), "memory": '"400m"', "disk": '"2g"'}.get(key, "20")
        raise UsageError(f"{path}: [{section}] {key} must be more than 0", f"{key} = {example}")
    return float(number)


def _check_notify(key: str, value: Any, path: str) -> None:
    if key == "command" and (not isinstance(value, str) or "\0" in value):
        raise UsageError(f"{path}: [notify] command must be text, a command line for sh", 'command = "…"')
    if key == "on":
        if not isinstance(value, list) or not all(isinstance(state, str) for state in value):
            raise UsageError(f"{path}: [notify] on must be a list of states", f"on = {json.dumps(NOTIFY_ON)}")
        for state in value:
            if state not in NOTIFY_STATES:
                raise UsageError(f"{path}: [notify] on has no state {state!r}", f"known: {', '.join(NOTIFY_STATES)}")


def _drop_unsafe(data: dict[str, Any], budget: dict[str, Any]) -> list[str]:
    """Take out everything that could run a command or spend more than the user's own `budget`; returns the names of what was taken."""
    dropped = []
    for section in list(data):
        if section in ("commands", "templates"):
            for name, options in data[section].items():
                for option in [key for key in options if key.replace("-", "_") not in HARMLESS]:
                    del options[option]
                    dropped.append(f"{section}.{name}.{option}")
        elif section == "workdir":
            for key in [key for key in data[section] if key != "link"]:
                del data[section][key]
                dropped.append(f"{section}.{key}")
        elif section == "budget":
            for key in [key for key in data[section] if key in budget]:
                if _amount(section, key, data[section][key], "") > _amount(section, key, budget[key], ""):
                    del data[section][key]
                    dropped.append(f"{section}.{key}")
        else:
            dropped.append(section)
            del data[section]
    return dropped


def _merge(into: dict[str, Any], other: dict[str, Any]) -> None:
    for key, value in other.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = value


def _digest(path: str) -> str:
    import hashlib

    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def _trusted_files(home: str) -> dict[str, str]:
    try:
        with open(os.path.join(home, "trust.json"), encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _store_trust(home: str, known: dict[str, str]) -> None:
    path = os.path.join(home, "trust.json")
    temporary = f"{path}.{os.getpid()}"
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(known, file, indent=1)
    os.replace(temporary, path)
