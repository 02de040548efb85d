"""Parses the `result.json` that an agent submits, and says what is wrong with an invalid one.

Pure. All of it is *claimed*: nothing here checks whether it is true, or whether an artifact exists.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, NamedTuple

from ... import Status

VERSION = 1
OUTCOMES = ("ok", "blocked", "failed")
#: In bytes, as in sh/agent/submit.sh and docs/schemas/result.json.
RESULT_MOST = 1 << 20
SUMMARY_MOST = 64 << 10
TEXT_MOST = 4 << 10
PART_MOST = 255
NAME_MOST = 1024
ESCALATE_MOST = 20
ARTIFACTS_MOST = 100

#: Control characters (C0, DEL, C1) and lone surrogates, which stand for bytes that are not UTF-8.
_ODD = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_NOT_BLANK = re.compile("[^ \t\r\n]")


class Result(NamedTuple):
    """What the agent claims. Its texts may contain anything: show them as data."""

    outcome: str
    summary: str
    reason: str = ""
    escalate: tuple[str, ...] = ()
    artifacts: tuple[str, ...] = ()
    """Paths of files and folders below `artifacts`. They are safe as paths, and may not exist."""
    t: float = 0.0
    """When it was submitted, by the clock of the agent's host; 0 if unknown."""
    version: int = VERSION


class Flaw(NamedTuple):
    """Why a result is invalid, and what its agent should do. Each is a phrase of one short line without control characters."""

    what: str
    todo: str

    def __str__(self) -> str:
        return f"the result cannot be taken: {self.what}"


FOREIGN = Flaw("this agent's own submit did not write it", "run the submit on your PATH")


def read(raw: bytes) -> Result | Flaw:
    """Parse the bytes of a `result.json`. Unknown keys are ignored."""
    if len(raw) > RESULT_MOST:
        return Flaw(f"it is larger than {RESULT_MOST} bytes", "shorten the summary, or keep it as an artifact")
    try:
        data = json.loads(raw.decode("utf-8"), parse_constant=_no_constant)
    except UnicodeDecodeError:
        return Flaw("it is not UTF-8", "let submit write it")
    except (ValueError, RecursionError):
        return Flaw("it is empty" if not raw.strip() else "it is not a JSON document", "let submit write it")
    if not isinstance(data, dict):
        return Flaw(f"it is {_kind(data)} where a JSON object should be", "let submit write it")
    return _version(data) or _outcome(data) or _texts(data) or _artifacts(data) or _time(data) or _result(data)


def of(status: Status) -> Result | Flaw:
    """Return the result that an agent submitted. One that the agent's own `submit` did not write is invalid, whatever it says."""
    found = read(status.result.encode("utf-8", "surrogateescape"))
    if isinstance(found, Result) and any(alarm.field == "result" for alarm in status.alarms):
        return FOREIGN
    return found


def words_back(flaw: Flaw) -> str:
    """Return the message that asks an agent, once, to correct its result."""
    return (
        f"Your result could not be taken: {flaw.what}. Please {flaw.todo}, and submit again: "
        f"submit --outcome {'|'.join(OUTCOMES)} --summary-file FILE (submit --help shows everything). "
        "The next result is final."
    )


def name_flaw(name: str) -> str:
    """Return what is wrong with the path of an artifact, as a phrase; empty if nothing is."""
    parts = name.split("/")
    if not name:
        return "is empty"
    if name.startswith("/"):
        return "is an absolute path"
    if ".." in parts:
        return "has .. in it"
    if "" in parts or "." in parts:
        return "has an empty part or a . in it"
    if odd := _ODD.search(name):
        return "is not UTF-8" if odd[0] >= "\ud800" else "has a control character in it"
    if len(name.encode()) > NAME_MOST or any(len(part.encode()) > PART_MOST for part in parts):
        return f"is too long ({PART_MOST} bytes for each part, {NAME_MOST} together)"
    return ""


def shown(text: str, most: int = 60) -> str:
    """Return an agent's text for use inside a sentence of ours: short, on one line, without control characters."""
    line = "".join(char if char.isprintable() else "?" for char in text[: most + 1])
    return line if len(line) <= most else line[:most] + "…"


def _version(data: dict[str, Any]) -> Flaw | None:
    version: Any = data.get("version")
    if not _number(version) or version < VERSION or version != int(version):
        return _off(data, "version", f"where {VERSION} should be")
    if version > VERSION:
        many = shown(str(version), 20)
        return Flaw(
            f"it is of version {many}, and version {VERSION} is what is known here", "use the submit on your PATH"
        )
    return None


def _outcome(data: dict[str, Any]) -> Flaw | None:
    outcome = data.get("outcome")
    if not isinstance(outcome, str):
        return _off(data, "outcome", f"where one of {', '.join(OUTCOMES)} should be")
    if outcome in OUTCOMES:
        return None
    import difflib

    near = difflib.get_close_matches(outcome[:20].strip().lower(), OUTCOMES, 1)
    todo = f"write {near[0]} if that is what you mean" if near else f"choose one of {', '.join(OUTCOMES)}"
    return Flaw(f'"{shown(outcome)}" is no outcome, only {", ".join(OUTCOMES)} are', todo)


def _texts(data: dict[str, Any]) -> Flaw | None:
    """Check summary, reason and escalate."""
    if not isinstance(data.get("summary"), str):
        return _off(data, "summary", "where a text should be")
    if not isinstance(data.get("reason", ""), str):
        return _off(data, "reason", "where a text should be")
    escalate = data.get("escalate", [])
    if not isinstance(escalate, list) or not all(isinstance(text, str) for text in escalate):
        return _off(data, "escalate", "where a list of texts should be")
    if len(escalate) > ESCALATE_MOST:
        return Flaw(
            f"escalate has {len(escalate)} texts, at most {ESCALATE_MOST} are taken", "say several things in one"
        )
    if not _NOT_BLANK.search(data["summary"]):
        return Flaw("the summary is empty", "say in it what you did and found")
    if not all(map(_NOT_BLANK.search, escalate)):
        return Flaw("an escalation is empty", "say what a person should know, or leave it out")
    for key, text, most in (
        ("the summary", data["summary"], SUMMARY_MOST),
        ("the reason", data.get("reason", ""), TEXT_MOST),
        *(("an escalation", text, TEXT_MOST) for text in escalate),
    ):
        if len(_text(text).encode()) > most:
            return Flaw(f"{key} is longer than {most} bytes", "shorten it, or keep the rest in a file as an artifact")
    return None


def _artifacts(data: dict[str, Any]) -> Flaw | None:
    names = data.get("artifacts", [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return _off(data, "artifacts", "where a list of names should be")
    if len(names) > ARTIFACTS_MOST:
        return Flaw(
            f"{len(names)} artifacts are named, at most {ARTIFACTS_MOST} are taken", "name a folder that has them"
        )
    for name in names:
        if flaw := name_flaw(name):
            return Flaw(f'the artifact "{shown(name)}" {flaw}', "name files and folders of the work dir, from there")
    return None


def _time(data: dict[str, Any]) -> Flaw | None:
    t = data.get("t", 0)
    return None if _number(t) and 0 <= t < 1e12 else _off(data, "t", "where seconds since 1970 should be")


def _result(data: dict[str, Any]) -> Result:
    return Result(
        data["outcome"],
        _text(data["summary"]),
        _text(data.get("reason", "")),
        tuple(map(_text, data.get("escalate", []))),
        tuple(data.get("artifacts", [])),
        float(data.get("t", 0)),
    )


def _off(data: dict[str, Any], key: str, wanted: str) -> Flaw:
    said = f"{key} is {_kind(data[key])}" if key in data else f"there is no {key}"
    return Flaw(f"{said} {wanted}", "let submit write it")


def _kind(value: Any) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"the number {shown(repr(value), 20)}"
    return {str: "a text", list: "a list", dict: "an object", bool: "true or false"}.get(type(value), "null")


def _number(value: Any) -> bool:
    """Return whether the value is a finite number, and not a bool. An int may be too large for `math.isfinite`."""
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 64


def _text(text: str) -> str:
    """Replace lone surrogates, which JSON can express and UTF-8 cannot."""
    return re.sub("[\ud800-\udfff]", "\ufffd", text)


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")
