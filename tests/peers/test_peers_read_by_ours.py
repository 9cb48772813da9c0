"""What parquet-java, pyarrow and DuckDB write, secure_bloom reads: filters, answers, rows."""

import datetime
import functools
import struct
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from secure_bloom import ExplicitKeys, ParquetFile
from secure_bloom.errors import UnsupportedError
from secure_bloom.keys import InMemoryKms
from secure_bloom.sbbf.arrow_types import column_type_of
from secure_bloom.sbbf.column_type import ColumnType
from secure_bloom.sbbf.hashing import hash_values
from tests.peers.arrow_cpp import ArrowCpp
from tests.peers.examples import (
    COLUMNS,
    GROUP_SIZES,
    MODES,
    ROWS,
    SCHEMA,
    leaves,
    write,
)
from tests.peers.keys import KeyTools
from tests.peers.parquet_java import AnyKeys, Bloom, ParquetJava
from tests.reading.ways import by_pages, by_row_groups, counted

every_mode = pytest.mark.parametrize("mode", MODES)


@pytest.fixture(scope="module")
def written(parquet_java: ParquetJava, tmp_path_factory: pytest.TempPathFactory) \
        -> Callable[[str], Path]:
    """A function that returns the file of a mode, which parquet-java writes once."""
    @functools.cache
    def written(mode: str) -> Path:
        return write(parquet_java, tmp_path_factory.mktemp("java") / "a.parquet", MODES[mode])

    return written


def our_keys(keys: AnyKeys) -> InMemoryKms | ExplicitKeys | None:
    if isinstance(keys, KeyTools):
        return InMemoryKms(keys.master_keys)
    if keys is None:
        return None
    own = {column: key for column, key in keys.column_keys.items() if key is not None}
    return ExplicitKeys(keys.footer_key, own, aad_prefix=keys.aad_prefix)


@every_mode
def test_filters_are_bit_for_bit_those_of_parquet_java(
        parquet_java: ParquetJava, written: Callable[[str], Path], mode: str):
    path = written(mode)
    theirs = parquet_java.filters(path, MODES[mode])
    file = ParquetFile(path, our_keys(MODES[mode]))
    assert [(i.row_group, i.column, i.offset, i.length, i.num_bytes) for i in file.bloom_filters] \
        == [(f.row_group, f.column, f.offset, f.length, f.num_bytes) for f in theirs]
    for filter_ in theirs:
        ours = file.read_bloom_filter(filter_.row_group, filter_.column)
        assert bytes(ours.bitset) == filter_.bitset
    encrypted = {(r["row_group"], r["column"]): r["encrypted"]
                 for r in parquet_java.footer(path, MODES[mode])["columns"]}
    assert all(i.encrypted == encrypted[i.row_group, i.column] for i in file.bloom_filters)


def nanoseconds(int96: bytes) -> int:
    of_day, julian_day = struct.unpack("<qi", int96)
    return (julian_day - 2_440_588) * 86_400 * 10**9 + of_day


def ours_of(column: str, values: list) -> pa.Array | list:
    """Values for our probes of those that parquet-java takes."""
    if column == "moment":
        return pa.array(list(map(nanoseconds, values)), pa.timestamp("ns"))
    return values


@every_mode
def test_probes_are_answered_alike(
        parquet_java: ParquetJava, written: Callable[[str], Path], mode: str):
    keys = MODES[mode]
    path = written(mode)
    file = ParquetFile(path, our_keys(keys))
    for column in COLUMNS:
        ours = file.might_contain(column, ours_of(column, leaves(column)))
        assert ours.tolist() == parquet_java.probe(path, keys, column, leaves(column))
        assert ours.any(axis=0).all()
    absent = list(range(500))
    assert file.might_contain("id", absent).tolist() \
        == parquet_java.probe(path, keys, "id", absent)


@every_mode
def test_pruned_reads_give_the_right_rows(written: Callable[[str], Path], mode: str):
    path = written(mode)
    file = ParquetFile(path, our_keys(MODES[mode]))
    table = file.read()
    assert table["id"].to_pylist() == [row["id"] for row in ROWS]
    assert table["name"].to_pylist() == [row["name"] and row["name"].decode() for row in ROWS]
    assert table["code"].to_pylist() == [row["code"] for row in ROWS]
    assert table["tags"].to_pylist()[:2] == [["even", None], ["odd", None]]
    for column in ("id", "small", "real", "name", "code"):
        for number, group in ((5, 0), (9, 1), (18, 2)):
            value = ROWS[number][column]
            value = value.decode() if column == "name" else value
            filters = [(column, "==", value)]
            assert group in file.prune(filters)
            assert file.read(["id"], filters)["id"].to_pylist() == [ROWS[number]["id"]]
    assert file.prune([("id", "==", 5)]) == []
    assert file.read(filters=[("id", "==", 5)]).num_rows == 0
    assert [part.num_rows for part in file.iter_tables()] == GROUP_SIZES


@pytest.mark.parametrize("num_bytes", [32, 96, 6400, 2**16])
def test_bitsets_of_any_number_of_blocks(parquet_java: ParquetJava, tmp_path: Path, num_bytes: int):
    path = tmp_path / "a.parquet"
    parquet_java.write(path, SCHEMA, ROWS, keys=MODES["column keys"], row_group_rows=8,
                       bloom={"id": Bloom()}, bloom_max_bytes=num_bytes)
    [theirs, *_] = parquet_java.filters(path, MODES["column keys"])
    file = ParquetFile(path, our_keys(MODES["column keys"]))
    assert file.read_bloom_filter(0, "id").num_bytes == num_bytes
    assert bytes(file.read_bloom_filter(0, "id").bitset) == theirs.bitset
    values = leaves("id") + list(range(200))
    assert file.might_contain("id", values).tolist() \
        == parquet_java.probe(path, MODES["column keys"], "id", values)


def test_a_bitset_of_no_whole_blocks_tells_nothing(parquet_java: ParquetJava, tmp_path: Path):
    path = tmp_path / "a.parquet"
    parquet_java.write(path, SCHEMA, ROWS, keys=MODES["uniform"], bloom={"id": Bloom()},
                       bloom_max_bytes=1000)
    [theirs] = parquet_java.filters(path, MODES["uniform"])
    assert theirs.num_bytes == 1000
    file = ParquetFile(path, our_keys(MODES["uniform"]))
    with pytest.raises(UnsupportedError, match="multiple of 32"):
        file.read_bloom_filter(0, "id")
    assert file.might_contain("id", [5]).tolist() == [[True]]
    assert file.bloom_filters[0].num_bytes is None


@pytest.mark.parametrize(("mode", "options"), [
    # parquet-java leaves the levels of encrypted V2 pages in plaintext, so pyarrow cannot read them
    ("plain", {"page_version": 2, "codec": "ZSTD"}),
    ("tools", {"codec": "SNAPPY"}),
    ("tools", {"bloom_adaptive": True, "page_rows": 3})])
def test_other_pages_and_adaptive_filters(parquet_java: ParquetJava, tmp_path: Path, mode: str,
                                          options: dict):
    path, keys = tmp_path / "a.parquet", MODES[mode]
    parquet_java.write(path, SCHEMA, ROWS, keys=keys, bloom=["id", "name"], bloom_max_bytes=4096,
                       **options)
    file = ParquetFile(path, our_keys(keys))
    assert [bytes(file.read_bloom_filter(0, column).bitset) for column in ("id", "name")] \
        == [f.bitset for f in parquet_java.filters(path, keys)]
    name = ROWS[4]["name"].decode()
    assert file.read(["id"], [("name", "==", name)])["id"].to_pylist() == [ROWS[4]["id"]]


# --- plaintext filters of other writers ----------------------------------------------------------

TABLE = pa.table({
    "id": pa.array(range(100, 160)), "small": pa.array(range(-60, 0), pa.int32()),
    "real": np.arange(60) / 7, "single": (np.arange(60) / 7).astype(np.float32),
    "name": [None if i % 5 == 4 else f"näme {i}" for i in range(60)],
    "code": pa.array([b"%04d" % i for i in range(60)], pa.binary(4)),
    "tags": [[f"tag {i}", None] for i in range(60)]})


def test_filters_of_pyarrow(arrow_cpp: ArrowCpp, tmp_path: Path):
    path = tmp_path / "a.parquet"
    paths = [name for name in TABLE.column_names if name != "tags"] + ["tags.list.element"]
    pq.write_table(TABLE, path, row_group_size=25,
                   bloom_filter_options={p: {"ndv": 25, "fpp": 0.01} for p in paths})
    file = ParquetFile(path)
    theirs = arrow_cpp.filters(path)
    assert [(f.row_group, f.column) for f in theirs] == [(g, p) for g in range(3) for p in paths]
    for filter_ in theirs:
        ours = file.read_bloom_filter(filter_.row_group, filter_.column)
        assert bytes(ours.bitset) == filter_.bitset
    for column in paths[:-1]:
        asked = TABLE[column].combine_chunks().drop_null()
        assert file.might_contain(column, asked).tolist() \
            == arrow_cpp.probe(path, None, column, asked.to_pylist())
        value = asked[-1].as_py()
        assert 2 in file.prune([(column, "==", value)])
        assert file.read(filters=[(column, "==", value)]).num_rows == 1


def test_filters_of_duckdb(tmp_path: Path):
    path = tmp_path / "a.parquet"
    values = pa.table({"id": pa.array([i // 3 for i in range(6000)]),  # noqa: F841 - for DuckDB
                       "name": [f"näme {i // 3}" for i in range(6000)],
                       "real": [i // 3 / 7 for i in range(6000)]})
    duckdb.execute(  # it writes filters for dictionary columns only
        "copy values to ? (format parquet, row_group_size 2048, dictionary_size_limit 1000)",
        [str(path)])
    file = ParquetFile(path)
    assert len(file.bloom_filters) == 9
    rows = duckdb.execute(
        "select row_group_id, path_in_schema, bloom_filter_offset, bloom_filter_length"
        " from parquet_metadata(?) order by 1, 3", [str(path)]).fetchall()
    assert sorted((i.row_group, i.column, i.offset, i.length) for i in file.bloom_filters) \
        == sorted(rows)
    for column, value in (("id", 1000), ("name", "näme 1000"), ("real", 1000 / 7)):
        excluded = duckdb.execute(
            "select bloom_filter_excludes from parquet_bloom_probe(?, ?, ?) order by row_group_id",
            [str(path), column, value]).fetchall()
        ours = file.might_contain(column, value)[:, 0]
        assert [not answer for (answer,) in excluded] == ours.tolist()
        assert ours[1]  # rows 3000 to 3002
        assert file.read(filters=[(column, "==", value)])["id"].to_pylist() == [1000] * 3
    assert file.prune([("id", "==", 10**6)]) == []


# --- hashes --------------------------------------------------------------------------------------

NAN = struct.unpack("<d", struct.pack("<Q", 0xFFF8_0000_0000_0123))[0]
DAY = datetime.date(1960, 2, 29)
MOMENT = datetime.datetime(2262, 4, 11, 23, 47, 16)


def decimals(length: int) -> tuple[list, list]:
    unscaled = [0, 1, -1, 128, -129, 10 ** 8, -(10 ** 8)]
    return [Decimal(i) / 100 for i in unscaled], [i.to_bytes(length, signed=True) for i in unscaled]


INTS32, INTS64 = [0, -1, 2**31 - 1, -2**31], [0, -1, 2**63 - 1, -2**63]
FLOATS = [0.0, -0.0, 1.5, float("inf"), float("-inf"), 5e-324, 1.7e308]
STRINGS = ["", "a", "näme", "😀" * 9, "x" * 31, "x" * 32, "x" * 33, "x" * 500]
CODES = [b"\0" * 5, b"\xff" * 5, b"12345"]

# Arrow array, column type (None: by the Arrow type), physical type, values for the peers
HASHED = {
    "int32": (pa.array(INTS32, pa.int32()), None, "INT32", INTS32),
    "int8": (pa.array([-128, 127], pa.int8()), None, "INT32", [-128, 127]),
    "uint16": (pa.array([0, 2**16 - 1], pa.uint16()), None, "INT32", [0, 2**16 - 1]),
    "uint32": (pa.array([0, 2**32 - 1], pa.uint32()), None, "INT32", [0, -1]),
    "date": (pa.array([DAY]), None, "INT32", [(DAY - datetime.date(1970, 1, 1)).days]),
    "decimal as int32": (pa.array(decimals(4)[0], pa.decimal128(9, 2)),
                         ColumnType("INT32", 0, pa.decimal128(9, 2)), "INT32",
                         [int.from_bytes(raw, signed=True) for raw in decimals(4)[1]]),
    "int64": (pa.array(INTS64), None, "INT64", INTS64),
    "uint64": (pa.array([2**64 - 1], pa.uint64()), None, "INT64", [-1]),
    "timestamp": (pa.array([-1, 0, 2**63 - 1], pa.timestamp("ns", "UTC")), None, "INT64",
                  [-1, 0, 2**63 - 1]),
    "time": (pa.array([86_399_999_999], pa.time64("us")), None, "INT64", [86_399_999_999]),
    "decimal as int64": (pa.array(decimals(8)[0], pa.decimal128(18, 2)),
                         ColumnType("INT64", 0, pa.decimal128(18, 2)), "INT64",
                         [int.from_bytes(raw, signed=True) for raw in decimals(8)[1]]),
    "int96": (pa.array([MOMENT, datetime.datetime(1900, 1, 1)], pa.timestamp("us")),
              ColumnType("INT96", 0, pa.timestamp("ns")), "INT96",
              [struct.pack("<qi", (86_400 - 764) * 10**9, 2_547_339),
               struct.pack("<qi", 0, 2_415_021)]),
    "float": (pa.array(np.array(FLOATS[:5], np.float32)), None, "FLOAT", FLOATS[:5]),
    "double": (pa.array(FLOATS), None, "DOUBLE", FLOATS),
    "double NaN": (pa.array([NAN]), None, "DOUBLE", [struct.pack("<d", NAN)]),
    "string": (pa.array(STRINGS), None, "BYTE_ARRAY", STRINGS),
    "large binary": (pa.array([b"", b"\xff\0"], pa.large_binary()), None, "BYTE_ARRAY",
                     [b"", b"\xff\0"]),
    "fixed binary": (pa.array(CODES, pa.binary(5)), None, "FIXED_LEN_BYTE_ARRAY", CODES),
    "half": (pa.array([np.float16(1.5)]), None, "FIXED_LEN_BYTE_ARRAY", [b"\0\x3e"]),
    "decimal 9 bytes": (pa.array(decimals(9)[0], pa.decimal128(20, 2)), None,
                        "FIXED_LEN_BYTE_ARRAY", decimals(9)[1]),
    "decimal 20 bytes": (pa.array(decimals(20)[0], pa.decimal256(47, 2)), None,
                         "FIXED_LEN_BYTE_ARRAY", decimals(20)[1]),
}


@pytest.mark.parametrize("case", HASHED)
def test_hashes_are_those_of_the_peers(parquet_java: ParquetJava, arrow_cpp: ArrowCpp, case: str):
    array, column_type, physical_type, theirs = HASHED[case]
    ours = hash_values(array, column_type or column_type_of(array.type)).tolist()
    java_type = "BINARY" if physical_type == "BYTE_ARRAY" else physical_type
    assert ours == arrow_cpp.hash(physical_type, theirs)
    assert ours == parquet_java.hash(java_type, theirs)


def test_pages_of_parquet_java_are_read_one_by_one(parquet_java: ParquetJava, tmp_path: Path):
    """In every mode, with pages of three rows: INT96, nulls, lists and dictionaries among them."""
    filters = [[("id", "=", 2**62 + 5)], [("name", "in", ["näme 6", "näme 17"])],
               [("small", "<", -17)], [("code", "=", struct.pack(">i", 12))],
               [("real", ">", 6), ("name", "is null", None)], [("name", "<=>", None)]]
    for number, (mode, keys) in enumerate(MODES.items()):
        for version in (1, 2) if keys is None else (1,):
            path = tmp_path / f"{number}{version}.parquet"
            parquet_java.write(path, SCHEMA, ROWS, keys=keys, page_rows=3, row_group_rows=8,
                               dictionary=number % 2 == 0, page_version=version, codec="SNAPPY")
            file = ParquetFile(path, our_keys(keys))
            for one in filters:
                with by_row_groups():
                    expected = file.read(filters=one)
                with by_pages(), counted() as row_groups:
                    assert file.read(filters=one).equals(expected), (mode, version, one)
                assert row_groups and expected.num_rows, (mode, one)
