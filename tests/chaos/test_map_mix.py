"""One run of agents that all behave differently, and a person who interrupts: each ends as it should, and no process is left."""

from __future__ import annotations

import json
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


def mixed(world: World, small: Path, flood: int, stall: str, retries: int = 1) -> None:
    fill = f"ulimit -f 2048; cat /dev/zero > {small}/all-of-it"
    plays = {
        # Many that go well: half of them failing would be a pattern, and the run would pause.
        **{f"well-{number}": (SUBMIT, "ok") for number in range(12)},
        **PLAYS,
        "floods": (
            # In parts: what a client's terminal shows is no sign of work, but that it begins another command is.
            f'[[step]]\nrun = "yes flood | head -c {flood // 8} >/proc/$PPID/fd/1"\nexpect_exit = 0\n' * 8 + SUBMIT,
            "ok",
        ),
        "full": (f'[[step]]\nrun = "{fill}"\nexpect_exit = 0\n' + SUBMIT, "failed"),
    }
    for name, (text, _) in plays.items():
        world.playbook(text, f"{name}.toml")
    folder = Path(world.playbook("", "empty.toml")).parent
    result = world.run(
        *(
            "map",
            "-a",
            "replay",
            "--run",
            "mix",
            "--stall",
            stall,
            "--retries",
            str(retries),
            "--max-agents",
            "16",
            "-p",
            "Do {item}.",
        ),
        *("--", f"{folder}/{{item}}.toml"),
        input="".join(f"{name}\n" for name in plays).encode(),
        timeout=900,
    )
    assert result.code == 1, result
    tasks = {task["item"]: task for task in world.ok("runs", "show", "mix", "--json").json["tasks"]}
    assert {name: task["outcome"] for name, task in tasks.items()} == {name: end for name, (_, end) in plays.items()}
    assert {name for name, task in tasks.items() if task["attempts"] == 2} == (TWICE if retries else set())
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
    mixed(world, small, 1_000_000_000, "4m", retries=0)


def running(world: World, count: int) -> bool:
    return sum(row["state"] == "working" for row in world.agents().values()) == count


def identity(world: World) -> None:
    world.git("config", "user.name", "Ann")
    world.git("config", "user.email", "ann@example.invalid")


def committed(world: World) -> int:
    """Count the agents that have committed something."""
    return sum(bool(row["ahead"]) for row in world.ok("list", "--git", "--json").json["agents"])


def test_ctrl_c_lets_those_that_run_come_to_their_end(world: World, tmp_path: Path) -> None:
    identity(world)
    items = "".join(f"task-{number}\n" for number in range(12))
    process = begin(world, items, "calm", tmp_path / "marks", at_once=2, seconds=3)
    eventually(lambda: running(world, 2))
    process.send_signal(signal.SIGINT)
    assert process.stdout and "goes on with it" in process.stdout.read().decode()
    assert process.wait() == 130
    before = world.ok("runs", "show", "calm", "--json").json
    begun = len((tmp_path / "marks").read_text().split())
    assert before["state"] == "interrupted" and before["outcomes"] == {"ok": begun} and world.agents() == {}
    assert begun < 12
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
    eventually(lambda: committed(world) == 2)
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


def test_an_agent_of_somebody_else_with_the_name_of_a_task_is_left_alone(world: World) -> None:
    world.ok("create", "mine-0001", "command", "--no-connect", "--", "sleep", "4444")
    result = world.run(
        *("map", "-a", "command", "--run", "mine", "--retries", "1", "--", "true"), input=b"one\ntwo\n", timeout=100
    )
    assert result.code == 0 and "there is an agent mine-0001 already" in result.stderr, result
    assert world.agents()["mine-0001"]["state"] == "working"
    tasks = world.ok("runs", "show", "mine", "--json").json["tasks"]
    assert [(task["outcome"], task["attempts"]) for task in tasks] == [("ok", 2), ("ok", 1)]


def test_an_agent_whose_work_cannot_be_brought_home_is_stopped_all_the_same_and_stays(world: World) -> None:
    work = "rm -rf .git; exec sleep 3334"
    words = ("--mode", "mirror", "--timeout", "2s", "--retries", "0", "--", "sh", "-c", work)
    result = world.run("map", "-a", "command", "--run", "lame", *words, input=b"one\n", timeout=100)
    assert result.code == 4, result
    assert world.agents()["lame-0001"]["state"] in ("stopped", "failed"), "nobody spends on"
    (told,) = (world.muster_home / "runs/lame/tasks").glob("*/attempt-1/outcome.json")
    assert any(error.startswith("commits:") for error in json.loads(told.read_text())["harvest_errors"])
    assert not _with(f"MUSTER_HOME={world.muster_home}")


def test_the_agents_of_a_killed_run_are_harvested_and_ended_by_runs_stop(world: World, tmp_path: Path) -> None:
    identity(world)
    marks = tmp_path / "marks"
    process = begin(world, "one\ntwo\nthree\n", "dead", marks, at_once=2, seconds=600)
    eventually(lambda: running(world, 2))
    eventually(lambda: committed(world) == 2)
    process.kill()
    process.wait()
    assert process.stdout
    process.stdout.close()
    result = world.ok("runs", "stop", "dead", timeout=60)
    assert "stopped dead" in result.stderr
    shown = world.ok("runs", "show", "dead", "--json").json
    assert shown["state"] == "finished" and shown["outcomes"] == {"cancelled": 3}
    assert sorted(str(task["commits"]) for task in shown["tasks"]) == ["1", "1", "None"]
    assert not _with(f"MUSTER_HOME={world.muster_home}")
    assert world.run("runs", "stop", "dead").code == 2, "there is nothing left to stop"


def start_at_once(world: World, count: int) -> None:
    """Let a run start `count` agents at once even if this machine is busy."""
    settings = world.home / ".config" / "muster" / "config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text(f"[limits]\nload = 1000\nstart = {count}\n")


def test_a_task_that_had_ended_well_is_not_cancelled_by_runs_stop(world: World, tmp_path: Path) -> None:
    """Its process is killed before it has seen that one agent is done and that another has submitted."""
    go = tmp_path / "go"
    script = (
        f"while [ ! -e {go} ]; do sleep 0.05; done; case {{item}} in a) exit 0 ;; b) exec sleep 1000 ;; "
        "c) submit --outcome ok --summary fine && exec sleep 1000 ;; d) exit 3 ;; esac"
    )
    start_at_once(world, 4)
    words = ("map", "--max-agents", "4", "--retries", "0", "-a", "command", "--", "sh", "-c", script)
    argv = [str(world.bin / "muster"), *words]
    process = subprocess.Popen(argv, cwd=world.repo, env=world.env, stdin=-1, stdout=-3, stderr=-3)
    assert process.stdin
    process.stdin.write(b"a\nb\nc\nd\n")
    process.stdin.close()
    eventually(lambda: [row["state"] for row in world.agents().values()] == ["working"] * 4)
    process.kill()
    process.wait()
    go.touch()
    eventually(
        lambda: sorted(row["state"] for row in world.agents().values()) == ["done", "failed", "working", "working"]
    )
    eventually(lambda: len(list(world.muster_home.glob("agents/*/result.json"))) == 1)
    (name,) = (run["name"] for run in world.ok("runs", "--json").json["runs"])
    world.ok("runs", "stop", name)
    tasks = {task["item"]: task["outcome"] for task in world.ok("runs", "show", name, "--json").json["tasks"]}
    assert tasks == {"a": "ok", "b": "cancelled", "c": "ok", "d": "failed"}


def test_a_result_that_a_neighbour_wrote_is_refused_and_the_task_tried_again(world: World, tmp_path: Path) -> None:
    """The honest agent has submitted; before it ends, its neighbour changes the summary."""
    submitted, forged = tmp_path / "submitted", tmp_path / "forged"
    honest = f"submit --outcome ok --summary honest; touch {submitted}; while [ ! -e {forged} ]; do sleep 0.05; done"
    other = (
        f"while [ ! -e {submitted} ]; do sleep 0.05; done; for file in $MUSTER_AGENT_DIR/../*/result.json; do "
        f"sed s/honest/forged/ $file >{tmp_path}/x; cp {tmp_path}/x $file; done; touch {forged}"
    )
    script = f"case {{item}} in a) {honest} ;; b) {other} ;; esac"
    start_at_once(world, 2)
    words = ("map", "--run", "m", "--max-agents", "2", "-a", "command", "--", "sh", "-c", script)
    world.ok(*words, input=b"a\nb\n")
    first, second = (
        json.loads((world.muster_home / f"runs/m/tasks/0001-a/attempt-{number}/outcome.json").read_text())
        for number in (1, 2)
    )
    assert first["outcome"] == "invalid" and "own submit did not write it" in first["reason"]
    assert (second["outcome"], second["summary"]) == ("ok", "honest")


def test_what_an_agent_changed_and_hands_over_is_never_in_memory_as_a_whole(world: World, tmp_path: Path) -> None:
    """Four agents with a hundred megabytes of changes and as much of artifacts each."""
    make = "head -c 100000000 /dev/zero | tr '\\0' 'x' | fold -w 1000 > big; cp big copy; submit --outcome ok --summary done --artifact copy"
    words = ["map", "-a", "command", "--run", "big", "--", "sh", "-c", make]
    argv = ["/usr/bin/env", "python3", "-c", MEASURE, str(world.bin / "muster"), *words]
    done = subprocess.run(
        argv, cwd=world.repo, env=world.env, input=b"1\n2\n3\n4\n", capture_output=True, check=False, timeout=280
    )
    assert done.returncode == 0, done
    most = int(done.stdout.splitlines()[-1])
    assert most < 150_000, f"{most} kB"
    tasks = list((world.muster_home / "runs/big/tasks").glob("*/attempt-1"))
    assert {(task / "artifacts/copy").stat().st_size for task in tasks} == {100_099_999}
    assert {(task / "diff.patch").stat().st_size for task in tasks} == {64 << 20}
    errors = [json.loads((task / "outcome.json").read_text())["harvest_errors"] for task in tasks]
    assert errors == [["diff: it is cut at 64 MB"]] * 4


#: Runs a program, then prints the most memory that it had, in kB. What it started and waited for does not count.
MEASURE = """
import re, subprocess, sys, threading, time
process = subprocess.Popen(sys.argv[1:], stdin=sys.stdin)
most = 0
while process.poll() is None:
    try:
        status = open(f"/proc/{process.pid}/status").read()
    except OSError:
        break
    found = re.search(r"VmHWM:\\s+(\\d+)", status)
    most = max(most, int(found[1])) if found else most
    time.sleep(0.02)
print(most)
sys.exit(process.wait())
"""


def test_what_cannot_work_is_said_before_a_run_is_made(world: World, tmp_path: Path) -> None:
    for words, code, said in (
        (("--branch", "nosuch"), 3, "nosuch"),
        (("@nobody-here.invalid",), 6, "nobody-here.invalid"),
        (("--budget-tokens", "0"), 2, "nothing is done"),
        (("--max-agents", "0"), 2, "nothing is done"),
    ):
        result = world.run("map", "-a", "command", *words, "--", "true", input=b"one\n", timeout=60)
        assert result.code == code and said in result.stderr, result
    slot = world.run("map", "-a", "command", "--", "awk", "{print}", input=b"one\n")
    assert slot.code == 2 and "{{ and }}" in slot.stderr
    assert world.ok("runs", "--json").json == {"runs": []}
    missing = world.run("map", "-a", "command", "--", "/no/such/program", input=b"one\n")
    (task,) = world.ok("runs", "show", "map-1", "--json").json["tasks"]
    assert missing.code == 1 and task["attempts"] == 1, "another try cannot help"
