"""One run of agents that all behave differently, and a person who interrupts: each ends as it should, and no process is left."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..conftest import World, eventually
from .test_map_kills import begin

SUBMIT = '[[step]]\nsubmit = "ok"\nsummary = "It is done."\n[[step]]\nturn = "Done."\n'
#: A playbook and the outcome it must come to.
PLAYS = {
    "finishes": (SUBMIT, "ok"),
    "blocked": ('[[step]]\nsubmit = "blocked"\nsummary = "No key."\nreason = "a key is needed"\n', "blocked"),
    "asks": ('[[step]]\nask = "Which one?"\n[[step]]\nexpect = "Nobody is here"\n' + SUBMIT, "ok"),
    "insists": ('[[step]]\nask = "Which one?"\n[[step]]\nask = "But which one?"\n', "blocked"),
    "permission": ('[[step]]\npermission = "rm -rf /"\ntool = "Bash"\n', "blocked"),
    "forgets": ('[[step]]\nturn = "I am done."\n' + SUBMIT, "ok"),
    "silent": ('[[step]]\nturn = "Done."\n[[step]]\nturn = "Still done."\n', "failed"),
    "hangs": ("[[step]]\nhang = true\n", "stalled"),
    "crashes": ('[[step]]\ncrash = "KILL"\n', "failed"),
    "exits": ("[[step]]\nexit = 3\n", "failed"),
    "bad": ('[[step]]\nsubmit_raw = "{no"\n[[step]]\nturn = ""\n[[step]]\nturn = "I insist."\n', "invalid"),
    "mended": ('[[step]]\nsubmit_raw = "[]"\n[[step]]\nturn = ""\n' + SUBMIT, "ok"),
    "daemons": (
        '[[step]]\nrun = "for n in 1 2 3; do (setsid sleep 7777 </dev/null >/dev/null 2>&1 &) ; done"\n' + SUBMIT,
        "ok",
    ),
}
#: Of those the last try says how they ended; `crashes`, `exits`, `silent`, `bad` and `hangs` are tried twice.
TWICE = {"crashes", "exits", "silent", "bad", "hangs", "full"}


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A disk of a megabyte; where nobody may mount one, a folder whose files may not grow further (see `fill`)."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = (
        not os.geteuid()
        and not subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=1m", "muster-test", folder], check=False, capture_output=True
        ).returncode
    )
    yield folder
    if mounted:
        subprocess.run(["umount", folder], check=True)


def mixed(world: World, small: Path, flood: int, stall: str, without: tuple[str, ...] = ()) -> None:
    fill = f"ulimit -f 2048; cat /dev/zero > {small}/all-of-it"
    plays = {
        # Many that go well: half of them failing would be a pattern, and the run would pause.
        **{f"well-{number}": (SUBMIT, "ok") for number in range(12)},
        **PLAYS,
        "floods": (
            f'[[step]]\nrun = "yes flood | head -c {flood} >/proc/$PPID/fd/1"\nexpect_exit = 0\n' + SUBMIT,
            "ok",
        ),
        "full": (f'[[step]]\nrun = "{fill}"\nexpect_exit = 0\n' + SUBMIT, "failed"),
    }
    for name in without:
        del plays[name]
    for name, (text, _) in plays.items():
        world.playbook(text, f"{name}.toml")
    folder = Path(world.playbook("", "empty.toml")).parent
    result = world.run(
        *("map", "-a", "replay", "--run", "mix", "--stall", stall, "--max-agents", "16", "-p", "Do {item}."),
        *("--", f"{folder}/{{item}}.toml"),
        input="".join(f"{name}\n" for name in plays).encode(),
        timeout=900,
    )
    assert result.code == 1, result
    tasks = {task["item"]: task for task in world.ok("runs", "show", "mix", "--json").json["tasks"]}
    assert {name: task["outcome"] for name, task in tasks.items()} == {name: end for name, (_, end) in plays.items()}
    assert {name for name, task in tasks.items() if task["attempts"] == 2} == TWICE - {*without}
    left = world.agents()
    assert len(left) == sum(end != "ok" for _, end in plays.values()), "those that did not do it are there for a person"
    assert {row["state"] for row in left.values()} <= {"stopped", "failed"}
    assert not _with(f"MUSTER_HOME={world.muster_home}"), "no process is left"
    attempts = world.muster_home / "runs" / "mix" / "tasks"
    sizes = {
        path.parent.parent.name.partition("-")[2]: path.stat().st_size
        for path in attempts.glob("*/attempt-1/recording.cast")
    }
    assert set(sizes) == set(plays) and sizes["floods"] < 200_000_000, "a flood is cut"


def _with(variable: str) -> list[str]:
    """The processes of agents that have this in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            env = (entry / "environ").read_bytes().split(b"\0") if entry.name.isdigit() else []
        except OSError:
            continue
        if variable.encode() in env and any(word.startswith(b"MUSTER_AGENT_ID=") for word in env):
            found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
    return found


@pytest.mark.slow
def test_every_behaviour_comes_to_its_outcome(world: World, small: Path) -> None:
    mixed(world, small, 20_000_000, "20s")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_gigabyte_on_the_terminal_is_one_behaviour_among_others(world: World, small: Path) -> None:
    mixed(world, small, 1_000_000_000, "1h", without=("hangs",))


def running(world: World, count: int) -> bool:
    return sum(row["state"] == "working" for row in world.agents().values()) == count


def identity(world: World) -> None:
    world.git("config", "user.name", "Ann")
    world.git("config", "user.email", "ann@example.invalid")


def test_ctrl_c_lets_those_that_run_come_to_their_end(world: World, tmp_path: Path) -> None:
    identity(world)
    items = "".join(f"task-{number}\n" for number in range(12))
    process = begin(world, items, "calm", tmp_path / "marks", at_once=2, seconds=3)
    eventually(lambda: running(world, 2))
    process.send_signal(signal.SIGINT)
    assert process.stdout and "goes on with it" in process.stdout.read().decode()
    assert process.wait() == 130
    before = world.ok("runs", "show", "calm", "--json").json
    assert before["state"] == "interrupted" and before["outcomes"] == {"ok": 2} and world.agents() == {}
    again = begin(world, items, "calm", tmp_path / "marks", at_once=12, seconds=3)
    assert again.wait() == 0
    after = world.ok("runs", "show", "calm", "--json").json
    assert after["outcomes"] == {"ok": 12} and {task["attempts"] for task in after["tasks"]} == {1}


@pytest.mark.parametrize("signals", [(signal.SIGINT, signal.SIGINT), (signal.SIGTERM,)], ids=["ctrl-c", "term"])
def test_ctrl_c_twice_or_a_sigterm_harvests_and_ends_those_that_run(
    world: World, tmp_path: Path, signals: tuple[signal.Signals, ...]
) -> None:
    identity(world)
    process = begin(world, "one\ntwo\nthree\n", "short", tmp_path / "marks", at_once=2, seconds=600)
    marks = tmp_path / "marks"
    eventually(lambda: running(world, 2) and marks.exists() and marks.read_text().count("\n") == 2)
    eventually(lambda: world.git("log", "--format=%s", "--branches=muster/short-*", "--not", "main").count("done") == 2)
    process.send_signal(signals[0])
    if signals[1:]:
        eventually(lambda: "draining" in (world.muster_home / "runs" / "short" / "events.jsonl").read_text())
        process.send_signal(signals[1])
    assert process.wait() == 130
    assert world.agents() == {} and not _with(f"MUSTER_HOME={world.muster_home}")
    shown = world.ok("runs", "show", "short", "--json").json
    assert [task["commits"] for task in shown["tasks"]] == [1, 1, None] and shown["state"] == "interrupted"
    refs = world.git("for-each-ref", "--format=%(refname)", "refs/muster/runs/short").split()
    assert len(refs) == 2, "what they did is held by refs of the run"


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_three_hundred_agents_in_one_run_are_all_accounted_for(world: World) -> None:
    result = world.run(
        *("map", "-a", "replay", "--run", "many", "--max-agents", "300", "-p", "Do {item}."),
        *("--", world.playbook("[[step]]\nwait = 5\n" + SUBMIT, "play.toml")),
        input="".join(f"{number}\n" for number in range(300)).encode(),
        timeout=1500,
    )
    assert result.code == 0, result
    shown = world.ok("runs", "show", "many", "--json").json
    assert shown["outcomes"] == {"ok": 300} and {task["attempts"] for task in shown["tasks"]} == {1}
    assert world.agents() == {} and not _with(f"MUSTER_HOME={world.muster_home}")
