"""What a host prints, as it comes."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from muster.errors import Unreachable
from muster.host import CommandFailed, Host, output


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
