"""Records of agents under many writers, kills and foreign locales: no change is lost, and no name is in between."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path

import pytest

from muster import births, store
from muster.fleet import Fleet
from muster.flow.run.results import RESULT_MOST, read
from muster.providers.local import LocalHost

from ..conftest import World, eventually


def start(world: World, name: str, mode: str = "worktree") -> str:
    world.ok("create", name, "command", "--mode", mode, "--no-connect", "--", "sleep", "1000")
    return str(world.agents()[name]["id"])


def together(world: World, *calls: tuple[str, ...]) -> list[int]:
    """Run several musters at once; returns their exit codes."""
    many = [
        subprocess.Popen([str(world.bin / "muster"), *call], cwd=world.repo, env=world.env, stdin=-3, stderr=-1)
        for call in calls
    ]
    for process in many:
        process.communicate(timeout=120)
    return [process.returncode for process in many]


def test_labels_that_are_set_at_the_same_time_are_all_kept(world: World) -> None:
    start(world, "one")
    calls = [("label", "one", "--set", f"k{number}={number}") for number in range(8)]
    assert together(world, *calls, ("label", "one", "--set", "more=1")) == [0] * 9
    labels = {**{f"k{number}": str(number) for number in range(8)}, "more": "1"}
    assert world.agents()["one"]["labels"] == labels
    agent_id = world.agents()["one"]["id"]
    record = json.loads((world.muster_home / "agents" / agent_id / "agent.json").read_text())
    assert record["labels"] == labels


def test_start_keeps_a_label_that_was_set_after_the_agent_was_selected(world: World) -> None:
    world.ok("create", "one", "command", "--no-connect", "--", "true")
    world.wait_state("one", "done")
    fleet = Fleet(world.env)
    one = fleet.get("one")
    world.ok("label", "one", "--set", "a=1")
    fleet.start(one)
    record = json.loads((world.muster_home / "agents" / one.agent.id / "agent.json").read_text())
    assert record["labels"] == {"a": "1"}


# Renaming

KILLED = """
import os, signal, sys
from muster import bindings, git, store
from muster.fleet import Fleet

step, old, new = sys.argv[1:]

def die_after(module, name):
    real = getattr(module, name)
    def called(*args, **more):
        real(*args, **more)
        os.kill(os.getpid(), signal.SIGKILL)
    setattr(module, name, called)

fleet = Fleet()
one = fleet.get(old)
if step == "bind":
    die_after(bindings, "write")
elif step == "branch":
    die_after(git, "rename")
else:
    die_after(store, step)
fleet.rename(one, new)
"""


@pytest.mark.parametrize("mode", ["worktree", "mirror", "copy"])
@pytest.mark.parametrize("step", ["bind", "take_name", "branch", "rename"])
def test_a_rename_that_was_killed_is_finished_by_repeating_it(world: World, step: str, mode: str) -> None:
    agent_id = start(world, "old", mode)
    world.ok("exec", "old", "--", "sh", "-c", "echo work > new-file")
    done = subprocess.run(
        [sys.executable, "-c", KILLED, step, "old", "new"],
        cwd=world.repo,
        env=world.env,
        capture_output=True,
        check=False,
    )
    assert done.returncode == -9, done.stderr.decode()
    assert len(world.agents()) == 1
    name = next(iter(world.agents()))
    assert name == ("new" if step == "rename" else "old")
    assert world.ok("exec", name, "--", "cat", "new-file").stdout == "work\n"
    if step != "rename":
        world.ok("rename", "old", "new")
    row = world.agents()["new"]
    assert (row["id"], row["alarms"]) == (agent_id, [])
    if mode != "copy":
        assert row["branch"] == "muster/new"
        assert world.ok("exec", "new", "--", "git", "branch", "--show-current").stdout == "muster/new\n"
        world.ok("exec", "new", "--", "sh", "-c", "git add -A && git -c user.name=a -c user.email=a@b commit -qm more")
        assert "muster/new" in world.ok("pull", "new").stderr
    names = [path.name for path in (world.muster_home / "names").iterdir()]
    assert names == ["new"]


def test_gc_gives_back_the_name_of_a_rename_that_was_killed_and_never_repeated(world: World) -> None:
    start(world, "old")
    argv = [sys.executable, "-c", KILLED, "take_name", "old", "new"]
    subprocess.run(argv, cwd=world.repo, env=world.env, capture_output=True, check=False)
    assert sorted(path.name for path in (world.muster_home / "names").iterdir()) == ["new", "old"]
    assert world.ok("gc", "--json").json["leftovers"] == []  # it may be under way
    for path in (world.muster_home / "names").iterdir():
        os.utime(path, (1, 1))
    assert [(row["what"], row["name"]) for row in world.ok("gc", "--yes", "--json").json["leftovers"]] == [
        ("name", "new")
    ]
    assert [path.name for path in (world.muster_home / "names").iterdir()] == ["old"]
    assert list(world.agents()) == ["old"]


def test_a_rename_to_a_name_that_is_taken_changes_nothing(world: World) -> None:
    start(world, "one")
    start(world, "two")
    assert "there is an agent two already" in world.fails(5, "rename", "one", "two").stderr
    assert world.ok("exec", "one", "--", "git", "branch", "--show-current").stdout == "muster/one\n"
    assert world.agents()["one"]["branch"] == "muster/one"
    # The branch is taken inside the agent's own repository.
    world.ok("exec", "one", "--", "git", "branch", "muster/three")
    assert "muster/three exists already" in world.fails(5, "rename", "one", "three").stderr
    assert sorted(world.agents()) == ["one", "two"]
    start(world, "three")
    assert world.agents()["one"]["alarms"] == []


def test_of_two_renames_at_once_the_agent_has_one_name_and_the_branch_of_that_name(world: World) -> None:
    start(world, "one")
    codes = together(world, ("rename", "one", "left"), ("rename", "one", "right"))
    assert 0 in codes
    (row,) = world.agents().values()
    assert row["name"] in ("left", "right")
    shown = world.ok("exec", row["name"], "--", "git", "branch", "--show-current").stdout
    assert shown == f"muster/{row['name']}\n" == f"{row['branch']}\n"
    assert [path.name for path in (world.muster_home / "names").iterdir()] == [row["name"]]


# What travels


def test_long_names_travel_whole(world: World) -> None:
    agent_id = start(world, "one")
    host = LocalHost(str(world.muster_home))
    names = ["session/" + "a" * length for length in (91, 92, 93, 120, 240)]
    names += ["session/" + "deep/" * 60 + "file", "session/" + "ü" * 100]
    files = {name: name.encode() for name in names}
    with tarfile.open(fileobj=BytesIO(store.tar(files))) as archive:
        assert archive.getnames() == names
    store.put(host, Fleet(world.env).get("one").agent, files)
    assert store.read(host, agent_id, *names) == files


def test_a_result_of_any_size_is_told_as_too_large(world: World) -> None:
    agent_id = start(world, "one")
    file = world.muster_home / "agents" / agent_id / "result.json"
    with open(file, "wb") as out:
        out.write(b'{"version": 1, "outcome": "ok", "summary": "')
        out.truncate(200 << 20)  # without taking that much of the disk
    for text in (None, b"\n" * (5 << 20)):
        if text:
            file.write_bytes(text)
        result = Fleet(world.env).get("one").status.result
        assert RESULT_MOST < len(result) < RESULT_MOST + 10
        assert "larger" in str(read(result.encode()))


# Records outlive a power failure


def test_a_record_is_on_the_disk_before_it_counts_and_so_is_its_folder(world: World) -> None:
    log = world.folder / "synced"
    shim = world.bin / "sync"
    shim.write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$PWD $*" >>{log}\nls -l agent.json >>{log} 2>&1\nexec {shutil.which("sync")} "$@"\n'
    )
    shim.chmod(0o755)
    agent_id = start(world, "one")
    folder = world.muster_home / "agents" / agent_id
    calls = [line for line in log.read_text().splitlines() if line.startswith(str(folder))]
    first, second = calls
    assert "agent.json." in first  # the new record, under another name
    assert set(second.split()[2:]) == {".", "..", "../../names"}
    log.unlink()
    world.ok("rename", "one", "two")
    assert [
        line.split()[2:] for line in log.read_text().splitlines() if line.startswith(str(world.muster_home / "names"))
    ]


# What programs say


def german(world: World) -> dict[str, str]:
    """The environment of a user whose programs do not speak English, as shims: this machine need not have the locale."""
    folder = world.folder / "german"
    folder.mkdir()
    for name in ("tar", "mkdir", "ln", "mv"):
        (folder / name).write_text(
            "#!/bin/sh\n"
            f'{shutil.which(name)} "$@" 2>"{folder}/said.$$"\n'
            "code=$?\n"
            'case ${LC_ALL:-$LANG} in C | POSIX) cat ;; *) sed "s/No space left on device/Auf dem Gerät ist kein Platz/; '
            f's/Read-only file system/Nur lesen/; s/Permission denied/Verboten/" ;; esac <"{folder}/said.$$" >&2\n'
            f'rm -f "{folder}/said.$$"\n'
            "exit $code\n"
        )
        (folder / name).chmod(0o755)
    return {"PATH": f"{folder}:{world.env['PATH']}", "LANG": "de_DE.UTF-8", "LC_ALL": "de_DE.UTF-8"}


@pytest.mark.skipif(os.getuid() == 0 and not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_errors_of_programs_are_understood_in_every_locale(world: World) -> None:
    env = german(world)
    (Path(env["PATH"].partition(":")[0]) / "tar").write_text(
        '#!/bin/sh\ncase ${LC_ALL:-$LANG} in C) echo "tar: x: Cannot write: No space left on device" >&2 ;;\n'
        '*) echo "tar: x: Kann nicht schreiben: Auf dem Gerät ist kein Platz" >&2 ;; esac\nexit 2\n'
    )
    failed = world.fails(1, "create", "one", "command", "--no-connect", "--", "true", env=env)
    assert "no space left" in failed.stderr and "muster gc" in failed.stderr


def test_what_belongs_to_the_user_keeps_the_users_locale(world: World) -> None:
    show = 'echo "<$LANG:${LC_ALL-none}>"; exec sleep 1000'
    for name, env, shown in (
        ("given", {"LANG": "C.UTF-8", "LC_ALL": "en_US.UTF-8"}, "<C.UTF-8:en_US.UTF-8>"),
        ("none", {"LANG": "C.UTF-8"}, "<C.UTF-8:none>"),
    ):
        world.ok("create", name, "command", "--no-connect", "--", "sh", "-c", show, env=env)
        eventually(lambda name=name, shown=shown: shown in world.ok("capture", name).stdout)
        assert world.ok("exec", name, "--", "sh", "-c", show.partition(";")[0], env=env).stdout == f"{shown}\n"


# Names


def test_a_generated_name_that_is_taken_is_replaced_by_another(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for key, value in world.env.items():
        monkeypatch.setenv(key, value)
    start(world, "taken")
    offered = iter(["taken", "taken", "free-one"])
    monkeypatch.setattr(births, "free_name", lambda taken: next(offered))
    fleet = Fleet(cwd=str(world.repo))
    from muster.model import Address, Spec

    one = fleet.create(Spec(Address(""), "command", ("sleep", "1000")))
    assert one.agent.name == "free-one" and one.agent.branch == "muster/free-one"
    assert sorted(world.agents()) == ["free-one", "taken"]


def test_a_generated_name_is_none_whose_branch_exists(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for key, value in world.env.items():
        monkeypatch.setenv(key, value)
    world.git("switch", "-q", "-c", "muster/bold-fox")
    world.git("commit", "-q", "--allow-empty", "-m", "unmerged")
    world.git("switch", "-q", "main")
    monkeypatch.setattr(births, "FIRST", ["bold"])
    monkeypatch.setattr(births, "SECOND", ["fox"])
    from muster.model import Address, Spec

    one = Fleet(cwd=str(world.repo)).create(Spec(Address(""), "command", ("sleep", "1000")))
    assert one.agent.name.startswith("bold-fox-")


# gc


def test_gc_goes_on_when_a_branch_vanishes_while_it_looks(world: World) -> None:
    for name in ("one", "two", "three"):
        world.git("branch", f"muster/{name}")
    real, shim = shutil.which("git"), world.bin / "git"
    shim.write_text(
        "#!/bin/sh\n"
        f'{real} "$@"\ncode=$?\n'
        f'case "$*" in *for-each-ref*refs/heads/muster/) {real} --git-dir={world.repo}/.git branch -q -D muster/two >/dev/null 2>&1 ;; esac\n'
        "exit $code\n"
    )
    shim.chmod(0o755)
    rows = world.ok("gc", "--yes", "--json").json["leftovers"]
    assert [(row["name"], row["action"]) for row in rows] == [("muster/one", "removed"), ("muster/three", "removed")]
    assert world.git("branch", "--list", "muster/*") == ""
