"""A repository with units in it, made fast, and gates that are rules about files: what tests and the bench integrate."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from muster.flow.reducing.conflicts import Conflict
from muster.flow.reducing.gate import Verdict
from muster.flow.reducing.integrate import Delivery, integrate
from muster.flow.reducing.units import Unit
from muster.providers.local import LocalHost

Content = bytes | tuple[str, bytes] | None
"""Of a file; with its mode; None: it goes."""
Files = dict[str, bytes]


class Lab:
    def __init__(self, folder: Path, files: Mapping[str, Content]) -> None:
        self.folder, self.top = folder, folder / "repo"
        self.host = LocalHost(str(folder / "home"))
        self.said: list[dict[str, Any]] = []
        self.git("init", "-q", "-b", "main", str(self.top), cwd=folder)
        self.base = self.commits([("", files)])[0]
        self.git("update-ref", "refs/heads/main", self.base)

    def git(self, *words: str, input: bytes = b"", cwd: Path | None = None) -> str:
        who = {f"GIT_{role}_{key}": "lab" for role in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")}
        env = {"PATH": os.environ["PATH"], "HOME": str(self.folder), **who}
        argv = ["git", "-c", "core.fsync=none", *words]
        done = subprocess.run(argv, cwd=cwd or self.top, env=env, input=input, capture_output=True, check=False)
        assert not done.returncode, (argv, done.stderr.decode())
        return done.stdout.decode("utf-8", "surrogateescape")

    def commits(self, wanted: Sequence[tuple[str, Mapping[str, Content]]]) -> list[str]:
        """One commit on each parent (empty: none), with these files changed."""
        text = bytearray()
        for number, (parent, files) in enumerate(wanted, 1):
            text += b"reset refs/lab\n\ncommit refs/lab\nmark :%d\n" % number
            text += b"committer lab <lab> 1700000000 +0000\ndata 1\nx\n"
            text += f"from {parent}\n".encode() if parent else b""
            for path, content in files.items():
                name = b'"%s"' % b"".join(b"\\%03o" % byte for byte in os.fsencode(path))
                mode, data = content if isinstance(content, tuple) else ("100644", content)
                if data is None:
                    text += b"D %s\n" % name
                elif mode == "160000":
                    text += b"M 160000 %s %s\n" % (data, name)
                else:
                    text += b"M %s inline %s\ndata %d\n%s\n" % (mode.encode(), name, len(data), data)
            text += b"\nget-mark :%d\n" % number
        return self.git("fast-import", "--quiet", "--force", input=bytes(text)).split()

    def unit(self, name: str, files: Mapping[str, Content], base: str = "", **more: Any) -> Unit:
        base = base or self.base
        return Unit(name, base, self.commits([(base, files)])[0], **{"title": f"Fix {name}", **more})

    def row(self, units: Mapping[str, Mapping[str, Content]], first: int = 0) -> list[Unit]:
        """Units on the base, made at once, the first of them the most important."""
        tips = self.commits([(self.base, files) for files in units.values()])
        return [
            Unit(name, self.base, tip, severity=first - number, title=f"Fix {name}")
            for number, (name, tip) in enumerate(zip(units, tips, strict=True))
        ]

    def files(self, commit: str) -> Files:
        entries = [entry.split("\t", 1) for entry in self.git("ls-tree", "-r", "-z", commit).split("\0") if entry]
        blobs = [about.split(" ")[2] for about, _ in entries]
        text = subprocess.run(
            ["git", "cat-file", "--batch"],
            cwd=self.top,
            input="".join(f"{blob}\n" for blob in blobs).encode(),
            capture_output=True,
            check=True,
        ).stdout
        found, at = {}, 0
        for _, path in entries:
            end = text.index(b"\n", at)
            size = int(text[at:end].split(b" ")[2])
            found[path] = text[end + 1 : end + 1 + size]
            at = end + 2 + size
        return found

    def log(self, commit: str, format: str = "%s") -> list[str]:
        """The commits on top of the base, first to last."""
        return self.git("log", "--reverse", f"--format={format}%x00", f"{self.base}..{commit}").split("\0\n")[:-1]

    def integrate(self, units: Sequence[Unit], gate: Any = None, **more: Any) -> Delivery:
        given = {
            "run": "r1",
            "folder": str(self.folder / "run"),
            "kind": kind,
            "resolve": lambda conflict: None,
            "say": self.said.append,
            **more,
        }
        done = integrate(self.host, str(self.top / ".git"), self.base, units, tester=gate or Rule(self), **given)
        accepted = [name for one in done.accepted for name in (one.name, *one.collapsed)]
        assert sorted([*accepted, *done.left_out]) == sorted(unit.name for unit in units)
        return done


def kind(path: str) -> str:
    return "implementation" if path.startswith("src/") else "other"


class Rule:
    """A gate: `rule` gives what is wrong with some files and tests, or nothing; `passes` says whether a test passes with some files."""

    def __init__(
        self,
        lab: Lab,
        rule: Callable[[Files, Sequence[str]], str] | None = None,
        passes: Callable[[Files, str], bool] | None = None,
    ) -> None:
        self.lab, self.rule, self.passes = lab, rule, passes
        self.without: list[tuple[str, tuple[str, ...]]] = []
        self.checks: list[tuple[str, tuple[str, ...]]] = []
        self.fulls: list[str] = []

    def check(self, commit: str, tests: Sequence[str]) -> Verdict:
        self.checks.append((commit, tuple(tests)))
        return self._verdict(commit, tests)

    def full(self, commit: str, tests: Sequence[str]) -> Verdict:
        self.fulls.append(commit)
        return self._verdict(commit, ("full", *tests))

    def passing(self, asked: Sequence[tuple[str, Sequence[str]]]) -> list[list[str]]:
        self.without += [(commit, tuple(tests)) for commit, tests in asked]
        return [
            [test for test in tests if self.passes and self.passes(self.lab.files(at), test)] for at, tests in asked
        ]

    def _verdict(self, commit: str, tests: Sequence[str]) -> Verdict:
        words = self.rule(self.lab.files(commit), tests) if self.rule else ""
        return Verdict(not words, words, f"output of {commit}" if words else "")


def resolution(
    lab: Lab, answers: Mapping[str, Mapping[str, Content]], asked: list[Conflict]
) -> Callable[[Conflict], str | None]:
    """Resolves the conflicts of some units, with these files."""

    def resolve(conflict: Conflict) -> str | None:
        asked.append(conflict)
        files = answers.get(conflict.unit.name)
        return lab.commits([(conflict.onto, files)])[0] if files is not None else None

    return resolve


#: So many units of a crowd change the same file.
CROWD = 240


def numbered(lines: int) -> list[bytes]:
    return [b"line %d\n" % number for number in range(lines)]


def crowd(folder: Path, count: int) -> tuple[Lab, list[Unit]]:
    """Units that share files: each changes its place in a module that six share, its import in a file that `CROWD` share, and a
    test of its own; each tenth needs the same import at the top.
    """
    modules = count // 6 + 1
    files: dict[str, Content] = {f"src/m{number}.py": b"".join(numbered(70)) for number in range(modules)}
    shared = b"".join(numbered(3 * CROWD + 3))
    lab = Lab(folder, {**files, **{f"src/imports{number}.py": shared for number in range(count // CROWD + 1)}})
    wanted: list[tuple[str, dict[str, Content]]] = []
    for number in range(count):
        module, imports = numbered(70), numbered(3 * CROWD + 3)
        module[number // modules * 10] = b"fixed %d\n" % number
        imports[3 * (number % CROWD) + 2] = b"import m%d\n" % number
        if number % 10 == 0:
            imports.insert(0, b"import top\n")
        path = f"src/m{number % modules}.py"
        changed = {path: b"".join(module), f"src/imports{number // CROWD}.py": b"".join(imports)}
        wanted.append((lab.base, {**changed, f"tests/test_{number}.py": b"def test(): pass\n"}))
    tips = lab.commits(wanted)
    return lab, [
        Unit(f"t{number}", lab.base, tip, (f"tests/test_{number}.py::test",), title=f"Fix number {number}")
        for number, tip in enumerate(tips)
    ]
