"""Whatever a host says about its agents, no verb reads, writes, moves or sends anything outside of the agent's own places.

A host is controlled by the agents on it. Here fields of the files that it returns, its answers, and the folders of agents are
replaced by something hostile, one verb is called, and the user's machine is compared with what it was: see `hostile.Lab` for
what counts as a trespass.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from muster import Fleet
from muster.errors import MusterError
from muster.flow.mapping import fleet_backend
from muster.host import Found
from muster.model import Address

from .hostile import Lab, hostile

#: Twice MUSTER_EXAMPLES cases in all, and at least some: `make test-all` runs 2,000, MUSTER_EXAMPLES=5000 runs 10,000.
CHUNKS = 40
CASES = max(4, 2 * int(os.environ.get("MUSTER_EXAMPLES", "0")) // CHUNKS)
INTEGRATED = (
    "home/plain",
    "home/project/a.txt",
    "home/project/b.txt",
    # What `plant` moved aside in a work dir is new there, and comes home as uncommitted work.
    "home/project/moved-a.txt",
    "home/project/moved-b.txt",
    "home/project/.git/index",
    "home/project/.git/logs/HEAD",
)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        # Nobody answers; how long that is waited for is not what is tested.
        for module, names in {
            "message": ("RECEIPT", "WAIT", "TAKE"),
            "keyboard": ("READY", "OPEN", "PRESS", "SETTLE", "CLEAR"),
            "dialogs": ("ANSWER", "SETTLE"),
        }.items():
            for name in names:
                monkeypatch.setattr(f"muster.{module}.{name}_SECONDS", 0.1)
        lab = Lab(tmp_path_factory.mktemp("hostile"), monkeypatch)
        yield lab
        lab.end()


def _clone(place: str) -> Callable[[Fleet, Found], object]:
    return lambda fleet, one: fleet.destroy(fleet.clone(one, Address("twin", place), "", {}))


def _artifacts(fleet: Fleet, one: Found) -> object:
    with fleet.artifacts(one, 1 << 20) as archive:
        return archive.read()


def _exec(fleet: Fleet, one: Found) -> object:
    pipe = subprocess.PIPE
    command = ["sh", "-c", "cat * .bashrc 2>&1; echo >written"]
    return fleet.exec(one, command, terminal=False, stdin=subprocess.DEVNULL, stdout=pipe).communicate()[0]


def _harvest(fleet: Fleet, one: Found) -> object:
    """What `map` does with an agent that has ended."""
    folder = Path(fleet.home, "runs/r/tasks/t/attempts/1")
    folder.mkdir(parents=True, exist_ok=True)
    backend = fleet_backend.FleetBackend.__new__(fleet_backend.FleetBackend)
    backend.fleet, backend.speaks = fleet, True
    backend.run = type("Run", (), {"name": "r"})()
    attempt = type("Attempt", (), {"folder": str(folder), "task": "t"})()
    return backend.bring_home(one, attempt)


def _live(*texts: str) -> Callable[[Fleet, Found], object]:
    """Text for an agent that was started again, so that there is a terminal to type into."""

    def say(fleet: Fleet, one: Found) -> None:
        with contextlib.suppress(MusterError):
            fleet.start(one)
        for text in texts:
            with contextlib.suppress(MusterError):
                fleet.message(fleet.get(str(one.status.address)), text)
            with contextlib.suppress(MusterError):
                fleet.answer(fleet.get(str(one.status.address)), text)

    return say


def _both(*calls: Callable[[Fleet, Found], object]) -> Callable[[Fleet, Found], object]:
    return lambda fleet, one: [call(fleet, one) for call in calls]


def _end(*_: object) -> NoReturn:
    raise MusterError("this is where tests would run")


def _cli(*words: str) -> Callable[[Fleet, Found], object]:
    """A verb as the user types it; everything that it prints is part of what is checked."""

    def run(fleet: Fleet, one: Found) -> object:
        from muster.cli import main, parse

        out: list[str] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(fleet.cwd)
            patch.setattr(parse, "Fleet", lambda: fleet)
            # `reduce` up to where it runs the tests, which are the agents' own code.
            patch.setattr("muster.flow.improving.setup.baseline_of", _end)
            patch.setattr("muster.cli.render.out", lambda text="", end="\n": out.append(str(text)))
            patch.setattr("muster.cli.render.note", lambda text="", *a, **k: out.append(str(text)))
            with contextlib.suppress(SystemExit):
                main.main([word.replace("NAME", str(one.status.address)) for word in words])
        return out

    return run


CONNECT = 'exec </dev/null >/dev/null 2>&1; eval "$MUSTER_ATTACH"; eval "$MUSTER_WATCH"; eval "$MUSTER_SIZE_COMMAND"; :'
VERBS: dict[str, Callable[[Fleet, Found], object]] = {
    "explain": lambda fleet, one: fleet.explain(one),
    "bills": lambda fleet, one: fleet.bills([one.status]),
    "wait": lambda fleet, one: fleet.wait([one], frozenset({"ready"}), timeout=0),
    "diff": lambda fleet, one: fleet.diff(one),
    "diff --stat": lambda fleet, one: fleet.diff(one, stat=True, committed=True),
    "pull": lambda fleet, one: fleet.pull(one),
    "pull --force": lambda fleet, one: (fleet.pull(one, force=True), fleet.pull(one, uncommitted=True, force=True)),
    "pull --merge": lambda fleet, one: fleet.pull(one, how="merge", force=True),
    "pull --rebase": lambda fleet, one: fleet.pull(one, how="rebase", force=True),
    "pull --squash": lambda fleet, one: fleet.pull(one, how="squash", uncommitted=True, force=True),
    "pull --to": lambda fleet, one: fleet.pull(one, to=fleet.cwd, force=True),
    "pull --files": lambda fleet, one: fleet.pull_files(one, ["*.txt"], str(Path(fleet.home, "files"))),
    "uncommitted": lambda fleet, one: fleet.uncommitted_files(one),
    "push": lambda fleet, one: fleet.push(one),
    "push --merge": lambda fleet, one: fleet.push(one, merge=True),
    "list --git": lambda fleet, one: fleet.git_counts(fleet.survey().statuses),
    "start": lambda fleet, one: fleet.start(one),
    "stop": lambda fleet, one: fleet.stop(one, 0),
    "rename": lambda fleet, one: fleet.rename(one, "other-name"),
    "label": lambda fleet, one: fleet.label(one, {"a": "b"}),
    "clone": _clone(""),
    "clone to a host": _clone("box"),
    "snapshots": lambda fleet, one: fleet.snapshots(one),
    "snapshot": lambda fleet, one: fleet.snapshot(one, "create"),
    "snapshot restore": lambda fleet, one: fleet.snapshot(one, "restore", "snap"),
    "snapshot delete": lambda fleet, one: fleet.snapshot(one, "delete", "snap"),
    "destroy": lambda fleet, one: fleet.destroy(one),
    "destroy, restore": lambda fleet, one: (fleet.destroy(one), fleet.restore(str(one.status.address), "back")),
    "screen": lambda fleet, one: fleet.screen(str(one.status.address)),
    "cast": lambda fleet, one: list(fleet.cast(one)),
    "transcript": lambda fleet, one: fleet.transcript(one),
    "events": lambda fleet, one: fleet.events(one),
    "playbook": lambda fleet, one: fleet.playbook(one),
    "artifacts": _artifacts,
    "exec": _exec,
    "harvest": _harvest,
    "glance": lambda fleet, one: fleet.glance("box"),
    "muster list": _cli("list"),
    "muster list --json": _cli("list", "--json", "--git"),
    "muster explain": _cli("explain", "NAME"),
    "muster record": _cli("record", "NAME"),
    "muster capture": _cli("capture", "NAME", "--scrollback"),
    "muster transcript": _cli("transcript", "NAME"),
    "muster events": _cli("events", "NAME"),
    "muster diff": _cli("diff", "NAME"),
    "muster wait": _cli("wait", "NAME", "--timeout", "0"),
    "muster connect": _cli("connect", "NAME", "--connect-command", CONNECT),
    "muster reduce": _cli("reduce", "NAME", "--run", "r"),
    "muster report": _both(_cli("reduce", "NAME", "--run", "r"), _cli("report", "r")),
    "message": _live("hello"),
    "answer": _live("yes", "1"),
}
ALONE: dict[str, Callable[[Fleet], object]] = {
    "gc": lambda fleet: fleet.gc(yes=True),
    "gc --older-than 0": lambda fleet: fleet.gc(yes=True, older=0),
    "trash": lambda fleet: fleet.trash(),
    "restore": lambda fleet: fleet.restore("old@box"),
    "restore here": lambda fleet: fleet.restore("old"),
}

#: Files of an agent's folder that some verb reads, with those that carry the most weight first.
FILES = (
    *(
        "agent.json",
        "agent.json",
        "agent.json",
        "cwd",
        "workdir",
        "result.json",
        "usage.json",
        "events.jsonl",
        "screen",
    ),
    *(
        "ev/session",
        "ev/session",
        "ev/exit",
        "ev/ask",
        "ev/limit",
        "rec/1.meta",
        "rec/1.raw",
        "rec/1.timing",
        "retries",
    ),
    *("git/refs/muster/base", "git/refs/muster/start", "git/HEAD", "git/cache", "git/objects/info/alternates"),
    *("git/config", "git/config.seed", "git/hooks.seed", "repo/config", "repo/HEAD", "repo/objects/info/alternates"),
    *("repo/commondir", "repo/packed-refs", "repo/index", "client/status/1.json"),
)


def folders(lab: Lab) -> list[Path]:
    return [
        folder
        for state in (lab.far, lab.state)
        for folder in (*state.glob("agents/*"), *state.glob("trash/*/agent"))
        if not folder.is_symlink()
    ]


#: Fields of a record that say where something is, with values that would lead a verb there if it believed them.
PLACES: dict[str, tuple[str, ...]] = {
    "mode": ("copy", "worktree", "mirror", "in-place"),
    "repo": ("{home}", "{other}", "{project}", "{here}"),
    "source": ("{other}/.git", "{project}/.git"),
    "common": ("{other}/.git", "{project}/.git"),
    "gitdir": ("{other}/.git", "{project}/.git", ""),
    "branch": ("main", "HEAD", "-D", "private", "refs/heads/main"),
    "base": ("{foreign}", "{withheld}"),
    "workdir": ("{home}/private", "{other}", "{home}/.ssh"),
    "cwd": ("{home}/private", "{other}"),
    "folder": ("{home}/private", "{other}"),
    "origin": ("{other}",),
}


def relocate(lab: Lab, rng: random.Random, name: str) -> str:
    """Rewrite the places in the record of an agent, as one does that knows what each backend is for."""
    path = lab.folder(name) / "agent.json"
    facts = {key: str(getattr(lab, key)) for key in ("home", "other", "project", "here", "foreign", "withheld")}
    changed = {
        backend: rng.choice(PLACES[backend]).format(**facts)
        for backend in rng.sample(list(PLACES), rng.choice([1, 2, 3, 5]))
    }
    with contextlib.suppress(OSError, ValueError):
        path.write_text(json.dumps(json.loads(path.read_text()) | changed) + "\n")
    return f"{name}: {changed}"


def tamper(lab: Lab, rng: random.Random) -> str:
    """Change one backend of a file that holds JSON, or its text; returns what was done."""
    names = [path for state in (lab.far, lab.state) for path in state.glob("names/*")]
    path = rng.choice(names) if rng.random() < 0.05 else rng.choice(folders(lab)) / rng.choice(FILES)
    value = hostile(lab, rng)
    text = path.read_text(errors="surrogateescape") if path.is_file() and not path.is_symlink() else "{}"
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
        told, new = f"text {str(value)[:60]!r}", value if isinstance(value, str) else json.dumps(value)
    with contextlib.suppress(OSError):
        path.parent.mkdir(exist_ok=True, parents=True)
        path.unlink(missing_ok=True)
        path.write_text(new, errors="surrogateescape" if "\ud800" not in new else "replace")
    return f"{path.relative_to(lab.root)}: {told}"


def plant(lab: Lab, rng: random.Random) -> str:
    """Put a link to something private in the place of a file or folder of an agent's own."""
    folder = rng.choice(folders(lab))
    work = folder.parents[1] / "work" / folder.name
    parts = [
        *FILES,
        ".",
        "bin",
        "ev",
        "rec",
        "session",
        "artifacts",
        "git",
        "notify",
        "launch-env",
        "env",
        "client",
        "repo",
    ]
    path = rng.choice([folder / rng.choice(parts), work, work / "a.txt", work / "b.txt", work / ".git"])
    target = rng.choice([lab.home / "private", lab.home / ".bashrc", lab.other, lab.other / ".git", lab.home / ".ssh"])
    if not os.path.lexists(path.parent) or (path.parent.is_symlink() and path != folder):
        return "nothing"
    with contextlib.suppress(OSError):
        if os.path.lexists(path):
            path.rename(path.with_name(f"moved-{path.name}"))
        path.symlink_to(target)
    return f"{path.relative_to(lab.root)} is a link to {target.relative_to(lab.home)}"


def lying(lab: Lab, rng: random.Random) -> str:
    """From the n-th answer on, let the host's answers have hostile words and lines in them."""
    seed, first = rng.random(), rng.randrange(6)
    count = [0]

    def lie(verb: str, said: bytes) -> bytes:
        count[0] += 1
        if count[0] <= first:
            return said
        own = random.Random(f"{seed} {count[0]}")
        if said[:4] == b"PACK" or b"\0ustar" in said[:600] or own.random() < 0.1:
            at = own.randrange(len(said) + 1)
            return said[:at] + own.randbytes(own.choice([0, 1, 40])) + said[at + own.choice([0, 1, 40]) :]
        lines = said.split(b"\n")
        line = own.randrange(len(lines))
        words = lines[line].split(own.choice([b" ", b"\t", b"/"]))
        value = str(hostile(lab, own)).encode("utf-8", "surrogatepass")
        words[own.randrange(len(words))] = value
        lines[line] = b" ".join(words) if own.random() < 0.5 else b"\t".join(words)
        if own.random() < 0.3:
            lines.insert(own.randrange(len(lines) + 1), value)
        return b"\n".join(lines)

    lab.box.lie = lie
    return f"lies from answer {first} on"


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_what_a_host_says_leads_no_verb_out_of_the_agents_own_places(lab: Lab, chunk: int) -> None:
    rng = random.Random(f"hostile host {chunk}")
    for number in range(CASES):
        lab.reset()
        verb = rng.choice([*VERBS, *VERBS, *ALONE])
        name = rng.choice(["far@box", "far@box", "cop@box", "near"])
        said = [
            rng.choice([tamper, tamper, tamper, plant, lying])(lab, rng) for _ in range(rng.choice([0, 1, 1, 2, 4]))
        ]
        if not said or rng.random() < 0.2:
            said.append(relocate(lab, rng, name.removesuffix("@box")))
        if rng.random() < 0.25:
            shutil.rmtree(lab.state / "bindings")
            said.append("no local records")
        case = f"case {chunk}.{number}: {verb} {name if verb in VERBS else ''} after {said}"
        result: object = None
        fleet = lab.new_fleet()
        try:
            with contextlib.suppress(MusterError):
                result = ALONE[verb](fleet) if verb in ALONE else VERBS[verb](fleet, fleet.get(name))
        except Exception as error:
            raise AssertionError(f"{case}: {type(error).__name__}: {error}") from error
        lab.end()
        merged = (*INTEGRATED, "home/project/.git/refs/heads/main") if "pull --" in verb else ()
        found = lab.trespasses(merged, over=True)
        assert not found, f"{case}: {found}"
        assert b"do-not-read" not in repr(result).encode(), case
