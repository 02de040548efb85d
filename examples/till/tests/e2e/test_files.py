"""Section 5: mistakes and files."""

from __future__ import annotations

from muster.tutorial import E2eSession, expect

MARKET = """cat > market.csv <<'END'
date,amount,category,note
2026-03-07,85.20,market,"Rolls, buns"
2026-03-07,-20.00,fees,Market stall
END
"""


def test_undo_takes_the_last_entry_back(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # That was a typo: take the last entry back.
    till undo
    """)
    expect(e2e.run("till sell 12.50 bread && till sell 1250 bread")).to_succeed()
    result = e2e.run("till undo")
    expect(result).to_succeed()
    expect(result.stdout).to_equal("taken back: 2026-03-14    1,250.00  bread\n")
    expect(e2e.run("till balance").stdout).to_equal("12.50\n")


def test_undo_of_an_empty_till(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # That was a typo: take the last entry back.
    till undo
    """)
    result = e2e.run("till undo")
    expect(result).to_exit_with(1)
    expect(result.stderr).to_equal("till: there is nothing to undo\n")


def test_undo_twice(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Undo goes step by step: each time it takes one entry more back.
    till undo
    till undo
    """)
    expect(e2e.run("till sell 1 bread && till sell 2 cake && till sell 3 rolls")).to_succeed()
    expect(e2e.run("till undo").stdout).to_contain("rolls")
    second = e2e.run("till undo", comment="A second undo brings the entry back.")
    expect(second.stdout).to_contain("rolls")
    expect(e2e.run("till balance").stdout).to_equal("6.00\n")


def test_export_a_year(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Give the accountant a file for the spreadsheet.
    till export year.csv --since 2025-01-01 --until 2025-12-31
    """)
    expect(e2e.run('till sell 5 cake "Large, with cherries" --date 2025-06-01 && till sell 7 bread')).to_succeed()
    result = e2e.run("till export year.csv --since 2025-01-01 --until 2025-12-31")
    expect(result).to_succeed()
    assert (e2e.work / "year.csv").exists()


def test_export_a_month(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Give the accountant a file for the spreadsheet.
    till export year.csv --since 2025-01-01 --until 2025-12-31
    """)
    expect(e2e.run("till spend 30.25 flour Rye --date 2025-12-31 && till sell 7 bread")).to_succeed()
    result = e2e.run("till export december.csv --month 2025-12")
    expect(result).to_succeed()
    assert (e2e.work / "december.csv").read_text() == "date,amount,category,note\n2025-12-31,-30.25,flour,Rye\n"


def test_export_to_a_pipe(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Without a name, the lines go to the next program.
    till export --category bread | wc -l
    """)
    expect(e2e.run("till sell 1 bread && till sell 2 bread && till sell 3 cake")).to_succeed()
    result = e2e.run("till export --category bread | wc -l")
    expect(result).to_succeed()
    assert int(result.stdout) == 3, "the names of the columns, and two sales"


def test_import_a_file(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Take entries over from a spreadsheet. The first line names the columns; a minus sign makes an expense.
    cat > market.csv <<'END'
    date,amount,category,note
    2026-03-07,85.20,market,"Rolls, buns"
    2026-03-07,-20.00,fees,Market stall
    END
    till import market.csv
    """)
    result = e2e.run(MARKET + "till import market.csv")
    expect(result).to_succeed()
    expect(result.stdout).to_equal("2 entries added\n")
    expect(e2e.run("till list").stdout).to_equal(
        "2026-03-07       85.20  market        Rolls, buns\n"
        "2026-03-07      -20.00  fees          Market stall\n"
    )  # fmt: skip


def test_what_was_exported_can_be_imported(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Take entries over from a spreadsheet. The first line names the columns; a minus sign makes an expense.
    cat > market.csv <<'END'
    date,amount,category,note
    2026-03-07,85.20,market,"Rolls, buns"
    2026-03-07,-20.00,fees,Market stall
    END
    till import market.csv
    """)
    expect(e2e.run(MARKET + "till import market.csv && till export again.csv")).to_succeed()
    expect(e2e.run("diff market.csv again.csv")).to_succeed()


def test_a_wrong_line_is_named_and_nothing_imported(e2e: E2eSession) -> None:
    e2e.write_tutorial_block(r"""
    # When one line of a file is wrong, its number is named and nothing is imported. Correct it and import the file again.
    printf 'date,amount,category\n2026-03-08,10.00,market\n2026-03-09,ten,market\n' > broken.csv
    till import broken.csv
    """)
    e2e.run(r"printf 'date,amount,category\n2026-03-08,10.00,market\n2026-03-09,ten,market\n' > broken.csv")
    result = e2e.run("till import broken.csv")
    expect(result).to_exit_with(1)
    expect(result.stderr).to_equal("till: line 3: 'ten' is no amount; write it as 12.50\n")
    expect(e2e.run("till list").stdout).to_equal("no entries\n")


def test_a_corrected_file_is_imported_once(e2e: E2eSession) -> None:
    e2e.write_tutorial_block(r"""
    # When one line of a file is wrong, its number is named and nothing is imported. Correct it and import the file again.
    printf 'date,amount,category\n2026-03-08,10.00,market\n2026-03-09,ten,market\n' > broken.csv
    till import broken.csv
    """)
    e2e.run(r"printf 'date,amount,category\n2026-03-08,10.00,market\n2026-02-29,12.00,market\n' > broken.csv")
    expect(e2e.run("till import broken.csv").stderr).to_contain("line 3: '2026-02-29' is no date")
    expect(e2e.run("sed -i s/2026-02-29/2026-03-09/ broken.csv && till import broken.csv")).to_succeed()
    expect(e2e.run("till balance").stdout).to_equal("22.00\n")
