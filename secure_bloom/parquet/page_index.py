"""The page index of a column chunk: where its data pages are, and what they hold.

OffsetIndex and ColumnIndex (PageIndex.md, parquet.thrift) lie between the last row group and the
footer. In an encrypted column they are modules under the column's key (types 6 and 7).

In a plaintext file nothing authenticates them. What contradicts itself or the footer is not used,
and :mod:`.single_pages` compares each page that is read with what is said here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from secure_bloom.crypto.aad import ModuleType
from secure_bloom.errors import FormatError, error_location
from secure_bloom.parquet import thrift
from secure_bloom.parquet.bloom_filter import ReadsAt
from secure_bloom.parquet.chunk_states import RawStatistics
from secure_bloom.parquet.column_chunk import ColumnChunk
from secure_bloom.parquet.thrift import Struct

# Field ids of parquet.thrift that this module uses.
_LOCATIONS = 1  # OffsetIndex
_OFFSET, _PAGE_SIZE, _FIRST_ROW = 1, 2, 3  # PageLocation
#: the headers of these fields in a PageLocation, and its end
_USUAL = np.array([1 << 4 | thrift.I64, 1 << 4 | thrift.I32, 1 << 4 | thrift.I64, 0], np.uint64)
_NULL_PAGES, _MINIMA, _MAXIMA, _NULL_COUNTS = 1, 2, 3, 5  # ColumnIndex

_MAX_INDEX = 64 << 20  # bytes; an index of 32,767 pages with long bounds has a tenth of that


class DataPages(NamedTuple):
    """The data pages of a column chunk, in their order.

    Attributes
    ----------
    offsets, sizes : numpy.ndarray, shape (n,), int64
        Where each page begins in the file, and its stored bytes with the header.
    first_rows : numpy.ndarray, shape (n + 1,), int64
        The first row of each page in the row group, and the number of rows in the row group.
    dictionary : tuple of int, optional
        Offset and stored bytes of the dictionary page.
    """

    offsets: np.ndarray
    sizes: np.ndarray
    first_rows: np.ndarray
    dictionary: tuple[int, int] | None

    def __len__(self) -> int:
        return len(self.offsets)

    def num_rows(self, page: int) -> int:
        """Return the number of rows in a page."""
        return int(self.first_rows[page + 1] - self.first_rows[page])

    def place(self, page: int) -> tuple[int, int]:
        """Return offset and stored bytes of a page."""
        return int(self.offsets[page]), int(self.sizes[page])


def read_data_pages(source: ReadsAt, chunk: ColumnChunk, num_rows: int) -> DataPages | None:
    """Return where the data pages are, as the OffsetIndex says.

    None without an OffsetIndex, or with one that cannot be true of this column chunk.

    Raises
    ------
    FormatError, AuthenticationError, KeyRetrievalError
        If it is malformed, does not authenticate, or its key is not available.
    """
    where = chunk.pages
    data = _read(source, chunk, chunk.offset_index, ModuleType.OFFSET_INDEX)
    if data is None or where is None:
        return None
    with error_location(**chunk.place):
        found = _locations(data)
    if not len(found):
        return None
    offsets, sizes, firsts = found.T
    first_rows = np.append(firsts, num_rows)
    start, end = where[0], sum(where)
    ends = offsets + sizes
    is_possible = offsets[0] >= start and ends[-1] == end and first_rows[0] == 0 \
        and (sizes > 0).all() and (ends[:-1] == offsets[1:]).all() \
        and (first_rows[:-1] < first_rows[1:]).all()
    dictionary = (start, int(offsets[0]) - start) if offsets[0] > start else None
    return DataPages(offsets, sizes, first_rows, dictionary) if is_possible else None


def _locations(data: bytes) -> np.ndarray:
    """Return offset, size and first row of each page, shape (n, 3), int64."""
    with contextlib.suppress(FormatError, IndexError):
        if data[0] == _LOCATIONS << 4 | thrift.LIST:
            size, type_, position = thrift.read_list_header(data, 1)
            # Mostly, all fields of all structures are single varints.
            found, width = thrift.decode_varints(data[position:]), 2 * len(_USUAL) - 1
            if size and type_ == thrift.STRUCT and len(found) > size * width:
                table = found[:size * width].reshape(size, width)
                if (table[:, ::2] == _USUAL).all():
                    return thrift.signed(table[:, 1::2])
    struct, _ = thrift.decode(data, {})
    return np.array([[one.get_int(field_id) or 0 for field_id in (_OFFSET, _PAGE_SIZE, _FIRST_ROW)]
                     for one in thrift.each(struct, _LOCATIONS, {})], np.int64).reshape(-1, 3)


def read_bounds(source: ReadsAt, chunk: ColumnChunk, pages: DataPages) \
        -> list[RawStatistics] | None:
    """Return what the ColumnIndex says about the values of each page.

    None without a ColumnIndex, if the column has no defined order, or if a row can hold several
    values. Errors as for :func:`read_data_pages`; also FormatError if it has other pages.
    """
    if chunk.column.is_repeated or not chunk.has_defined_order:
        return None
    data = _read(source, chunk, chunk.column_index, ModuleType.COLUMN_INDEX)
    if data is None:
        return None
    with error_location(**chunk.place):
        struct, _ = thrift.decode(data, {})
        are_null = thrift.decode_booleans(_list_of(struct, _NULL_PAGES))
        minima = thrift.decode_binaries(_list_of(struct, _MINIMA))
        maxima = thrift.decode_binaries(_list_of(struct, _MAXIMA))
        raw = struct.get(_NULL_COUNTS)
        nulls: list[int | None] = [None] * len(pages) if raw is None \
            else [*thrift.decode_integers(_list_of(struct, _NULL_COUNTS))]
        if not len(are_null) == len(minima) == len(maxima) == len(nulls) == len(pages):
            raise FormatError("the column index has another number of pages than the offset index")
    return [_bounds(pages.num_rows(number), *one)
            for number, one in enumerate(zip(are_null, nulls, minima, maxima, strict=True))]


def _bounds(num_rows: int, is_null: bool, nulls: int | None, minimum: bytes,
            maximum: bytes) -> RawStatistics:
    if is_null:
        return RawStatistics(num_rows, num_rows)
    return RawStatistics(num_rows, nulls, minimum, maximum)


def _list_of(struct: thrift.Struct, field_id: int) -> bytes:
    raw = struct.get(field_id)
    if not isinstance(raw, bytes):
        raise FormatError("the column index is incomplete")
    return raw


def _read(source: ReadsAt, chunk: ColumnChunk, where: tuple[int, int] | None,
          module_type: ModuleType) -> bytes | None:
    """Return the bytes of an index, decrypted; None without one."""
    if where is None:
        return None
    start, length = where
    with error_location(**chunk.place):
        if length > _MAX_INDEX:
            raise FormatError(f"a page index claims {length:,} bytes; at most {_MAX_INDEX:,} are "
                              "read")
        modules = chunk.modules
        data = source.read_at(length, start)
        if len(data) != length:
            raise FormatError("a page index extends beyond the end of the file")
        return bytes(data) if modules is None else modules.decrypt(data, module_type)


# --- pages that were moved -----------------------------------------------------------------------

def moved_index(offset_index: bytes, distance: int) -> bytes:
    """Return an OffsetIndex whose pages were moved by some bytes.

    Raises FormatError if the index is malformed.
    """
    struct, locations = _structs(offset_index)
    for location in locations:
        location.set_int(_OFFSET, thrift.I64, (location.get_int(_OFFSET) or 0) + distance)
    return _with_locations(struct, locations)


def placed_index(offset_index: bytes, start: int, sizes: Sequence[int]) -> bytes:
    """Return an OffsetIndex of pages that begin at an offset and have these sizes in bytes.

    Raises FormatError if the index is malformed, or has another number of pages.
    """
    struct, locations = _structs(offset_index)
    if len(locations) != len(sizes):
        raise FormatError(f"the offset index has {len(locations)} pages, but the column chunk has "
                          f"{len(sizes)}")
    for location, size in zip(locations, sizes, strict=True):
        location.set_int(_OFFSET, thrift.I64, start)
        location.set_int(_PAGE_SIZE, thrift.I32, size)
        start += size
    return _with_locations(struct, locations)


def _structs(offset_index: bytes) -> tuple[Struct, list[Struct]]:
    struct, _ = thrift.decode(offset_index, {})
    return struct, list(thrift.each(struct, _LOCATIONS, {}))


def _with_locations(struct: Struct, locations: list[Struct]) -> bytes:
    struct.set(_LOCATIONS, thrift.LIST, list(locations))
    return thrift.encode(struct)
