"""An agent type as another package ships it. All that muster knows of the client `parrot` is in this folder."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

from muster import AgentType, ClientStatus, Launch, Prepared

HERE = Path(__file__).parent

#: The arguments of `bin/hook` for each event of the client.
HOOKS = {
    "opened": [("session", "where=log"), ("ready",)],
    "heard": [("prompt", "text=words", "where=log")],
    "spoke": [("turn-end", "text=words", "where=log")],
    "asks": [("permission", "ask?tool=riddle", "tool=kind", "text=words")],
    "answered": [("answered",)],
    "tired": [("error", "limit?text=*back in*", "text=words")],
}
MOODS = {"chatting": "busy", "dozing": "idle"}


def prepare(launch: Launch) -> Prepared:
    hooks = {
        name: [shlex.join((f"{launch.folder}/bin/hook", *words)) for words in calls] for name, calls in HOOKS.items()
    }
    files = {
        "client/settings.json": json.dumps(hooks).encode(),
        **{path: (HERE / name).read_bytes() for path, name in (("bin/layer", "layer.sh"), ("bin/tally", "tally.sh"))},
        "unset/parrot": (HERE / "unset").read_bytes(),
    }
    argv = ("parrot", f"{launch.folder}/client/settings.json", launch.key, *launch.args)
    return Prepared(argv, argv, files, launch.key)


def translate(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    roles = {"you": "user", "me": "assistant"}
    return [{"t": line["when"], "role": roles[line["who"]], "text": line["words"]} for line in lines]


def status(files: list[dict[str, Any]], session: str) -> ClientStatus | None:
    own = [file for file in files if file.get("log") == session]
    return ClientStatus(own[0]["when"], MOODS[own[0]["mood"]]) if own else None


def resets(text: str, t: float) -> float | None:
    found = re.search(r"back in (\d+) s", text)
    return t + int(found[1]) if found else None


TYPE = AgentType(
    "parrot",
    argv=("parrot",),
    speaks=True,
    receipt="prompt",
    translate=translate,
    status=status,
    resets=resets,
    guard="!",
    quits=("fly away",),
    clear=("C-u",),
    box=r"\A=+\n\] *\n=",
    pasted=("<<",),
    input=r"^={9}\n\](.*(?:\n  .*)*)\n={9}\Z",
    dialog=r"^\?{9}\n[\s\S]*\n y or n\Z",
    yes=("y",),
    no=("n",),
    prepare=prepare,
)
