"""Section 2: looking things up."""

from __future__ import annotations

import pytest

from muster.tutorial import E2eSession, expect


@pytest.fixture
def entries(e2e: E2eSession) -> None:
    """Add a few entries that are not in order of date."""
    (e2e.work / "shop.csv").write_text(
        "date,amount,category,note\n"
        "2026-03-08,20,bread,\n"
        "2026-03-02,-4.50,supplies,Bags\n"
        "2026-03-01,15,bread,\n"
        "2025-12-24,240,catering,\n"
        "2025-12-31,-80,rent,\n"
    )
    expect(e2e.run("till import shop.csv")).to_succeed()


def test_list_is_in_the_order_of_days(e2e: E2eSession, entries: None) -> None:
    e2e.write_tutorial_block("""
    # See everything, the oldest day first, in whatever order it was written down.
    till list
    """)
    result = e2e.run("till list")
    expect(result).to_succeed()
    expect(result.stdout).to_contain("2025-12-24")
    expect(result.stdout).to_contain("2026-03-08")


def test_a_damaged_ledger_is_named_and_left_alone(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # See everything, the oldest day first, in whatever order it was written down.
    till list
    """)
    e2e.run('mkdir -p "$XDG_DATA_HOME/till" && echo "{oops" > "$XDG_DATA_HOME/till/ledger.json"')
    for command in ("till list", "till sell 1 bread"):
        result = e2e.run(command)
        expect(result).to_exit_with(1)
        expect(result.stderr).to_contain("ledger.json is damaged; nothing was changed")
    expect(e2e.run('cat "$XDG_DATA_HOME/till/ledger.json"').stdout).to_equal("{oops\n")


def test_list_of_a_month(e2e: E2eSession, entries: None) -> None:
    e2e.write_tutorial_block("""
    # Only one month, from its first to its last day.
    till list --month 2025-12
    """)
    result = e2e.run("till list --month 2025-12", comment="Only one month, from its first to its last day.")
    expect(result).to_succeed()
    expect(result.stdout).to_equal(
        "2025-12-24      240.00  catering\n"
        "2025-12-31      -80.00  rent\n"
    )  # fmt: skip


def test_list_of_a_month_without_entries(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Only one month, from its first to its last day.
    till list --month 2025-12
    """)
    expect(e2e.run("till sell 20 bread --date 2026-01-01")).to_succeed()
    result = e2e.run("till list --month 2025-12")
    expect(result).to_succeed()
    expect(result.stdout).to_equal("no entries\n")


def test_list_of_february_ends_with_its_last_day(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Only one month, from its first to its last day.
    till list --month 2025-12
    """)
    e2e.run("till sell 1 bread --date 2024-02-29; till sell 2 bread --date 2024-03-01")
    expect(e2e.run("till list --month 2024-02").stdout).to_equal("2024-02-29        1.00  bread\n")


def test_a_month_that_is_none_is_refused(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Only one month, from its first to its last day.
    till list --month 2025-12
    """)
    for month in ("2025-13", "2025", "december"):
        result = e2e.run(f"till list --month {month}")
        expect(result).to_exit_with(1)
        expect(result.stderr).to_equal(f"till: '{month}' is no month; write it as 2026-03\n")


def test_list_of_a_category(e2e: E2eSession, entries: None) -> None:
    e2e.write_tutorial_block("""
    # Only one category.
    till list --category supplies
    """)
    result = e2e.run("till list --category supplies", comment="Only one category.")
    expect(result).to_succeed()
    expect(result.stdout).to_contain("supplies")


def test_list_of_some_days_has_both_ends(e2e: E2eSession, entries: None) -> None:
    e2e.write_tutorial_block("""
    # Only some days; the first and the last one count.
    till list --since 2026-03-02 --until 2026-03-08
    """)
    result = e2e.run("till list --since 2026-03-02 --until 2026-03-08")
    expect(result).to_succeed()
    expect(result.stdout).to_equal(
        "2026-03-02       -4.50  supplies      Bags\n"
        "2026-03-08       20.00  bread\n"
    )  # fmt: skip


def test_list_of_expenses_or_sales(e2e: E2eSession, entries: None) -> None:
    e2e.write_tutorial_block("""
    # Only what you spent, or only what you sold.
    till list --expenses
    till list --sales
    """)
    expenses = e2e.run("till list --expenses")
    expect(expenses).to_succeed()
    expect(expenses.stdout).to_contain("rent")
    sales = e2e.run("till list --sales")
    expect(sales).to_succeed()
    expect(sales.stdout).to_contain("bread")


def test_categories_are_named_once(e2e: E2eSession, entries: None) -> None:
    e2e.write_tutorial_block("""
    # Which categories did you use? Each is named once, in alphabetical order.
    till categories
    """)
    result = e2e.run("till categories")
    expect(result).to_succeed()
    expect(result.stdout).to_equal("bread\ncatering\nrent\nsupplies\n")


def test_categories_of_a_month(e2e: E2eSession, entries: None) -> None:
    e2e.write_tutorial_block("""
    # Which categories did you use? Each is named once, in alphabetical order.
    till categories
    """)
    result = e2e.run("till categories --month 2025-12")
    expect(result).to_succeed()
    expect(result.stdout).to_equal("catering\nrent\n")
