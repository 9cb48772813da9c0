"""The pages of a column chunk as another file stores them, encrypted under their new position.

A column chunk is a dictionary page, if it has one, and data pages. A page is its header
(PageHeader in parquet.thrift) and its body. In an encrypted column, each of the two is a module
(Encryption.md, section 5.2); the sizes in header, footer and offset index are those of modules.
"""

from __future__ import annotations

import contextlib
import zlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from secure_bloom.crypto.aad import ModuleType
from secure_bloom.crypto.modules import LENGTH_SIZE, module_length
from secure_bloom.errors import AuthenticationError, FormatError
from secure_bloom.parquet import thrift
from secure_bloom.parquet.bloom_filter import ReadsAt
from secure_bloom.parquet.chunk_modules import ChunkModules
from secure_bloom.parquet.thrift import Struct

# Field ids of parquet.thrift that this module uses.
_TYPE, _UNCOMPRESSED_SIZE, _COMPRESSED_SIZE, _CHECKSUM = 1, 2, 3, 4  # PageHeader
_HEADER_V1, _DICTIONARY_HEADER, _HEADER_V2 = 5, 7, 8  # likewise
_NUM_VALUES = 1  # DictionaryPageHeader, DataPageHeader, DataPageHeaderV2
_NUM_ROWS = 3  # DataPageHeaderV2
_LEVELS = 5, 6  # DataPageHeaderV2: bytes of definition and repetition levels
_DATA_PAGE, _DICTIONARY_PAGE, _DATA_PAGE_V2 = 0, 2, 3  # PageType
_DETAILS = {_DATA_PAGE: _HEADER_V1, _DICTIONARY_PAGE: _DICTIONARY_HEADER,
            _DATA_PAGE_V2: _HEADER_V2}

_MAX_HEADER = 1 << 20  # bytes; it may contain the bounds of the page
_USUAL_HEADER = 1 << 10
_BLOCK = 4 << 20  # bytes that are read at once
_BEYOND = "a page extends beyond its column chunk"

#: of header and body, by whether the page is a dictionary
_MODULE_TYPES = ((ModuleType.DATA_PAGE_HEADER, ModuleType.DATA_PAGE),
                 (ModuleType.DICTIONARY_PAGE_HEADER, ModuleType.DICTIONARY_PAGE))


@dataclass
class StoredPages:
    """Sizes of pages as they are stored.

    Attributes
    ----------
    dictionary_size : int
        Stored bytes of the dictionary page; 0 without one.
    data_sizes : array of int
        Stored bytes of each data page, with its header. There may be millions in a file.
    num_values : int
        Values of the data pages, according to their headers.
    """

    dictionary_size: int = 0
    data_sizes: array[int] = field(default_factory=partial(array, "q"))
    num_values: int = 0

    @property
    def size(self) -> int:
        """Stored bytes of all pages."""
        return self.dictionary_size + sum(self.data_sizes)

    def add(self, size: int, is_dictionary: bool) -> None:
        """Add a page of so many bytes."""
        if is_dictionary:
            self.dictionary_size += size
        else:
            self.data_sizes.append(size)


def copied_pages(source: ReadsAt, where: tuple[int, int], old: ChunkModules | None,
                 new: ChunkModules | None, stored: StoredPages) \
        -> Iterator[bytes | memoryview]:
    """Yield the pages of a column chunk, encrypted in another way. They are not decoded.

    Their headers lose their extensions.

    Parameters
    ----------
    source : ReadsAt
        The file that has them. It is read in parts; a page is in memory as a whole.
    where : tuple of int
        Offset and length of the pages, in bytes.
    old, new : ChunkModules, optional
        How they are encrypted there, and how they will be; None: not at all.
    stored : StoredPages
        Receives their sizes.

    Raises
    ------
    FormatError
        If they are malformed, or there are too many.
    AuthenticationError
        If a module does not authenticate.
    KeyExhaustedError
        If the new key would encrypt too many modules.
    """
    data = _Window(source, *where)
    while data.left:
        number = len(stored.data_sizes)
        is_first = not (number or stored.dictionary_size)
        raw, header, is_dictionary = _take_header(data, old, number, is_first)
        if is_dictionary and not is_first:
            raise FormatError("a dictionary page follows other pages")
        stored.num_values += _num_values(header, is_dictionary)
        page = None if is_dictionary else number
        of_header, of_body = _MODULE_TYPES[is_dictionary]
        before = data.take(_body_size(header))
        levels = 0 if old is None else _open_levels(header, before)
        body: bytes | memoryview = before[levels:]
        if old is not None:
            body = old.decrypt(body, of_body, page)
        if new is not None:
            body = new.encrypt(body, of_body, page)
        parts = [before[:levels], body] if levels else [body]
        if _describe(header, before, parts):
            raw = thrift.encode(header)
        raw = thrift.without_extensions(raw)
        if new is not None:
            raw = new.encrypt(raw, of_header, page)
        stored.add(len(raw) + sum(map(len, parts)), is_dictionary)
        yield raw
        yield from parts


class Page(NamedTuple):
    """A page without encryption: its header, and its body as it was compressed.

    ``details`` are the part of the header for its type of page.
    """

    header: Struct
    details: Struct
    body: bytes

    @property
    def is_v2(self) -> bool:
        """Whether this is a data page V2."""
        return self.header.get_int(_TYPE) == _DATA_PAGE_V2

    @property
    def levels_size(self) -> int:
        """Bytes of the levels before the values, which are not compressed; 0 unless V2."""
        return _levels_size(self.details) if self.is_v2 else 0


def read_page(source: ReadsAt, where: tuple[int, int], modules: ChunkModules | None,
              number: int | None) -> Page:
    """Return the page that takes exactly these bytes, decrypted.

    Parameters
    ----------
    source : ReadsAt
    where : tuple of int
        Offset and length of the page with its header, in bytes.
    modules : ChunkModules, optional
        How it is encrypted; None: not at all.
    number : int, optional
        Its position among the data pages; None: it is the dictionary page.

    Raises
    ------
    FormatError
        If it is malformed, of another type, or does not end there.
    AuthenticationError
        If a module does not authenticate.
    """
    data = _Window(source, *where)
    _, header, is_dictionary = _take_header(data, modules, number or 0, number is None)
    if is_dictionary != (number is None):
        raise FormatError("a page is of another type than the page index says")
    if data.left != _body_size(header):
        raise FormatError("a page has another size than the page index says")
    stored = data.take(data.left)
    body = bytes(stored)
    if modules is not None:
        levels = _open_levels(header, stored)
        _, of_body = _MODULE_TYPES[is_dictionary]
        body = bytes(stored[:levels]) + modules.decrypt(stored[levels:], of_body, number)
        header.set_int(_COMPRESSED_SIZE, thrift.I32, len(body))
    header.remove(_CHECKSUM)  # of the encrypted body, with some writers
    details = _details(header)
    if details is None:
        raise FormatError("the header of a page is incomplete")
    return Page(header, details, body)


class DictionaryPage(NamedTuple):
    """A dictionary page: its body, which is compressed, and what its header says."""

    body: bytes
    uncompressed_size: int
    num_values: int


def read_dictionary_page(source: ReadsAt, where: tuple[int, int], modules: ChunkModules | None,
                         first_read: int) -> DictionaryPage | None:
    """Return the first page of a column chunk, decrypted; None if it is not a dictionary.

    Parameters are as for :func:`copied_pages`; so many bytes are read first. Errors are those of
    :func:`copied_pages`, except KeyExhaustedError.
    """
    data = _Window(source, *where, first_read)
    _, header, is_dictionary = _take_header(data, modules, 0, True)
    if not is_dictionary:
        return None
    body: bytes | memoryview = data.take(_body_size(header))
    if modules is not None:
        body = modules.decrypt(body, ModuleType.DICTIONARY_PAGE)
    found = _details(header) or Struct()
    num_values, size = found.get_int(_NUM_VALUES), header.get_int(_UNCOMPRESSED_SIZE)
    if num_values is None or size is None:
        raise FormatError("the header of the dictionary page is incomplete")
    return DictionaryPage(bytes(body), size, num_values)


class DataPage(NamedTuple):
    """A data page as it is stored.

    Attributes
    ----------
    offset, size : int
        Where it begins in the file, and its bytes there, with its header.
    num_values : int
        Number of its values, with nulls.
    num_rows : int or None
        Number of its rows; only pages of version 2 say so.
    """

    offset: int
    size: int
    num_values: int
    num_rows: int | None


def data_pages(source: ReadsAt, where: tuple[int, int], modules: ChunkModules | None) \
        -> Iterator[DataPage]:
    """Yield the data pages of a column chunk. Only their headers are decrypted.

    Parameters are as for :func:`copied_pages`.

    Raises
    ------
    FormatError
        If they are malformed, do not fill the column chunk, or are too many for the encryption.
    AuthenticationError
        If the header of a page does not authenticate.
    """
    data, number = _Window(source, *where), 0
    while data.left:
        start, is_first = data.position, data.position == where[0]
        _, header, is_dictionary = _take_header(data, modules, number, is_first)
        data.skip(_body_size(header))
        if not is_dictionary:
            yield DataPage(start, data.position - start, *_counts(header))
            number += 1
        elif not is_first:
            raise FormatError("a dictionary page is not the first page of its column chunk")


def _counts(header: Struct) -> tuple[int, int | None]:
    """Return the numbers of values and rows that the header of a data page states."""
    is_v2 = header.get_int(_TYPE) == _DATA_PAGE_V2
    found = _details(header) or Struct()
    num_values, num_rows = found.get_int(_NUM_VALUES), found.get_int(_NUM_ROWS) if is_v2 else None
    if num_values is None or num_values < 0 \
            or (is_v2 and (num_rows is None or num_rows < 0)):
        raise FormatError("the header of a data page does not say how many values it has")
    return num_values, num_rows


def _take_header(data: _Window, modules: ChunkModules | None, number: int, is_first: bool) \
        -> tuple[bytes, Struct, bool]:
    """Return the header of the next page as bytes and decoded, and whether it is a dictionary."""
    if modules is None:
        header, length = _decode_header(data)
        return bytes(data.take(length)), header, _is_dictionary(header)
    size = module_length(data.peek(LENGTH_SIZE))
    if size is None or size > min(_MAX_HEADER, data.left):
        raise AuthenticationError("an encrypted module has an invalid length")
    module = data.take(size)
    raw = None
    if is_first:  # a footer need not say whether there is one
        with contextlib.suppress(AuthenticationError):
            raw = modules.decrypt(module, ModuleType.DICTIONARY_PAGE_HEADER)
    is_dictionary = raw is not None
    if raw is None:
        raw = modules.decrypt(module, ModuleType.DATA_PAGE_HEADER, number)
    header, _ = thrift.decode(raw, {})
    if _is_dictionary(header) != is_dictionary:
        raise FormatError("the header of a page is encrypted as that of another type of page")
    return raw, header, is_dictionary


def _decode_header(data: _Window) -> tuple[Struct, int]:
    try:
        return thrift.decode(bytes(data.peek(_USUAL_HEADER)), {})
    except FormatError:  # bounds may be long
        return thrift.decode(bytes(data.peek(_MAX_HEADER)), {})


def _details(header: Struct) -> Struct | None:
    """Return the part of a header for its type of page; None if it is missing."""
    details = header.get(_DETAILS[header.get_int(_TYPE) or 0])
    return thrift.decode(details, {})[0] if isinstance(details, bytes) else None


def _num_values(header: Struct, is_dictionary: bool) -> int:
    """Return the number of values of a data page; 0 for a dictionary."""
    details = None if is_dictionary else _details(header)
    return 0 if details is None else details.get_int(_NUM_VALUES) or 0


def _is_dictionary(header: Struct) -> bool:
    kind = header.get_int(_TYPE)
    if kind not in (_DATA_PAGE, _DICTIONARY_PAGE, _DATA_PAGE_V2):
        raise FormatError(f"a page has the unknown type {kind}")
    return kind == _DICTIONARY_PAGE


def _body_size(header: Struct) -> int:
    size = header.get_int(_COMPRESSED_SIZE)
    if size is None or size < 0:
        raise FormatError(_BEYOND)
    return size


def _open_levels(header: Struct, body: memoryview) -> int:
    """Return how many bytes precede the module of a page.

    Of data pages V2, parquet-java encrypts only the values, not the levels before them.
    """
    described = header.get(_HEADER_V2)
    if int.from_bytes(body[:LENGTH_SIZE], "little") == len(body) - LENGTH_SIZE \
            or not isinstance(described, bytes):
        return 0
    return min(_levels_size(thrift.decode(described, {})[0]), len(body))


def _levels_size(details: Struct) -> int:
    return sum(max(0, details.get_int(field_id) or 0) for field_id in _LEVELS)


def _describe(header: Struct, before: memoryview, parts: Sequence[bytes | memoryview]) -> bool:
    """Adapt a header to another body; return whether it has changed.

    A checksum that did not match does not match then, either.
    """
    size, checksum = sum(map(len, parts)), header.get_int(_CHECKSUM)
    if size != len(before):
        header.set_int(_COMPRESSED_SIZE, thrift.I32, size)
    if checksum is not None:
        after = 0
        for part in parts:
            after = zlib.crc32(part, after)
        changed = (checksum ^ zlib.crc32(before) ^ after) & 0xFFFFFFFF
        header.set_int(_CHECKSUM, thrift.I32, changed - (changed >> 31 << 32))
    return size != len(before) or checksum is not None


class _Window:
    """Consecutive bytes of a file, which is read in parts of at least ``block`` bytes."""

    def __init__(self, source: ReadsAt, start: int, size: int, block: int = _BLOCK):
        if start < 0 or size < 0:
            raise FormatError("the pages of a column lie outside the file")
        self._source, self.position, self.left, self._block = source, start, size, block
        self._data = memoryview(b"")

    def peek(self, size: int) -> memoryview:
        """Return the next bytes; fewer at the end."""
        size = min(size, self.left)
        if len(self._data) < size:
            self._data = memoryview(self._source.read_at(min(max(size, self._block), self.left),
                                                         self.position))
            if len(self._data) < size:
                raise FormatError("the file ends within the pages of this column")
        return self._data[:size]

    def take(self, size: int) -> memoryview:
        """Return exactly so many bytes, and continue behind them."""
        if size > self.left:  # before it is read
            raise FormatError(_BEYOND)
        taken = self.peek(size)
        self.skip(size)
        return taken

    def skip(self, size: int) -> None:
        """Continue so many bytes later; what has not been read of them is not read."""
        if size > self.left:
            raise FormatError(_BEYOND)
        self._data = self._data[size:]
        self.position += size
        self.left -= size
