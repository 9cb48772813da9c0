"""Check the pages that a Lance file declares before pylance reads them.

pylance trusts the number of values that the metadata of a page declares. If it differs from the
number of rows of the page, pylance panics while Arrow asks for a batch, which aborts the process.

The end of a file (file2.proto, encodings_v2_1.proto):

    metadata of each column | table of them: offset, size (8 each) | ... | footer
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import BinaryIO

from secure_bloom.errors import FormatError

TABLE_ENTRY = struct.Struct("<QQ")
_PAGES = 2  # field of ColumnMetadata
_LENGTH, _ENCODING = 3, 4  # of ColumnMetadata.Page
_DIRECT, _BYTES, _ANY_TYPE, _ANY_VALUE = 2, 1, 1, 2  # of Encoding, DirectEncoding, Any
_PAGE_LAYOUT = b"/lance.encodings21.PageLayout"
_NUM_VALUES = {1: 9, 3: 6}  # of MiniBlockLayout and FullZipLayout, by their field of PageLayout
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
    for column, (offset, length) in enumerate(entries):
        if offset + length > size:
            raise FormatError(f"the metadata of column {column} is outside the file")
        file.seek(offset)
        for number, value in _fields(memoryview(file.read(length))):
            if number == _PAGES:
                _check_page(_message(value), column)


def _check_page(page: memoryview, column: int) -> None:
    direct = _message(_only(_message(_only(page, _ENCODING)), _DIRECT))
    described = _message(_only(direct, _BYTES))
    if _message(_only(described, _ANY_TYPE)) != _PAGE_LAYOUT:
        return  # of an older version, which pylance reads in another way
    layouts = list(_fields(_message(_only(described, _ANY_VALUE))))
    if len(layouts) > 1:
        raise FormatError(f"a page of column {column} has several layouts")
    for kind, layout in layouts:
        if kind in _NUM_VALUES:
            values, rows = _only(_message(layout), _NUM_VALUES[kind]), _only(page, _LENGTH)
            if values != rows:
                raise FormatError(f"a page of column {column} has another number of values than "
                                  "of rows; rebuild the index")


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
