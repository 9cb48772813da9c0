"""Files of other writers, and other readers of what remains."""

import datetime
import shutil
from pathlib import Path

import arro3.io
import duckdb
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from secure_bloom import ExplicitKeys, ParquetFile, erase, verify_file
from secure_bloom.errors import UnsupportedError
from secure_bloom.keys import InMemoryKms
from secure_bloom.reading.open_file import OpenFile
from secure_bloom.storage.table_names import material_path
from tests.erasing.helpers import read_rows, rows_of
from tests.maintain.test_peers import WRITERS, by_pyarrow_with_int96
from tests.modes import MASTER_KEYS, MODES, mode
from tests.parquet.test_parquet_testing import ENCRYPTED, EXTERNAL, FOLDER, encrypted
from tests.peers.examples import MODES as JAVA_MODES
from tests.peers.examples import explicit, write
from tests.peers.keys import KeyTools
from tests.peers.test_ours_read_by_peers import (
    COLUMN_KEYS,
    GROUP_ROWS,
    LEAVES,
    TABLE,
    our_filters,
    physical,
    values_of,
)
from tests.peers.test_peers_read_by_ours import our_keys
from tests.tiers import sweep_where

# --- files of parquet-java, in every mode -------------------------------------------------------

COLUMNS = ["number", "text", "price", "day", "moment", "real"]  # of files of other writers
#: rows to erase, of 20 in row groups of 8, 8 and 4: in one, in the first and last, whole groups
ROWS_TO_ERASE = {"one": [9], "some": [0, 1, 5, 19], "first": range(8), "middle": range(8, 16),
                 "last": range(16, 20), "all": range(20)}


@sweep_where(lambda rows, mode: (
    list(JAVA_MODES).index(mode) + list(ROWS_TO_ERASE).index(rows)) % 3)
@pytest.mark.parametrize("rows", ROWS_TO_ERASE)
@pytest.mark.parametrize("mode", JAVA_MODES)
def test_files_of_parquet_java(parquet_java, arrow_cpp, tmp_path, mode, rows):
    keys, erased = JAVA_MODES[mode], set(ROWS_TO_ERASE[rows])
    ours, path = our_keys(keys), write(parquet_java, tmp_path / "a.parquet", keys)
    before, _ = parquet_java.read(path, keys)
    blocks = {filter_.column: filter_.num_bytes for filter_ in parquet_java.filters(path, keys)}
    result = erase(path, "id", [2**62 + row for row in erased], ours, max_share=1)
    assert result.ok and result.rows_removed == len(erased)
    after, groups = parquet_java.read(path, keys)
    left = [row for number, row in enumerate(before) if number not in erased]
    assert after == left
    assert groups == [size for size in (
        len(set(range(start, end)) - erased) for start, end in ((0, 8), (8, 16), (16, 20))) if size]
    filters = parquet_java.filters(path, keys)
    assert [(f.row_group, f.column) for f in filters] \
        == [(group, column) for group in range(len(groups)) for column in blocks]
    assert all(filter_.num_bytes == blocks[filter_.column] for filter_ in filters)
    if groups:
        assert arrow_cpp.filters(path, explicit(parquet_java, path, keys)) == filters
        for column in ("id", "name", "code", "moment"):
            values = [row[column] for row in left if row[column] is not None]
            answers = parquet_java.probe(path, keys, column, values)
            assert all(any(group[i] for group in answers) for i in range(len(values)))
        assert verify_file(path, ours).ok


@pytest.mark.parametrize("options", [
    {"dictionary": True, "page_version": 2}, {"page_rows": 3, "codec": "LZ4_RAW"},
    {"codec": "GZIP", "page_rows": 2, "dictionary": True},
    {"codec": "ZSTD", "page_version": 2}, {"codec": "SNAPPY"}], ids=str)
def test_options_of_parquet_java(parquet_java, tmp_path, options):
    schema = """message m { required int64 id; optional binary name (STRING);
        optional binary kind (ENUM);
        repeated int32 bare; optional group old (LIST) { repeated int32 array; }
        optional group map (MAP) { repeated group key_value { required binary key (STRING);
            optional double value; } }
        optional int32 price (DECIMAL(7, 2)); optional int64 fee (DECIMAL(17, 3));
        optional fixed_len_byte_array(9) sum (DECIMAL(20, 2));
        optional int64 at (TIMESTAMP(NANOS, false)); optional binary raw;
        optional boolean flag; }"""
    rows = [{"id": i, "name": None if i % 5 == 4 else f"n{i % 7}", "kind": "ab"[i % 2],
             "bare": list(range(i % 3)),
             "old": None if i % 4 == 3 else {"array": [i, i + 1][:i % 3]},
             "map": {"key_value": [{"key": "x", "value": i / 7}, {"key": "y"}][:i % 3]},
             "price": i, "fee": -i, "sum": i.to_bytes(9), "at": -i * 10**15,
             "raw": b"\xff\xfe" * (i % 3), "flag": i % 2 == 0} for i in range(40)]
    path = tmp_path / "a.parquet"
    parquet_java.write(path, schema, rows, row_group_rows=16, **options)
    before, _ = parquet_java.read(path)
    result = erase(path, "name", ["n3", "n5"], max_share=1)
    assert result.ok
    after, _ = parquet_java.read(path)
    assert after == [row for row in before if row["name"] not in (b"n3", b"n5")]
    assert len(after) < len(before)
    for column, value, goes in (
            ("bare", 1, lambda row: 1 in row["bare"]),
            ("old.array", 4, lambda row: row["old"] is not None and 4 in row["old"]["array"]),
            ("kind", "a", lambda row: row["kind"] == b"a")):
        before, after = after, None
        assert erase(path, column, value, max_share=1).ok
        after, _ = parquet_java.read(path)
        assert after == [row for row in before if not goes(row)] and len(after) < len(before)


def test_a_type_that_arrow_does_not_have_is_refused(parquet_java, tmp_path):
    schema = """message m { required int64 id;
        optional fixed_len_byte_array(12) span (INTERVAL); }"""
    path = tmp_path / "a.parquet"
    parquet_java.write(path, schema, [{"id": i, "span": bytes([i] * 12)} for i in range(20)])
    content = path.read_bytes()
    with pytest.raises(UnsupportedError) as raised:
        erase(path, "id", 3, max_share=1)
    assert raised.value.column == "span" and path.read_bytes() == content


def int96(days: int, nanos: int) -> bytes:
    return nanos.to_bytes(8, "little") + (2_440_588 + days).to_bytes(4, "little")


def test_timestamps_that_do_not_fit_into_nanoseconds(parquet_java, tmp_path):
    path, schema = tmp_path / "a.parquet", "message m { required int32 id; required int96 at; }"
    first, last = (-719_162, 2_932_896)  # of the years 1 and 9999
    rows = [{"id": 0, "at": int96(first, 0)}, {"id": 1, "at": int96(last, 86_399_999_999_000)},
            {"id": 2, "at": int96(0, 1000)}]
    parquet_java.write(path, schema, rows, bloom=["at"])
    assert erase(path, "id", 2, max_share=1).ok
    assert parquet_java.read(path)[0] == rows[:2] and verify_file(path).ok
    assert erase(path, "at", datetime.datetime(1, 1, 1), max_share=1).rows_removed == 1
    assert parquet_java.read(path)[0] == rows[1:2]


def test_timestamps_in_nanoseconds_beside_others_are_refused(parquet_java, tmp_path):
    path, schema = tmp_path / "a.parquet", "message m { required int32 id; required int96 at; }"
    rows = [{"id": 0, "at": int96(-719_162, 0)}, {"id": 1, "at": int96(0, 1)}]
    for number, more in enumerate((rows, [rows[1], {"id": 2, "at": int96(2**30, 5000)}])):
        parquet_java.write(path, schema, more)
        content = path.read_bytes()
        with pytest.raises(UnsupportedError, match="timestamps") as raised:
            erase(path, "id", number, max_share=1)
        assert (raised.value.row_group, raised.value.column) == (0, "at")
        assert path.read_bytes() == content


# --- files of ours, read by parquet-java and Arrow C++ -------------------------------------------

@pytest.mark.parametrize("mode", MODES, ids=str)
def test_peers_read_what_remains_of_our_files(parquet_java, arrow_cpp, tmp_path, mode):
    path = tmp_path / "ours.parquet"
    mode.write(TABLE, path, COLUMN_KEYS, row_group_size=GROUP_ROWS, store_decimal_as_integer=True,
               bloom_filters=dict.fromkeys(LEAVES.values(), True), write_page_index=True)
    before, _ = parquet_java.read(path, mode.java_keys)
    numbers = [*range(15), 16, 39]
    erase(path, "id", [2**62 + n for n in numbers], mode.keys, max_share=1)
    rows, groups = parquet_java.read(path, mode.java_keys)
    left = [n for n in range(40) if n not in numbers]
    assert rows == [before[n] for n in left] and groups == [14, 9]
    filters = our_filters(path, mode)
    assert len(filters) == 2 * len(LEAVES)
    assert parquet_java.filters(path, mode.java_keys) == filters
    assert arrow_cpp.filters(path, mode.explicit_keys(path)) == filters
    for field in ("id", "name", "total", "moment"):
        values = [physical(value, field) for value in values_of(field, left) if value is not None]
        answers = parquet_java.probe(path, mode.java_keys, LEAVES[field], values)
        assert all(any(group[i] for group in answers) for i in range(len(values)))
    for value in (2**62 + 20, 2**62 + 3):
        kept = parquet_java.row_groups_for(path, mode.java_keys, "id", value)
        assert kept == ParquetFile(path, mode.keys).prune([("id", "==", value)])


def test_duckdb_reads_what_remains_of_encrypted_files(tmp_path):
    path, uniform = tmp_path / "a.parquet", mode("key gcm 128")  # DuckDB reads no other mode
    uniform.write(pa.table({"i": range(50)}), path, {}, row_group_size=GROUP_ROWS)
    key = uniform.options["footer_key"].decode()
    duckdb.execute(f"PRAGMA add_parquet_key('erased', '{key}')")

    def read():
        return duckdb.execute(f"SELECT i FROM read_parquet('{path}', encryption_config="
                              f"{{footer_key: 'erased'}})").fetchall()

    assert read() == [(i,) for i in range(50)]
    erase(path, "i", [*range(15), 20, 49], uniform.keys, max_share=1)
    assert read() == [(i,) for i in range(50) if i not in (*range(15), 20, 49)]


# --- plaintext files of pyarrow, DuckDB, arrow-rs and Polars --------------------------------------

@sweep_where(lambda writer, column: (WRITERS.index(writer) + COLUMNS.index(column)) % 2)
@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("column", COLUMNS)
def test_files_of_other_writers(tmp_path, writer, column):
    path = tmp_path / "a.parquet"
    writer(path)
    if writer is by_pyarrow_with_int96 and column == "moment":
        column = "big"  # pyarrow shows other moments than it has stored
    content, values = path.read_bytes(), ParquetFile(path).read([column])[column]
    wanted = next(value for value in values if value.is_valid and value.as_py() == value.as_py())
    goes = [value.is_valid and value.as_py() == wanted.as_py() for value in values]
    before = read_rows(OpenFile(path))
    readers = [lambda: rows_of(arro3_table(path)), lambda: polars.read_parquet(path).rows(),
               lambda: duckdb.read_parquet(str(path)).fetchall()]
    old = [reader() for reader in readers]
    try:
        result = erase(path, column, wanted, max_share=1)
    except UnsupportedError as error:
        assert path.read_bytes() == content and error.file == str(path)
        return
    assert result.ok and result.rows_removed == sum(goes) == result.values[0].found
    assert read_rows(OpenFile(path)) \
        == [row for row, gone in zip(before, goes, strict=True) if not gone]
    for reader, rows in zip(readers, old, strict=True):
        assert repr(reader()) == repr(
            [row for row, gone in zip(rows, goes, strict=True) if not gone])
    assert verify_file(path).ok


def arro3_table(path) -> pa.Table:
    return pa.table(arro3.io.read_parquet(path).read_all())


# --- parquet-testing -----------------------------------------------------------------------------

@pytest.mark.skipif(not FOLDER.is_dir(), reason="no files of apache/parquet-testing")
@pytest.mark.parametrize("name", ENCRYPTED)
@pytest.mark.parametrize("column", ["boolean_field", "ba_field", "flba_field", "int32_field",
                                    "int64_field"])
def test_files_whose_timestamps_mean_nothing_are_refused(tmp_path, name, column):
    path = Path(shutil.copy(encrypted(name), tmp_path))
    keys = ExplicitKeys(key_ids=MASTER_KEYS, aad_prefix=ENCRYPTED[name][0])
    content, rows = path.read_bytes(), ParquetFile(path, keys).read([column])[column]
    value = rows[0].as_py()
    with pytest.raises(UnsupportedError, match="timestamps") as raised:
        erase(path, column, value[0] if isinstance(value, list) else value, keys, max_share=1)
    assert raised.value.column == "int96_field" and raised.value.file == str(path)
    assert path.read_bytes() == content and [one.name for one in tmp_path.iterdir()] == [path.name]


@pytest.mark.skipif(not FOLDER.is_dir(), reason="no files of apache/parquet-testing")
def test_external_key_material_of_parquet_java(parquet_java, tmp_path):
    path = Path(shutil.copy(encrypted(EXTERNAL), tmp_path / "a.parquet"))
    shutil.copy(material_path(str(encrypted(EXTERNAL))), material_path(str(path)))
    keys, kms = KeyTools(MASTER_KEYS), InMemoryKms(MASTER_KEYS)
    before, _ = parquet_java.read(path, keys)
    assert erase(tmp_path, "integers", [5, 60], kms, max_share=1).ok
    [new] = tmp_path.glob("*.parquet")
    assert new != path and not Path(material_path(str(path))).exists()
    rows, _ = parquet_java.read(new, keys)
    assert rows == [row for row in before if row["integers"] not in (5, 60)]
    assert len(rows) == 98


@pytest.mark.skipif(not FOLDER.is_dir(), reason="no files of apache/parquet-testing")
@pytest.mark.parametrize("name", ["data_index_bloom_encoding_stats",
                                  "data_index_bloom_encoding_with_length"])
def test_files_with_filters_and_page_indexes(parquet_java, tmp_path, name):
    path = Path(shutil.copy(FOLDER / f"{name}.parquet", tmp_path))
    before, [blocks] = pq.read_table(path), ParquetFile(path).bloom_filters
    size = blocks.num_bytes
    assert erase(path, "String", "Hello", max_share=1).ok
    expected = [row for row in before["String"].to_pylist() if row != "Hello"]
    assert pq.read_table(path)["String"].to_pylist() == expected
    assert [row["String"].decode() for row in parquet_java.read(path)[0]] == expected
    [filter_] = parquet_java.filters(path)
    assert filter_.num_bytes == size
    assert parquet_java.probe(path, None, "String", expected) == [[True] * len(expected)]
    assert parquet_java.probe(path, None, "String", ["Hello"]) == [[False]]
    assert verify_file(path).ok
