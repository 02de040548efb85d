"""The battery: what muster needs of a client, tried with one version of it against the scripted model, on loopback alone.

    .venv/bin/python -m tests.agents.battery codex 0.160.0 0.166.0 newest
    .venv/bin/python -m tests.agents.battery --newest          # the newest version of each client: make clients-newest

A version is installed by npm into a cache outside the repository (scripts/setup-clients at); `pinned` is the one that the tests
use. For each version it prints a row (checks that hold, and of how many) and below it every check that failed, with the reason.
The exit code is 1 if any failed. A check that a client has nothing for (no `policy`, no questions) is not counted.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unicodedata
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from muster.plugins import agent_type

from ..conftest import Result, eventually
from ..support import clients
from ..support.model_server import ModelServer
from . import conftest
from .conftest import ClientWorld
from .test_claude import login

Step = dict[str, Any]
ROOT = Path(__file__).parent.parent.parent
#: For one thing to happen. A machine that runs several batteries at once is slow: it may need more.
SECONDS = int(os.environ.get("MUSTER_BATTERY_SECONDS", "45"))
USAGE = {"input": 100, "output": 20}


class Lacking(Exception):
    """The client has nothing that this check could try."""


class Subject(NamedTuple):
    """What is different about a client."""

    world: type[ClientWorld]
    asks: Callable[[str], Step] = lambda command: {"shell": command}
    """A step in which it opens a permission dialog for this command line."""
    question: Step | None = None
    """A step that asks `Which colour?` (Red or Blue)."""
    options: tuple[str, ...] = ()
    """Arguments of the client without which it asks no questions."""
    refusal: Step | None = None
    """A step that is refused for a moment by a busy server."""
    limit: Step | None = None
    """A step that is refused for want of quota."""
    prepare: Callable[[ClientWorld], None] = lambda world: None
    """What the user must have for that refusal to be one of quota."""
    permissions: str = "ask"
    """The `--permissions` with which it asks at all."""
    escapes: int = 1
    """How often Escape must be pressed to interrupt it."""


COLOURS = [{"label": "Red", "description": "warm"}, {"label": "Blue", "description": "cold"}]
COLOUR = {"question": "Which colour?", "header": "Colour", "options": COLOURS}


_FORM = {
    "type": "object",
    "properties": {"colour": {"type": "string", "enum": ["Red", "Blue"]}},
    "required": ["colour"],
}


def _subscribe(world: ClientWorld) -> None:
    """With a key Claude Code takes a refusal for a busy server."""
    del world.env["ANTHROPIC_API_KEY"]
    (world.home / ".claude" / ".credentials.json").write_text(login("token"))


def _escalated(command: str) -> Step:
    words = {"cmd": command, "sandbox_permissions": "require_escalated", "justification": "may I?"}
    return {"tools": [{"name": "exec_command", "input": words}]}


SUBJECTS = {
    "claude": Subject(
        conftest.Claude,
        question={"tools": [{"name": "AskUserQuestion", "input": {"questions": [{**COLOUR, "multiSelect": False}]}}]},
        refusal={"error": 529, "times": 3, "text": "at last"},
        limit={"error": 429, "reset": 7200},
        prepare=_subscribe,
    ),
    "codex": Subject(
        conftest.Codex,
        asks=_escalated,
        question={"tools": [{"name": "request_user_input", "input": {"questions": [{"id": "colour", **COLOUR}]}}]},
        options=("-c", "features.default_mode_request_user_input=true"),
        refusal={"error": 503, "times": 10, "text": "at last"},
        limit={"error": 429, "kind": "usage_limit_reached", "message": "enough"},
    ),
    "opencode": Subject(
        conftest.Opencode,
        question={"tools": [{"name": "question", "input": {"questions": [COLOUR]}}]},
        refusal={"error": 529, "times": 3, "text": "at last"},
        limit={"error": 429, "message": "You have hit your usage limit", "retry_after": 3000},
        escapes=2,
    ),
    "copilot": Subject(
        conftest.Copilot,
        question={"tools": [{"name": "ask_user", "input": {"message": "Which colour?", "requestedSchema": _FORM}}]},
        refusal={"error": 503, "times": 2, "text": "at last"},
        limit={"error": 400, "message": "You have hit your usage limit. Try again in ~7 min."},
        escapes=2,
    ),
    "pi": Subject(
        conftest.Pi,
        # Of three refusals its library tells it once.
        refusal={"error": 503, "times": 9, "text": "at last"},
        limit={"error": 400, "message": "You have hit your usage limit. Try again in ~7 min."},
        permissions="policy",
    ),
}


class Bench:
    """A user with one client, and one agent at a time; checks that follow each other share an agent as long as they hold."""

    def __init__(self, subject: Subject, world: ClientWorld) -> None:
        self.subject, self.world, self.server = subject, world, world.server
        self.kind = agent_type(world.client, {})
        self.name, self._made = "", 0

    def fresh(self, text: str = "hello there", *options: str, args: tuple[str, ...] = ()) -> str:
        """A new agent with this first message, in place of the former one."""
        self.drop()
        self._made += 1
        name = f"a{self._made}"
        words = ["--", *args] if args else []
        self.world.ok("create", name, self.world.client, "--no-connect", *options, "-m", text, *words)
        self.name = name
        return name

    def drop(self) -> None:
        """The agent is of no more use: the next check gets another."""
        if self.name:
            self.world.run("destroy", self.name)
        self.name = ""

    def ready(self) -> str:
        """An agent that waits for a message."""
        if not self.name:
            self.fresh()
            self.until("ready")
        return self.name

    def row(self, name: str = "") -> dict[str, Any]:
        return self.world.agents()[name or self.name]

    def until(self, state: str, name: str = "") -> dict[str, Any]:
        result = self.world.run("wait", name or self.name, "--until", state, "--timeout", f"{SECONDS}s")
        row = self.row(name)
        assert result.code == 0, f"{row['state']} ({row['reason']}) instead of {state}"
        return row

    def message(self, text: str) -> Result:
        return self.world.run("message", self.name, "-m", text)

    def tell(self, text: str, word: str = "delivered") -> None:
        """Send a message that must be taken."""
        result = self.message(text)
        assert result.code == 0 and f"{word}: {self.name}" in result.stderr, last(result)

    def asked(self) -> None:
        """The agent waits for a permission to make `made.txt`."""
        self.server.register("tool", self.subject.asks("echo made > made.txt"), {"text": "made it"})
        if self.subject.permissions == "policy":
            self.rules()
        self.fresh("#scn:tool please", "--permissions", self.subject.permissions)
        row = self.until("waiting")
        assert row["reason"] == "permission", row["reason"]

    def questioned(self) -> None:
        if not self.subject.question:
            raise Lacking
        self.server.register("ask", self.subject.question, {"text": "thanks"})
        self.fresh("#scn:ask please", args=self.subject.options)
        row = self.until("waiting")
        assert row["reason"] == "question", row["reason"]

    def heard(self) -> list[str]:
        """What the user said in the newest conversation, as the model was given it."""
        turns = self.server.turns()
        return [normal(text) for text in self.server.user_texts(turns[-1].session)] if turns else []

    def hears(self, *texts: str, joined: bool = False) -> None:
        """Wait until the model was given these texts; `joined`: a client may make one of several."""
        wanted = [normal(text) for text in texts]
        deadline = time.monotonic() + SECONDS
        while self.heard() != wanted and not (joined and "\n\n".join(self.heard()) == "\n\n".join(wanted)):
            assert time.monotonic() < deadline, f"the model was given {shortened(self.heard())}"
            time.sleep(0.1)

    def exists(self, file: str) -> bool:
        return (Path(self.row()["workdir"]) / file).exists()

    def kinds(self) -> list[str]:
        return [event["kind"] for event in self.world.ok("events", self.name, "--json").json["events"]]

    def press(self, *keys: str) -> None:
        """Press keys a moment apart: Escape and another key at once are one with Alt, and a client waits for a second Escape only briefly."""
        words: list[str] = []
        for key in keys:
            words += ["send-keys", "-t", f"={self.row()['id']}:", key, ";", "run-shell", "sleep 0.15", ";"]
        self.world.tmux(*words[:-1])

    def kill(self) -> None:
        """Kill -9 the client with every process of its own; the wrapper of muster stays."""
        ours = {b"sh", b"dash", b"bash", b"script", b"tmux", b"cat", b"sleep"}
        found = []
        for pid in self.world.processes(self.row()["id"]):
            try:
                program = os.path.basename(Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0])
            except OSError:
                continue
            if program not in ours:
                found.append(pid)
        assert found, "it has no process"
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def rules(self) -> None:
        if not self.kind.policy:
            raise Lacking
        path = self.world.home / ".config" / "muster" / "config.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('[permissions]\nallow = ["Bash(touch *)"]\ndeny = ["Bash(rm *)"]\n')


def normal(text: str) -> str:
    """The text as clients may have it: composed accents, no white space at its ends, no harmless word before it."""
    return unicodedata.normalize("NFC", text).replace("\t", "    ").strip().removeprefix("Message: ")


def shortened(value: object) -> str:
    text = repr(value)
    return text if len(text) < 160 else f"{text[:80]} … {text[-60:]}"


def last(result: Result) -> str:
    lines = result.stderr.strip().splitlines()
    return f"exit {result.code}: {lines[0] if lines else ''}"


Check = Callable[[Bench], None]
#: The checks in groups; those of a group run one after the other, groups beside each other.
CHECKS: dict[str, dict[str, Check]] = {"messages": {}, "dialogs": {}, "life": {}, "rules": {}}


def check(group: str) -> Callable[[Check], Check]:
    def add(function: Check) -> Check:
        CHECKS[group][function.__name__.replace("_", " ")] = function
        return function

    return add


# Messages


@check("messages")
def create_with_a_first_message(bench: Bench) -> None:
    bench.fresh("hello there")
    row = bench.until("ready")
    assert row["reason"] is None and row["last_line"] == "hello there", (row["reason"], row["last_line"])
    bench.hears("hello there")


SHAPES = {
    "plain words": "say it again",
    "two lines with quotes": 'two lines\nwith "quotes", $HOME, `ticks` and \\n',
    "paragraphs": "one\n\ntwo\n\n- three\n- four",
    "ends in @a.txt": "look at @a.txt",
    "ends in a word behind /": "the end is /help",
    "ends in a backslash": "the end is \\",
    "ends in an open bracket": "the end is (",
    "ends in a closed bracket": "the end is [x]",
    "ends in an emoji": "the end is 🎉",
    "decomposed accents": unicodedata.normalize("NFD", "Résumé, naïve, Ångström"),
    "begins with /": "/quit is no command here",
    "begins with !": "!ls is none either",
    "exit": "exit",
    ":q": ":q",
    "20,000 characters": "x" * 20_000,
}


def _shape(text: str) -> Check:
    def run(bench: Bench) -> None:
        bench.ready()
        before = bench.heard()
        bench.tell(text)
        bench.until("ready")
        bench.hears(*before, text)

    return run


for _name, _text in SHAPES.items():
    CHECKS["messages"][f"message: {_name}"] = _shape(_text)


@check("messages")
def messages_to_one_that_works(bench: Bench) -> None:
    """Both reach the model, each once; what was said of them is what became of them."""
    bench.server.register("slow", {"text": "at last", "hold": "go"})
    bench.fresh("#scn:slow please")
    bench.until("working")
    eventually(bench.server.turns, SECONDS)
    for text in ("first in line", "second in line"):
        result = bench.message(text)
        assert result.code == 0, last(result)
    bench.server.release("go")
    bench.hears("#scn:slow please", "first in line", "second in line", joined=True)
    bench.until("ready")


@check("messages")
def tokens_are_counted_once(bench: Bench) -> None:
    bench.server.register("dear", {"text": "words", "usage": USAGE})
    bench.fresh("#scn:dear please")
    bench.until("ready")
    deadline = time.monotonic() + SECONDS
    while (tokens := bench.row()["tokens"]) != 120:
        assert time.monotonic() < deadline, f"{tokens} instead of 120"
        time.sleep(0.1)


@check("messages")
def transcript(bench: Bench) -> None:
    bench.fresh("hello there")
    bench.until("ready")
    entries = bench.world.ok("transcript", bench.name, "--json").json["entries"]
    told = [(entry["role"], entry["text"].strip()) for entry in entries]
    assert told == [("user", "hello there"), ("assistant", "hello there")], told


@check("messages")
def the_user_s_configuration_stays(bench: Bench) -> None:
    before = bench.world.settings
    after = {path: path.read_bytes() if path.exists() else b"" for path in before}
    assert after == before, f"changed: {[path.name for path in before if before[path] != after[path]]}"


# Dialogs


@check("dialogs")
def a_dialog_is_seen(bench: Bench) -> None:
    bench.asked()
    assert "made.txt" in bench.row()["last_line"], bench.row()["last_line"]


@check("dialogs")
def a_message_does_not_answer_a_dialog(bench: Bench) -> None:
    if not bench.name:
        bench.asked()
    result = bench.message("hello?")
    assert result.code == 7, last(result)
    assert not bench.exists("made.txt") and bench.row()["state"] == "waiting"


@check("dialogs")
def yes(bench: Bench) -> None:
    if not bench.name:
        bench.asked()
    result = bench.world.run("answer", bench.name, "yes")
    assert result.code == 0, last(result)
    row = bench.until("ready")
    assert bench.exists("made.txt") and row["last_line"] == "made it"
    bench.hears("#scn:tool please")


@check("dialogs")
def no(bench: Bench) -> None:
    bench.asked()
    result = bench.world.run("answer", bench.name, "no")
    assert result.code == 0, last(result)
    bench.until("ready")
    assert not bench.exists("made.txt")


@check("dialogs")
def message_after_no(bench: Bench) -> None:
    bench.ready()
    bench.tell("something else")
    bench.until("ready")
    assert bench.heard()[-1] == "something else"


@check("dialogs")
def a_question_is_seen(bench: Bench) -> None:
    bench.questioned()
    assert "Which colour?" in bench.row()["last_line"]
    assert bench.message("hello?").code in (0, 7)


@check("dialogs")
def a_question_is_answered_by_an_entry(bench: Bench) -> None:
    bench.questioned()
    result = bench.world.run("answer", bench.name, "blue")
    assert result.code == 0, last(result)
    bench.until("ready")
    results = bench.server.turns()[-1].tool_results
    assert results and "Blue" in results[-1], results[-1:]


@check("dialogs")
def a_question_is_answered_by_a_number(bench: Bench) -> None:
    bench.questioned()
    result = bench.world.run("answer", bench.name, "2")
    assert result.code == 0, last(result)
    bench.until("ready")
    results = bench.server.turns()[-1].tool_results
    assert results and "Blue" in results[-1], results[-1:]


@check("dialogs")
def a_question_is_answered_in_one_s_own_words(bench: Bench) -> None:
    bench.questioned()
    result = bench.world.run("answer", bench.name, "green, of course")
    assert result.code == 0, last(result)
    bench.until("ready")
    results = bench.server.turns()[-1].tool_results
    assert results and "green, of course" in results[-1], results[-1:]


@check("dialogs")
def esc_interrupts(bench: Bench) -> None:
    bench.server.register("slow", {"text": "never said", "hold": "never"})
    bench.fresh("#scn:slow please")
    bench.until("working")
    count = len(bench.server.turns())
    eventually(lambda: len(bench.server.turns()) > count or bench.server.turns()[-1].scenario == "slow", SECONDS)
    bench.press(*["Escape"] * bench.subject.escapes)
    row = bench.until("ready")
    assert row["reason"] == "interrupted", row["reason"]


@check("dialogs")
def message_after_esc(bench: Bench) -> None:
    bench.ready()
    bench.tell("something else")
    bench.until("ready")
    assert bench.heard()[-1] == "something else", shortened(bench.heard())
    bench.server.release("never")


# Stopping, starting, dying


@check("life")
def stop(bench: Bench) -> None:
    bench.fresh("remember this")
    bench.until("ready")
    bench.world.ok("stop", bench.name)
    assert bench.row()["state"] == "stopped" and not bench.world.processes(bench.row()["id"])


@check("life")
def start_and_a_message_at_once(bench: Bench) -> None:
    """As a script does it: the message waits until the input box is open, and arrives whole."""
    if not bench.name:
        stop(bench)
    bench.world.ok("start", bench.name)
    bench.tell("and this")
    bench.until("ready")
    bench.hears("remember this", "and this")


@check("life")
def kill_9(bench: Bench) -> None:
    if not bench.name:
        bench.fresh("remember this")
        bench.until("ready")
    bench.kill()
    assert bench.until("failed")["reason"] in ("signal 9", "exit code 137"), bench.row()["reason"]


@check("life")
def start_after_kill_9(bench: Bench) -> None:
    if not bench.name:
        bench.fresh("remember this")
        bench.until("ready")
        bench.kill()
        bench.until("failed")
    before = bench.heard()
    bench.world.ok("start", bench.name)
    bench.until("ready")
    bench.tell("and that")
    bench.until("ready")
    bench.hears(*before, "and that")


@check("life")
def clone_with_the_conversation(bench: Bench) -> None:
    bench.fresh("remember this")
    bench.until("ready")
    bench.world.ok("clone", bench.name, "copy", "-m", "what do you remember?")
    try:
        bench.until("ready", "copy")
        bench.hears("remember this", "what do you remember?")
    finally:
        bench.world.run("destroy", "copy")


@check("life")
def a_failed_turn(bench: Bench) -> None:
    bench.server.register("bad", {"error": 400, "message": "no good"})
    bench.fresh("#scn:bad please")
    row = bench.until("ready")
    assert row["reason"] == "failed turn" and "no good" in row["last_line"], (row["reason"], row["last_line"])


@check("life")
def retry(bench: Bench) -> None:
    if not bench.subject.refusal:
        raise Lacking
    bench.server.register("busy", bench.subject.refusal)
    bench.fresh("#scn:busy please")
    seen = set()
    deadline = time.monotonic() + SECONDS
    while ("working", "retry") not in seen:
        row = bench.row()
        seen.add((row["state"], row["reason"]))
        assert time.monotonic() < deadline and row["state"] != "ready", f"only seen: {sorted(map(str, seen))}"
        time.sleep(0.05)


@check("life")
def limit(bench: Bench) -> None:
    if not bench.subject.limit:
        raise Lacking
    before = dict(bench.world.env)
    try:
        bench.subject.prepare(bench.world)
        bench.server.register("limit", bench.subject.limit)
        bench.fresh("#scn:limit please")
        row = bench.until("waiting")
        assert row["reason"] == "limit", row["reason"]
    finally:
        bench.world.env = before
        bench.drop()


# Permissions


@check("rules")
def policy_allows(bench: Bench) -> None:
    bench.rules()
    bench.server.register("allowed", {"shell": "touch allowed.txt"}, {"text": "done"})
    bench.fresh("#scn:allowed please", "--permissions", "policy")
    bench.until("ready")
    assert bench.exists("allowed.txt") and "permission" not in bench.kinds()


@check("rules")
def policy_denies(bench: Bench) -> None:
    bench.rules()
    bench.server.register("denied", {"shell": "rm README"}, {"text": "done"})
    bench.fresh("#scn:denied please", "--permissions", "policy")
    bench.until("ready")
    assert bench.exists("README") and "permission" not in bench.kinds()


@check("rules")
def policy_asks_for_the_rest(bench: Bench) -> None:
    """A model that is told to ask does so, as the second step does for a client that refuses the first."""
    bench.rules()
    steps = [{"shell": "echo > rest.txt"}, bench.subject.asks("echo > rest.txt")]
    bench.server.register("rest", *steps, {"text": "done"})
    bench.fresh("#scn:rest please", "--permissions", "policy")
    row = bench.until("waiting")
    assert row["reason"] == "permission" and not bench.exists("rest.txt")


@check("rules")
def ask_asks(bench: Bench) -> None:
    if bench.subject.permissions != "ask":
        raise Lacking
    bench.server.register("made", bench.subject.asks("echo > made.txt"), {"text": "done"})
    bench.fresh("#scn:made please", "--permissions", "ask")
    assert bench.until("waiting")["reason"] == "permission" and not bench.exists("made.txt")


@check("rules")
def bypass_asks_nothing(bench: Bench) -> None:
    if not bench.kind.bypass:
        raise Lacking
    outside = bench.world.home / "outside.txt"
    bench.server.register("out", {"shell": f"echo made > {outside}"}, {"text": "done"})
    bench.fresh("#scn:out please", "--permissions", "bypass")
    bench.until("ready")
    assert outside.exists() and "permission" not in bench.kinds()


@check("rules")
def explain_names_its_evidence(bench: Bench) -> None:
    bench.drop()  # a client without a bypass still waits for the permission of the check before
    bench.ready()
    told = bench.world.ok("explain", bench.name, "--json").json
    assert told["state"] == "ready" and any(item["source"].startswith("event") for item in told["evidence"]), told


@check("rules")
def six_at_once_where_it_never_ran(bench: Bench) -> None:
    bench.drop()
    home = bench.world.home
    kept = home.rename(home.with_name("kept"))
    try:
        home.mkdir()
        env = dict(bench.world.env)
        bench.world.settle()
        bench.world.env = env
        made = bench.world.run("create", "six", bench.world.client, "--no-connect", "--count", "6", "-m", "hello")
        assert made.code == 0, last(made)
        names = [f"six-{number}" for number in range(1, 7)]
        bench.world.run("wait", *names, "--until", "ready", "--timeout", f"{2 * SECONDS}s")
        rows = bench.world.agents()
        states = [rows[name]["state"] for name in names]
        assert states == ["ready"] * 6, states
    finally:
        bench.world.run("destroy", "six-*")
        shutil.rmtree(home, ignore_errors=True)
        kept.rename(home)


# Running them


class Outcome(NamedTuple):
    """What one check gave: `why` is empty if it held and None if there was nothing to try."""

    name: str
    why: str | None
    seconds: float


@contextmanager
def bench(client: str, place: Path) -> Iterator[Bench]:
    """A user with this client. Everything of it is gone at the end."""
    subject = SUBJECTS[client]
    folder = Path(tempfile.mkdtemp(prefix="battery-"))
    try:
        with clients.Offline() as offline, ModelServer(netns=offline.path) as server:
            world = subject.world(folder / "w", offline, server, place)
            (world.repo / "a.txt").write_text("a\n")
            world.git("add", "-A")
            world.git("commit", "-qm", "a.txt")
            try:
                yield Bench(subject, world)
            finally:
                world.end()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run_group(client: str, place: Path, group: str, only: str = "") -> list[Outcome]:
    outcomes = []
    chosen = {name: function for name, function in CHECKS[group].items() if only in name}
    if not chosen:
        return []
    with bench(client, place) as one:
        for name, function in chosen.items():
            began = time.monotonic()
            why: str | None = ""
            try:
                function(one)
            except Lacking:
                why = None
            except Exception as error:
                why = re.sub(r"\s+", " ", f"{error}" or type(error).__name__)[:300]
                one.drop()
            outcomes.append(Outcome(name, why, time.monotonic() - began))
    return outcomes


def run(client: str, place: Path, only: str = "", jobs: int = 4) -> list[Outcome]:
    """Every check of the battery, in order."""
    with ThreadPoolExecutor(jobs) as pool:
        found = list(pool.map(lambda group: run_group(client, place, group, only), CHECKS))
    return [outcome for group in found for outcome in group]


def install(client: str, version: str) -> tuple[str, Path]:
    """Return the version and the folder of its program. Raises Missing."""
    if version == "pinned":
        return f"{agent_type(client, {}).versions['install']}", clients.find(client).parent
    done = subprocess.run(
        ["sh", str(ROOT / "scripts" / "setup-clients"), "at", client, version],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        raise clients.Missing(f"{client} {version} cannot be installed")
    number, folder = done.stdout.split()
    return number, Path(folder)


def report(client: str, number: str, outcomes: list[Outcome], seconds: float, say: Callable[[str], None]) -> int:
    """Print the row of one version; returns how many checks failed."""
    tried = [outcome for outcome in outcomes if outcome.why is not None]
    failed = [outcome for outcome in tried if outcome.why]
    say(f"{client:<9} {number:<9} {len(tried) - len(failed):>2} of {len(tried)}  ({seconds:.0f} s)")
    for outcome in failed:
        say(f"    {outcome.name}: {outcome.why}")
    return len(failed)


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.agents.battery", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("client", nargs="?", choices=sorted(SUBJECTS))
    parser.add_argument("versions", nargs="*", default=["pinned"], help="such as 0.166.0; pinned; newest")
    parser.add_argument("--newest", action="store_true", help="the newest version of every client")
    parser.add_argument("--only", default="", metavar="WORDS", help="checks whose name has these words")
    parser.add_argument("--jobs", type=int, default=4, metavar="N", help="groups of checks that run beside each other")
    parser.add_argument("--json", action="store_true", help="each version as one JSON object on a line")
    args = parser.parse_args(words)
    wanted = [(name, "newest") for name in SUBJECTS] if args.newest else [(args.client, v) for v in args.versions]
    if not args.newest and not args.client:
        parser.error("name a client, or --newest")
    bad = 0
    for client, version in wanted:
        began = time.monotonic()
        try:
            number, place = install(client, version)
            outcomes = run(client, place, args.only, args.jobs)
        except clients.Missing as missing:
            print(f"{client:<9} {version:<9} {missing}", flush=True)
            bad += 1
            continue
        seconds = time.monotonic() - began
        if args.json:
            found = {outcome.name: outcome.why for outcome in outcomes}
            print(json.dumps({"client": client, "version": number, "checks": found}), flush=True)
            bad += sum(bool(why) for why in found.values())
        else:
            bad += report(client, number, outcomes, seconds, lambda line: print(line, flush=True))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
