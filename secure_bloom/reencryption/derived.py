"""What is derived from files whose encryption has changed: summary files, and indexes of the table.

Both show values of the files.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import pyarrow.fs as pa_fs

from secure_bloom.erasing.summaries import find_summaries, remove_summaries
from secure_bloom.errors import SecureBloomError
from secure_bloom.index.folder import IndexFolder
from secure_bloom.index.inspection import index_folders
from secure_bloom.index.manifest import StoredManifest
from secure_bloom.index.replacing import replace_index
from secure_bloom.index.rotation import update_rotated
from secure_bloom.keys.cache import CachedKms
from secure_bloom.reencryption.result import ReencryptResult
from secure_bloom.storage.inside import table_above
from secure_bloom.storage.table_names import table_of
from secure_bloom.storage.visibility import files_below


def update_derived(filesystem: pa_fs.FileSystem, path: str, done: ReencryptResult,
                   indexes: Indexes) -> None:
    """Remove or update what is derived from the files, and note it in the result."""
    handle = find_summaries if done.dry_run else remove_summaries
    found = handle(filesystem, path)
    done.summaries = found.paths
    done.out_of_reach += found.left
    is_folder = filesystem.get_file_info(path).type == pa_fs.FileType.Directory
    table = table_of(path) if is_folder else table_above(filesystem, path)
    failed = {}
    for folder in index_folders(filesystem, table, files_below(filesystem, table)):
        try:
            if indexes.renew(folder, done, is_part=path != table):
                done.indexes.append(folder.column)
        except (SecureBloomError, OSError, TypeError) as error:
            failed[folder.path] = f"the index could not be made anew: {error}; run it again, or " \
                                  "delete the index"
    if failed:
        done.unused_master_keys = []  # the indexes may need them
        done.failed |= failed


@dataclass(frozen=True)
class Indexes:
    """What becomes of the indexes of a table.

    Attributes
    ----------
    kms : CachedKms or None
    encrypted : collection of str
        Columns that are encrypted in some file at the end.
    master_keys : collection of str
        Those of all files then.
    are_replaced : bool
        Whether they get new keys in any case.
    are_late : bool
        Whether they are replaced although no file has changed: an earlier run may have been killed
        before it came to them.
    """

    kms: CachedKms | None
    encrypted: Collection[str]
    master_keys: Collection[str]
    are_replaced: bool
    are_late: bool

    def renew(self, folder: IndexFolder, done: ReencryptResult, *, is_part: bool) -> bool:
        """Update an index or replace it; return whether that was necessary.

        If no file was changed, an earlier run may have been killed before it came to the index,
        which would still show what the files no longer do, or in the middle of it. ``is_part``:
        the table has other files, too.
        """
        stored = folder.newest()
        if stored is None:
            return False
        is_other = self._is_other(folder.column, stored, done, is_part)
        is_unfinished = folder.has_replaced(stored)
        if not (done.changed or self.are_late or is_unfinished
                or (is_other and folder.column in self.encrypted)):
            return False
        if done.dry_run:
            return True
        if is_other or is_unfinished or self.are_replaced:
            replace_index(folder, self.kms)
        elif self.kms is not None or not stored.is_encrypted:
            update_rotated(folder, self.kms)  # once its files are old enough
        return True

    def _is_other(self, column: str, stored: StoredManifest, done: ReencryptResult,
                  is_part: bool) -> bool:
        """Whether an index has another encryption than its column."""
        if stored.material is None:
            return column in self.encrypted
        if column not in self.encrypted:
            return not is_part
        return not done.failed and stored.material.master_key_id not in self.master_keys
