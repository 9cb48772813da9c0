"""The end of a Parquet file: the footer's bytes, their length, and the magic."""

from __future__ import annotations

from secure_bloom.errors import FormatError
from secure_bloom.storage.source import Source

TAIL_SIZE = 8  #: footer length and magic
MAGIC = b"PAR1"
MAGIC_ENCRYPTED = b"PARE"
MAGICS = MAGIC, MAGIC_ENCRYPTED  #: at the end of a Parquet file and, mostly, at its start
MAX_FOOTER = 256 * 1024 * 1024  #: bytes; footers of 100,000 column chunks have 50 to 100 MB
_MUCH = 1024 * 1024  # bytes that are not to be in memory twice


def split_tail(data: bytes) -> tuple[bytes, bytes, bytes]:
    """Split the end of a file into what precedes the footer, the footer's content, and the magic.

    ``data`` must contain the whole footer.
    """
    length = int.from_bytes(data[-TAIL_SIZE:-4], "little")
    start = len(data) - TAIL_SIZE - length
    return data[:start], data[start:-TAIL_SIZE], data[-4:]


def read_footer(source: Source) -> tuple[bytes, bytes]:
    """Return the footer's bytes without the last 8, and the magic.

    Raises FormatError if there is no footer, or one of more than :data:`MAX_FOOTER` bytes: a sparse
    file may claim gigabytes that take no place on the disk.
    """
    tail = source.read_tail(TAIL_SIZE)
    magic = bytes(tail[-4:])
    if source.size < TAIL_SIZE + 4 or magic not in MAGICS:
        raise FormatError("this is not a Parquet file, or it is truncated: it does not end with "
                          "PAR1 or PARE")
    length = int.from_bytes(tail[-TAIL_SIZE:-4], "little")
    if length > source.size - TAIL_SIZE - 4:
        raise FormatError(f"the footer claims {length} bytes, but the file has {source.size}")
    if length > MAX_FOOTER:
        raise FormatError(f"the footer claims {length:,} bytes; at most {MAX_FOOTER:,} are read: "
                          "write the data into several files")
    if length < _MUCH:
        return bytes(source.read_tail(length + TAIL_SIZE)[:-TAIL_SIZE]), magic
    content = source.file.read_at(length, source.size - TAIL_SIZE - length)
    source.note_read()
    if len(content) != length:
        raise FormatError("the file was truncated while it was being read")
    return content, magic
