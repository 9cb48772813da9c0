"""What can be done with some of the keys, or none."""

import io

import pyarrow as pa
import pyarrow.parquet.encryption as pe
import pytest

import secure_bloom
from secure_bloom import ExplicitKeys, ParquetFile
from secure_bloom.errors import AuthenticationError, ColumnError, KeyNotFoundError
from secure_bloom.keys import InMemoryKms
from secure_bloom.keys.retrieval import KmsKeys

KMS = InMemoryKms({"kf": b"0123456789012345", "kc1": b"1234567890123450"})
TABLE = pa.table({"ssn": ["a", "b"], "city": ["x", "y"], "tags": [[1], [2]]})
FILTERS = {"ssn": True, "city": True, "tags.list.element": True}


def _file(plaintext_footer=True):
    sink = io.BytesIO()
    secure_bloom.write_table(
        TABLE, sink, bloom_filters=FILTERS, kms=KMS, encryption=pe.EncryptionConfiguration(
            "kf", column_keys={"kc1": ["ssn"]}, plaintext_footer=plaintext_footer))
    return sink.getvalue()


def _column_key(data):
    chunk = ParquetFile(data, KMS).footer.row_groups[0][0]
    return KmsKeys(KMS).column_key("ssn", chunk.key_metadata)


def test_a_column_key_alone_reads_its_column_under_a_plaintext_footer():
    data = _file()
    file = ParquetFile(data, ExplicitKeys(column_keys={"ssn": _column_key(data)}))
    assert file.footer.signature_verified is False
    assert file.might_contain("ssn", ["a", "z"]).tolist() == [[True, False]]
    assert file.read().equals(TABLE)


def test_without_keys_plain_columns_and_their_filters_stay_readable():
    file = ParquetFile(_file())
    assert file.read(columns=["city"]).equals(TABLE.select(["city"]))
    assert file.might_contain("city", ["x", "z"]).tolist() == [[True, False]]
    with pytest.raises(KeyNotFoundError, match="row group 0, column ssn"):
        file.might_contain("ssn", ["a"])
    with pytest.raises(KeyNotFoundError, match="pass keys"):
        file.read()


def test_the_footer_key_alone_hides_columns_with_keys_of_their_own():
    only_footer = InMemoryKms({"kf": b"0123456789012345"})
    file = ParquetFile(_file(plaintext_footer=False), only_footer)
    assert file.hidden_columns == ["ssn"]
    assert {info.column for info in file.bloom_filters} == FILTERS.keys() - {"ssn"}
    with pytest.raises(KeyNotFoundError, match="column ssn"):
        file.prune([("ssn", "==", "a")])


def test_rows_are_not_compared_by_a_column_of_lists():
    file = ParquetFile(_file(), KMS)
    assert file.prune([("tags.list.element", "==", 1)]) == [0]
    assert file.prune([("tags.list.element", "==", 3)]) == []
    with pytest.raises(ColumnError, match="might_contain"):
        file.read(filters=[("tags.list.element", "==", 1)])


def test_an_error_in_a_folder_names_the_file(tmp_path):
    for name in ("one.parquet", "two.parquet"):
        secure_bloom.write_table(TABLE, tmp_path / name, bloom_filters={}, kms=KMS,
                                 encryption=pe.EncryptionConfiguration("kf",
                                                                       uniform_encryption=True))
    data = bytearray((tmp_path / "two.parquet").read_bytes())
    data[60] ^= 1  # in the first page
    (tmp_path / "two.parquet").write_bytes(data)
    with pytest.raises(AuthenticationError, match=r"two\.parquet"):
        secure_bloom.read_table(tmp_path, keys=KMS)
