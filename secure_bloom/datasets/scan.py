"""One pass over the files of a data set: files are opened and pruned ahead of the rows."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence, Sized
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from itertools import groupby, islice
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import pyarrow as pa

from secure_bloom.arrow.decryption import SharedDecryption
from secure_bloom.arrow.few_row_groups import Each, FilePart
from secure_bloom.arrow.masking import marked, with_masked
from secure_bloom.arrow.pages import pyarrow_errors, read_batches
from secure_bloom.arrow.predicate_rows import constants_in, remaining
from secure_bloom.datasets.dataset_file import (
    ROW_GROUP,
    DatasetFile,
    FileAccess,
    OpenedFile,
    OutdatedError,
)
from secure_bloom.datasets.masking import NOT_MASKED, MaskedColumns
from secure_bloom.datasets.partitions import values_of
from secure_bloom.datasets.report import (
    BLOOM_FILTERS,
    INDEX,
    PARTITIONS,
    READ,
    STATISTICS,
    ScanReport,
)
from secure_bloom.datasets.selection import Selection, select
from secure_bloom.errors import FileError, FormatError, KeyRetrievalError, UnsupportedError
from secure_bloom.pruning.expressions import Alternatives, RowGroupFilter
from secure_bloom.pruning.predicates import Predicate
from secure_bloom.reading.matching_rows import MatchingRows
from secure_bloom.reading.row_groups import prune_row_groups
from secure_bloom.sbbf import light_arrow
from secure_bloom.storage.threads import in_order, pool_for
from secure_bloom.storage.versions import until_unchanged

if TYPE_CHECKING:
    import pyarrow.compute as pc

    from secure_bloom.datasets.sources import Files
    from secure_bloom.index.known_files import KnownFile, KnownFiles

_OPEN_FILES = 64  # that are read together; as many again are opened meanwhile

Outcome = TypeVar("Outcome")
Rows = TypeVar("Rows", bound=Sized)

#: yields the rows of some open files, in their order
ReadRows: TypeAlias = Callable[[list[OpenedFile]], Iterator[Rows]]
#: makes a reader of another kind of rows from the one that uses pyarrow; both may use the pool
NewReader: TypeAlias = Callable[[ReadRows[pa.RecordBatch], ThreadPoolExecutor], ReadRows[Rows]]


class Scan:
    """A pass over the files of a data set, for the rows for which filters may hold.

    Parameters
    ----------
    files : list of DatasetFile
    access : FileAccess
    schema : pyarrow.Schema
        Of the data set.
    filters : sequence of RowGroupFilter
        All of them must hold for a row.
    report : ScanReport
        Is completed during the pass.
    masking : MaskedColumns
        Of these files.
    selection : Selection, optional
        What indexes have selected for these filters; default: they are asked.
    """

    def __init__(self, files: list[DatasetFile], access: FileAccess, schema: pa.Schema,
                 filters: Sequence[RowGroupFilter], report: ScanReport,
                 masking: MaskedColumns = NOT_MASKED, selection: Selection | None = None):
        self._files, self._access, self._schema = files, access, schema
        self._filters, self._report, self._masking = filters, report, masking
        self.matching = MatchingRows(filters, schema, report.by_pages)
        self._reading: list[OpenedFile] = []
        self._selected, self._selection = selection, Selection()

    def check(self) -> None:
        """Raise ChangedMeanwhileError if rows so far are of two versions of a file.

        To be called if the rest of the batches is not read, before their iterator is closed.
        """
        for opened in self._reading:
            opened.check()

    def open_files(self) -> Iterator[OpenedFile]:
        """Yield the files that may have matching rows, open; the caller closes them."""
        def look(file: DatasetFile) -> tuple[OpenedFile, dict[int, int]]:
            return until_unchanged(partial(self.look, file))

        with pool_for(self._access.filesystem) as pool:
            for opened, outcomes in in_order(pool, look, self.candidates(), _OPEN_FILES):
                self.count(opened, outcomes)
                if opened.row_groups == []:
                    opened.close()
                else:
                    yield opened

    def expect(self, opened: OpenedFile) -> None:
        """Add to the report which pages of an open file would be read at least."""
        with opened.source.one_version():
            for number in opened.groups:
                found = self.matching.expect(opened.file, opened.constants(number), number,
                                             self._schema, opened.found_rows)
                if found is not None:
                    self._report.by_pages.add(found)
            opened.check()

    def batches(self, columns: Any, **options: Any) -> Iterator[pa.RecordBatch]:
        """Yield rows, among them all that match; those of large row groups are filtered already.

        The arguments are those of :meth:`pyarrow.dataset.Dataset.scanner`, but if columns are
        masked, ``columns`` must be a list of names, or None.
        """
        return self.rows_by(lambda read_arrow, _: read_arrow, columns, options)

    def rows_by(self, new_reader: NewReader[Rows], columns: Any,
                options: dict[str, Any]) -> Iterator[Rows]:
        """Yield the same rows in another form."""
        files, shared = self.open_files(), SharedDecryption()
        while together := list(islice(files, _OPEN_FILES)):
            yield from self._rows(together, shared, columns, options, new_reader)

    def candidates(self) -> list[DatasetFile]:
        """Return the files to look at: those in which no index rules all row groups out."""
        access = self._access
        self._selection = select(self._files, access.indexes, self._filters) \
            if self._selected is None else self._selected
        found: list[DatasetFile] = []
        skipped: list[KnownFile] = []
        for file in self._files:
            selected = self._selection.of(file)
            if selected is None or selected.rows:
                found.append(file)
            else:
                skipped.append(selected.file)
        self._report.add_skipped(INDEX, len(skipped), sum(one.num_row_groups for one in skipped),
                                 sum(one.stamp.size for one in skipped))
        return found

    def look(self, file: DatasetFile) -> tuple[OpenedFile, dict[int, int]]:
        """Open a file, and find the row groups to read; return it with the outcome of each one."""
        opened = file.open()
        try:
            outcomes = dict.fromkeys(opened.groups, READ)
            answered: Collection[str] = ()
            selected = self._selection.of(file)
            if selected is not None and opened.is_selected(selected.file.stamp,
                                                             selected.identity):
                answered = selected.columns
                outcomes = {group: READ if group in selected.rows else INDEX
                            for group in outcomes}
                opened.found_rows = selected.rows
            for row_filter in () if opened.is_pruned else self._filters:
                _check(opened, row_filter, outcomes, answered)
            kept = [group for group, outcome in outcomes.items() if outcome == READ]
            if kept:
                opened.open_now()
                opened.masked = self._masking.of_file(opened)
        except BaseException:
            opened.close()
            raise
        opened.row_groups = None if len(kept) == opened.file.num_row_groups else kept
        return opened, outcomes

    def count(self, opened: OpenedFile, outcomes: dict[int, int]) -> None:
        """Add a file to the report."""
        sizes = map(opened.file.footer.row_group_num_bytes, outcomes)
        self._report.add_file(outcomes.values(), sizes)

    def _rows(self, files: list[OpenedFile], shared: SharedDecryption, columns: Any,
              options: dict[str, Any], new_reader: NewReader[Rows]) -> Iterator[Rows]:
        read = self._schema.names if columns is None else columns

        def rows_together(some: list[OpenedFile]) -> Iterator[pa.RecordBatch]:
            for masked, group in groupby(some, key=lambda opened: opened.masked):
                found = each(lambda opened: opened.parts(shared, read, self.matching), group)
                parts = [part for of_file in found for part in of_file]
                yield from self.rows_of(parts, masked, columns, options, each)

        with ExitStack() as stack:
            for opened in files:
                stack.callback(opened.close)
            for opened in files:
                stack.enter_context(opened.source.one_version())
            pool = stack.enter_context(pool_for(self._access.filesystem))
            each = partial(in_order, pool)
            self._reading = files
            stack.callback(setattr, self, "_reading", [])
            rows = 0
            try:
                with pyarrow_errors(files[0].dataset_file.path, self._access.keys):
                    for some in new_reader(rows_together, pool)(files):
                        rows += len(some)
                        yield some
            except (FileError, KeyRetrievalError):
                for opened in _from_row(files, rows):  # find the file that failed
                    with pyarrow_errors(opened.dataset_file.path, self._access.keys):
                        try:
                            deque(rows_together([opened]), maxlen=0)
                        except FormatError:
                            _check_pages(opened, shared, columns)
                            raise UnsupportedError("its values do not fit the types in the schema "
                                                   "of the data set") from None
                raise
            list(each(OpenedFile.check, files))

    def rows_of(self, parts: list[FilePart], masked: frozenset[str], columns: Any,
                options: dict[str, Any], each: Each = map) -> Iterator[pa.RecordBatch]:
        """Yield the rows of files, in which some columns are masked."""
        names = self._schema.names if columns is None else columns
        to_read = [name for name in names if name not in masked] if masked else columns
        for batch in read_batches(parts, self._schema, to_read, options, each):
            if masked:
                batch = with_masked(batch, map(self._schema.field, names), masked)
            yield marked(batch, self._masking.num_files)


def inspected(found: Files, access: FileAccess, known: KnownFiles | None,
              attempt: Callable[[str, Callable[[], DatasetFile]], Outcome],
              look: Callable[[OpenedFile], bool] | None = None) -> Iterator[Outcome]:
    """Yield the files of a data set, in order, after their footers were read.

    Those of ``known`` files are not read. ``attempt(path, inspect)`` returns the result of a
    function, or what stands for its error. ``look`` is that of :class:`DatasetFile`. Raises
    OutdatedError if a file was removed after its folder was listed.
    """
    def inspect(place: tuple[str, pc.Expression | None]) -> Outcome:
        path, partition = place
        constants = values_of(partition, found.partition_schema)
        of_file = None if known is None else known.get(path)

        def open_file() -> DatasetFile:
            try:
                return DatasetFile(access, path, partition, constants, of_file, look)
            except FileNotFoundError as error:
                if path in found.named:
                    raise
                raise OutdatedError("the file was removed while its folder was being read; try "
                                    "again", file=path) from error

        return attempt(path, open_file)

    places = zip(found.paths, found.partitions, strict=True)
    if known is not None and known.schemas(found.paths) is not None:
        # Nothing is read, so threads would only take time.
        yield from map(inspect, places)
        return
    with pool_for(access.filesystem) as pool:
        yield from in_order(pool, inspect, places, _OPEN_FILES)


def _check(opened: OpenedFile, row_filter: RowGroupFilter, outcomes: dict[int, int],
           answered: Collection[str]) -> None:
    """Set why row groups are skipped, of those that would be read so far.

    The filters of columns for which an index has ``answered`` are not read: they tell less.
    """
    condition: Alternatives = row_filter.alternatives_for(opened.dataset_file.schema)
    if condition is not None and answered:
        condition = [[p for p in alternative if p.column not in answered or p.candidates is None]
                     for alternative in condition]
    groups = [group for group, outcome in outcomes.items() if outcome == READ]
    left = None if condition is None else remaining(condition, _constants(opened, condition))
    if left is not None:
        outcomes.update(dict.fromkeys(groups, PARTITIONS))
        if opened.dataset_file.access.with_source:
            groups = [group for group in groups
                      if remaining(left, {ROW_GROUP: light_arrow.scalar(group, pa.int32())})]
            left = [[p for p in alternative if p.column != ROW_GROUP] for alternative in left]
    if left == [] or not groups:
        return
    from_path = opened.dataset_file.partition_values
    opened.file.check_filtered(name for name in row_filter.columns if name not in from_path)
    if left is None:
        return
    result = prune_row_groups(opened.file, left, groups)
    outcomes.update(dict.fromkeys(groups, STATISTICS))
    outcomes.update(dict.fromkeys(result.after_statistics, BLOOM_FILTERS))
    outcomes.update(dict.fromkeys(result.after_filters, READ))


def _constants(opened: OpenedFile, condition: list[list[Predicate]]) -> dict[str, pa.Scalar]:
    """Return the columns that have a single value in a file."""
    file = opened.dataset_file
    found = constants_in(condition, opened.file.footer.columns_by_path, file.partition_values)
    if file.access.with_source:
        found.pop(ROW_GROUP, None)  # it differs between row groups
    return found


def _check_pages(opened: OpenedFile, shared: SharedDecryption, columns: Any) -> None:
    """Raise FormatError if pyarrow cannot read the pages of a file with its own types, either."""
    names = [name for name in opened.file.schema.names if name not in opened.masked
             and (name in columns if isinstance(columns, list) else True)]
    deque(read_batches(opened.parts(shared, names), opened.file.schema, names), maxlen=0)


def _from_row(files: list[OpenedFile], row: int) -> Iterator[OpenedFile]:
    """Yield the files from the one with this row on."""
    for opened in files:
        row -= opened.num_rows
        if row < 0:
            yield opened
