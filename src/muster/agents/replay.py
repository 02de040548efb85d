"""`replay` plays a recorded playbook in a real session with no model; it needs python3 on its host."""

from __future__ import annotations

import json
import os

from ..errors import UsageError
from ..plugins import AgentType, Launch, Prepared


def prepare(launch: Launch) -> Prepared:
    # Isolated: PYTHONPATH may name folders of the work dir, and what is there is not for the player to import.
    program = (launch.python, "-I", f"{launch.folder}/bin/replay")
    with open(os.path.join(os.path.dirname(__file__), "replay_player.py"), "rb") as file:
        files = {"bin/replay": file.read(), **launch.session}
    if launch.session:
        return Prepared((*program, "--resume"), (*program, "--resume"), files)
    from pathlib import Path

    from . import playbook

    if len(launch.args) != 1:
        raise UsageError("type replay needs one playbook", "muster create NAME replay -- playbook.toml")
    files["session/playbook.json"] = json.dumps(playbook.read(Path(launch.args[0]))).encode()
    return Prepared(program, (*program, "--resume"), files)


TYPE = AgentType(
    "replay",
    prompt="environment",
    speaks=True,
    memory=40,
    receipt="prompt",
    transcript="session/transcript.jsonl",
    clear=("C-u",),
    yes=("1",),
    no=("2",),
    prepare=prepare,
)
