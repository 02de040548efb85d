"""The pull request of a run: its text, made of what was recorded, and how it is opened with the user's own `gh`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ... import Fleet
from ...errors import MusterError, NotFound
from ..improving import verify
from ..run import git
from . import changes
from .funnel import funnel, kept_out, kept_out_line
from .integrate import Delivery
from .reduction import Reduction

#: GitHub refuses a text of more than 65,536 characters. Each list of the text ends after this many.
ACCEPTED_MOST, LEFT_MOST, REFUSED_MOST, KEPT_OUT_MOST = 28_000, 13_000, 10_000, 8_000
#: The numbers of the funnel that are shown, and those that are shown where nothing is tested by pytest.
COUNTS = ("tests", "failing", "launched", "valid", "verified", "integrated", "left_out", "blocked")
UNTESTED_COUNTS = ("launched", "valid", "integrated", "left_out", "blocked")


def text(work: Reduction, delivery: Delivery) -> str:
    """Return the text: what is in the branch, what was left out and why."""
    counts = funnel(work.run)
    lines = [f"# {_summary(work, counts)}", ""]
    lines += [f"Run `{work.run.name}`: {_counts(counts)}.", "", f"Proof: {delivery.proof or delivery.why}.", ""]
    titles = {unit.name: unit.title for unit in changes.units(work)}
    accepted = [
        f"- {_safe(titles[one.name])} (`{one.name}`"
        + (f", and {len(one.collapsed)} equal" if one.collapsed else "")
        + f"; {one.reason})"
        for one in delivery.accepted
    ]
    left_out = [f"- `{name}`: {_safe(left.reason)}" for name, left in delivery.left_out.items()]
    kept = [f"- `{name}`: {_safe(kept_out_line(paths), 1000)}" for name, paths in kept_out(work.run).items()]
    refused = [
        f"- `{task.id}`: {_safe(verified.reason)}"
        for task in work.run.tasks()
        if (verified := verify.verified(work.run, task)) and not verified.ok
    ]
    lines += listed("In this branch", accepted, ACCEPTED_MOST)
    lines += listed("Kept out of these changes", kept, KEPT_OUT_MOST)
    lines += listed("Left out", left_out, LEFT_MOST)
    lines += listed("Claimed and not verified", refused, REFUSED_MOST)
    return "\n".join(lines).rstrip() + "\n"


def listed(title: str, lines: Sequence[str], most: int) -> list[str]:
    """Return a list with a heading, cut after `most` characters. Its last line then says how many lines are missing."""
    kept, size = 0, 0
    while kept < len(lines) and (size := size + len(lines[kept]) + 1) <= most:
        kept += 1
    more = [f"- and {len(lines) - kept} more"] if kept < len(lines) else []
    return [f"## {title}", "", *lines[:kept], *more, ""] if lines else []


def title(work: Reduction) -> str:
    """Return the title of the pull request."""
    counts = funnel(work.run)
    if counts["tests"]:
        return f"Fix {counts['fixed']} tests, improve {counts['improved']} ({work.run.name})"
    return f"{_summary(work, counts)} ({work.run.name})"


def _summary(work: Reduction, counts: Mapping[str, Any]) -> str:
    if counts["tests"]:
        return f"{counts['fixed']} tests fixed, {counts['improved']} improved"
    return f"{counts['integrated']} changes of {work.run.name}"


def _counts(counts: Mapping[str, Any]) -> str:
    names = COUNTS if counts["tests"] else UNTESTED_COUNTS
    cost = "cost unknown" if counts["cost_usd"] is None else f"${counts['cost_usd']:.2f}"
    return ", ".join(f"{counts[name]} {name.replace('_', ' ')}" for name in names) + f", {cost}"


def _safe(words: str, most: int = 300) -> str:
    """Return an agent's words as one line of Markdown, without links, images, HTML or mentions."""
    plain = "".join(char for char in words if char.isprintable())[:most]
    return "".join(f"\\{char}" if char in "\\`*_[]<>#@|!" else char for char in plain)


def check(fleet: Fleet, repo: str) -> None:
    """Raise `NotFound` if a pull request could not be opened at the end."""
    if fleet.local.run(["sh", "-c", "command -v gh"]).returncode:
        raise NotFound("gh, which opens pull requests, is not on your PATH", "install it, or leave out --pr")
    if not git.text(fleet.local, repo, "remote", "get-url", "origin"):
        raise NotFound(
            "the repository has no remote called origin to push to", "git remote add origin URL, or leave out --pr"
        )


def open(work: Reduction, delivery: Delivery) -> str:
    """Push the branch and open a pull request with the user's own git and gh; return its address."""
    repo, body = work.run.info.repo, work.run.path("pull-request.md")
    _call(work, delivery, "", ["git", "-C", repo, "push", "-u", "origin", f"refs/heads/{delivery.branch}"])
    words = ["gh", "pr", "create", "--head", delivery.branch, "--title", title(work), "--body-file", body]
    return _call(work, delivery, " and was pushed", ["env", "-C", repo, *words])


def _call(work: Reduction, delivery: Delivery, done_before: str, argv: list[str]) -> str:
    done = work.fleet.local.run(argv)
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        line = next((line for line in said if line.startswith(("fatal:", "error:", "! "))), said[-1] if said else "")
        hint = f"the branch is {delivery.branch}{done_before}; muster reduce {work.run.name} --pr tries it again"
        program = next(word for word in argv if word in ("git", "gh"))
        raise MusterError(f"{program} failed: {line or done.returncode}", hint)
    return done.stdout.decode("utf-8", "replace").strip()
