"""mini-swe-agent. It runs one task, its first message, and ends; `start` runs the task again, in the work dir as it is then.

What it does is told by a subclass of its own interactive agent (mini_agent.py), which its command line takes.
"""

from __future__ import annotations

import os

from ..errors import UsageError
from ..host import SH
from ..plugins import AgentType, Launch, Prepared


def prepare(launch: Launch) -> Prepared:
    if not launch.message:
        raise UsageError("type mini needs a task", 'muster create NAME mini -m "what to do" -- -m MODEL')
    files = {}
    for name, path in (
        ("bin/mini", os.path.join(SH, "agent", "mini-run.sh")),
        ("client/muster_mini.py", os.path.join(os.path.dirname(__file__), "mini_agent.py")),
    ):
        with open(path, "rb") as file:
            files[name] = file.read()
    argv = ("sh", f"{launch.folder}/bin/mini", f"--task={launch.message}", *launch.args)
    return Prepared(argv, argv, files)


TYPE = AgentType(
    "mini",
    argv=("mini",),
    prompt="prepared",
    speaks=True,
    takes=False,
    transcript="client/transcript.jsonl",
    bypass=("--yolo",),
    yes=("Enter",),
    no=("n", "o", "Enter"),
    prepare=prepare,
)
