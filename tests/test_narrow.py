"""A terminal of 80 columns: tables leave out columns, wrap what matters and cut nothing that a person needs; help fits."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import shlex
import struct
import subprocess
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.cli import parse, render
from muster.cli.main import VERBS

from .conftest import World

QUESTION = (
    "Shall I rewrite the importer so that it reads the old and the new format, or drop the old one, "
    "which three customers in the list of the support team still seem to use every single night?"
)
LONG = "a-name-that-is-as-long-as-a-name-can-be-which-is-63-characters1"
WHY = "the suite of the base fails in tests/test_importer.py::test_reads_the_old_format, so nothing can be verified"


def on_terminal(world: World, *words: str, columns: int = 80, cwd: Path | None = None, **env: str) -> str:
    """Return what muster prints on a terminal of that width, without colours."""
    return re.sub(r"\x1b\[[0-9;]*m", "", raw_on_terminal(world, *words, columns=columns, cwd=cwd, **env))


def raw_on_terminal(world: World, *words: str, columns: int = 80, cwd: Path | None = None, **env: str) -> str:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    argv = [str(world.bin / "muster"), *words]
    own = {**world.env, **env}
    process = subprocess.Popen(argv, cwd=cwd or world.repo, env=own, stdin=slave, stdout=slave, stderr=slave)
    os.close(slave)
    data = b""
    while True:
        try:
            piece = os.read(master, 65536)
        except OSError:  # Linux answers EIO when the last writer has closed the terminal
            break
        if not piece:
            break
        data += piece
    process.wait(timeout=60)
    os.close(master)
    return data.decode().replace("\r\n", "\n")


def words_of(text: str) -> str:
    """Return the text with every run of white space as one space: how it reads when it is wrapped."""
    return " ".join(text.split())


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    world = World(tmp_path_factory.mktemp("narrow") / "w")
    (world.bin / "ssh").write_text(f"#!/bin/sh\necho '{WHY}' >&2\nexit 255\n")
    (world.bin / "ssh").chmod(0o755)
    ask = world.playbook(f'[[step]]\nask = "{QUESTION}"\n', "ask.toml")
    world.ok("create", "asks", "replay", "--no-connect", "--", ask)
    world.ok("create", LONG, "replay", "--no-connect", "--", ask)
    world.ok("create", "talks", "command", "--no-connect", "--", "sh", "-c", f"echo {'words ' * 40}; sleep 1000")
    world.ok("create", "gone", "command", "--no-connect", "--", "sh", "-c", "echo x > a-new-file")
    world.wait_state("gone", "done")
    world.ok("destroy", "gone")
    world.git("branch", "muster/left-over")
    world.wait_state("asks", "waiting")
    world.wait_state(LONG, "waiting")
    hosts = world.muster_home / "hosts"
    hosts.mkdir(exist_ok=True)
    yield world
    world.end()


def check_width(text: str, columns: int = 80) -> None:
    wide = [line for line in text.splitlines() if render.columns(line) > columns]
    assert not wide, wide


TABLES = ["list", "list --git", "explain asks", "doctor", "gc", "restore --list", "hosts", "runs", "answer asks"]


@pytest.mark.parametrize("call", TABLES)
def test_no_line_of_a_table_is_wider_than_the_terminal(narrow: World, call: str) -> None:
    if call in ("list", "list --git"):  # a name is never cut, and LONG leaves its row no space
        call = f"{call} asks talks"
    text = on_terminal(narrow, *shlex.split(call))
    check_width(text)
    assert "bug in muster" not in text


@pytest.mark.parametrize("columns", [40, 80, 120])
@pytest.mark.parametrize("call", ["list asks", "list --git asks", "explain asks", "answer asks", f"list {LONG}"])
def test_a_question_is_never_cut(narrow: World, call: str, columns: int) -> None:
    text = on_terminal(narrow, *call.split(), columns=columns)
    joined = " ".join(re.sub(r"^(asks|It asks:|\S+ +waiting +question)", "", line) for line in text.splitlines())
    missing = [word for word in QUESTION.split() if word not in words_of(joined)]
    assert not missing and "…" not in text, text


def test_a_question_is_whole_in_json(narrow: World) -> None:
    assert narrow.ok("list", "asks", "--json").json["agents"][0]["question"] == QUESTION
    assert narrow.ok("explain", "asks", "--json").json["question"] == QUESTION
    assert narrow.ok("answer", "asks", "--json").json["question"] == QUESTION


def test_list_drops_the_least_useful_columns_first(narrow: World) -> None:
    def head(columns: int) -> list[str]:
        return on_terminal(narrow, "list", "asks", "talks", columns=columns).splitlines()[0].split("  ")[:]

    wide, small = head(250), head(80)
    assert [title.strip() for title in wide if title.strip()][:3] == ["NAME", "STATE", "REASON"]
    assert {"HOST", "BRANCH", "COST"} <= {title.strip() for title in wide}
    kept = [title.strip() for title in small if title.strip()]
    assert kept[:3] == ["NAME", "STATE", "REASON"] and kept[-1] == "LAST LINE"
    assert "BRANCH" not in kept and "HOST" not in kept


def test_the_last_line_of_one_that_works_may_be_cut(narrow: World) -> None:
    text = on_terminal(narrow, "list", "talks", columns=60)
    assert "…" in text
    check_width(text, 60)


def test_without_a_terminal_nothing_is_dropped_or_wrapped(narrow: World) -> None:
    lines = narrow.ok("list", "asks").stdout.splitlines()
    assert len(lines) == 2 and lines[0].split()[-2:] == ["LAST", "LINE"]
    assert {"HOST", "BRANCH", "COST"} <= set(lines[0].split())
    assert QUESTION in lines[1] and "\x1b" not in lines[1]


def test_a_reason_of_doctor_and_hosts_is_whole(narrow: World) -> None:
    (narrow.muster_home / "hosts" / "box.json").write_text('{"place": "box", "provider": "ssh", "seen": 1}')
    try:
        for call in ("hosts", "doctor", "list"):
            text = on_terminal(narrow, *call.split())
            missing = [word for word in WHY.split() if word not in "".join(text.split())]
            assert not missing, (call, text)
    finally:
        (narrow.muster_home / "hosts" / "box.json").unlink()


def test_a_fix_that_doctor_names_can_be_copied(narrow: World, tmp_path: Path) -> None:
    empty = tmp_path / "home"
    empty.mkdir()
    text = on_terminal(narrow, "doctor", cwd=empty, HOME=str(empty), GIT_CONFIG_NOSYSTEM="1")
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if re.match(r"(local +)?identity +missing", line))
    column = lines[start].index("git config")
    command = lines[start][column:]
    while command.endswith("\\"):
        start += 1
        command = command[:-1] + lines[start].strip()
    done = subprocess.run(["sh", "-c", command], env={**narrow.env, "HOME": str(empty)}, check=False)
    assert done.returncode == 0, text
    assert "Your Name" in (empty / ".gitconfig").read_text()


def test_colours_only_on_a_terminal_that_wants_them(narrow: World) -> None:
    assert "\x1b[33;1mwaiting\x1b[0m" in raw_on_terminal(narrow, "list", "asks")
    assert "\x1b" not in raw_on_terminal(narrow, "list", "asks", NO_COLOR="1")
    assert "\x1b" not in raw_on_terminal(narrow, "list", "asks", TERM="dumb")


@pytest.mark.parametrize("verb", VERBS)
def test_help_fits_80_columns(verb: str) -> None:
    text = parse.build(verb)[0].format_help()
    check_width(text)
    assert "Examples:" in text


def test_the_overview_fits_80_columns(narrow: World) -> None:
    for call in (["--help"], ["tutorial", "--help"]):
        check_width(narrow.ok(*call).stdout)


@pytest.mark.parametrize("verb", VERBS)
def test_examples_of_help_are_the_same_commands_when_they_are_wrapped(verb: str) -> None:
    parser, module = parse.build(verb)
    shown = parser.format_help().partition("Examples:\n")[2].partition("\n\n")[0]
    joined = re.sub(r" \\\n\s+", " ", shown)
    given = [line for line in module.EXAMPLES.strip().splitlines() if line]
    assert [line.strip() for line in joined.splitlines() if line.strip()] == [line.strip() for line in given]


@pytest.mark.parametrize("size", [10, 20, 33, 79])
def test_a_wrapped_command_is_the_same_command(size: int) -> None:
    command = "git config --global user.name 'Your  Name' && echo \"it's $HOME\" | sort -k 2"
    lines = render.wrap_command(command, size)
    assert "\n".join(lines).replace(" \\\n", " ") == command
    assert all(len(line) <= size for line in lines if " " in line.rstrip(" \\").strip("'\"") and "'" not in line)


@pytest.mark.parametrize("size", [5, 11, 40])
def test_wrapped_text_keeps_every_character_and_the_width(size: int) -> None:
    text = "Zwölf 日本語のテキスト and averyveryverylongwordwithoutanyspace 👩 e\u0301t\u0301"
    lines = render.wrap(text, size)
    assert "".join("".join(lines).split()) == "".join(text.split())
    assert all(render.columns(line) <= size for line in lines)
