"""opencode, started as a plain program so far: its turns, receipts and usage are not read."""

from __future__ import annotations

from ..plugins import AgentType

TYPE = AgentType("opencode", argv=("opencode",), resume=("opencode", "--continue"), guard="/!")
