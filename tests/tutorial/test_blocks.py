"""Tests of muster.tutorial.blocks: blocks end where bash ends commands, and the id of a block depends on its text alone."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.errors import MusterError, NotFound, UsageError
from muster.tutorial import blocks
from muster.tutorial.blocks import Block, commands, parse

EXAMPLES = int(os.environ.get("MUSTER_EXAMPLES", "100"))


def texts(script: str) -> list[str]:
    return [block.text for block in parse(script)]


def single_block(script: str) -> Block:
    (found,) = parse(script)
    return found


def test_a_block_is_a_run_of_non_empty_lines() -> None:
    found = parse("\n# Say a.\necho a\n  \t\n\n# Say b.\necho b\necho c")
    assert [(block.line, block.end, block.text) for block in found] == [
        (2, 3, "# Say a.\necho a"),
        (6, 8, "# Say b.\necho b\necho c"),
    ]
    assert [(block.comment, block.commands) for block in found] == [
        ("Say a.", ("echo a",)),
        ("Say b.", ("echo b", "echo c")),
    ]


@pytest.mark.parametrize("script", ["", "\n \n\t\n", "#!/bin/sh\n", "\ufeff"])
def test_an_empty_script_has_no_blocks(script: str) -> None:
    assert parse(script) == []


@pytest.mark.parametrize(
    "script",
    [
        "cat <<EOF\n\na\n\nEOF\necho b",
        "cat <<'EOF'\n\n$a\nEOF",
        'cat <<"EOF"\n\na\nEOF',
        "cat <<\\EOF\n\na\nEOF",
        "cat << EOF\n\na\nEOF",
        "cat <<-EOF\n\n\ta\n\tEOF",
        "cat <<A - <<B\n\na\nA\n\nb\nB\necho c",
        "cat <<EOF | wc -l\n\nit's\nEOF",
        "cat <<EOF \\\n  | wc\n\na\nEOF",
        "cat <<EOF 'and\n\nmore'\n\nEOF",
        'x="$(cat <<EOF\n\n"a\nEOF\n)"',
        "echo 'a\n\nb'",
        'echo "a\n\nb"',
        "echo $'it\\'s\n\nb'",
        'echo "a \\" b\n\nc"',
        'echo "$(echo \'"\n\n\')"',
        "cat <<EOF-1\n\nEOF\n\nEOF-1",
    ],
)
def test_heredocs_and_quoted_strings_may_contain_empty_lines(script: str) -> None:
    done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and not done.stderr, "the example must be valid bash"
    assert texts(f"# before\n\n{script}\n\necho after\n") == ["# before", script, "echo after"]


@pytest.mark.parametrize(
    "line",
    [
        "cat <<<EOF",
        "cat <<< 'EOF'",
        "echo $((1<<2))",
        "((x = 1<<y))",
        "for ((i=0; i<1<<2; i++)); do echo $i; done",
        "# don't",
        "echo a # it's",
        "echo \\'",
        'echo "it\'s" \\"',
        "echo ${#x} $# it\\'s",
        'echo "${x:-it\'s}"',
        "echo a#b'#'",
        "echo '<<EOF'",
        'echo "<<EOF"',
        "# cat <<EOF",
        'echo "$(echo \'it"s\')"',
        'echo "`echo "a"`"',
    ],
)
def test_these_lines_open_neither_quote_nor_heredoc(line: str) -> None:
    assert texts(f"{line}\n\necho after") == [line, "echo after"]


@pytest.mark.parametrize("line", ["echo 'a", 'echo "a', "cat <<EOF", 'echo "$(', "echo $'a", "cat <<A <<B"])
def test_an_unclosed_quote_or_heredoc_ends_at_the_next_empty_line(line: str) -> None:
    assert texts(f"{line}\nb\n\necho after\n\necho last") == [f"{line}\nb", "echo after", "echo last"]


def test_a_closed_heredoc_stays_whole_when_a_later_quote_is_unclosed() -> None:
    assert texts("cat <<A\n\nA\necho 'open\n\necho after") == ["cat <<A\n\nA\necho 'open", "echo after"]


def test_a_shebang_is_not_part_of_its_block_unless_it_is_in_a_heredoc() -> None:
    assert texts("#!/bin/bash\n# a\nb\n\ncat > x <<END\n#!/bin/sh\nEND") == ["# a\nb", "cat > x <<END\n#!/bin/sh\nEND"]
    assert single_block("#!/bin/bash\n# a\nb").line == 2


def test_windows_line_ends_and_a_byte_order_mark_are_ignored() -> None:
    script = "#!/bin/sh\n# a\ncat <<E\n\nE\n\nb\n"
    assert parse("\ufeff" + script.replace("\n", "\r\n")) == parse(script)


def test_the_text_is_dedented_and_has_no_trailing_white_space() -> None:
    assert single_block("    # a  \n    if b; then\t\n      c\n    fi\n").text == "# a\nif b; then\n  c\nfi"
    assert blocks.normalize("\n\n  #!/bin/sh\n  # a\n  b  \n\n") == "# a\nb"


@pytest.mark.parametrize(
    ("kind", "script"),
    [
        ("commands", "# a\necho b"),
        ("commands", "echo b"),
        ("commands", "set -e; echo b"),
        ("commands", "settle"),
        ("commands", "# ====\n# Part\n# ====\necho b"),
        ("heading", "# Managing snapshots"),
        ("heading", "## Managing snapshots\n# --force is an option, a - b"),
        ("heading", "#"),
        ("banner", "# =====\n# Part\n# ====="),
        ("banner", "#-----\n# Part"),
        ("banner", "######\n# Part"),
        ("banner", "# === Part ==="),
        ("banner", "# ── ──\n# ─── Part ───"),
        ("preamble", "set -euo pipefail"),
        ("preamble", "# Stop at the first failure.\nset -e\nshopt -s globstar; set -u"),
        ("preamble", "#!/bin/bash\n# By example.\n# Read it."),
        ("preamble", "#!/bin/bash\n# =====\n# By example"),
        ("commands", "#!/bin/bash\n# By example.\necho a"),
    ],
)
def test_the_kind_of_a_block(kind: str, script: str) -> None:
    assert single_block(script).kind == kind


def test_a_section_is_the_nearest_banner_or_heading_above() -> None:
    found = parse(
        "a\n\n# ====\n# 1. Part one\n# ====\n\nb\n\n# A heading\n# and more\n\nc\n\n# == x\n\n# === Two ===\n\nd"
    )
    assert [(block.commands, block.section) for block in found if block.commands] == [
        (("a",), ""),
        (("b",), "1. Part one"),
        (("c",), "A heading and more"),
        (("d",), "Two"),
    ]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("# a\necho b # c\n# d\necho e", ("echo b", "echo e")),
        (
            "muster create x \\\n  --mode copy \\\n  --clean\nmuster list",
            ("muster create x --mode copy --clean", "muster list"),
        ),
        ("ab\\\ncd", ("abcd",)),
        ("echo a#b $# ${#x} c # d", ("echo a#b $# ${#x} c",)),
        ('echo "a \\\n  b"', ('echo "a   b"',)),
        ("cat <<E >f\n# no comment\n\nE\ncat f", ("cat <<E >f\n# no comment\n\nE", "cat f")),
        ("if a; then\n  # why\n  b\nfi\nc", ("if a; then\n  b\nfi", "c")),
        ("for x in 1 2; do\n  case $x in\n    1) a ;;\n    *) b ;;\n  esac\ndone\nc", None),
        ("a |\n  b &&\n\n  c\nd", ("a |\n  b &&\n  c", "d")),
        ("f() {\n  a\n}\nf", ("f() {\n  a\n}", "f")),
        ("(\n  a\n  b\n)\nc", ("(\n  a\n  b\n)", "c")),
        ("x=$(\n  a\n)\nc", ("x=$(\n  a\n)", "c")),
        ("a=(1\n 2)\nb", ("a=(1\n 2)", "b")),
        ("a & b; c", ("a & b; c",)),
        ("echo if; echo done", ("echo if; echo done",)),
        ("echo {\necho }", ("echo {", "echo }")),
        ("echo a\\|\nb", ("echo a\\|", "b")),
    ],
)
def test_commands_are_split_as_bash_would_run_them(script: str, expected: tuple[str, ...] | None) -> None:
    if expected is None:
        expected = (script.removesuffix("\nc"), "c")
    assert commands(script) == expected


def test_commands_can_leave_out_the_bodies_of_heredocs() -> None:
    assert commands("cat <<A | b <<B\n'\nA\n\nB\nc 'd\ne'", bodies=False) == ("cat <<A | b <<B", "c 'd\ne'")


@pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")
def test_every_command_of_our_own_tutorial_is_complete() -> None:
    for block in blocks.read(Path(__file__).parents[2] / "docs" / "tutorial.sh"):
        for command in block.commands:
            done = subprocess.run(["bash", "-n"], input=command, capture_output=True, text=True, check=False)
            assert done.returncode == 0 and not done.stderr, f"{command}\n{done.stderr}"


def test_an_id_is_the_first_words_of_the_comment_or_command_and_a_hash() -> None:
    assert single_block("# See who's there, and in which state.\nmuster list").id.startswith("see-whos-there-and-")
    assert single_block("muster list --json").id.startswith("muster-list-json-")
    assert single_block("# 你好\nmuster list").id.startswith("muster-list-")
    assert single_block("# …").id.startswith("block-")
    assert single_block("# a\nb").id != single_block("# a\nc").id
    assert single_block("# a\nb").id == single_block("  # a \n  b\n\n").id


def test_the_ids_of_equal_blocks_are_numbered() -> None:
    first, second, third = parse("# a\nb\n\n# a\nb\n\n# a\nb")
    assert (second.id, third.id) == (f"{first.id}-2", f"{first.id}-3")


WORDS = st.sampled_from(
    ["echo a", "# it's", "ls 'x'", "cat <<E\n\nE", "true # so", "# ====", "set -e", 'echo "a\n\nb"']
)
BLOCK = st.lists(WORDS, min_size=1, max_size=4).map("\n".join)


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.lists(BLOCK, min_size=1, max_size=6), st.data())
def test_inserting_removing_or_changing_a_block_does_not_affect_the_others(
    script: list[str], data: st.DataObject
) -> None:
    def table(parts: list[str]) -> list[tuple[str, str, str, tuple[str, ...]]]:
        return [(block.id, block.text, block.kind, block.commands) for block in parse("\n\n".join(parts) + "\n")]

    place = data.draw(st.integers(0, len(script) - 1))
    new = data.draw(BLOCK)
    before = table(script)
    assert [text for _, text, _, _ in before] == script
    for other in (
        [*script[:place], new, *script[place:]],
        script[:place] + script[place + 1 :],
        [*script[:place], new, *script[place + 1 :]],
    ):
        after = table(other)
        assert [text for _, text, _, _ in after] == other
        touched = {script[place], new}
        assert [row for row in after if row[1] not in touched] == [row for row in before if row[1] not in touched]


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.text(alphabet="a#'\"$(){}<>\\`E|&; \n\t\r-=!\ufeff", max_size=80))
def test_any_text_can_be_parsed_and_no_line_is_lost(script: str) -> None:
    lines = script.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
    covered = {line for block in parse(script) for line in range(block.line, block.end + 1)}
    for number, line in enumerate(lines, 1):
        assert number in covered or not line.strip() or line.startswith("#!")


def test_a_file_that_cannot_be_read_as_a_tutorial_is_an_error_with_a_hint(tmp_path: Path) -> None:
    (tmp_path / "latin1.sh").write_bytes(b"# a\n\necho \xfc\n")
    for path, kind, said in (
        (tmp_path / "no.sh", NotFound, "there is no tutorial"),
        (tmp_path, UsageError, "is a folder"),
        (tmp_path / "latin1.sh", UsageError, "is not UTF-8"),
    ):
        with pytest.raises(MusterError) as raised:
            blocks.read(path)
        assert isinstance(raised.value, kind) and said in raised.value.message and raised.value.hint
    assert "line 3" in raised.value.hint


def test_the_tutorial_of_the_folder_takes_precedence_over_that_of_the_repository(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / ".git").mkdir()
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "tutorial.sh").touch()
    assert blocks.find(str(inner)) == str(tmp_path / "docs" / "tutorial.sh")
    (tmp_path / "tutorial.sh").touch()
    assert blocks.find(str(inner)) == str(tmp_path / "tutorial.sh")
    (inner / "tutorial.sh").touch()
    assert blocks.find(str(inner)) == str(inner / "tutorial.sh")
    (tmp_path / "a" / ".git").touch()
    (inner / "tutorial.sh").unlink()
    with pytest.raises(NotFound, match="tutorial.sh or docs/tutorial.sh"):
        blocks.find(str(inner))
