"""Codex, started as a plain program so far: its turns, receipts and usage are not read."""

from __future__ import annotations

from ..plugins import AgentType

TYPE = AgentType(
    "codex",
    argv=("codex",),
    resume=("codex", "resume", "--last"),
    prompt="argument",
    guard="/!",
    bypass=("--dangerously-bypass-approvals-and-sandbox",),
)
