"""Side-by-side measurements, one command: `make bench`; `python -m bench PART…` is for some of it only.

Each row is measured beside its floor, the bare programs it cannot do without, in the same run on the same machine; runs of
both alternate, and the median of each counts. `MUSTER_BENCH_PEER` names the command of a peer with the same verbs (mngr),
which is then measured in the same rounds. A missed ratio is marked, and the exit code is 1.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from . import integrate, mirror, runs
from .map import Maps

ROUNDS = int(os.environ.get("MUSTER_BENCH_ROUNDS", "7"))
FILES = 200
#: How many agents are stopped at once; the second number takes about ten minutes to create, 0 leaves it out.
FEW, MANY = (int(word) for word in os.environ.get("MUSTER_BENCH_MANY", "300,1000").split(","))
MUSTER = shutil.which("muster", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}") or "muster"
PEER = os.environ.get("MUSTER_BENCH_PEER", "")


class Row(NamedTuple):
    """One line of the table: what was measured, and the most it may cost."""

    work: str
    mine: float
    floor: float
    most: float | None
    """At most this many times the floor; None: no goal against the floor."""
    peer: float | None = None
    faster: float | None = None
    """At least this many times faster than the peer."""

    @property
    def missed(self) -> bool:
        over = self.most is not None and self.mine > self.most * self.floor
        slow = self.peer is not None and self.faster is not None and self.peer < self.faster * self.mine
        return over or slow


class Bench:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        home = folder / "home"
        home.mkdir()
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "TERM": "xterm",
            "MUSTER_HOME": str(folder / "state"),
            "TMUX_TMPDIR": str(folder),
        }
        self.repo = folder / "repo"
        self.repo.mkdir()
        self.run("git", "init", "-q", "-b", "main")
        self.run("git", "config", "user.name", "Bench")
        self.run("git", "config", "user.email", "bench@example.invalid")
        for number in range(FILES):
            (self.repo / f"file-{number}.txt").write_text(f"{number}\n" * 20)
        self.run("git", "add", "-A")
        self.run("git", "commit", "-q", "-m", "files")
        self.counter = 0

    def run(self, *argv: str, check: bool = True) -> subprocess.CompletedProcess[bytes]:
        done = subprocess.run(
            argv, cwd=self.repo, env=self.env, capture_output=True, stdin=subprocess.DEVNULL, check=False
        )
        if check and done.returncode:
            raise SystemExit(f"bench: {' '.join(argv)[:200]}: {done.stderr.decode()[-800:]}")
        return done

    def next(self) -> int:
        self.counter += 1
        return self.counter

    def measure(self, *sides: Callable[[], Callable[[], object]]) -> list[float]:
        """Median seconds of each side; a side prepares and returns what is timed. The sides take turns."""
        times: list[list[float]] = [[] for _ in sides]
        for _ in range(ROUNDS):
            for side, found in zip(sides, times, strict=True):
                work = side()
                began = time.perf_counter()
                work()
                found.append(time.perf_counter() - began)
        return [statistics.median(found) for found in times]

    def call(self, *argv: str) -> Callable[[], Callable[[], object]]:
        return lambda: lambda: self.run(*argv)

    # The two sides of each row

    def tmux_floor(self) -> Callable[[], object]:
        return lambda: self.run("tmux", "-S", str(self.folder / "floor.sock"), "list-panes", "-a")

    def create_floor(self) -> Callable[[], object]:
        number = self.next()

        def work() -> None:
            self.run(sys.executable, "-c", "pass")
            self.run("git", "worktree", "add", "-q", "-b", f"floor-{number}", str(self.folder / f"floor-{number}"))
            self.run(
                "tmux",
                "-S",
                str(self.folder / "floor.sock"),
                "-f",
                "/dev/null",
                "new-session",
                "-d",
                "-s",
                f"f{number}",
                "sleep 1000",
            )

        return work

    def make(self) -> str:
        name = f"m{self.next()}"
        self.run(MUSTER, "create", name, "command", "--no-connect", "--", "sleep", "1000")
        return name

    def mine(self, *words: str, made: bool = True) -> Callable[[], Callable[[], object]]:
        """A verb on an agent made for it; `{}` is its name."""

        def side() -> Callable[[], object]:
            name = self.make() if made else f"m{self.next()}"
            return lambda: self.run(MUSTER, *(word.replace("{}", name) for word in words))

        return side

    def theirs(self, *words: str, made: bool = True) -> list[Callable[[], Callable[[], object]]]:
        """The same of the peer, when there is one."""
        if not PEER:
            return []

        def side() -> Callable[[], object]:
            name = f"p{self.next()}"
            if made:
                self.run(*PEER.split(), "create", name, "--command", "sleep 1000", "--no-connect", "--no-ensure-clean")
            return lambda: self.run(*PEER.split(), *(word.replace("{}", name) for word in words))

        return [side]

    def row(
        self,
        work: str,
        mine: Callable[[], Callable[[], object]],
        floor: Callable[[], Callable[[], object]],
        most: float | None,
        faster: float | None,
        theirs: list[Callable[[], Callable[[], object]]],
    ) -> Row:
        found = self.measure(mine, floor, *theirs)
        return Row(work, found[0], found[1], most, found[2] if theirs else None, faster)

    @property
    def python(self) -> Callable[[], Callable[[], object]]:
        return self.call(sys.executable, "-c", "pass")

    def parts(self) -> dict[str, Callable[[], list[Row]]]:
        return {
            "verbs": self.verbs,
            "list": self.listing,
            "many": self.many,
            "runs": self.runs,
            "mirror": self.mirror,
            "integrate": lambda: [Row(*row) for row in integrate.rows()],
            "clients": self.clients,
            "map": lambda: [Row(*row) for row in Maps(MUSTER, self.repo, self.env).rows()],
        }

    def verbs(self) -> list[Row]:
        python = self.python
        return [
            self.row(
                "--help",
                self.call(MUSTER, "--help"),
                python,
                5.5,
                6,
                [self.call(*PEER.split(), "--help")] if PEER else [],
            ),
            self.row(
                "create a local agent (200 files)",
                self.mine("create", "{}", "command", "--no-connect", "--", "sleep", "1000", made=False),
                self.create_floor,
                4,
                6,
                self.theirs("create", "{}", "--command", "sleep 1000", "--no-connect", "--no-ensure-clean", made=False),
            ),
            self.row(
                "exec true", self.mine("exec", "{}", "--", "true"), python, None, 6, self.theirs("exec", "{}", "true")
            ),
            self.row("stop", self.mine("stop", "{}"), python, None, 6, self.theirs("stop", "{}")),
            self.row("destroy", self.mine("destroy", "{}"), python, None, 6, self.theirs("destroy", "{}", "--force")),
        ]

    def many(self) -> list[Row]:
        """Stopping one of 40 agents, and stopping and destroying hundreds at once.

        The floor of one `stop` are the bare programs: python, tmux (list, capture, kill), and two looks at the process table.
        """
        sock = str(self.folder / "state" / "tmux.sock")
        look = "grep -lzs ^MUSTER_AGENT_ID=none$ /proc/[0-9]*/environ; cat /proc/[0-9]*/stat >/dev/null 2>&1"

        def floor() -> Callable[[], object]:
            def work() -> None:
                self.run(sys.executable, "-c", "pass")
                self.run("tmux", "-S", sock, "list-panes", "-a")
                self.run("tmux", "-S", sock, "capture-pane", "-p")
                for _ in range(2):
                    self.run("sh", "-c", look, check=False)
                self.run("tmux", "-S", sock, "kill-session", "-t", "=none:", check=False)

            return work

        self.fill(40)
        theirs = self.theirs("stop", "{}")
        rows = [self.row("stop one of 40 agents", self.mine("stop", "{}"), floor, 3, 8, theirs)]
        for verb in ("stop", "destroy"):
            few = self.all_at_once(verb, FEW)
            rows.append(Row(f"{verb} {FEW} agents (floor: 0.1 s each)", few, FEW / 10, 1))
            if MANY:
                lot = self.all_at_once(verb, MANY)
                rows.append(Row(f"{verb} {MANY} agents (floor: {FEW} agents)", lot, few, 4 * MANY / FEW / (1000 / 300)))
        return rows

    def runs(self) -> list[Row]:
        """Runs that are over: listed, shown, and made into a page. The floor of each reads, and writes, as many files."""
        home = self.folder / "state"
        runs.fill(home)
        folder = home / "runs"
        large = folder / "large"

        def page() -> Callable[[], object]:
            shutil.rmtree(large / "report", ignore_errors=True)
            return lambda: self.run(MUSTER, "report", "large")

        def page_floor() -> Callable[[], object]:
            into = self.folder / "floor-pages"
            shutil.rmtree(into, ignore_errors=True)
            into.mkdir()
            return lambda: self.run(*runs.copy_floor(large / "tasks", into, 2 * runs.LARGE))

        shown = runs.read_floor(large, "agent.json", "outcome.json", "verified.json")
        rows = [
            self.goal(f"runs, {runs.RUNS} of them", self.call(MUSTER, "runs"), self.python, 0.3),
            self.goal(
                f"runs show, {runs.LARGE} tasks", self.call(MUSTER, "runs", "show", "large"), self.call(*shown), 0.5
            ),
            self.goal(f"report, {runs.LARGE} tasks", page, page_floor, 5.0),
        ]
        shutil.rmtree(folder)
        return rows

    def mirror(self) -> list[Row]:
        """The first agent in a clone of its own of a long history, on this machine and over ssh on loopback."""
        with mirror.Mirrors(MUSTER, self.folder, self.env) as mirrors:
            return [Row(*row) for row in mirrors.rows()]

    def goal(
        self,
        work: str,
        mine: Callable[[], Callable[[], object]],
        floor: Callable[[], Callable[[], object]],
        most: float,
    ) -> Row:
        """A row whose goal is in seconds on an idle machine. How busy this one is shows in the floor: by so much more time
        than CPU time as it takes, the goal is put off."""
        spent: list[float] = []

        def timed() -> Callable[[], object]:
            work = floor()

            def run() -> None:
                began = os.times()
                work()
                ended = os.times()
                spent.append(ended[2] + ended[3] - began[2] - began[3])

            return run

        taken, least = self.measure(mine, timed)
        busy = max(1.0, least / statistics.median(spent))
        return Row(f"{work} (goal: {most:g} s)", taken, least, round(most * busy / least, 1))

    def all_at_once(self, verb: str, count: int) -> float:
        self.run(MUSTER, "destroy", "--all", check=False)
        self.fill(count)
        began = time.perf_counter()
        self.run(MUSTER, verb, "--all")
        return time.perf_counter() - began

    def clients(self) -> list[Row]:
        """Real clients have no goal in numbers; without them there are no such rows, and the table says so."""
        from tests.support.clients import Missing

        from .clients import Clients

        try:
            return [Row(*row, None) for row in Clients(MUSTER, self.folder, self.repo, ROUNDS).rows()]
        except Missing as missing:
            print(f"no rows with real clients: {missing}", file=sys.stderr)
            return []

    def listing(self) -> list[Row]:
        """`list` with 40 and with 200 agents; the floor is a bare python and a bare tmux that lists as many panes."""

        def floor() -> Callable[[], object]:
            def work() -> None:
                self.run(sys.executable, "-c", "pass")
                self.run("tmux", "-S", str(self.folder / "state" / "tmux.sock"), "list-panes", "-a")

            return work

        self.fill(40)
        theirs = []
        if PEER:
            for _ in range(40):
                self.run(
                    *PEER.split(),
                    "create",
                    f"p{self.next()}",
                    "--command",
                    "sleep 1000",
                    "--no-connect",
                    "--no-ensure-clean",
                )
            theirs = [self.call(*PEER.split(), "list")]
        forty = self.row("list, 40 local agents", self.call(MUSTER, "list"), floor, 6, 20, theirs)
        memory = self.memory()
        self.fill(200)
        two_hundred = self.measure(self.call(MUSTER, "list"))[0]
        return [forty, Row("list, 200 agents (floor: 40 agents)", two_hundred, forty.mine, 2), memory, self.counts()]

    def counts(self) -> Row:
        """`list --git` with agents that have work trees of their own; the floor is one bare `git status` in each, two at once."""
        self.run(MUSTER, "destroy", "--all", check=False)
        words = ["create", f"w{self.next()}", "command", "--no-connect", "--count", str(FEW), "--", "sleep", "1000"]
        self.run(MUSTER, *words)
        status = 'ls -d "$1"/* | xargs -P 2 -I {} git -C {} status --porcelain >/dev/null'
        floor = self.call("sh", "-c", status, "floor", str(self.folder / "state" / "work"))
        return self.goal(f"list --git, {FEW} agents", self.call(MUSTER, "list", "--git"), floor, 3.0)

    def fill(self, count: int) -> None:
        have = len(self.run(MUSTER, "list", "--format", "{name}").stdout.split())
        if count > have:
            self.run(
                MUSTER,
                "create",
                f"n{self.next()}",
                "command",
                "--no-connect",
                "--mode",
                "in-place",
                "--count",
                str(count - have),
                "--",
                "sleep",
                "1000",
            )

    def memory(self) -> Row:
        """What the recording of one agent costs: its wrapper and recorder, without the agent's own process (MB, PSS)."""
        sums: dict[str, int] = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
                if str(self.folder / "state").encode() not in b" ".join(words) or words[0] == b"sleep":
                    continue
                for line in (entry / "smaps_rollup").read_text().splitlines():
                    if line.startswith("Pss:"):
                        sums[entry.name] = int(line.split()[1])
            except OSError:
                continue
        agents = len(self.run(MUSTER, "list", "--format", "{name}").stdout.split())
        return Row("memory per recorded agent (MB, floor: 1 MB)", sum(sums.values()) / 1024 / agents, 1.0, 5)

    def end(self) -> None:
        self.run(MUSTER, "stop", "--all", "--grace", "0", check=False)
        for name in ("floor.sock", "state/tmux.sock"):
            self.run("tmux", "-S", str(self.folder / name), "kill-server", check=False)
        if PEER:
            self.run(*PEER.split(), "destroy", "--all", "--force", check=False)


def main() -> int:
    missed = False
    with tempfile.TemporaryDirectory(prefix="mb-", ignore_cleanup_errors=True) as folder:
        bench = Bench(Path(folder))
        parts = bench.parts()
        wanted = sys.argv[1:] or list(parts)
        if unknown := set(wanted) - set(parts):
            raise SystemExit(f"bench: there is no part {', '.join(sorted(unknown))}; parts: {', '.join(parts)}")
        print(
            f"{'work':<60} {'muster':>10} {'floor':>10} {'ratio':>7} {'goal':>6}"
            + (f" {'peer':>9} {'faster':>7} {'goal':>6}" if PEER else "")
        )
        try:
            for part in wanted:
                for row in parts[part]():
                    print(line(row), flush=True)
                    missed |= row.missed
                bench.run(MUSTER, "destroy", "--all", check=False)
        finally:
            bench.end()
    return 1 if missed else 0


def line(row: Row) -> str:
    unit = next((f" {unit}" for unit in ("MB", "%", "ms") if unit in row.work), "  " if "trips" in row.work else " s")
    text = f"{row.work:<60} {row.mine:>8.3f}{unit} {row.floor:>8.3f}{unit} {row.mine / row.floor:>7.1f} {row.most or '-':>6}"
    if PEER and row.peer is not None:
        text += f" {row.peer:>7.3f} s {row.peer / row.mine:>6.1f}x {row.faster or '-':>6}"
    return text + ("  MISSED" if row.missed else "")


if __name__ == "__main__":
    sys.exit(main())
