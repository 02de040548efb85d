"""A tutorial script, read as blocks: runs of non-empty lines, with what each says and what bash would run of it.

Reads shell only as far as that needs: quotes, heredocs, brackets, comments. It runs nothing and knows no program.
"""

from __future__ import annotations

import hashlib
import os
import re
import textwrap
from collections.abc import Sequence
from typing import Literal, NamedTuple

from ..errors import MusterError, NotFound, UsageError

Kind = Literal["commands", "heading", "banner", "preamble"]
KINDS: tuple[Kind, ...] = ("commands", "heading", "banner", "preamble")
#: Where a project's tutorial is looked for.
PLACES = ("tutorial.sh", os.path.join("docs", "tutorial.sh"))


class Block(NamedTuple):
    id: str
    """The first words and a hash of the text: it stays when other blocks change."""
    line: int
    """Its first line, counted from 1."""
    end: int
    """Its last line."""
    text: str
    """As `normal` gives it."""
    comment: str
    """The words of the comment it begins with."""
    commands: tuple[str, ...]
    kind: Kind
    """`commands` can be tested, a `heading` is to be filled; a `banner` and the `preamble` are neither."""
    section: str
    """The title of the nearest banner or heading above; empty when there is none."""


def read(path: str | os.PathLike[str]) -> list[Block]:
    """The blocks of a file. NotFound when there is none, UsageError when it is no text."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        raise NotFound(f"there is no tutorial {os.fspath(path)}", "name the script: --tutorial FILE") from None
    except IsADirectoryError:
        raise UsageError(f"{os.fspath(path)} is a folder", "name the script in it, such as tutorial.sh") from None
    except OSError as error:
        raise MusterError(f"cannot read {os.fspath(path)}: {error.strerror}", f"ls -l {os.fspath(path)}") from error
    try:
        return parse(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        hint = f"line {line} is the first that is not; iconv -f latin1 -t utf8 converts it"
        raise UsageError(f"{os.fspath(path)} is not UTF-8 text", hint) from None


def find(folder: str) -> str:
    """The tutorial of the project `folder` is in: there, else at the top of its repository. NotFound when there is none."""
    for root in roots(folder):
        for place in PLACES:
            if os.path.isfile(path := os.path.join(root, place)):
                return path
    raise NotFound(
        f"there is no {' or '.join(PLACES)} here", "name the script: --tutorial FILE (muster tutorial list FILE)"
    )


def roots(folder: str) -> list[str]:
    """`folder`, and the top of the git repository around it when that is another one."""
    folder = os.path.abspath(folder)
    top = folder
    while not os.path.exists(os.path.join(top, ".git")):
        if os.path.dirname(top) == top:
            return [folder]
        top = os.path.dirname(top)
    return [folder] if top == folder else [folder, top]


def parse(text: str) -> list[Block]:
    """The blocks of a script, in order. Never fails: what is open at the end of the text ends at an empty line."""
    lines = _lines(text)
    found: list[Block] = []
    seen: dict[str, int] = {}
    section, at = "", 0
    while at < len(lines):
        if not lines[at].strip():
            at += 1
            continue
        end = span(lines, at)
        shebang = lines[at].startswith("#!")
        start, at = at + shebang, end
        if start == end:
            continue
        block = _block("\n".join(lines[start:end]), start + 1, end, shebang, section)
        seen[block.id] = seen.get(block.id, 0) + 1
        if seen[block.id] > 1:
            block = block._replace(id=f"{block.id}-{seen[block.id]}")
        found.append(block)
        if block.kind in ("banner", "heading"):
            section = headline(block.text)[0]
    return found


def normal(text: str) -> str:
    """The text by which blocks are compared: dedented, no white space at the ends of lines, no shebang, no empty ends."""
    lines = _lines(textwrap.dedent("\n".join(_lines(text))))
    while lines and (not lines[0] or lines[0].startswith("#!")):
        del lines[0]
    while lines and not lines[-1]:
        del lines[-1]
    return "\n".join(lines)


def span(lines: Sequence[str], start: int) -> int:
    """The index behind the last line of the block that begins at `start`."""
    shell = _Shell()
    empty = 0  # the first empty line inside what is open: there the block ends when it is never closed
    for index in range(start, len(lines)):
        if not lines[index].strip():
            if not shell.holds:
                return index
            empty = empty or index
        shell.feed(lines[index])
        if shell.closed:
            empty = 0
    return empty or len(lines)


def commands(text: str, bodies: bool = True) -> tuple[str, ...]:
    """The commands as bash would run them one after another: without comments, continued lines joined.

    A pipe or a compound command over several lines is one. The text of a heredoc stays with its command, unless
    `bodies` is false.
    """
    found: list[str] = []
    shell, current, glue = _Shell(), "", False
    for line in text.split("\n"):
        if shell.in_body:
            shell.feed(line)
            current += f"\n{line}" if bodies else ""
        else:
            quoted = shell.holds
            kept = shell.feed(line)
            if shell.continued:
                kept = kept[:-1]
            if glue:
                current += kept if quoted else kept.lstrip() if current.endswith((" ", "\t")) else kept
            elif kept.strip() or quoted:
                current += f"\n{kept}" if current else kept
            glue = shell.continued
        if shell.complete:
            found.append(current.strip())
            current = ""
    found.append(current.strip())
    return tuple(command for command in found if command)


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.removeprefix("\ufeff").split("\n")]


#: `# =====`, `#-----`, `######`, `# === Title ===`
_RULE = re.compile(r"\s*(#\s*([=\-*~_+─═━])\2{2,}|#{5,})(\s|$)")
_SETTING = re.compile(r"(set|shopt)(\s|$)")


def _block(raw: str, line: int, end: int, shebang: bool, section: str) -> Block:
    text = normal(raw)
    runs = commands(text)
    comment = " ".join(word for row in _comment(text) for word in row.split())
    kind: Kind = "commands"
    if not runs:
        rule = any(_RULE.match(row) for row in text.split("\n"))
        kind = "preamble" if shebang else "banner" if rule else "heading"
    elif all(_SETTING.match(part.strip()) for command in runs for part in re.split(r"[;&|\n]+", command) if part):
        kind = "preamble"
    return Block(_id(text, comment, runs), line, end, text, comment, runs, kind, section)


def _comment(text: str) -> list[str]:
    """The lines of the comment a block begins with, without their signs and without rules."""
    rows = []
    for row in text.split("\n"):
        if not row.lstrip().startswith("#"):
            break
        rows.append(row.strip().lstrip("#").strip().strip("=-*~_+─═━#" if _RULE.match(row) else "").strip())
    return [row for row in rows if row]


#: A title of several lines is joined up to this many characters.
TITLE = 100


def headline(text: str) -> tuple[str, str]:
    """The title of a banner or a heading, and the rest of what it says, as comment lines; either may be empty.

    The title stands between the rules of a banner, else it is the first sentence. The paragraphs behind it are no title.
    """
    rows = [row for row in text.split("\n") if row.strip()]
    ruled = bool(rows) and _RULE.match(rows[0]) is not None
    between = next((at for at, row in enumerate(rows[1:], 1) if ruled and _RULE.match(row)), 0)
    title, at = "", 0
    for at, row in enumerate(rows):
        words = " ".join(_comment(row))
        if title and (not words or _RULE.match(row) or len(title) + len(words) > TITLE):
            break
        title = f"{title} {words}".strip()
        if title and (at + 1 == between if between else ruled or title.endswith((".", ":", "!", "?"))):
            at += 1
            break
    else:
        at = len(rows)
    rest = "\n".join(row for row in rows[at:] if not _RULE.match(row) or _comment(row))
    return title, rest if _comment(rest) else ""


def _id(text: str, comment: str, runs: tuple[str, ...]) -> str:
    words: list[str] = []
    for source in (comment, *runs[:1]):
        words = words or re.findall(r"[a-z0-9]+", source.lower().replace("'", ""))
    slug = "-".join(word[:20] for word in words[:4]) or "block"
    return f"{slug}-{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:6]}"


_QUOTES = frozenset(("'", '"', "$'"))
_HEREDOC = re.compile(r"""<<(-?)[ \t]*((?:'[^']*'|"[^"]*"|\\.|[^\s;&|()<>'"\\`])+)""")
_KEYWORD = re.compile(r"(if|then|elif|else|fi|for|while|until|select|do|done|case|esac|time|[!{}])(?=[\s;&|()]|$)")
_OPENS = frozenset("if for while until select case {".split())
_CLOSES = frozenset("fi done esac }".split())
#: After these another command begins.
_LEADS = frozenset("if then elif else while until do ! { time".split())


class _Shell:
    """What the lines so far leave open for the next one."""

    def __init__(self) -> None:
        self.open: list[str] = []
        """Quotes and brackets, the outermost first."""
        self.here: list[tuple[str, bool, int]] = []
        """Heredocs whose text follows: the line that ends it, whether tabs are dropped, the quotes around it."""
        self.continued = False
        """The last line ended with a backslash."""
        self.closed = False
        """In the last line everything that may hold empty lines was closed at least once."""
        self._quotes = 0  # how many of `open` are quotes
        self._operator = False  # `|` or `&&` stood last
        self._depth = 0  # of if, for, case, {
        self._word = self._first = True  # a word may begin here; it would name a command

    @property
    def holds(self) -> bool:
        """An empty line would be part of a heredoc or a quoted string."""
        return bool(self.here) or self._quotes > 0

    @property
    def in_body(self) -> bool:
        """The next line is text of a heredoc."""
        return bool(self.here) and not self.continued and self._quotes <= self.here[0][2]

    @property
    def complete(self) -> bool:
        """The next line begins another command."""
        return not (self.open or self.here or self.continued or self._operator or self._depth)

    def feed(self, line: str) -> str:
        """Read one line; returns it without its comment."""
        self.closed = False
        if self.in_body:
            end, tabs, _ = self.here[0]
            if (line.lstrip("\t") if tabs else line).rstrip() == end:
                del self.here[0]
                self.closed = not self.holds
            return line
        if not self.continued:
            self._word = self._first = True
        self.continued = False
        at = 0
        while at < len(line):
            step = self._step(line, at)
            if not step:
                return line[:at].rstrip()
            at += step
        return line

    def _step(self, line: str, at: int) -> int:
        """Read what begins at `at`; returns its length, 0 for a comment."""
        char, top = line[at], self.open[-1] if self.open else ""
        if top == "'":
            return self._until(line, at, "'")
        if char == "\\":
            self.continued = at + 1 == len(line)
            self._plain()
            return 2
        if top == "$'":
            return self._close() if char == "'" else 1
        if char == '"':
            self._plain()
            return self._close() if top == '"' else self._push('"')
        if char == "`":
            self._word = self._first = True
            return self._close() if top == "`" else self._push("`")
        if char == "$":
            return self._dollar(line, at, top == '"')
        if top == '"':
            return 1
        if top == "${" and char == "}":
            self._plain()
            return self._close()
        if char == "'":
            self._plain()
            # In "${x:-it's}" the apostrophe is one.
            return 1 if top == "${" and self._quotes else self._push("'")
        if top == "${":
            return 1
        return self._bare(line, at, top)

    def _dollar(self, line: str, at: int, quoted: bool) -> int:
        self._plain()
        if line.startswith("$((", at):
            return self._push("((", 3)
        if line.startswith("$(", at):
            self._word = self._first = True
            return self._push("(", 2)
        if line.startswith("${", at):
            return self._push("${", 2)
        if line.startswith("$'", at) and not quoted:
            return self._push("$'", 2)
        return 2 if line[at + 1 : at + 2] in tuple("#$!?*@") else 1

    def _bare(self, line: str, at: int, top: str) -> int:
        char = line[at]
        if top == "((":
            if char == "(":
                return self._push("(")
            if char == ")" and not line.startswith("))", at):
                self.open[-1] = "("  # it was no arithmetic: `((a); b)`
                return 1
            return self._close(2) if char == ")" else 1
        if char.isspace():
            self._word = True
            return 1
        if char == "#" and self._word:
            return 0
        self._operator = char == "|" or (char == "&" and (self._operator or line.startswith("&&", at)))
        if char == "(":
            arithmetic = self._word and line.startswith("((", at)
            array = line[at - 1 : at] == "="
            self._word, self._first = True, not array
            return self._push("((", 2) if arithmetic else self._push("(")
        if char == ")":
            self._word = self._first = True
            return self._close() if top == "(" else 1
        if char == "<" and line.startswith("<<", at):
            return self._heredoc(line, at)
        if char in ";&|<>":
            self._word, self._first = True, char in ";&|"
            return 1
        if self._word and self._first and (keyword := _KEYWORD.match(line, at)):
            self._depth = max(0, self._depth + (keyword[1] in _OPENS) - (keyword[1] in _CLOSES))
            self._word, self._first = False, keyword[1] in _LEADS
            return len(keyword[1])
        self._plain()
        return 1

    def _heredoc(self, line: str, at: int) -> int:
        found = _HEREDOC.match(line, at)
        if not found:  # `<<<` is none
            return 2
        end = re.sub(r"\\(.)|['\"]", r"\1", found[2])
        self.here.append((end, bool(found[1]), self._quotes))
        self._word = False
        return len(found[0])

    def _plain(self) -> None:
        self._word = self._first = self._operator = False

    def _push(self, what: str, length: int = 1) -> int:
        self.open.append(what)
        self._quotes += what in _QUOTES
        return length

    def _close(self, length: int = 1) -> int:
        was = self.open.pop()
        self._quotes -= was in _QUOTES
        self.closed = self.closed or (was in _QUOTES and not self.holds)
        return length

    def _until(self, line: str, at: int, sign: str) -> int:
        found = line.find(sign, at)
        if found < 0:
            return len(line) - at
        self._close()
        return found + 1 - at
