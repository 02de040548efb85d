"""work: what is written into the user's folders."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from muster import work
from muster.errors import Refused


def test_a_file_is_not_written_through_a_link_that_leads_out_of_the_target(tmp_path: Path) -> None:
    target, outside = tmp_path / "target", tmp_path / "target-2"
    target.mkdir()
    outside.mkdir()
    (target / "sub").symlink_to(outside)
    with pytest.raises(Refused, match="leads out of"):
        work._write(str(target / "sub" / "file"), io.BytesIO(b"x"), str(target))
    assert list(outside.iterdir()) == []


def test_a_file_is_written_into_folders_that_are_made_and_links_that_stay_inside(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "sub").symlink_to("real")
    for path in ("top", "a/b/file", "sub/file"):
        work._write(str(tmp_path / path), io.BytesIO(b"x"), str(tmp_path))
        assert (tmp_path / path).read_bytes() == b"x"
    assert (tmp_path / "real" / "file").is_file()
