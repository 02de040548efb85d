"""Hosts reached by the user's own `ssh` and its configuration, one shared connection each.

Nothing is installed there and nothing is assumed of the login shell but that it runs `sh`:
each command travels with everything that a shell could have an opinion on as octal escapes.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from typing import IO, Any

from ..errors import MusterError
from ..host import CommandHost
from ..plugins import Provider

CONNECT_SECONDS = 4


#: Run a command and pass on what it prints behind the mark; `read` takes no byte beyond a line.
_BEHIND = """
mark=$1
shift
exec 3>&1
code=$(
	{ { "$@" 3>&- 4>&-; echo "$?" >&4; } | {
		while IFS= read -r line; do [ "$line" != "$mark" ] || exec cat >&3 4>&-; done
	}; } 4>&1
)
exit "$code"
"""


class SshHost(CommandHost):
    def __init__(self, destination: str, home: str = "", label: str = "") -> None:
        super().__init__(label or destination, "ssh", (), home=home)
        self.destination = destination
        self.sockets = _socket_folder()

    def words(self, argv: Sequence[str], *, terminal: bool = False) -> list[str]:
        return [*(self._ssh("-t") if terminal else self._ssh("-T", "-oBatchMode=yes")), _encode(f"exec {_join(argv)}")]

    def hint(self) -> str:
        return f"try: ssh {self.destination} true"

    def stream(
        self, argv: Sequence[str], *, stdin: int | IO[bytes] | None = None, stdout: int | IO[bytes] | None = None
    ) -> subprocess.Popen[bytes]:
        mark = os.urandom(8).hex()
        ssh = [*self._ssh("-T", "-oBatchMode=yes"), _encode(f"printf '\\n{mark}\\n'; {_join(argv)}; exit $?")]
        return subprocess.Popen(["sh", "-c", _BEHIND, "muster-ssh", mark, *ssh], stdin=stdin, stdout=stdout)

    def forget(self) -> None:
        """Drop the shared connection, so that the next command makes a new one."""
        subprocess.run([*self._ssh("-Oexit")], capture_output=True, check=False)

    def _ssh(self, *more: str) -> list[str]:
        return [
            "ssh",
            "-oControlMaster=auto",
            "-oControlPersist=60",
            f"-oControlPath={self.sockets}/%C",
            f"-oConnectTimeout={CONNECT_SECONDS}",
            "-oServerAliveInterval=2",
            "-oServerAliveCountMax=2",
            "-oLogLevel=ERROR",
            *more,
            self.destination,
        ]


def _socket_folder() -> str:
    """A short folder of our own for the connection sockets (a socket path ends at 108 bytes)."""
    folder = f"/tmp/muster-{os.getuid()}"
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        if os.path.islink(folder) or os.stat(folder).st_uid != os.getuid():
            raise MusterError(f"{folder} is not a folder of yours", f"remove {folder}") from None
    return folder


def _join(argv: Sequence[str]) -> str:
    return " ".join("'" + word.replace("'", "'\\''") + "'" for word in argv)


#: Characters that mean themselves in every shell's quotes and in a printf format.
_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 _./:=,+-@")


def _encode(command: str) -> str:
    data = command.encode("utf-8", "surrogateescape")
    text = "".join(chr(byte) if byte in _PLAIN else f"\\{byte:03o}" for byte in data)
    return f'exec sh -c \'eval "$(printf "{text}")"\''


class Ssh(Provider):
    """The user's ssh knows how to reach its hosts; it makes none."""

    keys = {"destination": str}

    def find(self, name: str, settings: Mapping[str, Any]) -> SshHost:
        return SshHost(settings.get("destination", name), label=name)


PROVIDER = Ssh()
