from __future__ import annotations

import argparse

from .. import fanout, hosts, prices
from ..fleet import Fleet
from ..host import Host, checked
from ..model import Address
from . import render

EXAMPLES = """
muster doctor
muster doctor --json
"""
TEXT = """
Says for this machine and each known host what is there, what is missing, and the command that fixes it. Exit code 1 when
something that muster cannot do without is missing.
"""
#: What is looked for: whether it is needed, and what it is for.
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
#: What only the machine that you call muster on has a use for.
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

    def look(place: str) -> list[dict[str, object]]:
        host = fleet.host(Address.parse(f"@{place}")) if place else fleet.local
        return examine(host)

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
                "ok" if row["ok"] else "MISSING" if row["needed"] else "missing",
                str(row["found"] or "-"),
                (render.Command if row["part"] != "answer" else str)(row["fix"] or ""),
            ]
            for row in report
        ]
        alone = ["HOST"] if len(places) == 1 else []
        render.table(["HOST", "PART", "STATUS", "FOUND", "FIX"], cells, drop=alone, text=["FOUND", "FIX"])
    return 1 if missing else 0


def examine(host: Host) -> list[dict[str, object]]:
    """What one host has; asked in one round trip."""
    rows: list[dict[str, object]] = []
    found = {}
    for line in checked(host, "doctor", timeout=10).decode("utf-8", "replace").splitlines():
        part, _, value = line.partition(" ")
        found[part] = value
    installer = found.pop("installer", "")
    if version := prices.installed():
        found["prices"] = f"{prices.LIBRARY} {version}"
    for part, (needed, what) in PARTS.items():
        if part in HERE and host.name:
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
    return rows
