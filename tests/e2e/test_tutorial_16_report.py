"""The blocks of section 16 of docs/tutorial.sh that run a suite and look at it."""

from __future__ import annotations

import json
import subprocess

from muster.tutorial import E2eSession, blocks, expect

from ..test_tutorial import TUTORIAL

RUN = """
    # Run the tests. Transcripts and recordings of terminals go to .muster/e2e, or to a folder of your choice.
    (cd ../shop && pytest -q --e2e-artifacts ../shop-run)
"""


def shop(e2e: E2eSession) -> None:
    """The project that the earlier blocks of the section make."""
    for block in blocks.read(TUTORIAL):
        if block.kind == "commands" and "> ../shop/" in block.text and "muster report" not in block.text:
            subprocess.run(["bash", "-c", block.text], cwd=e2e.work, env=e2e.env, capture_output=True, check=False)


def run_before(e2e: E2eSession) -> None:
    shop(e2e)
    subprocess.run(
        ["pytest", "-q", "--e2e-artifacts", "../shop-run"],
        cwd=e2e.work / "../shop",
        env=e2e.env,
        capture_output=True,
        check=True,
    )


def test_a_run_leaves_the_transcript_of_each_test(e2e: E2eSession) -> None:
    e2e.write_tutorial_block(RUN)
    shop(e2e)
    result = e2e.run("(cd ../shop && pytest -q --e2e-artifacts ../shop-run)")
    expect(result).to_succeed()
    expect(result.stdout).to_contain("2 passed")
    tests = e2e.work / "../shop-run/tests"
    assert sorted(path.read_text() for path in tests.glob("*/transcript.txt")) == [
        "$ echo hello\nhello\n? 0\n",
        "$ seq 3\n1\n2\n3\n? 0\n",
    ]


def test_a_test_that_fails_shows_the_command_and_the_transcript(e2e: E2eSession) -> None:
    e2e.write_tutorial_block(RUN)
    shop(e2e)
    path = e2e.work / "../shop/tests/test_hello.py"
    path.write_text(path.read_text().replace('to_contain("hello")', 'to_contain("goodbye")'))
    result = e2e.run("(cd ../shop && pytest -q --e2e-artifacts ../shop-run)")
    expect(result).to_exit_with(1)
    expect(result.stdout).to_contain("expected stdout to contain 'goodbye'")
    expect(result.stdout).to_contain("$ echo hello")


def test_the_page_is_made_beside_the_artifacts(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
        # Make the page that shows them: each block beside its tests, transcripts in colour, recordings to play. It opens without a network.
        muster report ../shop-run
    """)
    run_before(e2e)
    result = e2e.run("muster report ../shop-run")
    expect(result).to_succeed()
    expect(result.stdout).to_equal("../shop-run/report/index.html\n")
    expect(result.stderr).to_contain("2 tests: 2 passed")
    page = (e2e.work / "../shop-run/report/index.html").read_text()
    assert "http://" not in page and "https://" not in page


def test_a_folder_that_is_no_run_is_refused(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
        # Make the page that shows them: each block beside its tests, transcripts in colour, recordings to play. It opens without a network.
        muster report ../shop-run
    """)
    result = e2e.run("muster report ../shop-run")
    expect(result).to_exit_with(3)
    expect(result.stderr).to_contain("--e2e-artifacts")


def test_the_page_can_be_made_elsewhere_and_no_browser_is_no_failure(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
        # Make it elsewhere, to put on a web server, and look at it in the browser if there is one.
        muster report ../shop-run --out ../shop-page --open
    """)
    run_before(e2e)
    browser = e2e.home / "bin" / "browser"
    browser.write_text('#!/bin/sh\necho "$1" > "$HOME/opened"\n')
    browser.chmod(0o755)
    result = e2e.run("muster report ../shop-run --out ../shop-page --open", env={"BROWSER": "browser %s"})
    expect(result).to_succeed()
    assert (e2e.work / "../shop-page/index.html").exists()
    assert (e2e.home / "opened").read_text().startswith("file://")
    assert not (e2e.work / "../shop-run/report").exists()
    again = e2e.run("muster report ../shop-run --out ../shop-page --json", env={"BROWSER": "/no/such"})
    assert json.loads(again.stdout)["outcomes"] == {"passed": 2}


def test_the_outcomes_are_there_as_data(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
        # How many passed, as data; and all that report can do.
        muster report ../shop-run --json --verbose
        muster report --help
    """)
    run_before(e2e)
    result = e2e.run("muster report ../shop-run --json --verbose")
    expect(result).to_succeed()
    assert result.json() == {
        "report": "../shop-run/report/index.html",
        "run": None,
        "tests": 2,
        "outcomes": {"passed": 2},
    }
    expect(e2e.run("muster report --help").stdout).to_contain("--out DIR")
