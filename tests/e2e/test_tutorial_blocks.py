"""docs/tutorial.sh from top to bottom, as a newcomer would type it: each block ends as the text says.

A stand-in script takes the place of the claude client, and `box` is a real sshd on loopback. Tests of single blocks say more;
this one says that the manual as a whole is true.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from ..conftest import Sshd, World
from ..test_tutorial import COMMAND_BLOCKS
from .conftest import CLIENT
from .test_tutorial_18_map import SUBMITS
from .test_tutorial_19_improve import project

#: Blocks that do not end with 0 here, by a line of theirs: the code, or None for those that go on until they are ended.
OTHERWISE: dict[str, tuple[int | None, str]] = {
    "xterm -e": (127, "there is no xterm"),
    "muster connect hello": (2, "no terminal here"),
    "muster connect fix-login": (2, "no terminal here"),
    "muster connect fix-login --watch": (2, "no terminal here"),
    "muster create trusted claude": (2, "the stand-in has no such mode"),
    "muster map --run far": (128, "the cache that an earlier section links is not on the other machine"),
    "--from https://git.example.com": (1, "there is no such repository"),
    "muster create small command --memory 512m": (5, "without the right to make a cgroup"),
    "muster list --watch": (None, "goes on"),
    "muster transcript greet --follow": (None, "goes on"),
    "muster events greet --follow": (None, "goes on"),
    "muster message --all": (1, "some have ended, as the text says"),
    "muster wait --all --timeout 2s": (4, "somebody is at work, as the text says"),
    "muster push --all --merge": (5, "copies have no branch, as the text says"),
}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_tutorial_can_be_followed_from_top_to_bottom(world: World, sshd: Sshd) -> None:
    client = world.bin / "claude"
    client.write_text(CLIENT)
    client.chmod(0o755)
    settings = world.home / ".config" / "muster" / "config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text(
        f'[types.claude]\nargv = ["{client}"]\nprompt = "argument"\nspeaks = true\nreceipt = "prompt"\n'
    )
    (world.home / ".gitconfig").write_text("[user]\nname = Uma User\nemail = uma@example.invalid\n")
    world.env["PATH"] = f"{world.bin}:{os.path.dirname(sys.executable)}:{world.env['PATH']}"
    (world.repo.parent / "submits.toml").write_text(SUBMITS)
    wrong, here = [], False
    for block in COMMAND_BLOCKS:
        if "muster improve" in block and not here:
            here = True
            with_tests(world)
        wanted, why = next(((code, why) for line, (code, why) in OTHERWISE.items() if line in block), (0, ""))
        code, shown = follow(world, block, 3 if wanted is None else 120)
        allowed = {0, 5} if "--memory" in block else {wanted}
        inner = "Traceback" in shown and "--verbose" not in block
        if code not in allowed or inner or "bug in muster" in shown:
            wrong.append(f"{block}\n=> {code}, expected {wanted} {why}\n{shown[-1500:]}")
    assert not wrong, f"{len(wrong)} blocks:\n\n" + "\n\n".join(wrong)


def with_tests(world: World) -> None:
    """What the section about improve takes for granted: a suite, playbooks, a remote, and a gh."""
    (world.home / ".config" / "muster" / "config.toml").write_text("")
    world.git("checkout", "-q", "-f", "main")
    project(world.repo)
    world.git("add", "-A")
    world.git("commit", "-q", "-m", "A calculator")
    world.git("init", "-q", "--bare", str(world.folder / "origin.git"))
    world.git("remote", "add", "origin", str(world.folder / "origin.git"))
    (world.bin / "gh").write_text("#!/bin/sh\necho https://example.invalid/pr/1\n")
    (world.bin / "gh").chmod(0o755)


def follow(world: World, block: str, seconds: float) -> tuple[int | None, str]:
    """The exit code of a block and what it showed; None when it had to be ended."""
    process = subprocess.Popen(
        ["bash", "-c", block],
        cwd=world.repo,
        env=world.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        shown, _ = process.communicate(timeout=seconds)
        return process.returncode, shown.decode("utf-8", "replace")
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGTERM)
        shown, _ = process.communicate()
        return None, shown.decode("utf-8", "replace")
