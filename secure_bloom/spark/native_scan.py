"""Reads of ``secure_bloom.spark.read`` with Spark's own Parquet reader, if that is requested."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from secure_bloom.errors import UnsupportedError
from secure_bloom.keys.environment import NoKeys
from secure_bloom.spark import native
from secure_bloom.spark.engine import ImpossibleError, check_session, source_options
from secure_bloom.spark.options.options import KEYRING, KMS, POLICY
from secure_bloom.spark.reading.folder import Folder
from secure_bloom.storage.versions import without_subtree

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PATTERN = re.compile(r"[*?\[\]{}\\]")
_POSSIBLE = ("path", KEYRING, KMS, "columns", "mergeschema", "allfiles")


def load(spark: SparkSession, path: str, given: Mapping[str, Any]) -> DataFrame:
    """Return the rows of a folder, which Spark's own reader reads.

    Spark gets the files that are visible now, and the columns that the data source would return,
    with their marks.

    Raises
    ------
    UnsupportedError
        If Spark's reader cannot do what is asked.
    """
    try:
        folder = _folder(spark, path, given)
    except ImpossibleError as reason:
        raise UnsupportedError(f'engine="native" is not possible: {reason}; use '
                               'engine="auto"') from None
    keys, schema = folder.keys(), folder.schema()
    if isinstance(keys, NoKeys):
        raise UnsupportedError('engine="native" needs keys: use engine="auto"', file=folder.path)
    filesystem, place = folder.filesystem, folder.path
    files = [f"file://{without_subtree(filesystem, file.path)[1]}" for file in folder.list().files]
    if any(_PATTERN.search(file) for file in files):
        raise UnsupportedError("Spark's reader takes a path with any of *?[]{}\\ for a pattern: "
                               'use engine="auto"', file=place)
    reader = spark.read.options(**native.read_options(files, keys)).schema(schema)
    base = f"file://{without_subtree(filesystem, place)[1]}"
    return (reader if files == [base] else reader.option("basePath", base)).parquet(*files)


def _folder(spark: SparkSession, path: str, given: Mapping[str, Any]) -> Folder:
    check_session(spark)
    options = source_options(spark, path, given)
    if POLICY in options:
        raise ImpossibleError("Spark's reader does not check files against a policy")
    for name in options:
        if name not in _POSSIBLE:
            raise ImpossibleError(f"only Python tasks support option {name}")
    folder = Folder(options)
    if folder.filesystem.type_name != "local":
        raise ImpossibleError("on object stores and HDFS, Python tasks read")
    return folder
