"""sh/agent/submit.sh: what an agent says of its task becomes one line of JSON, whatever is in it, in every shell."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from muster import bindings, tmux
from muster.flow.run import artifacts, results

from .conftest import SRC, World

SUBMIT = SRC / "muster" / "sh" / "agent" / "submit.sh"
BUSYBOX = shutil.which("busybox")
#: Every shell that is here; `sh` is one of them.
SHELLS = {
    name: argv
    for name, argv in {
        "dash": ["dash"],
        "bash": ["bash", "--posix"],
        "busybox": ["busybox", "sh"],
        "sh": ["sh"],
    }.items()
    if shutil.which(argv[0])
}
if os.path.basename(os.path.realpath(shutil.which("sh") or "")) in SHELLS:
    del SHELLS["sh"]
NASTY = "a \"quoted\" \\ 'line'\nnext\ttab\r $(touch pwned) `touch pwned` ${HOME} %s %n \x1b[31m\x01\x7f ü漢😀\u2028 \\u0041 </script>"


class Agent:
    """An agent's folder and work dir, and a shell in it."""

    def __init__(self, folder: Path, shell: list[str]) -> None:
        self.dir, self.work = folder / "agent", folder / "the work"
        for made in (self.dir, self.work):
            made.mkdir()
        (self.dir / "workdir").write_text(str(self.work))
        (self.dir / "cwd").write_text(str(self.work / "sub"))
        self.result = self.dir / "result.json"
        self.shell = shell
        self.env = {**os.environ, "MUSTER_AGENT_DIR": str(self.dir), "MUSTER_RESULT": str(self.result)}
        if shell[0] == "busybox":  # its own od, awk, find …, which differ more than the shells do
            (folder / "bin").mkdir()
            for name in "awk basename cat date dirname find grep head mkdir mv od readlink rm sed tr wc".split():
                (folder / "bin" / name).symlink_to(BUSYBOX or "")
            self.env["PATH"] = f"{folder / 'bin'}:{os.environ['PATH']}"

    def run(
        self, *words: str | bytes, stdin: bytes = b"", cwd: Path | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        done = subprocess.run(
            [*self.shell, str(SUBMIT), *words],
            input=stdin,
            env=self.env,
            cwd=cwd or self.work,
            capture_output=True,
            check=False,
            timeout=60,
        )
        assert (
            sorted(path.name for path in self.dir.iterdir() if path.name.startswith(("submit", "result.json."))) == []
        )
        assert not (self.work / "pwned").exists()
        return done

    def ok(self, *words: str | bytes, stdin: bytes = b"", cwd: Path | None = None) -> results.Result:
        """What is read from the result of a call that is right."""
        done = self.run(*words, stdin=stdin, cwd=cwd)
        assert (done.returncode, done.stderr) == (0, b""), done
        assert done.stdout.startswith(b"submitted: ")
        return self.read()

    def read(self) -> results.Result:
        raw = self.result.read_bytes()
        assert raw.isascii() and raw.count(b"\n") == 1 and raw.endswith(b"\n")
        assert list(json.loads(raw)) == ["version", "outcome", "summary", "reason", "escalate", "artifacts", "t"]
        found = results.read(raw)
        assert isinstance(found, results.Result), found
        return found

    def wrong(self, *words: str | bytes, stdin: bytes = b"", cwd: Path | None = None) -> str:
        """What is said about a call that is wrong; nothing is submitted."""
        before = self.result.read_bytes() if self.result.is_file() else None
        done = self.run(*words, stdin=stdin, cwd=cwd)
        assert (done.returncode, done.stdout) == (2, b""), done
        assert (self.result.read_bytes() if self.result.is_file() else None) == before
        what, todo, _ = done.stderr.decode("utf-8", "replace").split("\n")
        assert what.startswith("submit: ") and todo.startswith("  ") and todo.strip()
        return what.removeprefix("submit: ") + " | " + todo.strip()

    @property
    def kept(self) -> dict[str, bytes]:
        folder = self.dir / "artifacts"
        assert not [path for path in folder.rglob("*") if path.is_symlink()]
        return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# The one that is `sh` on Debian each time, the others in `make test-all`.
@pytest.fixture(params=[pytest.param(name, marks=[] if name == "dash" else pytest.mark.slow) for name in SHELLS])
def agent(request: pytest.FixtureRequest, tmp_path: Path) -> Agent:
    return Agent(tmp_path, SHELLS[request.param])


OK = ("--outcome", "ok", "--summary", "done")


def test_a_result_is_one_line_with_all_that_was_said(agent: Agent) -> None:
    (agent.work / "log.txt").write_text("log")
    found = agent.ok(
        *("--outcome", "blocked", "--summary", NASTY, "--reason", "no key\n", "--escalate", "one"),
        *("--escalate=--two=2", "--artifact", "log.txt"),
    )
    assert abs(found.t - time.time()) < 100
    assert found == results.Result("blocked", NASTY, "no key\n", ("one", "--two=2"), ("log.txt",), found.t)
    assert agent.kept == {"log.txt": b"log"}
    assert (agent.dir / "artifacts" / "log.txt").stat().st_mode & 0o77 == 0


def test_a_result_is_sealed_with_the_key_of_its_agent(agent: Agent) -> None:
    agent.env["MUSTER_RESULT_KEY"] = "k" * 64
    (agent.work / ".git").mkdir()  # a repository of another kind, or a broken one, is not asked
    agent.env["GIT_DIR"] = "/nowhere"
    assert agent.run("--outcome", "ok", "--summary", NASTY).returncode == 0
    line = agent.result.read_text().removesuffix("\n")
    found = results.read(line.encode())
    assert isinstance(found, results.Result) and found.summary == NASTY
    assert bindings.is_sealed(line, "k" * 64)
    assert not bindings.is_sealed(line, "x" * 64)
    assert not bindings.is_sealed(line.replace('"ok"', '"failed"'), "k" * 64)


def test_the_last_submit_counts_also_for_artifacts(agent: Agent) -> None:
    (agent.work / "a").write_text("1")
    (agent.work / "b").write_text("2")
    agent.ok(*OK, "--artifact", "a")
    assert agent.ok("--outcome=failed", "--summary=again", "--artifact=b")[:2] == ("failed", "again")
    assert agent.kept == {"b": b"2"}
    assert agent.wrong("--outcome", "ok", "--summary", "x", "--artifact", "none")
    assert agent.read().summary == "again" and agent.kept == {"b": b"2"}
    assert agent.ok(*OK).artifacts == () and not (agent.dir / "artifacts").exists()


def test_a_summary_comes_from_a_file_or_from_stdin(agent: Agent) -> None:
    (agent.work / "s p.md").write_bytes(NASTY.encode() + b"\n\n")
    assert agent.ok("--outcome", "ok", "--summary-file", "s p.md").summary == NASTY + "\n\n"
    assert agent.ok("--outcome", "ok", "--summary-file", "-", stdin=b"from stdin").summary == "from stdin"
    assert "no such file" in agent.wrong("--outcome", "ok", "--summary-file", "none")
    assert "no such file" in agent.wrong("--outcome", "ok", "--summary-file", ".")


def test_bytes_of_any_kind_become_text(agent: Agent) -> None:
    """Each byte, and each start of a character with each kind of continuation, as Python replaces what is no UTF-8."""
    cases = [bytes(range(256)), b"\xe2\x82", b"x\xf0\x9f\x98", b"\xed\xa0\x80\xed\xbf\xbf", b"\xc0\xaf\xe0\x80\xaf"]
    cases += [
        bytes([first, second, 0x80, 0x41]) for first in range(0xC0, 256, 3) for second in (0x41, 0x80, 0x9F, 0xA0, 0xBF)
    ]
    cases += [b"\xf4\x90\x80\x80", b"\xf4\x8f\xbf\xbf", b"\xf0\x8f\xbf\xbf", "\ufeff\uffff\U0010ffff\u0080".encode()]
    raw = b"|".join(cases)
    assert agent.ok("--outcome", "ok", "--summary-file", "-", stdin=raw).summary == raw.decode("utf-8", "replace")
    assert agent.ok("--outcome", "ok", "--summary", b"\xff\xfe!").summary == "\ufffd\ufffd!"


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(raw=st.binary(max_size=300) | st.text(max_size=100).map(str.encode))
def test_whatever_is_said_arrives(agent: Agent, raw: bytes) -> None:
    assert agent.ok("--outcome", "ok", "--summary-file", "-", stdin=b"x" + raw).summary == "x" + raw.decode(
        "utf-8", "replace"
    )


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ((), "nothing is said | submit --outcome ok"),
        (("--summary", "x"), "the outcome is missing | add --outcome ok"),
        (("--outcome", "done", "--summary", "x"), "done is no outcome | did you mean --outcome ok?"),
        (("--outcome", "FAILED", "--summary", "x"), "FAILED is no outcome"),
        (("--outcome", "failure", "--summary", "x"), "did you mean --outcome failed?"),
        (("--outcome", "stuck", "--summary", "x"), "did you mean --outcome blocked?"),
        (("--outcome", "timeout", "--summary", "x"), "one of ok, blocked, failed"),
        (("--outcome", "ok\nok", "--summary", "x"), "okok is no outcome"),
        (("--outcome", "", "--summary", "x"), "the outcome is missing"),
        (("--outcome", "ok"), "the summary is missing | add --summary"),
        (("--outcome", "ok", "--summary"), "nothing stands after --summary"),
        (("--outcome", "ok", "--summary", " \n\t"), "the summary is empty"),
        (("--outcome", "ok", "--summary-file", "-"), "the summary is empty"),
        (("--outcome", "ok", "--summary", "x", "--summary-file", "-"), "given twice"),
        (
            ("--outcome", "ok", "--summary", "x", "y"),
            'the word y belongs to no option | put quotes around a text: --summary "',
        ),
        (("--outcome", "ok", "--sumary", "x"), "there is no option --sumary | submit --help"),
        ((*OK, "--reason", "x" * 4097), "--reason is longer than 4096 bytes"),
        ((*OK, "--escalate", "x" * 4097), "--escalate is longer than 4096 bytes"),
        ((*OK, "--escalate", "ü" * 2049), "--escalate is longer than 4096 bytes"),
        ((*OK, "--escalate", " "), "--escalate says nothing"),
        ((*OK, *("--escalate", "x") * 21), "more than 20 times --escalate"),
        ((*OK, *("--artifact", "x") * 101), "more than 100 times --artifact"),
        (
            ("--outcome", "ok", "--summary", "x" * 65537),
            "the summary is longer than 65536 bytes | shorten it; put the rest",
        ),
    ],
    ids=lambda one: repr(one)[:50],
)
def test_a_wrong_word_is_told_with_what_to_type(agent: Agent, words: tuple[str, ...], what: str) -> None:
    assert what in agent.wrong(*words)


def test_the_largest_that_is_allowed_is_taken(agent: Agent) -> None:
    words = ["--reason", "r" * 4096, *["--escalate", "ü" * 2048] * 20]
    found = agent.ok("--outcome", "ok", "--summary-file", "-", *words, stdin=b"s" * 65536)
    assert found == results.Result("ok", "s" * 65536, "r" * 4096, ("ü" * 2048,) * 20, (), found.t)
    assert "longer than 65536" in agent.wrong("--outcome", "ok", "--summary-file", "-", stdin=b"s" * (1 << 20))
    assert "longer than 65536" in agent.wrong("--outcome", "ok", "--summary-file", "/dev/zero")


def test_help_needs_no_agent(agent: Agent) -> None:
    agent.env.pop("MUSTER_RESULT")
    done = agent.run("--help")
    assert done.returncode == 0 and b"--outcome ok|blocked|failed" in done.stdout and done.stderr == b""
    assert "$MUSTER_RESULT is not set" in agent.wrong(*OK)


def test_a_folder_that_cannot_be_written_to_is_told(agent: Agent) -> None:
    agent.env |= {"MUSTER_AGENT_DIR": str(agent.work / "none"), "MUSTER_RESULT": str(agent.work / "none" / "r")}
    done = agent.run(*OK)
    assert done.returncode == 1 and b"nothing was submitted" in done.stderr and b"submitted:" not in done.stdout


# Artifacts


def test_names_of_any_kind_are_kept(agent: Agent) -> None:
    names = [
        "-rf",
        "a b",
        "ü 漢 😀",
        "$(touch pwned)",
        "back\\slash\\n",
        "'\"",
        "*",
        ".hidden",
        "-",
        "x" * 255,
        "--help",
        "%s",
    ]
    for name in names:
        (agent.work / name).write_text(name)
    given = [word for name in names for word in ("--artifact", name)]
    assert agent.ok(*OK, *given).artifacts == tuple(names)
    assert agent.kept == {name: name.encode() for name in names}


def test_a_folder_is_kept_with_the_plain_files_in_it(agent: Agent) -> None:
    (agent.work / "out" / "a\\b" / "empty").mkdir(parents=True)
    (agent.work / "out" / "a\\b" / " -x ü").write_bytes(b"\0\xff")
    (agent.work / "out" / "-rf").write_text("1")
    for path in ("out", "./out//", str(agent.work / "out"), f"{agent.work}/./out/."):
        assert agent.ok(*OK, "--artifact", path).artifacts == ("out",)
        assert agent.kept == {"out/a\\b/ -x ü": b"\0\xff", "out/-rf": b"1"}
    assert agent.ok(*OK, "--artifact", "out/-rf", "--artifact", "out", "--artifact", "out/-rf").artifacts == (
        "out/-rf",
        "out",
    )


def test_paths_count_from_where_the_agent_is_and_names_from_the_work_dir(agent: Agent) -> None:
    (agent.work / "sub").mkdir()
    (agent.work / "sub" / "a").write_text("1")
    assert agent.ok(*OK, "--artifact", "a", cwd=agent.work / "sub").artifacts == ("sub/a",)
    assert agent.ok(*OK, "--artifact", str(agent.work / "sub/a"), cwd=Path("/")).artifacts == ("sub/a",)
    # An agent that was made before there was such a file.
    (agent.dir / "workdir").unlink()
    assert agent.ok(*OK, "--artifact", "a", cwd=agent.work / "sub").artifacts == ("a",)
    assert agent.kept == {"a": b"1"}


@pytest.mark.parametrize(
    ("path", "what"),
    [
        ("", "names nothing"),
        ("none", "there is no such file | paths count from the folder you are in"),
        ("../x", "a path with .. is not taken"),
        ("sub/../f", "a path with .. is not taken"),
        ("..", "a path with .. is not taken"),
        (".", "is the whole work dir"),
        ("/etc/passwd", "is outside of the work dir"),
        ("/", "is outside of the work dir"),
        ("to-passwd", "is outside of the work dir (/etc/passwd) | copy it into"),
        ("to-etc", "is outside of the work dir"),
        ("to-etc/passwd", "is outside of the work dir"),
        ("twice", "is outside of the work dir"),
        ("beside", "is outside of the work dir"),
        ("{outside}/into", "is outside of the work dir"),
        ("up", "is outside of the work dir"),
        ("dangling", "the symlink leads nowhere"),
        ("loop", "the symlink leads nowhere"),
        ("pipe", "is a device, a pipe or a socket"),
        ("to-pipe", "is a device, a pipe or a socket"),
        ("sock", "is a device, a pipe or a socket"),
        ("new\nline", "there is a new line in the name newline"),
        ("c1\u0085", "control character"),
        ("tab\t", "control character"),
        ("\x1b[2J", "control character"),
        (b"\xff", "is not UTF-8"),
        ("empty", "there is no file in the folder empty"),
        ("has-link", "has-link/in/l is a symlink"),
        ("has-pipe", "has-pipe/p is a symlink or another thing"),
        ("has-newline", "control character in the name of something in the folder has-newline"),
        ("has-bytes", "not UTF-8 or too long"),
        ("many", "more than 1000 files in many"),
    ],
    ids=lambda one: repr(one)[:30],
)
def test_what_is_no_plain_file_of_the_work_dir_is_refused(agent: Agent, path: str | bytes, what: str) -> None:
    work = agent.work
    for folder in ("sub", "empty", "has-link/in", "has-pipe", "has-newline", "has-bytes", "many"):
        (work / folder).mkdir(parents=True)
    (work.parent / "into").symlink_to(work / "f")
    path = path.replace("{outside}", str(work.parent)) if isinstance(path, str) else path
    for name in ("f", "tab\t", "\x1b[2J", "new\nline", "c1\u0085", os.fsdecode(b"\xff"), "has-newline/a\nb"):
        (work / name).write_text("x")
    (work / "has-bytes" / os.fsdecode(b"\xfe")).write_text("x")
    (work.parent / "the work beside").write_text("x")
    links = {"to-passwd": "/etc/passwd", "to-etc": "/etc", "twice": "to-passwd", "dangling": "nothing", "loop": "loop"}
    links |= {"beside": "../the work beside", "up": "..", "to-pipe": "pipe", "has-link/in/l": "/etc/passwd"}
    for name, target in links.items():
        (work / name).symlink_to(target)
    for name in ("pipe", "has-pipe/p"):
        os.mkfifo(work / name)
    if path == "many":
        for number in range(1001):
            (work / "many" / str(number)).touch()
    with socket.socket(socket.AF_UNIX) as server:
        here = os.open(work, os.O_RDONLY)
        server.bind(f"/proc/self/fd/{here}/sock" if os.path.isdir("/proc/self/fd") else str(work / "sock"))
        os.close(here)
        assert what in agent.wrong(*OK, "--artifact", path)
    assert not (agent.dir / "artifacts").exists()


def test_a_symlink_that_stays_inside_is_followed(agent: Agent) -> None:
    (agent.work / "real").mkdir()
    (agent.work / "real" / "f").write_text("1")
    (agent.work / "file").symlink_to("hop")
    (agent.work / "hop").symlink_to(agent.work / "real" / "f")
    (agent.work / "folder").symlink_to("real")
    assert agent.ok(*OK, "--artifact", "file", "--artifact", "folder/f").artifacts == ("file", "real/f")
    assert agent.kept == {"file": b"1", "real/f": b"1"}
    assert agent.ok(*OK, "--artifact", "folder").artifacts == ("real",)


def test_a_work_dir_behind_a_symlink_is_the_same(agent: Agent) -> None:
    (agent.work / "f").write_text("1")
    (agent.work.parent / "door").symlink_to(agent.work)
    (agent.dir / "workdir").write_text(str(agent.work.parent / "door"))
    for path in ("f", str(agent.work / "f"), str(agent.work.parent / "door" / "f")):
        assert agent.ok(*OK, "--artifact", path).artifacts == ("f",)


def test_a_file_without_the_right_to_read_is_told(agent: Agent) -> None:
    (agent.work / "f").write_text("1")
    (agent.work / "f").chmod(0)
    if os.access(agent.work / "f", os.R_OK):
        assert agent.ok(*OK, "--artifact", "f").artifacts == ("f",)  # root may
    else:
        assert "cannot be read" in agent.wrong(*OK, "--artifact", "f")


def test_artifacts_are_bounded_together(agent: Agent) -> None:
    for name, size in (("a", 150 << 20), ("b", 51 << 20), ("huge", 1 << 40)):
        with open(agent.work / name, "wb") as file:
            file.truncate(size)
    assert "larger than 200 MB together (with b)" in agent.wrong(*OK, "--artifact", "a", "--artifact", "b")
    assert "larger than 200 MB together (with huge)" in agent.wrong(*OK, "--artifact", "huge")


def test_a_file_that_changes_while_it_is_read_is_kept_as_it_was_at_some_moment(agent: Agent) -> None:
    log = agent.work / "log"
    log.write_text("start\n")
    writer = subprocess.Popen(["sh", "-c", 'while :; do printf "line\\n"; done >>"$0"', str(log)])
    try:
        agent.ok(*OK, "--artifact", "log")
    finally:
        writer.kill()
        writer.wait()
    kept = agent.kept["log"]
    assert kept.startswith(b"start\nline") and log.read_bytes().startswith(kept)


def test_what_stands_in_the_way_is_put_aside(agent: Agent, tmp_path: Path) -> None:
    (agent.work / "f").write_text("1")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "victim").write_text("v")
    (agent.dir / "artifacts").symlink_to(outside)
    agent.result.symlink_to(outside)
    agent.ok(*OK, "--artifact", "f")
    assert agent.kept == {"f": b"1"} and [path.name for path in outside.iterdir()] == ["victim"]
    agent.result.unlink()
    agent.result.mkdir()
    agent.ok(*OK)


def test_a_submit_that_is_ended_leaves_what_was_there(agent: Agent) -> None:
    agent.ok("--outcome", "failed", "--summary", "before")
    argv = [*agent.shell, str(SUBMIT), "--outcome", "ok", "--summary-file", "-"]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, env=agent.env, cwd=agent.work, start_new_session=True)
    assert process.stdin
    while not list(agent.dir.glob("submit.*/summary")):
        assert process.poll() is None
        time.sleep(0.01)
    os.killpg(process.pid, 15)
    process.stdin.close()  # a child that was just forked may have missed the signal, and reads on
    assert process.wait(30) != 0
    assert agent.read().summary == "before" and not list(agent.dir.glob("submit.*"))


# In a session


@pytest.fixture
def harvest(world: World) -> Iterator[Callable[[str], Path]]:
    def folder(name: str) -> Path:
        (found,) = [path for path in (world.muster_home / "agents").iterdir() if path.name.startswith(name)]
        return found

    yield folder


def test_every_agent_has_submit_on_its_path(world: World, harvest: Callable[[str], Path], tmp_path: Path) -> None:
    (world.repo / "sub").mkdir()
    (world.repo / "sub" / "x").write_text("x")
    world.git("add", "-A")
    world.git("commit", "-q", "-m", "sub")
    said = 'mkdir out && echo 1 >"out/a b" && submit --outcome ok --summary "$(pwd)" --artifact out --artifact ../sub/x'
    world.ok("create", "one", "command", "--no-connect", "--", "sh", "-c", said, cwd=world.repo / "sub")
    world.wait_state("one", "failed")  # for the ..
    said = said.replace("../sub/x", "x")
    world.ok("create", "two", "command", "--no-connect", "--", "sh", "-c", said, cwd=world.repo / "sub")
    world.wait_state("two", "done")
    assert not (harvest("one") / "result.json").exists()
    found = results.read((harvest("two") / "result.json").read_bytes())
    assert isinstance(found, results.Result)
    assert found.summary.endswith("/sub") and found.artifacts == ("sub/out", "sub/x")
    packed = subprocess.run(
        ["tar", "-cf", "-", "-C", harvest("two") / "artifacts", "."], capture_output=True, check=True
    ).stdout
    assert artifacts.unpack(packed, tmp_path / "got") == []
    assert (tmp_path / "got" / "sub" / "out" / "a b").read_text() == "1\n"


def test_submit_is_among_the_programs_of_an_agent() -> None:
    assert tmux.bin_files()["bin/path/submit"] == SUBMIT.read_bytes()
