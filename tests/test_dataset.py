"""Folders as one table."""

import pyarrow as pa

import secure_bloom


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
