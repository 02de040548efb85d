"""`replay` plays a recorded playbook in a real session without a model. It needs python3 on its host."""

from __future__ import annotations

import json
import os

from ...errors import UsageError
from ...plugins import AgentType, Launch, Prepared

#: Python runs a folder that has this file, and finds the package `player` beside it.
MAIN = b"import sys\n\nfrom player.player import main\n\nsys.exit(main(sys.argv[1:]))\n"


def program_files() -> dict[str, bytes]:
    """Return the files of the folder `bin/replay`, which plays without muster installed."""
    folder = os.path.join(os.path.dirname(__file__), "player")
    files = {"bin/replay/__main__.py": MAIN}
    for name in sorted(os.listdir(folder)):
        if name.endswith(".py"):
            with open(os.path.join(folder, name), "rb") as file:
                files[f"bin/replay/player/{name}"] = file.read()
    return files


def prepare(launch: Launch) -> Prepared:
    # -I: PYTHONPATH may name folders of the work dir, and the player must not import what an agent put there. -B: the
    # agent's folder is not a place for bytecode.
    program = (launch.python, "-I", "-B", f"{launch.folder}/bin/replay")
    files = {**program_files(), **launch.session}
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
