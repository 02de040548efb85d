"""Section 3: adding up."""

from __future__ import annotations

import pytest

from muster.tutorial import E2eSession, expect


@pytest.fixture
def entries(e2e: E2eSession) -> None:
    expect(
        e2e.run("""
        till sell 100 bread --date 2025-12-30 &&
        till spend 30.25 flour --date 2025-12-31 &&
        till sell 50.25 bread --date 2026-01-01
        """)
    ).to_succeed()


def test_balance(e2e: E2eSession, entries: None) -> None:
    e2e.write_tutorial_block("""
    # How much is in the till?
    till balance
    """)
    result = e2e.run("till balance", comment="How much is in the till?")
    expect(result).to_succeed()
    expect(result.stdout).to_match(r"\d")


def test_total_by_month(e2e: E2eSession, entries: None) -> None:
    e2e.write_tutorial_block("""
    # How did each month go? The last line is the total.
    till total --by month
    """)
    result = e2e.run("till total --by month")
    expect(result).to_succeed()
    expect(result.stdout).to_equal(
        "2025-12            69.75\n"
        "2026-01            50.25\n"
        "total             120.00\n"
    )  # fmt: skip


def test_total_by_category(e2e: E2eSession, entries: None) -> None:
    e2e.write_tutorial_block("""
    # What did each category bring or cost?
    till total --by category
    """)
    result = e2e.run("till total --by category", comment="What did each category bring or cost?")
    expect(result).to_succeed()
    expect(result.stdout).to_contain("bread")
    expect(result.stdout).to_contain("total")


def test_total_of_a_month(e2e: E2eSession, entries: None) -> None:
    e2e.write_tutorial_block("""
    # The same for one month, say for the end of the year.
    till total --by category --month 2025-12
    """)
    result = e2e.run("till total --by category --month 2025-12")
    expect(result).to_succeed()
    expect(result.stdout).to_equal(
        "bread             100.00\n"
        "flour             -30.25\n"
        "total              69.75\n"
    )  # fmt: skip
