"""verify_file: good files of every writer have no findings, and every fault gives its own."""

import dataclasses
import datetime
import io
import struct
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import secure_bloom
from secure_bloom import BloomFilterOptions, ExplicitKeys, SplitBlockBloomFilter, verify_file
from secure_bloom.errors import ColumnError
from secure_bloom.keys import InMemoryKms
from secure_bloom.parquet.bloom_filter import encode_filter
from secure_bloom.parquet.header import encode_header
from secure_bloom.reading.open_file import OpenFile
from secure_bloom.validator import load_cases
from secure_bloom.validator.files import keys_of
from secure_bloom.verify.findings import KINDS
from tests import modes
from tests.peers import examples
from tests.peers.test_peers_read_by_ours import our_keys
from tests.support import open_footer

ROWS = 200
TABLE = pa.table({
    "id": range(ROWS),
    "ssn": [None if i % 10 == 0 else f"078-05-{i:04}" for i in range(ROWS)],
    "day": [datetime.date(2020, 1, 1 + i % 20) for i in range(ROWS)],
    "place": [{"city": f"city {i // 2}", "at": {"x": i / 2}} for i in range(ROWS)],
    "tags": [[f"tag {i}", None] if i % 3 else None for i in range(ROWS)],
    "counts": pa.array([[(f"key {i}", i)] for i in range(ROWS)], pa.map_(pa.string(), pa.int32())),
    "kind": pa.array(["a", "b"] * (ROWS // 2)).dictionary_encode()})
FILTERED = ["id", "ssn", "day", "place.city", "place.at.x", "tags.list.element",
            "counts.key_value.key", "counts.key_value.value", "kind"]
SECRET = {"kc1": ["ssn"], "kc2": ["tags.list.element"]}
OPTIONS = BloomFilterOptions(ndv=100)
SIGNED = modes.mode("signed columns double gcm 192")
COLUMN_KEYS = modes.mode("columns double gcm 128")
FOOTER_ONLY = InMemoryKms({"kf": modes.MASTER_KEYS["kf"]})


def written(mode=modes.PLAINTEXT, table=TABLE, columns=FILTERED, options=OPTIONS,
            **writer) -> bytes:
    sink = io.BytesIO()
    mode.write(table, sink, SECRET, bloom_filters=dict.fromkeys(columns, options),
               row_group_size=100, **writer)
    return sink.getvalue()


def kinds(result) -> list[tuple]:
    return [(finding.kind, next(iter(finding.row_groups), None), finding.column)
            for finding in result.findings]


def assert_all_right(result, filters: int) -> None:
    assert result.ok and not result.findings and not result.missing_keys
    assert len(result.filters) == filters
    for check in result.filters:
        assert check.not_checked is None
        assert check.values is not None and check.distinct <= check.values


# --- good files ----------------------------------------------------------------------------------

@pytest.mark.parametrize("mode", modes.MODES, ids=str)
def test_our_files_are_right(mode):
    result = verify_file(written(mode), mode.keys)
    assert_all_right(result, 2 * len(FILTERED))
    by_place = {(check.row_group, check.column): check for check in result.filters}
    ssn = by_place[1, "ssn"]
    assert (ssn.encrypted, ssn.values, ssn.distinct) == (mode.is_encrypted, 90, 90)
    assert by_place[0, "id"].encrypted == mode.is_uniform
    assert (by_place[0, "kind"].values, by_place[0, "kind"].distinct) == (100, 2)
    assert by_place[0, "counts.key_value.value"].values == 100
    assert by_place[0, "tags.list.element"].values == 66


@pytest.mark.parametrize("mode", [name for name in examples.MODES if name != "tools external"])
def test_files_of_parquet_java_are_right(parquet_java, tmp_path, mode):
    path = examples.write(parquet_java, tmp_path / "a.parquet", examples.MODES[mode])
    result = verify_file(path, our_keys(examples.MODES[mode]))
    assert_all_right(result, len(examples.COLUMNS) * 3)


def test_timestamps_that_pyarrow_has_no_type_for(parquet_java, tmp_path):
    path, days = tmp_path / "a.parquet", [1_721_426, 2_440_588, 5_373_484]  # years 1, 1970, 9999
    rows = [{"moment": struct.pack("<qi", 123_456_789, day)} for day in days]
    parquet_java.write(path, "message m { required int96 moment; }", rows, bloom=["moment"],
                       bloom_max_bytes=64)
    assert_all_right(verify_file(path), 1)


def test_files_of_pyarrow_and_duckdb_are_right(tmp_path):
    options = {column: {"ndv": 100, "fpp": 0.01} for column in FILTERED}
    pq.write_table(TABLE, tmp_path / "arrow.parquet", row_group_size=100,
                   bloom_filter_options=options)
    assert_all_right(verify_file(tmp_path / "arrow.parquet"), 2 * len(FILTERED))
    values = pa.table({"id": [i // 3 for i in range(6000)],  # noqa: F841 - for DuckDB
                       "name": [f"näme {i // 3}" for i in range(6000)]})
    duckdb.execute("copy values to ? (format parquet, row_group_size 2048, "
                   "dictionary_size_limit 1000)", [str(tmp_path / "duck.parquet")])
    assert_all_right(verify_file(tmp_path / "duck.parquet"), 6)


def test_pages_may_be_compressed_and_of_either_version():
    for options in ({"compression": "zstd"}, {"data_page_version": "2.0"},
                    {"use_dictionary": False, "write_page_index": True}):
        assert_all_right(verify_file(written(**options)), 2 * len(FILTERED))


def test_only_the_asked_columns_are_checked():
    result = verify_file(written(), columns=["place.at.x"])
    assert [check.column for check in result.filters] == ["place.at.x"] * 2
    with pytest.raises(ColumnError, match="its leaf columns: place"):
        verify_file(written(), columns=["place"])
    with pytest.raises(TypeError):
        verify_file(written(), columns="id")


def test_progress_goes_from_0_to_1():
    fractions = []
    verify_file(written(), advance=fractions.append)
    assert fractions == sorted(fractions)
    assert 0 < fractions[0] < 0.1 and fractions[-1] == 1.0
    verify_file(written(columns=[]), advance=fractions.append)
    assert fractions[-1] == 1.0


@pytest.mark.slow
def test_the_data_is_never_in_memory_as_a_whole(tmp_path):
    count, path = 400_000, tmp_path / "a.parquet"
    table = pa.table({"a": [f"{i:0100}" for i in range(count)]})
    secure_bloom.write_table(table, path, bloom_filters={"a": True}, row_group_size=count,
                             use_dictionary=False, compression="none")
    del table
    assert path.stat().st_size > 40_000_000
    pool, before = pa.proxy_memory_pool(pa.default_memory_pool()), pa.default_memory_pool()
    pa.set_memory_pool(pool)
    try:
        result = verify_file(path)
    finally:
        pa.set_memory_pool(before)
    assert result.filters[0].values == count and not result.filters[0].distinct_is_exact
    assert result.filters[0].distinct == pytest.approx(count, rel=0.02)
    assert result.ok and not result.findings
    assert 0 < pool.max_memory() < 15_000_000


# --- missing keys --------------------------------------------------------------------------------

def test_without_the_footer_key_nothing_is_checked():
    result = verify_file(written(COLUMN_KEYS))
    assert result.ok and result.missing_keys and "pass keys" in result.not_checked
    assert not result.filters


@pytest.mark.parametrize(("mode", "keys"), [(SIGNED, None), (COLUMN_KEYS, FOOTER_ONLY)], ids=str)
def test_without_a_column_key_the_other_columns_are_checked(mode, keys):
    result = verify_file(written(mode), keys)
    assert result.ok and result.missing_keys and result.not_checked is None
    hidden = {check.column for check in result.filters if check.not_checked}
    assert hidden == {"ssn", "tags.list.element"}
    assert sum(check.values is not None for check in result.filters) == 2 * (len(FILTERED) - 2)


# --- faults --------------------------------------------------------------------------------------

class File:
    """A file whose filters can be replaced."""

    def __init__(self, mode=modes.PLAINTEXT, **options):
        self.keys = mode.keys
        self.data = bytearray(written(mode, **options))
        self.footer = open_footer(bytes(self.data), OpenFile(bytes(self.data), self.keys).keys)

    def chunk(self, column: str):
        return next(chunk for chunk in self.footer.row_groups[0] if chunk.column.path == column)

    def place(self, column: str, offset: int, length: int) -> None:
        self.chunk(column).set_bloom_filter(offset, length)

    def append(self, column: str, *parts: bytes) -> None:
        """Let the column have this as its filter, behind all others."""
        filter_ = b"".join(map(bytes, parts))
        self.data[self.footer.start:] = filter_
        self.place(column, self.footer.start, len(filter_))
        self.footer.start += len(filter_)

    def verify(self, keys="own", **options):
        data = bytes(self.data[:self.footer.start]) + self.footer.to_bytes()
        return verify_file(data, self.keys if keys == "own" else keys, **options)


def plain_filter(blocks: int = 8, hashes=()) -> list[bytes]:
    filter_ = SplitBlockBloomFilter(blocks)
    filter_.insert_hashes(np.array(hashes, dtype=np.uint64))
    return [encode_header(filter_.num_bytes), bytes(filter_.bitset)]


@pytest.mark.parametrize("mode", [modes.PLAINTEXT, SIGNED], ids=str)
def test_a_value_that_the_filter_does_not_know(mode):
    file = File(mode)
    chunk = file.chunk("ssn")
    filter_ = SplitBlockBloomFilter(16, column_type=chunk.column.type)
    filter_.insert(TABLE["ssn"][2:100])  # all but the one in row 1
    file.append("ssn", *encode_filter(filter_, chunk))
    result = file.verify()
    assert kinds(result) == [("false-negative", 0, "ssn")] and not result.ok
    assert "1 of 90 values" in result.findings[0].message
    assert "078-05" not in str(result) and "078-05" not in str(result.to_dict())


def test_a_filter_that_is_too_small_is_a_warning():
    result = verify_file(written(columns=["id"], options=BloomFilterOptions(max_bytes=32)))
    assert kinds(result) == [("over-full", 0, "id"), ("over-full", 1, "id")]
    assert result.ok and result.findings[0].severity == "warning"
    assert "256 bytes for 1%" in result.findings[0].message
    assert result.filters[0].measured_fpp > 0.5
    assert result.filters[0].promised_fpp == pytest.approx(0.702, abs=0.01)


def test_a_filter_that_knows_more_than_its_column():
    file = File()
    others = np.random.default_rng(1).integers(0, 2**64, 200, dtype=np.uint64)
    filter_ = secure_bloom.ParquetFile(bytes(file.data)).read_bloom_filter(0, "id")
    filter_.insert_hashes(others)
    file.append("id", *encode_filter(filter_, file.chunk("id")))
    result = file.verify()
    assert kinds(result) == [("false-positives", 0, "id")]
    assert result.ok and "other values" in result.findings[0].message


@pytest.mark.parametrize("keys", ["own", None])
def test_a_plaintext_filter_on_an_encrypted_column(keys):
    file = File(SIGNED)
    file.append("ssn", *plain_filter())
    result = file.verify(keys)
    assert ("leak", 0, "ssn") in kinds(result) and not result.ok
    assert len(result.findings) == 1


def test_an_encrypted_filter_on_a_plaintext_column():
    file = File(SIGNED)
    offset, length = file.chunk("ssn").bloom_filter
    file.append("id", file.data[offset:offset + length])
    assert kinds(file.verify()) == [("needless-encryption", 0, "id")]


@pytest.mark.parametrize("position", [0, 10, -1], ids=["length", "header", "bitset"])
def test_a_flipped_bit(position):
    file = File(COLUMN_KEYS)
    offset, length = file.chunk("ssn").bloom_filter
    file.data[offset + position % length] ^= 1
    found = kinds(file.verify())
    assert ("authentication", 0, "ssn") in found
    assert set(found) <= {("authentication", 0, "ssn"), ("length", 0, "ssn")}


@pytest.mark.parametrize("payload", [b"\x15\x02" * 20, bytes(100), plain_filter()[0]],
                         ids=["garbage", "zeros", "cut off"])
def test_what_stands_there_is_no_filter(payload):
    file = File()
    file.append("id", payload)
    [finding] = file.verify().findings
    assert (finding.row_groups, finding.column) == ((0,), "id")
    assert finding.kind == ("length" if payload == plain_filter()[0] else "damaged")
    file = File(SIGNED)
    file.append("ssn", payload[:16] + b"\xff" * 40)
    assert [kind for kind, *_ in kinds(file.verify(None))] in (["damaged"], ["leak"])


def test_a_filter_of_an_unknown_kind_is_not_checked():
    file = File()
    header, bitset = plain_filter()
    file.append("id", header.replace(b"\x1c\x1c", b"\x1c\x2c", 1), bitset)
    result = file.verify()
    assert result.ok and not result.findings and not result.missing_keys
    assert "unknown algorithm" in result.filters[0].not_checked


@pytest.mark.parametrize(("offset", "length"), [
    (0, 50), (3, 50), (-8, 50), (10**9, 50), (100, 10**9), (100, 0), (100, -1)])
def test_a_place_outside_the_data(offset, length):
    file = File()
    file.place("id", offset, length)
    result = file.verify()
    assert kinds(result) == [("place", 0, "id")]
    assert result.filters[0].not_checked


@pytest.mark.parametrize("change", [-1, 1, 40])
@pytest.mark.parametrize(("mode", "column"), [(modes.PLAINTEXT, "id"), (SIGNED, "ssn")], ids=str)
def test_a_wrong_length(mode, column, change):
    file = File(mode)
    offset, length = file.chunk(column).bloom_filter
    file.place(column, offset, length + change)
    assert ("length", 0, column) in kinds(file.verify())
    if change > 0:
        assert kinds(file.verify()) == [("length", 0, column)]


def test_two_filters_in_the_same_place():
    file = File()
    file.place("ssn", *file.chunk("id").bloom_filter)
    found = kinds(file.verify(columns=["ssn"]))
    assert found == [("overlap", 0, "ssn"), ("false-negative", 0, "ssn"),
                     ("false-positives", 0, "ssn")]


def test_a_filter_inside_the_pages():
    file = File(compression="none", use_dictionary=False)
    filter_ = b"".join(plain_filter())
    start = file.chunk("ssn").pages[0] + 20
    file.data[start:start + len(filter_)] = filter_
    file.place("ssn", start, len(filter_))
    result = file.verify()
    assert ("overlap", 0, "ssn") in kinds(result)
    assert "pages of row group 0, column ssn" in result.findings[0].message


@pytest.mark.parametrize("mode", [modes.PLAINTEXT, COLUMN_KEYS], ids=str)
def test_pages_that_cannot_be_read(mode):
    file = File(mode, compression="none")
    start = file.chunk("ssn").pages[0]
    file.data[start:start + 30] = b"\xff" * 30
    result = file.verify(columns=["ssn"])
    assert kinds(result) == [("pages", 0, "ssn")]
    assert result.filters[0].not_checked and result.filters[0].measured_fpp is not None
    assert result.filters[1].values == 90


@pytest.mark.parametrize(("data", "kind"), [
    (b"", "footer"), (b"no Parquet file", "footer"), (written()[:-9], "footer"),
    (written()[:-20] + b"\xff" * 12 + written()[-8:], "footer"),
    (written(COLUMN_KEYS)[:-9] + b"\0" + written(COLUMN_KEYS)[-8:], "authentication")],
    ids=range(5))
def test_a_footer_that_cannot_be_read(data, kind):
    result = verify_file(data, COLUMN_KEYS.keys)
    assert [finding.kind for finding in result.findings] == [kind]
    assert not result.ok and "<buffer>" in str(result.findings[0])


def test_wrong_keys():
    mode = modes.mode("key gcm 128")
    assert [kind for kind, *_ in kinds(verify_file(written(mode), ExplicitKeys(bytes(16))))] \
        == ["authentication"]
    wrong = InMemoryKms({name: bytes(16) for name in modes.MASTER_KEYS})
    result = verify_file(written(COLUMN_KEYS), wrong)
    assert result.missing_keys and result.not_checked and not result.findings


def test_no_such_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        verify_file(tmp_path / "a.parquet")


def test_a_column_of_a_type_that_has_no_hash():
    file = File(table=TABLE.append_column("flag", pa.array([True] * ROWS)))
    file.append("flag", *plain_filter())
    [check] = file.verify(columns=["flag"]).filters
    assert "BOOLEAN" in check.not_checked
    assert (check.values, check.promised_fpp, check.measured_fpp) == (None, None, 0.0)


# --- the test vectors ----------------------------------------------------------------------------

VECTORS = Path(__file__).parents[2] / "vectors"


@pytest.mark.sweep
@pytest.mark.slow
def test_faulty_test_vectors_are_found_and_good_ones_pass():
    cases = load_cases(VECTORS, ["files"])
    assert len(cases) > 500
    for case in cases:
        result = verify_file(case.path, keys_of(**case.input)[0])
        # the vector "empty filter" is right as a file, and denies its data
        assert result.ok == (case.outcome not in ("malformed", "authentication_failed")
                             and "empty-filter" not in case.name), case.name
        if case.outcome == "key_unavailable":
            assert result.missing_keys, case.name


# --- results -------------------------------------------------------------------------------------

def test_results_are_plain_data():
    result = verify_file(written(columns=["id"], options=BloomFilterOptions(max_bytes=32)))
    as_dict = result.to_dict()
    assert as_dict["findings"][0].keys() == {"kind", "severity", "message", "file", "column",
                                             "row_groups", "remedy", "evidence"}
    assert as_dict["filters"][0] == dataclasses.asdict(result.filters[0])
    assert set(KINDS.values()) == {"error", "warning"}
