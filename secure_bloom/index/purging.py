"""Make the indexes of a table forget what its files have no longer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

from secure_bloom.index import compaction
from secure_bloom.index.building import BUDGET
from secure_bloom.index.file_change import FileChange
from secure_bloom.index.folder import IndexFolder
from secure_bloom.index.later_errors import change_each
from secure_bloom.index.patching import patch_index
from secure_bloom.index.table import Table
from secure_bloom.index.update import update_indexes
from secure_bloom.keys.cache import CachedKms


def purge_columns(table: Table, columns: Iterable[str], kms: CachedKms | None,
                  budget: int = BUDGET, changes: Sequence[FileChange] | None = None) -> list[str]:
    """Forget what the files have no longer; return the names of deleted files.

    Parameters
    ----------
    changes : sequence of FileChange, optional
        All changes of files since the index covered the table. If it covers all files but for
        these, only the pages that have lost pairs are written again. Otherwise, and by default,
        all segments are merged.
    """
    state = None if changes is None else table.state()

    def purge(folder: IndexFolder) -> list[str]:
        published = folder.published_segments(kms)
        if changes is None or state is None \
                or not patch_index(table, folder, kms, changes, state):
            update_indexes(table, [folder.column], kms, budget=budget)
            compaction.compact(table, folder, kms, budget)
        published |= folder.published_segments(kms)  # what was published here
        return compaction.vacuum(folder, kms, published=published)

    folders = [IndexFolder(table.filesystem, table.path, column) for column in columns]
    return list(chain.from_iterable(change_each(folders, purge)))
