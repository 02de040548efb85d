"""The contract of hosts and providers, for the two that are built in."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from muster.providers.local import LocalHost
from muster.testing import HostContract, ProviderContract

from ..conftest import Sshd, World


class TestLocal(HostContract):
    @pytest.fixture
    def host(self, tmp_path: Path) -> LocalHost:
        return LocalHost(str(tmp_path / "state"))


class TestSsh(ProviderContract):
    provider_name = "ssh"

    @pytest.fixture
    def name(self, world: World, sshd: Sshd, monkeypatch: pytest.MonkeyPatch) -> str:
        monkeypatch.setenv("PATH", f"{world.bin}:{os.environ['PATH']}")  # its ssh knows the host
        return "box"
