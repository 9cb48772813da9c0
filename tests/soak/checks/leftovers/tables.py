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
from secure_bloom.parquet import thrift
from secure_bloom.reading.open_file import OpenFile
from tests.modes import MASTER_KEYS
from tests.soak.check import Case
from tests.soak.generators import KMS_MODES, random_options
from tests.support import encrypted_arrow_file

POOL = 60  # distinct values of a column

_TEXTS = pa.string(), pa.large_string(), pa.binary(), pa.string_view(), pa.binary(16)
_NUMBERS = (pa.int64(), pa.uint64(), pa.float64(), pa.decimal128(38, 0), pa.timestamp("us"),
            pa.timestamp("ns", "UTC"), pa.time64("ns"))
_OF_ARROW = (pa.large_binary(), pa.binary_view(), pa.decimal64(18), pa.decimal256(76),
             pa.duration("us"), pa.timestamp("ms"))
#: too short to be recognised: a value is a list of several
_SHORT = (pa.int32(), pa.uint32(), pa.float32(), pa.float16(), pa.date32(), pa.time32("ms"),
          pa.decimal32(9))
_IN_LIST = 8
_NESTINGS = "", "", "struct", "list"
_NESTINGS_OF_ARROW = (*_NESTINGS, "large list", "fixed list", "list view", "large list view", "map",
                      "struct in list")


@dataclass
class Column:
    """A column, and how its values look in bytes, by number."""

    type: pa.DataType
    values: pa.Array
    tokens: list[bytes]
    nesting: str
    by_dictionary: str  # none, unordered, ordered

    @classmethod
    def random(cls, case: Case, *, is_flat: bool = False, of_arrow: bool = False) -> Column:
        """Return a column of a random type with random values, perhaps of one that few know."""
        choose = case.random.choice
        by_dictionary = choose(["none", "none", "unordered", "unordered", "ordered"])
        kinds = [*_TEXTS, *_NUMBERS, *(_OF_ARROW + _SHORT if of_arrow and not is_flat else ())]
        kind = choose(_TEXTS[:3]) if by_dictionary != "none" else choose(kinds)
        values, tokens = _values(case, kind)
        nesting = choose(_NESTINGS_OF_ARROW if of_arrow else _NESTINGS)
        if "view" in str(kind):
            nesting = ""  # pyarrow cannot write slices of others
        return cls(kind, values, tokens, "" if is_flat else nesting, by_dictionary)

    def array(self, numbers: Sequence[int]) -> pa.Array:
        """Return the values of these numbers; a dictionary has all values, used or not."""
        indices = pa.array(numbers, pa.int32())
        leaf = pa.concat_arrays([self.values.slice(number, 1) for number in numbers]) \
            if self.by_dictionary == "none" else pa.DictionaryArray.from_arrays(
                indices, self.values, ordered=self.by_dictionary == "ordered")
        return _nested(leaf, self.nesting)


def _nested(leaf: pa.Array, nesting: str) -> pa.Array:
    offsets = pa.array(range(len(leaf) + 1), pa.int32())
    ones = pa.array([1] * len(leaf), pa.int32())
    if nesting == "struct":
        return pa.StructArray.from_arrays([leaf], ["a"])
    if nesting == "struct in list":
        return _nested(_nested(leaf, "struct"), "list")
    if nesting == "list":
        return pa.ListArray.from_arrays(offsets, leaf)
    if nesting == "large list":
        return pa.LargeListArray.from_arrays(offsets.cast(pa.int64()), leaf)
    if nesting == "fixed list":
        return pa.FixedSizeListArray.from_arrays(leaf, 1)
    if nesting == "list view":
        return pa.ListViewArray.from_arrays(offsets[:-1], ones, leaf)
    if nesting == "large list view":
        return pa.LargeListViewArray.from_arrays(offsets[:-1].cast(pa.int64()),
                                                 ones.cast(pa.int64()), leaf)
    if nesting == "map":
        return pa.MapArray.from_arrays(offsets, ones, leaf)
    return leaf


def _values(case: Case, kind: pa.DataType) -> tuple[pa.Array, list[bytes]]:
    """Return distinct values, and what of them is found in plain encoding."""
    if "binary" in str(kind) or "string" in str(kind):
        texts = [case.random.randbytes(8).hex() for _ in range(POOL)]
        values = pa.array([text.encode() for text in texts] if "binary" in str(kind) else texts,
                          kind)
        return values, [text[-12:].encode() for text in texts]  # prefixes may be shared
    if kind in _SHORT:
        return _lists_of(case, kind)
    numbers = [case.random.randrange(1 << 44, 1 << 46) for _ in range(POOL)]
    if pa.types.is_decimal(kind):
        bits = {18: 59, 38: 120, 76: 250}[kind.precision]
        big = [case.random.getrandbits(bits) | 1 << bits - 1 for _ in numbers]
        return (pa.array([decimal.Decimal(one) for one in big], kind),
                [one.to_bytes(kind.byte_width, "big")[-12:] for one in big])
    if pa.types.is_floating(kind):
        floats = case.numpy.random(POOL)
        return pa.array(floats), [one.tobytes() for one in floats]
    numbers = [number // 1000 * 1000 for number in numbers]  # Python has no nanoseconds
    return pa.array(numbers, pa.int64()).view(kind), \
        [number.to_bytes(8, "little") for number in numbers]


def _lists_of(case: Case, kind: pa.DataType) -> tuple[pa.Array, list[bytes]]:
    """Return lists of short values, and what of each list is found in plain encoding."""
    size = POOL * _IN_LIST
    if pa.types.is_decimal(kind):
        numbers = [case.random.randrange(1 << 27, 1 << 29) for _ in range(size)]
        leaf = pa.array(list(map(decimal.Decimal, numbers)), kind)
        parts = [number.to_bytes(4, "big") for number in numbers]
    else:
        numbers = [case.random.randrange(1 << 20, 1 << 21) for _ in range(size)]
        leaf = pa.array(case.numpy.random(size).astype(f"f{kind.bit_width // 8}")) \
            if pa.types.is_floating(kind) else pa.array(numbers, pa.int32()).view(kind)
        data, width = leaf.buffers()[1].to_pybytes(), kind.bit_width // 8
        parts = [data[start:start + width] for start in range(0, len(data), width)]
    return pa.FixedSizeListArray.from_arrays(leaf, _IN_LIST), [
        b"".join(parts[start:start + _IN_LIST]) for start in range(0, size, _IN_LIST)]


@dataclass
class Lake:
    """A folder of files of several writers, and which rows they have: numbers of values."""

    folder: Path
    columns: dict[str, Column]
    rows: list[dict[str, int]] = field(default_factory=list)
    writers: list[str] = field(default_factory=list)
    of_files: list[list[dict[str, int]]] = field(default_factory=list)
    noted: set[bytes] = field(default_factory=set)  # in key-value metadata

    @classmethod
    def write(cls, case: Case, folder: Path) -> Lake:
        """Write one to three files."""
        folder.mkdir()
        family = case.random.choice(FAMILIES)
        of_arrow = "ours" in family
        lake = cls(folder, {"ssn": Column.random(case, is_flat=True),
                            **{f"c{number}": Column.random(case, of_arrow=of_arrow)
                               for number in range(case.random.randrange(1, 4))}})
        for number in range(case.random.randrange(1, 4)):
            size, most = case.random.choice([3, 20, 50]), case.random.choice([8, POOL])
            rows = [{name: case.random.randrange(most) for name in lake.columns}
                    for _ in range(size)]
            table = pa.table({name: column.array([row[name] for row in rows])
                              for name, column in lake.columns.items()})
            table = table.append_column("flag", pa.array([row["ssn"] % 2 == 0 for row in rows]))
            name, path = case.random.choice(family), folder / f"{number}.parquet"
            if name == "pyarrow" and case.random.random() < 0.2:
                note = lake.columns["ssn"].tokens[rows[0]["ssn"]]
                lake.noted.add(note)
                table = table.replace_schema_metadata({"note": note})
            WRITERS[name](case, table, path)
            if name.startswith("pyarrow") and "encrypted" not in name \
                    and case.random.random() < 0.3:
                _forge(path)
            lake.writers.append(name)
            lake.of_files.append(rows)
            lake.rows += rows
        if not set(lake.writers) & {"ours", "pyarrow encrypted"} and case.random.random() < 0.5:
            lake._summarize()
        return lake

    def _summarize(self) -> None:
        """Write a summary of the files, as far as their schemas are equal."""
        found: list[pq.FileMetaData] = []
        for path in sorted(self.folder.iterdir()):
            metadata = pq.read_metadata(path)
            if not found or metadata.schema.equals(found[0].schema):
                metadata.set_file_path(path.name)
                found.append(metadata)
        for metadata in found[1:]:
            found[0].append_row_groups(metadata)
        found[0].write_metadata_file(self.folder / "_metadata")

    def tokens(self, rows: Sequence[dict[str, int]]) -> set[bytes]:
        """Return how the values of some rows look in bytes."""
        return {self.columns[name].tokens[number] for row in rows for name, number in row.items()}

    def kept_tokens(self) -> set[bytes]:
        """Return the values of scales, which dictionaries keep."""
        return {token for name, column in self.columns.items()
                if name != "ssn" and column.by_dictionary == "ordered" for token in column.tokens}


def _forge(path: Path) -> None:
    """Claim that parquet-java wrote a file, and add extensions with a copy of the footer."""
    with OpenFile(path) as file:
        content = file.stored_footer
    meta, _ = thrift.decode(content, {4: [{1: [{3: {}}]}]})
    meta.set_binary(6, b"parquet-mr version 1.17.0 (build 1)")
    for struct in (meta, *(chunk.get(3) for group in meta.get(4) for chunk in group.get(1))):
        struct.set_binary(32767, content)
    footer = thrift.encode(meta)
    path.write_bytes(path.read_bytes()[:-8 - len(content)] + footer
                     + len(footer).to_bytes(4, "little") + b"PAR1")


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
