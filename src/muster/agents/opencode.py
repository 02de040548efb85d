"""opencode. A plugin in its own terminal interface says what it does and writes its transcript down; the user's configuration
stays as it is. Its conversations are in a database of its own, by the folder it works in.
"""

from __future__ import annotations

import json
import os

from ..host import SH
from ..plugins import AgentType, Launch, Prepared


def prepare(launch: Launch) -> Prepared:
    plugin = f"{launch.folder}/client/muster.js"
    files = {
        "bin/opencode": _own("opencode-run.sh"),
        "client/muster.js": _own("opencode-plugin.js"),
        "client/tui.json": json.dumps({"plugin": [plugin]}).encode(),
    }
    run = ("sh", f"{launch.folder}/bin/opencode")
    return Prepared((*run, "start", *launch.args), (*run, "resume", *launch.args), files)


def _own(name: str) -> bytes:
    with open(os.path.join(SH, "agent", name), "rb") as file:
        return file.read()


TYPE = AgentType(
    "opencode",
    argv=("opencode",),
    prompt="environment",
    speaks=True,
    receipt="prompt",
    transcript="client/transcript.jsonl",
    guard="/!",
    clear=("C-u",),
    bypass=("--auto",),
    own=("Up", "Enter"),
    versions={
        "oldest": "1.18.33",
        "newest": "1.18.33",
        "install": "1.18.33",
        "by": "npm install -g opencode-ai@{version}",
    },
    prepare=prepare,
)
