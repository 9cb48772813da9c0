"""The columns of one row group, of which only the pages with some rows are read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cached_property
from itertools import chain

import numpy as np
import pyarrow as pa

from secure_bloom.arrow.page_columns import PageColumn
from secure_bloom.arrow.views import rows_at
from secure_bloom.parquet.bloom_filter import ReadsAt
from secure_bloom.parquet.column_chunk import ColumnChunk
from secure_bloom.parquet.page_index import read_bounds, read_data_pages
from secure_bloom.parquet.pages import Page
from secure_bloom.parquet.single_pages import ChunkPages, is_plain, uses_dictionary
from secure_bloom.pruning import statistics
from secure_bloom.pruning.pages import PageTruth, Spans, pages_with, searched_bytes
from secure_bloom.pruning.predicates import Predicate
from secure_bloom.reading.open_file import OpenFile
from secure_bloom.storage.ranges import Ranges

_AT_ONCE = 8 << 20  # bytes of pages that are searched together
_AT_ONCE_FAR_AWAY = 64 << 20
_MANY = 8  # pages; if most of them have what is searched for, the others are not searched
_ALL = 1 << 60  # pages of a column chunk, at least
# Of a page: each batch with some of its rows decodes all of it. Most writers stop at 20,000.
_MOST_ROWS = 1 << 20
_SMALL_DICTIONARY = 64 << 10  # bytes; read although the pages may not need it


class RowGroupColumns:
    """The columns of a row group by name: their pages, as far as there is an OffsetIndex.

    Of columns with less than ``least`` rows, and as few bytes of pages, only the size is known,
    unless they are ``compared``.

    Attributes
    ----------
    num_rows : int
    num_bytes : int
        That were read.
    num_pages : int
        Data pages of the columns whose pages can be read one by one, once that is known.
    """

    def __init__(self, file: OpenFile, number: int, names: Iterable[str], least: int,
                 compared: Collection[str]):
        self._file, self._group = file, file.footer.row_groups[number]
        self.num_rows = self._group.num_rows
        self._chunks: dict[str, list[ColumnChunk]] = {
            name: [self._group[leaf.ordinal] for leaf in file.leaves_by_name[name]]
            for name in names}
        self._stored_bytes = {name: sum(pages[1] for chunk in chunks if (pages := chunk.pages))
                              for name, chunks in self._chunks.items()}
        self._large = {name: None for name, size in self._stored_bytes.items()
                       if max(size, self.num_rows) >= least or name in compared}
        self.num_bytes = self.num_pages = 0
        self._pages_read: Counter[int] = Counter()  # by ordinal; some perhaps twice
        self._found: dict[tuple[int, int], Page] = {}  # that were read for a search

    def stored_bytes(self, name: str) -> int:
        """Return the bytes of a column's pages."""
        return self._stored_bytes[name]

    def is_large(self, name: str) -> bool:
        """Whether the page index of a column is used, if there is one."""
        return name in self._large

    @property
    def index_bytes(self) -> int:
        """The bytes of the page indexes, as the footer says."""
        return sum(length for _, length in self._places_of_indexes)

    @cached_property
    def _places_of_indexes(self) -> list[tuple[int, int]]:
        return [place for name in self._large for chunk in self._chunks[name]
                for place in (chunk.offset_index, chunk.column_index) if place]

    @cached_property
    def _indexes(self) -> Ranges:
        """All page indexes, which lie close together."""
        ranges = Ranges(self._file.source, self._places_of_indexes)
        self.num_bytes += ranges.num_bytes
        return ranges

    @cached_property
    def _by_pages(self) -> dict[str, tuple[PageColumn, list[ChunkPages]]]:
        """The columns whose pages can be read and decoded one by one, with those of each leaf."""
        found = {}
        for name in self._large:
            chunks = self._chunks[name]
            if not all(chunk.offset_index for chunk in chunks) \
                    or (column := self._file.page_column(name)) is None \
                    or not all(map(column.can_decode, chunks)):
                continue
            tables = [(chunk, read_data_pages(self._indexes, chunk, self.num_rows))
                      for chunk in chunks]
            pages = [ChunkPages(chunk, table) for chunk, table in tables
                     if table is not None and np.diff(table.first_rows).max() <= _MOST_ROWS]
            if len(pages) == len(tables):
                found[name] = column, pages
                self.num_pages += sum(len(one.pages) for one in pages)
        return found

    def has_pages(self, name: str) -> bool:
        """Whether pages of a column can be read one by one."""
        return name in self._by_pages

    def _of(self, name: str) -> list[ChunkPages]:
        return self._by_pages[name][1]

    @property
    def num_pages_read(self) -> int:
        """How many of :attr:`num_pages` were read."""
        return sum(min(self._pages_read[one.chunk.column.ordinal], len(one.pages))
                   for _, chunks in (self._by_pages.values() if self.num_pages else ())
                   for one in chunks)

    def note_whole(self, names: Iterable[str]) -> None:
        """Count columns that something else reads as a whole."""
        for name in names:
            self.num_bytes += self.stored_bytes(name)
            self._pages_read.update({one.column.ordinal: _ALL for one in self._chunks[name]})

    def note_pages(self, names: Iterable[str], spans: Spans) -> None:
        """Count the pages with some rows."""
        for one in chain.from_iterable(map(self._of, names)):
            numbers = pages_with(one.pages.first_rows, spans)
            self.num_bytes += int(one.pages.sizes[numbers].sum())
            self._pages_read[one.chunk.column.ordinal] += len(numbers)

    def bytes_with(self, name: str, rows: np.ndarray) -> int:
        """Return the bytes of the pages of a column that have some rows."""
        return sum(int(one.pages.sizes[_numbers(one, rows)].sum()) for one in self._of(name))

    # --- what pages may have ---------------------------------------------------------------------

    def _predicate_pages(self, predicate: Predicate) -> ChunkPages | None:
        leaf = self._file.footer.columns_by_path.get(predicate.column)
        if leaf is None or leaf.is_repeated or not self.has_pages(leaf.parts[0]):
            return None
        [one] = (one for one in self._of(leaf.parts[0])
                 if one.chunk.column.ordinal == leaf.ordinal)
        return one

    def bounds_say(self, predicate: Predicate) -> PageTruth | None:
        """Return in which pages a predicate may hold, as the ColumnIndex says."""
        one = self._predicate_pages(predicate)
        found = None if one is None else read_bounds(self._indexes, one.chunk, one.pages)
        if one is None or found is None:
            return None
        return one.pages.first_rows, np.array([
            statistics.may_hold(predicate, of_page, one.chunk.column) for of_page in found])

    def search(self, predicate: Predicate, spans: Spans) -> PageTruth | None:
        """Search the pages with some rows for the values that a predicate wants.

        Pages that have one are kept for :meth:`rows_of`.
        """
        one = self._predicate_pages(predicate)
        has = None if one is None else searched_bytes(predicate, one.chunk.column)
        if one is None or has is None:
            return None
        may_hold = np.ones(len(one.pages), bool)
        numbers = pages_with(one.pages.first_rows, spans)
        searched, matches = 0, 0
        in_dictionary: bool | None = None  # not known yet
        for some in self._at_once(one, numbers):
            source = self._read([(one, number) for number in some], [one])
            for number in some:
                if searched >= _MANY and 2 * matches > searched:
                    return one.pages.first_rows, may_hold
                page = one.read(source, number)
                if not uses_dictionary(page):
                    may_hold[number] = not is_plain(page) or _may_have(one, page, has)
                elif in_dictionary is None:
                    may_hold[number] = in_dictionary = _may_have(one, one.dictionary(source), has)
                else:
                    may_hold[number] = in_dictionary
                searched, matches = searched + 1, matches + bool(may_hold[number])
                if may_hold[number]:
                    self._found[one.chunk.column.ordinal, number] = page
        return one.pages.first_rows, may_hold

    def _at_once(self, one: ChunkPages, numbers: np.ndarray) -> Iterable[list[int]]:
        """Yield the numbers of pages that are read together."""
        most = _AT_ONCE_FAR_AWAY if self._file.source.is_far else _AT_ONCE
        ends = np.cumsum(one.pages.sizes[numbers])
        for part in np.unique(ends // most):
            yield numbers[ends // most == part].tolist()

    # --- rows ------------------------------------------------------------------------------------

    def rows_of(self, names: Sequence[str], rows: np.ndarray) -> dict[str, pa.Array]:
        """Return some rows of columns that have pages. The numbers of the rows are ascending."""
        chunks = [one for name in names for one in self._of(name)]
        pages = [(one, number) for one in chunks for number in _numbers(one, rows).tolist()
                 if (one.chunk.column.ordinal, number) not in self._found]
        source = self._read(pages, chunks)
        return {name: self._rows(*self._by_pages[name], source, rows) for name in names}

    def _rows(self, column: PageColumn, chunks: list[ChunkPages], source: ReadsAt,
              rows: np.ndarray) -> pa.Array:
        arrays = []
        for leaf, one in enumerate(chunks):
            numbers = _numbers(one, rows)
            pages = [self._found.get((one.chunk.column.ordinal, number))
                     or one.read(source, number) for number in numbers.tolist()]
            dictionary = one.dictionary(source) if any(map(uses_dictionary, pages)) else None
            counts = np.diff(one.pages.first_rows)[numbers]
            found = column.decode(leaf, one.chunk, dictionary, pages, int(counts.sum()))
            # where each page begins among those that were decoded, less where it begins in the file
            shift = np.cumsum(counts) - counts - one.pages.first_rows[numbers]
            page = np.searchsorted(one.pages.first_rows[numbers], rows, "right") - 1
            arrays.append(rows_at(found, rows + shift[page]))
        return column.joined(arrays)

    def _read(self, pages: list[tuple[ChunkPages, int]], chunks: Iterable[ChunkPages]) -> Ranges:
        """Read pages, and the dictionaries that are small."""
        small = [one.pages.dictionary for one in chunks if one.pages.dictionary is not None
                 and one.pages.dictionary[1] <= _SMALL_DICTIONARY]
        places = [one.pages.place(number) for one, number in pages]
        ranges = Ranges(self._file.source, [*places, *small] if places else [])
        self._pages_read.update(one.chunk.column.ordinal for one, _ in pages)
        self.num_bytes += ranges.num_bytes
        return ranges


def _may_have(one: ChunkPages, page: Page | None, has: Callable[[bytes], bool]) -> bool:
    """Whether a page has what is searched for; True if that is not known."""
    plain = None if page is None else one.values(page)
    return plain is None or has(plain)


def _numbers(one: ChunkPages, rows: np.ndarray) -> np.ndarray:
    """Return the numbers of the pages that have some rows, which are ascending."""
    return np.flatnonzero(np.diff(np.searchsorted(rows, one.pages.first_rows)))
