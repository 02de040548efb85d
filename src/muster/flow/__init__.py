"""Pipelines over a fleet, the same for programs and for the command line.

`map` gives every item an agent, `reduce` brings the changes of many agents together in one tested branch, and `improve` does both for a
test suite. Names are loaded when they are used first. The packages beside this file are called mapping, reducing and improving, so that no
module takes the name of one of these functions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .api import AgentOptions, ImproveOptions, MapOptions, ReduceOptions, improve, map, preview, reduce
    from .improving.stages import Preview
    from .reducing.delivery import Reduced
    from .reducing.gate import Command, Gate, NoGate, Pytest
    from .reducing.integrate import Delivery
    from .run.directory import Run
    from .run.tasks import Task

__all__ = [
    "AgentOptions",
    "Command",
    "Delivery",
    "Gate",
    "ImproveOptions",
    "MapOptions",
    "NoGate",
    "Preview",
    "Pytest",
    "ReduceOptions",
    "Reduced",
    "Run",
    "Task",
    "improve",
    "map",
    "preview",
    "reduce",
]

_HOMES = {
    **dict.fromkeys(("AgentOptions", "ImproveOptions", "MapOptions", "ReduceOptions"), "api"),
    **dict.fromkeys(("improve", "map", "preview", "reduce"), "api"),
    **dict.fromkeys(("Command", "Gate", "NoGate", "Pytest"), "reducing.gate"),
    "Preview": "improving.stages",
    "Delivery": "reducing.integrate",
    "Reduced": "reducing.delivery",
    "Run": "run.directory",
    "Task": "run.tasks",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
