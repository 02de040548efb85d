"""How real coding agents are run in tests: installed by scripts/setup-clients, with a home of their own, no network but loopback,
and the scripted server as their model. It knows nothing of muster.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import shlex
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

CLIENTS = Path(__file__).parent.parent / "clients"
# claude and codex for every run of the tests; opencode, pi, copilot and mini-swe-agent, in more/, for `make test-all`.
PLACES = {
    "claude": CLIENTS / "node_modules" / ".bin" / "claude",
    "codex": CLIENTS / "node_modules" / ".bin" / "codex",
    "opencode": CLIENTS / "more" / "node_modules" / ".bin" / "opencode",
    "pi": CLIENTS / "more" / "node_modules" / ".bin" / "pi",
    "copilot": CLIENTS / "more" / "node_modules" / ".bin" / "copilot",
    "mini": CLIENTS / "more" / "venv" / "bin" / "mini",
}
KEY = "dummy-key-of-the-tests-0001"
MODEL = "scripted-1"


class Missing(Exception):
    """Something that a test needs is not here; the text says what and how to get it."""


def find(name: str) -> Path:
    """The program of a client. Raises Missing."""
    place = PLACES[name]
    more = "more" if CLIENTS / "more" in place.parents else ""
    why = CLIENTS / more / "node_modules" / "muster-why"
    if why.exists():
        raise Missing(f"{name}: {why.read_text(encoding='utf-8').strip()}")
    if not place.exists():
        raise Missing(f"{name} is not installed: run scripts/setup-clients {more}".rstrip())
    return place


class Offline:
    """A network namespace with nothing but its own loopback: what runs in it has no way out. It lives as long as a process in it,
    or this object, does; it has no name, so nothing of it is left behind.

    Raises Missing where namespaces cannot be made.
    """

    def __init__(self) -> None:
        if not shutil.which("nsenter"):
            raise Missing("no nsenter: apt-get install util-linux")
        self._fd = -1
        problem: list[str] = []
        thread = threading.Thread(target=self._make, args=(problem,))  # only this thread moves, and it ends here
        thread.start()
        thread.join()
        if problem:
            raise Missing(f"no network namespace: {problem[0]} (it needs root and CAP_SYS_ADMIN)")
        self.path = f"/proc/{os.getpid()}/fd/{self._fd}"

    def _make(self, problem: list[str]) -> None:
        try:
            libc = ctypes.CDLL(None, use_errno=True)
            if libc.unshare(0x40000000) != 0:  # CLONE_NEWNET
                raise OSError(ctypes.get_errno(), f"unshare: {os.strerror(ctypes.get_errno())}")
            self._fd = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            with socket.socket() as any_socket:  # ip link set lo up
                fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh14x", b"lo", 0x41))
        except (OSError, AttributeError) as error:
            problem.append(str(error))

    def argv(self, *argv: str | Path) -> list[str]:
        """This command, inside."""
        return ["nsenter", f"--net={self.path}", "--", *map(str, argv)]

    def __enter__(self) -> Offline:
        return self

    def __exit__(self, *exc: object) -> None:
        os.close(self._fd)


def base_env(home: Path, **more: str) -> dict[str, str]:
    """All of the environment that a client gets: what the tests themselves run in does not show through."""
    return {
        "HOME": str(home),
        "PATH": os.environ["PATH"],
        "TERM": "xterm-256color",
        "LANG": "C.UTF-8",
        "SHELL": "/bin/sh",
        **more,
    }


def claude_env(server_url: str, home: Path, **more: str) -> dict[str, str]:
    quiet = """CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC DISABLE_TELEMETRY DISABLE_ERROR_REPORTING DISABLE_AUTOUPDATER
        DISABLE_INSTALLATION_CHECKS CLAUDE_CODE_DISABLE_OFFICIAL_MARKETPLACE_AUTOINSTALL"""
    return base_env(
        home,
        ANTHROPIC_BASE_URL=server_url,
        ANTHROPIC_API_KEY=KEY,
        IS_SANDBOX="1",  # root may bypass permissions only so
        **dict.fromkeys(quiet.split(), "1"),
        **more,
    )


def claude_home(home: Path, *cwds: Path, settings: dict[str, Any] | None = None, bypass: bool = True) -> None:
    """A home in which claude opens without a question in each of these folders and all below them.

    `bypass`: it asks for no permissions either. `settings` go into its settings.json.
    """
    (home / ".claude").mkdir(parents=True, exist_ok=True)
    answered = {
        "hasCompletedOnboarding": True,  # onboarding wants the real service and ends without it
        "customApiKeyResponses": {"approved": [KEY[-20:]], "rejected": []},
        "projects": {str(cwd): {"hasTrustDialogAccepted": True} for cwd in cwds},
    }
    (home / ".claude.json").write_text(json.dumps(answered), encoding="utf-8")
    mode = {"skipDangerousModePermissionPrompt": True, "permissions": {"defaultMode": "bypassPermissions"}}
    given = {**(mode if bypass else {}), **(settings or {})}
    (home / ".claude" / "settings.json").write_text(json.dumps(given), encoding="utf-8")


def codex_env(server_url: str, home: Path, **more: str) -> dict[str, str]:
    """`server_url` is in the home; it is here so that both clients are called alike."""
    return base_env(home, SCRIPTED_API_KEY=KEY, **more)


def codex_home(
    home: Path, *cwds: Path, server_url: str, notify: list[str] | None = None, ask: bool = False, more: str = ""
) -> None:
    """A home in which codex opens without a question in each of these folders, and asks for no approvals.

    `notify` is a command that gets each end of a turn as its last argument; `ask`: it asks for approvals, as it does where nothing is
    set; `more` is TOML with tables of its own.
    """
    (home / ".codex").mkdir(parents=True, exist_ok=True)
    trusted = "".join(f'[projects.{json.dumps(str(cwd))}]\ntrust_level = "trusted"\n' for cwd in cwds)
    (home / ".codex" / "config.toml").write_text(
        f'model = "{MODEL}"\nmodel_provider = "scripted"\n'
        + ("" if ask else 'approval_policy = "never"\nsandbox_mode = "danger-full-access"\n')
        + "check_for_update_on_startup = false\n"
        + (f"notify = {json.dumps(notify)}\n" if notify else "")
        + "[model_providers.scripted]\n"
        'name = "Scripted"\n'
        f'base_url = "{server_url}/v1"\n'
        'env_key = "SCRIPTED_API_KEY"\n'
        'wire_api = "responses"\n'
        f"{trusted}"
        "[analytics]\nenabled = false\n"
        # The daemon would copy the whole program into the home and outlive the session.
        "[features]\ndaemon_auto_start = false\nin_app_updates = false\nplugins = false\napps = false\n" + more,
        encoding="utf-8",
    )


def opencode_env(server_url: str, home: Path, **more: str) -> dict[str, str]:
    off = "OPENCODE_DISABLE_AUTOUPDATE OPENCODE_DISABLE_MODELS_FETCH OPENCODE_DISABLE_LSP_DOWNLOAD"
    quiet = dict.fromkeys([*off.split(), "OPENCODE_DISABLE_DEFAULT_PLUGINS"], "1")
    return base_env(home, **quiet, **more)


def opencode_home(home: Path, server_url: str, permission: dict[str, str] | None = None) -> None:
    """A home in which opencode has the scripted model, and by default asks for no permissions."""
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "Scripted",
        "options": {"baseURL": f"{server_url}/v1", "apiKey": KEY},
        "models": {MODEL: {"name": MODEL}},
    }
    config = {
        "$schema": "https://opencode.ai/config.json",  # else it writes that into the file itself
        "provider": {"scripted": provider},
        "model": f"scripted/{MODEL}",
        "small_model": f"scripted/{MODEL}",
        "autoupdate": False,
        "permission": permission or {"*": "allow"},
    }
    place = home / ".config" / "opencode"
    place.mkdir(parents=True, exist_ok=True)
    (place / "opencode.json").write_text(json.dumps(config), encoding="utf-8")


def pi_env(server_url: str, home: Path, **more: str) -> dict[str, str]:
    """`server_url` is in the home; it is here so that all clients are called alike."""
    return base_env(home, PI_OFFLINE="1", PI_TELEMETRY="0", **more)


def pi_home(home: Path, server_url: str, settings: dict[str, Any] | None = None, cost: float = 0) -> None:
    """A home in which pi has the scripted model, which costs so many dollars for a million tokens of each kind."""
    place = home / ".pi" / "agent"
    place.mkdir(parents=True, exist_ok=True)
    model = {"id": MODEL, "cost": dict.fromkeys(["input", "output", "cacheRead", "cacheWrite"], cost)}
    provider = {"baseUrl": f"{server_url}/v1", "api": "openai-completions", "apiKey": KEY, "models": [model]}
    (place / "models.json").write_text(json.dumps({"providers": {"scripted": provider}}), encoding="utf-8")
    given = {"defaultProvider": "scripted", "defaultModel": MODEL, "lastChangelogVersion": "99.0.0", **(settings or {})}
    (place / "settings.json").write_text(json.dumps(given), encoding="utf-8")


def copilot_env(server_url: str, home: Path, **more: str) -> dict[str, str]:
    """It unpacks itself, 235 MB, into a cache: that of the tests is shared, beside the client."""
    return base_env(
        home,
        COPILOT_OFFLINE="true",
        COPILOT_PROVIDER_BASE_URL=f"{server_url}/v1",
        COPILOT_PROVIDER_API_KEY=KEY,
        COPILOT_MODEL=MODEL,
        COPILOT_CACHE_HOME=str(CLIENTS / "more" / "node_modules" / ".cache" / "copilot"),
        **more,
    )


def copilot_home(home: Path, settings: dict[str, Any] | None = None) -> None:
    """A home in which copilot ran before, and trusts no folder."""
    place = home / ".copilot"
    place.mkdir(parents=True, exist_ok=True)
    began = {"firstLaunchAt": "2026-01-01T00:00:00.000Z", "appTipShown": True}
    (place / "config.json").write_text(
        "// User settings belong in settings.json.\n" + json.dumps(began, indent=2), encoding="utf-8"
    )
    (place / "settings.json").write_text(json.dumps({"banner": "never", **(settings or {})}), encoding="utf-8")


def mini_env(server_url: str, home: Path, **more: str) -> dict[str, str]:
    """Its model is `openai/scripted-1`; it has no home to prepare."""
    return base_env(
        home,
        OPENAI_API_KEY=KEY,
        OPENAI_API_BASE=f"{server_url}/v1",
        MSWEA_CONFIGURED="true",
        MSWEA_SILENT_STARTUP="1",
        MSWEA_COST_TRACKING="ignore_errors",
        LITELLM_LOCAL_MODEL_COST_MAP="True",
        **more,
    )


def appends(file: Path) -> list[str]:
    """A command, for hooks and `notify`, that appends what it is given (its last argument, else its input) to `file`, one line each."""
    code = "import sys; text = sys.argv[2] if sys.argv[2:] else sys.stdin.read(); open(sys.argv[1], 'a').write(text.strip() + chr(10))"
    return [sys.executable, "-S", "-c", code, str(file)]


def claude_hooks(file: Path, *names: str) -> dict[str, Any]:
    """Settings with which claude appends each of these events to `file`."""
    hook = {"type": "command", "command": shlex.join(appends(file)), "timeout": 20}
    return {"hooks": {name: [{"hooks": [hook]}] for name in names}}


def appended(file: Path) -> list[dict[str, Any]]:
    """What came so far."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []


class Terminal:
    """A client in a tmux server of its own, 110 by 35; `with` ends it and all that it started."""

    def __init__(self, folder: Path, argv: list[str], *, cwd: Path, env: dict[str, str]) -> None:
        self._socket = str(folder / "t.sock")
        if len(self._socket) > 100:
            raise ValueError(f"too deep for a socket: {self._socket}")
        start = ["new-session", "-d", "-s", "client", "-x", "110", "-y", "35", "-c", str(cwd)]
        lasting = "set-option -g remain-on-exit on ; set-option -g focus-events on ; set-option -g status off ;"
        self._tmux(*lasting.split(), *start, *argv, env=env, check=True)
        self._sessions = {int(self._ask("#{pid}")), int(self._ask("#{pane_pid}"))}

    def _tmux(
        self, *argv: str, env: dict[str, str] | None = None, check: bool = False, input: str | None = None
    ) -> str:
        command = [shutil.which("tmux") or "tmux", "-S", self._socket, "-f", "/dev/null", *argv]
        done = subprocess.run(
            command, env=env, input=input, capture_output=True, text=True, encoding="utf-8", check=False, timeout=30
        )
        assert not check or done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    def _ask(self, format: str) -> str:
        return self._tmux("display-message", "-p", "-t", "client:", format, check=True).strip()

    def screen(self) -> str:
        return self._tmux("capture-pane", "-p", "-t", "client:")

    def exited(self) -> int | None:
        """The exit status of the client, once it has one."""
        dead, _, status = self._ask("#{pane_dead} #{pane_dead_status}").partition(" ")
        return int(status or -1) if dead == "1" else None

    def paste(self, text: str) -> None:
        self._tmux("load-buffer", "-b", "text", "-", input=text, check=True)
        self._tmux("paste-buffer", "-p", "-d", "-b", "text", "-t", "client:", check=True)

    def keys(self, *keys: str) -> None:
        self._tmux("send-keys", "-t", "client:", *keys, check=True)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *exc: object) -> None:
        self._tmux("kill-server")
        deadline = time.monotonic() + 20
        while left := _processes(self._sessions):
            assert time.monotonic() < deadline, f"still there: {left}"
            time.sleep(0.02)


def _processes(sessions: set[int]) -> list[int]:
    """Every process of these sessions (`setsid`), by its id."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            state, _, _, session = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[:4]
        except OSError:
            continue
        if int(session) in sessions and state != "Z":
            found.append(int(entry))
    return found
