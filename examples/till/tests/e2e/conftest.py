"""Every test finds `till` on its PATH, and it is the 14th of March 2026."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

BIN = Path(__file__).parents[2] / "bin"


@pytest.fixture(autouse=True)
def shop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before `e2e` takes its environment from here: its terminals have it from the start."""
    monkeypatch.setenv("PATH", f"{BIN}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("TILL_TODAY", "2026-03-14")
