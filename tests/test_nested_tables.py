"""Random tables of nested, dictionary and extension types: file and filters hold every value."""

import datetime
import decimal
import io
import random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from arro3.io import read_parquet

from secure_bloom import ParquetFile, ParquetWriter, write_table
from secure_bloom.arrow.leaves import leaf_arrays
from tests.cases import for_each
from tests.support import arrow_file, plain_values


class Tagged(pa.ExtensionType):
    """An extension type of a user, over any storage."""

    def __init__(self, storage_type):
        super().__init__(storage_type, "tests.tagged")

    def __arrow_ext_serialize__(self):
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type, serialized):
        return cls(storage_type)


# --- random arrays -------------------------------------------------------------------------------

SCALARS = {
    pa.int8(): [0, 1], pa.int32(): [7, -7], pa.uint64(): [0, 2**64 - 1], pa.bool_(): [True, False],
    pa.float16(): [np.float16(x) for x in (1.5, -0.0, 0.0, 9, float("nan"), float("inf"))],
    pa.float32(): [0.25, float("nan"), -0.0], pa.string(): ["", "a", "b" * 20],
    pa.string_view(): ["", "b" * 20],
    pa.binary(): [b"", b"\0", b"xy"], pa.binary(3): [b"abc", b"\0\0\0"],
    pa.binary(16): [b"0123456789abcdef", b"\0" * 16], pa.date32(): [datetime.date(1969, 12, 31)],
    pa.decimal128(5, 2): [decimal.Decimal("1.25"), decimal.Decimal("-3.00")],
}
EXTENSIONS = [pa.uuid(), pa.json_(), pa.bool8(), pa.opaque(pa.binary(), "a", "b"),
              pa.fixed_shape_tensor(pa.int32(), [2]), Tagged(pa.string()),
              Tagged(pa.list_(pa.float32())), Tagged(pa.struct([("p", pa.int8())]))]
LISTS = [pa.list_, pa.large_list, pa.list_view, pa.large_list_view, lambda t: pa.list_(t, 2)]


def random_type(rng: random.Random, depth: int) -> pa.DataType:
    kind = rng.choice(["scalar", "dictionary", "extension",
                       *["list", "list", "struct", "map", "tagged"] * (depth > 0)])
    if kind == "scalar":
        return rng.choice(list(SCALARS))
    if kind == "dictionary":
        value = rng.choice([t for t in SCALARS if not pa.types.is_boolean(t)])
        return pa.dictionary(rng.choice([pa.int8(), pa.uint16(), pa.int64()]), value)
    if kind == "extension":
        return rng.choice(EXTENSIONS)
    inner = random_type(rng, depth - 1)
    if kind == "list":
        return rng.choice(LISTS)(inner)
    if kind == "struct":
        return pa.struct([("x", inner), ("y", random_type(rng, depth - 1))])
    if kind == "map":
        return pa.map_(random_type(rng, depth - 1), inner)
    return inner if isinstance(inner, pa.BaseExtensionType) else Tagged(inner)


def random_array(rng: random.Random, t: pa.DataType, size: int, *, nullable: bool = True) \
        -> tuple[pa.Array, list]:
    """An array, with values below its nulls too, and its values as Python has them."""
    is_null = [nullable and rng.random() < 0.3 for _ in range(size)]
    if isinstance(t, pa.BaseExtensionType):
        array, values = random_array(rng, t.storage_type, size, nullable=nullable)
        return pa.ExtensionArray.from_storage(t, array), values
    if pa.types.is_dictionary(t):
        words, known = random_array(rng, t.value_type, 6, nullable=False)
        numbers = [rng.randrange(6) for _ in range(size)]
        indices = pa.array(numbers, t.index_type, mask=np.array(is_null, bool))
        return (pa.DictionaryArray.from_arrays(indices, words),
                masked([known[i] for i in numbers], is_null))
    if t in SCALARS:
        values = [rng.choice(SCALARS[t]) for _ in range(size)]
        return pa.array(values, t, mask=np.array(is_null, bool)), masked(values, is_null)
    validity = pa.array([not null for null in is_null]).cast(pa.bool_()).buffers()[1]
    if pa.types.is_struct(t):
        fields = [random_array(rng, field.type, size) for field in t]
        array = pa.Array.from_buffers(t, size, [validity], children=[field for field, _ in fields])
        rows = [{f.name: values[i] for f, (_, values) in zip(t, fields, strict=True)}
                for i in range(size)]
        return array, masked(rows, is_null)
    kind = str(t).partition("<")[0]
    is_fixed = kind == "fixed_size_list"
    lengths = [t.list_size if is_fixed else rng.randrange(3) for _ in range(size)]
    starts = [sum(lengths[:i]) for i in range(size + 1)]
    integers = pa.int64() if "large" in kind else pa.int32()
    buffers = [validity]
    if not is_fixed:
        buffers.append(pa.array(starts, integers).buffers()[1])
    if "view" in kind:
        buffers.append(pa.array(lengths, integers).buffers()[1])
    if pa.types.is_map(t):
        keys, key_values = random_array(rng, t.key_type, starts[-1], nullable=False)
        items, item_values = random_array(rng, t.item_type, starts[-1])
        child = pa.StructArray.from_arrays([keys, items], fields=list(t.field(0).type))
        values = list(zip(key_values, item_values, strict=True))
    else:
        child, values = random_array(rng, t.value_type, starts[-1])
    rows = [values[start:start + length]
            for start, length in zip(starts, lengths, strict=False)]
    return pa.Array.from_buffers(t, size, buffers, children=[child]), masked(rows, is_null)


def masked(values: list, is_null: list[bool]) -> list:
    return [None if null else value for value, null in zip(values, is_null, strict=True)]


def leaf_values(t: pa.DataType, values: list) -> list[tuple[pa.DataType, list]]:
    """Type and values of each leaf, in Parquet's order, from values as Python has them."""
    values = [value for value in values if value is not None]
    if isinstance(t, pa.BaseExtensionType):
        return leaf_values(t.storage_type, values)
    if pa.types.is_struct(t):
        return [leaf for field in t
                for leaf in leaf_values(field.type, [value[field.name] for value in values])]
    if pa.types.is_map(t):
        entries = [entry for value in values for entry in value]
        return [*leaf_values(t.key_type, [key for key, _ in entries]),
                *leaf_values(t.item_type, [item for _, item in entries])]
    if pa.types.is_nested(t):
        return leaf_values(t.value_type, [entry for value in values for entry in value])
    return [(t.value_type if pa.types.is_dictionary(t) else t, values)]


def random_column(rng: random.Random, t: pa.DataType) -> tuple[pa.ChunkedArray, list]:
    """Chunks, some of them slices, each with dictionaries of its own."""
    chunks, rows = [], []
    for _ in range(rng.randrange(1, 4)):
        size = rng.randrange(6)
        array, values = random_array(rng, t, size)
        start, stop = sorted(rng.choices(range(size + 1), k=2)) if rng.random() < 0.5 \
            else (0, size)
        chunks.append(array.slice(start, stop - start))
        rows += values[start:stop]
    return pa.chunked_array(chunks, t), rows


def comparable(value) -> str:
    """Values of extension types and plain ones alike; NaN equals itself, the zeros differ."""
    def plain(value):
        if isinstance(value, dict):
            return {name: plain(inner) for name, inner in value.items()}
        if isinstance(value, list | tuple | np.ndarray):
            return [plain(inner) for inner in value]
        if hasattr(value, "bytes"):  # a UUID
            return value.bytes
        if isinstance(value, bool | np.bool_):
            return int(value)
        return float(value) if isinstance(value, np.floating) else value
    return repr(plain(value))


# --- the tests -----------------------------------------------------------------------------------

def check(t: pa.DataType, column: pa.ChunkedArray, rows: list, row_group_size: int) -> None:
    table = pa.table({"c": column})
    reference = io.BytesIO()
    try:
        pq.write_table(table, reference, row_group_size=row_group_size)
    except (pa.ArrowException, ValueError):
        return  # what pyarrow does not write need not be written
    columns = ParquetFile(reference.getvalue()).columns
    paths = [leaf.path for leaf in columns if leaf.type.can_have_filter]
    sink = io.BytesIO()
    write_table(table, sink, bloom_filters=dict.fromkeys(paths, True),
                row_group_size=row_group_size)
    file = ParquetFile(sink.getvalue())
    assert comparable(pq.read_table(io.BytesIO(sink.getvalue()))["c"].to_pylist()) \
        == comparable(rows)
    for group in range(file.num_row_groups):
        part = rows[group * row_group_size:(group + 1) * row_group_size]
        for leaf, (leaf_type, values) in zip(columns, leaf_values(t, part), strict=True):
            if leaf.path in paths and values:
                found = file.might_contain(leaf.path, pa.array(values, leaf_type))
                assert found[group].all(), leaf.path


@pytest.mark.slow
@for_each("seed", range(40))
def test_random_tables(seed):
    rng = random.Random(seed)
    for _ in range(10):
        t = random_type(rng, rng.randrange(4))
        column, rows = random_column(rng, t)
        check(t, column, rows, rng.randrange(1, 12))


HALVES = [1.5, float("nan"), 3.25, float("-inf"), -0.0, 8.0]
OFFSETS, HIDDEN = pa.array([0, 2, 4, 6], pa.int32()), pa.array([False, True, False])
#: columns of three rows over six values, whose second row is null and has values all the same
HALF_COLUMNS = {
    "list": lambda a: pa.ListArray.from_arrays(OFFSETS, a, mask=HIDDEN),
    "large list": lambda a: pa.LargeListArray.from_arrays(OFFSETS.cast(pa.int64()), a,
                                                          mask=HIDDEN),
    "fixed-size list": lambda a: pa.FixedSizeListArray.from_arrays(a, 2, mask=HIDDEN),
    "list view": lambda a: pa.ListViewArray.from_arrays(
        OFFSETS[:3], pa.array([2, 2, 2], pa.int32()), a, mask=HIDDEN),
    "map": lambda a: pa.MapArray.from_arrays(OFFSETS, pa.array(range(6)), a, mask=HIDDEN),
    "keys": lambda a: pa.MapArray.from_arrays(OFFSETS, a, pa.array(range(6)), mask=HIDDEN),
    "struct in list": lambda a: pa.ListArray.from_arrays(
        OFFSETS, pa.StructArray.from_arrays([a, pa.array([b"u" * 16] * 6, pa.uuid())],
                                            ["x", "u"]), mask=HIDDEN),
    "extension": lambda a: pa.ExtensionArray.from_storage(
        Tagged(pa.list_(a.type)), pa.ListArray.from_arrays(OFFSETS, a, mask=HIDDEN)),
}


@pytest.mark.parametrize("name", HALF_COLUMNS)
@pytest.mark.parametrize("sliced", [False, True])
def test_half_floats_in_dictionaries_are_written_as_they_are(tmp_path, name, sliced):
    words = pa.array([np.float16(x) for x in HALVES])
    column = HALF_COLUMNS[name](pa.DictionaryArray.from_arrays(pa.array(range(6), pa.int8()),
                                                               words))
    stored = HALVES[4:] if sliced else HALVES[:2] + HALVES[4:]
    table = pa.table({"c": column.slice(int(sliced))})
    path = tmp_path / "x.parquet"
    leaf = next(c for c in ParquetFile(arrow_file(table)).columns if c.type.length == 2)
    write_table(table, path, bloom_filters={leaf.path: True}, compression="none",
                use_dictionary=False, data_page_version="1.0", write_statistics=False)
    pages = plain_values(path.read_bytes(), leaf.ordinal)
    assert comparable([np.frombuffer(page, np.float16)[0] for page in pages]) == comparable(stored)
    for read in (pq.read_table(path), pa.table(read_parquet(path).read_all())):
        [(_, values)] = [leaf for leaf in leaf_values(read["c"].type, read["c"].to_pylist())
                         if pa.types.is_float16(leaf[0])]
        assert comparable(values) == comparable(stored)
    found = ParquetFile(path).might_contain(leaf.path, [np.float16(x) for x in stored])
    assert found.all()


def test_half_floats_in_dictionaries_are_read_back_as_pyarrow_does(tmp_path):
    words = pa.array([np.float16(x) for x in HALVES]).dictionary_encode()
    table = pa.table({"a": words, "s": pa.array([{"x": 1}] * 6, pa.struct(
        [pa.field("x", pa.int8(), metadata={"k": "v"})]))}, metadata={"m": "n"})
    pq.write_table(table, tmp_path / "theirs")
    with ParquetWriter(tmp_path / "ours", table.schema, bloom_filters={}) as writer:
        for part in (table, table.slice(2, 3), table.slice(0, 0)):
            writer.write_table(part)
        assert writer.schema.equals(table.schema, check_metadata=True)
    read = pq.read_table(tmp_path / "ours")
    assert read.schema.equals(pq.read_table(tmp_path / "theirs").schema, check_metadata=True)
    assert comparable(read["a"].to_pylist()) == comparable([*HALVES, *HALVES[2:5]])


@pytest.mark.parametrize("t", [t for t in EXTENSIONS if not pa.types.is_nested(t.storage_type)],
                         ids=str)
def test_maps_and_lists_of_extension_types_may_be_empty_or_null(t):
    """There pyarrow's flatten asks for a builder, which extension types do not have."""
    for nested in (pa.map_(t, t), pa.list_(t), pa.list_(pa.struct([("x", t)]))):
        column = pa.chunked_array([pa.nulls(2, nested), pa.nulls(0, nested)])
        check(nested, column, [None, None], 1)


def test_values_below_null_extension_lists_are_left_out():
    entries = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"a" * 16, b"b" * 16, b"c" * 16],
                                                                 pa.binary(16)))
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), entries,
                                     mask=pa.array([False, True, False]))
    for part, expected in ((lists, [b"a" * 16, b"c" * 16]), (lists.slice(1, 1), []),
                           (lists.slice(2), [b"c" * 16])):
        [leaf] = leaf_arrays(part)
        assert leaf.to_pylist() == expected
