"""Commands on hosts: what they print, as it comes, and how they are ended."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from muster.errors import TimedOut, Unreachable
from muster.host import CommandFailed, Host, call, output

from .conftest import eventually


class Cut:
    """It answers, but what it streams ends with this code."""

    name, provider, local, home = "box", "ssh", False, ""

    def __init__(self, code: int) -> None:
        self.code = code

    def run(self, argv: Any, **given: Any) -> subprocess.CompletedProcess[bytes]:
        return subprocess.CompletedProcess(argv, 0, b"", b"")

    def attach(self, argv: Any) -> list[str]:
        raise NotImplementedError

    def stream(self, argv: Any, **given: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen(["sh", "-c", f"echo half; exit {self.code}"], **given)


@pytest.mark.parametrize(("code", "error"), [(255, Unreachable), (1, CommandFailed)])
def test_a_connection_that_broke_is_no_answer_even_if_the_host_is_back_at_once(code: int, error: type) -> None:
    host: Host = Cut(code)
    with pytest.raises(error), output(host, ["tar"], "cannot read") as stream:
        stream.read()


def test_what_came_to_its_end_is_all_there_is() -> None:
    host: Host = Cut(0)
    with output(host, ["tar"], "cannot read") as stream:
        assert stream.read() == b"half\n"


def test_a_command_that_outlives_its_time_and_ignores_term_is_killed_with_its_children(tmp_path: Path) -> None:
    stubborn, pids = tmp_path / "stubborn", tmp_path / "pids"
    stubborn.write_text(f"trap '' TERM\necho $$ >>{pids}\nwhile :; do sleep 0.1; done\n")
    with pytest.raises(TimedOut, match="did not end within 1 s"):
        call(["sh", "-c", f"sh {stubborn} & sh {stubborn}"], None, 1.0)
    both = pids.read_text().split()
    assert len(both) == 2
    eventually(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in both))
