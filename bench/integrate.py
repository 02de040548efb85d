"""The rows of integration: units that share files become one branch, with a gate that answers at once.

The floor is one bare `git merge-tree` for each unit, run by the same host. Memory and the project's own tests have no part in it.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from muster.flow.integrate import Verdict
from tests.flow.lab import crowd

SIZES = (240, 1000)
#: Of the whole, in seconds.
GOALS = {240: 120.0}
#: Batches grow to 64 units, so those of 1,000 units have 1.4 times as many on average as those of 240. That alone is linear.
LINEAR = 1.5


class Green:
    """A gate that costs nothing, and counts batches."""

    batches = 0

    def check(self, commit: str, tests: Sequence[str]) -> Verdict:
        self.batches += 1
        return Verdict(True)

    def full(self, commit: str, tests: Sequence[str]) -> Verdict:
        return Verdict(True)


def measured(folder: Path, count: int) -> tuple[float, float, int, int]:
    """Seconds of the integration and of the floor, and the git processes and the batches of the former."""
    lab, units = crowd(folder, count)
    gate = Green()
    began = time.perf_counter()
    done = lab.integrate(units, gate)
    taken = time.perf_counter() - began
    if len(done.accepted) != count:
        raise SystemExit(f"bench: {count - len(done.accepted)} of {count} units were left out: {done.left_out}")
    began = time.perf_counter()
    for unit in units:
        lab.host.run(
            ["git", f"--git-dir={lab.top}/.git", "merge-tree", "--write-tree", units[0].tip, unit.tip], input=b""
        )
    return taken, time.perf_counter() - began, sum(done.git_calls.values()), gate.batches


def rows() -> list[tuple[str, float, float, float | None]]:
    """What was measured, muster's seconds, the floor's, and the most that it may be of the floor."""
    found, each = [], []
    for count in SIZES:
        with tempfile.TemporaryDirectory(prefix="mb-", ignore_cleanup_errors=True) as folder:
            taken, floor, calls, batches = measured(Path(folder), count)
        most = round(GOALS[count] / floor, 1) if count in GOALS else None
        found.append((f"{count} units into one branch ({calls} git calls)", taken, floor, most))
        each.append((batches, 1000 * taken / batches))
    (few, short), (many, long) = each
    return [*found, (f"  each of {many} batches (ms; floor: each of {few})", long, short, LINEAR)]
