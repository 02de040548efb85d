"""Entries to and from CSV, as a spreadsheet writes it: date, amount, category, note."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from typing import TextIO

from . import ledger as book
from .ledger import Entry, Ledger, TillError

COLUMNS = ("date", "amount", "category", "note")


def write(entries: Iterable[Entry], file: TextIO) -> None:
    out = csv.writer(file, lineterminator="\n")
    out.writerow(COLUMNS)
    for entry in entries:
        out.writerow((entry.day, f"{entry.cents / 100:.2f}", entry.category, entry.note))


def read(file: TextIO, ledger: Ledger) -> int:
    """Add all entries of a file to the ledger; returns how many. TillError names the line that is wrong."""
    rows = csv.DictReader(file)
    missing = [name for name in COLUMNS[:3] if name not in (rows.fieldnames or ())]
    if missing:
        raise TillError(f"the file has no column {missing[0]}; the first line names the columns")
    count = 0
    for row in rows:
        ledger.add(_entry(row, rows.line_num))
        count += 1
    return count


def _entry(row: dict[str, str | None], number: int) -> Entry:
    amount = (row["amount"] or "").strip()
    try:
        cents = book.cents(amount.removeprefix("-"))
        day = book.day((row["date"] or "").strip())
    except TillError as error:
        raise TillError(f"line {number}: {error}") from None
    category = (row["category"] or "").strip()
    if not category:
        raise TillError(f"line {number}: there is no category")
    return Entry(day, -cents if amount.startswith("-") else cents, category, (row.get("note") or "").strip())
