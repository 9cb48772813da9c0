"""native.verify reports what is not as requested. Does not need Spark."""

import os
import pickle
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from secure_bloom import (
    EncryptionConfiguration,
    ExplicitKeys,
    ParquetFile,
    Policy,
    UniformKey,
    write_table,
)
from secure_bloom.errors import (
    ChangedMeanwhileError,
    EncryptionMismatchError,
    KeyNotFoundError,
    KeyRetrievalError,
    UnsupportedError,
)
from secure_bloom.keys import InMemoryKms, Keyring
from secure_bloom.parquet.header import encode_header
from secure_bloom.reading import open_file
from secure_bloom.spark.native import read_options, verify, write_options
from tests import forging

MASTER_KEYS = {"footer": b"f" * 16, "pii": b"p" * 16, "other": b"o" * 16}
ASKED = EncryptionConfiguration("footer", {"pii": ["ssn"]})
FILTERS = {"ssn": True, "id": True}
TABLE = pa.table({"id": range(100), "ssn": [f"ssn-{i}" for i in range(100)],
                  "kind": ["a", "b"] * 50})


@pytest.fixture
def folder(tmp_path):
    write(tmp_path / "good.parquet")
    return tmp_path


@pytest.fixture
def kms():
    return InMemoryKms(MASTER_KEYS)


def write(path, encryption=ASKED, table=TABLE, filters=FILTERS, **options):
    kms = InMemoryKms(MASTER_KEYS) if isinstance(encryption, EncryptionConfiguration) else None
    write_table(table, path, bloom_filters=filters, encryption=encryption, keys=kms,
                row_group_size=40, **options)


def check(folder, kms, encryption=ASKED, filters=FILTERS):
    return verify(folder, encryption=encryption, bloom_filters=filters, keys=kms)


def found(folder, kms, **asked) -> list[str]:
    with pytest.raises(EncryptionMismatchError) as error:
        check(folder, kms, **asked)
    assert error.value.file == error.value.findings[0].file
    return [finding.text for finding in error.value.findings]


def test_all_is_as_asked(folder, kms):
    write(folder / "again.parquet")
    seen = check(folder, kms)
    assert (seen.files, seen.row_groups, seen.encrypted_filters, seen.plain_filters,
            seen.without_filter) == (2, 6, 6, 6, 0)
    assert check(folder / "good.parquet", kms).files == 1
    assert check(f"file://{folder}", kms).files == 2


def test_values_in_paths_do_not_meet_a_policy(tmp_path, kms):
    (tmp_path / "day=1").mkdir()
    write(tmp_path / "day=1" / "a.parquet")
    with pytest.raises(EncryptionMismatchError, match="column day: the values of the column are"):
        verify(tmp_path, policy=Policy(["day"]), keys=kms)


def test_a_file_that_is_replaced_with_its_key_material_gives_no_finding(tmp_path, kms, monkeypatch):
    (tmp_path / "new").mkdir()
    write(tmp_path / "a.parquet", with_(internal_key_material=False))
    write(tmp_path / "new" / "a.parquet", with_(footer="other", internal_key_material=False))
    read_material, reads = open_file.read_material, []

    def replaced(*where):
        reads.append(where)
        if len(reads) == 2:  # the first read opens the file
            for path in (tmp_path / "new").iterdir():
                os.replace(path, tmp_path / path.name)
        return read_material(*where)

    monkeypatch.setattr(open_file, "read_material", replaced)
    with pytest.raises(ChangedMeanwhileError):
        check(tmp_path / "a.parquet", kms)


def with_(encryption_algorithm="AES_GCM_V1", footer="footer", key="pii", columns=("ssn",), **more):
    return EncryptionConfiguration(footer, {key: list(columns)},
                                   encryption_algorithm=encryption_algorithm, **more)


@pytest.mark.parametrize(("written", "words"), [
    (None, "nothing in this file is encrypted"),
    (with_(plaintext_footer=True), "its footer is plaintext"),
    (with_("AES_GCM_CTR_V1"), "algorithm is AES_GCM_CTR_V1, not AES_GCM_V1"),
    (with_(footer="other"), "its footer is encrypted with master key 'other', not 'footer'"),
    (with_(key="other"), "column ssn: the column is encrypted with master key 'other', not 'pii'"),
    (with_(columns=["id"]), "column ssn: the column is not encrypted"),
    (EncryptionConfiguration("footer", uniform_encryption=True),
     "with the footer key, not its own"),
    (with_(data_key_length_bits=256), "its footer is encrypted with a key of 256 bits, not 128"),
    (with_(data_key_length_bits=256), "ssn: the column is encrypted with a key of 256 bits, not"),
])
def test_a_file_that_was_encrypted_otherwise(folder, kms, written, words):
    write(folder / "bad.parquet", written)
    texts = found(folder, kms)
    assert any(words in text for text in texts), texts


def test_uniform_encryption(tmp_path, kms):
    uniform = EncryptionConfiguration("footer", uniform_encryption=True)
    write(tmp_path / "a.parquet", uniform)
    assert check(tmp_path, kms, uniform).encrypted_filters == 6
    write(tmp_path / "b.parquet")
    assert any("not encrypted with the footer key" in text
               for text in found(tmp_path, kms, encryption=uniform))


def test_an_encrypted_footer_where_a_plaintext_one_was_asked_for(folder, kms):
    assert any("its footer is encrypted, not plaintext" in text
               for text in found(folder, kms, encryption=with_(plaintext_footer=True)))


def test_columns_that_are_missing(folder, kms):
    asked = EncryptionConfiguration("footer", {"pii": ["ssn", "email"]})
    texts = found(folder, kms, encryption=asked, filters={"phone": True})
    assert any("column email: it should be encrypted, but is not in" in text for text in texts)
    assert any("column phone: it should have a Bloom filter, but is not in" in text
               for text in texts)


def test_filters_that_are_missing(folder, kms):
    write(folder / "without.parquet", filters={"ssn": True}, use_dictionary=False)
    assert found(folder, kms) == [f"error (policy): row group {number}, column id: there is no "
                                  "Bloom filter" for number in range(3)]


def test_dictionaries_need_no_filters(tmp_path, kms):
    write(tmp_path / "a.parquet", filters={})
    assert check(tmp_path, kms, filters={"kind": True}).without_filter == 3


def test_ways_to_ask_for_filters(folder, kms):
    for asked in (["ssn", "id"], {"ssn": {"fpp": 0.1}, "id": True, "kind": False}):
        assert verify(folder, encryption=ASKED, bloom_filters=asked, keys=kms) \
            == verify(folder, encryption=ASKED, bloom_filters=FILTERS, keys=kms)
    assert verify(folder, encryption=ASKED, keys=kms).without_filter == 0
    with pytest.raises(UnsupportedError, match="name them"):
        verify(folder, encryption=ASKED, bloom_filters=True, keys=kms)


def test_a_plaintext_filter_of_an_encrypted_column(folder, kms):
    path = folder / "good.parquet"
    _replace_filter(path, kms, encode_header(32) + bytes(32))
    [text] = found(folder, kms)
    assert "row group 0, column ssn: the filter is plain, its column encrypted" in text


def test_a_filter_that_does_not_authenticate(folder, kms):
    path = folder / "good.parquet"
    with ParquetFile(path, kms) as file:
        offset, length = file.footer.row_groups[0][1].bloom_filter
    stored = bytearray(path.read_bytes()[offset:offset + length])
    stored[20] ^= 1
    _replace_filter(path, kms, stored)
    assert "row group 0, column ssn: it cannot be read" in found(folder, kms)[0]


def test_a_plaintext_bitset_behind_an_encrypted_header(folder, kms):
    path = folder / "good.parquet"
    stored = _stored_filter(path, kms)
    header = 4 + int.from_bytes(stored[:4], "little")
    stored[header + 4:] = bytes(len(stored) - header - 4)
    _replace_filter(path, kms, stored)
    assert "row group 0, column ssn: it cannot be read" in found(folder, kms)[0]


def test_the_bitset_of_another_row_group(folder, kms):
    path = folder / "good.parquet"
    stored, other = _stored_filter(path, kms), _stored_filter(path, kms, 1)
    header = 4 + int.from_bytes(stored[:4], "little")
    assert len(stored) == len(other)
    _replace_filter(path, kms, stored[:header] + other[header:])
    assert "row group 0, column ssn: it cannot be read" in found(folder, kms)[0]


@pytest.mark.parametrize("plaintext_footer", [False, True])
def test_bounds_of_an_encrypted_column_in_the_footer(tmp_path, kms, plaintext_footer):
    asked = with_(plaintext_footer=plaintext_footer)
    path = tmp_path / "a.parquet"
    write(path, asked)
    path.write_bytes(forging.with_open_metadata(path.read_bytes(), kms, "ssn", (b"a", b"z")))
    texts = found(tmp_path, kms, encryption=asked)
    assert len(texts) == 3
    assert all(f"row group {number}, column ssn: minimum and maximum" in text
               for number, text in enumerate(texts))


def _stored_filter(path, kms, row_group=0):
    """Return the stored bytes of a filter of column ssn."""
    with ParquetFile(path, kms) as file:
        offset, length = file.footer.row_groups[row_group][1].bloom_filter
    return bytearray(path.read_bytes()[offset:offset + length])


def _replace_filter(path, kms, content):
    """Write a filter of column ssn over the one that is there."""
    with ParquetFile(path, kms) as file:
        chunk = file.footer.row_groups[0][1]
        offset, length = chunk.bloom_filter
    assert chunk.column.path == "ssn" and len(content) <= length
    data = bytearray(path.read_bytes())
    data[offset:offset + len(content)] = content
    path.write_bytes(data)


def test_what_is_no_parquet_file(folder, kms):
    (folder / "rows.csv").write_text("ssn\n1\n")
    [text] = found(folder, kms)
    assert "it cannot be read" in text


def test_summary_files(folder, kms):
    pq.write_metadata(TABLE.schema, folder / "_common_metadata")
    [text] = found(folder, kms)
    assert "summary file" in text


def test_files_that_only_sparks_own_reader_shows(folder, kms):
    """It knows nothing of the marks of jobs of secure_parquet, which hide their files."""
    job = "0" * 32
    (folder / "_staging" / job).mkdir(parents=True)
    (folder / "_staging" / job / "started").touch()
    write(folder / f"part-00000-{job}-{job}.parquet", None)
    [text] = found(folder, kms)
    assert "nothing in this file is encrypted" in text


def test_hidden_files(folder, kms):
    for name in ("_temporary/0", ".hidden", "_day=1"):
        (folder / name).mkdir(parents=True)
        write(folder / name / "part.parquet", None)
    with pytest.raises(EncryptionMismatchError, match="1 finding in 1 file; 2 were") as error:
        check(folder, kms)
    assert "_day=1" in error.value.file


def test_all_files_are_named(folder, kms):
    for number in range(3):
        write(folder / f"bad{number}.parquet", None)
    with pytest.raises(EncryptionMismatchError, match=r"3 findings in 3 files; 4 were") as error:
        check(folder, kms)
    again = pickle.loads(pickle.dumps(error.value))
    assert again.findings == error.value.findings and str(again) == str(error.value)


def test_keys_that_cannot_be_had(folder, kms):
    with pytest.raises(KeyNotFoundError) as error:
        check(folder, InMemoryKms({"footer": MASTER_KEYS["footer"]}))
    assert error.value.file.endswith("good.parquet")
    write(folder / "explicit.parquet", UniformKey(bytes(16)))
    assert ParquetFile(folder / "explicit.parquet", ExplicitKeys(bytes(16))).num_rows == 100
    with pytest.raises(KeyRetrievalError, match="explicit keys"):
        check(folder, kms)


def test_the_key_of_a_column_must_be_at_hand_also_where_its_metadata_needs_none(tmp_path):
    asked = with_(plaintext_footer=True)
    write(tmp_path / "a.parquet", asked, filters={})
    check(tmp_path, InMemoryKms(MASTER_KEYS), asked, {})
    for keys in ({}, {"pii": bytes(16)}):
        with pytest.raises(KeyRetrievalError):
            check(tmp_path, InMemoryKms({"footer": MASTER_KEYS["footer"]} | keys), asked, {})


def test_no_files(tmp_path, kms):
    with pytest.raises(FileNotFoundError, match="no files"):
        check(tmp_path, kms)
    with pytest.raises(FileNotFoundError):
        check(tmp_path / "nowhere", kms)


@pytest.mark.slow
def test_it_needs_no_pyspark():
    code = "import sys, secure_bloom.spark.native; print('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                          check=True).stdout.strip() == "False"


@pytest.mark.parametrize("call", [
    lambda folder, **keys: write_options(encryption=ASKED, **keys), read_options,
    lambda folder, **keys: verify(folder, encryption=ASKED, **keys)], ids=range(3))
def test_the_same_keys_are_taken_as_everywhere(folder, kms, call):
    for wrong, message in (({"kms": kms}, "argument kms is called keys now"),
                           ({"keys": ExplicitKeys(footer_key=b"0" * 16)}, "must be a KmsClient"),
                           ({}, "must be a KmsClient")):  # none in the environment
        with pytest.raises(TypeError, match=message):
            call(folder, **wrong)


def test_keys_of_the_environment_and_a_path(folder, kms, tmp_path_factory, monkeypatch):
    keyring = Keyring.create(tmp_path_factory.mktemp("keys") / "keyring.json")
    for name in ("footer", "pii"):
        keyring.add(name, MASTER_KEYS[name])
    monkeypatch.setenv("SECURE_BLOOM_KEYRING", str(keyring.path))
    for keys in ({}, {"keys": kms}, {"keys": keyring.path}):
        assert verify(folder, encryption=ASKED, bloom_filters=FILTERS, **keys).files == 1
