"""What is handed over has no byte of other rows: every type, every way to read some rows."""

import decimal
import random

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from secure_bloom import ParquetFile, dataset, find, read_table, write_table
from secure_bloom.arrow.views import filtered
from tests.memory import buffers_of
from tests.tiers import sweep_where

ROWS = 60
_RANDOM = random.Random("own values")


def _texts() -> list[str]:
    return [f"{_RANDOM.getrandbits(80):020x}" for _ in range(ROWS)]


def _numbers(bits: int) -> list[int]:
    return [_RANDOM.getrandbits(bits) | 1 << bits - 1 for _ in range(ROWS)]


def _columns() -> dict[str, tuple[pa.Array, list[bytes]]]:
    """Return leaves of all types, and what of each value is found in memory."""
    found = {}
    for t in (pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(),
              pa.binary_view(), pa.binary(20), pa.json_()):
        texts = _texts()
        is_bytes = "binary" in str(t)
        found[str(t)] = pa.array([text.encode() for text in texts] if is_bytes else texts, t), \
            [text.encode() for text in texts]
    for t, bits in ((pa.int32(), 31), (pa.uint32(), 32), (pa.int64(), 62), (pa.uint64(), 64),
                    (pa.timestamp("ms"), 45), (pa.timestamp("us"), 50),
                    (pa.timestamp("ns", "UTC"), 60), (pa.duration("us"), 60), (pa.date32(), 31),
                    (pa.time32("ms"), 26), (pa.time64("ns"), 46)):
        numbers = _numbers(bits)
        size = 4 if bits <= 32 else 8
        plain = pa.array(numbers, {32: pa.uint32(), 64: pa.uint64()}.get(
            bits, pa.int32() if size == 4 else pa.int64()))
        found[str(t)] = plain if plain.type == t else plain.view(t), \
            [number.to_bytes(size, "little") for number in numbers]
    for t in (pa.decimal32(9), pa.decimal64(18), pa.decimal128(38), pa.decimal256(76)):
        numbers = _numbers(int(t.precision * 3.3))
        found[str(t)] = pa.array(list(map(decimal.Decimal, numbers)), t), \
            [number.to_bytes(t.byte_width, "little") for number in numbers]
    found["double"] = pa.array(floats := [_RANDOM.random() for _ in range(ROWS)]), \
        [pa.array([one]).buffers()[1].to_pybytes() for one in floats]
    for ordered in (False, True):
        texts = _texts()
        found[f"dictionary {ordered}"] = pa.DictionaryArray.from_arrays(
            pa.array(range(ROWS), pa.int32()), pa.array(texts), ordered=ordered), \
            [text.encode() for text in texts] if not ordered else []
    return found


def _nest(leaf: pa.Array) -> dict[str, pa.Array]:
    offsets = pa.array(range(ROWS + 1), pa.int32())
    long, sizes = offsets.cast(pa.int64()), pa.array([1] * ROWS, pa.int32())
    made = {"": leaf, "struct": pa.StructArray.from_arrays([leaf], ["x"]),
            "list": pa.ListArray.from_arrays(offsets, leaf),
            "large list": pa.LargeListArray.from_arrays(long, leaf),
            "fixed list": pa.FixedSizeListArray.from_arrays(leaf, 1),
            "list view": pa.ListViewArray.from_arrays(offsets[:ROWS], sizes, leaf),
            "large list view": pa.LargeListViewArray.from_arrays(
                long[:ROWS], sizes.cast(pa.int64()), leaf),
            "map": pa.MapArray.from_arrays(offsets, pa.array(range(ROWS)), leaf)}
    of_views = pa.StructArray.from_arrays([made["list view"]], ["v"])
    made["view in view"] = pa.ListViewArray.from_arrays(offsets[:ROWS], sizes, of_views)
    return made


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    """A table, as read from a file, and what of each row is found in memory."""
    columns, tokens = {"row": pa.array(range(ROWS))}, [set() for _ in range(ROWS)]
    for name, (leaf, of_rows) in _columns().items():
        for nesting, array in _nest(leaf).items():
            columns[f"{nesting} {name}".strip()] = array
        for row, token in enumerate(of_rows):
            tokens[row].add(token)
    path = tmp_path_factory.mktemp("lake") / "all.parquet"
    table = pa.table(columns)
    write_table(table, path, bloom_filters={})
    return path, ParquetFile(path).read(), tokens


WAYS = {
    "file": lambda path, rows: ParquetFile(path).read(filters=[("row", "in", rows)]),
    "folder": lambda path, rows: read_table(path.parent, filters=[("row", "in", rows)]),
    "expression": lambda path, rows: read_table(path.parent, filters=pc.field("row").isin(rows)),
    "data set": lambda path, rows: dataset(path).to_table(
        filter=pc.field("row").isin(rows), batch_size=1),
    "find": lambda path, rows: find(path, "row", rows),
    "take": lambda path, rows: dataset(path).take(pa.array(rows)),
}


def _left(table: pa.Table, tokens) -> set[str]:
    """Return the columns whose memory has one of the tokens."""
    return {name for name, column in zip(table.column_names, table.columns, strict=True)
            for chunk in column.chunks for content in buffers_of(chunk)
            if any(token in content for token in tokens)}


@sweep_where(lambda way: way in ("folder", "expression", "take"))
@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_some_rows_have_no_values_of_others(everything, way):
    path, table, tokens = everything
    rows = [3, 17, 18]
    others = set().union(*(one for row, one in enumerate(tokens) if row not in rows))
    assert len(_left(table, others)) >= 9 * 24  # the test finds what it looks for
    found = WAYS[way](path, rows)
    for name in table.column_names:
        got, expected = found[name], pa.chunked_array([table[name].slice(row, 1).combine_chunks()
                                                       for row in rows])
        if "dictionary" not in name or way not in ("data set", "take"):  # values in lists there
            assert got.type == expected.type, name
        if "dictionary" in name:
            assert got.to_pylist() == expected.to_pylist(), name
        else:
            assert got.equals(expected), name
    assert not _left(found, others)


@pytest.mark.slow
def test_the_first_rows_have_no_values_of_others(everything):
    path, _, tokens = everything
    found = dataset(path).head(5)
    assert len(found) == 5 and not _left(found, set().union(*tokens[5:]))


@pytest.mark.slow
def test_all_rows_of_a_slice_have_no_values_of_others(everything):
    _, table, tokens = everything
    batch = table.combine_chunks().to_batches()[0].slice(7, 3)
    found = pa.Table.from_batches([filtered(batch, pa.array([True] * 3))])
    left = _left(found, set().union(*tokens[:7], *tokens[10:]))
    assert {name for name in left if "dictionary" not in name} == set()
