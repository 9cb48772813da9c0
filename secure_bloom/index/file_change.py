"""What a file has lost that was written again without some of its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow.fs as pa_fs

from secure_bloom.errors import SecureBloomError
from secure_bloom.index.column_segments import leaf_column
from secure_bloom.index.file_entry import footer_digest
from secure_bloom.index.geometry import pack
from secure_bloom.index.sealing import IndexKey
from secure_bloom.index.stamps import Stamp, stamp
from secure_bloom.parquet.schema import LeafColumn
from secure_bloom.reading.open_file import OpenFile
from secure_bloom.storage.versions import FileVersion
from secure_bloom.verify.measure import ColumnHashes


class LostPairs(NamedTuple):
    """The fingerprints of an index that row groups of a file have no longer.

    ``pairs`` are as :func:`.pack` returns them, with the numbers of row groups in the file.
    """

    index_id: bytes
    pairs: np.ndarray


@dataclass(frozen=True)
class FileChange:
    """A file that replaces another one, whose row groups have lost rows and gained none.

    Attributes
    ----------
    old, new : str
        Paths, as the filesystem lists them.
    stamp : Stamp
        Of the old file.
    version : FileVersion or None
        Of the old file, which was read.
    old_footer, new_footer : bytes
        Digests of the stored footers.
    lost : mapping of str to LostPairs
        By column that has an index. It lacks columns for which they are not known.
    """

    old: str
    new: str
    stamp: Stamp
    version: FileVersion | None
    old_footer: bytes
    new_footer: bytes
    lost: Mapping[str, LostPairs] = field(repr=False)

    @classmethod
    def of(cls, filesystem: pa_fs.FileSystem, old: OpenFile, path: str, new: OpenFile,
           new_path: str, row_groups: Iterable[int], keys: Mapping[str, IndexKey]) \
            -> FileChange | None:
        """Compare two open files, of which some row groups differ; None if some are missing.

        Parameters
        ----------
        path, new_path : str
            Of the old file, and that which the new one will have.
        keys : mapping of str to IndexKey
            The columns with an index, and the keys of the indexes.
        """
        if old.num_row_groups != new.num_row_groups:
            return None
        lost = {}
        for column, key in keys.items():
            try:
                lost[column] = LostPairs(key.index_id,
                                         _lost(old, new, column, row_groups, key))
            except SecureBloomError:  # the column cannot be indexed, or its type has changed
                continue
        return cls(path, new_path, stamp(filesystem, filesystem.get_file_info(path)),
                   old.version, footer_digest(old), footer_digest(new), lost)

    def is_of(self, known: Stamp, footer: bytes, filesystem: pa_fs.FileSystem) -> bool:
        """Whether the old file is the one of which an index has this stamp and footer."""
        return footer == self.old_footer and known.is_of(self.version, filesystem) \
            and known.tag == self.stamp.tag


def _lost(old: OpenFile, new: OpenFile, column: str, row_groups: Iterable[int],
          key: IndexKey) -> np.ndarray:
    """Return the pairs of a column that the row groups of a file have no longer."""
    before, after = (leaf_column(file, column) for file in (old, new))
    if before is None and after is None:
        return np.empty(0, np.uint64)
    if before is None or after is None or before.type != after.type:
        raise SecureBloomError("the column has another type", column=column)
    # Fingerprints and not hashes: that of a value that goes may be that of one that stays.
    had, has = (_fingerprints(file, leaf, key) for file, leaf in ((old, before), (new, after)))
    return np.concatenate([np.empty(0, np.uint64), *(
        np.setdiff1d(had(group), has(group), assume_unique=True)
        for group in sorted(row_groups))])


def _fingerprints(file: OpenFile, leaf: LeafColumn, key: IndexKey) \
        -> Callable[[int], np.ndarray]:
    """Return a function that returns the pairs of a row group, each once."""
    stored = ColumnHashes(file, file.keys)

    def read(group: int) -> np.ndarray:
        return np.unique(np.concatenate([np.empty(0, np.uint64), *(
            pack(key.fingerprints(hashes), group) for _, hashes in stored.read(group, leaf))]))

    return read
