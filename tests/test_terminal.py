"""What a person at a terminal meets: diffs with colours and a pager, the manual, one task of a run, and hints."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.cli import pager

from .conftest import World
from .test_narrow import on_terminal, raw_on_terminal


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    world = World(tmp_path_factory.mktemp("terminal") / "w")
    script = r"printf 'print(1)\n' > src/app.py; printf '\033]0;evil\007--- a line\n' > new; exec sleep 1000"
    world.ok("create", "one", "command", "--no-connect", "--", "sh", "-c", "true")
    world.wait_state("one", "done")
    world.ok("exec", "one", "--", "sh", "-c", script.removesuffix("; exec sleep 1000"))
    yield world
    world.end()


# diff

OLD, NEW, META = "\x1b[31m-print('one')", "\x1b[32m+print(1)", "\x1b[1mdiff --git a/src/app.py b/src/app.py"


def test_a_diff_on_a_terminal_has_the_colours_of_git(world: World) -> None:
    shown = raw_on_terminal(world, "diff", "one", GIT_PAGER="cat")
    assert OLD in shown and NEW in shown and META in shown
    assert "\x1b[32m+ ]0;evil --- a line" in shown  # of the agent's own bytes none reaches the terminal
    assert "\x1b" not in raw_on_terminal(world, "diff", "one", GIT_PAGER="cat", NO_COLOR="1")


def test_a_diff_that_is_piped_is_plain_and_whole(world: World) -> None:
    piped = world.ok("diff", "one", env={"GIT_PAGER": "false"}).stdout
    assert "\x1b[3" not in piped and "\x1b]0;evil\x07--- a line\n" in piped


def test_the_git_configuration_of_the_user_decides_about_colours_and_pager(world: World) -> None:
    config = world.home / ".gitconfig"
    config.write_text("[color]\n\tdiff = false\n")
    assert "\x1b" not in raw_on_terminal(world, "diff", "one", GIT_PAGER="cat")
    config.write_text('[color "diff"]\n\tnew = blue\n[core]\n\tpager = sed s/^/paged:/\n')
    shown = raw_on_terminal(world, "diff", "one")
    assert "paged:\x1b[34m+print(1)" in shown and f"paged:{OLD}" in shown
    config.write_text("[core]\n\tpager = sed s/^/paged:/\n[pager]\n\tdiff = sed s/^/mine:/\n")
    assert "mine:" in raw_on_terminal(world, "diff", "one", "--stat")
    assert "paged:" not in raw_on_terminal(world, "diff", "one", GIT_PAGER="cat")
    config.write_text("[core]\n\tpager = sed s/^/paged:/\n[pager]\n\tdiff = false\n")
    shown = raw_on_terminal(world, "diff", "one")
    assert "paged:" not in shown and NEW in shown
    config.write_text("[core]\n\tpager = no-such-program\n")
    shown = raw_on_terminal(world, "diff", "one")
    assert "the pager cannot be started: no-such-program" in shown and NEW in shown
    config.unlink()


def test_a_pager_that_is_configured_in_the_work_dir_of_an_agent_is_not_run(world: World) -> None:
    ran = world.folder / "ran"
    world.ok("exec", "one", "--", "git", "config", "core.pager", f"touch {ran}; cat")
    workdir = Path(world.agents()["one"]["workdir"])
    assert NEW in raw_on_terminal(world, "diff", "one", cwd=workdir, LESS="FRX")
    assert not ran.exists()


def test_lines_of_a_hunk_that_look_like_headers_are_coloured_as_what_they_are() -> None:
    colours = {"meta": "M", "frag": "F", "old": "O", "new": "N"}
    lines = [
        "diff --git a/x b/x",
        "--- a/x",
        "+++ b/x",
        "@@ -1,2 +1 @@",
        "--- a/x",
        "-old",
        "\\ No newline at end of file",
        "++ b",
    ]
    lines += ["\\ No newline at end of file", "diff --git a/y b/y"]
    starts = [line[0] for line in pager._coloured(lines, colours)]
    assert "".join(starts) == "MMMFOO\\N\\M"


# man


def test_man_without_a_verb_is_the_overview(world: World) -> None:
    text = world.ok("man").stdout
    assert text == world.ok("--help").stdout and "gc " in text
    assert world.ok("man", "--json").json["verb"] is None
    source = world.ok("man", "--roff").stdout
    assert source.startswith(".TH MUSTER 1 ") and "\nmuster \\- run one or a thousand" in source
    world.ok("man", "--all", str(world.folder / "man"))
    assert (world.folder / "man" / "muster.1").read_text() == source


# Hints


@pytest.mark.parametrize("verb", ["map", "improve"])
def test_a_run_without_a_client_names_the_option(world: World, verb: str) -> None:
    path = ":".join(str(place) for place in (world.bin, "/usr/bin", "/bin"))
    told = world.fails(2, verb, input=b"a\n", env={"PATH": path}).stderr
    assert f"muster {verb} -a TYPE" in told and "muster create" not in told


# One task


def test_a_task_shows_what_was_verified_and_what_was_kept_out(world: World) -> None:
    world.ok("map", "--run", "seen", "-a", "command", "--", "echo", "done", input=b"a\n")
    task = world.muster_home / "runs" / "seen" / "tasks" / "0001-a"
    kept = [
        {
            "path": "conftest.py",
            "line": 3,
            "rule": "hook",
            "reason": "a hook \x1b[2J" + "that is long " * 8,
            "allowed": False,
        }
    ]
    verified = {"attempt": 1, "result": "refused", "ok": False, "reason": "all of it is kept out", "kept_out": kept}
    (task / "verified.json").write_text(json.dumps(verified))
    shown = on_terminal(world, "runs", "show", "seen", "0001-a")
    assert "\x1b" not in shown and max(map(len, shown.splitlines())) <= 80
    words = " ".join(shown.split())
    assert "verified: refused (all of it is kept out)" in words
    assert "kept out: conftest.py: a hook [2J" + "that is long " * 8 in words + " "
    assert "Last lines: done" in words and "Next: muster report seen" in words
    told = world.ok("runs", "show", "seen", "1", "--json").json
    assert [one["path"] for one in told["kept_out"]] == ["conftest.py"]


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("seen", "0001-b"), 3, "did you mean 0001-a?"),
        (("seen", "2"), 3, "muster runs show seen lists its tasks"),
        (("seen", "1", "2"), 2, "takes one task"),
        (("sen", "1"), 3, "did you mean seen?"),
    ],
)
def test_a_task_that_is_not_there_is_told(world: World, words: tuple[str, ...], code: int, says: str) -> None:
    if not (world.muster_home / "runs" / "seen").exists():
        world.ok("map", "--run", "seen", "-a", "command", "--", "echo", "done", input=b"a\n")
    assert says in world.fails(code, "runs", "show", *words).stderr
