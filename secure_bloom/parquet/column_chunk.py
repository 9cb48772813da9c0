"""Changes of a column chunk: its Bloom filter, its key and its encryption."""

from __future__ import annotations

from collections.abc import Iterable

from secure_bloom.crypto.aad import ModuleType
from secure_bloom.errors import FormatError, error_location
from secure_bloom.parquet import thrift
from secure_bloom.parquet.chunk_view import ChunkView
from secure_bloom.parquet.thrift import Struct

# Field ids of parquet.thrift that this module uses.
_META_DATA, _CRYPTO_META_DATA, _ENCRYPTED_META_DATA = 3, 8, 9  # ColumnChunk
_PATH, _BLOOM_OFFSET, _BLOOM_LENGTH = 3, 14, 15  # ColumnMetaData
#: of ColumnMetaData, for readers without the column's key: where pages are and how to decode them
_OF_PAGES = frozenset((*range(1, 8), 9, 10, 11, _BLOOM_OFFSET, _BLOOM_LENGTH))


class ColumnChunk(ChunkView):
    """One column of one row group, which can be changed; the footer holds the changes."""

    __slots__ = ()

    def to_change(self) -> Struct:
        """Return the ColumnChunk, whose changes will be written."""
        struct = self._struct
        decoded = self._known = self._group.to_change(self.column.ordinal)
        decoded.struct = decoded.struct or struct
        return decoded.struct

    def redact(self, fields: Iterable[int]) -> None:
        """Remove fields from the copy of the metadata that is stored next to the module."""
        exposed = self.exposed_metadata
        assert exposed is not None and self.has_metadata_module
        for field in fields:
            exposed.remove(field)
        if self._group.raw(self.column.ordinal) is not None:  # the module stays as it is
            self._group.replace(self.column.ordinal, thrift.encode(self._struct))
            self._known = None

    def set_bloom_filter(self, offset: int, length: int) -> None:
        """Record the position of this column chunk's Bloom filter (header and bitset) in bytes."""
        for meta in self.metadata_to_change():
            meta.set_int(_BLOOM_OFFSET, thrift.I64, offset)
            meta.set_int(_BLOOM_LENGTH, thrift.I32, length)

    def remove_bloom_filter(self) -> None:
        """Record that this column chunk has no Bloom filter."""
        for meta in self.metadata_to_change():
            meta.remove(_BLOOM_OFFSET)
            meta.remove(_BLOOM_LENGTH)

    def metadata_to_change(self) -> list[Struct]:
        """Return the column's ColumnMetaData, and the redacted copy if there is one.

        Their changes will be written. Errors as for :attr:`bloom_filter`.
        """
        self.to_change()
        metas = [self.metadata()]
        redacted = self._written_metadata()
        if redacted is not None and redacted is not metas[0]:
            metas.append(redacted)
        return metas

    def remove_extensions(self) -> None:
        """Remove the extensions of the column's metadata; errors as for :attr:`bloom_filter`."""
        for meta in self.metadata_to_change():
            encoded = thrift.encode(meta)
            if thrift.may_have_extensions(encoded):
                meta.fields = thrift.decode(thrift.without_extensions(encoded), {})[0].fields

    def set_key_metadata(self, key_metadata: bytes) -> None:
        """Replace the file's metadata for the column's own key, if it has a key of its own."""
        self.to_change()
        own = self._column_key_struct()
        if own is not None:
            own.set_binary(2, key_metadata)

    def encrypt_as(self, encryption: str | None, key_metadata: bytes | None = None, *,
                   has_encrypted_footer: bool) -> None:
        """Make this a column chunk of a new version of the file, before it is placed there.

        Parameters
        ----------
        encryption : str or None
            As :attr:`encryption`.
        key_metadata : bytes, optional
            For a key of its own.
        has_encrypted_footer : bool
            Of the new version.

        Raises
        ------
        FormatError, AuthenticationError, KeyRetrievalError
            If the column's metadata cannot be read.
        """
        meta, struct = self.metadata(), self.to_change()
        if encryption is not None and not self._is_path_of_column(meta):
            raise FormatError("the footer has the metadata of another column here than the schema "
                              "says", **self.place)
        has_module = encryption == "column key" \
            or (encryption == "footer key" and not has_encrypted_footer)
        self._decoded.meta = meta if has_module else None
        for field in (_META_DATA, _CRYPTO_META_DATA, _ENCRYPTED_META_DATA):
            struct.remove(field)
        if has_module:  # what a later version of the format has may describe values
            struct.fields = [field for field in struct.fields if field[0] <= _ENCRYPTED_META_DATA]
        if not (has_module and has_encrypted_footer):
            shown = Struct([field for field in meta.fields if field[0] in _OF_PAGES]) \
                if has_module else meta
            struct.set(_META_DATA, thrift.STRUCT, thrift.encode(shown))
        if has_module:
            struct.set_binary(_ENCRYPTED_META_DATA, b"")  # until it is sealed
        if encryption is not None:
            struct.set(_CRYPTO_META_DATA, thrift.STRUCT, _crypto_union(encryption, key_metadata,
                                                                       meta.get(_PATH)))

    def seal(self) -> None:
        """Encrypt the column's metadata again if it was decrypted from a module."""
        meta = self._decoded.meta
        if meta is not None:
            modules = self.modules
            assert modules is not None  # it decrypted the module
            with error_location(**self.place):
                module = modules.encrypt(thrift.encode(meta), ModuleType.COLUMN_META_DATA)
            self.to_change().set_binary(_ENCRYPTED_META_DATA, module)

    def finish(self) -> None:
        """Store changes as sealed bytes from now on, which take far less memory."""
        struct = self.to_change()
        self.seal()
        self._group.replace(self.column.ordinal, thrift.encode(struct))
        self._known = None


def _crypto_union(encryption: str, key_metadata: bytes | None, path: object) -> Struct:
    """Return the union ColumnCryptoMetaData; ``path`` is the list path_in_schema."""
    own = Struct()
    if encryption == "footer key":
        return Struct([[1, thrift.STRUCT, own]])
    own.set(1, thrift.LIST, path)
    if key_metadata is not None:
        own.set_binary(2, key_metadata)
    return Struct([[2, thrift.STRUCT, own]])
