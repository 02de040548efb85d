"""Entries as people want to see them: chosen, in a table, added up, against a budget."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import date

from .ledger import Entry, Ledger, money

#: From here on a budget is nearly used up.
NEARLY = 90


def choose(
    entries: Iterable[Entry],
    since: date | None = None,
    until: date | None = None,
    category: str | None = None,
    sign: int = 0,
) -> list[Entry]:
    """By date; both ends count. `sign` is 1 for sales only, -1 for expenses only."""
    chosen = [
        entry
        for entry in entries
        if (since is None or entry.day >= since)
        and (until is None or entry.day <= until)
        and (category is None or entry.category == category)
        and entry.cents * sign >= 0
    ]
    return sorted(chosen, key=lambda entry: entry.day)


def line(entry: Entry) -> str:
    return f"{entry.day}  {money(entry.cents):>10}  {entry.category:<12}  {entry.note}".rstrip()


def table(entries: list[Entry]) -> Iterator[str]:
    for entry in entries:
        yield line(entry)
    if not entries:
        yield "no entries"


def totals(entries: list[Entry], key: Callable[[Entry], str]) -> Iterator[str]:
    sums: Counter[str] = Counter()
    for entry in entries:
        sums[key(entry)] += entry.cents
    for name in sorted(sums):
        yield f"{name:<12}  {money(sums[name]):>10}"
    yield f"{'total':<12}  {money(sum(sums.values())):>10}"


def by_month(entry: Entry) -> str:
    return f"{entry.day:%Y-%m}"


def by_category(entry: Entry) -> str:
    return entry.category


def budgets(ledger: Ledger, day: date) -> list[tuple[str, int, int]]:
    """Category, spent and limit for the month of that day; the limit is 0 where no budget was set."""
    spent: Counter[str] = Counter()
    for entry in ledger.entries:
        if entry.cents < 0 and entry.day.month == day.month:
            spent[entry.category] -= entry.cents
    names = ledger.budgets.keys() | spent.keys()
    return [(name, spent[name], ledger.budgets.get(name, 0)) for name in names]


def state(spent: int, limit: int) -> str:
    if not limit:
        return "no budget"
    if spent > limit:
        return f"over by {money(spent - limit)}"
    return "nearly used up" if spent * 100 >= limit * NEARLY else "ok"


def budget_line(name: str, spent: int, limit: int) -> str:
    of = f"{money(spent):>10} of {money(limit):>10}" if limit else f"{money(spent):>10}" + " " * 14
    return f"{name:<12}  {of}  {state(spent, limit)}"
