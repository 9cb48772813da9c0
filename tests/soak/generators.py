"""Random tables, ways to write them, and damage, all determined by the case's seed."""

from __future__ import annotations

import decimal
import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tests.modes import ENCRYPTED, MODES, Mode
from tests.soak.check import Case

KMS_MODES = [mode for mode in ENCRYPTED if mode.uses_kms]

_CODECS = "none", "snappy", "zstd", "lz4", "gzip"


def _int(bits: int, signed: bool = True) -> Callable[[Case, int], pa.Array]:
    kind = np.dtype(f"{'int' if signed else 'uint'}{bits}")
    limits = np.iinfo(kind)

    def values(case: Case, size: int) -> pa.Array:
        high = min(limits.max, case.random.choice([10, 1000, limits.max]))
        return pa.array(case.numpy.integers(limits.min if high > 1000 else 0, high, size, kind,
                                            endpoint=True))
    return values


def _float(kind: type) -> Callable[[Case, int], pa.Array]:
    def values(case: Case, size: int) -> pa.Array:
        found = case.numpy.normal(0, 10.0 ** case.random.randrange(5), size).astype(kind)
        found[case.numpy.random(size) < 0.02] = np.nan
        found[case.numpy.random(size) < 0.02] = -0.0
        return pa.array(found)
    return values


def _text(case: Case, size: int) -> pa.Array:
    length, few = case.random.choice([3, 9, 40]), case.random.random() < 0.3
    distinct = 20 if few else size + 1
    words = pa.array([f"{number:x}ß"[:length] + "x" * (number % length)
                      for number in range(distinct)])
    found = words.take(pa.array(case.numpy.integers(0, distinct, size)))
    kind = case.random.choice([pa.string(), pa.large_string(), pa.binary(), pa.string_view()])
    return found.dictionary_encode() if few and case.random.random() < 0.5 else found.cast(kind)


def _fixed(case: Case, size: int) -> pa.Array:
    width = case.random.choice([1, 12, 16, 33])
    data = case.numpy.integers(0, 256, size * width, np.uint8)
    return pa.Array.from_buffers(pa.binary(width), size, [None, pa.py_buffer(data.tobytes())])


def _decimal(case: Case, size: int) -> pa.Array:
    precision = case.random.choice([5, 12, 30])
    numbers = case.numpy.integers(-10**5 + 1, 10**5, size).tolist()
    return pa.array([decimal.Decimal(number).scaleb(-2) for number in numbers],
                    pa.decimal128(max(precision, 7), 2))


def _time(case: Case, size: int) -> pa.Array:
    seconds = case.numpy.integers(-10**9, 10**9, size)
    kind = case.random.choice([pa.timestamp("s"), pa.timestamp("ms", "UTC"), pa.timestamp("us"),
                               pa.timestamp("ns"), pa.date32(), pa.time64("us")])
    if pa.types.is_date32(kind):
        return pa.array(seconds // 86_400, pa.int32()).view(kind)
    if pa.types.is_time64(kind):
        return pa.array(abs(seconds), pa.int64()).view(kind)
    return pa.array(seconds, pa.timestamp("s")).cast(kind)


COLUMNS = [_int(8), _int(16), _int(32), _int(64), _int(32, False), _int(64, False),
           _float(np.float32), _float(np.float64), _text, _text, _fixed, _decimal, _time]


def random_table(case: Case, rows: int) -> pa.Table:
    """Return a table with an ``id`` and two to five columns with nulls, c0, c1, ..."""
    columns: dict[str, pa.Array] = {"id": pa.array(np.arange(rows))}
    for number in range(case.random.randrange(2, 6)):
        values = case.random.choice(COLUMNS)(case, rows)
        if case.random.random() < 0.7:
            mask = case.numpy.random(rows) < case.random.choice([0.01, 0.3, 0.95])
            values = pa.array(values.to_pylist(), values.type, mask=mask) \
                if pa.types.is_dictionary(values.type) or "view" in str(values.type) \
                else pc.if_else(pa.array(mask), pa.scalar(None, values.type), values)
        columns[f"c{number}"] = values
    if case.random.random() < 0.3:
        columns |= _nested(case, plain(pa.chunked_array([columns["c0"]])).combine_chunks())
    return pa.table(columns)


def _nested(case: Case, values: pa.Array) -> dict[str, pa.Array]:
    """Return the values in structs, some of which are null, and in lists of a few elements."""
    lengths = case.numpy.integers(0, 4, len(values))
    ends = np.minimum(np.cumsum(lengths), len(values)).astype(np.int32)
    return {"s": pa.StructArray.from_arrays([values], ["a"],
                                            mask=pa.array(case.numpy.random(len(values)) < 0.1)),
            "l": pa.ListArray.from_arrays(pa.array([0, *ends], pa.int32()), values)}


LEAVES = {"s": "s.a", "l": "l.list.element"}  #: of nested columns


def leaf(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the values of a column's leaf."""
    if pa.types.is_struct(column.type):
        return pa.chunked_array([pc.struct_field(chunk, [0]) for chunk in column.chunks],
                                column.type[0].type)
    return pc.list_flatten(column) if pa.types.is_list(column.type) else column


def random_options(case: Case) -> dict[str, Any]:
    """Return options of pyarrow's writer."""
    choose = case.random.choice
    return {"compression": choose(_CODECS), "data_page_version": choose(["1.0", "2.0"]),
            "use_dictionary": choose([True, False]), "write_page_index": choose([True, False]),
            "write_statistics": choose([True, True, False]),
            "data_page_size": choose([1000, 10_000, 1 << 20])}


def column_keys(case: Case, table: pa.Table) -> dict[str, list[str]]:
    """Divide some columns between the two column master keys."""
    names = [LEAVES.get(name, name) for name in table.column_names
             if case.random.random() < 0.7] or table.column_names[:1]
    middle = case.random.randrange(len(names) + 1)
    return {key: some for key, some in (("kc1", names[:middle]), ("kc2", names[middle:])) if some}


def plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column without a dictionary, and without views, which Arrow cannot filter."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    return column.cast(pa.string()) if pa.types.is_string_view(column.type) else column


def distinct_values(column: pa.ChunkedArray) -> pa.Array:
    """Return the distinct values that a lookup must find: neither null nor NaN."""
    found = plain(column).drop_null()
    if pa.types.is_floating(found.type):
        found = found.filter(pc.invert(pc.is_nan(found)))
    return pc.unique(found)


def small_file(case: Case, mode: Mode | None = None) -> tuple[bytes, Mode, pa.Table]:
    """Return a file of a few hundred rows, of any mode, and what is in it."""
    mode = mode or case.random.choice(MODES)
    rows = case.random.choice([10, 60])
    table = pa.table({"secret": case.numpy.integers(0, 10**9, rows),
                      "name": [f"name {number}" for number in case.numpy.integers(0, 10**6, rows)],
                      "open": case.numpy.integers(0, 100, rows)})
    sink = io.BytesIO()
    mode.write(table, sink, {"kc1": ["secret"], "kc2": ["name"]}, row_group_size=rows // 2,
               bloom_filters={"secret": {"max_bytes": 64}, "name": {"max_bytes": 64},
                              "open": {"max_bytes": 64}},
               write_page_index=case.random.random() < 0.3)
    return sink.getvalue(), mode, table


def damaged(case: Case, data: bytes) -> bytes:
    """Change some bytes: flips, overwritten ranges, deletions, insertions, truncation."""
    out = bytearray(data)
    for _ in range(case.random.choice([1, 1, 1, 2, 5])):
        if not out:
            break
        place, kind = case.random.randrange(len(out)), case.random.randrange(6)
        size = case.random.choice([1, 2, 4, 8, 40])
        if kind <= 1:
            out[place] = case.random.randrange(256)
        elif kind == 2:
            out[place] ^= 1 << case.random.randrange(8)
        elif kind == 3:
            out[place:place + size] = case.random.randbytes(size)
        elif kind == 4:
            del out[place:place + size]
        else:
            out[place:place] = case.random.choice([b"\xff", b"\x00", b"\x7f"]) * size
    return bytes(out[:case.random.randrange(len(out) + 1)] if case.random.random() < 0.05 else out)
