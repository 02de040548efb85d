"""What every step of a reduction needs."""

from __future__ import annotations

from typing import NamedTuple

from ... import Fleet
from ..improving.request import ImproveRequest
from ..mapping import start
from ..run.directory import Run
from ..suite.baseline import Baseline
from .gate import Gate


class Reduction(NamedTuple):
    """The work of one process on a run that it holds."""

    fleet: Fleet
    wish: ImproveRequest
    run: Run
    gate: Gate
    before: Baseline
    """How the tests stood before all changes; without tests if nothing of the run is tested by pytest."""
    say: start.Say
    shown: start.Shown
