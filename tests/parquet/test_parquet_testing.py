"""Files of apache/parquet-testing, which parquet-java and Arrow C++ have written."""

import datetime
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from secure_bloom import ExplicitKeys, ParquetFile, SplitBlockBloomFilter, UniformKey, write_table
from secure_bloom.errors import FormatError, KeyNotFoundError
from secure_bloom.keys import InMemoryKms
from secure_bloom.parquet.header import decode_header
from tests.modes import AAD_PREFIX, MASTER_KEYS

FOLDER = Path(__file__).parents[3] / "shared" / "parquet-testing"
pytestmark = pytest.mark.skipif(
    not FOLDER.is_dir(),
    reason="put the files of apache/parquet-testing into ../shared/parquet-testing")

WORDS = ["Hello", "This is", "a", "test", "How", "are you", "doing ", "today", "the quick",
         "brown fox", "jumps", "over", "the lazy", "dog"]
ABSENT = ["hello", "World", "", "doing", "Hello ", "fox", "cat"]

# By file: the AAD prefix to supply, the footer, and how columns are encrypted.
ENCRYPTED = {
    "uniform_encryption": (None, "encrypted", {"footer key"}),
    "encrypt_columns_and_footer": (None, "encrypted", {"column key", None}),
    "encrypt_columns_and_footer_aad": (None, "encrypted", {"column key", None}),
    "encrypt_columns_and_footer_ctr": (None, "encrypted", {"column key", None}),
    "encrypt_columns_and_footer_disable_aad_storage":
        (AAD_PREFIX, "encrypted", {"column key", None}),
    "encrypt_columns_plaintext_footer": (None, "signed", {"column key", None}),
}
EXTERNAL = "external_key_material_java"


def encrypted(name: str) -> Path:
    return FOLDER / f"{name}.parquet.encrypted"


def open_encrypted(name: str) -> ParquetFile:
    return ParquetFile(encrypted(name),
                       ExplicitKeys(key_ids=MASTER_KEYS, aad_prefix=ENCRYPTED[name][0]))


def expected_row(i: int) -> dict:
    """A row of the files of Arrow C++, but for the INT96, whose values mean nothing."""
    return {
        "boolean_field": i % 2 == 0,
        "int32_field": (datetime.datetime.min + datetime.timedelta(milliseconds=i)).time(),
        "int64_field": [2 * i * 10**12, (2 * i + 1) * 10**12],
        "float_field": pytest.approx(i * 1.1),
        "double_field": pytest.approx(i * 1.1111111),
        "ba_field": b"parquet%03d" % i if i % 2 == 0 else None,
        "flba_field": bytes([i] * 10),
    }


@pytest.mark.parametrize("name", ENCRYPTED)
def test_encrypted_files(name):
    _, footer, columns = ENCRYPTED[name]
    file = open_encrypted(name)
    assert file.footer.has_encrypted_footer == (footer == "encrypted")
    assert file.footer.signature_verified == (footer == "signed")
    assert {chunk.encryption for chunk in file.footer.row_groups[0]} == columns
    assert file.bloom_filters == [] and file.columns_without_key == []
    table = file.read()
    assert table.drop(["int96_field"]).to_pylist() == [expected_row(i) for i in range(50)]
    assert table.equals(open_encrypted("uniform_encryption").read())
    found = file.read(["int32_field"], [("ba_field", "==", b"parquet044")])
    assert found.to_pylist() == [{"int32_field": expected_row(44)["int32_field"]}]


def test_explicit_keys_by_column():
    keys = ExplicitKeys(MASTER_KEYS["kf"], {"double_field": MASTER_KEYS["kc1"],
                                            "float_field": MASTER_KEYS["kc2"]})
    table = ParquetFile(encrypted("encrypt_columns_and_footer"), keys).read()
    assert table.equals(open_encrypted("uniform_encryption").read())


def test_a_prefix_that_must_be_supplied():
    name = "encrypt_columns_and_footer_disable_aad_storage"
    with pytest.raises(KeyNotFoundError, match="AAD prefix"):
        ParquetFile(encrypted(name), ExplicitKeys(key_ids=MASTER_KEYS))


@pytest.mark.parametrize("name", ["encrypt_columns_and_footer", "uniform_encryption",
                                  "encrypt_columns_plaintext_footer"])
def test_their_rows_in_files_of_ours(name, tmp_path):
    table = open_encrypted(name).read()
    write_table(table, tmp_path / "a.parquet", bloom_filters={"ba_field": True, "flba_field": True},
                encryption=UniformKey(MASTER_KEYS["kf"]))
    ours = ParquetFile(tmp_path / "a.parquet", ExplicitKeys(MASTER_KEYS["kf"]))
    assert ours.read().equals(table)
    assert ours.might_contain("ba_field", [b"parquet000", b"parquet001"]).tolist() \
        == [[True, False]]


def test_external_key_material():
    file = ParquetFile(encrypted(EXTERNAL), InMemoryKms(MASTER_KEYS))
    assert file.read().column_names == ["integers", "strings"]
    assert file.read().num_rows == file.num_rows == 100


def test_external_key_material_is_found_by_path_only():
    with pytest.raises(KeyNotFoundError, match="by its path"):
        ParquetFile(encrypted(EXTERNAL).read_bytes(), InMemoryKms(MASTER_KEYS))


def test_a_file_without_the_key_material_beside_it(tmp_path):
    alone = shutil.copy(encrypted(EXTERNAL), tmp_path)
    with pytest.raises(KeyNotFoundError, match="_KEY_MATERIAL_FOR_external") as error:
        ParquetFile(alone, InMemoryKms(MASTER_KEYS))
    assert error.value.file == alone


# --- Bloom filters -------------------------------------------------------------------------------

@pytest.mark.parametrize(("name", "num_bytes", "length"), [
    ("data_index_bloom_encoding_stats", 1024, None),
    ("data_index_bloom_encoding_with_length", 2048, 2064)])
def test_plaintext_filters(name, num_bytes, length):
    file = ParquetFile(FOLDER / f"{name}.parquet")
    [info] = file.bloom_filters
    assert (info.column, info.num_bytes, info.length) == ("String", num_bytes, length)
    assert file.read()["String"].to_pylist() == WORDS
    assert file.might_contain("String", WORDS).all()
    assert not file.might_contain("String", ABSENT).any()
    assert file.prune([("String", "==", "dog")]) == [0]
    assert file.prune([("String", "==", "cat")]) == []
    assert file.read(filters=[("String", "==", "dog")]).to_pylist() == [{"String": "dog"}]
    rebuilt = SplitBlockBloomFilter(num_bytes // 32)
    rebuilt.insert(WORDS)
    assert file.read_bloom_filter(0, "String") == rebuilt


INSERTED = ["hello", "parquet", "bloom", "filter"]


def test_a_filter_of_xxh64():
    data = (FOLDER / "bloom_filter.xxhash.bin").read_bytes()
    num_bytes, header_size = decode_header(data)
    assert header_size + num_bytes == len(data)
    filter_ = SplitBlockBloomFilter.from_bitset(data[header_size:], column_type=pa.string())
    rebuilt = SplitBlockBloomFilter(num_bytes // 32)
    rebuilt.insert(INSERTED)
    assert filter_ == rebuilt
    assert filter_.check(INSERTED).all()
    assert not filter_.check(ABSENT[1:]).any()


def test_a_filter_of_the_time_before_the_standard():
    """Three integers instead of a header (1024 bytes, and 0 for Murmur3): not to be mistaken."""
    data = (FOLDER / "bloom_filter.bin").read_bytes()
    assert data[:12] == (1024).to_bytes(4, "little") + bytes(8)
    with pytest.raises(FormatError):
        decode_header(data)
    filter_ = SplitBlockBloomFilter.from_bitset(data[12:], column_type=pa.string())
    assert bytes(filter_.bitset) == data[12:]
    assert not filter_.check(INSERTED).any()  # XXH64 finds nothing there
