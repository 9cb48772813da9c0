"""The pages of a column chunk as another file stores them, encrypted under their new position.

A column chunk is a dictionary page, if it has one, and data pages. A page is its header
(PageHeader in parquet.thrift) and its body. In an encrypted column, each of the two is a module
(Encryption.md, section 5.2); the sizes in header, footer and offset index are those of modules.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from secure_bloom.crypto.aad import ModuleType
from secure_bloom.errors import FormatError
from secure_bloom.parquet import thrift
from secure_bloom.parquet.column_chunk import ColumnChunk
from secure_bloom.parquet.thrift import Struct

# Field ids of parquet.thrift that this module uses.
_TYPE, _COMPRESSED_SIZE = 1, 3  # PageHeader
_LOCATIONS = 1  # OffsetIndex
_OFFSET, _PAGE_SIZE = 1, 2  # PageLocation
_DATA_PAGE, _DICTIONARY_PAGE, _DATA_PAGE_V2 = 0, 2, 3  # PageType

_MAX_HEADER = 1 << 20  # bytes; it may contain the bounds of the page


@dataclass
class StoredPages:
    """Pages as they will be stored.

    Attributes
    ----------
    parts : list of bytes or memoryview
        They are written one after the other.
    dictionary_size : int
        Stored bytes of the dictionary page; 0 without one.
    data_sizes : list of int
        Stored bytes of each data page, with its header.
    """

    parts: list[bytes | memoryview] = field(default_factory=list)
    dictionary_size: int = 0
    data_sizes: list[int] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Stored bytes of all pages."""
        return self.dictionary_size + sum(self.data_sizes)

    def add(self, parts: list[bytes | memoryview], is_dictionary: bool) -> None:
        """Add a page, which consists of these parts."""
        self.parts += parts
        size = sum(map(len, parts))
        if is_dictionary:
            self.dictionary_size += size
        else:
            self.data_sizes.append(size)


def plain_pages(data: memoryview) -> StoredPages:
    """Return the pages of a plaintext column chunk unchanged.

    Raises FormatError if they are malformed.
    """
    stored = StoredPages()
    for header, start, _, end in _pages(data):
        stored.add([data[start:end]], _is_dictionary(header))
    return stored


def encrypted_pages(data: memoryview, chunk: ColumnChunk, *, by_gcm: bool) -> StoredPages:
    """Return the pages of a plaintext column chunk, encrypted as those of another chunk.

    ``by_gcm``: whether bodies are encrypted by AES-GCM, as headers always are, or by AES-CTR.

    Raises FormatError if they are malformed, or there are too many; KeyExhaustedError if the key
    has encrypted too many modules; KeyRetrievalError if it is not available.
    """
    cipher = chunk.cipher
    assert cipher is not None  # the column is encrypted
    stored = StoredPages()
    for header, _, start, end in _pages(data):
        is_dictionary = _is_dictionary(header)
        page = None if is_dictionary else len(stored.data_sizes)
        of_header, of_body = (
            (ModuleType.DICTIONARY_PAGE_HEADER, ModuleType.DICTIONARY_PAGE) if is_dictionary
            else (ModuleType.DATA_PAGE_HEADER, ModuleType.DATA_PAGE))
        body = cipher.encrypt(data[start:end], chunk.aad(of_body, page)) if by_gcm \
            else cipher.encrypt_page(data[start:end])
        header.set_int(_COMPRESSED_SIZE, thrift.I32, len(body))
        stored.add([cipher.encrypt(thrift.encode(header), chunk.aad(of_header, page)), body],
                   is_dictionary)
    return stored


def _pages(data: memoryview) -> Iterator[tuple[Struct, int, int, int]]:
    """Yield for each page its header, and where the header, the body and the next page begin."""
    position = 0
    while position < len(data):
        header, length = thrift.decode(bytes(data[position:position + _MAX_HEADER]), {})
        body, size = position + length, header.get_int(_COMPRESSED_SIZE)
        if size is None or not 0 <= size <= len(data) - body:
            raise FormatError("a page extends beyond its column chunk")
        yield header, position, body, body + size
        position = body + size


def _is_dictionary(header: Struct) -> bool:
    kind = header.get_int(_TYPE)
    if kind not in (_DATA_PAGE, _DICTIONARY_PAGE, _DATA_PAGE_V2):
        raise FormatError(f"a page has the unknown type {kind}")
    return kind == _DICTIONARY_PAGE


# --- where pages are -----------------------------------------------------------------------------

def moved_index(offset_index: bytes, distance: int) -> bytes:
    """Return an OffsetIndex whose pages were moved by some bytes.

    Raises FormatError if the index is malformed.
    """
    struct, locations = _locations(offset_index)
    for location in locations:
        location.set_int(_OFFSET, thrift.I64, (location.get_int(_OFFSET) or 0) + distance)
    return _with_locations(struct, locations)


def placed_index(offset_index: bytes, start: int, sizes: list[int]) -> bytes:
    """Return an OffsetIndex of pages that begin at an offset and have these sizes in bytes.

    Raises FormatError if the index is malformed, or has another number of pages.
    """
    struct, locations = _locations(offset_index)
    if len(locations) != len(sizes):
        raise FormatError(f"the offset index has {len(locations)} pages, but the column chunk has "
                          f"{len(sizes)}")
    for location, size in zip(locations, sizes, strict=True):
        location.set_int(_OFFSET, thrift.I64, start)
        location.set_int(_PAGE_SIZE, thrift.I32, size)
        start += size
    return _with_locations(struct, locations)


def _locations(offset_index: bytes) -> tuple[Struct, list[Struct]]:
    struct, _ = thrift.decode(offset_index, {})
    return struct, list(thrift.each(struct, _LOCATIONS, {}))


def _with_locations(struct: Struct, locations: list[Struct]) -> bytes:
    struct.set(_LOCATIONS, thrift.LIST, list(locations))
    return thrift.encode(struct)
