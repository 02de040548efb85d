"""A tutorial as the source of a program's end-to-end tests: blocks, tests that cite them, transcripts, recordings.

Works for any command-line program and knows nothing of the fleet. Tests write `from muster.tutorial import E2eSession, expect`.
"""

from __future__ import annotations

from typing import Any

__all__ = ["E2eSession", "Result", "Terminal", "expect"]

_HOMES = {"E2eSession": "session", "Result": "session", "Terminal": "terminal", "expect": "expectations"}


def __getattr__(name: str) -> Any:
    # The plugin is loaded into every pytest run of the environment; a suite that does not use it must not pay.
    if name not in _HOMES:
        raise AttributeError(name)
    import importlib

    return getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
