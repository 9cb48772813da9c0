"""What secure_bloom writes, parquet-java, Arrow C++ and DuckDB read: rows, filters, answers."""

import datetime
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from secure_bloom import (
    EncryptionConfiguration,
    ParquetFile,
    SplitBlockBloomFilter,
    write_table,
)
from tests.modes import MODES, PLAINTEXT, Mode
from tests.peers.arrow_cpp import ArrowCpp
from tests.peers.parquet_java import ParquetJava
from tests.peers.records import FilterRecord, Value

COUNT, GROUP_ROWS = 40, 15
GROUPS = [slice(0, 15), slice(15, 30), slice(30, 40)]
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)

# By column: type, and the value of row i. i may be any integer: rows have 0 to COUNT - 1.
FIELDS = {
    "id": (pa.int64(), lambda i: 2**62 + i),
    "small": (pa.int32(), lambda i: -7 * i - 7),
    "real": (pa.float64(), lambda i: i / 3 + 1),
    "name": (pa.string(), lambda i: f"näme {i}"),
    "price": (pa.decimal128(9, 2), lambda i: Decimal(i * 101 + 101) / 100),
    "amount": (pa.decimal128(18, 4), lambda i: Decimal(-i * 10**12 - 1) / 10**4),
    "total": (pa.decimal128(25, 3), lambda i: Decimal(10**20 - i) / 1000),
    "day": (pa.date32(), lambda i: datetime.date(1969, 12, 20) + datetime.timedelta(i)),
    "moment": (pa.timestamp("us", "UTC"), lambda i: EPOCH + datetime.timedelta(i - 9, 0, i)),
    "code": (pa.binary(4), lambda i: (i * 2**20).to_bytes(4)),
    "city": (pa.string(), lambda i: f"{i}. città"),
    "tag": (pa.string(), lambda i: f"tag {i}"),
}
NULL_EVERY = {"name": 4, "price": 5, "total": 7, "moment": 3, "city": 6, "tag": 2}
LEAVES = {**{name: name for name in FIELDS}, "city": "address.city", "tag": "tags.list.element"}
COLUMN_KEYS = {"kc1": ["id", "name", "total", "address.city"],
               "kc2": ["real", "price", "moment", "tags.list.element"]}

Written = Callable[[Mode], Path]
every_mode = pytest.mark.parametrize("mode", MODES, ids=str)


def values_of(field: str, rows: range = range(COUNT)) -> list:
    """The values of the rows; what is below a list is the one element that counts."""
    type_, value = FIELDS[field]
    every = NULL_EVERY.get(field, COUNT + 1)
    return pa.array([None if i % every == every - 1 else value(i) for i in rows],
                    type_).to_pylist()


def table() -> pa.Table:
    columns = {name: pa.array(values_of(name), type_) for name, (type_, _) in FIELDS.items()}
    cities, tags = columns.pop("city"), columns.pop("tag")
    columns["address"] = pa.StructArray.from_arrays(
        [cities, pa.array(range(COUNT))], ["city", "number"],
        mask=pa.array([i % 11 == 10 for i in range(COUNT)]))
    columns["tags"] = pa.array([None if i % 13 == 12 else [] if i % 13 == 11 else [tag, "all"]
                                for i, tag in enumerate(tags.to_pylist())], pa.list_(pa.string()))
    return pa.table(columns)


TABLE = table()


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """A function that returns the file of a mode, which is written once."""
    paths: dict[str, Path] = {}

    def written(mode: Mode) -> Path:
        if str(mode) not in paths:
            paths[str(mode)] = write(mode, tmp_path_factory.mktemp("ours"))
        return paths[str(mode)]

    return written


def write(mode: Mode, folder: Path) -> Path:
    path = folder / "ours.parquet"
    mode.write(TABLE, path, COLUMN_KEYS, row_group_size=GROUP_ROWS, store_decimal_as_integer=True,
               bloom_filters=dict.fromkeys(LEAVES.values(), True))
    return path


def physical(value, field: str) -> Value:
    """A value as parquet-java and Arrow C++ have it."""
    type_ = FIELDS[field][0]
    if isinstance(value, Decimal):
        unscaled = int(value.scaleb(type_.scale))
        return unscaled.to_bytes(11, signed=True) if type_.precision > 18 else unscaled
    if isinstance(value, datetime.datetime):
        return (value - EPOCH) // datetime.timedelta(microseconds=1)
    return (value - EPOCH.date()).days if isinstance(value, datetime.date) else value


def java_rows() -> list[dict]:
    """The table as parquet-java gives it."""
    def plain(value, field):
        value = None if value is None else physical(value, field)
        return value.encode() if isinstance(value, str) else value

    rows = []
    for row in TABLE.to_pylist():
        address, tags = row.pop("address"), row.pop("tags")
        row = {name: plain(value, name) for name, value in row.items()}
        if address is not None:
            address["city"] = plain(address["city"], "city")
        if tags is not None:
            tags = {"list": [{"element": plain(tag, "tag")} for tag in tags]}
        rows.append({**row, "address": address, "tags": tags})
    return rows


def our_filters(path: Path, mode: Mode) -> list[FilterRecord]:
    with ParquetFile(path, mode.keys) as file:
        return [FilterRecord(info.row_group, info.column, info.offset, info.length, info.num_bytes,
                             bytes(file.read_bloom_filter(info.row_group, info.column).bitset))
                for info in file.bloom_filters]


@every_mode
def test_parquet_java_reads_the_rows(parquet_java: ParquetJava, written: Written, mode: Mode):
    rows, groups = parquet_java.read(written(mode), mode.java_keys)
    assert rows == java_rows()
    assert groups == [15, 15, 10]


@every_mode
def test_peers_see_the_same_filters(parquet_java: ParquetJava, arrow_cpp: ArrowCpp,
                                    written: Written, mode: Mode):
    path = written(mode)
    filters = our_filters(path, mode)
    assert [(f.row_group, f.column) for f in filters] \
        == [(group, leaf) for group in range(3) for leaf in LEAVES.values()]
    assert parquet_java.filters(path, mode.java_keys) == filters
    assert arrow_cpp.filters(path, mode.explicit_keys(path)) == filters


@every_mode
def test_parquet_java_sees_which_columns_are_encrypted(parquet_java: ParquetJava, written: Written,
                                                       mode: Mode):
    path = written(mode)
    footer = parquet_java.footer(path, mode.java_keys)
    encrypted = {record["column"] for record in footer["columns"] if record["encrypted"]}
    if mode.is_uniform:
        assert encrypted == {*LEAVES.values(), "address.number"}
    else:
        sensitive = {column for columns in COLUMN_KEYS.values() for column in columns}
        assert encrypted == (sensitive if mode.is_encrypted else set())


@every_mode
def test_peers_answer_probes_alike(parquet_java: ParquetJava, arrow_cpp: ArrowCpp,
                                   written: Written, mode: Mode):
    path = written(mode)
    java_keys, cpp_keys = mode.java_keys, mode.explicit_keys(path)
    file = ParquetFile(path, mode.keys)
    for field, leaf in LEAVES.items():
        type_, value = FIELDS[field]
        present = [v for v in values_of(field) if v is not None]
        absent = pa.array(map(value, range(COUNT, 3 * COUNT)), type_).to_pylist()
        asked = [physical(v, field) for v in present + absent]
        answers = parquet_java.probe(path, java_keys, leaf, asked)
        assert arrow_cpp.probe(path, cpp_keys, leaf, asked) == answers
        ours = file.might_contain(leaf, pa.array(present + absent, type_))
        assert ours.tolist() == answers
        assert ours[:, len(present):].mean() < 0.05


@every_mode
def test_parquet_java_skips_the_same_row_groups(parquet_java: ParquetJava, written: Written,
                                                mode: Mode):
    path = written(mode)
    file = ParquetFile(path, mode.keys)
    # parquet-java's predicates take no repeated columns
    fields = [f for f in FIELDS if f != "tag"] if mode in MODES[:2] else ["id", "amount", "city"]
    for field in fields:
        value = FIELDS[field][1]
        for row, group in ((16, 1), (37, 2), (COUNT + 1, None)):
            kept = file.prune([(LEAVES[field], "==", value(row))])
            assert kept == parquet_java.row_groups_for(path, mode.java_keys, LEAVES[field],
                                                       physical(value(row), field))
            assert kept == [] if group is None else group in kept


PHYSICAL_TYPES = {"id": "INT64", "small": "INT32", "real": "DOUBLE", "name": "BYTE_ARRAY",
                  "price": "INT32", "amount": "INT64", "total": "FIXED_LEN_BYTE_ARRAY",
                  "day": "INT32", "moment": "INT64", "code": "FIXED_LEN_BYTE_ARRAY",
                  "city": "BYTE_ARRAY", "tag": "BYTE_ARRAY"}


@pytest.mark.parametrize("field", FIELDS)
def test_filters_hold_the_values_and_nothing_else(
        arrow_cpp: ArrowCpp, written: Written, field: str):
    file = ParquetFile(written(PLAINTEXT))
    for group, rows in enumerate(GROUPS):
        values = stored_values(field, rows)
        assert values and not {"", 0} & set(values)  # which a null might become
        filter_ = file.read_bloom_filter(group, LEAVES[field])
        rebuilt = SplitBlockBloomFilter(filter_.num_blocks)
        rebuilt.insert_hashes(arrow_cpp.hash(PHYSICAL_TYPES[field],
                                             [physical(value, field) for value in values]))
        assert filter_ == rebuilt
        assert file.might_contain(LEAVES[field], pa.array(values, FIELDS[field][0]))[group].all()


def stored_values(field: str, rows: slice) -> list:
    """The values of a leaf, without nulls, as the file has them."""
    part = TABLE[rows]
    if field == "tag":
        return [tag for tags in part["tags"].to_pylist() for tag in tags or [] if tag is not None]
    column = part["address"].combine_chunks().flatten()[0] if field == "city" else part[field]
    return column.drop_null().to_pylist()


# DuckDB probes neither nested columns nor decimals of fixed length.
@pytest.mark.parametrize("field", [f for f in FIELDS if f not in ("city", "tag", "total")])
def test_duckdb_excludes_the_same_row_groups(written: Written, field: str):
    path = written(PLAINTEXT)
    file = ParquetFile(path)
    type_, value = FIELDS[field]
    for row in (16, 37, COUNT + 1):
        excluded = duckdb.execute(
            "select bloom_filter_excludes from parquet_bloom_probe(?, ?, ?) order by row_group_id",
            [str(path), field, value(row)]).fetchall()
        ours = file.might_contain(field, pa.array([value(row)], type_))[:, 0]
        assert [not answer for (answer,) in excluded] == ours.tolist()


def test_columns_under_the_master_key_of_the_footer(parquet_java: ParquetJava, arrow_cpp: ArrowCpp,
                                                    tmp_path: Path):
    """All columns are encrypted: some with keys of their own, the others as the footer is."""
    mode = Mode("other columns", {})
    path = tmp_path / "ours.parquet"
    write_table(TABLE, path, row_group_size=GROUP_ROWS, store_decimal_as_integer=True,
                bloom_filters=dict.fromkeys(LEAVES.values(), True), keys=mode.keys,
                encryption=EncryptionConfiguration("kf", COLUMN_KEYS, other_columns="footer key"))
    rows, groups = parquet_java.read(path, mode.java_keys)
    assert rows == java_rows() and groups == [15, 15, 10]
    footer = parquet_java.footer(path, mode.java_keys)
    assert all(record["encrypted"] for record in footer["columns"])
    filters = our_filters(path, mode)
    assert len(filters) == 3 * len(LEAVES)
    assert parquet_java.filters(path, mode.java_keys) == filters
    assert arrow_cpp.filters(path, mode.explicit_keys(path)) == filters
