"""What a user meets when something is off: for each verb the exit code, what happened, and what to type next."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from muster.cli.main import VERBS

from ..conftest import World

TALK = '[[step]]\nwrite = "made.txt"\ntext = "x\\n"\n[[step]]\ncommit = "Made it"\n[[step]]\nask = "Go on?"\n'
ASKS = '[[step]]\npermission = "rm -rf build"\ntool = "Bash"\n'


class Row(NamedTuple):
    code: int
    call: str
    """The words as a user types them; `{folder}` is a folder of the test."""
    says: str
    """What happened, as the message tells it."""
    hint: str
    """What to do next, on the lines under it."""
    input: bytes | None = None
    """Why this row fails today."""


#: `busy` runs, `ended` is done, `talk` asks a question, `asks` shows a permission dialog, `gone` was destroyed; the run `open` is not
#: finished.
UNHAPPY: dict[str, list[Row]] = {
    "create": [
        Row(5, "create busy command -- true", "there is an agent busy already", "muster destroy busy"),
        Row(2, "create x command", "needs a command", "muster create NAME command -- make test"),
        Row(2, "create x frobnicate", "no agent type 'frobnicate'", "known types: "),
        Row(2, "create bad/name command -- true", "'bad/name' is not a name", "use letters, digits, - and _"),
        Row(2, "create x command --mode worktre -- true", "invalid choice: 'worktre'", "muster create --help"),
        Row(2, "create x command --template nothing -- true", "no template 'nothing'", "[templates.NAME] makes one"),
        Row(2, "create x command --env NOT_SET_HERE -- true", "no such variable", "--env NOT_SET_HERE=VALUE"),
        Row(
            2,
            "create x command --timeout soon -- true",
            "'soon' is not a time",
            "90s",
        ),
        Row(2, "create x command --memory much -- true", "'much' is not a size", "512m"),
        Row(2, "create x command --label =v -- true", "'=v' is not a label", "KEY=VALUE"),
        Row(2, "create x command -m a --message-file b -- true", "both given", "use one of them"),
        Row(2, "create x command --message-file {folder}/nothing -- true", "cannot read", "muster create --help"),
        Row(3, "create x command --branch nothing -- true", "no branch or commit 'nothing'", "git branch --list"),
        Row(3, "create x command --from nothing -- true", "no such folder and no such agent", "muster list"),
        Row(3, "create x replay -- {folder}/nothing.toml", "no playbook", ""),
        Row(6, "create x@silent command -- true", "host silent cannot be reached", "ssh silent true"),
        Row(2, "create x@.frob command -- true", "there is no provider 'frob'", "ssh"),
    ],
    "list": [
        Row(2, "list --state frobbing", "invalid choice: 'frobbing'", "muster list --help"),
        Row(2, "list --format {{nothing}}", "--format: 'nothing' is not a key", "known: name"),
    ],
    "message": [
        Row(7, "message asks -m hello", "waits for a permission", "muster answer asks yes"),
        Row(1, "message ended -m hello", "ended is done", "muster start ended"),
        Row(2, "message busy", "one of --message and --message-file", "muster message NAME -m"),
        Row(2, "message busy -m ''", "the message is empty", "muster message --help"),
        Row(3, "message 'no-*' -m hello", "no agent matches 'no-*'", "busy"),
        Row(2, "message -m hello", "no agent was named", "--all"),
    ],
    "answer": [
        Row(7, "answer asks maybe", "waits for a permission", "muster answer asks yes"),
        Row(1, "answer busy yes", "busy is working, it asks nothing", "muster message busy"),
        Row(2, "answer", "required: NAME", "muster answer --help"),
    ],
    "wait": [
        Row(4, "wait busy --timeout 0.3", "timed out waiting for busy (still working)", "muster list"),
        Row(1, "wait ended --until ready", "ended is done, it will not be ready", "muster explain ended"),
        Row(3, "wait nobody", "there is no agent nobody", "busy"),
    ],
    "connect": [
        Row(2, "connect busy", "connect needs a terminal", "muster capture busy"),
        Row(3, "connect nobody", "there is no agent nobody", "busy"),
    ],
    "capture": [
        Row(3, "capture nobody", "there is no agent nobody", "busy"),
        Row(2, "capture busy --idle long", "invalid float value: 'long'", "muster capture --help"),
    ],
    "exec": [
        Row(2, "exec busy", "there is no command", "muster exec busy -- COMMAND"),
        Row(3, "exec nobody -- ls", "there is no agent nobody", "busy"),
    ],
    "transcript": [
        Row(1, "transcript busy", "keeps no transcript", "muster capture busy --scrollback"),
        Row(2, "transcript talk --last few", "'few' is not a number", "such as 5"),
        Row(2, "transcript talk --last -1", "'-1' is not a number", "such as 5"),
    ],
    "events": [Row(3, "events nobody", "there is no agent nobody", "busy")],
    "explain": [
        Row(3, "explain nobody", "there is no agent nobody", "busy"),
        Row(6, "explain x@silent", "host silent cannot be reached", "ssh silent true"),
        Row(2, "explain '*'", "matches", "busy"),
    ],
    "pull": [
        Row(3, "pull busy --files 'nothing*'", "no file that matches nothing*", "muster exec busy -- ls"),
        Row(2, "pull busy --files x --merge", "nothing to merge", "leave --merge"),
        Row(2, "pull busy --merge --squash", "not allowed with", "muster pull --help"),
        Row(2, "pull busy --files ../x", "patterns are inside the work dir", ""),
        Row(3, "pull busy --to {folder}/nowhere", "there is no repository at", "--to REPOSITORY"),
    ],
    "push": [Row(3, "push busy --ref nothing", "no branch or commit 'nothing'", "git branch --list")],
    "diff": [Row(3, "diff nobody", "there is no agent nobody", "busy")],
    "snapshot": [
        Row(3, "snapshot restore busy nothing", "has no snapshot 'nothing'", "muster snapshot list busy"),
        Row(2, "snapshot restore busy", "which snapshot to restore?", "muster snapshot list busy"),
        Row(2, "snapshot create busy a/b", "'a/b' is not a name", "use letters"),
        Row(2, "snapshot drop busy x", "invalid choice: 'drop'", "muster snapshot --help"),
    ],
    "stop": [
        Row(3, "stop nobody", "there is no agent nobody", "busy"),
        Row(2, "stop", "no agent was named", "globs"),
        Row(3, "stop -", "there is no agent nobody", "busy", input=b"nobody\n"),
    ],
    "start": [
        Row(3, "start nobody", "there is no agent nobody", "busy"),
        Row(2, "start -l =x", "'=x' is not a label", "KEY=VALUE"),
    ],
    "clone": [
        Row(5, "clone talk busy", "there is an agent busy already", "use another name"),
        Row(3, "clone nobody x", "there is no agent nobody", "busy"),
    ],
    "rename": [
        Row(5, "rename talk busy", "busy", "another name"),
        Row(2, "rename talk 'a b'", "'a b' is not a name", "use letters"),
    ],
    "label": [
        Row(
            2, "label ended run=42", "'run=42' is a label, not the name of an agent", "muster label ended --set run=42"
        ),
        Row(2, "label busy --set a=b --remove a", "set and removed", "muster label --help"),
        Row(2, "label busy --set =b", "'=b' is not a label", "KEY=VALUE"),
    ],
    "destroy": [
        Row(3, "destroy nobody", "there is no agent nobody", "busy"),
        Row(2, "destroy", "no agent was named", "--all"),
    ],
    "restore": [
        Row(3, "restore nobody", "no nobody in the trash", "muster restore --list"),
        Row(2, "restore", "restore what?", "muster restore --list"),
        Row(5, "restore gone --as busy", "there is an agent busy now", "--as ANOTHER-NAME"),
    ],
    "gc": [Row(2, "gc --older last-week", "'last-week' is not a time", "90s")],
    "record": [
        Row(5, "record talk -o {folder}/there.toml", "there.toml exists", "--force overwrites it"),
        Row(3, "record nobody", "there is no agent nobody", "busy"),
    ],
    "report": [
        Row(3, "report {folder}/nothing", "there is no folder", "--e2e-artifacts"),
        Row(3, "report {folder}", "is not the artifact folder of a test run", "pytest --e2e-artifacts"),
        Row(2, "report --oppen", "takes no option '--oppen'", "did you mean '--open'?"),
    ],
    "map": [
        Row(2, "map -a command -- true", "there are no items", "one a line on stdin"),
        Row(2, "map -a command --items /dev/null --budget much -- true", "'much' is not an amount", "such as 2.50"),
        Row(2, "map -a command --items {folder}/items", "type command needs a command", "create NAME command"),
        Row(
            2, "map -a command --items {folder}/items --max-agents 0 -- true", "with no agent at all", "--max-agents 1"
        ),
        Row(2, "map -a command box --items /dev/null -- true", "'box' is not a host", "write @HOST"),
        Row(2, "map -a command --items no-such-file -- true", "cannot read no-such-file", "muster map --help"),
        Row(2, "map -a command -- true", "line 1 has a NUL character", "tr '\\0' '\\n'", b"a\0b\0"),
        Row(2, "map -a command -- true", "stdin is not UTF-8 text", "one item a line", b"\xff\n"),
        Row(2, "map -a command --run a/b -- true", "'a/b' is not a name for a run", "use letters, digits", b"x\n"),
        Row(2, "map -a command --dry-run --run ../x -- true", "'../x' is not a name", "use letters, digits", b"x\n"),
    ],
    "improve": [
        Row(2, "improve -a replay --playbooks nowhere", "there is no folder nowhere", "one TOML file for each test"),
        Row(2, "improve -a command", "type command takes no task", "-a claude"),
        Row(2, "improve -a replay --integrator command", "type command takes no task", "--integrator claude"),
        Row(2, "improve -a replay --integrator claude", "claude asks a person for permissions", "--permissions bypass"),
        Row(2, "improve -a replay", "type replay needs one playbook", "--playbooks DIR"),
        Row(2, "improve -a replay --rank luck", "invalid choice: 'luck'", "muster improve --help"),
    ],
    "reduce": [
        Row(3, "reduce nothing", "there is no agent, no branch and no run nothing", "muster runs"),
        Row(2, "reduce", "required: RUN|AGENT|BRANCH", "muster reduce --help"),
        Row(2, "reduce x --integrator nonsense", "there is no agent type 'nonsense'", "known types"),
    ],
    "runs": [
        Row(3, "runs show nothing", "there is no run 'nothing'", "runs: "),
        Row(2, "runs frobnicate x", "no action 'frobnicate'", "use one of: show"),
        Row(2, "runs stop", "which run to stop?", "muster runs"),
        Row(2, "runs set open max_agents=1.5", "'max_agents=1.5' is no whole number", "max_agents=4"),
        Row(2, "runs set open tokens=0.5", "'tokens=0.5' is no whole number", "tokens=100000"),
    ],
    "tutorial list": [
        Row(3, "tutorial list", "there is no tutorial.sh or docs/tutorial.sh here", "--tutorial FILE"),
        Row(3, "tutorial list {folder}/nothing.sh", "there is no tutorial", "name the script"),
        Row(2, "tutorial list {folder}", "is a folder", "name the script in it"),
        Row(2, "tutorial list {folder}/latin1.sh", "is not UTF-8 text", "invalid byte is in line 2"),
        Row(2, "tutorial list --kind headings", "invalid choice: 'headings'", "did you mean 'heading'?"),
        Row(2, "tutorial list a b", "takes no argument 'b'", "muster tutorial list --help"),
    ],
    "tutorial check": [
        Row(3, "tutorial check", "there is no tutorial.sh or docs/tutorial.sh here", "--tutorial FILE"),
        Row(3, "tutorial check --tutorial {folder}/nothing.sh", "there is no tutorial", "--tutorial FILE"),
        Row(2, "tutorial check --tutorial {folder}/latin1.sh", "is not UTF-8 text", "iconv"),
        Row(
            3,
            "tutorial check --tutorial {folder}/small.sh nothing",
            "there are no tests at nothing",
            "files or folders",
        ),
        Row(
            3, "tutorial check --tutorial {folder}/small.sh --artifacts no", "there is no folder no", "--e2e-artifacts"
        ),
        Row(2, "tutorial check --strickt", "takes no option '--strickt'", "did you mean '--strict'?"),
    ],
    "tutorial fill": [
        Row(3, "tutorial fill", "there is no tutorial.sh or docs/tutorial.sh here", "muster tutorial list FILE"),
        Row(2, "tutorial fill {folder}/small.sh", "small.sh is not in a git repository", "git init"),
        Row(2, "tutorial fill --timeout soon", "'soon' is not a time", "90s"),
        Row(2, "tutorial fill --from busy --name x", "--from creates none", "leave out --from or the others"),
    ],
    "tutorial sync": [
        Row(3, "tutorial sync", "there is no tutorial.sh or docs/tutorial.sh here", "--tutorial FILE"),
        Row(2, "tutorial sync --tutorial {folder}/small.sh", "small.sh is not in a git repository", "git init"),
        Row(2, "tutorial sync --rounds 0", "--rounds must be at least 1", "muster tutorial sync --help"),
        Row(2, "tutorial sync --rounds many", "invalid int value: 'many'", "muster tutorial sync --help"),
    ],
    "tutorial skill": [
        Row(2, "tutorial skill claud", "no client 'claud' is known", "'claude'"),
        Row(3, "tutorial skill --dir {folder}/nowhere", "there is no folder", "--dir DIR"),
    ],
    "config": [
        Row(3, "config get commands.create.nothing", "is not set", "muster config"),
        Row(2, "config set comands.create.mode copy", "no section [comands]", "'commands'"),
        Row(2, "config set commands.create.mode", "needs a key and a value", "muster config set"),
    ],
    "trust": [Row(3, "trust", "has no .muster/config.toml", "nothing to trust")],
    "hosts": [
        Row(3, "hosts forget nowhere", "no host nowhere is remembered", "muster hosts"),
        Row(2, "hosts forget", "which host?", "muster hosts forget HOST"),
    ],
    "doctor": [Row(1, "doctor", "", "ssh silent true")],
    "completion": [
        Row(2, "completion tcsh", "invalid choice: 'tcsh'", "muster completion --help"),
        Row(2, "completion", "required: shell", "muster completion --help"),
    ],
    "man": [Row(3, "man frobnicate", "no verb 'frobnicate'", "muster --help")],
}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    world = World(tmp_path_factory.mktemp("unhappy") / "w")
    (world.bin / "ssh").write_text("#!/bin/sh\necho no route >&2\nexit 255\n")
    (world.bin / "ssh").chmod(0o755)
    (world.folder / "there.toml").touch()
    (world.folder / "small.sh").write_text("# Say a.\necho a\n")
    (world.folder / "items").write_text("one\n")
    (world.folder / "latin1.sh").write_bytes(b"# Say it.\necho gr\xfc\xdfe\n")
    world.ok("create", "busy", "command", "--no-connect", "--", "sleep", "1000")
    for name in ("ended", "gone"):
        world.ok("create", name, "command", "--no-connect", "--", "true")
        world.wait_state(name, "done")
    world.ok("destroy", "gone")
    world.ok("map", "-a", "command", "--run", "open", "--items", str(world.folder / "items"), "--", "true")
    (world.muster_home / "runs/open/finished.json").unlink()
    world.ok("create", "talk", "replay", "--no-connect", "--", world.playbook(TALK, "talk.toml"))
    world.ok("create", "asks", "replay", "--no-connect", "--", world.playbook(ASKS, "asks.toml"))
    world.wait_state("talk", "waiting")
    world.wait_state("asks", "waiting")
    yield world
    world.end()


def rows() -> list[object]:
    return [pytest.param(row, id=row.call) for table in UNHAPPY.values() for row in table]


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_an_unhappy_path(verb: str) -> None:
    assert UNHAPPY.get(verb), f"add a row for muster {verb} to UNHAPPY"
    assert all(row.call.split()[: len(verb.split())] == verb.split() for row in UNHAPPY[verb])


@pytest.mark.parametrize("row", rows())
def test_the_user_is_told_what_happened_and_what_to_do(row: Row, fleet: World) -> None:
    import shlex

    if row.call == "doctor":
        folder = fleet.muster_home / "hosts"
        folder.mkdir(exist_ok=True)
        (folder / "silent").write_text(json.dumps({"place": "silent", "provider": "ssh", "seen": 1.0}))
    try:
        words = shlex.split(row.call.format(folder=fleet.folder))
        result = fleet.fails(row.code, *words, input=row.input)
    finally:
        if row.call == "doctor":
            fleet.ok("hosts", "forget", "silent")
    if row.call == "doctor":
        # Its findings are its answer, and the fix stands beside each.
        assert "no route" in result.stdout and row.hint in result.stdout
        return
    assert result.stdout == ""
    message, _, hint = result.stderr.partition("\n")
    assert message.startswith("muster: ") and row.says in message, result.stderr
    assert hint.startswith("  ") and hint.strip(), f"no hint: {result.stderr}"
    assert row.hint in hint, result.stderr


def test_a_failed_create_leaves_nothing_behind(fleet: World) -> None:
    before = sorted(path.name for path in (fleet.muster_home / "work").iterdir())
    branches = fleet.git("branch", "--list")
    fleet.fails(3, "create", "never", "replay", "--", "/nothing.toml")
    fleet.fails(2, "create", "never", "command")
    assert "never" not in fleet.agents()
    assert sorted(path.name for path in (fleet.muster_home / "work").iterdir()) == before
    assert fleet.git("branch", "--list") == branches
    fleet.ok("create", "never", "command", "--no-connect", "--", "true")


def test_no_verb_and_an_unknown_verb(fleet: World) -> None:
    assert fleet.ok().stdout.startswith("Usage")
    told = fleet.fails(2, "lst").stderr
    assert "there is no verb 'lst'" in told and "did you mean 'list'?" in told
    assert fleet.fails(2, "../bin/muster").stdout == ""
    told = fleet.fails(2, "tutoral").stderr
    assert "did you mean 'tutorial'?" in told


@pytest.mark.parametrize("more", [(), ("--help",), ("--json",)], ids=" ".join)
def test_an_unknown_action_is_a_usage_error_that_names_the_nearest(fleet: World, more: tuple[str, ...]) -> None:
    result = fleet.fails(2, "tutorial", "chekc", *more)
    assert "muster tutorial has no action 'chekc'" in result.stderr and "did you mean 'check'?" in result.stderr
    assert "muster tutorial --help" in result.stderr
    assert not result.stdout or result.json["error"]["code"] == 2
    assert "did you mean 'check'?" in fleet.fails(2, "help", "tutorial", "chekc").stderr
    assert "needs an action before --strict" in fleet.fails(2, "tutorial", "--strict", "check").stderr


def test_over_many_agents_the_worst_code_counts_and_the_rest_is_done(fleet: World) -> None:
    fleet.ok("create", "fine", "command", "--no-connect", "--", "sleep", "1000")
    result = fleet.fails(6, "stop", "nobody", "x@silent", "fine", "--grace", "0")
    assert "there is no agent nobody" in result.stderr
    assert "host silent cannot be reached" in result.stderr
    assert "stopped fine" in result.stderr
    assert fleet.state("fine") == "stopped"


@pytest.mark.parametrize("call", ["events busy --follow", "transcript talk --follow", "list --watch"])
def test_what_is_followed_comes_through_a_pipe_at_once(call: str, fleet: World) -> None:
    import select
    import subprocess

    argv = [str(fleet.bin / "muster"), *call.split()]
    process = subprocess.Popen(argv, cwd=fleet.repo, env=fleet.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert process.stdout
        assert select.select([process.stdout], [], [], 4)[0], "nothing came"
    finally:
        process.kill()
        process.communicate()


def test_a_format_that_cannot_be_filled_is_a_usage_error(fleet: World) -> None:
    fleet.fails(2, "list", "--format", "{name.x}")


def test_a_recording_never_runs_backwards(fleet: World) -> None:
    lines = fleet.run("capture", "talk", "--cast", "-", "--idle", "-3").stdout.splitlines()[1:]
    times = [json.loads(line)[0] for line in lines]
    assert times == sorted(times)


@pytest.mark.parametrize("verb", ["diff", "explain", "stop", "wait", "connect"])
def test_a_misspelt_agent_gets_the_nearest_names(fleet: World, verb: str) -> None:
    fleet.ok("create", "release-notes", "command", "--no-connect", "--", "sleep", "1000")
    told = fleet.fails(3, verb, "relaese-notes").stderr
    assert "there is no agent relaese-notes" in told
    assert "did you mean release-notes?" in told
    fleet.ok("destroy", "release-notes")


def test_a_misspelt_run_or_action_gets_the_nearest(fleet: World) -> None:
    folder = fleet.muster_home / "runs" / "speed-up-tests"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text('{"version": 1, "name": "speed-up-tests"}')
    assert "did you mean speed-up-tests?" in fleet.fails(3, "runs", "show", "speedup-tests").stderr
    assert "did you mean 'show'?" in fleet.fails(2, "runs", "shwo", "speed-up-tests").stderr
    assert "did you mean 'runs rm'?" in fleet.fails(2, "runs", "delete", "speed-up-tests").stderr
