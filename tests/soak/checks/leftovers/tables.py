"""Tables whose values can be recognised in any bytes."""

from __future__ import annotations

import decimal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.parquet.encryption import EncryptionConfiguration

from secure_bloom.keys import InMemoryKms
from tests.modes import MASTER_KEYS
from tests.soak.check import Case
from tests.soak.generators import KMS_MODES, random_options
from tests.support import encrypted_arrow_file

POOL = 60  # distinct values of a column

_TEXTS = pa.string(), pa.large_string(), pa.binary(), pa.string_view(), pa.binary(16)
_NUMBERS = (pa.int64(), pa.uint64(), pa.float64(), pa.decimal128(38, 0), pa.timestamp("us"),
            pa.timestamp("ns", "UTC"), pa.time64("ns"))


@dataclass
class Column:
    """A column, and how its values look in bytes, by number."""

    type: pa.DataType
    values: pa.Array
    tokens: list[bytes]
    nesting: str
    by_dictionary: str  # none, unordered, ordered

    @classmethod
    def random(cls, case: Case, *, is_flat: bool = False) -> Column:
        """Return a column of a random type with random values."""
        choose = case.random.choice
        by_dictionary = choose(["none", "none", "unordered", "unordered", "ordered"])
        kind = choose(_TEXTS[:3]) if by_dictionary != "none" else choose([*_TEXTS, *_NUMBERS])
        values, tokens = _values(case, kind)
        return cls(kind, values, tokens, "" if is_flat else choose(["", "", "struct", "list"]),
                   by_dictionary)

    def array(self, numbers: Sequence[int]) -> pa.Array:
        """Return the values of these numbers; a dictionary has all values, used or not."""
        indices = pa.array(numbers, pa.int32())
        leaf = pa.concat_arrays([self.values.slice(number, 1) for number in numbers]) \
            if self.by_dictionary == "none" else pa.DictionaryArray.from_arrays(
                indices, self.values, ordered=self.by_dictionary == "ordered")
        if self.nesting == "struct":
            return pa.StructArray.from_arrays([leaf], ["a"])
        if self.nesting == "list":
            return pa.ListArray.from_arrays(pa.array(range(len(leaf) + 1), pa.int32()), leaf)
        return leaf


def _values(case: Case, kind: pa.DataType) -> tuple[pa.Array, list[bytes]]:
    """Return distinct values, and what of them is found in plain encoding."""
    if kind in _TEXTS:
        texts = [case.random.randbytes(8).hex() for _ in range(POOL)]
        values = pa.array([text.encode() for text in texts] if pa.types.is_binary(kind)
                          or pa.types.is_fixed_size_binary(kind) else texts, kind)
        return values, [text[-12:].encode() for text in texts]  # prefixes may be shared
    numbers = [case.random.randrange(1 << 44, 1 << 46) for _ in range(POOL)]
    if pa.types.is_decimal(kind):
        big = [(case.random.getrandbits(60) << 60) + number for number in numbers]
        return (pa.array([decimal.Decimal(one) for one in big], kind),
                [one.to_bytes(16, "big")[-12:] for one in big])
    if pa.types.is_floating(kind):
        floats = case.numpy.random(POOL)
        return pa.array(floats), [one.tobytes() for one in floats]
    numbers = [number // 1000 * 1000 for number in numbers]  # Python has no nanoseconds
    return pa.array(numbers, pa.int64()).view(kind), \
        [number.to_bytes(8, "little") for number in numbers]


@dataclass
class Lake:
    """A folder of files of several writers, and which rows they have: numbers of values."""

    folder: Path
    columns: dict[str, Column]
    rows: list[dict[str, int]] = field(default_factory=list)
    writers: list[str] = field(default_factory=list)
    of_files: list[list[dict[str, int]]] = field(default_factory=list)

    @classmethod
    def write(cls, case: Case, folder: Path) -> Lake:
        """Write one to three files."""
        folder.mkdir()
        lake = cls(folder, {"ssn": Column.random(case, is_flat=True),
                            **{f"c{number}": Column.random(case)
                               for number in range(case.random.randrange(1, 4))}})
        family = case.random.choice(FAMILIES)
        for number in range(case.random.randrange(1, 4)):
            size, most = case.random.choice([3, 20, 50]), case.random.choice([8, POOL])
            rows = [{name: case.random.randrange(most) for name in lake.columns}
                    for _ in range(size)]
            table = pa.table({name: column.array([row[name] for row in rows])
                              for name, column in lake.columns.items()})
            name = case.random.choice(family)
            WRITERS[name](case, table, folder / f"{number}.parquet")
            lake.writers.append(name)
            lake.of_files.append(rows)
            lake.rows += rows
        return lake

    def tokens(self, rows: Sequence[dict[str, int]]) -> set[bytes]:
        """Return how the values of some rows look in bytes."""
        return {self.columns[name].tokens[number] for row in rows for name, number in row.items()}

    def kept_tokens(self) -> set[bytes]:
        """Return the values of scales, which dictionaries keep."""
        return {token for name, column in self.columns.items()
                if name != "ssn" and column.by_dictionary == "ordered" for token in column.tokens}


def _options(case: Case) -> dict[str, object]:
    return {**random_options(case), "use_dictionary": case.random.random() < 0.8,
            "row_group_size": case.random.choice([7, 20, 1000])}


def _ours(case: Case, table: pa.Table, path: Path) -> None:
    mode = case.random.choice(KMS_MODES)
    mode.write(table, path, {"kc1": ["ssn"]}, bloom_filters=["ssn"],  **_options(case))


def _pyarrow(case: Case, table: pa.Table, path: Path) -> None:
    pq.write_table(table, path, **_options(case))


def _unknown(case: Case, table: pa.Table, path: Path) -> None:
    pq.write_table(table, path, store_schema=False, **_options(case))


def _pyarrow_encrypted(case: Case, table: pa.Table, path: Path) -> None:
    data, _ = encrypted_arrow_file(
        table, EncryptionConfiguration("kf", column_keys={"kc1": ["ssn"]},
                                       double_wrapping=case.random.random() < 0.5),
        InMemoryKms(MASTER_KEYS), **_options(case))
    path.write_bytes(data)


def _polars(case: Case, table: pa.Table, path: Path) -> None:
    pl.from_arrow(table).write_parquet(
        path, row_group_size=case.random.choice([7, 1000]),
        compression=case.random.choice(["uncompressed", "snappy", "zstd", "gzip"]))


def _duckdb(case: Case, table: pa.Table, path: Path) -> None:
    codec = case.random.choice(["uncompressed", "snappy", "zstd"])
    with duckdb.connect() as connection:
        connection.register("t", table)
        connection.execute(f"COPY t TO '{path}' (FORMAT parquet, COMPRESSION {codec})")


WRITERS: dict[str, Callable[[Case, pa.Table, Path], None]] = {
    "ours": _ours, "pyarrow": _pyarrow, "pyarrow encrypted": _pyarrow_encrypted,
    "pyarrow without schema": _unknown, "polars": _polars, "duckdb": _duckdb}

#: writers whose files have the same types; there is an index if all files are ours
FAMILIES = (["ours"], ["ours"], ["ours", "pyarrow", "pyarrow encrypted"],
            ["ours", "pyarrow", "pyarrow encrypted"], ["pyarrow without schema"], ["polars"],
            ["duckdb"])
