"""Open the files of a data set."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa

from secure_bloom.arrow.masking import OnMissingKey
from secure_bloom.datasets.dataset_file import SOURCE_SCHEMA, DatasetFile, FileAccess, OpenedFile
from secure_bloom.datasets.scan import inspected
from secure_bloom.datasets.scanner import View
from secure_bloom.datasets.schemas import common_schema
from secure_bloom.errors import ColumnError, error_location
from secure_bloom.keys.retrieval import Keys
from secure_bloom.policy.requirement import FolderChecks, Requirement

if TYPE_CHECKING:
    from secure_bloom.datasets.sources import Files
    from secure_bloom.index.planning import Indexes


def open_files(found: Files, keys: Keys, requirement: Requirement | None, *,
               schema: pa.Schema | None = None, with_source: bool = False,
               on_missing_key: OnMissingKey = "error", indexes: Indexes | None = None,
               look: Callable[[OpenedFile], bool] | None = None) -> tuple[list[DatasetFile], View]:
    """Open the files of a data set; return them, and what scanners need besides them.

    ``look`` is that of :class:`.DatasetFile`. Scans use ``indexes``. Raises ColumnError if the
    files have a column that ``with_source`` would add.
    """
    checks = FolderChecks(requirement, found.partition_schema.names)
    access = FileAccess.new(found.filesystem, keys, checks, with_source, on_missing_key, indexes)
    with error_location(file=found.name):
        known = found.known if requirement is None else None
        files: list[DatasetFile] = list(
            inspected(found, access, known, lambda path, inspect: inspect(), look))
        checks.finish()
        if schema is None:
            schema = common_schema(found.paths, [file.schema for file in files],
                                   found.partition_schema)
    if with_source:
        schema = _with_source(schema)
    return files, View(access, schema)


def _with_source(schema: pa.Schema) -> pa.Schema:
    for name in SOURCE_SCHEMA.names:
        if name in schema.names:
            raise ColumnError("the files have a column of this name, so with_source cannot add it",
                              column=name)
    return pa.schema([*SOURCE_SCHEMA, *schema], schema.metadata)
