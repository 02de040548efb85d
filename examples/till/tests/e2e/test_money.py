"""Section 1: money comes in, money goes out."""

from __future__ import annotations

from muster.tutorial import E2eSession, expect


def test_help_names_the_commands(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # See all commands.
    till --help
    """)
    result = e2e.run("till --help", comment="See all commands.")
    expect(result).to_succeed()
    expect(result.stdout).to_contain("sell")


def test_a_sale_counts_for_today(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # You sold bread for 12.50. It counts for today.
    till sell 12.50 bread
    """)
    result = e2e.run("till sell 12.50 bread", comment="You sold bread for 12.50.")
    expect(result).to_succeed()
    expect(result.stdout).to_equal("2026-03-14       12.50  bread\n")


def test_an_amount_that_is_none_is_refused(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # You sold bread for 12.50. It counts for today.
    till sell 12.50 bread
    """)
    for amount in ("twelve", "12.505", "0", "1,25"):
        result = e2e.run(f"till sell {amount} bread")
        expect(result).to_exit_with(1)
        expect(result.stderr).to_match(r"^till: .*amount")
    expect(e2e.run("till list").stdout).to_equal("no entries\n")


def test_a_sale_with_a_note(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Add a note to remember what it was. Quotes are optional.
    till sell 38 cake "Birthday cake for Ms Ito"
    """)
    result = e2e.run('till sell 38 cake "Birthday cake for Ms Ito"', comment="Add a note to remember what it was.")
    expect(result).to_succeed()


def test_an_expense_has_a_minus_sign(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # You bought something for the shop. Expenses are shown with a minus sign.
    till spend 4.50 supplies "Paper bags"
    """)
    result = e2e.run('till spend 4.50 supplies "Paper bags"')
    expect(result).to_succeed()
    expect(result.stdout).to_equal("2026-03-14       -4.50  supplies      Paper bags\n")


def test_a_sale_of_another_day(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # It was not today.
    till sell 240 catering --date 2025-12-24
    """)
    result = e2e.run("till sell 240 catering --date 2025-12-24", comment="It was not today.")
    expect(result).to_succeed()
    expect(result.stdout).to_contain("240")


def test_a_day_that_is_none_is_refused(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # It was not today.
    till sell 240 catering --date 2025-12-24
    """)
    result = e2e.run("till sell 240 catering --date 2026-02-30")
    expect(result).to_exit_with(1)
    expect(result.stderr).to_equal("till: '2026-02-30' is no date; write it as 2026-03-14\n")
    expect(e2e.run("till list").stdout).to_equal("no entries\n")
