"""Put `till` on the PATH of every test and set the date to 14 March 2026."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

BIN = Path(__file__).parents[2] / "bin"


@pytest.fixture(autouse=True)
def shop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs before the fixture `e2e`, so that its environment and terminals have these settings."""
    monkeypatch.setenv("PATH", f"{BIN}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("TILL_TODAY", "2026-03-14")
