"""Tests of citations in docstrings: found in every style in which people write them, and stale once they differ."""

from __future__ import annotations

import random
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from muster.tutorial import blocks, check
from muster.tutorial.check import Report

PROGRAMS = ("shop", "ledger", "git", "curl")
WORDS = "list show totals month clerk import undo status create report push".split()


def block(random: random.Random, number: int) -> str:
    """Return a typical block of a tutorial; the number makes its text unique."""
    rows = []
    for _ in range(random.randrange(3)):
        rows.append(f"# {random.choice(WORDS).title()} it, so that it's {number}" + random.choice(["", ".", ":", "?"]))
    for part in range(random.randrange(1, 4)):
        command = f"{random.choice(PROGRAMS)} {random.choice(WORDS)} --n{part} {number}"
        shape = random.randrange(5)
        if shape == 0:
            command += f" \\\n  --more {number} \\\n  --last"
        elif shape == 1:
            command += " <<'END'\nfirst\n\n  it's indented\nEND"
        elif shape == 2:
            command += r" | sed 's/\t/ /; s/\\/-/'"
        elif shape == 3:
            command += '  # why "not"'
        rows.append(command)
    return "\n".join(rows)


def indented(text: str, spaces: int) -> str:
    return textwrap.indent(text, " " * spaces)


#: Ways to place a block in a docstring that is indented by 4.
STYLES: dict[str, Callable[[str], str]] = {
    "label and indent": lambda text: (
        f"Tutorial block:\n{indented(text, 8)}\n\n    Scope: the happy path, that's all.\n    "
    ),
    "label, same indent": lambda text: f"Tutorial block:\n{indented(text, 4)}\n    ",
    "paragraph": lambda text: f"It isn't much.\n\n{indented(text, 4)}\n\n    It's done.\n    ",
    "no empty line around it": lambda text: (
        f"It's this:\n    and more\n{indented(text, 4)}\n    The rest doesn't count.\n    "
    ),
    "from the quotes on": lambda text: f"{text.partition(chr(10))[0]}\n{indented(text.partition(chr(10))[2], 4)}\n    ",
    "below the quotes": lambda text: f"\n{indented(text, 4)}\n    ",
    "fenced": lambda text: f"Doesn't fail.\n\n    ```sh\n{indented(text, 4)}\n    ```\n    More.\n    ",
    "literal block of reStructuredText": lambda text: f"Cites::\n\n{indented(text, 8)}\n\n    :returns: nothing\n    ",
    "with tabs": lambda text: "Cites it.\n\n" + textwrap.indent(text, "\t\t") + "\n\n\tThat's it.\n\t",
    "as a list item": lambda text: (
        f"Args:\n        e2e: the session\n\n    Cites:\n{indented(text, 12)}\n    Raises:\n        nothing\n    "
    ),
}


def check_citations(
    folder: Path, texts: list[str], cited: list[str], style: Callable[[str], str], raw: str = "r"
) -> Report:
    (folder / "tutorial.sh").write_text("#!/bin/bash\n\n" + "\n\n".join(texts) + "\n")
    tests = [f'def test_{n}(e2e):\n    {raw}"""{style(text)}"""\n' for n, text in enumerate(cited)]
    (folder / "test_it.py").write_text("\n\n".join(tests))
    return check.check(folder / "tutorial.sh", [folder / "test_it.py"])


@pytest.mark.parametrize("style", STYLES)
def test_a_citation_is_found_anywhere_in_a_docstring(style: str, tmp_path: Path) -> None:
    for seed in range(20):
        chosen = random.Random(seed)
        texts = [block(chosen, number) for number in range(12)]
        report = check_citations(tmp_path, texts, texts, STYLES[style])
        assert check.lines(report) == [], f"seed {seed}"
        assert [len(some) for some in report.tests.values()] == [1] * 12


def test_a_docstring_may_cite_two_adjacent_blocks(tmp_path: Path) -> None:
    first, second = "# First.\nshop list", "# Second.\nshop totals \\\n  --month"
    report = check_citations(tmp_path, [first, second], [f"{first}\n{second}"], STYLES["label and indent"])
    assert check.lines(report) == []


@pytest.mark.parametrize("style", STYLES)
def test_a_changed_citation_never_counts_as_the_block(style: str, tmp_path: Path) -> None:
    tried = 0
    for seed in range(20):
        chosen = random.Random(seed)
        texts = [block(chosen, number) for number in range(6)]
        for number, text in enumerate(texts):
            rows = text.split("\n")
            at = chosen.randrange(len(rows))
            if not rows[at].strip():
                continue
            how = chosen.choice(["drop", "word", "before", "after"])
            if how == "drop":
                rows[at : at + 1] = []
            elif how == "word":
                rows[at] += "x"
            else:
                rows.insert(at + (how == "after"), f"shop {chosen.choice(WORDS)} --added")
            changed = blocks.normalize("\n".join(rows))
            if not rows or changed in texts:
                continue
            tried += 1
            report = check_citations(tmp_path, texts, [*texts[:number], changed, *texts[number + 1 :]], STYLES[style])
            found = {finding.kind for finding in report.findings}
            assert "missing" in found, f"seed {seed}, block {number}, {how} at {at}:\n{changed}"
            if changed.startswith("#") and blocks.commands(changed):
                assert "stale" in found, f"seed {seed}, block {number}, {how} at {at}:\n{changed}"
    assert tried > 80


@pytest.mark.parametrize("style", ["label and indent", "no empty line around it", "fenced"])
@pytest.mark.parametrize(
    "text",
    [
        "# All of it.\nshop list \\\n  --all \\\n  --long",
        "shop list \\\n  --all",
        "# With a tab.\nprintf 'a\\tb\\n' | shop import",
    ],
)
def test_backslashes_read_as_escapes_are_reported_with_a_hint_to_use_a_raw_string(
    text: str, style: str, tmp_path: Path
) -> None:
    report = check_citations(tmp_path, [text], [text], STYLES[style], raw="")
    stale, missing = sorted(report.findings, key=lambda finding: finding.kind != "stale")
    assert (stale.kind, missing.kind) == ("stale", "missing")
    assert 'cite it in a raw string, r"""' in stale.message and stale.block == report.blocks[0].id
    assert check.lines(check_citations(tmp_path, [text], [text], STYLES[style])) == []


def test_a_call_with_backslashes_read_as_escapes_gets_the_same_hint(tmp_path: Path) -> None:
    (tmp_path / "tutorial.sh").write_text("# All of it.\nshop list \\\n  --all\n")
    source = 'def test_it(e2e):\n    e2e.write_tutorial_block("""\n        # All of it.\n        shop list \\\n          --all\n    """)\n'
    (tmp_path / "test_it.py").write_text(source)
    found = check.check(tmp_path / "tutorial.sh", [tmp_path / "test_it.py"]).findings
    assert [finding.kind for finding in found if "raw string" in finding.message] == ["stale"]
