"""What hundreds of agents and thousands of tasks cost, in files read, processes and ratios. No test here measures seconds."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bench.runs import make
from muster import git, store
from muster.cli import main as cli
from muster.errors import MusterError
from muster.flow.run import directory as runs
from muster.flow.run.records import AttemptAgent, Outcome
from muster.providers.local import LocalHost
from muster.report import run_page

from .conftest import World

_listeners: list[Callable[[str], None]] = []


def _heard(event: str, args: tuple[object, ...]) -> None:
    if event == "open" and isinstance(args[0], str):  # a number is a file that was opened before
        for listener in _listeners:
            listener(args[0])


sys.addaudithook(_heard)


@contextmanager
def opened(*within: Path) -> Iterator[Counter[str]]:
    """Count how often each path is opened below one of these folders; a relative name counts wherever it is."""
    found: Counter[str] = Counter()

    def listener(path: str) -> None:
        if not path.startswith("/") or any(path.startswith(f"{folder}/") for folder in within):
            found[path] += 1

    _listeners.append(listener)
    try:
        yield found
    finally:
        _listeners.remove(listener)


# Runs


def test_listing_runs_that_are_over_reads_none_of_their_tasks(tmp_path: Path) -> None:
    for number in range(3):
        make(tmp_path, f"map-{number}", 20)
    first = [run.overview() for run in runs.all_runs(str(tmp_path))]
    with opened(tmp_path) as files:
        again = [run.overview() for run in runs.all_runs(str(tmp_path))]
    assert again == first
    assert [{**run.picture(), "tasks": 0} for run in runs.all_runs(str(tmp_path))] == [
        {**one, "tasks": 0} for one in first
    ]
    assert not [path for path in files if "/tasks/" in path or path.endswith("tasks.jsonl")]
    assert sum(files.values()) <= 3 * 5


def test_a_kept_summary_is_never_older_than_the_run(tmp_path: Path) -> None:
    run = make(tmp_path, "map-1", 5)
    assert run.overview()["outcomes"] == {"ok": 3, "blocked": 1, "failed": 1}
    last = run.tasks()[-1]
    with run.holding():
        run.end(
            run.begin(last.id, 2, AttemptAgent(name="again"), "again"), Outcome(outcome="ok", final=True, cost_usd=1.0)
        )
        assert run.overview()["outcomes"] == {"ok": 4, "failed": 1}, "what is being changed is not taken from a summary"
        run.event("again", 1.0, task=last.id, attempt=2, outcome="ok")
    assert run.overview()["outcomes"] == {"ok": 4, "failed": 1}
    assert run.overview()["cost_usd"] == pytest.approx(1.25)
    Path(run.path("summary.json")).write_text('{"version": 1, "totals": [], "of": 7}')
    assert run.overview()["outcomes"] == {"ok": 4, "failed": 1}
    Path(run.path("finished.json")).unlink()
    assert run.overview()["state"] == "interrupted"


def test_a_summary_that_cannot_be_written_fails_nothing(tmp_path: Path) -> None:
    run = make(tmp_path, "map-1", 5)
    Path(run.path("summary.json")).mkdir()
    assert run.overview() == run.overview() == {key: told for key, told in run.picture().items() if key != "tasks"}


def test_showing_a_run_reads_each_file_of_its_tasks_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MUSTER_HOME", str(tmp_path))
    make(tmp_path, "old", 20, 1.0)
    make(tmp_path, "new", 20, 2.0)
    assert cli.main(["runs", "show", "old"]) == 0
    capsys.readouterr()
    with opened(tmp_path) as files:
        assert cli.main(["runs", "show", "new"]) == 0
    first = capsys.readouterr().out
    with opened(tmp_path) as later:
        assert cli.main(["runs", "show", "new"]) == 0
    assert capsys.readouterr().out == first
    assert not [path for path in later if "/tasks/" in path], "the second look reads what the first one kept"
    tasks = {path: count for path, count in files.items() if "/tasks/" in path}
    assert len(tasks) == 20 * 3, "agent.json, outcome.json and verified.json"
    assert set(tasks.values()) == {1}
    assert not [path for path in tasks if "/old/" in path], "of the run before only the summary counts"


# The page


def test_a_page_opens_little_more_than_the_files_that_it_shows(tmp_path: Path) -> None:
    run = make(tmp_path, "map-1", 30)
    there = sum(path.is_file() for path in Path(run.folder).rglob("*"))
    with opened(tmp_path) as files:
        run_page.make(Path(run.folder))
    made = sum(path.is_file() for path in Path(run.folder, "report").rglob("*"))
    # For each task: folders are entered and listed, and three files are opened once more for their size.
    assert sum(files.values()) <= there + made + 10 * 30 + 40


def test_lines_parsed_together_are_what_they_are_alone(tmp_path: Path) -> None:
    from muster.report.untrusted import UntrustedFolder

    odd = ["[1]", "{", "1],[2", '"x"', "", "[1", "2]", "null", '{"a": "\t"}']
    (tmp_path / "some").write_text("\n".join(odd))
    (tmp_path / "good").write_text('[1]\n\n{"a": 2}\n"x"')
    assert list(UntrustedFolder(tmp_path).values("some")) == [[1], None, None, "x", None, None, None, {"a": "\t"}]
    assert list(UntrustedFolder(tmp_path).values("good")) == [[1], {"a": 2}, "x"]


def test_files_of_a_folder_that_is_replaced_by_a_link_are_not_read(tmp_path: Path) -> None:
    from muster.report.untrusted import UntrustedFolder

    (tmp_path / "run" / "one").mkdir(parents=True)
    (tmp_path / "run" / "one" / "file").write_text("mine")
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "file").write_text("secret")
    (tmp_path / "run" / "two").symlink_to(tmp_path / "secret")
    folder = UntrustedFolder(tmp_path / "run")
    assert [folder.text(name, "file", limit=99) for name in ("one", "two", "one")] == ["mine", None, "mine"]
    assert folder.text("one", "..", "one", "file", limit=99) is None
    assert folder.text("file", limit=99) is None


# A mirror of a long history


class Git:
    """A repository of the user's whose history lies in several packs, and loose objects on top."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.trace = folder, folder / "trace"
        for name, word in (("GIT_CONFIG_GLOBAL", "/dev/null"), ("GIT_CONFIG_NOSYSTEM", "1")):
            monkeypatch.setenv(name, word)
        for who in ("AUTHOR", "COMMITTER"):
            monkeypatch.setenv(f"GIT_{who}_NAME", "Ann")
            monkeypatch.setenv(f"GIT_{who}_EMAIL", "ann@example.invalid")
        self.root = folder / "root"
        self.root.mkdir()
        self("init", "-q", "-b", "main")
        for _ in range(3):
            self.commit()
            self("repack", "-q", "-d")
        self.commit()
        assert len(list((self.root / ".git/objects/pack").glob("*.pack"))) == 3
        monkeypatch.setenv("GIT_TRACE2_EVENT", str(self.trace))
        self.numbers = itertools.count(1)

    def __call__(self, *words: str, at: str = "") -> str:
        done = subprocess.run(["git", *words], cwd=at or self.root, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def commit(self) -> None:
        (self.root / "large").write_bytes(os.urandom(50_000))
        self("add", "-A")
        self("commit", "-q", "-m", "more")

    def mirror(self, host: LocalHost, own: bool = True) -> git.Tree:
        """Seed a mirror from what is there now."""
        here = LocalHost(str(self.folder / "home"))
        repo = git.find(here, str(self.root))
        assert repo
        number = next(self.numbers)
        place = [str(self.folder / f"{name}-{number}") for name in ("work", "shadow")]
        return git.seed_mirror(here, repo, host, "key", *place, f"muster/{number}", repo.head, repo.head, own=own)

    def started(self) -> list[list[str]]:
        """Return the command lines of git since the last call."""
        lines = self.trace.read_text().splitlines() if self.trace.exists() else []
        self.trace.unlink(missing_ok=True)
        events = [json.loads(line) for line in lines]
        return [event["argv"][1:] for event in events if event["event"] == "start"]

    def whole(self, tree: git.Tree) -> bool:
        self("fsck", "--full", "--no-dangling", at=tree.workdir)
        return self("log", "--format=%H", at=tree.workdir) == self("log", "--format=%H")


@pytest.fixture
def long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Git:
    return Git(tmp_path, monkeypatch)


@pytest.fixture
def near(tmp_path: Path) -> LocalHost:
    return LocalHost(str(tmp_path / "near"))


@pytest.fixture
def far(tmp_path: Path) -> LocalHost:
    """A host that is not this machine as far as anybody can tell."""
    host = LocalHost(str(tmp_path / "far"))
    host.name = "far"
    host.local = False
    return host


def busy(argvs: list[list[str]]) -> list[str]:
    """Name the processes whose work grows with the size of the history."""
    slow = {"pack-objects", "index-pack", "unpack-objects"}
    return sorted(word for argv in argvs for word in argv[:5] if word in slow)


def test_a_mirror_on_the_same_machine_links_the_objects(long: Git, near: LocalHost) -> None:
    long.started()
    tree = long.mirror(near)
    assert busy(long.started()) == []
    mine = {path.stat().st_ino for path in (long.root / ".git/objects/pack").glob("*.pack")}
    assert mine <= {path.stat().st_ino for path in Path(near.home).glob("repos/*/objects/pack/*.pack")}
    assert long.whole(tree)
    long.commit()
    long.started()
    second = long.mirror(near)
    assert busy(long.started()) == ["index-pack", "pack-objects"], "what is new comes as a pack"
    assert long.whole(second)


def test_a_mirror_outlives_the_repository_that_it_was_made_of(long: Git, near: LocalHost) -> None:
    tree = long.mirror(near)
    commits = long("log", "--format=%H")
    shutil.rmtree(long.root)
    long("fsck", "--full", "--no-dangling", at=tree.workdir)
    assert long("log", "--format=%H", at=tree.workdir) == commits


def test_objects_of_an_agents_repository_are_never_linked(long: Git, near: LocalHost, far: LocalHost) -> None:
    for host in (near, far):
        long.started()
        tree = long.mirror(host, own=False)
        assert busy(long.started()) == ["index-pack", "pack-objects"]
        assert long.whole(tree)


def test_a_repository_that_borrows_objects_itself_is_mirrored_by_packs(long: Git, near: LocalHost) -> None:
    long("clone", "-q", "--shared", str(long.root), str(long.folder / "twin"), at=str(long.folder))
    long.root = long.folder / "twin"
    long.started()
    tree = long.mirror(near)
    assert busy(long.started()) == ["index-pack", "pack-objects"]
    assert long.whole(tree)


def test_mirrors_made_at_once_share_one_cache(long: Git, near: LocalHost) -> None:
    with ThreadPoolExecutor(4) as pool:
        trees = list(pool.map(lambda _: long.mirror(near), range(4)))
    assert all(long.whole(tree) for tree in trees)
    assert [path.name for path in Path(near.home, "repos").iterdir()] == ["key.git"]
    assert not [path for path in Path(near.home, "repos", "key.git").iterdir() if path.name.startswith("key")]


def test_packs_travel_to_another_host_as_they_are(long: Git, far: LocalHost) -> None:
    long.started()
    tree = long.mirror(far)
    argvs = long.started()
    assert busy(argvs) == ["pack-objects"], "only of the loose objects, and nothing is worked out again over there"
    assert long.whole(tree)
    there = {path.name for path in Path(far.home).glob("repos/*/objects/pack/*.pack")}
    mine = {path.name for path in (long.root / ".git/objects/pack").glob("*.pack")}
    assert mine < there and len(there) == 4
    assert not list(Path(far.home).glob("repos/*/objects/pack/.incoming*"))


def test_a_pack_with_something_else_in_it_stays_at_home(long: Git, far: LocalHost) -> None:
    """Another branch, or what was amended away, is nobody's business on the host."""
    long("checkout", "-q", "-b", "private")
    long.commit()
    secret = long("rev-parse", "HEAD:large")
    long("checkout", "-q", "main")
    long("repack", "-q", "-a", "-d")
    long.started()
    tree = long.mirror(far)
    assert busy(long.started()) == ["index-pack", "pack-objects"]
    assert long.whole(tree)
    with pytest.raises(subprocess.CalledProcessError):
        long("cat-file", "-e", secret, at=tree.workdir)


def test_only_a_few_new_commits_are_searched_for_deltas(long: Git, far: LocalHost) -> None:
    def windows() -> list[str]:
        return [word for argv in long.started() if "pack-objects" in argv for word in argv if "--window" in word]

    windows()
    long.mirror(far, own=False)
    assert windows() == ["--window=0"]
    long.commit()
    long.mirror(far)
    assert windows() == ["--window=10"]


def test_a_history_that_is_cut_off_on_its_way_leaves_nothing(
    long: Git, far: LocalHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = LocalHost.stream

    def cut(self: LocalHost, argv: list[str], **more: Any) -> Any:
        return real(self, ["sh", "-c", '"$@" | head -c 70000', "cut", *argv], **more)

    monkeypatch.setattr(LocalHost, "stream", cut)
    with pytest.raises(MusterError, match="did not arrive whole"):
        long.mirror(far)
    monkeypatch.undo()
    assert not list(Path(far.home).glob("repos/*/objects/pack/*"))
    assert not list(Path(far.home).glob("repos/*/objects/pack/.incoming*"))
    assert long.whole(long.mirror(far))


# Many agents


def counted(world: World, program: str) -> Path:
    """Put a program in front of the real one that writes a line for each call."""
    log, shim = world.folder / f"calls-of-{program}", world.bin / program
    shim.write_text(f'#!/bin/sh\necho "$1" >>{log}\nexec {shutil.which(program)} "$@"\n')
    shim.chmod(0o755)
    return log


def test_list_with_git_takes_one_process_for_each_agent_that_changed_nothing(world: World) -> None:
    world.ok("create", "n", "command", "--no-connect", "--count", "9", "--", "sleep", "1000")
    agents = world.agents()
    odd = sorted(agents)[3]
    (Path(agents[odd]["workdir"]) / "new\nfile").write_text("x")
    programs = ("git", "find", "cp", "cat", "mkdir", "grep", "tr", "wc")
    logs = {name: counted(world, name) for name in programs}
    rows = world.ok("list", "--git", "--json").json["agents"]
    assert {row["name"]: row["dirty"] for row in rows} == {name: int(name == odd) for name in agents}
    calls = {name: len(log.read_text().splitlines()) if log.exists() else 0 for name, log in logs.items()}
    assert calls["git"] == 9 + 1 and calls["cp"] == 0
    assert sum(calls.values()) <= 9 + 20


def test_list_with_git_counts_right_where_one_look_is_not_enough(world: World) -> None:
    world.ok("create", "n", "command", "--no-connect", "--count", "6", "--", "sleep", "1000")
    agents = world.agents()

    def at(number: int, *words: str) -> Path:
        subprocess.run(["git", *words], cwd=agents[f"n-{number}"]["workdir"], env=world.env, check=True)
        return world.muster_home / "agents" / agents[f"n-{number}"]["id"] / "repo"

    at(1, "commit", "-q", "--allow-empty", "-m", "one more")
    at(2, "pack-refs", "--all")
    index = at(3, "rm", "-q", "--cached", "README") / "index"
    index.write_bytes(index.read_bytes()[:-40])
    at(4, "checkout", "-q", "--detach")
    (at(5, "status", "-s") / "refs" / "heads" / "large").write_bytes(b"x" * 10_000)
    with (at(6, "status", "-s") / "HEAD").open("wb") as file:
        file.truncate(1 << 40)
    for _ in range(2):
        rows = {row["name"]: row for row in world.ok("list", "--git", "--json").json["agents"]}
        counts = [(rows[f"n-{number}"]["ahead"], rows[f"n-{number}"]["dirty"]) for number in range(1, 7)]
        assert counts[:2] == [(1, 0), (0, 0)] and counts[3:] == [(0, 0), (0, 0), (None, None)]
        assert counts[2][0] == 0


def test_destroying_many_agents_takes_as_many_round_trips_as_destroying_one(world: World) -> None:
    world.ok("create", "n", "command", "--no-connect", "--count", "9", "--", "sleep", "1000")
    # Each script on a host begins with one of these, or uses it once for all agents.
    logs = {name: counted(world, name) for name in ("flock", "tar", "sync", "mkdir", "readlink")}
    rows = world.ok("destroy", "--all", "--json").json["results"]
    assert len(rows) == 9 and world.agents() == {}
    calls = {name: len(log.read_text().splitlines()) if log.exists() else 0 for name, log in logs.items()}
    assert calls["flock"] == 1 and calls["tar"] == 1 and calls["sync"] <= 2 and calls["readlink"] == 0
    assert calls["mkdir"] <= 9 + 10
    assert len(list((world.muster_home / "trash").iterdir())) == 9
    world.ok("restore", rows[0]["name"])


def test_one_agent_that_cannot_be_destroyed_keeps_no_other_from_it(world: World) -> None:
    world.ok("create", "n", "command", "--no-connect", "--count", "3", "--", "sleep", "1000")
    host = LocalHost(str(world.muster_home))
    stuck = world.agents()["n-2"]["id"]
    owner = store.lock(host, stuck, "destroy.lock", 60)  # this process lives, so nobody takes it over
    done = world.run("destroy", "--all")
    assert done.code == 5 and "n-2 is being destroyed by another muster" in done.stderr
    assert set(world.agents()) == {"n-2"}
    store.unlock(host, stuck, "destroy.lock", owner)
    world.ok("destroy", "n-2")
    assert world.agents() == {}
