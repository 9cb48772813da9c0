"""Listings of local folders say what pyarrow's do, and more."""

import os

import pyarrow.fs as pa_fs
import pytest

from secure_bloom.errors import FormatError, UnsupportedError
from secure_bloom.index import stamps
from secure_bloom.index.table import Table
from secure_bloom.storage import local_listing
from secure_bloom.storage.local_listing import file_names, walk
from secure_bloom.storage.visibility import files_below

LOCAL = pa_fs.LocalFileSystem()


class OfArrow(pa_fs.LocalFileSystem):
    """Lists as pyarrow does."""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "day=1" / "empty").mkdir(parents=True)
    for number, name in enumerate(("a.parquet", "day=1/größe 1.parquet", "day=1/.hidden")):
        (tmp_path / name).write_bytes(b"x" * number)
        os.utime(tmp_path / name, ns=(0, 1_700_000_000_123_456_000 - 1000 * number))
    os.utime(tmp_path / "a.parquet", ns=(0, -1_500_000_000))
    (tmp_path / "link").symlink_to("a.parquet")
    (tmp_path / "folder").symlink_to("day=1")
    (tmp_path / "nowhere").symlink_to("missing")
    (tmp_path / "itself").symlink_to("itself")
    os.mkfifo(tmp_path / "pipe")
    return tmp_path


def test_a_listing_has_what_that_of_pyarrow_has(folder):
    def listed(filesystem):
        return sorted((info.path, info.base_name, info.size, info.mtime_ns, info.mtime, info.type,
                       info.is_file) for info in walk(filesystem, str(folder), False))

    assert listed(LOCAL) == listed(OfArrow()) and len(listed(LOCAL)) == 6
    for filesystem in (LOCAL, OfArrow()):
        missing = str(folder / "missing")
        assert list(walk(filesystem, missing, True)) == []
        with pytest.raises(FileNotFoundError):
            list(walk(filesystem, missing, False))
        for name in ("a.parquet", "itself"):
            with pytest.raises(FormatError, match="not a folder"):
                list(walk(filesystem, str(folder / name), False))


def test_names_of_files_are_those_of_pyarrow(folder):
    names = file_names(LOCAL, str(folder))
    assert sorted(names) == sorted(file_names(OfArrow(), str(folder))) == ["a.parquet", "link"]
    for filesystem in (LOCAL, OfArrow()):
        assert file_names(filesystem, str(folder / "missing")) == []
        with pytest.raises(FormatError, match="not a folder"):
            file_names(filesystem, str(folder / "a.parquet"))


def test_a_disk_that_fails_is_not_a_link_that_leads_nowhere():
    with pytest.raises(OSError, match="Bad file descriptor"):
        local_listing._is_true(lambda: os.fstat(-1))


def test_a_listing_looks_no_file_up_again(folder, monkeypatch):
    expected = Table(OfArrow(), str(folder)).listing()
    monkeypatch.setattr(stamps, "_looked_up", lambda *arguments: pytest.fail("looked up"))
    found = Table(LOCAL, str(folder)).listing()
    assert found == expected and all(stamp.tag for stamp in found.values())


@pytest.mark.slow
@pytest.mark.parametrize("hidden", ["", "_x"])
@pytest.mark.parametrize("filesystem", [LOCAL, OfArrow()])
def test_links_that_fan_out_are_refused(tmp_path, filesystem, hidden):
    """24 folders, each with two links to the next one: 2**24 paths, without a circle."""
    for number in range(25):
        (tmp_path / hidden / f"{number}").mkdir(parents=True)
    for number in range(24):
        for name in "ab":
            (tmp_path / hidden / f"{number}" / name).symlink_to(f"../{number + 1}")
    with pytest.raises(UnsupportedError, match="more than 1,000 links lead to folders"):
        list(walk(filesystem, str(tmp_path), False))


def test_what_links_make_appear_again_is_limited(tmp_path, monkeypatch):
    monkeypatch.setattr(local_listing, "_MAX_ENTRIES_AGAIN", 100)
    (tmp_path / "_x" / "y").mkdir(parents=True)
    for number in range(200):
        (tmp_path / "_x" / "y" / f"{number}").touch()
    (tmp_path / "_once").symlink_to("_x")
    assert len(list(walk(LOCAL, str(tmp_path), False))) == 400
    (tmp_path / "_twice").symlink_to("_x")
    with pytest.raises(UnsupportedError, match="appear again and again"):
        list(walk(LOCAL, str(tmp_path), False))


@pytest.mark.parametrize("base", ["", "t"])
def test_a_part_of_a_filesystem_is_listed_alike(folder, base):
    where = str(folder.parent if base else folder)
    filesystem = pa_fs.SubTreeFileSystem(where, LOCAL)
    name = folder.name if base else ""
    expected = files_below(pa_fs.SubTreeFileSystem(where, OfArrow()), name)
    found = files_below(filesystem, name)
    assert {name: info.path for name, info in found.items()} \
        == {name: info.path for name, info in expected.items()} and len(found) == 6
    assert all(filesystem.get_file_info(info.path).size == info.size for info in found.values())
    (folder / "circle").symlink_to(folder)
    with pytest.raises(UnsupportedError, match="links form a circle"):
        files_below(filesystem, name)


@pytest.mark.slow
def test_many_links_to_different_folders_are_followed(tmp_path):
    for number in range(1100):
        (tmp_path / "days" / f"{number}").mkdir(parents=True)
        (tmp_path / "days" / f"{number}" / "x").touch()
    (tmp_path / "lake").mkdir()
    for number in range(1100):
        (tmp_path / "lake" / f"day={number}").symlink_to(f"../days/{number}")
    (tmp_path / "lake" / "first").symlink_to("day=0")
    assert len(list(walk(LOCAL, str(tmp_path / "lake"), False))) == 1101
