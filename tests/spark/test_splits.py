"""Splitting files among tasks, and partition columns, without Spark."""

import datetime
import io
from decimal import Decimal
from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as T

from secure_bloom import ParquetFile
from secure_bloom.errors import UnsupportedError
from secure_bloom.pruning.predicates import Predicate
from secure_bloom.spark.reading.splits import DataFile, FileRange, divide
from secure_bloom.spark.schema.partitions import (
    infer_type,
    may_hold,
    partition_scalar,
)
from secure_bloom.storage.hive_partitioning import partition_values
from tests.support import examples

MIB = 2**20


def sizes(tasks):
    return [[part.end - part.start for part in task] for task in tasks]


def test_large_files_are_cut_and_small_ones_packed():
    files = [DataFile("a", 300 * MIB), *(DataFile(f"b{i}", MIB) for i in range(100))]
    tasks = divide(files, 128 * MIB, 4 * MIB, 1)
    assert sizes(tasks)[:2] == [[128 * MIB], [128 * MIB]]
    assert sizes(tasks)[2][:2] == [44 * MIB, MIB]
    assert len(tasks) == 7  # 17 of them fit into a task with the rest of a, 25 into one task
    assert sorted(part.file.path for task in tasks for part in task) == sorted(
        ["a"] * 3 + [f"b{i}" for i in range(100)])


def test_many_small_files_are_few_tasks():
    assert len(divide([DataFile(str(i), 1000) for i in range(10_000)], 128 * MIB, 4 * MIB, 2)) < 400


def test_few_bytes_still_occupy_all_cores():
    assert len(divide([DataFile("a", 64 * MIB)], 128 * MIB, 4 * MIB, 4)) >= 4
    assert len(divide([DataFile("a", 4 * MIB)], 128 * MIB, 4 * MIB, 4)) == 1


@given(st.lists(st.integers(0, 1000), max_size=8), st.integers(1, 500), st.integers(0, 300),
       st.integers(1, 20))
@examples(100)
def test_every_byte_belongs_to_one_range(lengths, split, cost, tasks):
    files = [DataFile(str(number), size) for number, size in enumerate(lengths)]
    ranges = [part for task in divide(files, split, cost, tasks) for part in task]
    for file in files:
        parts = sorted((part.start, part.end) for part in ranges if part.file is file)
        assert parts[0][0] == 0 and parts[-1][1] == file.size
        assert all(one[1] == other[0] for one, other in pairwise(parts))


@pytest.mark.parametrize("width", [1, 100, 1000, 10**9])
def test_every_row_group_belongs_to_one_range(width):
    sink = io.BytesIO()
    pq.write_table(pa.table({"a": range(500)}), sink, row_group_size=50)
    footer = ParquetFile(sink.getvalue()).footer
    for size in (len(sink.getvalue()), 400):  # the file may have grown since it was listed
        file = DataFile("a", size)
        found = [group for start in range(0, size, width)
                 for group in FileRange(file, start, min(start + width, size)).row_groups(footer)]
        assert sorted(found) == list(range(10))


def test_values_in_paths():
    assert partition_values("/a.parquet") == {}
    assert partition_values("/x=1/b%20c=d%2Fe%3D/f=g/a=b.parquet") == {
        "x": "1", "b c": "d/e=", "f": "g"}
    assert partition_values("/x=__HIVE_DEFAULT_PARTITION__/y=/a") == {"x": None, "y": ""}
    assert partition_values("/x=%5F_HIVE_DEFAULT_PARTITION__/a") == {"x": None}
    assert partition_values("/x=1/y=2/x=3/a") == {"x": "1", "y": "2"}  # as in pyarrow


@pytest.mark.parametrize(("values", "expected"), [
    (["1", "-5", "+7", "007"], T.IntegerType()), (["1", None], T.IntegerType()),
    (["-2147483648"], T.IntegerType()), (["2147483648", "1"], T.LongType()),
    (["9" * 25], T.DecimalType(25, 0)), (["1", "1.5", "1e3"], T.DoubleType()),
    (["2024-02-29", None], T.DateType()), (["2023-02-29"], T.StringType()),
    (["2024-02-29", "1"], T.StringType()), (["1", "a"], T.StringType()), ([None], T.StringType()),
    (["2024-1-1"], T.StringType()), (["2024-01-01 00:00:00"], T.StringType()),
    (["true"], T.StringType()), (["1_0"], T.StringType()), (["٣"], T.StringType()),
])
def test_inferred_types(values, expected):
    assert infer_type(values) == expected


@pytest.mark.parametrize(("text", "type_", "value"), [
    ("+7", pa.int32(), 7), ("007", pa.int64(), 7), ("a", pa.string(), "a"), ("", pa.string(), ""),
    ("2024-01-31", pa.date32(), datetime.date(2024, 1, 31)), (None, pa.int32(), None),
    ("1.5", pa.decimal128(5, 2), Decimal("1.50")), ("true", pa.bool_(), True),
    ("2024-01-31 01:02:03", pa.timestamp("us"), datetime.datetime(2024, 1, 31, 1, 2, 3)),
])
def test_typed_values(text, type_, value):
    assert partition_scalar(text, type_).as_py() == value


@pytest.mark.parametrize(("text", "type_"), [
    ("a", pa.int32()), ("2147483648", pa.int32()), ("", pa.date32()),
    ("2024-01-31 01:02:03", pa.timestamp("us", "UTC")),
])
def test_values_of_another_type(text, type_):
    with pytest.raises(UnsupportedError, match="specify another type"):
        partition_scalar(text, type_)


@pytest.mark.parametrize(("op", "asked", "own", "expected"), [
    ("==", 5, 5, True), ("==", 5, 6, False), ("<=>", 5, 5, True), ("<=>", None, None, True),
    ("<=>", None, 5, False), ("<=>", 5, None, False), ("==", 5, None, False),
    ("in", [1, 2], 2, True), ("in", [1, 2], 3, False), ("in", [], 3, False),
    ("in", [1], None, False), ("is null", None, None, True), ("is null", None, 1, False),
    ("is not null", None, None, False), ("is not null", None, 1, True), ("<", 5, 5, False),
    ("<=", 5, 5, True), (">", 5, 6, True), (">=", 5, 4, False), ("!=", 5, 5, True),
    (">", "\ue000", "\U0001f600", True), ("==", "5", 5, True), ("==", 5.0, 6.0, True),
    ("<", datetime.date(2024, 1, 2), datetime.date(2024, 1, 1), True),
    (">", datetime.date(2024, 1, 2), datetime.date(2024, 1, 1), False),
])
def test_predicates_on_partitions(op, asked, own, expected):
    assert may_hold(Predicate("p", op, asked), pa.scalar(own)) is expected
