"""Whatever a host says about its agents, no verb reads, writes, moves or sends anything outside of the agent's own places.

A host is controlled by the agents on it. Here every field of every file that it returns is replaced by something hostile,
one verb is called, and everything else of the user's is compared with what it was.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from muster import Fleet
from muster.errors import MusterError
from muster.host import Found
from muster.model import Address, Spec
from muster.providers.local import LocalHost

SECRET = "do-not-read-7f3a9c"
#: `make test-all` runs 10,000 cases in all.
CASES = 1000 if int(os.environ.get("MUSTER_EXAMPLES", "0")) >= 1000 else 40
CHUNKS = 10

#: Paths of the user's that no verb has any business with; the audit hook reports each use of one.
_watched: list[str] = []
_touched: list[str] = []


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if not _watched or (event not in ("open", "subprocess.Popen") and not event.startswith(("os.", "shutil."))):
        return
    words = args[1] if event == "subprocess.Popen" else args
    for word in words if isinstance(words, list | tuple) else [words]:
        text = os.fsdecode(word) if isinstance(word, bytes | os.PathLike) else word
        if isinstance(text, str) and any(place in text for place in _watched):
            _touched.append(f"{event} {text[:300]}")


_hooked: list[bool] = []


class Box(LocalHost):
    """Another machine, as far as muster can see."""

    name = "box"
    provider = "ssh"


class Lab:
    """A user's home with a project, another repository and private files; a host with agents; and a copy of it all."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.home, self.box = root, root / "home", root / "box"
        self.project, self.other = self.home / "project", self.home / "other"
        env = {
            "HOME": str(self.home),
            "MUSTER_HOME": str(self.home / "muster"),
            "PATH": os.environ["PATH"],
            "GIT_CONFIG_NOSYSTEM": "1",
        }
        for name in list(os.environ):
            if name.startswith(("MUSTER_", "GIT_", "XDG_")):
                monkeypatch.delenv(name)
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        self.env = env
        for repo in (self.project, self.other):
            repo.mkdir(parents=True)
        (self.home / ".gitconfig").write_text(
            "[user]\n\tname = Ann\n\temail = ann@example.com\n[init]\n\tdefaultBranch = main\n"
        )
        for path in (".bashrc", ".ssh/id", "private/notes.jsonl", "private/projects/x.jsonl"):
            (self.home / path).parent.mkdir(exist_ok=True, parents=True)
            (self.home / path).write_text(f"# {SECRET}\n")
        for repo in (self.project, self.other):
            self.git("init", "-q", cwd=repo)
            (repo / "a.txt").write_text("one\n" if repo == self.project else f"{SECRET}\n")
            self.git("add", ".", cwd=repo)
            self.git("commit", "-qm", "first", cwd=repo)
        self.secret_commit = self.git("rev-parse", "HEAD", cwd=self.other).strip()
        self.fleet = self.new_fleet()
        work = "git commit -qam theirs; echo more >b.txt; submit --outcome ok --summary fine; echo bye"
        for name, place, mode in (("far", "box", "mirror"), ("cop", "box", "copy"), ("near", "", "worktree")):
            spec = Spec(Address(name, place), "command", ("sh", "-c", f"echo two >>a.txt; {work}"), mode=mode)
            one = self.fleet.create(spec)
            self.fleet.wait([one], frozenset({"done", "failed"}), timeout=60)
            if mode != "copy":
                self.fleet.snapshot(self.fleet.get(str(one.status.address)), "create", "snap")
        self.fleet.destroy(self.fleet.create(Spec(Address("old", "box"), "command", ("true",))))
        for state in (self.box, self.home / "muster"):
            subprocess.run(["tmux", "-S", str(state / "tmux.sock"), "kill-server"], capture_output=True)
            (state / "tmux.sock").unlink(missing_ok=True)
        self.golden = root / "golden"
        self.golden.mkdir()
        for name in ("home", "box"):
            shutil.copytree(root / name, self.golden / name, symlinks=True)
        self.before = self.private()

    def git(self, *argv: str, cwd: Path | None = None) -> str:
        done = subprocess.run(["git", *argv], cwd=cwd or self.project, capture_output=True, check=True, env=self.env)
        return done.stdout.decode()

    def new_fleet(self) -> Fleet:
        fleet = Fleet(self.env, str(self.project))
        fleet._hosts["box"] = Box(str(self.box))
        return fleet

    def reset(self) -> None:
        for name in ("home", "box"):
            shutil.rmtree(self.root / name)
            shutil.copytree(self.golden / name, self.root / name, symlinks=True)

    def private(self) -> dict[str, str]:
        """Everything of the user's that no verb here may change; for the project, all but muster's own refs and objects."""
        found = {}
        own = (self.home / "muster", self.project / ".git/objects", self.project / ".git/refs/muster")
        own_refs = ("refs/heads/muster", "refs/muster")
        for folder, folders, files in os.walk(self.home):
            folders[:] = [name for name in folders if Path(folder, name) not in own]
            relative = os.path.relpath(folder, self.project / ".git").removeprefix("logs/")
            if relative.startswith(own_refs):
                folders.clear()
                continue
            for name in [*files, *folders]:
                path = Path(folder, name)
                relative = os.path.relpath(path, self.project / ".git").removeprefix("logs/")
                if relative.startswith(own_refs):
                    continue
                info = path.lstat()
                text = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
                found[str(path.relative_to(self.home))] = f"{info.st_mode} {hashlib.sha256(text).hexdigest()}"
        return found

    def records(self) -> list[Path]:
        """Every file of an agent that a host returns to a verb."""
        found = []
        for state in (self.box, self.home / "muster"):
            for folder in (*state.glob("agents/*"), *state.glob("trash/*/agent")):
                found += [folder / "agent.json", folder / "usage.json", folder / "result.json", folder / "cwd"]
                found += [folder / "workdir", folder / "events.jsonl", folder / "ev/session", *folder.glob("ev/*")]
                found += [*folder.glob("rec/*.meta"), folder / "git/refs/muster/base", folder / "git/refs/muster/start"]
            found += state.glob("names/*")
        return found


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        lab = Lab(tmp_path_factory.mktemp("hostile"), monkeypatch)
        if not _hooked:
            sys.addaudithook(_audit)
            _hooked.append(True)
        yield lab
        for state in (lab.box, lab.home / "muster"):
            subprocess.run(["tmux", "-S", str(state / "tmux.sock"), "kill-server"], capture_output=True)


def hostile(lab: Lab, rng: random.Random) -> Any:
    places = [lab.home, lab.other, f"{lab.other}/.git", lab.home / ".bashrc", lab.home / "private/notes.jsonl", "/"]
    values: list[Any] = [
        *(str(place) for place in places),
        *(
            "main",
            "HEAD",
            "-D",
            "--upload-pack=x",
            "refs/heads/main",
            "../../main",
            "muster/../main",
            "a b",
            "",
            ".",
            "..",
        ),
        *(
            "worktree",
            "mirror",
            "copy",
            "in-place",
            "frob",
            "claude",
            "replay",
            "creating",
            "destroying",
            "far",
            "near",
        ),
        *(lab.secret_commit, "0" * 40, "$(touch x)", "x\ny", "\x1b]0;x\x07", "\ud800", "x" * 5000),
        *(
            0,
            -1,
            2**70,
            1e308,
            True,
            None,
            [],
            ["sh", "-c", "touch x"],
            {},
            {"destroyed": "x", "kept": 7, "head": "-D"},
        ),
        {"machine": "x", "pid": 1, "born": []},
        {"run": "r", "task": "t"},
    ]
    return rng.choice(values)


def tamper(lab: Lab, path: Path, rng: random.Random) -> str:
    """Change one field of a file that holds JSON, or its text; returns what was done."""
    value = hostile(lab, rng)
    text = path.read_text(errors="surrogateescape") if path.exists() else "{}"
    try:
        data = json.loads(text)
    except ValueError:
        data = None
    if isinstance(data, dict) and rng.random() < 0.95:
        keys = [*data, "where", "repo", "branch", "workdir", "text"]
        changed = rng.sample(keys, k=min(len(keys), rng.choice([1, 1, 1, 2, 5])))
        for key in changed:
            data[key] = hostile(lab, rng)
        told, new = f"{changed}", json.dumps(data)
    else:
        told, new = "text", value if isinstance(value, str) else json.dumps(value)
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(new, errors="surrogateescape" if "\ud800" not in new else "replace")
    return f"{path.relative_to(lab.root)}: {told}"


def _files(fleet: Fleet, one: Found) -> object:
    return fleet.pull_files(one, ["*"], str(Path(fleet.cwd, "..", "muster", "files")))


def _clone(fleet: Fleet, one: Found) -> object:
    return fleet.destroy(fleet.clone(one, Address("twin"), "", {}))


def _artifacts(fleet: Fleet, one: Found) -> object:
    with fleet.artifacts(one, 1 << 20) as archive:
        return archive.read()


def _exec(fleet: Fleet, one: Found) -> object:
    pipe = subprocess.PIPE
    process = fleet.exec(
        one, ["sh", "-c", "cat * .bashrc 2>&1; echo >written"], terminal=False, stdin=subprocess.DEVNULL, stdout=pipe
    )
    return process.communicate()[0]


VERBS: dict[str, Callable[[Fleet, Found], object]] = {
    "explain": lambda fleet, one: fleet.explain(one),
    "bills": lambda fleet, one: fleet.bills([one.status]),
    "wait": lambda fleet, one: fleet.wait([one], frozenset({"ready"}), timeout=0),
    "diff": lambda fleet, one: fleet.diff(one),
    "diff --stat": lambda fleet, one: fleet.diff(one, stat=True, committed=True),
    "pull": lambda fleet, one: fleet.pull(one),
    "pull again": lambda fleet, one: (fleet.pull(one, force=True), fleet.pull(one, uncommitted=True, force=True)),
    "pull --files": _files,
    "push": lambda fleet, one: fleet.push(one),
    "list --git": lambda fleet, one: fleet.git_counts(fleet.survey().statuses),
    "stop": lambda fleet, one: fleet.stop(one, 0),
    "rename": lambda fleet, one: fleet.rename(one, "other-name"),
    "label": lambda fleet, one: fleet.label(one, {"a": "b"}),
    "clone": _clone,
    "snapshots": lambda fleet, one: fleet.snapshots(one),
    "snapshot": lambda fleet, one: fleet.snapshot(one, "create"),
    "snapshot restore": lambda fleet, one: fleet.snapshot(one, "restore", "snap"),
    "destroy": lambda fleet, one: fleet.destroy(one),
    "destroy, restore": lambda fleet, one: (fleet.destroy(one), fleet.restore(str(one.status.address), "back")),
    "screen": lambda fleet, one: fleet.screen(str(one.status.address)),
    "cast": lambda fleet, one: list(fleet.cast(one)),
    "transcript": lambda fleet, one: fleet.transcript(one),
    "events": lambda fleet, one: fleet.events(one),
    "playbook": lambda fleet, one: fleet.playbook(one),
    "artifacts": _artifacts,
    "exec": _exec,
}
ALONE: dict[str, Callable[[Fleet], object]] = {
    "gc": lambda fleet: fleet.gc(yes=True),
    "gc --older-than 0": lambda fleet: fleet.gc(yes=True, older=0),
    "trash": lambda fleet: fleet.trash(),
    "restore": lambda fleet: fleet.restore("old@box"),
}


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_what_a_host_says_leads_no_verb_out_of_the_agents_own_places(lab: Lab, chunk: int) -> None:
    rng = random.Random(f"hostile host {chunk}")
    for number in range(CASES):
        lab.reset()
        said = [tamper(lab, rng.choice(lab.records()), rng) for _ in range(rng.choice([1, 1, 2, 4]))]
        if rng.random() < 0.25:
            shutil.rmtree(lab.home / "muster/bindings")
            said.append("no local records")
        verb = rng.choice([*VERBS, *VERBS, *ALONE])
        name = rng.choice(["far@box", "far@box", "cop@box", "near"])
        case = f"case {chunk}.{number}: {verb} {name if verb in VERBS else ''} after {said}"
        result: object = None
        fleet = lab.new_fleet()
        _touched.clear()
        _watched[:] = [str(lab.home / part) for part in (".bashrc", ".ssh", "private", "other")]
        try:
            with contextlib.suppress(MusterError):
                result = ALONE[verb](fleet) if verb in ALONE else VERBS[verb](fleet, fleet.get(name))
        except Exception as error:
            raise AssertionError(f"{case}: {type(error).__name__}: {error}") from error
        finally:
            _watched.clear()
        assert _touched == [], case
        assert lab.private() == lab.before, case
        assert SECRET not in repr(result), case
        for state in (lab.box, lab.home / "muster"):
            for path in state.rglob("*"):
                if path.is_file() and not path.is_symlink():
                    assert SECRET.encode() not in path.read_bytes(), f"{case}: {path}"
        objects = f"{lab.secret_commit[:2]}/{lab.secret_commit[2:]}"
        assert not list(lab.box.rglob(objects)), case
