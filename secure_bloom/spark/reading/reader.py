"""The reader: the driver lists and splits files; tasks read footers and skip row groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import DataType, StructType

from secure_bloom.arrow.char_columns import declared_length
from secure_bloom.errors import ColumnError, UnsupportedError, error_location
from secure_bloom.parquet.schema import LeafColumn
from secure_bloom.pruning.predicates import Predicate
from secure_bloom.pruning.row_groups import PruningResult
from secure_bloom.reading.open_file import OpenFile
from secure_bloom.reading.row_groups import prune_row_groups
from secure_bloom.reading.rows import matching_batches
from secure_bloom.spark.options.conditions import (
    NO_CONDITIONS,
    Comparison,
    Conditions,
    without_known,
)
from secure_bloom.spark.options.names import find_name, same_path
from secure_bloom.spark.options.row_filters import ColumnPredicate
from secure_bloom.spark.plain_errors import plain_errors
from secure_bloom.spark.reading.folder import Folder, Listing
from secure_bloom.spark.reading.index_use import TypedPredicate, selected_by_index
from secure_bloom.spark.reading.metrics import TaskReport
from secure_bloom.spark.reading.planning import Planned, look_up, names_values
from secure_bloom.spark.reading.splits import DataFile, FileRange, Looked, divide
from secure_bloom.spark.schema import partitions as hive
from secure_bloom.spark.schema.calendar import check_calendar, is_dated, is_legacy
from secure_bloom.spark.schema.cast import cast_to_schema, dropped_field
from secure_bloom.spark.schema.sensitivity import marked_paths, with_own_key
from secure_bloom.spark.schema.types import arrow_schema
from secure_bloom.spark.schema.values import keeps_value, same_values

_BATCH_ROWS = 10_000  # the default size of Spark's own batches


class ReadTask(InputPartition):
    """The ranges of files that a task reads, and which columns are in the paths of these files.

    Everything that ``partitions`` determines must be stored here: Spark pickles the reader before
    it calls that method.

    ``places`` has, for each column of the schema that is a partition column, its position in the
    path.
    """

    def __init__(self, ranges: list[FileRange], places: dict[str, int]):
        super().__init__(None)
        self.ranges = ranges
        self.places = places


class _Opened(NamedTuple):
    """A range of an open file.

    ``names`` maps each column of the schema to its name in the file; ``constants`` has the values
    of partition columns; ``row_groups`` are those of the range.
    """

    file: OpenFile
    names: dict[str, str | None]
    constants: dict[str, pa.Scalar]
    row_groups: list[int]


class SecureParquetReader(DataSourceReader):
    """Reads a folder as rows of a schema.

    Columns are matched by name, first exactly, then ignoring case; columns that a file lacks are
    null. Partition columns come from the path, even if a file has a column of that name.

    If ``is_inferred``, the schema is that of the first file, so that other files may have more
    columns. ``demanding``: see :meth:`.Folder.requirements`. ``conditions`` are those of the query,
    which Spark evaluates on the rows as well.
    """

    def __init__(self, folder: Folder, schema: StructType, is_inferred: bool = False, *,
                 demanding: bool = False, conditions: Conditions = NO_CONDITIONS):
        self._folder = folder
        self._types = schema
        self._schema = arrow_schema(schema)
        self._refuses_other_fields = is_inferred and folder.options.merge_schema is None
        self._refuses_other_columns = self._refuses_other_fields and folder.options.columns is None
        self._refuses_unmarked_keys = is_inferred and folder.options.merge_schema is not False
        self._marked = marked_paths(schema)
        self._requirements = folder.requirements(None if is_inferred else schema,
                                                 demanding=demanding)
        located = [self._located(predicate) for predicate in folder.options.filters]
        self._alternatives = self._known_alternatives(located, conditions)
        self._compared = {predicate.path[0] for predicate in located} | conditions.columns
        if folder.options.columns is not None:
            for name in schema.names:
                if find_name(name, list(folder.options.columns)) is None:
                    raise UnsupportedError("it is in .schema(...), but not in option columns: "
                                           "remove one of the two", column=name)

    @plain_errors()
    def partitions(self) -> list[InputPartition]:
        """Plan what each task reads; files that partition values rule out are skipped."""
        return self._tasks(self._folder.list())

    def _tasks(self, listing: Listing) -> list[InputPartition]:
        places = {found: place for place, name in enumerate(listing.partition_columns)
                  if (found := find_name(name, self._schema.names)) is not None}
        self._requirements.check_path_columns(places)
        matching = [file for file in listing.files if self._may_match(file, places)]
        indexed = self._selected_by_index(matching, places)
        planned = self._looked_up(indexed, places)
        options = self._folder.options
        tasks = divide(planned.files, options.split_bytes, options.open_cost_bytes,
                       options.min_partitions)
        planned.report(len(tasks), listing.files, matching, indexed)
        return [ReadTask(ranges, places) for ranges in tasks]

    def _looked_up(self, files: list[DataFile], places: dict[str, int]) -> Planned:
        """Return the files in which the driver has found that something may match."""
        if not any(names_values(alternatives, places) for alternatives in self._alternatives):
            return Planned(files)
        return look_up(files, partial(self._look, places=places), self._folder.filesystem)

    def _look(self, file: DataFile, places: dict[str, int]) -> DataFile:
        """Return a file with the row groups that are to be read."""
        whole = FileRange(file, 0, file.size)
        with self._opened(whole, places) as opened:
            after_index = whole.selected(opened.row_groups, opened.file)
            pruned = self._prune(opened.file, self._in_files(opened), after_index)
            size = sum(map(opened.file.footer.row_group_num_bytes, pruned.after_filters))
            looked = Looked(*map(tuple, (after_index, *pruned)))
            return replace(file, looked=looked, read_bytes=size)

    def _selected_by_index(self, files: list[DataFile],
                           places: dict[str, int]) -> list[DataFile]:
        """Return the files to read, with their row groups as far as an index tells them.

        If files must be checked, all of them are opened.
        """
        conditions = [[[TypedPredicate(predicate, self._type_of(predicate.path))
                        for predicate in all_of if predicate.path[0] not in places]
                       for all_of in alternatives] for alternatives in self._alternatives]
        return selected_by_index(self._folder, files, conditions,
                                 opens_all=self._requirements.check_files)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task, in batches of the schema that Spark expects."""
        report = TaskReport()
        with plain_errors():
            try:
                # Spark's own partition, which it reads if there is no task, has no ranges.
                task = partition if isinstance(partition, ReadTask) else ReadTask([], {})
                for part in task.ranges:
                    for batch in self._read_range(part, task.places, report):
                        report.rows_read += batch.num_rows
                        yield batch
            finally:
                report.log()

    def _known_alternatives(self, located: list[ColumnPredicate], conditions: Conditions) \
            -> list[list[list[ColumnPredicate]]]:
        """Return lists of predicates of which one must hold, for all that must hold together.

        The predicates say something about stored values.
        """
        singles = [as_stored for one in located if self._is_certain(one)
                   and (as_stored := self._unpadded(one)) is not None]
        found: list[list[list[ColumnPredicate]]] = []
        for alternatives in conditions.all_of:
            if len(alternatives) == 1:
                singles += self._as_stored(without_known(alternatives[0], located))
            elif all(known := list(map(self._as_stored, alternatives))):
                found.append(known)
        return [[singles], *found] if singles else found

    def _as_stored(self, comparisons: Sequence[Comparison]) -> list[ColumnPredicate]:
        """Return what comparisons say about stored values, as far as that is known."""
        return [as_stored for predicate, type_ in comparisons
                if self._is_of_type(predicate.path, type_)
                and (as_stored := self._unpadded(predicate)) is not None]

    def _is_of_type(self, path: tuple[str, ...], type_: str | None) -> bool:
        found = self._type_of(path)
        return found is not None and type_ in (None, found.simpleString())

    def _located(self, predicate: ColumnPredicate) -> ColumnPredicate:
        """Return the predicate with the column's name as in the schema."""
        name, *fields = predicate.path
        found = find_name(name, self._schema.names)
        if found is None:
            raise ColumnError("option filters: there is no such column", column=name)
        return ColumnPredicate((found, *fields), predicate.op, predicate.value)

    def _is_certain(self, predicate: ColumnPredicate) -> bool:
        """Whether Spark finds null rows with the predicate only if its value is null."""
        return predicate.op != "<=>" or predicate.value is None \
            or keeps_value(self._type_of(predicate.path), predicate.value)

    def _unpadded(self, predicate: ColumnPredicate) -> ColumnPredicate | None:
        """Return what the predicate says about stored values; None if that is not known.

        A column CHAR(n) has spaces that Spark's comparisons ignore.
        """
        name, *fields = predicate.path
        length = None if fields else declared_length(self._types[name].metadata)
        return predicate if length is None else predicate.of_char(length)

    def _may_match(self, file: DataFile, places: dict[str, int]) -> bool:
        values = self._partition_values(file, places)
        return all(any(_may_hold_for(all_of, values) for all_of in alternatives)
                   for alternatives in self._alternatives)

    def _partition_values(self, file: DataFile, places: dict[str, int]) -> dict[str, pa.Scalar]:
        values = {}
        for column, place in places.items():
            with error_location(file=file.path, column=column):
                values[column] = hive.partition_scalar(file.partition[place],
                                                       self._schema.field(column).type)
        return values

    def _read_range(self, part: FileRange, places: dict[str, int],
                    report: TaskReport) -> Iterator[pa.RecordBatch]:
        with self._opened(part, places) as opened:
            file, names, conditions = opened.file, opened.names, self._in_files(opened)
            looked = part.file.looked
            if looked is None:
                after_index = part.selected(opened.row_groups, opened.file)
                pruned = self._prune(file, conditions, after_index)
            else:
                after_index, pruned = looked.within(opened.row_groups)
            report.add(file.footer, opened.row_groups, after_index, *pruned)
            columns = [name for name in names.values() if name is not None]
            legacy = is_legacy(file.schema)
            for batch in matching_batches(file, columns, pruned.after_filters, conditions or [],
                                          _BATCH_ROWS, part.found_rows(file)):
                yield self._cast_batch(batch, names, opened.constants, legacy)

    @contextmanager
    def _opened(self, part: FileRange, places: dict[str, int]) -> Iterator[_Opened]:
        """Open a file, and check that a range of it can be read."""
        checks = self._requirements.checks(places)
        with self._folder.open(part.file, checks) as file, error_location(file=part.file.path):
            constants = self._partition_values(part.file, places)
            names = self._names(file, constants)
            groups = part.row_groups(file.footer)
            self._check_keys(file, names, groups)
            if groups:
                file.check_filtered(name for column in self._compared
                                    if (name := names.get(column)) is not None)
            yield _Opened(file, names, constants, groups)

    def _names(self, file: OpenFile, constants: dict[str, pa.Scalar]) -> dict[str, str | None]:
        """Map each column of the schema that is not in the path to its name in a file."""
        present = list(dict.fromkeys(leaf.parts[0] for leaf in file.columns))
        names = {name: find_name(name, present) for name in self._schema.names
                 if name not in constants}
        if self._refuses_other_columns:
            for name in present:
                if name not in names.values() and find_name(name, list(constants)) is None:
                    raise _other_column("column", name)
        if self._refuses_other_fields:
            self._check_fields(file, names)
        return names

    def _check_fields(self, file: OpenFile, names: dict[str, str | None]) -> None:
        """Require that the schema has all fields of the structs that are read."""
        for column in self._schema:
            name = names.get(column.name)
            if name is None or not pa.types.is_nested(column.type):
                continue
            place = file.schema.get_field_index(name)  # -1 if several columns have this name
            dropped = place >= 0 and dropped_field(file.schema.field(place).type, column.type)
            if dropped:
                raise _other_column("field", ".".join((name, *dropped)))

    def _check_keys(self, file: OpenFile, names: dict[str, str | None],
                    groups: list[int]) -> None:
        """Require that each sensitive column that is read is marked as sensitive in the schema."""
        if not self._refuses_unmarked_keys:
            return
        unmarked = {leaf.parts for leaf in file.columns if leaf.parts[0] in names.values()
                    and not any(same_path(leaf.parts[:len(marked)], marked)
                                for marked in self._marked)}
        for chunk in with_own_key(file.footer, groups, unmarked):
            raise UnsupportedError(
                "it is encrypted with its own key here, but not in the first file, which "
                "provides the schema, so a copy might not be encrypted; set option "
                "mergeSchema to true (what is sensitive in any file) or false (what is in the "
                "first file), or list columns in .schema(...)", column=chunk.column.path)

    @staticmethod
    def _prune(file: OpenFile, conditions: list[list[list[Predicate]]] | None,
               groups: list[int]) -> PruningResult:
        if conditions is None:
            return PruningResult([], [])
        result = PruningResult(groups, groups)
        for alternatives in conditions:
            if result.after_filters:
                pruned = prune_row_groups(file, alternatives, result.after_filters)
                # Where filters have ruled out a row group, statistics did not.
                by_filters = set(result.after_statistics).difference(result.after_filters)
                result = PruningResult(sorted(by_filters.union(pruned.after_statistics)),
                                       pruned.after_filters)
        return result

    def _in_files(self, opened: _Opened) -> list[list[list[Predicate]]] | None:
        """Return what must hold in a file, each as alternatives; None if no row can match."""
        found = []
        for alternatives in self._alternatives:
            in_file = [self._in_file(opened, all_of) for all_of in alternatives
                       if _may_hold_for(all_of, opened.constants)]
            possible = [one for one in in_file if one is not None]
            if not possible:
                return None
            if all(possible):
                found.append(possible)
        return found

    def _in_file(self, opened: _Opened, all_of: list[ColumnPredicate]) -> list[Predicate] | None:
        """Return predicates on columns of a file; None if one of them cannot hold for any row."""
        file, names, found = opened.file, opened.names, []
        legacy = is_legacy(file.schema)
        for predicate in all_of:
            column, *fields = predicate.path
            if column not in names:
                continue  # in the path
            name = names[column]
            if name is None:
                if not predicate.allows_null:
                    return None  # the file lacks the column: all rows are null
                continue
            leaf = find_leaf(file.columns, (name, *fields))
            if leaf and legacy and leaf.type.arrow_type and is_dated(leaf.type.arrow_type):
                continue  # an old value may be stored as another
            if leaf and (predicate.op in ("is null", "is not null")
                         or same_values(self._type_of(predicate.path), leaf.type)):
                found.append(predicate.on(leaf.path))
        return found

    def _type_of(self, path: tuple[str, ...]) -> DataType | None:
        type_: DataType = self._types
        for name in path:
            if not isinstance(type_, StructType) or (found := find_name(name, type_.names)) is None:
                return None
            type_ = type_[found].dataType
        return type_

    def _cast_batch(self, batch: pa.RecordBatch, names: dict[str, str | None],
                 constants: dict[str, pa.Scalar], legacy: bool) -> pa.RecordBatch:
        arrays = []
        for field in self._schema:
            name = names.get(field.name)
            if field.name in constants:
                arrays.append(pa.repeat(constants[field.name], batch.num_rows))
            elif name is None:
                arrays.append(pa.nulls(batch.num_rows, field.type))
            else:
                with error_location(column=name):
                    if legacy:
                        check_calendar(batch.column(name))
                    arrays.append(cast_to_schema(batch.column(name), field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _may_hold_for(all_of: list[ColumnPredicate], values: Mapping[str, pa.Scalar]) -> bool:
    """Whether predicates may hold together, according to the values of partition columns."""
    return all(hive.may_hold(predicate.on(column), values[column])
               for predicate in all_of if (column := predicate.path[0]) in values)


def _other_column(kind: str, path: str) -> UnsupportedError:
    return UnsupportedError(
        f"the first file, which provides the schema, does not have this {kind}; set "
        f"option mergeSchema to true (all {kind}s of all files) or false (those of the first file "
        "only), or list columns in .schema(...)", column=path)


def find_leaf(columns: list[LeafColumn], path: tuple[str, ...]) -> LeafColumn | None:
    """Return the leaf column that the DataFrame has at this path; None if it is in a list."""
    leaves = columns
    for depth, name in enumerate(path):
        found = find_name(name, {leaf.parts[depth] for leaf in leaves if len(leaf.parts) > depth})
        leaves = [leaf for leaf in leaves if leaf.parts[depth:depth + 1] == (found,)]
    if len(leaves) != 1 or len(leaves[0].parts) > len(path) or leaves[0].is_repeated:
        return None
    several = sum(leaf.path == leaves[0].path for leaf in columns) > 1
    return None if several else leaves[0]
