"""Random rows of all types in encrypted files, and random conditions on their columns."""

import datetime as dt
import math
from decimal import Decimal

import pyarrow as pa

import secure_bloom
from secure_bloom import EncryptionConfiguration

_T = dt.datetime
#: column -> type, and values that are likely to be confused with each other
COLUMNS = {
    "i8": (pa.int8(), [-128, -1, 0, 1, 127]),
    "i32": (pa.int32(), [-2**31, -1, 0, 1, 2, 2**31 - 1]),
    "i64": (pa.int64(), [-2**63, -1, 0, 1, 2**53, 2**53 + 1, 2**63 - 1]),
    "u8": (pa.uint8(), [0, 1, 127, 128, 255]),
    "u32": (pa.uint32(), [0, 1, 2**31, 2**32 - 1]),
    "u64": (pa.uint64(), [0, 1, 2**63, 2**64 - 1]),
    "f32": (pa.float32(), [0.0, -0.0, 1.5, math.nan, math.inf, -math.inf, 0.1, 1e30]),
    "f64": (pa.float64(), [0.0, -0.0, 1.5, math.nan, math.inf, -math.inf, 0.1, 2.0**53, 1e300]),
    "s": (pa.string(), ["", "a", "b", "A", "é", "e\u0301", "a ", "zz", "ß", "it's"]),
    "ls": (pa.large_string(), ["", "a", "b"]),
    "dict": (pa.dictionary(pa.int32(), pa.string()), ["a", "b", "c"]),
    "b": (pa.binary(), [b"", b"a", b"\0\xff", b"\xff"]),
    "fsb": (pa.binary(2), [b"ab", b"\0\xff", b"zz"]),
    "d": (pa.date32(), [dt.date(1969, 12, 31), dt.date(1970, 1, 1), dt.date(2020, 2, 29)]),
    "d64": (pa.date64(), [dt.date(1969, 12, 31), dt.date(1970, 1, 1), dt.date(2020, 2, 29)]),
    "ts": (pa.timestamp("us"), [_T(1969, 12, 31, 23, 59, 59, 999999), _T(2020, 1, 1),
                                _T(2020, 1, 1, 0, 0, 0, 1)]),
    "tms": (pa.timestamp("ms"), [_T(2020, 1, 1), _T(2020, 1, 1, 0, 0, 0, 1000)]),
    "tss": (pa.timestamp("s"), [_T(2020, 1, 1), _T(2020, 1, 2)]),
    "tns": (pa.timestamp("ns"), [_T(2020, 1, 1), _T(2020, 1, 1, 0, 0, 0, 1)]),
    "tz": (pa.timestamp("us", "Europe/Rome"),
           [_T(2020, 1, 1), _T(2020, 7, 1), _T(2019, 12, 31, 23), _T(2020, 6, 30, 22)]),
    "t32": (pa.time32("ms"), [dt.time(0), dt.time(1, 2, 3)]),
    "t64": (pa.time64("us"), [dt.time(0), dt.time(1, 2, 3, 4)]),
    "dur": (pa.duration("us"), [dt.timedelta(0), dt.timedelta(microseconds=1)]),
    "dec": (pa.decimal128(10, 2), [Decimal("0.00"), Decimal("1.10"), Decimal("-1.10"),
                                   Decimal("99999999.99")]),
    "dec38": (pa.decimal128(38, 10), [Decimal(0), Decimal("1.1"), Decimal("-1.1")]),
    "bo": (pa.bool_(), [True, False]),
    "st.x": (pa.int64(), [1, 2, 3]),
    "st.y": (pa.string(), ["x", "y", "z"]),
    "st.in.z": (pa.float64(), [0.0, -0.0, 1.5, math.nan]),
}
_WITHOUT_FILTER = ("bo", "t32", "t64", "dur")
_ENCRYPTION = EncryptionConfiguration("mf", {"mc": ["s", "i64", "st.x"], "md": ["f64", "tz"]})


def write_files(folder, rnd, kms, files=4, row_groups=5) -> None:
    """Write encrypted files of random rows, with few values in each row group."""
    folder.mkdir()
    number = 0
    for name in range(files):
        parts = []
        for _ in range(row_groups):
            size = rnd.choice([1, 2, 3, 5])
            parts.append(_rows(rnd, number, size))
            number += size
        bloom_filters = {column: True for column in COLUMNS if column not in _WITHOUT_FILTER}
        with secure_bloom.ParquetWriter(
                folder / f"{name}.parquet", parts[0].schema, bloom_filters=bloom_filters,
                encryption=_ENCRYPTION, keys=kms) as writer:
            for part in parts:
                writer.write_table(part)


def build_indexes(folder, kms) -> None:
    """Build an index of each column that can have one."""
    encrypted = [column for columns in _ENCRYPTION.column_keys.values() for column in columns]
    plain = set(COLUMNS) - set(_WITHOUT_FILTER) - set(encrypted)
    secure_bloom.index.build(folder, encrypted, kms)
    secure_bloom.index.build(folder, sorted(plain), kms, encryption=None)


def _rows(rnd, first: int, size: int) -> pa.Table:
    share_of_nulls = rnd.choice([0, 0, 0.3, 1.0 if rnd.random() < 0.3 else 0.1])

    def column(name: str) -> pa.Array:
        t, values = COLUMNS[name]
        some = rnd.sample(values, min(len(values), rnd.choice([1, 1, 2, 3])))
        found = [None if rnd.random() < share_of_nulls else rnd.choice(some) for _ in range(size)]
        if pa.types.is_dictionary(t):
            return pa.array(found, t.value_type).cast(t)
        return pa.array(found, t)

    def struct(**fields: pa.Array) -> pa.StructArray:
        mask = pa.array([rnd.random() < 0.2 for _ in range(size)])
        return pa.StructArray.from_arrays(list(fields.values()), list(fields), mask=mask)

    columns = {"row": pa.array(range(first, first + size))}
    columns |= {name: column(name) for name in COLUMNS if "." not in name}
    inner = struct(z=column("st.in.z"))
    columns["st"] = struct(x=column("st.x"), y=column("st.y"), **{"in": inner})
    columns["li"] = pa.array([rnd.choice([None, [], [1], [2, None]]) for _ in range(size)],
                             pa.list_(pa.int64()))
    return pa.table(columns)


class Leaf:
    """A comparison of a column with values; ``op`` is as in SQL."""

    def __init__(self, rnd):
        self.column = rnd.choice(list(COLUMNS))
        self.op = rnd.choice(["=", "=", "=", "IN", "IN", "<", ">", "<=", ">=", "<>", "IS NULL",
                              "IS NOT NULL", "BETWEEN", "IS NOT DISTINCT FROM"])
        number = {"IN": rnd.choice([1, 2, 3]), "BETWEEN": 2}.get(self.op, 1)
        self.values = [rnd.choice(COLUMNS[self.column][1]) for _ in range(number)]


def random_condition(rnd, depth: int | None = None):
    """Return a Leaf, or a tuple of "and", "or" or "not" and conditions."""
    if depth is None:
        depth = rnd.choice([0, 0, 1, 2])
    if depth == 0 or rnd.random() < 0.3:
        return Leaf(rnd)
    kind = rnd.choices(["and", "or", "not"], [40, 45, 15])[0]
    return kind, *(random_condition(rnd, depth - 1) for _ in range(1 if kind == "not" else 2))


def leaves(condition) -> list[Leaf]:
    """Return the comparisons in a condition."""
    if isinstance(condition, Leaf):
        return [condition]
    return [leaf for part in condition[1:] for leaf in leaves(part)]
