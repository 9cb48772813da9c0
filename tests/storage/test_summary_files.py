"""Summary files of tables."""

import pyarrow.fs as pa_fs
import pytest

from secure_bloom.storage.summary_files import summaries_among, summaries_of


@pytest.mark.parametrize(("path", "found"), [
    ("", ["_metadata", "x=1/y=2/_metadata"]), ("a.parquet", ["_metadata"]),
    ("x=1", ["x=1/y=2/_metadata", "_metadata"]),
    ("x=1/y=2/b.parquet", ["x=1/y=2/_metadata", "_metadata"])])
def test_summaries_are_found_up_to_the_table(tmp_path, path, found):
    (tmp_path / "t" / "x=1" / "y=2").mkdir(parents=True)
    for name in ("_metadata", "x=1/y=2/_metadata", "a.parquet", "x=1/y=2/b.parquet"):
        (tmp_path / "t" / name).touch()
    (tmp_path / "_metadata").touch()
    root = f"{tmp_path}/t"
    assert summaries_of(pa_fs.LocalFileSystem(), f"{root}/{path}".rstrip("/")) \
        == [f"{root}/{one}" for one in found]
    below = pa_fs.SubTreeFileSystem(root, pa_fs.LocalFileSystem())
    if path:
        assert summaries_of(below, path) == found


def test_summaries_in_hidden_folders_are_of_others():
    assert summaries_among(["b/_common_metadata", "_x/_metadata", "a/b.parquet", "_metadata",
                            ".y/_metadata"]) == ["_metadata", "b/_common_metadata"]
