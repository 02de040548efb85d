from __future__ import annotations

import argparse

from .. import agents, fanout
from .. import config as settings
from ..errors import MusterError, UsageError, nearest, worst
from ..fleet import Fleet
from ..host import Found
from ..model import MODES, PERMISSIONS, Address, Spec, parse_bytes, parse_labels, parse_seconds
from . import common, connect, render
from .parse import Parser, terminal, typed

EXAMPLES = """
muster create fix-login claude -m "Fix the login test"
muster create tests command -- make test
muster create fix-login@box claude -m "Fix it there"
muster create try replay --count 3 -- playbook.toml
muster create demo command --from ../other --branch main:try --label run=42 -- make
"""
TEXT = """
Creates an agent: a work dir with your uncommitted work, a branch muster/NAME, and a session that runs the type's
program in it. The first word is always the address (NAME or NAME@HOST), the second the type.
"""
REST = "ARGS"


def options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "address",
        nargs="?",
        default="",
        metavar="ADDRESS",
        help="NAME[@HOST[.PROVIDER]]; without NAME, one is generated",
    )
    add(
        "type",
        nargs="?",
        default="",
        metavar="TYPE",
        help=f"what to run: {', '.join(agents.TYPES)}, or one of [types]",
    )
    add("-m", "--message", default="", help="the first message")
    add("--message-file", metavar="FILE", help="the first message, from a file; - is stdin")
    add(
        "--from",
        dest="source",
        default="",
        metavar="SOURCE",
        help="a folder, an agent, or the URL of a repository to start from",
    )
    add(
        "--branch",
        default="",
        metavar="[BASE][:NEW]",
        help="start from BASE and work on NEW (default: your present commit, muster/NAME)",
    )
    add(
        "--mode",
        choices=MODES,
        help="the kind of work dir (default: worktree on this machine, mirror elsewhere, copy without git)",
    )
    add("--clean", action="store_true", help="leave your uncommitted work out")
    add("--label", action="append", default=[], metavar="K=V", help="a label; repeatable")
    add("--env", action="append", default=[], metavar="K=V", help="a variable for the agent; K alone copies yours")
    add("--env-file", action="append", default=[], metavar="FILE", help="variables from a file of K=V lines")
    add(
        "--template",
        action="append",
        default=[],
        metavar="NAME",
        help="options from [templates.NAME] in the configuration",
    )
    add("--reuse", action="store_true", help="use the agent if it exists, starting it if it has ended")
    add(
        "--timeout", type=parse_seconds, default=0.0, metavar="TIME", help="end the agent after this time: 90s, 15m, 2h"
    )
    add("--memory", type=parse_bytes, default=0, metavar="SIZE", help="a hard memory limit: 512m, 2g")
    add("--permissions", choices=PERMISSIONS, default="ask", help="who answers the client's permission dialogs")
    add("--count", type=int, default=1, metavar="N", help="make N agents, NAME-1 to NAME-N")
    add(
        "--connect-command",
        default="",
        metavar="COMMAND",
        help="run this command instead of attaching; see muster connect",
    )
    add("--no-connect", action="store_true", help="do not attach afterwards")


def defaults(parser: Parser, words: list[str], fleet: Fleet) -> None:
    """Apply templates as defaults: a template beats the configuration of create, and a flag beats a template."""
    known = {{"source": "from"}.get(action.dest, action.dest): action for action in parser._actions}
    templates = fleet.config.section("templates")
    for name in parser.parse_known_intermixed_args(words)[0].template:
        if name not in templates:
            near = nearest(name, list(templates)) if templates else "[templates.NAME] makes one"
            raise UsageError(f"there is no template {name!r}", near)
        for key, value in templates[name].items():
            where = f"{settings.where(fleet.config, 'templates', name, key)}: [templates.{name}]"
            if key == "args":
                parser.set_defaults(rest=[str(item) for item in value])
            elif key.replace("-", "_") not in known:
                raise UsageError(f"{where} has no option {key!r}", nearest(key, sorted(known)))
            else:
                action = known[key.replace("-", "_")]
                found = typed(action, value, f"{where} {key}")
                before = parser.get_default(action.dest)
                # Lists add up, also those of several templates.
                parser.set_defaults(**{action.dest: [*before, *found] if isinstance(found, list) else found})


def run(args: argparse.Namespace, fleet: Fleet) -> int:
    base = _spec(args, fleet)
    if args.count < 1:
        raise UsageError("--count must be at least 1")
    specs = [base] if args.count == 1 else _numbered(base, args.count)

    reused: set[str] = set()

    def make(spec: Spec) -> Found:
        if args.reuse and spec.address.name:
            existing, _ = fleet.select([str(spec.address)])
            if existing:
                reused.add(existing[0].agent.id)
                return _reuse(fleet, existing[0], spec)
        return fleet.create(spec)

    outcomes = fanout.each(make, specs, limit=8)
    problems = [outcome.error for outcome in outcomes if outcome.error is not None]
    made = [outcome.get() for outcome in outcomes if outcome.error is None]
    codes = [problem.exit_code for problem in problems]
    if problems and not made:
        raise problems[0]
    for problem in problems:
        render.error(problem)
    if args.json:
        errors = {"errors": [render.problem_json(problem) for problem in problems]} if problems else {}
        render.document({"agents": common.agents_json(fleet, [one.status for one in made]), **errors})
    common.note_versions(fleet, made)
    for one in made:
        if not args.json:
            if not render.width():
                # Scripts need the name, which may have been generated.
                render.out(str(one.status.address))
            render.note(_told(one, "went on with" if one.agent.id in reused else "created"))
            for path in one.left_out:
                render.note(f"  left out: {path} is a repository of its own (git submodule add, or [workdir] copy)")
    if len(made) == 1 and not args.no_connect and not args.json and not codes:
        command = args.connect_command
        if command or terminal():
            return connect.go(fleet, made[0], command)
    return worst(codes) if codes else 0


def _spec(args: argparse.Namespace, fleet: Fleet) -> Spec:
    address = Address.parse(args.address) if args.address else Address("")
    message = args.message
    if args.message_file:
        if message:
            raise UsageError("--message and --message-file were both given", "use one of them")
        message = common.read_text(args.message_file)
        if not message.strip():
            raise UsageError(f"the message in {args.message_file} is empty", "leave it out to start without a task")
    env: dict[str, str] = {}
    for path in args.env_file:
        for number, line in enumerate(common.read_text(path).splitlines(), 1):
            if line.strip() and not line.lstrip().startswith("#"):
                try:
                    env.update(_variable(line.strip().removeprefix("export "), fleet))
                except UsageError as error:
                    raise UsageError(f"{path}, line {number}: {error.message}", "write KEY=VALUE lines") from error
    for pair in args.env:
        env.update(_variable(pair, fleet))
    return Spec(
        address,
        args.type or fleet.default_type(),
        tuple(args.rest),
        message,
        args.source,
        args.branch,
        args.mode or "",
        args.clean,
        parse_labels(args.label),
        env,
        args.timeout,
        args.memory,
        args.permissions,
    )


def _variable(pair: str, fleet: Fleet) -> dict[str, str]:
    key, equals, value = pair.partition("=")
    if not key.isidentifier() or not key.isascii():
        raise UsageError(f"{key!r} is not the name of a variable", "write --env KEY=VALUE")
    if not equals:
        if key not in fleet.env:
            raise UsageError(f"--env {key}: you have no such variable", f"write --env {key}=VALUE")
        value = fleet.env[key]
    elif len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
        value = value[1:-1]
    return {key: value}


def _numbered(spec: Spec, count: int) -> list[Spec]:
    from ..births import free_name

    stem = spec.address.name or free_name(set())
    return [spec._replace(address=spec.address._replace(name=f"{stem}-{n}")) for n in range(1, count + 1)]


def _reuse(fleet: Fleet, one: Found, spec: Spec) -> Found:
    if spec.type and one.agent.type != spec.type:
        raise MusterError(f"{one.agent.name} exists and is of type {one.agent.type}", "use another name")
    if fleet.start(one):
        one = Found(one.host, fleet.look(one))
    if spec.message:
        fleet.message(one, spec.message)
    return one


def _told(one: Found, verb: str) -> str:
    agent = one.agent
    where = f"on branch {agent.branch}" if agent.branch else f"in {agent.workdir}"
    return f"{verb} {one.status.address} ({agent.type}, {agent.mode}, {where})"
