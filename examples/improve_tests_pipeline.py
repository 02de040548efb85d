"""The pipeline of the case study: collect the tests, map an agent over each of them, reduce their changes into one branch.

    python examples/improve_tests_pipeline.py claude bypass

`muster improve` does more: it measures a baseline first, shares the fixes of like failures, and verifies every change by itself.
"""

from __future__ import annotations

import subprocess
import sys

from muster import Fleet, flow

PROMPT = """Run the test {item}. If it fails, fix the test or the code that it tests. If it passes, make it more faithful to what
it stands for. Keep fixes of the code and changes of tests in separate commits."""


def main(type: str, permissions: str, *args: str) -> None:
    collected = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q"], capture_output=True, text=True, check=True
    )
    tests = [line for line in collected.stdout.splitlines() if "::" in line]
    fleet = Fleet()
    run = flow.map(fleet, tests, prompt=PROMPT, type=type, args=args, permissions=permissions, max_agents=100)
    for task in run.tasks():
        last = run.attempts(task.id)[-1]
        print(task.item, last.outcome.outcome if last.outcome else "has no outcome", last.folder)
    reduced = flow.reduce(fleet, run, gate=flow.Pytest())
    print(reduced.branch or f"nothing is delivered: {reduced.delivery.why}")


if __name__ == "__main__":
    main(*sys.argv[1:])
