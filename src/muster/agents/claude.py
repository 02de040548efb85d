"""Claude Code. Its session id is fixed at launch, so that `start` goes on with the same conversation.

It is started as a plain program so far: its turns, receipts and usage are not read.
"""

from __future__ import annotations

from ..plugins import AgentType

TYPE = AgentType(
    "claude",
    argv=("claude", "--session-id", "{session}"),
    resume=("claude", "--resume", "{session}"),
    prompt="argument",
    guard="/!",
    bypass=("--dangerously-skip-permissions",),
)
