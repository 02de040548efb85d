"""Runs of the real fleet on hosts that are not there: only the clock and `Host` are made up.

A simulated host keeps the folders of its agents in memory and answers the shell files that muster runs on a host. What the agents
do is decided by `sim.Truth`; all of it that is known is known by what muster asks, parses, judges and harvests as ever.
"""

from __future__ import annotations

import fnmatch
import hashlib
import heapq
import io
import itertools
import json
import random
import re
import subprocess
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any
from unittest import mock

from muster import Address, Fleet, Host, Spec
from muster.agents.replay.player.files import sealed
from muster.errors import MusterError, TimedOut, Unreachable
from muster.fanout import URGENT_THREADS, Outcome
from muster.flow.limits.governor import Limits
from muster.flow.mapping import start
from muster.flow.run.directory import Run
from muster.store import tar

from ..support import chains, events
from .sim import RESULT, One, Truth, World

BASE = "b" * 40
PATCH = b"diff --git a/f b/f\n"
CONFIG = """
[types.sim]
argv = ["sim"]
prompt = "PROMPT"
speaks = true
receipt = "prompt"
retries = "trying again"
transcript = "session/transcript.jsonl"
"""
#: What a shell file prints, or the code that it fails with and its complaint.
Answer = bytes | tuple[int, bytes]


class Clock:
    """Time that passes only when somebody waits. What works beside each other on a crew is done one after the other, each from the
    moment at which its thread had time for it."""

    def __init__(self, truth: Truth) -> None:
        self.truth = truth

    def time(self) -> float:
        return self.truth.t

    def sleep(self, seconds: float) -> None:
        self.truth.t += seconds

    def crew(self, limit: int) -> Crew:
        return Crew(self.truth, limit)


class Crew:
    """`fanout.Crew` in that time, with as many threads."""

    def __init__(self, truth: Truth, limit: int) -> None:
        self.truth, self.order = truth, itertools.count()
        self.free = {False: limit, True: URGENT_THREADS}
        self.todo: dict[bool, deque[tuple[Any, Callable[[], object]]]] = {False: deque(), True: deque()}
        self.ended: list[tuple[float, int, bool, Outcome[Any, Any]]] = []

    def start(self, key: Any, work: Callable[[], object], urgent: bool = False) -> None:
        self.todo[urgent].append((key, work))
        self._go_on(urgent)

    def _go_on(self, urgent: bool) -> None:
        while self.todo[urgent] and self.free[urgent]:
            self.free[urgent] -= 1
            key, work = self.todo[urgent].popleft()
            began = self.truth.t
            try:
                outcome: Outcome[Any, Any] = Outcome(key, work())
            except MusterError as error:
                outcome = Outcome(key, None, error)
            heapq.heappush(self.ended, (self.truth.t, next(self.order), urgent, outcome))
            self.truth.t = began

    def done(self, timeout: float) -> list[Outcome[Any, Any]]:
        until, found = self.truth.t + timeout, []
        if not self.ended or self.ended[0][0] > until:
            self.truth.t = until
            return []
        self.truth.t = max(self.truth.t, self.ended[0][0])
        while self.ended and self.ended[0][0] <= self.truth.t:
            _, _, urgent, outcome = heapq.heappop(self.ended)
            found.append(outcome)
            self.free[urgent] += 1
            self._go_on(urgent)
        return found


class Streamed(io.BytesIO):
    """A process that has printed all it had to."""

    returncode = 0

    @property
    def stdout(self) -> Streamed:
        return self

    def wait(self) -> int:
        return 0


class SimHost:
    """Answers what muster asks a host; what it does not know how to answer is an error of the simulation."""

    provider = "ssh"

    def __init__(self, sim: Sim, name: str) -> None:
        self.home = ""
        self.sim, self.truth, self.name, self.local = sim, sim.truth, name, not name
        self.files: dict[str, dict[str, bytes]] = {}
        self.names: dict[str, str] = {}
        self.typed: dict[str, str] = {}
        self.box: dict[str, str] = {}
        self.refs: dict[str, str] = {}
        self.looked: list[float] = []
        self.state = f"/sim/{name or 'here'}"

    def run(
        self, argv: Sequence[str], *, input: bytes | IO[bytes] | None = None, timeout: float | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        truth, world = self.truth, self.truth.world
        if mark := chains.mark(argv):
            answers: list[tuple[int, bytes]] = []
            for part in chains.parts(argv):
                done = self.run(part.argv, input=input if part.reads else None, timeout=timeout)
                answers.append((done.returncode, done.stdout))
                if done.returncode:
                    break
            return subprocess.CompletedProcess(list(argv), answers[-1][0], chains.joined(mark, answers), done.stderr)
        truth.t += self.sim.chance.uniform(*self.sim.latency)
        if argv[0] == "git":
            return subprocess.CompletedProcess(list(argv), self._git(list(argv[5:])), b"", b"")
        if argv[0] == "env" and "rev-parse" in argv:  # the repository is simulated, too
            return subprocess.CompletedProcess(list(argv), 1, b"", b"fatal: not a git repository")
        if argv[0] == "env" and "update-ref" in argv:
            answer = self._git(list(argv[list(argv).index("update-ref") :]))
            return subprocess.CompletedProcess(list(argv), answer, b"", b"")
        assert argv[0] == "sh" and argv[3].startswith("muster-"), argv
        name, args = argv[3].removeprefix("muster-"), list(argv[5:])
        self.sim.asked[name if not name.startswith("git-") else f"{name} {args[0]}"] += 1
        if self.name:
            truth.reach(self.name)
            if name == "survey" and world.unreachable and self.sim.chance.random() < world.unreachable:
                truth.t += timeout or 0.0
                raise TimedOut("it does not answer")
        assert input is None or isinstance(input, bytes)
        told = getattr(self, f"_{name.replace('-', '_')}")(*args, input=input or b"")
        code, out = told if isinstance(told, tuple) else (0, told)
        if name == "start" and not code and self.sim.chance.random() < world.cut:
            raise Unreachable(f"host {self.name} did not answer")
        return subprocess.CompletedProcess(list(argv), code, b"" if code else out, out if code else b"")

    def stream(
        self, argv: Sequence[str], *, stdin: int | IO[bytes] | None = None, stdout: int | IO[bytes] | None = None
    ) -> Any:
        # Behind what keeps its complaints from the terminal
        return Streamed(self.run(argv[4:], input=b"").stdout)

    def attach(self, argv: Sequence[str]) -> list[str]:
        raise NotImplementedError

    # What an agent is like now

    def _survey(self, what: str = "", name: str = "", agent: str = "", *, input: bytes) -> bytes:
        t, world = self.truth.t, self.truth.world
        agent = agent or self.names.get(name, "")
        chosen = [agent] if what == "one" and agent else list(self.files)
        lines, tails = [f"now {t:.6f}", f"home {self.state}"], [b"tails"]
        reset, crowded = self.truth.seen() if what == "load" else (self.truth._reset, False)
        if what == "load":
            self.looked.append(t)
            here = self.truth.agents[self.name]
            free = (world.memory - len(here) * world.per_agent) / 1024
            lines.append(f"load {0.1 * len(here):.2f} 8 {int(free)} {100 << 20}")
        for key in chosen:
            if key not in self.files:
                continue
            files, one = self.files[key], self.truth.agents[self.name].get(key)
            lines.append(f"dir {key}")
            extra: dict[str, Any] = {}
            if one is not None:
                pane, extra = self._shown(one, t, reset, crowded)
                lines.append(f"pane {key} {pane}")
                tails.append(
                    f"==> ./{key}/rec/tail <==\n{'AssertionError: no' if one.end == 'failed' else 'work'}\n".encode()
                )
                dollars, tokens = self.truth.used(one)
                usage = {"input_tokens": tokens} | ({} if dollars is None else {"cost_usd": dollars})
                lines.append(f"file {key}/usage.json\t{json.dumps(usage)}")
            for path in ("agent.json", "ev/started", "ev/ready", "ev/stopped", "ev/prompt"):
                if path in files:
                    lines.append(f"file {key}/{path}\t{files[path].decode().rstrip()}")
            lines += [f"file {key}/{path}\t{self._line(key, path, value)}" for path, value in extra.items()]
        lines += [f"file ../names/{name}\t{key}" for name, key in self.names.items() if what != "one" or key in chosen]
        return "\n".join(lines).encode() + b"\n" + b"\n".join(tails)

    def _line(self, key: str, path: str, value: Any) -> str:
        if path != "result.json":
            return json.dumps(value)
        (secret,) = re.findall(rb"MUSTER_RESULT_KEY=(\w+)", self.files[key]["env"])
        return sealed(value[:-1], secret.decode()).rstrip()

    def _shown(self, one: One, t: float, reset: float, crowded: bool) -> tuple[str, dict[str, Any]]:
        """What tmux says of its session, and the files that it has written by now."""
        alive, worked = "0 - 0 7 sim 0", t - one.begun
        if self.sim.prompt == "typed" and not one.told:
            return alive, {}
        if reset and worked < one.works:
            return alive, {"ev/limit": {"t": self.truth.limits[reset], "until": reset, "text": "limit"}}
        if worked < one.works or one.end == "hang":
            since = one.begun if one.end == "hang" else one.begun + worked // 10 * 10
            refused = crowded and one.end != "hang"
            return "0 - 0 7 sim 1" if refused else alive, {"ev/tool": {"t": since + 0.01, "name": "Bash"}}
        over = one.begun + one.works
        if one.end == "failed":
            return "1 1 0 7 sim 0", {"ev/exit": {"t": over, "code": 1}}
        if one.end == "silent":
            return alive, {"ev/turn-end": {"t": max(over, one.heard + 0.5 if one.told else 0.0), "text": "Well."}}
        assert one.end == "ok"
        return alive, {"ev/turn-end": {"t": over, "text": "Done."}, "result.json": RESULT}

    # What muster does with it

    def _claim(self, key: str, name: str, *, input: bytes) -> Answer:
        if name in self.names:
            return 17, b"taken"
        self.files[key], self.names[name] = _untar(input), key
        return f"{self.state}\n".encode()

    def _put(self, key: str, new: str, *folders: str, input: bytes) -> Answer:
        if key not in self.files:
            return 3, b"no agent"
        found = _untar(input)
        if new:
            self.files[key]["agent.json"] = found[new]
        if "env" in found:
            self.files[key]["env"] = found["env"]
        return b""

    def _start(self, key: str, *size: str, input: bytes) -> Answer:
        assert json.loads(self.files[key]["agent.json"])["base"] == BASE
        if self.truth.begins(self.name, key) is None:
            return 1, b"tmux: No space left on device"
        event = json.dumps({"t": self.truth.t}).encode()
        self.files[key] |= {"ev/started": event, "ev/ready" if self.sim.prompt == "typed" else "ev/prompt": event}
        return b""

    def _stop(self, grace: str, reap: str, *keys: str, input: bytes) -> bytes:
        lines = []
        for key in keys:
            live = key in self.truth.agents[self.name]
            if live:
                self.files[key]["ev/stopped"] = json.dumps({"t": self.truth.t}).encode()
                self.truth.ends(self.name, key)
            lines.append(f"{key} {int(live)} 0\n" if key in self.files else f"{key} missing\n")
        return "".join(lines).encode()

    def _release(self, key: str, name: str, *, input: bytes) -> bytes:
        self._forget(key, name)
        return b""

    def _records(self, *keys: str, input: bytes) -> bytes:
        for key, record in _untar(input).items():
            if key in self.files:
                self.files[key]["agent.json"] = record
        return "".join(f"{key} missing\n" for key in keys if key not in self.files).encode()

    def _trash(self, verb: str, *keys: str, input: bytes) -> bytes:
        if verb == "forget":
            for key, name in zip(keys, input.decode().split(), strict=True):
                assert key not in self.truth.agents[self.name], "it is stopped before that"
                self._forget(key, name)
        assert verb in ("forget", "work", "scrap", "list")
        return b""

    def _forget(self, key: str, name: str) -> None:
        self.files.pop(key, None)
        if self.names.get(name) == key:
            del self.names[name]

    def _lock(self, *args: str, input: bytes) -> bytes:
        return b""

    def _get(self, key: str, *patterns: str, input: bytes) -> Answer:
        if key not in self.files:
            return 3, b"no agent"
        have = {**self.files[key], "events.jsonl": b'{"kind": "started", "t": 1}\n', "session/transcript.jsonl": b""}
        found = {path: have[path] for path in have if any(fnmatch.fnmatchcase(path, one) for one in patterns)}
        return tar(found) if found else b""

    def _receipt(self, key: str, seen: str, ticks: str, *sized: str, input: bytes) -> Answer:
        files = self.files.get(key)
        return (3, b"no agent") if files is None else b"at:" + files.get("ev/prompt", b"")[:30] + b"\n"

    def _artifacts(self, key: str, limit: str, *, input: bytes) -> bytes:
        return b""

    def _tmux(self, verb: str, key: str, *keys: str, input: bytes) -> bytes:
        one = self.truth.agents[self.name].get(key)
        if verb == "look":
            rule = "─" * 40
            return f"||||\n1\n{rule}\n❯ {self.box.get(key, '')}\n{rule}\n".encode()
        if verb == "paste":
            self.typed[key] = "".join(input.decode().splitlines(keepends=True)[int(keys[1]) :])
            self.box[key] = self.typed[key]
            if keys[3:] == ("look",):
                return self._tmux("look", key, input=b"")
        elif verb == "press" and keys[3:] == ("Enter",) and one is not None:
            one.told, one.heard = one.told + 1, self.truth.t
            self.files[key]["ev/prompt"] = json.dumps({"t": self.truth.t, "text": self.box.pop(key, "")}).encode()
        return b""

    # Its repositories

    def _git(self, words: list[str]) -> int:
        if words[0] == "show-ref":
            return 0 if words[-1] in self.refs else 1
        assert words[0] == "update-ref", words
        self.refs[words[-2]] = words[-1]
        return 0

    def _git_look(self, verb: str, path: str, *args: str, input: bytes) -> bytes:
        if verb == "capture":
            return f"{BASE} {BASE}\n".encode()
        assert verb == "find"
        where = f"false\nfalse\nsha1\n{path}/.git\n--:\n{path}/.git\n--:\n\n--:\n{path}"
        return "\0".join([where, BASE, "refs/heads/main", "", "", "", ""]).encode()

    def _git_seed(self, verb: str, *args: str, input: bytes) -> bytes:
        if verb == "haves":
            return f"{BASE} {args[1]}".encode()
        assert verb == "mirror"
        return b""

    def _git_work(self, verb: str, *args: str, input: bytes) -> bytes:
        if verb == "info":
            trees = input.decode().splitlines()[::4]
            rows = (
                f"{n} {int(self._tip(tree) != BASE)} {self._dirty(tree)} {self._tip(tree)}"
                for n, tree in enumerate(trees)
            )
            return "\n".join(rows).encode()
        if verb == "tip":
            return f"{self._tip(args[0], bool(args[-1]))} {self._tip(args[0])}".encode()
        if verb == "diff":
            return PATCH if args[4] else PATCH * 2
        assert verb == "land"
        _, _, ref, commit, *_ = args
        if ref:
            self.refs[ref] = commit
        return b""

    def _tip(self, workdir: str, uncommitted: bool = False) -> str:
        """One that has done its task has committed it."""
        one = self.truth.agents[self.name].get(workdir.rpartition("/")[2])
        if not uncommitted and (one is None or one.end != "ok" or self.truth.t < one.begun + one.works):
            return BASE
        return hashlib.sha1(f"{workdir}{uncommitted}".encode()).hexdigest()

    def _dirty(self, workdir: str) -> int:
        return int(self._tip(workdir) == BASE)


def _untar(archive: bytes) -> dict[str, bytes]:
    files, at = {}, 0
    while archive[at : at + 1] not in (b"", b"\0"):
        name, size = archive[at : at + 100].rstrip(b"\0").decode(), int(archive[at + 124 : at + 135], 8)
        files[name] = archive[at + 512 : at + 512 + size]
        at += 512 + -(-size // 512) * 512
    return files


class Sim(Fleet):
    """The fleet, with these hosts and this clock."""

    def __init__(
        self, folder: Path, world: World, latency: tuple[float, float] = (0.02, 0.2), prompt: str = "environment"
    ) -> None:
        (folder / "repo").mkdir(parents=True)
        (folder / ".config/muster").mkdir(parents=True)
        (folder / ".config/muster/config.toml").write_text(CONFIG.replace("PROMPT", prompt))
        env = {"HOME": str(folder), "MUSTER_HOME": str(folder / "state"), "PATH": ""}
        super().__init__(env, str(folder / "repo"))
        self.prompt = prompt
        self.truth, self.latency, self.chance = Truth(world, 1_800_000_000.0), latency, random.Random(world.seed)
        self.clock, self.asked = Clock(self.truth), Counter[str]()
        self.here = SimHost(self, "")
        self.here.home = self.home
        self.local: Host = self.here
        self.there = {f"h{number}": SimHost(self, f"h{number}") for number in range(world.hosts)}

    def host(self, address: Address) -> Host:
        return self.there[address.place] if address.place else self.local

    def crew(self, limit: int) -> Any:
        return self.clock.crew(limit)

    def map(self, count: int, *, retries: int = 1, stall: float = 300.0, **limits: Any) -> Run:
        """A whole run, as `muster map` does it."""
        items = [{"item": f"t{number}"} for number in range(count)]
        wish = start.MapRequest(
            Spec(Address(""), "sim", permissions="ask"),
            "Look at {item}",
            (),
            items,
            tuple(self.there),
            retries=retries,
            stall=stall,
            limits=Limits(**{"max_agents": 50, **limits}),
        )
        ticks = {"time": self.clock.time, "monotonic": self.clock.time, "sleep": self.clock.sleep}
        # Jitter, too, is the same each time.
        jitter = mock.patch.object(random, "random", random.Random(self.truth.world.seed).random)
        with mock.patch.multiple(time, **ticks), jitter:
            run, _ = start.open_run(self, wish)
            assert start.run_map(self, wish, run, lambda event: None, lambda scheduler: None)
        events.check(Path(self.home))
        return run
