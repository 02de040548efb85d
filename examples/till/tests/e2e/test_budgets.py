"""Section 4: budgets."""

from __future__ import annotations

from muster.tutorial import E2eSession, expect


def test_set_a_budget(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Spend no more than 100 a month on supplies. Set it again to change it.
    till budget supplies 100
    """)
    result = e2e.run("till budget supplies 100", comment="Spend no more than 100 a month on supplies.")
    expect(result).to_succeed()


def test_budgets_are_in_alphabetical_order(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # How do all budgets stand this month? Every category that has a budget or cost something is listed, in alphabetical order.
    till budget
    """)
    expect(e2e.run("till budget supplies 100 && till spend 20 rent && till spend 95 supplies")).to_succeed()
    result = e2e.run("till budget")
    expect(result).to_succeed()
    expect(result.stdout).to_equal(
        "rent               20.00                no budget\n"
        "supplies           95.00 of     100.00  nearly used up\n"
    )  # fmt: skip


def test_last_year_does_not_count(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # How do all budgets stand this month? Every category that has a budget or cost something is listed, in alphabetical order.
    till budget
    """)
    expect(e2e.run("till budget supplies 100")).to_succeed()
    expect(e2e.run("till spend 80 supplies --date 2025-03-14 && till spend 30 supplies")).to_succeed()
    result = e2e.run("till budget")
    expect(result).to_succeed()
    expect(result.stdout).to_equal("supplies           30.00 of     100.00  ok\n")


def test_budgets_of_another_month(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # And in another month? Only what was spent in that month counts.
    till budget --month 2025-12
    """)
    expect(e2e.run("till budget supplies 100")).to_succeed()
    expect(e2e.run("till spend 40 supplies --date 2025-12-31 && till spend 90 supplies")).to_succeed()
    result = e2e.run("till budget --month 2025-12")
    expect(result).to_succeed()
    expect(result.stdout).to_equal("supplies           40.00 of     100.00  ok\n")


def test_an_expense_over_the_budget_is_told(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # You are told when an expense goes over the budget. It is written down all the same.
    till budget flour 50
    till spend 60 flour
    """)
    expect(e2e.run("till budget flour 50")).to_succeed()
    result = e2e.run("till spend 60 flour")
    expect(result).to_succeed()
    expect(result.stderr).to_contain("budget")


def test_an_expense_of_just_the_budget_is_not_over(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # You are told when an expense goes over the budget. It is written down all the same.
    till budget flour 50
    till spend 60 flour
    """)
    expect(e2e.run("till budget flour 50")).to_succeed()
    expect(e2e.run("till spend 50 flour").stderr).to_equal("till: budget for flour: nearly used up\n")
    expect(e2e.run("till spend 0.01 flour").stderr).to_equal("till: budget for flour: over by 0.01\n")


def test_the_exit_code_says_that_a_budget_is_over(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # In a script: the exit code is 1 when a budget is over.
    till budget > /dev/null || echo "no more shopping this month"
    """)
    command = 'till budget > /dev/null || echo "no more shopping this month"'
    expect(e2e.run("till budget flour 50 && till spend 50 flour")).to_succeed()
    expect(e2e.run(command).stdout).to_be_empty()
    expect(e2e.run("till spend 1 flour")).to_succeed()
    expect(e2e.run(command).stdout).to_equal("no more shopping this month\n")
