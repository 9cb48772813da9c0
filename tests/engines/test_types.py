"""Values of every Arrow type, flat and nested, as Polars and DuckDB take them over."""

import datetime
from collections.abc import Iterator
from decimal import Decimal
from functools import partial
from itertools import product

import pyarrow as pa
import pytest

import secure_bloom
from secure_bloom.errors import UnsupportedError

duckdb = pytest.importorskip("duckdb")
pl = pytest.importorskip("polars")

TEXTS = ["a", None, "a text of more than twelve bytes", "", "ä"]
BYTES = [b"a", None, b"bytes of more than twelve bytes", b"", b"\xff"]
NUMBERS = [Decimal("1.50"), None, Decimal("-9999.99"), Decimal("7.25"), Decimal("0.01")]
INTEGERS = [1, None, 86_399, 0, 5]

TYPES = {
    **{t: NUMBERS for t in (pa.decimal32(7, 2), pa.decimal64(15, 2), pa.decimal128(38, 2),
                            pa.decimal256(20, 2), pa.decimal256(60, 2))},
    **{t: TEXTS for t in (pa.string(), pa.large_string(), pa.string_view())},
    **{t: TEXTS for t in (pa.dictionary(pa.int8(), pa.string()),
                          pa.dictionary(pa.uint64(), pa.large_string()))},
    **{t: BYTES for t in (pa.binary(), pa.large_binary(), pa.binary_view())},
    pa.binary(3): [b"abc", None, b"\0\0\0", b"\xff\xff\xff", b"xyz"],
    pa.float16(): [1.5, None, -0.0, 65504.0, 0.25],
    pa.uint64(): [2**64 - 1, None, 0, 1, 2**63], pa.int8(): [1, None, -128, 127, 0],
    pa.bool_(): [True, None, False, True, True], pa.null(): [None] * 5,
    **{t: INTEGERS for t in (pa.time32("s"), pa.time32("ms"), pa.time64("us"))},
    **{pa.duration(unit): INTEGERS for unit in ("ms", "us")},
    **{pa.timestamp(unit, zone): INTEGERS for unit in ("s", "ms", "us") for zone in (None, "UTC")},
    pa.date32(): [datetime.date(2024, 2, 29), None, datetime.date(1969, 12, 31),
                  datetime.date(1582, 10, 15), datetime.date(9999, 12, 31)],
}


def nested(array: pa.Array) -> Iterator[pa.Array]:
    size = len(array)
    offsets, wide = pa.array([0, 0, 2, size], pa.int32()), pa.array([0, 0, 2, size], pa.int64())
    struct = pa.StructArray.from_arrays([array, pa.array(range(size))], ["x", "y"])
    yield array
    yield struct
    yield pa.StructArray.from_arrays([struct], ["s"])
    yield pa.ListArray.from_arrays(offsets, array)
    yield pa.ListArray.from_arrays(offsets, struct)
    yield pa.LargeListArray.from_arrays(wide, array)
    yield pa.FixedSizeListArray.from_arrays(array, 5)
    yield pa.MapArray.from_arrays(offsets, pa.array([str(n) for n in range(size)]), array)
    yield pa.ListViewArray.from_arrays(pa.array([2, 0], pa.int32()), pa.array([3, 2], pa.int32()),
                                       array)


def plain(value):
    """Without the difference between the forms in which both return maps."""
    if isinstance(value, dict):
        return [plain(item) for item in value.values()]
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def rows(table: pa.Table) -> list:
    return sorted(((row["i"], plain(row["c"])) for row in table.to_pylist()), key=lambda r: r[0])


@pytest.mark.slow
@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.sweep)])
def test_engines_return_the_values_of_every_type(tmp_path, every):
    read = {"polars": 0, "duckdb": 0}
    for number, (t, values) in enumerate(TYPES.items()):
        for kind, array in enumerate(nested(pa.array(values * 5, t))):
            if (number + kind) % every:
                continue
            folder = tmp_path / f"{number}-{kind}"
            folder.mkdir()
            table = pa.table({"c": array, "i": range(len(array))})
            secure_bloom.write_table(table, folder / "a.parquet", row_group_size=4)
            right = rows(secure_bloom.read_table(folder))
            try:
                frame = secure_bloom.scan(folder)
                for some, least in ((frame, 0), (frame.filter(pl.col("i") >= 1), 1)):
                    assert rows(some.collect().to_arrow()) == right[least:], (t, array.type)
                read["polars"] += 1
            except UnsupportedError as error:
                assert error.column == "c"
                assert "list_view" in str(array.type) or "60" in str(t), (t, array.type)
            if pa.types.is_duration(t):
                continue  # intervals in DuckDB
            try:
                found = duckdb.from_arrow(secure_bloom.dataset(folder)).arrow()
            except duckdb.Error:  # which has no such type
                continue
            found = found.read_all() if hasattr(found, "read_all") else found
            assert rows(found) == right, (t, array.type)
            read["duckdb"] += 1
    assert min(read.values()) > 150 // every


# --- dictionaries at any depth -------------------------------------------------------------------

def words(size: int) -> pa.Array:
    return pa.array([TEXTS[i % 5] for i in range(size)], pa.string()).dictionary_encode()


def around(kind: str, values, size: int) -> pa.Array:
    """Return a nested array with nulls and empty lists, which some row groups have only."""
    mask = pa.array([row % 4 == 3 or 8 <= row < 14 for row in range(size)])
    if kind == "struct":
        return pa.StructArray.from_arrays(
            [values(size), pa.array(range(size), pa.int64())], ["x", "y"], mask=mask)
    if kind == "fixed_size_list":
        return pa.FixedSizeListArray.from_arrays(values(size * 2), 2, mask=mask)
    sizes = [0 if mask[row].as_py() or row < 8 else row % 3 for row in range(size)]
    offsets = [sum(sizes[:row]) for row in range(size + 1)]
    if kind == "list_view":
        return pa.ListViewArray.from_arrays(pa.array(offsets[:-1], pa.int32()), pa.array(
            sizes, pa.int32()), values(offsets[-1]), mask=mask)
    if kind == "map":
        keys = pa.array([str(n) for n in range(offsets[-1])], pa.string())
        return pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), keys, values(offsets[-1]),
                                       mask=mask)
    make, width = (pa.ListArray, pa.int32()) if kind == "list" else (pa.LargeListArray, pa.int64())
    return make.from_arrays(pa.array(offsets, width), values(offsets[-1]), mask=mask)


@pytest.mark.slow
def test_engines_return_the_values_of_dictionaries_at_any_depth(tmp_path):
    """DuckDB 2.0 reads those in lists wrong or not at all, so it gets their values.

    With list views it does not: then an error is right.
    """
    kinds = ("struct", "list", "large_list", "list_view", "fixed_size_list", "map")
    read, refused = {"polars": 0, "duckdb": 0}, {}
    for depth in (1, 2):
        for number, nesting in enumerate(product(kinds, repeat=depth)):
            make = words
            for kind in reversed(nesting):
                make = partial(around, kind, make)
            array, folder = make(24).slice(3, 20), tmp_path / f"{depth}-{number}"
            table = pa.table({"c": array, "i": range(20)})
            secure_bloom.write_dataset(table, folder, row_group_size=3)
            people = secure_bloom.dataset(folder, schema=table.schema)
            assert rows(people.to_table()) == rows(table), nesting
            for some, least in ((people, 0), (people.filter([("i", ">=", 5)]), 5)):
                try:
                    found = duckdb.from_arrow(some).arrow()
                    found = found.read_all() if hasattr(found, "read_all") else found
                except (duckdb.Error, UnsupportedError) as error:
                    refused[nesting] = str(error)
                    continue
                assert rows(found) == rows(table)[least:], nesting
                read["duckdb"] += 1
            try:
                frame = secure_bloom.scan(folder)
            except UnsupportedError:
                assert "list_view" in nesting
                continue
            for some, least in ((frame, 0), (frame.filter(pl.col("i") >= 5), 5)):
                assert rows(some.collect().to_arrow()) == rows(table)[least:], nesting
                read["polars"] += 1
    assert read == {"polars": 60, "duckdb": 60}
    assert len(refused) == 12 and all("list_view" in nesting and "values cannot replace them" in why
                                      for nesting, why in refused.items())
