from __future__ import annotations

import argparse

from ..fleet import Fleet
from . import render
from .main import ALIASES, VERBS
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
    return {
        verb: sorted(
            word for action in build(verb)[0]._actions for word in action.option_strings if word.startswith("--")
        )
        for verb in VERBS
    }


def _bash() -> str:
    cases = "\n".join(f"    {verb}) options='{' '.join(words)}' ;;" for verb, words in _options().items())
    return f"""# muster completion for bash
_muster() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} verb=${{COMP_WORDS[1]}} options=
  if [ "$COMP_CWORD" -eq 1 ]; then
    mapfile -t COMPREPLY < <(compgen -W '{" ".join([*VERBS, *ALIASES])}' -- "$word")
    return
  fi
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
    verbs = "\n".join(f"    '{verb}:{_escaped(text)}'" for verb, text in VERBS.items())
    cases = "\n".join(f"    {verb}) options=({' '.join(words)}) ;;" for verb, words in _options().items())
    return f"""#compdef muster
# muster completion for zsh
_muster() {{
  local -a verbs options names
  verbs=(
{verbs}
  )
  if (( CURRENT == 2 )); then
    _describe 'verb' verbs
    return
  fi
  case ${{words[2]}} in
{cases}
  esac
  if [[ ${{words[CURRENT]}} == -* ]]; then
    compadd -- $options
  elif [[ " {" ".join(NAMES)} " == *" ${{words[2]}} "* ]]; then
    names=(${{(f)"$(muster list --format '{{address}}' 2>/dev/null)"}})
    compadd -- $names
  else
    _files
  fi
}}
compdef _muster muster
"""


def _fish() -> str:
    lines = ["# muster completion for fish", "complete -c muster -f"]
    lines += [
        f"complete -c muster -n __fish_use_subcommand -a {verb} -d '{_escaped(text)}'" for verb, text in VERBS.items()
    ]
    for verb, words in _options().items():
        lines += [f"complete -c muster -n '__fish_seen_subcommand_from {verb}' -l {word[2:]}" for word in words]
    names = "(muster list --format '{address}' 2>/dev/null)"
    lines.append(f'complete -c muster -n "__fish_seen_subcommand_from {" ".join(NAMES)}" -a "{names}"')
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("'", "")
