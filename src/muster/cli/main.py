"""Finds the verb, loads that one module, and turns errors into messages and exit codes: the only place that does."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # help does without `typing`
if TYPE_CHECKING:
    from typing import TextIO

#: Every verb and its summary, in the groups of the help. The summaries live here so that help loads no verb.
GROUPS: dict[str, dict[str, str]] = {
    "Agents": {
        "create": "create an agent: a work dir, a branch, a session",
        "list": "show all agents and their states (also: ls)",
        "message": "send text to agents and confirm that it arrived",
        "answer": "answer an agent's open question or permission dialog",
        "wait": "wait until agents are in a state",
        "connect": "attach your terminal to an agent",
        "capture": "print an agent's screen or export its recording",
        "exec": "run a command in an agent's work dir",
        "transcript": "print an agent's conversation",
        "events": "print what happened to an agent",
        "explain": "show why an agent is in its state",
    },
    "Their work": {
        "pull": "bring an agent's commits or files to your repository",
        "push": "bring your commits to an agent's branch",
        "diff": "show what an agent changed",
        "snapshot": "save and restore the state of a work dir",
    },
    "Their life": {
        "stop": "end an agent's processes; its work stays",
        "start": "resume an agent that has ended",
        "clone": "copy an agent with its work and conversation",
        "rename": "rename an agent and its branch",
        "label": "set or remove labels",
        "destroy": "remove agents; their work goes to the trash",
        "restore": "bring a destroyed agent back",
        "gc": "show and remove leftovers",
        "record": "write a playbook from what an agent did",
    },
    "Runs": {
        "map": "run one agent for each line of input",
        "improve": "give each test an agent, verify the fixes, deliver one branch",
        "reduce": "combine many agents' work into one tested branch",
        "runs": "show, pause, resume, stop and remove runs",
    },
    "Tutorials": {
        "tutorial list": "show the blocks of a tutorial script",
        "tutorial check": "find blocks without a test, and stale citations",
        "tutorial fill": "have an agent propose examples for a tutorial",
        "tutorial sync": "have an agent write the missing tests of a tutorial",
        "tutorial skill": "install sync as a slash command of a client",
        "report": "make a web page of a run or of a test run",
    },
    "muster itself": {
        "config": "show or set configuration",
        "trust": "allow this project's configuration to run commands",
        "hosts": "show hosts",
        "doctor": "check the set-up and show the command for each fix",
        "completion": "print a shell completion script",
        "man": "show a verb's manual page",
    },
}
VERBS = {verb: text for group in GROUPS.values() for verb, text in group.items()}
ALIASES = {"ls": "list"}
#: Words that other programs use, with the verbs that do the same here. None of them is a verb.
FAMILIAR: dict[str, tuple[str, ...]] = {
    "add": ("create",),
    "approve": ("answer",),
    "attach": ("connect",),
    "cancel": ("stop", "runs stop"),
    "clean": ("gc",),
    "continue": ("start",),
    "copy": ("clone",),
    "cp": ("clone",),
    "delete": ("destroy",),
    "describe": ("explain",),
    "fetch": ("pull",),
    "fork": ("clone",),
    "history": ("events",),
    "inspect": ("explain",),
    "join": ("connect",),
    "kill": ("stop",),
    "launch": ("create",),
    "log": ("transcript", "events"),
    "logs": ("transcript", "capture"),
    "merge": ("pull --merge", "reduce"),
    "mv": ("rename",),
    "new": ("create",),
    "prompt": ("message",),
    "prune": ("gc",),
    "ps": ("list",),
    "remove": ("destroy",),
    "reply": ("answer",),
    "resume": ("start", "runs resume"),
    "rm": ("destroy",),
    "run": ("create", "map", "runs"),
    "send": ("message",),
    "settings": ("config",),
    "shell": ("exec", "connect"),
    "show": ("explain", "runs show"),
    "spawn": ("create",),
    "ssh": ("exec", "connect"),
    "status": ("list", "explain"),
    "tail": ("capture", "events"),
    "tell": ("message",),
    "top": ("list --watch",),
    "undelete": ("restore",),
    "watch": ("list --watch",),
    "web": ("list --watch", "report"),
}


def dashed(verb: str) -> str:
    """Return a verb as one word, as in `[commands.tutorial-check]` and the names of its pages."""
    return verb.replace(" ", "-")


def actions(family: str) -> dict[str, str]:
    """Return the second words of the verbs that begin with `family`, with their summaries."""
    return {verb.partition(" ")[2]: text for verb, text in VERBS.items() if verb.startswith(f"{family} ")}


def first_words() -> list[str]:
    return list(dict.fromkeys(verb.partition(" ")[0] for verb in VERBS))


def main(argv: list[str] | None = None) -> int:
    """Run one verb and return its exit code."""
    words = sys.argv[1:] if argv is None else argv
    _open_streams()
    code = 0
    try:
        code = _dispatch(words)
        sys.stdout.flush()
    except BrokenPipeError:
        silence(sys.stdout)  # the reader of our output is gone, which is no failure
    except OSError as error:
        silence(sys.stdout)
        code = code or _unwritten(error)
    except KeyboardInterrupt:
        return 130
    return code


def silence(stream: TextIO) -> None:
    """Discard everything that is or will be written to a stream whose reader is gone."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)


def _open_streams() -> None:
    """Reopen closed standard streams on /dev/null, so that no file opened later, here or in a child, takes their place."""
    for fd, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, fd)
            os.set_inheritable(fd, True)
            if null != fd:
                os.close(null)
            setattr(sys, name, open(fd, mode, encoding="utf-8", closefd=False))  # noqa: SIM115  # open to the end


def _unwritten(error: OSError) -> int:
    from . import render

    render.error(render.unwritten(error))
    return 1


def _dispatch(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        if len(words) < 2 or words[0] != "help":
            print(overview(), end="")
            return 0
        return _dispatch([*words[1 : 3 if actions(words[1]) else 2], "--help"])
    if words[0] in ("-V", "--version", "version"):
        from .. import __version__

        print(f"muster {__version__}")
        return 0
    verb, words = _verb(words)
    if verb not in VERBS and actions(verb) and (not words[1:] or words[1] in ("-h", "--help", "help")):
        return _help_of(verb)
    from ..errors import MusterError
    from . import render

    own = words[: words.index("--")] if "--" in words else words
    verbose = "-v" in own or "--verbose" in own
    wants_json = "--json" in own
    if verb not in VERBS:
        return _foreign(verb, words[1:], wants_json)
    try:
        from . import parse

        return parse.run(verb, words[1:])
    except MusterError as error:
        if isinstance(error, ValueError) and not error.hint:
            error.hint = f"muster {verb} --help"
        render.error(error, as_json=wants_json)
        if verbose:
            _traceback()
        return error.exit_code
    except (BrokenPipeError, KeyboardInterrupt, SystemExit):
        raise
    except Exception as error:
        import errno

        full = (errno.ENOSPC, errno.EIO, errno.EROFS, errno.EACCES, errno.EPERM)
        if isinstance(error, OSError) and error.errno and (error.filename or error.errno in full):
            where = f": {error.filename}" if error.filename else ""
            problem = MusterError(f"{os.strerror(error.errno)}{where}", "free or open that place and try again")
            render.error(problem, as_json=wants_json)
        else:
            log = _log_bug(words)
            kept = f"the details are in {log}" if log else "-v shows the details"
            problem = MusterError(f"this is a bug in muster: {type(error).__name__}: {error}", kept)
            render.error(problem, as_json=wants_json)
        if verbose:
            _traceback()
        return 1


def _verb(words: list[str]) -> tuple[str, list[str]]:
    """Return the verb and the words with the verb as the first. `tutorial check` is one verb."""
    two = " ".join(words[:2])
    if two in VERBS and len(words) > 1:
        return two, [two, *words[2:]]
    return ALIASES.get(words[0], words[0]), words


def overview() -> str:
    """Return the help of muster itself: every verb with what it does."""
    lines = ["Usage: muster VERB [ARGUMENTS]", "", "Run one or a thousand coding agents with the same verbs.", ""]
    lines += [
        "  muster create fix-login claude -m 'Fix the login test'",
        "  muster list",
        "  muster pull fix-login",
        "",
    ]
    width = max(map(len, VERBS))
    for group, verbs in GROUPS.items():
        lines.append(f"{group}:")
        lines += [f"  {verb:<{width}} {text}" for verb, text in verbs.items()]
        lines.append("")
    lines.append("`muster VERB --help` shows examples and every option; `muster man` the manual.")
    lines.append("A program muster-foo on PATH is `muster foo`.")
    return "\n".join(lines) + "\n"


def _help_of(family: str) -> int:
    lines = [f"Usage: muster {family} ACTION [ARGUMENTS]", "", "Actions:"]
    lines += [f"  {action:<11} {text}" for action, text in actions(family).items()]
    lines += ["", f"`muster {family} ACTION --help` shows examples and every option."]
    print("\n".join(lines))
    return 0


def _foreign(verb: str, words: list[str], as_json: bool) -> int:
    import shutil

    from ..errors import UsageError, close, nearest
    from . import render

    if known := actions(verb):
        said = f"needs an action before {words[0]}" if words[0].startswith("-") else f"has no action {words[0]!r}"
        problem = UsageError(
            f"muster {verb} {said}", f"{nearest(words[0], list(known))}; muster {verb} --help lists all"
        )
        render.error(problem, as_json=as_json)
        return 2
    program = None if verb.startswith("-") or "/" in verb else shutil.which(f"muster-{verb}")
    if program:
        os.execv(program, [program, *words])
    found = close(verb, [*first_words(), *FAMILIAR], 1)
    meant = FAMILIAR.get(found[0], (found[0],)) if found else ()
    near = f"did you mean {' or '.join(map(repr, meant))}? " if meant else ""
    render.error(UsageError(f"there is no verb {verb!r}", f"{near}`muster --help` lists all"), as_json=as_json)
    return 2


def _traceback() -> None:
    import traceback

    traceback.print_exc()


def _log_bug(words: list[str]) -> str:
    import time
    import traceback

    from ..providers import local

    path = os.path.join(local.home(os.environ), "log", "bugs.log")
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        with open(path, "a", encoding="utf-8") as file:
            file.write(f"{time.strftime('%FT%T%z')} muster {words[0]}\n{traceback.format_exc()}\n")
    except OSError:
        return ""
    return path
