"""Every verb has --json: one document on stdout that fits its schema in docs/schemas, in success and in failure."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from muster.cli.main import VERBS, dashed

from .conftest import World, eventually
from .report.builder import Run

SCHEMAS = Path(__file__).parent.parent / "docs" / "schemas"
TALK = """
[[step]]
say = "Looking around."
[[step]]
run = "echo looked"
[[step]]
write = "found.txt"
text = "it was here\\n"
[[step]]
commit = "Found it"
[[step]]
ask = "Shall I go on?"
"""
ASKS = '[[step]]\npermission = "rm -rf build"\ntool = "Bash"\n'
Argv = tuple[str, ...]


def load(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((SCHEMAS / f"{name}.json").read_text(encoding="utf-8"))
    return found


REGISTRY = Registry().with_resources(
    [(schema["$id"], Resource.from_contents(schema)) for schema in (load(path.stem) for path in SCHEMAS.glob("*.json"))]
)


def fits(value: Any, verb: str, part: str = "") -> None:
    """`value` is what the schema of `verb` (or one part of it) says."""
    schema: dict[str, Any] = {"$ref": f"{load(dashed(verb))['$id']}{part}"}
    errors = list(Draft202012Validator(schema, registry=REGISTRY).iter_errors(value))
    assert not errors, f"muster {verb} --json: {json.dumps(value)[:2000]}\n" + "\n".join(
        f"{error.json_path}: {inner.message}" for error in errors for inner in (error, *(error.context or []))
    )


def one_document(stdout: str) -> Any:
    """The value of stdout when it is one JSON document and nothing else."""
    assert stdout.endswith("\n"), f"no document: {stdout!r}"
    return json.loads(stdout)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One world for all: `busy` runs, `talk` waits for an answer. What a test changes it makes itself."""
    world = World(tmp_path_factory.mktemp("json") / "w")
    world.activate()
    world.ok("create", "busy", "command", "--no-connect", "--", "sh", "-c", "echo up; sleep 1000")
    talk(world, "talk")
    yield world
    world.end()


def talk(world: World, name: str) -> str:
    """An agent that has committed and asks a question."""
    world.ok(
        "create",
        name,
        "replay",
        "--no-connect",
        "--",
        world.playbook(TALK.replace("found.txt", f"{name}.txt"), f"{name}.toml"),
    )
    world.wait_state(name, "waiting")
    return name


def sleeper(world: World, name: str) -> str:
    world.ok("create", name, "command", "--no-connect", "--", "sleep", "1000")
    return name


def _answer(world: World) -> list[Argv]:
    world.ok("create", "asks", "replay", "--no-connect", "--", world.playbook(ASKS, "asks.toml"))
    world.wait_state("asks", "waiting")
    return [("answer", talk(world, "asked"), "yes please"), ("answer", "asks", "yes")]


def _message(world: World) -> list[Argv]:
    world.ok("create", "ear", "replay", "--no-connect", "--", world.playbook("wait_for_message = true\n", "ear.toml"))
    return [("message", "busy", "ear", "-m", "hello")]


def _snapshot(world: World) -> list[Argv]:
    return [
        ("snapshot", "create", "busy", "s1"),
        ("snapshot", "list", "busy"),
        ("snapshot", "restore", "busy", "s1"),
        ("snapshot", "delete", "busy", "s1"),
    ]


def _pull(world: World) -> list[Argv]:
    copied = world.folder / "plain"
    copied.mkdir()
    (copied / "f").write_text("x\n")
    change = ("--", "sh", "-c", "echo y >> f")
    world.ok("create", "copied", "command", "--mode", "copy", "--from", str(copied), "--no-connect", *change)
    world.ok("create", "inside", "command", "--mode", "in-place", "--from", str(copied), "--no-connect", "--", "true")
    world.wait_state("copied", "done")
    return [
        ("pull", "talk"),
        ("pull", talk(world, "mergeable"), "--merge"),
        ("pull", "talk", "--files", "*.txt", "--to", str(world.folder / "got")),
        ("pull", "copied", "inside"),
    ]


def _restore(world: World) -> list[Argv]:
    world.ok("destroy", sleeper(world, "gone"))
    return [("restore", "--list"), ("restore", "gone")]


def _trust(world: World) -> list[Argv]:
    return [("trust", "--show"), ("trust",), ("trust", "--remove")]


def _hosts(world: World) -> list[Argv]:
    remember(world, "box")
    return [("hosts",), ("hosts", "forget", "box")]


def remember(world: World, name: str) -> None:
    """As if a host had been used that does not answer now."""
    folder = world.muster_home / "hosts"
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(json.dumps({"place": name, "provider": "ssh", "seen": 1.0}))
    (world.bin / "ssh").write_text("#!/bin/sh\necho no route >&2\nexit 255\n")
    (world.bin / "ssh").chmod(0o755)


def _gc(world: World) -> list[Argv]:
    world.ok("destroy", talk(world, "leaves-work"))
    world.git("branch", "muster/merged-long-ago")
    return [("gc",)]


def _config(world: World) -> list[Argv]:
    return [
        ("config", "set", "commands.list.state", '["ready"]', "--project"),
        ("config",),
        ("config", "get", "commands.list"),
        ("config", "path"),
    ]


def _tutorial(world: World) -> Path:
    """A tutorial with a heading, a block that a test cites, one that none cites, and a command that was not run."""
    folder = world.folder / "tutorial"
    run = folder / ".muster" / "e2e" / "tests" / "a"
    run.mkdir(parents=True, exist_ok=True)
    (folder / "tutorial.sh").write_text("# ==== Part ====\n\n# Say a.\necho a\necho b\n\n# Say c.\necho c\n\n# More\n")
    (folder / "test_a.py").write_text('def test_a(e2e):\n    """\n    # Say a.\n    echo a\n    echo b\n    """\n')
    (folder / "test_b.py").write_text('def test_b(e2e):\n    e2e.write_tutorial_block("# Say c.\\necho d")\n')
    (run / "test.json").write_text('{"nodeid": "test_a.py::test_a", "outcome": "passed"}')
    (run / "transcript.jsonl").write_text('{"t": 0, "kind": "command", "n": 1, "text": "echo a"}\n')
    return folder


def _tutorial_list(world: World) -> list[Argv]:
    path = str(_tutorial(world) / "tutorial.sh")
    return [("tutorial", "list", path), ("tutorial", "list", path, "--kind", "heading")]


def _tutorial_check(world: World) -> list[Argv]:
    folder = _tutorial(world)
    named = ("tutorial", "check", "--tutorial", str(folder / "tutorial.sh"), "--artifacts", str(folder / ".muster/e2e"))
    (folder / "one.sh").write_text("# Say a.\necho a\necho b\n")
    clean = ("tutorial", "check", "--tutorial", str(folder / "one.sh"), str(folder / "test_a.py"))
    return [(*named, str(folder)), clean]


def _author(world: World, name: str) -> Path:
    """A repository with a tutorial that has a heading and a block without a test."""
    folder = world.make_repo(world.folder / name)
    (folder / "tests").mkdir()
    (folder / "tutorial.sh").write_text("# Say a.\necho a\n\n# More\n")
    (folder / "full.sh").write_text("# ==== Nothing to fill and nothing to test ====\n")
    (folder / "tests" / "test_old.py").write_text(
        'def test_old(e2e):\n    e2e.write_tutorial_block("# Say a.\\necho b")\n'
    )
    world.git("add", "-A", cwd=folder)
    world.git("commit", "-q", "-m", "tutorial", cwd=folder)
    return folder


def _tutorial_fill(world: World) -> list[Argv]:
    folder = _author(world, "to-fill")
    text = "# Say it twice.\\necho a\\n\\n# More\\n\\n# Say b.\\necho b\\n\\n# Fail.\\nfalse\\n"
    play = world.playbook(f'[[step]]\nwrite = "tutorial.sh"\ntext = "{text}"\n[[step]]\nturn = "Done."\n', "fill.toml")
    fill = ("tutorial", "fill", str(folder / "tutorial.sh"))
    return [
        (*fill, "-a", "replay", "--name", "filler", "--accept", "passing", "--", play),
        (*fill, "--from", "filler"),
        ("tutorial", "fill", str(folder / "full.sh")),
    ]


def _tutorial_sync(world: World) -> list[Argv]:
    folder = _author(world, "to-sync")
    text = 'def test_a(e2e):\\n    # no unhappy path: none\\n    e2e.write_tutorial_block(\\"# Say a.\\\\necho a\\")\\n'
    steps = f'[[step]]\nwrite = "tests/test_old.py"\ntext = "{text}"\n[[step]]\ncommit = "Tests"\n'
    play = world.playbook(f'[[step]]\nturn = "Not yet."\n{steps}[[step]]\nturn = "Done."\n', "sync.toml")
    sync = ("tutorial", "sync", "--tutorial", str(folder / "tutorial.sh"), str(folder / "tests"))
    in_step = ("tutorial", "sync", "--tutorial", str(folder / "full.sh"), str(folder / "tests" / "test_none.py"))
    (folder / "tests" / "test_none.py").write_text("")
    return [in_step, (*sync, "-a", "replay", "--name", "syncer", "--", play)]


def _tutorial_skill(world: World) -> list[Argv]:
    skill = ("tutorial", "skill", "--dir", str(world.folder))
    return [(*skill, "--print"), skill, (*skill, "claude", "opencode")]


def _report(world: World) -> list[Argv]:
    run = Run(world.folder / "report-run")
    run.test("tests/test_a.py::test_it")
    world.ok("map", "--run", "reported", "-a", "command", "--items", items(world), "--", "true")
    page = str(world.folder / "page")
    return [("report", str(run.folder)), ("report", str(run.folder), "--out", page), ("report", "reported")]


#: For each verb, what to run (with --json added) in a situation where it has something to say.
def items(world: World) -> str:
    (world.folder / "items").write_text('one\n{"file": "a"}\n')
    return str(world.folder / "items")


def _runs(world: World) -> list[Argv]:
    world.ok("map", "--run", "seen", "-a", "command", "--items", items(world), "--", "true")
    world.ok("map", "--run", "open", "-a", "command", "--items", items(world), "--", "true")
    (world.muster_home / "runs/open/finished.json").unlink()
    shows: list[Argv] = [
        ("runs",),
        ("runs", "show", "seen"),
        ("runs", "show", "seen", "1"),
        ("runs", "escalations"),
        ("runs", "set", "open", "max_agents=3"),
        ("runs", "rm", "seen"),
    ]
    return shows


def _improve(world: World, folder: str = "in-improve") -> list[Argv]:
    """A suite of one test, which is good as it is."""
    repo, plays = world.folder / folder, world.folder / "plays"
    (repo / "test_it.py").write_text("def test_it():\n    pass\n")
    world.git("add", "-A", cwd=repo)
    world.git("commit", "-q", "-m", "a test", cwd=repo)
    plays.mkdir(exist_ok=True)
    (plays / "test_it.toml").write_text('[[step]]\nsubmit = "ok"\nsummary = "unchanged"\n[[step]]\nturn = "Done."\n')
    words = ("improve", "-a", "replay", "--playbooks", str(plays), "--run", folder)
    return [(*words, "--dry-run"), words]


def _reduce(world: World) -> list[Argv]:
    world.ok(*_improve(world, "in-reduce")[1], cwd=world.folder / "in-reduce", timeout=120)
    return [("reduce", "in-reduce", "--integrator", "none")]


SITUATIONS: dict[str, Callable[[World], list[Argv]]] = {
    "create": lambda world: [("create", "made", "command", "--label", "a=b", "--", "sleep", "1000")],
    "list": lambda world: [("list",), ("list", "--git"), ("list", "--state", "lost")],
    "message": _message,
    "answer": _answer,
    "wait": lambda world: [("wait", "talk", "busy", "--any")],
    "connect": lambda world: [("connect", "busy")],
    "capture": lambda world: [("capture", "busy"), ("capture", "busy", "--cast", str(world.folder / "busy.cast"))],
    "exec": lambda world: [("exec", "busy", "--", "echo", "hi")],
    "transcript": lambda world: [("transcript", "talk"), ("transcript", "talk", "--last", "1")],
    "events": lambda world: [("events", "talk")],
    "explain": lambda world: [("explain", "talk"), ("explain", "busy")],
    "pull": _pull,
    "push": lambda world: [("push", sleeper(world, "pushed"))],
    "diff": lambda world: [("diff", "talk"), ("diff", "busy", "--stat")],
    "snapshot": _snapshot,
    "stop": lambda world: [("stop", sleeper(world, "stopped"), "--grace", "0"), ("stop", "stopped")],
    "start": lambda world: [("start", "busy")],
    "clone": lambda world: [("clone", "talk", "twin", "--label", "a=b")],
    "rename": lambda world: [("rename", sleeper(world, "old"), "new")],
    "label": lambda world: [("label", "busy", "--set", "a=b"), ("label", "busy")],
    "destroy": lambda world: [("destroy", talk(world, "doomed"))],
    "restore": _restore,
    "gc": _gc,
    "record": lambda world: [("record", "talk"), ("record", "talk", "-o", str(world.folder / "talk-again.toml"))],
    "map": lambda world: [("map", "-a", "command", "--items", items(world), "--dry-run", "--", "echo", "{item}")],
    "improve": _improve,
    "reduce": _reduce,
    "runs": _runs,
    "tutorial list": _tutorial_list,
    "tutorial check": _tutorial_check,
    "tutorial fill": _tutorial_fill,
    "tutorial sync": _tutorial_sync,
    "tutorial skill": _tutorial_skill,
    "report": _report,
    "config": _config,
    "trust": _trust,
    "hosts": _hosts,
    "doctor": lambda world: [("doctor",)],
    "completion": lambda world: [("completion", shell) for shell in ("bash", "zsh", "fish")],
    "man": lambda world: [("man",), ("man", "list"), ("man", "--all", str(world.folder / "man"))],
}


def run_json(world: World, argv: Argv, **more: Any) -> tuple[int, Any]:
    cut = argv.index("--") if "--" in argv else len(argv)
    result = world.run(*argv[:cut], "--json", *argv[cut:], **more)
    assert "Traceback" not in result.stderr and "bug in muster" not in result.stderr, f"{argv}: {result!r}"
    # Of those that print events as they go the last line is what it came to.
    said = result.stdout.splitlines(keepends=True)[-1] if argv[0] in ("improve", "reduce") else result.stdout
    return result.code, one_document(said)


@pytest.mark.parametrize("path", sorted(SCHEMAS.glob("*.json")), ids=lambda path: path.stem)
def test_every_schema_is_one_and_belongs_to_a_verb_or_to_a_run(path: Path) -> None:
    Draft202012Validator.check_schema(load(path.stem))
    assert path.stem in {*map(dashed, VERBS), "common", "event", "result"}


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_prints_one_document_that_fits_its_schema(verb: str, fleet: World) -> None:
    assert (SCHEMAS / f"{dashed(verb)}.json").exists(), f"docs/schemas/{dashed(verb)}.json is missing"
    assert verb in SITUATIONS, f"say in SITUATIONS how to run muster {verb}"
    folder = fleet.make_repo(fleet.folder / f"in-{dashed(verb)}")
    if verb == "trust":
        (folder / ".muster").mkdir()
        (folder / ".muster" / "config.toml").write_text('[commands.create]\nconnect_command = "true"\n')
    for argv in SITUATIONS[verb](fleet):
        code, document = run_json(fleet, argv, cwd=folder if verb in ("trust", "config", "improve") else None)
        found = verb == "tutorial check" and not document["ok"]
        assert code == (2 if verb == "connect" else 1 if found else 0), f"{argv}: {document}"
        fits(document, verb)
        assert ("error" in document) == (verb == "connect")


@pytest.mark.parametrize("verb", VERBS)
def test_an_error_is_a_document_too(verb: str, fleet: World) -> None:
    code, document = run_json(fleet, (*verb.split(), "--no-such-option"))
    fits(document, verb)
    assert code == document["error"]["code"] == 2
    assert document["error"]["hint"].endswith(f"muster {verb} --help")


@pytest.mark.parametrize(
    ("code", "argv"),
    [
        (1, ("transcript", "busy")),
        (3, ("explain", "nobody")),
        (3, ("diff", "nobody")),
        (3, ("snapshot", "restore", "busy", "nothing")),
        (3, ("restore", "nobody")),
        (3, ("man", "frobnicate")),
        (3, ("config", "get", "commands.create.nothing")),
        (4, ("wait", "busy", "--timeout", "0.2")),
        (5, ("create", "busy", "command", "--", "true")),
        (5, ("create", "--mode", "copy", "--from", "..", "--", "true")),
        (6, ("explain", "x@silent")),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else str(value),
)
def test_failures_are_told_with_their_code(code: int, argv: Argv, fleet: World) -> None:
    if argv[1] == "x@silent":
        remember(fleet, "unused")
        fleet.ok("hosts", "forget", "unused")
    if argv[:2] == ("create", "--mode"):
        argv = ("create", "holds-itself", "command", *argv[1:])
    exit_code, document = run_json(fleet, argv)
    fits(document, argv[0])
    assert (exit_code, document["error"]["code"]) == (code, code)


@pytest.mark.parametrize("verb", ["message", "pull", "push", "stop", "start", "label", "destroy"])
def test_over_many_agents_each_name_has_its_result(verb: str, fleet: World) -> None:
    name = sleeper(fleet, f"many-{verb}")
    more = ("-m", "hi") if verb == "message" else ()
    code, document = run_json(fleet, (verb, "nobody", name, *more))
    fits(document, verb)
    assert code == 3
    assert [(row["name"], row["ok"]) for row in document["results"]] == [(None, False), (name, True)]


def test_nobody_on_stdin_is_an_empty_document(fleet: World) -> None:
    code, document = run_json(fleet, ("stop", "-"), input=b"")
    fits(document, "stop")
    assert (code, document) == (0, {"results": []})


def test_a_host_that_does_not_answer_is_a_row(fleet: World) -> None:
    remember(fleet, "silent-box")
    try:
        for verb, key in (("list", "hosts"), ("hosts", "hosts")):
            code, document = run_json(fleet, (verb,))
            fits(document, verb)
            assert code == 0
            assert [row["reachable"] for row in document[key] if row["name"] == "silent-box"] == [False]
        code, document = run_json(fleet, ("doctor",))
        fits(document, "doctor")
        assert code == 1
    finally:
        fleet.ok("hosts", "forget", "silent-box")


class Stream:
    """A muster that goes on, and its lines."""

    def __init__(self, world: World, *argv: str) -> None:
        self.process = subprocess.Popen(
            [str(world.bin / "muster"), *argv],
            cwd=world.repo,
            env=world.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def until(self, true: Callable[[dict[str, Any]], bool]) -> list[dict[str, Any]]:
        """The lines up to the first one for which it is true."""
        assert self.process.stdout
        lines = []
        for raw in self.process.stdout:
            lines.append(json.loads(raw))
            if true(lines[-1]):
                return lines
        raise AssertionError(f"it ended: {lines}")

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.communicate()


def test_list_watch_prints_a_line_for_each_change(fleet: World) -> None:
    with Stream(fleet, "list", "--watch", "--json") as stream:
        lines = stream.until(lambda line: line["address"] == "busy")
        sleeper(fleet, "watched")
        lines += stream.until(lambda line: (line["address"], line["state"]) == ("watched", "working"))
        fleet.ok("stop", "watched", "--grace", "0")
        lines += stream.until(lambda line: (line["address"], line["state"]) == ("watched", "stopped"))
        fleet.ok("destroy", "watched")
        lines += stream.until(lambda line: (line["address"], line["state"]) == ("watched", None))
    for line in lines:
        fits(line, "list", "#/$defs/line")


@pytest.mark.parametrize("verb", ["events", "transcript"])
def test_follow_prints_what_is_there_and_what_comes(verb: str, fleet: World) -> None:
    name = talk(fleet, f"follow-{verb}")
    key, first, then = ("kind", "ask", "turn-end") if verb == "events" else ("role", "assistant", "user")
    with Stream(fleet, verb, name, "--follow", "--json") as stream:
        lines = stream.until(lambda line: line[key] == first)
        fleet.ok("answer", name, "yes")
        lines += stream.until(lambda line: line[key] == then)
        fleet.ok("destroy", name)
        assert stream.process.stdout
        lines += [json.loads(raw) for raw in stream.process.stdout]
        assert stream.process.wait() == 0
    for line in lines:
        fits(line, verb, "#/$defs/line")


def test_what_is_asked_for_by_default_can_be_read_back(fleet: World) -> None:
    """A smoke test of meaning, not only of form: the documents agree with each other."""
    name = talk(fleet, "meaning")
    agent = {row["name"]: row for row in run_json(fleet, ("list", "--git"))[1]["agents"]}[name]
    assert (agent["ahead"], agent["dirty"], agent["state"], agent["reason"]) == (1, 0, "waiting", "question")
    told = run_json(fleet, ("explain", name))[1]
    assert (told["state"], told["reason"]) == (agent["state"], agent["reason"])
    pulled = run_json(fleet, ("pull", name))[1]["results"][0]
    assert (pulled["branch"], pulled["commits"]) == (agent["branch"], agent["ahead"])
    assert run_json(fleet, ("diff", name))[1]["files"] == ["meaning.txt"]
    assert run_json(fleet, ("exec", name, "--", "git", "rev-parse", "HEAD"))[1]["stdout"].strip() == pulled["tip"]


def test_a_verb_says_nothing_else_on_stdout_when_it_connects_by_configuration(fleet: World) -> None:
    env = {"MUSTER_CREATE_CONNECT_COMMAND": "echo noise"}
    code, document = run_json(fleet, ("create", "no-noise", "command", "--", "true"), env=env)
    fits(document, "create")
    assert code == 0


# What is wrong today. Each is strict: when it is mended, the mark has to go.


def test_wait_for_nobody_is_an_error_document(fleet: World) -> None:
    code, document = run_json(fleet, ("wait", "nobody"))
    fits(document, "wait")
    assert code == 3


def test_create_of_many_is_one_document_even_when_one_fails(fleet: World) -> None:
    sleeper(fleet, "half-2")
    code, document = run_json(fleet, ("create", "half", "command", "--count", "3", "--", "sleep", "1000"))
    assert code == 5
    assert len(document["agents"]) == 2


def test_exec_gives_the_same_exit_code_with_json(fleet: World) -> None:
    argv = ("exec", "busy", "--", "sh", "-c", "kill -9 $$")
    plain = fleet.run(*argv).code
    assert plain == 137
    code, document = run_json(fleet, argv)
    assert (code, document["exit_code"]) == (plain, plain)


@pytest.mark.parametrize("argv", [("record", "talk", "-o"), ("capture", "talk", "--cast"), ("man", "--all")])
def test_a_file_that_cannot_be_written_is_an_error_document(argv: Argv, fleet: World) -> None:
    code, document = run_json(fleet, (*argv, "/proc/no/such/folder"))
    fits(document, argv[0])
    assert code == 1


def test_doctor_has_the_same_keys_in_every_row(fleet: World) -> None:
    remember(fleet, "silent-too")
    try:
        parts = run_json(fleet, ("doctor",))[1]["parts"]
        assert len({tuple(sorted(part)) for part in parts}) == 1
    finally:
        fleet.ok("hosts", "forget", "silent-too")


def test_the_screen_of_an_agent_is_text_in_the_document(fleet: World) -> None:
    eventually(lambda: "up" in run_json(fleet, ("capture", "busy"))[1]["screen"])
