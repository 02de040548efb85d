"""A client that another package adds: nothing outside its own folder knows it, and muster does with it what it does with any other."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from ..conftest import World, eventually

PLUGIN = Path(__file__).parent / "plugin"


@pytest.fixture
def parrot(world: World) -> World:
    """The package and the client are installed, and an agent of that type is ready."""
    info = world.folder / "site" / "muster_parrot-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: muster-parrot\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[muster.types]\nparrot = muster_parrot:TYPE\n")
    world.env["PYTHONPATH"] = os.pathsep.join([world.env["PYTHONPATH"], str(PLUGIN), str(info.parent)])
    program = world.bin / "parrot"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I "{PLUGIN}/parrot.py" "$@"\n')
    program.chmod(0o755)
    world.ok("create", "one", "parrot", "--no-connect", env={"PARROT_SESSION_ID": "7", "PARROT_PERCH": "x"})
    world.ok("wait", "one", "--until", "ready", "--timeout", "60s")
    return world


def tell(world: World, text: str, state: str, reason: str | None = None) -> None:
    assert "delivered: one" in world.ok("message", "one", "-m", text).stderr
    eventually(lambda: (world.state("one"), world.agents()["one"]["reason"]) == (state, reason))


def said(world: World) -> list[tuple[str, str]]:
    return [(one["role"], one["text"]) for one in world.ok("transcript", "one", "--json").json["entries"]]


def test_messages_are_delivered_with_a_receipt_and_the_transcript_is_read(parrot: World) -> None:
    texts = ["hello there", "two\nlines", "long " * 50 + "text", "!obeyed", "fly away"]
    for text in texts:
        tell(parrot, text, "ready")
    heard = [*texts[:3], f"Message: {texts[3]}", f"Message: {texts[4]}"]
    assert said(parrot) == [(role, text) for text in heard for role in ("user", "assistant")]
    eventually(lambda: parrot.agents()["one"]["tokens"] == 10)
    parrot.ok("stop", "one")
    parrot.ok("start", "one")
    parrot.ok("wait", "one", "--until", "ready", "--timeout", "60s")
    tell(parrot, "once more", "ready")
    parrot.ok("destroy", "one")
    assert said(parrot)[-1] == ("assistant", "once more") and len(said(parrot)) == 12


def test_dialogs_limits_and_what_only_its_status_file_says_are_states(parrot: World) -> None:
    tell(parrot, "dance", "waiting", "permission")
    assert parrot.agents()["one"]["question"] == "dance: may I dance on the table"
    assert "answered" in parrot.ok("answer", "one", "yes").stderr
    eventually(lambda: parrot.state("one") == "ready")
    tell(parrot, "riddle", "waiting", "question")
    parrot.ok("answer", "one", "a parrot")
    eventually(lambda: parrot.state("one") == "ready")
    assert said(parrot)[1] == ("assistant", "I dance") and said(parrot)[-1] == ("assistant", "a parrot")
    tell(parrot, "doze", "ready", "interrupted")
    tell(parrot, "sing", "waiting", "limit")
    assert 800 < parrot.agents()["one"]["until"] - time.time() < 901


def test_it_gets_no_variable_of_a_session_in_which_muster_was_called(parrot: World) -> None:
    tell(parrot, "environment", "ready")
    assert said(parrot)[-1] == ("assistant", "PARROT_MOOD")
