"""The rows of `map`: how fast agents are launched, what a run of hundreds costs while they wait, and the simulation.

Figures without a floor have 1 as theirs, so that the ratio is the figure.
"""

from __future__ import annotations

import os
import resource
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.flow.sim import IN_MEMORY, TROUBLED, World
from tests.flow.simhosts import Sim
from tests.flow.test_map import simulate

WAITS = '[[step]]\nsay = "I wait."\n[[step]]\nwait = 3600\n'
TICK = os.sysconf("SC_CLK_TCK")
IDLE_SECONDS = 30.0

#: What was measured, the figure, its floor, and the most that it may be.
Measured = tuple[str, float, float, float | None]


class Maps:
    def __init__(self, muster: str, repo: Path, env: dict[str, str]) -> None:
        self.muster, self.repo, self.env = muster, repo, env
        self.state = Path(env["MUSTER_HOME"])
        self.play = repo.parent / "waits.toml"
        self.play.write_text(WAITS)

    def rows(self) -> list[Measured]:
        launched, run = self._launched(100, "hundred")
        self._end(run)
        taken, run = self._launched(300, "many")
        began, before = time.monotonic(), self._spent(run.pid)
        time.sleep(IDLE_SECONDS)  # what is measured is what it costs to wait
        share = (self._spent(run.pid) - before) / (time.monotonic() - began)
        peak = self._peak(run.pid)
        self._end(run)
        return [
            ("100 agents launched by map (s)", launched, 1.0, 15.0),
            ("300 agents launched by map (s)", taken, 1.0, None),
            ("memory of map with 300 agents (MB)", peak, 1.0, 150.0),
            ("control of 300 agents that wait (% of a core)", 100 * share, 1.0, 5.0),
            *simulated(),
        ]

    def _launched(self, count: int, name: str) -> tuple[float, subprocess.Popen[bytes]]:
        """Seconds until so many agents run, and the process that runs them."""
        words = ["map", "-a", "replay", "--run", name, "--max-agents", str(count), "-p", "x", "--", str(self.play)]
        began = time.monotonic()
        run = subprocess.Popen(
            [self.muster, *words],
            cwd=self.repo,
            env=self.env,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        assert run.stdin
        run.stdin.write("".join(f"{number}\n" for number in range(count)).encode())
        run.stdin.close()
        while len(list(self.state.glob(f"agents/{name}-*/ev/started"))) < count:
            if run.poll() is not None or time.monotonic() - began > 600:
                raise SystemExit(f"bench: {name} did not launch {count} agents")
            time.sleep(0.1)
        return time.monotonic() - began, run

    def _end(self, run: subprocess.Popen[bytes]) -> None:
        run.kill()
        run.wait()
        subprocess.run(
            [self.muster, "stop", "--all", "--grace", "0"],
            cwd=self.repo,
            env=self.env,
            capture_output=True,
            check=False,
        )

    def _spent(self, pid: int) -> float:
        """CPU seconds of a process and of the children that it has waited for."""
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return sum(int(field) for field in fields[11:15]) / TICK

    def _peak(self, pid: int) -> float:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def simulated() -> list[Measured]:
    """10,000 tasks on 200 hosts that are made up, by the scheduler and the governor of every run."""
    limits: dict[str, Any] = {"max_agents": 1000, "launch_rate": 50.0, "burst": 50, "stall": 300.0}
    before, began = _cpu(), time.monotonic()
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder:
        picture, backend, _ = simulate(Path(folder), 10_000, TROUBLED, **limits)
    taken, spent, budget = time.monotonic() - began, _cpu() - before, picture["cost_usd"] / 2
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder:
        picture, _, _ = simulate(Path(folder), 10_000, TROUBLED, dollars=budget, **limits)
    over = max(0.0, picture["cost_usd"] - budget) / budget
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder:
        _, calm, _ = simulate(Path(folder), 10_000, World(hosts=200, works=(20.0, 120.0)), **limits)
    used = sum(seconds for _, seconds in calm.worked) / (1000 * (calm.t - calm.began_at))
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder:
        sim = Sim(Path(folder) / "sim", TROUBLED)
        whole_before, whole_began = _cpu(), time.monotonic()
        sim.map(10_000, **limits)
        whole, whole_spent = time.monotonic() - whole_began, _cpu() - whole_before
    trips = sum(sim.asked.values()) / 10_000
    return [
        (f"10,000 tasks on 200 simulated hosts (s; {backend.most} at once)", taken, 1.0, 30.0),
        ("  control cost of a task (CPU ms)", 1000 * spent / 10_000, 1.0, None),
        ("  utilisation where nothing holds it back (%)", 100 * used, 1.0, None),
        (f"  overshoot of a budget of ${budget:.0f} (%)", 100 * over, 1.0, None),
        ("the same with the whole fleet, only hosts and clock simulated (s)", whole, 1.0, None),
        ("  control cost of a task (CPU ms)", 1000 * whole_spent / 10_000, 1.0, None),
        ("  round trips of a task, looks included", trips, 1.0, None),
    ]


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
