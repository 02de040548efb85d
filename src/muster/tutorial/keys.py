"""Translate the names of keys into arguments of `tmux send-keys`."""

from __future__ import annotations

import re

#: Maps the names that people use, in lower case and without `-` and `_`, to tmux's names.
NAMES = {
    "esc": "Escape",
    "escape": "Escape",
    "enter": "Enter",
    "return": "Enter",
    "tab": "Tab",
    "space": "Space",
    "spacebar": "Space",
    "backspace": "BSpace",
    "bspace": "BSpace",
    "delete": "DC",
    "del": "DC",
    "insert": "IC",
    "ins": "IC",
    "pageup": "PPage",
    "pgup": "PPage",
    "ppage": "PPage",
    "pagedown": "NPage",
    "pgdown": "NPage",
    "pgdn": "NPage",
    "npage": "NPage",
    "home": "Home",
    "end": "End",
    **{name: way.title() for way in ("up", "down", "left", "right") for name in (way, f"arrow{way}", f"{way}arrow")},
    "btab": "BTab",
    "backtab": "BTab",
    **{f"f{number}": f"F{number}" for number in range(1, 13)},
}
MODIFIERS = {
    "ctrl": "C",
    "control": "C",
    "c": "C",
    "alt": "M",
    "option": "M",
    "meta": "M",
    "m": "M",
    "shift": "S",
    "s": "S",
}
#: Keys that send a single character. Terminals have no code for most of them combined with Ctrl or Shift.
SINGLE_CHARACTER = frozenset({"Escape", "Enter", "Tab", "Space", "BSpace"})
#: Characters other than letters that have a code with Ctrl.
CONTROLS = frozenset("@[\\]^_/-?")


def arguments(key: str) -> tuple[str, ...]:
    """Return the arguments of `tmux send-keys` for one key. Raises ValueError if a terminal cannot send it."""
    if len(key) == 1:
        return ("-l", "--", key)
    *words, last = re.split(r"[-+](?=.)", key)
    if words and (joined := "".join([*words, last])).lower().replace("_", "") in NAMES:
        words, last = [], joined  # Page-Up
    pressed = {MODIFIERS.get(word.lower(), "") for word in words}
    name = last if len(last) == 1 else NAMES.get(last.lower().replace("_", ""), "")
    if re.fullmatch(r"[fF](1[3-9]|2[0-4])", last) and not pressed:
        # Terminals send F13 to F24 as F1 to F12 with Shift.
        name, pressed = f"F{int(last[1:]) - 12}", {"S"}
    if not name or "" in pressed or len(pressed) != len(words or pressed):
        raise ValueError(
            f"unknown key {key!r}: use names like Enter, Esc, Up, PageUp, Ctrl-C, Alt-x, Shift-Tab, F1, or one character; "
            "type() sends text"
        )
    return ("--", _with_modifiers(name, pressed, key))


def _with_modifiers(name: str, pressed: set[str], key: str) -> str:
    """Return tmux's name for a key with modifiers."""
    if name == "Tab" and "S" in pressed:
        name, pressed = "BTab", pressed - {"S"}
    if name == "BSpace" and pressed == {"C"}:
        return "C-h"  # what terminals send
    if len(name) == 1:
        if pressed == {"S"} and name.isalpha():
            return name.upper()
        if "C" in pressed:
            if "S" in pressed or not ((name.isascii() and name.isalpha()) or name in CONTROLS):
                raise _no_code(key)
            name = name.lower()
        elif "S" in pressed:
            if not name.isalpha():
                raise _no_code(key)
            name, pressed = name.upper(), pressed - {"S"}
    elif (name == "BTab" and pressed) or (
        name in SINGLE_CHARACTER and pressed - {"M"} and (name, pressed) != ("Space", {"C"})
    ):
        raise _no_code(key)
    return "-".join([*(letter for letter in "CMS" if letter in pressed), name])


def _no_code(key: str) -> ValueError:
    return ValueError(f"terminals have no code for {key!r}: a program could not tell it from another key")
