"""The commands of till: what is typed, what is said, and the exit codes (0 ok, 1 not done or over budget, 2 usage)."""

from __future__ import annotations

import argparse
import os
import sys

from . import __version__, exchange, ledger, live, report
from .ledger import Entry, Ledger, TillError, money


def main(argv: list[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    path = ledger.place(os.environ)
    try:
        if args.command == "shell":
            live.shell(path, main)
            return 0
        if args.command == "watch":
            live.watch(path)
            return 0
        return args.run(Ledger(path), args) or 0
    except TillError as error:
        print(f"till: {error}", file=sys.stderr)
    except BrokenPipeError:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  # python flushes it once more at its end
    return 1


def add(book: Ledger, args: argparse.Namespace) -> None:
    cents = ledger.cents(args.amount) * args.sign
    day = ledger.day(args.date) if args.date else ledger.today(os.environ)
    entry = Entry(day, cents, args.category, " ".join(args.note))
    book.add(entry)
    print(report.line(entry))
    for name, spent, limit in report.budgets(book, day):
        if name == entry.category and limit and cents < 0 and report.state(spent, limit) != "ok":
            print(f"till: budget for {name}: {report.state(spent, limit)}", file=sys.stderr)


def show(book: Ledger, args: argparse.Namespace) -> None:
    print("\n".join(report.table(_chosen(book, args))))


def balance(book: Ledger, args: argparse.Namespace) -> None:
    print(money(sum(entry.cents for entry in book.entries)))


def total(book: Ledger, args: argparse.Namespace) -> None:
    key = report.by_month if args.by == "month" else report.by_category
    print("\n".join(report.totals(_chosen(book, args), key)))


def categories(book: Ledger, args: argparse.Namespace) -> None:
    for name in sorted({entry.category for entry in _chosen(book, args)}):
        print(name)


def budget(book: Ledger, args: argparse.Namespace) -> int:
    if args.category:
        if args.amount is None:
            raise TillError(f"how much may {args.category} cost in a month? till budget {args.category} 100")
        book.set_budget(args.category, ledger.cents(args.amount))
        print(f"{args.category}: {money(book.budgets[args.category])} a month")
        return 0
    day = ledger.month(args.month)[0] if args.month else ledger.today(os.environ)
    over = False
    for name, spent, limit in report.budgets(book, day):
        print(report.budget_line(name, spent, limit))
        over = over or spent > limit > 0
    return 1 if over else 0


def undo(book: Ledger, args: argparse.Namespace) -> None:
    print(f"taken back: {report.line(book.undo())}")


def write(book: Ledger, args: argparse.Namespace) -> None:
    chosen = _chosen(book, args)
    if args.file == "-":
        exchange.write(chosen, sys.stdout)
        return
    try:
        with open(args.file, "w", encoding="utf-8", newline="") as file:
            exchange.write(chosen, file)
    except OSError as error:
        raise TillError(f"cannot write {args.file}: {error.strerror}") from None
    print(f"{len(chosen)} entries written to {args.file}")


def read(book: Ledger, args: argparse.Namespace) -> None:
    try:
        with open(args.file, encoding="utf-8-sig", newline="") as file:
            count = exchange.read(file, book)
    except OSError as error:
        raise TillError(f"cannot read {args.file}: {error.strerror}") from None
    print(f"{count} entries added")


def _chosen(book: Ledger, args: argparse.Namespace) -> list[Entry]:
    since, until = (ledger.day(text) if text else None for text in (args.since, args.until))
    if args.month:
        since, until = ledger.month(args.month)
    return report.choose(book.entries, since, until, args.category, args.sign)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="till", description="The till of a small shop: what came in, what went out.")
    parser.add_argument("--version", action="version", version=f"till {__version__}")
    verbs = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, sign, words in (("sell", 1, "write down a sale"), ("spend", -1, "write down an expense")):
        verb = verbs.add_parser(name, help=words)
        verb.add_argument("amount")
        verb.add_argument("category")
        verb.add_argument("note", nargs="*")
        verb.add_argument("--date", help="when it was not today, as in 2026-03-14")
        verb.set_defaults(run=add, sign=sign)
    choosers = (
        ("list", show, "show entries by date"),
        ("total", total, "add up by category or month"),
        ("categories", categories, "show the categories in use"),
        ("export", write, "write entries as CSV"),
    )
    for name, run, words in choosers:
        verb = verbs.add_parser(name, help=words)
        verb.add_argument("--month", help="as in 2026-03")
        verb.add_argument("--since", metavar="DATE", help="this day and later")
        verb.add_argument("--until", metavar="DATE", help="this day and earlier")
        verb.add_argument("--category")
        which = verb.add_mutually_exclusive_group()
        which.add_argument("--sales", dest="sign", action="store_const", const=1, default=0)
        which.add_argument("--expenses", dest="sign", action="store_const", const=-1)
        verb.set_defaults(run=run)
    verbs.choices["total"].add_argument("--by", choices=("month", "category"), default="category")
    verbs.choices["export"].add_argument("file", nargs="?", default="-")
    verbs.add_parser("balance", help="show what is in the till").set_defaults(run=balance)
    verb = verbs.add_parser("budget", help="set a budget, or see how all stand; exit code 1 when one is over")
    verb.add_argument("category", nargs="?")
    verb.add_argument("amount", nargs="?")
    verb.add_argument("--month", help="as in 2026-03; this month when not given")
    verb.set_defaults(run=budget)
    verbs.add_parser("undo", help="take the last entry back").set_defaults(run=undo)
    verb = verbs.add_parser("import", help="add the entries of a CSV file")
    verb.add_argument("file")
    verb.set_defaults(run=read)
    verbs.add_parser("watch", help="print the balance whenever it changes")
    verbs.add_parser("shell", help="a full-screen till")
    return parser
