"""Read many Parquet files as one table, each file at one version."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

import pyarrow as pa

from secure_bloom.arrow.masking import OnMissingKey
from secure_bloom.arrow.row_filter import RowFilter
from secure_bloom.datasets.dataset_file import OpenedFile, OutdatedError
from secure_bloom.datasets.opening import open_files
from secure_bloom.datasets.partitions import PossiblePartitions
from secure_bloom.datasets.scanner import Scanner
from secure_bloom.datasets.schemas import check_given, common_schema
from secure_bloom.datasets.selection import Selection, where_all_may_hold
from secure_bloom.datasets.sources import Files, FilesRequest
from secure_bloom.keys.retrieval import OpenKeys
from secure_bloom.policy.requirement import Requirement
from secure_bloom.pruning.expressions import RowGroupFilter, columns_of, file_pruning
from secure_bloom.pruning.predicates import Condition
from secure_bloom.reading.open_file import OpenFile
from secure_bloom.reading.row_groups import row_groups_for
from secure_bloom.storage.versions import until_unchanged

if TYPE_CHECKING:
    from secure_bloom.index.planning import FolderIndexes, IndexUse, ListedIndexes

_OPEN_FILES = 64  # that stay open from the first look until their rows are read


class FilesReader:
    """Reads the rows of some files for which a condition holds, as one table.

    The parameters are those of :func:`.read_table`, after their values were checked.
    """

    def __init__(self, keys: OpenKeys, columns: list[str] | None, condition: Condition | None,
                 schema: pa.Schema | None, requirement: Requirement | None,
                 on_missing_key: OnMissingKey, index: IndexUse):
        check_given(schema)
        self._keys, self._columns, self._condition, self._given = keys, columns, condition, schema
        self._requirement, self._on_missing_key = requirement, on_missing_key
        self._row_filter = None if condition is None or schema is None \
            else RowFilter(condition, schema)
        # A requirement holds for all files.
        self._possible = None if self._row_filter is None or schema is None \
            or requirement is not None else PossiblePartitions(self._row_filter, schema)
        self._index: IndexUse = "off" if condition is None else index

    def read(self, find: Callable[..., Files]) -> pa.Table:
        """Read the rows of the files that a function finds, as :func:`.find_files` does."""
        return until_unchanged(partial(self._read, find), OutdatedError)

    def _read(self, find: Callable[..., Files]) -> pa.Table:
        narrow = None if self._condition is None else self._narrowed
        found = find(request=FilesRequest(self._keys, self._index, self._requirement is not None,
                                          narrow, self._given, self._possible))
        schema, selection = self._given, None
        schemas = None if self._requirement is not None or found.known is None \
            else found.known.schemas(found.paths)
        if found.narrowed is not None:
            if schema is None:
                schema = common_schema([found.name], [found.narrowed.schema],
                                       found.partition_schema)
            selection = found.narrowed.selection
        elif schemas is not None:
            # Nothing is prepared for files that are not read: for thousands, it would take longer.
            if schema is None:
                schema = common_schema(found.paths, schemas, found.partition_schema)
            assert self._condition is not None  # without one, no index is used
            found, selection = _select_files(found, schemas, RowFilter(self._condition, schema))
        with ExitStack() as stack:
            # A requirement opens all files, but those that an index covers need not be pruned.
            look = None if self._requirement is not None and found.listed is not None \
                else self._first_look(found.partition_schema, stack)
            files, view = open_files(found, found.keys or self._keys, self._requirement,
                                     schema=schema, indexes=found.listed,
                                     on_missing_key=self._on_missing_key, look=look)
            files = [file for file in files if file.row_groups != []]
            view = view._replace(selection=selection)
            return Scanner(view, files, self._columns, self._condition, {}).to_table()

    def _narrowed(self, found: FolderIndexes | ListedIndexes) -> Files | None:
        from secure_bloom.datasets.narrowing import compared, narrowed  # with an index only
        return narrowed(compared(self._condition), lambda schema: self._condition, found,
                        self._given, self._possible)

    def _first_look(self, partition_schema: pa.Schema,
                    stack: ExitStack) -> Callable[[OpenedFile], bool]:
        """Return a function that prunes an open file, and says whether it should stay open.

        So the rows of a file need no further request to open it. The stack closes it: after an
        error, nothing else refers to the files that other threads have opened ahead.
        """
        pruning = file_pruning(self._condition, partition_schema) if self._row_filter is None \
            else self._row_filter.alternatives_for  # the files may have any types
        places = count()

        def look(opened: OpenedFile) -> bool:
            file = opened.dataset_file
            found = row_groups_for(opened.file, pruning(file.schema), file.partition_values,
                                   _filtered(self._condition, opened.file))
            file.row_groups = [] if found == [] else None  # perhaps of another version than before
            stays = found != [] and next(places) < _OPEN_FILES
            if stays:
                opened.row_groups, opened.is_pruned = found, True
                stack.callback(opened.source.close)
            return stays

        return look


def _select_files(found: Files, schemas: Sequence[pa.Schema], one: RowGroupFilter) \
        -> tuple[Files, Selection]:
    """Return the files in which a filter may hold, as far as indexes tell, and their selection.

    ``schemas`` has the schema of each file. The files are known to an index and were just listed.
    """
    listed = found.listed
    assert listed is not None  # as the files are known
    rows = {key: where_all_may_hold(listed, schema, set(found.partition_schema.names), [one])
            for key, schema in {id(schema): schema for schema in schemas}.items()}
    kept = [(path, partition, of_file) for path, partition, schema
            in zip(found.paths, found.partitions, schemas, strict=True)
            if (of_file := rows[id(schema)].get(path)) is None or of_file]
    rest = found._replace(paths=[path for path, _, _ in kept],
                          partitions=[partition for _, partition, _ in kept])
    return rest, Selection(listed, {path: of_file for path, _, of_file in kept
                                    if of_file is not None})  # None: the file is not covered


def _filtered(condition: Condition | None, file: OpenFile) -> Collection[str]:
    """Return the top-level columns of a file that a condition uses."""
    if isinstance(condition, list):
        prefixes = tuple(f"{p.column}." for parts in condition for p in parts)
        return {leaf.parts[0] for leaf in file.columns if f"{leaf.path}.".startswith(prefixes)}
    names = [] if condition is None else columns_of(condition)
    return file.schema.names if names is None else names
