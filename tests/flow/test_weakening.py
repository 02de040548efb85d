"""Weakened tests are told from harmless rewrites: by a corpus that was there before the code, and by what breaks readers of code."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from muster.flow.review import claims, weakening
from muster.tutorial import expectations

CORPUS = Path(__file__).parent / "weakening_corpus"
WEAKENED = sorted((CORPUS / "weakened").glob("*.txt"))
HARMLESS = sorted((CORPUS / "harmless").glob("*.txt"))
FALSE_ALARMS_MOST = 3
Files = dict[str, tuple[str | None, str | None]]


def case(path: Path) -> tuple[Files, set[str]]:
    """The files before and after, and the rules of which one has to be found. A file without text is not there."""
    head, *parts = re.split(r"^=== (before|after) (\S+)\n", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    files: Files = {}
    for side, name, text in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        old, new = files.get(name, (None, None))
        files[name] = (text or None, new) if side == "before" else (old, text or None)
    rules = re.search(r"^rule: (.*)", head, re.MULTILINE)
    return files, set(rules[1].split()) if rules else set()


def rules(before: str | None, after: str | None, path: str = "tests/test_x.py") -> set[str]:
    return {finding.rule for finding in weakening.weakened(before, after, path)}


@pytest.mark.parametrize("path", WEAKENED, ids=lambda path: path.stem)
def test_every_weakened_test_of_the_corpus_is_found_and_called_what_it_is(path: Path) -> None:
    files, expected = case(path)
    found = weakening.compare(files).findings
    assert expected & {finding.rule for finding in found}, found
    assert all(finding.path in files and finding.words.isprintable() and not finding.allowed for finding in found)


def test_harmless_changes_of_the_corpus_raise_hardly_an_alarm(record_property: Callable[[str, object], None]) -> None:
    alarms = {path.stem: found for path in HARMLESS if (found := weakening.compare(case(path)[0]).findings)}
    missed = [path.stem for path in WEAKENED if not weakening.compare(case(path)[0]).findings]
    words = f"weakened tests: {len(missed)} of {len(WEAKENED)} missed, false alarms {len(alarms)} of {len(HARMLESS)}"
    record_property("figure", ": ".join([words, *alarms]))
    assert len(WEAKENED) >= 30 <= len(HARMLESS)
    assert len(alarms) <= FALSE_ALARMS_MOST


def test_the_bodies_of_the_corpus_are_told_apart() -> None:
    missed, alarms = [], []
    _, *parts = re.split(r"^%% (.*)\n", (CORPUS / "bodies.txt").read_text(encoding="utf-8"), flags=re.MULTILINE)
    for head, text in zip(parts[::2], parts[1::2], strict=True):
        start = "" if "whole file" in head else "def test_x(a, b, mock, e2e):\n"
        before, after = (
            start + textwrap.indent(one, "    " if start else "")
            for one in re.split(r"^->\n", text, flags=re.MULTILINE)
        )
        found = weakening.weakened(before, after, "tests/test_x.py")
        missed += [after] if head.startswith("W") and not found else []
        alarms += [(after, found)] if head.startswith("H") and found else []
    assert (missed, alarms) == ([], [])
    assert len(parts) > 160


def test_what_stays_the_same_is_silent() -> None:
    texts = [text for path in (*WEAKENED, *HARMLESS) for pair in case(path)[0].values() for text in pair if text]
    assert [text for text in texts if rules(text, text) - {"unreadable"}] == []


def test_whichever_assertion_is_taken_out_of_a_sound_test_it_is_missed() -> None:
    texts = [(path.stem, name, text) for path in HARMLESS for name, (_, text) in case(path)[0].items() if text]
    silent, count = [], 0
    for stem, name, text in texts:
        for number in range(sum(isinstance(node, ast.Assert) for node in ast.walk(ast.parse(text)))):
            count += 1
            if not weakening.weakened(text, without(text, number), name):
                silent.append((stem, number))
    assert silent == []
    assert count > 80


def without(text: str, number: int) -> str:
    """The same with `pass` for the assertion of this number."""
    seen = iter(range(10_000))

    class Cut(ast.NodeTransformer):
        def visit_Assert(self, node: ast.Assert) -> ast.stmt:
            return ast.Pass() if next(seen) == number else node

    return ast.unparse(ast.fix_missing_locations(Cut().visit(ast.parse(text))))


def test_every_expectation_of_the_tutorial_layer_is_a_claim() -> None:
    kinds = [
        kind for kind in vars(expectations).values() if isinstance(kind, type) and kind.__name__.endswith("Expectation")
    ]
    names = {name for kind in kinds for name in vars(kind) if not name.startswith("_")}
    assert {"to_succeed", "to_contain", "to_show", "to_print"} <= names
    before = "def test_x(e2e):\n    one = e2e.run('x')\n    expect(one).{}({})\n    assert e2e.work.exists()\n"
    for name in names:
        for given in ("", "'text'", "2, timeout=5"):
            text = before.format(name, given)
            gone = text.replace(f"    expect(one).{name}({given})\n", "")
            assert rules(text, gone) == {"assertion-removed"}, name
            assert rules(gone, text) == set(), name


# What many files say together


MOVED = "from a import f\n\n\ndef test_f():\n    assert f(1) == 2\n    assert f(2) == 3\n"


def test_a_test_that_moved_is_followed_to_where_it_is_now() -> None:
    files: Files = {"tests/test_a.py": (MOVED, None), "tests/test_b.py": (None, MOVED)}
    compared = weakening.compare(files)
    assert compared.findings == []
    assert compared.moved == [("tests/test_a.py", "tests/test_b.py")]


def test_a_claim_that_went_to_a_test_which_is_skipped_is_lost() -> None:
    rest = MOVED.replace("    assert f(2) == 3\n", "")
    other = "\n\ndef test_more():\n    assert f(2) == 3\n"
    assert rules(MOVED, rest + other) == set()
    skipped = other.replace("def ", "@pytest.mark.skip\ndef ")
    assert rules(MOVED, "import pytest\n" + rest + skipped) == {"assertion-removed"}


def test_a_helper_that_moved_takes_its_claims_with_it_but_a_namesake_does_not_lend_them() -> None:
    helper = "def check(x):\n    assert x.ok == 1\n"
    test = "\n\ndef test_x(x):\n    check(x)\n"
    files: Files = {
        "tests/test_a.py": (helper + test, "from helpers import check" + test),
        "tests/helpers.py": (None, helper),
    }
    assert weakening.compare(files).findings == []
    files["tests/test_b.py"] = (helper + test, "def check(x):\n    pass\n" + test)
    found = weakening.compare(files).findings
    assert {(one.path, one.rule) for one in found} == {("tests/test_b.py", "assertion-removed")}


def test_a_shared_helper_that_got_weaker_is_one_finding() -> None:
    tests = "".join(f"\n\ndef test_{n}(x):\n    check(x)\n" for n in range(20))
    before = "def check(x):\n    assert x.code == 0\n    assert x.out == ''\n" + tests
    found = weakening.weakened(before, before.replace("    assert x.code == 0\n", ""), "tests/test_x.py")
    assert [finding.rule for finding in found] == ["assertion-removed"]


def test_new_files_may_skip_but_not_for_others() -> None:
    new = "import pytest\n\npytestmark = pytest.mark.skip\n\n\ndef test_x():\n    assert f() == 1\n"
    assert rules(None, new) == set()
    hook = "def pytest_collection_modifyitems(items):\n    items.clear()\n"
    assert rules(None, hook, "tests/conftest.py") == {"uncollected"}
    assert rules(None, "collect_ignore = ['test_x.py']\n", "tests/conftest.py") == {"uncollected"}
    fixture = (
        "import pytest\n\n\n@pytest.fixture(autouse=True)\ndef no():\n    pytest.skip('no')\n"  # for all that are there
    )
    assert rules(None, fixture, "tests/conftest.py") == {"skip"}


# Hostile text


@pytest.mark.parametrize(
    "text",
    [
        "def test_x(:\n",
        "\0",
        "x = " + "(" * 5000 + ")" * 5000,
        "x = " + "-" * 20_000 + "1",
        "x = " + "+".join(["1"] * 20_000),
        "def test_x():\n    assert " + " or ".join(["a"] * 10) + "\n" + "@(" * 200,
        "x = 0x" + "f" * 10_000,
        "\ud800",
    ],
    ids=["syntax", "nul", "nested", "signs", "sum", "cut-off", "number", "surrogate"],
)
def test_what_cannot_be_read_is_a_finding(text: str) -> None:
    assert rules(MOVED, text) == {"unreadable"}


def test_one_file_that_is_too_much_does_not_hide_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "STEPS", 3000)
    calls = "".join(f"    assert g({n}, {n}, {n}) == [{n}]\n" for n in range(500))
    files: Files = {
        "tests/test_big.py": ("def test_x():\n    pass\n", f"def test_x():\n{calls}"),
        "tests/test_small.py": (MOVED, MOVED.replace("    assert f(2) == 3\n", "")),
    }
    assert {(one.path, one.rule) for one in weakening.compare(files).findings} == {
        ("tests/test_big.py", "unreadable"),
        ("tests/test_small.py", "assertion-removed"),
    }


def test_values_and_helpers_that_multiply_do_not() -> None:
    doubled = "".join(f"    a{n} = f(a{n - 1}, a{n - 1})\n" for n in range(1, 60))
    values = f"def test_x(a0):\n{doubled}    assert a59 == 1\n    assert a3 == 1\n"
    assert rules(values, values.replace("    assert a59 == 1\n", "")) == {"assertion-removed"}
    helpers = "".join(f"def h{n}():\n    h{n + 1}()\n    h{n + 1}()\n    assert x == {n}\n\n\n" for n in range(60))
    helpers = f"{helpers}def h60():\n    pass\n\n\ndef test_x():\n    h0()\n    assert f() == 1\n"
    unit = next(unit for unit in claims.units("tests/test_x.py", helpers, True) if unit.name == "test_x")
    assert len(claims.read(unit).checks) < 100
    assert rules(helpers, helpers.replace("    assert f() == 1\n", "")) == {"assertion-removed"}
    loops = "def again():\n    again()\n    assert x == 1\n\n\ndef test_x():\n    again()\n    assert f() == 1\n"
    assert rules(loops, loops.replace("    assert f() == 1\n", "")) == {"assertion-removed"}


def test_words_of_a_finding_are_one_short_printable_line() -> None:
    before = f"def test_x():\n    assert f({'x' * 5000!r}) == '\\x1b[31m'\n    assert g('''a\n\n\x07b''') == 1\n"
    found = weakening.weakened(before, "def test_x():\n    pass\n", "tests/test_x.py")
    assert len(found) >= 2
    assert all(finding.words.isprintable() and len(finding.words) < 300 for finding in found)
