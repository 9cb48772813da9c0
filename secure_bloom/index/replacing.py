"""Replace an index by one with a new key, because its column is encrypted in another way now.

The new index takes the place of the old one by a later manifest, as any version does, so updates
that go on meanwhile notice it. It covers no file at first. Manifests of the old index are deleted
last: as long as one is there, whoever continues after a crash knows that this did not end.
"""

from __future__ import annotations

import pyarrow.fs as pa_fs

from secure_bloom.index.folder import IndexFolder
from secure_bloom.index.manifest import Manifest
from secure_bloom.index.publishing import TRIES, stored_as_newest, too_fast
from secure_bloom.index.rotation import update_rotated
from secure_bloom.index.table import Table
from secure_bloom.index.update import find_master_key
from secure_bloom.keys.cache import CachedKms


def replace_index(folder: IndexFolder, kms: CachedKms | None) -> None:
    """Replace an index by one with a new key, under the master key that the column has now.

    If no file encrypts the column, the new index has no encryption. It is never exclusive.

    Raises
    ------
    ColumnError, FileNotFoundError, KeyRetrievalError
        As for :func:`.create_index`; then the old index is as it was.
    SecureBloomError
        If other programs change the index all the time.
    """
    table = Table(folder.filesystem, folder.table)
    found = find_master_key(table, folder.column, kms, table.listing())
    new = Manifest.new(folder.column, None if found is None else found.name, kms)
    version, old = _publish(folder, new)
    for info in old:
        if folder.is_of_segment(info):
            folder.delete(info.path)
    update_rotated(folder, kms)
    folder.delete_before(version)


def _publish(folder: IndexFolder, new: Manifest) -> tuple[int, list[pa_fs.FileInfo]]:
    """Store the manifest as the newest one; return its version, and the files from before."""
    for _ in range(TRIES):
        old = folder.own_infos()  # what a version has that is published then, was there before it
        version = max(folder.versions(), default=0) + 1
        if stored_as_newest(folder, new, version) is not None:
            return version, old
    raise too_fast(folder)
