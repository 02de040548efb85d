"""Tests of the page of a test run: it depends only on the artifact folder, and no content of the folder can break it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.cli import main as cli
from muster.errors import MusterError, NotFound, Refused
from muster.report import ansi, page, player, sanitize, site

from . import builder
from .builder import CAPTURE, LIST, START, Run, command, record


def index_of(report: Path) -> dict[str, Any]:
    html = report.read_text(encoding="utf-8")
    data = html.partition('<script type="application/json" id="index">')[2].partition("</script>")[0]
    found: dict[str, Any] = json.loads(data)
    return found


def part_of(report: Path, key: str = "0001") -> dict[str, Any]:
    text = (report.parent / "parts" / f"{key}.js").read_text(encoding="utf-8")
    call = "recording" if "-" in key else "part"
    start = f'muster.{call}("{key}",'
    assert text.startswith(start) and text.endswith(");\n")
    found: dict[str, Any] = json.loads(text[len(start) : -3])
    return found


def plain(runs: list[Any]) -> str:
    return "".join(run if isinstance(run, str) else run[0] for run in runs)


def shown(part: dict[str, Any]) -> str:
    return "".join(plain(row["r"]) if "r" in row else row.get("x", "") for row in part["rows"])


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


# ---- content ----


def test_blocks_are_in_tutorial_order_with_their_tests(tmp_path: Path) -> None:
    run = Run(tmp_path / "e2e")
    run.test("test_list", blocks=[LIST])
    run.test("test_list_unhappy", "failed", blocks=[LIST, CAPTURE], message="E  boom")
    index = index_of(page.build(run.folder))
    assert index["sections"] == ["Beginning", "1. First steps", "2. Making agents"]
    assert [(block["s"], block.get("k", "")) for block in index["blocks"]] == [
        (0, "prose"),
        (1, ""),
        (1, ""),
        (2, ""),
        (2, ""),
    ]
    assert "# not a comment of the block" in index["blocks"][3]["x"]
    cited = {test["n"]: [index["blocks"][at]["x"] for at in test["b"]] for test in index["tests"]}
    assert cited == {"test_list": [LIST], "test_list_unhappy": [LIST, CAPTURE]}


def test_paragraphs_of_a_banner_or_heading_are_not_part_of_the_title(tmp_path: Path) -> None:
    rule = "# " + "=" * 60
    tutorial = (
        f"#!/bin/bash\n\n{rule}\n# 1. First steps\n{rule}\n# All that you need on the first day,\n# and no more.\n\n# A.\nlist\n\n"
        "# --- Looking ---\n# Nothing here changes anything.\n\n# B.\nshow\n\n"
        "# Agents on other\n# machines. They need an account there.\n#\n# And ssh.\n\n# C.\ngo\n"
    )
    run = Run(tmp_path / "e2e", tutorial=tutorial)
    index = index_of(page.build(run.folder))
    assert index["sections"][:2] == ["1. First steps", "Looking"]
    assert index["sections"][2].startswith("Looking › Agents on other machines.")
    shown = [(block["s"], block.get("k", ""), block["x"]) for block in index["blocks"]]
    assert shown == [
        (0, "prose", "# All that you need on the first day,\n# and no more."),
        (0, "", "# A.\nlist"),
        (1, "prose", "# Nothing here changes anything."),
        (1, "", "# B.\nshow"),
        (2, "prose", "#\n# And ssh."),
        (2, "", "# C.\ngo"),
    ]


@pytest.mark.parametrize(
    "end",
    [
        "\x1b[?1049l",
        "\x1b[24;1H\x1b[K\x1b[?1l\x1b>\x1b[?1049l\x1b[?25h\r\n",
        "\x1b[H\x1b[2J\x1b[?47l",
        "\x1b[H\x1b[J",
        "\x1b[3J\x1bc",
    ],
)
def test_the_last_frame_of_a_full_screen_program_is_not_blank(tmp_path: Path, end: str) -> None:
    run = Run(tmp_path / "e2e")
    folder = run.test("test_less", recordings=["less"])
    start = [[0.1, "o", "\x1b[?1049h\x1b[H\x1b[2Jfirst"], [1.0, "o", "\x1b[Hsecond"], [2.0, "m", "here"]]
    middle = len(end) // 2
    record(folder, "less", [*start, [3.0, "o", end[:middle]], [3.1, "o", end[middle:]]], "second\n")
    record(folder, "shell", [*start, [3.0, "o", f"{end}$ exit"]], "$ exit\n")
    report = page.build(run.folder)
    less, shell = (one["part"] for one in part_of(report)["recordings"])
    shown = "".join(event[2] for event in part_of(report, less)["cast"][1:] if event[1] == "o")
    assert shown.startswith("\x1b[?1049h\x1b[H\x1b[2Jfirst\x1b[Hsecond") and not shown.rstrip().endswith(end.rstrip())
    assert not any(blank in shown[30:] for blank in ("1049l", "[2J", "\x1b[J", "47l", "\x1bc"))
    assert [2.0, "m", "here"] in part_of(report, less)["cast"]
    assert f"{end}$ exit" in "".join(event[2] for event in part_of(report, shell)["cast"][1:]), "text behind it stays"


def test_a_cited_block_that_is_not_in_the_tutorial_is_stale(tmp_path: Path) -> None:
    run = Run(tmp_path / "e2e")
    run.test("test_old", blocks=["# Old.\nmuster old"])
    index = index_of(page.build(run.folder))
    assert index["sections"][-1] == "Not in the tutorial"
    assert index["blocks"][-1]["k"] == "stale"


def test_without_a_tutorial_the_page_lists_the_cited_blocks(tmp_path: Path) -> None:
    run = Run(tmp_path / "e2e", tutorial=None)
    run.test("test_list", blocks=[LIST])
    index = index_of(page.build(run.folder))
    assert (index["sections"], [block["x"] for block in index["blocks"]]) == (["Cited blocks"], [LIST])


def test_a_transcript_keeps_its_kinds_times_and_codes(tmp_path: Path) -> None:
    run = Run(tmp_path / "e2e")
    rows = command(1, 0.5, "muster list", out="a\nb\n", err="oh\n", code=3, comment="Who?")
    rows += [{"t": 2, "kind": "exit", "n": 2, "code": 137, "duration": 5.0, "timeout": 5}, {"t": 3, "kind": "zebra"}]
    run.test("test_list", rows=rows, blocks=[LIST])
    part = part_of(page.build(run.folder))
    assert [row["k"] for row in part["rows"]] == ["comment", "command", "out", "err", "exit", "exit", "other"]
    assert part["rows"][2] == {"k": "out", "t": 0.6, "r": ["a\nb\n"], "n": 1}
    assert (part["rows"][4]["c"], part["rows"][5]["w"]) == (3, 5.0)
    assert index_of(run.folder / "report" / "index.html")["tests"][0]["c"] == "muster list"


def test_a_recording_has_its_own_file_and_its_start_time(tmp_path: Path) -> None:
    run = Run(tmp_path / "e2e")
    rows = [{"t": 2.5, "kind": "recording", "recording": "connect-hello", "text": "muster connect hello"}]
    folder = run.test("test_connect", rows=rows, recordings=["connect-hello", "by-clock"])
    record(folder, "connect-hello", [[0.1, "o", "hi"], [4.0, "o", "\r\nthere"]], "hi\nthere\n")
    record(folder, "by-clock", [[0.0, "o", "x"]], started=START + 4)
    report = page.build(run.folder)
    first, second = part_of(report)["recordings"]
    assert (first["begin"], first["length"], plain(first["screen"]), first["part"]) == (2.5, 4.0, "hi\nthere", "0001-1")
    assert second["begin"] == 3.0
    assert part_of(report, "0001-1")["cast"][1:] == [[0.1, "o", "hi"], [4.0, "o", "\r\nthere"]]


def test_the_empty_middle_of_a_screen_is_collapsed(tmp_path: Path) -> None:
    run = Run(tmp_path / "e2e")
    record(run.test("test_a"), "tall", [[0, "o", "x"]], "\n" * 5 + "  top\n" + "   \n" * 40 + "status\n\n")
    assert plain(part_of(page.build(run.folder))["recordings"][0]["screen"]) == "  top\n\n\nstatus"


def test_a_failed_recording_is_shown_as_an_error(tmp_path: Path) -> None:
    run = Run(tmp_path / "e2e")
    folder = run.test("test_connect", recordings=["lost", "bad"])
    record(folder, "bad", [[0, "o", "x"]], error="the agent did not answer")
    errors = {one["name"]: one["error"] for one in part_of(page.build(run.folder))["recordings"]}
    assert errors == {"lost": "the recording is missing or cannot be read", "bad": "the agent did not answer"}


def test_a_test_of_an_earlier_run_is_marked(tmp_path: Path) -> None:
    run = Run(tmp_path / "e2e")
    run.test("test_a", started=START - 500)
    run.test("test_b")
    assert [test.get("e") for test in index_of(page.build(run.folder))["tests"]] == [1, None]


# ---- reproducible output ----


def test_the_same_folder_gives_the_same_bytes(tmp_path: Path) -> None:
    run = Run(tmp_path / "e2e")
    for count in range(5):
        folder = run.test(f"test_{count}", rows=command(1, 0, f"echo {count}", out="\x1b[31mred\n"), blocks=[LIST])
        record(folder, "one", [[0, "o", "x"]], "x")
    page.build(run.folder, tmp_path / "one")
    page.build(run.folder, tmp_path / "two")
    assert everything(tmp_path / "one") == everything(tmp_path / "two")
    again = everything(tmp_path / "one")
    page.build(run.folder, tmp_path / "one")
    assert everything(tmp_path / "one") == again


def test_files_of_removed_tests_are_deleted_and_foreign_files_stay(tmp_path: Path) -> None:
    run = Run(tmp_path / "e2e")
    run.test("test_a")
    gone = run.test("test_b")
    report = page.build(run.folder)
    (report.parent / "parts" / "mine.js").write_text("mine")
    (report.parent / "notes.txt").write_text("mine")
    for path in gone.rglob("*"):
        if path.is_file():
            path.unlink()
    (gone / "recordings").rmdir()
    gone.rmdir()
    page.build(run.folder)
    assert sorted(os.listdir(report.parent / "parts")) == ["0001.js", "mine.js"]
    assert (report.parent / "notes.txt").read_text() == "mine"


def test_a_folder_that_is_not_a_report_is_never_written_to(tmp_path: Path) -> None:
    run = Run(tmp_path / "e2e")
    own = tmp_path / "own"
    own.mkdir()
    (own / "index.html").write_text("mine")
    with pytest.raises(Refused):
        page.build(run.folder, own)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(Refused):
        page.build(run.folder, tmp_path / "file")
    assert everything(own) == {"index.html": b"mine"}


@pytest.mark.parametrize("name", ["", "parts", "player"])
def test_a_page_is_not_written_through_a_symlinked_folder(tmp_path: Path, name: str) -> None:
    run = Run(tmp_path / "e2e")
    run.test("test_a")
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "report.json").write_text(json.dumps(site.MARKER))
    (victim / "0009.js").write_text("mine")
    if name:
        (run.folder / "report").mkdir()
        (run.folder / "report" / "report.json").write_text(json.dumps(site.MARKER))
    (run.folder / "report" / name if name else run.folder / "report").symlink_to(victim)
    before = everything(victim)
    with pytest.raises(Refused):
        page.build(run.folder)
    assert everything(victim) == before


def test_a_symlink_in_place_of_a_file_is_replaced_and_not_followed(tmp_path: Path) -> None:
    run = Run(tmp_path / "e2e")
    run.test("test_a")
    report = page.build(run.folder)
    victim = tmp_path / "victim"
    victim.write_text("mine")
    for name in ("index.html", ".index.html.new"):
        (report.parent / name).unlink(missing_ok=True)
        (report.parent / name).symlink_to(victim)
    page.build(run.folder)
    assert victim.read_text() == "mine" and not report.is_symlink()


# ---- size ----


def test_the_index_of_a_thousand_tests_is_below_a_megabyte(tmp_path: Path) -> None:
    tutorial = "".join(
        f"# Block {n}: {'say a few words about it ' * 6}\nmuster verb-{n} --flag\n\n" for n in range(400)
    )
    run = Run(tmp_path / "e2e", tutorial=tutorial)
    for n in range(1000):
        block = f"# Block {n % 400}: {'say a few words about it ' * 6}".rstrip() + f"\nmuster verb-{n % 400} --flag"
        run.test(
            f"test_something_with_a_rather_long_name_{n}", rows=command(1, 0, "muster list " * 200), blocks=[block]
        )
    report = page.build(run.folder)
    index = index_of(report)
    assert report.stat().st_size < 1_000_000
    assert len(index["tests"]) == 1000 and len(index["blocks"]) == 400
    assert all(test["b"] for test in index["tests"])


def test_too_much_output_is_cut_in_the_middle_with_a_note(tmp_path: Path) -> None:
    run = Run(tmp_path / "e2e")
    folder = run.test("test_loud")
    with open(folder / "transcript.jsonl", "a", encoding="utf-8") as file:
        for n in range(60_000):
            row = {"t": n / 1000, "kind": "out", "n": 1, "text": f"line {n} {'x' * 100}\n"}
            file.write(json.dumps(row) + "\n")
    report = page.build(run.folder)
    part = part_of(report)
    text = shown(part)
    assert "line 0 " in text and "line 59999 " in text and "line 30000 " not in text
    assert part["cut"]["chars"] > 4_000_000 and 0 < part["cut"]["at"] < len(part["rows"])
    assert (report.parent / "parts" / "0001.js").stat().st_size < 2_500_000
    assert (run.folder / part["path"]).is_file()


@pytest.mark.parametrize("text", ["x" * 50_000_000, "\x1b[31m" * 10_000_000, "\r" * 50_000_000, "\n" * 5_000_000])
def test_a_line_of_fifty_megabytes_is_cut(tmp_path: Path, text: str) -> None:
    run = Run(tmp_path / "e2e")
    run.test("test_loud", rows=[*command(1, 0, "yes", out=""), {"t": 1, "kind": "out", "n": 1, "text": text}])
    report = page.build(run.folder)
    assert (report.parent / "parts" / "0001.js").stat().st_size < 4_000_000
    assert part_of(report)["rows"][0]["x"] == "yes"


def test_a_long_recording_is_cut_with_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sanitize, "MAX_RECORDING", 10_000)
    run = Run(tmp_path / "e2e")
    record(run.test("test_a"), "long", [[n / 10, "o", "y" * 100] for n in range(1000)])
    cast = part_of(page.build(run.folder), "0001-1")["cast"]
    assert len(cast) < 100 and cast[-1][1:] == ["m", "the recording was cut here because it is too long for the page"]


# ---- untrusted input ----

NASTY = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\u2028\u2029\x1b]0;title\x07\x1b[2J\x1b[31mred\x1b[0m"


def test_no_text_is_interpreted_as_html(tmp_path: Path) -> None:
    run = Run(tmp_path / "e2e", tutorial=f"# {NASTY}\necho '{NASTY}'\n", args=[NASTY])
    rows = [*command(1, 0, NASTY, out=NASTY, err=NASTY, comment=NASTY), {"t": 1, "kind": NASTY, "text": NASTY}]
    folder = run.test(NASTY, "failed", rows=rows, blocks=[NASTY], message=NASTY, leaks=[NASTY], kept=NASTY)
    record(folder, "one", [[0, "o", NASTY]], NASTY, error=NASTY)
    report = page.build(run.folder)
    for name, data in everything(report.parent).items():
        if name.startswith("player/"):
            continue
        text = data.decode("utf-8")
        assert "<script>alert" not in text and "<img" not in text, name
        assert "\u2028" not in text and "\u2029" not in text, name
    assert report.read_text(encoding="utf-8").count("<script") == 2
    [out] = [row for row in part_of(report)["rows"] if row["k"] == "out"]
    assert out["r"][-1] == ["red", 0, 1, -1]
    assert "\x1b" not in json.dumps(out, ensure_ascii=False)


def test_the_page_refers_to_no_external_url(tmp_path: Path) -> None:
    run = Run(tmp_path / "e2e")
    run.test("test_a", blocks=[LIST])
    for name, data in everything(page.build(run.folder).parent).items():
        if not name.startswith("player/"):
            assert b"://" not in data.replace(b"file://", b""), name


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"[1, 2]",
        b"{",
        b"null",
        b"\xff\xfe\x00",
        b"[" * 100_000,
        b'{"outcome": "passed"}',
        b'{"outcome": ["x"], "blocks": {"a": 1}, "nodeid": 7, "duration": "long", "started": NaN, "line": 1e999}',
        b'{"outcome": "passed", "name": "\\ud800", "blocks": ["\\ud800", 3, null], "leaks": [[]], "recordings": [{}, "../x"]}',
        b'{"outcome": "passed", "duration": -5, "started": 1e300, "line": ' + b"9" * 5000 + b"}",
        b'{"outcome": "broken"}',
    ],
)
def test_a_malformed_test_json_is_shown_as_broken_beside_the_other_tests(tmp_path: Path, content: bytes) -> None:
    run = Run(tmp_path / "e2e")
    run.test("test_a", blocks=[LIST])
    broken = run.test("test_b", rows=command(1, 0, "echo hi"))
    (broken / "test.json").write_bytes(content)
    (run.folder / "run.json").write_bytes(content)
    made = page.make(run.folder)
    index = index_of(made.path)
    assert made.tests == len(index["tests"]) == 2
    assert made.outcomes.get("broken", 0) + made.outcomes["passed"] == 2
    assert any("echo hi" in test.get("c", "") for test in index["tests"])


def test_malformed_lines_of_a_transcript_are_counted(tmp_path: Path) -> None:
    run = Run(tmp_path / "e2e")
    folder = run.test("test_a", rows=command(1, 0, "echo hi", out="hi\n"))
    with open(folder / "transcript.jsonl", "ab") as file:
        file.write(
            b'[]\n7\n{"kind": 3}\n{"t": "x", "kind": "out", "text": 4}\n{"t": 1e999, "kind": "exit", "code": "x"}\n'
        )
        file.write(b'{"t": 1, "kind": "out", "n": 1, "text": "\xff\xfe bytes"}\n{"t": 2, "kind": "ou')
    part = part_of(page.build(run.folder))
    assert part["broken"] == 5
    assert "\ufffd\ufffd bytes" in shown(part)


def test_nothing_outside_the_folder_is_read(tmp_path: Path) -> None:
    run = Run(tmp_path / "e2e")
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "s.txt").write_text("SECRET")
    (secret / "s.cast").write_text('{"version": 2, "width": 80, "height": 24}\n[0, "o", "SECRET"]\n')
    (secret / "s.json").write_text('{"command": "SECRET"}')
    (secret / "test.json").write_text('{"outcome": "passed", "name": "SECRET"}')
    names = ["../../../../secret/s", str(secret / "s"), "link", "..", ".", "", "a/b", "a\0b"]
    rows = [{"t": 0, "kind": "recording", "recording": name, "text": "x"} for name in names]
    folder = run.test("test_a", rows=rows, recordings=names)
    for end in ("txt", "cast", "json"):
        (folder / "recordings" / f"link.{end}").symlink_to(secret / f"s.{end}")
    (run.folder / "tests" / "linked").symlink_to(secret)
    other = run.test("test_b")
    (other / "transcript.jsonl").unlink()
    (other / "transcript.jsonl").symlink_to(secret / "s.cast")
    (other / "recordings").rmdir()
    (other / "recordings").symlink_to(secret)
    (run.folder / "tutorial.sh").unlink()
    (run.folder / "tutorial.sh").symlink_to(secret / "s.txt")
    report = page.build(run.folder)
    assert all(b"SECRET" not in data for data in everything(report.parent).values())
    assert all("error" in one for one in part_of(report)["recordings"])


def test_a_fifo_or_folder_in_place_of_a_file_does_not_block_the_build(tmp_path: Path) -> None:
    run = Run(tmp_path / "e2e")
    folder = run.test("test_a")
    (folder / "transcript.jsonl").unlink()
    os.mkfifo(folder / "transcript.jsonl")
    (folder / "recordings" / "x.cast").mkdir()
    os.mkfifo(folder / "recordings" / "y.cast")
    (run.folder / "tests" / "stray.txt").write_text("not a folder")
    os.mkdir(os.fsencode(run.folder / "tests") + b"/\xff\xfe")
    assert page.make(run.folder).outcomes == {"broken": 2, "passed": 1}


def test_sizes_and_times_of_a_malformed_recording_are_corrected(tmp_path: Path) -> None:
    run = Run(tmp_path / "e2e")
    events: list[list[Any]] = [
        [5, "o", "a"],
        [1, "o", "b"],
        [6, "r", "99999x99999"],
        [7, "r", "axb"],
        ["x", "o", "c"],
        [8, "zz", "d"],
        [9, "o", 4],
        [1e999, "o", "e"],
    ]
    record(run.test("test_a"), "big", events, cols=10**9, rows=-4)
    cast = part_of(page.build(run.folder), "0001-1")["cast"]
    assert cast == [
        {"version": 2, "width": 400, "height": 24},
        [5.0, "o", "a"],
        [5.0, "o", "b"],
        [6.0, "r", "400x150"],
        [7.0, "r", "80x24"],
    ]


def test_transcript_txt_is_used_if_there_is_no_jsonl(tmp_path: Path) -> None:
    run = Run(tmp_path / "e2e")
    folder = run.test("test_a")
    (folder / "transcript.jsonl").unlink()
    (folder / "transcript.txt").write_text("$ muster list\nnobody\n? 0\n")
    assert shown(part_of(page.build(run.folder))) == "$ muster list\nnobody\n? 0\n"


@settings(max_examples=int(os.environ.get("MUSTER_EXAMPLES", "60")), deadline=None)
@given(st.lists(st.text(alphabet=st.sampled_from("ab\x1b[]m;:0148;23K\r\b\t\x07\x9b\x9d\ud800\u202e#"), max_size=40)))
def test_any_line_becomes_text_and_numeric_styles(lines: list[str]) -> None:
    style = ansi.PLAIN
    for line in lines:
        runs, style = ansi.line(line + "\n", style)
        assert not set("".join(text for text, _ in runs)) & set("\x1b\r\b\x07\x9b\x9d\u202e\ud800")
        for _, (flags, front, back) in runs:
            assert 0 <= flags < 64 and -2 <= front < 256 + (1 << 24) and -2 <= back < 256 + (1 << 24)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("\x1b[1;31mred\x1b[0m plain\n", [("red", (1, 1, -1)), (" plain\n", (0, -1, -1))]),
        (
            "\x1b[38;5;208mo\x1b[48;2;1;2;3mb\x1b[39;49mx",
            [("o", (0, 208, -1)), ("b", (0, 208, 66307)), ("x", (0, -1, -1))],
        ),
        ("\x1b[38:2::255:0:0mr", [("r", (0, 256 + 0xFF0000, -1))]),
        ("\x1b[92;104mb", [("b", (0, 10, 12))]),
        ("\x1b[7mi\x1b[27mn", [("i", (0, -2, -2)), ("n", (0, -1, -1))]),
        ("\x1b[7;32mi", [("i", (0, -2, 2))]),
        ("10%\r50%\r100%\n", [("100%\n", (0, -1, -1))]),
        ("loading...\r\x1b[Kdone\n", [("done\n", (0, -1, -1))]),
        ("long text\rab\n", [("abng text\n", (0, -1, -1))]),
        ("windows\r\n", [("windows\n", (0, -1, -1))]),
        ("ab\bc\n", [("ac\n", (0, -1, -1))]),
        ("\x1b]8;;http://x\x07link\x1b]8;;\x07\x1b[5A\x1b(B\n", [("link\n", (0, -1, -1))]),
    ],
)
def test_colours_and_overwritten_text(line: str, expected: list[tuple[str, tuple[int, int, int]]]) -> None:
    runs, _ = ansi.line(line)
    assert [(text, tuple(ansi.as_drawn(style))) for text, style in runs] == expected


def test_a_colour_continues_in_the_next_line_of_the_same_stream(tmp_path: Path) -> None:
    run = Run(tmp_path / "e2e")
    run.test("test_a", rows=command(1, 0, "x", out="\x1b[32mone\ntwo\n", err="plain\n"))
    rows = part_of(page.build(run.folder))["rows"]
    assert [row["r"] for row in rows if "r" in row] == [[["one\ntwo\n", 0, 2, -1]], ["plain\n"]]


# ---- the player ----


def test_the_page_is_built_without_the_player(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(player, "PACKAGE", "no_such_package_anywhere")
    run = Run(tmp_path / "e2e")
    record(run.test("test_a"), "one", [[0, "o", "x"]], "x")
    report = page.build(run.folder)
    index = index_of(report)
    assert (index["player"], index["install"]) == (False, "pip install 'muster-agents[report]'")
    assert not (report.parent / "player").exists()


def test_the_player_is_found_without_importing_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "some_player"
    (package / "assets").mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('loaded')")
    for name in player.FILES:
        (package / "assets" / name).write_text(name)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(player, "PACKAGE", "some_player")
    assert set(player.find()) == set(player.FILES)
    (package / "assets" / player.FILES[0]).unlink()
    assert player.find() == {}


# ---- on the command line ----


def test_report_prints_the_path_and_the_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(tmp_path / "e2e")
    run.test("test_a")
    run.test("test_b", "failed")
    assert cli.main(["report", str(run.folder), "--out", str(tmp_path / "out"), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    page_ = str(tmp_path / "out" / "index.html")
    assert said == {"report": page_, "run": None, "tests": 2, "outcomes": {"failed": 1, "passed": 1}}
    assert cli.main(["report", str(run.folder)]) == 0
    told = capsys.readouterr()
    assert told.out == f"{run.folder / 'report' / 'index.html'}\n"
    assert "2 tests: 1 failed, 1 passed" in told.err


def test_report_of_something_else_than_an_artifact_folder_fails_with_its_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["report"]) == 3
    assert "pytest --e2e-artifacts .muster/e2e" in capsys.readouterr().err
    (tmp_path / "other").mkdir()
    assert cli.main(["report", "other"]) == 3
    with pytest.raises(NotFound):
        page.build(tmp_path / "other")
    run = builder.Run(tmp_path / "new")
    (run.folder / "format.json").write_text('{"format": "muster-e2e", "version": 2}')
    assert cli.main(["report", "new"]) == 1
    with pytest.raises(MusterError, match="newer"):
        page.build(run.folder)
    assert not (run.folder / "report").exists() and os.listdir(tmp_path / "other") == []
