"""Read many Parquet files as one table, each file at one version."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import ExitStack
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from secure_bloom.arrow.masking import OnMissingKey
from secure_bloom.arrow.row_filter import RowFilter
from secure_bloom.datasets.dataset_file import OpenedFile, OutdatedError
from secure_bloom.datasets.opening import open_files
from secure_bloom.datasets.partitions import PossiblePartitions
from secure_bloom.datasets.scanner import Scanner
from secure_bloom.datasets.schemas import common_schema
from secure_bloom.datasets.selection import Selection, select_files
from secure_bloom.datasets.sources import Files, FilesRequest
from secure_bloom.errors import error_location
from secure_bloom.keys.retrieval import OpenKeys
from secure_bloom.policy.requirement import Requirement
from secure_bloom.pruning.expressions import columns_of, file_pruning
from secure_bloom.pruning.predicates import Condition
from secure_bloom.reading.open_file import OpenFile
from secure_bloom.reading.row_groups import row_groups_for
from secure_bloom.storage.versions import until_unchanged

if TYPE_CHECKING:
    from secure_bloom.index.planning import FolderIndexes, IndexUse, ListedIndexes

_OPEN_FILES = 64  # that stay open from the first look until their rows are read


class FindFiles(Protocol):
    """Finds files, as :func:`.find_files` does for a source that it knows."""

    def __call__(self, *, request: FilesRequest) -> Files: ...


def read_files(find: FindFiles, name: str | None, keys: OpenKeys, columns: list[str] | None,
               condition: Condition | None, schema: pa.Schema | None,
               requirement: Requirement | None, on_missing_key: OnMissingKey,
               index: IndexUse) -> pa.Table:
    """Read the rows of some files for which a condition holds; see :func:`.read_table`.

    ``name`` is that of a folder or pattern, for messages.
    """
    read = partial(_read, find, keys, columns, condition, schema, requirement, on_missing_key,
                   "off" if condition is None else index)
    with error_location(file=name):
        return until_unchanged(read, OutdatedError)


def _read(find: FindFiles, keys: OpenKeys, columns: list[str] | None, condition: Condition | None,
          given: pa.Schema | None, requirement: Requirement | None, on_missing_key: OnMissingKey,
          index: IndexUse) -> pa.Table:
    row_filter = None if condition is None or given is None else RowFilter(condition, given)
    # A requirement holds for all files.
    possible = None if row_filter is None or given is None or requirement is not None \
        else PossiblePartitions(row_filter, given)
    narrow = None if condition is None else partial(_narrowed, condition, given, possible)
    found = find(request=FilesRequest(keys, index, requirement is not None, narrow, given,
                                      possible))
    schema, selection = given, None
    schemas = None if requirement is not None or found.known is None \
        else found.known.schemas(found.paths)
    if found.narrowed is not None:
        if schema is None:
            schema = common_schema([found.name], [found.narrowed.schema], found.partition_schema)
        selection = Selection(found.listed, found.narrowed.rows)
    elif schemas is not None:
        # Nothing is prepared for files that are not read: of thousands, that would take longer.
        if schema is None:
            schema = common_schema(found.paths, schemas, found.partition_schema)
        assert condition is not None  # without one, no index is used
        found, selection = select_files(found, schemas, RowFilter(condition, schema))
    with ExitStack() as stack:
        # A requirement opens all files, but those that an index covers need not be pruned.
        look = None if requirement is not None and found.listed is not None \
            else _first_look(condition, row_filter, found.partition_schema, stack)
        files, view = open_files(found, found.keys or keys, requirement, schema=schema,
                                 indexes=found.listed, on_missing_key=on_missing_key, look=look)
        files = [file for file in files if file.row_groups != []]
        view = view._replace(selection=selection)
        return Scanner(view, files, columns, condition, {}).to_table()


def _narrowed(condition: Condition, given: pa.Schema | None, possible: PossiblePartitions | None,
              found: FolderIndexes | ListedIndexes) -> Files | None:
    from secure_bloom.datasets.narrowing import compared, narrowed  # with an index only
    return narrowed(compared(condition), lambda schema: condition, found, given, possible)


def _first_look(condition: Condition | None, row_filter: RowFilter | None,
                partition_schema: pa.Schema, stack: ExitStack) -> Callable[[OpenedFile], bool]:
    """Return a function that prunes an open file, and says whether it should stay open.

    So the rows of a file need no further request to open it. The stack closes it: after an error,
    nothing else refers to the files that other threads have opened ahead.
    """
    pruning = file_pruning(condition, partition_schema) if row_filter is None \
        else row_filter.alternatives_for  # the files may have any types
    places = count()

    def look(opened: OpenedFile) -> bool:
        file = opened.dataset_file
        found = row_groups_for(opened.file, pruning(file.schema), file.partition_values,
                               _filtered(condition, opened.file))
        file.row_groups = [] if found == [] else None  # perhaps of another version than before
        stays = found != [] and next(places) < _OPEN_FILES
        if stays:
            opened.row_groups, opened.is_pruned = found, True
            stack.callback(opened.source.close)
        return stays

    return look


def _filtered(condition: Condition | None, file: OpenFile) -> Collection[str]:
    """Return the top-level columns of a file that a condition uses."""
    if isinstance(condition, list):
        prefixes = tuple(f"{p.column}." for parts in condition for p in parts)
        return {leaf.parts[0] for leaf in file.columns if f"{leaf.path}.".startswith(prefixes)}
    names = [] if condition is None else columns_of(condition)
    return file.schema.names if names is None else names
