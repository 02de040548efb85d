"""Tutorial section 14, Configuration: which setting is in force, who may set it, and what a slip is answered with."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from muster.tutorial import E2eSession, expect

from ..conftest import eventually
from .conftest import agents, outside, repository


def mine(e2e: E2eSession) -> Path:
    """The user's file."""
    return e2e.home / ".config" / "muster" / "config.toml"


def add(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(text)
    return path


def project(e2e: E2eSession, text: str) -> Path:
    return add(e2e.work / ".muster" / "config.toml", text)


def ignored(e2e: E2eSession, *names: str) -> None:
    """Names that git is told not to have."""
    (e2e.work / ".gitignore").write_text("".join(f"{name}\n" for name in names))
    outside(e2e, "git", "add", ".gitignore")
    outside(e2e, "git", "commit", "-q", "-m", "ignore")


def ended(e2e: E2eSession, name: str) -> dict[str, Any]:
    outside(e2e, "muster", "wait", name, "--until", "done", "--timeout", "30s")
    return agents(e2e)[name]


def at_work(e2e: E2eSession, name: str) -> bool:
    outside(e2e, "muster", "wait", name, "--until", "working", "--timeout", "30s")
    return bool(agents(e2e)[name]["state"] == "working")


PREPARED = """
[workdir]
copy = [".env"]
link = ["cache"]
setup = "echo prepared > .prepared"
"""


def prepared_project(e2e: E2eSession) -> Path:
    """A project as the block on [workdir] leaves it, with names that git ignores."""
    ignored(e2e, ".env", ".prepared", "/cache", ".muster")
    (e2e.work / ".env").write_text("DB_NAME=shop\n")
    (e2e.work / "cache").mkdir()
    return project(e2e, PREPARED)


# Looking at it


def test_config_path_names_the_users_file_and_then_the_projects(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Where are the files? Yours, and the project's if it has one.
    muster config path
    """)
    alone = e2e.run("muster config path", comment="Where are the files? Yours,")
    expect(alone).to_succeed()
    expect(alone.stdout).to_equal(f"{mine(e2e)}\n")

    of_project = project(e2e, '[commands.create]\nmode = "mirror"\n')
    both = e2e.run("muster config path", comment="and the project's if it has one, from a folder in it too.", cwd="src")
    expect(both.stdout).to_equal(f"{mine(e2e)}\n{of_project}\n")


def test_config_path_follows_xdg_config_home(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Where are the files? Yours, and the project's if it has one.
    muster config path
    """)
    moved = e2e.run("muster config path", env={"XDG_CONFIG_HOME": str(e2e.home / "elsewhere")})
    expect(moved.stdout).to_equal(f"{e2e.home}/elsewhere/muster/config.toml\n")


def test_config_and_config_show_both_show_what_is_in_force(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # What is in force? This also checks every key.
    muster config
    muster config show
    """)
    add(mine(e2e), '[commands.list]\nformat = "{name}"\n')
    of_project = project(e2e, '[commands.list]\nformat = "{state}"\n[notify]\ncommand = "true"\n')
    short = e2e.run("muster config", comment="What is in force? This also checks every key.")
    expect(short).to_succeed()
    expect(short.stdout).to_contain('commands.create.connect_command = "muster-e2e-connect"\n')
    expect(short.stdout).to_contain('commands.list.format = "{state}"\n')
    expect(short.stdout).not_to_contain("notify")
    expect(short.stderr).to_equal(
        f"# {mine(e2e)}\n# {of_project}\nnot in force before `muster trust`: notify\n",
    )

    long = e2e.run("muster config show")
    expect(long.stdout).to_equal(short.stdout)


@pytest.mark.parametrize(
    ("text", "says", "hint"),
    [
        ('[commands.stop]\ngrase = "1s"\n', "[commands.stop] has no option 'grase'", "did you mean 'grace'?"),
        ("[commands.lst]\nhere = true\n", "there is no verb 'lst'", "did you mean 'list'?"),
        ('[templats.check]\ntype = "command"\n', "there is no section [templats]", "did you mean 'templates'?"),
        ("[workdir]\nlinks = []\n", "[workdir] has no key 'links'", "did you mean 'link'?"),
        ("[commands.create\n", "is not valid TOML", "config.toml"),
    ],
    ids=["option", "verb", "section", "key", "toml"],
)
def test_config_finds_a_slip_anywhere_in_the_file(e2e: E2eSession, text: str, says: str, hint: str) -> None:
    e2e.write_tutorial_block("""
    # What is in force? This also checks every key.
    muster config
    muster config show
    """)
    add(mine(e2e), text)
    for command in ("muster config", "muster config show"):
        result = e2e.run(command)
        expect(result).to_exit_with(2)
        expect(result.stdout).to_be_empty()
        expect(result.stderr).to_contain(says)
        expect(result.stderr).to_contain(hint)


# Setting and reading one key


def test_config_set_writes_one_line_that_create_obeys(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # A default for any option of any verb: [commands.VERB] option = value.
    muster config set commands.create.mode worktree
    """)
    before = mine(e2e).read_text()
    result = e2e.run("muster config set commands.create.mode worktree", comment="A default for any option of any verb.")
    expect(result).to_succeed()
    expect(result.stderr).to_equal(f"set commands.create.mode in {mine(e2e)}\n")
    after = mine(e2e).read_text()
    assert tomllib.loads(after)["commands"]["create"]["mode"] == "worktree"
    assert sorted(after.splitlines()) == sorted([*before.splitlines(), 'mode = "worktree"'])

    e2e.run("muster config set commands.create.mode mirror", comment="Another value takes its place.")
    assert mine(e2e).read_text() == after.replace("worktree", "mirror")
    outside(e2e, "muster", "create", "one", "command", "--no-connect", "--", "true")
    assert agents(e2e)["one"]["mode"] == "mirror"


def test_other_verbs_have_defaults_too(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # A default for any option of any verb: [commands.VERB] option = value.
    muster config set commands.create.mode worktree
    """)
    outside(e2e, "muster", "create", "one", "command", "--no-connect", "--", "true")
    expect(e2e.run("muster config set commands.list.format '{name} in {mode}'")).to_succeed()
    expect(e2e.run("muster list").stdout).to_equal("one in worktree\n")


@pytest.mark.parametrize(
    ("words", "says", "hint"),
    [
        ("commands.create.moed worktree", "[commands.create] has no option 'moed'", "did you mean 'mode'?"),
        ("commands.crate.mode worktree", "there is no verb 'crate'", "did you mean 'create'?"),
        ("comands.create.mode worktree", "there is no section [comands]", "did you mean 'commands'?"),
        ("commands.create.mode tree", "mode must be one of worktree, mirror, copy, in-place", "muster config --help"),
        ("mode worktree", "'mode' is in no section", "commands.create.mode"),
        ("commands.create.mode", "set needs a key and a value", "muster config set commands.create.mode mirror"),
    ],
    ids=["option", "verb", "section", "value", "no section", "no value"],
)
def test_config_set_refuses_a_slip_and_leaves_the_file_alone(e2e: E2eSession, words: str, says: str, hint: str) -> None:
    e2e.write_tutorial_block("""
    # A default for any option of any verb: [commands.VERB] option = value.
    muster config set commands.create.mode worktree
    """)
    before = mine(e2e).read_text()
    result = e2e.run(f"muster config set {words}")
    expect(result).to_exit_with(2)
    expect(result.stderr).to_contain(says)
    expect(result.stderr).to_contain(hint)
    assert mine(e2e).read_text() == before


@pytest.mark.parametrize(
    "text",
    ['[commands.list]\nstate = [\n  "ready",\n]\n', 'commands.list.state = ["ready"]\n'],
    ids=["over several lines", "dotted"],
)
def test_config_set_keeps_a_file_that_is_written_otherwise_readable(e2e: E2eSession, text: str) -> None:
    e2e.write_tutorial_block("""
    # A default for any option of any verb: [commands.VERB] option = value.
    muster config set commands.create.mode worktree
    """)
    mine(e2e).write_text(text)
    e2e.run("""muster config set commands.list.state '["waiting"]'""", comment="The value is there in another form.")
    shown = e2e.run("muster config")
    expect(shown).to_succeed()
    expect(shown.stdout).to_equal('commands.list.state = ["waiting"]\n')


def test_config_get_prints_the_value_that_is_in_force(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Read one key.
    muster config get commands.create.mode
    """)
    outside(e2e, "muster", "config", "set", "commands.create.mode", "worktree")
    result = e2e.run("muster config get commands.create.mode", comment="Read one key.")
    expect(result).to_succeed()
    expect(result.stdout).to_equal("worktree\n")

    project(e2e, '[commands.create]\nmode = "copy"\n')
    inside = e2e.run("muster config get commands.create.mode", comment="The project's file beats mine.")
    expect(inside.stdout).to_equal("copy\n")


def test_config_get_of_a_key_that_is_not_set_is_not_found(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Read one key.
    muster config get commands.create.mode
    """)
    result = e2e.run("muster config get commands.create.mode")
    expect(result).to_exit_with(3)
    expect(result.stdout).to_be_empty()
    expect(result.stderr).to_equal("muster: commands.create.mode is not set\n  muster config shows what is\n")


@pytest.mark.parametrize(("key", "value"), [("commands.list.here", "true"), ("commands.create.label", '["team=shop"]')])
def test_what_config_get_prints_can_be_set_again(e2e: E2eSession, key: str, value: str) -> None:
    e2e.write_tutorial_block("""
    # Read one key.
    muster config get commands.create.mode
    """)
    outside(e2e, "muster", "config", "set", key, value)
    got = e2e.run(f"muster config get {key}")
    expect(got.stdout).to_equal(f"{value}\n")


def test_config_get_without_a_key_says_what_is_missing(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Read one key.
    muster config get commands.create.mode
    """)
    result = e2e.run("muster config get")
    expect(result).to_exit_with(2)
    expect(result.stderr).to_contain("key")


def test_a_setting_of_the_project_is_for_agents_of_this_project_only(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # For everybody who works on this project: the same, in .muster/config.toml.
    muster config set commands.create.label '["team=shop"]' --project
    """)
    before = mine(e2e).read_text()
    result = e2e.run(
        """muster config set commands.create.label '["team=shop"]' --project""",
        comment="For everybody who works on this project.",
    )
    expect(result).to_succeed()
    assert (e2e.work / ".muster" / "config.toml").read_text() == '[commands.create]\nlabel = ["team=shop"]\n'
    assert mine(e2e).read_text() == before

    other = e2e.home / "other"
    repository(e2e, other)
    e2e.run("muster create here command --no-connect --label run=1 -- true")
    e2e.run("muster create elsewhere command --no-connect -- true", cwd=other)
    labels = {name: one["labels"] for name, one in agents(e2e).items()}
    assert labels == {"here": {"team": "shop", "run": "1"}, "elsewhere": {}}


def test_a_setting_of_the_project_changes_the_file_that_is_there(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # For everybody who works on this project: the same, in .muster/config.toml.
    muster config set commands.create.label '["team=shop"]' --project
    """)
    path = project(e2e, '# ours\n[commands.create]\nmode = "mirror"\n')
    e2e.run("""muster config set commands.create.label '["team=shop"]' --project""", cwd="src")
    assert path.read_text() == '# ours\n[commands.create]\nlabel = ["team=shop"]\nmode = "mirror"\n'
    assert not (e2e.work / "src" / ".muster").exists()


def test_the_first_setting_of_a_project_goes_to_the_top_of_its_repository(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # For everybody who works on this project: the same, in .muster/config.toml.
    muster config set commands.create.label '["team=shop"]' --project
    """)
    e2e.run("""muster config set commands.create.label '["team=shop"]' --project""", cwd="src")
    assert (e2e.work / ".muster" / "config.toml").exists()


# Which one wins


def test_a_flag_beats_a_variable_beats_the_project_beats_mine(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # A flag beats a MUSTER_VERB_OPTION variable, that beats the project's file, that beats yours.
    MUSTER_CREATE_MODE=mirror muster create by-variable command --no-connect -- true
    MUSTER_CREATE_MODE=mirror muster create by-flag command --mode copy --no-connect -- true
    """)
    outside(e2e, "muster", "config", "set", "commands.create.mode", "copy")
    e2e.run("muster create by-mine command --no-connect -- true")
    project(e2e, '[commands.create]\nmode = "worktree"\n')
    e2e.run("muster create by-project command --no-connect -- true")
    for command in (
        "MUSTER_CREATE_MODE=mirror muster create by-variable command --no-connect -- true",
        "MUSTER_CREATE_MODE=mirror muster create by-flag command --mode copy --no-connect -- true",
    ):
        expect(e2e.run(command)).to_succeed()
    modes = {name: one["mode"] for name, one in agents(e2e).items()}
    assert modes == {"by-mine": "copy", "by-project": "worktree", "by-variable": "mirror", "by-flag": "copy"}


@pytest.mark.parametrize(
    ("variable", "says", "hint"),
    [
        ("MUSTER_CREATE_MODE=tree", "must be one of worktree, mirror, copy, in-place", "muster create --help"),
        ("MUSTER_CREATE_MOED=mirror", "MUSTER_CREATE_MOED has no option 'moed'", "did you mean 'mode'?"),
    ],
)
def test_a_slip_in_a_variable_makes_no_agent(e2e: E2eSession, variable: str, says: str, hint: str) -> None:
    e2e.write_tutorial_block("""
    # A flag beats a MUSTER_VERB_OPTION variable, that beats the project's file, that beats yours.
    MUSTER_CREATE_MODE=mirror muster create by-variable command --no-connect -- true
    MUSTER_CREATE_MODE=mirror muster create by-flag command --mode copy --no-connect -- true
    """)
    result = e2e.run(f"{variable} muster create by-variable command --no-connect -- true")
    expect(result).to_exit_with(2)
    expect(result.stderr).to_contain(says)
    expect(result.stderr).to_contain(hint)
    assert agents(e2e) == {}


# A command after create


def test_a_command_of_mine_runs_after_create_instead_of_attaching(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Run a command of yours after every create instead of attaching.
    muster config set commands.create.connect_command 'echo "made $MUSTER_ADDRESS"'
    muster create announced command -- sleep 60
    """)
    expect(
        e2e.run(
            """muster config set commands.create.connect_command 'echo "made $MUSTER_ADDRESS"'""",
            comment="Run a command of yours after every create instead of attaching.",
        )
    ).to_succeed()
    result = e2e.run("muster create announced command -- sleep 60")
    expect(result).to_succeed()
    assert sorted(result.stdout.splitlines()) == ["announced", "made announced"]
    assert at_work(e2e, "announced")

    quiet = e2e.run("muster create quiet command --no-connect -- sleep 60", comment="Not this time.")
    expect(quiet.stdout).to_equal("quiet\n")


def test_the_name_of_the_agent_comes_before_what_the_command_prints(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Run a command of yours after every create instead of attaching.
    muster config set commands.create.connect_command 'echo "made $MUSTER_ADDRESS"'
    muster create announced command -- sleep 60
    """)
    outside(e2e, "muster", "config", "set", "commands.create.connect_command", 'echo "made $MUSTER_ADDRESS"')
    result = e2e.run("muster create announced command -- sleep 60")
    expect(result.stdout).to_equal("announced\nmade announced\n")


def test_an_agent_is_there_when_the_command_after_create_fails(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Run a command of yours after every create instead of attaching.
    muster config set commands.create.connect_command 'echo "made $MUSTER_ADDRESS"'
    muster create announced command -- sleep 60
    """)
    outside(e2e, "muster", "config", "set", "commands.create.connect_command", "exit 9")
    result = e2e.run("muster create announced command -- sleep 60")
    expect(result).to_exit_with(9)
    expect(result.stdout).to_equal("announced\n")
    assert at_work(e2e, "announced")


# Prices

PRICES = """cat >> "${XDG_CONFIG_HOME:-$HOME/.config}/muster/config.toml" <<'END'
[prices."our-model-1.5"]
input = 3.0
output = 15.0
cache_read = 0.3
cache_write = 3.75
END
muster list --format '{name} {cost_usd}'"""


def make_used(e2e: E2eSession, name: str, model: str) -> None:
    """An agent that has used a million tokens of a model, and answered with a hundred thousand."""
    play = f'[[step]]\nsay = "Done."\nmodel = "{model}"\ninput_tokens = 1000000\noutput_tokens = 100000\n'
    (e2e.work.parent / f"{name}.toml").write_text(play)
    outside(e2e, "muster", "create", name, "replay", "--no-connect", "--", f"../{name}.toml")
    outside(e2e, "muster", "wait", name, "--until", "ready", "--timeout", "30s")


def test_a_price_of_mine_makes_the_cost_of_an_unknown_model_known(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # A price of your own, in dollars for a million tokens: of a model that the price library does not know, or that you get for less.
    cat >> "${XDG_CONFIG_HOME:-$HOME/.config}/muster/config.toml" <<'END'
    [prices."our-model-1.5"]
    input = 3.0
    output = 15.0
    cache_read = 0.3
    cache_write = 3.75
    END
    muster list --format '{name} {cost_usd}'
    """)
    make_used(e2e, "ours", "our-model-1.5")
    expect(e2e.run("muster list --format '{name} {cost_usd}'", comment="Before.").stdout).to_equal("ours \n")
    result = e2e.run(PRICES, comment="A price of your own.")
    expect(result).to_succeed()
    expect(result.stdout).to_equal("ours 4.5\n")


def test_a_price_of_mine_beats_the_librarys(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # A price of your own, in dollars for a million tokens: of a model that the price library does not know, or that you get for less.
    cat >> "${XDG_CONFIG_HOME:-$HOME/.config}/muster/config.toml" <<'END'
    [prices."our-model-1.5"]
    input = 3.0
    output = 15.0
    cache_read = 0.3
    cache_write = 3.75
    END
    muster list --format '{name} {cost_usd}'
    """)
    make_used(e2e, "theirs", "gpt-5")
    expect(e2e.run("muster list --format '{name} {cost_usd}'", comment="As published.").stdout).to_equal(
        "theirs 2.25\n"
    )
    result = e2e.run(PRICES.replace("our-model-1.5", "gpt-5"), comment="We pay otherwise.")
    expect(result.stdout).to_equal("theirs 4.5\n")


@pytest.mark.parametrize(
    ("text", "says", "hint"),
    [
        ('[prices."m-1.5"]\ninputs = 3\n', "[prices.\"m-1.5\"] has no key 'inputs'", "did you mean 'input'?"),
        ('[prices.m]\ninput = "3"\n', "[prices.m] input must be dollars for a million tokens", "input = 3.0"),
        ("[prices.m]\ninput = -3\n", "[prices.m] input must be dollars for a million tokens", "input = 3.0"),
        ("[prices.m]\ninput = nan\n", "[prices.m] input must be dollars for a million tokens", "input = 3.0"),
        ("[prices.m]\ninput = true\n", "[prices.m] input must be dollars for a million tokens", "input = 3.0"),
        ("[prices.m-1.5]\ninput = 3\n", "[prices.m-1] has a section '5'", 'has quotes: [prices."gpt-4.1"]'),
        ("[prices]\ninput = 3\n", "[prices] input must be a section", "--help"),
    ],
    ids=["key", "text", "negative", "nan", "true", "no quotes", "no model"],
)
def test_a_slip_in_a_price_is_named(e2e: E2eSession, text: str, says: str, hint: str) -> None:
    e2e.write_tutorial_block("""
    # A price of your own, in dollars for a million tokens: of a model that the price library does not know, or that you get for less.
    cat >> "${XDG_CONFIG_HOME:-$HOME/.config}/muster/config.toml" <<'END'
    [prices."our-model-1.5"]
    input = 3.0
    output = 15.0
    cache_read = 0.3
    cache_write = 3.75
    END
    muster list --format '{name} {cost_usd}'
    """)
    add(mine(e2e), text)
    for command in ("muster config", "muster list"):
        result = e2e.run(command)
        expect(result).to_exit_with(2)
        expect(result.stderr).to_contain(says)
        expect(result.stderr).to_contain(hint)


def test_a_price_is_set_and_read_key_by_key(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Or key by key. A name with a dot in it stands in quotes.
    muster config set 'prices."our-model-1.5".input' 2.5
    muster config get 'prices."our-model-1.5".input'
    """)
    add(mine(e2e), '[prices."our-model-1.5"]\ninput = 3.0\noutput = 15.0\n')
    before = mine(e2e).read_text()
    expect(e2e.run("""muster config set 'prices."our-model-1.5".input' 2.5""", comment="Or key by key.")).to_succeed()
    assert mine(e2e).read_text() == before.replace("input = 3.0", "input = 2.5")
    expect(e2e.run("""muster config get 'prices."our-model-1.5".input'""").stdout).to_equal("2.5\n")
    expect(e2e.run("muster config").stdout).to_contain('prices."our-model-1.5".input = 2.5\n')


@pytest.mark.parametrize(
    ("words", "says", "hint"),
    [
        ("""'prices."m-1.5".inptu' 2""", "[prices.\"m-1.5\"] has no key 'inptu'", "did you mean 'input'?"),
        ("prices.m-1.5.input 2", "[prices.m-1] has a section '5'", 'has quotes: [prices."gpt-4.1"]'),
        ("""'prices."m-1.5' 2""", "is not a key", 'prices."gpt-4.1".input'),
        ("prices.m.input cheap", "input must be dollars for a million tokens", "input = 3.0"),
    ],
    ids=["key", "no quotes", "half a quote", "text"],
)
def test_a_price_that_is_none_is_not_set(e2e: E2eSession, words: str, says: str, hint: str) -> None:
    e2e.write_tutorial_block("""
    # Or key by key. A name with a dot in it stands in quotes.
    muster config set 'prices."our-model-1.5".input' 2.5
    muster config get 'prices."our-model-1.5".input'
    """)
    before = mine(e2e).read_text()
    result = e2e.run(f"muster config set {words}")
    expect(result).to_exit_with(2)
    expect(result.stderr).to_contain(says)
    expect(result.stderr).to_contain(hint)
    assert mine(e2e).read_text() == before


# Being told

ASKS = """
[[step]]
run = "true"
[[step]]
ask = "Which colour? $(touch evil)"
"""
SET_NOTIFY = (
    """muster config set notify.command 'notify-send "$MUSTER_AGENT is $MUSTER_NOTIFY_STATE" "$MUSTER_NOTIFY_TEXT"'"""
)


def desktop(e2e: E2eSession) -> Path:
    """A `notify-send` that writes its words down, and the file in which it does."""
    told = e2e.home / "told"
    program = e2e.home / "bin" / "notify-send"
    program.write_text(f"#!/bin/sh\nprintf '%s|' \"$@\" >>'{told}'\n")
    program.chmod(0o755)
    (e2e.work.parent / "ask.toml").write_text(ASKS)
    return told


def test_an_agent_that_has_a_question_says_so_on_the_desktop(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Be told when an agent waits for you, is ready or has failed. The agent is in the command's environment; docs/notify.md has all variables.
    muster config set notify.command 'notify-send "$MUSTER_AGENT is $MUSTER_NOTIFY_STATE" "$MUSTER_NOTIFY_TEXT"'
    muster create nosy replay --no-connect -- ../ask.toml
    """)
    told = desktop(e2e)
    expect(e2e.run(SET_NOTIFY, comment="Be told when an agent waits for you.")).to_succeed()
    expect(e2e.run("muster create nosy replay --no-connect -- ../ask.toml")).to_succeed()
    eventually(told.exists)
    eventually(lambda: told.read_text() == "nosy is waiting|Which colour? $(touch evil)|")
    assert not list(e2e.home.rglob("evil")) and not list(e2e.work.parent.rglob("evil"))

    expect(e2e.run("muster answer nosy green", comment="It goes on, and is ready.")).to_succeed()
    eventually(lambda: "|nosy is ready|" in told.read_text())


def test_a_program_that_is_not_there_to_tell_troubles_no_agent(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Be told when an agent waits for you, is ready or has failed. The agent is in the command's environment; docs/notify.md has all variables.
    muster config set notify.command 'notify-send "$MUSTER_AGENT is $MUSTER_NOTIFY_STATE" "$MUSTER_NOTIFY_TEXT"'
    muster create nosy replay --no-connect -- ../ask.toml
    """)
    desktop(e2e)
    (e2e.home / "bin" / "notify-send").write_text("#!/bin/sh\necho no desktop here >&2\nexit 1\n")
    expect(e2e.run(SET_NOTIFY)).to_succeed()
    expect(e2e.run("muster create nosy replay --no-connect -- ../ask.toml")).to_succeed()
    expect(e2e.run("muster wait nosy --until waiting --timeout 60s")).to_succeed()
    expect(e2e.run("muster capture nosy", comment="Nothing of it is on the agent's screen.").stdout).not_to_contain(
        "desktop"
    )

    refused = e2e.run("muster config set notify.command 7", comment="It is a command line.")
    expect(refused).to_exit_with(2)
    expect(refused.stderr).to_contain("[notify] command must be text")


def test_only_the_states_that_were_chosen_are_told(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Choose which states you want to hear of. Agents take it with their next start.
    muster config set notify.on '["waiting", "failed", "done"]'
    """)
    told = desktop(e2e)
    outside(e2e, "sh", "-c", SET_NOTIFY)
    outside(e2e, "muster", "create", "early", "command", "--no-connect", "--", "true")
    ended(e2e, "early")
    expect(e2e.run("""muster config set notify.on '["waiting", "failed", "done"]'""")).to_succeed()
    expect(e2e.run("muster start early", comment="Agents take it with their next start.")).to_succeed()
    eventually(told.exists)
    eventually(lambda: told.read_text() == "early is done||")


def test_a_state_that_cannot_be_told_is_refused(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Choose which states you want to hear of. Agents take it with their next start.
    muster config set notify.on '["waiting", "failed", "done"]'
    """)
    slip = e2e.run("""muster config set notify.on '["wating"]'""")
    expect(slip).to_exit_with(2)
    expect(slip.stderr).to_contain("[notify] on has no state 'wating'")
    expect(slip.stderr).to_contain("known: waiting, ready, failed, alert, done, lost")
    assert "notify" not in mine(e2e).read_text()


# Templates and types


def test_a_template_gives_an_agent_its_type_labels_and_command(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # A set of create options under a name. `args` is what would stand behind --.
    mkdir -p "${XDG_CONFIG_HOME:-$HOME/.config}/muster"
    cat >> "${XDG_CONFIG_HOME:-$HOME/.config}/muster/config.toml" <<'END'
    [templates.check]
    type = "command"
    label = { kind = "check" }
    timeout = "10m"
    args = ["git", "fsck"]
    END
    muster create checked --template check --no-connect
    """)
    lost = outside(e2e, "git", "commit-tree", "HEAD^{tree}", "-m", "lost").strip()
    result = e2e.run(
        """mkdir -p "${XDG_CONFIG_HOME:-$HOME/.config}/muster"
cat >> "${XDG_CONFIG_HOME:-$HOME/.config}/muster/config.toml" <<'END'
[templates.check]
type = "command"
label = { kind = "check" }
timeout = "10m"
args = ["git", "fsck"]
END
muster create checked --template check --no-connect""",
        comment="A set of create options under a name.",
    )
    expect(result).to_succeed()
    expect(result.stdout).to_equal("checked\n")
    one = ended(e2e, "checked")
    assert (one["type"], one["labels"], one["exit_code"]) == ("command", {"kind": "check"}, 0)
    expect(e2e.run("muster capture checked", comment="git fsck ran.").stdout).to_contain(f"dangling commit {lost}")


def test_the_time_of_a_template_ends_its_agent_and_a_flag_beats_it(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # A set of create options under a name. `args` is what would stand behind --.
    mkdir -p "${XDG_CONFIG_HOME:-$HOME/.config}/muster"
    cat >> "${XDG_CONFIG_HOME:-$HOME/.config}/muster/config.toml" <<'END'
    [templates.check]
    type = "command"
    label = { kind = "check" }
    timeout = "10m"
    args = ["git", "fsck"]
    END
    muster create checked --template check --no-connect
    """)
    add(mine(e2e), '[templates.check]\ntype = "command"\ntimeout = "0.5s"\nargs = ["sleep", "60"]\n')
    e2e.run("muster create checked --template check --no-connect")
    e2e.run("muster create longer --template check --timeout 10m --no-connect")
    expect(e2e.run("muster wait checked --until failed --timeout 20s")).to_succeed()
    states = {name: (one["state"], one["reason"]) for name, one in agents(e2e).items()}
    assert states == {"checked": ("failed", "timeout"), "longer": ("working", None)}


def test_a_template_that_is_not_there_makes_no_agent(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # A set of create options under a name. `args` is what would stand behind --.
    mkdir -p "${XDG_CONFIG_HOME:-$HOME/.config}/muster"
    cat >> "${XDG_CONFIG_HOME:-$HOME/.config}/muster/config.toml" <<'END'
    [templates.check]
    type = "command"
    label = { kind = "check" }
    timeout = "10m"
    args = ["git", "fsck"]
    END
    muster create checked --template check --no-connect
    """)
    result = e2e.run("muster create checked --template check --no-connect")
    expect(result).to_exit_with(2)
    expect(result.stderr).to_equal("muster: there is no template 'check'\n  [templates.NAME] makes one\n")
    assert agents(e2e) == {}


def test_a_type_of_my_own_gets_the_message_in_its_environment(e2e: E2eSession) -> None:
    e2e.write_tutorial_block(r"""
    # A type of your own: the program, how it takes the first message, and whether it tells of its turns.
    cat >> "${XDG_CONFIG_HOME:-$HOME/.config}/muster/config.toml" <<'END'
    [types.shout]
    argv = ["sh", "-c", "echo \"$MUSTER_PROMPT\" | tr a-z A-Z"]
    prompt = "environment"
    END
    muster create loud shout --no-connect -m "hello"
    """)
    result = e2e.run(
        r"""cat >> "${XDG_CONFIG_HOME:-$HOME/.config}/muster/config.toml" <<'END'
[types.shout]
argv = ["sh", "-c", "echo \"$MUSTER_PROMPT\" | tr a-z A-Z"]
prompt = "environment"
END
muster create loud shout --no-connect -m "hello" """,
        comment="A type of your own: the program, and how it takes the first message.",
    )
    expect(result).to_succeed()
    one = ended(e2e, "loud")
    assert (one["type"], one["last_line"]) == ("shout", "HELLO")


def test_a_type_of_my_own_is_known_by_its_last_line(e2e: E2eSession) -> None:
    e2e.write_tutorial_block(r"""
    # A type whose terminal tells: by the look of its last line muster knows that it asks or that it is ready. docs/agent-types.md has
    # all that a type can say.
    cat >> "${XDG_CONFIG_HOME:-$HOME/.config}/muster/config.toml" <<'END'
    [types.python]
    argv = ["python3", "-i", "-q"]
    prompt = "typed"
    shows = { ready = "^>>> *$", waiting = "\\? *$" }
    END
    muster create calc python --no-connect
    muster wait calc --until ready
    muster message calc -m 'input("Which colour? ")'
    muster wait calc --until waiting
    """)
    result = e2e.run(
        r"""cat >> "${XDG_CONFIG_HOME:-$HOME/.config}/muster/config.toml" <<'END'
[types.python]
argv = ["python3", "-i", "-q"]
prompt = "typed"
shows = { ready = "^>>> *$", waiting = "\\? *$" }
END
muster create calc python --no-connect
muster wait calc --until ready
muster message calc -m 'input("Which colour? ")'
muster wait calc --until waiting""",
        comment="A type whose terminal tells.",
    )
    expect(result).to_succeed()
    one = agents(e2e)["calc"]
    assert (one["state"], one["reason"], one["last_line"]) == ("waiting", "question", "Which colour?")
    answered = e2e.run("muster answer calc blue && muster wait calc --until ready", comment="Answer it.")
    expect(answered).to_succeed()
    expect(e2e.run("muster capture calc").stdout).to_contain("'blue'")


@pytest.mark.parametrize(
    ("text", "says", "hint"),
    [
        (
            "",
            "there is no agent type 'shout'",
            "known types: claude, codex, command, copilot, mini, opencode, pi, replay",
        ),
        ('[types.shout]\nprompt = "environment"\n', "[types.shout] needs argv", "argv = "),
        ('[types.shout]\nargv = ["cat"]\nprompt = "loud"\n', "[types.shout] prompt", "argument, environment or typed"),
        ('[types.shout]\nargv = ["cat"]\npromt = "typed"\n', "[types.shout] has no key 'promt'", "prompt"),
        ('[types.shout]\nargv = ["cat"]\nshows = { ready = "(" }\n', "'(' is no regular expression", ""),
        ('[types.shout]\nargv = ["cat"]\nfiles = { "../x" = "y" }\n', "paths inside the agent's folder", ""),
        ('[types.shout]\nargv = ["cat"]\nlines = { text = "t" }\n', "[types.shout.lines] needs role", "dotted.path"),
    ],
    ids=["unknown", "no argv", "bad value", "bad key", "bad pattern", "bad path", "bad lines"],
)
def test_a_type_that_is_not_right_makes_no_agent(e2e: E2eSession, text: str, says: str, hint: str) -> None:
    e2e.write_tutorial_block(r"""
    # A type of your own: the program, how it takes the first message, and whether it tells of its turns.
    cat >> "${XDG_CONFIG_HOME:-$HOME/.config}/muster/config.toml" <<'END'
    [types.shout]
    argv = ["sh", "-c", "echo \"$MUSTER_PROMPT\" | tr a-z A-Z"]
    prompt = "environment"
    END
    muster create loud shout --no-connect -m "hello"
    """)
    add(mine(e2e), text)
    result = e2e.run('muster create loud shout --no-connect -m "hello"')
    expect(result).to_exit_with(2)
    expect(result.stderr).to_contain(says)
    expect(result.stderr).to_contain(hint)
    assert agents(e2e) == {}


# Work dirs, and trust


def test_a_work_dir_gets_copies_links_and_its_set_up(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Files that git does not have, shared caches, and a command that prepares each work dir.
    echo "DB_NAME=shop" > .env
    mkdir -p cache
    cat >> .muster/config.toml <<'END'
    [workdir]
    copy = [".env"]
    link = ["cache"]
    setup = "echo prepared > .prepared"
    END
    """)
    ignored(e2e, ".env", "/cache")
    project(e2e, '[commands.create]\nlabel = ["team=shop"]\n')
    result = e2e.run(
        """echo "DB_NAME=shop" > .env
mkdir -p cache
cat >> .muster/config.toml <<'END'
[workdir]
copy = [".env"]
link = ["cache"]
setup = "echo prepared > .prepared"
END""",
        comment="Files that git does not have, shared caches, and a command that prepares each work dir.",
    )
    expect(result).to_succeed()
    outside(e2e, "muster", "trust")
    e2e.run("muster create one command --no-connect -- touch cache/from-one")
    folder = Path(ended(e2e, "one")["workdir"])
    assert (folder / ".env").read_text() == "DB_NAME=shop\n" and not (folder / ".env").is_symlink()
    assert (folder / ".prepared").read_text() == "prepared\n"
    assert (e2e.work / "cache" / "from-one").exists()
    assert not (e2e.work / ".prepared").exists()


def test_a_set_up_that_fails_leaves_no_agent_behind(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Files that git does not have, shared caches, and a command that prepares each work dir.
    echo "DB_NAME=shop" > .env
    mkdir -p cache
    cat >> .muster/config.toml <<'END'
    [workdir]
    copy = [".env"]
    link = ["cache"]
    setup = "echo prepared > .prepared"
    END
    """)
    project(e2e, '[workdir]\nsetup = "echo no compiler here >&2; exit 3"\n')
    outside(e2e, "muster", "trust")
    result = e2e.run("muster create one command --no-connect -- true")
    expect(result).to_exit_with(1)
    expect(result.stderr).to_contain("[workdir] setup: no compiler here")
    expect(result.stderr).to_contain("mend the command, then create again")
    assert agents(e2e) == {}
    assert outside(e2e, "git", "branch", "--list", "muster/*") == ""
    assert len(outside(e2e, "git", "worktree", "list").splitlines()) == 1


def test_a_shared_cache_is_no_change_of_the_agent(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Files that git does not have, shared caches, and a command that prepares each work dir.
    echo "DB_NAME=shop" > .env
    mkdir -p cache
    cat >> .muster/config.toml <<'END'
    [workdir]
    copy = [".env"]
    link = ["cache"]
    setup = "echo prepared > .prepared"
    END
    """)
    ignored(e2e, "cache/", ".muster")
    (e2e.work / "cache").mkdir()
    project(e2e, '[workdir]\nlink = ["cache"]\n')
    e2e.run("muster create one command --no-connect -- true")
    expect(e2e.run("muster exec one -- git status --short").stdout).to_be_empty()
    expect(e2e.run("muster diff one").stdout).to_be_empty()
    expect(e2e.run("muster list one --git --format '{dirty}'").stdout).to_equal("0\n")


def test_trust_show_says_what_is_left_out_and_changes_nothing(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # A project's file may run commands only after you trusted it. See what is left out until then.
    muster trust --show
    """)
    path = prepared_project(e2e)
    result = e2e.run("muster trust --show", comment="See what is left out until then.")
    expect(result).to_succeed()
    expect(result.stderr).to_equal(
        f"{path} is not trusted\n  left out: workdir.copy\n  left out: workdir.setup\n",
    )
    e2e.run("muster create one command --no-connect -- true", comment="Looking was not trusting.")
    folder = Path(ended(e2e, "one")["workdir"])
    assert not (folder / ".prepared").exists() and not (folder / ".env").exists()


def test_an_untrusted_project_cannot_run_a_command_after_create(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # A project's file may run commands only after you trusted it. See what is left out until then.
    muster trust --show
    """)
    project(e2e, '[commands.create]\nconnect_command = "touch ../ran"\n')
    shown = e2e.run("muster trust --show")
    expect(shown.stderr).to_contain("left out: commands.create.connect_command")
    made = e2e.run("muster create one command -- true")
    expect(made.stderr).to_contain("is not trusted")
    expect(made.stderr).to_contain("muster trust")
    assert not (e2e.work.parent / "ran").exists()


def test_create_says_that_the_set_up_of_an_untrusted_project_did_not_run(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # A project's file may run commands only after you trusted it. See what is left out until then.
    muster trust --show
    """)
    prepared_project(e2e)
    made = e2e.run("muster create one command --no-connect -- true")
    expect(made.stderr).to_contain("is not trusted")
    expect(made.stderr).to_contain("workdir.setup")


@pytest.mark.parametrize("command", ["muster trust --show", "muster trust", "muster trust --remove"])
def test_there_is_nothing_to_trust_without_a_file(e2e: E2eSession, command: str) -> None:
    e2e.write_tutorial_block("""
    # A project's file may run commands only after you trusted it. See what is left out until then.
    muster trust --show
    """)
    result = e2e.run(command)
    expect(result).to_exit_with(3)
    expect(result.stderr).to_contain("this project has no .muster/config.toml")
    expect(result.stderr).to_contain("there is nothing to trust")


def test_a_trusted_project_prepares_its_work_dirs(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Trust the file as it is now. When it changes, it has to be trusted again.
    muster trust
    muster create prepared command --no-connect -- cat .env .prepared
    """)
    path = prepared_project(e2e)
    trusted = e2e.run("muster trust", comment="Trust the file as it is now.")
    expect(trusted).to_succeed()
    expect(trusted.stderr).to_equal(f"{path} is trusted\n")
    expect(e2e.run("muster create prepared command --no-connect -- cat .env .prepared")).to_succeed()
    ended(e2e, "prepared")
    expect(e2e.run("muster capture prepared").stdout).to_match(r"\ADB_NAME=shop\nprepared\n")


def test_a_project_that_changed_has_to_be_trusted_again(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Trust the file as it is now. When it changes, it has to be trusted again.
    muster trust
    muster create prepared command --no-connect -- cat .env .prepared
    """)
    path = prepared_project(e2e)
    e2e.run("muster trust")
    path.write_text(path.read_text().replace("echo prepared", "echo something else"))
    expect(e2e.run("muster trust --show", comment="It changed.").stderr).to_contain("is not trusted")
    e2e.run("muster create prepared command --no-connect -- cat .env .prepared")
    outside(e2e, "muster", "wait", "prepared", "--until", "failed", "--timeout", "30s")
    expect(e2e.run("muster capture prepared").stdout).to_contain(".prepared: No such file")


def test_a_copy_of_a_trusted_file_in_another_project_is_not_trusted(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Trust the file as it is now. When it changes, it has to be trusted again.
    muster trust
    muster create prepared command --no-connect -- cat .env .prepared
    """)
    prepared_project(e2e)
    e2e.run("muster trust")
    other = e2e.home / "other"
    repository(e2e, other)
    add(other / ".muster" / "config.toml", PREPARED)
    expect(e2e.run("muster trust --show", cwd=other).stderr).to_contain("is not trusted")


def test_a_project_can_be_trusted_no_longer(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Trust it no longer.
    muster trust --remove
    """)
    path = prepared_project(e2e)
    outside(e2e, "muster", "trust")
    result = e2e.run("muster trust --remove", comment="Trust it no longer.")
    expect(result).to_succeed()
    expect(result.stderr).to_contain(f"{path} is not trusted\n")
    e2e.run("muster create one command --no-connect -- true")
    assert not (Path(ended(e2e, "one")["workdir"]) / ".prepared").exists()
    expect(e2e.run("muster trust --remove", comment="Once more is no error.")).to_succeed()
