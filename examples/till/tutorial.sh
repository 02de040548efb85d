#!/bin/bash
# till, by example: the till of a small shop.
# Each block says what you want and shows what to type.

# =====================================================================
# 1. Money comes in, money goes out
# =====================================================================

# See all commands.
till --help

# You sold bread for 12.50. It counts for today.
till sell 12.50 bread

# Add a note to remember what it was. Quotes are optional.
till sell 38 cake "Birthday cake for Ms Ito"

# You bought something for the shop. Expenses are shown with a minus sign.
till spend 4.50 supplies "Paper bags"

# It was not today.
till sell 240 catering --date 2025-12-24

# =====================================================================
# 2. Looking things up
# =====================================================================

# See everything, the oldest day first, in whatever order it was written down.
till list

# Only one month, from its first to its last day.
till list --month 2025-12

# Only one category.
till list --category supplies

# Only some days; the first and the last one count.
till list --since 2026-03-02 --until 2026-03-08

# Only what you spent, or only what you sold.
till list --expenses
till list --sales

# Which categories did you use? Each is named once, in alphabetical order.
till categories

# =====================================================================
# 3. Adding up
# =====================================================================

# How much is in the till?
till balance

# How did each month go? The last line is the total.
till total --by month

# What did each category bring or cost?
till total --by category

# The same for one month, say for the end of the year.
till total --by category --month 2025-12

# =====================================================================
# 4. Budgets
# =====================================================================

# Spend no more than 100 a month on supplies. Set it again to change it.
till budget supplies 100

# How do all budgets stand this month? Every category that has a budget or cost something is listed, in alphabetical order.
till budget

# And in another month? Only what was spent in that month counts.
till budget --month 2025-12

# You are told when an expense goes over the budget. It is written down all the same.
till budget flour 50
till spend 60 flour

# In a script: the exit code is 1 when a budget is over.
till budget > /dev/null || echo "no more shopping this month"

# =====================================================================
# 5. Mistakes, files, and a screen to leave open
# =====================================================================

# That was a typo: take the last entry back.
till undo

# Undo goes step by step: each time it takes one entry more back.
till undo
till undo

# Give the accountant a file for the spreadsheet.
till export year.csv --since 2025-01-01 --until 2025-12-31

# Without a name, the lines go to the next program.
till export --category bread | wc -l

# Take entries over from a spreadsheet. The first line names the columns; a minus sign makes an expense.
cat > market.csv <<'END'
date,amount,category,note
2026-03-07,85.20,market,"Rolls, buns"
2026-03-07,-20.00,fees,Market stall
END
till import market.csv

# When one line of a file is wrong, its number is named and nothing is imported. Correct it and import the file again.
printf 'date,amount,category\n2026-03-08,10.00,market\n2026-03-09,ten,market\n' > broken.csv
till import broken.csv

# Leave the balance on a screen; it is printed again whenever it changes. Ctrl-C ends it.
till watch

# A full-screen till. Type commands without the word till; a typo is explained and does no harm. quit leaves it.
till shell
