"""Writing what users have: data frames, query results and streams of other libraries."""

import datetime
import decimal
import io
import os

import arro3.core
import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import secure_bloom
from secure_bloom import EncryptionConfiguration, ParquetFile, ParquetWriter, write_table
from secure_bloom.arrow import row_groups
from secure_bloom.arrow.streams import open_stream
from secure_bloom.errors import ColumnError
from tests.support import kms

ROWS = {"id": [1, 2, 3, None], "name": ["Ada", "", None, "Ü" * 50],
        "born": [datetime.date(1815, 12, 10), None, datetime.date(1, 1, 1),
                 datetime.date(9999, 12, 31)],
        "at": [datetime.datetime(2024, 1, 31, 1, 2, 3, 4), None] * 2,
        "pay": [decimal.Decimal("1.50"), None, decimal.Decimal("-2.25"), decimal.Decimal("0.00")],
        "ok": [True, False, None, True], "raw": [b"", b"\0\1", None, b"x" * 40],
        "tags": [["a", None], [], None, ["b" * 30]],
        "home": [{"city": "Rome", "no": 1}, {"city": None, "no": None}, {"city": "", "no": 2},
                 {"city": "O" * 20, "no": 3}]}
TYPES = pa.schema([
    ("id", pa.int64()), ("name", pa.string()), ("born", pa.date32()), ("at", pa.timestamp("us")),
    ("pay", pa.decimal128(10, 2)), ("ok", pa.bool_()), ("raw", pa.binary()),
    ("tags", pa.list_(pa.string())), ("home", pa.struct([("city", pa.string()),
                                                         ("no", pa.int64())]))])
TABLE = pa.table(ROWS, schema=TYPES)
ENCRYPTED = EncryptionConfiguration("mf", {"mc": ["name"]})

SOURCES = {
    "table": lambda: TABLE,
    "batch": lambda: TABLE.to_batches()[0],
    "reader": lambda: TABLE.to_reader(max_chunksize=3),
    "polars frame": lambda: pl.from_arrow(TABLE),
    "polars lazy frame": lambda: pl.from_arrow(TABLE).lazy(),
    "duckdb relation": lambda: duckdb.from_arrow(TABLE),
    "arro3 table": lambda: arro3.core.Table.from_arrow(TABLE),
    "arro3 batch": lambda: arro3.core.RecordBatch.from_arrow(TABLE.to_batches()[0]),
    "arro3 reader": lambda: arro3.core.RecordBatchReader.from_arrow(TABLE.to_reader()),
    "struct array": lambda: TABLE.to_struct_array().combine_chunks(),
    "data set": lambda: ds.dataset(TABLE),
    "scanner": lambda: ds.dataset(TABLE).scanner(),
    "list of batches": lambda: TABLE.to_batches(max_chunksize=1),
    "generator of batches": lambda: (batch for batch in TABLE.to_batches(max_chunksize=3)),
    "generator of arro3 batches": lambda: map(arro3.core.RecordBatch.from_arrow,
                                              TABLE.to_batches(max_chunksize=3)),
    "generator of tables": lambda: (TABLE.slice(i, 1) for i in range(4)),
    "generator of frames": lambda: pl.from_arrow(TABLE).iter_slices(3),
}


def written(data, **options) -> ParquetFile:
    sink = io.BytesIO()
    write_table(data, sink, **options)
    return ParquetFile(sink.getvalue(), kms())


def row_group_sizes(file: ParquetFile) -> list[int]:
    return [file.footer.row_group_num_rows(i) for i in range(file.num_row_groups)]


def is_polars(name: str) -> bool:
    return "polars" in name or name == "generator of frames"


# --- what is accepted ----------------------------------------------------------------------------

@pytest.mark.parametrize("name", SOURCES)
def test_rows_and_types_are_read_back(name):
    file = written(SOURCES[name](), bloom_filters=True, encryption=ENCRYPTED, keys=kms())
    found = file.read()
    assert found.to_pydict() == ROWS
    expected = pl.from_arrow(TABLE).to_arrow().schema if is_polars(name) else TYPES
    assert found.schema.types == expected.types
    assert file.might_contain("name", ["Ada", "Bob"]).tolist() == [[True, False]]
    assert [info.column for info in file.bloom_filters if info.encrypted] == ["name"]
    assert "view" not in str(found.schema)


@pytest.mark.parametrize("name", SOURCES)
def test_an_open_writer_takes_the_same(name):
    sink = io.BytesIO()
    with ParquetWriter(sink, TYPES) as writer:
        writer.write(SOURCES[name]())
        writer.write_table(SOURCES[name](), row_group_size=3)
    file = ParquetFile(sink.getvalue())
    assert row_group_sizes(file) == [4, 3, 1]
    assert file.read().equals(pa.concat_tables([TABLE, TABLE]))


def test_categories_of_polars_stay_dictionaries():
    frame = pl.DataFrame({"c": pl.Series(["x", "y", None, "x"], dtype=pl.Categorical),
                          "e": pl.Series(["b", "a", "b", None], dtype=pl.Enum(["a", "b"])),
                          "l": pl.Series([["x"], [], None, ["y"]],
                                         dtype=pl.List(pl.Categorical))})
    found = written(frame, bloom_filters=["c", "e"])
    text = "dictionary<values=string, indices=uint"  # pyarrow reads no large text here
    assert [str(t).count(text) for t in found.read().schema.types] == [1, 1, 1]
    assert found.read().to_pydict() == frame.to_arrow().to_pydict()
    assert found.might_contain("c", ["x", "z"]).tolist() == [[True, False]]
    assert pl.from_arrow(found.read()).equals(frame)


def test_views_in_list_views_are_written_as_they_are():
    views = pa.array(["x", "y" * 20], pa.string_view())
    lists = pa.ListViewArray.from_arrays([0, 1], [1, 1], views)
    assert written([pa.record_batch({"a": lists})]).read()["a"].to_pylist() == [["x"], ["y" * 20]]


@pytest.mark.parametrize("index", [
    None, pd.Index([7, 5, 6], name="key"), pd.Index(["x", "y", "z"]), pd.RangeIndex(10, 16, 2),
    pd.MultiIndex.from_tuples([(1, "a"), (1, "b"), (2, "a")], names=["n", "t"]),
    pd.to_datetime(["2024-01-01", "2024-01-02", "2024-01-05"]).tz_localize("Europe/Rome")],
    ids=["default", "named", "unnamed", "range", "multi", "times"])
def test_a_data_frame_of_pandas_comes_back_with_its_index(index):
    frame = pd.DataFrame({
        "a": [1, 2, 3], "b": ["x", None, "z"], "c": pd.Categorical(["u", "v", "u"]),
        "d": pd.array([1, None, 3], dtype="Int64"),
        "e": pd.to_datetime(["2024-01-31", None, "1999-12-31"]).tz_localize("UTC")}, index=index)
    file = written(frame, bloom_filters=["a", "b"], encryption=EncryptionConfiguration(
        "mf", {"mc": ["b"]}), keys=kms())
    pd.testing.assert_frame_equal(file.read().to_pandas(), frame)
    assert file.schema.equals(pa.Table.from_pandas(frame).schema, check_metadata=True)


def test_chunks_of_a_csv_file_that_pandas_reads(tmp_path):
    (tmp_path / "a.csv").write_text("a,b\n1,x\n2,y\n3,\n4,\n5,z\n")
    chunks = pd.read_csv(tmp_path / "a.csv", chunksize=2)
    assert written(chunks).read().to_pydict() == {"a": [1, 2, 3, 4, 5],
                                                  "b": ["x", "y", None, None, "z"]}


def test_a_lazy_frame_of_an_older_polars_must_be_collected():
    class LazyFrame:
        def collect(self): ...
        def collect_schema(self): ...

    with pytest.raises(TypeError, match=r"pass \.collect\(\)"):
        written(LazyFrame())


@pytest.mark.parametrize("data, message", [
    (5, "not int"), (None, "not NoneType"), ("people.parquet", "not str"), (b"PAR1", "not bytes"),
    ({"a": [1]}, r"pass pyarrow\.table"), ([{"a": 1}], r"from_pylist"),
    ([1], "item 0 of this list"), (pl.DataFrame, "not type"),
    (pl.Series("s", [1]), "Series is a single column"),
    (pa.chunked_array([[1]]), "ChunkedArray is a single column"),
    (pa.array([1]), "Int64Array is a single column"), (pd.Series([1]), "item 0 of this Series"),
], ids=str)
def test_what_else_is_passed_is_refused(tmp_path, data, message):
    with pytest.raises(TypeError, match=message):
        write_table(data, tmp_path / "x")
    with pytest.raises(TypeError, match=message):
        secure_bloom.write_dataset(data, tmp_path / "t")
    assert os.listdir(tmp_path) == []
    sink = io.BytesIO()
    with ParquetWriter(sink, TYPES) as writer:
        with pytest.raises(TypeError, match=message):
            writer.write(data)
        writer.write(TABLE)  # nothing was written, so the writer goes on
    assert ParquetFile(sink.getvalue()).read().equals(TABLE)


def test_no_batches_have_no_schema(tmp_path):
    with pytest.raises(ValueError, match=r"RecordBatchReader\.from_batches\(schema, batches\)"):
        write_table(iter([]), tmp_path / "x")
    assert os.listdir(tmp_path) == []
    for empty in (pa.RecordBatchReader.from_batches(TYPES, []), pl.from_arrow(TABLE[:0]).lazy(),
                  [TABLE[:0]], ds.dataset(TABLE[:0])):
        found = written(empty).read()
        assert found.num_rows == 0 and found.schema.names == TYPES.names


# --- batches that differ -------------------------------------------------------------------------

def test_later_batches_take_the_types_of_the_first():
    texts = [pa.string(), pa.large_string(), pa.string_view(), pa.null()]
    batches = [pa.record_batch({"a": pa.array([None], t) if t == pa.null()
                                else pa.array([str(t)], t)}) for t in texts]
    found = written(batches).read()
    assert found["a"].type == pa.string()
    assert found["a"].to_pylist() == ["string", "large_string", "string_view", None]


@pytest.mark.parametrize("second, message", [
    ({"b": [1]}, "batch 1 has the columns b, not a"),
    ({"a": [1], "b": [1]}, "batch 1 has the columns a, b, not a"),
    ({"a": [1.5]}, "column a: batch 1 has the type double, not int64"),
    ({"a": pa.array([1], pa.int8())}, "column a: batch 1 has the type int8, not int64"),
])
def test_a_batch_with_other_columns_or_types_leaves_no_file(tmp_path, second, message):
    batches = [pa.record_batch({"a": [1]}), pa.record_batch(second)]
    with pytest.raises(ColumnError, match=message):
        write_table(iter(batches), tmp_path / "x", row_group_size=1)
    assert os.listdir(tmp_path) == []


def test_a_null_in_a_column_without_nulls_is_refused(tmp_path):
    strict = pa.schema([pa.field("a", pa.int64(), nullable=False)])
    batches = [pa.record_batch({"a": [1]}, schema=strict), pa.record_batch({"a": [None]},
               schema=pa.schema([("a", pa.int64())]))]
    with pytest.raises(ColumnError, match="batch 1 cannot be converted"):
        write_table(batches, tmp_path / "x")
    assert os.listdir(tmp_path) == []


def numbered(i):
    return [f"{i * 10 + j}" for j in range(10)]


def halves(i):
    return pa.DictionaryArray.from_arrays(
        pa.array([0, 1, 2], pa.int8()), pa.array(np.array([1.5 + i, np.nan, i], np.float16)))


@pytest.mark.parametrize("make", [
    lambda i: pa.array(numbered(i)).dictionary_encode().cast(pa.dictionary(pa.int8(), pa.string())),
    lambda i: pa.StructArray.from_arrays([pa.array(numbered(i)).dictionary_encode()], ["f"]),
    lambda i: pa.ListArray.from_arrays([0, 5, 10], pa.array(numbered(i)).dictionary_encode()),
    halves, lambda i: pa.ListArray.from_arrays([0, 1, 3], halves(i))],
    ids=["text", "struct", "list", "half floats", "list of half floats"])
def test_every_small_batch_may_have_its_own_dictionary(tmp_path, make):
    batches = [pa.record_batch({"a": make(i)}) for i in range(40)]
    expected = [value for batch in batches for value in batch["a"].to_pylist()]
    assert str(written(iter(batches)).read()["a"].to_pylist()) == str(expected)  # NaN is not NaN
    secure_bloom.write_dataset(iter(batches), tmp_path)
    assert str(secure_bloom.read_table(tmp_path)["a"].to_pylist()) == str(expected)


# --- memory --------------------------------------------------------------------------------------

def batches(number: int, seen: list[int] | None = None):
    """Yield batches of 1,000 rows and about 1 MB, and note the memory that Arrow has in use."""
    before = pa.total_allocated_bytes()
    for i in range(number):
        yield pa.record_batch({"n": pa.array(range(1000 * i, 1000 * i + 1000)),
                               "text": pa.array([f"{i:1000}"] * 1000)})
        if seen is not None:
            seen.append(pa.total_allocated_bytes() - before)


@pytest.mark.slow
def test_a_stream_fills_row_groups_and_is_not_collected(tmp_path):
    seen = []
    write_table(batches(200, seen), tmp_path / "x", row_group_size=4500)
    file = ParquetFile(tmp_path / "x")
    assert row_group_sizes(file) == [4500] * 44 + [2000]
    assert file.read(["n"])["n"].to_pylist() == list(range(200_000))
    assert len(seen) == 200 and max(seen) < 7e6


def test_a_row_group_of_a_stream_ends_at_a_number_of_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(row_groups, "MAX_WAITING_BYTES", 5_000_000)
    seen = []
    write_table(batches(100, seen), tmp_path / "x")
    assert row_group_sizes(ParquetFile(tmp_path / "x")) == [5000] * 20
    assert max(seen) < 7e6


def test_a_large_frame_is_converted_part_by_part(tmp_path):
    frame = pl.DataFrame({"text": [f"{i:100}" for i in range(300_000)]}).rechunk()
    assert len(list(pa.RecordBatchReader.from_stream(frame))) == 1
    before, most = pa.total_allocated_bytes(), 0
    for batch in open_stream(frame):
        most = max(most, pa.total_allocated_bytes() - before)
        assert batch.schema.types == [pa.large_string()]
    assert 5e6 < most < 15e6 < frame.estimated_size()


def test_small_batches_share_row_groups():
    rows = (pa.record_batch({"a": [i]}) for i in range(1000))
    assert row_group_sizes(written(rows, row_group_size=400)) == [400, 400, 200]


# --- faults --------------------------------------------------------------------------------------

class OutOfLuckError(Exception):
    """Raised by a stream."""


def failing(after: int):
    yield from batches(after)
    raise OutOfLuckError("no more")


def test_a_stream_that_fails_leaves_no_file(tmp_path):
    with pytest.raises(OutOfLuckError):
        write_table(failing(5), tmp_path / "x", row_group_size=1000)
    with pytest.raises(OutOfLuckError):
        write_table(failing(0), tmp_path / "x")
    with pytest.raises(OutOfLuckError):
        reader = pa.RecordBatchReader.from_batches(next(batches(1)).schema, failing(5))
        write_table(reader, tmp_path / "x", row_group_size=1000)
    with pytest.raises(Exception, match="boom"):
        write_table(duckdb.sql("SELECT CASE WHEN i = 300000 THEN error('boom') ELSE i END AS a "
                               "FROM range(400000) t(i)"), tmp_path / "x", row_group_size=1000)
    with pytest.raises(Exception, match="boom"):
        def fail(_):
            raise OutOfLuckError("boom")
        write_table(pl.LazyFrame({"a": [1, 2]}).map_batches(fail, schema={"a": pl.Int64}),
                    tmp_path / "x")
    assert os.listdir(tmp_path) == []


def test_a_stream_that_fails_closes_the_writer_and_keeps_the_previous_file(tmp_path):
    write_table(TABLE, tmp_path / "x")
    writer = ParquetWriter(tmp_path / "x", next(batches(1)).schema)
    with pytest.raises(OutOfLuckError):
        writer.write(failing(5), row_group_size=1000)
    with pytest.raises(ValueError, match="closed"):
        writer.write(batches(1))
    writer.close()
    assert ParquetFile(tmp_path / "x").read().equals(TABLE) and os.listdir(tmp_path) == ["x"]


class Full(io.RawIOBase):
    """A disk on which no row group fits."""

    def writable(self):
        return True

    def write(self, data):
        if len(data) > 100:
            raise OSError(28, "no space left on device")
        return len(data)


def test_a_disk_that_is_full_stops_the_stream():
    taken = []
    with pytest.raises(OSError, match="no space left"):
        write_table(batches(50, taken), Full(), row_group_size=1000)
    assert len(taken) < 5


def test_a_query_is_closed_after_an_error():
    closed = []

    def rows():
        try:
            yield from batches(50)
        finally:
            closed.append(True)

    class Query:
        def __arrow_c_stream__(self, requested_schema=None):
            reader = pa.RecordBatchReader.from_batches(next(batches(1)).schema, rows())
            return reader.__arrow_c_stream__(requested_schema)

    with pytest.raises(OSError, match="no space left") as caught:
        write_table(Query(), Full(), row_group_size=1000)
    assert closed == [True], caught
