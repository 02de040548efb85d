"""A plain command: it is working while it runs, and its exit code says how it ended."""

from __future__ import annotations

from ..errors import UsageError
from ..plugins import AgentType, Launch, Prepared


def prepare(launch: Launch) -> Prepared:
    if not launch.args:
        raise UsageError("type command needs a command", "muster create NAME command -- make test")
    return Prepared(launch.args, launch.args)


TYPE = AgentType("command", prompt="environment", memory=100, prepare=prepare)
