"""A tutorial script is read as bash reads it, and the id of a block is its own affair."""

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


def one(script: str) -> Block:
    (found,) = parse(script)
    return found


def test_a_block_is_a_run_of_lines_that_are_not_empty() -> None:
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
def test_a_script_with_nothing_in_it_has_no_blocks(script: str) -> None:
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
def test_a_heredoc_or_a_quoted_string_may_hold_empty_lines(script: str) -> None:
    done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and not done.stderr, "the example itself must be bash"
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
def test_these_open_nothing(line: str) -> None:
    assert texts(f"{line}\n\necho after") == [line, "echo after"]


@pytest.mark.parametrize("line", ["echo 'a", 'echo "a', "cat <<EOF", 'echo "$(', "echo $'a", "cat <<A <<B"])
def test_what_is_never_closed_ends_at_the_next_empty_line(line: str) -> None:
    assert texts(f"{line}\nb\n\necho after\n\necho last") == [f"{line}\nb", "echo after", "echo last"]


def test_what_was_closed_before_stays_whole_when_the_rest_is_not() -> None:
    assert texts("cat <<A\n\nA\necho 'open\n\necho after") == ["cat <<A\n\nA\necho 'open", "echo after"]


def test_a_shebang_is_no_part_of_its_block_but_one_in_a_heredoc_is() -> None:
    assert texts("#!/bin/bash\n# a\nb\n\ncat > x <<END\n#!/bin/sh\nEND") == ["# a\nb", "cat > x <<END\n#!/bin/sh\nEND"]
    assert one("#!/bin/bash\n# a\nb").line == 2


def test_windows_line_ends_and_a_byte_order_mark_change_nothing() -> None:
    script = "#!/bin/sh\n# a\ncat <<E\n\nE\n\nb\n"
    assert parse("\ufeff" + script.replace("\n", "\r\n")) == parse(script)


def test_the_text_is_dedented_and_has_no_white_space_at_the_ends_of_lines() -> None:
    assert one("    # a  \n    if b; then\t\n      c\n    fi\n").text == "# a\nif b; then\n  c\nfi"
    assert blocks.normal("\n\n  #!/bin/sh\n  # a\n  b  \n\n") == "# a\nb"


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
def test_what_kind_of_block_it_is(kind: str, script: str) -> None:
    assert one(script).kind == kind


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
    ("script", "wanted"),
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
def test_commands_are_what_bash_would_run_one_after_another(script: str, wanted: tuple[str, ...] | None) -> None:
    if wanted is None:
        wanted = (script.removesuffix("\nc"), "c")
    assert commands(script) == wanted


def test_the_texts_of_heredocs_can_be_left_out() -> None:
    assert commands("cat <<A | b <<B\n'\nA\n\nB\nc 'd\ne'", bodies=False) == ("cat <<A | b <<B", "c 'd\ne'")


@pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")
def test_each_command_of_the_manual_is_whole() -> None:
    for block in blocks.read(Path(__file__).parents[2] / "docs" / "tutorial.sh"):
        for command in block.commands:
            done = subprocess.run(["bash", "-n"], input=command, capture_output=True, text=True, check=False)
            assert done.returncode == 0 and not done.stderr, f"{command}\n{done.stderr}"


def test_an_id_has_the_first_words_of_the_comment_or_the_command_and_a_hash() -> None:
    assert one("# See who's there, and in which state.\nmuster list").id.startswith("see-whos-there-and-")
    assert one("muster list --json").id.startswith("muster-list-json-")
    assert one("# 你好\nmuster list").id.startswith("muster-list-")
    assert one("# …").id.startswith("block-")
    assert one("# a\nb").id != one("# a\nc").id
    assert one("# a\nb").id == one("  # a \n  b\n\n").id


def test_equal_blocks_are_numbered() -> None:
    first, second, third = parse("# a\nb\n\n# a\nb\n\n# a\nb")
    assert (second.id, third.id) == (f"{first.id}-2", f"{first.id}-3")


WORDS = st.sampled_from(
    ["echo a", "# it's", "ls 'x'", "cat <<E\n\nE", "true # so", "# ====", "set -e", 'echo "a\n\nb"']
)
BLOCK = st.lists(WORDS, min_size=1, max_size=4).map("\n".join)


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.lists(BLOCK, min_size=1, max_size=6), st.data())
def test_other_blocks_keep_their_ids_and_texts_when_one_is_inserted_removed_or_changed(
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
def test_any_text_is_read_and_no_line_is_lost(script: str) -> None:
    lines = script.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
    covered = {line for block in parse(script) for line in range(block.line, block.end + 1)}
    for number, line in enumerate(lines, 1):
        assert number in covered or not line.strip() or line.startswith("#!")


def test_a_file_that_is_not_there_is_no_text_or_is_a_folder_is_said_so_with_a_hint(tmp_path: Path) -> None:
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


def test_the_tutorial_is_found_here_and_then_at_the_top_of_the_repository(tmp_path: Path) -> None:
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
