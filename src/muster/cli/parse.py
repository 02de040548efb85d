"""Parse the words of one verb: its options, their defaults from the configuration, its help.

The module of a verb has `EXAMPLES`, `TEXT`, `options(parser)` and `run(args, fleet) -> exit code`. Optional are
`REST = "METAVAR"` if it takes words after `--`, and `defaults(parser, words, fleet)` if it has further defaults.
"""

from __future__ import annotations

import argparse
import importlib
import os
import re
import sys
from collections.abc import Mapping
from typing import Any, NoReturn

from .. import config as settings
from ..errors import UsageError, close, nearest
from ..fleet import Fleet
from ..model import Alarm
from . import render
from .main import VERBS, dashed

#: Width of every help text, whatever the terminal, so that the generated pages do not depend on one.
WIDTH = 80
#: Limit on the changes of a repository that a warning names.
NAMED = 6

#: Verbs that create agents.
MAKING = ("create", "clone", "map", "reduce", "improve", "tutorial fill", "tutorial sync")
#: The verbs that read a section of the configuration.
USED_BY = {
    "templates": ("create",),
    "types": (*MAKING, "start", "doctor"),
    "permissions": MAKING,
    "workdir": MAKING,
    "notify": MAKING,
    "budget": ("map", "reduce", "improve"),
    "limits": ("map", "reduce", "improve"),
    "improve": ("improve", "reduce", "tutorial sync"),
    "hosts": (*MAKING, "list", "hosts"),
    "prices": ("list", "map", "reduce", "improve"),
    "trash": ("destroy", "gc"),
}


class Parser(argparse.ArgumentParser):
    """An argument parser that shows examples first and raises `UsageError`."""

    examples: str = ""
    rest: str = ""

    def error(self, message: str) -> NoReturn:
        said = re.search(r"invalid choice: '(.*)' \(choose from (.*)\)", message)
        near = nearest(said[1], re.split(r"[', ]+", said[2].strip("'"))) if said else ""
        if said and "," in said[1]:
            flag = message.split()[1].rstrip(":").rpartition("/")[2]
            if isinstance(self._option_string_actions.get(flag), argparse._AppendAction):
                near = "one at a time: " + " ".join(f"{flag} {word}" for word in said[1].split(","))
        raise UsageError(message, "; ".join(part for part in (near, f"{self.prog} --help") if part))

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        # argparse would drop message and hint of the error.
        try:
            return super()._get_value(action, arg_string) if not callable(action.type) else action.type(arg_string)
        except UsageError as error:
            name = "/".join(action.option_strings) or str(action.metavar)
            raise UsageError(f"{name}: {error.message}", error.hint) from error
        except (ValueError, argparse.ArgumentTypeError):
            return super()._get_value(action, arg_string)

    def flags(self) -> list[str]:
        return [flag for action in self._actions for flag in action.option_strings]

    def format_help(self) -> str:
        usage = self.format_usage().replace("usage: ", "Usage: ", 1).rstrip()
        formatter = self._get_formatter()
        for group in self._action_groups:
            formatter.start_section(
                {"options": "Options", "positional arguments": "Arguments"}.get(group.title or "", group.title)
            )
            formatter.add_arguments(group._group_actions)
            formatter.end_section()
        examples = "\n".join(_example(line) for line in self.examples.strip().splitlines())
        usage += _rest(usage, self.rest)
        parts = [usage, f"Examples:\n{examples}", _paragraphs(self.description or "")]
        return "\n\n".join(part for part in parts if part) + "\n\n" + formatter.format_help().strip() + "\n"


def _rest(usage: str, rest: str) -> str:
    if not rest:
        return ""
    fits = len(usage.splitlines()[-1]) + len(f" [-- {rest}]") <= WIDTH
    return f"{' ' if fits else chr(10) + ' ' * 7}[-- {rest}]"


def _example(line: str) -> str:
    """Wrap an example so that a shell still reads it as one command."""
    lines = render.wrap_command(line, WIDTH - 6) if len(line) > WIDTH - 2 else [line]
    return "\n".join(f"{'      ' if number else '  '}{part}" if part else "" for number, part in enumerate(lines))


def _paragraphs(text: str) -> str:
    """Wrap a text. Paragraphs with indented lines stay as they are."""
    wrapped = []
    for paragraph in text.split("\n\n"):
        indented = any(line.startswith(" ") for line in paragraph.splitlines())
        wrapped.append(paragraph if indented else "\n".join(render.wrap(paragraph, WIDTH)))
    return "\n\n".join(wrapped)


def build(verb: str) -> tuple[Parser, Any]:
    """Return the parser and the module of a verb."""
    module = importlib.import_module(f"{__package__}.{verb.replace(' ', '_')}")
    parser = Parser(
        prog=f"muster {verb}", formatter_class=_Formatter, description=module.TEXT.strip(), allow_abbrev=False
    )
    parser.examples = module.EXAMPLES
    parser.rest = getattr(module, "REST", "")
    module.options(parser)
    for action in parser._actions:
        if action.dest in ("address", "name", "names"):  # an empty word is usually an unset shell variable
            action.type, action.default = _not_empty, [] if action.dest == "names" else None
    parser.add_argument("--json", action="store_true", help="print one JSON document (docs/json.md)")
    parser.add_argument("-v", "--verbose", action="store_true", help="show the traceback of an error")
    return parser, module


def run(verb: str, words: list[str]) -> int:
    parser, module = build(verb)
    rest: list[str] = []
    if parser.rest and "--" in words:
        cut = words.index("--")
        words, rest = words[:cut], words[cut + 1 :]
    if "-h" in words or "--help" in words:
        render.out(parser.format_help(), end="")
        return 0
    fleet = Fleet()
    if ignored := [key for key in fleet.config.untrusted if _would_use(verb, key)]:
        render.note(f"{fleet.config.project} is not trusted: {', '.join(ignored)} left out (muster trust)")
    apply_defaults(parser, verb, fleet)
    if hasattr(module, "defaults"):
        module.defaults(parser, words, fleet)
    # Options may stand between positional arguments.
    args, unknown = parser.parse_known_intermixed_args(words)
    if unknown:
        flag = unknown[0].partition("=")[0]
        found = close(flag, parser.flags(), 1) if flag.startswith("-") else []
        near = f"did you mean {found[0]!r}? " if found else ""
        what = "option" if flag.startswith("-") else "argument"
        raise UsageError(f"muster {verb} takes no {what} {flag!r}", f"{near}{parser.prog} --help")
    args.rest = rest or parser.get_default("rest") or []
    try:
        code: int = module.run(args, fleet)
    finally:
        for address, alarms in fleet.alarmed.items():
            fields = ", ".join(alarm.field for alarm in alarms if alarm.field != "result")
            if fields:
                render.note(
                    f"warning: the record of {address} was changed behind muster's back ({fields}); muster goes by its own copy."
                    f"\n  muster explain {address}"
                )
            if any(alarm.field == "result" for alarm in alarms):
                render.note(
                    f"warning: the result of {address} was not written by its own submit; it does not count."
                    f"\n  muster explain {address}"
                )
        for common, changes in fleet.repositories.items():
            render.note(_changed_repository(common, changes))
    return code


def _changed_repository(common: str, changes: Mapping[Alarm, str]) -> str:
    """Return a warning about programs that git would newly run. It names no culprit, because muster cannot know."""
    names = [f"{alarm.field} ({'changed' if alarm.recorded else 'new'})" for alarm in changes]
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    agents = sorted(set(changes.values()))
    since = agents[0] if len(agents) == 1 else f"{len(agents)} agents"
    was = "was" if len(agents) == 1 else "were"
    return render.plain(
        f"warning: {common} can make git run other programs than when {since} {was} created: "
        f"{', '.join(names[:NAMED])}{more}. If that was not you, look before you use git there."
    )


def apply_defaults(parser: Parser, verb: str, fleet: Fleet) -> None:
    """Set the defaults of flags from `MUSTER_VERB_OPTION` variables and `[commands.VERB]`."""
    section = dashed(verb)
    configured = dict(fleet.config.command(section))
    prefix = _prefix(verb)
    longer = tuple(_prefix(other) for other in VERBS if other.startswith(f"{verb} "))
    for key, value in fleet.env.items():
        if key.startswith(prefix) and not key.startswith(longer):
            configured[key[len(prefix) :].lower()] = value
    known = _configurable(parser)
    for key, value in configured.items():
        dest = key.replace("-", "_")
        variable = f"{prefix}{key.upper()}"
        where = variable if variable in fleet.env else f"[commands.{section}]"
        try:
            if dest not in known:
                raise UsageError(f"{where} has no option {key!r}", nearest(key, sorted(known)))
            parser.set_defaults(**{dest: typed(known[dest], value, f"{where} {key}")})
        except UsageError as error:
            if variable not in fleet.env and (file := settings.where(fleet.config, "commands", section, key)):
                error.message = f"{file}: {error.message}"
            raise


def _would_use(verb: str, key: str) -> bool:
    """Return whether a verb reads this key of the configuration."""
    section, _, rest = key.partition(".")
    if section == "commands":
        return rest.startswith(f"{dashed(verb)}.")
    return verb in USED_BY.get(section, ())


def check_option(section: str, key: str, value: str) -> None:
    """Raise `UsageError` unless `[commands.SECTION] key = value` would be valid."""
    known = _configurable(build(_configured(section))[0])
    dest = key.replace("-", "_")
    if dest not in known:
        raise UsageError(f"[commands.{section}] has no option {key!r}", nearest(key, sorted(known)))
    typed(known[dest], settings.literal(value), f"[commands.{section}] {key}")


def check_commands(fleet: Fleet) -> None:
    """Raise `UsageError` unless every key of every `[commands.VERB]` is an option of that verb."""
    for section in fleet.config.section("commands"):
        verb = _configured(section, settings.where(fleet.config, "commands", section))
        apply_defaults(build(verb)[0], verb, fleet)


def _configured(section: str, file: str = "") -> str:
    """Return the verb that `[commands.SECTION]` belongs to."""
    sections = {dashed(verb): verb for verb in VERBS}
    if section not in sections:
        where = f"{file}: " if file else ""
        raise UsageError(f"{where}[commands.{section}]: there is no verb {section!r}", nearest(section, list(sections)))
    return sections[section]


def _prefix(verb: str) -> str:
    return f"MUSTER_{verb.upper().replace(' ', '_')}_"


def _configurable(parser: Parser) -> dict[str, argparse.Action]:
    return {action.dest: action for action in parser._actions if action.dest not in ("help", "json", "verbose")}


def typed(action: argparse.Action, value: Any, where: str) -> Any:
    if isinstance(action, argparse._StoreTrueAction):
        words = {
            "1": True,
            "true": True,
            "yes": True,
            "on": True,
            "0": False,
            "false": False,
            "no": False,
            "off": False,
        }
        found = words.get(str(value).lower())
        if found is None:
            raise UsageError(f"{where} must be true or false")
        return found
    if isinstance(action, argparse._AppendAction) or action.nargs == "*":
        values = value if isinstance(value, list) else [value]
        if isinstance(value, dict):
            values = [f"{key}={item}" for key, item in value.items()]
        if action.choices is not None and (wrong := [item for item in values if item not in action.choices]):
            raise UsageError(f"{where} {wrong[0]!r} must be one of {', '.join(map(str, action.choices))}")
        return [str(item) for item in values]
    if action.choices is not None and value not in action.choices:
        raise UsageError(f"{where} must be one of {', '.join(map(str, action.choices))}")
    if callable(action.type):
        try:
            return action.type(str(value))
        except ValueError as error:
            raise UsageError(f"{where}: {error}") from error
    return str(value) if not isinstance(value, bool) else value


class _Formatter(argparse.RawDescriptionHelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=26, width=WIDTH)


def _not_empty(word: str) -> str:
    if not word:
        raise argparse.ArgumentTypeError("it is empty")
    return word


def stdin_words() -> list[str]:
    lines = sys.stdin.buffer.read().decode("utf-8", "replace").splitlines()
    return [line.strip() for line in lines if line.strip()]


def terminal() -> bool:
    return os.isatty(0) and os.isatty(1)
