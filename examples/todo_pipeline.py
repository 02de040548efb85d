"""Give every TODO of a repository an agent, and bring what they did together in one branch that passes a gate.

    python examples/todo_pipeline.py --type claude --gate 'make test'

`git log muster-run/todos` then shows one commit for each TODO that was done.
"""

from __future__ import annotations

import argparse
import subprocess

from muster import Fleet, flow

PROMPT = "Do what this TODO says, remove its comment, and commit: {file}, line {line}: {text}"


def todos() -> list[dict[str, str]]:
    """Return every line of the repository with a TODO in it."""
    found = subprocess.run(["git", "grep", "-nI", r"\bTODO\b"], capture_output=True, text=True, check=False)
    items = []
    for match in found.stdout.splitlines():
        file, line, text = match.split(":", 2)
        items.append({"item": f"{file}:{line}", "file": file, "line": line, "text": text.strip()})
    return items


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--type", default="claude", help="the type of the agents")
    parser.add_argument("--permissions", default="bypass", help="who answers the permission dialogs of the agents")
    parser.add_argument("--gate", default="make test", help="a command that must exit with 0 on the branch")
    parser.add_argument("--budget", type=float, default=5.0, help="dollars for the whole run")
    parser.add_argument("args", nargs="*", help="arguments for the agents")
    options = parser.parse_args()

    fleet = Fleet()
    run = flow.map(
        fleet,
        todos(),
        name="todos",
        prompt=PROMPT,
        type=options.type,
        args=options.args,
        permissions=options.permissions,
        budget=options.budget,
        on_event=lambda event: print(event["kind"], event.get("task", ""), event.get("outcome", "")),
    )
    reduced = flow.reduce(fleet, run, gate=flow.Command(options.gate))
    for change in reduced.delivery.accepted:
        print(f"accepted {change.name}: {change.reason}")
    for name, left in reduced.delivery.left_out.items():
        print(f"left out {name}: {left.reason}")
    print(reduced.branch or f"nothing is delivered: {reduced.delivery.why}")


if __name__ == "__main__":
    main()
