"""Tests of `muster tutorial check`: its findings and warnings, and malformed input that it must survive."""

from __future__ import annotations

import json
import os
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from muster.errors import NotFound
from muster.tutorial import blocks, check, citations
from muster.tutorial.check import Finding, Report

from ..conftest import World

TUTORIAL = """#!/bin/bash
# By example.

# ===== First =====

# See who is there.
muster list

# Make one.
muster create x \\
  --clean
muster list --json

# Later
"""
LIST = "# See who is there.\nmuster list"
MAKE = "# Make one.\nmuster create x \\\n  --clean\nmuster list --json"


class Project:
    """A tutorial with its tests and their artifacts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tutorial = folder / "tutorial.sh"
        self.tests = folder / "tests"
        self.artifacts = folder / ".muster" / "e2e"
        self.tests.mkdir()
        self.tutorial.write_text(TUTORIAL)

    def test(self, source: str, name: str = "test_it.py") -> Path:
        path = self.tests / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(textwrap.dedent(source).lstrip("\n"))
        return path

    def cites(self, *texts: str, name: str = "test_all.py") -> None:
        """Write a test file with one test per text, each citing it."""
        rows = [f"def test_{i}(e2e):\n    e2e.write_tutorial_block({text!r})\n" for i, text in enumerate(texts)]
        self.test("\n".join(rows), name)

    def ran(self, nodeid: Any, *commands: Any, folder: str = "", outcome: str = "passed") -> Path:
        place = self.artifacts / "tests" / (folder or f"t{len(list(self.artifacts.glob('tests/*')))}")
        place.mkdir(parents=True)
        (place / "test.json").write_text(json.dumps({"version": 1, "nodeid": nodeid, "outcome": outcome}))
        rows = [{"t": 0, "kind": "begin", "time": 1}]
        rows += [{"t": 0, "kind": "command", "n": n, "text": text} for n, text in enumerate(commands)]
        (place / "transcript.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return place

    def check(self) -> Report:
        return check.check(self.tutorial, [self.tests], self.artifacts)

    def findings(self, kind: str = "") -> list[Finding]:
        return [finding for finding in self.check().findings if kind in ("", finding.kind)]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    monkeypatch.chdir(tmp_path)
    yield Project(tmp_path)


def ids(report: Report) -> dict[str, str]:
    return {block.text: block.id for block in report.blocks}


def test_no_findings_when_every_block_is_cited(project: Project) -> None:
    project.cites(LIST, MAKE)
    report = project.check()
    assert report.findings == [] and not check.failed(report, strict=True)
    assert report.tests == {
        ids(report)[LIST]: [f"{project.tests}/test_all.py::test_0"],
        ids(report)[MAKE]: [f"{project.tests}/test_all.py::test_1"],
    }
    assert check.summary(report) == "2 blocks, 2 tests, 0 findings"
    assert any(note.startswith("1 heading to be filled") for note in report.notes)


def test_a_block_that_no_test_cites_is_missing(project: Project) -> None:
    project.cites(LIST)
    (finding,) = project.findings()
    assert (finding.kind, finding.file, finding.line) == ("missing", str(project.tutorial), 9)
    assert "Make one." in finding.message and finding.block in finding.message
    assert check.lines(project.check())[0].startswith(f"{project.tutorial}:9: missing: no test cites make-one-")


def test_headings_banners_and_the_preamble_need_no_test_but_may_be_cited(project: Project) -> None:
    project.cites(LIST, MAKE, "# Later", "# ===== First =====")
    assert project.findings() == []


def test_a_citation_is_compared_dedented_and_without_trailing_white_space(project: Project) -> None:
    project.test(
        '''
        class TestThis:
            class TestThat:
                async def test_deep(self, e2e):
                    e2e.write_tutorial_block("""

                        #!/bin/bash
                        # See who is there.  \t
                        muster list

                    """)
        '''
    )
    project.cites(MAKE.replace("\n", "\r\n"))
    report = project.check()
    assert report.findings == []
    assert report.tests[ids(report)[LIST]] == [f"{project.tests}/test_it.py::TestThis::TestThat::test_deep"]


def test_every_constant_expression_is_read_as_a_citation(project: Project) -> None:
    project.test(
        '''
        import pytest
        from textwrap import dedent
        BLOCK = "# See who is there.\\nmuster list"
        TYPED: str = BLOCK

        @pytest.mark.parametrize("x", [1, 2])
        def test_a(e2e, x):
            def inner():
                e2e.write_tutorial_block(BLOCK)
            inner()
        async def test_b(e2e):
            e2e.write_tutorial_block(text=r"""# See who is there.
        muster list""")
        def test_c(e2e):
            e2e.write_tutorial_block("# See who is there.\\n" "muster list")
        def test_d(*, e2e):
            e2e.write_tutorial_block("# See who is there.\\n" + "muster list")
        def test_e(e2e):
            e2e.write_tutorial_block(dedent("""
                # See who is there.
                muster list
            """).strip())
        def test_f(e2e):
            e2e.write_tutorial_block(TYPED)
        def test_g(e2e):
            e2e.write_tutorial_block(f"# See who is there.\\nmuster list")
        if True:
            def test_h(e2e):
                e2e.write_tutorial_block(BLOCK)
        '''
    )
    project.cites(MAKE)
    report = project.check()
    assert report.findings == []
    assert [name.rpartition("::")[2] for name in report.tests[ids(report)[LIST]]] == [f"test_{c}" for c in "abcdefgh"]


@pytest.mark.parametrize(
    ("call", "why"),
    [
        ('f"# See {x}.\\nmuster list"', "f-string"),
        ("x", "x is not a constant"),
        ("LOCAL", "LOCAL is not a constant"),
        ("TWICE", "TWICE is not a constant"),
        ("NOWHERE", "NOWHERE is not a constant"),
        ("self.text", "an expression"),
        ("3", "an expression"),
        ("", "it is missing"),
        ("' '.join(x)", "an expression"),
    ],
)
def test_a_citation_that_is_not_constant_is_unreadable_with_the_reason(project: Project, call: str, why: str) -> None:
    project.cites(LIST, MAKE)
    project.test(
        f"""
        LOCAL = TWICE = "# See who is there.\\nmuster list"
        TWICE = "x"
        def test_it(e2e, x):
            LOCAL = x
            e2e.write_tutorial_block({call})
        """
    )
    (finding,) = project.findings()
    assert (finding.kind, finding.line) == ("unreadable", 5)
    assert why in finding.message and "write it as a string literal" in finding.message


def test_a_stale_citation_names_the_nearest_block_and_shows_the_difference(project: Project) -> None:
    project.cites(LIST, MAKE, MAKE.replace("--clean", "--mode copy"))
    report = project.check()
    (finding,) = report.findings
    assert (finding.kind, finding.block, finding.line) == ("stale", ids(report)[MAKE], 8)
    assert f"the nearest is {ids(report)[MAKE]} at line 9" in finding.message
    assert "white space" not in finding.message
    printed = check.lines(report)
    assert (
        "    -  --mode copy" in printed and "    +  --clean" in printed and f"    +++ {project.tutorial}:9" in printed
    )


@pytest.mark.parametrize(
    "cited", ["# See who  is there.\nmuster list", "# See who is there.\n\nmuster list", LIST + "\n\\\n"]
)
def test_a_stale_citation_that_differs_only_in_white_space_says_so(project: Project, cited: str) -> None:
    project.cites(LIST, MAKE, cited)
    (finding,) = project.findings()
    assert finding.kind == "stale"
    assert ("differs only in white space" in finding.message) == ("\\" not in cited)


def test_a_text_similar_to_no_block_is_stale_without_a_nearest_block(project: Project) -> None:
    project.cites(LIST, MAKE, "zzz")
    (finding,) = project.findings()
    assert (finding.kind, finding.block, finding.diff) == ("stale", "", "") and "no block is similar" in finding.message


def test_a_test_that_uses_the_fixture_and_cites_nothing_is_orphaned(project: Project) -> None:
    project.cites(LIST, MAKE)
    project.test(
        """
        import pytest
        def test_a(e2e): pass
        @pytest.mark.usefixtures("other", "e2e")
        def test_b(): pass
        @pytest.mark.usefixtures("e2e")
        class TestC:
            def test_c(self): pass
            def helper(self, e2e): pass
        class TestD:
            pytestmark = [pytest.mark.usefixtures("e2e")]
            def test_d(self): pass
        class Other:
            def test_no(self, e2e): pass
        def test_none(world): pass
        def helper(e2e): pass
        """
    )
    assert [(f.kind, f.test.rpartition("::")[2]) for f in project.findings()] == [
        ("orphaned", f"test_{c}") for c in "abcd"
    ]


def test_one_test_citing_a_block_twice_is_a_duplicate_but_two_tests_citing_it_are_not(
    project: Project,
) -> None:
    project.cites(LIST, LIST, MAKE)
    project.test(
        f"def test_two(e2e):\n    e2e.write_tutorial_block({LIST!r})\n    e2e.write_tutorial_block({LIST!r})\n"
    )
    (finding,) = project.findings()
    assert (finding.kind, finding.line) == ("duplicate", 3) and "first at line 2" in finding.message


def test_equal_blocks_of_the_tutorial_are_duplicates_and_one_citation_covers_both(project: Project) -> None:
    project.tutorial.write_text(f"{TUTORIAL}\n  {LIST.replace(chr(10), chr(10) + '  ')}\n")
    project.cites(LIST, MAKE)
    report = project.check()
    (finding,) = report.findings
    assert (finding.kind, finding.line) == ("duplicate", 16) and "line 6" in finding.message
    assert len(report.tests) == 3 and all(report.tests.values())


def test_a_docstring_may_mix_citations_with_prose(project: Project) -> None:
    project.test(
        '''
        def test_it():
            """It doesn't only list.

            # See who is there.
            muster list

            That isn't all; it's made too:

            # Make one.
            muster create x \\\\
              --clean
            muster list --json

            # A heading that isn't a block

            So it's done, and `x | y` is prose.
            """
        '''
    )
    report = project.check()
    assert report.findings == [] and all(report.tests.values())


def test_a_stale_text_in_a_docstring_is_found_only_if_it_begins_with_a_comment(project: Project) -> None:
    project.cites(LIST, MAKE)
    project.test('''
        def test_it():
            """Some prose
            over two lines.

            # See who was there.
            muster list
            """
        ''')
    (finding,) = project.findings()
    assert (finding.kind, finding.line) == ("stale", 5) and "see-who-is-there" in finding.block


def test_a_one_line_docstring_may_be_a_block(project: Project) -> None:
    project.tutorial.write_text("muster list\n")
    project.test('def test_it(e2e):\n    """muster list"""\n')
    assert project.findings() == []


@pytest.mark.parametrize(
    ("source", "line"),
    [
        (b"def test_a(:\n", 1),
        (b"x = 1\n\ndef test_a(e2e):\n  e2e.write_tutorial_block('''\n", 4),
        (b"# -*- coding: utf-8 -*-\nx = '\xff'\n", 1),
        (b"x = 1\0\n", 1),
        (b"x = " + b"(" * 5000, 1),
        (b"# -*- coding: nonsense -*-\n", 1),
    ],
    ids=["syntax", "open", "latin1", "null", "deep", "coding"],
)
def test_a_file_that_is_not_python_is_a_finding_and_the_others_are_still_checked(
    project: Project, source: bytes, line: int
) -> None:
    (project.tests / "test_bad.py").write_bytes(source)
    project.cites(LIST)
    kinds = [(finding.kind, os.path.basename(finding.file)) for finding in project.findings()]
    assert sorted(kinds) == [("missing", "tutorial.sh"), ("syntax", "test_bad.py")]
    (finding,) = project.findings("syntax")
    assert finding.line >= 1 and (source.count(b"(") > 9 or finding.line <= 5) and "not counted" in finding.message


def test_tests_are_parsed_and_never_imported(project: Project) -> None:
    project.cites(LIST, MAKE)
    project.test("raise SystemExit('imported')\nopen('made', 'w')\ndef test_x(): pass\n")
    assert project.findings() == [] and not (project.folder / "made").exists()


def test_which_files_count_as_test_files(project: Project) -> None:
    for name in (
        "test_a.py",
        "b_test.py",
        "sub/test_c.py",
        "helper.py",
        "test_d.txt",
        ".venv/test_e.py",
        "__pycache__/test_f.py",
    ):
        project.test("", name)
    os.symlink(project.tests, project.tests / "sub" / "loop")
    os.mkfifo(project.tests / "test_pipe.py")
    found = [os.path.relpath(path, project.tests) for path in check.files([project.tests, project.tests / "sub"])]
    assert sorted(found) == ["b_test.py", "sub/test_c.py", "test_a.py", "test_pipe.py"]
    assert check.files([project.tests / "helper.py"]) == [str(project.tests / "helper.py")]
    assert [finding.file for finding in project.findings("unreadable")] == [str(project.tests / "test_pipe.py")]
    with pytest.raises(NotFound) as raised:
        check.files([project.tests / "nothing"])
    assert raised.value.hint


# Commands that the tests ran


def test_commands_that_no_citing_test_ran_are_warnings(project: Project) -> None:
    project.cites(LIST, MAKE, MAKE)
    project.ran("tests/test_all.py::test_0", "cd x && muster  list --quiet\n")
    project.ran("tests/test_all.py::test_1", "muster create x --clean")
    report = project.check()
    assert report.findings == []
    (warning,) = report.warnings
    assert (warning.kind, warning.line) == ("not-run", 9) and warning.message.endswith("ran: muster list --json")
    assert not check.failed(report) and check.failed(report, strict=True)
    assert check.summary(report).endswith("0 findings, 1 warning")
    # Commands count from all parameters of a test, from all citing tests, and from terminals.
    place = project.ran("tests/test_all.py::test_2[a::b[0]]")
    (place / "transcript.jsonl").write_text('{"kind": "terminal", "text": "muster list --json"}\n')
    assert project.check().warnings == []


@pytest.mark.parametrize(
    ("ran", "counts"),
    [
        ("muster create x --clean", True),
        ("muster create x \\\n    --clean # so", True),
        ("if true; then\n  muster create x --clean\nfi", True),
        ("muster create x --cleaner", False),
        ("muster create xy --clean", False),
        ("remuster create x --clean", False),
        ("muster create x --cleaner; muster create x --clean", True),
        ("'muster create x --clean'", True),
    ],
)
def test_a_command_counts_as_run_if_a_command_that_ran_contains_it(project: Project, ran: str, counts: bool) -> None:
    project.cites(LIST, MAKE)
    project.ran("tests/test_all.py::test_0", "muster list")
    project.ran("tests/test_all.py::test_1", ran, "muster list --json")
    assert (project.check().warnings == []) == counts


def test_no_warning_for_a_block_whose_tests_never_ran(project: Project) -> None:
    project.cites(LIST, MAKE)

    def unknown() -> list[str]:
        report = project.check()
        assert report.warnings == []
        return [note for note in report.notes if note.startswith("unknown whether")]

    (note,) = unknown()
    assert "the commands of 2 blocks ran" in note
    project.ran("tests/test_all.py::test_0", "muster list")
    project.ran("tests/test_all.py::test_1", "muster frob", outcome="skipped")
    project.ran("other/test_all.py::test_1", "muster frob")
    (note,) = unknown()
    assert "the commands of 1 block ran" in note
    report = check.check(project.tutorial, [project.tests])
    assert report.warnings == [] and any(
        "the commands of 2 blocks ran: there are no artifacts" in note for note in report.notes
    )


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"nodeid": 3}',
        b'{"nodeid": "::"}',
        b'{"nodeid": "\\ud800::test_0"}',
        b'{"nodeid": "tests/test_all.py::test_0", "outcome": []}',
        b'{"nodeid": ' + b"9" * 5000 + b"}",
    ],
    ids=lambda bad: repr(bad[:20]),
)
def test_malformed_artifacts_never_make_a_check_fail(project: Project, bad: bytes) -> None:
    project.cites(LIST, MAKE)
    place = project.ran("tests/test_all.py::test_0", "muster list", folder="good")
    half = b'{"kind": "command", "text": "muster list"}\n{"kind": "command", "te'
    broken = [b'{"kind": "command", "text": 3}', b'["command"]', b'"command"', b'"command"' + b"[" * 100_000, bad]
    (place / "transcript.jsonl").write_bytes(b"\n".join(broken) + b"\n" + half)
    for number, name in enumerate(("test.json", "transcript.jsonl")):
        other = project.ran("tests/test_all.py::test_1", folder=f"bad{number}", outcome="skipped")
        (other / name).write_bytes(bad)
    fifo = project.artifacts / "tests" / "fifo"
    fifo.mkdir()
    os.mkfifo(fifo / "test.json")
    (project.artifacts / "tests" / "file").touch()
    (project.artifacts / "tests" / "dir" / "test.json").mkdir(parents=True)
    report = project.check()
    assert report.findings == [] and report.warnings == []


def test_an_artifact_path_that_is_not_a_folder_counts_as_no_artifacts(project: Project) -> None:
    project.cites(LIST, MAKE)
    project.artifacts.parent.mkdir()
    project.artifacts.write_text("no folder")
    assert project.check().warnings == []


# Scale


@pytest.mark.parametrize("stale", [False, True])
def test_a_thousand_blocks_and_three_thousand_tests_take_less_than_five_seconds(
    project: Project, stale: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [f"# Do thing number {i} with the program.\nmuster thing --number {i} --with all" for i in range(1000)]
    project.tutorial.write_text("\n\n".join(texts))
    for part in range(30):
        chosen = [texts[(part * 100 + i) % 1000] for i in range(100)]
        project.cites(
            *(f"{text} --now {part} {i}" if stale else text for i, text in enumerate(chosen)), name=f"test_{part}.py"
        )
    looked = diffs = 0
    weigh, diff = citations.BlockIndex._weight, citations._diff

    def counted_weigh(self: Any, feature: str) -> float:
        nonlocal looked
        looked += 1
        return weigh(self, feature)

    def counted_diff(*texts: str) -> str:
        nonlocal diffs
        diffs += 1
        return diff(*texts)

    monkeypatch.setattr(citations.BlockIndex, "_weight", counted_weigh)
    monkeypatch.setattr(citations, "_diff", counted_diff)
    began = time.monotonic()
    report = project.check()
    took = time.monotonic() - began
    assert report.test_count == 3000
    assert [finding.kind for finding in report.findings].count("stale") == (3000 if stale else 0)
    if stale:
        names = [finding.block for finding in report.findings if finding.kind == "stale"]
        assert len(set(names)) == 1000, "each stale citation is nearest to the block that it was copied from"
    # A text is compared with few blocks, and only the nearest is diffed.
    assert diffs == (3000 if stale else 0)
    assert looked <= 1000 * 20 + diffs * 100
    assert took < 5


# On the command line


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("check") / "w")


@pytest.fixture
def shop(world: World, tmp_path: Path) -> Project:
    (tmp_path / ".git").mkdir()
    return Project(tmp_path)


def test_check_finds_tutorial_tests_and_artifacts_from_any_folder_of_the_project(world: World, shop: Project) -> None:
    shop.cites(LIST, MAKE, name="e2e/test_all.py")
    shop.test("def test_other(e2e): pass", "test_not_looked_at.py")
    shop.ran("tests/e2e/test_all.py::test_0", "muster list")
    shop.ran("tests/e2e/test_all.py::test_1", "muster create x --clean")
    result = world.ok("tutorial", "check", cwd=shop.folder)
    assert result.stdout.startswith("tutorial.sh:9: not-run: ") and result.stdout.count("\n") == 1
    assert result.stderr.splitlines()[-1] == "2 blocks, 2 tests, 0 findings, 1 warning"
    assert "1 heading to be filled" in result.stderr
    inner = shop.folder / "src"
    inner.mkdir()
    assert world.fails(1, "tutorial", "check", "--strict", cwd=inner).stdout.startswith("../tutorial.sh:9: not-run: ")
    shop.tutorial.rename(shop.folder / "other.sh")
    error = world.fails(3, "tutorial", "check", cwd=shop.folder).stderr
    assert "there is no tutorial.sh or docs/tutorial.sh here" in error and "--tutorial FILE" in error
    world.ok("tutorial", "check", "--tutorial", "other.sh", "tests/e2e/test_all.py", cwd=shop.folder)


def test_findings_are_printed_and_in_the_json_with_exit_code_1(world: World, shop: Project) -> None:
    shop.cites(LIST.replace(" is ", "  is "))
    shop.test("def test_a(:\n", "test_bad.py")
    result = world.fails(1, "tutorial", "check", cwd=shop.folder)
    heads = [line for line in result.stdout.splitlines() if not line.startswith(" ")]
    assert [head.split(": ")[:2] for head in heads] == [
        ["tests/test_all.py:2", "stale"],
        ["tests/test_bad.py:1", "syntax"],
        ["tutorial.sh:6", "missing"],
        ["tutorial.sh:9", "missing"],
    ]
    assert "differs only in white space" in heads[0] and "    +# See who is there." in result.stdout
    document = world.fails(1, "tutorial", "check", "--json", cwd=shop.folder).json
    assert [row["kind"] for row in document["findings"]] == ["stale", "syntax", "missing", "missing"]
    assert document["ok"] is False and document["tests"] == 1
    assert [row["tests"] for row in document["blocks"]] == [[], []]
    assert document["findings"][0]["test"] == "tests/test_all.py::test_0"
    assert document["findings"][1]["diff"] is None


def test_list_shows_each_block_and_marks_headings_to_be_filled(world: World, shop: Project) -> None:
    result = world.ok("tutorial", "list", cwd=shop.folder)
    rows = result.stdout.splitlines()
    listed = blocks.read(shop.tutorial)
    assert f"    6  {listed[2].id}" in rows and "       # See who is there." in rows and "       muster list" in rows
    assert f"   14  {listed[4].id} (to be filled)" in rows
    assert "5 blocks of tutorial.sh" in result.stderr
    assert world.ok("tutorial", "list", "--kind", "heading", cwd=shop.folder).stdout.count("\n") == 2
    chosen = world.ok("tutorial", "list", "--section", "FIRST", "--json", cwd=shop.folder).json
    assert [row["line"] for row in chosen["blocks"]] == [4, 6, 9, 14]
    assert chosen["tutorial"] == "tutorial.sh" and chosen["blocks"][2]["commands"][0] == "muster create x --clean"
    none = world.ok("tutorial", "list", "--section", "nothing", cwd=shop.folder)
    assert none.stdout == "" and "no such block" in none.stderr


def test_control_characters_in_a_tutorial_are_not_printed(world: World, shop: Project) -> None:
    shop.tutorial.write_text("# Clear\x1b[2J it\x07.\necho \x1b]0;x\x07\n")
    shop.cites("# Clear\x1b[3J it\x07.\necho \x1b]0;x\x07\n")
    for words in (("list",), ("check",), ("list", "--json"), ("check", "--json")):
        result = world.run("tutorial", *words, cwd=shop.folder)
        assert "Clear" in result.stdout
        assert not {"\x1b", "\x07"} & {*result.stdout, *result.stderr}, words
