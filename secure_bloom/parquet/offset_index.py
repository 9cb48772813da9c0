"""An OffsetIndex for a column chunk that has none: where its data pages are, and their first rows.

The index demands that pages begin with a row (PageLocation in parquet.thrift). Pages of version 2
always do. Those of version 1 need not if a row can have several values, and do not say so.
"""

from __future__ import annotations

from collections.abc import Iterable

from secure_bloom.errors import FormatError, UnsupportedError
from secure_bloom.parquet import thrift
from secure_bloom.parquet.pages import DataPage
from secure_bloom.parquet.thrift import Struct

# Field ids of parquet.thrift that this module uses.
_LOCATIONS = 1  # OffsetIndex
_OFFSET, _PAGE_SIZE, _FIRST_ROW = 1, 2, 3  # PageLocation

_MAX_PAGES = 1 << 18  # of a column chunk: an index of some MB
_MAX_SIZE = (1 << 31) - 1  # bytes of a page


def make_offset_index(pages: Iterable[DataPage], num_rows: int, *, is_repeated: bool) -> bytes:
    """Return the OffsetIndex of a column chunk.

    Parameters
    ----------
    pages : iterable of DataPage
        All data pages, in their order.
    num_rows : int
        Rows of the row group.
    is_repeated : bool
        Whether a row of the column can have several values.

    Raises
    ------
    UnsupportedError
        If the pages do not tell where their rows begin, or would make a useless index.
    FormatError
        If they contradict the number of rows.
    """
    locations: list[bytes] = []
    first_row, unknown = 0, False
    for page in pages:
        if unknown:
            raise UnsupportedError("its pages of version 1 may begin within a row")
        if page.num_values == 0 or page.size > _MAX_SIZE or len(locations) == _MAX_PAGES:
            raise UnsupportedError("it has pages without values, or that are too large or too many")
        locations.append(_location(page, first_row))
        rows = _num_rows(page, is_repeated)
        unknown = rows is None
        first_row = num_rows if rows is None else first_row + rows
    if not locations:
        raise UnsupportedError("it has no data page")
    if first_row != num_rows:
        raise FormatError(f"the pages have {first_row} rows, but the row group has {num_rows}")
    return thrift.encode(Struct([[_LOCATIONS, thrift.LIST, locations]]))


def _num_rows(page: DataPage, is_repeated: bool) -> int | None:
    """Return the number of rows that begin in a page; None if it does not say."""
    if is_repeated:
        return page.num_rows
    if page.num_rows not in (None, page.num_values):
        raise FormatError(f"a page has {page.num_rows} rows, but {page.num_values} values")
    return page.num_values


def _location(page: DataPage, first_row: int) -> bytes:
    location = Struct()
    location.set_int(_OFFSET, thrift.I64, page.offset)
    location.set_int(_PAGE_SIZE, thrift.I32, page.size)
    location.set_int(_FIRST_ROW, thrift.I64, first_row)
    return thrift.encode(location)
