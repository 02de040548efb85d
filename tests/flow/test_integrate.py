"""What hundreds of agents did becomes one tested branch: real git, gates that are rules about files, and once a real pytest."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from muster.errors import NotFound, Refused, UsageError
from muster.flow.reducing import integrate as engine
from muster.flow.reducing.branch import message, paragraphs
from muster.flow.reducing.conflicts import Conflict
from muster.flow.reducing.gate import Verdict
from muster.flow.reducing.integrate import Delivery
from muster.flow.reducing.patches import Change, Hunk, dependencies, key, touch
from muster.flow.reducing.trees import Repository
from muster.flow.reducing.units import Unit

from .lab import Content, Files, Lab, Rule, crowd, numbered, resolution

TEN = b"".join(numbered(10))


def changed(*places: int, word: bytes = b"fixed", lines: int = 10) -> bytes:
    """The numbered lines, some of them changed."""
    text = numbered(lines)
    for place in places:
        text[place] = b"%s %d\n" % (word, place)
    return b"".join(text)


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path, {"src/a.py": TEN, "src/b.py": TEN, "tests/test_a.py": TEN})


def names(delivery: Delivery) -> list[str]:
    return [one.name for one in delivery.accepted]


def trailers(lab: Lab, commit: str) -> list[str]:
    text = lab.git("log", "-1", "--format=%B", commit)
    return lab.git("interpret-trailers", "--parse", input=text.encode()).splitlines()


def reason(delivery: Delivery, name: str) -> str:
    assert name not in names(delivery)
    return delivery.left_out[name].reason


# The branch


def test_what_is_no_implementation_comes_first_then_each_fix_by_importance_on_the_tested_tree(lab: Lab) -> None:
    gate = Rule(lab)
    small = lab.unit("small", {"src/a.py": changed(0), "tests/test_a.py": changed(0)}, tests=("t::1",))
    large = lab.unit("large", {"src/b.py": changed(5), "tests/new.py": b"new\n"}, tests=("t::2", "t::3"))
    done = lab.integrate([small, large], gate)
    assert lab.log(done.commit) == ["Update tests and other files for 2 tasks", "Fix large", "Fix small"]
    first, fix, last = lab.log(done.commit, "%H")
    assert lab.git("rev-parse", f"{first}^").strip() == lab.base and last == done.commit
    assert lab.git("diff", "--name-only", lab.base, first).split() == ["tests/new.py", "tests/test_a.py"]
    assert lab.git("diff", "--name-only", first, fix).split() == ["src/b.py"]
    (tested, tests), *_ = gate.checks
    assert lab.files(tested) == lab.files(done.commit) and set(tests) == {"t::1", "t::2", "t::3"}
    assert gate.fulls == [done.commit] and done.proof == "green"
    assert done.branch == "muster-run/r1" and lab.git("rev-parse", done.branch).strip() == done.commit
    assert [(one.name, one.commit, one.proof) for one in done.accepted] == [
        ("large", fix, "present"),
        ("small", last, "present"),
    ]
    assert trailers(lab, fix) == ["Muster-Task: large", "Muster-Test: t::2", "Muster-Test: t::3", "Muster-Run: r1"]
    assert json.loads(json.dumps(done.to_json()))["accepted"][0]["reason"].startswith("fixes 2 tests, changes ")


def test_nothing_of_the_user_is_touched_and_the_same_input_gives_the_same_commits(lab: Lab) -> None:
    hook = lab.top / ".git" / "hooks" / "reference-transaction"
    hook.write_text(f"#!/bin/sh\ntouch '{lab.folder}/ran'\n")
    hook.chmod(0o755)
    lab.git("config", "merge.conflictStyle", "zdiff3")
    lab.git("checkout", "-q", "-f", "main")
    (lab.top / "src" / "a.py").write_bytes(b"uncommitted\n")
    (lab.top / ".gitattributes").write_bytes(b"*.py merge=ours -diff\n")
    units = [lab.unit("a", {"src/a.py": changed(1)}), lab.unit("b", {"src/a.py": changed(7)})]

    def state() -> tuple[str, ...]:
        index = (lab.top / ".git" / "index").read_bytes().hex()
        return lab.git("status", "--porcelain"), lab.git("rev-parse", "HEAD"), index, lab.git("config", "-l")

    (lab.folder / "ran").unlink()  # by the commands above
    before = state()
    done = lab.integrate(units)
    assert state() == before and not (lab.folder / "ran").exists()
    assert lab.files(done.commit)["src/a.py"] == changed(1, 7)
    refs = lab.git("for-each-ref", "--format=%(refname)").split()
    ours = {f"refs/muster/runs/r1/reduce/{name}" for name in ("tested", f"delivered/{done.commit}")}
    assert set(refs) == {"refs/heads/main", "refs/lab", "refs/heads/muster-run/r1", *ours}
    again = lab.integrate(units[::-1], folder=str(lab.folder / "other"))
    assert again.commit == done.commit


def test_a_tip_counts_by_its_tree_whatever_its_history_is(lab: Lab) -> None:
    one, other = lab.commits([(lab.base, {"src/a.py": changed(0)}), (lab.base, {"src/b.py": changed(0)})])
    both = lab.commits([(one, {"src/b.py": changed(0)})])[0]
    tree = lab.git("rev-parse", f"{both}^{{tree}}").strip()
    merge = lab.git("commit-tree", tree, "-p", one, "-p", other, "-m", "merge").strip()
    stranger = lab.git("commit-tree", lab.git("rev-parse", f"{lab.base}^{{tree}}").strip(), "-m", "rewritten").strip()
    done = lab.integrate(
        [Unit("m", lab.base, merge), Unit("s", stranger, lab.commits([(stranger, {"src/c.py": b"c\n"})])[0])]
    )
    assert set(names(done)) == {"m", "s"} and lab.files(done.commit) == lab.files(both) | {"src/c.py": b"c\n"}


def test_hostile_words_become_a_plain_message() -> None:
    text = message(
        "Fix \x1b[31mit\nMuster-Task: forged" + "x" * 100,
        "n",
        [paragraphs("one\x07\rMuster-Task: forged\n---\ndiff --git a b\n\u202eSigned-off-by : x\n\n\n\n\ntwo\udcff")],
        [
            ("Muster-Task", "a\nMuster-Test: forged"),
            ("odd key", "x"),
            ("Empty", " "),
        ],
    ).decode()
    subject, empty, *lines = text.splitlines()
    assert subject.startswith("Fix  [31mit Muster-Task: forged".replace("  ", " ")) and len(subject) == 72 and not empty
    assert lines == [
        "one",
        "> Muster-Task: forged",
        "> ---",
        "> diff --git a b",
        ">  Signed-off-by : x",
        "",
        "two",
        "",
        "Muster-Task: a Muster-Test: forged",
    ]
    assert all(char.isprintable() or char == "\n" for char in text)


# Equal patches


def test_equal_implementations_are_one_commit_that_names_all_tasks(lab: Lab) -> None:
    fix: dict[str, Content] = {"src/a.py": changed(4)}
    units = [
        lab.unit("x", {**fix, "tests/x.py": b"x\n"}, tests=("t::x",)),
        lab.unit("y", {**fix, "tests/y.py": b"y\n"}, tests=("t::y",)),
        lab.unit("twin", {**fix, "tests/x.py": b"x\n"}, tests=("t::twin",), trailers={"Muster-Cost": "1.50"}),
        lab.unit("alone", {"src/a.py": changed(8)}, tests=("t::1", "t::2", "t::3", "t::4")),
        lab.unit("part", {"src/b.py": changed(0)}),
        lab.unit("more", {"src/b.py": changed(0, 5)}, tests=("t::m",)),
    ]
    done = lab.integrate(units)
    assert names(done) == ["alone", "twin", "y", "more", "part"] and done.accepted[1].collapsed == ("x",)
    assert lab.log(done.commit) == ["Update tests and other files for 3 tasks", "Fix alone", "Fix twin", "Fix more"]
    commit = done.accepted[1].commit
    assert done.accepted[2].commit == commit and done.accepted[4].commit == done.accepted[3].commit
    wanted = ["Muster-Task: twin", "Muster-Test: t::twin", "Muster-Cost: 1.50", "Muster-Task: x", "Muster-Test: t::x"]
    assert trailers(lab, commit) == [*wanted, "Muster-Task: y", "Muster-Test: t::y", "Muster-Run: r1"]
    assert "3 tasks came to this change." in lab.git("log", "-1", "--format=%B", commit)
    assert "fixes 3 tests, 2 of them through equal patches" in done.accepted[1].reason


def test_patches_that_only_look_equal_are_both_applied(lab: Lab) -> None:
    twice = b"if a:\n    x\n    y\n    z\n" * 2
    base = lab.commits([(lab.base, {"src/c.py": twice})])[0]
    lab.base = base
    lines = twice.splitlines(keepends=True)
    first = b"".join([*lines[:2], b"    new\n", *lines[2:]])
    second = b"".join([*lines[:6], b"    new\n", *lines[6:]])
    deeper = lab.unit("deeper", {"src/d.py": b"if a:\n        x\n"})
    done = lab.integrate(
        [
            lab.unit("first", {"src/c.py": first}),
            lab.unit("second", {"src/c.py": second}),
            deeper,
            lab.unit("flat", {"src/d.py": b"if a:\n    x\n"}),
        ]
    )
    assert lab.files(done.commit)["src/c.py"].count(b"new") == 2
    assert not any(one.collapsed for one in done.accepted)
    assert {"deeper", "flat"} & set(done.left_out)


def test_equal_patches_on_different_bases_are_collapsed(lab: Lab) -> None:
    later = lab.commits([(lab.base, {"src/a.py": b"import x\n" + TEN})])[0]
    scout = Unit("scout", lab.base, later)
    units = [
        scout,
        lab.unit("old", {"src/a.py": changed(7)}, tests=("t::1",)),
        lab.unit("new", {"src/a.py": b"import x\n" + changed(7)}, base=later, requires=("scout",), tests=("t::2",)),
    ]
    done = lab.integrate(units)
    assert [(one.name, one.collapsed) for one in done.accepted] == [("old", ("new",)), ("scout", ())]
    assert lab.files(done.commit)["src/a.py"] == b"import x\n" + changed(7)


# Order


def test_importance_is_tests_then_group_then_severity_then_size_and_what_is_required_comes_first(lab: Lab) -> None:
    scouted = lab.commits([(lab.base, {"src/z.py": b"z\n"})])[0]
    units = [
        lab.unit("size2", {"src/1": b"1\n2\n"}),
        lab.unit("size1", {"src/2": b"1\n"}),
        lab.unit("severe", {"src/3": b"1\n2\n3\n"}, severity=2),
        lab.unit("group", {"src/4": b"1\n2\n3\n4\n"}, group=9),
        Unit("scout", lab.base, scouted, title="Fix scout"),
        lab.unit("tests", {"src/5": b"1\n"}, base=scouted, tests=("t::1",), requires=("scout",)),
    ]
    done = lab.integrate(units)
    assert names(done) == ["scout", "tests", "group", "severe", "size1", "size2"]
    assert done.accepted[2].reason == "one of 9 similar failures, changes 4 lines"
    other = lab.integrate(units, run="r2", order=["size2", "tests", "nobody"])
    assert names(other) == ["size2", "scout", "tests", "group", "severe", "size1"]
    assert other.accepted[0].reason.startswith("requested as number 1, changes ")


# Conflicts


def test_conflicts_are_foreseen_and_only_real_ones(lab: Lab) -> None:
    units = lab.row(
        {
            "a": {"src/a.py": changed(2), "src/b.py": changed(0)},
            "far": {"src/a.py": changed(8), "src/b.py": changed(0)},
            "near": {"src/a.py": changed(3, 2, word=b"other")},
            "file": {"src/x": b"x\n"},
            "folder": {"src/x/y": b"y\n"},
        }
    )
    done = lab.integrate(units)
    assert done.graph == (("a", "near", ("src/a.py",), True), ("file", "folder", ("src/x/y",), True))
    assert names(done) == ["a", "far", "file"]
    assert reason(done, "near") == "conflicts with a in src/a.py"
    assert reason(done, "folder") == "conflicts with file in src/x"


def test_what_lines_say_is_no_conflict_is_none(tmp_path: Path) -> None:
    """The prefilter never hides a pair that git cannot merge."""
    dice = random.Random(7)
    text = [b"%d\n" % dice.randrange(6) for _ in range(30)]
    lab = Lab(tmp_path, {"f": b"".join(text)})

    def edited() -> bytes:
        lines = list(text)
        for _ in range(dice.randrange(1, 4)):
            at, count = dice.randrange(len(lines)), dice.randrange(3)
            lines[at : at + count] = [b"%d\n" % dice.randrange(6) for _ in range(dice.randrange(3))]
        return b"".join(lines)

    tips = lab.commits([(lab.base, {"f": edited()}) for _ in range(30)])
    git = Repository(lab.host, str(lab.top / ".git"), str(tmp_path / "scratch"))
    trees = git.trees([lab.base, *tips])
    sides = [(trees[lab.base], trees[tip]) for tip in tips]
    changes = git.changes(sides)
    commits = git.siblings(sides)
    pairs = [(a, b) for a in range(30) for b in range(a) if changes[a] and changes[b]]
    merges = git.tried([(commits[a], commits[b]) for a, b in pairs])
    foreseen = [touch(changes[a][0], changes[b][0]) for a, b in pairs]
    hidden = [pair for pair, merge, seen in zip(pairs, merges, foreseen, strict=True) if merge.conflicts and not seen]
    assert not hidden and 0.2 < sum(foreseen) / len(pairs) < 0.9


def test_a_resolved_conflict_is_applied_and_told(lab: Lab) -> None:
    asked: list[Conflict] = []
    resolve = resolution(lab, {"b": {"src/a.py": changed(2, word=b"both")}}, asked)
    units = [
        lab.unit("a", {"src/a.py": changed(2, 8)}, severity=1),
        lab.unit("b", {"src/a.py": changed(2, word=b"other")}),
        lab.unit("c", {"src/b.py": changed(2)}, severity=-1),
    ]
    done = lab.integrate(units, resolve=resolve)
    (conflict,) = asked
    assert conflict[2:] == (("src/a.py",), ("a",)) and lab.files(conflict.onto)["src/a.py"] == changed(2, 8)
    assert names(done) == ["a", "b", "c"] and done.resolved == ("b",)
    assert [one.proof for one in done.accepted] == ["changed by b", "resolved", "present"]
    told = ["Muster-Conflict: resolved by an integrator" in trailers(lab, one.commit) for one in done.accepted]
    assert told == [False, True, False]
    assert lab.files(done.commit)["src/a.py"] == changed(2, word=b"both")
    assert lab.integrate(units, resolve=resolve).commit == done.commit and len(asked) == 1
    held = lab.git("for-each-ref", "--format=%(refname:lstrip=5)", "refs/muster/runs/r1/reduce/resolved")
    assert held.split() == ["resolved/0"]
    assert "Depends-on: a" in trailers(lab, done.accepted[1].commit)


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({"src/a.py": b"<<<<<<< a\n=======\n>>>>>>> b\n"}, "; the resolution leaves conflict markers in src/a.py"),
        (
            {"src/a.py": changed(2, 3), "src/b.py": b"evil\n"},
            "; the resolution changes src/b.py, which neither side changed",
        ),
        ({}, "; the resolution changes nothing"),
        (None, ""),
    ],
)
def test_a_resolution_is_checked(lab: Lab, files: dict[str, Content] | None, why: str) -> None:
    units = [
        lab.unit("a", {"src/a.py": changed(2)}, severity=1),
        lab.unit("b", {"src/a.py": changed(2, word=b"other")}),
    ]
    answers = {"b": files} if files is not None else {}
    done = lab.integrate(units, resolve=resolution(lab, answers, []))
    assert reason(done, "b") == f"conflicts with a in src/a.py{why}"


def test_a_resolution_is_doubted_as_any_other_change(lab: Lab) -> None:
    units = lab.row({"a": {"src/a.py": changed(2)}, "b": {"src/a.py": changed(2, word=b"other")}})
    asked: list[Conflict] = []
    told: list[tuple[Conflict, str]] = []

    def doubt(conflict: Conflict, commit: str) -> str:
        told.append((conflict, commit))
        return "weakens a test"

    resolve = resolution(lab, {"b": {"src/a.py": changed(2, word=b"both")}}, asked)
    done = lab.integrate(units, resolve=resolve, doubt=doubt)
    assert reason(done, "b") == "conflicts with a in src/a.py; the resolution weakens a test"
    ((conflict, commit),) = told
    assert conflict == asked[0] and lab.files(commit)["src/a.py"] == changed(2, word=b"both")


def test_a_resolution_with_which_the_gate_is_red_is_asked_for_anew(lab: Lab) -> None:
    units = lab.row({"a": {"src/a.py": changed(2)}, "b": {"src/a.py": changed(2, word=b"other")}})
    asked: list[Conflict] = []
    gate = Rule(lab, lambda files, tests: "bad" if b"bad" in files["src/a.py"] else "")
    bad = resolution(lab, {"b": {"src/a.py": changed(2, word=b"bad")}}, asked)
    assert reason(lab.integrate(units, gate, resolve=bad), "b") == "red in the gate: bad"
    good = resolution(lab, {"b": {"src/a.py": changed(2, word=b"both")}}, asked)
    assert names(lab.integrate(units, gate, resolve=good)) == ["a", "b"] and len(asked) == 2
    assert names(lab.integrate(units, gate, resolve=good)) == ["a", "b"] and len(asked) == 2, "a good one is kept"


def test_a_resolution_that_is_nowhere_is_refused(lab: Lab) -> None:
    units = [
        lab.unit("a", {"src/a.py": changed(2)}, severity=1),
        lab.unit("b", {"src/a.py": changed(2, word=b"other")}),
    ]
    for answer in ("0" * 40, "--evil", "unit"):
        done = lab.integrate(units, resolve=lambda conflict, answer=answer: answer, folder=str(lab.folder / answer))
        assert reason(done, "b") == f"conflicts with a in src/a.py; the resolution has no commit {answer}"


def test_the_same_conflict_after_an_ejection_is_not_asked_for_again(lab: Lab) -> None:
    asked: list[Conflict] = []
    bad = lab.unit("bad", {"src/a.py": b"bad\n" + TEN}, severity=3)
    units = [
        bad,
        lab.unit("a", {"src/a.py": changed(4)}, severity=2),
        lab.unit("b", {"src/a.py": changed(4, word=b"other")}, severity=1),
        lab.unit("c", {"src/a.py": changed(4, word=b"third")}),
        *lab.row({"d": {"src/b.py": changed(4)}, "e": {"src/b.py": changed(4, word=b"other")}}, -1),
    ]

    def resolve(conflict: Conflict) -> str | None:
        asked.append(conflict)
        text = lab.files(conflict.onto)["src/a.py"].replace(b"fixed 4", b"both 4")
        return lab.commits([(conflict.onto, {"src/a.py": text})])[0] if conflict.unit.name == "b" else None

    done = lab.integrate(
        units, Rule(lab, lambda files, tests: "bad" if b"bad" in files["src/a.py"] else ""), resolve=resolve
    )
    assert names(done) == ["a", "b", "d"] and done.resolved == ("b",)
    assert lab.files(done.commit)["src/a.py"] == changed(4).replace(b"fixed", b"both")
    assert [conflict.unit.name for conflict in asked] == ["b", "c", "e", "c"]


def test_a_conflict_that_nobody_resolved_is_asked_for_again_when_it_is_begun_anew(lab: Lab) -> None:
    units = lab.row({"a": {"src/a.py": changed(2)}, "b": {"src/a.py": changed(2, word=b"other")}})
    asked: list[Conflict] = []
    answers: dict[str, dict[str, Content]] = {}
    resolve = resolution(lab, answers, asked)
    assert "b" in lab.integrate(units, resolve=resolve).left_out and len(asked) == 1
    answers["b"] = {"src/a.py": changed(2, word=b"both")}
    done = lab.integrate(units, resolve=resolve)
    assert names(done) == ["a", "b"] and len(asked) == 2
    assert lab.integrate(units, resolve=lambda conflict: None) == done._replace(git_calls=mock.ANY)


def test_what_one_could_not_resolve_another_is_asked_for_also_when_the_first_was_killed(lab: Lab) -> None:
    units = lab.row({"a": {"src/a.py": changed(2)}, "b": {"src/a.py": changed(2, word=b"other")}})
    with pytest.raises(Killed):
        lab.integrate(units, Rule(lab, killing), asked="none")
    resolve = resolution(lab, {"b": {"src/a.py": changed(2, word=b"both")}}, [])
    assert names(lab.integrate(units, resolve=resolve, asked="replay")) == ["a", "b"]


def test_an_answer_for_another_conflict_is_not_taken(lab: Lab) -> None:
    """After an ejection the same unit conflicts with another: in a binary file, where no marker would show it, or in more lines."""
    lab.base = lab.commits([(lab.base, {"src/bin": b"\0"})])[0]
    units = lab.row(
        {
            "first": {"src/a.py": changed(2)},
            "bad": {"src/bin": b"\0bad", "src/b.py": changed(1)},
            "good": {"src/bin": b"\0good", "src/b.py": changed(0, 1), "src/a.py": changed(8)},
            "binary": {"src/bin": b"\0other", "src/new.py": b"new\n"},
            "lines": {"src/a.py": changed(2, 8, word=b"other")},
        }
    )
    asked: list[str] = []

    def resolve(conflict: Conflict) -> str | None:
        asked.append(conflict.unit.name)
        text = changed(2, 8, word=b"other").replace(b"other 2", b"both 2")
        files: dict[str, dict[str, Content]] = {"binary": {"src/new.py": b"new\n"}, "lines": {"src/a.py": text}}
        mine = files.get(conflict.unit.name)
        return lab.commits([(conflict.onto, mine)])[0] if mine else None

    done = lab.integrate(units, Rule(lab, without(b"bad")), resolve=resolve)
    assert asked == ["good", "binary", "lines", "binary", "lines"]
    assert names(done) == ["first", "good", "binary", "lines"] and done.resolved == ("binary", "lines")


def test_markers_that_a_unit_is_about_are_no_conflict_that_was_left(lab: Lab) -> None:
    markers: dict[str, Content] = {"src/parser.py": b"<<<<<<< ours\n"}
    units = lab.row({"a": {"src/a.py": changed(2)}, "b": {"src/a.py": changed(2, word=b"other"), **markers}})
    resolve = resolution(lab, {"b": {"src/a.py": changed(2, word=b"both"), **markers}}, [])
    assert names(lab.integrate(units, resolve=resolve)) == ["a", "b"]


def test_many_that_collide_with_all_others_are_not_all_tried(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("muster.flow.reducing.units.PAIRS_MOST", 1)
    units = lab.row({f"u{n}": {"src/a.py": changed(2, word=b"%d" % n)} for n in range(5)})
    done = lab.integrate(units)
    pairs = [("u0", "u1"), ("u0", "u2"), ("u1", "u2"), ("u0", "u3"), ("u1", "u3")]
    assert [pair[:2] for pair in done.graph] == pairs and len(done.left_out) == 4


def test_equal_lines_get_in_nobodys_way_and_other_bytes_are_another_patch() -> None:
    def change(new: str, *hunks: Hunk) -> Change:
        return Change("f", "100644", "100644", "0" * 40, new, hunks or None)

    insert = Hunk(3, 3, 3, 4, "import x", False)
    assert not touch(change("1", insert), change("2", insert, Hunk(9, 10, 10, 11, "y", False)))
    assert touch(change("1", insert), change("2", insert._replace(text="import y")))
    assert not touch(change("1"), change("1")) and touch(change("1"), change("2"))
    assert key([change("1")]) != key([change("2")]) and key([change("1", insert)]) == key([change("2", insert)])


def test_a_new_file_stays_where_its_author_put_it(lab: Lab) -> None:
    files: dict[str, Content] = {f"src/old/{n}.py": b"".join(numbered(5 + n)) for n in range(4)}
    lab.base = lab.commits([(lab.base, files)])[0]
    moved: dict[str, Content] = {path.replace("old", "new"): content for path, content in files.items()}
    units = lab.row({"move": {**dict.fromkeys(files), **moved}, "add": {"src/old/more.py": b"more\n"}})
    assert "src/old/more.py" in lab.files(lab.integrate(units).commit)


# The gate


def without(word: bytes) -> Callable[[Files, Sequence[str]], str]:
    return lambda files, tests: "a word is bad" if any(word in content for content in files.values()) else ""


def test_red_units_are_found_and_ejected_and_what_builds_on_them_goes_too(lab: Lab) -> None:
    bad = {3, 4, 11}
    units = lab.row({f"u{n:02}": {f"src/n{n}.py": b"bad\n" if n in bad else b"good\n"} for n in range(12)})
    units.append(lab.unit("child", {"src/n3.py": b"good\n"}, base=units[3].tip, requires=("u03",), severity=-30))
    units.append(lab.unit("grandchild", {"src/g.py": b"g\n"}, requires=("child",), severity=-31))
    units.append(lab.unit("twin", {"src/n3.py": b"bad\n"}, severity=-32))
    gate = Rule(lab, without(b"bad"))
    done = lab.integrate(units, gate)
    assert names(done) == [f"u{n:02}" for n in range(12) if n not in bad]
    assert reason(done, "u03") == "red in the gate: a word is bad" and done.left_out["u11"].output.startswith(
        "output of"
    )
    assert reason(done, "twin") == "equal to u03: red in the gate: a word is bad"
    assert reason(done, "child") == "it builds on u03, which is left out"
    assert reason(done, "grandchild") == "it builds on child, which is left out"
    assert len(gate.checks) <= 24 and not done.flaky


def test_a_batch_is_tested_with_what_has_paths_in_common_with_it(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "BATCH_FIRST", 1)
    gate = Rule(lab)
    units = [
        lab.unit("a", {"src/a.py": changed(0)}, tests=("t::a",), severity=3),
        lab.unit("b", {"src/b.py": changed(0)}, tests=("t::b",), severity=2),
        lab.unit("c", {"src/a.py": changed(5)}, tests=("t::c",), severity=1),
        lab.unit("d", {"src/a.py": changed(9)}, tests=("t::d",)),
    ]
    lab.integrate(units, gate)
    assert [tests for _, tests in gate.checks] == [("t::a",), ("t::b", "t::c", "t::a"), ("t::d", "t::a", "t::c")]
    units = [
        unit._replace(tests=(unit.name,)) for unit in lab.row({str(n): {f"src/{n}": b"%d\n" % n} for n in range(8)})
    ]
    gate = Rule(lab, lambda files, tests: "four" if b"4\n" in files.values() else "")
    done = lab.integrate(units, gate, run="r2")
    batches = ["0", "12", "3456", "34", "3", "34", "5", "67"]
    assert ["".join(tests) for _, tests in gate.checks] == batches and set(done.left_out) == {"4"}


def fixed_by(files: dict[str, tuple[str, ...]]) -> Callable[[Files, str], bool]:
    """A rule: each test passes with any one of its files."""
    return lambda there, test: any(path in there for path in files[test])


@pytest.mark.parametrize("batch", [1, 2, 8])
def test_a_second_fix_of_a_bug_that_is_fixed_already_is_left_out(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    """Two pairs merge cleanly and fix the same, once under one test and once under two; each of the others fixes something else."""
    monkeypatch.setattr(engine, "BATCH_FIRST", batch)
    units = lab.row({f"u{n}": {f"src/u{n}.py": b"%d\n" % n} for n in range(10)})
    units = [unit._replace(tests=(f"t::{unit.name}",)) for unit in units]
    units[6] = units[6]._replace(tests=("t::u1",))
    rule = {f"t::u{n}": (f"src/u{n}.py",) for n in range(10)}
    gate = Rule(lab, passes=fixed_by(rule | {"t::u1": ("src/u1.py", "src/u6.py"), "t::u7": ("src/u4.py", "src/u7.py")}))
    done = lab.integrate(units, gate)
    assert {name: left.reason for name, left in done.left_out.items()} == {
        "u6": "already fixed by u1",
        "u7": "already fixed by u4",
    }
    assert not {"src/u6.py", "src/u7.py"} & lab.files(done.commit).keys()
    said = [(event["unit"], event["by"]) for event in lab.said if event["kind"] == "redundant"]
    assert said == [("u6", "u1"), ("u7", "u4")]
    asked = len(gate.without)
    assert lab.integrate(units, gate).commit == done.commit and len(gate.without) - asked < asked


def test_a_fix_that_seemed_needless_is_taken_when_the_other_one_is_ejected(lab: Lab) -> None:
    units = [
        lab.unit(name, {f"src/{name}.py": name.encode()}, tests=(f"t::{name}",), severity=-n)
        for n, name in enumerate(("bad", "good", "other"))
    ]
    passes = fixed_by({"t::bad": ("src/bad.py",), "t::good": ("src/bad.py", "src/good.py"), "t::other": ()})
    rule = without(b"bad")
    gate = Rule(lab, lambda files, tests: rule(files, ()) if "full" in tests else "", passes)
    done = lab.integrate(units, gate)
    assert names(done) == ["good", "other"] and reason(done, "bad") == "red in the gate: a word is bad"


def test_a_fix_that_others_build_on_is_kept_though_its_test_passes_without_it(lab: Lab) -> None:
    first = lab.unit("first", {"src/x.py": b"x\n"}, tests=("t::1",), severity=3)
    second = lab.unit("second", {"src/y.py": b"y\n"}, tests=("t::2",), severity=2)
    child = lab.unit("child", {"src/y.py": b"z\n"}, base=second.tip, requires=("second",))
    gate = Rule(lab, passes=lambda files, test: "src/x.py" in files)
    assert names(lab.integrate([first, second, child], gate)) == ["first", "second", "child"]


def test_a_gate_that_is_red_only_once_is_flaky_and_costs_nobody(lab: Lab) -> None:
    class Flaky(Rule):
        def check(self, commit: str, tests: Sequence[str]) -> Verdict:
            verdict = super().check(commit, tests)
            return verdict._replace(ok=len(self.checks) != 1)

        def full(self, commit: str, tests: Sequence[str]) -> Verdict:
            verdict = super().full(commit, tests)
            return verdict._replace(ok=len(self.fulls) != 1)

    gate = Flaky(lab)
    done = lab.integrate(lab.row({f"u{n}": {f"src/{n}.py": b"x\n"} for n in range(3)}), gate)
    assert len(done.accepted) == 3 and not done.left_out
    assert gate.fulls == [done.commit, done.commit] and done.flaky == (gate.checks[0][0], done.commit)


def test_a_base_that_is_red_costs_no_unit_and_delivers_nothing(lab: Lab) -> None:
    units = lab.row({f"u{n}": {f"src/{n}.py": b"x\n"} for n in range(9)})
    done = lab.integrate(units, Rule(lab, lambda files, tests: "no lint"))
    assert (done.commit, done.branch, done.why) == ("", "", "the base itself is red: no lint")
    assert not done.accepted and len(done.left_out) == 9
    assert reason(done, "u5") == "nothing is delivered: the base itself is red: no lint"
    assert "muster-run" not in lab.git("for-each-ref")
    gate = Rule(lab, lambda files, tests: "red" if "full" in tests else "")
    full = lab.integrate(units, gate, folder=str(lab.folder / "other"))
    assert full.why == "the gate is red on the base itself: red"


class Killed(BaseException):
    pass


def killing(files: Files, tests: Sequence[str]) -> str:
    raise Killed


@pytest.mark.parametrize("where", ["check", "full"])
def test_a_gate_that_was_broken_is_heard_again_once_it_is_mended(lab: Lab, where: str) -> None:
    """A linter that is missing, say: the base is red too, and no unit is at fault."""
    broken = True
    units = lab.row({f"u{n}": {f"src/{n}.py": b"x\n"} for n in range(3)})
    gate = Rule(lab, lambda files, tests: "no lint" if broken and ("full" in tests) == (where == "full") else "")
    assert "the base itself" in lab.integrate(units, gate).why
    broken = False
    done = lab.integrate(units, gate)
    assert len(done.accepted) == 3 and not done.left_out


def test_a_unit_that_was_ejected_has_another_chance_when_it_is_begun_anew_but_not_when_it_goes_on(lab: Lab) -> None:
    units = lab.row({"good": {"src/a.py": changed(1)}, "slow": {"src/b.py": changed(1)}})
    red, killed = True, False

    def rule(files: Files, tests: Sequence[str]) -> str:
        if killed and "full" in tests:
            raise Killed
        return "slow" if red and b"fixed" in files["src/b.py"] else ""

    first = lab.integrate(units, Rule(lab, rule))
    assert reason(first, "slow") == "red in the gate: slow"
    green = lab.integrate(units, Rule(lab))
    assert names(green) == ["good", "slow"], "the host was busy, and is not any more"
    killed, other = True, {"run": "r2", "folder": str(lab.folder / "other")}
    with pytest.raises(Killed):
        lab.integrate(units, Rule(lab, rule), **other)
    killed = red = False
    gate = Rule(lab, rule)
    resumed = lab.integrate(units, gate, **other)
    assert resumed.left_out == first.left_out and names(resumed) == names(first)
    assert not gate.checks, "what was killed comes to the end that it was on its way to"


def only_full(word: bytes) -> Callable[[Files, Sequence[str]], str]:
    def rule(files: Files, tests: Sequence[str]) -> str:
        count = sum(word in content for content in files.values())
        return f"{count} bad" if "full" in tests and count else ""

    return rule


def test_what_only_the_whole_suite_finds_is_ejected_and_all_the_others_are_delivered(lab: Lab) -> None:
    units = lab.row({f"u{n}": {f"src/{n}.py": b"bad\n" if n in (2, 5) else b"x\n"} for n in range(8)})
    units += lab.row({"red": {"src/red.py": b"red\n"}}, -8)
    reds = []

    def rule(files: Files, tests: Sequence[str]) -> str:
        reds.append("src/red.py" in files)
        return "red" if reds[-1] else only_full(b"bad")(files, tests)

    gate = Rule(lab, rule)
    done = lab.integrate(units, gate)
    assert names(done) == ["u0", "u1", "u3", "u4", "u6", "u7"] and gate.fulls[-1] == done.commit
    assert sum(reds) == 2  # it is not tried again in the rounds to come
    assert reason(done, "u2") == "red in the gate: 1 bad"


def test_few_bad_units_among_many_cost_only_themselves_and_few_runs_of_the_suite(lab: Lab) -> None:
    bad = {5, 17, 18, 40, 63}
    units = lab.row({f"u{n:02}": {f"src/{n}.py": b"bad\n" if n in bad else b"x\n"} for n in range(64)})
    gate = Rule(lab, only_full(b"bad"))
    done = lab.integrate(units, gate)
    assert set(done.left_out) == {f"u{n:02}" for n in bad} and len(done.accepted) == 59
    # For each: all of it twice, 6 halves, the culprit again.
    assert len(gate.fulls) <= 9 * len(bad) + 1


def test_where_almost_all_make_the_suite_red_what_comes_before_them_is_delivered(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "ROUNDS", 2)
    units = lab.row({f"u{n}": {f"src/{n}.py": b"x\n" if n in (0, 2, 6) else b"bad\n"} for n in range(8)})
    done = lab.integrate(units, gate := Rule(lab, only_full(b"bad")))
    assert names(done) == ["u0", "u2"] and gate.fulls[-1] == done.commit
    assert [name for name, left in done.left_out.items() if left.reason.startswith("red in the gate")] == [
        "u1",
        "u3",
        "u4",
    ]
    assert reason(done, "u6").startswith("not tried: the gate is red with it or one before it, after 2 others")
    none = lab.integrate(lab.row({f"w{n}": {f"src/w{n}.py": b"bad\n"} for n in range(4)}), gate, run="r2")
    assert not none.commit and set(none.left_out) == {"w0", "w1", "w2", "w3"}


def test_a_suite_that_is_red_only_once_misleads_nobody(lab: Lab) -> None:
    """Not on the way to the culprit either."""

    class Flaky(Rule):
        def full(self, commit: str, tests: Sequence[str]) -> Verdict:
            verdict = super().full(commit, tests)
            return verdict._replace(ok=False) if len(self.fulls) in (3, 5) else verdict

    units = lab.row({f"u{n}": {f"src/{n}.py": b"bad\n" if n == 6 else b"x\n"} for n in range(8)})
    done = lab.integrate(units, Flaky(lab, only_full(b"bad")))
    assert set(done.left_out) == {"u6"}


def test_a_fix_that_a_later_change_of_other_files_undoes_is_seen_in_the_whole_suite(lab: Lab) -> None:
    fix = lab.unit("fix", {"src/a.py": changed(1)}, tests=("t1",), severity=9)
    units = [
        fix,
        lab.unit("undoes", {"src/other.py": b"undo\n"}, tests=("t2",)),
        lab.unit("more", {"src/c.py": b"x\n"}),
    ]

    def rule(files: Files, tests: Sequence[str]) -> str:
        return "t1 is failed" if "src/other.py" in files and {"full", "t1"} <= set(tests) else ""

    done = lab.integrate(units, Rule(lab, rule))
    assert names(done) == ["fix", "more"] and reason(done, "undoes") == "red in the gate: t1 is failed"


# Bad input


def test_units_that_cannot_be_taken_are_left_out_with_the_reason_and_the_others_go_on(lab: Lab) -> None:
    def by_hand(path: str) -> str:
        """A tree that no index could hold."""
        blob = lab.git("hash-object", "-w", "--stdin", input=b"evil\n").strip()
        for part in reversed(path.split("/")):
            mode = "100644" if part == path.split("/")[-1] else "040000"
            kind = "blob" if mode == "100644" else "tree"
            blob = lab.git("mktree", input=f"{mode} {kind} {blob}\t{part}\n".encode()).strip()
        return lab.git("commit-tree", blob, "-m", "x").strip()

    missing = lab.git(
        "mktree", "--missing", input=b"100644 blob " + b"1" * 40 + b"\tsrc/gone.py\n".replace(b"src/", b"")
    ).strip()
    units = [
        lab.unit("good", {"src/a.py": changed(1)}),
        lab.unit("empty", {}),
        lab.unit("module", {"src/sub": ("160000", b"1" * 40)}),
        Unit("no-tip", lab.base, "1" * 40),
        Unit("no-base", "2" * 40, lab.base),
        Unit("no-commit", lab.base, "HEAD; rm -rf \x1b[0m"),
        Unit("two-lines", lab.base, f"{lab.base}\n{lab.base}"),
        Unit("tree", lab.base, lab.git("hash-object", "-w", "--stdin", input=b"blob").strip()),
        Unit("hook", lab.base, by_hand(".git/hooks/post-checkout")),
        Unit("up", lab.base, by_hand("../evil")),
        Unit("damaged", lab.base, lab.git("commit-tree", missing, "-m", "x").strip()),
        lab.unit("on-empty", {"src/b.py": changed(1)}, requires=("empty",)),
        lab.unit("on-nobody", {"src/b.py": changed(3)}, requires=("nobody",)),
        lab.unit("circle1", {"src/c.py": b"1\n"}, requires=("circle2",)),
        lab.unit("circle2", {"src/d.py": b"1\n"}, requires=("circle1",)),
    ]
    done = lab.integrate(units)
    assert set(names(done)) == {"good", "on-empty"}
    told = {name: left.reason for name, left in done.left_out.items()}
    assert told.pop("damaged").startswith("its changes cannot be read: git diff-tree: ")
    assert told == {
        "empty": "nothing changed",
        "module": "it changes the submodule src/sub",
        "no-tip": f"its commit {'1' * 40} is not in the repository",
        "no-base": f"its base {'2' * 40} is not in the repository",
        "no-commit": "its commit HEAD; rm -rf ?[0m is not in the repository",
        "two-lines": f"its commit {lab.base}?{lab.base[:19]}… is not in the repository",
        "tree": f"its commit {units[7].tip} is not in the repository",
        "hook": "no work tree can have its path .git/hooks/post-checkout",
        "up": "no work tree can have its path ../evil",
        "on-nobody": "it builds on nobody, which is left out",
        "circle1": "it builds on circle2, which is left out",
        "circle2": "it builds on circle1, which is left out",
    }


def test_odd_files_and_paths_come_through_as_they_are(lab: Lab) -> None:
    odd: dict[str, Content] = {
        "src/a b.py": b"space\n",
        'src/line\nbreak\t"quote".py': b"break\n",
        "src/\udcff\udcfe.py": b"not UTF-8\n",
        "src/ü.py": b"crlf\r\nfile\r\n",
        "src/no-end": b"no newline at the end",
        "src/binary": bytes(range(256)),
        "src/link": ("120000", b"/etc/passwd"),
        "src/run.sh": ("100755", b"#!/bin/sh\n"),
        "src/empty": b"",
    }
    units = lab.row({f"u{n}": {path: content} for n, (path, content) in enumerate(odd.items())})
    units.append(lab.unit("mode", {"src/a.py": ("100755", TEN)}))
    units.append(lab.unit("type", {"src/b.py": ("120000", b"a.py")}))
    done = lab.integrate(units)
    assert len(done.accepted) == len(units) and all(one.proof == "present" for one in done.accepted)
    files = lab.files(done.commit)
    assert all(files[path] == (content[1] if isinstance(content, tuple) else content) for path, content in odd.items())
    modes = {line.split("\t")[1]: line[:6] for line in lab.git("ls-tree", "-r", "-z", done.commit).split("\0") if line}
    assert [modes[path] for path in ("src/a.py", "src/b.py", "src/link")] == ["100755", "120000", "120000"]
    assert len(lab.log(done.commit)) == len(units)


def test_changes_of_one_file_that_do_not_fit_cost_only_the_lesser(lab: Lab) -> None:
    big = numbered(40)
    lab.base = lab.commits(
        [(lab.base, {"src/f.py": b"".join(big), "src/g.py": TEN, "src/bin": b"\0" * 9, "src/crlf": b"a\r\nb\r\nc\r\n"})]
    )[0]
    renamed, edited = changed(3, lines=40), changed(30, lines=40)
    units = lab.row(
        {
            "rename": {"src/f.py": None, "src/moved.py": renamed},
            "edit": {"src/f.py": edited},
            "delete": {"src/g.py": None},
            "edit-deleted": {"src/g.py": changed(2)},
            "binary": {"src/bin": b"\0" * 8},
            "other-binary": {"src/bin": b"\0" * 7},
            "crlf": {"src/crlf": b"a\r\nb\r\nfixed\r\n"},
            "no-crlf": {"src/crlf": b"a\nb\nc\n"},
            "file": {"src/d": b"d\n"},
            "folder": {"src/d/e": b"e\n"},
        }
    )
    done = lab.integrate(units)
    assert names(done) == ["rename", "edit", "delete", "binary", "crlf", "file"]
    assert lab.files(done.commit)["src/moved.py"] == changed(3, 30, lines=40)
    assert reason(done, "edit-deleted") == "conflicts with delete in src/g.py"
    assert reason(done, "other-binary") == "conflicts with binary in src/bin"
    assert reason(done, "no-crlf") == "conflicts with crlf in src/crlf"
    assert {pair[:2] for pair in done.graph} == {
        ("delete", "edit-deleted"),
        ("binary", "other-binary"),
        ("crlf", "no-crlf"),
        ("file", "folder"),
    }
    assert "Depends-on: rename" in trailers(lab, done.accepted[1].commit)


def test_a_file_of_one_kind_in_the_place_of_the_other_ends_in_the_tested_tree(lab: Lab) -> None:
    lab.base = lab.commits([(lab.base, {"src/d/x.py": b"x\n", "docs": b"d\n"})])[0]

    def kind(path: str) -> str:
        return "implementation" if path.startswith("src/d/") or path == "docs" else "other"

    units = [
        lab.unit("a", {"src/d/x.py": None, "src/d": b"now a file\n"}, severity=1),
        lab.unit("b", {"docs": None, "docs/index": b"now a folder\n"}),
    ]
    gate = Rule(lab)
    done = lab.integrate(units, gate, kind=kind)
    assert lab.files(done.commit) == lab.files(gate.checks[-1][0])
    assert {"src/d", "docs/index"} <= lab.files(done.commit).keys()


def test_words_that_are_off_are_refused_at_once(lab: Lab) -> None:
    unit = lab.unit("a", {"src/a.py": changed(1)})
    with pytest.raises(UsageError, match="two units have the same name"):
        lab.integrate([unit, unit])
    with pytest.raises(UsageError, match="not a name for a run"):
        lab.integrate([unit], run="../x")
    lab.base = "3" * 40
    with pytest.raises(NotFound):
        lab.integrate([unit])


def test_no_units_deliver_nothing(lab: Lab) -> None:
    assert lab.integrate([]).why == "no unit was left that changes anything"


# The ref


def test_a_branch_that_is_checked_out_or_has_work_of_others_is_not_moved(lab: Lab) -> None:
    first, second = lab.unit("a", {"src/a.py": changed(1)}), lab.unit("b", {"src/b.py": changed(1)})
    old = lab.integrate([first])
    new = lab.integrate([first, second])
    assert new.commit != old.commit == lab.git("rev-parse", f"{new.commit}~1").strip()
    lab.git("worktree", "add", "-q", str(lab.folder / "tree"), new.branch)
    gate = Rule(lab)
    with pytest.raises(Refused, match="is checked out in .*tree"):
        lab.integrate([second], gate)
    lab.git("worktree", "remove", str(lab.folder / "tree"))
    lab.git("update-ref", f"refs/heads/{new.branch}", lab.base)
    with pytest.raises(Refused, match="has commits that this run did not make"):
        lab.integrate([second], gate)
    assert not gate.checks and lab.git("rev-parse", new.branch).strip() == lab.base


# What a commit stands on


def test_a_commit_tells_which_others_it_stands_on(lab: Lab) -> None:
    scout = lab.unit("scout", {"src/a.py": changed(2)}, severity=9)
    units = [
        scout,
        lab.unit("on-it", {"src/a.py": changed(2, word=b"better")}, base=scout.tip, requires=("scout",), severity=8),
        lab.unit("beside", {"src/a.py": changed(2, 8)}, base=scout.tip, requires=("scout",), severity=7),
        lab.unit("import", {"src/b.py": b"import x\n" + changed(5)}, severity=6),
        lab.unit("same-import", {"src/b.py": b"import x\n" + changed(8)}, severity=5),
        lab.unit("old", {"src/a.py": changed(5)}, severity=4),
    ]
    done = lab.integrate(units)
    told = {
        one.name: [line[12:] for line in trailers(lab, one.commit) if line.startswith("Depends-on")]
        for one in done.accepted
    }
    assert told == {"scout": [], "on-it": ["scout"], "beside": [], "import": [], "same-import": ["import"], "old": []}
    assert [one.proof for one in done.accepted][:2] == ["changed by on-it", "present"]
    assert done.graph == (("on-it", "old", ("src/a.py",), False), ("beside", "old", ("src/a.py",), False))


def test_what_nothing_stands_on_can_be_reverted(tmp_path: Path) -> None:
    """In many small histories of one file: where no dependency is told, git takes the commit out of the last tree."""
    dice = random.Random(11)
    lines = [b"%d\n" % dice.randrange(1000) for _ in range(24)]
    histories = []
    for _ in range(40):
        text, history = list(lines), [list(lines)]
        for _ in range(6):
            at = dice.randrange(len(text))
            text[at : at + dice.randrange(3)] = [b"%d\n" % dice.randrange(1000) for _ in range(dice.randrange(3))]
            history.append(list(text))
        histories.append([b"".join(one) for one in history])
    lab = Lab(tmp_path, {"f": b""})
    commits = lab.commits([("", {"f": text}) for history in histories for text in history])
    git = Repository(lab.host, str(lab.top / ".git"), str(tmp_path / "scratch"))
    known = git.trees(commits)
    trees = [known[commit] for commit in commits]
    chains = [trees[start : start + 7] for start in range(0, len(trees), 7)]
    all_deltas = git.changes([pair for chain in chains for pair in pairwise(chain)])
    sides = []
    for start, chain in enumerate(chains):
        deltas = all_deltas[6 * start : 6 * start + 6]
        needs = dependencies(deltas, deltas)
        for number in range(6):
            if not any(number in needed for needed in needs):
                sides += [(chain[number + 1], chain[-1]), (chain[number + 1], chain[number])]
    commits = git.siblings(sides)
    merges = git.tried(list(zip(commits[::2], commits[1::2], strict=True)))
    assert 60 < len(merges) < 200 and not [merge for merge in merges if merge.conflicts]


# Killed and begun again


def disturbed(folder: Path, stop: Callable[[str], None]) -> tuple[Lab, Callable[[], Delivery], list[str]]:
    """Units with all that is asked of others: a resolved conflict, a refused one, red units, a flaky gate, a red suite."""
    lab = Lab(folder, {"src/a.py": TEN, "src/b.py": TEN})
    files: dict[str, dict[str, Content]] = {f"u{n}": {f"src/n{n}.py": b"bad\n" if n == 2 else b"x\n"} for n in range(4)}
    files["suite"] = {"src/s.py": b"full\n"}
    units = lab.row({**files, **{f"c{n}": {"src/a.py": changed(2, word=b"c%d" % n)} for n in range(3)}})
    log = folder / "asked"

    def ask(what: str) -> None:
        stop("before " + what)
        with open(log, "a", encoding="utf-8") as file:
            file.write(what + "\n")

    class Noisy(Rule):
        def check(self, commit: str, tests: Sequence[str]) -> Verdict:
            ask(f"check {commit} {tests}")
            red = without(b"bad")(lab.files(commit), tests)
            # Once, until somebody has written it down.
            heard = [json.loads(file.read_text()) for file in (folder / "run" / "journal").glob("verdict-*.json")]
            calm = any(not one["ok"] and one["words"] == "flaky" for one in heard)
            return Verdict(not red and calm, red or "flaky")

        def full(self, commit: str, tests: Sequence[str]) -> Verdict:
            ask(f"full {commit}")
            return Verdict(not without(b"full")(lab.files(commit), ()), "suite")

    def resolve(conflict: Conflict) -> str | None:
        ask(f"resolve {conflict.unit.name}")
        text = changed(2, word=b"resolved")
        return lab.commits([(conflict.onto, {"src/a.py": text})])[0] if conflict.unit.name == "c1" else None

    return lab, lambda: lab.integrate(units, Noisy(lab), resolve=resolve), [str(log)]


def same(delivery: Delivery) -> dict[str, Any]:
    found = delivery.to_json()
    del found["git_calls"]
    return found


def forked(work: Callable[[], object]) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException:
            os._exit(3)
        os._exit(0)
    return pid


def kills(folder: Path, monkeypatch: pytest.MonkeyPatch, every: int) -> int:
    """Kill one run again and again, each time a little later, and let it come to its end; returns how often it was killed."""
    from muster.flow.reducing import journal

    real = journal.write
    points, fatal = 0, 0

    def stop(what: str) -> None:
        nonlocal points
        points += 1
        if points == fatal:
            os.kill(os.getpid(), signal.SIGKILL)

    def write(path: str, content: Any) -> None:
        stop("before a write")
        real(path, content)
        stop("after a write")

    (folder / "whole").mkdir()
    _, whole, whole_log = disturbed(folder / "whole", lambda what: None)
    wanted = same(whole())
    assert wanted["resolved"] and wanted["flaky"] and {"u2", "suite", "c2"} == set(wanted["left_out"])
    (folder / "killed").mkdir()
    lab, go, log = disturbed(folder / "killed", stop)
    monkeypatch.setattr(journal, "write", write)
    run = lab.host.run
    monkeypatch.setattr(lab.host, "run", lambda *given, **more: (stop("git"), run(*given, **more))[1])
    killed = 0

    def told() -> None:
        (folder / "done").write_text(json.dumps(same(go())))

    while True:
        fatal += every
        code = os.waitstatus_to_exitcode(os.waitpid(forked(told), 0)[1])
        assert code in (0, -signal.SIGKILL)
        if not code:
            break
        killed += 1
    assert json.loads((folder / "done").read_text()) == json.loads(json.dumps(wanted))
    asked, once = (Path(name).read_text().splitlines() for name in (log[0], whole_log[0]))
    assert len(asked) <= len(once) + killed and set(asked) == set(once)
    return killed


def test_killed_it_comes_to_the_same_commits_and_asks_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert kills(tmp_path, monkeypatch, 40) > 2


@pytest.mark.slow
def test_killed_at_any_moment_it_comes_to_the_same_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert kills(tmp_path, monkeypatch, 1) > 50


@pytest.mark.slow
def test_killed_from_outside_while_git_is_at_work_it_comes_to_the_same_commits(tmp_path: Path) -> None:
    for name in ("whole", "killed"):
        (tmp_path / name).mkdir()
    wanted = same(disturbed(tmp_path / "whole", lambda what: None)[1]())
    _, go, _ = disturbed(tmp_path / "killed", lambda what: None)
    dice, killed, done = random.Random(3), 0, False
    while not done:
        pid = forked(go)
        time.sleep(dice.uniform(0, 0.1 * killed))  # the moment of the kill, not a wait for anything
        os.kill(pid, signal.SIGKILL)
        done = not os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        killed += not done
    assert killed > 5 and same(go()) == wanted


# Many


@pytest.mark.parametrize(("few", "many"), [(6, 24), pytest.param(60, 240, marks=pytest.mark.slow)])
def test_git_is_called_a_few_times_for_each_unit_however_many_there_are(tmp_path: Path, few: int, many: int) -> None:
    calls = []
    for count in (few, many):
        (tmp_path / str(count)).mkdir()
        lab, units = crowd(tmp_path / str(count), count)
        gate = Rule(lab, lambda files, tests: "")
        done = lab.integrate(units, gate)
        assert len(gate.without) <= 8 * len(gate.checks), "digits of the number of units in a batch"
        assert len(done.accepted) == count and all(one.proof == "present" for one in done.accepted)
        calls.append(sum(done.git_calls.values()) / count)
    assert calls[1] <= calls[0] and calls[1] < 4


# A real project


class Pytest:
    """The gate for a project of one module: a clean checkout, the real pytest."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab

    def failing(self, commit: str, repo: Path | None = None) -> set[str]:
        folder = self.lab.folder / f"checkout-{commit[:12]}"
        if not folder.exists():
            self.lab.git("clone", "-q", "--no-checkout", str(repo or self.lab.top), str(folder))
            self.lab.git("fetch", "-q", "origin", commit, cwd=folder)
            self.lab.git("checkout", "-q", commit, cwd=folder)
        argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--tb=no", "-rf", "."]
        env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, check=False)
        assert done.returncode in (0, 1), done.stdout
        return {line.split(" ")[1] for line in done.stdout.splitlines() if line.startswith("FAILED ")}

    def check(self, commit: str, tests: Sequence[str]) -> Verdict:
        red = self.failing(commit) & set(tests)
        return Verdict(not red, f"{', '.join(sorted(red))} failed")

    def full(self, commit: str, tests: Sequence[str]) -> Verdict:
        red = self.failing(commit)
        return Verdict(not red, f"{len(red)} failed" if red else "6 passed")

    def passing(self, asked: Sequence[tuple[str, Sequence[str]]]) -> list[set[str]]:
        return [set(tests) - self.failing(commit) for commit, tests in asked]


@pytest.mark.slow
def test_between_commits_the_tests_to_come_fail_and_what_nothing_stands_on_can_be_reverted(tmp_path: Path) -> None:
    words = ("one", "two", "three", "four", "five", "six")
    source = "".join(f"def {word}():\n    value = 0\n    return value\n\n\n" for word in words)
    tests = "import calc\n\n\n" + "".join(f"def test_{word}():\n    assert calc.{word}() == 0\n\n\n" for word in words)

    def fixed(text: str, number: int) -> str:
        word = words[number]
        return text.replace(f"def {word}():\n    value = 0", f"def {word}():\n    value = {number + 1}")

    def right(text: str, number: int) -> str:
        word = words[number]
        return text.replace(f"calc.{word}() == 0", f"calc.{word}() == {number + 1}")

    for number in range(6):  # the tests of the base are right, all but the last, which its unit corrects
        tests = right(tests, number) if number < 5 else tests.replace("calc.six() == 0", "calc.six() == 'six'")
    lab = Lab(
        tmp_path,
        {"src/calc.py": source.encode(), "test_calc.py": tests.encode(), "pytest.ini": b"[pytest]\npythonpath = src\n"},
    )
    lab.git("config", "uploadpack.allowAnySHA1InWant", "true")
    units = []
    for number, word in enumerate(words):
        files: dict[str, Content] = {"src/calc.py": fixed(source, number).encode()}
        if number == 5:
            files["test_calc.py"] = tests.replace("'six'", "6").encode()
        units.append(lab.unit(word, files, tests=(f"test_calc.py::test_{word}",), severity=-number))
    first = units[0]
    better = fixed(source, 0).replace("value = 1", "value = 2 - 1")
    units.append(lab.unit("better", {"src/calc.py": better.encode()}, base=first.tip, requires=("one",), severity=-9))
    units.append(lab.unit("wrong", {"src/calc.py": source.replace("five():", "five(x):").encode()}, severity=-10))
    gate = Pytest(lab)
    done = lab.integrate(units, gate)
    assert names(done) == [*words, "better"] and set(done.left_out) == {"wrong"} and done.proof == "6 passed"
    rest, *fixes = lab.log(done.commit, "%H")
    still = [f"test_calc.py::test_{word}" for word in words]
    assert gate.failing(rest) == set(still)
    for number, commit in enumerate(fixes[:6]):
        assert gate.failing(commit) == set(still[number + 1 :])
    needed = {line[12:] for commit in fixes for line in trailers(lab, commit) if line.startswith("Depends-on")}
    assert needed == {"one"}
    clone = tmp_path / "clone"
    lab.git("clone", "-q", str(lab.top), str(clone))
    lab.git("config", "uploadpack.allowAnySHA1InWant", "true", cwd=clone)
    for one in done.accepted[1:6]:
        lab.git("checkout", "-q", "--detach", done.commit, cwd=clone)
        lab.git("revert", "--no-edit", one.commit, cwd=clone)
        reverted = lab.git("rev-parse", "HEAD", cwd=clone).strip()
        assert gate.failing(reverted, clone) == {f"test_calc.py::test_{one.name}"}
