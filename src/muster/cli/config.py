from __future__ import annotations

import argparse
import os

from .. import config as settings
from .. import hosts
from ..errors import NotFound, UsageError
from ..fleet import Fleet
from . import render
from .parse import check_commands, check_option

EXAMPLES = """
muster config
muster config get commands.create.mode
muster config set commands.create.connect_command "my-terminal"
muster config set --project commands.create.mode mirror
muster config set 'prices."gpt-4.1".input' 2.0
muster config set notify.command 'notify-send "$MUSTER_AGENT $MUSTER_NOTIFY_STATE" "$MUSTER_NOTIFY_TEXT"'
muster config path
"""
TEXT = """
Checks and shows the configuration in force; `get` and `set` read and write one key. Precedence, highest first: a flag, a
MUSTER_VERB_OPTION variable, the project's .muster/config.toml, your $XDG_CONFIG_HOME/muster/config.toml.

[prices."MODEL"] sets the price of a model in dollars per million tokens: input, output, cache_read, cache_write and
cache_write_1h (kept for an hour). Write MODEL as `muster explain AGENT` shows it. Prices that you leave out come from
the price library.
"""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", nargs="?", choices=("show", "get", "set", "path"), default="show", help="what to do")
    parser.add_argument(
        "key", nargs="?", default="", metavar="KEY", help="section.name.option; put a name with a dot in quotes"
    )
    parser.add_argument("value", nargs="?", metavar="VALUE", help="the new value; TOML, or plain text")
    parser.add_argument("--project", action="store_true", help="write to the project's file instead of yours")


def run(args: argparse.Namespace, fleet: Fleet) -> int:
    user = settings.user_file(fleet.env)
    project = fleet.config.project or _project_file(fleet)
    if args.action == "path":
        if args.json:
            render.document({"user": user, "project": fleet.config.project or None})
        else:
            render.out(user)
            if fleet.config.project:
                render.out(fleet.config.project)
        return 0
    if args.action == "set":
        if not args.key or args.value is None:
            raise UsageError("set needs a key and a value", "muster config set commands.create.mode mirror")
        path = project if args.project else user
        parts = settings.parts(args.key)
        if parts[0] == "commands" and len(parts) == 3:
            check_option(parts[1], parts[2], args.value)
        if parts[0] in hosts.COMMON and len(parts) == 3:
            own = {**fleet.config.section(parts[0]).get(parts[1], {}), parts[2]: settings.literal(args.value)}
            hosts.check(settings.Config({parts[0]: {parts[1]: own}}, (), (), ""), plugins=True)
        settings.set_value(path, args.key, args.value)
        render.note(f"set {args.key} in {path}")
        if args.json:
            render.document({"key": args.key, "file": path})
        return 0
    check_commands(fleet)
    found: object = fleet.config.values
    if args.action == "get" and not args.key:
        raise UsageError("get needs a key", "muster config get commands.create.mode; muster config shows all")
    if args.action == "get":
        for part in settings.parts(args.key):
            if not isinstance(found, dict) or part not in found:
                raise NotFound(f"{args.key} is not set", "muster config shows what is")
            found = found[part]
        if args.json or isinstance(found, dict):
            render.document({"key": args.key, "value": found})
        else:
            render.out(found if isinstance(found, str) else _toml(found))
        return 0
    if args.json:
        render.document({"files": list(fleet.config.files), "untrusted": list(fleet.config.untrusted), "values": found})
        return 0
    for path in fleet.config.files:
        render.note(f"# {path}")
    for line in _lines(fleet.config.values):
        render.out(line)
    if fleet.config.untrusted:
        render.note(f"not in force before `muster trust`: {', '.join(fleet.config.untrusted)}")
    if not fleet.config.files:
        render.note(f"nothing is configured; the file would be {user}")
    return 0


def _project_file(fleet: Fleet) -> str:
    """Where the first setting of a project goes: to the top of its repository."""
    from .. import git

    found = git.find(fleet.local, fleet.cwd)
    return os.path.join(found.top if found else fleet.cwd, ".muster", "config.toml")


def _toml(value: object) -> str:
    """Return a value as `set` takes it. Settings hold only values that JSON and TOML write alike."""
    import json

    return json.dumps(value, default=str, ensure_ascii=False)


def _lines(values: dict[str, object], prefix: str = "") -> list[str]:
    lines = []
    for key, value in values.items():
        if isinstance(value, dict):
            lines += _lines(value, f"{prefix}{settings.quoted(key)}.")
        else:
            lines.append(f"{prefix}{settings.quoted(key)} = {_toml(value)}")
    return lines
