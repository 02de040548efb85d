"""Places and words that are off: refused with the right exit code, a reason and what to type, or they just work."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from ..conftest import Result, World, eventually

COMMAND = ("--no-connect", "--", "sleep", "1000")


def told(result: Result, *words: str) -> None:
    """A message, and below it what to type."""
    lines = result.stderr.strip().splitlines()
    assert lines and lines[0].startswith("muster: "), result
    assert len(lines) > 1 and lines[-1].startswith("  "), f"there is no hint: {result!r}"
    for word in words:
        assert word in result.stderr, f"{word!r} is not in {result!r}"


def branches(world: World, cwd: Path | None = None) -> list[str]:
    return world.git("branch", "--list", "muster/*", "--format=%(refname:short)", cwd=cwd).split()


def nothing_made(world: World) -> None:
    assert world.agents() == {}
    assert branches(world) == []
    assert len(world.git("worktree", "list").splitlines()) == 1
    for folder in ("agents", "names", "work", "trash"):
        path = world.muster_home / folder
        assert not path.exists() or list(path.iterdir()) == []


# Places


def test_without_a_git_identity_an_agent_can_still_commit_and_no_configuration_changes(world: World) -> None:
    world.git("config", "--unset", "user.name")
    world.git("config", "--unset", "user.email")
    before = (world.repo / ".git/config").read_bytes()
    env = {"GIT_CONFIG_NOSYSTEM": "1"}
    for mode in ("worktree", "mirror"):
        script = "echo x > made; git add made; git commit -qm made"
        world.ok("create", mode, "command", "--mode", mode, "--no-connect", "--", "sh", "-c", script, env=env)
        assert world.wait_state(mode, "done", "failed")["state"] == "done"
        author = world.ok("exec", mode, "--", "git", "log", "-1", "--format=%an <%ae>").stdout
        assert author == f"{mode} <{mode}@muster.invalid>\n"
    assert (world.repo / ".git/config").read_bytes() == before
    assert not (world.home / ".gitconfig").exists()


def test_an_agent_commits_under_the_name_that_the_repository_has(world: World) -> None:
    script = "echo x > made; git add made; git commit -qm made"
    for mode in ("worktree", "mirror"):
        world.ok("create", mode, "command", "--mode", mode, "--no-connect", "--", "sh", "-c", script)
        assert world.wait_state(mode, "done", "failed")["state"] == "done"
        author = world.ok("exec", mode, "--", "git", "log", "-1", "--format=%an <%ae>").stdout
        assert author == "Uma User <uma@example.invalid>\n"


def test_a_folder_without_git_is_copied_and_worktree_is_refused_there(world: World) -> None:
    plain = world.folder / "plain"
    plain.mkdir()
    (plain / "file").write_text("one\n")
    told(world.fails(2, "create", "one", "command", "--mode", "worktree", *COMMAND, cwd=plain), "--mode copy")
    script = ("--no-connect", "--", "sh", "-c", "echo two > file")
    world.ok("create", "one", "command", *script, cwd=plain)
    row = world.wait_state("one", "done")
    assert (row["mode"], row["repo"]) == ("copy", str(plain))
    assert (plain / "file").read_text() == "one\n"
    assert "+two" in world.ok("diff", "one", cwd=plain).stdout


def test_a_repository_without_a_commit_is_refused_with_what_to_do(world: World) -> None:
    fresh = world.folder / "fresh"
    fresh.mkdir()
    world.git("init", "-q", cwd=fresh)
    for mode in ("worktree", "mirror"):
        refused = world.fails(5, "create", "one", "command", "--mode", mode, *COMMAND, cwd=fresh)
        told(refused, "no commit", "git commit", "--mode copy")
    nothing_made(world)
    world.ok("create", "one", "command", "--mode", "copy", *COMMAND, cwd=fresh)


def test_a_detached_head_is_where_the_agent_begins(world: World) -> None:
    (world.repo / "README").write_text("second\n")
    world.git("commit", "-qam", "second")
    world.git("checkout", "-q", "--detach", "HEAD~1")
    world.ok("create", "one", "command", *COMMAND)
    assert world.ok("exec", "one", "--", "cat", "README").stdout == "hello\n"
    assert world.ok("exec", "one", "--", "git", "branch", "--show-current").stdout == "muster/one\n"
    assert world.git("rev-parse", "--abbrev-ref", "HEAD") == "HEAD"
    world.ok("pull", "one")


@pytest.mark.parametrize("mode", ["worktree", "mirror"])
def test_an_agent_made_in_a_sub_directory_starts_in_the_same_one(world: World, mode: str) -> None:
    script = ("--no-connect", "--", "sh", "-c", "pwd > where; ls > what")
    world.ok("create", "one", "command", "--mode", mode, *script, cwd=world.repo / "src")
    row = world.wait_state("one", "done")
    assert (Path(row["workdir"]) / "src/where").read_text() == f"{row['workdir']}/src\n"
    assert "app.py" in (Path(row["workdir"]) / "src/what").read_text()
    assert world.ok("exec", "one", "--", "ls").stdout.split() == ["app.py", "what", "where"]


ODD = 'it\'s a "pläce" ☃ $HOME `x` #{pid} \\ %s;&'


@pytest.mark.parametrize("mode", ["worktree", "mirror", "copy"])
def test_odd_characters_in_every_path_change_nothing(world: World, mode: str) -> None:
    repo = world.make_repo(world.folder / ODD / "project ü")
    world.muster_home = world.folder / f"state {ODD}"
    world.env["MUSTER_HOME"] = str(world.muster_home)
    script = (
        "--no-connect",
        "--",
        "sh",
        "-c",
        "pwd; echo x > made; test ! -d .git -a ! -f .git || { git add made; git commit -qm made; }; exec sleep 1000",
    )
    world.ok("create", "one", "command", "--mode", mode, *script, cwd=repo)
    world.wait_state("one", "working")
    eventually(lambda: "made" in world.run("diff", "one", "--name-only").stdout)
    assert "+x" in world.ok("diff", "one").stdout
    assert world.agents()["one"]["repo"] == str(repo)
    world.ok("pull", "one", cwd=world.folder)
    world.ok("stop", "one")
    world.ok("capture", "one")
    world.ok("start", "one")
    world.ok("destroy", "one")
    world.ok("restore", "one")
    assert world.ok("exec", "one", "--", "cat", "made").stdout == "x\n"
    world.ok("destroy", "one")
    world.ok("gc", "--yes", "--older", "0s")
    assert len(world.git("worktree", "list", cwd=repo).splitlines()) == 1


def test_a_very_deep_home_does_not_break_the_sockets(world: World) -> None:
    world.muster_home = world.folder.joinpath(*["deep-" + "x" * 40] * 5)
    assert len(str(world.muster_home)) > 200
    world.env["MUSTER_HOME"] = str(world.muster_home)
    kill = "tmux kill-server; tmux new-session -d 'exec sleep 1000'; tmux list-sessions; tmux kill-server; echo over; exec sleep 1000"
    world.ok("create", "one", "command", "--no-connect", "--", "sh", "-c", kill)
    shown = eventually(lambda: (text := world.run("capture", "one").stdout) and "over" in text and text)
    assert "1 windows" in shown  # a tmux of its own
    assert world.state("one") == "working"
    world.ok("stop", "one")
    world.ok("start", "one")
    world.wait_state("one", "working")
    world.ok("destroy", "one")


def test_somebody_elses_folder_for_the_short_socket_is_not_used(world: World) -> None:
    if os.getuid() != 0:
        pytest.skip("giving a folder to another user needs root")
    shared = world.folder / "tmp"
    (shared / "muster-0").mkdir(parents=True)
    os.chown(shared / "muster-0", 65534, 65534)
    (shared / "muster-0").chmod(0o777)
    # A short way to it: the folder for temporary files is only used when its own path is short.
    short = Path(f"/tmp/mu-{os.getpid()}")
    short.symlink_to(shared)
    try:
        deep = str(world.folder.joinpath(*["deep-" + "x" * 40] * 5))
        words = ("create", "one", "command", *COMMAND)
        failed = world.fails(1, *words, env={"MUSTER_HOME": deep, "TMPDIR": str(short)})
        told(failed, "is not a folder of yours")
    finally:
        short.unlink()


def test_a_branch_that_exists_is_refused_and_stays(world: World) -> None:
    world.git("branch", "muster/one", world.git("commit-tree", "-m", "somebody's", "HEAD^{tree}"))
    world.git("branch", "taken")
    refused = world.fails(5, "create", "one", "command", *COMMAND)
    told(refused, "muster/one exists already", "another name")
    told(world.fails(5, "create", "two", "command", "--branch", ":taken", *COMMAND), "taken exists already")
    assert world.agents() == {}
    assert branches(world) == ["muster/one"]
    assert len(world.git("worktree", "list").splitlines()) == 1
    world.ok("create", "one", "command", "--branch", ":muster/free", *COMMAND)


def test_a_tree_in_the_middle_of_a_merge_is_refused_and_not_touched(world: World) -> None:
    world.git("checkout", "-q", "-b", "other")
    (world.repo / "README").write_text("theirs\n")
    world.git("commit", "-qam", "theirs")
    world.git("checkout", "-q", "main")
    (world.repo / "README").write_text("mine\n")
    world.git("commit", "-qam", "mine")
    subprocess.run(["git", "merge", "-q", "other"], cwd=world.repo, env=world.env, capture_output=True, check=False)
    before = world.git("status", "--porcelain=v2"), (world.repo / "README").read_bytes()
    for mode in ("worktree", "mirror"):
        told(world.fails(5, "create", "one", "command", "--mode", mode, *COMMAND), "merge is in progress", "--clean")
    assert (world.git("status", "--porcelain=v2"), (world.repo / "README").read_bytes()) == before
    nothing_made(world)
    world.ok("create", "one", "command", "--clean", *COMMAND)
    assert world.ok("exec", "one", "--", "cat", "README").stdout == "mine\n"


def test_submodules_are_filled_in_a_worktree_and_refused_in_a_mirror(world: World) -> None:
    module = world.make_repo(world.folder / "module")
    world.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(module), "lib")
    world.git("commit", "-qm", "with a module")
    before = (world.repo / ".git/config").read_bytes()
    world.ok("create", "one", "command", *COMMAND)
    assert world.ok("exec", "one", "--", "cat", "lib/src/app.py").stdout == "print('one')\n"
    assert world.ok("exec", "one", "--", "git", "status", "--porcelain").stdout == ""
    told(
        world.fails(5, "create", "two", "command", "--mode", "mirror", *COMMAND), "submodules (lib)", "--mode worktree"
    )
    world.ok("destroy", "one")
    assert (world.repo / ".git/config").read_bytes() == before
    assert len(world.git("worktree", "list").splitlines()) == 1
    world.ok("restore", "one")
    assert world.ok("exec", "one", "--", "git", "-C", "lib", "status", "--porcelain").stdout == ""


@pytest.mark.parametrize("mode", ["worktree", "mirror"])
def test_a_bare_repository_works(world: World, mode: str) -> None:
    bare = world.folder / "bare.git"
    world.git("clone", "-q", "--bare", str(world.repo), str(bare))
    script = (
        "--no-connect",
        "--",
        "sh",
        "-c",
        "echo x > made; git add made; git -c user.name=n -c user.email=e commit -qm made",
    )
    world.ok("create", "one", "command", "--mode", mode, *script, cwd=bare)
    assert world.wait_state("one", "done", "failed")["state"] == "done"
    world.ok("pull", "one")
    assert world.git("log", "-1", "--format=%s", "muster/one", cwd=bare) == "made"
    told(world.fails(2, "pull", "one", "--merge"), "bare")
    world.ok("destroy", "one")


def test_a_prompt_as_long_as_an_argument_can_be_does_not_hide_the_agent(world: World) -> None:
    config = world.home / ".config/muster/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text('[types.say]\nargv = ["sh", "-c", "exec sleep 1000"]\nprompt = "argument"\n')
    (world.folder / "long").write_text("ü" * 60_000)
    world.ok("create", "one", "say", "--no-connect", "--message-file", str(world.folder / "long"))
    world.wait_state("one", "working", "starting")


# Words


BAD_NAMES = {
    "long": "x" * 300,
    "up": "../x",
    "path": "a/b",
    "spaces": "two words",
    "unicode": "höhle",
    "snowman": "☃",
    "newline": "a\nb",
    "format": "#{pid}",
    "dot": ".",
    "dots": "..",
    "dollar": "$(id)",
    "empty": "",
}


@pytest.mark.parametrize("name", BAD_NAMES.values(), ids=BAD_NAMES.keys())
def test_a_word_that_is_no_name_is_refused_wherever_a_name_is_taken(world: World, name: str) -> None:
    told(world.fails(2, "create", name, "command", *COMMAND))
    nothing_made(world)
    # Nothing else is done with it either; what is not a name cannot name an agent.
    for words in (("stop", name), ("explain", name), ("exec", name, "--", "true")):
        told(world.fails(2, *words))


@pytest.mark.parametrize("words", [("create", "-rf", "command"), ("destroy", "-rf"), ("destroy", "--", "-rf")])
def test_what_looks_like_a_flag_is_not_taken_for_a_name(world: World, words: tuple[str, ...]) -> None:
    told(world.fails(2, *words))
    nothing_made(world)


def test_a_new_name_is_checked_as_a_first_one_is(world: World) -> None:
    world.ok("create", "one", "command", *COMMAND)
    for name in ("../x", "x" * 64, "two words", "höhle"):
        told(world.fails(2, "rename", "one", name))
        told(world.fails(2, "clone", "one", name))
    world.ok("destroy", "one")
    told(world.fails(2, "restore", "one", "--as", "../x"))
    world.ok("restore", "one")


NEAREST = {
    "verb": (("craete", "one"), "create"),
    "flag": (("create", "one", "command", "--mesage", "hi"), "--message"),
    "flag with =": (("create", "one", "command", "--lable=a"), "--label"),
    "mode": (("create", "one", "command", "--mode", "worktre"), "worktree"),
    "state": (("list", "--state", "workin"), "working"),
    "type": (("create", "one", "comand", "--no-connect"), "command"),
    "until": (("wait", "one", "--until", "redy"), "ready"),
    "template": (("create", "one", "command", "--template", "fat"), "fast"),
}


@pytest.mark.parametrize(("words", "near"), NEAREST.values(), ids=NEAREST.keys())
def test_a_wrong_word_is_told_with_the_nearest_right_one(world: World, words: tuple[str, ...], near: str) -> None:
    config = world.home / ".config/muster/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text('[templates.fast]\nmode = "copy"\n')
    told(world.fails(2, *words), near)
    answer = world.fails(2, *words, "--json")
    assert answer.json["error"]["code"] == 2 and near in str(answer.json)
    nothing_made(world)


USAGE = {
    "exec without a command": ("exec", "one"),
    "exec with nothing behind --": ("exec", "one", "--"),
    "message without text": ("message", "one"),
    "message with empty text": ("message", "one", "-m", ""),
    "message twice": ("message", "one", "-m", "a", "--message-file", "b"),
    "message from a file that is not there": ("message", "one", "--message-file", "/nowhere"),
    "nobody named": ("stop",),
    "command without a command": ("create", "two", "command", "--no-connect"),
    "a label that is none": ("create", "two", "command", "--label", "=x", *COMMAND),
    "a time that is none": ("create", "two", "command", "--timeout", "soon", *COMMAND),
    "a size that is none": ("create", "two", "command", "--memory", "much", *COMMAND),
    "a count that is none": ("create", "two", "command", "--count", "0", *COMMAND),
    "a variable that is none": ("create", "two", "command", "--env", "1X=2", *COMMAND),
    "no host behind @": ("create", "two@", "command", *COMMAND),
    "a host that is a flag": ("exec", "two@-oProxyCommand=id", "--", "true"),
    "a provider that is not there": ("create", "two@x.modal", "command", *COMMAND),
    "a branch that is none": ("create", "two", "command", "--branch", ":a..b", *COMMAND),
    "a worktree elsewhere": ("create", "two@box", "command", "--mode", "worktree", *COMMAND),
    "files outside": ("pull", "one", "--files", "../../etc/passwd"),
    "two where one is wanted": ("explain", "*"),
}


@pytest.fixture
def two_agents(world: World) -> World:
    for name in ("one", "other"):
        world.ok("create", name, "command", *COMMAND)
    return world


def test_wrong_usage_is_2_with_what_to_type_and_changes_nothing(two_agents: World) -> None:
    world = two_agents
    for what, words in USAGE.items():
        result = world.fails(2, *words)
        told(result)
        assert result.stdout == "", what
        cut = words.index("--") if "--" in words else len(words)
        answer = world.fails(2, *words[:cut], "--json", *words[cut:])
        problem = answer.json.get("error") or answer.json["results"][0]["error"]
        assert problem["code"] == 2 and problem["message"] and problem["hint"], what
    assert set(world.agents()) == {"one", "other"}
    assert branches(world) == []


NOT_FOUND = {
    "an agent": ("explain", "on"),
    "an agent of many": ("stop", "nobody"),
    "a glob": ("stop", "nobody-*"),
    "a glob where one is wanted": ("explain", "nobody-*"),
    "a commit": ("create", "two", "command", "--branch", "nowhere", *COMMAND),
    "a source": ("create", "two", "command", "--from", "nowhere", *COMMAND),
    "a playbook": ("create", "two", "replay", "--no-connect", "--", "nowhere.toml"),
    "a snapshot": ("snapshot", "restore", "one", "nowhere"),
    "trash": ("restore", "nobody"),
    "a file": ("pull", "one", "--files", "nowhere*"),
}


def test_what_is_not_found_is_3_and_agents_are_listed(two_agents: World) -> None:
    world = two_agents
    for what, words in NOT_FOUND.items():
        told(world.fails(3, *words))
        cut = words.index("--") if "--" in words else len(words)
        answer = world.fails(3, *words[:cut], "--json", *words[cut:])
        problem = answer.json.get("error") or answer.json["results"][0]["error"]
        assert problem["code"] == 3 and problem["hint"], what
    assert "did you mean one?" in world.fails(3, "explain", "on").stderr
    assert "one, other" in world.fails(3, "stop", "nobody-*").stderr
    assert set(world.agents()) == {"one", "other"}
    assert len(list((world.muster_home / "agents").iterdir())) == 2
    # One that is not there does not keep the others from being stopped.
    world.fails(3, "stop", "one", "nobody")
    assert world.state("one") == "stopped"


BAD_CONFIG = {
    "section": ("[comands.create]\nmode = 'copy'\n", "commands"),
    "option": ("[commands.create]\nmod = 'copy'\n", "mode"),
    "value": ("[commands.create]\nmode = 'coppy'\n", "copy"),
    "flag": ("[commands.create]\ncount = 'x'\n", "count"),
    "workdir": ("[workdir]\ncoppy = ['.env']\n", "copy"),
    "host": ("[hosts.box]\ndestinaton = 'x'\n", "destination"),
    "type": ("[types.x]\nargvv = ['true']\n", "argv"),
    "no section": ("commands = 1\n", "[commands]"),
    "no TOML": ("[commands.create\nmode = \n", "config.toml"),
    "no UTF-8": ("[commands.create]\nmode = 'ÿþ'\n", "config.toml"),
}


@pytest.mark.parametrize(("text", "near"), BAD_CONFIG.values(), ids=BAD_CONFIG.keys())
def test_a_typo_in_the_configuration_is_2_with_the_nearest_key(world: World, text: str, near: str) -> None:
    config = world.home / ".config/muster/config.toml"
    config.parent.mkdir(parents=True)
    config.write_bytes(text.encode("latin-1"))
    told(world.fails(2, "create", "one", "x" if "types" in text else "command", *COMMAND), near)
    config.unlink()
    nothing_made(world)


def test_a_playbook_with_a_wrong_step_is_2_with_the_nearest_and_nothing_is_made(world: World) -> None:
    for text, near in (("[[step]]\nsey = 'x'\n", "say"), ("[[step\n", "play.toml"), ("[[step]]\nsay = 7\n", "say")):
        told(world.fails(2, "create", "one", "replay", "--no-connect", "--", world.playbook(text)), near)
    nothing_made(world)


def test_words_that_are_not_utf8_are_an_error_or_pass_through_and_never_a_crash(world: World) -> None:
    bad = os.fsdecode(b"\xff\xfe")
    told(world.fails(2, "create", bad, "command", *COMMAND))
    told(world.fails(2, "create", "one", "command", "-m", bad, *COMMAND), "UTF-8")
    nothing_made(world)
    world.ok(
        "create",
        "one",
        "command",
        "--no-connect",
        "--",
        "sh",
        "-c",
        'printf %s "$1" | od -An -tx1; exec sleep 1000',
        "sh",
        bad,
    )
    eventually(lambda: "ff fe" in world.run("capture", "one").stdout)
    told(world.fails(2, "message", "one", "-m", bad), "UTF-8")
    assert world.ok("exec", "one", "--", "printf", "%s|", bad).stdout == "\ufffd\ufffd|"
    world.ok("stop", "one")
    world.ok("start", "one")
    eventually(lambda: "ff fe" in world.run("capture", "one").stdout)
    told(world.fails(3, "stop", "-", input=b"nobody\n"))
    world.fails(2, "stop", "-", input=b"\xff\xfe\n")


def test_output_that_nobody_reads_is_no_error(world: World) -> None:
    world.ok("create", "one", "command", *COMMAND)
    for words in ("list", "list --json", "--help", "explain one"):
        done = subprocess.run(
            f"muster {words} | true", shell=True, cwd=world.repo, env=world.env, capture_output=True, check=False
        )
        assert done.stderr == b"", words


def test_a_locale_without_the_characters_will_do(world: World) -> None:
    env = {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    world.ok(
        "create",
        "one",
        "command",
        "--no-connect",
        "--",
        "sh",
        "-c",
        "printf 'snow \\342\\230\\203\\n'; exec sleep 1000",
        env=env,
    )
    eventually(lambda: "snow" in world.ok("list", env=env).stdout)
    world.ok("list", "--json", env=env)
    world.ok("capture", "one", env=env)
    told(world.fails(2, "message", "one", "-m", "", env=env))
