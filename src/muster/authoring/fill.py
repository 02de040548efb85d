"""`muster tutorial fill`: an agent proposes examples for the headings of a tutorial, and a person keeps some of them.

Every example is run in the agent's own work dir, by the fleet's exec. Those that fail, or use flags that the program's help does
not name, are interface findings: the program or its documentation confuses. What is kept goes to the agent's branch;
the user's own tree is only read.
"""

from __future__ import annotations

import difflib
import glob
import os
import re
import shlex
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import Fleet
from ..errors import MusterError, NotFound, UsageError
from ..flow.run import prompts
from ..tutorial import blocks
from . import agent
from .agent import FILE_CAP, PROMPTS, Place, Say, Wish

if TYPE_CHECKING:
    from ..host import Found
    from ..tutorial.blocks import Block

EXAMPLE_SECONDS = 60.0
HELP_SECONDS = 10.0
OUTPUT_CAP = 16 << 10
RULE = "# " + "-" * 69
#: Labels of the agent: the commits that hold what it proposed, and what was kept so far.
PROPOSED, ACCEPTED = "proposed", "accepted"
#: Shell words and tools that everybody has: a tutorial is not about them.
COMMON = frozenset(
    ". : [ [[ alias awk bash bg break cat cd chmod chown command continue cp curl cut date declare diff dirname echo env eval "
    "exec exit export false fg file find grep gunzip gzip head jobs kill less ln local ls man mkdir mktemp mv popd printf "
    "ps pushd pwd read realpath return rm rmdir sed seq set sh shift sleep sort source sudo tail tar tee test time timeout "
    "touch tr trap true type ulimit umask unset uniq wait watch wc which xargs yes".split()
)


class Finding(NamedTuple):
    kind: str
    """`fails`, `late` or `unknown-flag`."""
    message: str


class Proposal(NamedTuple):
    id: str
    """Made from the text, so it is the same next time."""
    heading: str
    """The words of the heading it belongs to."""
    line: int
    """In the agent's file."""
    text: str
    ok: bool = False
    exit_code: int | None = None
    """None when its time was up."""
    output: str = ""
    findings: tuple[Finding, ...] = ()


class Change(NamedTuple):
    """Something else the agent did to the tutorial: listed, never taken."""

    kind: str
    """`changed`, `removed`, or `misplaced`: a new block under no heading that was to be filled."""
    line: int
    """In the user's file, or for a misplaced block in the agent's."""
    text: str


class Filled(NamedTuple):
    place: Place
    one: Found
    headings: list[Block]
    proposals: list[Proposal]
    changed: list[Change]


# What is to be filled


def headings(at: Place, wanted: Sequence[str] = ()) -> list[Block]:
    """The headings of a tutorial that have nothing under them, or those that were asked for by their words. NotFound for others."""
    found = [block for block in blocks.read(at.file) if block.kind == "heading"]
    chosen: list[Block] = []
    for text in wanted:
        words = " ".join(text.strip().lstrip("#").split()).lower()
        if not words:
            raise UsageError("--heading is empty", f"muster tutorial list {at.shown} --kind heading")
        exact = [block for block in found if block.comment.lower() == words]
        some = exact or [block for block in found if words in block.comment.lower()]
        if not some:
            known = (
                ", ".join(repr(block.comment) for block in found[:8]) or "there are none; write one as a comment alone"
            )
            raise NotFound(f"{at.shown} has no heading {text!r} to be filled", f"to be filled: {known}")
        chosen += some
    return sorted(set(chosen), key=lambda block: block.line) if wanted else found


def ask(at: Place, wanted: Sequence[Block]) -> str:
    """The prompt of the agent."""
    lines = "\n".join(f"- line {block.line}: {' '.join(block.comment.split())}" for block in wanted)
    return prompts.prompt("fill", PROMPTS, tutorial=at.path, headings=lines, docs=_docs(at))


def _docs(at: Place) -> str:
    """Where the program's documentation is, as far as the tree tells."""
    looked = ("README*", "docs/commands", "docs/*.md", "doc/*.md", "man", "docs/man", "docs/commands/man", "*.1")
    found = [path for pattern in looked for path in sorted(glob.glob(pattern, root_dir=at.top))[:12]]
    lines = [f"- {path}{'/' if os.path.isdir(os.path.join(at.top, path)) else ''}" for path in dict.fromkeys(found)]
    name = program(blocks.read(at.file))
    if name:
        lines.append(f"- `{name} --help`, and `{name} SUBCOMMAND --help` for each of its subcommands")
        lines.append(f"- `man {name}`, where there is a manual page")
    return "\n".join(
        lines or ["- the files of this repository; look for a README, docs, manual pages and `PROGRAM --help`"]
    )


def program(found: Iterable[Block]) -> str:
    """The program a tutorial is about: the one it calls most; empty when that cannot be told."""
    names = Counter(call[0] for block in found for call in calls(block.text) if call[0] not in COMMON)
    return names.most_common(1)[0][0] if names else ""


# What was proposed


def propose(fleet: Fleet, one: Found, at: Place, wanted: Sequence[Block], *, again: bool, say: Say) -> Filled:
    """What the agent has written under these headings, each example run. `again`: banners may be what was a heading."""
    mine = blocks.read(at.file)
    targets = list(wanted) + [block for block in mine if again and block.kind == "banner"]
    found: dict[str, Proposal] = {}
    changed: list[Change] = []
    for number, text in enumerate(_written(fleet, one, at)):
        some, other = compare(mine, blocks.parse(text), targets)
        for proposal in some:
            found.setdefault(proposal.id, proposal)
        # Once a choice was made the file there is muster's, and what differs from the user's is the user's doing.
        changed = other if number == 0 and PROPOSED not in one.agent.labels else changed
    say(
        f"{len(found)} example{'' if len(found) == 1 else 's'} proposed by {one.status.address}"
        + (", running each" if found else "")
    )
    return Filled(at, one, list(wanted), _tried(fleet, one, list(found.values())) if found else [], changed)


def _written(fleet: Fleet, one: Found, at: Place) -> list[str]:
    """The tutorial in the agent's work dir, and those of earlier choices."""
    kept = [word for word in one.agent.labels.get(PROPOSED, "").split(",") if re.fullmatch(r"[0-9a-f]{40,64}", word)]
    data = [agent.on_host(fleet, one, "branch", "read", at.path, str(FILE_CAP))]
    for commit in kept:
        data.append(agent.on_host(fleet, one, "branch", "show", one.agent.gitdir, commit, at.path, str(FILE_CAP)))
    return [text.decode("utf-8", "replace") for text in data]


def compare(
    mine: Sequence[Block], theirs: Sequence[Block], targets: Sequence[Block]
) -> tuple[list[Proposal], list[Change]]:
    """The blocks that are new in theirs, with the heading above each; and what else was done to mine."""
    here = {block.text for block in mine}
    there = {block.text for block in theirs}
    asked = {block.comment: block for block in targets if block.comment}
    wide = {block.comment for block in mine if block.kind in ("heading", "banner")}
    heading, above = "", {}
    for block in theirs:
        if block.kind in ("heading", "banner"):
            heading = (
                block.comment
                if block.comment in asked
                else ""
                if block.comment in wide or block.kind == "banner"
                else heading
            )
        for target in asked.values():
            # The comment of a heading, with commands right under it: it was filled in without an empty line.
            if block.kind == "commands" and block.text.startswith(f"{target.text}\n"):
                heading = target.comment
        above[block.line] = heading
    new = [block for block in theirs if block.kind == "commands" and block.text not in here]
    gone = [block for block in mine if block.kind == "commands" and block.text not in there]
    changed: list[Change] = []
    for block in gone:
        near = max(new, key=lambda one: difflib.SequenceMatcher(None, block.text, one.text).ratio(), default=None)
        # The same place, or most of the same words.
        if near and (
            difflib.SequenceMatcher(None, block.text, near.text).ratio() > 0.6 or near.comment == block.comment != ""
        ):
            new.remove(near)
            changed.append(Change("changed", block.line, block.text))
        else:
            changed.append(Change("removed", block.line, block.text))
    lost = {block.comment for block in mine if block.kind == "heading" and block.comment} - {
        block.comment for block in theirs
    }
    for block in mine:
        joined = any(one.text.startswith(f"{block.text}\n") for one in theirs)
        if block.kind == "heading" and block.comment in lost and not joined:
            changed.append(Change("removed", block.line, block.text))
    proposals: dict[str, Proposal] = {}
    for block in new:
        if above[block.line]:
            proposals.setdefault(block.text, Proposal(block.id, above[block.line], block.line, block.text))
        else:
            changed.append(Change("misplaced", block.line, block.text))
    return list(proposals.values()), sorted(changed, key=lambda change: change.line)


# Running it


class _Bench:
    """The folders examples run in, on the agent's host, for as long as it is open."""

    def __init__(self, fleet: Fleet, one: Found) -> None:
        self._fleet, self._one = fleet, one
        self._helps: dict[tuple[str, ...], str] = {}

    def _run(self, verb: str, *args: str, input: bytes = b"", timeout: float = 60.0) -> bytes:
        return agent.on_host(
            self._fleet, self._one, "try", verb, self._one.agent.id, *args, input=input, timeout=timeout
        )

    def __enter__(self) -> _Bench:
        self._folder = self._run("begin").decode().strip()
        return self

    def __exit__(self, *_: object) -> None:
        self._run("end", self._folder)

    def run(self, text: str, seconds: float) -> tuple[int | None, str]:
        """The exit code, None when it was late; and the output of both streams."""
        args = ("run", self._folder, f"{seconds:g}", str(OUTPUT_CAP + 1))
        code, _, output = self._run(*args, input=f"{text}\n".encode(), timeout=seconds + 60.0).partition(b"\n")
        shown = output[:OUTPUT_CAP].decode("utf-8", "replace") + ("\n[cut]" if len(output) > OUTPUT_CAP else "")
        return (int(code) if code.isdigit() else None), shown

    def help(self, words: tuple[str, ...]) -> str:
        """What `PROGRAM SUBCOMMAND --help` says; empty when it does not help."""
        if words not in self._helps:
            code, text = self.run(f"{shlex.join(words)} --help", HELP_SECONDS)
            self._helps[words] = text if code == 0 else ""
        return self._helps[words]

    def unknown(self, call: Sequence[str]) -> list[str]:
        """The long flags of a call that its help does not name; none when there is no help."""
        own = list(call[: call.index("--")]) if "--" in call else list(call)
        flags = list(dict.fromkeys(word.partition("=")[0] for word in own if re.match(r"--[A-Za-z]", word)))
        flags = [flag for flag in flags if flag not in ("--help", "--version")]
        if not flags or own[0] in COMMON:
            return []
        words = [own[0]]
        helps = [self.help(tuple(words))]
        for word in own[1:3]:
            if not re.fullmatch(r"[a-z][a-z0-9-]*", word):
                break
            words.append(word)
            helps.append(self.help(tuple(words)))
        text = "\n".join(helps)
        return [
            flag for flag in flags if text.strip() and not re.search(rf"(?<![\w-]){re.escape(flag)}(?![\w-])", text)
        ]


def _tried(fleet: Fleet, one: Found, proposals: Sequence[Proposal]) -> list[Proposal]:
    """Each with what it did, in the order of the file."""
    with _Bench(fleet, one) as bench:
        return [_judged(bench, proposal) for proposal in proposals]


def _judged(bench: _Bench, proposal: Proposal) -> Proposal:
    code, output = bench.run(proposal.text, EXAMPLE_SECONDS)
    findings: list[Finding] = []
    if code is None:
        findings.append(Finding("late", f"it did not end within {EXAMPLE_SECONDS:g} s"))
    elif code:
        findings.append(Finding("fails", f"it exits with {code}"))
    for call in calls(proposal.text):
        for flag in bench.unknown(call):
            name = " ".join(word for word in call[:2] if re.fullmatch(r"[\w.-]+", word) and not word.startswith("-"))
            findings.append(Finding("unknown-flag", f"the help of {name} does not name {flag}"))
    told = tuple(dict.fromkeys(findings))
    return proposal._replace(ok=not told, exit_code=code, output=output, findings=told)


_OPERATORS = frozenset("| || & && ; ;; ( ) { } |&".split())
_KEYWORDS = frozenset("if then else elif fi while until for do done case esac ! time exec command sudo env".split())


def calls(text: str) -> list[list[str]]:
    """The programs that a block calls, each with its words, as far as they can be read without running it."""
    found: list[list[str]] = []
    for command in blocks.commands(text, bodies=False):
        lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
        lexer.whitespace_split, lexer.commenters = True, ""
        try:
            words = list(lexer)
        except ValueError:  # a quote that ends nowhere: bash will say so
            continue
        current: list[str] = []
        skip = False
        for word in [*words, ";"]:
            if skip:
                skip = False
            elif word in ("<", ">", ">>", "<<", "<<<", ">&", "&>"):
                skip = True
            elif word in _OPERATORS:
                while current and (current[0] in _KEYWORDS or re.match(r"[A-Za-z_]\w*=", current[0])):
                    del current[0]
                found += [current] if current and re.fullmatch(r"[\w./~+-]+", current[0]) else []
                current = []
            else:
                current.append(word)
    return found


# Keeping it


def chosen(filled: Filled, words: str) -> list[str]:
    """The ids that `all`, `passing` or a list of ids means. NotFound for one that was not proposed."""
    if words.strip() == "all":
        return [proposal.id for proposal in filled.proposals]
    if words.strip() == "passing":
        return [proposal.id for proposal in filled.proposals if proposal.ok]
    ids = [word.strip() for word in words.split(",") if word.strip()]
    known = [proposal.id for proposal in filled.proposals]
    if not ids:
        raise UsageError("--accept names no example", "--accept ID,ID, or passing, or all")
    for id in ids:
        if id not in known:
            hint = f"proposed: {', '.join(known)}" if known else f"{filled.one.status.address} has proposed nothing"
            raise NotFound(
                f"no example {id!r} was proposed", f"{hint}; muster tutorial fill --from {filled.one.status.address}"
            )
    return list(dict.fromkeys(ids))


def accept(fleet: Fleet, filled: Filled, ids: Sequence[str]) -> list[str]:
    """Commit these examples, and those that were kept before, on the agent's branch. Returns all of them."""
    one, at = filled.one, filled.place
    before = one.agent.labels.get(ACCEPTED, "").split(",")
    keep = [proposal for proposal in filled.proposals if proposal.id in ids or proposal.id in before]
    with open(at.file, "rb") as file:
        data = file.read()
    text = placed(data.decode("utf-8"), keep)
    mode = "100755" if os.access(at.file, os.X_OK) else "100644"
    message = f"Add {len(keep)} example{'' if len(keep) == 1 else 's'} to {at.path}\n\n" + "\n".join(p.id for p in keep)
    args = ("accept", one.agent.gitdir, one.agent.branch, one.agent.base, at.path, mode, message)
    told = agent.on_host(fleet, one, "branch", *args, input=text.encode()).decode("ascii", "replace").split()
    if len(told) != 2:
        raise MusterError(
            f"{one.status.address}: git did not say what it committed", f"muster diff {one.status.address}"
        )
    held = [word for word in one.agent.labels.get(PROPOSED, "").split(",") if word]
    labels = {PROPOSED: ",".join(dict.fromkeys([*held, told[0]])), ACCEPTED: ",".join(p.id for p in keep)}
    fleet.label(one, labels)
    return [proposal.id for proposal in keep]


def placed(text: str, keep: Sequence[Proposal]) -> str:
    """The user's text with the examples below their headings, which become banners. All else stays as it is."""
    newline = "\r\n" if "\r\n" in text else "\n"
    lines = text.split("\n")
    for block in reversed(blocks.parse(text)):
        mine = [proposal for proposal in keep if proposal.heading == block.comment]
        if block.kind not in ("heading", "banner") or not mine:
            continue
        keep = [proposal for proposal in keep if proposal not in mine]
        rule = [_indent(lines[block.line - 1]) + RULE] if block.kind == "heading" else []
        head = [line.rstrip("\r") for line in lines[block.line - 1 : block.end]]
        new = [*rule, *head, *rule]
        for proposal in mine:
            new += ["", *proposal.text.split("\n")]
        end = "\r" if newline == "\r\n" else ""
        lines[block.line - 1 : block.end] = [f"{line}{end}" for line in new]
    found = "\n".join(lines)
    return found if found.endswith("\n") else f"{found}{newline}"


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


# The verb


def fill(fleet: Fleet, wish: Wish, at: Place, wanted: Sequence[Block], say: Say) -> Filled:
    """Hire an agent, wait for it, run what it proposes."""
    deadline = time.monotonic() + wish.timeout
    if fleet.local.run(["git", "-C", at.top, "--no-optional-locks", "status", "--porcelain", "--", at.path]).stdout:
        say(f"{at.shown} is not committed as it is: what you keep is merged by itself only if it was before")
    one = agent.hire(fleet, wish, at, ask(at, wanted))
    say(
        f"{one.status.address} ({wish.type}) fills {len(wanted)} heading{'' if len(wanted) == 1 else 's'} of {at.shown}"
    )
    return _after(fleet, one, at, wanted, deadline, say, again=False)


def again(fleet: Fleet, name: str, at: Place, wanted: Sequence[Block], timeout: float, say: Say) -> Filled:
    """What an agent of an earlier fill has proposed."""
    one = fleet.get(name)
    if one.agent.labels.get("tutorial") != "fill" or one.agent.mode not in ("worktree", "mirror"):
        raise UsageError(
            f"{name} was not made by muster tutorial fill", "muster list --label tutorial=fill shows those that were"
        )
    if os.path.realpath(one.agent.repo) != os.path.realpath(at.top):
        raise UsageError(f"{name} works on {one.agent.repo}, not on {at.top}", f"go there: cd {one.agent.repo}")
    return _after(fleet, one, at, wanted, time.monotonic() + timeout, say, again=True)


def _after(
    fleet: Fleet, one: Found, at: Place, wanted: Sequence[Block], deadline: float, say: Say, *, again: bool
) -> Filled:
    more = f"muster tutorial fill {shlex.quote(at.shown)} --from {one.status.address}"
    # One that was stopped or has failed since has still proposed what it has.
    if not again or one.status.state not in agent.OVER:
        one = agent.turn(fleet, one, deadline, say, more)
    return propose(fleet, one, at, wanted, again=again, say=say)


def to_json(filled: Filled, accepted: Sequence[str]) -> dict[str, Any]:
    return {
        "agent": str(filled.one.status.address),
        "tutorial": filled.place.shown,
        "proposals": [
            {**proposal._asdict(), "findings": [finding._asdict() for finding in proposal.findings]}
            for proposal in filled.proposals
        ],
        "findings": [
            {"proposal": proposal.id, "kind": finding.kind, "message": finding.message, "output": proposal.output}
            for proposal in filled.proposals
            for finding in proposal.findings
        ],
        "changed": [change._asdict() for change in filled.changed],
        "accepted": list(accepted),
        "branch": filled.one.agent.branch or None,
    }
