"""Attach Bloom filters to the files of a folder, distributed over a Spark cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.fs as pa_fs

from secure_bloom.errors import UnsupportedError
from secure_bloom.keys.environment import NO_KEYS
from secure_bloom.maintain.attach import attach as attach_here
from secure_bloom.maintain.attach import filters_for_files
from secure_bloom.maintain.change import FileChange
from secure_bloom.maintain.folders import MaintainResult
from secure_bloom.maintain.tables import check_no_table
from secure_bloom.sbbf.options import BloomFilterOptions, BloomFilters
from secure_bloom.spark.options.kms import environment_uri, kms_client, kms_uri
from secure_bloom.spark.options.options import KEYRING, KMS, Options, locate
from secure_bloom.spark.worker_python import fitting_python
from secure_bloom.storage.files import FilePath
from secure_bloom.storage.inside import check_below
from secure_bloom.storage.visibility import parquet_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MAX_TASKS = 10_000


def attach(spark: SparkSession, path: FilePath, bloom_filters: BloomFilters, *,
           keyring: str | None = None, kms: str | None = None, replace: bool = False,
           dry_run: bool = False) -> MaintainResult:
    """See :func:`secure_bloom.spark.attach`."""
    wanted = filters_for_files(bloom_filters)
    root = str(path)
    filesystem, folder = locate(root)
    paths = parquet_files(filesystem, folder)
    check_no_table(filesystem, folder, paths)
    outside = _outside(filesystem, folder, paths)
    paths = [path for path in paths if path not in outside]
    uri = kms_uri(Options({KEYRING: keyring, KMS: kms}).with_default_kms(environment_uri()))
    task = partial(_task, root, paths, uri, wanted, replace, dry_run)
    numbers = spark.range(0, len(paths), 1, max(1, min(len(paths), _MAX_TASKS)))
    with fitting_python(spark):
        rows = numbers.mapInArrow(task, "number long, result string").collect()
    result = _merged([json.loads(row["result"]) for row in sorted(rows)], dry_run)
    result.failed |= outside
    return result


def _outside(filesystem: pa_fs.FileSystem, folder: str, paths: list[str]) -> dict[str, str]:
    """Return the files that links lead to from the folder, and why they are not changed."""
    found = {}
    for path in paths:
        try:
            check_below(filesystem, folder, path)
        except UnsupportedError as error:
            found[path] = error.message
    return found


def _task(root: str, paths: list[str], uri: str | None,
          bloom_filters: bool | dict[str, BloomFilterOptions], replace: bool,
          dry_run: bool, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Attach filters to the files whose numbers are in the batches."""
    filesystem, _ = locate(root)
    keys = NO_KEYS if uri is None else kms_client(uri)
    for number in (number for batch in batches for number in batch.column(0).to_pylist()):
        result = attach_here(paths[number], bloom_filters, keys, replace=replace, dry_run=dry_run,
                             filesystem=filesystem, files_at_once=1)
        yield pa.RecordBatch.from_pydict({"number": [number],
                                          "result": [json.dumps(result.to_dict())]})


def _merged(results: list[dict[str, Any]], dry_run: bool) -> MaintainResult:
    merged = MaintainResult(dry_run=dry_run)
    for result in results:
        merged.changed += [FileChange(**{**change, "columns": tuple(change["columns"]),
                                         "notes": tuple(change["notes"])})
                           for change in result["changed"]]
        merged.unchanged += result["unchanged"]
        merged.failed |= result["failed"]
    return merged
