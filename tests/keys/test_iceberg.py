"""The keys of Iceberg's table encryption: key metadata as Iceberg 1.12.0 writes it."""

import base64
import os
import pickle
from contextlib import suppress

import pyarrow as pa
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from secure_bloom import ParquetFile, UniformKey, read_table, write_table
from secure_bloom.errors import (
    AuthenticationError,
    KeyNotFoundError,
    KeyRetrievalError,
    KeyUnwrapError,
)
from secure_bloom.keys import IcebergKeys, InMemoryKms
from secure_bloom.keys.iceberg import KeyMetadata, manifest_list_key
from tests.cases import for_each

KEY, PREFIX = b"an AES-128 key !", b"an AAD prefix !!"
#: version 1; 16 bytes; 16 bytes; 2,106,464
WITH_LENGTH = b"\x01\x20" + KEY + b"\x02\x20" + PREFIX + b"\x02\xc0\x91\x81\x02"
WITHOUT_LENGTH = b"\x01\x20" + KEY + b"\x02\x20" + PREFIX + b"\x00"
OF_1_9 = WITHOUT_LENGTH[:-1]
WITHOUT_PREFIX = b"\x01\x20" + KEY + b"\x00\x00"


@pytest.mark.parametrize(("data", "prefix", "length"), [
    (WITH_LENGTH, PREFIX, 2_106_464), (WITHOUT_LENGTH, PREFIX, None), (OF_1_9, PREFIX, None),
    (WITHOUT_PREFIX, None, None)])
def test_key_metadata_has_the_key_the_prefix_and_the_length(data, prefix, length):
    assert KeyMetadata.parse(data) == (KEY, prefix, length)


@pytest.mark.parametrize("data", [
    b"", b"\x02" + WITH_LENGTH[1:], WITH_LENGTH[:12], WITH_LENGTH[:-1], b"\x01\x22" + KEY + b"\x00",
    b"\x01\x1f" + KEY, b"\x01\x20" + KEY + b"\x04\x20" + PREFIX, b"\x01" + b"\xff" * 12,
    b'{"keyMaterialType":"PKMT1"}'])
def test_other_key_metadata_is_an_error(data):
    with pytest.raises(KeyRetrievalError, match=r"a\.parquet: this is not the standard key metad"):
        IcebergKeys({"file:/t/a.parquet": data})


@pytest.mark.parametrize("prefix", ["", "file:", "file://"])
def test_a_file_is_read_by_its_path_or_uri(tmp_path, prefix):
    path = str(tmp_path / "a.parquet")
    write_table(pa.table({"n": [1]}), path, encryption=UniformKey(KEY))
    keys = IcebergKeys({f"{prefix}{path}": WITHOUT_PREFIX, "s3://bucket/b.parquet": OF_1_9})
    assert read_table(path, pickle.loads(pickle.dumps(keys)))["n"].to_pylist() == [1]
    assert read_table(f"file://{path}", keys).num_rows == 1


@pytest.mark.parametrize("path", ["bucket/t/a.parquet", "s3a://bucket/t/a.parquet", "t/a.parquet",
                                  "s3://bucket/t/a.parquet"])
def test_paths_are_compared_without_what_differs_between_file_systems(path):
    keys = IcebergKeys({"s3://bucket/t/a.parquet": WITHOUT_PREFIX})
    assert keys.of_file(path).footer_key(None) == KEY


def test_of_files_with_the_same_name_the_path_decides():
    other = WITHOUT_PREFIX.replace(KEY, KEY[::-1])
    keys = IcebergKeys({"s3://b/t/p=1/a.parquet": WITHOUT_PREFIX, "s3://b/t/p=2/a.parquet": other})
    assert keys.of_file("b/t/p=2/a.parquet").footer_key(None) == KEY[::-1]
    with pytest.raises(KeyNotFoundError, match="was not given"):
        keys.of_file("b/t/p=3/a.parquet")


def test_files_without_key_metadata_are_refused(tmp_path):
    path = str(tmp_path / "a.parquet")
    write_table(pa.table({"n": [1]}), path)
    for keys, message in [(IcebergKeys({}), "was not given"),
                          (IcebergKeys({path: None}), "has no key metadata for this file")]:
        with pytest.raises(KeyNotFoundError, match=rf"a\.parquet: .*{message}"):
            read_table(path, keys)
    with pytest.raises(AuthenticationError, match="the file is not encrypted"):  # it was replaced
        read_table(path, IcebergKeys({path: WITHOUT_PREFIX}))
    with open(path, "rb") as file, pytest.raises(KeyNotFoundError, match="open the file by its p"):
        ParquetFile(file.read(), IcebergKeys({path: WITHOUT_PREFIX}))


def test_a_repr_has_no_key():
    shown = repr(IcebergKeys({"a": WITH_LENGTH})) + repr(KeyMetadata.parse(WITH_LENGTH))
    assert shown == "<IcebergKeys of 1 file><KeyMetadata with a key of 16 bytes>"


# --- the key of a manifest list ------------------------------------------------------------------

KMS = InMemoryKms({"pii": b"the master key !"})
KEK = b"a key for keys !"


def metadata(timestamp="1795420741015", sealed_for="1795420741015"):
    """The parts of a metadata file that have keys; snapshot 7 is encrypted, snapshot 6 is not."""
    nonce = os.urandom(12)
    sealed = nonce + AESGCM(KEK).encrypt(nonce, WITH_LENGTH, sealed_for.encode())
    return {"properties": {"encryption.key-id": "pii"},
            "snapshots": [{"snapshot-id": 6}, {"snapshot-id": 7, "key-id": "list"}],
            "encryption-keys": [
                {"key-id": "kek", "encrypted-by-id": "pii",
                 "encrypted-key-metadata": KMS.wrap_key(KEK, "pii"),
                 "properties": {"KEY_TIMESTAMP": timestamp}},
                {"key-id": "list", "encrypted-by-id": "kek",
                 "encrypted-key-metadata": base64.b64encode(sealed).decode()}]}


def test_the_kms_unwraps_the_key_of_a_manifest_list():
    assert manifest_list_key(metadata(), 7, KMS) == KeyMetadata.parse(WITH_LENGTH)
    assert manifest_list_key(metadata(), 6, None) is None
    with pytest.raises(KeyNotFoundError, match="pass the KMS that holds its master key"):
        manifest_list_key(metadata(), 7, None)


@pytest.mark.parametrize("number", [0, 1])
def test_a_metadata_file_that_lacks_a_key_is_an_error(number):
    found = metadata()
    del found["encryption-keys"][number]
    with pytest.raises(KeyNotFoundError, match="lacks the key of its manifest list"):
        manifest_list_key(found, 7, KMS)


def test_a_changed_timestamp_or_another_key_is_an_error():
    with pytest.raises(KeyUnwrapError, match="was changed"):
        manifest_list_key(metadata(timestamp="0"), 7, KMS)

    class OtherKms:
        def unwrap_key(self, wrapped_key, name):
            return KEK[::-1]

    with pytest.raises(KeyUnwrapError, match="another key"):
        manifest_list_key(metadata(), 7, OtherKms())


@for_each("place", [
    ("properties",), ("properties", "encryption.key-id"), ("snapshots",), ("snapshots", 0),
    ("snapshots", 0, "snapshot-id"), ("snapshots", 1), ("encryption-keys",),
    ("encryption-keys", 0, "key-id"), ("encryption-keys", 0, "encrypted-key-metadata"),
    ("encryption-keys", 0, "properties"), ("encryption-keys", 0, "properties", "KEY_TIMESTAMP"),
    ("encryption-keys", 1, "encrypted-by-id"), ("encryption-keys", 1, "encrypted-key-metadata")])
@for_each("value", [None, 5, "x", [5], {}, {"snapshot-id": 7, "key-id": ["x"]}])
def test_metadata_with_anything_in_it_is_a_key_error(place, value):
    found = metadata()
    inside = found
    for name in place[:-1]:
        inside = inside[name]
    inside[place[-1]] = value
    with suppress(KeyRetrievalError):
        assert manifest_list_key(found, 7, KMS) == KeyMetadata.parse(WITH_LENGTH)
