"""The columns ``file`` and ``row_group`` in filters."""

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import secure_bloom

file, row_group = pc.field("file"), pc.field("row_group")


@pytest.fixture
def source(tmp_path):
    """Two files with three row groups of one row each."""
    for name in (0, 1):
        with secure_bloom.ParquetWriter(tmp_path / f"{name}.parquet",
                                        pa.schema([("x", pa.int64())]), bloom_filters=["x"]) as new:
            for number in range(3):
                new.write_table(pa.table({"x": [3 * name + number]}))
    return secure_bloom.dataset(tmp_path, with_source=True)


def found(source, condition) -> tuple[list[int], int]:
    """Return the rows, and how many row groups were read."""
    rows = source.to_table(["x"], filter=condition)["x"].to_pylist()
    assert source.explain(condition).row_groups.read == source.report.row_groups.read
    return rows, source.report.row_groups.read


def test_filters_on_the_row_group(source):
    assert found(source, row_group == 1) == ([1, 4], 2)
    assert found(source, [("row_group", ">=", 1)]) == ([1, 2, 4, 5], 4)
    assert found(source, (row_group == 1) | (pc.field("x") == 5)) == ([1, 4, 5], 6)
    assert found(source, (row_group == 2) & (pc.field("x") > 3)) == ([5], 1)
    assert found(source, row_group.is_null()) == ([], 0)


def test_filters_on_the_file(source):
    first, second = source.files
    assert found(source, file == second) == ([3, 4, 5], 3)
    assert found(source, [("file", "in", [first, "other"]), ("x", ">", 0)]) == ([1, 2], 2)
    assert found(source, (file == first) & (row_group == 2)) == ([2], 1)
    assert source.report.row_groups.partitions == 5


def test_a_column_of_the_files_may_have_the_same_name(tmp_path):
    rows = pa.table({"row_group": [7, 8], "file": ["a", "b"]})
    secure_bloom.write_table(rows, tmp_path / "a.parquet", bloom_filters=True)
    source = secure_bloom.dataset(tmp_path)
    assert source.to_table(filter=row_group == 8).to_pylist() == [{"row_group": 8, "file": "b"}]
    assert source.to_table(filter=file == "a").to_pylist() == [{"row_group": 7, "file": "a"}]
