"""Tutorial section 16, A tutorial and its tests: the blocks of a script, and what is wrong between them and the tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from muster.cli.main import actions
from muster.tutorial import E2eSession, expect

from .conftest import outside

TUTORIAL = """#!/bin/bash
# A shop, by example.

# ===== Orders =====

# Say hello.
echo hello

# Count three things.
seq 3

# Sending things back
"""
HELLO = '''from muster.tutorial import E2eSession, expect


def test_hello_is_said(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Say hello.
    echo hello
    """)
    expect(e2e.run("echo hello").stdout).to_contain("hello")
'''
COUNT = '''def test_three_things_are_counted(e2e):
    """
    # Count three things.
    seq 3
    """
    assert e2e.run("seq 3").stdout == "1\\n2\\n3\\n"
'''
CHECK = "muster tutorial check --tutorial ../shop/tutorial.sh ../shop/tests"


def shop(e2e: E2eSession, **tests: str) -> Path:
    """../shop as the blocks of this section leave it, with these test files."""
    folder = e2e.work.parent / "shop"
    (folder / "tests").mkdir(parents=True)
    (folder / "tutorial.sh").write_text(TUTORIAL)
    for name, text in tests.items():
        (folder / "tests" / f"test_{name}.py").write_text(text)
    return folder


def blocks(e2e: E2eSession) -> dict[str, dict[str, Any]]:
    """By their comment."""
    told = json.loads(outside(e2e, "muster", "tutorial", "list", "../shop/tutorial.sh", "--json"))
    return {block["comment"]: block for block in told["blocks"]}


def run_its_tests(e2e: E2eSession) -> None:
    expect(e2e.run("python -m pytest -q -p no:cacheprovider", cwd="../shop", comment="The tests run.")).to_succeed()


# The verbs


def test_help_shows_what_can_be_done_with_a_tutorial(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # What can be done with a tutorial such as this one?
    muster tutorial --help
    """)
    result = e2e.run("muster tutorial --help", comment="What can be done with a tutorial such as this one?")
    expect(result).to_succeed()
    expect(result.stdout).to_match(r"\AUsage: muster tutorial ACTION")
    for action in actions("tutorial"):
        expect(result.stdout).to_match(rf"^  {action} +\w")
    expect(result.stdout).to_contain("`muster tutorial ACTION --help` shows examples and every option.")


def test_an_action_that_is_none_is_answered_with_those_there_are(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # What can be done with a tutorial such as this one?
    muster tutorial --help
    """)
    result = e2e.run("muster tutorial chek")
    expect(result).to_exit_with(2)
    expect(result.stdout).to_be_empty()
    expect(result.stderr).to_contain("muster tutorial has no action 'chek'")
    expect(result.stderr).to_contain("check")
    expect(result.stderr).to_contain("muster tutorial --help lists all")


# Blocks


def test_a_tutorial_is_a_script_that_can_be_run_and_read_in_blocks(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # A tutorial is a script in blocks: a comment that says what you want, and what to type. Comments alone are headings, to be filled.
    mkdir -p ../shop/tests
    cat > ../shop/tutorial.sh <<'END'
    #!/bin/bash
    # A shop, by example.

    # ===== Orders =====

    # Say hello.
    echo hello

    # Count three things.
    seq 3

    # Sending things back
    END
    """)
    result = e2e.run(
        f"mkdir -p ../shop/tests\ncat > ../shop/tutorial.sh <<'END'\n{TUTORIAL}END",
        comment="A tutorial is a script in blocks.",
    )
    expect(result).to_succeed()
    expect(e2e.run("bash ../shop/tutorial.sh", comment="It is a script.").stdout).to_equal("hello\n1\n2\n3\n")
    kinds = {comment: block["kind"] for comment, block in blocks(e2e).items()}
    assert kinds == {
        "A shop, by example.": "preamble",
        "Orders": "banner",
        "Say hello.": "commands",
        "Count three things.": "commands",
        "Sending things back": "heading",
    }


def test_list_shows_line_id_comment_and_commands_of_each_block(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # See its blocks: the line and the id of each, its comment and its commands.
    muster tutorial list ../shop/tutorial.sh
    """)
    shop(e2e)
    result = e2e.run(
        "muster tutorial list ../shop/tutorial.sh",
        comment="See its blocks: the line and the id of each, its comment and its commands.",
    )
    expect(result).to_succeed()
    ids = {comment: block["id"] for comment, block in blocks(e2e).items()}
    expect(result.stdout).to_equal(
        f"    2  {ids['A shop, by example.']} (preamble)\n       # A shop, by example.\n"
        f"    4  {ids['Orders']} (banner)\n       # Orders\n"
        f"    6  {ids['Say hello.']}\n       # Say hello.\n       echo hello\n"
        f"    9  {ids['Count three things.']}\n       # Count three things.\n       seq 3\n"
        f"   12  {ids['Sending things back']} (to be filled)\n       # Sending things back\n"
    )
    expect(result.stderr).to_equal("5 blocks of ../shop/tutorial.sh\n")


def test_a_block_keeps_its_id_when_others_change(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # See its blocks: the line and the id of each, its comment and its commands.
    muster tutorial list ../shop/tutorial.sh
    """)
    folder = shop(e2e)
    before = blocks(e2e)["Count three things."]
    (folder / "tutorial.sh").write_text(TUTORIAL.replace("hello", "good morning"))
    result = e2e.run("muster tutorial list ../shop/tutorial.sh")
    expect(result.stdout).to_contain("echo good morning")
    expect(result.stdout).to_contain(before["id"])


@pytest.mark.parametrize(
    ("command", "code", "says", "hint"),
    [
        ("muster tutorial list ../shop/nothing.sh", 3, "there is no tutorial ../shop/nothing.sh", "name the script"),
        ("muster tutorial list ../shop", 2, "../shop is a folder", "name the script in it, such as tutorial.sh"),
        ("muster tutorial list", 3, "there is no tutorial.sh or docs/tutorial.sh here", "muster tutorial list FILE"),
    ],
)
def test_a_tutorial_that_is_not_there_is_named(e2e: E2eSession, command: str, code: int, says: str, hint: str) -> None:
    e2e.write_tutorial_block("""
    # See its blocks: the line and the id of each, its comment and its commands.
    muster tutorial list ../shop/tutorial.sh
    """)
    shop(e2e)
    result = e2e.run(command)
    expect(result).to_exit_with(code)
    expect(result.stdout).to_be_empty()
    expect(result.stderr).to_contain(says)
    expect(result.stderr).to_contain(hint)


def test_list_can_be_limited_to_a_section(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Only the blocks of one section.
    muster tutorial list ../shop/tutorial.sh --section orders
    """)
    folder = shop(e2e)
    (folder / "tutorial.sh").write_text(f"{TUTORIAL}\n# ===== Stock =====\n\n# How much is there?\ndf\n")
    result = e2e.run("muster tutorial list ../shop/tutorial.sh --section orders", comment="Only one section.")
    expect(result).to_succeed()
    for shown in ("echo hello", "seq 3"):
        expect(result.stdout).to_contain(shown)
    for hidden in ("A shop, by example", "Stock", "df"):
        expect(result.stdout).not_to_contain(hidden)


def test_list_can_be_limited_to_headings(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Which headings are still to be filled?
    muster tutorial list ../shop/tutorial.sh --kind heading
    """)
    shop(e2e)
    result = e2e.run(
        "muster tutorial list ../shop/tutorial.sh --kind heading", comment="Which headings are to be filled?"
    )
    expect(result).to_succeed()
    expect(result.stdout).to_match(
        r"\A   12  sending-things-back-\w+ \(to be filled\)\n       # Sending things back\n\Z"
    )


def test_a_heading_with_a_command_is_filled(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Which headings are still to be filled?
    muster tutorial list ../shop/tutorial.sh --kind heading
    """)
    folder = shop(e2e)
    (folder / "tutorial.sh").write_text(f"{TUTORIAL}echo sent back\n")
    result = e2e.run("muster tutorial list ../shop/tutorial.sh --kind heading")
    expect(result).to_succeed()
    expect(result.stdout).to_be_empty()


def test_a_kind_that_is_none_is_answered_with_those_there_are(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Which headings are still to be filled?
    muster tutorial list ../shop/tutorial.sh --kind heading
    """)
    shop(e2e)
    result = e2e.run("muster tutorial list ../shop/tutorial.sh --kind headings")
    expect(result).to_exit_with(2)
    expect(result.stderr).to_contain("invalid choice: 'headings'")
    expect(result.stderr).to_contain("did you mean 'heading'?")


# Tests and their citations


def test_check_names_the_block_that_no_test_cites(e2e: E2eSession) -> None:
    e2e.write_tutorial_block('''
    # A test says which block it is about by citing it. Which blocks have no test yet? Exit code 1 means that something was found.
    cat > ../shop/tests/test_hello.py <<'END'
    from muster.tutorial import E2eSession, expect


    def test_hello_is_said(e2e: E2eSession) -> None:
        e2e.write_tutorial_block("""
        # Say hello.
        echo hello
        """)
        expect(e2e.run("echo hello").stdout).to_contain("hello")
    END
    muster tutorial check --tutorial ../shop/tutorial.sh ../shop/tests || echo "something was found: $?"
    ''')
    shop(e2e)
    result = e2e.run(
        f"cat > ../shop/tests/test_hello.py <<'END'\n{HELLO}END\n"
        'muster tutorial check --tutorial ../shop/tutorial.sh ../shop/tests || echo "something was found: $?"',
        comment="Which blocks have no test yet? Exit code 1 means that something was found.",
    )
    expect(result.stdout).to_equal(
        f"../shop/tutorial.sh:9: missing: no test cites {blocks(e2e)['Count three things.']['id']} (Count three things.)\n"
        "something was found: 1\n"
    )
    expect(result.stderr).to_contain("2 blocks, 1 test, 1 finding\n")
    expect(result.stderr).to_contain("1 heading to be filled: ../shop/tutorial.sh\n")


def test_the_test_of_the_tutorial_passes(e2e: E2eSession) -> None:
    e2e.write_tutorial_block('''
    # A test says which block it is about by citing it. Which blocks have no test yet? Exit code 1 means that something was found.
    cat > ../shop/tests/test_hello.py <<'END'
    from muster.tutorial import E2eSession, expect


    def test_hello_is_said(e2e: E2eSession) -> None:
        e2e.write_tutorial_block("""
        # Say hello.
        echo hello
        """)
        expect(e2e.run("echo hello").stdout).to_contain("hello")
    END
    muster tutorial check --tutorial ../shop/tutorial.sh ../shop/tests || echo "something was found: $?"
    ''')
    folder = shop(e2e, hello=HELLO)
    run_its_tests(e2e)
    [transcript] = (folder / ".muster" / "e2e" / "tests").glob("*/transcript.txt")
    expect(transcript.read_text()).to_contain("$ echo hello\nhello\n? 0\n")


@pytest.mark.parametrize(
    ("kind", "test", "says"),
    [
        ("stale", HELLO.replace("echo hello\n", "echo hallo\n"), "    +echo hello"),
        ("orphaned", "def test_nothing(e2e):\n    e2e.run('true')\n", "test_nothing uses e2e and cites no block"),
        (
            "duplicate",
            'def test_two(e2e):\n    e2e.write_tutorial_block("# Say hello.\\necho hello")\n'
            '    e2e.write_tutorial_block("# Say hello.\\necho hello")\n',
            "twice, first at line 2",
        ),
        ("syntax", "def test_hello(e2e:\n", "its tests are not counted"),
    ],
)
def test_check_finds_a_citation_that_is_not_right(e2e: E2eSession, kind: str, test: str, says: str) -> None:
    e2e.write_tutorial_block('''
    # A test says which block it is about by citing it. Which blocks have no test yet? Exit code 1 means that something was found.
    cat > ../shop/tests/test_hello.py <<'END'
    from muster.tutorial import E2eSession, expect


    def test_hello_is_said(e2e: E2eSession) -> None:
        e2e.write_tutorial_block("""
        # Say hello.
        echo hello
        """)
        expect(e2e.run("echo hello").stdout).to_contain("hello")
    END
    muster tutorial check --tutorial ../shop/tutorial.sh ../shop/tests || echo "something was found: $?"
    ''')
    shop(e2e, count=COUNT, hello=test)
    result = e2e.run(CHECK)
    expect(result).to_exit_with(1)
    expect(result.stdout).to_match(rf"^\.\./shop/tests/test_hello\.py:\d+: {kind}: ")
    expect(result.stdout).to_contain(says)


def test_tests_that_are_not_there_are_not_found(e2e: E2eSession) -> None:
    e2e.write_tutorial_block('''
    # A test says which block it is about by citing it. Which blocks have no test yet? Exit code 1 means that something was found.
    cat > ../shop/tests/test_hello.py <<'END'
    from muster.tutorial import E2eSession, expect


    def test_hello_is_said(e2e: E2eSession) -> None:
        e2e.write_tutorial_block("""
        # Say hello.
        echo hello
        """)
        expect(e2e.run("echo hello").stdout).to_contain("hello")
    END
    muster tutorial check --tutorial ../shop/tutorial.sh ../shop/tests || echo "something was found: $?"
    ''')
    shop(e2e)
    result = e2e.run("muster tutorial check --tutorial ../shop/tutorial.sh ../shop/test")
    expect(result).to_exit_with(3)
    expect(result.stderr).to_contain("there are no tests at ../shop/test")
    expect(result.stderr).to_contain("name files or folders that exist")


def test_a_docstring_cites_too_and_in_the_project_nothing_has_to_be_named(e2e: E2eSession) -> None:
    e2e.write_tutorial_block(r'''
    # A citation in a docstring counts too. In the project itself, the tutorial and the tests are found without being named.
    cat > ../shop/tests/test_count.py <<'END'
    def test_three_things_are_counted(e2e):
        """
        # Count three things.
        seq 3
        """
        assert e2e.run("seq 3").stdout == "1\n2\n3\n"
    END
    (cd ../shop && muster tutorial check)
    ''')
    shop(e2e, hello=HELLO)
    result = e2e.run(
        f"cat > ../shop/tests/test_count.py <<'END'\n{COUNT}END\n(cd ../shop && muster tutorial check)",
        comment="A citation in a docstring counts too.",
    )
    expect(result).to_succeed()
    expect(result.stdout).to_be_empty()
    expect(result.stderr).to_contain("2 blocks, 2 tests, 0 findings\n")


def test_a_docstring_that_is_not_current_is_stale(e2e: E2eSession) -> None:
    e2e.write_tutorial_block(r'''
    # A citation in a docstring counts too. In the project itself, the tutorial and the tests are found without being named.
    cat > ../shop/tests/test_count.py <<'END'
    def test_three_things_are_counted(e2e):
        """
        # Count three things.
        seq 3
        """
        assert e2e.run("seq 3").stdout == "1\n2\n3\n"
    END
    (cd ../shop && muster tutorial check)
    ''')
    shop(e2e, hello=HELLO, count=COUNT.replace("    seq 3\n", "    seq 1 3\n"))
    result = e2e.run("(cd ../shop && muster tutorial check)")
    expect(result).to_exit_with(1)
    expect(result.stdout).to_match(
        r"^tests/test_count.py:\d+: stale: this is not a block of tutorial.sh; the nearest is "
    )
    expect(result.stdout).to_match(r"^    -seq 1 3\n    \+seq 3$")


# What the tests ran


def test_commands_are_checked_only_for_tests_that_ran(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # The transcripts of the tests tell which commands of a block no test ran. These are warnings; with --strict they fail the check.
    mkdir -p ../shop/.muster/e2e
    muster tutorial check --tutorial ../shop/tutorial.sh --artifacts ../shop/.muster/e2e --strict ../shop/tests
    """)
    shop(e2e, hello=HELLO, count=COUNT)
    expect(e2e.run("mkdir -p ../shop/.muster/e2e")).to_succeed()
    strict = (
        "muster tutorial check --tutorial ../shop/tutorial.sh --artifacts ../shop/.muster/e2e --strict ../shop/tests"
    )
    before = e2e.run(strict, comment="No test ran yet.")
    expect(before).to_succeed()
    expect(before.stderr).to_contain("unknown whether the commands of 2 blocks ran")

    run_its_tests(e2e)
    after = e2e.run(strict, comment="The transcripts of the tests tell.")
    expect(after).to_succeed()
    expect(after.stderr).not_to_contain("unknown whether")
    expect(after.stderr).to_contain("2 blocks, 2 tests, 0 findings\n")


def test_a_command_that_no_test_ran_is_a_warning_that_strict_fails_for(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # The transcripts of the tests tell which commands of a block no test ran. These are warnings; with --strict they fail the check.
    mkdir -p ../shop/.muster/e2e
    muster tutorial check --tutorial ../shop/tutorial.sh --artifacts ../shop/.muster/e2e --strict ../shop/tests
    """)
    lazy = COUNT.replace('e2e.run("seq 3").stdout', "e2e.run(\"printf '%s\\\\n' 1 2 3\").stdout")
    shop(e2e, hello=HELLO, count=lazy)
    run_its_tests(e2e)
    told = f"../shop/tutorial.sh:9: not-run: no test that cites {blocks(e2e)['Count three things.']['id']} ran: seq 3\n"

    mild = e2e.run("muster tutorial check --tutorial ../shop/tutorial.sh --artifacts ../shop/.muster/e2e ../shop/tests")
    expect(mild).to_succeed()
    expect(mild.stdout).to_equal(told)
    expect(mild.stderr).to_contain("0 findings, 1 warning\n")

    strict = e2e.run(
        "muster tutorial check --tutorial ../shop/tutorial.sh --artifacts ../shop/.muster/e2e --strict ../shop/tests"
    )
    expect(strict).to_exit_with(1)
    expect(strict.stdout).to_equal(told)
