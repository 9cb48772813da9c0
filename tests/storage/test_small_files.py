"""Small files of protocols: what else may be in their place is a typed error, and never hangs."""

import os

import pyarrow.fs as pa_fs
import pytest

from secure_bloom import read_table, write_table
from secure_bloom.errors import FormatError
from secure_bloom.storage import small_files
from secure_bloom.storage.small_files import MAX_MARKER, parse_json, read_small
from secure_bloom.storage.visibility import GENERATION, STAGING, visible_files

LOCAL = pa_fs.LocalFileSystem()


def _plant(path, kind):
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "link to itself":
        path.symlink_to(path)
    else:
        path.touch()
        os.truncate(path, 7 << 30)


@pytest.mark.parametrize("kind", ["pipe", "folder", "device", "link to itself", "sparse"])
def test_only_regular_files_of_bounded_size_are_read(tmp_path, kind):
    _plant(tmp_path / "marker", kind)
    for filesystem, path in ((LOCAL, str(tmp_path / "marker")),
                             (pa_fs.SubTreeFileSystem(str(tmp_path), LOCAL), "marker")):
        with pytest.raises(FormatError, match=r"not a regular file|at most 65,536") as error:
            read_small(filesystem, path, MAX_MARKER)
        assert error.value.file == path


@pytest.mark.parametrize("kind", ["pipe", "device", "sparse"])
def test_a_listing_reads_no_generation_that_is_something_else(tmp_path, kind):
    (tmp_path / STAGING).mkdir()
    _plant(tmp_path / STAGING / GENERATION, kind)
    with pytest.raises(FormatError):
        visible_files(LOCAL, str(tmp_path))


def test_json_of_too_many_values_is_not_parsed(monkeypatch):
    monkeypatch.setattr(small_files.json, "loads", lambda data: pytest.fail("parsed"))
    for data in (b"[" + b"[]," * 2_000_000 + b"[]]", b"[" + b"1," * 8_000_001 + b"1]"):
        with pytest.raises(FormatError, match="too many values"):
            parse_json(data)


@pytest.mark.parametrize("place", ["_index", "_index/x", ".hidden"])
def test_links_in_hidden_folders_disturb_no_reader(tmp_path, place):
    import pyarrow as pa
    write_table(pa.table({"a": [1]}), tmp_path / "a.parquet")
    link = tmp_path / place
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(tmp_path)
    assert read_table(tmp_path, index="off").num_rows == 1
