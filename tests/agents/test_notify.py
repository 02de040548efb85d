"""The command of `[notify]`, told by the hooks of a real client."""

from __future__ import annotations

from ..conftest import eventually
from .conftest import Claude

TELL = 'echo "$MUSTER_NOTIFY_STATE ($MUSTER_NOTIFY_REASON) $MUSTER_NOTIFY_TEXT" >>~/told'


def test_a_dialog_an_end_of_turn_and_a_failed_turn_are_told(claude: Claude) -> None:
    claude.server.register("tool", {"shell": "echo made > made.txt"}, {"text": "made it"})
    claude.server.register("bad", {"error": 400})
    told = claude.home / "told"
    claude.ok("config", "set", "notify.command", TELL)
    claude.ok("create", "one", "claude", "--no-connect")
    claude.ok("wait", "one", "--until", "ready", "--timeout", "60s")
    claude.ok("message", "one", "-m", "#scn:tool please")
    eventually(lambda: told.exists() and told.read_text() == "waiting (permission) Bash: echo made > made.txt\n")
    claude.ok("answer", "one", "yes")
    eventually(lambda: told.read_text().endswith("\nready () made it\n"))
    claude.ok("message", "one", "-m", "#scn:bad please")
    eventually(lambda: "\nready (failed turn) " in told.read_text())
    assert told.read_text().count("\n") == 3
