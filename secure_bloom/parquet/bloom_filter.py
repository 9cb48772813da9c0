"""A Bloom filter in a Parquet file: header and bitset, in plaintext or as two encrypted modules.

    plaintext   header | bitset
    encrypted   module of the header (type 8) | module of the bitset (type 9)

The rule: a filter is encrypted if, and only if, its column is, with the column's key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from secure_bloom.crypto.aad import ModuleType
from secure_bloom.crypto.modules import LENGTH_SIZE, OVERHEAD, module_length
from secure_bloom.display import Result, count, shown
from secure_bloom.errors import (
    NO_KEY,
    AuthenticationError,
    FormatError,
    UnsupportedError,
    error_location,
)
from secure_bloom.parquet import thrift
from secure_bloom.parquet.chunk_modules import ChunkModules
from secure_bloom.parquet.column_chunk import ColumnChunk
from secure_bloom.parquet.header import (
    LONGEST_HEADER,
    MAX_HEADER_SIZE,
    encode_header,
    parse_header,
    usable,
)
from secure_bloom.sbbf.filter import SplitBlockBloomFilter
from secure_bloom.sbbf.sizing import MAX_BYTES

_MAX_HEADER_MODULE = LONGEST_HEADER + OVERHEAD
_MAX_LENGTH = _MAX_HEADER_MODULE + MAX_BYTES + OVERHEAD
#: with the most bytes that each may have
_MODULES = ((ModuleType.BLOOM_FILTER_HEADER, _MAX_HEADER_MODULE),
            (ModuleType.BLOOM_FILTER_BITSET, _MAX_LENGTH))


@dataclass(frozen=True, slots=True, repr=False)
class BloomFilterInfo(Result):
    """A Bloom filter of a file.

    Attributes
    ----------
    row_group : int
        Row-group number, from 0.
    column : str
        Dotted path of the leaf column.
    offset : int
        Where the filter begins in the file.
    length : int or None
        Bytes of header and bitset as stored; None if the footer does not specify it.
    num_bytes : int or None
        Bytes of the bitset; None if the header cannot be read without the column's key.
    encrypted : bool
        Whether the filter is encrypted, which is the case exactly when the column is.
    """

    row_group: int
    column: str
    offset: int
    length: int | None
    num_bytes: int | None
    encrypted: bool

    def _headline(self) -> str:
        size = "size not known" if self.num_bytes is None else count(self.num_bytes, "byte")
        return (f"row group {self.row_group}, column {shown(self.column, 40)}: {size} at "
                f"{self.offset}, {'encrypted' if self.encrypted else 'plaintext'}")


def encode_filter(filter_: SplitBlockBloomFilter, chunk: ColumnChunk) -> list[bytes | memoryview]:
    """Return the bytes to write for the filter of a column chunk, in two parts."""
    with error_location(**chunk.place):
        return _sealed([encode_header(filter_.num_bytes), filter_.bitset], chunk.modules)


def _sealed(parts: list[bytes | memoryview], modules: ChunkModules | None) \
        -> list[bytes | memoryview]:
    return parts if modules is None else [modules.encrypt(part, module_type)
                                          for part, (module_type, _)
                                          in zip(parts, _MODULES, strict=True)]


class ReadsAt(Protocol):
    """A file that can be read at any position."""

    def read_at(self, nbytes: int, offset: int, /) -> bytes | memoryview:
        """Return up to ``nbytes`` bytes from ``offset`` on; fewer at the end of the file."""


def read_filter(source: ReadsAt, chunk: ColumnChunk, end: int,
                disjoint: Disjoint | None = None) -> SplitBlockBloomFilter | None:
    """Read the filter of a column chunk; None if it has none.

    No part of a filter may extend beyond ``end``, where the footer begins. ``disjoint`` is required
    to detect overlaps when the filters of many column chunks are read.

    Raises FormatError, AuthenticationError, UnsupportedError or KeyRetrievalError, with row group
    and column. If a filter cannot be decrypted, no part of it is returned.
    """
    with error_location(**chunk.place):
        where = chunk.bloom_filter
        if where is None:
            return None
        data = _FilterBytes(source, *where, end)
        if disjoint is not None:
            disjoint.add(chunk, where[1] or 0)
        data.read_all()
        modules = chunk.modules
        num_bytes = _take_header(data, modules)
        if disjoint is not None and where[1] is None:
            disjoint.add(chunk, num_bytes)
        if modules is None:
            return SplitBlockBloomFilter.from_bitset(data.take(num_bytes),
                                                     column_type=chunk.column.type)
        bitset = modules.cipher.decrypt_buffer(data.take_module(_MAX_LENGTH),
                                               modules.aad(ModuleType.BLOOM_FILTER_BITSET))
        _check_size(num_bytes, bitset.size)
        return SplitBlockBloomFilter._over(bitset, chunk.column.type)


def _check_size(claimed: int, size: int) -> None:
    if size != claimed:
        raise FormatError(f"the Bloom filter header claims {claimed} bytes, but the bitset has "
                          f"{size}")


def copied_filter(source: ReadsAt, offset: int, length: int, old: ChunkModules | None,
                  new: ChunkModules | None) -> list[bytes | memoryview]:
    """Return the header and the bitset of a stored filter, encrypted in another way.

    The header loses its extensions.

    ``offset`` and ``length`` are those of both, in bytes; ``old`` and ``new`` as for
    :func:`.copied_pages`. Errors as for :func:`read_filter`.
    """
    data = _FilterBytes(source, offset, length, offset + length)
    data.read_all()
    parts: list[bytes | memoryview]
    if old is None:
        num_bytes, header_size = usable(parse_header(data.peek))
        parts = [data.take(header_size), data.take(num_bytes)]
    else:
        parts = [old.decrypt(data.take_module(largest), module_type)
                 for module_type, largest in _MODULES]
        # parquet-java encrypts the buffer in which it encodes the header, with what follows there.
        header = parts[0]
        num_bytes, header_size = usable(parse_header(lambda size: header[:size]))
        parts[0] = header[:header_size]
        _check_size(num_bytes, len(parts[1]))
    parts[0] = thrift.without_extensions(bytes(parts[0]))
    return _sealed(parts, new)


def read_header(source: ReadsAt, chunk: ColumnChunk, end: int) -> int | None:
    """Return the filter's bitset size in bytes; arguments and errors as for :func:`read_filter`."""
    with error_location(**chunk.place):
        where = chunk.bloom_filter
        return None if where is None \
            else _take_header(_FilterBytes(source, *where, end), chunk.modules)


def read_plain_header(source: ReadsAt, offset: int) -> tuple[int, int]:
    """Return the sizes of bitset and header of a plaintext filter, without any key.

    Raises FormatError or UnsupportedError if there is none that can be used.
    """
    return usable(parse_header(lambda size: source.read_at(size, offset)))


def read_info(source: ReadsAt, chunk: ColumnChunk, end: int) -> BloomFilterInfo | None:
    """Return what is known about the filter of a column chunk without reading its bitset.

    None if it has none, or the metadata of the column chunk cannot be read without its key.
    Arguments and errors as for :func:`read_filter`.
    """
    with error_location(**chunk.place):
        try:
            where = chunk.bloom_filter
        except NO_KEY:
            return None
        if where is None:
            return None
        try:
            num_bytes = read_header(source, chunk, end)
        except (*NO_KEY, UnsupportedError):
            num_bytes = None
        return BloomFilterInfo(chunk.row_group, chunk.column.path, *where, num_bytes,
                               chunk.encryption is not None)


class Disjoint:
    """Detects overlapping parts of a file by their sizes: a small file could otherwise take ages.

    Parts that do not overlap cannot total more bytes than precede ``end``, where the footer begins.
    """

    def __init__(self, end: int, what: str = "Bloom filters"):
        self._left, self._what = end, what

    def add(self, chunk: ColumnChunk, num_bytes: int) -> None:
        """Count the part of a column chunk, before it is read.

        Raises FormatError if all parts together have more bytes than precede the footer.
        """
        self._left -= num_bytes
        if self._left < 0:
            raise FormatError(f"the {self._what} of this file overlap: together they claim more "
                              "bytes than the file has", **chunk.place)


PLAIN, ENCRYPTED, UNKNOWN = "plain", "encrypted", "unknown"


@dataclass(frozen=True, slots=True)
class StoredFilter:
    """What is stored at an offset of a file, as far as it can be determined without a key.

    ``PLAIN`` and ``ENCRYPTED``: a filter, or bytes that look like one; ``UNKNOWN``: neither. The
    length in bytes is that of header and bitset; None if they do not specify it.
    """

    kind: str
    length: int | None = None


def detect_filter(source: ReadsAt, offset: int, end: int) -> StoredFilter:
    """Inspect what is stored at an offset; ``source`` and ``end`` as for :func:`read_filter`.

    An encrypted header cannot be mistaken for a plaintext one: the length of its module ends with
    two zeros, which end the Thrift structure before it is complete.
    """
    head = source.read_at(min(MAX_HEADER_SIZE, end - offset), offset)

    def peek(size: int) -> bytes | memoryview:
        return head if size <= MAX_HEADER_SIZE else source.read_at(min(size, end - offset), offset)

    try:
        return StoredFilter(PLAIN, parse_header(peek).length)
    except FormatError:
        header = module_length(head)
    if header is None or header > min(_MAX_HEADER_MODULE, end - offset):
        return StoredFilter(UNKNOWN)
    bitset = module_length(source.read_at(LENGTH_SIZE, offset + header))
    if bitset is None or bitset > end - offset - header:
        return StoredFilter(UNKNOWN)
    return StoredFilter(ENCRYPTED, header + bitset)


def _take_header(data: _FilterBytes, modules: ChunkModules | None) -> int:
    """Return the bitset size from the header; ``data`` is then positioned at the bitset."""
    if modules is None:
        header = parse_header(data.peek)
        data.take(header.size)
    else:
        plaintext = modules.decrypt(data.take_module(_MAX_HEADER_MODULE),
                                    ModuleType.BLOOM_FILTER_HEADER)
        header = parse_header(lambda size: plaintext[:size])
    if header.obstacle is not None and header.length is not None:
        data.check_left(header.num_bytes)
    num_bytes, _ = usable(header)
    data.check_length()
    return num_bytes


class _FilterBytes:
    """The bytes from a filter's offset on."""

    def __init__(self, source: ReadsAt, offset: int, length: int | None, end: int):
        if not 0 < offset < end:
            raise FormatError(f"the Bloom filter offset {offset} is outside the data, "
                              f"which ends at {end}")
        if length is not None and not 0 < length <= end - offset:
            raise FormatError(f"the Bloom filter length {length} at offset {offset} extends "
                              f"outside the data, which ends at {end}")
        self._source = source
        self._position = offset
        self._length = length
        self._end = end if length is None else offset + length
        self._buffer: bytes | memoryview = b""

    def check_length(self) -> None:
        """Raise FormatError if the length in the footer is larger than any filter used here."""
        if self._length is not None and self._length > _MAX_LENGTH:
            raise FormatError(f"the Bloom filter length {self._length} is larger than any filter "
                              "with this header")

    def read_all(self) -> None:
        """Read all bytes in one request if the footer specifies their length.

        A filter that is too large to be used is not read.
        """
        if self._length is not None and self._length <= _MAX_LENGTH:
            self._buffer = self._read(self._position, self._length)

    def peek(self, size: int) -> bytes | memoryview:
        """Return up to ``size`` of the next bytes, fewer if the data ends."""
        size = min(size, self._end - self._position)
        if len(self._buffer) < size:
            self._buffer = self._read(self._position, size)
        return self._buffer[:size]

    def check_left(self, size: int) -> None:
        """Raise FormatError if fewer bytes are left."""
        left = self._end - self._position
        if left < size:
            raise FormatError(f"the Bloom filter needs {size} more bytes, but only {left} are left")

    def take(self, size: int) -> bytes | memoryview:
        """Return exactly ``size`` bytes."""
        self.check_left(size)
        data = self.peek(size)
        self._buffer = self._buffer[size:]
        self._position += size
        return data

    def take_module(self, max_size: int) -> bytes | memoryview:
        """Return a whole encrypted module; an implausible length is treated as tampering."""
        length = module_length(self.peek(LENGTH_SIZE))
        if length is None or length > min(max_size, self._end - self._position):
            raise AuthenticationError("an encrypted module has an invalid length")
        return self.take(length)

    def _read(self, offset: int, size: int) -> memoryview:
        data = memoryview(self._source.read_at(size, offset))
        if len(data) < size:
            raise FormatError(f"the file ends at {offset + len(data)}, but a Bloom filter extends "
                              f"to {offset + size}")
        return data
