"""Which files and row groups a query needs, according to the indexes of the table.

The indexes are compared with the listing by which the query is planned. Tasks refuse a file of
another version, so that no row group of a later version is skipped.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple, TypeAlias

import pyarrow as pa
from pyspark.sql.types import DataType

from secure_bloom.errors import UnsupportedError
from secure_bloom.index.identity import Identity
from secure_bloom.index.known_files import KnownFile
from secure_bloom.index.planning import FolderIndexes, ListedIndexes
from secure_bloom.index.stamps import Stamp
from secure_bloom.pruning.found_rows import FoundRows, both, either
from secure_bloom.sbbf.column_type import ColumnType
from secure_bloom.spark.options.names import same_names
from secure_bloom.spark.options.row_filters import ColumnPredicate
from secure_bloom.spark.reading.folder import Folder
from secure_bloom.spark.reading.splits import DataFile
from secure_bloom.spark.schema.calendar import is_old
from secure_bloom.spark.schema.values import same_values
from secure_bloom.storage.table_names import relative_path


class TypedPredicate(NamedTuple):
    """A predicate on a column that files have, and the column's type in the DataFrame."""

    predicate: ColumnPredicate
    type: DataType | None

    def is_comparable(self, column_type: ColumnType) -> bool:
        """Whether the value may be compared with values of this type in a file."""
        return same_values(self.type, column_type)

    def rows(self, listed: ListedIndexes,
             files: Iterable[tuple[pa.Schema, list[str]]]) -> dict[str, FoundRows]:
        """Return the rows for which it may hold, as far as that is known.

        ``files`` are paths by the schema of the files.
        """
        found: dict[str, FoundRows] = {}
        by_column: dict[tuple[str, ...], dict[str, FoundRows]] = {}
        for schema, paths in files:
            names = find_column(schema, self.predicate.path)
            if names == ():  # only an index of the column may say that a file does not have it
                names = self.predicate.path
            if names is not None:
                if names not in by_column:
                    by_column[names] = listed.select([[self.predicate.on(".".join(names))]],
                                                     is_comparable=self.is_comparable)
                rows = by_column[names]
                found |= {path: rows[path] for path in paths if path in rows}
        return found

    @property
    def is_useful(self) -> bool:
        """Whether an index may say where it holds."""
        values = self.predicate.on("").candidates
        return bool(values) and not is_old(values or ())


#: lists of predicates that must all hold, of which lists one must hold
Alternatives: TypeAlias = "list[list[TypedPredicate]]"


def selected_by_index(folder: Folder, files: list[DataFile], conditions: Iterable[Alternatives],
                      *, opens_all: bool) -> list[DataFile]:
    """Return the files to read, with the row groups to read if an index tells them.

    Files of which no row group may match are left out, unless ``opens_all``.

    Raises
    ------
    FileNotFoundError, UnsupportedError
        If the table has no index although the options require one.
    """
    index = folder.options.index
    useful = [parts for alternatives in conditions if all(parts := [
        [one for one in all_of if one.is_useful] for all_of in alternatives])]
    if index == "off" or not (useful or index == "require"):
        return files
    if [file.path for file in files] == [folder.path]:
        if index == "require":
            raise UnsupportedError("option index is require, but only the folder of a table has an "
                                   "index", file=folder.path)
        return files
    indexes = FolderIndexes.find(folder.filesystem, folder.path, folder.keys(), index,
                                 opens_all=opens_all)
    if indexes is None or not useful:
        return files
    table = indexes.table.path
    listed = ListedIndexes(indexes, {relative_path(file.path, table): Stamp.of(file)
                                     for file in files})
    known = {file.path: one for file in files
             if (one := listed.known_files.get(file.path)) is not None}
    found: dict[str, FoundRows] = {}
    for alternatives in useful:
        _narrow(found, _any_of(alternatives, listed, list(_by_schema(known))))
    selected = (_selected(file, known[file.path], found[file.path], listed.identity(file.path))
                if file.path in found else file for file in files)
    return [file for file in selected if opens_all or file.row_groups != ()]


def _any_of(alternatives: Alternatives, listed: ListedIndexes,
            files: list[tuple[pa.Schema, list[str]]]) -> dict[str, FoundRows]:
    """Return the rows for which one of the alternatives may hold, as far as that is known."""
    union: dict[str, FoundRows] | None = None
    for all_of in alternatives:
        found: dict[str, FoundRows] = {}
        for predicate in all_of:
            _narrow(found, predicate.rows(listed, files))
        union = found if union is None else {path: either(union[path], rows)
                                             for path, rows in found.items() if path in union}
    return union or {}


def _narrow(found: dict[str, FoundRows], others: dict[str, FoundRows]) -> None:
    """Leave the rows that are also among others."""
    for path, rows in others.items():
        found[path] = both(rows, found.get(path, rows))


def find_column(schema: pa.Schema, path: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return the names in a file of a column of the DataFrame, or of a field of a struct.

    Empty if the file has no such column. None if its Arrow schema does not tell.
    """
    fields, names = list(schema), []
    for depth, name in enumerate(path):
        matching = same_names(name, {field.name for field in fields})
        if not matching and depth == 0:
            return ()
        named = [field for field in fields if field.name in matching]
        if len(named) != 1:
            return None
        names.append(named[0].name)
        fields = list(named[0].type) if pa.types.is_struct(named[0].type) else []
    return None if pa.types.is_nested(named[0].type) else tuple(names)


def _by_schema(known: dict[str, KnownFile]) -> Iterable[tuple[pa.Schema, list[str]]]:
    found: dict[int, tuple[pa.Schema, list[str]]] = {}
    for path, file in known.items():
        found.setdefault(id(file.schema), (file.schema, []))[1].append(path)
    return found.values()


def _selected(file: DataFile, known: KnownFile, rows: FoundRows,
              identity: Identity | None) -> DataFile:
    if identity is None:  # two indexes know different files
        return file
    share = len(rows) / max(known.num_row_groups, 1)
    return replace(file, row_groups=tuple(rows), parts=tuple(rows.values()),
                   read_bytes=int(file.size * share), identity=identity)
