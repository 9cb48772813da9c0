"""One column of one row group, as the footer describes it (ColumnChunk in parquet.thrift).

A column with its own key has its ColumnMetaData in a separate module (type 1); under a plaintext
footer, a redacted copy is stored next to it for readers without the key. The position of a Bloom
filter (fields 14 and 15) is written to the module, and to the copy if there is one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from secure_bloom.crypto.aad import ModuleType
from secure_bloom.crypto.modules import OVERHEAD, ModuleCipher
from secure_bloom.errors import (
    NO_KEY,
    AuthenticationError,
    FormatError,
    UnknownEncryptionError,
    error_location,
)
from secure_bloom.parquet import thrift
from secure_bloom.parquet.chunk_modules import ChunkModules
from secure_bloom.parquet.chunk_states import ChunkStates, Decoded, RawStatistics, Shared
from secure_bloom.parquet.schema import LeafColumn
from secure_bloom.parquet.thrift import Layout, Struct

_COLUMN_META_LAYOUT: Layout = {}
_COLUMN_CHUNK_LAYOUT: Layout = {8: {1: {}, 2: {}}}  # and 3, ColumnMetaData: decoded on demand

# Field ids of parquet.thrift that this module uses.
_FILE_PATH, _META_DATA, _CRYPTO_META_DATA, _ENCRYPTED_META_DATA = 1, 3, 8, 9  # ColumnChunk
_OFFSET_INDEX, _COLUMN_INDEX = (4, 5), (6, 7)  # likewise: offset and length of each
_TYPE, _PATH = 1, 3  # ColumnMetaData: physical type, path in the schema
_NUM_VALUES, _COMPRESSED_SIZE, _DATA_PAGE, _DICTIONARY_PAGE = 5, 7, 9, 11  # ColumnMetaData
_STATISTICS, _ENCODING_STATS, _BLOOM_OFFSET, _BLOOM_LENGTH = 12, 13, 14, 15  # likewise
_DATA_PAGES = (0, 3)  # PageType: versions 1 and 2
_DICTIONARY_ENCODINGS = {2, 8}  # Encoding: PLAIN_DICTIONARY, RLE_DICTIONARY


class ChunkView:
    """One column of one row group, as the footer describes it."""

    __slots__ = ("_group", "_known", "column")

    def __init__(self, group: ChunkStates, column: LeafColumn):
        self._group, self.column = group, column
        self._known: Decoded | None = None  # what the row group returned, to ask it only once

    @property
    def _file(self) -> Shared:
        return self._group.shared

    @property
    def row_group(self) -> int:
        """Position of the row group in the file."""
        return self._group.number

    @property
    def _ordinal(self) -> int:
        """The row group's ordinal, used in the AAD of modules."""
        ordinal = self._group.ordinal
        return self._group.number if ordinal is None else ordinal

    @property
    def _decoded(self) -> Decoded:
        if self._known is None:
            self._known = self._group.decoded(self.column.ordinal)
        return self._known

    @property
    def _struct(self) -> Struct:
        """The ColumnChunk, decoded on first access."""
        decoded = self._known or self._decoded
        struct = decoded.struct
        if struct is None:
            with error_location(**self.place):
                raw = self._group.raw(self.column.ordinal)
                assert raw is not None  # what was changed is decoded
                struct = decoded.struct = self._decode(raw, _COLUMN_CHUNK_LAYOUT)
        return struct

    def _decode(self, data: bytes, layout: Layout) -> Struct:
        return thrift.decode(data, layout, self._file.kernels)[0]

    @property
    def encryption(self) -> str | None:
        """``"footer key"``, ``"column key"``, or None for a plaintext column.

        A column that is encrypted in an unknown way counts as one whose own key is not available.
        """
        union = self._struct.get(_CRYPTO_META_DATA)
        if union is None:
            return None
        return "footer key" if _member(union)[0] == 1 else "column key"

    def _crypto_member(self) -> tuple[int, Struct]:
        return _member(self._struct.get(_CRYPTO_META_DATA))

    @property
    def is_metadata_encrypted(self) -> bool:
        """Whether the metadata of an encrypted column cannot be changed without its key.

        A column without its own key uses the footer key, and its metadata is in the footer.
        """
        return self.encryption == "footer key" or self.has_metadata_module

    @property
    def key_metadata(self) -> bytes | None:
        """The file's metadata for the column's own key."""
        own = self._column_key_struct()
        return own.get_binary(2) if own is not None else None

    @property
    def place(self) -> dict[str, Any]:
        """Row group and column, in the form that errors use."""
        return {"row_group": self.row_group, "column": self.column.path}

    @property
    def cipher(self) -> ModuleCipher | None:
        """The cipher of the column's modules; None for a plaintext column."""
        decoded = self._decoded
        if decoded.cipher is None and self.encryption is not None:
            with error_location(**self.place):
                if self._crypto_member()[0] == 0:
                    raise UnknownEncryptionError("the column is encrypted in a way that is not "
                                                 "known here; read other columns")
                crypto = self._file.crypto
                decoded.cipher = crypto.footer_cipher if self.encryption == "footer key" \
                    else crypto.column_cipher(self.column.path, self.key_metadata)
        return decoded.cipher

    @property
    def modules(self) -> ChunkModules | None:
        """How the column's modules are encrypted, here and now; None for a plaintext column."""
        cipher, crypto = self.cipher, self._file.crypto
        if cipher is None:
            return None
        by_gcm = crypto.algorithm is not None and crypto.algorithm.authenticates_pages
        return ChunkModules(cipher, crypto.file_aad, self._ordinal, self.column.ordinal, by_gcm)

    @property
    def bloom_filter(self) -> tuple[int, int | None] | None:
        """Offset of the Bloom filter in the file and its length if stored; None without a filter.

        Under a plaintext footer this is known without the column's key. If only the redacted copy
        specifies a filter, that filter is returned, because every other reader finds it, too.

        Raises KeyRetrievalError or AuthenticationError if the column's metadata is encrypted and
        cannot be decrypted.
        """
        for meta in (self._visible_metadata(), self._written_metadata()):
            if meta is not None and (offset := meta.get_int(_BLOOM_OFFSET)) is not None:
                return offset, meta.get_int(_BLOOM_LENGTH)
        return None

    @property
    def pages(self) -> tuple[int, int] | None:
        """Offset and length in bytes of the column's pages; None if not in the footer.

        Availability and errors as for :attr:`bloom_filter`.
        """
        meta = self._visible_metadata()
        # Some writers store 0 if there is no dictionary page.
        starts = filter(None, (meta.get_int(_DICTIONARY_PAGE), meta.get_int(_DATA_PAGE)))
        start, length = min(starts, default=None), meta.get_int(_COMPRESSED_SIZE)
        return (start, length) if start and length else None

    @property
    def file_path(self) -> str | None:
        """The file of the pages, if that is another one."""
        return self._struct.get_string(_FILE_PATH)

    @property
    def column_index(self) -> tuple[int, int] | None:
        """Offset and length in bytes of the column index; None without one. Needs no key."""
        return self._range(_COLUMN_INDEX)

    @property
    def offset_index(self) -> tuple[int, int] | None:
        """Offset and length in bytes of the offset index; None without one. Needs no key."""
        return self._range(_OFFSET_INDEX)

    def _range(self, fields: tuple[int, int]) -> tuple[int, int] | None:
        start, length = map(self._struct.get_int, fields)
        return (start, length) if start and length else None

    @property
    def num_pages(self) -> int:
        """Number of pages including dictionary pages; an upper bound if the footer omits it."""
        count = sum(stats.get_int(3) or 0 for stats in self._encoding_stats())
        compressed = self.metadata().get_int(_COMPRESSED_SIZE) or 0
        return count or compressed // OVERHEAD

    @property
    def is_dictionary_encoded(self) -> bool:
        """Whether the footer says that every value of the pages is in the dictionary."""
        is_encoded = False
        for stats in self._encoding_stats():
            if stats.get_int(1) in _DATA_PAGES:
                is_encoded = stats.get_int(2) in _DICTIONARY_ENCODINGS
                if not is_encoded:
                    break
        return is_encoded

    def _encoding_stats(self) -> Iterator[Struct]:
        """The encoding counts per page type; empty if the footer does not specify them."""
        return thrift.each(self.metadata(), _ENCODING_STATS, {})

    @property
    def statistics(self) -> RawStatistics:
        """The footer's statistics for the values; empty without the column's key.

        Only fields with a defined order are used: ``min`` and ``max`` of old writers are ignored.
        """
        decoded = self._decoded
        if decoded.statistics is None:
            try:
                meta = self.metadata()
            except NO_KEY:
                return RawStatistics()
            with error_location(**self.place):
                decoded.statistics = self._statistics_in(meta)
        return decoded.statistics

    @property
    def has_type_order(self) -> bool:
        """Whether the file says that the column is ordered as its type defines.

        Without any order, new minimum and maximum values would mean nothing (ColumnOrder in
        parquet.thrift). In the total order of IEEE 754, they need numbers of NaN beside them.
        """
        return self._file.has_type_order(self.column)

    @property
    def has_defined_order(self) -> bool:
        """Whether minimum and maximum of the column's values are in an order that is known here."""
        return self._file.has_defined_order(self.column)

    def _statistics_in(self, meta: Struct) -> RawStatistics:
        raw = meta.get(_STATISTICS)
        if not isinstance(raw, bytes):
            return RawStatistics(meta.get_int(_NUM_VALUES))
        found, _ = thrift.decode(raw, {})
        bounds = (found.get_binary(6), found.get_binary(5)) if self.has_defined_order else ()
        return RawStatistics(meta.get_int(_NUM_VALUES), found.get_int(3), *bounds)

    @property
    def has_metadata_module(self) -> bool:
        """Whether the column's metadata is in a module of its own."""
        return self._struct.get_binary(_ENCRYPTED_META_DATA) is not None

    @property
    def exposed_metadata(self) -> Struct | None:
        """The ColumnMetaData of an encrypted column that can be read without the column's key.

        The footer key then suffices to read it; under a plaintext footer, no key is needed.
        """
        crypto_metadata = self._struct.get(_CRYPTO_META_DATA)
        if crypto_metadata is None or (self._file.crypto.has_encrypted_footer
                                       and self.encryption == "footer key"):
            return None
        return self._written_metadata()

    @property
    def hides_bloom_filter(self) -> bool:
        """Whether the redacted copy under a plaintext footer omits the filter's position."""
        written = self._written_metadata()
        return written is not None and written.get_int(_BLOOM_OFFSET) is None \
            and self.bloom_filter is not None

    def _check_is_of_column(self, meta: Struct) -> None:
        """Check metadata that the column's key protects against the schema, which it does not.

        Who has another key can write another footer around the columns, with their names exchanged.
        """
        is_path = meta.get(_PATH) is None or self._is_path_of_column(meta)
        if not is_path or meta.get_int(_TYPE) != self.column.type.number:
            raise AuthenticationError("the column's encrypted metadata is that of another column "
                                      "than the schema says")

    def _is_path_of_column(self, meta: Struct) -> bool:
        path = meta.get(_PATH)
        return isinstance(path, bytes) and self.column.parts == tuple(
            name.decode("utf-8", "backslashreplace") for name in thrift.decode_binaries(path))

    def _column_key_struct(self) -> Struct | None:
        member, fields = self._crypto_member()
        return fields if member == 2 else None

    def _visible_metadata(self) -> Struct:
        """The column's ColumnMetaData; without its key the redacted copy, if there is one."""
        try:
            return self.metadata()
        except NO_KEY:
            redacted = self._written_metadata()
            if redacted is None:
                raise
            return redacted

    def _written_metadata(self) -> Struct | None:
        """The ColumnMetaData that is stored next to the module, or instead of it."""
        for field in self._struct.fields:
            if field[0] == _META_DATA and field[1] == thrift.STRUCT:
                if isinstance(field[2], bytes):
                    field[2] = self._decode(field[2], _COLUMN_META_LAYOUT)
                return field[2]
        return None

    def metadata(self) -> Struct:
        """Return the column's ColumnMetaData: the encrypted one if there is one.

        Raises FormatError, AuthenticationError or KeyRetrievalError if it cannot be read.
        """
        decoded = self._decoded
        if decoded.meta is not None:
            return decoded.meta
        with error_location(**self.place):
            module = self._struct.get_binary(_ENCRYPTED_META_DATA)
            if module is not None:
                modules = self.modules
                if modules is None:
                    raise FormatError("the column has encrypted metadata but is not encrypted")
                plaintext = modules.decrypt(module, ModuleType.COLUMN_META_DATA)
                opened = self._decode(plaintext, _COLUMN_META_LAYOUT)
                self._check_is_of_column(opened)
                decoded.meta = opened
                return opened
            meta = self._written_metadata()
            if meta is None:
                raise FormatError("the column has no metadata")
            if meta.get_int(_TYPE) != self.column.type.number:
                raise FormatError("the column's type differs from the schema")
            return meta


def _member(union: object) -> tuple[int, Struct]:
    """Return the member of a union ColumnCryptoMetaData and its id; 0 if it is not known."""
    if isinstance(union, Struct) and len(union.fields) == 1:
        [[member, _, fields]] = union.fields
        if member in (1, 2) and isinstance(fields, Struct):
            return member, fields
    return 0, Struct()
