"""Tutorial section 15, Your shell and your system: completion, manual pages, verbs of your own, a second fleet."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from muster.cli.main import VERBS, dashed, first_words
from muster.tutorial import E2eSession, Terminal, expect

from .conftest import agents, outside

ASK = '[[step]]\npermission = "rm -rf build"\ntool = "Bash"\n'


def make(e2e: E2eSession, *names: str) -> None:
    for name in names:
        outside(e2e, "muster", "create", name, "command", "--no-connect", "--", "sleep", "600")


def make_asker(e2e: E2eSession, name: str) -> None:
    """An agent that waits for a permission."""
    playbook = e2e.work.parent / "ask.toml"
    playbook.write_text(ASK)
    outside(e2e, "muster", "create", name, "replay", "--no-connect", "--", str(playbook))
    outside(e2e, "muster", "wait", name, "--until", "waiting", "--timeout", "30s")


def program(e2e: E2eSession, name: str, text: str) -> Path:
    path = e2e.home / "bin" / name
    path.write_text(text)
    path.chmod(0o755)
    return path


def bytes_of(e2e: E2eSession, terminal: Terminal) -> str:
    """All that a terminal got, with the control sequences, from its recording."""
    expect(terminal).to_exit_with(0)
    terminal.close()
    lines = (e2e.artifacts / "recordings" / f"{terminal.name}.cast").read_text().splitlines()[1:]
    return "".join(data for _, kind, data in map(json.loads, lines) if kind == "o")


def bash(e2e: E2eSession) -> Terminal:
    """A shell at its prompt, with the completion of muster."""
    shell = e2e.terminal("PS1='$ ' bash --norc --noprofile", size=(100, 30))
    expect(shell).to_match(r"^\$$")
    shell.type('eval "$(muster completion bash)"\n')
    expect(shell).to_match(r"muster completion bash.*\n\$$")
    return shell


# Completion


def test_tab_completes_verbs_options_and_names_in_bash(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Complete verbs, options and the names of agents with Tab.
    eval "$(muster completion bash)"
    """)
    make(e2e, "fix-login", "review")
    shell = bash(e2e)
    shell.type("muster conn")
    shell.press("Tab")
    expect(shell).to_match(r"^\$ muster connect$")
    shell.type("fi")
    shell.press("Tab")
    expect(shell).to_match(r"^\$ muster connect fix-login$")
    shell.type("--wat")
    shell.press("Tab")
    expect(shell).to_match(r"^\$ muster connect fix-login --watch$")


def test_two_tabs_show_all_agents_and_all_actions(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Complete verbs, options and the names of agents with Tab.
    eval "$(muster completion bash)"
    """)
    make(e2e, "fix-login", "review")
    shell = bash(e2e)
    shell.type("muster stop ")
    shell.press("Tab", "Tab")
    expect(shell).to_match(r"^fix-login +review$")
    shell.press("Ctrl-u")
    shell.type("muster tutorial ")
    shell.press("Tab", "Tab")
    expect(shell).to_match(r"^check +(\w+ +)*list")


def test_tab_completes_the_options_of_the_short_form_of_list(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Complete verbs, options and the names of agents with Tab.
    eval "$(muster completion bash)"
    """)
    shown = e2e.run(
        'eval "$(muster completion bash)"; COMP_WORDS=(muster ls --wat) COMP_CWORD=2; _muster; echo "${COMPREPLY[*]}"'
    )
    expect(shown.stdout).to_equal("--watch\n")


@pytest.mark.parametrize(
    ("command", "says", "hint"),
    [
        ("muster completion tcsh", "invalid choice: 'tcsh' (choose from 'bash', 'zsh', 'fish')", "muster completion"),
        ("muster completion", "the following arguments are required: shell", "muster completion --help"),
    ],
)
def test_a_shell_that_is_not_known_gets_nothing_to_evaluate(
    e2e: E2eSession, command: str, says: str, hint: str
) -> None:
    e2e.write_tutorial_block("""
    # Complete verbs, options and the names of agents with Tab.
    eval "$(muster completion bash)"
    """)
    result = e2e.run(command)
    expect(result).to_exit_with(2)
    expect(result.stdout).to_be_empty()
    expect(result.stderr).to_contain(says)
    expect(result.stderr).to_contain(hint)


def test_zsh_and_fish_get_files_that_know_every_verb(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # The same for zsh and for fish.
    mkdir -p ~/.zfunc ~/.config/fish/completions
    muster completion zsh > ~/.zfunc/_muster
    muster completion fish > ~/.config/fish/completions/muster.fish
    """)
    for command in (
        "mkdir -p ~/.zfunc ~/.config/fish/completions",
        "muster completion zsh > ~/.zfunc/_muster",
        "muster completion fish > ~/.config/fish/completions/muster.fish",
    ):
        expect(e2e.run(command)).to_succeed()
    zsh = (e2e.home / ".zfunc" / "_muster").read_text()
    fish = (e2e.home / ".config" / "fish" / "completions" / "muster.fish").read_text()
    assert zsh.startswith("#compdef muster\n"), "zsh finds the function by this line"
    for word in first_words():
        expect(zsh).to_match(rf"^ +'{word}:")
        expect(fish).to_match(rf"^complete -c muster .* -a {word} ")
    for script in (zsh, fish):
        expect(script).to_contain("muster list --format '{address}'")
    expect(zsh).to_match(r"^ +'connect'\) options=\(.*--watch")
    expect(fish).to_contain("complete -c muster -n '__muster_verb connect' -l watch")


@pytest.mark.skipif(not shutil.which("zsh"), reason="no zsh here")
def test_the_first_tab_in_zsh_completes(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # The same for zsh and for fish.
    mkdir -p ~/.zfunc ~/.config/fish/completions
    muster completion zsh > ~/.zfunc/_muster
    muster completion fish > ~/.config/fish/completions/muster.fish
    """)
    e2e.run("mkdir -p ~/.zfunc && muster completion zsh > ~/.zfunc/_muster")
    (e2e.home / ".zshrc").write_text("PS1='%% '\nfpath=(~/.zfunc $fpath)\nautoload -U compinit\ncompinit -u\n")
    shell = e2e.terminal("zsh", size=(100, 30))
    expect(shell).to_show("%")
    shell.type("muster conn")
    shell.press("Tab")
    expect(shell).to_show("muster connect", timeout=3)


@pytest.mark.skipif(not shutil.which("fish"), reason="no fish here")
@pytest.mark.parametrize(
    ("typed", "offers"),
    [
        ("conn", "connect\tattach your terminal to an agent"),
        ("tutorial ch", "check\tfind blocks without a test, and stale citations"),
        ("connect ", "one"),
        ("connect --wat", "--watch\tread-only: send no keys, do not resize"),
        ("ls --al", "--all\tevery agent"),
        (
            "create --mode cop",
            "copy\tthe kind of work dir (default: worktree on this machine, mirror elsewhere, copy without git)",
        ),
        # Files, and no names of agents, although the word before is a verb that takes these.
        ("create two start ", "app.py\nsetup.sh"),
        ("create two replay -- ap", "app.py"),
    ],
)
def test_tab_in_fish_completes_verbs_options_values_names_and_files(e2e: E2eSession, typed: str, offers: str) -> None:
    e2e.write_tutorial_block("""
    # The same for zsh and for fish.
    mkdir -p ~/.zfunc ~/.config/fish/completions
    muster completion zsh > ~/.zfunc/_muster
    muster completion fish > ~/.config/fish/completions/muster.fish
    """)
    e2e.run("mkdir -p ~/.config/fish/completions && muster completion fish > ~/.config/fish/completions/muster.fish")
    e2e.run("mkdir files && cd files && touch app.py setup.sh && muster create one command --no-connect -- true")
    result = e2e.run(f"cd files && fish -c \"complete -C 'muster {typed}'\"")
    expect(result).to_succeed()
    assert result.stdout.strip() == offers


# Manual pages


def test_a_manual_page_has_the_usage_the_examples_and_every_option(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Read a manual page.
    muster man create
    """)
    result = e2e.run("muster man create", comment="Read a manual page.")
    expect(result).to_succeed()
    expect(result.stdout).to_match(r"\AUsage: muster create ")
    expect(result.stdout).to_match(r"^Examples:\n  muster create ")
    for option in ("--message-file", "--no-connect", "--memory"):
        expect(result.stdout).to_match(rf"^ +{option}\b")


@pytest.mark.skipif(not shutil.which("man"), reason="no man here")
def test_on_a_terminal_a_manual_page_opens_in_man(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Read a manual page.
    muster man create
    """)
    page = e2e.terminal("muster man create", size=(100, 30), env={"MANPAGER": "cat", "PAGER": "cat"})
    shown = bytes_of(e2e, page)
    expect(shown).to_match(r"MUSTER-CREATE\(1\) +General Commands Manual +MUSTER-CREATE\(1\)")


def test_a_manual_page_of_no_verb_is_not_found(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Read a manual page.
    muster man create
    """)
    result = e2e.run("muster man craete")
    expect(result).to_exit_with(3)
    expect(result.stdout).to_be_empty()
    expect(result.stderr).to_equal("muster: there is no verb 'craete'\n  muster --help lists all\n")


def test_the_source_of_one_page_and_all_pages_are_written(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Get its source, or write all pages into a folder.
    muster man create --roff > ../muster-create.1
    muster man --all ~/.local/share/man/man1
    """)
    expect(e2e.run("muster man create --roff > ../muster-create.1", comment="Get its source,")).to_succeed()
    source = (e2e.work.parent / "muster-create.1").read_text()
    expect(source).to_match(r"\A\.TH MUSTER\\-CREATE 1 ")
    expect(source).to_match(r"^Examples:\n  muster create ")

    result = e2e.run("muster man --all ~/.local/share/man/man1", comment="or write all pages into a folder.")
    expect(result).to_succeed()
    folder = e2e.home / ".local" / "share" / "man" / "man1"
    expect(result.stderr).to_equal(f"wrote {len(VERBS) + 1} pages to {folder}\n")
    assert {path.name for path in folder.iterdir()} == {"muster.1", *(f"muster-{dashed(verb)}.1" for verb in VERBS)}
    assert (folder / "muster-create.1").read_text() == source


def test_the_folder_of_all_pages_must_be_named(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Get its source, or write all pages into a folder.
    muster man create --roff > ../muster-create.1
    muster man --all ~/.local/share/man/man1
    """)
    result = e2e.run("muster man --all")
    expect(result).to_exit_with(2)
    expect(result.stderr).to_contain("--all: expected one argument")
    expect(result.stderr).to_contain("muster man --help")


def test_a_file_in_the_place_of_the_folder_is_an_error_in_plain_words(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Get its source, or write all pages into a folder.
    muster man create --roff > ../muster-create.1
    muster man --all ~/.local/share/man/man1
    """)
    result = e2e.run("muster man --all README/man1")
    expect(result).to_exit_with(1)
    expect(result.stderr).to_contain("README/man1")
    expect(result.stderr).not_to_contain("Traceback")
    expect(result.stderr).not_to_contain("bug in muster")


# A verb of your own


def test_a_program_called_muster_name_is_a_verb(e2e: E2eSession) -> None:
    e2e.write_tutorial_block(r"""
    # A verb of your own: a program called muster-NAME on your PATH.
    mkdir -p ~/bin
    printf '%s\n' '#!/bin/sh' 'muster list --state waiting --format "{name}"' > ~/bin/muster-waiting
    chmod +x ~/bin/muster-waiting
    PATH=~/bin:$PATH muster waiting
    """)
    make(e2e, "busy")
    make_asker(e2e, "asker")
    for command in (
        "mkdir -p ~/bin",
        r"""printf '%s\n' '#!/bin/sh' 'muster list --state waiting --format "{name}"' > ~/bin/muster-waiting""",
        "chmod +x ~/bin/muster-waiting",
    ):
        expect(e2e.run(command)).to_succeed()
    result = e2e.run("PATH=~/bin:$PATH muster waiting")
    expect(result).to_succeed()
    expect(result.stdout).to_equal("asker\n")


def test_a_verb_of_your_own_gets_its_words_and_input_and_gives_its_exit_code(e2e: E2eSession) -> None:
    e2e.write_tutorial_block(r"""
    # A verb of your own: a program called muster-NAME on your PATH.
    mkdir -p ~/bin
    printf '%s\n' '#!/bin/sh' 'muster list --state waiting --format "{name}"' > ~/bin/muster-waiting
    chmod +x ~/bin/muster-waiting
    PATH=~/bin:$PATH muster waiting
    """)
    program(e2e, "muster-waiting", '#!/bin/sh\nprintf "<%s>" "$@"; cat; exit 9\n')
    result = e2e.run("muster waiting --json 'two words' --help", input="from stdin")
    expect(result).to_exit_with(9)
    expect(result.stdout).to_equal("<--json><two words><--help>from stdin")


def test_a_verb_that_is_not_on_the_path_is_no_verb(e2e: E2eSession) -> None:
    e2e.write_tutorial_block(r"""
    # A verb of your own: a program called muster-NAME on your PATH.
    mkdir -p ~/bin
    printf '%s\n' '#!/bin/sh' 'muster list --state waiting --format "{name}"' > ~/bin/muster-waiting
    chmod +x ~/bin/muster-waiting
    PATH=~/bin:$PATH muster waiting
    """)
    result = e2e.run("muster waiting")
    expect(result).to_exit_with(2)
    expect(result.stderr).to_contain("there is no verb 'waiting'")
    expect(result.stderr).to_contain("`muster --help` lists all")


def test_a_program_cannot_take_the_place_of_a_verb(e2e: E2eSession) -> None:
    e2e.write_tutorial_block(r"""
    # A verb of your own: a program called muster-NAME on your PATH.
    mkdir -p ~/bin
    printf '%s\n' '#!/bin/sh' 'muster list --state waiting --format "{name}"' > ~/bin/muster-waiting
    chmod +x ~/bin/muster-waiting
    PATH=~/bin:$PATH muster waiting
    """)
    program(e2e, "muster-list", "#!/bin/sh\necho not the list\n")
    make(e2e, "busy")
    expect(e2e.run("muster list --format '{name}'").stdout).to_equal("busy\n")


# Colours, and a second fleet


def test_no_color_takes_the_colours_from_a_terminal(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # No colours. Without a terminal there are none anyway.
    NO_COLOR=1 muster list
    """)
    make(e2e, "busy")
    coloured = bytes_of(e2e, e2e.terminal("muster list", comment="A terminal shows colours."))
    expect(coloured).to_contain("\x1b[")
    plain = bytes_of(e2e, e2e.terminal("NO_COLOR=1 muster list", comment="No colours."))
    expect(plain).not_to_contain("\x1b[")
    expect(plain).to_match(r"^busy +(starting|working) ")


def test_without_a_terminal_there_are_no_colours(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # No colours. Without a terminal there are none anyway.
    NO_COLOR=1 muster list
    """)
    make(e2e, "busy")
    for command in ("NO_COLOR=1 muster list", "muster list"):
        result = e2e.run(command)
        expect(result.stdout).to_match(r"^busy +(starting|working) ")
        expect(result.stdout).not_to_contain("\x1b")


def test_a_second_fleet_knows_nothing_of_the_first(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # A second fleet, apart from the first: MUSTER_HOME is where all of muster's state is.
    MUSTER_HOME=~/other-fleet muster list
    """)
    make(e2e, "busy")
    empty = e2e.run("MUSTER_HOME=~/other-fleet muster list", comment="A second fleet, apart from the first.")
    expect(empty).to_succeed()
    expect(empty.stdout).to_be_empty()
    expect(empty.stderr).to_equal("there are no agents yet; muster create makes one\n")

    e2e.run("MUSTER_HOME=~/other-fleet muster create other command --no-connect -- sleep 600")
    there = e2e.run("MUSTER_HOME=~/other-fleet muster list --format '{name} {workdir}'")
    expect(there.stdout).to_match(rf"\Aother {e2e.home}/other-fleet/\S+\n\Z")
    assert set(agents(e2e)) == {"busy"}

    e2e.run("MUSTER_HOME=~/other-fleet muster stop --all --grace 0")
    assert agents(e2e)["busy"]["state"] == "working"


def test_a_fleet_cannot_stop_an_agent_of_another(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # A second fleet, apart from the first: MUSTER_HOME is where all of muster's state is.
    MUSTER_HOME=~/other-fleet muster list
    """)
    make(e2e, "busy")
    result = e2e.run("MUSTER_HOME=~/other-fleet muster stop busy")
    expect(result).to_exit_with(3)
    expect(result.stderr).to_contain("there is no agent busy")
