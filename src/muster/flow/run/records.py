"""What the JSON files of a run hold: one class, one reader and one writer for each file.

`from_json` takes decoded JSON and never raises. A value of the wrong type counts as missing, because a file may be damaged or
written by somebody else. `to_json` writes every field, so the keys of a file are the fields of its class.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from .results import Result

VERSION = 1
#: Every task ends with one of these.
OUTCOMES = ("ok", "blocked", "failed", "invalid", "timeout", "stalled", "over-budget", "cancelled", "lost")
#: The outcomes of a task that the agent itself finished as intended.
GOOD = frozenset({"ok", "blocked"})
RESULTS = ("fixed", "improved", "unchanged", "refused", "untested")


class RunInfo(NamedTuple):
    """`run.json`: what was asked for. Written once, when the run is made."""

    version: int = 0
    """0 if the file cannot be read."""
    name: str = ""
    created: float = 0.0
    kind: str = "map"
    """`map` or `improve`; a `reduce` of agents and branches is an `improve` with `sources`."""
    digest: str = ""
    """Digest of the input: equal for equal requests."""
    repo: str = ""
    source: str = ""
    """The directory of the repository in which the command was typed."""
    base: str = ""
    type: str = ""
    prompt: str = ""
    args: tuple[str, ...] = ()
    places: tuple[str, ...] = ("",)
    """The hosts that run agents; empty is this machine."""
    paths: tuple[str, ...] = ()
    permissions: str = "ask"
    tutorial: str = ""
    sources: tuple[tuple[str, str, str], ...] = ()
    """The agents and branches that `reduce` takes in: name, address of the agent, commit of the branch."""

    def to_json(self) -> dict[str, Any]:
        return self._asdict()

    @classmethod
    def from_json(cls, data: object) -> RunInfo:
        found = as_dict(data)
        sources = [tuple(row) for row in as_list(found.get("sources")) if isinstance(row, list) and len(row) == 3]
        return cls(
            version=as_int(found.get("version")),
            name=as_text(found.get("name")),
            created=as_number(found.get("created")) or 0.0,
            kind=as_text(found.get("kind")) or "map",
            digest=as_text(found.get("digest")),
            repo=as_text(found.get("repo")),
            source=as_text(found.get("source")),
            base=as_text(found.get("base")),
            type=as_text(found.get("type")),
            prompt=as_text(found.get("prompt")),
            args=as_texts(found.get("args")),
            places=as_texts(found.get("places")) or ("",),
            paths=as_texts(found.get("paths")),
            permissions=as_text(found.get("permissions")) or "ask",
            tutorial=as_text(found.get("tutorial")),
            sources=tuple((str(name), str(address), str(commit)) for name, address, commit in sources),
        )


class AttemptAgent(NamedTuple):
    """`agent.json` of an attempt: who works on the task. Written before the agent exists."""

    name: str = ""
    """Empty if no agent was launched: the task was skipped, or a branch is taken as its work."""
    place: str = ""
    """The host; empty is this machine."""
    address: str = ""
    began: float | None = None
    branch: str = ""
    """The branch that `reduce` takes instead of an agent's work."""

    def to_json(self) -> dict[str, Any]:
        return self._asdict()

    @classmethod
    def from_json(cls, data: object) -> AttemptAgent | None:
        """None if there is no record: nobody knows who would have had the attempt."""
        if not isinstance(data, dict) or not data:
            return None
        return cls(
            name=as_text(data.get("name")),
            place=as_text(data.get("place")),
            address=as_text(data.get("address")),
            began=as_number(data.get("began")),
            branch=as_text(data.get("branch")),
        )


class Outcome(NamedTuple):
    """`outcome.json` of an attempt: how it ended, and what was brought home of it."""

    outcome: str = ""
    """One of OUTCOMES."""
    reason: str = ""
    final: bool = False
    """False if the task is tried again."""
    t: float = 0.0
    """When the attempt ended."""
    retry_at: float | None = None
    seconds: float | None = None
    tokens: float | None = None
    cost_usd: float | None = None
    summary: str = ""
    claimed: Result | None = None
    """What the agent submitted. Nothing of it is verified."""
    branch: str = ""
    tip: str = ""
    commits: int | None = None
    """None if no work was brought home."""
    uncommitted: str = ""
    """The branch with what the agent had not committed."""
    repo: str = ""
    """The repository that has these branches."""
    harvest_errors: tuple[str, ...] = ()
    keep_agent: bool = False
    """Do not destroy the agent: something could not be brought home, or the agent is not the run's own."""
    host_silent: bool = False
    """The host did not answer at the end. If it comes back, the agent may still be at work."""
    failure: dict[str, Any] | None = None
    """A `failures.Failure`, classified."""
    uses_retry: bool = True
    """False if a limit caused the failure, which uses up none of the task's retries."""

    @property
    def good(self) -> bool:
        return self.outcome in GOOD

    def to_json(self) -> dict[str, Any]:
        return {"version": VERSION, **self._asdict(), "claimed": self.claimed._asdict() if self.claimed else None}

    @classmethod
    def from_json(cls, data: object) -> Outcome | None:
        """None unless it names one of OUTCOMES: the attempt then has no outcome yet."""
        if not isinstance(data, dict) or data.get("outcome") not in OUTCOMES:
            return None
        failure = data.get("failure")
        return cls(
            outcome=str(data["outcome"]),
            reason=as_text(data.get("reason")),
            final=data.get("final") is True,
            t=as_number(data.get("t")) or 0.0,
            retry_at=as_number(data.get("retry_at")),
            seconds=as_number(data.get("seconds")),
            tokens=as_number(data.get("tokens")),
            cost_usd=as_number(data.get("cost_usd")),
            summary=as_text(data.get("summary")),
            claimed=_result(data.get("claimed")),
            branch=as_text(data.get("branch")),
            tip=as_text(data.get("tip")),
            commits=as_int(data["commits"]) if isinstance(data.get("commits"), int) else None,
            uncommitted=as_text(data.get("uncommitted")),
            repo=as_text(data.get("repo")),
            harvest_errors=as_texts(data.get("harvest_errors")),
            keep_agent=data.get("keep_agent") is True,
            host_silent=data.get("host_silent") is True,
            failure=failure if isinstance(failure, dict) else None,
            uses_retry=data.get("uses_retry") is not False,
        )

    def lean(self) -> Outcome:
        """Return the outcome without the long texts. The scheduler keeps one of these for each of 10,000 attempts."""
        return self._replace(reason="", summary="", claimed=None, harvest_errors=(), failure=None)


def _result(data: object) -> Result | None:
    if not isinstance(data, dict):
        return None
    return Result(
        as_text(data.get("outcome")),
        as_text(data.get("summary")),
        as_text(data.get("reason")),
        as_texts(data.get("escalate")),
        as_texts(data.get("artifacts")),
        as_number(data.get("t")) or 0.0,
        as_int(data.get("version")),
    )


class KeptOut(NamedTuple):
    """A changed path that is not integrated, or would not be if it were not `allowed`."""

    path: str
    line: int
    rule: str
    reason: str
    allowed: bool = False

    @classmethod
    def from_json(cls, data: object) -> KeptOut:
        found = as_dict(data)
        return cls(
            as_text(found.get("path")),
            as_int(found.get("line")),
            as_text(found.get("rule")),
            as_text(found.get("reason")),
            found.get("allowed") is True,
        )


class Verified(NamedTuple):
    """`verified.json` of a task: what its change came to in a clean checkout."""

    attempt: int = 0
    """Whose change it was. If the task has a newer attempt, that one is not verified."""
    ok: bool = False
    result: str = ""
    """One of RESULTS; `refused` unless `ok`."""
    reason: str = ""
    claimed: str = ""
    """The outcome that the agent submitted."""
    base: str = ""
    moved: bool = False
    """The change had to be moved onto the run's base."""
    implementation: tuple[str, ...] = ()
    """The changed paths of the implementation, and all other changed paths that are integrated."""
    other: tuple[str, ...] = ()
    kept_out: tuple[KeptOut, ...] = ()
    tests: tuple[str, ...] | None = None
    """The tests that the change fixes, if the task is a branch. None: the test that the task is about."""
    unit: str = ""
    """The commit that is integrated; empty if there is nothing to integrate."""
    evidence: tuple[dict[str, Any], ...] = ()
    """Every test run that was made for it."""

    def to_json(self) -> dict[str, Any]:
        return {**self._asdict(), "kept_out": [one._asdict() for one in self.kept_out]}

    @classmethod
    def from_json(cls, data: object) -> Verified | None:
        if not isinstance(data, dict) or data.get("result") not in RESULTS:
            return None
        tests = data.get("tests")
        return cls(
            attempt=as_int(data.get("attempt")),
            ok=data.get("ok") is True,
            result=str(data["result"]),
            reason=as_text(data.get("reason")),
            claimed=as_text(data.get("claimed")),
            base=as_text(data.get("base")),
            moved=data.get("moved") is True,
            implementation=as_texts(data.get("implementation")),
            other=as_texts(data.get("other")),
            kept_out=tuple(KeptOut.from_json(one) for one in as_list(data.get("kept_out")) if isinstance(one, dict)),
            tests=as_texts(tests) if isinstance(tests, list) else None,
            unit=as_text(data.get("unit")),
            evidence=tuple(one for one in as_list(data.get("evidence")) if isinstance(one, dict)),
        )


class Plan(NamedTuple):
    """`plan.json` of an `improve`: which tests get an agent first, and which get none."""

    skipped: Mapping[str, str] = {}
    """The tests that get no agent, each with the reason."""
    scouts: tuple[str, ...] = ()
    """One test of each group of like failures: its agent goes first."""

    def to_json(self) -> dict[str, Any]:
        return self._asdict()

    @classmethod
    def from_json(cls, data: object) -> Plan | None:
        if not isinstance(data, dict):
            return None
        return cls(as_text_map(data.get("skipped")), as_texts(data.get("scouts")))


class Ahead(NamedTuple):
    """`ahead.json` of an `improve`: what the scouts achieved, from which the other agents start."""

    base: str = ""
    """The commit with the scouts' fixes."""
    included: tuple[str, ...] = ()
    """The tasks of the scouts whose fixes it has."""
    fixed: Mapping[str, str] = {}
    """The tests that pass by them, each with the task of the scout."""
    siblings: tuple[str, ...] = ()
    """What the scouts found, one line each, for the prompts of the other agents."""

    def to_json(self) -> dict[str, Any]:
        return self._asdict()

    @classmethod
    def from_json(cls, data: object) -> Ahead | None:
        if not isinstance(data, dict):
            return None
        return cls(
            as_text(data.get("base")),
            as_texts(data.get("included")),
            as_text_map(data.get("fixed")),
            as_texts(data.get("siblings")),
        )


class Finished(NamedTuple):
    """`finished.json`: the run is over."""

    t: float = 0.0
    outcomes: Mapping[str, int] = {}
    """How many tasks ended with each outcome."""
    commit: str | None = None
    """What `improve` delivered: empty for nothing, None if it never came to deliver."""
    branch: str = ""

    def to_json(self) -> dict[str, Any]:
        return self._asdict()

    @classmethod
    def from_json(cls, data: object) -> Finished | None:
        if not isinstance(data, dict):
            return None
        outcomes = as_dict(data.get("outcomes"))
        commit = data.get("commit")
        return cls(
            as_number(data.get("t")) or 0.0,
            {name: count for name in OUTCOMES if (count := as_int(outcomes.get(name)))},
            commit if isinstance(commit, str) else None,
            as_text(data.get("branch")),
        )


class Control(NamedTuple):
    """`control.json`: what other processes ask of the one that runs the run."""

    state: str = ""
    """Empty, `paused` or `stopped`."""
    resumed: float | None = None
    """When a person last said to go on."""
    max_agents: float | None = None
    dollars: float | None = None
    tokens: float | None = None
    launch_rate: float | None = None

    @classmethod
    def from_json(cls, data: object) -> Control:
        found = as_dict(data)
        return cls(
            as_text(found.get("state")),
            *(as_number(found.get(key)) for key in ("resumed", "max_agents", "dollars", "tokens", "launch_rate")),
        )


# Values of JSON, each as the type that it should have


def as_text(value: object) -> str:
    return value if isinstance(value, str) else ""


def as_texts(value: object) -> tuple[str, ...]:
    return tuple(one for one in value if isinstance(one, str)) if isinstance(value, list | tuple) else ()


def as_text_map(value: object) -> dict[str, str]:
    return {key: text for key, text in as_dict(value).items() if isinstance(text, str)}


def as_number(value: object) -> float | None:
    """Return a finite number; True and False are none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if -1e15 < value < 1e15 and math.isfinite(value) else None


def as_int(value: object) -> int:
    return int(as_number(value) or 0)


def as_list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def as_dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
