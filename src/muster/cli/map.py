from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ..fleet import Fleet
from ..model import MODES, PERMISSIONS, Address, parse_labels, parse_seconds
from . import common, render

if TYPE_CHECKING:
    from ..flow.api import AgentOptions, MapOptions
    from ..flow.limits.budget import Estimate
    from ..flow.limits.limits import Limits
    from ..flow.mapping.scheduler import Scheduler
    from ..flow.run.directory import Run

EXAMPLES = """
seq 3 | muster map -a command -- sh -c 'echo "$MUSTER_ITEM"'
ls tests/*.py | muster map -a claude --permissions bypass -p 'Make {item} faster'
muster map -a codex --permissions bypass --items tasks.jsonl --prompt-file prompt.md @box1 @box2
git ls-files '*.md' | muster map -a claude --permissions bypass -p 'Check {item}' --budget 5 --dry-run
"""
TEXT = """
Runs one agent for each line of the input (or JSON object, whose fields are slots too), as many at once as the machines, the
limits and the budget allow. {item} in the prompt and in ARGS is the line as it is ({{ and }} are plain braces); a shell takes it for code
there, so give it "$MUSTER_ITEM" where it may hold anything. All that is known of a run is kept in its directory: kill muster at any moment, and the same command
goes on with it. Ctrl-C lets the agents that run come to their end, a second one, or SIGTERM, stops and harvests them.
"""
REST = "ARGS"
#: Events that are printed. Of other events, users only see the effects.
TOLD = frozenset(
    "baseline plan scouted gathered again paused resumed draining stopping alert question canary idle slowed abandoned returned "
    "reduce-ranked reduce-check reduce-conflict reduce-ejected reduce-redundant reduce-full reduce-nothing".split()
)
#: How old the page of a run may become.
PAGE_SECONDS = 20.0


def options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "places", nargs="*", default=[], metavar="@HOST", help="hosts to spread the agents over (default: this machine)"
    )
    add("-a", "--agent", dest="type", default="", metavar="TYPE", help="the agents' type (default: as create)")
    add("-p", "--prompt", default="", help="the first message; {item} and the fields of the item are filled in")
    add("--prompt-file", metavar="FILE", help="the first message, from a file")
    add("--items", default="-", metavar="FILE", help="the items, one a line (default: stdin)")
    agents(parser)
    add("--mode", choices=MODES, help="the kind of work dir (default: as create)")
    add("--branch", default="", metavar="BASE", help="start from this commit (default: what you have)")
    add("--clean", action="store_true", help="start from the commit, without your uncommitted work")
    add(
        "--label",
        action="append",
        default=[],
        metavar="K=V",
        help="a label for the agents; can be given more than once",
    )
    add("--run", default="", dest="name", metavar="NAME", help="the name of the run (default: map-1, map-2 …)")
    add("--new", action="store_true", help="a new run, also when one of the same input is not finished")
    add("--keep", action="store_true", help="keep the agents and their work dirs; they are only stopped")
    add("--dry-run", action="store_true", help="say what would be done, and end")


def agents(parser: argparse.ArgumentParser) -> None:
    """How the agents of a run are made and held back: the same for each verb that has runs."""
    add = parser.add_argument
    add("--max-agents", type=_agents, default=20, metavar="N", help="at most so many at once (default: 20)")
    add("--budget", type=_dollars, default=0.0, metavar="DOLLARS", help="stop and harvest when this is spent")
    add("--budget-tokens", type=_tokens, default=0, metavar="N", help="the same, in tokens")
    add("--timeout", type=parse_seconds, default=0.0, metavar="TIME", help="of each agent: 90s, 15m, 2h")
    add(
        "--stall",
        type=parse_seconds,
        default=None,
        metavar="TIME",
        help="an agent without a sign of work for so long has stalled; 0: never (default: 30m for a client, 0 for a command)",
    )
    add(
        "--retries",
        type=common.count,
        default=1,
        metavar="N",
        help="tries after the first, where another may help (default: 1)",
    )
    add(
        "--questions",
        choices=("answer", "escalate", "stop"),
        default="answer",
        help="an agent that asks: is told once that nobody is there, waits for you, or is ended (default: answer)",
    )
    add("--permissions", choices=PERMISSIONS, default="ask", help="who answers the client's permission dialogs")


def run(args: argparse.Namespace, fleet: Fleet) -> int:
    from .. import flow
    from ..flow import api
    from ..flow.mapping import start
    from ..flow.run import tasks

    if args.prompt_file and args.prompt:
        raise UsageError("--prompt and --prompt-file were both given", "use one of them")
    prompt = common.read_text(args.prompt_file) if args.prompt_file else args.prompt
    if args.items == "-" and sys.stdin.isatty():
        raise UsageError("there are no items", "one a line on stdin: ls | muster map …, or --items FILE")
    options: MapOptions = {
        "type": common.client(args, fleet, "map"),
        "prompt": prompt,
        "args": args.rest,
        "hosts": [_place(word) for word in args.places],
        "name": args.name,
        "new": args.new,
        "keep": args.keep,
        "mode": args.mode or "",
        "branch": args.branch,
        "clean": args.clean,
        "labels": parse_labels(args.label),
        **agent_options(args),
    }
    items = tasks.items(_text(args.items))
    request = api.map_request(fleet, items, **options)
    start.validate(fleet, request)
    expected = start.estimate(fleet, request)[0]
    if args.dry_run:
        return _dry(args, request, expected)
    display = Display(args.json, "")
    begun: list[Run] = []

    def begin(run: Run, new: bool) -> None:
        begun.append(run)
        display.follow(run.folder)
        if not args.json:
            over = start.is_over(run)
            word = "run" if new else "this is all done: run" if over else "going on with run"
            render.note(f"{word} {run.name}: {tasks.counted(len(items), 'task')} (muster runs show {run.name})")
            if not over:
                render.note(expected.words)

    options |= {"on_begin": begin, "on_warning": render.note, "on_event": display.say, "on_wait": display.shown}
    finished = True
    try:
        flow.map(fleet, items, **options)
    except KeyboardInterrupt:
        if not begun:
            raise
        finished = False
    display.end()
    directory = begun[0]
    picture = directory.picture()
    outcomes, total = picture["outcomes"], picture["total"]
    done, words = sum(outcomes.values()), ", ".join(f"{count} {name}" for name, count in outcomes.items())
    if not args.json:
        so_far = f"{done} of {tasks.counted(total, 'task')} with an outcome{f' ({words})' if words else ''}, {total - done} left"
        render.out(words if finished else so_far)
    if not finished:
        render.note(f"{directory.name} is not finished; the same command goes on with it")
        return 130
    waiting = [task["agent"] for task in picture["tasks"] if task["outcome"] == "blocked" and task["agent"]]
    if waiting and not args.json:
        more = f", and {len(waiting) - 1} more" if waiting[1:] else ""
        render.note(f"you can talk to {waiting[0]}{more}: muster start {waiting[0]}; muster connect {waiting[0]}")
    return start.exit_code(outcomes) if done == total else 1


def _text(path: str) -> str:
    """The input, from a file or stdin."""
    if path != "-":
        return common.read_text(path)
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as error:
        raise UsageError("stdin is not UTF-8 text", "one item a line; iconv -t UTF-8 makes it UTF-8") from error
    except OSError as error:
        raise UsageError(f"cannot read stdin: {error.strerror}", "one item a line, or --items FILE") from error


def agent_options(args: argparse.Namespace) -> AgentOptions:
    """Return the options of `agents` for the functions of the flow."""
    return {
        "max_agents": args.max_agents,
        "budget": args.budget,
        "budget_tokens": args.budget_tokens,
        "timeout": args.timeout,
        "stall": args.stall,
        "retries": args.retries,
        "questions": args.questions,
        "permissions": args.permissions,
    }


def limits(fleet: Fleet, args: argparse.Namespace) -> Limits:
    """The flags, then `[budget]` and `[limits]`, then what one agent of this type takes."""
    from ..flow import api

    return api.limits(fleet, common.client(args, fleet, "map"), agent_options(args))


def _dry(args: argparse.Namespace, wish: Any, expected: Estimate) -> int:
    from ..flow.run import tasks

    made = tasks.tasks(wish.items, wish.prompt, wish.args)
    if args.json:
        render.line({"kind": "plan", "tasks": [task.to_json() for task in made], "estimate": expected._asdict()})
        return 0
    for task in made[:20]:
        words = " ".join(task.args) or task.prompt.partition("\n")[0]
        render.out(f"{task.id}  {render.plain(words)[:100]}")
    if len(made) > 20:
        render.out(f"… and {len(made) - 20} more")
    render.note(expected.words)
    return 0


class Display:
    """A line of counts on a terminal, else a line for each outcome; events as JSON Lines with --json. A page that somebody had made of the
    run is made again beside it, as long as the run goes on and once more at its end. Nobody needs to see it: a run goes on without."""

    def __init__(self, json: bool, folder: str) -> None:
        render.outlive()
        self.json, self.folder, self.run = json, folder, os.path.basename(folder)
        self.live = not json and sys.stderr.isatty()
        self.last = self.paged = 0.0
        self.maker: subprocess.Popen[bytes] | None = None

    def follow(self, folder: str) -> None:
        """Show the run of this directory from now on."""
        self.folder, self.run = folder, os.path.basename(folder)

    def say(self, event: dict[str, Any]) -> None:
        self._page(last=event["kind"] == "finished")
        if self.json:
            render.line(event)
        elif event["kind"] == "outcome":
            why = f": {event['reason']}" if event.get("reason") else ""
            # Only Ctrl-C cancels what is not over by that.
            later = "the same command takes it up again" if event["outcome"] == "cancelled" else "it is tried again"
            again = "" if event.get("final") else f", {later}"
            self._line(f"{event['task']} {event['outcome']}{why}{again}")
        elif event["kind"] == "verified":
            self._line(f"{event['task']} is {event['outcome']}: {event['reason']}")
        elif event["kind"] in TOLD:
            words = event.get("reason") or event.get("words") or event.get("why")
            parts = (event["kind"].removeprefix("reduce-"), event.get("task"), words)
            self._line(": ".join(str(part) for part in parts if part))

    def shown(self, scheduler: Scheduler) -> None:
        self._page()
        if not self.live or time.monotonic() - self.last < 0.5:
            return
        self.last = time.monotonic()
        width = shutil.get_terminal_size().columns
        render.live(self.line(scheduler, scheduler.backend.now())[: width - 1])

    def _page(self, last: bool = False) -> None:
        """At most every `PAGE_SECONDS`; between two events it may wait for that, and then it has both."""
        busy = self.maker is not None and self.maker.poll() is None
        if not os.path.isdir(os.path.join(self.folder, "report")) or (busy and not last):
            return
        if busy and self.maker:
            os.killpg(self.maker.pid, signal.SIGKILL)  # what it has read is old; its files are each whole
            self.maker.wait()
        wait = 0.0 if last else max(0.0, self.paged + PAGE_SECONDS - time.monotonic())
        self.paged = time.monotonic() + wait
        argv = ["sh", "-c", 'sleep "$1"; shift; exec "$@"', "sh", f"{wait:.1f}"]
        argv += [sys.executable, "-m", "muster", "report", self.folder]
        null = subprocess.DEVNULL
        self.maker = subprocess.Popen(argv, stdin=null, stdout=null, stderr=null, start_new_session=True)

    def line(self, scheduler: Scheduler, now: float) -> str:
        """How far it is, what holds it back, who is slow, what it cost, and how fast it goes: a narrow terminal cuts the end."""
        from ..flow.limits.limits import amount, span

        counts = scheduler.counts()
        parts = [f"{self.run} " + ", ".join(f"{count} {word}" for word, count in sorted(counts.items()))]
        parts += self._held(scheduler, now)
        pace, slow = scheduler.pace(now)
        if slow:
            parts.append(f"longest: {slow[0][0]} {span(slow[0][1])}")
        if scheduler.total.tokens:
            known = scheduler.total.dollars is not None
            parts.append(
                amount("dollars", scheduler.total.dollars or 0) if known else amount("tokens", scheduler.total.tokens)
            )
        if pace:
            parts.append(f"{pace * 60:.3g} a minute, {span(scheduler.unfinished / pace)} left")
        return " | ".join(parts)

    def _held(self, scheduler: Scheduler, now: float) -> list[str]:
        """Why no more is launched. What a person asked for is all there is to say."""
        if scheduler.stopping:
            return ["draining" if scheduler.stopping == "drain" else "stopping"]
        if scheduler.paused:
            return [f"paused (muster runs resume {self.run})"]
        diagnoses = dict.fromkeys(pause.diagnosis for pause in scheduler.breaker.pauses.values())
        why = scheduler.governor.why(now)
        return [*(f"launching pauses: {words}" for words in diagnoses), *([why] if why else [])]

    def _line(self, text: str) -> None:
        if self.live:
            render.live()
        render.note(text)

    def end(self) -> None:
        if self.live:
            render.live()


def _place(word: str) -> str:
    if not word.startswith("@") or len(word) < 2:
        raise UsageError(f"{word!r} is not a host", "write @HOST; a prompt is given with -p")
    return Address.parse(word).place


def _agents(word: str) -> int:
    if (number := common.count(word)) < 1:
        raise UsageError("with no agent at all nothing is done", "--max-agents 1 runs one after the other")
    return number


def _tokens(word: str) -> int:
    if (number := common.count(word)) < 1:
        raise UsageError("with no token at all nothing is done", "--budget-tokens 100000")
    return number


def _dollars(word: str) -> float:
    try:
        amount = float(word.removeprefix("$"))
    except ValueError:
        amount = -1.0
    if not 0 < amount < 1e9:
        raise UsageError(f"{word!r} is not an amount of dollars", "such as 2.50")
    return amount
