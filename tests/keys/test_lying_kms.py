"""A KMS that unwraps a wrong key: a rotation must not replace the right one by it."""

import pyarrow as pa
import pytest

import secure_bloom
from secure_bloom import EncryptionConfiguration, read_table, write_table
from secure_bloom.keys import InMemoryKms, rotate_master_keys
from tests.index.helpers import age

MASTER_KEYS = {"footer": b"f" * 16, "pii": b"p" * 16, "new": b"n" * 16}
TABLE = pa.table({"ssn": ["1", "2"], "city": ["Rome", "Oslo"]})


class Lying(InMemoryKms):
    """Returns another key than the one that was wrapped with a master key."""

    def __init__(self, name):
        super().__init__(MASTER_KEYS)
        self._name = name

    def unwrap_key(self, wrapped_key, master_key_identifier):
        key = super().unwrap_key(wrapped_key, master_key_identifier)
        return bytes(len(key)) if master_key_identifier == self._name else key


@pytest.fixture(params=["double", "single"])
def wrapping(request):
    return {"double_wrapping": request.param == "double"}


@pytest.mark.parametrize("material", ["internal", "external"])
@pytest.mark.parametrize("plaintext_footer", [False, True])
def test_a_wrong_column_key_is_not_rewrapped(tmp_path, wrapping, material, plaintext_footer):
    path = tmp_path / "a.parquet"
    write_table(TABLE, path, keys=InMemoryKms(MASTER_KEYS), encryption=EncryptionConfiguration(
        "footer", {"pii": ["ssn"]}, internal_key_material=material == "internal",
        plaintext_footer=plaintext_footer, **wrapping))
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    result = rotate_master_keys(path, Lying("pii"), old="pii", new="new")
    assert list(result.failed) == [str(path)] and "column ssn" in result.failed[str(path)]
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
    assert not rotate_master_keys(path, InMemoryKms(MASTER_KEYS), old="pii", new="new").failed
    assert read_table(path, InMemoryKms(MASTER_KEYS)).equals(TABLE)


def test_a_wrong_footer_key_is_not_rewrapped(tmp_path, wrapping):
    path = tmp_path / "a.parquet"
    write_table(TABLE, path, keys=InMemoryKms(MASTER_KEYS), encryption=EncryptionConfiguration(
        "footer", {"pii": ["ssn"]}, **wrapping))
    assert rotate_master_keys(path, Lying("footer"), old="footer", new="new").failed
    assert read_table(path, InMemoryKms(MASTER_KEYS)).equals(TABLE)


def test_a_wrong_key_of_an_index_is_not_rewrapped(tmp_path):
    kms = InMemoryKms(MASTER_KEYS)
    write_table(TABLE, tmp_path / "a.parquet", keys=kms,
                encryption=EncryptionConfiguration("footer", {"pii": ["ssn"]}))
    age(tmp_path)  # an index does not cover recent files
    assert secure_bloom.index.build(tmp_path, "ssn", kms).indexed == 1
    index = secure_bloom.index.Index.open(tmp_path, kms)
    index._kms = secure_bloom.keys.cache.cached(Lying("pii"))
    assert index.rotate(old="pii", new="new").failed
    found = secure_bloom.index.Index.open(tmp_path, kms).lookup("ssn", ["1", "absent"])
    assert found.row_groups == [{"a.parquet": [0]}, {}]
