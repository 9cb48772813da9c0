"""The live files of an Iceberg table, and their keys if Iceberg has encrypted them.

pyiceberg reads the manifests, but cannot decrypt those of an encrypted table. So it gets them from
a ``FileIO`` that does.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, NamedTuple

from secure_bloom.crypto.gcm_stream import decrypt_stream
from secure_bloom.errors import (
    AuthenticationError,
    UnsupportedError,
    error_location,
)
from secure_bloom.keys.cache import CachedKms
from secure_bloom.keys.iceberg import MASTER_KEY, IcebergKeys, KeyMetadata, manifest_list_key
from secure_bloom.keys.retrieval import Keys, open_keys
from secure_bloom.storage.files import FilePath
from secure_bloom.storage.iceberg_metadata import parse_metadata


class LiveFiles(NamedTuple):
    """The files of a table; ``keys`` are those that its manifests have for them, if any."""

    paths: Sequence[FilePath]
    keys: IcebergKeys | None = None


def live_files(source: Any, keys: Keys) -> LiveFiles:
    """Return the files of the current snapshot of a pyiceberg table, or those that a scan plans.

    ``keys`` is the KMS that holds the master key of an encrypted table.

    Raises
    ------
    UnsupportedError
        If the table has delete files, or the source is a scan of a table with a master key.
    KeyRetrievalError
        If the KMS is missing or does not unwrap the keys.
    AuthenticationError
        If a manifest was changed, or is not encrypted and has keys of data files.
    """
    table = source if hasattr(source, "scan") else None
    scan = source if table is None else table.scan()
    decrypting = None
    if MASTER_KEY in scan.table_metadata.properties and scan.snapshot() is not None:
        if table is None:
            raise UnsupportedError(f"this Iceberg table has {MASTER_KEY}, and a scan does not have "
                                   "the keys of its manifests: pass the table, and filter the "
                                   "data set")
        decrypting = _decrypting(table.io, table.metadata_location, scan.snapshot(), keys)
        scan.io = decrypting or table.io
    tasks = list(scan.plan_files())
    if any(task.delete_files for task in tasks):
        raise UnsupportedError("this Iceberg table has delete files, so its data files alone do "
                               "not say which rows are valid; compact it, or read it with "
                               "pyiceberg or Spark")
    found = {task.file.file_path: task.file.key_metadata for task in tasks}
    if not any(found.values()):
        return LiveFiles(list(found))
    if decrypting is None:
        raise _untrusted(scan.snapshot().manifest_list)
    return LiveFiles(list(found), IcebergKeys(found))


def _untrusted(manifest: str) -> AuthenticationError:
    return AuthenticationError(
        "this manifest is not encrypted, but it, or one that it lists, has keys of data files: "
        "whoever can change it can replace both. To trust it nevertheless, pass the files with "
        "secure_bloom.keys.IcebergKeys", file=manifest)


def _decrypting(plain: Any, metadata_location: str, snapshot: Any, keys: Keys) \
        -> _DecryptingIO | None:
    """Return a ``FileIO`` of pyiceberg that decrypts the manifests of a snapshot.

    None if its manifest list is not encrypted.
    """
    from pyiceberg.manifest import read_manifest_list
    kms = open_keys(keys)
    with error_location(file=metadata_location):
        with plain.new_input(metadata_location).open() as file:
            metadata = parse_metadata(file.read())
        key = manifest_list_key(metadata, snapshot.snapshot_id,
                                kms if isinstance(kms, CachedKms) else None)
    if key is None:
        return None
    found = _DecryptingIO(plain, {snapshot.manifest_list: key})
    # Not snapshot.manifests: its cache knows what other lists, of anyone, say about a manifest.
    for manifest in read_manifest_list(found.new_input(snapshot.manifest_list)):
        path = manifest.manifest_path
        if manifest.key_metadata:
            with error_location(file=path):
                found.keys[path] = KeyMetadata.parse(manifest.key_metadata)
        elif any(entry.data_file.key_metadata for entry in manifest.fetch_manifest_entry(plain)):
            raise _untrusted(path)
    return found


class _DecryptingIO:
    """Opens files as a ``FileIO`` of pyiceberg does; those with a key are decrypted."""

    def __init__(self, plain: Any, keys: dict[str, KeyMetadata]):
        self.properties, self.keys, self._plain = plain.properties, keys, plain

    def new_input(self, location: str) -> Any:
        plain = self._plain.new_input(location)
        return _DecryptedInput(plain, self.keys[location]) if location in self.keys else plain


class _DecryptedInput:
    """An ``InputFile`` of pyiceberg, of a manifest or manifest list."""

    def __init__(self, plain: Any, key: KeyMetadata):
        self.location, self._plain, self._key = plain.location, plain, key

    def open(self, seekable: bool = True) -> io.BytesIO:
        with self._plain.open() as file:
            data = file.read()
        key, aad_prefix, length = self._key
        with error_location(file=self.location):
            return io.BytesIO(decrypt_stream(data, key, aad_prefix or b"", length or 0))
