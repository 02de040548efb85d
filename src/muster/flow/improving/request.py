"""What `improve` and `reduce` are asked for, and the checks of it that cost nothing."""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from ... import Address, Fleet
from ...errors import UsageError
from ..mapping import start
from ..review.paths import Rules
from ..suite.execute import PYTEST


class ImproveRequest(NamedTuple):
    map: start.MapRequest
    """The agents, without items."""
    paths: tuple[str, ...] = ()
    """Files and folders of the tests; all tests if there are none."""
    args: tuple[str, ...] = ()
    """Arguments for pytest."""
    pytest: tuple[str, ...] = PYTEST
    """The command that runs pytest. If it is empty, `setup.bound_to` fills in the usual one."""
    lint: tuple[str, ...] = ()
    keep_env: tuple[str, ...] = ()
    playbooks: str = ""
    tutorial: str = ""
    everything: bool = False
    """Also give agents to tests that need nothing."""
    times: int = 3
    """Number of passing runs required to verify a fix."""
    repeat: int = 2
    """Number of runs in the baseline for a test that fails at first."""
    test_seconds: float = 300.0
    """The setup, the call or the teardown of a test that takes longer hangs."""
    suite_seconds: float = 3600.0
    """Seconds that one agent may run tests."""
    rules: Rules = Rules()
    integrator: str = ""
    """An agent type or `none`; empty for the type of the run's agents."""
    rank: str = "code"


def check(fleet: Fleet, request: ImproveRequest) -> None:
    """Raise UsageError for a wrong option, before anything is made."""
    if request.playbooks and not os.path.isdir(request.playbooks):
        raise UsageError(f"there is no folder {request.playbooks}", "--playbooks DIR has one TOML file for each test")
    _check_type(fleet, request.map.spec.type, request.map.spec.permissions, "-a")
    check_integrator(fleet, request)
    if not request.playbooks:
        name = Address.parse(f"check-{os.urandom(4).hex()}")
        try:
            fleet.check(request.map.spec._replace(address=name, message="x", args=request.map.args))
        except UsageError as error:
            raise UsageError(error.message, "--playbooks DIR has one TOML file for each test; or -a claude") from None


def check_integrator(fleet: Fleet, request: ImproveRequest) -> None:
    """Raise UsageError if the integrator's type takes no tasks or would ask a person for permissions."""
    name = integrator_type(fleet, request)
    if name != "none":
        _check_type(fleet, name, request.map.spec.permissions, "--integrator")


def integrator_type(fleet: Fleet, request: ImproveRequest) -> str:
    """Return the type that resolves conflicts, or `none`. Without a named one it is the type of the run's agents if that takes tasks."""
    name = request.integrator or request.map.spec.type
    return "none" if name == "none" or not (request.integrator or fleet.type(name).speaks) else name


def _check_type(fleet: Fleet, name: str, permissions: str, option: str) -> None:
    agent_type = fleet.type(name)
    start.unattended(agent_type, permissions)
    if not agent_type.speaks:
        hint = f"{option} claude, or another client; {option} replay with --playbooks"
        raise UsageError(f"type {agent_type.name} takes no task", hint)


def protect_tutorial(rules: Rules, tutorial: str) -> Rules:
    """Return the rules with the named tutorial protected. Its path is taken literally, whatever glob characters it has."""
    literal = re.sub(r"([*?[])", r"[\1]", os.path.normpath(tutorial))
    return rules._replace(protected=(f"/{literal}", *rules.protected)) if tutorial else rules
