"""Parse a tutorial script into blocks: runs of non-empty lines, each with its comment and its commands.

The parser knows just enough shell to find where commands end: quotes, heredocs, brackets, comments. It runs nothing.
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
#: Where a project keeps its tutorial by default, in order of preference.
DEFAULT_PATHS = ("tutorial.sh", os.path.join("docs", "tutorial.sh"))


class Block(NamedTuple):
    id: str
    """The first words and a hash of the text, so it does not change when other blocks do."""
    line: int
    """Number of the first line, counted from 1."""
    end: int
    """Number of the last line."""
    text: str
    """The text as returned by `normalize`."""
    comment: str
    """The comment at the start of the block, as one line without `#`."""
    commands: tuple[str, ...]
    kind: Kind
    """`commands`: can be tested. `heading`: a comment without commands, to be filled. `banner`: titles a section.
        `preamble`: the shebang's comment, or only `set` and `shopt`."""
    section: str
    """The title of the nearest banner or heading above the block; empty if there is none."""


def read(path: str | os.PathLike[str]) -> list[Block]:
    """Return the blocks of a file. Raises NotFound if it does not exist, UsageError if it is not UTF-8 text."""
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
        hint = f"the first invalid byte is in line {line}; iconv -f latin1 -t utf8 converts the file"
        raise UsageError(f"{os.fspath(path)} is not UTF-8 text", hint) from None


def find(folder: str) -> str:
    """Return the path of the tutorial in `folder`, or else at the top of its repository. Raises NotFound."""
    for root in search_folders(folder):
        for name in DEFAULT_PATHS:
            if os.path.isfile(path := os.path.join(root, name)):
                return path
    raise NotFound(
        f"there is no {' or '.join(DEFAULT_PATHS)} here", "name the script: --tutorial FILE (muster tutorial list FILE)"
    )


def search_folders(folder: str) -> list[str]:
    """Return `folder`, followed by the top of its git repository if that is a different folder."""
    folder = os.path.abspath(folder)
    top = folder
    while not os.path.exists(os.path.join(top, ".git")):
        if os.path.dirname(top) == top:
            return [folder]
        top = os.path.dirname(top)
    return [folder] if top == folder else [folder, top]


def parse(text: str) -> list[Block]:
    """Return the blocks of a script, in order. Never fails: a quote that is never closed ends at the next empty line."""
    lines = _lines(text)
    blocks: list[Block] = []
    seen: dict[str, int] = {}
    section, at = "", 0
    while at < len(lines):
        if not lines[at].strip():
            at += 1
            continue
        end = block_end(lines, at)
        shebang = lines[at].startswith("#!")
        start, at = at + shebang, end
        if start == end:
            continue
        block = _block("\n".join(lines[start:end]), start + 1, end, shebang, section)
        seen[block.id] = seen.get(block.id, 0) + 1
        if seen[block.id] > 1:
            block = block._replace(id=f"{block.id}-{seen[block.id]}")
        blocks.append(block)
        if block.kind in ("banner", "heading"):
            section = headline(block.text)[0]
    return blocks


def normalize(text: str) -> str:
    """Return the text in the form in which blocks are compared.

    It is dedented and has no trailing white space, no shebang, and no empty lines at either end.
    """
    lines = _lines(textwrap.dedent("\n".join(_lines(text))))
    while lines and (not lines[0] or lines[0].startswith("#!")):
        del lines[0]
    while lines and not lines[-1]:
        del lines[-1]
    return "\n".join(lines)


def block_end(lines: Sequence[str], start: int) -> int:
    """Return the index after the last line of the block that begins at `start`."""
    shell = _Shell()
    first_empty = 0  # the first empty line inside the open quote or heredoc; the block ends here if it is never closed
    for index in range(start, len(lines)):
        if not lines[index].strip():
            if not shell.keeps_empty_lines:
                return index
            first_empty = first_empty or index
        shell.feed(lines[index])
        if shell.closed:
            first_empty = 0
    return first_empty or len(lines)


def commands(text: str, bodies: bool = True) -> tuple[str, ...]:
    """Return the commands in the order in which bash would run them, without comments and with continued lines joined.

    A pipe or compound command that spans lines is a single command. A heredoc's text stays with its command, unless
    `bodies` is false.
    """
    collected: list[str] = []
    shell, current, continues = _Shell(), "", False
    for line in text.split("\n"):
        if shell.in_heredoc:
            shell.feed(line)
            current += f"\n{line}" if bodies else ""
        else:
            quoted = shell.keeps_empty_lines
            code = shell.feed(line)
            if shell.continued:
                code = code[:-1]
            if continues:
                current += code if quoted else code.lstrip() if current.endswith((" ", "\t")) else code
            elif code.strip() or quoted:
                current += f"\n{code}" if current else code
            continues = shell.continued
        if shell.complete:
            collected.append(current.strip())
            current = ""
    collected.append(current.strip())
    return tuple(command for command in collected if command)


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.removeprefix("\ufeff").split("\n")]


#: `# =====`, `#-----`, `######`, `# === Title ===`
_RULE = re.compile(r"\s*(#\s*([=\-*~_+─═━])\2{2,}|#{5,})(\s|$)")
_SETTING = re.compile(r"(set|shopt)(\s|$)")


def _block(raw: str, line: int, end: int, shebang: bool, section: str) -> Block:
    text = normalize(raw)
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
    """Return the lines of the comment at the start of a block, without `#` and without rules such as `=====`."""
    rows = []
    for row in text.split("\n"):
        if not row.lstrip().startswith("#"):
            break
        rows.append(row.strip().lstrip("#").strip().strip("=-*~_+─═━#" if _RULE.match(row) else "").strip())
    return [row for row in rows if row]


#: The lines of a title are joined up to this many characters.
MAX_TITLE = 100


def headline(text: str) -> tuple[str, str]:
    """Return the title of a banner or heading, and the rest of its comment lines; either may be empty.

    In a banner with two rules the title is the text between them; otherwise it is the first sentence.
    """
    rows = [row for row in text.split("\n") if row.strip()]
    ruled = bool(rows) and _RULE.match(rows[0]) is not None
    between = next((at for at, row in enumerate(rows[1:], 1) if ruled and _RULE.match(row)), 0)
    title, at = "", 0
    for at, row in enumerate(rows):
        words = " ".join(_comment(row))
        if title and (not words or _RULE.match(row) or len(title) + len(words) > MAX_TITLE):
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
#: Keywords that are followed by a command.
_LEADS = frozenset("if then elif else while until do ! { time".split())


class _Shell:
    """Tracks what is still open (quotes, brackets, heredocs, compound commands) while lines are fed to it one by one."""

    def __init__(self) -> None:
        self.open: list[str] = []
        """Open quotes and brackets, outermost first."""
        self.heredocs: list[tuple[str, bool, int]] = []
        """Heredocs whose text follows: the closing line, whether leading tabs are dropped, and the depth of quotes around it."""
        self.continued = False
        """The last line ended with a backslash."""
        self.closed = False
        """At some point in the last line, no quote or heredoc was open any more."""
        self._quotes = 0  # how many of `open` are quotes
        self._operator = False  # the last token was `|` or `&&`
        self._depth = 0  # nesting of if, for, case, {
        self._word = True  # a word may begin here
        self._first = True  # that word would be the name of a command

    @property
    def keeps_empty_lines(self) -> bool:
        """Whether an empty line would be part of a heredoc or a quoted string."""
        return bool(self.heredocs) or self._quotes > 0

    @property
    def in_heredoc(self) -> bool:
        """Whether the next line is text of a heredoc."""
        return bool(self.heredocs) and not self.continued and self._quotes <= self.heredocs[0][2]

    @property
    def complete(self) -> bool:
        """Whether the next line begins a new command."""
        return not (self.open or self.heredocs or self.continued or self._operator or self._depth)

    def feed(self, line: str) -> str:
        """Read one line and return it without its comment."""
        self.closed = False
        if self.in_heredoc:
            end, drop_tabs, _ = self.heredocs[0]
            if (line.lstrip("\t") if drop_tabs else line).rstrip() == end:
                del self.heredocs[0]
                self.closed = not self.keeps_empty_lines
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
        """Read the token at `at` and return its length; 0 at the start of a comment."""
        char, top = line[at], self.open[-1] if self.open else ""
        if top == "'":
            return self._until(line, at, "'")
        if char == "\\":
            self.continued = at + 1 == len(line)
            self._continue_word()
            return 2
        if top == "$'":
            return self._close() if char == "'" else 1
        if char == '"':
            self._continue_word()
            return self._close() if top == '"' else self._push('"')
        if char == "`":
            self._word = self._first = True
            return self._close() if top == "`" else self._push("`")
        if char == "$":
            return self._dollar(line, at, top == '"')
        if top == '"':
            return 1
        if top == "${" and char == "}":
            self._continue_word()
            return self._close()
        if char == "'":
            self._continue_word()
            # In "${x:-it's}" the apostrophe does not open a quote.
            return 1 if top == "${" and self._quotes else self._push("'")
        if top == "${":
            return 1
        return self._bare(line, at, top)

    def _dollar(self, line: str, at: int, quoted: bool) -> int:
        self._continue_word()
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
                self.open[-1] = "("  # not arithmetic after all: `((a); b)`
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
        self._continue_word()
        return 1

    def _heredoc(self, line: str, at: int) -> int:
        heredoc = _HEREDOC.match(line, at)
        if not heredoc:  # `<<<` is a here-string
            return 2
        end = re.sub(r"\\(.)|['\"]", r"\1", heredoc[2])
        self.heredocs.append((end, bool(heredoc[1]), self._quotes))
        self._word = False
        return len(heredoc[0])

    def _continue_word(self) -> None:
        self._word = self._first = self._operator = False

    def _push(self, opener: str, length: int = 1) -> int:
        self.open.append(opener)
        self._quotes += opener in _QUOTES
        return length

    def _close(self, length: int = 1) -> int:
        opener = self.open.pop()
        self._quotes -= opener in _QUOTES
        self.closed = self.closed or (opener in _QUOTES and not self.keeps_empty_lines)
        return length

    def _until(self, line: str, at: int, closer: str) -> int:
        end = line.find(closer, at)
        if end < 0:
            return len(line) - at
        self._close()
        return end + 1 - at
