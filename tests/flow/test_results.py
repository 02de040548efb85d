"""What an agent says of its task is read with suspicion, and what it leaves is unpacked with more."""

from __future__ import annotations

import io
import json
import os
import subprocess
import tarfile
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from muster.flow.run import artifacts, results
from muster.flow.run.results import Flaw, Result, read, words_back

SCHEMA = Path(__file__).parent.parent.parent / "docs" / "schemas" / "result.json"
FITS = Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8")))
LEAST = {"version": 1, "outcome": "ok", "summary": "done"}
NAMES = [
    "a",
    "a/b.txt",
    "-rf",
    "...",
    "..a/b..",
    ".hidden",
    "ü 漢 😀",
    "a b",
    "$(touch x)",
    "a\\b",
    "x" * 255,
    "/".join(["y" * 200] * 5),
    "\u00a0",
]
BAD_NAMES = {
    "": "is empty",
    "/": "absolute",
    "/etc/passwd": "absolute",
    "..": "..",
    "../x": "..",
    "a/..": "..",
    "a/../b": "..",
    ".": "empty part or a .",
    "./a": "empty part or a .",
    "a/./b": "empty part or a .",
    "a//b": "empty part or a .",
    "a/": "empty part or a .",
    "a\nb": "control",
    "a\0b": "control",
    "\x1b[31m": "control",
    "\x7f": "control",
    "\x9b1m": "control",
    "\ud800": "not UTF-8",
    "x" * 256: "too long",
    "/".join(["y" * 200] * 6): "too long",
}
GOOD: list[dict[str, Any]] = [
    LEAST,
    {**LEAST, "outcome": "blocked", "reason": "no key", "escalate": ["look"], "artifacts": ["a.txt"], "t": 1700000000},
    {**LEAST, "outcome": "failed", "t": 1.5, "reason": ""},
    {**LEAST, "version": 1.0},
    {**LEAST, "more": {"unknown": [1]}, "verified": True},
    {**LEAST, "summary": "x" * 65536},
    {**LEAST, "summary": '\0\x1b[2J<script>"\\\n\u2028 $(x)'},
    {**LEAST, "summary": "\ud800 half"},
    {**LEAST, "escalate": ["y" * 4096] * 20, "reason": "z" * 4096},
    {**LEAST, "artifacts": ["a"] * 100},
    *({**LEAST, "artifacts": [name]} for name in NAMES),
]
BAD: list[tuple[Any, str]] = [
    ([], "a list where a JSON object"),
    ("ok", "a text where"),
    (None, "null where"),
    ({}, "no version"),
    ({**LEAST, "version": 2}, "of version 2, and version 1"),
    ({**LEAST, "version": 1.5}, "the number 1.5 where 1"),
    ({**LEAST, "version": 0}, "the number 0 where 1"),
    ({**LEAST, "version": -1}, "where 1 should"),
    ({**LEAST, "version": True}, "true or false where 1"),
    ({**LEAST, "version": "1"}, "a text where 1"),
    ({**LEAST, "version": 10**4000}, "where 1"),
    ({"version": 1, "summary": "x"}, "there is no outcome"),
    ({**LEAST, "outcome": ["ok"]}, "outcome is a list"),
    ({**LEAST, "outcome": "OK"}, '"OK" is no outcome'),
    ({**LEAST, "outcome": "invalid"}, "is no outcome"),
    ({**LEAST, "outcome": "x\n\x1b[2J" * 1000}, '"x??[2Jx'),
    ({"version": 1, "outcome": "ok"}, "there is no summary"),
    ({**LEAST, "summary": 7}, "summary is the number 7"),
    ({**LEAST, "summary": ""}, "summary is empty"),
    ({**LEAST, "summary": " \n\t\r"}, "summary is empty"),
    ({**LEAST, "summary": "x" * 65537}, "longer than 65536 bytes"),
    ({**LEAST, "reason": None}, "reason is null"),
    ({**LEAST, "reason": "x" * 4097}, "reason is longer"),
    ({**LEAST, "escalate": "look"}, "escalate is a text"),
    ({**LEAST, "escalate": [1]}, "escalate is a list where"),
    ({**LEAST, "escalate": [""]}, "escalation is empty"),
    ({**LEAST, "escalate": ["x"] * 21}, "21 texts"),
    ({**LEAST, "escalate": ["x" * 4097]}, "escalation is longer"),
    ({**LEAST, "artifacts": {}}, "artifacts is an object"),
    ({**LEAST, "artifacts": [None]}, "artifacts is a list where"),
    ({**LEAST, "artifacts": ["a"] * 101}, "101 artifacts"),
    *(({**LEAST, "artifacts": ["fine", name]}, what) for name, what in BAD_NAMES.items()),
    ({**LEAST, "t": "now"}, "t is a text"),
    ({**LEAST, "t": -1}, "t is the number -1"),
    ({**LEAST, "t": 1e12}, "t is the number"),
    ({**LEAST, "t": 10**30}, "t is the number 1000"),
    ({**LEAST, "t": True}, "t is true or false"),
]


def told(document: Any) -> Result | Flaw:
    return read(json.dumps(document).encode())


@pytest.mark.parametrize("document", GOOD, ids=lambda one: repr(one)[:60])
def test_a_good_result_is_read_and_fits_the_schema(document: dict[str, Any]) -> None:
    found = told(document)
    assert isinstance(found, Result)
    assert (found.outcome, found.version) == (document["outcome"], 1)
    assert found.summary == document["summary"].replace("\ud800", "\ufffd")
    assert found.reason == document.get("reason", "") and found.t == document.get("t", 0)
    assert list(found.escalate) == document.get("escalate", [])
    assert list(found.artifacts) == document.get("artifacts", [])
    assert FITS.is_valid(document)
    json.dumps(found).encode()
    found.summary.encode()  # whatever was read can be written


@pytest.mark.parametrize(("document", "what"), BAD, ids=lambda one: repr(one)[:60])
def test_a_bad_result_is_refused_in_words_and_by_the_schema(document: Any, what: str) -> None:
    found = told(document)
    assert isinstance(found, Flaw) and what in found.what
    assert not FITS.is_valid(document)
    for text in (str(found), words_back(found)):
        assert found.what in text and text.isprintable() and len(text) < 600
    assert found.todo in words_back(found) and "submit --outcome ok|blocked|failed" in words_back(found)


@pytest.mark.parametrize(
    ("raw", "what"),
    [
        (b"", "empty"),
        (b" \n", "empty"),
        (b"{", "not a JSON"),
        (b'{"version":1}\n{"version":1}\n', "not a JSON"),
        (b"\xff\xfe{}", "not UTF-8"),
        (b'{"version":1,"outcome":"ok","summary":"\xff"}', "not UTF-8"),
        (b'{"version":1,"outcome":"ok","summary":"x","t":NaN}', "not a JSON"),
        (b'{"version":1,"outcome":"ok","summary":"x","t":-Infinity}', "not a JSON"),
        (b'{"version":1,"outcome":"ok","summary":"x","t":1e999}', "t is the number inf"),
        (b'{"version":' + b"9" * 5000 + b"}", "not a JSON"),
        (b"[" * 500_000, "not a JSON"),
        (b'{"a":' * 100_000, "not a JSON"),
        (b" " * (1 << 20) + b"{}", "larger than 1048576 bytes"),
    ],
    ids=lambda one: repr(one)[:40],
)
def test_what_is_no_document_is_told_as_that(raw: bytes, what: str) -> None:
    found = read(raw)
    assert isinstance(found, Flaw) and what in found.what


def test_lengths_are_in_bytes() -> None:
    assert isinstance(told({**LEAST, "summary": "ü" * 32768}), Result)
    assert told({**LEAST, "summary": "ü" * 32769}) == Flaw(
        "the summary is longer than 65536 bytes", "shorten it, or keep the rest in a file as an artifact"
    )
    assert isinstance(told({**LEAST, "artifacts": ["ü" * 127]}), Result)
    assert isinstance(told({**LEAST, "artifacts": ["ü" * 128]}), Flaw)


@pytest.mark.parametrize(
    ("word", "near"), [("OK", "ok"), ("block", "blocked"), (" failed ", "failed"), ("Fail", "failed")]
)
def test_the_nearest_outcome_is_named(word: str, near: str) -> None:
    found = told({**LEAST, "outcome": word})
    assert isinstance(found, Flaw) and found.todo == f"write {near} if that is what you mean"


ANY = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
NEARLY = st.fixed_dictionaries(
    {},
    optional={
        "version": st.just(1) | ANY,
        "outcome": st.sampled_from(["ok", "blocked", "failed", "Ok"]) | ANY,
        "summary": st.text(max_size=20) | ANY,
        "reason": st.text(max_size=5) | ANY,
        "escalate": st.lists(st.text(max_size=3), max_size=3) | ANY,
        "artifacts": st.lists(st.text("ab./\n\0ü", max_size=8), max_size=3) | ANY,
        "t": st.integers(0, 10**10) | ANY,
        "other": ANY,
    },
)


@settings(max_examples=int(os.environ.get("MUSTER_EXAMPLES", 300)), deadline=None)
@given(NEARLY)
def test_read_and_the_schema_agree(document: dict[str, Any]) -> None:
    assert isinstance(told(document), Result) == FITS.is_valid(document), told(document)


@given(
    st.binary(max_size=200) | st.text(max_size=100).map(lambda text: json.dumps({**LEAST, "outcome": text}).encode())
)
def test_whatever_is_there_it_is_a_result_or_a_flaw(raw: bytes) -> None:
    found = read(raw)
    assert isinstance(found, Result) or (found.what.isprintable() and len(found.what) < 300)


# Artifacts


def archive(*members: tuple[str, bytes] | tarfile.TarInfo, format: int = tarfile.GNU_FORMAT) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=format, encoding="utf-8", errors="surrogateescape") as tar:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                tar.addfile(member, io.BytesIO(b"x" * member.size))
            else:
                entry = tarfile.TarInfo(member[0])
                entry.size = len(member[1])
                tar.addfile(entry, io.BytesIO(member[1]))
    return file.getvalue()


def special(name: str, type: bytes, target: str = "", size: int = 0) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname, entry.size = type, target, size
    return entry


def files(folder: Path) -> dict[str, bytes]:
    assert not [path for path in folder.rglob("*") if path.is_symlink()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_plain_files_are_written_as_they_are(tmp_path: Path, format: int) -> None:
    content = {
        "a.txt": b"hello",
        "empty": b"",
        "-rf": b"1",
        "deep/" + "d" * 90 + "/ü 漢": b"\0" * 1024,
        "b c": b"x" * 513,
    }
    assert artifacts.unpack(archive(*content.items(), format=format), tmp_path / "into") == []
    assert files(tmp_path / "into") == content
    assert (tmp_path / "into" / "a.txt").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("format", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_long_names_are_kept(tmp_path: Path, format: int) -> None:
    name = "/".join(["n" * 250] * 4)
    assert artifacts.unpack(archive((f"./{name}", b"x"), ("short", b"y"), format=format), tmp_path) == []
    assert files(tmp_path) == {name: b"x", "short": b"y"}


@pytest.mark.parametrize("how", [["-cf", "-"], ["--format=pax", "-cf", "-"], ["--format=ustar", "-cf", "-"]])
def test_what_the_tar_of_a_host_writes_is_read_from_a_pipe(tmp_path: Path, how: list[str]) -> None:
    source = tmp_path / "source"
    (source / "sub" / "empty").mkdir(parents=True)
    (source / "sub" / "ü b").write_bytes(os.urandom(200_000))
    (source / "z").write_text("z")
    (source / "link").symlink_to("/etc/passwd")
    with subprocess.Popen(["tar", *how, "-C", str(source), "."], stdout=subprocess.PIPE) as tar:
        assert tar.stdout
        assert artifacts.unpack(tar.stdout, tmp_path / "into") == ["link: it is a symlink"]
    assert files(tmp_path / "into") == {"sub/ü b": (source / "sub" / "ü b").read_bytes(), "z": b"z"}


@pytest.mark.parametrize("name", [name for name in BAD_NAMES if name not in ("", "./a") and not name.endswith("/")])
@pytest.mark.parametrize("format", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_a_bad_name_is_refused_and_the_rest_is_kept(tmp_path: Path, name: str, format: int) -> None:
    if name == "\ud800" or (format == tarfile.PAX_FORMAT and name == "a\0b"):
        name = "\udcff"
    refused = artifacts.unpack(archive((name, b"evil"), ("good", b"1"), format=format), tmp_path / "a" / "into")
    if "\0" in name:  # a name ends there
        assert (refused, files(tmp_path)) == ([], {"a/into/a": b"evil", "a/into/good": b"1"})
        return
    (line,) = refused
    assert ": its name " in line and line.isprintable()
    assert files(tmp_path) == {"a/into/good": b"1"}


@pytest.mark.parametrize(
    ("type", "what"),
    [
        (tarfile.SYMTYPE, "a symlink"),
        (tarfile.LNKTYPE, "a hard link"),
        (tarfile.CHRTYPE, "a device"),
        (tarfile.BLKTYPE, "a device"),
        (tarfile.FIFOTYPE, "a pipe"),
        (tarfile.CONTTYPE, "no plain file"),
        (tarfile.GNUTYPE_SPARSE, "no plain file"),
        (b"V", "no plain file"),
    ],
)
def test_what_is_no_plain_file_is_refused(tmp_path: Path, type: bytes, what: str) -> None:
    given = archive(special("odd", type, "/etc/passwd"), ("odd/through", b"1"), ("good", b"2"))
    assert artifacts.unpack(given, tmp_path) == [f"odd: it is {what}"]
    assert files(tmp_path) == {"odd/through": b"1", "good": b"2"}


def test_a_sparse_file_that_calls_itself_plain_is_refused(tmp_path: Path) -> None:
    entry = special("s", tarfile.REGTYPE, size=512)
    entry.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": str(1 << 60)}
    assert artifacts.unpack(archive(entry, ("good", b"2"), format=tarfile.PAX_FORMAT), tmp_path) == [
        "s: it is no plain file"
    ]
    assert files(tmp_path) == {"good": b"2"}


def test_nothing_that_is_there_is_followed_or_replaced(tmp_path: Path) -> None:
    outside, into = tmp_path / "outside", tmp_path / "into"
    outside.mkdir()
    into.mkdir()
    (outside / "victim").write_text("v")
    (into / "folder").symlink_to(outside)
    (into / "file").symlink_to(outside / "victim")
    (into / "dangling").symlink_to(outside / "new")
    (into / "old").write_text("old")
    names = ("folder/x", "file", "dangling", "old", "old/below", "twice", "twice", "good")
    refused = artifacts.unpack(archive(*((name, b"evil") for name in names)), into)
    why = "a file of that name exists already"
    assert refused == [f"{name}: {why}" for name in ("folder/x", "file", "dangling", "old", "old/below", "twice")]
    assert files(outside) == {"victim": b"v"} and (into / "old").read_text() == "old"
    assert (into / "good").read_bytes() == (into / "twice").read_bytes() == b"evil"


def test_the_folder_itself_may_not_be_a_symlink(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "into").symlink_to(tmp_path / "real")
    with pytest.raises(OSError):
        artifacts.unpack(archive(("a", b"1")), tmp_path / "into")
    assert files(tmp_path / "real") == {}


def test_what_is_too_large_is_refused_and_the_rest_is_kept(tmp_path: Path) -> None:
    given = archive(("a", b"x" * 600), ("b", b"x" * 500), ("c", b"x" * 400))
    assert artifacts.unpack(given, tmp_path, 1000) == ["b: it is too large (500 bytes, 400 are left)"]
    assert files(tmp_path) == {"a": b"x" * 600, "c": b"x" * 400}


class Endless(io.RawIOBase):
    """An archive whose only file goes on for ever."""

    def __init__(self, head: bytes) -> None:
        self.head, self.sent = head, 0

    def read(self, size: int = -1) -> bytes:
        piece, self.head = self.head[:size], self.head[size:]
        self.sent += size
        return piece or b"x" * size


@pytest.mark.parametrize("size", [1 << 33, 1 << 62])
def test_an_endless_archive_has_an_end(tmp_path: Path, size: int) -> None:
    head = special("huge", tarfile.REGTYPE, size=size).tobuf(tarfile.GNU_FORMAT)
    stream = Endless(head)
    first, last = artifacts.unpack(stream, tmp_path, 1 << 20)  # type: ignore[arg-type]
    assert first == f"huge: it is too large ({size} bytes, {1 << 20} are left)" and last.startswith(
        "the archive is too large"
    )
    assert stream.sent <= 1024 and files(tmp_path) == {}


def test_a_thousand_files_are_kept_and_no_more(tmp_path: Path) -> None:
    refused = artifacts.unpack(archive(*((f"{n}", b"") for n in range(1005))), tmp_path)
    assert refused == ["the archive has more than 1000 files; the rest is left out"]
    assert len(files(tmp_path)) == 1000


def test_what_is_refused_is_bounded_too(tmp_path: Path) -> None:
    refused = artifacts.unpack(archive(*(special(f"l{n}", tarfile.SYMTYPE, "/") for n in range(500))), tmp_path)
    assert len(refused) == 101 and "too many refused" in refused[-1]
    refused = artifacts.unpack(archive(*(special("d", tarfile.DIRTYPE) for n in range(10_001))), tmp_path)
    assert refused == ["the archive has more than 10000 entries; the rest is left out"]


@pytest.mark.parametrize("type", [tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE])
def test_a_huge_header_takes_no_memory(tmp_path: Path, type: bytes) -> None:
    given = special("h", type, size=100 << 20).tobuf(tarfile.GNU_FORMAT) + b"9" * (100 << 20)
    tracemalloc.start()
    refused = artifacts.unpack(given, tmp_path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert refused == ["the archive has a header that is too large; the rest is left out"]
    assert peak < 1 << 20


@pytest.mark.parametrize(
    "records",
    [
        b"9" * 16000,
        b"0 path=x\n",
        b"-5 path=x\n",
        b"99 path=x\n",
        b"9 path=abc",
        b" =\n",
        b"12345678 a=b\n",
        b"\xb2 a=b\n",
    ],
)
def test_a_bad_extended_header_ends_the_archive(tmp_path: Path, records: bytes) -> None:
    head = special("h", tarfile.XHDTYPE, size=len(records)).tobuf(tarfile.USTAR_FORMAT)
    given = archive(("first", b"1"))[:1024] + head + records + bytes(-len(records) % 512) + archive(("second", b"2"))
    assert artifacts.unpack(given, tmp_path) == ["the archive is damaged; the rest is left out"]
    assert files(tmp_path) == {"first": b"1"}


def test_an_extended_header_tells_no_size_that_is_none(tmp_path: Path) -> None:
    for size in ("-512", "1e3", "9" * 30, ""):
        entry = special("s", tarfile.REGTYPE, size=0)
        entry.pax_headers = {"size": size}
        refused = artifacts.unpack(archive(entry, ("b", b""), format=tarfile.PAX_FORMAT), tmp_path)
        assert "too large" in refused[0] and files(tmp_path) == {}


def test_an_archive_that_is_cut_off_is_told_and_leaves_no_half_file(tmp_path: Path) -> None:
    whole = archive(("a", b"x" * 1000), ("b", b"y" * 1000))
    assert artifacts.unpack(b"", tmp_path / "none") == []
    for cut in range(1, 4 * 512 + 512 * 3, 100):
        into = tmp_path / str(cut)
        refused = artifacts.unpack(whole[:cut], into)
        assert all(content in (b"x" * 1000, b"y" * 1000) for content in files(into).values())
        assert len(files(into)) == (cut >= 1536 - 24 and cut >= 512 + 1000) + (cut >= 1536 + 512 + 1000)
        assert refused == ["the archive is cut off; the rest is left out"]


@pytest.mark.parametrize("given", [b"PK\x03\x04" * 500, b"\x1f\x8b" + b"\0" * 2000, os.urandom(5000)])
def test_what_is_no_archive_is_told(tmp_path: Path, given: bytes) -> None:
    assert artifacts.unpack(given, tmp_path) == ["the archive is damaged; the rest is left out"]


@settings(
    max_examples=int(os.environ.get("MUSTER_EXAMPLES", 200)),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(at=st.integers(0, 5119), byte=st.integers(0, 255), fix=st.booleans())
def test_whatever_is_changed_in_an_archive_nothing_gets_out(tmp_path: Path, at: int, byte: int, fix: bool) -> None:
    given = bytearray(archive(("a/b", b"x" * 20), ("n" * 150, b"y"), special("l", b"2", "/etc"), ("l/x", b"z")))
    given[at] = byte
    if fix:  # as one who makes it up would do
        head = at // 512 * 512
        block = given[head : head + 512]
        block[148:156] = b" " * 8
        given[head + 148 : head + 156] = b"%06o\0 " % sum(block)
    into = tmp_path / "jail" / os.urandom(8).hex()
    refused = artifacts.unpack(bytes(given), into, 4096)
    assert all(line.isprintable() for line in refused)
    assert [path.name for path in tmp_path.iterdir()] == ["jail"]
    assert sum(map(len, files(into).values())) <= 4096
    for path in into.rglob("*"):
        assert not results.name_flaw(str(path.relative_to(into)))
