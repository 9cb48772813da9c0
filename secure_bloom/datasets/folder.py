"""Read a folder of Parquet files as one table, each file at one version."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.fs as pa_fs

from secure_bloom.arrow import masking
from secure_bloom.arrow.masking import OnMissingKey, masked_schema
from secure_bloom.arrow.pages import to_table
from secure_bloom.datasets.dataset_file import OutdatedError
from secure_bloom.datasets.files import FolderFile, FolderQuery, OtherFilesError, read_rows
from secure_bloom.datasets.masking import count_masked
from secure_bloom.datasets.partitions import find_partitions
from secure_bloom.datasets.scan import pool_for
from secure_bloom.datasets.schemas import common_schema
from secure_bloom.datasets.selection import select_files
from secure_bloom.datasets.sources import find_indexed
from secure_bloom.encryption_requirement import FolderChecks, Requirement
from secure_bloom.errors import error_location
from secure_bloom.keys.retrieval import Keys
from secure_bloom.pruning import predicates
from secure_bloom.pruning.expressions import file_pruning
from secure_bloom.pruning.predicates import Filters
from secure_bloom.storage.table_formats import check_readable
from secure_bloom.storage.versions import until_unchanged
from secure_bloom.storage.visibility import Check, data_files, relative_path

if TYPE_CHECKING:
    import pyarrow.compute as pc

    from secure_bloom.index.planning import FolderIndexes, IndexUse

_ALL_FILES = "set all_files=True"
_AHEAD = 4  # files whose rows are read before the schema of all is known
_OPEN_FILES = 64  # that stay open until their rows are read, and that are read at a time


def read_folder(filesystem: pa_fs.FileSystem, path: str, keys: Keys, columns: list[str] | None,
                filters: Filters | None, requirement: Requirement | None, all_files: bool,
                on_missing_key: OnMissingKey, index: IndexUse) -> pa.Table:
    """Read the rows of a folder for which filters hold; see :func:`.read_table`."""
    if filters is not None:
        from secure_bloom.index.planning import FolderIndexes  # which only filters need
        indexes = FolderIndexes.find(filesystem, path, keys, index,
                                     opens_all=requirement is not None)
        if indexes is not None:
            return until_unchanged(partial(_read_indexed, indexes, keys, columns, filters,
                                           requirement, all_files), OutdatedError)
    check = None if all_files else partial(check_readable, filesystem, path, advice=_ALL_FILES)
    return until_unchanged(partial(_read_folder, filesystem, path, keys, columns, filters,
                                   requirement, check, on_missing_key), OtherFilesError)


def _read_indexed(indexes: FolderIndexes, keys: Keys, columns: list[str] | None,
                  filters: Filters, requirement: Requirement | None,
                  all_files: bool) -> pa.Table:
    from secure_bloom.arrow.row_filter import RowFilter
    from secure_bloom.datasets.opening import open_files  # which only indexes need
    from secure_bloom.datasets.scanner import Scanner
    found, schema, selection = find_indexed(indexes, all_files=all_files), None, None
    schemas = None if requirement is not None or found.known is None \
        else found.known.schemas(found.paths)
    if schemas is not None:
        # Nothing is prepared for files that are not read: of thousands, that would take longer.
        with error_location(file=found.name):
            schema = common_schema(found.paths, schemas, found.partition_schema)
        condition = RowFilter(predicates.condition_of(filters), schema)
        found, selection = select_files(found, schemas, condition)
    files, view = open_files(found, keys, requirement, schema=schema, indexes=found.listed,
                             selection=selection)
    return Scanner(view, files, columns, filters, {}).to_table()


def _read_folder(filesystem: pa_fs.FileSystem, folder: str, keys: Keys,
                 columns: list[str] | None, filters: Filters | None,
                 requirement: Requirement | None, check: Check | None,
                 on_missing_key: OnMissingKey) -> pa.Table:
    paths = data_files(filesystem, folder, check)
    if not paths:
        raise FileNotFoundError(f"there are no Parquet files in {folder}")
    condition = None if filters is None else predicates.condition_of(filters)
    partition_schema, partitions = find_partitions(
        filesystem, [relative_path(path, folder) for path in paths])
    checks = FolderChecks(requirement, partition_schema.names)
    query = FolderQuery(folder, filesystem, keys, columns, condition,
                        file_pruning(condition, partition_schema), partition_schema, checks,
                        on_missing_key)
    schemas: list[pa.Schema] = []
    kept: list[FolderFile] = []
    first: list[Future[pa.Table]] = []
    with pool_for(filesystem) as pool, ThreadPoolExecutor(1) as reader, \
            error_location(file=folder):
        for file in pool.map(partial(_look, query, count()), paths, partitions):
            schemas.append(file.schema)
            if file.row_groups == []:
                continue
            kept.append(file)
            if condition is not None and len(first) < _AHEAD:
                # Meanwhile the other files are inspected.
                guess = masked_schema(common_schema(paths[:1], schemas[:1], partition_schema),
                                      kept[0].masked)
                first.append(reader.submit(read_rows, query, [file], guess))
        checks.finish()
        masked = count_masked(file.masked for file in kept)
        schema = masked_schema(common_schema(paths, schemas, partition_schema), masked)
        wait(first)  # no file is read by two threads at a time
        tables = [rows.result() for rows in first] \
            if first and guess.equals(schema, check_metadata=True) else []
        rest = kept[len(tables):]
        tables += [read_rows(query, rest[start:start + _OPEN_FILES], schema, pool.map)
                   for start in range(0, len(rest), _OPEN_FILES)]
        masking.warn_of_missing_keys(masked, folder)
        return pa.concat_tables(tables or [to_table([], schema, columns, query.row_filter(schema))])


def _look(query: FolderQuery, places: Iterator[int], path: str,
          partition: pc.Expression) -> FolderFile:
    """Determine what to read from a file, which stays open while ``places`` remain."""
    file = FolderFile(query, path, partition)
    if file.row_groups == [] or next(places) >= _OPEN_FILES:
        file.close()
    return file
