"""The rows of integration: units that share files become one branch, with a gate that answers at once.

The floor is one bare `git merge-tree` for each unit, run by the same host. Memory and the project's own tests have no part in it.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from muster.flow.reducing.gate import Verdict
from tests.flow.lab import crowd

SIZES = (240, 1000)
#: Of the whole, in seconds.
GOALS = {240: 120.0}
#: A unit among many may cost so much more than one among few.
LINEAR = 1.5


class Green:
    """A gate that costs nothing."""

    def check(self, commit: str, tests: Sequence[str]) -> Verdict:
        return Verdict(True)

    def full(self, commit: str, tests: Sequence[str]) -> Verdict:
        return Verdict(True)

    def passing(self, asked: Sequence[tuple[str, Sequence[str]]]) -> list[list[str]]:
        return [[] for _ in asked]


def measured(folder: Path, count: int) -> tuple[float, float, int]:
    """Seconds of the integration and of the floor, and the git processes of the former."""
    lab, units = crowd(folder, count)
    began = time.perf_counter()
    done = lab.integrate(units, Green())
    taken = time.perf_counter() - began
    if len(done.accepted) != count:
        raise SystemExit(f"bench: {count - len(done.accepted)} of {count} units were left out: {done.left_out}")
    began = time.perf_counter()
    for unit in units:
        lab.host.run(
            ["git", f"--git-dir={lab.top}/.git", "merge-tree", "--write-tree", units[0].tip, unit.tip], input=b""
        )
    return taken, time.perf_counter() - began, sum(done.git_calls.values())


def rows() -> list[tuple[str, float, float, float | None]]:
    """What was measured, muster's seconds, the floor's, and the most that it may be of the floor."""
    found, each = [], []
    for count in SIZES:
        with tempfile.TemporaryDirectory(prefix="mb-", ignore_cleanup_errors=True) as folder:
            taken, floor, calls = measured(Path(folder), count)
        most = round(GOALS[count] / floor, 1) if count in GOALS else None
        found.append((f"{count} units into one branch ({calls} git calls)", taken, floor, most))
        each.append(1000 * taken / count)
    short, long = each
    few, many = SIZES
    return [*found, (f"  each of {many} (ms; floor: each of {few})", long, short, LINEAR)]
