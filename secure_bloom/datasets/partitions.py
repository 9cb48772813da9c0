"""Hive partition columns: their types, inferred from all paths, and their values for each file."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.fs as pa_fs

from secure_bloom.errors import UnsupportedError
from secure_bloom.storage.hive_partitioning import partition_values

if TYPE_CHECKING:
    import pyarrow.compute as pc


def find_partitions(filesystem: pa_fs.FileSystem,
                    paths: list[str]) -> tuple[pa.Schema, Sequence[pc.Expression | None]]:
    """Return the partition columns of files, and an expression of their values for each file.

    There are no expressions if there are no columns.

    Parameters
    ----------
    filesystem : pyarrow.fs.FileSystem
    paths : list of str
        Relative to the table; all ``name=value`` folders in them are partitions.

    Raises
    ------
    UnsupportedError
        If the name of a folder is not valid UTF-8 after decoding ``%`` escapes.
    """
    if not any("=" in path for path in paths):
        return pa.schema([]), [None] * len(paths)
    import pyarrow.dataset as ds
    paths = [f"/{path}" for path in paths]
    nulls = _always_null(paths)
    options = ds.FileSystemFactoryOptions(partition_base_dir="/",
                                          partitioning=ds.HivePartitioning.discover())
    factory = ds.FileSystemDatasetFactory(
        filesystem, [_without_segments(path, nulls) for path in paths] if nulls else paths,
        ds.ParquetFileFormat(), options)
    try:
        schema = factory.inspect(fragments=0)  # from the paths only; no file is opened
    except pa.ArrowInvalid as error:
        raise UnsupportedError("the name=value folders cannot be read as partitions, because of "
                               f"one of their names: {error}") from error
    for name in nulls:  # pyarrow cannot infer their type; as in Spark, it is string
        schema = schema.append(pa.field(name, pa.string()))
    partitioning = ds.HivePartitioning(schema)
    return schema, [partitioning.parse(path) for path in paths]


def values_of(partition: pc.Expression | None, schema: pa.Schema) -> dict[str, pa.Scalar]:
    """Return the values of the partition columns of a file, from its expression."""
    if partition is None:
        return {}
    import pyarrow.dataset as ds
    return {name: pa.scalar(value, schema.field(name).type)
            for name, value in ds.get_partition_keys(partition).items()}


def _always_null(paths: list[str]) -> list[str]:
    """Return the partition columns that are null in all paths."""
    values = [partition_values(path[1:]) for path in paths]
    names = dict.fromkeys(name for one in values for name in one)
    return [name for name in names if all(one.get(name) is None for one in values)]


def _without_segments(path: str, names: list[str]) -> str:
    """Return the path without the partition folders of these columns."""
    *folders, name = path[1:].split("/")
    kept = (part for part in folders if partition_values(f"{part}/").keys().isdisjoint(names))
    return posixpath.join("/", *kept, name)
