"""`muster tutorial fill`: an agent proposes examples for the headings of a tutorial, and a person keeps some of them.

Every example is run in the agent's own work dir. Those that fail, or use flags that the program's help does not name, are interface
findings: the program or its documentation is confusing. Examples that are kept go to the agent's branch; the user's own tree is only
read.
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
from ..flow.run import git, prompts
from ..tutorial import blocks
from . import agent
from .agent import FILE_MOST, PROMPTS, AgentRequest, Say, TutorialFile

if TYPE_CHECKING:
    from ..host import Found
    from ..tutorial.blocks import Block

EXAMPLE_SECONDS = 60.0
HELP_SECONDS = 10.0
OUTPUT_MOST = 16 << 10
RULE = "# " + "-" * 69
#: Labels of the agent: the commits with its proposals, and the ids of the examples that were kept so far.
PROPOSED, ACCEPTED = "proposed", "accepted"
#: Shell words and common tools. A tutorial is not about them.
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
    """Made from the text, so it is the same each time."""
    heading: str
    """The text of the heading that it belongs to."""
    line: int
    """In the agent's file."""
    text: str
    ok: bool = False
    exit_code: int | None = None
    """None if it timed out."""
    output: str = ""
    findings: tuple[Finding, ...] = ()


class OtherEdit(NamedTuple):
    """Another edit of the tutorial by the agent: listed, but never taken."""

    kind: str
    """`changed`, `removed`, or `misplaced` for a new block that is under none of the headings to be filled."""
    line: int
    """In the user's file; of a misplaced block, in the agent's."""
    text: str


class Filled(NamedTuple):
    tutorial: TutorialFile
    author: Found
    headings: list[Block]
    proposals: list[Proposal]
    changed: list[OtherEdit]


# What is to be filled


def headings(tutorial: TutorialFile, wanted: Sequence[str] = ()) -> list[Block]:
    """Return the headings that have nothing under them, or those among them that contain the wanted texts.

    Raises NotFound if a text is in none of them.
    """
    found = [block for block in blocks.read(tutorial.file) if block.kind == "heading"]
    chosen: list[Block] = []
    for text in wanted:
        words = " ".join(text.strip().lstrip("#").split()).lower()
        if not words:
            raise UsageError("--heading is empty", f"muster tutorial list {tutorial.shown} --kind heading")
        exact = [block for block in found if block.comment.lower() == words]
        some = exact or [block for block in found if words in block.comment.lower()]
        if not some:
            known = (
                ", ".join(repr(block.comment) for block in found[:8]) or "there are none; write one as a comment alone"
            )
            raise NotFound(f"{tutorial.shown} has no heading {text!r} to be filled", f"headings to be filled: {known}")
        chosen += some
    return sorted(set(chosen), key=lambda block: block.line) if wanted else found


def first_message(tutorial: TutorialFile, wanted: Sequence[Block]) -> str:
    """Return the agent's first message."""
    lines = "\n".join(f"- line {block.line}: {' '.join(block.comment.split())}" for block in wanted)
    return prompts.prompt("fill", PROMPTS, tutorial=tutorial.path, headings=lines, docs=_docs(tutorial))


def _docs(tutorial: TutorialFile) -> str:
    """Return where the program's documentation seems to be."""
    looked = ("README*", "docs/commands", "docs/*.md", "doc/*.md", "man", "docs/man", "docs/commands/man", "*.1")
    found = [path for pattern in looked for path in sorted(glob.glob(pattern, root_dir=tutorial.top))[:12]]
    lines = [
        f"- {path}{'/' if os.path.isdir(os.path.join(tutorial.top, path)) else ''}" for path in dict.fromkeys(found)
    ]
    name = program(blocks.read(tutorial.file))
    if name:
        lines.append(f"- `{name} --help`, and `{name} SUBCOMMAND --help` for each of its subcommands")
        lines.append(f"- `man {name}`, where there is a manual page")
    return "\n".join(
        lines or ["- the files of this repository; look for a README, docs, manual pages and `PROGRAM --help`"]
    )


def program(found: Iterable[Block]) -> str:
    """Return the program that a tutorial calls most often; empty if it calls none."""
    names = Counter(call[0] for block in found for call in calls(block.text) if call[0] not in COMMON)
    return names.most_common(1)[0][0] if names else ""


# What was proposed


def propose(
    fleet: Fleet, author: Found, tutorial: TutorialFile, wanted: Sequence[Block], *, again: bool, say: Say
) -> Filled:
    """Return the examples that the agent wrote under these headings, after running each. With `again`, a heading may have become a banner."""
    mine = blocks.read(tutorial.file)
    targets = list(wanted) + [block for block in mine if again and block.kind == "banner"]
    found: dict[str, Proposal] = {}
    changed: list[OtherEdit] = []
    for number, text in enumerate(_written(fleet, author, tutorial)):
        some, other = compare(mine, blocks.parse(text), targets)
        for proposal in some:
            found.setdefault(proposal.id, proposal)
        # After the first choice muster has written the agent's file, so other differences are the user's own edits.
        changed = other if number == 0 and PROPOSED not in author.agent.labels else changed
    say(
        f"{len(found)} example{'' if len(found) == 1 else 's'} proposed by {author.status.address}"
        + (", running each" if found else "")
    )
    return Filled(
        tutorial, author, list(wanted), _run_all(fleet, author, list(found.values())) if found else [], changed
    )


def _written(fleet: Fleet, author: Found, tutorial: TutorialFile) -> list[str]:
    """Return the tutorial in the agent's work dir, and those of the commits with earlier proposals."""
    kept = [word for word in author.agent.labels.get(PROPOSED, "").split(",") if re.fullmatch(r"[0-9a-f]{40,64}", word)]
    data = [agent.on_host(fleet, author, "branch", "read", tutorial.path, str(FILE_MOST))]
    for commit in kept:
        data.append(
            agent.on_host(fleet, author, "branch", "show", author.agent.gitdir, commit, tutorial.path, str(FILE_MOST))
        )
    return [text.decode("utf-8", "replace") for text in data]


def compare(
    mine: Sequence[Block], theirs: Sequence[Block], targets: Sequence[Block]
) -> tuple[list[Proposal], list[OtherEdit]]:
    """Return the new blocks of `theirs` that are under one of the target headings, and all other edits of `mine`."""
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
            # The agent wrote commands directly under the heading, without an empty line.
            if block.kind == "commands" and block.text.startswith(f"{target.text}\n"):
                heading = target.comment
        above[block.line] = heading
    new = [block for block in theirs if block.kind == "commands" and block.text not in here]
    gone = [block for block in mine if block.kind == "commands" and block.text not in there]
    changed: list[OtherEdit] = []
    for block in gone:
        near = max(new, key=lambda one: difflib.SequenceMatcher(None, block.text, one.text).ratio(), default=None)
        # A block with the same comment or similar text is a changed one.
        if near and (
            difflib.SequenceMatcher(None, block.text, near.text).ratio() > 0.6 or near.comment == block.comment != ""
        ):
            new.remove(near)
            changed.append(OtherEdit("changed", block.line, block.text))
        else:
            changed.append(OtherEdit("removed", block.line, block.text))
    lost = {block.comment for block in mine if block.kind == "heading" and block.comment} - {
        block.comment for block in theirs
    }
    for block in mine:
        joined = any(one.text.startswith(f"{block.text}\n") for one in theirs)
        if block.kind == "heading" and block.comment in lost and not joined:
            changed.append(OtherEdit("removed", block.line, block.text))
    proposals: dict[str, Proposal] = {}
    for block in new:
        if above[block.line]:
            proposals.setdefault(block.text, Proposal(block.id, above[block.line], block.line, block.text))
        else:
            changed.append(OtherEdit("misplaced", block.line, block.text))
    return list(proposals.values()), sorted(changed, key=lambda change: change.line)


# Running it


class _Sandbox:
    """The folders in which examples run on the agent's host. They exist while this is open."""

    def __init__(self, fleet: Fleet, author: Found) -> None:
        self._fleet, self._author = fleet, author
        self._helps: dict[tuple[str, ...], str] = {}

    def _run(self, verb: str, *args: str, input: bytes = b"", timeout: float = 60.0) -> bytes:
        return agent.on_host(
            self._fleet, self._author, "try", verb, self._author.agent.id, *args, input=input, timeout=timeout
        )

    def __enter__(self) -> _Sandbox:
        self._folder = self._run("begin").decode().strip()
        return self

    def __exit__(self, *_: object) -> None:
        self._run("end", self._folder)

    def run(self, text: str, seconds: float) -> tuple[int | None, str]:
        """Run an example; return its exit code (None if it timed out) and the output of both streams."""
        args = ("run", self._folder, f"{seconds:g}", str(OUTPUT_MOST + 1))
        code, _, output = self._run(*args, input=f"{text}\n".encode(), timeout=seconds + 60.0).partition(b"\n")
        shown = output[:OUTPUT_MOST].decode("utf-8", "replace") + ("\n[cut]" if len(output) > OUTPUT_MOST else "")
        return (int(code) if code.isdigit() else None), shown

    def help(self, words: tuple[str, ...]) -> str:
        """Return what `PROGRAM SUBCOMMAND --help` prints; empty if that fails."""
        if words not in self._helps:
            code, text = self.run(f"{shlex.join(words)} --help", HELP_SECONDS)
            self._helps[words] = text if code == 0 else ""
        return self._helps[words]

    def unknown(self, call: Sequence[str]) -> list[str]:
        """Return the long flags of a call that its help does not name; none if there is no help."""
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


def _run_all(fleet: Fleet, author: Found, proposals: Sequence[Proposal]) -> list[Proposal]:
    """Return the proposals with the results of running them, in the order of the file."""
    with _Sandbox(fleet, author) as sandbox:
        return [_run_one(sandbox, proposal) for proposal in proposals]


def _run_one(sandbox: _Sandbox, proposal: Proposal) -> Proposal:
    code, output = sandbox.run(proposal.text, EXAMPLE_SECONDS)
    findings: list[Finding] = []
    if code is None:
        findings.append(Finding("late", f"it did not finish within {EXAMPLE_SECONDS:g} s"))
    elif code:
        findings.append(Finding("fails", f"it exits with {code}"))
    for call in calls(proposal.text):
        for flag in sandbox.unknown(call):
            name = " ".join(word for word in call[:2] if re.fullmatch(r"[\w.-]+", word) and not word.startswith("-"))
            findings.append(Finding("unknown-flag", f"the help of {name} does not name {flag}"))
    return proposal._replace(ok=not findings, exit_code=code, output=output, findings=tuple(dict.fromkeys(findings)))


_OPERATORS = frozenset("| || & && ; ;; ( ) { } |&".split())
_KEYWORDS = frozenset("if then else elif fi while until for do done case esac ! time exec command sudo env".split())


def calls(text: str) -> list[list[str]]:
    """Return the command lines in a block, each as a list of words, as far as they can be parsed without running it."""
    found: list[list[str]] = []
    for command in blocks.commands(text, bodies=False):
        lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
        lexer.whitespace_split, lexer.commenters = True, ""
        try:
            words = list(lexer)
        except ValueError:  # an unclosed quote: bash will report it
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
    """Return the ids that `all`, `passing` or a list of ids stands for. Raises NotFound for one that was not proposed."""
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
            hint = f"proposed: {', '.join(known)}" if known else f"{filled.author.status.address} has proposed nothing"
            raise NotFound(
                f"no example {id!r} was proposed", f"{hint}; muster tutorial fill --from {filled.author.status.address}"
            )
    return list(dict.fromkeys(ids))


def accept(fleet: Fleet, filled: Filled, ids: Sequence[str]) -> list[str]:
    """Commit these examples and those kept before on the agent's branch, and return the ids of all of them."""
    author, tutorial = filled.author, filled.tutorial
    before = author.agent.labels.get(ACCEPTED, "").split(",")
    keep = [proposal for proposal in filled.proposals if proposal.id in ids or proposal.id in before]
    with open(tutorial.file, "rb") as file:
        data = file.read()
    text = placed(data.decode("utf-8"), keep)
    mode = "100755" if os.access(tutorial.file, os.X_OK) else "100644"
    message = f"Add {len(keep)} example{'' if len(keep) == 1 else 's'} to {tutorial.path}\n\n" + "\n".join(
        p.id for p in keep
    )
    args = ("accept", author.agent.gitdir, author.agent.branch, author.agent.base, tutorial.path, mode, message)
    commits = agent.on_host(fleet, author, "branch", *args, input=text.encode()).decode("ascii", "replace").split()
    if len(commits) != 2:
        raise MusterError(
            f"{author.status.address}: git did not report the commits", f"muster diff {author.status.address}"
        )
    held = [word for word in author.agent.labels.get(PROPOSED, "").split(",") if word]
    labels = {PROPOSED: ",".join(dict.fromkeys([*held, commits[0]])), ACCEPTED: ",".join(p.id for p in keep)}
    fleet.label(author, labels)
    return [proposal.id for proposal in keep]


def placed(text: str, keep: Sequence[Proposal]) -> str:
    """Return the user's text with the examples below their headings, which become banners. Everything else stays as it is."""
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


def fill(fleet: Fleet, request: AgentRequest, tutorial: TutorialFile, wanted: Sequence[Block], say: Say) -> Filled:
    """Create an agent, wait for it, and run the examples that it proposes."""
    deadline = time.monotonic() + request.timeout
    if git.text(fleet.local, tutorial.top, "status", "--porcelain", "--", tutorial.path):
        say(
            f"{tutorial.shown} has changes that are not committed; examples that you keep merge cleanly only if it is committed"
        )
    author = agent.create(fleet, request, tutorial, first_message(tutorial, wanted))
    say(
        f"{author.status.address} ({request.type}) is filling {len(wanted)} heading{'' if len(wanted) == 1 else 's'} of {tutorial.shown}"
    )
    return _after(fleet, author, tutorial, wanted, deadline, say, again=False)


def resume(
    fleet: Fleet, name: str, tutorial: TutorialFile, wanted: Sequence[Block], timeout: float, say: Say
) -> Filled:
    """Return what an agent of an earlier fill has proposed."""
    author = fleet.get(name)
    if author.agent.labels.get("tutorial") != "fill" or author.agent.mode not in ("worktree", "mirror"):
        raise UsageError(
            f"{name} was not made by muster tutorial fill", "muster list --label tutorial=fill shows those that were"
        )
    if os.path.realpath(author.agent.repo) != os.path.realpath(tutorial.top):
        raise UsageError(
            f"{name} works on {author.agent.repo}, not on {tutorial.top}", f"go there: cd {author.agent.repo}"
        )
    return _after(fleet, author, tutorial, wanted, time.monotonic() + timeout, say, again=True)


def _after(
    fleet: Fleet,
    author: Found,
    tutorial: TutorialFile,
    wanted: Sequence[Block],
    deadline: float,
    say: Say,
    *,
    again: bool,
) -> Filled:
    more = f"muster tutorial fill {shlex.quote(tutorial.shown)} --from {author.status.address}"
    # The proposals of an agent that was stopped or has failed since are still there.
    if not again or author.status.state not in agent.TURN_OVER:
        author = agent.wait_for_turn(fleet, author, deadline, say, more)
    return propose(fleet, author, tutorial, wanted, again=again, say=say)


def to_json(filled: Filled, accepted: Sequence[str]) -> dict[str, Any]:
    return {
        "agent": str(filled.author.status.address),
        "tutorial": filled.tutorial.shown,
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
        "branch": filled.author.agent.branch or None,
    }
