"""The ledger: entries and budgets in one file, and the dates, months and amounts that people type."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from datetime import date, timedelta
from pathlib import Path
from typing import NamedTuple


class TillError(Exception):
    """Something the user can put right; the message says what."""


class Entry(NamedTuple):
    day: date
    cents: int  # below zero for an expense
    category: str
    note: str = ""


class Ledger:
    """All entries, oldest first, and the budget per month of each category. Every change is saved at once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.entries: list[Entry] = []
        self.budgets: dict[str, int] = {}
        if path.exists():
            try:
                kept = json.loads(path.read_text(encoding="utf-8"))
                self.entries = [Entry(**{**one, "day": date.fromisoformat(one["day"])}) for one in kept["entries"]]
                self.budgets = kept["budgets"]
            except (ValueError, KeyError, TypeError):
                raise TillError(f"{path} is damaged; nothing was changed") from None

    def add(self, entry: Entry) -> None:
        self.entries.append(entry)
        self.save()

    def undo(self) -> Entry:
        """Take the entry that was added last back."""
        if not self.entries:
            raise TillError("there is nothing to undo")
        entry = self.entries.pop()
        self.save()
        return entry

    def set_budget(self, category: str, cents: int) -> None:
        self.budgets[category] = cents
        self.save()

    def save(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        kept = {"entries": [{**one._asdict(), "day": str(one.day)} for one in self.entries], "budgets": self.budgets}
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps(kept, indent=1), encoding="utf-8")
        os.replace(new, self.path)


def place(env: Mapping[str, str]) -> Path:
    data = env.get("XDG_DATA_HOME") or os.path.join(env.get("HOME", ""), ".local", "share")
    return Path(data) / "till" / "ledger.json"


def today(env: Mapping[str, str]) -> date:
    return day(env["TILL_TODAY"]) if env.get("TILL_TODAY") else date.today()


def day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise TillError(f"{text!r} is no date; write it as 2026-03-14") from None


def month(text: str) -> tuple[date, date]:
    """The first and the last day of a month."""
    if not re.fullmatch(r"\d{4}-(0[1-9]|1[0-2])", text):
        raise TillError(f"{text!r} is no month; write it as 2026-03")
    first = date.fromisoformat(f"{text}-01")
    return first, first.replace(month=first.month + 1) - timedelta(days=1)


def cents(text: str) -> int:
    """An amount such as 4, 12.50 or 1,250.00."""
    if not re.fullmatch(r"(\d+|\d{1,3}(,\d{3})+)(\.\d\d?)?", text):
        raise TillError(f"{text!r} is no amount; write it as 12.50")
    whole, _, part = text.replace(",", "").partition(".")
    value = int(whole) * 100 + int(part.ljust(2, "0"))
    if not value:
        raise TillError("the amount is zero")
    return value


def money(value: int) -> str:
    return f"{value / 100:,.2f}"
