"""Single data pages of a column chunk, compared with what the page index says about them.

The page index of a plaintext file may be wrong by a fault of its writer, or because somebody wants
a reader to return other rows. A page that is read must therefore have the number of rows that the
index gives it, and begin with a row.
"""

from __future__ import annotations

from secure_bloom.errors import FormatError, error_location
from secure_bloom.parquet.bloom_filter import ReadsAt
from secure_bloom.parquet.column_chunk import ColumnChunk
from secure_bloom.parquet.decompression import decompressor
from secure_bloom.parquet.page_index import DataPages
from secure_bloom.parquet.pages import Page, read_page

# Field ids of parquet.thrift that this module uses.
_UNCOMPRESSED_SIZE = 2  # PageHeader
_NUM_VALUES, _ENCODING_V1 = 1, 2  # DataPageHeader; the number of values also in V2
_NUM_ROWS, _ENCODING_V2, _REPETITION_BYTES, _IS_COMPRESSED = 3, 4, 6, 7  # DataPageHeaderV2
_CODEC = 4  # ColumnMetaData
_PLAIN, _DICTIONARIES = 0, (2, 8)  # Encoding: PLAIN_DICTIONARY, RLE_DICTIONARY
_LONGEST_VARINT = 5  # bytes of the header of a run
_CONTINUED = bytes(range(0x80, 0x100))
_MOST = 32 << 20  # bytes that a page is decompressed to here; Arrow reads larger ones


class ChunkPages:
    """The pages of a column chunk, which are read one by one.

    Parameters
    ----------
    chunk : ColumnChunk
    pages : DataPages
        As its OffsetIndex says.
    """

    def __init__(self, chunk: ColumnChunk, pages: DataPages):
        self.chunk, self.pages = chunk, pages
        self._dictionary: Page | None = None
        self._modules = chunk.modules
        codec = chunk.metadata().get_int(_CODEC) or 0
        self._decompress, self._is_plain = decompressor(codec), codec == 0

    def dictionary(self, source: ReadsAt) -> Page | None:
        """Return the dictionary page; None without one. Errors as for :func:`.read_page`."""
        if self._dictionary is None and self.pages.dictionary is not None:
            with error_location(**self.chunk.place):
                self._dictionary = read_page(source, self.pages.dictionary, self._modules, None)
        return self._dictionary

    def read(self, source: ReadsAt, number: int) -> Page:
        """Return a data page.

        Raises
        ------
        FormatError, AuthenticationError
            As for :func:`.read_page`, and if it does not have the rows that the index says.
        """
        with error_location(**self.chunk.place):
            page = read_page(source, self.pages.place(number), self._modules, number)
            rows, is_repeated = self.pages.num_rows(number), self.chunk.column.is_repeated
            claimed = page.details.get_int(_NUM_ROWS if page.is_v2 else _NUM_VALUES) or 0
            if claimed < rows or (claimed > rows and (page.is_v2 or not is_repeated)):
                raise FormatError("a page has another number of rows than the page index says")
            if is_repeated and not self._begins_row(page):
                raise FormatError("a page begins within a row, although there is a page index")
            return page

    def values(self, page: Page) -> bytes | None:
        """Return the body of a page without compression; of data pages V2 only the values.

        None if only Arrow can decompress it.
        """
        size, body = page.header.get_int(_UNCOMPRESSED_SIZE), page.body
        is_compressed = not self._is_plain
        if page.is_v2:
            levels = page.levels_size
            is_compressed &= page.details.get_bool(_IS_COMPRESSED) is not False
            size, body = None if size is None else size - levels, body[levels:]
        if not is_compressed or not body:
            return body
        if self._decompress is None or size is None or not 0 <= size <= _MOST:
            return None
        with error_location(**self.chunk.place):
            return self._decompress(body, size)

    def _begins_row(self, page: Page) -> bool:
        """Whether the first repetition level of a page is 0; True if only Arrow can tell."""
        if page.is_v2:
            return not page.details.get_int(_REPETITION_BYTES) \
                or _first_level_is_zero(page.body)
        body = self.values(page)
        return body is None or _first_level_is_zero(body, 4)


def _first_level_is_zero(body: bytes, start: int = 0) -> bool:
    """Whether levels of at most 1 begin with 0, in the hybrid of runs and packed bits.

    The lowest bit of its header tells which of the two the first run is (Encodings.md).
    """
    found = body[start:start + _LONGEST_VARINT + 1]
    behind = found.lstrip(_CONTINUED)[1:]  # of the header, which is a varint
    return bool(behind) and behind[0] & 1 == 0


def uses_dictionary(page: Page) -> bool:
    """Whether the values of a data page are codes of the dictionary page."""
    return _encoding(page) in _DICTIONARIES


def is_plain(page: Page) -> bool:
    """Whether the bytes of values stand in an uncompressed page as they are."""
    return _encoding(page) == _PLAIN


def _encoding(page: Page) -> int | None:
    return page.details.get_int(_ENCODING_V2 if page.is_v2 else _ENCODING_V1)
