"""The keys of Iceberg's table encryption: each file has its own, in its key metadata.

Iceberg's standard key metadata is one byte with the version, 1, and a record in Avro's binary
encoding: the key (bytes), the AAD prefix (optional bytes) and the length of the file (optional
long). A manifest has the key metadata of its files, the manifest list that of the manifests. That
of the manifest list is in the metadata file, encrypted with a key-encryption key, which the KMS has
wrapped with the master key of the table.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from secure_bloom.crypto.aes_gcm import KEY_SIZES, NONCE_SIZE
from secure_bloom.display import count
from secure_bloom.errors import KeyNotFoundError, KeyRetrievalError, KeyUnwrapError
from secure_bloom.keys.cache import cached
from secure_bloom.keys.kms import KeyUnwrapper
from secure_bloom.keys.retrieval import ExplicitKeys
from secure_bloom.storage.avro import Decoder

MASTER_KEY = "encryption.key-id"  #: the property of a table that names its master key
_TIMESTAMP = "KEY_TIMESTAMP"  # the property of a key-encryption key that is also its AAD
_VERSION = 1


class KeyMetadata(NamedTuple):
    """The key and the AAD prefix of one file, and its length if that is recorded."""

    key: bytes
    aad_prefix: bytes | None
    file_length: int | None

    @classmethod
    def parse(cls, data: bytes) -> KeyMetadata:
        """Decode Iceberg's standard key metadata.

        Raises
        ------
        KeyRetrievalError
            If it is something else, such as the metadata of another encryption manager.
        """
        record = Decoder(data)
        try:
            if record.byte() != _VERSION:
                raise ValueError
            key = record.binary()
            aad_prefix = record.binary() if record.branch(2) else None
            # Iceberg 1.9 ends here.
            file_length = record.long() if record.has_more() and record.branch(2) else None
        except ValueError:
            key = b""
        if len(key) not in KEY_SIZES:
            raise KeyRetrievalError("this is not the standard key metadata of Iceberg, version 1; "
                                    "read the table with the software that wrote it")
        return cls(key, aad_prefix, file_length)

    def __repr__(self) -> str:
        return f"<KeyMetadata with a key of {len(self.key)} bytes>"


def manifest_list_key(metadata: Mapping[str, Any], snapshot_id: int,
                      kms: KeyUnwrapper | None) -> KeyMetadata | None:
    """Return the key of a snapshot's manifest list; None if that is not encrypted.

    Parameters
    ----------
    metadata : mapping
        The content of the table's metadata file.
    snapshot_id : int
    kms : KeyUnwrapper, optional
        Unwraps what the ``KeyManagementClient`` of the table's catalog has wrapped, in base64.

    Raises
    ------
    KeyRetrievalError
        If the KMS is missing or does not unwrap the key-encryption key, or the metadata file lacks
        a key.
    """
    try:
        [key_id] = [snapshot.get("key-id") for snapshot in metadata["snapshots"]
                    if snapshot["snapshot-id"] == snapshot_id]
        if key_id is None:
            return None
        keys = {key["key-id"]: key for key in metadata["encryption-keys"]}
        stored = keys[key_id]
        wrapping = keys[stored["encrypted-by-id"]]
        sealed = base64.b64decode(stored["encrypted-key-metadata"])
        aad = wrapping["properties"][_TIMESTAMP].encode()
        wrapped, master_key = wrapping["encrypted-key-metadata"], metadata["properties"][MASTER_KEY]
        if not (isinstance(wrapped, str) and isinstance(master_key, str)):
            raise ValueError
    except (LookupError, TypeError, ValueError, AttributeError):
        raise KeyNotFoundError("the metadata file of this Iceberg table lacks the key of its "
                               "manifest list") from None
    if kms is None:
        raise KeyNotFoundError("the manifests of this Iceberg table are encrypted; pass the KMS "
                               "that holds its master key")
    kek = cached(kms).unwrap_key(wrapped, master_key)
    try:
        found = AESGCM(kek).decrypt(sealed[:NONCE_SIZE], sealed[NONCE_SIZE:], aad)
    except (InvalidTag, ValueError):  # ValueError: of another size
        raise KeyUnwrapError("the key of the manifest list cannot be decrypted: the KMS has "
                             "returned another key, or the metadata file was changed") from None
    return KeyMetadata.parse(found)


class IcebergKeys:
    """The keys of the data files of an encrypted Iceberg table, each with its own.

    Iceberg's Parquet files do not name their keys and do not store their AAD prefix. Both are in
    the table's manifests, and Spark shows them in the metadata table ``data_files``. The pickled
    form of this object contains the keys.

    Parameters
    ----------
    key_metadata : mapping of str to bytes
        The column ``key_metadata`` by the column ``file_path``. None, for a file without
        encryption, is allowed, but such a file is refused when it is opened.

    Raises
    ------
    KeyRetrievalError
        If a file's key metadata is not Iceberg's standard one.

    Examples
    --------
    >>> rows = spark.table("catalog.db.people.data_files").collect()         # doctest: +SKIP
    >>> keys = IcebergKeys({row.file_path: row.key_metadata for row in rows})  # doctest: +SKIP
    >>> people = secure_bloom.dataset([row.file_path for row in rows], keys)   # doctest: +SKIP
    """

    def __init__(self, key_metadata: Mapping[str, bytes | bytearray | None]):
        self._keys: dict[str, dict[str, ExplicitKeys | None]] = {}  # by name, then by path
        for path, metadata in key_metadata.items():
            of_name = self._keys.setdefault(_name(path), {})
            of_name[_without_scheme(path)] = _explicit(path, metadata)

    def of_file(self, path: str | None) -> ExplicitKeys:
        """Return the keys of a file.

        Raises
        ------
        KeyNotFoundError
            If it is not one of the table's files, or has no key metadata.
        """
        if path is None:
            raise KeyNotFoundError("the keys of an Iceberg table are known by the paths of its "
                                   "files; open the file by its path")
        found = self._keys.get(_name(path), {})
        location = _without_scheme(path)
        if location not in found and len(found) == 1:  # a URI may have a host that the path lacks
            [location] = found
        if location not in found:
            raise KeyNotFoundError("the key metadata of this file was not given; it may be newer "
                                   "than the list of the table's files", file=path)
        keys = found[location]
        if keys is None:
            raise KeyNotFoundError("the table has no key metadata for this file, so it is not "
                                   "encrypted, or not by Iceberg", file=path)
        return keys

    def __repr__(self) -> str:
        return f"<IcebergKeys of {count(sum(map(len, self._keys.values())), 'file')}>"


def _explicit(path: str, metadata: bytes | bytearray | None) -> ExplicitKeys | None:
    if metadata is None:
        return None
    try:
        found = KeyMetadata.parse(bytes(metadata))
    except KeyRetrievalError as error:
        raise KeyRetrievalError(error.message, file=path) from None
    return ExplicitKeys(found.key, aad_prefix=found.aad_prefix)


def _name(path: str) -> str:
    """Return the name of a file; Iceberg gives each a new UUID."""
    return path.rpartition("/")[2]


def _without_scheme(path: str) -> str:
    """Return what ``file:/a`` and ``/a`` have in common, and ``s3://b/a`` and ``b/a``."""
    scheme, colon, rest = path.partition(":/")
    return (rest if colon and "/" not in scheme else path).lstrip("/")
