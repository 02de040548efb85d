"""What a run wrote down of what happened fits docs/schemas/event.json."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

SCHEMA = Path(__file__).parent.parent.parent / "docs" / "schemas" / "event.json"


@cache
def _validator() -> Any:
    from jsonschema import Draft202012Validator

    return Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8")))


def check(home: Path) -> None:
    """The events of all runs below a folder of muster's. Half a line, of a process that was killed or a disk that was full, is none."""
    shapes = set()
    for path in home.glob("runs/*/events.jsonl"):
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if not isinstance(event, dict) or "kind" not in event:
                continue  # a test's own
            # Of thousands of the same shape one is looked at.
            shape = (event["kind"], *((key, type(value)) for key, value in event.items()))
            if shape not in shapes:
                shapes.add(shape)
                errors = [f"{error.json_path}: {error.message}" for error in _validator().iter_errors(event)]
                assert not errors, f"{path}: {line}\n" + "\n".join(errors)
