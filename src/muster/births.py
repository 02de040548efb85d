"""Create, start and clone agents.

An agent is recorded before it starts, so that a crash at any moment leaves a trace that `list` shows
and `gc` explains; a create that fails takes back what it made, all of which was a copy.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from collections.abc import Callable
from typing import Any

from . import agents, bindings, hosts, message, notify, plugins, store, tmux, workdirs
from .config import Config
from .errors import MusterError, NotFound, Refused, UsageError
from .host import Found, Host, place_of
from .model import ENDED, Address, Agent, Spec, Status
from .plugins import AgentType, Launch, Prepared

#: Limit on the size of one recording; the agent continues beyond it.
RECORDING_CAP = 64 * 1024 * 1024
#: Linux allows no larger environment variable: every program that the agent starts would fail.
PROMPT_MAX = 100_000

#: Tries for a generated name, which another create may take meanwhile.
NAME_TRIES = 10

FIRST = "amber bold brisk calm clear crisp early fair fleet fond glad green keen kind late light lively lucky merry mild neat new noble plain prime proud quick quiet rapid ready ripe royal sharp shy silver sleek smart snug solid stout sunny swift tidy true vivid warm wise young".split()
SECOND = "acorn anchor arch aspen badge beacon birch bison bridge brook canoe cedar cliff comet coral crane delta dune eagle ember falcon fern finch fjord forge fox gale glade grove harbor hawk heron inlet iris jade kite lagoon lark linden lynx maple marsh meadow otter pearl pine plover quartz raven reef ridge river robin sage sparrow spruce tern thistle valley willow wren".split()


def free_name(taken: set[str]) -> str:
    """Return a name of two readable words that is not taken."""
    for _ in range(50):
        name = f"{_any(FIRST)}-{_any(SECOND)}"
        if name not in taken:
            return name
    return f"{_any(FIRST)}-{_any(SECOND)}-{os.urandom(3).hex()}"


def _any(words: list[str]) -> str:
    return words[int.from_bytes(os.urandom(4)) % len(words)]


def create(
    here: workdirs.Here,
    host: Host,
    spec: Spec,
    kind: AgentType,
    settings: Config,
    step: Callable[[str, str], None],
    send: Callable[[Found, str], object],
    session: dict[str, bytes] | None = None,
) -> Found:
    """Claim, seed, record, start, and the first message.

    `step` is told the name of each step that is done, and of the agent; `send` delivers a message to the new agent.
    `session` has the files of a conversation to go on with.
    """
    home, place = here.local.home, place_of(host)
    rules = check(spec, kind, settings, session)
    try:
        plan = workdirs.plan(here, host, spec)
        agent = _claim(here.local, host, spec, plan)
    except MusterError as error:
        raise store.plainly(error) from error
    try:
        if not host.local:
            hosts.remember(home, host)
        first = agent
        bindings.write(home, place, first)
        if plan.shared and host.local:
            from . import fingerprint

            # This must precede the agent, which has the user's rights on this machine.
            fingerprint.keep(here.local, plan.shared, bindings.fingerprint_path(home, place, first.id))
        step("claim", agent.name)
        agent = workdirs.lay(host, agent, plan)
        workdirs.furnish(host, agent, plan, settings.section("workdir"))
        step("seed", agent.name)
        agent, files = _prepare(kind, agent, spec, session, rules, bindings.new_result_key(home, place, agent))
        # Until this record is written, the host has the one that claimed the name.
        bindings.write(home, place, agent, first._replace(folder=""))
        store.write(host, agent, {**files, **notify.files(settings.section("notify"), host, agent)})
        bindings.write(home, place, agent, sync=False)
        step("record", agent.name)
        program = kind.argv[0] if kind.versions else ""
        version = plugins.version(tmux.start(host, agent.id, spec.memory, program=program) or "")
    except MusterError as error:
        _take_back(home, host, agent)
        raise store.plainly(error) from error
    except BaseException:
        _take_back(home, host, agent)
        raise
    step("start", agent.name)
    one = _found(host, agent)._replace(left_out=plan.nested, version=version)
    if spec.message and (kind.prompt == "typed" or (kind.prompt == "environment" and session)):
        try:
            send(one, spec.message)
        except MusterError as error:
            error.message = f"{agent.name} was created, but its first message was not delivered: {error.message}"
            error.hint = f"its work is kept; try: muster message {one.status.address} -m '…'"
            raise
    step("message", agent.name)
    return one


def check(
    spec: Spec, kind: AgentType, settings: Config, session: dict[str, bytes] | None = None
) -> dict[str, list[str]]:
    """Return the rules for the agent's permissions. Raises errors of the spec before anything is created."""
    if kind.prompt in ("environment", "prepared") and len(message.encoded(spec.message)) > PROMPT_MAX:
        raise UsageError(f"the message is longer than {PROMPT_MAX} bytes", "put it into a file and name that")
    if not {"policy": kind.policy, "bypass": kind.bypass}.get(spec.permissions, True):
        raise UsageError(f"type {kind.name} has no --permissions {spec.permissions}", "leave it out")
    rules = _rules(spec, settings.section("permissions"))
    _command(kind, Agent("", spec.address.name, kind.name), spec, session or {}, rules)
    return rules


def check_installed(kind: AgentType, path: str) -> None:
    """Raise `NotFound` if the program of a type is not on `path`, this machine's PATH."""
    if kind.argv and not _installed(kind.argv[0], path):
        raise NotFound(f"{kind.argv[0]} is not on your PATH", "install it, or: muster create NAME command -- PROGRAM")


def start(one: Found, notify_settings: dict[str, Any]) -> bool:
    """Resume an agent that has ended. Return False if it is already running."""
    if one.status.state not in ENDED:
        return False
    agent = one.agent
    if agent.phase:
        raise MusterError(
            f"{agent.name} cannot be started: {one.status.reason}", f"muster destroy {one.status.address}"
        )
    if not agent.argv:
        raise MusterError(f"the command line of {agent.name} was not recorded", f"muster pull {one.status.address}")
    never = one.status.reason == "never started"
    argv = agent.argv if never else agent.resume or agent.argv
    launch = f"timeout={agent.timeout:g} cap={RECORDING_CAP} launch={1 if never else 2}\n"
    files = {
        "launch": launch.encode(),
        "argv": shlex.join(argv).encode("utf-8", "surrogateescape"),
        **tmux.bin_files(),
        **agents.unset_files(),
        **notify.files(notify_settings, one.host, agent),
    }
    store.put(one.host, agent, files)
    return tmux.start(one.host, agent.id, int(agent.memory or 0)) is not None


def clone(
    one: Found, kind: AgentType, address: Address, text: str, labels: dict[str, str]
) -> tuple[Spec, dict[str, bytes]]:
    """Return what `create` needs for another agent with the commits, uncommitted work and conversation of this one."""
    agent = one.agent
    if kind.translate and kind.prepare:
        said = store.kept(one.host, agent.id)
        session = {"session/client.jsonl": said} if said else {}
    else:
        session = store.read(one.host, agent.id, "session/*", "usage.json")
    spec = Spec(
        address,
        agent.type,
        agent.args,
        message=text,
        source=str(one.status.address),
        labels={**agent.labels, **labels},
        timeout=agent.timeout,
        memory=int(agent.memory or 0),
        permissions=agent.permissions,
    )
    return spec, session


def _take_back(home: str, host: Host, agent: Agent) -> None:
    """Remove what a failed create made. If that fails too, the record stays, and `list` and `gc` show it."""
    try:
        tmux.stop(host, [agent.id], 0)
        workdirs.take_back(host, agent)
        store.release(host, agent)
        bindings.remove(home, place_of(host), agent.id)
    except MusterError:
        pass


def _claim(local: Host, host: Host, spec: Spec, plan: workdirs.Plan) -> Agent:
    """Claim a name and return the first record of the agent."""
    if spec.address.name:
        return _claim_name(host, spec, plan, spec.address.name)
    taken = {seen.agent.name for seen in store.survey(host).agents} | _branches(local, plan)
    for _ in range(NAME_TRIES):
        name = free_name(taken)
        try:
            return _claim_name(host, spec, plan, name)
        except Refused:
            taken.add(name)  # another create took it meanwhile
    return _claim_name(host, spec, plan, free_name(taken))


def _branches(local: Host, plan: workdirs.Plan) -> set[str]:
    """Return names whose branch already exists in the user's repository."""
    if plan.repo is None or plan.host is not local or "{name}" not in plan.branch:
        return set()
    prefix = "refs/heads/muster/"
    asked = ["git", f"--git-dir={plan.repo.common}", "for-each-ref", "--format=%(refname)", prefix]
    refs = local.run(asked).stdout.decode("utf-8", "replace").splitlines()
    return {ref.removeprefix(prefix) for ref in refs}


def _claim_name(host: Host, spec: Spec, plan: workdirs.Plan, name: str) -> Agent:
    agent = Agent(
        id=store.new_id(name),
        name=name,
        type=spec.type,
        args=spec.args,
        mode=plan.mode,
        repo=plan.home,
        source=plan.repo.common if plan.repo and plan.mode == "worktree" else "",
        branch=plan.branch.replace("{name}", name),
        base=plan.base,
        origin=plan.url,
        created=time.time(),
        labels=spec.labels,
        permissions=spec.permissions,
        timeout=spec.timeout,
        memory=str(spec.memory) if spec.memory else "",
        phase="creating",
        creator=store.me(),
    )
    home = store.claim(host, agent)
    return agent._replace(folder=f"{home}/agents/{agent.id}")


def _rules(spec: Spec, settings: dict[str, Any]) -> dict[str, list[str]]:
    """Return the rules of `[permissions]`; empty unless the agent is created with `--permissions policy`."""
    if spec.permissions != "policy":
        return {}
    rules = {key: [str(rule) for rule in settings.get(key, [])] for key in ("allow", "deny")}
    if not any(rules.values()):
        raise UsageError("--permissions policy, but [permissions] allows and denies nothing", "muster config path")
    return rules


def _prepare(
    kind: AgentType,
    agent: Agent,
    spec: Spec,
    session: dict[str, bytes] | None,
    rules: dict[str, list[str]],
    result_key: str,
) -> tuple[Agent, dict[str, bytes]]:
    """Return the complete record and every file that the wrapper reads."""
    ready = _command(kind, agent, spec, session or {}, rules)
    env = {**kind.env, **spec.env, "MUSTER_AGENT": agent.name, "MUSTER_RESULT_KEY": result_key}
    lines = [f"export {key}={shlex.quote(value)}\n" for key, value in env.items()]
    for key, folders in spec.paths.items():
        front = ":".join(os.path.normpath(os.path.join(agent.workdir, folder)) for folder in folders)
        lines.append(f'export {key}={shlex.quote(front)}"${{{key}:+:${key}}}"\n')
    argv, prompt = ready.argv, {}
    if spec.message and kind.prompt == "argument":
        argv = (*argv, message.guarded(kind, spec.message, "-"))
    elif spec.message and kind.prompt == "environment" and not session:
        prompt = {"prompt": spec.message.encode()}
    files = {
        **tmux.bin_files(),
        **agents.unset_files(),
        **ready.files,
        **prompt,
        "env": "".join(lines).encode(),
        "cwd": agent.cwd.encode("utf-8", "surrogateescape"),
        "workdir": agent.workdir.encode("utf-8", "surrogateescape"),
        "argv": shlex.join(argv).encode("utf-8", "surrogateescape"),
        "launch": f"timeout={agent.timeout:g} cap={RECORDING_CAP} launch=1\n".encode(),
    }
    for name, look in (("retries", kind.retries), ("choice", kind.choice), ("cursor", "1" * kind.cursor)):
        if look:
            files[name] = look.encode()
    done = agent._replace(argv=argv, resume=ready.resume, session=ready.session, phase="")
    return done, files


def _command(
    kind: AgentType, agent: Agent, spec: Spec, session: dict[str, bytes], rules: dict[str, list[str]]
) -> Prepared:
    """Return what to run: what the type prepared, or its argv with the placeholders filled in."""
    if kind.prepare:
        python = "python3" if spec.address.place else sys.executable or "python3"
        ready = kind.prepare(Launch(agent, agent.folder, spec.args, spec.message, session, _uuid(), rules, python))
        return _permitted(ready, kind, spec)
    key = _uuid()
    resume = (*_fill(kind.resume or kind.argv, agent, key), *spec.args)
    argv = resume if session else (*_fill(kind.argv, agent, key), *spec.args)
    files = {path: _ruled(text, rules) for path, text in kind.files.items()}
    filled = dict(zip(files, _fill(tuple(files.values()), agent, key), strict=True))
    return _permitted(
        Prepared(argv, resume, {**{path: text.encode() for path, text in filled.items()}, **session}, key), kind, spec
    )


def _permitted(ready: Prepared, kind: AgentType, spec: Spec) -> Prepared:
    more = kind.bypass if spec.permissions == "bypass" else ()
    return ready._replace(argv=(*ready.argv, *more), resume=(*ready.resume, *more))


def _ruled(text: str, rules: dict[str, list[str]]) -> str:
    for word in ("allow", "deny"):
        text = text.replace(f"{{{word}}}", json.dumps(rules.get(word, [])))
    return text


def _installed(program: str, path: str) -> bool:
    places = [program] if "/" in program else [os.path.join(folder, program) for folder in path.split(":")]
    return "{" in program or any(os.access(place, os.X_OK) for place in places)


def _uuid() -> str:
    """Return a random UUID, which clients accept as the id of a session."""
    digits = os.urandom(16).hex()
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"


def _fill(argv: tuple[str, ...], agent: Agent, session: str) -> tuple[str, ...]:
    return tuple(
        word.replace("{folder}", agent.folder).replace("{name}", agent.name).replace("{session}", session)
        for word in argv
    )


def _found(host: Host, agent: Agent) -> Found:
    now = time.time()
    return Found(host, Status(agent, host.name, host.provider, "starting", since=now, now=now))
