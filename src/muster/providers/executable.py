"""A provider that is a program, `muster-provider-NAME` on the PATH. What it is asked is described in docs/plugins.md."""

from __future__ import annotations

import functools
import json
import subprocess
from collections.abc import Mapping
from typing import Any

from ..errors import MusterError
from ..host import CommandFailed, CommandHost, call
from ..plugins import Provider

TYPES = {"text": str, "integer": int, "number": float, "boolean": bool, "list": list}
#: Seconds that `describe` and `names` may take; making a host may take as long as it takes.
ANSWER_SECONDS = 30


class Executable(Provider):
    """The program says which keys and which verbs it has; one without `create` only finds hosts."""

    def __init__(self, path: str) -> None:
        self.path = path

    @property
    def keys(self) -> Mapping[str, type]:  # type: ignore[override]  # asked for when it is needed
        return self._described[0]

    @property
    def makes(self) -> bool:
        return "create" in self._described[1]

    def find(self, name: str, settings: Mapping[str, Any]) -> CommandHost:
        return CommandHost(name, self.name, self._argv(settings, "run", name), self._argv(settings, "attach", name))

    def create(self, name: str, settings: Mapping[str, Any]) -> CommandHost:
        if not self.makes:
            super().create(name, settings)
        self._ask(settings, "create", name)
        return self.find(name, settings)

    def start(self, name: str, settings: Mapping[str, Any]) -> None:
        self._ask(settings, "start", name)

    def stop(self, name: str, settings: Mapping[str, Any]) -> None:
        self._ask(settings, "stop", name)

    def destroy(self, name: str, settings: Mapping[str, Any]) -> None:
        self._ask(settings, "destroy", name)

    def names(self, settings: Mapping[str, Any]) -> list[str]:
        return self._ask(settings, "names").split() if self.makes else []

    @functools.cached_property
    def _described(self) -> tuple[dict[str, type], list[str]]:
        text = self._run([self.path, "describe"], ANSWER_SECONDS)
        try:
            data = json.loads(text)
            return {str(key): TYPES[kind] for key, kind in data.get("keys", {}).items()}, list(data.get("verbs", []))
        except (ValueError, AttributeError, TypeError, LookupError) as error:
            hint = 'such as {"keys": {"image": "text"}, "verbs": ["create"]}'
            raise MusterError(f"{self.path} describe did not print its description: {text[:80]!r}", hint) from error

    def _ask(self, settings: Mapping[str, Any], verb: str, *words: str) -> str:
        if verb not in self._described[1]:
            raise self._cannot(f"{verb} hosts")
        return self._run(self._argv(settings, verb, *words), ANSWER_SECONDS if verb == "names" else None)

    def _argv(self, settings: Mapping[str, Any], *words: str) -> list[str]:
        given = [f"MUSTER_PROVIDER_{key.upper()}={_text(value)}" for key, value in sorted(settings.items())]
        return [*(["env", *given] if given else []), self.path, *words]

    def _run(self, argv: list[str], timeout: float | None) -> str:
        done: subprocess.CompletedProcess[bytes] = call(argv, b"", timeout)
        if done.returncode:
            raise CommandFailed(f"provider {self.name}", done.returncode, done.stderr)
        return done.stdout.decode("utf-8", "replace")


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
