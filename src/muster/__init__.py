"""muster: one or a thousand coding agents with the same verbs, on this machine or any other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .errors import MusterError
    from .fleet import Fleet
    from .host import Host
    from .model import Address, Agent, Spec, Status
    from .plugins import AgentType, Provider

__version__ = "0.1.0"

__all__ = ["Address", "Agent", "AgentType", "Fleet", "Host", "MusterError", "Provider", "Spec", "Status"]

_HOMES = {
    "Address": "model",
    "Agent": "model",
    "Status": "model",
    "AgentType": "plugins",
    "Provider": "plugins",
    "Fleet": "fleet",
    "Spec": "model",
    "Host": "host",
    "MusterError": "errors",
}


def __getattr__(name: str) -> Any:
    # Nothing is loaded before it is asked for: `muster --help` does not pay for the fleet.
    if name not in _HOMES:
        raise AttributeError(name)
    import importlib

    return getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
