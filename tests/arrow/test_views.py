"""Columns of string and binary views, which Arrow reads but cannot filter."""

import base64
import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from secure_bloom import ParquetFile, read_table, write_table
from secure_bloom.arrow.views import filtered, taken, without_views
from tests.cases import for_each

TEXT, RAW = pa.string_view(), pa.binary_view()
WORDS = ["a", "a text of more than twelve bytes", None, "", "ä"]


def column(arrow_type: pa.DataType, make=lambda word: word) -> pa.Array:
    return pa.array([None if word is None else make(word) for word in WORDS], arrow_type)


COLUMNS = {
    "text": column(TEXT),
    "raw": column(RAW),
    "struct": column(pa.struct([("x", TEXT), ("y", pa.int8())]), lambda word: {"x": word, "y": 1}),
    "list": column(pa.list_(TEXT), lambda word: [word, None]),
    "large list": column(pa.large_list(RAW), lambda word: [word]),
    "fixed list": column(pa.list_(TEXT, 1), lambda word: [word]),
    "map": column(pa.map_(TEXT, pa.list_(RAW)), lambda word: [(word, [word])]),
    "list view": column(pa.list_view(TEXT), lambda word: [word]),
    "large list view": column(pa.large_list_view(TEXT), lambda word: [word, word]),
    "view in view": column(pa.list_view(pa.struct([("x", pa.list_view(RAW))])),
                           lambda word: [{"x": [word]}]),
}
TABLE = pa.table({"row": range(len(WORDS)), **COLUMNS})


def written(table=TABLE, **options) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


@for_each("column", COLUMNS)
@for_each(("op", "value", "rows"), [
    ("in", [1, 3], [1, 3]), ("<", 3, [0, 1, 2]), ("==", 9, []), (">=", 0, [0, 1, 2, 3, 4])])
def test_views_are_read_where_another_column_is_filtered(column, op, value, rows):
    table = TABLE.select(["row", column])
    data = written(table)
    found = ParquetFile(data).read(filters=[("row", op, value)])
    found.validate(full=True)
    assert found.schema.equals(ParquetFile(data).schema)
    assert found.schema.field(column).type == pq.read_table(io.BytesIO(data))[column].type
    assert found.to_pylist() == [table.to_pylist()[row] for row in rows]


@pytest.mark.parametrize(("column", "op", "value", "rows"), [
    ("text", "==", "ä", [4]), ("text", "==", b"a", [0]), ("text", "in", ["", "a", None], [0, 3]),
    ("text", "not in", ["a"], [1, 3, 4]), ("text", "<", "b", [0, 1, 3]), ("text", ">", "b", [4]),
    ("text", "is null", None, [2]), ("text", "<=>", None, [2]), ("text", "!=", "", [0, 1, 4]),
    ("raw", "==", "ä", [4]), ("raw", "in", [b"a"], [0]), ("raw", ">=", b"a", [0, 1, 4]),
    ("struct.x", "==", "ä", [4]), ("struct.x", "is null", None, [2]),
    ("struct.x", "in", WORDS, [0, 1, 3, 4]),
])
def test_views_are_filtered(tmp_path, column, op, value, rows):
    table = TABLE.select(["row", "text", "raw", "struct"])
    path = tmp_path / "x.parquet"
    write_table(table, path, bloom_filters={"text": True, "raw": True, "struct.x": True})
    for found in (ParquetFile(path).read(filters=[(column, op, value)]),
                  read_table(tmp_path, filters=[(column, op, value)])):
        assert found.to_pylist() == [table.to_pylist()[row] for row in rows]
        assert found.schema.equals(table.schema)
    assert ParquetFile(path).read([], [(column, op, value)]).num_rows == len(rows)
    assert ParquetFile(path).read(["row"], [(column, op, value)])["row"].to_pylist() == rows


@pytest.mark.parametrize("table", [TABLE, TABLE.slice(0, 0), TABLE.schema.empty_table()])
def test_no_rows_are_taken(table):
    for indices in ([], pa.array([], pa.int64()), pa.chunked_array([], pa.int8())):
        assert taken(table, indices).equals(TABLE.schema.empty_table())
    with pytest.raises(IndexError):
        taken(table, [len(table)])


@pytest.mark.parametrize("said", [
    pa.dictionary(pa.int32(), TEXT), pa.run_end_encoded(pa.int32(), pa.string()),
    pa.dictionary(pa.int32(), pa.large_string()), TEXT, pa.large_string(), RAW], ids=str)
def test_types_that_pyarrow_does_not_write_but_finds_in_schemas_are_filtered(said):
    schema = base64.b64encode(pa.schema([("c", said)]).serialize())
    table = pa.table({"c": WORDS}).replace_schema_metadata({b"ARROW:schema": schema})
    file = ParquetFile(written(table, store_schema=False))
    for filters, row in (([("c", "==", "ä")], 4), ([("c", "in", ["ä", None])], 4),
                         ([("c", "is null", None)], 2), ([("c", "<", "a")], 3)):
        assert file.read(filters=filters).equals(file.read().slice(row, 1))


def test_a_few_rows_of_views_do_not_keep_the_memory_of_all():
    words = [f"{number:0100d}" for number in range(10_000)]
    batch = pa.record_batch({"c": pa.array(words, TEXT)})
    rows = pa.array([number == 5 for number in range(10_000)])
    found = filtered(batch, rows)
    assert found["c"].to_pylist() == [words[5]]
    assert found.get_total_buffer_size() < 10_000


def test_types_without_views_stay():
    for t in (pa.int8(), pa.string(), pa.dictionary(pa.int8(), pa.string()), pa.uuid(),
              pa.struct([pa.field("x", pa.list_(pa.int8()), nullable=False, metadata={"a": "b"})]),
              pa.map_(pa.string(), pa.int8(), keys_sorted=True), pa.list_view(pa.int8())):
        schema = pa.schema([("c", t)])
        assert schema.equals(pa.schema([("c", without_views(t))]), check_metadata=True)


WRAPPED = {
    "struct": (lambda t: pa.struct([("x", t), ("n", pa.int8())]), lambda v: {"x": v, "n": 1}),
    "list": (pa.list_, lambda v: [v, None]), "large list": (pa.large_list, lambda v: [v]),
    "fixed list": (lambda t: pa.list_(t, 2), lambda v: [v, None]),
    "list view": (pa.list_view, lambda v: [v, v]), "map": (
        lambda t: pa.map_(pa.string(), t), lambda v: [("k", v)])}


@pytest.mark.parametrize("outer", WRAPPED)
def test_row_groups_of_views_in_nested_columns_are_written(outer):
    """Of a sliced table, one of several chunks, and a stream; pyarrow cannot write such slices."""
    make_type, make = WRAPPED[outer]
    columns = {}
    for inner, (inner_type, inner_make) in WRAPPED.items():
        for name, t, words in (("text", TEXT, WORDS), ("raw", RAW, [b"a", None, b"y" * 20, b""])):
            columns[f"{inner} {name}"] = pa.array(
                [None, *(make(None if word is None else inner_make(word)) for word in words[:4])],
                make_type(inner_type(t)))
    table = pa.table(columns).slice(1)
    for data in (table, pa.concat_tables([table.slice(0, 2), table.slice(2)]), table.to_reader()):
        sink = io.BytesIO()
        write_table(data, sink, row_group_size=3)
        found = read_table(io.BytesIO(sink.getvalue()))
        assert found.to_pylist() == table.to_pylist()
        if data is table:
            assert found.schema.equals(table.schema)
