from __future__ import annotations

import argparse

from ..fleet import Fleet
from . import render
from .main import ALIASES, VERBS, actions, first_words
from .parse import build

EXAMPLES = """
eval "$(muster completion bash)"
muster completion zsh > ~/.zfunc/_muster
muster completion fish > ~/.config/fish/completions/muster.fish
"""
TEXT = """
Prints a completion script for bash, zsh or fish: verbs, options, and the names of agents that are there now.
"""
#: Verbs whose words are names of agents.
NAMES = (
    "answer capture clone connect destroy diff events exec explain label message pull push record rename snapshot "
    "start stop transcript wait"
).split()


#: Is this the verb? Does it take the names of agents? Is this all that was typed so far?
FISH = """
function __muster_verb
  set -l words (commandline -opc)
  test "$words[2]" = "$argv[1]"; and test -z "$argv[2]" -o "$words[3]" = "$argv[2]"
end
function __muster_takes_names
  set -l words (commandline -opc)
  contains -- "$words[2]" %s; and not contains -- -- $words
end
function __muster_last
  set -l words (commandline -opc)
  test (count $words) -eq 2; and test "$words[2]" = "$argv[1]"
end
"""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell")


def run(args: argparse.Namespace, fleet: Fleet) -> int:
    text = {"bash": _bash, "zsh": _zsh, "fish": _fish}[args.shell]()
    if args.json:
        render.document({"shell": args.shell, "script": text})
    else:
        render.out(text, end="")
    return 0


def _options() -> dict[str, list[str]]:
    """The long options of every verb."""
    words = {
        verb: sorted(
            word for action in build(verb)[0]._actions for word in action.option_strings if word.startswith("--")
        )
        for verb in VERBS
    }
    return {**words, **{alias: words[verb] for alias, verb in ALIASES.items()}}


def _families() -> dict[str, dict[str, str]]:
    """The first words that take an action, and their actions."""
    return {word: actions(word) for word in first_words() if actions(word)}


def _bash() -> str:
    cases = "\n".join(f"    '{verb}') options='{' '.join(words)}' ;;" for verb, words in _options().items())
    families = "\n".join(f"    {word}) actions='{' '.join(second)}' ;;" for word, second in _families().items())
    return f"""# muster completion for bash
_muster() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} verb=${{COMP_WORDS[1]}} options='' actions=
  if [ "$COMP_CWORD" -eq 1 ]; then
    mapfile -t COMPREPLY < <(compgen -W '{" ".join([*first_words(), *ALIASES])}' -- "$word")
    return
  fi
  case $verb in
{families}
  esac
  if [ -n "$actions" ] && [ "$COMP_CWORD" -eq 2 ]; then
    mapfile -t COMPREPLY < <(compgen -W "$actions" -- "$word")
    return
  fi
  [ -z "$actions" ] || verb="$verb ${{COMP_WORDS[2]}}"
  case $verb in
{cases}
  esac
  case $word in
    -*) mapfile -t COMPREPLY < <(compgen -W "$options" -- "$word") ;;
    *)
      case " {" ".join(NAMES)} " in
        *" $verb "*) mapfile -t COMPREPLY < <(compgen -W "$(muster list --format '{{address}}' 2>/dev/null)" -- "$word") ;;
        *) mapfile -t COMPREPLY < <(compgen -f -- "$word") ;;
      esac ;;
  esac
}}
complete -F _muster muster
"""


def _zsh() -> str:
    verbs = _described(_summaries())
    cases = "\n".join(f"    '{verb}') options=({' '.join(words)}) ;;" for verb, words in _options().items())
    families = "\n".join(
        f"    {word}) actions=(\n{_described(second)}\n    ) ;;" for word, second in _families().items()
    )
    return f"""#compdef muster
# muster completion for zsh
_muster() {{
  local -a verbs actions options names
  local verb=${{words[2]}}
  verbs=(
{verbs}
  )
  if (( CURRENT == 2 )); then
    _describe 'verb' verbs
    return
  fi
  case $verb in
{families}
  esac
  if (( $#actions && CURRENT == 3 )); then
    _describe 'action' actions
    return
  fi
  (( $#actions )) && verb="$verb ${{words[3]}}"
  case $verb in
{cases}
  esac
  if [[ ${{words[CURRENT]}} == -* ]]; then
    compadd -- $options
  elif [[ " {" ".join(NAMES)} " == *" $verb "* ]]; then
    names=(${{(f)"$(muster list --format '{{address}}' 2>/dev/null)"}})
    compadd -- $names
  else
    _files
  fi
}}
# From a file on fpath, this is the function itself at its first Tab.
if [ "${{funcstack[1]}}" = _muster ]; then _muster "$@"; else compdef _muster muster; fi
"""


def _fish() -> str:
    lines = ["# muster completion for fish", FISH.strip() % " ".join(NAMES)]
    lines += [
        f"complete -c muster -n __fish_use_subcommand -f -a {word} -d {_in_fish(text)}"
        for word, text in _summaries().items()
    ]
    for family, second in _families().items():
        lines += [
            f"complete -c muster -n '__muster_last {family}' -f -a {action} -d {_in_fish(text)}"
            for action, text in second.items()
        ]
    for verb in [*VERBS, *ALIASES]:
        condition = f"complete -c muster -n '__muster_verb {verb}'"
        for action in build(ALIASES.get(verb, verb))[0]._actions:
            if words := _in_fish_option(action):
                lines.append(f"{condition} {words}")
    names = "(muster list --format '{address}' 2>/dev/null)"
    lines.append(f'complete -c muster -n __muster_takes_names -f -a "{names}"')
    return "\n".join(lines) + "\n"


def _in_fish_option(action: argparse.Action) -> str:
    """Return the words that describe an option to `complete`: names, values, help; empty for a positional argument."""
    names = [f"-l {word[2:]}" if word.startswith("--") else f"-s {word[1:]}" for word in action.option_strings]
    if not names or action.help == argparse.SUPPRESS:
        return ""
    values = []
    if action.choices:
        values = ["-x", "-a", _in_fish(" ".join(str(choice) for choice in action.choices))]
    elif action.nargs != 0:
        values = ["-r"]  # its value may be a file
    return " ".join([*names, *values, "-d", _in_fish((action.help or "").partition(";")[0])])


def _in_fish(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _summaries() -> dict[str, str]:
    """What the first word can be, each with a summary."""
    return {word: VERBS.get(word) or ", ".join(actions(word)) for word in first_words()}


def _described(texts: dict[str, str]) -> str:
    return "\n".join(f"    '{word}:{_escaped(text)}'" for word, text in texts.items())


def _escaped(text: str) -> str:
    return text.replace("'", "")
