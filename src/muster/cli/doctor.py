from __future__ import annotations

import argparse
from collections.abc import Sequence

from .. import agents, fanout, hosts, plugins, prices
from ..fleet import Fleet
from ..host import Host, checked
from ..model import Address
from ..plugins import AgentType
from . import render

EXAMPLES = """
muster doctor
muster doctor --json
"""
TEXT = """
Shows for this machine and each known host what is installed, what is missing, and the command that fixes it. The exit
code is 1 if something is missing that muster needs. A client (claude, codex, …) whose version muster was not tested with
is `untested`; it may still work.
"""
#: What is checked: whether muster needs it, and what for.
PARTS = {
    "git": (True, "work dirs and branches"),
    "tmux": (True, "sessions"),
    "script": (False, "recordings with timing"),
    "python3": (False, "the replay type"),
    "identity": (False, "a name for commits"),
    "home": (True, "muster's own folder can be written"),
    "ssh": (False, "other hosts"),
    "prices": (False, "what agents cost"),
}
#: Only needed on the machine on which muster is called.
HERE = ("ssh", "prices")
FIXES = {
    "git": "install git",
    "tmux": "install tmux",
    "script": "install bsdutils",
    "python3": "install python3",
    "ssh": "install openssh-client",
    "identity": "git config --global user.name 'Your Name' && git config --global user.email you@your.host",
    "home": "make it writable, or set MUSTER_HOME to another folder",
    "prices": prices.INSTALL,
}


def options(parser: argparse.ArgumentParser) -> None:
    del parser


def run(args: argparse.Namespace, fleet: Fleet) -> int:
    places = ["", *hosts.remembered(fleet.home)]

    names = dict.fromkeys([*agents.TYPES, *fleet.config.section("types")])
    kinds = [kind for kind in map(fleet.type, names) if kind.versions]

    def look(place: str) -> list[dict[str, object]]:
        host = fleet.host(Address("", place))
        return examine(host, kinds)

    missing = False
    report = []
    for place, outcome in zip(places, fanout.each(look, places), strict=True):
        name = place or "local"
        if outcome.error is not None:
            missing = True
            report.append(
                {
                    "host": name,
                    "part": "answer",
                    "ok": False,
                    "found": outcome.error.message,
                    "needed": True,
                    "for": "anything at all",
                    "fix": outcome.error.hint,
                }
            )
            continue
        rows = outcome.get()
        report += [{"host": name, **row} for row in rows]
        missing = missing or any(row["needed"] and not row["ok"] for row in rows)
    if args.json:
        render.document({"parts": report})
    else:
        cells = [
            [
                str(row["host"]),
                str(row["part"]),
                _status(row),
                str(row["found"] or "-"),
                (render.Command if row["part"] != "answer" else str)(row["fix"] or ""),
            ]
            for row in report
        ]
        alone = ["HOST"] if len(places) == 1 else []
        render.table(["HOST", "PART", "STATUS", "FOUND", "FIX"], cells, drop=alone, text=["FOUND", "FIX"])
    return 1 if missing else 0


def _status(row: dict[str, object]) -> str:
    if row["ok"]:
        return "ok"
    if row["needed"]:
        return "MISSING"
    return "untested" if row["found"] else "missing"


def examine(host: Host, kinds: Sequence[AgentType] = ()) -> list[dict[str, object]]:
    """Return what one host has, the clients of `kinds` included. One round trip."""
    rows: list[dict[str, object]] = []
    found = {}
    programs = [kind.argv[0] for kind in kinds]
    for line in checked(host, "doctor", *programs, timeout=30).decode("utf-8", "replace").splitlines():
        part, _, value = line.partition(" ")
        found[part] = value
    installer = found.pop("installer", "")
    if version := prices.installed():
        found["prices"] = f"{prices.LIBRARY} {version}"
    for part, (needed, what) in PARTS.items():
        if part in HERE and not host.local:
            continue
        ok = bool(found.get(part))
        fix = "" if ok else FIXES[part]
        if fix.startswith("install ") and installer:
            fix = f"{installer} {fix}"
        rows.append(
            {
                "part": part,
                "ok": ok,
                "found": found.get(part) or None,
                "needed": needed,
                "for": what,
                "fix": fix or None,
            }
        )
    return rows + [_client(kind, found[key]) for kind in kinds if (key := f"client:{kind.argv[0]}") in found]


def _client(kind: AgentType, said: str) -> dict[str, object]:
    """Return the row of an installed client: its version and whether that was tested."""
    version = plugins.version(said)
    wrong = plugins.misfit(kind, version)
    oldest, newest = kind.versions.get("oldest", ""), kind.versions.get("newest", "")
    tested = oldest if oldest == newest else f"{oldest} to {newest}"
    return {
        "part": kind.name,
        "ok": bool(version) and wrong is None,
        "found": f"{version or 'unknown version'} (tested: {tested})",
        "needed": False,
        "for": f"agents of type {kind.name}",
        "fix": (wrong.fix or None) if wrong else None,
    }
