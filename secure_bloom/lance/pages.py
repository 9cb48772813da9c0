"""Check the pages that a Lance file declares before pylance reads them.

pylance trusts the numbers of values that a page and its chunks declare. If they differ from the
number of rows of the page, pylance panics while Arrow asks for a batch, which aborts the process.

The end of a file (file2.proto, encodings_v2_1.proto):

    metadata of each column | table of them: offset, size (8 each) | ... | footer

The first buffer of a page with mini-blocks has a word for each chunk, of 2 or 4 bytes. Its lower 4
bits are the logarithm of the number of values; the last chunk, where it is 0, has the others.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import BinaryIO

import numpy as np

from secure_bloom.errors import FormatError

TABLE_ENTRY = struct.Struct("<QQ")
_PAGES = 2  # field of ColumnMetadata
_OFFSETS, _SIZES, _LENGTH, _ENCODING = 1, 2, 3, 4  # of ColumnMetadata.Page
_DIRECT, _BYTES, _ANY_TYPE, _ANY_VALUE = 2, 1, 1, 2  # of Encoding, DirectEncoding, Any
_PAGE_LAYOUT = b"/lance.encodings21.PageLayout"
_MINI_BLOCK, _FULL_ZIP = 1, 3  # of PageLayout
_NUM_VALUES = {_MINI_BLOCK: 9, _FULL_ZIP: 6}  # of these layouts
_HAS_LARGE_CHUNK = 10  # of MiniBlockLayout
_WIDTHS = {1: 8, 5: 4}  # bytes of the wire types with a fixed width


def check_pages(file: BinaryIO, size: int, table: int, columns: int) -> None:
    """Check the pages of all columns of a file; ``table`` is where the table of them begins.

    Raises FormatError if a page is inconsistent, or something is outside the file.
    """
    if table + columns * TABLE_ENTRY.size > size:
        raise FormatError(f"the file is too small for {columns} columns")
    file.seek(table)
    entries = list(TABLE_ENTRY.iter_unpack(file.read(columns * TABLE_ENTRY.size)))
    if sum(length for _, length in entries) > size:
        raise FormatError("the metadata of its columns is larger than the file")
    left = size  # bytes of chunks' words: pages that share them could take ages to read
    for column, (offset, length) in enumerate(entries):
        if offset + length > size:
            raise FormatError(f"the metadata of column {column} is outside the file")
        file.seek(offset)
        for number, value in _fields(memoryview(file.read(length))):
            if number == _PAGES:
                left -= _check_page(file, size, _message(value), column)
                if left < 0:
                    raise FormatError("pages of the file overlap")


def _check_page(file: BinaryIO, size: int, page: memoryview, column: int) -> int:
    """Check a page; return the number of bytes read for it."""
    direct = _message(_only(_message(_only(page, _ENCODING)), _DIRECT))
    described = _message(_only(direct, _BYTES))
    if _message(_only(described, _ANY_TYPE)) != _PAGE_LAYOUT:
        return 0  # of an older version, which pylance reads in another way
    layouts = list(_fields(_message(_only(described, _ANY_VALUE))))
    if len(layouts) > 1:
        raise FormatError(f"a page of column {column} has several layouts")
    chunks = b""
    for kind, content in layouts:
        if kind not in _NUM_VALUES:
            continue
        layout, rows = _message(content), _only(page, _LENGTH)
        is_good = _only(layout, _NUM_VALUES[kind]) == rows
        if is_good and kind == _MINI_BLOCK and isinstance(rows, int):
            is_large = _only(layout, _HAS_LARGE_CHUNK) != 0
            chunks = _first_buffer(file, size, page)
            is_good = _have_values(chunks, "<u4" if is_large else "<u2", rows)
        if not is_good:
            raise FormatError(f"a page of column {column} has another number of values than of "
                              "rows; rebuild the index")
    return len(chunks)


def _have_values(chunks: bytes, dtype: str, count: int) -> bool:
    if not chunks or len(chunks) % np.dtype(dtype).itemsize:
        return not chunks and count == 0
    logarithms = np.frombuffer(chunks, dtype=dtype).astype(np.int64) & 0xF
    rest = count - int((1 << logarithms[:-1]).sum())
    return rest > 0 and (logarithms[-1] == 0 or 1 << int(logarithms[-1]) == rest)


def _first_buffer(file: BinaryIO, size: int, page: memoryview) -> bytes:
    offsets, sizes = (_message(_only(page, field)) for field in (_OFFSETS, _SIZES))
    if not offsets or not sizes:
        return b""
    (offset, _), (length, _) = _varint(offsets, 0), _varint(sizes, 0)
    if offset + length > size:
        raise FormatError("a page is outside the file")
    file.seek(offset)
    return file.read(length)


# --- protobuf ------------------------------------------------------------------------------------

def _only(message: memoryview, wanted: int) -> int | memoryview:
    """Return the value of a field that occurs once; 0 or empty, which are the same, if it does not.
    """
    found = [value for number, value in _fields(message) if number == wanted]
    if len(found) > 1:
        raise FormatError("a field of the file's metadata occurs twice")
    return found[0] if found else 0


def _message(value: int | memoryview) -> memoryview:
    if value == 0:
        return memoryview(b"")
    if isinstance(value, int):
        raise FormatError("a field of the file's metadata has a wrong type")
    return value


def _fields(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Yield number and value of each field; the value is an integer or bytes."""
    position = 0
    while position < len(message):
        key, position = _varint(message, position)
        kind = key & 7
        if kind == 0:
            value, position = _varint(message, position)
            yield key >> 3, value
            continue
        width = _WIDTHS.get(kind)
        if kind == 2:
            width, position = _varint(message, position)
        if width is None or width > len(message) - position:
            raise FormatError("the file's metadata is truncated or malformed")
        yield key >> 3, message[position:position + width]
        position += width


def _varint(message: memoryview, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(message):
            break
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (2**64 - 1), position
    raise FormatError("the file's metadata is truncated or malformed")
