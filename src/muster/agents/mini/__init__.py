"""mini-swe-agent. It runs one task, its first message, and ends; `start` runs the task again, in the work dir as it is then.

What it does is told by a subclass of its own interactive agent (agent.py), which its command line takes.
"""

from __future__ import annotations

from ...errors import UsageError
from ...plugins import AgentType, Launch, Prepared, beside


def prepare(launch: Launch) -> Prepared:
    if not launch.message:
        raise UsageError("type mini needs a task", 'muster create NAME mini -m "what to do" -- -m MODEL')
    files = {"bin/mini": beside(__file__, "run.sh"), "client/muster_mini.py": beside(__file__, "agent.py")}
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
