"""Hive partition columns: their types, and their values for each file."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
import pyarrow.fs as pa_fs

from secure_bloom.arrow.predicate_rows import PredicateRows
from secure_bloom.arrow.row_filter import RowFilter
from secure_bloom.errors import UnsupportedError
from secure_bloom.sbbf.arrow_types import is_bytes, is_text, plain_type
from secure_bloom.storage.hive_partitioning import partition_values

if TYPE_CHECKING:
    import pyarrow.compute as pc

#: the partition columns of a folder, each with its value as text
_Texts: TypeAlias = tuple[tuple[str, str | None], ...]


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


def partitions_as(schema: pa.Schema, paths: Mapping[str, str]) \
        -> tuple[pa.Schema, Sequence[pc.Expression | None]]:
    """Do the same for a schema that the caller gives, which has the types of partition columns.

    ``paths`` are those relative to the table, by full path. If one has a column twice, the first
    value counts. Columns that the schema lacks are named, but have no values.

    Raises
    ------
    UnsupportedError
        If a value is not one of the type. It names the column, and the first file.
    """
    found: dict[str, pc.Expression | None] = {}
    types: dict[str, pa.DataType] = {}
    folders = [posixpath.dirname(relative) for relative in paths.values()]
    for folder, path in zip(folders, paths, strict=True):
        if folder not in found:
            values = _typed(schema, folder, path) if "=" in folder else {}
            types |= {name: value.type for name, value in values.items()}
            found[folder] = _as_expression({name: value for name, value in values.items()
                                            if name in schema.names})
    return pa.schema(list(types.items())), [found[folder] for folder in folders]


def _typed(schema: pa.Schema, folder: str, path: str) -> dict[str, pa.Scalar]:
    """Return the values of the partition columns of a file in a folder."""
    try:
        texts = partition_values(f"{folder}/", "strict")
    except UnicodeDecodeError as error:
        raise UnsupportedError("the value in the name of a folder is not valid UTF-8 after its % "
                               "escapes are decoded; rename the folder", file=path) from error
    values = {}
    for name, text in texts.items():
        try:
            values[name] = _values(schema, name, [text])[0]
        except pa.ArrowException as error:
            raise UnsupportedError(
                f"the value {text!r} in its path cannot be converted to the type "
                f"{schema.field(name).type} of the schema", file=path, column=name) from error
    return values


def _values(schema: pa.Schema, name: str, texts: list[str | None]) -> pa.Array:
    """Return values of a partition column. Raises errors of Arrow if one has another type."""
    at = schema.get_field_index(name)
    t = pa.string() if at < 0 else plain_type(schema.field(at).type)
    if is_text(t) or is_bytes(t):  # Arrow cannot compare views
        t = pa.string() if is_text(t) else pa.binary()
    return pa.array(texts, pa.string()).cast(t)


def _as_expression(values: dict[str, pa.Scalar]) -> pc.Expression | None:
    if not values:
        return None
    import pyarrow.compute as pc
    return reduce(and_, (pc.field(name) == value if value.is_valid else pc.field(name).is_null()
                         for name, value in values.items()))


class PossiblePartitions:
    """The partitions in which a filter may hold, by the names of their folders.

    For a schema that the caller gives. Without one, all files determine columns and types. Whatever
    is unclear in a name is a reason to enter.

    Attributes
    ----------
    columns : set of str
        Those that the filter compares, in files or paths.
    has_left_out : bool
        Whether any folder was not entered.
    """

    def __init__(self, row_filter: RowFilter, schema: pa.Schema):
        self._alternatives, self._schema = row_filter.alternatives, schema
        self.columns = {p.column for one in self._alternatives or () for p in one
                        if p.column in schema.names}  # otherwise, a field of a struct
        self.has_left_out = False
        self._known: dict[_Texts, bool] = {(): True}

    def enters(self, folders: Sequence[str]) -> list[bool]:
        """Whether the filter may hold in each folder, or files in it are an error."""
        texts = list(map(self._texts, folders))
        new: dict[tuple[str, ...], list[_Texts]] = {}
        for one in dict.fromkeys(texts):  # mostly of the same columns
            if one not in self._known:
                new.setdefault(tuple(name for name, _ in one), []).append(one)
        for names, some in new.items():
            self._known |= zip(some, self._may_hold(names, some), strict=True)
        found = [self._known[one] for one in texts]
        self.has_left_out |= not all(found)
        return found

    def _texts(self, folder: str) -> _Texts:
        if "=" not in folder or self._alternatives is None:
            return ()
        try:
            values = partition_values(f"{folder}/", "strict")
        except UnicodeDecodeError:
            return ()
        return tuple((name, text) for name, text in values.items() if name in self.columns)

    def _may_hold(self, names: tuple[str, ...], texts: list[_Texts]) -> list[bool]:
        """Return whether the filter may hold for some values of the same columns."""
        alternatives = [[p for p in one if p.column in names] for one in self._alternatives or ()]
        if not all(alternatives):
            return [True] * len(texts)
        try:
            values = pa.record_batch([_values(self._schema, name, [one[at][1] for one in texts])
                                      for at, name in enumerate(names)], names)
        except pa.ArrowException:  # one of them, or all, are not of the type
            return [True] if len(texts) == 1 else \
                [holds for one in texts for holds in self._may_hold(names, [one])]
        if not alternatives:
            return [False] * len(texts)
        return PredicateRows(alternatives, values.schema).holds(values).to_pylist()


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
