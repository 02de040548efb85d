"""Section 5: a screen to leave open."""

from __future__ import annotations

from muster.tutorial import E2eSession, expect


def test_watch_prints_each_change(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Leave the balance on a screen; it is printed again whenever it changes. Ctrl-C ends it.
    till watch
    """)
    watch = e2e.start("till watch", ready_when="Balance 0.00, entries: 0")
    expect(e2e.run("till sell 12.50 bread")).to_succeed()
    expect(watch).to_print("Balance 12.50, entries: 1\n")
    expect(e2e.run("till undo")).to_succeed()
    expect(watch).to_print("Balance 12.50, entries: 1\nBalance 0.00, entries: 0\n")
    assert watch.running


def test_watch_ends_with_ctrl_c(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Leave the balance on a screen; it is printed again whenever it changes. Ctrl-C ends it.
    till watch
    """)
    terminal = e2e.terminal("till watch", size=(60, 10), timeout=30)
    expect(terminal).to_show("Balance 0.00, entries: 0")
    terminal.press("Ctrl-C")
    expect(terminal).to_exit_with(0)


def test_shell_takes_commands(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # A full-screen till. Type commands without the word till; a typo is explained and does no harm. quit leaves it.
    till shell
    """)
    terminal = e2e.terminal("till shell", size=(80, 20), timeout=30)
    expect(terminal).to_show("Balance 0.00")
    terminal.type("sell 12.50 bread\n")
    expect(terminal).to_show("Balance 12.50")
    expect(terminal).to_match(r"^2026-03-14 +12\.50  bread$")
    terminal.type("quit\n")
    expect(terminal).to_exit_with(0)
    expect(e2e.run("till balance").stdout).to_equal("12.50\n")


def test_shell_goes_on_after_a_typo(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # A full-screen till. Type commands without the word till; a typo is explained and does no harm. quit leaves it.
    till shell
    """)
    terminal = e2e.terminal("till shell", size=(80, 20), timeout=30)
    expect(terminal).to_show("till>")
    terminal.type("sel 12.50 bread\n")
    expect(terminal).to_show("invalid choice: 'sel'")
    terminal.type("sell 12.5O bread\n")
    expect(terminal).to_show("'12.5O' is no amount")
    terminal.type("quit\n")
    expect(terminal).to_exit_with(0)


def test_shell_goes_on_after_a_quote_that_is_left_open(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # A full-screen till. Type commands without the word till; a typo is explained and does no harm. quit leaves it.
    till shell
    """)
    terminal = e2e.terminal("till shell", size=(80, 20), timeout=30)
    expect(terminal).to_show("Balance 0.00")
    terminal.type("sell 38 cake Anna's birthday\n")
    expect(terminal).to_match(r"(?i)quot")
    terminal.type('sell 38 cake "Anna\'s birthday"\n')
    expect(terminal).to_show("Balance 38.00")
    terminal.type("quit\n")
    expect(terminal).to_exit_with(0)
