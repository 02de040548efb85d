"""muster: one or a thousand coding agents with the same verbs, on this machine or any other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .errors import MusterError, NotFound, Refused, Stuck, TimedOut, Unreachable, UsageError
    from .fleet import Fleet
    from .host import CommandFailed, CommandHost, Found, Host
    from .model import Address, Agent, ClientStatus, Spec, Status
    from .plugins import AgentType, Launch, Prepared, Provider

__version__ = "0.1.0"

__all__ = [
    "Address",
    "Agent",
    "AgentType",
    "ClientStatus",
    "CommandFailed",
    "CommandHost",
    "Fleet",
    "Found",
    "Host",
    "Launch",
    "MusterError",
    "NotFound",
    "Prepared",
    "Provider",
    "Refused",
    "Spec",
    "Status",
    "Stuck",
    "TimedOut",
    "Unreachable",
    "UsageError",
]

_NAMES = {
    "errors": ("MusterError", "NotFound", "Refused", "Stuck", "TimedOut", "Unreachable", "UsageError"),
    "fleet": ("Fleet",),
    "host": ("CommandFailed", "CommandHost", "Found", "Host"),
    "model": ("Address", "Agent", "ClientStatus", "Spec", "Status"),
    "plugins": ("AgentType", "Launch", "Prepared", "Provider"),
}


def __getattr__(name: str) -> Any:
    # Nothing is loaded before it is asked for: `muster --help` does not pay for the fleet.
    for module, names in _NAMES.items():
        if name in names:
            import importlib

            return getattr(importlib.import_module(f".{module}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
