"""End-to-end tests derived from a tutorial script: its blocks, tests that cite them, transcripts and recordings.

Works for any command-line program and does not depend on the fleet. Tests use `from muster.tutorial import E2eSession, expect`.
"""

from __future__ import annotations

from typing import Any

__all__ = ["E2eSession", "Result", "Terminal", "expect"]

_HOMES = {"E2eSession": "session", "Result": "session", "Terminal": "terminal", "expect": "expectations"}


def __getattr__(name: str) -> Any:
    # pytest loads the plugin into every run of the environment, so suites that do not use it must not pay for the imports.
    if name not in _HOMES:
        raise AttributeError(name)
    import importlib

    return getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
