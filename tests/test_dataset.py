"""Folders as one table."""

import os

import pyarrow as pa
import pyarrow.fs as pa_fs

import secure_bloom
from secure_bloom.folder import data_files


def test_partition_values_come_from_the_path_also_when_filtered(tmp_path):
    for number in (1, 3):
        folder = tmp_path / f"x={number}"
        folder.mkdir()
        secure_bloom.write_table(pa.table({"x": [2, 2], "y": [number, 5]}), folder / "a.parquet",
                                 bloom_filters={"x": True, "y": True})
    everything = secure_bloom.read_table(tmp_path)
    assert sorted(everything["x"].to_pylist()) == [1, 1, 3, 3]
    one = secure_bloom.read_table(tmp_path, filters=[("x", "==", 1)])
    assert sorted(one["y"].to_pylist()) == [1, 5]
    assert secure_bloom.read_table(tmp_path, filters=[["y", "==", 3]])["x"].to_pylist() == [3]


def test_what_begins_with_a_dot_is_hidden(tmp_path):
    with secure_bloom.ParquetWriter(tmp_path / "x=1.parquet", pa.schema([("y", pa.int64())]),
                                    bloom_filters={}) as writer:
        writer.write_table(pa.table({"y": [1]}))
        assert os.listdir(tmp_path) != []  # a temporary file, whose name contains the =
        assert data_files(pa_fs.LocalFileSystem(), str(tmp_path)) == []
    for folder in (".x=1", "_x=1", "_x"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.parquet").touch()
    found = data_files(pa_fs.LocalFileSystem(), str(tmp_path))
    assert found == [f"{tmp_path}/_x=1/a.parquet", f"{tmp_path}/x=1.parquet"]


def test_a_slash_at_the_end_of_a_path(tmp_path):
    (tmp_path / "x=2").mkdir()
    secure_bloom.write_table(pa.table({"y": [1]}), tmp_path / "x=2" / "a.parquet",
                             bloom_filters={})
    for filesystem in (None, pa_fs.LocalFileSystem()):
        table = secure_bloom.read_table(f"{tmp_path}/", filesystem=filesystem)
        assert table.to_pydict() == {"y": [1], "x": [2]}
