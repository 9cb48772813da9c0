"""Data sets of Iceberg tables with encrypted manifests, and of tables that were tampered with.

The tables are made here, as Iceberg makes them. tests/lakehouse has those of Spark.
"""

import base64
import gzip
import json
import os
import pickle

import pyarrow as pa
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

import secure_bloom
from secure_bloom import Keyring, UniformKey, write_table
from secure_bloom.errors import AuthenticationError, FormatError, KeyNotFoundError, KeyUnwrapError
from secure_bloom.keys import IcebergKeys, InMemoryKms
from tests.storage.avro_files import binary, long

pytestmark = pytest.mark.slow  # to import pyiceberg takes a second

catalogs = pytest.importorskip("pyiceberg.catalog.sql")
from pyiceberg import manifest  # noqa: E402
from pyiceberg.manifest import write_manifest, write_manifest_list  # noqa: E402
from pyiceberg.table import StaticTable  # noqa: E402

ROWS = pa.table({"ssn": ["1", "2"], "amount": [1, 2]})
KMS = InMemoryKms({"pii": b"the master key !"})
KEY, KEK, PREFIX = b"an AES-128 key !", b"a key for keys !", b"an AAD prefix !!"
_KEY_OF_FILE, _KEY_OF_MANIFEST = 12, 14  # places of the fields in pyiceberg's records


def key_metadata(length: int | None = None, prefix: bytes | None = PREFIX) -> bytes:
    return b"\1" + binary(KEY) + (long(0) if prefix is None else long(1) + binary(prefix)) + (
        long(0) if length is None else long(1) + long(length))


def encrypt(path: str) -> bytes:
    """Make an AES GCM stream of a file; return its key metadata."""
    with open(path, "rb") as file:
        data = file.read()
    nonce = os.urandom(12)
    sealed = nonce + AESGCM(KEY).encrypt(nonce, data, PREFIX + bytes(4))
    with open(path, "wb") as file:
        file.write(b"AGS1" + (1 << 20).to_bytes(4, "little") + sealed)
    return key_metadata(8 + len(sealed))


class Table:
    """An encrypted table of one file; the parts in ``plain`` are not encrypted."""

    def __init__(self, folder, *plain: str):
        catalog = catalogs.SqlCatalog("c", uri=f"sqlite:///{folder}/c.db",
                                      warehouse=f"file://{folder}/w")
        catalog.create_namespace("n")
        table = catalog.create_table("n.t", ROWS.schema, properties={"encryption.key-id": "pii"})
        table.append(ROWS)
        self.old, snapshot = table, table.current_snapshot()
        [entry] = snapshot.manifests(table.io)[0].fetch_manifest_entry(table.io)
        self.data = entry.data_file.file_path.removeprefix("file://")
        if "data" not in plain:
            write_table(ROWS, self.data, bloom_filters=["ssn"], encryption=UniformKey(KEY))
            entry.data_file[_KEY_OF_FILE] = key_metadata(prefix=None)
            assert entry.data_file.key_metadata
        self.manifest = f"{table.location()}/metadata/m.avro"
        with write_manifest(2, table.spec(), table.schema(), table.io.new_output(self.manifest),
                            snapshot.snapshot_id, "deflate") as writer:
            writer.add_entry(entry)
        found = writer.to_manifest_file()
        assert found.key_metadata is None and found.manifest_path == self.manifest
        if "manifest" not in plain:
            found[_KEY_OF_MANIFEST] = encrypt(self.manifest.removeprefix("file://"))
            assert found.key_metadata
        self.list = f"{table.location()}/metadata/snap.avro"
        with write_manifest_list(2, table.io.new_output(self.list), snapshot.snapshot_id, None, 1,
                                 "deflate") as writer:
            writer.add_manifests([found])
        with open(table.metadata_location.removeprefix("file://")) as file:
            self.metadata = json.load(file)
        [about] = self.metadata["snapshots"]
        about["manifest-list"] = self.list
        if "list" not in plain:
            about["key-id"] = "list"
            self.metadata["encryption-keys"] = keys_of_list(
                encrypt(self.list.removeprefix("file://")))

    def open(self, name="v9.metadata.json"):
        path = f"{self.old.location()}/metadata/{name}"
        data = json.dumps(self.metadata).encode()
        with open(path.removeprefix("file://"), "wb") as file:
            file.write(gzip.compress(data) if ".gz." in name else data)
        return StaticTable.from_metadata(path)


def keys_of_list(metadata: bytes) -> list[dict]:
    nonce = os.urandom(12)
    sealed = nonce + AESGCM(KEK).encrypt(nonce, metadata, b"17954")
    return [{"key-id": "kek", "encrypted-by-id": "pii",
             "encrypted-key-metadata": KMS.wrap_key(KEK, "pii"),
             "properties": {"KEY_TIMESTAMP": "17954"}},
            {"key-id": "list", "encrypted-by-id": "kek",
             "encrypted-key-metadata": base64.b64encode(sealed).decode()}]


@pytest.mark.parametrize("name", ["v9.metadata.json", "v9.gz.metadata.json"])
def test_an_encrypted_table_is_read(tmp_path, name):
    table = Table(tmp_path).open(name)
    rows = secure_bloom.dataset(table, KMS, require_encryption=True)
    assert rows.to_table().equals(ROWS)
    assert pickle.loads(pickle.dumps(rows)).to_table(filter=[("ssn", "==", "2")]).num_rows == 1
    assert secure_bloom.find(table, "ssn", ["2"], keys=KMS)["amount"].to_pylist() == [2]


def test_the_kms_may_be_a_keyring_a_path_or_that_of_the_environment(tmp_path, monkeypatch):
    table, path = Table(tmp_path), tmp_path / "keyring.json"
    keyring = Keyring.create(path)
    keyring.add("pii")
    table.metadata["encryption-keys"][0]["encrypted-key-metadata"] = keyring.wrap_key(KEK, "pii")
    for keys in (keyring, path, str(path)):
        assert secure_bloom.dataset(table.open(), keys).count_rows() == 2
    with pytest.raises(KeyNotFoundError, match="pass the KMS"):
        secure_bloom.dataset(table.open())
    monkeypatch.setenv("SECURE_BLOOM_KEYRING", str(path))
    assert secure_bloom.dataset(table.open()).count_rows() == 2


@pytest.mark.parametrize(("plain", "has_property"), [
    (["manifest"], True), (["list", "manifest"], True), (["list", "manifest"], False)], ids=str)
def test_keys_in_manifests_that_anyone_can_write_are_not_trusted(tmp_path, plain, has_property):
    """Who can write to the folder could put in files of their own, encrypted with their keys."""
    table = Table(tmp_path, *plain)
    if not has_property:
        del table.metadata["properties"]["encryption.key-id"]
    with pytest.raises(AuthenticationError, match="whoever can change it can replace both"):
        secure_bloom.dataset(table.open(), KMS, require_encryption=True)
    keys = IcebergKeys({f"file://{table.data}": key_metadata(prefix=None)})
    assert secure_bloom.dataset([table.data], keys, require_encryption=True).count_rows() == 2


def test_a_plaintext_table_that_names_a_key_is_read_unless_encryption_is_required(tmp_path):
    table = Table(tmp_path, "list", "manifest", "data").open()
    assert secure_bloom.dataset(table, KMS).count_rows() == 2
    with pytest.raises(AuthenticationError):
        secure_bloom.dataset(table, KMS, require_encryption=True)


def test_another_list_does_not_say_which_key_a_manifest_has(tmp_path):
    """A process has read another table whose list, of anyone, names the same manifest."""
    table = Table(tmp_path)
    [other] = table.old.current_snapshot().manifests(table.old.io)
    other[0], other[_KEY_OF_MANIFEST] = table.manifest, b"\1 another"
    manifest._manifest_cache.get_or_cache(other)
    assert secure_bloom.dataset(table.open(), KMS).count_rows() == 2


class Lying:
    def __init__(self, key):
        self.unwrap_key = lambda wrapped, name: key


@pytest.mark.parametrize("key", [None, "an AES-128 key !", b"short", b"", KEK[::-1], 5], ids=repr)
def test_a_kms_that_lies_is_an_error(tmp_path, key):
    with pytest.raises(KeyUnwrapError):
        secure_bloom.dataset(Table(tmp_path).open(), Lying(key))


@pytest.mark.parametrize("content", [b"{", b"[]", b"\x1f\x8bcut", b"\xff", b"[" * 100_000],
                         ids=lambda content: str(content[:9]))
def test_a_metadata_file_that_is_none_is_an_error(tmp_path, content):
    table = Table(tmp_path).open()
    with open(table.metadata_location.removeprefix("file://"), "wb") as file:
        file.write(content)
    with pytest.raises(FormatError, match=r"v9\.metadata\.json: this is not a metadata file"):
        secure_bloom.dataset(table, KMS)
