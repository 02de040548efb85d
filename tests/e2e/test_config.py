"""Configuration as a user meets it: which setting wins, what a typo says, what a stranger's project may do."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import subprocess
from pathlib import Path

import pytest

from muster.cli.main import VERBS, actions, dashed

from ..conftest import World, eventually


def user(world: World, text: str) -> Path:
    path = world.home / ".config" / "muster" / "config.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def project(world: World, text: str) -> Path:
    path = world.repo / ".muster" / "config.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def program(world: World, name: str, text: str) -> Path:
    path = world.bin / name
    path.write_text(text)
    path.chmod(0o755)
    return path


def run_in_terminal(world: World, *argv: str, env: dict[str, str] | None = None) -> str:
    """What a program writes to a terminal."""
    master, slave = pty.openpty()
    process = subprocess.Popen(argv, cwd=world.repo, env={**world.env, **(env or {})}, stdin=slave, stdout=slave)
    os.close(slave)
    shown = b""
    while True:
        if not select.select([master], [], [], 30)[0]:
            process.kill()
            break
        try:
            data = os.read(master, 65536)
        except OSError:
            break
        if not data:
            break
        shown += data
    process.wait()
    os.close(master)
    return shown.decode()


# Which setting wins


def test_a_flag_beats_a_variable_beats_the_project_beats_the_user_beats_the_default(world: World) -> None:
    def mode(name: str, *flags: str, **env: str) -> str:
        made = world.ok("create", name, "command", *flags, "--json", "--", "true", env=env).json
        return str(made["agents"][0]["mode"])

    assert mode("by-default") == "worktree"
    user(world, '[commands.create]\nmode = "copy"\n')
    assert mode("by-user") == "copy"
    project(world, '[commands.create]\nmode = "mirror"\n')
    assert mode("by-project") == "mirror"
    assert mode("by-variable", MUSTER_CREATE_MODE="copy") == "copy"
    assert mode("by-flag", "--mode", "worktree", MUSTER_CREATE_MODE="copy") == "worktree"


def test_any_option_of_any_verb_can_have_a_default(world: World) -> None:
    user(
        world, '[commands.list]\nformat = "{name}!"\n[commands.create]\nlabel = { team = "shop" }\nno_connect = true\n'
    )
    world.ok("create", "one", "command", "--label", "run=1", "--", "true")
    assert world.ok("list").stdout == "one!\n"
    assert world.ok("list", "--format", "{state}?").stdout.endswith("?\n")
    assert world.agents()["one"]["labels"] == {"team": "shop", "run": "1"}
    assert world.ok("ls").stdout == "one!\n"


def test_the_projects_file_is_found_from_below_and_not_from_outside(world: World) -> None:
    path = project(world, '[commands.list]\nformat = "here {name}"\n')
    assert str(path) in world.ok("config", "path", cwd=world.repo / "src").stdout
    assert str(path) not in world.ok("config", "path", cwd=world.folder).stdout


def test_the_users_file_is_where_xdg_says(world: World) -> None:
    folder = world.folder / "xdg"
    assert world.ok("config", "path", env={"XDG_CONFIG_HOME": str(folder)}).stdout == f"{folder}/muster/config.toml\n"
    world.ok("config", "set", "commands.create.mode", "mirror", env={"XDG_CONFIG_HOME": str(folder)})
    assert (folder / "muster" / "config.toml").read_text() == '[commands.create]\nmode = "mirror"\n'
    assert world.ok("config", env={"XDG_CONFIG_HOME": str(folder)}).stdout == 'commands.create.mode = "mirror"\n'
    assert world.ok("config").stdout == ""


def test_config_set_changes_one_line_and_get_reads_it(world: World) -> None:
    before = '# mine\n[commands.create]\nmode = "copy"  # for now\n\n[commands.list]\nhere = true\n'
    path = user(world, before)
    world.ok("config", "set", "commands.create.mode", "mirror")
    assert path.read_text() == before.replace('mode = "copy"  # for now', 'mode = "mirror"')
    assert world.ok("config", "get", "commands.create.mode").stdout == "mirror\n"
    world.ok("config", "set", "commands.create.timeout", "15m")
    world.ok("config", "set", "commands.list.state", '["ready", "waiting"]')
    assert world.ok("config", "get", "commands.list", "--json").json["value"] == {
        "here": True,
        "state": ["ready", "waiting"],
    }
    world.ok("config", "set", "commands.create.mode", "copy", "--project")
    assert (world.repo / ".muster" / "config.toml").read_text() == '[commands.create]\nmode = "copy"\n'
    assert "# mine" in path.read_text()


def test_config_set_refuses_a_bad_value_and_leaves_the_file_as_it_was(world: World) -> None:
    path = user(world, '[commands.create]\nmode = "copy"\n')
    world.fails(2, "config", "set", "commands.create.mode", "frob")
    assert path.read_text() == '[commands.create]\nmode = "copy"\n'


@pytest.mark.parametrize(
    "words",
    [
        ("config", "set", "--project", "commands.create.mode", "mirror"),
        ("create", "one", "--no-connect", "command", "--", "true"),
        ("create", "--label", "a=b", "two", "--no-connect", "command", "--", "true"),
    ],
    ids=" ".join,
)
def test_options_may_stand_between_the_words(world: World, words: tuple[str, ...]) -> None:
    world.ok(*words)


# Typos


@pytest.mark.parametrize(
    ("text", "says", "hint"),
    [
        ('[comands.create]\nmode = "copy"\n', "no section [comands]", "'commands'"),
        ('[commands.create]\nmoed = "copy"\n', "[commands.create] has no option 'moed'", "'mode'"),
        ('[commands.create]\nmode = "frob"\n', "mode must be one of worktree, mirror, copy, in-place", ""),
        pytest.param(
            '[commands.create]\nclean = "maybe so"\n',
            "clean must be true or false",
            "",
        ),
        ('[commands.create]\ntimeout = "soon"\n', "'soon' is not a time", "90s"),
        ('[workdir]\ncpy = [".env"]\n', "[workdir] has no key 'cpy'", "'copy'"),
        ('[hosts.box]\ndestinaton = "x"\n', "[hosts.box] has no key 'destinaton'", "'destination'"),
        ("[commands]\ncreate = 3\n", "must be a section", ""),
        ("workdir = 3\n", "must be a section", ""),
        ("[commands.create\n", "is not valid TOML", ""),
        ('[types.mine]\nargv = ["true"]\nspeeks = true\n', "[types.mine] has no key 'speeks'", "speaks"),
        ("[types.mine]\nspeaks = true\n", "[types.mine] needs argv", "argv = "),
        ('[types.mine]\nargv = "true"\n', "[types.mine] argv must be a", ""),
        ('[types.mine]\nargv = ["true"]\nprompt = "shouted"\n', "argument, environment or typed", ""),
        ('[templates.mine]\nmoed = "copy"\n', "[templates.mine] has no option 'moed'", "'mode'"),
    ],
    ids=lambda value: value.replace("\n", " ").strip() if isinstance(value, str) and "=" in value else None,
)
def test_a_typo_in_a_file_is_an_error_that_names_the_nearest_word(
    world: World, text: str, says: str, hint: str
) -> None:
    user(world, text)
    kind = ("mine",) if "[types" in text else ("command", *(("--template", "mine") if "[templates" in text else ()))
    told = world.fails(2, "create", "one", *kind, "--no-connect", "--", "true").stderr
    assert says in told and hint in told
    assert re.search(r"/config\.toml:\d+", told)
    user(world, "")
    assert world.agents() == {}


LONG = """
# A comment, [commands.list] and hash = signs.
[workdir]
copy = [
    ".env",  # watch = true
]

[commands.list]
here = true
{commands}
[commands."tutorial-check"]
strict = true  # a comment

[prices."gpt-4.1"]
input = 2.0
{prices}
[hosts.box]
destination = "box"
{hosts}
"""


@pytest.mark.parametrize(
    ("place", "text", "line"),
    [
        ("commands", "wach = true", 10),
        ("commands", '"wach" = true', 10),
        ("commands", "state = 3", 10),
        ("prices", "inptu = 1", 16),
        ("prices", 'output = "much"', 16),
        ("hosts", "destinaton = 'x'", 19),
        ("hosts", "[budget]\ndolars = 1", 20),
        ("hosts", "[limits]\n\nload = -1", 21),
        ("hosts", "notify.on = ['wating']", 19),
        ("hosts", "[notifi]", 19),
        ("hosts", "x = = 1", 19),
    ],
)
def test_a_mistake_in_a_file_is_told_with_its_line(world: World, place: str, text: str, line: int) -> None:
    texts = {**dict.fromkeys(("commands", "prices", "hosts"), ""), place: text}
    user(world, LONG.format(**texts))
    assert f"/config.toml:{line}" in world.fails(2, "list").stderr
    user(world, "")


def test_a_typo_in_a_variable_is_an_error(world: World) -> None:
    told = world.fails(2, "create", "one", "command", "--", "true", env={"MUSTER_CREATE_MOED": "copy"}).stderr
    assert "'moed'" in told and "'mode'" in told
    told = world.fails(2, "create", "one", "command", "--", "true", env={"MUSTER_CREATE_MODE": "frob"}).stderr
    assert "must be one of worktree" in told


def test_config_checks_every_verb_of_the_file(world: World) -> None:
    user(world, "[commands.lst]\nhere = true\n")
    assert "'list'" in world.fails(2, "config").stderr
    user(world, "[commands.stop]\ngrase = 3\n")
    assert "'grace'" in world.fails(2, "config").stderr
    # Another verb does not fail for it.
    world.ok("list")


# Trust


def test_an_untrusted_project_runs_nothing_until_it_is_trusted_and_again_after_a_change(world: World) -> None:
    mark = world.folder / "ran"
    text = f'[commands.create]\nmode = "mirror"\nconnect_command = "touch {mark}"\n'
    path = project(world, text)
    made = world.ok("create", "one", "command", "--", "true")
    assert not mark.exists()
    assert "is not trusted" in made.stderr and "connect_command" in made.stderr and "muster trust" in made.stderr
    # What cannot run a command is in force.
    assert world.agents()["one"]["mode"] == "mirror"
    shown = world.ok("trust", "--show").stderr
    assert "not trusted" in shown and "commands.create.connect_command" in shown
    world.ok("connect", "one", "--connect-command", "true")
    world.fails(2, "connect", "one")
    assert not mark.exists()

    assert "is trusted" in world.ok("trust").stderr
    world.ok("create", "two", "command", "--", "true")
    assert mark.exists()

    mark.unlink()
    path.write_text(text + "# changed\n")
    assert "is not trusted" in world.ok("create", "three", "command", "--", "true").stderr
    assert not mark.exists()

    world.ok("trust")
    world.ok("trust", "--remove")
    world.ok("create", "four", "command", "--", "true")
    assert not mark.exists()


def test_an_untrusted_project_has_no_types_hosts_templates_or_set_up(world: World) -> None:
    mark = world.folder / "ran"
    project(
        world,
        f"""
[types.evil]
argv = ["touch", "{mark}"]
[types.command]
argv = ["touch", "{mark}"]
[templates.evil]
type = "command"
args = ["touch", "{mark}"]
label = ["a=b"]
[hosts.box]
destination = "-oProxyCommand=touch {mark}"
[workdir]
copy = ["README"]
setup = "touch {mark}"
[notify]
command = "touch {mark}"
[commands.create]
env = ["PATH={mark}"]
message = "rm -rf /"
""",
    )
    told = world.ok("config").stderr
    for key in (
        "types",
        "hosts",
        "workdir.setup",
        "workdir.copy",
        "notify",
        "commands.create.env",
        "templates.evil.args",
    ):
        assert key in told, key
    world.fails(2, "create", "one", "evil", "--no-connect")
    world.fails(2, "create", "one", "--template", "evil", "--no-connect", env={"PATH": f"{world.bin}:/usr/bin:/bin"})
    world.ok("create", "two", "command", "--no-connect", "--", "true")
    world.wait_state("two", "done")
    world.fails(6, "create", "three@box", "command", "--no-connect", "--", "true")
    assert not mark.exists()


def test_trust_is_for_one_file_and_one_fleet(world: World) -> None:
    text = '[commands.create]\nconnect_command = "exit 7"\n'
    project(world, text)
    world.ok("trust")
    other = world.make_repo(world.folder / "other")
    (other / ".muster").mkdir()
    (other / ".muster" / "config.toml").write_text(text)
    world.ok("create", "one", "command", "--", "true", cwd=other)
    world.fails(7, "create", "two", "command", "--", "true")
    assert world.ok("trust", "--show", "--json", env={"MUSTER_HOME": str(world.folder / "h2")}).json["trusted"] is False


# Templates


def test_a_template_is_a_set_of_create_options(world: World) -> None:
    user(
        world,
        '[templates.check]\ntype = "command"\nlabel = { kind = "check" }\nenv = ["WHO=template"]\ntimeout = "10m"\n'
        'mode = "copy"\nargs = ["sh", "-c", "echo hello $WHO; sleep 1000"]\n'
        '[templates.more]\nlabel = ["more=yes"]\nmode = "mirror"\n',
    )
    world.ok("create", "one", "--template", "check", "--no-connect")
    row = world.wait_state("one", "working")
    assert (row["type"], row["mode"], row["labels"]) == ("command", "copy", {"kind": "check"})
    eventually(lambda: "hello template" in world.ok("capture", "one").stdout)
    # What is given beats the template, lists are joined, several templates go together.
    world.ok(
        *("create", "two", "command", "--template", "check", "--template", "more", "--label", "mine=1"),
        *("--mode", "worktree", "--env", "WHO=me", "--no-connect", "--", "sh", "-c", "echo bye $WHO; sleep 1000"),
    )
    row = world.wait_state("two", "working")
    assert (row["mode"], row["labels"]) == ("worktree", {"kind": "check", "more": "yes", "mine": "1"})
    eventually(lambda: "bye me" in world.ok("capture", "two").stdout)
    told = world.fails(2, "create", "three", "--template", "chek", "--no-connect").stderr
    assert "no template 'chek'" in told and "'check'" in told


def test_a_flag_beats_a_template_even_with_its_default_value(world: World) -> None:
    user(world, '[templates.t]\ntimeout = "1s"\n')
    world.ok("create", "one", "command", "--template", "t", "--timeout", "0", "--no-connect", "--", "sleep", "1000")
    record = next((world.muster_home / "agents").glob("one-*")) / "agent.json"
    assert '"timeout": 0.0' in record.read_text()


def test_a_template_beats_a_configured_default(world: World) -> None:
    user(world, '[commands.create]\nmode = "mirror"\n[templates.t]\nmode = "copy"\n')
    world.ok("create", "one", "command", "--template", "t", "--no-connect", "--", "true")
    assert world.agents()["one"]["mode"] == "copy"


# Types

PARROT = """#!/bin/sh
say() { "$MUSTER_AGENT_DIR/bin/event" "$@"; }
echo "my args: $*"
say ready
while IFS= read -r line; do
  case $line in kept*) say queued "\\"text\\":\\"$line\\""; sleep 0.5 ;; late*) say queued "\\"text\\":\\"$line\\""; continue ;; esac
  say prompt "\\"text\\":\\"$line\\""
  case $line in
  ask*) say ask '"text":"Which one?"' ;;
  danger*) say permission '"tool":"Bash","detail":"rm"' ; read -r key; say answered '"allowed":true'; say turn-end ;;
  work*) ;;
  bye*) exit 3 ;;
  *) say turn-end '"text":"it said '"$line"'"' ;;
  esac
done
"""


def test_a_type_of_ones_own_is_a_few_lines_and_a_script(world: World) -> None:
    script = program(world, "parrot", PARROT)
    user(
        world,
        f'[types.parrot]\nargv = ["{script}", "--session", "{{session}}", "--name", "{{name}}"]\n'
        'speaks = true\nreceipt = "prompt"\nenv = { COLOUR = "green" }\nyes = ["y", "Enter"]\n',
    )
    world.ok("create", "polly", "parrot", "--no-connect", "-m", "hello", "--", "--loud")
    # The first message is typed and proven before create returns.
    world.ok("wait", "polly", "--until", "ready", "--timeout", "30s")
    assert world.agents()["polly"]["last_line"] == "it said hello"
    assert re.search(r"my args: --session \S+ --name polly --loud", world.ok("capture", "polly").stdout)
    assert world.ok("message", "polly", "-m", "again", "--json").json["results"][0]["result"] == "delivered"
    # Its client had kept it for a moment; one that takes it does not keep it.
    assert world.ok("message", "polly", "-m", "kept", "--json").json["results"][0]["result"] == "delivered"
    assert world.ok("message", "polly", "-m", "later", "--json").json["results"][0]["result"] == "queued"
    world.ok("message", "polly", "-m", "work hard")
    assert world.state("polly") == "working"
    world.ok("message", "polly", "-m", "ask me")
    row = world.wait_state("polly", "waiting")
    assert (row["reason"], row["last_line"]) == ("question", "Which one?")
    assert world.ok("answer", "polly", "the blue one", "--json").json["result"] == "delivered"
    world.ok("message", "polly", "-m", "danger")
    assert world.wait_state("polly", "waiting")["reason"] == "permission"
    world.fails(7, "message", "polly", "-m", "more")
    world.ok("answer", "polly", "yes")
    world.wait_state("polly", "ready")
    world.ok("message", "polly", "-m", "bye")
    row = world.wait_state("polly", "failed")
    assert row["exit_code"] == 3
    world.ok("start", "polly")
    world.wait_state("polly", "ready")


# Work dirs


def test_work_dirs_get_files_links_and_a_set_up(world: World) -> None:
    (world.repo / ".gitignore").write_text(".env\ncache/\nconf/\nmade\n")
    world.git("add", ".gitignore")
    world.git("commit", "-qm", "ignore")
    (world.repo / ".env").write_text("TOKEN=1\n")
    (world.repo / "conf" / "deep").mkdir(parents=True)
    (world.repo / "conf" / "deep" / "x y.ini").write_text("x\n")
    (world.repo / "cache").mkdir()
    (world.repo / "cache" / "big").write_text("big\n")
    user(
        world,
        '[workdir]\ncopy = [".env", "conf/**/*.ini", "nothing*"]\nlink = ["cache"]\nsetup = "pwd > made; cat .env >> made"\n',
    )
    world.ok("create", "one", "command", "--no-connect", "--", "sleep", "1000")
    workdir = world.agents()["one"]["workdir"]
    assert world.ok("exec", "one", "--", "cat", "made").stdout == f"{workdir}\nTOKEN=1\n"
    assert world.ok("exec", "one", "--", "cat", "conf/deep/x y.ini").stdout == "x\n"
    assert os.path.realpath(f"{workdir}/cache") == str(world.repo / "cache")
    assert not os.path.islink(f"{workdir}/.env")
    world.ok("exec", "one", "--", "sh", "-c", "echo changed > .env; echo new > cache/new")
    assert (world.repo / ".env").read_text() == "TOKEN=1\n"
    assert (world.repo / "cache" / "new").exists()
    # A shared folder outlives the agent.
    world.ok("destroy", "one")
    assert (world.repo / "cache" / "big").read_text() == "big\n"


def test_a_set_up_that_fails_leaves_no_agent_and_says_why(world: World) -> None:
    user(world, '[workdir]\nsetup = "echo no compiler here >&2; exit 3"\n')
    told = world.fails(1, "create", "one", "command", "--no-connect", "--", "true").stderr
    assert "[workdir] setup" in told and "no compiler here" in told
    assert world.agents() == {}
    assert world.git("branch", "--list", "muster/*") == ""
    user(world, '[workdir]\ncopy = ["../secret"]\n')
    (world.folder / "secret").write_text("s")
    assert "outside of the project" in world.fails(2, "create", "one", "command", "--", "true").stderr
    user(world, "")
    world.ok("create", "one", "command", "--no-connect", "--", "true")


# Around muster


def test_a_program_on_path_is_a_verb(world: World) -> None:
    program(world, "muster-foo", '#!/bin/sh\necho "foo got <$1> <$2>"; cat; exit 9\n')
    result = world.fails(9, "foo", "a b", "--json", input=b"and stdin")
    assert result.stdout == "foo got <a b> <--json>\nand stdin"
    # It cannot take the place of a verb.
    program(world, "muster-list", "#!/bin/sh\necho mine\n")
    assert "mine" not in world.ok("list").stdout
    world.fails(2, "bar")


def test_colours_are_for_terminals_and_no_color_turns_them_off(world: World) -> None:
    world.ok("create", "one", "command", "--no-connect", "--", "sleep", "1000")
    muster = str(world.bin / "muster")
    assert "\x1b[" in run_in_terminal(world, muster, "list")
    for env in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        shown = run_in_terminal(world, muster, "list", env=env)
        assert "\x1b" not in shown and "one" in shown
    assert "\x1b[" in run_in_terminal(world, muster, "list", env={"NO_COLOR": ""})
    assert "\x1b" not in world.ok("list").stdout


def test_muster_home_is_a_fleet_of_its_own_however_deep_its_path_is(world: World) -> None:
    world.ok("create", "one", "command", "--no-connect", "--", "sleep", "1000")
    deep = world.folder / "/".join(["a-rather-long-name-for-a-folder"] * 6)
    env = {"MUSTER_HOME": str(deep)}
    assert world.ok("list", "--json", env=env).json["agents"] == []
    try:
        world.ok("create", "two", "command", "--no-connect", "--", "sh", "-c", "echo deep; sleep 1000", env=env)
        eventually(lambda: "deep" in world.ok("capture", "two", env=env).stdout)
        assert list(world.agents()) == ["one"]
    finally:
        world.ok("stop", "--all", "--grace", "0", env=env)
    assert world.state("one") == "working"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_are_valid_and_know_every_verb(world: World, shell: str) -> None:
    script = world.ok("completion", shell).stdout
    for verb in VERBS:
        assert re.search(rf"\b{verb}\b", script)
    assert "connect-command" in script and "name-only" in script
    if shutil.which(shell):
        done = subprocess.run([shell, "-n"], input=script, capture_output=True, text=True, check=False)
        assert done.returncode == 0 and not done.stderr


def test_bash_completes_verbs_options_and_agents(world: World) -> None:
    for name in ("fix-one", "fix-two", "other"):
        world.ok("create", name, "command", "--no-connect", "--", "sleep", "1000")

    def complete(*words: str) -> list[str]:
        line = " ".join(f"'{word}'" for word in ("muster", *words))
        script = f'eval "$(muster completion bash)"; COMP_WORDS=({line}); COMP_CWORD={len(words)}; _muster; printf "%s\\n" "${{COMPREPLY[@]}}"'
        done = subprocess.run(
            ["bash", "-c", script], cwd=world.repo, env=world.env, capture_output=True, text=True, check=True
        )
        assert done.stderr == ""
        return done.stdout.split()

    assert complete("des") == ["destroy"]
    assert complete("s") == ["snapshot", "stop", "start"]
    assert complete("diff", "x", "--na") == ["--name-only"]
    assert complete("stop", "fix") == ["fix-one", "fix-two"]
    assert complete("create", "x", "--mo") == ["--mode"]
    assert complete("man", "REA") == ["README"]
    assert complete("tut") == ["tutorial"]
    assert complete("tutorial", "") == list(actions("tutorial"))
    assert complete("tutorial", "ch") == ["check"]
    assert complete("tutorial", "check", "--str") == ["--strict"]
    assert complete("tutorial", "list", "--str") == []
    assert complete("tutorial", "list", "REA") == ["README"]


def test_manual_pages_render(world: World) -> None:
    renderers = [["man", "-l", "-"], ["groff", "-man", "-Tutf8", "-ww"], ["mandoc"]]
    usable = [argv for argv in renderers if shutil.which(argv[0])]
    for verb in ("create", "list", "exec", "tutorial check"):
        roff = world.ok("man", *verb.split(), "--roff").stdout
        assert roff == world.ok("man", dashed(verb), "--roff").stdout
        assert roff.startswith(".TH MUSTER\\-" + dashed(verb).upper().replace("-", "\\-") + " 1")
        plain = world.ok("man", *verb.split()).stdout
        assert plain.startswith(f"Usage: muster {verb}")
        for argv in usable:
            env = {**world.env, "MANPAGER": "cat", "MANROFFOPT": "-ww", "TERM": "dumb", "MANWIDTH": "120"}
            done = subprocess.run(argv, input=roff, env=env, capture_output=True, text=True, check=False)
            assert done.returncode == 0 and not done.stderr, f"{argv}: {done.stderr}"
            text = re.sub(r".\x08|\x1b\[[0-9;]*m", "", done.stdout)
            # What can be typed must come out as ASCII, or it cannot be copied.
            assert f"muster {verb}" in text and "--json" in text and "Examples:" in text, argv
    folder = world.folder / "man1"
    world.ok("man", "--all", str(folder))
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        ["muster.1", *(f"muster-{dashed(verb)}.1" for verb in VERBS)]
    )


def test_a_verb_of_two_words_is_configured_by_its_words_joined(world: World) -> None:
    (world.repo / "tutorial.sh").write_text("# Say a.\necho a\n")
    (world.repo / "other.sh").write_text("# Say b.\necho b\n\n# Later\n")
    listed = ("tutorial", "list", "--json")
    world.ok("config", "set", "commands.tutorial-list.kind", "heading")
    assert [row["comment"] for row in world.ok(*listed, "other.sh").json["blocks"]] == ["Later"]
    env = {"MUSTER_TUTORIAL_LIST_KIND": "commands"}
    assert [row["comment"] for row in world.ok(*listed, "other.sh", env=env).json["blocks"]] == ["Say b."]
    world.ok("config")
    # A project may say which tutorial is its own without being trusted.
    project(world, '[commands.tutorial-check]\ntutorial = "other.sh"\ntests = ["src"]\n')
    told = world.fails(1, "tutorial", "check", "--json")
    assert told.json["tutorial"] == "other.sh"
    assert "commands.tutorial-check.tests left out" in told.stderr
    assert (
        "has no option 'strickt'" in world.fails(2, "config", "set", "commands.tutorial-check.strickt", "true").stderr
    )
    assert "'tutorial-check'" in world.fails(2, "config", "set", "commands.tutorial-chek.strict", "true").stderr
    assert (
        "MUSTER_TUTORIAL_CHECK_NO has no option"
        in world.fails(2, "tutorial", "check", env={"MUSTER_TUTORIAL_CHECK_NO": "1"}).stderr
    )


def test_without_a_terminal_nothing_is_ever_asked(world: World) -> None:
    """stdin is closed or empty: every verb that changes something acts or refuses, it does not wait."""
    world.ok("create", "one", "command", "--no-connect", "--", "sleep", "1000", timeout=20)
    world.ok("destroy", "one", timeout=20)
    world.ok("gc", "--yes", timeout=20)
    world.ok("restore", "one", timeout=20)


@pytest.mark.parametrize(
    ("verb", "keys"),
    [
        (("improve", "--dry-run", "no/such"), "types, improve, permissions"),
        (("map", "--items", "/no/such", "--", "true"), "types, permissions"),
        (("create", "one", "no-such-type"), "types, permissions"),
        (("list",), ""),
        (("runs",), ""),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_each_verb_says_what_of_an_untrusted_project_it_would_have_used(
    world: World, verb: tuple[str, ...], keys: str
) -> None:
    (world.repo / ".muster").mkdir()
    path = world.repo / ".muster" / "config.toml"
    path.write_text('[types.x]\nargv = ["true"]\n[improve]\npytest = ["false"]\n[permissions]\nallow = ["x"]\n')
    said = [line for line in world.run(*verb, timeout=100).stderr.splitlines() if "not trusted" in line]
    assert said == ([f"{path} is not trusted: {keys} left out (muster trust)"] if keys else [])
    world.ok("trust")
    assert "not trusted" not in world.run(*verb, timeout=100).stderr
